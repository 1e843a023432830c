/*
 * The parameters of a rule that say how much is admitted, and how it is
 * counted.
 */

#include "ngx_http_ratelimit_rule_conf.h"

#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_CALENDAR      "calendar:"
#define NGX_HTTP_RATELIMIT_CALENDAR_LEN  (sizeof("calendar:") - 1)

static ngx_uint_t ngx_http_ratelimit_has_variables(ngx_str_t *value);
static ngx_http_ratelimit_value_t *ngx_http_ratelimit_compile(ngx_conf_t *cf,
    ngx_str_t *value);
static const char *ngx_http_ratelimit_set_calendar(ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);


const char *
ngx_http_ratelimit_set_algorithm(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    int      algorithm;
    u_char  *last, expected[NGX_MAX_CONF_ERRSTR];

    algorithm = ngx_ratelimit_names_find(ngx_ratelimit_algorithm_names,
                                         value->data, value->len);
    if (algorithm >= 0) {
        rule->rule.spec.algorithm = (ngx_ratelimit_algorithm_e) algorithm;
        return NULL;
    }

    last = ngx_ratelimit_names_write(expected, expected + sizeof(expected),
                                     ngx_ratelimit_algorithm_names);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ratelimit_%s\" has an invalid \"algorithm=%V\", "
                       "expected %*s", rule->own ? "zone" : "rule", value,
                       (size_t) (last - expected), expected);
    return "";
}


const char *
ngx_http_ratelimit_set_rate(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (!ngx_http_ratelimit_has_variables(value)) {
        return ngx_ratelimit_rate_parse(value->data, value->len,
                                        &rule->rule.spec.tokens,
                                        &rule->rule.spec.period_us);
    }

    rule->values.limit = ngx_http_ratelimit_compile(cf, value);
    rule->rule.dynamic = 1;

    return rule->values.limit ? NULL : "";
}


const char *
ngx_http_ratelimit_set_limit(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (ngx_http_ratelimit_has_variables(value)) {
        rule->values.limit = ngx_http_ratelimit_compile(cf, value);
        rule->rule.dynamic = 1;

        return rule->values.limit ? NULL : "";
    }

    if (ngx_ratelimit_number_parse(value->data, value->len, 1,
                                   NGX_RATELIMIT_MAX_TOKENS,
                                   &rule->rule.spec.tokens)
        != 0)
    {
        return "a number of requests from 1 to 1073741824";
    }

    return NULL;
}


const char *
ngx_http_ratelimit_set_window(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_int_t  seconds;

    if (value->len >= NGX_HTTP_RATELIMIT_CALENDAR_LEN
        && ngx_strncmp(value->data, NGX_HTTP_RATELIMIT_CALENDAR,
                       NGX_HTTP_RATELIMIT_CALENDAR_LEN)
           == 0)
    {
        return ngx_http_ratelimit_set_calendar(value, rule);
    }

    seconds = ngx_parse_time(value, 1);

    if (value->len == 0 || seconds < 1
        || (uint64_t) seconds > NGX_RATELIMIT_MAX_PERIOD_US / 1000000)
    {
        return "a time from 1s to 366d in whole seconds, \"calendar:day\" or "
               "\"calendar:month\"";
    }

    rule->rule.spec.period_us = (uint64_t) seconds * 1000000;

    return NULL;
}


static const char *
ngx_http_ratelimit_set_calendar(ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t  unit;

    static ngx_str_t  day = ngx_string("day");
    static ngx_str_t  month = ngx_string("month");

    unit.data = value->data + NGX_HTTP_RATELIMIT_CALENDAR_LEN;
    unit.len = value->len - NGX_HTTP_RATELIMIT_CALENDAR_LEN;

    if (ngx_http_ratelimit_equal(&unit, &day)) {
        rule->rule.spec.calendar = NGX_RATELIMIT_CALENDAR_DAY;
        return NULL;
    }

    if (ngx_http_ratelimit_equal(&unit, &month)) {
        rule->rule.spec.calendar = NGX_RATELIMIT_CALENDAR_MONTH;
        return NULL;
    }

    return "\"calendar:day\" or \"calendar:month\"";
}


const char *
ngx_http_ratelimit_set_capacity(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (ngx_ratelimit_number_parse(value->data, value->len, 1,
                                   NGX_RATELIMIT_MAX_TOKENS,
                                   &rule->rule.spec.capacity)
        != 0)
    {
        return "a number of requests from 1 to 1073741824";
    }

    return NULL;
}


const char *
ngx_http_ratelimit_set_burst(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (ngx_ratelimit_number_parse(value->data, value->len, 0,
                                   NGX_RATELIMIT_MAX_TOKENS - 1,
                                   &rule->rule.spec.burst)
        != 0)
    {
        return "a number of requests from 0 to 1073741823";
    }

    return NULL;
}


const char *
ngx_http_ratelimit_set_nodelay(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    rule->rule.spec.nodelay = 1;

    return NULL;
}


const char *
ngx_http_ratelimit_set_delay(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (ngx_ratelimit_number_parse(value->data, value->len, 0,
                                   NGX_RATELIMIT_MAX_TOKENS - 1,
                                   &rule->rule.spec.delay)
        != 0)
    {
        return "a number of requests from 0 to 1073741823";
    }

    return NULL;
}


const char *
ngx_http_ratelimit_set_sync(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    static ngx_str_t  names[] = {
        ngx_string("lease"),     /* in the order of ngx_ratelimit_sync_e */
        ngx_string("strict"),
        ngx_string("async"),
        ngx_null_string
    };

    ngx_uint_t  i;

    for (i = 0; names[i].len; i++) {
        if (ngx_http_ratelimit_equal(&names[i], value)) {
            rule->rule.sync = i;
            return NULL;
        }
    }

    return "\"lease\", \"strict\" or \"async\"";
}


const char *
ngx_http_ratelimit_set_shards(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    uint64_t  shards;

    if (ngx_ratelimit_number_parse(value->data, value->len, 2,
                                   NGX_RATELIMIT_MAX_SHARDS, &shards)
        != 0)
    {
        return "a number from 2 to 64";
    }

    rule->rule.shards = (uint32_t) shards;

    return NULL;
}


const char *
ngx_http_ratelimit_set_fail_mode(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    rule->rule.fail_mode = ngx_http_ratelimit_fail_mode_parse(value);

    return rule->rule.fail_mode ? NULL : "\"open\", \"local\" or \"closed\"";
}


const char *
ngx_http_ratelimit_set_emergency(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_ratelimit_spec_t  spec;

    if (ngx_http_ratelimit_has_variables(value)) {
        return "a rate without variables";
    }

    rule->rule.emergency = ngx_palloc(cf->pool,
                                      sizeof(ngx_ratelimit_limit_t));
    if (rule->rule.emergency == NULL) {
        return "";
    }

    ngx_memzero(&spec, sizeof(ngx_ratelimit_spec_t));
    spec.algorithm = NGX_RATELIMIT_TOKEN_BUCKET;

    return ngx_ratelimit_rule_limit(&spec, value, rule->rule.emergency);
}


const char *
ngx_http_ratelimit_set_dry_run(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    rule->rule.dry_run = 1;

    return NULL;
}


const char *
ngx_http_ratelimit_set_cost(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    uint64_t  cost;

    if (ngx_http_ratelimit_has_variables(value)) {
        rule->values.cost = ngx_http_ratelimit_compile(cf, value);
        rule->rule.dynamic_cost = 1;

        return rule->values.cost ? NULL : "";
    }

    if (ngx_ratelimit_number_parse(value->data, value->len, 0,
                                   NGX_RATELIMIT_MAX_TOKENS, &cost)
        != 0)
    {
        return "a number from 0 to 1073741824, or a value with variables";
    }

    rule->rule.cost = (uint32_t) cost;

    return NULL;
}


const char *
ngx_http_ratelimit_set_cost_header(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t  *header;

    if (!ngx_ratelimit_name_valid(value->data, value->len)) {
        return "the name of a response header: 1 to 64 of A-Z, a-z, 0-9, "
               "\"_\", \".\", \"-\"";
    }

    header = &rule->rule.cost_header;

    header->data = ngx_pnalloc(cf->pool, value->len);
    if (header->data == NULL) {
        return "";
    }

    header->len = value->len;
    ngx_strlow(header->data, value->data, value->len);

    return NULL;
}


const char *
ngx_http_ratelimit_set_count_status(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    u_char      *p, *last, *comma;
    uint64_t     code;
    ngx_uint_t  *status;

    rule->rule.statuses = ngx_array_create(cf->pool, 4, sizeof(ngx_uint_t));
    if (rule->rule.statuses == NULL) {
        return "";
    }

    p = value->data;
    last = value->data + value->len;

    for ( ;; ) {
        comma = ngx_strlchr(p, last, ',');
        if (comma == NULL) {
            comma = last;
        }

        if (ngx_ratelimit_number_parse(p, comma - p, 100, 599, &code) != 0) {
            return "statuses from 100 to 599 like \"401,403\"";
        }

        status = ngx_array_push(rule->rule.statuses);
        if (status == NULL) {
            return "";
        }

        *status = (ngx_uint_t) code;

        if (comma == last) {
            return NULL;
        }

        p = comma + 1;
    }
}


static ngx_uint_t
ngx_http_ratelimit_has_variables(ngx_str_t *value)
{
    return ngx_strlchr(value->data, value->data + value->len, '$') != NULL;
}


/* Returns NULL with the error logged. */
static ngx_http_ratelimit_value_t *
ngx_http_ratelimit_compile(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_http_ratelimit_value_t  *compiled;

    compiled = ngx_palloc(cf->pool, sizeof(ngx_http_ratelimit_value_t));

    if (compiled == NULL
        || ngx_http_ratelimit_value_compile(cf, value, compiled) != NGX_OK)
    {
        return NULL;
    }

    return compiled;
}

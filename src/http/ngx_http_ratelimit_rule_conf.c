/*
 * "ratelimit_rule", and the parameters that "ratelimit_zone" shares with it.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_route.h"
#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_SEEN_KEY       0x01
#define NGX_HTTP_RATELIMIT_SEEN_MATCH     0x02
#define NGX_HTTP_RATELIMIT_SEEN_METHODS   0x04
#define NGX_HTTP_RATELIMIT_SEEN_RATE      0x08
#define NGX_HTTP_RATELIMIT_SEEN_CAPACITY  0x10
#define NGX_HTTP_RATELIMIT_SEEN_SYNC      0x20

/* Returns NULL, or what was expected; "" when the error is logged already. */
typedef const char *(*ngx_http_ratelimit_parameter_pt)(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);

typedef struct {
    const char                       *name;
    ngx_http_ratelimit_parameter_pt   set;
    ngx_uint_t                        bit;
    ngx_uint_t                        of_zone;   /* ratelimit_zone has it too */
} ngx_http_ratelimit_parameter_t;

static const char *ngx_http_ratelimit_set_rate(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_capacity(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_sync(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_key(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_match(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_regex(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_methods(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static ngx_uint_t ngx_http_ratelimit_method(u_char *name, size_t len);

static ngx_http_ratelimit_parameter_t  ngx_http_ratelimit_parameters[] = {
    { "rate=", ngx_http_ratelimit_set_rate,
      NGX_HTTP_RATELIMIT_SEEN_RATE, 1 },
    { "capacity=", ngx_http_ratelimit_set_capacity,
      NGX_HTTP_RATELIMIT_SEEN_CAPACITY, 1 },
    { "sync=", ngx_http_ratelimit_set_sync,
      NGX_HTTP_RATELIMIT_SEEN_SYNC, 1 },
    { "key=", ngx_http_ratelimit_set_key,
      NGX_HTTP_RATELIMIT_SEEN_KEY, 0 },
    { "match=", ngx_http_ratelimit_set_match,
      NGX_HTTP_RATELIMIT_SEEN_MATCH, 0 },
    { "methods=", ngx_http_ratelimit_set_methods,
      NGX_HTTP_RATELIMIT_SEEN_METHODS, 0 },
    { NULL, NULL, 0, 0 }
};

static ngx_conf_bitmask_t  ngx_http_ratelimit_methods[] = {
    { ngx_string("GET"), NGX_HTTP_GET },
    { ngx_string("HEAD"), NGX_HTTP_HEAD },
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
    { ngx_string("OPTIONS"), NGX_HTTP_OPTIONS },
    { ngx_string("MKCOL"), NGX_HTTP_MKCOL },
    { ngx_string("COPY"), NGX_HTTP_COPY },
    { ngx_string("MOVE"), NGX_HTTP_MOVE },
    { ngx_string("PROPFIND"), NGX_HTTP_PROPFIND },
    { ngx_string("PROPPATCH"), NGX_HTTP_PROPPATCH },
    { ngx_string("LOCK"), NGX_HTTP_LOCK },
    { ngx_string("UNLOCK"), NGX_HTTP_UNLOCK },
    { ngx_string("TRACE"), NGX_HTTP_TRACE },
    { ngx_null_string, 0 }
};


char *
ngx_http_ratelimit_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                   rc;
    ngx_str_t                  *value, zone;
    ngx_uint_t                  i;
    ngx_http_ratelimit_rule_t  *rule;

    rule = ngx_pcalloc(cf->pool, sizeof(ngx_http_ratelimit_rule_t));
    if (rule == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;
    rule->rule.id = value[1];

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_http_ratelimit_parameter(&value[i], "zone=", &zone)) {

            if (rule->zone.len) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "\"ratelimit_rule\" has \"%V\", "
                                   "expected one \"zone=\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            rule->zone = zone;
            continue;
        }

        rc = ngx_http_ratelimit_rule_parameter(cf, "ratelimit_rule",
                                               &value[i], rule);
        if (rc == NGX_ERROR) {
            return NGX_CONF_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_rule\" has an invalid parameter "
                               "\"%V\", expected \"zone=\", \"rate=\", "
                               "\"key=\", \"match=\", \"methods=\", "
                               "\"capacity=\" or \"sync=\"", &value[i]);
            return NGX_CONF_ERROR;
        }
    }

    if (rule->zone.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" \"%V\" has no zone, "
                           "expected \"zone=<name>\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (!(rule->seen & NGX_HTTP_RATELIMIT_SEEN_RATE)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" \"%V\" has no rate, "
                           "expected \"rate=<n>r/<period>\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_ratelimit_rule_enter(cf, "ratelimit_rule", conf, rule)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_ratelimit_rule_parameter(ngx_conf_t *cf, const char *directive,
    ngx_str_t *text, ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t                        value;
    const char                      *expected;
    ngx_http_ratelimit_parameter_t  *p;

    for (p = ngx_http_ratelimit_parameters; p->name; p++) {

        if (!p->of_zone && ngx_strcmp(directive, "ratelimit_zone") == 0) {
            continue;
        }

        if (ngx_http_ratelimit_parameter(text, p->name, &value)) {
            break;
        }
    }

    if (p->name == NULL) {
        return NGX_DECLINED;
    }

    if (rule->seen & p->bit) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" has \"%V\", expected one \"%s\"",
                           directive, text, p->name);
        return NGX_ERROR;
    }

    rule->seen |= p->bit;

    expected = p->set(cf, &value, rule);

    if (expected == NULL) {
        return NGX_OK;
    }

    if (expected[0]) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" has an invalid \"%V\", expected %s",
                           directive, text, expected);
    }

    return NGX_ERROR;
}


static const char *
ngx_http_ratelimit_set_rate(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_http_ratelimit_value_t  *rate;

    if (ngx_strlchr(value->data, value->data + value->len, '$') == NULL) {
        return ngx_ratelimit_rate_parse(value->data, value->len,
                                        &rule->rule.spec.tokens,
                                        &rule->rule.spec.period_us);
    }

    rate = ngx_palloc(cf->pool, sizeof(ngx_http_ratelimit_value_t));
    if (rate == NULL) {
        return "";
    }

    if (ngx_http_ratelimit_value_compile(cf, value, rate) != NGX_OK) {
        return "";
    }

    rule->values.limit = rate;
    rule->rule.dynamic = 1;

    return NULL;
}


static const char *
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


static const char *
ngx_http_ratelimit_set_sync(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (value->len != 6 || ngx_strncmp(value->data, "strict", 6) != 0) {
        return "\"sync=strict\"";
    }

    rule->rule.strict = 1;

    return NULL;
}


static const char *
ngx_http_ratelimit_set_key(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (value->len == 0) {
        return "a value with variables";
    }

    rule->rule.key = *value;

    if (ngx_http_ratelimit_value_compile(cf, value, &rule->values.key)
        != NGX_OK)
    {
        return "";
    }

    return NULL;
}


static const char *
ngx_http_ratelimit_set_match(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    const char  *wrong;

    if (value->len && value->data[0] == '~') {
        return ngx_http_ratelimit_set_regex(cf, value, rule);
    }

    rule->rule.route = *value;

    wrong = ngx_ratelimit_route_check(value->data, value->len);

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" has an invalid \"match=%V\", "
                           "expected a path template: %s", value, wrong);
        return "";
    }

    return NULL;
}


static const char *
ngx_http_ratelimit_set_regex(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
#if (NGX_PCRE)

    u_char                errstr[NGX_MAX_CONF_ERRSTR];
    ngx_regex_compile_t   rc;

    ngx_memzero(&rc, sizeof(ngx_regex_compile_t));

    rc.pattern.data = value->data + 1;
    rc.pattern.len = value->len - 1;
    rc.pool = cf->pool;
    rc.err.len = NGX_MAX_CONF_ERRSTR;
    rc.err.data = errstr;

    if (rc.pattern.len && rc.pattern.data[0] == '*') {
        rc.options = NGX_REGEX_CASELESS;
        rc.pattern.data++;
        rc.pattern.len--;
    }

    if (rc.pattern.len == 0) {
        return "a regular expression after \"~\" or \"~*\"";
    }

    if (ngx_regex_compile(&rc) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" has an invalid "
                           "\"match=%V\": %V", value, &rc.err);
        return "";
    }

    rule->rule.regex = rc.regex;

    return NULL;

#else

    return "a path template: this nginx is built without PCRE";

#endif
}


static const char *
ngx_http_ratelimit_set_methods(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    u_char      *p, *last, *comma;
    ngx_uint_t   bit;

    p = value->data;
    last = value->data + value->len;

    for ( ;; ) {
        comma = ngx_strlchr(p, last, ',');
        if (comma == NULL) {
            comma = last;
        }

        bit = ngx_http_ratelimit_method(p, comma - p);
        if (bit == 0) {
            return "HTTP methods like \"GET,POST\"";
        }

        rule->rule.methods |= bit;

        if (comma == last) {
            return NULL;
        }

        p = comma + 1;
    }
}


static ngx_uint_t
ngx_http_ratelimit_method(u_char *name, size_t len)
{
    ngx_conf_bitmask_t  *m;

    for (m = ngx_http_ratelimit_methods; m->name.len; m++) {
        if (m->name.len == len && ngx_strncmp(m->name.data, name, len) == 0) {
            return m->mask;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_ratelimit_rule_enter(ngx_conf_t *cf, const char *directive,
    ngx_http_ratelimit_main_conf_t *conf, ngx_http_ratelimit_rule_t *rule)
{
    const char                  *expected;
    ngx_ratelimit_rule_t        *r;
    ngx_http_ratelimit_rule_t  **entry;

    r = &rule->rule;

    if (!ngx_ratelimit_name_valid(r->id.data, r->id.len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" has an invalid name \"%V\", expected "
                           "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\"",
                           directive, &r->id);
        return NGX_ERROR;
    }

    if (!r->dynamic) {
        expected = ngx_ratelimit_rule_limit(&r->spec, NULL, &r->limit);
        if (expected) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%s\" \"%V\" has an invalid capacity %uL, "
                               "expected %s", directive, &r->id, r->spec.capacity,
                               expected);
            return NGX_ERROR;
        }
    }

    r->cost = 1;
    r->percent = 100;

    ngx_http_ratelimit_place(cf, &rule->place);
    r->data = &rule->values;

    entry = ngx_array_push(&conf->rules);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    *entry = rule;

    return NGX_OK;
}

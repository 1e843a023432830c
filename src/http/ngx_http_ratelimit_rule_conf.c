/*
 * "ratelimit_rule": its parameters, most of which "ratelimit_zone" has too,
 * and which of them go together.
 */

#include "ngx_http_ratelimit_rule_conf.h"

#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_OF(algorithm)  (1u << NGX_RATELIMIT_##algorithm)
#define NGX_HTTP_RATELIMIT_OF_ANY         0x3f
#define NGX_HTTP_RATELIMIT_OF_RATES                                           \
    (NGX_HTTP_RATELIMIT_OF_ANY ^ NGX_HTTP_RATELIMIT_OF(CONCURRENCY))
#define NGX_HTTP_RATELIMIT_OF_LEASES                                          \
    (NGX_HTTP_RATELIMIT_OF_RATES ^ NGX_HTTP_RATELIMIT_OF(SLIDING_LOG))
#define NGX_HTTP_RATELIMIT_OF_SHARDS                                          \
    (NGX_HTTP_RATELIMIT_OF_LEASES ^ NGX_HTTP_RATELIMIT_OF(LEAKY_BUCKET))

/* what a name of a parameter ends with, unless it is a flag */
#define NGX_HTTP_RATELIMIT_HAS_VALUE      '='

/* the directives that have a parameter: bits */
#define NGX_HTTP_RATELIMIT_IN_LIMIT       0x01
#define NGX_HTTP_RATELIMIT_IN_ZONE        0x02
#define NGX_HTTP_RATELIMIT_IN_RULE        0x04
#define NGX_HTTP_RATELIMIT_IN_BOTH                                            \
    (NGX_HTTP_RATELIMIT_IN_ZONE|NGX_HTTP_RATELIMIT_IN_RULE)

typedef struct {
    const char                       *name;
    ngx_http_ratelimit_parameter_pt   set;
    ngx_uint_t                        in;         /* bits */
    ngx_uint_t                        algorithms; /* bits: those that have it;
                                                     0: none of a rule's */
} ngx_http_ratelimit_parameter_t;

/* Two parameters that exclude each other. */
typedef struct {
    const char  *one;
    const char  *two;
    const char  *expected;
} ngx_http_ratelimit_exclusion_t;

static ngx_uint_t ngx_http_ratelimit_directive(const char *name);
static const char *ngx_http_ratelimit_directives(ngx_uint_t in);
static const char *ngx_http_ratelimit_set_rule_zone(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_set_rule_id(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_rule_parameter(ngx_conf_t *cf,
    const char *directive, ngx_str_t *text, ngx_http_ratelimit_rule_t *rule);
static void ngx_http_ratelimit_rule_unknown(ngx_conf_t *cf,
    const char *directive, ngx_str_t *text);
static ngx_uint_t ngx_http_ratelimit_is_parameter(ngx_str_t *text,
    const char *name, ngx_str_t *value);
static ngx_str_t *ngx_http_ratelimit_argument(ngx_conf_t *cf,
    const char *name);
static ngx_int_t ngx_http_ratelimit_rule_combine(ngx_conf_t *cf,
    const char *directive, ngx_http_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_rule_algorithm(ngx_conf_t *cf,
    const char *directive, ngx_http_ratelimit_rule_t *rule);
static const char *ngx_http_ratelimit_rule_expected(ngx_uint_t algorithms);
static ngx_int_t ngx_http_ratelimit_rule_needs(ngx_conf_t *cf,
    const char *directive, ngx_http_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_rule_make_limit(ngx_conf_t *cf,
    const char *directive, ngx_ratelimit_rule_t *rule);
static void ngx_http_ratelimit_rule_sync(ngx_conf_t *cf,
    ngx_http_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_rule_tiers(ngx_conf_t *cf,
    const char *directive, ngx_http_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_rule_shards(ngx_conf_t *cf,
    const char *directive, ngx_ratelimit_rule_t *rule);

static const ngx_http_ratelimit_parameter_t  ngx_http_ratelimit_parameters[] = {
    { "zone=", ngx_http_ratelimit_set_rule_zone,
      NGX_HTTP_RATELIMIT_IN_LIMIT|NGX_HTTP_RATELIMIT_IN_RULE, 0 },
    { "rule=", ngx_http_ratelimit_set_rule_id, NGX_HTTP_RATELIMIT_IN_LIMIT, 0 },
    { "zone=", ngx_http_ratelimit_set_zone, NGX_HTTP_RATELIMIT_IN_ZONE, 0 },
    { "redis=", ngx_http_ratelimit_set_redis, NGX_HTTP_RATELIMIT_IN_ZONE, 0 },
    { "state=", ngx_http_ratelimit_set_state, NGX_HTTP_RATELIMIT_IN_ZONE, 0 },
    { "keys_in_clear=", ngx_http_ratelimit_set_clear,
      NGX_HTTP_RATELIMIT_IN_ZONE, 0 },
    { "algorithm=", ngx_http_ratelimit_set_algorithm,
      NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "rate=", ngx_http_ratelimit_set_rate, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_RATES },
    { "limit=", ngx_http_ratelimit_set_limit, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "window=", ngx_http_ratelimit_set_window, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_RATES },
    { "capacity=", ngx_http_ratelimit_set_capacity, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF(TOKEN_BUCKET) },
    { "burst=", ngx_http_ratelimit_set_burst, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF(LEAKY_BUCKET) },
    { "nodelay", ngx_http_ratelimit_set_nodelay, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF(LEAKY_BUCKET) },
    { "delay=", ngx_http_ratelimit_set_delay, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF(LEAKY_BUCKET) },
    { "sync=", ngx_http_ratelimit_set_sync, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "shards=", ngx_http_ratelimit_set_shards, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_SHARDS },
    { "fail_mode=", ngx_http_ratelimit_set_fail_mode,
      NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "emergency=", ngx_http_ratelimit_set_emergency,
      NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "dry_run", ngx_http_ratelimit_set_dry_run, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "cost=", ngx_http_ratelimit_set_cost, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_RATES },
    { "cost_header=", ngx_http_ratelimit_set_cost_header,
      NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_RATES },
    { "count_status=", ngx_http_ratelimit_set_count_status,
      NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_RATES },
    { "group=", ngx_http_ratelimit_set_group, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "priority=", ngx_http_ratelimit_set_priority, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "percent=", ngx_http_ratelimit_set_percent, NGX_HTTP_RATELIMIT_IN_BOTH,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "key=", ngx_http_ratelimit_set_key, NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "match=", ngx_http_ratelimit_set_match, NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "methods=", ngx_http_ratelimit_set_methods, NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "tier=", ngx_http_ratelimit_set_rule_tier, NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "host=", ngx_http_ratelimit_set_host, NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "api_key=", ngx_http_ratelimit_set_rule_api_key,
      NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { "tiers=", ngx_http_ratelimit_set_tiers, NGX_HTTP_RATELIMIT_IN_RULE,
      NGX_HTTP_RATELIMIT_OF_ANY },
    { NULL, NULL, 0, 0 }
};

static const ngx_http_ratelimit_exclusion_t  ngx_http_ratelimit_exclusions[] = {
    { "rate=", "limit=", "one of them" },
    { "rate=", "window=", "\"limit=<n>\" with the window" },
    { "nodelay", "delay=", "one of them" },
    { "count_status=", "cost_header=", "one of them" },
    { "fail_mode=local", "emergency=", "\"fail_mode=open\"" },
    { "fail_mode=closed", "emergency=", "\"fail_mode=open\"" },
    { "sync=lease", "count_status=", "\"sync=strict\"" },
    { "sync=async", "count_status=", "\"sync=strict\"" },
    { "sync=async", "fail_mode=", "\"sync=lease\" or \"sync=strict\"" },
    { "sync=async", "emergency=", "\"sync=lease\" or \"sync=strict\"" },
    { "shards=", "count_status=", "one of them" },
    { "shards=", "cost_header=", "one of them" },
    { "shards=", "tiers=", "one of them" },
    { "shards=", "fail_mode=local",
      "\"fail_mode=open\" or \"fail_mode=closed\"" },
    { NULL, NULL, NULL }
};


char *
ngx_http_ratelimit_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                  *value;
    ngx_http_ratelimit_rule_t  *rule;

    rule = ngx_pcalloc(cf->pool, sizeof(ngx_http_ratelimit_rule_t));
    if (rule == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;
    rule->rule.id = value[1];

    if (ngx_http_ratelimit_rule_no_name(cf, "ratelimit_rule", "name")) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_ratelimit_rule_parameters(cf, "ratelimit_rule", 2, rule)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (rule->zone.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" \"%V\" has no zone, "
                           "expected \"zone=<name>\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_ratelimit_rule_enter(cf, "ratelimit_rule", conf, rule)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static const char *
ngx_http_ratelimit_set_rule_zone(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    rule->zone = *value;

    return value->len ? NULL : "the name of a zone";
}


static const char *
ngx_http_ratelimit_set_rule_id(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    rule->rule.id = *value;

    return value->len ? NULL : "the name of a rule";
}


ngx_int_t
ngx_http_ratelimit_rule_parameters(ngx_conf_t *cf, const char *directive,
    ngx_uint_t first, ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = first; i < cf->args->nelts; i++) {
        if (ngx_http_ratelimit_rule_parameter(cf, directive, &value[i], rule)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_rule_parameter(ngx_conf_t *cf, const char *directive,
    ngx_str_t *text, ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t                              value;
    ngx_uint_t                             bit;
    const char                            *expected;
    const ngx_http_ratelimit_parameter_t  *p;

    bit = ngx_http_ratelimit_directive(directive);

    for (p = ngx_http_ratelimit_parameters; p->name; p++) {
        if ((p->in & bit)
            && ngx_http_ratelimit_is_parameter(text, p->name, &value))
        {
            break;
        }
    }

    if (p->name == NULL) {
        ngx_http_ratelimit_rule_unknown(cf, directive, text);
        return NGX_ERROR;
    }

    bit = (ngx_uint_t) 1 << (p - ngx_http_ratelimit_parameters);

    if (rule->seen & bit) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" has \"%V\", expected one \"%s\"",
                           directive, text, p->name);
        return NGX_ERROR;
    }

    rule->seen |= bit;
    rule->limits |= (p->algorithms != 0);

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


static ngx_uint_t
ngx_http_ratelimit_directive(const char *name)
{
    return (ngx_strcmp(name, "ratelimit_zone") == 0)
           ? NGX_HTTP_RATELIMIT_IN_ZONE
           : (ngx_strcmp(name, "ratelimit_rule") == 0)
           ? NGX_HTTP_RATELIMIT_IN_RULE : NGX_HTTP_RATELIMIT_IN_LIMIT;
}


static const char *
ngx_http_ratelimit_directives(ngx_uint_t in)
{
    switch (in) {

    case NGX_HTTP_RATELIMIT_IN_LIMIT:
        return "\"ratelimit\"";

    case NGX_HTTP_RATELIMIT_IN_ZONE:
        return "\"ratelimit_zone\"";

    case NGX_HTTP_RATELIMIT_IN_RULE:
        return "\"ratelimit_rule\"";

    default:
        return "\"ratelimit_zone\" and \"ratelimit_rule\"";
    }
}


ngx_uint_t
ngx_http_ratelimit_rule_no_name(ngx_conf_t *cf, const char *directive,
    const char *what)
{
    ngx_str_t                             *text, value;
    const ngx_http_ratelimit_parameter_t  *p;

    text = cf->args->elts;

    for (p = ngx_http_ratelimit_parameters; p->name; p++) {

        if ((p->in & ngx_http_ratelimit_directive(directive)) == 0
            || ngx_strcmp(p->name, "key=") == 0
            || p->name[ngx_strlen(p->name) - 1] != NGX_HTTP_RATELIMIT_HAS_VALUE
            || !ngx_http_ratelimit_is_parameter(&text[1], p->name, &value))
        {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" has no %s before \"%V\"", directive, what,
                           &text[1]);
        return 1;
    }

    return 0;
}


static ngx_uint_t
ngx_http_ratelimit_is_parameter(ngx_str_t *text, const char *name,
    ngx_str_t *value)
{
    if (ngx_http_ratelimit_parameter(text, name, value) == NULL) {
        return 0;
    }

    return value->len == 0
           || name[ngx_strlen(name) - 1] == NGX_HTTP_RATELIMIT_HAS_VALUE;
}


/* That parameter as the directive has it, or NULL. */
static ngx_str_t *
ngx_http_ratelimit_argument(ngx_conf_t *cf, const char *name)
{
    ngx_str_t   *text, value;
    ngx_uint_t   i;

    text = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_ratelimit_is_parameter(&text[i], name, &value)) {
            return &text[i];
        }
    }

    return NULL;
}


/* It may be another directive's, or a name that is written wrongly. */
static void
ngx_http_ratelimit_rule_unknown(ngx_conf_t *cf, const char *directive,
    ngx_str_t *text)
{
    ngx_str_t                              name, value;
    ngx_uint_t                             bit;
    ngx_http_ratelimit_hint_t              hint;
    const ngx_http_ratelimit_parameter_t  *p;

    bit = ngx_http_ratelimit_directive(directive);
    ngx_http_ratelimit_hint_init(&hint, text);

    for (p = ngx_http_ratelimit_parameters; p->name; p++) {

        if (p->in & bit) {
            name.data = (u_char *) p->name;
            name.len = ngx_strlen(p->name);
            ngx_http_ratelimit_hint_add(&hint, &name);

        } else if (ngx_http_ratelimit_is_parameter(text, p->name, &value)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%s\" has \"%V\", but \"%s\" is a parameter "
                               "of %s", directive, text, p->name,
                               ngx_http_ratelimit_directives(p->in));
            return;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" has an unknown parameter \"%V\", %V",
                       directive, text,
                       ngx_http_ratelimit_hint_text(&hint,
                           (bit == NGX_HTTP_RATELIMIT_IN_LIMIT)
                           ? "\"off\", or one each of " : "one each of "));
}


ngx_int_t
ngx_http_ratelimit_rule_enter(ngx_conf_t *cf, const char *directive,
    ngx_http_ratelimit_main_conf_t *conf, ngx_http_ratelimit_rule_t *rule)
{
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

    if (ngx_http_ratelimit_rule_combine(cf, directive, rule) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r->dynamic_cost || ngx_http_ratelimit_argument(cf, "cost=") == NULL) {
        r->cost = 1;
    }

    if (r->emergency) {
        r->fail_mode = NGX_RATELIMIT_FAIL_OPEN;
    }

    ngx_http_ratelimit_rule_sync(cf, rule);

    if (r->percent == 0) {
        r->percent = 100;
    }

    ngx_http_ratelimit_place(cf, &rule->place);
    r->data = &rule->values;

    entry = ngx_array_push(&conf->rules);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    *entry = rule;

    return NGX_OK;
}


/* Whether the parameters go together. */
static ngx_int_t
ngx_http_ratelimit_rule_combine(ngx_conf_t *cf, const char *directive,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t                             *one, *two;
    const ngx_http_ratelimit_exclusion_t  *x;

    if (ngx_http_ratelimit_rule_algorithm(cf, directive, rule) != NGX_OK) {
        return NGX_ERROR;
    }

    for (x = ngx_http_ratelimit_exclusions; x->one; x++) {
        one = ngx_http_ratelimit_argument(cf, x->one);
        two = ngx_http_ratelimit_argument(cf, x->two);

        if (one && two) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%s\" \"%V\" has \"%V\" and \"%V\", "
                               "expected %s", directive, &rule->rule.id, one,
                               two, x->expected);
            return NGX_ERROR;
        }
    }

    if (ngx_http_ratelimit_rule_needs(cf, directive, rule) != NGX_OK
        || ngx_http_ratelimit_rule_make_limit(cf, directive, &rule->rule)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_ratelimit_rule_tiers(cf, directive, rule) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_ratelimit_rule_shards(cf, directive, &rule->rule);
}


static ngx_int_t
ngx_http_ratelimit_rule_tiers(ngx_conf_t *cf, const char *directive,
    ngx_http_ratelimit_rule_t *rule)
{
    const char  *expected;

    if (rule->tiers.len == 0) {
        return NGX_OK;
    }

    expected = ngx_http_ratelimit_make_tiers(cf,
                          ngx_http_ratelimit_argument(cf, "rate=") != NULL,
                          rule);
    if (expected == NULL) {
        return NGX_OK;
    }

    if (expected[0]) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" \"%V\" has an invalid \"tiers=%V\", "
                           "expected %s", directive, &rule->rule.id,
                           &rule->tiers, expected);
    }

    return NGX_ERROR;
}


/* Whether the algorithm has all of the parameters. */
static ngx_int_t
ngx_http_ratelimit_rule_algorithm(ngx_conf_t *cf, const char *directive,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_uint_t                             algorithm, of;
    ngx_str_t                             *text;
    const ngx_http_ratelimit_parameter_t  *p;

    algorithm = rule->rule.spec.algorithm;

    for (p = ngx_http_ratelimit_parameters; p->name; p++) {

        of = p->algorithms;
        text = of ? ngx_http_ratelimit_argument(cf, p->name) : NULL;

        if (text == NULL) {
            continue;
        }

        if (p->set == ngx_http_ratelimit_set_window && rule->rule.spec.calendar)
        {
            of = NGX_HTTP_RATELIMIT_OF(FIXED_WINDOW);
        }

        if (p->set == ngx_http_ratelimit_set_sync
            && rule->rule.sync != NGX_RATELIMIT_SYNC_STRICT)
        {
            of = NGX_HTTP_RATELIMIT_OF_LEASES;
        }

        if (of & (1u << algorithm)) {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" \"%V\" has \"%V\" with algorithm %s, "
                           "expected %s", directive, &rule->rule.id, text,
                           ngx_ratelimit_algorithm_name(algorithm),
                           ngx_http_ratelimit_rule_expected(of));
        return NGX_ERROR;
    }

    return NGX_OK;
}


static const char *
ngx_http_ratelimit_rule_expected(ngx_uint_t algorithms)
{
    switch (algorithms) {

    case NGX_HTTP_RATELIMIT_OF(TOKEN_BUCKET):
        return "algorithm token_bucket";

    case NGX_HTTP_RATELIMIT_OF(LEAKY_BUCKET):
        return "algorithm leaky_bucket";

    case NGX_HTTP_RATELIMIT_OF(FIXED_WINDOW):
        return "algorithm fixed_window";

    case NGX_HTTP_RATELIMIT_OF_LEASES:
        return "\"sync=strict\"";

    default:
        return "another algorithm";
    }
}


/* Whether what the parameters need is there. */
static ngx_int_t
ngx_http_ratelimit_rule_needs(ngx_conf_t *cf, const char *directive,
    ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t   *rate, *limit;
    ngx_uint_t   slots;

    rate = ngx_http_ratelimit_argument(cf, "rate=");
    limit = ngx_http_ratelimit_argument(cf, "limit=");
    slots = (rule->rule.spec.algorithm == NGX_RATELIMIT_CONCURRENCY);

    if (rate || (limit && slots)) {
        return NGX_OK;
    }

    if (limit) {
        if (ngx_http_ratelimit_argument(cf, "window=")) {
            return NGX_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" \"%V\" has \"%V\", expected "
                           "\"window=<time>\" with it", directive,
                           &rule->rule.id, limit);
        return NGX_ERROR;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" \"%V\" has no limit, expected %s",
                       directive, &rule->rule.id,
                       slots ? "\"limit=<n>\""
                             : "\"rate=<n>r/<period>\", or \"limit=<n>\" and "
                               "\"window=<time>\"");
    return NGX_ERROR;
}


static ngx_int_t
ngx_http_ratelimit_rule_make_limit(ngx_conf_t *cf, const char *directive,
    ngx_ratelimit_rule_t *rule)
{
    uint64_t                     value;
    const char                  *expected, *what;
    const ngx_ratelimit_spec_t  *spec;

    if (rule->dynamic) {
        return NGX_OK;
    }

    spec = &rule->spec;

    expected = ngx_ratelimit_rule_limit(spec, NULL, &rule->limit);
    if (expected == NULL) {
        return NGX_OK;
    }

    switch (spec->algorithm) {

    case NGX_RATELIMIT_TOKEN_BUCKET:
        what = "capacity";
        value = spec->capacity ? spec->capacity : spec->tokens;
        break;

    case NGX_RATELIMIT_LEAKY_BUCKET:
        what = "burst";
        value = spec->burst;
        break;

    default:
        what = "limit";
        value = spec->tokens;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" \"%V\" has an invalid %s %uL, expected %s",
                       directive, &rule->id, what, value, expected);

    return NGX_ERROR;
}


/* How the rule's counters in Redis are followed, where nothing says it. */
static void
ngx_http_ratelimit_rule_sync(ngx_conf_t *cf, ngx_http_ratelimit_rule_t *rule)
{
    ngx_str_t   *text;
    ngx_uint_t   i;

    static const char  *names[] = { "sync=", "emergency=", "fail_mode=" };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        text = ngx_http_ratelimit_argument(cf, names[i]);

        if (text) {
            rule->shared = *text;
            break;
        }
    }

    /* what has been written is checked already */

    if (rule->rule.statuses
        || !(NGX_HTTP_RATELIMIT_OF_LEASES
             & (1u << rule->rule.spec.algorithm)))
    {
        rule->rule.sync = NGX_RATELIMIT_SYNC_STRICT;
    }
}


static ngx_int_t
ngx_http_ratelimit_rule_shards(ngx_conf_t *cf, const char *directive,
    ngx_ratelimit_rule_t *rule)
{
    const char  *expected;

    if (rule->shards == 0) {
        return NGX_OK;
    }

    expected = ngx_ratelimit_rule_split(rule);
    if (expected == NULL) {
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" \"%V\" has \"shards=%uD\", expected %s",
                       directive, &rule->id, rule->shards, expected);

    return NGX_ERROR;
}

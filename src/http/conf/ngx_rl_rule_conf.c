/*
 * "ratelimit_zone", "ratelimit_rule" and "ratelimit": their parameters are rows
 * of ngx_rl_params. And what only the whole configuration tells: which names
 * meet what they name, in whatever order they were written.
 */

#include "ngx_rl_api.h"
#include "ngx_rl_conf.h"
#include "ngx_rl_fleet.h"
#include "ngx_rl_key.h"

#include "ngx_rl_document.h"
#include "ngx_rl_follow.h"
#include "ngx_rl_text.h"

#define NGX_RL_ONCE_MAX_S  (7 * 86400)

static const ngx_conf_bitmask_t  ngx_rl_methods[] = {
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


/* The parameter that text is where it may stand, and its value; or NULL. */
static const ngx_rl_param_t *
ngx_rl_rule_find(ngx_str_t *text, ngx_uint_t in, ngx_str_t *value)
{
    const ngx_rl_param_t  *p;

    for (p = ngx_rl_params; p->id; p++) {
        if ((p->in & in & NGX_RL_IN_CONF)
            && ngx_rl_parameter(text, p->conf, value)
            && (value->len == 0 || p->kind != NGX_RL_A_FLAG))
        {
            return p;
        }
    }

    return NULL;
}


/*
 * The directive's first argument is no parameter where a key or a name has to
 * be, or it is wrong.
 */
static char *
ngx_rl_rule_no_name(ngx_conf_t *cf, ngx_uint_t in, const char *what)
{
    ngx_str_t             *text, value;
    const ngx_rl_param_t  *p;

    text = cf->args->elts;
    p = ngx_rl_rule_find(&text[1], in, &value);

    if (p == NULL || p->id == NGX_RL_PARAM_KEY || p->kind == NGX_RL_A_FLAG) {
        return NGX_CONF_OK;
    }

    return ngx_rl_wrong(cf, "has no %s before \"%V\"", what, &text[1]);
}


/* The bit of a method; 0: none has that name. */
static ngx_uint_t
ngx_rl_method(const u_char *name, size_t len)
{
    const ngx_conf_bitmask_t  *m;

    for (m = ngx_rl_methods; m->name.len; m++) {
        if (m->name.len == len && ngx_strncmp(m->name.data, name, len) == 0) {
            return m->mask;
        }
    }

    return 0;
}


/* draft->wrong(): the first message is the only one. */
static void
ngx_rl_rule_wrong(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    const char *beside, const char *expected)
{
    ngx_conf_t *cf = draft->data;

    ngx_str_t   *text, value;
    ngx_uint_t   i;

    text = cf->args->elts;

    if (draft->wrongs++) {
        return;
    }

    if (param == NULL) {
        ngx_rl_wrong(cf, "\"%V\" has no limit, expected %s", &draft->rule.id,
                     expected);
        return;
    }

    /* as the directive has it */

    for (i = 2; i < cf->args->nelts - 1; i++) {
        if (ngx_rl_rule_find(&text[i], draft->in, &value) == param) {
            break;
        }
    }

    ngx_rl_wrong(cf, "\"%V\" has \"%V\"%s, expected %s", &draft->rule.id,
                 &text[i], beside, expected);
}


/* The next of a list of texts with commas between them, from *p to last. */
static ngx_str_t
ngx_rl_next(u_char **p, u_char *last)
{
    u_char     *comma;
    ngx_str_t   text;

    comma = ngx_strlchr(*p, last, ',');

    text = ngx_rl_str(*p, (comma ? comma : last) - *p);

    *p = comma ? comma + 1 : NULL;

    return text;
}


/* set() of a row that stands for one of ngx_rl_params: its offset is that. */
static const char *
ngx_rl_rule_set(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_rule_conf_t *rule = target;

    u_char                *p, *last, buf[NGX_MAX_CONF_ERRSTR];
    ngx_int_t              rc;
    ngx_str_t              text;
    const char            *expected;
    ngx_rl_draft_t        *draft;
    const ngx_rl_param_t  *param;

    draft = &rule->draft;
    param = &ngx_rl_params[row->offset];
    draft->says |= (uint64_t) 1 << param->id;

    /* whether the zone has Redis is known when all is read */

    if ((param->flags & NGX_RL_SHARED) && rule->shared.len == 0) {
        rule->shared.data = value->data - row->name.len;
        rule->shared.len = value->len + row->name.len;
    }

    if (param->kind == NGX_RL_A_FLAG) {
        return ngx_rl_param_number(draft, param, 1);
    }

    if (param->flags & NGX_RL_LIST) {
        p = value->data;
        last = p + value->len;

        do {
            text = ngx_rl_next(&p, last);
            expected = ngx_rl_param_text(draft, param, &text);
        } while (p && expected == NULL);

        return expected;
    }

    expected = ngx_rl_param_text(draft, param, value);

    if (expected || draft->rule.regex_text.len == 0) {
        return expected;
    }

    /* an expression is compiled now, and not again with each document */

    text = ngx_rl_str(buf, sizeof(buf));

    rc = ngx_rl_rule_regex(&draft->rule, cf->pool, &text);

    if (rc == NGX_OK) {
        ngx_str_null(&draft->rule.regex_text);
        return NULL;
    }

    if (rc == NGX_DECLINED) {
        ngx_rl_wrong(cf, "has an invalid \"match=%V\": %V", value, &text);
    }

    return "";
}


/*
 * Reads the parameters of a directive (NGX_RL_IN_ZONE and so on); those of
 * "ratelimit" are a zone and a name.
 */
static char *
ngx_rl_rule_parameters(ngx_conf_t *cf, ngx_uint_t in, ngx_rl_rule_conf_t *rule)
{
    ngx_str_t             *args, value;
    ngx_uint_t             i, from;
    ngx_rl_row_t          *row, rows[NGX_RL_PARAM_ALL];
    ngx_rl_draft_t        *draft;
    const ngx_rl_param_t  *p;

    static const ngx_rl_above_t  above = { NULL, NULL, NULL, ngx_rl_method };

    draft = &rule->draft;

    ngx_rl_draft_init(draft, in, NULL, cf->pool);
    draft->temp = cf->temp_pool;
    draft->above = &above;
    draft->wrong = ngx_rl_rule_wrong;
    draft->data = cf;

    /* behind the key of a zone, the name of a rule */

    from = (in == NGX_RL_IN_LIMIT) ? 1 : 2;
    args = cf->args->elts;

    for (i = from; i < cf->args->nelts; i++) {
        p = ngx_rl_rule_find(&args[i], in, &value)
            ? NULL : ngx_rl_rule_find(&args[i], ~in, &value);

        if (p) {
            in = p->in & NGX_RL_IN_CONF;

            return ngx_rl_wrong(cf, "has \"%V\", but \"%s\" is a parameter of "
                "%s", &args[i], p->conf,
                (in == NGX_RL_IN_LIMIT) ? "\"ratelimit\""
                : (in == NGX_RL_IN_ZONE) ? "\"ratelimit_zone\""
                : (in == NGX_RL_IN_RULE) ? "\"ratelimit_rule\""
                : "\"ratelimit_zone\" and \"ratelimit_rule\"");
        }
    }

    ngx_memzero(rows, sizeof(rows));

    for (p = ngx_rl_params, row = rows; p->id; p++) {
        if (p->in & in) {
            row->name = ngx_rl_str((u_char *) p->conf, ngx_strlen(p->conf));
            row->set = ngx_rl_rule_set;
            row->offset = p - ngx_rl_params;
            row++;
        }
    }

    row->expected = (in == NGX_RL_IN_LIMIT) ? "\"off\", or one each of "
                                            : "one each of ";

    return ngx_rl_rows_read(cf, rows, rule, from, NULL);
}


/*
 * "tiers=<tier>:<limit>,...": a rate in a rule that has one, else a number. A
 * tier may have colons, a limit has none.
 */
static char *
ngx_rl_rule_tiers(ngx_conf_t *cf, ngx_rl_draft_t *draft)
{
    u_char               *p, *last;
    ngx_str_t             text, amount;
    ngx_uint_t            i;
    const char           *expected;
    ngx_array_t           tiers;
    ngx_rl_spec_t         base;
    ngx_rl_tier_limit_t  *tier;

    if (draft->tier_limits.len == 0) {
        return NGX_CONF_OK;
    }

    if (ngx_array_init(&tiers, cf->pool, 4, sizeof(ngx_rl_tier_limit_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    base = draft->rule.spec;
    base.capacity = draft->capacity;

    if (ngx_rl_says(draft, NGX_RL_PARAM_RATE)) {
        base.tokens = 0;
        base.period_us = 0;
    }

    p = draft->tier_limits.data;
    last = p + draft->tier_limits.len;

    do {
        text = ngx_rl_next(&p, last);
        amount.len = 0;

        while (amount.len < text.len
               && text.data[text.len - amount.len - 1] != ':')
        {
            amount.len++;
        }

        amount.data = text.data + text.len - amount.len;

        if (amount.len == text.len) {
            expected = "\"<tier>:<limit or rate>\", with commas between";
            break;
        }

        if (ngx_array_push(&tiers) == NULL) {
            return NGX_CONF_ERROR;
        }

        tier = tiers.elts;
        text.len -= amount.len + 1;

        for (i = 0; i + 1 < tiers.nelts; i++, tier++) {
            if (ngx_rl_equal(&tier->tier, &text)) {
                break;
            }
        }

        expected = (text.len == 0) ? "a tier before each \":\""
                   : (i + 1 < tiers.nelts) ? "one limit of each tier"
                   : ngx_rl_rule_spec(&base, &amount, &tier->allowance.spec);

        if (expected == NULL) {
            tier->tier = text;
            expected = ngx_rl_limit_init(&tier->allowance.limit,
                                         &tier->allowance.spec);
        }

    } while (p && expected == NULL);

    if (expected) {
        return ngx_rl_wrong(cf, "\"%V\" has an invalid \"tiers=%V\", expected "
                            "%s", &draft->rule.id, &draft->tier_limits,
                            expected);
    }

    draft->rule.tier_limits = tiers.elts;
    draft->rule.ntier_limits = tiers.nelts;

    return NGX_CONF_OK;
}


/*
 * Checks a rule when its parameters are all read, compiles its values, and
 * enters it.
 */
static char *
ngx_rl_rule_enter(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_rule_conf_t *rule)
{
    ngx_str_t       *key;
    ngx_uint_t       which;
    ngx_rl_draft_t  *draft;

    draft = &rule->draft;
    draft->rule.data = &rule->values;
    key = &draft->rule.key;

    if (!ngx_rl_name_valid(draft->rule.id.data, draft->rule.id.len)) {
        return ngx_rl_wrong(cf, "has an invalid name \"%V\", expected "
                            NGX_RL_NAME_EXPECTED, &draft->rule.id);
    }

    ngx_rl_draft_combine(draft);

    if (draft->wrongs || ngx_rl_draft_limit(draft) != NGX_OK
        || ngx_rl_rule_tiers(cf, draft) != NGX_CONF_OK
        || ngx_rl_draft_split(draft) != NGX_OK
        || ngx_rl_draft_clients(draft) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_rl_place(cf, &rule->place);

    return ((key->len == 0
             || ngx_rl_value_key_compile(cf, key, &rule->values.key) == NGX_OK)
            && ngx_rl_values_beside(cf, NULL, &draft->rule, &draft->limit_text,
                                    &draft->cost_text, cf->pool, &which)
               == NULL
            && ngx_rl_push(&conf->rules, rule) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* "name:size" */
static char *
ngx_rl_zone_size(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_zone_conf_t *zone, ngx_str_t *text)
{
    u_char              *colon;
    size_t               min;
    ssize_t              size;
    ngx_str_t           *name, number;
    ngx_rl_zone_conf_t  *first;

    if (text->len == 0) {
        return ngx_rl_wrong(cf, "has no zone, expected \"zone=<name>:<size>\"");
    }

    colon = ngx_strlchr(text->data, text->data + text->len, ':');

    if (colon == NULL) {
        return ngx_rl_wrong(cf, "has an invalid \"zone=%V\", expected "
                            "\"zone=<name>:<size>\"", text);
    }

    name = &zone->limiter.zone.name;

    *name = ngx_rl_str(text->data, colon - text->data);

    if (!ngx_rl_name_valid(name->data, name->len)) {
        return ngx_rl_wrong(cf, "has an invalid name \"%V\", expected "
                            NGX_RL_NAME_EXPECTED, name);
    }

    first = ngx_rl_zone_named(conf, name);

    if (first) {
        return ngx_rl_wrong(cf, "\"%V\" is defined twice, first in %V:%ui, and "
            "again", name, &first->place.file, first->place.line);
    }

    number.data = colon + 1;
    number.len = text->data + text->len - number.data;

    min = ngx_rl_zone_min_size();
    size = ngx_parse_size(&number);

    if (size != NGX_ERROR && size >= (ssize_t) min) {
        zone->size = size;
        return NGX_CONF_OK;
    }

    return ngx_rl_wrong(cf, "\"%V\" has an invalid size \"%V\", expected %uzk "
                        "or more, as in \"10m\"", name, &number, min / 1024);
}


char *
ngx_rl_zone_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    ngx_str_t           *value, *key, *name;
    ngx_rl_draft_t      *draft;
    ngx_rl_limiter_t    *limiter;
    ngx_rl_rule_conf_t  *rule;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_rl_zone_conf_t));
    rule = ngx_pcalloc(cf->pool, sizeof(ngx_rl_rule_conf_t));

    if (zone == NULL || rule == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_rl_place(cf, &zone->place);

    if (ngx_rl_rule_no_name(cf, NGX_RL_IN_ZONE, "key") != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    /* "key", or "key=key" as a rule writes it */

    value = cf->args->elts;
    limiter = &zone->limiter;
    key = &limiter->zone.key;
    name = &limiter->zone.name;

    if (ngx_rl_parameter(&value[1], "key=", key) == NULL) {
        *key = value[1];
    }

    if (key->len == 0) {
        return ngx_rl_wrong(cf, "has an empty key, expected a value with "
                            "variables");
    }

    if (ngx_rl_value_key_compile(cf, key, &zone->key) != NGX_OK
        || ngx_rl_rule_parameters(cf, NGX_RL_IN_ZONE, rule) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    draft = &rule->draft;
    zone->redis = draft->redis;
    zone->peers = draft->peers;
    limiter->zone.leased = (draft->redis.len != 0);
    limiter->clear = (draft->clear != 0);
    limiter->new_keys = draft->new_keys;
    limiter->state = draft->state;
    limiter->follows = (draft->state.len != 0);

    if (ngx_rl_zone_size(cf, rmcf, zone, &draft->zone) != NGX_CONF_OK
        || (limiter->follows
            && ngx_conf_full_name(cf->cycle, &limiter->state, 1) != NGX_OK)
        || ngx_rl_zone_add(cf, &limiter->zone, zone->size,
                           &ngx_http_ratelimit_module)
           != NGX_OK
        || ngx_rl_policy_base(limiter, cf->pool) == NULL
        || ngx_rl_push(&rmcf->zones, zone) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    /* a parameter of a rule makes one, of the zone's name and key */

    if (draft->says >> NGX_RL_PARAM_ALGORITHM == 0) {
        return NGX_CONF_OK;
    }

    draft->rule.id = *name;
    draft->zone = *name;

    return ngx_rl_rule_enter(cf, rmcf, rule);
}


char *
ngx_rl_rule_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t           *value;
    ngx_rl_rule_conf_t  *rule;

    rule = ngx_pcalloc(cf->pool, sizeof(ngx_rl_rule_conf_t));
    if (rule == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (ngx_rl_rule_no_name(cf, NGX_RL_IN_RULE, "name") != NGX_CONF_OK
        || ngx_rl_rule_parameters(cf, NGX_RL_IN_RULE, rule) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    rule->draft.rule.id = value[1];

    if (rule->draft.zone.len == 0) {
        return ngx_rl_wrong(cf, "\"%V\" has no zone, expected \"zone=<name>\"",
                            &value[1]);
    }

    return ngx_rl_rule_enter(cf, conf, rule);
}


/*
 * ratelimit zone=<name> [rule=<id>] [look] [burst=<n>] [nodelay | delay=<n>]
 *           | off
 */
char *
ngx_rl_location_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t                *value;
    ngx_uint_t                i, off;
    ngx_rl_rule_conf_t        names;
    ngx_rl_location_limit_t  *limit, **entry;
    ngx_rl_main_conf_t       *rmcf;

    value = cf->args->elts;
    off = (value[1].len == 3 && ngx_strncmp(value[1].data, "off", 3) == 0);

    if (rlcf->limits == NULL) {
        rlcf->limits = ngx_array_create(cf->pool, 2,
                                        sizeof(ngx_rl_location_limit_t *));
        if (rlcf->limits == NULL) {
            return NGX_CONF_ERROR;
        }

    } else if (off || rlcf->limits->nelts == 0) {
        return "\"off\" stands beside another \"ratelimit\", expected it alone";
    }

    if (off) {
        return (cf->args->nelts == 2) ? NGX_CONF_OK
                                      : "\"off\" takes no parameter";
    }

    limit = ngx_pcalloc(cf->pool, sizeof(ngx_rl_location_limit_t));

    if (limit == NULL
        || ngx_rl_rule_parameters(cf, NGX_RL_IN_LIMIT, &names) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_rl_says(&names.draft, NGX_RL_PARAM_DELAY)
        && ngx_rl_says(&names.draft, NGX_RL_PARAM_NODELAY))
    {
        return "has \"delay=\" beside \"nodelay\", expected one of them";
    }

    limit->zone = names.draft.zone;
    limit->rule_id = names.draft.rule.id;
    limit->spec = names.draft.rule.spec;
    limit->look = (names.draft.look != 0);
    limit->own_burst = ngx_rl_says(&names.draft, NGX_RL_PARAM_BURST);
    limit->own = limit->own_burst
                 || ngx_rl_says(&names.draft, NGX_RL_PARAM_DELAY)
                 || ngx_rl_says(&names.draft, NGX_RL_PARAM_NODELAY);

    if (!limit->own_burst) {
        limit->spec.burst = NGX_RL_MAX_TOKENS;
    }

    ngx_rl_place(cf, &limit->place);

    if (limit->zone.len == 0) {
        return ngx_rl_wrong(cf, "has no zone, expected \"zone=<name>\"");
    }

    entry = rlcf->limits->elts;

    for (i = 0; i < rlcf->limits->nelts; i++) {
        if (ngx_rl_equal(&entry[i]->zone, &limit->zone)
            && (entry[i]->rule_id.len == 0 || limit->rule_id.len == 0
                || ngx_rl_equal(&entry[i]->rule_id, &limit->rule_id)))
        {
            return ngx_rl_wrong(cf, "counts zone \"%V\" twice, expected the "
                "zone, or each of its rules, once", &limit->zone);
        }
    }

    rmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    return (ngx_rl_push(rlcf->limits, limit) == NGX_OK
            && ngx_rl_push(&rmcf->limits, limit) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* Whether two locations have different tiers; NULL differs from none. */
static ngx_uint_t
ngx_rl_tiers_differ(const ngx_rl_value_t *one, const ngx_rl_value_t *two)
{
    if (one == NULL || one == two) {
        return 0;
    }

    return one->index != two->index
           || (one->index == -1 && !ngx_rl_equal(&one->text, &two->text));
}


void
ngx_rl_limit_location(ngx_conf_t *cf, ngx_rl_loc_conf_t *conf)
{
    ngx_uint_t                 i, folds;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_rl_location_limit_t  **limits;

    if (conf->limits == NULL) {
        return;
    }

    limits = conf->limits->elts;

    /* a server may leave the templates to its locations */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    folds = clcf->name.len && ngx_rl_route_folds(conf->routes);

    for (i = 0; i < conf->limits->nelts; i++) {
        limits[i]->folds |= folds;

        if (clcf->name.len) {
            limits[i]->fail_modes |= (ngx_uint_t) 1 << conf->fail_mode;
        }

        if (conf->tier) {
            limits[i]->tiers |= ngx_rl_tiers_differ(
                                                  limits[i]->tier, conf->tier);
            limits[i]->tier = conf->tier;
        }
    }
}


/* ratelimit_tier <value> */
char *
ngx_rl_tier(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    if (rlcf->tier != NULL) {
        return "is duplicate";
    }

    rlcf->tier = ngx_rl_value_new(cf, (ngx_str_t *) cf->args->elts + 1);

    return rlcf->tier ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* ratelimit_once <key> <time> | off */
char *
ngx_rl_once(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t           *value;
    ngx_rl_once_conf_t  *once;

    if (rlcf->once) {
        return "is duplicate";
    }

    once = ngx_pcalloc(cf->pool, sizeof(ngx_rl_once_conf_t));
    if (once == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;
    rlcf->once = once;

    if (cf->args->nelts == 2) {
        return (ngx_strcmp(value[1].data, "off") == 0)
               ? NGX_CONF_OK : "has no time, expected \"<key> <time>\" or "
                               "\"off\"";
    }

    if (ngx_rl_key_constant(&value[1])) {
        return ngx_rl_wrong(cf, "has the key \"%V\" without a variable, "
            "expected one as in \"$http_idempotency_key\"", &value[1]);
    }

    once->time = value[2].len ? ngx_parse_time(&value[2], 1) : NGX_ERROR;

    if (once->time < 1 || once->time > NGX_RL_ONCE_MAX_S) {
        return ngx_rl_wrong(cf, "has an invalid \"%V\", expected a time from "
                            "1s to 7d", &value[2]);
    }

    once->key = ngx_rl_value_new(cf, &value[1]);

    return once->key ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_rl_resolve_rule(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_rule_conf_t *rule = entry;

    ngx_rl_draft_t      *draft;
    ngx_rl_rule_conf_t  *first, **rules;
    ngx_rl_zone_conf_t  *zone;

    draft = &rule->draft;
    zone = ngx_rl_zone_find(cf, conf, &draft->zone, "ratelimit_rule",
                            &draft->rule.id, &rule->place);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    for (rules = conf->rules.elts; *rules != rule; rules++) {
        first = *rules;

        if (!ngx_rl_equal(&first->draft.zone, &draft->zone)
            || !ngx_rl_equal(&first->draft.rule.id, &draft->rule.id))
        {
            continue;
        }

        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &rule->place,
            "zone \"%V\" has two rules \"%V\", first %sin %V:%ui, and again",
            &draft->zone, &draft->rule.id,
            (first->draft.in & NGX_RL_IN_ZONE) ? "its own " : "",
            &first->place.file, first->place.line);
    }

    if (rule->shared.len && zone->redis.len == 0) {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &rule->place,
                               "rule \"%V\" has \"%V\", expected a zone with "
                               "\"redis=\"", &draft->rule.id, &rule->shared);
    }

    if (draft->rule.key.len == 0) {
        draft->rule.key = zone->limiter.zone.key;
        rule->values.key = zone->key;
    }

    return ngx_rl_push(&zone->limiter.base->rules, &draft->rule);
}


static ngx_int_t
ngx_rl_resolve_zone(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_zone_conf_t *zone = entry;

    ngx_int_t             rc;
    ngx_uint_t            i;
    ngx_rl_rule_t       **rules;
    ngx_rl_hint_t         hint;
    ngx_rl_policy_t      *base;
    ngx_rl_fleet_t       *fleet;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_zone_conf_t  **zones;

    limiter = &zone->limiter;
    base = limiter->base;

    if (base->rules.nelts == 0 && !limiter->follows) {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &zone->place,
            "\"ratelimit_zone\" \"%V\" has no rule, expected \"rate=\" or a "
            "\"ratelimit_rule\"", &limiter->zone.name);
    }

    limiter->redis = ngx_rl_named(&conf->redis, offsetof(ngx_rl_redis_t, name),
                                  &zone->redis, &hint);

    if (zone->redis.len && limiter->redis == NULL) {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &zone->place,
                               "\"ratelimit_zone\" \"%V\" has an unknown "
                               "\"redis=%V\", %V", &limiter->zone.name,
                               &zone->redis, ngx_rl_hint_text(&hint, ""));
    }

    fleet = ngx_rl_named(&conf->fleets, offsetof(ngx_rl_fleet_t, peers.name),
                         &zone->peers, &hint);

    if (zone->peers.len && fleet == NULL) {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &zone->place,
                               "\"ratelimit_zone\" \"%V\" has an unknown "
                               "\"peers=%V\", %V", &limiter->zone.name,
                               &zone->peers, ngx_rl_hint_text(&hint, ""));
    }

    rc = fleet ? ngx_rl_fleet_join(fleet, limiter) : NGX_OK;

    if (rc == NGX_DECLINED) {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &zone->place,
                               "\"ratelimit_zone\" \"%V\" has the hash of "
                               "another zone of \"peers=%V\", expected "
                               "another name", &limiter->zone.name,
                               &zone->peers);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    /* compiling a document needs this from this layer */

    zone->core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    limiter->above.values = ngx_rl_values;
    limiter->above.data = zone;
    limiter->above.prepare = ngx_rl_check_prepare;
    limiter->above.method = ngx_rl_method;

    if (ngx_rl_policy_complete(base) != NGX_OK) {
        return NGX_ERROR;
    }

    rules = base->rules.elts;

    for (i = 0; i < base->rules.nelts; i++) {
        if (ngx_rl_check_prepare(rules[i], cf->pool) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (!limiter->follows) {
        return NGX_OK;
    }

    zones = conf->zones.elts;

    for (i = 0; zones[i] != zone; i++) {
        if (limiter->state.len
            && ngx_rl_equal(&zones[i]->limiter.state, &limiter->state))
        {
            return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &zone->place,
                "\"ratelimit_zone\" \"%V\" has \"state=%V\", expected another "
                "file than that of zone \"%V\"", &limiter->zone.name,
                &limiter->state, &zones[i]->limiter.zone.name);
        }
    }

    ngx_rl_document_init();

    return ngx_rl_follow_prepare(cf, limiter, &ngx_http_ratelimit_module);
}


/* The leaky bucket that a location narrows, as limit_req does. */
static ngx_int_t
ngx_rl_resolve_narrow(ngx_conf_t *cf, ngx_rl_location_limit_t *limit,
    ngx_rl_zone_conf_t *zone)
{
    ngx_uint_t        all;
    const char       *expected;
    ngx_rl_rule_t    *rule;
    ngx_rl_policy_t  *base;

    base = zone->limiter.base;
    all = (limit->number == NGX_RL_ALL);
    limit->narrows = NGX_RL_ALL;

    if (!limit->own) {
        return NGX_OK;
    }

    rule = (all && base->nfixed != 1) ? NULL
                                      : base->fixed[all ? 0 : limit->number];

    if (rule == NULL) {
        expected = "\"rule=\", since nginx.conf does not have one rule of the "
                   "zone";

    } else if (rule->spec.algorithm != NGX_RL_LEAKY_BUCKET) {
        expected = "a rule with algorithm leaky_bucket";

    } else if (base->limiter->redis && rule->sync != NGX_RL_SYNC_STRICT) {
        expected = "a rule with \"sync=strict\"";

    } else if (limit->own_burst && limit->spec.burst > rule->spec.burst) {
        expected = "a burst of at most that of the rule";

    } else {
        expected = rule->dynamic ? NULL
                   : ngx_rl_limit_narrow(&rule->limit, &limit->spec,
                                       &limit->limit);
    }

    if (expected) {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &limit->place,
            "\"ratelimit\" has a \"burst=\", \"delay=\" or \"nodelay\" for "
            "zone \"%V\", expected %s", &limit->zone, expected);
    }

    limit->narrows = rule->number;
    rule->narrowed = 1;
    rule->needs |= NGX_RL_NEEDS_LIMIT;
    base->needs |= NGX_RL_NEEDS_LIMIT;

    return NGX_OK;
}


static ngx_int_t
ngx_rl_resolve_limit(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_location_limit_t *limit = entry;

    ngx_rl_rule_t       *rule;
    ngx_rl_hint_t        hint;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_rl_zone_find(cf, conf, &limit->zone, "ratelimit", NULL,
                            &limit->place);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    zone->used = 1;
    zone->limiter.folds |= limit->folds;
    zone->limiter.fail_modes |= limit->fail_modes;

    if (limit->tier) {
        zone->tiers |= limit->tiers
                       || ngx_rl_tiers_differ(zone->tier, limit->tier);
        zone->tier = limit->tier;
    }

    limit->limiter = &zone->limiter;
    limit->number = NGX_RL_ALL;

    if (limit->rule_id.len) {
        rule = ngx_rl_named(&zone->limiter.base->rules,
                            offsetof(ngx_rl_rule_t, id), &limit->rule_id,
                            &hint);
        if (rule == NULL) {
            return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &limit->place,
                "\"ratelimit\" has an unknown \"rule=%V\" of zone \"%V\", %V",
                &limit->rule_id, &limit->zone, ngx_rl_hint_text(&hint, ""));
        }

        limit->number = rule->number;
    }

    return ngx_rl_resolve_narrow(cf, limit, zone);
}


static ngx_int_t
ngx_rl_warn_zone(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_zone_conf_t *zone = entry;

    if (!zone->used) {
        ngx_rl_wrong_at(cf, NGX_LOG_WARN, &zone->place,
                        "\"ratelimit_zone\" \"%V\" limits nothing, expected a "
                        "\"ratelimit zone=%V\"", &zone->limiter.zone.name,
                        &zone->limiter.zone.name);
    }

    return NGX_OK;
}


/* Warns of a rule that is valid and hardly meant. */
static ngx_int_t
ngx_rl_warn_rule(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_rule_conf_t *rule = entry;

    ngx_str_t            *id, *name;
    ngx_uint_t            leaky;
    ngx_rl_draft_t       *draft;
    ngx_rl_zone_conf_t   *zone;
    const ngx_rl_rate_t  *rate;

    draft = &rule->draft;
    id = &draft->rule.id;
    name = &draft->zone;
    zone = ngx_rl_zone_named(conf, name);

    if (zone->limiter.folds
        && ngx_rl_key_folds(draft->rule.key.len ? &draft->rule.key
                            : &zone->limiter.zone.key))
    {
        ngx_rl_wrong_at(cf, NGX_LOG_WARN, &rule->place,
            "rule \"%V\" of zone \"%V\" counts by $ratelimit_route, so a "
            "client has a counter for each path that it invents, expected a "
            "\"ratelimit_route ... /**\" where \"ratelimit zone=%V\" is", id,
            name, name);
    }

    if (ngx_rl_limit_claimed(&draft->limit_text)) {
        ngx_rl_wrong_at(cf, NGX_LOG_WARN, &rule->place,
            "rule \"%V\" of zone \"%V\" has the limit \"%V\", which is none "
            "without a valid token, expected a \"map\" of it, with a number "
            "for \"\"", id, name, &draft->limit_text);
    }

    /*
     * In shared memory time is a number of milliseconds: a bucket is full again
     * in each of them, and gets no more.
     */

    rate = &draft->rule.limit.rate;
    leaky = (draft->rule.limit.algorithm == NGX_RL_LEAKY_BUCKET);

    if (zone->redis.len == 0 && rate->capacity && rate->span_us < 1000) {
        ngx_rl_wrong_at(cf, NGX_LOG_WARN, &rule->place,
            "rule \"%V\" of zone \"%V\" admits at most %ui requests a second, "
            "which is less than its rate, expected \"%s=%uL\" or more", id,
            name, (ngx_uint_t) rate->capacity * 1000,
            leaky ? "burst" : "capacity",
            ((uint64_t) rate->scale * 1000 + rate->period_us - 1)
            / rate->period_us - leaky);
    }

    /* a document may give tiers to API keys */

    if (zone->used && zone->tier == NULL && !zone->limiter.follows
        && (ngx_rl_says(draft, NGX_RL_PARAM_TIER)
            || ngx_rl_says(draft, NGX_RL_PARAM_TIER_LIMITS)))
    {
        ngx_rl_wrong_at(cf, NGX_LOG_WARN, &rule->place,
            "rule \"%V\" of zone \"%V\" has \"%s=%V\" without effect, expected "
            "a \"ratelimit_tier\" where \"ratelimit zone=%V\" is", id, name,
            draft->rule.tier.len ? "tier" : "tiers",
            draft->rule.tier.len ? &draft->rule.tier : &draft->tier_limits,
            name);
    }

    return NGX_OK;
}


/* What is done, one after the other, with each element of an array. */
static const struct {
    size_t      array;   /* offset; of pointers */
    ngx_int_t (*resolve)(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
                         void *entry);
} ngx_rl_resolve_steps[] = {
    { offsetof(ngx_rl_main_conf_t, fleets), ngx_rl_peers_resolve_names },
    { offsetof(ngx_rl_main_conf_t, apis), ngx_rl_api_resolve },
    { offsetof(ngx_rl_main_conf_t, lists), ngx_rl_access_resolve },
    { offsetof(ngx_rl_main_conf_t, rules), ngx_rl_resolve_rule },
    { offsetof(ngx_rl_main_conf_t, penalties), ngx_rl_penalty_resolve },
    { offsetof(ngx_rl_main_conf_t, zones), ngx_rl_resolve_zone },
    { offsetof(ngx_rl_main_conf_t, limits), ngx_rl_resolve_limit },
    { offsetof(ngx_rl_main_conf_t, zones), ngx_rl_warn_zone },
    { offsetof(ngx_rl_main_conf_t, rules), ngx_rl_warn_rule },
    { 0, NULL }
};


ngx_int_t
ngx_rl_resolve(ngx_conf_t *cf)
{
    ngx_uint_t           i, step;
    ngx_array_t         *array;
    ngx_rl_main_conf_t  *conf;

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    if (ngx_rl_redis_names(cf, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    for (step = 0; ngx_rl_resolve_steps[step].resolve; step++) {
        array = (void *) ((u_char *) conf + ngx_rl_resolve_steps[step].array);

        for (i = 0; i < array->nelts; i++) {
            if (ngx_rl_resolve_steps[step].resolve(cf, conf,
                                                   ((void **) array->elts)[i])
                != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}

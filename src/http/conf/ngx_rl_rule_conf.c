/*
 * "ratelimit_rule", and the parameters of "ratelimit_zone" and "ratelimit":
 * rows of ngx_rl_params.
 */

#include "ngx_rl_conf.h"

#include "ngx_rl_text.h"

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


ngx_uint_t
ngx_rl_rule_no_name(ngx_conf_t *cf, ngx_uint_t in, const char *what)
{
    ngx_str_t             *text, value;
    const ngx_rl_param_t  *p;

    text = cf->args->elts;
    p = ngx_rl_rule_find(&text[1], in, &value);

    if (p == NULL || p->id == NGX_RL_PARAM_KEY || p->kind == NGX_RL_A_FLAG) {
        return 0;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" has no %s before \"%V\"",
                       &text[0], what, &text[1]);

    return 1;
}


ngx_uint_t
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
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" \"%V\" has no limit, expected %s",
                           &text[0], &draft->rule.id, expected);
        return;
    }

    /* as the directive has it */

    for (i = 2; i < cf->args->nelts - 1; i++) {
        if (ngx_rl_rule_find(&text[i], draft->in, &value) == param) {
            break;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" \"%V\" has \"%V\"%s, expected %s", &text[0],
                       &draft->rule.id, &text[i], beside, expected);
}


static const char *
ngx_rl_directives(ngx_uint_t in)
{
    switch (in & NGX_RL_IN_CONF) {

    case NGX_RL_IN_LIMIT:
        return "\"ratelimit\"";

    case NGX_RL_IN_ZONE:
        return "\"ratelimit_zone\"";

    case NGX_RL_IN_RULE:
        return "\"ratelimit_rule\"";

    default:
        return "\"ratelimit_zone\" and \"ratelimit_rule\"";
    }
}


/* It may be another directive's, or a name that is written wrongly. */
static void
ngx_rl_rule_unknown(ngx_conf_t *cf, ngx_str_t *text, ngx_uint_t in)
{
    ngx_str_t             *directive, name, value;
    ngx_rl_hint_t          hint;
    const ngx_rl_param_t  *p;

    directive = cf->args->elts;
    p = ngx_rl_rule_find(text, ~in, &value);

    if (p) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has \"%V\", but \"%s\" is a parameter of %s",
                           directive, text, p->conf,
                           ngx_rl_directives(p->in));
        return;
    }

    ngx_rl_hint_init(&hint, text);

    for (p = ngx_rl_params; p->id; p++) {
        if (p->in & in) {
            name.data = (u_char *) p->conf;
            name.len = ngx_strlen(p->conf);
            ngx_rl_hint_add(&hint, &name);
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has an unknown parameter \"%V\", %V",
                       directive, text,
                       ngx_rl_hint_text(&hint,
                           (in == NGX_RL_IN_LIMIT)
                           ? "\"off\", or one each of " : "one each of "));
}


/* The next of a list of texts with commas between them, from *p to last. */
static ngx_str_t
ngx_rl_next(u_char **p, u_char *last)
{
    u_char     *comma;
    ngx_str_t   text;

    comma = ngx_strlchr(*p, last, ',');

    text.data = *p;
    text.len = (comma ? comma : last) - *p;

    *p = comma ? comma + 1 : NULL;

    return text;
}


/* Returns NULL, or the expected value; "": the error is logged already. */
static const char *
ngx_rl_rule_set(ngx_conf_t *cf, const ngx_rl_param_t *param, ngx_str_t *value,
    ngx_rl_draft_t *draft)
{
    u_char      *p, *last, buf[NGX_MAX_CONF_ERRSTR];
    ngx_int_t    rc;
    ngx_str_t    text;
    const char  *expected;

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

    text.data = buf;
    text.len = sizeof(buf);

    rc = ngx_rl_rule_regex(&draft->rule, cf->pool, &text);

    if (rc == NGX_OK) {
        ngx_str_null(&draft->rule.regex_text);
        return NULL;
    }

    if (rc == NGX_DECLINED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" has an invalid \"match=%V\": "
                           "%V", value, &text);
    }

    return "";
}


ngx_int_t
ngx_rl_rule_parameters(ngx_conf_t *cf, ngx_uint_t in, ngx_rl_rule_conf_t *rule)
{
    ngx_str_t             *args, *text, value;
    ngx_uint_t             i;
    const char            *expected;
    ngx_rl_draft_t        *draft;
    const ngx_rl_param_t  *p;

    static const ngx_rl_above_t  above = { NULL, NULL, NULL, ngx_rl_method };

    args = cf->args->elts;
    draft = &rule->draft;

    ngx_rl_draft_init(draft, in, NULL, cf->pool);
    draft->temp = cf->temp_pool;
    draft->above = &above;
    draft->wrong = ngx_rl_rule_wrong;
    draft->data = cf;

    /* behind the key of a zone, the name of a rule */

    for (i = (in == NGX_RL_IN_LIMIT) ? 1 : 2; i < cf->args->nelts; i++) {
        text = &args[i];
        p = ngx_rl_rule_find(text, in, &value);

        if (p == NULL) {
            ngx_rl_rule_unknown(cf, text, in);
            return NGX_ERROR;
        }

        if (draft->says >> p->id & 1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" has \"%V\", expected one \"%s\"", args,
                               text, p->conf);
            return NGX_ERROR;
        }

        draft->says |= (uint64_t) 1 << p->id;

        /* whether the zone has Redis is known when all is read */

        if ((p->flags & NGX_RL_SHARED) && rule->shared.len == 0) {
            rule->shared = *text;
        }

        expected = ngx_rl_rule_set(cf, p, &value, draft);

        if (expected && expected[0]) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" has an invalid \"%V\", expected %s",
                               args, text, expected);
        }

        if (expected) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* "<tier>:<limit>": a tier may have colons, a limit has none. */
static const char *
ngx_rl_rule_tier(ngx_str_t *text, const ngx_rl_spec_t *base, ngx_array_t *tiers)
{
    u_char               *colon;
    ngx_str_t             name, amount;
    ngx_uint_t            i;
    const char           *expected;
    ngx_rl_tier_limit_t  *tier;

    colon = text->data + text->len;

    do {
        if (colon == text->data) {
            return "\"<tier>:<limit or rate>\", with commas between";
        }

        colon--;

    } while (*colon != ':');

    name.data = text->data;
    name.len = colon - text->data;

    if (name.len == 0) {
        return "a tier before each \":\"";
    }

    tier = tiers->elts;

    for (i = 0; i < tiers->nelts; i++) {
        if (ngx_rl_equal(&tier[i].tier, &name)) {
            return "one limit of each tier";
        }
    }

    tier = ngx_array_push(tiers);
    if (tier == NULL) {
        return "";
    }

    tier->tier = name;

    amount.data = colon + 1;
    amount.len = text->data + text->len - amount.data;

    expected = ngx_rl_rule_spec(base, &amount, &tier->allowance.spec);

    return expected ? expected
                    : ngx_rl_limit_init(&tier->allowance.limit,
                                        &tier->allowance.spec);
}


/* "tiers=": a rate in a rule that has one, else a number. */
static ngx_int_t
ngx_rl_rule_tiers(ngx_conf_t *cf, ngx_rl_draft_t *draft)
{
    u_char         *p, *last;
    ngx_str_t      *directive, text;
    const char     *expected;
    ngx_array_t     tiers;
    ngx_rl_spec_t   base;

    if (draft->tier_limits.len == 0) {
        return NGX_OK;
    }

    if (ngx_array_init(&tiers, cf->pool, 4, sizeof(ngx_rl_tier_limit_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    directive = cf->args->elts;
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
        expected = ngx_rl_rule_tier(&text, &base, &tiers);
    } while (p && expected == NULL);

    if (expected == NULL) {
        draft->rule.tier_limits = tiers.elts;
        draft->rule.ntier_limits = tiers.nelts;
        return NGX_OK;
    }

    if (expected[0]) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" \"%V\" has an invalid \"tiers=%V\", "
                           "expected %s", directive, &draft->rule.id,
                           &draft->tier_limits, expected);
    }

    return NGX_ERROR;
}


void
ngx_rl_key_warn(ngx_conf_t *cf, const ngx_str_t *key)
{
    ngx_str_t  *directive;

    directive = cf->args->elts;

    if (!ngx_rl_key_constant(key)) {
        return;
    }

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"%V\" has the key \"%V\" without a variable, which "
                       "limits all clients together, expected one as in "
                       "\"$remote_addr\", or \"key=all\" if that is meant",
                       directive, key);
}


/* Compiles the values that are evaluated at each request. */
static ngx_int_t
ngx_rl_rule_values(ngx_conf_t *cf, ngx_rl_rule_conf_t *rule)
{
    ngx_str_t       *key;
    ngx_rl_draft_t  *draft;

    draft = &rule->draft;
    draft->rule.data = &rule->values;
    key = &draft->rule.key;

    if (key->len) {
        ngx_rl_key_warn(cf, key);

        if (ngx_rl_value_compile(cf, key, &rule->values.key) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_rl_values_compile(cf, &draft->rule, &draft->limit_text,
                                 &draft->cost_text);
}


ngx_int_t
ngx_rl_rule_enter(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_rule_conf_t *rule)
{
    ngx_str_t       *directive;
    ngx_rl_draft_t  *draft;

    directive = cf->args->elts;
    draft = &rule->draft;

    if (!ngx_rl_name_valid(draft->rule.id.data, draft->rule.id.len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an invalid name \"%V\", expected "
                           NGX_RL_NAME_EXPECTED, directive, &draft->rule.id);
        return NGX_ERROR;
    }

    ngx_rl_draft_combine(draft);

    if (draft->wrongs || ngx_rl_draft_limit(draft) != NGX_OK
        || ngx_rl_rule_tiers(cf, draft) != NGX_OK
        || ngx_rl_draft_split(draft) != NGX_OK
        || ngx_rl_draft_clients(draft) != NGX_OK
        || ngx_rl_rule_values(cf, rule) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_rl_place(cf, &rule->place);

    return ngx_rl_push(&conf->rules, rule);
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

    if (ngx_rl_rule_no_name(cf, NGX_RL_IN_RULE, "name")
        || ngx_rl_rule_parameters(cf, NGX_RL_IN_RULE, rule) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    rule->draft.rule.id = value[1];

    if (rule->draft.zone.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" \"%V\" has no zone, "
                           "expected \"zone=<name>\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return (ngx_rl_rule_enter(cf, conf, rule) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}

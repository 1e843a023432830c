/*
 * The limit of a rule for the client of a request, and the request's cost.
 */

#include "ngx_rl_select.h"


/* Reads the limit from a variable. */
static ngx_int_t
ngx_rl_select_dynamic(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    ngx_rl_allowance_t **made)
{
    char                 note[NGX_RL_LOG_NOTE];
    u_char               buf[NGX_RL_QUOTE_BYTES];
    ngx_str_t            text;
    const char          *expected;
    ngx_rl_allowance_t  *allowance;
    ngx_rl_values_t     *values;

    values = rule->data;
    allowance = ngx_palloc(s->request->pool, sizeof(ngx_rl_allowance_t));

    if (allowance == NULL
        || ngx_rl_value_get(s->request, values->limit, &text) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        s->match = NGX_RL_LIMIT_EMPTY;
        return NGX_DECLINED;
    }

    expected = ngx_rl_rule_spec(&rule->spec, &text, &allowance->spec);

    if (expected == NULL) {
        expected = ngx_rl_limit_init(&allowance->limit, &allowance->spec);
    }

    if (expected == NULL) {
        *made = allowance;
        return NGX_OK;
    }

    if (ngx_rl_request_log_due(s->request, NGX_RL_LOG_LIMIT, note)) {
        text = ngx_rl_value_shown(rule, &text, buf);

        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                      "ratelimit rule \"%V\" of zone \"%V\" has a limit of "
                      "\"%V\", expected %s; it is not applied%s",
                      &rule->id, &s->limiter->zone.name, &text, expected, note);
    }

    s->match = NGX_RL_LIMIT_WRONG;

    return NGX_DECLINED;
}


/* The limit of the rule, the tier, the API key or an override. */
static ngx_int_t
ngx_rl_select_allowed(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    const ngx_str_t *key, const ngx_rl_limit_t **limit)
{
    ngx_int_t                  rc;
    ngx_rl_limit_t            *other;
    ngx_rl_allowance_t        *made;
    const ngx_rl_temporary_t  *temporary;
    const ngx_rl_allowance_t  *allowance;

    allowance = NULL;

    if (rule->ntier_limits || rule->key_limits) {
        allowance = ngx_rl_rule_allowance(rule, &s->subject, key, NULL);
    }

    if (allowance == NULL && rule->dynamic) {

        rc = ngx_rl_select_dynamic(s, rule, &made);
        if (rc != NGX_OK) {
            return rc;
        }

        allowance = made;
    }

    *limit = allowance ? &allowance->limit : &rule->limit;

    if (s->policy->temporary_limits == NULL) {
        return NGX_OK;
    }

    temporary = ngx_rl_policy_temporary(s->policy, rule, &s->subject,
                                        key, ngx_time());
    if (temporary == NULL) {
        return NGX_OK;
    }

    other = ngx_palloc(s->request->pool, sizeof(ngx_rl_limit_t));
    if (other == NULL) {
        return NGX_ERROR;
    }

    /* one that does not fit the rule leaves it as it is */

    if (ngx_rl_temporary_limit(temporary,
                                allowance ? &allowance->spec : &rule->spec,
                                other)
        == NULL)
    {
        *limit = other;
    }

    return NGX_OK;
}


/*
 * The location's part of a leaky bucket. If a tier or an override is too slow
 * for the burst, the location has all of it.
 */
static ngx_int_t
ngx_rl_select_part(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule,
    const ngx_rl_limit_t **limit)
{
    ngx_rl_limit_t  *part;

    if (*limit == &rule->limit) {
        *limit = &s->of->limit;
        return NGX_OK;
    }

    part = ngx_palloc(s->request->pool, sizeof(ngx_rl_limit_t));
    if (part == NULL) {
        return NGX_ERROR;
    }

    if (ngx_rl_limit_part(*limit, &s->of->spec, part) == NULL) {
        *limit = part;
    }

    return NGX_OK;
}


ngx_int_t
ngx_rl_select_limit(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    const ngx_str_t *key, const ngx_rl_limit_t **limit)
{
    ngx_int_t  rc;

    if ((rule->needs & NGX_RL_NEEDS_PERCENT) && !ngx_rl_rule_shares(rule, key))
    {
        s->match = NGX_RL_NOT_IN_SHARE;
        return NGX_DECLINED;
    }

    rc = ngx_rl_select_allowed(s, rule, key, limit);

    if (rc == NGX_OK && (*limit)->unlimited) {
        s->match = NGX_RL_UNLIMITED;
        return NGX_DECLINED;
    }

    return (rc == NGX_OK && rule->parted && rule->number == s->of->part)
           ? ngx_rl_select_part(s, rule, limit) : rc;
}


ngx_int_t
ngx_rl_select_cost(ngx_rl_selection_t *s, ngx_rl_rule_t *rule, uint32_t *cost)
{
    char                 note[NGX_RL_LOG_NOTE];
    u_char               buf[NGX_RL_QUOTE_BYTES];
    uint64_t             value;
    ngx_str_t            text;
    ngx_http_request_t  *r;
    ngx_rl_values_t     *values;

    r = s->request;
    values = rule->data;

    if (ngx_rl_value_get(r, values->cost, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    if (ngx_rl_number_clip(text.data, text.len, NGX_RL_MAX_TOKENS, &value) == 0)
    {
        *cost = (uint32_t) value;
        return NGX_OK;
    }

    if (ngx_rl_request_log_due(r, NGX_RL_LOG_COST, note)) {
        text = ngx_rl_value_shown(rule, &text, buf);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "ratelimit rule \"%V\" of zone \"%V\" has a cost of "
                      "\"%V\", expected a number of 0 or more; it costs %uD%s",
                      &rule->id, &s->limiter->zone.name, &text, *cost, note);
    }

    return NGX_OK;
}

/*
 * Which counters a request meets: the rules of its location that match, each
 * with the key it counts by.
 */

#include "ngx_http_ratelimit.h"

/* rules that are looked at without an allocation */
#define NGX_HTTP_RATELIMIT_FOUND  32

static ngx_int_t ngx_http_ratelimit_select_rules(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_ratelimit_limiter_t *limiter);
static ngx_int_t ngx_http_ratelimit_select_rule(ngx_http_request_t *r,
    ngx_ratelimit_check_t *check, ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_select_client(ngx_http_request_t *r,
    ngx_ratelimit_check_t *check, ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule, ngx_ratelimit_client_t **client);
static ngx_int_t ngx_http_ratelimit_select_rate(ngx_http_request_t *r,
    ngx_ratelimit_rule_t *rule, const ngx_ratelimit_limit_t **rate);


ngx_int_t
ngx_http_ratelimit_select(ngx_http_request_t *r,
    ngx_http_ratelimit_loc_conf_t *conf, ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_uint_t                    i;
    ngx_int_t                     rc;
    ngx_http_ratelimit_limit_t  **limits;

    limits = conf->limits->elts;

    for (i = 0; i < conf->limits->nelts; i++) {

        if (limits[i]->rule) {
            rc = ngx_http_ratelimit_select_rule(r, &ctx->check,
                                                limits[i]->limiter,
                                                limits[i]->rule);
        } else {
            rc = ngx_http_ratelimit_select_rules(r, ctx, limits[i]->limiter);
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* All rules of a limiter that the path may match. */
static ngx_int_t
ngx_http_ratelimit_select_rules(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_ratelimit_limiter_t *limiter)
{
    ngx_uint_t              i, n;
    ngx_ratelimit_rule_t   *found[NGX_HTTP_RATELIMIT_FOUND], **rules;

    rules = found;
    n = ngx_ratelimit_limiter_find(limiter, &ctx->path, rules,
                                   NGX_HTTP_RATELIMIT_FOUND);

    if (n > NGX_HTTP_RATELIMIT_FOUND) {
        rules = ngx_palloc(r->pool, n * sizeof(ngx_ratelimit_rule_t *));
        if (rules == NULL) {
            return NGX_ERROR;
        }

        n = ngx_ratelimit_limiter_find(limiter, &ctx->path, rules, n);
    }

    for (i = 0; i < n; i++) {
        if (ngx_http_ratelimit_select_rule(r, &ctx->check, limiter, rules[i])
            == NGX_ERROR)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* NGX_DECLINED: the rule does not apply. */
static ngx_int_t
ngx_http_ratelimit_select_rule(ngx_http_request_t *r,
    ngx_ratelimit_check_t *check, ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule)
{
    ngx_int_t                    rc;
    ngx_ratelimit_client_t      *client;
    ngx_ratelimit_counter_t     *counter;
    const ngx_ratelimit_limit_t  *rate;

    if (!ngx_ratelimit_rule_match(rule, r->method, &r->uri, NULL,
                                  r->connection->log))
    {
        return NGX_DECLINED;
    }

    if (check->ncounters == NGX_RATELIMIT_MAX_COUNTERS) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "more than %d ratelimit rules match one request, "
                      "rule \"%V\" of zone \"%V\" is not counted",
                      NGX_RATELIMIT_MAX_COUNTERS, &rule->id,
                      &limiter->zone.name);
        return NGX_DECLINED;
    }

    rc = ngx_http_ratelimit_select_rate(r, rule, &rate);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_ratelimit_select_client(r, check, limiter, rule, &client);
    if (rc != NGX_OK) {
        return rc;
    }

    counter = &check->counters[check->ncounters++];
    counter->rule = rule;
    counter->limit = rate;
    counter->cost = 1;
    counter->dry_run = 0;
    counter->look = 0;
    counter->client = client;

    return NGX_OK;
}


/* The client whose key the rule counts by: one of the check's, or a new one. */
static ngx_int_t
ngx_http_ratelimit_select_client(ngx_http_request_t *r,
    ngx_ratelimit_check_t *check, ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule, ngx_ratelimit_client_t **found)
{
    ngx_str_t                     key;
    ngx_uint_t                    i;
    ngx_ratelimit_client_t       *client;
    ngx_http_ratelimit_values_t  *values;

    for (i = 0; i < check->nclients; i++) {
        client = &check->clients[i];

        if (client->limiter == limiter
            && client->key_index == rule->key_index)
        {
            *found = client;
            return NGX_OK;
        }
    }

    values = rule->data;

    if (ngx_http_ratelimit_value_get(r, &values->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key.len == 0) {
        return NGX_DECLINED;
    }

    client = &check->clients[check->nclients++];
    client->limiter = limiter;
    client->key_index = rule->key_index;
    client->key = key;

    *found = client;

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_select_rate(ngx_http_request_t *r,
    ngx_ratelimit_rule_t *rule, const ngx_ratelimit_limit_t **rate)
{
    ngx_str_t                     text;
    const char                   *expected;
    ngx_ratelimit_limit_t         *made;
    ngx_http_ratelimit_values_t  *values;

    if (!rule->dynamic) {
        *rate = &rule->limit;
        return NGX_OK;
    }

    values = rule->data;

    if (ngx_http_ratelimit_value_get(r, values->limit, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_DECLINED;
    }

    made = ngx_palloc(r->pool, sizeof(ngx_ratelimit_limit_t));
    if (made == NULL) {
        return NGX_ERROR;
    }

    expected = ngx_ratelimit_rule_limit(&rule->spec, &text, made);

    if (expected) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "ratelimit rule \"%V\" has a rate of \"%V\", "
                      "expected %s; it is not applied",
                      &rule->id, &text, expected);
        return NGX_DECLINED;
    }

    *rate = made;

    return NGX_OK;
}

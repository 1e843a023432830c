/*
 * The lists of single clients for operators. They are written where a request
 * is decided, and shown by the endpoint.
 */

#include "ngx_rl_request.h"
#include "ngx_rl_key.h"


uint64_t
ngx_rl_watch_kind(const ngx_rl_limiter_t *limiter, const ngx_str_t *rule_key)
{
    return ngx_rl_hash(ngx_rl_table_hash_key(limiter->zone.table),
                       rule_key->data, rule_key->len).lo;
}


ngx_int_t
ngx_rl_watch_text(const ngx_str_t *rule_key, const ngx_str_t *text,
    ngx_rl_watch_key_t *key)
{
    static const ngx_str_t  address = ngx_string("$binary_remote_addr");

    key->cut = 0;

    if (ngx_rl_equal(rule_key, &address) && (text->len == 4 || text->len == 16))
    {
        key->len = (u_char) ngx_inet_ntop((text->len == 4) ? AF_INET : AF_INET6,
                                          text->data, key->data,
                                          NGX_RL_WATCH_KEY);
        return NGX_OK;
    }

    if (ngx_rl_policy_hashed(text)
        && !ngx_rl_policy_value_hashed(rule_key, text))
    {
        return NGX_DECLINED;
    }

    key->len = (u_char) ngx_min(text->len, NGX_RL_WATCH_KEY);
    key->cut = (text->len > NGX_RL_WATCH_KEY);
    ngx_memcpy(key->data, text->data, key->len);

    return NGX_OK;
}


ngx_int_t
ngx_rl_watch_hash(const ngx_rl_watch_t *watch, const ngx_str_t *text,
    ngx_uint_t hashed, ngx_rl_watch_key_t *key)
{
    u_char     *p;
    ngx_uint_t  i;

    key->len = 0;
    key->cut = 0;

    if (!hashed || !ngx_rl_policy_hashed(text)) {
        return ngx_rl_watch_digest(watch, text, key->data);
    }

    p = text->data + NGX_RL_KEY_SHA256_LEN;

    for (i = 0; i < NGX_RL_WATCH_SHA256; i++) {
        key->data[i] = (u_char) ngx_hextoi(p + 2 * i, 2);
    }

    return NGX_OK;
}


/* A name as the zone's lists have it. */
static ngx_int_t
ngx_rl_watch_name(const ngx_rl_watch_t *watch, const ngx_str_t *rule_key,
    const ngx_str_t *text, ngx_rl_watch_key_t *key)
{
    if (watch->clear && ngx_rl_watch_text(rule_key, text, key) == NGX_OK) {
        return NGX_OK;
    }

    return ngx_rl_watch_hash(watch, text,
                       ngx_rl_policy_value_hashed(rule_key, text), key);
}


/*
 * Takes no lock that it would have to wait for: what cannot be counted now
 * counts with the next one. A name is made for a key that is not there alone.
 */
void
ngx_rl_watch_sample(const ngx_rl_client_t *client, const ngx_rl_rule_t *rule,
    ngx_rl_watch_top_e which)
{
    uint64_t             weight, kind;
    ngx_uint_t           counted;
    ngx_rl_id_t          id;
    ngx_rl_watch_t      *watch;
    ngx_rl_watch_key_t   name;
    ngx_rl_watch_top_t  *shared;

    watch = client->limiter->watch;
    shared = &watch->tops[which];
    weight = ngx_rl_sampler_take(&watch->samplers[which],
                                 (uint64_t) ngx_random());

    id = ngx_rl_hash(ngx_rl_table_hash_key(client->limiter->zone.table),
                     client->key.data, client->key.len);
    kind = ngx_rl_watch_kind(client->limiter, &rule->key);
    id.lo ^= kind;

    if (!ngx_rl_lock_try(&shared->lock)) {
        ngx_rl_sampler_carry(&watch->samplers[which], weight);
        return;
    }

    ngx_rl_top_turn(&shared->top, ngx_current_msec);
    counted = ngx_rl_top_count(&shared->top, &id, weight);
    ngx_rl_unlock(&shared->lock);

    if (counted
        || ngx_rl_watch_name(watch, &rule->key, &client->key, &name) != NGX_OK)
    {
        return;
    }

    if (!ngx_rl_lock_try(&shared->lock)) {
        ngx_rl_sampler_carry(&watch->samplers[which], weight);
        return;
    }

    ngx_rl_top_enter(&shared->top, &id, weight, kind, (u_char *) &name);
    ngx_rl_unlock(&shared->lock);
}


/*
 * Keeps a rejection with the names of the rule, the key, maybe a network, and
 * the route.
 */
static void
ngx_rl_watch_keep(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_watch_t *watch, const ngx_rl_rule_t *rule, const ngx_str_t *key,
    ngx_uint_t network, ngx_rl_rejection_t *rejection)
{
    ngx_int_t                  rc;
    ngx_http_variable_value_t  route;

    static const ngx_str_t  none = ngx_null_string;

    rc = network ? ngx_rl_watch_text(&none, key, &rejection->key)
                 : ngx_rl_watch_name(watch, &rule->key, key, &rejection->key);

    if (rc != NGX_OK || ngx_rl_route_variable(r, &route, 0) != NGX_OK) {
        return;
    }

    rejection->time_ms = ctx->decided_ms;

    rejection->rule_len = (u_char) ngx_min(rule->id.len, NGX_RL_WATCH_RULE);
    ngx_memcpy(rejection->rule, rule->id.data, rejection->rule_len);

    rejection->route_len = (u_char) ngx_min(route.len, NGX_RL_WATCH_ROUTE);
    rejection->route_cut = (route.len > NGX_RL_WATCH_ROUTE);
    ngx_memcpy(rejection->route, route.data, rejection->route_len);

    ngx_rl_ring_write(watch->rejections, rejection);
}


void
ngx_rl_watch_outcome(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_rl_watch_t          *watch;
    ngx_rl_rejection_t       rejection;
    const ngx_rl_limit_t    *limit;
    const ngx_rl_penalty_t  *penalty;
    const ngx_rl_counter_t  *counter;

    if (ctx->check.status == NGX_RL_PENALIZED) {
        penalty = ctx->penalized->penalty;
        watch = penalty->limiter->watch;

        /*
         * A penalty is cheap, and others shall stay in the list: a worker
         * keeps one request a second.
         */

        if (watch == NULL || watch->penalized == ngx_time()) {
            return;
        }

        watch->penalized = ngx_time();

        rejection.by = NGX_RL_REJECTED_BY_PENALTY;
        rejection.retry_us = ngx_rl_penalty_seconds(ctx) * 1000000;
        rejection.limit = 0;
        rejection.window_sec = 0;

        ngx_rl_watch_keep(r, ctx, watch, &penalty->rule, &ctx->penalized->key,
                          ctx->penalized->network, &rejection);
        return;
    }

    if (ctx->check.status != NGX_RL_REJECTED
        && ctx->check.status != NGX_RL_REJECTED_DRY_RUN)
    {
        return;
    }

    counter = ctx->check.decisive;
    limit = ngx_rl_counter_limit(counter);
    watch = counter->client->limiter->watch;

    rejection.by = (ctx->check.status == NGX_RL_REJECTED)
                   ? NGX_RL_REJECTED_BY_RULE : NGX_RL_REJECTED_BY_DRY_RUN;

    if (rejection.by == NGX_RL_REJECTED_BY_RULE
        && ngx_rl_watch_due(watch, NGX_RL_WATCH_REJECTED))
    {
        ngx_rl_watch_sample(counter->client, counter->rule,
                            NGX_RL_WATCH_REJECTED);
    }

    if (watch == NULL) {
        return;
    }

    rejection.retry_us = counter->answer.retry_us;
    rejection.limit = limit->capacity;
    rejection.window_sec = (limit->algorithm == NGX_RL_CONCURRENCY)
                           ? 0 : ngx_rl_limit_seconds(limit);

    ngx_rl_watch_keep(r, ctx, watch, counter->rule, &counter->client->key, 0,
                      &rejection);
}

/*
 * "ratelimit_penalty" at a request: whether one of its keys is penalized, which
 * of its outcomes are events, and what a penalty does to it.
 */

#include "ngx_http_ratelimit_key.h"
#include "ngx_http_ratelimit_watch.h"

/* of a worker's connections those whose answers may be held back: one in */
#define NGX_HTTP_RATELIMIT_HELD  8

static ngx_int_t ngx_http_ratelimit_penalty_key(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_ratelimit_penalty_t *penalty);
static ngx_uint_t ngx_http_ratelimit_penalty_counts(
    const ngx_http_ratelimit_ctx_t *ctx,
    const ngx_ratelimit_penalty_t *penalty, ngx_uint_t status);
static void ngx_http_ratelimit_penalty_begin(ngx_http_request_t *r,
    const ngx_http_ratelimit_penalty_key_t *entry);
static ngx_int_t ngx_http_ratelimit_penalty_name(ngx_http_request_t *r,
    const ngx_http_ratelimit_penalty_key_t *entry,
    ngx_ratelimit_watch_key_t *name);
static void ngx_http_ratelimit_penalty_none(ngx_http_request_t *r,
    const ngx_ratelimit_penalty_t *penalty, const char *where);


ngx_int_t
ngx_http_ratelimit_penalized(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, const ngx_ratelimit_limiter_t *limiter)
{
    uint64_t                           longest_ms;
    ngx_uint_t                         i, known;
    ngx_ratelimit_penalty_t          **penalties;
    ngx_http_ratelimit_penalty_key_t  *entry;

    if (limiter->penalties == NULL) {
        return NGX_OK;
    }

    if (ctx->penalty_keys == NULL) {
        ctx->penalty_keys = ngx_array_create(r->pool, 2,
                                     sizeof(ngx_http_ratelimit_penalty_key_t));
        if (ctx->penalty_keys == NULL) {
            return NGX_ERROR;
        }
    }

    /* a location may name the rules of a zone one by one */

    known = ctx->penalty_keys->nelts;
    entry = ctx->penalty_keys->elts;

    for (i = 0; i < known; i++) {
        if (entry[i].penalty->limiter == limiter) {
            return NGX_OK;
        }
    }

    penalties = limiter->penalties->elts;

    for (i = 0; i < limiter->penalties->nelts; i++) {
        if (ngx_http_ratelimit_penalty_key(r, ctx, penalties[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    /* if several are in force, the one with the longest wait counts */

    entry = ctx->penalty_keys->elts;
    longest_ms = 0;

    for (i = known; i < ctx->penalty_keys->nelts; i++) {
        if (entry[i].until_ms > longest_ms) {
            longest_ms = entry[i].until_ms;
            ctx->penalized = &entry[i];
        }
    }

    return ctx->penalized ? NGX_BUSY : NGX_OK;
}


/* NGX_OK, also if the request has no key of it; NGX_ERROR: memory is out. */
static ngx_int_t
ngx_http_ratelimit_penalty_key(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_ratelimit_penalty_t *penalty)
{
    ngx_str_t                          key;
    ngx_ratelimit_id_t                 id;
    ngx_ratelimit_client_t             client;
    ngx_ratelimit_penalties_t         *penalties;
    ngx_http_ratelimit_penalty_key_t  *entry;

    if (ngx_http_ratelimit_value_key(r, penalty->data, &key) != NGX_OK
        || ngx_http_ratelimit_anonymous(r, ctx, &penalty->key, &key)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (key.len == 0) {
        return NGX_OK;
    }

    if (penalty->limiter->new_keys) {
        ngx_memzero(&client, sizeof(ngx_ratelimit_client_t));
        client.limiter = penalty->limiter;
        client.key = key;

        if (ngx_http_ratelimit_new_key(r, ctx, &client, &penalty->rule)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        key = client.key;
    }

    entry = ngx_array_push(ctx->penalty_keys);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    entry->penalty = penalty;
    entry->key = key;
    entry->counted = 0;

    if (penalty->statuses) {
        ctx->needs |= NGX_HTTP_RATELIMIT_NEEDS_STATUS;
    }

    entry->until_ms = 0;

    penalties = ngx_ratelimit_zone_penalties(&penalty->limiter->zone);

    if (ngx_ratelimit_penalties_any(penalties, ngx_current_msec)) {
        id = ngx_ratelimit_penalty_id(penalty, &key);
        entry->until_ms = ngx_ratelimit_penalties_until(penalties, &id,
                                                        ngx_current_msec);
    }

    return NGX_OK;
}


void
ngx_http_ratelimit_penalty_events(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_uint_t status)
{
    ngx_uint_t                         i;
    ngx_http_ratelimit_penalty_key_t  *entry;

    if (ctx->penalized || ctx->penalty_keys == NULL) {
        return;
    }

    entry = ctx->penalty_keys->elts;

    for (i = 0; i < ctx->penalty_keys->nelts; i++) {
        if (entry[i].counted
            || !ngx_http_ratelimit_penalty_counts(ctx, entry[i].penalty,
                                                  status))
        {
            continue;
        }

        entry[i].counted = 1;

        if (ngx_ratelimit_penalty_event(entry[i].penalty, &entry[i].key)) {
            ngx_http_ratelimit_penalty_begin(r, &entry[i]);
        }
    }
}


/* Whether a status, or without one the rejection, is an event. */
static ngx_uint_t
ngx_http_ratelimit_penalty_counts(const ngx_http_ratelimit_ctx_t *ctx,
    const ngx_ratelimit_penalty_t *penalty, ngx_uint_t status)
{
    ngx_uint_t                      i;
    const ngx_ratelimit_counter_t  *counter;

    if (status) {
        return penalty->statuses
               && ngx_http_ratelimit_has_status(penalty->statuses, status);
    }

    if (!penalty->rejected || ctx->check.status != NGX_RATELIMIT_REJECTED) {
        return 0;
    }

    /* the zone that decides may be another one */

    for (i = 0; i < ctx->check.ncounters; i++) {
        counter = &ctx->check.counters[i];

        if (counter->client->limiter == penalty->limiter
            && ngx_http_ratelimit_rejects(counter))
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_ratelimit_penalty_begin(ngx_http_request_t *r,
    const ngx_http_ratelimit_penalty_key_t *entry)
{
    char                            note[NGX_RATELIMIT_LOG_NOTE];
    ngx_int_t                       rc;
    u_char                          address[NGX_RATELIMIT_ADDRESS];
    ngx_str_t                       key;
    ngx_ratelimit_penalty_t        *penalty;
    ngx_ratelimit_penalized_t       made;
    const ngx_ratelimit_limiter_t  *limiter;

    penalty = entry->penalty;
    limiter = penalty->limiter;
    key = entry->key;

    ngx_memzero(&made, sizeof(ngx_ratelimit_penalized_t));
    made.id = ngx_ratelimit_penalty_id(penalty, &key);
    made.kind = penalty->kind;

    if (ngx_http_ratelimit_key_name(r, &penalty->key, &key) != NGX_OK
        || ngx_http_ratelimit_penalty_name(r, entry, &made.name) != NGX_OK)
    {
        return;
    }

    /* none of a UNIX socket */

    if (ngx_http_ratelimit_client_address(r, address)) {
        made.network = ngx_ratelimit_penalty_network(penalty, address);
    }

    rc = ngx_ratelimit_penalties_begin(
                                 ngx_ratelimit_zone_penalties(&limiter->zone),
                                 &made, &penalty->time, ngx_current_msec);

    if (rc == NGX_BUSY) {
        return;
    }

    if (rc == NGX_DECLINED || rc == NGX_ABORT) {
        ngx_http_ratelimit_penalty_none(r, penalty,
                                        (rc == NGX_ABORT) ? " of its network"
                                                          : "");
        return;
    }

    ngx_ratelimit_count(limiter->rows[NGX_RATELIMIT_COUNTS_ZONE],
                        NGX_RATELIMIT_COUNTS_PENALTIES + penalty->action, 1);

    if (ngx_http_ratelimit_log_due(r, NGX_HTTP_RATELIMIT_LOG_PENALTY, note)) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "ratelimit penalty \"%V\" of zone \"%V\" begins: %s for "
                      "%uL s, key \"%V\", number %uD of this key%s",
                      &penalty->id, &limiter->zone.name,
                      ngx_ratelimit_penalty_actions[penalty->action],
                      (made.until_ms - ngx_current_msec) / 1000, &key,
                      made.times, note);
    }
}


/*
 * As the zone's other lists name it; but a key that does not fit has its hash,
 * by which its penalty can be ended.
 */
static ngx_int_t
ngx_http_ratelimit_penalty_name(ngx_http_request_t *r,
    const ngx_http_ratelimit_penalty_key_t *entry,
    ngx_ratelimit_watch_key_t *name)
{
    ngx_str_t  key;

    key = entry->key;

    if (entry->penalty->limiter->clear
        && ngx_http_ratelimit_watch_text(&entry->penalty->key, &key, name)
           == NGX_OK
        && !name->cut)
    {
        return NGX_OK;
    }

    if (ngx_http_ratelimit_key_name(r, &entry->penalty->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a hash is read, not made */

    return ngx_http_ratelimit_watch_hash(NULL, &key, 1, name);
}


static void
ngx_http_ratelimit_penalty_none(ngx_http_request_t *r,
    const ngx_ratelimit_penalty_t *penalty, const char *where)
{
    char  note[NGX_RATELIMIT_LOG_NOTE];

    ngx_ratelimit_count(penalty->limiter->rows[NGX_RATELIMIT_COUNTS_ZONE],
                        NGX_RATELIMIT_COUNTS_PENALTIES
                        + NGX_RATELIMIT_PENALTY_ACTIONS, 1);

    if (ngx_http_ratelimit_log_due(r, NGX_HTTP_RATELIMIT_LOG_NO_PENALTY, note))
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "ratelimit penalty \"%V\" of zone \"%V\" does not begin: "
                      "too many keys%s are penalized%s", &penalty->id,
                      &penalty->limiter->zone.name, where, note);
    }
}


ngx_msec_t
ngx_http_ratelimit_penalty_hold(ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_uint_t                     *held;
    const ngx_ratelimit_penalty_t  *penalty;

    held = ngx_http_ratelimit_ctx_held(ctx);
    penalty = ctx->penalized->penalty;

    if (penalty->action != NGX_RATELIMIT_PENALTY_DELAY
        || *held >= ngx_cycle->connection_n / NGX_HTTP_RATELIMIT_HELD)
    {
        return 0;
    }

    (*held)++;
    ctx->held = 1;

    return (ngx_msec_t) penalty->time.time_ms;
}

/*
 * "ratelimit_penalty" at a request: whether one of its keys is penalized, which
 * of its outcomes are events, and what a penalty does to it.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"

/* of a worker's connections those whose answers may be held back: one in */
#define NGX_RL_HELD  8


/* The key becomes that of the client's network of so many bits. */
static ngx_int_t
ngx_rl_penalty_network_key(ngx_http_request_t *r, ngx_uint_t bits,
    ngx_rl_penalty_key_t *entry)
{
    entry->network = 1;

    return ngx_rl_client_key(r, bits, bits, &entry->key);
}


/* NGX_OK, also if the request has no key of it; NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_penalty_key(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_penalty_t *penalty)
{
    u_char                 address[NGX_RL_ADDRESS], *given;
    uint64_t               until_ms;
    ngx_str_t              key;
    ngx_uint_t             bits;
    ngx_rl_id_t            id;
    ngx_rl_client_t        client;
    ngx_rl_penalties_t    *penalties;
    ngx_rl_penalty_key_t  *entry;

    if (ngx_rl_value_key(r, penalty->data, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    given = key.data;

    if (ngx_rl_anonymous(r, ctx, &penalty->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key.len == 0) {
        return NGX_OK;
    }

    if (penalty->limiter->new_keys) {
        ngx_memzero(&client, sizeof(ngx_rl_client_t));
        client.limiter = penalty->limiter;
        client.key = key;

        if (ngx_rl_new_key(r, ctx, &client, &penalty->rule) != NGX_OK) {
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
    entry->address = penalty->address || key.data != given;
    entry->network = 0;

    if (penalty->statuses) {
        ctx->needs |= NGX_RL_NEEDS_STATUS;
    }

    entry->until_ms = 0;

    penalties = ngx_rl_zone_penalties(&penalty->limiter->zone);

    if (ngx_rl_penalties_any(penalties, ngx_current_msec)) {
        id = ngx_rl_penalty_id(penalty, &key);
        entry->until_ms = ngx_rl_penalties_until(penalties, &id,
                                                 ngx_current_msec);

        if (entry->address && ngx_rl_client_address(r, address)) {
            until_ms = ngx_rl_penalty_networks(penalty, address,
                                               ngx_current_msec, &bits);

            if (until_ms > entry->until_ms) {
                entry->until_ms = until_ms;
                return ngx_rl_penalty_network_key(r, bits, entry);
            }
        }
    }

    return NGX_OK;
}


ngx_rl_selected_e
ngx_rl_penalized(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    const ngx_rl_limiter_t *limiter)
{
    uint64_t               longest_ms;
    ngx_uint_t             i, known;
    ngx_rl_penalty_t     **penalties;
    ngx_rl_penalty_key_t  *entry;

    if (limiter->penalties == NULL) {
        return NGX_RL_SELECT_OK;
    }

    if (ctx->penalty_keys == NULL) {
        ctx->penalty_keys = ngx_array_create(r->pool, 2,
                                             sizeof(ngx_rl_penalty_key_t));
        if (ctx->penalty_keys == NULL) {
            return NGX_RL_SELECT_ERROR;
        }
    }

    /* a location may name the rules of a zone one by one */

    known = ctx->penalty_keys->nelts;
    entry = ctx->penalty_keys->elts;

    for (i = 0; i < known; i++) {
        if (entry[i].penalty->limiter == limiter) {
            return NGX_RL_SELECT_OK;
        }
    }

    penalties = limiter->penalties->elts;

    for (i = 0; i < limiter->penalties->nelts; i++) {
        if (ngx_rl_penalty_key(r, ctx, penalties[i]) != NGX_OK) {
            return NGX_RL_SELECT_ERROR;
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

    return ctx->penalized ? NGX_RL_SELECT_PENALIZED : NGX_RL_SELECT_OK;
}


/* Whether a status, or without one the rejection, is an event. */
static ngx_uint_t
ngx_rl_penalty_counts(const ngx_rl_ctx_t *ctx, const ngx_rl_penalty_t *penalty,
    ngx_uint_t status)
{
    ngx_uint_t               i;
    const ngx_rl_counter_t  *counter;

    if (status) {
        return penalty->statuses
               && ngx_rl_has_status(penalty->statuses, status);
    }

    if (!penalty->rejected || ctx->check.status != NGX_RL_REJECTED) {
        return 0;
    }

    /* the zone that decides may be another one */

    for (i = 0; i < ctx->check.ncounters; i++) {
        counter = &ctx->check.counters[i];

        if (counter->client->limiter == penalty->limiter
            && ngx_rl_rejects(counter))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * As the zone's other lists name it; but a key that does not fit has its hash,
 * by which its penalty can be ended.
 */
static ngx_int_t
ngx_rl_penalty_row_name(ngx_http_request_t *r,
    const ngx_rl_penalty_key_t *entry, ngx_rl_watch_key_t *name)
{
    ngx_str_t  key;

    static const ngx_str_t  none = ngx_null_string;

    key = entry->key;

    if (entry->network) {
        return ngx_rl_watch_text(&none, &key, name);
    }

    if (entry->penalty->limiter->clear
        && ngx_rl_watch_text(&entry->penalty->key, &key, name) == NGX_OK
        && !name->cut)
    {
        return NGX_OK;
    }

    if (ngx_rl_key_name(r, &entry->penalty->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a hash is read, not made */

    return ngx_rl_watch_hash(NULL, &key, 1, name);
}


/*
 * Too many keys of the network are penalized: so is the network, until the
 * first of them is not. Returns as begin does; NGX_BUSY also if it is not known
 * now when that is: a later event begins the penalty.
 */
static ngx_int_t
ngx_rl_penalty_crowded(ngx_http_request_t *r, ngx_rl_penalty_key_t *entry,
    const u_char address[NGX_RL_ADDRESS], ngx_rl_penalized_t *made)
{
    ngx_uint_t         bits;
    ngx_rl_penalty_t  *penalty;

    penalty = entry->penalty;

    if (made->until_ms == 0) {
        return NGX_BUSY;
    }

    bits = ngx_rl_penalty_crowd(penalty, address, made);

    if (ngx_rl_penalty_network_key(r, bits, entry) != NGX_OK
        || ngx_rl_penalty_row_name(r, entry, &made->name) != NGX_OK)
    {
        return NGX_BUSY;
    }

    return ngx_rl_penalties_begin(
               ngx_rl_zone_penalties(&penalty->limiter->zone), made, NULL,
               ngx_current_msec);
}


ngx_int_t
ngx_rl_penalty_name(ngx_http_request_t *r, const ngx_rl_penalty_key_t *entry,
    ngx_str_t *name)
{
    *name = entry->key;

    return entry->network
           ? NGX_OK : ngx_rl_key_name(r, &entry->penalty->key, name);
}


static void
ngx_rl_penalty_begin(ngx_http_request_t *r, const ngx_rl_penalty_key_t *of)
{
    char                     note[NGX_RL_LOG_NOTE];
    ngx_int_t                rc;
    u_char                   address[NGX_RL_ADDRESS];
    ngx_str_t                key;
    ngx_uint_t               count;
    ngx_rl_penalty_t        *penalty;
    ngx_rl_penalized_t       made;
    const ngx_rl_limiter_t  *limiter;
    ngx_rl_penalty_key_t     entry;

    entry = *of;
    penalty = entry.penalty;
    limiter = penalty->limiter;

    ngx_memzero(&made, sizeof(ngx_rl_penalized_t));
    made.id = ngx_rl_penalty_id(penalty, &entry.key);
    made.kind = penalty->kind;

    if (ngx_rl_penalty_row_name(r, &entry, &made.name) != NGX_OK) {
        return;
    }

    /* none of a UNIX socket */

    if (ngx_rl_client_address(r, address)) {
        made.network = ngx_rl_penalty_network(penalty, address, entry.address);
    }

    rc = ngx_rl_penalties_begin(ngx_rl_zone_penalties(&limiter->zone), &made,
                                &penalty->time, ngx_current_msec);

    if (rc == NGX_ABORT && entry.address) {
        rc = ngx_rl_penalty_crowded(r, &entry, address, &made);
    }

    if (rc == NGX_BUSY || ngx_rl_penalty_name(r, &entry, &key) != NGX_OK) {
        return;
    }

    count = entry.network ? NGX_RL_PENALTY_NETWORK
                          : (ngx_uint_t) penalty->action;

    if (rc == NGX_DECLINED || rc == NGX_ABORT) {
        count = NGX_RL_PENALTY_NONE;
    }

    ngx_rl_count(limiter->rows[NGX_RL_COUNTS_ZONE],
                 NGX_RL_COUNTS_PENALTIES + count, 1);

    if (count == NGX_RL_PENALTY_NONE) {

        if (ngx_rl_request_log_due(r, NGX_RL_LOG_NO_PENALTY, note)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "ratelimit penalty \"%V\" of zone \"%V\" does not "
                          "begin: too many keys%s are penalized%s",
                          &penalty->id, &limiter->zone.name,
                          (rc == NGX_ABORT) ? " of its network" : "", note);
        }

        return;
    }

    if (ngx_rl_request_log_due(r, entry.network ? NGX_RL_LOG_NETWORK
                                                : NGX_RL_LOG_PENALTY, note))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
            "ratelimit penalty \"%V\" of zone \"%V\" begins: %s for %uL s, key "
            "\"%V\", number %uD of this key%s", &penalty->id,
            &limiter->zone.name, ngx_rl_penalty_actions[penalty->action],
            (made.until_ms - ngx_current_msec + 999) / 1000, &key, made.times,
            note);
    }
}


void
ngx_rl_penalty_events(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_uint_t status)
{
    ngx_uint_t             i;
    ngx_rl_penalty_key_t  *entry;

    if (ctx->penalized || ctx->penalty_keys == NULL) {
        return;
    }

    entry = ctx->penalty_keys->elts;

    for (i = 0; i < ctx->penalty_keys->nelts; i++) {
        if (entry[i].counted
            || !ngx_rl_penalty_counts(ctx, entry[i].penalty, status))
        {
            continue;
        }

        entry[i].counted = 1;

        if (ngx_rl_penalty_event(entry[i].penalty, &entry[i].key)) {
            ngx_rl_penalty_begin(r, &entry[i]);
        }
    }
}


ngx_msec_t
ngx_rl_penalty_hold(ngx_rl_ctx_t *ctx)
{
    ngx_uint_t              *held;
    const ngx_rl_penalty_t  *penalty;

    held = ngx_rl_ctx_held(ctx);
    penalty = ctx->penalized->penalty;

    if (penalty->action != NGX_RL_PENALTY_DELAY
        || *held >= ngx_cycle->connection_n / NGX_RL_HELD)
    {
        return 0;
    }

    (*held)++;
    ctx->held = 1;

    return (ngx_msec_t) penalty->time.time_ms;
}

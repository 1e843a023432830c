/*
 * What a counter in Redis gets when Redis has no answer, and what is noted for
 * that while it has.
 *
 * Counters on this node that stand in for one in Redis are in the zone's own
 * table, under the zone's own key: a client that knows its digest, as it may
 * without a secret, cannot choose their place.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_hash.h"

static void ngx_ratelimit_fallback_name(ngx_ratelimit_client_t *client);


void
ngx_ratelimit_fallback(ngx_ratelimit_counter_t *counter, ngx_msec_t wait_ms)
{
    counter->source = NGX_RATELIMIT_SOURCE_FALLBACK;

    if (ngx_ratelimit_counter_unavailable(counter)) {
        counter->answer.retry_us = (uint64_t) ngx_max(wait_ms, 1) * 1000;
        return;
    }

    counter->emergency = (counter->fail_mode == NGX_RATELIMIT_FAIL_OPEN
                          && counter->rule->emergency != NULL);

    if (ngx_ratelimit_fallback_here(counter)) {
        ngx_ratelimit_fallback_name(counter->client);
        ngx_ratelimit_local_take(counter);
    }
}


void
ngx_ratelimit_fallback_note(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_fallback_name(counter->client);

    if (counter->limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        ngx_ratelimit_local_note(counter);

    } else if (counter->answer.granted) {
        ngx_ratelimit_slot_hold(counter);
    }
}


ngx_uint_t
ngx_ratelimit_fallback_here(const ngx_ratelimit_counter_t *counter)
{
    switch (counter->source) {

    case NGX_RATELIMIT_SOURCE_LOCAL:
        return 1;

    case NGX_RATELIMIT_SOURCE_REDIS:
    case NGX_RATELIMIT_SOURCE_FALLBACK:
        return counter->emergency
               || counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL;

    default:
        return 0;
    }
}


static void
ngx_ratelimit_fallback_name(ngx_ratelimit_client_t *client)
{
    client->noted_us = ngx_ratelimit_local_now_us();

    if (client->named) {
        return;
    }

    client->named = 1;
    client->local = ngx_ratelimit_siphash(
                    ngx_ratelimit_table_hash_key(client->limiter->zone.table),
                    (const u_char *) &client->hash, sizeof(client->hash),
                    1, 3);
}

/*
 * What a counter in Redis gets when Redis has no answer, and what is noted for
 * that while it has.
 *
 * Counters on this node that stand in for one in Redis are in the zone's own
 * table, under the zone's own key: a client that knows its digest, as it may
 * without a secret, cannot choose their place.
 */

#include "ngx_ratelimit_backend.h"


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
        counter->client->noted_us = ngx_ratelimit_local_now_us();
        ngx_ratelimit_local_take(counter);
    }
}


void
ngx_ratelimit_fallback_note(ngx_ratelimit_counter_t *counter,
    uint64_t asked_us)
{
    counter->client->noted_us = ngx_ratelimit_local_now_us();

    if (counter->limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {

        if (!ngx_ratelimit_forgotten(counter->client->limiter, asked_us)) {
            ngx_ratelimit_local_note(counter);
        }

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

        /* of a lease it was when the lease was filled */

        return !counter->leased
               && counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL;

    case NGX_RATELIMIT_SOURCE_FALLBACK:
        return counter->emergency
               || counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL;

    default:
        return 0;
    }
}

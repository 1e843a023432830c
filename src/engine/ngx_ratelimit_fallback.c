/*
 * The answer of a counter in Redis when Redis has none, and notes for that
 * while it has.
 *
 * Counters on this gateway that stand in for one in Redis are in the zone's own
 * table, under the zone's own key. A client may know its digest, since there
 * need not be a secret, but cannot choose their place.
 */

#include "ngx_ratelimit_backend.h"


const ngx_ratelimit_backend_t  ngx_ratelimit_nowhere = {
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
};


void
ngx_ratelimit_fallback(ngx_ratelimit_counter_t *counter, ngx_msec_t wait_ms)
{
    counter->source = NGX_RATELIMIT_SOURCE_FALLBACK;
    counter->backend = &ngx_ratelimit_nowhere;

    if (ngx_ratelimit_counter_unavailable(counter)) {
        counter->answer.retry_us = (uint64_t) ngx_max(wait_ms, 1) * 1000;
        return;
    }

    counter->emergency = (counter->fail_mode == NGX_RATELIMIT_FAIL_OPEN
                          && counter->rule->emergency != NULL);

    if (counter->emergency
        || counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL)
    {
        counter->backend = &ngx_ratelimit_local;
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
        ngx_ratelimit_permit_hold(counter);
    }
}

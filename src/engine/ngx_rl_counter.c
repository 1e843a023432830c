/*
 * The part that all backends share: the check that waits for a counter, and its
 * answer when Redis has none.
 *
 * Counters of this gateway that stand in for one in Redis are in the zone's own
 * table, under the zone's own key. A client may know its digest, since there
 * need not be a secret, but cannot choose their place.
 */

#include "ngx_rl_backend.h"
#include "ngx_rl_window.h"

const ngx_rl_backend_t  ngx_rl_nowhere = {
    NULL, NULL, NULL, NULL, NULL
};


void
ngx_rl_check_answered(ngx_rl_check_t *check)
{
    if (--check->pending == 0) {
        check->handler(check->data);
    }
}


uint32_t
ngx_rl_counter_weight(const ngx_rl_counter_t *counter)
{
    if (counter->source != NGX_RL_SOURCE_FALLBACK || counter->emergency) {
        return 2;
    }

    return ngx_max(ngx_rl_redis_fleet(counter->client->limiter->redis), 2);
}


uint64_t
ngx_rl_counter_age_us(const ngx_rl_counter_t *counter, uint64_t asked_us)
{
    return ngx_rl_window_answer_age_us(counter->limit, ngx_rl_local_now_us(),
                                       asked_us, &counter->answer);
}


ngx_uint_t
ngx_rl_forgotten(const ngx_rl_limiter_t *limiter, uint64_t asked_us)
{
    uint64_t  forgot_us;

    forgot_us = ngx_rl_leases_forgot_us(limiter->zone.leases);

    return forgot_us && forgot_us >= asked_us;
}


void
ngx_rl_fallback(ngx_rl_counter_t *counter, ngx_rl_redis_status_e reason,
    ngx_msec_t wait_ms)
{
    counter->remote->reason = reason;
    counter->source = NGX_RL_SOURCE_FALLBACK;
    counter->backend = &ngx_rl_nowhere;

    /* if a call cannot be made, all counters of its client have asked */
    counter->asks = 0;

    if (ngx_rl_counter_unavailable(counter)) {
        counter->answer.retry_us = (uint64_t) ngx_max(wait_ms, 1) * 1000;
        return;
    }

    counter->emergency = (counter->fail_mode == NGX_RL_FAIL_OPEN
                          && counter->rule->emergency != NULL);

    if (counter->emergency || counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        counter->backend = &ngx_rl_local;
        counter->client->remote->noted_us = ngx_rl_local_now_us();
        ngx_rl_local_take(counter);
    }
}


void
ngx_rl_fallback_note(ngx_rl_counter_t *counter, uint64_t asked_us)
{
    counter->client->remote->noted_us = ngx_rl_local_now_us();

    if (counter->limit->algorithm != NGX_RL_CONCURRENCY) {

        if (!ngx_rl_forgotten(counter->client->limiter, asked_us)) {
            ngx_rl_local_note(counter);
        }

    } else if (counter->answer.granted) {
        ngx_rl_permit_hold(counter);
    }
}

/*
 * Counters of zones with "peers=", if Redis has no answer for them or the zone
 * has none. They are this gateway's own, and each of their spends is noted as a
 * change, for the leader.
 */

#include "ngx_rl_fleet.h"

#include "ngx_rl_backend.h"


void
ngx_rl_fleet_tell(const ngx_rl_counter_t *counter, int64_t tokens)
{
    uint64_t                 end_ms;
    ngx_rl_id_t              id;
    const ngx_rl_limiter_t  *limiter;
    ngx_rl_told_limit_t      limit;

    limiter = counter->client->limiter;
    id = ngx_rl_counter_id(counter);
    end_ms = 0;

    if (counter->limit->algorithm == NGX_RL_FIXED_WINDOW
        && counter->answer.reset_us)
    {
        end_ms = ngx_current_msec + (counter->answer.reset_us + 999) / 1000;
    }

    ngx_rl_told_limit(&limit, counter->limit, limiter->fleet_zone);
    ngx_rl_changes_add(&limiter->fleet->shared->changes, &id, &limit,
                       (int32_t) tokens, end_ms, 0);
}


static void
ngx_rl_peered_take(ngx_rl_counter_t *counter)
{
    ngx_rl_local_take(counter);

    if (counter->answer.granted) {
        ngx_rl_fleet_tell(counter, counter->answer.granted);
    }
}


/*
 * A permit that comes back has told already. What was spent until fresh_us
 * counts no more after it, so nothing comes back here: nor at the peers.
 */
static void
ngx_rl_peered_give(ngx_rl_counter_t *counter, uint32_t tokens)
{
    uint64_t  fresh_us;

    fresh_us = counter->client->check->taken_us + counter->answer.reset_us;

    ngx_rl_local_give(counter, tokens);

    if (counter->limit->algorithm != NGX_RL_CONCURRENCY
        && fresh_us > ngx_rl_local_now_us())
    {
        ngx_rl_fleet_tell(counter, -(int64_t) ngx_min(tokens, INT32_MAX));
    }
}


static void
ngx_rl_peered_charge(ngx_rl_counter_t *counter)
{
    ngx_rl_local_charge(counter, counter->charge);
    ngx_rl_fleet_tell(counter, ngx_min(counter->charge, INT32_MAX));
}


const ngx_rl_backend_t  ngx_rl_peered = {
    ngx_rl_peered_take,
    NULL,
    NULL,
    ngx_rl_peered_give,
    ngx_rl_peered_charge
};


ngx_uint_t
ngx_rl_fleet_gateways(const ngx_rl_limiter_t *limiter)
{
    return atomic_load_explicit(&limiter->fleet->shared->peers.gateways,
                                memory_order_relaxed);
}


uint32_t
ngx_rl_fleet_weight(const ngx_rl_limiter_t *limiter)
{
    ngx_uint_t  n, alone;

    n = limiter->redis ? ngx_rl_redis_fleet(limiter->redis) : 0;

    if (limiter->fleet) {
        n = ngx_max(n, ngx_rl_fleet_gateways(limiter));
        alone = atomic_load(&limiter->fleet->shared->peers.alone);
        alone = ngx_max(alone, 1);
        n = (n + alone - 1) / alone;
    }

    return (uint32_t) ngx_max(n, 2);
}


void
ngx_rl_fleet_reset(const ngx_rl_counter_t *counter)
{
    ngx_rl_id_t              id;
    const ngx_rl_limiter_t  *limiter;
    ngx_rl_told_limit_t      limit;

    limiter = counter->client->limiter;
    id = ngx_rl_counter_id(counter);

    ngx_rl_told_limit(&limit, counter->limit, limiter->fleet_zone);
    (void) ngx_rl_changes_reset(&limiter->fleet->shared->changes, &id, &limit,
                                NGX_RL_CHANGES_OWN, 0);
}

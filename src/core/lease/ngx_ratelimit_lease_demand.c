/*
 * Leases: time and demand, and how many tokens are of use in hand.
 */

#include "ngx_ratelimit_lease_int.h"

/* demand is counted in ticks; of each a quarter's share goes into the rate */
#define NGX_RATELIMIT_LEASE_TICK_MS    50

/* with less demand in HOLD_MS a counter asks for its cost alone */
#define NGX_RATELIMIT_LEASE_MIN_HOLD   2

/* tokens asked for in one tick that are a burst */
#define NGX_RATELIMIT_LEASE_BURST      8

/* other gateways may have given back: a spent fixed window asks once more */
#define NGX_RATELIMIT_LEASE_RECHECK_MS 100

/*
 * A spent counter to which tokens come back all the time rests between two
 * questions: for 10 ms at first, twice as long with each strike.
 */
#define NGX_RATELIMIT_LEASE_REST_MS    150
#define NGX_RATELIMIT_LEASE_REST_SHARE 8      /* of its window at most, and of
                                                 what is left of it */

/* so shortly before a window ends no call asks ahead of need */
#define NGX_RATELIMIT_LEASE_EXACT_MS   20

static uint32_t ngx_ratelimit_lease_demand(
    const ngx_ratelimit_lease_t *lease);
static uint32_t ngx_ratelimit_lease_rest_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint32_t ends_ms);
static uint32_t ngx_ratelimit_lease_ends_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);


/* The tokens go back, which leaves as many as before. */
void
ngx_ratelimit_lease_left(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint32_t tokens)
{
    uint64_t  us;

    if (!ngx_ratelimit_lease_of_bucket(limit)) {
        lease->remaining += tokens;
        return;
    }

    us = tokens * limit->rate.step_us;
    lease->fresh_us = lease->fresh_us > us ? lease->fresh_us - us : 0;
}


/*
 * A lease that nobody has touched for a second is forgotten, but for the fewest
 * tokens that a window's answers have named. So are tokens of another limit
 * that should have gone back: the worker that would do it is dead.
 */
void
ngx_ratelimit_lease_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (lease->async) {

        /* the rule was another one, and this is spent, not in hand */

        lease->async = 0;
        lease->tokens = 0;
        lease->mark = 0;
    }

    if (now_us >= lease->busy_us
        || (lease->mark != limit->mark
            && ngx_ratelimit_lease_old(lease, now_us)))
    {
        ngx_ratelimit_lease_left(lease, limit, lease->tokens);
        lease->tokens = 0;
    }

    ngx_ratelimit_lease_wake(lease, now_us);

    if (lease->mark == limit->mark) {
        ngx_ratelimit_lease_epoch(lease, limit, now_us);
        return;
    }

    if (lease->tokens == 0) {
        lease->mark = limit->mark;
        lease->answered = 0;
        lease->retry_ms = 0;
        lease->strikes = 0;
        lease->fresh_us = 0;
    }
}


void
ngx_ratelimit_lease_wake(ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    if (now_us >= lease->busy_us) {
        lease->retry_ms = 0;
        lease->strikes = 0;
        lease->rate = 0;
        lease->count = 0;
        lease->tick_ms = ngx_ratelimit_lease_ms(now_us);
        lease->asked_ms = lease->tick_ms - NGX_RATELIMIT_LEASE_SPACE_MS;
        lease->asking = 0;
    }

    if (lease->busy_us < now_us + NGX_RATELIMIT_LEASE_BUSY_US) {
        lease->busy_us = now_us + NGX_RATELIMIT_LEASE_BUSY_US;
    }

    ngx_ratelimit_lease_tick(lease, now_us);
}


/*
 * At a window's end Redis' answer counts no more, and tokens of a fixed window
 * are worth nothing. Tokens of a sliding window go back to it.
 */
void
ngx_ratelimit_lease_epoch(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (!lease->answered || ngx_ratelimit_lease_of_bucket(limit)
        || now_us < ngx_ratelimit_lease_until(lease, limit))
    {
        return;
    }

    lease->answered = 0;
    lease->retry_ms = 0;
    lease->strikes = 0;

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        lease->tokens = 0;
    }
}


/* Where the window ends that tokens were taken from. */
uint64_t
ngx_ratelimit_lease_until(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit)
{
    if (limit->algorithm != NGX_RATELIMIT_SLIDING_WINDOW || lease->before) {
        return lease->fresh_us;
    }

    return lease->fresh_us > limit->window_us
           ? lease->fresh_us - limit->window_us : 0;
}


/* Ends the ticks that are over, those without demand too. */
void
ngx_ratelimit_lease_tick(ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    uint32_t  passed_ms, inst;

    passed_ms = ngx_ratelimit_lease_passed_ms(now_us, lease->tick_ms);

    if (passed_ms < NGX_RATELIMIT_LEASE_TICK_MS) {
        return;
    }

    inst = lease->count * (NGX_RATELIMIT_LEASE_HOLD_MS
                           / NGX_RATELIMIT_LEASE_TICK_MS)
           * NGX_RATELIMIT_LEASE_RATE_ONE;
    lease->count = 0;
    lease->tick_ms += passed_ms - passed_ms % NGX_RATELIMIT_LEASE_TICK_MS;

    if (passed_ms >= NGX_RATELIMIT_LEASE_BUSY_US / 1000) {
        lease->rate = 0;
        return;
    }

    lease->rate = lease->rate - lease->rate / 4 + inst / 4;

    while (passed_ms >= 2 * NGX_RATELIMIT_LEASE_TICK_MS) {
        lease->rate -= lease->rate / 4;
        passed_ms -= NGX_RATELIMIT_LEASE_TICK_MS;
    }
}


/*
 * The rate or, if that is more, the demand of this tick alone: so a burst on an
 * unknown counter doubles what each call takes.
 */
static uint32_t
ngx_ratelimit_lease_demand(const ngx_ratelimit_lease_t *lease)
{
    uint32_t  rate;

    rate = lease->count >= NGX_RATELIMIT_LEASE_BURST
           ? lease->count * NGX_RATELIMIT_LEASE_RATE_ONE : 0;

    return rate > lease->rate ? rate : lease->rate;
}


/*
 * Tokens that are not spent as a window ends are lost to the fleet. A spent
 * sliding window would lose most: it holds what is spent until its next call.
 */
uint32_t
ngx_ratelimit_lease_hold(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    uint32_t  rate, ms, ends_ms, rest_ms;

    rate = ngx_ratelimit_lease_demand(lease);
    ends_ms = ngx_ratelimit_lease_ends_ms(lease, limit, now_us);

    if (ends_ms < NGX_RATELIMIT_LEASE_EXACT_MS
        || rate < NGX_RATELIMIT_LEASE_MIN_HOLD
                         * NGX_RATELIMIT_LEASE_RATE_ONE)
    {
        return 0;
    }

    ms = ngx_ratelimit_lease_min(ends_ms, NGX_RATELIMIT_LEASE_HOLD_MS);

    if (lease->strikes && limit->algorithm == NGX_RATELIMIT_SLIDING_WINDOW) {
        rest_ms = ngx_ratelimit_lease_rest_ms(lease, limit, ends_ms);
        ms = ngx_ratelimit_lease_min(ms, rest_ms);
    }

    return (uint32_t) ((uint64_t) rate * ms
                       / (NGX_RATELIMIT_LEASE_HOLD_MS
                          * NGX_RATELIMIT_LEASE_RATE_ONE));
}


/* How far apart two calls for a spent counter are; 0: it is a slow one. */
static uint32_t
ngx_ratelimit_lease_rest_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint32_t ends_ms)
{
    uint32_t  ms;

    if (lease->rate < NGX_RATELIMIT_LEASE_MIN_HOLD
                      * NGX_RATELIMIT_LEASE_RATE_ONE)
    {
        return 0;
    }

    ms = lease->strikes < NGX_RATELIMIT_LEASE_STRIKES
         ? 5u << lease->strikes : NGX_RATELIMIT_LEASE_REST_MS;
    ms = ngx_ratelimit_lease_min(limit->window_us / 1000
                                 / NGX_RATELIMIT_LEASE_REST_SHARE, ms);

    return ngx_ratelimit_lease_min(ends_ms / NGX_RATELIMIT_LEASE_REST_SHARE,
                                   ms);
}


/* Until the window ends that tokens are taken from; UINT32_MAX: none does. */
static uint32_t
ngx_ratelimit_lease_ends_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    uint64_t  until_us;

    if (ngx_ratelimit_lease_of_bucket(limit) || !lease->answered) {
        return UINT32_MAX;
    }

    until_us = ngx_ratelimit_lease_until(lease, limit);

    return until_us > now_us
           ? ngx_ratelimit_lease_min((until_us - now_us) / 1000, UINT32_MAX)
           : 0;
}


/* Whether tokens in hand should have been spent or have gone back by now. */
unsigned
ngx_ratelimit_lease_old(const ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    return ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms)
           >= NGX_RATELIMIT_LEASE_LOST_MS;
}


/* For how long since the answer a denial costs no call. */
uint32_t
ngx_ratelimit_lease_quiet_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit)
{
    uint32_t  rest_ms, ends_ms;

    if (!ngx_ratelimit_lease_flows(limit)) {
        return lease->strikes > 1
               ? lease->retry_ms
               : ngx_ratelimit_lease_min(lease->retry_ms,
                                         NGX_RATELIMIT_LEASE_RECHECK_MS);
    }

    ends_ms = ngx_ratelimit_lease_of_bucket(limit)
              ? UINT32_MAX
              : ngx_ratelimit_lease_ms(ngx_ratelimit_lease_until(lease, limit))
                - lease->answered_ms;

    rest_ms = ngx_ratelimit_lease_rest_ms(lease, limit, ends_ms);

    return lease->retry_ms > rest_ms ? lease->retry_ms : rest_ms;
}

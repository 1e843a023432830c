/*
 * Inside the files of leases only: lease.c, lease_fill.c, async.c.
 */

#ifndef NGX_RL_LEASE_INT_H_INCLUDED
#define NGX_RL_LEASE_INT_H_INCLUDED

#include "ngx_rl_lease.h"

/* demand is counted in ticks; of each a quarter's share goes into the rate */
#define NGX_RL_LEASE_TICK_MS    50

/* of a lease's rate: a token in HOLD_MS */
#define NGX_RL_LEASE_RATE_ONE   16

/* nothing is known of a lease that nobody has touched for so long */
#define NGX_RL_LEASE_BUSY_US    1000000
#define NGX_RL_LEASE_LOST_MS    1000

/* asks ahead of need are at least so far apart */
#define NGX_RL_LEASE_SPACE_MS   10

/* by so much the cached clocks of two workers may differ */
#define NGX_RL_LEASE_SKEW_MS    1000

/* a call that was under way when tokens went back, and the next one */
#define NGX_RL_LEASE_OVERTAKEN  2

/* strikes count up to so many */
#define NGX_RL_LEASE_STRIKES    5


/*
 * lease.c
 *
 * The rare parts of begin(). renew: the lease is of another limit, or nobody
 * has touched it for long. tick: ends ticks. epoch: ends a window that is over.
 */
void ngx_rl_lease_renew(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us);
void ngx_rl_lease_tick(ngx_rl_lease_t *lease, uint32_t passed_ms);
void ngx_rl_lease_epoch(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us);

/* The tokens go back to Redis: notes that they are left there. */
void ngx_rl_lease_left(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint32_t tokens);

/* The tokens that are of use in hand: 0 for a counter too slow for a lease. */
uint32_t ngx_rl_lease_hold(const ngx_rl_lease_t *lease,
    const ngx_rl_limit_t *limit, uint64_t now_us);

/* The end of the window that tokens were taken from. */
uint64_t ngx_rl_lease_until(const ngx_rl_lease_t *lease,
    const ngx_rl_limit_t *limit);

/* The lease holds its place while it rejects, for a minute at most. */
void ngx_rl_lease_keep(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us);

/* lease_fill.c: whether the window is over that the answer tells of. */
unsigned ngx_rl_lease_late(const ngx_rl_limit_t *limit, uint64_t asked_us,
    uint64_t now_us, const ngx_rl_answer_t *answer);

/*
 * Whether Redis has lost a counter, by an answer that tells of a fresh one: so
 * much of all was used when it answered before, and some is until then.
 */
unsigned ngx_rl_lease_missing(const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us, uint32_t answered_ms,
    int64_t used, int64_t all, uint64_t until_us,
    const ngx_rl_answer_t *answer);


/* Redis rounds up, and its clock stood at asked_us or later. */
static inline uint64_t
ngx_rl_lease_fresh_us(uint64_t asked_us, const ngx_rl_answer_t *answer)
{
    return asked_us + answer->reset_us
           - (answer->reset_us >= 1000 ? 1000 : answer->reset_us);
}


static inline unsigned
ngx_rl_lease_of_bucket(const ngx_rl_limit_t *limit)
{
    return limit->algorithm == NGX_RL_TOKEN_BUCKET
           || limit->algorithm == NGX_RL_LEAKY_BUCKET;
}


/* Whether tokens come back to it all the time. */
static inline unsigned
ngx_rl_lease_flows(const ngx_rl_limit_t *limit)
{
    return limit->algorithm != NGX_RL_FIXED_WINDOW;
}


static inline uint32_t
ngx_rl_lease_ms(uint64_t us)
{
    return (uint32_t) (us / 1000);
}


/* Since since_ms; 0 where that is of a worker whose clock is ahead. */
static inline uint32_t
ngx_rl_lease_passed_ms(uint64_t now_us, uint32_t since_ms)
{
    uint32_t  passed_ms;

    passed_ms = ngx_rl_lease_ms(now_us) - since_ms;

    return passed_ms > UINT32_MAX - NGX_RL_LEASE_SKEW_MS ? 0 : passed_ms;
}


/* The lease is used: it lives on, and ticks that are over end. */
static inline void
ngx_rl_lease_touch(ngx_rl_lease_t *lease, uint64_t now_us)
{
    uint32_t  passed_ms;

    if (lease->busy_us < now_us + NGX_RL_LEASE_BUSY_US) {
        lease->busy_us = now_us + NGX_RL_LEASE_BUSY_US;
    }

    passed_ms = ngx_rl_lease_passed_ms(now_us, lease->tick_ms);

    if (passed_ms >= NGX_RL_LEASE_TICK_MS) {
        ngx_rl_lease_tick(lease, passed_ms);
    }
}


/* Called first. Most requests need no more than its comparisons. */
static inline void
ngx_rl_lease_begin(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    if (lease->mark != limit->mark || now_us >= lease->busy_us) {
        ngx_rl_lease_renew(lease, limit, now_us);
    }

    ngx_rl_lease_touch(lease, now_us);

    if (lease->answered && !ngx_rl_lease_of_bucket(limit)
        && lease->mark == limit->mark)
    {
        ngx_rl_lease_epoch(lease, limit, now_us);
    }
}


/* Whether a worker asks Redis, or did so a moment ago in vain. */
static inline unsigned
ngx_rl_lease_asking(const ngx_rl_lease_t *lease, uint64_t now_us)
{
    return lease->asking
           && ngx_rl_lease_passed_ms(now_us, lease->asked_ms)
              < NGX_RL_LEASE_LOST_MS;
}


static inline void
ngx_rl_lease_ask(ngx_rl_lease_t *lease, uint64_t now_us)
{
    lease->asking = 1;
    lease->asked_ms = ngx_rl_lease_ms(now_us);
}


/* Whether what Redis said then is forgotten; a part of a ms errs so. */
static inline unsigned
ngx_rl_lease_forgot(const ngx_rl_lease_env_t *env, uint32_t said_ms)
{
    return env->forgot_us
           && env->forgot_us + (uint64_t) 1000
              * ngx_rl_lease_passed_ms(env->now_us, said_ms)
              >= env->now_us;
}


static inline uint32_t
ngx_rl_lease_min(uint64_t a, uint64_t b)
{
    return (uint32_t) (a < b ? a : b);
}

#endif /* NGX_RL_LEASE_INT_H_INCLUDED */

/*
 * What the tests of leases share: limits, a clock that begins shortly before
 * its milliseconds no longer fit 32 bits, and answers of Redis.
 */

#ifndef LEASE_H_INCLUDED
#define LEASE_H_INCLUDED

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ngx_ratelimit_lease.h"
#include "ngx_ratelimit_window.h"

#define PAID    NGX_RATELIMIT_LEASE_PAID
#define DENIED  NGX_RATELIMIT_LEASE_DENIED
#define ASK     NGX_RATELIMIT_LEASE_ASK

#define SECOND  ((uint64_t) 1000000)

/* by the node's clock, that many ms after the test began */
#define START_MS   (((uint64_t) 1 << 32) - 700)
#define AT_US(ms)  ((START_MS + (ms)) * 1000)

typedef ngx_ratelimit_limit_t      limit_t;
typedef ngx_ratelimit_lease_t      lease_t;
typedef ngx_ratelimit_answer_t     answer_t;
typedef ngx_ratelimit_lease_ask_t  ask_t;
typedef ngx_ratelimit_lease_env_t  env_t;


static inline limit_t
limit_of(ngx_ratelimit_algorithm_e algorithm, uint64_t tokens,
    uint64_t period_us)
{
    limit_t               limit;
    ngx_ratelimit_spec_t  spec;

    memset(&spec, 0, sizeof(spec));
    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = period_us;
    spec.burst = (algorithm == NGX_RATELIMIT_LEAKY_BUCKET) ? tokens - 1 : 0;

    assert_null(ngx_ratelimit_limit_init(&limit, &spec));

    return limit;
}


static inline limit_t
bucket(uint64_t tokens, uint64_t seconds)
{
    return limit_of(NGX_RATELIMIT_TOKEN_BUCKET, tokens, seconds * SECOND);
}


static inline limit_t
fixed(uint64_t tokens, uint64_t seconds)
{
    return limit_of(NGX_RATELIMIT_FIXED_WINDOW, tokens, seconds * SECOND);
}


static inline limit_t
sliding(uint64_t tokens, uint64_t seconds)
{
    return limit_of(NGX_RATELIMIT_SLIDING_WINDOW, tokens, seconds * SECOND);
}


/* when a counter was reset, see test_lease_forget.c; 0: never */
static uint64_t  forgot_us;


/* ms may be below 0: of a worker whose clock is behind */
static inline env_t
at(int64_t ms)
{
    env_t  env;

    env.now_us = AT_US(ms);
    env.nodes = 3;
    env.rtt_ms = 1;
    env.forgot_us = forgot_us;

    return env;
}


static inline answer_t
said(uint32_t granted, uint32_t remaining, uint64_t reset_ms,
    uint64_t retry_ms)
{
    answer_t  answer;

    answer.granted = granted;
    answer.remaining = remaining;
    answer.reset_us = reset_ms * 1000;
    answer.retry_us = retry_ms * 1000;

    return answer;
}


/* What Redis said at ms to who asked then for so much. */
static inline int
fill(lease_t *lease, const limit_t *limit, int64_t ms, uint32_t cost,
    answer_t answer)
{
    env_t  env;
    ask_t  ask;

    env = at(ms);

    memset(&ask, 0, sizeof(ask));
    ask.cost = cost;
    ask.want = cost;

    return ngx_ratelimit_lease_fill(lease, limit, &env, env.now_us, &ask,
                                    &answer);
}


static inline ngx_ratelimit_lease_e
take(lease_t *lease, const limit_t *limit, int64_t ms, uint32_t cost,
    answer_t *answer)
{
    env_t                  env;
    answer_t               unused;
    unsigned               ahead;
    ngx_ratelimit_lease_e  rc;

    env = at(ms);
    answer = answer ? answer : &unused;
    memset(answer, 0xa5, sizeof(*answer));

    rc = ngx_ratelimit_lease_take(lease, limit, &env, cost, answer, &ahead);

    assert_true(rc == PAID || ahead == 0);

    if (rc == PAID) {
        assert_int_equal(answer->granted, cost);
        assert_true(answer->retry_us == 0);
        assert_true(answer->remaining <= limit->capacity);
    }

    if (rc == DENIED) {
        assert_int_equal(answer->granted, 0);
        assert_true(answer->retry_us > 0);
        assert_true(answer->remaining < cost);
    }

    return rc;
}


static inline uint32_t
sweep(lease_t *lease, const limit_t *limit, int64_t ms, unsigned all)
{
    env_t  env;

    env = at(ms);

    return ngx_ratelimit_lease_sweep(lease, limit, &env, all);
}


/* Takes of 1, n in each ms from one moment to another; what is granted is. */
static inline void
demand(lease_t *lease, const limit_t *limit, int64_t from, int64_t to,
    unsigned n)
{
    unsigned  i;

    while (from < to) {
        for (i = 0; i < n; i++) {
            (void) take(lease, limit, from, 1, NULL);
        }
        from++;
    }
}

#endif /* LEASE_H_INCLUDED */

/*
 * What the tests of leases share: limits, a clock that begins shortly before
 * its milliseconds no longer fit 32 bits, and sequences of steps as tables.
 */

#ifndef LEASE_H_INCLUDED
#define LEASE_H_INCLUDED

#include "counter.h"

#include "ngx_rl_ledger.h"

#define PAID    NGX_RL_LEDGER_PAID
#define DENIED  NGX_RL_LEDGER_REJECTED
#define ASK     NGX_RL_LEDGER_ASK

/* by the gateway's clock, that many ms after the test began */
#define START_MS   (((uint64_t) 1 << 32) - 700)
#define AT_US(ms)  ((START_MS + (ms)) * 1000)

typedef ngx_rl_ledger_t       lease_t;
typedef ngx_rl_ledger_call_t  ask_t;
typedef ngx_rl_ledger_env_t   env_t;

typedef enum {
    END_STEP = 0,
    TAKE_STEP, FILL_STEP, PAY_STEP, GIVE_STEP, CHARGE_STEP, SWEEP_STEP,
    SWEEP_ALL_STEP, STALE_STEP, SIZE_STEP, FAILED_STEP, DEMAND_STEP,
    IN_HAND_STEP, FORGOT_STEP, NEW_STEP
} step_e;

/* What a step returns is from least to most, or least where most is 0. */
typedef struct {
    step_e    what;
    int       line;
    int64_t   ms;
    int64_t   from;       /* taken, asked then; asked so long ago */
    uint32_t  n;          /* cost, tokens, debt */
    uint32_t  queued;
    int64_t   least;
    int64_t   most;
    answer_t  said;       /* by Redis, times in ms; of SIZE: cost and want */
    int       of;         /* 1: under the other limit */
    uint64_t  retry[2];   /* in ms, at least and at most; 0: not looked at */
    uint32_t  left;       /* each plus 1; 0: not looked at */
    uint32_t  asks;
} step_t;

/* A sequence, run under each of some limits, with another beside it. */
typedef struct {
    const char    *name;
    const step_t  *steps;
    limit_t      (*runs[4])(void);
    limit_t      (*other)(void);
} case_t;

#define STEP(what_, ms_, ...)                                                 \
    { .what = what_##_STEP, .line = __LINE__, .ms = ms_, __VA_ARGS__ }

#define LEFT(n)          .left = (n) + 1
#define ASKS(n)          .asks = (n) + 1
#define RETRY(low, high) .retry = { low, high }
#define NO_RETRY         .retry = { NEVER, NEVER }
#define OTHER            .of = 1
#define AGO(ms)          .from = ms         /* of FILL: it was asked */
#define UNFIT            .least = 1         /* of FILL: it does not fill */
#define UP_TO(n)         .most = n

#define TAKE(ms, cost, rc, ...)                                               \
    STEP(TAKE, ms, .n = cost, .least = rc, __VA_ARGS__)
#define FILL(at, cost, granted, left, reset, retry, ...)                      \
    STEP(FILL, at, .n = cost, .said = { granted, left, reset, retry },        \
         __VA_ARGS__)
#define PAY(ms, cost, rc, ...)                                                \
    STEP(PAY, ms, .n = cost, .least = rc, __VA_ARGS__)
#define GIVE(ms, taken, tokens, got, ...)                                     \
    STEP(GIVE, ms, .from = taken, .n = tokens, .least = got, __VA_ARGS__)
#define CHARGED(ms, tokens, got, ...)                                         \
    STEP(CHARGE, ms, .n = tokens, .least = got, __VA_ARGS__)
#define SWEEP(ms, got, ...)      STEP(SWEEP, ms, .least = got, __VA_ARGS__)
#define SWEEP_ALL(ms, got, ...)  STEP(SWEEP_ALL, ms, .least = got, __VA_ARGS__)
#define STALE(ms, got, ...)      STEP(STALE, ms, .least = got, __VA_ARGS__)
#define SIZE(ms, head, all, cost, want, ahead, ...)                           \
    STEP(SIZE, ms, .n = head, .queued = all, .said = { cost, want },          \
         .least = ahead, __VA_ARGS__)
#define FAILED(ms)               STEP(FAILED, ms, )
#define DEMAND(begin, end, each) STEP(DEMAND, end, .from = begin, .n = each)
#define IN_HAND(tokens, ...)     STEP(IN_HAND, 0, .least = tokens, __VA_ARGS__)
#define FORGOT(ms)               STEP(FORGOT, ms, )
#define NEW                      STEP(NEW, 0, )

#define LIMIT(name, algorithm, tokens, us)                                    \
    static inline limit_t                                                     \
    name(void)                                                                \
    {                                                                         \
        return limit_of(NGX_RL_##algorithm, tokens, us);                      \
    }


static inline limit_t
bucket(uint64_t tokens, uint64_t seconds)
{
    return limit_of(NGX_RL_TOKEN_BUCKET, tokens, seconds * SECOND);
}


static inline limit_t
fixed(uint64_t tokens, uint64_t seconds)
{
    return limit_of(NGX_RL_FIXED_WINDOW, tokens, seconds * SECOND);
}


static inline limit_t
sliding(uint64_t tokens, uint64_t seconds)
{
    return limit_of(NGX_RL_SLIDING_WINDOW, tokens, seconds * SECOND);
}


/* ms may be below 0: of a worker whose clock is behind */
static inline env_t
at(int64_t ms)
{
    return (env_t) { .now_us = AT_US(ms), .gateways = 3, .rtt_ms = 1 };
}


static inline answer_t
said(uint32_t granted, uint32_t remaining, uint64_t reset_ms, uint64_t retry_ms)
{
    return (answer_t) { granted, remaining, reset_ms * 1000,
        retry_ms == NEVER ? NEVER : retry_ms * 1000 };
}


/* What every answer to a request keeps. */
static inline void
assert_answer(ngx_rl_ledger_e rc, const limit_t *limit, uint32_t cost,
    const answer_t *answer)
{
    if (rc == ASK) {
        return;
    }

    assert_int_equal(answer->granted, rc == PAID ? cost : 0);
    assert_true((rc == PAID) == (answer->retry_us == 0));
    assert_true(answer->remaining <= limit->capacity);
    assert_true(rc == PAID || answer->remaining < cost);
}


static inline int64_t
step_take(lease_t *lease, const limit_t *limit, const step_t *step,
    const env_t *env, answer_t *answer, unsigned *asks)
{
    ngx_rl_ledger_e  rc;

    memset(answer, 0xa5, sizeof(*answer));

    rc = ngx_rl_ledger_take(lease, limit, env, step->n, answer, asks);

    assert_true(rc == PAID || *asks == 0);
    assert_answer(rc, limit, step->n, answer);

    return rc;
}


/* Takes of 1, n in each ms from one moment to another. */
static inline void
demand(lease_t *lease, const limit_t *limit, int64_t from, int64_t to,
    uint32_t n)
{
    answer_t  answer;
    unsigned  ahead;

    for ( /* void */ ; from < to; from++) {
        env_t env = at(from);

        for (uint32_t i = 0; i < n; i++) {
            (void) ngx_rl_ledger_take(lease, limit, &env, 1, &answer, &ahead);
        }
    }
}


static inline int64_t
step_lease(lease_t *lease, const limit_t *limit, const step_t *s,
    const env_t *env, answer_t *answer)
{
    int       filled;

    ask_t ask = { 0 };

    switch (s->what) {

    case FILL_STEP:
        ask.cost = ask.want = s->n;
        *answer = said(s->said.granted, s->said.remaining, s->said.reset_us,
                       s->said.retry_us);
        filled = ngx_rl_ledger_fill(lease, limit, env,
                                   AT_US(s->ms - s->from), &ask, answer);
        assert_true(!filled || lease->tokens <= limit->capacity);
        return !filled;

    case PAY_STEP:
        return ngx_rl_ledger_pay(lease, limit, env, s->n, answer);

    case GIVE_STEP:
        return ngx_rl_ledger_give(lease, limit, env, AT_US(s->from), s->n);
    case CHARGE_STEP:
        return ngx_rl_ledger_charge(lease, limit, env, s->n);

    case SWEEP_STEP:
    case SWEEP_ALL_STEP:
        (void) ngx_rl_ledger_sweep(lease, limit, env, s->what == SWEEP_ALL_STEP,
                                   &ask);
        return -ask.debit;

    case STALE_STEP:
        (void) ngx_rl_ledger_ask(lease, limit, env, 0, 0, &ask);
        return -ask.debit;

    case SIZE_STEP:
        assert_int_equal(ngx_rl_ledger_ask(lease, limit, env, s->n, s->queued,
                                           &ask),
                         s->n || ask.ahead);
        assert_int_equal(ask.cost, s->said.granted);
        assert_int_equal(ask.want, s->said.remaining);
        assert_true(ask.share >= 1);
        return ask.ahead;

    case DEMAND_STEP:
        demand(lease, limit, s->from, s->ms, s->n);
        return 0;

    case FAILED_STEP:
        ngx_rl_ledger_failed(lease, limit, env, &ask);
        return 0;

    default: /* IN_HAND_STEP */
        return lease->tokens;
    }
}


#define step_in(value, low, high, what)                                       \
    if ((value) < (low) || (value) > (high)) {                                \
        fail_msg("line %d: %s is %lld", s->line, what, (long long) (value));  \
    }

static inline void
steps_run(const step_t *s, const limit_t *limits)
{
    answer_t  answer;

    lease_t lease = { 0 };
    uint64_t forgot_us = 0;

    for ( /* void */ ; s->what != END_STEP; s++) {
        const limit_t *limit = &limits[s->of];
        env_t env = at(s->ms);
        env.forgot_us = forgot_us;
        unsigned asks = 0;
        int64_t value = s->least;

        if (s->what == NEW_STEP) {
            memset(&lease, 0, sizeof(lease));
            forgot_us = 0;

        } else if (s->what == FORGOT_STEP) {
            forgot_us = AT_US(s->ms);

        } else if (s->what == TAKE_STEP) {
            value = step_take(&lease, limit, s, &env, &answer, &asks);

        } else {
            value = step_lease(&lease, limit, s, &env, &answer);
        }

        step_in(value, s->least, s->most ? s->most : s->least, "what returns");

        if (s->left) {
            step_in(answer.remaining, s->left - 1, s->left - 1, "remaining");
        }

        if (s->asks) {
            step_in(asks, s->asks - 1, s->asks - 1, "ask");
        }

        if (s->retry[0] == NEVER) {
            assert_true(answer.retry_us == NEVER);

        } else if (s->retry[1]) {
            step_in(answer.retry_us, s->retry[0] * 1000, s->retry[1] * 1000,
                    "retry");
        }
    }
}


static inline void
case_run(void **state)
{
    limit_t        limits[2];
    const case_t  *c = *state;

    for (size_t i = 0; i < 4 && c->runs[i]; i++) {
        limits[0] = c->runs[i]();
        limits[1] = c->other ? c->other() : limits[0];
        print_message("%s, limit %zu\n", c->name, i + 1);
        steps_run(c->steps, limits);
    }
}


/* The cases as tests, behind which there is room for others. */
static inline void
cases_add(struct CMUnitTest *tests, const case_t *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tests[i] = (struct CMUnitTest) { cases[i].name, case_run, NULL, NULL,
            (void *) &cases[i] };
    }
}

#endif /* LEASE_H_INCLUDED */

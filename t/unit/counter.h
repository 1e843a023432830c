/*
 * What the tests of counters share: token buckets, fixed and sliding windows
 * behind one name, and their limits.
 */

#ifndef COUNTER_H_INCLUDED
#define COUNTER_H_INCLUDED

#include "zone.h"

#include "ngx_rl_window.h"

#define SECOND  ((uint64_t) 1000000)
#define DAY     (86400 * SECOND)
#define LOOK    NGX_RL_LOOK
#define CHARGE  NGX_RL_CHARGE
#define NEVER   NGX_RL_NEVER

typedef ngx_rl_limit_t   limit_t;
typedef ngx_rl_window_t  window_t;
typedef ngx_rl_answer_t  answer_t;

typedef union {
    ngx_rl_token_bucket_t  tb;
    window_t               w;
} state_t;

/* a counter of a test of C against Lua; kind: 't', 'f' or 's' */
typedef struct {
    char           kind;
    ngx_rl_spec_t  spec;
    limit_t        limit;
    state_t        state;
} counter_t;


static inline limit_t
limit_of(ngx_rl_algorithm_e algorithm, uint64_t tokens, uint64_t period_us)
{
    limit_t  limit;

    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = period_us;
    spec.burst = (algorithm == NGX_RL_LEAKY_BUCKET) ? tokens - 1 : 0;

    assert_null(ngx_rl_limit_init(&limit, &spec));

    return limit;
}


static inline limit_t
limit_of_calendar(ngx_rl_calendar_e calendar, uint64_t tokens)
{
    limit_t  limit;

    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = NGX_RL_FIXED_WINDOW;
    spec.calendar = calendar;
    spec.tokens = tokens;

    assert_null(ngx_rl_limit_init(&limit, &spec));

    return limit;
}


/* How long the fixed window of now lasts yet, and since when. */
static inline uint64_t
window_left(const limit_t *limit, uint64_t now)
{
    return ngx_rl_calendar_bounds(limit, now).end_us - now;
}


static inline uint64_t
window_passed(const limit_t *limit, uint64_t now)
{
    return now - ngx_rl_calendar_bounds(limit, now).start_us;
}


static inline uint64_t
window_next(const limit_t *limit, uint64_t now)
{
    return window_left(limit, now + window_left(limit, now));
}


/* The state's clock and the wall clock are the same one here. */
static inline answer_t
state_take(void *state, const limit_t *limit, uint64_t now, uint32_t cost,
    uint32_t want)
{
    answer_t  answer;

    switch (limit->algorithm) {

    case NGX_RL_FIXED_WINDOW:
        ngx_rl_fixed_window_take(state, limit, now, window_left(limit, now),
                                 window_next(limit, now), cost, want, &answer);
        break;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_sliding_window_take(state, limit, now, cost, want, &answer);
        break;

    default:
        ngx_rl_token_bucket_take(state, &limit->rate, now, cost, want, &answer);
    }

    return answer;
}


static inline void
state_give(void *state, const limit_t *limit, uint64_t now, uint64_t taken,
    uint32_t tokens)
{
    switch (limit->algorithm) {

    case NGX_RL_FIXED_WINDOW:
        ngx_rl_fixed_window_give(state, limit, now, window_passed(limit, now),
                                 window_left(limit, now), taken, tokens);
        break;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_sliding_window_give(state, limit, now, taken, tokens);
        break;

    default:
        ngx_rl_token_bucket_give(state, &limit->rate, now, taken, tokens);
    }
}


/* An answer as Redis gives it: milliseconds, rounded up. */
static inline void
fill_answer(const answer_t *answer, int64_t *values)
{
    values[0] = answer->granted;
    values[1] = answer->remaining;
    values[2] = (answer->reset_us + 999) / 1000;
    values[3] = (answer->retry_us == NEVER)
                ? -1 : (int64_t) (answer->retry_us + 999) / 1000;
}


static inline void
random_bucket(ngx_rl_spec_t *spec)
{
    static const uint64_t  periods[] = { 1, 5, 60, 3600, 86400, 366 * 86400 };

    spec->period_us = rnd(8) ? periods[rnd(6)] * SECOND
                             : rnd_log(NGX_RL_MAX_PERIOD_US);
    spec->tokens = rnd(4) ? rnd_log(1000) : rnd_log(NGX_RL_MAX_TOKENS);
    spec->capacity = rnd(2) ? spec->tokens
                     : rnd(2) ? rnd_log(50)
                              : rnd_log(NGX_RL_MAX_TOKENS);
}


static inline void
random_window(ngx_rl_spec_t *spec)
{
    static const uint64_t  periods[] = { 1, 2, 10, 60, 61, 86400 };

    spec->tokens = rnd(8) ? rnd_log(100) : rnd_log(NGX_RL_MAX_TOKENS);

    if (spec->algorithm == NGX_RL_FIXED_WINDOW && rnd(2)) {
        spec->calendar = 1 + rnd(3);
        spec->tz = zone_random();
        spec->month_day = rnd(2) ? rnd(32) : 28 + rnd(4);
        return;
    }

    spec->period_us = rnd(8) ? periods[rnd(6)] * SECOND
                             : rnd_log(NGX_RL_MAX_PERIOD_US);
}


/* A fresh counter of the kind, of any limit. */
static inline void
counter_make(counter_t *counter, char kind)
{
    ngx_rl_spec_t  *spec = &counter->spec;

    memset(counter, 0, sizeof(counter_t));
    counter->kind = kind;

    do {
        memset(spec, 0, sizeof(*spec));
        spec->algorithm = (kind == 't') ? NGX_RL_TOKEN_BUCKET
                          : (kind == 'f') ? NGX_RL_FIXED_WINDOW
                                          : NGX_RL_SLIDING_WINDOW;
        if (kind == 't') {
            random_bucket(spec);
        } else {
            random_window(spec);
        }
    } while (ngx_rl_limit_init(&counter->limit, spec) != NULL);
}


static inline void
counter_take(counter_t *counter, uint64_t now, uint32_t cost, uint32_t want,
    answer_t *answer)
{
    *answer = state_take(&counter->state, &counter->limit, now, cost, want);
}

#endif /* COUNTER_H_INCLUDED */

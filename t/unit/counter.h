/*
 * What lives in a bucket's hash, in C, for the tests of C against Lua: the
 * kinds behind one name, and random limits.
 */

#ifndef COUNTER_H_INCLUDED
#define COUNTER_H_INCLUDED

#include "parity.h"

#include "ngx_ratelimit_window.h"

typedef struct {
    char                          kind;
    ngx_ratelimit_spec_t          spec;
    ngx_ratelimit_limit_t         limit;
    ngx_ratelimit_token_bucket_t  tb;
    ngx_ratelimit_window_t        w;
} counter_t;


/* When the counter equals a fresh one. */

static inline uint64_t
counter_fresh_us(const counter_t *counter)
{
    if (counter->kind == 't') {
        return counter->tb.span_code ? counter->tb.tat_us : 0;
    }

    return counter->w.fresh_us;
}


static inline void
counter_forget(counter_t *counter)
{
    memset(&counter->tb, 0, sizeof(counter->tb));
    memset(&counter->w, 0, sizeof(counter->w));
}


static inline void
counter_take(counter_t *counter, uint64_t now, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer)
{
    uint64_t                left_us;
    ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;

    switch (counter->kind) {

    case 't':
        ngx_ratelimit_token_bucket_take(&counter->tb, &limit->rate, now, cost,
                                        want, answer);
        return;

    case 'f':
        left_us = ngx_ratelimit_fixed_window_left(limit, now);
        ngx_ratelimit_fixed_window_take(&counter->w, limit, now, left_us, cost,
                                        want, answer);
        return;

    default:
        ngx_ratelimit_sliding_window_take(&counter->w, limit, now, cost, want,
                                          answer);
    }
}


static inline void
counter_charge(counter_t *counter, uint64_t now, uint32_t tokens,
    ngx_ratelimit_answer_t *answer)
{
    uint64_t                left_us;
    ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;

    switch (counter->kind) {

    case 't':
        ngx_ratelimit_token_bucket_take(&counter->tb, &limit->rate, now, tokens,
                                        NGX_RATELIMIT_CHARGE, answer);
        return;

    case 'f':
        left_us = ngx_ratelimit_fixed_window_left(limit, now);
        ngx_ratelimit_fixed_window_take(&counter->w, limit, now, left_us,
                                        tokens, NGX_RATELIMIT_CHARGE, answer);
        return;

    default:
        ngx_ratelimit_sliding_window_take(&counter->w, limit, now, tokens,
                                          NGX_RATELIMIT_CHARGE, answer);
    }
}


static inline void
counter_give(counter_t *counter, uint64_t now, uint64_t taken, uint32_t tokens)
{
    uint64_t                passed_us;
    ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;

    switch (counter->kind) {

    case 't':
        ngx_ratelimit_token_bucket_give(&counter->tb, &limit->rate, now,
                                        taken, tokens);
        return;

    case 'f':
        passed_us = ngx_ratelimit_fixed_window_passed(limit, now);
        ngx_ratelimit_fixed_window_give(&counter->w, limit, now, passed_us,
                                        taken, tokens);
        return;

    default:
        ngx_ratelimit_sliding_window_give(&counter->w, limit, now, taken,
                                          tokens);
    }
}


static inline void
fill_answer(const ngx_ratelimit_answer_t *answer, int64_t *values)
{
    values[0] = answer->granted;
    values[1] = answer->remaining;
    values[2] = (answer->reset_us + 999) / 1000;
    values[3] = (answer->retry_us == NGX_RATELIMIT_NEVER)
                ? -1 : (int64_t) (answer->retry_us + 999) / 1000;
}


static inline void
random_bucket(ngx_ratelimit_spec_t *spec)
{
    static const uint64_t  periods[] = { 1, 5, 60, 3600, 86400, 366 * 86400 };

    spec->algorithm = NGX_RATELIMIT_TOKEN_BUCKET;
    spec->period_us = rnd(8) ? periods[rnd(6)] * 1000000
                             : rnd_log(NGX_RATELIMIT_MAX_PERIOD_US);
    spec->tokens = rnd(4) ? rnd_log(1000) : rnd_log(NGX_RATELIMIT_MAX_TOKENS);
    spec->capacity = rnd(2) ? spec->tokens
                     : rnd(2) ? rnd_log(50)
                              : rnd_log(NGX_RATELIMIT_MAX_TOKENS);
}


static inline void
random_window(ngx_ratelimit_spec_t *spec)
{
    static const uint64_t  periods[] = { 1, 2, 10, 60, 61, 86400 };

    spec->tokens = rnd(8) ? rnd_log(100) : rnd_log(NGX_RATELIMIT_MAX_TOKENS);

    if (spec->algorithm == NGX_RATELIMIT_FIXED_WINDOW && rnd(2)) {
        spec->calendar = 1 + rnd(2);
        return;
    }

    spec->period_us = rnd(8) ? periods[rnd(6)] * 1000000
                             : rnd_log(NGX_RATELIMIT_MAX_PERIOD_US);
}


static inline void
random_limit(counter_t *counter)
{
    ngx_ratelimit_spec_t  *spec;

    spec = &counter->spec;

    do {
        memset(spec, 0, sizeof(*spec));

        if (counter->kind == 't') {
            random_bucket(spec);

        } else {
            spec->algorithm = (counter->kind == 'f')
                              ? NGX_RATELIMIT_FIXED_WINDOW
                              : NGX_RATELIMIT_SLIDING_WINDOW;
            random_window(spec);
        }
    } while (ngx_ratelimit_limit_init(&counter->limit, spec) != NULL);
}

#endif /* COUNTER_H_INCLUDED */

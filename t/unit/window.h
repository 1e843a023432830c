/* What the tests of windows share: random limits, and counters with a past. */

#ifndef WINDOW_H_INCLUDED
#define WINDOW_H_INCLUDED

#include "counter.h"

#define NOW     ((uint64_t) 1800000000000000)

#define ROUNDS  2000
#define TAKES   200    /* of one round */

static const ngx_rl_algorithm_e  algorithms[] = {
    NGX_RL_FIXED_WINDOW,
    NGX_RL_SLIDING_WINDOW
};


/* member by member: what pads a state may differ */
static inline void
assert_same(const window_t *one, const window_t *two)
{
    assert_true(one->fresh_us == two->fresh_us);
    assert_int_equal(one->count, two->count);
    assert_int_equal(one->before, two->before);
    assert_int_equal(one->code, two->code);
}


static inline limit_t
random_limit(ngx_rl_algorithm_e algorithm)
{
    limit_t  limit;

    static const uint64_t  periods[] = {
        1, 999, 1000, 1100, 2500, SECOND, 60 * SECOND, DAY, 366 * DAY };

    if (algorithm == NGX_RL_FIXED_WINDOW && rnd(4) == 0) {
        ngx_rl_spec_t spec = { 0 };
        spec.algorithm = algorithm;
        spec.calendar = 1 + rnd(3);
        spec.month_day = rnd(32);
        spec.tz = zone_random();
        spec.tokens = 1 + rnd(30);
        assert_null(ngx_rl_limit_init(&limit, &spec));

        return limit;
    }

    return limit_of(algorithm, 1 + rnd(rnd(8) ? 30 : 100000), periods[rnd(9)]);
}


static inline answer_t
take(window_t *w, const limit_t *limit, uint64_t now, uint32_t cost,
    uint32_t want)
{
    answer_t answer = state_take(w, limit, now, cost, want);

    assert_true(w->fresh_us < (uint64_t) 1 << 52);
    assert_true(w->count <= limit->capacity || answer.granted == 0);
    assert_true(answer.remaining <= limit->capacity);
    assert_true(answer.granted == 0 || answer.retry_us == 0);

    return answer;
}


/* The length of the window that now lies in. */
static inline uint64_t
length(const limit_t *limit, uint64_t now)
{
    if (limit->algorithm == NGX_RL_FIXED_WINDOW) {
        return window_left(limit, now) + window_passed(limit, now);
    }

    return limit->window_us;
}


static inline uint64_t
start(const limit_t *limit, uint64_t now)
{
    if (limit->algorithm == NGX_RL_FIXED_WINDOW) {
        return now - window_passed(limit, now);
    }

    return now - now % limit->window_us;
}


/* Now and then a few at once, across several windows, often at their edges. */
static inline uint64_t
later(const limit_t *limit, uint64_t now)
{
    uint64_t len = length(limit, now);
    uint64_t edge = start(limit, now) + len;

    switch (rnd(8)) {

    case 0: case 1: case 2:
        return now;

    case 3: case 4:
        return now + rnd(len / 4 + 1);

    case 5:
        return now + rnd(2 * len + 1);

    case 6:
        return edge - 1;

    default:
        return edge;
    }
}


/* A counter with a past; *now becomes its time. */
static inline window_t
random_counter(const limit_t *limit, uint64_t *now)
{
    window_t w = { 0 };
    unsigned n = rnd(12);

    for (unsigned i = 0; i < n; i++) {
        (void) take(&w, limit, *now, 0, 1 + rnd(limit->capacity));

        *now = later(limit, *now);
    }

    return w;
}

#endif /* WINDOW_H_INCLUDED */

/*
 * Fixed and sliding windows by their properties: never too much in a window,
 * retry and reset to the microsecond, limits that change, clocks that step,
 * the calendar against the C library's. SEED in the environment chooses other
 * random schedules.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "ngx_ratelimit_window.h"

#define NOW     ((uint64_t) 1800000000000000)
#define SECOND  ((uint64_t) 1000000)
#define DAY     (86400 * SECOND)
#define LOOK    NGX_RATELIMIT_LOOK

#define ROUNDS  2000
#define TAKES   200    /* of one round */

typedef ngx_ratelimit_limit_t   limit_t;
typedef ngx_ratelimit_window_t  window_t;
typedef ngx_ratelimit_answer_t  answer_t;

static uint64_t  seed;

static const ngx_ratelimit_algorithm_e  algorithms[] = {
    NGX_RATELIMIT_FIXED_WINDOW,
    NGX_RATELIMIT_SLIDING_WINDOW
};


static uint64_t
rnd(uint64_t n)
{
    /* xorshift64*, and the seed is never 0 */

    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;

    return (seed * 0x2545f4914f6cdd1d >> 11) % n;
}


static limit_t
limit_of(ngx_ratelimit_algorithm_e algorithm, uint64_t tokens,
    uint64_t period_us)
{
    limit_t               limit;
    ngx_ratelimit_spec_t  spec;

    memset(&spec, 0, sizeof(spec));
    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = period_us;

    assert_null(ngx_ratelimit_limit_init(&limit, &spec));

    return limit;
}


static limit_t
limit_of_calendar(ngx_ratelimit_calendar_e calendar, uint64_t tokens)
{
    limit_t               limit;
    ngx_ratelimit_spec_t  spec;

    memset(&spec, 0, sizeof(spec));
    spec.algorithm = NGX_RATELIMIT_FIXED_WINDOW;
    spec.calendar = calendar;
    spec.tokens = tokens;

    assert_null(ngx_ratelimit_limit_init(&limit, &spec));

    return limit;
}


static limit_t
random_limit(ngx_ratelimit_algorithm_e algorithm)
{
    static const uint64_t  periods[] = {
        1, 999, 1000, 1100, 2500, SECOND, 60 * SECOND, DAY, 366 * DAY
    };

    if (algorithm == NGX_RATELIMIT_FIXED_WINDOW && rnd(4) == 0) {
        return limit_of_calendar(1 + rnd(2), 1 + rnd(30));
    }

    return limit_of(algorithm, 1 + rnd(rnd(8) ? 30 : 100000),
                    periods[rnd(9)]);
}


/* The state's clock and the wall clock are the same one here. */

static answer_t
take(window_t *w, const limit_t *limit, uint64_t now, uint32_t cost,
    uint32_t want)
{
    answer_t  answer;

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        ngx_ratelimit_fixed_window_take(w, limit, now,
                                ngx_ratelimit_fixed_window_left(limit, now),
                                cost, want, &answer);
    } else {
        ngx_ratelimit_sliding_window_take(w, limit, now, cost, want, &answer);
    }

    assert_true(w->fresh_us < (uint64_t) 1 << 52);
    assert_true(w->count <= limit->capacity || answer.granted == 0);
    assert_true(answer.remaining <= limit->capacity);
    assert_true(answer.granted == 0 || answer.retry_us == 0);

    return answer;
}


static void
give(window_t *w, const limit_t *limit, uint64_t now, uint64_t taken,
    uint32_t tokens)
{
    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        ngx_ratelimit_fixed_window_give(w, limit, now,
                                ngx_ratelimit_fixed_window_passed(limit, now),
                                taken, tokens);
    } else {
        ngx_ratelimit_sliding_window_give(w, limit, now, taken, tokens);
    }
}


/* The length of the window that now lies in. */

static uint64_t
length(const limit_t *limit, uint64_t now)
{
    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        return ngx_ratelimit_fixed_window_left(limit, now)
               + ngx_ratelimit_fixed_window_passed(limit, now);
    }

    return limit->window_us;
}


static uint64_t
start(const limit_t *limit, uint64_t now)
{
    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        return now - ngx_ratelimit_fixed_window_passed(limit, now);
    }

    return now - now % limit->window_us;
}


/* Now and then a few at once, across several windows, often at their edges. */

static uint64_t
later(const limit_t *limit, uint64_t now)
{
    uint64_t  len, edge;

    len = length(limit, now);
    edge = start(limit, now) + len;

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

static window_t
random_counter(const limit_t *limit, uint64_t *now)
{
    unsigned  i, n;
    window_t  w;

    memset(&w, 0, sizeof(w));
    n = rnd(12);

    for (i = 0; i < n; i++) {
        (void) take(&w, limit, *now, 0, 1 + rnd(limit->capacity));

        *now = later(limit, *now);
    }

    return w;
}


static void
test_months(void **state)
{
    int        year, month;
    limit_t    limit;
    uint64_t   begin, end, at;
    unsigned   i;
    struct tm  tm;

    (void) state;

    limit = limit_of_calendar(NGX_RATELIMIT_CALENDAR_MONTH, 10);

    for (year = 1970; year < 2405; year++) {
        for (month = 0; month < 12; month++) {

            memset(&tm, 0, sizeof(tm));
            tm.tm_year = year - 1900;
            tm.tm_mon = month;
            tm.tm_mday = 1;
            begin = timegm(&tm) * SECOND;

            memset(&tm, 0, sizeof(tm));
            tm.tm_year = year - 1900 + month / 11;
            tm.tm_mon = (month + 1) % 12;
            tm.tm_mday = 1;
            end = timegm(&tm) * SECOND;

            for (i = 0; i < 6; i++) {
                at = (i == 0) ? begin
                     : (i == 1) ? end - 1
                     : (i == 2) ? end - DAY : begin + rnd(end - begin);

                assert_true(ngx_ratelimit_fixed_window_left(&limit, at)
                            == end - at);
                assert_true(ngx_ratelimit_fixed_window_passed(&limit, at)
                            == at - begin);
            }
        }
    }
}


static void
test_days_and_spans(void **state)
{
    time_t     t;
    limit_t    day, span;
    uint64_t   at, window_us;
    unsigned   i;
    struct tm  tm;

    (void) state;

    day = limit_of_calendar(NGX_RATELIMIT_CALENDAR_DAY, 10);

    for (i = 0; i < 100000; i++) {
        at = rnd((uint64_t) 1 << 51);

        t = at / SECOND;
        gmtime_r(&t, &tm);

        assert_true(ngx_ratelimit_fixed_window_passed(&day, at)
                    == ((tm.tm_hour * 60 + tm.tm_min) * 60 + tm.tm_sec)
                       * SECOND + at % SECOND);
        assert_true(ngx_ratelimit_fixed_window_left(&day, at)
                    == DAY - ngx_ratelimit_fixed_window_passed(&day, at));

        window_us = 1 + rnd(366 * DAY);
        span = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 1, window_us);

        assert_true(ngx_ratelimit_fixed_window_left(&span, at)
                    == (at / window_us + 1) * window_us - at);
        assert_true(ngx_ratelimit_fixed_window_passed(&span, at)
                    == at % window_us);
    }
}


/* Exactly what the window has left: granted when it fits, and never more. */

static void
test_fixed_exact(void **state)
{
    limit_t   limit;
    window_t  w;
    answer_t  answer;
    uint32_t  used, cost;
    uint64_t  now, next, taken;
    unsigned  i, k;

    (void) state;

    for (i = 0; i < ROUNDS; i++) {
        limit = random_limit(NGX_RATELIMIT_FIXED_WINDOW);
        memset(&w, 0, sizeof(w));
        used = 0;
        now = NOW + rnd(400 * DAY);
        taken = now;

        for (k = 0; k < TAKES; k++) {
            next = later(&limit, now);

            if (start(&limit, next) != start(&limit, now)) {
                used = 0;
            }

            now = next;

            if (rnd(4) == 0) {
                give(&w, &limit, now, taken, 1);
                used -= (used && taken >= start(&limit, now));
            }

            cost = rnd(limit.capacity / 4 + 2);
            answer = take(&w, &limit, now, cost, 0);

            if (used + cost <= limit.capacity) {
                assert_int_equal(answer.granted, cost);
                used += cost;
                taken = cost ? now : taken;

            } else {
                assert_int_equal(answer.granted, 0);
                assert_true(answer.retry_us > 0);
            }

            assert_int_equal(answer.remaining, limit.capacity - used);
            assert_true(answer.reset_us
                        == (used ? start(&limit, now) + length(&limit, now)
                                   - now : 0));
        }
    }
}


/*
 * By the formula, from what each window has granted; never more than the limit
 * in an aligned window, never more than twice that in any.
 */
static void
test_sliding_bounds(void **state)
{
    limit_t   limit;
    window_t  w;
    answer_t  answer;
    uint64_t  now, next, window_us, count, before, used, left_ms, window_ms;
    uint64_t  at[TAKES], any;
    uint32_t  granted[TAKES], want;
    unsigned  i, k, oldest;

    (void) state;

    for (i = 0; i < ROUNDS; i++) {
        limit = random_limit(NGX_RATELIMIT_SLIDING_WINDOW);
        window_us = limit.window_us;
        window_ms = (window_us + 999) / 1000;
        memset(&w, 0, sizeof(w));
        count = before = any = 0;
        oldest = 0;
        now = NOW + rnd(400 * DAY);

        for (k = 0; k < TAKES; k++) {
            next = later(&limit, now);

            if (next / window_us != now / window_us) {
                before = (next / window_us == now / window_us + 1) ? count : 0;
                count = 0;
            }

            now = next;
            left_ms = (window_us - now % window_us + 999) / 1000;
            used = count + (before * left_ms + window_ms - 1) / window_ms;

            want = rnd(limit.capacity + 1);
            answer = take(&w, &limit, now, 0, want);

            assert_true(used <= limit.capacity);
            assert_int_equal(answer.granted, want < limit.capacity - used
                                             ? want : limit.capacity - used);
            count += answer.granted;
            assert_int_equal(answer.remaining,
                             limit.capacity - used - answer.granted);
            assert_true(count <= limit.capacity);

            at[k] = now;
            granted[k] = answer.granted;
            any += answer.granted;

            while (at[oldest] + window_us <= now) {
                any -= granted[oldest++];
            }

            assert_true(any <= 2 * (uint64_t) limit.capacity);
        }
    }
}


static void
test_retry_exact(void **state)
{
    limit_t   limit;
    window_t  w, copy;
    answer_t  answer;
    uint32_t  cost;
    uint64_t  now;
    unsigned  i, a, denied;

    (void) state;

    for (a = 0; a < 2; a++) {
        for (i = 0, denied = 0; i < 50 * ROUNDS; i++) {
            limit = random_limit(algorithms[a]);
            now = NOW + rnd(400 * DAY);
            w = random_counter(&limit, &now);
            cost = 1 + rnd(limit.capacity);
            answer = take(&w, &limit, now, cost, 0);

            if (answer.granted) {
                continue;
            }

            denied++;
            assert_true(answer.retry_us <= 2 * limit.window_us);

            copy = w;
            assert_int_equal(take(&copy, &limit, now + answer.retry_us - 1,
                                  cost, 0).granted, 0);
            copy = w;
            assert_int_equal(take(&copy, &limit, now + answer.retry_us, cost,
                                  0).granted, cost);

            /* as a client is told it, in whole seconds */

            assert_int_equal(take(&w, &limit, now + (answer.retry_us + SECOND
                                                     - 1) / SECOND * SECOND,
                                  cost, 0).granted, cost);
        }

        assert_true(denied > 5 * ROUNDS);
    }
}


static void
test_reset_exact(void **state)
{
    limit_t   limit;
    window_t  w, copy;
    uint64_t  now, reset_us;
    unsigned  i, a, used;

    (void) state;

    for (a = 0; a < 2; a++) {
        for (i = 0, used = 0; i < 10 * ROUNDS; i++) {
            limit = random_limit(algorithms[a]);
            now = NOW + rnd(400 * DAY);
            w = random_counter(&limit, &now);
            reset_us = take(&w, &limit, now, 0, 0).reset_us;

            copy = w;
            assert_int_equal(take(&copy, &limit, now + reset_us, 0,
                                  0).remaining, limit.capacity);

            if (reset_us) {
                used++;
                assert_true(take(&w, &limit, now + reset_us - 1, 0,
                                 0).remaining < limit.capacity);
            }
        }

        assert_true(used > ROUNDS);
    }
}


/* Whatever the limit becomes, what was used stays used. */

static void
test_limit_change(void **state)
{
    limit_t   old, limit;
    window_t  w;
    answer_t  answer;
    uint32_t  used, left;
    uint64_t  now;
    unsigned  i, a;

    (void) state;

    for (a = 0; a < 2; a++) {
        for (i = 0; i < 20 * ROUNDS; i++) {
            old = random_limit(algorithms[a]);
            limit = random_limit(algorithms[a]);

            if (rnd(4) == 0) {
                limit = old;
                limit.capacity = 1 + rnd(2 * old.capacity);
            }

            now = NOW + rnd(400 * DAY);
            w = random_counter(&old, &now);

            if (rnd(2)) {
                (void) take(&w, &old, now, 0, old.capacity);
            }

            answer = take(&w, &old, now, 0, 0);
            used = old.capacity - answer.remaining;
            left = (used < limit.capacity) ? limit.capacity - used : 0;

            answer = take(&w, &limit, now, 1, 0);

            if (a == 0 || limit.code == old.code) {
                assert_int_equal(answer.remaining + answer.granted, left);

            } else {
                assert_true(answer.remaining + answer.granted <= left);

                /* the code's 1/64, for each of two windows, and rounding */

                assert_true(old.window_us < SECOND
                            || answer.remaining + answer.granted
                               + old.capacity / 32 + 2 >= left);
            }

            /* and not for longer than the new windows would count it */

            assert_true(answer.reset_us <= 2 * limit.window_us);
            assert_int_equal(take(&w, &limit, now + 2 * limit.window_us, 0,
                                  0).remaining, limit.capacity);
        }
    }
}


static void
test_limit_change_examples(void **state)
{
    limit_t   minute, hour, odd;
    window_t  w;
    answer_t  answer;
    uint64_t  now;

    (void) state;

    minute = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 10, 60 * SECOND);
    hour = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 100, 3600 * SECOND);
    now = NOW + 20 * SECOND;

    assert_int_equal(NOW % DAY, 8 * 3600 * SECOND);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &minute, now, 10, 0).remaining, 0);

    answer = take(&w, &hour, now + SECOND, 1, 0);
    assert_int_equal(answer.remaining, 89);
    assert_true(answer.reset_us == 3600 * SECOND - 21 * SECOND);

    answer = take(&w, &minute, now + 2 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_true(answer.retry_us == 38 * SECOND);

    /* 60 s to 60.2 s is the same code: the end stays where it is */

    odd = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 12, 60200000);
    assert_int_equal(odd.code, minute.code);
    answer = take(&w, &odd, now + 3 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 1);
    assert_true(answer.reset_us == 37 * SECOND);

    /* sliding: half of 40, and one for the code, which says 59.8 s */

    minute = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 40, 60 * SECOND);
    hour = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 40, 3600 * SECOND);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &minute, NOW, 40, 0);
    assert_int_equal(take(&w, &minute, NOW + 90 * SECOND, 0, 0).remaining, 20);
    assert_int_equal(take(&w, &hour, NOW + 90 * SECOND, 0, 0).remaining, 19);
    assert_int_equal(w.count, 21);
    assert_int_equal(w.before, 0);
    assert_true(w.fresh_us == NOW + 7200 * SECOND);

    /* the same code, other multiples */

    odd = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 40, 60200000);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &minute, NOW, 40, 0);
    assert_int_equal(take(&w, &odd, NOW + 1, 1, 0).granted, 0);
    assert_int_equal(w.fresh_us % odd.window_us, 0);
}


static void
test_clock_steps(void **state)
{
    limit_t   limit;
    window_t  w, spent;
    answer_t  answer;
    uint64_t  left_us;

    (void) state;

    /* a wall clock that jumps opens no other window */

    limit = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 10, 60 * SECOND);
    memset(&w, 0, sizeof(w));

    for (left_us = 1; left_us < 60 * SECOND; left_us += 1234567) {
        ngx_ratelimit_fixed_window_take(&w, &limit, NOW, 60 * SECOND - left_us,
                                        0, 3, &answer);
    }

    assert_int_equal(answer.granted, 0);
    assert_true(w.fresh_us == NOW + 60 * SECOND - 1);

    /* a worker that is a little behind opens none either */

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 10, 60 * SECOND);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &limit, NOW, 10, 0);
    spent = w;

    answer = take(&w, &limit, NOW - 5000, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.remaining, 0);
    assert_true(answer.reset_us == 120 * SECOND + 5000);
    assert_memory_equal(&w, &spent, sizeof(w));
    assert_int_equal(take(&w, &limit, NOW - 5000 + answer.retry_us - 1, 1,
                          0).granted, 0);
    assert_int_equal(take(&w, &limit, NOW - 5000 + answer.retry_us, 1,
                          0).granted, 1);

    /* an hour back: as used as before, and for no longer than two windows */

    w = spent;
    answer = take(&w, &limit, NOW - 3600 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_true(answer.reset_us == 120 * SECOND);
    assert_true(w.fresh_us == NOW - 3480 * SECOND);

    limit = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 10, 60 * SECOND);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &limit, NOW, 10, 0);
    answer = take(&w, &limit, NOW - SECOND, 1, 0);
    assert_true(answer.retry_us == 61 * SECOND);
    answer = take(&w, &limit, NOW - 3590 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_true(answer.retry_us == 50 * SECOND);
    assert_true(w.fresh_us == NOW - 3540 * SECOND);

    /* far ahead: fresh, and no more than fresh */

    assert_int_equal(take(&w, &limit, NOW + 1000 * DAY, 0, 1000).granted, 10);
}


static void
test_give(void **state)
{
    limit_t   limit;
    window_t  w, copy;
    uint64_t  now;
    uint32_t  granted, left;
    unsigned  i, a;

    (void) state;

    for (a = 0; a < 2; a++) {
        for (i = 0; i < 20 * ROUNDS; i++) {
            limit = random_limit(algorithms[a]);
            now = NOW + rnd(400 * DAY);
            w = random_counter(&limit, &now);
            left = take(&w, &limit, now, 0, 0).remaining;

            copy = w;
            granted = take(&copy, &limit, now, 0, 1 + rnd(left + 1)).granted;
            give(&copy, &limit, now, now, granted);
            assert_int_equal(take(&copy, &limit, now, 0, 0).remaining, left);

            if (granted && w.fresh_us > now + limit.window_us) {
                assert_memory_equal(&copy, &w, sizeof(w));
            }

            give(&copy, &limit, now, now, UINT32_MAX);
            assert_true(take(&copy, &limit, now, 0, 0).remaining >= left);
        }
    }
}


static void
test_give_windows(void **state)
{
    limit_t   limit;
    window_t  w, spent, zero;
    uint64_t  march = (uint64_t) 1772323200 * SECOND;

    (void) state;

    memset(&zero, 0, sizeof(zero));

    /* one that has ended gets nothing of its successor's */

    limit = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 10, 60 * SECOND);
    w = zero;
    (void) take(&w, &limit, NOW - 1, 10, 0);
    (void) take(&w, &limit, NOW, 10, 0);
    spent = w;
    give(&w, &limit, NOW + SECOND, NOW - 1, 1);
    assert_memory_equal(&w, &spent, sizeof(w));
    give(&w, &limit, NOW + SECOND, NOW, 1);
    assert_int_equal(take(&w, &limit, NOW + SECOND, 0, 0).remaining, 1);
    give(&w, &limit, NOW + SECOND, NOW, 9);
    assert_memory_equal(&w, &zero, sizeof(w));
    give(&w, &limit, NOW + SECOND, NOW, 9);
    assert_memory_equal(&w, &zero, sizeof(w));

    /* the limit has changed since: nobody knows */

    w = spent;
    limit = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 10, 3600 * SECOND);
    give(&w, &limit, NOW + SECOND, NOW, 1);
    assert_memory_equal(&w, &spent, sizeof(w));

    /* 28 days of February before March: no 31 */

    limit = limit_of_calendar(NGX_RATELIMIT_CALENDAR_MONTH, 10);
    w = zero;
    (void) take(&w, &limit, march - 28 * DAY, 10, 0);
    spent = w;
    assert_true(w.fresh_us == march);
    give(&w, &limit, march - 28 * DAY + 5, march - 28 * DAY - 1, 1);
    assert_memory_equal(&w, &spent, sizeof(w));
    give(&w, &limit, march - 28 * DAY + 5, march - 28 * DAY, 1);
    assert_int_equal(take(&w, &limit, march - 1, 0, 0).remaining, 1);

    /* a clock that began less than a month ago */

    w = zero;
    w.fresh_us = 20 * DAY;
    w.count = 10;
    w.code = limit.code;
    ngx_ratelimit_fixed_window_give(&w, &limit, DAY, 12 * DAY, DAY - 1, 4);
    assert_int_equal(w.count, 6);

    /* sliding: to the window before as well, and to none before that */

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 10, 60 * SECOND);
    w = zero;
    (void) take(&w, &limit, NOW, 8, 0);
    (void) take(&w, &limit, NOW + 90 * SECOND, 2, 0);
    give(&w, &limit, NOW + 90 * SECOND, NOW - 1, 1);
    assert_int_equal(w.count, 2);
    assert_int_equal(w.before, 8);
    give(&w, &limit, NOW + 90 * SECOND, NOW + 60 * SECOND - 1, 3);
    assert_int_equal(w.count, 2);
    assert_int_equal(w.before, 5);
    give(&w, &limit, NOW + 90 * SECOND, NOW + 60 * SECOND, 1);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.before, 5);

    /* a window with nothing used is its predecessor's state */

    give(&w, &limit, NOW + 90 * SECOND, NOW + 60 * SECOND, 5);
    assert_int_equal(w.count, 5);
    assert_int_equal(w.before, 0);
    assert_true(w.fresh_us == NOW + 120 * SECOND);
    assert_int_equal(take(&w, &limit, NOW + 90 * SECOND, 0, 0).remaining, 7);
    give(&w, &limit, NOW + 90 * SECOND, NOW, 5);
    assert_memory_equal(&w, &zero, sizeof(w));
}


static void
test_cost_and_want(void **state)
{
    limit_t   limit;
    window_t  w, spent;
    answer_t  answer;
    unsigned  a;

    (void) state;

    for (a = 0; a < 2; a++) {
        limit = limit_of(algorithms[a], 10, 60 * SECOND);
        memset(&w, 0, sizeof(w));

        answer = take(&w, &limit, NOW, 0, 0);
        assert_int_equal(answer.remaining, 10);
        assert_int_equal(answer.reset_us, 0);
        assert_int_equal(w.code, 0);

        answer = take(&w, &limit, NOW, 11, 0);
        assert_true(answer.retry_us == NGX_RATELIMIT_NEVER);
        answer = take(&w, &limit, NOW, 11, LOOK);
        assert_true(answer.retry_us == NGX_RATELIMIT_NEVER);
        answer = take(&w, &limit, NOW, 10, LOOK);
        assert_int_equal(answer.granted, 0);
        assert_int_equal(answer.retry_us, 0);
        assert_int_equal(w.code, 0);

        assert_int_equal(take(&w, &limit, NOW, 2, 4).granted, 4);
        assert_int_equal(take(&w, &limit, NOW, 3, 1).granted, 3);
        assert_int_equal(take(&w, &limit, NOW, 0, LOOK - 1).granted, 3);

        spent = w;
        answer = take(&w, &limit, NOW, 0, 5);
        assert_int_equal(answer.granted, 0);
        assert_int_equal(answer.retry_us, 0);
        answer = take(&w, &limit, NOW, 1, LOOK);
        assert_true(answer.retry_us > 0);
        assert_memory_equal(&w, &spent, sizeof(w));
    }
}


static void
test_extremes(void **state)
{
    limit_t   limit;
    window_t  w;
    answer_t  answer;
    uint32_t  most = NGX_RATELIMIT_MAX_TOKENS;
    uint64_t  late = ((uint64_t) 1 << 51) - 1;
    uint64_t  longest = ((uint64_t) 1 << 23) * 1000;

    (void) state;

    /* the heaviest window, full, and then half over */

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, most, longest);
    late -= late % longest;
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, late - 1, most, 0).granted, most);
    answer = take(&w, &limit, late, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 1000);
    answer = take(&w, &limit, late + longest / 2, 1, 0);
    assert_int_equal(answer.remaining, most / 2 - 1);

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 284836, 366 * DAY);
    memset(&w, 0, sizeof(w));
    late = ((uint64_t) 1 << 51) - 1;
    assert_int_equal(take(&w, &limit, late, 284836, 0).granted, 284836);
    assert_true(take(&w, &limit, late, 1, 0).retry_us > 0);

    /* a window of a microsecond */

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 1, 1);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, NOW, 1, 0).granted, 1);
    assert_int_equal(take(&w, &limit, NOW + 1, 1, 0).retry_us, 1);
    assert_int_equal(take(&w, &limit, NOW + 2, 1, 0).granted, 1);

    limit = limit_of(NGX_RATELIMIT_FIXED_WINDOW, most, 366 * DAY);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, late, most, 0).granted, most);
    assert_int_equal(take(&w, &limit, late, 1, 0).remaining, 0);

    /* a clock that has just begun */

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 10, DAY);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, 0, 10, 0).granted, 10);
    give(&w, &limit, 0, 0, 4);
    assert_int_equal(take(&w, &limit, 1, 0, 0).remaining, 4);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_days_and_spans),
        cmocka_unit_test(test_fixed_exact),
        cmocka_unit_test(test_sliding_bounds),
        cmocka_unit_test(test_retry_exact),
        cmocka_unit_test(test_reset_exact),
        cmocka_unit_test(test_limit_change),
        cmocka_unit_test(test_limit_change_examples),
        cmocka_unit_test(test_clock_steps),
        cmocka_unit_test(test_give),
        cmocka_unit_test(test_give_windows),
        cmocka_unit_test(test_cost_and_want),
        cmocka_unit_test(test_extremes),
    };

    seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 1;
    seed = seed ? seed : 1;
    print_message("SEED=%llu\n", (unsigned long long) seed);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

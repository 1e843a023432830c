/*
 * The token bucket by its properties: never too many tokens in any window,
 * retry and remaining to the microsecond and the token, limits that change,
 * clocks that step. SEED in the environment chooses other random rates.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ngx_ratelimit_limit.h"

#define NOW     ((uint64_t) 1800000000000000)
#define SECOND  ((uint64_t) 1000000)
#define DAY     (86400 * SECOND)

typedef unsigned __int128             wide_t;
typedef ngx_ratelimit_rate_t          rate_t;
typedef ngx_ratelimit_token_bucket_t  bucket_t;
typedef ngx_ratelimit_answer_t        answer_t;

static uint64_t  seed;


static uint64_t
rnd(uint64_t n)
{
    /* xorshift64*, and the seed is never 0 */

    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;

    return (seed * 0x2545f4914f6cdd1d >> 11) % n;
}


static rate_t
rate_of(uint64_t tokens, uint64_t period_us, uint64_t capacity)
{
    rate_t  rate;

    assert_int_equal(ngx_ratelimit_rate_init(&rate, tokens, period_us,
                                             capacity), 0);
    return rate;
}


static rate_t
random_rate(uint64_t max_capacity)
{
    int     rc;
    rate_t  rate;

    do {
        rc = ngx_ratelimit_rate_init(&rate,
                1 + rnd((uint64_t) 1 << rnd(31)),
                1 + rnd(NGX_RATELIMIT_MAX_PERIOD_US >> rnd(44)),
                1 + rnd(max_capacity));
    } while (rc != 0);

    return rate;
}


static answer_t
take(bucket_t *tb, const rate_t *rate, uint64_t now, uint32_t cost,
    uint32_t want)
{
    answer_t  answer;

    ngx_ratelimit_token_bucket_take(tb, rate, now, cost, want, &answer);

    return answer;
}


static void
test_rate_range(void **state)
{
    rate_t    rate;
    uint64_t  most = NGX_RATELIMIT_MAX_TOKENS;

    (void) state;

    assert_int_equal(ngx_ratelimit_rate_init(&rate, 0, 1, 1), -1);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, 0, 1), -1);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, 1, 0), -1);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, most + 1, 1, 1), -1);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, 1, most + 1), -1);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, 366 * DAY + 1, 1), -1);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, 366 * DAY, 1), 0);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, most, 366 * DAY, most), 0);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, most, 1, 1), 0);

    /* a span of exactly 2^50 microseconds, and the next capacity */

    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, 1 << 20, most), 0);
    assert_true(rate.span_us == NGX_RATELIMIT_MAX_SPAN_US);
    assert_int_equal(ngx_ratelimit_rate_init(&rate, 1, (1 << 20) + 1, most),
                     -1);
}


static void
test_rate_exact(void **state)
{
    rate_t    rate;
    wide_t    wanted, got;
    uint64_t  tokens, period;
    unsigned  i;

    (void) state;

    rate = rate_of(100, 60 * SECOND, 100);
    assert_int_equal(rate.period_us, 600000);
    assert_int_equal(rate.scale, 1);
    assert_int_equal(rate.span_us, 60 * SECOND);

    rate = rate_of(7, SECOND, 3);
    assert_int_equal(rate.step_us, 142857);
    assert_int_equal(rate.step_frac, 1);
    assert_int_equal(rate.span_us, 428571);
    assert_int_equal(rate.span_frac, 3);

    for (i = 0; i < 100000; i++) {
        tokens = 1 + rnd((uint64_t) 1 << rnd(31));
        period = 1 + rnd(NGX_RATELIMIT_MAX_PERIOD_US >> rnd(44));

        if (ngx_ratelimit_rate_init(&rate, tokens, period, 1) != 0) {
            continue;
        }

        assert_in_range(rate.scale, 1, NGX_RATELIMIT_MAX_SCALE);

        /* a token takes 0 to 2^-22 us longer; both sides times scale */

        got = (wide_t) rate.period_us * tokens;
        wanted = (wide_t) period * rate.scale;
        assert_true(got >= wanted);
        assert_true((got - wanted) * NGX_RATELIMIT_MAX_SCALE
                    <= (wide_t) tokens * rate.scale);

        if (tokens <= NGX_RATELIMIT_MAX_SCALE) {
            assert_true(got == wanted);
        }
    }
}


static void
test_span_code(void **state)
{
    rate_t    rate;
    uint64_t  low, exponent;
    unsigned  i;

    (void) state;

    for (i = 0; i < 100000; i++) {
        rate = random_rate(NGX_RATELIMIT_MAX_TOKENS);
        assert_in_range(rate.span_code, 1, 4095);

        low = rate.span_code & 63;
        exponent = rate.span_code >> 6;

        if (exponent) {
            low = (low + 64) << (exponent - 1);
        }

        if (rate.span_us) {
            assert_true(low <= rate.span_us);
            assert_true(rate.span_us - low <= low / 64);
        }
    }
}


/*
 * Grants inside each window of one sequence: never more than the capacity and
 * what the time between refills. skew_us: how far the clock jumps about.
 */
static void
check_windows(uint64_t skew_us)
{
    rate_t    rate;
    wide_t    sum, allowed;
    bucket_t  tb;
    uint64_t  now, at[150], got[150];
    unsigned  round, i, j;

    for (round = 0; round < 200; round++) {
        rate = random_rate(40);
        memset(&tb, 0, sizeof(tb));
        now = NOW;

        for (i = 0; i < 150; i++) {
            now += rnd(3) ? rnd(rate.step_us + 2) : rnd(4);
            at[i] = now;
            got[i] = take(&tb, &rate, now - rnd(skew_us + 1), rnd(4),
                          rnd(8)).granted;
        }

        for (i = 0; i < 150; i++) {
            sum = 0;

            for (j = i; j < 150; j++) {
                sum += got[j];
                allowed = (wide_t) rate.capacity * rate.period_us
                          + (wide_t) (at[j] - at[i] + skew_us) * rate.scale;
                assert_true(sum * rate.period_us <= allowed);
            }
        }
    }
}


static void
test_windows(void **state)
{
    (void) state;
    check_windows(0);
    check_windows(5000);
}


/* A saturated bucket gives its whole rate: nothing is lost to rounding. */

static void
test_throughput(void **state)
{
    rate_t    rate;
    bucket_t  tb;
    uint64_t  granted, i;

    (void) state;

    rate = rate_of(7, 60 * SECOND, 3);
    memset(&tb, 0, sizeof(tb));
    granted = 0;

    for (i = 0; i <= 60000; i++) {
        granted += take(&tb, &rate, NOW + i * 10000, 1, 0).granted;
    }

    assert_int_equal(granted, 70 + 3);
}


/* A bucket somewhere between full and empty */

static bucket_t
random_bucket(const rate_t *rate)
{
    bucket_t  tb;

    memset(&tb, 0, sizeof(tb));
    (void) take(&tb, rate, NOW - rnd(rate->span_us + 1),
                1 + rnd(rate->capacity), rnd(rate->capacity + 1));
    return tb;
}


static void
test_retry_exact(void **state)
{
    rate_t    rate;
    bucket_t  tb, copy;
    answer_t  answer;
    uint32_t  cost;
    unsigned  i, denied;

    (void) state;

    for (i = denied = 0; i < 100000; i++) {
        rate = random_rate((uint64_t) 1 << rnd(31));
        tb = random_bucket(&rate);
        cost = 1 + rnd(rate.capacity);

        copy = tb;
        answer = take(&copy, &rate, NOW, cost, 0);

        if (answer.granted) {
            assert_int_equal(answer.granted, cost);
            assert_int_equal(answer.retry_us, 0);
            continue;
        }

        denied++;
        assert_memory_equal(&copy, &tb, sizeof(tb));
        assert_true(answer.retry_us > 0);
        assert_int_equal(take(&copy, &rate, NOW + answer.retry_us - 1, cost,
                              0).granted, 0);
        assert_int_equal(take(&copy, &rate, NOW + answer.retry_us, cost,
                              0).granted, cost);
    }

    assert_in_range(denied, 1000, 99000);

    rate = rate_of(10, SECOND, 10);
    memset(&tb, 0, sizeof(tb));
    assert_true(take(&tb, &rate, NOW, 11, 0).retry_us == NGX_RATELIMIT_NEVER);
    assert_int_equal(take(&tb, &rate, NOW, 10, 0).granted, 10);
}


static void
test_reset_exact(void **state)
{
    rate_t    rate;
    bucket_t  tb;
    answer_t  answer;
    uint64_t  full;
    unsigned  i;

    (void) state;

    for (i = 0; i < 20000; i++) {
        rate = random_rate((uint64_t) 1 << rnd(31));
        tb = random_bucket(&rate);
        answer = take(&tb, &rate, NOW, 0, 0);

        full = NOW + answer.reset_us;

        assert_int_equal(take(&tb, &rate, full, 0, 0).remaining,
                         rate.capacity);
        assert_int_equal(take(&tb, &rate, full, 0, 0).reset_us, 0);

        if (answer.reset_us) {
            assert_true(take(&tb, &rate, full - 1, 0, 0).reset_us > 0);
        }
    }
}


static void
test_remaining_exact(void **state)
{
    rate_t    rate;
    bucket_t  tb, copy;
    answer_t  answer;
    uint32_t  n, remaining, want;
    unsigned  i;

    (void) state;

    for (i = 0; i < 5000; i++) {
        rate = random_rate((uint64_t) 1 << rnd(10));
        tb = random_bucket(&rate);
        remaining = take(&tb, &rate, NOW, 0, 0).remaining;

        copy = tb;

        for (n = 0; n <= rate.capacity; n++) {
            if (take(&copy, &rate, NOW, 1, 0).granted == 0) {
                break;
            }
        }

        assert_int_equal(remaining, n);

        /* want is cut to what there is, or taken whole */

        if (remaining) {
            want = 1 + rnd(2 * rate.capacity);
            copy = tb;
            answer = take(&copy, &rate, NOW, 1, want);
            n = answer.granted;
            assert_int_equal(n, want < remaining ? want : remaining);
            assert_int_equal(answer.remaining, remaining - n);
            assert_int_equal(take(&copy, &rate, NOW, 0, 0).remaining,
                             remaining - n);
        }
    }
}


static void
test_give(void **state)
{
    rate_t    rate;
    bucket_t  tb, copy;
    uint32_t  granted;
    unsigned  i;

    (void) state;

    for (i = 0; i < 50000; i++) {
        rate = random_rate((uint64_t) 1 << rnd(31));
        tb = random_bucket(&rate);

        /* a bucket that time has filled is written with its new instant */

        if (tb.tat_us < NOW) {
            continue;
        }

        copy = tb;
        granted = take(&copy, &rate, NOW, 0, 1 + rnd(rate.capacity)).granted;
        ngx_ratelimit_token_bucket_give(&copy, &rate, NOW, NOW, granted);
        assert_memory_equal(&copy, &tb, sizeof(tb));

        ngx_ratelimit_token_bucket_give(&copy, &rate, NOW, NOW,
                                        UINT32_MAX);
        assert_int_equal(take(&copy, &rate, NOW, 0, 0).remaining,
                         rate.capacity);
        assert_int_equal(take(&copy, &rate, NOW, 0,
                              NGX_RATELIMIT_CHARGE - 1).granted, rate.capacity);
    }

    /* more than was ever there, where the product would be 2^64 */

    rate = rate_of(1, (uint64_t) 1 << 34, 10);
    memset(&tb, 0, sizeof(tb));
    (void) take(&tb, &rate, NOW, 10, 0);
    ngx_ratelimit_token_bucket_give(&tb, &rate, NOW, NOW, 1 << 30);
    assert_int_equal(take(&tb, &rate, NOW, 0, 0).remaining, 10);
}


/* What was taken before the bucket could fill again is nobody's any more. */
static void
test_give_late(void **state)
{
    bucket_t  tb, full;
    rate_t    rate;

    (void) state;

    rate = rate_of(10, SECOND, 10);

    memset(&full, 0, sizeof(full));
    (void) take(&full, &rate, NOW, 10, 0);

    /* a microsecond more than a full second ago, and not so long ago */

    tb = full;
    ngx_ratelimit_token_bucket_give(&tb, &rate, NOW, NOW - SECOND - 1, 9);
    assert_memory_equal(&tb, &full, sizeof(tb));

    ngx_ratelimit_token_bucket_give(&tb, &rate, NOW, NOW - SECOND, 9);
    assert_int_equal(take(&tb, &rate, NOW, 0, 0).remaining, 9);

    /* another worker's clock is ahead */

    tb = full;
    ngx_ratelimit_token_bucket_give(&tb, &rate, NOW, NOW + 5000, 9);
    assert_int_equal(take(&tb, &rate, NOW, 0, 0).remaining, 9);
}


static void
test_extremes(void **state)
{
    rate_t    rate;
    bucket_t  tb;
    answer_t  answer;
    uint32_t  most = NGX_RATELIMIT_MAX_TOKENS;
    uint64_t  late = ((uint64_t) 1 << 51) - 1;

    (void) state;

    rate = rate_of(most, 366 * DAY, most);
    memset(&tb, 0, sizeof(tb));
    assert_int_equal(take(&tb, &rate, late, most, 0).granted, most);
    assert_true(tb.tat_us < (uint64_t) 1 << 52);

    answer = take(&tb, &rate, late, most, 0);
    assert_true(answer.retry_us == 366 * DAY);
    answer = take(&tb, &rate, late, 1, 0);
    assert_true(answer.retry_us == 366 * DAY / most + 1);

    rate = rate_of(1, 366 * DAY, 1);
    memset(&tb, 0, sizeof(tb));
    assert_int_equal(take(&tb, &rate, 0, 1, 0).granted, 1);
    answer = take(&tb, &rate, 366 * DAY - 1, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 1);
    assert_int_equal(take(&tb, &rate, 366 * DAY, 1, 0).granted, 1);

    /* tokens far below a microsecond */

    rate = rate_of(most, SECOND, 1);
    memset(&tb, 0, sizeof(tb));
    assert_int_equal(take(&tb, &rate, NOW, 1, 0).granted, 1);
    assert_int_equal(take(&tb, &rate, NOW, 1, 0).retry_us, 1);
    assert_int_equal(take(&tb, &rate, NOW + 1, 1, 0).granted, 1);
}


static void
test_span_change(void **state)
{
    rate_t    before, after;
    double    share, got;
    bucket_t  tb, copy;
    answer_t  answer;
    unsigned  i;

    (void) state;

    for (i = 0; i < 50000; i++) {
        before = random_rate(1000);
        after = random_rate(1000);

        /* spent stays spent */

        memset(&tb, 0, sizeof(tb));
        (void) take(&tb, &before, NOW, before.capacity, 0);

        answer = take(&tb, &after, NOW, 1, 0);

        if (before.span_code != after.span_code) {
            assert_int_equal(answer.granted, 0);
            assert_int_equal(answer.remaining, 0);

            /* and the answer is true though nothing was taken */

            copy = tb;
            assert_int_equal(take(&copy, &after, NOW + answer.retry_us - 1, 1,
                                  0).granted, 0);
            assert_int_equal(take(&tb, &after, NOW + answer.retry_us, 1,
                                  0).granted, 1);
        }
    }

    /* a share stays the share, up to the code's 1/64 */

    before = rate_of(100, 60 * SECOND, 100);
    after = rate_of(7, 3600 * SECOND, 1000);
    memset(&tb, 0, sizeof(tb));
    (void) take(&tb, &before, NOW, 40, 0);
    (void) take(&tb, &after, NOW, 0, 0);

    share = 0.4;
    got = (double) (tb.tat_us - NOW) / (double) after.span_us;
    assert_true(got >= share && got <= share * (1 + 1.0 / 64) + 1e-9);

    /* fresh stays fresh */

    memset(&tb, 0, sizeof(tb));
    (void) take(&tb, &before, NOW, 40, 0);
    assert_int_equal(take(&tb, &after, NOW + 24 * SECOND + 1, 0, 0).remaining,
                     1000);

    /* a fraction of another scale under the same code rounds up */

    before = rate_of(7, SECOND, 7);
    after = rate_of(3, SECOND, 3);
    assert_int_equal(before.span_code, after.span_code);
    memset(&tb, 0, sizeof(tb));
    tb.tat_us = NOW;
    tb.tat_frac = 6;
    tb.span_code = before.span_code;
    assert_int_equal(take(&tb, &after, NOW, 1, 0).granted, 1);
    assert_int_equal(tb.tat_us, NOW + 333334);
    assert_int_equal(tb.tat_frac, 1);
}


static void
test_clock_steps(void **state)
{
    rate_t    rate;
    bucket_t  tb, empty;
    answer_t  answer;
    uint64_t  granted;
    unsigned  i;

    (void) state;

    rate = rate_of(100, SECOND, 100);
    memset(&tb, 0, sizeof(tb));
    assert_int_equal(take(&tb, &rate, NOW, 100, 0).granted, 100);
    empty = tb;

    /* two workers 5 ms apart: nothing is granted twice */

    for (i = 0, granted = 0; i < 1000; i++) {
        granted += take(&tb, &rate, NOW - 5000, 1, 0).granted;
        granted += take(&tb, &rate, NOW, 1, 0).granted;
    }

    assert_int_equal(granted, 0);
    assert_memory_equal(&tb, &empty, sizeof(tb));

    answer = take(&tb, &rate, NOW - 5000, 1, 0);
    assert_int_equal(answer.remaining, 0);
    assert_int_equal(answer.retry_us, 15000);
    assert_int_equal(answer.reset_us, SECOND + 5000);

    /* an hour back: empty from there, and full after one span */

    answer = take(&tb, &rate, NOW - 3600 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 10000);
    assert_int_equal(answer.reset_us, SECOND);
    assert_int_equal(take(&tb, &rate, NOW - 3599 * SECOND, 100, 0).granted,
                     100);

    /* the same through give, which may be the first to see it */

    tb = empty;
    ngx_ratelimit_token_bucket_give(&tb, &rate, NOW - 3600 * SECOND, NOW,
                                    30);
    assert_int_equal(take(&tb, &rate, NOW - 3600 * SECOND, 0, 0).remaining, 30);

    /* far ahead: full, and no more than full */

    tb = empty;
    assert_int_equal(take(&tb, &rate, NOW + 1000 * DAY, 1, 1000).granted, 100);
}


static void
test_used(void **state)
{
    uint32_t               i, used, last;
    ngx_ratelimit_limit_t  limit;

    (void) state;

    limit.capacity = 1000;
    last = 0;

    for (i = 0; i <= 1000; i++) {
        used = ngx_ratelimit_limit_used(&limit, 1000 - i);
        assert_true(used >= last);
        assert_true(i < 4 || used > 0);
        assert_int_equal(used == 255, i == 1000);
        last = used;
    }

    assert_int_equal(ngx_ratelimit_limit_used(&limit, 1000), 0);

    limit.capacity = NGX_RATELIMIT_MAX_TOKENS;
    assert_int_equal(ngx_ratelimit_limit_used(&limit, 1), 254);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_rate_range),
        cmocka_unit_test(test_rate_exact),
        cmocka_unit_test(test_span_code),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_throughput),
        cmocka_unit_test(test_retry_exact),
        cmocka_unit_test(test_reset_exact),
        cmocka_unit_test(test_remaining_exact),
        cmocka_unit_test(test_give),
        cmocka_unit_test(test_give_late),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_span_change),
        cmocka_unit_test(test_clock_steps),
        cmocka_unit_test(test_used),
    };

    seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 1;
    seed = seed ? seed : 1;
    print_message("SEED=%llu\n", (unsigned long long) seed);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

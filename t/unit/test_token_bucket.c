/*
 * The token bucket by its properties: never too many tokens in any window,
 * limits that change, clocks that step. What it shares with windows:
 * test_counters.c.
 */

#include "counter.h"

#define NOW     ((uint64_t) 1800000000000000)

typedef unsigned __int128             wide_t;
typedef ngx_rl_rate_t          rate_t;
typedef ngx_rl_token_bucket_t  bucket_t;

static rate_t
rate_of(uint64_t tokens, uint64_t period_us, uint64_t capacity)
{
    rate_t  rate;

    assert_int_equal(ngx_rl_rate_init(&rate, tokens, period_us, capacity), 0);
    return rate;
}


static rate_t
random_rate(uint64_t max_capacity)
{
    int     rc;
    rate_t  rate;

    do {
        rc = ngx_rl_rate_init(&rate, 1 + rnd((uint64_t) 1 << rnd(31)),
                              1 + rnd(NGX_RL_MAX_PERIOD_US >> rnd(44)),
                              1 + rnd(max_capacity));
    } while (rc != 0);

    return rate;
}


static answer_t
take(bucket_t *tb, const rate_t *rate, uint64_t now, uint32_t cost,
    uint32_t want)
{
    answer_t  answer;

    ngx_rl_token_bucket_take(tb, rate, now, cost, want, &answer);

    return answer;
}


static void
test_rate_range(void **state)
{
    rate_t  rate;

    enum { MOST = NGX_RL_MAX_TOKENS };

    static const struct {
        uint64_t  tokens, period_us, capacity;
        int       rc;
    } cases[] = {
        { 0, 1, 1, -1 }, { 1, 0, 1, -1 }, { 1, 1, 0, -1 }, { MOST + 1, 1, 1,
            -1 }, { 1, 1, MOST + 1, -1 }, { 1, 366 * DAY + 1, 1, -1 }, { 1,
            366 * DAY, 1, 0 }, { MOST, 366 * DAY, MOST, 0 }, { MOST, 1, 1, 0 },

        /* a span of more than 2^50 microseconds, and of exactly that */

        { 1, (1 << 20) + 1, MOST, -1 }, { 1, 1 << 20, MOST, 0 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(ngx_rl_rate_init(&rate, cases[i].tokens,
                                          cases[i].period_us,
                                          cases[i].capacity), cases[i].rc);
    }

    assert_true(rate.span_us == NGX_RL_MAX_SPAN_US);
}


static void
test_rate_exact(void **state)
{
    rate_t rate = rate_of(100, 60 * SECOND, 100);
    assert_int_equal(rate.period_us, 600000);
    assert_int_equal(rate.scale, 1);
    assert_int_equal(rate.span_us, 60 * SECOND);

    rate = rate_of(7, SECOND, 3);
    assert_int_equal(rate.step_us, 142857);
    assert_int_equal(rate.step_frac, 1);
    assert_int_equal(rate.span_us, 428571);
    assert_int_equal(rate.span_frac, 3);

    for (unsigned i = 0; i < 100000; i++) {
        uint64_t tokens = 1 + rnd((uint64_t) 1 << rnd(31));
        uint64_t period = 1 + rnd(NGX_RL_MAX_PERIOD_US >> rnd(44));

        if (ngx_rl_rate_init(&rate, tokens, period, 1) != 0) {
            continue;
        }

        assert_in_range(rate.scale, 1, NGX_RL_MAX_SCALE);

        /* a token takes 0 to 2^-22 us longer; both sides times scale */

        wide_t got = (wide_t) rate.period_us * tokens;
        wide_t wanted = (wide_t) period * rate.scale;
        assert_true(got >= wanted);
        assert_true((got - wanted) * NGX_RL_MAX_SCALE
                    <= (wide_t) tokens * rate.scale);

        if (tokens <= NGX_RL_MAX_SCALE) {
            assert_true(got == wanted);
        }
    }
}


static void
test_span_code(void **state)
{
    for (unsigned i = 0; i < 100000; i++) {
        rate_t rate = random_rate(NGX_RL_MAX_TOKENS);
        assert_in_range(rate.span_code, 1, 4095);

        uint64_t low = rate.span_code & 63;
        uint64_t exponent = rate.span_code >> 6;

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
    wide_t    allowed;
    uint64_t  now, at[150], got[150];

    for (unsigned round = 0; round < 200; round++) {
        rate_t rate = random_rate(40);
        bucket_t tb = { 0 };
        now = NOW;

        for (unsigned i = 0; i < 150; i++) {
            now += rnd(3) ? rnd(rate.step_us + 2) : rnd(4);
            at[i] = now;
            got[i] = take(&tb, &rate, now - rnd(skew_us + 1), rnd(4),
                          rnd(8)).granted;
        }

        for (unsigned i = 0; i < 150; i++) {
            wide_t sum = 0;

            for (unsigned j = i; j < 150; j++) {
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
    check_windows(0);
    check_windows(5000);
}


/* A saturated bucket gives its whole rate: nothing is lost to rounding. */
static void
test_throughput(void **state)
{
    rate_t rate = rate_of(7, 60 * SECOND, 3);
    bucket_t tb = { 0 };
    uint64_t granted = 0;

    for (uint64_t i = 0; i <= 60000; i++) {
        granted += take(&tb, &rate, NOW + i * 10000, 1, 0).granted;
    }

    assert_int_equal(granted, 70 + 3);
}


/* More than was ever there, where the product would be 2^64. */
static void
test_give_much(void **state)
{
    rate_t rate = rate_of(1, (uint64_t) 1 << 34, 10);
    bucket_t tb = { 0 };
    (void) take(&tb, &rate, NOW, 10, 0);
    ngx_rl_token_bucket_give(&tb, &rate, NOW, NOW, 1 << 30);
    assert_int_equal(take(&tb, &rate, NOW, 0, 0).remaining, 10);
}


/* What was taken before the bucket could fill again is nobody's any more. */
static void
test_give_late(void **state)
{
    rate_t rate = rate_of(10, SECOND, 10);

    bucket_t full = { 0 };
    (void) take(&full, &rate, NOW, 10, 0);

    /* a microsecond more than a full second ago, and not so long ago */

    bucket_t tb = full;
    ngx_rl_token_bucket_give(&tb, &rate, NOW, NOW - SECOND - 1, 9);
    assert_memory_equal(&tb, &full, sizeof(tb));

    ngx_rl_token_bucket_give(&tb, &rate, NOW, NOW - SECOND, 9);
    assert_int_equal(take(&tb, &rate, NOW, 0, 0).remaining, 9);

    /* another worker's clock is ahead */

    tb = full;
    ngx_rl_token_bucket_give(&tb, &rate, NOW, NOW + 5000, 9);
    assert_int_equal(take(&tb, &rate, NOW, 0, 0).remaining, 9);
}


static void
test_extremes(void **state)
{
    uint32_t  most = NGX_RL_MAX_TOKENS;
    uint64_t  late = ((uint64_t) 1 << 51) - 1;

    rate_t rate = rate_of(most, 366 * DAY, most);
    bucket_t tb = { 0 };
    assert_int_equal(take(&tb, &rate, late, most, 0).granted, most);
    assert_true(tb.tat_us < (uint64_t) 1 << 52);

    answer_t answer = take(&tb, &rate, late, most, 0);
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
    for (unsigned i = 0; i < 50000; i++) {
        rate_t before = random_rate(1000);
        rate_t after = random_rate(1000);

        /* spent stays spent */

        bucket_t tb = { 0 };
        (void) take(&tb, &before, NOW, before.capacity, 0);

        answer_t answer = take(&tb, &after, NOW, 1, 0);

        if (before.span_code != after.span_code) {
            assert_int_equal(answer.granted, 0);
            assert_int_equal(answer.remaining, 0);

            /* and the answer is true though nothing was taken */

            bucket_t copy = tb;
            assert_int_equal(take(&copy, &after, NOW + answer.retry_us - 1, 1,
                                  0).granted, 0);
            assert_int_equal(take(&tb, &after, NOW + answer.retry_us, 1,
                                  0).granted, 1);
        }
    }

    /* a share stays the share, up to the code's 1/64 */

    rate_t before = rate_of(100, 60 * SECOND, 100);
    rate_t after = rate_of(7, 3600 * SECOND, 1000);
    bucket_t tb = { 0 };
    (void) take(&tb, &before, NOW, 40, 0);
    (void) take(&tb, &after, NOW, 0, 0);

    double share = 0.4;
    double got = (double) (tb.tat_us - NOW) / (double) after.span_us;
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
    uint64_t  granted;
    unsigned  i;

    rate_t rate = rate_of(100, SECOND, 100);
    bucket_t tb = { 0 };
    assert_int_equal(take(&tb, &rate, NOW, 100, 0).granted, 100);
    bucket_t empty = tb;

    /* two workers 5 ms apart: nothing is granted twice */

    for (i = 0, granted = 0; i < 1000; i++) {
        granted += take(&tb, &rate, NOW - 5000, 1, 0).granted;
        granted += take(&tb, &rate, NOW, 1, 0).granted;
    }

    assert_int_equal(granted, 0);
    assert_memory_equal(&tb, &empty, sizeof(tb));

    answer_t answer = take(&tb, &rate, NOW - 5000, 1, 0);
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
    ngx_rl_token_bucket_give(&tb, &rate, NOW - 3600 * SECOND, NOW, 30);
    assert_int_equal(take(&tb, &rate, NOW - 3600 * SECOND, 0, 0).remaining, 30);

    /* half a second back: a charge, also one of nothing, ends the debt there */

    tb = empty;
    (void) take(&tb, &rate, NOW, 100, NGX_RL_CHARGE);
    answer = take(&tb, &rate, NOW - SECOND / 2, 0, NGX_RL_CHARGE);
    assert_int_equal(answer.reset_us, 2 * SECOND + 2);

    /* far ahead: full, and no more than full */

    tb = empty;
    assert_int_equal(take(&tb, &rate, NOW + 1000 * DAY, 1, 1000).granted, 100);
}


static void
test_used(void **state)
{
    ngx_rl_limit_t  limit;

    limit.capacity = 1000;
    uint32_t last = 0;

    for (uint32_t i = 0; i <= 1000; i++) {
        uint32_t used = ngx_rl_limit_used(&limit, 1000 - i);
        assert_true(used >= last);
        assert_true(i < 4 || used > 0);
        assert_int_equal(used == 255, i == 1000);
        last = used;
    }

    assert_int_equal(ngx_rl_limit_used(&limit, 1000), 0);

    limit.capacity = NGX_RL_MAX_TOKENS;
    assert_int_equal(ngx_rl_limit_used(&limit, 1), 254);
}


/* By the time it takes until the bucket is full: all, if no token is left. */
static void
test_used_time(void **state)
{
    rate_t    rate;
    uint64_t  us;

    static const uint64_t  rates[][3] = {
        { 1, SECOND, 10 }, { 3, SECOND, 1000 }, { 1, 60 * SECOND, 1 }, { 1, 10,
            40 }, { 1u << 30, SECOND, 1u << 30 }, { 1, DAY, 12000 }, };

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        assert_int_equal(ngx_rl_rate_init(&rate, rates[i][0],
                                          rates[i][1], rates[i][2]), 0);
        uint32_t last = 0;

        for (us = 0; us <= rate.span_us; us += rate.span_us / 1000 + 1) {
            uint32_t used = ngx_rl_token_bucket_used(&rate, us);
            assert_true(used >= last && used <= 255);
            assert_in_range(used + 1, us * 255 / (rate.span_us + 1), 256);
            assert_int_equal(used == 255, us + rate.step_us > rate.span_us);
            last = used;
        }

        assert_int_equal(ngx_rl_token_bucket_used(&rate, 0), 0);
        assert_int_equal(ngx_rl_token_bucket_used(&rate, UINT64_MAX / 4), 255);
    }
}

/*
 * Amounts: what a tier or an override makes of a rule's limit; rates as
 * numbers; limits that are multiplied, at random.
 */

#include "unit.h"

#include "ngx_rl_limit.h"

#define SECOND   ((uint64_t) 1000000)
#define MINUTE   (60 * SECOND)
#define YEAR     NGX_RL_MAX_PERIOD_US
#define MOST     NGX_RL_MAX_TOKENS
#define MILLION  ((uint64_t) 1000000)

typedef ngx_rl_amount_t  amount_t;
typedef ngx_rl_limit_t   limit_t;
typedef ngx_rl_spec_t    spec_t;
typedef unsigned __int128       wide_t;

/* of a spec: algorithm and calendar */
#define NONE     NGX_RL_CALENDAR_NONE
#define DAY      NGX_RL_CALENDAR_DAY
#define MONTH    NGX_RL_CALENDAR_MONTH
#define TOKEN    NGX_RL_TOKEN_BUCKET, NONE
#define LEAKY    NGX_RL_LEAKY_BUCKET, NONE
#define FIXED    NGX_RL_FIXED_WINDOW, NONE
#define DAILY    NGX_RL_FIXED_WINDOW, DAY
#define MONTHLY  NGX_RL_FIXED_WINDOW, MONTH
#define SLIDING  NGX_RL_SLIDING_WINDOW, NONE
#define LOG      NGX_RL_SLIDING_LOG, NONE
#define ZERO     NGX_RL_TOKENS_NONE
#define ANY      NGX_RL_TOKENS_ANY
#define SLOTS    NGX_RL_CONCURRENCY, NONE

typedef struct {
    spec_t       base;
    amount_t     amount;     /* tokens, period, capacity, calendar, rated */
    spec_t       spec;
    const char  *expected;   /* NULL: spec is what comes out */
} inherit_t;

static const char  window_text[] = "a window with the limit";
static const char  limit_text[] = "a limit with the window";
static const char  same_text[] = "the same number as limit and capacity, since "
                                 "the algorithm is no bucket";
static const char  slots_text[] = "a limit alone for concurrency";
static const char  capacity_text[] = "a capacity with the refill rate";

static const inherit_t  inherits[] = {
    /* words: the window is inherited, from the rule and from the word */
    { { TOKEN, 100, MINUTE, 7 }, { ZERO }, { TOKEN, ZERO, MINUTE, 7 }, NULL },
    { { FIXED, ANY }, { ZERO, MINUTE }, { FIXED, ZERO, MINUTE }, NULL },
    { { DAILY, 5 }, { ANY, MINUTE }, { FIXED, ANY, MINUTE }, NULL },
    { { TOKEN, ANY, MINUTE }, { 500 }, { TOKEN, 500, MINUTE, 500 }, NULL },
    { { TOKEN, ZERO, MINUTE }, { 0, 0, 20 }, { TOKEN, ZERO, MINUTE },
      "a limit or a refill rate with the capacity" },
    { { FIXED, ZERO }, { 5 }, { FIXED, 0 }, window_text },

    /* a bucket: a limit is the capacity, too */
    { { TOKEN, 100, MINUTE }, { 500 },
      { TOKEN, 500, MINUTE, 500 }, NULL },
    { { TOKEN, 100, MINUTE, 7 }, { 500 },
      { TOKEN, 500, MINUTE, 500 }, NULL },
    { { TOKEN, 100, MINUTE }, { 500, SECOND },
      { TOKEN, 500, SECOND, 500 }, NULL },
    { { TOKEN, 100, MINUTE }, { 500, 0, 20 },
      { TOKEN, 500, MINUTE, 20 }, NULL },
    { { TOKEN, 100, MINUTE }, { 0, 0, 20 },
      { TOKEN, 100, MINUTE, 20 }, NULL },
    { { TOKEN, 100, MINUTE }, { 5, SECOND, 0, NONE, 1 },
      { TOKEN, 5, SECOND, 100, 0, 0, 0, MINUTE }, NULL },
    { { TOKEN, 100, MINUTE, 7 }, { 5, SECOND, 20, NONE, 1 },
      { TOKEN, 5, SECOND, 20, 0, 0, 0, MINUTE }, NULL },

    /* the window is not the rate's */
    { { TOKEN, 167, 100 * SECOND, 100, 0, 0, 0, MINUTE }, { 500 },
      { TOKEN, 500, MINUTE, 500 }, NULL },
    { { TOKEN, 167, 100 * SECOND, 100, 0, 0, 0, MINUTE }, { 0, 0, 5 },
      { TOKEN, 167, 100 * SECOND, 5, 0, 0, 0, MINUTE }, NULL },
    { { TOKEN, 167, 100 * SECOND, 100, 0, 0, 0, MINUTE },
      { 5, SECOND, 0, NONE, 1 },
      { TOKEN, 5, SECOND, 100, 0, 0, 0, MINUTE }, NULL },
    { { TOKEN, 167, 100 * SECOND, 100, 0, 0, 0, MINUTE }, { 500, SECOND },
      { TOKEN, 500, SECOND, 500 }, NULL },

    /* a rule whose limit has variables */
    { { TOKEN, 0, MINUTE }, { 500 }, { TOKEN, 500, MINUTE, 500 }, NULL },
    { { TOKEN, 0, 0 }, { 500 }, { TOKEN }, window_text },
    { { TOKEN, 0, 0 }, { 500, SECOND }, { TOKEN, 500, SECOND, 500 }, NULL },
    { { TOKEN, 0, 0 }, { 0, 0, 5 }, { TOKEN },
      "a limit or a refill rate with the capacity" },
    { { TOKEN, 0, 0 }, { 1, SECOND, 0, NONE, 1 }, { TOKEN }, capacity_text },
    { { TOKEN, 0, 0, 9 }, { 1, SECOND, 0, NONE, 1 },
      { TOKEN, 1, SECOND, 9 }, NULL },

    { { TOKEN, 100, MINUTE }, { 0, SECOND }, { TOKEN }, limit_text },
    { { TOKEN, 100, MINUTE }, { 0, SECOND, 5 }, { TOKEN }, limit_text },
    { { TOKEN, 100, MINUTE }, { 0, 0, 0, DAY }, { TOKEN }, limit_text },
    { { TOKEN, 100, MINUTE }, { 0 }, { TOKEN },
      "a limit, a capacity or a refill rate" },
    { { TOKEN, 100, MINUTE }, { 5, 0, 0, DAY }, { TOKEN },
      "a window of some length for a bucket" },

    { { LEAKY, 10, SECOND, 0, 20, 3, 0 }, { 50 },
      { LEAKY, 50, SECOND, 0, 20, 3, 0 }, NULL },
    { { LEAKY, 10, SECOND, 0, 20, 3, 1 }, { 50, 0, 50 },
      { LEAKY, 50, SECOND, 0, 49, 3, 1 }, NULL },
    { { LEAKY, 10, SECOND, 0, 20, 3, 0 }, { 0, 0, 1 },
      { LEAKY, 10, SECOND, 0, 0, 3, 0 }, NULL },
    { { LEAKY, 0, 0, 0, 20 }, { 5, SECOND, 0, NONE, 1 },
      { LEAKY, 5, SECOND, 0, 20 }, NULL },

    /* where the capacity is the limit */
    { { FIXED, 100, MINUTE }, { 500 }, { FIXED, 500, MINUTE }, NULL },
    { { FIXED, 100, MINUTE }, { 500, SECOND }, { FIXED, 500, SECOND }, NULL },
    { { FIXED, 100, MINUTE }, { 500, 0, 500 }, { FIXED, 500, MINUTE }, NULL },
    { { FIXED, 100, MINUTE }, { 0, 0, 500 }, { FIXED, 500, MINUTE }, NULL },
    { { FIXED, 100, MINUTE }, { 500, 0, 499 }, { FIXED }, same_text },
    { { FIXED, 100, MINUTE }, { 5, 0, 0, DAY }, { DAILY, 5 }, NULL },
    { { DAILY, 100 }, { 500 }, { DAILY, 500 }, NULL },
    { { DAILY, 100 }, { 500, 0, 0, MONTH }, { MONTHLY, 500 }, NULL },
    { { DAILY, 100 }, { 500, SECOND }, { FIXED, 500, SECOND }, NULL },
    { { FIXED, 0, 0 }, { 500 }, { FIXED }, window_text },

    /* a rate is a limit that takes as long as the window */
    { { SLIDING, 100, MINUTE }, { 5, SECOND, 0, NONE, 1 },
      { SLIDING, 100, 20 * SECOND }, NULL },
    { { SLIDING, 100, MINUTE }, { 1667, 100 * SECOND, 1000, NONE, 1 },
      { SLIDING, 1000, 59989000 }, NULL },
    { { DAILY, 100 }, { 5, SECOND, 0, NONE, 1 },
      { FIXED, 100, 20 * SECOND }, NULL },
    { { SLIDING, 100, MINUTE }, { 1, YEAR, 1, NONE, 1 },
      { SLIDING, 1, YEAR }, NULL },
    { { SLIDING, 100, MINUTE }, { 1, YEAR, 2, NONE, 1 }, { SLIDING },
      "a capacity that the refill rate fills within 366 days" },
    { { LOG, 0, 0 }, { 1, SECOND, 0, NONE, 1 }, { LOG }, capacity_text },

    { { SLOTS, 4 }, { 5 }, { SLOTS, 5 }, NULL },
    { { SLOTS, 4 }, { 5, 0, 5 }, { SLOTS, 5 }, NULL },
    { { SLOTS, 4 }, { 0, 0, 5 }, { SLOTS, 5 }, NULL },
    { { SLOTS, 4 }, { 5, 0, 6 }, { SLOTS }, same_text },
    { { SLOTS, 4 }, { 5, SECOND }, { SLOTS }, slots_text },
    { { SLOTS, 4 }, { 5, SECOND, 5, NONE, 1 }, { SLOTS }, slots_text },
    { { SLOTS, 4 }, { 5, 0, 0, DAY }, { SLOTS }, slots_text }
};

typedef struct {
    double    rate;
    uint64_t  tokens;        /* 0: refused */
    uint64_t  period_us;
} rate_t;

static const rate_t  rates[] = {
    { 1, 1, SECOND },
    { 5, 1, SECOND / 5 },
    { 1.67, 167, 100 * SECOND },
    { 16.67, 1667, 100 * SECOND },
    { 0.5, 1, 2 * SECOND },
    { 0.000001, 1, MILLION * SECOND },
    { 1073741824, 16777216, 15625 },
    { 1.0 / (366.0 * 86400), 1, YEAR },
    { 1.0 / (366.0 * 86400) * 1.000001, 1, 31622368377632 },
    { 1.0 / (366.0 * 86400) * 0.999999, 0, 0 },
    { 1073741824.1, 0, 0 },
    { 1073741825, 0, 0 },
    { 0, 0, 0 },
    { -1, 0, 0 },
    { 0.0 / 0.0, 0, 0 },
    { 1.0 / 0.0, 0, 0 },
    { -1.0 / 0.0, 0, 0 }
};

static int
same(const spec_t *a, const spec_t *b)
{
    return a->algorithm == b->algorithm && a->calendar == b->calendar
           && a->tokens == b->tokens && a->period_us == b->period_us
           && a->capacity == b->capacity && a->burst == b->burst
           && a->delay == b->delay && a->nodelay == b->nodelay
           && a->window_us == b->window_us;
}


static void
test_inherit(void **state)
{
    spec_t       spec;
    const char  *expected;

    for (size_t i = 0; i < COUNT(inherits); i++) {
        const inherit_t *c = &inherits[i];
        expected = ngx_rl_amount_inherit(&c->base, &c->amount, &spec);

        if (c->expected == NULL) {
            if (expected) {
                fail_msg("case %zu refused: %s", i, expected);
            }

            if (!same(&spec, &c->spec)) {
                fail_msg("case %zu: %llu in %llu, capacity %llu, window %llu",
                         i, (unsigned long long) spec.tokens,
                         (unsigned long long) spec.period_us,
                         (unsigned long long) spec.capacity,
                         (unsigned long long) spec.window_us);
            }

        } else if (expected == NULL || strcmp(expected, c->expected) != 0) {
            fail_msg("case %zu: %s", i, expected ? expected : "accepted");
        }
    }
}


static void
test_rates(void **state)
{
    uint64_t  tokens, period_us;

    for (size_t i = 0; i < COUNT(rates); i++) {
        int rc = ngx_rl_amount_rate(rates[i].rate, &tokens, &period_us);

        if (rates[i].tokens == 0) {
            assert_int_equal(rc, -1);
            continue;
        }

        assert_int_equal(rc, 0);

        if (tokens != rates[i].tokens || period_us != rates[i].period_us) {
            fail_msg("%.9f: %llu in %llu", rates[i].rate,
                     (unsigned long long) tokens,
                     (unsigned long long) period_us);
        }
    }
}


/* Any rate: within a millionth. One of six decimal places: exact. */
static void
test_random_rates(void **state)
{
    uint64_t  tokens, period_us;

    (void) seed_new();
    size_t rounds = env_or("STEPS", 200000);

    for (size_t i = 0; i < rounds; i++) {
        uint64_t n = rnd_log(MOST * MILLION);
        double rate = (double) n / 1e6;

        assert_int_equal(ngx_rl_amount_rate(rate, &tokens, &period_us), 0);
        assert_in_range(tokens, 1, MOST);
        assert_in_range(period_us, 1, YEAR);

        if (n <= MOST
            && (wide_t) tokens * MILLION * MILLION != (wide_t) n * period_us)
        {
            fail_msg("%.6f is not %llu in %llu us", rate,
                     (unsigned long long) tokens,
                     (unsigned long long) period_us);
        }

        rate = (double) rnd_log((uint64_t) 1 << 60)
               / (double) rnd_log((uint64_t) 1 << 60);

        if (ngx_rl_amount_rate(rate, &tokens, &period_us) != 0) {
            assert_true(rate > MOST || rate < 1 / (366.0 * 86400));
            continue;
        }

        double made = (double) tokens * 1e6 / (double) period_us;

        assert_in_range(tokens, 1, MOST);
        assert_in_range(period_us, 1, YEAR);

        if (made > rate * (1 + 1e-6) || made < rate * (1 - 1e-6)) {
            fail_msg("%.12g is not %.12g", rate, made);
        }
    }
}


/* A spec that is good, of any algorithm, near its bounds as often as not. */
static void
random_spec(spec_t *spec)
{
    limit_t  limit;

    do {
        memset(spec, 0, sizeof(spec_t));

        spec->algorithm = rnd(6);
        spec->tokens = rnd_log(MOST);

        if (spec->algorithm == NGX_RL_CONCURRENCY) {
            continue;
        }

        spec->period_us = rnd_log(YEAR);

        if (spec->algorithm == NGX_RL_TOKEN_BUCKET) {
            spec->capacity = rnd(4) ? rnd_log(MOST) : 0;
        }

        if (spec->algorithm == NGX_RL_LEAKY_BUCKET) {
            spec->burst = rnd_log(MOST) - 1;
            spec->delay = rnd(2) ? rnd_log(MOST) - 1 : 0;
            spec->nodelay = rnd(2);
        }
    } while (ngx_rl_limit_init(&limit, spec) != NULL);
}


static uint64_t
times(uint64_t n, uint64_t millionths)
{
    wide_t wide = (wide_t) n * millionths / MILLION;

    return n == 0 ? 0 : wide == 0 ? 1 : wide > MOST ? MOST : (uint64_t) wide;
}


/* The rate is not above what it should be, unless that is below the lowest. */
static void
check_rate(const spec_t *base, uint64_t millionths, const spec_t *spec)
{
    wide_t exact = (wide_t) base->tokens * millionths;
    wide_t made = (wide_t) spec->tokens * MILLION;

    if (spec->tokens == 1 && spec->period_us == YEAR) {
        return;
    }

    assert_true((double) made / (double) spec->period_us
                <= (double) exact / (double) base->period_us * (1 + 1e-12));

    /* whole microseconds */

    if (spec->tokens == MOST && spec->period_us < 1000) {
        return;
    }

    assert_true((double) made / (double) spec->period_us
                >= (double) exact / (double) base->period_us
                   * (1 - 1.1 / (double) spec->period_us - 1e-12));
}


static void
test_random_scale(void **state)
{
    spec_t   base, spec;
    limit_t  limit, before;

    (void) seed_new();
    size_t rounds = env_or("STEPS", 200000);

    for (size_t i = 0; i < rounds; i++) {
        random_spec(&base);
        uint64_t millionths = rnd(10) ? rnd_log(MILLION * MILLION) : MILLION;

        ngx_rl_amount_scale(&base, millionths, &spec);
        const char *expected = ngx_rl_limit_init(&limit, &spec);

        if (expected) {
            fail_msg("algorithm %d, %llu in %llu, burst %llu, delay %llu, "
                     "times %llu: %llu in %llu, capacity %llu, burst %llu: %s",
                     base.algorithm, (unsigned long long) base.tokens,
                     (unsigned long long) base.period_us,
                     (unsigned long long) base.burst,
                     (unsigned long long) base.delay,
                     (unsigned long long) millionths,
                     (unsigned long long) spec.tokens,
                     (unsigned long long) spec.period_us,
                     (unsigned long long) spec.capacity,
                     (unsigned long long) spec.burst, expected);
        }

        assert_null(ngx_rl_limit_init(&before, &base));

        if (millionths == MILLION) {
            assert_int_equal(limit.capacity, before.capacity);
            assert_int_equal(limit.window_us, before.window_us);
            assert_int_equal(limit.free_us, before.free_us);
            assert_memory_equal(&limit.rate, &before.rate,
                                sizeof(ngx_rl_rate_t));
        }

        switch (base.algorithm) {
        case NGX_RL_TOKEN_BUCKET:
            assert_true(limit.capacity <= times(before.capacity, millionths));
            check_rate(&base, millionths, &spec);
            break;

        case NGX_RL_LEAKY_BUCKET:
            assert_true(spec.burst <= times(base.burst, millionths));
            check_rate(&base, millionths, &spec);
            break;

        default:
            assert_true(spec.tokens <= times(base.tokens, millionths));
            assert_true(spec.tokens >= 1);
            assert_int_equal(spec.period_us, base.period_us);
        }
    }
}


static void
test_scale(void **state)
{
    spec_t  spec;

    static const struct {
        spec_t    base;
        uint64_t  millionths;
        spec_t    spec;
    } cases[] = {
        { { TOKEN, 100, MINUTE }, 5 * MILLION, { TOKEN, 1, MINUTE / 500,
            500 } }, { { TOKEN, 1, MINUTE }, MILLION / 2, { TOKEN, 1,
            2 * MINUTE, 1 } }, { { TOKEN, 3, MINUTE, 7 }, MILLION / 2, { TOKEN,
            1, 40 * SECOND, 3 } }, { { TOKEN, 1, YEAR, 2 }, MILLION / 2,
            { TOKEN, 1, YEAR, 1 } }, { { TOKEN, MOST, SECOND },
            MILLION * MILLION, { TOKEN, MOST, 1, MOST } }, { { LEAKY, 10,
            SECOND, 0, 20, 3, 0 }, 2 * MILLION, { LEAKY, 1, SECOND / 20, 0, 40,
            3, 0 } }, { { LEAKY, 1, 3600 * SECOND, 0, 1, 0, 0 }, 1, { LEAKY, 1,
            YEAR, 0, 0, 0, 0 } }, { { FIXED, 100, MINUTE }, 1500000, { FIXED,
            150, MINUTE } }, { { MONTHLY, 3 }, MILLION / 2, { MONTHLY, 1 } },
            { { MONTHLY, 1 }, MILLION / 2, { MONTHLY, 1 } }, { { FIXED, MOST,
            MINUTE }, 2 * MILLION, { FIXED, MOST, MINUTE } }, { { LOG, 9999,
            MINUTE }, 2 * MILLION, { LOG, 10000, MINUTE } }, { { SLIDING,
            284836, YEAR }, 2 * MILLION, { SLIDING, 284836, YEAR } },
            { { SLIDING, 1, 1 }, MILLION * MILLION, { SLIDING, MILLION, 1 } },
            { { SLOTS, 4 }, 250000, { SLOTS, 1 } }, { { SLOTS, 4 }, 1, { SLOTS,
            1 } }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        ngx_rl_amount_scale(&cases[i].base, cases[i].millionths, &spec);

        if (!same(&spec, &cases[i].spec)) {
            fail_msg("case %zu: %llu in %llu, capacity %llu, burst %llu", i,
                     (unsigned long long) spec.tokens,
                     (unsigned long long) spec.period_us,
                     (unsigned long long) spec.capacity,
                     (unsigned long long) spec.burst);
        }
    }
}

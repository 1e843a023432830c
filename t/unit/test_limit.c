/*
 * Limits: what is refused and where exactly that begins, what each becomes,
 * and for how long a leaky bucket delays.
 */

#include "unit.h"

#include "ngx_rl_window.h"

#define NOW     ((uint64_t) 1800000000000000)
#define SECOND  ((uint64_t) 1000000)
#define DAY     (86400 * SECOND)
#define YEAR    (366 * DAY)

#define MOST    NGX_RL_MAX_TOKENS

typedef ngx_rl_limit_t  limit_t;
typedef ngx_rl_spec_t   spec_t;

/* one specification, and what is expected of it: NULL where it is good */
typedef struct {
    spec_t       spec;
    const char  *expected;
} case_t;

/* algorithm, calendar, tokens, period, capacity, burst, delay, nodelay */
#define TOKEN    NGX_RL_TOKEN_BUCKET, NGX_RL_CALENDAR_NONE
#define LEAKY    NGX_RL_LEAKY_BUCKET, NGX_RL_CALENDAR_NONE
#define FIXED    NGX_RL_FIXED_WINDOW, NGX_RL_CALENDAR_NONE
#define SLIDING  NGX_RL_SLIDING_WINDOW, NGX_RL_CALENDAR_NONE
#define LOG      NGX_RL_SLIDING_LOG, NGX_RL_CALENDAR_NONE
#define SLOTS    NGX_RL_CONCURRENCY, NGX_RL_CALENDAR_NONE

static const char  tokens_text[] = "a limit from 1 to 1073741824";
static const char  period_text[] = "a period of at most 366 days";
static const char  capacity_text[] = "a capacity from 1 to 1073741824";
static const char  span_text[] = "a capacity that the rate fills within 35 "
                                 "years";
static const char  burst_text[] = "a burst from 0 to 1073741823";
static const char  drain_text[] = "a burst that the rate drains within 35 "
                                 "years";
static const char  delay_text[] = "a burst that the rate drains within 24 "
                                 "days, or \"delay=\" or \"nodelay\"";
static const char  window_text[] = "a window of at most 366 days";
static const char  log_text[] = "a limit of at most 10000 requests for "
                                "sliding_log";
static const char  weight_text[] = "a lower limit or a shorter window for "
                                   "sliding_window: their product is at most "
                                   "2^53 request-milliseconds";
static const char  calendar_text[] = "a calendar for fixed_window only";

static const case_t  cases[] = {
    { { TOKEN, 0, SECOND, 0, 0, 0, 0 }, tokens_text },
    { { TOKEN, MOST, SECOND, 0, 0, 0, 0 }, NULL },
    { { TOKEN, MOST + 1, SECOND, 0, 0, 0, 0 }, tokens_text },
    { { TOKEN, 1, 0, 0, 0, 0, 0 }, period_text },
    { { TOKEN, 1, 1, 0, 0, 0, 0 }, NULL },
    { { TOKEN, 1, YEAR, 0, 0, 0, 0 }, NULL },
    { { TOKEN, 1, YEAR + 1, 0, 0, 0, 0 }, period_text },
    { { TOKEN, 1, SECOND, MOST, 0, 0, 0 }, NULL },
    { { TOKEN, 1, SECOND, MOST + 1, 0, 0, 0 }, capacity_text },
    { { TOKEN, 1, 1 << 20, MOST, 0, 0, 0 }, NULL },
    { { TOKEN, 1, (1 << 20) + 1, MOST, 0, 0, 0 }, span_text },

    { { LEAKY, 0, SECOND, 0, 0, 0, 0 }, tokens_text },
    { { LEAKY, 1, 0, 0, 0, 0, 0 }, period_text },
    { { LEAKY, 1, YEAR + 1, 0, 0, 0, 0 }, period_text },
    { { LEAKY, 1, SECOND, 0, MOST - 1, 0, 1 }, NULL },
    { { LEAKY, 1, SECOND, 0, MOST - 1, 0, 0 }, delay_text },
    { { LEAKY, 1, SECOND, 0, 24 * 86400, 0, 0 }, NULL },
    { { LEAKY, 1, SECOND, 0, 24 * 86400 + 1, 0, 0 }, delay_text },
    { { LEAKY, 1, SECOND, 0, 24 * 86400 + 1, 1, 0 }, NULL },
    { { LEAKY, 1, SECOND, 0, MOST, 0, 0 }, burst_text },
    { { LEAKY, 1, SECOND, 0, UINT64_MAX, 0, 0 }, burst_text },
    { { LEAKY, 1, SECOND, 0, 5, UINT64_MAX, 0 }, NULL },
    { { LEAKY, 1, YEAR, 0, 34, 0, 1 }, NULL },
    { { LEAKY, 1, YEAR, 0, 34, 0, 0 }, delay_text },
    { { LEAKY, 1, YEAR, 0, 35, 0, 0 }, drain_text },

    { { FIXED, 0, SECOND, 0, 0, 0, 0 }, tokens_text },
    { { FIXED, MOST, YEAR, 0, 0, 0, 0 }, NULL },
    { { FIXED, MOST + 1, YEAR, 0, 0, 0, 0 }, tokens_text },
    { { FIXED, 1, 0, 0, 0, 0, 0 }, window_text },
    { { FIXED, 1, YEAR + 1, 0, 0, 0, 0 }, window_text },

    { { SLIDING, 0, SECOND, 0, 0, 0, 0 }, tokens_text },
    { { SLIDING, 1, 0, 0, 0, 0, 0 }, window_text },
    { { SLIDING, 1, 1, 0, 0, 0, 0 }, NULL },
    { { SLIDING, 1, YEAR + 1, 0, 0, 0, 0 }, window_text },
    { { SLIDING, MOST, (uint64_t) 8388608 * 1000, 0, 0, 0, 0 }, NULL },
    { { SLIDING, MOST, (uint64_t) 8388608 * 1000 + 1, 0, 0, 0, 0 },
      weight_text },
    { { SLIDING, 284836, YEAR, 0, 0, 0, 0 }, NULL },
    { { SLIDING, 284837, YEAR, 0, 0, 0, 0 }, weight_text },

    { { LOG, 0, SECOND, 0, 0, 0, 0 }, tokens_text },
    { { LOG, 10000, YEAR, 0, 0, 0, 0 }, NULL },
    { { LOG, 10001, SECOND, 0, 0, 0, 0 }, log_text },
    { { LOG, 1, 0, 0, 0, 0, 0 }, window_text },

    { { SLOTS, 0, 0, 0, 0, 0, 0 }, tokens_text },
    { { SLOTS, 1, 0, 0, 0, 0, 0 }, NULL },
    { { SLOTS, MOST, 0, 0, 0, 0, 0 }, NULL },
    { { SLOTS, MOST + 1, 0, 0, 0, 0, 0 }, tokens_text }
};


static limit_t
limit_of(const spec_t *spec)
{
    limit_t  limit;

    assert_null(ngx_rl_limit_init(&limit, spec));

    return limit;
}


static void
test_refusals(void **state)
{
    limit_t  limit;

    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = ngx_rl_limit_init(&limit, &cases[i].spec);

        if (cases[i].expected == NULL) {
            if (text) {
                fail_msg("case %zu refused: %s", i, text);
            }

            assert_int_equal(limit.algorithm, cases[i].spec.algorithm);
            continue;
        }

        if (text == NULL) {
            fail_msg("case %zu accepted", i);
        }

        assert_string_equal(text, cases[i].expected);
    }
}


static void
test_calendar(void **state)
{
    limit_t      limit;
    char         seen[4096];

    ngx_rl_tz_t tz = { 0 };
    tz.name = 0xfffffff0;

    for (int algorithm = 0; algorithm <= NGX_RL_CONCURRENCY; algorithm++) {
        spec_t spec = { 0 };
        spec.algorithm = algorithm;
        spec.calendar = NGX_RL_CALENDAR_DAY;
        spec.tokens = 10;

        if (algorithm != NGX_RL_FIXED_WINDOW) {
            spec.period_us = SECOND;
            assert_string_equal(ngx_rl_limit_init(&limit, &spec),
                                calendar_text);
            continue;
        }

        limit = limit_of(&spec);
        assert_int_equal(limit.code, 4001);
        assert_true(limit.window_us == DAY);
        assert_int_equal(limit.calendar, NGX_RL_CALENDAR_DAY);

        spec.calendar = NGX_RL_CALENDAR_MONTH;
        limit = limit_of(&spec);
        assert_int_equal(limit.code, 4002);
        assert_true(limit.window_us == 31 * DAY);
    }

    spec_t spec = { 0 };
    spec.algorithm = NGX_RL_FIXED_WINDOW;
    spec.tokens = 10;

    /* a week and a billing month, whose names show no code of their own */

    spec.calendar = NGX_RL_CALENDAR_WEEK;
    limit = limit_of(&spec);
    assert_in_range(limit.code, 4004, 4095);
    assert_true(limit.window_us == 7 * DAY);

    spec.calendar = NGX_RL_CALENDAR_MONTH;
    spec.month_day = 15;
    limit = limit_of(&spec);
    assert_in_range(limit.code, 4004, 4095);
    assert_true(limit.window_us == 31 * DAY);

    spec.tz = &tz;
    limit = limit_of(&spec);
    assert_in_range(limit.code, 4004, 4095);
    assert_true(ngx_rl_limit_seconds(&limit) == 31 * 86400);

    /* a month ends at its second, and a bucket is full a little later */

    assert_int_equal(ngx_rl_limit_reset(&limit, 1000, 9000700), 10);
    limit.algorithm = NGX_RL_TOKEN_BUCKET;
    assert_int_equal(ngx_rl_limit_reset(&limit, 1000, 9000700), 11);
    assert_memory_equal(limit.text, "10, 10;w=2678400", limit.text_len);

    /* any two calendars of one zone differ */

    memset(seen, 0, sizeof(seen));

    for (uint32_t day = 0; day <= 32; day++) {
        spec.calendar = day == 0 ? NGX_RL_CALENDAR_DAY
                        : day == 32 ? NGX_RL_CALENDAR_WEEK
                        : NGX_RL_CALENDAR_MONTH;
        spec.month_day = day % 32;
        limit = limit_of(&spec);
        assert_in_range(limit.code, 4004, 4095);
        assert_false(seen[limit.code]);
        seen[limit.code] = 1;
    }

    /* no span has a calendar's code, and a state has 12 bits for it */

    assert_true(ngx_rl_span_encode(NGX_RL_MAX_SPAN_US) < NGX_RL_CODE_CALENDAR);
    assert_true(NGX_RL_CODE_OWES + NGX_RL_CODE_OTHERS < 1 << 12);
}


static void
test_becomes(void **state)
{
    static const spec_t  token = { TOKEN, 100, 60 * SECOND, 0, 0, 0, 0 };
    static const spec_t  thirds = { TOKEN, 3, SECOND, 10, 0, 0, 0 };
    static const spec_t  leaky = { LEAKY, 10, SECOND, 0, 20, 0, 0 };
    static const spec_t  fixed = { FIXED, 7, 60 * SECOND, 0, 0, 0, 0 };
    static const spec_t  slots = { SLOTS, 7, 0, 0, 0, 0, 0 };

    /* capacity 0 is the rate's tokens; a span is rounded up */

    limit_t limit = limit_of(&token);
    assert_int_equal(limit.capacity, 100);
    assert_true(limit.window_us == 60 * SECOND);
    assert_int_equal(limit.code, 0);

    limit = limit_of(&thirds);
    assert_int_equal(limit.capacity, 10);
    assert_true(limit.window_us == 3333334);

    limit = limit_of(&leaky);
    assert_int_equal(limit.capacity, 21);
    assert_true(limit.window_us == 2100000);

    limit = limit_of(&fixed);
    assert_int_equal(limit.capacity, 7);
    assert_true(limit.window_us == 60 * SECOND);
    assert_int_equal(limit.code, ngx_rl_span_encode(60 * SECOND));

    limit = limit_of(&slots);
    assert_int_equal(limit.capacity, 7);
    assert_true(limit.window_us == 0);
}


/* How long each request of a burst at once is delayed, in ms; -1: denied. */
static void
check_burst(const spec_t *spec, const int *delays_ms, unsigned n)
{
    ngx_rl_answer_t  answer;

    limit_t limit = limit_of(spec);
    ngx_rl_token_bucket_t tb = { 0 };

    for (unsigned i = 0; i < n; i++) {
        ngx_rl_token_bucket_take(&tb, &limit.rate, NOW, 1, 0, &answer);

        assert_int_equal(answer.granted, delays_ms[i] >= 0);
        assert_true(ngx_rl_limit_delay(&limit, &answer)
                    == (delays_ms[i] > 0 ? (uint64_t) delays_ms[i] * 1000
                                         : 0));
    }
}


static void
test_delay(void **state)
{
    ngx_rl_answer_t  answer;

    static const spec_t  plain = { LEAKY, 10, SECOND, 0, 3, 0, 0 };
    static const int     plain_ms[] = { 0, 100, 200, 300, -1, -1 };
    static const spec_t  none = { LEAKY, 10, SECOND, 0, 0, 0, 0 };
    static const int     none_ms[] = { 0, -1 };
    static const spec_t  nodelay = { LEAKY, 10, SECOND, 0, 3, 0, 1 };
    static const int     nodelay_ms[] = { 0, 0, 0, 0, -1 };
    static const spec_t  two = { LEAKY, 10, SECOND, 0, 4, 2, 0 };
    static const int     two_ms[] = { 0, 0, 0, 100, 200, -1 };
    static const spec_t  all = { LEAKY, 10, SECOND, 0, 3, 3, 0 };
    static const spec_t  more = { LEAKY, 10, SECOND, 0, 3, UINT64_MAX, 0 };
    static const spec_t  token = { TOKEN, 10, SECOND, 4, 0, 0, 0 };
    static const spec_t  sevenths = { LEAKY, 7, SECOND, 0, 1000, 500, 0 };

    check_burst(&plain, plain_ms, 6);
    check_burst(&none, none_ms, 2);
    check_burst(&nodelay, nodelay_ms, 5);
    check_burst(&two, two_ms, 6);
    check_burst(&all, nodelay_ms, 5);
    check_burst(&more, nodelay_ms, 5);
    check_burst(&token, nodelay_ms, 5);

    /* steps of a fraction: n tokens above take n / 7 s, in milliseconds */

    limit_t limit = limit_of(&sevenths);

    for (unsigned i = 1; i <= 1001; i++) {
        answer.granted = 1;
        answer.reset_us = (i * SECOND + 6) / 7;

        if (i <= 501) {
            assert_true(ngx_rl_limit_delay(&limit, &answer) == 0);

        } else {
            uint64_t delay_us = ngx_rl_limit_delay(&limit, &answer);
            assert_int_equal(delay_us % 1000, 0);
            assert_in_range(delay_us, (i - 501) * SECOND / 7 - 999,
                            (i - 501) * SECOND / 7 + 1);
        }
    }

    /* less than a millisecond is none; and no answer delays for longer */

    answer.reset_us = limit.free_us + 999;
    assert_true(ngx_rl_limit_delay(&limit, &answer) == 0);
    answer.reset_us = limit.free_us + 1000;
    assert_int_equal(ngx_rl_limit_delay(&limit, &answer), 1000);
    answer.reset_us = UINT64_MAX;
    assert_int_equal(ngx_rl_limit_delay(&limit, &answer),
                     (limit.window_us - limit.free_us) / 1000 * 1000);

    /* nothing granted, nothing delayed */

    answer.granted = 0;
    assert_true(ngx_rl_limit_delay(&limit, &answer) == 0);
}


/* The order of the names is that of the enumeration. */
/* Those who may use a part of a bucket, and those who may use all of it. */
static void
test_part(void **state)
{
    ngx_rl_limit_t   whole, part, halves;
    ngx_rl_answer_t  answer;

    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = NGX_RL_LEAKY_BUCKET;
    spec.tokens = 7;
    spec.period_us = 60000000;
    spec.burst = 20;
    assert_null(ngx_rl_limit_init(&whole, &spec));

    ngx_rl_spec_t own = { 0 };
    own.burst = 5;
    own.delay = 2;
    assert_null(ngx_rl_limit_narrow(&whole, &own, &part));

    /* what clients see is that of a bucket of this size */

    spec.burst = 5;
    spec.delay = 2;
    assert_null(ngx_rl_limit_init(&halves, &spec));
    assert_int_equal(part.capacity, 6);
    assert_int_equal(part.window_us, halves.window_us);
    assert_int_equal(part.free_us, halves.free_us);
    assert_int_equal(part.text_len, halves.text_len);
    assert_memory_equal(part.text, halves.text, halves.text_len);
    assert_int_not_equal(part.mark, whole.mark);
    assert_int_equal(part.whole, whole.mark);

    /* the state is that of the whole: a part does not change it */

    ngx_rl_token_bucket_t tb = { 0 };
    ngx_rl_token_bucket_take(&tb, &whole.rate, 1000, 15, 0, &answer);
    assert_int_equal(answer.remaining, 6);

    ngx_rl_token_bucket_take(&tb, &part.rate, 1000, 1, 0, &answer);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.remaining, 0);
    assert_int_equal(answer.retry_us, 10 * 60000000ull / 7 + 1);

    ngx_rl_token_bucket_take(&tb, &whole.rate, 1000, 6, 0, &answer);
    assert_int_equal(answer.granted, 6);

    /* a burst above the whole is the whole, halves are halves of both */

    own.burst = NGX_RL_MAX_TOKENS;
    assert_null(ngx_rl_limit_narrow(&whole, &own, &part));
    assert_int_equal(part.capacity, 21);
    own.burst = 5;
    assert_null(ngx_rl_limit_narrow(&whole, &own, &part));
    ngx_rl_limit_halve(&part, &halves);
    assert_int_equal(halves.rate.open, 12);
    assert_int_equal(halves.rate.capacity, 42);

    own.burst = 0;
    own.nodelay = 1;
    assert_null(ngx_rl_limit_narrow(&whole, &own, &part));
    assert_int_equal(part.free_us, UINT64_MAX);
    assert_int_equal(part.capacity, 1);
}


static void
test_names(void **state)
{
#define name_is(what, name)                                                   \
    assert_string_equal(ngx_rl_algorithm_names[NGX_RL_##what],                \
                        name)

    name_is(TOKEN_BUCKET, "token_bucket");
    name_is(LEAKY_BUCKET, "leaky_bucket");
    name_is(FIXED_WINDOW, "fixed_window");
    name_is(SLIDING_WINDOW, "sliding_window");
    name_is(SLIDING_LOG, "sliding_log");
    name_is(CONCURRENCY, "concurrency");
    assert_null(ngx_rl_algorithm_names[NGX_RL_CONCURRENCY + 1]);
}

/*
 * Fixed and sliding windows while nothing changes but the time: never too much
 * in a window, the calendar against the C library's.
 */

#include "window.h"

#include <time.h>


static void
test_months(void **state)
{
    limit_t limit = limit_of_calendar(NGX_RL_CALENDAR_MONTH, 10);

    for (int year = 1970; year < 2405; year++) {
        for (int month = 0; month < 12; month++) {
            struct tm tm = { 0 };
            tm.tm_year = year - 1900;
            tm.tm_mon = month;
            tm.tm_mday = 1;
            uint64_t begin = timegm(&tm) * SECOND;

            memset(&tm, 0, sizeof(tm));
            tm.tm_year = year - 1900 + month / 11;
            tm.tm_mon = (month + 1) % 12;
            tm.tm_mday = 1;
            uint64_t end = timegm(&tm) * SECOND;

            for (unsigned i = 0; i < 6; i++) {
                uint64_t at = (i == 0) ? begin
                              : (i == 1) ? end - 1
                              : (i == 2) ? end - DAY : begin + rnd(end - begin);

                assert_true(window_left(&limit, at) == end - at);
                assert_true(window_passed(&limit, at) == at - begin);
            }
        }
    }
}


static void
test_days_and_spans(void **state)
{
    struct tm  tm;

    limit_t day = limit_of_calendar(NGX_RL_CALENDAR_DAY, 10);

    for (unsigned i = 0; i < 100000; i++) {
        uint64_t at = rnd((uint64_t) 1 << 51);

        time_t t = at / SECOND;
        gmtime_r(&t, &tm);

        assert_true(window_passed(&day, at)
                    == ((tm.tm_hour * 60 + tm.tm_min) * 60 + tm.tm_sec)
                       * SECOND + at % SECOND);
        assert_true(window_left(&day, at) == DAY - window_passed(&day, at));

        uint64_t window_us = 1 + rnd(366 * DAY);
        limit_t span = limit_of(NGX_RL_FIXED_WINDOW, 1, window_us);

        assert_true(window_left(&span, at)
                    == (at / window_us + 1) * window_us - at);
        assert_true(window_passed(&span, at) == at % window_us);
    }
}


/* The first instant of a window, by the C library's clock of the zone. */
static void
check_begin(const limit_t *limit, uint64_t at)
{
    struct tm  tm, yesterday;

    time_t t = (time_t) (at / SECOND);
    time_t before = t - 1;
    assert_non_null(localtime_r(&t, &tm));
    assert_non_null(localtime_r(&before, &yesterday));

    assert_true(at % SECOND == 0);
    assert_true(tm.tm_mday != yesterday.tm_mday);

    /* a day without a midnight begins at 1:00 */

    assert_true(tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec <= 3600);

    if (limit->calendar == NGX_RL_CALENDAR_WEEK) {
        assert_int_equal(tm.tm_wday, 1);
    }

    if (limit->calendar == NGX_RL_CALENDAR_MONTH) {
        int last = (tm.tm_mon == 1) ? (tm.tm_year % 4 == 0 ? 29 : 28)
                   : (tm.tm_mon == 3 || tm.tm_mon == 5 || tm.tm_mon == 8
                      || tm.tm_mon == 10) ? 30 : 31;

        assert_int_equal(tm.tm_mday, (int) limit->month_day < last
                                     ? (int) limit->month_day : last);
    }
}


/* Days, weeks and billing months of time zones: of 2023 until 2066. */
static void
test_zones(void **state)
{
    limit_t          limit;
    ngx_rl_tz_t      tz;
    ngx_rl_bounds_t  next;

    static const char *const  names[] = {
        "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Cairo",
        "Australia/Lord_Howe", "Antarctica/Troll", "America/Havana", "UTC"
    };

    for (int i = 0; i < 200; i++) {
        zone_read(&tz, names[i % COUNT(names)], 1700000000, 1);
        assert_int_equal(setenv("TZ", names[i % COUNT(names)], 1), 0);
        tzset();

        ngx_rl_spec_t spec = { 0 };
        spec.algorithm = NGX_RL_FIXED_WINDOW;
        spec.calendar = 1 + rnd(3);
        spec.month_day = 1 + rnd(31);
        spec.tokens = 1;
        spec.tz = &tz;
        assert_null(ngx_rl_limit_init(&limit, &spec));

        for (int k = 0; k < 100; k++) {
            uint64_t at = 1700000000 * SECOND + rnd(43 * 366 * DAY);
            ngx_rl_bounds_t bounds = ngx_rl_calendar_bounds(&limit, at);
            uint64_t most = limit.window_us;

            assert_true(bounds.start_us <= at && at < bounds.end_us);
            assert_true(bounds.end_us - bounds.start_us <= most);
            check_begin(&limit, bounds.start_us);
            check_begin(&limit, bounds.end_us);

            next = ngx_rl_calendar_bounds(&limit, bounds.end_us);
            assert_true(next.start_us == bounds.end_us);
            next = ngx_rl_calendar_bounds(&limit, bounds.end_us - 1);
            assert_true(next.end_us == bounds.end_us);
        }
    }

    unsetenv("TZ");
    tzset();
}


/* The change of the clock: a day of 23 hours, one of 25, and their weeks. */
static void
test_clock_changes(void **state)
{
    limit_t          limit;
    ngx_rl_tz_t      tz;
    ngx_rl_bounds_t  bounds;

    static const struct {
        ngx_rl_calendar_e  calendar;
        uint32_t                  month_day;
        uint64_t                  at;
        uint64_t                  hours;
    } cases[] = {
        { NGX_RL_CALENDAR_DAY, 0, 1774760000, 23 }, { NGX_RL_CALENDAR_DAY, 0,
            1792895400, 25 }, { NGX_RL_CALENDAR_DAY, 0, 1792800000, 24 },
            { NGX_RL_CALENDAR_WEEK, 0, 1774760000, 167 },
            { NGX_RL_CALENDAR_WEEK, 0, 1792895400, 169 },
            { NGX_RL_CALENDAR_MONTH, 0, 1774760000, 31 * 24 - 1 },
            { NGX_RL_CALENDAR_MONTH, 15, 1774760000, 31 * 24 - 1 },
            { NGX_RL_CALENDAR_MONTH, 15, 1792895400, 31 * 24 + 1 },

        /* from 31 January until 28 February, until 31 March, of 2026 */
        { NGX_RL_CALENDAR_MONTH, 31, 1770000000, 28 * 24 },
        { NGX_RL_CALENDAR_MONTH, 31, 1773000000, 31 * 24 - 1 },

        /* from 30 January 2028 until 29 February */
        { NGX_RL_CALENDAR_MONTH, 30, 1833000000, 30 * 24 }
    };

    zone_read(&tz, "Europe/Berlin", 1770000000, 1);

    for (size_t i = 0; i < COUNT(cases); i++) {
        ngx_rl_spec_t spec = { 0 };
        spec.algorithm = NGX_RL_FIXED_WINDOW;
        spec.calendar = cases[i].calendar;
        spec.month_day = cases[i].month_day;
        spec.tokens = 1;
        spec.tz = &tz;
        assert_null(ngx_rl_limit_init(&limit, &spec));

        bounds = ngx_rl_calendar_bounds(&limit, cases[i].at * SECOND);
        assert_true(bounds.end_us - bounds.start_us
                    == cases[i].hours * 3600 * SECOND);
    }
}


/* Exactly what the window has left: granted when it fits, and never more. */
static void
test_fixed_exact(void **state)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        limit_t limit = random_limit(NGX_RL_FIXED_WINDOW);
        window_t w = { 0 };
        uint32_t used = 0;
        uint64_t now = NOW + rnd(400 * DAY);
        uint64_t taken = now;

        for (unsigned k = 0; k < TAKES; k++) {
            uint64_t next = later(&limit, now);

            if (start(&limit, next) != start(&limit, now)) {
                used = 0;
            }

            now = next;

            if (rnd(4) == 0) {
                state_give(&w, &limit, now, taken, 1);
                used -= (used && taken >= start(&limit, now));
            }

            uint32_t cost = rnd(limit.capacity / 4 + 2);
            answer_t answer = take(&w, &limit, now, cost, 0);

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
    uint64_t  count, before, used;
    uint64_t  at[TAKES], any;
    uint32_t  granted[TAKES], want;

    for (unsigned i = 0; i < ROUNDS; i++) {
        limit_t limit = random_limit(NGX_RL_SLIDING_WINDOW);
        uint64_t window_us = limit.window_us;
        uint64_t window_ms = (window_us + 999) / 1000;
        window_t w = { 0 };
        count = before = any = 0;
        unsigned oldest = 0;
        uint64_t now = NOW + rnd(400 * DAY);

        for (unsigned k = 0; k < TAKES; k++) {
            uint64_t next = later(&limit, now);

            if (next / window_us != now / window_us) {
                before = (next / window_us == now / window_us + 1) ? count : 0;
                count = 0;
            }

            now = next;
            uint64_t left_ms = (window_us - now % window_us + 999) / 1000;
            used = count + (before * left_ms + window_ms - 1) / window_ms;

            want = rnd(limit.capacity + 1);
            answer_t answer = take(&w, &limit, now, 0, want);

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
test_extremes(void **state)
{
    uint32_t  most = NGX_RL_MAX_TOKENS;
    uint64_t  late = ((uint64_t) 1 << 51) - 1;
    uint64_t  longest = ((uint64_t) 1 << 23) * 1000;

    /* the heaviest window, full, and then half over */

    limit_t limit = limit_of(NGX_RL_SLIDING_WINDOW, most, longest);
    late -= late % longest;
    window_t w = { 0 };
    assert_int_equal(take(&w, &limit, late - 1, most, 0).granted, most);
    answer_t answer = take(&w, &limit, late, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 1000);
    answer = take(&w, &limit, late + longest / 2, 1, 0);
    assert_int_equal(answer.remaining, most / 2 - 1);

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 284836, 366 * DAY);
    memset(&w, 0, sizeof(w));
    late = ((uint64_t) 1 << 51) - 1;
    assert_int_equal(take(&w, &limit, late, 284836, 0).granted, 284836);
    assert_true(take(&w, &limit, late, 1, 0).retry_us > 0);

    /* a window of a microsecond */

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 1, 1);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, NOW, 1, 0).granted, 1);
    assert_int_equal(take(&w, &limit, NOW + 1, 1, 0).retry_us, 1);
    assert_int_equal(take(&w, &limit, NOW + 2, 1, 0).granted, 1);

    limit = limit_of(NGX_RL_FIXED_WINDOW, most, 366 * DAY);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, late, most, 0).granted, most);
    assert_int_equal(take(&w, &limit, late, 1, 0).remaining, 0);

    /* a clock that has just begun */

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 10, DAY);
    memset(&w, 0, sizeof(w));
    assert_int_equal(take(&w, &limit, 0, 10, 0).granted, 10);
    state_give(&w, &limit, 0, 0, 4);
    assert_int_equal(take(&w, &limit, 1, 0, 0).remaining, 4);
}


/*
 * What goes back from another machine, whose clock is another one and whose
 * call is held up: it comes to the window that it was taken from, or to none.
 */
static void
test_give_late(void **state)
{
    uint64_t  age;

    for (int round = 0; round < 20 * ROUNDS; round++) {
        int sliding = round % 2;
        uint64_t window_us = (1 + rnd(100)) * SECOND;
        limit_t limit = limit_of(algorithms[sliding], 100, window_us);
        window_t w = { 0 };

        uint64_t taken = NOW + rnd(10 * window_us);
        uint64_t end = taken - taken % window_us + window_us;
        uint64_t way = rnd(window_us / 8 - 2000);
        way = way < taken % window_us ? way : taken % window_us;
        uint64_t behind = rnd(NOW / 2);

        assert_int_equal(take(&w, &limit, taken, 5, 0).granted, 5);
        answer_t answer = take(&w, &limit, taken, 0, 0);

        uint64_t sent = taken + way + rnd(window_us / 2);
        age = ngx_rl_window_answer_age_us(&limit, sent - behind,
                                          taken - way - behind, &answer);
        age = (age + 999) / 1000 * 1000;
        assert_true(age >= sent - taken);

        uint64_t runs = sent + rnd(window_us * 3 / 4);

        if (runs / window_us > end / window_us) {
            continue;
        }

        if (runs >= end) {
            assert_int_equal(take(&w, &limit, runs, 3, 0).granted, 3);
        }

        state_give(&w, &limit, runs, runs - age, 5);

        if (runs < end) {
            assert_int_equal(w.count, 0);

        } else {
            assert_int_equal(w.count, 3);
            assert_int_equal(w.before, 0);
        }
    }
}


/* A month is given as the longest one: what was taken in it is still known. */
static void
test_give_month(void **state)
{
    limit_t limit = limit_of_calendar(NGX_RL_CALENDAR_MONTH, 100);

    struct tm tm = { 0 };
    tm.tm_year = 2026 - 1900;
    tm.tm_mon = 1;
    tm.tm_mday = 1;
    uint64_t start = timegm(&tm) * SECOND;

    for (uint64_t at = start; at < start + 28 * DAY; at += 6 * 3600 * SECOND) {
        window_t w = { 0 };
        assert_int_equal(take(&w, &limit, at, 5, 0).granted, 5);
        answer_t answer = take(&w, &limit, at, 0, 0);
        uint64_t age = ngx_rl_window_answer_age_us(&limit, at, at, &answer);

        state_give(&w, &limit, at + 1000, at + 1000 - age, 5);
        assert_int_equal(w.count, 0);
    }
}


/*
 * What an operator gives is there at once, all of it, up to what is used; and
 * the window before keeps what it may.
 */
static void
test_give_whenever(void **state)
{
    unit_seed = 12;

    for (unsigned i = 0; i < ROUNDS; i++) {
        limit_t limit = random_limit(algorithms[rnd(2)]);
        window_t w = { 0 };
        uint64_t now = NOW;

        for (unsigned k = 0; k < TAKES; k++) {
            now += rnd(limit.window_us < DAY ? limit.window_us : DAY);
            (void) take(&w, &limit, now, rnd(limit.capacity) + 1, 0);

            uint32_t before = take(&w, &limit, now, 0, 0).remaining;
            uint32_t tokens = rnd(limit.capacity) + 1;
            state_give(&w, &limit, now, NGX_RL_WHENEVER, tokens);
            uint32_t after = take(&w, &limit, now, 0, 0).remaining;

            assert_int_equal(after, before + tokens < limit.capacity
                                    ? before + tokens : limit.capacity);
        }
    }

    /* what the current window has used comes back first */

    limit_t limit = limit_of(NGX_RL_SLIDING_WINDOW, 100, 10 * SECOND);
    window_t w = { 0 };
    (void) take(&w, &limit, NOW, 60, 0);
    (void) take(&w, &limit, NOW + 15 * SECOND, 20, 0);
    state_give(&w, &limit, NOW + 15 * SECOND, NGX_RL_WHENEVER, 25);
    assert_int_equal(take(&w, &limit, NOW + 15 * SECOND, 0, 0).remaining, 75);
    assert_int_equal(take(&w, &limit, NOW + 20 * SECOND, 0, 0).remaining, 100);
}

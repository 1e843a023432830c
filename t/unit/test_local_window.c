/*
 * Fixed windows on this node: they end by the wall clock, and are kept by the
 * monotonic one. What a step of the first does to them.
 */

#include "local.h"

#define HOUR      ((uint64_t) 3600 * 1000)
#define MIDNIGHT  (20000 * 24 * HOUR)      /* of some day, in ms */
#define LIMIT     10

static local_t     local;
static ngx_time_t  wall;


/* A day's limit; the clocks are set by at(). */
static void
make_day(void)
{
    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = NGX_RL_FIXED_WINDOW;
    spec.calendar = NGX_RL_CALENDAR_DAY;
    spec.tokens = LIMIT;

    local_make(&local, MIB, NGX_RL_FIXED_WINDOW, LIMIT, 1);
    assert_null(ngx_rl_limit_init(&local.limit, &spec));
}


/* So long after the midnight, by a wall clock that is so far ahead. */
static void
at(int64_t ms, int64_t ahead_ms)
{
    uint64_t now = MIDNIGHT + ms + ahead_ms;

    ngx_current_msec = 100 * 24 * HOUR + ms;
    wall.sec = now / 1000;
    wall.msec = now % 1000;
    ngx_cached_time = &wall;
}


/* How many are granted of as many as there may be. */
static ngx_uint_t
granted(void)
{
    ngx_uint_t       n;
    local_request_t  r;

    for (n = 0; n <= LIMIT && local_take(&local, &r, 1); n++) { /* void */ }

    return n;
}


static void
test_ends(void **state)
{
    make_day();

    at(-1000, 0);
    assert_int_equal(granted(), LIMIT);
    at(-21, 0);
    assert_int_equal(granted(), 0);

    /* a few milliseconds of difference are no step */

    at(0, -19);
    assert_int_equal(granted(), LIMIT);
    at(24 * HOUR - 1, 0);
    assert_int_equal(granted(), 0);
    at(24 * HOUR + 19, 0);
    assert_int_equal(granted(), LIMIT);

    local_free(&local);
}


/* Set back, the day is not over: it has no second share of the limit. */
static void
test_set_back(void **state)
{
    static const int64_t  steps[] = { 21, 1000, 60000, HOUR, 11 * HOUR };

    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        make_day();

        at(-1000, 0);
        assert_int_equal(granted(), LIMIT);

        at(0, -steps[i]);
        assert_int_equal(granted(), 0);
        at(steps[i] - 21, -steps[i]);
        assert_int_equal(granted(), 0);

        /* when it is over, it is */

        at(steps[i], -steps[i]);
        assert_int_equal(granted(), LIMIT);
        at(steps[i] + 24 * HOUR - 1, -steps[i]);
        assert_int_equal(granted(), 0);

        local_free(&local);
    }
}


/* Set ahead, the window keeps its end; the next one ends with its day. */
static void
test_set_ahead(void **state)
{
    make_day();

    at(-1000, 0);
    assert_int_equal(granted(), LIMIT);
    at(-500, HOUR);
    assert_int_equal(granted(), 0);

    at(0, HOUR);
    assert_int_equal(granted(), LIMIT);
    at(23 * HOUR - 21, HOUR);
    assert_int_equal(granted(), 0);
    at(23 * HOUR, HOUR);
    assert_int_equal(granted(), LIMIT);

    local_free(&local);
}


/* A peer whose clock is ahead tells what it has spent: yesterday stays over. */
static void
test_told(void **state)
{
    ngx_rl_id_t      id;
    ngx_rl_answer_t  answer;
    local_request_t  r;

    make_day();

    at(-HOUR, 0);
    assert_int_equal(granted(), LIMIT);

    at(20 * HOUR, 0);
    local_request(&local, &r, 1);
    id = ngx_rl_counter_id(&r.counter);
    ngx_rl_local_told(&local.limiter, &id, &local.limit, 1,
                      (4 * HOUR - 100) * 1000, 2, &answer);
    assert_int_equal(answer.remaining, LIMIT - 1);
    assert_int_equal(granted(), LIMIT - 1);

    local_free(&local);
}

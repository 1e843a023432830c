/*
 * C against Lua where a random sequence seldom comes: states of windows that
 * no limit has written, and every month.
 */

#include "parity.h"

#include "counter.h"


/* A window's state as its script packs it. */
static void
model_put_window(char kind, const ngx_rl_window_t *w)
{
    char      value[17];

    for (unsigned i = 0; i < 7; i++) {
        value[i] = (char) (w->fresh_us >> (48 - 8 * i));
    }

    for (unsigned i = 0; i < 4; i++) {
        value[7 + i] = (char) (w->count >> (24 - 8 * i));
        value[13 + i] = (char) (w->before >> (24 - 8 * i));
    }

    value[11] = (char) (w->code >> 8);
    value[12] = (char) w->code;

    model_put(7, value, kind == 'f' ? 13 : 17);
}


static void
check_take(counter_t *counter, const parity_call_t *call, uint32_t cost)
{
    answer_t         answer;
    parity_answer_t  wanted;

    counter_take(counter, call->now_us, cost, 0, &answer);
    fill_answer(&answer, wanted);
    parity_compare(call, &wanted);
}


/* States of windows that no limit here has written: no error, and the same. */
static void
test_foreign_window(void **state)
{
    counter_t      counter;
    parity_call_t  call;

    parity_start();

    for (unsigned i = 0; i < 20000; i++, parity.step++) {
        counter_make(&counter, rnd(2) ? 'f' : 's');

        parity_call_init(&call, 7, 1);
        call.now_us = START + rnd(1000000);
        call.args[0].kind = counter.kind;
        call.args[0].cost = rnd(3);
        call.args[0].capacity = counter.limit.capacity;
        parity_window(&call.args[0], &counter.limit, call.now_us);

        ngx_rl_window_t *w = &counter.state.w;
        w->fresh_us = call.now_us + (rnd(4) ? 0 : (uint64_t) 1 << 49)
                      + rnd_log((uint64_t) 1 << 45) - rnd(1000);
        w->code = rnd(4096);
        w->count = rnd_log(NGX_RL_MAX_TOKENS);

        if (counter.kind == 's') {
            w->before = rnd_log(NGX_RL_MAX_TOKENS);
        }

        if (rnd(4) == 0) {
            /* as if it were the limit's, but for how much was used */

            w->code = counter.limit.code;
            w->fresh_us = call.now_us - call.now_us % counter.limit.window_us
                          + (1 + rnd(2)) * counter.limit.window_us;
        }

        /* but what a window of that length can have counted */

        uint64_t weight = NGX_RL_MAX_PERIOD_US;

        if (w->code < NGX_RL_CODE_CALENDAR) {
            weight = ngx_rl_span_decode(w->code);
        }

        if (w->code != counter.limit.code && weight <= NGX_RL_MAX_PERIOD_US) {
            weight = NGX_RL_MAX_WEIGHT / (weight / 1000 + 1);
            w->count = (w->count < weight) ? w->count : weight;
            w->before = (w->before < weight) ? w->before : weight;
        }

        model_flush();
        model_put_window(counter.kind, w);

        check_take(&counter, &call, call.args[0].cost);
    }
}


static void
check_give(counter_t *counter, parity_call_t *call, uint32_t age_ms)
{
    call->args[0].want = age_ms;

    state_give(&counter->state, &counter->limit, call->now_us,
               call->now_us - (uint64_t) age_ms * 1000, 1);
    check_take(counter, call, 0);
}


/*
 * Each window of a calendar that a state can name, its first and its last
 * microsecond. The gateway's clock may be so far ahead.
 */
static void
check_calendar(const ngx_rl_spec_t *spec, uint64_t at, uint64_t until,
    int64_t ahead_us)
{
    uint64_t       end;
    parity_call_t  call;

    counter_t counter = { 0 };
    counter.kind = 'f';
    assert_null(ngx_rl_limit_init(&counter.limit, spec));

    parity_call_init(&call, 7, 1);
    call.args[0].kind = 'f';

    for ( /* void */ ; at < until; at = end) {
        end = at + window_left(&counter.limit, at);

        model_flush();
        memset(&counter.state, 0, sizeof(state_t));
        call.args[0].cost = 2;
        call.now_us = at;
        parity_window(&call.args[0], &counter.limit, at + ahead_us);
        check_take(&counter, &call, 2);

        /* taken in this window, and a moment before it */

        call.args[0].cost = -1;
        call.now_us = at + 5000;
        parity_window(&call.args[0], &counter.limit, call.now_us + ahead_us);
        check_give(&counter, &call, rnd(2) ? 6 : 4);
        check_give(&counter, &call, rnd(2) ? 6 : 4);
        call.args[0].cost = 1;
        call.args[0].want = 0;

        call.now_us = end - 1;
        parity_window(&call.args[0], &counter.limit, call.now_us + ahead_us);
        check_take(&counter, &call, 1);

        parity.step++;
    }
}


static ngx_rl_spec_t
spec_of(ngx_rl_calendar_e calendar, uint32_t month_day, const ngx_rl_tz_t *tz)
{
    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = NGX_RL_FIXED_WINDOW;
    spec.calendar = calendar;
    spec.month_day = month_day;
    spec.tz = tz;
    spec.tokens = 10;

    return spec;
}


static void
test_months(void **state)
{
    parity_start();

    ngx_rl_spec_t spec = spec_of(NGX_RL_CALENDAR_MONTH, 1, NULL);
    check_calendar(&spec, 31 * DAY, (uint64_t) 1 << 52, 0);

    spec = spec_of(NGX_RL_CALENDAR_MONTH, 31, NULL);
    check_calendar(&spec, 30 * DAY, (uint64_t) 1 << 52, 0);
}


/* Days, weeks and months of time zones, over 60 years. */
static void
test_zones(void **state)
{
    limit_t  limit;

    parity_start();

    for (unsigned i = 0; i < 30; i++) {
        ngx_rl_spec_t spec = spec_of(1 + i % 3, 1 + rnd(31), zone_random());
        assert_null(ngx_rl_limit_init(&limit, &spec));

        check_calendar(&spec, START + window_left(&limit, START),
                       START + 5000 * DAY, 0);
    }
}


/* The gateway's clock is up to five days ahead of Redis', or behind it. */
static void
test_skew(void **state)
{
    limit_t  limit;

    parity_start();

    for (unsigned i = 0; i < 20; i++) {

        ngx_rl_spec_t spec = spec_of(NGX_RL_CALENDAR_DAY, 1, NULL);
        assert_null(ngx_rl_limit_init(&limit, &spec));

        check_calendar(&spec, START + window_left(&limit, START),
                       START + 50 * DAY,
                       (int64_t) rnd(DAY * 10) - (int64_t) DAY * 5);

        spec.calendar = NGX_RL_CALENDAR_WEEK;
        assert_null(ngx_rl_limit_init(&limit, &spec));

        check_calendar(&spec, START + window_left(&limit, START),
                       START + 200 * DAY,
                       (int64_t) rnd(DAY * 10) - (int64_t) DAY * 5);
    }
}

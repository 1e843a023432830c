/*
 * C against Lua where a random sequence seldom comes: states of windows that
 * no limit has written, and every month.
 */

#include "parity.h"

#include "counter.h"


/* A window's state as its script packs it. */

static void
model_put_window(char kind, const ngx_ratelimit_window_t *w)
{
    char      value[17];
    unsigned  i;

    for (i = 0; i < 7; i++) {
        value[i] = (char) (w->fresh_us >> (48 - 8 * i));
    }

    for (i = 0; i < 4; i++) {
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
    unsigned                 i;
    uint64_t                 weight;
    counter_t                counter;
    parity_call_t            call;
    ngx_ratelimit_window_t  *w;

    parity_start();

    for (i = 0; i < 20000; i++, parity.step++) {
        counter_make(&counter, rnd(2) ? 'f' : 's');

        parity_call_init(&call, 7, 1);
        call.now_us = START + rnd(1000000);
        call.args[0].kind = counter.kind;
        call.args[0].cost = rnd(3);
        call.args[0].capacity = counter.limit.capacity;
        call.args[0].a = counter.limit.window_us;
        call.args[0].b = counter.limit.calendar;

        w = &counter.state.w;
        w->fresh_us = call.now_us + (rnd(4) ? 0 : (uint64_t) 1 << 49)
                      + rnd_log((uint64_t) 1 << 45) - rnd(1000);
        w->code = rnd(4096);
        w->count = rnd_log(NGX_RATELIMIT_MAX_TOKENS);

        if (counter.kind == 's') {
            w->before = rnd_log(NGX_RATELIMIT_MAX_TOKENS);
        }

        if (rnd(4) == 0) {
            /* as if it were the limit's, but for how much was used */

            w->code = counter.limit.code;
            w->fresh_us = call.now_us - call.now_us % counter.limit.window_us
                          + (1 + rnd(2)) * counter.limit.window_us;
        }

        /* but what a window of that length can have counted */

        weight = NGX_RATELIMIT_MAX_PERIOD_US;

        if (w->code < NGX_RATELIMIT_CODE_CALENDAR) {
            weight = ngx_ratelimit_span_decode(w->code);
        }

        if (w->code != counter.limit.code
            && weight <= NGX_RATELIMIT_MAX_PERIOD_US)
        {
            weight = NGX_RATELIMIT_MAX_WEIGHT / (weight / 1000 + 1);
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


/* Each month that a state can name, its first and its last microsecond. */

static void
test_months(void **state)
{
    uint64_t                at, end;
    counter_t               counter;
    parity_call_t           call;

    parity_start();

    memset(&counter, 0, sizeof(counter));
    counter.kind = 'f';
    counter.limit = limit_of_calendar(NGX_RATELIMIT_CALENDAR_MONTH, 10);

    parity_call_init(&call, 7, 1);
    call.args[0].kind = 'f';
    call.args[0].a = counter.limit.window_us;
    call.args[0].b = counter.limit.calendar;

    end = (uint64_t) 31 * 86400 * 1000000;

    for (at = end; at < (uint64_t) 1 << 52; at = end) {
        end = at + ngx_ratelimit_fixed_window_left(&counter.limit, at);

        model_flush();
        memset(&counter.state, 0, sizeof(state_t));
        call.args[0].cost = 2;
        call.now_us = at;
        check_take(&counter, &call, 2);

        /* taken in this month, and a moment before it */

        call.args[0].cost = -1;
        call.now_us = at + 5000;
        check_give(&counter, &call, rnd(2) ? 6 : 4);
        check_give(&counter, &call, rnd(2) ? 6 : 4);
        call.args[0].cost = 1;
        call.args[0].want = 0;

        call.now_us = end - 1;
        check_take(&counter, &call, 1);

        parity.step++;
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_foreign_window),
        cmocka_unit_test(test_months),
    };

    return cmocka_run_group_tests(tests, parity_setup, parity_teardown);
}

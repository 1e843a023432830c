/*
 * What all counters promise of any state: retry, reset and remaining to the
 * microsecond and the token; what a look, a want and a give do.
 */

#include "counter.h"

#define ROUNDS  30000
#define BEGIN   ((uint64_t) 1800000000000000)

static counter_t  counter;
static uint64_t   now;


/* On a copy: what the counter would answer. */
static answer_t
would(uint64_t at, uint32_t cost, uint32_t want)
{
    state_t  copy = counter.state;

    return state_take(&copy, &counter.limit, at, cost, want);
}


static answer_t
take(uint32_t cost, uint32_t want)
{
    return state_take(&counter.state, &counter.limit, now, cost, want);
}


/* A counter with a past, often at the edge of a window. */
static void
make(char kind)
{
    unsigned  i, n;

    counter_make(&counter, kind);
    uint64_t span = counter.limit.window_us;
    now = BEGIN + rnd(400 * DAY);

    for (i = 0, n = rnd(12); i < n; i++) {
        (void) take(0, 1 + rnd(counter.limit.capacity));

        switch (rnd(6)) {

        case 0: case 1:
            now += rnd(span / 4 + 1);
            break;

        case 2:
            now += rnd(2 * span + 1);
            break;

        case 3:
            now += span - now % span - rnd(2);
        }
    }
}


static void
check_reset(uint32_t remaining)
{
    uint64_t reset_us = would(now, 0, 0).reset_us;

    assert_int_equal(would(now + reset_us, 0, 0).remaining,
                     counter.limit.capacity);
    assert_int_equal(would(now + reset_us, 0, 0).reset_us, 0);
    assert_true(remaining == counter.limit.capacity || reset_us > 0);

    if (reset_us) {
        assert_true(would(now + reset_us - 1, 0, 0).reset_us > 0);
    }
}


/* Returns whether the cost was rejected. */
static int
check_cost(uint32_t cost, uint32_t remaining)
{
    state_t   before = counter.state;

    answer_t look = would(now, cost, LOOK);
    answer_t answer = take(cost, 0);

    assert_int_equal(look.granted, 0);
    assert_int_equal(look.remaining, remaining);
    assert_true(look.retry_us == answer.retry_us);

    if (cost <= remaining) {
        assert_int_equal(answer.granted, cost);
        assert_int_equal(answer.retry_us, 0);
        assert_int_equal(answer.remaining, remaining - cost);
        return 0;
    }

    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.remaining, remaining);
    assert_memory_equal(&counter.state, &before, sizeof(before));

    assert_in_range(answer.retry_us, 1, 2 * counter.limit.window_us);
    assert_int_equal(would(now + answer.retry_us - 1, cost, 0).granted, 0);
    assert_int_equal(would(now + answer.retry_us, cost, 0).granted, cost);

    /* as a client is told it, in whole seconds */

    assert_int_equal(would(now + (answer.retry_us + SECOND - 1) / SECOND
                                 * SECOND, cost, 0).granted, cost);
    return 1;
}


/* Of a want as much as there is; of one up to the cost, the cost. */
static void
check_want(uint32_t remaining)
{
    uint32_t  n;

    uint32_t want = 1 + rnd(2 * (uint64_t) counter.limit.capacity);
    answer_t answer = would(now, 0, want);
    assert_int_equal(answer.granted, want < remaining ? want : remaining);
    assert_int_equal(answer.remaining, remaining - answer.granted);
    assert_int_equal(answer.retry_us, 0);
    assert_int_equal(would(now, 0, CHARGE - 1).granted, remaining);

    if (remaining) {
        uint32_t cost = 1 + rnd(remaining);
        assert_int_equal(would(now, cost, rnd(cost + 1)).granted, cost);
    }

    assert_true(would(now, counter.limit.capacity + 1, 0).retry_us == NEVER);
    assert_true(would(now, counter.limit.capacity + 1, LOOK).retry_us == NEVER);

    if (remaining < 100) {
        state_t copy = counter.state;

        for (n = 0; n <= remaining; n++) {
            if (state_take(&copy, &counter.limit, now, 1, 0).granted == 0) {
                break;
            }
        }

        assert_int_equal(n, remaining);
    }
}


/* What is given back at once was never taken. */
static void
check_give(uint32_t remaining)
{
    state_t before = counter.state;
    uint32_t granted = take(0, 1 + rnd((uint64_t) remaining + 1)).granted;
    state_give(&counter.state, &counter.limit, now, now, granted);
    assert_int_equal(would(now, 0, 0).remaining, remaining);

    if (granted && (counter.kind == 't'
                    ? before.tb.tat_us >= now
                    : before.w.fresh_us > now + counter.limit.window_us))
    {
        assert_memory_equal(&counter.state, &before, sizeof(before));
    }

    state_give(&counter.state, &counter.limit, now, now, UINT32_MAX);
    assert_true(would(now, 0, 0).remaining >= remaining);
    assert_true(counter.kind != 't'
                || would(now, 0, 0).remaining == counter.limit.capacity);
}


static void
check(char kind)
{
    uint32_t  i, rejected;

    seed_init();

    for (i = 0, rejected = 0; i < ROUNDS; i++) {
        make(kind);
        state_t state = counter.state;

        /* a look takes nothing */

        uint32_t remaining = take(0, 0).remaining;
        assert_memory_equal(&counter.state, &state, sizeof(state));

        check_reset(remaining);
        check_want(remaining);
        check_give(remaining);

        counter.state = state;
        rejected += check_cost(1 + rnd(counter.limit.capacity), remaining);
    }

    assert_in_range(rejected, ROUNDS / 10, ROUNDS * 9 / 10);
}


static void
test_token_bucket(void **state)
{
    check('t');
}


static void
test_fixed_window(void **state)
{
    check('f');
}


static void
test_sliding_window(void **state)
{
    check('s');
}

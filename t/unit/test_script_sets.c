/*
 * The scripts of sorted sets, for themselves: what C has no part in, the leases
 * of requests in flight, and how members are named.
 */

#include "parity.h"

#define LEASE_US  30000000


/* One counter of field 0 at START + after_us, by the request of that name. */

static parity_answer_t *
call_one(char which, uint64_t after_us, const char *name, int64_t cost,
    int64_t want, uint64_t capacity, uint64_t a)
{
    parity_call_t           call;
    static parity_answer_t  answer;

    memset(&call, 0, sizeof(call));
    call.now_us = START + after_us;
    call.name = name;
    call.n = 1;
    call.args[0].kind = which;
    call.args[0].cost = cost;
    call.args[0].want = want;
    call.args[0].capacity = capacity;
    call.args[0].a = a;

    parity_run(&call, &answer);

    return &answer;
}


static void
assert_answer(parity_answer_t *answer, int64_t granted, int64_t remaining,
    int64_t reset_ms, int64_t retry_ms)
{
    assert_int_equal((*answer)[0], granted);
    assert_int_equal((*answer)[1], remaining);
    assert_int_equal((*answer)[2], reset_ms);
    assert_int_equal((*answer)[3], retry_ms);
}


#define slot(after_us, name, cost, want)                                      \
    call_one('c', after_us, name, cost, want, 2, LEASE_US)


/* A lease ends at its deadline, not before, and is renewed by its name. */

static void
test_lease(void **state)
{
    (void) state;

    model_flush();

    assert_answer(slot(0, "request1", 1, 0), 1, 1, 0, 0);
    assert_answer(slot(10, "request2", 1, 0), 1, 0, 0, 0);
    assert_answer(slot(20, "request3", 1, 0), 0, 0, 0, 1000);
    assert_answer(slot(20, "request3", 0, 0), 0, 0, 0, 0);
    assert_answer(slot(20, "request3", -1, 0), 0, 0, 0, 0);

    /* renewed although all slots are taken; a look of its own could be paid */
    assert_answer(slot(10000000, "request2", 1, 1), 1, 0, 0, 0);
    assert_answer(slot(10000000, "request2", 1, -1), 0, 0, 0, 0);
    assert_answer(slot(10000000, "request3", 1, -1), 0, 0, 0, 1000);

    assert_answer(slot(LEASE_US - 1, "request3", 1, 0), 0, 0, 0, 1000);
    assert_answer(slot(LEASE_US, "request3", 1, 0), 1, 0, 0, 0);

    assert_answer(slot(LEASE_US + 9999999, "request4", 1, 0), 0, 0, 0, 1000);
    assert_answer(slot(LEASE_US + 10000000, "request4", 1, 0), 1, 0, 0, 0);

    /* freed twice it is freed once */
    assert_answer(slot(LEASE_US + 10000000, "request4", -1, 0), 0, 1, 0, 0);
    assert_answer(slot(LEASE_US + 10000000, "request4", -1, 0), 0, 1, 0, 0);

    /* freed at its deadline it has ended by itself */
    assert_answer(slot(2 * LEASE_US, "request3", -1, 0), 0, 2, 0, 0);
}


/* A request that runs gets its lost lease again, in spite of the others. */

static void
test_lease_lost(void **state)
{
    (void) state;

    model_flush();

    (void) slot(0, "request1", 1, 0);
    (void) slot(LEASE_US, "request2", 1, 0);
    (void) slot(LEASE_US, "request3", 1, 0);
    assert_answer(slot(LEASE_US, "request1", 1, 1), 1, 0, 0, 0);
    assert_answer(slot(LEASE_US, "request2", -1, 0), 0, 0, 0, 0);
    assert_answer(slot(LEASE_US, "request4", 1, 0), 0, 0, 0, 1000);
    assert_answer(slot(LEASE_US, "request3", -1, 0), 0, 1, 0, 0);
    assert_answer(slot(LEASE_US, "request4", 1, 0), 1, 0, 0, 0);
}


/* Leases of before the clock was set back end one lease from the denial. */

static void
test_lease_clock(void **state)
{
    uint64_t  hour = (uint64_t) 3600 * 1000000;

    (void) state;

    model_flush();

    (void) slot(hour, "request1", 1, 0);
    (void) slot(hour, "request2", 1, 0);
    assert_answer(slot(0, "request3", 1, 0), 0, 0, 0, 1000);
    assert_answer(slot(LEASE_US - 1, "request3", 1, 0), 0, 0, 0, 1000);
    assert_answer(slot(LEASE_US, "request3", 1, 0), 1, 1, 0, 0);
}


#define take(after_us, name, cost, want)                                      \
    call_one('l', after_us, name, cost, want, 10000, 60000000)


/* No take replaces what another has, and a give finds its own alone. */

static void
test_members(void **state)
{
    (void) state;

    model_flush();

    assert_answer(take(0, "request1", 2500, 0), 2500, 7500, 60000, 0);
    assert_answer(take(1, "request1", 0, 2500), 2500, 5000, 60000, 0);
    assert_answer(take(2, "request2", 1, 1200), 1200, 3800, 60000, 0);

    /* a third one, which no request makes */
    assert_answer(take(3, "request1", 3, 0), 3, 3797, 60000, 0);

    assert_answer(take(4, "request2", -1200, 0), 0, 4997, 60000, 0);
    assert_answer(take(4, "request2", -1200, 0), 0, 4997, 60000, 0);
    assert_answer(take(4, "request3", -1, 0), 0, 4997, 60000, 0);

    /* all that are left */
    assert_answer(take(5, "request4", 4997, 0), 4997, 0, 60000, 0);
    assert_answer(take(6, "request5", 1, 0), 0, 0, 60000, 60000);
    assert_answer(take(59999999, "request5", 2500, 0), 0, 0, 1, 1);
    assert_answer(take(60000000, "request5", 2500, 0), 2500, 0, 60000, 0);
}


/* What is given back is what was taken, not what was charged or is over. */

static void
test_give_own(void **state)
{
    (void) state;

    model_flush();

    (void) take(0, "request1", 0, 2);
    (void) take(30000000, "request1", 3, 0);
    assert_answer(take(30000001, "request1", -3, 0), 0, 9998, 30000, 0);
    assert_answer(take(60000000, "request1", 0, 0), 0, 10000, 0, 0);

    model_flush();

    (void) take(0, "request1", 3, 0);
    (void) take(30000000, "request2", 1, 0);
    assert_answer(take(60000000, "request1", -3, 0), 0, 9999, 30000, 0);
}


/* Of what a request took, and of which some are gone, as many as there are. */

static void
test_give_some(void **state)
{
    uint32_t  tokens;

    (void) state;

    for (tokens = 1; tokens < 70; tokens++) {
        model_flush();

        (void) take(0, "request1", 33, 0);
        assert_answer(take(1, "request2", 1, 0), 1, 9966, 60000, 0);
        assert_answer(take(2, "request1", -(int64_t) tokens, 0), 0,
                      9966 + (tokens < 33 ? tokens : 33), 60000, 0);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_lease),
        cmocka_unit_test(test_lease_lost),
        cmocka_unit_test(test_lease_clock),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_give_own),
        cmocka_unit_test(test_give_some),
    };

    return cmocka_run_group_tests(tests, parity_setup, parity_teardown);
}

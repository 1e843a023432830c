/*
 * A counter was reset: what Redis said of it before denies nothing any more,
 * also where the answer comes behind the reset. What it says then counts.
 */

#include "lease.h"


static int
forget(void **state)
{
    (void) state;

    forgot_us = 0;

    return 0;
}


/* A denial of so many ms, said at 100: of any algorithm. */

static void
test_denied(void **state)
{
    lease_t   lease;
    limit_t   limits[3];
    unsigned  i;

    (void) state;

    limits[0] = bucket(10, 100);
    limits[1] = fixed(10, 100);
    limits[2] = sliding(10, 100);

    for (i = 0; i < 3; i++) {
        memset(&lease, 0, sizeof(lease));
        forgot_us = 0;

        demand(&lease, &limits[i], 0, 100, 1);
        assert_int_equal(fill(&lease, &limits[i], 100, 1,
                              said(0, 0, 90000, 9000)), 1);

        assert_int_equal(take(&lease, &limits[i], 110, 1, NULL), DENIED);

        /* of another moment: before that, it was said later */

        forgot_us = AT_US(99);
        assert_int_equal(take(&lease, &limits[i], 111, 1, NULL), DENIED);

        forgot_us = AT_US(111);
        assert_int_equal(take(&lease, &limits[i], 112, 1, NULL), ASK);
        assert_int_equal(take(&lease, &limits[i], 113, 1, NULL), ASK);

        /* what was asked before is of the counter as it was */

        assert_int_equal(ngx_ratelimit_lease_fill(&lease, &limits[i],
                             &(env_t) { AT_US(114), 3, 1, forgot_us },
                             AT_US(111), &(ask_t) { 1, 1, 0, 1 },
                             &(answer_t) { .remaining = 0,
                                           .reset_us = 90000000,
                                           .retry_us = 9000000 }), 1);
        assert_int_equal(take(&lease, &limits[i], 115, 1, NULL), ASK);

        /* and what is asked behind it counts */

        assert_int_equal(fill(&lease, &limits[i], 116, 1,
                              said(0, 0, 90000, 9000)), 1);
        assert_int_equal(take(&lease, &limits[i], 117, 1, NULL), DENIED);
    }
}


/* Tokens in hand are spent; what never fits never does. */

static void
test_in_hand(void **state)
{
    lease_t  lease;
    limit_t  limit;

    (void) state;

    limit = bucket(10, 100);
    memset(&lease, 0, sizeof(lease));

    demand(&lease, &limit, 0, 100, 1);
    fill(&lease, &limit, 100, 3, said(3, 0, 90000, 0));
    forgot_us = AT_US(101);

    assert_int_equal(take(&lease, &limit, 102, 1, NULL), PAID);
    assert_int_equal(take(&lease, &limit, 102, 11, NULL), DENIED);
    assert_int_equal(take(&lease, &limit, 102, 5, NULL), ASK);
    assert_int_equal(take(&lease, &limit, 102, 2, NULL), PAID);
    assert_int_equal(take(&lease, &limit, 102, 1, NULL), ASK);
}


/* A fixed window's clients are told of what there is again. */

static void
test_told(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = fixed(10, 100);
    memset(&lease, 0, sizeof(lease));

    fill(&lease, &limit, 100, 1, said(0, 0, 90000, 90000));
    forgot_us = AT_US(101);

    assert_int_equal(take(&lease, &limit, 102, 1, NULL), ASK);
    fill(&lease, &limit, 103, 2, said(2, 8, 90000, 0));
    assert_int_equal(take(&lease, &limit, 104, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 9);
}


/* Also where tokens in hand were spent meanwhile, and Redis asked ahead. */

static void
test_told_in_hand(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = fixed(10, 100);
    memset(&lease, 0, sizeof(lease));

    fill(&lease, &limit, 100, 3, said(3, 0, 90000, 0));
    assert_int_equal(take(&lease, &limit, 101, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 2);

    forgot_us = AT_US(102);
    assert_int_equal(take(&lease, &limit, 103, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 1);

    fill(&lease, &limit, 104, 2, said(2, 8, 90000, 0));
    assert_int_equal(take(&lease, &limit, 105, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 10);

    /* of what was said since, it never rises again */

    fill(&lease, &limit, 106, 1, said(0, 5, 90000, 0));
    assert_int_equal(take(&lease, &limit, 107, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 6);
    fill(&lease, &limit, 108, 1, said(0, 9, 90000, 0));
    assert_int_equal(take(&lease, &limit, 109, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 6);
}


static ngx_ratelimit_lease_e
spend(lease_t *lease, const limit_t *limit, int64_t ms, unsigned *ask)
{
    env_t     env;
    answer_t  answer;

    env = at(ms);

    return ngx_ratelimit_async_take(lease, limit, &env, 1, &answer, ask);
}


static void
debited(lease_t *lease, const limit_t *limit, int64_t ms, int64_t asked,
    uint32_t debt, answer_t answer)
{
    env_t  env;

    env = at(ms);

    ngx_ratelimit_async_fill(lease, limit, &env, AT_US(asked), debt, &answer);
}


static void
test_async(void **state)
{
    lease_t   lease;
    limit_t   limits[3];
    unsigned  i, ask;

    (void) state;

    limits[0] = bucket(10, 100);
    limits[1] = fixed(10, 100);
    limits[2] = sliding(10, 100);

    for (i = 0; i < 3; i++) {
        memset(&lease, 0, sizeof(lease));
        forgot_us = 0;

        assert_int_equal(spend(&lease, &limits[i], 100, &ask), PAID);
        assert_int_equal(ask, 1);
        debited(&lease, &limits[i], 101, 100, 1, said(0, 0, 90000, 9000));
        assert_int_equal(spend(&lease, &limits[i], 102, &ask), DENIED);

        forgot_us = AT_US(103);
        assert_int_equal(spend(&lease, &limits[i], 104, &ask), PAID);
        assert_int_equal(ask, 1);

        /* asked before: of what was */

        debited(&lease, &limits[i], 105, 103, 1, said(0, 0, 90000, 9000));
        assert_int_equal(spend(&lease, &limits[i], 106, &ask), PAID);

        debited(&lease, &limits[i], 108, 107, 1, said(0, 0, 90000, 9000));
        assert_int_equal(spend(&lease, &limits[i], 109, &ask), DENIED);
    }
}


/* So does what there was before, where that was enough until Redis was told. */

static void
test_async_left(void **state)
{
    env_t     env;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;
    unsigned  ask;

    (void) state;

    limit = fixed(10, 100);
    memset(&lease, 0, sizeof(lease));

    assert_int_equal(spend(&lease, &limit, 100, &ask), PAID);
    debited(&lease, &limit, 101, 100, 1, said(1, 2, 90000, 0));

    /* without a reset it never rises */

    assert_int_equal(spend(&lease, &limit, 102, &ask), PAID);
    debited(&lease, &limit, 104, 103, 1, said(1, 9, 90000, 0));

    env = at(105);
    ngx_ratelimit_async_take(&lease, &limit, &env, 0, &answer, &ask);
    assert_int_equal(answer.remaining, 1);

    forgot_us = AT_US(106);
    assert_int_equal(spend(&lease, &limit, 107, &ask), PAID);
    debited(&lease, &limit, 109, 108, 1, said(1, 9, 90000, 0));

    env = at(110);
    ngx_ratelimit_async_take(&lease, &limit, &env, 0, &answer, &ask);
    assert_int_equal(answer.remaining, 9);
    assert_int_equal(spend(&lease, &limit, 111, &ask), PAID);
    assert_int_equal(spend(&lease, &limit, 112, &ask), PAID);
}


/* What was missing before is not owed afterwards, asked for or not. */

static void
test_owed(void **state)
{
    env_t     env;
    lease_t   lease, before;
    limit_t   limits[2];
    unsigned  i, n, ask;

    (void) state;

    limits[0] = bucket(10, 100);
    limits[1] = sliding(10, 100);

    for (i = 0; i < 2; i++) {
        memset(&lease, 0, sizeof(lease));
        forgot_us = 0;

        for (n = 0; n < 5; n++) {
            assert_int_equal(spend(&lease, &limits[i], 100, &ask), PAID);
        }

        debited(&lease, &limits[i], 101, 100, 5, said(2, 0, 90000, 9000));
        assert_int_equal(ngx_ratelimit_async_debt(&lease), 3);
        before = lease;

        /* who sweeps tells Redis nothing of it; of another moment it does */

        forgot_us = AT_US(100);
        env = at(210);
        assert_int_equal(ngx_ratelimit_async_due(&lease, &env), 1);

        lease = before;
        forgot_us = AT_US(102);
        env = at(210);
        assert_int_equal(ngx_ratelimit_async_due(&lease, &env), 0);
        assert_int_equal(ngx_ratelimit_async_debt(&lease), 0);

        /* nor who ends, nor who is told to ask by a request */

        lease = before;
        assert_int_equal(ngx_ratelimit_async_leave(&lease, &limits[i], &env),
                         0);

        lease = before;
        assert_int_equal(spend(&lease, &limits[i], 210, &ask), PAID);
        assert_int_equal(ask, 1);
        assert_int_equal(ngx_ratelimit_async_debt(&lease), 1);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup(test_denied, forget),
        cmocka_unit_test_setup(test_in_hand, forget),
        cmocka_unit_test_setup(test_told, forget),
        cmocka_unit_test_setup(test_told_in_hand, forget),
        cmocka_unit_test_setup(test_async, forget),
        cmocka_unit_test_setup(test_async_left, forget),
        cmocka_unit_test_setup(test_owed, forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sync=async: what a node decides at once, and debits behind. */

#include "lease.h"


static ngx_ratelimit_lease_e
spend(lease_t *lease, const limit_t *limit, int64_t ms, uint32_t cost,
    answer_t *answer, unsigned *ask)
{
    env_t                  env;
    answer_t               unused_answer;
    unsigned               unused;
    ngx_ratelimit_lease_e  rc;

    env = at(ms);
    answer = answer ? answer : &unused_answer;
    memset(answer, 0xa5, sizeof(*answer));

    rc = ngx_ratelimit_async_take(lease, limit, &env, cost, answer,
                                  ask ? ask : &unused);

    assert_true(rc == PAID || rc == DENIED);
    assert_true(answer->remaining <= limit->capacity);
    assert_true((rc == PAID) == (answer->granted == cost));
    assert_true((rc == PAID) == (answer->retry_us == 0));
    assert_true(rc == PAID || answer->remaining < cost
                || cost > limit->capacity);

    return rc;
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
test_fresh(void **state)
{
    size_t    i;
    lease_t   lease;
    limit_t   limits[] = { bucket(10, 1000), fixed(10, 60), sliding(10, 60) };
    answer_t  answer;
    unsigned  ask;

    (void) state;

    for (i = 0; i < 3; i++) {
        memset(&lease, 0, sizeof(lease));

        assert_int_equal(spend(&lease, &limits[i], 0, 4, &answer, &ask), PAID);
        assert_int_equal(ask, 1);
        assert_int_equal(answer.remaining, 6);
        assert_in_range(answer.reset_us, 1,
                        i ? limits[i].window_us : 400 * SECOND);

        /* one tells Redis; or in a second, another */

        assert_int_equal(spend(&lease, &limits[i], 0, 4, &answer, &ask), PAID);
        assert_int_equal(ask, 0);
        assert_int_equal(answer.remaining, 2);
        assert_in_range(answer.reset_us, 1,
                        i ? limits[i].window_us : 800 * SECOND);

        assert_int_equal(spend(&lease, &limits[i], 0, 4, &answer, &ask),
                         DENIED);
        assert_int_equal(answer.remaining, 2);
        assert_int_equal(ask, 0);
        assert_int_equal(spend(&lease, &limits[i], 0, 11, &answer, &ask),
                         DENIED);
        assert_true(answer.retry_us == NGX_RATELIMIT_NEVER);

        assert_int_equal(ngx_ratelimit_async_debt(&lease), 8);
        assert_int_equal(spend(&lease, &limits[i], 1001, 1, NULL, &ask), PAID);
        assert_int_equal(ask, 1);
    }
}


static void
test_debit(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;
    unsigned  ask;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));

    (void) spend(&lease, &limit, 0, 7, NULL, &ask);
    (void) spend(&lease, &limit, 1, 3, &answer, NULL);
    assert_int_equal(answer.remaining, 90);

    /* 7 are debited; 3 were spent meanwhile; others took 20 */

    debited(&lease, &limit, 2, 0, 7, said(7, 73, 30000, 0));
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 3);
    assert_int_equal(spend(&lease, &limit, 2, 1, &answer, &ask), PAID);
    assert_int_equal(answer.remaining, 69);
    assert_int_equal(ask, 0);

    /* each 100 ms, and when a share of what is left is spent */

    assert_int_equal(spend(&lease, &limit, 102, 1, NULL, &ask), PAID);
    assert_int_equal(ask, 1);
    debited(&lease, &limit, 103, 102, 5, said(5, 68, 29898, 0));
    assert_int_equal(spend(&lease, &limit, 103, 50, &answer, &ask), PAID);
    assert_int_equal(answer.remaining, 18);
    assert_int_equal(ask, 1);

    /* as much as was there: nobody is told that there is more again */

    debited(&lease, &limit, 104, 103, 50, said(20, 0, 29897, 0));
    assert_int_equal(spend(&lease, &limit, 104, 1, &answer, NULL), DENIED);
    assert_int_equal(answer.remaining, 0);
    assert_in_range(answer.retry_us, 29890000, 29897000);

    /* others give back */

    debited(&lease, &limit, 300, 299, 0, said(0, 60, 29700, 0));
    assert_int_equal(spend(&lease, &limit, 300, 1, &answer, NULL), DENIED);
    assert_int_equal(answer.remaining, 0);
}


static void
test_return_charge(void **state)
{
    env_t     env;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));
    env = at(1);

    (void) spend(&lease, &limit, 0, 7, NULL, NULL);
    assert_int_equal(ngx_ratelimit_async_return(&lease, &limit, &env, 3), 3);
    assert_int_equal(ngx_ratelimit_async_return(&lease, &limit, &env, 9), 4);
    assert_int_equal(ngx_ratelimit_async_charge(&lease, &limit, &env, 60), 60);
    assert_int_equal(ngx_ratelimit_async_charge(&lease, &limit, &env, 60), 40);
    assert_int_equal(spend(&lease, &limit, 2, 1, &answer, NULL), DENIED);
}


/* However much is charged before Redis answers, a spent window stays spent. */
static void
test_charge_often(void **state)
{
    env_t     env;
    size_t    i;
    lease_t   lease;
    limit_t   limit;

    (void) state;

    limit = fixed(NGX_RATELIMIT_MAX_TOKENS, 60);
    memset(&lease, 0, sizeof(lease));
    env = at(1);

    debited(&lease, &limit, 1, 0, 0, said(0, 0, 30000, 0));

    for (i = 0; i < 6; i++) {
        assert_int_equal(ngx_ratelimit_async_charge(&lease, &limit, &env,
                                                    NGX_RATELIMIT_MAX_TOKENS),
                         0);
        assert_int_equal(spend(&lease, &limit, 1, 1, NULL, NULL), DENIED);
    }
}


static void
test_window_ends(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    /* a fixed one is a fresh counter; what was spent in the old one is over */

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));
    debited(&lease, &limit, 0, 0, 0, said(0, 30, 1000, 0));
    assert_int_equal(spend(&lease, &limit, 990, 20, NULL, NULL), PAID);
    assert_int_equal(spend(&lease, &limit, 1000, 30, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 70);

    /* the debit of the old window is none of the new one's */

    debited(&lease, &limit, 1001, 990, 20, said(20, 10, 10, 0));
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 30);
    assert_int_equal(spend(&lease, &limit, 1001, 1, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 69);

    /* a sliding one goes on weighing */

    limit = sliding(100, 60);
    memset(&lease, 0, sizeof(lease));
    debited(&lease, &limit, 0, 0, 0, said(0, 5, 61000, 0));
    assert_int_equal(spend(&lease, &limit, 1200, 5, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 0);
    assert_int_equal(spend(&lease, &limit, 1200, 1, &answer, NULL), DENIED);
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 5);
}


/* A limit that changes, or depends on the request. */
static void
test_limit_changes(void **state)
{
    unsigned  i, paid;
    lease_t   lease;
    limit_t   limit, lower;
    answer_t  answer;

    (void) state;

    limit = fixed(100, 60);
    lower = fixed(40, 60);
    memset(&lease, 0, sizeof(lease));

    debited(&lease, &limit, 0, 0, 0, said(0, 80, 30000, 0));
    assert_int_equal(spend(&lease, &limit, 1, 5, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 75);

    /* 25 are used */

    assert_int_equal(spend(&lease, &lower, 1, 5, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 10);
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 10);
    assert_int_equal(spend(&lease, &limit, 1, 5, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 65);

    /* never without an end, though they alternate and nothing is answered */

    paid = 0;

    for (i = 0; i < 1000; i++) {
        paid += spend(&lease, i % 2 ? &limit : &lower, 2 + i, 1, NULL, NULL)
                == PAID;
    }

    assert_in_range(paid, 30, 65);

    /* nor where what is spent is never debited quite */

    memset(&lease, 0, sizeof(lease));
    debited(&lease, &limit, 0, 0, 0, said(0, 80, 30000, 0));
    (void) spend(&lease, &limit, 1, 5, NULL, NULL);

    for (i = 0; i < 20; i++) {
        (void) spend(&lease, &lower, 2 + i, 2, NULL, NULL);
        debited(&lease, &lower, 2 + i, 2 + i, 2,
                said(2, i < 10 ? 20 - 2 * i : 0, 29990, 0));
    }

    assert_int_equal(spend(&lease, &lower, 30, 1, NULL, NULL), DENIED);
}


/* What sync=lease has in hand is no debt, nor the other way round. */
static void
test_sync_changes(void **state)
{
    lease_t   lease;
    limit_t   limit;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));

    assert_true(fill(&lease, &limit, 0, 1, said(5, 80, 30000, 0)));
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 0);
    assert_int_equal(spend(&lease, &limit, 1, 7, NULL, NULL), PAID);
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 7);

    assert_int_equal(take(&lease, &limit, 2, 1, NULL), ASK);
    assert_int_equal(sweep(&lease, &limit, 2, 1), 0);
}


/* Silence, with Redis away: what was spent stays spent. */
static void
test_not_forgotten(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));

    debited(&lease, &limit, 0, 0, 0, said(0, 80, 30000, 0));
    assert_int_equal(spend(&lease, &limit, 1, 60, &answer, NULL), PAID);
    assert_int_equal(spend(&lease, &limit, 5000, 1, &answer, NULL), PAID);
    assert_int_equal(answer.remaining, 19);
    assert_int_equal(ngx_ratelimit_async_debt(&lease), 61);
}


/*
 * Redis away for long: each node goes on alone, with its limit, from what it
 * knew or from a full one. Two are sent where one is admitted.
 */
static void
test_alone(void **state)
{
    size_t    i, known;
    int64_t   ms;
    lease_t   lease;
    limit_t   limits[] = { bucket(20, 1), fixed(20, 1), sliding(20, 1),
                           limit_of(NGX_RATELIMIT_TOKEN_BUCKET, 2000,
                                    100 * SECOND) };
    uint32_t  paid;

    (void) state;

    for (i = 0; i < 4; i++) {
        for (known = 0; known < 2; known++) {
            memset(&lease, 0, sizeof(lease));

            if (known) {
                debited(&lease, &limits[i], 0, 0, 0,
                        said(0, 0, i == 3 ? 100000 : 1000, 0));
            }

            paid = 0;

            for (ms = 0; ms < 20000; ms += 25) {
                paid += spend(&lease, &limits[i], ms, 1, NULL, NULL) == PAID;
            }

            /* the last has a capacity that does not fill up meanwhile */

            if (i == 3 && !known) {
                assert_int_equal(paid, 800);
                continue;
            }

            assert_in_range(paid, 340, 420);
        }
    }
}


static unsigned
is_due(lease_t *lease, int64_t ms)
{
    env_t  env;

    env = at(ms);

    return ngx_ratelimit_async_due(lease, &env);
}


/* Whoever tells Redis tells it for all workers; in vain, once more soon. */
static void
test_told_once(void **state)
{
    env_t     env;
    lease_t   lease;
    limit_t   limits[] = { bucket(1000, 10), fixed(1000, 10) };
    size_t    i;
    answer_t  answer;
    unsigned  ask;

    (void) state;

    for (i = 0; i < 2; i++) {
        memset(&lease, 0, sizeof(lease));
        assert_int_equal(is_due(&lease, 0), 0);

        assert_int_equal(spend(&lease, &limits[i], 0, 7, NULL, &ask), PAID);
        assert_int_equal(ask, 1);
        assert_int_equal(is_due(&lease, 50), 0);

        debited(&lease, &limits[i], 60, 0, 7, said(7, 900, 1000, 0));
        assert_int_equal(is_due(&lease, 60), 0);
        assert_int_equal(spend(&lease, &limits[i], 61, 3, NULL, &ask), PAID);
        assert_int_equal(ask, 0);
        assert_int_equal(is_due(&lease, 100), 1);
        assert_int_equal(is_due(&lease, 101), 0);

        ngx_ratelimit_async_failed(&lease, AT_US(110));
        assert_int_equal(is_due(&lease, 150), 0);
        assert_int_equal(is_due(&lease, 210), 1);

        /* no answer at all */

        (void) spend(&lease, &limits[i], 900, 0, NULL, NULL);
        assert_int_equal(is_due(&lease, 1209), 0);
        assert_int_equal(is_due(&lease, 1210), 1);

        /* workers that end: one tells it, and it stays spent */

        env = at(1211);
        assert_int_equal(ngx_ratelimit_async_leave(&lease, &limits[i], &env),
                         0);
        debited(&lease, &limits[i], 1212, 1210, 3, said(3, 500, 5000, 0));
        assert_int_equal(spend(&lease, &limits[i], 1213, 20, NULL, NULL),
                         PAID);

        env = at(1214);
        assert_int_equal(ngx_ratelimit_async_leave(&lease, &limits[i], &env),
                         20);
        assert_int_equal(ngx_ratelimit_async_leave(&lease, &limits[i], &env),
                         0);
        assert_int_equal(spend(&lease, &limits[i], 1215, 1, &answer, NULL),
                         PAID);
        assert_in_range(answer.remaining, 479, 480);
    }
}


/* The moment that a denial names is one that pays. */
static void
test_retry(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = bucket(7, 60);
    memset(&lease, 0, sizeof(lease));

    debited(&lease, &limit, 0, 0, 0, said(0, 3, 30000, 0));
    assert_int_equal(spend(&lease, &limit, 1, 2, NULL, NULL), PAID);
    assert_int_equal(spend(&lease, &limit, 2, 5, &answer, NULL), DENIED);
    assert_int_equal(spend(&lease, &limit, 2 + answer.retry_us / 1000 + 1, 5,
                           &answer, NULL), PAID);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_fresh),
        cmocka_unit_test(test_debit),
        cmocka_unit_test(test_return_charge),
        cmocka_unit_test(test_charge_often),
        cmocka_unit_test(test_window_ends),
        cmocka_unit_test(test_limit_changes),
        cmocka_unit_test(test_sync_changes),
        cmocka_unit_test(test_not_forgotten),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_told_once),
        cmocka_unit_test(test_retry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

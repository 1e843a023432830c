/* Leases: what comes back to one, what is charged, what goes back to Redis. */

#include "lease.h"


static uint32_t
give(lease_t *lease, const limit_t *limit, int64_t ms, int64_t taken,
    uint32_t tokens)
{
    env_t  env;

    env = at(ms);

    return ngx_ratelimit_lease_return(lease, limit, &env, AT_US(taken),
                                      tokens);
}


static void
test_return(void **state)
{
    lease_t   lease;
    limit_t   window, other, tokens, quick;

    (void) state;

    window = fixed(100, 60);
    other = fixed(200, 60);
    tokens = bucket(100, 60);
    quick = limit_of(NGX_RATELIMIT_TOKEN_BUCKET, 100, 50000);

    memset(&lease, 0, sizeof(lease));
    assert_int_equal(give(&lease, &window, 10, 5, 1), 0);

    assert_true(fill(&lease, &window, 100, 1, said(5, 20, 900, 0)));
    assert_int_equal(take(&lease, &window, 110, 4, NULL), PAID);
    assert_int_equal(give(&lease, &window, 120, 110, 4), 4);
    assert_int_equal(lease.tokens, 5);
    assert_int_equal(give(&lease, &other, 120, 110, 4), 0);

    /* what was paid before there was this lease is another window's */

    assert_int_equal(give(&lease, &window, 120, 99, 1), 0);

    /* and behind the end this one's, too */

    assert_int_equal(take(&lease, &window, 120, 4, NULL), PAID);
    assert_int_equal(give(&lease, &window, 1001, 120, 4), 0);
    assert_true(fill(&lease, &window, 1002, 1, said(5, 20, 59998, 0)));
    assert_int_equal(give(&lease, &window, 1010, 120, 4), 0);
    assert_int_equal(give(&lease, &window, 1010, 999, 4), 0);
    assert_int_equal(lease.tokens, 5);

    /* never more than the limit, however many */

    assert_int_equal(give(&lease, &window, 1010, 1005, 96), 0);
    assert_int_equal(give(&lease, &window, 1010, 1005, UINT32_MAX), 0);
    assert_int_equal(give(&lease, &window, 1010, 1005, 95), 95);

    /* a bucket's that have come back by themselves */

    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &tokens, 0, 1, said(5, 20, 45000, 0)));
    assert_int_equal(give(&lease, &tokens, 2, 0, 4), 4);
    assert_int_equal(give(&lease, &tokens, 2000, 0, 4), 0);

    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &quick, 0, 1, said(5, 20, 40, 0)));
    assert_int_equal(give(&lease, &quick, 40, 0, 4), 4);
    assert_int_equal(give(&lease, &quick, 60, 0, 4), 0);
}


static void
test_charge(void **state)
{
    env_t    env;
    lease_t  lease;
    limit_t  limit, other;

    (void) state;

    limit = fixed(100, 60);
    other = fixed(200, 60);
    memset(&lease, 0, sizeof(lease));
    env = at(1);

    assert_int_equal(ngx_ratelimit_lease_charge(&lease, &limit, &env, 7), 0);
    assert_true(fill(&lease, &limit, 0, 1, said(5, 20, 900, 0)));
    assert_int_equal(ngx_ratelimit_lease_charge(&lease, &other, &env, 7), 0);
    assert_int_equal(ngx_ratelimit_lease_charge(&lease, &limit, &env, 3), 3);
    assert_int_equal(ngx_ratelimit_lease_charge(&lease, &limit, &env, 7), 2);
    assert_int_equal(ngx_ratelimit_lease_charge(&lease, &limit, &env, 7), 0);
}


/* What goes back is left as it was in hand. */
static void
test_sweep_tells_the_same(void **state)
{
    size_t    i;
    lease_t   lease;
    limit_t   limits[] = { bucket(10000, 36000), fixed(10000, 60),
                           sliding(10000, 60) };
    uint32_t  back;
    answer_t  answer;

    static const uint32_t  reset_ms[] = { 21600001, 30000, 90000 };

    (void) state;

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        memset(&lease, 0, sizeof(lease));

        demand(&lease, &limits[i], 0, 600, 4);
        assert_true(fill(&lease, &limits[i], 600, 1,
                         said(5000, 4000, reset_ms[i], 0)));
        assert_int_equal(take(&lease, &limits[i], 600, 1, &answer), PAID);
        assert_int_equal(answer.remaining, 8999);

        back = sweep(&lease, &limits[i], 601, 0);
        assert_in_range(back, 3900, 4700);
        assert_int_equal(back + lease.tokens, 4999);
        assert_int_equal(take(&lease, &limits[i], 602, 1, &answer), PAID);
        assert_int_equal(answer.remaining, 8998);
    }
}


static void
test_sweep(void **state)
{
    lease_t   lease;
    limit_t   limit;
    uint32_t  back;

    (void) state;

    limit = fixed(10000, 60);
    memset(&lease, 0, sizeof(lease));

    /* what the demand does not need */

    demand(&lease, &limit, 0, 600, 4);
    assert_true(fill(&lease, &limit, 600, 1, said(5000, 4000, 30000, 0)));
    assert_int_equal(take(&lease, &limit, 600, 1, NULL), PAID);

    back = sweep(&lease, &limit, 601, 0);
    assert_in_range(back, 3900, 4700);
    assert_int_equal(back + lease.tokens, 4999);
    assert_int_equal(take(&lease, &limit, 602, 1, NULL), PAID);

    /* all when there was none for 100 ms, also where each worker sweeps */

    back = lease.tokens;
    back -= sweep(&lease, &limit, 660, 0);
    back -= sweep(&lease, &limit, 710, 0);
    assert_true(lease.tokens > 0);
    assert_int_equal(sweep(&lease, &limit, 760, 0), back);
    assert_int_equal(lease.tokens, 0);
    assert_int_equal(sweep(&lease, &limit, 800, 0), 0);

    /* the worker ends */

    demand(&lease, &limit, 800, 1300, 4);
    assert_true(fill(&lease, &limit, 1300, 1, said(50, 400, 29300, 0)));
    assert_int_equal(sweep(&lease, &limit, 1300, 0), 0);
    assert_int_equal(sweep(&lease, &limit, 1300, 1), 50);

    /* forgotten: nothing is to be given back twice */

    assert_true(fill(&lease, &limit, 1400, 1, said(50, 400, 29300, 0)));
    assert_int_equal(sweep(&lease, &limit, 60000, 1), 0);
}


static void
test_limit_changes(void **state)
{
    env_t     env;
    ask_t     ask;
    lease_t   lease;
    limit_t   before, now;
    answer_t  answer;

    (void) state;

    before = fixed(100, 60);
    now = fixed(10, 60);
    memset(&lease, 0, sizeof(lease));

    assert_true(fill(&lease, &before, 0, 1, said(5, 80, 30000, 0)));

    /* its tokens stay its own */

    assert_int_equal(take(&lease, &now, 1, 1, NULL), ASK);
    env = at(1);
    assert_false(ngx_ratelimit_lease_pay(&lease, &now, &env, 1, &answer));
    assert_false(fill(&lease, &now, 1, 1, said(1, 3, 30000, 0)));
    assert_int_equal(sweep(&lease, &now, 1, 0), 0);
    ngx_ratelimit_lease_size(&lease, &now, &env, 1, 2, &ask);
    assert_int_equal(ask.cost, 1);
    assert_int_equal(ask.want, 2);
    assert_int_equal(ask.ahead, 0);
    assert_int_equal(take(&lease, &before, 2, 1, NULL), PAID);

    /* until they have gone back, under their own limit */

    assert_int_equal(ngx_ratelimit_lease_stale(&lease, &now, &env), 0);
    assert_int_equal(sweep(&lease, &before, 3, 1), 4);
    assert_int_equal(take(&lease, &now, 3, 1, NULL), ASK);
    assert_true(fill(&lease, &now, 3, 1, said(2, 3, 30000, 0)));
    assert_int_equal(take(&lease, &now, 3, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 4);

    /* a denial is of its limit */

    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &now, 0, 1, said(0, 0, 30000, 30000)));
    assert_int_equal(take(&lease, &now, 1, 1, NULL), DENIED);
    assert_int_equal(take(&lease, &before, 1, 1, NULL), ASK);

    /* and all goes back, whose ever it is */

    assert_true(fill(&lease, &before, 1, 1, said(5, 80, 30000, 0)));
    assert_int_equal(sweep(&lease, &now, 2, 1), 5);
}


/* The demand of one limit keeps nothing in hand of another. */
static void
test_limits_mixed(void **state)
{
    int64_t   ms;
    lease_t   lease;
    limit_t   one, other;
    uint32_t  back;

    (void) state;

    one = bucket(10000, 10);
    other = bucket(100, 10);
    memset(&lease, 0, sizeof(lease));

    demand(&lease, &one, 0, 600, 4);
    assert_true(fill(&lease, &one, 600, 1, said(500, 4000, 5000, 0)));

    back = 0;

    for (ms = 601; ms < 1500; ms++) {
        assert_int_equal(take(&lease, &other, ms, 1, NULL), ASK);

        if (ms % 100 == 0) {
            back += sweep(&lease, &one, ms, 0);
        }
    }

    assert_in_range(back, 450, 500);

    /* a worker that was killed would have given them back */

    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &one, 0, 1, said(500, 4000, 5000, 0)));

    for (ms = 1; ms < 1000; ms++) {
        assert_int_equal(take(&lease, &other, ms, 1, NULL), ASK);
        assert_int_equal(lease.tokens, 500);
    }

    assert_int_equal(take(&lease, &other, 1000, 1, NULL), ASK);
    assert_int_equal(lease.tokens, 0);
    assert_true(fill(&lease, &other, 1000, 1, said(2, 3, 9500, 0)));
    assert_int_equal(take(&lease, &other, 1001, 1, NULL), PAID);
}


/* What nobody gives back since its worker was killed, who spends of it does. */
static void
test_nobody_sweeps(void **state)
{
    env_t     env;
    int64_t   ms;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;
    unsigned  ahead, told;

    (void) state;

    limit = fixed(10000, 60);
    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &limit, 0, 1, said(500, 4000, 30000, 0)));

    told = 0;

    for (ms = 100; ms <= 2500; ms += 100) {
        env = at(ms);
        assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1,
                                                  &answer, &ahead), PAID);
        assert_true(ahead == 0 || ms >= 1000);
        told += ahead;
    }

    /* not each of them: who is told does something */

    assert_int_equal(told, 2);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_return),
        cmocka_unit_test(test_charge),
        cmocka_unit_test(test_sweep_tells_the_same),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_limit_changes),
        cmocka_unit_test(test_limits_mixed),
        cmocka_unit_test(test_nobody_sweeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

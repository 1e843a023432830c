/* Leases: who is paid, who is denied, when Redis is asked, for how much. */

#include "lease.h"


static void
test_place(void **state)
{
    (void) state;

    /* ngx_ratelimit_leases.h: what a place has, and reads */

    assert_true(sizeof(lease_t) <= 64);
    assert_int_equal(offsetof(lease_t, busy_us), 0);
}


static void
test_paid_in_hand(void **state)
{
    limit_t   limits[] = { bucket(100, 3600), fixed(100, 60),
                           sliding(100, 60),
                           limit_of(NGX_RATELIMIT_LEAKY_BUCKET, 100,
                                    3600 * SECOND) };
    lease_t   lease;
    answer_t  answer;
    size_t    i;

    (void) state;

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        memset(&lease, 0, sizeof(lease));

        assert_int_equal(take(&lease, &limits[i], 0, 1, NULL), ASK);

        /* used 20 of 100: reset is of a bucket's that, of a window's any */

        assert_true(fill(&lease, &limits[i], 1, 1,
                         said(10, 80, i == 0 || i == 3 ? 720000 : 100000,
                              0)));

        assert_int_equal(take(&lease, &limits[i], 2, 3, &answer), PAID);
        assert_int_equal(answer.remaining, 87);
        assert_int_equal(take(&lease, &limits[i], 2, 7, &answer), PAID);
        assert_int_equal(answer.remaining, 80);
        assert_int_equal(take(&lease, &limits[i], 2, 1, NULL), ASK);
    }
}


static void
test_too_few_in_hand(void **state)
{
    env_t    env;
    ask_t    ask;
    lease_t  lease;
    limit_t  limit;

    (void) state;

    memset(&lease, 0, sizeof(lease));
    limit = fixed(100, 60);

    assert_true(fill(&lease, &limit, 0, 1, said(3, 50, 30000, 0)));
    assert_int_equal(take(&lease, &limit, 1, 5, NULL), ASK);
    assert_int_equal(lease.tokens, 3);

    /* those in hand pay their part */

    env = at(1);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 5, 9, &ask);
    assert_int_equal(ask.cost, 2);
    assert_int_equal(ask.want, 6);

    assert_true(fill(&lease, &limit, 2, 2, said(6, 44, 29998, 0)));
    assert_int_equal(take(&lease, &limit, 2, 9, NULL), PAID);
}


static void
test_pay(void **state)
{
    env_t     env;
    lease_t   lease;
    limit_t   limit, other;
    answer_t  answer;
    uint32_t  count;

    (void) state;

    memset(&lease, 0, sizeof(lease));
    limit = fixed(100, 60);
    other = fixed(200, 60);

    assert_true(fill(&lease, &limit, 0, 1, said(5, 50, 30000, 0)));
    count = lease.count;

    env = at(1);
    assert_true(ngx_ratelimit_lease_pay(&lease, &limit, &env, 3, &answer));
    assert_int_equal(answer.granted, 3);
    assert_int_equal(answer.remaining, 52);
    assert_false(ngx_ratelimit_lease_pay(&lease, &limit, &env, 3, &answer));
    assert_false(ngx_ratelimit_lease_pay(&lease, &other, &env, 1, &answer));

    /* no demand of its own */

    assert_int_equal(lease.count, count);
}


/* What a counter takes in about 100 ms is what a lease is for. */
static void
test_size(void **state)
{
    env_t    env;
    ask_t    ask;
    lease_t  lease;
    limit_t  limit;

    (void) state;

    limit = bucket(100000, 10);

    /* without a place: what waits alone */

    env = at(0);
    ngx_ratelimit_lease_size(NULL, &limit, &env, 2, 7, &ask);
    assert_int_equal(ask.cost, 2);
    assert_int_equal(ask.want, 7);
    assert_int_equal(ask.ahead, 0);

    /* too slow */

    memset(&lease, 0, sizeof(lease));
    demand(&lease, &limit, 0, 1, 1);
    demand(&lease, &limit, 500, 501, 1);

    env = at(600);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 2, 7, &ask);
    assert_int_equal(ask.cost, 2);
    assert_int_equal(ask.want, 7);
    assert_int_equal(ask.ahead, 0);

    /* 4 in each ms, over the wrap of 32 bits */

    memset(&lease, 0, sizeof(lease));
    demand(&lease, &limit, 0, 1400, 4);

    env = at(1400);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 1, 1, &ask);
    assert_in_range(ask.ahead, 350, 600);
    assert_true(ask.share >= 1);

    /* silence */

    env = at(3000);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 1, 1, &ask);
    assert_int_equal(ask.ahead, 0);
}


/* A worker reads the clock once an event: others may be a little ahead. */
static void
test_clocks_of_workers(void **state)
{
    env_t     env;
    ask_t     one, two;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;
    unsigned  ahead;

    (void) state;

    limit = bucket(100000, 10);
    memset(&lease, 0, sizeof(lease));

    demand(&lease, &limit, 0, 700, 4);
    env = at(700);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 1, 1, &one);

    /* 700 began a tick */

    (void) take(&lease, &limit, 697, 1, NULL);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 1, 1, &two);
    assert_true(one.ahead > 100);
    assert_int_equal(two.ahead, one.ahead);

    /* asked ahead, denied: for others, too */

    assert_true(fill(&lease, &limit, 700, 1, said(3, 90000, 1000, 0)));
    env = at(720);
    assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1, &answer,
                                              &ahead), PAID);
    assert_int_equal(ahead, 1);
    env = at(718);
    assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1, &answer,
                                              &ahead), PAID);
    assert_int_equal(ahead, 0);

    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &limit, 700, 1, said(0, 0, 10000, 500)));
    assert_int_equal(take(&lease, &limit, 697, 1, &answer), DENIED);
    assert_true(answer.retry_us <= 502000);
}


static void
test_ahead_once(void **state)
{
    int       told;
    env_t     env;
    ask_t     ask;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;
    int64_t   ms;
    unsigned  ahead;

    (void) state;

    limit = bucket(1000000, 10);
    memset(&lease, 0, sizeof(lease));

    /* a slow counter never */

    assert_true(fill(&lease, &limit, 0, 1, said(2, 9000, 1000, 0)));
    env = at(0);
    assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1, &answer,
                                              &ahead), PAID);
    assert_int_equal(ahead, 0);

    demand(&lease, &limit, 1, 500, 4);

    /* plenty in hand; then almost nothing: one is told, in each second */

    assert_true(fill(&lease, &limit, 500, 1, said(20000, 9000, 1000, 0)));
    env = at(520);
    assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1, &answer,
                                              &ahead), PAID);
    assert_int_equal(ahead, 0);

    lease.tokens = 4500;
    told = 0;

    for (ms = 520; ms < 1610; ms++) {
        lease.tokens = 5;
        env = at(ms);
        assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 4,
                                                  &answer, &ahead), PAID);
        assert_true(ahead == 0 || ms == 520 || ms == 1520);
        told += ahead;
    }

    assert_int_equal(told, 2);

    /* once it has been answered, or has failed, soon again */

    env = at(1610);
    ngx_ratelimit_lease_size(&lease, &limit, &env, 0, 0, &ask);
    assert_int_equal(ask.cost, 0);
    assert_int_equal(ask.want, 0);
    assert_true(ask.ahead > 0);

    ngx_ratelimit_lease_failed(&lease);
    lease.tokens = 5;
    env = at(1700);
    assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1, &answer,
                                              &ahead), PAID);
    assert_int_equal(ahead, 1);
}


/* What was denied once is no reason not to ask, of a small counter neither. */
static void
test_ahead_of_small(void **state)
{
    env_t     env;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;
    unsigned  ahead;

    (void) state;

    limit = limit_of(NGX_RATELIMIT_TOKEN_BUCKET, 10, 10000);
    memset(&lease, 0, sizeof(lease));

    demand(&lease, &limit, 0, 500, 1);
    assert_true(fill(&lease, &limit, 500, 9, said(0, 8, 2, 1)));
    assert_true(fill(&lease, &limit, 520, 1, said(3, 7, 3, 0)));

    env = at(540);
    assert_int_equal(ngx_ratelimit_lease_take(&lease, &limit, &env, 1, &answer,
                                              &ahead), PAID);
    assert_int_equal(ahead, 1);
}


static void
test_denied(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = bucket(100, 100);       /* one a second */
    memset(&lease, 0, sizeof(lease));

    assert_int_equal(take(&lease, &limit, 0, 2, NULL), ASK);
    assert_true(fill(&lease, &limit, 1, 2, said(0, 1, 99000, 1000)));

    assert_int_equal(take(&lease, &limit, 1, 2, &answer), DENIED);
    assert_in_range(answer.retry_us, 1000000, 1002000);
    assert_int_equal(answer.remaining, 1);

    /* for a part of that, Redis may have it */

    assert_int_equal(take(&lease, &limit, 1, 1, NULL), ASK);

    /* more of it comes a token a second */

    assert_int_equal(take(&lease, &limit, 401, 5, &answer), DENIED);
    assert_in_range(answer.retry_us, 3600000, 3603000);

    assert_int_equal(take(&lease, &limit, 1000, 2, &answer), DENIED);
    assert_in_range(answer.retry_us, 1, 2000);

    assert_int_equal(take(&lease, &limit, 1200, 2, NULL), ASK);

    /* a grant ends it */

    assert_true(fill(&lease, &limit, 1200, 2, said(0, 1, 99000, 1000)));
    assert_int_equal(take(&lease, &limit, 1200, 2, NULL), DENIED);
    assert_true(fill(&lease, &limit, 1200, 1, said(1, 20, 80000, 0)));
    assert_int_equal(take(&lease, &limit, 1200, 2, NULL), ASK);
}


/* What is in hand counts for who could not be paid. */
static void
test_denied_with_tokens(void **state)
{
    lease_t   lease;
    limit_t   limit;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));

    assert_true(fill(&lease, &limit, 0, 1, said(3, 1, 30000, 0)));

    /* 5 are wanted, 2 asked for, 1 is there */

    assert_true(fill(&lease, &limit, 1, 2, said(0, 1, 30000, 30000)));

    assert_int_equal(take(&lease, &limit, 2, 5, NULL), DENIED);
    assert_int_equal(take(&lease, &limit, 2, 4, NULL), ASK);
    assert_int_equal(take(&lease, &limit, 2, 2, NULL), PAID);
    assert_int_equal(take(&lease, &limit, 2, 3, NULL), DENIED);
    assert_int_equal(take(&lease, &limit, 2, 1, NULL), PAID);
}


static void
test_never(void **state)
{
    size_t    i;
    lease_t   lease;
    limit_t   limits[] = { bucket(10, 1), fixed(10, 60), sliding(10, 60) };
    answer_t  answer;

    (void) state;

    for (i = 0; i < 3; i++) {
        memset(&lease, 0, sizeof(lease));

        /* what is left, Redis has to say */

        assert_int_equal(take(&lease, &limits[i], 0, 11, NULL), ASK);
        answer = said(0, 7, 65000, 0);
        answer.retry_us = NGX_RATELIMIT_NEVER;
        assert_true(fill(&lease, &limits[i], 1, 11, answer));

        assert_int_equal(take(&lease, &limits[i], 50, 11, &answer), DENIED);
        assert_true(answer.retry_us == NGX_RATELIMIT_NEVER);

        /* and is no denial of less */

        assert_int_equal(take(&lease, &limits[i], 50, 10, NULL), ASK);
    }
}


/* Others give back what they do not need: it is asked once more. */
static void
test_window_denied_twice(void **state)
{
    env_t     env;
    ask_t     ask;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));

    assert_true(fill(&lease, &limit, 0, 1, said(0, 0, 30000, 30000)));
    assert_int_equal(take(&lease, &limit, 50, 1, &answer), DENIED);
    assert_in_range(answer.retry_us, 29949000, 29952000);

    /* the other worker's call was under way at the time: the same denial */

    env = at(50);
    memset(&ask, 0, sizeof(ask));
    ask.cost = ask.want = 1;
    answer = said(0, 0, 30001, 30001);
    assert_true(ngx_ratelimit_lease_fill(&lease, &limit, &env, AT_US(-1), &ask,
                                         &answer));

    assert_int_equal(take(&lease, &limit, 300, 1, NULL), ASK);

    assert_true(fill(&lease, &limit, 301, 1, said(0, 0, 29699, 29699)));
    assert_int_equal(take(&lease, &limit, 20000, 1, &answer), DENIED);
    assert_in_range(answer.retry_us, 9999000, 10002000);

    /* remembered until the window ends, also where nobody came */

    assert_int_equal(take(&lease, &limit, 29990, 1, NULL), DENIED);
    assert_int_equal(take(&lease, &limit, 30001, 1, NULL), ASK);
}


/* A window that has counted nothing yet denies by its predecessor. */
static void
test_sliding_denied(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = sliding(10, 60);
    memset(&lease, 0, sizeof(lease));

    /* 50 seconds before its end; the predecessor was full */

    assert_true(fill(&lease, &limit, 0, 2, said(0, 1, 50000, 2000)));
    assert_int_equal(take(&lease, &limit, 5, 2, &answer), DENIED);
    assert_in_range(answer.retry_us, 1994000, 1997000);

    /* for more, what Redis said is no promise */

    assert_int_equal(take(&lease, &limit, 5, 9, &answer), DENIED);
    assert_in_range(answer.retry_us, 49990000, 50000000);
    assert_int_equal(take(&lease, &limit, 5, 1, NULL), ASK);

    /* one that has counted lasts on as its successor's predecessor */

    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &limit, 0, 1, said(3, 0, 60100, 0)));
    assert_int_equal(take(&lease, &limit, 98, 1, NULL), PAID);
    assert_int_equal(take(&lease, &limit, 101, 1, NULL), ASK);
}


static void
test_window_ends(void **state)
{
    env_t     env;
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    /* a fixed one's tokens are worth nothing; nothing is to be given back */

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &limit, 0, 1, said(20, 30, 1000, 0)));

    assert_int_equal(take(&lease, &limit, 990, 1, NULL), PAID);
    assert_int_equal(take(&lease, &limit, 1000, 1, NULL), ASK);
    assert_int_equal(sweep(&lease, &limit, 1000, 1), 0);

    env = at(1001);
    assert_false(ngx_ratelimit_lease_pay(&lease, &limit, &env, 1, &answer));

    /* a sliding one's go back */

    limit = sliding(100, 60);
    memset(&lease, 0, sizeof(lease));
    assert_true(fill(&lease, &limit, 0, 1, said(20, 30, 61000, 0)));

    assert_int_equal(take(&lease, &limit, 990, 1, NULL), PAID);
    assert_int_equal(take(&lease, &limit, 1000, 1, NULL), ASK);
    env = at(1001);
    assert_int_equal(ngx_ratelimit_lease_charge(&lease, &limit, &env, 5), 0);
    assert_int_equal(ngx_ratelimit_lease_stale(&lease, &limit, &env), 19);
    assert_int_equal(ngx_ratelimit_lease_stale(&lease, &limit, &env), 0);
}


/* A reply that comes when its window is over is for who waits alone. */
static void
test_late_answer(void **state)
{
    size_t    i;
    env_t     env;
    ask_t     ask;
    lease_t   lease;
    limit_t   limits[] = { fixed(100, 1), sliding(100, 1) };
    answer_t  answer;

    (void) state;

    memset(&ask, 0, sizeof(ask));
    ask.cost = ask.want = 1;

    for (i = 0; i < 2; i++) {
        memset(&lease, 0, sizeof(lease));
        answer = said(9, 50, i ? 1030 : 30, 0);

        env = at(10);
        assert_true(ngx_ratelimit_lease_fill(&lease, &limits[i], &env,
                                             AT_US(0), &ask, &answer));

        env = at(40);
        assert_false(ngx_ratelimit_lease_fill(&lease, &limits[i], &env,
                                              AT_US(0), &ask, &answer));
        assert_int_equal(take(&lease, &limits[i], 40, 1, NULL), ASK);
    }

    /* of a bucket there is nothing that ends */

    limits[0] = bucket(1000, 1);
    memset(&lease, 0, sizeof(lease));
    env = at(5000);
    answer = said(9, 50, 30, 0);
    assert_true(ngx_ratelimit_lease_fill(&lease, &limits[0], &env, AT_US(0),
                                         &ask, &answer));
    assert_int_equal(take(&lease, &limits[0], 5000, 9, NULL), PAID);
}


/* Within a fixed window; and as soon as less is left that is what is told. */
static void
test_remaining_never_rises(void **state)
{
    lease_t   lease;
    limit_t   limit;
    answer_t  answer;

    (void) state;

    limit = fixed(100, 60);
    memset(&lease, 0, sizeof(lease));

    assert_true(fill(&lease, &limit, 0, 1, said(5, 20, 5000, 0)));
    assert_int_equal(take(&lease, &limit, 1, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 24);

    /* others gave back; somebody gave back all */

    assert_true(fill(&lease, &limit, 2, 1, said(5, 50, 4998, 0)));
    assert_int_equal(take(&lease, &limit, 3, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 24);

    assert_int_equal(sweep(&lease, &limit, 100, 1), 8);
    (void) fill(&lease, &limit, 101, 0, said(0, 100, 0, 0));
    assert_true(fill(&lease, &limit, 102, 1, said(5, 95, 4898, 0)));
    assert_int_equal(take(&lease, &limit, 103, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 24);

    /* a second of silence */

    assert_true(fill(&lease, &limit, 3000, 1, said(1, 90, 2000, 0)));
    assert_int_equal(take(&lease, &limit, 3000, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 24);

    assert_true(fill(&lease, &limit, 3001, 1, said(1, 22, 1999, 0)));
    assert_int_equal(take(&lease, &limit, 3001, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 22);

    /* another window */

    assert_true(fill(&lease, &limit, 5001, 1, said(1, 90, 59999, 0)));
    assert_int_equal(take(&lease, &limit, 5001, 1, &answer), PAID);
    assert_int_equal(answer.remaining, 90);
}


/* Of two calls that were under way at a time the later answer comes first. */
static void
test_answers_cross(void **state)
{
    size_t    i;
    lease_t   lease;
    limit_t   limits[] = { bucket(100, 3600), fixed(100, 60),
                           sliding(100, 60) };
    answer_t  answer;

    /* of a bucket each token is 36 s */

    static const uint32_t  reset_ms[][3] = {
        { 720001, 1440001, 1800001 },
        { 30000, 30000, 30000 },
        { 90000, 90000, 90000 }
    };

    (void) state;

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        memset(&lease, 0, sizeof(lease));

        assert_true(fill(&lease, &limits[i], 1, 1,
                         said(20, 60, reset_ms[i][1], 0)));
        assert_true(fill(&lease, &limits[i], 1, 1,
                         said(20, 80, reset_ms[i][0], 0)));
        assert_int_equal(take(&lease, &limits[i], 1, 1, &answer), PAID);
        assert_int_equal(answer.remaining, 99);

        /* of a call that was sent behind them all is believed */

        assert_true(fill(&lease, &limits[i], 2, 1,
                         said(1, 50, reset_ms[i][2], 0)));
        assert_int_equal(take(&lease, &limits[i], 2, 1, &answer), PAID);
        assert_int_equal(answer.remaining, 89);
    }
}


/* Whatever Redis says, nobody is told more than the limit, or below 0. */
static void
test_garbage(void **state)
{
    size_t    i;
    lease_t   lease;
    limit_t   limits[] = { bucket(1u << 30, 1), fixed(1u << 30, 60),
                           sliding(1000, 60) };
    answer_t  answer;

    (void) state;

    for (i = 0; i < 3; i++) {
        memset(&lease, 0, sizeof(lease));

        (void) fill(&lease, &limits[i], 0, 1,
                    said(1u << 30, 1u << 30, 90000, 0));
        (void) fill(&lease, &limits[i], 1, 1,
                    said(1u << 30, 1u << 30, 90000, 0));

        assert_true(lease.tokens <= limits[i].capacity);
        assert_int_equal(take(&lease, &limits[i], 1, 1, &answer), PAID);

        (void) fill(&lease, &limits[i], 2, 1, said(0, 0, 90000, 0));
        assert_int_equal(take(&lease, &limits[i], 2, 1, &answer), PAID);
        (void) take(&lease, &limits[i], 5000, 1, &answer);
        assert_true(fill(&lease, &limits[i], 5000, 1,
                         said(1, 1u << 30, 90000, 0)));
        assert_int_equal(take(&lease, &limits[i], 5000, 1, &answer), PAID);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_paid_in_hand),
        cmocka_unit_test(test_too_few_in_hand),
        cmocka_unit_test(test_pay),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_clocks_of_workers),
        cmocka_unit_test(test_ahead_once),
        cmocka_unit_test(test_ahead_of_small),
        cmocka_unit_test(test_denied),
        cmocka_unit_test(test_denied_with_tokens),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_window_denied_twice),
        cmocka_unit_test(test_sliding_denied),
        cmocka_unit_test(test_window_ends),
        cmocka_unit_test(test_late_answer),
        cmocka_unit_test(test_remaining_never_rises),
        cmocka_unit_test(test_answers_cross),
        cmocka_unit_test(test_garbage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

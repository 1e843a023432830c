/*
 * sync=async: what a gateway decides at once and debits behind, and what
 * gateways spend together that each decides by what it knows.
 */

#include "lease.h"

#define GATEWAYS  5
#define SOON      NGX_RATELIMIT_ASYNC_SOON

LIMIT(bucket_10, TOKEN_BUCKET, 10, 1000 * SECOND)
LIMIT(fixed_10, FIXED_WINDOW, 10, 60 * SECOND)
LIMIT(sliding_10, SLIDING_WINDOW, 10, 60 * SECOND)
LIMIT(fixed_100, FIXED_WINDOW, 100, 60 * SECOND)
LIMIT(fixed_40, FIXED_WINDOW, 40, 60 * SECOND)
LIMIT(fixed_most, FIXED_WINDOW, NGX_RATELIMIT_MAX_TOKENS, 60 * SECOND)
LIMIT(sliding_100, SLIDING_WINDOW, 100, 60 * SECOND)
LIMIT(bucket_1000, TOKEN_BUCKET, 1000, 10 * SECOND)
LIMIT(fixed_1000, FIXED_WINDOW, 1000, 10 * SECOND)
LIMIT(seven_a_minute, TOKEN_BUCKET, 7, 60 * SECOND)
LIMIT(one_a_second, TOKEN_BUCKET, 10, 10 * SECOND)
LIMIT(ten_fixed, FIXED_WINDOW, 10, 10 * SECOND)
LIMIT(ten_sliding, SLIDING_WINDOW, 10, 10 * SECOND)
LIMIT(reset_bucket, TOKEN_BUCKET, 10, 100 * SECOND)
LIMIT(reset_fixed, FIXED_WINDOW, 10, 100 * SECOND)
LIMIT(reset_sliding, SLIDING_WINDOW, 10, 100 * SECOND)


static const step_t  fresh[] = {
    SPEND(0, 4, PAID, LEFT(6), ASKS(1), RESET(1, 400000)),

    /* one tells Redis; or in a second, another */
    SPEND(0, 4, PAID, LEFT(2), ASKS(0), RESET(1, 800000)),
    SPEND(0, 4, DENIED, LEFT(2), ASKS(0)),
    SPEND(0, 11, DENIED, NO_RETRY),
    DEBT(8),
    SPEND(1001, 1, PAID, ASKS(1)),
    { 0 }
};

static const step_t  fresh_window[] = {
    SPEND(0, 4, PAID, RESET(1, 60000)), SPEND(0, 4, PAID, RESET(1, 60000)),
    { 0 }
};

static const step_t  debit[] = {
    SPEND(0, 7, PAID),
    SPEND(1, 3, PAID, LEFT(90)),

    /* 7 are debited; 3 were spent meanwhile; others took 20 */
    DEBIT(2, 0, 7, 7, 73, 30000, 0),
    DEBT(3),
    SPEND(2, 1, PAID, LEFT(69), ASKS(0)),

    /* a sweep debits; if none has come for 100 ms there may be none */
    SPEND(101, 0, PAID, ASKS(0)), SPEND(102, 1, PAID, ASKS(SOON)),
    DUE(102, 1),

    /* at once when a share of what is left is spent */
    DEBIT(103, 102, 5, 5, 68, 29898, 0),
    SPEND(103, 50, PAID, LEFT(18), ASKS(1)),

    /* as much as was there: no client sees that there is more again */
    DEBIT(104, 103, 50, 20, 0, 29897, 0),
    SPEND(104, 1, DENIED, LEFT(0), RETRY(29890, 29897)),

    /* others give back */
    DEBIT(300, 299, 0, 0, 60, 29700, 0),
    SPEND(300, 1, DENIED, LEFT(0)),
    { 0 }
};

/* A sweep that does not come is not waited for longer than a second. */
static const step_t  never_swept[] = {
    DEBIT(0, 0, 0, 0, 80, 30000, 0),
    SPEND(998, 1, PAID, ASKS(SOON)), SPEND(999, 1, PAID, ASKS(SOON)),
    SPEND(1000, 1, PAID, ASKS(1)), SPEND(1001, 1, PAID, ASKS(0)),
    DEBIT(1002, 1001, 4, 4, 76, 28998, 0),

    /* the first request after a pause waits for its sweep */
    SPEND(5000, 1, PAID, ASKS(SOON)), SPEND(5001, 1, PAID, ASKS(1)),
    { 0 }
};

/* The first to spend behind a debit sweeps. If several sweep, one debits. */
static const step_t  first_sweeps[] = {
    SPEND(0, 1, PAID, ASKS(1)), DEBIT(1, 0, 1, 1, 99, 60000, 0),
    SPEND(2, 1, PAID, ASKS(SOON)), SPEND(3, 1, PAID, ASKS(0)),
    DUE(99, 0), DUE(100, 1),
    DEBIT(101, 100, 2, 2, 97, 59000, 0),
    SPEND(102, 1, PAID, ASKS(SOON)), DUE(150, 0), DUE(200, 1),
    DEBIT(201, 200, 1, 1, 96, 58900, 0),

    /* so does one whose limit is another */
    SPEND(202, 1, PAID, ASKS(SOON)), SPEND(203, 1, PAID, ASKS(SOON), OTHER),
    SPEND(204, 1, PAID, ASKS(0), OTHER), SPEND(205, 1, PAID, ASKS(SOON)),

    /* and one that finds the worker gone that would have */
    LEAVE(206, 4), SPEND(207, 1, PAID, ASKS(SOON)),
    { 0 }
};

/* What was spent of a window is not debited from the next one. */
static const step_t  swept_late[] = {
    DEBIT(0, 0, 0, 0, 90, 1000, 0),
    SPEND(950, 3, PAID, ASKS(SOON)), DUE(1050, 0), DEBT(0),
    SPEND(1051, 1, PAID, LEFT(99), ASKS(1)),
    { 0 }
};

static const step_t  return_charge[] = {
    SPEND(0, 7, PAID),
    UNSPEND(1, 3, 3), UNSPEND(1, 9, 4),
    SPEND_MORE(1, 60, 60), SPEND_MORE(1, 60, 40),
    SPEND(2, 1, DENIED),
    { 0 }
};

/* However much is charged before Redis answers, a spent window stays spent. */
static const step_t  charge_often[] = {
    DEBIT(1, 0, 0, 0, 0, 30000, 0),
    SPEND_MORE(1, NGX_RATELIMIT_MAX_TOKENS, 0), SPEND(1, 1, DENIED),
    SPEND_MORE(1, NGX_RATELIMIT_MAX_TOKENS, 0), SPEND(1, 1, DENIED),
    SPEND_MORE(1, NGX_RATELIMIT_MAX_TOKENS, 0), SPEND(1, 1, DENIED),
    SPEND_MORE(1, NGX_RATELIMIT_MAX_TOKENS, 0), SPEND(1, 1, DENIED),
    SPEND_MORE(1, NGX_RATELIMIT_MAX_TOKENS, 0), SPEND(1, 1, DENIED),
    SPEND_MORE(1, NGX_RATELIMIT_MAX_TOKENS, 0), SPEND(1, 1, DENIED),
    { 0 }
};

/* A fresh counter; what was spent in the old window is over. */
static const step_t  window_ends[] = {
    DEBIT(0, 0, 0, 0, 30, 1000, 0),
    SPEND(990, 20, PAID),
    SPEND(1000, 30, PAID, LEFT(70)),

    /* the debit of the old window is none of the new one's */
    DEBIT(1001, 990, 20, 20, 10, 10, 0),
    DEBT(30),
    SPEND(1001, 1, PAID, LEFT(69)),
    { 0 }
};

/* A sliding window goes on weighing. */
static const step_t  sliding_ends[] = {
    DEBIT(0, 0, 0, 0, 5, 61000, 0),
    SPEND(1200, 5, PAID, LEFT(0)), SPEND(1200, 1, DENIED), DEBT(5),
    { 0 }
};

/* A limit that changes, or depends on the request; 25 are used then. */
static const step_t  limit_changes[] = {
    DEBIT(0, 0, 0, 0, 80, 30000, 0),
    SPEND(1, 5, PAID, LEFT(75)),
    SPEND(1, 5, PAID, LEFT(10), OTHER), DEBT(10),
    SPEND(1, 5, PAID, LEFT(65)),
    { 0 }
};

/* What sync=lease has in hand is no debt, nor the other way round. */
static const step_t  sync_changes[] = {
    FILL(0, 1, 5, 80, 30000, 0),
    DEBT(0),
    SPEND(1, 7, PAID), DEBT(7),
    TAKE(2, 1, ASK), SWEEP_ALL(2, 0),
    { 0 }
};

/* Silence, with Redis away: what was spent stays spent. */
static const step_t  not_forgotten[] = {
    DEBIT(0, 0, 0, 0, 80, 30000, 0),
    SPEND(1, 60, PAID),
    SPEND(5000, 1, PAID, LEFT(19)), DEBT(61),
    { 0 }
};

/* One worker tells Redis for all; in vain, once more soon. */
static const step_t  told_once[] = {
    DUE(0, 0),
    SPEND(0, 7, PAID, ASKS(1)),
    DUE(50, 0),
    DEBIT(60, 0, 7, 7, 800, 2000, 0),
    DUE(60, 0),
    SPEND(61, 3, PAID, ASKS(SOON)),
    DUE(100, 1), DUE(101, 0),
    IN_VAIN(110), DUE(150, 0), DUE(210, 1),

    /* no answer at all */
    SPEND(900, 0, PAID), DUE(1209, 0), DUE(1210, 1),

    /* workers that end: one tells it, and it stays spent */
    LEAVE(1211, 0),
    DEBIT(1212, 1210, 3, 3, 500, 5000, 0),
    SPEND(1213, 20, PAID),
    LEAVE(1214, 20), LEAVE(1214, 0),
    SPEND(1215, 482, DENIED), SPEND(1215, 480, PAID),
    { 0 }
};

/* Redis had 1 of 3: this gateway rejects until the two are there. */
static const step_t  missing_is_kept[] = {
    SPEND(0, 3, PAID), DEBT(3),
    DEBIT(0, 0, 3, 1, 0, 10000, 0), DEBT(2), IN_HAND(0),

    /* two tokens are back after 2 s, and the third is its own */
    SPEND(1500, 1, DENIED), SPEND(2500, 1, DENIED), SPEND(3500, 1, PAID),

    /* Redis debits all: nothing is missing any more */
    DEBT(3),
    DEBIT(4000, 4000, 3, 3, 1, 9000, 0), DEBT(0),
    SPEND(4000, 1, PAID),
    { 0 }
};

/* What was spent while the call was under way is told with the next one. */
static const step_t  spent_meanwhile[] = {
    SPEND(0, 1, PAID), DEBT(1), SPEND(0, 1, PAID, ASKS(0)),
    DEBIT(1, 0, 1, 0, 0, 20000, 0),
    IN_HAND(1), DEBT(2),
    { 0 }
};

/* Nothing comes back to a fixed window: what was missing is forgotten. */
static const step_t  fixed_forgets[] = {
    SPEND(0, 1, PAID),
    DEBIT(1, 0, 1, 0, 0, 10000, 0), DEBT(0),
    SPEND(1000, 1, DENIED), SPEND(10001, 1, PAID),
    { 0 }
};

/* The moment that a rejection names is one that pays. */
static const step_t  retry[] = {
    DEBIT(0, 0, 0, 0, 3, 30000, 0),
    SPEND(1, 2, PAID),
    SPEND(2, 5, DENIED, LEFT(1), RETRY(34285, 34286)),
    SPEND(2 + 34286, 5, PAID),
    { 0 }
};

/* A counter was reset: what Redis said before rejects nothing any more. */
static const step_t  forgot[] = {
    SPEND(100, 1, PAID, ASKS(1)),
    DEBIT(101, 100, 1, 0, 0, 90000, 9000),
    SPEND(102, 1, DENIED),
    FORGOT(103),
    SPEND(104, 1, PAID, ASKS(1)),

    /* asked before: of what was */
    DEBIT(105, 103, 1, 0, 0, 90000, 9000), SPEND(106, 1, PAID),
    DEBIT(108, 107, 1, 0, 0, 90000, 9000), SPEND(109, 1, DENIED),
    { 0 }
};

/* So does what there was before, where that was enough until Redis was told. */
static const step_t  forgot_left[] = {
    SPEND(100, 1, PAID),
    DEBIT(101, 100, 1, 1, 2, 90000, 0),

    /* without a reset it never rises */
    SPEND(102, 1, PAID),
    DEBIT(104, 103, 1, 1, 9, 90000, 0), SPEND(105, 0, PAID, LEFT(1)),

    FORGOT(106),
    SPEND(107, 1, PAID),
    DEBIT(109, 108, 1, 1, 9, 90000, 0), SPEND(110, 0, PAID, LEFT(9)),
    SPEND(111, 1, PAID), SPEND(112, 1, PAID),
    { 0 }
};

/* What was missing before is not owed afterwards, asked for or not. */

#define OWED  NEW, SPEND(100, 5, PAID),                                       \
              DEBIT(101, 100, 5, 2, 0, 90000, 9000), DEBT(3)

static const step_t  owed[] = {

    /* who sweeps tells Redis nothing of it; of another moment it does */
    OWED, FORGOT(100), DUE(210, 1),
    OWED, FORGOT(102), DUE(210, 0), DEBT(0),

    /* nor who ends, nor who is told to ask by a request */
    OWED, FORGOT(102), LEAVE(210, 0),
    OWED, FORGOT(102), SPEND(210, 1, PAID, ASKS(1)), DEBT(1),
    { 0 }
};

static const case_t  cases[] = {
    { "fresh", fresh, { bucket_10, fixed_10, sliding_10 } },
    { "fresh window", fresh_window, { fixed_10, sliding_10 } },
    { "debit", debit, { fixed_100 } },
    { "never swept", never_swept, { fixed_100 } },
    { "first sweeps", first_sweeps, { fixed_100 }, fixed_40 },
    { "swept late", swept_late, { fixed_100 } },
    { "return, charge", return_charge, { fixed_100 } },
    { "charge often", charge_often, { fixed_most } },
    { "window ends", window_ends, { fixed_100 } },
    { "sliding ends", sliding_ends, { sliding_100 } },
    { "limit changes", limit_changes, { fixed_100 }, fixed_40 },
    { "sync changes", sync_changes, { fixed_100 } },
    { "not forgotten", not_forgotten, { fixed_100 } },
    { "told once", told_once, { bucket_1000, fixed_1000 } },
    { "missing is kept", missing_is_kept, { one_a_second } },
    { "spent meanwhile", spent_meanwhile, { ten_sliding } },
    { "fixed forgets", fixed_forgets, { ten_fixed } },
    { "retry", retry, { seven_a_minute } },
    { "forgot", forgot, { reset_bucket, reset_fixed, reset_sliding } },
    { "forgot: left", forgot_left, { reset_fixed } },
    { "owed", owed, { reset_bucket, reset_sliding } }
};


typedef struct {
    lease_t   lease;
    answer_t  answer;
    int64_t   asked;     /* -1: no call under way */
    uint32_t  debt;
} gateway_t;


/* A request on a gateway; what it is to tell Redis is noted there. */
static uint32_t
request(gateway_t *gateway, const limit_t *limit, int64_t ms)
{
    env_t     env;
    answer_t  answer;
    unsigned  ask;

    env = at(ms);
    env.nodes = GATEWAYS;

    assert_answer(ngx_ratelimit_async_take(&gateway->lease, limit, &env, 1,
                                           &answer, &ask),
                  limit, 1, &answer);

    if (ask) {
        gateway->asked = ms;
        gateway->debt = ngx_ratelimit_async_debt(&gateway->lease);
    }

    return answer.granted;
}


static void
debited(gateway_t *gateway, const limit_t *limit, int64_t ms)
{
    env_t  env;

    env = at(ms);
    env.nodes = GATEWAYS;

    ngx_ratelimit_async_fill(&gateway->lease, limit, &env,
                             AT_US(gateway->asked), gateway->debt,
                             &gateway->answer);
    gateway->asked = -1;
}


/* Never without an end, though limits alternate and nothing is answered. */
static void
test_limits_alternate(void **state)
{
    unsigned   i, paid;
    limit_t    limit, lower;
    gateway_t  gateway;

    memset(&gateway, 0, sizeof(gateway));
    limit = fixed(100, 60);
    lower = fixed(40, 60);
    gateway.answer = said(0, 65, 30000, 0);
    debited(&gateway, &limit, 1);

    for (i = 0, paid = 0; i < 1000; i++) {
        paid += request(&gateway, i % 2 ? &limit : &lower, 2 + i);
    }

    assert_in_range(paid, 30, 65);

    /* nor where what is spent is never debited quite */

    memset(&gateway, 0, sizeof(gateway));
    gateway.answer = said(0, 80, 30000, 0);
    debited(&gateway, &limit, 0);

    for (i = 0; i < 5; i++) {
        (void) request(&gateway, &limit, 1);
    }

    for (i = 0; i < 20; i++) {
        (void) request(&gateway, &lower, 2 + i);
        (void) request(&gateway, &lower, 2 + i);
        gateway.asked = 2 + i;
        gateway.debt = 2;
        gateway.answer = said(2, i < 10 ? 20 - 2 * i : 0, 29990, 0);
        debited(&gateway, &lower, 2 + i);
    }

    assert_int_equal(request(&gateway, &lower, 30), 0);
}


/*
 * Redis away for long: each gateway goes on alone, with its limit, from what it
 * knew or from a full one. More are sent than are admitted. What is to be
 * debited then is no more than a counter can have lost.
 */
static void
test_alone(void **state)
{
    size_t     i, known;
    int64_t    ms;
    uint32_t   paid;
    gateway_t  gateway;

    const struct {
        limit_t   limit;
        int64_t   ms;
        int64_t   each_ms;
        uint64_t  reset_ms;
        uint32_t  least, most;
        uint32_t  fresh;          /* 0: as many */
    } cases[] = {
        { bucket(20, 1), 20000, 25, 1000, 340, 420 },
        { fixed(20, 1), 20000, 25, 1000, 340, 420 },
        { sliding(20, 1), 20000, 25, 1000, 340, 420 },
        { bucket(100, 1), 60000, 2, 1000, 5800, 6200 },
        { fixed(100, 1), 60000, 2, 1000, 5800, 6200 },
        { sliding(100, 1), 60000, 2, 1000, 5800, 6200 },

        /* a capacity that does not fill up meanwhile */
        { bucket(2000, 100), 20000, 25, 100000, 340, 420, 800 }
    };

    for (i = 0; i < COUNT(cases); i++) {
        for (known = 0; known < 2; known++) {
            memset(&gateway, 0, sizeof(gateway));

            if (known) {
                gateway.answer = said(0, 0, cases[i].reset_ms, 0);
                debited(&gateway, &cases[i].limit, 0);
            }

            for (ms = 0, paid = 0; ms < cases[i].ms; ms += cases[i].each_ms) {
                paid += request(&gateway, &cases[i].limit, ms);
            }

            if (!known && cases[i].fresh) {
                assert_int_equal(paid, cases[i].fresh);
            } else {
                assert_in_range(paid, cases[i].least, cases[i].most);
            }

            assert_in_range(ngx_ratelimit_async_debt(&gateway.lease), 1,
                            cases[i].limit.capacity);
        }
    }
}


/*
 * All gateways are asked for more than there is, in the same milliseconds: each
 * token that refills is admitted by several of them, and debited in the end.
 */
static void
test_refill_is_spent_once(void **state)
{
    int64_t                       ms;
    limit_t                       limit;
    uint32_t                      i, admitted, debt;
    gateway_t                     gateways[GATEWAYS];
    ngx_ratelimit_token_bucket_t  tb;

    limit = bucket(100, 1);
    memset(gateways, 0, sizeof(gateways));
    memset(&tb, 0, sizeof(tb));

    for (i = 0; i < GATEWAYS; i++) {
        gateways[i].asked = -1;
    }

    for (ms = 0, admitted = 0, debt = 0; ms < 20000; ms += 2) {

        for (i = 0; i < GATEWAYS; i++) {
            admitted += request(&gateways[i], &limit, ms);
        }

        for (i = 0; i < GATEWAYS; i++) {

            if (gateways[i].asked == -1) {
                continue;
            }

            gateways[i].answer = state_take(&tb, &limit, AT_US(ms + 1), 0,
                                            gateways[i].debt);
            debt += gateways[i].answer.granted;
            debited(&gateways[i], &limit, ms + 2);
        }
    }

    /* a full bucket and what refills, and what is still to be debited */

    assert_in_range(debt, 2000, 2100);
    assert_in_range(admitted, debt, debt + 20 * GATEWAYS);
}


int
main(void)
{
    struct CMUnitTest  tests[3 + COUNT(cases)] = {
        cmocka_unit_test(test_limits_alternate),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_refill_is_spent_once),
    };

    cases_add(&tests[3], cases, COUNT(cases));

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * sync=async: what a gateway decides at once and tells behind, and what a fleet
 * spends of which each gateway decides by what it knows.
 */

#include "lease.h"


#define GATEWAYS  6
#define SOON      NGX_RL_LEDGER_SWEEP
#define MOST      NGX_RL_MAX_TOKENS

typedef ngx_rl_ledger_t       async_t;
typedef ngx_rl_ledger_call_t  told_t;

/* A ledger, and the last answer of it. */
typedef struct {
    async_t   async;
    limit_t   limit;
    env_t     env;
    answer_t  answer;
    unsigned  ask;
    unsigned  fresh;       /* the gateway's own counter becomes the answer */
    told_t    told;
} ledger_t;


static void
ledger_make(ledger_t *l, limit_t limit)
{
    memset(l, 0, sizeof(ledger_t));
    l->limit = limit;
    l->env = at(0);
    l->env.behind = 1;
}


/* At that ms; what was reset stays so. */
static void
on(ledger_t *l, int64_t ms)
{
    l->env.now_us = AT_US(ms);
}


static ngx_rl_ledger_e
spend(ledger_t *l, int64_t ms, uint32_t cost)
{
    on(l, ms);
    ngx_rl_ledger_e rc = ngx_rl_ledger_take(&l->async, &l->limit, &l->env, cost,
                                           &l->answer, &l->ask);
    l->fresh = (rc == NGX_RL_LEDGER_FRESH);
    rc = l->fresh ? ASK : rc;
    assert_answer(rc, &l->limit, cost, &l->answer);

    return rc;
}


/* The gateway's own counter has granted so many. */
static void
alone(ledger_t *l, int64_t ms, uint32_t cost, uint32_t left, uint64_t reset_ms)
{
    assert_int_equal(spend(l, ms, cost), ASK);

    l->answer = said(cost, left, reset_ms, 0);
    ngx_rl_ledger_spent(&l->async, &l->limit, &l->env, &l->answer, &l->ask);
}


static int32_t
call(ledger_t *l, int64_t ms)
{
    on(l, ms);
    (void) ngx_rl_ledger_ask(&l->async, &l->limit, &l->env, 0, 0, &l->told);

    return l->told.debit;
}


static void
answered(ledger_t *l, int64_t ms, int64_t asked, uint32_t left,
    uint64_t reset_ms, uint64_t retry_ms)
{
    on(l, ms);
    answer_t answer = said(l->told.debit > 0 ? l->told.debit : 0, left,
                           reset_ms, retry_ms);
    (void) ngx_rl_ledger_fill(&l->async, &l->limit, &l->env, AT_US(asked),
                          &l->told, &answer);
}


static unsigned
due(ledger_t *l, int64_t ms)
{
    told_t  unused;

    on(l, ms);

    return ngx_rl_ledger_sweep(&l->async, &l->limit, &l->env, 0, &unused);
}


static uint32_t
give(ledger_t *l, int64_t ms, int64_t taken, uint32_t tokens)
{
    on(l, ms);

    return ngx_rl_ledger_give(&l->async, &l->limit, &l->env,
                             AT_US(taken), tokens);
}


static void
charge(ledger_t *l, int64_t ms, uint32_t tokens)
{
    on(l, ms);
    ngx_rl_ledger_charge(&l->async, &l->limit, &l->env, tokens);
}


/* Redis has so many left of the limit, and the window ends then. */
static void
known(ledger_t *l, limit_t limit, int64_t ms, uint32_t left, uint64_t reset_ms)
{
    ledger_make(l, limit);
    answered(l, ms, ms, left, reset_ms, 0);
    l->async.asked_ms = (uint32_t) (START_MS + ms);
    assert_int_equal(l->async.answered, 1);
}


static void
test_debits_once(void **state)
{
    ledger_t  l;

    ledger_make(&l, fixed(100, 60));

    /* the first calls at once, others leave it to the sweep */

    alone(&l, 0, 7, 93, 60000);
    assert_int_equal(l.ask, 1);
    assert_int_equal(call(&l, 0), 7);

    alone(&l, 1, 3, 90, 60000);
    assert_int_equal(l.ask, SOON);
    assert_int_equal(call(&l, 1), 0);

    /* others took 20; 3 were spent since */

    answered(&l, 2, 0, 73, 30000, 0);
    assert_int_equal(spend(&l, 2, 1), PAID);
    assert_int_equal(l.answer.remaining, 69);
    assert_int_equal(l.ask, 0);

    assert_int_equal(due(&l, 99), 0);
    assert_int_equal(due(&l, 100), 1);
    assert_int_equal(call(&l, 100), 4);
    assert_int_equal(due(&l, 250), 0);

    /* nothing is spent, nothing is told, whatever the answer */

    answered(&l, 251, 100, 0, 29750, 0);
    assert_int_equal(l.async.owed, 0);
    assert_int_equal(due(&l, 10000), 0);
    assert_int_equal(spend(&l, 10000, 1), DENIED);
    assert_int_equal(l.ask, 0);
    assert_in_range(l.answer.retry_us, 19840000, 19850000);
}


/* A share of what is left calls soon, though not for each single token. */
static void
test_share(void **state)
{
    ledger_t  l;

    known(&l, fixed(100, 60), 0, 90, 30000);
    l.env.gateways = 3;

    assert_int_equal(spend(&l, 500, 15), PAID);
    assert_int_equal(l.ask, 1);
    assert_int_equal(call(&l, 500), 15);
    answered(&l, 501, 500, 20, 29500, 0);

    assert_int_equal(spend(&l, 502, 3), PAID);
    assert_int_equal(l.ask, SOON);
    assert_int_equal(spend(&l, 503, 1), PAID);
    assert_int_equal(l.ask, 1);

    /* one that does not call leaves it to others */

    assert_int_equal(spend(&l, 504, 1), PAID);
    assert_int_equal(l.ask, 1);
    assert_int_equal(call(&l, 504), 5);
    assert_int_equal(spend(&l, 505, 5), PAID);
    assert_int_equal(l.ask, SOON);

    /* no answer: the next after a second */

    assert_int_equal(spend(&l, 1503, 1), PAID);
    assert_int_equal(l.ask, SOON);
    assert_int_equal(spend(&l, 1504, 1), PAID);
    assert_int_equal(l.ask, 1);
}


/*
 * An interval is for what others hardly miss: not where little is left, of a
 * short window or behind a call that has failed.
 */
static void
test_interval(void **state)
{
    ledger_t  l;

    known(&l, fixed(1000, 60), 0, 1000, 59000);
    l.env.interval_ms = 2000;

    assert_int_equal(spend(&l, 1, 3), PAID);
    assert_int_equal(l.ask, SOON);
    assert_int_equal(due(&l, 1899), 0);
    assert_int_equal(due(&l, 1900), 1);
    assert_int_equal(call(&l, 1900), 3);
    answered(&l, 1990, 1900, 900, 57100, 0);

    assert_int_equal(spend(&l, 1990, 1), PAID);
    assert_int_equal(l.ask, SOON);
    assert_int_equal(spend(&l, 3700, 480), PAID);
    assert_int_equal(l.ask, 1);
    assert_int_equal(due(&l, 3799), 0);
    assert_int_equal(due(&l, 3800), 1);

    known(&l, fixed(1000, 8), 0, 1000, 7900);
    l.env.interval_ms = 2000;
    assert_int_equal(spend(&l, 1, 3), PAID);
    assert_int_equal(due(&l, 899), 0);
    assert_int_equal(due(&l, 900), 1);

    assert_int_equal(call(&l, 900), 3);
    ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);
    assert_int_equal(due(&l, 999), 0);
    assert_int_equal(due(&l, 1000), 1);

    /* what a bucket spent in an interval is no debt of an outage */

    known(&l, bucket(100, 100), 0, 100, 0);
    l.env.interval_ms = 5000;
    assert_int_equal(spend(&l, 1, 3), PAID);
    assert_int_equal(due(&l, 4900), 1);
    assert_int_equal(call(&l, 4900), 3);
}


/* From a failed call to the next answer a token weighs more. */
static void
test_regions(void **state)
{
    size_t    i;
    uint32_t  n;
    ledger_t  l;

    limit_t  limits[] = { bucket(90, 90), fixed(90, 3600), sliding(90, 3600) };

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {

        known(&l, limits[i], 0, 60, i ? 3000000 : 30000);
        l.env.share = 3;

        assert_int_equal(spend(&l, 10, 3), PAID);
        assert_int_equal(call(&l, 10), 3);
        assert_int_equal(spend(&l, 11, 1), PAID);
        assert_int_equal(l.answer.remaining, 56);
        ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);

        for (n = 0; spend(&l, 20, 1) == PAID; n++) { /* void */ }

        assert_int_equal(n, 18);
        assert_int_equal(l.answer.remaining, 0);

        assert_int_equal(give(&l, 21, 20, 1), 1);
        assert_int_equal(spend(&l, 21, 1), PAID);
        assert_int_equal(spend(&l, 21, 1), DENIED);

        /* all of it is told, and the whole is there again */

        assert_int_equal(call(&l, 200), 22);
        answered(&l, 280, 200, 38, i ? 2999800 : 52000, 0);
        assert_int_equal(spend(&l, 281, 38), PAID);
        assert_int_equal(spend(&l, 281, 1), DENIED);
    }

    /* a third of the rate; the outage does not make a debt of more than that */

    known(&l, bucket(90, 90), 0, 3, 87000);
    l.env.share = 3;
    assert_int_equal(spend(&l, 0, 3), PAID);

    for (n = 0, i = 0; i <= 900; i++) {
        n += (spend(&l, 100 * i, 1) == PAID);
        (void) call(&l, 100 * i);
        ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);
    }

    assert_in_range(n, 29, 31);
    assert_in_range(call(&l, 100 * i), 29, 30);
}


/* The gateway's own counter denies: Redis is asked, once a second. */
static void
test_denied_alone(void **state)
{
    ledger_t  l;

    ledger_make(&l, fixed(100, 60));

    assert_int_equal(spend(&l, 0, 20), ASK);
    assert_int_equal(l.ask, 1);
    assert_int_equal(call(&l, 0), 0);
    assert_int_equal(l.told.look, 20);

    assert_int_equal(spend(&l, 1, 20), ASK);
    assert_int_equal(l.ask, 0);
    assert_int_equal(spend(&l, 1000, 20), ASK);
    assert_int_equal(l.ask, 1);

    /* Redis has more, also if nobody has spent anything */

    answered(&l, 1001, 0, 90, 30000, 0);
    assert_int_equal(spend(&l, 1001, 20), PAID);

    ledger_make(&l, sliding(100, 60));
    assert_int_equal(spend(&l, 0, 20), ASK);
    assert_int_equal(l.fresh, 0);
    assert_int_equal(call(&l, 0), 0);
    answered(&l, 1, 0, 100, 0, 0);
    assert_int_equal(spend(&l, 2, 20), PAID);
    assert_int_equal(l.answer.remaining, 80);

    /* a fixed window has named its end: nobody asks again */

    ledger_make(&l, fixed(100, 60));
    assert_int_equal(spend(&l, 0, 20), ASK);
    assert_int_equal(call(&l, 0), 0);
    answered(&l, 1, 0, 0, 30000, 30000);
    assert_int_equal(spend(&l, 20000, 20), DENIED);
    assert_int_equal(l.ask, 0);
}


/* What did not run is told again, but not in the next fixed window. */
static void
test_failed_late(void **state)
{
    ledger_t  l;

    known(&l, fixed(100, 60), 0, 100, 30000);
    assert_int_equal(spend(&l, 29900, 40), PAID);
    assert_int_equal(call(&l, 29900), 40);
    assert_int_equal(due(&l, 30100), 0);

    on(&l, 30200);
    ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);
    assert_int_equal(l.async.owed, 0);
    assert_int_equal(l.async.asking, 0);
}


/* What came back while Redis was away has its age. */
static void
test_gives_late(void **state)
{
    ledger_t  l;

    known(&l, bucket(100, 1), 0, 0, 100000);
    assert_int_equal(give(&l, 1000, 500, 90), 90);
    assert_int_equal(call(&l, 1100), -90);
    ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);

    assert_int_equal(give(&l, 2000, 1500, 5), 5);
    assert_int_equal(call(&l, 3600000), -95);
    assert_int_equal(l.told.age_us, 3599000000);

    known(&l, sliding(100, 60), 0, 0, 60000);
    assert_int_equal(give(&l, 1000, 500, 90), 90);
    assert_int_equal(due(&l, 70000), 0);
    assert_int_equal(l.async.owed, 0);
}


/* More than a capacity is told by several calls, and a failed one again. */
static void
test_surplus(void **state)
{
    ledger_t  l;

    known(&l, fixed(10, 60), 0, 10, 30000);

    charge(&l, 100, 25);
    assert_int_equal(spend(&l, 100, 1), DENIED);
    assert_int_equal(call(&l, 100), 10);
    ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);
    assert_int_equal(l.async.owed, 25);
    assert_int_equal(due(&l, 199), 0);
    assert_int_equal(due(&l, 200), 1);

    assert_int_equal(call(&l, 200), 10);
    answered(&l, 201, 200, 0, 29800, 0);
    assert_int_equal(call(&l, 300), 10);
    answered(&l, 301, 300, 0, 29700, 0);
    assert_int_equal(call(&l, 400), 5);

    /* one that may have run is not told again */

    l.told.debit = 0;
    ngx_rl_ledger_failed(&l.async, &l.limit, &l.env, &l.told);
    assert_int_equal(l.async.owed, 0);

    /* whatever is charged, nothing wraps; a worker that ends tells all */

    known(&l, fixed(MOST, 60), 0, 0, 30000);
    charge(&l, 1, MOST);
    charge(&l, 1, MOST);
    charge(&l, 1, MOST);
    assert_int_equal(spend(&l, 1, 1), DENIED);
    (void) ngx_rl_ledger_sweep(&l.async, &l.limit, &l.env, 1, &l.told);
    assert_int_equal(l.told.debit, MOST);
    assert_int_equal(l.async.asking, 0);
    assert_int_equal(l.async.owed, 0);
}


/* What comes back during a debit goes on to Redis behind it. */
static void
test_gives_back(void **state)
{
    ledger_t  l;

    limit_t  limits[] = { bucket(100, 1000), fixed(100, 60), sliding(100, 60) };

    for (size_t i = 0; i < COUNT(limits); i++) {
        known(&l, limits[i], 0, 100, 1000);
        l.async.answered = 0;

        /* not told: it was never spent */

        alone(&l, 0, 60, 40, i ? 60000 : 600000);
        assert_int_equal(give(&l, 1, 0, 10), 10);
        assert_int_equal(call(&l, 1), 50);

        assert_int_equal(give(&l, 2, 0, 45), 45);
        assert_int_equal(l.async.owed, -45);
        assert_int_equal(call(&l, 50), 0);

        answered(&l, 60, 1, 50, i ? 60000 : 500000, 0);
        assert_int_equal(spend(&l, 60, 1), PAID);
        assert_int_equal(l.answer.remaining, 94);

        /* its place stays, however long it takes */

        assert_int_equal(due(&l, 90), 0);
        assert_in_range(l.async.busy_us, AT_US(1060), AT_US(1100));
        assert_int_equal(due(&l, 101), 1);
        assert_int_equal(call(&l, 101), -44);
        answered(&l, 102, 101, 94, i ? 59900 : 60000, 0);
        assert_int_equal(l.async.owed, 0);

        /* tokens of the window before do not come to this one */

        assert_int_equal(give(&l, 103, -70000, 5), i ? 0 : 5);
        assert_int_equal(l.async.owed, i ? 0 : -5);
    }

    /* a bucket's have come back by themselves */

    known(&l, bucket(100, 1), 0, 100, 0);
    assert_int_equal(spend(&l, 1, 60), PAID);
    assert_int_equal(give(&l, 2, -1001, 60), 60);
    assert_int_equal(l.async.owed, 60);
}


static void
test_windows_end(void **state)
{
    ledger_t  l;

    /* what was spent of a fixed window is none of the next one's */

    known(&l, fixed(100, 60), 0, 30, 1000);
    assert_int_equal(spend(&l, 990, 3), PAID);
    assert_int_equal(due(&l, 1050), 0);
    assert_int_equal(l.async.owed, 0);

    known(&l, fixed(100, 60), 0, 30, 1000);
    assert_int_equal(spend(&l, 990, 20), PAID);
    assert_int_equal(call(&l, 990), 20);
    alone(&l, 1000, 30, 70, 60000);
    answered(&l, 1001, 990, 10, 10, 0);
    assert_int_equal(l.async.answered, 0);
    assert_int_equal(l.async.owed, 30);

    /* that of a sliding one still counts */

    known(&l, sliding(100, 60), 0, 5, 1100);
    assert_int_equal(spend(&l, 1090, 5), PAID);
    assert_int_equal(spend(&l, 1101, 1), ASK);
    assert_int_equal(l.fresh, 1);
    assert_int_equal(l.answer.remaining, 95);
    assert_int_equal(l.async.owed, 5);
    assert_int_equal(call(&l, 1190), 5);

    /* that of another limit says nothing of this one's */

    known(&l, sliding(100, 60), 0, 5, 1100);
    l.limit = sliding(200, 60);
    assert_int_equal(spend(&l, 1101, 1), ASK);
    assert_int_equal(l.fresh, 0);
}


/* A calendar's window is as long as the gateway's own counter says. */
static void
test_calendar(void **state)
{
    ledger_t  l;

    ledger_make(&l, limit_of_calendar(NGX_RL_CALENDAR_MONTH, 10));

    alone(&l, 0, 4, 6, 5000);
    assert_int_equal(call(&l, 0), 4);
    alone(&l, 10, 6, 0, 4990);
    assert_int_equal(spend(&l, 20, 1), ASK);
    assert_int_equal(spend(&l, 5001, 1), ASK);
    assert_int_equal(l.async.owed, 0);
}


/* What a fixed window owes counts in the next one: if that is all, for two. */
static void
test_owes_next(void **state)
{
    ledger_t  l;

    known(&l, fixed(10, 60), 0, 10, 30001);
    charge(&l, 1, 14);

    assert_int_equal(spend(&l, 1, 6), DENIED);
    assert_int_equal(l.answer.retry_us, 30000000);
    assert_int_equal(spend(&l, 1, 7), DENIED);
    assert_int_equal(l.answer.retry_us, 90000000);

    charge(&l, 1, 10);
    assert_int_equal(spend(&l, 1, 1), DENIED);
    assert_int_equal(l.answer.retry_us, 90000000);
    assert_int_equal(spend(&l, 1, 11), DENIED);
    assert_true(l.answer.retry_us == NEVER);

    /* when it is over, the gateway's own counter knows the debt */

    assert_int_equal(spend(&l, 30001, 1), ASK);
    assert_int_equal(l.fresh, 0);

    /* a sliding window has counted all of it when the next one ends */

    known(&l, sliding(10, 60), 0, 0, 90001);
    charge(&l, 1, 5);
    assert_int_equal(spend(&l, 1, 6), DENIED);
    assert_int_equal(l.answer.retry_us, 90000000);
}


/* A sliding window waits for the moment that Redis names, a bucket knows it. */
static void
test_denied(void **state)
{
    ledger_t  l;

    known(&l, sliding(10, 60), 0, 0, 90000);
    assert_int_equal(spend(&l, 50, 2), DENIED);
    assert_in_range(l.answer.retry_us, 89900000, 90000000);
    assert_int_equal(l.ask, 0);

    assert_int_equal(spend(&l, 100, 2), DENIED);
    assert_int_equal(l.ask, 1);
    assert_int_equal(call(&l, 100), 0);
    assert_int_equal(l.told.look, 2);
    answered(&l, 101, 100, 1, 89900, 5000);

    assert_int_equal(spend(&l, 600, 2), DENIED);
    assert_in_range(l.answer.retry_us, 4500000, 4502000);
    assert_int_equal(l.ask, 0);
    assert_int_equal(spend(&l, 600, 1), PAID);

    known(&l, sliding(10, 60), 0, 0, 90000);
    (void) spend(&l, 100, 2);
    assert_int_equal(call(&l, 100), 0);
    answered(&l, 101, 100, 0, 89900, 5000);

    /* others may give back: Redis is asked again after a second */

    assert_int_equal(spend(&l, 1100, 2), DENIED);
    assert_int_equal(l.ask, 1);
    assert_int_equal(spend(&l, 5101, 2), DENIED);
    assert_int_equal(spend(&l, 5102, 2), PAID);
    assert_int_equal(l.async.owed, 2);

    /* a moment beyond what 32 bits of milliseconds tell apart is not kept */

    known(&l, sliding(10, 366 * 86400 / 2), 0, 0, 366 * (uint64_t) 86400000);
    (void) spend(&l, 100, 1);
    assert_int_equal(call(&l, 100), 0);
    answered(&l, 101, 100, 0, 366 * (uint64_t) 86400000, 3000000000);
    assert_int_equal(spend(&l, 102, 1), DENIED);
    assert_in_range(l.answer.retry_us, 31622399000000, 31622400000000);

    /* a bucket, and a debt */

    known(&l, bucket(7, 60), 0, 3, 34286);
    assert_int_equal(spend(&l, 2, 5), DENIED);
    assert_int_equal(l.ask, 0);
    assert_in_range(l.answer.retry_us, 17140000, 17144000);
    charge(&l, 2, 10);
    assert_int_equal(spend(&l, 3, 1), DENIED);
    assert_in_range(l.answer.retry_us, 68500000, 68600000);
    assert_int_equal(spend(&l, 3, 8), DENIED);
    assert_true(l.answer.retry_us == NEVER);
}


/* A limit that changes, or depends on the request; 20 are used then. */
static void
test_limit_changes(void **state)
{
    unsigned  i, paid;
    ledger_t  l;

    known(&l, fixed(100, 60), 0, 80, 30000);
    assert_int_equal(spend(&l, 1, 5), PAID);
    l.limit = fixed(40, 60);
    assert_int_equal(spend(&l, 1, 5), PAID);
    assert_int_equal(l.answer.remaining, 10);
    assert_int_equal(l.async.owed, 10);

    /* the sweep is of another limit: a request calls after a second */

    assert_int_equal(spend(&l, 1200, 1), PAID);
    assert_int_equal(l.ask, 1);

    /* never without an end, though nothing is answered */

    known(&l, fixed(100, 60), 0, 65, 30000);

    for (i = 0, paid = 0; i < 1000; i++) {
        l.limit = i % 2 ? fixed(100, 60) : fixed(40, 60);
        paid += spend(&l, 2 + i, 1) == PAID;
    }

    assert_in_range(paid, 5, 65);

    /* another algorithm */

    known(&l, fixed(100, 60), 0, 0, 30000);
    l.limit = bucket(100, 60);
    assert_int_equal(spend(&l, 1, 1), ASK);
    l.limit = sliding(100, 60);
    assert_int_equal(spend(&l, 1, 1), ASK);
}


/* A counter was reset: what Redis said before rejects nothing any more. */
static void
test_forgot(void **state)
{
    ledger_t  l;

    limit_t  limits[] = { bucket(10, 100), fixed(10, 100), sliding(10, 100) };

    for (size_t i = 0; i < COUNT(limits); i++) {
        known(&l, limits[i], 100, 0, 99000);
        assert_int_equal(spend(&l, 102, 1), DENIED);
        assert_int_equal(call(&l, 102), 0);

        l.env.forgot_us = AT_US(103);
        assert_int_equal(spend(&l, 104, 1), ASK);

        /* asked before: of what was */

        l.told.debit = 1;
        answered(&l, 105, 103, 0, 90000, 0);
        assert_int_equal(spend(&l, 106, 1), ASK);
        answered(&l, 108, 107, 0, 99000, 0);
        assert_int_equal(spend(&l, 109, 1), DENIED);
    }

    /* without a reset a fixed window never has more again */

    known(&l, fixed(10, 100), 100, 2, 90000);
    answered(&l, 104, 103, 9, 90000, 0);
    assert_int_equal(spend(&l, 105, 1), PAID);
    assert_int_equal(l.answer.remaining, 1);

    l.env.forgot_us = AT_US(106);
    answered(&l, 109, 108, 9, 90000, 0);
    assert_int_equal(spend(&l, 110, 1), PAID);
    assert_int_equal(l.answer.remaining, 7);
}


/* A call that was made since is not in the answer of an earlier one. */
static void
test_order(void **state)
{
    ledger_t  l;

    limit_t  limits[] = { bucket(100, 1000), sliding(100, 1000) };

    for (size_t i = 0; i < COUNT(limits); i++) {
        known(&l, limits[i], 0, 50, i ? 1500000 : 500000);

        assert_int_equal(spend(&l, 1, 20), PAID);
        (void) call(&l, 100);
        assert_int_equal(spend(&l, 101, 20), PAID);
        (void) call(&l, 1200);
        assert_int_equal(l.told.debit, 20);

        answered(&l, 1201, 100, 30, i ? 1499000 : 699900, 0);
        assert_int_equal(spend(&l, 1201, 1), PAID);
        assert_in_range(l.answer.remaining, 9, 10);

        answered(&l, 1202, 1200, 40, i ? 1499000 : 600000, 0);
        assert_int_equal(spend(&l, 1202, 1), PAID);
        assert_in_range(l.answer.remaining, i ? 8 : 37, 38);
    }
}


/* A fleet, and Redis; each way takes two ms. */
typedef struct {
    ledger_t  l;
    state_t   own;
    int64_t   asked;       /* -1: no call under way */
    int64_t   sweep;       /* the next; -1: none */
    unsigned  calls;
    unsigned  spent;       /* times of 100 ms in which it has spent, or asked */
    int64_t   last;        /* when the last of them began */
    answer_t  said;
} gateway_t;

static gateway_t  fleet[GATEWAYS];
static state_t    redis;


static void
fleet_start(limit_t limit)
{
    memset(fleet, 0, sizeof(fleet));
    memset(&redis, 0, sizeof(redis));

    for (size_t i = 0; i < GATEWAYS; i++) {
        ledger_make(&fleet[i].l, limit);
        fleet[i].l.env.gateways = GATEWAYS;
        fleet[i].asked = -1;
        fleet[i].sweep = -1;
        fleet[i].last = -1000;
    }
}


static void
gateway_call(gateway_t *g, int64_t ms)
{
    if (g->asked == -1 && (call(&g->l, ms) || g->l.told.look)) {
        g->calls++;
        g->asked = ms;
    }

    g->sweep = g->sweep == -1 ? ms + 100 : g->sweep;
}


/* What a call does in Redis; the script rounds so. */
static void
gateway_runs(gateway_t *g, int64_t ms)
{
    int64_t        values[4];

    const told_t *told = &g->l.told;

    if (told->debit < 0) {
        state_give(&redis, &g->l.limit, AT_US(ms),
                   AT_US(ms) - told->age_us, (uint32_t) -told->debit);
    }

    g->said = told->debit > 0
              ? state_take(&redis, &g->l.limit, AT_US(ms),
                           (uint32_t) told->debit, CHARGE)
              : state_take(&redis, &g->l.limit, AT_US(ms), told->look,
                           told->look ? LOOK : 0);
    fill_answer(&g->said, values);
    g->said.reset_us = (uint64_t) values[2] * 1000;
    g->said.retry_us = values[3] == -1 ? NEVER : (uint64_t) values[3] * 1000;
}


static uint32_t
gateway_request(gateway_t *g, int64_t ms, uint32_t cost)
{
    if (ms >= g->last + 100) {
        g->last = ms;
        g->spent++;
    }

    if (spend(&g->l, ms, cost) == ASK) {

        if (g->l.fresh) {
            memset(&g->own, 0, sizeof(g->own));
            (void) state_take(&g->own, &g->l.limit, AT_US(ms), 0,
                              g->l.limit.capacity - g->l.answer.remaining);
        }

        g->l.answer = state_take(&g->own, &g->l.limit, AT_US(ms), cost, 0);

        if (g->l.answer.granted) {
            ngx_rl_ledger_spent(&g->l.async, &g->l.limit, &g->l.env,
                               &g->l.answer, &g->l.ask);
        }
    }

    uint32_t granted = g->l.answer.granted;

    if (g->l.ask == 1) {
        gateway_call(g, ms);

    } else if (g->l.ask && g->sweep == -1) {
        g->sweep = ms + 100;
    }

    return granted;
}


/* Returns whether anything is still to be done. */
static unsigned
fleet_turn(int64_t ms)
{
    size_t    i;
    unsigned  busy;

    for (i = 0, busy = 0; i < GATEWAYS; i++) {
        gateway_t *g = &fleet[i];

        if (g->asked != -1 && ms == g->asked + 2) {
            gateway_runs(g, ms);
        }

        if (g->asked != -1 && ms == g->asked + 4) {
            on(&g->l, ms);
            ngx_rl_ledger_fill(&g->l.async, &g->l.limit, &g->l.env,
                                  AT_US(g->asked), &g->l.told, &g->said);
            g->asked = -1;
        }

        if (g->sweep != -1 && ms >= g->sweep) {
            g->sweep += 100;

            if (due(&g->l, ms)) {
                gateway_call(g, ms);

            } else if (g->l.async.owed == 0 && g->asked == -1) {
                g->sweep = -1;
            }
        }

        busy |= g->asked != -1 || g->l.async.owed != 0;
    }

    return busy;
}


/* What was used in Redis, all told, of a counter that nothing comes back to. */
static int64_t
redis_used(const limit_t *limit, int64_t ms)
{
    answer_t answer = state_take(&redis, limit, AT_US(ms), 0, 0);

    if (limit->algorithm == NGX_RL_TOKEN_BUCKET) {
        return (int64_t) ((answer.reset_us + limit->rate.step_us / 2)
                          / limit->rate.step_us);
    }

    return redis.w.count;
}


/*
 * Requests that are charged more, and given back, at any time: in the end Redis
 * has counted what was told. And then nobody calls any more.
 */
static void
test_exact(void **state)
{
    size_t    i;
    int64_t   ms, used;
    uint32_t  n;
    unsigned  calls;

    limit_t  limits[] = {
        bucket(2000, 366 * 86400), fixed(2000, 366 * 86400),
        sliding(2000, 366 * 86400 / 2)
    };

    for (size_t run = 0; run < 60; run++) {
        limit_t  limit = limits[run % 3];

        fleet_start(limit);

        for (ms = 0, used = 0; ms < 2000; ms++) {
            gateway_t *g = &fleet[rnd(GATEWAYS)];
            uint32_t cost = 1 + (uint32_t) rnd(4);
            n = rnd(run < 30 ? 3 : 30) ? 0 : gateway_request(g, ms, cost);
            used += n;

            if (n && rnd(3) == 0) {
                n = (uint32_t) rnd(n + 1);
                assert_int_equal(give(&g->l, ms, ms, n), n);
                g->sweep = g->sweep == -1 ? ms + 100 : g->sweep;
                used -= n;

            } else if (n && rnd(5) == 0) {
                charge(&g->l, ms, n);
                g->sweep = g->sweep == -1 ? ms + 100 : g->sweep;
                used += n;
            }

            (void) fleet_turn(ms);
        }

        for (i = 0; i < 400; i++) {
            (void) fleet_turn(ms++);
        }

        assert_int_equal(fleet_turn(ms), 0);
        assert_int_equal(redis_used(&limit, ms), used);

        for (i = 0, calls = 0; i < GATEWAYS; i++) {
            calls += fleet[i].calls;
        }

        for (i = 0; i < 3000; i++) {
            (void) fleet_turn(ms++);
        }

        for (i = 0; i < GATEWAYS; i++) {
            calls -= fleet[i].calls;
        }

        assert_int_equal(calls, 0);
    }
}


/*
 * A spent limit: at most a call for each counter, gateway and 100 ms in which
 * requests came, and one more behind them. Debts are paid back in the end.
 */
static void
test_spent(void **state)
{
    int64_t   ms;
    uint32_t  paid, requests;

    limit_t  limits[] = { bucket(60, 6), fixed(60, 6), sliding(60, 6) };

    for (size_t run = 0; run < 9; run++) {
        size_t n = run / 3;
        int64_t span_ms = 60000;
        fleet_start(limits[run % 3]);

        for (ms = 0, paid = 0, requests = 0; ms < span_ms; ms++) {

            for (size_t i = 0; i < GATEWAYS; i++) {
                if (rnd(n == 0 ? 300 : n == 1 ? 100 : 10) == 0) {
                    paid += gateway_request(&fleet[i], ms, 1);
                    requests++;
                }
            }

            (void) fleet_turn(ms);
        }

        for (size_t i = 0; i < GATEWAYS; i++) {
            assert_in_range(fleet[i].calls, 1, fleet[i].spent * 2 + 1);
            requests -= fleet[i].calls;
        }

        assert_in_range(requests, 1, UINT32_MAX / 2);
        assert_in_range(paid, 540, 600 + 60 + 60);
    }
}


/*
 * Redis away for long: each gateway goes on alone, with its limit. What is to
 * be debited then is no more than a counter can have lost.
 */
static void
test_alone(void **state)
{
    int64_t   ms;
    uint32_t  paid;

    const struct {
        limit_t   limit;
        int64_t   ms;
        int64_t   each_ms;
        uint32_t  least, most;
        uint32_t  fresh;       /* 0: as many */
    } cases[] = {
        { bucket(20, 1), 20000, 25, 340, 420 }, { fixed(20, 1), 20000, 25, 340,
            420 }, { sliding(20, 1), 20000, 25, 340, 420 }, { bucket(100, 1),
            60000, 2, 5800, 6200 }, { fixed(100, 1), 60000, 2, 5800, 6200 },
            { sliding(100, 1), 60000, 2, 5800, 6200 },

        /* a capacity that does not fill up meanwhile */
        { bucket(2000, 100), 20000, 25, 340, 420, 800 }
    };

    for (size_t i = 0; i < COUNT(cases) * 2; i++) {
        fleet_start(cases[i / 2].limit);
        gateway_t *g = &fleet[0];

        if (i % 2) {
            known(&g->l, cases[i / 2].limit, 0, cases[i / 2].limit.capacity / 2,
                  cases[i / 2].limit.window_us / 1000);
        }

        for (ms = 0, paid = 0; ms < cases[i / 2].ms;
             ms += cases[i / 2].each_ms)
        {
            paid += gateway_request(g, ms, 1);

            if (g->asked != -1) {
                ngx_rl_ledger_failed(&g->l.async, &g->l.limit, &g->l.env,
                                    &g->l.told);
                g->asked = -1;
            }

            if (ms % 100 == 0 && due(&g->l, ms) && call(&g->l, ms)) {
                ngx_rl_ledger_failed(&g->l.async, &g->l.limit, &g->l.env,
                                    &g->l.told);
            }
        }

        if (i % 2 == 0 && cases[i / 2].fresh) {
            assert_int_equal(paid, cases[i / 2].fresh);
        } else {
            assert_in_range(paid, cases[i / 2].least, cases[i / 2].most);
        }

        assert_in_range(call(&g->l, ms + 100), 1, cases[i / 2].limit.capacity);
        assert_in_range(g->l.async.owed, 0, 1);
    }
}

/*
 * Counters that stand in for those in Redis: after each answer the counter here
 * says what Redis has said, by every algorithm, and stays in its ranges
 * whatever that was. Redis is the same arithmetic here, at a clock of its own.
 */

#include "local.h"

#include "counter.h"

#define STEPS  200000

/* of the clock of Redis before the one here, in us: no multiple of anything */
#define AHEAD  ((uint64_t) 1234567891011)

static local_t                local;
static ngx_rl_redis_t  redis;
static ngx_time_t             wall;
static state_t                counter;    /* in Redis */


static void
make(ngx_rl_algorithm_e algorithm, uint64_t tokens, uint64_t seconds)
{
    local_make(&local, MIB, algorithm, tokens, seconds);
    local.limiter.redis = &redis;

    memset(&counter, 0, sizeof(counter));
    seed_init();

    wall.sec = 1795214971;
    ngx_cached_time = &wall;
}


static void
pass(uint64_t ms)
{
    ngx_current_msec += ms;
    wall.sec += (wall.msec + ms) / 1000;
    wall.msec = (wall.msec + ms) % 1000;
}


/* What Redis answers, in whole milliseconds, rounded up. */
static void
ask(uint32_t cost, uint32_t want, ngx_rl_answer_t *answer)
{
    ngx_rl_limit_t limit = local.limit;

    if (limit.algorithm == NGX_RL_SLIDING_LOG) {
        limit.algorithm = NGX_RL_SLIDING_WINDOW;
    }

    *answer = state_take(&counter, &limit,
                         ngx_rl_local_now_us() + AHEAD + rnd(1000), cost, want);
    answer->reset_us = (answer->reset_us + 999) / 1000 * 1000;
}


static void
note(const ngx_rl_answer_t *answer)
{
    local_request_t  r;

    local_request(&local, &r, 1);
    r.counter.source = NGX_RL_SOURCE_REDIS;
    r.counter.answer = *answer;
    ngx_rl_local_note(&r.counter);

    assert_memory_equal(&r.counter.answer, answer, sizeof(*answer));
}


/* One request while Redis has no answer. */
static local_request_t
fallback(uint64_t client, uint32_t cost)
{
    local_request_t  r;

    local_request(&local, &r, client);
    r.counter.source = NGX_RL_SOURCE_FALLBACK;
    r.counter.cost = cost;
    ngx_rl_local_take(&r.counter);

    return r;
}


static void
look(ngx_rl_answer_t *answer)
{
    *answer = fallback(1, 0).counter.answer;
}


/*
 * Requests here, which make a note, and elsewhere, at random moments; some here
 * while Redis was not asked. slack: tokens that the counter here may have less.
 */
static void
run(ngx_rl_algorithm_e algorithm, uint64_t tokens, uint64_t seconds,
    uint32_t slack)
{
    ngx_rl_answer_t  answer, here;

    make(algorithm, tokens, seconds);
    uint64_t step_ms = seconds * 1000 / tokens + 2;

    for (int i = 0; i < STEPS; i++) {

        pass(rnd(50) ? rnd(2 * step_ms) : rnd(3000 * seconds));

        if (rnd(3) == 0) {
            ask(1 + rnd(tokens / 3), 0, &answer);
            continue;
        }

        if (rnd(10) == 0) {
            (void) fallback(1, 1);
            continue;
        }

        ask(rnd(4), 0, &answer);
        note(&answer);
        look(&here);

        assert_in_range(here.remaining,
                        answer.remaining > slack ? answer.remaining - slack
                                                 : 0,
                        answer.remaining);
        assert_true(here.reset_us <= 2 * local.limit.window_us + 1000);
    }

    local_free(&local);
}


static void
test_notes(void **state)
{
    run(NGX_RL_TOKEN_BUCKET, 10, 3600, 0);
    run(NGX_RL_TOKEN_BUCKET, 7, 1, 0);
    run(NGX_RL_TOKEN_BUCKET, 1000000, 1, 0);
    run(NGX_RL_FIXED_WINDOW, 10, 60, 0);
    run(NGX_RL_FIXED_WINDOW, 1000, 1, 0);
    run(NGX_RL_SLIDING_WINDOW, 10, 60, 1);
    run(NGX_RL_SLIDING_WINDOW, 1000, 60, 200);
}


/* A bucket that owes in Redis owes as much here, and is charged here, too. */
static void
test_owed(void **state)
{
    local_request_t  r;
    ngx_rl_answer_t  answer;

    make(NGX_RL_TOKEN_BUCKET, 100, 100);

    ask(150, CHARGE, &answer);
    note(&answer);

    assert_int_equal(local_take(&local, &r, 1), 0);
    assert_in_range(r.counter.answer.retry_us, 50999000, 51000000);

    r.counter.source = NGX_RL_SOURCE_FALLBACK;
    ngx_rl_local_charge(&r.counter, 20);
    assert_int_equal(local_take(&local, &r, 1), 0);
    assert_in_range(r.counter.answer.retry_us, 70999000, 71000000);

    local_free(&local);
}


/* How many requests of this cost pass while Redis has no answer. */
static uint32_t
alone(uint64_t client, uint32_t cost)
{
    uint32_t  n;

    for (n = 0; n < 1000; n++) {
        local_request_t r = fallback(client, cost);

        if (r.counter.answer.retry_us) {
            assert_int_equal(r.counter.answer.granted, 0);
            return n;
        }

        assert_int_equal(r.counter.answer.granted,
                         local.limit.algorithm == NGX_RL_CONCURRENCY
                         ? 1 : cost);
    }

    return n;
}


/* Of a fleet of n each has 2/n of the limit, but one request at least. */
static void
test_share(void **state)
{
    static const ngx_rl_algorithm_e  algorithms[] = {
        NGX_RL_TOKEN_BUCKET, NGX_RL_FIXED_WINDOW,
        NGX_RL_SLIDING_WINDOW, NGX_RL_SLIDING_LOG,
        NGX_RL_CONCURRENCY
    };
    static const ngx_uint_t  fleets[] = {
        1, 2, 3, 5, 7, 10, 100, 200, 201, 1000000000 };

    for (unsigned i = 0; i < 5; i++) {
        for (unsigned j = 0; j < 10; j++) {
            make(algorithms[i], 100, 3600);
            local_nodes = fleets[j];
            uint32_t share = fleets[j] < 2 ? 100 : 200 / fleets[j];

            assert_int_equal(alone(1, 1), share ? share : 1);

            if (algorithms[i] == NGX_RL_CONCURRENCY) {
                local_free(&local);
                continue;
            }

            /* what it knows to be left is shared, too */

            ngx_rl_answer_t answer = { 0 };
            answer.remaining = 60;
            answer.reset_us = algorithms[i] == NGX_RL_TOKEN_BUCKET
                              ? 1440000000 : 3600000000;
            note(&answer);
            assert_int_equal(alone(1, 1), fleets[j] < 2 ? 60 : 120 / fleets[j]);

            /* a cost above the share passes once, one above the limit never */

            assert_int_equal(alone(2, 70), 1);
            assert_int_equal(alone(3, 101), 0);

            local_free(&local);
        }
    }

    local_nodes = 1;
}


/* Gateways come and go while Redis has no answer: what was spent stays so. */
static void
test_share_changes(void **state)
{
    make(NGX_RL_FIXED_WINDOW, 100, 3600);

    local_nodes = 1;
    local_request_t r = fallback(1, 50);
    r.counter.client = &r.client;
    r.client.check = &r.check;
    r.client.remote = &r.remote;
    assert_int_equal(r.counter.answer.remaining, 50);

    local_nodes = 5;
    assert_int_equal(alone(1, 1), 20);

    local_nodes = 2;
    assert_int_equal(alone(1, 1), 0);

    /* what is given back and charged weighs the same */

    local_nodes = 5;
    r.counter.source = NGX_RL_SOURCE_FALLBACK;
    r.remote.noted_us = ngx_rl_local_now_us();
    ngx_rl_local_give(&r.counter, 3);
    assert_int_equal(alone(1, 1), 3);

    ngx_rl_local_charge(&r.counter, 200);
    pass(3600 * 1000);
    assert_int_equal(alone(1, 1), 0);

    local_free(&local);
    local_nodes = 1;
}


/* The largest limits overflow nothing. */
static void
test_share_large(void **state)
{
    local_request_t  r;

    static const struct {
        ngx_rl_algorithm_e  algorithm;
        uint64_t                   tokens;
        uint64_t                   seconds;
    } limits[] = {
        { NGX_RL_TOKEN_BUCKET, 1 << 30, 366 * 86400 }, { NGX_RL_TOKEN_BUCKET,
            1 << 30, 1 }, { NGX_RL_FIXED_WINDOW, 1 << 30, 366 * 86400 },
            { NGX_RL_SLIDING_WINDOW, 284836, 366 * 86400 },
            { NGX_RL_SLIDING_WINDOW, 1 << 30, 1 }
    };

    for (unsigned i = 0; i < 5; i++) {
        make(limits[i].algorithm, limits[i].tokens, limits[i].seconds);
        local_nodes = 4;

        assert_int_equal(alone(1, limits[i].tokens / 10), 5);

        local_request(&local, &r, 1);
        r.counter.source = NGX_RL_SOURCE_FALLBACK;

        while (r.counter.charge++ < 3) {
            ngx_rl_local_charge(&r.counter, 1 << 30);
            assert_int_equal(r.counter.answer.remaining, 0);
        }

        assert_int_equal(alone(1, 1), 0);
        local_free(&local);
    }

    local_nodes = 1;
}


/* A log here is a window: two entries of the table, whatever it says. */
static void
test_sliding_log(void **state)
{
    local_request_t         r;
    ngx_rl_answer_t         here;
    ngx_rl_segments_stat_t  stat;

    make(NGX_RL_SLIDING_LOG, 10000, 60);

    ngx_rl_answer_t answer = { 0 };
    answer.granted = 1;
    answer.remaining = 3;
    answer.reset_us = 60000000;
    note(&answer);

    ngx_rl_table_stat(local.map.table, ngx_rl_local_now_us(), NGX_RL_STAT_ALL,
                      &stat);
    assert_in_range(stat.busy, 1, 2);

    look(&here);
    assert_int_equal(here.remaining, 3);

    assert_int_equal(local_take(&local, &r, 1), 1);
    assert_int_equal(local_take(&local, &r, 1), 1);
    assert_int_equal(local_take(&local, &r, 1), 1);
    assert_int_equal(local_take(&local, &r, 1), 0);

    pass(120001);
    look(&here);
    assert_int_equal(here.remaining, 10000);

    local_free(&local);
}


/* What no Redis would say, as far as remote.c lets it in. */
static void
test_nonsense(void **state)
{
    ngx_rl_answer_t  answer, here;

    static const ngx_rl_algorithm_e  algorithms[] = {
        NGX_RL_TOKEN_BUCKET, NGX_RL_LEAKY_BUCKET,
        NGX_RL_FIXED_WINDOW, NGX_RL_SLIDING_WINDOW,
        NGX_RL_SLIDING_LOG
    };

    for (int i = 0; i < STEPS; i++) {

        if (i % (STEPS / 5) == 0) {
            if (i) {
                local_free(&local);
            }

            make(algorithms[i / (STEPS / 5)], 100, 60);
        }

        pass(rnd(1000));

        answer.granted = rnd(101);
        answer.remaining = rnd(local.limit.capacity + 1);
        answer.reset_us = rnd(2) ? rnd(INT64_MAX / 1000) * 1000
                                 : rnd(120) * 1000000;
        answer.retry_us = rnd(2) ? NGX_RL_NEVER : rnd(1000000);

        note(&answer);
        look(&here);

        assert_in_range(here.remaining, 0, local.limit.capacity);
        assert_true(here.reset_us <= 2 * local.limit.window_us);
    }

    local_free(&local);
}


/* Slots that Redis has granted are taken whatever is left, and given back. */
static void
test_slots(void **state)
{
    local_request_t         a, b, c;

    make(NGX_RL_CONCURRENCY, 2, 0);

    local_request(&local, &a, 1);
    local_request(&local, &b, 1);
    local_request(&local, &c, 1);

    ngx_rl_permit_hold(&a.counter);
    ngx_rl_permit_hold(&b.counter);
    ngx_rl_permit_hold(&c.counter);
    assert_true(a.counter.permit && b.counter.permit && c.counter.permit);

    ngx_rl_permit_free(&a.counter);
    assert_int_equal(a.counter.permit, 0);
    assert_int_equal(local_take(&local, &a, 1), 0);

    ngx_rl_permit_free(&b.counter);
    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_int_equal(local_take(&local, &b, 1), 0);

    ngx_rl_permit_free(&a.counter);
    ngx_rl_permit_free(&c.counter);

    local_free(&local);
}

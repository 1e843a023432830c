/*
 * C against Lua: one random sequence through src/core and through the scripts
 * that run inside Redis must give the same decisions. Here: what lives in a
 * bucket's hash.
 *
 * STEPS and SEED in the environment choose another sequence; a failure prints
 * the seed and the step.
 */

#include "parity.h"

#include "ngx_ratelimit_window.h"

#define KEYS    3
#define FIELDS  220

typedef struct {
    char                          kind;
    ngx_ratelimit_limit_t         limit;
    ngx_ratelimit_token_bucket_t  tb;
    ngx_ratelimit_window_t        w;
} counter_t;

/* one counter of a call, beside its arguments there */
typedef struct {
    counter_t  *counter;
    int64_t     cost;
    uint32_t    want;      /* below 0 of cost: for how many ms it was taken */
    int         dry_run;
} check_t;

static counter_t  counters[KEYS][FIELDS];

/* what a sequence has met */
static struct {
    uint64_t  granted;
    uint64_t  denied;
    uint64_t  never;
    uint64_t  given;
    uint64_t  looked;
    uint64_t  dry_run;
} seen;


/* When the counter equals a fresh one. */

static uint64_t
counter_fresh_us(const counter_t *counter)
{
    if (counter->kind == 't') {
        return counter->tb.span_code ? counter->tb.tat_us : 0;
    }

    return counter->w.fresh_us;
}


static void
counter_forget(counter_t *counter)
{
    memset(&counter->tb, 0, sizeof(counter->tb));
    memset(&counter->w, 0, sizeof(counter->w));
}


static void
counter_take(counter_t *counter, uint64_t now, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer)
{
    uint64_t                left_us;
    ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;

    switch (counter->kind) {

    case 't':
        ngx_ratelimit_token_bucket_take(&counter->tb, &limit->rate, now, cost,
                                        want, answer);
        return;

    case 'f':
        left_us = ngx_ratelimit_fixed_window_left(limit, now);
        ngx_ratelimit_fixed_window_take(&counter->w, limit, now, left_us, cost,
                                        want, answer);
        return;

    default:
        ngx_ratelimit_sliding_window_take(&counter->w, limit, now, cost, want,
                                          answer);
    }
}


static void
counter_give(counter_t *counter, uint64_t now, uint64_t taken, uint32_t tokens)
{
    uint64_t                passed_us;
    ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;

    switch (counter->kind) {

    case 't':
        ngx_ratelimit_token_bucket_give(&counter->tb, &limit->rate, now,
                                        tokens);
        return;

    case 'f':
        passed_us = ngx_ratelimit_fixed_window_passed(limit, now);
        ngx_ratelimit_fixed_window_give(&counter->w, limit, now, passed_us,
                                        taken, tokens);
        return;

    default:
        ngx_ratelimit_sliding_window_give(&counter->w, limit, now, taken,
                                          tokens);
    }
}


static void
fill_arg(const check_t *check, parity_arg_t *arg)
{
    counter_t  *counter = check->counter;

    arg->kind = check->dry_run ? counter->kind - 'a' + 'A' : counter->kind;
    arg->cost = check->cost;
    arg->want = (check->want == NGX_RATELIMIT_LOOK) ? -1
                                                    : (int64_t) check->want;
    arg->capacity = counter->limit.capacity;

    if (counter->kind == 't') {
        arg->a = counter->limit.rate.period_us;
        arg->b = counter->limit.rate.scale;

    } else {
        arg->a = counter->limit.window_us;
        arg->b = counter->limit.calendar;
    }
}


/* All or nothing over the checks, in C. */

static void
run_c(uint64_t now, const check_t *checks, unsigned n,
    parity_answer_t *answers)
{
    int                      denied;
    unsigned                 i;
    counter_t                copy;
    const check_t           *check;
    ngx_ratelimit_answer_t   answer;

    denied = 0;

    for (i = 0; i < n; i++) {
        check = &checks[i];

        if (check->cost >= 0 && !check->dry_run) {
            copy = *check->counter;
            counter_take(&copy, now, check->cost, check->want, &answer);
            denied |= (answer.retry_us != 0);
        }
    }

    for (i = 0; i < n; i++) {
        check = &checks[i];

        if (check->cost < 0) {

            if (!denied) {
                counter_give(check->counter, now,
                             now - (uint64_t) check->want * 1000,
                             -check->cost);
                seen.given++;
            }

            counter_take(check->counter, now, 0, 0, &answer);

        } else {
            counter_take(check->counter, now, check->cost,
                         denied ? NGX_RATELIMIT_LOOK : check->want, &answer);
        }

        seen.granted += (answer.granted != 0);
        seen.never += (answer.retry_us == NGX_RATELIMIT_NEVER);
        seen.denied += (answer.retry_us != 0);
        seen.looked += (check->want == NGX_RATELIMIT_LOOK);
        seen.dry_run += (answer.retry_us != 0 && check->dry_run && !denied);

        answers[i][0] = answer.granted;
        answers[i][1] = answer.remaining;
        answers[i][2] = (answer.reset_us + 999) / 1000;
        answers[i][3] = (answer.retry_us == NGX_RATELIMIT_NEVER)
                        ? -1 : (int64_t) (answer.retry_us + 999) / 1000;
    }
}


static void
random_bucket(ngx_ratelimit_spec_t *spec)
{
    static const uint64_t  periods[] = { 1, 5, 60, 3600, 86400, 366 * 86400 };

    spec->algorithm = NGX_RATELIMIT_TOKEN_BUCKET;
    spec->period_us = rnd(8) ? periods[rnd(6)] * 1000000
                             : rnd_log(NGX_RATELIMIT_MAX_PERIOD_US);
    spec->tokens = rnd(4) ? rnd_log(1000) : rnd_log(NGX_RATELIMIT_MAX_TOKENS);
    spec->capacity = rnd(2) ? spec->tokens
                     : rnd(2) ? rnd_log(50)
                              : rnd_log(NGX_RATELIMIT_MAX_TOKENS);
}


static void
random_window(ngx_ratelimit_spec_t *spec)
{
    static const uint64_t  periods[] = { 1, 2, 10, 60, 61, 86400 };

    spec->tokens = rnd(8) ? rnd_log(100) : rnd_log(NGX_RATELIMIT_MAX_TOKENS);

    if (spec->algorithm == NGX_RATELIMIT_FIXED_WINDOW && rnd(2)) {
        spec->calendar = 1 + rnd(2);
        return;
    }

    spec->period_us = rnd(8) ? periods[rnd(6)] * 1000000
                             : rnd_log(NGX_RATELIMIT_MAX_PERIOD_US);
}


static void
random_limit(counter_t *counter)
{
    ngx_ratelimit_spec_t  spec;

    do {
        memset(&spec, 0, sizeof(spec));

        if (counter->kind == 't') {
            random_bucket(&spec);

        } else {
            spec.algorithm = (counter->kind == 'f')
                             ? NGX_RATELIMIT_FIXED_WINDOW
                             : NGX_RATELIMIT_SLIDING_WINDOW;
            random_window(&spec);
        }
    } while (ngx_ratelimit_limit_init(&counter->limit, &spec) != NULL);
}


/* Another limit for a counter in use: now and then in the same window. */

static void
change_limit(counter_t *counter)
{
    ngx_ratelimit_limit_t  old;

    old = counter->limit;
    random_limit(counter);

    if (counter->kind != 't' && rnd(2)) {
        old.capacity = (old.capacity < 8) ? old.capacity + 1
                                          : 1 + rnd(old.capacity);
        counter->limit = old;
    }
}


/* To about the end of a window: the state's, the limit's, the next one's. */

static uint64_t
random_edge(uint64_t now, const counter_t *counter)
{
    uint64_t                      edge, fresh_us;
    const ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;
    fresh_us = counter_fresh_us(counter);

    if (limit->calendar) {
        edge = now + ngx_ratelimit_fixed_window_left(limit, now);

    } else {
        edge = now + limit->window_us - now % limit->window_us;
    }

    if (fresh_us > now && rnd(2)) {
        edge = fresh_us;
    }

    if (counter->kind == 's' && rnd(2)) {
        edge += rnd(limit->window_us);
    }

    if (edge > now + 4000 * (uint64_t) 86400 * 1000000) {
        return now;
    }

    return edge + rnd(3) - 1;
}


static uint64_t
random_step(uint64_t now, const counter_t *counter)
{
    const ngx_ratelimit_limit_t  *limit;

    if (now > LATEST) {
        return START;
    }

    limit = &counter->limit;

    switch (rnd(16)) {

    case 0: case 1: case 2: case 3: case 4:
        return now;

    case 5: case 6:
        return now + rnd_log(1000);

    case 7: case 8: case 9:
        return now + rnd_log(10 * 1000000);

    case 10:
        return now + rnd(2 * limit->window_us / limit->capacity + 2);

    case 11:
        return now + rnd(rnd(8) ? 1000000 : limit->window_us / 64 + 1);

    case 12: case 13:
        return random_edge(now, counter);

    case 14:

        /* a worker, or a replica, that is a little behind */

        return now - rnd(900000);

    default:

        /* the clock is set back */

        return rnd(20) ? now : now - rnd_log((uint64_t) 1 << 40);
    }
}


static uint32_t
random_tokens(uint32_t capacity)
{
    switch (rnd(8)) {

    case 0:
        return 0;

    case 1:
        return capacity;

    case 2:
        return capacity < NGX_RATELIMIT_MAX_TOKENS ? capacity + 1 : capacity;

    case 3: case 4:
        return 1 + rnd(capacity);

    case 5:
        return rnd_log(capacity);

    default:
        return 1;
    }
}


/* What is given back was mostly taken a moment ago. */

static uint32_t
random_age_ms(const ngx_ratelimit_limit_t *limit)
{
    switch (rnd(4)) {

    case 0:
        return 0;

    case 1:
        return rnd(1000);

    case 2:
        return rnd(limit->window_us / 1000 + 2);

    default:
        return rnd(3 * (limit->window_us / 1000 + 1));
    }
}


static void
random_call(parity_call_t *call, check_t *checks)
{
    unsigned   i, first;
    uint32_t   capacity;
    check_t   *check;

    /* a few busy counters, and now and then any, so that buckets grow */

    first = rnd(rnd(4) ? 8 : FIELDS);

    call->key = rnd(KEYS);
    call->name = NULL;
    call->n = rnd(2) ? 1 : 1 + rnd(PARITY_COUNTERS);

    for (i = 0; i < call->n; i++) {
        check = &checks[i];

        call->args[i].field = (first + i) % FIELDS;
        check->counter = &counters[call->key][call->args[i].field];

        if (rnd(100) == 0) {
            change_limit(check->counter);
        }

        capacity = check->counter->limit.capacity;

        check->cost = random_tokens(capacity);
        check->want = rnd(2) ? 0 : random_tokens(capacity);
        check->dry_run = (rnd(8) == 0);

        /* mostly one that can be paid: else 16 counters never pass together */

        if (call->n > 1 && rnd(8)) {
            check->cost = rnd(2);
        }

        if (rnd(10) == 0) {
            check->cost = -check->cost;
            check->want = random_age_ms(&check->counter->limit);

        } else if (rnd(10) == 0) {
            check->want = NGX_RATELIMIT_LOOK;
        }

        fill_arg(check, &call->args[i]);
    }
}


/*
 * A counter that the bucket lost must have been equal to a fresh one at the
 * latest time that the clock has shown.
 */
static void
check_dropped(uint64_t now, uint64_t latest, unsigned key, unsigned field)
{
    int         there;
    counter_t  *counter;

    counter = &counters[key][field];

    model_function("exists");
    lua_pushnumber(parity.lua, (double) now);
    push_key(key);
    push_field(field);
    model_call(3, 1);
    there = lua_toboolean(parity.lua, -1);
    lua_pop(parity.lua, 1);

    if (!there) {

        if (counter_fresh_us(counter) >= latest) {
            fail_msg("SEED=%llu step %lu: field %u lost while in use",
                     (unsigned long long) parity.first_seed, parity.step,
                     field);
        }

        counter_forget(counter);
    }
}


static void
check_all_dropped(uint64_t now, uint64_t latest)
{
    unsigned  key, field;

    for (key = 0; key < KEYS; key++) {
        for (field = 0; field < FIELDS; field++) {
            check_dropped(now, latest, key, field);
        }
    }
}


static void
run_sequence(const char *kinds)
{
    check_t          checks[PARITY_COUNTERS];
    uint64_t         next, latest;
    unsigned         i, key, field;
    parity_call_t    call;
    parity_answer_t  answers[PARITY_COUNTERS];

    parity_start();
    memset(&seen, 0, sizeof(seen));
    memset(counters, 0, sizeof(counters));

    for (key = 0; key < KEYS; key++) {
        for (field = 0; field < FIELDS; field++) {
            counters[key][field].kind = kinds[rnd(strlen(kinds))];
            random_limit(&counters[key][field]);
        }
    }

    call.now_us = latest = START;

    for ( /* void */ ; parity.step < parity.steps; parity.step++) {
        random_call(&call, checks);
        next = random_step(call.now_us, checks[0].counter);

        if (next + 1000000 < call.now_us) {

            /* set back: what is lost by now was lost by the old time */

            check_all_dropped(call.now_us, latest);
            latest = next;
        }

        call.now_us = next;
        latest = (next > latest) ? next : latest;

        for (i = 0; i < call.n; i++) {
            check_dropped(next, latest, call.key, call.args[i].field);
        }

        run_c(next, checks, call.n, answers);
        parity_compare(&call, answers);
    }
}


/* That all of it was met, and expiry seldom had to be set. */

static void
check_seen(const char *kinds)
{
    if (parity.steps >= 10000) {
        assert_true(seen.granted > parity.steps / 10);
        assert_true(seen.denied > parity.steps / 10);
        assert_true(seen.never > 0 && seen.looked > 0 && seen.dry_run > 0);
        assert_true(seen.given > parity.steps / 100);
        assert_true(model_total("HGETALL") > 0);
        assert_true(model_total("HDEL") > 0);
        assert_true(model_total("PEXPIRE") < model_total("HSET") / 4);
    }

    print_message("%s: %lu steps: %llu granted, %llu denied, %llu given back, "
                  "%.0f HSET, %.0f PEXPIRE, %.0f sweeps\n", kinds,
                  parity.steps, (unsigned long long) seen.granted,
                  (unsigned long long) seen.denied,
                  (unsigned long long) seen.given, model_total("HSET"),
                  model_total("PEXPIRE"), model_total("HGETALL"));
}


static void
test_token_bucket(void **state)
{
    (void) state;

    run_sequence("t");
    check_seen("t");
}


static void
test_fixed_window(void **state)
{
    (void) state;

    run_sequence("f");
    check_seen("f");
}


static void
test_sliding_window(void **state)
{
    (void) state;

    run_sequence("s");
    check_seen("s");
}


static void
test_all_kinds(void **state)
{
    (void) state;

    run_sequence("tfs");
    check_seen("tfs");
}


static void
test_malformed(void **state)
{
    unsigned     i, bad;
    const char  *err, *args[119];

    static const char *const  good[] = { "t", "12345678", "1", "0", "10",
                                         "100", "1" };
    static const struct {
        unsigned     at;
        const char  *value;
    } cases[] = {
        { 0, "" }, { 0, "x" }, { 0, "tt" }, { 0, "l" }, { 0, "C" },
        { 1, "" }, { 1, "1234567" }, { 1, "123456789" },
        { 2, "" }, { 2, "secret" }, { 2, "1.5" }, { 2, "nan" }, { 2, "inf" },
        { 2, "1073741825" }, { 2, "-1073741825" },
        { 3, "-2" }, { 3, "x" }, { 3, "0.5" }, { 3, "9007199254740994" },
        { 3, "nan" },
        { 4, "0" }, { 4, "1073741825" }, { 4, "nan" }, { 4, "2.5" },
        { 5, "0" }, { 5, "31622400000001" }, { 5, "-1" }, { 5, "9.5" },
        { 6, "0" }, { 6, "4194305" }, { 6, "1.5" }, { 6, "" }
    };

    (void) state;

    parity_start();

    for (bad = 0; bad < sizeof(cases) / sizeof(cases[0]); bad++) {

        /* alone, and behind one that could be charged */

        for (i = 0; i < 2; i++) {
            memcpy(args, good, sizeof(good));
            memcpy(args + i * 7, good, sizeof(good));
            args[i * 7 + 1] = i ? "abcdefgh" : "12345678";
            args[i * 7 + cases[bad].at] = cases[bad].value;

            err = parity_run_raw(1, args, i * 7 + 7);

            if (err == NULL) {
                fail_msg("argument %u \"%s\" accepted", cases[bad].at,
                         cases[bad].value);
            }

            assert_string_equal(err, "ERR ratelimit: malformed argument");
            lua_pop(parity.lua, 1);
        }
    }

    /* a span that is too long: 2^30 tokens of a second */

    memcpy(args, good, sizeof(good));
    args[4] = "1073741824";
    args[5] = "1048577";
    assert_non_null(parity_run_raw(1, args, 7));

    for (i = 0; i < 119; i++) {
        args[i] = good[i % 7];
    }

    assert_non_null(parity_run_raw(1, args, 0));
    assert_non_null(parity_run_raw(1, args, 6));
    assert_non_null(parity_run_raw(1, args, 9));
    assert_non_null(parity_run_raw(1, args, 119));
    assert_non_null(parity_run_raw(0, args, 7));

    lua_pop(parity.lua, 6);

    /* nothing of all that was written */

    assert_true(model_total("HSET") == 0);
    assert_null(parity_run_raw(1, good, 7));
    assert_true(model_total("HSET") == 1);

    lua_pop(parity.lua, 1);
}


/* A call for one new counter after the other, of 10 tokens a second each. */

static void
call_init(parity_call_t *call, unsigned first, unsigned n)
{
    unsigned  i;

    static const parity_arg_t  arg = { 't', 0, 1, 0, 10, 100000, 1 };

    call->now_us = START;
    call->key = 0;
    call->name = NULL;
    call->n = n;

    for (i = 0; i < n; i++) {
        call->args[i] = arg;
        call->args[i].field = first + i;
    }
}


static void
model_put(unsigned field, const char *value, size_t len)
{
    model_function("put");
    push_key(0);
    push_field(field);
    lua_pushlstring(parity.lua, value, len);
    model_call(3, 0);
}


/* What no script wrote counts as fresh, whatever it holds. */

static void
test_foreign_value(void **state)
{
    size_t           i;
    parity_call_t    call;
    parity_answer_t  answer;

    static const struct {
        const char  *value;
        size_t       len;
    } cases[] = {
        { "", 0 }, { "\xff\xff\xff\xff\xff\xff\xff", 7 },
        { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11 },
        { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 13 },
        { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0", 12 }
    };

    (void) state;

    parity_start();
    call_init(&call, 7, 1);

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        model_flush();
        model_put(7, cases[i].value, cases[i].len);

        parity_run(&call, &answer);
        assert_int_equal(answer[0], 1);
        assert_int_equal(answer[1], 9);
    }
}


/* Adds n new counters in one call; returns how many the bucket then holds. */

static unsigned
bucket_grow(unsigned first, unsigned n)
{
    parity_call_t    call;
    parity_answer_t  answers[PARITY_COUNTERS];

    call_init(&call, first, n);
    parity_run(&call, answers);

    model_function("length");
    push_key(0);
    model_call(1, 1);
    n = (unsigned) lua_tonumber(parity.lua, -1);
    lua_pop(parity.lua, 1);

    return n;
}


/* A long bucket drops what equals fresh counters, and seldom looks for them */

static void
test_bucket_long(void **state)
{
    double    sweeps;
    unsigned  i;

    (void) state;

    parity_start();

    for (i = 0; i < 62; i++) {
        model_put(i, "\0\0\0\0\0\0\1\0\0\0\1\0", 12);
    }

    sweeps = model_total("HGETALL");

    assert_int_equal(bucket_grow(62, 1), 63);
    assert_true(model_total("HGETALL") == sweeps);

    /* 64 is passed, not met */

    assert_int_equal(bucket_grow(63, 3), 4);
    assert_true(model_total("HGETALL") == sweeps + 1);

    /* all in use: looked at again at 64 and 80 only */

    for (i = 66; i < 66 + 90; i++) {
        assert_int_equal(bucket_grow(i, 1), i - 61);
    }

    assert_true(model_total("HGETALL") == sweeps + 3);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_token_bucket),
        cmocka_unit_test(test_fixed_window),
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_foreign_value),
        cmocka_unit_test(test_bucket_long),
    };

    return cmocka_run_group_tests(tests, parity_setup, parity_teardown);
}

/*
 * C against Lua: one random sequence through src/core and through the scripts
 * that run inside Redis, on a model of Redis, must give the same decisions.
 *
 * STEPS and SEED in the environment choose another sequence; a failure prints
 * both and the step.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "ngx_ratelimit_token_bucket.h"

#define KEYS      3
#define FIELDS    220
#define COUNTERS  16

/* the clock, in microseconds; the states hold instants below 2^52 */
#define START   ((uint64_t) 1700000000 * 1000000)
#define LATEST  ((uint64_t) 2100000000 * 1000000)

typedef struct {
    ngx_ratelimit_rate_t          rate;
    ngx_ratelimit_token_bucket_t  tb;
} counter_t;

typedef struct {
    counter_t  *counter;
    unsigned    field;
    int64_t     cost;
    uint32_t    want;
    int64_t     answer[4];
} check_t;

static lua_State  *lua;
static int         model, script;
static counter_t   counters[KEYS][FIELDS];
static uint64_t    seed;
static uint64_t    seen_granted, seen_denied, seen_never, seen_given;


static uint64_t
rnd(uint64_t n)
{
    /* splitmix64 */

    uint64_t  z;

    z = (seed += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;

    return (z ^ z >> 31) % n;
}


/* 1..max, each magnitude as likely as the others */

static uint64_t
rnd_log(uint64_t max)
{
    unsigned  bits;

    for (bits = 0; bits < 63 && max >> bits; bits++) { /* void */ }

    bits = 1 + (unsigned) rnd(bits);

    return 1 + rnd(max >> bits ? (uint64_t) 1 << bits : max);
}


static char *
slurp(const char *name, size_t *len)
{
    FILE  *f;
    char  *text;

    f = fopen(name, "rb");
    assert_non_null(f);
    text = malloc(1 << 20);
    assert_non_null(text);
    *len = fread(text, 1, 1 << 20, f);
    fclose(f);

    return text;
}


static int
setup(void **state)
{
    char    *a, *b;
    size_t   a_len, b_len;

    (void) state;

    lua = luaL_newstate();
    assert_non_null(lua);
    luaL_openlibs(lua);

    if (luaL_dofile(lua, "redis_model.lua") != 0) {
        fail_msg("%s", lua_tostring(lua, -1));
    }

    model = luaL_ref(lua, LUA_REGISTRYINDEX);

    a = slurp("../../lua/token_bucket.lua", &a_len);
    b = slurp("../../lua/check.lua", &b_len);
    memcpy(a + a_len, b, b_len);

    if (luaL_loadbuffer(lua, a, a_len + b_len, "@script") != 0) {
        fail_msg("%s", lua_tostring(lua, -1));
    }

    script = luaL_ref(lua, LUA_REGISTRYINDEX);
    free(a);
    free(b);

    return 0;
}


static int
teardown(void **state)
{
    (void) state;
    lua_close(lua);

    return 0;
}


static void
model_function(const char *name)
{
    lua_rawgeti(lua, LUA_REGISTRYINDEX, model);
    lua_getfield(lua, -1, name);
    lua_remove(lua, -2);
}


static void
model_call(int args, int results)
{
    if (lua_pcall(lua, args, results, 0) != 0) {
        fail_msg("%s", lua_tostring(lua, -1));
    }
}


static void
push_field(unsigned field)
{
    char  name[8] = "\0\r\n\xff" "abc";

    /* raw bytes, zeros and all */

    name[6] = (char) (field >> 8);
    name[7] = (char) field;
    lua_pushlstring(lua, name, 8);
}


static void
push_key(unsigned key)
{
    lua_pushfstring(lua, "rl:{%d}", (int) key);
}


static void
push_number(int at, double value)
{
    char  text[32];

    snprintf(text, sizeof(text), "%.0f", value);
    lua_pushstring(lua, text);
    lua_rawseti(lua, -2, at);
}


/* Leaves the script's answer on the stack. */

static void
run_lua(uint64_t now, unsigned key, const check_t *checks, unsigned n)
{
    unsigned                     i;
    const ngx_ratelimit_rate_t  *rate;

    model_function("run");
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script);
    lua_pushnumber(lua, (double) now);

    lua_newtable(lua);
    push_key(key);
    lua_rawseti(lua, -2, 1);

    lua_newtable(lua);

    for (i = 0; i < n; i++) {
        rate = &checks[i].counter->rate;

        push_field(checks[i].field);
        lua_rawseti(lua, -2, 6 * i + 1);
        push_number(6 * i + 2, checks[i].cost);
        push_number(6 * i + 3, checks[i].want);
        push_number(6 * i + 4, rate->capacity);
        push_number(6 * i + 5, rate->period_us);
        push_number(6 * i + 6, rate->scale);
    }

    model_call(4, 1);
}


/* The same in C: all or nothing over the checks. */

static void
run_c(uint64_t now, check_t *checks, unsigned n)
{
    int                           denied;
    check_t                      *check;
    unsigned                      i;
    ngx_ratelimit_answer_t        answer;
    ngx_ratelimit_token_bucket_t  tb;

    denied = 0;

    for (i = 0; i < n; i++) {
        check = &checks[i];

        if (check->cost >= 0) {
            tb = check->counter->tb;
            ngx_ratelimit_token_bucket_take(&tb, &check->counter->rate, now,
                                            check->cost, check->want, &answer);
            denied |= (answer.retry_us != 0);
        }
    }

    for (i = 0; i < n; i++) {
        check = &checks[i];
        tb = check->counter->tb;

        if (check->cost < 0) {

            if (!denied) {
                ngx_ratelimit_token_bucket_give(&tb, &check->counter->rate,
                                                now, -check->cost);
                seen_given++;
            }

            ngx_ratelimit_token_bucket_take(&tb, &check->counter->rate, now,
                                            0, 0, &answer);

        } else {
            ngx_ratelimit_token_bucket_take(&tb, &check->counter->rate, now,
                                            check->cost, check->want, &answer);

            if (denied && answer.retry_us == 0) {
                tb = check->counter->tb;
                ngx_ratelimit_token_bucket_take(&tb, &check->counter->rate,
                                                now, 0, 0, &answer);
            }
        }

        check->counter->tb = tb;

        seen_granted += (answer.granted != 0);
        seen_never += (answer.retry_us == NGX_RATELIMIT_NEVER);
        seen_denied += (answer.retry_us != 0);

        check->answer[0] = answer.granted;
        check->answer[1] = answer.remaining;
        check->answer[2] = (answer.reset_us + 999) / 1000;
        check->answer[3] = (answer.retry_us + 999) / 1000;

        if (answer.retry_us == NGX_RATELIMIT_NEVER) {
            check->answer[3] = -1;
        }
    }
}


static void
random_rate(ngx_ratelimit_rate_t *rate)
{
    uint64_t  tokens, period, capacity;

    static const uint64_t  periods[] = { 1, 5, 60, 3600, 86400, 366 * 86400 };

    do {
        period = rnd(8) ? periods[rnd(6)] * 1000000
                        : rnd_log(NGX_RATELIMIT_MAX_PERIOD_US);
        tokens = rnd(4) ? rnd_log(1000) : rnd_log(NGX_RATELIMIT_MAX_TOKENS);
        capacity = rnd(2) ? tokens
                   : rnd(2) ? rnd_log(50) : rnd_log(NGX_RATELIMIT_MAX_TOKENS);

    } while (ngx_ratelimit_rate_init(rate, tokens, period, capacity) != 0);
}


static uint64_t
random_step(uint64_t now, const counter_t *counter)
{
    if (now > LATEST) {
        return START;
    }

    switch (rnd(16)) {

    case 0: case 1: case 2: case 3: case 4:
        return now;

    case 5: case 6: case 7:
        return now + rnd_log(1000);

    case 8: case 9: case 10:
        return now + rnd_log(10 * 1000000);

    case 11: case 12:
        return now + rnd(2 * counter->rate.step_us + 2);

    case 13:
        return now + rnd(rnd(8) ? 1000000 : counter->rate.span_us / 64 + 1);

    case 14:

        /* a worker, or a replica, that is a little behind */

        return now - rnd(900000);

    default:

        /* the clock is set back */

        return rnd(20) ? now : now - rnd_log((uint64_t) 1 << 40);
    }
}


static uint32_t
random_tokens(const ngx_ratelimit_rate_t *rate)
{
    switch (rnd(8)) {

    case 0:
        return 0;

    case 1:
        return rate->capacity;

    case 2:
        return rate->capacity < NGX_RATELIMIT_MAX_TOKENS ? rate->capacity + 1
                                                         : rate->capacity;
    case 3: case 4:
        return 1 + rnd(rate->capacity);

    case 5:
        return rnd_log(rate->capacity);

    default:
        return 1;
    }
}


static unsigned
random_checks(unsigned key, unsigned fields, check_t *checks)
{
    unsigned  i, n, first;

    n = rnd(2) ? 1 : 1 + rnd(COUNTERS);
    first = rnd(fields);

    for (i = 0; i < n; i++) {
        checks[i].field = (first + i) % FIELDS;
        checks[i].counter = &counters[key][checks[i].field];

        if (rnd(100) == 0) {
            random_rate(&checks[i].counter->rate);
        }

        checks[i].cost = random_tokens(&checks[i].counter->rate);
        checks[i].want = rnd(2) ? 0 : random_tokens(&checks[i].counter->rate);

        /* mostly one that can be paid: else 16 counters never pass together */

        if (n > 1 && rnd(8)) {
            checks[i].cost = rnd(2);
        }

        if (rnd(10) == 0) {
            checks[i].cost = -checks[i].cost;
        }
    }

    return n;
}


/*
 * A counter that the bucket lost must have been equal to a fresh one at the
 * latest time that the clock has shown.
 */
static void
check_dropped(uint64_t now, uint64_t latest, unsigned key, unsigned field)
{
    int                            there;
    ngx_ratelimit_token_bucket_t  *tb;

    tb = &counters[key][field].tb;

    model_function("exists");
    lua_pushnumber(lua, (double) now);
    push_key(key);
    push_field(field);
    model_call(3, 1);
    there = lua_toboolean(lua, -1);
    lua_pop(lua, 1);

    if (!there && tb->span_code) {

        if (tb->tat_us >= latest) {
            fail_msg("field %u lost while in use", field);
        }

        memset(tb, 0, sizeof(*tb));
    }
}


static void
compare(unsigned long step, uint64_t start_seed, const check_t *checks,
    unsigned n)
{
    int64_t   got;
    unsigned  i, k;

    static const char  *names[] = { "granted", "remaining", "reset", "retry" };

    if (!lua_istable(lua, -1) || lua_objlen(lua, -1) != 4 * n) {
        lua_getfield(lua, -1, "err");
        fail_msg("SEED=%llu step %lu: no answer: %s",
                 (unsigned long long) start_seed, step, lua_tostring(lua, -1));
    }

    for (i = 0; i < n; i++) {
        for (k = 0; k < 4; k++) {
            lua_rawgeti(lua, -1, 4 * i + k + 1);
            got = (int64_t) lua_tonumber(lua, -1);
            lua_pop(lua, 1);

            if (got != checks[i].answer[k]) {
                fail_msg("SEED=%llu step %lu counter %u of %u: %s is %lld in "
                         "C, %lld in Lua (cost %lld, want %u, capacity %u, "
                         "period %llu, scale %u)",
                         (unsigned long long) start_seed, step, i, n, names[k],
                         (long long) checks[i].answer[k], (long long) got,
                         (long long) checks[i].cost, checks[i].want,
                         checks[i].counter->rate.capacity,
                         (unsigned long long) checks[i].counter->rate.period_us,
                         checks[i].counter->rate.scale);
            }
        }
    }
}


static unsigned long
env_number(const char *name, unsigned long value)
{
    return getenv(name) ? strtoul(getenv(name), NULL, 10) : value;
}


static double
model_total(const char *name)
{
    double  total;

    model_function("total");
    lua_pushstring(lua, name);
    model_call(1, 1);
    total = lua_tonumber(lua, -1);
    lua_pop(lua, 1);

    return total;
}


static void
test_same_decisions(void **state)
{
    check_t        checks[COUNTERS];
    uint64_t       now, next, latest, start_seed;
    unsigned       i, k, key, n, fields;
    unsigned long  step, steps;

    (void) state;

    start_seed = seed = env_number("SEED", 1);
    steps = env_number("STEPS", 100000);
    now = latest = START;

    for (key = 0; key < KEYS; key++) {
        for (i = 0; i < FIELDS; i++) {
            random_rate(&counters[key][i].rate);
        }
    }

    for (step = 0; step < steps; step++) {

        /* a few busy counters, and now and then any, so that buckets grow */

        fields = rnd(4) ? 8 : FIELDS;
        key = rnd(KEYS);
        n = random_checks(key, fields, checks);
        next = random_step(now, checks[0].counter);

        if (next + 1000000 < now) {

            /* set back: what is lost by now was lost by the old time */

            for (k = 0; k < KEYS; k++) {
                for (i = 0; i < FIELDS; i++) {
                    check_dropped(now, latest, k, i);
                }
            }

            latest = next;
        }

        now = next;
        latest = (now > latest) ? now : latest;

        for (i = 0; i < n; i++) {
            check_dropped(now, latest, key, checks[i].field);
        }

        run_c(now, checks, n);
        run_lua(now, key, checks, n);
        compare(step, start_seed, checks, n);
        lua_pop(lua, 1);
    }

    /* that all of it was met, and expiry seldom had to be set */

    if (steps >= 10000) {
        assert_true(seen_granted > steps / 10);
        assert_true(seen_denied > steps / 10);
        assert_true(seen_never > 0 && seen_given > steps / 100);
        assert_true(model_total("HGETALL") > 0);
        assert_true(model_total("HDEL") > 0);
        assert_true(model_total("PEXPIRE") < model_total("HSET") / 4);
    }

    print_message("%lu steps: %llu granted, %llu denied, %llu given back, "
                  "%.0f HSET, %.0f PEXPIRE, %.0f sweeps\n", steps,
                  (unsigned long long) seen_granted,
                  (unsigned long long) seen_denied,
                  (unsigned long long) seen_given, model_total("HSET"),
                  model_total("PEXPIRE"), model_total("HGETALL"));
}


/* Runs with one counter's values as given; leaves the answer's err on top. */

static const char *
run_raw(unsigned nkeys, const char *const *args, unsigned nargs)
{
    unsigned  i;

    model_function("run");
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script);
    lua_pushnumber(lua, (double) START);

    lua_newtable(lua);

    for (i = 0; i < nkeys; i++) {
        push_key(i);
        lua_rawseti(lua, -2, i + 1);
    }

    lua_newtable(lua);

    for (i = 0; i < nargs; i++) {
        lua_pushstring(lua, args[i]);
        lua_rawseti(lua, -2, i + 1);
    }

    model_call(4, 1);
    lua_getfield(lua, -1, "err");
    lua_remove(lua, -2);

    return lua_tostring(lua, -1);
}


static void
test_malformed(void **state)
{
    unsigned     i, bad;
    const char  *err, *args[102];

    static const char *const  good[] = { "12345678", "1", "0", "10", "100",
                                         "1" };
    static const struct {
        unsigned     at;
        const char  *value;
    } cases[] = {
        { 0, "" }, { 0, "1234567" }, { 0, "123456789" },
        { 1, "" }, { 1, "secret" }, { 1, "1.5" }, { 1, "nan" }, { 1, "inf" },
        { 1, "1073741825" }, { 1, "-1073741825" },
        { 2, "-1" }, { 2, "x" }, { 2, "0.5" }, { 2, "1073741825" },
        { 3, "0" }, { 3, "1073741825" }, { 3, "nan" }, { 3, "2.5" },
        { 4, "0" }, { 4, "31622400000001" }, { 4, "-1" }, { 4, "9.5" },
        { 5, "0" }, { 5, "4194305" }, { 5, "1.5" }, { 5, "" }
    };

    (void) state;

    model_function("flush");
    model_call(0, 0);

    assert_null(run_raw(1, good, 6));
    lua_pop(lua, 1);

    for (bad = 0; bad < sizeof(cases) / sizeof(cases[0]); bad++) {
        memcpy(args, good, sizeof(good));
        args[cases[bad].at] = cases[bad].value;

        err = run_raw(1, args, 6);

        if (err == NULL) {
            fail_msg("argument %u \"%s\" accepted", cases[bad].at,
                     cases[bad].value);
        }

        assert_string_equal(err, "ERR ratelimit: malformed argument");
        lua_pop(lua, 1);
    }

    /* a span that is too long: 2^30 tokens of a second */

    memcpy(args, good, sizeof(good));
    args[3] = "1073741824";
    args[4] = "1048577";
    assert_non_null(run_raw(1, args, 6));
    lua_pop(lua, 1);

    for (i = 0; i < 102; i++) {
        args[i] = good[i % 6];
    }

    assert_non_null(run_raw(1, args, 0));
    assert_non_null(run_raw(1, args, 5));
    assert_non_null(run_raw(1, args, 7));
    assert_non_null(run_raw(1, args, 102));
    assert_non_null(run_raw(0, args, 6));
    assert_non_null(run_raw(2, args, 6));
    lua_pop(lua, 6);
}


/* What no script wrote counts as fresh, whatever it holds. */

static void
test_foreign_value(void **state)
{
    size_t      i;
    check_t     check;
    counter_t   counter;

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

    memset(&counter, 0, sizeof(counter));
    assert_int_equal(ngx_ratelimit_rate_init(&counter.rate, 10, 1000000, 10),
                     0);

    check.counter = &counter;
    check.field = 7;
    check.cost = 1;
    check.want = 0;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        model_function("flush");
        model_call(0, 0);

        model_function("put");
        push_key(0);
        push_field(7);
        lua_pushlstring(lua, cases[i].value, cases[i].len);
        model_call(3, 0);

        run_lua(START, 0, &check, 1);
        lua_rawgeti(lua, -1, 1);
        lua_rawgeti(lua, -2, 2);
        assert_int_equal((int) lua_tonumber(lua, -2), 1);
        assert_int_equal((int) lua_tonumber(lua, -1), 9);
        lua_pop(lua, 3);
    }
}


/* Adds n new counters in one call; returns how many the bucket then holds. */

static unsigned
bucket_grow(unsigned first, unsigned n)
{
    unsigned   i;
    check_t    checks[COUNTERS];
    counter_t  counter;

    assert_int_equal(ngx_ratelimit_rate_init(&counter.rate, 10, 1000000, 10),
                     0);

    for (i = 0; i < n; i++) {
        checks[i].counter = &counter;
        checks[i].field = first + i;
        checks[i].cost = 1;
        checks[i].want = 0;
    }

    run_lua(START, 0, checks, n);
    lua_pop(lua, 1);

    model_function("length");
    push_key(0);
    model_call(1, 1);
    n = (unsigned) lua_tonumber(lua, -1);
    lua_pop(lua, 1);

    return n;
}


/* A long bucket drops what equals fresh counters, and seldom looks for them */

static void
test_bucket_long(void **state)
{
    double    sweeps;
    unsigned  i;

    (void) state;

    model_function("flush");
    model_call(0, 0);

    for (i = 0; i < 62; i++) {
        model_function("put");
        push_key(0);
        push_field(i);
        lua_pushlstring(lua, "\0\0\0\0\0\0\1\0\0\0\1\0", 12);
        model_call(3, 0);
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
        cmocka_unit_test(test_same_decisions),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_foreign_value),
        cmocka_unit_test(test_bucket_long),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

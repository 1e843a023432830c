/*
 * The script's own affairs: arguments that no engine sends, values that no
 * script wrote, and buckets that have grown long.
 */

#include "parity.h"


static void
test_malformed(void **state)
{
    const char  *err, *args[119];

    static const char *const  good[] = { "t", "12345678", "1", "0", "10",
                                         "100", "1" };

    static const struct {
        unsigned     nkeys;
        unsigned     n;
        const char  *args[8];
    } calls[] = {

        /* no calendar, none with such a number */
        { 1, 7, { "f", "12345678", "1", "0", "10", "86400000000", "3" } },
        { 1, 7, { "f", "12345678", "1", "0", "10", "86400000000", "1" } },
        { 1, 7, { "f0+9+9", "12345678", "1", "0", "10", "86400000000", "0" } },
        { 1, 7, { "f0+9+9", "12345678", "1", "0", "10", "86400000000", "3" } },
        { 1, 7, { "f0+9+9", "12345678", "1", "0", "10", "86400000000",
                  "96" } },
        { 1, 7, { "f0+9+", "12345678", "1", "0", "10", "86400000000", "1" } },
        { 1, 7, { "f0+9-9", "12345678", "1", "0", "10", "86400000000", "1" } },
        { 1, 7, { "f0+9+9 ", "12345678", "1", "0", "10", "86400000000",
                  "1" } },
        { 1, 7, { "s0+9+9", "12345678", "1", "0", "10", "86400000000", "1" } },

        /* 2^53 and one millisecond's weight; too long */
        { 1, 7, { "s", "12345678", "1", "0", "1073741824", "8388608001",
                  "0" } },
        { 1, 7, { "t", "12345678", "1", "0", "1073741824", "1048577", "1" } },

        /* without a set, without a name, too many entries */
        { 1, 8, { "l", "12345678", "1", "0", "10", "1000000", "0",
                  "12345678" } },
        { 2, 7, { "l", "12345678", "1", "0", "10", "1000000", "0" } },
        { 2, 8, { "l", "12345678", "1", "0", "10001", "1000000", "0",
                  "12345678" } },

        /* no lease of what is in a sorted set, and none to give back */
        { 2, 8, { "l", "12345678", "1", "1+2/3", "10", "1000000", "0",
                  "12345678" } },
        { 2, 8, { "c", "12345678", "1", "0+0/1", "10", "1000000", "0",
                  "12345678" } },
        { 1, 7, { "t", "12345678", "-1", "0+2/3", "10", "100", "1" } }
    };
    static const unsigned  lengths[] = { 0, 6, 9, 119 };
    static const struct {
        unsigned     at;
        const char  *value;
    } cases[] = {
        { 0, "" }, { 0, "x" }, { 0, "tt" }, { 0, "l" }, { 0, "C" }, { 1, "" },
            { 1, "1234567" }, { 1, "123456789" }, { 2, "" }, { 2, "secret" },
            { 2, "1.5" }, { 2, "nan" }, { 2, "inf" }, { 2, "1073741825" }, { 2,
            "-1073741825" }, { 3, "-2" }, { 3, "x" }, { 3, "0.5" }, { 3,
            "9007199254740994" }, { 3, "nan" }, { 3, "" }, { 3, "1+2" }, { 3,
            "1+2/" }, { 3, "1+2/0" }, { 3, "+1/2" }, { 3, "1+/2" }, { 3,
            "1/2" }, { 3, "1+2/3 " }, { 3, " 1+2/3" }, { 3, "1 +2/3" }, { 3,
            "1+2/3/4" }, { 3, "-1+2/3" }, { 3, "1+-2/3" }, { 3, "1+2/-3" }, { 3,
            "1.5+2/3" }, { 3, "1+2.5/3" }, { 3, "1+2/3.5" }, { 3, "1e3+1/2" },
            { 3, "0x1+1/2" }, { 3, "nan+1/2" }, { 3, "1+nan/2" }, { 3,
            "1+1/inf" }, { 3, "1073741825+1/2" }, { 3, "1+1073741825/2" }, { 3,
            "1+1/1073741825" }, { 3,
            "1+1/99999999999999999999999999999999999999999999" }, { 4, "0" },
            { 4, "1073741825" }, { 4, "nan" }, { 4, "2.5" }, { 5, "0" }, { 5,
            "31622400000001" }, { 5, "-1" }, { 5, "9.5" }, { 6, "0" }, { 6,
            "4194305" }, { 6, "1.5" }, { 6, "" }
    };

    parity_start();

    for (unsigned bad = 0; bad < sizeof(cases) / sizeof(cases[0]); bad++) {

        /* alone, and behind one that could be charged */

        for (unsigned i = 0; i < 2; i++) {
            memcpy(args, good, sizeof(good));
            memcpy(args + i * 7, good, sizeof(good));
            args[i * 7 + 1] = i ? "abcdefgh" : "12345678";
            args[i * 7 + cases[bad].at] = cases[bad].value;

            err = parity_run_raw(1, args, i * 7 + 7);

            if (err == NULL) {
                fail_msg("argument %u \"%s\" accepted", cases[bad].at,
                         cases[bad].value);
            }

            /* no number at all: Lua's own error; neither names the value */

            assert_true(strcmp(err, "ERR ratelimit: malformed argument") == 0
                        || strstr(err, "attempt to perform arithmetic on "
                                       "field '?' (a string value)"));
            lua_pop(parity.lua, 1);
        }
    }

    for (unsigned bad = 0; bad < COUNT(calls); bad++) {
        memcpy(args, calls[bad].args, sizeof(calls[bad].args));
        assert_non_null(parity_run_raw(calls[bad].nkeys, args, calls[bad].n));
        lua_pop(parity.lua, 1);
    }

    for (unsigned i = 0; i < 119; i++) {
        args[i] = good[i % 7];
    }

    for (unsigned bad = 0; bad < COUNT(lengths); bad++) {
        assert_non_null(parity_run_raw(1, args, lengths[bad]));
        lua_pop(parity.lua, 1);
    }

    assert_non_null(parity_run_raw(0, args, 7));
    lua_pop(parity.lua, 1);

    /* nothing of all that was written */

    assert_true(model_total("HSET") == 0);
    assert_null(parity_run_raw(1, good, 7));
    assert_true(model_total("HSET") == 1);

    lua_pop(parity.lua, 1);
}


/* What a lease takes of the ten tokens that a fresh counter has. */
static void
test_lease(void **state)
{
    parity_call_t    call;
    parity_answer_t  answer;

    static const struct {
        int64_t   cost;
        int64_t   want;
        uint32_t  ahead;
        uint32_t  share;
        int64_t   granted;
    } cases[] = {
        { 1, 0, 0, 1, 1 },              /* nothing ahead: the cost */
        { 1, 4, 0, 1, 4 },
        { 1, 0, 3, 1, 4 },
        { 0, 0, 3, 1, 3 },
        { 1, 0, 100, 1, 10 },           /* all */
        { 1, 0, 100, 2, 5 },            /* half of nine, rounded down */
        { 1, 0, 4, 2, 5 },
        { 1, 0, 3, 2, 4 },
        { 1, 4, 100, 4, 5 },            /* a fourth of the six behind want */
        { 5, 4, 100, 4, 6 },            /* the cost is more than wanted */
        { 1, 20, 100, 4, 10 },          /* nothing is left for more */
        { 1, 0, 100, 10, 1 },           /* a share below one */
        { 10, 0, 100, 1, 10 },
        { 11, 0, 100, 1, 0 },           /* denied */
        { 1, 1 << 30, 1 << 30, 1 << 30, 10 },
        { 1, 0, 1 << 30, 1, 10 }
    };

    for (unsigned kind = 0; kind < 6; kind++) {
        for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            parity_start();
            parity_call_init(&call, 7, 1);
            call.args[0].kind = "tfsTFS"[kind];
            call.args[0].a = 1000000;
            call.args[0].b = (kind % 3 == 0);
            call.args[0].cost = cases[i].cost;
            call.args[0].want = cases[i].want;
            call.args[0].ahead = cases[i].ahead;
            call.args[0].share = cases[i].share;

            parity_run(&call, &answer);
            assert_int_equal(answer[0], cases[i].granted);
            assert_int_equal(answer[1], 10 - cases[i].granted);
            assert_int_equal(answer[3], cases[i].cost > 10 ? -1 : 0);
            assert_true(model_total("HSET") == (cases[i].granted > 0));
        }
    }
}


/* Where another counter denies, a lease gets nothing, nor what is ahead. */
static void
test_lease_refused(void **state)
{
    parity_call_t    call;
    parity_answer_t  answers[3];

    for (unsigned denies = 0; denies < 3; denies++) {
        parity_start();
        parity_call_init(&call, 7, 3);

        for (unsigned i = 0; i < 3; i++) {
            call.args[i].want = 2;
            call.args[i].ahead = 100;
            call.args[i].share = 4;
        }

        call.args[denies].cost = 11;
        parity_run(&call, answers);

        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(answers[i][0], 0);
            assert_int_equal(answers[i][1], 10);
        }

        assert_true(model_total("HSET") == 0);

        /* but where its denial does not count */

        call.args[denies].kind = 'T';
        parity_run(&call, answers);

        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(answers[i][0], i == denies ? 0 : 4);
            assert_int_equal(answers[i][1], i == denies ? 10 : 6);
        }
    }
}


/* What no script wrote counts as fresh, whatever it holds. */
static void
test_foreign_value(void **state)
{
    char             value[32];
    size_t           len;
    parity_call_t    call;
    parity_answer_t  answer;

    /* how long a state is, and where its code is: 0 is nobody's */

    static const struct {
        char    kind;
        size_t  len;
        size_t  code;
    } kinds[] = { { 't', 12, 10 }, { 'f', 13, 11 }, { 's', 17, 11 } };

    parity_start();
    parity_call_init(&call, 7, 1);

    for (size_t i = 0; i < 3; i++) {
        call.args[0].kind = kinds[i].kind;
        call.args[0].b = (kinds[i].kind == 't');

        for (len = 0; len < sizeof(value); len++) {
            memset(value, 0xff, sizeof(value));

            if (len == kinds[i].len) {
                value[kinds[i].code] = 0;
                value[kinds[i].code + 1] = 0;
            }

            model_flush();
            model_put(7, value, len);

            parity_run(&call, &answer);
            assert_int_equal(answer[0], 1);
            assert_int_equal(answer[1], 9);
        }
    }
}


/* Adds n new counters in one call; returns how many the bucket then holds. */
static unsigned
bucket_grow(unsigned first, unsigned n)
{
    parity_call_t    call;
    parity_answer_t  answers[PARITY_COUNTERS];

    parity_call_init(&call, first, n);
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
    parity_start();

    for (unsigned i = 0; i < 62; i++) {
        model_put(i, "\0\0\0\0\0\0\1\0\0\0\1\0", 12);
    }

    double sweeps = model_total("HSCAN");

    assert_int_equal(bucket_grow(62, 1), 63);
    assert_true(model_total("HSCAN") == sweeps);

    /* 64 is passed, not met */

    assert_int_equal(bucket_grow(63, 3), 4);
    assert_true(model_total("HSCAN") == sweeps + 1);

    /* all in use: looked at again at 64 and 80 only */

    for (unsigned i = 66; i < 66 + 90; i++) {
        assert_int_equal(bucket_grow(i, 1), i - 61);
    }

    assert_true(model_total("HSCAN") == sweeps + 3);
}


/* One that is longer than all others is looked at in part. */
static void
test_bucket_longest(void **state)
{
    unsigned  i;

    parity_start();

    for (i = 0; i < 4094; i++) {
        model_put(i, "\0\0\0\0\0\0\1\0\0\0\1\0", 12);
    }

    double sweeps = model_total("HSCAN");
    assert_int_equal(bucket_grow(i, 1), 4095);
    assert_true(model_total("HSCAN") == sweeps);

    /* 512 of them, or 511 and the counter that is new */

    assert_in_range(bucket_grow(i + 1, 1), 4096 - 512, 4096 - 511);
    assert_true(model_total("HSCAN") == sweeps + 1);
}


/* What was given back whole leaves nothing that has to be kept. */
static void
test_bucket_given(void **state)
{
    parity_call_t    call;
    parity_answer_t  answer;

    for (unsigned kind = 0; kind < 3; kind++) {
        parity_start();

        for (unsigned i = 0; i < 63; i++) {
            parity_call_init(&call, i, 1);
            call.args[0].kind = "tfs"[kind];
            call.args[0].a = 1000000;
            call.args[0].b = (kind == 0);

            parity_run(&call, &answer);
            assert_int_equal(answer[1], 9);

            call.args[0].cost = -1;
            parity_run(&call, &answer);
            assert_int_equal(answer[1], 10);
        }

        /* but a bucket: it is full from now on, not since before */

        assert_int_equal(bucket_grow(63, 1), 1 + 63 * (kind == 0));
    }
}


/* Expiry is looked at once for each minute that a counter's instant enters. */
static void
test_expiry(void **state)
{
    parity_call_t    call;
    parity_answer_t  answer;

    /* START is 20 s behind a minute */
    static const unsigned  looks[] = { 4, 1, 1 };

    for (unsigned kind = 0; kind < 3; kind++) {
        parity_start();
        parity_call_init(&call, 7, 1);
        call.args[0].kind = "tfs"[kind];
        call.args[0].capacity = 1000;

        if (kind) {
            call.args[0].a = 3600000000;
            call.args[0].b = 0;
        }

        for (unsigned i = 0; i < 180; i++) {
            parity_run(&call, &answer);
            assert_int_equal(answer[0], 1);
            call.now_us += 1000000;
        }

        assert_true(model_total("HSET") == 180);
        assert_true(model_total("PTTL") == looks[kind]);
        assert_true(model_total("PEXPIRE") <= looks[kind]);
    }
}

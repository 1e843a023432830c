/* Redis' protocol: commands written, replies read, limits kept. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "ngx_rl_redis_codec.h"

#define SLOTS_HEAD  "*2\r\n*4\r\n:0\r\n:5460\r\n"
#define ID          "0123456789abcdef0123456789abcdef01234567"
#define PRIMARY     "*4\r\n$9\r\n127.0.0.1\r\n:7001\r\n$40\r\n" ID "\r\n*0\r\n"
#define REPLICA     "*4\r\n$9\r\n127.0.0.9\r\n:7009\r\n$2\r\nid\r\n*0\r\n"
#define SLOTS_TAIL  "*3\r\n:5461\r\n:16383\r\n*3\r\n$-1\r\n:7002\r\n$0\r\n\r\n"


static ngx_rl_redis_reply_t  reply;
static char                         text[100000];


void *
ngx_alloc(size_t size, ngx_log_t *log)
{
    (void) log;

    return malloc(size);
}


/* Reads one reply fed in pieces of step bytes; what it has stays. */
static ngx_int_t
read_reply(const char *data, size_t len, size_t step, ngx_rl_redis_form_e form)
{
    size_t     n;
    ngx_int_t  rc;

    ngx_rl_redis_ranges_free(&reply);
    ngx_rl_redis_texts_free(&reply);

    void *reader = ngx_rl_redis_reader_new(&reply);
    assert_non_null(reader);

    for (rc = NGX_AGAIN; len && rc == NGX_AGAIN; data += n, len -= n) {
        n = ngx_min(len, step);

        ngx_rl_redis_reader_feed(reader, (const u_char *) data, n);
        rc = ngx_rl_redis_reader_next(reader, &reply, form);
    }

    if (rc == NGX_OK) {
        assert_int_equal(ngx_rl_redis_reader_left(reader), 0);
    }

    redisReaderFree(reader);

    return rc;
}


static ngx_int_t
read_text(const char *data)
{
    return read_reply(data, strlen(data), strlen(data), 0);
}


static void
test_command(void **state)
{
    char             *expected;
    u_char            command[100], *p;
    static ngx_str_t  args[] = {
        ngx_string("SET"), ngx_string(""), ngx_string("a\r\n\0b") };
    const char       *argv[] = { "SET", "", "a\r\n\0b" };
    const size_t      lens[] = { 3, 0, 5 };

    int len = redisFormatCommandArgv(&expected, 3, argv, lens);

    p = ngx_rl_redis_write_command(command, args, 3);
    assert_int_equal(p - command, len);
    assert_memory_equal(command, expected, len);

    free(expected);
}


static void
test_integers(void **state)
{
    static const char  data[] =
        "*4\r\n:1\r\n:-2\r\n:9007199254740993\r\n:0\r\n";

    for (size_t step = 1; step < sizeof(data); step++) {
        assert_int_equal(read_reply(data, sizeof(data) - 1, step, 0), NGX_OK);
        assert_int_equal(reply.type, REDIS_REPLY_ARRAY);
        assert_int_equal(reply.flat, 1);
        assert_int_equal(reply.n, 4);
        assert_true(reply.values[0] == 1);
        assert_true(reply.values[1] == -2);
        assert_true(reply.values[2] == 9007199254740993);
        assert_true(reply.values[3] == 0);
    }
}


/* A whole reply is read where it stands, and in pieces hiredis reads it. */
static void
test_integers_as_hiredis(void **state)
{
    static const char  *cases[] = {
        "*1\r\n:-0\r\n", "*1\r\n:00\r\n", "*1\r\n:01\r\n", "*1\r\n:-01\r\n",
        "*1\r\n:\r\n", "*1\r\n:-\r\n", "*1\r\n:+1\r\n", "*1\r\n: 1\r\n",
        "*1\r\n:1a\r\n", "*1\r\n:1\n\n", "*1\r\n:1\r\r", "*1\n:1\r\n",
        "*1\r\n:999999999999999999\r\n", "*1\r\n:-999999999999999999\r\n",
        "*1\r\n:1000000000000000000\r\n", "*1\r\n:9223372036854775807\r\n",
        "*1\r\n:-9223372036854775808\r\n", "*1\r\n:9223372036854775808\r\n",
        "*1\r\n:99999999999999999999999\r\n", "*0\r\n", "*-1\r\n", "*65\r\n",
        "*01\r\n:1\r\n", "*1\r\n:1\r", "*2\r\n:1\r\n", "*1\r\n+1\r\n"
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = strlen(cases[i]);
        ngx_int_t rc = read_reply(cases[i], len, 1, 0);
        ngx_uint_t n = reply.n;
        int64_t value = reply.values[0];

        reply.values[0] = 0;
        assert_int_equal(read_reply(cases[i], len, len, 0), rc);

        if (rc == NGX_OK) {
            assert_int_equal(reply.n, n);
            assert_true(n == 0 || reply.values[0] == value);
        }
    }
}


/* Several in what was received at once, and the last of them not whole. */
static void
test_several(void **state)
{
    static const char   data[] = "*1\r\n:1\r\n*2\r\n:2\r\n:2\r\n-ERR x\r\n"
                                 "*1\r\n:4\r\n*1\r\n:5\r\n";

    size_t len = sizeof(data) - 1;

    for (size_t cut = 1; cut < len; cut++) {
        void *reader = ngx_rl_redis_reader_new(&reply);
        assert_non_null(reader);
        ngx_uint_t n = 0;

        ngx_rl_redis_reader_feed(reader, (const u_char *) data, cut);

        while (ngx_rl_redis_reader_next(reader, &reply, 0) == NGX_OK) {
            n++;
        }

        ngx_rl_redis_reader_feed(reader, (const u_char *) data + cut,
                                 len - cut);

        while (ngx_rl_redis_reader_next(reader, &reply, 0) == NGX_OK) {
            n++;
            assert_int_equal(reply.type, n == 3 ? REDIS_REPLY_ERROR
                                                : REDIS_REPLY_ARRAY);
            assert_true(n == 3 || (ngx_uint_t) reply.values[0] == n);
        }

        assert_int_equal(n, 5);
        assert_int_equal(ngx_rl_redis_reader_left(reader), 0);
        ngx_rl_redis_reader_free(reader, &reply);
    }
}


static void
test_not_flat(void **state)
{
    static const char  *cases[] = {
        ":5\r\n", "$3\r\nfoo\r\n", "+OK\r\n", "$-1\r\n", "*-1\r\n",
        "*2\r\n:1\r\n$1\r\nx\r\n", "*2\r\n:1\r\n$-1\r\n",
        "*2\r\n*1\r\n:1\r\n:2\r\n", "*1\r\n-ERR x\r\n"
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_text(cases[i]), NGX_OK);
        assert_int_equal(reply.flat, 0);
    }

    assert_int_equal(read_text("-MOVED 1 ::1:7001\r\n"), NGX_OK);
    assert_int_equal(reply.type, REDIS_REPLY_ERROR);
    assert_int_equal(reply.text_len, 16);
    assert_memory_equal(reply.text, "MOVED 1 ::1:7001", 16);
}


static void
test_limits(void **state)
{
    size_t  i;

    size_t len = sprintf(text, "*64\r\n");

    for (i = 0; i < 64; i++) {
        len += sprintf(text + len, ":%d\r\n", (int) i);
    }

    assert_int_equal(read_text(text), NGX_OK);
    assert_int_equal(reply.n, 64);
    assert_true(reply.values[63] == 63);

    /* arrays in an array: more integers than there is room for */

    for (len = sprintf(text, "*64\r\n"), i = 0; i < 64 * 64; i++) {
        len += sprintf(text + len, "%s:7\r\n", i % 64 ? "" : "*64\r\n");
    }

    assert_int_equal(read_text(text), NGX_OK);
    assert_int_equal(reply.flat, 0);
    assert_int_equal(reply.n, 0);

    assert_int_equal(read_text("*65\r\n:1\r\n"), NGX_ERROR);
    assert_int_equal(read_text("*2147483647\r\n"), NGX_ERROR);
    assert_int_equal(read_text("HTTP/1.1 400\r\n"), NGX_ERROR);

    for (len = 0; len < 200; len += 4) {
        memcpy(text + len, "*1\r\n", 5);
    }

    assert_int_equal(read_text(text), NGX_ERROR);

    /* a long error is cut off, a string that never ends is refused */

    memset(text, 'x', sizeof(text));
    text[0] = '-';
    memcpy(text + 2000, "\r\n", 3);

    assert_int_equal(read_text(text), NGX_OK);
    assert_int_equal(reply.text_len, NGX_RL_REDIS_MAX_TEXT);

    memset(text, 'x', sizeof(text));
    memcpy(text, "$90000\r\n", 8);

    assert_int_equal(read_reply(text, 60000, 1000, 0), NGX_AGAIN);
    assert_int_equal(read_reply(text, 70000, 1000, 0), NGX_ERROR);
}


static void
test_slots(void **state)
{
    static const char      data[] = SLOTS_HEAD PRIMARY REPLICA SLOTS_TAIL;

    for (size_t step = 1; step < sizeof(data); step++) {
        assert_int_equal(read_reply(data, sizeof(data) - 1, step, 1), NGX_OK);
        assert_int_equal(reply.nranges, 2);

        ngx_rl_redis_range_t *range = reply.ranges;
        assert_true(range->first == 0 && range->last == 5460);
        assert_true(range->port == 7001);
        assert_int_equal(range->host_len, 9);
        assert_memory_equal(range->host, "127.0.0.1", 9);
        assert_memory_equal(range->id, ID, 40);

        range++;
        assert_true(range->first == 5461 && range->last == 16383);
        assert_true(range->port == 7002);
        assert_int_equal(range->host_len, 0);
        assert_int_equal(range->id[0], 0);
    }
}


/*
 * The largest Cluster: each hash slot is a range of its own, of a primary and
 * three replicas with the longest names. It is read in pieces, and what is not
 * parsed yet stays small.
 */
static void
test_slots_large(void **state)
{
    size_t                 n;
    static char            name[256], entry[4096];

    memset(name, 'h', 255);

    void *reader = ngx_rl_redis_reader_new(&reply);
    redisReader *rd = reader;
    ngx_int_t rc = NGX_AGAIN;

    ngx_rl_redis_reader_feed(reader, (const u_char *) "*16384\r\n", 8);
    assert_int_equal(ngx_rl_redis_reader_next(reader, &reply,
                                              NGX_RL_REDIS_FORM_SLOTS),
                     NGX_AGAIN);

    for (ngx_uint_t slot = 0; slot < 16384; slot++) {
        assert_int_equal(rc, NGX_AGAIN);

        n = sprintf(entry, "*6\r\n:%lu\r\n:%lu\r\n", (unsigned long) slot,
                    (unsigned long) slot);

        for (ngx_uint_t node = 0; node < 4; node++) {
            n += sprintf(entry + n, "*4\r\n$255\r\n%s\r\n:7000\r\n$40\r\n"
                         "%040d\r\n*2\r\n$8\r\nhostname\r\n$255\r\n%s\r\n",
                         name, 1, name);
        }

        /* in two pieces */

        for (size_t i = 0; i < 2; i++) {
            ngx_rl_redis_reader_feed(reader, (const u_char *) entry + i * 1000,
                                     i ? n - 1000 : 1000);
            rc = ngx_rl_redis_reader_next(reader, &reply,
                                          NGX_RL_REDIS_FORM_SLOTS);
            assert_int_not_equal(rc, NGX_ERROR);
        }

        assert_true(rd->len < 65536);
    }

    assert_int_equal(rc, NGX_OK);
    assert_int_equal(reply.nranges, 16384);

    ngx_rl_redis_range_t *range = &reply.ranges[16383];
    assert_true(range->first == 16383 && range->last == 16383);
    assert_int_equal(range->host_len, 255);
    assert_int_equal(range->port, 7000);

    ngx_rl_redis_reader_free(reader, &reply);

    /* no element is that long */

    memset(text, 'x', sizeof(text));
    memcpy(text, "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$90000\r\n", 29);
    assert_int_equal(read_reply(text, 70000, 1000, 1), NGX_ERROR);
}


/* What is no list of ranges gives no range that could be taken for one. */
static void
test_slots_broken(void **state)
{
    static const char  *cases[] = {
        "*0\r\n", "*1\r\n:1\r\n", "*1\r\n*0\r\n", "*1\r\n$1\r\nx\r\n",
        "*1\r\n*3\r\n*1\r\n:0\r\n:5\r\n*2\r\n$3\r\n::1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:5\r\n$3\r\n::1\r\n", "*1\r\n*2\r\n:0\r\n:5\r\n"
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_reply(cases[i], strlen(cases[i]), 1, 1), NGX_OK);

        for (size_t k = 0; k < reply.nranges; k++) {
            assert_true(reply.ranges[k].first < 0 || reply.ranges[k].port == 0);
        }
    }

    assert_int_equal(read_reply("*16385\r\n", 8, 8, 1), NGX_ERROR);
}


/* A host longer than any becomes one that no node has. */
static void
test_slots_host(void **state)
{
    size_t len = sprintf(text, "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$300\r\n");
    memset(text + len, 'h', 300);
    len += 300;
    len += sprintf(text + len, "\r\n:1\r\n");

    assert_int_equal(read_reply(text, len, 7, 1), NGX_OK);
    assert_int_equal(reply.ranges[0].host_len, 1);
    assert_int_equal(reply.ranges[0].host[0], '?');
    assert_true(reply.ranges[0].port == 1);
}


/* What documents are answered with, in pieces of any size. */
static void
test_texts(void **state)
{
    static const char  data[] =
        "*6\r\n$2\r\n42\r\n$0\r\n\r\n:-7\r\n$-1\r\n+OK\r\n"
        ":9223372036854775807\r\n";
    static const char *const  texts[] = { "42", "", "-7", "", "OK",
                                          "9223372036854775807" };

    for (size_t step = 1; step < sizeof(data); step++) {
        assert_int_equal(read_reply(data, sizeof(data) - 1, step,
                                    NGX_RL_REDIS_FORM_TEXTS), NGX_OK);
        assert_int_equal(reply.type, REDIS_REPLY_ARRAY);
        assert_int_equal(reply.flat, 1);
        assert_int_equal(reply.ntexts, 6);

        for (size_t i = 0; i < 6; i++) {
            assert_int_equal(reply.texts[i].len, strlen(texts[i]));
            assert_memory_equal(reply.texts[i].data, texts[i],
                                strlen(texts[i]));
        }
    }
}


/* One text, an error, what is nested, too many, and a large one. */
static void
test_texts_other(void **state)
{
    size_t                      n;
    static const unsigned       form = NGX_RL_REDIS_FORM_TEXTS;
    static const struct {
        const char  *data;
        int          type;
        ngx_uint_t   n;
        unsigned     flat;
    } cases[] = {
        { "$3\r\nabc\r\n", REDIS_REPLY_STRING, 1, 0 }, { ":5\r\n",
            REDIS_REPLY_INTEGER, 1, 0 }, { "$-1\r\n", REDIS_REPLY_STRING, 1,
            1 }, { "*-1\r\n", REDIS_REPLY_ARRAY, 1, 1 }, { "-OOM no\r\n",
            REDIS_REPLY_ERROR, 1, 0 }, { "*0\r\n", REDIS_REPLY_ARRAY, 0, 1 },
            { "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", REDIS_REPLY_ARRAY, 1, 0 }
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = strlen(cases[i].data);
        assert_int_equal(read_reply(cases[i].data, n, n, form), NGX_OK);
        assert_int_equal(reply.type, cases[i].type);
        assert_int_equal(reply.ntexts, cases[i].n);
        assert_int_equal(reply.flat, cases[i].flat);
    }

    assert_int_equal(read_reply("*129\r\n", 6, 6, form), NGX_ERROR);

    /* more than any other reply may have, and more than it may */

    n = NGX_RL_REDIS_CONTROL_BYTES + 100000;
    char *large = malloc(n);
    assert_non_null(large);
    memset(large, 'x', n);

    size_t i = sprintf(large, "$%u\r\n", 1000000);
    large[i] = 'x';
    memcpy(large + i + 1000000, "\r\n", 2);
    assert_int_equal(read_reply(large, i + 1000002, 65536, 0), NGX_ERROR);
    assert_int_equal(read_reply(large, i + 1000002, 65536, form), NGX_OK);

    memcpy(large + i + 1000000, "xx", 2);
    i = sprintf(large, "$%u\r\n", NGX_RL_REDIS_CONTROL_BYTES + 90000);
    large[i] = 'x';
    assert_int_equal(read_reply(large, n, 65536, form), NGX_ERROR);

    free(large);
}

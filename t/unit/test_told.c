/*
 * What gateways tell each other: a message has what was put in, no byte of it
 * can be changed, and a limit that was told counts as its own.
 */

#include "unit.h"

#include "ngx_rl_told.h"
#include "ngx_rl_window.h"

static u_char  buf[NGX_RL_TOLD_MOST];

static const u_char  key[NGX_RL_TOLD_SECRET] = "0123456789abcdef";


static ngx_rl_limit_t
limit_of(ngx_rl_algorithm_e algorithm, uint64_t tokens, uint64_t period_us)
{
    ngx_rl_spec_t   spec;
    ngx_rl_limit_t  limit;

    memset(&spec, 0, sizeof(spec));
    memset(&limit, 0, sizeof(limit));

    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = (algorithm == NGX_RL_CONCURRENCY) ? 0 : period_us;
    spec.burst = (algorithm == NGX_RL_LEAKY_BUCKET) ? 9 : 0;

    assert_null(ngx_rl_limit_init(&limit, &spec));

    return limit;
}


static void
test_messages(void **state)
{
    size_t                 len, i;
    ngx_rl_id_t            id;
    ngx_rl_told_t          told;
    ngx_rl_limit_t         limit;
    ngx_rl_algorithm_e     algorithm;
    ngx_rl_told_limit_t    out;
    ngx_rl_told_writer_t   writer;
    ngx_rl_told_reader_t   reader;

    ngx_rl_told_begin(&writer, buf, sizeof(buf), NGX_RL_TOLD_STATE);

    for (i = 0; i < 60; i++) {
        algorithm = (ngx_rl_algorithm_e) (i % 6);
        limit = limit_of(algorithm, 100, 7000000);
        ngx_rl_told_limit(&out, &limit, (uint32_t) i % 6 + 1);
        id.hi = i * 0x0123456789abcdefu;
        id.lo = ~i;
        assert_int_equal(ngx_rl_told_add(&writer, &out, &id, 10 - (int32_t) i,
                                         (uint32_t) i,
                                         i % 4 ? 0 : 0xffffff00u
                                                     + (uint32_t) i), 0);
    }

    len = ngx_rl_told_end(&writer);
    ngx_rl_told_age(buf, 70000);
    ngx_rl_told_seal(buf, len, key, 77);

    /* each limit once, and a reset where there was one */

    assert_int_equal(len, NGX_RL_TOLD_LEAST + 6 * 24 + 60 * 25 + 15 * 4);
    assert_int_equal(ngx_rl_told_length(buf, 3), 0);
    assert_int_equal(ngx_rl_told_length(buf, len), len);

    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 76), -1);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 77), 0);
    assert_int_equal(reader.kind, NGX_RL_TOLD_STATE);
    assert_int_equal(reader.age_ms, 70000);

    for (i = 0; i < 60; i++) {
        assert_int_equal(ngx_rl_told_next(&reader, &told), 1);

        limit = limit_of((ngx_rl_algorithm_e) (i % 6), 100, 7000000);
        assert_int_equal(told.limit->algorithm, limit.algorithm);
        assert_int_equal(told.limit->capacity,
                         ngx_rl_limit_is_bucket(&limit)
                         ? 0 + limit.rate.capacity : limit.capacity);
        assert_int_equal(told.limit->code, limit.code);

        if (ngx_rl_limit_is_bucket(&limit)) {
            assert_memory_equal(&told.limit->rate, &limit.rate,
                                sizeof(limit.rate));
        }

        assert_int_equal(told.zone, i % 6 + 1);
        assert_int_equal(told.id.hi, i * 0x0123456789abcdefu);
        assert_int_equal(told.id.lo, ~i);
        assert_int_equal(told.tokens, 10 - (int32_t) i);
        assert_int_equal(told.left_ms, i);
        assert_int_equal(told.reset, i % 4 ? 0 : 0xffffff00u + (uint32_t) i);
    }

    assert_int_equal(ngx_rl_told_next(&reader, &told), 0);

    /* no bit of it can be another one */

    for (i = 4; i < len; i++) {
        buf[i] ^= 1 << i % 8;
        assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 77), -1);
        buf[i] ^= 1 << i % 8;
    }
}


/* A full message stays what it is, whether counters or limits fill it. */
static void
test_full(void **state)
{
    int                    n;
    size_t                 len;
    ngx_rl_id_t            id;
    ngx_rl_told_t          told;
    ngx_rl_limit_t         limit;
    ngx_rl_told_limit_t    out;
    ngx_rl_told_writer_t   writer;
    ngx_rl_told_reader_t   reader;

    id.hi = 1;
    id.lo = 2;

    limit = limit_of(NGX_RL_FIXED_WINDOW, 5, 1000000);
    ngx_rl_told_limit(&out, &limit, 1);
    ngx_rl_told_begin(&writer, buf, sizeof(buf), NGX_RL_TOLD_SPENT);

    for (n = 0; ngx_rl_told_add(&writer, &out, &id, n, 0, 0) == 0; n++) {
        /* void */
    }

    len = ngx_rl_told_end(&writer);
    assert_true(n > 2600);
    assert_true(len <= sizeof(buf) && len + 60 > sizeof(buf));

    ngx_rl_told_begin(&writer, buf, sizeof(buf), NGX_RL_TOLD_SPENT);

    for (n = 0; ngx_rl_told_add(&writer, &out, &id, n, 0, 0) == 0; n++) {
        out.zone++;
    }

    assert_int_equal(n, NGX_RL_TOLD_LIMITS);

    len = ngx_rl_told_end(&writer);
    ngx_rl_told_seal(buf, len, key, 0);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 0), 0);

    for (n = 0; ngx_rl_told_next(&reader, &told) == 1; n++) {
        assert_int_equal(told.tokens, n);
    }

    assert_int_equal(n, NGX_RL_TOLD_LIMITS);
}


/* A word about a document, and one that is cut. */
static void
test_record(void **state)
{
    size_t                 len;
    ngx_rl_told_record_t   out, in;
    ngx_rl_told_reader_t   reader;
    static u_char          text[NGX_RL_TOLD_PART_MOST];

    memset(text, 'x', sizeof(text));
    memset(&out, 0, sizeof(out));
    out.zone = 0x01020304;
    out.version = (uint64_t) 1 << 53;
    out.id = ~(uint64_t) 1;
    out.offset = 3;
    out.size = 4;
    out.base = 5;
    out.base_id = 6;
    out.data = text;
    out.len = sizeof(text);

    len = ngx_rl_told_record(buf, NGX_RL_TOLD_PART, &out);
    assert_int_equal(len, NGX_RL_TOLD_MOST);
    ngx_rl_told_seal(buf, len, key, 0);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 0), 0);
    assert_int_equal(reader.kind, NGX_RL_TOLD_PART);
    assert_int_equal(ngx_rl_told_record_read(&reader, &in), 0);
    assert_int_equal(in.zone, out.zone);
    assert_int_equal(in.version, out.version);
    assert_int_equal(in.id, out.id);
    assert_int_equal(in.offset, 3);
    assert_int_equal(in.size, 4);
    assert_int_equal(in.base, 5);
    assert_int_equal(in.base_id, 6);
    assert_int_equal(in.len, sizeof(text));
    assert_memory_equal(in.data, text, sizeof(text));

    out.len = 0;
    len = ngx_rl_told_record(buf, NGX_RL_TOLD_ASK, &out);
    ngx_rl_told_seal(buf, len - 1, key, 0);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len - 1, key, 0), 0);
    assert_int_equal(ngx_rl_told_record_read(&reader, &in), -1);

    /* counters are no such word, and a kind that is not there is none */

    len = ngx_rl_told_record(buf, NGX_RL_TOLD_STATE, &out);
    ngx_rl_told_seal(buf, len, key, 0);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 0), 0);
    assert_int_equal(ngx_rl_told_record_read(&reader, &in), -1);

    len = ngx_rl_told_record(buf, NGX_RL_TOLD_KINDS, &out);
    ngx_rl_told_seal(buf, len, key, 0);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 0), -1);
}


/* A record that is cut in its reset is no record. */
static void
test_cut_reset(void **state)
{
    int                    rc;
    size_t                 len;
    ngx_rl_id_t            id;
    ngx_rl_told_t          told;
    ngx_rl_limit_t         limit;
    ngx_rl_told_limit_t    out;
    ngx_rl_told_writer_t   writer;
    ngx_rl_told_reader_t   reader;

    id.hi = 1;
    id.lo = 2;

    limit = limit_of(NGX_RL_FIXED_WINDOW, 5, 1000000);
    ngx_rl_told_limit(&out, &limit, 1);
    ngx_rl_told_begin(&writer, buf, sizeof(buf), NGX_RL_TOLD_SPENT);
    assert_int_equal(ngx_rl_told_add(&writer, &out, &id, 1, 0, 7), 0);

    len = ngx_rl_told_end(&writer);

    for (rc = 1; rc != -1; len--) {
        ngx_rl_told_seal(buf, len, key, 0);
        assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 0), 0);
        rc = ngx_rl_told_next(&reader, &told);
        assert_int_equal(rc, len == NGX_RL_TOLD_LEAST + 24 + 29 ? 1 : -1);
    }
}


/* A window may be longer than 32 bits of milliseconds. */
static void
test_long_window(void **state)
{
    size_t                 len;
    uint64_t               left_ms;
    ngx_rl_id_t            id;
    ngx_rl_told_t          told;
    ngx_rl_limit_t         limit;
    ngx_rl_told_limit_t    out;
    ngx_rl_told_writer_t   writer;
    ngx_rl_told_reader_t   reader;

    id.hi = 1;
    id.lo = 2;
    left_ms = (uint64_t) 90 * 86400 * 1000;

    limit = limit_of(NGX_RL_FIXED_WINDOW, 5, left_ms * 1000);
    ngx_rl_told_limit(&out, &limit, 1);
    ngx_rl_told_begin(&writer, buf, sizeof(buf), NGX_RL_TOLD_SPENT);
    assert_int_equal(ngx_rl_told_add(&writer, &out, &id, 3, left_ms, 0),
                     0);

    len = ngx_rl_told_end(&writer);
    ngx_rl_told_seal(buf, len, key, 0);
    assert_int_equal(ngx_rl_told_open(&reader, buf, len, key, 0), 0);
    assert_int_equal(ngx_rl_told_next(&reader, &told), 1);
    assert_int_equal(told.left_ms, left_ms);
}


/* Limits that no gateway has are none. */
static void
test_limits(void **state)
{
    ngx_rl_limit_t       limit;
    ngx_rl_told_limit_t  good, bad;

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 5, 1000000);
    ngx_rl_told_limit(&good, &limit, 1);
    assert_int_equal(ngx_rl_told_limit_read(&limit, &good), 0);

#define refused(member, value)                                                \
    bad = good;                                                               \
    bad.member = (value);                                                     \
    assert_int_equal(ngx_rl_told_limit_read(&limit, &bad), -1)

    refused(algorithm, 6);
    refused(capacity, 0);
    refused(capacity, (1u << 30) + 1);
    refused(period_us, 999);
    refused(period_us, ((uint64_t) 1 << 50) + 1);
    refused(code, 0);
    refused(code, 1 << 12);

    good.capacity = 10001;
    refused(algorithm, NGX_RL_SLIDING_LOG);
    good.capacity = 1u << 30;
    refused(period_us, (uint64_t) 1 << 40);
    good.algorithm = NGX_RL_TOKEN_BUCKET;
    refused(tokens, 0);
}


static void
test_used(void **state)
{
    ngx_rl_limit_t         limit;
    ngx_rl_answer_t        answer;
    ngx_rl_window_t        w;
    ngx_rl_token_bucket_t  tb;

    limit = limit_of(NGX_RL_TOKEN_BUCKET, 100, 60000000);
    memset(&tb, 0, sizeof(tb));

    ngx_rl_token_bucket_take(&tb, &limit.rate, 1000000, 30, 0, &answer);
    assert_int_equal(ngx_rl_told_used(&limit, &answer, 0), 30);

    /* a moment later it is still the same for who compares */

    ngx_rl_token_bucket_take(&tb, &limit.rate, 1000001, 0, 0, &answer);
    assert_int_equal(ngx_rl_told_used(&limit, &answer, 0), 29);
    assert_int_equal(ngx_rl_told_used(&limit, &answer, 1), 30);

    /* a debt is used, too */

    ngx_rl_token_bucket_take(&tb, &limit.rate, 1000000, 120, NGX_RL_CHARGE,
                             &answer);
    assert_int_equal(ngx_rl_told_used(&limit, &answer, 0), 150);

    limit = limit_of(NGX_RL_FIXED_WINDOW, 100, 60000000);
    memset(&w, 0, sizeof(w));

    ngx_rl_fixed_window_take(&w, &limit, 1000000, 60000000, 60000000, 7, 0,
                             &answer);
    assert_int_equal(ngx_rl_told_used(&limit, &answer, 0), 7);

    assert_true(ngx_rl_told_window(1000, 5000, 5499));
    assert_true(ngx_rl_told_window(1000, 5499, 5000));
    assert_false(ngx_rl_told_window(1000, 5000, 5500));
}


/* Nobody proves anything by what the other side has sent. */
static void
test_hellos(void **state)
{
    unsigned  i, j;
    u_char    one[NGX_RL_TOLD_HELLO], two[NGX_RL_TOLD_HELLO], proof[5][16];

    static const u_char  other[NGX_RL_TOLD_SECRET] = "0123456789abcdeg";

    ngx_rl_told_hello(one, 0x1122334455667788, key);
    ngx_rl_told_hello(two, 5, other);

    assert_int_equal(ngx_rl_told_hello_name(one), 0x1122334455667788);
    assert_int_equal(ngx_rl_told_hello_name(two), 5);

    for (i = 1; i <= 4; i++) {
        ngx_rl_told_prove(proof[i - 1], key, i, one, two);
    }

    ngx_rl_told_prove(proof[4], key, 1, two, one);

    for (i = 0; i < 5; i++) {
        for (j = 0; j < 5; j++) {
            assert_int_equal(ngx_rl_told_equal(proof[i], proof[j]), i == j);
        }
    }

    ngx_rl_told_prove(proof[0], other, 1, one, two);
    ngx_rl_told_prove(proof[1], key, 1, one, two);
    assert_false(ngx_rl_told_equal(proof[0], proof[1]));

    one[7]++;
    assert_int_equal(ngx_rl_told_hello_name(one), 0);
}

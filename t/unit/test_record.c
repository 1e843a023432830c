/* Records: what is written is read; what is cut, changed or hostile is not. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "ngx_rl_record.h"

#include "nginx_text.h"

#define DOCUMENT  "{\"rules\":[{\"id\":\"a\"}]}\n"
#define TIME_MS   UINT64_C(1798761599123)      /* 2026-12-31T23:59:59.123Z */

static ngx_pool_t              *pool;
static ngx_rl_record_t   record;


static void
set(ngx_str_t *s, const char *text)
{
    s->data = (u_char *) text;
    s->len = strlen(text);
}


static int
setup(void **state)
{
    pool = ngx_create_pool(4096, NULL);

    memset(&record, 0, sizeof(record));
    record.version = 42;
    record.id = UINT64_C(0x9f0c00000000abcd);
    record.lineage = UINT64_C(0x77ab);
    record.time_ms = TIME_MS;
    set(&record.author, "ann");
    set(&record.address, "192.0.2.1");
    set(&record.method, "PUT");
    set(&record.path, "/rules");
    set(&record.reason, "launch \"week\"");
    set(&record.document, DOCUMENT);

    return 0;
}


static int
teardown(void **state)
{
    ngx_destroy_pool(pool);

    return 0;
}

#define TEST_SETUP     setup
#define TEST_TEARDOWN  teardown


static ngx_str_t
text_of(const char *text, size_t len)
{
    ngx_str_t  copy;

    copy.len = len;
    copy.data = ngx_pnalloc(pool, len ? len : 1);
    memcpy(copy.data, text, len);

    return copy;
}


/* Writes the record. */
static void
written(void)
{
    assert_int_equal(ngx_rl_record_write(&record, pool), NGX_OK);
}


static void
assert_str(ngx_str_t *got, const char *expected)
{
    assert_int_equal(got->len, strlen(expected));
    assert_memory_equal(got->data, expected, got->len);
}


static void
test_write(void **state)
{
    static const char  head[] =
        "{\"format\":\"1.1\",\"version\":42,\"id\":\"9f0c00000000abcd\","
        "\"lineage\":\"00000000000077ab\","
        "\"time\":\"2026-12-31T23:59:59.123Z\",\"author\":\"ann\","
        "\"address\":\"192.0.2.1\",\"method\":\"PUT\",\"path\":\"/rules\","
        "\"reason\":\"launch \\\"week\\\"\",\"bytes\":23,\"sha256\":\"";

    written();
    assert_int_equal(record.text.len, sizeof(head) - 1 + 64 + 3
                                      + sizeof(DOCUMENT) - 1);
    assert_memory_equal(record.text.data, head, sizeof(head) - 1);
    assert_memory_equal(record.text.data + sizeof(head) - 1 + 64, "\"}\n", 3);
    assert_ptr_equal(record.document.data + record.document.len,
                     record.text.data + record.text.len);
    assert_str(&record.document, DOCUMENT);

    /* sha256sum says so of the head up to ,"sha256 and the document */
    assert_memory_equal(record.text.data + sizeof(head) - 1,
                        "223e656fff29519e7bb73a92ad86dc5f"
                        "52cd7cb71eea42407dda7dc32dbd10cc", 64);
}


static void
test_read(void **state)
{
    ngx_str_t         text;
    ngx_rl_record_t   got;

    written();

    /* another one behind it */
    text.data = ngx_pnalloc(pool, record.text.len + 5);
    memcpy(text.data, record.text.data, record.text.len);
    memcpy(text.data + record.text.len, "{\"a\":", 5);
    text.len = record.text.len + 5;

    assert_null(ngx_rl_record_read(&text, pool, &got));
    assert_int_equal(got.version, 42);
    assert_true(got.id == record.id);
    assert_true(got.time_ms == TIME_MS);
    assert_true(got.lineage == record.lineage);
    assert_str(&got.author, "ann");
    assert_str(&got.address, "192.0.2.1");
    assert_str(&got.method, "PUT");
    assert_str(&got.path, "/rules");
    assert_str(&got.reason, "launch \"week\"");
    assert_str(&got.document, DOCUMENT);
    assert_ptr_equal(got.text.data, text.data);
    assert_int_equal(got.text.len, record.text.len);
}


/* Of each way to cut it, and of each byte that is another one. */
static void
test_damaged(void **state)
{
    ngx_rl_record_t  got;

    written();
    size_t len = record.text.len;

    for (size_t i = 0; i < len; i++) {
        ngx_str_t text = text_of((char *) record.text.data, i);
        assert_non_null(ngx_rl_record_read(&text, pool, &got));
    }

    ngx_str_t text = text_of((char *) record.text.data, len);

    for (size_t i = 0; i < len * 8; i++) {
        text.data[i / 8] ^= 1 << (i % 8);
        assert_non_null(ngx_rl_record_read(&text, pool, &got));
        text.data[i / 8] ^= 1 << (i % 8);
    }

    for (size_t i = 0; i < len; i++) {
        u_char byte = text.data[i];
        text.data[i] = '\n';

        if (byte != '\n') {
            assert_non_null(ngx_rl_record_read(&text, pool, &got));
        }

        text.data[i] = byte;
    }

    assert_null(ngx_rl_record_read(&text, pool, &got));
}


static void
test_head(void **state)
{
    ngx_rl_record_t  got;

    written();
    size_t head = record.text.len - record.document.len;

    for (size_t i = 0; i < head; i++) {
        ngx_str_t text = text_of((char *) record.text.data, i);
        assert_non_null(ngx_rl_record_head(&text, pool, &got));
    }

    for (size_t i = head; i <= record.text.len; i++) {
        ngx_str_t text = text_of((char *) record.text.data, i);
        assert_null(ngx_rl_record_head(&text, pool, &got));
        assert_int_equal(got.version, 42);
        assert_str(&got.author, "ann");
        assert_ptr_equal(got.text.data, text.data);
        assert_int_equal(got.document.len, record.document.len);

        if (i < record.text.len) {
            assert_null(got.document.data);
            assert_int_equal(got.text.len, head);

        } else {
            assert_str(&got.document, DOCUMENT);
            assert_int_equal(got.text.len, record.text.len);
        }
    }
}


/* Heads that nobody here has written. */
static void
test_hostile(void **state)
{
    ngx_str_t        s;
    const char      *wrong;
    ngx_rl_record_t  got;

    static const char  sha[] = ",\"sha256\":\"01234567890123456789012345678901"
                               "23456789012345678901234567890123\"}\n";

#define HEAD(version, id, time, bytes)                                        \
    "{\"format\":\"1.0\",\"version\":" version ",\"id\":\"" id "\","          \
    "\"time\":\"" time "\",\"bytes\":" bytes
#define ID    "0000000000000001"
#define DAY   "2026-01-31T00:00:00.000Z"
#define GOOD  HEAD("1", ID, DAY, "2")

    static const struct {
        const char  *head;
        const char  *wrong;    /* NULL: only its digest */
    } heads[] = {
        { GOOD, NULL }, { GOOD ",\"author\":\"\",\"reason\":\"\"", NULL },
            { GOOD ",\"new\":{\"a\":[1]}", NULL },
            { GOOD ",\"lineage\":\"00000000000000ab\"", NULL },
            { HEAD("9007199254740992", ID, DAY, "2"), NULL },

        { "{\"format\":\"2.0\"", "format is of another major" },
        { "{\"format\":\"10.0\"", "format is of another major" },
        { "{\"format\":1", "no format" },
        { "{\"a\":1", "no format" },
        { "[1", "no JSON" },
        { "{\"format\":\"1.0\",\"format\":\"1.0\"", "no JSON" },
        { GOOD ",\"lineage\":\"ab\"", "lineage" },
        { GOOD ",\"lineage\":1", "lineage" },
        { GOOD ",\"path\":1", "no text" },
        { GOOD ",\"author\":1", "no text" },
        { GOOD ",\"author\":\"\\u0000\"", "no JSON" },
        { GOOD ",\"author\":\"\xff\"", "no JSON" },
        { HEAD("0", ID, DAY, "2"), "version" },
        { HEAD("-1", ID, DAY, "2"), "version" },
        { HEAD("1.0", ID, DAY, "2"), "version" },
        { HEAD("9007199254740993", ID, DAY, "2"), "version" },
        { HEAD("99999999999999999999", ID, DAY, "2"), "no JSON" },
        { HEAD("1", "1", DAY, "2"), "id" },
        { HEAD("1", "000000000000000G", DAY, "2"), "id" },
        { "{\"format\":\"1.0\",\"version\":1,\"id\":\"" ID "\"", "time" },
        { HEAD("1", ID, "2026-02-30T00:00:00.000Z", "2"), "time" },
        { HEAD("1", ID, "2026-13-01T00:00:00.000Z", "2"), "time" },
        { HEAD("1", ID, "2026-02-20T24:00:00.000Z", "2"), "time" },
        { HEAD("1", ID, "2026-02-20T00:00:00.000", "2"), "time" },
        { HEAD("1", ID, "2026-02-20T00:00:00.000Zx", "2"), "time" },
        { HEAD("1", ID, "2026", "2"), "time" },
        { HEAD("1", ID, "1969-12-31T23:59:59.999Z", "2"), "time" },
        { HEAD("1", ID, DAY, "\"\""), "length" },
        { HEAD("1", ID, DAY, "0"), "length" },
        { HEAD("1", ID, DAY, "-2"), "length" },
        { HEAD("1", ID, DAY, "1073741825"), "length" },
        { HEAD("1", ID, DAY, "1048577"), "larger than 1 MiB" },
        { HEAD("1", ID, DAY, "3"), "cut" },
    };

    assert_int_equal(sizeof(sha) - 1, 78);

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        size_t len = strlen(heads[i].head) + sizeof(sha) - 1 + 2;
        char *text = ngx_pnalloc(pool, len + 1);
        sprintf(text, "%s%s1\n", heads[i].head, sha);

        s = text_of(text, len);
        wrong = ngx_rl_record_read(&s, pool, &got);
        assert_non_null(wrong);
        assert_non_null(strstr(wrong, heads[i].wrong ? heads[i].wrong
                                                     : "digest does not fit"));
    }

    set(&s, "{\"format\":\"1.0\"}\nx\n");
    assert_non_null(ngx_rl_record_read(&s, pool, &got));
    set(&s, "[]\nx\n");
    assert_non_null(ngx_rl_record_read(&s, pool, &got));
    set(&s, "\n\n");
    assert_non_null(ngx_rl_record_read(&s, pool, &got));

    /* a head without end */
    s.len = NGX_RL_RECORD_HEAD + 10;
    s.data = ngx_pnalloc(pool, s.len);
    memset(s.data, ' ', s.len);
    s.data[s.len - 1] = '\n';
    assert_non_null(strstr(ngx_rl_record_read(&s, pool, &got), "head"));

    memset(s.data, '[', s.len);
    s.data[NGX_RL_RECORD_HEAD - 1] = '\n';
    assert_non_null(ngx_rl_record_read(&s, pool, &got));
}


/* What a client calls itself may be anything. */
static void
test_author(void **state)
{
    u_char            bytes[4000];
    ngx_rl_record_t   got;

    static const struct {
        const char  *author;
        const char  *kept;
    } authors[] = {
        { "", "" },
        { "J\xc3\xb6rg \xe2\x82\xac \xf0\x9f\x98\x80",
          "J\xc3\xb6rg \xe2\x82\xac \xf0\x9f\x98\x80" },
        { "\xff", "?" },
        { "\xc3", "?" },
        { "\xc3(", "?(" },
        { "\xc0\xaf", "??" },
        { "\xe0\x80\xaf", "???" },
        { "\xed\xa0\x80", "???" },
        { "\xf4\x90\x80\x80", "????" },
        { "\xf8\x88\x80\x80\x80", "?????" },
        { "\x80", "?" },
        { "a\r\n\"\\\x01", "a\r\n\"\\\x01" },
    };

    for (size_t i = 0; i < sizeof(authors) / sizeof(authors[0]); i++) {
        set(&record.author, authors[i].author);
        written();
        assert_null(ngx_rl_record_read(&record.text, pool, &got));
        assert_str(&got.author, authors[i].kept);
    }

    /* too long: cut, and not in the middle of a character */

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = "\xe2\x82\xac"[i % 3];
    }

    record.author.data = record.reason.data = bytes;
    record.author.len = record.reason.len = sizeof(bytes);
    written();
    assert_null(ngx_rl_record_read(&record.text, pool, &got));
    assert_int_equal(got.author.len, NGX_RL_RECORD_AUTHOR / 3 * 3);
    assert_int_equal(got.reason.len, NGX_RL_RECORD_REASON / 3 * 3);

    /* the longest that it may become */
    memset(bytes, 1, sizeof(bytes));
    record.version = (uint64_t) 1 << 53;
    record.time_ms = UINT64_MAX;
    written();
    assert_null(ngx_rl_record_read(&record.text, pool, &got));
    assert_int_equal(got.reason.len, NGX_RL_RECORD_REASON);
    assert_true(got.time_ms == UINT64_C(253402300799999));

    memset(bytes, 0, sizeof(bytes));
    record.author.len = 2;
    written();
    assert_null(ngx_rl_record_read(&record.text, pool, &got));
    assert_str(&got.author, "??");
}


static void
test_refused(void **state)
{
    static const char  *documents[] = { "", "{}", "{}\n\n", "{\n}\n", "\n{}" };

    size_t                   i;
    u_char                  *large;
    ngx_rl_record_t   got;

    for (i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        set(&record.document, documents[i]);
        assert_int_equal(ngx_rl_record_write(&record, pool), NGX_DECLINED);
    }

    set(&record.document, DOCUMENT);
    record.version = 0;
    assert_int_equal(ngx_rl_record_write(&record, pool), NGX_DECLINED);
    record.version = ((uint64_t) 1 << 53) + 1;
    assert_int_equal(ngx_rl_record_write(&record, pool), NGX_DECLINED);
    record.version = 1;

    allocations = 0;
    assert_int_equal(ngx_rl_record_write(&record, pool), NGX_ERROR);
    allocations = -1;

    /* the largest */
    i = NGX_RL_DOCUMENT_MAX;
    large = malloc(i + 1);
    memset(large, 'x', i + 1);
    record.document.data = large;
    record.document.len = i;
    large[i - 1] = '\n';
    written();
    assert_true(record.text.len <= NGX_RL_RECORD_MAX);
    assert_null(ngx_rl_record_read(&record.text, pool, &got));
    assert_int_equal(got.document.len, i);

    large[i - 1] = 'x';
    large[i] = '\n';
    record.document.data = large;
    record.document.len = i + 1;
    assert_int_equal(ngx_rl_record_write(&record, pool), NGX_DECLINED);

    free(large);
}


static void
test_no_memory(void **state)
{
    ngx_rl_record_t  got;

    written();
    allocations = 0;
    assert_ptr_equal(ngx_rl_record_read(&record.text, pool, &got),
                     ngx_rl_record_no_memory);
    allocations = 1;
    assert_ptr_equal(ngx_rl_record_read(&record.text, pool, &got),
                     ngx_rl_record_no_memory);
    allocations = -1;
}


/* As nginx.h's: one of them fails, once. */
static void *
json_alloc(size_t size)
{
    return ngx_alloc(size, NULL);
}


/* What is written is whole, whichever allocation fails. */
static void
test_write_no_memory(void **state)
{
    int              n;
    ngx_rl_record_t  got;

    json_set_alloc_funcs(json_alloc, free);
    ngx_uint_t failed = 0;

    for (n = 0; n < 1000; n++) {
        set(&record.document, DOCUMENT);
        allocations = n;
        ngx_int_t rc = ngx_rl_record_write(&record, pool);

        if (allocations >= 0) {
            break;      /* this one never came to be */
        }

        failed++;

        if (rc == NGX_OK) {
            assert_null(ngx_rl_record_read(&record.text, pool, &got));
            assert_str(&got.reason, "launch \"week\"");
        }
    }

    allocations = -1;
    json_set_alloc_funcs(malloc, free);
    assert_true(failed > 10 && n < 1000);
}

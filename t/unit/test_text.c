/* Numbers, rates and names as people write them. */

#include "unit.h"

#include "ngx_rl_text.h"
#include "ngx_rl_token_bucket.h"

#define TEXT(s)  (const u_char *) (s), sizeof(s) - 1


static void
test_rate(void **state)
{
    uint64_t  tokens, period;

    static const struct {
        const char  *text;
        uint64_t     tokens;
        uint64_t     period_s;
    } cases[] = {
        { "1r/s", 1, 1 },            { "0r/s", 0, 1 }, { "100r/m", 100, 60 },
            { "10r/5s", 10, 5 },         { "7r/2h", 7, 7200 }, { "5r/d", 5,
            86400 },        { "1r/366d", 1, 366 * 86400 }, { "1r/31622400s", 1,
            31622400 }, { "1073741824r/s", NGX_RL_MAX_TOKENS, 1 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_null(ngx_rl_rate_parse((const u_char *) cases[i].text,
                                      strlen(cases[i].text), &tokens, &period));
        assert_int_equal(tokens, cases[i].tokens);
        assert_int_equal(period, cases[i].period_s * 1000000);
    }
}


static void
test_rate_wrong(void **state)
{
    uint64_t     tokens, period;
    const char  *err;

    static const struct {
        const char  *text;
        const char  *expected;
    } cases[] = {
        { "", "a number of" },           { "r/s", "a number of" }, { "-1r/s",
            "a number of" }, { "1073741825r/s", "a number of" },
            { "99999999999999999999r/s", "a number of" }, { "10", "\"r/\"" },
                         { "10r", "\"r/\"" }, { "10/s", "\"r/\"" },
                       { "10R/s", "\"r/\"" }, { "10r:s", "\"r/\"" },
                      { "10rs", "\"r/\"" }, { "0.5r/s", "a whole number" },
             { "1.r/s", "a whole number" }, { "10r/", "a period of s" },
                { "10r/5", "a period of s" }, { "10r/w", "a period of s" },
               { "10r/S", "a period of s" }, { "10r/s ", "a period of s" },
              { "10r/0s", "a period from" }, { "10r/367d", "a period from" },
            { "10r/31622401s", "a period from" }, { "10r/-1s",
            "a period from" },  { "10r/5ss", "a period from" },
            { "10r/99999999999999999999s", "a period from" }
    };

    tokens = period = 77;

    for (size_t i = 0; i < COUNT(cases); i++) {
        err = ngx_rl_rate_parse((const u_char *) cases[i].text,
                                strlen(cases[i].text), &tokens, &period);

        if (err == NULL
            || strncmp(err, cases[i].expected, strlen(cases[i].expected)) != 0)
        {
            fail_msg("\"%s\": %s", cases[i].text, err ? err : "accepted");
        }
    }

    assert_int_equal(tokens, 77);
    assert_int_equal(period, 77);
}


static void
test_number(void **state)
{
    uint64_t  n;

    assert_int_equal(ngx_rl_number_parse(TEXT("0"), 0, 5, &n), 0);
    assert_true(n == 0);
    assert_int_equal(ngx_rl_number_parse(TEXT("007"), 7, 7, &n), 0);
    assert_true(n == 7);
    assert_int_equal(ngx_rl_number_parse(TEXT("18446744073709551615"), 0,
                                         UINT64_MAX, &n), 0);
    assert_true(n == UINT64_MAX);

    n = 77;
    assert_int_equal(ngx_rl_number_parse(TEXT("18446744073709551616"), 0,
                                         UINT64_MAX, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT(""), 0, 5, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT("6"), 0, 5, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT("6"), 7, 9, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT("+6"), 0, 9, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT("6 "), 0, 9, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT("6/"), 0, 99, &n), -1);
    assert_int_equal(ngx_rl_number_parse(TEXT("6:"), 0, 99, &n), -1);
    assert_true(n == 77);

    assert_int_equal(ngx_rl_number_clip(TEXT("0"), 5, &n), 0);
    assert_true(n == 0);
    assert_int_equal(ngx_rl_number_clip(TEXT("6"), 5, &n), 0);
    assert_true(n == 5);
    assert_int_equal(ngx_rl_number_clip(TEXT("99999999999999999999"), 9,
                                        &n), 0);
    assert_true(n == 9);
    n = 77;
    assert_int_equal(ngx_rl_number_clip(TEXT(""), 5, &n), -1);
    assert_int_equal(ngx_rl_number_clip(TEXT("6 "), 5, &n), -1);
    assert_true(n == 77);
}


static void
number_is(uint64_t value)
{
    u_char  out[21], *end;
    char    expected[21];

    out[20] = '!';
    end = ngx_rl_number_write(out, value);
    snprintf(expected, sizeof(expected), "%llu", (unsigned long long) value);
    assert_int_equal(end - out, strlen(expected));
    assert_memory_equal(out, expected, end - out);
    assert_int_equal(out[20], '!');
}


/* Also where a digit more begins, and a bit more. */
static void
test_span_write(void **state)
{
    u_char   out[NGX_RL_SPAN_BYTES], *end;

    static const struct {
        uint64_t     seconds;
        const char  *text;
    } cases[] = {
        { 0, "0 seconds" },        { 1, "1 second" }, { 59, "59 seconds" },
                 { 60, "1 minute" }, { 61, "61 seconds" },      { 90,
            "90 seconds" }, { 120, "2 minutes" },      { 3600, "1 hour" },
            { 5400, "90 minutes" },    { 7200, "2 hours" }, { 86400, "1 day" },
                   { 90000, "25 hours" }, { 604800, "7 days" },      { 31622400,
            "366 days" }, { UINT64_MAX, "18446744073709551615 seconds" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        end = ngx_rl_span_write(out, cases[i].seconds);

        assert_int_equal(end - out, strlen(cases[i].text));
        assert_memory_equal(out, cases[i].text, end - out);
    }
}


static void
test_number_write(void **state)
{
    unsigned  i;
    uint64_t  value;

    number_is(0);
    number_is(12345);
    number_is(UINT64_MAX);

    for (value = 1, i = 0; i < 20; value *= 10, i++) {
        number_is(value - 1);
        number_is(value);
        number_is(value + 1);
    }

    for (i = 0; i < 64; i++) {
        number_is(((uint64_t) 1 << i) - 1);
        number_is((uint64_t) 1 << i);
    }

    /* each group of four digits */

    for (value = 0; value < 10000; value++) {
        number_is(value);
        number_is(100000000 + value);
        number_is(100000000 + value * 10000);
    }
}


static void
test_seconds_up(void **state)
{
    assert_int_equal(ngx_rl_seconds_up(0), 0);
    assert_int_equal(ngx_rl_seconds_up(1), 1);
    assert_int_equal(ngx_rl_seconds_up(1000000), 1);
    assert_int_equal(ngx_rl_seconds_up(1000001), 2);
    assert_true(ngx_rl_seconds_up(UINT64_MAX) == 18446744073710);
}


static void
test_name(void **state)
{
    u_char  c, name[65];

    assert_int_equal(ngx_rl_name_valid(TEXT("a.B-9_z")), 1);
    assert_int_equal(ngx_rl_name_valid(TEXT("")), 0);

    memset(name, 'a', sizeof(name));
    assert_int_equal(ngx_rl_name_valid(name, 64), 1);
    assert_int_equal(ngx_rl_name_valid(name, 65), 0);

    for (c = 255; c; c--) {
        name[1] = c;
        int ok = strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                        "0123456789_.-", c) != NULL;
        assert_int_equal(ngx_rl_name_valid(name, 3), ok);
    }
}


/* By their length, not up to a zero; as much as there is room for. */
static void
test_names(void **state)
{
    u_char   out[64], *last;

    static const char *const  one[] = { "lease", NULL };
    static const char *const  names[] = { "lease", "strict", "async", NULL };

    assert_int_equal(ngx_rl_names_find(names, TEXT("strict")), 1);
    assert_int_equal(ngx_rl_names_find(names, TEXT("async")), 2);
    assert_int_equal(ngx_rl_names_find(names, TEXT("stric")), -1);
    assert_int_equal(ngx_rl_names_find(names, TEXT("strictly")), -1);
    assert_int_equal(ngx_rl_names_find(names, TEXT("Lease")), -1);
    assert_int_equal(ngx_rl_names_find(names, TEXT("")), -1);

    last = ngx_rl_names_write(out, out + sizeof(out), one);
    assert_memory_equal(out, "\"lease\"", 7);
    assert_int_equal(last - out, 7);

    last = ngx_rl_names_write(out, out + sizeof(out), names);
    size_t whole = sizeof("\"lease\", \"strict\" or \"async\"") - 1;
    assert_int_equal(last - out, whole);
    assert_memory_equal(out, "\"lease\", \"strict\" or \"async\"", whole);

    for (size_t len = 0; len < whole; len++) {
        last = ngx_rl_names_write(out, out + len, names);
        assert_true(last <= out + len);
    }
}

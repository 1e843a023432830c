/* Query strings and Cookie headers. */

#include "unit.h"

#include "ngx_rl_text.h"

#include <ctype.h>

typedef int (*next_pt)(const u_char **text, const u_char *last,
    ngx_rl_pair_t *pair);


/* All pairs as "[name|value]", from memory that ends where the text does. */
static void
assert_pairs(next_pt next, const char *text, const char *expected)
{
    char           got[256];
    ngx_rl_pair_t  pair;

    size_t len = strlen(text);
    u_char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);

    got[0] = '\0';
    const u_char *p = copy;

    while (next(&p, copy + len, &pair)) {
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "[%.*s|%.*s]",
                 (int) pair.name_len, (const char *) pair.name,
                 (int) pair.value_len, (const char *) pair.value);
    }

    assert_ptr_equal(p, copy + len);
    free(copy);

    if (strcmp(got, expected) != 0) {
        fail_msg("\"%s\": %s, expected %s", text, got, expected);
    }
}


static void
test_query_pairs(void **state)
{
    static const char  *cases[][2] = {
        { "", "" },                   { "a", "[a|]" }, { "a=", "[a|]" },
                        { "a=b", "[a|b]" }, { "=b", "[|b]" },
                        { "a=b=c", "[a|b=c]" }, { "a=b&a=c", "[a|b][a|c]" },
             { "&&a=b&", "[|][|][a|b]" }, { "a;b=c", "[a;b|c]" },
                  { "a%3Db=c", "[a%3Db|c]" }, { "a= b ", "[a| b ]" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_pairs(ngx_rl_query_pair, cases[i][0], cases[i][1]);
    }
}


static void
test_cookie_pairs(void **state)
{
    static const char  *cases[][2] = {
        { "", "" },                      { "a", "" }, { "a=b", "[a|b]" },
                         { " a = b ", "[a|b]" }, { "a=b; c=d", "[a|b][c|d]" },
               { "a=b;\tc=d;", "[a|b][c|d]" }, { "a; b=c; d", "[b|c]" },
                   { ";;a=", "[a|]" }, { "a=b=c", "[a|b=c]" },          { "=b",
            "[|b]" }, { "a=\"b\"", "[a|\"b\"]" },      { "a=b,c=d",
            "[a|b,c=d]" }, { "a = ; b=\t \t", "[a|][b|]" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_pairs(ngx_rl_cookie_pair, cases[i][0], cases[i][1]);
    }
}


static void
test_query_name(void **state)
{
    static const struct {
        const char  *name;
        const char  *expected;
        int          equal;
    } cases[] = {
        { "api_key", "api_key", 1 },        { "api%5Fkey", "api_key", 1 },
            { "api%5fkey", "api_key", 1 },      { "api+key", "api key", 1 },
            { "%61%70%69", "api", 1 },          { "a%2bb", "a+b", 1 }, { "%",
            "%", 1 },                    { "%4", "%4", 1 }, { "%zz", "%zz", 1 },
                           { "%%41", "%A", 1 }, { "", "", 1 },
                                 { "%00", "", 0 }, { "API_KEY", "api_key", 0 },
                   { "api_key2", "api_key", 0 }, { "api_ke", "api_key", 0 },
                    { "a+b", "a+b", 0 }, { "%61%70%69%6", "api", 0 },
                   { "%61%70", "api", 0 }, { "%61%70%69%61", "api", 0 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        ngx_rl_pair_t pair = { 0 };
        pair.name = (const u_char *) cases[i].name;
        pair.name_len = strlen(cases[i].name);

        if (ngx_rl_query_name(&pair, (const u_char *) cases[i].expected,
                              strlen(cases[i].expected), 0)
            != cases[i].equal)
        {
            fail_msg("\"%s\" and \"%s\"", cases[i].name, cases[i].expected);
        }

        if (!ngx_rl_query_name(&pair,
                               (const u_char *) cases[i].expected,
                               strlen(cases[i].expected), 1)
            != !(cases[i].equal || i == 12))
        {
            fail_msg("\"%s\" and \"%s\" in any case", cases[i].name,
                     cases[i].expected);
        }
    }
}


static void
test_caseless(void **state)
{
    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            u_char one = (u_char) a;
            u_char two = (u_char) b;

            assert_int_equal(ngx_rl_caseless(&one, &two, 1),
                             tolower(a) == tolower(b));
        }
    }

    assert_true(ngx_rl_caseless((u_char *) "aBc-1", (u_char *) "AbC-1", 5));
    assert_false(ngx_rl_caseless((u_char *) "aBc-1", (u_char *) "AbC\r1", 5));
}


typedef size_t (*decode_pt)(const u_char *text, size_t len, u_char *out);

/* Decodes in place, in memory that ends where the text does. */
static void
assert_decoded(decode_pt decode, const char *text, const char *expected,
    size_t expected_len)
{
    size_t len = strlen(text);
    u_char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);

    len = decode(copy, len, copy);

    if (len != expected_len || memcmp(copy, expected, len) != 0) {
        fail_msg("\"%s\": \"%.*s\", expected \"%s\"", text, (int) len,
                 (char *) copy, expected);
    }

    free(copy);
}


static void
test_query_decode(void **state)
{
    static const char  *cases[][2] = {
        { "", "" },            { "abc", "abc" },        { "%41", "A" }, { "a+b",
            "a b" },      { "a%2Bb", "a+b" }, { "%c3%A9", "\xc3\xa9" }, { "%",
            "%" },          { "%4", "%4" },          { "a%4", "a%4" }, { "%g1",
            "%g1" },      { "%1g", "%1g" },        { "%2541", "%41" }, { "%%41",
            "%A" },      { "\"a\"", "\"a\"" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_decoded(ngx_rl_query_decode, cases[i][0], cases[i][1],
                       strlen(cases[i][1]));
    }

    assert_decoded(ngx_rl_query_decode, "a%00b", "a\0b", 3);
}


static void
test_cookie_decode(void **state)
{
    static const char  *cases[][2] = {
        { "", "" },               { "abc", "abc" },       { "\"abc\"", "abc" },
            { "\"", "\"" },           { "\"\"", "" },         { "\"a", "\"a" },
            { "a\"", "a\"" },         { "a\\b", "a\\b" },     { "\"a\\b\"",
            "ab" }, { "\"\\141\"", "a" },     { "\"\\14\"", "14" },
            { "\"\\481\"", "481" }, { "\"\\377\"", "\xff" },  { "\"\\400\"",
            "400" }, { "\"\\\"\"", "\"" }, { "\"\\\\141\"", "\\141" },
            { "\"\\1412\"", "a2" },   { "\"a\\\"", "a\\" },   { "%41", "A" },
            { "\"%41\"", "A" },       { "a+b", "a+b" },       { "%4", "%4" },
            { "\"%4\"", "%4" },       { "\"\\%41\"", "%41" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_decoded(ngx_rl_cookie_decode, cases[i][0], cases[i][1],
                       strlen(cases[i][1]));

        /* what is said not to be encoded is not changed */

        size_t len = strlen(cases[i][0]);
        int encoded = ngx_rl_cookie_encoded((const u_char *) cases[i][0], len);
        assert_true(encoded || strcmp(cases[i][0], cases[i][1]) == 0);
    }

    assert_false(ngx_rl_cookie_encoded((const u_char *) "a\\b\"", 4));
}

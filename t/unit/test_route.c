/* Path templates and folding. */

#include "unit.h"

#include "readings.h"


static void
test_check(void **state)
{
    const char  *err;

    static const struct {
        const char  *text;
        const char  *err;    /* its first bytes; NULL: a template */
    } cases[] = {
        { "/", NULL },                   { "/v1/search", NULL },
        { "/v1/search/", NULL },         { "/v1/users/{id}", NULL },
        { "/{a}/*/b/**", NULL },         { "/**", NULL },
        { "/a.b/c-d", NULL },
        { "", "must start" },            { "v1", "must start" },
        { "**", "must start" },          { "//", "must not contain \"//\"" },
        { "/a//b", "must not contain \"//\"" },
        { "/a;b", "must not contain \";\"" },
        { "/**/a", "\"**\" must be the last" },
        { "/{}", "\"{}\"" },             { "/a{id}", "\"{name}\"" },
        { "/{id}b", "\"{name}\"" },      { "/{", "\"{name}\"" },
        { "/}", "\"{name}\"" },          { "/{a}{b}", "\"{name}\"" },
        { "/a*", "\"{name}\"" },         { "/*a", "\"{name}\"" },
        { "/***", "\"{name}\"" },        { "/{a*}", "\"{name}\"" },
        { "/a/.", "must not contain \".\"" },
        { "/../a", "must not contain \".\"" },
        { "/a/...", NULL },              { "/.a/..b", NULL },
        { "/a\nb", "must not contain control" },
        { "/a\x7f", "must not contain control" },
        { "/{a\t}", "must not contain control" },
        { "/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2",
          NULL },
        { "/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2/3",
          "must have at most 32 segments" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        err = ngx_rl_route_check((const u_char *) cases[i].text,
                                 strlen(cases[i].text));

        if ((err == NULL) != (cases[i].err == NULL)
            || (err && strncmp(err, cases[i].err, strlen(cases[i].err)) != 0))
        {
            fail_msg("\"%s\": %s", cases[i].text, err ? err : "accepted");
        }
    }
}


static void
test_match(void **state)
{
    int  got;

    static const struct {
        const char  *tmpl;
        const char  *path;
        int          match;
    } cases[] = {
        { "/", "/", 1 },                 { "/", "/a", 0 },
        { "/", "", 0 },                  { "/", "*", 0 },
        { "/a", "/a", 1 },               { "/a", "/a/", 1 },
        { "/a/", "/a", 1 },              { "/a", "/a//", 1 },
        { "/a", "/A", 0 },               { "/a", "/ab", 0 },
        { "/ab", "/a", 0 },              { "/a", "/", 0 },
        { "/a", "a", 0 },                { "/a/b", "/a", 0 },
        { "/a", "/a/b", 0 },             { "/a/b", "/a//b", 1 },
        { "/u/{id}", "/u/7", 1 },        { "/u/{id}", "/u/7/", 1 },
        { "/u/{id}", "/u/", 0 },         { "/u/{id}", "/u", 0 },
        { "/u/{id}", "/u/7/x", 0 },      { "/u/{id}/x", "/u//x", 0 },
        { "/u/*/x", "/u/7/x", 1 },       { "/*", "/", 0 },
        { "/a/**", "/a", 1 },            { "/a/**", "/a/", 1 },
        { "/a/**", "/a/b/c", 1 },        { "/a/**", "/a//", 1 },
        { "/a/**", "/ab", 0 },           { "/a/**", "/", 0 },
        { "/**", "/", 1 },               { "/**", "/a/b", 1 },
        { "/a/b", "/a;v=1/b;x", 1 },     { "/a", "/a/;x", 1 },
        { "/u/{id}", "/u/;x", 1 },       { "/a", "/a;x/", 1 },
        { "/u/{id}", "/u/{id}", 1 },     { "/u/{id}", "/u//7", 1 },
        { "/u/{id}", "/u/;x/7", 1 },     { "/a", "//", 0 },
        { "/", "//;x//", 1 },            { "/a", "//a", 1 },
        { "/a/b", "/a/./b", 1 },         { "/a/b", "/a/.;x/b", 1 },
        { "/a/b", "/a/c/../b", 1 },      { "/a/b", "/a/c/..;x/b", 1 },
        { "/a/b", "/../..;/a/b", 1 },    { "/a", "/a/b/../c/..", 1 },
        { "/a", "/a/..", 0 },            { "/", "/a/..;", 1 },
        { "/u/{id}", "/u/..", 0 },       { "/u/{id}", "/u/...", 1 },
        { "/a/b", "/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7/8/9/0"
                  "/1/2/3/../../../../../../../../../../../../../../../../../.."
                  "/../../../../../../../../../../../../../../../../a/b", 1 },

        /* whatever a server takes for a separator, and ";" for */
        { "/a/**", "/a/..;/b", 1 },      { "/b", "/a/..;/b", 1 },
        { "/a/**", "/a/b/..;/..;/c", 1 },
        { "/a/b", "/a\\b", 1 },          { "/a\\b", "/a\\b", 1 },
        { "/{id}", "/a\\b", 1 },         { "/a/b", "/x\\..\\a\\b", 1 },
        { "/a/b", "/a;\\b", 1 },         { "/a/b", "/a;x\\c/..;/b", 1 },
        { "/a/b", "/a\\;x", 0 },         { "/b", "/a\\b", 0 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_null(ngx_rl_route_check((const u_char *) cases[i].tmpl,
                                       strlen(cases[i].tmpl)));
        got = ngx_rl_route_match((const u_char *) cases[i].tmpl,
                                 strlen(cases[i].tmpl),
                                 readings_of(cases[i].path,
                                             strlen(cases[i].path), NULL), 0);

        if (got != cases[i].match) {
            fail_msg("\"%s\" on \"%s\": %d", cases[i].tmpl, cases[i].path, got);
        }
    }
}


/* How a path was sent: what nginx has decoded and resolved. */
static void
test_sent(void **state)
{
    static const struct {
        const char  *tmpl;
        const char  *sent;
        const char  *path;
        int          match;
    } cases[] = {
        { "/a/b", "/a/x/;y/../b", "/a/x/b", 1 },
        { "/a/x/b", "/a/x/;y/../b", "/a/x/b", 1 },
        { "/a/b", "/a;x%2Fy/b", "/a;x/y/b", 1 },
        { "/a/y/b", "/a;x%2Fy/b", "/a;x/y/b", 1 },
        { "/a/b/**", "/a;x/b/..%3B/c", "/a;x/b/..;/c", 1 },
        { "/a/c", "/a;x/b/..%3B/c", "/a;x/b/..;/c", 1 },
        { "/a/b/**", "/a%3bx/b/..;/c", "/a;x/b/..;/c", 1 },
        { "/a/b/**", "/a\\b\\..\\c", "/a\\b\\..\\c", 1 },
        { "/a/b/**", "/a/b/%2e%2e;/../c", "/a/b/c", 1 },
        { "/a/**", "/a%3bx/b/..;/c", "/a;x/b/..;/c", 1 },
        { "/a/b", "/a;\\x%5cy/b", "/a;\\x\\y/b", 1 },
        { "/a/x/y/b", "/a;\\x%5cy/b", "/a;\\x\\y/b", 1 },
        { "/a/b/*", "/a\\b/..%5Cc", "/a\\b/..\\c", 1 },
        { "/a/c", "/a\\b/..%5Cc", "/a\\b/..\\c", 1 },
        { "/a/b", "/a%2Fb;%", "/a/b;%", 1 },
        { "/a/b", "/a%3", "/a%3", 0 },
        { "/x/a", "/%78;%01%02/a", "/x;\1\2/a", 1 },
        { "/x/a", "/%78%01;/a", "/x\1;/a", 0 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        if (ngx_rl_route_match((const u_char *) cases[i].tmpl,
                               strlen(cases[i].tmpl),
                               readings_of(cases[i].path,
                                           strlen(cases[i].path),
                                           cases[i].sent), 0)
            != cases[i].match)
        {
            fail_msg("\"%s\" on \"%s\"", cases[i].tmpl, cases[i].sent);
        }
    }

    /* how many there are */

    assert_int_equal(readings_of("/a/b", 4, "/a/%62")->n, 0);
    assert_int_equal(readings_of("/a;b", 4, "/a;b")->n, 2);
    assert_int_equal(readings_of("*;", 2, NULL)->n, 0);
    assert_in_range(readings_of("/;\\;\\/../a/b", 12,
                                "/;\\%3b%5C/../..%2f%61/b")->n,
                    5, NGX_RL_READINGS);
}


/* Which of the readings of a path match. */
static void
test_every(void **state)
{
    static const struct {
        const char  *tmpl;
        const char  *path;
        int          match;
    } cases[] = {
        { "/a", "/a", 1 },               { "/a", "/b", 0 }, { "/a", "/a;x", 0 },
                        { "/*", "/a;x", 1 }, { "/a/**", "/a/;x\\..;/b", 0 },
             { "/a/**", "/a/b;x/c\\d", 1 }, { "/**", "/a\\..\\..;", 1 },
                { "/a/b", "/a\\b", 0 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(
            ngx_rl_route_match((const u_char *) cases[i].tmpl,
                               strlen(cases[i].tmpl),
                               readings_of(cases[i].path,
                                           strlen(cases[i].path), NULL), 1),
            cases[i].match);
    }
}


static void
test_fold(void **state)
{
    static const struct {
        const char  *path;
        const char  *route;
    } cases[] = {
        { "/", "/" },                    { "", "/" },
        { "/a", "/a" },                  { "/a/", "/a" },
        { "/a//", "/a" },                { "//", "/" },
        { "/a//b", "/a/b" },             { "/1", "/{id}" },
        { "/1/1", "/{id}/{id}" },        { "1/1", "/{id}/{id}" },
        { "/v1/users/42", "/v1/users/{id}" },
        { "/v1/users/42;x=1/a;b", "/v1/users/{id}/a" },
        { "/;x", "/" },                  { "*", "/*" },
        { "/0123456789abcdef", "/{id}" },
        { "/0123456789ABCDEF0", "/{id}" },
        { "/0123456789abcde", "/0123456789abcde" },
        { "/0123456789abcdeg", "/0123456789abcdeg" },
        { "/deadbeef", "/deadbeef" },
        { "/6ba7b810-9dad-11d1-80b4-00c04fd430c8", "/{id}" },
        { "/6BA7B810-9DAD-11D1-80B4-00C04FD430C8/x", "/{id}/x" },
        { "/6ba7b8109-dad-11d1-80b4-00c04fd430c8",
          "/6ba7b8109-dad-11d1-80b4-00c04fd430c8" },
        { "/6ba7b810-9dad-11d1-80b4-00c04fd430c",
          "/6ba7b810-9dad-11d1-80b4-00c04fd430c" },
        { "/6ba7b810-9dad-11d1-80b4-00c04fd430c8a",
          "/6ba7b810-9dad-11d1-80b4-00c04fd430c8a" },
        { "/12345678-1234", "/12345678-1234" },
        { "/1.5", "/1.5" },              { "/-1", "/-1" },
        { "/----", "/----" },            { "/a/;x/b", "/a/b" },
        { "///a", "/a" },                { "/a/./b", "/a/b" },
        { "/a/.;x/b", "/a/b" },          { "/a/c/..;x/b", "/a/b" },
        { "/a/1/../b", "/a/b" },         { "/..;/../a", "/a" },
        { "/a/..", "/" },                { "/...", "/..." },
        { "/a/../b", "/b" },             { "/a/../../b/c", "/b/c" },
        { "/\n", "/%0A" },               { "/a\r\nb: c", "/a%0D%0Ab: c" },
        { "/\x1f\x7f\x01 \x80", "/%1F%7F%01 \x80" }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len = strlen(cases[i].path);

        /* not a byte more than promised, for the sanitizers */

        u_char *out = malloc(NGX_RL_ROUTE_BYTES(len));
        assert_non_null(out);

        len = ngx_rl_route_fold((const u_char *) cases[i].path, len, out);

        if (len != strlen(cases[i].route)
            || memcmp(out, cases[i].route, len) != 0)
        {
            fail_msg("\"%s\": \"%.*s\"", cases[i].path, (int) len, out);
        }

        free(out);
    }
}

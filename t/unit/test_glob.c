/* Globs against a matcher that tries everything; lists against one by one. */

#include "unit.h"

#include "ngx_rl_match.h"

#define GLOB(text)  ((const u_char *) (text)), strlen(text)


static int
match(const char *glob, const char *text)
{
    return ngx_rl_glob_match(GLOB(glob), GLOB(text));
}


static int
naive(const char *glob, const char *text)
{
    if (*glob == '\0') {
        return *text == '\0';
    }

    if (*glob == '*') {
        return naive(glob + 1, text) || (*text && naive(glob, text + 1));
    }

    if (*text == '\0') {
        return 0;
    }

    if (*glob == '\\') {
        return glob[1] == *text && naive(glob + 2, text + 1);
    }

    return (*glob == '?' || *glob == *text) && naive(glob + 1, text + 1);
}


static void
test_check(void **state)
{
    u_char  glob[NGX_RL_GLOB_MAX + 1];

    memset(glob, 'a', sizeof(glob));

    assert_non_null(ngx_rl_glob_check(glob, 0));
    assert_null(ngx_rl_glob_check(glob, sizeof(glob) - 1));
    assert_non_null(ngx_rl_glob_check(glob, sizeof(glob)));

    assert_null(ngx_rl_glob_check(GLOB("a*b?c")));
    assert_null(ngx_rl_glob_check(GLOB("\\*\\\\")));
    assert_non_null(ngx_rl_glob_check(GLOB("\\")));
    assert_non_null(ngx_rl_glob_check(GLOB("a\\\\\\")));
}


static void
test_kinds(void **state)
{
    assert_int_equal(ngx_rl_glob_wild(GLOB("abc")), 0);
    assert_int_equal(ngx_rl_glob_wild(GLOB("a\\*c\\?")), 0);
    assert_int_equal(ngx_rl_glob_wild(GLOB("a\\*c?")), 1);
    assert_int_equal(ngx_rl_glob_wild(GLOB("a\\\\*")), 1);

    assert_int_equal(ngx_rl_glob_any(GLOB("*")), 1);
    assert_int_equal(ngx_rl_glob_any(GLOB("***")), 1);
    assert_int_equal(ngx_rl_glob_any(GLOB("*?*")), 0);
    assert_int_equal(ngx_rl_glob_any(GLOB("\\*")), 0);
    assert_int_equal(ngx_rl_glob_any(GLOB("")), 0);
}


static void
test_match(void **state)
{
    assert_true(match("sk_prod_*", "sk_prod_"));
    assert_true(match("sk_prod_*", "sk_prod_1"));
    assert_false(match("sk_prod_*", "sk_prod"));
    assert_false(match("sk_prod_*", "xsk_prod_1"));
    assert_true(match("*_vip", "a_vip_vip"));
    assert_true(match("a?c", "a*c"));
    assert_false(match("a\\?c", "abc"));
    assert_true(match("a\\?c", "a?c"));
    assert_true(match("a\\bc", "abc"));
    assert_false(match("A", "a"));

    /* bytes, also zeros and those above 127 */
    assert_true(ngx_rl_glob_match((u_char *) "a?\xff*", 4,
                                  (u_char *) "a\0\xff\0", 4));
}


/* all short globs of an alphabet, and all short texts */
static void
test_all(void **state)
{
    int   i, n;
    char  glob[8], text[8];

    int matches = 0;

    for (int g = 0; g < 5 * 5 * 5 * 5 * 5 * 5; g++) {
        for (i = 0, n = g; n; n /= 5) {
            glob[i++] = "_ab*?"[n % 5];
        }

        glob[i] = '\0';

        /* "_" makes globs of all lengths; one starts an escape, too */
        for (n = 0; n < i; n++) {
            glob[n] = (glob[n] != '_') ? glob[n] : (n + 1 < i) ? '\\' : 'a';
        }

        if (ngx_rl_glob_check(GLOB(glob)) != NULL) {
            continue;
        }

        for (int t = 0; t < 3 * 3 * 3 * 3 * 3; t++) {
            for (i = 0, n = t; n; n /= 3) {
                text[i++] = "ab*"[n % 3];
            }

            text[i] = '\0';
            n = match(glob, text);
            matches += n;

            if (n != naive(glob, text)) {
                fail_msg("\"%s\" on \"%s\" is %d", glob, text, n);
            }
        }
    }

    assert_true(matches > 100000);
}


/* Takes for ever where each "*" is tried everywhere. */
static void
test_long(void **state)
{
    u_char   glob[NGX_RL_GLOB_MAX];

    enum { LONG = 100000 };

    for (size_t i = 0; i < sizeof(glob); i++) {
        glob[i] = (i % 2) ? 'a' : '*';
    }

    glob[sizeof(glob) - 1] = 'b';

    u_char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, 'a', LONG);

    assert_false(ngx_rl_glob_match(glob, sizeof(glob), text, LONG));
    text[LONG - 1] = 'b';
    assert_true(ngx_rl_glob_match(glob, sizeof(glob), text, LONG));

    free(text);
}


static ngx_rl_globs_t *
list(const char **globs, size_t n)
{
    void *memory = malloc(ngx_rl_globs_bytes(n));
    ngx_rl_glob_text_t *texts = malloc(sizeof(ngx_rl_glob_text_t) * (n + 1));
    assert_non_null(memory);
    assert_non_null(texts);

    for (size_t i = 0; i < n; i++) {
        texts[i].data = (const u_char *) globs[i];
        texts[i].len = strlen(globs[i]);
    }

    ngx_rl_globs_t *made = ngx_rl_globs_init(memory, texts, n);
    assert_ptr_equal(made, memory);
    free(texts);

    return made;
}


static void
test_list(void **state)
{
    static const char *globs[] = {
        "sk_prod_vip*", "sk_prod_*", "*_vip", "sk_prod_vip*", "exact", "q\\**",
        "sk_*_x", "*"
    };

    ngx_rl_globs_t  *l;

    assert_int_equal(ngx_rl_globs_find(NULL, GLOB("a")), NGX_RL_GLOB_NONE);

    l = list(globs, 0);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("a")), NGX_RL_GLOB_NONE);
    free(l);

    l = list(globs, 7);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("sk_prod_vip")), 0);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("sk_prod_v_vip")), 1);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("sk_p_vip")), 2);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("exact")), 4);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("exactly")), NGX_RL_GLOB_NONE);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("q*1")), 5);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("q1")), NGX_RL_GLOB_NONE);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("sk_1_x")), 6);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("")), NGX_RL_GLOB_NONE);
    free(l);

    l = list(globs, 8);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("exact")), 4);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("exactly")), 7);
    assert_int_equal(ngx_rl_globs_find(l, GLOB("")), 7);
    free(l);
}


/* Many of all kinds; the first that matches, one after the other, is found. */
static void
test_many(void **state)
{
    enum { N = 2000 };

    int                      i, n, found;
    char                     text[32];
    static char              bytes[N][32];
    static const char       *globs[N];
    ngx_rl_globs_t   *l;

    for (i = 0; i < N; i++) {
        n = (i * 7919) % N;
        globs[i] = bytes[i];

        switch (i % 7) {
        case 0:
            snprintf(bytes[i], 32, "*_%d", n);
            break;
        case 1:
            snprintf(bytes[i], 32, "k%d?", n);
            break;
        case 2:
            snprintf(bytes[i], 32, "k%d", n);
            break;
        default:
            snprintf(bytes[i], 32, "k%d*", n);
        }
    }

    l = list(globs, N);

    for (i = 0, found = 0; i < 3 * N; i++) {
        snprintf(text, 32, (i % 3) ? "k%d" : "k%d_77", i);

        for (n = 0; n < N && !naive(globs[n], text); n++) {
            /* void */
        }

        found += (n < N);
        assert_int_equal(ngx_rl_globs_find(l, GLOB(text)),
                         n < N ? (uint32_t) n : NGX_RL_GLOB_NONE);
    }

    assert_in_range(found, N, 3 * N);
    free(l);
}

/*
 * A set of path templates: the most specific first, all that match, against
 * one template after the other; and what hostile paths may cost.
 */

#include "unit.h"

#include "readings.h"

#define NONE       NGX_RL_ROUTE_NONE
#define MAX        1000   /* templates of a set */
#define LONG       8192

typedef struct {
    ngx_rl_route_set_t   set;
    void                *memory;
    char                *texts[MAX];   /* by number */
} templates_t;

static const u_char *
bytes(const char *text)
{
    return (const u_char *) text;
}


/* Exactly as much memory as promised, for the sanitizers. */
static void
templates_make(templates_t *t, const char **texts, size_t n)
{
    uint32_t  got;

    size_t segments = 0;

    for (size_t i = 0; i < n; i++) {
        assert_null(ngx_rl_route_check(bytes(texts[i]), strlen(texts[i])));
        segments += ngx_rl_route_segments(bytes(texts[i]), strlen(texts[i]));
    }

    t->memory = malloc(ngx_rl_route_set_bytes(segments));
    assert_non_null(t->memory);
    ngx_rl_route_set_init(&t->set, t->memory, segments);

    for (size_t i = 0; i < n; i++) {
        uint32_t known = t->set.n;
        got = ngx_rl_route_set_add(&t->set, bytes(texts[i]), strlen(texts[i]));
        assert_true(got <= known);
        assert_int_equal(t->set.n, known + (got == known));

        if (got == known) {
            t->texts[got] = (char *) texts[i];
        }
    }
}


static const char *
find(templates_t *t, const char *path, size_t len)
{
    ngx_rl_route_walk_t  walk;

    ngx_rl_route_walk_init(&walk, &t->set, readings_of(path, len, NULL));
    uint32_t got = ngx_rl_route_walk_next(&walk);

    return (got == NONE) ? NULL : t->texts[got];
}


/* Of literals, "{name}" and "**" in each combination. */
static void
test_specific(void **state)
{
    templates_t  t;

    /* the more specific of those that match stands higher */

    static const char  *texts[] = {
        "/", "/a/b/c", "/a/b/{x}", "/a/b/**", "/a/{x}/c", "/a/{x}/{y}",
        "/a/{x}/**", "/a", "/a/{x}", "/a/**", "/{x}/b/c", "/{x}/b/{y}",
        "/{x}/b/**", "/{x}/{y}/c", "/{x}/{y}/**", "/{x}", "/**"
    };

    static const struct {
        const char  *path;
        const char  *tmpl;
    } cases[] = {
        { "/", "/" },                    { "//", "/" }, { "/;v", "/" },
                             { "/a/..", "/" }, { "/a", "/a" },
                             { "/a/", "/a" }, { "/a;v=1//", "/a" },
                       { "/z", "/{x}" }, { "/a/b", "/a/b/**" },
                      { "/a/z", "/a/{x}" }, { "/a/b/c", "/a/b/c" },
                     { "//a///b/./c;/", "/a/b/c" }, { "/a/z/..;/b/c",
            "/a/b/c" },    { "/a/b/z", "/a/b/{x}" }, { "/a/b/c/d", "/a/b/**" },
                  { "/a/z/c", "/a/{x}/c" }, { "/a/z/z", "/a/{x}/{y}" },
                 { "/a/z/c/d", "/a/{x}/**" }, { "/z/b/c", "/{x}/b/c" },
                   { "/z/b/z", "/{x}/b/{y}" }, { "/z/b", "/{x}/b/**" },
                    { "/z/b/c/d", "/{x}/b/**" }, { "/z/z/c", "/{x}/{y}/c" },
                 { "/z/z", "/{x}/{y}/**" }, { "/z/z/z", "/{x}/{y}/**" },
                { "/A/b/c", "/{x}/b/c" }, { "", NULL },
                               { "a", NULL }, { "*", NULL },
                              { ";/a", NULL }
    };

    templates_make(&t, texts, COUNT(texts));

    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *got = find(&t, cases[i].path, strlen(cases[i].path));

        if (got != cases[i].tmpl
            && (got == NULL || cases[i].tmpl == NULL
                || strcmp(got, cases[i].tmpl) != 0))
        {
            fail_msg("\"%s\": \"%s\"", cases[i].path, got ? got : "none");
        }
    }

    free(t.memory);
}


/* A literal that leads nowhere is left again. */
static void
test_backtrack(void **state)
{
    templates_t  t;

    static const char  *texts[] = {
        "/a/b/c/d", "/a/{x}/c/e", "/{x}/b/c/f", "/{x}/{y}/{z}/g" };

    templates_make(&t, texts, 4);

    assert_string_equal(find(&t, "/a/b/c/d", 8), texts[0]);
    assert_string_equal(find(&t, "/a/b/c/e", 8), texts[1]);
    assert_string_equal(find(&t, "/a/b/c/f", 8), texts[2]);
    assert_string_equal(find(&t, "/a/b/c/g", 8), texts[3]);
    assert_null(find(&t, "/a/b/c/h", 8));
    assert_null(find(&t, "/a/b/c", 6));

    free(t.memory);
}


/* Names and a "/" at the end make no other template. */
static void
test_equal(void **state)
{
    templates_t  t;

    static const char  *texts[] = {
        "/u/{id}", "/u/{name}", "/u/*", "/u/{id}/", "/u", "/u/", "/u/**",
        "/u/{id}/**", "/u/*/**", "/{u}", "/", "/U"
    };

    templates_make(&t, texts, 12);

    assert_int_equal(t.set.n, 7);
    assert_string_equal(find(&t, "/u/1", 4), "/u/{id}");
    assert_string_equal(find(&t, "/u", 2), "/u");
    assert_string_equal(find(&t, "/u/1/2", 6), "/u/{id}/**");

    free(t.memory);
}


static void
test_empty(void **state)
{
    templates_t  t;

    templates_make(&t, NULL, 0);
    assert_null(find(&t, "/", 1));
    assert_null(find(&t, "/a/b", 4));
    free(t.memory);

    assert_int_equal(ngx_rl_route_set_bytes(
                         NGX_RL_ROUTE_SEGMENTS + (size_t) 1), 0);
    assert_int_not_equal(ngx_rl_route_set_bytes(NGX_RL_ROUTE_SEGMENTS), 0);
}


/* Few names, so that templates and paths meet, of lengths around the words. */
static const char *
random_name(void)
{
    static const char  *names[] = {
        "a", "b", "c", "users", "orders", "12345678", "123456789", "...",
        "a-segment-of-26-characters", "a-segment-of-26-charakters"
    };

    return names[rnd(COUNT(names))];
}


static char *
random_template(uint32_t wild)
{
    char      text[256];

    uint32_t n = rnd(6);
    size_t len = 0;
    text[0] = '\0';

    for (uint32_t i = 0; i < n; i++) {
        if (rnd(100) < wild) {
            len += sprintf(&text[len], rnd(2) ? "/{n%u}" : "/*", i);

        } else if (i == n - 1 && rnd(100) < wild) {
            sprintf(&text[len], "/**");
            return strdup(text);

        } else {
            len += sprintf(&text[len], "/%s", random_name());
        }
    }

    if (len == 0 || rnd(8) == 0) {
        sprintf(&text[len], "/");
    }

    return strdup(text);
}


/* A path, and the same path as a client may write it to be another one. */
static void
random_path(char *plain, char *disguised)
{
    static const char  *nothing[] = {
        "", "", "", "", "", "/", "//", "/.", "/;x", "/.;v=1", "/q/..",
        "/q;/..;a=b", "/q/r/../.."
    };
    static const char  *behind[] = { "", "", "", ";", ";v=/", ";a;b" };

    uint32_t n = rnd(7);
    *plain = '\0';
    *disguised = '\0';

    for (uint32_t i = 0; i < n; i++) {
        const char *name = random_name();
        plain += sprintf(plain, "/%s", name);
        disguised += sprintf(disguised, "%s/%s%s", nothing[rnd(COUNT(nothing))],
                             name, behind[rnd(4)]);
    }

    sprintf(disguised, "%s/", nothing[rnd(COUNT(nothing))]);

    if (n == 0 || rnd(4) == 0) {
        sprintf(plain, "/");
    }
}


/* What a segment of a template is worth: the less, the more specific. */
static int
worth(const char *segment)
{
    if (strncmp(segment, "/**", 3) == 0) {
        return 2;
    }

    return segment[0] == '/' && (segment[1] == '{' || segment[1] == '*');
}


/* Whether the first of two templates that match one path is more specific. */
static int
more_specific(const char *one, const char *two)
{
    while (worth(one) == worth(two)) {
        one = strchr(one + (*one == '/'), '/');
        two = strchr(two + (*two == '/'), '/');

        if (one == NULL || two == NULL) {
            break;
        }
    }

    /* where one has ended, the other goes on with "**" */

    return worth(one ? one : "") < worth(two ? two : "");
}


/* All that match by looking at one template after the other, in order. */
static uint32_t
reference(const templates_t *t, const char *path, uint32_t *found)
{
    uint32_t  j;

    uint32_t n = 0;

    for (uint32_t i = 0; i < t->set.n; i++) {
        if (!ngx_rl_route_match(bytes(t->texts[i]),
                                strlen(t->texts[i]),
                                readings_of(path, strlen(path), NULL), 0))
        {
            continue;
        }

        for (j = n++; j && more_specific(t->texts[i], t->texts[found[j - 1]]);
             j--)
        {
            found[j] = found[j - 1];
        }

        found[j] = i;
    }

    return n;
}


static void
same_as_reference(const templates_t *t, const char *path, const char *asked,
    size_t *matches)
{
    uint32_t             i, j, n, all, got, expected[MAX], others[MAX];
    ngx_rl_route_walk_t  walk;

    n = reference(t, path, expected);
    all = reference(t, asked, others);
    ngx_rl_route_walk_init(&walk, &t->set,
                           readings_of(asked, strlen(asked), NULL));

    for (i = 0; i < n; i++) {
        got = ngx_rl_route_walk_next(&walk);

        if (got != expected[i]) {
            fail_msg("\"%s\" as \"%s\": \"%s\", expected \"%s\"", path, asked,
                     got == NONE ? "none" : t->texts[got],
                     t->texts[expected[i]]);
        }
    }

    /* and those of other readings, each once */

    while ((got = ngx_rl_route_walk_next(&walk)) != NONE) {

        for (i = 0; i < all && others[i] != got; i++) { /* void */ }
        for (j = 0; j < n && expected[j] != got; j++) { /* void */ }

        if (i == all || j < n) {
            fail_msg("\"%s\" has \"%s\" %s", asked, t->texts[got],
                     (i == all) ? "in no reading" : "twice");
        }

        expected[n++] = got;
    }

    assert_int_equal(n, all);

    got = ngx_rl_route_set_find(&t->set, walk.readings, 0);
    assert_true(got == NONE || got == expected[0]);

    *matches += n;
}


static void
test_random(void **state)
{
    char         plain[512], disguised[1024];
    const char  *texts[MAX];
    templates_t  t;

    (void) seed_new();
    size_t paths = env_or("STEPS", 120000);

    size_t matches = 0;

    for (size_t asked = 0; asked < paths; /* void */ ) {
        uint32_t n = 1 + rnd(rnd(4) ? 30 : MAX);
        uint32_t wild = rnd(60);

        for (size_t i = 0; i < n; i++) {
            texts[i] = random_template(wild);
        }

        templates_make(&t, texts, n);

        for (size_t i = 0; i < 200; i++, asked++) {
            random_path(plain, disguised);
            same_as_reference(&t, plain, plain, &matches);
            same_as_reference(&t, plain, disguised, &matches);
        }

        for (size_t i = 0; i < n; i++) {
            free((char *) texts[i]);
        }

        free(t.memory);
    }

    assert_true(matches > paths);
}


/* The nodes that finding all templates takes. */
static uint32_t
visits(templates_t *t, const char *path, size_t len)
{
    ngx_rl_route_walk_t  walk;

    ngx_rl_route_walk_init(&walk, &t->set, readings_of(path, len, NULL));

    while (ngx_rl_route_walk_next(&walk) != NONE) { /* void */ }

    return walk.visited;
}


static void
fill(char *path, const char *with)
{
    for (size_t i = 0; i < LONG; i++) {
        path[i] = with[i % strlen(with)];
    }
}


/* A thousand templates cost what three do; no path costs more by its length. */
static void
test_cost(void **state)
{
    char         path[LONG], *text;
    templates_t  t;
    const char  *texts[MAX];

    static const char  *hostile[] = {
        "/a", "/", ";", "/;", "/api/1;", "/..", "/.", "a", "/api/r1/..;x",
        "/\xff"
    };

    for (size_t i = 0; i < MAX; i++) {
        text = malloc(32);
        assert_non_null(text);
        sprintf(text, "/api/r%zu/{id}/%s", i, i % 2 ? "x" : "**");
        texts[i] = text;
    }

    templates_make(&t, texts, MAX);

    for (size_t i = 0; i < MAX; i++) {
        sprintf(path, "/api/r%zu/7/x", i);
        assert_string_equal(find(&t, path, strlen(path)), texts[i]);
        assert_true(visits(&t, path, strlen(path)) <= 5);
    }

    assert_int_equal(visits(&t, "/api/none/7/x", 13), 2);

    for (size_t i = 0; i < COUNT(hostile); i++) {
        fill(path, hostile[i]);
        assert_null(find(&t, path, LONG));
        assert_true(visits(&t, path, LONG) <= 2 + 2 * 4);
    }

    memcpy(path, "/api/r8/7", 9);
    assert_string_equal(find(&t, path, LONG), texts[8]);

    /* half full, and no entry far from its place */

    assert_true(t.set.probes <= 32);

    for (size_t i = 0; i < MAX; i++) {
        free((char *) texts[i]);
    }

    free(t.memory);
}


/* All mixtures of "a" and "*": the bound that the header states is met. */
static void
test_worst(void **state)
{
    char         path[LONG], *text;
    templates_t  t;
    const char  *texts[512];

    for (size_t i = 0; i < 512; i++) {
        text = malloc(32);
        assert_non_null(text);
        texts[i] = text;

        for (size_t depth = 0; depth < 9; depth++) {
            memcpy(&text[2 * depth], (i >> depth & 1) ? "/*" : "/a", 2);
        }

        text[18] = '\0';
    }

    templates_make(&t, texts, 512);
    fill(path, "/a");

    assert_int_equal(visits(&t, path, 18), (1 << 10) - 1);
    assert_int_equal(visits(&t, path, LONG), (1 << 10) - 1);
    assert_int_equal(visits(&t, path, 4), 7);
    assert_string_equal(find(&t, path, 18), texts[0]);

    for (size_t i = 0; i < 512; i++) {
        free((char *) texts[i]);
    }

    free(t.memory);
}


/* The deepest templates there are, and paths around that. */
static void
test_deep(void **state)
{
    char         path[2 * 34], last[2 * 32 + 1];
    templates_t  t;
    const char  *texts[3];

    for (size_t depth = 0; depth < 34; depth++) {
        memcpy(&path[2 * depth], "/a", 2);
    }

    memcpy(last, path, 64);
    memcpy(&last[60], "/**", 4);

    texts[0] = strndup(path, 64);
    texts[1] = last;
    texts[2] = "/a/{x}";

    templates_make(&t, texts, 3);

    assert_string_equal(find(&t, path, 64), texts[0]);
    assert_string_equal(find(&t, path, 62), texts[1]);
    assert_string_equal(find(&t, path, 66), texts[1]);
    assert_string_equal(find(&t, path, 68), texts[1]);
    assert_string_equal(find(&t, path, 60), texts[1]);
    assert_string_equal(find(&t, path, 4), texts[2]);
    assert_null(find(&t, path, 58));

    free((char *) texts[0]);
    free(t.memory);
}

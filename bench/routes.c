/*
 * What finding a path's template costs: in sets of ten templates to ten
 * thousand, and by looking at one template after the other.
 *
 * The cases alternate, round by round; each figure is the median of the rounds.
 * Paths are drawn evenly from those that the templates describe, a sixteenth of
 * them has none. "path alone" is what splitting a path costs, a part of every
 * figure.
 */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ngx_rl_route.h"

#define ROUNDS     11
#define OPS        400000
#define PATHS      4096
#define TEMPLATES  10000
#define BYTES      64
#define LONG       8000

typedef enum { SPLIT, SET, LINEAR, FOLD } work_e;

typedef struct {
    const char  *name;
    work_e       work;
    uint32_t     templates;
    uint32_t     ops;
    const char  *path;      /* NULL: of the templates */
    double       ns[ROUNDS];
} case_t;

typedef struct {
    u_char  data[BYTES];
    size_t  len;
} text_t;

static case_t  cases[] = {
    { "path alone",                  SPLIT,  10000, OPS,  NULL,  {0} },
    { "set of 10",                   SET,    10,    OPS,  NULL,  {0} },
    { "set of 100",                  SET,    100,   OPS,  NULL,  {0} },
    { "set of 1,000",                SET,    1000,  OPS,  NULL,  {0} },
    { "set of 10,000",               SET,    10000, OPS,  NULL,  {0} },
    { "one after the other, 10",     LINEAR, 10,    OPS,  NULL,  {0} },
    { "one after the other, 1,000",  LINEAR, 1000,  2000, NULL,  {0} },
    { "folding",                     FOLD,   10000, OPS,  NULL,  {0} },
    { "set of 1,000, 8 kB of /a",    SET,    1000,  2000, "/a",  {0} },
    { "set of 1,000, 8 kB of /..;",  SET,    1000,  2000, "/..;", {0} },
    { "set of 1,000, 8 kB of /",     SET,    1000,  2000, "/",   {0} },
    { "folding, 8 kB of /a",         FOLD,   1000,  2000, "/a",  {0} },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))

static text_t                     templates[TEMPLATES];
static text_t                     paths[PATHS];
static u_char                     path[LONG];
static u_char                     out[NGX_RL_ROUTE_BYTES(LONG)];
static ngx_rl_route_set_t  sets[NCASES];
static uint64_t                   seed = 88172645463325252;
static volatile uint64_t          sink;


static uint32_t
random_below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 32) % n;
}


static double
clock_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * 1e9 + ts.tv_nsec;
}


/* As of an API: four for each resource. */
static void
templates_make(void)
{
    uint32_t  i;

    static const char  *forms[] = {
        "/v1/resource-%u", "/v1/resource-%u/{id}",
        "/v1/resource-%u/{id}/parts/{part}", "/v1/resource-%u/files/**"
    };

    for (i = 0; i < TEMPLATES; i++) {
        templates[i].len = sprintf((char *) templates[i].data, forms[i % 4],
                                   i / 4);
    }
}


static void
set_make(ngx_rl_route_set_t *set, uint32_t n)
{
    void      *memory;
    uint32_t   i;
    size_t     segments;

    for (i = 0, segments = 0; i < n; i++) {
        segments += ngx_rl_route_segments(templates[i].data, templates[i].len);
    }

    memory = malloc(ngx_rl_route_set_bytes(segments));

    if (memory == NULL) {
        fprintf(stderr, "bench/routes: no memory\n");
        exit(1);
    }

    ngx_rl_route_set_init(set, memory, segments);

    for (i = 0; i < n; i++) {
        ngx_rl_route_set_add(set, templates[i].data, templates[i].len);
    }

    if (set->n != n) {
        fprintf(stderr, "bench/routes: templates are equal\n");
        exit(1);
    }
}


/* The same sequence for all, but for the number of the resource. */
static void
paths_make(const case_t *c)
{
    size_t       i;
    uint32_t     resource;

    static const char  *forms[] = {
        "/v1/resource-%u", "/v1/resource-%u/1234567",
        "/v1/resource-%u/1234567/parts/7", "/v1/resource-%u/files/a/b.txt"
    };

    for (i = 0; i < PATHS; i++) {
        resource = random_below(c->templates / 4);
        paths[i].len = sprintf((char *) paths[i].data, forms[i % 4],
                               (i % 16) ? resource : 999999);
    }

    for (i = 0; c->path && i < LONG; i++) {
        path[i] = c->path[i % strlen(c->path)];
    }
}


static uint32_t
linear(const case_t *c, const u_char *data, size_t len)
{
    uint32_t           i, found;
    ngx_rl_readings_t  path;

    found = NGX_RL_ROUTE_NONE;
    (void) ngx_rl_readings_init(&path, data, len, NULL, 0);

    /* all of them: the most specific may be the last */

    for (i = 0; i < c->templates; i++) {
        if (ngx_rl_route_match(templates[i].data, templates[i].len,
                               &path, 0))
        {
            found = i;
        }
    }

    return found;
}


static uint64_t
lookup(const case_t *c, const ngx_rl_route_set_t *set, const u_char *data,
    size_t len)
{
    ngx_rl_path_t      split;
    ngx_rl_readings_t  path;

    switch (c->work) {

    case SPLIT:
        (void) ngx_rl_path_split(data, len, &split);
        return split.depth;

    case SET:
        (void) ngx_rl_readings_init(&path, data, len, NULL, 0);
        return ngx_rl_route_set_find(set, &path, 0);

    case LINEAR:
        return linear(c, data, len);

    default: /* FOLD */
        return ngx_rl_route_fold(data, len, out);
    }
}


static double
run(const case_t *c, const ngx_rl_route_set_t *set)
{
    double         start;
    uint32_t       i;
    const text_t  *p;

    paths_make(c);
    start = clock_ns();

    for (i = 0; i < c->ops; i++) {
        p = &paths[i % PATHS];
        sink += c->path ? lookup(c, set, path, LONG)
                        : lookup(c, set, p->data, p->len);
    }

    return (clock_ns() - start) / c->ops;
}


static int
compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return (x > y) - (x < y);
}


int
main(void)
{
    size_t  i, round;

    templates_make();

    for (i = 0; i < NCASES; i++) {
        set_make(&sets[i], cases[i].templates);
    }

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < NCASES; i++) {
            cases[i].ns[round] = run(&cases[i], &sets[i]);
        }
    }

    printf("%-34s %8s %8s %8s  (%d rounds)\n", "ns a path", "median", "least",
           "most", ROUNDS);

    for (i = 0; i < NCASES; i++) {
        qsort(cases[i].ns, ROUNDS, sizeof(double), compare);
        printf("%-34s %8.0f %8.0f %8.0f\n", cases[i].name,
               cases[i].ns[ROUNDS / 2], cases[i].ns[0],
               cases[i].ns[ROUNDS - 1]);
    }

    printf("probes in the set of 10,000: at most %u\n", sets[4].probes);

    return 0;
}

/*
 * Any templates and any path: up to the first zero byte the templates, one a
 * line, behind it the path.
 */

#include <stdlib.h>

#include "ngx_rl_route.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)

#define MAX  64   /* templates, each a byte and its end at least */

typedef struct {
    const u_char  *text;
    size_t         len;
} tmpl_t;


static void
fuzz_fold(const u_char *path, size_t len)
{
    u_char  *once, *twice;
    size_t   i, once_len, twice_len;

    /* not a byte more than promised: the sanitizer sees what is written */

    once = malloc(NGX_RL_ROUTE_BYTES(len));
    must(once != NULL);
    once_len = ngx_rl_route_fold(path, len, once);

    must(once_len <= NGX_RL_ROUTE_BYTES(len));
    must(once_len >= 1 && once[0] == '/');
    must(once_len == 1 || once[once_len - 1] != '/');
    must(memchr(once, ';', once_len) == NULL);

    for (i = 0; i < once_len; i++) {
        must(once[i] >= 0x20 && once[i] != 0x7f);
        must(i == 0 || once[i] != '/' || once[i - 1] != '/');
    }

    twice = malloc(NGX_RL_ROUTE_BYTES(once_len));
    must(twice != NULL);
    twice_len = ngx_rl_route_fold(once, once_len, twice);

    must(twice_len == once_len && memcmp(once, twice, once_len) == 0);

    free(once);
    free(twice);
}


static void
fuzz_match(const u_char *tmpl, size_t tmpl_len, const u_char *path, size_t len)
{
    int      match;
    u_char  *more;

    match = ngx_rl_route_match(tmpl, tmpl_len, path, len, 0);
    must(match == 0 || (match == 1 && path[0] == '/'));

    must(match || !ngx_rl_route_match(tmpl, tmpl_len, path, len, 1));

    /* what a client may write behind a path evades no template */

    more = malloc(len + 8);
    must(more != NULL);
    memcpy(more, path, len);
    memcpy(more + len, "/;/x/..;", 8);
    must(len == 0 || memchr(path, ';', len)
         || ngx_rl_route_match(tmpl, tmpl_len, more, len + 8, 0)
            >= match);
    free(more);

    /* a template is also a path, and matches itself */

    must(ngx_rl_route_match(tmpl, tmpl_len, tmpl, tmpl_len, 0) == 1);
}


/* The set finds what one template after the other does. */
static void
fuzz_set(const tmpl_t *tmpl, size_t n, const u_char *path, size_t len)
{
    void                *memory;
    size_t               i, segments, matches;
    uint32_t             number, first, walked, numbers[MAX];
    ngx_rl_route_set_t   set;
    ngx_rl_route_walk_t  walk;

    for (i = 0, segments = 0; i < n; i++) {
        segments += ngx_rl_route_segments(tmpl[i].text, tmpl[i].len);
    }

    memory = malloc(ngx_rl_route_set_bytes(segments));
    must(memory != NULL);
    ngx_rl_route_set_init(&set, memory, segments);

    for (i = 0; i < n; i++) {
        number = ngx_rl_route_set_add(&set, tmpl[i].text, tmpl[i].len);
        must(number < set.n && number <= i);
        numbers[number] = ngx_rl_route_match(tmpl[i].text, tmpl[i].len,
                                             path, len, 0);
    }

    matches = 0;

    for (i = 0; i < set.n; i++) {
        matches += numbers[i];
    }

    first = ngx_rl_route_set_find(&set, path, len, 0);
    must(first == NGX_RL_ROUTE_NONE || numbers[first] == 1);

    ngx_rl_route_walk_init(&walk, &set, path, len);

    for (i = 0; i < matches; i++) {
        walked = ngx_rl_route_walk_next(&walk);
        must(walked < set.n && numbers[walked] == 1);
        must(i || first == NGX_RL_ROUTE_NONE || walked == first);
        numbers[walked] = 0;
    }

    must(ngx_rl_route_walk_next(&walk) == NGX_RL_ROUTE_NONE);
    must(walk.visited <= set.nnodes * NGX_RL_PATH_READINGS);

    free(memory);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         n, len, path_len;
    tmpl_t         tmpl[MAX];
    const u_char  *path, *p, *line, *last;

    path = size ? memchr(data, 0, size) : NULL;
    last = path ? path : data + size;
    path = path ? path + 1 : last;
    path_len = data + size - path;

    n = 0;

    for (p = data; p < last && n < MAX; p = line + 1) {
        line = memchr(p, '\n', last - p);
        line = line ? line : last;
        len = line - p;

        if (ngx_rl_route_check(p, len) == NULL) {
            fuzz_match(p, len, path, path_len);
            tmpl[n].text = p;
            tmpl[n++].len = len;
        }
    }

    fuzz_set(tmpl, n, path, path_len);
    fuzz_fold(path, path_len);
    fuzz_fold(data, last - data);

    return 0;
}

/*
 * Any templates and any path: up to the first zero byte the templates, one a
 * line, behind it the path as it was sent.
 */

#include <stdlib.h>

#include "../unit/readings.h"

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


static size_t
replace(u_char *p, size_t len, u_char from, u_char to)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        p[i] = (p[i] == from) ? to : p[i];
    }

    return len;
}


static size_t
strip(u_char *p, size_t len)
{
    int     within;
    size_t  i, n;

    for (i = 0, n = 0, within = 0; i < len; i++) {
        within = (p[i] == ';' || within) && p[i] != '/';

        if (!within) {
            p[n++] = p[i];
        }
    }

    return n;
}


static int
hex(u_char c)
{
    return (c >= '0' && c <= '9') ? c - '0'
           : ((c | 32) >= 'a' && (c | 32) <= 'f') ? (c | 32) - 'a' + 10 : -1;
}


static size_t
decode(u_char *p, size_t len)
{
    size_t  i, n;

    for (i = 0, n = 0; i < len; i++) {
        p[n] = p[i];

        if (p[i] == '%' && i + 2 < len && hex(p[i + 1]) >= 0
            && hex(p[i + 2]) >= 0)
        {
            p[n] = hex(p[i + 1]) * 16 + hex(p[i + 2]);
            i += 2;
        }

        n++;
    }

    return n;
}


/* As nginx: empty segments go, "." and ".." are resolved. */
static size_t
resolve(u_char *p, size_t len)
{
    size_t  i, n, begin;

    for (i = 0, n = 0; i < len; /* void */ ) {

        if (p[i] == '/') {
            i++;
            continue;
        }

        begin = n;
        p[n++] = '/';

        while (i < len && p[i] != '/') {
            p[n++] = p[i++];
        }

        if (n - begin == 2 && p[begin + 1] == '.') {
            n = begin;

        } else if (n - begin == 3 && p[begin + 1] == '.'
                   && p[begin + 2] == '.')
        {
            n = begin;

            while (n && p[--n] != '/') { /* void */ }
        }
    }

    if (n == 0) {
        p[n++] = '/';
    }

    return n;
}


/*
 * What a server makes of the path, step by step: a template that matches that
 * matches.
 */
static void
fuzz_servers(const tmpl_t *tmpl, const u_char *sent, size_t sent_len)
{
    u_char                   *text, *path;
    size_t                    len, n, i;
    unsigned                  server;
    ngx_rl_readings_t         only;
    const ngx_rl_readings_t  *readings;

    if (sent_len == 0 || sent[0] != '/' || memchr(sent, 0, sent_len)) {
        return;
    }

    text = malloc(sent_len + 1);
    path = malloc(sent_len + 1);
    must(text != NULL && path != NULL);

    memcpy(path, sent, sent_len);
    path[sent_len] = '\0';
    memcpy(text, sent, sent_len);
    len = resolve(text, decode(text, sent_len));

    readings = readings_of(text, len, (char *) path);

    for (server = 0; server < 48; server++) {
        n = (server & 16) ? sent_len : len;
        memcpy(path, (server & 16) ? sent : text, n);

        n = (server & 1) ? replace(path, n, '\\', '/') : n;
        n = (server & 2) ? strip(path, n) : n;
        n = (server & 16) ? decode(path, n) : n;
        n = (server & 4) ? replace(path, n, '\\', '/') : n;
        n = (server & 8) ? strip(path, n) : n;

        /* what is left of them is text, as which no template has them */

        n = replace(path, replace(path, n, ';', 0x7f), '\\', 0x7f);

        /* nginx has resolved it, and so the server need not */

        for (i = 0; (server & 32) && i + 2 < n; i++) {
            if (memcmp(&path[i], "/..", 3) == 0
                && (i + 3 == n || path[i + 3] == '/'))
            {
                path[i + 1] = 0x7f;
            }
        }

        if (n && path[0] == '/' && !memchr(tmpl->text, '\\', tmpl->len)
            && ngx_rl_readings_init(&only, path, n, NULL, 0) == 0
            && ngx_rl_route_match(tmpl->text, tmpl->len, &only, 0))
        {
            must(ngx_rl_route_match(tmpl->text, tmpl->len, readings, 0));
        }
    }

    free(text);
    free(path);
}


static void
fuzz_match(const u_char *tmpl, size_t tmpl_len, const u_char *path, size_t len)
{
    int                       match;
    u_char                   *more;
    const ngx_rl_readings_t  *readings;

    readings = readings_of(path, len, NULL);
    match = ngx_rl_route_match(tmpl, tmpl_len, readings, 0);
    must(match == 0 || (match == 1 && path[0] == '/'));

    must(match || !ngx_rl_route_match(tmpl, tmpl_len, readings, 1));

    /* what a client may write behind a path evades no template */

    more = malloc(len + 8);
    must(more != NULL);
    memcpy(more, path, len);
    memcpy(more + len, "/;/x/..;", 8);
    must(len == 0 || memchr(path, ';', len)
         || ngx_rl_route_match(tmpl, tmpl_len,
                               readings_of(more, len + 8, NULL), 0)
            >= match);
    free(more);

    /* a template is also a path, and matches itself */

    must(ngx_rl_route_match(tmpl, tmpl_len,
                            readings_of(tmpl, tmpl_len, NULL), 0) == 1);
}


/* The set finds what one template after the other does. */
static void
fuzz_set(const tmpl_t *tmpl, size_t n, const u_char *path, size_t len)
{
    void                     *memory;
    size_t                    i, segments, matches;
    uint32_t                  number, first, walked, numbers[MAX];
    ngx_rl_route_set_t        set;
    ngx_rl_route_walk_t       walk;
    const ngx_rl_readings_t  *readings;

    readings = readings_of(path, len, NULL);

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
                                             readings, 0);
    }

    matches = 0;

    for (i = 0; i < set.n; i++) {
        matches += numbers[i];
    }

    first = ngx_rl_route_set_find(&set, readings, 0);
    must(first == NGX_RL_ROUTE_NONE || numbers[first] == 1);

    ngx_rl_route_walk_init(&walk, &set, readings);

    for (i = 0; i < matches; i++) {
        walked = ngx_rl_route_walk_next(&walk);
        must(walked < set.n && numbers[walked] == 1);
        must(i || first == NGX_RL_ROUTE_NONE || walked == first);
        numbers[walked] = 0;
    }

    must(ngx_rl_route_walk_next(&walk) == NGX_RL_ROUTE_NONE);
    must(walk.visited <= set.nnodes * NGX_RL_READINGS);

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
            tmpl[n].len = len;
            fuzz_servers(&tmpl[n++], path, path_len);
        }
    }

    fuzz_set(tmpl, n, path, path_len);
    fuzz_fold(path, path_len);
    fuzz_fold(data, last - data);

    return 0;
}

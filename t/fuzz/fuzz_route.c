/*
 * Any template and any path: up to the first zero byte the template, behind
 * it the path.
 */

#include <stdlib.h>

#include "ngx_ratelimit_route.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)


static void
fuzz_fold(const u_char *path, size_t len)
{
    u_char  *once, *twice;
    size_t   once_len, twice_len;

    /* not a byte more than promised: the sanitizer sees what is written */

    once = malloc(NGX_RATELIMIT_ROUTE_BYTES(len));
    must(once != NULL);
    once_len = ngx_ratelimit_route_fold(path, len, once);

    must(once_len <= NGX_RATELIMIT_ROUTE_BYTES(len));
    must(once_len >= 1 && once[0] == '/');
    must(once_len == 1 || once[once_len - 1] != '/');
    must(memchr(once, ';', once_len) == NULL);

    twice = malloc(NGX_RATELIMIT_ROUTE_BYTES(once_len));
    must(twice != NULL);
    twice_len = ngx_ratelimit_route_fold(once, once_len, twice);

    must(twice_len == once_len && memcmp(once, twice, once_len) == 0);

    free(once);
    free(twice);
}


static void
fuzz_match(const u_char *tmpl, size_t tmpl_len, const u_char *path, size_t len)
{
    int      match;
    u_char  *slash;

    match = ngx_ratelimit_route_match(tmpl, tmpl_len, path, len);
    must(match == 0 || (match == 1 && path[0] == '/'));

    /* one trailing "/" changes nothing */

    if (len && path[len - 1] != '/' && memchr(path, ';', len) == NULL) {
        slash = malloc(len + 1);
        must(slash != NULL);
        memcpy(slash, path, len);
        slash[len] = '/';
        must(ngx_ratelimit_route_match(tmpl, tmpl_len, slash, len + 1)
             == match);
        free(slash);
    }

    /* a template is also a path, and matches itself */

    must(ngx_ratelimit_route_match(tmpl, tmpl_len, tmpl, tmpl_len) == 1);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const u_char  *path;
    size_t         tmpl_len;

    path = size ? memchr(data, 0, size) : NULL;
    tmpl_len = path ? (size_t) (path - data) : size;
    path = path ? path + 1 : data + size;

    if (ngx_ratelimit_route_check(data, tmpl_len) == NULL) {
        fuzz_match(data, tmpl_len, path, data + size - path);
    }

    fuzz_fold(path, data + size - path);
    fuzz_fold(data, tmpl_len);

    return 0;
}

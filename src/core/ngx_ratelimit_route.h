/*
 * Routes: path templates ("/v1/users/{id}"), and the folding of a path that no
 * template describes.
 */

#ifndef NGX_RATELIMIT_ROUTE_H_INCLUDED
#define NGX_RATELIMIT_ROUTE_H_INCLUDED

#include "ngx_ratelimit_types.h"

/*
 * Whether text is a path template: it starts with "/"; "{name}" and "*" stand
 * for one whole segment, "**" for the rest and only at the end. A trailing "/"
 * is not significant. Returns NULL, or what is wrong as a constant string
 * ("must start with \"/\"").
 */
const char *ngx_ratelimit_route_check(const u_char *text, size_t len);

/*
 * Whether a decoded path matches a checked template, whole: returns 1 or 0.
 * One trailing "/" of the path is not significant; an empty segment is never
 * what "{name}" or "*" stands for; "**" behind "/a/" matches "/a", "/a/" and
 * everything below. Parameters after ";" in a segment of the path are ignored.
 */
int ngx_ratelimit_route_match(const u_char *tmpl, size_t tmpl_len,
    const u_char *path, size_t path_len);

/*
 * Writes the normalized route of a decoded path: segments that are decimal
 * numbers, UUIDs, or 16 and more hexadecimal digits become "{id}"; parameters
 * after ";" and trailing "/" go. The result starts with "/" whatever the path
 * was. out holds NGX_RATELIMIT_ROUTE_BYTES(path_len). Returns the length
 * written.
 */
size_t ngx_ratelimit_route_fold(const u_char *path, size_t path_len,
    u_char *out);

/* "/1/1" -> "/{id}/{id}": each two bytes become five */
#define NGX_RATELIMIT_ROUTE_BYTES(len)  ((len) / 2 * 5 + 5)

#endif /* NGX_RATELIMIT_ROUTE_H_INCLUDED */

/*
 * Routes: path templates ("/v1/users/{id}"), and the folding of a path that no
 * template describes. A set of many templates: ngx_rl_route_set.h.
 */

#ifndef NGX_RL_ROUTE_H_INCLUDED
#define NGX_RL_ROUTE_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_ROUTE_DEPTH  32   /* segments of a template, at most */

typedef struct {
    const u_char  *data;
    size_t         len;
} ngx_rl_segment_t;


/* A path's segments, as templates and the folding see them. */
typedef struct {
    size_t            depth;   /* all of them, of which are kept: */
    ngx_rl_segment_t  segments[NGX_RL_ROUTE_DEPTH];
} ngx_rl_path_t;


/*
 * Whether text is a path template: it starts with "/"; "{name}" and "*" stand
 * for one whole segment, "**" for the rest and only at the end. A trailing "/"
 * is not significant. Returns NULL, or what is wrong as a constant string
 * ("must start with \"/\"").
 */
const char *ngx_rl_route_check(const u_char *text, size_t len);

/*
 * Servers read a path in different ways. In each of these ways, a template that
 * matches it matches: bits, of which none is the first way.
 */
#define NGX_RL_PATH_TEXT       1   /* ";" is text */
#define NGX_RL_PATH_BACKSLASH  2   /* "\" is "/" */
#define NGX_RL_PATH_READINGS   4

/* The bits that make a difference for this path: mostly 0. */
unsigned ngx_rl_path_readings(const u_char *path, size_t len);

/*
 * Splits a decoded path, as the reading says. Parameters after ";" in a segment
 * are no part of it. A segment that is empty then, or ".", counts as nothing,
 * and ".." removes the segment before it: so "/a//b", "/a/;x/b" and
 * "/a/c/..;x/b" are "/a/b". One look at each byte. Returns 1, or 0 where the
 * path does not start with "/": no template matches that. The segments point
 * into the path.
 */
int ngx_rl_path_split(const u_char *path, size_t len, unsigned reading,
    ngx_rl_path_t *out);

/*
 * Whether a decoded path matches a checked template, whole: returns 1 or 0.
 * "**" behind "/a/" matches "/a", "/a/" and everything below. every: in every
 * reading, not in any.
 */
int ngx_rl_route_match(const u_char *tmpl, size_t tmpl_len, const u_char *path,
    size_t path_len, int every);

/*
 * Takes the next segment of a template at *pos, with the "/" before it skipped
 * and without ";parameters". Returns 1, or 0 at the end.
 */
int ngx_rl_segment_next(const u_char **pos, const u_char *last,
    ngx_rl_segment_t *seg);

/* Whether a template's segment is "{name}" or "*", and whether it is "**". */
int ngx_rl_segment_is_any(const ngx_rl_segment_t *seg);
int ngx_rl_segment_is_rest(const ngx_rl_segment_t *seg);

/*
 * Writes the normalized route of a decoded path: its segments as above, of
 * which decimal numbers, UUIDs, and 16 and more hexadecimal digits become
 * "{id}". Control characters become "%XX", so that the result is safe in a
 * header or a log. It starts with "/" whatever the path was. out holds
 * NGX_RL_ROUTE_BYTES(path_len). Returns the length written.
 */
size_t ngx_rl_route_fold(const u_char *path, size_t path_len, u_char *out);

/* "/1" becomes "/{id}", a control character three; "" becomes "/" */
#define NGX_RL_ROUTE_BYTES(len)  ((len) * 3 + 2)

#endif /* NGX_RL_ROUTE_H_INCLUDED */

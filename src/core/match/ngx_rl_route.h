/*
 * Routes: path templates ("/v1/users/{id}"), and the folding of a path that no
 * template describes; and sets of many templates.
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
 * A path, however servers read it: in each of these ways, a template that
 * matches it matches. Mostly there is one.
 */
typedef struct {
    const u_char   *text;       /* decoded, as nginx has it */
    size_t          len;
    const u_char   *sent;       /* as the client sent it */
    size_t          sent_len;   /* 0: that is the text */
    unsigned        bits;       /* what makes a difference */
    size_t          n;          /* different readings; 0: the text's alone */
    ngx_rl_path_t  *paths;      /* n; the text's is the first */
} ngx_rl_readings_t;


/*
 * Whether text is a path template: it starts with "/"; "{name}" and "*" stand
 * for one whole segment, "**" for the rest and only at the end. A trailing "/"
 * is not significant. Returns NULL, or what is wrong as a constant string
 * ("must start with \"/\"").
 */
const char *ngx_rl_route_check(const u_char *text, size_t len);

/*
 * A path of one reading, until split: it is decoded, and parameters after ";"
 * are dropped. sent: the same path before nginx decoded it and resolved its
 * "..", without a query; of length 0 where it is no other, or where a server
 * does not get it. Both are kept as long as the readings. Returns the bytes
 * that split needs, or 0: there is no other reading.
 */
size_t ngx_rl_readings_init(ngx_rl_readings_t *readings, const u_char *text,
    size_t len, const u_char *sent, size_t sent_len);

/*
 * The readings, in memory aligned for a pointer and kept as long. There are
 * NGX_RL_READINGS at most. A server drops the parameters behind a ";" that was
 * sent and then decodes the path, or decodes it first, where "%3B" is a ";"
 * too, or does both, or takes them for text. A "\" that was sent is a "/", or
 * one that was decoded is one too, or none is. A ".." that is left then is
 * resolved, or was looked for before.
 */
void ngx_rl_readings_split(ngx_rl_readings_t *readings, void *memory);

#define NGX_RL_READINGS  48

/*
 * Splits a decoded path. Parameters after ";" in a segment are no part of it. A
 * segment that is empty then, or ".", counts as nothing, and ".." removes the
 * segment before it: so "/a//b", "/a/;x/b" and "/a/c/..;x/b" are "/a/b". One
 * look at each byte. Returns 1, or 0 where the path does not start with "/": no
 * template matches that. The segments point into the path.
 */
int ngx_rl_path_split(const u_char *path, size_t len, ngx_rl_path_t *out);

/*
 * Whether a decoded path matches a checked template, whole: returns 1 or 0.
 * "**" behind "/a/" matches "/a", "/a/" and everything below. every: in every
 * reading, not in any.
 */
int ngx_rl_route_match(const u_char *tmpl, size_t tmpl_len,
    const ngx_rl_readings_t *path, int every);

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


/*
 * A set of path templates: which of them match a path, the most specific
 * first, in a time that does not depend on how many there are.
 */

/* segments of all templates of a set, at most */
#define NGX_RL_ROUTE_SEGMENTS  (1 << 24)

#define NGX_RL_ROUTE_NONE      UINT32_MAX   /* no template */

/* A place in the templates: those that go the same way up to it share it. */
typedef struct {
    uint32_t  literals;   /* the places behind this one by a literal */
    uint32_t  any;        /* the place behind it by "{name}" or "*"; or 0 */
    uint32_t  end;        /* the template that ends here, or NONE */
    uint32_t  rest;       /* the template whose "**" stands here, or NONE */
} ngx_rl_route_node_t;

typedef struct {
    const u_char  *data;
    uint32_t       len;
    uint32_t       hash;
    uint32_t       parent;
    uint32_t       child;   /* 0: a free slot */
} ngx_rl_route_slot_t;

typedef struct {
    ngx_rl_route_node_t  *nodes;
    ngx_rl_route_slot_t  *slots;    /* (node, literal) -> node */
    uint32_t              mask;
    uint32_t              nnodes;
    uint32_t              n;        /* templates */
    uint32_t              probes;   /* of the slot farthest off, + 1 */
    size_t                longest;  /* of the literals */
} ngx_rl_route_set_t;


/* A lookup under way: on its caller's stack. */
typedef struct {
    uint32_t  node;
    uint32_t  stage;
} ngx_rl_route_frame_t;

typedef struct {
    const ngx_rl_route_set_t  *set;
    size_t                     depth;    /* frames in use */
    size_t                     hashed;   /* segments */
    uint32_t                   visited;  /* nodes, for tests */
    uint32_t                   hashes[NGX_RL_ROUTE_DEPTH];
    ngx_rl_route_frame_t       frames[NGX_RL_ROUTE_DEPTH + 1];
    const ngx_rl_readings_t   *readings;
    size_t                     reading;  /* this one */
    const ngx_rl_path_t       *path;     /* of it */
    ngx_rl_path_t              only;     /* where there is one */
} ngx_rl_route_walk_t;


/* The segments of a template: what it needs of a set's room. */
size_t ngx_rl_route_segments(const u_char *text, size_t len);

/*
 * The bytes of a set for templates of so many segments in all, or 0 where
 * these are more than NGX_RL_ROUTE_SEGMENTS.
 */
size_t ngx_rl_route_set_bytes(size_t segments);

/*
 * Makes an empty set for templates of so many segments, in memory of
 * ngx_rl_route_set_bytes(segments), aligned for a pointer, that the
 * caller keeps as long as the set.
 */
void ngx_rl_route_set_init(ngx_rl_route_set_t *set, void *memory,
    size_t segments);

/*
 * Adds a checked template, whose text the caller keeps as long as the set.
 * Returns its number: 0, 1 and so on in their order. If the set has an equal
 * one (names and a "/" at the end do not matter), returns the number of that.
 */
uint32_t ngx_rl_route_set_add(ngx_rl_route_set_t *set, const u_char *text,
    size_t len);

/*
 * The number of the most specific template that matches a path in this reading
 * of it (below n, or 0), or NGX_RL_ROUTE_NONE. Compared segment by segment from
 * the left, a literal is more specific than "{name}" or "*", which is more than
 * "**".
 *
 * Costs one look at each byte of the path and a visit, each in constant time,
 * of the nodes whose way from the root matches the path's first segments. It
 * visits one node for each segment where no "{name}" stands beside literals
 * that lead nowhere. With d segments of the path that templates reach, it is
 * never more than 2^(d + 1) - 1, since a segment leads a node to two at most.
 * Only a set with as many nodes reaches that, as all mixtures of "a" and "*"
 * do.
 */
uint32_t ngx_rl_route_set_find(const ngx_rl_route_set_t *set,
    const ngx_rl_readings_t *path, size_t reading);

/*
 * All templates that match a path in any reading, in each the most
 * specific first, each once: after init each call of next returns one, then
 * NGX_RL_ROUTE_NONE. The cost of all together is bounded as above, for
 * each reading. The path is kept until the end.
 */
void ngx_rl_route_walk_init(ngx_rl_route_walk_t *walk,
    const ngx_rl_route_set_t *set, const ngx_rl_readings_t *path);
uint32_t ngx_rl_route_walk_next(ngx_rl_route_walk_t *walk);

#endif /* NGX_RL_ROUTE_H_INCLUDED */

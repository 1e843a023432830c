/*
 * A set of path templates: which of them match a path, the most specific
 * first, in a time that does not depend on how many there are.
 */

#ifndef NGX_RL_ROUTE_SET_H_INCLUDED
#define NGX_RL_ROUTE_SET_H_INCLUDED

#include "ngx_rl_route.h"

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
    const u_char              *text;     /* of the path */
    size_t                     len;
    unsigned                   readings; /* of it: bits */
    unsigned                   reading;  /* this one */
    ngx_rl_path_t              path;
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
 * The number of the most specific template that matches a decoded path in this
 * reading, or NGX_RL_ROUTE_NONE. Compared segment by segment from the
 * left, a literal is more specific than "{name}" or "*", which is more than
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
    const u_char *path, size_t len, unsigned reading);

/*
 * All templates that match a decoded path in any reading, in each the most
 * specific first, each once: after init each call of next returns one, then
 * NGX_RL_ROUTE_NONE. The cost of all together is bounded as above, for
 * each reading. The path is kept until the end.
 */
void ngx_rl_route_walk_init(ngx_rl_route_walk_t *walk,
    const ngx_rl_route_set_t *set, const u_char *path, size_t len);
uint32_t ngx_rl_route_walk_next(ngx_rl_route_walk_t *walk);

#endif /* NGX_RL_ROUTE_SET_H_INCLUDED */

/*
 * A map from 16-byte digests to numbers, in memory of its maker: open
 * addressing, at most half full, never changed while it is read.
 */

#ifndef NGX_RL_MAP_H_INCLUDED
#define NGX_RL_MAP_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_MAP_KEY   16          /* of a cryptographic digest: its first
                                        bytes are the place */
#define NGX_RL_MAP_NONE  ((uint32_t) -1)

typedef struct {
    u_char    key[NGX_RL_MAP_KEY];
    uint32_t  value;                        /* NONE: the place is free */
} ngx_rl_map_entry_t;

typedef struct {
    ngx_rl_map_entry_t  *entries;    /* NULL: nothing is in it */
    uint32_t             mask;
} ngx_rl_map_t;

/* Places of a table for n entries: a power of two, twice as many or more. */
size_t ngx_rl_map_places(size_t n);

/* Bytes for n entries; 0: there are too many, or n is 0. */
size_t ngx_rl_map_bytes(size_t n);
void ngx_rl_map_init(ngx_rl_map_t *map, void *memory, size_t n);

/*
 * Puts a value (not NONE) under a key, in the place of what was there; returns
 * that, or NONE. No more than n.
 */
uint32_t ngx_rl_map_put(ngx_rl_map_t *map, const u_char *key, uint32_t value);

/* The value, or NONE. */
uint32_t ngx_rl_map_get(const ngx_rl_map_t *map, const u_char *key);

#endif /* NGX_RL_MAP_H_INCLUDED */

/*
 * What a value is compared with, many at once: digests, globs, networks.
 *
 * Globs: "*" stands for any number of bytes, "?" for one, "\" makes the next
 * byte stand for itself. In a list of them the first that matches counts. A
 * text with one "*" behind it is found by a hash for each length of such texts,
 * the others one by one.
 *
 * Networks: an IPv4 address is its mapped IPv6 address here, so both forms of
 * it are the same.
 */

#ifndef NGX_RL_MATCH_H_INCLUDED
#define NGX_RL_MATCH_H_INCLUDED

#include "ngx_rl_types.h"

/*
 * A map from 16-byte digests to numbers, in memory of its maker: open
 * addressing, at most half full, never changed while it is read.
 */

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

#define NGX_RL_GLOB_MAX   256   /* bytes of one */
#define NGX_RL_GLOB_NONE  ((uint32_t) -1)

/* Returns NULL, or what was expected, as a constant string. */
const char *ngx_rl_glob_check(const u_char *glob, size_t len);

/* Whether the glob has a "*" or "?", so that it is more than one text. */
int ngx_rl_glob_wild(const u_char *glob, size_t len);

/* Whether it matches every text. */
int ngx_rl_glob_any(const u_char *glob, size_t len);

/* Whether a checked glob matches a text. Takes at most glob_len * len steps. */
int ngx_rl_glob_match(const u_char *glob, size_t glob_len, const u_char *text,
    size_t len);

typedef struct {
    const u_char  *data;
    size_t         len;
} ngx_rl_glob_text_t;

typedef struct ngx_rl_globs_s  ngx_rl_globs_t;

/*
 * Makes a list of n checked globs in memory of the caller, of globs_bytes(n):
 * texts are not copied. number of a glob: its place, from 0.
 */
size_t ngx_rl_globs_bytes(size_t n);
ngx_rl_globs_t *ngx_rl_globs_init(void *memory, const ngx_rl_glob_text_t *globs,
    size_t n);

/* The number of the first glob that matches, or NONE. globs may be NULL. */
uint32_t ngx_rl_globs_find(const ngx_rl_globs_t *globs, const u_char *text,
    size_t len);

#define NGX_RL_ADDRESS  16   /* bytes */

/* Bits of the prefix before those of an IPv4 network: ::ffff:0:0/96 */
#define NGX_RL_MAPPED   96

typedef struct {
    u_char    address[NGX_RL_ADDRESS];
    uint32_t  bits;     /* of its prefix; 128: it is one address */
    uint32_t  value;    /* the caller's; not NONE of the map */
} ngx_rl_network_t;

typedef struct ngx_rl_networks_s  ngx_rl_networks_t;

/*
 * Reads "192.0.2.1", "10.0.0.0/8", "::1", "2001:db8::/32", and clears the bits
 * behind the prefix. Returns 0, or -1: the text is no address and no network.
 */
int ngx_rl_network_parse(const u_char *text, size_t len,
    ngx_rl_network_t *network);

/* The address of 4 or 16 bytes. */
void ngx_rl_address(const u_char *bytes, size_t len,
    u_char address[NGX_RL_ADDRESS]);

/*
 * Makes a set of n networks, n >= 1, in zeroed memory of the caller, of
 * networks_bytes(): 0 if there are too many. If networks are equal, the
 * greatest value counts.
 */
size_t ngx_rl_networks_bytes(const ngx_rl_network_t *networks, size_t n);
ngx_rl_networks_t *ngx_rl_networks_init(void *memory,
    const ngx_rl_network_t *networks, size_t n);

/*
 * Whether the address is in a network with this value or a greater one. An IPv4
 * address is in no network of IPv6 that is wider than all of IPv4. Looks once
 * for each length of a prefix, however many networks there are. list may be
 * NULL.
 */
int ngx_rl_networks_have(const ngx_rl_networks_t *list,
    const u_char address[NGX_RL_ADDRESS], uint32_t least);

#endif /* NGX_RL_MATCH_H_INCLUDED */

/*
 * A set of clients, each with a value: of the deny list and the allow list, of
 * "api_key=" and "network=", of a source of tiers. It knows API keys, globs of
 * them, addresses, and values of the keys of rules.
 */

#ifndef NGX_RL_CLIENTS_H_INCLUDED
#define NGX_RL_CLIENTS_H_INCLUDED

#include "ngx_rl_rule.h"

/* of a list: seconds since the epoch, when the entry ends; it counts before */
#define NGX_RL_CLIENT_ALWAYS  (NGX_RL_MAP_NONE - 1)

typedef enum {
    NGX_RL_CLIENT_KEY = 0,     /* of an API key: its digest */
    NGX_RL_CLIENT_GLOB,        /* of API keys; checked */
    NGX_RL_CLIENT_NETWORK,
    NGX_RL_CLIENT_RULE_KEY     /* digest: see clients_rule_key() */
} ngx_rl_known_e;

typedef struct {
    ngx_rl_known_e     kind;
    uint32_t            value;     /* not NONE of the map */
    ngx_str_t           glob;      /* not copied */
    u_char              digest[NGX_RL_MAP_KEY];
    ngx_rl_network_t    network;   /* without its value */
} ngx_rl_known_t;

struct ngx_rl_clients_s {
    ngx_rl_map_t        digests;   /* of API keys */
    ngx_rl_globs_t     *globs;     /* or NULL */
    uint32_t           *glob_values;  /* by their numbers, the greatest first */
    ngx_rl_networks_t  *networks;  /* or NULL */
    ngx_rl_map_t        rule_keys;
};

/*
 * Makes a zeroed set of n clients, which it sorts. If clients are equal, the
 * greatest value counts. Returns NGX_OK, or NGX_ERROR when memory is out, as
 * those below do.
 */
ngx_int_t ngx_rl_clients_make(ngx_rl_clients_t *set, ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool);

/* An empty map with room for n, in the pool. */
ngx_int_t ngx_rl_clients_map(ngx_rl_map_t *map, ngx_pool_t *pool, size_t n);

/*
 * The digest of a value of the key of a rule, which is the number-th of those
 * that the policy's lists name. 0: the plain digest. rule: that rule, for a
 * request's value; NULL: a document says the value.
 */
void ngx_rl_clients_rule_key(ngx_uint_t number, const ngx_rl_rule_t *rule,
    const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY]);

/* The steps at a request that a list needs: bits. */
ngx_uint_t ngx_rl_clients_needs(const ngx_rl_clients_t *list);

#endif /* NGX_RL_CLIENTS_H_INCLUDED */

/*
 * A list of clients: the deny list or the allow list, of nginx.conf or of a
 * document. It knows API keys, addresses, and values of the keys of rules.
 */

#ifndef NGX_RL_ACCESS_LIST_H_INCLUDED
#define NGX_RL_ACCESS_LIST_H_INCLUDED

#include "ngx_rl_rule.h"

/*
 * Seconds since the epoch, of an entry: it counts before. Maps and networks
 * give them as their values.
 */
#define NGX_RL_ACCESS_NEVER  (NGX_RL_MAP_NONE - 1)

typedef enum {
    NGX_RL_ACCESS_KEY = 0,     /* of an API key: its digest */
    NGX_RL_ACCESS_GLOB,        /* of API keys; checked */
    NGX_RL_ACCESS_NETWORK,
    NGX_RL_ACCESS_RULE_KEY,    /* digest: see access_rule_key() */
    NGX_RL_ACCESS_KINDS
} ngx_rl_access_e;

typedef struct {
    ngx_rl_access_e     kind;
    uint32_t            ends;
    ngx_str_t           glob;      /* not copied */
    u_char              digest[NGX_RL_MAP_KEY];
    ngx_rl_network_t    network;   /* without its value */
} ngx_rl_access_t;

typedef struct {
    ngx_rl_keys_t       keys;
    uint32_t           *glob_ends;   /* by their numbers, the latest first;
                                        NULL: no globs */
    ngx_rl_networks_t  *networks;    /* or NULL */
    ngx_rl_map_t        rule_keys;
} ngx_rl_access_list_t;

/*
 * Makes a zeroed list of n entries, which it sorts. If entries are equal, the
 * last to end counts. Returns NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_rl_access_list_make(ngx_rl_access_list_t *list,
    ngx_rl_access_t *entries, ngx_uint_t n, ngx_pool_t *pool);

/*
 * The digest of a value of the key of a rule, which is the number-th of those
 * that the policy's lists name, or of its tier_sources. 0: the plain digest.
 * rule: that rule, for a request's value; NULL: a document says the value.
 */
void ngx_rl_access_rule_key(ngx_uint_t number, const ngx_rl_rule_t *rule,
    const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY]);

/* The steps at a request that the list needs: bits. */
ngx_uint_t ngx_rl_access_list_needs(const ngx_rl_access_list_t *list);

#endif /* NGX_RL_ACCESS_LIST_H_INCLUDED */

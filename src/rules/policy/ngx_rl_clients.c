/*
 * How a set of clients is made of its members.
 */

#include "ngx_rl_policy.h"


/* The greatest value first: of globs the first one that matches counts. */
static int ngx_libc_cdecl
ngx_rl_clients_cmp(const void *one, const void *two)
{
    const ngx_rl_known_t  *a = one;
    const ngx_rl_known_t  *b = two;

    if (a->kind != b->kind) {
        return (a->kind < b->kind) ? -1 : 1;
    }

    return (a->value == b->value) ? 0 : (a->value > b->value) ? -1 : 1;
}


ngx_int_t
ngx_rl_clients_map(ngx_rl_map_t *map, ngx_pool_t *pool, size_t n)
{
    void    *memory;
    size_t   bytes;

    bytes = ngx_rl_map_bytes(n);
    memory = bytes ? ngx_palloc(pool, bytes) : NULL;

    if (memory == NULL) {
        return NGX_ERROR;
    }

    ngx_rl_map_init(map, memory, n);

    return NGX_OK;
}


static ngx_int_t
ngx_rl_clients_digests(ngx_rl_map_t *map, const ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool)
{
    if (ngx_rl_clients_map(map, pool, n) != NGX_OK) {
        return NGX_ERROR;
    }

    /* from the least value on: the last one stays */

    while (n--) {
        (void) ngx_rl_map_put(map, clients[n].digest, clients[n].value);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_rl_clients_globs(ngx_rl_clients_t *set, const ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool)
{
    void                *memory;
    ngx_uint_t           i;
    ngx_rl_glob_text_t  *globs;

    globs = ngx_palloc(pool, n * sizeof(ngx_rl_glob_text_t));
    set->glob_values = ngx_palloc(pool, n * sizeof(uint32_t));
    memory = ngx_pcalloc(pool, ngx_rl_globs_bytes(n));

    if (globs == NULL || set->glob_values == NULL || memory == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        globs[i].data = clients[i].glob.data;
        globs[i].len = clients[i].glob.len;
        set->glob_values[i] = clients[i].value;
    }

    set->globs = ngx_rl_globs_init(memory, globs, n);

    return NGX_OK;
}


static ngx_int_t
ngx_rl_clients_networks(ngx_rl_clients_t *set, const ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool)
{
    void              *memory;
    size_t             bytes;
    ngx_uint_t         i;
    ngx_rl_network_t  *networks;

    networks = ngx_alloc(n * sizeof(ngx_rl_network_t), pool->log);
    if (networks == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        networks[i] = clients[i].network;
        networks[i].value = clients[i].value;
    }

    bytes = ngx_rl_networks_bytes(networks, n);
    memory = bytes ? ngx_pcalloc(pool, bytes) : NULL;

    if (memory) {
        set->networks = ngx_rl_networks_init(memory, networks, n);
    }

    ngx_free(networks);

    return memory ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_clients_make(ngx_rl_clients_t *set, ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool)
{
    ngx_int_t   rc;
    ngx_uint_t  i, k;

    ngx_qsort(clients, n, sizeof(ngx_rl_known_t), ngx_rl_clients_cmp);

    rc = NGX_OK;

    for (i = 0; i < n && rc == NGX_OK; i += k) {

        for (k = 1; i + k < n && clients[i + k].kind == clients[i].kind; k++) {
            /* void */
        }

        switch (clients[i].kind) {

        case NGX_RL_CLIENT_KEY:
            rc = ngx_rl_clients_digests(&set->digests, &clients[i], k, pool);
            break;

        case NGX_RL_CLIENT_GLOB:
            rc = ngx_rl_clients_globs(set, &clients[i], k, pool);
            break;

        case NGX_RL_CLIENT_NETWORK:
            rc = ngx_rl_clients_networks(set, &clients[i], k, pool);
            break;

        case NGX_RL_CLIENT_RULE_KEY:
            rc = ngx_rl_clients_digests(&set->rule_keys, &clients[i], k, pool);
            break;
        }
    }

    return rc;
}


void
ngx_rl_clients_rule_key(ngx_uint_t number, const ngx_rl_rule_t *rule,
    const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY])
{
    ngx_uint_t  i;

    if (rule) {
        ngx_rl_policy_value_digest(rule, key, digest);

    } else {
        ngx_rl_policy_digest(key, digest);
    }

    for (i = NGX_RL_MAP_KEY; number; number >>= 8) {
        digest[--i] ^= (u_char) (number & 0xff);
    }
}


ngx_uint_t
ngx_rl_clients_needs(const ngx_rl_clients_t *list)
{
    ngx_uint_t  needs;

    needs = 0;

    if (list->digests.entries) {
        needs |= NGX_RL_NEEDS_DIGEST;
    }

    if (list->globs) {
        needs |= NGX_RL_NEEDS_KEY;
    }

    if (list->networks) {
        needs |= NGX_RL_NEEDS_ADDRESS;
    }

    if (needs || list->rule_keys.entries) {
        needs |= NGX_RL_NEEDS_LISTS;
    }

    return needs;
}

/*
 * How a list of clients is made of its entries.
 */

#include "ngx_rl_policy.h"


/* The last to end first: of globs the first one that matches counts. */
static int ngx_libc_cdecl
ngx_rl_access_cmp(const void *one, const void *two)
{
    const ngx_rl_access_t  *a = one;
    const ngx_rl_access_t  *b = two;

    if (a->kind != b->kind) {
        return (a->kind < b->kind) ? -1 : 1;
    }

    return (a->ends == b->ends) ? 0 : (a->ends > b->ends) ? -1 : 1;
}


static ngx_int_t
ngx_rl_access_digests(ngx_rl_map_t *map, const ngx_rl_access_t *entries,
    ngx_uint_t n, ngx_pool_t *pool)
{
    void        *memory;
    size_t       bytes;
    ngx_uint_t   i;

    bytes = ngx_rl_map_bytes(n);
    memory = bytes ? ngx_palloc(pool, bytes) : NULL;

    if (memory == NULL) {
        return NGX_ERROR;
    }

    ngx_rl_map_init(map, memory, n);

    /* from the first to end on: the last one stays */

    for (i = n; i-- > 0; /* void */ ) {
        (void) ngx_rl_map_put(map, entries[i].digest, entries[i].ends);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_rl_access_globs(ngx_rl_access_list_t *list, const ngx_rl_access_t *entries,
    ngx_uint_t n, ngx_pool_t *pool)
{
    void                *memory;
    ngx_uint_t           i;
    ngx_rl_glob_text_t  *globs;

    globs = ngx_palloc(pool, n * sizeof(ngx_rl_glob_text_t));
    list->glob_ends = ngx_palloc(pool, n * sizeof(uint32_t));
    memory = ngx_pcalloc(pool, ngx_rl_globs_bytes(n));

    if (globs == NULL || list->glob_ends == NULL || memory == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        globs[i].data = entries[i].glob.data;
        globs[i].len = entries[i].glob.len;
        list->glob_ends[i] = entries[i].ends;
    }

    list->keys.globs = ngx_rl_globs_init(memory, globs, n);

    return NGX_OK;
}


static ngx_int_t
ngx_rl_access_networks(ngx_rl_access_list_t *list,
    const ngx_rl_access_t *entries, ngx_uint_t n, ngx_pool_t *pool)
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
        networks[i] = entries[i].network;
        networks[i].value = entries[i].ends;
    }

    bytes = ngx_rl_networks_bytes(networks, n);
    memory = bytes ? ngx_pcalloc(pool, bytes) : NULL;

    if (memory) {
        list->networks = ngx_rl_networks_init(memory, networks, n);
    }

    ngx_free(networks);

    return memory ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_access_list_make(ngx_rl_access_list_t *list, ngx_rl_access_t *entries,
    ngx_uint_t n, ngx_pool_t *pool)
{
    ngx_uint_t              i, of[NGX_RL_ACCESS_KINDS];
    const ngx_rl_access_t  *first[NGX_RL_ACCESS_KINDS];

    ngx_qsort(entries, n, sizeof(ngx_rl_access_t), ngx_rl_access_cmp);

    ngx_memzero(of, sizeof(of));

    for (i = n; i-- > 0; /* void */ ) {
        of[entries[i].kind]++;
        first[entries[i].kind] = &entries[i];
    }

    if (of[NGX_RL_ACCESS_KEY]
        && ngx_rl_access_digests(&list->keys.digests, first[NGX_RL_ACCESS_KEY],
                                 of[NGX_RL_ACCESS_KEY], pool)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (of[NGX_RL_ACCESS_RULE_KEY]
        && ngx_rl_access_digests(&list->rule_keys,
                                 first[NGX_RL_ACCESS_RULE_KEY],
                                 of[NGX_RL_ACCESS_RULE_KEY], pool)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (of[NGX_RL_ACCESS_GLOB]
        && ngx_rl_access_globs(list, first[NGX_RL_ACCESS_GLOB],
                               of[NGX_RL_ACCESS_GLOB], pool)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (of[NGX_RL_ACCESS_NETWORK] == 0) {
        return NGX_OK;
    }

    return ngx_rl_access_networks(list, first[NGX_RL_ACCESS_NETWORK],
                                  of[NGX_RL_ACCESS_NETWORK], pool);
}


void
ngx_rl_access_rule_key(ngx_uint_t number, const ngx_rl_rule_t *rule,
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
ngx_rl_access_list_needs(const ngx_rl_access_list_t *list)
{
    ngx_uint_t  needs;

    needs = 0;

    if (list->keys.digests.entries) {
        needs |= NGX_RL_NEEDS_DIGEST;
    }

    if (list->keys.globs) {
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

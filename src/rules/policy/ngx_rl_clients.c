/*
 * Clients of a policy: the digests by which maps know them, and how a set of
 * them is made.
 */

/* EVP would allocate for each digest */
#ifndef OPENSSL_SUPPRESS_DEPRECATED
#define OPENSSL_SUPPRESS_DEPRECATED
#endif

#include "ngx_rl_policy.h"

#include <openssl/sha.h>

#define NGX_RL_SHA256      "sha256:"
#define NGX_RL_SHA256_LEN  (sizeof(NGX_RL_SHA256) - 1)


/* "sha256:" and 64 hexadecimal digits; NGX_DECLINED: it is something else. */
static ngx_int_t
ngx_rl_policy_digest_read(const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY])
{
    u_char      *p;
    ngx_int_t    value;
    ngx_uint_t   i;

    if (key->len != NGX_RL_SHA256_LEN + 2 * SHA256_DIGEST_LENGTH
        || ngx_strncmp(key->data, NGX_RL_SHA256, NGX_RL_SHA256_LEN) != 0)
    {
        return NGX_DECLINED;
    }

    p = key->data + NGX_RL_SHA256_LEN;

    for (i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        value = ngx_hextoi(p + 2 * i, 2);

        if (value == NGX_ERROR) {
            return NGX_DECLINED;
        }

        if (i < NGX_RL_MAP_KEY) {
            digest[i] = (u_char) value;
        }
    }

    return NGX_OK;
}


static void
ngx_rl_policy_digest_make(const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY])
{
    u_char  whole[SHA256_DIGEST_LENGTH];

    SHA256(key->data, key->len, whole);
    ngx_memcpy(digest, whole, NGX_RL_MAP_KEY);
}


void
ngx_rl_policy_digest(const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY])
{
    if (ngx_rl_policy_digest_read(key, digest) != NGX_OK) {
        ngx_rl_policy_digest_make(key, digest);
    }
}


ngx_uint_t
ngx_rl_policy_hashed(const ngx_str_t *key)
{
    u_char  digest[NGX_RL_MAP_KEY];

    return ngx_rl_policy_digest_read(key, digest) == NGX_OK;
}


ngx_uint_t
ngx_rl_policy_value_hashed(const ngx_str_t *written, const ngx_str_t *value)
{
    static const ngx_str_t  api_key = ngx_string("$ratelimit_api_key");

    return ngx_rl_equal(written, &api_key) && ngx_rl_policy_hashed(value);
}


void
ngx_rl_policy_value_digest(const ngx_rl_rule_t *rule, const ngx_str_t *value,
    u_char digest[NGX_RL_MAP_KEY])
{
    if (ngx_rl_policy_value_hashed(&rule->key, value)) {
        ngx_rl_policy_digest(value, digest);

    } else {
        ngx_rl_policy_digest_make(value, digest);
    }
}


static ngx_inline u_char *
ngx_rl_policy_quote(u_char *p, u_char ch)
{
    if (ch == NGX_RL_PART_END || ch == NGX_RL_PART_QUOTE) {
        *p++ = NGX_RL_PART_QUOTE;
        ch ^= NGX_RL_PART_BIT;
    }

    *p++ = ch;

    return p;
}


ngx_int_t
ngx_rl_policy_join(const ngx_str_t *parts, ngx_uint_t n, ngx_pool_t *pool,
    ngx_str_t *key)
{
    u_char      *p;
    size_t       len, j;
    ngx_uint_t   i;

    if (n == 1) {
        *key = parts[0];
        return NGX_OK;
    }

    ngx_str_null(key);
    len = 0;

    for (i = 0; i < n; i++) {
        len += parts[i].len;
    }

    if (len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, 2 * len + n);
    if (p == NULL) {
        return NGX_ERROR;
    }

    key->data = p;

    for (i = 0; i < n; i++) {

        if (i) {
            *p++ = NGX_RL_PART_END;
        }

        for (j = 0; j < parts[i].len; j++) {
            p = ngx_rl_policy_quote(p, parts[i].data[j]);
        }
    }

    key->len = p - key->data;

    return NGX_OK;
}


/*
 * The part's length makes its end known: no other two texts are these. The
 * value is hashed as it stands in a joined key.
 */
void
ngx_rl_policy_part_digest(const ngx_str_t *part, const ngx_str_t *value,
    ngx_uint_t joined, u_char digest[NGX_RL_MAP_KEY])
{
    u_char      whole[SHA256_DIGEST_LENGTH], len[8], quoted[2];
    size_t      i;
    uint64_t    n;
    SHA256_CTX  ctx;

    static const u_char  head[] = "part";

    n = part->len;

    for (i = 0; i < sizeof(len); i++) {
        len[i] = (u_char) (n >> 8 * i);
    }

    SHA256_Init(&ctx);
    SHA256_Update(&ctx, head, sizeof(head));
    SHA256_Update(&ctx, len, sizeof(len));
    SHA256_Update(&ctx, part->data, part->len);

    if (joined) {
        SHA256_Update(&ctx, value->data, value->len);
    }

    for (i = 0; !joined && i < value->len; i++) {
        SHA256_Update(&ctx, quoted,
                      ngx_rl_policy_quote(quoted, value->data[i]) - quoted);
    }

    SHA256_Final(whole, &ctx);

    ngx_memcpy(digest, whole, NGX_RL_MAP_KEY);
}


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


/* The kinds come one after the other. */
ngx_int_t
ngx_rl_clients_make(ngx_rl_clients_t *set, ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool)
{
    void                *memory;
    size_t               bytes;
    ngx_int_t            rc;
    ngx_uint_t           i, k;
    ngx_rl_network_t    *networks;
    ngx_rl_glob_text_t  *globs;

    ngx_qsort(clients, n, sizeof(ngx_rl_known_t), ngx_rl_clients_cmp);

    rc = NGX_OK;

    for ( /* void */ ; n && rc == NGX_OK; clients += k, n -= k) {

        for (k = 1; k < n && clients[k].kind == clients[0].kind; k++) {
            /* void */
        }

        switch (clients[0].kind) {

        case NGX_RL_CLIENT_KEY:
            rc = ngx_rl_clients_map(&set->digests, pool, k);

            /* from the least value on: the last one stays */

            for (i = k; i > 0 && rc == NGX_OK; i--) {
                (void) ngx_rl_map_put(&set->digests, clients[i - 1].digest,
                                      clients[i - 1].value);
            }

            break;

        case NGX_RL_CLIENT_GLOB:
            globs = ngx_palloc(pool, k * sizeof(ngx_rl_glob_text_t));
            set->glob_values = ngx_palloc(pool, k * sizeof(uint32_t));
            memory = ngx_pcalloc(pool, ngx_rl_globs_bytes(k));

            if (globs == NULL || set->glob_values == NULL || memory == NULL) {
                return NGX_ERROR;
            }

            for (i = 0; i < k; i++) {
                globs[i].data = clients[i].glob.data;
                globs[i].len = clients[i].glob.len;
                set->glob_values[i] = clients[i].value;
            }

            set->globs = ngx_rl_globs_init(memory, globs, k);
            break;

        case NGX_RL_CLIENT_NETWORK:
            networks = ngx_alloc(k * sizeof(ngx_rl_network_t), pool->log);
            if (networks == NULL) {
                return NGX_ERROR;
            }

            for (i = 0; i < k; i++) {
                networks[i] = clients[i].network;
                networks[i].value = clients[i].value;
            }

            bytes = ngx_rl_networks_bytes(networks, k);
            memory = bytes ? ngx_pcalloc(pool, bytes) : NULL;

            if (memory) {
                set->networks = ngx_rl_networks_init(memory, networks, k);
            }

            ngx_free(networks);
            rc = memory ? NGX_OK : NGX_ERROR;
            break;
        }
    }

    return rc;
}


ngx_uint_t
ngx_rl_clients_needs(const ngx_rl_clients_t *list)
{
    ngx_uint_t  needs;

    needs = list->digests.entries ? NGX_RL_NEEDS_DIGEST : 0;
    needs |= list->globs ? NGX_RL_NEEDS_KEY : 0;
    needs |= list->networks ? NGX_RL_NEEDS_ADDRESS : 0;
    needs |= needs ? NGX_RL_NEEDS_LISTS : 0;

    return needs;
}

/*
 * Names in Redis: a hash under a key that is derived from the fleet's secret.
 * Without the secret nobody can test a guess or choose a place. A keyed
 * pseudorandom function is enough for that, and SipHash is one. A document is
 * sealed under another key of the same secret.
 */

#include "ngx_rl_redis.h"

#include <openssl/hmac.h>


ngx_int_t
ngx_rl_redis_prepare(ngx_rl_redis_t *redis)
{
    u_char        *secret, digest[EVP_MAX_MD_SIZE];
    unsigned int   len;

    static u_char  label[] = "ratelimit id";

    /* OpenSSL takes NULL for the key that was there before */

    secret = redis->secret.len ? redis->secret.data : label;

    if (HMAC(EVP_sha256(), secret, (int) redis->secret.len, label,
             sizeof(label) - 1, digest, &len) == NULL)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(redis->id_key, digest, sizeof(redis->id_key));
    ngx_memcpy(redis->mask_key, digest + sizeof(redis->id_key),
               sizeof(redis->mask_key));
    ngx_explicit_memzero(digest, sizeof(digest));

    return NGX_OK;
}


ngx_rl_id_t
ngx_rl_redis_id(const ngx_rl_redis_t *redis, const u_char *data, size_t len)
{
    ngx_rl_id_t  id;

    id = ngx_rl_siphash(redis->id_key, data, len, 2, 4);

#if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
    id.hi = __builtin_bswap64(id.hi);
    id.lo = __builtin_bswap64(id.lo);
#endif

    return id;
}


void
ngx_rl_redis_mask(const ngx_rl_redis_t *redis, const ngx_str_t *name,
    u_char *data, size_t len)
{
    u_char       text[NGX_RL_REDIS_MASKED + 1];
    uint64_t     word;
    ngx_uint_t   i;
    ngx_rl_id_t  mask;

    if (redis->secret.len == 0) {
        return;
    }

    ngx_memcpy(text, name->data, name->len);
    text[name->len] = 0;

    for (i = 0; i < len; i++) {

        if (i % sizeof(mask) == 0) {
            mask = ngx_rl_siphash(redis->mask_key, text, name->len + 1, 2, 4);
            text[name->len]++;
        }

        word = (i % sizeof(mask) < sizeof(word)) ? mask.hi : mask.lo;
        data[i] ^= (u_char) (word >> 8 * (i % sizeof(word)));
    }
}


ngx_int_t
ngx_rl_redis_seal(const ngx_rl_redis_t *redis, const ngx_str_t *zone,
    const ngx_str_t *record, u_char seal[NGX_RL_REDIS_SEAL])
{
    u_char        key[EVP_MAX_MD_SIZE];
    unsigned int  len;

    static u_char  label[] = "ratelimit seal";

    if (HMAC(EVP_sha256(), redis->secret.data, (int) redis->secret.len, label,
             sizeof(label) - 1, key, &len) == NULL
        || HMAC(EVP_sha256(), key, (int) len, zone->data, zone->len, key, &len)
           == NULL
        || HMAC(EVP_sha256(), key, (int) len, record->data, record->len, seal,
                &len) == NULL)
    {
        return NGX_ERROR;
    }

    ngx_explicit_memzero(key, sizeof(key));

    return NGX_OK;
}

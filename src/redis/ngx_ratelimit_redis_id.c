/*
 * Names in Redis: a hash under a key that is derived from the fleet's secret.
 * Without the secret nobody can test a guess or choose a place. A keyed
 * pseudorandom function is enough for that, and SipHash is one.
 */

#include "ngx_ratelimit_redis.h"

#include <openssl/hmac.h>


ngx_int_t
ngx_ratelimit_redis_prepare(ngx_ratelimit_redis_t *redis)
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
    ngx_explicit_memzero(digest, sizeof(digest));

    return NGX_OK;
}


ngx_ratelimit_id_t
ngx_ratelimit_redis_id(const ngx_ratelimit_redis_t *redis, const u_char *data,
    size_t len)
{
    ngx_ratelimit_id_t  id;

    id = ngx_ratelimit_siphash(redis->id_key, data, len, 2, 4);

#if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
    id.hi = __builtin_bswap64(id.hi);
    id.lo = __builtin_bswap64(id.lo);
#endif

    return id;
}

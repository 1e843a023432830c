/*
 * HMAC-SHA256 (RFC 2104) under the fleet's secret. The two key blocks are
 * hashed once, when the configuration is read; a digest then starts from copies
 * of those two states. EVP would allocate for each of them.
 */

#ifndef OPENSSL_SUPPRESS_DEPRECATED
#define OPENSSL_SUPPRESS_DEPRECATED
#endif

#include "ngx_ratelimit_redis.h"

#include <openssl/sha.h>

#define NGX_RATELIMIT_REDIS_HMAC_BLOCK  64


typedef struct {
    SHA256_CTX  inner;
    SHA256_CTX  outer;
} ngx_ratelimit_redis_digest_t;


ngx_int_t
ngx_ratelimit_redis_prepare(ngx_ratelimit_redis_t *redis, ngx_pool_t *pool)
{
    u_char                         block[NGX_RATELIMIT_REDIS_HMAC_BLOCK];
    ngx_uint_t                     i;
    ngx_ratelimit_redis_digest_t  *ctx;

    ctx = ngx_palloc(pool, sizeof(ngx_ratelimit_redis_digest_t));
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(block, sizeof(block));

    if (redis->secret.len > sizeof(block)) {
        SHA256(redis->secret.data, redis->secret.len, block);

    } else if (redis->secret.len) {
        ngx_memcpy(block, redis->secret.data, redis->secret.len);
    }

    for (i = 0; i < sizeof(block); i++) {
        block[i] ^= 0x36;
    }

    SHA256_Init(&ctx->inner);
    SHA256_Update(&ctx->inner, block, sizeof(block));

    for (i = 0; i < sizeof(block); i++) {
        block[i] ^= 0x36 ^ 0x5c;
    }

    SHA256_Init(&ctx->outer);
    SHA256_Update(&ctx->outer, block, sizeof(block));

    ngx_explicit_memzero(block, sizeof(block));

    redis->digest_ctx = ctx;

    return NGX_OK;
}


void
ngx_ratelimit_redis_digest(ngx_ratelimit_redis_t *redis, const u_char *data,
    size_t len, u_char digest[NGX_RATELIMIT_REDIS_DIGEST])
{
    SHA256_CTX                     ctx;
    ngx_ratelimit_redis_digest_t  *key;

    key = redis->digest_ctx;

    ctx = key->inner;
    SHA256_Update(&ctx, data, len);
    SHA256_Final(digest, &ctx);

    ctx = key->outer;
    SHA256_Update(&ctx, digest, NGX_RATELIMIT_REDIS_DIGEST);
    SHA256_Final(digest, &ctx);
}

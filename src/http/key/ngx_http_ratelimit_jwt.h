/*
 * The key of a location's tokens: made by jwt_key.c, used by jwt.c. It binds
 * the algorithm, whatever a token's header says.
 */

#ifndef NGX_HTTP_RATELIMIT_JWT_H_INCLUDED
#define NGX_HTTP_RATELIMIT_JWT_H_INCLUDED

#include "ngx_http_ratelimit_key.h"

#include <openssl/evp.h>

typedef enum {
    NGX_HTTP_RATELIMIT_JWT_INSECURE = 0,   /* nothing is verified */
    NGX_HTTP_RATELIMIT_JWT_HS256,
    NGX_HTTP_RATELIMIT_JWT_RS256,
    NGX_HTTP_RATELIMIT_JWT_ES256
} ngx_http_ratelimit_jwt_alg_e;

struct ngx_http_ratelimit_jwt_key_s {
    ngx_http_ratelimit_jwt_alg_e  alg;
    ngx_str_t                     secret;    /* HS256; zeroed with its pool */
    EVP_PKEY                     *pkey;      /* the others; freed with it */
    ngx_str_t                     audience;  /* as JSON has it; empty: any */
};

#endif /* NGX_HTTP_RATELIMIT_JWT_H_INCLUDED */

/*
 * The keys of a location's tokens: jwt_key.c has them read by jwks_json.c, and
 * jwt.c asks them. Each key has one algorithm, whatever a token's header says.
 */

#ifndef NGX_RL_JWT_H_INCLUDED
#define NGX_RL_JWT_H_INCLUDED

#include "ngx_rl_key.h"

#include <openssl/evp.h>

#define NGX_RL_JWT_FILE  65536   /* bytes */
#define NGX_RL_JWT_KEYS  32      /* of one file */

struct json_t;

/* A way to sign tokens: a row of jwks_json.c. */
typedef struct ngx_rl_jwt_alg_s  ngx_rl_jwt_alg_t;

typedef struct {
    const ngx_rl_jwt_alg_t  *alg;
    struct json_t           *kid;     /* NULL: of any token */
    EVP_PKEY                *pkey;    /* or a secret where that is NULL */
    ngx_str_t                secret;
} ngx_rl_jwk_t;

/* The keys of a file. They are on the heap, with all that they name. */
typedef struct {
    ngx_uint_t     nkeys;
    ngx_uint_t     ignored;   /* others of the file */
    ngx_rl_jwk_t   keys[NGX_RL_JWT_KEYS];
} ngx_rl_jwks_t;

/* The values by which one file differs from another; zero: there is none. */
typedef struct {
    uint64_t  inode;
    uint64_t  size;
    uint64_t  sec;       /* of a change, of rights too */
    uint64_t  nsec;
} ngx_rl_jwt_stamp_t;

/* One "ratelimit_jwt_key". keys and below are each worker's own. */
struct ngx_rl_jwt_key_s {
    ngx_str_t            file;      /* a whole path */
    ngx_str_t            audience;  /* as JSON has it; empty: any */
    ngx_str_t            issuer;    /* the same */
    time_t               leeway;    /* seconds */
    ngx_rl_jwks_t       *keys;      /* freed with the configuration; NULL:
                                       nothing is verified */
    ngx_rl_jwt_stamp_t   stamp;     /* of the file they are from */
    ngx_rl_jwt_stamp_t   failed;    /* of one that could not be read, which was
                                       logged; or stamp */
};


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * The keys of a file's content, which jwks_free() frees. Returns NULL, or the
 * expected content as a constant string.
 */
const char *ngx_rl_jwks_read(const ngx_str_t *content, ngx_rl_jwks_t **made);
void ngx_rl_jwks_free(ngx_rl_jwks_t *keys);

/*
 * Whether one of the keys has signed the content of a token with this header.
 * Returns NULL, or what is wrong with the token.
 */
const char *ngx_rl_jwks_verify(const ngx_rl_jwks_t *keys,
    const struct json_t *header, const ngx_str_t *content,
    const ngx_str_t *signature);

#pragma GCC visibility pop

#endif /* NGX_RL_JWT_H_INCLUDED */

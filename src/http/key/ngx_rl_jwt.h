/*
 * The keys of a location's tokens: read by jwt_key.c and jwks_json.c, used by
 * jwt.c. Each key has one algorithm, whatever a token's header says.
 */

#ifndef NGX_RL_JWT_H_INCLUDED
#define NGX_RL_JWT_H_INCLUDED

#include "ngx_rl_key.h"

#include <openssl/evp.h>

#define NGX_RL_JWT_SECRET  32   /* bytes; RFC 7518, section 3.2 */
#define NGX_RL_JWT_KEYS    32   /* of one file */

/* A way to sign tokens: a row of jwt_alg.c. */
typedef struct ngx_rl_jwt_alg_s  ngx_rl_jwt_alg_t;

/* One key: pkey, or a secret where that is NULL. */
typedef struct {
    const ngx_rl_jwt_alg_t  *alg;
    ngx_str_t                kid;     /* empty: of any token */
    ngx_str_t                secret;
    EVP_PKEY                *pkey;
} ngx_rl_jwk_t;

/* The keys of a file. They are on the heap, with all that they name. */
typedef struct {
    ngx_uint_t     nkeys;
    ngx_uint_t     ignored;   /* others of the file */
    ngx_rl_jwk_t   keys[NGX_RL_JWT_KEYS];
} ngx_rl_jwks_t;

/* The values by which one file differs from another; zero: there is none. */
typedef struct {
    uint64_t                   inode;
    uint64_t                   size;
    uint64_t                   sec;       /* of a change, of rights too */
    uint64_t                   nsec;
} ngx_rl_jwt_stamp_t;

/* One "ratelimit_jwt_key". keys and below are each worker's own. */
struct ngx_rl_jwt_key_s {
    ngx_str_t       file;      /* a whole path */
    ngx_str_t       audience;  /* as JSON has it; empty: any */
    ngx_str_t       issuer;    /* the same */
    time_t          leeway;    /* seconds */
    ngx_rl_jwks_t  *keys;      /* freed with the configuration; NULL: nothing
                                  is verified */
    ngx_rl_jwt_stamp_t  stamp;   /* of the file they are from */
    ngx_rl_jwt_stamp_t  failed;  /* of one that could not be read, which was
                                    logged; or stamp */
};

/* The files that workers read again, of all places. */
struct ngx_rl_jwt_files_s {
    ngx_array_t                keys;      /* ngx_rl_jwt_key_t * */
    ngx_event_t                tick;      /* each worker's own; cancelable */
};


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * jwt_alg.c: gives a key its algorithm: that of the name, or if this is NULL
 * the first for a key like this. Returns NULL, or the expected key.
 */
const char *ngx_rl_jwt_alg_bind(ngx_rl_jwk_t *key, const char *name);

ngx_uint_t ngx_rl_jwt_alg_is(const ngx_rl_jwk_t *key, const char *name);

/* Whether the key has signed the content. */
ngx_uint_t ngx_rl_jwt_alg_verify(
    const ngx_rl_jwk_t *key, const ngx_str_t *content,
    const ngx_str_t *signature);

/*
 * A copy on the heap, NGX_ERROR: memory is out; and what frees a key's members,
 * so that no secret stays in memory.
 */
ngx_int_t ngx_rl_jwk_copy(ngx_str_t *to, const void *data, size_t len);
void ngx_rl_jwk_free(ngx_rl_jwk_t *key);

/* jwks_json.c: adds a JWK Set's keys. Returns NULL, or what is expected. */
const char *ngx_rl_jwks_json(const ngx_str_t *content, ngx_rl_jwks_t *keys);

#pragma GCC visibility pop

#endif /* NGX_RL_JWT_H_INCLUDED */

/*
 * Any text as a bearer token. One that is not signed with the key has no
 * claim; of one that is, whatever its header and body are, the header has to
 * name the key's algorithm.
 */

#include "../../src/http/key/ngx_rl_jwt.c"

#include <setjmp.h>

#include <cmocka.h>

#include "../unit/nginx.h"
#include "../unit/nginx_text.h"
#include "jwt.h"

#include <openssl/hmac.h>
#include <openssl/pem.h>

#define SECRET   "a secret of 32 bytes, 0123456789"
#define CLAIMS   5


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


/* nginx, and what stands beside jwt.c */

ngx_module_t              ngx_http_ratelimit_module;
volatile ngx_time_t      *ngx_cached_time;

static ngx_time_t         now = { 1795000000, 0, 0 };
static ngx_log_t          nowhere;

static ngx_str_t          names[CLAIMS] = {
    ngx_string("sub"), ngx_string("exp"), ngx_string("a"), ngx_string("a.b"),
    ngx_string("a__b")
};


ngx_int_t
ngx_rl_source_token(ngx_http_request_t *r, ngx_str_t *token)
{
    (void) r;
    (void) token;

    return NGX_DECLINED;
}


ngx_pool_cleanup_t *
ngx_pool_cleanup_add(ngx_pool_t *pool, size_t size)
{
    (void) pool;
    (void) size;

    return NULL;
}


void
ngx_rl_request_log(ngx_http_request_t *r, ngx_rl_log_e kind, ngx_uint_t level,
    const char *fmt, ...)
{
    (void) r;
    (void) kind;
    (void) level;
    (void) fmt;
}


/* How many claims the token has for this key. */
static ngx_uint_t
fuzz_open(ngx_rl_jwt_key_t *key, const u_char *data, size_t len,
    const char **reason)
{
    size_t             bytes;
    json_t            *body;
    ngx_str_t          text;
    ngx_uint_t         i, n;
    ngx_pool_t        *pool;
    const char        *dot;

    /* exact, so that overruns are seen */
    text.len = len;
    text.data = malloc(len + 1);
    assert_non_null(text.data);
    memcpy(text.data, data, len);

    body = NULL;
    n = 0;
    *reason = ngx_rl_jwt_open(key, &text, &body);
    assert_true((body == NULL) == (*reason != NULL));

    free(text.data);

    if (body == NULL) {
        return 0;
    }

    pool = ngx_create_pool(1024, &nowhere);
    assert_non_null(pool);

    for (i = 0; i < 2 * CLAIMS; i++) {
        dot = (i < CLAIMS) ? NGX_RL_JWT_DOT : NGX_RL_JWT_DOTS;

        if (ngx_rl_jwt_text(pool,
                  ngx_rl_jwt_find(body, &names[i % CLAIMS], dot),
                            &text)
            != NGX_OK)
        {
            continue;
        }

        n++;

        for (bytes = 0; bytes < text.len; bytes++) {
            assert_true(text.data[bytes] >= 0x20 && text.data[bytes] != 0x7f);
        }
    }

    json_decref(body);
    ngx_destroy_pool(pool);

    return n;
}


/* "header ? body" with a right signature. */
static void
fuzz_signed(ngx_rl_jwt_key_t *key, const uint8_t *data, size_t size)
{
    u_char         *text, *p, digest[EVP_MAX_MD_SIZE];
    const char     *reason;
    unsigned int    len;
    const uint8_t  *body;

    body = memchr(data, '?', size);

    if (body == NULL) {
        return;
    }

    text = malloc(2 * size + 64);
    assert_non_null(text);

    p = fuzz_encode(text, data, body - data);
    *p++ = '.';
    p = fuzz_encode(p, body + 1, data + size - body - 1);

    HMAC(EVP_sha256(), SECRET, sizeof(SECRET) - 1, text,
         p - text, digest, &len);

    *p++ = '.';
    p = fuzz_encode(p, digest, len);

    if (fuzz_open(key, text, p - text, &reason) > 0) {
        assert_null(reason);
        assert_non_null(memmem(data, body - data, "S256", 4));
    }

    free(text);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    BIO                      *pem;
    char                     *text;
    u_char                    secret[64], jwks[256];
    EVP_PKEY                 *pkey;
    ngx_str_t                 content;
    const char               *reason;
    static ngx_rl_jwt_key_t   insecure, hs256, es256;

    ngx_cached_time = &now;

    if (hs256.keys == NULL) {

        /* one for all tokens, one for those that have no other "kid" */

        *fuzz_encode(secret, (u_char *) SECRET, sizeof(SECRET) - 1) = '\0';

        content.data = jwks;
        content.len = snprintf((char *) jwks, sizeof(jwks),
                               "{\"keys\":[{\"kty\":\"oct\",\"k\":\"%s\"},"
                               "{\"kty\":\"oct\",\"kid\":\"a\",\"k\":\"%s\"}]}",
                               secret, secret);
        assert_null(ngx_rl_jwks_read(&content, &hs256.keys));
        assert_int_equal(hs256.keys->nkeys, 2);
        ngx_str_set(&hs256.audience, "me");

        pkey = EVP_EC_gen("P-256");
        pem = BIO_new(BIO_s_mem());
        assert_int_equal(PEM_write_bio_PUBKEY(pem, pkey), 1);
        content.len = BIO_get_mem_data(pem, &text);
        content.data = (u_char *) text;
        assert_null(ngx_rl_jwks_read(&content, &es256.keys));
        BIO_free(pem);
        EVP_PKEY_free(pkey);
    }

    (void) fuzz_open(&insecure, data, size, &reason);

    (void) fuzz_open(&hs256, data, size, &reason);
    assert_non_null(reason);
    (void) fuzz_open(&es256, data, size, &reason);
    assert_non_null(reason);

    fuzz_signed(&hs256, data, size);

    return 0;
}

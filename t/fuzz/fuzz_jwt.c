/*
 * Any text as a bearer token. One that is not signed with the key has no
 * claim; of one that is, whatever its header and body are, the header has to
 * name the key's algorithm.
 */

#include "../../src/http/key/ngx_http_ratelimit_jwt.c"

#include <setjmp.h>

#include <cmocka.h>

#include "../unit/nginx.h"
#include "../unit/nginx_text.h"

#define SECRET   "a secret of 32 bytes, 0123456789"
#define CLAIMS   3


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


/* nginx, and what stands beside jwt.c */

ngx_module_t              ngx_http_ratelimit_module;
volatile ngx_time_t      *ngx_cached_time;

static ngx_time_t         now = { 1795000000, 0, 0 };
static ngx_connection_t   connection;
static ngx_log_t          nowhere;


ngx_http_ratelimit_ctx_t *
ngx_http_ratelimit_ctx_find(ngx_http_request_t *r)
{
    (void) r;

    return NULL;
}


ngx_uint_t
ngx_http_ratelimit_log_due(ngx_http_request_t *r, ngx_http_ratelimit_log_e kind,
    char note[NGX_RATELIMIT_LOG_NOTE])
{
    (void) r;
    (void) kind;
    note[0] = '\0';

    return 1;
}


ngx_int_t
ngx_decode_base64url(ngx_str_t *dst, ngx_str_t *src)
{
    size_t        i;
    uint32_t      bits;
    u_char       *p;
    const char   *at;
    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789-_";

    p = dst->data;
    bits = 0;

    for (i = 0; i < src->len; i++) {
        at = memchr(digits, src->data[i], 64);

        if (at == NULL) {
            return NGX_ERROR;
        }

        bits = bits << 6 | (uint32_t) (at - digits);

        if (i % 4) {
            *p++ = (u_char) (bits >> (6 - 2 * (i % 4)));
        }
    }

    dst->len = p - dst->data;

    return (i % 4 == 1) ? NGX_ERROR : NGX_OK;
}


static u_char *
fuzz_encode(u_char *p, const u_char *data, size_t len)
{
    size_t        i;
    uint32_t      bits;
    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789-_";

    for (i = 0; i < len; i += 3) {
        bits = (uint32_t) data[i] << 16
               | (uint32_t) (i + 1 < len ? data[i + 1] : 0) << 8
               | (uint32_t) (i + 2 < len ? data[i + 2] : 0);

        *p++ = digits[bits >> 18];
        *p++ = digits[bits >> 12 & 63];

        if (i + 1 < len) {
            *p++ = digits[bits >> 6 & 63];
        }

        if (i + 2 < len) {
            *p++ = digits[bits & 63];
        }
    }

    return p;
}


/* How many claims the token has for this key. */
static ngx_uint_t
fuzz_open(ngx_http_ratelimit_jwt_key_t *key, const u_char *data, size_t len,
    const char **reason)
{
    ngx_uint_t                    i, n;
    void                         *ctx = NULL;
    ngx_http_request_t            r;
    ngx_http_ratelimit_jwt_t      jwt;
    ngx_str_t                     claims[CLAIMS];
    ngx_array_t                   array;
    ngx_http_ratelimit_source_t   sources[CLAIMS];

    static const char            *names[CLAIMS] = { "sub", "exp", "a" };

    memset(&r, 0, sizeof(r));
    memset(&array, 0, sizeof(array));
    memset(sources, 0, sizeof(sources));
    memset(claims, 0, sizeof(claims));

    for (i = 0; i < CLAIMS; i++) {
        sources[i].jwt = 1;
        sources[i].name.data = (u_char *) names[i];
        sources[i].name.len = strlen(names[i]);
    }

    array.elts = sources;
    array.nelts = CLAIMS;

    r.ctx = &ctx;
    r.main = &r;
    r.connection = &connection;
    r.pool = ngx_create_pool(1024, &nowhere);
    assert_non_null(r.pool);

    jwt.key = key;
    jwt.sources = &array;
    jwt.claims = claims;
    jwt.token.len = len;
    jwt.token.data = ngx_pnalloc(r.pool, len);
    memcpy(jwt.token.data, data, len);

    *reason = ngx_http_ratelimit_jwt_open(&r, &jwt);

    for (i = 0, n = 0; i < CLAIMS; i++) {
        n += (claims[i].len > 0);
        assert_true(claims[i].len <= len);
    }

    ngx_destroy_pool(r.pool);

    return n;
}


/* "header ? body" with a right signature. */
static void
fuzz_signed(ngx_http_ratelimit_jwt_key_t *key, const uint8_t *data,
    size_t size)
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

    HMAC(EVP_sha256(), key->secret.data, (int) key->secret.len, text,
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
    const char                           *reason;
    static ngx_http_ratelimit_jwt_key_t   insecure, hs256, es256;

    ngx_cached_time = &now;
    connection.log = &nowhere;

    if (es256.pkey == NULL) {
        es256.alg = NGX_HTTP_RATELIMIT_JWT_ES256;
        es256.pkey = EVP_EC_gen("P-256");
        assert_non_null(es256.pkey);

        hs256.alg = NGX_HTTP_RATELIMIT_JWT_HS256;
        ngx_str_set(&hs256.secret, SECRET);
        ngx_str_set(&hs256.audience, "me");
    }

    (void) fuzz_open(&insecure, data, size, &reason);

    assert_int_equal(fuzz_open(&hs256, data, size, &reason), 0);
    assert_non_null(reason);
    assert_int_equal(fuzz_open(&es256, data, size, &reason), 0);
    assert_non_null(reason);

    fuzz_signed(&hs256, data, size);

    return 0;
}

/*
 * JWK Sets (RFC 7517), or a JWK alone. As section 5 says, a key is ignored that
 * the module does not know, or that lacks what it needs.
 */

#include "ngx_rl_jwt.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/obj_mac.h>
#include <openssl/param_build.h>

#include <jansson.h>

#define NGX_RL_JWK_BYTES    1024   /* a number of RSA, a secret */
#define NGX_RL_JWK_ED25519  32

/* A kind of keys, and how one is made. */
typedef struct ngx_rl_jwk_kind_s  ngx_rl_jwk_kind_t;

struct ngx_rl_jwk_kind_s {
    const char    *kty;
    const char    *crv;      /* NULL: it has none */
    ngx_uint_t   (*make)(const json_t *jwk, const ngx_rl_jwk_kind_t *kind,
                         ngx_rl_jwk_t *key);
    const char    *curve;    /* of EC, as OpenSSL names it */
    size_t         bytes;    /* of a point's number */
};


/* The bytes of a member in base64url; 0: there are none, or more than size. */
static size_t
ngx_rl_jwk_bytes(const json_t *jwk, const char *name, u_char *bytes,
    size_t size)
{
    json_t     *member;
    ngx_str_t   text, decoded;

    member = json_object_get(jwk, name);
    text.data = (u_char *) json_string_value(member);
    text.len = json_string_length(member);
    decoded.data = bytes;

    if (text.len == 0 || ngx_base64_decoded_length(text.len) > size + 3
        || ngx_decode_base64url(&decoded, &text) != NGX_OK
        || decoded.len > size)
    {
        return 0;
    }

    return decoded.len;
}


static BIGNUM *
ngx_rl_jwk_number(const json_t *jwk, const char *name)
{
    u_char  bytes[NGX_RL_JWK_BYTES + 3];
    size_t  len;

    len = ngx_rl_jwk_bytes(jwk, name, bytes, NGX_RL_JWK_BYTES);

    return len ? BN_bin2bn(bytes, (int) len, NULL) : NULL;
}


static EVP_PKEY *
ngx_rl_jwk_public(const char *type, OSSL_PARAM *params)
{
    EVP_PKEY      *pkey;
    EVP_PKEY_CTX  *ctx;

    pkey = NULL;
    ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);

    if (ctx && EVP_PKEY_fromdata_init(ctx) == 1) {
        (void) EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params);
    }

    EVP_PKEY_CTX_free(ctx);

    return pkey;
}


static ngx_uint_t
ngx_rl_jwk_rsa(const json_t *jwk, const ngx_rl_jwk_kind_t *kind,
    ngx_rl_jwk_t *key)
{
    BIGNUM          *n, *e;
    OSSL_PARAM      *params;
    OSSL_PARAM_BLD  *build;

    n = ngx_rl_jwk_number(jwk, "n");
    e = ngx_rl_jwk_number(jwk, "e");
    build = OSSL_PARAM_BLD_new();
    params = NULL;

    if (n && e && build && BN_is_odd(e) && !BN_is_one(e)
        && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1
        && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1)
    {
        params = OSSL_PARAM_BLD_to_param(build);
    }

    if (params) {
        key->pkey = ngx_rl_jwk_public("RSA", params);
    }

    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    BN_free(n);
    BN_free(e);

    return key->pkey != NULL;
}


/* OpenSSL refuses a point that is not on the curve. */
static ngx_uint_t
ngx_rl_jwk_ec(const json_t *jwk, const ngx_rl_jwk_kind_t *kind,
    ngx_rl_jwk_t *key)
{
    u_char      point[1 + 2 * (48 + 3)];
    size_t      n;
    OSSL_PARAM  params[3];

    n = kind->bytes;
    point[0] = 0x04;      /* both numbers follow */

    if (ngx_rl_jwk_bytes(jwk, "x", point + 1, n) != n
        || ngx_rl_jwk_bytes(jwk, "y", point + 1 + n, n) != n)
    {
        return 0;
    }

    params[0] = OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME,
                                                 (char *) kind->curve, 0);
    params[1] = OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY,
                                                  point, 1 + 2 * n);
    params[2] = OSSL_PARAM_construct_end();

    key->pkey = ngx_rl_jwk_public("EC", params);

    return key->pkey != NULL;
}


static ngx_uint_t
ngx_rl_jwk_okp(const json_t *jwk, const ngx_rl_jwk_kind_t *kind,
    ngx_rl_jwk_t *key)
{
    u_char  bytes[NGX_RL_JWK_ED25519 + 3];

    if (ngx_rl_jwk_bytes(jwk, "x", bytes, kind->bytes) != kind->bytes) {
        return 0;
    }

    key->pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes,
                                            kind->bytes);

    return key->pkey != NULL;
}


static ngx_uint_t
ngx_rl_jwk_oct(const json_t *jwk, const ngx_rl_jwk_kind_t *kind,
    ngx_rl_jwk_t *key)
{
    u_char      bytes[NGX_RL_JWK_BYTES + 3];
    size_t      len;
    ngx_int_t   rc;

    len = ngx_rl_jwk_bytes(jwk, "k", bytes, NGX_RL_JWK_BYTES);

    rc = ngx_rl_jwk_copy(&key->secret, bytes, len);

    ngx_explicit_memzero(bytes, sizeof(bytes));

    return rc == NGX_OK && len >= NGX_RL_JWT_SECRET;
}


static const ngx_rl_jwk_kind_t  ngx_rl_jwk_kinds[] = {
    { "RSA", NULL, ngx_rl_jwk_rsa, NULL, 0 },
    { "EC", "P-256", ngx_rl_jwk_ec, SN_X9_62_prime256v1, 32 },
    { "EC", "P-384", ngx_rl_jwk_ec, SN_secp384r1, 48 },
    { "OKP", "Ed25519", ngx_rl_jwk_okp, NULL, 32 },
    { "oct", NULL, ngx_rl_jwk_oct, NULL, 0 },
    { NULL, NULL, NULL, NULL, 0 }
};


/* A member, or an empty text. */
static const char *
ngx_rl_jwk_text(const json_t *jwk, const char *name)
{
    const char  *text;

    text = json_string_value(json_object_get(jwk, name));

    return text ? text : "";
}


/* Whether the key is for signatures, if it says what it is for. */
static ngx_uint_t
ngx_rl_jwk_verifies(const json_t *jwk)
{
    size_t       i;
    json_t      *ops;
    const char  *use, *op;

    use = ngx_rl_jwk_text(jwk, "use");
    ops = json_object_get(jwk, "key_ops");

    if (use[0] && ngx_strcmp(use, "sig") != 0) {
        return 0;
    }

    for (i = 0; i < json_array_size(ops); i++) {
        op = json_string_value(json_array_get(ops, i));

        if (op && ngx_strcmp(op, "verify") == 0) {
            return 1;
        }
    }

    return ops == NULL;
}


/* Whether it is a key that tokens can be verified with. */
static ngx_uint_t
ngx_rl_jwk_read(const json_t *jwk, ngx_rl_jwk_t *key)
{
    const char               *kty, *crv, *kid, *alg;
    const ngx_rl_jwk_kind_t  *kind;

    kty = ngx_rl_jwk_text(jwk, "kty");
    crv = ngx_rl_jwk_text(jwk, "crv");
    kid = ngx_rl_jwk_text(jwk, "kid");
    alg = ngx_rl_jwk_text(jwk, "alg");

    if (!ngx_rl_jwk_verifies(jwk)) {
        return 0;
    }

    for (kind = ngx_rl_jwk_kinds; kind->kty; kind++) {

        if (ngx_strcmp(kind->kty, kty) == 0
            && (kind->crv == NULL || ngx_strcmp(kind->crv, crv) == 0))
        {
            return kind->make(jwk, kind, key)
                   && ngx_rl_jwt_alg_bind(key, alg[0] ? alg : NULL)
                      == NULL
                   && ngx_rl_jwk_copy(&key->kid, kid, ngx_strlen(kid))
                      == NGX_OK;
        }
    }

    return 0;
}


const char *
ngx_rl_jwks_json(const ngx_str_t *content, ngx_rl_jwks_t *keys)
{
    size_t         i, n;
    json_t        *root, *list, *jwk;
    const char    *expected;
    ngx_rl_jwk_t   key;

    root = json_loadb((char *) content->data, content->len,
                      JSON_REJECT_DUPLICATES, NULL);
    list = json_object_get(root, "keys");

    if (root == NULL || (list && !json_is_array(list))) {
        json_decref(root);
        return "a JWK Set that is valid JSON";
    }

    n = list ? json_array_size(list) : 1;
    expected = NULL;

    for (i = 0; i < n && expected == NULL; i++) {
        jwk = list ? json_array_get(list, i) : root;
        ngx_memzero(&key, sizeof(ngx_rl_jwk_t));

        if (json_object_get(jwk, "d")) {
            expected = "public keys, no private key";

        } else if (!ngx_rl_jwk_read(jwk, &key)) {
            ngx_rl_jwk_free(&key);
            keys->ignored++;

        } else if (keys->nkeys < NGX_RL_JWT_KEYS) {
            keys->keys[keys->nkeys++] = key;

        } else {
            ngx_rl_jwk_free(&key);
            expected = "a JWK Set of at most 32 keys";
        }
    }

    if (expected == NULL && keys->nkeys == 0) {
        expected = "a JWK Set with a key that verifies signatures";
    }

    json_decref(root);

    return expected;
}

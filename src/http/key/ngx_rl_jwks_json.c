/*
 * The keys of tokens: a JWK Set (RFC 7517), a JWK alone, or a public key in
 * PEM. These say which algorithms of JWS (RFC 7518 and RFC 8037) the keys have.
 */

#include "ngx_rl_jwt.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <jansson.h>

#define NGX_RL_JWT_RSA    2048   /* bits; RFC 7518, section 3.3 */
#define NGX_RL_JWT_CURVE  32     /* bytes of a curve's name */
#define NGX_RL_JWT_DER    112    /* a signature of P-384 as ASN.1 */
#define NGX_RL_JWK_BYTES  1024   /* a number of RSA, a secret */

/* A way to sign tokens, and the kind of keys that it takes. */
struct ngx_rl_jwt_alg_s {
    const char        *name;
    const char        *kty;       /* of a JWK */
    const char        *crv;       /* the same; NULL: the kind has none */
    int                type;      /* of an EVP_PKEY */
    const char        *curve;     /* of EC, as OpenSSL names it, or NULL */
    const EVP_MD    *(*digest)(void);
    int                pss;       /* the padding is RSA's newer one */
    size_t             bytes;     /* of a secret, at least; of a point's number,
                                     and of each of the two in a signature */
};

/* of a kind of keys, the first is for a key that names no algorithm */
static const ngx_rl_jwt_alg_t  ngx_rl_jwt_algs[] = {
    { "HS256", "oct", NULL, EVP_PKEY_HMAC, NULL, EVP_sha256, 0, 32 },
    { "HS384", "oct", NULL, EVP_PKEY_HMAC, NULL, EVP_sha384, 0, 48 },
    { "HS512", "oct", NULL, EVP_PKEY_HMAC, NULL, EVP_sha512, 0, 64 },
    { "RS256", "RSA", NULL, EVP_PKEY_RSA, NULL, EVP_sha256, 0, 0 },
    { "RS384", "RSA", NULL, EVP_PKEY_RSA, NULL, EVP_sha384, 0, 0 },
    { "RS512", "RSA", NULL, EVP_PKEY_RSA, NULL, EVP_sha512, 0, 0 },
    { "PS256", "RSA", NULL, EVP_PKEY_RSA, NULL, EVP_sha256, 1, 0 },
    { "PS384", "RSA", NULL, EVP_PKEY_RSA, NULL, EVP_sha384, 1, 0 },
    { "PS512", "RSA", NULL, EVP_PKEY_RSA, NULL, EVP_sha512, 1, 0 },
    { "ES256", "EC", "P-256", EVP_PKEY_EC, SN_X9_62_prime256v1, EVP_sha256,
      0, 32 },
    { "ES384", "EC", "P-384", EVP_PKEY_EC, SN_secp384r1, EVP_sha384, 0, 48 },
    { "EdDSA", "OKP", "Ed25519", EVP_PKEY_ED25519, NULL, NULL, 0, 32 },
    { NULL, NULL, NULL, 0, NULL, NULL, 0, 0 }
};


/*
 * The two numbers of an EC signature as OpenSSL takes them, written to der.
 * Returns the length, or 0.
 */
static size_t
ngx_rl_jwt_der(const ngx_str_t *signature, size_t bytes, u_char *der)
{
    int         n;
    BIGNUM     *r, *s;
    ECDSA_SIG  *sig;

    if (signature->len != 2 * bytes) {
        return 0;
    }

    n = (int) bytes;
    sig = ECDSA_SIG_new();
    r = BN_bin2bn(signature->data, n, NULL);
    s = BN_bin2bn(signature->data + n, n, NULL);

    if (sig == NULL || r == NULL || s == NULL || ECDSA_SIG_set0(sig, r, s) != 1)
    {
        BN_free(r);
        BN_free(s);
        ECDSA_SIG_free(sig);
        return 0;
    }

    n = i2d_ECDSA_SIG(sig, &der);

    ECDSA_SIG_free(sig);

    return (n > 0) ? n : 0;
}


/* Whether the key has signed the content. */
static ngx_uint_t
ngx_rl_jwk_verify(const ngx_rl_jwk_t *key, const ngx_str_t *content,
    const ngx_str_t *signature)
{
    int            valid;
    size_t         len;
    u_char         bytes[NGX_RL_JWT_DER], *data;
    EVP_MD_CTX    *md;
    EVP_PKEY_CTX  *ctx;     /* of md */
    unsigned int   n;
    const EVP_MD  *digest;

    const ngx_rl_jwt_alg_t  *alg = key->alg;

    data = signature->data;
    len = signature->len;
    digest = alg->digest ? alg->digest() : NULL;
    md = NULL;

    if (alg->type == EVP_PKEY_HMAC) {
        valid = HMAC(digest, key->secret.data, (int) key->secret.len,
                     content->data, content->len, bytes, &n)
                && len == n
                && CRYPTO_memcmp(bytes, data, len) == 0;

    } else {

        md = EVP_MD_CTX_new();
        if (md == NULL) {
            return 0;
        }

        if (alg->type == EVP_PKEY_EC) {
            len = ngx_rl_jwt_der(signature, alg->bytes, bytes);
            data = bytes;
        }

        valid = (len || alg->type != EVP_PKEY_EC)
                && EVP_DigestVerifyInit(md, &ctx, digest, NULL, key->pkey) == 1
                && (!alg->pss
                    || (EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING)
                        == 1
                        && EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx,
                                                         RSA_PSS_SALTLEN_DIGEST)
                           == 1))
                && EVP_DigestVerify(md, data, len, content->data, content->len)
                   == 1;
    }

    EVP_MD_CTX_free(md);

    if (!valid) {
        /* nginx would find what OpenSSL has left, in its next connection */
        ERR_clear_error();
    }

    return valid;
}


/*
 * Asks each key that has the token's "kid" and "alg". A key without a "kid" may
 * be that of any token, and a token without one may be of any key. The keys say
 * how they are used, and the header may only agree (RFC 8725).
 */
const char *
ngx_rl_jwks_verify(const ngx_rl_jwks_t *keys, const json_t *header,
    const ngx_str_t *content, const ngx_str_t *signature)
{
    json_t              *kid;
    ngx_uint_t           i, named, fits;
    const char          *alg;
    const ngx_rl_jwk_t  *key;

    if (json_object_get(header, "crit")) {
        return "it has critical extensions";
    }

    alg = json_string_value(json_object_get(header, "alg"));
    kid = json_object_get(header, "kid");
    named = 0;
    fits = 0;

    for (i = 0; i < keys->nkeys; i++) {
        key = &keys->keys[i];

        if (kid && key->kid && !json_equal(kid, key->kid)) {
            continue;
        }

        named = 1;

        if (alg == NULL || ngx_strcmp(key->alg->name, alg) != 0) {
            continue;
        }

        fits = 1;

        if (ngx_rl_jwk_verify(key, content, signature)) {
            return NULL;
        }
    }

    return fits ? "its signature is wrong"
           : named ? "its algorithm is not that of the key"
           : "no key has its \"kid\"";
}


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


/*
 * A public key of RSA or EC, which the caller frees, or NULL. OpenSSL refuses a
 * point that is not on the curve.
 */
static EVP_PKEY *
ngx_rl_jwk_public(const json_t *jwk, const ngx_rl_jwt_alg_t *alg)
{
    u_char           bytes[2 * (NGX_RL_JWK_BYTES + 3)], *second;
    size_t           size, len[2];
    BIGNUM          *n, *e;
    EVP_PKEY        *pkey;
    ngx_uint_t       rsa, valid;
    OSSL_PARAM      *params;
    EVP_PKEY_CTX    *ctx;
    OSSL_PARAM_BLD  *build;

    rsa = (alg->type == EVP_PKEY_RSA);
    size = rsa ? NGX_RL_JWK_BYTES : alg->bytes;
    second = bytes + 1 + size;

    /* the numbers of a point follow this byte, one directly behind the other */

    bytes[0] = 0x04;
    len[0] = ngx_rl_jwk_bytes(jwk, rsa ? "n" : "x", bytes + 1, size);
    len[1] = ngx_rl_jwk_bytes(jwk, rsa ? "e" : "y", second, size);

    n = BN_bin2bn(bytes + 1, (int) len[0], NULL);
    e = BN_bin2bn(second, (int) len[1], NULL);
    build = OSSL_PARAM_BLD_new();
    pkey = NULL;
    params = NULL;

    valid = n && e && build && len[0] && len[1];

    if (rsa) {
        valid = valid && BN_is_odd(e) && !BN_is_one(e)
                && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1
                && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1;

    } else {
        valid = valid && len[0] == size && len[1] == size
                && OSSL_PARAM_BLD_push_utf8_string(build,
                                                   OSSL_PKEY_PARAM_GROUP_NAME,
                                                   alg->curve, 0)
                   == 1
                && OSSL_PARAM_BLD_push_octet_string(build,
                                                    OSSL_PKEY_PARAM_PUB_KEY,
                                                    bytes, 1 + 2 * size)
                   == 1;
    }

    if (valid) {
        params = OSSL_PARAM_BLD_to_param(build);
    }

    ctx = EVP_PKEY_CTX_new_from_name(NULL, alg->kty, NULL);

    if (params && ctx && EVP_PKEY_fromdata_init(ctx) == 1) {
        (void) EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params);
    }

    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    BN_free(n);
    BN_free(e);

    return pkey;
}


/* A JWK's key for an algorithm. 0: it has none; nothing is to be freed. */
static ngx_uint_t
ngx_rl_jwk_make(const json_t *jwk, const ngx_rl_jwt_alg_t *alg,
    ngx_rl_jwk_t *key)
{
    u_char  bytes[NGX_RL_JWK_BYTES + 3];
    size_t  len;

    switch (alg->type) {

    case EVP_PKEY_HMAC:
        len = ngx_rl_jwk_bytes(jwk, "k", bytes, NGX_RL_JWK_BYTES);

        if (len >= alg->bytes) {
            key->secret.data = ngx_alloc(len, ngx_cycle->log);
        }

        if (key->secret.data) {
            ngx_memcpy(key->secret.data, bytes, len);
            key->secret.len = len;
        }

        ngx_explicit_memzero(bytes, sizeof(bytes));
        return key->secret.len != 0;

    case EVP_PKEY_ED25519:
        len = ngx_rl_jwk_bytes(jwk, "x", bytes, alg->bytes);

        if (len == alg->bytes) {
            key->pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL,
                                                    bytes, len);
        }

        return key->pkey != NULL;

    default:
        key->pkey = ngx_rl_jwk_public(jwk, alg);
        return key->pkey != NULL;
    }
}


static void
ngx_rl_jwk_free(ngx_rl_jwk_t *key)
{
    EVP_PKEY_free(key->pkey);
    json_decref(key->kid);

    if (key->secret.data) {
        ngx_explicit_memzero(key->secret.data, key->secret.len);
        ngx_free(key->secret.data);
    }
}


/* A string, or an empty text. */
static const char *
ngx_rl_jwk_text(const json_t *string)
{
    return json_is_string(string) ? json_string_value(string) : "";
}


static ngx_uint_t
ngx_rl_jwt_rsa_short(const EVP_PKEY *pkey)
{
    return EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA
           && EVP_PKEY_get_bits(pkey) < NGX_RL_JWT_RSA;
}


/*
 * Reads a key that tokens can be verified with. As RFC 7517, section 5, says,
 * one is ignored that the module does not know, that lacks what it needs, or
 * that is for something else: 0.
 */
static ngx_uint_t
ngx_rl_jwk_read(json_t *jwk, ngx_rl_jwk_t *key)
{
    size_t                   i;
    json_t                  *ops, *kid;
    ngx_uint_t               verifies;
    const char              *kty, *crv, *use, *op, *name;
    const ngx_rl_jwt_alg_t  *alg;

    kty = ngx_rl_jwk_text(json_object_get(jwk, "kty"));
    crv = ngx_rl_jwk_text(json_object_get(jwk, "crv"));
    use = ngx_rl_jwk_text(json_object_get(jwk, "use"));
    name = ngx_rl_jwk_text(json_object_get(jwk, "alg"));
    ops = json_object_get(jwk, "key_ops");
    kid = json_object_get(jwk, "kid");

    verifies = (ops == NULL);

    for (i = 0; i < json_array_size(ops); i++) {
        op = ngx_rl_jwk_text(json_array_get(ops, i));
        verifies |= (ngx_strcmp(op, "verify") == 0);
    }

    if (!verifies || (use[0] && ngx_strcmp(use, "sig") != 0)) {
        return 0;
    }

    for (alg = ngx_rl_jwt_algs; alg->name; alg++) {
        if (ngx_strcmp(alg->kty, kty) == 0
            && (alg->crv == NULL || ngx_strcmp(alg->crv, crv) == 0)
            && (name[0] == '\0' || ngx_strcmp(alg->name, name) == 0))
        {
            break;
        }
    }

    ngx_memzero(key, sizeof(ngx_rl_jwk_t));

    if (alg->name == NULL || !ngx_rl_jwk_make(jwk, alg, key)) {
        return 0;
    }

    if (key->pkey && ngx_rl_jwt_rsa_short(key->pkey)) {
        EVP_PKEY_free(key->pkey);
        return 0;
    }

    key->alg = alg;
    key->kid = json_string_length(kid) ? json_incref(kid) : NULL;

    return 1;
}


/* Adds the keys of a JWK Set, or of a JWK alone. */
static const char *
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

        if (json_object_get(jwk, "d")) {
            expected = "public keys, no private key";

        } else if (!ngx_rl_jwk_read(jwk, &key)) {
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


/*
 * The first public key. No other text is a key: as a secret, any file that got
 * there by accident would verify tokens, with what everybody may know.
 */
static const char *
ngx_rl_jwks_pem(const ngx_str_t *content, ngx_rl_jwks_t *keys)
{
    BIO                     *bio;
    int                      type;
    char                     curve[NGX_RL_JWT_CURVE];
    EVP_PKEY                *pkey;
    const ngx_rl_jwt_alg_t  *alg;

    if (memmem(content->data, content->len, "PRIVATE KEY-----",
               sizeof("PRIVATE KEY-----") - 1))
    {
        return "a public key, no private key";
    }

    bio = BIO_new_mem_buf(content->data, (int) content->len);
    if (bio == NULL) {
        return "memory";
    }

    /* a password, so that OpenSSL asks the terminal for none */

    pkey = PEM_read_bio_PUBKEY(bio, NULL, NULL, "");

    BIO_free(bio);

    if (pkey == NULL) {
        return "a JWK Set, a JWK (of type \"oct\" for a secret) or a public "
               "key in PEM";
    }

    /* from here on it is freed with the others */

    keys->nkeys = 1;
    keys->keys[0].pkey = pkey;

    type = EVP_PKEY_get_base_id(pkey);
    curve[0] = '\0';

    if (type == EVP_PKEY_EC) {
        (void) EVP_PKEY_get_group_name(pkey, curve, sizeof(curve), NULL);
    }

    for (alg = ngx_rl_jwt_algs; alg->name; alg++) {
        if (alg->type == type
            && (alg->curve == NULL || ngx_strcmp(alg->curve, curve) == 0))
        {
            keys->keys[0].alg = alg;

            return ngx_rl_jwt_rsa_short(pkey)
                   ? "an RSA key of 2048 bits or more" : NULL;
        }
    }

    return "an RSA key, an EC key on the curve P-256 or P-384, or an Ed25519 "
           "key";
}


void
ngx_rl_jwks_free(ngx_rl_jwks_t *keys)
{
    ngx_uint_t  i;

    for (i = 0; i < keys->nkeys; i++) {
        ngx_rl_jwk_free(&keys->keys[i]);
    }

    ngx_free(keys);
}


const char *
ngx_rl_jwks_read(const ngx_str_t *content, ngx_rl_jwks_t **made)
{
    u_char         *p, *last;
    const char     *expected;
    ngx_rl_jwks_t  *keys;

    if (content->len > NGX_RL_JWT_FILE) {
        return "one of at most 65536 bytes";
    }

    keys = ngx_calloc(sizeof(ngx_rl_jwks_t), ngx_cycle->log);
    if (keys == NULL) {
        return "memory";
    }

    p = content->data;
    last = p + content->len;

    while (p < last && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')) {
        p++;
    }

    expected = (p < last && *p == '{') ? ngx_rl_jwks_json(content, keys)
                                       : ngx_rl_jwks_pem(content, keys);

    ERR_clear_error();

    if (expected) {
        ngx_rl_jwks_free(keys);
        return expected;
    }

    *made = keys;

    return NULL;
}

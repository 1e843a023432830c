/*
 * A key, and the algorithms of JWS (RFC 7518 and RFC 8037) as OpenSSL verifies
 * them.
 */

#include "ngx_rl_jwt.h"

#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>

#define NGX_RL_JWT_RSA    2048   /* bits; RFC 7518, section 3.3 */
#define NGX_RL_JWT_CURVE  32     /* bytes of a curve's name */
#define NGX_RL_JWT_DER    112    /* a signature of P-384 as ASN.1 */

struct ngx_rl_jwt_alg_s {
    const char        *name;
    int                type;      /* of an EVP_PKEY; 0: a secret */
    const char        *curve;     /* NULL: the type has none */
    const EVP_MD    *(*digest)(void);
    int                padding;   /* of RSA */
    size_t             bytes;     /* of a secret, at least; of each of the two
                                     numbers that are a signature */
};

/* of a kind of keys, the first is for a key that names no algorithm */
static const ngx_rl_jwt_alg_t  ngx_rl_jwt_algs[] = {
    { "HS256", 0, NULL, EVP_sha256, 0, 32 },
    { "HS384", 0, NULL, EVP_sha384, 0, 48 },
    { "HS512", 0, NULL, EVP_sha512, 0, 64 },
    { "RS256", EVP_PKEY_RSA, NULL, EVP_sha256, RSA_PKCS1_PADDING, 0 },
    { "RS384", EVP_PKEY_RSA, NULL, EVP_sha384, RSA_PKCS1_PADDING, 0 },
    { "RS512", EVP_PKEY_RSA, NULL, EVP_sha512, RSA_PKCS1_PADDING, 0 },
    { "PS256", EVP_PKEY_RSA, NULL, EVP_sha256, RSA_PKCS1_PSS_PADDING, 0 },
    { "PS384", EVP_PKEY_RSA, NULL, EVP_sha384, RSA_PKCS1_PSS_PADDING, 0 },
    { "PS512", EVP_PKEY_RSA, NULL, EVP_sha512, RSA_PKCS1_PSS_PADDING, 0 },
    { "ES256", EVP_PKEY_EC, SN_X9_62_prime256v1, EVP_sha256, 0, 32 },
    { "ES384", EVP_PKEY_EC, SN_secp384r1, EVP_sha384, 0, 48 },
    { "EdDSA", EVP_PKEY_ED25519, NULL, NULL, 0, 0 },
    { NULL, 0, NULL, NULL, 0, 0 }
};


const char *
ngx_rl_jwt_alg_bind(ngx_rl_jwk_t *key, const char *name)
{
    int                      type;
    char                     curve[NGX_RL_JWT_CURVE];
    const ngx_rl_jwt_alg_t  *alg;

    type = key->pkey ? EVP_PKEY_get_base_id(key->pkey) : 0;
    curve[0] = '\0';

    if (type == EVP_PKEY_EC) {
        (void) EVP_PKEY_get_group_name(key->pkey, curve, sizeof(curve), NULL);
    }

    for (alg = ngx_rl_jwt_algs; alg->name; alg++) {

        if (alg->type != type
            || (alg->curve && ngx_strcmp(alg->curve, curve) != 0)
            || (name && ngx_strcmp(alg->name, name) != 0))
        {
            continue;
        }

        if (type == EVP_PKEY_RSA
            && EVP_PKEY_get_bits(key->pkey) < NGX_RL_JWT_RSA)
        {
            return "an RSA key of 2048 bits or more";
        }

        if (type == 0 && key->secret.len < alg->bytes) {
            return "a longer secret";
        }

        key->alg = alg;

        return NULL;
    }

    return "an RSA key, an EC key on the curve P-256 or P-384, or an Ed25519 "
           "key";
}


ngx_uint_t
ngx_rl_jwt_alg_is(const ngx_rl_jwk_t *key, const char *name)
{
    return ngx_strcmp(key->alg->name, name) == 0;
}


/*
 * The two numbers of an EC signature as OpenSSL takes them, written to der.
 * Returns the length, or 0.
 */
static size_t
ngx_rl_jwt_alg_der(const ngx_str_t *signature, size_t bytes, u_char *der)
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


static int
ngx_rl_jwt_alg_pkey(const ngx_rl_jwk_t *key, const ngx_str_t *content,
    const u_char *signature, size_t len)
{
    int          valid;
    EVP_MD_CTX  *md;
    EVP_PKEY_CTX  *ctx;     /* of md */

    const ngx_rl_jwt_alg_t  *alg = key->alg;

    md = EVP_MD_CTX_new();
    if (md == NULL) {
        return 0;
    }

    valid = EVP_DigestVerifyInit(md, &ctx, alg->digest ? alg->digest() : NULL,
                                 NULL, key->pkey)
            == 1;

    if (alg->padding == RSA_PKCS1_PSS_PADDING) {
        valid = valid
                && EVP_PKEY_CTX_set_rsa_padding(ctx, alg->padding) == 1
                && EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, RSA_PSS_SALTLEN_DIGEST)
                   == 1;
    }

    valid = valid && EVP_DigestVerify(md, signature, len, content->data,
                                      content->len)
                     == 1;

    EVP_MD_CTX_free(md);

    return valid;
}


ngx_uint_t
ngx_rl_jwt_alg_verify(const ngx_rl_jwk_t *key, const ngx_str_t *content,
    const ngx_str_t *signature)
{
    int           valid;
    u_char        bytes[NGX_RL_JWT_DER];
    size_t        len;
    unsigned int  n;

    len = signature->len;

    if (key->pkey == NULL) {
        valid = HMAC(key->alg->digest(), key->secret.data,
                     (int) key->secret.len, content->data, content->len,
                     bytes, &n)
                && len == n
                && CRYPTO_memcmp(bytes, signature->data, len) == 0;

    } else if (key->alg->type == EVP_PKEY_EC) {
        len = ngx_rl_jwt_alg_der(signature, key->alg->bytes, bytes);
        valid = len && ngx_rl_jwt_alg_pkey(key, content, bytes, len);

    } else {
        valid = ngx_rl_jwt_alg_pkey(key, content, signature->data, len);
    }

    if (!valid) {
        /* nginx would find what OpenSSL has left, in its next connection */
        ERR_clear_error();
    }

    return valid;
}


ngx_int_t
ngx_rl_jwk_copy(ngx_str_t *to, const void *data, size_t len)
{
    to->data = ngx_alloc(len + 1, ngx_cycle->log);
    if (to->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(to->data, data, len);
    to->len = len;

    return NGX_OK;
}


void
ngx_rl_jwk_free(ngx_rl_jwk_t *key)
{
    EVP_PKEY_free(key->pkey);

    if (key->secret.data) {
        ngx_explicit_memzero(key->secret.data, key->secret.len);
        ngx_free(key->secret.data);
    }

    if (key->kid.data) {
        ngx_free(key->kid.data);
    }
}

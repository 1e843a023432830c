/*
 * Claims of a bearer token (JWT, RFC 7519), signed as a JWS in compact form
 * (RFC 7515). OpenSSL verifies the signature with the key that the
 * configuration has prepared.
 */

#include "ngx_http_ratelimit_jwt.h"
#include "ngx_http_ratelimit_key.h"
#include "ngx_http_ratelimit_request.h"

#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/hmac.h>

#include <jansson.h>

#define NGX_HTTP_RATELIMIT_JWT_BYTES     8192   /* of a token */
#define NGX_HTTP_RATELIMIT_JWT_HS_BYTES  32
#define NGX_HTTP_RATELIMIT_JWT_ES_BYTES  64     /* r, s of P-256 */
#define NGX_HTTP_RATELIMIT_JWT_DER       80     /* the same as ASN.1: <= 72 */

/* A token and its parts, still in base64url. */
typedef struct {
    ngx_str_t  header;
    ngx_str_t  body;
    ngx_str_t  content;     /* header and body: what is signed */
    ngx_str_t  signature;
} ngx_http_ratelimit_jwt_token_t;

/*
 * The claims of a request's token. The context keeps them, so that one
 * verification serves all readers.
 */
typedef struct {
    ngx_http_ratelimit_jwt_key_t  *key;
    ngx_array_t                   *sources;
    ngx_str_t                      token;
    ngx_str_t                     *claims;  /* of the sources; empty: none */
} ngx_http_ratelimit_jwt_t;


static ngx_http_ratelimit_jwt_t *ngx_http_ratelimit_jwt_read(
    ngx_http_request_t *r, ngx_http_ratelimit_loc_conf_t *conf,
    const ngx_str_t *text);
static const char *ngx_http_ratelimit_jwt_open(ngx_http_request_t *r,
    ngx_http_ratelimit_jwt_t *jwt);
static const char *ngx_http_ratelimit_jwt_split(const ngx_str_t *text,
    ngx_http_ratelimit_jwt_token_t *token);
static json_t *ngx_http_ratelimit_jwt_parse(ngx_str_t *part);
static const char *ngx_http_ratelimit_jwt_header(
    const ngx_http_ratelimit_jwt_key_t *key, ngx_str_t *part);
static const char *ngx_http_ratelimit_jwt_verify(
    const ngx_http_ratelimit_jwt_key_t *key,
    ngx_http_ratelimit_jwt_token_t *token);
static ngx_uint_t ngx_http_ratelimit_jwt_verify_hmac(const ngx_str_t *secret,
    const ngx_str_t *content, const ngx_str_t *signature);
static ngx_uint_t ngx_http_ratelimit_jwt_verify_pkey(EVP_PKEY *pkey,
    const ngx_str_t *content, const ngx_str_t *signature);
static ngx_uint_t ngx_http_ratelimit_jwt_der(ngx_str_t *signature,
    u_char *der);
static const char *ngx_http_ratelimit_jwt_validate(
    const ngx_http_ratelimit_jwt_key_t *key, const json_t *body);
static ngx_int_t ngx_http_ratelimit_jwt_time(const json_t *claim,
    ngx_uint_t up, time_t *time);
static ngx_uint_t ngx_http_ratelimit_jwt_audience(const json_t *claim,
    const ngx_str_t *audience);
static ngx_uint_t ngx_http_ratelimit_jwt_equal(const json_t *string,
    const ngx_str_t *text);
static ngx_int_t ngx_http_ratelimit_jwt_copy(ngx_pool_t *pool,
    const json_t *value, ngx_str_t *claim);

/* in the order of ngx_http_ratelimit_jwt_alg_e */
static const char  *ngx_http_ratelimit_jwt_algs[] = {
    "",
    "HS256",
    "RS256",
    "ES256",
};


ngx_int_t
ngx_http_ratelimit_jwt_claim(ngx_http_request_t *r, const ngx_str_t *token,
    const ngx_str_t *name, ngx_str_t *claim)
{
    ngx_uint_t                      i;
    ngx_http_ratelimit_jwt_t       *jwt;
    ngx_http_ratelimit_source_t    *source;
    ngx_http_ratelimit_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    if (conf->jwt_key == NULL) {
        return NGX_DECLINED;
    }

    jwt = ngx_http_ratelimit_jwt_read(r, conf, token);
    if (jwt == NULL) {
        return NGX_ERROR;
    }

    source = conf->sources->elts;

    for (i = 0; i < conf->sources->nelts; i++) {
        if (&source[i].name == name) {
            *claim = jwt->claims[i];
            return claim->len ? NGX_OK : NGX_DECLINED;
        }
    }

    return NGX_DECLINED;
}


/* NULL when memory is out; of a token that is not valid no claim is set. */
static ngx_http_ratelimit_jwt_t *
ngx_http_ratelimit_jwt_read(ngx_http_request_t *r,
    ngx_http_ratelimit_loc_conf_t *conf, const ngx_str_t *text)
{
    char                       note[NGX_RATELIMIT_LOG_NOTE];
    const char                *reason;
    ngx_http_ratelimit_ctx_t  *ctx;
    ngx_http_ratelimit_jwt_t  *jwt;

    ctx = ngx_http_ratelimit_ctx(r->main);
    jwt = ctx ? ctx->jwt : NULL;

    if (jwt && jwt->key == conf->jwt_key && jwt->sources == conf->sources
        && jwt->token.data == text->data && jwt->token.len == text->len)
    {
        return jwt;
    }

    jwt = ngx_pcalloc(r->pool, sizeof(ngx_http_ratelimit_jwt_t)
                               + conf->sources->nelts * sizeof(ngx_str_t));
    if (jwt == NULL) {
        return NULL;
    }

    jwt->key = conf->jwt_key;
    jwt->sources = conf->sources;
    jwt->token = *text;
    jwt->claims = (ngx_str_t *) &jwt[1];

    reason = ngx_http_ratelimit_jwt_open(r, jwt);

    if (reason
        && ngx_http_ratelimit_log_due(r, NGX_HTTP_RATELIMIT_LOG_TOKEN, note))
    {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "ratelimit: the bearer token has no claim for a key: "
                      "%s%s", reason, note);
    }

    if (ctx) {
        ctx->jwt = jwt;
    }

    return jwt;
}


/* Verifies the token and copies its claims. Returns NULL, or what is wrong. */
static const char *
ngx_http_ratelimit_jwt_open(ngx_http_request_t *r,
    ngx_http_ratelimit_jwt_t *jwt)
{
    json_t                          *body;
    ngx_uint_t                       i;
    const char                      *reason;
    ngx_http_ratelimit_source_t     *source;
    ngx_http_ratelimit_jwt_token_t   token;

    reason = ngx_http_ratelimit_jwt_split(&jwt->token, &token);

    if (reason == NULL && jwt->key->alg != NGX_HTTP_RATELIMIT_JWT_INSECURE) {
        reason = ngx_http_ratelimit_jwt_header(jwt->key, &token.header);

        if (reason == NULL) {
            reason = ngx_http_ratelimit_jwt_verify(jwt->key, &token);
        }
    }

    if (reason) {
        return reason;
    }

    body = ngx_http_ratelimit_jwt_parse(&token.body);
    if (body == NULL) {
        return "its body is no JSON object";
    }

    if (jwt->key->alg != NGX_HTTP_RATELIMIT_JWT_INSECURE) {
        reason = ngx_http_ratelimit_jwt_validate(jwt->key, body);
    }

    source = jwt->sources->elts;

    for (i = 0; reason == NULL && i < jwt->sources->nelts; i++) {
        if (source[i].jwt
            && ngx_http_ratelimit_jwt_copy(r->pool,
                          json_object_get(body, (char *) source[i].name.data),
                                           &jwt->claims[i])
               != NGX_OK)
        {
            reason = "out of memory";
        }
    }

    json_decref(body);

    return reason;
}


/* Three parts of base64url between dots, the last one maybe empty. */
static const char *
ngx_http_ratelimit_jwt_split(const ngx_str_t *text,
    ngx_http_ratelimit_jwt_token_t *token)
{
    u_char      ch, *p, *last, *dots[2];
    ngx_uint_t  n;

    if (text->len > NGX_HTTP_RATELIMIT_JWT_BYTES) {
        return "it has more than 8192 bytes";
    }

    n = 0;
    last = text->data + text->len;

    for (p = text->data; p < last; p++) {
        ch = *p;

        if (ch == '.' && n < 2) {
            dots[n++] = p;

        } else if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
                     || (ch >= '0' && ch <= '9') || ch == '-' || ch == '_'))
        {
            return "it is no JWT";
        }
    }

    if (n != 2) {
        return "it is no JWT";
    }

    token->header.data = text->data;
    token->header.len = dots[0] - text->data;
    token->body.data = dots[0] + 1;
    token->body.len = dots[1] - token->body.data;
    token->content.data = text->data;
    token->content.len = dots[1] - text->data;
    token->signature.data = dots[1] + 1;
    token->signature.len = last - token->signature.data;

    if (token->header.len == 0 || token->header.len % 4 == 1
        || token->body.len == 0 || token->body.len % 4 == 1
        || token->signature.len % 4 == 1)
    {
        return "it is no JWT";
    }

    return NULL;
}


/*
 * The JSON object of a part, which the caller frees, or NULL. If several
 * members have one name, the last one counts (RFC 7519, section 4).
 */
static json_t *
ngx_http_ratelimit_jwt_parse(ngx_str_t *part)
{
    u_char      bytes[NGX_HTTP_RATELIMIT_JWT_BYTES];
    json_t     *json;
    ngx_str_t   text;

    text.data = bytes;

    if (ngx_decode_base64url(&text, part) != NGX_OK) {
        return NULL;
    }

    json = json_loadb((char *) text.data, text.len, 0, NULL);

    if (!json_is_object(json)) {
        json_decref(json);
        return NULL;
    }

    return json;
}


/* The key says how it is used, and the header may only agree (RFC 8725). */
static const char *
ngx_http_ratelimit_jwt_header(const ngx_http_ratelimit_jwt_key_t *key,
    ngx_str_t *part)
{
    json_t      *header;
    const char  *alg, *reason;

    header = ngx_http_ratelimit_jwt_parse(part);
    if (header == NULL) {
        return "its header is no JSON object";
    }

    reason = NULL;

    alg = json_string_value(json_object_get(header, "alg"));

    if (alg == NULL
        || ngx_strcmp(alg, ngx_http_ratelimit_jwt_algs[key->alg]) != 0)
    {
        reason = "its algorithm is not that of the key";
    }

    if (json_object_get(header, "crit")) {
        reason = "it has critical extensions";
    }

    json_decref(header);

    return reason;
}


static const char *
ngx_http_ratelimit_jwt_verify(const ngx_http_ratelimit_jwt_key_t *key,
    ngx_http_ratelimit_jwt_token_t *token)
{
    u_char      bytes[NGX_HTTP_RATELIMIT_JWT_BYTES];
    u_char      der[NGX_HTTP_RATELIMIT_JWT_DER];
    ngx_str_t   signature;
    ngx_uint_t  valid;

    signature.data = bytes;

    if (ngx_decode_base64url(&signature, &token->signature) != NGX_OK) {
        return "it is no JWT";
    }

    switch (key->alg) {

    case NGX_HTTP_RATELIMIT_JWT_HS256:
        valid = ngx_http_ratelimit_jwt_verify_hmac(&key->secret,
                                                   &token->content,
                                                   &signature);
        break;

    case NGX_HTTP_RATELIMIT_JWT_RS256:
        valid = ngx_http_ratelimit_jwt_verify_pkey(key->pkey, &token->content,
                                                   &signature);
        break;

    case NGX_HTTP_RATELIMIT_JWT_ES256:
        valid = ngx_http_ratelimit_jwt_der(&signature, der)
                && ngx_http_ratelimit_jwt_verify_pkey(key->pkey,
                                                      &token->content,
                                                      &signature);
        break;

    default:
        valid = 0;
    }

    if (!valid) {
        /* nginx would find what OpenSSL has left, in its next connection */
        ERR_clear_error();
        return "its signature is wrong";
    }

    return NULL;
}


static ngx_uint_t
ngx_http_ratelimit_jwt_verify_hmac(const ngx_str_t *secret,
    const ngx_str_t *content, const ngx_str_t *signature)
{
    u_char        digest[EVP_MAX_MD_SIZE];
    unsigned int  len;

    return signature->len == NGX_HTTP_RATELIMIT_JWT_HS_BYTES
           && HMAC(EVP_sha256(), secret->data, (int) secret->len,
                   content->data, content->len, digest, &len)
           && CRYPTO_memcmp(digest, signature->data, signature->len) == 0;
}


/* RSA is PKCS #1 v1.5, which is the default. */
static ngx_uint_t
ngx_http_ratelimit_jwt_verify_pkey(EVP_PKEY *pkey, const ngx_str_t *content,
    const ngx_str_t *signature)
{
    ngx_uint_t   valid;
    EVP_MD_CTX  *md;

    md = EVP_MD_CTX_new();
    if (md == NULL) {
        return 0;
    }

    valid = EVP_DigestVerifyInit(md, NULL, EVP_sha256(), NULL, pkey) == 1
            && EVP_DigestVerify(md, signature->data, signature->len,
                                content->data, content->len)
               == 1;

    EVP_MD_CTX_free(md);

    return valid;
}


/* The two numbers of an ES256 signature as OpenSSL takes them. */
static ngx_uint_t
ngx_http_ratelimit_jwt_der(ngx_str_t *signature, u_char *der)
{
    int         n;
    u_char     *p;
    BIGNUM     *r, *s;
    ECDSA_SIG  *sig;

    if (signature->len != NGX_HTTP_RATELIMIT_JWT_ES_BYTES) {
        return 0;
    }

    n = NGX_HTTP_RATELIMIT_JWT_ES_BYTES / 2;
    sig = ECDSA_SIG_new();
    r = BN_bin2bn(signature->data, n, NULL);
    s = BN_bin2bn(signature->data + n, n, NULL);

    if (sig == NULL || r == NULL || s == NULL
        || ECDSA_SIG_set0(sig, r, s) != 1)
    {
        BN_free(r);
        BN_free(s);
        ECDSA_SIG_free(sig);
        return 0;
    }

    p = der;
    n = i2d_ECDSA_SIG(sig, &p);

    ECDSA_SIG_free(sig);

    if (n <= 0) {
        return 0;
    }

    signature->len = n;
    signature->data = der;

    return 1;
}


/* RFC 7519, section 4.1, without leeway. */
static const char *
ngx_http_ratelimit_jwt_validate(const ngx_http_ratelimit_jwt_key_t *key,
    const json_t *body)
{
    time_t     time;
    ngx_int_t  rc;

    rc = ngx_http_ratelimit_jwt_time(json_object_get(body, "exp"), 0, &time);

    if (rc == NGX_ERROR) {
        return "its \"exp\" is no time";
    }

    if (rc == NGX_OK && ngx_time() >= time) {
        return "it has expired";
    }

    rc = ngx_http_ratelimit_jwt_time(json_object_get(body, "nbf"), 1, &time);

    if (rc == NGX_ERROR) {
        return "its \"nbf\" is no time";
    }

    if (rc == NGX_OK && ngx_time() < time) {
        return "it is not valid yet";
    }

    if (key->audience.len
        && !ngx_http_ratelimit_jwt_audience(json_object_get(body, "aud"),
                                            &key->audience))
    {
        return "it is for another audience";
    }

    return NULL;
}


/*
 * A time, of which a fraction is cut off, or with up counts as a second.
 * NGX_DECLINED: there is no such claim; NGX_ERROR: it is something else.
 */
static ngx_int_t
ngx_http_ratelimit_jwt_time(const json_t *claim, ngx_uint_t up, time_t *time)
{
    double      real;
    json_int_t  integer;

    if (claim == NULL) {
        return NGX_DECLINED;
    }

    if (json_is_integer(claim)) {
        integer = json_integer_value(claim);
        *time = (time_t) integer;

        return (integer >= 0 && *time == integer) ? NGX_OK : NGX_ERROR;
    }

    real = json_real_value(claim);

    if (!json_is_real(claim) || real < 0
        || real >= (double) NGX_MAX_TIME_T_VALUE)
    {
        return NGX_ERROR;
    }

    *time = (time_t) real;
    *time += (up && (double) *time < real);

    return NGX_OK;
}


/* Whether "aud" is the audience, or an array that has it. */
static ngx_uint_t
ngx_http_ratelimit_jwt_audience(const json_t *claim, const ngx_str_t *audience)
{
    size_t  i;

    for (i = 0; i < json_array_size(claim); i++) {
        if (ngx_http_ratelimit_jwt_equal(json_array_get(claim, i), audience)) {
            return 1;
        }
    }

    return ngx_http_ratelimit_jwt_equal(claim, audience);
}


static ngx_uint_t
ngx_http_ratelimit_jwt_equal(const json_t *string, const ngx_str_t *text)
{
    return json_is_string(string) && json_string_length(string) == text->len
           && ngx_memcmp(json_string_value(string), text->data, text->len)
              == 0;
}


/* A claim that is a string or an integer; another one is left as it is. */
static ngx_int_t
ngx_http_ratelimit_jwt_copy(ngx_pool_t *pool, const json_t *value,
    ngx_str_t *claim)
{
    u_char     *p, number[NGX_INT64_LEN];
    ngx_str_t   text;

    if (json_is_string(value)) {
        text.data = (u_char *) json_string_value(value);
        text.len = json_string_length(value);

    } else if (json_is_integer(value)) {
        text.data = number;
        text.len = ngx_sprintf(number, "%L",
                               (int64_t) json_integer_value(value))
                   - number;

    } else {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, text.len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, text.data, text.len);

    claim->data = p;
    claim->len = text.len;

    return NGX_OK;
}

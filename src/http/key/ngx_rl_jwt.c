/*
 * Claims of a bearer token (JWT, RFC 7519), signed as a JWS in compact form
 * (RFC 7515).
 */

#include "ngx_rl_jwt.h"

#include "ngx_rl_request.h"

#include <jansson.h>

#define NGX_RL_JWT_BYTES   8192   /* of a token */
#define NGX_RL_JWT_NUMBER  32     /* of a number as text */

/* between the names of nested claims: for a source, and in a variable's name */
#define NGX_RL_JWT_DOT     "."
#define NGX_RL_JWT_DOTS    "__"

/* A token and its parts, decoded. */
typedef struct {
    ngx_str_t  content;     /* header and body as they came: what is signed */
    ngx_str_t  part[3];     /* header, body, signature */
    u_char     bytes[NGX_RL_JWT_BYTES];
} ngx_rl_jwt_token_t;

/* A verified token. It stays until the request ends. */
typedef struct {
    ngx_rl_jwt_key_t  *key;
    ngx_str_t          token;
    const char        *reason;   /* why it is not valid, or NULL */
    json_t            *body;     /* NULL: it is not valid */
} ngx_rl_jwt_t;


static void
ngx_rl_jwt_cleanup(void *data)
{
    ngx_rl_jwt_t *jwt = data;

    json_decref(jwt->body);
}


/*
 * Decodes a part of base64url. No other text may decode to the same bytes: the
 * bits that the last character has too many are zero (RFC 4648, section 3.5).
 */
static ngx_int_t
ngx_rl_jwt_decode(ngx_str_t *bytes, ngx_str_t *part)
{
    const char  *zero;

    if (part->len % 4 == 2 || part->len % 4 == 3) {
        zero = (part->len % 4 == 2) ? "AQgw" : "AEIMQUYcgkosw048";

        if (ngx_strchr(zero, part->data[part->len - 1]) == NULL) {
            return NGX_ERROR;
        }
    }

    return ngx_decode_base64url(bytes, part);
}


/*
 * Three parts of base64url between dots, the last one maybe empty. nginx's
 * decoder stops at "=", which none of them has.
 */
static const char *
ngx_rl_jwt_split(const ngx_str_t *text, ngx_rl_jwt_token_t *token)
{
    u_char      *p, *end, *dst, *last;
    ngx_str_t    part;
    ngx_uint_t   n;

    if (text->len > NGX_RL_JWT_BYTES) {
        return "it has more than 8192 bytes";
    }

    p = text->data;
    last = p + text->len;
    dst = token->bytes;

    for (n = 0; n < 3; n++) {
        end = (n < 2) ? ngx_strlchr(p, last, '.') : last;

        part = ngx_rl_str(p, end ? end - p : 0);
        token->part[n].data = dst;

        if (end == NULL || (n < 2 && part.len == 0)
            || ngx_strlchr(p, end, '=')
            || ngx_rl_jwt_decode(&token->part[n], &part) != NGX_OK)
        {
            return "it is no JWT";
        }

        if (n == 1) {
            token->content = ngx_rl_str(text->data, end - text->data);
        }

        dst += token->part[n].len;
        p = end + 1;
    }

    return NULL;
}


static ngx_uint_t
ngx_rl_jwt_equal(const json_t *string, const ngx_str_t *text)
{
    return json_is_string(string) && json_string_length(string) == text->len
           && ngx_memcmp(json_string_value(string), text->data, text->len) == 0;
}


/*
 * The JSON object of a part, which the caller frees, or NULL. If several
 * members have one name, the last one counts (RFC 7519, section 4).
 */
static json_t *
ngx_rl_jwt_parse(const ngx_str_t *part, size_t flags)
{
    json_t  *json;

    json = json_loadb((char *) part->data, part->len, flags, NULL);

    if (json_is_object(json)) {
        return json;
    }

    json_decref(json);

    return NULL;
}


/*
 * The same for valid JSON, but integers of 19 digits and more are strings: as a
 * key, such a number keeps its digits.
 */
static json_t *
ngx_rl_jwt_digits(const ngx_str_t *part)
{
    u_char   json[NGX_RL_JWT_BYTES];
    u_char  *p, *last, *dst, *number;

    /* a quote more for every 10 bytes; base64url has 4 characters for 3 */

    last = part->data + part->len;
    dst = json;

    for (p = part->data; p < last; /* void */ ) {
        number = p;

        if (*p == '"') {
            do {
                p += (*p == '\\') ? 2 : 1;
            } while (*p != '"');

            p++;

        } else if (*p == '-' || (*p >= '0' && *p <= '9')) {

            do {
                p++;
            } while (p < last && *p >= '0' && *p <= '9');

            if (p - number >= 19 && *p != '.' && *p != 'e' && *p != 'E') {
                *dst++ = '"';
                dst = ngx_cpymem(dst, number, p - number);
                *dst++ = '"';
                continue;
            }

        } else {
            p++;
        }

        dst = ngx_cpymem(dst, number, p - number);
    }

    return json_loadb((char *) json, dst - json, 0, NULL);
}


/*
 * A time, of which a fraction is cut off, or with up counts as a second.
 * NGX_DECLINED: there is no such claim; NGX_ERROR: it is something else.
 */
static ngx_int_t
ngx_rl_jwt_time(const json_t *claim, ngx_uint_t up, time_t *time)
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

    if (!json_is_real(claim) || real < 0) {
        return NGX_ERROR;
    }

    if (real >= (double) NGX_MAX_TIME_T_VALUE) {
        *time = NGX_MAX_TIME_T_VALUE;
        return NGX_OK;
    }

    *time = (time_t) real;
    *time += (up && (double) *time < real);

    return NGX_OK;
}


/* RFC 7519, section 4.1. */
static const char *
ngx_rl_jwt_validate(const ngx_rl_jwt_key_t *key, const json_t *body)
{
    size_t      i;
    time_t      time;
    json_t     *aud;
    ngx_int_t   rc;
    ngx_uint_t  meant;

    rc = ngx_rl_jwt_time(json_object_get(body, "exp"), 0, &time);

    if (rc == NGX_ERROR) {
        return "its \"exp\" is no time";
    }

    if (rc == NGX_OK && ngx_time() - key->leeway >= time) {
        return "it has expired";
    }

    rc = ngx_rl_jwt_time(json_object_get(body, "nbf"), 1, &time);

    if (rc == NGX_ERROR) {
        return "its \"nbf\" is no time";
    }

    if (rc == NGX_OK && ngx_time() + key->leeway < time) {
        return "it is not valid yet";
    }

    /* "aud" is the audience, or an array that has it */

    aud = json_object_get(body, "aud");
    meant = (key->audience.len == 0 || ngx_rl_jwt_equal(aud, &key->audience));

    for (i = 0; i < json_array_size(aud) && !meant; i++) {
        meant = ngx_rl_jwt_equal(json_array_get(aud, i), &key->audience);
    }

    if (!meant) {
        return "it is for another audience";
    }

    if (key->issuer.len
        && !ngx_rl_jwt_equal(json_object_get(body, "iss"), &key->issuer))
    {
        return "it is of another issuer";
    }

    return NULL;
}


/*
 * The body of a token, which the caller frees, if it is valid. Returns NULL, or
 * what is wrong.
 */
static const char *
ngx_rl_jwt_open(const ngx_rl_jwt_key_t *key, const ngx_str_t *text,
    json_t **made)
{
    json_t              *header, *body, *large;
    const char          *reason;
    ngx_rl_jwt_token_t   token;

    reason = ngx_rl_jwt_split(text, &token);

    if (reason == NULL && key->keys) {
        header = ngx_rl_jwt_parse(&token.part[0], JSON_DECODE_INT_AS_REAL);
        reason = header ? ngx_rl_jwks_verify(key->keys, header, &token.content,
                                             &token.part[2])
                        : "its header is no JSON object";
        json_decref(header);
    }

    if (reason) {
        return reason;
    }

    body = ngx_rl_jwt_parse(&token.part[1], 0);
    large = NULL;

    /* a number may be an integer that jansson has no room for */

    if (body == NULL) {
        large = ngx_rl_jwt_parse(&token.part[1], JSON_DECODE_INT_AS_REAL);
        body = large ? ngx_rl_jwt_digits(&token.part[1]) : NULL;
    }

    if (body == NULL) {
        reason = "its body is no JSON object";

    } else if (key->keys) {
        reason = ngx_rl_jwt_validate(key, large ? large : body);
    }

    json_decref(large);

    if (reason) {
        json_decref(body);
        return reason;
    }

    *made = body;

    return NULL;
}


/*
 * The request's token, verified by the location's key. A redirect clears the
 * request's context, so the pool's cleanups keep it. NGX_DECLINED: there is
 * none, or no key. NGX_ERROR: memory is out.
 */
static ngx_int_t
ngx_rl_jwt_get(ngx_http_request_t *r, ngx_rl_jwt_t **found)
{
    ngx_str_t            token;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_jwt_t        *jwt;
    ngx_rl_loc_conf_t   *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    if (conf->jwt_key == NULL || ngx_rl_source_token(r, &token) != NGX_OK) {
        return NGX_DECLINED;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        jwt = cln->data;

        if (cln->handler == ngx_rl_jwt_cleanup
            && jwt->key == conf->jwt_key && jwt->token.data == token.data
            && jwt->token.len == token.len)
        {
            *found = jwt;
            return NGX_OK;
        }
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_rl_jwt_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    jwt = cln->data;
    jwt->key = conf->jwt_key;
    jwt->token = token;
    jwt->body = NULL;
    jwt->reason = ngx_rl_jwt_open(jwt->key, &token, &jwt->body);

    cln->handler = ngx_rl_jwt_cleanup;
    *found = jwt;

    if (jwt->reason) {
        ngx_rl_request_log(r, NGX_RL_LOG_TOKEN, NGX_LOG_INFO,
                           "ratelimit: the bearer token is not valid: %s",
                           jwt->reason);
    }

    return NGX_OK;
}


/*
 * Whether the name begins with the claim. In a variable's name letters are
 * small, and "_" stands for what it cannot have, as in "$http_name".
 */
static ngx_uint_t
ngx_rl_jwt_begins(const ngx_str_t *name, const char *claim, size_t len,
    ngx_uint_t fold)
{
    u_char  ch;
    size_t  i;

    for (i = 0; i < len; i++) {
        ch = (u_char) claim[i];

        if (fold) {
            ch = ngx_tolower(ch);
            ch = ((ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9'))
                 ? ch : '_';
        }

        if (ch != name->data[i]) {
            return 0;
        }
    }

    return 1;
}


/*
 * The claim of that name, or else one inside the object that the name begins
 * with, behind a dot. A claim that has the name only if it is folded counts if
 * there is no other, and several of those are none: a user who may add claims
 * does not choose. NULL: there is none.
 */
static json_t *
ngx_rl_jwt_find(json_t *object, const ngx_str_t *name, const char *dot)
{
    size_t       len, n;
    json_t      *value, *found;
    ngx_str_t    rest;
    ngx_uint_t   fold, several;
    const char  *claim;

    n = ngx_strlen(dot);
    found = NULL;
    several = 0;

    for (fold = 0; found == NULL && fold <= (dot[0] == '_'); fold++) {

        json_object_foreach(object, claim, value) {
            len = ngx_strlen(claim);

            if (len > name->len || !ngx_rl_jwt_begins(name, claim, len, fold)) {
                continue;
            }

            if (len < name->len) {
                if (!json_is_object(value) || len + n >= name->len
                    || ngx_memcmp(name->data + len, dot, n) != 0)
                {
                    continue;
                }

                rest = ngx_rl_str(name->data + len + n, name->len - len - n);

                value = ngx_rl_jwt_find(value, &rest, dot);

            } else if (!fold) {
                return value;
            }

            if (value) {
                several = (found != NULL);
                found = value;
            }
        }
    }

    return several ? NULL : found;
}


/* The bytes that a claim has as text, at most. */
static size_t
ngx_rl_jwt_room(const json_t *value)
{
    size_t   i, room;
    json_t  *item;

    room = json_is_string(value) ? 3 * json_string_length(value)
                                 : NGX_RL_JWT_NUMBER;

    json_array_foreach(value, i, item) {
        room += 1 + ngx_rl_jwt_room(item);
    }

    return room;
}


/*
 * Writes a claim as text, and returns the end. An array is joined by commas,
 * without its members that are null, arrays or objects.
 */
static u_char *
ngx_rl_jwt_write(u_char *p, const json_t *value)
{
    size_t   i;
    u_char  *start, *text;
    json_t  *item;

    static const u_char  hex[] = "0123456789ABCDEF";

    switch (json_typeof(value)) {

    case JSON_ARRAY:
        start = p;

        json_array_foreach(value, i, item) {

            if (json_is_null(item) || json_is_array(item)
                || json_is_object(item))
            {
                continue;
            }

            if (p > start) {
                *p++ = ',';
            }

            p = ngx_rl_jwt_write(p, item);
        }

        return p;

    case JSON_STRING:
        text = (u_char *) json_string_value(value);

        for (i = 0; i < json_string_length(value); i++) {

            if (text[i] >= 0x20 && text[i] != 0x7f) {
                *p++ = text[i];
                continue;
            }

            /* control characters would end a header that has the claim */

            *p++ = '%';
            *p++ = hex[text[i] >> 4];
            *p++ = hex[text[i] & 15];
        }

        return p;

    case JSON_INTEGER:
        return p + snprintf((char *) p, NGX_RL_JWT_NUMBER,
                            "%" JSON_INTEGER_FORMAT, json_integer_value(value));

    case JSON_REAL:
        return p + snprintf((char *) p, NGX_RL_JWT_NUMBER, "%.15g",
                            json_real_value(value));

    default:
        return ngx_cpymem(p, json_is_true(value) ? "true" : "false",
                          json_is_true(value) ? 4 : 5);
    }
}


/* A claim as text. NGX_DECLINED: it has none. NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_jwt_text(ngx_pool_t *pool, const json_t *value, ngx_str_t *text)
{
    if (value == NULL || json_is_null(value) || json_is_object(value)) {
        return NGX_DECLINED;
    }

    text->data = ngx_pnalloc(pool, ngx_rl_jwt_room(value) + 1);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    text->len = ngx_rl_jwt_write(text->data, value) - text->data;

    return NGX_OK;
}


ngx_int_t
ngx_rl_jwt_claim(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *claim)
{
    json_t        *value;
    ngx_int_t      rc;
    ngx_str_t      text;
    ngx_rl_jwt_t  *jwt;

    rc = ngx_rl_jwt_get(r, &jwt);

    if (rc != NGX_OK) {
        return rc;
    }

    value = ngx_rl_jwt_find(jwt->body, &source->name, NGX_RL_JWT_DOT);

    if (json_is_integer(value)) {
        return ngx_rl_jwt_text(r->pool, value, claim);
    }

    text.data = (u_char *) json_string_value(value);
    text.len = json_string_length(value);

    if (text.len == 0) {
        return NGX_DECLINED;
    }

    *claim = ngx_rl_str(ngx_pstrdup(r->pool, &text), text.len);

    return claim->data ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_jwt_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    ngx_int_t      rc;
    ngx_str_t      name, text;
    ngx_rl_jwt_t  *jwt;

    name = *(ngx_str_t *) data;
    name.data += sizeof(NGX_RL_JWT_PREFIX) - 1;
    name.len -= sizeof(NGX_RL_JWT_PREFIX) - 1;

    rc = ngx_rl_jwt_get(r, &jwt);

    if (rc == NGX_OK) {
        rc = ngx_rl_jwt_text(r->pool, ngx_rl_jwt_find(jwt->body, &name,
                                                      NGX_RL_JWT_DOTS), &text);
    }

    if (rc == NGX_DECLINED) {
        v->not_found = 1;
        return NGX_OK;
    }

    return (rc == NGX_OK)
           ? ngx_rl_variable_set(v, text.data, text.len)
           : NGX_ERROR;
}


ngx_int_t
ngx_rl_jwt_invalid(ngx_http_request_t *r, const char **reason)
{
    ngx_int_t      rc;
    ngx_rl_jwt_t  *jwt;

    rc = ngx_rl_jwt_get(r, &jwt);

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
    }

    *reason = jwt->reason;

    return jwt->reason ? NGX_ABORT : NGX_OK;
}

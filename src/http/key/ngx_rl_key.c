/*
 * Where a key comes from: headers, credentials, the query string, cookies. If
 * several have one name, the first that is not empty counts.
 *
 * $ratelimit_api_key is the value of the first configured source that has one.
 * A value that is too long or no text is replaced by its hash.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_conf.h"

#include "ngx_rl_text.h"

#include <openssl/evp.h>

#define NGX_RL_KEY_BYTES  256
#define NGX_RL_KEY_HASH   "sha256:"


/* From the end: names of one length often begin alike. */
static ngx_uint_t
ngx_rl_source_same(const u_char *name, const u_char *other, size_t len)
{
    while (len--) {
        if (name[len] != other[len] && (name[len] != '-' || other[len] != '_'))
        {
            return 0;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_rl_source_blank(u_char ch)
{
    return ch == ' ' || ch == '\t';
}


/*
 * Drops the blanks around a header's value (RFC 9110, section 5.5). The API
 * does not see them, so they must not make another key. nginx leaves tabs
 * there, and spaces in HTTP/2.
 */
ngx_uint_t
ngx_rl_source_trim(ngx_str_t *text)
{
    while (text->len && ngx_rl_source_blank(text->data[0])) {
        text->data++;
        text->len--;
    }

    while (text->len && ngx_rl_source_blank(text->data[text->len - 1])) {
        text->len--;
    }

    return text->len != 0;
}


/*
 * The next header of this name, in lower case, that is not empty: 1 and its
 * value, or 0.
 */
static ngx_uint_t
ngx_rl_source_next(ngx_rl_walk_t *walk, const ngx_str_t *name, ngx_uint_t loose,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    while ((h = ngx_rl_walk_next(walk, name->len)) != NULL) {

        if (loose
            ? ngx_rl_source_same(name->data, h->lowcase_key, name->len)
            : ngx_memcmp(h->lowcase_key, name->data, name->len) == 0)
        {
            *value = h->value;

            if (ngx_rl_source_trim(value)) {
                return 1;
            }
        }
    }

    return 0;
}


static ngx_int_t
ngx_rl_source_header(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    ngx_rl_walk_t  walk;

    ngx_rl_walk_part(&walk, &r->headers_in.headers.part);

    return ngx_rl_source_next(&walk, &source->name, source->loose, key)
           ? NGX_OK : NGX_DECLINED;
}


/*
 * RFC 9110, section 11.4: the scheme in any case, blanks, and what it takes.
 * nginx refuses a request with several of these headers.
 */
static ngx_int_t
ngx_rl_source_credentials(ngx_http_request_t *r, const ngx_str_t *scheme,
    ngx_str_t *value)
{
    if (r->headers_in.authorization == NULL) {
        return NGX_DECLINED;
    }

    *value = r->headers_in.authorization->value;

    (void) ngx_rl_source_trim(value);

    if (value->len <= scheme->len
        || ngx_strncasecmp(value->data, scheme->data, scheme->len) != 0
        || !ngx_rl_source_blank(value->data[scheme->len]))
    {
        return NGX_DECLINED;
    }

    value->data += scheme->len;
    value->len -= scheme->len;

    return ngx_rl_source_trim(value) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_rl_source_token(ngx_http_request_t *r, ngx_str_t *token)
{
    static const ngx_str_t  scheme = ngx_string("Bearer");

    return ngx_rl_source_credentials(r, &scheme, token);
}


/*
 * The dot before a JWT's signature, or NULL: it is none. "{" and a quote or
 * blank begin a header, "ey" or "ew" in base64url.
 */
static u_char *
ngx_rl_source_signature(const ngx_str_t *token)
{
    u_char  *dot, *last;

    if (token->len < 2 || token->data[0] != 'e'
        || (token->data[1] != 'y' && token->data[1] != 'w'))
    {
        return NULL;
    }

    last = token->data + token->len;
    dot = ngx_strlchr(token->data, last, '.');
    dot = dot ? ngx_strlchr(dot + 1, last, '.') : NULL;

    return (dot && ngx_strlchr(dot + 1, last, '.') == NULL) ? dot : NULL;
}


/*
 * Nobody has verified the token, so its signature is part of the key: what is
 * signed is no secret. A lenient API takes the same signature in base64 or
 * base64url, with padding, and with any unused bits: it gets one spelling.
 */
static ngx_int_t
ngx_rl_source_bearer(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    u_char  *p, *dot, *last, *found;
    size_t   len;

    static const u_char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    if (ngx_rl_source_token(r, key) != NGX_OK) {
        return NGX_DECLINED;
    }

    dot = ngx_rl_source_signature(key);

    if (dot == NULL) {
        return NGX_OK;
    }

    len = dot + 1 - key->data;

    p = ngx_pnalloc(r->pool, key->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_cpymem(p, key->data, key->len);
    key->data = p;
    p += len;

    while (last > p && last[-1] == '=') {
        last--;
    }

    key->len = last - key->data;

    for ( /* void */ ; p < last; p++) {
        *p = (*p == '+') ? '-' : (*p == '/') ? '_' : *p;
    }

    len = key->len - len;

    if (len % 4 < 2) {
        return NGX_OK;
    }

    found = ngx_strlchr((u_char *) digits, (u_char *) digits + 64, last[-1]);

    if (found) {
        last[-1] = digits[(found - digits) & (len % 4 == 2 ? 0x30 : 0x3c)];
    }

    return NGX_OK;
}


/*
 * RFC 7617: base64 of "user:password". nginx's own reader of these,
 * ngx_http_auth_basic_user(), does not see a scheme with a tab beside it, nor
 * in HTTP/2 one behind a space.
 */
static ngx_int_t
ngx_rl_source_basic(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    u_char     *colon;
    ngx_str_t   value;

    static const ngx_str_t  scheme = ngx_string("Basic");

    if (ngx_rl_source_credentials(r, &scheme, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    key->data = ngx_pnalloc(r->pool, ngx_base64_decoded_length(value.len));
    if (key->data == NULL) {
        return NGX_ERROR;
    }

    if (ngx_decode_base64(key, &value) != NGX_OK) {
        return NGX_DECLINED;
    }

    colon = ngx_strlchr(key->data, key->data + key->len, ':');

    if (colon == NULL || colon == key->data) {
        return NGX_DECLINED;
    }

    key->len = colon - key->data;

    return NGX_OK;
}


/*
 * The first argument of a name that has a value. One of exactly this name comes
 * before one in another case. Without a copy where nothing is encoded.
 */
static ngx_int_t
ngx_rl_source_query(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    int             caseless;
    u_char         *p;
    const u_char   *text, *last;
    ngx_rl_pair_t   pair;

    if (r->args.len == 0) {
        return NGX_DECLINED;
    }

    last = r->args.data + r->args.len;

    for (caseless = 0; caseless <= source->loose; caseless++) {
        text = r->args.data;

        while (ngx_rl_query_pair(&text, last, &pair)) {

            if (pair.value_len == 0
                || !ngx_rl_query_name(&pair, source->name.data,
                                      source->name.len, caseless))
            {
                continue;
            }

            *key = ngx_rl_str((u_char *) pair.value, pair.value_len);

            if (memchr(key->data, '%', key->len) == NULL
                && memchr(key->data, '+', key->len) == NULL)
            {
                return NGX_OK;
            }

            p = ngx_pnalloc(r->pool, key->len);
            if (p == NULL) {
                return NGX_ERROR;
            }

            *key = ngx_rl_str(p, ngx_rl_query_decode(key->data, key->len, p));

            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/*
 * The same of cookies. By hand, since nginx 1.23 changed how it keeps several
 * Cookie headers.
 */
static ngx_int_t
ngx_rl_source_cookie(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    u_char           *p;
    ngx_str_t         value;
    ngx_uint_t        caseless;
    const u_char     *text, *last;
    ngx_rl_pair_t     pair;
    ngx_rl_walk_t     walk;
    const ngx_str_t  *name;

    static const ngx_str_t  cookie = ngx_string("cookie");

    name = &source->name;

    for (caseless = 0; caseless <= source->loose; caseless++) {
        ngx_rl_walk_part(&walk, &r->headers_in.headers.part);

        while (ngx_rl_source_next(&walk, &cookie, 0, &value)) {
            text = value.data;
            last = text + value.len;

            while (ngx_rl_cookie_pair(&text, last, &pair)) {

                if (pair.name_len != name->len
                    || (caseless
                        ? !ngx_rl_caseless(pair.name, name->data, name->len)
                        : ngx_memcmp(pair.name, name->data, name->len) != 0))
                {
                    continue;
                }

                *key = ngx_rl_str((u_char *) pair.value, pair.value_len);

                if (ngx_rl_cookie_encoded(key->data, key->len)) {

                    p = ngx_pnalloc(r->pool, key->len);
                    if (p == NULL) {
                        return NGX_ERROR;
                    }

                    key->len = ngx_rl_cookie_decode(key->data, key->len, p);
                    key->data = p;
                }

                if (key->len) {
                    return NGX_OK;
                }
            }
        }
    }

    return NGX_DECLINED;
}


/* a name that ends with ":" is followed by that of what is read */
static const struct {
    ngx_str_t          name;
    ngx_rl_source_pt   get;
    const char        *mark;
} ngx_rl_sources[] = {
    { ngx_string("header:"), ngx_rl_source_header, NULL },
    { ngx_string("bearer"), ngx_rl_source_bearer, NULL },
    { ngx_string("basic"), ngx_rl_source_basic, NGX_RL_MARK_BASIC },
    { ngx_string("query:"), ngx_rl_source_query, NULL },
    { ngx_string("cookie:"), ngx_rl_source_cookie, NULL },
    { ngx_string("jwt:"), ngx_rl_jwt_claim, NGX_RL_MARK_JWT },
    { ngx_null_string, NULL, NULL }
};

static ngx_rl_source_t  ngx_rl_x_api_key_bearer[] = {
    { .get = ngx_rl_source_header, .name = ngx_string("x-api-key") },
    { .get = ngx_rl_source_bearer },
};

ngx_array_t  ngx_rl_default_sources = {
    ngx_rl_x_api_key_bearer, 2, sizeof(ngx_rl_source_t), 2, NULL
};


ngx_rl_source_t *
ngx_rl_source_make(ngx_pool_t *pool, ngx_rl_key_source_e kind,
    const ngx_str_t *name)
{
    u_char           *p;
    ngx_rl_source_t  *source;

    static const ngx_rl_source_pt  get[] = {
        ngx_rl_source_header, ngx_rl_source_query, ngx_rl_source_cookie };

    source = ngx_pcalloc(pool, sizeof(ngx_rl_source_t));
    p = ngx_pnalloc(pool, name->len + 1);

    if (source == NULL || p == NULL) {
        return NULL;
    }

    source->get = get[kind];
    source->name = ngx_rl_str(p, name->len);
    source->loose = 1;

    ngx_cpystrn(p, name->data, name->len + 1);

    if (kind != NGX_RL_SOURCE_HEADER) {
        return source;
    }

    for ( /* void */ ; *p; p++) {
        *p = (*p == '_') ? '-' : ngx_tolower(*p);
    }

    return source;
}


/*
 * Behind a "jwt:" source, a token that is not valid is no key: else each such
 * token had a limit of its own.
 */
static ngx_int_t
ngx_rl_source_valid(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    u_char      *dot;
    ngx_int_t    rc;
    const char  *reason;

    rc = ngx_rl_jwt_invalid(r, &reason);

    if (rc != NGX_OK) {
        return (rc == NGX_ABORT) ? NGX_DECLINED : NGX_ERROR;
    }

    if (ngx_rl_source_token(r, key) != NGX_OK) {
        return NGX_DECLINED;
    }

    /* the same claims may have several valid signatures */

    dot = ngx_rl_source_signature(key);
    key->len = dot ? (size_t) (dot - key->data) : key->len;

    return NGX_OK;
}


/* ratelimit_api_key <source> ... */
char *
ngx_rl_api_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t        *text, *last;
    ngx_uint_t        i, verified;
    const ngx_str_t  *name;
    ngx_rl_source_t  *source;

    if (rlcf->sources != NULL) {
        return "is duplicate";
    }

    rlcf->sources = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                     sizeof(ngx_rl_source_t));
    if (rlcf->sources == NULL) {
        return NGX_CONF_ERROR;
    }

    text = cf->args->elts;
    last = text + cf->args->nelts;
    verified = 0;

    for (text++; text < last; text++) {
        source = ngx_array_push(rlcf->sources);
        if (source == NULL) {
            return NGX_CONF_ERROR;
        }

        for (i = 0; ngx_rl_sources[i].get; i++) {
            name = &ngx_rl_sources[i].name;

            if (text->len >= name->len
                && ngx_memcmp(text->data, name->data, name->len) == 0
                && (text->len > name->len)
                   == (name->data[name->len - 1] == ':'))
            {
                break;
            }
        }

        if (ngx_rl_sources[i].get == NULL) {
            return ngx_rl_wrong(cf, "has an invalid source \"%V\", expected "
                "\"header:<name>\", \"bearer\", \"basic\", \"query:<name>\", "
                "\"cookie:<name>\" or \"jwt:<claim>\"", text);
        }

        ngx_memzero(source, sizeof(ngx_rl_source_t));
        ngx_rl_place(cf, &source->place);

        source->get = ngx_rl_sources[i].get;
        source->mark = ngx_rl_sources[i].mark;
        source->name.len = text->len - ngx_rl_sources[i].name.len;
        source->name.data = text->data + ngx_rl_sources[i].name.len;
        source->jwt = (source->get == ngx_rl_jwt_claim);

        if (source->get == ngx_rl_source_header) {
            ngx_strlow(source->name.data, source->name.data, source->name.len);
        }

        /* behind a "jwt:" source, "bearer" takes valid tokens alone */

        if (verified && source->get == ngx_rl_source_bearer) {
            source->get = ngx_rl_source_valid;
            source->mark = NGX_RL_MARK_TOKEN;
        }

        verified |= source->jwt;
    }

    return NGX_CONF_OK;
}


char *
ngx_rl_api_key_check(ngx_conf_t *cf, ngx_rl_loc_conf_t *prev,
    ngx_rl_loc_conf_t *conf)
{
    ngx_str_t                 *name;
    ngx_uint_t                 i;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_core_srv_conf_t  *cscf;
    ngx_rl_source_t           *source;

    if (conf->jwt_key) {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    /* what limits nothing may leave the key to the locations inside it */

    if ((conf->limits == NULL || conf->limits->nelts == 0)
        && (clcf->name.len == 0 || conf->sources == prev->sources))
    {
        return NGX_CONF_OK;
    }

    name = clcf->name.len ? &clcf->name : &cscf->server_name;
    source = conf->sources->elts;

    for (i = 0; i < conf->sources->nelts; i++) {
        if (source[i].jwt) {
            ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &source[i].place,
                "\"ratelimit_api_key\" has \"jwt:%V\" and %s \"%V\" has no "
                "key, expected a \"ratelimit_jwt_key\"", &source[i].name,
                clcf->name.len ? "location" : "server", name);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


/*
 * Whether a key may stand as it is: short, without control characters, and not
 * what another key's hash looks like, which is no secret.
 */
static ngx_uint_t
ngx_rl_api_key_plain(const ngx_str_t *key)
{
    size_t  i;

    if (key->len > NGX_RL_KEY_BYTES) {
        return 0;
    }

    if (key->len >= sizeof(NGX_RL_KEY_HASH) - 1
        && ngx_strncmp(key->data, NGX_RL_KEY_HASH, sizeof(NGX_RL_KEY_HASH) - 1)
           == 0)
    {
        return 0;
    }

    for (i = 0; i < key->len; i++) {
        if (key->data[i] < 0x20 || key->data[i] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


/* Another one for another key, of a length and of bytes that fit a log. */
static ngx_int_t
ngx_rl_key_hash(ngx_http_request_t *r, ngx_str_t *key)
{
    u_char        digest[EVP_MAX_MD_SIZE], *p, *last;
    unsigned int  len;

    if (EVP_Digest(key->data, key->len, digest, &len, EVP_sha256(), NULL) != 1)
    {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, sizeof(NGX_RL_KEY_HASH) - 1 + 2 * len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_cpymem(p, NGX_RL_KEY_HASH, sizeof(NGX_RL_KEY_HASH) - 1);

    *key = ngx_rl_str(p, ngx_hex_dump(last, digest, len) - p);

    return NGX_OK;
}


ngx_int_t
ngx_rl_api_key_text(ngx_http_request_t *r, ngx_str_t *key)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    const char             *mark;
    ngx_rl_loc_conf_t      *conf;
    const ngx_rl_source_t  *source;

    static const char *const  marks[] = {
        NGX_RL_MARK_JWT, NGX_RL_MARK_BASIC, NGX_RL_MARK_TOKEN,
        NGX_RL_MARK_ADDRESS, NGX_RL_MARK_PLAIN };

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);
    source = conf->sources->elts;
    rc = NGX_DECLINED;

    for (i = 0; i < conf->sources->nelts && rc == NGX_DECLINED; i++) {
        rc = source[i].get(r, &source[i], key);
    }

    if (rc == NGX_OK) {
        mark = source[i - 1].mark;

        for (i = 0; mark == NULL && i < sizeof(marks) / sizeof(marks[0]); i++) {
            if (ngx_rl_key_begins(key, marks[i])) {
                mark = NGX_RL_MARK_PLAIN;
            }
        }

        rc = mark ? ngx_rl_key_marked(r, mark, key) : NGX_OK;
    }

    if (rc != NGX_OK || ngx_rl_api_key_plain(key)) {
        return rc;
    }

    return ngx_rl_key_hash(r, key);
}


ngx_int_t
ngx_rl_api_key_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    ngx_int_t  rc;
    ngx_str_t  key;

    rc = ngx_rl_api_key_text(r, &key);

    if (rc == NGX_DECLINED) {
        v->not_found = 1;
        return NGX_OK;
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_rl_variable_set(v, key.data, key.len);
}


ngx_int_t
ngx_rl_key_name(ngx_http_request_t *r, const ngx_str_t *written, ngx_str_t *key)
{
    ngx_uint_t  hashed;

    hashed = written ? ngx_rl_policy_value_hashed(written, key)
                     : ngx_rl_policy_hashed(key);

    return hashed ? NGX_OK : ngx_rl_key_hash(r, key);
}

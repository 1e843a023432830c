/*
 * Where a key comes from: headers, credentials, the query string, cookies. If
 * several have one name, the first that is not empty counts.
 */

#include "ngx_rl_key.h"

#include "ngx_rl_pair.h"

static const ngx_str_t  ngx_rl_cookie = ngx_string("cookie");


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
 * The same JWT may have many signatures, as text and as bytes, so what is
 * signed is the key; "{" and a quote or blank begin a header, "ey" or "ew" in
 * base64url.
 */
static ngx_int_t
ngx_rl_source_bearer(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    u_char  *dot, *last;

    if (ngx_rl_source_token(r, key) != NGX_OK) {
        return NGX_DECLINED;
    }

    last = key->data + key->len;

    if (key->len > 2 && key->data[0] == 'e'
        && (key->data[1] == 'y' || key->data[1] == 'w'))
    {
        dot = ngx_strlchr(key->data, last, '.');
        dot = dot ? ngx_strlchr(dot + 1, last, '.') : NULL;

        if (dot && ngx_strlchr(dot + 1, last, '.') == NULL) {
            key->len = dot - key->data;
        }
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


/* The first argument of a name that has a value, not decoded. */
static ngx_uint_t
ngx_rl_source_argument(ngx_http_request_t *r, const ngx_str_t *name,
    ngx_uint_t caseless, ngx_str_t *value)
{
    const u_char   *text, *last;
    ngx_rl_pair_t   pair;

    text = r->args.data;
    last = text + r->args.len;

    while (ngx_rl_query_pair(&text, last, &pair)) {

        if (pair.value_len
            && ngx_rl_query_name(&pair, name->data, name->len, (int) caseless))
        {
            value->len = pair.value_len;
            value->data = (u_char *) pair.value;
            return 1;
        }
    }

    return 0;
}


/* Without a copy where nothing is encoded. */
static ngx_int_t
ngx_rl_source_query(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    u_char  *p;

    if (r->args.len == 0
        || (!ngx_rl_source_argument(r, &source->name, 0, key)
            && !(source->loose
                 && ngx_rl_source_argument(r, &source->name, 1, key))))
    {
        return NGX_DECLINED;
    }

    if (ngx_strlchr(key->data, key->data + key->len, '%') == NULL
        && ngx_strlchr(key->data, key->data + key->len, '+') == NULL)
    {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, key->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    key->len = ngx_rl_query_decode(key->data, key->len, p);
    key->data = p;

    return NGX_OK;
}


static ngx_int_t
ngx_rl_source_cookie_value(ngx_http_request_t *r, const ngx_rl_pair_t *pair,
    ngx_str_t *key)
{
    u_char  *p;

    key->len = pair->value_len;
    key->data = (u_char *) pair->value;

    if (ngx_rl_cookie_encoded(key->data, key->len)) {

        p = ngx_pnalloc(r->pool, key->len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        key->len = ngx_rl_cookie_decode(key->data, key->len, p);
        key->data = p;
    }

    return key->len ? NGX_OK : NGX_DECLINED;
}


/* By hand, since nginx 1.23 changed how it keeps several Cookie headers. */
static ngx_int_t
ngx_rl_source_named_cookie(ngx_http_request_t *r, const ngx_str_t *name,
    ngx_uint_t caseless, ngx_str_t *key)
{
    ngx_int_t       rc;
    ngx_str_t       value;
    const u_char   *text, *last;
    ngx_rl_pair_t   pair;
    ngx_rl_walk_t   walk;

    ngx_rl_walk_part(&walk, &r->headers_in.headers.part);

    while (ngx_rl_source_next(&walk, &ngx_rl_cookie, 0, &value)) {
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

            rc = ngx_rl_source_cookie_value(r, &pair, key);

            if (rc != NGX_DECLINED) {
                return rc;
            }
        }
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_rl_source_cookie(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    ngx_int_t  rc;

    rc = ngx_rl_source_named_cookie(r, &source->name, 0, key);

    return (rc == NGX_DECLINED && source->loose)
           ? ngx_rl_source_named_cookie(r, &source->name, 1, key)
           : rc;
}


static ngx_int_t
ngx_rl_source_jwt(ngx_http_request_t *r, const ngx_rl_source_t *source,
    ngx_str_t *key)
{
    return ngx_rl_jwt_claim(r, &source->name, key);
}


/* a name that ends with ":" is followed by that of what is read */
static const struct {
    ngx_str_t                     name;
    ngx_rl_source_pt  get;
    const char                   *mark;
} ngx_rl_sources[] = {
    { ngx_string("header:"), ngx_rl_source_header, NULL },
    { ngx_string("bearer"), ngx_rl_source_bearer, NULL },
    { ngx_string("basic"), ngx_rl_source_basic,
      NGX_RL_MARK_BASIC },
    { ngx_string("query:"), ngx_rl_source_query, NULL },
    { ngx_string("cookie:"), ngx_rl_source_cookie, NULL },
    { ngx_string("jwt:"), ngx_rl_source_jwt,
      NGX_RL_MARK_JWT },
};

static ngx_rl_source_t  ngx_rl_x_api_key_bearer[] = {
    { .get = ngx_rl_source_header,
      .name = ngx_string("x-api-key") },
    { .get = ngx_rl_source_bearer },
};

ngx_array_t  ngx_rl_default_sources = {
    ngx_rl_x_api_key_bearer, 2,
    sizeof(ngx_rl_source_t), 2, NULL
};


ngx_int_t
ngx_rl_source_parse(ngx_str_t *text, ngx_rl_source_t *source)
{
    ngx_uint_t        i, n;
    const ngx_str_t  *name;

    n = sizeof(ngx_rl_sources) / sizeof(ngx_rl_sources[0]);

    for (i = 0; i < n; i++) {
        name = &ngx_rl_sources[i].name;

        if (text->len < name->len
            || ngx_memcmp(text->data, name->data, name->len) != 0
            || (text->len > name->len) != (name->data[name->len - 1] == ':'))
        {
            continue;
        }

        ngx_memzero(source, sizeof(ngx_rl_source_t));

        source->get = ngx_rl_sources[i].get;
        source->mark = ngx_rl_sources[i].mark;
        source->name.len = text->len - name->len;
        source->name.data = text->data + name->len;
        source->jwt = (source->get == ngx_rl_source_jwt);

        if (source->get == ngx_rl_source_header) {
            ngx_strlow(source->name.data, source->name.data, source->name.len);
        }

        return NGX_OK;
    }

    return NGX_DECLINED;
}


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
    source->name.len = name->len;
    source->name.data = p;
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
    ngx_int_t    rc;
    const char  *reason;

    rc = ngx_rl_jwt_invalid(r, &reason);

    if (rc != NGX_OK) {
        return (rc == NGX_ABORT) ? NGX_DECLINED : NGX_ERROR;
    }

    return ngx_rl_source_bearer(r, source, key);
}


void
ngx_rl_source_verify(ngx_rl_source_t *source)
{
    if (source->get == ngx_rl_source_bearer) {
        source->get = ngx_rl_source_valid;
        source->mark = NGX_RL_MARK_TOKEN;
    }
}

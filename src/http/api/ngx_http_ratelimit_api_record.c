/*
 * The texts that the history has of a change: author, address, method, path and
 * reason. No API key is among them.
 */

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_document_json.h"

static ngx_int_t ngx_http_ratelimit_api_author(ngx_http_ratelimit_api_t *api,
    ngx_str_t *author);
static ngx_int_t ngx_http_ratelimit_api_record_path(
    ngx_http_ratelimit_api_t *api, ngx_str_t *path);


ngx_int_t
ngx_http_ratelimit_api_record(ngx_http_ratelimit_api_t *api,
    ngx_ratelimit_record_t *record)
{
    ngx_http_request_t  *r;

    r = api->request;

    record->reason = api->reason;
    record->address = r->connection->addr_text;
    record->method = r->method_name;

    if (ngx_http_ratelimit_api_author(api, &record->author) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_ratelimit_api_record_path(api, &record->path);
}


/*
 * The first of these that there is: what "author=" says, the name of the token,
 * the user of basic authentication.
 */
static ngx_int_t
ngx_http_ratelimit_api_author(ngx_http_ratelimit_api_t *api,
    ngx_str_t *author)
{
    ngx_http_request_t  *r;

    r = api->request;

    ngx_str_null(author);

    if (api->conf->author
        && ngx_http_ratelimit_value_get(r, api->conf->author, author)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (author->len == 0) {
        *author = api->token;
    }

    if (author->len == 0 && ngx_http_auth_basic_user(r) == NGX_OK) {
        *author = r->headers_in.user;
    }

    author->len = ngx_min(author->len, NGX_HTTP_RATELIMIT_API_REASON);

    /* a character that was cut, or what is none */

    while (author->len && !ngx_http_ratelimit_api_utf8(author)) {
        author->len--;
    }

    return NGX_OK;
}


/*
 * The path below the location: that of a key with its digest, and "?rule=",
 * without which a change of a tier is another one.
 */
static ngx_int_t
ngx_http_ratelimit_api_record_path(ngx_http_ratelimit_api_t *api,
    ngx_str_t *path)
{
    u_char     *p, buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_str_t   below, key, rule;

    below = api->path;
    ngx_str_null(&key);

    if (api->route->resource == NGX_RATELIMIT_EDIT_TIER_OF
        && !api->conf->limiter->clear)
    {
        below.len -= api->name.len;
        key = ngx_ratelimit_document_key(&api->name, buf);
    }

    if (ngx_http_ratelimit_api_argument(api, "rule", &rule) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!ngx_http_ratelimit_api_utf8(&rule)) {
        ngx_str_null(&rule);
    }

    path->data = ngx_pnalloc(api->request->pool,
                             sizeof("/?rule=") + below.len + key.len
                             + rule.len);
    if (path->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(path->data, "/%V%V", &below, &key);

    if (rule.len) {
        p = ngx_sprintf(p, "?rule=%V", &rule);
    }

    path->len = p - path->data;

    return NGX_OK;
}

/*
 * The conditions of a request: whether a change has them, and what the tags of
 * If-Match and If-None-Match say.
 */

#include "ngx_http_ratelimit_api.h"


ngx_int_t
ngx_http_ratelimit_api_conditions(ngx_http_ratelimit_api_t *api)
{
    ngx_table_elt_t     *h;
    ngx_http_request_t  *r;

    static const ngx_str_t  header = ngx_string("X-RateLimit-Reason");

    r = api->request;

    if (!ngx_http_ratelimit_api_utf8(&api->name)) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                              "invalid",
                                              "expected a name in UTF-8");
    }

    if (!ngx_http_ratelimit_api_writes(api)) {
        return NGX_DECLINED;
    }

    h = r->headers_in.if_none_match;
    api->create = (h != NULL);

    if (h && (h->value.len != 1 || h->value.data[0] != '*')) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "a change takes \"If-None-Match: *\" alone: it "
                   "creates, and changes nothing that is there");
    }

    h = r->headers_in.if_match;

    if (h == NULL && !api->create) {
        return ngx_http_ratelimit_api_problem(api, 428,
                   "precondition-required", "send the \"ETag\" that you read "
                   "in \"If-Match\": if someone else changed the document, "
                   "you get 412 and the current version; or \"If-Match: *\" "
                   "for any version, or \"If-None-Match: *\" to create");
    }

    api->any = (h == NULL || (h->value.len == 1 && h->value.data[0] == '*'));

    if (ngx_http_ratelimit_api_argument(api, "reason", &api->reason)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h = ngx_http_ratelimit_find_header(&r->headers_in.headers, &header,
                                       0);

    if (api->reason.data == NULL && h) {
        api->reason = h->value;
    }

    if (api->reason.len > NGX_HTTP_RATELIMIT_API_REASON
        || !ngx_http_ratelimit_api_utf8(&api->reason))
    {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected a reason of at most %d bytes in "
                   "UTF-8, without control characters",
                   NGX_HTTP_RATELIMIT_API_REASON);
    }

    return NGX_DECLINED;
}


/* nginx makes the tag of a compressed answer weak. Quotes may be forgotten. */
ngx_uint_t
ngx_http_ratelimit_api_tags_have(const ngx_str_t *tags,
    const ngx_http_ratelimit_api_work_t *work, uint64_t *most)
{
    u_char      *p, *last, *start, *tag;
    uint64_t     n;
    ngx_uint_t   found;

    u_char  own[NGX_INT64_LEN + sizeof("-") + 16];

    if (tags->len == 1 && tags->data[0] == '*') {
        return 1;
    }

    tag = ngx_http_ratelimit_api_tag(own, work->edit.version, work->id);
    p = tags->data;
    last = p + tags->len;
    found = 0;

    while (p < last) {

        while (p < last && (*p == ' ' || *p == ',' || *p == '\t')) {
            p++;
        }

        if (last - p > 2 && p[0] == 'W' && p[1] == '/') {
            p += 2;
        }

        if (p < last && *p == '"') {
            p++;
        }

        start = p;
        n = 0;

        while (p < last && *p >= '0' && *p <= '9' && p - start < 17) {
            n = n * 10 + (*p++ - '0');
        }

        while (p < last && *p != '"' && *p != ',' && *p != ' ') {
            p++;
        }

        *most = ngx_max(*most, n);
        found |= (p - start == tag - own
                  && ngx_memcmp(start, own, p - start) == 0);

        while (p < last && *p != ',') {
            p++;
        }
    }

    return found;
}


ngx_uint_t
ngx_http_ratelimit_api_writes(ngx_http_ratelimit_api_t *api)
{
    return !(api->route->flags & NGX_HTTP_RATELIMIT_API_READS)
           && !(api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD));
}

/*
 * A change: the conditions that it must have, what the tags of If-Match and
 * If-None-Match say, and the texts that the history has of it: author, address,
 * method, path and reason. No API key is among them.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_document.h"


ngx_uint_t
ngx_rl_api_writes(ngx_rl_api_t *api)
{
    return !(api->route->flags & NGX_RL_API_READS)
           && !(api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD));
}


/* Whether it is UTF-8 without control characters. */
static ngx_uint_t
ngx_rl_api_utf8(const ngx_str_t *text)
{
    u_char   *p, *last;
    uint32_t  n;

    p = text->data;
    last = p + text->len;

    while (p < last) {

        n = (*p < 0x80) ? *p++ : ngx_utf8_decode(&p, last - p);

        if (n > 0x10ffff || n < 0x20 || n == 0x7f
            || (n >= 0xd800 && n <= 0xdfff))
        {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_rl_api_reason(ngx_rl_api_t *api)
{
    ngx_table_elt_t  *h;

    static const ngx_str_t  header = ngx_string("X-RateLimit-Reason");

    api->reason = api->args.reason;

    h = ngx_rl_find_header(&api->request->headers_in.headers, &header);

    if (api->reason.data == NULL && h) {
        api->reason = h->value;
    }

    if (api->reason.len > NGX_RL_API_REASON || !ngx_rl_api_utf8(&api->reason)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
            "expected a reason of at most %d bytes in UTF-8, without control "
            "characters", NGX_RL_API_REASON);
    }

    return NGX_DECLINED;
}


ngx_int_t
ngx_rl_api_conditions(ngx_rl_api_t *api)
{
    ngx_table_elt_t     *h;
    ngx_http_request_t  *r;

    r = api->request;

    if (!ngx_rl_api_utf8(&api->name) || !ngx_rl_api_utf8(&api->args.rule)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
                                  "expected a name in UTF-8");
    }

    if (!ngx_rl_api_writes(api)) {
        return NGX_DECLINED;
    }

    h = r->headers_in.if_none_match;
    api->create = (h != NULL);

    if (h && (h->value.len != 1 || h->value.data[0] != '*')) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "a change takes \"If-None-Match: *\" alone: it "
                   "creates, and changes nothing that is there");
    }

    h = r->headers_in.if_match;

    if (h == NULL && !api->create) {
        return ngx_rl_api_problem(api, 428,
                   "precondition-required", "send the \"ETag\" that you read "
                   "in \"If-Match\": if someone else changed the document, "
                   "you get 412 and the current version; or \"If-Match: *\" "
                   "for any version, or \"If-None-Match: *\" to create");
    }

    api->any = (h == NULL || (h->value.len == 1 && h->value.data[0] == '*'));

    return ngx_rl_api_reason(api);
}


/* nginx makes the tag of a compressed answer weak. Quotes may be forgotten. */
ngx_uint_t
ngx_rl_api_tags_have(ngx_rl_api_work_t *work)
{
    u_char     *p, *last, *start, *tag;
    uint64_t    n;
    ngx_uint_t  found;

    u_char  own[NGX_INT64_LEN + sizeof("-") + 16];

    if (work->tags.len == 0) {
        return 0;
    }

    if (work->tags.len == 1 && work->tags.data[0] == '*') {
        return 1;
    }

    tag = ngx_rl_api_tag(own, work->edit.version, work->id);
    p = work->tags.data;
    last = p + work->tags.len;
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

        work->most = ngx_max(work->most, n);
        found |= (p - start == tag - own
                  && ngx_memcmp(start, own, p - start) == 0);

        while (p < last && *p != ',') {
            p++;
        }
    }

    return found;
}


/*
 * The first of these that there is: what "author=" says, the name of the token,
 * the subject of the client's certificate.
 */
static ngx_int_t
ngx_rl_api_author(ngx_rl_api_t *api, ngx_str_t *author)
{
    ngx_http_request_t         *r;
    ngx_http_variable_value_t  *subject;

    static ngx_str_t  name = ngx_string("ssl_client_s_dn");

    r = api->request;

    ngx_str_null(author);

    if (api->conf->author
        && ngx_rl_value_get(r, api->conf->author, author) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (author->len == 0) {
        *author = api->token;
    }

    if (author->len == 0 && api->conf->guard.tokens == NULL) {
        subject = ngx_http_get_variable(r, &name,
                                        ngx_hash_key(name.data, name.len));

        if (subject && !subject->not_found) {
            author->data = subject->data;
            author->len = subject->len;
        }
    }

    author->len = ngx_min(author->len, NGX_RL_API_REASON);

    /* a character that was cut, or what is none */

    while (author->len && !ngx_rl_api_utf8(author)) {
        author->len--;
    }

    return NGX_OK;
}


/*
 * The path is that below the location: that of a key with its digest, and
 * "?rule=", without which a change of a tier is another one.
 */
ngx_int_t
ngx_rl_api_record(ngx_rl_api_t *api, ngx_rl_record_t *record)
{
    u_char              *p, buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t            below, key, rule;
    ngx_http_request_t  *r;

    r = api->request;

    record->reason = api->reason;
    record->address = r->connection->addr_text;
    record->method = r->method_name;

    if (ngx_rl_api_author(api, &record->author) != NGX_OK) {
        return NGX_ERROR;
    }

    below = api->path;
    rule = api->args.rule;
    ngx_str_null(&key);

    if (api->route->resource == NGX_RL_EDIT_TIER_ASSIGNMENT
        && !api->conf->limiter->clear)
    {
        below.len -= api->name.len;
        key = ngx_rl_document_key(&api->name, buf);
    }

    if (!ngx_rl_api_utf8(&rule)) {
        ngx_str_null(&rule);
    }

    p = ngx_pnalloc(r->pool, sizeof("/?rule=") + below.len + key.len
                             + rule.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    record->path.data = p;
    p = ngx_sprintf(p, "/%V%V", &below, &key);

    if (rule.len) {
        p = ngx_sprintf(p, "?rule=%V", &rule);
    }

    record->path.len = p - record->path.data;

    return NGX_OK;
}

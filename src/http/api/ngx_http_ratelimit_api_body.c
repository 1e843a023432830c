/*
 * The body of a request to the endpoint. It is read as it comes. So the
 * endpoint rejects a body that is too large, instead of a page of nginx, and
 * none goes to a file. If another module had the body read before, it may be in
 * a file.
 */

#include "ngx_http_ratelimit_api.h"

static void ngx_http_ratelimit_api_body_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_api_body_take(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_body_append(
    ngx_http_ratelimit_api_t *api, ngx_buf_t *b, size_t size);
static ngx_int_t ngx_http_ratelimit_api_body_room(
    ngx_http_ratelimit_api_t *api, size_t size);
static ngx_int_t ngx_http_ratelimit_api_body_too_large(
    ngx_http_ratelimit_api_t *api);


ngx_int_t
ngx_http_ratelimit_api_read_body(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = api->request;

    if (r->headers_in.content_length_n > NGX_HTTP_RATELIMIT_API_BODY) {
        return ngx_http_ratelimit_api_body_too_large(api);
    }

    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_ratelimit_api_body_read);

    return (rc >= NGX_HTTP_SPECIAL_RESPONSE) ? rc : NGX_DONE;
}


static void
ngx_http_ratelimit_api_body_read(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_ratelimit_api_t  *api;

    api = ngx_http_ratelimit_api_find(r);

    for ( ;; ) {

        rc = ngx_http_ratelimit_api_body_take(api);

        if (rc != NGX_DECLINED || !r->reading_body) {
            break;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            break;
        }

        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            r->read_event_handler = ngx_http_ratelimit_api_body_read;
            return;
        }
    }

    if (rc == NGX_DECLINED) {
        r->read_event_handler = ngx_http_block_reading;

        if (api->body.len == 0) {
            rc = ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                                "empty-body",
                                                "expected a body with JSON");
        }
    }

    ngx_http_ratelimit_api_run(api, rc);
}


/* Takes the bytes that are there. NGX_DECLINED, or the request ends. */
static ngx_int_t
ngx_http_ratelimit_api_body_take(ngx_http_ratelimit_api_t *api)
{
    off_t                     size;
    ngx_int_t                 rc;
    ngx_buf_t                *b;
    ngx_chain_t              *cl;
    ngx_http_request_body_t  *rb;

    rb = api->request->request_body;

    if (rb == NULL) {
        return NGX_DECLINED;
    }

    for (cl = rb->bufs; cl; cl = cl->next) {

        b = cl->buf;
        size = ngx_buf_size(b);

        if (size > (off_t) (NGX_HTTP_RATELIMIT_API_BODY - api->body.len)) {
            return ngx_http_ratelimit_api_body_too_large(api);
        }

        rc = ngx_http_ratelimit_api_body_append(api, b, (size_t) size);
        if (rc != NGX_DECLINED) {
            return rc;
        }

        b->pos = b->last;
        b->file_pos = b->file_last;
    }

    rb->bufs = NULL;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_ratelimit_api_body_append(ngx_http_ratelimit_api_t *api,
    ngx_buf_t *b, size_t size)
{
    u_char  *p;

    if (size == 0) {
        return NGX_DECLINED;
    }

    if (ngx_http_ratelimit_api_body_room(api, size) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = api->body.data + api->body.len;

    if (ngx_buf_in_memory(b)) {
        ngx_memcpy(p, b->pos, size);

    } else if (ngx_read_file(b->file, p, size, b->file_pos)
               != (ssize_t) size)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    api->body.len += size;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_ratelimit_api_body_room(ngx_http_ratelimit_api_t *api, size_t size)
{
    u_char  *data;
    size_t   room;

    size += api->body.len;

    if (size <= api->room) {
        return NGX_OK;
    }

    room = ngx_max(size, 2 * api->room);

    if (api->request->headers_in.content_length_n > (off_t) room) {
        room = (size_t) api->request->headers_in.content_length_n;
    }

    data = ngx_palloc(api->request->pool, room);
    if (data == NULL) {
        return NGX_ERROR;
    }

    if (api->body.len) {
        ngx_memcpy(data, api->body.data, api->body.len);
        (void) ngx_pfree(api->request->pool, api->body.data);
    }

    api->body.data = data;
    api->room = room;

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_api_body_too_large(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_problem(api,
                                          NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                          "too-large",
                                          "expected a body of at most %d "
                                          "bytes",
                                          NGX_HTTP_RATELIMIT_API_BODY);
}

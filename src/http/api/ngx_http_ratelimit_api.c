/*
 * A request to the endpoint, from one event to the next: its steps and its
 * deadline. It may end at any time. The cleanup of its pool then forgets what
 * is under way.
 */

#include "ngx_http_ratelimit_api.h"

/*
 * A request here waits no longer. The timer is not cancelable: a worker that is
 * to exit waits for the request, as for any other.
 */
#define NGX_HTTP_RATELIMIT_API_MS  30000

static void ngx_http_ratelimit_api_cleanup(void *data);
static void ngx_http_ratelimit_api_abandon(ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_resume(ngx_http_request_t *r);
static void ngx_http_ratelimit_api_deadline(ngx_event_t *ev);
static ngx_int_t ngx_http_ratelimit_api_too_late(
    ngx_http_ratelimit_api_t *api);


ngx_http_ratelimit_api_t *
ngx_http_ratelimit_api_create(ngx_http_request_t *r,
    ngx_http_ratelimit_api_conf_t *conf)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_ratelimit_api_t  *api;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_ratelimit_api_t));
    if (cln == NULL) {
        return NULL;
    }

    api = cln->data;
    ngx_memzero(api, sizeof(ngx_http_ratelimit_api_t));

    api->request = r;
    api->conf = conf;

    api->deadline.data = api;
    api->deadline.handler = ngx_http_ratelimit_api_deadline;
    api->deadline.log = r->connection->log;

    cln->handler = ngx_http_ratelimit_api_cleanup;

    return api;
}


/* The module's context of a request is that of its check. */
ngx_http_ratelimit_api_t *
ngx_http_ratelimit_api_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_ratelimit_api_t  *api;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_ratelimit_api_cleanup) {
            api = cln->data;

            if (api->request == r) {
                return api;
            }
        }
    }

    return NULL;
}


/* The request ends: no event finds it any more. */
static void
ngx_http_ratelimit_api_cleanup(void *data)
{
    ngx_http_ratelimit_api_abandon(data);
}


/* Forgets what is under way. */
static void
ngx_http_ratelimit_api_abandon(ngx_http_ratelimit_api_t *api)
{
    if (api->deadline.timer_set) {
        ngx_del_timer(&api->deadline);
    }

    if (api->call) {
        ngx_ratelimit_sync_forget(api->call);
        api->call = NULL;
    }

    if (api->forget) {
        api->forget(api->data);
        api->forget = NULL;
    }
}


/* The request has a count of its own here. */
void
ngx_http_ratelimit_api_run(ngx_http_ratelimit_api_t *api, ngx_int_t rc)
{
    ngx_http_request_t  *r;

    r = api->request;

    if (rc == NGX_DECLINED) {
        api->waiting = 1;
        rc = api->next(api);
    }

    if (rc == NGX_DONE) {

        /* it goes on by itself, or has ended: with a count of its own */

        ngx_http_finalize_request(r, NGX_DONE);
        return;
    }

    if (rc != NGX_BUSY) {
        ngx_http_ratelimit_api_abandon(api);
        ngx_http_finalize_request(r, rc);
        return;
    }

    if (!api->deadline.timer_set) {
        ngx_add_timer(&api->deadline, NGX_HTTP_RATELIMIT_API_MS);
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_ratelimit_api_resume;

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


void
ngx_http_ratelimit_api_wake(ngx_http_ratelimit_api_t *api)
{
    ngx_event_t  *wev;

    api->waiting = 0;

    wev = api->request->connection->write;
    ngx_post_event(wev, &ngx_posted_events);
}


void
ngx_http_ratelimit_api_later(ngx_http_ratelimit_api_t *api)
{
    ngx_event_t  *wev;

    api->waiting = 0;

    wev = api->request->connection->write;
    ngx_post_event(wev, &ngx_posted_next_events);
}


/* The write event's handler: also runs when the socket gets writable. */
static void
ngx_http_ratelimit_api_resume(ngx_http_request_t *r)
{
    ngx_http_ratelimit_api_t  *api;

    api = ngx_http_ratelimit_api_find(r);

    if (api->waiting) {
        if (ngx_handle_write_event(r->connection->write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_ratelimit_api_run(api, NGX_DECLINED);
}


static void
ngx_http_ratelimit_api_deadline(ngx_event_t *ev)
{
    ngx_http_ratelimit_api_t  *api;

    api = ev->data;

    ngx_http_ratelimit_api_abandon(api);

    api->next = ngx_http_ratelimit_api_too_late;
    ngx_http_ratelimit_api_wake(api);
}


static ngx_int_t
ngx_http_ratelimit_api_too_late(ngx_http_ratelimit_api_t *api)
{
    api->status = api->writing ? NGX_RATELIMIT_SYNC_UNKNOWN
                               : NGX_RATELIMIT_SYNC_UNAVAILABLE;
    ngx_str_set(&api->said, "it took too long");

    return ngx_http_ratelimit_api_failed(api);
}


ngx_int_t
ngx_http_ratelimit_api_wait(ngx_http_ratelimit_api_t *api,
    ngx_ratelimit_sync_call_t *call, ngx_http_ratelimit_api_pt next)
{
    api->call = call;
    api->next = next;

    return call ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


void
ngx_http_ratelimit_api_called(void *data,
    const ngx_ratelimit_sync_result_t *result)
{
    ngx_http_ratelimit_api_t *api = data;

    ngx_http_ratelimit_api_result(api, result);
    ngx_http_ratelimit_api_wake(api);
}


ngx_int_t
ngx_http_ratelimit_api_argument(ngx_http_ratelimit_api_t *api,
    const char *name, ngx_str_t *value)
{
    u_char              *dst, *src;
    ngx_http_request_t  *r;

    r = api->request;

    ngx_str_null(value);

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), value) != NGX_OK) {
        return NGX_OK;
    }

    dst = ngx_pnalloc(r->pool, value->len + 1);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    src = value->data;
    value->data = dst;

    ngx_unescape_uri(&dst, &src, value->len, 0);

    value->len = dst - value->data;

    return NGX_OK;
}


ngx_uint_t
ngx_http_ratelimit_api_utf8(const ngx_str_t *text)
{
    u_char    *p, *last;
    uint32_t   n;

    if (text->len == 0) {
        return 1;
    }

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

/*
 * Connections that are closed behind the answer to a rejected request: HTTP/1.1
 * says "Connection: close", HTTP/2 sends GOAWAY. A stream of HTTP/3 has a
 * connection of its own for nginx, so that nothing is counted there.
 */

#include "ngx_rl_request.h"

/* The rejections of a connection: in its pool, from the first one on. */
typedef struct {
    ngx_uint_t         rejections;
    ngx_connection_t  *connection;
    ngx_event_t        close;  /* HTTP/2 */
    unsigned           closing:1;
} ngx_rl_connection_t;


/* The connection to the client; a stream has one that only looks like it. */
static ngx_connection_t *
ngx_rl_connection(ngx_http_request_t *r)
{
#if (NGX_HTTP_V2)

    if (r->stream) {
        return r->stream->connection->connection;
    }

#endif

    return r->connection;
}


static void
ngx_rl_connection_cleanup(void *data)
{
    ngx_rl_connection_t *counted = data;

    if (counted->close.posted) {
        ngx_delete_posted_event(&counted->close);
    }
}


/*
 * As nginx closes an idle connection: the handler sends GOAWAY, and the streams
 * that were begun go on. An event of the socket itself would be lost if it came
 * with this one, so this is another one.
 */
static void
ngx_rl_connection_close(ngx_event_t *ev)
{
    ngx_connection_t     *c;
    ngx_rl_connection_t  *counted;

    counted = ev->data;
    c = counted->connection;

    c->close = 1;
    c->read->handler(c->read);
}


/* NULL: memory is out. */
static ngx_rl_connection_t *
ngx_rl_connection_get(ngx_connection_t *c)
{
    ngx_pool_cleanup_t   *cln;
    ngx_rl_connection_t  *counted;

    for (cln = c->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_rl_connection_cleanup) {
            return cln->data;
        }
    }

    cln = ngx_pool_cleanup_add(c->pool, sizeof(ngx_rl_connection_t));
    if (cln == NULL) {
        return NULL;
    }

    counted = cln->data;
    ngx_memzero(counted, sizeof(ngx_rl_connection_t));

    counted->connection = c;
    counted->close.data = counted;
    counted->close.log = c->log;
    counted->close.handler = ngx_rl_connection_close;

    cln->handler = ngx_rl_connection_cleanup;

    return counted;
}


/* If memory is out, the connection stays, and the request is answered. */
void
ngx_rl_close_after(ngx_http_request_t *r, ngx_uint_t after)
{
    ngx_connection_t     *c;
    ngx_rl_connection_t  *counted;

    c = ngx_rl_connection(r);
    counted = ngx_rl_connection_get(c);

    if (counted == NULL || ++counted->rejections < after) {
        return;
    }

    r->keepalive = 0;

    /* behind this stream's work, in the same turn of the event loop */

    if (c != r->connection && !counted->closing) {
        counted->closing = 1;
        ngx_post_event(&counted->close, &ngx_posted_events);
    }
}

/*
 * A connection's bytes: its queue, writes and reads.
 *
 * The queue holds the requests sent and then those to be sent. All requests of
 * one turn of the event loop leave in one write, from a posted event. The
 * worker looks at the sockets once more before that, without blocking, so
 * requests that have arrived meanwhile join (a tenth off a check's cost at 64
 * clients). If nothing is in flight and the last request left alone, none would
 * join, and the worker writes at once.
 */

#include "ngx_rl_redis_conn.h"

/* reads of one turn: then the other events have theirs, a map may be large */
#define NGX_RL_REDIS_IO_PIECES  16

#define NGX_RL_REDIS_TLS_BYTES  16384   /* of one write, a record */


void
ngx_rl_redis_conn_append(ngx_rl_redis_conn_t *conn,
    ngx_rl_redis_request_t *request)
{
    request->since_ms = ngx_current_msec;
    request->written = 0;

    ngx_queue_insert_tail(&conn->requests, &request->queue);
    conn->pending++;

    if (conn->next == &conn->requests) {
        conn->next = &request->queue;
    }

    if (conn->state == NGX_RL_REDIS_BROKEN) {
        ngx_post_event(&conn->flush, &ngx_posted_events);
    }

    if (conn->state == NGX_RL_REDIS_UP) {
        ngx_post_event(&conn->flush, conn->pending == 1 && conn->batch <= 1
                                     ? &ngx_posted_events
                                     : &ngx_posted_next_events);

        if (!conn->timer.timer_set) {
            ngx_add_timer(&conn->timer, conn->net->dead_ms);
        }
    }
}


void
ngx_rl_redis_conn_remove(ngx_rl_redis_conn_t *conn,
    ngx_rl_redis_request_t *request)
{
    if (conn->next == &request->queue) {
        conn->next = ngx_queue_next(&request->queue);
    }

    ngx_queue_remove(&request->queue);
    conn->pending--;
}


/* Copies what is to be sent, as much as one write takes. */
static size_t
ngx_rl_redis_conn_gather(ngx_rl_redis_conn_t *conn)
{
    size_t                   offset, n, room;
    u_char                  *io;
    ngx_queue_t             *q;
    ngx_rl_redis_request_t  *request;

    io = conn->net->io;
    offset = conn->offset;

    room = conn->connection->ssl ? NGX_RL_REDIS_TLS_BYTES
                                 : NGX_RL_REDIS_IO_BYTES;

    for (q = conn->next; q != &conn->requests && room; q = ngx_queue_next(q)) {
        request = ngx_queue_data(q, ngx_rl_redis_request_t, queue);
        n = ngx_min(request->len - offset, room);
        io = ngx_cpymem(io, request->text + offset, n);
        room -= n;
        offset = 0;
    }

    return io - conn->net->io;
}


/* TLS knows its own reasons, and errno only now and then. */
static void
ngx_rl_redis_conn_failed(ngx_rl_redis_conn_t *conn, const char *reason)
{
    ngx_rl_redis_conn_break(conn, conn->connection->ssl ? 0 : ngx_socket_errno,
                            ngx_rl_redis_tls_reason(conn, reason));
}


static void
ngx_rl_redis_request_written(ngx_rl_redis_request_t *request, uint64_t now_us)
{
    if (!request->written) {
        request->written = 1;
        request->written_us = now_us;
        request->since_ms = ngx_current_msec;
    }
}


/*
 * TLS holds a record made of the next len bytes, and wants to be given the
 * same ones again: their requests must stay in the queue, as what was written
 * does. None of them can be answered before the record is out.
 */
static void
ngx_rl_redis_conn_attempted(ngx_rl_redis_conn_t *conn, size_t len)
{
    ngx_queue_t             *q;
    ngx_rl_redis_request_t  *request;

    len += conn->offset;

    for (q = conn->next; q != &conn->requests; q = ngx_queue_next(q)) {
        request = ngx_queue_data(q, ngx_rl_redis_request_t, queue);
        ngx_rl_redis_request_written(request, ngx_rl_clock_us());

        if (len <= request->len) {
            return;
        }

        len -= request->len;
    }
}


static void
ngx_rl_redis_conn_advance(ngx_rl_redis_conn_t *conn, size_t sent)
{
    uint64_t                 now_us;
    ngx_rl_redis_request_t  *request;

    now_us = ngx_rl_clock_us();

    while (sent) {
        conn->batch++;
        request = ngx_queue_data(conn->next, ngx_rl_redis_request_t, queue);
        ngx_rl_redis_request_written(request, now_us);

        if (sent < request->len - conn->offset) {
            conn->offset += sent;
            return;
        }

        sent -= request->len - conn->offset;
        conn->offset = 0;
        conn->next = ngx_queue_next(conn->next);
    }
}


static void
ngx_rl_redis_conn_write(ngx_rl_redis_conn_t *conn)
{
    size_t             len;
    ssize_t            n;
    ngx_connection_t  *c;

    c = conn->connection;

    /* epoll reports the writing side with each reply, with nothing to send */

    if (conn->next != &conn->requests) {
        conn->batch = 0;
    }

    while (conn->next != &conn->requests) {

        len = ngx_rl_redis_conn_gather(conn);

        n = c->send(c, conn->net->io, len);

        if (n == NGX_ERROR) {
            ngx_rl_redis_conn_failed(conn, "send() failed");
            return;
        }

        if (n == NGX_AGAIN) {

            if (c->ssl) {
                ngx_rl_redis_conn_attempted(conn, len);
            }

            break;
        }

        ngx_rl_redis_conn_advance(conn, n);

        if (!c->write->ready) {
            break;
        }
    }

    if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
        ngx_rl_redis_conn_break(conn, 0, "no event");
    }
}


void
ngx_rl_redis_conn_flush_handler(ngx_event_t *ev)
{
    ngx_rl_redis_conn_t  *conn;

    conn = ev->data;

    if (conn->state == NGX_RL_REDIS_BROKEN) {
        ngx_rl_redis_conn_begin(conn);
        return;
    }

    if (conn->connection->write->ready) {
        ngx_rl_redis_conn_write(conn);
    }
}


void
ngx_rl_redis_conn_write_handler(ngx_event_t *wev)
{
    ngx_connection_t     *c;
    ngx_rl_redis_conn_t  *conn;

    c = wev->data;
    conn = c->data;

    if (conn->state == NGX_RL_REDIS_CONNECTING
        && ngx_rl_redis_conn_connected(conn) != NGX_OK)
    {
        return;
    }

    ngx_rl_redis_conn_write(conn);
}


void
ngx_rl_redis_conn_read_handler(ngx_event_t *rev)
{
    ssize_t               n;
    ngx_uint_t            pieces;
    const char           *reason;
    ngx_connection_t     *c;
    ngx_rl_redis_conn_t  *conn;

    c = rev->data;
    conn = c->data;
    pieces = 0;

    /*
     * worker_shutdown_timeout has passed. The requests that it ends owe Redis
     * what they took, and pay over this connection. So it stays until the
     * worker exits.
     */

    if (c->close) {
        c->close = 0;
        c->error = 0;
        return;
    }

    if (conn->state == NGX_RL_REDIS_CONNECTING
        && ngx_rl_redis_conn_connected(conn) != NGX_OK)
    {
        return;
    }

    do {
        n = c->recv(c, conn->net->io, NGX_RL_REDIS_IO_BYTES);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR) {
            ngx_rl_redis_conn_failed(conn, "recv() failed");
            return;
        }

        if (n == 0) {
            ngx_rl_redis_conn_break(conn, 0, "closed by the server");
            return;
        }

        reason = conn->owner->read(conn, conn->net->io, n);

        if (conn->connection == NULL) {
            return;
        }

        if (reason) {
            ngx_rl_redis_conn_break(conn, 0, reason);
            return;
        }

    } while (rev->ready && ++pieces < NGX_RL_REDIS_IO_PIECES);

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_next_events);
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_rl_redis_conn_break(conn, 0, "no event");
    }
}

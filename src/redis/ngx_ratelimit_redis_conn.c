/*
 * The states of one connection to one node. It lives from the first time that
 * its address is named until the slot map has no use for it, and connects again
 * by itself.
 *
 * A connection is freed by its own timer or by stop alone, so nothing that a
 * reply or a handler does can free it under its reader.
 */

#include <ngx_event_connect.h>

#include "ngx_ratelimit_backoff.h"
#include "ngx_ratelimit_redis_int.h"
#include "ngx_ratelimit_lua.h"

#define NGX_RATELIMIT_REDIS_CLIENT_NAME     512   /* bytes of it, at most */

#define NGX_RATELIMIT_REDIS_RETRY_MS        1000
#define NGX_RATELIMIT_REDIS_DOUBT_MIN_MS    100
#define NGX_RATELIMIT_REDIS_SENTINEL_MS     5000  /* not asked for so long */

/* an idle connection whose peer is gone is noticed after half a minute */
#define NGX_RATELIMIT_REDIS_KEEPIDLE_S      15
#define NGX_RATELIMIT_REDIS_KEEPINTVL_S     5
#define NGX_RATELIMIT_REDIS_USER_TIMEOUT_MS 30000


static ngx_msec_t ngx_ratelimit_redis_conn_pause(
    ngx_ratelimit_redis_conn_t *conn);
static ngx_int_t ngx_ratelimit_redis_conn_setup(
    ngx_ratelimit_redis_conn_t *conn);
static ngx_int_t ngx_ratelimit_redis_conn_setname(
    ngx_ratelimit_redis_conn_t *conn);
static ngx_int_t ngx_ratelimit_redis_conn_subscribe(
    ngx_ratelimit_redis_conn_t *conn);
static ngx_int_t ngx_ratelimit_redis_conn_select(
    ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_enter(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_state_e state);
static void ngx_ratelimit_redis_conn_down(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_broken(ngx_ratelimit_redis_conn_t *conn);
static ngx_uint_t ngx_ratelimit_redis_conn_healthy(
    const ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_resolving(
    ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_connecting(
    ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_opened(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_up(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_tune(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_watch(ngx_ratelimit_redis_conn_t *conn);
static ngx_int_t ngx_ratelimit_redis_conn_open(
    ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_close(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_drop(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t keeps);
static ngx_uint_t ngx_ratelimit_redis_conn_unused(
    ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_shaking(
    ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_check(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_conn_idle(ngx_ratelimit_redis_conn_t *conn);


/* of a connection by TCP, beside SO_KEEPALIVE, which the connect sets */
static const struct {
    int  name;
    int  value;
} ngx_ratelimit_redis_conn_options[] = {
    { TCP_KEEPIDLE, NGX_RATELIMIT_REDIS_KEEPIDLE_S },
    { TCP_KEEPINTVL, NGX_RATELIMIT_REDIS_KEEPINTVL_S },
    { TCP_USER_TIMEOUT, NGX_RATELIMIT_REDIS_USER_TIMEOUT_MS }
};


void
ngx_ratelimit_redis_conn_free(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_call_t  *call;

    ngx_ratelimit_redis_conn_close(conn);

    while (!ngx_queue_empty(&conn->calls)) {
        q = ngx_queue_head(&conn->calls);
        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);
        ngx_ratelimit_redis_conn_remove(call);
        ngx_ratelimit_redis_call_free(call);
    }

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_ratelimit_redis_tls_forget(conn);

    ngx_queue_remove(&conn->queue);
    conn->client->nconns--;

    ngx_free(conn);
}


static void
ngx_ratelimit_redis_conn_enter(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_state_e state)
{
    conn->state = state;

    switch (state) {

    case NGX_RATELIMIT_REDIS_DOWN:
        ngx_ratelimit_redis_conn_down(conn);
        break;

    case NGX_RATELIMIT_REDIS_BROKEN:
        ngx_ratelimit_redis_conn_broken(conn);
        break;

    case NGX_RATELIMIT_REDIS_RESOLVING:
        ngx_ratelimit_redis_conn_resolving(conn);
        break;

    case NGX_RATELIMIT_REDIS_CONNECTING:
        ngx_ratelimit_redis_conn_connecting(conn);
        break;

    case NGX_RATELIMIT_REDIS_HANDSHAKE:
        ngx_ratelimit_redis_tls_begin(conn);
        break;

    case NGX_RATELIMIT_REDIS_UP:
        ngx_ratelimit_redis_conn_up(conn);
        break;
    }
}


/*
 * Waits until the next attempt may begin; a worker that exits does not connect
 * again.
 */

static void
ngx_ratelimit_redis_conn_down(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_msec_t  passed, delay;

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_ratelimit_redis_breaker_lost(conn);

    conn->failures++;

    if (ngx_exiting) {
        return;
    }

    if (!conn->client->lazy) {
        passed = ngx_current_msec - conn->begin_ms;
        delay = (passed < conn->pause_ms) ? conn->pause_ms - passed : 1;

        ngx_add_timer(&conn->timer, delay);
    }

    ngx_ratelimit_redis_refresh(conn->client);
}


/*
 * A healthy connection was closed: the client connects again in this turn of
 * the event loop, but not from inside the socket's handler, and keeps the calls
 * that were not written.
 */

static void
ngx_ratelimit_redis_conn_broken(ngx_ratelimit_redis_conn_t *conn)
{
    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    conn->failures++;

    ngx_post_event(&conn->flush, &ngx_posted_events);
    ngx_ratelimit_redis_refresh(conn->client);
}


/*
 * Whether a connection that ends may be made anew at once. With TLS all
 * gateways would come with a handshake at the same moment. A server that ends
 * connections again and again gets them one pause after the other.
 */

static ngx_uint_t
ngx_ratelimit_redis_conn_healthy(const ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    return conn->state == NGX_RATELIMIT_REDIS_UP
           && conn->failures == 0
           && conn->good
           && ngx_current_msec - conn->begin_ms
              >= NGX_RATELIMIT_BACKOFF_MIN_MS
           && !client->lazy
           && !client->redis->tls.on
           && !ngx_exiting;
}


/* From the begin of an attempt, or the end of a connection. */

static ngx_msec_t
ngx_ratelimit_redis_conn_pause(ngx_ratelimit_redis_conn_t *conn)
{
    return ngx_ratelimit_backoff_pause_ms(conn->failures, conn->busy,
                                          (uint32_t) ngx_random());
}


/*
 * All workers of a fleet may start at the same time. A connection that nobody
 * waits for yet takes its time; the first call begins it.
 */

void
ngx_ratelimit_redis_conn_first(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    if (conn->sentinel
        || (client->slots && !client->mapped)
        || !(client->redis->tls.on || client->redis->reloaded))
    {
        ngx_ratelimit_redis_conn_begin(conn);
        return;
    }

    conn->state = NGX_RATELIMIT_REDIS_BROKEN;

    ngx_add_timer(&conn->timer,
                  1 + ngx_random() % NGX_RATELIMIT_BACKOFF_FIRST_MS);
}


/*
 * Begins an attempt. Its deadline is the begin of the next one, but not too
 * soon for a slow network. Authentication and the like go ahead of all calls,
 * also of those that a broken connection has kept.
 */

void
ngx_ratelimit_redis_conn_begin(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_int_t    rc;
    ngx_queue_t  kept;

    /* what is queued now begins no other attempt */

    conn->state = NGX_RATELIMIT_REDIS_RESOLVING;

    conn->begin_ms = ngx_current_msec;
    conn->pause_ms = ngx_ratelimit_redis_conn_pause(conn);
    conn->good = 0;

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    if (conn->flush.posted) {
        ngx_delete_posted_event(&conn->flush);
    }

    ngx_queue_init(&kept);

    if (!ngx_queue_empty(&conn->calls)) {
        ngx_queue_add(&kept, &conn->calls);
        ngx_queue_init(&conn->calls);
        conn->next = &conn->calls;
    }

    rc = ngx_ratelimit_redis_conn_setup(conn);

    if (!ngx_queue_empty(&kept)) {
        ngx_queue_add(&conn->calls, &kept);
        conn->next = ngx_queue_head(&conn->calls);
    }

    if (rc != NGX_OK) {
        ngx_ratelimit_redis_conn_break(conn, 0, "no memory");
        return;
    }

    ngx_add_timer(&conn->timer,
                  ngx_max(conn->pause_ms, NGX_RATELIMIT_BACKOFF_ATTEMPT_MS));

    ngx_ratelimit_redis_conn_enter(conn, NGX_RATELIMIT_REDIS_RESOLVING);
}


/*
 * Queues what a connection begins with; nobody waits for the replies. A
 * sentinel has a user of its own, no databases and no scripts. A client that
 * only subscribes needs neither.
 */

static ngx_int_t
ngx_ratelimit_redis_conn_setup(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_uint_t                     checks;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;
    checks = (!conn->sentinel && client->channel.len == 0);

    if (ngx_ratelimit_redis_auth_send(conn, NGX_RATELIMIT_REDIS_AUTH)
        != NGX_OK
        || ngx_ratelimit_redis_conn_setname(conn) != NGX_OK
        || (client->channel.len
            && ngx_ratelimit_redis_conn_subscribe(conn) != NGX_OK)
        || (checks && ngx_ratelimit_redis_conn_select(conn) != NGX_OK))
    {
        return NGX_ERROR;
    }

    /* without memory NOSCRIPT will ask for it again */

    if (checks && client->control == NULL) {
        ngx_ratelimit_redis_conn_load(conn);
    }

    return NGX_OK;
}


/*
 * "ratelimit:<block>:<host>:<pid>", as CLIENT LIST shows it. Redis takes
 * printable characters alone.
 */

static ngx_int_t
ngx_ratelimit_redis_conn_setname(ngx_ratelimit_redis_conn_t *conn)
{
    u_char     name[NGX_RATELIMIT_REDIS_CLIENT_NAME], *p, *last;
    ngx_str_t  args[3];

    last = ngx_slprintf(name, name + sizeof(name), "ratelimit:%V:%V:%P",
                        &conn->client->redis->name,
                        (ngx_str_t *) &ngx_cycle->hostname, ngx_pid);

    for (p = name; p < last; p++) {
        if (*p <= ' ' || *p > '~') {
            *p = '_';
        }
    }

    ngx_str_set(&args[0], "CLIENT");
    ngx_str_set(&args[1], "SETNAME");
    args[2].data = name;
    args[2].len = last - name;

    return ngx_ratelimit_redis_conn_command(conn, NGX_RATELIMIT_REDIS_SETNAME,
                                            args, 3)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_ratelimit_redis_conn_subscribe(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_str_t  args[2];

    ngx_str_set(&args[0], "SUBSCRIBE");
    args[1] = conn->client->channel;

    return ngx_ratelimit_redis_conn_command(conn, NGX_RATELIMIT_REDIS_LISTEN,
                                            args, 2)
           ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_ratelimit_redis_conn_select(ngx_ratelimit_redis_conn_t *conn)
{
    u_char      digits[NGX_INT64_LEN];
    ngx_str_t   args[2];
    ngx_uint_t  database;

    database = conn->client->redis->database;

    if (database == 0) {
        return NGX_OK;
    }

    ngx_str_set(&args[0], "SELECT");
    args[1].data = digits;
    args[1].len = ngx_sprintf(digits, "%ui", database) - digits;

    return ngx_ratelimit_redis_conn_command(conn, NGX_RATELIMIT_REDIS_SELECT,
                                            args, 2)
           ? NGX_OK : NGX_ERROR;
}


void
ngx_ratelimit_redis_conn_load(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_str_t  args[3];

    ngx_str_set(&args[0], "SCRIPT");
    ngx_str_set(&args[1], "LOAD");
    args[2].data = (u_char *) ngx_ratelimit_lua_check;
    args[2].len = ngx_ratelimit_lua_check_len;

    conn->loading = (ngx_ratelimit_redis_conn_command(conn,
                         NGX_RATELIMIT_REDIS_LOAD, args, 3)
                     != NULL);
}


static void
ngx_ratelimit_redis_conn_resolving(ngx_ratelimit_redis_conn_t *conn)
{
    if (conn->host.naddrs == 0) {
        ngx_ratelimit_redis_resolve(conn);
        return;
    }

    ngx_ratelimit_redis_resolve_next(conn);
    ngx_ratelimit_redis_conn_resolved(conn, NULL);
}


void
ngx_ratelimit_redis_conn_resolved(ngx_ratelimit_redis_conn_t *conn,
    const char *reason)
{
    if (reason) {
        ngx_ratelimit_redis_conn_break(conn, 0, reason);
        return;
    }

    /* the resolver may have taken all the time that there was */

    if (!conn->timer.timer_set) {
        ngx_add_timer(&conn->timer, NGX_RATELIMIT_BACKOFF_ATTEMPT_MS);
    }

    ngx_ratelimit_redis_conn_enter(conn, NGX_RATELIMIT_REDIS_CONNECTING);
}


static void
ngx_ratelimit_redis_conn_connecting(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_int_t  rc;

    rc = ngx_ratelimit_redis_conn_open(conn);

    if (rc == NGX_ERROR) {
        ngx_ratelimit_redis_conn_break(conn, ngx_socket_errno,
                                       "connect() failed");
        return;
    }

    if (rc == NGX_OK) {
        ngx_ratelimit_redis_conn_opened(conn);
    }
}


/* There is a connection, to be encrypted or not. */

static void
ngx_ratelimit_redis_conn_opened(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_conn_enter(conn,
                                   conn->client->redis->tls.on
                                       ? NGX_RATELIMIT_REDIS_HANDSHAKE
                                       : NGX_RATELIMIT_REDIS_UP);
}


void
ngx_ratelimit_redis_conn_shook(ngx_ratelimit_redis_conn_t *conn,
    const char *reason)
{
    ngx_connection_t  *c;

    if (reason) {
        ngx_ratelimit_redis_conn_break(conn, 0, reason);
        return;
    }

    c = conn->connection;
    c->read->handler = ngx_ratelimit_redis_conn_read_handler;
    c->write->handler = ngx_ratelimit_redis_conn_write_handler;

    /* TLS may have read ahead: no event would come for that */

    ngx_post_event(c->read, &ngx_posted_events);

    ngx_ratelimit_redis_conn_enter(conn, NGX_RATELIMIT_REDIS_UP);
}


static void
ngx_ratelimit_redis_conn_up(ngx_ratelimit_redis_conn_t *conn)
{
    /* one write a turn is small: it must not wait for the last one's ACK */

    (void) ngx_tcp_nodelay(conn->connection);
    ngx_ratelimit_redis_conn_tune(conn);

    conn->up_ms = ngx_current_msec;
    conn->vain = 0;

    ngx_ratelimit_redis_conn_watch(conn);
    ngx_post_event(&conn->flush, &ngx_posted_next_events);

    ngx_ratelimit_redis_topology_up(conn);
}


/* A kernel that refuses an option does without it. */

static void
ngx_ratelimit_redis_conn_tune(ngx_ratelimit_redis_conn_t *conn)
{
    int         value;
    ngx_uint_t  i;

    if (conn->sockaddr.sockaddr.sa_family == AF_UNIX) {
        return;
    }

    for (i = 0;
         i < sizeof(ngx_ratelimit_redis_conn_options)
             / sizeof(ngx_ratelimit_redis_conn_options[0]);
         i++)
    {
        value = ngx_ratelimit_redis_conn_options[i].value;

        (void) setsockopt(conn->connection->fd, IPPROTO_TCP,
                          ngx_ratelimit_redis_conn_options[i].name, &value,
                          sizeof(int));
    }
}


/* Looks at it in dead_ms; sooner while it has to show that it is back. */

static void
ngx_ratelimit_redis_conn_watch(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_msec_t  delay;

    delay = conn->client->dead_ms;

    if (conn->failures) {
        delay = ngx_min(delay, NGX_RATELIMIT_BACKOFF_MAX_MS);
    }

    ngx_add_timer(&conn->timer, delay);
}


/* Returns NGX_OK: connected, NGX_AGAIN: soon, or NGX_ERROR. */

static ngx_int_t
ngx_ratelimit_redis_conn_open(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t   pc;

    conn->reader = ngx_ratelimit_redis_reader_new(&conn->reply);

    if (conn->reader == NULL) {
        ngx_set_socket_errno(NGX_ENOMEM);
        return NGX_ERROR;
    }

    ngx_memzero(&pc, sizeof(ngx_peer_connection_t));

    pc.sockaddr = &conn->sockaddr.sockaddr;
    pc.socklen = conn->socklen;
    pc.name = &conn->name;
    pc.get = ngx_event_get_peer;
    pc.log = &conn->client->quiet;
    pc.log_error = NGX_ERROR_ERR;
    pc.so_keepalive = 1;

    rc = ngx_event_connect_peer(&pc);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return NGX_ERROR;
    }

    c = pc.connection;
    c->data = conn;
    c->read->handler = ngx_ratelimit_redis_conn_read_handler;
    c->write->handler = ngx_ratelimit_redis_conn_write_handler;

    conn->connection = c;

    return rc;
}


static void
ngx_ratelimit_redis_conn_close(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_resolve_cancel(conn);

    if (conn->connection) {
        ngx_ratelimit_redis_tls_end(conn);
        ngx_close_connection(conn->connection);
        conn->connection = NULL;
    }

    if (conn->reader) {
        ngx_ratelimit_redis_reader_free(conn->reader, &conn->reply);
        conn->reader = NULL;
    }

    if (conn->flush.posted) {
        ngx_delete_posted_event(&conn->flush);
    }

    conn->offset = 0;
    conn->loading = 0;
    conn->alert = NULL;
}


void
ngx_ratelimit_redis_conn_break(ngx_ratelimit_redis_conn_t *conn,
    ngx_err_t err, const char *reason)
{
    char                           note[NGX_RATELIMIT_LOG_NOTE];
    ngx_uint_t                     healthy;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;
    healthy = ngx_ratelimit_redis_conn_healthy(conn);

    if (ngx_ratelimit_redis_error_due(conn,
                                      NGX_RATELIMIT_REDIS_LINE_BROKEN, note))
    {
        ngx_log_error(NGX_LOG_ERR, client->log, err,
                      "ratelimit redis \"%V\": no connection to %V: %s%s",
                      &client->redis->name, &conn->name, reason, note);
    }

    if (conn->state == NGX_RATELIMIT_REDIS_UP) {
        conn->lost_ms = ngx_current_msec;
        conn->begin_ms = ngx_current_msec;
        conn->pause_ms = ngx_ratelimit_redis_conn_pause(conn);
    }

    ngx_ratelimit_redis_conn_close(conn);
    ngx_ratelimit_redis_conn_drop(conn, healthy);

    ngx_ratelimit_redis_conn_enter(conn, healthy
                                             ? NGX_RATELIMIT_REDIS_BROKEN
                                             : NGX_RATELIMIT_REDIS_DOWN);
}


/*
 * Ends the calls of a connection that broke. What was written may have run: it
 * is never sent again. keeps: what was not is sent over the next connection.
 */

static void
ngx_ratelimit_redis_conn_drop(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t keeps)
{
    ngx_uint_t                   written;
    ngx_queue_t                 *q, *next;
    ngx_ratelimit_redis_call_t  *call;

    for (q = ngx_queue_head(&conn->calls);
         q != ngx_queue_sentinel(&conn->calls);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);
        written = call->written;

        if (keeps && !written && call->kind <= NGX_RATELIMIT_REDIS_CONTROL) {
            continue;
        }

        ngx_ratelimit_redis_conn_remove(call);

        if (call->kind > NGX_RATELIMIT_REDIS_CONTROL) {
            ngx_ratelimit_redis_call_free(call);
            continue;
        }

        if (written) {
            ngx_ratelimit_redis_breaker_cut(call);
            ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_LOST);

        } else {
            ngx_ratelimit_redis_breaker_unsent(call, conn);
            ngx_ratelimit_redis_call_fail(call,
                                          NGX_RATELIMIT_REDIS_UNREACHABLE);
        }
    }
}


void
ngx_ratelimit_redis_conn_recovered(ngx_ratelimit_redis_conn_t *conn)
{
    char                           note[NGX_RATELIMIT_LOG_NOTE];
    ngx_ratelimit_redis_client_t  *client;

    conn->good = 1;
    conn->busy = 0;

    if (conn->failures == 0) {
        return;
    }

    client = conn->client;

    conn->failures = 0;

    if (client->control) {
        return;
    }

    ngx_ratelimit_redis_count(client->redis->shared->reconnects);

    if (ngx_ratelimit_redis_notice_due(conn, note)) {
        ngx_log_error(NGX_LOG_NOTICE, client->log, 0,
                      "ratelimit redis \"%V\": connected to %V again%s",
                      &client->redis->name, &conn->name, note);
    }
}


void
ngx_ratelimit_redis_conn_release(ngx_ratelimit_redis_conn_t *conn)
{
    if (!conn->timer.timer_set && !ngx_exiting) {
        ngx_add_timer(&conn->timer, conn->client->dead_ms);
    }
}


void
ngx_ratelimit_redis_conn_retry(ngx_ratelimit_redis_conn_t *conn)
{
    /* a worker that exits connects for what somebody still waits for alone */

    if (conn->state != NGX_RATELIMIT_REDIS_DOWN
        || (ngx_exiting && !conn->client->lazy)
        || ngx_current_msec - conn->retried_ms < NGX_RATELIMIT_REDIS_RETRY_MS)
    {
        return;
    }

    conn->retried_ms = ngx_current_msec;

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_ratelimit_redis_conn_begin(conn);
}


static ngx_uint_t
ngx_ratelimit_redis_conn_unused(ngx_ratelimit_redis_conn_t *conn)
{
    if (conn->sentinel) {
        return ngx_current_msec - conn->used_ms
               > NGX_RATELIMIT_REDIS_SENTINEL_MS;
    }

    return conn->client->slots
           && conn->client->mapped
           && conn->owned == 0;
}


void
ngx_ratelimit_redis_conn_timer_handler(ngx_event_t *ev)
{
    ngx_ratelimit_redis_conn_t  *conn;

    conn = ev->data;

    switch (conn->state) {

    case NGX_RATELIMIT_REDIS_DOWN:

        if (ngx_exiting) {
            return;
        }

        if (ngx_ratelimit_redis_conn_unused(conn)) {
            ngx_ratelimit_redis_conn_free(conn);
            return;
        }

        if (!conn->client->lazy) {
            ngx_ratelimit_redis_conn_begin(conn);
        }

        return;

    case NGX_RATELIMIT_REDIS_BROKEN:

        if (!ngx_exiting) {
            ngx_ratelimit_redis_conn_begin(conn);
        }

        return;

    case NGX_RATELIMIT_REDIS_RESOLVING:
        ngx_ratelimit_redis_resolve_timeout(conn);
        return;

    case NGX_RATELIMIT_REDIS_CONNECTING:
        ngx_ratelimit_redis_conn_break(conn, NGX_ETIMEDOUT,
                                       "connect() timed out");
        return;

    case NGX_RATELIMIT_REDIS_HANDSHAKE:
        ngx_ratelimit_redis_conn_shaking(conn);
        return;

    case NGX_RATELIMIT_REDIS_UP:
        ngx_ratelimit_redis_conn_check(conn);
        return;
    }
}


/*
 * The handshake's time is over. If the other side's kernel has all that was
 * sent, the server is there and has not come to it yet.
 */

static void
ngx_ratelimit_redis_conn_shaking(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_msec_t       passed;
    socklen_t        len;
    struct tcp_info  info;

    passed = ngx_current_msec - conn->begin_ms;
    len = sizeof(info);
    ngx_memzero(&info, sizeof(info));

    (void) getsockopt(conn->connection->fd, IPPROTO_TCP, TCP_INFO, &info,
                      &len);

    if (passed < NGX_RATELIMIT_BACKOFF_HANDSHAKE_MS
        && info.tcpi_unacked == 0)
    {
        ngx_add_timer(&conn->timer,
                      ngx_min(NGX_RATELIMIT_BACKOFF_MAX_MS,
                              NGX_RATELIMIT_BACKOFF_HANDSHAKE_MS - passed));
        return;
    }

    if (info.tcpi_unacked == 0) {
        conn->busy++;
        conn->begin_ms = ngx_current_msec;
        conn->pause_ms = ngx_ratelimit_redis_conn_pause(conn);
    }

    ngx_ratelimit_redis_conn_break(conn, NGX_ETIMEDOUT,
                                   "the TLS handshake timed out");
}


/* The timer of a connection that is up: is the peer alive, is it needed? */

static void
ngx_ratelimit_redis_conn_check(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_msec_t                   waited, dead_ms;
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_call_t  *call;

    if (ngx_queue_empty(&conn->calls)) {
        ngx_ratelimit_redis_conn_idle(conn);
        return;
    }

    q = ngx_queue_head(&conn->calls);
    call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);

    waited = ngx_current_msec - call->since_ms;
    dead_ms = conn->client->dead_ms;

    if (waited >= dead_ms) {
        ngx_ratelimit_redis_conn_break(conn, NGX_ETIMEDOUT,
                                       "the oldest call has no reply");
        return;
    }

    ngx_add_timer(&conn->timer, dead_ms - waited);
}


void
ngx_ratelimit_redis_conn_doubt(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_msec_t                   since_ms, doubt_ms;
    ngx_ratelimit_redis_call_t  *call;

    if (conn->state != NGX_RATELIMIT_REDIS_UP
        || conn->shard == NULL
        || ngx_queue_empty(&conn->calls))
    {
        return;
    }

    call = ngx_queue_data(ngx_queue_head(&conn->calls),
                          ngx_ratelimit_redis_call_t, queue);
    since_ms = ngx_max(call->since_ms, conn->heard_ms);
    doubt_ms = ngx_max(2 * conn->client->timeout,
                       NGX_RATELIMIT_REDIS_DOUBT_MIN_MS);

    if (ngx_current_msec - since_ms >= doubt_ms
        && ngx_ratelimit_breaker_lives(&conn->shard->breaker, since_ms))
    {
        ngx_ratelimit_redis_conn_break(conn, NGX_ETIMEDOUT,
                                       "it alone has no replies");
    }
}


/* With no calls to be good at, staying connected shows that it is back. */

static void
ngx_ratelimit_redis_conn_idle(ngx_ratelimit_redis_conn_t *conn)
{
    if (ngx_ratelimit_redis_conn_unused(conn)) {
        ngx_ratelimit_redis_conn_free(conn);
        return;
    }

    if (ngx_current_msec - conn->up_ms >= NGX_RATELIMIT_BACKOFF_MAX_MS) {
        ngx_ratelimit_redis_conn_recovered(conn);
    }

    if (conn->failures || conn->sentinel) {
        ngx_ratelimit_redis_conn_watch(conn);
    }
}


ngx_int_t
ngx_ratelimit_redis_conn_connected(ngx_ratelimit_redis_conn_t *conn)
{
    int        err;
    socklen_t  len;

    err = 0;
    len = sizeof(int);

    if (getsockopt(conn->connection->fd, SOL_SOCKET, SO_ERROR, (void *) &err,
                   &len)
        == -1)
    {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_ratelimit_redis_conn_break(conn, err, "connect() failed");
        return NGX_AGAIN;
    }

    ngx_ratelimit_redis_conn_opened(conn);

    return (conn->state == NGX_RATELIMIT_REDIS_UP) ? NGX_OK : NGX_AGAIN;
}

/*
 * The states of one connection. Its owner frees it from its timer, or where no
 * handler of it runs, so nothing that a reply or a handler does can free it
 * under its reader.
 *
 * A connection's host may be an address. A name of the configuration may have
 * known addresses. For any other name the worker asks nginx's resolver at each
 * attempt to connect, which answers at once if it has asked lately. Several
 * addresses are tried one after the other, in an order of their own: name
 * servers change theirs with every answer.
 */

#include <ngx_event_connect.h>

#include "ngx_rl_breaker.h"
#include "ngx_rl_redis_conn.h"

#define NGX_RL_REDIS_RETRY_MS        1000

/* an idle connection whose peer is gone is noticed after half a minute */
#define NGX_RL_REDIS_KEEPIDLE_S      15
#define NGX_RL_REDIS_KEEPINTVL_S     5
#define NGX_RL_REDIS_USER_TIMEOUT_MS 30000


/* of a connection by TCP, beside SO_KEEPALIVE, which the connect sets */
static const struct {
    int  name;
    int  value;
} ngx_rl_redis_conn_options[] = {
    { TCP_KEEPIDLE, NGX_RL_REDIS_KEEPIDLE_S },
    { TCP_KEEPINTVL, NGX_RL_REDIS_KEEPINTVL_S },
    { TCP_USER_TIMEOUT, NGX_RL_REDIS_USER_TIMEOUT_MS }
};


/* The next attempt begins a pause from now: an attempt begins, or ended. */
static void
ngx_rl_redis_conn_mark(ngx_rl_redis_conn_t *conn)
{
    conn->begin_ms = ngx_current_msec;
    conn->pause_ms = ngx_rl_backoff_pause_ms(conn->failures, conn->busy,
                                             (uint32_t) ngx_random());
}


/*
 * Whether a connection that ends may be made anew at once; a lazy one, by the
 * next request. With TLS all gateways would come with a handshake at the same
 * moment. A server that ends connections again and again gets them one pause
 * after the other.
 */
static ngx_uint_t
ngx_rl_redis_conn_healthy(const ngx_rl_redis_conn_t *conn)
{
    return conn->state == NGX_RL_REDIS_UP
           && conn->failures == 0
           && conn->good
           && ngx_current_msec - conn->begin_ms
              >= NGX_RL_BACKOFF_MIN_MS
           && !conn->net->redis->tls.on && !ngx_exiting;
}


static void
ngx_rl_redis_resolve_cancel(ngx_rl_redis_conn_t *conn)
{
    if (conn->query) {
        ngx_resolve_name_done(conn->query);
        conn->query = NULL;
    }
}


static void
ngx_rl_redis_conn_close(ngx_rl_redis_conn_t *conn)
{
    ngx_rl_redis_resolve_cancel(conn);

    if (conn->connection) {
        ngx_rl_tls_end(conn->connection);
        ngx_close_connection(conn->connection);
        conn->connection = NULL;
    }

    if (conn->flush.posted) {
        ngx_delete_posted_event(&conn->flush);
    }

    conn->offset = 0;
    conn->alert = NULL;
}


void
ngx_rl_redis_conn_break(ngx_rl_redis_conn_t *conn, ngx_err_t err,
    const char *reason)
{
    ngx_msec_t  passed;
    ngx_uint_t  healthy;

    healthy = ngx_rl_redis_conn_healthy(conn);

    if (healthy && conn->lazy) {
        conn->retried_ms = ngx_current_msec - NGX_RL_REDIS_RETRY_MS;
        healthy = 0;
    }

    conn->owner->failed(conn, err, reason);

    if (conn->state == NGX_RL_REDIS_UP) {
        ngx_rl_redis_conn_mark(conn);
    }

    ngx_rl_redis_conn_close(conn);
    conn->owner->closed(conn, conn->state, healthy);

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    conn->failures++;

    if (healthy) {

        /* in this turn, but not from inside the socket's handler */

        conn->state = NGX_RL_REDIS_BROKEN;
        ngx_post_event(&conn->flush, &ngx_posted_events);
        return;
    }

    conn->state = NGX_RL_REDIS_DOWN;

    if (!ngx_exiting && !conn->lazy) {
        passed = ngx_current_msec - conn->begin_ms;
        ngx_add_timer(&conn->timer, (passed < conn->pause_ms)
                                    ? conn->pause_ms - passed : 1);
    }
}


/* Keeps in best the one that comes first, up and around from the last. */
static void
ngx_rl_redis_resolve_offer(const ngx_rl_redis_conn_t *conn, ngx_addr_t *best,
    struct sockaddr *sockaddr, socklen_t socklen)
{
    u_char     *last, *one, *two;
    ngx_int_t   one_above, two_above;

    if (best->sockaddr) {
        last = (u_char *) &conn->sockaddr;
        one = (u_char *) sockaddr;
        two = (u_char *) best->sockaddr;

        one_above = ngx_memn2cmp(one, last, socklen, conn->socklen) > 0;
        two_above = ngx_memn2cmp(two, last, best->socklen, conn->socklen) > 0;

        if (one_above < two_above
            || (one_above == two_above
                && ngx_memn2cmp(one, two, socklen, best->socklen) >= 0))
        {
            return;
        }
    }

    best->sockaddr = sockaddr;
    best->socklen = socklen;
}


socklen_t
ngx_rl_redis_resolve_numeric(const ngx_rl_redis_host_t *host,
    ngx_sockaddr_t *sa)
{
    in_addr_t  addr;
    socklen_t  socklen;

    ngx_memzero(sa, sizeof(ngx_sockaddr_t));

    addr = ngx_inet_addr(host->host.data, host->host.len);

    if (addr != INADDR_NONE) {
        sa->sockaddr_in.sin_family = AF_INET;
        sa->sockaddr_in.sin_addr.s_addr = addr;
        socklen = sizeof(struct sockaddr_in);

#if (NGX_HAVE_INET6)

    } else if (ngx_inet6_addr(host->host.data, host->host.len,
                              sa->sockaddr_in6.sin6_addr.s6_addr)
               == NGX_OK)
    {
        sa->sockaddr_in6.sin6_family = AF_INET6;
        socklen = sizeof(struct sockaddr_in6);

#endif

    } else {
        return 0;
    }

    ngx_inet_set_port(&sa->sockaddr, host->port);

    return socklen;
}


static void
ngx_rl_redis_resolve_set(ngx_rl_redis_conn_t *conn, const ngx_addr_t *addr)
{
    ngx_memcpy(&conn->sockaddr, addr->sockaddr, addr->socklen);
    conn->socklen = addr->socklen;
}


/* Looks at it in dead_ms; sooner while it has to show that it is back. */
static void
ngx_rl_redis_conn_watch(ngx_rl_redis_conn_t *conn)
{
    ngx_msec_t  delay;

    delay = conn->net->dead_ms;

    if (conn->failures) {
        delay = ngx_min(delay, NGX_RL_BACKOFF_MAX_MS);
    }

    ngx_add_timer(&conn->timer, delay);
}


static void
ngx_rl_redis_conn_up(ngx_rl_redis_conn_t *conn)
{
    int         value;
    ngx_uint_t  i;

    conn->state = NGX_RL_REDIS_UP;
    conn->up_ms = ngx_current_msec;

    /* one write a turn is small: it must not wait for the last one's ACK */

    (void) ngx_tcp_nodelay(conn->connection);

    /* a kernel that refuses an option, or a path, does without it */

    for (i = 0;
         i < sizeof(ngx_rl_redis_conn_options)
             / sizeof(ngx_rl_redis_conn_options[0]);
         i++)
    {
        value = ngx_rl_redis_conn_options[i].value;

        (void) setsockopt(conn->connection->fd, IPPROTO_TCP,
                          ngx_rl_redis_conn_options[i].name, &value,
                          sizeof(int));
    }

    ngx_rl_redis_conn_watch(conn);
    ngx_post_event(&conn->flush, &ngx_posted_next_events);

    conn->owner->up(conn);
}


/* There is a connection, to be encrypted or not. */
static void
ngx_rl_redis_conn_opened(ngx_rl_redis_conn_t *conn)
{
    if (!conn->net->redis->tls.on) {
        ngx_rl_redis_conn_up(conn);
        return;
    }

    conn->state = NGX_RL_REDIS_HANDSHAKE;
    ngx_rl_redis_tls_begin(conn);
}


/* Ends RESOLVING. reason: why there is no address; NULL: it is in sockaddr. */
static void
ngx_rl_redis_conn_resolved(ngx_rl_redis_conn_t *conn, const char *reason)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t   pc;

    if (reason) {
        ngx_rl_redis_conn_break(conn, 0, reason);
        return;
    }

    /* the resolver may have taken all the time that there was */

    if (!conn->timer.timer_set) {
        ngx_add_timer(&conn->timer, NGX_RL_BACKOFF_ATTEMPT_MS);
    }

    conn->state = NGX_RL_REDIS_CONNECTING;

    ngx_memzero(&pc, sizeof(ngx_peer_connection_t));

    pc.sockaddr = &conn->sockaddr.sockaddr;
    pc.socklen = conn->socklen;
    pc.name = &conn->name;
    pc.get = ngx_event_get_peer;
    pc.log = &conn->net->muted;
    pc.log_error = NGX_ERROR_ERR;
    pc.so_keepalive = 1;

    rc = ngx_event_connect_peer(&pc);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        ngx_rl_redis_conn_break(conn, ngx_socket_errno, "connect() failed");
        return;
    }

    c = pc.connection;
    c->data = conn;
    c->read->handler = ngx_rl_redis_conn_read_handler;
    c->write->handler = ngx_rl_redis_conn_write_handler;

    conn->connection = c;

    if (rc == NGX_OK) {
        ngx_rl_redis_conn_opened(conn);
    }
}


/*
 * A name server that is out of order takes away no address that was good. One
 * that says that there is no such name does.
 */
static void
ngx_rl_redis_resolve_failed(ngx_rl_redis_conn_t *conn, ngx_int_t state)
{
    const char  *reason;

    switch (state) {

    case NGX_RESOLVE_NXDOMAIN:
        conn->socklen = 0;
        reason = "its name was not found";
        break;

    case NGX_RESOLVE_TIMEDOUT:
        reason = "the resolver did not answer";
        break;

    default:
        reason = "the resolver answered with a failure";
    }

    ngx_rl_redis_conn_resolved(conn, conn->socklen ? NULL : reason);
}


static void
ngx_rl_redis_resolve_handler(ngx_resolver_ctx_t *ctx)
{
    ngx_int_t             state;
    ngx_uint_t            i;
    ngx_addr_t            best;
    ngx_rl_redis_conn_t  *conn;

    conn = ctx->data;
    state = ctx->state;

    if (state == NGX_OK && ctx->naddrs == 0) {
        state = NGX_RESOLVE_NXDOMAIN;
    }

    if (state == NGX_OK) {
        ngx_memzero(&best, sizeof(ngx_addr_t));

        for (i = 0; i < ctx->naddrs; i++) {
            ngx_inet_set_port(ctx->addrs[i].sockaddr, conn->host.port);
            ngx_rl_redis_resolve_offer(conn, &best, ctx->addrs[i].sockaddr,
                                       ctx->addrs[i].socklen);
        }

        ngx_rl_redis_resolve_set(conn, &best);
    }

    conn->query = NULL;
    ngx_resolve_name_done(ctx);

    if (state == NGX_OK) {
        ngx_rl_redis_conn_resolved(conn, NULL);
        return;
    }

    ngx_rl_redis_resolve_failed(conn, state);
}


/*
 * Finds where conn's host is, maybe by nginx's resolver. conn_resolved() tells,
 * now or later.
 */
static void
ngx_rl_redis_resolve(ngx_rl_redis_conn_t *conn)
{
    socklen_t            socklen;
    ngx_addr_t           best;
    ngx_uint_t           i;
    ngx_sockaddr_t       sa;
    ngx_resolver_ctx_t  *ctx;
    ngx_rl_redis_t      *redis;

    redis = conn->net->redis;
    ngx_memzero(&best, sizeof(ngx_addr_t));

    for (i = 0; i < conn->host.naddrs; i++) {
        ngx_rl_redis_resolve_offer(conn, &best, conn->host.addrs[i].sockaddr,
                                   conn->host.addrs[i].socklen);
    }

    socklen = best.sockaddr ? 0
              : ngx_rl_redis_resolve_numeric(&conn->host, &sa);

    if (socklen) {
        best.sockaddr = &sa.sockaddr;
        best.socklen = socklen;
    }

    if (best.sockaddr) {
        ngx_rl_redis_resolve_set(conn, &best);
        ngx_rl_redis_conn_resolved(conn, NULL);
        return;
    }

    if (redis->resolver == NULL) {
        ngx_rl_redis_conn_resolved(conn,
                         "its host is a name, expected a \"resolver\"");
        return;
    }

    ctx = ngx_resolve_start(redis->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        ngx_rl_redis_conn_resolved(conn, "no memory");
        return;
    }

    ctx->name = conn->host.host;
    ctx->handler = ngx_rl_redis_resolve_handler;
    ctx->data = conn;
    ctx->timeout = redis->resolver_timeout;
    ctx->cancelable = 1;

    conn->query = ctx;

    /* the handler may be called from inside; an error frees ctx */

    if (ngx_resolve_name(ctx) != NGX_OK) {
        conn->query = NULL;
        ngx_rl_redis_conn_resolved(conn, "no memory");
    }
}


/*
 * Begins an attempt. Its deadline is the begin of the next one, but not too
 * soon for a slow network. The first commands of the owner go ahead of the
 * requests that a broken connection has kept.
 */
void
ngx_rl_redis_conn_begin(ngx_rl_redis_conn_t *conn)
{
    ngx_int_t    rc;
    ngx_queue_t  kept;

    /* what is queued now begins no other attempt */

    conn->state = NGX_RL_REDIS_RESOLVING;

    ngx_rl_redis_conn_mark(conn);
    conn->good = 0;
    conn->unfit = 0;

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    if (conn->flush.posted) {
        ngx_delete_posted_event(&conn->flush);
    }

    ngx_queue_init(&kept);

    if (!ngx_queue_empty(&conn->requests)) {
        ngx_queue_add(&kept, &conn->requests);
        ngx_queue_init(&conn->requests);
        conn->next = &conn->requests;
    }

    rc = conn->owner->open(conn);

    if (!ngx_queue_empty(&kept)) {
        ngx_queue_add(&conn->requests, &kept);
        conn->next = ngx_queue_head(&conn->requests);
    }

    if (rc != NGX_OK) {
        ngx_rl_redis_conn_break(conn, 0, "no memory");
        return;
    }

    ngx_add_timer(&conn->timer,
                  ngx_max(conn->pause_ms, NGX_RL_BACKOFF_ATTEMPT_MS));

    ngx_rl_redis_resolve(conn);
}


/*
 * The handshake's time is over. If the other side's kernel has all that was
 * sent, the server is there and has not come to it yet.
 */
static void
ngx_rl_redis_conn_shaking(ngx_rl_redis_conn_t *conn)
{
    ngx_msec_t       passed;
    socklen_t        len;
    struct tcp_info  info;

    passed = ngx_current_msec - conn->begin_ms;
    len = sizeof(info);
    ngx_memzero(&info, sizeof(info));

    (void) getsockopt(conn->connection->fd, IPPROTO_TCP, TCP_INFO, &info, &len);

    if (passed < NGX_RL_BACKOFF_HANDSHAKE_MS && info.tcpi_unacked == 0) {
        ngx_add_timer(&conn->timer,
                      ngx_min(NGX_RL_BACKOFF_MAX_MS,
                              NGX_RL_BACKOFF_HANDSHAKE_MS - passed));
        return;
    }

    if (info.tcpi_unacked == 0) {
        conn->busy++;
        ngx_rl_redis_conn_mark(conn);
    }

    ngx_rl_redis_conn_break(conn, NGX_ETIMEDOUT, "the TLS handshake timed out");
}


ngx_rl_redis_request_t *
ngx_rl_redis_conn_head(ngx_rl_redis_conn_t *conn)
{
    if (ngx_queue_empty(&conn->requests)) {
        return NULL;
    }

    return ngx_queue_data(ngx_queue_head(&conn->requests),
                          ngx_rl_redis_request_t, queue);
}


void
ngx_rl_redis_conn_recovered(ngx_rl_redis_conn_t *conn)
{
    conn->good = 1;
    conn->busy = 0;

    if (conn->failures) {
        conn->failures = 0;
        conn->owner->recovered(conn);
    }
}


/* The timer of a connection that is up: is the peer alive, is it needed? */
static void
ngx_rl_redis_conn_check(ngx_rl_redis_conn_t *conn)
{
    ngx_msec_t               waited, dead_ms;
    ngx_rl_redis_request_t  *request;

    request = ngx_rl_redis_conn_head(conn);

    if (request == NULL && !conn->owner->used(conn)) {
        return;
    }

    if (request == NULL) {

        /* staying connected shows that it is back, too */

        if (ngx_current_msec - conn->up_ms >= NGX_RL_BACKOFF_MAX_MS
            && !conn->unfit)
        {
            ngx_rl_redis_conn_recovered(conn);
        }

        if (conn->failures) {
            ngx_rl_redis_conn_watch(conn);
        }

        return;
    }

    waited = ngx_current_msec - request->since_ms;
    dead_ms = conn->net->dead_ms;

    if (waited >= dead_ms) {
        ngx_rl_redis_conn_break(conn, NGX_ETIMEDOUT,
                                "the oldest call has no reply");
        return;
    }

    ngx_add_timer(&conn->timer, dead_ms - waited);
}


static void
ngx_rl_redis_conn_timer_handler(ngx_event_t *ev)
{
    ngx_rl_redis_conn_t  *conn;

    conn = ev->data;

    switch (conn->state) {

    case NGX_RL_REDIS_DOWN:

        if (ngx_exiting) {
            return;
        }

        if (conn->owner->used(conn) && !conn->lazy) {
            ngx_rl_redis_conn_begin(conn);
        }

        return;

    case NGX_RL_REDIS_BROKEN:

        if (!ngx_exiting) {
            ngx_rl_redis_conn_begin(conn);
        }

        return;

    case NGX_RL_REDIS_RESOLVING:
        ngx_rl_redis_resolve_cancel(conn);
        ngx_rl_redis_resolve_failed(conn, NGX_RESOLVE_TIMEDOUT);
        return;

    case NGX_RL_REDIS_CONNECTING:
        ngx_rl_redis_conn_break(conn, NGX_ETIMEDOUT, "connect() timed out");
        return;

    case NGX_RL_REDIS_HANDSHAKE:
        ngx_rl_redis_conn_shaking(conn);
        return;

    case NGX_RL_REDIS_UP:
        ngx_rl_redis_conn_check(conn);
        return;
    }
}


void
ngx_rl_redis_conn_init(ngx_rl_redis_conn_t *conn, ngx_rl_redis_net_t *net,
    const ngx_rl_redis_owner_t *owner, void *data)
{
    conn->data = data;
    conn->owner = owner;
    conn->net = net;
    conn->fd = (ngx_socket_t) -1;
    conn->name.data = conn->text;

    ngx_queue_init(&conn->requests);
    conn->next = &conn->requests;

    conn->timer.data = conn;
    conn->timer.log = net->log;
    conn->timer.handler = ngx_rl_redis_conn_timer_handler;
    conn->timer.cancelable = 1;

    conn->flush.data = conn;
    conn->flush.log = net->log;
    conn->flush.handler = ngx_rl_redis_conn_flush_handler;
}


void
ngx_rl_redis_conn_set_host(ngx_rl_redis_conn_t *conn,
    const ngx_rl_redis_host_t *host, const ngx_str_t *name)
{
    /* it was verified under the name before */

    ngx_rl_redis_tls_forget(conn);

    conn->name.len = name->len;

    if (host->port) {
        ngx_strlow(conn->name.data, name->data, name->len);

    } else {
        ngx_memcpy(conn->name.data, name->data, name->len);
    }

    conn->host = *host;
    conn->host.host.data = conn->name.data;
}


void
ngx_rl_redis_conn_free(ngx_rl_redis_conn_t *conn)
{
    ngx_rl_redis_conn_close(conn);

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_rl_redis_tls_forget(conn);
}


/*
 * All workers of a fleet may start at the same time. A connection that nobody
 * waits for yet takes its time; the first request begins it.
 */
void
ngx_rl_redis_conn_begin_soon(ngx_rl_redis_conn_t *conn)
{
    conn->state = NGX_RL_REDIS_BROKEN;

    ngx_add_timer(&conn->timer, 1 + ngx_random() % NGX_RL_BACKOFF_FIRST_MS);
}


void
ngx_rl_redis_conn_shook(ngx_rl_redis_conn_t *conn, const char *reason)
{
    ngx_connection_t  *c;

    if (reason) {
        ngx_rl_redis_conn_break(conn, 0, reason);
        return;
    }

    c = conn->connection;
    c->read->handler = ngx_rl_redis_conn_read_handler;
    c->write->handler = ngx_rl_redis_conn_write_handler;

    /* TLS may have read ahead: no event would come for that */

    ngx_post_event(c->read, &ngx_posted_events);

    ngx_rl_redis_conn_up(conn);
}


void
ngx_rl_redis_conn_release(ngx_rl_redis_conn_t *conn)
{
    if (!conn->timer.timer_set && !ngx_exiting) {
        ngx_add_timer(&conn->timer, conn->net->dead_ms);
    }
}


void
ngx_rl_redis_conn_retry(ngx_rl_redis_conn_t *conn)
{
    /* a worker that exits connects for what somebody still waits for alone */

    if (conn->state != NGX_RL_REDIS_DOWN
        || (ngx_exiting && !conn->lazy)
        || ngx_current_msec - conn->retried_ms < NGX_RL_REDIS_RETRY_MS)
    {
        return;
    }

    conn->retried_ms = ngx_current_msec;

    if (conn->timer.timer_set) {
        ngx_del_timer(&conn->timer);
    }

    ngx_rl_redis_conn_begin(conn);
}


ngx_int_t
ngx_rl_redis_conn_connected(ngx_rl_redis_conn_t *conn)
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
        ngx_rl_redis_conn_break(conn, err, "connect() failed");
        return NGX_AGAIN;
    }

    ngx_rl_redis_conn_opened(conn);

    return (conn->state == NGX_RL_REDIS_UP) ? NGX_OK : NGX_AGAIN;
}

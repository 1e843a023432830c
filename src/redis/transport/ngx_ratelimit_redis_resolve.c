/*
 * Where a connection's host is. A host may be an address. A name of the
 * configuration may have known addresses. For any other name the worker asks
 * nginx's resolver at each attempt to connect, which answers at once if it has
 * asked lately.
 *
 * Several addresses are tried one after the other, in an order of their own:
 * name servers change theirs with every answer.
 */

#include "ngx_ratelimit_redis_conn.h"
#include "ngx_ratelimit_redis_resolve.h"


static void ngx_ratelimit_redis_resolve_handler(ngx_resolver_ctx_t *ctx);
static void ngx_ratelimit_redis_resolve_failed(
    ngx_ratelimit_redis_conn_t *conn, ngx_int_t state);
static ngx_uint_t ngx_ratelimit_redis_resolve_before(
    const ngx_ratelimit_redis_conn_t *conn, struct sockaddr *one,
    socklen_t one_len, struct sockaddr *two, socklen_t two_len);
static void ngx_ratelimit_redis_resolve_set(ngx_ratelimit_redis_conn_t *conn,
    struct sockaddr *sockaddr, socklen_t socklen);


socklen_t
ngx_ratelimit_redis_resolve_numeric(const ngx_ratelimit_redis_host_t *host,
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


void
ngx_ratelimit_redis_resolve(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_resolver_ctx_t     *ctx;
    ngx_ratelimit_redis_t  *redis;

    redis = conn->net->redis;

    if (redis->resolver == NULL) {
        ngx_ratelimit_redis_conn_resolved(conn,
                         "its host is a name, expected a \"resolver\"");
        return;
    }

    ctx = ngx_resolve_start(redis->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        ngx_ratelimit_redis_conn_resolved(conn, "no memory");
        return;
    }

    ctx->name = conn->host.host;
    ctx->handler = ngx_ratelimit_redis_resolve_handler;
    ctx->data = conn;
    ctx->timeout = redis->resolver_timeout;
    ctx->cancelable = 1;

    conn->query = ctx;

    /* the handler may be called from inside; an error frees ctx */

    if (ngx_resolve_name(ctx) != NGX_OK) {
        conn->query = NULL;
        ngx_ratelimit_redis_conn_resolved(conn, "no memory");
    }
}


static void
ngx_ratelimit_redis_resolve_handler(ngx_resolver_ctx_t *ctx)
{
    ngx_int_t                    state;
    ngx_uint_t                   i, best;
    ngx_resolver_addr_t         *addrs;
    ngx_ratelimit_redis_conn_t  *conn;

    conn = ctx->data;
    state = ctx->state;

    if (state == NGX_OK) {
        addrs = ctx->addrs;
        best = 0;

        for (i = 0; i < ctx->naddrs; i++) {
            ngx_inet_set_port(addrs[i].sockaddr, conn->host.port);

            if (ngx_ratelimit_redis_resolve_before(conn,
                                       addrs[i].sockaddr, addrs[i].socklen,
                                       addrs[best].sockaddr,
                                       addrs[best].socklen))
            {
                best = i;
            }
        }

        ngx_ratelimit_redis_resolve_set(conn, addrs[best].sockaddr,
                                        addrs[best].socklen);
    }

    conn->query = NULL;
    ngx_resolve_name_done(ctx);

    if (state == NGX_OK) {
        ngx_ratelimit_redis_conn_resolved(conn, NULL);
        return;
    }

    ngx_ratelimit_redis_resolve_failed(conn, state);
}


void
ngx_ratelimit_redis_resolve_timeout(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_resolve_cancel(conn);
    ngx_ratelimit_redis_resolve_failed(conn, NGX_RESOLVE_TIMEDOUT);
}


/*
 * A name server that is out of order takes away no address that was good. One
 * that says that there is no such name does.
 */

static void
ngx_ratelimit_redis_resolve_failed(ngx_ratelimit_redis_conn_t *conn,
    ngx_int_t state)
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

    ngx_ratelimit_redis_conn_resolved(conn, conn->socklen ? NULL : reason);
}


void
ngx_ratelimit_redis_resolve_cancel(ngx_ratelimit_redis_conn_t *conn)
{
    if (conn->query) {
        ngx_resolve_name_done(conn->query);
        conn->query = NULL;
    }
}


void
ngx_ratelimit_redis_resolve_next(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_uint_t   i;
    ngx_addr_t  *addrs, *best;

    addrs = conn->host.addrs;
    best = &addrs[0];

    for (i = 1; i < conn->host.naddrs; i++) {
        if (ngx_ratelimit_redis_resolve_before(conn, addrs[i].sockaddr,
                                               addrs[i].socklen,
                                               best->sockaddr, best->socklen))
        {
            best = &addrs[i];
        }
    }

    ngx_ratelimit_redis_resolve_set(conn, best->sockaddr, best->socklen);
}


/* Whether one comes sooner, going up and around from the last address. */

static ngx_uint_t
ngx_ratelimit_redis_resolve_before(const ngx_ratelimit_redis_conn_t *conn,
    struct sockaddr *one, socklen_t one_len, struct sockaddr *two,
    socklen_t two_len)
{
    u_char      *last;
    ngx_uint_t   one_above, two_above;

    last = (u_char *) &conn->sockaddr;

    one_above = ngx_memn2cmp((u_char *) one, last, one_len, conn->socklen) > 0;
    two_above = ngx_memn2cmp((u_char *) two, last, two_len, conn->socklen) > 0;

    if (one_above != two_above) {
        return one_above;
    }

    return ngx_memn2cmp((u_char *) one, (u_char *) two, one_len, two_len) < 0;
}


static void
ngx_ratelimit_redis_resolve_set(ngx_ratelimit_redis_conn_t *conn,
    struct sockaddr *sockaddr, socklen_t socklen)
{
    ngx_memcpy(&conn->sockaddr, sockaddr, socklen);
    conn->socklen = socklen;
}

/*
 * Where a connection's host is. A host may be an address. A name of the
 * configuration may have known addresses. For any other name the worker asks
 * nginx's resolver at each attempt to connect, which answers at once if it has
 * asked lately.
 *
 * Several addresses are tried one after the other, in an order of their own:
 * name servers change theirs with every answer.
 */

#include "ngx_rl_redis_conn.h"


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


static void
ngx_rl_redis_resolve_set(ngx_rl_redis_conn_t *conn, const ngx_addr_t *addr)
{
    ngx_memcpy(&conn->sockaddr, addr->sockaddr, addr->socklen);
    conn->socklen = addr->socklen;
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


void
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


void
ngx_rl_redis_resolve_cancel(ngx_rl_redis_conn_t *conn)
{
    if (conn->query) {
        ngx_resolve_name_done(conn->query);
        conn->query = NULL;
    }
}


void
ngx_rl_redis_resolve_timeout(ngx_rl_redis_conn_t *conn)
{
    ngx_rl_redis_resolve_cancel(conn);
    ngx_rl_redis_resolve_failed(conn, NGX_RESOLVE_TIMEDOUT);
}

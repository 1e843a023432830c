/*
 * Who a connection is: the host and port that the configuration or a node has
 * named. Whoever names one gets the connection that there is, also where it was
 * known by another name, or a new one.
 */

#include "ngx_ratelimit_redis_int.h"


static u_char *ngx_ratelimit_redis_conn_name(u_char *p,
    const ngx_ratelimit_redis_host_t *host);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_conn_obtain(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, ngx_uint_t sentinel);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_conn_find(
    ngx_ratelimit_redis_client_t *client, const ngx_str_t *name,
    ngx_uint_t sentinel);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_conn_leads(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_conn_new(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, const ngx_str_t *name,
    ngx_uint_t sentinel);
static void ngx_ratelimit_redis_conn_identify(
    ngx_ratelimit_redis_conn_t *conn, const ngx_ratelimit_redis_host_t *host,
    const ngx_str_t *name);


ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_conn_get(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host)
{
    return ngx_ratelimit_redis_conn_obtain(client, host, 0);
}


ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_conn_sentinel(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host)
{
    return ngx_ratelimit_redis_conn_obtain(client, host, 1);
}


static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_conn_obtain(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, ngx_uint_t sentinel)
{
    u_char                       data[NGX_RATELIMIT_REDIS_NAME];
    ngx_str_t                    name;
    ngx_ratelimit_redis_conn_t  *conn;

    if (host->host.len == 0
        || host->host.len > NGX_RATELIMIT_REDIS_MAX_HOST)
    {
        return NULL;
    }

    name.data = data;
    name.len = ngx_ratelimit_redis_conn_name(data, host) - data;

    conn = ngx_ratelimit_redis_conn_find(client, &name, sentinel);

    if (conn) {
        return conn;
    }

    conn = sentinel ? NULL : ngx_ratelimit_redis_conn_leads(client, host);

    if (conn) {

        /* a seed's other spelling: all workers shall mean the same shard */

        if (conn->owned == 0) {
            ngx_ratelimit_redis_conn_identify(conn, host, &name);
        }

        return conn;
    }

    if (client->nconns == NGX_RATELIMIT_REDIS_MAX_CONNS) {
        return NULL;
    }

    conn = ngx_ratelimit_redis_conn_new(client, host, &name, sentinel);
    if (conn == NULL) {
        return NULL;
    }

    ngx_queue_insert_tail(&client->conns, &conn->queue);
    client->nconns++;

    if (sentinel || !client->lazy) {
        ngx_ratelimit_redis_conn_first(conn);
    }

    return conn;
}


/* The host comes first: "10.0.0.1:6379", "::1 6379", "/run/redis". */

static u_char *
ngx_ratelimit_redis_conn_name(u_char *p,
    const ngx_ratelimit_redis_host_t *host)
{
    u_char  *colon;

    p = ngx_cpymem(p, host->host.data, host->host.len);

    if (host->port == 0) {
        return p;
    }

    colon = ngx_strlchr(host->host.data, host->host.data + host->host.len,
                        ':');

    return ngx_sprintf(p, "%c%ui", colon ? ' ' : ':',
                       (ngx_uint_t) host->port);
}


static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_conn_find(ngx_ratelimit_redis_client_t *client,
    const ngx_str_t *name, ngx_uint_t sentinel)
{
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_conn_t  *conn;

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->name.len == name->len
            && conn->sentinel == sentinel
            && ngx_strncasecmp(conn->name.data, name->data, name->len) == 0)
        {
            return conn;
        }
    }

    return NULL;
}


/*
 * The connection that leads to a numeric host, NULL where none does. One in its
 * handshake must stay who it is: a name is verified at the end of that.
 */

static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_conn_leads(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host)
{
    socklen_t                    socklen;
    ngx_queue_t                 *q;
    ngx_sockaddr_t               sa;
    ngx_ratelimit_redis_conn_t  *conn;
    ngx_ratelimit_redis_state_e  least;

    socklen = ngx_ratelimit_redis_resolve_numeric(host, &sa);

    if (socklen == 0) {
        return NULL;
    }

    least = client->redis->tls.on ? NGX_RATELIMIT_REDIS_UP
                                  : NGX_RATELIMIT_REDIS_CONNECTING;

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->state >= least
            && !conn->sentinel
            && ngx_cmp_sockaddr(&conn->sockaddr.sockaddr, conn->socklen,
                                &sa.sockaddr, socklen, 1)
               == NGX_OK)
        {
            return conn;
        }
    }

    return NULL;
}


static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_conn_new(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, const ngx_str_t *name,
    ngx_uint_t sentinel)
{
    ngx_ratelimit_redis_conn_t  *conn;

    conn = ngx_calloc(sizeof(ngx_ratelimit_redis_conn_t)
                      + NGX_RATELIMIT_REDIS_NAME, client->log);
    if (conn == NULL) {
        return NULL;
    }

    conn->client = client;
    conn->fd = (ngx_socket_t) -1;
    conn->reply.log = client->log;
    conn->sentinel = sentinel;
    conn->used_ms = ngx_current_msec;
    conn->lost_ms = ngx_current_msec;

    conn->name.data = (u_char *) &conn[1];
    ngx_ratelimit_redis_conn_identify(conn, host, name);

    ngx_queue_init(&conn->calls);
    conn->next = &conn->calls;

    conn->timer.data = conn;
    conn->timer.log = client->log;
    conn->timer.handler = ngx_ratelimit_redis_conn_timer_handler;
    conn->timer.cancelable = 1;

    conn->flush.data = conn;
    conn->flush.log = client->log;
    conn->flush.handler = ngx_ratelimit_redis_conn_flush_handler;

    return conn;
}


/* Says who conn is, also when it was somebody else before. */

static void
ngx_ratelimit_redis_conn_identify(ngx_ratelimit_redis_conn_t *conn,
    const ngx_ratelimit_redis_host_t *host, const ngx_str_t *name)
{
    /* it was verified under the name before */

    ngx_ratelimit_redis_tls_forget(conn);

    conn->name.len = name->len;

    if (host->port) {
        ngx_strlow(conn->name.data, name->data, name->len);

    } else {
        ngx_memcpy(conn->name.data, name->data, name->len);
    }

    conn->host = *host;
    conn->host.host.data = conn->name.data;

    if (!conn->sentinel) {
        conn->shard = ngx_ratelimit_redis_shard(conn->client->redis->shared,
                                                &conn->name);
    }

    if (host->naddrs) {
        return;
    }

    /* a host that is an address needs nobody to say where it is */

    conn->addr.socklen = ngx_ratelimit_redis_resolve_numeric(
                             &conn->host, &conn->addr_data);
    if (conn->addr.socklen) {
        conn->addr.sockaddr = &conn->addr_data.sockaddr;
        conn->addr.name = conn->name;
        conn->host.addrs = &conn->addr;
        conn->host.naddrs = 1;
    }
}


void
ngx_ratelimit_redis_conns_keep(ngx_ratelimit_redis_client_t *client)
{
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_conn_t    *conn;
    ngx_ratelimit_redis_shared_t  *shared;

    static const ngx_str_t  map = ngx_string(NGX_RATELIMIT_REDIS_MAP_SHARD);

    shared = client->redis->shared;

    if (client->map_shard) {
        client->map_shard = ngx_ratelimit_redis_shard(shared, &map);
    }

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (!conn->sentinel) {
            conn->shard = ngx_ratelimit_redis_shard(shared, &conn->name);
        }
    }
}

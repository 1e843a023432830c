/*
 * A worker's slot map: the connection that each slot has, the connections to
 * ask for another map, and the addresses that a node names.
 */

#include "ngx_ratelimit_redis_int.h"
#include "ngx_ratelimit_text.h"


static void ngx_ratelimit_redis_seeds_connect(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_unmapped_route(
    ngx_ratelimit_redis_client_t *client);
static size_t ngx_ratelimit_redis_own_host(ngx_ratelimit_redis_conn_t *conn,
    u_char *text);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_node(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_slot_node_t *named);
static ngx_int_t ngx_ratelimit_redis_number(const u_char *text, size_t len,
    uint64_t min, uint64_t max);


ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_cluster_from(ngx_ratelimit_redis_client_t *client)
{
    ngx_uint_t                   n, up;
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_conn_t  *conn;

    up = 0;

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);
        up += (conn->state == NGX_RATELIMIT_REDIS_UP);
    }

    if (up == 0) {
        ngx_ratelimit_redis_seeds_connect(client);
        return NULL;
    }

    /* the workers' lists are much alike, so the node asks all in turn */

    n = atomic_load(&client->redis->shared->refreshes) % up;

    for (q = ngx_queue_head(&client->conns); ; q = ngx_queue_next(q)) {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->state == NGX_RATELIMIT_REDIS_UP && n-- == 0) {
            return conn;
        }
    }
}


static void
ngx_ratelimit_redis_seeds_connect(ngx_ratelimit_redis_client_t *client)
{
    ngx_uint_t                   i;
    ngx_ratelimit_redis_conn_t  *conn;
    ngx_ratelimit_redis_host_t  *hosts;

    hosts = client->redis->hosts.elts;

    for (i = 0; i < client->redis->hosts.nelts; i++) {
        conn = ngx_ratelimit_redis_conn_get(client, &hosts[i]);

        if (conn && client->lazy) {
            ngx_ratelimit_redis_conn_retry(conn);
        }
    }
}


ngx_uint_t
ngx_ratelimit_redis_map_write(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_slot_map_t *map)
{
    size_t                        len;
    u_char                       *host, text[NGX_SOCKADDR_STRLEN];
    ngx_int_t                     port;
    ngx_str_t                    *master;
    ngx_uint_t                    i, valid;
    ngx_ratelimit_redis_range_t  *range;

    valid = 0;
    ngx_ratelimit_slot_map_clear(map);

    /* a master, [host, port], owns all slots */

    if (conn->sentinel && conn->reply.flat && conn->reply.ntexts == 2
        && conn->reply.n == 0)
    {
        master = conn->reply.texts;
        port = ngx_ratelimit_redis_number(master[1].data, master[1].len, 1,
                                          65535);
        valid = ngx_ratelimit_slot_map_add(map, 0,
                                           NGX_RATELIMIT_CLUSTER_SLOTS - 1,
                                           master[0].data, master[0].len,
                                           port);
    }

    for (i = 0; i < conn->reply.nranges; i++) {
        range = &conn->reply.ranges[i];

        host = range->host;
        len = range->host_len;

        if (len == 0) {
            host = text;
            len = ngx_ratelimit_redis_own_host(conn, text);
        }

        valid += ngx_ratelimit_slot_map_add(map, range->first, range->last,
                                            host, len, range->port);
    }

    ngx_ratelimit_slot_map_finish(map);

    return valid;
}


void
ngx_ratelimit_redis_map_apply(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_slot_map_t *map)
{
    ngx_uint_t                   i, owner;
    ngx_ratelimit_redis_conn_t  *conns[1 + NGX_RATELIMIT_SLOT_MAP_NODES];

    client->strayed = 0;
    client->mapped = 1;

    conns[0] = NULL;

    for (i = 0; i < map->nnodes; i++) {
        conns[i + 1] = ngx_ratelimit_redis_node(client, &map->nodes[i]);

        /* too many, or no memory: the same map may do better later */

        if (conns[i + 1] == NULL) {
            client->strayed = 1;
        }
    }

    for (i = 0; i < NGX_RATELIMIT_CLUSTER_SLOTS; i++) {
        owner = map->owner[i];
        ngx_ratelimit_redis_slot_set(client, i, conns[owner]);
    }

    ngx_ratelimit_redis_map_settle(client);
    ngx_ratelimit_redis_unmapped_route(client);
}


void
ngx_ratelimit_redis_slot_set(ngx_ratelimit_redis_client_t *client,
    ngx_uint_t slot, ngx_ratelimit_redis_conn_t *conn)
{
    if (client->slots[slot]) {
        client->slots[slot]->owned--;
    }

    if (conn) {
        conn->owned++;
    }

    client->slots[slot] = conn;
}


/* An owner that stays DOWN: a failover is on its way, a new map is wanted. */

void
ngx_ratelimit_redis_map_settle(ngx_ratelimit_redis_client_t *client)
{
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_conn_t  *conn;

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->sentinel) {
            continue;
        }

        if (conn->owned == 0) {
            ngx_ratelimit_redis_conn_release(conn);
            continue;
        }

        if (client->lazy) {
            continue;
        }

        ngx_ratelimit_redis_conn_retry(conn);

        if (conn->state == NGX_RATELIMIT_REDIS_DOWN) {
            ngx_ratelimit_redis_refresh(client);
        }
    }
}


static void
ngx_ratelimit_redis_unmapped_route(ngx_ratelimit_redis_client_t *client)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&client->unmapped)) {
        q = ngx_queue_head(&client->unmapped);
        ngx_queue_remove(q);
        ngx_ratelimit_redis_route(
            ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue));
    }
}


ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_redirect(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t *slot)
{
    u_char                     *p, *last, *space, *colon;
    u_char                      own[NGX_SOCKADDR_STRLEN];
    ngx_int_t                   n, port;
    ngx_str_t                   text;
    ngx_ratelimit_slot_node_t   node;

    last = conn->reply.text + conn->reply.text_len;

    p = ngx_strlchr(conn->reply.text, last, ' ');
    if (p == NULL) {
        return NULL;
    }

    space = ngx_strlchr(++p, last, ' ');
    if (space == NULL) {
        return NULL;
    }

    n = ngx_ratelimit_redis_number(p, space - p, 0,
                                   NGX_RATELIMIT_CLUSTER_SLOTS - 1);
    p = space + 1;

    /* an IPv6 address has colons of its own, without brackets */

    for (colon = last - 1; colon > p && *colon != ':'; colon--) { /* void */ }

    if (n == NGX_ERROR || colon < p || *colon != ':') {
        return NULL;
    }

    port = ngx_ratelimit_redis_number(colon + 1, last - colon - 1, 1, 65535);

    if (port == NGX_ERROR) {
        return NULL;
    }

    text.data = p;
    text.len = colon - p;

    if (text.len == 0) {
        text.data = own;
        text.len = ngx_ratelimit_redis_own_host(conn, own);
    }

    if (!ngx_ratelimit_slot_node_set(&node, text.data, text.len, port)) {
        return NULL;
    }

    *slot = n;

    return ngx_ratelimit_redis_node(conn->client, &node);
}


/* Where conn leads to, which an empty host stands for. Returns its length. */

static size_t
ngx_ratelimit_redis_own_host(ngx_ratelimit_redis_conn_t *conn, u_char *text)
{
    if (conn->sockaddr.sockaddr.sa_family == AF_UNIX) {
        return 0;
    }

    return ngx_sock_ntop(&conn->sockaddr.sockaddr, conn->socklen, text,
                         NGX_SOCKADDR_STRLEN, 0);
}


/* What the configuration knows of a host's addresses is known of a node too. */

static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_node(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_slot_node_t *named)
{
    ngx_uint_t                   i;
    ngx_ratelimit_redis_host_t   node, *hosts;

    ngx_memzero(&node, sizeof(ngx_ratelimit_redis_host_t));

    node.host.data = (u_char *) named->host;
    node.host.len = named->len;
    node.port = named->port;

    hosts = client->redis->hosts.elts;

    for (i = 0; i < client->redis->hosts.nelts; i++) {

        if (client->redis->mode == NGX_RATELIMIT_REDIS_CLUSTER
            && hosts[i].port == node.port
            && hosts[i].host.len == node.host.len
            && ngx_strncasecmp(hosts[i].host.data, node.host.data,
                               node.host.len)
               == 0)
        {
            node.naddrs = hosts[i].naddrs;
            node.addrs = hosts[i].addrs;
        }
    }

    return ngx_ratelimit_redis_conn_get(client, &node);
}


ngx_int_t
ngx_ratelimit_redis_shard_stat(const ngx_ratelimit_redis_t *redis,
    ngx_queue_t **place, ngx_ratelimit_redis_shard_stat_t *stat)
{
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_conn_t    *conn;
    ngx_ratelimit_redis_client_t  *client;
    ngx_ratelimit_redis_shard_t   *shard;

    client = redis->client;
    shard = NULL;
    q = *place;

    if (q == NULL) {
        q = ngx_queue_head(&client->conns);

        if (client->slots) {
            ngx_ratelimit_redis_topology_look(client);

            if (!client->mapped) {
                q = ngx_queue_sentinel(&client->conns);
                shard = client->map_shard;
            }
        }
    }

    for ( /* void */ ;
         shard == NULL && q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (client->slots == NULL || conn->owned) {
            shard = conn->shard;
        }
    }

    *place = q;

    if (shard == NULL) {
        return NGX_DONE;
    }

    stat->name.data = shard->name;
    stat->name.len = shard->name_len;
    stat->state = ngx_ratelimit_breaker_state(&shard->breaker);

    return NGX_OK;
}


static ngx_int_t
ngx_ratelimit_redis_number(const u_char *text, size_t len, uint64_t min,
    uint64_t max)
{
    uint64_t  value;

    if (ngx_ratelimit_number_parse(text, len, min, max, &value) != 0) {
        return NGX_ERROR;
    }

    return (ngx_int_t) value;
}

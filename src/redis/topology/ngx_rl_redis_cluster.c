/*
 * A worker's slot map: the node of each hash slot, the nodes to ask for another
 * map, and the addresses that a node names.
 */

#include "ngx_rl_redis_client.h"
#include "ngx_rl_text.h"

#define ngx_rl_redis_is_up(node)                                              \
    ((node)->role == NGX_RL_REDIS_DATA                                        \
     && (node)->conn.state == NGX_RL_REDIS_UP                                \
     && !(node)->stranger)


ngx_rl_redis_node_t *
ngx_rl_redis_cluster_from(ngx_rl_redis_client_t *client)
{
    ngx_uint_t            i, n, from, up;
    ngx_rl_redis_node_t  *node, *stranger;
    ngx_rl_redis_host_t  *hosts;

    up = 0;
    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        up += ngx_rl_redis_is_up(node);
    }

    /* the workers' lists are much alike, so the node asks all in turn */

    from = atomic_load(&client->redis->shared->refreshes);

    if (up) {
        n = from % up;
        node = NULL;

        while (ngx_rl_redis_node_next(client, &node)) {
            if (ngx_rl_redis_is_up(node) && n-- == 0) {
                break;
            }
        }

        return node;
    }

    hosts = client->redis->hosts.elts;
    n = client->redis->hosts.nelts;
    stranger = NULL;

    for (i = 0; i < n; i++) {
        node = ngx_rl_redis_node_get(client, &hosts[(from % n + i) % n],
                                     NGX_RL_REDIS_DATA);

        if (node && client->control) {
            ngx_rl_redis_conn_retry(&node->conn);
        }

        if (node && node->conn.state == NGX_RL_REDIS_UP) {
            stranger = node;
        }
    }

    return stranger;
}


/* The node that has that id, NULL where none is known. */
static ngx_rl_redis_node_t *
ngx_rl_redis_identified(ngx_rl_redis_client_t *client, const u_char *id)
{
    const u_char         *known;
    ngx_rl_redis_node_t  *node;

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        known = node->own_id[0] ? node->own_id : node->map_id;

        if (id[0] && ngx_memcmp(known, id, NGX_RL_SLOT_MAP_ID) == 0) {
            return node;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_rl_redis_number(const u_char *text, size_t len, uint64_t min, uint64_t max)
{
    uint64_t  value;

    if (ngx_rl_number_parse(text, len, min, max, &value) != 0) {
        return NGX_ERROR;
    }

    return (ngx_int_t) value;
}


/* The address of node, for which an empty host stands. Returns its length. */
static size_t
ngx_rl_redis_own_host(ngx_rl_redis_node_t *node, u_char *text)
{
    if (node->conn.sockaddr.sockaddr.sa_family == AF_UNIX) {
        return 0;
    }

    return ngx_sock_ntop(&node->conn.sockaddr.sockaddr, node->conn.socklen,
                         text, NGX_SOCKADDR_STRLEN, 0);
}


ngx_uint_t
ngx_rl_redis_map_write(ngx_rl_redis_node_t *node, ngx_rl_slot_map_t *map)
{
    size_t                 len;
    u_char                *host, text[NGX_SOCKADDR_STRLEN];
    ngx_int_t              port;
    ngx_str_t             *master;
    ngx_uint_t             i, valid;
    ngx_rl_redis_node_t   *known;
    ngx_rl_redis_range_t  *range;

    static const u_char  none[NGX_RL_SLOT_MAP_ID];

    valid = 0;
    ngx_memzero(map, sizeof(ngx_rl_slot_map_t));

    /* a master, [host, port], owns all slots */

    if (node->role == NGX_RL_REDIS_ASKS_MASTER
        && node->reply.flat
        && node->reply.ntexts == 2
        && node->reply.n == 0)
    {
        master = node->reply.texts;
        port = ngx_rl_redis_number(master[1].data, master[1].len, 1, 65535);
        valid = ngx_rl_slot_map_add(map, 0, NGX_RL_CLUSTER_SLOTS - 1,
                                    master[0].data, master[0].len, port, none);
    }

    for (i = 0; i < node->reply.nranges; i++) {
        range = &node->reply.ranges[i];

        host = range->host;
        len = range->host_len;

        if (len == 0) {
            host = text;
            len = ngx_rl_redis_own_host(node, text);
        }

        /* while names spread: it is where it was */

        known = (len == 1 && host[0] == '?')
                ? ngx_rl_redis_identified(node->client, range->id) : NULL;

        if (known) {
            host = known->conn.host.host.data;
            len = known->conn.host.host.len;
            range->port = known->conn.host.port;
        }

        valid += ngx_rl_slot_map_add(map, range->first, range->last, host, len,
                                     range->port, range->id);
    }

    ngx_rl_slot_map_finish(map);

    return valid;
}


/* A node that the configuration names has the addresses known from there. */
static ngx_rl_redis_node_t *
ngx_rl_redis_named(ngx_rl_redis_client_t *client,
    const ngx_rl_slot_node_t *named)
{
    ngx_uint_t           i;
    ngx_rl_redis_host_t  host, *hosts;

    ngx_memzero(&host, sizeof(ngx_rl_redis_host_t));

    host.host.data = (u_char *) named->host;
    host.host.len = named->len;
    host.port = named->port;

    hosts = client->redis->hosts.elts;

    for (i = 0; i < client->redis->hosts.nelts; i++) {

        if (client->redis->mode == NGX_RL_REDIS_CLUSTER
            && hosts[i].port == host.port
            && hosts[i].host.len == host.host.len
            && ngx_strncasecmp(hosts[i].host.data, host.host.data,
                               host.host.len)
               == 0)
        {
            host.naddrs = hosts[i].naddrs;
            host.addrs = hosts[i].addrs;
        }
    }

    return ngx_rl_redis_node_get(client, &host, NGX_RL_REDIS_DATA);
}


void
ngx_rl_redis_slot_set(ngx_rl_redis_client_t *client, ngx_uint_t slot,
    ngx_rl_redis_node_t *node)
{
    if (client->topology.slots[slot]) {
        client->topology.slots[slot]->owned--;
    }

    if (node) {
        node->owned++;
    }

    client->topology.slots[slot] = node;
}


/* An owner that stays DOWN: a failover is on its way, a new map is wanted. */
void
ngx_rl_redis_map_settle(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_node_t  *node;

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        if (node->role != NGX_RL_REDIS_DATA) {
            continue;
        }

        if (node->owned == 0) {
            ngx_rl_redis_conn_release(&node->conn);
            continue;
        }

        if (client->control) {
            continue;
        }

        ngx_rl_redis_conn_retry(&node->conn);

        if (node->conn.state == NGX_RL_REDIS_DOWN) {
            ngx_rl_redis_refresh(client);
        }
    }
}


void
ngx_rl_redis_map_apply(ngx_rl_redis_client_t *client,
    const ngx_rl_slot_map_t *map)
{
    ngx_uint_t            i, owner;
    ngx_rl_redis_node_t  *node, *nodes[1 + NGX_RL_SLOT_MAP_NODES];

    client->topology.moved = 0;
    client->topology.mapped = 1;

    nodes[0] = NULL;

    for (i = 0; i < map->nnodes; i++) {
        node = ngx_rl_redis_named(client, &map->nodes[i]);
        nodes[i + 1] = node;

        /* too many, or no memory: the same map may do better later */

        if (node == NULL) {
            client->topology.moved = 1;
            continue;
        }

        ngx_memcpy(node->map_id, map->nodes[i].id, sizeof(node->map_id));

        if (node->own_id[0]) {
            ngx_rl_redis_node_known(node);
        }
    }

    for (i = 0; i < NGX_RL_CLUSTER_SLOTS; i++) {
        owner = map->owner[i];
        ngx_rl_redis_slot_set(client, i, nodes[owner]);
    }

    i = NGX_RL_CLUSTER_SLOTS - map->nslots;

    if (i && i != client->topology.uncovered && !client->control) {
        ngx_rl_redis_log(client, &client->redis->shared->uncovered,
                         NGX_RL_LOG_MS, NGX_LOG_ERR, 0,
                         "%ui hash slots have no node, requests whose "
                         "counters are there are degraded", i);
    }

    client->topology.uncovered = i;

    ngx_rl_redis_map_settle(client);
}


ngx_rl_redis_node_t *
ngx_rl_redis_redirect(ngx_rl_redis_node_t *node, ngx_uint_t *slot)
{
    u_char              *p, *last, *space, *colon;
    u_char               own[NGX_SOCKADDR_STRLEN];
    ngx_int_t            n, port;
    ngx_str_t            text;
    ngx_rl_slot_node_t   named;

    last = node->reply.text + node->reply.text_len;

    p = ngx_strlchr(node->reply.text, last, ' ');
    if (p == NULL) {
        return NULL;
    }

    space = ngx_strlchr(++p, last, ' ');
    if (space == NULL) {
        return NULL;
    }

    n = ngx_rl_redis_number(p, space - p, 0, NGX_RL_CLUSTER_SLOTS - 1);
    p = space + 1;

    /* an IPv6 address has colons of its own, without brackets */

    for (colon = last - 1; colon > p && *colon != ':'; colon--) { /* void */ }

    if (n == NGX_ERROR || colon < p || *colon != ':') {
        return NULL;
    }

    port = ngx_rl_redis_number(colon + 1, last - colon - 1, 1, 65535);

    if (port == NGX_ERROR) {
        return NULL;
    }

    text.data = p;
    text.len = colon - p;

    if (text.len == 0) {
        text.data = own;
        text.len = ngx_rl_redis_own_host(node, own);
    }

    if (!ngx_rl_slot_node_set(&named, text.data, text.len, port)) {
        return NULL;
    }

    *slot = n;

    return ngx_rl_redis_named(node->client, &named);
}

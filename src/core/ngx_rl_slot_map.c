/* The slot map: what is taken into it, and its one form. */

#include "ngx_rl_slot_map.h"

/* slots given in one map, over and over: more would hold up the process */
#define NGX_RL_SLOT_MAP_GIVEN  (4 * NGX_RL_CLUSTER_SLOTS)


int
ngx_rl_slot_node_set(ngx_rl_slot_node_t *node, const u_char *host, size_t len,
    int64_t port)
{
    u_char  ch;
    size_t  i;

    if (len == 0 || len > NGX_RL_SLOT_MAP_HOST || port < 1 || port > 65535) {
        return 0;
    }

    memset(node, 0, sizeof(ngx_rl_slot_node_t));

    node->port = (uint16_t) port;
    node->len = (u_char) len;

    for (i = 0; i < len; i++) {
        ch = host[i];

        if (ch >= 'A' && ch <= 'Z') {
            ch |= 0x20;
        }

        if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9')
            && ch != '.' && ch != '-' && ch != '_' && ch != ':')
        {
            return 0;
        }

        node->host[i] = ch;
    }

    return 1;
}


int
ngx_rl_slot_map_add(ngx_rl_slot_map_t *map, int64_t first, int64_t last,
    const u_char *host, size_t len, int64_t port,
    const u_char id[NGX_RL_SLOT_MAP_ID])
{
    int64_t              slot;
    unsigned             n;
    ngx_rl_slot_node_t  *nodes, node;

    if (first < 0 || first > last || last >= NGX_RL_CLUSTER_SLOTS
        || map->nslots + (last - first + 1) > NGX_RL_SLOT_MAP_GIVEN
        || !ngx_rl_slot_node_set(&node, host, len, port))
    {
        return 0;
    }

    memcpy(node.id, id, NGX_RL_SLOT_MAP_ID);

    nodes = map->nodes;

    for (n = 0; n < map->nnodes; n++) {
        if (nodes[n].port == node.port && nodes[n].len == node.len
            && memcmp(nodes[n].host, node.host, node.len) == 0)
        {
            break;
        }
    }

    if (n == NGX_RL_SLOT_MAP_NODES) {
        return 0;
    }

    if (n == map->nnodes) {
        nodes[n] = node;
        map->nnodes++;

    } else if (memcmp(nodes[n].id, node.id, NGX_RL_SLOT_MAP_ID) != 0) {

        /* a proxy for several nodes: they look like one */

        memset(nodes[n].id, 0, NGX_RL_SLOT_MAP_ID);
    }

    for (slot = first; slot <= last; slot++) {
        map->owner[slot] = (uint16_t) (n + 1);
    }

    map->nslots += (uint32_t) (last - first + 1);

    return 1;
}


void
ngx_rl_slot_map_finish(ngx_rl_slot_map_t *map)
{
    uint32_t            n, was, other, slot;
    uint16_t            place[NGX_RL_SLOT_MAP_NODES];
    uint16_t            stands[NGX_RL_SLOT_MAP_NODES];
    ngx_rl_slot_node_t  node;

    /* where a node of the old order is, and who stands at a place */

    for (n = 0; n < NGX_RL_SLOT_MAP_NODES; n++) {
        place[n] = (uint16_t) n;
        stands[n] = (uint16_t) n;
    }

    n = 0;
    map->nslots = 0;

    for (slot = 0; slot < NGX_RL_CLUSTER_SLOTS; slot++) {

        if (map->owner[slot] == 0) {
            continue;
        }

        was = map->owner[slot] - 1;

        if (place[was] >= n) {
            other = stands[n];

            node = map->nodes[n];
            map->nodes[n] = map->nodes[place[was]];
            map->nodes[place[was]] = node;

            stands[place[was]] = (uint16_t) other;
            place[other] = place[was];
            stands[n] = (uint16_t) was;
            place[was] = (uint16_t) n++;
        }

        map->owner[slot] = (uint16_t) (place[was] + 1);
        map->nslots++;
    }

    memset(&map->nodes[n], 0, (map->nnodes - n) * sizeof(ngx_rl_slot_node_t));
    map->nnodes = n;
}

/*
 * The map of a Cluster, from each slot to the node that owns it. One server
 * that a Sentinel named is a map too: it owns all slots.
 */

#ifndef NGX_RL_SLOT_MAP_H_INCLUDED
#define NGX_RL_SLOT_MAP_H_INCLUDED

#include <stddef.h>

#include "ngx_rl_hash.h"
#include "ngx_rl_types.h"

#define NGX_RL_SLOT_MAP_NODES  1024
#define NGX_RL_SLOT_MAP_HOST   255    /* bytes of a name */
#define NGX_RL_SLOT_MAP_ID     40     /* of a node's id */

typedef struct {
    uint16_t               port;
    u_char                 len;
    u_char                 host[NGX_RL_SLOT_MAP_HOST];
    u_char                 id[NGX_RL_SLOT_MAP_ID];
                                     /* zeroed: not known */
} ngx_rl_slot_node_t;

/* zeroed: no node has a slot */
typedef struct {
    uint32_t            nnodes;
    uint32_t            nslots;  /* given; from finish on, with an owner */
    uint16_t            owner[NGX_RL_CLUSTER_SLOTS];
                                     /* a node's number and 1; 0: none */
    ngx_rl_slot_node_t  nodes[NGX_RL_SLOT_MAP_NODES];
} ngx_rl_slot_map_t;

/* the bytes of a map up to its last node */
#define ngx_rl_slot_map_bytes(map)                                            \
    (offsetof(ngx_rl_slot_map_t, nodes)                                       \
     + (map)->nnodes * sizeof(ngx_rl_slot_node_t))


/*
 * A node of that host, 1 to 255 letters, digits and ".-_:", and port. Letters
 * become small ones, what the host does not fill is zeroed. Returns 1, or 0:
 * it is none.
 */
int ngx_rl_slot_node_set(ngx_rl_slot_node_t *node, const u_char *host,
    size_t len, int64_t port);

/*
 * Gives the slots first..last to a node; of two owners the later one has it.
 * id is its id, or zeros; a node that is named with two ids has none. Returns
 * 1, or 0 and changes nothing: a number is out of range, the node is none, the
 * map has as many nodes as it can, or slots were given four times as often as
 * there are any.
 */
int ngx_rl_slot_map_add(ngx_rl_slot_map_t *map, int64_t first, int64_t last,
    const u_char *host, size_t len, int64_t port,
    const u_char id[NGX_RL_SLOT_MAP_ID]);

/*
 * Brings the nodes into the order of their first slots and drops those without
 * any: maps that say the same are then the same bytes.
 */
void ngx_rl_slot_map_finish(ngx_rl_slot_map_t *map);

#endif /* NGX_RL_SLOT_MAP_H_INCLUDED */

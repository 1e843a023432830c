/*
 * The map of a Cluster, from each slot to the node that owns it, and the memory
 * where the processes of a gateway publish it for each other. One server that a
 * Sentinel named is a map too: it owns all slots.
 *
 * There is a right, too: to ask for a new map. It is the time of the last
 * question, so it comes back by itself when its owner dies.
 *
 * No lock: a process may die, or be stopped for long, at any instruction. A map
 * is written beside the one that is read and turned to by one word, which has
 * the checksum of its contents. A reader gets what one process wrote whole, or
 * nothing.
 */

#ifndef NGX_RATELIMIT_SLOT_MAP_H_INCLUDED
#define NGX_RATELIMIT_SLOT_MAP_H_INCLUDED

#include <stdatomic.h>

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_types.h"

#define NGX_RATELIMIT_SLOT_MAP_NODES  1024
#define NGX_RATELIMIT_SLOT_MAP_HOST   255    /* bytes of a name */

typedef struct {
    uint16_t               port;
    u_char                 len;
    u_char                 host[NGX_RATELIMIT_SLOT_MAP_HOST];
} ngx_ratelimit_slot_node_t;

typedef struct {
    uint32_t               nnodes;
    uint32_t               nslots;   /* given; from finish on, with an owner */
    uint16_t               owner[NGX_RATELIMIT_CLUSTER_SLOTS];
                                     /* a node's number and 1; 0: none */
    ngx_ratelimit_slot_node_t  nodes[NGX_RATELIMIT_SLOT_MAP_NODES];
} ngx_ratelimit_slot_map_t;

#define NGX_RATELIMIT_SLOT_MAP_WORDS                                          \
    (sizeof(ngx_ratelimit_slot_map_t) / sizeof(uint64_t))

/* zeroed: no map, and nobody has asked */
typedef struct {
    _Atomic uint64_t       head;      /* generation, checksum; 0: no map */
    _Atomic uint64_t       asked;     /* when, in ms: the right to ask */
    _Atomic uint64_t       answered;  /* when what was answered was asked */
    _Atomic uint64_t       words[2][NGX_RATELIMIT_SLOT_MAP_WORDS];
                                      /* of odd and of even generations */
} ngx_ratelimit_slot_shared_t;


/*
 * A node of that host, 1 to 255 letters, digits and ".-_:", and port. Letters
 * become small ones, what the host does not fill is zeroed. Returns 1, or 0:
 * it is none.
 */
int ngx_ratelimit_slot_node_set(ngx_ratelimit_slot_node_t *node,
    const u_char *host, size_t len, int64_t port);

void ngx_ratelimit_slot_map_clear(ngx_ratelimit_slot_map_t *map);

/*
 * Gives the slots first..last to a node; of two owners the later one has it.
 * Returns 1, or 0 and changes nothing: a number is out of range, the node is
 * none, the map has as many nodes as it can, or slots were given four times as
 * often as there are any.
 */
int ngx_ratelimit_slot_map_add(ngx_ratelimit_slot_map_t *map, int64_t first,
    int64_t last, const u_char *host, size_t len, int64_t port);

/*
 * Brings the nodes into the order of their first slots and drops those without
 * any: maps that say the same are then the same bytes.
 */
void ngx_ratelimit_slot_map_finish(ngx_ratelimit_slot_map_t *map);


/* Which map is published, one load: 0 where there is none. */
#define ngx_ratelimit_slot_shared_head(shared)                                \
    atomic_load_explicit(&(shared)->head, memory_order_acquire)

/*
 * Copies the published map and sets head to which it is. Returns 1, or 0: there
 * is none that is whole. map has anything then, head is set.
 */
int ngx_ratelimit_slot_shared_read(ngx_ratelimit_slot_shared_t *shared,
    ngx_ratelimit_slot_map_t *map, uint64_t *head);

/*
 * Publishes a finished map in the place of the one that head names. Returns 1:
 * it is there and head names it, as it does where the same map was there
 * already. Returns 0: meanwhile another process has published another map.
 */
int ngx_ratelimit_slot_shared_publish(ngx_ratelimit_slot_shared_t *shared,
    const ngx_ratelimit_slot_map_t *map, uint64_t *head);

/*
 * Takes the right to ask, unless a process has taken it in the last
 * interval_ms. now_ms: a monotonic clock that the processes share, not 0.
 * Returns 0: it is taken and stands at now_ms; or the milliseconds until it can
 * be taken.
 */
uint64_t ngx_ratelimit_slot_shared_take(ngx_ratelimit_slot_shared_t *shared,
    uint64_t now_ms, uint64_t interval_ms);

/*
 * Keeps the right that this process took at mine_ms until now_ms, to ask now.
 * Returns 1, or 0: another one has it.
 */
int ngx_ratelimit_slot_shared_keep(ngx_ratelimit_slot_shared_t *shared,
    uint64_t mine_ms, uint64_t now_ms);

#endif /* NGX_RATELIMIT_SLOT_MAP_H_INCLUDED */

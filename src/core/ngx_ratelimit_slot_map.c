/*
 * The slot map, and where it is shared. A generation's parity names the words
 * it stands in, so a map is written where the last but one stood. The checksum
 * finds out a process that still reads that one, or still writes it after a
 * long stop.
 */

#include "ngx_ratelimit_slot_map.h"

/* slots given in one map, over and over: more would hold up the process */
#define NGX_RATELIMIT_SLOT_MAP_GIVEN      (4 * NGX_RATELIMIT_CLUSTER_SLOTS)

#define NGX_RATELIMIT_SLOT_SHARED_READS    4
#define NGX_RATELIMIT_SLOT_SHARED_ANEW_MS  600000

_Static_assert(sizeof(ngx_ratelimit_slot_map_t) % sizeof(uint64_t) == 0,
               "a map is whole words");

static unsigned ngx_ratelimit_slot_map_node(ngx_ratelimit_slot_map_t *map,
    const ngx_ratelimit_slot_node_t *node);
static int ngx_ratelimit_slot_node_valid(
    const ngx_ratelimit_slot_node_t *node);
static int ngx_ratelimit_slot_map_valid(const ngx_ratelimit_slot_map_t *map);
static size_t ngx_ratelimit_slot_map_words(
    const ngx_ratelimit_slot_map_t *map);
static uint64_t ngx_ratelimit_slot_map_head(
    const ngx_ratelimit_slot_map_t *map, uint32_t generation);
static int ngx_ratelimit_slot_shared_copy(ngx_ratelimit_slot_shared_t *shared,
    ngx_ratelimit_slot_map_t *map, uint64_t head);
static int ngx_ratelimit_slot_shared_same(ngx_ratelimit_slot_shared_t *shared,
    const ngx_ratelimit_slot_map_t *map, uint64_t head);
static uint64_t ngx_ratelimit_slot_word(const ngx_ratelimit_slot_map_t *map,
    size_t i);

#define ngx_ratelimit_slot_generation(head)  ((uint32_t) ((head) >> 32))
#define ngx_ratelimit_slot_words(shared, head)                                 \
    (shared)->words[ngx_ratelimit_slot_generation(head) & 1]


void
ngx_ratelimit_slot_map_clear(ngx_ratelimit_slot_map_t *map)
{
    memset(map, 0, sizeof(ngx_ratelimit_slot_map_t));
}


int
ngx_ratelimit_slot_map_add(ngx_ratelimit_slot_map_t *map, int64_t first,
    int64_t last, const u_char *host, size_t len, int64_t port)
{
    int64_t                    slot;
    unsigned                   owner;
    ngx_ratelimit_slot_node_t  node;

    if (first < 0 || first > last || last >= NGX_RATELIMIT_CLUSTER_SLOTS
        || map->nslots + (last - first + 1) > NGX_RATELIMIT_SLOT_MAP_GIVEN
        || !ngx_ratelimit_slot_node_set(&node, host, len, port))
    {
        return 0;
    }

    owner = ngx_ratelimit_slot_map_node(map, &node);

    if (owner == 0) {
        return 0;
    }

    for (slot = first; slot <= last; slot++) {
        map->owner[slot] = (uint16_t) owner;
    }

    map->nslots += (uint32_t) (last - first + 1);

    return 1;
}


/* A node's number and 1, a new one where it has none; 0: there is no room. */
static unsigned
ngx_ratelimit_slot_map_node(ngx_ratelimit_slot_map_t *map,
    const ngx_ratelimit_slot_node_t *node)
{
    unsigned                    n;
    ngx_ratelimit_slot_node_t  *nodes;

    nodes = map->nodes;

    for (n = 0; n < map->nnodes; n++) {
        if (nodes[n].port == node->port
            && nodes[n].len == node->len
            && memcmp(nodes[n].host, node->host, node->len) == 0)
        {
            return n + 1;
        }
    }

    if (n == NGX_RATELIMIT_SLOT_MAP_NODES) {
        return 0;
    }

    nodes[n] = *node;
    map->nnodes++;

    return n + 1;
}


int
ngx_ratelimit_slot_node_set(ngx_ratelimit_slot_node_t *node,
    const u_char *host, size_t len, int64_t port)
{
    size_t  i;

    if (len > NGX_RATELIMIT_SLOT_MAP_HOST || port < 1 || port > 65535) {
        return 0;
    }

    memset(node, 0, sizeof(ngx_ratelimit_slot_node_t));

    node->port = (uint16_t) port;
    node->len = (u_char) len;

    for (i = 0; i < len; i++) {
        node->host[i] = host[i];

        if (host[i] >= 'A' && host[i] <= 'Z') {
            node->host[i] |= 0x20;
        }
    }

    return ngx_ratelimit_slot_node_valid(node);
}


static int
ngx_ratelimit_slot_node_valid(const ngx_ratelimit_slot_node_t *node)
{
    u_char  ch;
    size_t  i;

    for (i = 0; i < node->len; i++) {
        ch = node->host[i];

        if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9')
            && ch != '.' && ch != '-' && ch != '_' && ch != ':')
        {
            return 0;
        }
    }

    return node->len > 0 && node->port > 0;
}


void
ngx_ratelimit_slot_map_finish(ngx_ratelimit_slot_map_t *map)
{
    uint32_t                   n, was, other, slot;
    uint16_t                   place[NGX_RATELIMIT_SLOT_MAP_NODES];
    uint16_t                   stands[NGX_RATELIMIT_SLOT_MAP_NODES];
    ngx_ratelimit_slot_node_t  node;

    /* where a node of the old order is, and who stands at a place */

    for (n = 0; n < NGX_RATELIMIT_SLOT_MAP_NODES; n++) {
        place[n] = (uint16_t) n;
        stands[n] = (uint16_t) n;
    }

    n = 0;
    map->nslots = 0;

    for (slot = 0; slot < NGX_RATELIMIT_CLUSTER_SLOTS; slot++) {

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

    memset(&map->nodes[n], 0,
           (map->nnodes - n) * sizeof(ngx_ratelimit_slot_node_t));
    map->nnodes = n;
}


/* The checksum says who wrote it, not that this is right. */
static int
ngx_ratelimit_slot_map_valid(const ngx_ratelimit_slot_map_t *map)
{
    uint32_t  n;

    for (n = 0; n < NGX_RATELIMIT_CLUSTER_SLOTS; n++) {
        if (map->owner[n] > map->nnodes) {
            return 0;
        }
    }

    for (n = 0; n < map->nnodes; n++) {
        if (!ngx_ratelimit_slot_node_valid(&map->nodes[n])) {
            return 0;
        }
    }

    return 1;
}


/* How many words a map has up to its last node. */
static size_t
ngx_ratelimit_slot_map_words(const ngx_ratelimit_slot_map_t *map)
{
    size_t  bytes;

    bytes = offsetof(ngx_ratelimit_slot_map_t, nodes)
            + map->nnodes * sizeof(ngx_ratelimit_slot_node_t);

    return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}


static uint64_t
ngx_ratelimit_slot_map_head(const ngx_ratelimit_slot_map_t *map,
    uint32_t generation)
{
    u_char              key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];
    ngx_ratelimit_id_t  hash;

    memset(key, 0, sizeof(key));
    memcpy(key, &generation, sizeof(generation));

    hash = ngx_ratelimit_siphash(key, (const u_char *) map,
                                 ngx_ratelimit_slot_map_words(map)
                                 * sizeof(uint64_t), 1, 3);

    return (uint64_t) generation << 32 | (uint32_t) hash.lo;
}


int
ngx_ratelimit_slot_shared_read(ngx_ratelimit_slot_shared_t *shared,
    ngx_ratelimit_slot_map_t *map, uint64_t *head)
{
    unsigned  n;
    uint64_t  seen;

    *head = ngx_ratelimit_slot_shared_head(shared);

    /* a map that is replaced while it is read is read anew */

    for (n = 0; *head && n < NGX_RATELIMIT_SLOT_SHARED_READS; n++) {

        if (ngx_ratelimit_slot_shared_copy(shared, map, *head)) {
            return 1;
        }

        seen = ngx_ratelimit_slot_shared_head(shared);

        if (seen == *head) {
            break;
        }

        *head = seen;
    }

    return 0;
}


static int
ngx_ratelimit_slot_shared_copy(ngx_ratelimit_slot_shared_t *shared,
    ngx_ratelimit_slot_map_t *map, uint64_t head)
{
    u_char            *p;
    size_t             i, n, end;
    uint64_t           word;
    _Atomic uint64_t  *words;

    words = ngx_ratelimit_slot_words(shared, head);
    p = (u_char *) map;

    n = 0;
    end = offsetof(ngx_ratelimit_slot_map_t, nodes) / sizeof(uint64_t);

    for (i = 0; i < end; i++) {
        word = atomic_load_explicit(&words[i], memory_order_relaxed);
        memcpy(p + i * sizeof(uint64_t), &word, sizeof(uint64_t));

        /* the first word says how many there are */

        if (i == 0) {
            if (map->nnodes > NGX_RATELIMIT_SLOT_MAP_NODES) {
                return 0;
            }

            end = ngx_ratelimit_slot_map_words(map);
        }

        n++;
    }

    memset(p + n * sizeof(uint64_t), 0,
           sizeof(ngx_ratelimit_slot_map_t) - n * sizeof(uint64_t));

    return ngx_ratelimit_slot_map_head(
               map, ngx_ratelimit_slot_generation(head)) == head
           && ngx_ratelimit_slot_map_valid(map);
}


int
ngx_ratelimit_slot_shared_publish(ngx_ratelimit_slot_shared_t *shared,
    const ngx_ratelimit_slot_map_t *map, uint64_t *head)
{
    size_t             i, n;
    uint32_t           generation;
    uint64_t           next, seen;
    _Atomic uint64_t  *words;

    seen = *head;

    if (seen && ngx_ratelimit_slot_shared_same(shared, map, seen)) {
        return 1;
    }

    generation = ngx_ratelimit_slot_generation(seen) + 1;

    if (generation == 0) {
        generation = 2;    /* 0 is none; the parity goes on */
    }

    next = ngx_ratelimit_slot_map_head(map, generation);
    words = ngx_ratelimit_slot_words(shared, next);
    n = ngx_ratelimit_slot_map_words(map);

    for (i = 0; i < n; i++) {

        /* another process may be ahead: its map must not suffer */

        if (ngx_ratelimit_slot_shared_head(shared) != seen) {
            break;
        }

        atomic_store_explicit(&words[i], ngx_ratelimit_slot_word(map, i),
                              memory_order_relaxed);
    }

    if (atomic_compare_exchange_strong(&shared->head, &seen, next)) {
        *head = next;
        return 1;
    }

    *head = seen;

    return 0;
}


/* Whether the words that head names are those of map, all of them. */
static int
ngx_ratelimit_slot_shared_same(ngx_ratelimit_slot_shared_t *shared,
    const ngx_ratelimit_slot_map_t *map, uint64_t head)
{
    size_t             i, n;
    _Atomic uint64_t  *words;

    words = ngx_ratelimit_slot_words(shared, head);
    n = ngx_ratelimit_slot_map_words(map);

    for (i = 0; i < n; i++) {
        if (atomic_load_explicit(&words[i], memory_order_relaxed)
            != ngx_ratelimit_slot_word(map, i))
        {
            return 0;
        }
    }

    return ngx_ratelimit_slot_map_head(
               map, ngx_ratelimit_slot_generation(head)) == head
           && ngx_ratelimit_slot_shared_head(shared) == head;
}


static uint64_t
ngx_ratelimit_slot_word(const ngx_ratelimit_slot_map_t *map, size_t i)
{
    uint64_t  word;

    memcpy(&word, (const u_char *) map + i * sizeof(uint64_t),
           sizeof(uint64_t));

    return word;
}


uint64_t
ngx_ratelimit_slot_shared_take(ngx_ratelimit_slot_shared_t *shared,
    uint64_t now_ms, uint64_t interval_ms)
{
    int64_t   passed;
    uint64_t  asked;

    asked = atomic_load(&shared->asked);

    if (asked) {

        /*
         * Below 0: this process read the clock some time ago. Far below: the
         * clock has started anew.
         */

        passed = (int64_t) (now_ms - asked);

        if (passed < (int64_t) interval_ms
            && passed > -NGX_RATELIMIT_SLOT_SHARED_ANEW_MS)
        {
            return interval_ms - (uint64_t) (passed > 0 ? passed : 0);
        }
    }

    return atomic_compare_exchange_strong(&shared->asked, &asked, now_ms)
           ? 0 : interval_ms;
}


int
ngx_ratelimit_slot_shared_keep(ngx_ratelimit_slot_shared_t *shared,
    uint64_t mine_ms, uint64_t now_ms)
{
    return atomic_compare_exchange_strong(&shared->asked, &mine_ms, now_ms);
}

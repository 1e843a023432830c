/* What the tests of the slot map share: maps that say which they are. */

#ifndef SLOT_MAP_H_INCLUDED
#define SLOT_MAP_H_INCLUDED

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "ngx_ratelimit_slot_map.h"


static inline uint64_t
mix(uint64_t n)
{
    n = (n + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    n = (n ^ n >> 29) * 0x94d049bb133111eb;

    return n ^ n >> 32;
}


static inline ngx_ratelimit_slot_map_t *
map_new(void)
{
    ngx_ratelimit_slot_map_t  *map;

    map = calloc(1, sizeof(ngx_ratelimit_slot_map_t));
    assert_non_null(map);

    return map;
}


static inline ngx_ratelimit_slot_shared_t *
shared_new(void)
{
    void  *p;

    p = mmap(NULL, sizeof(ngx_ratelimit_slot_shared_t),
             PROT_READ | PROT_WRITE, MAP_ANON | MAP_SHARED, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);

    return p;
}


static inline void
shared_free(ngx_ratelimit_slot_shared_t *shared)
{
    munmap(shared, sizeof(ngx_ratelimit_slot_shared_t));
}


static inline size_t
map_words(const ngx_ratelimit_slot_map_t *map)
{
    return (offsetof(ngx_ratelimit_slot_map_t, nodes)
            + map->nnodes * sizeof(ngx_ratelimit_slot_node_t) + 7) / 8;
}


/* The map of a number: 1 to 40 nodes, each part of it depends on the number. */
static inline void
map_version(ngx_ratelimit_slot_map_t *map, unsigned n)
{
    int      i, nodes;
    char     host[64];

    ngx_ratelimit_slot_map_clear(map);
    nodes = 2 + mix(n) % 39;

    for (i = 0; i < 64; i++) {
        snprintf(host, sizeof(host), "node-%u-%d.example", n, i % nodes);

        if (ngx_ratelimit_slot_map_add(map, i * 256, i * 256 + 255,
                                       (u_char *) host, strlen(host),
                                       1 + n % 65000)
            != 1)
        {
            abort();
        }
    }

    ngx_ratelimit_slot_map_finish(map);
}


/* Which number's map it is, 0: none, it is mixed. */
static inline unsigned
map_is(const ngx_ratelimit_slot_map_t *map)
{
    unsigned                   n;
    ngx_ratelimit_slot_map_t  *whole;

    if (sscanf((const char *) map->nodes[0].host, "node-%u-", &n) != 1) {
        return 0;
    }

    whole = map_new();
    map_version(whole, n);

    if (memcmp(whole, map, sizeof(*map)) != 0) {
        n = 0;
    }

    free(whole);

    return n;
}

#endif /* SLOT_MAP_H_INCLUDED */

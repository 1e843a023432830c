/*
 * What the tests of the table of leases share: a table, and what they keep in
 * it.
 */

#ifndef LEASES_H_INCLUDED
#define LEASES_H_INCLUDED

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/mman.h>

#include "ngx_ratelimit_leases.h"

#define NOW    1000000
#define LATER  (NOW + 60 * 1000000)
#define MIB    ((size_t) 1024 * 1024)

#define WORDS  (NGX_RATELIMIT_LEASE_BYTES / sizeof(uint64_t) - 1)

typedef struct {
    uint64_t  busy_us;
    uint64_t  word[WORDS];
} lease_t;

typedef struct {
    ngx_ratelimit_leases_t  *leases;
    size_t                   size;
} map_t;


/* splitmix64 */
static inline uint64_t
mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;

    return x ^ (x >> 31);
}


static inline ngx_ratelimit_id_t
key(uint64_t n)
{
    ngx_ratelimit_id_t  id;

    id.hi = mix(2 * n);
    id.lo = mix(2 * n + 1);

    return id;
}


static inline map_t
leases_make(size_t size)
{
    map_t  map;

    map.size = size;
    map.leases = mmap(NULL, size, PROT_READ|PROT_WRITE,
                      MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map.leases, MAP_FAILED);
    assert_int_equal(ngx_ratelimit_leases_init(map.leases, size), NGX_OK);

    return map;
}


static inline void
leases_free(map_t map)
{
    assert_int_equal(munmap(map.leases, map.size), 0);
}


static inline ngx_ratelimit_segments_stat_t
stat_at(map_t map, uint64_t now_us)
{
    ngx_ratelimit_segments_stat_t  stat;

    ngx_ratelimit_leases_stat(map.leases, now_us, &stat);

    return stat;
}


/* Makes it, or finds it, and keeps it busy. Returns whether there was room. */
static inline int
put_id(map_t map, ngx_ratelimit_id_t id, uint64_t now_us, uint64_t busy_us)
{
    lease_t                      *lease;
    ngx_ratelimit_lease_entry_t   e;

    lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, now_us, &e);

    if (lease == NULL) {
        return 0;
    }

    lease->busy_us = busy_us;
    lease->word[0] = id.lo;
    ngx_ratelimit_leases_unlock(&e);

    return 1;
}


static inline int
put(map_t map, uint64_t n, uint64_t now_us, uint64_t busy_us)
{
    return put_id(map, key(n), now_us, busy_us);
}


/* What stands there, without making it. */
static inline lease_t
get_id(map_t map, ngx_ratelimit_id_t id, int *found)
{
    lease_t                       copy, *lease;
    ngx_ratelimit_lease_entry_t   e;

    ngx_memzero(&copy, sizeof(copy));
    lease = ngx_ratelimit_leases_lock(map.leases, &id, 0, NOW, &e);
    *found = (lease != NULL);

    if (lease) {
        copy = *lease;
        ngx_ratelimit_leases_unlock(&e);
    }

    return copy;
}


static inline int
has(map_t map, uint64_t n)
{
    int  found;

    (void) get_id(map, key(n), &found);

    return found;
}

#endif /* LEASES_H_INCLUDED */

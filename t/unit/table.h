/*
 * What the table's tests share: a table, its counters, and a look inside.
 */

#ifndef TABLE_H_INCLUDED
#define TABLE_H_INCLUDED

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/mman.h>

#include "ngx_ratelimit_table.h"

#define NOW    1000000
#define LATER  (NOW + 60 * 1000000)
#define MIB    ((size_t) 1024 * 1024)

/* The bucket as the architecture fixes it: the tests look into it. */
typedef struct {
    uint64_t  tag[3];
    uint64_t  word[3];
    uint32_t  extra[3];
    u_char    loss[3];
    u_char    known;
} bucket_t;

typedef struct {
    ngx_ratelimit_table_t  *table;
    size_t                  size;
} map_t;

static const u_char  hash_key[] = "0123456789abcdef";


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
table_make(size_t size)
{
    map_t  map;

    map.size = size;
    map.table = mmap(NULL, size, PROT_READ|PROT_WRITE,
                     MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map.table, MAP_FAILED);
    assert_int_equal(ngx_ratelimit_table_init(map.table, size, hash_key),
                     NGX_OK);

    return map;
}


static inline void
table_free(map_t map)
{
    assert_int_equal(munmap(map.table, map.size), 0);
}


static inline void
put_id(ngx_ratelimit_table_t *table, ngx_ratelimit_id_t id, uint64_t fresh_us,
    uint32_t loss)
{
    ngx_ratelimit_entry_t  e;

    ngx_ratelimit_table_lock(table, &id, NOW, &e);
    e.state.fresh_us = fresh_us;
    e.state.aux = 7;
    e.state.extra = (uint32_t) fresh_us;
    ngx_ratelimit_table_store(&e, loss);
}


static inline void
put(ngx_ratelimit_table_t *table, uint64_t n, uint64_t fresh_us, uint32_t loss)
{
    put_id(table, key(n), fresh_us, loss);
}


static inline ngx_ratelimit_entry_t
get_id(ngx_ratelimit_table_t *table, ngx_ratelimit_id_t id)
{
    ngx_ratelimit_entry_t  e;

    ngx_ratelimit_table_lock(table, &id, NOW, &e);
    ngx_ratelimit_table_unlock(&e);

    return e;
}


static inline ngx_ratelimit_segments_stat_t
stat_at(ngx_ratelimit_table_t *table, uint64_t now_us)
{
    ngx_ratelimit_segments_stat_t  stat;

    ngx_ratelimit_table_stat(table, now_us, &stat);

    return stat;
}


static inline int
copies(const ngx_ratelimit_entry_t *e)
{
    int              n, i;
    const bucket_t  *bucket;

    n = 0;

    for (i = 0; i < 6; i++) {
        bucket = e->buckets[i / 3];
        n += (bucket->tag[i % 3] == e->tag);
    }

    return n;
}

#endif /* TABLE_H_INCLUDED */

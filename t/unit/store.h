/*
 * What the store's tests share: a store, and records whose bytes follow from
 * their version and id.
 */

#ifndef STORE_H_INCLUDED
#define STORE_H_INCLUDED

#include "unit.h"

#include <ngx_config.h>
#include <ngx_core.h>

#include <stdatomic.h>
#include <sys/mman.h>

#include "ngx_rl_store.h"
#include "nginx.h"
#include "process.h"

#define ANY   NGX_RL_STORE_ANY
#define HEAD  17   /* bytes before a record's own: "%8u %7u " */

static size_t  mapped;


static inline ngx_rl_store_t *
store_make(size_t max)
{
    mapped = ngx_rl_store_size(max);
    ngx_rl_store_t *store = mmap(NULL, mapped, PROT_READ|PROT_WRITE,
                                 MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(store, MAP_FAILED);
    assert_int_equal(ngx_rl_store_init(store, mapped, max), NGX_OK);

    return store;
}


static inline void
store_free(ngx_rl_store_t *store)
{
    assert_int_equal(munmap(store, mapped), 0);
}


/* len is HEAD at least. The first letter of what follows says the others. */
static inline void
record_fill(u_char *p, uint64_t version, uint64_t id, size_t len)
{
    int n = snprintf((char *) p, HEAD + 1, "%8u %7u ", (unsigned) version,
                     (unsigned) len);
    assert_int_equal(n, HEAD);
    memset(p + HEAD, 'a' + (version * 7 + id) % 26, len - HEAD);
}


/* Whether the bytes at p are a whole record; returns its length, or 0. */
static inline size_t
record_whole(const u_char *p, size_t left, uint64_t *version)
{
    unsigned  v, len;

    *version = 0;

    if (left < HEAD || sscanf((const char *) p, "%8u %7u ", &v, &len) != 2
        || len < HEAD || len > left)
    {
        return 0;
    }

    for (size_t i = HEAD + 1; i < len; i++) {
        if (p[i] != p[HEAD]) {
            return 0;
        }
    }

    *version = v;

    return len;
}


static inline ngx_int_t
publish_at(ngx_rl_store_t *store, uint64_t version, uint64_t id, size_t len,
    uint64_t expected, uint64_t expected_id)
{
    ngx_rl_store_entry_t  entry;

    u_char *p = malloc(len + 1);
    assert_non_null(p);
    record_fill(p, version, id, len);

    entry.version = version;
    entry.id = id;
    entry.text.data = p;
    entry.text.len = len;

    ngx_int_t rc = ngx_rl_store_publish(store, &entry, expected, expected_id);
    free(p);

    return rc;
}


static inline ngx_int_t
publish(ngx_rl_store_t *store, uint64_t version, size_t len)
{
    return publish_at(store, version, 10 * version, len, ANY, 0);
}


/* What is read is there until the next read. */
static inline ngx_int_t
get(ngx_rl_store_t *store, ngx_rl_store_entry_t *entry)
{
    static ngx_pool_t  *pool;

    if (pool) {
        ngx_destroy_pool(pool);
    }

    pool = ngx_create_pool(4096, NULL);
    assert_non_null(pool);

    return ngx_rl_store_read(store, pool, entry);
}


/* The version that is current, and whole; 0: there is none. */
static inline uint64_t
current(ngx_rl_store_t *store)
{
    uint64_t              version;
    ngx_rl_store_entry_t  entry;

    if (get(store, &entry) != NGX_OK) {
        return 0;
    }

    assert_int_equal(record_whole(entry.text.data, entry.text.len, &version),
                     entry.text.len);
    assert_int_equal(entry.version, version);

    return version;
}

#endif /* STORE_H_INCLUDED */

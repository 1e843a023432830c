/*
 * What the tests of the two tables in shared memory share: a table, what is
 * kept in it, and a look inside. A table of leases is known by its first bytes.
 */

#ifndef TABLE_H_INCLUDED
#define TABLE_H_INCLUDED

#include "unit.h"

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/mman.h>

#include "ngx_rl_table.h"

#define NOW    1000000
#define LATER  (NOW + 60 * 1000000)
#define MIB    ((size_t) 1024 * 1024)

/* A set of counters as the architecture fixes it: the tests look into it. */
typedef struct {
    uint64_t  tag[3];
    uint64_t  word[3];
    uint32_t  extra[3];
    u_char    loss[3];
    u_char    known;
} set_t;

#define WORDS  (NGX_RL_LEASE_BYTES / sizeof(uint64_t) - 1)

typedef struct {
    uint64_t  busy_us;
    uint64_t  word[WORDS];
} lease_t;

typedef struct {
    void    *table;
    size_t   size;
} map_t;

static const ngx_rl_hash_key_t  hash_key = { .start = { 1, 2 } };


static inline ngx_rl_id_t
key(uint64_t n)
{
    return (ngx_rl_id_t) { mix(2 * n), mix(2 * n + 1) };
}


static inline int
of_leases(const void *table)
{
    return memcmp(table, "rlleases", 8) == 0;
}


static inline ngx_int_t
table_init(void *table, int leases, size_t size)
{
    return leases ? ngx_rl_leases_init(table, size)
                  : ngx_rl_table_init(table, size, &hash_key);
}


static inline ngx_int_t
table_check(void *table, int leases, size_t size)
{
    return leases ? ngx_rl_leases_check(table, size)
                  : ngx_rl_table_check(table, size);
}


static inline map_t
table_make(int leases, size_t size)
{
    map_t  map;

    map.size = size;
    map.table = mmap(NULL, size, PROT_READ|PROT_WRITE,
                     MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map.table, MAP_FAILED);
    assert_int_equal(table_init(map.table, leases, size), NGX_OK);

    return map;
}


static inline void
table_free(map_t map)
{
    assert_int_equal(munmap(map.table, map.size), 0);
}


static inline ngx_rl_segments_stat_t
stat_at(void *table, uint64_t now_us)
{
    ngx_rl_segments_stat_t  stat;

    if (of_leases(table)) {
        ngx_rl_leases_stat(table, now_us, NGX_RL_STAT_ALL, &stat);
    } else {
        ngx_rl_table_stat(table, now_us, NGX_RL_STAT_ALL, &stat);
    }

    return stat;
}


/* What is kept says until when, and follows from that and from whose it is. */
static inline void
state_fill(ngx_rl_state_t *state, uint64_t owner, uint64_t until)
{
    state->fresh_us = until;
    state->aux = until & 0xfff;
    state->extra = (uint32_t) (mix(until) ^ owner);
}


static inline int
state_whole(const ngx_rl_state_t *state, uint64_t owner)
{
    ngx_rl_state_t  want;

    state_fill(&want, owner, state->fresh_us);

    return state->aux == want.aux && state->extra == want.extra;
}


static inline void
lease_fill(lease_t *lease, uint64_t owner, uint64_t until)
{
    lease->busy_us = until;

    for (size_t i = 0; i < WORDS; i++) {
        lease->word[i] = mix(until + i) ^ owner;
        __asm__ __volatile__ ("" : : : "memory");
    }
}


/* one that was made just now is empty */
static inline int
lease_whole(const lease_t *lease, uint64_t owner)
{
    lease_t want = { 0 };

    if (lease->busy_us) {
        lease_fill(&want, owner, lease->busy_us);
    }

    return memcmp(lease, &want, sizeof(want)) == 0;
}


/* Makes or finds it. Returns 1; 0: no room; -1: what stood there was torn. */
static inline int
put_id(void *table, ngx_rl_id_t id, uint64_t now_us, uint64_t until,
    uint32_t loss)
{
    ngx_rl_entry_t        e;
    ngx_rl_lease_entry_t  l;

    if (of_leases(table)) {
        lease_t *lease = ngx_rl_leases_lock(table, id, 1, now_us, &l);

        if (lease == NULL) {
            return 0;
        }

        int rc = lease_whole(lease, id.lo) ? 1 : -1;
        lease_fill(lease, id.lo, until);
        ngx_rl_leases_unlock(&l);

        return rc;
    }

    ngx_rl_table_lock(table, &id, now_us, &e);
    int rc = (!e.found || state_whole(&e.state, id.lo)) ? 1 : -1;
    state_fill(&e.state, id.lo, until);
    ngx_rl_table_store(&e, loss);

    return rc;
}


static inline int
put(void *table, uint64_t n, uint64_t until)
{
    return put_id(table, key(n), NOW, until, 1);
}


/* Of counters: the entry, unlocked again. */
static inline ngx_rl_entry_t
entry_of(void *table, ngx_rl_id_t id)
{
    ngx_rl_entry_t  e;

    ngx_rl_table_lock(table, &id, NOW, &e);
    ngx_rl_table_unlock(&e);

    return e;
}


/* Until when; 0: it is not there. It is whole, or the test fails. */
static inline uint64_t
get_id(void *table, ngx_rl_id_t id)
{
    ngx_rl_lease_entry_t  l;

    if (of_leases(table)) {
        lease_t *lease = ngx_rl_leases_lock(table, id, 0, NOW, &l);
        lease_t copy = { 0 };

        if (lease) {
            copy = *lease;
            ngx_rl_leases_unlock(&l);
        }

        assert_true(lease_whole(&copy, id.lo));

        return copy.busy_us;
    }

    ngx_rl_entry_t e = entry_of(table, id);
    assert_true(!e.found || state_whole(&e.state, id.lo));

    return e.state.fresh_us;
}


static inline uint64_t
get(void *table, uint64_t n)
{
    return get_id(table, key(n));
}


/* The set of one of the six places that a counter may have. */
static inline set_t *
set_of(const ngx_rl_entry_t *e, int i)
{
    return (set_t *) (i < 3 ? e->at.first : e->at.second);
}


static inline int
copies(const ngx_rl_entry_t *e)
{
    int  n, i;

    for (n = 0, i = 0; i < 6; i++) {
        n += (set_of(e, i)->tag[i % 3] == e->at.tag);
    }

    return n;
}

#endif /* TABLE_H_INCLUDED */

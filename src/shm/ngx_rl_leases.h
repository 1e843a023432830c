/*
 * The leases of one zone, shared by the workers of one gateway: what it took
 * from Redis ahead of its requests, or knows that Redis would reject.
 *
 * A fixed table: sets of seven places, two candidate sets for each counter,
 * segments with a lock each. As the table of counters it does not know what
 * its bytes mean, but for the instant at their head.
 *
 * A busy lease is never evicted: if all places of a counter are busy, it has no
 * lease. A process that dies while it has a lease locked loses it.
 */

#ifndef NGX_RL_LEASES_H_INCLUDED
#define NGX_RL_LEASES_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_segment.h"

/* bytes of a lease, aligned to 64; what lies in them must not be larger */
#define NGX_RL_LEASE_BYTES       64

#define NGX_RL_LEASES_MIN_BYTES  (16 * 1024)

/*
 * make: the lease holds tokens, whose number is a uint32_t at the start of this
 * word of it. Without it, the place is for something that is kept like a lease.
 */
#define NGX_RL_LEASE_HOLDS       2
#define NGX_RL_LEASE_TOKENS      2

/* The table's header; all of it is the table's. */
typedef struct {
    _Alignas(NGX_RL_LINE) ngx_rl_segments_t  shape;
    _Atomic uint64_t          forgot_us;   /* 0: never */
    _Atomic uint64_t          rejected_us; /* see reject() */
} ngx_rl_leases_t;

/* A lease that is locked; all of it is the table's. */
typedef struct {
    ngx_rl_table_segment_t  *segment;   /* NULL: nothing is locked */
} ngx_rl_lease_entry_t;

/*
 * Makes a table in size zeroed bytes of shared memory aligned to 64. Returns
 * NGX_OK, or NGX_ERROR when size is below NGX_RL_LEASES_MIN_BYTES. Must
 * run before any process uses the table.
 */
ngx_int_t ngx_rl_leases_init(ngx_rl_leases_t *leases, size_t size);

/*
 * Whether the memory holds a table of this layout and size, without writing
 * to it: NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_rl_leases_check(ngx_rl_leases_t *leases, size_t size);

/*
 * Finds the counter's lease and returns its NGX_RL_LEASE_BYTES, locked:
 * as they were left, or, with make, all zero where there was none. The first
 * eight are a uint64_t, busy_us: below that instant the place is this
 * counter's. From then on it may become another's at any time, and the lease
 * is found until it does. The caller writes what it means to, soon, and ends
 * with ngx_rl_leases_unlock(). Meanwhile it locks nothing else.
 *
 * Returns NULL, and nothing is locked, where there is none and make is 0, or
 * where no place is free for one (counted). now_us is monotonic.
 */
void *ngx_rl_leases_lock(ngx_rl_leases_t *leases, ngx_rl_id_t id,
    ngx_uint_t make, uint64_t now_us, ngx_rl_lease_entry_t *entry);

/*
 * A counter was reset: what Redis said of counters until now_us, the clock of
 * lock, rejects nothing any more, in any process. forgot_us: when that was
 * last, 0: never.
 */
void ngx_rl_leases_forget(ngx_rl_leases_t *leases, uint64_t now_us);

/*
 * A counter is rejected until then, and its requests look for its lease. From
 * rejected_us on none is, and no such request need look.
 */
void ngx_rl_leases_reject(ngx_rl_leases_t *leases, uint64_t until_us);

/* See ngx_rl_segments_stat(). */
void ngx_rl_leases_stat(ngx_rl_leases_t *leases, uint64_t now_us, uint64_t max,
    ngx_rl_segments_stat_t *stat);


static ngx_inline uint64_t
ngx_rl_leases_forgot_us(const ngx_rl_leases_t *leases)
{
    return atomic_load_explicit(&leases->forgot_us, memory_order_relaxed);
}


static ngx_inline uint64_t
ngx_rl_leases_rejected_us(const ngx_rl_leases_t *leases)
{
    return atomic_load_explicit(&leases->rejected_us, memory_order_relaxed);
}


/* From here on a death costs no lease. */
static ngx_inline void
ngx_rl_lease_close(ngx_rl_table_segment_t *segment)
{
    ngx_rl_store_order();
    segment->open = 0;
}


/* Keeps what stands in the lease now, and unlocks; behind NULL does nothing. */
static ngx_inline void
ngx_rl_leases_unlock(ngx_rl_lease_entry_t *entry)
{
    if (entry->segment != NULL) {
        ngx_rl_lease_close(entry->segment);
        ngx_rl_unlock(&entry->segment->lock);
    }
}

#endif /* NGX_RL_LEASES_H_INCLUDED */

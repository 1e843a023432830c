/*
 * The counters of one zone, shared by the workers of one gateway.
 *
 * A fixed table: sets of three counters, a cache line each. A counter's id
 * names a segment (with its lock) and two candidate sets in it, so a check
 * takes one lock and touches at most two cache lines.
 *
 * The table does not know what a state means: it keeps 12 bytes, the instant
 * at which the counter equals a fresh one, and how much would be lost with it.
 */

#ifndef NGX_RATELIMIT_TABLE_H_INCLUDED
#define NGX_RATELIMIT_TABLE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_segment.h"

typedef struct ngx_ratelimit_table_s  ngx_ratelimit_table_t;

/* fresh_us < 2^52 and aux < 2^12 share one word, so they change together */
typedef struct {
    uint64_t   fresh_us;    /* when the counter equals a fresh one */
    uint32_t   extra;       /* 32 bits of the algorithm */
    uint32_t   aux;         /* 12 bits of the algorithm */
} ngx_ratelimit_state_t;

/* One counter, found and locked. */
typedef struct {
    ngx_ratelimit_state_t    state;   /* all zero where found is 0 */
    ngx_uint_t               found;

    /* the rest is the table's */
    ngx_ratelimit_table_t   *table;
    ngx_ratelimit_places_t   at;
    uint64_t                 now_us;
} ngx_ratelimit_entry_t;

/*
 * Makes a table in size zeroed bytes of shared memory aligned to 64. Takes the
 * secret of its ids, which stays with the table. Returns NGX_OK, or NGX_ERROR
 * when size is below NGX_RATELIMIT_TABLE_MIN_BYTES. Must run before any process
 * uses the table.
 */
ngx_int_t ngx_ratelimit_table_init(ngx_ratelimit_table_t *table, size_t size,
    const ngx_ratelimit_hash_key_t *hash_key);

/*
 * Whether the memory holds a table of this layout and size, without writing
 * to it: NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_ratelimit_table_check(ngx_ratelimit_table_t *table, size_t size);

/* The secret given to init; read-only. */
const ngx_ratelimit_hash_key_t *ngx_ratelimit_table_hash_key(
    ngx_ratelimit_table_t *table);

/*
 * Finds the counter and returns with its segment locked; a counter not there
 * has found = 0 and a zero state. The caller decides on the state, soon, and
 * ends with exactly one of store and unlock. now_us < 2^51, monotonic. A
 * caller that has a counter locked must not lock another but an inner one.
 */
void ngx_ratelimit_table_lock(ngx_ratelimit_table_t *table,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry);

/*
 * For what is kept in several places. While an outer counter is locked, one
 * inner counter at a time may be: the outer ones are in the first half of the
 * segments, the inner ones in the other, so nobody waits in a circle. id names
 * other counters here than for ngx_ratelimit_table_lock(), and in each of the
 * two.
 */
void ngx_ratelimit_table_lock_outer(ngx_ratelimit_table_t *table,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry);
void ngx_ratelimit_table_lock_inner(ngx_ratelimit_table_t *table,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry);

/* The id of the n-th inner counter of an outer one, n >= 1. */
ngx_ratelimit_id_t ngx_ratelimit_table_inner_id(const ngx_ratelimit_id_t *id,
    uint64_t n);

/*
 * Writes entry->state with the loss (0: equals a fresh counter, 255: denies)
 * and unlocks. A counter not there before takes the place of the one that is
 * missed least; one that equals a fresh counter by now is not kept. Never
 * fails.
 */
void ngx_ratelimit_table_store(ngx_ratelimit_entry_t *entry, uint32_t loss);

/* Unlocks and leaves the counter as it was. */
void ngx_ratelimit_table_unlock(ngx_ratelimit_entry_t *entry);

/* busy: not equal to a fresh counter now. */
void ngx_ratelimit_table_stat(ngx_ratelimit_table_t *table, uint64_t now_us,
    ngx_ratelimit_segments_stat_t *stat);

#define NGX_RATELIMIT_TABLE_MIN_BYTES  (16 * 1024)

#endif /* NGX_RATELIMIT_TABLE_H_INCLUDED */

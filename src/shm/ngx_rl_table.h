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

#ifndef NGX_RL_TABLE_H_INCLUDED
#define NGX_RL_TABLE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_hash.h"
#include "ngx_rl_segment.h"

#define NGX_RL_TABLE_MAGIC    0x656c626174746c72ULL  /* "rlttable" */
#define NGX_RL_TABLE_LAYOUT   5

#define NGX_RL_TABLE_MIN_SETS   64     /* in a segment */
#define NGX_RL_TABLE_PLACES     3      /* in a set */

#define NGX_RL_AUX_BITS  12
#define NGX_RL_AUX_MASK  ((1u << NGX_RL_AUX_BITS) - 1)

/* of a place, from bit i on: the counter was found again; it is a mark */
#define NGX_RL_TABLE_KNOWN  0x01
#define NGX_RL_TABLE_MARK   0x08

#define ngx_rl_table_word(state)                                              \
    ((state)->fresh_us << NGX_RL_AUX_BITS                                     \
     | ((state)->aux & NGX_RL_AUX_MASK))

typedef struct {
    uint64_t         tag[NGX_RL_TABLE_PLACES];    /* 0: empty */
    uint64_t         word[NGX_RL_TABLE_PLACES];   /* fresh_us, aux */
    uint32_t         extra[NGX_RL_TABLE_PLACES];
    u_char           loss[NGX_RL_TABLE_PLACES];
    u_char           known;                       /* bits of places */
} ngx_rl_table_set_t;

_Static_assert(sizeof(ngx_rl_table_set_t) == NGX_RL_LINE,
               "a set is a cache line");

typedef struct {
    _Alignas(NGX_RL_LINE) ngx_rl_segments_t  shape;
    ngx_rl_hash_key_t  hash_key;
} ngx_rl_table_t;

/* fresh_us < 2^52 and aux < 2^12 share one word, so they change together */
typedef struct {
    uint64_t   fresh_us;    /* when the counter equals a fresh one */
    uint32_t   extra;       /* 32 bits of the algorithm */
    uint32_t   aux;         /* 12 bits of the algorithm */
} ngx_rl_state_t;

/* One counter, found and locked. */
typedef struct {
    ngx_rl_state_t    state;   /* all zero where found is 0 */
    ngx_uint_t        found;

    /* the rest is the table's */
    ngx_rl_table_t   *table;
    ngx_rl_places_t   at;
    uint64_t          now_us;
} ngx_rl_entry_t;

/*
 * Makes a table in size zeroed bytes of shared memory aligned to 64. Takes the
 * secret of its ids, which stays with the table. Returns NGX_OK, or NGX_ERROR
 * when size is below NGX_RL_TABLE_MIN_BYTES. Must run before any process
 * uses the table.
 */
ngx_int_t ngx_rl_table_init(ngx_rl_table_t *table, size_t size,
    const ngx_rl_hash_key_t *hash_key);

/*
 * Whether the memory holds a table of this layout and size, without writing
 * to it: NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_rl_table_check(ngx_rl_table_t *table, size_t size);

/* The secret given to init; read-only. */
static ngx_inline const ngx_rl_hash_key_t *
ngx_rl_table_hash_key(const ngx_rl_table_t *table)
{
    return &table->hash_key;
}

/*
 * Makes the ids of a table go by another secret: its counters are lost. It
 * writes nothing if this is its secret already. No worker may use the table but
 * those of an old cycle.
 */
static ngx_inline void
ngx_rl_table_name(ngx_rl_table_t *table, const ngx_rl_hash_key_t *hash_key)
{
    if (ngx_memcmp(&table->hash_key, hash_key, sizeof(ngx_rl_hash_key_t)) != 0)
    {
        table->hash_key = *hash_key;
    }
}

/*
 * Finds the counter and returns with its segment locked; a counter not there
 * has found = 0 and a zero state. The caller decides on the state, soon, and
 * ends with exactly one of store and unlock. now_us < 2^51, monotonic. A
 * caller that has a counter locked must not lock another but an inner one.
 */
static ngx_inline void ngx_rl_table_lock(ngx_rl_table_t *table,
    const ngx_rl_id_t *id, uint64_t now_us, ngx_rl_entry_t *entry);

/*
 * For what is kept in several places. While an outer counter is locked, one
 * inner counter at a time may be: the outer ones are in the first half of the
 * segments, the inner ones in the other, so nobody waits in a circle. id names
 * other counters here than for ngx_rl_table_lock(), and in each of the
 * two.
 */
void ngx_rl_table_lock_outer(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    uint64_t now_us, ngx_rl_entry_t *entry);
void ngx_rl_table_lock_inner(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    uint64_t now_us, ngx_rl_entry_t *entry);

/* The id of the n-th inner counter of an outer one, n >= 1. */
ngx_rl_id_t ngx_rl_table_inner_id(const ngx_rl_id_t *id, uint64_t n);

/*
 * Writes entry->state with the loss (0: equals a fresh counter, 255: rejects)
 * and unlocks. A counter not there before takes the place of the one that is
 * missed least; one that equals a fresh counter by now is not kept. Never
 * fails.
 */
static ngx_inline void ngx_rl_table_store(ngx_rl_entry_t *entry, uint32_t loss);

/*
 * The same for a mark: what lives for a time and stands for no tokens. It takes
 * a place that is free or another mark's, and any counter may take its place:
 * no counter is lost for it, nor is its place a busy one. If there is no such
 * place, it is not kept.
 */
void ngx_rl_table_store_mark(ngx_rl_entry_t *entry);

/* Unlocks and leaves the counter as it was. */
void ngx_rl_table_unlock(ngx_rl_entry_t *entry);

/* busy: not equal to a fresh counter now. See ngx_rl_segments_stat(). */
void ngx_rl_table_stat(ngx_rl_table_t *table, uint64_t now_us, uint64_t max,
    ngx_rl_segments_stat_t *stat);

#define NGX_RL_TABLE_MIN_BYTES  (16 * 1024)


/* Inlined: every check locks a counter and stores it. */

/* Stores a counter that was not there, and unlocks. */
void ngx_rl_table_insert(ngx_rl_entry_t entry, uint32_t loss);

void ngx_rl_table_look(const void *set, uint64_t now_us,
    ngx_rl_segments_stat_t *stat);

static const ngx_rl_segments_kind_t  ngx_rl_table_kind = {
    NGX_RL_TABLE_MAGIC,
    NGX_RL_TABLE_LAYOUT,
    NGX_RL_TABLE_PLACES,
    NGX_RL_TABLE_MIN_BYTES,
    sizeof(ngx_rl_table_t),
    sizeof(ngx_rl_table_set_t),
    NGX_RL_TABLE_MIN_SETS,
    ngx_rl_table_look
};


static ngx_inline void
ngx_rl_table_lock_in(ngx_rl_table_t *table, ngx_uint_t segment,
    const ngx_rl_id_t *id, uint64_t now_us, ngx_rl_entry_t *entry)
{
    ngx_uint_t           i;
    ngx_rl_places_t     *at;
    ngx_rl_table_set_t  *set;

    at = &entry->at;
    entry->table = table;
    entry->now_us = now_us;

    ngx_rl_places_lock(&ngx_rl_table_kind, &table->shape, segment, id, at);

    set = ngx_rl_places_find(&ngx_rl_table_kind, at);

    if (set) {
        i = at->place;

        entry->state.fresh_us = set->word[i] >> NGX_RL_AUX_BITS;
        entry->state.aux = set->word[i] & NGX_RL_AUX_MASK;
        entry->state.extra = set->extra[i];
        entry->found = 1;
        return;
    }

    ngx_memzero(&entry->state, sizeof(ngx_rl_state_t));
    entry->found = 0;
}


static ngx_inline void
ngx_rl_table_lock(ngx_rl_table_t *table, const ngx_rl_id_t *id, uint64_t now_us,
    ngx_rl_entry_t *entry)
{
    ngx_rl_table_lock_in(table, id->hi & (table->shape.nsegments - 1), id,
                         now_us, entry);
}


/* Without its tag a place is empty: whoever dies inside leaves no counter. */
static ngx_inline void
ngx_rl_table_write(ngx_rl_table_set_t *set, ngx_uint_t i, uint64_t tag,
    uint64_t word, uint32_t extra, uint32_t loss, ngx_uint_t bits)
{
    set->tag[i] = 0;

    ngx_rl_store_order();

    set->word[i] = word;
    set->extra[i] = extra;
    set->loss[i] = (u_char) ngx_min(loss, 255);
    set->known = (u_char) (bits << i
                           | (set->known & ~((NGX_RL_TABLE_KNOWN
                                              |NGX_RL_TABLE_MARK)
                                             << i)));

    ngx_rl_store_order();

    set->tag[i] = tag;
}


static ngx_inline void
ngx_rl_table_store(ngx_rl_entry_t *entry, uint32_t loss)
{
    if (!entry->found) {
        ngx_rl_table_insert(*entry, loss);
        return;
    }

    /* found again by a store: it is known from now on */

    ngx_rl_table_write(entry->at.set, entry->at.place, entry->at.tag,
                       ngx_rl_table_word(&entry->state), entry->state.extra,
                       loss, NGX_RL_TABLE_KNOWN);

    ngx_rl_unlock(&entry->at.segment->lock);
}

#endif /* NGX_RL_TABLE_H_INCLUDED */

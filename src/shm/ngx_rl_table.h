/*
 * The two tables of a zone, shared by the workers of one gateway: its counters,
 * and its leases. Each is a header, segments (a lock and its figures), and sets
 * of places. The id of a counter names a segment and two candidate sets in it.
 *
 * Counters: a set has three, in a cache line, so a check takes one lock and
 * touches at most two cache lines. The table does not know what a state means:
 * it keeps 12 bytes, the instant at which the counter equals a fresh one, and
 * how much would be lost with it.
 */

#ifndef NGX_RL_TABLE_H_INCLUDED
#define NGX_RL_TABLE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_hash.h"
#include "ngx_rl_lock.h"
#include "ngx_rl_types.h"

/*
 * The kinds of loss: live counters that were evicted, leases that had no place.
 */
typedef enum {
    NGX_RL_LOST_NEW = 0,       /* a counter used once; all leases */
    NGX_RL_LOST_KNOWN,         /* one that was found again */
    NGX_RL_LOST_REJECTING,     /* one that had nothing left */
    NGX_RL_LOST
} ngx_rl_lost_e;

/* The figures of a table. */
typedef struct {
    uint64_t   places;      /* there are */
    uint64_t   busy;        /* of them, not to be given to another now */
    uint64_t   tokens;      /* of leases: in hand */
    uint64_t   lost;        /* since the start */
    uint64_t   lost_of[NGX_RL_LOST];
    uint64_t   recovered;   /* locks taken over from a dead worker */
    uint64_t   locked;      /* locks held while this was read */
} ngx_rl_segments_stat_t;

typedef struct {
    _Alignas(NGX_RL_LINE) ngx_rl_lock_t  lock;
    uint64_t       lost[NGX_RL_LOST];
    uint32_t       open;   /* leases: 1 + number of the place that is being
                              written; 0: none */
    uint32_t       used;   /* 0: all its sets are empty, untouched */
} ngx_rl_table_segment_t;

/*
 * The head of a table's header, written by init alone. Offsets, no pointers: it
 * may be mapped anywhere.
 */
typedef struct {
    uint64_t  magic;
    uint32_t  layout;
    uint32_t  nsegments;   /* a power of two */
    uint64_t  size;
    uint64_t  nsets;       /* of one segment, even */
    uint64_t  sets;        /* offset of the first one */
} ngx_rl_segments_t;

/* The two tables differ in this. */
typedef struct {
    uint64_t              magic;
    uint32_t              layout;
    uint32_t              places;      /* in a set */
    size_t                min_bytes;   /* of a table */
    size_t                header_bytes;
    size_t                set_bytes;
    uint64_t              min_sets;    /* in a segment */

    /* adds what of a set is busy; without its lock, whoever writes it */
    void                (*look)(const void *set, uint64_t now_us,
                                ngx_rl_segments_stat_t *stat);
} ngx_rl_segments_kind_t;

/* how many sets a look at a table's figures takes as a sample: with 2,048 of
   them busy is within 2 % of the places, 99.9 % of the times */
#define NGX_RL_STAT_SETS  2048
#define NGX_RL_STAT_ALL   UINT64_MAX

/* The words of a set begin with the tags of its places, in their order. */
typedef struct {
    ngx_rl_table_segment_t  *segment;
    uint64_t                *first;     /* the counter's sets */
    uint64_t                *second;
    uint64_t                 tag;       /* its name there; 0: empty */
    void                    *set;       /* where it was found, */
    ngx_uint_t               place;     /* and its place in that set */
} ngx_rl_places_t;


/*
 * The other of a counter's two sets. The two numbers add up to an odd number
 * that the tag names, modulo the even number of sets: so it works both ways,
 * and the two are never the same.
 */
static ngx_inline uint64_t
ngx_rl_segment_other(uint64_t nsets, uint64_t n, uint64_t tag)
{
    uint64_t  sum;

    sum = (((tag >> 32) * (nsets / 2) >> 32) << 1) + 1;

    return sum >= n ? sum - n : sum + nsets - n;
}


static ngx_inline ngx_rl_table_segment_t *
ngx_rl_segments_first(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments)
{
    return (ngx_rl_table_segment_t *)
           ((u_char *) segments + kind->header_bytes);
}


/* The first set of the n-th segment. */
static ngx_inline void *
ngx_rl_segment_sets(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments, uint64_t n)
{
    return (u_char *) segments + segments->sets
           + n * segments->nsets * kind->set_bytes;
}


/* Locks the n-th segment, and names the counter's two sets in it. */
static ngx_inline void
ngx_rl_places_lock(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments, uint64_t n, const ngx_rl_id_t *id,
    ngx_rl_places_t *places)
{
    u_char    *first;
    uint64_t   nsets, set, other, tag;

    nsets = segments->nsets;
    tag = id->lo != 0 ? id->lo : 1;
    set = (id->hi >> 32) * nsets >> 32;
    other = ngx_rl_segment_other(nsets, set, tag);
    first = ngx_rl_segment_sets(kind, segments, n);

    places->segment = &ngx_rl_segments_first(kind, segments)[n];
    places->first = (uint64_t *) (first + set * kind->set_bytes);
    places->second = (uint64_t *) (first + other * kind->set_bytes);
    places->tag = tag;

    __builtin_prefetch(places->first, 1);
    __builtin_prefetch(places->second, 1);

    ngx_rl_lock(&places->segment->lock);
}


/* The set where the counter has a place, which places then says; or NULL. */
static ngx_inline void *
ngx_rl_places_find(const ngx_rl_segments_kind_t *kind, ngx_rl_places_t *places)
{
    uint64_t    *set;
    ngx_uint_t   i;

    for (set = places->first; /* void */ ; set = places->second) {

        for (i = 0; i < kind->places; i++) {
            if (set[i] == places->tag) {
                places->set = set;
                places->place = i;
                return set;
            }
        }

        if (set == places->second) {
            return NULL;
        }
    }
}

/* Counters. */

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
 * ends with exactly one of store, drop and unlock. now_us < 2^51, monotonic. A
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

/* Unlocks and leaves the counter as it was, or ends it, if there is one. */
void ngx_rl_table_unlock(ngx_rl_entry_t *entry);
void ngx_rl_table_drop(ngx_rl_entry_t *entry);

/* The figures; max: STAT_SETS. busy: not equal to a fresh counter now. */
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


/*
 * Leases: what the gateway took from Redis ahead of its requests, or knows that
 * Redis would reject. A set has seven places. As for counters, the table does
 * not know what the bytes of a lease mean, but for the instant at their head.
 *
 * A busy lease is never evicted: if all places of a counter are busy, it has no
 * lease. A process that dies while it has a lease locked loses it.
 */

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

#endif /* NGX_RL_TABLE_H_INCLUDED */

/*
 * The counters of one zone, shared by the workers of one node: a header, the
 * segments (a lock and its figures), the buckets.
 *
 * A counter's id.hi names the segment and the first bucket, its tag (id.lo) is
 * the counter's name there. The tag also gives the second bucket from the
 * first and the first from the second, so that a counter can be moved by what
 * stands in its slot alone.
 *
 * A process may die between any two instructions. Its writes stay,
 * so every store below leaves the old counter, the new one or none.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_table.h"

#define NGX_RATELIMIT_TABLE_MAGIC    0x656c626174746c72ULL  /* "rlttable" */
#define NGX_RATELIMIT_TABLE_LAYOUT   3

#define NGX_RATELIMIT_MIN_BUCKETS    64     /* in a segment */
#define NGX_RATELIMIT_SLOTS          3      /* in a bucket */
#define NGX_RATELIMIT_STAT_BUCKETS   1024   /* read under one lock: 10 us */

#define NGX_RATELIMIT_AUX_BITS       12
#define NGX_RATELIMIT_AUX_MASK       ((1u << NGX_RATELIMIT_AUX_BITS) - 1)

/*
 * How much a slot's counter is missed, least first: its class, then its loss
 * (8 bits), then fresh_us (52 bits).
 */
#define NGX_RATELIMIT_RANK_FREE      0      /* nothing, or equals a fresh one */
#define NGX_RATELIMIT_RANK_NEW       1      /* not found again up to now */
#define NGX_RATELIMIT_RANK_KNOWN     2
#define ngx_ratelimit_rank(class, loss, fresh_us)                             \
    ((uint64_t) (class) << 60 | (uint64_t) (loss) << 52 | (fresh_us))
#define ngx_ratelimit_rank_class(rank)  ((rank) >> 60)


typedef struct {
    uint64_t         tag[NGX_RATELIMIT_SLOTS];    /* 0: empty */
    uint64_t         word[NGX_RATELIMIT_SLOTS];   /* fresh_us, aux */
    uint32_t         extra[NGX_RATELIMIT_SLOTS];
    u_char           loss[NGX_RATELIMIT_SLOTS];
    u_char           known;                       /* a bit a slot */
} ngx_ratelimit_bucket_t;

_Static_assert(sizeof(ngx_ratelimit_bucket_t) == NGX_RATELIMIT_LINE,
               "a bucket is a cache line");

struct ngx_ratelimit_table_s {
    _Alignas(NGX_RATELIMIT_LINE)
    ngx_ratelimit_segments_t  shape;        /* its sets are the buckets */
    u_char                    hash_key[16];
};

/* A slot, and what its bucket has to offer. */
typedef struct {
    ngx_ratelimit_bucket_t  *bucket;
    ngx_uint_t               slot;
    uint64_t                 rank;    /* the least in the bucket */
    ngx_uint_t               nfree;   /* slots of rank 0 in the bucket */
} ngx_ratelimit_place_t;


static ngx_inline void ngx_ratelimit_table_lock_in(
    ngx_ratelimit_table_t *table, ngx_uint_t segment,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry);
static void ngx_ratelimit_table_place(ngx_ratelimit_entry_t *entry);
static void ngx_ratelimit_table_push(ngx_ratelimit_entry_t *entry,
    ngx_ratelimit_place_t *place);
static void ngx_ratelimit_bucket_move(const ngx_ratelimit_place_t *from,
    const ngx_ratelimit_place_t *to);
static ngx_ratelimit_place_t ngx_ratelimit_bucket_least(
    ngx_ratelimit_bucket_t *bucket, uint64_t now_us);
static ngx_uint_t ngx_ratelimit_bucket_busy(
    ngx_ratelimit_table_segment_t *segment, void *sets, uint64_t set,
    uint64_t now_us);


static const ngx_ratelimit_segments_kind_t  ngx_ratelimit_table_kind = {
    NGX_RATELIMIT_TABLE_MAGIC,
    NGX_RATELIMIT_TABLE_LAYOUT,
    NGX_RATELIMIT_SLOTS,
    NGX_RATELIMIT_TABLE_MIN_BYTES,
    sizeof(ngx_ratelimit_table_t),
    sizeof(ngx_ratelimit_bucket_t),
    NGX_RATELIMIT_MIN_BUCKETS,
    NGX_RATELIMIT_STAT_BUCKETS,
    ngx_ratelimit_bucket_busy
};


static ngx_inline ngx_ratelimit_table_segment_t *
ngx_ratelimit_table_segments(ngx_ratelimit_table_t *table)
{
    return (ngx_ratelimit_table_segment_t *) (table + 1);
}


static ngx_inline ngx_ratelimit_bucket_t *
ngx_ratelimit_table_buckets(ngx_ratelimit_table_t *table, uint64_t segment)
{
    return (ngx_ratelimit_bucket_t *) ((u_char *) table + table->shape.sets)
           + segment * table->shape.nsets;
}


ngx_int_t
ngx_ratelimit_table_init(ngx_ratelimit_table_t *table, size_t size,
    const u_char *hash_key)
{
    if (size >= NGX_RATELIMIT_TABLE_MIN_BYTES) {
        ngx_memcpy(table->hash_key, hash_key, sizeof(table->hash_key));
    }

    return ngx_ratelimit_segments_init(&ngx_ratelimit_table_kind,
                                       &table->shape, size);
}


ngx_int_t
ngx_ratelimit_table_check(ngx_ratelimit_table_t *table, size_t size)
{
    return ngx_ratelimit_segments_check(&ngx_ratelimit_table_kind,
                                        &table->shape, size);
}


const u_char *
ngx_ratelimit_table_hash_key(ngx_ratelimit_table_t *table)
{
    return table->hash_key;
}


void
ngx_ratelimit_table_lock(ngx_ratelimit_table_t *table,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry)
{
    ngx_ratelimit_table_lock_in(table,
                                id->hi & (table->shape.nsegments - 1), id,
                                now_us, entry);
}


void
ngx_ratelimit_table_lock_outer(ngx_ratelimit_table_t *table,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry)
{
    ngx_ratelimit_table_lock_in(table,
                                id->hi & (table->shape.nsegments / 2 - 1), id,
                                now_us, entry);
}


void
ngx_ratelimit_table_lock_inner(ngx_ratelimit_table_t *table,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry)
{
    ngx_uint_t  half;

    half = table->shape.nsegments / 2;

    ngx_ratelimit_table_lock_in(table, half + (id->hi & (half - 1)), id,
                                now_us, entry);
}


/* Odd constants: each n gives another tag, and another place. */
ngx_ratelimit_id_t
ngx_ratelimit_table_inner_id(const ngx_ratelimit_id_t *id, uint64_t n)
{
    ngx_ratelimit_id_t  inner;

    inner.hi = id->hi + n * 0xbf58476d1ce4e5b9;
    inner.lo = id->lo + n * 0x9e3779b97f4a7c15;

    return inner;
}


static ngx_inline void
ngx_ratelimit_table_lock_in(ngx_ratelimit_table_t *table, ngx_uint_t segment,
    const ngx_ratelimit_id_t *id, uint64_t now_us,
    ngx_ratelimit_entry_t *entry)
{
    uint64_t                  tag, n, other;
    ngx_uint_t                b, i;
    ngx_ratelimit_bucket_t   *bucket, *buckets;
    ngx_ratelimit_table_segment_t  *s;

    tag = ngx_ratelimit_segment_tag(id);
    n = ngx_ratelimit_segment_set(table->shape.nsets, id);
    other = ngx_ratelimit_segment_other(table->shape.nsets, n, tag);

    buckets = ngx_ratelimit_table_buckets(table, segment);
    __builtin_prefetch(&buckets[n], 1);
    __builtin_prefetch(&buckets[other], 1);

    s = &ngx_ratelimit_table_segments(table)[segment];

    entry->table = table;
    entry->segment = s;
    entry->buckets[0] = &buckets[n];
    entry->buckets[1] = &buckets[other];
    entry->tag = tag;
    entry->now_us = now_us;

    if (ngx_ratelimit_lock(&s->lock) != NGX_RATELIMIT_LOCKED) {
        /* a limiter that is out of order lets its request pass */
        entry->segment = NULL;
        goto missing;
    }

    for (b = 0; b < 2; b++) {
        bucket = entry->buckets[b];

        for (i = 0; i < NGX_RATELIMIT_SLOTS; i++) {
            if (bucket->tag[i] == tag) {
                entry->state.fresh_us = bucket->word[i]
                                        >> NGX_RATELIMIT_AUX_BITS;
                entry->state.aux = bucket->word[i] & NGX_RATELIMIT_AUX_MASK;
                entry->state.extra = bucket->extra[i];
                entry->found = 1;
                entry->bucket = b;
                entry->slot = i;
                return;
            }
        }
    }

missing:

    ngx_memzero(&entry->state, sizeof(ngx_ratelimit_state_t));
    entry->found = 0;
}


/* Without its tag a slot is empty: whoever dies inside leaves no counter. */
static ngx_inline void
ngx_ratelimit_bucket_write(ngx_ratelimit_bucket_t *bucket, ngx_uint_t slot,
    uint64_t tag, uint64_t word, uint32_t extra, uint32_t loss,
    ngx_uint_t known)
{
    bucket->tag[slot] = 0;

    ngx_ratelimit_store_order();

    bucket->word[slot] = word;
    bucket->extra[slot] = extra;
    bucket->loss[slot] = (u_char) loss;
    bucket->known = (u_char) ((bucket->known & ~(1u << slot))
                              | (known << slot));

    ngx_ratelimit_store_order();

    bucket->tag[slot] = tag;
}


void
ngx_ratelimit_table_store(ngx_ratelimit_entry_t *entry, uint32_t loss)
{
    uint64_t                  word;
    ngx_ratelimit_table_segment_t  *segment;

    segment = entry->segment;

    if (segment == NULL) {
        return;
    }

    if (!entry->found) {

        if (entry->state.fresh_us <= entry->now_us) {
            /* what equals a fresh counter needs no place */
            goto done;
        }

        ngx_ratelimit_table_place(entry);
    }

    word = entry->state.fresh_us << NGX_RATELIMIT_AUX_BITS
           | (entry->state.aux & NGX_RATELIMIT_AUX_MASK);

    /* found again by a store: it is known from now on */

    ngx_ratelimit_bucket_write(entry->buckets[entry->bucket], entry->slot,
                               entry->tag, word, entry->state.extra,
                               ngx_min(loss, 255), entry->found);

done:

    ngx_ratelimit_unlock(&segment->lock);
}


void
ngx_ratelimit_table_unlock(ngx_ratelimit_entry_t *entry)
{
    ngx_ratelimit_table_segment_t  *segment;

    segment = entry->segment;

    if (segment != NULL) {
        ngx_ratelimit_unlock(&segment->lock);
    }
}


/*
 * Finds the slot for a new counter: a free one in the emptier of its buckets;
 * else one whose counter can move to a slot of a lower class; else that of the
 * counter with the least rank. So new counters compete with each other, also
 * with those that stand where a known counter could move to.
 */
static void
ngx_ratelimit_table_place(ngx_ratelimit_entry_t *entry)
{
    ngx_ratelimit_place_t     place, other;
    ngx_ratelimit_table_segment_t  *segment;

    segment = entry->segment;
    segment->used = 1;

    place = ngx_ratelimit_bucket_least(entry->buckets[0], entry->now_us);
    other = ngx_ratelimit_bucket_least(entry->buckets[1], entry->now_us);

    if (other.nfree > place.nfree
        || (other.nfree == place.nfree && other.rank < place.rank))
    {
        place = other;
    }

    if (place.rank != 0) {
        ngx_ratelimit_table_push(entry, &place);
    }

    if (place.rank != 0) {
        segment->lost++;
    }

    entry->bucket = (place.bucket == entry->buckets[1]);
    entry->slot = place.slot;
}


/*
 * Both buckets are full of live counters, place is the least of them. Where one
 * of the six finds a slot of a lower class than that in its other bucket, it
 * moves there; place is then the slot it left, with the rank of what was lost.
 */
static void
ngx_ratelimit_table_push(ngx_ratelimit_entry_t *entry,
    ngx_ratelimit_place_t *place)
{
    uint64_t                 limit, n;
    ngx_uint_t               i, slot;
    ngx_ratelimit_place_t    to, best;
    ngx_ratelimit_table_t   *table;
    ngx_ratelimit_bucket_t  *bucket, *buckets;
    ngx_ratelimit_bucket_t  *others[2 * NGX_RATELIMIT_SLOTS];

    table = entry->table;
    buckets = ngx_ratelimit_table_buckets(table,
                  (ngx_ratelimit_table_segment_t *) entry->segment
                  - ngx_ratelimit_table_segments(table));

    for (i = 0; i < 2 * NGX_RATELIMIT_SLOTS; i++) {
        bucket = entry->buckets[i / NGX_RATELIMIT_SLOTS];
        slot = i % NGX_RATELIMIT_SLOTS;
        n = ngx_ratelimit_segment_other(table->shape.nsets, bucket - buckets,
                                        bucket->tag[slot]);
        others[i] = &buckets[n];
        __builtin_prefetch(others[i], 1);
    }

    limit = ngx_ratelimit_rank(ngx_ratelimit_rank_class(place->rank), 0, 0);
    best = *place;
    best.rank = limit;

    for (i = 0; i < 2 * NGX_RATELIMIT_SLOTS && best.rank != 0; i++) {
        to = ngx_ratelimit_bucket_least(others[i], entry->now_us);

        if (to.rank < best.rank) {
            best = to;
            place->bucket = entry->buckets[i / NGX_RATELIMIT_SLOTS];
            place->slot = i % NGX_RATELIMIT_SLOTS;
        }
    }

    if (best.rank < limit) {
        ngx_ratelimit_bucket_move(place, &best);
        place->rank = best.rank;
    }
}


/* Never in two places: the counter is lost when the process dies between. */
static void
ngx_ratelimit_bucket_move(const ngx_ratelimit_place_t *from,
    const ngx_ratelimit_place_t *to)
{
    uint64_t                 tag;
    ngx_uint_t               slot;
    ngx_ratelimit_bucket_t  *bucket;

    bucket = from->bucket;
    slot = from->slot;

    tag = bucket->tag[slot];
    bucket->tag[slot] = 0;

    ngx_ratelimit_bucket_write(to->bucket, to->slot, tag, bucket->word[slot],
                               bucket->extra[slot], bucket->loss[slot],
                               (bucket->known >> slot) & 1);
}


/* The slot of a bucket that is missed least. */
static ngx_ratelimit_place_t
ngx_ratelimit_bucket_least(ngx_ratelimit_bucket_t *bucket, uint64_t now_us)
{
    uint64_t               rank, fresh_us;
    ngx_uint_t             i;
    ngx_ratelimit_place_t  place;

    place.bucket = bucket;
    place.slot = 0;
    place.rank = UINT64_MAX;
    place.nfree = 0;

    for (i = 0; i < NGX_RATELIMIT_SLOTS; i++) {
        fresh_us = bucket->word[i] >> NGX_RATELIMIT_AUX_BITS;

        if (bucket->tag[i] == 0 || fresh_us <= now_us) {
            rank = NGX_RATELIMIT_RANK_FREE;
            place.nfree++;

        } else {
            rank = ngx_ratelimit_rank((bucket->known >> i) & 1
                                      ? NGX_RATELIMIT_RANK_KNOWN
                                      : NGX_RATELIMIT_RANK_NEW,
                                      bucket->loss[i], fresh_us);
        }

        if (rank < place.rank) {
            place.slot = i;
            place.rank = rank;
        }
    }

    return place;
}


void
ngx_ratelimit_table_stat(ngx_ratelimit_table_t *table, uint64_t now_us,
    ngx_ratelimit_segments_stat_t *stat)
{
    ngx_ratelimit_segments_stat(&ngx_ratelimit_table_kind, &table->shape,
                                now_us, stat);
}


static ngx_uint_t
ngx_ratelimit_bucket_busy(ngx_ratelimit_table_segment_t *segment, void *sets,
    uint64_t set, uint64_t now_us)
{
    ngx_ratelimit_bucket_t  *buckets = sets;

    (void) segment;

    return NGX_RATELIMIT_SLOTS
           - ngx_ratelimit_bucket_least(&buckets[set], now_us).nfree;
}

/*
 * The leases of one zone, shared by the workers of one node: a header, the
 * segments (a lock and its figures), the sets.
 *
 * A set is a line of tags and a line for each of its leases, so finding one
 * touches the line of its segment's lock, a line of tags or two, and the
 * lease's own. A counter's id.hi names the segment and the first set, its tag
 * (id.lo) is the counter's name there and leads to the second set.
 *
 * A process may die between any two instructions, and its lease may be half
 * written then. So the segment says which lease is open: whoever finds one
 * open behind the lock empties it. A lease lost errs on the safe side: its
 * tokens are spent in Redis, and nobody spends them here.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_leases.h"
#include "ngx_ratelimit_lock.h"

/* "rlleases" */
#define NGX_RATELIMIT_LEASES_MAGIC         0x73657361656c6c72ULL
#define NGX_RATELIMIT_LEASES_LAYOUT        1

#define NGX_RATELIMIT_LEASES_MAX_SEGMENTS  1024
#define NGX_RATELIMIT_LEASES_MIN_SETS      24    /* in a segment */
#define NGX_RATELIMIT_LEASES_PLACES        7     /* in a set */
#define NGX_RATELIMIT_LEASES_STAT_SETS     128   /* read under one lock */


typedef struct {
    _Alignas(NGX_RATELIMIT_LINE)
    uint64_t              tag[NGX_RATELIMIT_LEASES_PLACES];   /* 0: empty */
    uint64_t              unused;

    /* the first word of each is its busy_us */
    uint64_t              lease[NGX_RATELIMIT_LEASES_PLACES]
                               [NGX_RATELIMIT_LEASE_BYTES / sizeof(uint64_t)];
} ngx_ratelimit_lease_set_t;

_Static_assert(sizeof(ngx_ratelimit_lease_set_t) == 8 * NGX_RATELIMIT_LINE
               && NGX_RATELIMIT_LEASE_BYTES == NGX_RATELIMIT_LINE,
               "a set is a line of tags and one for each lease");

typedef struct {
    _Alignas(NGX_RATELIMIT_LINE)
    ngx_ratelimit_lock_t  lock;
    uint64_t              refused;
    uint32_t              open;   /* 1 + number of the place; 0: none */
    uint32_t              used;   /* 0: all its sets are empty, untouched */
} ngx_ratelimit_lease_segment_t;

/*
 * Written by init alone, but for forgot_us. Offsets, no pointers: it may be
 * mapped anywhere.
 */
struct ngx_ratelimit_leases_s {
    _Alignas(NGX_RATELIMIT_LINE)
    uint64_t              magic;
    uint32_t              layout;
    uint32_t              nsegments;   /* a power of two */
    uint64_t              size;
    uint64_t              nsets;       /* of one segment */
    uint64_t              sets;        /* offset of the first one */
    _Atomic uint64_t      forgot_us;   /* 0: never */
};

/* A place, by its set and its index there, and what the set has to offer. */
typedef struct {
    uint64_t              set;
    ngx_uint_t            i;
    uint64_t              busy_us;     /* the least in the set */
    ngx_uint_t            nfree;       /* places of the set */
} ngx_ratelimit_lease_place_t;


static void ngx_ratelimit_leases_shape(ngx_ratelimit_leases_t *shape,
    size_t size);
static ngx_inline void ngx_ratelimit_lease_mend(
    ngx_ratelimit_lease_segment_t *segment, ngx_ratelimit_lease_set_t *sets);
static uint64_t *ngx_ratelimit_lease_make(
    ngx_ratelimit_lease_segment_t *segment, ngx_ratelimit_lease_set_t *sets,
    const uint64_t *candidates, uint64_t tag, uint64_t now_us);
static ngx_ratelimit_lease_place_t ngx_ratelimit_lease_place(
    ngx_ratelimit_lease_set_t *sets, uint64_t set, uint64_t now_us);
static void ngx_ratelimit_lease_segment_stat(
    ngx_ratelimit_lease_segment_t *segment, ngx_ratelimit_lease_set_t *sets,
    uint64_t nsets, uint64_t now_us, ngx_ratelimit_leases_stat_t *stat);


static ngx_inline ngx_ratelimit_lease_segment_t *
ngx_ratelimit_lease_segments(ngx_ratelimit_leases_t *leases)
{
    return (ngx_ratelimit_lease_segment_t *) (leases + 1);
}


static ngx_inline ngx_ratelimit_lease_set_t *
ngx_ratelimit_lease_sets(ngx_ratelimit_leases_t *leases, uint64_t segment)
{
    return (ngx_ratelimit_lease_set_t *) ((u_char *) leases + leases->sets)
           + segment * leases->nsets;
}


ngx_int_t
ngx_ratelimit_leases_init(ngx_ratelimit_leases_t *leases, size_t size)
{
    if (size < NGX_RATELIMIT_LEASES_MIN_BYTES) {
        return NGX_ERROR;
    }

    ngx_ratelimit_leases_shape(leases, size);

    if (!ngx_ratelimit_locks_init(ngx_ratelimit_lease_segments(leases),
                                 sizeof(ngx_ratelimit_lease_segment_t),
                                 leases->nsegments))
    {
        return NGX_ERROR;
    }

    /* last: a table half made is none */

    ngx_ratelimit_store_order();
    leases->magic = NGX_RATELIMIT_LEASES_MAGIC;

    return NGX_OK;
}


/* What the size alone decides: as many segments as are not too small. */
static void
ngx_ratelimit_leases_shape(ngx_ratelimit_leases_t *shape, size_t size)
{
    size_t      room;
    ngx_uint_t  n;

    room = size - sizeof(ngx_ratelimit_leases_t);
    n = NGX_RATELIMIT_LEASES_MAX_SEGMENTS;

    while (room / n < sizeof(ngx_ratelimit_lease_segment_t)
                      + NGX_RATELIMIT_LEASES_MIN_SETS
                        * sizeof(ngx_ratelimit_lease_set_t))
    {
        n /= 2;
    }

    shape->layout = NGX_RATELIMIT_LEASES_LAYOUT;
    shape->size = size;
    shape->nsegments = n;
    shape->nsets = (room / n - sizeof(ngx_ratelimit_lease_segment_t))
                   / sizeof(ngx_ratelimit_lease_set_t);
    shape->sets = sizeof(ngx_ratelimit_leases_t)
                  + n * sizeof(ngx_ratelimit_lease_segment_t);
}


ngx_int_t
ngx_ratelimit_leases_check(ngx_ratelimit_leases_t *leases, size_t size)
{
    ngx_ratelimit_leases_t  shape;

    if (size < NGX_RATELIMIT_LEASES_MIN_BYTES
        || leases->magic != NGX_RATELIMIT_LEASES_MAGIC)
    {
        return NGX_ERROR;
    }

    ngx_ratelimit_leases_shape(&shape, size);

    if (leases->layout != shape.layout
        || leases->size != shape.size
        || leases->nsegments != shape.nsegments
        || leases->nsets != shape.nsets
        || leases->sets != shape.sets)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Several may come at once, from clocks that differ a little: the last. */
void
ngx_ratelimit_leases_forget(ngx_ratelimit_leases_t *leases, uint64_t now_us)
{
    uint64_t  before;

    before = atomic_load(&leases->forgot_us);

    while (before < now_us
           && !atomic_compare_exchange_weak(&leases->forgot_us, &before,
                                            now_us))
    { /* void */ }
}


uint64_t
ngx_ratelimit_leases_forgot_us(ngx_ratelimit_leases_t *leases)
{
    return atomic_load_explicit(&leases->forgot_us, memory_order_relaxed);
}


/* From here on a death costs this lease. */
static ngx_inline void
ngx_ratelimit_lease_open(ngx_ratelimit_lease_segment_t *segment, uint64_t set,
    ngx_uint_t i)
{
    segment->open = (uint32_t) (set * NGX_RATELIMIT_LEASES_PLACES + i + 1);
    ngx_ratelimit_store_order();
}


static ngx_inline void
ngx_ratelimit_lease_close(ngx_ratelimit_lease_segment_t *segment)
{
    ngx_ratelimit_store_order();
    segment->open = 0;
}


void *
ngx_ratelimit_leases_lock(ngx_ratelimit_leases_t *leases,
    const ngx_ratelimit_id_t *id, ngx_uint_t make, uint64_t now_us,
    ngx_ratelimit_lease_entry_t *entry)
{
    uint64_t                        tag, n, *lease, candidates[2];
    ngx_uint_t                      c, i;
    ngx_ratelimit_lease_set_t      *sets, *set;
    ngx_ratelimit_lease_segment_t  *segment;

    tag = id->lo != 0 ? id->lo : 1;

    n = id->hi & (leases->nsegments - 1);
    sets = ngx_ratelimit_lease_sets(leases, n);
    segment = &ngx_ratelimit_lease_segments(leases)[n];
    entry->segment = NULL;

    /* the second is never the first */

    n = (id->hi >> 32) * leases->nsets >> 32;
    candidates[0] = n;
    n += 1 + ((tag >> 32) * (leases->nsets - 1) >> 32);
    candidates[1] = n < leases->nsets ? n : n - leases->nsets;

    __builtin_prefetch(&sets[candidates[0]], 1);
    __builtin_prefetch(&sets[candidates[1]], 1);

    if (ngx_ratelimit_lock(&segment->lock) != NGX_RATELIMIT_LOCKED) {
        return NULL;
    }

    ngx_ratelimit_lease_mend(segment, sets);

    for (c = 0; c < 2; c++) {
        set = &sets[candidates[c]];

        for (i = 0; i < NGX_RATELIMIT_LEASES_PLACES; i++) {

            if (set->tag[i] == tag) {
                ngx_ratelimit_lease_open(segment, candidates[c], i);
                entry->segment = segment;
                return set->lease[i];
            }
        }
    }

    lease = NULL;

    if (make) {
        lease = ngx_ratelimit_lease_make(segment, sets, candidates, tag,
                                         now_us);
    }

    if (lease == NULL) {
        ngx_ratelimit_unlock(&segment->lock);
        return NULL;
    }

    entry->segment = segment;

    return lease;
}


void
ngx_ratelimit_leases_unlock(ngx_ratelimit_lease_entry_t *entry)
{
    ngx_ratelimit_lease_segment_t  *segment;

    segment = entry->segment;

    if (segment != NULL) {
        ngx_ratelimit_lease_close(segment);
        ngx_ratelimit_unlock(&segment->lock);
    }
}


/* Called behind a lock, before a set is looked at: empties what was open. */
static ngx_inline void
ngx_ratelimit_lease_mend(ngx_ratelimit_lease_segment_t *segment,
    ngx_ratelimit_lease_set_t *sets)
{
    uint64_t                    n;
    ngx_ratelimit_lease_set_t  *set;

    if (segment->open == 0) {
        return;
    }

    n = segment->open - 1;
    set = &sets[n / NGX_RATELIMIT_LEASES_PLACES];
    n %= NGX_RATELIMIT_LEASES_PLACES;

    set->tag[n] = 0;
    ngx_memzero(set->lease[n], NGX_RATELIMIT_LEASE_BYTES);

    ngx_ratelimit_lease_close(segment);
}


/*
 * Makes an empty lease and leaves it open: in that of its two sets that has
 * more free places, so that they fill evenly, the one that is free for the
 * longest. NULL: there is none.
 */
static uint64_t *
ngx_ratelimit_lease_make(ngx_ratelimit_lease_segment_t *segment,
    ngx_ratelimit_lease_set_t *sets, const uint64_t *candidates, uint64_t tag,
    uint64_t now_us)
{
    ngx_uint_t                    i;
    ngx_ratelimit_lease_set_t    *set;
    ngx_ratelimit_lease_place_t   place, other;

    for (i = 0; i < NGX_RATELIMIT_LEASES_PLACES; i++) {
        __builtin_prefetch(sets[candidates[0]].lease[i], 1);
        __builtin_prefetch(sets[candidates[1]].lease[i]);
    }

    place = ngx_ratelimit_lease_place(sets, candidates[0], now_us);
    other = ngx_ratelimit_lease_place(sets, candidates[1], now_us);

    if (other.nfree > place.nfree) {
        place = other;
    }

    if (place.nfree == 0) {
        segment->refused++;
        return NULL;
    }

    segment->used = 1;
    set = &sets[place.set];

    ngx_ratelimit_lease_open(segment, place.set, place.i);

    set->tag[place.i] = tag;
    ngx_memzero(set->lease[place.i], NGX_RATELIMIT_LEASE_BYTES);

    return set->lease[place.i];
}


/* The place of a set that is free for the longest. */
static ngx_ratelimit_lease_place_t
ngx_ratelimit_lease_place(ngx_ratelimit_lease_set_t *sets, uint64_t set,
    uint64_t now_us)
{
    uint64_t                      busy_us;
    ngx_uint_t                    i;
    ngx_ratelimit_lease_place_t   place;

    place.set = set;
    place.i = 0;
    place.busy_us = UINT64_MAX;
    place.nfree = 0;

    for (i = 0; i < NGX_RATELIMIT_LEASES_PLACES; i++) {

        /* without a tag it need not be looked at */
        busy_us = sets[set].tag[i] ? sets[set].lease[i][0] : 0;

        if (busy_us <= now_us) {
            place.nfree++;
        }

        if (busy_us < place.busy_us) {
            place.i = i;
            place.busy_us = busy_us;
        }
    }

    return place;
}


void
ngx_ratelimit_leases_stat(ngx_ratelimit_leases_t *leases, uint64_t now_us,
    ngx_ratelimit_leases_stat_t *stat)
{
    ngx_uint_t                      i;
    ngx_ratelimit_lease_segment_t  *segments;

    ngx_memzero(stat, sizeof(ngx_ratelimit_leases_stat_t));

    stat->places = leases->nsegments * leases->nsets
                   * NGX_RATELIMIT_LEASES_PLACES;
    segments = ngx_ratelimit_lease_segments(leases);

    for (i = 0; i < leases->nsegments; i++) {
        ngx_ratelimit_lease_segment_stat(&segments[i],
                                         ngx_ratelimit_lease_sets(leases, i),
                                         leases->nsets, now_us, stat);
    }
}


/*
 * Adds one segment's figures. Its lock is let go from time to time, requests
 * wait for it. A lock that cannot be had at all counts as held.
 */
static void
ngx_ratelimit_lease_segment_stat(ngx_ratelimit_lease_segment_t *segment,
    ngx_ratelimit_lease_set_t *sets, uint64_t nsets, uint64_t now_us,
    ngx_ratelimit_leases_stat_t *stat)
{
    uint64_t   n, end, used;
    ngx_ratelimit_lock_e  rc;

    rc = ngx_ratelimit_lock_try(&segment->lock);

    if (rc == NGX_RATELIMIT_LOCK_BUSY) {
        stat->locked++;
        rc = ngx_ratelimit_lock(&segment->lock);
    }

    if (rc != NGX_RATELIMIT_LOCKED) {
        stat->locked++;
        return;
    }

    stat->refused += segment->refused;
    stat->recovered += segment->lock.recovered;
    used = segment->used;

    ngx_ratelimit_unlock(&segment->lock);

    for (n = 0; used && n < nsets; n = end) {
        end = ngx_min(nsets, n + NGX_RATELIMIT_LEASES_STAT_SETS);

        if (ngx_ratelimit_lock(&segment->lock) != NGX_RATELIMIT_LOCKED) {
            return;
        }

        ngx_ratelimit_lease_mend(segment, sets);

        for ( /* void */ ; n < end; n++) {
            stat->busy += NGX_RATELIMIT_LEASES_PLACES
                          - ngx_ratelimit_lease_place(sets, n, now_us).nfree;
        }

        ngx_ratelimit_unlock(&segment->lock);
    }
}

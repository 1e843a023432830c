/*
 * The leases of one zone, shared by the workers of one gateway: a header, the
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

#include "ngx_rl_leases.h"

/* "rlleases" */
#define NGX_RL_LEASES_MAGIC         0x73657361656c6c72ULL
#define NGX_RL_LEASES_LAYOUT        5

#define NGX_RL_LEASES_MIN_SETS      24    /* in a segment */
#define NGX_RL_LEASES_PLACES        7     /* in a set */


typedef struct {
    _Alignas(NGX_RL_LINE)
    uint64_t              tag[NGX_RL_LEASES_PLACES];   /* 0: empty */
    uint64_t              holds;    /* a bit a place: it holds tokens, in the
                                       word of their number */

    /* the first word of each is its busy_us */
    uint64_t              lease[NGX_RL_LEASES_PLACES]
                               [NGX_RL_LEASE_BYTES / sizeof(uint64_t)];
} ngx_rl_lease_set_t;

_Static_assert(sizeof(ngx_rl_lease_set_t) == 8 * NGX_RL_LINE
               && NGX_RL_LEASE_BYTES == NGX_RL_LINE,
               "a set is a line of tags and one for each lease");

/* A place, and what its set has to offer. */
typedef struct {
    ngx_rl_lease_set_t  *set;
    ngx_uint_t           i;
    uint64_t             busy_us;     /* the least in the set */
    ngx_uint_t           nfree;       /* places of the set */
} ngx_rl_lease_place_t;


static void
ngx_rl_lease_look_set(const void *data, uint64_t now_us,
    ngx_rl_segments_stat_t *stat)
{
    const ngx_rl_lease_set_t *set = data;

    uint32_t    tokens;
    uint64_t    busy_us;
    ngx_uint_t  i;

    for (i = 0; i < NGX_RL_LEASES_PLACES; i++) {

        /* most places are empty: their lines are not touched */

        if (__atomic_load_n(&set->tag[i], __ATOMIC_RELAXED) == 0) {
            continue;
        }

        busy_us = __atomic_load_n(&set->lease[i][0], __ATOMIC_RELAXED);

        if (busy_us > now_us) {
            stat->busy++;

            if (set->holds >> i & 1) {
                ngx_memcpy(&tokens, &set->lease[i][NGX_RL_LEASE_TOKENS],
                           sizeof(uint32_t));
                stat->tokens += tokens;
            }
        }
    }
}


static const ngx_rl_segments_kind_t  ngx_rl_leases_kind = {
    NGX_RL_LEASES_MAGIC,
    NGX_RL_LEASES_LAYOUT,
    NGX_RL_LEASES_PLACES,
    NGX_RL_LEASES_MIN_BYTES,
    sizeof(ngx_rl_leases_t),
    sizeof(ngx_rl_lease_set_t),
    NGX_RL_LEASES_MIN_SETS,
    ngx_rl_lease_look_set
};


ngx_int_t
ngx_rl_leases_init(ngx_rl_leases_t *leases, size_t size)
{
    return ngx_rl_segments_init(&ngx_rl_leases_kind, &leases->shape, size);
}


ngx_int_t
ngx_rl_leases_check(ngx_rl_leases_t *leases, size_t size)
{
    return ngx_rl_segments_check(&ngx_rl_leases_kind, &leases->shape, size);
}


void
ngx_rl_leases_forget(ngx_rl_leases_t *leases, uint64_t now_us)
{
    ngx_rl_atomic_max(&leases->forgot_us, now_us);
}


void
ngx_rl_leases_reject(ngx_rl_leases_t *leases, uint64_t until_us)
{
    ngx_rl_atomic_max(&leases->rejected_us, until_us);
}


/* From here on a death costs this lease. Returns the lease. */
static ngx_inline uint64_t *
ngx_rl_lease_open(const ngx_rl_places_t *at, ngx_rl_lease_set_t *first,
    ngx_rl_lease_set_t *set, ngx_uint_t i)
{
    at->segment->open = (uint32_t) ((set - first) * NGX_RL_LEASES_PLACES
                                    + i + 1);
    ngx_rl_store_order();

    return set->lease[i];
}


/* Called behind a lock, before a set is looked at: empties what was open. */
static ngx_inline void
ngx_rl_lease_mend(ngx_rl_table_segment_t *segment, ngx_rl_lease_set_t *sets)
{
    uint64_t             n;
    ngx_rl_lease_set_t  *set;

    if (segment->open == 0) {
        return;
    }

    n = segment->open - 1;
    set = &sets[n / NGX_RL_LEASES_PLACES];
    n %= NGX_RL_LEASES_PLACES;

    set->tag[n] = 0;
    ngx_memzero(set->lease[n], NGX_RL_LEASE_BYTES);

    ngx_rl_lease_close(segment);
}


/* The place of a set that is free for the longest. */
static ngx_rl_lease_place_t
ngx_rl_lease_place(ngx_rl_lease_set_t *set, uint64_t now_us)
{
    uint64_t               busy_us;
    ngx_uint_t             i;
    ngx_rl_lease_place_t   place;

    place.set = set;
    place.i = 0;
    place.busy_us = UINT64_MAX;
    place.nfree = 0;

    for (i = 0; i < NGX_RL_LEASES_PLACES; i++) {

        /* without a tag it need not be looked at */
        busy_us = set->tag[i] ? set->lease[i][0] : 0;

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


/*
 * Makes an empty lease and leaves it open: in that of its two sets that has
 * more free places, so that they fill evenly, the one that is free for the
 * longest. NULL: there is none.
 */
static uint64_t *
ngx_rl_lease_make(const ngx_rl_places_t *at, ngx_rl_lease_set_t *first,
    uint64_t now_us, ngx_uint_t holds)
{
    uint64_t              *lease;
    ngx_uint_t             i;
    ngx_rl_lease_set_t    *sets[2];
    ngx_rl_lease_place_t   place, other;

    sets[0] = (ngx_rl_lease_set_t *) at->first;
    sets[1] = (ngx_rl_lease_set_t *) at->second;

    for (i = 0; i < NGX_RL_LEASES_PLACES; i++) {
        __builtin_prefetch(sets[0]->lease[i], 1);
        __builtin_prefetch(sets[1]->lease[i]);
    }

    place = ngx_rl_lease_place(sets[0], now_us);
    other = ngx_rl_lease_place(sets[1], now_us);

    if (other.nfree > place.nfree) {
        place = other;
    }

    if (place.nfree == 0) {
        at->segment->lost[NGX_RL_LOST_NEW]++;
        return NULL;
    }

    at->segment->used = 1;

    lease = ngx_rl_lease_open(at, first, place.set, place.i);
    place.set->tag[place.i] = at->tag;
    place.set->holds &= ~((uint64_t) 1 << place.i);
    place.set->holds |= (uint64_t) holds << place.i;
    ngx_memzero(lease, NGX_RL_LEASE_BYTES);

    return lease;
}


void *
ngx_rl_leases_lock(ngx_rl_leases_t *leases, ngx_rl_id_t id, ngx_uint_t make,
    uint64_t now_us, ngx_rl_lease_entry_t *entry)
{
    uint64_t             n, *lease;
    ngx_rl_places_t      at;
    ngx_rl_lease_set_t  *first, *set;

    n = id.hi & (leases->shape.nsegments - 1);
    first = ngx_rl_segment_sets(&ngx_rl_leases_kind, &leases->shape, n);
    entry->segment = NULL;

    ngx_rl_places_lock(&ngx_rl_leases_kind, &leases->shape, n, &id, &at);

    ngx_rl_lease_mend(at.segment, first);

    set = ngx_rl_places_find(&ngx_rl_leases_kind, &at);

    if (set) {
        lease = ngx_rl_lease_open(&at, first, set, at.place);
    } else {
        lease = make ? ngx_rl_lease_make(&at, first, now_us,
                                             make == NGX_RL_LEASE_HOLDS)
                     : NULL;
    }

    if (lease == NULL) {
        ngx_rl_unlock(&at.segment->lock);
        return NULL;
    }

    entry->segment = at.segment;

    return lease;
}


void
ngx_rl_leases_stat(ngx_rl_leases_t *leases, uint64_t now_us, uint64_t max,
    ngx_rl_segments_stat_t *stat)
{
    ngx_rl_segments_stat(&ngx_rl_leases_kind, &leases->shape,
                         now_us, max, stat);
}

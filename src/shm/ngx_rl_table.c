/*
 * The tables of one zone. A counter's id.hi names the segment and the first
 * set, its tag (id.lo) is the counter's name there. The tag also gives the
 * second set from the first and the first from the second, so that a counter
 * can be moved by what stands in its place alone.
 *
 * A set of leases is a line of tags and a line for each of its leases, so
 * finding one touches the line of its segment's lock, a line of tags or two,
 * and the lease's own.
 *
 * A process may die between any two instructions. Its writes stay, so every
 * store of a counter leaves the old one, the new one or none. A lease may be
 * half written then. So the segment says which lease is open: whoever finds one
 * open behind the lock empties it. A lease lost errs on the safe side: its
 * tokens are spent in Redis, and nobody spends them here.
 */

#include "ngx_rl_table.h"

#define NGX_RL_MAX_SEGMENTS  1024

/*
 * How much a counter is missed. 0: there is none, or it equals a fresh one.
 * Otherwise the rank has the class (0: a mark, 1: not found again up to now, 2:
 * known), then the loss (8 bits), then fresh_us (52 bits).
 */
#define ngx_rl_rank(class, loss, fresh_us)                                    \
    ((uint64_t) (class) << 60 | (uint64_t) (loss) << 52 | (fresh_us))
#define ngx_rl_rank_class(rank)  ((rank) >> 60)
#define ngx_rl_rank_loss(rank)   ((rank) >> 52 & 0xff)

/* the greatest loss */
#define NGX_RL_TABLE_REJECTS  255

/* "rlleases" */
#define NGX_RL_LEASES_MAGIC         0x73657361656c6c72ULL
#define NGX_RL_LEASES_LAYOUT        5

#define NGX_RL_LEASES_MIN_SETS      24    /* in a segment */
#define NGX_RL_LEASES_PLACES        7     /* in a set */

/* A place, and what its set has to offer. */
typedef struct {
    ngx_rl_table_set_t  *set;
    ngx_uint_t           i;
    uint64_t             rank;    /* the least in the set */
    ngx_uint_t           nfree;   /* places of rank 0 in the set */
} ngx_rl_place_t;

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


/*
 * The size alone decides: as many segments as are not too small. Counters have
 * two at least, leases may have one.
 */
static void
ngx_rl_segments_shape(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *shape, size_t size)
{
    size_t      room;
    ngx_uint_t  n;

    room = size - kind->header_bytes;
    n = NGX_RL_MAX_SEGMENTS;

    while (room / n < sizeof(ngx_rl_table_segment_t)
                      + kind->min_sets * kind->set_bytes)
    {
        n /= 2;
    }

    shape->layout = kind->layout;
    shape->size = size;
    shape->nsegments = n;
    shape->nsets = ((room / n - sizeof(ngx_rl_table_segment_t))
                    / kind->set_bytes) & ~(uint64_t) 1;
    shape->sets = kind->header_bytes + n * sizeof(ngx_rl_table_segment_t);
}


/*
 * Makes a table in size zeroed bytes aligned to 64. Returns NGX_OK, or
 * NGX_ERROR when size is too small.
 */
static ngx_int_t
ngx_rl_segments_init(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments, size_t size)
{
    if (size < kind->min_bytes) {
        return NGX_ERROR;
    }

    ngx_rl_segments_shape(kind, segments, size);

    /* last: a table half made is none */

    ngx_rl_store_order();
    segments->magic = kind->magic;

    return NGX_OK;
}


/* Whether the memory holds a table of this kind and size; writes nothing. */
static ngx_int_t
ngx_rl_segments_check(const ngx_rl_segments_kind_t *kind,
    const ngx_rl_segments_t *segments, size_t size)
{
    ngx_rl_segments_t  shape;

    if (size < kind->min_bytes || segments->magic != kind->magic) {
        return NGX_ERROR;
    }

    ngx_rl_segments_shape(kind, &shape, size);
    shape.magic = kind->magic;

    return ngx_memcmp(segments, &shape, sizeof(ngx_rl_segments_t)) == 0
           ? NGX_OK : NGX_ERROR;
}


/*
 * Reads a table's figures without a lock. busy and tokens are those of about
 * max of its sets, as many of each segment, and scaled to all: the ids are
 * hashes, so any sets are a sample.
 */
static void
ngx_rl_segments_stat(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments, uint64_t now_us, uint64_t max,
    ngx_rl_segments_stat_t *stat)
{
    u_char                  *sets;
    uint64_t                 i, n, each;
    ngx_uint_t               lost;
    ngx_rl_table_segment_t  *segment;

    ngx_memzero(stat, sizeof(ngx_rl_segments_stat_t));

    stat->places = segments->nsegments * segments->nsets * kind->places;
    segment = ngx_rl_segments_first(kind, segments);
    each = ngx_min(max / segments->nsegments, segments->nsets);
    each = ngx_max(each, 1);

    for (i = 0; i < segments->nsegments; i++) {

        for (lost = 0; lost < NGX_RL_LOST; lost++) {
            stat->lost_of[lost] += segment[i].lost[lost];
            stat->lost += segment[i].lost[lost];
        }

        stat->recovered += segment[i].lock.recovered;
        stat->locked += (atomic_load(&segment[i].lock.owner) != 0);

        if (segment[i].used == 0) {
            continue;
        }

        sets = ngx_rl_segment_sets(kind, segments, i);

        for (n = 0; n < each; n++) {
            kind->look(sets + n * kind->set_bytes, now_us, stat);
        }
    }

    stat->busy = stat->busy * segments->nsets / each;
    stat->tokens = stat->tokens * segments->nsets / each;
}


ngx_int_t
ngx_rl_table_init(ngx_rl_table_t *table, size_t size,
    const ngx_rl_hash_key_t *hash_key)
{
    if (size >= NGX_RL_TABLE_MIN_BYTES) {
        table->hash_key = *hash_key;
    }

    return ngx_rl_segments_init(&ngx_rl_table_kind, &table->shape, size);
}


ngx_int_t
ngx_rl_table_check(ngx_rl_table_t *table, size_t size)
{
    return ngx_rl_segments_check(&ngx_rl_table_kind, &table->shape, size);
}


void
ngx_rl_table_lock_outer(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    uint64_t now_us, ngx_rl_entry_t *entry)
{
    ngx_rl_table_lock_in(table, id->hi & (table->shape.nsegments / 2 - 1), id,
                         now_us, entry);
}


void
ngx_rl_table_lock_inner(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    uint64_t now_us, ngx_rl_entry_t *entry)
{
    ngx_uint_t  half;

    half = table->shape.nsegments / 2;

    ngx_rl_table_lock_in(table, half + (id->hi & (half - 1)), id,
                         now_us, entry);
}


/* Odd constants: each n gives another tag, and another place. */
ngx_rl_id_t
ngx_rl_table_inner_id(const ngx_rl_id_t *id, uint64_t n)
{
    ngx_rl_id_t  inner;

    inner.hi = id->hi + n * 0xbf58476d1ce4e5b9;
    inner.lo = id->lo + n * 0x9e3779b97f4a7c15;

    return inner;
}


void
ngx_rl_table_unlock(ngx_rl_entry_t *entry)
{
    ngx_rl_unlock(&entry->at.segment->lock);
}


void
ngx_rl_table_drop(ngx_rl_entry_t *entry)
{
    ngx_memzero(&entry->state, sizeof(ngx_rl_state_t));
    ngx_rl_table_store(entry, 0);
}


/* The place of a set whose counter is missed least. */
static ngx_rl_place_t
ngx_rl_table_least(void *data, uint64_t now_us)
{
    uint64_t             rank, fresh_us;
    ngx_uint_t           i, class;
    ngx_rl_place_t       place;
    ngx_rl_table_set_t  *set = data;

    place.set = set;
    place.i = 0;
    place.rank = UINT64_MAX;
    place.nfree = 0;

    for (i = 0; i < NGX_RL_TABLE_PLACES; i++) {
        fresh_us = set->word[i] >> NGX_RL_AUX_BITS;

        if (set->tag[i] == 0 || fresh_us <= now_us) {
            rank = 0;
            place.nfree++;

        } else if ((set->known >> i) & NGX_RL_TABLE_MARK) {
            rank = ngx_rl_rank(0, 0, fresh_us);

        } else {
            class = 1 + ((set->known >> i) & NGX_RL_TABLE_KNOWN);
            rank = ngx_rl_rank(class, set->loss[i], fresh_us);
        }

        if (rank < place.rank) {
            place.i = i;
            place.rank = rank;
        }
    }

    return place;
}


/* The least place of the set that has more free ones, or the lesser least. */
static ngx_rl_place_t
ngx_rl_table_emptier(const ngx_rl_entry_t *entry)
{
    ngx_rl_place_t  place, other;

    entry->at.segment->used = 1;

    place = ngx_rl_table_least(entry->at.first, entry->now_us);
    other = ngx_rl_table_least(entry->at.second, entry->now_us);

    return (other.nfree > place.nfree
            || (other.nfree == place.nfree && other.rank < place.rank))
           ? other : place;
}


/* Never in two places: the counter is lost when the process dies between. */
static void
ngx_rl_table_move(const ngx_rl_place_t *from, const ngx_rl_place_t *to)
{
    uint64_t             tag;
    ngx_uint_t           i;
    ngx_rl_table_set_t  *set;

    set = from->set;
    i = from->i;

    tag = set->tag[i];
    set->tag[i] = 0;

    ngx_rl_table_write(to->set, to->i, tag, set->word[i], set->extra[i],
                       set->loss[i], (set->known >> i) & NGX_RL_TABLE_KNOWN);
}


/*
 * Both sets are full of live counters, place is the least of them. Where one
 * of the six finds a place of a lower class than that in its other set, it
 * moves there; place is then where it stood, with the rank of what was lost.
 */
static void
ngx_rl_table_push(const ngx_rl_entry_t *entry, ngx_rl_place_t *place)
{
    uint64_t             limit, nsets;
    ngx_uint_t           i;
    ngx_rl_place_t       to, best;
    ngx_rl_table_set_t  *set, *first, *sets[2];
    ngx_rl_table_set_t  *others[2 * NGX_RL_TABLE_PLACES];

    nsets = entry->table->shape.nsets;
    first = ngx_rl_segment_sets(&ngx_rl_table_kind,
                &entry->table->shape,
                entry->at.segment
                - ngx_rl_segments_first(&ngx_rl_table_kind,
                                        &entry->table->shape));

    sets[0] = (ngx_rl_table_set_t *) entry->at.first;
    sets[1] = (ngx_rl_table_set_t *) entry->at.second;

    for (i = 0; i < 2 * NGX_RL_TABLE_PLACES; i++) {
        set = sets[i / NGX_RL_TABLE_PLACES];
        others[i] = &first[ngx_rl_segment_other(nsets, set - first,
                                     set->tag[i % NGX_RL_TABLE_PLACES])];
        __builtin_prefetch(others[i], 1);
    }

    limit = ngx_rl_rank(ngx_rl_rank_class(place->rank), 0, 0);
    best = *place;
    best.rank = limit;

    for (i = 0; i < 2 * NGX_RL_TABLE_PLACES && best.rank != 0; i++) {
        to = ngx_rl_table_least(others[i], entry->now_us);

        if (to.rank < best.rank) {
            best = to;
            place->set = sets[i / NGX_RL_TABLE_PLACES];
            place->i = i % NGX_RL_TABLE_PLACES;
        }
    }

    if (best.rank < limit) {
        ngx_rl_table_move(place, &best);
        place->rank = best.rank;
    }
}


static ngx_rl_lost_e
ngx_rl_table_lost(uint64_t rank)
{
    if (ngx_rl_rank_loss(rank) == NGX_RL_TABLE_REJECTS) {
        return NGX_RL_LOST_REJECTING;
    }

    return (ngx_rl_rank_class(rank) == 1) ? NGX_RL_LOST_NEW : NGX_RL_LOST_KNOWN;
}


/*
 * Finds the place for a new counter. A free place in the emptier of its sets
 * comes first. Then a place whose counter can move to one of a lower class.
 * The last is that of the counter with the least rank. So new counters compete
 * with each other, also with those that stand where a known counter could move
 * to.
 */
static ngx_rl_place_t
ngx_rl_table_place(const ngx_rl_entry_t *entry)
{
    ngx_uint_t      lost;
    ngx_rl_place_t  place;

    place = ngx_rl_table_emptier(entry);

    if (ngx_rl_rank_class(place.rank) != 0) {
        ngx_rl_table_push(entry, &place);

        if (ngx_rl_rank_class(place.rank) != 0) {
            lost = ngx_rl_table_lost(place.rank);
            entry->at.segment->lost[lost]++;
        }
    }

    return place;
}


void
ngx_rl_table_insert(ngx_rl_entry_t entry, uint32_t loss)
{
    ngx_rl_place_t  place;

    /* what equals a fresh counter needs no place */

    if (entry.state.fresh_us > entry.now_us) {
        place = ngx_rl_table_place(&entry);
        ngx_rl_table_write(place.set, place.i, entry.at.tag,
                           ngx_rl_table_word(&entry.state),
                           entry.state.extra, loss, 0);
    }

    ngx_rl_unlock(&entry.at.segment->lock);
}


void
ngx_rl_table_store_mark(ngx_rl_entry_t *entry)
{
    ngx_rl_place_t  place;

    if (entry->found) {
        place.set = entry->at.set;
        place.i = entry->at.place;
        place.rank = 0;

    } else {
        place = ngx_rl_table_emptier(entry);
    }

    if (ngx_rl_rank_class(place.rank) == 0) {
        ngx_rl_table_write(place.set, place.i, entry->at.tag,
                           ngx_rl_table_word(&entry->state), entry->state.extra,
                           0, NGX_RL_TABLE_MARK);
    }

    ngx_rl_unlock(&entry->at.segment->lock);
}


void
ngx_rl_table_stat(ngx_rl_table_t *table, uint64_t now_us, uint64_t max,
    ngx_rl_segments_stat_t *stat)
{
    ngx_rl_segments_stat(&ngx_rl_table_kind, &table->shape, now_us, max, stat);
}


void
ngx_rl_table_look(const void *data, uint64_t now_us,
    ngx_rl_segments_stat_t *stat)
{
    const ngx_rl_table_set_t *set = data;

    u_char      bits;
    uint64_t    word;
    ngx_uint_t  i;

    bits = __atomic_load_n(&set->known, __ATOMIC_RELAXED);

    for (i = 0; i < NGX_RL_TABLE_PLACES; i++) {
        word = __atomic_load_n(&set->word[i], __ATOMIC_RELAXED);

        stat->busy += (__atomic_load_n(&set->tag[i], __ATOMIC_RELAXED)
                       && !((bits >> i) & NGX_RL_TABLE_MARK)
                       && word >> NGX_RL_AUX_BITS > now_us);
    }
}


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

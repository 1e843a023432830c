/*
 * The counters of one zone, shared by the workers of one gateway: a header, the
 * segments (a lock and its figures), the sets.
 *
 * A counter's id.hi names the segment and the first set, its tag (id.lo) is the
 * counter's name there. The tag also gives the second set from the first and
 * the first from the second, so that a counter can be moved by what stands in
 * its place alone.
 *
 * A process may die between any two instructions. Its writes stay,
 * so every store below leaves the old counter, the new one or none.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_table.h"

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


/* A place, and what its set has to offer. */
typedef struct {
    ngx_rl_table_set_t  *set;
    ngx_uint_t           i;
    uint64_t             rank;    /* the least in the set */
    ngx_uint_t           nfree;   /* places of rank 0 in the set */
} ngx_rl_place_t;


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

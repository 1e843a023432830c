/*
 * The table of counters and that of leases share this: a header, the segments
 * (a lock and its figures), and the sets of places. The id of a
 * counter names a segment and two candidate sets in it.
 */

#ifndef NGX_RL_SEGMENT_H_INCLUDED
#define NGX_RL_SEGMENT_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

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


/*
 * Makes a table in size zeroed bytes aligned to 64. Returns NGX_OK, or
 * NGX_ERROR when size is too small.
 */
ngx_int_t ngx_rl_segments_init(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments, size_t size);

/* Whether the memory holds a table of this kind and size; writes nothing. */
ngx_int_t ngx_rl_segments_check(const ngx_rl_segments_kind_t *kind,
    const ngx_rl_segments_t *segments, size_t size);

/*
 * Reads a table's figures without a lock. busy and tokens are those of about
 * max of its sets, as many of each segment, and scaled to all: the ids are
 * hashes, so any sets are a sample. With 2,048 sets, busy is within 2 % of the
 * places, 99.9 % of the times.
 */
#define NGX_RL_STAT_SETS  2048
#define NGX_RL_STAT_ALL   UINT64_MAX

void ngx_rl_segments_stat(const ngx_rl_segments_kind_t *kind,
    ngx_rl_segments_t *segments, uint64_t now_us, uint64_t max,
    ngx_rl_segments_stat_t *stat);


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

#endif /* NGX_RL_SEGMENT_H_INCLUDED */

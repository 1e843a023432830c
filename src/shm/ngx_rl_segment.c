/*
 * Segments: how a table is laid out, made, checked and counted. How a place is
 * found and written is the table's.
 */

#include "ngx_rl_segment.h"

#define NGX_RL_MAX_SEGMENTS  1024


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


ngx_int_t
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


ngx_int_t
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


void
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

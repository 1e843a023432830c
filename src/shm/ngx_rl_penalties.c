/*
 * The table of penalized keys.
 *
 * A row is valid while its tag is set. Whoever changes a row clears the tag
 * first, so a worker that is killed in between loses that row and no other.
 */

#include "ngx_rl_penalties.h"

#define NGX_RL_PENALTIES_NONE     NGX_RL_PENALTIES_WAYS

/* changes that are recent are older than this, and not older than that */
#define NGX_RL_PENALTIES_YOUNGER  2000
#define NGX_RL_PENALTIES_OLDER    120000

#define NGX_RL_PENALTIES_COUNT    100    /* networks anew, in ms */

/* A set that is locked, and the row of an id in it. */
typedef struct {
    ngx_rl_penalties_set_t  *set;
    ngx_rl_penalized_t      *rows;   /* of the set */
    uint64_t                 tag;
    ngx_uint_t               way;    /* NONE: it is not there */
} ngx_rl_penalties_place_t;


/* Locks the set of that id, and finds its row. */
static void
ngx_rl_penalties_lock(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    ngx_rl_penalties_place_t *place)
{
    ngx_uint_t  i, n;

    n = id->hi % NGX_RL_PENALTIES_SETS;

    place->set = &p->sets[n];
    place->rows = &p->rows[n * NGX_RL_PENALTIES_WAYS];
    place->tag = id->lo ? id->lo : 1;

    ngx_rl_lock(&place->set->lock);

    for (i = 0; i < NGX_RL_PENALTIES_WAYS; i++) {

        if (place->set->tags[i] == place->tag
            && place->rows[i].id.hi == id->hi && place->rows[i].id.lo == id->lo)
        {
            break;
        }
    }

    place->way = i;
}


uint64_t
ngx_rl_penalties_until(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    uint64_t now_ms)
{
    uint64_t                  until_ms;
    ngx_rl_penalties_place_t  place;

    ngx_rl_penalties_lock(p, id, &place);

    until_ms = (place.way == NGX_RL_PENALTIES_NONE)
               ? 0 : place.rows[place.way].until_ms;

    ngx_rl_unlock(&place.set->lock);

    return (until_ms > now_ms) ? until_ms : 0;
}


/* NULL: this half of a row's networks is none. */
static _Atomic uint16_t *
ngx_rl_penalties_counter(ngx_rl_penalties_t *p, uint32_t network)
{
    return (network <= NGX_RL_PENALTIES_OWN)
           ? NULL
           : &p->networks[(network >> 2) % NGX_RL_PENALTIES_NETS];
}


static ngx_uint_t
ngx_rl_penalties_most(uint32_t network)
{
    if (!(network & 2)) {
        return NGX_RL_PENALTIES_WIDE;
    }

    return (network & 1) ? NGX_RL_PENALTIES_NET_V6 : NGX_RL_PENALTIES_NET_V4;
}


static ngx_uint_t
ngx_rl_penalties_full(ngx_rl_penalties_t *p, uint32_t network)
{
    _Atomic uint16_t  *counter;

    counter = ngx_rl_penalties_counter(p, network);

    return counter
           && atomic_load_explicit(counter, memory_order_relaxed)
              >= ngx_rl_penalties_most(network);
}


ngx_int_t
ngx_rl_penalties_next(ngx_rl_penalties_t *p, ngx_uint_t *at,
    ngx_rl_penalized_t *row)
{
    uint64_t                 tag;
    ngx_uint_t               i;
    ngx_rl_penalties_set_t  *set;

    while (*at < NGX_RL_PENALTIES_ROWS) {
        i = (*at)++;
        set = &p->sets[i / NGX_RL_PENALTIES_WAYS];

        /* most are free: they are not locked for that */

        if (__atomic_load_n(&set->tags[i % NGX_RL_PENALTIES_WAYS],
                            __ATOMIC_RELAXED)
            == 0)
        {
            continue;
        }

        ngx_rl_lock(&set->lock);

        tag = set->tags[i % NGX_RL_PENALTIES_WAYS];

        if (tag) {
            *row = p->rows[i];
        }

        ngx_rl_unlock(&set->lock);

        if (tag) {
            return NGX_OK;
        }
    }

    return NGX_DONE;
}


static void
ngx_rl_penalties_count(ngx_rl_penalties_t *p, uint64_t network)
{
    ngx_uint_t         i;
    _Atomic uint16_t  *counter;

    for (i = 0; i < 2; i++, network >>= 32) {
        counter = ngx_rl_penalties_counter(p, (uint32_t) network);

        if (counter) {
            (void) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
        }
    }
}


/*
 * NGX_ABORT: a network has its share of the table; *network is then that of its
 * own row, and *until_ms when the first of its rows ends. One that seems to
 * have it is counted anew, but not each time: it may be that of an attacker.
 * Between, *until_ms is 0. Whoever is killed meanwhile leaves counts that are
 * too low, until the next time.
 */
static ngx_int_t
ngx_rl_penalties_crowded(ngx_rl_penalties_t *p, uint64_t *network,
    uint64_t now_ms, uint64_t *until_ms)
{
    uint32_t             of[2];
    uint64_t             counted_ms, first_ms[2];
    ngx_uint_t           at, i, n[2];
    ngx_rl_penalized_t   row;

    /* the wider one first */

    of[0] = (uint32_t) (*network >> 32);
    of[1] = (uint32_t) *network;
    *until_ms = 0;

    if (!ngx_rl_penalties_full(p, of[0]) && !ngx_rl_penalties_full(p, of[1])) {
        return NGX_OK;
    }

    counted_ms = atomic_load_explicit(&p->counted_ms, memory_order_relaxed);

    if (now_ms - counted_ms < NGX_RL_PENALTIES_COUNT
        || !atomic_compare_exchange_strong_explicit(&p->counted_ms,
                                                    &counted_ms, now_ms,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed))
    {
        return NGX_ABORT;
    }

    for (at = 0; at < NGX_RL_PENALTIES_NETS; at++) {
        atomic_store_explicit(&p->networks[at], 0, memory_order_relaxed);
    }

    at = 0;
    n[0] = n[1] = 0;
    first_ms[0] = first_ms[1] = UINT64_MAX;

    while (ngx_rl_penalties_next(p, &at, &row) == NGX_OK) {

        if (row.until_ms <= now_ms) {
            continue;
        }

        ngx_rl_penalties_count(p, row.network);

        for (i = 0; i < 2; i++) {
            if (of[i] == (uint32_t) (i ? row.network : row.network >> 32)) {
                n[i]++;
                first_ms[i] = ngx_min(first_ms[i], row.until_ms);
            }
        }
    }

    for (i = 0; i < 2; i++) {

        /* others may share its counter */

        if (of[i] > NGX_RL_PENALTIES_OWN
            && n[i] >= ngx_rl_penalties_most(of[i]))
        {
            *network = (i ? (uint64_t) of[0] << 32 : 0) | NGX_RL_PENALTIES_OWN;
            *until_ms = first_ms[i];
            return NGX_ABORT;
        }
    }

    return NGX_OK;
}


/* A row for one more: a free one, or of those that are over the oldest. */
static void
ngx_rl_penalties_room(ngx_rl_penalties_place_t *place, uint64_t now_ms)
{
    ngx_uint_t           i;
    ngx_rl_penalized_t  *row;

    for (i = 0; i < NGX_RL_PENALTIES_WAYS; i++) {
        row = &place->rows[i];

        if (place->set->tags[i] == 0) {
            place->way = i;
            return;
        }

        if (row->until_ms <= now_ms
            && (place->way == NGX_RL_PENALTIES_NONE
                || row->forget_ms < place->rows[place->way].forget_ms))
        {
            place->way = i;
        }
    }
}


/* The time of a penalty after so many, this one among them. */
static uint64_t
ngx_rl_penalties_time(const ngx_rl_penalty_time_t *time, uint32_t times)
{
    uint64_t  ms, next;

    /* 366 days times 1,000,000 fit 64 bits */

    for (ms = time->time_ms; --times && ms < time->max_ms; ms = next) {
        next = ms * time->growth / 1000;

        if (next == ms) {
            break;
        }
    }

    return ngx_min(ms, time->max_ms);
}


static uint64_t
ngx_rl_penalties_change(ngx_rl_penalties_t *p)
{
    return atomic_fetch_add_explicit(&p->changes, 1, memory_order_release) + 1;
}


/*
 * A worker that is killed behind the first step leaves a time that is too late:
 * requests look for keys that are not there.
 */
static void
ngx_rl_penalties_store(ngx_rl_penalties_t *p, ngx_rl_penalties_place_t *place,
    const ngx_rl_penalized_t *row)
{
    ngx_rl_atomic_max(&p->latest_ms, row->until_ms);

    if (ngx_rl_penalties_own(row->network)) {
        ngx_rl_atomic_max(&p->network_ms, row->until_ms);
    }

    place->set->tags[place->way] = 0;
    ngx_rl_store_order();

    place->rows[place->way] = *row;
    ngx_rl_store_order();

    place->set->tags[place->way] = place->tag;
}


/*
 * Whoever has read the number of changes between may have found the row's place
 * free: the second count makes it look again.
 */
static void
ngx_rl_penalties_store_change(ngx_rl_penalties_t *p,
    ngx_rl_penalties_place_t *place, ngx_rl_penalized_t *row)
{
    row->change = ngx_rl_penalties_change(p);

    ngx_rl_penalties_store(p, place, row);

    (void) ngx_rl_penalties_change(p);
}


ngx_int_t
ngx_rl_penalties_begin(ngx_rl_penalties_t *p, ngx_rl_penalized_t *made,
    const ngx_rl_penalty_time_t *time, uint64_t now_ms)
{
    uint64_t                   network, until_ms;
    ngx_int_t                  rc;
    ngx_rl_penalized_t        *row;
    ngx_rl_penalties_place_t   place;

    network = made->network;
    rc = ngx_rl_penalties_crowded(p, &network, now_ms, &until_ms);
    made->times = 0;

    ngx_rl_penalties_lock(p, &made->id, &place);

    if (place.way != NGX_RL_PENALTIES_NONE) {
        row = &place.rows[place.way];

        if (row->until_ms > now_ms) {
            rc = NGX_BUSY;

        } else if (row->forget_ms > now_ms) {
            made->times = row->times;
        }

    } else if (rc == NGX_OK) {
        ngx_rl_penalties_room(&place, now_ms);

        if (place.way == NGX_RL_PENALTIES_NONE) {
            rc = NGX_DECLINED;
        }
    }

    if (rc == NGX_OK) {
        made->times++;

        if (time) {
            made->until_ms = now_ms + ngx_rl_penalties_time(time, made->times);
        }

        made->forget_ms = made->until_ms + (time ? time->max_ms : 0);
        made->changed_ms = now_ms;

        ngx_rl_penalties_count(p, made->network);
        ngx_rl_penalties_store_change(p, &place, made);
    }

    ngx_rl_unlock(&place.set->lock);

    if (rc == NGX_ABORT) {
        made->network = network;
        made->until_ms = time ? ngx_min(until_ms, now_ms + time->time_ms)
                              : until_ms;
    }

    return rc;
}


ngx_int_t
ngx_rl_penalties_end(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    uint64_t now_ms)
{
    ngx_int_t                 rc;
    ngx_rl_penalized_t        row;
    ngx_rl_penalties_place_t  place;

    rc = NGX_DECLINED;

    ngx_rl_penalties_lock(p, id, &place);

    if (place.way != NGX_RL_PENALTIES_NONE) {
        row = place.rows[place.way];
        row.until_ms = now_ms;
        row.forget_ms = now_ms;
        row.changed_ms = now_ms;
        row.times = 0;

        ngx_rl_penalties_store_change(p, &place, &row);
        rc = NGX_OK;
    }

    ngx_rl_unlock(&place.set->lock);

    return rc;
}


ngx_int_t
ngx_rl_penalties_put(ngx_rl_penalties_t *p, const ngx_rl_penalized_t *row,
    uint64_t now_ms)
{
    uint64_t                  network, until_ms;
    ngx_int_t                 rc;
    ngx_uint_t                begins, crowded;
    ngx_rl_penalties_place_t  place;

    rc = NGX_OK;
    network = row->network;
    begins = (row->until_ms > now_ms);
    crowded = begins
              && ngx_rl_penalties_crowded(p, &network, now_ms,
                                          &until_ms)
                 != NGX_OK;

    ngx_rl_penalties_lock(p, &row->id, &place);

    if (place.way == NGX_RL_PENALTIES_NONE) {

        if (crowded) {
            rc = NGX_ABORT;

        } else if (row->forget_ms > now_ms) {
            ngx_rl_penalties_room(&place, now_ms);
            rc = (place.way == NGX_RL_PENALTIES_NONE) ? NGX_DECLINED : NGX_OK;
        }

    } else if (place.rows[place.way].change
               && place.rows[place.way].changed_ms >= row->changed_ms)
    {
        place.way = NGX_RL_PENALTIES_NONE;

    } else {
        begins &= (place.rows[place.way].until_ms <= now_ms);
    }

    if (place.way != NGX_RL_PENALTIES_NONE) {

        if (begins) {
            ngx_rl_penalties_count(p, row->network);
        }

        ngx_rl_penalties_store(p, &place, row);
    }

    ngx_rl_unlock(&place.set->lock);

    return rc;
}


void
ngx_rl_penalties_sent(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    uint64_t change)
{
    ngx_rl_penalties_place_t  place;

    ngx_rl_penalties_lock(p, id, &place);

    if (place.way != NGX_RL_PENALTIES_NONE
        && place.rows[place.way].change == change)
    {
        place.rows[place.way].change = 0;
    }

    ngx_rl_unlock(&place.set->lock);
}


void
ngx_rl_penalties_resend(ngx_rl_penalties_t *p, uint64_t now_ms,
    ngx_uint_t recent)
{
    uint64_t                  age_ms;
    ngx_uint_t                at;
    ngx_rl_penalized_t        row;
    ngx_rl_penalties_place_t  place;

    at = 0;

    while (ngx_rl_penalties_next(p, &at, &row) == NGX_OK) {

        age_ms = now_ms - ngx_min(row.changed_ms, now_ms);

        if (recent ? (age_ms < NGX_RL_PENALTIES_YOUNGER
                      || age_ms > NGX_RL_PENALTIES_OLDER)
                   : (row.forget_ms <= now_ms))
        {
            continue;
        }

        ngx_rl_penalties_lock(p, &row.id, &place);

        if (place.way != NGX_RL_PENALTIES_NONE) {
            place.rows[place.way].change = ngx_rl_penalties_change(p);
        }

        ngx_rl_unlock(&place.set->lock);
    }
}

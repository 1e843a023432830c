/*
 * Counters in use. A worker may die inside a lock: a place without its id is
 * empty, and what was spent there is lost for the peers, until the next state.
 */

#include "ngx_rl_changes.h"


/* The counter's place, else the one that is missed least; NULL: none. */
static ngx_rl_change_t *
ngx_rl_changes_place(ngx_rl_changes_set_t *set, const ngx_rl_id_t *id)
{
    ngx_uint_t        i;
    ngx_rl_change_t  *place, *oldest;

    oldest = NULL;

    for (i = 0; i < NGX_RL_CHANGES_PLACES; i++) {
        place = &set->places[i];

        if (place->id.lo == id->lo && place->id.hi == id->hi) {
            return place;
        }

        /* a worker that was killed here has left a place without its id */

        if ((!place->changed || place->id.lo == 0)
            && (oldest == NULL || place->used_ms < oldest->used_ms))
        {
            oldest = place;
        }
    }

    return oldest;
}


/* The leader is to look at a set. */
static void
ngx_rl_changes_mark(ngx_rl_changes_t *changes, ngx_uint_t n)
{
    uint64_t  bit;

    bit = (uint64_t) 1 << n % 64;

    if (!(atomic_load_explicit(&changes->changed[n / 64], memory_order_relaxed)
          & bit))
    {
        (void) atomic_fetch_or(&changes->changed[n / 64], bit);
    }
}


void
ngx_rl_changes_add(ngx_rl_changes_t *changes, const ngx_rl_id_t *id,
    ngx_rl_told_limit_t *limit, int32_t tokens, uint64_t end_ms,
    ngx_uint_t told)
{
    int64_t                sum;
    ngx_uint_t             n, known;
    ngx_rl_change_t       *place;
    ngx_rl_changes_set_t  *set;

    n = (id->hi >> 32) & (NGX_RL_CHANGES_SETS - 1);
    set = &changes->sets[n];

    ngx_rl_lock(&set->lock);

    place = ngx_rl_changes_place(set, id);

    if (place == NULL) {
        ngx_rl_unlock(&set->lock);
        (void) atomic_fetch_add_explicit(&changes->lost, !told,
                                         memory_order_relaxed);
        return;
    }

    sum = tokens;
    known = (place->id.lo == id->lo && place->id.hi == id->hi);

    if (known && told && place->own) {
        *limit = place->limit;
    }

    /* both are of one window, or of none */

    if (known && (end_ms == 0
                  || ngx_rl_told_window(limit->period_us, end_ms * 1000,
                                        place->end_ms * 1000)))
    {
        sum += place->tokens;

    } else if (known && told && place->changed) {
        ngx_rl_unlock(&set->lock);
        return;
    }

    place->id.lo = 0;

    ngx_rl_store_order();

    place->id.hi = id->hi;
    place->limit = *limit;
    place->reset = known ? place->reset : 0;
    place->end_ms = (known && end_ms == 0) ? place->end_ms : end_ms;
    place->used_ms = ngx_current_msec;
    place->tokens = (int32_t) ngx_max(ngx_min(sum, INT32_MAX), -INT32_MAX);
    place->changed |= !told;
    place->own = !told || (known && place->own);

    ngx_rl_store_order();

    place->id.lo = id->lo;

    if (!told) {
        ngx_rl_changes_mark(changes, n);
    }

    ngx_rl_unlock(&set->lock);
}


ngx_int_t
ngx_rl_changes_reset(ngx_rl_changes_t *changes, const ngx_rl_id_t *id,
    const ngx_rl_told_limit_t *limit, ngx_rl_changes_told_e told,
    uint32_t reset)
{
    uint32_t               own;
    ngx_int_t              rc;
    ngx_uint_t             n, known;
    ngx_rl_change_t       *place;
    ngx_rl_changes_set_t  *set;

    if (told && reset == 0
        && atomic_load_explicit(&changes->resets, memory_order_relaxed) == 0)
    {
        return NGX_OK;
    }

    rc = NGX_OK;
    n = (id->hi >> 32) & (NGX_RL_CHANGES_SETS - 1);
    set = &changes->sets[n];

    ngx_rl_lock(&set->lock);

    place = ngx_rl_changes_place(set, id);

    if (place == NULL) {
        (void) atomic_fetch_add(&changes->lost, 1);
        goto done;
    }

    known = (place->id.lo == id->lo && place->id.hi == id->hi);
    own = known ? place->reset : 0;

    /* a number that no clock has would leave none for the next reset */

    if (told != NGX_RL_CHANGES_OWN
        && reset > (uint32_t) ngx_time() + NGX_RL_CHANGES_AHEAD_S)
    {
        reset = own;
    }

    if (told == NGX_RL_CHANGES_OWN) {
        reset = ngx_max((uint32_t) ngx_time(), own + 1);
    }

    if (reset > own) {
        place->id.lo = 0;

        ngx_rl_store_order();

        place->id.hi = id->hi;
        place->limit = known ? place->limit : *limit;
        place->end_ms = known ? place->end_ms : 0;
        place->used_ms = ngx_current_msec;
        place->reset = reset;
        place->reset_ms = (uint32_t) ngx_current_msec;
        place->tokens = 0;
        place->changed |= (told == NGX_RL_CHANGES_OWN);
        place->own &= known;

        ngx_rl_store_order();

        place->id.lo = id->lo;
        atomic_store(&changes->resets, 1);

        if (told == NGX_RL_CHANGES_OWN) {
            ngx_rl_changes_mark(changes, n);
        }

        rc = NGX_DONE;

    } else if (reset < own
               && (told == NGX_RL_CHANGES_STATE
                   || (uint32_t) ngx_current_msec - place->reset_ms
                      < NGX_RL_CHANGES_LATE_MS))
    {
        rc = NGX_DECLINED;
    }

done:

    ngx_rl_unlock(&set->lock);

    return rc;
}


/* Copies the first counter from *at on that is to be told, or any. */
static ngx_int_t
ngx_rl_changes_find(ngx_rl_changes_set_t *set, ngx_uint_t *at, ngx_uint_t take,
    ngx_rl_change_t *change)
{
    ngx_int_t         rc;
    ngx_rl_change_t  *place;

    rc = NGX_DONE;

    ngx_rl_lock(&set->lock);

    do {
        place = &set->places[(*at)++ % NGX_RL_CHANGES_PLACES];

        if (place->id.lo && (place->changed || !take)) {
            *change = *place;

            if (take) {
                place->changed = 0;
                place->tokens = 0;
            }

            rc = NGX_OK;
        }

    } while (rc != NGX_OK && *at % NGX_RL_CHANGES_PLACES);

    ngx_rl_unlock(&set->lock);

    return rc;
}


ngx_int_t
ngx_rl_changes_take(ngx_rl_changes_t *changes, ngx_uint_t *at,
    ngx_rl_change_t *change)
{
    uint64_t           bit;
    ngx_uint_t         n;
    _Atomic uint64_t  *word;

    while ((n = *at / NGX_RL_CHANGES_PLACES) < NGX_RL_CHANGES_SETS) {
        word = &changes->changed[n / 64];
        bit = (uint64_t) 1 << n % 64;

        /* what is added from now on sets the bit again */

        if (*at % NGX_RL_CHANGES_PLACES == 0) {
            if (atomic_load_explicit(word, memory_order_relaxed) == 0) {
                *at = (n / 64 + 1) * 64 * NGX_RL_CHANGES_PLACES;
                continue;
            }

            if (!(atomic_fetch_and(word, ~bit) & bit)) {
                *at += NGX_RL_CHANGES_PLACES;
                continue;
            }
        }

        if (ngx_rl_changes_find(&changes->sets[n], at, 1, change) == NGX_OK) {
            return NGX_OK;
        }
    }

    return NGX_DONE;
}


ngx_int_t
ngx_rl_changes_next(ngx_rl_changes_t *changes, ngx_uint_t *at,
    ngx_uint_t end, ngx_rl_change_t *change)
{
    ngx_rl_changes_set_t  *set;

    while (*at < ngx_min(end, NGX_RL_CHANGES_END)) {
        set = &changes->sets[*at / NGX_RL_CHANGES_PLACES];

        if (ngx_rl_changes_find(set, at, 0, change) == NGX_OK) {
            return NGX_OK;
        }
    }

    return NGX_DONE;
}

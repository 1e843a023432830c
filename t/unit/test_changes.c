/*
 * The counters in use that peers are told of: each spend is taken out once,
 * whatever the order, and a table that is full loses none that is to be told.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "unit.h"

#include "ngx_rl_changes.h"

volatile ngx_msec_t   ngx_current_msec;
volatile ngx_time_t  *ngx_cached_time;

static ngx_rl_changes_t  *changes;
static ngx_time_t         now = { .sec = 5000 };

static ngx_rl_told_limit_t  bucket = {
    60000000, 1, 100, 100, 0, NGX_RL_TOKEN_BUCKET, 0
};

static ngx_rl_told_limit_t  window = {
    60000000, 1, 0, 100, 700, NGX_RL_FIXED_WINDOW, 0
};


static int
fresh(void **state)
{
    free(changes);
    changes = aligned_alloc(NGX_RL_LINE, sizeof(ngx_rl_changes_t));
    memset(changes, 0, sizeof(ngx_rl_changes_t));
    ngx_rl_life = 1;
    ngx_current_msec = 1000000;
    ngx_cached_time = &now;

    return 0;
}


static ngx_rl_id_t
id_of(uint64_t n)
{
    ngx_rl_id_t  id;

    id.hi = n << 32;
    id.lo = n + 1;

    return id;
}


static void
test_each_once(void **state)
{
    int64_t           sum;
    uint64_t          i;
    ngx_uint_t        at, n;
    ngx_rl_id_t       id;
    ngx_rl_change_t   change;

    fresh(state);

    for (i = 0; i < 3000; i++) {
        id = id_of(i % 1000);
        ngx_rl_changes_add(changes, &id, &bucket, i < 2000 ? 5 : -3, 0, 0);
    }

    for (at = 0, n = 0, sum = 0;
         ngx_rl_changes_take(changes, &at, &change) == NGX_OK; n++)
    {
        assert_int_equal(change.tokens, 7);
        assert_memory_equal(&change.limit, &bucket, sizeof(bucket));
        sum += (int64_t) change.id.lo;
    }

    assert_int_equal(n, 1000);
    assert_int_equal(sum, 1000 * 1001 / 2);

    at = 0;
    assert_int_equal(ngx_rl_changes_take(changes, &at, &change), NGX_DONE);

    /* all are still in use */

    for (at = 0, n = 0; ngx_rl_changes_next(changes, &at, NGX_RL_CHANGES_END,
                                            &change)
                        == NGX_OK;
         n++)
    {
        assert_int_equal(change.tokens, 0);
    }

    assert_int_equal(n, 1000);

    /* what peers told is in use, and not told again */

    id = id_of(5000);
    ngx_rl_changes_add(changes, &id, &bucket, 0, 0, 1);
    at = 0;
    assert_int_equal(ngx_rl_changes_take(changes, &at, &change), NGX_DONE);
}


static void
test_windows(void **state)
{
    ngx_uint_t        at;
    ngx_rl_id_t       id;
    ngx_rl_change_t   change;

    fresh(state);
    id = id_of(1);

    /* clocks differ a little; the next window begins anew */

    ngx_rl_changes_add(changes, &id, &window, 4, 1050000, 0);
    ngx_rl_changes_add(changes, &id, &window, 5, 1050003, 0);
    at = 0;
    assert_int_equal(ngx_rl_changes_take(changes, &at, &change), NGX_OK);
    assert_int_equal(change.tokens, 9);

    ngx_rl_changes_add(changes, &id, &window, 4, 1050000, 0);
    ngx_rl_changes_add(changes, &id, &window, 2, 1110000, 0);
    at = 0;
    assert_int_equal(ngx_rl_changes_take(changes, &at, &change), NGX_OK);
    assert_int_equal(change.tokens, 2);
    assert_int_equal(change.end_ms, 1110000);
}


static void
test_full(void **state)
{
    uint64_t          i;
    ngx_uint_t        at, n;
    ngx_rl_id_t       id;
    ngx_rl_change_t   change;

    fresh(state);

    /* eight in one set, and a ninth */

    for (i = 0; i < 9; i++) {
        id = id_of(i * NGX_RL_CHANGES_SETS);
        ngx_rl_changes_add(changes, &id, &bucket, 1, 0, 0);
    }

    assert_int_equal(atomic_load(&changes->lost), 1);

    for (at = 0, n = 0; ngx_rl_changes_take(changes, &at, &change) == NGX_OK;
         n++)
    {
        assert_int_equal(change.tokens, 1);
    }

    assert_int_equal(n, 8);

    /* all of them are told: the oldest makes room */

    ngx_current_msec++;

    for (i = 1; i < 8; i++) {
        id = id_of(i * NGX_RL_CHANGES_SETS);
        ngx_rl_changes_add(changes, &id, &bucket, 0, 0, 1);
    }

    id = id_of(8 * NGX_RL_CHANGES_SETS);
    ngx_rl_changes_add(changes, &id, &bucket, 1, 0, 0);
    assert_int_equal(atomic_load(&changes->lost), 1);

    for (at = 0, n = 0; ngx_rl_changes_next(changes, &at, NGX_RL_CHANGES_END,
                                            &change)
                        == NGX_OK;
         n++)
    {
        assert_int_not_equal(change.id.lo, 1);
    }

    assert_int_equal(n, 8);
}


/* A limit that a peer has told does not take the place of the own one. */
static void
test_own_limit(void **state)
{
    ngx_uint_t            at;
    ngx_rl_id_t           id;
    ngx_rl_change_t       change;
    ngx_rl_told_limit_t   limit;

    fresh(state);
    id = id_of(1);

    limit = window;
    ngx_rl_changes_add(changes, &id, &limit, 0, 0, 1);
    assert_memory_equal(&limit, &window, sizeof(limit));

    limit = bucket;
    ngx_rl_changes_add(changes, &id, &limit, 1, 0, 0);
    assert_memory_equal(&limit, &bucket, sizeof(limit));

    limit = window;
    ngx_rl_changes_add(changes, &id, &limit, 0, 0, 1);
    assert_memory_equal(&limit, &bucket, sizeof(limit));

    at = 0;
    assert_int_equal(ngx_rl_changes_take(changes, &at, &change), NGX_OK);
    assert_memory_equal(&change.limit, &bucket, sizeof(bucket));
}


/* A walk over some sets ends behind them. */
static void
test_next_ends(void **state)
{
    ngx_uint_t        at;
    ngx_rl_id_t       id;
    ngx_rl_change_t   change;

    fresh(state);

    at = 0;
    assert_int_equal(ngx_rl_changes_next(changes, &at,
                                         2 * NGX_RL_CHANGES_PLACES, &change),
                     NGX_DONE);
    assert_int_equal(at, 2 * NGX_RL_CHANGES_PLACES);

    at = NGX_RL_CHANGES_END - 1;
    assert_int_equal(ngx_rl_changes_next(changes, &at,
                                         2 * NGX_RL_CHANGES_END, &change),
                     NGX_DONE);
    assert_int_equal(at, NGX_RL_CHANGES_END);

    id = id_of(1);
    ngx_rl_changes_add(changes, &id, &bucket, 1, 0, 0);
    at = 0;
    assert_int_equal(ngx_rl_changes_next(changes, &at, NGX_RL_CHANGES_END,
                                         &change),
                     NGX_OK);
    assert_int_equal(change.id.hi, id.hi);
}


static ngx_int_t
reset_of(uint64_t n, ngx_rl_changes_told_e told, uint32_t reset)
{
    ngx_rl_id_t  id = id_of(n);

    return ngx_rl_changes_reset(changes, &id, &bucket, told, reset);
}


static ngx_rl_change_t
taken(ngx_int_t expected)
{
    ngx_uint_t       at = 0;
    ngx_rl_change_t  change;

    memset(&change, 0, sizeof(change));
    assert_int_equal(ngx_rl_changes_take(changes, &at, &change), expected);

    return change;
}


/* Spends from before a reset are told nobody, and count nowhere. */
static void
test_reset(void **state)
{
    ngx_rl_id_t       id = id_of(1);
    ngx_rl_change_t   change;

    fresh(state);

    /* nothing was ever reset */

    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 0), NGX_OK);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_STATE, 0), NGX_OK);

    ngx_rl_changes_add(changes, &id, &bucket, 9, 0, 0);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_OWN, 0), NGX_DONE);
    ngx_rl_changes_add(changes, &id, &bucket, 2, 0, 0);

    change = taken(NGX_OK);
    assert_int_equal(change.tokens, 2);
    assert_int_equal(change.reset, 5000);
    assert_true(ngx_rl_changes_fresh(&change));

    /* what others have spent before they knew of it */

    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 0), NGX_DECLINED);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 4999), NGX_DECLINED);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 5000), NGX_OK);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_STATE, 5000), NGX_OK);

    /* a spend of later counts, a state from before the reset never */

    ngx_current_msec += NGX_RL_CHANGES_LATE_MS;
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 0), NGX_OK);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_STATE, 0), NGX_DECLINED);

    ngx_current_msec += NGX_RL_CHANGES_FRESH_MS;
    ngx_rl_changes_add(changes, &id, &bucket, 3, 0, 0);
    change = taken(NGX_OK);
    assert_int_equal(change.reset, 5000);
    assert_false(ngx_rl_changes_fresh(&change));

    /* a peer's number that no clock has is none */

    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 0xffffffff), NGX_OK);
    assert_int_equal(reset_of(2, NGX_RL_CHANGES_STATE, 0xffffffff), NGX_OK);

    /* the next one is a later one, whatever the clock says */

    now.sec = 4000;
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_OWN, 0), NGX_DONE);
    change = taken(NGX_OK);
    assert_int_equal(change.tokens, 0);
    assert_int_equal(change.reset, 5001);
    now.sec = 5000;
}


/* A peer tells of a reset: what was to be told is forgotten, and not told. */
static void
test_reset_told(void **state)
{
    ngx_rl_id_t  id = id_of(1), other;

    fresh(state);

    ngx_rl_changes_add(changes, &id, &bucket, 9, 0, 0);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 77), NGX_DONE);
    assert_int_equal(taken(NGX_OK).tokens, 0);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_SPENT, 77), NGX_OK);
    assert_int_equal(reset_of(1, NGX_RL_CHANGES_STATE, 78), NGX_DONE);
    (void) taken(NGX_DONE);

    /* one that is not known here: it is in use from now on */

    assert_int_equal(reset_of(2, NGX_RL_CHANGES_SPENT, 99), NGX_DONE);
    (void) taken(NGX_DONE);
    assert_int_equal(reset_of(2, NGX_RL_CHANGES_STATE, 98), NGX_DECLINED);

    /* another counter in its place has had no reset */

    ngx_current_msec++;

    for (uint64_t i = 1; i < 9; i++) {
        other = id_of(2 + i * NGX_RL_CHANGES_SETS);
        ngx_rl_changes_add(changes, &other, &bucket, 1, 0, 0);
    }

    assert_int_equal(atomic_load(&changes->lost), 0);
    assert_int_equal(reset_of(2 + 8 * NGX_RL_CHANGES_SETS,
                              NGX_RL_CHANGES_STATE, 1), NGX_DONE);

    /* no place: the counter goes on as it was */

    assert_int_equal(reset_of(2, NGX_RL_CHANGES_SPENT, 100), NGX_OK);
    assert_int_equal(atomic_load(&changes->lost), 1);
}

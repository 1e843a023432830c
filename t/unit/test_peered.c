/*
 * What a gateway tells its peers of a counter: each spend, and what came back
 * as long as the spend counts.
 */

#include "unit.h"

#include "local.h"

#include "ngx_rl_fleet.h"

static ngx_rl_fleet_shared_t  *shared;


/* The tokens to be told; 0: none. */
static int32_t
told(void)
{
    ngx_uint_t        at;
    ngx_rl_change_t   change;

    at = 0;

    return (ngx_rl_changes_take(&shared->changes, &at, &change) == NGX_OK)
           ? change.tokens : 0;
}


static void
check_give(ngx_rl_algorithm_e algorithm)
{
    local_t          local;
    ngx_rl_fleet_t   fleet;
    local_request_t  one, two;

    memset(&fleet, 0, sizeof(fleet));
    shared = aligned_alloc(NGX_RL_LINE, sizeof(ngx_rl_fleet_shared_t));
    memset(shared, 0, sizeof(ngx_rl_fleet_shared_t));
    fleet.shared = shared;

    local_make(&local, 1 << 20, algorithm, 10, 10);
    local.limiter.fleet = &fleet;

    local_request(&local, &one, 1);
    one.counter.backend = &ngx_rl_peered;
    ngx_rl_peered.take(&one.counter);
    assert_int_equal(told(), 1);

    ngx_rl_peered.give(&one.counter, 1);
    assert_int_equal(told(), -1);

    /* it comes back when it has stopped to count, while another one does */

    local_request(&local, &one, 1);
    ngx_rl_peered.take(&one.counter);
    ngx_current_msec += 25000;
    local_request(&local, &two, 1);
    ngx_rl_peered.take(&two.counter);
    assert_int_not_equal(told(), 0);

    ngx_rl_peered.give(&one.counter, 1);
    assert_int_equal(told(), 0);

    local_free(&local);
    free(shared);
}


static void
test_give(void **state)
{
    ngx_time_t  now = { .sec = 1000000 };

    ngx_cached_time = &now;

    check_give(NGX_RL_TOKEN_BUCKET);
    check_give(NGX_RL_LEAKY_BUCKET);
    check_give(NGX_RL_FIXED_WINDOW);
    check_give(NGX_RL_SLIDING_WINDOW);
    check_give(NGX_RL_SLIDING_LOG);
}

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


/*
 * Redis has no answer, the last one left 10: this gateway admits all of them,
 * but for what the peers tell, and tells what it has admitted.
 */
static void
check_away(ngx_rl_algorithm_e algorithm)
{
    local_t          local;
    ngx_rl_id_t      id;
    ngx_rl_fleet_t   fleet;
    ngx_rl_redis_t   redis;
    ngx_rl_answer_t  answer;
    local_request_t  one;
    ngx_rl_remote_t  remote;

    memset(&fleet, 0, sizeof(fleet));
    memset(&redis, 0, sizeof(redis));
    shared = aligned_alloc(NGX_RL_LINE, sizeof(ngx_rl_fleet_shared_t));
    memset(shared, 0, sizeof(ngx_rl_fleet_shared_t));
    fleet.shared = shared;
    shared->peers.gateways = 5;
    shared->peers.alone = 5;
    local_nodes = 5;

    local_make(&local, 1 << 20, algorithm, 10, 10);
    local.limiter.fleet = &fleet;
    local.limiter.redis = &redis;

    for (int i = 0; i < 10; i++) {
        local_request(&local, &one, 1);
        one.counter.remote = &remote;
        one.counter.fail_mode = NGX_RL_FAIL_LOCAL;

        if (i == 4) {
            id = ngx_rl_counter_id(&one.counter);
            ngx_rl_local_told(&local.limiter, &id, &local.limit, 4, 0,
                              ngx_rl_fleet_weight(&local.limiter), &answer);
            assert_int_equal(answer.remaining, 2);
        }

        ngx_rl_fallback(&one.counter, NGX_RL_REDIS_TIMEOUT, 0);
        assert_int_equal(one.counter.answer.granted, i < 6);
        assert_int_equal(told(), i < 6);
    }

    /* a look by a peer's state */

    ngx_rl_local_told(&local.limiter, &id, &local.limit, 0, 0, 2, &answer);
    assert_int_equal(answer.remaining, 0);
    assert_int_equal(ngx_rl_told_used(&local.limit, &answer, 1), 10);

    local_nodes = 1;
    local_free(&local);
    free(shared);
}


static void
test_away(void **state)
{
    ngx_time_t  now = { .sec = 1000000 };

    ngx_cached_time = &now;

    check_away(NGX_RL_TOKEN_BUCKET);
    check_away(NGX_RL_FIXED_WINDOW);
    check_away(NGX_RL_SLIDING_WINDOW);
    check_away(NGX_RL_SLIDING_LOG);
}


/* The weight of a token while Redis is away, by the gateways without it. */
static void
test_weight(void **state)
{
    ngx_uint_t        i;
    ngx_rl_fleet_t    fleet = { 0 };
    ngx_rl_redis_t    redis;
    ngx_rl_limiter_t  limiter = { .redis = &redis };

    static const struct {
        ngx_uint_t  named, gateways, alone, weight;
    } cases[] = {
        { 10, 0, 0, 10 },    /* no tick yet */
        { 10, 10, 10, 2 },
        { 10, 10, 5, 2 },
        { 10, 10, 4, 3 },
        { 10, 10, 1, 10 },   /* the others have Redis */
        { 10, 1, 1, 10 },    /* or are out of reach */
        { 1, 10, 10, 2 },    /* it has begun without Redis */
        { 1, 10, 3, 4 }
    };

    shared = aligned_alloc(NGX_RL_LINE, sizeof(ngx_rl_fleet_shared_t));
    memset(shared, 0, sizeof(ngx_rl_fleet_shared_t));
    fleet.shared = shared;

    local_nodes = 10;
    assert_int_equal(ngx_rl_fleet_weight(&limiter), 10);

    limiter.fleet = &fleet;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        local_nodes = cases[i].named;
        shared->peers.gateways = cases[i].gateways;
        shared->peers.alone = cases[i].alone;
        assert_int_equal(ngx_rl_fleet_weight(&limiter), cases[i].weight);
    }

    local_nodes = 1;
    free(shared);
}


/* Who has Redis: an answer of late, and after this gateway's last one. */
static void
test_with_redis(void **state)
{
    ngx_rl_peers_shared_t  *peers;

    shared = aligned_alloc(NGX_RL_LINE, sizeof(ngx_rl_fleet_shared_t));
    memset(shared, 0, sizeof(ngx_rl_fleet_shared_t));
    peers = &shared->peers;
    ngx_current_msec = 1000000;

    peers->live[3].name = 1;
    peers->live[3].heard_ms = ngx_current_msec;
    assert_int_equal(ngx_rl_peers_with_redis(peers, 0), 0);

    peers->live[3].redis_ms = ngx_current_msec - 1500;
    assert_int_equal(ngx_rl_peers_with_redis(peers, 0), 1);
    assert_int_equal(ngx_rl_peers_with_redis(peers,
                                             peers->live[3].redis_ms), 0);

    /* its last answer is too old, or it is gone */

    peers->live[3].redis_ms = ngx_current_msec - 3000;
    assert_int_equal(ngx_rl_peers_with_redis(peers, 0), 0);

    peers->live[3].redis_ms = ngx_current_msec;
    peers->live[3].heard_ms = ngx_current_msec - 3000;
    assert_int_equal(ngx_rl_peers_with_redis(peers, 0), 0);

    free(shared);
}

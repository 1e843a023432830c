/*
 * What the tests of local counters share: a limiter of one rule on a table of
 * its own, its requests, and of nginx what these need.
 */

#ifndef LOCAL_H_INCLUDED
#define LOCAL_H_INCLUDED

#include "table.h"

#include "ngx_rl_backend.h"
#include "process.h"

/* nginx's clocks, which a test sets */
volatile ngx_msec_t   ngx_current_msec;
volatile ngx_time_t  *ngx_cached_time;

/* gateways that live */
ngx_uint_t            local_nodes = 1;

/* timers, which never end here */
volatile ngx_cycle_t  *ngx_cycle = &(ngx_cycle_t) { 0 };
ngx_rbtree_t           ngx_event_timer_rbtree;


void
ngx_rbtree_insert(ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
{
    (void) tree;
    (void) node;
}


void
ngx_rbtree_delete(ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
{
    (void) tree;
    (void) node;
}


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    (void) level;
    (void) log;
    (void) err;
    (void) fmt;
}


ngx_uint_t
ngx_rl_redis_fleet(const ngx_rl_redis_t *redis)
{
    assert_non_null(redis);

    return local_nodes;
}


ngx_uint_t
ngx_rl_redis_gateways(const ngx_rl_redis_t *redis)
{
    return ngx_rl_redis_fleet(redis);
}


typedef struct {
    ngx_rl_limiter_t   limiter;
    ngx_rl_rule_t      rule;
    ngx_rl_limit_t     limit;
    map_t              map;
} local_t;

/* One request: its check with one counter. */
typedef struct {
    ngx_rl_check_t     check;
    ngx_rl_client_t    client;
    ngx_rl_counter_t   counter;
    ngx_rl_remote_client_t  remote;
} local_request_t;


static inline void
local_limit(local_t *local, ngx_rl_algorithm_e algorithm, uint64_t tokens,
    uint64_t seconds)
{
    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = seconds * 1000000;

    assert_null(ngx_rl_limit_init(&local->limit, &spec));
}


static inline void
local_make(local_t *local, size_t size, ngx_rl_algorithm_e algorithm,
    uint64_t tokens, uint64_t seconds)
{
    memset(local, 0, sizeof(local_t));

    local->map = table_make(0, size);
    local->limiter.zone.table = local->map.table;

    local_limit(local, algorithm, tokens, seconds);
    ngx_current_msec = 1000000;
}


static inline void
local_free(local_t *local)
{
    table_free(local->map);
}


/* A request of the client of this number, before its take. */
static inline void
local_request(local_t *local, local_request_t *request, uint64_t client)
{
    memset(request, 0, sizeof(local_request_t));

    /* no worker renews its permits: a request moves in memory here */
    request->check.permits = 1;

    request->check.taken_us = ngx_rl_local_now_us();
    request->client.limiter = &local->limiter;
    request->client.remote = &request->remote;
    request->client.local = key(client);
    request->client.named = 1;
    request->client.check = &request->check;
    request->counter.rule = &local->rule;
    request->counter.limit = &local->limit;
    request->counter.client = &request->client;
    request->counter.source = NGX_RL_SOURCE_LOCAL;
    request->counter.cost = 1;
}


static inline ngx_uint_t
local_take(local_t *local, local_request_t *request, uint64_t client)
{
    local_request(local, request, client);
    ngx_rl_local_take(&request->counter);
    request->counter.answer.remaining
                         = ngx_rl_counter_remaining(&request->counter);

    return request->counter.answer.granted;
}

#endif /* LOCAL_H_INCLUDED */

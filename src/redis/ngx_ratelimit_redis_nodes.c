/*
 * How many nodes of the fleet live. Each second one worker of each node tells
 * Redis that its node does, and is answered how many do. In Redis the nodes are
 * what requests in flight are: members of a sorted set, each with a deadline
 * (lua/concurrency.lua), in a set that no counter has.
 *
 * Which worker does it is decided by the time of the last beat, which the
 * workers share: whoever moves it on by compare and swap. So a dead worker's
 * turn is taken by the next one.
 */

#include "ngx_ratelimit_redis_int.h"

#define NGX_RATELIMIT_REDIS_BEAT_MS     1000
#define NGX_RATELIMIT_REDIS_YIELD_MS    200     /* who failed comes later */
#define NGX_RATELIMIT_REDIS_FLEET_MS    10000   /* until fewer are believed */
#define NGX_RATELIMIT_REDIS_REMIND_MS   60000   /* the log repeats itself */

/* arguments of lua/check.lua */
#define NGX_RATELIMIT_REDIS_NODES_SET   "rl-nodes"
#define NGX_RATELIMIT_REDIS_NODES_MAX   1073741824
#define NGX_RATELIMIT_REDIS_NODES_TEXT  "1073741824"
#define NGX_RATELIMIT_REDIS_LEASE_US    "3000000"

/* of its answer: granted, remaining, reset_ms, retry_ms */
#define NGX_RATELIMIT_REDIS_NODES_VALUES  4


static void ngx_ratelimit_redis_beat_handler(ngx_event_t *ev);
static ngx_uint_t ngx_ratelimit_redis_beat_turn(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_beat(ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_beat_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_redis_fleet_note(
    ngx_ratelimit_redis_shared_t *shared, uint64_t nodes);
static void ngx_ratelimit_redis_beat_log(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_status_e status);


void
ngx_ratelimit_redis_nodes_start(ngx_ratelimit_redis_client_t *client)
{
    ngx_event_t  *ev;

    ev = &client->beat_timer;
    ev->data = client;
    ev->log = client->log;
    ev->handler = ngx_ratelimit_redis_beat_handler;
    ev->cancelable = 1;

    /* its time to wait for an answer begins when the worker is at work */

    ngx_add_timer(ev, 1);
}


void
ngx_ratelimit_redis_nodes_stop(ngx_ratelimit_redis_client_t *client)
{
    if (client->beat_timer.timer_set) {
        ngx_del_timer(&client->beat_timer);
    }
}


static void
ngx_ratelimit_redis_beat_handler(ngx_event_t *ev)
{
    int64_t                        left;
    uint64_t                       last;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    if (ngx_exiting) {
        return;
    }

    ngx_ratelimit_redis_conns_keep(client);
    ngx_ratelimit_redis_auth_look(client);

    if (ngx_ratelimit_redis_beat_turn(client)) {
        ngx_ratelimit_redis_beat(client);
    }

    last = atomic_load(&client->redis->shared->beat_ms);
    left = (int64_t) (last + NGX_RATELIMIT_REDIS_BEAT_MS - ngx_current_msec);

    if (left < 1 || left > NGX_RATELIMIT_REDIS_BEAT_MS) {
        left = NGX_RATELIMIT_REDIS_BEAT_MS;
    }

    if (client->beat_failed) {
        left += NGX_RATELIMIT_REDIS_YIELD_MS;
    }

    ngx_add_timer(ev, (ngx_msec_t) left);
}


/* A worker whose last beat has no answer yet leaves the turn to the others. */

static ngx_uint_t
ngx_ratelimit_redis_beat_turn(ngx_ratelimit_redis_client_t *client)
{
    int64_t                        passed;
    uint64_t                       last;
    ngx_ratelimit_redis_shared_t  *shared;

    shared = client->redis->shared;

    last = atomic_load(&shared->beat_ms);
    passed = (int64_t) (ngx_current_msec - last);

    /* another worker's clock may be a moment ahead, but no second */

    if (last
        && passed < NGX_RATELIMIT_REDIS_BEAT_MS
        && passed > -NGX_RATELIMIT_REDIS_BEAT_MS)
    {
        return 0;
    }

    return client->beat == NULL
           && atomic_compare_exchange_strong(&shared->beat_ms, &last,
                                             ngx_current_msec);
}


static void
ngx_ratelimit_redis_beat(ngx_ratelimit_redis_client_t *client)
{
    u_char                      *p;
    ngx_uint_t                   i;
    ngx_ratelimit_redis_eval_t   eval;

    /* kind, field, cost, want, capacity, a, b */

    static const ngx_str_t  args[] = {
        ngx_string("c"),
        ngx_string(NGX_RATELIMIT_REDIS_NODES_SET),
        ngx_string("1"),
        ngx_string("1"),
        ngx_string(NGX_RATELIMIT_REDIS_NODES_TEXT),
        ngx_string(NGX_RATELIMIT_REDIS_LEASE_US),
        ngx_string("0")
    };

    u_char  text[8 * NGX_RATELIMIT_REDIS_BULK(10)];

    p = text;

    for (i = 0; i < 7; i++) {
        p = ngx_ratelimit_redis_write_bulk(p, args[i].data, args[i].len);
    }

    p = ngx_ratelimit_redis_write_bulk(p,
                             (u_char *) &client->redis->shared->node,
                             sizeof(client->redis->shared->node));

    ngx_memzero(&eval, sizeof(ngx_ratelimit_redis_eval_t));

    eval.nsets = 1;
    eval.sets = (u_char *) NGX_RATELIMIT_REDIS_NODES_SET;
    eval.nargs = 8;
    eval.args.data = text;
    eval.args.len = p - text;
    eval.late = 1;

    client->beat = ngx_ratelimit_redis_eval_new(client, &eval);

    if (client->beat) {
        client->beat->quiet = 1;
        ngx_ratelimit_redis_call_start(client->beat,
                                       ngx_ratelimit_redis_beat_answer,
                                       client);
    }
}


static void
ngx_ratelimit_redis_beat_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_redis_client_t *client = data;

    int64_t  nodes;

    if (result->again) {
        return;
    }

    client->beat = NULL;
    client->beat_failed = (result->status != NGX_RATELIMIT_REDIS_OK);

    if (client->beat_failed) {
        ngx_ratelimit_redis_beat_log(client, result->status);
        return;
    }

    if (result->n != NGX_RATELIMIT_REDIS_NODES_VALUES
        || result->values[1] < 0
        || result->values[1] >= NGX_RATELIMIT_REDIS_NODES_MAX)
    {
        return;
    }

    nodes = NGX_RATELIMIT_REDIS_NODES_MAX - result->values[1];
    atomic_store(&client->redis->shared->nodes, (uint64_t) nodes);
    ngx_ratelimit_redis_fleet_note(client->redis->shared, (uint64_t) nodes);
}


/* One worker at a time; two, where one was stopped for long, do no harm. */

static void
ngx_ratelimit_redis_fleet_note(ngx_ratelimit_redis_shared_t *shared,
    uint64_t nodes)
{
    int64_t  passed;

    passed = (int64_t) (ngx_current_msec - atomic_load(&shared->fleet_ms));

    if (nodes >= atomic_load(&shared->fleet)
        || passed >= NGX_RATELIMIT_REDIS_FLEET_MS)
    {
        atomic_store(&shared->fleet, nodes);
        atomic_store(&shared->fleet_ms, ngx_current_msec);
    }
}


/*
 * Of what somebody must mend, as a right that is missing: an idle node says
 * nothing else of it. What goes by is said of the checks.
 */

static void
ngx_ratelimit_redis_beat_log(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_status_e status)
{
    char  note[NGX_RATELIMIT_LOG_NOTE];

    if (status < NGX_RATELIMIT_REDIS_OOM
        || !ngx_ratelimit_log_due(&client->redis->shared->beat_errors,
                                  ngx_current_msec,
                                  NGX_RATELIMIT_REDIS_REMIND_MS, note))
    {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, client->log, 0,
                  "ratelimit redis \"%V\": the nodes are not counted: \"%V\""
                  "%s", &client->redis->name,
                  ngx_ratelimit_redis_status_name(status), note);
}


ngx_uint_t
ngx_ratelimit_redis_nodes(const ngx_ratelimit_redis_t *redis)
{
    uint64_t  nodes;

    nodes = atomic_load_explicit(&redis->shared->nodes, memory_order_relaxed);

    return nodes ? (ngx_uint_t) nodes : 1;
}


ngx_uint_t
ngx_ratelimit_redis_fleet(const ngx_ratelimit_redis_t *redis)
{
    uint64_t  fleet;

    fleet = atomic_load_explicit(&redis->shared->fleet, memory_order_relaxed);

    return fleet ? (ngx_uint_t) fleet : 1;
}

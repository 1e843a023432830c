/*
 * How many gateways of the fleet live. Each second one worker of each gateway
 * sends Redis a heartbeat, and Redis answers how many gateways live. There they
 * are members of a sorted set with deadlines, as requests in flight are
 * (lua/concurrency.lua), in a set that no counter has.
 *
 * The workers share the time of the last heartbeat. The worker that moves it on
 * by compare and swap sends the next one, so another worker takes the turn of a
 * dead one.
 */

#include "ngx_ratelimit_redis_client.h"
#include "ngx_ratelimit_redis_eval.h"
#include "ngx_ratelimit_redis_heartbeat.h"
#include "ngx_ratelimit_redis_route.h"

#define NGX_RATELIMIT_REDIS_HEARTBEAT_MS     1000
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


static void ngx_ratelimit_redis_heartbeat_handler(ngx_event_t *ev);
static ngx_uint_t ngx_ratelimit_redis_heartbeat_turn(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_heartbeat(ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_heartbeat_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_redis_fleet_note(
    ngx_ratelimit_redis_shared_t *shared, uint64_t gateways);
static void ngx_ratelimit_redis_heartbeat_log(
    ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_status_e status);


void
ngx_ratelimit_redis_heartbeat_start(ngx_ratelimit_redis_client_t *client)
{
    ngx_event_t  *ev;

    ev = &client->heartbeat_timer;
    ev->data = client;
    ev->log = client->log;
    ev->handler = ngx_ratelimit_redis_heartbeat_handler;
    ev->cancelable = 1;

    /* its time to wait for an answer begins when the worker is at work */

    ngx_add_timer(ev, 1);
}


static void
ngx_ratelimit_redis_heartbeat_handler(ngx_event_t *ev)
{
    int64_t                        left;
    uint64_t                       last;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    if (ngx_exiting) {
        return;
    }

    ngx_ratelimit_redis_nodes_keep(client);
    ngx_ratelimit_redis_auth_look(client);

    if (ngx_ratelimit_redis_heartbeat_turn(client)) {
        ngx_ratelimit_redis_heartbeat(client);
    }

    last = atomic_load(&client->redis->shared->heartbeat_ms);
    left = (int64_t) (last + NGX_RATELIMIT_REDIS_HEARTBEAT_MS
                      - ngx_current_msec);

    if (left < 1 || left > NGX_RATELIMIT_REDIS_HEARTBEAT_MS) {
        left = NGX_RATELIMIT_REDIS_HEARTBEAT_MS;
    }

    if (client->heartbeat_failed) {
        left += NGX_RATELIMIT_REDIS_YIELD_MS;
    }

    ngx_add_timer(ev, (ngx_msec_t) left);
}


/* A worker whose last beat has no answer yet leaves the turn to the others. */

static ngx_uint_t
ngx_ratelimit_redis_heartbeat_turn(ngx_ratelimit_redis_client_t *client)
{
    int64_t                        passed;
    uint64_t                       last;
    ngx_ratelimit_redis_shared_t  *shared;

    shared = client->redis->shared;

    last = atomic_load(&shared->heartbeat_ms);
    passed = (int64_t) (ngx_current_msec - last);

    /* another worker's clock may be a moment ahead, but no second */

    if (last
        && passed < NGX_RATELIMIT_REDIS_HEARTBEAT_MS
        && passed > -NGX_RATELIMIT_REDIS_HEARTBEAT_MS)
    {
        return 0;
    }

    return client->heartbeat == NULL
           && atomic_compare_exchange_strong(&shared->heartbeat_ms, &last,
                                             ngx_current_msec);
}


static void
ngx_ratelimit_redis_heartbeat(ngx_ratelimit_redis_client_t *client)
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
                             (u_char *) &client->redis->shared->gateway,
                             sizeof(client->redis->shared->gateway));

    ngx_memzero(&eval, sizeof(ngx_ratelimit_redis_eval_t));

    eval.nsets = 1;
    eval.sets = (u_char *) NGX_RATELIMIT_REDIS_NODES_SET;
    eval.nargs = 8;
    eval.args.data = text;
    eval.args.len = p - text;
    eval.late = 1;

    client->heartbeat = ngx_ratelimit_redis_eval_new(client,
                                        NGX_RATELIMIT_REDIS_HEARTBEAT, &eval);

    if (client->heartbeat) {
        ngx_ratelimit_redis_call_start(client->heartbeat,
                                       ngx_ratelimit_redis_heartbeat_answer,
                                       client);
    }
}


static void
ngx_ratelimit_redis_heartbeat_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_redis_client_t *client = data;

    int64_t  gateways;

    if (result->again) {
        return;
    }

    client->heartbeat = NULL;
    client->heartbeat_failed = (result->status != NGX_RATELIMIT_REDIS_OK);

    if (client->heartbeat_failed) {
        ngx_ratelimit_redis_heartbeat_log(client, result->status);
        return;
    }

    if (result->n != NGX_RATELIMIT_REDIS_NODES_VALUES
        || result->values[1] < 0
        || result->values[1] >= NGX_RATELIMIT_REDIS_NODES_MAX)
    {
        return;
    }

    gateways = NGX_RATELIMIT_REDIS_NODES_MAX - result->values[1];
    atomic_store(&client->redis->shared->gateways, (uint64_t) gateways);
    ngx_ratelimit_redis_fleet_note(client->redis->shared, (uint64_t) gateways);
}


/* One worker at a time; two, where one was stopped for long, do no harm. */

static void
ngx_ratelimit_redis_fleet_note(ngx_ratelimit_redis_shared_t *shared,
    uint64_t gateways)
{
    int64_t  passed;

    passed = (int64_t) (ngx_current_msec - atomic_load(&shared->fleet_ms));

    if (gateways >= atomic_load(&shared->fleet)
        || passed >= NGX_RATELIMIT_REDIS_FLEET_MS)
    {
        atomic_store(&shared->fleet, gateways);
        atomic_store(&shared->fleet_ms, ngx_current_msec);
    }
}


/*
 * Logs errors that the operator must mend, as a missing right: an idle gateway
 * has no other line about it. Errors that pass are logged for checks.
 */

static void
ngx_ratelimit_redis_heartbeat_log(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_status_e status)
{
    char  note[NGX_RATELIMIT_LOG_NOTE];

    if (status < NGX_RATELIMIT_REDIS_OOM
        || !ngx_ratelimit_log_due(&client->redis->shared->heartbeat_errors,
                                  ngx_current_msec,
                                  NGX_RATELIMIT_REDIS_REMIND_MS, note))
    {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, client->log, 0,
                  "ratelimit redis \"%V\": the gateways are not counted: \"%V\""
                  "%s", &client->redis->name,
                  ngx_ratelimit_redis_status_name(status), note);
}

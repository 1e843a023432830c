/*
 * The work of a worker between requests, on one timer: it keeps the places of
 * its nodes, looks at the password files, sends heartbeats and probes.
 *
 * A heartbeat says that a gateway lives. Each second one worker of each gateway
 * sends Redis one, and Redis answers how many gateways live. There they are
 * members of a sorted set with deadlines, as requests in flight are
 * (lua/concurrency.lua), in a set that no counter has.
 *
 * A probe is a check sent to a node whose breaker is open.
 *
 * The workers share when each of these was done last. The worker that moves
 * this time on by compare and swap is the one that sends. So no request is
 * needed, and another worker takes the turn of a dead one.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_UPKEEP_MS     1000
#define NGX_RL_REDIS_HEARTBEAT_MS  1000
#define NGX_RL_REDIS_YIELD_MS      200    /* who failed comes later */
#define NGX_RL_REDIS_FLEET_MS      10000  /* until fewer are believed */
#define NGX_RL_REDIS_REMIND_MS     60000  /* the log repeats itself */

/* longer than its timeout a probe's report is not waited for */
#define NGX_RL_REDIS_PROBE_LOST_MS  500

/* to find a bucket of a node: for one in 40 all but one in 10^11 times */
#define NGX_RL_REDIS_PROBE_TRIES    1000

/*
 * Arguments of lua/check.lua. For a heartbeat: kind, field, cost, want,
 * capacity, life in microseconds, 1: the answer has the time in place of reset;
 * the gateway follows. For a probe: kind, field, cost, want, capacity, period,
 * scale of a counter that no rule has, and that is full again at once.
 */
#define NGX_RL_REDIS_GATEWAYS_SET  "rl-nodes"
#define NGX_RL_REDIS_GATEWAYS_MAX  1073741824
#define NGX_RL_REDIS_HEARTBEAT_ARGS                                           \
    "$1\r\nc\r\n$8\r\nrl-nodes\r\n$1\r\n1\r\n$1\r\n1\r\n"                     \
    "$10\r\n1073741824\r\n$7\r\n3000000\r\n$1\r\n1\r\n"
#define NGX_RL_REDIS_PROBE_ARGS                                               \
    "$1\r\nt\r\n$8\r\nrl-probe\r\n$1\r\n1\r\n$1\r\n0\r\n"                     \
    "$4\r\n1000\r\n$1\r\n1\r\n$1\r\n1\r\n"

/* of a heartbeat's answer: granted, remaining, reset_ms, retry_ms */
#define NGX_RL_REDIS_HEARTBEAT_VALUES  4


/*
 * Errors that the operator must mend, as a missing right, are logged: an idle
 * gateway has no other line about them. Errors that pass are logged for checks.
 */
static void
ngx_rl_redis_heartbeat_answer(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_redis_client_t *client = data;

    uint64_t                gateways;
    ngx_time_t             *now;
    ngx_rl_redis_shared_t  *shared;

    shared = client->redis->shared;

    if (result->again) {
        return;
    }

    client->heartbeat = NULL;
    client->heartbeat_failed = (result->status != NGX_RL_REDIS_OK);

    if (result->status >= NGX_RL_REDIS_OOM) {
        ngx_rl_redis_log(client, &shared->heartbeat_errors,
                         NGX_RL_REDIS_REMIND_MS, NGX_LOG_ERR, 0,
                         "the gateways are not counted: \"%V\"",
                         ngx_rl_redis_status_name(
                                                            result->status));
    }

    if (result->n != NGX_RL_REDIS_HEARTBEAT_VALUES
        || result->values[1] < 0
        || result->values[1] >= NGX_RL_REDIS_GATEWAYS_MAX)
    {
        return;
    }

    /* Redis read its clock halfway, more or less */

    if (result->values[2] > 0) {
        now = ngx_timeofday();
        shared->clock_ms = result->values[2]
                           - ((int64_t) now->sec * 1000 + (int64_t) now->msec)
                           + (int64_t) (ngx_current_msec
                                        - client->heartbeat_ms) / 2;
        shared->clocked = 1;
    }

    gateways = NGX_RL_REDIS_GATEWAYS_MAX - result->values[1];
    atomic_store(&shared->gateways, gateways);

    /* one worker at a time; two, where one was stopped for long, do no harm */

    if (gateways >= atomic_load(&shared->fleet)
        || (int64_t) (ngx_current_msec - atomic_load(&shared->fleet_ms))
           >= NGX_RL_REDIS_FLEET_MS)
    {
        atomic_store(&shared->fleet, gateways);
        atomic_store(&shared->fleet_ms, ngx_current_msec);
    }
}


/*
 * Sends a heartbeat where it is this worker's turn. One whose last heartbeat
 * has no answer yet leaves the turn to the others. Returns when to look again.
 */
static ngx_msec_t
ngx_rl_redis_heartbeat(ngx_rl_redis_client_t *client)
{
    u_char               *p;
    int64_t               passed, interval;
    uint64_t              last;
    _Atomic uint64_t     *turn;
    ngx_rl_redis_eval_t   eval;

    u_char  text[sizeof(NGX_RL_REDIS_HEARTBEAT_ARGS)
                 + NGX_RL_REDIS_BULK(sizeof(uint64_t))];

    turn = &client->redis->shared->heartbeat_ms;
    last = atomic_load(turn);

    passed = (int64_t) (ngx_current_msec - last);
    interval = NGX_RL_REDIS_HEARTBEAT_MS;

    if (client->heartbeat_failed) {
        interval += NGX_RL_REDIS_YIELD_MS;
    }

    /* another worker's clock may be a moment ahead, but no second */

    if (last && passed < interval && passed > -NGX_RL_REDIS_HEARTBEAT_MS) {
        return interval - ngx_max(passed, 0);
    }

    if (client->heartbeat
        || !atomic_compare_exchange_strong(turn, &last, ngx_current_msec))
    {
        return interval;
    }

    p = ngx_cpymem(text, NGX_RL_REDIS_HEARTBEAT_ARGS,
                   sizeof(NGX_RL_REDIS_HEARTBEAT_ARGS) - 1);
    p = ngx_rl_redis_write_bulk(p, (u_char *) &client->redis->shared->gateway,
                                sizeof(client->redis->shared->gateway));

    ngx_memzero(&eval, sizeof(ngx_rl_redis_eval_t));

    eval.nsets = 1;
    eval.sets = (u_char *) NGX_RL_REDIS_GATEWAYS_SET;
    eval.nargs = 8;
    eval.args.data = text;
    eval.args.len = p - text;
    eval.late = 1;

    client->heartbeat = ngx_rl_redis_eval_new(client, NGX_RL_REDIS_HEARTBEAT,
                                              &eval);

    if (client->heartbeat) {
        client->heartbeat_ms = ngx_current_msec;
        ngx_rl_redis_call_start(client->heartbeat,
                                ngx_rl_redis_heartbeat_answer, client);
    }

    return interval;
}


/* Sends a probe where one is due. Returns when to look again. */
static ngx_msec_t
ngx_rl_redis_probe(ngx_rl_redis_node_t *node)
{
    uint64_t                wait_ms;
    ngx_uint_t              i;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_eval_t     eval;
    ngx_rl_redis_client_t  *client;

    client = node->client;

    if (node->place == NULL || node->stranger
        || node->conn.state != NGX_RL_REDIS_UP)
    {
        return NGX_RL_REDIS_UPKEEP_MS;
    }

    ngx_rl_redis_breaker_settle(node);

    wait_ms = ngx_rl_breaker_probe(&node->place->breaker, ngx_current_msec,
        client->timeout + NGX_RL_REDIS_PROBE_LOST_MS);

    if (wait_ms) {
        return (ngx_msec_t) wait_ms;
    }

    ngx_memzero(&eval, sizeof(ngx_rl_redis_eval_t));
    eval.nargs = 7;
    ngx_str_set(&eval.args, NGX_RL_REDIS_PROBE_ARGS);

    /* without memory, or a bucket of that node, it is as one that was lost */

    for (i = 0; i < NGX_RL_REDIS_PROBE_TRIES; i++) {
        eval.bucket = (uint32_t) ngx_random();
        call = ngx_rl_redis_eval_new(client, NGX_RL_REDIS_PROBE, &eval);

        if (call == NULL) {
            break;
        }

        if (client->topology.slots == NULL
            || client->topology.slots[call->slot] == node)
        {
            ngx_rl_redis_call_wait(call);
            call->place = node->place;
            ngx_rl_redis_call_queue(call, node);
            break;
        }

        ngx_rl_redis_call_free(call);
    }

    return client->timeout + NGX_RL_BREAKER_MIN_MS;
}


void
ngx_rl_redis_upkeep_handler(ngx_event_t *ev)
{
    ngx_msec_t              next_ms, wait_ms;
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    if (ngx_exiting) {
        return;
    }

    ngx_rl_redis_nodes_keep(client);
    ngx_rl_redis_auth_look(client);
    ngx_rl_redis_topology_renew(client);

    wait_ms = ngx_rl_redis_heartbeat(client);
    next_ms = ngx_min(wait_ms, NGX_RL_REDIS_UPKEEP_MS);

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        wait_ms = ngx_rl_redis_probe(node);
        next_ms = ngx_min(next_ms, wait_ms);
    }

    ngx_add_timer(ev, next_ms);
}

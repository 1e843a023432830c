/*
 * Probes: calls to Redis nodes whose breaker is open.
 */

#include "ngx_ratelimit_redis_breaker.h"
#include "ngx_ratelimit_redis_client.h"
#include "ngx_ratelimit_redis_eval.h"
#include "ngx_ratelimit_redis_probe.h"
#include "ngx_ratelimit_redis_route.h"

/* longer than its timeout a probe's report is not waited for */
#define NGX_RATELIMIT_REDIS_PROBE_LOST_MS  500

/* so often a worker looks for breakers that others have opened */
#define NGX_RATELIMIT_REDIS_PROBE_LOOK_MS  1000

/* to find a bucket of a node: for one in 40 all but one in 10^11 times */
#define NGX_RATELIMIT_REDIS_PROBE_TRIES    1000


static void ngx_ratelimit_redis_probe_handler(ngx_event_t *ev);
static ngx_msec_t ngx_ratelimit_redis_probe(ngx_ratelimit_redis_node_t *node);
static ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_probe_new(
    ngx_ratelimit_redis_node_t *node);


void
ngx_ratelimit_redis_probes_start(ngx_ratelimit_redis_client_t *client)
{
    ngx_event_t  *ev;

    ev = &client->probe_timer;
    ev->data = client;
    ev->log = client->log;
    ev->handler = ngx_ratelimit_redis_probe_handler;
    ev->cancelable = 1;

    ngx_add_timer(ev, NGX_RATELIMIT_REDIS_PROBE_LOOK_MS);
}


/*
 * Each worker looks at the breakers of the nodes that it is connected to. The
 * one that comes first when a probe is due sends it. So no request is needed,
 * and a worker that dies is replaced.
 */

static void
ngx_ratelimit_redis_probe_handler(ngx_event_t *ev)
{
    ngx_msec_t                     wait_ms, next_ms;
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    if (ngx_exiting) {
        return;
    }

    next_ms = NGX_RATELIMIT_REDIS_PROBE_LOOK_MS;

    for (q = ngx_queue_head(&client->nodes);
         q != ngx_queue_sentinel(&client->nodes);
         q = ngx_queue_next(q))
    {
        wait_ms = ngx_ratelimit_redis_probe(ngx_ratelimit_redis_node_of(q));
        next_ms = ngx_min(next_ms, wait_ms);
    }

    ngx_add_timer(ev, next_ms);
}


/* Sends a probe where one is due. Returns when to look again. */

static ngx_msec_t
ngx_ratelimit_redis_probe(ngx_ratelimit_redis_node_t *node)
{
    uint64_t                       wait_ms;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_client_t  *client;

    client = node->client;

    if (node->place == NULL || node->conn.state != NGX_RATELIMIT_REDIS_UP) {
        return NGX_RATELIMIT_REDIS_PROBE_LOOK_MS;
    }

    ngx_ratelimit_redis_breaker_settle(node);

    wait_ms = ngx_ratelimit_breaker_probe(&node->place->breaker,
                      ngx_current_msec,
                      client->timeout + NGX_RATELIMIT_REDIS_PROBE_LOST_MS);

    if (wait_ms) {
        return (ngx_msec_t) wait_ms;
    }

    /* without memory, or a bucket of that node, it is as one that was lost */

    call = ngx_ratelimit_redis_probe_new(node);

    if (call) {
        ngx_ratelimit_redis_call_wait(call);
        call->place = node->place;
        ngx_ratelimit_redis_call_queue(call, node);
    }

    return client->timeout + NGX_RATELIMIT_BREAKER_MIN_MS;
}


/*
 * A check of a counter that no rule has, in a bucket of the node. NULL: memory
 * is out, or no bucket was found.
 */

static ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_probe_new(ngx_ratelimit_redis_node_t *node)
{
    u_char                        *p;
    ngx_uint_t                     i;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_eval_t     eval;
    ngx_ratelimit_redis_client_t  *client;

    /* kind, field, cost, want, capacity, period, scale: full again at once */

    static const ngx_str_t  args[] = {
        ngx_string("t"),
        ngx_string("rl-probe"),
        ngx_string("1"),
        ngx_string("0"),
        ngx_string("1000"),
        ngx_string("1"),
        ngx_string("1")
    };

    u_char  text[7 * NGX_RATELIMIT_REDIS_BULK(8)];

    client = node->client;
    p = text;

    for (i = 0; i < 7; i++) {
        p = ngx_ratelimit_redis_write_bulk(p, args[i].data, args[i].len);
    }

    ngx_memzero(&eval, sizeof(ngx_ratelimit_redis_eval_t));

    eval.nargs = 7;
    eval.args.data = text;
    eval.args.len = p - text;

    for (i = 0; i < NGX_RATELIMIT_REDIS_PROBE_TRIES; i++) {
        eval.bucket = (uint32_t) ngx_random();
        call = ngx_ratelimit_redis_eval_new(client,
                                            NGX_RATELIMIT_REDIS_PROBE, &eval);

        if (call == NULL) {
            return NULL;
        }

        if (client->topology.slots == NULL
            || client->topology.slots[call->slot] == node)
        {
            return call;
        }

        ngx_ratelimit_redis_call_free(call);
    }

    return NULL;
}

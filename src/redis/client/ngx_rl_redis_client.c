/*
 * The worker's clients of a block: start and stop, and the work of that of the
 * checks between requests, on one timer: it keeps the places of its nodes,
 * looks at the password files, sends heartbeats and probes.
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
 *
 * The control client, for calls that are no checks, is as that of the checks
 * (addresses, slot map, TLS, what is redirected), but lazy: it connects where a
 * call needs it. The subscriber is one more node of it, which listens to
 * channels: in a Cluster the owner of the first listener's document, else the
 * server or the master. A Cluster sends messages to all its nodes.
 */

#include <ngx_sha1.h>

#include "ngx_rl_redis_client.h"
#include "ngx_rl_lua.h"
#include "ngx_rl_text.h"

#include <openssl/rand.h>

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#define NGX_RL_REDIS_TICK_MS     1000
#define NGX_RL_REDIS_SOON_MS     100    /* there is no slot map yet */
#define NGX_RL_REDIS_PING_MS     5000
#define NGX_RL_REDIS_REFUSED_MS  60000

#define NGX_RL_REDIS_DEAD_MIN_MS   1000
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

#define NGX_RL_REDIS_EVENTS                                                   \
    (sizeof(ngx_rl_redis_events)                                              \
     / sizeof(ngx_rl_redis_events[0]))

#define ngx_rl_redis_event(client, i)                                         \
    ((ngx_event_t *)                                                          \
     ((u_char *) (client) + ngx_rl_redis_events[i].offset))


/* The timer of the connection that listens. */
static void
ngx_rl_redis_subscriber_handler(ngx_event_t *ev)
{
    ngx_rl_redis_node_t    *node, *target;
    ngx_rl_redis_client_t  *client;

    static ngx_str_t  ping = ngx_string("PING");

    client = ev->data;

    /* the calls' connection to whom to listen; NULL: that is not known yet */

    if (client->topology.slots) {
        ngx_rl_redis_topology_look(client);
        target = client->topology.mapped
                 ? client->topology.slots[client->slot] : NULL;

    } else {
        target = ngx_rl_redis_node_of(ngx_queue_head(&client->nodes));
    }

    node = client->subscriber;

    if (node
        && (client->stale
            || (target
                && (target->conn.name.len != node->conn.name.len
                    || ngx_memcmp(target->conn.name.data, node->conn.name.data,
                                  node->conn.name.len)
                       != 0))))
    {
        ngx_rl_redis_session_free(node);
        client->subscriber = NULL;
        node = NULL;
    }

    client->stale = 0;

    if (ngx_exiting || ngx_queue_empty(&client->listeners)) {
        return;
    }

    if (node == NULL && target
        && (ngx_msec_int_t) (ngx_current_msec - client->listens_ms) >= 0)
    {
        client->pinged_ms = ngx_current_msec;
        client->subscriber = ngx_rl_redis_node_get(client, &target->conn.host,
                                                   NGX_RL_REDIS_LISTENS);

    } else if (node && node->conn.state == NGX_RL_REDIS_UP
               && ngx_current_msec - client->pinged_ms >= NGX_RL_REDIS_PING_MS)
    {
        /* without memory the connection will be found dead */

        (void) ngx_rl_redis_command(node, NGX_RL_REDIS_PING, &ping, 1);
        client->pinged_ms = ngx_current_msec;
    }

    ngx_add_timer(ev, target ? NGX_RL_REDIS_TICK_MS : NGX_RL_REDIS_SOON_MS);
}


/*
 * Connects to the server, or begins to search for the slot map. Returns NGX_OK,
 * or NGX_ERROR: memory is out.
 */
static ngx_int_t
ngx_rl_redis_client_connect(ngx_rl_redis_client_t *client)
{
    static const ngx_str_t  map = ngx_string(NGX_RL_REDIS_MAP_PLACE);

    if (client->redis->mode == NGX_RL_REDIS_SERVER) {
        return ngx_rl_redis_node_get(client,
                                     client->redis->hosts.elts,
                                     NGX_RL_REDIS_DATA)
               ? NGX_OK : NGX_ERROR;
    }

    if (!client->control) {
        client->map_place = ngx_rl_redis_place(client->redis->shared, &map);
    }

    return ngx_rl_redis_topology_start(client);
}


/* With the first call, and not before. */
static ngx_int_t
ngx_rl_redis_control_connect(ngx_rl_redis_client_t *client)
{
    if (!client->connected && ngx_rl_redis_client_connect(client) != NGX_OK) {
        return NGX_ERROR;
    }

    client->connected = 1;

    return NGX_OK;
}


/* Without a key the first slot that a node has. */
static ngx_uint_t
ngx_rl_redis_control_slot(ngx_rl_redis_client_t *client, const ngx_str_t *key)
{
    ngx_uint_t             slot;
    ngx_rl_redis_node_t  **slots;

    if (client->redis->mode != NGX_RL_REDIS_CLUSTER) {
        return 0;
    }

    if (key) {
        return ngx_rl_cluster_slot(key->data, key->len);
    }

    slots = client->topology.slots;

    for (slot = 0; slot < NGX_RL_CLUSTER_SLOTS; slot++) {
        if (slots[slot]) {
            return slot;
        }
    }

    return 0;
}


ngx_rl_redis_call_t *
ngx_rl_redis_control_call(ngx_rl_redis_t *redis, const ngx_str_t *args,
    ngx_uint_t nargs, ngx_uint_t key, ngx_rl_redis_handler_pt handler,
    void *data)
{
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_client_t  *client;

    client = redis->control;

    /* the slots are those of the client */

    if (ngx_rl_redis_control_connect(client) != NGX_OK) {
        return NULL;
    }

    call = ngx_rl_redis_command_new(client, NGX_RL_REDIS_CONTROL, args, nargs);
    if (call == NULL) {
        return NULL;
    }

    call->slot = ngx_rl_redis_control_slot(client, key ? &args[key] : NULL);

    ngx_rl_redis_call_start(call, handler, data);

    return call;
}


ngx_int_t
ngx_rl_redis_control_number(const ngx_str_t *text, uint64_t most,
    uint64_t *number)
{
    return ngx_rl_number_parse(text->data, text->len, 0, most, number) == 0
           ? NGX_OK : NGX_ERROR;
}


/* The connection has the channels that there were when it began. */
static void
ngx_rl_redis_subscriber_anew(ngx_rl_redis_client_t *client)
{
    client->stale = 1;
    client->listens_ms = ngx_current_msec;
    ngx_add_timer(&client->listens, 1);
}


ngx_int_t
ngx_rl_redis_listen(ngx_rl_redis_t *redis, ngx_rl_redis_listener_t *listener,
    ngx_event_t *event)
{
    ngx_rl_redis_client_t  *client;

    client = redis->control;

    if (ngx_rl_redis_control_connect(client) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_queue_empty(&client->listeners)) {
        client->slot = ngx_rl_redis_control_slot(client, &listener->key);
    }

    listener->event = event;
    ngx_queue_insert_tail(&client->listeners, &listener->queue);
    ngx_rl_redis_subscriber_anew(client);

    return NGX_OK;
}


void
ngx_rl_redis_unlisten(ngx_rl_redis_t *redis, ngx_rl_redis_listener_t *listener)
{
    if (listener->event == NULL) {
        return;
    }

    if (listener->event->posted) {
        ngx_delete_posted_event(listener->event);
    }

    listener->event = NULL;
    ngx_queue_remove(&listener->queue);

    if (ngx_queue_empty(&redis->control->listeners)) {
        ngx_rl_redis_subscriber_anew(redis->control);
    }
}


/* Moves *listener on to the next one, from NULL. Returns 0 behind the last. */
static ngx_uint_t
ngx_rl_redis_listener_next(ngx_rl_redis_client_t *client,
    ngx_rl_redis_listener_t **listener)
{
    ngx_queue_t  *q;

    q = ngx_queue_next(*listener ? &(*listener)->queue : &client->listeners);

    if (q == ngx_queue_sentinel(&client->listeners)) {
        return 0;
    }

    *listener = ngx_queue_data(q, ngx_rl_redis_listener_t, queue);

    return 1;
}


ngx_int_t
ngx_rl_redis_control_subscribe(ngx_rl_redis_node_t *node)
{
    ngx_str_t                *args;
    ngx_int_t                 rc;
    ngx_uint_t                n;
    ngx_rl_redis_listener_t  *listener;

    n = 1;
    listener = NULL;

    while (ngx_rl_redis_listener_next(node->client, &listener)) {
        n++;
    }

    args = ngx_alloc(n * sizeof(ngx_str_t), node->client->log);
    if (args == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&args[0], "SUBSCRIBE");
    n = 1;
    listener = NULL;

    while (ngx_rl_redis_listener_next(node->client, &listener)) {
        args[n++] = listener->channel;
    }

    rc = ngx_rl_redis_command(node, NGX_RL_REDIS_LISTEN, args, n)
         ? NGX_OK : NGX_ERROR;

    ngx_free(args);

    return rc;
}


/*
 * Without the right to subscribe, the gateway tries again after a minute: the
 * documents are polled as well. Any other error may be over soon.
 */
static void
ngx_rl_redis_subscriber_refused(ngx_rl_redis_node_t *node)
{
    ngx_str_t  word;

    word = ngx_rl_redis_error_word(&node->reply);

    if (word.len != 6 || ngx_memcmp(word.data, "NOPERM", 6) != 0) {
        ngx_rl_redis_reply_setup(node, "SUBSCRIBE");
        return;
    }

    ngx_rl_redis_node_log(node, NGX_RL_REDIS_LINE_LISTEN, 0, "",
                          " refuses messages of changed rules: ", &word);

    node->client->stale = 1;
    node->client->listens_ms = ngx_current_msec + NGX_RL_REDIS_REFUSED_MS;
}


void
ngx_rl_redis_control_heard(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_str_t                *text;
    ngx_queue_t              *q;
    ngx_rl_redis_call_t      *next;
    ngx_rl_redis_reply_t     *reply;
    ngx_rl_redis_listener_t  *listener;

    reply = &node->reply;

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_rl_redis_call_free(call);
        ngx_rl_redis_subscriber_refused(node);
        return;
    }

    /* the first again; it says since when nothing was heard */

    call->node = node;
    call->request.since_ms = ngx_current_msec;
    ngx_queue_insert_head(&node->conn.requests, &call->request.queue);
    node->conn.pending++;

    if (!reply->flat || reply->ntexts == 0) {
        ngx_rl_redis_conn_break(&node->conn, 0, "a reply of another call");
        return;
    }

    text = reply->texts;

    if (text->len == 4 && ngx_memcmp(text->data, "pong", 4) == 0) {
        q = ngx_queue_next(&call->request.queue);

        if (q != ngx_queue_sentinel(&node->conn.requests)
            && q != node->conn.next)
        {
            next = ngx_rl_redis_call_of(q);
            ngx_rl_redis_call_remove(next);
            ngx_rl_redis_call_free(next);
        }

    } else if (reply->ntexts > 1) {
        ngx_rl_redis_conn_recovered(&node->conn);

        listener = NULL;

        while (ngx_rl_redis_listener_next(node->client, &listener)) {

            if (listener->channel.len == text[1].len
                && ngx_memcmp(listener->channel.data, text[1].data, text[1].len)
                   == 0)
            {
                ngx_post_event(listener->event, &ngx_posted_events);
            }
        }
    }

    ngx_rl_redis_texts_free(reply);
}


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
                         ngx_rl_redis_status_name(result->status));
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
    atomic_store(&shared->heard_ms, ngx_current_msec);

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


/* The timer of what the worker does by itself. */
static void
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


/* timers and posted events of a client */
static const struct {
    size_t                offset;
    ngx_event_handler_pt  handler;
} ngx_rl_redis_events[] = {
    { offsetof(ngx_rl_redis_client_t, deadline),
      ngx_rl_redis_deadline_handler },
    { offsetof(ngx_rl_redis_client_t, expire_event),
      ngx_rl_redis_expire_handler },
    { offsetof(ngx_rl_redis_client_t, done_event),
      ngx_rl_redis_done_handler },
    { offsetof(ngx_rl_redis_client_t, again_timer),
      ngx_rl_redis_again_handler },
    { offsetof(ngx_rl_redis_client_t, release_event),
      ngx_rl_redis_release_handler },
    { offsetof(ngx_rl_redis_client_t, upkeep),
      ngx_rl_redis_upkeep_handler },
    { offsetof(ngx_rl_redis_client_t, listens),
      ngx_rl_redis_subscriber_handler },
    { offsetof(ngx_rl_redis_client_t, topology.timer),
      ngx_rl_redis_topology_handler }
};


static void
ngx_rl_redis_queue_free(ngx_queue_t *queue)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(queue)) {
        q = ngx_queue_head(queue);
        ngx_queue_remove(q);
        ngx_rl_redis_call_free(ngx_rl_redis_call_of(q));
    }
}


/* With its connections; no handler is called. */
static void
ngx_rl_redis_client_free(ngx_rl_redis_client_t *client)
{
    ngx_uint_t            i;
    ngx_event_t          *ev, *flush;
    ngx_queue_t          *q;
    ngx_rl_redis_node_t  *node;

    while (!ngx_queue_empty(&client->nodes)) {
        node = ngx_rl_redis_node_of(ngx_queue_head(&client->nodes));
        flush = &node->conn.flush;

        if (flush->posted && node->conn.state == NGX_RL_REDIS_UP) {

            /* what the last requests gave back as they ended */

            ngx_delete_posted_event(flush);
            ngx_rl_redis_conn_flush_handler(flush);
            continue;
        }

        ngx_rl_redis_session_free(node);
    }

    ngx_rl_redis_queue_free(&client->unmapped);
    ngx_rl_redis_queue_free(&client->again);
    ngx_rl_redis_queue_free(&client->done);

    while (!ngx_queue_empty(&client->free)) {
        q = ngx_queue_head(&client->free);
        ngx_queue_remove(q);
        ngx_free(ngx_rl_redis_call_of(q));
    }

    for (i = 0; i < NGX_RL_REDIS_EVENTS; i++) {
        ev = ngx_rl_redis_event(client, i);

        if (ev->timer_set) {
            ngx_del_timer(ev);
        }

        if (ev->posted) {
            ngx_delete_posted_event(ev);
        }
    }

    ngx_rl_redis_auth_stop(client);

    if (client->topology.slots) {
        ngx_free(client->topology.slots);
    }

    if (client->net.io) {
        ngx_free(client->net.io);
    }

    ngx_free(client);
}


/* Without any connection. NULL: memory is out. */
static ngx_rl_redis_client_t *
ngx_rl_redis_client_new(ngx_rl_redis_t *redis, ngx_cycle_t *cycle,
    ngx_uint_t control)
{
    ngx_uint_t              i;
    ngx_event_t            *ev;
    ngx_rl_redis_client_t  *client;

    client = ngx_calloc(sizeof(ngx_rl_redis_client_t), cycle->log);
    if (client == NULL) {
        return NULL;
    }

    client->redis = redis;
    client->log = cycle->log;
    client->control = control;
    client->fd = (ngx_socket_t) -1;
    client->owner = &ngx_rl_redis_session;

    if (control) {
        client->timeout = NGX_RL_REDIS_CONTROL_MS;
        client->net.dead_ms = 2 * NGX_RL_REDIS_CONTROL_MS;

    } else {
        client->timeout = redis->timeout;
        client->net.dead_ms = ngx_max(NGX_RL_REDIS_DEAD_MIN_MS,
                                      4 * redis->timeout);
    }

    client->jitter = (uint32_t) ngx_random();

    client->net.redis = redis;
    client->net.log = cycle->log;
    client->net.muted = *cycle->log;

    if (!(client->net.muted.log_level & NGX_LOG_DEBUG_ALL)) {
        client->net.muted.log_level = ngx_min(client->net.muted.log_level,
                                              NGX_LOG_ALERT);
    }

    ngx_queue_init(&client->nodes);
    ngx_queue_init(&client->deadlines);
    ngx_queue_init(&client->done);
    ngx_queue_init(&client->again);
    ngx_queue_init(&client->unmapped);
    ngx_queue_init(&client->free);
    ngx_queue_init(&client->listeners);

    for (i = 0; i < NGX_RL_REDIS_EVENTS; i++) {
        ev = ngx_rl_redis_event(client, i);
        ev->data = client;
        ev->log = client->log;
        ev->handler = ngx_rl_redis_events[i].handler;
        ev->cancelable = 1;
    }

    client->net.io = ngx_alloc(NGX_RL_REDIS_IO_BYTES, client->log);

    if (client->net.io == NULL) {
        ngx_rl_redis_client_free(client);
        return NULL;
    }

    return client;
}


void
ngx_rl_redis_stop(ngx_rl_redis_t *redis)
{
    if (redis->control) {
        ngx_rl_redis_client_free(redis->control);
        redis->control = NULL;
    }

    if (redis->client) {
        ngx_rl_redis_client_free(redis->client);
        redis->client = NULL;
    }
}


ngx_int_t
ngx_rl_redis_start(ngx_rl_redis_t *redis, ngx_cycle_t *cycle)
{
    u_char                  sha[20], hex[40], *p;
    ngx_sha1_t              sha1;
    ngx_rl_redis_client_t  *client;

    client = ngx_rl_redis_client_new(redis, cycle, 0);
    if (client == NULL) {
        return NGX_ERROR;
    }

    redis->client = client;
    redis->control = ngx_rl_redis_client_new(redis, cycle, 1);

    if (redis->control == NULL
        || RAND_bytes((u_char *) &client->name, sizeof(client->name)) != 1
        || ngx_rl_redis_auth_start(client) != NGX_OK
        || ngx_rl_redis_client_connect(client) != NGX_OK)
    {
        ngx_rl_redis_stop(redis);
        return NGX_ERROR;
    }

    /* all checks begin with the same bytes, written once */

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, ngx_rl_lua_check, ngx_rl_lua_check_len);
    ngx_sha1_final(sha, &sha1);
    ngx_hex_dump(hex, sha, 20);

    p = ngx_rl_redis_write_bulk(client->evalsha, (u_char *) "EVALSHA", 7);
    p = ngx_rl_redis_write_bulk(p, hex, 40);
    client->evalsha_len = p - client->evalsha;

    /* its time to wait for an answer begins when the worker is at work */

    ngx_add_timer(&client->upkeep, 1);

    return NGX_OK;
}


ngx_int_t
ngx_rl_redis_node_stat(const ngx_rl_redis_t *redis, ngx_queue_t **at,
    ngx_rl_redis_node_stat_t *stat)
{
    ngx_queue_t            *q;
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;
    ngx_rl_redis_place_t   *place;

    client = redis->client;
    place = NULL;
    q = *at;

    if (q == NULL) {
        q = ngx_queue_head(&client->nodes);

        if (client->topology.slots) {
            ngx_rl_redis_topology_look(client);

            if (!client->topology.mapped) {
                q = ngx_queue_sentinel(&client->nodes);
                place = client->map_place;
            }
        }
    }

    for ( /* void */ ;
         place == NULL && q != ngx_queue_sentinel(&client->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_rl_redis_node_of(q);

        if (client->topology.slots == NULL || node->owned) {
            place = node->place;
        }
    }

    *at = q;

    if (place == NULL) {
        return NGX_DONE;
    }

    stat->name.data = place->name;
    stat->name.len = place->name_len;
    stat->state = ngx_rl_breaker_state(&place->breaker);
    stat->connected = ngx_rl_redis_connected(place);
    ngx_rl_redis_times(redis->shared, place, stat->times);

    return NGX_OK;
}

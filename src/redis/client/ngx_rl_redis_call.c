/*
 * A call's life, its way to a node, and the node's breaker.
 *
 * A call is in one queue at a time: a connection's (queued or sent), or the
 * client's unmapped (no slot map yet), again (TRYAGAIN) or done (its handler
 * is to be called). Beside that it waits in deadlines, which is in order
 * because all calls of a client have the same timeout.
 *
 * Breakers decide which calls are sent, learn how calls end, release waiting
 * calls, and write the log. A call counts if a request made it, even if that
 * request is gone. A call that nobody waits for, as giving back, is sent while
 * the breaker is closed, and neither opens nor closes it. A call that frees a
 * permit is always sent.
 *
 * The end of a call counts against the node only where no worker has heard the
 * node meanwhile, or where the node was late on this very connection. Otherwise
 * only the connection is broken.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_DOUBT_MIN_MS  100

#define NGX_RL_REDIS_CALL_BYTES  528  /* of a call in the free list */
#define NGX_RL_REDIS_FREE_CALLS  256

#define NGX_RL_REDIS_MAX_PENDING  65536    /* calls in a queue */
#define NGX_RL_REDIS_AGAIN_MS     5


/* The random number is of the last call that failed. */
static ngx_rl_breaker_now_t
ngx_rl_redis_breaker_now(const ngx_rl_redis_client_t *client)
{
    ngx_rl_breaker_now_t  now;

    now.ms = ngx_current_msec;
    now.timeout_ms = (uint32_t) client->timeout;
    now.random = client->jitter;

    return now;
}


/* Later in this turn: no handler is called from inside eval. */
static void
ngx_rl_redis_release(ngx_rl_redis_client_t *client)
{
    client->released = atomic_load(&client->redis->shared->opened);
    ngx_post_event(&client->release_event, &ngx_posted_events);
}


/*
 * Asks the breaker of place (or NULL: there is none). Returns whether to send
 * the call; else it was failed. credit is of the node.
 */
static ngx_uint_t
ngx_rl_redis_breaker_ask(ngx_rl_redis_call_t *call, ngx_rl_redis_place_t *place,
    uint32_t *credit)
{
    uint64_t                wait_ms;
    ngx_rl_breaker_now_t    now;
    ngx_rl_redis_client_t  *client;

    /* it may have waited for the slot map */

    call->place = NULL;

    if (place == NULL) {
        return 1;
    }

    client = call->client;
    now = ngx_rl_redis_breaker_now(client);
    wait_ms = ngx_rl_breaker_ask(&place->breaker, &now, credit);

    if (wait_ms == 0) {
        call->place = (call->kind == NGX_RL_REDIS_CHECK) ? place : NULL;
        return 1;
    }

    /* another worker may have opened it, while some wait here */

    if (client->released != atomic_load(&client->redis->shared->opened)) {
        ngx_rl_redis_release(client);
    }

    call->wait_ms = (ngx_msec_t) wait_ms;
    ngx_rl_redis_call_fail(call, NGX_RL_REDIS_OPEN);

    return 0;
}


/* nginx leaves a timer as it is for a change below 300 ms. */
static void
ngx_rl_redis_breaker_probe_in(ngx_rl_redis_client_t *client, ngx_msec_t ms)
{
    if (client->upkeep.timer_set && !ngx_exiting) {
        ngx_del_timer(&client->upkeep);
        ngx_add_timer(&client->upkeep, ms);
    }
}


static void
ngx_rl_redis_breaker_changed(ngx_rl_redis_client_t *client,
    ngx_rl_redis_place_t *place, ngx_rl_breaker_change_e change)
{
    ngx_str_t  name;

    /* each has the breaker's name and, where it opens, the reason */

    static const char *const  lines[NGX_RL_BREAKER_CHANGES] = {
        NULL,
        "breaker of %V closes",
        "breaker of %V opens, calls end with \"%V\"",
        "breaker of %V readmits calls"
    };

    if (change == NGX_RL_BREAKER_SAME) {
        return;
    }

    if (change == NGX_RL_BREAKER_OPENED) {
        ngx_rl_redis_count(client->redis->shared->opened);
        ngx_rl_redis_release(client);

        ngx_rl_redis_breaker_probe_in(client, NGX_RL_BREAKER_MIN_MS);

    } else if (change == NGX_RL_BREAKER_CLOSED_NOW) {
        ngx_rl_redis_count(place->closed);
    }

    name.data = place->name;
    name.len = place->name_len;

    ngx_rl_redis_log(client, &place->changes[change],
                     NGX_RL_LOG_MS,
                     change == NGX_RL_BREAKER_OPENED
                                ? NGX_LOG_ERR : NGX_LOG_NOTICE,
                     0, lines[change], &name,
                     ngx_rl_redis_status_name(client->failed));
}


void
ngx_rl_redis_breaker_report(ngx_rl_redis_call_t *call,
    ngx_rl_breaker_outcome_e outcome, ngx_rl_redis_status_e status)
{
    ngx_rl_breaker_now_t      now;
    ngx_rl_redis_place_t     *place;
    ngx_rl_redis_client_t    *client;
    ngx_rl_breaker_change_e   change;

    place = call->place;

    if (place == NULL) {
        return;
    }

    client = call->client;
    call->place = NULL;

    if (outcome != NGX_RL_BREAKER_GOOD) {
        client->failed = status;
        client->jitter = (uint32_t) ngx_random();
    }

    now = ngx_rl_redis_breaker_now(client);

    if (call->kind == NGX_RL_REDIS_PROBE) {
        change = ngx_rl_breaker_probed(&place->breaker,
                                       outcome == NGX_RL_BREAKER_GOOD, &now);

    } else {
        change = ngx_rl_breaker_report(&place->breaker,
                     &client->good[place - client->redis->shared->places],
                     outcome, &now);
    }

    ngx_rl_redis_breaker_changed(client, place, change);

    if ((outcome == NGX_RL_BREAKER_TIMED_OUT
         || outcome == NGX_RL_BREAKER_LATE)
        && ngx_rl_breaker_state(&place->breaker)
           == NGX_RL_BREAKER_OPEN)
    {
        ngx_rl_redis_release(client);
    }
}


/* A probe must end, and the node has answered. */
void
ngx_rl_redis_breaker_neutral(ngx_rl_redis_call_t *call)
{
    if (call->kind == NGX_RL_REDIS_PROBE) {
        ngx_rl_redis_breaker_report(call, NGX_RL_BREAKER_GOOD, NGX_RL_REDIS_OK);
    }

    call->place = NULL;
}


void
ngx_rl_redis_breaker_unsent(ngx_rl_redis_call_t *call,
    ngx_rl_redis_node_t *node)
{
    ngx_rl_redis_place_t  *place;

    place = call->place;

    if (place == NULL || call->kind == NGX_RL_REDIS_PROBE) {
        return;
    }

    if (ngx_rl_breaker_lives(&place->breaker, node->lost_ms)) {
        call->place = NULL;
        return;
    }

    ngx_rl_redis_breaker_report(call, NGX_RL_BREAKER_UNREACHABLE,
                                NGX_RL_REDIS_UNREACHABLE);
}


static void
ngx_rl_redis_breaker_expired(ngx_rl_redis_call_t *call)
{
    ngx_msec_t                 since_ms;
    ngx_rl_redis_node_t       *node;
    ngx_rl_redis_place_t      *place;
    ngx_rl_breaker_outcome_e   outcome;

    node = call->node;
    place = call->place;

    if (place == NULL) {
        return;
    }

    outcome = NGX_RL_BREAKER_TIMED_OUT;
    since_ms = 0;

    if (node && node->conn.state != NGX_RL_REDIS_UP) {
        node->vain = 1;
        since_ms = node->lost_ms;

    } else if (node) {
        since_ms = call->request.since_ms;

        /* the worker, not the node, took the time */

        if (call->kind != NGX_RL_REDIS_PROBE
            && (!call->request.written
                || ngx_current_msec - since_ms < call->client->timeout / 2))
        {
            call->place = NULL;
            return;
        }
    }

    if (node && call->kind != NGX_RL_REDIS_PROBE
        && ngx_rl_breaker_lives(&place->breaker, since_ms))
    {
        if (!call->request.written || node->heard_ms <= since_ms) {
            call->place = NULL;
            return;
        }

        outcome = NGX_RL_BREAKER_LATE;
    }

    ngx_rl_redis_breaker_report(call, outcome, NGX_RL_REDIS_TIMEOUT);
}


void
ngx_rl_redis_breaker_heard(ngx_rl_redis_node_t *node,
    ngx_rl_breaker_reply_e reply)
{
    ngx_rl_redis_place_t  *place;

    place = node->place;
    node->heard_ms = ngx_current_msec;

    if (place == NULL || node->stranger) {
        return;
    }

    ngx_rl_redis_breaker_changed(node->client, place,
                                 ngx_rl_breaker_heard(&place->breaker, reply,
                                                      ngx_current_msec));

    if (reply == NGX_RL_BREAKER_REPLY_LATE
        && ngx_rl_breaker_hasten(&place->breaker, ngx_current_msec))
    {
        ngx_rl_redis_breaker_probe_in(node->client, 1);
    }
}


void
ngx_rl_redis_breaker_lost(ngx_rl_redis_node_t *node, ngx_uint_t was_up)
{
    ngx_rl_breaker_now_t    now;
    ngx_rl_redis_place_t   *place;
    ngx_rl_redis_client_t  *client;

    place = node->place;
    client = node->client;

    if (place == NULL) {
        return;
    }

    node->closed = atomic_load(&place->closed);

    if (client->control || ngx_exiting) {
        return;
    }

    if (was_up) {
        atomic_store(&place->up_ms, 0);
        return;
    }

    /* the next attempts are its probes */

    if (!ngx_rl_redis_connected(place)
        && (client->topology.slots == NULL || node->owned))
    {
        client->failed = NGX_RL_REDIS_UNREACHABLE;
        client->jitter = (uint32_t) ngx_random();
        now = ngx_rl_redis_breaker_now(client);

        ngx_rl_redis_breaker_changed(client, place,
                         ngx_rl_breaker_gone(&place->breaker, &now));
    }
}


/* Whether another worker has found the node well since its connection broke. */
static ngx_uint_t
ngx_rl_redis_breaker_recovered(ngx_rl_redis_node_t *node)
{
    return node->place && node->closed != atomic_load(&node->place->closed);
}


/* There is a slot map: nobody waits for the first one any more. */
static void
ngx_rl_redis_breaker_mapped(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_place_t  *place;

    place = client->map_place;
    client->map_place = NULL;

    if (place) {
        ngx_rl_redis_breaker_changed(client, place,
            ngx_rl_breaker_heard(&place->breaker, NGX_RL_BREAKER_REPLY_GOOD,
            ngx_current_msec));
    }
}


void
ngx_rl_redis_breaker_settle(ngx_rl_redis_node_t *node)
{
    ngx_rl_breaker_now_t    now;
    ngx_rl_redis_client_t  *client;

    client = node->client;
    now = ngx_rl_redis_breaker_now(client);

    ngx_rl_redis_breaker_changed(client, node->place,
                   ngx_rl_breaker_settle(&node->place->breaker, &now));
}


/*
 * A call on node's connection has timed out: breaks that where it has been
 * silent for long while the node answered other workers.
 */
static void
ngx_rl_redis_breaker_doubt(ngx_rl_redis_node_t *node)
{
    ngx_msec_t               since_ms, doubt_ms;
    ngx_rl_redis_request_t  *request;

    request = ngx_rl_redis_conn_head(&node->conn);

    if (node->conn.state != NGX_RL_REDIS_UP
        || node->place == NULL
        || request == NULL)
    {
        return;
    }

    since_ms = ngx_max(request->since_ms, node->heard_ms);
    doubt_ms = ngx_max(2 * node->client->timeout, NGX_RL_REDIS_DOUBT_MIN_MS);

    if (ngx_current_msec - since_ms >= doubt_ms
        && ngx_rl_breaker_lives(&node->place->breaker, since_ms))
    {
        ngx_rl_redis_conn_break(&node->conn, NGX_ETIMEDOUT,
                                "it alone has no replies");
    }
}


void
ngx_rl_redis_release_handler(ngx_event_t *ev)
{
    ngx_queue_t            *q, *next, go;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_place_t   *place;
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    /* a queue of their own: handlers may make calls */

    ngx_queue_init(&go);

    for (q = ngx_queue_head(&client->deadlines);
         q != ngx_queue_sentinel(&client->deadlines);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_rl_redis_call_t, wait);

        place = call->node ? call->node->place : call->place;

        if (place && call->kind != NGX_RL_REDIS_PROBE
            && ngx_rl_breaker_state(&place->breaker) == NGX_RL_BREAKER_OPEN)
        {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&go, q);
        }
    }

    while (!ngx_queue_empty(&go)) {
        q = ngx_queue_head(&go);
        call = ngx_queue_data(q, ngx_rl_redis_call_t, wait);

        /* it is open: one more that had no answer changes nothing */

        call->place = NULL;
        ngx_rl_redis_call_leave(call, NGX_RL_REDIS_OPEN);
    }
}


ngx_rl_redis_call_t *
ngx_rl_redis_call_new(ngx_rl_redis_client_t *client, ngx_rl_redis_kind_e kind,
    size_t len)
{
    size_t                size;
    ngx_queue_t          *q;
    ngx_rl_redis_call_t  *call;

    size = sizeof(ngx_rl_redis_call_t) + len;

    if (size <= NGX_RL_REDIS_CALL_BYTES && client->nfree) {
        q = ngx_queue_head(&client->free);
        ngx_queue_remove(q);
        client->nfree--;

        call = ngx_rl_redis_call_of(q);

    } else {
        call = ngx_alloc(ngx_max(size, NGX_RL_REDIS_CALL_BYTES), client->log);
        if (call == NULL) {
            return NULL;
        }
    }

    ngx_memzero(call, sizeof(ngx_rl_redis_call_t));

    call->client = client;
    call->kind = kind;
    call->pooled = (size <= NGX_RL_REDIS_CALL_BYTES);
    call->request.text = (u_char *) &call[1];

    return call;
}


ngx_rl_redis_call_t *
ngx_rl_redis_command_new(ngx_rl_redis_client_t *client,
    ngx_rl_redis_kind_e kind, const ngx_str_t *args, ngx_uint_t nargs)
{
    size_t                len;
    ngx_uint_t            i;
    ngx_rl_redis_call_t  *call;

    len = NGX_RL_REDIS_ARRAY;

    for (i = 0; i < nargs; i++) {
        len += NGX_RL_REDIS_BULK(args[i].len);
    }

    call = ngx_rl_redis_call_new(client, kind, len);

    if (call) {
        call->request.len = ngx_rl_redis_write_command(
                                call->request.text, args, nargs)
                            - call->request.text;
    }

    return call;
}


static void
ngx_rl_redis_call_append(ngx_rl_redis_call_t *call, ngx_rl_redis_node_t *node)
{
    call->node = node;
    ngx_rl_redis_conn_append(&node->conn, &call->request);
}


ngx_rl_redis_call_t *
ngx_rl_redis_command(ngx_rl_redis_node_t *node, ngx_rl_redis_kind_e kind,
    const ngx_str_t *args, ngx_uint_t nargs)
{
    ngx_rl_redis_call_t  *call;

    call = ngx_rl_redis_command_new(node->client, kind, args, nargs);

    if (call) {
        ngx_rl_redis_call_append(call, node);
    }

    return call;
}


void
ngx_rl_redis_call_remove(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_conn_remove(&call->node->conn, &call->request);
    call->node = NULL;
}


/*
 * A worker that exits waits for the calls of requests, also of those that have
 * ended: for an answer, or until the deadline's timer.
 */
static void
ngx_rl_redis_waiting(ngx_rl_redis_call_t *call, ngx_int_t more)
{
    ngx_rl_redis_client_t  *client;

    if (call->kind > NGX_RL_REDIS_UNDO) {
        return;
    }

    client = call->client;
    client->waiting += more;
    client->deadline.cancelable = (client->waiting == 0);
}


/* The one way from one state of a call's life to another. */
static void
ngx_rl_redis_call_enter(ngx_rl_redis_call_t *call, ngx_rl_redis_life_e life)
{
    ngx_rl_redis_client_t  *client;

    client = call->client;

    if (call->life == NGX_RL_REDIS_WAITED) {
        ngx_queue_remove(&call->wait);
        ngx_rl_redis_waiting(call, -1);
    }

    call->life = life;

    switch (life) {

    case NGX_RL_REDIS_WAITED:
        call->deadline_ms = ngx_current_msec + client->timeout;
        ngx_queue_insert_tail(&client->deadlines, &call->wait);
        ngx_rl_redis_waiting(call, 1);

        /* set once for many calls: it may fire early and is set again then */

        if (!client->deadline.timer_set) {
            ngx_add_timer(&client->deadline, client->timeout);
        }

        break;

    case NGX_RL_REDIS_DONE:
        ngx_queue_insert_tail(&client->done, &call->request.queue);
        ngx_post_event(&client->done_event, &ngx_posted_events);
        break;

    default: /* NGX_RL_REDIS_MADE, NGX_RL_REDIS_LEFT */
        break;
    }
}


void
ngx_rl_redis_call_wait(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_call_enter(call, NGX_RL_REDIS_WAITED);
}


void
ngx_rl_redis_forget(ngx_rl_redis_call_t *call)
{
    call->handler = NULL;
}


void
ngx_rl_redis_call_free(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_client_t  *client;

    client = call->client;

    ngx_rl_redis_call_enter(call, NGX_RL_REDIS_MADE);

    if (call->kind == NGX_RL_REDIS_AUTH || call->kind == NGX_RL_REDIS_REAUTH) {
        ngx_explicit_memzero(call->request.text, call->request.len);
    }

    if (client->topology.question == call) {
        client->topology.question = NULL;
    }

    if (call->pooled && client->nfree < NGX_RL_REDIS_FREE_CALLS) {
        ngx_queue_insert_head(&client->free, &call->request.queue);
        client->nfree++;
        return;
    }

    ngx_free(call);
}


/* A call is counted once: a late reply does not count it again. */
static void
ngx_rl_redis_call_count(const ngx_rl_redis_call_t *call,
    ngx_rl_redis_status_e status)
{
    if (call->life == NGX_RL_REDIS_WAITED && call->kind <= NGX_RL_REDIS_UNDO) {
        ngx_rl_redis_count(ngx_rl_redis_counts(
                           call->client->redis->shared)->calls[status]);
    }
}


void
ngx_rl_redis_call_finish(ngx_rl_redis_call_t *call,
    const ngx_rl_redis_result_t *result)
{
    void                     *data;
    ngx_rl_redis_handler_pt   handler;

    ngx_rl_redis_call_count(call, result->status);

    handler = call->handler;
    data = call->data;

    ngx_rl_redis_call_free(call);

    if (handler) {
        handler(data, result);
    }
}


void
ngx_rl_redis_call_fail(ngx_rl_redis_call_t *call, ngx_rl_redis_status_e status)
{
    ngx_rl_redis_breaker_report(call, NGX_RL_BREAKER_FAILED, status);
    ngx_rl_redis_call_count(call, status);

    call->status = status;
    ngx_rl_redis_call_enter(call, NGX_RL_REDIS_DONE);
}


/*
 * When a deadline has passed, the worker looks at the sockets once more.
 * Replies that arrived while it was busy or stopped are in time, and calls that
 * it did not write yet are written. The timer stays set for that, so a worker
 * that exits waits, too. With accept_mutex the reads are posted, and the expire
 * event behind them.
 */
void
ngx_rl_redis_deadline_handler(ngx_event_t *ev)
{
    ngx_queue_t            *q;
    ngx_msec_int_t          left;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    if (ngx_queue_empty(&client->deadlines)) {
        client->looked = 0;
        return;
    }

    q = ngx_queue_head(&client->deadlines);
    call = ngx_queue_data(q, ngx_rl_redis_call_t, wait);
    left = (ngx_msec_int_t) (call->deadline_ms - ngx_current_msec);

    if (left <= 0 && client->looked) {
        client->looked = 0;
        ngx_post_event(&client->expire_event, &ngx_posted_events);
        return;
    }

    client->looked = (left <= 0);
    ngx_add_timer(ev, (ngx_msec_t) (left > 0 ? left : 1));
}


void
ngx_rl_redis_call_leave(ngx_rl_redis_call_t *call, ngx_rl_redis_status_e status)
{
    void                     *data;
    ngx_queue_t              *q;
    ngx_rl_redis_call_t      *asking;
    ngx_rl_redis_result_t     result;
    ngx_rl_redis_handler_pt   handler;

    ngx_memzero(&result, sizeof(ngx_rl_redis_result_t));

    if (call->node && call->asking && !call->request.written) {

        /*
         * Redis would take its ASKING for the next call's. Where that was
         * written, the call follows it as if that were written, too.
         */

        q = ngx_queue_prev(&call->request.queue);
        asking = ngx_rl_redis_call_of(q);

        if (q == ngx_queue_sentinel(&call->node->conn.requests)
            || asking->request.written)
        {
            call->request.written = 1;

        } else {
            ngx_rl_redis_call_remove(asking);
            ngx_rl_redis_call_free(asking);
        }
    }

    if (call->node && call->request.written) {
        handler = call->handler;
        data = call->data;

        ngx_rl_redis_call_count(call, NGX_RL_REDIS_TIMEOUT);
        ngx_rl_redis_call_enter(call, NGX_RL_REDIS_LEFT);

        if (!call->late) {
            call->handler = NULL;
        }

        result.status = NGX_RL_REDIS_TIMEOUT;
        result.ran = 1;
        result.again = call->late;

        if (handler) {
            handler(data, &result);
        }

        return;
    }

    if (call->node) {
        ngx_rl_redis_call_remove(call);

    } else {
        ngx_queue_remove(&call->request.queue);
    }

    result.status = status;
    result.wait_ms = (status == NGX_RL_REDIS_OPEN);
    ngx_rl_redis_call_finish(call, &result);
}


void
ngx_rl_redis_expire_handler(ngx_event_t *ev)
{
    ngx_queue_t            *q;
    ngx_event_t            *timer;
    ngx_msec_int_t          left;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;

    client = ev->data;
    timer = &client->deadline;

    while (!ngx_queue_empty(&client->deadlines)) {
        q = ngx_queue_head(&client->deadlines);
        call = ngx_queue_data(q, ngx_rl_redis_call_t, wait);
        left = (ngx_msec_int_t) (call->deadline_ms - ngx_current_msec);

        if (left > 0) {

            /* a call that was made since may have set it, for later */

            if (timer->timer_set) {
                ngx_del_timer(timer);
            }

            ngx_add_timer(timer, (ngx_msec_t) left);
            return;
        }

        /* it has just left: the worker took its time, the node gets its own */

        if (call->request.written && !call->delayed
            && call->request.since_ms == ngx_current_msec)
        {
            call->delayed = 1;
            ngx_rl_redis_call_wait(call);
            continue;
        }

        node = call->node;

        ngx_rl_redis_breaker_expired(call);
        ngx_rl_redis_call_leave(call, NGX_RL_REDIS_UNREACHABLE);

        if (node) {
            ngx_rl_redis_breaker_doubt(node);
        }
    }
}


void
ngx_rl_redis_done_handler(ngx_event_t *ev)
{
    ngx_queue_t            *q;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_result_t   result;
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    ngx_memzero(&result, sizeof(ngx_rl_redis_result_t));

    while (!ngx_queue_empty(&client->done)) {
        q = ngx_queue_head(&client->done);
        ngx_queue_remove(q);

        call = ngx_rl_redis_call_of(q);
        result.status = call->status;
        result.ran = call->request.written;
        result.wait_ms = call->wait_ms;
        ngx_rl_redis_call_finish(call, &result);
    }
}


void
ngx_rl_redis_call_queue(ngx_rl_redis_call_t *call, ngx_rl_redis_node_t *node)
{
    static const ngx_str_t  asking = ngx_string("ASKING");

    if (node->conn.state == NGX_RL_REDIS_DOWN) {
        ngx_rl_redis_refresh(node->client);

    } else if (node->vain && node->conn.state != NGX_RL_REDIS_UP) {

        /* a call has waited for it already, and in vain */

    } else if (node->stranger && !node->conn.lazy) {

        /* the server at its address is no node of the Cluster */

    } else if (node->conn.pending < NGX_RL_REDIS_MAX_PENDING) {

        /* the client of checks has its own renewed at once */

        if (node->client->control) {
            ngx_rl_redis_auth_renew(node);
        }

        if (!call->asking
            || ngx_rl_redis_command(node, NGX_RL_REDIS_ASKING,
                                    &asking, 1))
        {
            ngx_rl_redis_call_append(call, node);
            return;
        }
    }

    ngx_rl_redis_breaker_unsent(call, node);
    ngx_rl_redis_call_fail(call, NGX_RL_REDIS_UNREACHABLE);
}


void
ngx_rl_redis_call_send(ngx_rl_redis_call_t *call, ngx_rl_redis_node_t *node)
{
    ngx_uint_t  lazy;

    lazy = node->conn.lazy;

    /* another worker has found the node well */

    if (node->conn.state == NGX_RL_REDIS_DOWN
        && (lazy || ngx_rl_redis_breaker_recovered(node)))
    {
        ngx_rl_redis_conn_retry(&node->conn);
    }

    if ((call->kind == NGX_RL_REDIS_UNDO
         || call->kind == NGX_RL_REDIS_CONTROL)
        && (node->conn.state != NGX_RL_REDIS_DOWN || lazy))
    {
        call->place = NULL;
        ngx_rl_redis_call_queue(call, node);
        return;
    }

    if (ngx_rl_redis_breaker_ask(call, node->place, &node->credit)) {
        ngx_rl_redis_call_queue(call, node);
    }
}


static void
ngx_rl_redis_route_mapped(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;

    client = call->client;

    node = client->topology.slots
           ? client->topology.slots[call->slot]
           : ngx_rl_redis_node_of(ngx_queue_head(&client->nodes));

    if (node == NULL) {
        ngx_rl_redis_refresh(client);
        ngx_rl_redis_call_fail(call, NGX_RL_REDIS_UNREACHABLE);
        return;
    }

    ngx_rl_redis_call_send(call, node);
}


void
ngx_rl_redis_unmapped_route(ngx_rl_redis_client_t *client)
{
    ngx_queue_t  *q;

    if (!client->topology.mapped) {
        return;
    }

    ngx_rl_redis_breaker_mapped(client);

    while (!ngx_queue_empty(&client->unmapped)) {
        q = ngx_queue_head(&client->unmapped);
        ngx_queue_remove(q);
        ngx_rl_redis_route_mapped(ngx_rl_redis_call_of(q));
    }
}


static void
ngx_rl_redis_route(ngx_rl_redis_call_t *call)
{
    uint32_t                credit;
    ngx_uint_t              waiting;
    ngx_rl_redis_client_t  *client;

    client = call->client;

    if (client->topology.slots) {
        ngx_rl_redis_topology_look(client);
        ngx_rl_redis_unmapped_route(client);
    }

    if (client->topology.slots == NULL || client->topology.mapped) {
        ngx_rl_redis_route_mapped(call);
        return;
    }

    credit = 0;

    if (ngx_rl_redis_breaker_ask(call, client->map_place, &credit)) {
        waiting = !ngx_queue_empty(&client->unmapped);
        ngx_queue_insert_tail(&client->unmapped, &call->request.queue);

        if (!waiting) {
            ngx_rl_redis_topology_wait(client);
        }
    }
}


void
ngx_rl_redis_call_start(ngx_rl_redis_call_t *call,
    ngx_rl_redis_handler_pt handler, void *data)
{
    call->handler = handler;
    call->data = data;

    ngx_rl_redis_call_wait(call);
    ngx_rl_redis_route(call);
}


void
ngx_rl_redis_topology_handler(ngx_event_t *ev)
{
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    ngx_rl_redis_topology_tick(client);
    ngx_rl_redis_unmapped_route(client);
}


void
ngx_rl_redis_again(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_client_t  *client;

    client = call->client;

    call->request.since_ms = ngx_current_msec;
    ngx_queue_insert_tail(&client->again, &call->request.queue);

    if (!client->again_timer.timer_set) {
        ngx_add_timer(&client->again_timer, NGX_RL_REDIS_AGAIN_MS);
    }
}


void
ngx_rl_redis_again_handler(ngx_event_t *ev)
{
    ngx_msec_t              waited;
    ngx_queue_t            *q;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    while (!ngx_queue_empty(&client->again)) {
        q = ngx_queue_head(&client->again);
        call = ngx_rl_redis_call_of(q);
        waited = ngx_current_msec - call->request.since_ms;

        if (waited < NGX_RL_REDIS_AGAIN_MS) {
            ngx_add_timer(ev, NGX_RL_REDIS_AGAIN_MS - waited);
            return;
        }

        ngx_queue_remove(q);
        ngx_rl_redis_route(call);
    }
}

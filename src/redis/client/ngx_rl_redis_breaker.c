/*
 * The breakers of the Redis nodes at work: they decide which calls are sent,
 * learn how calls end, release waiting calls, and write the log.
 *
 * A call counts if a request made it, even if that request is gone. A call that
 * nobody waits for, as giving back, is sent while the breaker is closed, and
 * neither opens nor closes it. A call that frees a permit is always sent.
 *
 * The end of a call counts against the node only where no worker has heard the
 * node meanwhile, or where the node was late on this very connection. Otherwise
 * only the connection is broken.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_DOUBT_MIN_MS  100


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


ngx_uint_t
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


void
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


ngx_uint_t
ngx_rl_redis_breaker_recovered(ngx_rl_redis_node_t *node)
{
    return node->place && node->closed != atomic_load(&node->place->closed);
}


void
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


void
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

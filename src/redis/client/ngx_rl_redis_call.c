/*
 * A call's life.
 *
 * A call is in one queue at a time: a connection's (queued or sent), or the
 * client's unmapped (no slot map yet), again (TRYAGAIN) or done (its handler
 * is to be called). Beside that it waits in deadlines, which is in order
 * because all calls of a client have the same timeout.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_CALL_BYTES  528  /* of a call in the free list */
#define NGX_RL_REDIS_FREE_CALLS  256


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


void
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

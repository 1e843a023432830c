/*
 * A call's life: its way to a connection, its deadline, its handler.
 *
 * A call is in one queue at a time: a connection's (queued or sent), or the
 * client's unmapped (no slot map yet), again (TRYAGAIN) or done (its handler
 * is to be called). Beside that it waits in deadlines, which is in order
 * because all calls of a client have the same timeout.
 */

#include "ngx_ratelimit_redis_int.h"

#define NGX_RATELIMIT_REDIS_AGAIN_MS    5
#define NGX_RATELIMIT_REDIS_CALL_BYTES  528  /* of a call in the free list */
#define NGX_RATELIMIT_REDIS_FREE_CALLS  256

static void ngx_ratelimit_redis_call_untime(ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_call_end(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_status_e status);
static void ngx_ratelimit_redis_handler_set(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_handler_pt handler, ngx_uint_t told);
static void ngx_ratelimit_redis_map_wait(ngx_ratelimit_redis_call_t *call);


void
ngx_ratelimit_redis_call_start(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_redis_handler_set(call, handler, call->quiet);
    call->data = data;
    call->asked = (handler != NULL && !call->quiet);
    call->ended = call->quiet;

    ngx_ratelimit_redis_call_time(call);
    ngx_ratelimit_redis_route(call);
}


void
ngx_ratelimit_redis_forget(ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_handler_set(call, NULL, 0);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_call_new(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_kind_e kind, size_t len)
{
    size_t                       size;
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_call_t  *call;

    size = sizeof(ngx_ratelimit_redis_call_t) + len;

    if (size <= NGX_RATELIMIT_REDIS_CALL_BYTES && client->nfree) {
        q = ngx_queue_head(&client->free);
        ngx_queue_remove(q);
        client->nfree--;

        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);

    } else {
        call = ngx_alloc(ngx_max(size, NGX_RATELIMIT_REDIS_CALL_BYTES),
                         client->log);
        if (call == NULL) {
            return NULL;
        }
    }

    ngx_memzero(call, sizeof(ngx_ratelimit_redis_call_t));

    call->client = client;
    call->kind = kind;
    call->pooled = (size <= NGX_RATELIMIT_REDIS_CALL_BYTES);
    call->text = (u_char *) &call[1];

    return call;
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_command_new(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_kind_e kind, const ngx_str_t *args, ngx_uint_t nargs)
{
    size_t                       len;
    ngx_uint_t                   i;
    ngx_ratelimit_redis_call_t  *call;

    len = NGX_RATELIMIT_REDIS_ARRAY;

    for (i = 0; i < nargs; i++) {
        len += NGX_RATELIMIT_REDIS_BULK(args[i].len);
    }

    call = ngx_ratelimit_redis_call_new(client, kind, len);
    if (call == NULL) {
        return NULL;
    }

    call->len = ngx_ratelimit_redis_write_command(call->text, args, nargs)
                - call->text;

    return call;
}


void
ngx_ratelimit_redis_call_free(ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    ngx_ratelimit_redis_call_untime(call);
    ngx_ratelimit_redis_handler_set(call, NULL, 0);

    if (call->kind == NGX_RATELIMIT_REDIS_AUTH
        || call->kind == NGX_RATELIMIT_REDIS_REAUTH)
    {
        ngx_explicit_memzero(call->text, call->len);
    }

    if (client->refresh == call) {
        client->refresh = NULL;
    }

    if (call->pooled && client->nfree < NGX_RATELIMIT_REDIS_FREE_CALLS) {
        ngx_queue_insert_head(&client->free, &call->queue);
        client->nfree++;
        return;
    }

    ngx_free(call);
}


void
ngx_ratelimit_redis_call_finish(ngx_ratelimit_redis_call_t *call,
    const ngx_ratelimit_redis_result_t *result)
{
    void                            *data;
    ngx_ratelimit_redis_handler_pt   handler;

    ngx_ratelimit_redis_call_end(call, result->status);

    handler = call->handler;
    data = call->data;

    ngx_ratelimit_redis_call_free(call);

    if (handler) {
        handler(data, result);
    }
}


void
ngx_ratelimit_redis_call_fail(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_status_e status)
{
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    ngx_ratelimit_redis_breaker_report(call, NGX_RATELIMIT_BREAKER_FAILED,
                                       status);
    ngx_ratelimit_redis_call_untime(call);

    call->status = status;
    call->ran |= call->written;
    ngx_queue_insert_tail(&client->done, &call->queue);
    ngx_post_event(&client->done_event, &ngx_posted_events);
}


/* Counts what became of a call; what comes after its deadline ends it not. */

static void
ngx_ratelimit_redis_call_end(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_status_e status)
{
    if (!call->ended) {
        call->ended = 1;
        ngx_ratelimit_redis_count(call->client->redis->shared->calls[status]);
    }
}


/*
 * A worker that exits waits for this timer while a handler waits; one that has
 * been told does not.
 */

static void
ngx_ratelimit_redis_handler_set(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_handler_pt handler, ngx_uint_t told)
{
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    client->waiting -= (call->handler != NULL && !call->told);
    client->waiting += (handler != NULL && !told);
    client->deadline.cancelable = (client->waiting == 0);

    call->handler = handler;
    call->told = told;
}


void
ngx_ratelimit_redis_route(ngx_ratelimit_redis_call_t *call)
{
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_conn_t    *conn;
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    if (client->slots == NULL) {
        q = ngx_queue_head(&client->conns);
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

    } else {
        ngx_ratelimit_redis_topology_look(client);

        if (!client->mapped) {
            ngx_ratelimit_redis_map_wait(call);
            return;
        }

        ngx_ratelimit_redis_breaker_mapped(client);
        conn = client->slots[call->slot];
    }

    if (conn == NULL) {
        ngx_ratelimit_redis_refresh(client);
        ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_UNREACHABLE);
        return;
    }

    ngx_ratelimit_redis_call_send(conn, call);
}


static void
ngx_ratelimit_redis_map_wait(ngx_ratelimit_redis_call_t *call)
{
    uint32_t                       credit;
    ngx_uint_t                     waiting;
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    credit = 0;

    if (!ngx_ratelimit_redis_breaker_ask(call, client->map_shard, &credit)) {
        return;
    }

    waiting = !ngx_queue_empty(&client->unmapped);
    ngx_queue_insert_tail(&client->unmapped, &call->queue);

    if (!waiting) {
        ngx_ratelimit_redis_topology_wait(client);
    }
}


void
ngx_ratelimit_redis_call_send(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    /* another worker has found the node well */

    if (conn->state == NGX_RATELIMIT_REDIS_DOWN
        && (conn->client->lazy || ngx_ratelimit_redis_breaker_found(conn)))
    {
        ngx_ratelimit_redis_conn_retry(conn);
    }

    if (call->undo
        && (conn->state != NGX_RATELIMIT_REDIS_DOWN || conn->client->lazy))
    {
        call->shard = NULL;
        ngx_ratelimit_redis_conn_send(conn, call);
        return;
    }

    if (ngx_ratelimit_redis_breaker_ask(call, conn->shard, &conn->credit)) {
        ngx_ratelimit_redis_conn_send(conn, call);
    }
}


void
ngx_ratelimit_redis_again(ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    call->since_ms = ngx_current_msec;
    ngx_queue_insert_tail(&client->again, &call->queue);

    if (!client->again_timer.timer_set) {
        ngx_add_timer(&client->again_timer, NGX_RATELIMIT_REDIS_AGAIN_MS);
    }
}


void
ngx_ratelimit_redis_again_handler(ngx_event_t *ev)
{
    ngx_msec_t                     waited;
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    while (!ngx_queue_empty(&client->again)) {
        q = ngx_queue_head(&client->again);
        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);
        waited = ngx_current_msec - call->since_ms;

        if (waited < NGX_RATELIMIT_REDIS_AGAIN_MS) {
            ngx_add_timer(ev, NGX_RATELIMIT_REDIS_AGAIN_MS - waited);
            return;
        }

        ngx_queue_remove(q);
        ngx_ratelimit_redis_route(call);
    }
}


void
ngx_ratelimit_redis_call_time(ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;

    call->deadline_ms = ngx_current_msec + client->timeout;
    call->timed = 1;
    ngx_queue_insert_tail(&client->deadlines, &call->wait);

    /* set once for many calls: it may fire early and is set again then */

    if (!client->deadline.timer_set) {
        ngx_add_timer(&client->deadline, client->timeout);
    }
}


static void
ngx_ratelimit_redis_call_untime(ngx_ratelimit_redis_call_t *call)
{
    if (call->timed) {
        ngx_queue_remove(&call->wait);
        call->timed = 0;
    }
}


/*
 * When a deadline has passed, the sockets are looked at once more: replies that
 * have arrived while the worker was busy, or stopped, are in time, and calls
 * that it did not write yet leave. The timer stays set for that, so a worker
 * that exits waits, too. With accept_mutex what was found is posted, and the
 * expire event behind it.
 */

void
ngx_ratelimit_redis_deadline_handler(ngx_event_t *ev)
{
    ngx_queue_t                   *q;
    ngx_msec_int_t                 left;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    if (ngx_queue_empty(&client->deadlines)) {
        client->looked = 0;
        return;
    }

    q = ngx_queue_head(&client->deadlines);
    call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, wait);
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
ngx_ratelimit_redis_expire_handler(ngx_event_t *ev)
{
    ngx_queue_t                   *q;
    ngx_event_t                   *timer;
    ngx_msec_int_t                 left;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_conn_t    *conn;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;
    timer = &client->deadline;

    while (!ngx_queue_empty(&client->deadlines)) {
        q = ngx_queue_head(&client->deadlines);
        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, wait);
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

        if (call->written && !call->delayed
            && call->since_ms == ngx_current_msec)
        {
            call->delayed = 1;
            ngx_ratelimit_redis_call_untime(call);
            ngx_ratelimit_redis_call_time(call);
            continue;
        }

        conn = call->conn;

        ngx_ratelimit_redis_breaker_expired(call);
        ngx_ratelimit_redis_call_leave(call, NGX_RATELIMIT_REDIS_UNREACHABLE);

        if (conn) {
            ngx_ratelimit_redis_conn_doubt(conn);
        }
    }
}


void
ngx_ratelimit_redis_call_leave(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_status_e status)
{
    void                            *data;
    ngx_ratelimit_redis_result_t     result;
    ngx_ratelimit_redis_handler_pt   handler;

    ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));

    if (call->conn && call->written) {
        handler = call->handler;
        data = call->data;

        ngx_ratelimit_redis_call_untime(call);
        ngx_ratelimit_redis_handler_set(call, call->late ? handler : NULL, 1);
        ngx_ratelimit_redis_call_end(call, NGX_RATELIMIT_REDIS_TIMEOUT);

        result.status = NGX_RATELIMIT_REDIS_TIMEOUT;
        result.ran = 1;
        result.again = call->late;

        if (handler) {
            handler(data, &result);
        }

        return;
    }

    if (call->conn) {
        ngx_ratelimit_redis_conn_remove(call);

    } else {
        ngx_queue_remove(&call->queue);
    }

    result.status = status;
    result.wait_ms = (status == NGX_RATELIMIT_REDIS_OPEN);
    ngx_ratelimit_redis_call_finish(call, &result);
}


void
ngx_ratelimit_redis_done_handler(ngx_event_t *ev)
{
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_result_t   result;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));

    while (!ngx_queue_empty(&client->done)) {
        q = ngx_queue_head(&client->done);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);
        result.status = call->status;
        result.ran = call->ran;
        result.wait_ms = call->wait_ms;
        ngx_ratelimit_redis_call_finish(call, &result);
    }
}

/*
 * The breakers of the Redis nodes at work: which calls are sent, what the end
 * of a call says about the node, the probes, who is let go, and what the log
 * says.
 *
 * What counts is what a request asked, whatever became of that request since:
 * the breaker is there for those who wait. What nobody waits for, as giving
 * back, is sent while it is closed, and neither opens nor closes it; only what
 * frees a slot is sent in any case.
 *
 * The end of a call counts against the node only where no worker has heard the
 * node meanwhile, or where the node was late on this very connection. Else it
 * is the connection that is broken.
 */

#include "ngx_ratelimit_redis_int.h"

/* longer than its timeout a probe's report is not waited for */
#define NGX_RATELIMIT_REDIS_PROBE_LOST_MS  500

/* so often a worker looks for breakers that others have opened */
#define NGX_RATELIMIT_REDIS_PROBE_LOOK_MS  1000


static ngx_ratelimit_breaker_now_t ngx_ratelimit_redis_breaker_now(
    const ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_breaker_changed(
    ngx_ratelimit_redis_client_t *client, ngx_ratelimit_redis_shard_t *shard,
    ngx_ratelimit_breaker_change_e change);
static ngx_msec_t ngx_ratelimit_redis_probe(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_release(ngx_ratelimit_redis_client_t *client);
static ngx_uint_t ngx_ratelimit_redis_in_vain(
    const ngx_ratelimit_redis_call_t *call);


ngx_uint_t
ngx_ratelimit_redis_breaker_ask(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_shard_t *shard, uint32_t *credit)
{
    uint64_t                       wait_ms;
    ngx_ratelimit_breaker_now_t    now;
    ngx_ratelimit_redis_client_t  *client;

    /* it may have waited for the slot map */

    call->shard = NULL;

    if (shard == NULL) {
        return 1;
    }

    client = call->client;
    now = ngx_ratelimit_redis_breaker_now(client);
    wait_ms = ngx_ratelimit_breaker_ask(&shard->breaker, &now, credit);

    if (wait_ms == 0) {
        call->shard = call->asked ? shard : NULL;
        return 1;
    }

    /* another worker may have opened it, while some wait here */

    if (client->released != atomic_load(&client->redis->shared->opened)) {
        ngx_ratelimit_redis_release(client);
    }

    call->wait_ms = (ngx_msec_t) wait_ms;
    ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_OPEN);

    return 0;
}


/* The random number is of the last call that failed. */

static ngx_ratelimit_breaker_now_t
ngx_ratelimit_redis_breaker_now(const ngx_ratelimit_redis_client_t *client)
{
    ngx_ratelimit_breaker_now_t  now;

    now.ms = ngx_current_msec;
    now.timeout_ms = (uint32_t) client->timeout;
    now.random = client->jitter;

    return now;
}


void
ngx_ratelimit_redis_breaker_report(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_breaker_outcome_e outcome,
    ngx_ratelimit_redis_status_e status)
{
    ngx_ratelimit_breaker_now_t      now;
    ngx_ratelimit_redis_shard_t     *shard;
    ngx_ratelimit_redis_client_t    *client;
    ngx_ratelimit_breaker_change_e   change;

    shard = call->shard;

    if (shard == NULL) {
        return;
    }

    client = call->client;
    call->shard = NULL;

    if (outcome != NGX_RATELIMIT_BREAKER_GOOD) {
        client->failed = status;
        client->jitter = (uint32_t) ngx_random();
    }

    now = ngx_ratelimit_redis_breaker_now(client);

    if (call->probe) {
        call->probe = 0;
        change = ngx_ratelimit_breaker_probed(&shard->breaker,
                                 outcome == NGX_RATELIMIT_BREAKER_GOOD, &now);

    } else {
        change = ngx_ratelimit_breaker_report(&shard->breaker, outcome, &now);
    }

    ngx_ratelimit_redis_breaker_changed(client, shard, change);

    if (outcome == NGX_RATELIMIT_BREAKER_TIMED_OUT
        && ngx_ratelimit_breaker_state(&shard->breaker)
           == NGX_RATELIMIT_BREAKER_OPEN)
    {
        ngx_ratelimit_redis_release(client);
    }
}


/* A probe must end, and the node has answered. */

void
ngx_ratelimit_redis_breaker_neutral(ngx_ratelimit_redis_call_t *call)
{
    if (call->probe) {
        ngx_ratelimit_redis_breaker_report(call, NGX_RATELIMIT_BREAKER_GOOD,
                                           NGX_RATELIMIT_REDIS_OK);
    }

    call->shard = NULL;
}


void
ngx_ratelimit_redis_breaker_unsent(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_shard_t  *shard;

    shard = call->shard;

    if (shard == NULL || call->probe) {
        return;
    }

    if (ngx_ratelimit_breaker_lives(&shard->breaker, conn->lost_ms)) {
        call->shard = NULL;
        return;
    }

    ngx_ratelimit_redis_breaker_report(call,
                                       NGX_RATELIMIT_BREAKER_UNREACHABLE,
                                       NGX_RATELIMIT_REDIS_UNREACHABLE);
}


void
ngx_ratelimit_redis_breaker_expired(ngx_ratelimit_redis_call_t *call)
{
    ngx_msec_t                        since_ms;
    ngx_ratelimit_redis_conn_t       *conn;
    ngx_ratelimit_redis_shard_t      *shard;
    ngx_ratelimit_breaker_outcome_e   outcome;

    conn = call->conn;
    shard = call->shard;

    if (shard == NULL) {
        return;
    }

    outcome = NGX_RATELIMIT_BREAKER_TIMED_OUT;
    since_ms = 0;

    if (conn && conn->state != NGX_RATELIMIT_REDIS_UP) {
        conn->vain = 1;
        since_ms = conn->lost_ms;

    } else if (conn) {
        since_ms = call->since_ms;

        /* the worker, not the node, took the time */

        if (!call->probe
            && (!call->written
                || ngx_current_msec - since_ms < call->client->timeout / 2))
        {
            call->shard = NULL;
            return;
        }
    }

    if (conn && !call->probe
        && ngx_ratelimit_breaker_lives(&shard->breaker, since_ms))
    {
        if (!call->written || conn->heard_ms <= since_ms) {
            call->shard = NULL;
            return;
        }

        outcome = NGX_RATELIMIT_BREAKER_FAILED;
    }

    ngx_ratelimit_redis_breaker_report(call, outcome,
                                       NGX_RATELIMIT_REDIS_TIMEOUT);
}


void
ngx_ratelimit_redis_breaker_heard(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t good)
{
    ngx_ratelimit_redis_shard_t  *shard;

    shard = conn->shard;
    conn->heard_ms = ngx_current_msec;

    if (shard) {
        ngx_ratelimit_redis_breaker_changed(conn->client, shard,
            ngx_ratelimit_breaker_heard(&shard->breaker, good,
                                        ngx_current_msec));
    }
}


void
ngx_ratelimit_redis_breaker_lost(ngx_ratelimit_redis_conn_t *conn)
{
    if (conn->shard) {
        conn->closed = atomic_load(&conn->shard->closed);
    }
}


ngx_uint_t
ngx_ratelimit_redis_breaker_found(ngx_ratelimit_redis_conn_t *conn)
{
    return conn->shard
           && conn->closed != atomic_load(&conn->shard->closed);
}


void
ngx_ratelimit_redis_breaker_mapped(ngx_ratelimit_redis_client_t *client)
{
    ngx_ratelimit_redis_shard_t  *shard;

    shard = client->map_shard;
    client->map_shard = NULL;

    if (shard) {
        ngx_ratelimit_redis_breaker_changed(client, shard,
            ngx_ratelimit_breaker_heard(&shard->breaker, 1,
                                        ngx_current_msec));
    }
}


static void
ngx_ratelimit_redis_breaker_changed(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_shard_t *shard, ngx_ratelimit_breaker_change_e change)
{
    char       note[NGX_RATELIMIT_LOG_NOTE];
    ngx_str_t  name;

    name.data = shard->name;
    name.len = shard->name_len;

    switch (change) {

    case NGX_RATELIMIT_BREAKER_OPENED:
        ngx_ratelimit_redis_count(client->redis->shared->opened);
        ngx_ratelimit_redis_release(client);

        if (client->probe_timer.handler && !ngx_exiting) {
            ngx_add_timer(&client->probe_timer, NGX_RATELIMIT_BREAKER_MIN_MS);
        }

        if (ngx_ratelimit_log_due(&shard->opens, ngx_current_msec,
                                  NGX_RATELIMIT_LOG_MS, note))
        {
            ngx_log_error(NGX_LOG_ERR, client->log, 0,
                          "ratelimit redis \"%V\": breaker of %V opens, "
                          "calls end with \"%V\"%s", &client->redis->name,
                          &name,
                          ngx_ratelimit_redis_status_name(client->failed),
                          note);
        }

        return;

    case NGX_RATELIMIT_BREAKER_READMITS_NOW:
        if (ngx_ratelimit_log_due(&shard->readmits, ngx_current_msec,
                                  NGX_RATELIMIT_LOG_MS, note))
        {
            ngx_log_error(NGX_LOG_NOTICE, client->log, 0,
                          "ratelimit redis \"%V\": breaker of %V readmits "
                          "calls%s", &client->redis->name, &name, note);
        }

        return;

    case NGX_RATELIMIT_BREAKER_CLOSED_NOW:
        ngx_ratelimit_redis_count(shard->closed);

        if (ngx_ratelimit_log_due(&shard->closes, ngx_current_msec,
                                  NGX_RATELIMIT_LOG_MS, note))
        {
            ngx_log_error(NGX_LOG_NOTICE, client->log, 0,
                          "ratelimit redis \"%V\": breaker of %V closes%s",
                          &client->redis->name, &name, note);
        }

        return;

    default: /* NGX_RATELIMIT_BREAKER_SAME */
        return;
    }
}


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

void
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

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        wait_ms = ngx_ratelimit_redis_probe(
                      ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue));
        next_ms = ngx_min(next_ms, wait_ms);
    }

    ngx_add_timer(ev, next_ms);
}


/* Sends a probe where one is due. Returns when to look again. */

static ngx_msec_t
ngx_ratelimit_redis_probe(ngx_ratelimit_redis_conn_t *conn)
{
    uint64_t                       wait_ms;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_breaker_now_t    now;
    ngx_ratelimit_redis_shard_t   *shard;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;
    shard = conn->shard;

    if (shard == NULL || conn->state != NGX_RATELIMIT_REDIS_UP) {
        return NGX_RATELIMIT_REDIS_PROBE_LOOK_MS;
    }

    now = ngx_ratelimit_redis_breaker_now(client);
    ngx_ratelimit_redis_breaker_changed(client, shard,
                         ngx_ratelimit_breaker_settle(&shard->breaker, &now));

    wait_ms = ngx_ratelimit_breaker_probe(&shard->breaker, ngx_current_msec,
                      client->timeout + NGX_RATELIMIT_REDIS_PROBE_LOST_MS);

    if (wait_ms) {
        return (ngx_msec_t) wait_ms;
    }

    /* without memory, or a bucket of that node, it is as one that was lost */

    call = ngx_ratelimit_redis_probe_new(conn);

    if (call) {
        call->probe = 1;
        ngx_ratelimit_redis_call_time(call);
        call->shard = shard;
        ngx_ratelimit_redis_conn_send(conn, call);
    }

    return client->timeout + NGX_RATELIMIT_BREAKER_MIN_MS;
}


/* Later in this turn: no handler is called from inside eval. */

static void
ngx_ratelimit_redis_release(ngx_ratelimit_redis_client_t *client)
{
    client->released = atomic_load(&client->redis->shared->opened);
    ngx_post_event(&client->release_event, &ngx_posted_events);
}


void
ngx_ratelimit_redis_release_handler(ngx_event_t *ev)
{
    ngx_queue_t                   *q, *next, go;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    /* a queue of their own: handlers may make calls */

    ngx_queue_init(&go);

    for (q = ngx_queue_head(&client->deadlines);
         q != ngx_queue_sentinel(&client->deadlines);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, wait);

        if (ngx_ratelimit_redis_in_vain(call)) {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&go, q);
        }
    }

    while (!ngx_queue_empty(&go)) {
        q = ngx_queue_head(&go);
        call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, wait);

        /* it is open: one more that had no answer changes nothing */

        call->shard = NULL;
        ngx_ratelimit_redis_call_leave(call, NGX_RATELIMIT_REDIS_OPEN);
    }
}


/* Whether a call waits for a shard that nobody shall wait for. */

static ngx_uint_t
ngx_ratelimit_redis_in_vain(const ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_shard_t  *shard;

    shard = call->conn ? call->conn->shard : call->shard;

    return shard
           && !call->probe
           && ngx_ratelimit_breaker_state(&shard->breaker)
              == NGX_RATELIMIT_BREAKER_OPEN;
}

/*
 * The shards' breakers at work: who may send, whose end counts, who is let go
 * when a shard fails, and what the log says of it.
 *
 * What counts is what a request asked, whatever became of that request since:
 * the breaker is there for those who wait. What nobody waits for, as giving
 * back, is sent while it is closed, and neither opens nor closes it; only what
 * frees a slot is sent in any case.
 */

#include "ngx_ratelimit_redis_int.h"

/* longer than its timeout a probe's report is not waited for */
#define NGX_RATELIMIT_REDIS_PROBE_LOST_MS  500

/* while a breaker is open the log repeats itself so often */
#define NGX_RATELIMIT_REDIS_REMIND_SECONDS  60


static ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_breaker_probe(
    ngx_ratelimit_redis_call_t *call, ngx_ratelimit_redis_shard_t *shard);
static void ngx_ratelimit_redis_breaker_tell(
    ngx_ratelimit_redis_client_t *client, ngx_ratelimit_redis_shard_t *shard,
    ngx_ratelimit_breaker_outcome_e outcome, ngx_uint_t probe,
    ngx_ratelimit_redis_status_e status);
static void ngx_ratelimit_redis_release(ngx_ratelimit_redis_client_t *client);
static ngx_uint_t ngx_ratelimit_redis_in_vain(
    const ngx_ratelimit_redis_call_t *call);


ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_breaker_ask(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_shard_t *shard, ngx_uint_t probe)
{
    uint64_t                       wait_ms, lost_ms;
    ngx_ratelimit_redis_client_t  *client;

    /* it may have waited for the slot map */

    call->shard = NULL;

    if (shard == NULL) {
        return call;
    }

    client = call->client;
    lost_ms = probe ? client->redis->timeout
                      + NGX_RATELIMIT_REDIS_PROBE_LOST_MS
                    : 0;

    switch (ngx_ratelimit_breaker_ask(&shard->breaker, ngx_current_msec,
                                      lost_ms, &wait_ms))
    {
    case NGX_RATELIMIT_BREAKER_PASS:
        call->shard = call->asked ? shard : NULL;
        return call;

    case NGX_RATELIMIT_BREAKER_PROBE:
        return ngx_ratelimit_redis_breaker_probe(call, shard);

    default: /* NGX_RATELIMIT_BREAKER_REFUSE */
        break;
    }

    /* another worker may have opened it, while some wait here */

    if (client->released != atomic_load(&client->redis->shared->opened)) {
        ngx_ratelimit_redis_release(client);
    }

    call->wait_ms = (ngx_msec_t) wait_ms;
    ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_OPEN);

    return NULL;
}


/*
 * The probe is what the request asks, in a copy that nobody waits for: it
 * counts where it runs, and its request is answered now.
 */

static ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_breaker_probe(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_shard_t *shard)
{
    ngx_ratelimit_redis_call_t  *probe;

    probe = call->handler ? ngx_ratelimit_redis_call_copy(call) : call;

    if (probe) {
        probe->shard = shard;
        probe->probe = 1;

    } else {
        ngx_ratelimit_redis_breaker_tell(call->client, shard,
                                         NGX_RATELIMIT_BREAKER_FAILED, 1,
                                         NGX_RATELIMIT_REDIS_UNREACHABLE);
    }

    if (probe != call) {
        call->ran = (probe != NULL);
        call->wait_ms = call->client->redis->timeout;
        ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_OPEN);
    }

    return probe;
}


void
ngx_ratelimit_redis_breaker_report(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_breaker_outcome_e outcome,
    ngx_ratelimit_redis_status_e status)
{
    ngx_uint_t                    probe;
    ngx_ratelimit_redis_shard_t  *shard;

    shard = call->shard;

    if (shard == NULL) {
        return;
    }

    probe = call->probe;

    call->shard = NULL;
    call->probe = 0;

    ngx_ratelimit_redis_breaker_tell(call->client, shard, outcome, probe,
                                     status);
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

    if (shard
        && ngx_ratelimit_breaker_state(&shard->breaker)
           != NGX_RATELIMIT_BREAKER_CLOSED)
    {
        ngx_ratelimit_redis_breaker_tell(client, shard,
                                         NGX_RATELIMIT_BREAKER_GOOD, 1,
                                         NGX_RATELIMIT_REDIS_OK);
    }
}


static void
ngx_ratelimit_redis_breaker_tell(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_shard_t *shard,
    ngx_ratelimit_breaker_outcome_e outcome, ngx_uint_t probe,
    ngx_ratelimit_redis_status_e status)
{
    ngx_str_t  name;

    name.data = shard->name;
    name.len = shard->name_len;

    /*
     * The call that makes it half of all may be a good one, which is no reason;
     * nor is each good one worth a random number.
     */

    if (outcome != NGX_RATELIMIT_BREAKER_GOOD) {
        client->failed = status;
        client->jitter = (uint32_t) ngx_random();
    }

    switch (ngx_ratelimit_breaker_report(&shard->breaker, outcome, probe,
                                         ngx_current_msec, client->jitter))
    {
    case NGX_RATELIMIT_BREAKER_OPENED:
        ngx_ratelimit_redis_count(client->redis->shared->opened);
        ngx_ratelimit_redis_release(client);

        ngx_log_error(NGX_LOG_ERR, client->log, 0,
                      "ratelimit redis \"%V\": breaker of %V opens, "
                      "calls end with \"%V\"", &client->redis->name, &name,
                      ngx_ratelimit_redis_status_name(client->failed));
        return;

    case NGX_RATELIMIT_BREAKER_CLOSED_NOW:
        ngx_ratelimit_redis_count(shard->closed);

        ngx_log_error(NGX_LOG_NOTICE, client->log, 0,
                      "ratelimit redis \"%V\": breaker of %V closes",
                      &client->redis->name, &name);
        return;

    default: /* NGX_RATELIMIT_BREAKER_SAME */
        break;
    }

    if (outcome == NGX_RATELIMIT_BREAKER_TIMED_OUT
        && ngx_ratelimit_breaker_state(&shard->breaker)
           != NGX_RATELIMIT_BREAKER_CLOSED)
    {
        ngx_ratelimit_redis_release(client);
    }
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
              != NGX_RATELIMIT_BREAKER_CLOSED;
}


ngx_uint_t
ngx_ratelimit_redis_error_due(ngx_ratelimit_redis_conn_t *conn,
    const u_char *why, size_t len)
{
    uint32_t                      hash, found;
    ngx_uint_t                    i, seconds;
    ngx_ratelimit_redis_told_t   *told, *one;
    ngx_ratelimit_redis_shard_t  *shard;

    shard = conn->shard;

    if (shard == NULL) {
        return ngx_ratelimit_redis_log_due(&conn->logged);
    }

    hash = ngx_crc32_short((u_char *) why, len);
    told = shard->told;

    /* this reason's place, else the one that was not used for longest */

    for (i = 0; i < NGX_RATELIMIT_REDIS_TOLD; i++) {
        one = &shard->told[i];

        if (atomic_load(&one->why) == hash) {
            told = one;
            break;
        }

        if (atomic_load(&one->second) < atomic_load(&told->second)) {
            told = one;
        }
    }

    found = atomic_load(&told->why);

    if (found != hash
        && !atomic_compare_exchange_strong(&told->why, &found, hash)
        && found != hash)
    {
        return 0;
    }

    seconds = 1;

    if (found == hash
        && ngx_ratelimit_breaker_state(&shard->breaker)
           != NGX_RATELIMIT_BREAKER_CLOSED)
    {
        seconds = NGX_RATELIMIT_REDIS_REMIND_SECONDS;
    }

    return ngx_ratelimit_redis_second_due(&told->second, seconds);
}


ngx_uint_t
ngx_ratelimit_redis_notice_due(ngx_ratelimit_redis_conn_t *conn)
{
    return conn->shard
           ? ngx_ratelimit_redis_second_due(&conn->shard->noticed, 1)
           : ngx_ratelimit_redis_log_due(&conn->noticed);
}


ngx_uint_t
ngx_ratelimit_redis_second_due(_Atomic uint64_t *logged, ngx_uint_t seconds)
{
    uint64_t  now, before;

    now = ngx_current_msec / 1000 + 1;
    before = atomic_load(logged);

    return (before == 0 || now >= before + seconds)
           && atomic_compare_exchange_strong(logged, &before, now);
}

/*
 * A call is what the endpoint asks for: how any of them begins, waits and ends.
 */

#include "ngx_ratelimit_sync_int.h"

#define NGX_RATELIMIT_SYNC_LONGEST_MS  20000  /* ends what nothing else does */

static void ngx_ratelimit_sync_call_ends_handler(ngx_event_t *ev);
static void ngx_ratelimit_sync_call_work(void *data);
static void ngx_ratelimit_sync_call_done(void *data, ngx_uint_t cancelled);
static void ngx_ratelimit_sync_call_free(ngx_ratelimit_sync_call_t *call);


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_call_new(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_pool_t                 *pool;
    ngx_ratelimit_sync_t       *sync;
    ngx_ratelimit_sync_call_t  *call;

    sync = limiter->sync;

    if (sync == NULL) {
        return NULL;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, sync->log);
    if (pool == NULL) {
        return NULL;
    }

    call = ngx_pcalloc(pool, sizeof(ngx_ratelimit_sync_call_t));
    if (call == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    call->sync = sync;
    call->limiter = limiter;
    call->pool = pool;
    call->handler = handler;
    call->data = data;
    call->alone = (sync->control == NULL);

    call->timer.data = call;
    call->timer.log = sync->log;

    ngx_queue_insert_tail(&sync->calls, &call->queue);

    return call;
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_call_started(ngx_ratelimit_sync_call_t *call, ngx_int_t rc,
    ngx_event_handler_pt expired)
{
    if (rc != NGX_OK) {
        ngx_queue_remove(&call->queue);
        ngx_ratelimit_sync_call_free(call);
        return NULL;
    }

    ngx_ratelimit_sync_call_wait(call, expired, NGX_RATELIMIT_SYNC_LONGEST_MS);

    return call;
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_call_ends(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status)
{
    call->result.status = status;
    ngx_ratelimit_sync_call_wait(call, ngx_ratelimit_sync_call_ends_handler,
                                 0);
    return call;
}


static void
ngx_ratelimit_sync_call_ends_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ev->data;

    ngx_ratelimit_sync_call_end(call, call->result.status);
}


void
ngx_ratelimit_sync_call_wait(ngx_ratelimit_sync_call_t *call,
    ngx_event_handler_pt handler, ngx_msec_t ms)
{
    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    call->timer.handler = handler;
    ngx_add_timer(&call->timer, ms);
}


ngx_int_t
ngx_ratelimit_sync_call_job(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_work_pt work, ngx_ratelimit_sync_done_pt done)
{
    call->work = work;
    call->done = done;
    call->job = ngx_ratelimit_job_start(ngx_ratelimit_sync_call_work,
                                        ngx_ratelimit_sync_call_done, call,
                                        call->sync->log);

    return call->job ? NGX_OK : NGX_ERROR;
}


/* In a thread. */
static void
ngx_ratelimit_sync_call_work(void *data)
{
    ngx_ratelimit_sync_call_t *call = data;

    call->rc = call->work(call);
}


static void
ngx_ratelimit_sync_call_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_call_t *call = data;

    call->job = NULL;

    if (cancelled) {
        ngx_ratelimit_sync_call_free(call);
        return;
    }

    call->done(call);
}


static void
ngx_ratelimit_sync_call_free(ngx_ratelimit_sync_call_t *call)
{
    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->entry.text.data) {
        ngx_free(call->entry.text.data);
    }

    ngx_destroy_pool(call->pool);
}


void
ngx_ratelimit_sync_call_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status)
{
    ngx_ratelimit_sync_handler_pt  handler;

    call->result.status = status;

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->asked) {
        ngx_ratelimit_redis_forget(call->asked);
        call->asked = NULL;
    }

    handler = call->handler;
    call->handler = NULL;

    if (handler) {
        handler(call->data, &call->result);
    }

    ngx_queue_remove(&call->queue);
    call->sync = NULL;

    if (call->job) {
        ngx_ratelimit_job_cancel(call->job);
        return;
    }

    ngx_ratelimit_sync_call_free(call);
}


void
ngx_ratelimit_sync_call_wrong(ngx_ratelimit_sync_call_t *call,
    const char *reason, ngx_ratelimit_sync_status_e status)
{
    call->result.reason.data = (u_char *) reason;
    call->result.reason.len = ngx_strlen(reason);

    ngx_ratelimit_sync_call_end(call, status);
}


void
ngx_ratelimit_sync_forget(ngx_ratelimit_sync_call_t *call)
{
    call->handler = NULL;
}


/* The worker ends, and with it all calls. */
void
ngx_ratelimit_sync_calls_end(ngx_ratelimit_sync_t *sync)
{
    ngx_queue_t                *q, *next;
    ngx_ratelimit_sync_call_t  *call;

    for (q = ngx_queue_head(&sync->calls);
         q != ngx_queue_sentinel(&sync->calls);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_ratelimit_sync_call_t, queue);

        call->handler = NULL;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
    }
}

/*
 * What the endpoint asks for: what versions there are, one of them, a counter's
 * reset; and how any call begins, waits and ends. In Redis where the zone has
 * one, in the node's store where it has none.
 */

#include "ngx_ratelimit_sync_call.h"

#define NGX_RATELIMIT_SYNC_SAVE_MS    2000   /* waits for the state file */
#define NGX_RATELIMIT_SYNC_LONGEST_MS 20000  /* ends what nothing else does */

static void ngx_ratelimit_sync_call_free(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_call_handler(ngx_event_t *ev);
static void ngx_ratelimit_sync_call_work(void *data);
static void ngx_ratelimit_sync_call_done(void *data, ngx_uint_t cancelled);
static void ngx_ratelimit_sync_call_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result);
static void ngx_ratelimit_sync_call_check(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result);
static void ngx_ratelimit_sync_call_reset(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result);


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_check(ngx_ratelimit_limiter_t *limiter, uint64_t version,
    uint64_t id, ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, NGX_RATELIMIT_SYNC_CHECK,
                                       handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = version;
    call->id = id;

    return ngx_ratelimit_sync_call_started(call,
                                           ngx_ratelimit_sync_call_ask(call));
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_versions(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, NGX_RATELIMIT_SYNC_VERSIONS,
                                       handler, data);
    if (call == NULL) {
        return NULL;
    }

    return ngx_ratelimit_sync_call_started(call,
                                           ngx_ratelimit_sync_call_ask(call));
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_read(ngx_ratelimit_limiter_t *limiter, uint64_t version,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, NGX_RATELIMIT_SYNC_READ,
                                       handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = version;

    if (version == 0) {
        call->result.status = NGX_RATELIMIT_SYNC_NOT_FOUND;
        ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_ANSWERS, 0);
        return call;
    }

    return ngx_ratelimit_sync_call_started(call,
                                           ngx_ratelimit_sync_call_ask(call));
}


/* Without Redis no denial is remembered but in the counter itself. */
ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_reset(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, NGX_RATELIMIT_SYNC_RESET,
                                       handler, data);
    if (call == NULL) {
        return NULL;
    }

    if (call->sync->control == NULL) {
        ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_ANSWERS, 0);
        return call;
    }

    return ngx_ratelimit_sync_call_started(call,
                                           ngx_ratelimit_sync_call_ask(call));
}


void
ngx_ratelimit_sync_forget(ngx_ratelimit_sync_call_t *call)
{
    call->handler = NULL;
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_call_new(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_kind_e kind, ngx_ratelimit_sync_handler_pt handler,
    void *data)
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
    call->kind = kind;
    call->handler = handler;
    call->data = data;
    call->alone = (sync->control == NULL);

    call->timer.data = call;
    call->timer.log = sync->log;
    call->timer.handler = ngx_ratelimit_sync_call_handler;

    ngx_queue_insert_tail(&sync->calls, &call->queue);

    return call;
}


/* rc: of what it began with; nothing is under way where that failed. */
ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_call_started(ngx_ratelimit_sync_call_t *call, ngx_int_t rc)
{
    if (rc != NGX_OK) {
        ngx_queue_remove(&call->queue);
        ngx_ratelimit_sync_call_free(call);
        return NULL;
    }

    ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_WORKS,
                                 NGX_RATELIMIT_SYNC_LONGEST_MS);
    return call;
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


/* The answer. A job that still runs frees the call when it is done. */
void
ngx_ratelimit_sync_call_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status)
{
    ngx_ratelimit_sync_handler_pt  handler;

    call->result.status = status;

    if (call->kind == NGX_RATELIMIT_SYNC_PUT
        && (status == NGX_RATELIMIT_SYNC_OK
            || status == NGX_RATELIMIT_SYNC_UNKNOWN))
    {
        ngx_ratelimit_sync_put_log(call, status);
    }

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->asked) {
        ngx_ratelimit_redis_control_forget(call->asked);
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


/* The worker ends: so do those who wait. */
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


void
ngx_ratelimit_sync_call_wait(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_step_e step, ngx_msec_t ms)
{
    call->step = step;
    ngx_add_timer(&call->timer, ms);
}


static void
ngx_ratelimit_sync_call_handler(ngx_event_t *ev)
{
    uint64_t                    id;
    ngx_ratelimit_sync_call_t  *call;

    call = ev->data;

    switch (call->step) {

    case NGX_RATELIMIT_SYNC_SAVES:
        call->result.saved = (call->limiter->store->written
                              >= call->generation);

        if (!call->result.saved
            && ngx_current_msec - call->since < NGX_RATELIMIT_SYNC_SAVE_MS)
        {
            ngx_add_timer(ev, NGX_RATELIMIT_SYNC_SAVED_MS);
            return;
        }

        /* the state file may have had another one of that version before */

        if (ngx_ratelimit_store_id(call->limiter->store,
                                   call->record.version, &id)
            == NGX_OK
            && id != call->record.id)
        {
            ngx_ratelimit_store_version(call->limiter->store,
                                        &call->result.version, &id);
            ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
            return;
        }

        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
        return;

    case NGX_RATELIMIT_SYNC_RETRIES_SOON:
        ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_WORKS,
                                     NGX_RATELIMIT_SYNC_LONGEST_MS);

        if (ngx_ratelimit_sync_call_ask(call) != NGX_OK) {
            ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        }

        return;

    case NGX_RATELIMIT_SYNC_ANSWERS:
        ngx_ratelimit_sync_call_end(call, call->result.status);
        return;

    default: /* NGX_RATELIMIT_SYNC_WORKS */
        ngx_str_set(&call->result.reason, "timeout");
        ngx_ratelimit_sync_call_end(call,
                                    (call->kind == NGX_RATELIMIT_SYNC_PUT)
                                    ? NGX_RATELIMIT_SYNC_UNKNOWN
                                    : NGX_RATELIMIT_SYNC_UNAVAILABLE);
    }
}


ngx_int_t
ngx_ratelimit_sync_call_job(ngx_ratelimit_sync_call_t *call)
{
    call->job = ngx_ratelimit_job_start(ngx_ratelimit_sync_call_work,
                                        ngx_ratelimit_sync_call_done, call,
                                        call->sync->log);

    return call->job ? NGX_OK : NGX_ERROR;
}


/* In a thread: what copies or reads a record, or makes its digest. */
static void
ngx_ratelimit_sync_call_work(void *data)
{
    ngx_ratelimit_sync_call_t *call = data;

    uint64_t     generation, id;
    const char  *wrong;

    switch (call->kind) {

    case NGX_RATELIMIT_SYNC_PUT:
        call->rc = ngx_ratelimit_sync_put_work(call);
        return;

    case NGX_RATELIMIT_SYNC_VERSIONS:
        call->rc = ngx_ratelimit_store_read_all(call->limiter->store,
                                                &call->entry, &generation,
                                                call->pool->log);
        if (call->rc == NGX_OK) {
            call->rc = ngx_ratelimit_sync_heads(call, &call->entry.text, 1);
        }

        return;

    case NGX_RATELIMIT_SYNC_CHECK:
        call->rc = ngx_ratelimit_sync_file_check(call->limiter, call->version,
                                                 &call->found,
                                                 call->pool->log);
        if (call->rc != NGX_OK) {
            return;
        }

        ngx_ratelimit_store_version(call->limiter->store, &call->found, &id);

        if (call->found != call->version || id != call->id) {
            call->rc = NGX_BUSY;
        }

        return;

    default: /* NGX_RATELIMIT_SYNC_READ */

        call->rc = call->entry.text.data
                   ? NGX_OK
                   : ngx_ratelimit_store_read(call->limiter->store,
                                              call->version, &call->entry,
                                              &generation, call->pool->log);

        /* another nginx has written it, while the binary is upgraded */

        if (call->rc == NGX_DECLINED && call->alone) {
            call->rc = ngx_ratelimit_sync_file_read(call->limiter,
                                                    call->version,
                                                    &call->entry.text,
                                                    call->pool->log);
        }

        if (call->rc != NGX_OK) {
            return;
        }

        wrong = ngx_ratelimit_record_read(&call->entry.text, call->pool,
                                          &call->record);

        if (wrong == NULL && call->record.version == call->version) {
            return;
        }

        call->rc = (wrong == ngx_ratelimit_record_too_large) ? NGX_DONE
                                                             : NGX_ABORT;
    }
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

    if (call->rc == NGX_ERROR) {
        ngx_ratelimit_sync_call_end(call, call->ran
                                          ? NGX_RATELIMIT_SYNC_UNKNOWN
                                          : NGX_RATELIMIT_SYNC_FAILED);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_PUT) {
        ngx_ratelimit_sync_put_done(call);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_CHECK) {
        call->result.version = call->found;
        ngx_ratelimit_sync_call_end(call, (call->rc == NGX_OK)
                                          ? NGX_RATELIMIT_SYNC_OK
                                          : NGX_RATELIMIT_SYNC_CONFLICT);
        return;
    }

    ngx_ratelimit_store_version(call->limiter->store, &call->result.version,
                                &call->result.id);

    if (call->kind == NGX_RATELIMIT_SYNC_VERSIONS) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
        return;
    }

    if (call->rc == NGX_OK) {
        call->result.n = 1;
        call->result.records = &call->record;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);

    } else if (call->rc == NGX_DECLINED) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_NOT_FOUND);

    } else if (call->rc == NGX_DONE) {
        ngx_str_null(&call->record.document);
        call->result.n = 1;
        call->result.records = &call->record;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_TOO_LARGE);

    } else {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
    }
}


/* Redis; or, where there is none, a job. */
ngx_int_t
ngx_ratelimit_sync_call_ask(ngx_ratelimit_sync_call_t *call)
{
    u_char                        version[NGX_INT64_LEN];
    u_char                        id[NGX_INT64_LEN];
    ngx_str_t                     args[3];
    ngx_uint_t                    n;
    ngx_ratelimit_store_entry_t   entry;

    if (call->sync->control == NULL) {
        return ngx_ratelimit_sync_call_job(call);
    }

    switch (call->kind) {

    case NGX_RATELIMIT_SYNC_PUT:
        entry.version = call->record.version;
        entry.id = call->record.id;
        entry.text = call->record.text;

        call->asked = ngx_ratelimit_sync_put_send(call->sync, call->version,
                                              call->id, &entry,
                                              ngx_ratelimit_sync_call_answer,
                                                  call);

        return call->asked ? NGX_OK : NGX_ERROR;

    case NGX_RATELIMIT_SYNC_VERSIONS:
        ngx_str_set(&args[0], "list");
        n = 1;
        break;

    case NGX_RATELIMIT_SYNC_READ:
        ngx_str_set(&args[0], "version");
        args[1].data = version;
        args[1].len = ngx_sprintf(version, "%uL", call->version) - version;
        n = 2;
        break;

    case NGX_RATELIMIT_SYNC_CHECK:
        ngx_str_set(&args[0], "get");
        args[1].data = version;
        args[1].len = ngx_sprintf(version, "%uL", call->version) - version;
        args[2].data = id;
        args[2].len = ngx_sprintf(id, "%016xL", call->id) - id;
        n = 3;
        break;

    default: /* NGX_RATELIMIT_SYNC_RESET */
        ngx_str_set(&args[0], "reset");
        ngx_str_set(&args[2], "reset");
        n = 3;

        if (ngx_ratelimit_sync_channel(call->limiter, call->pool, &args[1])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    call->asked = ngx_ratelimit_redis_control_rules(call->sync->control,
                                              &call->limiter->zone.name,
                                              args, n,
                                              ngx_ratelimit_sync_call_answer,
                                              call);

    return call->asked ? NGX_OK : NGX_ERROR;
}


static void
ngx_ratelimit_sync_call_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    ngx_int_t  rc;

    call->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        call->result.reason = *ngx_ratelimit_redis_status_name(result->status);
    }

    if (call->kind == NGX_RATELIMIT_SYNC_PUT) {
        ngx_ratelimit_sync_put_answer(call, result);
        return;
    }

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_RESET) {
        ngx_ratelimit_sync_call_reset(call, result);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_CHECK) {
        ngx_ratelimit_sync_call_check(call, result);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_VERSIONS) {
        rc = ngx_ratelimit_sync_lines(call, result->texts, result->n);

        if (rc == NGX_OK && call->result.n) {
            call->result.version = call->result.records[0].version;
            call->result.id = call->result.records[0].id;
        }

        ngx_ratelimit_sync_call_end(call,
                                    (rc == NGX_OK)
                                    ? NGX_RATELIMIT_SYNC_OK
                                    : NGX_RATELIMIT_SYNC_FAILED);
        return;
    }

    if (result->n == 0 || result->texts[0].len == 0) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_NOT_FOUND);
        return;
    }

    call->entry.text = result->texts[0];
    ngx_str_null(&result->texts[0]);

    if (ngx_ratelimit_sync_call_job(call) != NGX_OK) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
    }
}


static void
ngx_ratelimit_sync_call_check(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result)
{
    uint64_t  version, id;

    if (result->n < 2
        || ngx_ratelimit_sync_number(&result->texts[0], &version) != NGX_OK
        || ngx_ratelimit_sync_id(&result->texts[1], &id) != NGX_OK)
    {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    call->result.version = version;

    if (version == call->version && id == call->id) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);

    } else if (version < call->version) {

        /* as for a put: it has lost its last writes */

        ngx_str_set(&call->result.reason, "behind");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);

    } else {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
    }
}


/* This node forgets at once; its leader will find nothing new. */
static void
ngx_ratelimit_sync_call_reset(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result)
{
    uint64_t  resets;

    if (result->n == 0
        || ngx_ratelimit_sync_number(&result->texts[0], &resets) != NGX_OK)
    {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    ngx_ratelimit_sync_resets(call->sync, resets);
    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
}

/*
 * What the endpoint asks for: a record becomes the next version, what versions
 * there are, one of them, a counter's reset. In Redis where the zone has one,
 * in the node's store where it has none.
 */

#include "ngx_ratelimit_sync_int.h"

#include <openssl/rand.h>

#define NGX_RATELIMIT_SYNC_SAVE_MS    2000   /* waits for the state file */
#define NGX_RATELIMIT_SYNC_SAVED_MS   20     /* looks whether it is written */
#define NGX_RATELIMIT_SYNC_RETRY_MS   250    /* asks what became of a put */
#define NGX_RATELIMIT_SYNC_RETRIES    8
#define NGX_RATELIMIT_SYNC_LONGEST_MS 20000  /* ends what nothing else does */

#define NGX_RATELIMIT_SYNC_LATEST     ((uint64_t) 1 << 53)

/* {"1" or "0", version, id} */
#define NGX_RATELIMIT_SYNC_PUT_TEXTS  3

typedef enum {
    NGX_RATELIMIT_SYNC_PUT = 0,
    NGX_RATELIMIT_SYNC_VERSIONS,
    NGX_RATELIMIT_SYNC_READ,
    NGX_RATELIMIT_SYNC_RESET
} ngx_ratelimit_sync_kind_e;

typedef enum {
    NGX_RATELIMIT_SYNC_WORKS = 0,    /* a job, or Redis */
    NGX_RATELIMIT_SYNC_RETRIES_SOON, /* then the same is asked once more */
    NGX_RATELIMIT_SYNC_SAVES,        /* until the state file has it */
    NGX_RATELIMIT_SYNC_ANSWERS       /* in the next turn */
} ngx_ratelimit_sync_step_e;

/*
 * Lives in a pool of its own, which a job may use while it runs; freed when its
 * handler was called, or nobody waits, and nothing is under way.
 */
struct ngx_ratelimit_sync_call_s {
    ngx_queue_t                     queue;      /* of sync->calls */
    ngx_ratelimit_sync_t           *sync;       /* NULL: it has ended */
    ngx_ratelimit_limiter_t        *limiter;
    ngx_pool_t                     *pool;
    ngx_ratelimit_sync_kind_e       kind;
    ngx_ratelimit_sync_step_e       step;
    ngx_ratelimit_sync_handler_pt   handler;    /* NULL: forgotten */
    void                           *data;

    uint64_t                        version;    /* expected; to be read */
    ngx_ratelimit_record_t          record;     /* to be put */
    ngx_ratelimit_store_entry_t     entry;      /* of the store; on the heap */
    ngx_ratelimit_sync_pieces_t     pieces;     /* of Redis: the entry's text */

    ngx_ratelimit_job_t            *job;
    ngx_ratelimit_redis_call_t     *asked;
    ngx_event_t                     timer;      /* not cancelable: a request
                                                   waits */
    uint64_t                        generation; /* to be saved */
    ngx_msec_t                      since;      /* it waits for that */
    ngx_uint_t                      tries;
    uint64_t                        found;      /* current instead */
    unsigned                        ran:1;      /* a put may have run */
    unsigned                        alone:1;    /* there is no Redis */
    unsigned                        taken:1;    /* Redis has the record */
    ngx_int_t                       rc;         /* of the job */
    ngx_ratelimit_sync_result_t     result;
};

static ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_new(
    ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_sync_kind_e kind,
    ngx_ratelimit_sync_handler_pt handler, void *data);
static ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_started(
    ngx_ratelimit_sync_call_t *call, ngx_int_t rc);
static void ngx_ratelimit_sync_call_free(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_call_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status);
static void ngx_ratelimit_sync_call_wait(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_step_e step, ngx_msec_t ms);
static void ngx_ratelimit_sync_call_handler(ngx_event_t *ev);
static ngx_int_t ngx_ratelimit_sync_call_job(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_call_work(void *data);
static void ngx_ratelimit_sync_call_done(void *data, ngx_uint_t cancelled);
static ngx_int_t ngx_ratelimit_sync_call_ask(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_call_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result);

static ngx_int_t ngx_ratelimit_sync_put_copy(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_record_t *record);
static ngx_int_t ngx_ratelimit_sync_put_publish(
    ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_done(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_answer(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result);
static void ngx_ratelimit_sync_put_lost(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result);
static void ngx_ratelimit_sync_put_passed(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_passed_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result);
static ngx_int_t ngx_ratelimit_sync_lines(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *texts, ngx_uint_t n);
static ngx_int_t ngx_ratelimit_sync_heads(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *records, ngx_uint_t whole);
static ngx_int_t ngx_ratelimit_sync_channel(ngx_ratelimit_sync_t *sync,
    ngx_pool_t *pool, ngx_str_t *channel);
static ngx_int_t ngx_ratelimit_sync_copy(ngx_pool_t *pool, ngx_str_t *to,
    const ngx_str_t *from);


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_put(ngx_ratelimit_limiter_t *limiter, uint64_t expected,
    const ngx_ratelimit_record_t *record,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_int_t                   rc;
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, NGX_RATELIMIT_SYNC_PUT,
                                       handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = expected;

    if (expected >= NGX_RATELIMIT_SYNC_LATEST
        || record->document.len > NGX_RATELIMIT_RECORD_MAX)
    {
        call->result.status = NGX_RATELIMIT_SYNC_TOO_LARGE;
        ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_ANSWERS, 0);
        return call;
    }

    rc = ngx_ratelimit_sync_put_copy(call, record);

    if (rc == NGX_OK) {
        rc = ngx_ratelimit_sync_call_job(call);
    }

    return ngx_ratelimit_sync_call_started(call, rc);
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


static ngx_ratelimit_sync_call_t *
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
static ngx_ratelimit_sync_call_t *
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

    ngx_ratelimit_sync_pieces_free(&call->pieces);
    ngx_destroy_pool(call->pool);
}


/* The answer. A job that still runs frees the call when it is done. */
static void
ngx_ratelimit_sync_call_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status)
{
    ngx_ratelimit_sync_handler_pt  handler;

    call->result.status = status;

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
    ngx_queue_t                *q;
    ngx_ratelimit_sync_call_t  *call;

    while (!ngx_queue_empty(&sync->calls)) {
        q = ngx_queue_head(&sync->calls);
        call = ngx_queue_data(q, ngx_ratelimit_sync_call_t, queue);

        call->handler = NULL;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
    }
}


static void
ngx_ratelimit_sync_call_wait(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_step_e step, ngx_msec_t ms)
{
    call->step = step;
    ngx_add_timer(&call->timer, ms);
}


static void
ngx_ratelimit_sync_call_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_call_t   *call;
    ngx_ratelimit_store_stat_t   stat;

    call = ev->data;

    switch (call->step) {

    case NGX_RATELIMIT_SYNC_SAVES:
        ngx_ratelimit_store_stat(call->limiter->store, &stat);
        call->result.saved = (stat.written >= call->generation);

        if (!call->result.saved
            && ngx_current_msec - call->since < NGX_RATELIMIT_SYNC_SAVE_MS)
        {
            ngx_add_timer(ev, NGX_RATELIMIT_SYNC_SAVED_MS);
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


static ngx_int_t
ngx_ratelimit_sync_call_job(ngx_ratelimit_sync_call_t *call)
{
    call->job = ngx_ratelimit_job_start(ngx_ratelimit_sync_call_work,
                                        ngx_ratelimit_sync_call_done, call,
                                        call->sync->log);

    return call->job ? NGX_OK : NGX_ERROR;
}


/* In a thread: a record's digest is made, or checked. */
static void
ngx_ratelimit_sync_call_work(void *data)
{
    ngx_ratelimit_sync_call_t *call = data;

    uint64_t  generation;

    switch (call->kind) {

    case NGX_RATELIMIT_SYNC_PUT:
        call->rc = call->taken ? NGX_OK
                               : ngx_ratelimit_record_write(&call->record,
                                                            call->pool);

        if (call->rc == NGX_OK && (call->taken || call->alone)) {
            call->rc = ngx_ratelimit_sync_put_publish(call);
        }

        return;

    case NGX_RATELIMIT_SYNC_VERSIONS:
        call->rc = ngx_ratelimit_store_read_all(call->limiter->store,
                                                &call->entry, &generation,
                                                call->pool->log);
        if (call->rc == NGX_OK) {
            call->rc = ngx_ratelimit_sync_heads(call, &call->entry.text, 1);
        }

        return;

    default: /* NGX_RATELIMIT_SYNC_READ */

        call->rc = call->pieces.n
                   ? ngx_ratelimit_sync_pieces_join(&call->pieces,
                                                    &call->entry.text,
                                                    call->pool->log)
                   : ngx_ratelimit_store_read(call->limiter->store,
                                              call->version, &call->entry,
                                              &generation, call->pool->log);
        if (call->rc != NGX_OK) {
            return;
        }

        call->rc = (ngx_ratelimit_record_read(&call->entry.text, call->pool,
                                              &call->record)
                    == NULL
                    && call->record.version == call->version)
                   ? NGX_OK : NGX_ABORT;
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
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_PUT) {
        ngx_ratelimit_sync_put_done(call);
        return;
    }

    ngx_ratelimit_store_version(call->limiter->store, &call->result.version,
                                &call->entry.id);

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

    } else {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
    }
}


/* Redis; or, where there is none, a job. */
static ngx_int_t
ngx_ratelimit_sync_call_ask(ngx_ratelimit_sync_call_t *call)
{
    u_char                        version[NGX_INT64_LEN];
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

        call->asked = ngx_ratelimit_sync_put_record(call->sync, call->version,
                                              &entry,
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

    default: /* NGX_RATELIMIT_SYNC_RESET */
        ngx_str_set(&args[0], "reset");
        ngx_str_set(&args[2], "reset");
        n = 3;

        if (ngx_ratelimit_sync_channel(call->sync, call->pool, &args[1])
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
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
        return;
    }

    if (call->kind == NGX_RATELIMIT_SYNC_VERSIONS) {
        rc = ngx_ratelimit_sync_lines(call, result->texts, result->n);

        if (rc == NGX_OK && call->result.n) {
            call->result.version = call->result.records[0].version;
        }

        ngx_ratelimit_sync_call_end(call,
                                    (rc == NGX_OK)
                                    ? NGX_RATELIMIT_SYNC_OK
                                    : NGX_RATELIMIT_SYNC_FAILED);
        return;
    }

    if (result->n == 0) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_NOT_FOUND);
        return;
    }

    if (ngx_ratelimit_sync_pieces_keep(&call->pieces, result, 0, call->pool)
        != NGX_OK
        || ngx_ratelimit_sync_call_job(call) != NGX_OK)
    {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
    }
}


static ngx_int_t
ngx_ratelimit_sync_put_copy(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_record_t *record)
{
    if (ngx_ratelimit_sync_copy(call->pool, &call->record.author,
                                &record->author)
        != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.reason,
                                   &record->reason)
           != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.document,
                                   &record->document)
           != NGX_OK
        || RAND_bytes((u_char *) &call->record.id, sizeof(uint64_t)) != 1)
    {
        return NGX_ERROR;
    }

    /* 0 is the id of no record */

    call->record.id |= 1;
    call->record.version = call->version + 1;
    call->record.time_ms = record->time_ms ? record->time_ms
                                           : ngx_ratelimit_sync_now();
    return NGX_OK;
}


/*
 * In a thread. Without Redis: it becomes the current one here. Else Redis has
 * taken it, and this node has it at once, so that who reads here what he wrote
 * finds it; the leader may have been faster, and does what fails here.
 */
static ngx_int_t
ngx_ratelimit_sync_put_publish(ngx_ratelimit_sync_call_t *call)
{
    uint64_t                      version, id;
    ngx_int_t                     rc;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_store_entry_t   entry;

    store = call->limiter->store;

    entry.version = call->record.version;
    entry.id = call->record.id;
    entry.text = call->record.text;

    if (!call->taken) {
        rc = ngx_ratelimit_store_publish(store, &entry, call->version, 1,
                                         &call->found);
        call->generation = ngx_ratelimit_store_generation(store);
        return rc;
    }

    do {
        ngx_ratelimit_store_version(store, &version, &id);

        if (version >= entry.version) {
            break;
        }

        rc = ngx_ratelimit_store_publish(store, &entry, version, 1, &version);

    } while (rc == NGX_BUSY);

    return NGX_OK;
}


/* The record is made; or it is the current one. */
static void
ngx_ratelimit_sync_put_done(ngx_ratelimit_sync_call_t *call)
{
    if (call->rc == NGX_BUSY) {
        call->result.version = call->found;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
        return;
    }

    if (call->rc != NGX_OK) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_TOO_LARGE);
        return;
    }

    if (call->sync->control && !call->taken) {
        if (ngx_ratelimit_sync_call_ask(call) != NGX_OK) {
            ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
        }

        return;
    }

    ngx_ratelimit_sync_wake(call->sync);

    call->result.version = call->record.version;

    if (call->taken || call->limiter->state.len == 0) {
        call->result.saved = 1;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
        return;
    }

    call->since = ngx_current_msec;
    ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_SAVES,
                                 NGX_RATELIMIT_SYNC_SAVED_MS);
}


static void
ngx_ratelimit_sync_put_answer(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result)
{
    uint64_t  version, id;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_put_lost(call, result);
        return;
    }

    if (result->n < NGX_RATELIMIT_SYNC_PUT_TEXTS
        || ngx_ratelimit_sync_number(&result->texts[1], &version) != NGX_OK
        || ngx_ratelimit_sync_id(&result->texts[2], &id) != NGX_OK)
    {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    if (version == call->record.version && id == call->record.id) {
        call->taken = 1;

        if (ngx_ratelimit_sync_call_job(call) != NGX_OK) {
            ngx_ratelimit_sync_put_done(call);
        }

        return;
    }

    call->result.version = version;

    if (call->ran && version > call->record.version) {
        ngx_ratelimit_sync_put_passed(call);
        return;
    }

    if (version < call->version) {

        /* it has lost its last writes, which the leader puts back */

        ngx_str_set(&call->result.reason, "behind");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
}


/*
 * Where it may have run the same is said again: what is current already is not
 * written again, by its id, and what comes behind it is not expected any more.
 */
static void
ngx_ratelimit_sync_put_lost(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result)
{
    switch (result->status) {

    case NGX_RATELIMIT_REDIS_READONLY:
    case NGX_RATELIMIT_REDIS_OOM:
    case NGX_RATELIMIT_REDIS_MISCONF:
    case NGX_RATELIMIT_REDIS_NOREPLICAS:
    case NGX_RATELIMIT_REDIS_NOPERM:

        /* the script's first command that writes: it has changed nothing */
        break;

    default:
        call->ran |= result->ran;
    }

    if (!call->ran) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    if (call->tries++ == NGX_RATELIMIT_SYNC_RETRIES
        || (result->status == NGX_RATELIMIT_REDIS_TIMEOUT
            && call->tries > 1))
    {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_RETRIES_SOON,
                                 NGX_RATELIMIT_SYNC_RETRY_MS);
}


/* Others have written since: the history tells whether this one was before. */
static void
ngx_ratelimit_sync_put_passed(ngx_ratelimit_sync_call_t *call)
{
    u_char     version[NGX_INT64_LEN];
    ngx_str_t  args[2];

    ngx_str_set(&args[0], "version");
    args[1].data = version;
    args[1].len = ngx_sprintf(version, "%uL", call->record.version) - version;

    call->asked = ngx_ratelimit_redis_control_rules(call->sync->control,
                                        &call->limiter->zone.name, args, 2,
                                        ngx_ratelimit_sync_put_passed_answer,
                                        call);
    if (call->asked == NULL) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
    }
}


static void
ngx_ratelimit_sync_put_passed_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    ngx_str_t               text;
    ngx_ratelimit_record_t  record;

    call->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK || result->n == 0) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    text = result->texts[0];

    if (ngx_ratelimit_record_head(&text, call->pool, &record) != NULL
        || record.version != call->record.version
        || record.id != call->record.id)
    {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
        return;
    }

    call->result.version = call->record.version;
    call->result.saved = 1;
    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
}


/* Of the script's list, heads without their line ends. */
static ngx_int_t
ngx_ratelimit_sync_lines(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *texts, ngx_uint_t n)
{
    u_char      *p;
    size_t       len;
    ngx_str_t    text;
    ngx_uint_t   i;

    for (i = 0, len = 0; i < n; i++) {
        len += texts[i].len + 1;
    }

    text.len = len;
    text.data = ngx_pnalloc(call->pool, len + 1);

    if (text.data == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, p = text.data; i < n; i++) {
        p = ngx_cpymem(p, texts[i].data, texts[i].len);
        *p++ = LF;
    }

    return ngx_ratelimit_sync_heads(call, &text, 0);
}


/*
 * Reads the heads of records that stand one behind the other; whole: each with
 * its document.
 */
static ngx_int_t
ngx_ratelimit_sync_heads(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *records, ngx_uint_t whole)
{
    size_t                   len;
    ngx_str_t                text;
    ngx_array_t              heads;
    ngx_ratelimit_record_t  *record;

    if (ngx_array_init(&heads, call->pool, 16,
                       sizeof(ngx_ratelimit_record_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    text = *records;

    while (text.len) {
        record = ngx_array_push(&heads);
        if (record == NULL) {
            return NGX_ERROR;
        }

        if (ngx_ratelimit_record_head(&text, call->pool, record) != NULL) {
            heads.nelts--;
            break;
        }

        len = whole ? record->text.len
                    : (size_t) (ngx_strlchr(text.data, text.data + text.len,
                                            LF)
                                + 1 - text.data);
        text.data += len;
        text.len -= len;

        /* a document of this length, which is not here */

        record->document.data = NULL;
        ngx_str_null(&record->text);
    }

    call->result.n = heads.nelts;
    call->result.records = heads.elts;

    return NGX_OK;
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_put_record(ngx_ratelimit_sync_t *sync, uint64_t expected,
    const ngx_ratelimit_store_entry_t *entry,
    ngx_ratelimit_redis_control_handler_pt handler, void *data)
{
    u_char                       text[3][NGX_INT64_LEN];
    ngx_str_t                    args[7];
    ngx_pool_t                  *pool;
    ngx_ratelimit_redis_call_t  *call;

    pool = ngx_create_pool(NGX_MIN_POOL_SIZE, sync->log);
    if (pool == NULL) {
        return NULL;
    }

    ngx_str_set(&args[0], "put");

    args[1].data = text[0];
    args[1].len = ngx_sprintf(text[0], "%uL", expected) - text[0];
    args[2].data = text[1];
    args[2].len = ngx_sprintf(text[1], "%uL", entry->version) - text[1];
    args[3].data = text[2];
    args[3].len = ngx_sprintf(text[2], "%016xL", entry->id) - text[2];
    args[4] = entry->text;
    args[6] = args[2];

    call = NULL;

    if (ngx_ratelimit_sync_channel(sync, pool, &args[5]) == NGX_OK) {
        call = ngx_ratelimit_redis_control_rules(sync->control,
                                              &sync->limiter->zone.name,
                                              args, 7, handler, data);
    }

    ngx_destroy_pool(pool);

    return call;
}


ngx_int_t
ngx_ratelimit_sync_pieces_keep(ngx_ratelimit_sync_pieces_t *pieces,
    const ngx_ratelimit_redis_control_result_t *result, ngx_uint_t from,
    ngx_pool_t *pool)
{
    ngx_uint_t  i;

    pieces->texts = ngx_palloc(pool, (result->n - from) * sizeof(ngx_str_t));
    if (pieces->texts == NULL) {
        return NGX_ERROR;
    }

    for (i = from; i < result->n; i++) {
        pieces->texts[pieces->n++] = result->texts[i];
        ngx_str_null(&result->texts[i]);
    }

    return NGX_OK;
}


ngx_int_t
ngx_ratelimit_sync_pieces_join(ngx_ratelimit_sync_pieces_t *pieces,
    ngx_str_t *text, ngx_log_t *log)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;

    for (i = 0, len = 0; i < pieces->n; i++) {
        len += pieces->texts[i].len;
    }

    p = ngx_alloc(len + 1, log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;
    text->len = len;

    for (i = 0; i < pieces->n; i++) {
        if (pieces->texts[i].len) {
            p = ngx_cpymem(p, pieces->texts[i].data, pieces->texts[i].len);
        }
    }

    ngx_ratelimit_sync_pieces_free(pieces);

    return NGX_OK;
}


void
ngx_ratelimit_sync_pieces_free(ngx_ratelimit_sync_pieces_t *pieces)
{
    while (pieces->n) {
        ngx_free(pieces->texts[--pieces->n].data);
    }
}


/* "<prefix>:rules:<zone>" */
static ngx_int_t
ngx_ratelimit_sync_channel(ngx_ratelimit_sync_t *sync, ngx_pool_t *pool,
    ngx_str_t *channel)
{
    ngx_str_t  *prefix, *zone;

    prefix = &sync->limiter->redis->prefix;
    zone = &sync->limiter->zone.name;

    channel->data = ngx_pnalloc(pool, prefix->len + sizeof(":rules:")
                                      + zone->len);
    if (channel->data == NULL) {
        return NGX_ERROR;
    }

    channel->len = ngx_sprintf(channel->data, "%V:rules:%V", prefix, zone)
                   - channel->data;

    return NGX_OK;
}


ngx_int_t
ngx_ratelimit_sync_number(const ngx_str_t *text, uint64_t *number)
{
    size_t    i;
    uint64_t  n;

    if (text->len == 0 || text->len > 16) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') {
            return NGX_ERROR;
        }

        n = n * 10 + (text->data[i] - '0');
    }

    *number = n;

    return (n <= NGX_RATELIMIT_SYNC_LATEST) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_ratelimit_sync_id(const ngx_str_t *text, uint64_t *id)
{
    size_t     i;
    ngx_int_t  digit;

    if (text->len == 0 || text->len > 16) {
        return NGX_ERROR;
    }

    *id = 0;

    for (i = 0; i < text->len; i++) {
        digit = ngx_hextoi(text->data + i, 1);
        if (digit == NGX_ERROR) {
            return NGX_ERROR;
        }

        *id = *id << 4 | (uint64_t) digit;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_ratelimit_sync_copy(ngx_pool_t *pool, ngx_str_t *to,
    const ngx_str_t *from)
{
    to->len = from->len;
    to->data = ngx_pnalloc(pool, ngx_max(from->len, 1));

    if (to->data == NULL) {
        return NGX_ERROR;
    }

    if (from->len) {
        ngx_memcpy(to->data, from->data, from->len);
    }

    return NGX_OK;
}

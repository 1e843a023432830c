/*
 * One worker of a gateway leads: it asks Redis for the document, every few
 * seconds and whenever Redis announces a new one, and puts it into the store.
 * If Redis has lost it, the leader puts the gateway's own back.
 */

#include "ngx_ratelimit_sync_int.h"

#define NGX_RATELIMIT_SYNC_POLL_MS     5000
#define NGX_RATELIMIT_SYNC_AGAIN_MS    1000   /* after no answer */

/*
 * An empty Redis gets what a state file has after this time, longer than two
 * polls: if a fleet lives that has lost its Redis' data, its rules are there by
 * then.
 */
#define NGX_RATELIMIT_SYNC_EMPTY_MS    12000

/* of the script's answer to "get", if it has a record: the last text */
#define NGX_RATELIMIT_SYNC_GET_RECORD  3

static void ngx_ratelimit_sync_lead(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_leave(ngx_ratelimit_sync_t *sync);

static void ngx_ratelimit_sync_message(void *data);
static void ngx_ratelimit_sync_poll_handler(ngx_event_t *ev);
static void ngx_ratelimit_sync_poll(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_poll_later(ngx_ratelimit_sync_t *sync,
    ngx_msec_t ms);
static void ngx_ratelimit_sync_idle(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_sync_no_answer(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_status_e status);
static ngx_uint_t ngx_ratelimit_sync_same(ngx_ratelimit_sync_t *sync,
    uint64_t version, uint64_t id);
static ngx_uint_t ngx_ratelimit_sync_may_return(ngx_ratelimit_sync_t *sync,
    uint64_t found);

static void ngx_ratelimit_sync_compare(ngx_ratelimit_sync_t *sync,
    uint64_t version, uint64_t id, ngx_str_t *record);
static void ngx_ratelimit_sync_compare_work(void *data);
static ngx_int_t ngx_ratelimit_sync_find_newer(
    ngx_ratelimit_sync_compile_t *compile);
static ngx_uint_t ngx_ratelimit_sync_related(
    ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_store_entry_t *own);
static uint64_t ngx_ratelimit_sync_lineage(
    ngx_ratelimit_sync_compile_t *compile, const ngx_str_t *text);
static void ngx_ratelimit_sync_compare_done(void *data,
    ngx_uint_t cancelled);
static void ngx_ratelimit_sync_compared(
    ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_return(ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_return_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);


void
ngx_ratelimit_sync_leader_begin(ngx_ratelimit_sync_t *sync)
{
    sync->poll.data = sync;
    sync->poll.log = sync->log;
    sync->poll.handler = ngx_ratelimit_sync_poll_handler;
    sync->poll.cancelable = 1;
}


void
ngx_ratelimit_sync_leader_end(ngx_ratelimit_sync_t *sync)
{
    /* threads have ended by now: no file is being written any more */

    if (sync->file) {
        ngx_ratelimit_job_cancel(sync->file);
        sync->file = NULL;
    }

    if (sync->leader != NGX_RATELIMIT_SYNC_FOLLOWS) {
        ngx_ratelimit_sync_leave(sync);
    }
}


/* Leads if the leader has died; a worker that drains leaves. */
void
ngx_ratelimit_sync_leader_look(ngx_ratelimit_sync_t *sync)
{
    if (ngx_exiting) {
        if (sync->leader != NGX_RATELIMIT_SYNC_FOLLOWS) {
            ngx_ratelimit_sync_leave(sync);
        }

        return;
    }

    if (sync->leader == NGX_RATELIMIT_SYNC_FOLLOWS
        && ngx_ratelimit_store_lead(sync->limiter->store))
    {
        ngx_ratelimit_sync_lead(sync);
    }

    if (sync->leader != NGX_RATELIMIT_SYNC_FOLLOWS) {
        ngx_ratelimit_sync_save_look(sync);
    }
}


static void
ngx_ratelimit_sync_lead(ngx_ratelimit_sync_t *sync)
{
    sync->leader = NGX_RATELIMIT_SYNC_IDLE;
    sync->refused_version = 0;

    ngx_log_error(NGX_LOG_INFO, sync->log, 0,
                  "ratelimit zone \"%V\": this worker follows the rules for "
                  "this node", &sync->limiter->zone.name);

    ngx_ratelimit_sync_save_begin(sync);

    if (sync->control == NULL) {
        return;
    }

    /* memory may be out: then the poll is what is left */

    (void) ngx_ratelimit_redis_control_listen(sync->control,
                                              &sync->limiter->zone.name,
                                              ngx_ratelimit_sync_message,
                                              sync);
    ngx_ratelimit_sync_poll(sync);
}


/*
 * While a thread writes the state file nobody else may: the worker stays the
 * leader until that is done, and then leaves.
 */
static void
ngx_ratelimit_sync_leave(ngx_ratelimit_sync_t *sync)
{
    sync->leader = NGX_RATELIMIT_SYNC_LEAVES;
    sync->waiting = 0;
    sync->again = 0;

    if (sync->poll.timer_set) {
        ngx_del_timer(&sync->poll);
    }

    if (sync->asked) {
        ngx_ratelimit_redis_forget(sync->asked);
        sync->asked = NULL;
    }

    if (sync->compares) {
        ngx_ratelimit_job_cancel(sync->compares);
        sync->compares = NULL;
    }

    if (sync->control) {
        ngx_ratelimit_redis_control_unlisten(sync->control);
    }

    if (ngx_ratelimit_sync_save_end(sync) == NGX_AGAIN) {
        return;
    }

    sync->leader = NGX_RATELIMIT_SYNC_FOLLOWS;
    ngx_ratelimit_store_leave(sync->limiter->store);
}


/* There is a new document, or a message may have been lost. */
static void
ngx_ratelimit_sync_message(void *data)
{
    ngx_ratelimit_sync_poll(data);
}


static void
ngx_ratelimit_sync_poll_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_poll(ev->data);
}


/* One question at a time: a message that comes meanwhile is asked behind it. */
static void
ngx_ratelimit_sync_poll(ngx_ratelimit_sync_t *sync)
{
    uint64_t  version, id;

    if (sync->control == NULL || ngx_exiting) {
        return;
    }

    if (sync->leader != NGX_RATELIMIT_SYNC_IDLE) {
        sync->again = 1;
        return;
    }

    sync->again = 0;

    /* Redis need not send a record again that was refused */

    if (sync->refused_version) {
        version = sync->refused_version;
        id = sync->refused_id;

    } else {
        ngx_ratelimit_store_version(sync->limiter->store, &version, &id);
    }

    sync->asked = ngx_ratelimit_sync_ask_get(sync, version, id,
                                             ngx_ratelimit_sync_answer, sync);
    if (sync->asked) {
        sync->leader = NGX_RATELIMIT_SYNC_ASKS;
    }

    ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_POLL_MS);
}


/* A tenth earlier at most, so that gateways do not ask at once. */
static void
ngx_ratelimit_sync_poll_later(ngx_ratelimit_sync_t *sync, ngx_msec_t ms)
{
    if (!ngx_exiting) {
        ngx_add_timer(&sync->poll, ms - ms * (ngx_random() % 10) / 100);
    }
}


/* The question, or the job, has ended. */
static void
ngx_ratelimit_sync_idle(ngx_ratelimit_sync_t *sync)
{
    sync->leader = NGX_RATELIMIT_SYNC_IDLE;

    if (sync->again) {
        ngx_ratelimit_sync_poll(sync);
    }
}


/* {version, id, resets}, and the record if it is another one. */
static void
ngx_ratelimit_sync_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_t *sync = data;

    uint64_t  version, id, resets, own, own_id;

    sync->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_no_answer(sync, result->status);
        return;
    }

    if (ngx_ratelimit_sync_version(result, 0, &version, &id) != NGX_OK
        || ngx_ratelimit_sync_number(result, 2, &resets) != NGX_OK)
    {
        ngx_ratelimit_sync_no_answer(sync, NGX_RATELIMIT_REDIS_PROTOCOL);
        return;
    }

    sync->polling.wait = 0;
    sync->limiter->store->asked_ms = ngx_ratelimit_sync_now();
    sync->limiter->store->reachable = 1;

    ngx_ratelimit_sync_resets(sync, resets);

    ngx_ratelimit_store_version(sync->limiter->store, &own, &own_id);

    if (version >= own) {
        sync->returning.wait = 0;
    }

    if (version) {
        sync->waiting = 0;
    }

    if (ngx_ratelimit_sync_same(sync, version, id)
        || (version < own && !ngx_ratelimit_sync_may_return(sync, version)))
    {
        ngx_ratelimit_sync_idle(sync);

    } else if (version && result->n <= NGX_RATELIMIT_SYNC_GET_RECORD) {

        /* Redis sent no record, because the store has changed since */

        ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);
        ngx_ratelimit_sync_idle(sync);

    } else {
        ngx_ratelimit_sync_compare(sync, version, id,
                             version
                             ? &result->texts[NGX_RATELIMIT_SYNC_GET_RECORD]
                             : NULL);
    }
}


/* Repeats are limited: what lasts is logged once a minute. */
static void
ngx_ratelimit_sync_no_answer(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_status_e status)
{
    sync->limiter->store->reachable = 0;

    if (ngx_ratelimit_sync_failed(&sync->polling)) {
        ngx_log_error(NGX_LOG_ERR, sync->log, 0,
                      "ratelimit zone \"%V\": its rules are not asked for: "
                      "\"%V\"", &sync->limiter->zone.name,
                      ngx_ratelimit_redis_status_name(status));
    }

    sync->again = 0;
    ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);
    ngx_ratelimit_sync_idle(sync);
}


/* Whether Redis has what the store has, or what was refused before. */
static ngx_uint_t
ngx_ratelimit_sync_same(ngx_ratelimit_sync_t *sync, uint64_t version,
    uint64_t id)
{
    uint64_t                own, own_id;
    ngx_ratelimit_store_t  *store;

    store = sync->limiter->store;
    ngx_ratelimit_store_version(store, &own, &own_id);

    if (version != own || id != own_id) {
        return version && version == sync->refused_version
               && id == sync->refused_id;
    }

    /* one that the workers do not use is another matter */

    if (sync->refused_version) {
        sync->refused_version = 0;
        store->refused = 0;
    }

    if (version) {
        store->joined = 1;
    }

    return 1;
}


/*
 * Redis has less than this gateway: whether it is time to put that right. A
 * Redis that does not take it is given it less and less often. A record
 * that was never seen in this Redis comes from a state file: that waits.
 */
static ngx_uint_t
ngx_ratelimit_sync_may_return(ngx_ratelimit_sync_t *sync, uint64_t found)
{
    ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);

    if (!ngx_ratelimit_sync_may_retry(&sync->returning)) {
        return 0;
    }

    if (found || sync->limiter->store->joined) {
        return 1;
    }

    if (!sync->waiting) {
        sync->waiting = 1;
        sync->empty = ngx_current_msec;
    }

    return ngx_current_msec - sync->empty >= NGX_RATELIMIT_SYNC_EMPTY_MS;
}


/*
 * A record of Redis goes into the store when it was seen to compile: a worker
 * that starts later, maybe without Redis, finds no other there.
 */
static void
ngx_ratelimit_sync_compare(ngx_ratelimit_sync_t *sync, uint64_t version,
    uint64_t id, ngx_str_t *record)
{
    uint64_t                       own_id;
    ngx_ratelimit_sync_compile_t  *compile;

    compile = ngx_ratelimit_sync_compile_new(sync);

    if (compile) {
        ngx_ratelimit_store_version(sync->limiter->store, &compile->current,
                                    &own_id);
        compile->entry.version = version;
        compile->entry.id = id;

        if (record) {
            compile->entry.text = *record;
            ngx_str_null(record);
        }

        sync->compares =
            ngx_ratelimit_job_start(ngx_ratelimit_sync_compare_work,
                                    ngx_ratelimit_sync_compare_done, compile,
                                    sync->log);
        if (sync->compares) {
            sync->leader = NGX_RATELIMIT_SYNC_COMPARES;
            return;
        }

        ngx_ratelimit_sync_compile_free(compile);
    }

    ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);
    ngx_ratelimit_sync_idle(sync);
}


/* In a thread. */
static void
ngx_ratelimit_sync_compare_work(void *data)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    uint64_t                       found;
    ngx_int_t                      rc;
    ngx_ratelimit_blob_history_e   history;

    rc = ngx_ratelimit_sync_find_newer(compile);

    if (rc != NGX_DECLINED) {
        compile->failed = (rc == NGX_ERROR);
        return;
    }

    ngx_ratelimit_sync_compile_text(compile);

    if (compile->why == NULL
        && compile->record.text.len != compile->entry.text.len)
    {
        compile->why = "something follows it";
    }

    if (compile->why || compile->policy == NULL) {
        return;
    }

    /* that of the same number was lost by Redis: no part of the history */

    history = (compile->entry.version == compile->current)
              ? NGX_RATELIMIT_BLOB_DROP : NGX_RATELIMIT_BLOB_KEEP;

    if (compile->dropped) {
        history = NGX_RATELIMIT_BLOB_ANEW;
    }

    compile->published =
        ngx_ratelimit_store_publish(compile->limiter->store, &compile->entry,
                                    compile->current, 0, history, &found);

    if (compile->published != NGX_OK && compile->published != NGX_BUSY) {
        compile->why = "the store has no room for it";
    }
}


/*
 * In a thread: compares what Redis has with what this gateway has. Returns
 * NGX_DECLINED: that of Redis counts; NGX_OK: Redis has lost what it had, or
 * its last writes, and this gateway's record, compile->back, is put back; or
 * NGX_ERROR: memory is out.
 */
static ngx_int_t
ngx_ratelimit_sync_find_newer(ngx_ratelimit_sync_compile_t *compile)
{
    uint64_t                     generation;
    ngx_int_t                    rc;
    ngx_ratelimit_store_entry_t  own;

    rc = ngx_ratelimit_store_read(compile->limiter->store, 0, &own,
                                  &generation, compile->log);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!ngx_ratelimit_sync_related(compile, &own)) {
        compile->dropped = own.version;

    } else if (own.version > compile->entry.version) {
        compile->back = own;
        return NGX_OK;
    }

    ngx_free(own.text.data);

    return NGX_DECLINED;
}


/*
 * Whether Redis' record is of the same fleet: what this gateway's own was made
 * of, or of the same lineage. A record of an older gateway has no lineage:
 * then Redis is followed unless its version is lower.
 */
static ngx_uint_t
ngx_ratelimit_sync_related(ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_store_entry_t *own)
{
    uint64_t  id, here, there;

    if (compile->entry.version == 0
        || (ngx_ratelimit_store_id(compile->limiter->store,
                                   compile->entry.version, &id)
            == NGX_OK
            && id == compile->entry.id))
    {
        return 1;
    }

    here = ngx_ratelimit_sync_lineage(compile, &own->text);
    there = ngx_ratelimit_sync_lineage(compile, &compile->entry.text);

    if (here && there) {
        return here == there;
    }

    return compile->entry.version >= own->version;
}


static uint64_t
ngx_ratelimit_sync_lineage(ngx_ratelimit_sync_compile_t *compile,
    const ngx_str_t *text)
{
    const char              *wrong;
    ngx_ratelimit_record_t   record;

    wrong = ngx_ratelimit_record_head(text, compile->pool, &record);

    return (wrong && wrong != ngx_ratelimit_record_too_large) ? 0
                                                              : record.lineage;
}


static void
ngx_ratelimit_sync_compare_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    ngx_ratelimit_sync_t  *sync;

    if (cancelled) {
        ngx_ratelimit_sync_compile_free(compile);
        return;
    }

    sync = compile->sync;
    sync->compares = NULL;

    if (compile->back.text.data) {
        ngx_ratelimit_sync_return(compile);

    } else {
        if (compile->failed) {
            ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);

        } else {
            ngx_ratelimit_sync_compared(compile);
        }

        ngx_ratelimit_sync_idle(sync);
    }

    ngx_ratelimit_sync_compile_free(compile);
}


/* The record of Redis is in the store, or refused. */
static void
ngx_ratelimit_sync_compared(ngx_ratelimit_sync_compile_t *compile)
{
    ngx_ratelimit_sync_t  *sync;

    sync = compile->sync;

    if (compile->why || compile->policy == NULL) {
        sync->refused_version = compile->entry.version;
        sync->refused_id = compile->entry.id;
        ngx_ratelimit_sync_refused(compile);
        return;
    }

    if (compile->published == NGX_BUSY) {
        sync->again = 1;
        return;
    }

    sync->refused_version = 0;
    sync->limiter->store->refused = 0;
    sync->saving.wait = 0;

    /* an operator has joined two fleets, or brought a file of another one */

    if (compile->dropped) {
        ngx_log_error(NGX_LOG_WARN, compile->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules is "
                      "dropped: it is of another lineage than version %uL, "
                      "which Redis has", &compile->limiter->zone.name,
                      compile->dropped, compile->entry.version);
    }

    ngx_ratelimit_sync_wake(sync);
}


/* The highest version that a gateway of the fleet has becomes the fleet's. */
static void
ngx_ratelimit_sync_return(ngx_ratelimit_sync_compile_t *compile)
{
    ngx_uint_t             first;
    ngx_ratelimit_sync_t  *sync;

    sync = compile->sync;

    sync->asked = ngx_ratelimit_sync_ask_put(sync, compile->entry.version,
                                             compile->entry.id,
                                             &compile->back,
                                             ngx_ratelimit_sync_return_answer,
                                             sync);
    if (sync->asked == NULL) {
        ngx_ratelimit_sync_idle(sync);
        return;
    }

    sync->leader = NGX_RATELIMIT_SYNC_RETURNS;
    first = (sync->returning.wait == 0);

    if (ngx_ratelimit_sync_failed(&sync->returning) || first) {
        ngx_log_error(NGX_LOG_NOTICE, sync->log, 0,
                      "ratelimit zone \"%V\": Redis has version %uL of its "
                      "rules, this gateway puts back version %uL",
                      &sync->limiter->zone.name, compile->entry.version,
                      compile->back.version);
    }
}


/* {"1", version, id}; or what was there instead, which the next poll reads */
static void
ngx_ratelimit_sync_return_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_t *sync = data;

    sync->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_no_answer(sync, result->status);
        return;
    }

    ngx_ratelimit_sync_idle(sync);
}

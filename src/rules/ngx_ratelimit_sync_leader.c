/*
 * What one worker of a node does for all: it asks Redis what the document is,
 * each few seconds and whenever it is told that there is something new, puts it
 * into the store, or puts the node's own back where Redis has lost it; and it
 * writes the state file.
 */

#include "ngx_ratelimit_sync_int.h"

#include "ngx_ratelimit_leases.h"
#include "ngx_ratelimit_state.h"

#define NGX_RATELIMIT_SYNC_POLL_MS    5000
#define NGX_RATELIMIT_SYNC_JITTER_MS  500
#define NGX_RATELIMIT_SYNC_AGAIN_MS   1000   /* after no answer */

/*
 * An empty Redis gets what a state file has after this time, longer than two
 * polls: if a fleet lives that has lost its Redis' data, its rules are there by
 * then.
 */
#define NGX_RATELIMIT_SYNC_EMPTY_MS   12000

/* of the script's answer to "get", where it has a record: the last text */
#define NGX_RATELIMIT_SYNC_GET_RECORD  3

typedef struct {
    ngx_ratelimit_sync_t        *sync;
    ngx_ratelimit_store_t       *store;
    ngx_log_t                   *log;
    ngx_str_t                    file;
    ngx_ratelimit_store_entry_t  entry;      /* all of it; on the heap */
    uint64_t                     generation;
    const char                  *why;        /* NULL: it is written */
    ngx_err_t                    err;
    unsigned                     alone:1;    /* no Redis */
} ngx_ratelimit_sync_file_t;

static void ngx_ratelimit_sync_lead(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_leave(ngx_ratelimit_sync_t *sync);

static void ngx_ratelimit_sync_told(void *data);
static void ngx_ratelimit_sync_poll_handler(ngx_event_t *ev);
static void ngx_ratelimit_sync_poll(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_poll_later(ngx_ratelimit_sync_t *sync,
    ngx_msec_t ms);
static void ngx_ratelimit_sync_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result);
static void ngx_ratelimit_sync_no_answer(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_status_e status);
static ngx_uint_t ngx_ratelimit_sync_may_return(ngx_ratelimit_sync_t *sync,
    uint64_t found);
static void ngx_ratelimit_sync_pull(ngx_ratelimit_sync_t *sync,
    uint64_t version, uint64_t id, ngx_str_t *record, uint64_t current);
static void ngx_ratelimit_sync_pull_work(void *data);
static void ngx_ratelimit_sync_pulled(ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_put_back(
    ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_put_back_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result);

static void ngx_ratelimit_sync_save_work(void *data);
static void ngx_ratelimit_sync_save_done(void *data, ngx_uint_t cancelled);


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

    if (sync->written) {
        ngx_ratelimit_job_cancel(sync->written);
        sync->written = NULL;
    }

    if (sync->leading) {
        ngx_ratelimit_sync_leave(sync);
    }
}


/* Takes the place of one who has died; a worker that drains leads no more. */
void
ngx_ratelimit_sync_elect(ngx_ratelimit_sync_t *sync)
{
    if (ngx_exiting) {
        if (sync->leading) {
            ngx_ratelimit_sync_leave(sync);
        }

        return;
    }

    if (!sync->leading && ngx_ratelimit_store_lead(sync->limiter->store)) {
        ngx_ratelimit_sync_lead(sync);
    }
}


static void
ngx_ratelimit_sync_lead(ngx_ratelimit_sync_t *sync)
{
    sync->leading = 1;
    sync->refused_version = 0;

    ngx_log_error(NGX_LOG_INFO, sync->log, 0,
                  "ratelimit zone \"%V\": this worker follows the rules for "
                  "this node", &sync->limiter->zone.name);

    /* the leader of the configuration before may have written another file */

    ngx_ratelimit_store_set_file(sync->limiter->store, &sync->limiter->state);
    ngx_ratelimit_sync_save(sync);

    if (sync->control == NULL) {
        return;
    }

    /* memory may be out: then the poll is what is left */

    (void) ngx_ratelimit_redis_control_listen(sync->control,
                                              &sync->limiter->zone.name,
                                              ngx_ratelimit_sync_told, sync);
    ngx_ratelimit_sync_poll(sync);
}


/*
 * While a thread writes the state file nobody else may: who leads then stays
 * the leader until that is done, and is asked again.
 */
static void
ngx_ratelimit_sync_leave(ngx_ratelimit_sync_t *sync)
{
    if (sync->poll.timer_set) {
        ngx_del_timer(&sync->poll);
    }

    if (sync->asked) {
        ngx_ratelimit_redis_control_forget(sync->asked);
        sync->asked = NULL;
    }

    if (sync->pulled) {
        ngx_ratelimit_job_cancel(sync->pulled);
        sync->pulled = NULL;
    }

    if (sync->control) {
        ngx_ratelimit_redis_control_unlisten(sync->control);
    }

    if (sync->written) {
        return;
    }

    sync->leading = 0;
    ngx_ratelimit_store_leave(sync->limiter->store);
}


/* There is something new, or it was not heard what is. */
static void
ngx_ratelimit_sync_told(void *data)
{
    ngx_ratelimit_sync_poll(data);
}


static void
ngx_ratelimit_sync_poll_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_poll(ev->data);
}


/* One question at a time: what is told meanwhile is asked behind it. */
static void
ngx_ratelimit_sync_poll(ngx_ratelimit_sync_t *sync)
{
    u_char      text[2][NGX_INT64_LEN];
    uint64_t    version, id;
    ngx_str_t   args[3];

    if (!sync->leading || sync->control == NULL || ngx_exiting) {
        return;
    }

    if (sync->asked || sync->pulled) {
        sync->again = 1;
        return;
    }

    sync->again = 0;

    /* what was refused is known, too: it is not sent again */

    if (sync->refused_version) {
        version = sync->refused_version;
        id = sync->refused_id;

    } else {
        ngx_ratelimit_store_version(sync->limiter->store, &version, &id);
    }

    ngx_str_set(&args[0], "get");
    args[1].data = text[0];
    args[1].len = ngx_sprintf(text[0], "%uL", version) - text[0];
    args[2].data = text[1];
    args[2].len = ngx_sprintf(text[1], "%016xL", id) - text[1];

    sync->asked = ngx_ratelimit_redis_control_rules(sync->control,
                                              &sync->limiter->zone.name,
                                              args, 3,
                                              ngx_ratelimit_sync_answer,
                                              sync);

    ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_POLL_MS);
}


static void
ngx_ratelimit_sync_poll_later(ngx_ratelimit_sync_t *sync, ngx_msec_t ms)
{
    if (sync->leading && !ngx_exiting) {
        ngx_add_timer(&sync->poll, ms - ms * (ngx_random() % 10) / 100);
    }
}


/* {version, id, resets}, and the record where it is another one. */
static void
ngx_ratelimit_sync_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result)
{
    ngx_ratelimit_sync_t *sync = data;

    uint64_t  version, id, resets, own, own_id;

    sync->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_no_answer(sync, result->status);
        return;
    }

    if (result->n < 3
        || ngx_ratelimit_sync_number(&result->texts[0], &version) != NGX_OK
        || ngx_ratelimit_sync_id(&result->texts[1], &id) != NGX_OK
        || ngx_ratelimit_sync_number(&result->texts[2], &resets) != NGX_OK)
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

    if (version == own && id == own_id) {

        /* one that the workers do not use is another matter */

        if (sync->refused_version) {
            sync->refused_version = 0;
            sync->limiter->store->refused = 0;
        }

        if (version) {
            sync->limiter->store->joined = 1;
        }

    } else if (version && version == sync->refused_version
               && id == sync->refused_id)
    {
        /* it is still there, and still not to be used */

    } else if (version < own && !ngx_ratelimit_sync_may_return(sync, version))
    {
        /* it is asked again soon */

    } else if (version && result->n <= NGX_RATELIMIT_SYNC_GET_RECORD) {

        /* not the one that was asked for: the store has changed */

        ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);

    } else {
        ngx_ratelimit_sync_pull(sync, version, id,
                                version
                                ? &result->texts[NGX_RATELIMIT_SYNC_GET_RECORD]
                                : NULL,
                                own);
    }

    if (sync->again) {
        ngx_ratelimit_sync_poll(sync);
    }
}


/* Not one word for each question: what lasts is said once a minute. */
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
}


/*
 * Redis has less than this gateway: whether it is time to put that right. A
 * Redis that does not take it is given it less and less often. What nobody has
 * ever seen in this Redis comes from a state file: that waits, see above.
 */
static ngx_uint_t
ngx_ratelimit_sync_may_return(ngx_ratelimit_sync_t *sync, uint64_t found)
{
    ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);

    if (sync->returning.wait
        && (ngx_msec_int_t) (ngx_current_msec - sync->returning.after) < 0)
    {
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


void
ngx_ratelimit_sync_resets(ngx_ratelimit_sync_t *sync, uint64_t resets)
{
    if (sync->limiter->store->resets == resets) {
        return;
    }

    sync->limiter->store->resets = resets;

    if (sync->limiter->zone.leases) {
        ngx_ratelimit_leases_forget(sync->limiter->zone.leases,
                                    (uint64_t) ngx_current_msec * 1000);
    }
}


/*
 * A record of Redis goes into the store when it was seen to compile: a worker
 * that starts later, maybe without Redis, finds no other there.
 */
static void
ngx_ratelimit_sync_pull(ngx_ratelimit_sync_t *sync, uint64_t version,
    uint64_t id, ngx_str_t *record, uint64_t current)
{
    ngx_ratelimit_sync_compile_t  *compile;

    compile = ngx_ratelimit_sync_compile_new(sync);
    if (compile == NULL) {
        ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);
        return;
    }

    compile->current = current;
    compile->entry.version = version;
    compile->entry.id = id;

    if (record) {
        compile->entry.text = *record;
        ngx_str_null(record);
    }

    sync->pulled = ngx_ratelimit_job_start(ngx_ratelimit_sync_pull_work,
                                           ngx_ratelimit_sync_pull_done,
                                           compile, sync->log);
    if (sync->pulled == NULL) {
        ngx_ratelimit_sync_compile_free(compile);
        ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);
    }
}


/* In a thread. */
static void
ngx_ratelimit_sync_pull_work(void *data)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    uint64_t                        found;
    ngx_int_t                       rc;
    ngx_ratelimit_store_t          *store;
    ngx_ratelimit_blob_history_e   history;

    rc = ngx_ratelimit_sync_compare(compile);

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

    store = compile->limiter->store;

    compile->published = ngx_ratelimit_store_publish(store, &compile->entry,
                                                     compile->current, 0,
                                                     history, &found);
    if (compile->published == NGX_OK) {
        compile->generation = ngx_ratelimit_store_generation(store);
    }
}


void
ngx_ratelimit_sync_pull_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    ngx_ratelimit_sync_t  *sync;

    if (cancelled) {
        ngx_ratelimit_sync_compile_free(compile);
        return;
    }

    sync = compile->sync;
    sync->pulled = NULL;

    if (compile->back.text.data) {
        ngx_ratelimit_sync_put_back(compile);
        return;
    }

    if (compile->none) {
        sync->polling.wait = 0;
        ngx_ratelimit_sync_compile_free(compile);
        return;
    }

    if (compile->failed) {
        ngx_ratelimit_sync_compile_free(compile);

        /* the state file: what could not be read of it is in the log */

        if (sync->control == NULL) {
            (void) ngx_ratelimit_sync_failed(&sync->polling);
        }

        ngx_ratelimit_sync_poll_later(sync, NGX_RATELIMIT_SYNC_AGAIN_MS);
        return;
    }

    if (compile->why == NULL && compile->policy
        && compile->published == NGX_OK)
    {
        sync->refused_version = 0;
        sync->limiter->store->refused = 0;
        sync->writing.wait = 0;
        ngx_ratelimit_sync_pulled(compile);
        ngx_ratelimit_sync_take(compile);

    } else if (compile->why == NULL && compile->policy
               && compile->published == NGX_BUSY)
    {
        sync->again = 1;
        ngx_ratelimit_sync_compile_free(compile);

    } else {
        if (compile->why == NULL && compile->policy) {
            compile->why = "the store has no room for it";
        }

        sync->refused_version = compile->entry.version;
        sync->refused_id = compile->entry.id;
        ngx_ratelimit_sync_refused(compile);
        ngx_ratelimit_sync_compile_free(compile);
    }

    if (sync->again) {
        ngx_ratelimit_sync_poll(sync);
    }
}


/* An operator has brought two fleets together, or a file from another one. */
static void
ngx_ratelimit_sync_pulled(ngx_ratelimit_sync_compile_t *compile)
{
    if (compile->dropped) {
        ngx_log_error(NGX_LOG_WARN, compile->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules is "
                      "dropped: it is of another lineage than version %uL, "
                      "which Redis has", &compile->limiter->zone.name,
                      compile->dropped, compile->entry.version);
    }
}


/* The highest version that a gateway of the fleet has becomes the fleet's. */
static void
ngx_ratelimit_sync_put_back(ngx_ratelimit_sync_compile_t *compile)
{
    ngx_uint_t             first;
    ngx_ratelimit_sync_t  *sync;

    sync = compile->sync;

    sync->asked = ngx_ratelimit_sync_put_send(sync, compile->entry.version,
                                            compile->entry.id, &compile->back,
                                            ngx_ratelimit_sync_put_back_answer,
                                              sync);

    if (sync->asked) {
        first = (sync->returning.wait == 0);

        if (ngx_ratelimit_sync_failed(&sync->returning) || first) {
            ngx_log_error(NGX_LOG_NOTICE, sync->log, 0,
                          "ratelimit zone \"%V\": Redis has version %uL of "
                          "its rules, this gateway puts back version %uL",
                          &sync->limiter->zone.name, compile->entry.version,
                          compile->back.version);
        }

    } else if (sync->again) {
        ngx_ratelimit_sync_poll(sync);
    }

    ngx_ratelimit_sync_compile_free(compile);
}


/* {"1", version, id}; or what was there instead, which the next poll reads */
static void
ngx_ratelimit_sync_put_back_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result)
{
    ngx_ratelimit_sync_t *sync = data;

    sync->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_no_answer(sync, result->status);
        return;
    }

    if (sync->again) {
        ngx_ratelimit_sync_poll(sync);
    }
}


void
ngx_ratelimit_sync_save(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_sync_file_t  *file;

    if (!sync->leading || sync->written || sync->limiter->state.len == 0
        || ngx_exiting)
    {
        return;
    }

    if (sync->limiter->store->written
        == ngx_ratelimit_store_generation(sync->limiter->store))
    {
        return;
    }

    if (sync->writing.wait
        && (ngx_msec_int_t) (ngx_current_msec - sync->writing.after) < 0)
    {
        return;
    }

    file = ngx_calloc(sizeof(ngx_ratelimit_sync_file_t), sync->log);

    if (file) {
        file->sync = sync;
        file->store = sync->limiter->store;
        file->log = sync->log;
        file->file = sync->limiter->state;
        file->alone = (sync->control == NULL);

        sync->written = ngx_ratelimit_job_start(ngx_ratelimit_sync_save_work,
                                                ngx_ratelimit_sync_save_done,
                                                file, sync->log);
        if (sync->written) {
            return;
        }

        ngx_free(file);
    }

    (void) ngx_ratelimit_sync_failed(&sync->writing);
}


static void
ngx_ratelimit_sync_save_work(void *data)
{
    ngx_ratelimit_sync_file_t *file = data;

    if (ngx_ratelimit_store_read_all(file->store, &file->entry,
                                     &file->generation, file->log)
        != NGX_OK)
    {
        file->entry.text.data = NULL;
        file->why = "reading the store";
        file->err = NGX_ENOMEM;
        return;
    }

    /* with Redis the highest version comes from there */

    file->why = file->alone
                ? ngx_ratelimit_state_replace(&file->file, &file->entry.text,
                                              file->entry.version,
                                              file->entry.id, file->log,
                                              &file->err)
                : ngx_ratelimit_state_write(&file->file, &file->entry.text,
                                            &file->err);

    ngx_free(file->entry.text.data);
    file->entry.text.data = NULL;
}


static void
ngx_ratelimit_sync_save_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_file_t *file = data;

    ngx_ratelimit_sync_t  *sync;

    if (cancelled) {
        ngx_free(file);
        return;
    }

    sync = file->sync;
    sync->written = NULL;

    if (file->why == NULL) {
        sync->writing.wait = 0;
        file->store->written = file->generation;
        file->store->error = 0;

    } else if (file->why == ngx_ratelimit_state_newer) {

        /* that is taken over first */

        (void) ngx_ratelimit_sync_failed(&sync->writing);
        sync->looked = ngx_current_msec - NGX_RATELIMIT_SYNC_POLL_MS;

    } else {
        file->store->error = file->err ? file->err : NGX_EINVAL;

        if (ngx_ratelimit_sync_failed(&sync->writing)) {
            ngx_log_error(NGX_LOG_ERR, sync->log, file->err,
                          "ratelimit zone \"%V\": the state file \"%V\" "
                          "could not be written: %s failed",
                          &sync->limiter->zone.name, &file->file, file->why);
        }
    }

    ngx_free(file);

    if (ngx_exiting) {
        ngx_ratelimit_sync_leave(sync);
        return;
    }

    ngx_ratelimit_sync_save(sync);
}

/*
 * The leader keeps the state file up to date. During an upgrade of the binary
 * the file is the new master's.
 */

#include "ngx_ratelimit_sync_int.h"

#include "ngx_ratelimit_state.h"

#define NGX_RATELIMIT_SYNC_UPGRADE_MS  1000   /* looks for one */

/* A job, on the heap. */
typedef struct {
    ngx_ratelimit_sync_t     *sync;
    ngx_ratelimit_limiter_t  *limiter;
    ngx_log_t                *log;
    uint64_t                  generation;   /* that is written */
    const char               *why;          /* NULL: it is written */
    ngx_err_t                 err;
    ngx_int_t                 rc;           /* that of reading it */
} ngx_ratelimit_sync_file_t;

static void ngx_ratelimit_sync_start(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_job_work_pt work, ngx_ratelimit_job_done_pt done);
static void ngx_ratelimit_sync_load_work(void *data);
static void ngx_ratelimit_sync_load_done(void *data, ngx_uint_t cancelled);
static void ngx_ratelimit_sync_save_work(void *data);
static void ngx_ratelimit_sync_save_done(void *data, ngx_uint_t cancelled);


/* The leader of the configuration before may have written another file. */
void
ngx_ratelimit_sync_save_begin(ngx_ratelimit_sync_t *sync)
{
    sync->looked = ngx_current_msec - NGX_RATELIMIT_SYNC_UPGRADE_MS;

    ngx_ratelimit_store_set_file(sync->limiter->store, &sync->limiter->state);
}


/* The next leader looks when an upgrade that is under way may be over. */
ngx_int_t
ngx_ratelimit_sync_save_end(ngx_ratelimit_sync_t *sync)
{
    if (sync->limiter->state.len && ngx_ratelimit_sync_upgraded()) {
        sync->limiter->store->upgraded = 1;
    }

    return sync->file ? NGX_AGAIN : NGX_OK;
}


/*
 * If the new master ends, and not this one, this gateway goes on with what the
 * file has by then; with Redis, with what Redis has.
 */
void
ngx_ratelimit_sync_save_look(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_store_t  *store;

    store = sync->limiter->store;

    if (sync->limiter->state.len == 0 || sync->file
        || !ngx_ratelimit_sync_may_retry(&sync->saving))
    {
        return;
    }

    if (ngx_current_msec - sync->looked >= NGX_RATELIMIT_SYNC_UPGRADE_MS
        || store->written != ngx_ratelimit_store_generation(store))
    {
        sync->looked = ngx_current_msec;

        if (ngx_ratelimit_sync_upgraded()) {
            store->upgraded = 1;
            return;
        }

        if (sync->control) {
            store->upgraded = 0;
        }

        if (store->upgraded) {
            ngx_ratelimit_sync_start(sync, ngx_ratelimit_sync_load_work,
                                     ngx_ratelimit_sync_load_done);

        } else if (store->written != ngx_ratelimit_store_generation(store)) {
            ngx_ratelimit_sync_start(sync, ngx_ratelimit_sync_save_work,
                                     ngx_ratelimit_sync_save_done);
        }
    }
}


static void
ngx_ratelimit_sync_start(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_job_work_pt work, ngx_ratelimit_job_done_pt done)
{
    ngx_ratelimit_sync_file_t  *file;

    file = ngx_calloc(sizeof(ngx_ratelimit_sync_file_t), sync->log);

    if (file) {
        file->sync = sync;
        file->limiter = sync->limiter;
        file->log = sync->log;

        sync->file = ngx_ratelimit_job_start(work, done, file, sync->log);

        if (sync->file) {
            return;
        }

        ngx_free(file);
    }

    (void) ngx_ratelimit_sync_failed(&sync->saving);
}


static void
ngx_ratelimit_sync_load_work(void *data)
{
    ngx_ratelimit_sync_file_t *file = data;

    file->rc = ngx_ratelimit_sync_load(file->limiter, 0, file->log);
}


static void
ngx_ratelimit_sync_load_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_file_t *file = data;

    if (!cancelled) {
        file->sync->file = NULL;

        if (file->rc == NGX_OK) {
            file->limiter->store->upgraded = 0;
            file->sync->saving.wait = 0;

        } else {
            (void) ngx_ratelimit_sync_failed(&file->sync->saving);
        }

        ngx_ratelimit_sync_wake(file->sync);
    }

    ngx_free(file);
}


static void
ngx_ratelimit_sync_save_work(void *data)
{
    ngx_ratelimit_sync_file_t *file = data;

    ngx_ratelimit_store_entry_t  all;

    if (ngx_ratelimit_store_read_all(file->limiter->store, &all,
                                     &file->generation, file->log)
        != NGX_OK)
    {
        file->why = "reading the store";
        file->err = NGX_ENOMEM;
        return;
    }

    file->why = ngx_ratelimit_state_write(&file->limiter->state, &all.text,
                                          &file->err);
    ngx_free(all.text.data);
}


static void
ngx_ratelimit_sync_save_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_file_t *file = data;

    ngx_ratelimit_sync_t   *sync;
    ngx_ratelimit_store_t  *store;

    if (cancelled) {
        ngx_free(file);
        return;
    }

    sync = file->sync;
    store = sync->limiter->store;
    sync->file = NULL;

    if (file->why == NULL) {
        sync->saving.wait = 0;
        store->written = file->generation;
        store->error = 0;

    } else {
        store->error = file->err ? file->err : NGX_EINVAL;

        if (ngx_ratelimit_sync_failed(&sync->saving)) {
            ngx_log_error(NGX_LOG_ERR, sync->log, file->err,
                          "ratelimit zone \"%V\": the state file \"%V\" "
                          "could not be written: %s failed",
                          &sync->limiter->zone.name, &sync->limiter->state,
                          file->why);
        }
    }

    ngx_free(file);

    /* there may be more to write, or the leader waits to leave */

    ngx_ratelimit_sync_wake(sync);
}

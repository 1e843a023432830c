/*
 * A worker follows its zone's document: it looks at the store, compiles what is
 * new there in a job, finishes it in slices, and swaps.
 */

#include "ngx_rl_sync_int.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#define NGX_RL_SYNC_LOOK_MS    100    /* at the store's generation */
#define NGX_RL_SYNC_SLICE_MS   1      /* of what only the loop may do */
#define NGX_RL_SYNC_WHOLE_MS   1000   /* before it serves */
#define NGX_RL_SYNC_LARGE      262144 /* bytes of a document */
static void ngx_rl_sync_look(ngx_rl_sync_t *sync);


static void
ngx_rl_sync_timer(ngx_rl_sync_t *sync, ngx_event_t *ev,
    ngx_event_handler_pt handler)
{
    ev->data = sync;
    ev->log = sync->log;
    ev->handler = handler;
    ev->cancelable = 1;
}


static void
ngx_rl_sync_no_memory(ngx_rl_sync_t *sync)
{
    if (ngx_rl_sync_failed(&sync->compiling)) {
        ngx_log_error(NGX_LOG_ERR, sync->log, 0,
                      "ratelimit zone \"%V\": out of memory, the rules "
                      "before go on", &sync->limiter->zone.name);
    }
}


/* A document that compiles is finished next; else the worker keeps its own. */
static void
ngx_rl_sync_compiled(ngx_rl_sync_task_t *task)
{
    ngx_rl_sync_t  *sync;

    sync = task->sync;

    if (task->rc == NGX_ERROR) {
        ngx_rl_sync_no_memory(sync);
        ngx_destroy_pool(task->pool);
        return;
    }

    sync->compiling.wait = 0;

    if (task->policy) {
        sync->next = task;
        return;
    }

    sync->generation = task->entry.generation;

    /* each worker finds it out by itself: one of them says it */

    if (ngx_worker == 0) {
        ngx_rl_sync_refused(task);
    }

    ngx_destroy_pool(task->pool);
}


/* The task's reference becomes the limiter's. */
static void
ngx_rl_sync_swap(ngx_rl_sync_t *sync)
{
    uint64_t             refused;
    ngx_rl_sync_task_t  *task;

    task = sync->next;

    sync->generation = task->entry.generation;
    sync->version = task->policy->version;
    sync->swapped_ms = ngx_rl_sync_now();
    sync->warnings = task->warnings.n;

    refused = sync->limiter->store->refused;

    if (refused && refused <= sync->version) {
        sync->limiter->store->refused = 0;
    }

    ngx_log_error(NGX_LOG_INFO, sync->log, 0,
                  "ratelimit zone \"%V\" goes by version %uL of its rules",
                  &sync->limiter->zone.name, sync->version);

    /* each worker has the same: one of them says it */

    if (ngx_worker == 0) {
        ngx_rl_sync_warned(task, NGX_LOG_ERR);
    }

    ngx_rl_policy_swap(sync->limiter, task->policy);
    task->policy = NULL;
}


static void
ngx_rl_sync_trim_work(void *data)
{
#if defined(__GLIBC__)
    (void) malloc_trim(0);
#endif
}


static void
ngx_rl_sync_trim_done(void *data)
{
    ngx_destroy_pool(data);
}


/*
 * malloc() would keep what the document before, and its JSON, had. The thread
 * gives it back: most of it is in the thread's arena, whose lock the loop does
 * not need.
 */
static void
ngx_rl_sync_trim(ngx_log_t *log)
{
    ngx_pool_t  *pool;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, log);

    if (pool
        && ngx_rl_job_start(pool, NGX_RL_JOB_COMPUTES,
                            ngx_rl_sync_trim_work,
                            ngx_rl_sync_trim_done, pool)
           == NULL)
    {
        ngx_destroy_pool(pool);
    }
}


/* NGX_AGAIN: once more. */
static ngx_int_t
ngx_rl_sync_finish(ngx_rl_sync_t *sync, ngx_msec_t budget_ms)
{
    size_t     bytes;
    ngx_int_t  rc;

    bytes = sync->next->entry.text.len;
    rc = ngx_rl_policy_finish(sync->next->policy, budget_ms, NULL);

    if (rc == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    if (rc == NGX_OK) {
        ngx_rl_sync_swap(sync);

    } else {
        ngx_rl_sync_no_memory(sync);
    }

    ngx_destroy_pool(sync->next->pool);
    sync->next = NULL;

    if (ngx_max(sync->bytes, bytes) > NGX_RL_SYNC_LARGE) {
        ngx_rl_sync_trim(sync->log);
    }

    sync->bytes = bytes;

    return rc;
}


static void
ngx_rl_sync_slice_handler(ngx_event_t *ev)
{
    ngx_rl_sync_t  *sync;

    sync = ev->data;

    if (ngx_rl_sync_finish(sync, NGX_RL_SYNC_SLICE_MS) == NGX_AGAIN) {
        /* others first: a posted event would run in the same turn */

        ngx_add_timer(ev, 1);
        return;
    }

    ngx_rl_sync_look(sync);
}


static void
ngx_rl_sync_compile_done(void *data)
{
    ngx_rl_sync_task_t *task = data;

    ngx_rl_sync_t  *sync;

    sync = task->sync;
    sync->job = NULL;

    ngx_rl_sync_compiled(task);

    if (sync->next) {
        ngx_rl_sync_slice_handler(&sync->slice);

    } else {
        ngx_rl_sync_look(sync);
    }
}


/* One at a time: then the worker looks whether the store has changed again. */
static void
ngx_rl_sync_look(ngx_rl_sync_t *sync)
{
    if (sync->job || sync->next
        || ngx_rl_store_generation(sync->limiter->store)
           == sync->generation
        || !ngx_rl_sync_may_retry(&sync->compiling))
    {
        return;
    }

    sync->job = ngx_rl_sync_task_start(
                    ngx_rl_sync_task_new(sync->limiter, sync->log),
                    sync, NGX_RL_JOB_COMPUTES,
                    ngx_rl_sync_compile_work,
                    ngx_rl_sync_compile_done);

    if (sync->job == NULL) {
        (void) ngx_rl_sync_failed(&sync->compiling);
    }
}


static void
ngx_rl_sync_look_handler(ngx_event_t *ev)
{
    ngx_rl_sync_t  *sync;

    sync = ev->data;

    ngx_add_timer(ev, NGX_RL_SYNC_LOOK_MS);

    ngx_rl_sync_leader_look(sync);
    ngx_rl_sync_look(sync);
}


ngx_int_t
ngx_rl_sync_begin(ngx_rl_limiter_t *limiter, ngx_cycle_t *cycle)
{
    ngx_rl_sync_t       *sync;
    ngx_rl_sync_task_t  *task;

    if (limiter->store == NULL) {
        return NGX_OK;
    }

    sync = ngx_calloc(sizeof(ngx_rl_sync_t), cycle->log);
    if (sync == NULL) {
        return NGX_ERROR;
    }

    sync->limiter = limiter;
    sync->log = cycle->log;
    ngx_queue_init(&sync->calls);

    limiter->sync = sync;

    ngx_rl_sync_timer(sync, &sync->look, ngx_rl_sync_look_handler);
    ngx_rl_sync_timer(sync, &sync->slice, ngx_rl_sync_slice_handler);
    ngx_rl_sync_timer(sync, &sync->poll, ngx_rl_sync_poll_handler);

    /* before it serves: in place, to the end */

    if (ngx_rl_store_generation(limiter->store) != 0) {
        task = ngx_rl_sync_task_new(limiter, sync->log);
        if (task == NULL) {
            return NGX_ERROR;
        }

        task->sync = sync;
        ngx_rl_sync_compile_work(task);
        ngx_rl_sync_compiled(task);

        while (sync->next
               && ngx_rl_sync_finish(sync, NGX_RL_SYNC_WHOLE_MS)
                  == NGX_AGAIN)
        {
            /* void */
        }
    }

    /* the first look is in the event loop */

    ngx_add_timer(&sync->look, 1);

    return NGX_OK;
}


void
ngx_rl_sync_test(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_rl_sync_task_t  *task;

    if (limiter->store == NULL
        || ngx_rl_store_generation(limiter->store) == 0)
    {
        return;
    }

    task = ngx_rl_sync_task_new(limiter, log);
    if (task == NULL) {
        return;
    }

    ngx_rl_sync_compile_work(task);

    if (task->policy == NULL) {
        ngx_rl_sync_refused(task);

    } else {
        while (ngx_rl_policy_finish(task->policy,
                                    NGX_RL_SYNC_WHOLE_MS, NULL)
               == NGX_AGAIN)
        {
            /* void */
        }

        ngx_rl_sync_warned(task, NGX_LOG_WARN);
    }

    ngx_destroy_pool(task->pool);
}


void
ngx_rl_sync_end(ngx_rl_limiter_t *limiter)
{
    ngx_rl_sync_t  *sync;

    sync = limiter->sync;

    if (sync == NULL) {
        return;
    }

    ngx_rl_sync_calls_end(sync);
    ngx_rl_sync_leader_end(sync);

    if (sync->look.timer_set) {
        ngx_del_timer(&sync->look);
    }

    if (sync->slice.timer_set) {
        ngx_del_timer(&sync->slice);
    }

    if (sync->job) {
        ngx_rl_job_cancel(sync->job);
    }

    if (sync->next) {
        ngx_destroy_pool(sync->next->pool);
    }

    /* its reference; leases have ended by now, which have others */

    if (limiter->policy != limiter->base) {
        ngx_rl_policy_swap(limiter, limiter->base);
    }

    limiter->sync = NULL;
    ngx_free(sync);
}


void
ngx_rl_sync_stat(ngx_rl_limiter_t *limiter, ngx_rl_sync_stat_t *stat)
{
    ngx_rl_sync_t   *sync;
    ngx_rl_store_t  *store;

    ngx_memzero(stat, sizeof(ngx_rl_sync_stat_t));

    store = limiter->store;

    if (store == NULL) {
        return;
    }

    stat->generation = ngx_rl_store_generation(store);
    ngx_rl_store_version(store, &stat->version, &stat->id);

    stat->refused = store->refused;
    stat->asked_ms = store->asked_ms;
    stat->reachable = (limiter->redis == NULL || store->reachable);
    stat->saved = (limiter->state.len == 0
                   || store->written >= stat->generation);
    stat->error = (ngx_err_t) store->error;

    sync = limiter->sync;

    if (sync) {
        stat->compiled = sync->version;
        stat->swapped_ms = sync->swapped_ms;
        stat->warnings = sync->warnings;
    }
}


ngx_int_t
ngx_rl_sync_current(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_rl_record_t *record)
{
    ngx_int_t              rc;
    ngx_rl_store_entry_t   entry;

    ngx_memzero(record, sizeof(ngx_rl_record_t));

    if (limiter->store == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_rl_store_read(limiter->store, pool, &entry);
    if (rc != NGX_OK) {
        return rc;
    }

    /* what stands in the store was checked whole before */

    return (ngx_rl_record_head(&entry.text, pool, record) == NULL
            && record->document.data)
           ? NGX_OK : NGX_ERROR;
}

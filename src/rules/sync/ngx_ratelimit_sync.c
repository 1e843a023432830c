/*
 * A worker follows its zone's document: it looks at the store, compiles what is
 * new there in a job, finishes it in slices, and swaps.
 */

#include "ngx_ratelimit_sync_int.h"

#define NGX_RATELIMIT_SYNC_LOOK_MS    100    /* at the store's generation */
#define NGX_RATELIMIT_SYNC_SLICE_MS   5      /* of what only the loop may do */
#define NGX_RATELIMIT_SYNC_WHOLE_MS   1000   /* before it serves */

static ngx_int_t ngx_ratelimit_sync_channel(ngx_ratelimit_sync_t *sync,
    ngx_pool_t *pool);
static void ngx_ratelimit_sync_look_handler(ngx_event_t *ev);
static void ngx_ratelimit_sync_look(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_compile_done(void *data,
    ngx_uint_t cancelled);
static void ngx_ratelimit_sync_compiled(
    ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_slice_handler(ngx_event_t *ev);
static ngx_int_t ngx_ratelimit_sync_finish(ngx_ratelimit_sync_t *sync,
    ngx_msec_t budget_ms);
static void ngx_ratelimit_sync_swap(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_no_memory(ngx_ratelimit_sync_t *sync);


ngx_int_t
ngx_ratelimit_sync_begin(ngx_ratelimit_limiter_t *limiter,
    ngx_cycle_t *cycle)
{
    ngx_ratelimit_sync_t          *sync;
    ngx_ratelimit_sync_compile_t  *compile;

    if (limiter->store == NULL) {
        return NGX_OK;
    }

    sync = ngx_calloc(sizeof(ngx_ratelimit_sync_t), cycle->log);
    if (sync == NULL) {
        return NGX_ERROR;
    }

    sync->limiter = limiter;
    sync->log = cycle->log;
    ngx_queue_init(&sync->calls);

    limiter->sync = sync;

    if (limiter->redis) {
        sync->control = ngx_ratelimit_redis_control_new(limiter->redis,
                                                        cycle);
        if (sync->control == NULL
            || ngx_ratelimit_sync_channel(sync, cycle->pool) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    sync->look.data = sync;
    sync->look.log = sync->log;
    sync->look.handler = ngx_ratelimit_sync_look_handler;
    sync->look.cancelable = 1;

    sync->slice.data = sync;
    sync->slice.log = sync->log;
    sync->slice.handler = ngx_ratelimit_sync_slice_handler;
    sync->slice.cancelable = 1;

    /* before it serves: in place, to the end */

    if (ngx_ratelimit_store_generation(limiter->store) != 0) {
        compile = ngx_ratelimit_sync_compile_new(sync);
        if (compile == NULL) {
            return NGX_ERROR;
        }

        ngx_ratelimit_sync_compile_work(compile);
        ngx_ratelimit_sync_compiled(compile);

        while (sync->next
               && ngx_ratelimit_sync_finish(sync, NGX_RATELIMIT_SYNC_WHOLE_MS)
                  == NGX_AGAIN)
        {
            /* void */
        }
    }

    ngx_ratelimit_sync_leader_begin(sync);

    /* the first look is in the event loop */

    ngx_add_timer(&sync->look, 1);

    return NGX_OK;
}


static ngx_int_t
ngx_ratelimit_sync_channel(ngx_ratelimit_sync_t *sync, ngx_pool_t *pool)
{
    u_char           *p;
    const ngx_str_t  *prefix, *zone;

    prefix = &sync->limiter->redis->prefix;
    zone = &sync->limiter->zone.name;

    p = ngx_pnalloc(pool, prefix->len + sizeof(":rules:") + zone->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    sync->channel.data = p;
    sync->channel.len = ngx_sprintf(p, "%V:rules:%V", prefix, zone) - p;

    return NGX_OK;
}


void
ngx_ratelimit_sync_test(ngx_ratelimit_limiter_t *limiter, ngx_log_t *log)
{
    ngx_ratelimit_sync_t           sync;
    ngx_ratelimit_sync_compile_t  *compile;

    if (limiter->store == NULL
        || ngx_ratelimit_store_generation(limiter->store) == 0)
    {
        return;
    }

    ngx_memzero(&sync, sizeof(ngx_ratelimit_sync_t));
    sync.limiter = limiter;
    sync.log = log;

    compile = ngx_ratelimit_sync_compile_new(&sync);
    if (compile == NULL) {
        return;
    }

    ngx_ratelimit_sync_compile_work(compile);

    if (compile->policy == NULL) {
        ngx_ratelimit_sync_refused(compile);

    } else {
        while (ngx_ratelimit_policy_finish(compile->policy,
                                           NGX_RATELIMIT_SYNC_WHOLE_MS, NULL)
               == NGX_AGAIN)
        {
            /* void */
        }

        ngx_ratelimit_sync_warned(compile, compile->policy, NGX_LOG_WARN);
    }

    ngx_ratelimit_sync_compile_free(compile);
}


void
ngx_ratelimit_sync_end(ngx_ratelimit_limiter_t *limiter)
{
    ngx_ratelimit_sync_t  *sync;

    sync = limiter->sync;

    if (sync == NULL) {
        return;
    }

    ngx_ratelimit_sync_calls_end(sync);
    ngx_ratelimit_sync_leader_end(sync);

    if (sync->control) {
        ngx_ratelimit_redis_control_free(sync->control);
    }

    if (sync->look.timer_set) {
        ngx_del_timer(&sync->look);
    }

    if (sync->slice.timer_set) {
        ngx_del_timer(&sync->slice);
    }

    if (sync->job) {
        ngx_ratelimit_job_cancel(sync->job);
    }

    if (sync->next) {
        ngx_ratelimit_sync_compile_free(sync->next);
    }

    /* its reference; leases have ended by now, which have others */

    if (limiter->policy != limiter->base) {
        ngx_ratelimit_policy_swap(limiter, limiter->base);
    }

    limiter->sync = NULL;
    ngx_free(sync);
}


static void
ngx_ratelimit_sync_look_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_t  *sync;

    sync = ev->data;

    ngx_add_timer(ev, NGX_RATELIMIT_SYNC_LOOK_MS);

    ngx_ratelimit_sync_leader_look(sync);
    ngx_ratelimit_sync_look(sync);
}


/* One at a time: then the worker looks whether the store has changed again. */
static void
ngx_ratelimit_sync_look(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_sync_compile_t  *compile;

    if (sync->job || sync->next
        || ngx_ratelimit_store_generation(sync->limiter->store)
           == sync->generation
        || !ngx_ratelimit_sync_may_retry(&sync->compiling))
    {
        return;
    }

    compile = ngx_ratelimit_sync_compile_new(sync);

    if (compile) {
        sync->job = ngx_ratelimit_job_start(ngx_ratelimit_sync_compile_work,
                                            ngx_ratelimit_sync_compile_done,
                                            compile, sync->log);
        if (sync->job) {
            return;
        }

        ngx_ratelimit_sync_compile_free(compile);
    }

    (void) ngx_ratelimit_sync_failed(&sync->compiling);
}


static void
ngx_ratelimit_sync_compile_done(void *data, ngx_uint_t cancelled)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    ngx_ratelimit_sync_t  *sync;

    if (cancelled) {
        ngx_ratelimit_sync_compile_free(compile);
        return;
    }

    sync = compile->sync;
    sync->job = NULL;

    ngx_ratelimit_sync_compiled(compile);

    if (sync->next) {
        ngx_ratelimit_sync_slice_handler(&sync->slice);

    } else {
        ngx_ratelimit_sync_look(sync);
    }
}


/* A document that compiles is finished next; else the worker keeps its own. */
static void
ngx_ratelimit_sync_compiled(ngx_ratelimit_sync_compile_t *compile)
{
    ngx_ratelimit_sync_t  *sync;

    sync = compile->sync;

    if (compile->failed) {
        ngx_ratelimit_sync_no_memory(sync);
        ngx_ratelimit_sync_compile_free(compile);
        return;
    }

    sync->compiling.wait = 0;

    if (compile->policy) {
        sync->next = compile;
        return;
    }

    if (!compile->none) {
        sync->generation = compile->generation;

        /* each worker finds it out by itself: one of them says it */

        if (ngx_worker == 0) {
            ngx_ratelimit_sync_refused(compile);
        }
    }

    ngx_ratelimit_sync_compile_free(compile);
}


static void
ngx_ratelimit_sync_slice_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_t  *sync;

    sync = ev->data;

    if (ngx_ratelimit_sync_finish(sync, NGX_RATELIMIT_SYNC_SLICE_MS)
        == NGX_AGAIN)
    {
        /* others first: a posted event would run in the same turn */

        ngx_add_timer(ev, 1);
        return;
    }

    ngx_ratelimit_sync_look(sync);
}


/* NGX_AGAIN: once more. */
static ngx_int_t
ngx_ratelimit_sync_finish(ngx_ratelimit_sync_t *sync, ngx_msec_t budget_ms)
{
    switch (ngx_ratelimit_policy_finish(sync->next->policy, budget_ms, NULL))
    {
    case NGX_OK:
        ngx_ratelimit_sync_swap(sync);
        return NGX_OK;

    case NGX_AGAIN:
        return NGX_AGAIN;

    default:
        ngx_ratelimit_sync_no_memory(sync);
        ngx_ratelimit_sync_compile_free(sync->next);
        sync->next = NULL;
        return NGX_ERROR;
    }
}


static void
ngx_ratelimit_sync_swap(ngx_ratelimit_sync_t *sync)
{
    uint64_t                       refused;
    ngx_ratelimit_policy_t        *policy;
    ngx_ratelimit_sync_compile_t  *compile;

    compile = sync->next;
    sync->next = NULL;

    policy = compile->policy;
    compile->policy = NULL;

    sync->generation = compile->generation;
    sync->version = policy->version;
    sync->swapped_ms = ngx_ratelimit_sync_now();
    sync->warnings = compile->warnings.n;

    refused = sync->limiter->store->refused;

    if (refused && refused <= sync->version) {
        sync->limiter->store->refused = 0;
    }

    ngx_ratelimit_policy_swap(sync->limiter, policy);

    ngx_log_error(NGX_LOG_INFO, sync->log, 0,
                  "ratelimit zone \"%V\" goes by version %uL of its rules",
                  &sync->limiter->zone.name, sync->version);

    /* each worker has the same: one of them says it */

    if (ngx_worker == 0) {
        ngx_ratelimit_sync_warned(compile, policy, NGX_LOG_ERR);
    }

    ngx_ratelimit_sync_compile_free(compile);
}


static void
ngx_ratelimit_sync_no_memory(ngx_ratelimit_sync_t *sync)
{
    if (ngx_ratelimit_sync_failed(&sync->compiling)) {
        ngx_log_error(NGX_LOG_ERR, sync->log, 0,
                      "ratelimit zone \"%V\": out of memory, the rules "
                      "before go on", &sync->limiter->zone.name);
    }
}


void
ngx_ratelimit_sync_stat(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_stat_t *stat)
{
    ngx_ratelimit_sync_t   *sync;
    ngx_ratelimit_store_t  *store;

    ngx_memzero(stat, sizeof(ngx_ratelimit_sync_stat_t));

    store = limiter->store;

    if (store == NULL) {
        return;
    }

    stat->generation = ngx_ratelimit_store_generation(store);
    ngx_ratelimit_store_version(store, &stat->version, &stat->id);

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
ngx_ratelimit_sync_current(ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool, ngx_ratelimit_record_t *record)
{
    ngx_int_t                     rc;
    uint64_t                      generation;
    ngx_str_t                     text;
    ngx_ratelimit_store_entry_t   entry;

    ngx_memzero(record, sizeof(ngx_ratelimit_record_t));

    if (limiter->store == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_ratelimit_store_read(limiter->store, 0, &entry, &generation,
                                  pool->log);
    if (rc != NGX_OK) {
        return rc;
    }

    text.len = entry.text.len;
    text.data = ngx_pstrdup(pool, &entry.text);
    ngx_free(entry.text.data);

    /* what stands in the store was checked whole before */

    if (text.data == NULL
        || ngx_ratelimit_record_head(&text, pool, record) != NULL
        || record->document.data == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}

/*
 * A worker follows its zone's document: it looks at the store, compiles what is
 * new there in a job, finishes it in slices, and swaps.
 */

#include "ngx_ratelimit_sync_int.h"

#define NGX_RATELIMIT_SYNC_QUOTE     160    /* bytes of a problem in the log */
#define NGX_RATELIMIT_SYNC_TEXT      (2 * NGX_RATELIMIT_SYNC_QUOTE * 6 + 16)
#define NGX_RATELIMIT_SYNC_RETRY_MS  1000   /* after a failure, doubling to */
#define NGX_RATELIMIT_SYNC_MAX_MS    30000

static void ngx_ratelimit_sync_look_handler(ngx_event_t *ev);
static void ngx_ratelimit_sync_look(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_compile_work(void *data);
static void ngx_ratelimit_sync_compile_done(void *data,
    ngx_uint_t cancelled);
static void ngx_ratelimit_sync_compiled(
    ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_slice_handler(ngx_event_t *ev);
static ngx_int_t ngx_ratelimit_sync_finish(ngx_ratelimit_sync_t *sync,
    ngx_msec_t budget_ms);
static void ngx_ratelimit_sync_swap(ngx_ratelimit_sync_t *sync);
static void ngx_ratelimit_sync_warned(
    ngx_ratelimit_sync_compile_t *compile);
static void ngx_ratelimit_sync_skipped(
    const ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_policy_t *policy, ngx_uint_t severity);
static ngx_str_t ngx_ratelimit_sync_quote(
    const ngx_ratelimit_problems_t *problems, ngx_uint_t i,
    u_char text[NGX_RATELIMIT_SYNC_TEXT]);


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
        if (sync->control == NULL) {
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
               && ngx_ratelimit_sync_finish(sync, NGX_RATELIMIT_SYNC_RETRY_MS)
                  == NGX_AGAIN)
        {
            /* void */
        }
    }

    ngx_ratelimit_sync_leader_begin(sync);

    /* what it waits for then begins when the worker is at work */

    ngx_add_timer(&sync->look, 1);

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
                                           NGX_RATELIMIT_SYNC_RETRY_MS, NULL)
               == NGX_AGAIN)
        {
            /* void */
        }

        ngx_ratelimit_sync_skipped(compile, compile->policy, NGX_LOG_WARN);
        ngx_ratelimit_sync_warned(compile);
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


uint64_t
ngx_ratelimit_sync_now(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


ngx_uint_t
ngx_ratelimit_sync_failed(ngx_ratelimit_sync_retry_t *retry)
{
    retry->wait = retry->wait
                  ? ngx_min(2 * retry->wait, NGX_RATELIMIT_SYNC_MAX_MS)
                  : NGX_RATELIMIT_SYNC_RETRY_MS;

    retry->after = ngx_current_msec + retry->wait;

    if (retry->logged
        && ngx_current_msec - retry->logged < NGX_RATELIMIT_SYNC_REMIND_MS)
    {
        return 0;
    }

    retry->logged = ngx_current_msec ? ngx_current_msec : 1;

    return 1;
}


static void
ngx_ratelimit_sync_look_handler(ngx_event_t *ev)
{
    ngx_ratelimit_sync_t  *sync;

    sync = ev->data;

    ngx_add_timer(ev, NGX_RATELIMIT_SYNC_LOOK_MS);

    ngx_ratelimit_sync_elect(sync);
    ngx_ratelimit_sync_wake(sync);
}


void
ngx_ratelimit_sync_wake(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_sync_look(sync);
    ngx_ratelimit_sync_file_look(sync);
    ngx_ratelimit_sync_save(sync);
}


/* One at a time: what has changed meanwhile is looked at when it is done. */
static void
ngx_ratelimit_sync_look(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_sync_compile_t  *compile;

    if (sync->job || sync->next
        || ngx_ratelimit_store_generation(sync->limiter->store)
           == sync->generation)
    {
        return;
    }

    if (sync->compiling.wait
        && (ngx_msec_int_t) (ngx_current_msec - sync->compiling.after) < 0)
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


ngx_ratelimit_sync_compile_t *
ngx_ratelimit_sync_compile_new(ngx_ratelimit_sync_t *sync)
{
    ngx_pool_t                    *pool;
    ngx_ratelimit_sync_compile_t  *compile;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, sync->log);
    if (pool == NULL) {
        return NULL;
    }

    compile = ngx_pcalloc(pool, sizeof(ngx_ratelimit_sync_compile_t));

    if (compile == NULL
        || ngx_ratelimit_problems_init(&compile->problems, pool) != NGX_OK
        || ngx_ratelimit_problems_init(&compile->warnings, pool) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    compile->sync = sync;
    compile->limiter = sync->limiter;
    compile->log = sync->log;
    compile->pool = pool;

    return compile;
}


void
ngx_ratelimit_sync_compile_free(ngx_ratelimit_sync_compile_t *compile)
{
    if (compile->policy) {
        ngx_ratelimit_policy_release(compile->policy);
    }

    if (compile->entry.text.data) {
        ngx_free(compile->entry.text.data);
    }

    if (compile->back.text.data) {
        ngx_free(compile->back.text.data);
    }

    ngx_destroy_pool(compile->pool);
}


/* In a thread. */
static void
ngx_ratelimit_sync_compile_work(void *data)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    switch (ngx_ratelimit_store_read(compile->limiter->store, 0,
                                     &compile->entry, &compile->generation,
                                     compile->log))
    {
    case NGX_OK:
        ngx_ratelimit_sync_compile_text(compile);
        return;

    case NGX_DECLINED:
        compile->none = 1;
        return;

    default:
        compile->entry.text.data = NULL;
        compile->failed = 1;
    }
}


void
ngx_ratelimit_sync_compile_text(ngx_ratelimit_sync_compile_t *compile)
{
    compile->why = ngx_ratelimit_record_read(&compile->entry.text,
                                             compile->pool, &compile->record);
    if (compile->why) {
        compile->failed = (compile->why == ngx_ratelimit_record_no_memory);
        return;
    }

    if (compile->record.version != compile->entry.version
        || compile->record.id != compile->entry.id)
    {
        compile->why = "its head names another version";
        return;
    }

    compile->policy = ngx_ratelimit_document_compile(compile->limiter,
                                                   &compile->record.document,
                                                   &compile->problems,
                                                   &compile->warnings,
                                                   compile->log);
    if (compile->policy) {
        compile->policy->version = compile->entry.version;
        compile->policy->id = compile->entry.id;
        return;
    }

    /* none that can be said: there was no memory for it either */

    compile->failed = (compile->problems.list.nelts == 0);
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


void
ngx_ratelimit_sync_take(ngx_ratelimit_sync_compile_t *compile)
{
    uint64_t               version, id;
    ngx_ratelimit_sync_t  *sync;

    sync = compile->sync;

    ngx_ratelimit_store_version(sync->limiter->store, &version, &id);

    if (sync->job || sync->next || version != compile->entry.version
        || id != compile->entry.id)
    {
        ngx_ratelimit_sync_compile_free(compile);

    } else {
        sync->next = compile;
        ngx_ratelimit_sync_slice_handler(&sync->slice);
    }

    ngx_ratelimit_sync_wake(sync);
}


/* What compiles is the next one, to be finished; else all stays as it is. */
static void
ngx_ratelimit_sync_compiled(ngx_ratelimit_sync_compile_t *compile)
{
    ngx_ratelimit_sync_t  *sync;

    sync = compile->sync;

    if (compile->failed) {
        if (ngx_ratelimit_sync_failed(&sync->compiling)) {
            ngx_log_error(NGX_LOG_ERR, sync->log, 0,
                          "ratelimit zone \"%V\": out of memory, the rules "
                          "before go on", &sync->limiter->zone.name);
        }

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
        if (ngx_ratelimit_sync_failed(&sync->compiling)) {
            ngx_log_error(NGX_LOG_ERR, sync->log, 0,
                          "ratelimit zone \"%V\": out of memory, the rules "
                          "before go on", &sync->limiter->zone.name);
        }

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
        ngx_ratelimit_sync_skipped(compile, policy, NGX_LOG_ERR);
        ngx_ratelimit_sync_warned(compile);
    }

    ngx_ratelimit_sync_compile_free(compile);
}


void
ngx_ratelimit_sync_refused(ngx_ratelimit_sync_compile_t *compile)
{
    u_char     text[NGX_RATELIMIT_SYNC_TEXT];
    ngx_str_t  why;

    compile->limiter->store->refused = compile->entry.version;

    if (compile->why) {
        why.data = (u_char *) compile->why;
        why.len = ngx_strlen(compile->why);

    } else {
        why = ngx_ratelimit_sync_quote(&compile->problems, 0, text);
    }

    ngx_log_error(NGX_LOG_ERR, compile->log, 0,
                  "ratelimit zone \"%V\": version %uL of its rules is not "
                  "used: %V", &compile->limiter->zone.name,
                  compile->entry.version, &why);
}


static void
ngx_ratelimit_sync_warned(ngx_ratelimit_sync_compile_t *compile)
{
    u_char     text[NGX_RATELIMIT_SYNC_TEXT];
    ngx_str_t  what;

    if (compile->warnings.n == 0) {
        return;
    }

    what = ngx_ratelimit_sync_quote(&compile->warnings, 0, text);

    ngx_log_error(NGX_LOG_WARN, compile->log, 0,
                  "ratelimit zone \"%V\": version %uL of its rules has "
                  "%ui warnings, the first: %V", &compile->limiter->zone.name,
                  compile->entry.version, compile->warnings.n, &what);
}


static void
ngx_ratelimit_sync_skipped(const ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_policy_t *policy, ngx_uint_t severity)
{
    u_char                          text[NGX_RATELIMIT_SYNC_TEXT];
    ngx_str_t                       why;
    ngx_uint_t                      i;
    const ngx_ratelimit_problem_t  *skipped;

    skipped = policy->skipped.list.elts;

    for (i = 0; i < policy->skipped.list.nelts; i++) {
        why = ngx_ratelimit_sync_quote(&policy->skipped, i, text);

        ngx_log_error(severity, compile->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules: "
                      "\"%V\" is skipped: %V", &compile->limiter->zone.name,
                      compile->entry.version, &skipped[i].id, &why);
    }

    if (policy->skipped.n > i) {
        ngx_log_error(severity, compile->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules: %ui "
                      "more are skipped", &compile->limiter->zone.name,
                      compile->entry.version, policy->skipped.n - i);
    }
}


/*
 * One of a document that anybody may have written: no lines of its own. Where
 * memory was out for it there is none to be told.
 */
static ngx_str_t
ngx_ratelimit_sync_quote(const ngx_ratelimit_problems_t *problems,
    ngx_uint_t i, u_char text[NGX_RATELIMIT_SYNC_TEXT])
{
    u_char                         *p;
    ngx_str_t                       first;
    const ngx_ratelimit_problem_t  *problem;

    p = text;

    if (i < problems->list.nelts) {
        problem = problems->list.elts;
        problem += i;

        p = (u_char *) ngx_escape_json(p, problem->pointer.data,
                                       ngx_min(problem->pointer.len,
                                               NGX_RATELIMIT_SYNC_QUOTE));
        *p++ = ' ';
        p = (u_char *) ngx_escape_json(p, problem->detail.data,
                                       ngx_min(problem->detail.len,
                                               NGX_RATELIMIT_SYNC_QUOTE));
    }

    first.data = text;
    first.len = p - text;

    return first;
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

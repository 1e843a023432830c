/*
 * A worker follows its zone's document: it looks at the store, compiles what is
 * new there in a job, finishes it in slices, and swaps. The log says what is
 * wrong with a record.
 */

#include "ngx_rl_follow_int.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#define NGX_RL_FOLLOW_LOOK_MS    100     /* at the store's generation */
#define NGX_RL_FOLLOW_SLICE_MS   1       /* of what only the loop may do */
#define NGX_RL_FOLLOW_WHOLE_MS   1000    /* before it serves */
#define NGX_RL_FOLLOW_LARGE      262144  /* bytes of a document */
#define NGX_RL_FOLLOW_QUOTE      160     /* bytes of a problem in the log */
#define NGX_RL_FOLLOW_TEXT       (2 * NGX_RL_FOLLOW_QUOTE * 6 + 16)
#define NGX_RL_FOLLOW_RETRY_MS   1000    /* after a failure, doubling to */
#define NGX_RL_FOLLOW_MAX_MS     30000
#define NGX_RL_FOLLOW_REMIND_MS  60000   /* the log repeats itself */

static void ngx_rl_follow_look(ngx_rl_follow_t *follow);


ngx_uint_t
ngx_rl_follow_may_retry(const ngx_rl_follow_retry_t *retry)
{
    return retry->wait == 0
           || (ngx_msec_int_t) (ngx_current_msec - retry->after) >= 0;
}


ngx_uint_t
ngx_rl_follow_failed(ngx_rl_follow_retry_t *retry)
{
    retry->wait = retry->wait
                  ? ngx_min(2 * retry->wait, NGX_RL_FOLLOW_MAX_MS)
                  : NGX_RL_FOLLOW_RETRY_MS;

    retry->after = ngx_current_msec + retry->wait;

    if (retry->logged
        && ngx_current_msec - retry->logged < NGX_RL_FOLLOW_REMIND_MS)
    {
        return 0;
    }

    retry->logged = ngx_current_msec ? ngx_current_msec : 1;

    return 1;
}


static void
ngx_rl_follow_task_cleanup(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    if (task->policy) {
        ngx_rl_policy_release(task->policy);
    }
}


ngx_rl_follow_task_t *
ngx_rl_follow_task_new(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_pool_t            *pool;
    ngx_pool_cleanup_t    *cln;
    ngx_rl_follow_task_t  *task;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, log);
    if (pool == NULL) {
        return NULL;
    }

    task = ngx_pcalloc(pool, sizeof(ngx_rl_follow_task_t));
    cln = ngx_pool_cleanup_add(pool, 0);

    if (task == NULL || cln == NULL
        || ngx_rl_problems_init(&task->problems, pool) != NGX_OK
        || ngx_rl_problems_init(&task->warnings, pool) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    cln->handler = ngx_rl_follow_task_cleanup;
    cln->data = task;

    task->limiter = limiter;
    task->pool = pool;

    return task;
}


ngx_rl_job_t *
ngx_rl_follow_task_start(ngx_rl_follow_task_t *task, ngx_rl_follow_t *follow,
    ngx_rl_job_thread_e thread, ngx_rl_job_pt work, ngx_rl_job_pt done)
{
    ngx_rl_job_t  *job;

    if (task == NULL) {
        return NULL;
    }

    task->follow = follow;
    job = ngx_rl_job_start(task->pool, thread, work, done, task);

    if (job == NULL) {
        ngx_destroy_pool(task->pool);
    }

    return job;
}


ngx_rl_follow_status_e
ngx_rl_follow_compile(ngx_rl_follow_task_t *task)
{
    ngx_rl_record_t  *record;

    record = &task->record;
    task->why = ngx_rl_record_read(&task->entry.text, task->pool, record);

    if (task->why == ngx_rl_record_no_memory) {
        return NGX_RL_FOLLOW_FAILED;
    }

    if (task->why == NULL
        && (record->version != task->entry.version
            || record->id != task->entry.id))
    {
        task->why = "its head names another version";
    }

    if (task->why == NULL && record->text.len != task->entry.text.len) {
        task->why = "something follows it";
    }

    if (task->why) {
        return NGX_RL_FOLLOW_REFUSED;
    }

    task->policy = ngx_rl_document_compile(task->limiter, &record->document,
                                           &task->problems, &task->warnings,
                                           task->pool->log);
    if (task->policy) {
        task->policy->version = task->entry.version;
        task->policy->id = task->entry.id;
        return NGX_RL_FOLLOW_OK;
    }

    /* without memory there is no problem either */

    return task->problems.list.nelts ? NGX_RL_FOLLOW_REFUSED
                                     : NGX_RL_FOLLOW_FAILED;
}


/* A job's work: reads what the store has, and compiles it. */
static void
ngx_rl_follow_compile_work(void *data)
{
    ngx_rl_follow_task_t *task = data;

    task->status = NGX_RL_FOLLOW_FAILED;

    if (ngx_rl_store_read(task->limiter->store, task->pool, &task->entry)
        == NGX_OK)
    {
        task->status = ngx_rl_follow_compile(task);
    }
}


/*
 * A problem of a document that anybody may have written: escaped, so that it
 * stays on its line. It is empty if memory was out for it.
 */
static ngx_str_t
ngx_rl_follow_quote(const ngx_rl_problems_t *problems, ngx_uint_t i,
    u_char text[NGX_RL_FOLLOW_TEXT])
{
    u_char                  *p;
    ngx_str_t                first;
    const ngx_rl_problem_t  *problem;

    p = text;

    if (i < problems->list.nelts) {
        problem = problems->list.elts;
        problem += i;

        p = (u_char *) ngx_escape_json(p, problem->pointer.data,
                                       ngx_min(problem->pointer.len,
                                               NGX_RL_FOLLOW_QUOTE));
        *p++ = ' ';
        p = (u_char *) ngx_escape_json(p, problem->detail.data,
                                       ngx_min(problem->detail.len,
                                               NGX_RL_FOLLOW_QUOTE));
    }

    first = ngx_rl_str(text, p - text);

    return first;
}


void
ngx_rl_follow_refused(ngx_rl_follow_task_t *task)
{
    u_char     text[NGX_RL_FOLLOW_TEXT];
    ngx_str_t  why;

    task->limiter->store->refused = task->entry.version;

    /* such a record is looked at with each poll: it may be sealed yet */

    if (task->why && task->why == task->unsealed
        && !ngx_rl_follow_failed(&task->follow->sealing))
    {
        return;
    }

    if (task->why) {
        why.data = (u_char *) task->why;
        why.len = ngx_strlen(task->why);

    } else {
        why = ngx_rl_follow_quote(&task->problems, 0, text);
    }

    ngx_log_error(NGX_LOG_ERR, task->pool->log, 0,
                  "ratelimit zone \"%V\": version %uL of its rules is not "
                  "used: %V", &task->limiter->zone.name,
                  task->entry.version, &why);
}


/* Logs which rules are skipped, at a severity, and what has no effect. */
static void
ngx_rl_follow_warned(const ngx_rl_follow_task_t *task, ngx_uint_t severity)
{
    u_char                    text[NGX_RL_FOLLOW_TEXT];
    ngx_str_t                 why;
    ngx_uint_t                i;
    const ngx_rl_problem_t   *problems;
    const ngx_rl_problems_t  *skipped;

    skipped = &task->policy->skipped;
    problems = skipped->list.elts;

    for (i = 0; i < skipped->list.nelts; i++) {
        why = ngx_rl_follow_quote(skipped, i, text);

        ngx_log_error(severity, task->pool->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules: "
                      "\"%V\" is skipped: %V", &task->limiter->zone.name,
                      task->entry.version, &problems[i].id, &why);
    }

    if (skipped->n > i) {
        ngx_log_error(severity, task->pool->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules: %ui "
                      "more are skipped", &task->limiter->zone.name,
                      task->entry.version, skipped->n - i);
    }

    if (task->warnings.n) {
        why = ngx_rl_follow_quote(&task->warnings, 0, text);

        ngx_log_error(NGX_LOG_WARN, task->pool->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules has "
                      "%ui warnings, the first: %V",
                      &task->limiter->zone.name, task->entry.version,
                      task->warnings.n, &why);
    }
}


/*
 * Texts of clients are escaped: they stay in their quotes, on one line. They
 * have a pool of their own, because a thread may use that of the call.
 */
void
ngx_rl_follow_log(const ngx_rl_limiter_t *limiter, const ngx_str_t *what,
    const ngx_rl_record_t *record)
{
    size_t            len;
    u_char           *p;
    ngx_str_t         quoted[5];
    ngx_pool_t       *pool;
    ngx_uint_t        i;
    const ngx_str_t  *text[5];

    text[0] = &record->method;
    text[1] = &record->path;
    text[2] = &record->author;
    text[3] = &record->address;
    text[4] = &record->reason;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);

    for (i = 0; i < 5; i++) {
        len = text[i]->len;
        p = pool ? ngx_pnalloc(pool, 6 * len + 1) : NULL;

        if (p == NULL) {
            ngx_str_set(&quoted[i], "?");
            continue;
        }

        quoted[i].data = p;
        quoted[i].len = (u_char *) ngx_escape_json(p, text[i]->data, len) - p;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "ratelimit zone \"%V\": %V: \"%V %V\" by \"%V\" from %V, "
                  "reason \"%V\"",
                  &limiter->zone.name, what, &quoted[0], &quoted[1],
                  &quoted[2], &quoted[3], &quoted[4]);

    if (pool) {
        ngx_destroy_pool(pool);
    }
}


void
ngx_rl_follow_log_version(const ngx_rl_limiter_t *limiter,
    const ngx_rl_record_t *record, const char *fmt)
{
    u_char     buf[64];
    ngx_str_t  what;

    what.data = buf;
    what.len = ngx_snprintf(buf, sizeof(buf), fmt, record->version) - buf;

    ngx_rl_follow_log(limiter, &what, record);
}


static void
ngx_rl_follow_timer(ngx_rl_follow_t *follow, ngx_event_t *ev,
    ngx_event_handler_pt handler)
{
    ev->data = follow;
    ev->log = follow->log;
    ev->handler = handler;
    ev->cancelable = 1;
}


static void
ngx_rl_follow_no_memory(ngx_rl_follow_t *follow)
{
    if (ngx_rl_follow_failed(&follow->compiling)) {
        ngx_log_error(NGX_LOG_ERR, follow->log, 0,
                      "ratelimit zone \"%V\": out of memory, the rules "
                      "before go on", &follow->limiter->zone.name);
    }
}


/* A document that compiles is finished next; else the worker keeps its own. */
static void
ngx_rl_follow_compiled(ngx_rl_follow_task_t *task)
{
    ngx_rl_follow_t  *follow;

    follow = task->follow;

    if (task->status == NGX_RL_FOLLOW_FAILED) {
        ngx_rl_follow_no_memory(follow);
        ngx_destroy_pool(task->pool);
        return;
    }

    follow->compiling.wait = 0;

    if (task->policy) {
        follow->next = task;
        return;
    }

    follow->generation = task->entry.generation;

    /* each worker finds it out by itself: one of them says it */

    if (ngx_worker == 0) {
        ngx_rl_follow_refused(task);
    }

    ngx_destroy_pool(task->pool);
}


/* The task's reference becomes the limiter's. */
static void
ngx_rl_follow_swap(ngx_rl_follow_t *follow)
{
    uint64_t               refused;
    ngx_rl_follow_task_t  *task;

    task = follow->next;

    follow->generation = task->entry.generation;
    follow->version = task->policy->version;
    follow->swapped_ms = ngx_rl_wall_ms();
    follow->warnings = task->warnings.n;

    refused = follow->limiter->store->refused;

    if (refused && refused <= follow->version) {
        follow->limiter->store->refused = 0;
    }

    ngx_log_error(NGX_LOG_INFO, follow->log, 0,
                  "ratelimit zone \"%V\" goes by version %uL of its rules",
                  &follow->limiter->zone.name, follow->version);

    /* each worker has the same: one of them says it */

    if (ngx_worker == 0) {
        ngx_rl_follow_warned(task, NGX_LOG_ERR);
    }

    ngx_rl_policy_swap(follow->limiter, task->policy);
    task->policy = NULL;
}


static void
ngx_rl_follow_trim_work(void *data)
{
#if defined(__GLIBC__)
    (void) malloc_trim(0);
#endif
}


/* NGX_AGAIN: once more. */
static ngx_int_t
ngx_rl_follow_finish(ngx_rl_follow_t *follow, ngx_msec_t budget_ms)
{
    size_t     bytes;
    ngx_int_t  rc;

    bytes = follow->next->entry.text.len;
    rc = ngx_rl_policy_finish(follow->next->policy, budget_ms, NULL);

    if (rc == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    if (rc == NGX_OK) {
        ngx_rl_follow_swap(follow);

    } else {
        ngx_rl_follow_no_memory(follow);
    }

    ngx_destroy_pool(follow->next->pool);
    follow->next = NULL;

    /*
     * malloc() would keep what the document before, and its JSON, had. The
     * thread gives it back: most of it is in the thread's arena, whose lock the
     * loop does not need.
     */

    if (ngx_max(follow->bytes, bytes) > NGX_RL_FOLLOW_LARGE) {
        (void) ngx_rl_follow_task_start(
                   ngx_rl_follow_task_new(follow->limiter, follow->log),
                   follow, NGX_RL_JOB_COMPUTES, ngx_rl_follow_trim_work, NULL);
    }

    follow->bytes = bytes;

    return rc;
}


static void
ngx_rl_follow_slice_handler(ngx_event_t *ev)
{
    ngx_rl_follow_t  *follow;

    follow = ev->data;

    if (ngx_rl_follow_finish(follow, NGX_RL_FOLLOW_SLICE_MS) == NGX_AGAIN) {
        /* others first: a posted event would run in the same turn */

        ngx_add_timer(ev, 1);
        return;
    }

    ngx_rl_follow_look(follow);
}


static void
ngx_rl_follow_compile_done(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    ngx_rl_follow_t  *follow;

    follow = task->follow;
    follow->job = NULL;

    ngx_rl_follow_compiled(task);

    if (follow->next) {
        ngx_rl_follow_slice_handler(&follow->slice);

    } else {
        ngx_rl_follow_look(follow);
    }
}


/* One at a time: then the worker looks whether the store has changed again. */
static void
ngx_rl_follow_look(ngx_rl_follow_t *follow)
{
    if (follow->job || follow->next
        || ngx_rl_store_generation(follow->limiter->store)
           == follow->generation
        || !ngx_rl_follow_may_retry(&follow->compiling))
    {
        return;
    }

    follow->job = ngx_rl_follow_task_start(
                    ngx_rl_follow_task_new(follow->limiter, follow->log),
                    follow, NGX_RL_JOB_COMPUTES,
                    ngx_rl_follow_compile_work,
                    ngx_rl_follow_compile_done);

    if (follow->job == NULL) {
        (void) ngx_rl_follow_failed(&follow->compiling);
    }
}


static void
ngx_rl_follow_look_handler(ngx_event_t *ev)
{
    ngx_rl_follow_t  *follow;

    follow = ev->data;

    ngx_add_timer(ev, NGX_RL_FOLLOW_LOOK_MS);

    ngx_rl_follow_leader_look(follow);
    ngx_rl_follow_look(follow);
}


/* With its names in Redis behind it; no channel is in a hash slot. */
static ngx_rl_follow_t *
ngx_rl_follow_new(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    size_t                    size;
    u_char                   *p;
    ngx_str_t                *prefix;
    ngx_rl_follow_t          *follow;
    ngx_rl_redis_listener_t  *listener;

    prefix = limiter->redis ? &limiter->redis->prefix : &limiter->zone.name;

    size = 2 * (prefix->len + limiter->zone.name.len)
           + sizeof(":rules::{rules:}:history");

    follow = ngx_calloc(sizeof(ngx_rl_follow_t) + size, log);
    if (follow == NULL) {
        return NULL;
    }

    p = (u_char *) &follow[1];
    listener = &follow->listener;

    listener->channel.data = p;
    p = ngx_sprintf(p, "%V:rules:%V", prefix, &limiter->zone.name);
    listener->channel.len = p - listener->channel.data;

    listener->key.data = p;
    follow->history.data = p;
    p = ngx_sprintf(p, "%V:{rules:%V}", prefix, &limiter->zone.name);
    listener->key.len = p - listener->key.data;

    p = ngx_cpymem(p, ":history", sizeof(":history") - 1);
    follow->history.len = p - follow->history.data;

    return follow;
}


ngx_int_t
ngx_rl_follow_begin(ngx_rl_limiter_t *limiter, ngx_cycle_t *cycle)
{
    ngx_rl_follow_t       *follow;
    ngx_rl_follow_task_t  *task;

    if (limiter->store == NULL) {
        return NGX_OK;
    }

    follow = ngx_rl_follow_new(limiter, cycle->log);
    if (follow == NULL) {
        return NGX_ERROR;
    }

    follow->limiter = limiter;
    follow->log = cycle->log;
    ngx_queue_init(&follow->calls);

    limiter->follow = follow;

    ngx_rl_follow_timer(follow, &follow->look, ngx_rl_follow_look_handler);
    ngx_rl_follow_timer(follow, &follow->slice, ngx_rl_follow_slice_handler);
    ngx_rl_follow_timer(follow, &follow->poll, ngx_rl_follow_poll);

    /* before it serves: in place, to the end */

    if (ngx_rl_store_generation(limiter->store) != 0) {
        task = ngx_rl_follow_task_new(limiter, follow->log);
        if (task == NULL) {
            return NGX_ERROR;
        }

        task->follow = follow;
        ngx_rl_follow_compile_work(task);
        ngx_rl_follow_compiled(task);

        while (follow->next
               && ngx_rl_follow_finish(follow, NGX_RL_FOLLOW_WHOLE_MS)
                  == NGX_AGAIN)
        {
            /* void */
        }
    }

    /* the first look is in the event loop */

    ngx_add_timer(&follow->look, 1);

    return NGX_OK;
}


void
ngx_rl_follow_test(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_rl_follow_task_t  *task;

    if (limiter->store == NULL
        || ngx_rl_store_generation(limiter->store) == 0)
    {
        return;
    }

    task = ngx_rl_follow_task_new(limiter, log);
    if (task == NULL) {
        return;
    }

    ngx_rl_follow_compile_work(task);

    if (task->policy == NULL) {
        ngx_rl_follow_refused(task);

    } else {
        while (ngx_rl_policy_finish(task->policy,
                                    NGX_RL_FOLLOW_WHOLE_MS, NULL)
               == NGX_AGAIN)
        {
            /* void */
        }

        ngx_rl_follow_warned(task, NGX_LOG_WARN);
    }

    ngx_destroy_pool(task->pool);
}


void
ngx_rl_follow_end(ngx_rl_limiter_t *limiter)
{
    ngx_rl_follow_t  *follow;

    follow = limiter->follow;

    if (follow == NULL) {
        return;
    }

    ngx_rl_follow_calls_end(follow);
    ngx_rl_follow_leader_end(follow);
    ngx_rl_follow_tell_end(follow);

    if (follow->look.timer_set) {
        ngx_del_timer(&follow->look);
    }

    if (follow->slice.timer_set) {
        ngx_del_timer(&follow->slice);
    }

    if (follow->job) {
        ngx_rl_job_cancel(follow->job);
    }

    if (follow->next) {
        ngx_destroy_pool(follow->next->pool);
    }

    /* its reference; leases have ended by now, which have others */

    if (limiter->policy != limiter->base) {
        ngx_rl_policy_swap(limiter, limiter->base);
    }

    limiter->follow = NULL;
    ngx_free(follow);
}


void
ngx_rl_follow_stat(ngx_rl_limiter_t *limiter, ngx_rl_follow_stat_t *stat)
{
    ngx_rl_follow_t  *follow;
    ngx_rl_store_t   *store;

    ngx_memzero(stat, sizeof(ngx_rl_follow_stat_t));

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

    follow = limiter->follow;

    if (follow) {
        stat->compiled = follow->version;
        stat->swapped_ms = follow->swapped_ms;
        stat->warnings = follow->warnings;
    }
}


ngx_int_t
ngx_rl_follow_current(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
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

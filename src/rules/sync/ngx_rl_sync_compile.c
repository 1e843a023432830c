/*
 * Tasks of jobs: a record is compiled, and the log says what is wrong with it.
 */

#include "ngx_rl_sync_int.h"

#define NGX_RL_SYNC_QUOTE      160    /* bytes of a problem in the log */
#define NGX_RL_SYNC_TEXT       (2 * NGX_RL_SYNC_QUOTE * 6 + 16)
#define NGX_RL_SYNC_RETRY_MS   1000   /* after a failure, doubling to */
#define NGX_RL_SYNC_MAX_MS     30000
#define NGX_RL_SYNC_REMIND_MS  60000  /* the log repeats itself */


uint64_t
ngx_rl_sync_now(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


ngx_uint_t
ngx_rl_sync_may_retry(const ngx_rl_sync_retry_t *retry)
{
    return retry->wait == 0
           || (ngx_msec_int_t) (ngx_current_msec - retry->after) >= 0;
}


ngx_uint_t
ngx_rl_sync_failed(ngx_rl_sync_retry_t *retry)
{
    retry->wait = retry->wait
                  ? ngx_min(2 * retry->wait, NGX_RL_SYNC_MAX_MS)
                  : NGX_RL_SYNC_RETRY_MS;

    retry->after = ngx_current_msec + retry->wait;

    if (retry->logged
        && ngx_current_msec - retry->logged < NGX_RL_SYNC_REMIND_MS)
    {
        return 0;
    }

    retry->logged = ngx_current_msec ? ngx_current_msec : 1;

    return 1;
}


static void
ngx_rl_sync_task_cleanup(void *data)
{
    ngx_rl_sync_task_t *task = data;

    if (task->policy) {
        ngx_rl_policy_release(task->policy);
    }
}


ngx_rl_sync_task_t *
ngx_rl_sync_task_new(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_pool_t          *pool;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_sync_task_t  *task;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, log);
    if (pool == NULL) {
        return NULL;
    }

    task = ngx_pcalloc(pool, sizeof(ngx_rl_sync_task_t));
    cln = ngx_pool_cleanup_add(pool, 0);

    if (task == NULL || cln == NULL
        || ngx_rl_problems_init(&task->problems, pool) != NGX_OK
        || ngx_rl_problems_init(&task->warnings, pool) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    cln->handler = ngx_rl_sync_task_cleanup;
    cln->data = task;

    task->limiter = limiter;
    task->pool = pool;

    return task;
}


ngx_rl_job_t *
ngx_rl_sync_task_start(ngx_rl_sync_task_t *task, ngx_rl_sync_t *sync,
    ngx_rl_job_thread_e thread, ngx_rl_job_pt work, ngx_rl_job_pt done)
{
    ngx_rl_job_t  *job;

    if (task == NULL) {
        return NULL;
    }

    task->sync = sync;
    job = ngx_rl_job_start(task->pool, thread, work, done, task);

    if (job == NULL) {
        ngx_destroy_pool(task->pool);
    }

    return job;
}


ngx_int_t
ngx_rl_sync_compile(ngx_rl_sync_task_t *task)
{
    ngx_rl_record_t  *record;

    record = &task->record;
    task->why = ngx_rl_record_read(&task->entry.text, task->pool, record);

    if (task->why == ngx_rl_record_no_memory) {
        return NGX_ERROR;
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
        return NGX_DECLINED;
    }

    task->policy = ngx_rl_document_compile(task->limiter, &record->document,
                                           &task->problems, &task->warnings,
                                           task->pool->log);
    if (task->policy) {
        task->policy->version = task->entry.version;
        task->policy->id = task->entry.id;
        return NGX_OK;
    }

    /* without memory there is no problem either */

    return task->problems.list.nelts ? NGX_DECLINED : NGX_ERROR;
}


void
ngx_rl_sync_compile_work(void *data)
{
    ngx_rl_sync_task_t *task = data;

    task->rc = ngx_rl_store_read(task->limiter->store, task->pool,
                                 &task->entry);
    if (task->rc == NGX_OK) {
        task->rc = ngx_rl_sync_compile(task);
    }
}


/*
 * A problem of a document that anybody may have written: escaped, so that it
 * stays on its line. It is empty if memory was out for it.
 */
static ngx_str_t
ngx_rl_sync_quote(const ngx_rl_problems_t *problems, ngx_uint_t i,
    u_char text[NGX_RL_SYNC_TEXT])
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
                                               NGX_RL_SYNC_QUOTE));
        *p++ = ' ';
        p = (u_char *) ngx_escape_json(p, problem->detail.data,
                                       ngx_min(problem->detail.len,
                                               NGX_RL_SYNC_QUOTE));
    }

    first.data = text;
    first.len = p - text;

    return first;
}


void
ngx_rl_sync_refused(ngx_rl_sync_task_t *task)
{
    u_char     text[NGX_RL_SYNC_TEXT];
    ngx_str_t  why;

    task->limiter->store->refused = task->entry.version;

    /* such a record is looked at with each poll: it may be sealed yet */

    if (task->why && task->why == task->unsealed
        && !ngx_rl_sync_failed(&task->sync->sealing))
    {
        return;
    }

    if (task->why) {
        why.data = (u_char *) task->why;
        why.len = ngx_strlen(task->why);

    } else {
        why = ngx_rl_sync_quote(&task->problems, 0, text);
    }

    ngx_log_error(NGX_LOG_ERR, task->pool->log, 0,
                  "ratelimit zone \"%V\": version %uL of its rules is not "
                  "used: %V", &task->limiter->zone.name,
                  task->entry.version, &why);
}


void
ngx_rl_sync_warned(const ngx_rl_sync_task_t *task, ngx_uint_t severity)
{
    u_char                    text[NGX_RL_SYNC_TEXT];
    ngx_str_t                 why;
    ngx_uint_t                i;
    const ngx_rl_problem_t   *problems;
    const ngx_rl_problems_t  *skipped;

    skipped = &task->policy->skipped;
    problems = skipped->list.elts;

    for (i = 0; i < skipped->list.nelts; i++) {
        why = ngx_rl_sync_quote(skipped, i, text);

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
        why = ngx_rl_sync_quote(&task->warnings, 0, text);

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
ngx_rl_sync_log(const ngx_rl_limiter_t *limiter, const ngx_str_t *what,
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

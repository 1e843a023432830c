/*
 * A record is compiled, and the log says what is wrong with it.
 */

#include "ngx_ratelimit_sync_int.h"

#define NGX_RATELIMIT_SYNC_QUOTE      160    /* bytes of a problem in the log */
#define NGX_RATELIMIT_SYNC_TEXT       (2 * NGX_RATELIMIT_SYNC_QUOTE * 6 + 16)
#define NGX_RATELIMIT_SYNC_RETRY_MS   1000   /* after a failure, doubling to */
#define NGX_RATELIMIT_SYNC_MAX_MS     30000
#define NGX_RATELIMIT_SYNC_REMIND_MS  60000  /* the log repeats itself */

static ngx_str_t ngx_ratelimit_sync_quote(
    const ngx_ratelimit_problems_t *problems, ngx_uint_t i,
    u_char text[NGX_RATELIMIT_SYNC_TEXT]);


uint64_t
ngx_ratelimit_sync_now(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


ngx_uint_t
ngx_ratelimit_sync_may_retry(const ngx_ratelimit_sync_retry_t *retry)
{
    return retry->wait == 0
           || (ngx_msec_int_t) (ngx_current_msec - retry->after) >= 0;
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


void
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


void
ngx_ratelimit_sync_warned(const ngx_ratelimit_sync_compile_t *compile,
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

    if (compile->warnings.n) {
        why = ngx_ratelimit_sync_quote(&compile->warnings, 0, text);

        ngx_log_error(NGX_LOG_WARN, compile->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules has "
                      "%ui warnings, the first: %V",
                      &compile->limiter->zone.name, compile->entry.version,
                      compile->warnings.n, &why);
    }
}


/*
 * A problem of a document that anybody may have written: escaped, so that it
 * stays on its line. It is empty if memory was out for it.
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

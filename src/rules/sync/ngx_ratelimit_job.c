/*
 * Jobs: a task of nginx's thread pool, or an event that is posted when the work
 * was done in place. From start to end of the work a job is the thread's, but
 * for "cancelled".
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#if (NGX_THREADS)
#include <ngx_thread_pool.h>
#endif

#include <stdatomic.h>

#include "ngx_ratelimit_job.h"

struct ngx_ratelimit_job_s {
    ngx_pool_t            *pool;     /* it is in */
    ngx_ratelimit_job_pt   work;
    ngx_ratelimit_job_pt   done;
    void                  *data;
    _Atomic ngx_uint_t     cancelled;
    ngx_event_t            event;    /* done in place */
#if (NGX_THREADS)
    ngx_thread_task_t      task;
#endif
};

static void ngx_ratelimit_job_done(ngx_event_t *ev);

#if (NGX_THREADS)

static void ngx_ratelimit_job_run(void *data, ngx_log_t *log);

static ngx_str_t  ngx_ratelimit_job_threads = ngx_string("default");

#endif


ngx_int_t
ngx_ratelimit_job_prepare(ngx_conf_t *cf)
{
#if (NGX_THREADS)

    if (ngx_thread_pool_add(cf, NULL) == NULL) {
        return NGX_ERROR;
    }

#endif

    return NGX_OK;
}


ngx_ratelimit_job_t *
ngx_ratelimit_job_start(ngx_pool_t *pool, ngx_ratelimit_job_pt work,
    ngx_ratelimit_job_pt done, void *data)
{
    ngx_ratelimit_job_t  *job;
#if (NGX_THREADS)
    ngx_thread_pool_t    *threads;
#endif

    job = ngx_pcalloc(pool, sizeof(ngx_ratelimit_job_t));
    if (job == NULL) {
        return NULL;
    }

    job->pool = pool;
    job->work = work;
    job->done = done;
    job->data = data;

#if (NGX_THREADS)

    /* other processes have no threads, though they have the pool's settings */

    threads = NULL;

    if (ngx_process == NGX_PROCESS_WORKER) {
        threads = ngx_thread_pool_get((ngx_cycle_t *) ngx_cycle,
                                      &ngx_ratelimit_job_threads);
    }

    if (threads) {
        job->task.ctx = job;
        job->task.handler = ngx_ratelimit_job_run;
        job->task.event.handler = ngx_ratelimit_job_done;
        job->task.event.data = job;
        job->task.event.log = pool->log;

        return (ngx_thread_task_post(threads, &job->task) == NGX_OK) ? job
                                                                     : NULL;
    }

#endif

    work(data);

    job->event.handler = ngx_ratelimit_job_done;
    job->event.data = job;
    job->event.log = pool->log;

    /* those for the next turn keep the loop from waiting for others first */
    ngx_post_event(&job->event, &ngx_posted_next_events);

    return job;
}


void
ngx_ratelimit_job_cancel(ngx_ratelimit_job_t *job)
{
    atomic_store(&job->cancelled, 1);
}


#if (NGX_THREADS)

static void
ngx_ratelimit_job_run(void *data, ngx_log_t *log)
{
    ngx_ratelimit_job_t  *job = data;

    (void) log;

    if (!atomic_load(&job->cancelled)) {
        job->work(job->data);
    }
}

#endif


static void
ngx_ratelimit_job_done(ngx_event_t *ev)
{
    ngx_ratelimit_job_t  *job;

    job = ev->data;

    if (atomic_load(&job->cancelled)) {
        ngx_destroy_pool(job->pool);
        return;
    }

    job->done(job->data);
}

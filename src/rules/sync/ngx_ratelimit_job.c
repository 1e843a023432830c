/*
 * Jobs: a task of nginx's thread pool, or an event that is posted when the work
 * was done in place. A job is heap memory, of the thread from start to end of
 * the work, but for "cancelled"; before and after of the loop, which frees it.
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
    ngx_ratelimit_job_work_pt   work;
    ngx_ratelimit_job_done_pt   done;
    void                       *data;     /* of done(), which frees it */
    _Atomic ngx_uint_t          cancelled;
    ngx_event_t                 event;    /* done in place */
#if (NGX_THREADS)
    ngx_thread_task_t           task;
#endif
};

static void ngx_ratelimit_job_done(ngx_event_t *ev);

#if (NGX_THREADS)

static void ngx_ratelimit_job_run(void *data, ngx_log_t *log);

static ngx_str_t  ngx_ratelimit_job_pool = ngx_string("default");

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
ngx_ratelimit_job_start(ngx_ratelimit_job_work_pt work,
    ngx_ratelimit_job_done_pt done, void *data, ngx_log_t *log)
{
    ngx_ratelimit_job_t  *job;
#if (NGX_THREADS)
    ngx_thread_pool_t    *pool;
#endif

    job = ngx_calloc(sizeof(ngx_ratelimit_job_t), log);

    if (job == NULL) {
        return NULL;
    }

    job->work = work;
    job->done = done;
    job->data = data;

#if (NGX_THREADS)

    /* other processes have no threads, though they have the pool's settings */

    pool = NULL;

    if (ngx_process == NGX_PROCESS_WORKER) {
        pool = ngx_thread_pool_get((ngx_cycle_t *) ngx_cycle,
                                   &ngx_ratelimit_job_pool);
    }

    if (pool) {
        job->task.ctx = job;
        job->task.handler = ngx_ratelimit_job_run;
        job->task.event.handler = ngx_ratelimit_job_done;
        job->task.event.data = job;
        job->task.event.log = log;

        if (ngx_thread_task_post(pool, &job->task) != NGX_OK) {
            ngx_free(job);
            return NULL;
        }

        return job;
    }

#endif

    work(data);

    job->event.handler = ngx_ratelimit_job_done;
    job->event.data = job;
    job->event.log = log;

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
    void                       *data;
    ngx_uint_t                  cancelled;
    ngx_ratelimit_job_t        *job;
    ngx_ratelimit_job_done_pt   done;

    job = ev->data;
    done = job->done;
    data = job->data;
    cancelled = atomic_load(&job->cancelled);

    ngx_free(job);

    done(data, cancelled);
}

/*
 * Work that takes too long for the event loop (compiling a document,
 * writing a file and waiting for the disk), done by a thread of nginx's pool
 * "default". Where nginx is built without threads, has no pool, or is a single
 * process (a reload gives it no threads), it is done at once, in the loop.
 *
 * A worker that exits waits for its jobs, but calls done() of none of them.
 */

#ifndef NGX_RATELIMIT_JOB_H_INCLUDED
#define NGX_RATELIMIT_JOB_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

typedef struct ngx_ratelimit_job_s  ngx_ratelimit_job_t;

/*
 * work runs in the thread. It touches memory of the job alone, or memory that
 * nobody writes to while workers serve. It makes no regular expression, as
 * nginx has one memory pool for them, and no call to Redis.
 *
 * done runs in the event loop when the work is done, once, and never from
 * inside ngx_ratelimit_job_start().
 */
typedef void (*ngx_ratelimit_job_pt)(void *data);

/*
 * While the configuration is read: has nginx make the thread pool. Not for a
 * single process, which has no use for it. Returns NGX_OK or NGX_ERROR
 * (logged).
 */
ngx_int_t ngx_ratelimit_job_prepare(ngx_conf_t *cf);

/*
 * Starts a job. data is in pool, which is the job's alone until done() is
 * called. Returns the job, valid until then, or NULL: memory is out or the
 * queue of the threads is full, and nothing is called. Not while the worker's
 * modules exit: the threads are gone by then.
 */
ngx_ratelimit_job_t *ngx_ratelimit_job_start(ngx_pool_t *pool,
    ngx_ratelimit_job_pt work, ngx_ratelimit_job_pt done, void *data);

/*
 * The event loop destroys the job's pool instead of calling done(). Work that
 * has not begun is left out.
 */
void ngx_ratelimit_job_cancel(ngx_ratelimit_job_t *job);

#endif /* NGX_RATELIMIT_JOB_H_INCLUDED */

/*
 * Work that takes too long for the event loop (compiling a document, writing a
 * file and waiting for the disk), done by threads of the worker. If no thread
 * can be made, and in a single process (a reload leaves it without events of
 * its own), the work is done at once, in the loop.
 *
 * A worker that exits waits for its jobs, but calls done() of none of them.
 */

#ifndef NGX_RL_JOB_H_INCLUDED
#define NGX_RL_JOB_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

typedef struct ngx_rl_job_s  ngx_rl_job_t;

/* Each does one job after the other: a disk that hangs holds no document up. */
typedef enum {
    NGX_RL_JOB_COMPUTES = 0,
    NGX_RL_JOB_WRITES,
    NGX_RL_JOB_THREADS
} ngx_rl_job_thread_e;

/*
 * work runs in the thread. It touches memory of the job alone, or memory that
 * nobody writes to while workers serve. It makes no regular expression, as
 * nginx has one memory pool for them, and no call to Redis.
 *
 * done runs in the event loop when the work is done, once, and never from
 * inside ngx_rl_job_start(). NULL: the job's pool is destroyed then.
 */
typedef void (*ngx_rl_job_pt)(void *data);

/*
 * Starts a job. data is in pool, which is the job's alone until done() is
 * called. Returns the job, valid until then, or NULL: memory is out, and
 * nothing is called. Not behind ngx_rl_job_wait() of a worker that
 * exits.
 */
ngx_rl_job_t *ngx_rl_job_start(ngx_pool_t *pool, ngx_rl_job_thread_e thread,
    ngx_rl_job_pt work, ngx_rl_job_pt done, void *data);

/*
 * The event loop destroys the job's pool instead of calling done(). Work that
 * has not begun is left out.
 */
void ngx_rl_job_cancel(ngx_rl_job_t *job);

/* Until the threads have done all of their jobs. For a worker that exits. */
void ngx_rl_job_wait(void);

#endif /* NGX_RL_JOB_H_INCLUDED */

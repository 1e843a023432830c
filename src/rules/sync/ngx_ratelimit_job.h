/*
 * Work that takes too long for the event loop (compiling a document,
 * writing a file and waiting for the disk), done by a thread of nginx's pool
 * "default". Where nginx is built without threads, has no pool, or is a single
 * process (a reload gives it no threads), it is done at once, in the loop.
 *
 * A worker that exits waits for the jobs that are queued, and done() of those
 * is not called any more: what they hold goes with the process.
 */

#ifndef NGX_RATELIMIT_JOB_H_INCLUDED
#define NGX_RATELIMIT_JOB_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

typedef struct ngx_ratelimit_job_s  ngx_ratelimit_job_t;

/*
 * Runs in the thread. It touches memory of the job alone, or memory that nobody
 * writes to while workers serve. It makes no nginx regular expression (nginx
 * has one memory pool for them), and no call to Redis.
 */
typedef void (*ngx_ratelimit_job_work_pt)(void *data);

/*
 * Runs in the event loop when the work is done, once: never from inside
 * ngx_ratelimit_job_start(). cancelled: its maker is gone, and the work may
 * not have been done: what is left is to free data.
 */
typedef void (*ngx_ratelimit_job_done_pt)(void *data, ngx_uint_t cancelled);

/*
 * Declares, while the configuration is read, that jobs will be started: the
 * thread pool is made then. Not for a single process, which has no use for it.
 * Returns NGX_OK or NGX_ERROR (logged).
 */
ngx_int_t ngx_ratelimit_job_prepare(ngx_conf_t *cf);

/*
 * Starts a job. data is heap memory, or a pool of its own: it outlives whoever
 * has made it, and done() frees it. Returns the job, valid until done() is
 * called, or NULL: memory is out or the pool's queue is full, and nothing is
 * called. Not while the worker's modules exit: the threads are gone by then.
 */
ngx_ratelimit_job_t *ngx_ratelimit_job_start(ngx_ratelimit_job_work_pt work,
    ngx_ratelimit_job_done_pt done, void *data, ngx_log_t *log);

/*
 * The maker is gone: done() is called with cancelled. Work that has not begun
 * is left out, other goes on.
 */
void ngx_ratelimit_job_cancel(ngx_ratelimit_job_t *job);

#endif /* NGX_RATELIMIT_JOB_H_INCLUDED */

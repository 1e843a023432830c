/*
 * Jobs: done by a thread of the worker, or in the event loop. From start to end
 * of the work a job is the thread's, but for "cancelled".
 *
 * A thread is made when a job comes and ends when none is left. So a worker at
 * rest is one task, and a limit of tasks (a cgroup's pids.max) that leaves no
 * room for a thread costs pauses of the loop. A thread pool of nginx is made
 * with the worker, and nginx ends the worker if it cannot be made.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_channel.h>
#include <ngx_event.h>

#include <pthread.h>
#include <stdatomic.h>

#include "ngx_rl_job.h"

struct ngx_rl_job_s {
    ngx_pool_t     *pool;     /* it is in */
    ngx_rl_job_pt   work;
    ngx_rl_job_pt   done;
    void           *data;
    _Atomic ngx_uint_t     cancelled;
    ngx_queue_t     queue;
    ngx_event_t     event;    /* done in place */
};

/* A worker's; a process that forks has used none. */
typedef struct {
    pthread_mutex_t        mutex;    /* of waiting, finished and runs */
    ngx_queue_t            waiting;
    ngx_queue_t            finished;
    ngx_uint_t             runs;     /* it looks at waiting once more */
    pthread_t              thread;   /* if made: to be joined */
    ngx_uint_t             made;
    ngx_fd_t               pipe[2];  /* wakes the loop; if ready */
    ngx_uint_t             ready;
} ngx_rl_job_thread_t;

static ngx_rl_job_thread_t
    ngx_rl_job_threads[NGX_RL_JOB_THREADS] =
{
    [NGX_RL_JOB_COMPUTES] = { .mutex = PTHREAD_MUTEX_INITIALIZER },
    [NGX_RL_JOB_WRITES] = { .mutex = PTHREAD_MUTEX_INITIALIZER }
};


/* In the loop. */
static void
ngx_rl_job_end(ngx_rl_job_t *job)
{
    if (job->done == NULL || atomic_load(&job->cancelled)) {
        ngx_destroy_pool(job->pool);
        return;
    }

    job->done(job->data);
}


static void
ngx_rl_job_posted_handler(ngx_event_t *ev)
{
    ngx_rl_job_end(ev->data);
}


static void
ngx_rl_job_pipe_handler(ngx_event_t *ev)
{
    u_char                buf[64];
    ngx_queue_t           finished, *q;
    ngx_connection_t     *c;
    ngx_rl_job_thread_t  *t;

    c = ev->data;

    for (t = ngx_rl_job_threads; !t->ready || t->pipe[0] != c->fd; t++) {
        /* void: it is one of them */
    }

    while (read(c->fd, buf, sizeof(buf)) == (ssize_t) sizeof(buf)) {
        /* void */
    }

    ngx_queue_init(&finished);

    pthread_mutex_lock(&t->mutex);

    if (!ngx_queue_empty(&t->finished)) {
        ngx_queue_add(&finished, &t->finished);
        ngx_queue_init(&t->finished);
    }

    pthread_mutex_unlock(&t->mutex);

    while (!ngx_queue_empty(&finished)) {
        q = ngx_queue_head(&finished);
        ngx_queue_remove(q);
        ngx_rl_job_end(ngx_queue_data(q, ngx_rl_job_t, queue));
    }
}


static void *
ngx_rl_job_run(void *data)
{
    ssize_t               n;
    ngx_queue_t          *q;
    ngx_rl_job_t         *job;
    ngx_rl_job_thread_t  *t = data;

    pthread_mutex_lock(&t->mutex);

    while (!ngx_queue_empty(&t->waiting)) {
        q = ngx_queue_head(&t->waiting);
        ngx_queue_remove(q);

        pthread_mutex_unlock(&t->mutex);

        job = ngx_queue_data(q, ngx_rl_job_t, queue);

        if (!atomic_load(&job->cancelled)) {
            job->work(job->data);
        }

        pthread_mutex_lock(&t->mutex);

        /* a pipe that is full wakes the loop, too */

        ngx_queue_insert_tail(&t->finished, q);
        n = write(t->pipe[1], "", 1);
        (void) n;
    }

    t->runs = 0;

    pthread_mutex_unlock(&t->mutex);

    return NULL;
}


static ngx_int_t
ngx_rl_job_pipe(ngx_rl_job_thread_t *t)
{
    if (pipe2(t->pipe, O_NONBLOCK|O_CLOEXEC) == -1) {
        return NGX_ERROR;
    }

    /* a channel, for nginx: it is no connection that a worker has to close */

    if (ngx_add_channel_event((ngx_cycle_t *) ngx_cycle, t->pipe[0],
                              NGX_READ_EVENT, ngx_rl_job_pipe_handler)
        != NGX_OK)
    {
        close(t->pipe[0]);
        close(t->pipe[1]);
        return NGX_ERROR;
    }

    ngx_queue_init(&t->waiting);
    ngx_queue_init(&t->finished);
    t->ready = 1;

    return NGX_OK;
}


/* Until it has done all of its jobs. */
static void
ngx_rl_job_join(ngx_rl_job_thread_t *t)
{
    if (t->made) {
        (void) pthread_join(t->thread, NULL);
        t->made = 0;
    }
}


/* NGX_ERROR: there can be no thread now. */
static ngx_int_t
ngx_rl_job_queue(ngx_rl_job_thread_t *t, ngx_rl_job_t *job)
{
    int         err;
    sigset_t    all, before;
    ngx_uint_t  runs;

    if (!t->ready && ngx_rl_job_pipe(t) != NGX_OK) {
        return NGX_ERROR;
    }

    pthread_mutex_lock(&t->mutex);

    ngx_queue_insert_tail(&t->waiting, &job->queue);
    runs = t->runs;
    t->runs = 1;

    pthread_mutex_unlock(&t->mutex);

    if (runs) {
        return NGX_OK;
    }

    ngx_rl_job_join(t);

    /* signals are the loop's */

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);

    err = pthread_create(&t->thread, NULL, ngx_rl_job_run, t);

    pthread_sigmask(SIG_SETMASK, &before, NULL);

    if (err) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, err,
                      "ratelimit: no thread for the rules, the event loop "
                      "does its work");

        ngx_queue_remove(&job->queue);
        t->runs = 0;

        return NGX_ERROR;
    }

    t->made = 1;

    return NGX_OK;
}


ngx_rl_job_t *
ngx_rl_job_start(ngx_pool_t *pool, ngx_rl_job_thread_e thread,
    ngx_rl_job_pt work, ngx_rl_job_pt done, void *data)
{
    ngx_rl_job_t  *job;

    job = ngx_pcalloc(pool, sizeof(ngx_rl_job_t));
    if (job == NULL) {
        return NULL;
    }

    job->pool = pool;
    job->work = work;
    job->done = done;
    job->data = data;

    if (ngx_process == NGX_PROCESS_WORKER
        && ngx_rl_job_queue(&ngx_rl_job_threads[thread], job)
           == NGX_OK)
    {
        return job;
    }

    work(data);

    job->event.handler = ngx_rl_job_posted_handler;
    job->event.data = job;
    job->event.log = pool->log;

    /* those for the next turn keep the loop from waiting for others first */
    ngx_post_event(&job->event, &ngx_posted_next_events);

    return job;
}


void
ngx_rl_job_cancel(ngx_rl_job_t *job)
{
    atomic_store(&job->cancelled, 1);
}


void
ngx_rl_job_wait(void)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_RL_JOB_THREADS; i++) {
        ngx_rl_job_join(&ngx_rl_job_threads[i]);
    }
}

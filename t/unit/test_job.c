/*
 * Jobs: what runs where, how often, and what becomes of cancelled ones. The
 * threads are real ones, the loop is not.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>

#include "ngx_rl_job.h"
#include <ngx_channel.h>

#include "nginx.h"

ngx_uint_t            ngx_process;
volatile ngx_cycle_t *ngx_cycle;
ngx_queue_t           ngx_posted_next_events;

static ngx_log_t         log_nowhere;
static ngx_cycle_t       cycle;
static ngx_uint_t        no_event;
static ngx_event_t       wakes;              /* of the pipe made last */
static ngx_connection_t  pipe_end;

static pthread_mutex_t   gate = PTHREAD_MUTEX_INITIALIZER;

/* of the job: how often */
static _Atomic int       worked;
static int               finished, inside;


/* nginx */

ngx_int_t
ngx_add_channel_event(ngx_cycle_t *c, ngx_fd_t fd, ngx_int_t event,
    ngx_event_handler_pt handler)
{
    assert_ptr_equal(c, &cycle);

    if (no_event) {
        return NGX_ERROR;
    }

    pipe_end.fd = fd;
    wakes.data = &pipe_end;
    wakes.handler = handler;

    return NGX_OK;
}


/* The thread takes no job further while the test has the gate. */
static void
work(void *data)
{
    assert_ptr_equal(data, &worked);
    pthread_mutex_lock(&gate);
    worked++;
    pthread_mutex_unlock(&gate);
}


static void
done(void *data)
{
    assert_ptr_equal(data, &worked);
    assert_false(inside);
    finished++;
}


static ngx_rl_job_t *
start(ngx_pool_t **pool)
{
    ngx_rl_job_t  *job;

    *pool = ngx_create_pool(4096, &log_nowhere);
    inside = 1;
    job = ngx_rl_job_start(*pool, NGX_RL_JOB_COMPUTES, work, done, &worked);
    inside = 0;

    if (job == NULL) {
        ngx_destroy_pool(*pool);
    }

    return job;
}


/* The loop's next turn. */
static int
turn(void)
{
    int           n;
    ngx_event_t  *ev;

    for (n = 0; !ngx_queue_empty(&ngx_posted_next_events); n++) {
        ev = ngx_queue_data(ngx_queue_head(&ngx_posted_next_events),
                            ngx_event_t, queue);
        ngx_delete_posted_event(ev);
        ev->handler(ev);
    }

    return n;
}


/* Whether a thread has woken the loop by then; what the loop does. */
static int
woken(int timeout_ms)
{
    struct pollfd  pfd = { .fd = pipe_end.fd, .events = POLLIN };

    if (poll(&pfd, 1, timeout_ms) != 1) {
        return 0;
    }

    wakes.handler(&wakes);

    return 1;
}


static int
setup(void **state)
{
    ngx_process = NGX_PROCESS_WORKER;
    cycle.log = &log_nowhere;
    ngx_cycle = &cycle;
    ngx_queue_init(&ngx_posted_next_events);
    worked = finished = 0;
    no_event = 0;

    return 0;
}

#define TEST_SETUP     setup


/* Done in the loop's turn, though it was not in start(). */
static void
in_place(void)
{
    ngx_pool_t  *pool;

    worked = finished = 0;

    assert_non_null(start(&pool));
    assert_int_equal(worked, 1);
    assert_int_equal(finished, 0);
    assert_int_equal(turn(), 1);
    assert_int_equal(finished, 1);
    ngx_destroy_pool(pool);

    ngx_rl_job_t *job = start(&pool);
    ngx_rl_job_cancel(job);
    assert_int_equal(turn(), 1);
    assert_int_equal(worked, 2);
    assert_int_equal(finished, 1);
}


/* A single process, and a worker that can have no event for the thread. */
static void
test_in_place(void **state)
{
    no_event = 1;
    in_place();

    no_event = 0;
    ngx_process = NGX_PROCESS_SINGLE;
    in_place();
}


/* Several, one after the other, by one thread; and by another one later. */
static void
test_thread(void **state)
{
    ngx_pool_t  *pool[3];

    for (int n = 1; n <= 4; n++) {
        worked = finished = 0;

        pthread_mutex_lock(&gate);

        for (int i = 0; i < 3; i++) {
            assert_non_null(start(&pool[i]));
        }

        assert_int_equal(worked, 0);
        assert_int_equal(woken(0), 0);
        pthread_mutex_unlock(&gate);

        while (finished < 3) {
            assert_true(woken(-1));
        }

        /* the loop may have taken jobs that woke it only afterwards */

        while (woken(0)) {
            /* void */
        }

        assert_int_equal(worked, 3);
        assert_int_equal(turn(), 0);

        for (int i = 0; i < 3; i++) {
            ngx_destroy_pool(pool[i]);
        }
    }
}


/* Before a thread takes it, while it works, and before the loop is told. */
static void
test_cancelled(void **state)
{
    ngx_pool_t    *pool[3];
    ngx_rl_job_t  *job[3];

    pthread_mutex_lock(&gate);

    job[0] = start(&pool[0]);
    job[1] = start(&pool[1]);
    job[2] = start(&pool[2]);
    ngx_rl_job_cancel(job[1]);

    pthread_mutex_unlock(&gate);
    ngx_rl_job_wait();

    assert_int_equal(worked, 2);
    assert_int_equal(finished, 0);

    ngx_rl_job_cancel(job[2]);

    while (woken(0)) {
        /* void */
    }

    assert_int_equal(finished, 1);
    ngx_destroy_pool(pool[0]);

    /* nothing to wait for */
    ngx_rl_job_wait();
}


static void
hang(void *data)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}


static void
compute(void *data)
{
    worked++;
}


/* A disk that hangs holds back nothing but what is written. */
static void
test_hangs(void **state)
{
    ngx_pool_t  *pool[2];

    for (int i = 0; i < 2; i++) {
        pool[i] = ngx_create_pool(4096, &log_nowhere);
    }

    pthread_mutex_lock(&gate);

    assert_non_null(ngx_rl_job_start(pool[0], NGX_RL_JOB_WRITES,
                                     hang, done, &worked));
    assert_non_null(ngx_rl_job_start(pool[1], NGX_RL_JOB_COMPUTES, compute,
                                     done, &worked));
    while (worked == 0) {
        (void) poll(NULL, 0, 1);
    }

    pthread_mutex_unlock(&gate);
    ngx_rl_job_wait();

    for (int i = 0; i < 2; i++) {
        ngx_destroy_pool(pool[i]);
    }
}


static void
test_no_memory(void **state)
{
    ngx_pool_t *pool = ngx_create_pool(4096, &log_nowhere);
    allocations = 0;
    assert_null(ngx_rl_job_start(pool, NGX_RL_JOB_COMPUTES,
                                 work, done, &worked));
    ngx_destroy_pool(pool);

    assert_int_equal(worked, 0);
    assert_int_equal(turn(), 0);
}

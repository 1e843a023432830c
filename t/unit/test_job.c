/* Jobs: what runs where, how often, and what becomes of cancelled ones. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ngx_ratelimit_job.h"
#include <ngx_thread_pool.h>

#include "nginx.h"

ngx_uint_t            ngx_process;
volatile ngx_cycle_t *ngx_cycle;
ngx_queue_t           ngx_posted_next_events;

static ngx_log_t           log_nowhere;
static ngx_cycle_t         cycle;
static int                 thread_pool;        /* stands for one */
static int                 has_pool, full;
static ngx_thread_task_t  *queued[10];
static ngx_uint_t          nqueued;

/* of the job: how often */
static int                 worked, finished, cancelled, inside;


/* nginx */

ngx_thread_pool_t *
ngx_thread_pool_add(ngx_conf_t *cf, ngx_str_t *name)
{
    (void) cf;

    assert_null(name);

    return has_pool ? (ngx_thread_pool_t *) &thread_pool : NULL;
}


ngx_thread_pool_t *
ngx_thread_pool_get(ngx_cycle_t *c, ngx_str_t *name)
{
    assert_ptr_equal(c, &cycle);
    assert_int_equal(name->len, 7);
    assert_memory_equal(name->data, "default", 7);

    return has_pool ? (ngx_thread_pool_t *) &thread_pool : NULL;
}


ngx_int_t
ngx_thread_task_post(ngx_thread_pool_t *tp, ngx_thread_task_t *task)
{
    assert_ptr_equal(tp, &thread_pool);
    assert_false(task->event.active);

    if (full) {
        return NGX_ERROR;
    }

    task->event.active = 1;
    queued[nqueued++] = task;

    return NGX_OK;
}


static void
work(void *data)
{
    assert_ptr_equal(data, &worked);
    worked++;
}


static void
done(void *data, ngx_uint_t gone)
{
    assert_ptr_equal(data, &worked);
    assert_false(inside);
    finished++;
    cancelled += (gone != 0);
}


static ngx_ratelimit_job_t *
start(void)
{
    ngx_ratelimit_job_t  *job;

    inside = 1;
    job = ngx_ratelimit_job_start(work, done, &worked, &log_nowhere);
    inside = 0;

    return job;
}


/* A thread takes the first one, and the loop is told. */
static void
run(void)
{
    assert_int_equal(nqueued, 1);
    nqueued = 0;
    queued[0]->handler(queued[0]->ctx, NULL);
}


static void
tell(void)
{
    queued[0]->event.active = 0;
    queued[0]->event.complete = 1;
    queued[0]->event.handler(&queued[0]->event);
}


/* The loop's next turn. */
static ngx_uint_t
turn(void)
{
    ngx_uint_t    n;
    ngx_event_t  *ev;
    ngx_queue_t  *q;

    for (n = 0; !ngx_queue_empty(&ngx_posted_next_events); n++) {
        q = ngx_queue_head(&ngx_posted_next_events);
        ev = ngx_queue_data(q, ngx_event_t, queue);
        ngx_delete_posted_event(ev);
        ev->handler(ev);
    }

    return n;
}


static int
setup(void **state)
{
    (void) state;

    ngx_process = NGX_PROCESS_WORKER;
    ngx_cycle = &cycle;
    ngx_queue_init(&ngx_posted_next_events);
    has_pool = 1;
    full = 0;
    nqueued = 0;
    worked = finished = cancelled = 0;

    return 0;
}


static void
test_prepare(void **state)
{
    (void) state;

    assert_int_equal(ngx_ratelimit_job_prepare(NULL), NGX_OK);
    has_pool = 0;
    assert_int_equal(ngx_ratelimit_job_prepare(NULL), NGX_ERROR);
}


static void
test_thread(void **state)
{
    (void) state;

    assert_non_null(start());
    assert_int_equal(worked, 0);

    run();
    assert_int_equal(worked, 1);
    assert_int_equal(finished, 0);

    tell();
    assert_int_equal(finished, 1);
    assert_int_equal(cancelled, 0);
    assert_int_equal(turn(), 0);
}


static void
test_cancel(void **state)
{
    ngx_ratelimit_job_t  *job;

    (void) state;

    /* before a thread takes it: nothing is done */
    job = start();
    ngx_ratelimit_job_cancel(job);
    run();
    assert_int_equal(worked, 0);
    tell();
    assert_int_equal(finished, 1);
    assert_int_equal(cancelled, 1);

    /* and before the loop is told */
    job = start();
    run();
    assert_int_equal(worked, 1);
    ngx_ratelimit_job_cancel(job);
    tell();
    assert_int_equal(finished, 2);
    assert_int_equal(cancelled, 2);
}


static void
test_in_place(void **state)
{
    ngx_ratelimit_job_t  *job;

    (void) state;

    has_pool = 0;
    assert_non_null(start());
    assert_int_equal(worked, 1);
    assert_int_equal(finished, 0);
    assert_int_equal(turn(), 1);
    assert_int_equal(finished, 1);
    assert_int_equal(cancelled, 0);

    job = start();
    ngx_ratelimit_job_cancel(job);
    assert_int_equal(turn(), 1);
    assert_int_equal(worked, 2);
    assert_int_equal(finished, 2);
    assert_int_equal(cancelled, 1);
}


/* The pool that the configuration has may have no threads. */
static void
test_single(void **state)
{
    (void) state;

    ngx_process = NGX_PROCESS_SINGLE;
    assert_non_null(start());
    assert_int_equal(nqueued, 0);
    assert_int_equal(worked, 1);
    assert_int_equal(turn(), 1);
    assert_int_equal(finished, 1);
}


static void
test_refused(void **state)
{
    (void) state;

    full = 1;
    assert_null(start());
    full = 0;

    allocations = 0;
    assert_null(start());

    assert_int_equal(worked, 0);
    assert_int_equal(turn(), 0);
    assert_int_equal(finished, 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup(test_prepare, setup),
        cmocka_unit_test_setup(test_thread, setup),
        cmocka_unit_test_setup(test_cancel, setup),
        cmocka_unit_test_setup(test_in_place, setup),
        cmocka_unit_test_setup(test_single, setup),
        cmocka_unit_test_setup(test_refused, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

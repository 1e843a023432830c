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
static int                 threads;            /* stands for a pool of them */
static int                 has_threads, full;
static ngx_thread_task_t  *queued;

/* of the job: how often */
static int                 worked, finished, inside;


/* nginx */

ngx_thread_pool_t *
ngx_thread_pool_add(ngx_conf_t *cf, ngx_str_t *name)
{
    assert_null(name);

    return has_threads ? (ngx_thread_pool_t *) &threads : NULL;
}


ngx_thread_pool_t *
ngx_thread_pool_get(ngx_cycle_t *c, ngx_str_t *name)
{
    assert_ptr_equal(c, &cycle);
    assert_int_equal(name->len, 7);
    assert_memory_equal(name->data, "default", 7);

    return has_threads ? (ngx_thread_pool_t *) &threads : NULL;
}


ngx_int_t
ngx_thread_task_post(ngx_thread_pool_t *tp, ngx_thread_task_t *task)
{
    assert_ptr_equal(tp, &threads);
    assert_false(task->event.active);
    queued = task;

    return full ? NGX_ERROR : NGX_OK;
}


static void
work(void *data)
{
    assert_ptr_equal(data, &worked);
    worked++;
}


static void
done(void *data)
{
    assert_ptr_equal(data, &worked);
    assert_false(inside);
    finished++;
}


static ngx_ratelimit_job_t *
start(ngx_pool_t **pool)
{
    ngx_ratelimit_job_t  *job;

    *pool = ngx_create_pool(4096, &log_nowhere);
    inside = 1;
    job = ngx_ratelimit_job_start(*pool, work, done, &worked);
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


static int
setup(void **state)
{
    ngx_process = NGX_PROCESS_WORKER;
    ngx_cycle = &cycle;
    ngx_queue_init(&ngx_posted_next_events);
    has_threads = 1;
    full = 0;
    worked = finished = 0;

    return 0;
}


static void
test_prepare(void **state)
{
    assert_int_equal(ngx_ratelimit_job_prepare(NULL), NGX_OK);
    has_threads = 0;
    assert_int_equal(ngx_ratelimit_job_prepare(NULL), NGX_ERROR);
}


/* Cancelled never, before a thread takes it, and before the loop is told. */
static void
test_thread(void **state)
{
    int                   n;
    ngx_pool_t           *pool;
    ngx_ratelimit_job_t  *job;

    for (n = 0; n < 3; n++) {
        worked = finished = 0;
        job = start(&pool);
        assert_int_equal(worked, 0);

        if (n == 1) {
            ngx_ratelimit_job_cancel(job);
        }

        queued->handler(queued->ctx, NULL);
        assert_int_equal(worked, n != 1);
        assert_int_equal(finished, 0);

        if (n == 2) {
            ngx_ratelimit_job_cancel(job);
        }

        queued->event.handler(&queued->event);
        assert_int_equal(finished, n == 0);
        assert_int_equal(turn(), 0);

        if (n == 0) {
            ngx_destroy_pool(pool);
        }
    }
}


/* Without threads, or where the pool that the configuration has has none. */
static void
test_in_place(void **state)
{
    ngx_pool_t           *pool;
    ngx_ratelimit_job_t  *job;

    for (has_threads = 0; has_threads < 2; has_threads++) {
        worked = finished = 0;
        queued = NULL;

        assert_non_null(start(&pool));
        assert_int_equal(worked, 1);
        assert_int_equal(finished, 0);
        assert_int_equal(turn(), 1);
        assert_int_equal(finished, 1);
        ngx_destroy_pool(pool);

        job = start(&pool);
        ngx_ratelimit_job_cancel(job);
        assert_int_equal(turn(), 1);
        assert_int_equal(worked, 2);
        assert_int_equal(finished, 1);
        assert_null(queued);

        ngx_process = NGX_PROCESS_SINGLE;
    }
}


static void
test_refused(void **state)
{
    ngx_pool_t  *pool;

    full = 1;
    assert_null(start(&pool));
    full = 0;

    pool = ngx_create_pool(4096, &log_nowhere);
    allocations = 0;
    assert_null(ngx_ratelimit_job_start(pool, work, done, &worked));
    ngx_destroy_pool(pool);

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
        cmocka_unit_test_setup(test_in_place, setup),
        cmocka_unit_test_setup(test_refused, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The sliding log through the table: exact where it has room, and what is lost
 * where it has not; by one process and by two.
 */

#include "local.h"

#include <sched.h>
#include <stdatomic.h>

#define LOG  NGX_RL_SLIDING_LOG

static local_t  local;


static uint32_t
left(uint64_t client)
{
    local_request_t  r;

    local_request(&local, &r, client);
    r.counter.cost = 0;
    ngx_rl_local_take(&r.counter);

    return r.counter.answer.remaining;
}


/* 10,000 requests in any 10 seconds, over three windows, to the millisecond. */
static void
test_exact(void **state)
{
    enum { LIMIT = 10000, MS = 10000, STEPS = 30000 };

    int               i, granted, used;
    local_request_t   r;

    static uint8_t    at[STEPS];     /* granted in each millisecond */

    local_make(&local, 4 * MIB, LOG, LIMIT, MS / 1000);
    used = granted = 0;

    for (i = 0; i < STEPS; i++) {
        ngx_current_msec++;

        if (i >= MS) {
            used -= at[i - MS];
        }

        while (at[i] < 3 && local_take(&local, &r, 1)) {
            at[i]++;
            granted++;
        }

        used += at[i];
        assert_int_equal(used < LIMIT ? at[i] : LIMIT, used < LIMIT ? 3 : used);

        if (used == LIMIT) {
            assert_int_equal(left(1), 0);
        }
    }

    assert_int_equal(granted, 3 * LIMIT);
    assert_int_equal(stat_at(local.map.table, NOW).lost, 0);
    local_free(&local);
}


/* What a denial names, and what is given back, through the table. */
static void
test_answers(void **state)
{
    local_request_t  r;

    local_make(&local, MIB, LOG, 100, 10);

    for (int i = 0; i < 100; i++) {
        assert_int_equal(local_take(&local, &r, 1), 1);
        assert_int_equal(r.counter.answer.remaining, 99 - i);
        ngx_current_msec += 10;
    }

    assert_int_equal(local_take(&local, &r, 1), 0);
    assert_int_equal(r.counter.answer.retry_us, 9000000);
    assert_int_equal(r.counter.answer.reset_us, 9990000);

    ngx_current_msec += 8999;
    assert_int_equal(local_take(&local, &r, 1), 0);
    ngx_current_msec += 1;
    assert_int_equal(local_take(&local, &r, 1), 1);

    ngx_rl_local_give(&r.counter, 1);
    assert_int_equal(r.counter.answer.remaining, 1);
    assert_int_equal(left(1), 1);

    /* what was taken a window ago has come back by itself */
    r.check.taken_us -= 10000000;
    ngx_rl_local_give(&r.counter, 1);
    assert_int_equal(left(1), 1);

    /* a charge takes what is there, and owes the rest */
    ngx_rl_local_charge(&r.counter, 5);
    assert_int_equal(r.counter.answer.granted, 5);
    assert_int_equal(left(1), 0);

    /* a window that grew keeps them, its own length */
    local_limit(&local, LOG, 100, 3600);
    assert_int_equal(left(1), 0);
    ngx_current_msec += 3590000;
    assert_int_equal(left(1), 0);
    ngx_current_msec += 9990;
    assert_int_equal(left(1), 95);
    ngx_current_msec += 10;
    assert_int_equal(left(1), 100);

    /* the longest window fits the place's 44 bits */
    local_limit(&local, LOG, 100, 366 * 86400);
    assert_int_equal(local_take(&local, &r, 2), 1);
    ngx_current_msec += (ngx_msec_t) 366 * 86400 * 1000 - 1;
    assert_int_equal(left(2), 99);
    ngx_current_msec += 1;
    assert_int_equal(left(2), 100);

    local_free(&local);
}


/*
 * A table too small for its logs: places are lost, that is counted, and what is
 * admitted too much is no more than what was lost. No denial is for nothing.
 */
static void
test_too_small(void **state)
{
    enum { CLIENTS = 20, LIMIT = 1000, BYTES = 256 * 1024 };

    int                            i, n, granted;
    local_request_t                r;
    ngx_rl_segments_stat_t  stat;

    local_make(&local, BYTES, LOG, LIMIT, 60);
    granted = 0;

    /* a place takes 60 to 90 bytes until the first is lost */

    for (i = 0; i < BYTES / 90; i++) {
        granted += local_take(&local, &r, i % CLIENTS);
    }

    assert_int_equal(stat_at(local.map.table, ngx_rl_local_now_us()).lost, 0);

    for (i = 0; i < 3 * LIMIT; i++) {
        for (n = 0; n < CLIENTS; n++) {
            granted += local_take(&local, &r, n);
        }
    }

    stat = stat_at(local.map.table, ngx_rl_local_now_us());

    assert_true(granted > CLIENTS * LIMIT);
    assert_true(granted <= CLIENTS * LIMIT + (int) stat.lost);
    assert_true(stat.lost > 0);

    /* when all has expired it starts anew */
    ngx_current_msec += 60000;
    assert_int_equal(left(1), LIMIT);
    local_free(&local);
}


/* Two processes at once: not one more than the limit, nor one less. */
static void
test_processes(void **state)
{
    enum { PROCESSES = 2, LIMIT = 10000, TIMES = 20000 };

    int               i, n, granted, ready[2];
    pid_t             pid[PROCESSES];
    atomic_int       *started;
    local_request_t   r;

    local_make(&local, 4 * MIB, LOG, LIMIT, 60);
    assert_int_equal(pipe(ready), 0);
    started = mmap(NULL, sizeof(atomic_int), PROT_READ|PROT_WRITE,
                   MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(started, MAP_FAILED);

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = spawn();

        if (pid[i] == 0) {
            ngx_current_msec += i;
            atomic_fetch_add(started, 1);

            while (atomic_load(started) < PROCESSES) {
                sched_yield();
            }

            for (n = 0, granted = 0; n < TIMES; n++) {
                granted += local_take(&local, &r, 1);

                /* now and then one that another rule denies */

                if (r.counter.answer.granted && n % 7 == 0) {
                    ngx_rl_local_give(&r.counter, 1);
                    granted--;
                }
            }

            if (write(ready[1], &granted, sizeof(int)) != sizeof(int)) {
                _exit(1);
            }

            _exit(0);
        }
    }

    for (i = 0, granted = 0; i < PROCESSES; i++) {
        assert_int_equal(read(ready[0], &n, sizeof(int)), sizeof(int));
        granted += n;
        reap(pid[i], 0);
    }

    assert_int_equal(granted, LIMIT);
    munmap(started, sizeof(atomic_int));
    close(ready[0]);
    close(ready[1]);
    local_free(&local);
}


/* Killed at any moment, a worker leaves a log that others can go on with. */
static void
test_killed(void **state)
{
    enum { KILLS = 300, LIMIT = 200 };

    int              i, n;
    pid_t            pid;
    local_request_t  r;

    local_make(&local, MIB, LOG, LIMIT, 1);

    for (i = 0; i < KILLS; i++) {
        pid = spawn();

        if (pid == 0) {
            for (n = i; /* until killed */ ; n++) {
                ngx_current_msec += n % 2;

                if (local_take(&local, &r, 1) && n % 3 == 0) {
                    ngx_rl_local_give(&r.counter, 1);
                }
            }
        }

        usleep(200 + mix(i) % 2000);
        kill(pid, SIGKILL);
        reap(pid, SIGKILL);
        assert_in_range(left(1), 0, LIMIT);
    }

    /* all of it expires, however far ahead the killed ones' clocks were */
    ngx_current_msec += 100000000;
    assert_int_equal(left(1), LIMIT);

    for (i = 0; i < LIMIT; i++) {
        assert_int_equal(local_take(&local, &r, 1), 1);
    }

    assert_int_equal(local_take(&local, &r, 1), 0);
    assert_true(stat_at(local.map.table, NOW).recovered > 0);
    local_free(&local);
}

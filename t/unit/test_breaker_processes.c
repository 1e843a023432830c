/* One breaker, many processes: each change is told to exactly one of them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "ngx_ratelimit_breaker.h"

#define PROCESSES  6
#define ROUNDS     200000
#define LOST       2000
#define NEVER      ((uint64_t) 1 << 40)

/* in memory that all share */
typedef struct {
    ngx_ratelimit_breaker_t  breaker;
    _Atomic uint64_t         now_ms;
    _Atomic uint64_t         opened;
    _Atomic uint64_t         closed;
    _Atomic uint64_t         probes;
    _Atomic uint64_t         probing;   /* at a time */
    _Atomic uint64_t         wrong;
    _Atomic uint64_t         ready;
    _Atomic uint64_t         begin;
} world_t;


static world_t *
world(void)
{
    world_t  *w;

    w = mmap(NULL, sizeof(world_t), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(w, MAP_FAILED);

    w->now_ms = 1000000;

    return w;
}


/* A child, which does not outlive a test that failed. */
static pid_t
spawn(void (*run)(world_t *w, int me), world_t *w, int me)
{
    pid_t  pid;

    pid = fork();
    assert_int_not_equal(pid, -1);

    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1) {
            _exit(3);
        }

        w->ready++;

        while (!w->begin) {
            usleep(100);
        }

        run(w, me);
        _exit(0);
    }

    return pid;
}


static void
run(world_t *w, void (*one)(world_t *w, int me))
{
    int    i, status;
    pid_t  pids[PROCESSES];

    for (i = 0; i < PROCESSES; i++) {
        pids[i] = spawn(one, w, i);
    }

    while (w->ready != PROCESSES) {
        usleep(100);
    }

    w->begin = 1;

    for (i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }

    w->ready = 0;
    w->begin = 0;
}


/* Asks and reports as a worker does, by a clock that all push forward. */
static void
hammer(world_t *w, int me)
{
    int                              i, probe;
    uint32_t                         random;
    uint64_t                         now_ms, wait_ms;
    ngx_ratelimit_breaker_advice_e   advice;
    ngx_ratelimit_breaker_change_e   change;
    ngx_ratelimit_breaker_outcome_e  outcome;

    random = me + 1;

    for (i = 0; i < ROUNDS; i++) {
        random = random * 1664525 + 1013904223;
        now_ms = w->now_ms;

        if (random >> 28 == 0) {
            w->now_ms++;
        }

        advice = ngx_ratelimit_breaker_ask(&w->breaker, now_ms, NEVER,
                                           &wait_ms);

        if (advice == NGX_RATELIMIT_BREAKER_REFUSE) {
            w->now_ms++;
            continue;
        }

        probe = (advice == NGX_RATELIMIT_BREAKER_PROBE);

        if (probe) {
            w->probes++;

            /* nobody's is lost here, so there is one */
            w->wrong += (++w->probing != 1);
        }

        outcome = (random >> 8) % 3;

        if (probe) {
            w->probing--;
        }

        change = ngx_ratelimit_breaker_report(&w->breaker, outcome, probe,
                                              w->now_ms, random >> 4);

        switch (change) {

        case NGX_RATELIMIT_BREAKER_OPENED:
            w->opened++;
            break;

        case NGX_RATELIMIT_BREAKER_CLOSED_NOW:
            w->closed++;
            w->wrong += !probe || outcome != NGX_RATELIMIT_BREAKER_GOOD;
            break;

        default:
            w->wrong += (probe && outcome == NGX_RATELIMIT_BREAKER_GOOD);
        }
    }
}


static void
test_hammer(void **state)
{
    uint64_t  open;
    world_t  *w;

    (void) state;

    w = world();
    run(w, hammer);

    open = (ngx_ratelimit_breaker_state(&w->breaker)
            != NGX_RATELIMIT_BREAKER_CLOSED);

    /* what opened has closed again, but the last one maybe */

    assert_int_equal(w->opened - w->closed, open);
    assert_true(w->opened > 100);
    assert_true(w->probes >= w->closed);
    assert_int_equal(w->wrong, 0);

    munmap(w, sizeof(world_t));
}


/* All see three timeouts at once. */
static void
time_out(world_t *w, int me)
{
    int  i;

    for (i = 0; i < 3; i++) {
        w->opened += (ngx_ratelimit_breaker_report(&w->breaker,
                                         NGX_RATELIMIT_BREAKER_TIMED_OUT, 0,
                                         w->now_ms, me)
                      == NGX_RATELIMIT_BREAKER_OPENED);
    }
}


static void
ask_once(world_t *w, int me)
{
    uint64_t  wait_ms;

    (void) me;

    w->probes += (ngx_ratelimit_breaker_ask(&w->breaker, w->now_ms, LOST,
                                            &wait_ms)
                  == NGX_RATELIMIT_BREAKER_PROBE);
}


static void
close_it(world_t *w, int me)
{
    w->closed += (ngx_ratelimit_breaker_report(&w->breaker,
                                     NGX_RATELIMIT_BREAKER_GOOD, 1, w->now_ms,
                                     me)
                  == NGX_RATELIMIT_BREAKER_CLOSED_NOW);
}


static void
test_each_change_once(void **state)
{
    int       i;
    world_t  *w;

    (void) state;

    w = world();

    for (i = 1; i <= 50; i++) {
        run(w, time_out);
        assert_int_equal(w->opened, i);

        w->now_ms += 700;
        run(w, ask_once);
        assert_int_equal(w->probes, i);

        run(w, close_it);
        assert_int_equal(w->closed, i);

        w->now_ms += 700;
    }

    munmap(w, sizeof(world_t));
}


static void
die(world_t *w, int me)
{
    int                              i;
    uint64_t                         wait_ms;
    ngx_ratelimit_breaker_outcome_e  outcome;

    (void) me;

    for (i = 0; ; i++) {
        outcome = i % 3;
        (void) ngx_ratelimit_breaker_report(&w->breaker, outcome, i % 2,
                                            w->now_ms, i);
        (void) ngx_ratelimit_breaker_ask(&w->breaker, w->now_ms, LOST,
                                         &wait_ms);
        w->now_ms++;
    }
}


/* Killed anywhere: what is left behind closes again. */
static void
test_killed(void **state)
{
    int       i, j, status;
    pid_t     pid;
    world_t  *w;
    uint64_t  wait_ms;

    (void) state;

    w = world();
    w->begin = 1;

    for (i = 0; i < 200; i++) {
        pid = spawn(die, w, i);

        while (!w->ready) {
            usleep(50);
        }

        usleep(i % 20 * 50);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        w->ready = 0;

        for (j = 0; j < 3; j++) {
            (void) ngx_ratelimit_breaker_report(&w->breaker,
                                          NGX_RATELIMIT_BREAKER_TIMED_OUT, 0,
                                          w->now_ms, 0);
        }

        w->now_ms += NGX_RATELIMIT_BREAKER_MAX_MS + LOST;

        assert_int_equal(ngx_ratelimit_breaker_ask(&w->breaker, w->now_ms,
                                                   LOST, &wait_ms),
                         NGX_RATELIMIT_BREAKER_PROBE);
        assert_int_equal(ngx_ratelimit_breaker_report(&w->breaker,
                                          NGX_RATELIMIT_BREAKER_GOOD, 1,
                                          w->now_ms, 0),
                         NGX_RATELIMIT_BREAKER_CLOSED_NOW);
    }

    munmap(w, sizeof(world_t));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_hammer),
        cmocka_unit_test(test_each_change_once),
        cmocka_unit_test(test_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

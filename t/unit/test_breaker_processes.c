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

#include "ngx_rl_breaker.h"

#define PROCESSES  6
#define ROUNDS     200000
#define LOST       2000
#define NEVER      ((uint64_t) 1 << 40)

/* in memory that all share */
typedef struct {
    ngx_rl_breaker_t  breaker;
    _Atomic uint64_t         now_ms;
    _Atomic uint64_t         opened;
    _Atomic uint64_t         readmits;
    _Atomic uint64_t         closed;
    _Atomic uint64_t         probes;
    _Atomic uint64_t         probing;   /* at a time */
    _Atomic uint64_t         wrong;
    _Atomic uint64_t         ready;
    _Atomic uint64_t         begin;
} world_t;


static ngx_rl_breaker_good_t  kept;   /* each process has its own */


static world_t *
world(void)
{
    world_t *w = mmap(NULL, sizeof(world_t), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(w, MAP_FAILED);

    w->now_ms = 1000000;

    return w;
}


/* A child, which does not outlive a test that failed. */
static pid_t
spawn(void (*run)(world_t *w, int me), world_t *w, int me)
{
    pid_t pid = fork();
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
    int    status;
    pid_t  pids[PROCESSES];

    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = spawn(one, w, i);
    }

    while (w->ready != PROCESSES) {
        usleep(100);
    }

    w->begin = 1;

    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }

    w->ready = 0;
    w->begin = 0;
}


static ngx_rl_breaker_now_t
now_of(world_t *w, uint32_t random)
{
    ngx_rl_breaker_now_t  now;

    now.ms = w->now_ms;
    now.timeout_ms = 50;
    now.random = random;

    return now;
}


static void
note(world_t *w, ngx_rl_breaker_change_e change)
{
    w->opened += (change == NGX_RL_BREAKER_OPENED);
    w->readmits += (change == NGX_RL_BREAKER_READMITS_NOW);
    w->closed += (change == NGX_RL_BREAKER_CLOSED_NOW);
}


/* Asks and reports as a worker does, by a clock that all push forward. */
static void
hammer(world_t *w, int me)
{
    ngx_rl_breaker_change_e  change;

    uint32_t random = me + 1;
    uint32_t credit = 0;

    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525 + 1013904223;
        ngx_rl_breaker_now_t now = now_of(w, random >> 4);

        if (random >> 28 == 0) {
            w->now_ms++;
        }

        if (ngx_rl_breaker_ask(&w->breaker, &now, &credit) == 0) {
            ngx_rl_breaker_outcome_e outcome = (random >> 8) % 5;

            if (outcome == NGX_RL_BREAKER_GOOD) {
                note(w, ngx_rl_breaker_heard(&w->breaker,
                                   NGX_RL_BREAKER_REPLY_GOOD, now.ms));
            }

            note(w, ngx_rl_breaker_report(&w->breaker, &kept, outcome, &now));
            continue;
        }

        w->now_ms++;
        note(w, ngx_rl_breaker_settle(&w->breaker, &now));

        if (ngx_rl_breaker_probe(&w->breaker, now.ms, NEVER) == 0) {
            w->probes++;

            /* nobody's is lost here, so there is one */
            w->wrong += (++w->probing != 1);
            int good = (random >> 8) % 2;
            w->probing--;

            change = ngx_rl_breaker_probed(&w->breaker, good, &now);
            note(w, change);
            w->wrong += !good && change != NGX_RL_BREAKER_SAME;
        }
    }
}


static void
test_hammer(void **state)
{
    world_t *w = world();
    run(w, hammer);

    /* what opened has closed again, or readmits, but the last one maybe */

    uint64_t open = (ngx_rl_breaker_state(&w->breaker) == NGX_RL_BREAKER_OPEN);
    uint64_t before = w->opened - open;

    assert_true(w->closed + w->readmits >= before);
    assert_true(w->closed <= w->opened);
    assert_true(w->readmits <= w->opened);
    assert_true(w->opened > 100);
    assert_true(w->readmits > 0);
    assert_int_equal(w->wrong, 0);

    munmap(w, sizeof(world_t));
}


/* All see three timeouts at once. */
static void
time_out(world_t *w, int me)
{
    for (int i = 0; i < 3; i++) {
        ngx_rl_breaker_now_t now = now_of(w, me);
        note(w, ngx_rl_breaker_report(&w->breaker, &kept,
                                      NGX_RL_BREAKER_TIMED_OUT, &now));
    }
}


static void
probe_once(world_t *w, int me)
{
    (void) me;

    w->probes += (ngx_rl_breaker_probe(&w->breaker, w->now_ms, LOST) == 0);
}


static void
hear(world_t *w, int me)
{
    (void) me;

    note(w, ngx_rl_breaker_heard(&w->breaker, NGX_RL_BREAKER_REPLY_GOOD,
                                 w->now_ms));
}


static void
test_each_change_once(void **state)
{
    world_t *w = world();

    for (int i = 1; i <= 50; i++) {
        run(w, time_out);
        assert_int_equal(w->opened, i);

        w->now_ms += 700;
        run(w, probe_once);
        assert_int_equal(w->probes, i);

        run(w, hear);
        assert_int_equal(w->closed, i);

        w->now_ms += 700;
    }

    munmap(w, sizeof(world_t));
}


static void
die(world_t *w, int me)
{
    (void) me;

    for (int i = 0; ; i++) {
        ngx_rl_breaker_now_t now = now_of(w, i);
        (void) ngx_rl_breaker_report(&w->breaker, &kept, i % 4, &now);
        (void) ngx_rl_breaker_probe(&w->breaker, now.ms, LOST);
        (void) ngx_rl_breaker_probed(&w->breaker, i % 2, &now);
        (void) ngx_rl_breaker_heard(&w->breaker, i % 3, now.ms);
        w->now_ms++;
    }
}


/* Killed anywhere: what is left behind closes again, and works. */
static void
test_killed(void **state)
{
    int                   status;
    ngx_rl_breaker_now_t  now;

    world_t *w = world();
    w->begin = 1;

    for (int i = 0; i < 200; i++) {
        pid_t pid = spawn(die, w, i);

        while (!w->ready) {
            usleep(50);
        }

        usleep(i % 20 * 50);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        w->ready = 0;

        /* as a worker that comes by once a second */

        for (int j = 0; j < 30; j++) {
            w->now_ms += NGX_RL_BREAKER_MAX_MS + LOST;
            now = now_of(w, 0);
            (void) ngx_rl_breaker_settle(&w->breaker, &now);

            if (ngx_rl_breaker_probe(&w->breaker, now.ms, LOST) == 0) {
                (void) ngx_rl_breaker_probed(&w->breaker, 1, &now);
            }
        }

        assert_int_equal(ngx_rl_breaker_state(&w->breaker),
                         NGX_RL_BREAKER_CLOSED);

        for (int j = 0; j < 3; j++) {
            (void) ngx_rl_breaker_report(&w->breaker, &kept,
                                         NGX_RL_BREAKER_TIMED_OUT, &now);
        }

        assert_int_equal(ngx_rl_breaker_state(&w->breaker),
                         NGX_RL_BREAKER_OPEN);
    }

    munmap(w, sizeof(world_t));
}

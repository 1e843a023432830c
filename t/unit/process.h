/*
 * Children of tests, killed where the test wants it. Each process has a life,
 * as a worker has, so that the others know whether it is alive.
 */

#ifndef PROCESS_H_INCLUDED
#define PROCESS_H_INCLUDED

#include "unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "ngx_rl_lock.h"

static ngx_rl_lives_t  *lives;


/* Begins the life of this process. */
static inline void
live(void)
{
    if (lives == NULL) {
        lives = mmap(NULL, ngx_rl_lives_size(), PROT_READ|PROT_WRITE,
                     MAP_SHARED|MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(lives, MAP_FAILED);
        assert_int_equal(ngx_rl_lives_init(lives), NGX_OK);
    }

    assert_int_equal(ngx_rl_life_begin(lives), NGX_OK);
}


/* A child, which does not outlive a test that failed. */
static inline pid_t
spawn(void)
{
    if (ngx_rl_life == NGX_RL_LIFE_NONE) {
        live();
    }

    pid_t pid = fork();
    assert_int_not_equal(pid, -1);

    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1) {
            _exit(3);
        }

        live();
    }

    return pid;
}


/* signo 0: it has exited with 0. */
static inline void
reap(pid_t pid, int signo)
{
    int  status;

    assert_int_equal(waitpid(pid, &status, 0), pid);

    if (signo) {
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signo);

    } else {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}


/* In a spawned child: what follows runs under the parent's step_kill(). */
static inline void
step_begin(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1) {
        _exit(2);
    }

    raise(SIGSTOP);
}


/* It never returns: the parent kills the child here. */
static inline void
step_end(void)
{
    for ( ;; ) {
        raise(SIGSTOP);
    }
}


/*
 * Runs the child from step_begin() on, instruction by instruction, and kills it
 * after kill_at of them, or at its step_end(). Calls look after each one, where
 * there is one. Returns how many there were.
 */
static inline int
step_kill(pid_t pid, int kill_at, void (*look)(void *data), void *data)
{
    int  status, steps;

    assert_int_equal(waitpid(pid, &status, 0), pid);

    if (!WIFSTOPPED(status)) {
        print_message("ptrace is not allowed here\n");
        skip();
    }

    for (steps = 0; steps < kill_at; steps++) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));

        if (WSTOPSIG(status) == SIGSTOP) {
            break;
        }

        assert_int_equal(WSTOPSIG(status), SIGTRAP);

        if (look) {
            look(data);
        }
    }

    kill(pid, SIGKILL);
    reap(pid, SIGKILL);

    return steps;
}


/*
 * Of the steps of a child those to kill it at: *at becomes the first one, what
 * is returned is the distance to the next. Without RATELIMIT_FULL a few, which
 * are others in each run.
 */
static inline int
step_choose(int steps, int *at)
{
    int stride = 1 + steps / full_or(400, 40);
    *at = full_or(0, seed_new() % stride);

    return stride;
}

#endif /* PROCESS_H_INCLUDED */

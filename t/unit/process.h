/*
 * Children of tests. Included behind cmocka's headers.
 */

#ifndef PROCESS_H_INCLUDED
#define PROCESS_H_INCLUDED

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>


/* A child, which does not outlive a test that failed. */
static inline pid_t
spawn(void)
{
    pid_t  pid;

    pid = fork();
    assert_int_not_equal(pid, -1);

    if (pid == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == -1) {
        _exit(3);
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

#endif /* PROCESS_H_INCLUDED */

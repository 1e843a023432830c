/* One line of a kind in an interval, and the number of those suppressed. */

#include "unit.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "ngx_rl_tally.h"

#define MS          NGX_RL_LOG_MS
#define PROCESSES   4
#define LINES       20000


static void
test_one_in_an_interval(void **state)
{
    char                note[NGX_RL_LOG_NOTE];

    ngx_rl_log_limit_t limit = { 0 };

    /* a process may read its clock as 0 */

    assert_true(ngx_rl_log_due(&limit, 0, MS, note));
    assert_string_equal(note, "");
    assert_false(ngx_rl_log_due(&limit, 0, MS, note));

    assert_true(ngx_rl_log_due(&limit, 5000, MS, note));
    assert_string_equal(note, " (1 similar line suppressed)");

    /* a second is a thousand milliseconds, wherever it begins */

    assert_false(ngx_rl_log_due(&limit, 5001, MS, note));
    assert_false(ngx_rl_log_due(&limit, 5999, MS, note));
    assert_true(ngx_rl_log_due(&limit, 6000, MS, note));
    assert_string_equal(note, " (2 similar lines suppressed)");

    assert_true(ngx_rl_log_due(&limit, 7000, MS, note));
    assert_string_equal(note, "");

    /* another process has a later time; and the clock was set back */

    assert_false(ngx_rl_log_due(&limit, 6990, MS, note));
    assert_true(ngx_rl_log_due(&limit, 100, MS, note));
    assert_string_equal(note, " (1 similar line suppressed)");
}


static void
test_interval(void **state)
{
    char                note[NGX_RL_LOG_NOTE];

    ngx_rl_log_limit_t limit = { 0 };

    assert_true(ngx_rl_log_due(&limit, 5000, 60000, note));
    assert_false(ngx_rl_log_due(&limit, 64999, 60000, note));
    assert_true(ngx_rl_log_due(&limit, 65000, 60000, note));

    /* the longest note fits */

    limit.suppressed = UINT64_MAX;

    assert_true(ngx_rl_log_due(&limit, 165000, 60000, note));
    assert_int_equal(strlen(note) + 1, NGX_RL_LOG_NOTE);
}


/* Processes share a limit: every line is written or counted, none twice. */
static void
test_processes(void **state)
{
    int                         status;
    char                        note[NGX_RL_LOG_NOTE];
    pid_t                       pids[PROCESSES];
    _Atomic uint64_t           *total;

    ngx_rl_log_limit_t *limit = mmap(NULL, 4096, PROT_READ|PROT_WRITE,
                                     MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(limit, MAP_FAILED);

    total = (_Atomic uint64_t *) (limit + 1);

    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            for (int j = 1; j <= LINES; j++) {
                if (ngx_rl_log_due(limit, j, MS, note)) {
                    atomic_fetch_add(total, 1 + strtoul(note[0] ? note + 2
                                                         : "0",
                                                        NULL, 10));
                }
            }

            _exit(0);
        }
    }

    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }

    assert_int_equal(*total + limit->suppressed, PROCESSES * LINES);

    munmap(limit, 4096);
}

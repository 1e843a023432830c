/*
 * The shared of slot maps: processes that publish at once, that are killed or
 * stopped while they do. Nobody ever reads a mixed map, and a map
 * can be published again at once.
 */

#include "slot_map.h"

#include "process.h"

static struct {
    ngx_ratelimit_slot_shared_t  *shared;
} stop;


static size_t
pages(void)
{
    return sizeof(ngx_ratelimit_slot_shared_t) / sysconf(_SC_PAGESIZE) + 1;
}


static int
publish(ngx_ratelimit_slot_shared_t *shared, unsigned n)
{
    int                        published;
    uint64_t                   head;
    ngx_ratelimit_slot_map_t  *map;

    map = map_new();
    map_version(map, n);
    head = ngx_ratelimit_slot_shared_head(shared);
    published = ngx_ratelimit_slot_shared_publish(shared, map, &head);
    free(map);

    return published;
}


/* The number of the map on the shared, 0: none that is whole. */
static unsigned
published(ngx_ratelimit_slot_shared_t *shared)
{
    unsigned                   n;
    uint64_t                   head;
    ngx_ratelimit_slot_map_t  *map;

    map = map_new();
    n = 0;

    if (ngx_ratelimit_slot_shared_read(shared, map, &head)) {
        n = map_is(map);
        assert_int_not_equal(n, 0);
    }

    free(map);

    return n;
}


/* Has the generation on the shared even (0) or odd. */
static void
parity(ngx_ratelimit_slot_shared_t *shared, unsigned odd)
{
    static unsigned  n = 50000;

    while ((ngx_ratelimit_slot_shared_head(shared) >> 32) % 2 != odd) {
        assert_int_equal(publish(shared, ++n), 1);
    }
}


/* The first store into a page that is not writable: stops, then goes on. */
static void
faulted(int signo)
{
    (void) signo;

    if (mprotect(stop.shared, sizeof(*stop.shared), PROT_READ | PROT_WRITE)
        == -1)
    {
        _exit(4);
    }

    raise(SIGSTOP);
}


/*
 * A child that publishes map n and is stopped when it first writes to the given
 * page of the shared. Returns 0 where it has not and has ended.
 */
static pid_t
publisher(ngx_ratelimit_slot_shared_t *shared, unsigned n, size_t page)
{
    int                        status;
    pid_t                      pid;
    size_t                     size;
    uint64_t                   head;
    struct sigaction           action;
    ngx_ratelimit_slot_map_t  *map;

    pid = spawn();

    if (pid == 0) {
        size = (size_t) sysconf(_SC_PAGESIZE);
        map = map_new();
        map_version(map, n);
        head = ngx_ratelimit_slot_shared_head(shared);

        memset(&action, 0, sizeof(action));
        action.sa_handler = faulted;
        stop.shared = shared;

        if (sigaction(SIGSEGV, &action, NULL) == -1
            || mprotect((char *) shared + page * size, size, PROT_READ) == -1)
        {
            _exit(2);
        }

        (void) ngx_ratelimit_slot_shared_publish(shared, map, &head);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);

    if (WIFSTOPPED(status)) {
        return pid;
    }

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);

    return 0;
}


/* Killed anywhere, it leaves the old map. */
static void
test_killed(void **state)
{
    pid_t                        pid;
    size_t                       page, killed;
    unsigned                     n;
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();
    assert_int_equal(publish(shared, 1), 1);
    killed = 0;

    /* into the words of odd and of even generations, and into head */

    for (n = 2; n < 4; n++) {
        for (page = 0; page < pages(); page++) {
            parity(shared, n % 2);
            assert_int_equal(publish(shared, 100 * n + page), 1);

            pid = publisher(shared, 10000 + 100 * n + page, page);

            if (pid == 0) {
                assert_int_equal(published(shared), 10000 + 100 * n + page);
                continue;
            }

            kill(pid, SIGKILL);
            reap(pid, SIGKILL);
            killed++;

            assert_int_equal(published(shared), 100 * n + page);
        }
    }

    assert_true(killed >= 20);
    shared_free(shared);
}


/*
 * Stopped anywhere while others publish once, twice or three times, it leaves
 * their last map, or none that is whole; never its own, which is old by then,
 * and never a mixed one. The next one that publishes mends that.
 */
static void
test_stopped(void **state)
{
    pid_t                        pid;
    size_t                       page;
    unsigned                     i, is, others, stopped, none;
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();
    assert_int_equal(publish(shared, 1), 1);
    stopped = none = 0;

    for (i = 0; i < 6; i++) {
        for (page = 0; page < pages(); page++) {
            parity(shared, i % 2);
            pid = publisher(shared, 1000 + page, page);

            if (pid == 0) {
                continue;
            }

            stopped++;

            for (others = 0; others <= i % 3; others++) {
                assert_int_equal(publish(shared, 2000 + 10 * page + others),
                                 1);
                is = published(shared);
                assert_int_equal(is, 2000 + 10 * page + others);
            }

            kill(pid, SIGCONT);
            reap(pid, 0);
            is = published(shared);
            none += (is == 0);
            assert_true(is == 0 || is == 2000 + 10 * page + others - 1);

            assert_int_equal(publish(shared, 5000 + page), 1);
            assert_int_equal(published(shared), 5000 + page);
        }
    }

    print_message("stopped %u times, none was whole %u times\n", stopped,
                  none);
    assert_true(stopped >= 20);
    assert_true(none > 0);
    shared_free(shared);
}


/* Four publish without end and are killed; two read without end. */
static void
test_storm(void **state)
{
    enum { KILLS = 200, WRITERS = 4, READERS = 2 };

    int                          i, n;
    pid_t                        writers[WRITERS], readers[READERS];
    uint64_t                     head;
    ngx_ratelimit_slot_map_t    *map;
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();
    assert_int_equal(publish(shared, 1), 1);
    map = map_new();

    for (i = 0; i < READERS; i++) {
        readers[i] = spawn();

        if (readers[i] == 0) {
            while (atomic_load(&shared->asked) == 0) {
                if (ngx_ratelimit_slot_shared_read(shared, map, &head)
                    && map_is(map) == 0)
                {
                    _exit(1);
                }
            }

            _exit(0);
        }
    }

    memset(writers, 0, sizeof(writers));

    for (i = 0; i < KILLS; i++) {
        n = i % WRITERS;

        if (writers[n]) {
            kill(writers[n], SIGKILL);
            reap(writers[n], SIGKILL);
        }

        writers[n] = spawn();

        if (writers[n] == 0) {
            for (n = 1; /* until killed */ ; n++) {
                (void) publish(shared, 1 + (mix(n) + i) % 60000);
            }
        }

        usleep(500 + mix(i) % 3000);
    }

    for (i = 0; i < WRITERS; i++) {
        kill(writers[i], SIGKILL);
        reap(writers[i], SIGKILL);
    }

    atomic_store(&shared->asked, 1);

    for (i = 0; i < READERS; i++) {
        reap(readers[i], 0);
    }

    assert_true(ngx_ratelimit_slot_shared_head(shared) >> 32 > KILLS);
    assert_int_equal(publish(shared, 7), 1);
    assert_int_equal(published(shared), 7);
    free(map);
    shared_free(shared);
}


/* Of many that take the right at once one has it. */
static void
test_right(void **state)
{
    enum { PROCESSES = 4, TIMES = 30000, INTERVAL = 7 };

    int                          i, n;
    pid_t                        pid[PROCESSES];
    uint64_t                     now, last;
    _Atomic uint64_t            *clock;
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();
    clock = &shared->words[1][0];

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = spawn();

        if (pid[i] == 0) {
            for (n = 0; n < TIMES; n++) {
                now = atomic_fetch_add(clock, 1) / 4 + 1;

                if (ngx_ratelimit_slot_shared_take(shared, now, INTERVAL) == 0)
                {
                    atomic_fetch_add(&shared->words[0][now], 1);
                }
            }

            _exit(0);
        }
    }

    for (i = 0; i < PROCESSES; i++) {
        reap(pid[i], 0);
    }

    for (now = 1, last = 0; now <= TIMES; now++) {
        assert_in_range(shared->words[0][now], 0, 1);

        if (shared->words[0][now]) {
            assert_true(last == 0 || now - last >= INTERVAL);
            last = now;
        }
    }

    assert_true(last > 0);
    shared_free(shared);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_right),
    };

    alarm(300);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

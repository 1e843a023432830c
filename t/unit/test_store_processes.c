/*
 * The store of many processes: writers are killed behind every instruction, and
 * at random; what is read beside them is whole, and old or new.
 */

#include "store.h"

#define MAX        1000
#define LARGE      ((size_t) 1024 * 1024)
#define MAX_STEPS  20000


static void
test_leader(void **state)
{
    int              i, n, up[2], down[2];
    char             c;

    ngx_rl_store_t *store = store_make(MAX);

    for (i = 0; i < 20; i++) {
        assert_int_equal(pipe(up), 0);
        assert_int_equal(pipe(down), 0);
        pid_t pid = spawn();

        if (pid == 0) {
            /* twice: who leads is told so */
            for (n = 0; n < 2; n++) {
                if (!ngx_rl_lock_lead(&store->leader)
                    || write(up[1], "x", 1) != 1)
                {
                    _exit(1);
                }
            }

            if (read(down[0], &c, 1) != 1) {
                _exit(1);
            }

            if (i % 3 == 1) {
                ngx_rl_lock_leave(&store->leader);

                /* once more is nothing, also where another one leads */
                if (write(up[1], "x", 1) != 1 || read(down[0], &c, 1) != 1) {
                    _exit(1);
                }

                ngx_rl_lock_leave(&store->leader);
            }

            if (i % 3 == 2) {
                pause();
            }

            _exit(0);
        }

        assert_int_equal(read(up[0], &c, 1), 1);
        assert_false(ngx_rl_lock_lead(&store->leader));
        ngx_rl_lock_leave(&store->leader);
        assert_int_equal(read(up[0], &c, 1), 1);
        assert_false(ngx_rl_lock_lead(&store->leader));

        assert_int_equal(write(down[1], "x", 1), 1);

        if (i % 3 == 1) {
            assert_int_equal(read(up[0], &c, 1), 1);
            assert_true(ngx_rl_lock_lead(&store->leader));
            assert_int_equal(write(down[1], "x", 1), 1);
        }

        if (i % 3 == 2) {
            kill(pid, SIGKILL);
        }

        reap(pid, i % 3 == 2 ? SIGKILL : 0);

        assert_true(ngx_rl_lock_lead(&store->leader));
        assert_true(ngx_rl_lock_lead(&store->leader));
        ngx_rl_lock_leave(&store->leader);

        close(up[0]);
        close(up[1]);
        close(down[0]);
        close(down[1]);
    }

    store_free(store);
}


/*
 * Publishes in a child instruction by instruction, and kills it after the given
 * number of them, or at its end. Returns how many there were.
 */
static int
step(ngx_rl_store_t *store, const ngx_rl_store_entry_t *entry, int kill_at)
{
    pid_t pid = spawn();

    if (pid == 0) {
        step_begin();
        ngx_rl_store_publish(store, entry, ANY, 0);
        step_end();
    }

    return step_kill(pid, kill_at, NULL, NULL);
}


/*
 * Whatever instruction is the last: the record before is the current one, or
 * the new one, whole. The next one can be published.
 */
static void
test_every_instruction(void **state)
{
    int                    i, old, new;
    u_char                 bytes[MAX];
    uint64_t               v;
    ngx_rl_store_entry_t   entry;

    ngx_rl_store_t *store = store_make(MAX);
    publish(store, 1, 900);
    publish(store, 2, 700);
    publish(store, 3, 500);

    entry.text.data = bytes;
    entry.text.len = 600;

    int steps = MAX_STEPS;
    int stride = 1;
    old = new = 0;

    for (i = 0, v = 4; i < steps; i += stride, v++) {
        entry.version = v;
        entry.id = 10 * v;
        record_fill(bytes, v, 10 * v, 600);

        if (i == 0) {
            steps = step(store, &entry, MAX_STEPS);
            assert_in_range(steps, 100, MAX_STEPS - 1);
            assert_int_equal(current(store), v);

            /* with sanitizers there are thousands */
            stride = 1 + steps / full_or(600, 60);
            continue;
        }

        assert_int_equal(current(store), v - 1);
        step(store, &entry, i);
        uint64_t now = current(store);

        if (now == v) {
            new++;
            continue;
        }

        old++;
        assert_int_equal(now, v - 1);

        /* the lock can be had; what was half is not in the way */
        publish(store, v, 600);
        assert_int_equal(current(store), v);
        assert_true(ngx_rl_store_had(store, v - 1, 10 * (v - 1)));
    }

    print_message("%d deaths: %d before, %d after\n", old + new, old, new);
    assert_true(old > full_or(50, 10) && new > full_or(5, 0));
    store_free(store);
}


/*
 * Two writers, killed at random; readers beside them. Each writer takes the
 * next version by compare-and-set: none of those that succeeded is lost.
 */
static void
test_crashes(void **state)
{
    enum { KILLS = 400 };

    int                           i;
    pid_t                         pid[2];
    size_t                        n;
    uint64_t                      version, id, last, whole;
    ngx_rl_store_t        *store;
    ngx_rl_store_entry_t   all;

    store = store_make(LARGE);
    pid[0] = pid[1] = 0;
    last = whole = 0;

    for (i = 0; i < KILLS; i++) {
        if (pid[i % 2]) {
            kill(pid[i % 2], SIGKILL);
            reap(pid[i % 2], SIGKILL);
        }

        pid[i % 2] = spawn();

        if (pid[i % 2] == 0) {
            for (n = mix(i); /* until killed */ ; n = mix(n)) {
                ngx_rl_store_version(store, &version, &id);

                if (id != 10 * version) {
                    _exit(1);
                }

                if (publish_at(store, version + 1, 10 * (version + 1),
                               HEAD + n % (LARGE / 8), version, id)
                    == NGX_ERROR)
                {
                    _exit(2);
                }
            }
        }

        if (get(store, &all) != NGX_OK) {
            continue;
        }

        assert_true(all.version >= last);
        assert_int_equal(all.id, 10 * all.version);
        last = all.version;

        assert_int_equal(record_whole(all.text.data, all.text.len, &version),
                         all.text.len);
        assert_int_equal(version, last);
        whole++;

        usleep(mix(i) % 500);
    }

    for (i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        reap(pid[i], SIGKILL);
    }

    print_message("%lu versions, %lu records read in %d kills\n", last, whole,
                  KILLS);
    assert_true(last > 100 && whole > 300);
    assert_int_equal(ngx_rl_store_generation(store),
                     (ngx_rl_store_version(store, &version, &id), version));
    store_free(store);
}


/* Nobody alive lets go of the lock: what must not wait for it does not. */
static void
test_locked(void **state)
{
    int                    status;
    u_char                 bytes[MAX];
    uint64_t               version, id;
    ngx_rl_store_entry_t   entry;

    ngx_rl_store_t *store = store_make(MAX);
    publish(store, 1, 100);
    publish(store, 2, 100);

    /* stops in the middle: what it copies from cannot be read */
    pid_t pid = spawn();

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1) {
            _exit(2);
        }

        entry.version = 3;
        entry.id = 30;
        entry.text.len = MAX;
        entry.text.data = mmap(NULL, 4096, PROT_NONE,
                               MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
        ngx_rl_store_publish(store, &entry, ANY, 0);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    if (!WIFSTOPPED(status)) {
        print_message("ptrace is not allowed here\n");
        skip();
    }

    assert_int_equal(WSTOPSIG(status), SIGSEGV);

    assert_int_equal(ngx_rl_store_generation(store), 2);
    ngx_rl_store_version(store, &version, &id);
    assert_int_equal(version, 2);
    assert_int_equal(current(store), 2);
    assert_true(ngx_rl_lock_lead(&store->leader));
    ngx_rl_lock_leave(&store->leader);

    kill(pid, SIGKILL);
    reap(pid, SIGKILL);

    record_fill(bytes, 3, 30, MAX);
    assert_int_equal(publish(store, 3, MAX), NGX_OK);
    assert_int_equal(current(store), 3);
    store_free(store);
}

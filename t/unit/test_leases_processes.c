/*
 * The table of leases: processes that compete for it, and what is left when
 * one dies in the middle of it.
 */

#include "leases.h"

#include <pthread.h>

#include "process.h"

#define MAX_STEPS  5000


/* A child that dies with the lease of n locked and half written. */
static void
die_locked(map_t map, uint64_t n)
{
    pid_t                         pid;
    lease_t                      *lease;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e;

    pid = spawn();

    if (pid == 0) {
        id = key(n);
        lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW, &e);

        if (lease == NULL) {
            _exit(1);
        }

        lease->busy_us = LATER + 99;
        lease->word[1] = 99;
        kill(getpid(), SIGKILL);
    }

    reap(pid, SIGKILL);
}


static void
test_owner_killed(void **state)
{
    int      found;
    map_t    map;
    lease_t  lease;

    (void) state;

    map = leases_make(NGX_RATELIMIT_LEASES_MIN_BYTES);
    assert_true(put(map, 1, NOW, LATER));
    assert_true(put(map, 2, NOW, LATER));

    /* what it had open is lost, and nothing else */
    die_locked(map, 1);
    assert_false(has(map, 1));
    assert_int_equal(get_id(map, key(2), &found).busy_us, LATER);
    assert_int_equal(stat_at(map, NOW).recovered, 1);
    assert_int_equal(stat_at(map, NOW).busy, 1);

    /* one that it made */
    die_locked(map, 3);
    assert_true(put(map, 3, NOW, LATER + 3));
    lease = get_id(map, key(3), &found);
    assert_int_equal(lease.busy_us, LATER + 3);
    assert_int_equal(lease.word[1], 0);
    assert_int_equal(stat_at(map, NOW).recovered, 2);

    /* the figures take a lock over as well, and count nothing of it */
    die_locked(map, 3);
    assert_int_equal(stat_at(map, NOW).recovered, 3);
    assert_int_equal(stat_at(map, NOW).busy, 1);
    assert_int_equal(stat_at(map, NOW).locked, 0);
    assert_false(has(map, 3));
    assert_int_equal(get_id(map, key(2), &found).busy_us, LATER);

    leases_free(map);
}


/* A lock that cannot be had: no lease, no effect, no waiting. */
static void
test_lock_lost(void **state)
{
    int                           i, found;
    map_t                         map;
    lease_t                      *lease;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e, twice;

    (void) state;

    map = leases_make(NGX_RATELIMIT_LEASES_MIN_BYTES);
    id = key(1);

    /* one's own */
    lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW, &e);
    assert_non_null(lease);
    assert_null(ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW, &twice));
    ngx_ratelimit_leases_unlock(&twice);
    assert_int_equal(stat_at(map, NOW).locked, 1);
    lease->busy_us = LATER;
    ngx_ratelimit_leases_unlock(&e);
    assert_int_equal(get_id(map, id, &found).busy_us, LATER);
    assert_int_equal(stat_at(map, NOW).locked, 0);

    /* one that was not made consistent */
    die_locked(map, 1);
    assert_int_equal(pthread_mutex_lock(e.segment), EOWNERDEAD);
    assert_int_equal(pthread_mutex_unlock(e.segment), 0);

    for (i = 0; i < 4; i++) {
        assert_null(ngx_ratelimit_leases_lock(map.leases, &id, i & 1, NOW,
                                              &e));
        ngx_ratelimit_leases_unlock(&e);
    }

    assert_int_equal(stat_at(map, NOW).locked, 1);
    leases_free(map);
}


/* The lock of a living process is seen as held, and waited for. */
static void
test_locked_elsewhere(void **state)
{
    int                           ready[2];
    char                          c;
    pid_t                         pid;
    map_t                         map;
    lease_t                      *lease;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_segments_stat_t   stat;
    ngx_ratelimit_lease_entry_t   e;

    (void) state;

    map = leases_make(MIB);
    assert_int_equal(pipe(ready), 0);
    pid = spawn();

    if (pid == 0) {
        id = key(1);
        lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW, &e);

        if (lease == NULL || write(ready[1], "x", 1) != 1) {
            _exit(1);
        }

        usleep(100000);
        lease->busy_us = LATER;
        ngx_ratelimit_leases_unlock(&e);
        _exit(0);
    }

    assert_int_equal(read(ready[0], &c, 1), 1);
    stat = stat_at(map, NOW);
    assert_int_equal(stat.locked, 1);
    assert_int_equal(stat.busy, 1);
    assert_int_equal(stat.recovered, 0);
    reap(pid, 0);

    close(ready[0]);
    close(ready[1]);
    leases_free(map);
}


static void
test_processes(void **state)
{
    enum { PROCESSES = 4, TIMES = 100000 };

    int                           i, n, found;
    map_t                         map;
    pid_t                         pid[PROCESSES];
    lease_t                      *lease;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e;

    (void) state;

    map = leases_make(MIB);
    id = key(1);

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = spawn();

        if (pid[i] == 0) {
            for (n = 0; n < TIMES; n++) {
                lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW,
                                                  &e);
                if (lease == NULL) {
                    _exit(1);
                }

                lease->busy_us = LATER;
                lease->word[n % WORDS]++;
                ngx_ratelimit_leases_unlock(&e);
            }

            _exit(0);
        }
    }

    for (i = 0; i < PROCESSES; i++) {
        reap(pid[i], 0);
    }

    for (i = 0, n = 0; i < (int) WORDS; i++) {
        n += get_id(map, id, &found).word[i];
    }

    assert_int_equal(n, PROCESSES * TIMES);
    assert_int_equal(stat_at(map, NOW).recovered, 0);
    leases_free(map);
}


/*
 * A lease is whole when all words follow from the first, which says whose it
 * is; or empty.
 */
static int
whole(const lease_t *lease, uint64_t n)
{
    size_t  i;

    if (lease->busy_us == 0) {
        for (i = 0; i < WORDS; i++) {
            if (lease->word[i] != 0) {
                return 0;
            }
        }

        return 1;
    }

    if (lease->word[0] >> 1 != n) {
        return 0;
    }

    for (i = 1; i < WORDS; i++) {
        if (lease->word[i] != mix(lease->word[0] + i)) {
            return 0;
        }
    }

    return 1;
}


static int
torn_put(map_t map, uint64_t n, uint64_t now_us, uint64_t busy_us,
    uint64_t version)
{
    int                           rc;
    size_t                        i;
    lease_t                      *lease;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e;

    id = key(n);
    lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, now_us, &e);

    if (lease == NULL) {
        return 1;
    }

    rc = whole(lease, n);

    lease->busy_us = busy_us;
    lease->word[0] = 2 * n + version;

    for (i = 1; i < WORDS; i++) {
        lease->word[i] = mix(lease->word[0] + i);
        __asm__ __volatile__ ("" : : : "memory");
    }

    ngx_ratelimit_leases_unlock(&e);

    return rc;
}


static void
assert_whole(map_t map, uint64_t n)
{
    lease_t                      *lease, copy;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e;

    id = key(n);
    lease = ngx_ratelimit_leases_lock(map.leases, &id, 0, NOW, &e);

    if (lease) {
        copy = *lease;
        ngx_ratelimit_leases_unlock(&e);
        assert_true(whole(&copy, n));
    }
}


/*
 * Runs a put in a child instruction by instruction, and kills it after the
 * given number of them, or at its end. Returns how many there were.
 */
static int
step(map_t map, uint64_t n, uint64_t version, int kill_at)
{
    pid_t  pid;

    pid = spawn();

    if (pid == 0) {
        step_begin();
        torn_put(map, n, NOW, LATER + 1, version);
        step_end();
    }

    return step_kill(pid, kill_at, NULL, NULL);
}


/*
 * A death behind every other instruction of one that finds its lease, or makes
 * it: in an empty place, or in one that was another's. n is the first key.
 */
static void
every_instruction(map_t map, uint64_t n, int made)
{
    int  i, steps, stride, lost;

    assert_true(put(map, 2, NOW, LATER));
    torn_put(map, 1, NOW, LATER, 0);

    lost = 0;
    steps = step(map, n, 1, MAX_STEPS);
    assert_in_range(steps, 50, MAX_STEPS - 1);
    assert_true(has(map, n));

    stride = step_choose(steps, &i);

    for ( /* void */ ; i < steps; i += stride) {
        n += made;
        assert_int_equal(has(map, n), !made);

        step(map, n, i & 1, i);

        assert_whole(map, n);
        assert_true(has(map, 2));
        assert_int_equal(stat_at(map, NOW).locked, 0);

        lost += !has(map, n);
        torn_put(map, n, NOW, LATER, 0);
        assert_whole(map, n);
    }

    assert_true(stat_at(map, NOW).recovered > (uint64_t) full_or(10, 0));
    assert_true(lost > full_or(10, 0));
}


static void
test_every_instruction(void **state)
{
    map_t     map;
    uint64_t  n;

    (void) state;

    map = leases_make(MIB);
    every_instruction(map, 1, 0);
    leases_free(map);

    map = leases_make(MIB);
    every_instruction(map, 100, 1);
    leases_free(map);

    map = leases_make(MIB);

    for (n = 0; n < 100000; n++) {
        torn_put(map, n, NOW, NOW, 0);
    }

    every_instruction(map, n, 1);
    leases_free(map);
}


/*
 * Children hammer a table that is too small for their keys, and are killed at
 * random moments. All locks can be had, no lease is torn, none of the places
 * is lost.
 */
static void
test_crashes(void **state)
{
    enum { KEYS = 1000 };

    const int  kills = full_or(4000, 400);

    int       i;
    pid_t     pid[2];
    map_t     map;
    uint64_t  n, t;

    (void) state;

    map = leases_make(NGX_RATELIMIT_LEASES_MIN_BYTES);
    pid[0] = pid[1] = 0;

    for (i = 0; i < kills; i++) {

        if (pid[i % 2]) {
            kill(pid[i % 2], SIGKILL);
            reap(pid[i % 2], SIGKILL);
        }

        pid[i % 2] = spawn();

        if (pid[i % 2] == 0) {
            t = NOW + i * 1000;

            for (n = mix(i); /* until killed */ ; n = mix(n)) {
                if (!torn_put(map, n % KEYS, t, t + n % 200, (n >> 40) & 1)) {
                    _exit(1);
                }

                t++;
            }
        }

        usleep(mix(i) % 500);
    }

    for (i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        reap(pid[i], SIGKILL);
    }

    for (n = 0; n < KEYS; n++) {
        assert_whole(map, n);
    }

    print_message("%lu locks taken over in %d kills\n",
                  stat_at(map, NOW).recovered, kills);
    assert_int_equal(stat_at(map, NOW).locked, 0);
    assert_true(stat_at(map, NOW).recovered > 0);

    for (n = 0; n < 10 * KEYS; n++) {
        put(map, KEYS + n, (uint64_t) LATER * 100, (uint64_t) LATER * 200);
    }

    assert_int_equal(stat_at(map, (uint64_t) LATER * 100).busy,
                     stat_at(map, NOW).places);
    leases_free(map);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_owner_killed),
        cmocka_unit_test(test_lock_lost),
        cmocka_unit_test(test_locked_elsewhere),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_every_instruction),
        cmocka_unit_test(test_crashes),
    };

    /* a lock that nobody hands on would stop the tests too */
    alarm(300);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

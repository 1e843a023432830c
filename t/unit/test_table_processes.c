/*
 * The table in shared memory: processes that compete for it, and what is left
 * when one dies in the middle of it.
 */

#include "table.h"

#include <pthread.h>

#include "process.h"

#define MAX_STEPS  5000


/* What stands in the table for an entry's counter, read without its lock. */
static void
peek(ngx_ratelimit_entry_t *e)
{
    int              i;
    const bucket_t  *bucket;

    e->found = 0;

    for (i = 0; i < 6; i++) {
        bucket = e->buckets[i / 3];

        if (bucket->tag[i % 3] == e->tag) {
            e->found = 1;
            e->state.fresh_us = bucket->word[i % 3] >> 12;
            e->state.aux = bucket->word[i % 3] & 0xfff;
            e->state.extra = bucket->extra[i % 3];
        }
    }
}


/* A child that has the lock of n and dies before it stores. */
static void
die_locked(ngx_ratelimit_table_t *table, uint64_t n)
{
    pid_t                  pid;
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  e;

    pid = spawn();

    if (pid == 0) {
        id = key(n);
        ngx_ratelimit_table_lock(table, &id, NOW, &e);
        e.state.fresh_us = LATER + 99;
        kill(getpid(), SIGKILL);
    }

    reap(pid, SIGKILL);
}


static void
test_owner_killed(void **state)
{
    map_t                       map;
    ngx_ratelimit_entry_t       e;
    ngx_ratelimit_segments_stat_t  stat;

    (void) state;

    map = table_make(MIB);
    put(map.table, 1, LATER, 1);

    die_locked(map.table, 1);

    e = get_id(map.table, key(1));
    assert_int_equal(e.found, 1);
    assert_int_equal(e.state.fresh_us, LATER);
    stat = stat_at(map.table, NOW);
    assert_int_equal(stat.recovered, 1);
    assert_int_equal(stat.locked, 0);

    /* the figures take a lock over as well, and it can be had again */
    die_locked(map.table, 1);
    assert_int_equal(stat_at(map.table, NOW).recovered, 2);
    put(map.table, 1, LATER + 1, 1);
    assert_int_equal(get_id(map.table, key(1)).state.fresh_us, LATER + 1);
    assert_int_equal(stat_at(map.table, NOW).recovered, 2);

    table_free(map);
}


/* A lock that cannot be had: no counter, no effect, no waiting. */
static void
test_lock_lost(void **state)
{
    int                    i;
    map_t                  map;
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  e, twice;

    (void) state;

    map = table_make(MIB);
    put(map.table, 1, LATER, 1);
    id = key(1);

    /* one's own */
    ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
    ngx_ratelimit_table_lock(map.table, &id, NOW, &twice);
    assert_int_equal(twice.found, 0);
    assert_int_equal(twice.state.fresh_us, 0);
    twice.state.fresh_us = LATER + 5;
    ngx_ratelimit_table_store(&twice, 1);
    assert_int_equal(stat_at(map.table, NOW).locked, 1);
    ngx_ratelimit_table_unlock(&e);
    e = get_id(map.table, id);
    assert_int_equal(e.state.fresh_us, LATER);
    assert_int_equal(copies(&e), 1);

    /* one that was not made consistent */
    die_locked(map.table, 1);
    assert_int_equal(pthread_mutex_lock(e.segment), EOWNERDEAD);
    assert_int_equal(pthread_mutex_unlock(e.segment), 0);

    for (i = 0; i < 3; i++) {
        ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
        assert_int_equal(e.found, 0);
        assert_int_equal(e.state.fresh_us, 0);
        e.state.fresh_us = LATER + 5;

        if (i == 0) {
            ngx_ratelimit_table_unlock(&e);

        } else {
            ngx_ratelimit_table_store(&e, 1);
        }
    }

    peek(&e);
    assert_int_equal(e.state.fresh_us, LATER);
    assert_int_equal(copies(&e), 1);
    assert_int_equal(stat_at(map.table, NOW).locked, 1);
    table_free(map);
}


/* The lock of a living process is seen as held, and waited for. */
static void
test_locked_elsewhere(void **state)
{
    char                        c;
    pid_t                       pid;
    map_t                       map;
    int                         ready[2];
    ngx_ratelimit_id_t          id;
    ngx_ratelimit_entry_t       e;
    ngx_ratelimit_segments_stat_t  stat;

    (void) state;

    map = table_make(MIB);
    assert_int_equal(pipe(ready), 0);
    id = key(1);
    pid = spawn();

    if (pid == 0) {
        ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
        e.state.fresh_us = LATER;

        if (write(ready[1], "x", 1) != 1) {
            _exit(1);
        }

        usleep(100000);
        ngx_ratelimit_table_store(&e, 1);
        _exit(0);
    }

    assert_int_equal(read(ready[0], &c, 1), 1);
    stat = stat_at(map.table, NOW);
    assert_int_equal(stat.locked, 1);
    assert_int_equal(stat.busy, 1);
    assert_int_equal(stat.recovered, 0);
    reap(pid, 0);

    close(ready[0]);
    close(ready[1]);
    table_free(map);
}


static void
test_processes(void **state)
{
    enum { PROCESSES = 4, TIMES = 100000 };

    int                    i, n;
    map_t                  map;
    pid_t                  pid[PROCESSES];
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  e;

    (void) state;

    map = table_make(MIB);
    id = key(1);

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = spawn();

        if (pid[i] == 0) {
            for (n = 0; n < TIMES; n++) {
                ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
                e.state.fresh_us = LATER;
                e.state.extra++;
                ngx_ratelimit_table_store(&e, 1);
            }

            _exit(0);
        }
    }

    for (i = 0; i < PROCESSES; i++) {
        reap(pid[i], 0);
    }

    assert_int_equal(get_id(map.table, id).state.extra, PROCESSES * TIMES);
    assert_int_equal(stat_at(map.table, NOW).recovered, 0);
    table_free(map);
}


/*
 * A counter's state is whole when aux and extra follow from fresh_us. Every
 * live slot of the table must hold what its tag's owner may have stored:
 * fresh_us in LATER + 2 * n and the one after.
 */
static void
torn_state(ngx_ratelimit_state_t *s, uint64_t n, uint64_t version)
{
    s->fresh_us = LATER + 2 * n + version;
    s->aux = s->fresh_us & 0xfff;
    s->extra = (uint32_t) mix(s->fresh_us);
}


static void
torn_put(ngx_ratelimit_table_t *table, uint64_t n, uint64_t version)
{
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  e;

    id = key(n);
    ngx_ratelimit_table_lock(table, &id, NOW, &e);
    torn_state(&e.state, n, version);
    ngx_ratelimit_table_store(&e, 1 + n % 255);
}


static void
assert_whole(const ngx_ratelimit_entry_t *e, uint64_t n)
{
    ngx_ratelimit_state_t  s;

    assert_in_range(copies(e), 0, 1);

    if (!e->found) {
        return;
    }

    assert_in_range(e->state.fresh_us, LATER + 2 * n, LATER + 2 * n + 1);
    torn_state(&s, n, e->state.fresh_us & 1);
    assert_int_equal(e->state.aux, s.aux);
    assert_int_equal(e->state.extra, s.extra);
}


typedef struct {
    ngx_ratelimit_entry_t  *entries;
    uint64_t                n;
} all_t;


static void
look_at_all(void *data)
{
    all_t     *all = data;
    uint64_t   i;

    for (i = 0; i < all->n; i++) {
        peek(&all->entries[i]);
        assert_whole(&all->entries[i], i);
    }
}


/*
 * Runs a store in a child instruction by instruction: after each of them all
 * the counters there may be hold the old state, the new one, or are not there.
 * Kills it after the given number of steps, or lets it end. Returns the steps.
 */
static int
step(ngx_ratelimit_table_t *table, uint64_t n, uint64_t version,
    ngx_ratelimit_entry_t *all, uint64_t nall, int kill_at)
{
    pid_t  pid;

    pid = spawn();

    if (pid == 0) {
        step_begin();
        torn_put(table, n, version);
        step_end();
    }

    return step_kill(pid, kill_at, look_at_all, &(all_t) { all, nall });
}


static void
test_every_instruction(void **state)
{
    enum { N = 3 };

    int                    i, n, steps, stride, moved;
    map_t                  map;
    ngx_ratelimit_entry_t  all[N];

    (void) state;

    map = table_make(MIB);

    for (n = 0; n < N; n++) {
        all[n] = get_id(map.table, key(n));
    }

    /* 0 is new, 1 is updated, 2 stands by */
    torn_put(map.table, 1, 0);
    torn_put(map.table, 2, 0);

    for (n = 0; n < 2; n++) {
        steps = step(map.table, n, 1, all, N, MAX_STEPS);
        assert_in_range(steps, 50, MAX_STEPS - 1);
        assert_int_equal(get_id(map.table, key(n)).state.fresh_us,
                         LATER + 2 * n + 1);

        stride = step_choose(steps, &i);

        for ( /* void */ ; i < steps; i += stride) {
            step(map.table, n, i & 1, all, N, i);

            for (moved = 0; moved < N; moved++) {
                all[moved] = get_id(map.table, key(moved));
                assert_whole(&all[moved], moved);
            }

            torn_put(map.table, n, i & 1);
        }
    }

    assert_true(stat_at(map.table, NOW).recovered > 10);
    assert_int_equal(stat_at(map.table, NOW).locked, 0);
    table_free(map);
}


/* The same where the newcomer makes a counter move to its other bucket. */
static void
test_every_instruction_moving(void **state)
{
    enum { N = 1200 };

    int                     n, i, steps, moving;
    map_t                   map;
    bucket_t              **at;
    ngx_ratelimit_entry_t  *all;

    (void) state;

    map = table_make(NGX_RATELIMIT_TABLE_MIN_BYTES);
    all = calloc(N, sizeof(ngx_ratelimit_entry_t));
    at = calloc(N, sizeof(bucket_t *));
    assert_non_null(all);
    assert_non_null(at);

    for (n = 0, moving = 0; n < N && moving < 3; n++) {
        for (i = 0; i < n; i++) {
            all[i] = get_id(map.table, key(i));
            at[i] = all[i].found ? all[i].buckets[all[i].bucket] : NULL;
        }

        all[n] = get_id(map.table, key(n));

        if (((bucket_t *) all[n].buckets[0])->tag[2] == 0
            || ((bucket_t *) all[n].buckets[1])->tag[2] == 0)
        {
            torn_put(map.table, n, 0);
            continue;
        }

        steps = step(map.table, n, 0, all, n + 1, MAX_STEPS);
        assert_in_range(steps, 50, MAX_STEPS - 1);

        for (i = 0; i < n; i++) {
            all[i] = get_id(map.table, key(i));
            assert_whole(&all[i], i);

            if (all[i].found && all[i].buckets[all[i].bucket] != at[i]) {
                moving++;
            }
        }
    }

    assert_int_equal(moving, 3);
    free(all);
    free(at);
    table_free(map);
}


/*
 * Children hammer a table that is too small for their keys, and are killed at
 * random moments. All locks can be had, no counter stands twice or is torn.
 */
static void
test_crashes(void **state)
{
    enum { KILLS = 200, KEYS = 3000 };

    int                    i;
    pid_t                  pid[2];
    map_t                  map;
    uint64_t               n, found;
    ngx_ratelimit_entry_t  e;

    (void) state;

    map = table_make(2 * NGX_RATELIMIT_TABLE_MIN_BYTES);
    pid[0] = pid[1] = 0;

    for (i = 0; i < KILLS; i++) {

        if (pid[i % 2]) {
            kill(pid[i % 2], SIGKILL);
            reap(pid[i % 2], SIGKILL);
        }

        pid[i % 2] = spawn();

        if (pid[i % 2] == 0) {
            for (n = mix(i); /* until killed */ ; n = mix(n)) {
                torn_put(map.table, n % KEYS, (n >> 40) & 1);
            }
        }

        usleep(500 + mix(i) % 3000);
    }

    for (i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        reap(pid[i], SIGKILL);
    }

    for (n = 0, found = 0; n < KEYS; n++) {
        e = get_id(map.table, key(n));
        assert_whole(&e, n);
        found += e.found;
    }

    print_message("%lu locks taken over in %d kills\n",
                  stat_at(map.table, NOW).recovered, KILLS);
    assert_int_equal(stat_at(map.table, NOW).locked, 0);
    assert_true(stat_at(map.table, NOW).recovered > 0);

    /* two may have died between taking a slot and filling it, a few kills */
    assert_true(found + KILLS >= stat_at(map.table, NOW).places);
    assert_int_equal(found, stat_at(map.table, NOW).busy);
    table_free(map);
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
        cmocka_unit_test(test_every_instruction_moving),
        cmocka_unit_test(test_crashes),
    };

    /* a lock that nobody hands on would stop the tests too */
    alarm(300);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

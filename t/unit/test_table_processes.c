/*
 * The tables in shared memory: processes that compete for one, and what is left
 * when one dies in the middle of it.
 */

#include "table.h"

#include "process.h"

#define MAX_STEPS  5000

/* What is locked: a counter or a lease. */
typedef struct {
    ngx_rl_entry_t         e;
    ngx_rl_lease_entry_t   l;
    lease_t               *lease;
} held_t;


/* Returns 0 if there is no place for the lease. */
static int
hold(void *table, uint64_t n, held_t *held)
{
    ngx_rl_id_t  id = key(n);

    if (of_leases(table)) {
        held->lease = ngx_rl_leases_lock(table, id, 1, NOW, &held->l);
        return held->lease != NULL;
    }

    held->lease = NULL;
    ngx_rl_table_lock(table, &id, NOW, &held->e);

    return 1;
}


static void
let(void *table, held_t *held)
{
    if (of_leases(table)) {
        ngx_rl_leases_unlock(&held->l);
    } else {
        ngx_rl_table_store(&held->e, 1);
    }
}


/* A child that has the lock of n and dies before all is written. */
static void
die_locked(void *table, uint64_t n)
{
    held_t  held;

    pid_t pid = spawn();

    if (pid == 0) {
        if (!hold(table, n, &held)) {
            _exit(1);
        }

        if (held.lease) {
            held.lease->busy_us = LATER + 99;
            held.lease->word[1] = 99;

        } else {
            held.e.state.fresh_us = LATER + 99;
        }

        kill(getpid(), SIGKILL);
    }

    reap(pid, SIGKILL);
}


/* A counter stays as it was, and only a lease that was open is lost. */
static void
test_owner_killed(void **state)
{
    for (int leases = 0; leases < 2; leases++) {
        map_t map = table_make(leases, NGX_RL_TABLE_MIN_BYTES);
        assert_int_equal(put(map.table, 1, LATER), 1);
        assert_int_equal(put(map.table, 2, LATER), 1);

        die_locked(map.table, 1);
        assert_int_equal(get(map.table, 1), leases ? 0 : LATER);
        assert_int_equal(get(map.table, 2), LATER);
        assert_int_equal(stat_at(map.table, NOW).recovered, 1);
        assert_int_equal(stat_at(map.table, NOW).busy, 2 - leases);

        /* one that it made */
        die_locked(map.table, 3);
        assert_int_equal(put(map.table, 3, LATER + 3), 1);
        assert_int_equal(get(map.table, 3), LATER + 3);
        assert_int_equal(stat_at(map.table, NOW).recovered, 2);

        /* the figures wait for no lock, and leave it to the next owner */
        die_locked(map.table, 3);
        assert_int_equal(stat_at(map.table, NOW).locked, 1);
        assert_int_equal(stat_at(map.table, NOW).recovered, 2);
        assert_int_equal(get(map.table, 3), leases ? 0 : LATER + 3);
        assert_int_equal(stat_at(map.table, NOW).recovered, 3);
        assert_int_equal(stat_at(map.table, NOW).locked, 0);
        assert_int_equal(stat_at(map.table, NOW).busy, leases ? 1 : 3);
        assert_int_equal(get(map.table, 2), LATER);

        table_free(map);
    }
}


/* The lock of a living process is seen as held. */
static void
test_locked_elsewhere(void **state)
{
    int                      leases, ready[2];
    char                     c;
    held_t                   held;

    for (leases = 0; leases < 2; leases++) {
        map_t map = table_make(leases, MIB);
        assert_int_equal(pipe(ready), 0);
        pid_t pid = spawn();

        if (pid == 0) {
            if (!hold(map.table, 1, &held) || write(ready[1], "x", 1) != 1) {
                _exit(1);
            }

            usleep(100000);

            if (leases) {
                held.lease->busy_us = LATER;
            } else {
                held.e.state.fresh_us = LATER;
            }

            let(map.table, &held);
            _exit(0);
        }

        assert_int_equal(read(ready[0], &c, 1), 1);
        assert_int_equal(stat_at(map.table, NOW).locked, 1);
        reap(pid, 0);
        ngx_rl_segments_stat_t stat = stat_at(map.table, NOW);
        assert_int_equal(stat.locked, 0);
        assert_int_equal(stat.busy, 1);
        assert_int_equal(stat.recovered, 0);

        close(ready[0]);
        close(ready[1]);
        table_free(map);
    }
}


static void
test_processes(void **state)
{
    enum { PROCESSES = 4, TIMES = 100000 };

    int     i, n, leases;
    map_t   map;
    pid_t   pid[PROCESSES];
    held_t  held;

    for (leases = 0; leases < 2; leases++) {
        map = table_make(leases, MIB);

        for (i = 0; i < PROCESSES; i++) {
            pid[i] = spawn();

            if (pid[i] == 0) {
                for (n = 0; n < TIMES; n++) {
                    if (!hold(map.table, 1, &held)) {
                        _exit(1);
                    }

                    if (leases) {
                        held.lease->busy_us = LATER;
                        held.lease->word[n % WORDS]++;

                    } else {
                        held.e.state.fresh_us = LATER;
                        held.e.state.extra++;
                    }

                    let(map.table, &held);
                }

                _exit(0);
            }
        }

        for (i = 0; i < PROCESSES; i++) {
            reap(pid[i], 0);
        }

        assert_true(hold(map.table, 1, &held));
        n = leases ? 0 : held.e.state.extra;

        for (i = 0; leases && i < (int) WORDS; i++) {
            n += held.lease->word[i];
        }

        let(map.table, &held);
        assert_int_equal(n, PROCESSES * TIMES);
        assert_int_equal(stat_at(map.table, NOW).recovered, 0);
        table_free(map);
    }
}


/* Counters that are looked at without their locks: whole, or not there. */
typedef struct {
    ngx_rl_entry_t  *entries;
    uint64_t         n;
} all_t;


static void
look_at_all(void *data)
{
    all_t           *all = data;

    for (uint64_t n = 0; n < all->n; n++) {
        ngx_rl_entry_t *e = &all->entries[n];
        assert_in_range(copies(e), 0, 1);

        for (int i = 0; i < 6; i++) {
            set_t *set = set_of(e, i);

            if (set->tag[i % 3] == e->at.tag) {
                e->state.fresh_us = set->word[i % 3] >> 12;
                e->state.aux = set->word[i % 3] & 0xfff;
                e->state.extra = set->extra[i % 3];
                assert_true(state_whole(&e->state, e->at.tag));
            }
        }
    }
}


/*
 * Runs a put in a child instruction by instruction; after each of them all
 * counters hold the old state, the new one, or are not there. Kills it after
 * the given number of steps, or lets it end. Returns the steps.
 */
static int
step(void *table, uint64_t n, uint64_t until, all_t *all, int kill_at)
{
    pid_t pid = spawn();

    if (pid == 0) {
        step_begin();
        (void) put(table, n, until);
        step_end();
    }

    return step_kill(pid, kill_at, all->n ? look_at_all : NULL, all);
}


/*
 * A death behind some instructions of a put that finds its place, or makes it
 * (then n is the first of the keys). 1 is there, 2 stands by.
 */
static void
every_instruction(void *table, uint64_t n, int made)
{
    int             i;
    all_t           all;
    ngx_rl_entry_t  entries[3];

    all.entries = entries;
    all.n = of_leases(table) ? 0 : 3;
    int lost = 0;

    (void) put(table, 1, LATER);
    (void) put(table, 2, LATER);

    for (int k = 0; k < (int) all.n; k++) {
        entries[k] = entry_of(table, key(k ? (uint64_t) k : n));
    }

    int steps = step(table, n, LATER + 1, &all, MAX_STEPS);
    assert_in_range(steps, 50, MAX_STEPS - 1);
    assert_int_equal(get(table, n), LATER + 1);

    int stride = step_choose(steps, &i);

    for ( /* void */ ; i < steps; i += stride) {
        n += made;
        uint64_t was = get(table, n);
        assert_int_equal(was != 0, !made);

        if (all.n) {
            entries[0] = entry_of(table, key(n));
        }

        step(table, n, LATER + (i & 1), &all, i);

        lost += (get(table, n) == 0);
        assert_true(get(table, n) <= LATER + 1);
        assert_int_equal(get(table, 2), LATER);
        assert_int_equal(stat_at(table, NOW).locked, 0);
        assert_int_equal(put(table, n, LATER), 1);
    }

    assert_true(stat_at(table, NOW).recovered > (uint64_t) full_or(10, 0));
    assert_true(lost > full_or(10, 0) || !of_leases(table));
}


static void
test_every_instruction(void **state)
{
    uint64_t  n;

    for (int leases = 0; leases < 2; leases++) {
        for (int made = 0; made < 2; made++) {
            map_t map = table_make(leases, MIB);
            every_instruction(map.table, made ? 100 : 1, made);
            table_free(map);
        }
    }

    /* in a place that was another's */

    map_t map = table_make(1, MIB);

    for (n = 0; n < 100000; n++) {
        (void) put(map.table, n, NOW);
    }

    every_instruction(map.table, n, 1);
    table_free(map);
}


/* The same where the newcomer makes a counter move to its other set. */
static void
test_every_instruction_moving(void **state)
{
    enum { N = 1200 };

    int                     n, i, steps, moving;
    all_t                   all;
    map_t                   map;
    void                  **at;
    ngx_rl_entry_t  *entries;

    map = table_make(0, NGX_RL_TABLE_MIN_BYTES);
    entries = calloc(N, sizeof(ngx_rl_entry_t));
    at = calloc(N, sizeof(void *));
    assert_non_null(entries);
    assert_non_null(at);
    all.entries = entries;

    for (n = 0, moving = 0; n < N && moving < 3; n++) {
        for (i = 0; i <= n; i++) {
            entries[i] = entry_of(map.table, key(i));
            at[i] = entries[i].found ? entries[i].at.set : NULL;
        }

        if (set_of(&entries[n], 0)->tag[2] == 0
            || set_of(&entries[n], 3)->tag[2] == 0)
        {
            (void) put(map.table, n, LATER + n);
            continue;
        }

        all.n = n + 1;
        steps = step(map.table, n, LATER + n, &all, MAX_STEPS);
        assert_in_range(steps, 50, MAX_STEPS - 1);

        for (i = 0; i < n; i++) {
            entries[i] = entry_of(map.table, key(i));
            assert_in_range(copies(&entries[i]), 0, 1);
            assert_true(get(map.table, i) == 0
                        || get(map.table, i) == (uint64_t) LATER + i);
            moving += (entries[i].found && entries[i].at.set != at[i]);
        }
    }

    assert_int_equal(moving, 3);
    free(entries);
    free(at);
    table_free(map);
}


/*
 * Children hammer a table that is too small for their keys, and are killed at
 * random moments. All locks can be had, nothing stands twice or is torn, and
 * none of the places is lost.
 */
static void
crashes(int leases, uint64_t keys)
{
    const int  kills = full_or(4000, 300);

    int                            i;
    pid_t                          pid[2];
    map_t                          map;
    uint64_t                       n, t, found;
    ngx_rl_entry_t          e;
    ngx_rl_segments_stat_t  stat;

    map = table_make(leases, (2 - leases) * NGX_RL_TABLE_MIN_BYTES);
    pid[0] = pid[1] = 0;

    for (i = 0; i < kills + 2; i++) {
        if (pid[i % 2]) {
            kill(pid[i % 2], SIGKILL);
            reap(pid[i % 2], SIGKILL);
        }

        if (i >= kills) {
            continue;
        }

        pid[i % 2] = spawn();

        if (pid[i % 2] == 0) {
            t = NOW + i * 1000;

            for (n = mix(i); /* until killed */ ; n = mix(n)) {
                if (put_id(map.table, key(n % keys), t,
                           leases ? t + n % 200 : LATER + n % keys,
                           1 + n % 255)
                    == -1)
                {
                    _exit(1);
                }

                t += leases;
            }
        }

        usleep((leases ? 0 : 500) + mix(i) % 1000);
    }

    for (n = 0, found = 0; n < keys; n++) {
        found += (get(map.table, n) != 0);

        if (!leases) {
            e = entry_of(map.table, key(n));
            assert_in_range(copies(&e), 0, 1);
        }
    }

    stat = stat_at(map.table, NOW);
    print_message("%lu locks taken over in %d kills\n", stat.recovered, kills);
    assert_int_equal(stat.locked, 0);
    assert_true(stat.recovered > 0);

    if (leases) {
        for (n = 0; n < 10 * keys; n++) {
            (void) put_id(map.table, key(keys + n), (uint64_t) LATER * 100,
                          (uint64_t) LATER * 200, 1);
        }

        assert_int_equal(stat_at(map.table, (uint64_t) LATER * 100).busy,
                         stat.places);

    } else {
        /* two may have died between taking a place and filling it */
        assert_true(found + 10 >= stat.places);
        assert_int_equal(found, stat.busy);
    }

    table_free(map);
}


static void
test_crashes(void **state)
{
    crashes(0, 3000);
    crashes(1, 1000);
}

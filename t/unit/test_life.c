/*
 * Which workers are alive, and that the slots of those which are not come back:
 * processes that are killed at any moment.
 */

#include "local.h"

#include <stdatomic.h>

#define TICK_MS    200     /* after it a denial adds up again */
#define MAX_STEPS  20000

static local_t  local;


static ngx_uint_t
list(uint64_t own)
{
    uint64_t  alive[NGX_RATELIMIT_LIVES + 1];

    return ngx_ratelimit_lives_list(local.limiter.zone.lives, own, alive);
}


static void
test_lives(void **state)
{
    uint64_t               one, two, alive[NGX_RATELIMIT_LIVES + 1];
    ngx_ratelimit_lives_t *lives;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 1, 0);
    lives = local.limiter.zone.lives;

    assert_int_equal(list(0), 0);
    one = ngx_ratelimit_life_begin(lives);
    two = ngx_ratelimit_life_begin(lives);
    assert_true(one > 0 && two > 0 && one != two);

    assert_int_equal(ngx_ratelimit_lives_list(lives, one, alive), 1);
    assert_int_equal(alive[0], two);
    assert_int_equal(list(0), 2);

    ngx_ratelimit_life_end(lives, 0);
    assert_int_equal(list(0), 2);
    ngx_ratelimit_life_end(lives, one);
    assert_int_equal(list(0), 1);

    /* its place is taken again, its number is not */
    one = ngx_ratelimit_life_begin(lives);
    assert_true(one > two);

    ngx_ratelimit_life_end(lives, one);
    ngx_ratelimit_life_end(lives, two);
    assert_int_equal(list(0), 0);
    local_free(&local);
}


/* A death is seen at once, and frees a place; an end needs no reaper. */
static void
test_death(void **state)
{
    int                     i, ready[2];
    pid_t                   pid;
    uint64_t                life, last;
    ngx_ratelimit_lives_t  *lives;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 1, 0);
    lives = local.limiter.zone.lives;
    last = 0;

    for (i = 0; i < 2 * NGX_RATELIMIT_LIVES; i++) {
        assert_int_equal(pipe(ready), 0);
        pid = spawn();

        if (pid == 0) {
            life = ngx_ratelimit_life_begin(lives);

            if (write(ready[1], &life, sizeof(life)) == -1) {
                _exit(1);
            }

            if (i % 4 == 3) {
                ngx_ratelimit_life_end(lives, life);
                _exit(0);
            }

            if (i % 4 == 2) {
                _exit(0);
            }

            pause();
        }

        assert_int_equal(read(ready[0], &life, sizeof(life)), sizeof(life));
        assert_true(life > last);
        last = life;

        if (i % 4 < 2) {
            /* of some a list sees the death, of others the next life */

            if (i % 4) {
                assert_int_equal(list(0), 1);
            }

            kill(pid, SIGKILL);
        }

        reap(pid, i % 4 < 2 ? SIGKILL : 0);

        if (i % 4) {
            assert_int_equal(list(0), 0);
        }

        close(ready[0]);
        close(ready[1]);
    }

    local_free(&local);
}


/* More workers than lives: those without one count together. */
static void
test_too_many(void **state)
{
    int                     i;
    uint64_t                lives[NGX_RATELIMIT_LIVES];
    local_request_t         a, b, c;
    ngx_ratelimit_zone_t   *zone;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 2, 0);
    zone = &local.limiter.zone;

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {
        lives[i] = ngx_ratelimit_life_begin(zone->lives);
        assert_true(lives[i] != NGX_RATELIMIT_LIFE_SHARED);
    }

    assert_true(ngx_ratelimit_life_begin(zone->lives)
                == NGX_RATELIMIT_LIFE_SHARED);
    assert_int_equal(list(0), NGX_RATELIMIT_LIVES + 1);
    assert_int_equal(list(NGX_RATELIMIT_LIFE_SHARED), NGX_RATELIMIT_LIVES);

    zone->life = lives[0];
    assert_int_equal(local_take(&local, &a, 1), 1);

    zone->life = NGX_RATELIMIT_LIFE_SHARED;
    assert_int_equal(local_take(&local, &b, 1), 1);
    assert_int_equal(b.counter.answer.remaining, 0);
    assert_int_equal(b.counter.permit, 1);
    assert_int_equal(local_take(&local, &c, 1), 0);

    /* also when a denial adds up, whoever does */
    for (i = 0; i < 2; i++) {
        zone->life = i ? NGX_RATELIMIT_LIFE_SHARED : lives[1];
        ngx_current_msec += TICK_MS;
        assert_int_equal(local_take(&local, &c, 1), 0);
        assert_int_not_equal(c.counter.answer.retry_us, 0);
    }

    zone->life = NGX_RATELIMIT_LIFE_SHARED;
    ngx_ratelimit_permit_free(&b.counter);
    ngx_ratelimit_life_end(zone->lives, zone->life);
    zone->life = lives[0];
    ngx_ratelimit_permit_free(&a.counter);
    assert_int_equal(local_take(&local, &c, 1), 1);
    assert_int_equal(c.counter.answer.remaining, 1);
    ngx_ratelimit_permit_free(&c.counter);

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {
        ngx_ratelimit_life_end(zone->lives, lives[i]);
    }

    zone->life = 0;
    local_free(&local);
}


/* A single process counts, too, and holds no lock that a reload unmaps. */
static void
test_single(void **state)
{
    local_request_t        a, b;
    ngx_ratelimit_zone_t  *zone;

    ngx_process = NGX_PROCESS_SINGLE;
    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 1, 0);
    zone = &local.limiter.zone;

    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_true(zone->life > 0);
    assert_int_equal(list(0), 0);

    ngx_current_msec += TICK_MS;
    assert_int_equal(local_take(&local, &b, 1), 0);
    ngx_current_msec += TICK_MS;
    assert_int_equal(local_take(&local, &b, 1), 0);
    ngx_ratelimit_permit_free(&a.counter);
    assert_int_equal(local_take(&local, &b, 1), 1);
    ngx_ratelimit_permit_free(&b.counter);

    table_free(local.map);
    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 1, 0);
    ngx_process = NGX_PROCESS_WORKER;

    /* another robust lock: the list of those held is not broken */
    assert_int_equal(local_take(&local, &a, 1), 1);
    ngx_ratelimit_permit_free(&a.counter);
    local_free(&local);
}


/* The exiting worker: requests that end after its life do no harm. */
static void
test_exit(void **state)
{
    local_request_t        a, b, c;
    ngx_ratelimit_zone_t  *zone;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 2, 0);
    zone = &local.limiter.zone;

    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_int_equal(local_take(&local, &b, 1), 1);

    ngx_ratelimit_life_end(zone->lives, zone->life);
    zone->life = 0;
    ngx_ratelimit_permit_free(&a.counter);

    /* b never ends: its life has; c counts from nothing once it is denied */
    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_int_equal(local_take(&local, &c, 1), 1);
    assert_int_equal(local_take(&local, &b, 1), 0);

    ngx_ratelimit_permit_free(&a.counter);
    ngx_ratelimit_permit_free(&c.counter);
    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_int_equal(a.counter.answer.remaining, 1);
    ngx_ratelimit_permit_free(&a.counter);
    local_free(&local);
}


/*
 * Takes all slots of a client; returns how many there were. Frees them. Denied
 * once it waits a tick: the last to add up may have had the same one, by a
 * clock of its own here.
 */
static ngx_uint_t
probe(uint64_t client)
{
    ngx_uint_t              i, n, denied;
    static local_request_t  requests[100];

    for (n = 0, denied = 0; n < 100 && denied < 2; /* void */ ) {
        if (local_take(&local, &requests[n], client)) {
            n++;
            continue;
        }

        assert_int_equal(requests[n].counter.answer.retry_us, 1000000);
        ngx_current_msec += TICK_MS;
        denied++;
    }

    for (i = 0; i < n; i++) {
        ngx_ratelimit_permit_free(&requests[i].counter);
    }

    return n;
}


/* Old workers beside new ones; one of each is killed. */
static void
test_reload(void **state)
{
    int              i, n, ready[2];
    char             c;
    pid_t            pid[4];
    local_request_t  r;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 20, 0);
    assert_int_equal(pipe(ready), 0);

    for (i = 0; i < 4; i++) {
        pid[i] = spawn();

        if (pid[i] == 0) {
            for (n = 0; n <= i; n++) {
                if (local_take(&local, &r, 1) != 1) {
                    _exit(1);
                }
            }

            if (write(ready[1], "x", 1) != 1) {
                _exit(1);
            }

            pause();
        }
    }

    for (i = 0; i < 4; i++) {
        assert_int_equal(read(ready[0], &c, 1), 1);
    }

    assert_int_equal(probe(1), 20 - 1 - 2 - 3 - 4);

    kill(pid[1], SIGKILL);
    reap(pid[1], SIGKILL);
    kill(pid[3], SIGKILL);
    reap(pid[3], SIGKILL);
    assert_int_equal(probe(1), 20 - 1 - 3);

    kill(pid[0], SIGKILL);
    reap(pid[0], SIGKILL);
    kill(pid[2], SIGKILL);
    reap(pid[2], SIGKILL);
    assert_int_equal(probe(1), 20);

    close(ready[0]);
    close(ready[1]);
    local_free(&local);
}


/* Evicted, an outer counter is added up again from the inner ones. */
static void
test_evicted(void **state)
{
    local_request_t        a, b, c;
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  entry;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 2, 0);

    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_int_equal(local_take(&local, &b, 1), 1);

    id = ngx_ratelimit_counter_id(&a.counter);
    ngx_ratelimit_table_lock_outer(local.map.table, &id, NOW, &entry);
    assert_int_equal(entry.found, 1);
    ((set_t *) entry.at.set)->tag[entry.at.place] = 0;
    ngx_ratelimit_table_unlock(&entry);

    assert_int_equal(local_take(&local, &c, 1), 0);
    ngx_ratelimit_permit_free(&a.counter);
    assert_int_equal(local_take(&local, &c, 1), 1);
    ngx_ratelimit_permit_free(&b.counter);
    ngx_ratelimit_permit_free(&c.counter);
    assert_int_equal(probe(1), 2);
    assert_int_equal(stat_at(local.map.table, NOW).busy, 0);
    local_free(&local);
}


/*
 * Runs a take, or a free, in a child instruction by instruction, and kills it
 * after so many. Returns how many it ran.
 */
static int
step(int frees, int kill_at)
{
    pid_t            pid;
    local_request_t  r;

    pid = spawn();

    if (pid == 0) {
        local.limiter.zone.life = 0;
        (void) local_take(&local, &r, 2);

        if (frees) {
            (void) local_take(&local, &r, 1);
        }

        step_begin();

        if (frees) {
            ngx_ratelimit_permit_free(&r.counter);
        } else {
            (void) local_take(&local, &r, 1);
        }

        step_end();
    }

    return step_kill(pid, kill_at, NULL, NULL);
}


/* Between any two of them it may be killed: its slot comes back, once. */
static void
test_every_instruction(void **state)
{
    int              i, frees, steps, stride;
    local_request_t  r;

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, 3, 0);

    for (frees = 0; frees < 2; frees++) {
        steps = step(frees, MAX_STEPS);
        assert_in_range(steps, 100, MAX_STEPS - 1);

        stride = step_choose(steps, &i);

        for ( /* void */ ; i <= steps; i += stride) {
            step(frees, i);
            assert_int_equal(probe(1), 3);
        }

        /* beside a living one's */
        assert_int_equal(local_take(&local, &r, 1), 1);

        stride = step_choose(steps, &i);

        for ( /* void */ ; i <= steps; i += stride) {
            step(frees, i);
            assert_int_equal(probe(1), 2);
        }

        ngx_ratelimit_permit_free(&r.counter);
    }

    assert_true(stat_at(local.map.table, NOW).recovered > 10);
    local_free(&local);
}


/*
 * What the children of the storm say of themselves. Of a client's slots they
 * hold at least the first number, at most the second.
 */
#define CHILDREN  4
#define CLIENTS   3
#define LIMIT     5

typedef struct {
    atomic_int   quiet;                       /* asked for by the parent */
    atomic_uint  round[CHILDREN];             /* answered in this round */
    atomic_uint  granted;
    atomic_uint  denied;
    atomic_int   least[CHILDREN][CLIENTS];
    atomic_int   most[CHILDREN][CLIENTS];
} board_t;

static board_t  *board;


static void
storm_child(int me, uint64_t seed)
{
    int              client, at;
    local_request_t  held[CLIENTS][LIMIT];
    int              n[CLIENTS] = { 0 };

    for ( ;; ) {
        seed = mix(seed);
        client = seed % CLIENTS;

        if (atomic_load(&board->quiet)) {
            atomic_store(&board->round[me], atomic_load(&board->quiet));
            usleep(100);
            continue;
        }

        ngx_current_msec += (seed >> 20) % 3;

        if ((seed >> 40) % 2 && n[client] < LIMIT) {
            atomic_fetch_add(&board->most[me][client], 1);

            if (local_take(&local, &held[client][n[client]], client)) {
                n[client]++;
                atomic_fetch_add(&board->least[me][client], 1);
                atomic_fetch_add(&board->granted, 1);

            } else {
                atomic_fetch_sub(&board->most[me][client], 1);
                atomic_fetch_add(&board->denied, 1);
            }

        } else if (n[client]) {
            at = (seed >> 30) % n[client];
            atomic_fetch_sub(&board->least[me][client], 1);
            ngx_ratelimit_permit_free(&held[client][at].counter);
            held[client][at] = held[client][--n[client]];
            held[client][at].counter.client = &held[client][at].client;
            atomic_fetch_sub(&board->most[me][client], 1);
        }
    }
}


static pid_t
storm_spawn(int me, uint64_t seed)
{
    int    client;
    pid_t  pid;

    for (client = 0; client < CLIENTS; client++) {
        atomic_store(&board->least[me][client], 0);
        atomic_store(&board->most[me][client], 0);
    }

    atomic_store(&board->round[me], 0);
    pid = spawn();

    if (pid == 0) {
        local.limiter.zone.life = 0;
        storm_child(me, seed);
    }

    return pid;
}


/* All stand still: what they hold for sure is never above the limit. */
static void
storm_check_stopped(const pid_t *pid)
{
    int  i, client, status, held;

    for (i = 0; i < CHILDREN; i++) {
        kill(pid[i], SIGSTOP);
        assert_int_equal(waitpid(pid[i], &status, WUNTRACED), pid[i]);
        assert_true(WIFSTOPPED(status));
    }

    for (client = 0; client < CLIENTS; client++) {
        for (i = 0, held = 0; i < CHILDREN; i++) {
            held += atomic_load(&board->least[i][client]);
        }

        assert_in_range(held, 0, LIMIT);
    }

    for (i = 0; i < CHILDREN; i++) {
        kill(pid[i], SIGCONT);
    }
}


/* All are between two requests: what they hold, and no more, is taken. */
static void
storm_check_quiet(int round)
{
    int  i, client, held;

    atomic_store(&board->quiet, round);

    for (i = 0; i < CHILDREN; i++) {
        while (atomic_load(&board->round[i]) != (unsigned) round) {
            usleep(100);
        }
    }

    for (client = 0; client < CLIENTS; client++) {
        for (i = 0, held = 0; i < CHILDREN; i++) {
            held += atomic_load(&board->least[i][client]);
            assert_int_equal(atomic_load(&board->least[i][client]),
                             atomic_load(&board->most[i][client]));
        }

        assert_int_equal(probe(client), LIMIT - held);
    }

    atomic_store(&board->quiet, 0);
}


static void
test_storm(void **state)
{
    enum { KILLS = 1000 };

    int    i, victim;
    pid_t  pid[CHILDREN];

    local_make(&local, MIB, NGX_RATELIMIT_CONCURRENCY, LIMIT, 0);

    board = mmap(NULL, sizeof(board_t), PROT_READ|PROT_WRITE,
                 MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);

    for (i = 0; i < CHILDREN; i++) {
        pid[i] = storm_spawn(i, mix(i));
    }

    for (i = 1; i <= KILLS; i++) {
        usleep(200 + mix(i) % 1500);

        if (i % 5 == 0) {
            storm_check_stopped(pid);
        }

        victim = i % CHILDREN;
        kill(pid[victim], SIGKILL);
        reap(pid[victim], SIGKILL);
        pid[victim] = storm_spawn(victim, mix(i + 1000));

        if (i % 10 == 0) {
            storm_check_quiet(i);
        }
    }

    for (i = 0; i < CHILDREN; i++) {
        kill(pid[i], SIGKILL);
        reap(pid[i], SIGKILL);
    }

    for (i = 0; i < CLIENTS; i++) {
        assert_int_equal(probe(i), LIMIT);
    }

    print_message("%u granted, %u denied, %lu locks taken over in %d kills\n",
                  atomic_load(&board->granted), atomic_load(&board->denied),
                  stat_at(local.map.table, NOW).recovered, KILLS);
    assert_true(atomic_load(&board->granted) > KILLS);
    assert_true(atomic_load(&board->denied) > KILLS);
    munmap(board, sizeof(board_t));
    local_free(&local);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_single),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_evicted),
        cmocka_unit_test(test_every_instruction),
        cmocka_unit_test(test_storm),
    };

    /* a lock that nobody hands on would stop the tests too */
    alarm(300);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

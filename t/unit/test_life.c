/*
 * Which workers are alive, and that the locks and the slots of those which are
 * not come back: processes that are killed at any moment.
 */

#include "local.h"

#include <pthread.h>

#define TICK_MS    200     /* after it a denial adds up again */
#define MAX_STEPS  20000

static local_t                local;
static ngx_rl_lock_t  *lock;   /* shared by the processes */


/* How many others live. */
static ngx_uint_t
others(void)
{
    ngx_uint_t  n;

    ngx_uint_t at = 0;

    for (n = 0; ngx_rl_life_next(&at); n++) {
        /* void */
    }

    return n;
}


/* A child that has told its life, and waits; or ends. */
static pid_t
spawn_life(int ends, uint64_t *life)
{
    int    ready[2];

    assert_int_equal(pipe(ready), 0);
    pid_t pid = spawn();

    if (pid == 0) {
        if (write(ready[1], &ngx_rl_life, sizeof(*life)) == -1) {
            _exit(1);
        }

        if (ends) {
            _exit(0);
        }

        pause();
    }

    assert_int_equal(read(ready[0], life, sizeof(*life)), sizeof(*life));
    close(ready[0]);
    close(ready[1]);

    return pid;
}


static void
end(pid_t pid)
{
    kill(pid, SIGKILL);
    reap(pid, SIGKILL);
}


/* A death is seen at once, and frees a place, but no number. */
static void
test_death(void **state)
{
    uint64_t  life, last;

    pid_t other = spawn_life(0, &last);

    for (int i = 0; i < 300; i++) {
        pid_t pid = spawn_life(i % 3 == 0, &life);
        assert_true(life > last);
        last = life;

        if (i % 3 == 0) {
            reap(pid, 0);

        } else {
            assert_true(ngx_rl_life_goes_on(life));
            assert_int_equal(others(), 2);
            end(pid);
        }

        /* of some a list sees the death, of others the next life */

        if (i % 2) {
            assert_int_equal(others(), 1);
            assert_false(ngx_rl_life_goes_on(life));
        }
    }

    assert_true(last % NGX_RL_LIVES < 5);
    end(other);
    assert_int_equal(others(), 0);
}


/* A process that has the lock, and stops. */
static pid_t
spawn_owner(void)
{
    int  status;

    pid_t pid = spawn();

    if (pid == 0) {
        ngx_rl_lock(lock);
        raise(SIGSTOP);
        ngx_rl_unlock(lock);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));

    return pid;
}


static int
lock_map(void **state)
{
    lock = mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1,
                0);

    return lock == MAP_FAILED;
}

#define GROUP_SETUP  lock_map


/* Nobody takes the lock of a stopped process; killed waiters harm nobody. */
static void
test_stopped(void **state)
{
    pid_t  owner, waiter[4];

    memset(lock, 0, sizeof(*lock));
    owner = spawn_owner();

    for (int i = 0; i < 4; i++) {
        waiter[i] = spawn();

        if (waiter[i] == 0) {
            ngx_rl_lock(lock);
            ngx_rl_unlock(lock);
            _exit(0);
        }
    }

    for (int i = 0; i < 1000; i++) {
        assert_false(ngx_rl_lock_try(lock));
    }

    end(waiter[0]);
    end(waiter[1]);
    assert_false(ngx_rl_lock_try(lock));

    kill(owner, SIGCONT);
    reap(owner, 0);
    reap(waiter[2], 0);
    reap(waiter[3], 0);

    assert_int_equal(lock->owner, 0);
    assert_int_equal(lock->recovered, 0);
}


/* Another worker has the place of the dead owner, before anybody looks. */
static void
test_place_taken(void **state)
{
    uint64_t  life;

    memset(lock, 0, sizeof(*lock));
    end(spawn_owner());
    uint64_t dead = lock->owner;

    pid_t pid = spawn_life(0, &life);
    assert_int_equal(life % NGX_RL_LIVES, dead % NGX_RL_LIVES);
    assert_int_equal(lock->owner, dead);

    ngx_rl_lock(lock);
    assert_int_equal(lock->owner, ngx_rl_life);
    assert_int_equal(lock->recovered, 1);
    ngx_rl_unlock(lock);
    end(pid);
}


/*
 * A worker is killed at any instruction while it begins its life and takes the
 * lock of a dead one.
 */
static void
test_taking_over(void **state)
{
    int stride = 1;
    int first = 0;
    int steps = MAX_STEPS;

    for (int i = steps; i >= first; i -= stride) {
        memset(lock, 0, sizeof(*lock));
        end(spawn_owner());

        pid_t pid = spawn();

        if (pid == 0) {
            step_begin();
            live();
            ngx_rl_lock(lock);
            step_end();
        }

        if (steps == MAX_STEPS) {
            i = steps = step_kill(pid, MAX_STEPS, NULL, NULL);
            assert_in_range(steps, 50, MAX_STEPS - 1);
            stride = step_choose(steps, &first);

        } else {
            step_kill(pid, i, NULL, NULL);
        }

        ngx_rl_lock(lock);
        assert_in_range(lock->recovered, 1, 2);
        ngx_rl_unlock(lock);
        assert_int_equal(others(), 0);
    }
}


static void *
count_locked(void *data)
{
    int  i, *n = data;

    for (i = 0; i < 100000; i++) {
        ngx_rl_lock(lock);
        (*n)++;
        ngx_rl_unlock(lock);
    }

    return NULL;
}


/* The threads of a process have one life, and keep each other out. */
static void
test_threads(void **state)
{
    pthread_t  thread;

    int n = 0;
    memset(lock, 0, sizeof(*lock));
    assert_int_equal(pthread_create(&thread, NULL, count_locked, &n), 0);
    count_locked(&n);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_int_equal(n, 200000);
    assert_int_equal(lock->recovered, 0);
}


/* A single process, which has no life, counts, too. */
static void
test_single(void **state)
{
    local_request_t  a, b;

    uint64_t life = ngx_rl_life;
    ngx_rl_life = NGX_RL_LIFE_NONE;
    local_make(&local, MIB, NGX_RL_CONCURRENCY, 1, 0);

    assert_int_equal(local_take(&local, &a, 1), 1);
    ngx_current_msec += TICK_MS;
    assert_int_equal(local_take(&local, &b, 1), 0);
    ngx_current_msec += TICK_MS;
    assert_int_equal(local_take(&local, &b, 1), 0);
    ngx_rl_permit_free(&a.counter);
    assert_int_equal(local_take(&local, &b, 1), 1);
    ngx_rl_permit_free(&b.counter);

    ngx_rl_life = life;
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
    ngx_uint_t              n, denied;
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

    for (ngx_uint_t i = 0; i < n; i++) {
        ngx_rl_permit_free(&requests[i].counter);
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

    local_make(&local, MIB, NGX_RL_CONCURRENCY, 20, 0);
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
    local_request_t  a, b, c;
    ngx_rl_entry_t   entry;

    local_make(&local, MIB, NGX_RL_CONCURRENCY, 2, 0);

    assert_int_equal(local_take(&local, &a, 1), 1);
    assert_int_equal(local_take(&local, &b, 1), 1);

    ngx_rl_id_t id = ngx_rl_counter_id(&a.counter);
    ngx_rl_table_lock_outer(local.map.table, &id, NOW, &entry);
    assert_int_equal(entry.found, 1);
    ((set_t *) entry.at.set)->tag[entry.at.place] = 0;
    ngx_rl_table_unlock(&entry);

    assert_int_equal(local_take(&local, &c, 1), 0);
    ngx_rl_permit_free(&a.counter);
    assert_int_equal(local_take(&local, &c, 1), 1);
    ngx_rl_permit_free(&b.counter);
    ngx_rl_permit_free(&c.counter);
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
    local_request_t  r;

    pid_t pid = spawn();

    if (pid == 0) {
        (void) local_take(&local, &r, 2);

        if (frees) {
            (void) local_take(&local, &r, 1);
        }

        step_begin();

        if (frees) {
            ngx_rl_permit_free(&r.counter);
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
    int              i;
    local_request_t  r;

    local_make(&local, MIB, NGX_RL_CONCURRENCY, 3, 0);

    for (int frees = 0; frees < 2; frees++) {
        int steps = step(frees, MAX_STEPS);
        assert_in_range(steps, 100, MAX_STEPS - 1);

        int stride = step_choose(steps, &i);

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

        ngx_rl_permit_free(&r.counter);
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
    local_request_t  held[CLIENTS][LIMIT];
    int              n[CLIENTS] = { 0 };

    for ( ;; ) {
        seed = mix(seed);
        int client = seed % CLIENTS;

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
            int at = (seed >> 30) % n[client];
            atomic_fetch_sub(&board->least[me][client], 1);
            ngx_rl_permit_free(&held[client][at].counter);
            held[client][at] = held[client][--n[client]];
            held[client][at].counter.client = &held[client][at].client;
            atomic_fetch_sub(&board->most[me][client], 1);
        }
    }
}


static pid_t
storm_spawn(int me, uint64_t seed)
{
    for (int client = 0; client < CLIENTS; client++) {
        atomic_store(&board->least[me][client], 0);
        atomic_store(&board->most[me][client], 0);
    }

    atomic_store(&board->round[me], 0);
    pid_t pid = spawn();

    if (pid == 0) {
        storm_child(me, seed);
    }

    return pid;
}


/* All stand still: what they hold for sure is never above the limit. */
static void
storm_check_stopped(const pid_t *pid)
{
    int  i, status, held;

    for (i = 0; i < CHILDREN; i++) {
        kill(pid[i], SIGSTOP);
        assert_int_equal(waitpid(pid[i], &status, WUNTRACED), pid[i]);
        assert_true(WIFSTOPPED(status));
    }

    for (int client = 0; client < CLIENTS; client++) {
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
    int  i, held;

    atomic_store(&board->quiet, round);

    for (i = 0; i < CHILDREN; i++) {
        while (atomic_load(&board->round[i]) != (unsigned) round) {
            usleep(100);
        }
    }

    for (int client = 0; client < CLIENTS; client++) {
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

    local_make(&local, MIB, NGX_RL_CONCURRENCY, LIMIT, 0);

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


/*
 * As many as nginx has processes: this one has a life, and so has the child.
 * The last test, for each look goes over all these places from now on.
 */
static void
test_too_many(void **state)
{
    pid_t pid = spawn();

    if (pid == 0) {
        for (int i = 0; i < NGX_RL_LIVES - 2; i++) {
            live();
        }

        _exit(others() != NGX_RL_LIVES - 1
              || ngx_rl_life_begin(lives) != NGX_ERROR);
    }

    reap(pid, 0);
    assert_int_equal(others(), 0);
}

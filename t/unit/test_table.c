/*
 * The table in shared memory: finding and placing counters, who is evicted,
 * and what is left when a process dies in the middle of it.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ngx_config.h>
#include <ngx_core.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "ngx_ratelimit_table.h"

#define NOW        1000000
#define LATER      (NOW + 60 * 1000000)
#define MIB        ((size_t) 1024 * 1024)
#define MAX_STEPS  5000

/* The bucket as the architecture fixes it: the tests look into it. */
typedef struct {
    uint64_t  tag[3];
    uint64_t  word[3];
    uint32_t  extra[3];
    u_char    loss[3];
    u_char    known;
} bucket_t;

typedef struct {
    ngx_ratelimit_table_t  *table;
    size_t                  size;
} map_t;

static const u_char  hash_key[] = "0123456789abcdef";


/* splitmix64 */
static uint64_t
mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;

    return x ^ (x >> 31);
}


static ngx_ratelimit_id_t
key(uint64_t n)
{
    ngx_ratelimit_id_t  id;

    id.hi = mix(2 * n);
    id.lo = mix(2 * n + 1);

    return id;
}


static map_t
table_make(size_t size)
{
    map_t  map;

    map.size = size;
    map.table = mmap(NULL, size, PROT_READ|PROT_WRITE,
                     MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map.table, MAP_FAILED);
    assert_int_equal(ngx_ratelimit_table_init(map.table, size, hash_key),
                     NGX_OK);

    return map;
}


static void
table_free(map_t map)
{
    assert_int_equal(munmap(map.table, map.size), 0);
}


static void
put_id(ngx_ratelimit_table_t *table, ngx_ratelimit_id_t id, uint64_t fresh_us,
    uint32_t loss)
{
    ngx_ratelimit_entry_t  e;

    ngx_ratelimit_table_lock(table, &id, NOW, &e);
    e.state.fresh_us = fresh_us;
    e.state.aux = 7;
    e.state.extra = (uint32_t) fresh_us;
    ngx_ratelimit_table_store(&e, loss);
}


static void
put(ngx_ratelimit_table_t *table, uint64_t n, uint64_t fresh_us, uint32_t loss)
{
    put_id(table, key(n), fresh_us, loss);
}


static ngx_ratelimit_entry_t
get_id(ngx_ratelimit_table_t *table, ngx_ratelimit_id_t id)
{
    ngx_ratelimit_entry_t  e;

    ngx_ratelimit_table_lock(table, &id, NOW, &e);
    ngx_ratelimit_table_unlock(&e);

    return e;
}


static int
has(ngx_ratelimit_table_t *table, uint64_t n)
{
    return get_id(table, key(n)).found;
}


static ngx_ratelimit_table_stat_t
stat_at(ngx_ratelimit_table_t *table, uint64_t now_us)
{
    ngx_ratelimit_table_stat_t  stat;

    ngx_ratelimit_table_stat(table, now_us, &stat);

    return stat;
}


static int
copies(const ngx_ratelimit_entry_t *e)
{
    int              n, i;
    const bucket_t  *bucket;

    n = 0;

    for (i = 0; i < 6; i++) {
        bucket = e->buckets[i / 3];
        n += (bucket->tag[i % 3] == e->tag);
    }

    return n;
}


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


/* A child, which does not outlive a test that failed. */
static pid_t
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


static void
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
test_size(void **state)
{
    size_t                 size;
    map_t                  map;
    ngx_ratelimit_table_t  *t;

    (void) state;

    map = table_make(NGX_RATELIMIT_TABLE_MIN_BYTES);
    t = map.table;

    assert_int_equal(ngx_ratelimit_table_check(t, map.size), NGX_OK);
    assert_memory_equal(ngx_ratelimit_table_hash_key(t), hash_key, 16);

    /* not less than 64 buckets of three a segment, nearly all of the memory */
    assert_in_range(stat_at(t, NOW).counters, 2 * 64 * 3, 256 * 3);
    assert_true(stat_at(t, NOW).counters > 240 * 3);

    assert_int_equal(ngx_ratelimit_table_init(t, map.size - 1, hash_key),
                     NGX_ERROR);
    assert_int_equal(ngx_ratelimit_table_check(t, map.size - 1), NGX_ERROR);
    assert_int_equal(ngx_ratelimit_table_check(t, map.size + 64), NGX_ERROR);

    for (size = 0; size < map.size; size += 64) {
        assert_int_equal(ngx_ratelimit_table_check(t, size), NGX_ERROR);
    }

    table_free(map);

    /* any size: the last bucket stands inside of it (ASan, or the page end) */
    for (size = NGX_RATELIMIT_TABLE_MIN_BYTES; size < 9 * MIB;
         size += size / 7 + 4096 - (size / 7) % 4096)
    {
        uint64_t  n;

        map = table_make(size);

        for (n = 0; n < 5000; n++) {
            put(map.table, n, LATER, 1);
        }

        assert_true(stat_at(map.table, NOW).counters * 64 / 3 <= size);
        assert_true(stat_at(map.table, NOW).live > 600);
        table_free(map);
    }
}


/* Each field of the header that init wrote has its say. */
static void
test_layout(void **state)
{
    map_t    map;
    u_char  *p;
    size_t   i, refused;

    (void) state;

    map = table_make(MIB);
    p = (u_char *) map.table;
    refused = 0;

    for (i = 0; i < 40; i++) {
        p[i] ^= 1;
        refused += (ngx_ratelimit_table_check(map.table, MIB) == NGX_ERROR);
        p[i] ^= 1;
    }

    assert_int_equal(refused, 40);
    assert_int_equal(ngx_ratelimit_table_check(map.table, MIB), NGX_OK);

    memset(p, 0, 64);
    assert_int_equal(ngx_ratelimit_table_check(map.table, MIB), NGX_ERROR);
    table_free(map);
}


/* A zone costs what is used of it; reading its figures costs nothing. */
static void
test_untouched(void **state)
{
    size_t          i, pages, resident;
    map_t           map;
    unsigned char  *vec;

    (void) state;

    map = table_make(64 * MIB);
    pages = map.size / sysconf(_SC_PAGESIZE);
    vec = malloc(pages);
    assert_non_null(vec);

    assert_int_equal(stat_at(map.table, NOW).live, 0);
    assert_int_equal(mincore(map.table, map.size, vec), 0);

    for (i = 0, resident = 0; i < pages; i++) {
        resident += vec[i] & 1;
    }

    /* the segments, and nothing else */
    assert_in_range(resident, 1, pages / 100);

    free(vec);
    table_free(map);
}


static void
test_find(void **state)
{
    map_t                  map;
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  e;

    (void) state;

    map = table_make(MIB);
    id = key(1);

    ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
    assert_int_equal(e.found, 0);
    assert_int_equal(e.state.fresh_us, 0);
    assert_int_equal(e.state.aux, 0);
    assert_int_equal(e.state.extra, 0);
    e.state.fresh_us = ((uint64_t) 1 << 52) - 1;
    e.state.aux = 0xfff;
    e.state.extra = UINT32_MAX;
    ngx_ratelimit_table_store(&e, 255);

    e = get_id(map.table, id);
    assert_int_equal(e.found, 1);
    assert_int_equal(e.state.fresh_us, ((uint64_t) 1 << 52) - 1);
    assert_int_equal(e.state.aux, 0xfff);
    assert_int_equal(e.state.extra, UINT32_MAX);
    assert_int_equal(stat_at(map.table, NOW).live, 1);

    /* unlock leaves it as it was */
    ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
    e.state.fresh_us = 5;
    ngx_ratelimit_table_unlock(&e);
    assert_true(get_id(map.table, id).state.fresh_us > 5);

    /* an update stays in its slot; expired it is still found as stored */
    put_id(map.table, id, NOW - 1, 0);
    e = get_id(map.table, id);
    assert_int_equal(e.found, 1);
    assert_int_equal(e.state.fresh_us, NOW - 1);
    assert_int_equal(e.state.aux, 7);
    assert_int_equal(e.state.extra, NOW - 1);
    assert_int_equal(copies(&e), 1);
    assert_int_equal(stat_at(map.table, NOW).live, 0);
    assert_int_equal(stat_at(map.table, NOW).evicted, 0);

    /* a new one that equals a fresh counter takes no place */
    put(map.table, 2, NOW, 0);
    assert_false(has(map.table, 2));

    table_free(map);
}


static void
test_candidates(void **state)
{
    map_t                   map;
    size_t                  size;
    uint64_t                n;
    ngx_ratelimit_entry_t   e;

    (void) state;

    for (size = NGX_RATELIMIT_TABLE_MIN_BYTES; size < 9 * MIB; size *= 5) {
        map = table_make(size);

        for (n = 0; n < 10000; n++) {
            e = get_id(map.table, key(n));

            assert_ptr_not_equal(e.buckets[0], e.buckets[1]);
            assert_int_equal((uintptr_t) e.buckets[0] % 64, 0);
            assert_int_equal((uintptr_t) e.buckets[1] % 64, 0);
            assert_true((u_char *) e.buckets[0] > (u_char *) e.segment);
            assert_true((u_char *) e.buckets[0] + 64
                        <= (u_char *) map.table + size);
            assert_true((u_char *) e.buckets[1] + 64
                        <= (u_char *) map.table + size);
        }

        table_free(map);
    }
}


/* Tag 0 means empty: ids with lo 0 are counters like others. */
static void
test_tag_zero(void **state)
{
    int                 i;
    map_t               map;
    ngx_ratelimit_id_t  id;

    (void) state;

    map = table_make(MIB);
    id.lo = 0;

    for (i = 0; i < 50; i++) {
        id.hi = mix(i);
        assert_int_equal(get_id(map.table, id).found, 0);
        put_id(map.table, id, LATER + i, 1);
    }

    for (i = 0; i < 50; i++) {
        id.hi = mix(i);
        assert_int_equal(get_id(map.table, id).found, 1);
        assert_int_equal(get_id(map.table, id).state.fresh_us, LATER + i);
    }

    table_free(map);
}


/*
 * Fills the smallest table to the last slot with counters of one state, and
 * returns how many keys that took.
 */
static uint64_t
fill(ngx_ratelimit_table_t *table, uint64_t first, uint64_t fresh_us,
    uint32_t loss, int known)
{
    uint64_t  n, slots;

    slots = stat_at(table, NOW).counters;

    for (n = first; stat_at(table, NOW).live < slots; n++) {
        put(table, n, fresh_us, loss);

        if (known) {
            put(table, n, fresh_us, loss);
        }

        assert_true(n < first + 1000000);
    }

    return n - first;
}


/*
 * A full table of counters b. Of the six that a newcomer could take the place
 * of one is made an a, which is missed less: it is the one that goes.
 */
static void
check_victim(uint64_t fresh_a, uint32_t loss_a, int known_a, uint64_t fresh_b,
    uint32_t loss_b, int known_b, int live)
{
    int                         i, tried;
    map_t                       map;
    uint64_t                    n, m, victim, used;
    bucket_t                   *bucket;
    ngx_ratelimit_entry_t       e;
    ngx_ratelimit_table_stat_t  before, after;

    map = table_make(NGX_RATELIMIT_TABLE_MIN_BYTES);
    used = fill(map.table, 0, fresh_b, loss_b, known_b);

    for (n = used, tried = 0; tried < 200; n++) {
        e = get_id(map.table, key(n));
        assert_int_equal(e.found, 0);

        /* make one of its six slots the one that is missed least */
        i = mix(n) % 6;
        bucket = e.buckets[i / 3];
        victim = bucket->tag[i % 3];
        bucket->word[i % 3] = fresh_a << 12;
        bucket->loss[i % 3] = loss_a;
        bucket->known = (bucket->known & ~(1 << i % 3)) | known_a << i % 3;

        before = stat_at(map.table, NOW);
        put(map.table, n, fresh_b, loss_b);
        after = stat_at(map.table, NOW);

        e = get_id(map.table, key(n));
        assert_int_equal(e.found, 1);
        assert_int_equal(e.bucket, i / 3);
        assert_int_equal(e.slot, i % 3);
        assert_true(bucket->tag[i % 3] != victim);
        assert_int_equal(after.evicted - before.evicted, live);
        assert_int_equal(after.live, after.counters);

        if (known_b) {
            put(map.table, n, fresh_b, loss_b);
        }

        /* the others are as they were: the next round finds the table full */
        for (m = 0; m < 6; m++) {
            bucket = e.buckets[m / 3];
            assert_true(bucket->word[m % 3] >> 12 == fresh_b);
        }

        tried++;
    }

    table_free(map);
}


static void
test_evict_expired_first(void **state)
{
    (void) state;

    /* even denying and known: an expired counter costs nothing */
    check_victim(NOW, 255, 1, LATER, 1, 0, 0);
    check_victim(NOW - 5, 255, 1, LATER, 1, 1, 0);
}


static void
test_evict_unknown_before_known(void **state)
{
    (void) state;

    check_victim(LATER, 255, 0, LATER, 1, 1, 1);
    check_victim(LATER, 9, 0, LATER, 9, 1, 1);
}


static void
test_evict_least_loss_first(void **state)
{
    (void) state;

    check_victim(LATER, 10, 0, LATER, 11, 0, 1);
    check_victim(LATER, 10, 1, LATER, 11, 1, 1);
    check_victim(LATER - 1, 10, 0, LATER, 10, 0, 1);
}


static void
test_evict_denying_last(void **state)
{
    (void) state;

    check_victim(LATER + 1000, 254, 0, LATER, 255, 0, 1);
    check_victim(LATER + 1000, 254, 1, LATER, 255, 1, 1);

    /* a loss out of range is that of a denying counter, not a small one */
    check_victim(LATER + 1000, 254, 0, LATER, 256, 0, 1);
}


/* The second store makes it known; a new owner of the slot does not inherit. */
static void
test_known(void **state)
{
    map_t                  map;
    bucket_t              *bucket;
    ngx_ratelimit_entry_t  e;

    (void) state;

    map = table_make(MIB);

    put(map.table, 1, LATER, 1);
    put(map.table, 1, NOW - 1, 1);
    e = get_id(map.table, key(1));
    bucket = e.buckets[e.bucket];
    assert_int_equal(bucket->known, 1 << e.slot);

    /* its slot is free: force the newcomer there by the same id.hi */
    {
        ngx_ratelimit_id_t  id;

        id = key(1);
        id.lo ^= 1;
        put_id(map.table, id, LATER, 1);
        assert_int_equal(get_id(map.table, id).found, 1);
        assert_ptr_equal(get_id(map.table, id).buckets[e.bucket], bucket);
        assert_false(has(map.table, 1));
        assert_int_equal(bucket->known, 0);
    }

    table_free(map);
}


/*
 * Clients that came back keep their counters through a flood of invented keys
 * (a full table makes counters move, so each is looked at whole).
 */
static void
flood(uint64_t clients, size_t size, uint64_t want)
{
    map_t                  map;
    uint64_t               i, kept;
    ngx_ratelimit_entry_t  e;

    map = table_make(size);

    for (i = 0; i < 2 * clients; i++) {
        put(map.table, i % clients, LATER + i % clients, 1);
    }

    for (i = 0; i < 1000000; i++) {
        /* they may even deny */
        put(map.table, clients + i, LATER, 255);
    }

    for (i = 0, kept = 0; i < clients; i++) {
        e = get_id(map.table, key(i));

        if (e.found) {
            kept++;
            assert_int_equal(copies(&e), 1);
            assert_int_equal(e.state.fresh_us, LATER + i);
            assert_int_equal(e.state.aux, 7);
            assert_int_equal(e.state.extra, (uint32_t) (LATER + i));
        }
    }

    print_message("%lu of %lu slots known: %lu kept\n", clients,
                  stat_at(map.table, NOW).counters, kept);
    assert_true(kept >= want);

    /* and the flood has not stopped by itself: the table is full of it */
    assert_true(stat_at(map.table, NOW).live
                > stat_at(map.table, NOW).counters * 99 / 100);
    assert_true(stat_at(map.table, NOW).evicted > 900000);

    table_free(map);
}


static void
test_flood(void **state)
{
    (void) state;

    flood(20000, 720000, 19900);     /* 59 % of the slots */
    flood(16000, 720000, 16000);     /* 47 %: none is lost */
}


/* How full the table gets before a live counter has to go. */
static void
test_load(void **state)
{
    map_t                       map;
    uint64_t                    n;
    ngx_ratelimit_table_stat_t  stat;

    (void) state;

    map = table_make(64 * MIB);
    n = 0;

    do {
        put(map.table, n++, LATER, 1);
        assert_true(n < 64 * MIB / 64 * 3);

        if (n % 10000 == 0) {
            stat = stat_at(map.table, NOW);
        }

    } while (n % 10000 || stat.evicted == 0);

    print_message("first live eviction at %.1f %% of %lu slots\n",
                  100.0 * n / stat.counters, stat.counters);
    assert_in_range(100 * n / stat.counters, 50, 90);
    table_free(map);
}


static void
test_owner_killed(void **state)
{
    map_t                       map;
    ngx_ratelimit_entry_t       e;
    ngx_ratelimit_table_stat_t  stat;

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
    ngx_ratelimit_table_stat_t  stat;

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
    assert_int_equal(stat.live, 1);
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


/*
 * Runs a store in a child instruction by instruction: after each of them all
 * the counters there may be hold the old state, the new one, or are not there.
 * Kills it after the given number of steps, or lets it end. Returns the steps.
 */
static int
step(ngx_ratelimit_table_t *table, uint64_t n, uint64_t version,
    ngx_ratelimit_entry_t *all, uint64_t nall, int kill_at)
{
    int       status, steps;
    pid_t     pid;
    uint64_t  i;

    pid = spawn();

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1) {
            _exit(2);
        }

        raise(SIGSTOP);
        torn_put(table, n, version);
        raise(SIGSTOP);
        _exit(0);
    }

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

        for (i = 0; i < nall; i++) {
            peek(&all[i]);
            assert_whole(&all[i], i);
        }
    }

    kill(pid, SIGKILL);
    reap(pid, SIGKILL);

    return steps;
}


static void
test_every_instruction(void **state)
{
    enum { N = 3 };

    int                    i, n, steps, moved;
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

        for (i = 1; i < steps; i += 3) {
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
    assert_true(found + KILLS >= stat_at(map.table, NOW).counters);
    assert_int_equal(found, stat_at(map.table, NOW).live);
    table_free(map);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_tag_zero),
        cmocka_unit_test(test_evict_expired_first),
        cmocka_unit_test(test_evict_unknown_before_known),
        cmocka_unit_test(test_evict_least_loss_first),
        cmocka_unit_test(test_evict_denying_last),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_load),
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

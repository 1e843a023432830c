/*
 * What a check costs in the shared table: lock, token bucket, store. Processes
 * over one mapping, as nginx' workers are; one key to ten million, evenly and
 * by Zipf's law; and how many of ten million live counters a zone keeps.
 *
 * The cases alternate, round by round; each figure is the median of the rounds.
 * "loop" is what the measuring itself costs (a key from the sequence, its id)
 * and is part of every figure; "robust mutex" adds a lock and an unlock to it,
 * "a line" the read of one cache line anywhere in the zone: what this machine's
 * memory takes for a counter, however it is found.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "ngx_ratelimit_table.h"
#include "ngx_ratelimit_token_bucket.h"

#define ROUNDS     7
#define OPS        1000000
#define KEYS       10000000
#define NOW        1000000
#define MB         ((size_t) 1000000)
#define ZONE       (500 * MB)
#define PROCESSES  2

typedef enum { LOOP, LOCK, LINE, CHECK } work_e;

typedef struct {
    const char  *name;
    work_e       work;
    uint32_t     keys;
    int          zipf;
    int          processes;
    double       ns[ROUNDS];
} case_t;

/* Shared by the processes. */
typedef struct {
    _Alignas(64)
    pthread_mutex_t        mutex;
    _Alignas(64)
    atomic_int             ready;
    _Alignas(64)
    double                 ns[PROCESSES];
    uint64_t               denied[PROCESSES];
    uint32_t               sequence[PROCESSES][OPS];
} shared_t;

static case_t  cases[] = {
    { "loop alone",                      LOOP,  KEYS,    0, 1, {0} },
    { "robust mutex alone",              LOCK,  KEYS,    0, 1, {0} },
    { "a line of the zone alone",        LINE,  KEYS,    0, 1, {0} },
    { "1 key",                           CHECK, 1,       0, 1, {0} },
    { "100,000 keys, even",              CHECK, 100000,  0, 1, {0} },
    { "100,000 keys, Zipf",              CHECK, 100000,  1, 1, {0} },
    { "1,000,000 keys, even",            CHECK, 1000000, 0, 1, {0} },
    { "1,000,000 keys, Zipf",            CHECK, 1000000, 1, 1, {0} },
    { "10,000,000 keys, even",           CHECK, KEYS,    0, 1, {0} },
    { "10,000,000 keys, Zipf",           CHECK, KEYS,    1, 1, {0} },
    { "2 processes, robust mutex alone", LOCK,  KEYS,    0, 2, {0} },
    { "2 processes, a line alone",       LINE,  KEYS,    0, 2, {0} },
    { "2 processes, 1 key",              CHECK, 1,       0, 2, {0} },
    { "2 processes, 10,000,000 keys",    CHECK, KEYS,    0, 2, {0} },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))

static const u_char          hash_key[] = "0123456789abcdef";
static ngx_ratelimit_rate_t  rate;
static shared_t             *shared;


static void
fail(const char *what)
{
    fprintf(stderr, "bench/table: %s failed\n", what);
    exit(1);
}


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


static double
clock_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * 1e9 + ts.tv_nsec;
}


static void *
map(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        fail("mmap");
    }

    return p;
}


/* One check as a worker makes it. Returns the tokens granted. */
static uint32_t
check(ngx_ratelimit_table_t *table, uint64_t n, uint64_t now_us, uint32_t cost)
{
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_entry_t         e;
    ngx_ratelimit_answer_t        answer;
    ngx_ratelimit_token_bucket_t  tb;

    id = key(n);
    ngx_ratelimit_table_lock(table, &id, now_us, &e);

    tb.tat_us = e.state.fresh_us;
    tb.tat_frac = e.state.extra;
    tb.span_code = e.state.aux;

    ngx_ratelimit_token_bucket_take(&tb, &rate, now_us, cost, 0, &answer);

    if (answer.granted == 0) {
        ngx_ratelimit_table_unlock(&e);
        return 0;
    }

    e.state.fresh_us = tb.tat_us;
    e.state.extra = tb.tat_frac;
    e.state.aux = tb.span_code;

    ngx_ratelimit_table_store(&e,
                 (uint64_t) (rate.capacity - answer.remaining) * 255
                 / rate.capacity);

    return answer.granted;
}


/* Zipf's exponent is 1: the logarithm of the rank is spread evenly. */
static void
sequence_make(uint32_t *sequence, uint32_t keys, int zipf, uint64_t seed)
{
    double    u;
    uint64_t  i, n;

    for (i = 0; i < OPS; i++) {
        n = mix(mix(seed) + i);

        if (zipf) {
            u = (n >> 11) * 0x1p-53;
            n = (uint64_t) exp(u * log(keys + 1.0)) - 1;
            sequence[i] = n < keys ? n : keys - 1;

        } else {
            sequence[i] = (n >> 32) * keys >> 32;
        }
    }
}


static void
work(ngx_ratelimit_table_t *table, const case_t *c, int process)
{
    double               start;
    uint64_t             i, sink, denied, line;
    cpu_set_t            cpus;
    const uint32_t      *sequence;
    ngx_ratelimit_id_t   id;

    /* a machine with less cores measures what it can */
    CPU_ZERO(&cpus);
    CPU_SET(process, &cpus);
    (void) sched_setaffinity(0, sizeof(cpus), &cpus);

    sequence = shared->sequence[process];
    sink = 0;
    denied = 0;

    /* a worker that has run for a while has all pages mapped */
    for (i = 0; i < ZONE; i += 4096) {
        sink += ((const volatile u_char *) table)[i];
    }

    atomic_fetch_add(&shared->ready, 1);

    while (atomic_load(&shared->ready) < c->processes) {
        sched_yield();
    }

    start = clock_ns();

    for (i = 0; i < OPS; i++) {

        if (c->work == CHECK) {
            denied += (check(table, sequence[i], NOW + i / 8, 1) == 0);
            continue;
        }

        id = key(sequence[i]);
        sink += id.hi ^ id.lo;

        if (c->work == LOCK) {
            pthread_mutex_lock(&shared->mutex);
            pthread_mutex_unlock(&shared->mutex);
        }

        if (c->work == LINE) {
            /* each read waits for the one before, as checks do */
            line = (sequence[i] ^ (sink & 1)) * (uint64_t) (ZONE / KEYS);
            sink += ((const volatile u_char *) table)[line];
        }
    }

    shared->ns[process] = (clock_ns() - start) / OPS;
    shared->denied[process] = denied + (sink == 1);
}


static double
run(ngx_ratelimit_table_t *table, const case_t *c, uint64_t seed)
{
    int     i, status;
    pid_t   pid[PROCESSES];
    double  ns;

    for (i = 0; i < c->processes; i++) {
        sequence_make(shared->sequence[i], c->keys, c->zipf, seed + i);
    }

    atomic_store(&shared->ready, 0);

    for (i = 0; i < c->processes; i++) {
        pid[i] = fork();

        if (pid[i] == -1) {
            fail("fork");
        }

        if (pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(table, c, i);
            _exit(0);
        }
    }

    for (i = 0, ns = 0; i < c->processes; i++) {
        if (waitpid(pid[i], &status, 0) != pid[i] || status != 0) {
            fail("a process");
        }

        if (shared->denied[i]) {
            fail("a check that should pass");
        }

        ns += shared->ns[i] / c->processes;
    }

    return ns;
}


static int
compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return (x > y) - (x < y);
}


/* Ten million live counters in a zone of this size; returns the table. */
static ngx_ratelimit_table_t *
fill(size_t size)
{
    double                      start, ns;
    uint64_t                    n;
    ngx_ratelimit_table_t      *table;
    ngx_ratelimit_table_stat_t  stat;

    table = map(size);

    if (ngx_ratelimit_table_init(table, size, hash_key) != NGX_OK) {
        fail("init");
    }

    start = clock_ns();

    for (n = 0; n < KEYS; n++) {
        /* 100 s of the bucket and more, so that all stay live */
        check(table, n, NOW, 100000000 + n % 400000000);
    }

    ns = (clock_ns() - start) / KEYS;
    start = clock_ns();
    ngx_ratelimit_table_stat(table, NOW, &stat);

    printf("%7zu %10.1f %8.1f %12lu %10.5f %10.0f %10.0f\n", size / MB,
           (double) size / KEYS, 100.0 * KEYS / stat.counters,
           (unsigned long) (KEYS - stat.live), 100.0 * stat.live / KEYS, ns,
           (clock_ns() - start) / 1e6);
    fflush(stdout);

    return table;
}


static void
report(void)
{
    size_t  i;

    printf("\n%-34s %8s %8s %8s  (%d rounds)\n", "ns a check", "median",
           "least", "most", ROUNDS);

    for (i = 0; i < NCASES; i++) {
        qsort(cases[i].ns, ROUNDS, sizeof(double), compare);
        printf("%-34s %8.1f %8.1f %8.1f\n", cases[i].name,
               cases[i].ns[ROUNDS / 2], cases[i].ns[0],
               cases[i].ns[ROUNDS - 1]);
    }
}


int
main(void)
{
    size_t                  i, round;
    pthread_mutexattr_t     attr;
    ngx_ratelimit_table_t  *table;

    static const size_t     sizes[] = { 240, 320, 400 };

    /* a million tokens a second, 1,000 s of them */
    if (ngx_ratelimit_rate_init(&rate, 1000000, 1000000, 1000000000) != 0) {
        fail("rate");
    }

    shared = map(sizeof(shared_t));

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attr);

    printf("%d live counters\n%7s %10s %8s %12s %10s %10s %10s\n", KEYS,
           "MB", "bytes each", "full, %", "lost", "kept, %", "ns insert",
           "stat, ms");

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        munmap(fill(sizes[i] * MB), sizes[i] * MB);
    }

    table = fill(ZONE);

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < NCASES; i++) {
            cases[i].ns[round] = run(table, &cases[i],
                                     PROCESSES * (round * NCASES + i));
        }
    }

    report();

    return 0;
}

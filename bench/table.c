/*
 * Measures a check in the shared table: lock, token bucket, store. Processes
 * share one mapping, as nginx's workers do. They use one key to ten million,
 * evenly and by Zipf's law. The same checks run in limit_req's tree, which is
 * in memory at the same time. A zone shows how many of ten million live
 * counters it keeps.
 *
 * The cases alternate, round by round. Each figure is the median of the rounds.
 * "times the table's" is the median of the ratios to the line before.
 * "loop" is the cost of measuring (a key from the sequence, its id), and is
 * part of every figure. "lock" adds a lock and an unlock. "a line" adds the
 * read of one cache line anywhere in the zone: the least that a counter takes.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "counters.h"
#include "tree.h"

#define ROUNDS     7
#define OPS        1000000
#define KEYS       10000000
#define NOW        1000000
#define ZONE       (500 * MB)
#define TREE_ZONE  (1500 * MB)
#define PROCESSES  2

typedef enum { LOOP, LOCK, LINE, CHECK, TREE } work_e;

typedef struct {
    const char  *name;
    work_e       work;
    uint32_t     keys;
    int          zipf;
    int          processes;
    double       ns[ROUNDS];
    double       times[ROUNDS];   /* a tree's: ns of the case before */
} case_t;

/* Shared by the processes. */
typedef struct {
    _Alignas(64)
    ngx_rl_lock_t   lock;
    _Alignas(64)
    atomic_int      ready;
    _Alignas(64)
    double          ns[PROCESSES];
    uint64_t        denied[PROCESSES];
    uint32_t        sequence[PROCESSES][OPS];
} shared_t;

static case_t  cases[] = {
    { "loop alone",                      LOOP,  KEYS,    0, 1, {0}, {0} },
    { "lock alone",                      LOCK,  KEYS,    0, 1, {0}, {0} },
    { "a line of the zone alone",        LINE,  KEYS,    0, 1, {0}, {0} },
    { "1 key",                           CHECK, 1,       0, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  1,       0, 1, {0}, {0} },
    { "100,000 keys, even",              CHECK, 100000,  0, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  100000,  0, 1, {0}, {0} },
    { "100,000 keys, Zipf",              CHECK, 100000,  1, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  100000,  1, 1, {0}, {0} },
    { "1,000,000 keys, even",            CHECK, 1000000, 0, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  1000000, 0, 1, {0}, {0} },
    { "1,000,000 keys, Zipf",            CHECK, 1000000, 1, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  1000000, 1, 1, {0}, {0} },
    { "10,000,000 keys, even",           CHECK, KEYS,    0, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  KEYS,    0, 1, {0}, {0} },
    { "10,000,000 keys, Zipf",           CHECK, KEYS,    1, 1, {0}, {0} },
    { "  limit_req's tree",              TREE,  KEYS,    1, 1, {0}, {0} },
    { "2 processes, lock alone",         LOCK,  KEYS,    0, 2, {0}, {0} },
    { "2 processes, a line alone",       LINE,  KEYS,    0, 2, {0}, {0} },
    { "2 processes, 1 key",              CHECK, 1,       0, 2, {0}, {0} },
    { "  limit_req's tree",              TREE,  1,       0, 2, {0}, {0} },
    { "2 processes, 100,000 keys, Zipf", CHECK, 100000,  1, 2, {0}, {0} },
    { "  limit_req's tree",              TREE,  100000,  1, 2, {0}, {0} },
    { "2 processes, 10,000,000, even",   CHECK, KEYS,    0, 2, {0}, {0} },
    { "  limit_req's tree",              TREE,  KEYS,    0, 2, {0}, {0} },
    { "2 processes, 10,000,000, Zipf",   CHECK, KEYS,    1, 2, {0}, {0} },
    { "  limit_req's tree",              TREE,  KEYS,    1, 2, {0}, {0} },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))

static ngx_rl_rate_t    rate;
static shared_t               *shared;
static ngx_rl_table_t  *table;
static u_char                 *tree_memory;
static tree_t                 *tree;


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


static uint64_t
touch(const volatile u_char *memory, size_t size)
{
    size_t    i;
    uint64_t  sum;

    for (i = 0, sum = 0; i < size; i += 4096) {
        sum += memory[i];
    }

    return sum;
}


static void
work(const case_t *c, int process)
{
    double           start;
    uint64_t         i, sink, denied, line;
    cpu_set_t        cpus;
    const uint32_t  *sequence;
    ngx_rl_id_t      id;

    tree_process();

    /* a machine with less cores measures what it can */
    CPU_ZERO(&cpus);
    CPU_SET(process, &cpus);
    (void) sched_setaffinity(0, sizeof(cpus), &cpus);

    sequence = shared->sequence[process];
    sink = 0;
    denied = 0;

    /* a worker that has run for a while has all pages mapped */
    sink += touch(c->work == TREE ? tree_memory : (u_char *) table,
                  c->work == TREE ? TREE_ZONE : ZONE);

    atomic_fetch_add(&shared->ready, 1);

    while (atomic_load(&shared->ready) < c->processes) {
        sched_yield();
    }

    start = clock_ns();

    for (i = 0; i < OPS; i++) {

        if (c->work == CHECK) {
            denied += (check(table, &rate, sequence[i], NOW + i / 8, 1) == 0);
            continue;
        }

        id = key(sequence[i]);

        if (c->work == TREE) {
            denied += (tree_check(tree, &id, (NOW + i / 8) / 1000) != NGX_OK);
            continue;
        }

        sink += id.hi ^ id.lo;

        if (c->work == LOCK) {
            ngx_rl_lock(&shared->lock);
            ngx_rl_unlock(&shared->lock);
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
run(const case_t *c, uint64_t seed)
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
            work(c, i);
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
static ngx_rl_table_t *
fill(size_t size)
{
    double               start, ns;
    uint64_t             n;
    ngx_rl_table_t      *t;
    ngx_rl_segments_stat_t  stat;

    t = table_make(size);
    start = clock_ns();

    for (n = 0; n < KEYS; n++) {
        /* 100 s of the bucket and more, so that all stay live */
        check(t, &rate, n, NOW, 100000000 + n % 400000000);
    }

    ns = (clock_ns() - start) / KEYS;
    start = clock_ns();
    ngx_rl_table_stat(t, NOW, NGX_RL_STAT_ALL, &stat);

    printf("%7zu %10.1f %8.1f %12lu %10.5f %10.0f %10.0f\n", size / MB,
           (double) size / KEYS, 100.0 * KEYS / stat.places,
           (unsigned long) (KEYS - stat.busy), 100.0 * stat.busy / KEYS, ns,
           (clock_ns() - start) / 1e6);
    fflush(stdout);

    return t;
}


/* The same in limit_req's tree. */
static void
fill_tree(void)
{
    double       start, ns, bytes;
    uint64_t     n;
    ngx_rl_id_t  id;

    tree_memory = map(TREE_ZONE);
    tree = tree_init(tree_memory, TREE_ZONE, 1000000, 1000000000);

    if (tree == NULL) {
        fail("the tree's init");
    }

    start = clock_ns();

    for (n = 0; n < KEYS; n++) {
        id = key(n);

        if (tree_check(tree, &id, NOW / 1000) != NGX_OK) {
            fail("an insert into the tree");
        }
    }

    ns = (clock_ns() - start) / KEYS;
    bytes = tree_bytes(tree);

    printf("limit_req's tree:\n%7.0f %10.1f %8s %12lu %10.5f %10.0f %10s\n",
           bytes / MB, bytes / KEYS, "-",
           (unsigned long) (KEYS - tree_count(tree)),
           100.0 * tree_count(tree) / KEYS, ns, "-");
    fflush(stdout);
}


static void
report(void)
{
    size_t  i;

    printf("\n%-34s %8s %8s %8s  (%d rounds)\n", "ns a check", "median",
           "least", "most", ROUNDS);

    for (i = 0; i < NCASES; i++) {
        qsort(cases[i].ns, ROUNDS, sizeof(double), compare);
        qsort(cases[i].times, ROUNDS, sizeof(double), compare);

        printf("%-34s %8.1f %8.1f %8.1f", cases[i].name,
               cases[i].ns[ROUNDS / 2], cases[i].ns[0],
               cases[i].ns[ROUNDS - 1]);

        if (cases[i].work == TREE) {
            printf("   %5.1f times the table's", cases[i].times[ROUNDS / 2]);
        }

        putchar('\n');
    }
}


static void
measure(void)
{
    size_t  i, round;

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < NCASES; i++) {
            cases[i].ns[round] = run(&cases[i],
                                     PROCESSES * (round * NCASES + i));

            if (cases[i].work == TREE) {
                cases[i].times[round] = cases[i].ns[round]
                                        / cases[i - 1].ns[round];
            }
        }
    }
}


int
main(void)
{
    size_t  i;

    static const size_t  sizes[] = { 240, 320, 400 };

    /* a million tokens a second, 1,000 s of them */
    if (ngx_rl_rate_init(&rate, 1000000, 1000000, 1000000000) != 0) {
        fail("rate");
    }

    shared = map(sizeof(shared_t));

    printf("%d live counters\n%7s %10s %8s %12s %10s %10s %10s\n", KEYS,
           "MB", "bytes each", "full, %", "lost", "kept, %", "ns insert",
           "stat, ms");

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        munmap(fill(sizes[i] * MB), sizes[i] * MB);
    }

    table = fill(ZONE);
    fill_tree();

    measure();
    report();

    return 0;
}

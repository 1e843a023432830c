/*
 * What redis-speed.sh and redis-size.sh ask Redis, pipelined: token buckets by
 * the module's own script, whose name (SHA1) they give.
 *
 *   redis speed <sha> <old sha> <no-op's sha> <kind> <port>
 *       the script against another version of it, INCR, and a script that does
 *       nothing, alternating; kind: t, f or s, see lua/check.lua
 *   redis fill <sha> <from> <to> <buckets> <period_us> <port>...
 *       one call for each of these counters; of several ports, which are of a
 *       Cluster, the one that has the bucket's slot
 *   redis count <buckets> <port>...
 *       prints how many counters are in the buckets
 *
 * Blocking, one process. Each ends ten minutes after it began at the latest.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "ngx_rl_hash.h"

#define MAX_CONNS  64
#define MAX_PORTS  8
#define SLOTS      16384
#define BATCH      256        /* of fill and count, in flight on a connection */

#define ROUNDS     5
#define COUNTERS   100000     /* of speed */
#define BUCKETS    65536

typedef enum { INCR, NOTHING, OLD, CHECK, NKINDS } kind_e;

typedef struct {
    int     conns;
    int     depth;
    int     calls;                       /* in a round */
    double  per_second[NKINDS][ROUNDS];
    double  cpu_us[NKINDS][ROUNDS];
    double  to_incr[ROUNDS];             /* CPU of a check, by that of INCR */
    double  to_nothing[ROUNDS];
    double  to_old[ROUNDS];
} case_t;

typedef struct {
    char  *text;
    int    len;
} command_t;

static case_t  cases[] = {
    { .conns = 1,  .depth = 1,  .calls = 5000 },
    { .conns = 1,  .depth = 16, .calls = 40000 },
    { .conns = 1,  .depth = 64, .calls = 40000 },
    { .conns = 64, .depth = 1,  .calls = 40000 },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))

static command_t      commands[NKINDS][COUNTERS];
static redisContext  *conns[MAX_CONNS];
static int            owner[SLOTS];      /* of a slot, among conns */


static void
fail(const char *what, const char *why)
{
    fprintf(stderr, "bench/redis: %s: %s\n", what, why);
    exit(1);
}


static redisContext *
connect_to(const char *port)
{
    redisContext  *c;

    c = redisConnect("127.0.0.1", atoi(port));

    if (c == NULL || c->err) {
        fail(port, c ? c->errstr : "no memory");
    }

    return c;
}


/* The next reply, to be freed by the caller; an error ends the program. */
static redisReply *
reply(redisContext *c)
{
    void        *answer;
    redisReply  *r;

    if (redisGetReply(c, &answer) != REDIS_OK) {
        fail("reply", c->errstr);
    }

    r = answer;

    if (r->type == REDIS_REPLY_ERROR) {
        fail("reply", r->str);
    }

    return r;
}


static uint64_t
mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;

    return x ^ (x >> 31);
}


static unsigned
bucket_of(uint64_t n, unsigned buckets)
{
    return mix(2 * n) % buckets;
}


/* The n-th call, as the module writes it. The text is the caller's. */
static command_t
check_command(const char *sha, const char *kind, uint64_t n, unsigned buckets,
    const char *us)
{
    char         key[32];
    uint64_t     field;
    command_t    command;

    field = mix(2 * n + 1);
    snprintf(key, sizeof(key), "rl:{%u}", bucket_of(n, buckets));

    command.len = redisFormatCommand(&command.text,
                      "EVALSHA %s 1 %s %s %b 1 1 10000 %s %s", sha, key, kind,
                      &field, sizeof(field), us, *kind == 't' ? "1" : "0");
    if (command.len < 0) {
        fail("a command", "no memory");
    }

    return command;
}


static void
send_all(redisContext *c)
{
    int  done;

    do {
        if (redisBufferWrite(c, &done) != REDIS_OK) {
            fail("write", c->errstr);
        }
    } while (!done);
}


static double
seconds(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec + ts.tv_nsec / 1e9;
}


/* A number of INFO. */
static double
info(const char *section, const char *name)
{
    char        *at;
    double       n;
    redisReply  *r;

    if (redisAppendCommand(conns[0], "INFO %s", section) != REDIS_OK) {
        fail("INFO", conns[0]->errstr);
    }

    r = reply(conns[0]);
    at = strstr(r->str, name);

    if (at == NULL) {
        fail("INFO has no", name);
    }

    n = atof(at + strlen(name));
    freeReplyObject(r);

    return n;
}


/* For how long the server's thread has run, in us. */
static double
cpu_us(int pid)
{
    char       path[64];
    FILE      *file;
    uint64_t   ns;

    ns = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
    file = fopen(path, "r");

    if (file == NULL || fscanf(file, "%" SCNu64, &ns) != 1) {
        fail(path, "cannot be read");
    }

    fclose(file);

    return ns / 1e3;
}


/* Sends so many of a kind; each connection has depth of them in flight. */
static void
ask(const case_t *c, kind_e kind)
{
    int         i, j;
    unsigned    n;
    command_t  *command;

    static unsigned  next[NKINDS];

    for (n = 0; n < (unsigned) c->calls; n += c->conns * c->depth) {

        for (i = 0; i < c->conns; i++) {
            for (j = 0; j < c->depth; j++) {
                command = &commands[kind][next[kind]++ % COUNTERS];
                redisAppendFormattedCommand(conns[i], command->text,
                                            command->len);
            }

            send_all(conns[i]);
        }

        for (i = 0; i < c->conns; i++) {
            for (j = 0; j < c->depth; j++) {
                freeReplyObject(reply(conns[i]));
            }
        }
    }
}


static void
measure(case_t *c, int round, int pid)
{
    int     i, kind;
    double  start, cpu;

    for (i = 0; i < NKINDS; i++) {
        /* the next round goes the other way */
        kind = round % 2 ? NKINDS - 1 - i : i;

        start = seconds();
        cpu = cpu_us(pid);
        ask(c, kind);

        c->cpu_us[kind][round] = (cpu_us(pid) - cpu) / c->calls;
        c->per_second[kind][round] = c->calls / (seconds() - start);
    }

    c->to_incr[round] = c->cpu_us[CHECK][round] / c->cpu_us[INCR][round];
    c->to_nothing[round] = c->cpu_us[CHECK][round] / c->cpu_us[NOTHING][round];
    c->to_old[round] = c->cpu_us[CHECK][round] / c->cpu_us[OLD][round];
}


static int
compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return (x > y) - (x < y);
}


static double
median(double *figures)
{
    qsort(figures, ROUNDS, sizeof(double), compare);

    return figures[ROUNDS / 2];
}


static void
report(void)
{
    int      kind;
    size_t   i;
    case_t  *c;

    printf("%-22s %18s %18s %18s %18s %24s\n%-22s", "", "INCR",
           "no-op script", "old script", "script", "its CPU, times",
           "connections x depth");

    for (kind = 0; kind < NKINDS; kind++) {
        printf(" %9s %8s", "calls/s", "us CPU");
    }

    printf(" %8s %7s %7s\n", "INCR's", "no-op's", "old's");

    for (i = 0; i < NCASES; i++) {
        c = &cases[i];
        printf("%9d x %-10d", c->conns, c->depth);

        for (kind = 0; kind < NKINDS; kind++) {
            printf(" %9.0f %8.2f", median(c->per_second[kind]),
                   median(c->cpu_us[kind]));
        }

        printf(" %8.1f %7.1f %7.3f\n", median(c->to_incr),
               median(c->to_nothing), median(c->to_old));
    }
}


static void
speed(const char *sha, const char *old, const char *nothing, const char *kind,
    const char *port)
{
    int          round, pid;
    double       in, out;
    size_t       i;
    unsigned     n;
    command_t   *command;
    const char  *us;

    us = *kind == 't' ? "600000" : "3600000000";

    for (i = 0; i < MAX_CONNS; i++) {
        conns[i] = connect_to(port);
    }

    for (n = 0; n < COUNTERS; n++) {
        command = &commands[INCR][n];
        command->len = redisFormatCommand(&command->text, "INCR counter:%u", n);
        commands[NOTHING][n] = check_command(nothing, kind, n, BUCKETS, us);
        commands[OLD][n] = check_command(old, kind, n, BUCKETS, us);
        commands[CHECK][n] = check_command(sha, kind, n, BUCKETS, us);
    }

    pid = info("server", "process_id:");

    /* each counter is there, as in a Redis that has run for a while */

    ask(&(case_t) { .conns = 1, .depth = 50, .calls = COUNTERS }, INCR);

    in = info("stats", "total_net_input_bytes:");
    out = info("stats", "total_net_output_bytes:");
    ask(&(case_t) { .conns = 1, .depth = 50, .calls = COUNTERS }, CHECK);
    in = info("stats", "total_net_input_bytes:") - in;
    out = info("stats", "total_net_output_bytes:") - out;

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < NCASES; i++) {
            measure(&cases[i], round, pid);
        }
    }

    report();
    printf("\nbytes a call: %.0f to Redis, %.0f from it\n", in / COUNTERS,
           out / COUNTERS);
}


/* Connects to all, and learns which has which slot. Returns how many. */
static int
connect_all(char **ports)
{
    int           n, i, port;
    size_t        j;
    long long     slot;
    redisReply   *r, *range;

    for (n = 0; n < MAX_PORTS && ports[n] != NULL; n++) {
        conns[n] = connect_to(ports[n]);
    }

    if (n < 2) {
        return n;
    }

    redisAppendCommand(conns[0], "CLUSTER SLOTS");
    r = reply(conns[0]);

    for (j = 0; j < r->elements; j++) {
        range = r->element[j];
        port = range->element[2]->element[1]->integer;

        for (i = 0; i < n && atoi(ports[i]) != port; i++) { /* void */ }

        if (i == n) {
            fail("CLUSTER SLOTS", "a port that was not given");
        }

        for (slot = range->element[0]->integer;
             slot <= range->element[1]->integer; slot++)
        {
            owner[slot] = i;
        }
    }

    freeReplyObject(r);

    return n;
}


static redisContext *
conn_of(unsigned bucket)
{
    char  key[32];

    snprintf(key, sizeof(key), "rl:{%u}", bucket);

    return conns[owner[ngx_rl_cluster_slot((u_char *) key, strlen(key))]];
}


/* Reads what is in flight; the sum of the integers that are answers. */
static uint64_t
drain(int n, int *pending)
{
    int          i;
    uint64_t     sum;
    redisReply  *r;

    sum = 0;

    for (i = 0; i < n; i++) {
        send_all(conns[i]);
    }

    for (i = 0; i < n; i++) {
        for ( /* void */ ; pending[i] > 0; pending[i]--) {
            r = reply(conns[i]);
            sum += r->type == REDIS_REPLY_INTEGER ? r->integer
                                                  : r->element[0]->integer;
            freeReplyObject(r);
        }
    }

    return sum;
}


static int
conn_number(redisContext *c)
{
    int  i;

    for (i = 0; conns[i] != c; i++) { /* void */ }

    return i;
}


static void
fill(const char *sha, uint64_t from, uint64_t to, unsigned buckets,
    const char *period_us, char **ports)
{
    int            n, pending[MAX_PORTS] = { 0 };
    uint64_t       i, granted;
    command_t      command;
    redisContext  *c;

    n = connect_all(ports);
    granted = 0;

    for (i = from; i < to; i++) {
        c = conn_of(bucket_of(i, buckets));
        command = check_command(sha, "t", i, buckets, period_us);
        redisAppendFormattedCommand(c, command.text, command.len);
        redisFreeCommand(command.text);

        if (++pending[conn_number(c)] == BATCH) {
            granted += drain(n, pending);
        }
    }

    granted += drain(n, pending);

    if (granted != to - from) {
        fail("fill", "a call was not granted");
    }
}


static void
count(unsigned buckets, char **ports)
{
    int            n, pending[MAX_PORTS] = { 0 };
    unsigned       i;
    uint64_t       sum;
    redisContext  *c;

    n = connect_all(ports);
    sum = 0;

    for (i = 0; i < buckets; i++) {
        c = conn_of(i);
        redisAppendCommand(c, "HLEN rl:{%u}", i);

        if (++pending[conn_number(c)] == BATCH) {
            sum += drain(n, pending);
        }
    }

    printf("%" PRIu64 "\n", sum + drain(n, pending));
}


int
main(int argc, char **argv)
{
    alarm(600);

    if (argc == 7 && strcmp(argv[1], "speed") == 0) {
        speed(argv[2], argv[3], argv[4], argv[5], argv[6]);

    } else if (argc >= 8 && strcmp(argv[1], "fill") == 0) {
        fill(argv[2], strtoull(argv[3], NULL, 10),
             strtoull(argv[4], NULL, 10), atoi(argv[5]), argv[6], argv + 7);

    } else if (argc >= 4 && strcmp(argv[1], "count") == 0) {
        count(atoi(argv[2]), argv + 3);

    } else {
        fail("usage", "see the head of bench/redis.c");
    }

    return 0;
}

/*
 * How long an answer takes when nothing queues: requests are sent at random
 * moments (a Poisson process) at a rate far below what the server can do,
 * whether the last one was answered or not.
 *
 *     latency <cpu> <other cpu> <port> <rate> <seconds> [<n>] < <requests>
 *
 * The input is <n> requests of the same length (1), sent in turn. It runs on
 * <cpu>. While it waits loops that give way to everybody keep both
 * processors awake: to wake a sleeping one takes longer, above all in a virtual
 * machine, than what is measured here. AWAKE=0 in the environment does without
 * them: on a busy machine the servers lack what they take.
 *
 * Speaks HTTP and Redis' protocol: an answer is as long as it says itself. The
 * last line is that of keys.lua, in microseconds: "result", answers, duration,
 * errors among them, those that did not come, p50, p99, p99.9, the longest. The
 * times are those of <seconds>; half a second before is to warm up. Where too
 * few were sent, it says so and fails.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNS       64
#define IN_BYTES    8192
#define READ_BYTES  (1 << 20)
#define PATIENCE    5.0
#define WARM_UP     0.5
#define SECOND      1000000000LL

typedef struct {
    int64_t   sent_ns;            /* 0: idle */
    size_t    in_len;
    char      in[IN_BYTES + 1];
} conn_t;

static void die(const char *what);
static void read_requests(long n);
static int64_t now_ns(void);
static void pin(int cpu);
static pid_t keep_awake(int cpu);
static int conn_open(in_port_t port);
static void send_one(int64_t now);
static void wait_until(int64_t then_ns);
static void receive(int i);
static int answer_whole(const conn_t *c);
static int http_whole(const conn_t *c);
static int redis_whole(const char *in);
static int by_time(const void *one, const void *two);
static double quantile(double q);
static void report(int64_t duration_ns);

static struct pollfd   fds[CONNS];
static conn_t          conns[CONNS];
static char           *requests;
static size_t          requests_len, request_len;
static uint32_t       *took_ns;
static long            sent, answered, measured, errors, broken, left_out, room;
static int64_t         warm_ns;
static pid_t           loops[2];


int
main(int argc, char **argv)
{
    int       i;
    char     *awake;
    double    rate;
    int64_t   now, start, next, end;

    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: see latency.c\n");
        return 2;
    }

    read_requests(argc == 7 ? atol(argv[6]) : 1);
    rate = atof(argv[4]);
    room = (long) (rate * (atof(argv[5]) + WARM_UP) * 2) + 1000;
    took_ns = calloc(room, sizeof(uint32_t));

    if (took_ns == NULL) {
        die("no memory");
    }

    awake = getenv("AWAKE");

    for (i = 0; i < 2 && (awake == NULL || strcmp(awake, "0") != 0); i++) {
        loops[i] = keep_awake(atoi(argv[i + 1]));
    }

    pin(atoi(argv[1]));
    prctl(PR_SET_TIMERSLACK, 1);
    srand48(atoi(argv[3]));             /* other moments on other ports */

    for (i = 0; i < CONNS; i++) {
        fds[i].fd = conn_open((in_port_t) atoi(argv[3]));
        fds[i].events = POLLIN;
    }

    start = next = now_ns();
    warm_ns = start + (int64_t) (WARM_UP * SECOND);
    end = warm_ns + (int64_t) (atof(argv[5]) * SECOND);

    while (next < end && sent + left_out < room) {
        wait_until(next);
        now = now_ns();
        send_one(now);

        /* one that comes late does not hurry the next */

        next = (now - next > SECOND / 100 ? now : next)
               + (int64_t) (-log(1 - drand48()) / rate * SECOND);
    }

    now = now_ns();
    end = now + (int64_t) (PATIENCE * SECOND);

    while (answered + broken < sent && now_ns() < end) {
        wait_until(now_ns() + SECOND / 100);
    }

    report(now - start);

    return 0;
}


static void
die(const char *what)
{
    fprintf(stderr, "latency: %s\n", what);
    exit(1);                    /* the loops end with it */
}


static void
read_requests(long n)
{
    size_t  size;

    size = 0;

    do {
        size += READ_BYTES;
        requests = realloc(requests, size);

        if (requests == NULL) {
            die("no memory");
        }

        requests_len += fread(requests + requests_len, 1, size - requests_len,
                              stdin);
    } while (requests_len == size);

    if (n < 1 || requests_len == 0 || requests_len % n != 0) {
        die("no such number of requests");
    }

    request_len = requests_len / n;
}


static int64_t
now_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * SECOND + ts.tv_nsec;
}


static void
pin(int cpu)
{
    cpu_set_t  set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);

    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        die("no such processor");
    }
}


/* A loop that any other program interrupts; it ends when we do. */

static pid_t
keep_awake(int cpu)
{
    pid_t               pid, parent;
    struct sched_param  param;

    parent = getpid();
    pid = fork();

    if (pid == -1) {
        die("no process");
    }

    if (pid > 0) {
        return pid;
    }

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(&param, 0, sizeof(param));
    pin(cpu);

    if (getppid() != parent || sched_setscheduler(0, SCHED_IDLE, &param) != 0) {
        _exit(1);
    }

    for ( ;; ) {
        __asm__ volatile ("" ::: "memory");
    }
}


static int
conn_open(in_port_t port)
{
    int                 fd, one;
    struct sockaddr_in  sin;

    fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    if (fd == -1 || connect(fd, (struct sockaddr *) &sin, sizeof(sin)) != 0) {
        die("no connection");
    }

    one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    return fd;
}


/* By the connection that has been idle for longest, so that all are used. */

static void
send_one(int64_t now)
{
    int            i, n;
    static int     last;
    static size_t  next;

    for (n = 1; n <= CONNS; n++) {
        i = (last + n) % CONNS;

        if (conns[i].sent_ns == 0) {
            break;
        }
    }

    if (n > CONNS) {
        left_out++;
        return;
    }

    last = i;
    conns[i].in_len = 0;
    conns[i].sent_ns = now;
    sent++;

    if (send(fds[i].fd, requests + next, request_len, MSG_NOSIGNAL)
        != (ssize_t) request_len)
    {
        broken++;
        conns[i].sent_ns = 0;
    }

    next = (next + request_len) % requests_len;
}


/* Until then receives what comes. */

static void
wait_until(int64_t then_ns)
{
    int              i, n;
    int64_t          left;
    struct timespec  ts;

    while ((left = then_ns - now_ns()) > 0) {
        ts.tv_sec = left / SECOND;
        ts.tv_nsec = left % SECOND;

        n = ppoll(fds, CONNS, &ts, NULL);

        for (i = 0; n > 0 && i < CONNS; i++) {
            if (fds[i].revents) {
                n--;
                receive(i);
            }
        }
    }
}


static void
receive(int i)
{
    ssize_t   n;
    int64_t   now;
    conn_t   *c;

    c = &conns[i];
    n = recv(fds[i].fd, c->in + c->in_len, IN_BYTES - c->in_len, 0);
    now = now_ns();

    if (n <= 0 || c->sent_ns == 0) {
        broken++;
        fds[i].fd = -1;                /* poll ignores it, and send fails */
        return;
    }

    c->in_len += n;
    c->in[c->in_len] = '\0';

    if (!answer_whole(c)) {
        return;
    }

    errors += c->in[0] == '-' || (c->in[0] == 'H'
                                  && strncmp(c->in, "HTTP/1.1 200", 12) != 0);
    answered++;

    if (c->sent_ns >= warm_ns) {
        took_ns[measured++] = (uint32_t) (now - c->sent_ns);
    }

    c->sent_ns = 0;
}


static int
answer_whole(const conn_t *c)
{
    return c->in[0] == 'H' ? http_whole(c) : redis_whole(c->in);
}


/* A body may have zeros in it. */

static int
http_whole(const conn_t *c)
{
    const char  *end, *length;

    end = strstr(c->in, "\r\n\r\n");
    length = strcasestr(c->in, "\r\nContent-Length:");

    return end && length
           && c->in + c->in_len - (end + 4) >= strtol(length + 17, NULL, 10);
}


/* Numbers, states and errors, and arrays of them. */

static int
redis_whole(const char *in)
{
    long         left;
    const char  *end;

    for (left = 1; left > 0; left--, in = end + 2) {
        end = strstr(in, "\r\n");

        if (end == NULL) {
            return 0;
        }

        if (*in == '*') {
            left += atol(in + 1);

        } else if (strchr(":+-", *in) == NULL) {
            die("an answer of an unknown kind");
        }
    }

    return 1;
}


static int
by_time(const void *one, const void *two)
{
    uint32_t  a, b;

    a = *(const uint32_t *) one;
    b = *(const uint32_t *) two;

    return (a > b) - (a < b);
}


static double
quantile(double q)
{
    return took_ns[(long) (q * (measured - 1))] / 1000.0;
}


static void
report(int64_t duration_ns)
{
    int  i;

    for (i = 0; i < 2 && loops[i] > 0; i++) {
        kill(loops[i], SIGKILL);
        waitpid(loops[i], NULL, 0);
    }

    if (measured == 0) {
        die("no answers");
    }

    qsort(took_ns, measured, sizeof(uint32_t), by_time);

    printf("result %ld %.0f %ld %ld %.1f %.1f %.1f %.1f\n", answered,
           duration_ns / 1000.0, errors, sent - answered, quantile(0.5),
           quantile(0.99), quantile(0.999), quantile(1));

    /* where all connections wait, the machine stood still for a moment */

    if (left_out > sent / 20) {
        die("all connections wait: the machine is too slow, or too busy");
    }
}

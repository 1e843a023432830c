/*
 * The load of t/chaos: requests at a bounded rate to several gateways, and one
 * line for each that says when it was sent, when it was answered, and how. It
 * judges nothing; Oracle.pm does.
 *
 *     load <rate> <requests a connection> <abort> <seconds> <paths> <port>...
 *
 * <rate> requests a second take the lines of the file <paths> in turn, and each
 * line goes to each gateway in turn. <abort> 0: each answer is waited for, 20 s
 * at most; else the client closes its connection within that many ms, answered
 * or not. It ends after <seconds>, or when its standard input does, and then
 * waits for what is in flight.
 *
 * A line: sent and done in microseconds of the monotonic clock, the gateway's
 * and the path's number, the status (0: none), the first letter of X-Status,
 * X-RateLimit-Remaining, Retry-After (-9: none), and how it ended:
 *
 *     -  answered            t  no answer in 20 s
 *     a  closed by us        x  no connection
 *     c  closed by nginx     k  the same, on a connection that had been idle
 *
 * The last line is "stall" and the longest time, in microseconds, for which the
 * machine did not let this program run: no wait is known better than that.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNS     900
#define MAX_GATEWAYS  8
#define IN_BYTES      8192
#define OUT_BYTES     512
#define PATIENCE_US   20000000
#define NO_VALUE      -9

typedef struct conn_s  conn_t;

struct conn_s {
    int       fd;                 /* -1: free */
    int       gateway;
    int       busy;               /* a request waits for its answer */
    int       served;             /* requests that were answered on it */
    long      path;
    int64_t   sent_us;
    int64_t   abort_us;           /* when we close it; 0: never */
    size_t    in_len;
    size_t    out_len;
    size_t    out_done;
    conn_t   *next;               /* of the idle ones of its gateway */
    char      in[IN_BYTES + 1];
    char      out[OUT_BYTES];
};

typedef struct {
    in_port_t  port;
    conn_t    *idle;
} gateway_t;

static int64_t now_us(void);
static void paths_read(const char *name);
static void request_start(long n);
static conn_t *conn_take(int gateway);
static conn_t *conn_open(int gateway);
static void conn_close(conn_t *c);
static void conn_event(conn_t *c, uint32_t events);
static int conn_write(conn_t *c);
static void conn_read(conn_t *c);
static int answer_whole(const conn_t *c);
static void answered(conn_t *c);
static long header(const conn_t *c, const char *name, char *first);
static void record(conn_t *c, char end);
static void look_after(void);

static conn_t      conns[MAX_CONNS];
static gateway_t   gateways[MAX_GATEWAYS];
static int         ngateways;
static char      **paths;
static long        npaths;
static long        busy;
static int         ep;
static int64_t     abort_ms;
static int         per_conn;


int
main(int argc, char **argv)
{
    int                 i, n, going;
    long                sent;
    double              rate;
    int64_t             now, start, end, looked, woken, stall;
    struct pollfd       in;
    struct epoll_event  events[256];

    if (argc < 7 || argc - 6 > MAX_GATEWAYS) {
        fprintf(stderr, "usage: see load.c\n");
        return 2;
    }

    rate = atof(argv[1]);
    per_conn = atoi(argv[2]);
    abort_ms = atoi(argv[3]);
    paths_read(argv[5]);

    for (i = 6; i < argc; i++) {
        gateways[ngateways++].port = (in_port_t) atoi(argv[i]);
    }

    for (i = 0; i < MAX_CONNS; i++) {
        conns[i].fd = -1;
    }

    ep = epoll_create1(0);
    in.fd = 0;
    in.events = POLLIN;
    sent = 0;
    going = 1;
    looked = 0;
    stall = 0;
    start = woken = now_us();
    end = start + (int64_t) (atof(argv[4]) * 1e6);

    while (going || busy) {
        now = now_us();
        stall = now - woken > stall ? now - woken : stall;
        woken = now;

        if (going && (now >= end || (poll(&in, 1, 0) > 0
                                     && read(0, argv[0], 1) <= 0)))
        {
            going = 0;
        }

        /* who was held up for long goes on at the rate, without a burst */

        if ((now - start) * rate / 1e6 - sent > rate / 4) {
            start = now - (int64_t) (sent * 1e6 / rate);
        }

        while (going && sent * 1e6 / rate <= now - start) {
            request_start(sent++);
        }

        n = epoll_wait(ep, events, 256, 1);

        for (i = 0; i < n; i++) {
            conn_event(events[i].data.ptr, events[i].events);
        }

        if (now - looked > (abort_ms ? 0 : 100000)) {
            looked = now;
            look_after();
        }
    }

    printf("stall %" PRId64 "\n", stall);

    return fflush(stdout) == 0 ? 0 : 1;
}


static int64_t
now_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}


static void
paths_read(const char *name)
{
    char     line[OUT_BYTES / 2];
    FILE    *f;

    f = fopen(name, "r");

    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        paths = realloc(paths, (npaths + 1) * sizeof(char *));
        paths[npaths++] = strdup(line);
    }

    if (npaths == 0) {
        fprintf(stderr, "load: no paths in %s\n", name);
        exit(2);
    }

    fclose(f);
}


static void
request_start(long n)
{
    int      gateway;
    conn_t  *c;

    gateway = (n + n / npaths) % ngateways;
    c = conn_take(gateway);

    if (c == NULL) {
        return;                        /* as many as there may be wait */
    }

    c->path = n % npaths;
    c->sent_us = now_us();
    c->abort_us = abort_ms ? c->sent_us + random() % (abort_ms * 1000) + 1 : 0;
    c->in_len = 0;
    c->out_done = 0;
    c->out_len = snprintf(c->out, OUT_BYTES,
                          "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n",
                          paths[c->path], c->served + 1 < per_conn
                                          ? "" : "Connection: close\r\n");
    c->busy = 1;
    busy++;

    if (c->fd == -1) {
        record(c, 'x');
        return;
    }

    if (conn_write(c) != 0) {
        record(c, c->served ? 'k' : 'c');
        conn_close(c);
    }
}


/* An idle connection or a new one; NULL when there are too many. */
static conn_t *
conn_take(int gateway)
{
    conn_t  *c;

    c = gateways[gateway].idle;

    if (c) {
        gateways[gateway].idle = c->next;
        return c;
    }

    return conn_open(gateway);
}


/* fd stays -1 where there is no connection. */
static conn_t *
conn_open(int gateway)
{
    int                 i, one;
    conn_t             *c;
    struct sockaddr_in  sin;
    struct epoll_event  ev;

    for (i = 0; i < MAX_CONNS && conns[i].fd != -1; i++) { /* void */ }

    if (i == MAX_CONNS) {
        return NULL;
    }

    c = &conns[i];
    c->gateway = gateway;
    c->served = 0;
    c->busy = 0;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(gateways[gateway].port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    if (connect(c->fd, (struct sockaddr *) &sin, sizeof(sin)) == -1
        && errno != EINPROGRESS)
    {
        close(c->fd);
        c->fd = -1;
        return c;
    }

    ev.events = EPOLLIN | EPOLLOUT | EPOLLET;
    ev.data.ptr = c;
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);

    return c;
}


static void
conn_close(conn_t *c)
{
    conn_t  **p;

    for (p = &gateways[c->gateway].idle; *p; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }

    close(c->fd);
    c->fd = -1;
}


static void
conn_event(conn_t *c, uint32_t events)
{
    if (c->fd == -1) {
        return;
    }

    if (c->busy && c->out_done < c->out_len && conn_write(c) != 0) {
        record(c, c->served ? 'k' : 'c');
        conn_close(c);
        return;
    }

    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        conn_read(c);
    }
}


/* 0, or -1: the connection is gone. */
static int
conn_write(conn_t *c)
{
    ssize_t  n;

    n = send(c->fd, c->out + c->out_done, c->out_len - c->out_done,
             MSG_NOSIGNAL);

    if (n == -1) {
        return (errno == EAGAIN || errno == ENOTCONN) ? 0 : -1;
    }

    c->out_done += n;

    return 0;
}


static void
conn_read(conn_t *c)
{
    ssize_t  n;

    for ( ;; ) {
        n = recv(c->fd, c->in + c->in_len, IN_BYTES - c->in_len, 0);

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        if (n <= 0) {
            if (c->busy) {
                record(c, c->served && c->in_len == 0 ? 'k' : 'c');
            }

            conn_close(c);
            return;
        }

        c->in_len += n;
        c->in[c->in_len] = '\0';

        if (c->busy && answer_whole(c)) {
            answered(c);
            return;
        }
    }
}


static int
answer_whole(const conn_t *c)
{
    long         length;
    size_t       head;
    const char  *end;

    end = strstr(c->in, "\r\n\r\n");

    if (end == NULL) {
        return 0;
    }

    head = end + 4 - c->in;
    length = header(c, "Content-Length", NULL);

    return length < 0 || c->in_len >= head + length;
}


static void
answered(conn_t *c)
{
    record(c, '-');

    if (++c->served >= per_conn) {
        conn_close(c);
        return;
    }

    c->next = gateways[c->gateway].idle;
    gateways[c->gateway].idle = c;
}


/* A header's number, and the first letter of its text. */
static long
header(const conn_t *c, const char *name, char *first)
{
    size_t       len;
    const char  *p;

    len = strlen(name);

    for (p = strstr(c->in, "\r\n"); p; p = strstr(p + 2, "\r\n")) {

        if (strncasecmp(p + 2, name, len) == 0 && p[2 + len] == ':') {
            p += len + 3;
            p += strspn(p, " ");

            if (first) {
                *first = *p;
            }

            return strtol(p, NULL, 10);
        }
    }

    return NO_VALUE;
}


/* The request has ended, and so it is written down. */
static void
record(conn_t *c, char end)
{
    int   status;
    char  told;
    long  remaining, retry;

    status = 0;
    told = '-';
    remaining = retry = NO_VALUE;

    if (end == '-') {
        status = atoi(c->in + sizeof("HTTP/1.1 ") - 1);
        (void) header(c, "X-Status", &told);
        remaining = header(c, "X-RateLimit-Remaining", NULL);
        retry = header(c, "Retry-After", NULL);
    }

    printf("%" PRId64 " %" PRId64 " %d %ld %d %c %ld %ld %c\n", c->sent_us,
           now_us(), c->gateway, c->path, status, told, remaining, retry, end);

    c->busy = 0;
    busy--;
}


/* Ends what has waited long enough. */
static void
look_after(void)
{
    int      i;
    conn_t  *c;
    int64_t  now;

    now = now_us();

    for (i = 0; i < MAX_CONNS; i++) {
        c = &conns[i];

        if (c->fd == -1 || !c->busy) {
            continue;
        }

        if (c->abort_us && now >= c->abort_us) {
            record(c, 'a');
            conn_close(c);

        } else if (now - c->sent_us > PATIENCE_US) {
            record(c, 't');
            conn_close(c);
        }
    }
}

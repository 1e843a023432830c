/*
 * The network of t/chaos between the gateways and Redis: a TUN device in the
 * network namespace it is started in ("rlgate"), one in a namespace that it
 * makes ("rlnodes", /proc/<its pid>/ns/net), and itself between them. Each
 * packet passes, is lost, refused or late. The kernel's own netem does that
 * too, where there is one.
 *
 * It says "ready", then takes lines from its standard input, and ends with it:
 *
 *     pass | drop | refuse | slow <ms> <percent> | faulty <packets>   [<node>]
 *
 * of all nodes, or of the one whose address ends with that number. drop: no
 * packet arrives. refuse: what the gateways send is answered by a reset. slow:
 * half of <ms> later each way, and that percentage of packets lost. faulty: one
 * in so many packets with data has its connection reset, delayed once by 1 to
 * 30 ms, or stalled for 20 to 400 ms; packets of a connection keep their order.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define MAX_PACKET  65536
#define MAX_LATE    65536              /* packets on their way */

typedef enum { PASS = 0, DROP, REFUSE, SLOW, FAULTY } mode_e;

typedef struct {
    mode_e   mode;
    int      ms;
    int      percent;
    int      packets;
} rule_t;

typedef struct {
    int64_t  due_us;
    int      fd;
    size_t   len;
    char    *data;                     /* heap, freed when it is sent */
} late_t;

static int tun_open(const char *name);
static void command(char *line);
static int commands_read(void);
static void packet(char *data, size_t len, int from_gateway, int back, int on);
static void refuse(char *data, size_t len, int back);
static void reset_send(struct ip *ip, struct tcphdr *tcp, int fd, int forth,
    size_t payload);
static void faulty(char *data, size_t len, int from_gateway, int back, int on,
    int packets);
static uint16_t sum(uint32_t start, const void *data, size_t len);
static void late(char *data, size_t len, int on, int64_t due_us);
static int late_send(void);
static int64_t now_us(void);

static rule_t    rules[256];           /* by the last byte of the address */
static late_t    ring[MAX_LATE];
static unsigned  first, end;           /* ring[first % MAX_LATE] is next */
static int64_t   held_us[65536][2];    /* until when, by the gateway's port and
                                          direction */


int
main(void)
{
    int            i, wait;
    char           data[MAX_PACKET];
    ssize_t        n;
    struct pollfd  fds[3];

    fds[0].fd = tun_open("rlgate");

    if (unshare(CLONE_NEWNET) == -1) {
        perror("wire: unshare()");
        return 1;
    }

    fds[1].fd = tun_open("rlnodes");
    fds[2].fd = 0;

    for (i = 0; i < 3; i++) {
        fds[i].events = POLLIN;
    }

    printf("ready\n");
    fflush(stdout);

    for ( ;; ) {
        wait = late_send();

        if (poll(fds, 3, wait) > 0) {
            if (fds[2].revents && commands_read() != 0) {
                return 0;
            }

            for (i = 0; i < 2; i++) {
                while ((n = read(fds[i].fd, data, sizeof(data))) > 0) {
                    packet(data, n, i == 0, fds[i].fd, fds[1 - i].fd);
                }
            }
        }
    }
}


static int
tun_open(const char *name)
{
    int           fd;
    struct ifreq  ifr;

    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    memset(&ifr, 0, sizeof(ifr));
    ifr.ifr_flags = IFF_TUN | IFF_NO_PI;
    strncpy(ifr.ifr_name, name, IFNAMSIZ - 1);

    if (fd == -1 || ioctl(fd, TUNSETIFF, &ifr) == -1) {
        perror("wire: /dev/net/tun");
        exit(1);
    }

    return fd;
}


/* 0, or -1 at the end. */
static int
commands_read(void)
{
    char         *line, *next;
    ssize_t       n;
    static char   text[4096];

    n = read(0, text, sizeof(text) - 1);

    if (n <= 0) {
        return -1;
    }

    text[n] = '\0';

    /* each line is written at once */

    for (line = strtok_r(text, "\n", &next); line;
         line = strtok_r(NULL, "\n", &next))
    {
        command(line);
    }

    return 0;
}


static void
command(char *line)
{
    int     i, node;
    rule_t  rule;

    memset(&rule, 0, sizeof(rule));
    node = 0;

    if (strncmp(line, "slow", 4) == 0) {
        rule.mode = SLOW;
        sscanf(line, "slow %d %d %d", &rule.ms, &rule.percent, &node);

    } else if (strncmp(line, "faulty", 6) == 0) {
        rule.mode = FAULTY;
        sscanf(line, "faulty %d %d", &rule.packets, &node);

    } else {
        rule.mode = *line == 'd' ? DROP : *line == 'r' ? REFUSE : PASS;
        sscanf(line, "%*s %d", &node);
    }

    for (i = 0; i < 256; i++) {
        if (node == 0 || node == i) {
            rules[i] = rule;
        }
    }
}


static void
packet(char *data, size_t len, int from_gateway, int back, int on)
{
    rule_t     *rule;
    struct ip  *ip;

    ip = (struct ip *) data;

    if (len < sizeof(struct ip) || ip->ip_v != 4) {
        return;
    }

    rule = &rules[ntohl(from_gateway ? ip->ip_dst.s_addr : ip->ip_src.s_addr)
                  & 0xff];

    switch (rule->mode) {

    case PASS:
        if (first != end) {
            late(data, len, on, now_us());
            break;
        }

        (void) !write(on, data, len);
        break;

    case DROP:
        break;

    case REFUSE:
        if (from_gateway) {
            refuse(data, len, back);
        }

        break;

    case SLOW:
        if (random() % 100 >= rule->percent) {
            late(data, len, on, now_us() + rule->ms / 2 * 1000);
        }

        break;

    case FAULTY:
        faulty(data, len, from_gateway, back, on, rule->packets);
        break;
    }
}


/* One in so many packets begins a fault of its connection. */
static void
faulty(char *data, size_t len, int from_gateway, int back, int on, int packets)
{
    size_t          head, payload;
    int64_t         now, *held;
    struct ip      *ip;
    struct tcphdr  *tcp;

    ip = (struct ip *) data;
    head = ip->ip_hl * 4;

    if (ip->ip_p != IPPROTO_TCP || len < head + sizeof(struct tcphdr)) {
        return;
    }

    tcp = (struct tcphdr *) (data + head);
    payload = len - head - tcp->doff * 4;
    held = held_us[ntohs(from_gateway ? tcp->source : tcp->dest)];
    now = now_us();

    if (tcp->syn) {
        held[0] = held[1] = 0;
    }

    if (payload && random() % packets == 0) {

        switch (random() % 3) {

        case 0:
            reset_send(ip, tcp, back, 0, payload);
            reset_send(ip, tcp, on, 1, payload);
            return;

        case 1:
            held[from_gateway] = now + (1 + random() % 30) * 1000;
            break;

        default:
            held[0] = held[1] = now + (20 + random() % 381) * 1000;
        }
    }

    if (held[from_gateway] <= now && first == end) {
        (void) !write(on, data, len);
        return;
    }

    late(data, len, on, held[from_gateway] > now ? held[from_gateway] : now);
}


/* The reset that answers a segment (RFC 9293, 3.10.7.1). */
static void
refuse(char *data, size_t len, int back)
{
    size_t          head, payload;
    struct ip      *ip;
    struct tcphdr  *tcp;

    ip = (struct ip *) data;
    head = ip->ip_hl * 4;

    if (ip->ip_p != IPPROTO_TCP || len < head + sizeof(struct tcphdr)) {
        return;
    }

    tcp = (struct tcphdr *) (data + head);
    payload = len - head - tcp->doff * 4;

    if (!tcp->rst) {
        reset_send(ip, tcp, back, 0, payload);
    }
}


/* A reset in answer to a segment, or, forth, in its place. */
static void
reset_send(struct ip *ip, struct tcphdr *tcp, int fd, int forth, size_t payload)
{
    struct {
        struct ip      ip;
        struct tcphdr  tcp;
    } reset;

    struct {
        struct in_addr  from, to;
        uint16_t        protocol, len;
    } pseudo;

    memset(&reset, 0, sizeof(reset));

    reset.ip.ip_v = 4;
    reset.ip.ip_hl = sizeof(struct ip) / 4;
    reset.ip.ip_len = htons(sizeof(reset));
    reset.ip.ip_ttl = 64;
    reset.ip.ip_p = IPPROTO_TCP;
    reset.ip.ip_src = forth ? ip->ip_src : ip->ip_dst;
    reset.ip.ip_dst = forth ? ip->ip_dst : ip->ip_src;
    reset.ip.ip_sum = ~sum(0, &reset.ip, sizeof(struct ip));

    reset.tcp.source = forth ? tcp->source : tcp->dest;
    reset.tcp.dest = forth ? tcp->dest : tcp->source;
    reset.tcp.doff = sizeof(struct tcphdr) / 4;
    reset.tcp.rst = 1;

    if (forth) {
        reset.tcp.seq = tcp->seq;

    } else if (tcp->ack) {
        reset.tcp.seq = tcp->ack_seq;

    } else {
        reset.tcp.ack = 1;
        reset.tcp.ack_seq = htonl(ntohl(tcp->seq) + payload + tcp->syn
                                  + tcp->fin);
    }

    pseudo.from = reset.ip.ip_src;
    pseudo.to = reset.ip.ip_dst;
    pseudo.protocol = htons(IPPROTO_TCP);
    pseudo.len = htons(sizeof(struct tcphdr));

    reset.tcp.check = ~sum(sum(0, &pseudo, sizeof(pseudo)), &reset.tcp,
                           sizeof(struct tcphdr));

    (void) !write(fd, &reset, sizeof(reset));
}


/* The Internet checksum (RFC 1071), not inverted; len is even. */
static uint16_t
sum(uint32_t start, const void *data, size_t len)
{
    size_t    i;
    uint16_t  word;

    for (i = 0; i < len; i += 2) {
        memcpy(&word, (const char *) data + i, 2);
        start += word;
    }

    start = (start & 0xffff) + (start >> 16);

    return (uint16_t) (start + (start >> 16));
}


/* Behind all that are due as early. */
static void
late(char *data, size_t len, int on, int64_t due_us)
{
    char      *copy;
    late_t    *one;
    unsigned   i;

    if (end - first == MAX_LATE) {
        return;
    }

    copy = malloc(len);

    if (copy == NULL) {
        return;
    }

    memcpy(copy, data, len);

    for (i = end++; i != first; i--) {
        if (ring[(i - 1) % MAX_LATE].due_us <= due_us) {
            break;
        }

        ring[i % MAX_LATE] = ring[(i - 1) % MAX_LATE];
    }

    one = &ring[i % MAX_LATE];
    one->data = copy;
    one->len = len;
    one->fd = on;
    one->due_us = due_us;
}


/* Sends what is due; the milliseconds until the next is, or -1. */
static int
late_send(void)
{
    late_t   *one;
    int64_t   now;

    while (first != end) {
        one = &ring[first % MAX_LATE];
        now = now_us();

        if (one->due_us > now) {
            return (int) ((one->due_us - now + 999) / 1000);
        }

        (void) !write(one->fd, one->data, one->len);
        free(one->data);
        first++;
    }

    return -1;
}


static int64_t
now_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/*
 * What finding an address in a list of networks costs: among ten networks to
 * ten thousand, of one length of a prefix and of many. The cases alternate,
 * round by round; each figure is the median of the rounds. "listed" addresses
 * are in a network, "others" in none, so that each length is looked at.
 */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ngx_rl_match.h"

#define ROUNDS     11
#define OPS        400000
#define ADDRESSES  4096
#define NETWORKS   10000

typedef struct {
    const char  *name;
    uint32_t     networks;
    uint32_t     lengths;   /* of prefixes, from /24 on */
    double       listed[ROUNDS];
    double       others[ROUNDS];
} case_t;

static case_t  cases[] = {
    { "10 of /24",              10,    1, {0}, {0} },
    { "100 of /24",             100,   1, {0}, {0} },
    { "1,000 of /24",           1000,  1, {0}, {0} },
    { "10,000 of /24",          10000, 1, {0}, {0} },
    { "10 of /24 to /32",       10,    9, {0}, {0} },
    { "10,000 of /24 to /32",   10000, 9, {0}, {0} },
};

#define NCASES  (sizeof(cases) / sizeof(cases[0]))

static ngx_rl_networks_t  *lists[NCASES];
static ngx_rl_network_t    networks[NETWORKS];
static u_char                     addresses[ADDRESSES][NGX_RL_ADDRESS];
static uint64_t                   seed = 88172645463325252;
static volatile int               sink;


static uint32_t
random_below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 32) % n;
}


static double
clock_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * 1e9 + ts.tv_nsec;
}


/* Those of a case are the first ones: 11.x.y.0/24, and narrower ones. */
static void
networks_make(uint32_t lengths)
{
    int       len;
    char      text[32];
    uint32_t  i;

    for (i = 0; i < NETWORKS; i++) {
        len = sprintf(text, "11.%u.%u.0/%u", i / 256, i % 256,
                      24 + i % lengths);
        (void) ngx_rl_network_parse((u_char *) text, len, &networks[i]);
        networks[i].value = 1;
    }
}


static void
list_make(size_t i)
{
    void  *memory;

    networks_make(cases[i].lengths);

    memory = calloc(1, ngx_rl_networks_bytes(networks, cases[i].networks));
    if (memory == NULL) {
        fprintf(stderr, "bench/networks: no memory\n");
        exit(1);
    }

    lists[i] = ngx_rl_networks_init(memory, networks, cases[i].networks);
}


static double
run(size_t n, int listed)
{
    double    start;
    uint32_t  i, network;
    u_char    bytes[4];

    for (i = 0; i < ADDRESSES; i++) {
        network = random_below(listed ? cases[n].networks : NETWORKS);
        bytes[0] = listed ? 11 : 12;
        bytes[1] = (u_char) (network / 256);
        bytes[2] = (u_char) (network % 256);
        bytes[3] = 0;
        ngx_rl_address(bytes, 4, addresses[i]);
    }

    start = clock_ns();

    for (i = 0; i < OPS; i++) {
        sink += ngx_rl_networks_have(lists[n], addresses[i % ADDRESSES], 1);
    }

    return (clock_ns() - start) / OPS;
}


static int
compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return (x > y) - (x < y);
}


int
main(void)
{
    size_t  i, round;

    for (i = 0; i < NCASES; i++) {
        list_make(i);
    }

    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < NCASES; i++) {
            cases[i].listed[round] = run(i, 1);
            cases[i].others[round] = run(i, 0);
        }
    }

    printf("%-34s %8s %8s  (%d rounds)\n", "ns a lookup, median", "listed",
           "others", ROUNDS);

    for (i = 0; i < NCASES; i++) {
        qsort(cases[i].listed, ROUNDS, sizeof(double), compare);
        qsort(cases[i].others, ROUNDS, sizeof(double), compare);
        printf("%-34s %8.1f %8.1f\n", cases[i].name,
               cases[i].listed[ROUNDS / 2], cases[i].others[ROUNDS / 2]);
    }

    return 0;
}

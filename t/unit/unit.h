/*
 * What unit tests share: cmocka behind its headers, and random numbers.
 *
 * SEED in the environment repeats a run, STEPS makes it longer; a run prints
 * its seed. RATELIMIT_FULL makes what is random long.
 */

#ifndef UNIT_H_INCLUDED
#define UNIT_H_INCLUDED

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))

static uint64_t  unit_seed = 1;     /* of the next number */


/* quick in `make test`, full in `make test-full` */
static inline int
full_or(int full, int quick)
{
    const char  *env = getenv("RATELIMIT_FULL");

    return (env && *env) ? full : quick;
}


/* A number of the environment, or another one. */
static inline uint64_t
env_or(const char *name, uint64_t otherwise)
{
    const char  *env = getenv(name);

    return (env && *env) ? strtoull(env, NULL, 10) : otherwise;
}


static inline uint64_t
seed_set(uint64_t otherwise)
{
    unit_seed = env_or("SEED", otherwise);
    print_message("SEED=%llu\n", (unsigned long long) unit_seed);

    return unit_seed;
}


/* The same one in each run, or another. */
static inline void
seed_init(void)
{
    (void) seed_set(1);
}


static inline uint64_t
seed_new(void)
{
    return seed_set((uint64_t) time(NULL) * 1000 + getpid() % 1000);
}


/* splitmix64 */
static inline uint64_t
mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;

    return x ^ (x >> 31);
}


/* 0..n-1 */
static inline uint64_t
rnd(uint64_t n)
{
    uint64_t x = mix(unit_seed);
    unit_seed += 0x9e3779b97f4a7c15;

    return x % n;
}


/* 1..max, each magnitude as likely as the others */
static inline uint64_t
rnd_log(uint64_t max)
{
    unsigned  bits;

    for (bits = 0; bits < 63 && max >> bits; bits++) { /* void */ }

    bits = 1 + (unsigned) rnd(bits);

    return 1 + rnd(max >> bits ? (uint64_t) 1 << bits : max);
}

#endif /* UNIT_H_INCLUDED */

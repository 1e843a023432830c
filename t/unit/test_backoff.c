/*
 * Pauses between attempts to connect; and a fleet of 1,600 connections that all
 * come at once to a Redis with TLS, in virtual time.
 *
 * The server has one thread and a queue of handshakes, first come, first
 * served. A handshake takes its CPU whether or not the client has given up
 * meanwhile. A client follows the policy of src/redis: it gives up an attempt,
 * pauses and comes again.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ngx_rl_breaker.h"

#define CLIENTS      1600
#define SECONDS      120

/* measured: CPU of a handshake in us, whole and resumed */
#define HANDSHAKE    1000
#define RESUMED      500

typedef struct {
    uint64_t  begin_us;       /* of the attempt; of the next one while down */
    uint64_t  until_us;       /* the attempt is given up */
    uint32_t  pause_ms;
    uint32_t  failures;
    uint32_t  busy;
    uint32_t  attempt;        /* number, to know those that were given up */
    int       waits;          /* in the server's queue */
    int       up;
} client_t;

typedef struct {
    uint32_t  client;
    uint32_t  attempt;
} work_t;

static client_t  clients[CLIENTS];
static work_t    queue[CLIENTS * SECONDS * 4];
static uint64_t  seed;


static uint32_t
draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;

    return (uint32_t) (seed >> 33);
}


static uint32_t
pause_ms(const client_t *c)
{
    return ngx_rl_backoff_pause_ms(c->failures, c->busy, draw());
}


/* One step of a client at us; whether it joins the server's queue. */
static int
step(client_t *c, uint64_t us)
{
    if (c->up || us < (c->waits ? c->until_us : c->begin_us)) {
        return 0;
    }

    if (c->waits) {

        /* given up */

        c->waits = 0;
        c->failures++;
        c->busy++;

        c->pause_ms = pause_ms(c);
        c->begin_us = us + (uint64_t) c->pause_ms * 1000;
        return 0;
    }

    c->begin_us = us;
    c->pause_ms = pause_ms(c);
    c->waits = 1;
    c->attempt++;

    c->until_us = us + NGX_RL_BACKOFF_HANDSHAKE_MS * 1000;

    return 1;
}


/*
 * All connections break at 0 and begin within spread_ms. Returns how many are
 * up at the end, and when the last one came up.
 */
static uint32_t
simulate(uint32_t spread_ms, uint32_t cost_us, uint64_t *settled_ms)
{
    size_t    head, tail;
    uint64_t  us;

    memset(clients, 0, sizeof(clients));
    seed = 20240501;
    head = tail = 0;
    uint64_t free_us = 0;
    uint32_t up = 0;

    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i].begin_us = spread_ms ? draw() % (spread_ms * 1000) : 0;
    }

    for (us = 0; us < SECONDS * 1000000ull && up < CLIENTS; us += 500) {

        for (uint32_t i = 0; i < CLIENTS; i++) {
            if (step(&clients[i], us)) {
                assert_true(tail < sizeof(queue) / sizeof(queue[0]));
                queue[tail].client = i;
                queue[tail++].attempt = clients[i].attempt;
            }
        }

        while (head < tail && free_us <= us) {
            free_us = (free_us < us ? us : free_us) + cost_us;
            client_t *c = &clients[queue[head].client];

            if (c->waits && c->attempt == queue[head].attempt
                && free_us <= c->until_us)
            {
                c->up = 1;
                up++;
                *settled_ms = free_us / 1000;
            }

            head++;
        }
    }

    return up;
}


static void
test_fleet(void **state)
{
    uint64_t  ms;

    static const struct {
        const char  *what;
        uint32_t     spread_ms;
        uint32_t     cost_us;
        uint64_t     most_ms;
    } cases[] = {
        { "all at once", 0, HANDSHAKE, 10000 }, { "after a break", 50,
            HANDSHAKE, 10000 }, { "first connects spread, sessions resumed",
            NGX_RL_BACKOFF_FIRST_MS, RESUMED, 10000 },

        /* a server four times as slow: the pauses have to grow */
        { "handshakes of 4 ms", 50, 4 * HANDSHAKE, SECONDS * 1000 }
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t up = simulate(cases[i].spread_ms, cases[i].cost_us, &ms);
        printf("%s: %u of %u up, the last one after %lu ms\n", cases[i].what,
               up, CLIENTS, (unsigned long) ms);
        assert_int_equal(up, CLIENTS);
        assert_true(ms < cases[i].most_ms);
    }
}


static void
test_pauses(void **state)
{
    uint32_t least = 25;
    uint32_t most = 50;

    for (uint32_t i = 0; i < 40; i++) {
        uint32_t ms = ngx_rl_backoff_pause_ms(i, 0, 0);
        assert_int_equal(ms, most);
        ms = ngx_rl_backoff_pause_ms(i, 0, most / 2 - 1);
        assert_int_equal(ms, least + 1);

        most = most * 2 > 1000 ? 1000 : most * 2;
        least = most / 2;
    }

    for (uint32_t busy = 1; busy < 40; busy++) {
        uint32_t ms = ngx_rl_backoff_pause_ms(7, busy, 0);
        assert_int_equal(ms, busy == 1 ? 2000 : busy == 2 ? 4000 : 8000);
        ms = ngx_rl_backoff_pause_ms(0xffffffff, busy, 0xffffffff);
        assert_true(ms > 1000 && ms <= 8000);
    }
}

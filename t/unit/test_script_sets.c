/*
 * The scripts of sorted sets, for themselves: what C has no part in, the leases
 * of requests in flight, and how members are named.
 */

#include "parity.h"

#define LEASE_US  30000000


/* One call of field 0 at START + after_us, by request<name>, and its answer. */
typedef struct {
    uint64_t  after_us;
    char      name;
    int64_t   cost;
    int64_t   want;
    int64_t   answer[4];   /* granted, left, reset and retry in ms */
} step_t;

#define HOUR  ((uint64_t) 3600 * 1000000)

/* of two permits, and of a log of 10,000 a minute; from a fresh counter */
#define slots(...)  run('c', 2, LEASE_US, __VA_ARGS__)
#define log(...)    run('l', 10000, 60000000, __VA_ARGS__)


static void
run(char kind, uint64_t capacity, uint64_t a, const step_t *steps, size_t n)
{
    char             name[] = "request0";
    parity_answer_t  answer;

    model_flush();

    for (size_t i = 0; i < n; i++) {
        name[7] = steps[i].name;

        parity_call_t call = { 0 };
        call.now_us = START + steps[i].after_us;
        call.name = name;
        call.n = 1;
        call.args[0].kind = kind;
        call.args[0].cost = steps[i].cost;
        call.args[0].want = steps[i].want;
        call.args[0].capacity = capacity;
        call.args[0].a = a;

        parity_run(&call, &answer);

        for (size_t j = 0; j < 4; j++) {
            if (answer[j] != steps[i].answer[j]) {
                fail_msg("step %zu, number %zu: %lld, expected %lld", i, j,
                         (long long) answer[j], (long long) steps[i].answer[j]);
            }
        }
    }
}


/* A gateway that stopped before the clock was set back lives a life longer. */
static void
test_gateways(void **state)
{
    static const step_t  back[] = {
        { HOUR, '1', 1, 1, { 1, 1073741823, 0, 0 } }, { HOUR, '2', 1, 1, { 1,
            1073741822, 0, 0 } }, { 0, '1', 1, 1, { 1, 1073741822, 0, 0 } },
            { LEASE_US - 1, '1', 1, 1, { 1, 1073741822, 0, 0 } }, { LEASE_US,
            '1', 1, 1, { 1, 1073741823, 0, 0 } }
    };

    run('c', 1073741824, LEASE_US, back, sizeof(back) / sizeof(back[0]));
}


static void
test_permits(void **state)
{
    /* a permit ends at its deadline, not before, and is renewed by its name */

    static const step_t  ends[] = {
        { 0, '1', 1, 0, { 1, 1, 0, 0 } }, { 10, '2', 1, 0, { 1, 0, 0, 0 } },
            { 20, '3', 1, 0, { 0, 0, 0, 1000 } }, { 20, '3', 0, 0, { 0, 0, 0,
            0 } }, { 20, '3', -1, 0, { 0, 0, 0, 0 } },

        /* renewed although all are taken; a look of its own could be paid */
        { 10000000, '2', 1, 1, { 1, 0, 0, 0 } },
        { 10000000, '2', 1, -1, { 0, 0, 0, 0 } },
        { 10000000, '3', 1, -1, { 0, 0, 0, 1000 } },

        { LEASE_US - 1, '3', 1, 0, { 0, 0, 0, 1000 } },
        { LEASE_US, '3', 1, 0, { 1, 0, 0, 0 } },
        { LEASE_US + 9999999, '4', 1, 0, { 0, 0, 0, 1000 } },
        { LEASE_US + 10000000, '4', 1, 0, { 1, 0, 0, 0 } },

        /* freed twice it is freed once */
        { LEASE_US + 10000000, '4', -1, 0, { 0, 1, 0, 0 } },
        { LEASE_US + 10000000, '4', -1, 0, { 0, 1, 0, 0 } },

        /* freed at its deadline it has ended by itself */
        { 2 * LEASE_US, '3', -1, 0, { 0, 2, 0, 0 } }
    };

    /* a request that runs gets its lost permit again, in spite of the others */

    static const step_t  lost[] = {
        { 0, '1', 1, 0, { 1, 1, 0, 0 } }, { LEASE_US, '2', 1, 0, { 1, 1, 0,
            0 } }, { LEASE_US, '3', 1, 0, { 1, 0, 0, 0 } }, { LEASE_US, '1', 1,
            1, { 1, 0, 0, 0 } }, { LEASE_US, '2', -1, 0, { 0, 0, 0, 0 } },
            { LEASE_US, '4', 1, 0, { 0, 0, 0, 1000 } }, { LEASE_US, '3', -1, 0,
            { 0, 1, 0, 0 } }, { LEASE_US, '4', 1, 0, { 1, 0, 0, 0 } }
    };

    /* those of before the clock was set back end one life from the rejection */

    static const step_t  back[] = {
        { HOUR, '1', 1, 0, { 1, 1, 0, 0 } }, { HOUR, '2', 1, 0, { 1, 0, 0,
            0 } }, { 0, '3', 1, 0, { 0, 0, 0, 1000 } }, { LEASE_US - 1, '3', 1,
            0, { 0, 0, 0, 1000 } }, { LEASE_US, '3', 1, 0, { 1, 1, 0, 0 } }
    };

    slots(ends, COUNT(ends));
    slots(lost, COUNT(lost));
    slots(back, COUNT(back));
}


static void
test_log(void **state)
{
    /* no take replaces what another has, and a give finds its own alone */

    static const step_t  members[] = {
        { 0, '1', 2500, 0, { 2500, 7500, 60000, 0 } }, { 1, '1', 0, 2500,
            { 2500, 5000, 60000, 0 } }, { 2, '2', 1, 1200, { 1200, 3800, 60000,
            0 } },

        /* a third one, which no request makes */
        { 3, '1', 3, 0, { 3, 3797, 60000, 0 } },

        { 4, '2', -1200, 0, { 0, 4997, 60000, 0 } },
        { 4, '2', -1200, 0, { 0, 4997, 60000, 0 } },
        { 4, '3', -1, 0, { 0, 4997, 60000, 0 } },

        /* all that are left */
        { 5, '4', 4997, 0, { 4997, 0, 60000, 0 } },
        { 6, '5', 1, 0, { 0, 0, 60000, 60000 } },
        { 59999999, '5', 2500, 0, { 0, 0, 1, 1 } },
        { 60000000, '5', 2500, 0, { 2500, 0, 60000, 0 } }
    };

    /* what is given back was taken: not what was charged, or is over */

    static const step_t  charged[] = {
        { 0, '1', 0, 2, { 2, 9998, 60000, 0 } }, { 30000000, '1', 3, 0, { 3,
            9995, 60000, 0 } }, { 30000001, '1', -3, 0, { 0, 9998, 30000, 0 } },
            { 60000000, '1', 0, 0, { 0, 10000, 0, 0 } }
    };
    static const step_t  over[] = {
        { 0, '1', 3, 0, { 3, 9997, 60000, 0 } }, { 30000000, '2', 1, 0, { 1,
            9996, 60000, 0 } }, { 60000000, '1', -3, 0, { 0, 9999, 30000, 0 } }
    };

    int64_t  tokens;

    log(members, COUNT(members));
    log(charged, COUNT(charged));
    log(over, COUNT(over));

    /* of what a request took some are gone: as many as are left */

    for (tokens = 1; tokens < 70; tokens++) {
        log(((step_t[]) {
            { 0, '1', 33, 0, { 33, 9967, 60000, 0 } },
            { 1, '2', 1, 0, { 1, 9966, 60000, 0 } },
            { 2, '1', -tokens, 0,
              { 0, 9966 + (tokens < 33 ? tokens : 33), 60000, 0 } }
        }), 3);
    }
}

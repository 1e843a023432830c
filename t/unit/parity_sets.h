/*
 * C's side of test_parity_sets: counters of sliding logs and of leases, which
 * the test keeps beside C, and requests with what they have taken of them.
 */

#ifndef PARITY_SETS_H_INCLUDED
#define PARITY_SETS_H_INCLUDED

#include "parity.h"

#include "ngx_rl_limit.h"
#include "ngx_rl_sliding_log.h"

#define KEYS      2
#define FIELDS    5
#define REQUESTS  12      /* that are remembered */
#define LEASES    300
#define LEASE_US  30000000
#define LATER     64

typedef struct {
    uint64_t  name;
    uint64_t  deadline_us;
} lease_t;

typedef struct {
    ngx_rl_limit_t      limit;
    ngx_rl_log_t        log;
    ngx_rl_log_place_t  places[NGX_RL_LOG_PLACES];
    uint32_t            in_use;
    lease_t             leases[LEASES];
} counter_t;

/* what a request has taken of each field of its key */
typedef struct {
    uint64_t  name;
    unsigned  key;
    uint64_t  taken_us;
    uint32_t  granted[FIELDS];    /* that can be given back */
} request_t;

typedef struct {
    counter_t  *counter;
    int64_t     cost;
    uint32_t    want;      /* LOOK, of a cost below 0: an operator gives it */
    uint32_t    charge;    /* spent already; 0: the others count */
    int         dry_run;
} check_t;

static counter_t  counters[KEYS][FIELDS];
static request_t  requests[REQUESTS];
static uint64_t   names;
static uint64_t   latest;     /* that the clock has shown since set back */
static char       kind;

/* what a sequence has met */
static struct {
    uint64_t  granted;
    uint64_t  denied;
    uint64_t  never;
    uint64_t  given;
    uint64_t  topped_up;
    uint64_t  charged;
    uint64_t  owed;
    uint64_t  again;      /* takes under a name of before */
    uint64_t  dropped;
    uint64_t  set_back;
    uint64_t  longest;
} seen;


static void
place_get(void *data, uint32_t n, ngx_rl_log_place_t *place)
{
    counter_t *counter = data;

    assert_true(n < NGX_RL_LOG_PLACES);
    *place = counter->places[n];
}


static void
place_set(void *data, uint32_t n, const ngx_rl_log_place_t *place)
{
    counter_t *counter = data;

    assert_true(n < NGX_RL_LOG_PLACES);
    counter->places[n] = *place;
}


static void
log_take(counter_t *counter, uint64_t now, uint32_t cost, uint32_t want,
    ngx_rl_answer_t *answer)
{
    ngx_rl_log_places_t  places = { place_get, place_set, counter };

    ngx_rl_sliding_log_take(&counter->log, &places, &counter->limit,
                            now, cost, want, answer);
    assert_true(counter->log.count < NGX_RL_LOG_PLACES);

    if (counter->log.count > seen.longest) {
        seen.longest = counter->log.count;
    }
}


static void
log_charge(counter_t *counter, uint64_t now, uint32_t tokens,
    ngx_rl_answer_t *answer)
{
    ngx_rl_log_places_t  places = { place_get, place_set, counter };

    ngx_rl_sliding_log_take(&counter->log, &places, &counter->limit, now,
                            tokens, NGX_RL_CHARGE, answer);
    seen.owed += (counter->log.count > counter->limit.capacity);
}


static void
log_give(counter_t *counter, uint64_t now, uint64_t taken_us, uint32_t tokens)
{
    ngx_rl_log_places_t  places = { place_get, place_set, counter };

    ngx_rl_sliding_log_give(&counter->log, &places, &counter->limit,
                            now, taken_us, tokens);
}


/* The newest place's instant. */
static uint64_t
log_newest_us(const counter_t *counter)
{
    return counter->log.fresh_us - counter->limit.window_us;
}


/* Whether a give finds its places: no more than LATER others are later. */
static int
log_finds(const counter_t *counter, uint64_t taken_us, uint32_t tokens)
{
    uint32_t                   age;
    const ngx_rl_log_place_t  *place;

    for (age = 1; age <= counter->log.count; age++) {
        place = &counter->places[(counter->log.head - age)
                                 & (NGX_RL_LOG_PLACES - 1)];

        if (place->fresh_us - place->window_us < taken_us) {
            break;
        }
    }

    return age - 1 <= tokens + LATER;
}


/* The leases that have not expired, and the request's own or NULL. */
static lease_t *
leases_settle(counter_t *counter, uint64_t now, uint64_t name)
{
    lease_t *own = NULL;

    for (uint32_t i = 0; i < counter->in_use; /* void */ ) {

        if (counter->leases[i].deadline_us <= now) {
            counter->leases[i] = counter->leases[--counter->in_use];
            continue;
        }

        i++;
    }

    for (uint32_t i = 0; i < counter->in_use; i++) {
        if (counter->leases[i].name == name) {
            own = &counter->leases[i];
        }
    }

    return own;
}


static void
slot_take(counter_t *counter, uint64_t now, uint64_t name, uint32_t cost,
    uint32_t want, ngx_rl_answer_t *answer)
{
    uint32_t  in_use;

    lease_t *own = leases_settle(counter, now, name);
    in_use = counter->in_use;

    if (cost && (own || (want && want != NGX_RL_LOOK))) {

        /* a lease is renewed however many there are */

        in_use -= (own != NULL);
        ngx_rl_limit_t more = counter->limit;
        more.capacity = UINT32_MAX;
        ngx_rl_concurrency_take(&in_use, &more, cost, want, answer);

        if (answer->granted == 0) {
            in_use += (own != NULL);
        }

        answer->remaining = counter->limit.capacity > in_use
                            ? counter->limit.capacity - in_use : 0;

    } else {
        ngx_rl_concurrency_take(&in_use, &counter->limit, cost, want, answer);
    }

    if (answer->granted) {
        if (own == NULL) {
            own = &counter->leases[counter->in_use];
            assert_true(in_use <= LEASES);
        }

        own->name = name;
        own->deadline_us = now + LEASE_US;
    }

    counter->in_use = in_use;
}


static void
slot_free(counter_t *counter, uint64_t now, uint64_t name)
{
    lease_t *own = leases_settle(counter, now, name);

    if (own) {
        *own = counter->leases[--counter->in_use];
    }
}


static void
counter_take(counter_t *counter, uint64_t now, uint64_t name, uint32_t cost,
    uint32_t want, ngx_rl_answer_t *answer)
{
    if (kind == 'l') {
        log_take(counter, now, cost, want, answer);

    } else {
        slot_take(counter, now, name, cost, want, answer);
    }
}


static void
counter_give(counter_t *counter, uint64_t now, const request_t *request,
    const check_t *check)
{
    if (kind == 'l') {
        log_give(counter, now,
                 (check->want == NGX_RL_LOOK) ? NGX_RL_WHENEVER
                                                     : request->taken_us,
                 -check->cost);

    } else {
        slot_free(counter, now, request->name);
    }
}


/* A look, though it settles the state, does not change what comes after. */
static int
run_denied(uint64_t now, uint64_t name, const check_t *checks, unsigned n)
{
    ngx_rl_answer_t  answer;

    int denied = 0;

    for (unsigned i = 0; i < n; i++) {
        if (checks[i].cost >= 0 && !checks[i].dry_run) {
            uint32_t want = NGX_RL_LOOK;

            if (kind == 'c' && checks[i].want == 1) {
                continue;
            }

            counter_take(checks[i].counter, now, name, checks[i].cost, want,
                         &answer);
            denied |= (answer.retry_us != 0);
        }
    }

    return denied;
}


static void
run_c(uint64_t now, const request_t *request, const check_t *checks, unsigned n,
    parity_answer_t *answers)
{
    ngx_rl_answer_t  answer;

    int denied = run_denied(now, request->name, checks, n);

    for (unsigned i = 0; i < n; i++) {
        const check_t *check = &checks[i];

        if (check->cost < 0) {

            if (!denied) {
                counter_give(check->counter, now, request, check);
                seen.given++;
            }

            counter_take(check->counter, now, request->name, 0, 0, &answer);

        } else if (check->charge && !denied) {
            log_charge(check->counter, now, check->charge, &answer);

        } else {
            counter_take(check->counter, now, request->name, check->cost,
                         denied ? NGX_RL_LOOK : check->want, &answer);

            if (denied && kind == 'c' && check->want == 1) {
                answer.retry_us = 0;
            }
        }

        seen.granted += (answer.granted != 0);
        seen.charged += (answer.granted != 0 && check->cost == 0);
        seen.never += (answer.retry_us == NGX_RL_NEVER);
        seen.denied += (answer.retry_us != 0);

        answers[i][0] = answer.granted;
        answers[i][1] = answer.remaining;
        answers[i][2] = (answer.reset_us + 999) / 1000;
        answers[i][3] = (answer.retry_us == NGX_RL_NEVER)
                        ? -1 : (int64_t) (answer.retry_us + 999) / 1000;
    }
}

#endif /* PARITY_SETS_H_INCLUDED */

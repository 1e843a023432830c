/*
 * One perfect counter for each key: the code of src/core, at one place, asked
 * for one request after the other. A request that got no answer, since Redis
 * was away, is in neither sum: it passes or fails by fail_mode.
 *
 * A request's moment is when it came or, where it waited for Redis, when its
 * call ran there: the way to Redis is the network's, not the lease's. Requests
 * are judged in the order of their moments, so a while later: those that are
 * decided stand in a heap.
 */

#include "sim.h"

#define SIM_WAIT_NS     (100 * SIM_US)     /* of a bin of waits */
#define SIM_WAIT_BINS   20000

/* nothing is decided whose moment was so long ago */
#define SIM_SETTLED     (200 * SIM_MS)

typedef struct {
    uint64_t       at_ns;
    uint32_t       key;
    uint8_t        outcome;
} sim_request_t;

typedef struct {
    ngx_rl_token_bucket_t  tb;
    ngx_rl_window_t        w;

    uint64_t   admitted;
    uint64_t   right;
    unsigned   met;              /* the limit was: the oracle has denied */

    /* of a window that stands at a multiple of its length */
    uint64_t   window;
    uint64_t   in_window;
    uint64_t   window_limit;
    uint64_t   spent_ns;         /* when the perfect counter first denied */
    uint64_t   admitted_ns;      /* the last */

    /* of a bucket: the time that what was admitted takes to refill */
    uint64_t   level_ns;
    uint64_t   level_at_ns;
} sim_counter_t;


static void sim_oracle_judge(const sim_item_t *request);
static unsigned sim_oracle_right(sim_counter_t *counter,
    const ngx_rl_limit_t *limit, uint64_t now_us);
static void sim_oracle_bucket(sim_counter_t *counter,
    const ngx_rl_limit_t *limit, uint64_t at_ns);
static void sim_oracle_window(sim_counter_t *counter,
    const ngx_rl_limit_t *limit, const sim_item_t *request, unsigned right);
static void sim_oracle_close(sim_counter_t *counter);
static void sim_oracle_worst(double share);


static sim_request_t  *sim_requests;       /* a ring; a power of two */
static uint64_t        sim_requests_size;
static uint64_t        sim_requests_first;
static uint64_t        sim_requests_next;

/* by its moment and number; its outcome and key are kind and n */
static sim_heap_t      sim_decided;

static sim_counter_t  *sim_counters;
static uint64_t        sim_waits[SIM_WAIT_BINS];
static sim_result_t    sim_sums;


void
sim_oracle_start(void)
{
    sim_counters = sim_alloc(sim.cell.keys * sizeof(sim_counter_t));
    memset(&sim_sums, 0, sizeof(sim_sums));
    memset(sim_waits, 0, sizeof(sim_waits));
    sim_requests_first = 0;
    sim_requests_next = 0;
}


uint64_t
sim_oracle_arrival(uint64_t key)
{
    uint64_t        i, old;
    sim_request_t  *request, *ring;

    old = sim_requests_size;

    if (sim_requests_next - sim_requests_first == old) {
        sim_requests_size = old ? 2 * old : 4096;
        ring = sim_alloc(sim_requests_size * sizeof(sim_request_t));

        for (i = sim_requests_first; i < sim_requests_next; i++) {
            ring[i & (sim_requests_size - 1)] = sim_requests[i & (old - 1)];
        }

        free(sim_requests);
        sim_requests = ring;
    }

    request = &sim_requests[sim_requests_next & (sim_requests_size - 1)];
    request->at_ns = sim.now_ns;
    request->key = (uint32_t) key;
    request->outcome = SIM_PENDING;

    return sim_requests_next++;
}


uint64_t
sim_oracle_arrived_ns(uint64_t request)
{
    return sim_requests[request & (sim_requests_size - 1)].at_ns;
}


void
sim_oracle_lag(uint64_t lag_ns)
{
    if (lag_ns > sim_sums.lag_ns) {
        sim_sums.lag_ns = lag_ns;
    }
}


void
sim_oracle_decide(uint64_t number, sim_outcome_e outcome, uint64_t moment_ns)
{
    uint64_t        wait_ns;
    sim_item_t      decided;
    sim_request_t  *request;

    request = &sim_requests[number & (sim_requests_size - 1)];
    request->outcome = (uint8_t) outcome;

    wait_ns = sim.now_ns - request->at_ns;
    sim_sums.waited += moment_ns != SIM_NO_WAIT;

    if (wait_ns > sim_sums.wait_max_ns) {
        sim_sums.wait_max_ns = wait_ns;
    }

    wait_ns /= SIM_WAIT_NS;
    sim_waits[wait_ns < SIM_WAIT_BINS ? wait_ns : SIM_WAIT_BINS - 1]++;

    sim_heap_push(&sim_decided, (sim_item_t) {
        moment_ns > request->at_ns ? moment_ns : request->at_ns, number,
        outcome, NULL, request->key
    });

    while (sim_requests_first < sim_requests_next
           && sim_requests[sim_requests_first & (sim_requests_size - 1)].outcome
              != SIM_PENDING)
    {
        sim_requests_first++;
    }

    while (sim_decided.used
           && sim_decided.items[0].at_ns + SIM_SETTLED < sim.now_ns)
    {
        (void) sim_heap_pop(&sim_decided, &decided);
        sim_oracle_judge(&decided);
    }
}


static void
sim_oracle_judge(const sim_item_t *request)
{
    unsigned         right;
    sim_counter_t   *counter;
    ngx_rl_limit_t  *limit;

    sim_sums.checks++;

    if (request->kind == SIM_UNANSWERED) {
        sim_sums.unanswered++;
        return;
    }

    counter = &sim_counters[request->n];
    limit = &sim.limits[(sim.cell.fault == SIM_LOWER
                         || sim.cell.fault == SIM_RAISE)
                        && request->at_ns >= sim.fault_ns];

    right = sim_oracle_right(counter, limit,
                             SIM_START_US + request->at_ns / SIM_US);

    if (right) {
        counter->right += sim.cell.cost;
    } else {
        counter->met = 1;
    }

    if (!sim_bucket()) {
        sim_oracle_window(counter, limit, request, right);

    } else if (request->kind == SIM_ADMITTED) {
        sim_oracle_bucket(counter, limit, request->at_ns);
    }

    if (request->kind == SIM_ADMITTED) {
        counter->admitted += sim.cell.cost;
    }
}


static unsigned
sim_oracle_right(sim_counter_t *counter, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    uint64_t         left_us;
    uint32_t         cost;
    ngx_rl_answer_t  answer;

    cost = (uint32_t) sim.cell.cost;

    switch (limit->algorithm) {

    case NGX_RL_FIXED_WINDOW:
        left_us = ngx_rl_calendar_bounds(limit, now_us).end_us - now_us;
        ngx_rl_fixed_window_take(&counter->w, limit, now_us, left_us,
                                 limit->window_us, cost, cost, &answer);
        break;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_sliding_window_take(&counter->w, limit, now_us, cost,
                                   cost, &answer);
        break;

    default:
        ngx_rl_token_bucket_take(&counter->tb, &limit->rate, now_us,
                                 cost, cost, &answer);
    }

    return answer.granted != 0;
}


/* What a bucket promises: in any span capacity + rate * span, and no more. */
static void
sim_oracle_bucket(sim_counter_t *counter, const ngx_rl_limit_t *limit,
    uint64_t at_ns)
{
    uint64_t  passed_ns, token_ns, full_ns;

    token_ns = limit->rate.period_us * SIM_US / limit->rate.scale;
    full_ns = token_ns * limit->capacity;

    passed_ns = at_ns - counter->level_at_ns;
    counter->level_at_ns = at_ns;
    counter->level_ns -= counter->level_ns < passed_ns ? counter->level_ns
                                                       : passed_ns;
    counter->level_ns += token_ns * sim.cell.cost;

    if (counter->level_ns > full_ns) {
        sim_oracle_worst((double) (counter->level_ns - full_ns)
                         / (double) full_ns);
    }
}


static void
sim_oracle_window(sim_counter_t *counter, const ngx_rl_limit_t *limit,
    const sim_item_t *request, unsigned right)
{
    uint64_t  window;

    window = (SIM_START_US + request->at_ns / SIM_US) / limit->window_us;

    if (window != counter->window) {
        sim_oracle_close(counter);
        counter->window = window;
        counter->in_window = 0;
        counter->window_limit = limit->capacity;
        counter->spent_ns = 0;
        counter->admitted_ns = 0;
    }

    if (counter->window_limit < limit->capacity) {
        counter->window_limit = limit->capacity;
    }

    if (request->kind == SIM_ADMITTED) {
        counter->in_window += sim.cell.cost;
        counter->admitted_ns = request->at_ns;
    }

    if (!right && counter->spent_ns == 0) {
        counter->spent_ns = request->at_ns;
    }
}


static void
sim_oracle_close(sim_counter_t *counter)
{
    uint64_t  late_ns;

    if (counter->window == 0) {
        return;
    }

    if (counter->in_window > counter->window_limit) {
        sim_oracle_worst((double) (counter->in_window - counter->window_limit)
                         / (double) counter->window_limit);
    }

    /* a sliding window's denial is not for the rest of it */

    if (sim.cell.algorithm != NGX_RL_FIXED_WINDOW
        || counter->spent_ns == 0
        || counter->admitted_ns <= counter->spent_ns)
    {
        return;
    }

    late_ns = counter->admitted_ns - counter->spent_ns;

    if (late_ns > sim_sums.enforced_ns) {
        sim_sums.enforced_ns = late_ns;
    }
}


static void
sim_oracle_worst(double share)
{
    if (share > sim_sums.worst) {
        sim_sums.worst = share;
    }
}


void
sim_oracle_stop(sim_result_t *result)
{
    uint64_t        i, sum, worth;
    sim_counter_t  *counter;
    sim_item_t      decided;

    if (sim_requests_first != sim_requests_next) {
        sim_die("a request was never decided", "");
    }

    while (sim_heap_pop(&sim_decided, &decided)) {
        sim_oracle_judge(&decided);
    }

    worth = sim.cell.limit * sim.cell.seconds * 1000 / sim.cell.window_ms;

    if (sim_bucket()) {
        worth += sim.limits[0].capacity;
    }

    for (i = 0; i < sim.cell.keys; i++) {
        counter = &sim_counters[i];

        sim_oracle_close(counter);

        sim_sums.admitted += counter->admitted;
        sim_sums.right += counter->right;
        sim_sums.worth += counter->met ? worth : 0;

        if (counter->admitted > counter->right) {
            sim_sums.over += counter->admitted - counter->right;
        } else {
            sim_sums.under += counter->right - counter->admitted;
        }
    }

    for (i = 0, sum = 0; i < SIM_WAIT_BINS; i++) {
        sum += sim_waits[i];

        if (sum * 100 >= sim_sums.checks * 99) {
            break;
        }
    }

    sim_sums.wait_p99_ns = (sim_waits[0] == sum) ? 0 : (i + 1) * SIM_WAIT_NS;

    *result = sim_sums;
    free(sim_counters);
}

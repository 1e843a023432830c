/*
 * The world of a cell: a queue of events in virtual time, the requests that
 * come, and what goes wrong.
 */

#include "sim.h"

#define SIM_DRAIN   (2 * SIM_SECOND)     /* after the last request */
#define SIM_CHANGE  (20 * SIM_MS)        /* until all nodes have a new limit */
#define SIM_BATCHED 20
#define SIM_FLOODED 5000


static void sim_start(void);
static void sim_limit(ngx_rl_limit_t *limit, uint64_t tokens, uint16_t mark);
static void sim_traffic(void);
static void sim_next_arrival(void);
static void sim_arrive(void);
static uint64_t sim_pick_node(void);
static uint64_t sim_pick_key(void);
static void sim_event(const sim_item_t *item);
static void sim_fault(void);
static void sim_fault_nodes(void);
static void sim_mended(void);
static void sim_flaky(void);


sim_world_t  sim;

static sim_heap_t     sim_events;
static uint64_t       sim_order;

static sim_chance_t   sim_world_chance;
static uint64_t      *sim_weights;       /* of keys, each with those before */
static uint64_t       sim_mean_ns;       /* between arrivals */
static uint64_t       sim_active_ns;     /* SIM_ONOFF: time with traffic */


void
sim_run(sim_result_t *result)
{
    sim_item_t  item;

    sim_start();

    while (sim_heap_pop(&sim_events, &item)
           && item.at_ns <= sim.end_ns + SIM_DRAIN) {
        sim.now_ns = item.at_ns;
        sim_event(&item);
    }

    sim_oracle_stop(result);
    result->calls = sim_calls();

    if (sim_peers()) {
        result->calls = sim_fleet_stop();
    }

    sim_nodes_stop();
    sim_redis_stop();
    free(sim_weights);
}


static void
sim_start(void)
{
    sim.now_ns = 0;
    sim.away = 0;
    sim.slow = 0;
    sim.end_ns = sim.cell.seconds * SIM_SECOND;
    sim.fault_ns = sim.cell.at_ms * SIM_MS;

    sim_events.used = 0;
    sim_order = 0;
    sim_world_chance.state = sim.cell.seed;

    sim_limit(&sim.limits[0], sim.cell.limit, 1);
    sim_limit(&sim.limits[1], sim.cell.fault == SIM_LOWER
                              ? (sim.cell.limit + 1) / 2 : 2 * sim.cell.limit,
              2);

    sim_calls();
    sim_redis_start();
    sim_oracle_start();

    if (sim_peers()) {
        sim_fleet_start();
    }

    sim_nodes_start();
    sim_traffic();

    if (sim.cell.fault) {
        sim_push(sim.fault_ns, SIM_FAULT, NULL, 0);
    }
}


static void
sim_limit(ngx_rl_limit_t *limit, uint64_t tokens, uint16_t mark)
{
    const char     *expected;
    ngx_rl_spec_t   spec;

    memset(&spec, 0, sizeof(spec));
    memset(limit, 0, sizeof(*limit));

    spec.algorithm = sim.cell.algorithm;
    spec.tokens = tokens;
    spec.period_us = sim.cell.window_ms * 1000;
    spec.capacity = sim.cell.capacity;

    /* the bucket's capacity; what a delay is, nobody asks here */

    spec.burst = (sim.cell.capacity ? sim.cell.capacity : tokens) - 1;
    spec.nodelay = 1;

    expected = ngx_rl_limit_init(limit, &spec);

    if (expected) {
        sim_die("the limit: expected", expected);
    }

    limit->mark = mark;
}


/* Zipf's law with s = 1: the k-th key has a k-th of the first one's traffic. */
static void
sim_traffic(void)
{
    uint64_t  k, sum, per_hour;

    sim_weights = sim_alloc(sim.cell.keys * sizeof(uint64_t));

    for (k = 0, sum = 0; k < sim.cell.keys; k++) {
        sum += ((uint64_t) 1 << 24) / (k + 1);
        sim_weights[k] = sum;
    }

    if (sim.cell.rate) {
        sim_mean_ns = SIM_SECOND / sim.cell.rate;

    } else {

        /* of the first key, in 3600 s; then of all */

        per_hour = sim.cell.limit * sim.cell.load * 3600 / sim.cell.window_ms;
        per_hour = per_hour * (sum >> 8) >> 16;
        sim_mean_ns = 3600 * SIM_SECOND / (per_hour ? per_hour : 1);
    }

    if (sim.cell.arrivals == SIM_BATCH) {
        sim_mean_ns *= SIM_BATCHED;

    } else if (sim.cell.arrivals == SIM_ONOFF) {
        sim_mean_ns /= 10;

    } else if (sim.cell.arrivals == SIM_FLOOD) {
        sim_mean_ns = SIM_SECOND / 10 / SIM_FLOODED;
    }

    sim_active_ns = 0;
    sim_next_arrival();
}


static void
sim_next_arrival(void)
{
    uint64_t  at_ns, tenth_ns;

    sim_active_ns += sim_gap(&sim_world_chance, sim_mean_ns);
    at_ns = sim_active_ns;

    if (sim.cell.arrivals == SIM_ONOFF) {
        tenth_ns = SIM_SECOND / 10;
        at_ns = at_ns / tenth_ns * SIM_SECOND + at_ns % tenth_ns;
    }

    if (at_ns < sim.end_ns
        && (sim.cell.arrivals != SIM_FLOOD || at_ns < SIM_SECOND / 10))
    {
        sim_push(at_ns, SIM_ARRIVAL, NULL, 0);
    }
}


static void
sim_arrive(void)
{
    uint64_t  n, key, i;

    n = sim_pick_node();
    key = sim_pick_key();

    for (i = 0; i < (sim.cell.arrivals == SIM_BATCH ? SIM_BATCHED : 1); i++) {
        sim_node_request(n, key, sim_oracle_arrival(key));
    }

    sim_next_arrival();
}


/* What a node does not take goes to any other. */
static uint64_t
sim_pick_node(void)
{
    uint64_t  n, nodes;

    nodes = sim.cell.nodes;

    if (sim.cell.skew == SIM_EVEN) {
        n = sim_below(&sim_world_chance, nodes);

    } else if (sim.cell.skew == SIM_ONE || nodes == 1
               || sim_below(&sim_world_chance, 10))
    {
        n = 0;

    } else {
        n = 1 + sim_below(&sim_world_chance, nodes - 1);
    }

    while (!sim_node_up(n)) {
        n = sim_below(&sim_world_chance, nodes);
    }

    return n;
}


static uint64_t
sim_pick_key(void)
{
    uint64_t  x, low, high, mid;

    if (sim.cell.keys == 1) {
        return 0;
    }

    x = sim_below(&sim_world_chance, sim_weights[sim.cell.keys - 1]);
    low = 0;
    high = sim.cell.keys - 1;

    while (low < high) {
        mid = (low + high) / 2;

        if (x < sim_weights[mid]) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }

    return low;
}


void
sim_push(uint64_t at_ns, sim_event_e kind, void *data, uint64_t n)
{
    sim_heap_push(&sim_events,
                  (sim_item_t) { at_ns, sim_order++, kind, data, n });
}


static void
sim_event(const sim_item_t *item)
{
    switch (item->kind) {

    case SIM_ARRIVAL:
        sim_arrive();
        return;

    case SIM_CALL_RUNS:
        sim_call_runs(item->data);
        return;

    case SIM_CALL_ENDS:
        sim_call_ends(item->data);
        return;

    case SIM_DEADLINE:
        sim_refill_deadline(item->data, item->n != 0);
        return;

    case SIM_ALONE_DEADLINE:
        sim_refill_alone_deadline(item->data, item->n);
        return;

    case SIM_SWEEP:
        sim_refill_sweep(item->data);
        return;

    case SIM_BEAT:
        sim_node_beat(item->n);
        return;

    case SIM_FAULT:
        sim_fault();
        return;

    case SIM_MENDED:
        sim_mended();
        return;

    case SIM_BREAKS:
        sim_node_break(item->n);
        sim_flaky();
        return;

    case SIM_TELL:
        sim_fleet_tell(item->n);
        return;

    case SIM_TOLD:
        sim_fleet_told(item->data);
        return;

    default: /* SIM_NEW_LIMIT */
        sim_node_limit(item->n);
    }
}


static void
sim_fault(void)
{
    switch (sim.cell.fault) {

    case SIM_BREAK:
        sim_nodes_break();
        return;

    case SIM_FLAKY:
        sim_flaky();
        return;

    case SIM_SLOW:
        sim.slow = 1;
        sim_push(sim.now_ns + 3 * SIM_SECOND, SIM_MENDED, NULL, 0);
        return;

    case SIM_AWAY:
        sim.away = 1;
        sim_nodes_break();
        sim_push(sim.now_ns + 3 * SIM_SECOND, SIM_MENDED, NULL, 0);
        return;

    case SIM_FAILOVER:
    case SIM_FLUSH:
        sim.away = 1;
        sim_nodes_break();
        sim_redis_lose(sim.cell.fault == SIM_FLUSH
                       ? 0 : sim.now_ns - sim.cell.lost_ms * SIM_MS);
        sim_push(sim.now_ns + SIM_SECOND, SIM_MENDED, NULL, 0);
        return;

    case SIM_CUT:
        sim_fleet_cut(1);
        sim_push(sim.now_ns + 10 * SIM_SECOND, SIM_MENDED, NULL, 0);
        return;

    case SIM_LOSS:
        return;

    default:
        sim_fault_nodes();
    }
}


static void
sim_fault_nodes(void)
{
    uint64_t  n;

    if (sim.cell.fault == SIM_CRASH) {
        sim_node_crash(0);
        sim_push(sim.now_ns + SIM_SECOND, SIM_MENDED, NULL, 0);
        return;
    }

    for (n = 0; n < sim.cell.nodes; n++) {

        if (sim.cell.fault == SIM_LOWER || sim.cell.fault == SIM_RAISE) {
            sim_push(sim.now_ns + sim_below(&sim_world_chance, SIM_CHANGE),
                     SIM_NEW_LIMIT, NULL, n);

        } else if (n < (sim.cell.nodes + 1) / 2) {
            continue;

        } else if (sim.cell.fault == SIM_JOIN) {
            sim_node_join(n);

        } else {
            sim_node_leave(n);
        }
    }
}


static void
sim_mended(void)
{
    sim.away = 0;
    sim.slow = 0;

    if (sim.cell.fault == SIM_CRASH) {
        sim_node_join(0);
    }

    if (sim.cell.fault == SIM_CUT) {
        sim_fleet_cut(0);
    }
}


/* The next connection that breaks is any of them. */
static void
sim_flaky(void)
{
    uint64_t  n;

    n = sim_below(&sim_world_chance, sim.cell.nodes);

    if (sim.now_ns < sim.end_ns) {
        sim_push(sim.now_ns + sim_gap(&sim_world_chance,
                                      SIM_SECOND / sim.cell.nodes),
                 SIM_BREAKS, NULL, n);
    }
}


unsigned
sim_bucket(void)
{
    return sim.cell.algorithm == NGX_RL_TOKEN_BUCKET
           || sim.cell.algorithm == NGX_RL_LEAKY_BUCKET;
}


void *
sim_alloc(size_t size)
{
    void  *p;

    p = calloc(1, size ? size : 1);

    if (p == NULL) {
        sim_die("memory", "");
    }

    return p;
}


void
sim_die(const char *what, const char *name)
{
    fprintf(stderr, "sim: %s %s\n", what, name);
    exit(1);
}

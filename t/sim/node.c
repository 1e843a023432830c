/*
 * The nodes of the fleet: which are up, what they know of each other, and the
 * refills of their workers.
 */

#include "node.h"

#define SIM_ALIVE    (3 * SIM_SECOND)      /* since the last heartbeat */

static sim_refill_t *sim_refill(sim_node_t *node, uint64_t key);


static sim_node_t    *sim_nodes;
static sim_chance_t   sim_node_chance;


void
sim_nodes_start(void)
{
    uint64_t     n, w;
    sim_node_t  *node;

    sim_nodes = sim_alloc(sim.cell.nodes * sizeof(sim_node_t));
    sim_node_chance.state = sim.cell.seed * 7919;

    for (n = 0; n < sim.cell.nodes; n++) {
        node = &sim_nodes[n];
        node->leased = sim_alloc(sim.cell.keys * sizeof(sim_leased_t *));
        node->limit = &sim.limits[0];
        node->clock_us = 5000000 + sim_below(&sim_node_chance, 1000000000);

        for (w = 0; w < sim.cell.workers; w++) {
            sim_conn_init(&node->conns[w]);
        }

        if (sim.cell.fault != SIM_JOIN || n < (sim.cell.nodes + 1) / 2) {
            sim_node_join(n);
        }
    }

    /* they have been up before the first request */

    for (n = 0; n < sim.cell.nodes; n++) {
        sim_node_beat(n);
    }
}


void
sim_nodes_stop(void)
{
    uint64_t       n, k, w;
    sim_leased_t  *leased;

    for (n = 0; n < sim.cell.nodes; n++) {
        for (k = 0; k < sim.cell.keys; k++) {
            leased = sim_nodes[n].leased[k];

            for (w = 0; leased && w < sim.cell.workers; w++) {
                if (leased->refills[w]) {
                    free(leased->refills[w]->queue);
                    free(leased->refills[w]);
                }
            }

            free(leased);
        }

        free(sim_nodes[n].leased);
    }

    free(sim_nodes);
}


unsigned
sim_node_up(uint64_t n)
{
    return sim_nodes[n].up;
}


void
sim_node_join(uint64_t n)
{
    if (sim_peers()) {
        sim_fleet_join(n);
    }

    sim_nodes[n].up = 1;
    sim_nodes[n].alive = 1;
    sim_nodes[n].beat_ns = sim.now_ns + 1;
    sim_push(sim.now_ns + sim_below(&sim_node_chance, SIM_SECOND), SIM_BEAT,
             NULL, n);
}


void
sim_node_leave(uint64_t n)
{
    if (sim_peers()) {
        sim_fleet_leave(n, 0);
    }

    sim_nodes[n].up = 0;
}


void
sim_node_crash(uint64_t n)
{
    uint64_t       k, w;
    sim_node_t    *node;
    sim_call_t    *call;
    sim_leased_t  *leased;

    if (sim_peers()) {
        sim_fleet_leave(n, 1);
    }

    node = &sim_nodes[n];
    node->up = 0;

    for (w = 0; w < sim.cell.workers; w++) {
        for (call = node->conns[w].first; call; call = call->next) {
            if (call->alone && call->refill) {
                sim_oracle_decide(call->request, SIM_UNANSWERED, sim.now_ns);
            }

            if (sim.cell.sync != SIM_STRICT) {
                call->refill = NULL;
            }
        }
    }

    sim_node_break(n);

    for (k = 0; k < sim.cell.keys; k++) {
        leased = node->leased[k];

        if (leased == NULL) {
            continue;
        }

        memset(&leased->ledger, 0, sizeof(leased->ledger));
        memset(&leased->tb, 0, sizeof(leased->tb));
        memset(&leased->w, 0, sizeof(leased->w));

        for (w = 0; w < sim.cell.workers; w++) {
            if (leased->refills[w]) {
                leased->refills[w]->call = NULL;
                sim_refill_all(leased->refills[w], SIM_UNANSWERED, sim.now_ns);
            }
        }
    }
}


/* All connections of a node break. */
void
sim_node_break(uint64_t n)
{
    uint64_t  w;

    for (w = 0; w < sim.cell.workers; w++) {
        sim_conn_break(&sim_nodes[n].conns[w]);
    }
}


void
sim_nodes_break(void)
{
    uint64_t  n;

    for (n = 0; n < sim.cell.nodes; n++) {
        sim_node_break(n);
    }
}


/* Each second: it says that it lives, and learns how many do. */
void
sim_node_beat(uint64_t n)
{
    uint64_t     i;
    uint32_t     alive;
    sim_node_t  *node;

    node = &sim_nodes[n];

    if (!node->up) {
        return;
    }

    if (!sim.away) {
        node->beat_ns = sim.now_ns + 1;

        for (alive = 0, i = 0; i < sim.cell.nodes; i++) {
            alive += sim_nodes[i].beat_ns
                     && sim_nodes[i].beat_ns + SIM_ALIVE > sim.now_ns;
        }

        node->alive = alive;
    }

    if (sim.now_ns) {
        sim_push(sim.now_ns + SIM_SECOND, SIM_BEAT, NULL, n);
    }
}


void
sim_node_limit(uint64_t n)
{
    sim_nodes[n].limit = &sim.limits[1];
}


/* nginx's clock counts milliseconds. */
uint64_t
sim_node_now_us(const sim_node_t *node)
{
    return (node->clock_us + sim.now_ns / SIM_US) / 1000 * 1000;
}


void
sim_node_request(uint64_t n, uint64_t key, uint64_t request)
{
    sim_refill_t  *refill;

    if (sim_peers()) {
        sim_fleet_request(n, key, request);
        return;
    }

    refill = sim_refill(&sim_nodes[n], key);

    switch (sim.cell.sync) {

    case SIM_STRICT:
        sim_refill_strict(refill, request);
        return;

    default:
        sim_refill_take(refill, request);
    }
}


static sim_refill_t *
sim_refill(sim_node_t *node, uint64_t key)
{
    uint64_t       w;
    sim_leased_t  *leased;
    sim_refill_t  *refill;

    leased = node->leased[key];

    if (leased == NULL) {
        leased = sim_alloc(sizeof(*leased));
        node->leased[key] = leased;
    }

    w = sim.cell.workers > 1 ? sim_below(&sim_node_chance, sim.cell.workers)
                             : 0;
    refill = leased->refills[w];

    if (refill == NULL) {
        refill = sim_alloc(sizeof(*refill));
        refill->node = node;
        refill->leased = leased;
        refill->conn = &node->conns[w];
        refill->key = key;
        leased->refills[w] = refill;
    }

    return refill;
}

/*
 * What node.c and refill.c share, nobody else: a node, and its refills.
 */

#ifndef NODE_H_INCLUDED
#define NODE_H_INCLUDED

#include "sim.h"

/* A node's ledger of a counter; tb, w: async, it has no answer yet. */
typedef struct {
    ngx_rl_ledger_t        ledger;
    ngx_rl_token_bucket_t  tb;
    ngx_rl_window_t        w;
    sim_refill_t          *refills[SIM_WORKERS];
} sim_leased_t;

struct sim_node_s {
    sim_leased_t         **leased;      /* by key; NULL: none yet */
    sim_conn_t             conns[SIM_WORKERS];
    const ngx_rl_limit_t  *limit;
    uint64_t               clock_us;    /* what its clock is ahead by */
    uint64_t               beat_ns;     /* 0: it does not live */
    uint32_t               alive;       /* nodes, as it knows */
    uint32_t               rtt;         /* sixteenths of a ms */
    unsigned               up:1;        /* requests come */
};

/* Requests that wait are a ring. */
struct sim_refill_s {
    sim_node_t                   *node;
    sim_leased_t                 *leased;
    sim_conn_t                   *conn;
    uint64_t                      key;
    sim_call_t                   *call;       /* in flight */
    uint64_t                     *queue;
    uint32_t                      head;
    uint32_t                      used;
    uint32_t                      size;
    uint64_t                      until_ns;   /* who waits for it does */
    unsigned                      sweeping:1;
    unsigned                      timed:1;
};


/* node.c */

uint64_t sim_node_now_us(const sim_node_t *node);


/* refill.c */

void sim_refill_take(sim_refill_t *refill, uint64_t request);
void sim_refill_strict(sim_refill_t *refill, uint64_t request);

/* What all that wait for it are told. */
void sim_refill_all(sim_refill_t *refill, sim_outcome_e outcome,
    uint64_t moment_ns);

#endif /* NODE_H_INCLUDED */

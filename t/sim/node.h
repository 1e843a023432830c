/*
 * What node.c and holder.c share, nobody else: a node, and its holders.
 */

#ifndef NODE_H_INCLUDED
#define NODE_H_INCLUDED

#include "sim.h"

/* A node's lease of a counter. */
typedef struct {
    ngx_ratelimit_lease_t  lease;
    sim_holder_t          *holders[SIM_WORKERS];
} sim_leased_t;

struct sim_node_s {
    sim_leased_t                **leased;      /* by key; NULL: none yet */
    sim_conn_t                    conns[SIM_WORKERS];
    const ngx_ratelimit_limit_t  *limit;
    uint64_t                      clock_us;    /* what its clock is ahead by */
    uint64_t                      beat_ns;     /* 0: it does not live */
    uint32_t                      alive;       /* nodes, as it knows */
    uint32_t                      rtt;         /* sixteenths of a ms */
    unsigned                      up:1;        /* requests come */
};

/* Requests that wait are a ring. */
struct sim_holder_s {
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


/* holder.c */

void sim_holder_lease(sim_holder_t *holder, uint64_t request);
void sim_holder_strict(sim_holder_t *holder, uint64_t request);
void sim_holder_async(sim_holder_t *holder, uint64_t request);

/* What all that wait for it are told. */
void sim_holder_all(sim_holder_t *holder, sim_outcome_e outcome,
    uint64_t moment_ns);

#endif /* NODE_H_INCLUDED */

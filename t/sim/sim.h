/*
 * The simulator: a fleet of nodes with leases, one Redis, and a perfect counter
 * beside them that sees the same requests. Time is virtual and all chance comes
 * from one seed, so a run says the same on any machine.
 *
 *   sim.c      cells: reads what to simulate, runs it, prints a line for each
 *   world.c    events, arrivals, faults
 *   node.c     nodes that come and go, and know how many they are
 *   refill.c   what a worker does: src/engine in small, on the real lease
 *   fleet.c    gateways without Redis, which tell each other
 *   wire.c     connections and calls, and when they break
 *   redis.c    the real script on a store with a journal
 *   oracle.c   the perfect counter, and what is measured against it
 *   chance.c   random numbers, heaps
 */

#ifndef SIM_H_INCLUDED
#define SIM_H_INCLUDED

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ngx_rl_ledger.h"
#include "ngx_rl_told.h"
#include "ngx_rl_window.h"

/* virtual time is in nanoseconds since SIM_START_US, a full minute */
#define SIM_US        ((uint64_t) 1000)
#define SIM_MS        ((uint64_t) 1000000)
#define SIM_SECOND    ((uint64_t) 1000000000)
#define SIM_START_US  ((uint64_t) 1700000040 * 1000000)

#define SIM_NO_WAIT   0

#define SIM_WORKERS   4
#define SIM_SHARDS    64

typedef enum {
    SIM_LEASE = 0,
    SIM_STRICT,
    SIM_ASYNC,
    SIM_PEERS,             /* no Redis */
    SIM_GOSSIP             /* the same, to compare */
} sim_sync_e;

typedef enum {
    SIM_EVEN = 0,          /* each node has as much traffic as the others */
    SIM_90,                /* node 0 has nine tenths of it */
    SIM_ONE                /* node 0 has all */
} sim_skew_e;

typedef enum {
    SIM_POISSON = 0,
    SIM_ONOFF,             /* ten times the rate for a tenth of each second */
    SIM_BATCH,             /* twenty at once, at one node */
    SIM_FLOOD              /* 5,000 in 100 ms, and no more */
} sim_arrivals_e;

typedef enum {
    SIM_NO_FAULT = 0,
    SIM_BREAK,             /* every connection breaks, once */
    SIM_FLAKY,             /* each connection breaks once a second */
    SIM_SLOW,              /* 20 to 50 ms each way, for 3 s */
    SIM_AWAY,              /* Redis is away for 3 s */
    SIM_FAILOVER,          /* away for 1 s; the last writes are lost */
    SIM_FLUSH,             /* away for 1 s; all data is lost */
    SIM_CRASH,             /* node 0 for 1 s, and its leases for good */
    SIM_JOIN,              /* half of the nodes come later */
    SIM_LEAVE,             /* half of them go */
    SIM_LOWER,             /* the limit becomes half as high */
    SIM_RAISE,             /* twice */
    SIM_CUT,               /* peers: between the two halves, for 10 s */
    SIM_LOSS               /* peers: a message of ten is 200 ms late */
} sim_fault_e;

/* What is simulated. */
typedef struct {
    uint64_t                   algorithm;
    uint64_t                   limit;       /* tokens in window_ms */
    uint64_t                   window_ms;
    uint64_t                   capacity;    /* of a bucket; 0: limit */
    uint64_t                   cost;
    uint64_t                   nodes;
    uint64_t                   workers;     /* of a node */
    uint64_t                   keys;        /* counters; Zipf's law, s = 1 */
    uint64_t                   load;        /* thousandths of the limit, of the
                                               first key */
    uint64_t                   rate;        /* requests a second, instead */
    uint64_t                   skew;        /* sim_skew_e */
    uint64_t                   arrivals;    /* sim_arrivals_e */
    uint64_t                   sync;        /* sim_sync_e */
    uint64_t                   fault;       /* sim_fault_e */
    uint64_t                   at_ms;       /* of the fault */
    uint64_t                   lost_ms;     /* writes a failover loses */
    uint64_t                   seconds;
    uint64_t                   delay_us;    /* at least, each way, and as much
                                               again and a third at most */
    uint64_t                   rtt_us;      /* between regions, to Redis and
                                               back; besides the delay */
    uint64_t                   interval_ms; /* async */
    uint64_t                   timeout_ms;
    uint64_t                   shards;      /* of Redis, a core each */
    uint64_t                   seed;
} sim_cell_t;

/* What the script answers: granted, remaining, reset_ms, retry_ms. */
typedef int64_t  sim_values_t[4];

typedef enum {
    SIM_PENDING = 0,
    SIM_ADMITTED,
    SIM_DENIED,
    SIM_UNANSWERED         /* Redis was away: nobody has counted it */
} sim_outcome_e;

/* What is measured. */
typedef struct {
    uint64_t  checks;
    uint64_t  admitted;
    uint64_t  right;           /* would have been, by the perfect counter */
    uint64_t  unanswered;
    uint64_t  calls;           /* to Redis, gifts included */
    uint64_t  waited;

    uint64_t  over;            /* admitted beyond that, summed over keys */
    uint64_t  under;           /* and short of it */
    uint64_t  worth;           /* of the limits of keys that met them */
    double    worst;           /* the worst window, or span of a bucket: what
                                  it had too much, as a share of the limit */
    uint64_t  enforced_ns;     /* from when a window's limit was spent to the
                                  last that was admitted in it */
    uint64_t  lag_ns;          /* async: the longest from a token's spending
                                  to the answer of the call that debits it */
    uint64_t  wait_p99_ns;
    uint64_t  wait_max_ns;
} sim_result_t;


typedef enum {
    SIM_ARRIVAL = 0,
    SIM_CALL_RUNS,         /* a call reaches Redis */
    SIM_CALL_ENDS,         /* its reply reaches the node */
    SIM_DEADLINE,
    SIM_ALONE_DEADLINE,    /* of a request that asks for itself */
    SIM_SWEEP,
    SIM_BEAT,
    SIM_FAULT,
    SIM_MENDED,
    SIM_BREAKS,            /* one connection */
    SIM_NEW_LIMIT,         /* of one node */
    SIM_TELL,              /* a peer tells */
    SIM_TOLD               /* a message has arrived */
} sim_event_e;

/* The virtual world; there is one. */
typedef struct {
    sim_cell_t      cell;
    uint64_t        now_ns;
    uint64_t        end_ns;
    uint64_t        fault_ns;
    ngx_rl_limit_t  limits[2];   /* the cell's, and that after LOWER */
    unsigned        away:1;      /* Redis is */
    unsigned        slow:1;
} sim_world_t;

extern sim_world_t  sim;


/* world.c */

/* Runs sim.cell from an empty Redis to its end. */
void sim_run(sim_result_t *result);

/* At at_ns this shall happen; data and n are what the kind says. */
void sim_push(uint64_t at_ns, sim_event_e kind, void *data, uint64_t n);

/* Whether the counters are buckets: what they admit is the same of both. */
unsigned sim_bucket(void);

/* Whether the cell has no Redis. */
#define sim_peers()  (sim.cell.sync >= SIM_PEERS)

void *sim_alloc(size_t size);
void sim_die(const char *what, const char *name);


/* node.c */

typedef struct sim_node_s    sim_node_t;
typedef struct sim_refill_s  sim_refill_t;
typedef struct sim_call_s    sim_call_t;

void sim_nodes_start(void);
void sim_nodes_stop(void);
unsigned sim_node_up(uint64_t n);
void sim_node_join(uint64_t n);

/* It takes no requests any more, and ends a second later. */
void sim_node_leave(uint64_t n);
void sim_node_crash(uint64_t n);
void sim_node_break(uint64_t n);
void sim_nodes_break(void);
void sim_node_beat(uint64_t n);
void sim_node_limit(uint64_t n);

/* The request with this number is for this key. */
void sim_node_request(uint64_t n, uint64_t key, uint64_t request);


/* refill.c */

/* values are NULL where the call was lost; call->refill, where it has one. */
void sim_refill_answer(sim_call_t *call, const int64_t *values);
void sim_refill_deadline(sim_refill_t *refill, unsigned waited);
void sim_refill_alone_deadline(sim_refill_t *refill, uint64_t request);
void sim_refill_sweep(sim_refill_t *refill);


/* wire.c */

typedef struct {
    sim_call_t  *first;       /* in flight */
    sim_call_t **last;
    uint64_t     ready_ns;    /* connected again */
    uint64_t     there_ns;    /* when the last call arrives at Redis */
    uint64_t     back_ns;     /* and its reply at the node */
} sim_conn_t;

/* One call. It is freed with its last event. */
struct sim_call_s {
    sim_call_t            *next;
    sim_call_t           **prev;
    sim_refill_t          *refill;    /* NULL: nobody wants to know */
    sim_conn_t            *conn;      /* NULL: broken */
    const ngx_rl_limit_t  *limit;
    uint64_t               key;
    uint64_t               request;   /* strict, alone: whose it is */
    unsigned               alone:1;   /* no lease comes of it */
    uint64_t               sent_us;   /* by the node's clock */
    uint64_t               back_ns;   /* how long its reply takes */
    uint64_t               ran_ns;    /* when it did in Redis */
    int64_t                cost;
    char                   want[48];
    ngx_rl_ledger_call_t   says;
    sim_values_t           values;
};

void sim_conn_init(sim_conn_t *conn);

/* Sends; the call is the wire's. Returns 0 where Redis is away: it is freed. */
unsigned sim_conn_send(sim_conn_t *conn, sim_call_t *call);

/* All that is in flight is lost; refills are told. */
void sim_conn_break(sim_conn_t *conn);

void sim_call_runs(sim_call_t *call);
void sim_call_ends(sim_call_t *call);
uint64_t sim_calls(void);


/* redis.c */

void sim_redis_start(void);
void sim_redis_stop(void);
void sim_redis_run(uint64_t key, const ngx_rl_limit_t *limit, int64_t cost,
    const char *want, int64_t *values);

/* Forgets what was written since then; 0: everything. */
void sim_redis_lose(uint64_t since_ns);


/* fleet.c */

void sim_fleet_start(void);

/* Returns the number of messages. */
uint64_t sim_fleet_stop(void);
void sim_fleet_join(uint64_t n);
void sim_fleet_leave(uint64_t n, unsigned crash);
void sim_fleet_cut(unsigned cut);
void sim_fleet_request(uint64_t n, uint64_t key, uint64_t request);
void sim_fleet_tell(uint64_t n);
void sim_fleet_told(void *message);


/* oracle.c */

void sim_oracle_start(void);
void sim_oracle_stop(sim_result_t *result);

/* A request has come. Returns its number. */
uint64_t sim_oracle_arrival(uint64_t key);
uint64_t sim_oracle_arrived_ns(uint64_t request);

/* A call debits what was spent so long ago, by now answered. */
void sim_oracle_lag(uint64_t lag_ns);

/* moment_ns is when Redis decided, or SIM_NO_WAIT. */
void sim_oracle_decide(uint64_t request, sim_outcome_e outcome,
    uint64_t moment_ns);


/* chance.c */

/* An item of a heap: what comes first has the least moment, then order. */
typedef struct {
    uint64_t   at_ns;
    uint64_t   order;
    unsigned   kind;
    void      *data;
    uint64_t   n;
} sim_item_t;

typedef struct {
    sim_item_t  *items;     /* the first is items[0] */
    size_t       used;
    size_t       size;
} sim_heap_t;

void sim_heap_push(sim_heap_t *heap, sim_item_t item);

/* Takes the first out. Returns 0: there is none. */
unsigned sim_heap_pop(sim_heap_t *heap, sim_item_t *item);


typedef struct {
    uint64_t  state;
} sim_chance_t;

/* 0..n-1; n is 1..2^32 */
uint64_t sim_below(sim_chance_t *chance, uint64_t n);

/* Of this mean, exponential: the gap to the next of a Poisson stream. */
uint64_t sim_gap(sim_chance_t *chance, uint64_t mean);

#endif /* SIM_H_INCLUDED */

/*
 * Refills: the calls to Redis by which a worker refills a counter's lease, and
 * the requests that wait for them. Inside the engine only.
 *
 * A refill is heap memory, made when a worker first has to ask for a counter,
 * and freed by its sweep, every 100 ms, when there is nothing more to do. Its
 * calls are heap memory too and outlive their requests: a reply that comes when
 * nobody waits any more still fills the lease.
 */

#ifndef NGX_RL_REFILL_H_INCLUDED
#define NGX_RL_REFILL_H_INCLUDED

#include "ngx_rl_backend.h"
#include "ngx_rl_policy.h"

/* all refills of a limiter in this worker */
typedef struct {
    ngx_rl_limiter_t      *limiter;
    ngx_log_t             *log;
    ngx_rbtree_t           tree;
    ngx_rbtree_node_t      sentinel;
    ngx_queue_t            sweeps;     /* refills, the next first */
    ngx_queue_t            waits;      /* counters, the oldest first */
    ngx_event_t            sweep;
    ngx_event_t            wait;
    ngx_uint_t             rtt;        /* sixteenths of a ms */
} ngx_rl_refills_t;

/* a lease's id, and the mark of its limit */
typedef struct {
    ngx_rl_id_t           id;
    uint64_t              mark;
} ngx_rl_refill_name_t;

struct ngx_rl_refill_s {
    ngx_str_node_t        node;       /* its string: name */
    ngx_rl_refill_name_t  name;
    ngx_queue_t           queue;      /* in sweeps */
    ngx_msec_t            sweep_ms;
    ngx_rl_refills_t     *refills;

    ngx_queue_t                  waiting;    /* counters */
    uint64_t                     queued;     /* their cost */
    uint32_t                     owed;       /* async: spent without a lease,
                                                not debited yet */
    uint32_t                     gave;       /* async: given back since the
                                                last call was made */
    void                        *call;       /* that they wait for */
    ngx_queue_t                  calls;      /* those without a last result */
    unsigned                     note:1;     /* some are of fail_mode=local */

    /* the counter in memory of its own; it uses the rule's policy as long as it
       lives */
    ngx_rl_counter_t      counter;
    ngx_rl_client_t       client;
    ngx_rl_remote_client_t  remote;   /* of the client */
    ngx_rl_limit_t        limit;
};

typedef struct {
    ngx_queue_t           queue;
    ngx_rl_refill_t      *refill;
    ngx_rl_lease_ask_t    ask;
    uint32_t              head;       /* cost of the first that waits */
    ngx_rl_async_call_t   told;       /* async: of the ledger's */
    uint64_t              asked_us;
} ngx_rl_refill_call_t;


/* the counter whose remote part is in a queue, by the queue's member */
#define ngx_rl_refill_counter(q, member)                                      \
    ((ngx_queue_data(q, ngx_rl_remote_t, member))->counter)

#define ngx_rl_refill_async(refill)                                           \
    ((refill)->counter.rule->sync == NGX_RL_SYNC_ASYNC)


/* refill.c: the counter waits until its lease was refilled, see ask() */
void ngx_rl_refill_join(ngx_rl_counter_t *counter);

/*
 * ahead: asks for more, and nobody waits; async: tells what the ledger owes.
 * Without a place for one these are the owed tokens of this and later calls: if
 * their call fails, or memory is out, they are never debited. watch: tokens in
 * hand go back in time; async: what is owed is told.
 */
void ngx_rl_refill_ahead(ngx_rl_counter_t *counter, uint32_t owed);
void ngx_rl_refill_watch(ngx_rl_counter_t *counter);

/*
 * Tokens come back that were owed. Returns how many of them no call has debited
 * yet; the caller gives back the others.
 */
uint32_t ngx_rl_refill_unowe(ngx_rl_counter_t *counter, uint32_t tokens);


/*
 * refill_call.c: asks Redis for the counters that wait, and ahead of others;
 * async: tells. If memory is out, those that wait get their answers now.
 */
void ngx_rl_refill_call(ngx_rl_refill_t *refill);

/* Tokens go back to Redis, and to what stands in for it. */
void ngx_rl_refill_give(ngx_rl_refill_t *refill, uint32_t tokens,
    uint64_t age_us);

/* A counter that waits gets no answer from Redis. */
void ngx_rl_refill_fail(ngx_rl_counter_t *counter, ngx_rl_redis_status_e status,
    ngx_msec_t wait_ms);

/* A counter waits no more. */
void ngx_rl_refill_leave(ngx_rl_counter_t *counter);

#endif /* NGX_RL_REFILL_H_INCLUDED */

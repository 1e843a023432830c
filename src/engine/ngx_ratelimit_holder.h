/*
 * Holders: in each worker, its part in a counter's lease. Of holder.c and
 * holder_ask.c alone.
 *
 * A holder is heap memory, made when a worker first has to ask for a counter,
 * and freed by its sweep, every 100 ms, when there is nothing more to do. What
 * Redis is asked is heap memory too, and outlives its requests: a reply that
 * comes when nobody waits any more still fills the lease.
 */

#ifndef NGX_RATELIMIT_HOLDER_H_INCLUDED
#define NGX_RATELIMIT_HOLDER_H_INCLUDED

#include "ngx_ratelimit_backend.h"
#include "ngx_ratelimit_policy.h"

/* of all holders of a limiter in this worker */
typedef struct {
    ngx_ratelimit_limiter_t     *limiter;
    ngx_log_t                   *log;
    ngx_rbtree_t                 tree;
    ngx_rbtree_node_t            sentinel;
    ngx_queue_t                  sweeps;     /* holders, the next first */
    ngx_queue_t                  waits;      /* counters, the oldest first */
    ngx_event_t                  sweep;
    ngx_event_t                  wait;
    ngx_uint_t                   rtt;        /* sixteenths of a ms */
} ngx_ratelimit_holders_t;

struct ngx_ratelimit_holder_s {
    ngx_rbtree_node_t            node;       /* its key: id.lo */
    ngx_queue_t                  queue;      /* in sweeps */
    ngx_msec_t                   sweep_ms;
    ngx_ratelimit_holders_t     *holders;
    ngx_ratelimit_id_t           id;         /* of the lease */

    ngx_queue_t                  waiting;    /* counters */
    uint64_t                     queued;     /* their cost */
    uint32_t                     owed;       /* of async: spent without a lease,
                                                not debited yet */
    uint32_t                     gave;       /* of async: given back since the
                                                last call was made */
    void                        *ask;        /* they wait for this one */
    ngx_queue_t                  asks;       /* those without a last result */
    unsigned                     note:1;     /* some are of fail_mode=local */

    /* what Redis is asked for, in memory of its own; it uses the rule's policy
       as long as it lives */
    ngx_ratelimit_counter_t      counter;
    ngx_ratelimit_client_t       client;
    ngx_ratelimit_limit_t        limit;
};

typedef struct {
    ngx_queue_t                  queue;
    ngx_ratelimit_holder_t      *holder;
    ngx_ratelimit_lease_ask_t    ask;
    uint32_t                     head;       /* cost of the first that waits */
    uint32_t                     debt;       /* of async: the lease's of want */
    uint64_t                     asked_us;
} ngx_ratelimit_holder_ask_t;


#define ngx_ratelimit_holder_async(holder)                                    \
    ((holder)->counter.rule->sync == NGX_RATELIMIT_SYNC_ASYNC)


/*
 * holder_ask.c: asks Redis for those that wait, and ahead of others; of async,
 * debits. Where memory is out those that wait get their answers now.
 */
void ngx_ratelimit_holder_ask(ngx_ratelimit_holder_t *holder);

/* Tokens go back to Redis, and to what stands in for it. */
void ngx_ratelimit_holder_give(ngx_ratelimit_holder_t *holder,
    uint32_t tokens, uint64_t age_us);

/* A counter that waits has its answer: Redis', or what it gets instead. */
void ngx_ratelimit_holder_complete(ngx_ratelimit_counter_t *counter);

#endif /* NGX_RATELIMIT_HOLDER_H_INCLUDED */

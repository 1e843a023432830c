/*
 * Which Redis node has which hash slots. In a Sentinel block the master has
 * them all.
 */

#ifndef NGX_RL_REDIS_TOPOLOGY_H_INCLUDED
#define NGX_RL_REDIS_TOPOLOGY_H_INCLUDED

#include "ngx_rl_redis_call.h"
#include "ngx_rl_slot_map.h"

/* The last question for a map that this worker took on. */
typedef enum {
    NGX_RL_REDIS_ANSWERED = 0,
    NGX_RL_REDIS_TURN,     /* it has the right to ask and waits for a
                              connection */
    NGX_RL_REDIS_ASKED     /* it has asked, or lost the right */
} ngx_rl_redis_question_e;

typedef struct {
    ngx_rl_redis_node_t   **slots;     /* NULL for a single server */
    uint64_t                number;    /* the gateway's map last taken */

    ngx_event_t             timer;
    ngx_rl_redis_question_e state;
    ngx_rl_redis_call_t    *question;  /* waited for */
    uint64_t                right_ms;  /* the right to ask, as taken or kept
                                          last; 0: given back */
    uint64_t                asked_ms;  /* when this worker asked */
    uint64_t                wanted_ms; /* what was asked later will do */
    uint64_t                answered_ms; /* the last that was noticed */
    uint64_t                due_ms;    /* asks no sooner */
    ngx_uint_t              sentinel;  /* which one is asked */

    ngx_uint_t                     uncovered; /* slots without a node */

    unsigned                       mapped:1;  /* slots is known */
    unsigned                       wanted:1;  /* something may have changed */
    unsigned                       moved:1;   /* MOVED changed slots */
} ngx_rl_redis_topology_t;


/*
 * Takes the map that the gateway has, or asks for the first one. Returns
 * NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_rl_redis_topology_start(ngx_rl_redis_client_t *client);

/* Takes the gateway's map where that is another one: before slots is read. */
void ngx_rl_redis_topology_look(ngx_rl_redis_client_t *client);

/* The timer's work. */
void ngx_rl_redis_topology_tick(ngx_rl_redis_client_t *client);

/* Sets the timer. It is sooner where calls wait for the first map. */
void ngx_rl_redis_topology_wait(ngx_rl_redis_client_t *client);

/* Something changed: a map is wanted soon, one a second for the gateway. */
void ngx_rl_redis_refresh(ngx_rl_redis_client_t *client);

/* Call it once a second: it asks a Cluster for its map each minute. */
void ngx_rl_redis_topology_renew(ngx_rl_redis_client_t *client);

/* node's connection is UP: maybe it was waited for, to be asked. */
void ngx_rl_redis_topology_up(ngx_rl_redis_node_t *node);

/*
 * Takes the reply to the question from node: a map, which all workers get, or
 * nothing. current: it is the one last asked by this worker.
 */
void ngx_rl_redis_topology_reply(ngx_rl_redis_node_t *node, ngx_uint_t current);

/*
 * The node that "MOVED <slot> <host>:<port>" or "ASK ..." from node names, NULL
 * where it names none; slot is set.
 */
ngx_rl_redis_node_t *ngx_rl_redis_redirect(
    ngx_rl_redis_node_t *node, ngx_uint_t *slot);

/* Makes node (or NULL) the owner of a hash slot. */
void ngx_rl_redis_slot_set(ngx_rl_redis_client_t *client, ngx_uint_t slot,
    ngx_rl_redis_node_t *node);

#endif /* NGX_RL_REDIS_TOPOLOGY_H_INCLUDED */

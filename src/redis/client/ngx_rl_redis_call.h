/*
 * A call's life: how it is made, its way to a node, its deadline, its handler.
 */

#ifndef NGX_RL_REDIS_CALL_H_INCLUDED
#define NGX_RL_REDIS_CALL_H_INCLUDED

#include "ngx_rl_redis_node.h"

typedef enum {
    /* the check script, */
    NGX_RL_REDIS_CHECK = 0,  /* for a request, maybe gone: its end counts for
                                the breaker */
    NGX_RL_REDIS_UNASKED,  /* for nobody, as giving back */
    NGX_RL_REDIS_UNDO,     /* and sent whatever the breaker says */
    NGX_RL_REDIS_HEARTBEAT,
    NGX_RL_REDIS_PROBE,    /* its breaker is open */

    NGX_RL_REDIS_CONTROL,  /* any command of control.c; a worker learns how
                              what stands above ends */

    /* commands of this layer, each of one connection */
    NGX_RL_REDIS_LISTEN,   /* SUBSCRIBE: all that comes answers it */
    NGX_RL_REDIS_PING,     /* behind that */
    NGX_RL_REDIS_ASKING,   /* before a call that was answered ASK */
    NGX_RL_REDIS_AUTH,
    NGX_RL_REDIS_REAUTH,   /* the same on an open connection */
    NGX_RL_REDIS_SETNAME,  /* CLIENT SETNAME, whatever it answers */
    NGX_RL_REDIS_MYID,     /* CLUSTER MYID: see node_known() */
    NGX_RL_REDIS_SELECT,
    NGX_RL_REDIS_LOAD,     /* SCRIPT LOAD */
    NGX_RL_REDIS_SLOTS,    /* CLUSTER SLOTS */
    NGX_RL_REDIS_MASTER    /* SENTINEL GET-MASTER-ADDR-BY-NAME */
} ngx_rl_redis_kind_e;


typedef enum {
    NGX_RL_REDIS_MADE = 0, /* commands stay so */
    NGX_RL_REDIS_WAITED,   /* in client->deadlines */
    NGX_RL_REDIS_LEFT,     /* its deadline has passed, or its breaker has
                              opened: its reply comes late, or never */
    NGX_RL_REDIS_DONE      /* in client->done */
} ngx_rl_redis_life_e;


struct ngx_rl_redis_call_s {
    ngx_rl_redis_request_t    request;   /* its queue: of a connection, or of
                                            the client */
    ngx_queue_t               wait;      /* in client->deadlines */
    ngx_rl_redis_client_t    *client;
    ngx_rl_redis_node_t      *node;      /* whose queue it is in */
    ngx_rl_redis_place_t     *place;     /* its breaker hears how the call
                                            ended */

    ngx_rl_redis_handler_pt   handler;
    void                     *data;

    ngx_msec_t                       deadline_ms;
    ngx_msec_t                       wait_ms;   /* DONE: of the result */
    ngx_uint_t                       slot;      /* in a cluster */

    ngx_rl_redis_kind_e       kind;
    ngx_rl_redis_life_e       life;
    ngx_rl_redis_status_e     status;    /* DONE: of the result */

    unsigned                         late:1;    /* see ngx_rl_redis.h */
    unsigned                         asking:1;  /* ASKING goes before it */
    unsigned                         reloaded:1; /* had its NOSCRIPT here */
    unsigned                         delayed:1; /* its deadline stays: it had
                                                   TRYAGAIN, or was written
                                                   late and has another one */
    unsigned                         pooled:1;  /* size fits the free list */
    unsigned                         redirects:4;
};

/* the module's own: no worker stays for it, no breaker and count knows of it */
#define ngx_rl_redis_call_quiet(call)                                         \
    ((call)->kind == NGX_RL_REDIS_HEARTBEAT                                   \
     || (call)->kind == NGX_RL_REDIS_CONTROL)

#define ngx_rl_redis_call_of(q)                                               \
    ((ngx_rl_redis_call_t *)                                                  \
     ngx_queue_data(q, ngx_rl_redis_request_t, queue))


/*
 * A call with len bytes of text, not in any queue. Returns NULL when memory
 * is out. Freed by call_free, or through call_finish or call_fail.
 */
ngx_rl_redis_call_t *ngx_rl_redis_call_new(ngx_rl_redis_client_t *client,
    ngx_rl_redis_kind_e kind, size_t len);

/* The same with a whole command as its text: the arguments are copied. */
ngx_rl_redis_call_t *ngx_rl_redis_command_new(ngx_rl_redis_client_t *client,
    ngx_rl_redis_kind_e kind, const ngx_str_t *args, ngx_uint_t nargs);

/* The same, put into the node's queue. NULL: memory is out. */
ngx_rl_redis_call_t *ngx_rl_redis_command(ngx_rl_redis_node_t *node,
    ngx_rl_redis_kind_e kind, const ngx_str_t *args, ngx_uint_t nargs);

/* Puts a call into the node's queue, and takes it out. */
void ngx_rl_redis_call_append(ngx_rl_redis_call_t *call,
    ngx_rl_redis_node_t *node);
void ngx_rl_redis_call_remove(ngx_rl_redis_call_t *call);

/* Lets the call wait for its deadline from now on. */
void ngx_rl_redis_call_wait(ngx_rl_redis_call_t *call);

/* Frees a call that is in no queue but, maybe, client->deadlines. */
void ngx_rl_redis_call_free(ngx_rl_redis_call_t *call);

/* Frees the call and calls its handler, now: never from inside eval. */
void ngx_rl_redis_call_finish(ngx_rl_redis_call_t *call,
    const ngx_rl_redis_result_t *result);

/*
 * The same without values, later in this turn of the event loop. For the
 * breaker the call has failed.
 */
void ngx_rl_redis_call_fail(ngx_rl_redis_call_t *call,
    ngx_rl_redis_status_e status);

/*
 * Calls the handler of a call that nobody shall wait for any more. One that
 * was written timed out; it stays in its connection's queue until its reply
 * comes, and so does its handler where that is of use late. Any other did not
 * run and never will: it ends with that status.
 */
void ngx_rl_redis_call_leave(ngx_rl_redis_call_t *call,
    ngx_rl_redis_status_e status);

/* The client's events. */
void ngx_rl_redis_deadline_handler(ngx_event_t *ev);
void ngx_rl_redis_expire_handler(ngx_event_t *ev);
void ngx_rl_redis_done_handler(ngx_event_t *ev);


/* eval.c */

/* As ngx_rl_redis_eval(), but that the call is not started yet. */
ngx_rl_redis_call_t *ngx_rl_redis_eval_new(ngx_rl_redis_client_t *client,
    ngx_rl_redis_kind_e kind, const ngx_rl_redis_eval_t *eval);


/* route.c */

/* Lets the call wait for its deadline, and sends it. handler may be NULL. */
void ngx_rl_redis_call_start(ngx_rl_redis_call_t *call,
    ngx_rl_redis_handler_pt handler, void *data);

/* Sends the call to node, where its breaker lets it. */
void ngx_rl_redis_call_send(ngx_rl_redis_call_t *call,
    ngx_rl_redis_node_t *node);

/* The same whatever the breaker says; it fails where node is DOWN. */
void ngx_rl_redis_call_queue(ngx_rl_redis_call_t *call,
    ngx_rl_redis_node_t *node);

/* Sends the call once more in 5 ms. */
void ngx_rl_redis_again(ngx_rl_redis_call_t *call);

/* There may be a map now: sends the calls that waited for it. */
void ngx_rl_redis_unmapped_route(ngx_rl_redis_client_t *client);

/* The client's events: TRYAGAIN is over, the topology's timer. */
void ngx_rl_redis_again_handler(ngx_event_t *ev);
void ngx_rl_redis_topology_handler(ngx_event_t *ev);

#endif /* NGX_RL_REDIS_CALL_H_INCLUDED */

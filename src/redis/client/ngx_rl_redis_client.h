/*
 * A worker's client of one block: what its calls and nodes have in common.
 */

#ifndef NGX_RL_REDIS_CLIENT_H_INCLUDED
#define NGX_RL_REDIS_CLIENT_H_INCLUDED

#include "ngx_rl_redis_call.h"
#include "ngx_rl_redis_control.h"
#include "ngx_rl_redis_topology.h"

/* A user of a worker, for Redis or for Sentinels. */
typedef struct {
    ngx_str_t                      password;  /* heap; empty: no AUTH */
    ngx_uint_t                     version;   /* of password */
    const ngx_str_t               *username;  /* of the configuration, */
    const ngx_str_t               *file;      /* as this */
    unsigned                       read:1;    /* file, at least once */
} ngx_rl_redis_login_t;


struct ngx_rl_redis_client_s {
    ngx_rl_redis_t         *redis;
    ngx_log_t              *log;       /* the cycle's */
    const ngx_rl_redis_owner_t  *owner;   /* of its connections */

    /* event ident: after 3 pointers, as in ngx_connection_t */
    ngx_socket_t                   fd;

    ngx_rl_redis_net_t      net;
    ngx_queue_t                    nodes;
    ngx_uint_t                     nnodes;
    ngx_msec_t                     timeout;   /* a call waits no longer */

    ngx_queue_t                    deadlines; /* calls, the earliest first */
    ngx_uint_t                     waiting;   /* of them, of requests */
    ngx_event_t                    deadline;
    ngx_event_t                    expire_event;
    unsigned                       looked:1;  /* since a deadline passed */
    unsigned                       control:1; /* for what is no check */

    ngx_queue_t                    done;      /* failed, handlers to call */
    ngx_event_t                    done_event;

    ngx_queue_t                    again;     /* TRYAGAIN, oldest first */
    ngx_event_t                    again_timer;

    ngx_event_t             upkeep;    /* timer */
    ngx_rl_redis_call_t    *heartbeat; /* that has no answer yet */
    ngx_msec_t              heartbeat_ms;  /* when it was sent */
    unsigned                heartbeat_failed:1;  /* the last one */

    ngx_event_t             release_event;
    uint64_t                released;  /* shared->opened at the last */
    ngx_rl_redis_status_e   failed;    /* of a call, the last one */
    uint32_t                jitter;    /* drawn when it failed */

    ngx_rl_redis_topology_t  topology;
    ngx_queue_t             unmapped;  /* waiting for the first map */
    ngx_rl_redis_place_t   *map_place; /* their breaker's */

    ngx_queue_t                    free;      /* calls */
    ngx_uint_t                     nfree;

    /* of the breakers, by their places */
    ngx_rl_breaker_good_t   good[NGX_RL_REDIS_PLACES];

    uint64_t                name;      /* the last one given */
    size_t                  evalsha_len;
    u_char                  evalsha[NGX_RL_REDIS_BULK(7)
                                    + NGX_RL_REDIS_BULK(40)];
    ngx_rl_redis_login_t    logins[2]; /* Redis', Sentinels': of the client of
                                          checks alone */

    /* of the control client alone */

    ngx_queue_t             listeners;
    ngx_event_t             listens;      /* timer */
    ngx_rl_redis_node_t    *subscriber;   /* NULL: none yet */
    ngx_uint_t              slot;         /* of the first listener's key */
    ngx_msec_t              pinged_ms;
    ngx_msec_t              listens_ms;   /* connects no sooner */
    unsigned                stale:1;      /* subscriber has other channels, or
                                             was refused */
    unsigned                connected:1;  /* it has a way to Redis */
};


/*
 * Connects to the server, or begins to search for the slot map. Returns NGX_OK,
 * or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_redis_client_connect(ngx_rl_redis_client_t *client);



/* breaker.c */

/*
 * Asks the breaker of place (or NULL: there is none). Returns whether to send
 * the call; else it was failed. credit is of the node.
 */
ngx_uint_t ngx_rl_redis_breaker_ask(ngx_rl_redis_call_t *call,
    ngx_rl_redis_place_t *place, uint32_t *credit);

/*
 * Reports how a call ended that a breaker let pass, or a probe. For other
 * calls, and the second time, it does nothing. status is for the log.
 */
void ngx_rl_redis_breaker_report(ngx_rl_redis_call_t *call,
    ngx_rl_breaker_outcome_e outcome, ngx_rl_redis_status_e status);

/*
 * The same of a call whose deadline has passed, of one that node could not
 * send, and of one whose connection broke: that says nothing of the node.
 */
void ngx_rl_redis_breaker_expired(ngx_rl_redis_call_t *call);
void ngx_rl_redis_breaker_unsent(ngx_rl_redis_call_t *call,
    ngx_rl_redis_node_t *node);

#define ngx_rl_redis_breaker_cut(call)                                        \
    (call)->place = ((call)->kind == NGX_RL_REDIS_PROBE)                      \
                    ? (call)->place : NULL

/* node has replied; GOOD: to what shows that it does its work. */
void ngx_rl_redis_breaker_heard(ngx_rl_redis_node_t *node,
    ngx_rl_breaker_reply_e reply);

/* Once a second, and before a probe: what has no calls changes, too. */
void ngx_rl_redis_breaker_settle(ngx_rl_redis_node_t *node);

/*
 * A call on node's connection has timed out: breaks that where it has been
 * silent for long while the node answered other workers.
 */
void ngx_rl_redis_breaker_doubt(ngx_rl_redis_node_t *node);

/* The call was answered by something that is not about the node. */
void ngx_rl_redis_breaker_neutral(ngx_rl_redis_call_t *call);

/*
 * node's connection broke, or could not be made, which opens the breaker where
 * no worker has one; and whether since then the breaker has closed: another
 * worker has found the node well.
 */
void ngx_rl_redis_breaker_lost(ngx_rl_redis_node_t *node, ngx_uint_t was_up);
ngx_uint_t ngx_rl_redis_breaker_recovered(ngx_rl_redis_node_t *node);

/* There is a slot map: nobody waits for the first one any more. */
void ngx_rl_redis_breaker_mapped(ngx_rl_redis_client_t *client);

/*
 * The posted event: releases calls that wait for a node whose breaker is open.
 */
void ngx_rl_redis_release_handler(ngx_event_t *ev);


/* auth.c */

/*
 * The passwords of the client of checks: read again where their files have
 * changed. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_redis_auth_start(ngx_rl_redis_client_t *client);
void ngx_rl_redis_auth_stop(ngx_rl_redis_client_t *client);

/* Looks at the files, once a second. Open connections log in again. */
void ngx_rl_redis_auth_look(ngx_rl_redis_client_t *client);

/* Queues AUTH where there is a password; NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_redis_auth_send(ngx_rl_redis_node_t *node,
    ngx_rl_redis_kind_e kind);

/* Has a connection log in again, where there is a new password since. */
void ngx_rl_redis_auth_renew(ngx_rl_redis_node_t *node);

/* The user that a connection is of. */
#define ngx_rl_redis_login(node)                                              \
    (&(node)->client->redis->client->logins[                                  \
         (node)->role == NGX_RL_REDIS_ASKS_MASTER])


/* session.c */

/* the owner of a client's connections */
extern const ngx_rl_redis_owner_t  ngx_rl_redis_session;

/* Queues SCRIPT LOAD and sets loading, unless memory is out. */
void ngx_rl_redis_session_load(ngx_rl_redis_node_t *node);

/*
 * Frees a node with its calls: no handler is called. Not from inside what its
 * connection calls.
 */
void ngx_rl_redis_session_free(ngx_rl_redis_node_t *node);


/* reply.c */

/*
 * Takes len bytes read from conn and answers the calls that they answer.
 * Returns NULL, or why the connection must be closed. It may have been closed
 * when this returns (conn->connection is NULL then).
 */
const char *ngx_rl_redis_reply_feed(ngx_rl_redis_conn_t *conn, u_char *data,
    size_t len);

/* Breaks node's connection: its reply is an error. */
void ngx_rl_redis_reply_setup(ngx_rl_redis_node_t *node, const char *command);


/* control.c */

/* The timer of the connection that listens. */
void ngx_rl_redis_subscriber_handler(ngx_event_t *ev);

/* Queues the first command of a node that listens; NGX_ERROR: no memory. */
ngx_int_t ngx_rl_redis_control_subscribe(ngx_rl_redis_node_t *node);

/* node's reply to a LISTEN call, which is in no queue and stays the first */
void ngx_rl_redis_control_heard(ngx_rl_redis_node_t *node,
    ngx_rl_redis_call_t *call);

#endif /* NGX_RL_REDIS_CLIENT_H_INCLUDED */

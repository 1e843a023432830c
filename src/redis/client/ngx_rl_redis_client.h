/*
 * A worker's client of one block: its nodes, its calls, the map of hash slots,
 * and what they have in common.
 */

#ifndef NGX_RL_REDIS_CLIENT_H_INCLUDED
#define NGX_RL_REDIS_CLIENT_H_INCLUDED

#include "ngx_rl_redis.h"
#include "ngx_rl_redis_codec.h"
#include "ngx_rl_redis_conn.h"
#include "ngx_rl_redis_shared.h"
#include "ngx_rl_slot_map.h"

#define NGX_RL_REDIS_MAX_NODES  1024     /* of one client */

/* why a connection breaks */
#define NGX_RL_REDIS_STRANGER  "another server is at its address"

typedef struct ngx_rl_redis_node_s  ngx_rl_redis_node_t;


/* node.c */

/* The purpose of a connection. */
typedef enum {
    NGX_RL_REDIS_DATA = 0,    /* calls */
    NGX_RL_REDIS_ASKS_MASTER, /* to a sentinel: the question for the master */
    NGX_RL_REDIS_LISTENS      /* to messages of a channel */
} ngx_rl_redis_role_e;

/*
 * A Redis node, or a sentinel, as one worker sees it: its connection, its place
 * in shared memory, and the calls on their way.
 */
struct ngx_rl_redis_node_s {
    ngx_rl_redis_conn_t     conn;
    ngx_queue_t             queue;     /* in client->nodes */
    ngx_rl_redis_client_t  *client;
    ngx_rl_redis_role_e     role;

    void                   *reader;    /* from open to closed */
    ngx_rl_redis_reply_t    reply;

    ngx_rl_redis_place_t   *place;     /* of DATA and LISTENS */
    uint32_t                closed;    /* place's, when conn broke */
    uint32_t                credit;    /* for its breaker */

    ngx_uint_t                     owned;     /* hash slots in the map */
    u_char                         map_id[NGX_RL_SLOT_MAP_ID];
                                              /* its id, by the map, and */
    u_char                         own_id[NGX_RL_SLOT_MAP_ID];
                                              /* by its connection, which is
                                                 UP; zeros: not known */
    ngx_msec_t                     lost_ms;   /* was UP no more, or began */
    ngx_msec_t                     heard_ms;  /* the last reply */
    uint64_t                       read_us;   /* when what is read now came; 0:
                                                 nobody has asked */
    ngx_msec_t                     used_ms;   /* a sentinel: when asked */
    ngx_uint_t                     login;     /* version of its AUTH */
    unsigned                       loading:1; /* SCRIPT LOAD is queued */
    unsigned                       vain:1;    /* a call waited for it to be UP
                                                 until its deadline */
    unsigned                       stranger:1; /* the ids differ: it takes no
                                                 calls */

    ngx_rl_log_limit_t      lines;           /* where there is no place, */
    _Atomic uint32_t               said;     /* and a hash of the last one */
};


/*
 * The node of a host, made and connected to where there is none: the host's
 * text is copied, addrs are not. Returns NULL when memory is out or there are
 * too many.
 */
ngx_rl_redis_node_t *ngx_rl_redis_node_get(ngx_rl_redis_client_t *client,
    const ngx_rl_redis_host_t *host, ngx_rl_redis_role_e role);

/*
 * Moves *node on to the client's next node, from NULL to the first. Returns 0
 * behind the last.
 */
ngx_uint_t ngx_rl_redis_node_next(ngx_rl_redis_client_t *client,
    ngx_rl_redis_node_t **node);

/* Closes and frees. Its queue has no requests any more. */
void ngx_rl_redis_node_free(ngx_rl_redis_node_t *node);

/*
 * Keeps the places of the client's nodes, and finds them again where they were
 * given away. Once a second.
 */
void ngx_rl_redis_nodes_keep(ngx_rl_redis_client_t *client);

/*
 * An id of node is known. If the map has another one than the server at its
 * address, this is no node of the Cluster: its connection breaks. Until an id
 * is another one, connections take no calls and break after a second: meanwhile
 * they may be asked for a new map.
 */
void ngx_rl_redis_node_known(ngx_rl_redis_node_t *node);

/* node's connection is up: the gateway is connected to it, for a while. */
void ngx_rl_redis_node_up(ngx_rl_redis_node_t *node);

/*
 * Logs a line about a block, unless limit has had one within interval_ms. Its
 * end says how many lines were suppressed.
 */
void ngx_rl_redis_log(ngx_rl_redis_client_t *client, ngx_rl_log_limit_t *limit,
    ngx_msec_t interval_ms, ngx_uint_t level, ngx_err_t err, const char *fmt,
    ...);

/*
 * Logs such a line of level error about a node: "<what><node><how><why>". All
 * workers together write one line of each kind a second. One that says the same
 * again comes once in ten seconds while the breaker is open, and once a minute
 * of a Sentinel.
 */
void ngx_rl_redis_node_log(ngx_rl_redis_node_t *node, ngx_rl_redis_line_e line,
    ngx_err_t err, const char *what, const char *how, const ngx_str_t *why);

/* The text of node's reply, an error, as the log may have it; partly in buf. */
ngx_str_t ngx_rl_redis_node_error(ngx_rl_redis_node_t *node,
    u_char buf[NGX_RL_REDIS_ERROR_TEXT]);

/* Logs that a command was answered with this error. */
void ngx_rl_redis_node_log_reply(ngx_rl_redis_node_t *node,
    const char *command);

#define ngx_rl_redis_node_of(q)                                               \
    ngx_queue_data(q, ngx_rl_redis_node_t, queue)


/* call.c */

typedef enum {
    /* the check script, */
    NGX_RL_REDIS_CHECK = 0,  /* for a request, maybe gone: its end counts for
                                the breaker */
    NGX_RL_REDIS_UNASKED,  /* for nobody, as giving back */
    NGX_RL_REDIS_UNDO,     /* and sent whatever the breaker says */
    NGX_RL_REDIS_HEARTBEAT,
    NGX_RL_REDIS_PROBE,    /* its breaker is open */

    NGX_RL_REDIS_CONTROL,  /* any of the control client; a worker learns how
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

/* Takes a call out of its node's queue. */
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

/*
 * Reports how a call ended that a breaker let pass, or a probe. For other
 * calls, and the second time, it does nothing. status is for the log.
 */
void ngx_rl_redis_breaker_report(ngx_rl_redis_call_t *call,
    ngx_rl_breaker_outcome_e outcome, ngx_rl_redis_status_e status);

/*
 * The same of a call that node could not send, and of one whose connection
 * broke: that says nothing of the node.
 */
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

/* The call was answered by something that is not about the node. */
void ngx_rl_redis_breaker_neutral(ngx_rl_redis_call_t *call);

/*
 * node's connection broke, or could not be made, which opens the breaker where
 * no worker has one.
 */
void ngx_rl_redis_breaker_lost(ngx_rl_redis_node_t *node, ngx_uint_t was_up);

/*
 * The posted event: releases calls that wait for a node whose breaker is open.
 */
void ngx_rl_redis_release_handler(ngx_event_t *ev);


/* eval.c */

/* As ngx_rl_redis_eval(), but that the call is not started yet. */
ngx_rl_redis_call_t *ngx_rl_redis_eval_new(ngx_rl_redis_client_t *client,
    ngx_rl_redis_kind_e kind, const ngx_rl_redis_eval_t *eval);


/* topology.c */

/* The last question for a map that this worker took on. */
typedef enum {
    NGX_RL_REDIS_ANSWERED = 0,
    NGX_RL_REDIS_TURN,     /* it has the right to ask and waits for a
                              connection */
    NGX_RL_REDIS_ASKED     /* it has asked, or lost the right */
} ngx_rl_redis_question_e;

/*
 * Which Redis node has which hash slots. In a Sentinel block the master has
 * them all.
 */
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


/* client.c */

/* Queues the first command of a node that listens; NGX_ERROR: no memory. */
ngx_int_t ngx_rl_redis_control_subscribe(ngx_rl_redis_node_t *node);

/* node's reply to a LISTEN call, which is in no queue and stays the first */
void ngx_rl_redis_control_heard(ngx_rl_redis_node_t *node,
    ngx_rl_redis_call_t *call);

#endif /* NGX_RL_REDIS_CLIENT_H_INCLUDED */

/*
 * A Redis node, or a sentinel, as one worker sees it: its connection, its place
 * in shared memory, and the calls on their way.
 */

#ifndef NGX_RL_REDIS_NODE_H_INCLUDED
#define NGX_RL_REDIS_NODE_H_INCLUDED

#include "ngx_rl_redis_codec.h"
#include "ngx_rl_redis_conn.h"
#include "ngx_rl_redis_shared.h"
#include "ngx_rl_slot_map.h"

#define NGX_RL_REDIS_MAX_NODES  1024     /* of one client */

/* why a connection breaks */
#define NGX_RL_REDIS_STRANGER  "another server is at its address"

typedef struct ngx_rl_redis_node_s  ngx_rl_redis_node_t;

/* The purpose of a connection. */
typedef enum {
    NGX_RL_REDIS_DATA = 0,    /* calls */
    NGX_RL_REDIS_ASKS_MASTER, /* to a sentinel: the question for the master */
    NGX_RL_REDIS_LISTENS      /* to messages of a channel */
} ngx_rl_redis_role_e;

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

#endif /* NGX_RL_REDIS_NODE_H_INCLUDED */

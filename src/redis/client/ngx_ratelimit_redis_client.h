/*
 * A worker's client of one block: what its calls and nodes have in common.
 */

#ifndef NGX_RATELIMIT_REDIS_CLIENT_H_INCLUDED
#define NGX_RATELIMIT_REDIS_CLIENT_H_INCLUDED

#include "ngx_ratelimit_redis_auth.h"
#include "ngx_ratelimit_redis_control.h"
#include "ngx_ratelimit_redis_node.h"
#include "ngx_ratelimit_redis_topology.h"

struct ngx_ratelimit_redis_client_s {
    ngx_ratelimit_redis_t         *redis;
    ngx_log_t                     *log;       /* the cycle's */

    /* whose this is, in a part of its own; NULL: it is that of checks */
    ngx_ratelimit_redis_control_t *control;

    /* event ident: after 3 pointers, as in ngx_connection_t */
    ngx_socket_t                   fd;

    ngx_ratelimit_redis_net_t      net;
    const ngx_ratelimit_redis_owner_t  *owner;   /* of its connections */
    ngx_queue_t                    nodes;
    ngx_uint_t                     nnodes;
    ngx_msec_t                     timeout;   /* a call waits no longer */

    ngx_queue_t                    deadlines; /* calls, the earliest first */
    ngx_uint_t                     waiting;   /* of them, with a handler */
    ngx_event_t                    deadline;
    ngx_event_t                    expire_event;
    unsigned                       looked:1;  /* since a deadline passed */

    ngx_queue_t                    done;      /* failed, handlers to call */
    ngx_event_t                    done_event;

    ngx_queue_t                    again;     /* TRYAGAIN, oldest first */
    ngx_event_t                    again_timer;

    ngx_event_t                    heartbeat_timer;
    ngx_ratelimit_redis_call_t    *heartbeat; /* that has no answer yet */
    unsigned                       heartbeat_failed:1;  /* the last one */

    ngx_event_t                    probe_timer;
    ngx_event_t                    release_event;
    uint64_t                       released;  /* shared->opened at the last */
    ngx_ratelimit_redis_status_e   failed;    /* of a call, the last one */
    uint32_t                       jitter;    /* drawn when it failed */

    ngx_ratelimit_redis_topology_t  topology;
    ngx_queue_t                    unmapped;  /* waiting for the first map */
    ngx_ratelimit_redis_place_t   *map_place; /* their breaker's */

    ngx_queue_t                    free;      /* calls */
    ngx_uint_t                     nfree;

    uint64_t                       name;      /* the last one given */
    size_t                         evalsha_len;
    u_char                         evalsha[NGX_RATELIMIT_REDIS_BULK(7)
                                           + NGX_RATELIMIT_REDIS_BULK(40)];
    ngx_ratelimit_redis_login_t    logins[2]; /* Redis', Sentinels': of the
                                                 client of checks alone */
    ngx_str_t                      channel;   /* to subscribe to; empty: none,
                                                 it has calls */
};


/*
 * A client without any connection; of control, or of checks where that is NULL.
 * Returns NULL when memory is out. Freed by client_free, with its connections;
 * no handler is called.
 */
ngx_ratelimit_redis_client_t *ngx_ratelimit_redis_client_new(
    ngx_ratelimit_redis_t *redis, ngx_cycle_t *cycle,
    ngx_ratelimit_redis_control_t *control);
void ngx_ratelimit_redis_client_free(ngx_ratelimit_redis_client_t *client);

/*
 * Connects to the server, or begins to search for the slot map. Returns NGX_OK,
 * or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_redis_client_connect(
    ngx_ratelimit_redis_client_t *client);


/* control.c: node's reply to a LISTEN call, which is in no queue and stays the
   first */
void ngx_ratelimit_redis_control_heard(ngx_ratelimit_redis_node_t *node,
    ngx_ratelimit_redis_call_t *call);

#endif /* NGX_RATELIMIT_REDIS_CLIENT_H_INCLUDED */

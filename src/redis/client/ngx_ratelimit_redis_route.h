/*
 * A call's way to a node.
 */

#ifndef NGX_RATELIMIT_REDIS_ROUTE_H_INCLUDED
#define NGX_RATELIMIT_REDIS_ROUTE_H_INCLUDED

#include "ngx_ratelimit_redis_call.h"

/* Lets the call wait for its deadline, and sends it. handler may be NULL. */
void ngx_ratelimit_redis_call_start(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_handler_pt handler, void *data);

/* Sends the call to node, where its breaker lets it. */
void ngx_ratelimit_redis_call_send(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_node_t *node);

/* The same whatever the breaker says; it fails where node is DOWN. */
void ngx_ratelimit_redis_call_queue(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_node_t *node);

/* Sends the call once more in 5 ms. */
void ngx_ratelimit_redis_again(ngx_ratelimit_redis_call_t *call);

/* There may be a map now: sends the calls that waited for it. */
void ngx_ratelimit_redis_unmapped_route(ngx_ratelimit_redis_client_t *client);

/* The client's events: TRYAGAIN is over, the topology's timer. */
void ngx_ratelimit_redis_again_handler(ngx_event_t *ev);
void ngx_ratelimit_redis_topology_handler(ngx_event_t *ev);

#endif /* NGX_RATELIMIT_REDIS_ROUTE_H_INCLUDED */

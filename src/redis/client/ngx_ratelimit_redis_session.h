/* The owner of a node's connection. */

#ifndef NGX_RATELIMIT_REDIS_SESSION_H_INCLUDED
#define NGX_RATELIMIT_REDIS_SESSION_H_INCLUDED

#include "ngx_ratelimit_redis_node.h"

/* the owner of a client's connections */
extern const ngx_ratelimit_redis_owner_t  ngx_ratelimit_redis_session;

/* Queues SCRIPT LOAD and sets loading, unless memory is out. */
void ngx_ratelimit_redis_session_load(ngx_ratelimit_redis_node_t *node);

/*
 * Frees a node with its calls: no handler is called. Not from inside what its
 * connection calls.
 */
void ngx_ratelimit_redis_session_free(ngx_ratelimit_redis_node_t *node);

#endif /* NGX_RATELIMIT_REDIS_SESSION_H_INCLUDED */

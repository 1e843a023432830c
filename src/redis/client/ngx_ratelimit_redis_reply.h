/* Replies and the calls that they answer. */

#ifndef NGX_RATELIMIT_REDIS_REPLY_H_INCLUDED
#define NGX_RATELIMIT_REDIS_REPLY_H_INCLUDED

#include "ngx_ratelimit_redis_node.h"

/*
 * Takes len bytes read from conn and answers the calls that they answer.
 * Returns NULL, or why the connection must be closed. It may have been closed
 * when this returns (conn->connection is NULL then).
 */
const char *ngx_ratelimit_redis_reply_feed(ngx_ratelimit_redis_conn_t *conn,
    u_char *data, size_t len);

/* Breaks node's connection if its reply is an error. */
void ngx_ratelimit_redis_reply_setup(ngx_ratelimit_redis_node_t *node,
    const char *command);

#endif /* NGX_RATELIMIT_REDIS_REPLY_H_INCLUDED */

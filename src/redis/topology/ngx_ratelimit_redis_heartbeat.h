/*
 * The heartbeat of a gateway, by which a fleet knows how many live.
 */

#ifndef NGX_RATELIMIT_REDIS_HEARTBEAT_H_INCLUDED
#define NGX_RATELIMIT_REDIS_HEARTBEAT_H_INCLUDED

#include "ngx_ratelimit_redis.h"

/* Begins the worker's part in the heartbeat of its gateway. */
void ngx_ratelimit_redis_heartbeat_start(ngx_ratelimit_redis_client_t *client);

#endif /* NGX_RATELIMIT_REDIS_HEARTBEAT_H_INCLUDED */

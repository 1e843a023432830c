/*
 * Probes of breakers.
 */

#ifndef NGX_RATELIMIT_REDIS_PROBE_H_INCLUDED
#define NGX_RATELIMIT_REDIS_PROBE_H_INCLUDED

#include "ngx_ratelimit_redis.h"

/* The timer that sends probes, whether there are requests or not. */
void ngx_ratelimit_redis_probes_start(ngx_ratelimit_redis_client_t *client);

#endif /* NGX_RATELIMIT_REDIS_PROBE_H_INCLUDED */

/*
 * Penalties of a fleet: one worker of each gateway sends the changes of this
 * gateway to Redis, and takes over the changes of other gateways.
 */

#ifndef NGX_RL_PENALTY_SYNC_H_INCLUDED
#define NGX_RL_PENALTY_SYNC_H_INCLUDED

#include "ngx_rl_check.h"

/*
 * A worker begins to serve, and ends, for a limiter of any kind: without Redis
 * or penalties there is nothing to do. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_penalty_sync_begin(ngx_rl_limiter_t *limiter,
    ngx_cycle_t *cycle);
void ngx_rl_penalty_sync_end(ngx_rl_limiter_t *limiter);

#endif /* NGX_RL_PENALTY_SYNC_H_INCLUDED */

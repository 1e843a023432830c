/*
 * The zones of a "ratelimit_peers" block: what this gateway spends of their
 * counters is told the other gateways, and what these spend is charged here.
 */

#ifndef NGX_RL_FLEET_H_INCLUDED
#define NGX_RL_FLEET_H_INCLUDED

#include "ngx_rl_check.h"

#include "ngx_rl_changes.h"
#include "ngx_rl_peers.h"

/* In memory that the workers of a gateway share. */
typedef struct {
    ngx_rl_lock_t          leader;
    ngx_rl_peers_shared_t  peers;
    ngx_rl_changes_t       changes;
} ngx_rl_fleet_shared_t;

struct ngx_rl_fleet_s {
    ngx_rl_peers_t          peers;
    ngx_array_t             limiters;   /* ngx_rl_limiter_t *: its zones */
    ngx_rl_fleet_shared_t  *shared;     /* set before workers start */
    ngx_event_t             tick;       /* each worker's own; cancelable */
    ngx_uint_t              renew_at;   /* the leader's place in changes */
};


/* Declares the shared memory of a block that is read. As ngx_rl_zone_add(). */
ngx_int_t ngx_rl_fleet_add(ngx_conf_t *cf, ngx_rl_fleet_t *fleet, void *tag);

/*
 * The limiter's zone is one of the fleet. NGX_ERROR: memory is out;
 * NGX_DECLINED: messages cannot tell it from another zone, by their names.
 */
ngx_int_t ngx_rl_fleet_join(ngx_rl_fleet_t *fleet, ngx_rl_limiter_t *limiter);

/*
 * Before workers start: the counters of its zones get names that all gateways
 * with the secret and a zone of that name give them.
 */
void ngx_rl_fleet_name(const ngx_rl_fleet_t *fleet);

/* A worker begins to serve, and ends. */
void ngx_rl_fleet_begin(ngx_rl_fleet_t *fleet, ngx_cycle_t *cycle);
void ngx_rl_fleet_end(ngx_rl_fleet_t *fleet);

#endif /* NGX_RL_FLEET_H_INCLUDED */

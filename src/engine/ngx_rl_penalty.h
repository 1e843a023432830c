/*
 * Penalties: a key that is rejected too often, or whose responses fail too
 * often, is penalized for a time.
 *
 * Events of a key are a sliding log in the zone's table, on this gateway alone.
 * Penalized keys have a table of their own.
 */

#ifndef NGX_RL_PENALTY_H_INCLUDED
#define NGX_RL_PENALTY_H_INCLUDED

#include "ngx_rl_check.h"

typedef enum {
    NGX_RL_PENALTY_BAN = 0,
    NGX_RL_PENALTY_CLOSE,     /* and the connection is closed */
    NGX_RL_PENALTY_DELAY,     /* and the answer is held back */
    NGX_RL_PENALTY_ACTIONS,

    /* counted as such are */
    NGX_RL_PENALTY_NONE = NGX_RL_PENALTY_ACTIONS, /* no place */
    NGX_RL_PENALTY_NETWORK,   /* a network's own */
    NGX_RL_PENALTY_COUNTS
} ngx_rl_penalty_action_e;

/* The names of the actions, with NULL behind them. */
extern const char *const  ngx_rl_penalty_actions[];

/* One "ratelimit_penalty". */
typedef struct {
    ngx_str_t                 id;
    ngx_str_t                 key;         /* as written */
    ngx_rl_limiter_t         *limiter;
    ngx_rl_penalty_action_e   action;
    ngx_rl_penalty_time_t     time;
    ngx_rl_limit_t            after;       /* events: a sliding log */
    ngx_array_t              *statuses;    /* ngx_uint_t; NULL: none */
    unsigned                  rejected:1;  /* a rejection is an event */

    /* made by prepare */
    ngx_rl_rule_t             rule;        /* its names, for others */
    ngx_rl_id_t               salt;
    ngx_rl_id_t               event_salt;
    unsigned                  binary:1;    /* by $binary_remote_addr */
    unsigned                  text:1;      /* by $remote_addr */
    unsigned                  address:1;   /* the key has an address */
    uint64_t                  kind;

    void                     *data;        /* the layer above: its key */
} ngx_rl_penalty_t;


/* Completes a penalty. Returns NGX_OK, or NGX_ERROR when memory is out. */
ngx_int_t ngx_rl_penalty_prepare(ngx_rl_penalty_t *penalty, ngx_pool_t *pool);

/*
 * Copies the next row that is not forgotten, *at is 0 at first, and returns its
 * penalty; NULL: there are no more. Rows of a penalty that the configuration
 * does not have, or not any more, are left out.
 */
ngx_rl_penalty_t *ngx_rl_penalty_next(const ngx_rl_limiter_t *limiter,
    uint64_t now_ms, ngx_uint_t *at, ngx_rl_penalized_t *row);

/* How many are under way. */
ngx_uint_t ngx_rl_penalty_active(
    const ngx_rl_limiter_t *limiter, uint64_t now_ms);

/*
 * Until when a key is penalized, and by which penalty: the one that ends last
 * of those that count by a key written as of. address: that of the key, or
 * NULL. NULL: by none.
 */
ngx_rl_penalty_t *ngx_rl_penalty_find(const ngx_rl_limiter_t *limiter,
    const ngx_str_t *of, const ngx_str_t *key,
    const u_char address[NGX_RL_ADDRESS], uint64_t now_ms, uint64_t *until_ms);

/*
 * Names a key in the table of penalized keys. An address of IPv6 has the name
 * of its /64, of which a client may take any address.
 */
ngx_rl_id_t ngx_rl_penalty_id(
    const ngx_rl_penalty_t *penalty, const ngx_str_t *key);

/*
 * The networks of an address, as a row has them. Keys that have an address, and
 * those that have none, do not count together.
 */
uint64_t ngx_rl_penalty_network(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], ngx_uint_t of_address);

/*
 * The network whose own row a penalty that finds its network crowded is: sets
 * made->id, and returns the bits of its prefix.
 */
ngx_uint_t ngx_rl_penalty_crowd(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], ngx_rl_penalized_t *made);

/*
 * Until when a network of the address is penalized, 0: none is, and the bits of
 * its prefix.
 */
uint64_t ngx_rl_penalty_networks(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], uint64_t now_ms, ngx_uint_t *bits);

/* Counts an event of a key. Returns whether the key has had too many now. */
ngx_uint_t ngx_rl_penalty_event(ngx_rl_penalty_t *penalty,
    const ngx_str_t *key);

/*
 * Of a fleet: one worker of each gateway sends the changes of this gateway to
 * Redis, and takes over the changes of other gateways. A worker begins to
 * serve, and ends, for a limiter of any kind: without Redis or penalties there
 * is nothing to do. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_penalty_sync_begin(ngx_rl_limiter_t *limiter,
    ngx_cycle_t *cycle);
void ngx_rl_penalty_sync_end(ngx_rl_limiter_t *limiter);

#endif /* NGX_RL_PENALTY_H_INCLUDED */

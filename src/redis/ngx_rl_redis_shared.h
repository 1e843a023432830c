/*
 * Memory that the workers of a gateway share for one block. Each word is
 * changed by itself, so a worker may die anywhere. Only who publishes a slot
 * map holds a lock, which others do not wait for.
 */

#ifndef NGX_RL_REDIS_SHARED_H_INCLUDED
#define NGX_RL_REDIS_SHARED_H_INCLUDED

#include "ngx_rl_redis.h"

#include "ngx_rl_blob.h"
#include "ngx_rl_breaker.h"
#include "ngx_rl_tally.h"

#include <stdatomic.h>

#define NGX_RL_REDIS_WORKERS     64    /* blocks of counts */
#define NGX_RL_REDIS_PLACES      1024
#define NGX_RL_REDIS_PLACE_NAME  80    /* bytes of it kept */
#define NGX_RL_REDIS_UP_MS       2500  /* a connection is believed */

/* calls that wait for the slot map have a breaker, too; no host is named so */
#define NGX_RL_REDIS_MAP_PLACE   "slot map"

/* lines of level error, limited apart from each other */
typedef enum {
    NGX_RL_REDIS_LINE_BROKEN = 0,
    NGX_RL_REDIS_LINE_REPLY,
    NGX_RL_REDIS_LINE_LISTEN,
    NGX_RL_REDIS_LINES
} ngx_rl_redis_line_e;

/* A Redis node's place. */
typedef struct {
    _Atomic uint64_t               id;        /* of its name; 0: free */
    _Atomic uint64_t               used_ms;   /* by any worker, the last time */
    ngx_rl_breaker_t        breaker;
    _Atomic uint32_t               closed;    /* how often it has closed */
    _Atomic uint64_t               up_ms;     /* a worker was connected; 0: one
                                                 lost its connection since */

    /* log lines about it */
    ngx_rl_log_limit_t      changes[NGX_RL_BREAKER_CHANGES];
    ngx_rl_log_limit_t      notices;
    ngx_rl_log_limit_t      errors[NGX_RL_REDIS_LINES];
    _Atomic uint32_t               said[NGX_RL_REDIS_LINES]; /* hashes
                                          of the last ones */

    _Atomic uint64_t               named;     /* the id that name_len and name
                                                 are of */
    uint32_t                       name_len;
    u_char                         name[NGX_RL_REDIS_PLACE_NAME];
} ngx_rl_redis_place_t;

/*
 * A worker's counts of calls, on cache lines of its own. Older workers of the
 * same number have counted there, too, and still may; if there are more workers
 * than blocks, several workers share one. So each count is changed atomically.
 */
typedef struct {
    _Alignas(NGX_RL_LINE)
    _Atomic uint64_t               calls[NGX_RL_REDIS_STATUSES];
    _Atomic uint64_t               replies[NGX_RL_REDIS_STATUSES];
} ngx_rl_redis_counts_t;

/* How long the calls of a worker to the node of a place took. */
typedef _Atomic uint64_t
    ngx_rl_redis_times_t[NGX_RL_HISTOGRAM_WORDS];

struct ngx_rl_redis_shared_s {
    ngx_rl_redis_counts_t   workers[NGX_RL_REDIS_WORKERS];
    _Atomic uint64_t               refreshes;
    _Atomic uint64_t               reconnects;
    _Atomic uint64_t               handshakes;
    _Atomic uint64_t               resumed;
    _Atomic uint64_t               opened;

    uint64_t                gateway;          /* its name in Redis, not 0 */
    _Atomic uint64_t               gateways;  /* that live; 0: not known yet */
    _Atomic uint64_t               fleet;     /* the most of late */
    _Atomic uint64_t               fleet_ms;  /* when as many lived last */
    _Atomic uint64_t               heartbeat_ms; /* the last one; 0: none */
    _Atomic uint64_t               heard_ms;  /* the last answer; 0: none */
    ngx_rl_log_limit_t      heartbeat_errors;
    ngx_rl_log_limit_t      auth_notices;
    ngx_rl_log_limit_t      uncovered; /* slots: lines about them */

    ngx_slab_pool_t        *slab;             /* its mutex: to publish a map */
    ngx_rl_redis_times_t   *times;            /* WORKERS x PLACES */
    _Atomic int64_t                clock_ms;  /* Redis' clock less this
                                                 gateway's, and */
    _Atomic uint64_t               clocked;   /* whether that is known */
    ngx_rl_blob_t          *map;              /* ngx_rl_slot_map_t */
    _Atomic uint64_t               asked_ms;  /* for a map, the last time: the
                                                 right to ask */
    _Atomic uint64_t               answered_ms; /* when what was answered was
                                                   asked */

    ngx_rl_redis_place_t    places[NGX_RL_REDIS_PLACES];
};


/*
 * The place of that name: all workers of the gateway know it by that. Returns
 * NULL when there are too many: then there is no breaker for it. It is kept for
 * a minute, so a worker that uses it asks for it each second.
 */
ngx_rl_redis_place_t *ngx_rl_redis_place(
    ngx_rl_redis_shared_t *shared, const ngx_str_t *name);

/* This worker's counts. */
#define ngx_rl_redis_counts(shared)                                           \
    (&(shared)->workers[ngx_worker % NGX_RL_REDIS_WORKERS])

/* Adds up how long the calls of all workers to that node took. */
void ngx_rl_redis_times(ngx_rl_redis_shared_t *shared,
    const ngx_rl_redis_place_t *place, uint64_t words[NGX_RL_HISTOGRAM_WORDS]);

/* Whether a worker is connected: each says so once a second. */
static ngx_inline ngx_uint_t
ngx_rl_redis_connected(ngx_rl_redis_place_t *place)
{
    uint64_t  up_ms;

    up_ms = atomic_load(&place->up_ms);

    return up_ms && (int64_t) (ngx_current_msec - up_ms) < NGX_RL_REDIS_UP_MS;
}


#define ngx_rl_redis_count(counter)                                           \
    (void) atomic_fetch_add_explicit(&(counter), 1, memory_order_relaxed)

static ngx_inline _Atomic uint64_t *
ngx_rl_redis_times_of(ngx_rl_redis_shared_t *shared, ngx_uint_t worker,
    const ngx_rl_redis_place_t *place)
{
    return shared->times[worker * NGX_RL_REDIS_PLACES
                         + (place - shared->places)];
}


/* A call to the node of that place took so long. */
static ngx_inline void
ngx_rl_redis_time(ngx_rl_redis_shared_t *shared,
    const ngx_rl_redis_place_t *place, uint64_t us)
{
    _Atomic uint64_t  *times;

    times = ngx_rl_redis_times_of(shared, ngx_worker % NGX_RL_REDIS_WORKERS,
                                  place);

    ngx_rl_redis_count(times[ngx_rl_histogram_bucket(us)]);
    (void) atomic_fetch_add_explicit(&times[NGX_RL_HISTOGRAM_SUM], us,
                                     memory_order_relaxed);
}

#endif /* NGX_RL_REDIS_SHARED_H_INCLUDED */

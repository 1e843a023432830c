/*
 * The counters of zones with "peers=" that are in use: what the workers of this
 * gateway have spent of each since the leader told the peers. A counter that
 * was told stays, so that a new peer can be told all of them.
 *
 * The table is of a fixed size. A set of eight has a lock. A new counter takes
 * the place of the one that was used longest ago, unless that is still to be
 * told. If there is no place, the change is lost and counted: its limit holds
 * on this gateway alone, until the counter is used again.
 */

#ifndef NGX_RL_CHANGES_H_INCLUDED
#define NGX_RL_CHANGES_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_lock.h"
#include "ngx_rl_told.h"

#define NGX_RL_CHANGES_SETS    8192     /* a power of two */
#define NGX_RL_CHANGES_PLACES  8
#define NGX_RL_CHANGES_END     (NGX_RL_CHANGES_SETS * NGX_RL_CHANGES_PLACES)

/* A counter in use. */
typedef struct {
    ngx_rl_id_t          id;        /* lo is 0: none */
    ngx_rl_told_limit_t  limit;
    uint64_t             end_ms;    /* of a fixed window; else 0 */
    uint64_t             used_ms;
    int32_t              tokens;    /* spent, to be told; below 0: came back */
    unsigned             changed:1; /* it is to be told */
    unsigned             own:1;     /* limit is this gateway's, not a peer's */
} ngx_rl_change_t;

typedef struct {
    _Alignas(NGX_RL_LINE) ngx_rl_lock_t  lock;
    ngx_rl_change_t   places[NGX_RL_CHANGES_PLACES];
} ngx_rl_changes_set_t;

/* Zeroed memory has no counters. */
typedef struct {
    ngx_rl_changes_set_t  sets[NGX_RL_CHANGES_SETS];
    _Atomic uint64_t      changed[NGX_RL_CHANGES_SETS / 64];  /* bits: sets */
    _Atomic uint64_t      lost;
} ngx_rl_changes_t;


/*
 * Notes that tokens of a counter were spent, or came back. end_ms is the end of
 * its fixed window, by ngx_current_msec; an earlier window is forgotten. With
 * told, another gateway has said so, and nobody has to be told; if this one has
 * used the counter, limit becomes its own.
 */
void ngx_rl_changes_add(ngx_rl_changes_t *changes, const ngx_rl_id_t *id,
    ngx_rl_told_limit_t *limit, int32_t tokens, uint64_t end_ms,
    ngx_uint_t told);

/*
 * Takes the next change out: from *at on, which is 0 at first. Its counter
 * stays. Only the leader calls it. Returns NGX_OK, or NGX_DONE.
 */
ngx_int_t ngx_rl_changes_take(ngx_rl_changes_t *changes, ngx_uint_t *at,
    ngx_rl_change_t *change);

/*
 * The next counter in use, from place *at on and before end, which is the first
 * place of a set, or any beyond the last. Returns NGX_OK, or NGX_DONE.
 */
ngx_int_t ngx_rl_changes_next(ngx_rl_changes_t *changes, ngx_uint_t *at,
    ngx_uint_t end, ngx_rl_change_t *change);

#endif /* NGX_RL_CHANGES_H_INCLUDED */

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

#define NGX_RL_CHANGES_FRESH_MS  5000   /* of a reset */
#define NGX_RL_CHANGES_LATE_MS   2000   /* a spend may come from before it */
#define NGX_RL_CHANGES_AHEAD_S   86400  /* of this clock, a reset's number */

/* who tells of a counter */
typedef enum {
    NGX_RL_CHANGES_OWN = 0,    /* this gateway has used it */
    NGX_RL_CHANGES_SPENT,      /* a peer has spent of it */
    NGX_RL_CHANGES_STATE       /* a peer tells all that is used */
} ngx_rl_changes_told_e;

/* A counter in use. */
typedef struct {
    ngx_rl_id_t          id;        /* lo is 0: none */
    ngx_rl_told_limit_t  limit;
    uint64_t             end_ms;    /* of a fixed window; else 0 */
    uint64_t             used_ms;
    uint32_t             reset;     /* as of ngx_rl_told_t; 0: never */
    uint32_t             reset_ms;  /* when that was known here; it wraps */
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
    _Atomic uint64_t      resets;   /* 0: there was none so far */
} ngx_rl_changes_t;

/* whether a peer may not know of a reset yet, so that spends name it */
#define ngx_rl_changes_fresh(change)                                          \
    ((change)->reset                                                          \
     && (uint32_t) ngx_current_msec - (change)->reset_ms                      \
        < NGX_RL_CHANGES_FRESH_MS)


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
 * A counter is reset here (OWN), or a peer tells of one whose last reset, in
 * seconds since the epoch, was at reset; 0: it knows of none. Returns NGX_DONE:
 * that is later than all resets that are known here, and the counter begins
 * anew: what was to be told of it is forgotten. NGX_DECLINED: what the peer
 * tells was before the last reset. NGX_OK: neither.
 *
 * Each reset is later than all that its gateway knows of, whatever its clock
 * says. Spends name it for some seconds, and a state always: what has missed it
 * learns of it. If there is no place, it is lost as a spend is.
 */
ngx_int_t ngx_rl_changes_reset(ngx_rl_changes_t *changes,
    const ngx_rl_id_t *id, const ngx_rl_told_limit_t *limit,
    ngx_rl_changes_told_e told, uint32_t reset);

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

/*
 * The penalized keys of a zone, in shared memory of their own, which a zone has
 * if it has a "ratelimit_penalty".
 *
 * A key is in one table set of 16 rows with a lock. A penalty that is under way
 * is never evicted: if all rows of a set are such, the next one has no place.
 */

#ifndef NGX_RL_PENALTIES_H_INCLUDED
#define NGX_RL_PENALTIES_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_hash.h"
#include "ngx_rl_lock.h"
#include "ngx_rl_watch.h"

#define NGX_RL_PENALTIES_LAYOUT  6     /* another one: memory of its own */
#define NGX_RL_PENALTIES_SETS    2048
#define NGX_RL_PENALTIES_WAYS    16    /* rows of a set */
#define NGX_RL_PENALTIES_ROWS                                                 \
    (NGX_RL_PENALTIES_SETS * NGX_RL_PENALTIES_WAYS)

/*
 * So many rows of one network may be in force at a time: a client that has a
 * network cannot fill the table.
 */
#define NGX_RL_PENALTIES_NET_V4  256   /* of a /24 */
#define NGX_RL_PENALTIES_NET_V6  64    /* of a /56 */
#define NGX_RL_PENALTIES_WIDE    256   /* of a /48 */

/* two networks may share a count: the fewer, the more counts */
#define NGX_RL_PENALTIES_NETS    65536

/*
 * The networks that a row counts in, in one number. The low half is a hash of
 * the /24 or /56. Its lowest bits are 2 for IPv4 and 3 for IPv6. The high half
 * is a hash of the /48, whose lowest bits are 1, or 0 for IPv4. The low half
 * 1: the row is a network's own. 0: the client has no network.
 */
#define NGX_RL_PENALTIES_OWN     1
#define ngx_rl_penalties_own(network)                                         \
    ((uint32_t) (network) == NGX_RL_PENALTIES_OWN)

/* Times are those of ngx_current_msec. */
typedef struct {
    ngx_rl_id_t         id;         /* of the penalty and the key */
    uint64_t            kind;       /* of the penalty: its number on all
                                       gateways */
    uint64_t            until_ms;
    uint64_t            forget_ms;  /* until then the next one is a
                                       repetition */
    uint64_t            changed_ms; /* on any gateway */
    uint64_t            network;    /* see above */
    uint64_t            change;     /* the number of a change that Redis has
                                       not; 0: none */
    uint32_t            times;      /* penalties so far */
    ngx_rl_watch_key_t  name;       /* of the key */
} ngx_rl_penalized_t;

typedef struct {
    ngx_rl_lock_t  lock;
    uint64_t       tags[NGX_RL_PENALTIES_WAYS];  /* 0: free */
} ngx_rl_penalties_set_t;

/* The table. Zeroed memory is an empty one, without its key. */
typedef struct {
    ngx_rl_lock_t           leader;      /* speaks with Redis */
    ngx_rl_hash_key_t       hash_key;    /* by which penalized keys are named,
                                            random: a zone whose size changes
                                            gets another one, its penalties
                                            keep theirs */
    _Atomic uint64_t        changes;     /* of this gateway: counts each one
                                            twice, when it gets its number, and
                                            when its row is there */
    _Atomic uint64_t        latest_ms;   /* no penalty ends later */
    _Atomic uint64_t        network_ms;  /* none of a network does */
    _Atomic uint64_t        set;         /* of Redis' data, that has the rows;
                                            0: none */

    /* the table's own */
    _Atomic uint64_t        counted_ms;  /* networks were */
    _Atomic uint16_t        networks[NGX_RL_PENALTIES_NETS];
                                         /* penalized keys; too many, as those
                                            that are over count until it is
                                            done anew */
    ngx_rl_penalties_set_t  sets[NGX_RL_PENALTIES_SETS];
    ngx_rl_penalized_t      rows[NGX_RL_PENALTIES_ROWS];
} ngx_rl_penalties_t;

/* How long a penalty is. */
typedef struct {
    uint64_t    time_ms;    /* of the first one */
    uint64_t    max_ms;     /* the longest; and for how long it is remembered */
    ngx_uint_t  growth;     /* of each repetition, in thousandths */
} ngx_rl_penalty_time_t;


/*
 * Whether a penalty may be in force. If not, no key is penalized: then a
 * request needs neither the name of its key nor the lock of a table set. It may
 * miss one that another worker begins at this moment, as a request that comes
 * before does.
 */
#define ngx_rl_penalties_any(p, now_ms)                                       \
    (atomic_load_explicit(&(p)->latest_ms, memory_order_relaxed) > (now_ms))

/* Until when a key is penalized; 0: it is not. */
uint64_t ngx_rl_penalties_until(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    uint64_t now_ms);

/* Whether a network may be: if not, a request need not look for its own. */
#define ngx_rl_penalties_any_network(p, now_ms)                               \
    (atomic_load_explicit(&(p)->network_ms, memory_order_relaxed) > (now_ms))

/*
 * A penalty begins: sets the times of made, whose id, kind, network and name
 * are set. time NULL: until_ms is set, too, and nothing is remembered behind
 * it. NGX_BUSY: it is under way already; NGX_DECLINED: there is no place for
 * it; NGX_ABORT: too many keys of its network are penalized. Then made->network
 * is that of the network's own row, with the high half if it is a /56.
 * made->until_ms is the end of the first of these penalties, or of this one if
 * that is sooner; 0: it is not known now.
 */
ngx_int_t ngx_rl_penalties_begin(ngx_rl_penalties_t *p,
    ngx_rl_penalized_t *made, const ngx_rl_penalty_time_t *time,
    uint64_t now_ms);

/*
 * Ends a penalty and forgets it. NGX_DECLINED: there is none of that id.
 */
ngx_int_t ngx_rl_penalties_end(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    uint64_t now_ms);

/*
 * Another gateway's: takes the row as it is, unless this gateway has a later
 * change that Redis has not. NGX_DECLINED or NGX_ABORT: as for begin.
 */
ngx_int_t ngx_rl_penalties_put(ngx_rl_penalties_t *p,
    const ngx_rl_penalized_t *row, uint64_t now_ms);

/*
 * Copies the next row, *at is 0 at first. Returns NGX_OK, or NGX_DONE: there
 * are no more.
 */
ngx_int_t ngx_rl_penalties_next(ngx_rl_penalties_t *p, ngx_uint_t *at,
    ngx_rl_penalized_t *row);

/* Redis has that change of the row. */
void ngx_rl_penalties_sent(ngx_rl_penalties_t *p, const ngx_rl_id_t *id,
    uint64_t change);

/*
 * Redis has lost its data: all rows that are not forgotten become changes
 * again. recent: Redis may have lost its last changes. Then only the rows that
 * changed 2 to 120 s ago become changes again.
 */
void ngx_rl_penalties_resend(ngx_rl_penalties_t *p, uint64_t now_ms,
    ngx_uint_t recent);

#endif /* NGX_RL_PENALTIES_H_INCLUDED */

/*
 * How a document gets to every worker of every gateway.
 *
 * A change is one compare-and-set on the version: in Redis if the zone has one,
 * else in the gateway's store, or in that of the peer that decides. Redis
 * announces it to the leader of each gateway, which asks every 5 s as well, and
 * puts the record into the store. Each worker sees that the store's generation
 * has changed, compiles the record in a job, and swaps its policy. The leader
 * writes the state file.
 */

#ifndef NGX_RL_FOLLOW_H_INCLUDED
#define NGX_RL_FOLLOW_H_INCLUDED

#include "ngx_rl_policy.h"
#include "ngx_rl_record.h"

typedef enum {
    NGX_RL_FOLLOW_OK = 0,
    NGX_RL_FOLLOW_CONFLICT,     /* another version is current: version */
    NGX_RL_FOLLOW_NOT_FOUND,    /* no such version */
    NGX_RL_FOLLOW_TOO_LARGE,    /* read: records has its head */
    NGX_RL_FOLLOW_UNAVAILABLE,  /* Redis has not done it: reason */
    NGX_RL_FOLLOW_UPGRADED,     /* another nginx binary takes over */
    NGX_RL_FOLLOW_UNKNOWN,      /* Redis may have done it: reason */
    NGX_RL_FOLLOW_FAILED,       /* memory is out */

    /* inside, never a result */
    NGX_RL_FOLLOW_AGAIN,        /* it goes on */
    NGX_RL_FOLLOW_REFUSED,      /* Redis' record is not to be used */
    NGX_RL_FOLLOW_BEHIND        /* Redis has less than this gateway */
} ngx_rl_follow_status_e;

typedef struct {
    ngx_rl_follow_status_e   status;
    uint64_t                 version;  /* current now; 0: not known */
    uint64_t                 id;       /* of that version; not where it was
                                          found instead */
    ngx_str_t                reason;   /* "timeout", "oom": by Redis */
    unsigned                 saved:1;  /* put: Redis has it, or the state file,
                                          or there is neither */
    ngx_uint_t               n;
    ngx_rl_record_t         *records;  /* versions: heads alone, the newest
                                          first; read: one */
} ngx_rl_follow_result_t;

/* The result's texts are valid during the handler only. */
typedef void (*ngx_rl_follow_handler_pt)(void *data,
    const ngx_rl_follow_result_t *result);

typedef struct ngx_rl_follow_call_s  ngx_rl_follow_call_t;

/*
 * While the configuration is read: the zone follows a document. Makes its
 * store, in shared memory of its own, which a reload keeps, and which is filled
 * from the state file where it is new. Returns NGX_OK or NGX_ERROR (logged).
 */
ngx_int_t ngx_rl_follow_prepare(ngx_conf_t *cf, ngx_rl_limiter_t *limiter,
    void *tag);

/*
 * A worker begins: it has compiled what the store has before this returns; and
 * ends. Returns NGX_OK, or NGX_ERROR: memory is out. A document that does not
 * compile is no error: it is logged, and the rules of nginx.conf count.
 */
ngx_int_t ngx_rl_follow_begin(ngx_rl_limiter_t *limiter, ngx_cycle_t *cycle);
void ngx_rl_follow_end(ngx_rl_limiter_t *limiter);

/*
 * "nginx -t": says what of the state file's document does not go with this
 * configuration. Returns nothing: a document is no error of nginx.conf.
 */
void ngx_rl_follow_test(ngx_rl_limiter_t *limiter, ngx_log_t *log);

/*
 * The current record of this gateway, in pool; may be called by a thread.
 * Returns NGX_OK, NGX_DECLINED: there is none (the version is 0), or NGX_ERROR:
 * memory is out.
 */
ngx_int_t ngx_rl_follow_current(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_rl_record_t *record);

/* The operation of a call. */
typedef enum {
    NGX_RL_FOLLOW_CHECK = 0,  /* is version, with id, the fleet's? */
    NGX_RL_FOLLOW_VERSIONS,
    NGX_RL_FOLLOW_READ,       /* the record of version */
    NGX_RL_FOLLOW_RESET,
    NGX_RL_FOLLOW_PUT
} ngx_rl_follow_op_e;

/*
 * Calls the handler once, never from inside, unless the call is forgotten
 * before. Returns the call, or NULL: memory is out, and the handler is not
 * called.
 *
 * PUT: makes record (NULL for the others) the next version behind version,
 * which must be current, with that id. The record's version, id and text are
 * made here, and its lineage if it has none. Everything is copied. The call
 * ends UNKNOWN if the answer of Redis is lost, or another nginx binary takes
 * over meanwhile. Without Redis it waits for the state file, 2 s at most. The
 * worker does not exit before it has ended.
 *
 * RESET: a counter was reset, and every gateway forgets what it remembers of
 * rejections. The caller has deleted the counter before.
 */
ngx_rl_follow_call_t *ngx_rl_follow_call(
    ngx_rl_limiter_t *limiter, ngx_rl_follow_op_e op,
    uint64_t version, uint64_t id, const ngx_rl_record_t *record,
    ngx_rl_follow_handler_pt handler, void *data);

/*
 * Logs a change at notice: what happened, and the method, path, author,
 * address and reason of record.
 */
void ngx_rl_follow_log(const ngx_rl_limiter_t *limiter, const ngx_str_t *what,
    const ngx_rl_record_t *record);

/* The handler is not called any more; a change that was sent goes on. */
void ngx_rl_follow_forget(ngx_rl_follow_call_t *call);

/*
 * Of a zone with proposals, for the worker that speaks with peers: a peer has
 * told of a document; and each tick.
 */
void ngx_rl_follow_told(ngx_rl_limiter_t *limiter, uint64_t peer,
    ngx_rl_told_e kind, const ngx_rl_told_record_t *told);
void ngx_rl_follow_tell(ngx_rl_limiter_t *limiter);

/* The state of this gateway. Times are ms since the epoch; 0: never. */
typedef struct {
    uint64_t     version;      /* of the store; 0: none */
    uint64_t     id;
    uint64_t     generation;   /* of the store */
    uint64_t     compiled;     /* version that this worker goes by */
    uint64_t     swapped_ms;   /* when it did so first */
    uint64_t     refused;      /* version that is not used; 0: none */
    uint64_t     asked_ms;     /* Redis has last answered */
    unsigned     reachable:1;  /* its last question had an answer */
    unsigned     saved:1;      /* the state file has the current version */
    ngx_err_t    error;        /* why it could not be written */
    ngx_uint_t   warnings;     /* what of it has no effect here */
} ngx_rl_follow_stat_t;

void ngx_rl_follow_stat(ngx_rl_limiter_t *limiter, ngx_rl_follow_stat_t *stat);

#endif /* NGX_RL_FOLLOW_H_INCLUDED */

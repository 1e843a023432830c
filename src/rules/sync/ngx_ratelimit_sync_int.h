/*
 * The files of sync share this: a worker's part in following a zone's document.
 *
 * Calls run one way:
 *
 *     sync.c -> sync_leader.c -> sync_save.c          -> sync_compile.c,
 *            -> sync_put.c, sync_read.c -> sync_call.c   sync_store.c,
 *                                                        sync_redis.c
 */

#ifndef NGX_RATELIMIT_SYNC_INT_H_INCLUDED
#define NGX_RATELIMIT_SYNC_INT_H_INCLUDED

#include "ngx_ratelimit_document.h"
#include "ngx_ratelimit_job.h"
#include "ngx_ratelimit_redis_control.h"
#include "ngx_ratelimit_sync.h"

#define NGX_RATELIMIT_SYNC_LATEST     ((uint64_t) 1 << 53)

typedef struct ngx_ratelimit_sync_s  ngx_ratelimit_sync_t;

/*
 * A record that is compiled: where it is run in a job it belongs to the job
 * alone, and outlives the sync that made it. sync is not touched there.
 */
typedef struct {
    ngx_ratelimit_sync_t        *sync;
    ngx_ratelimit_limiter_t     *limiter;
    ngx_log_t                   *log;
    ngx_pool_t                  *pool;
    ngx_ratelimit_store_entry_t  entry;      /* its text is on the heap */
    uint64_t                     generation; /* of the store it was read from */

    /* the leader's: a record of Redis */
    uint64_t                     current;    /* version of the store before */
    ngx_int_t                    published;  /* to the store */
    ngx_ratelimit_store_entry_t  back;       /* what is put back instead; its
                                                text is on the heap, or NULL */
    uint64_t                     dropped;    /* version of another lineage */

    /* what became of it */
    ngx_ratelimit_record_t       record;
    ngx_ratelimit_policy_t      *policy;
    ngx_ratelimit_problems_t     problems;
    ngx_ratelimit_problems_t     warnings;
    const char                  *why;        /* NULL: the problems say it */
    unsigned                     none:1;     /* the store has no record */
    unsigned                     failed:1;   /* memory is out */
} ngx_ratelimit_sync_compile_t;

/* Something that is done again later, and each time later. */
typedef struct {
    ngx_msec_t    after;    /* ngx_current_msec from which it may be done */
    ngx_msec_t    wait;     /* ms; 0: it did not fail */
    ngx_msec_t    logged;   /* when the log last said why; 0: never */
} ngx_ratelimit_sync_retry_t;

/* The leader's work for its gateway, beside the state file. */
typedef enum {
    NGX_RATELIMIT_SYNC_FOLLOWS = 0,  /* another worker leads, or none */
    NGX_RATELIMIT_SYNC_IDLE,
    NGX_RATELIMIT_SYNC_ASKS,         /* Redis for its record */
    NGX_RATELIMIT_SYNC_COMPARES,     /* a job, with a record of Redis */
    NGX_RATELIMIT_SYNC_RETURNS,      /* a record to Redis */
    NGX_RATELIMIT_SYNC_LEAVES        /* when the state file is written */
} ngx_ratelimit_sync_leader_e;

/* The worker's, on the heap: begin makes it, end frees it. */
struct ngx_ratelimit_sync_s {
    ngx_ratelimit_limiter_t        *limiter;
    ngx_log_t                      *log;
    ngx_str_t                       channel;    /* "<prefix>:rules:<zone>" */

    /* sync.c: what this worker goes by */
    ngx_event_t                     look;       /* cancelable */
    ngx_event_t                     slice;      /* the same */
    ngx_ratelimit_job_t            *job;        /* one compiles, or NULL */
    ngx_ratelimit_sync_compile_t   *next;       /* compiled, being finished */
    ngx_ratelimit_sync_retry_t      compiling;
    uint64_t                        generation; /* that was compiled last,
                                                   whatever became of it */
    uint64_t                        version;    /* that requests go by */
    uint64_t                        swapped_ms; /* since the epoch */
    ngx_uint_t                      warnings;

    /* sync_leader.c */
    ngx_ratelimit_sync_leader_e     leader;
    ngx_event_t                     poll;       /* cancelable */
    ngx_ratelimit_redis_control_t  *control;    /* NULL: no Redis */
    ngx_ratelimit_redis_call_t     *asked;      /* ASKS, RETURNS */
    ngx_ratelimit_job_t            *compares;   /* COMPARES */
    ngx_ratelimit_sync_retry_t      polling;
    ngx_ratelimit_sync_retry_t      returning;  /* a record, to Redis */
    ngx_msec_t                      empty;      /* since when Redis has none */
    uint64_t                        refused_version;  /* of Redis; 0: none */
    uint64_t                        refused_id;
    unsigned                        again:1;    /* poll once more */
    unsigned                        waiting:1;  /* empty is set */

    /* sync_save.c: the state file, by the leader */
    ngx_ratelimit_job_t            *file;       /* reads or writes it */
    ngx_ratelimit_sync_retry_t      saving;
    ngx_msec_t                      looked;     /* for an upgrade */

    /* sync_call.c */
    ngx_queue_t                     calls;
};

typedef ngx_int_t (*ngx_ratelimit_sync_work_pt)(
    ngx_ratelimit_sync_call_t *call);
typedef void (*ngx_ratelimit_sync_done_pt)(ngx_ratelimit_sync_call_t *call);

/*
 * A question of the endpoint. Lives in a pool of its own, which a job may use
 * while it runs; freed when its handler was called, or nobody waits, and
 * nothing is under way.
 */
struct ngx_ratelimit_sync_call_s {
    ngx_queue_t                     queue;      /* of sync->calls */
    ngx_ratelimit_sync_t           *sync;       /* NULL: it has ended */
    ngx_ratelimit_limiter_t        *limiter;
    ngx_pool_t                     *pool;
    ngx_ratelimit_sync_handler_pt   handler;    /* NULL: forgotten */
    void                           *data;

    uint64_t                        version;    /* expected; to be read */
    uint64_t                        id;         /* of what is expected */
    ngx_ratelimit_record_t          record;     /* to be put; that was read */
    ngx_ratelimit_store_entry_t     entry;      /* of the store, of Redis; its
                                                   text is on the heap */

    ngx_ratelimit_job_t            *job;
    ngx_ratelimit_sync_work_pt      work;
    ngx_ratelimit_sync_done_pt      done;
    ngx_int_t                       rc;         /* of the job */
    ngx_ratelimit_redis_call_t     *asked;
    ngx_event_t                     timer;      /* not cancelable: a request
                                                   waits */
    uint64_t                        generation; /* to be saved */
    ngx_msec_t                      since;      /* it waits for that */
    uint64_t                        found;      /* current instead */
    unsigned                        alone:1;    /* there is no Redis */
    unsigned                        taken:1;    /* Redis has the record */
    ngx_ratelimit_sync_result_t     result;
};


/* The store has changed: looks in the next turn. */
static ngx_inline void
ngx_ratelimit_sync_wake(ngx_ratelimit_sync_t *sync)
{
    if (sync->look.timer_set) {
        ngx_del_timer(&sync->look);
    }

    ngx_add_timer(&sync->look, 0);
}


/* sync_save.c */

/*
 * The leader begins to lead; ends (NGX_AGAIN: when the file is written); writes
 * the state file if it is not up to date, or reads it after an upgrade that was
 * given up.
 */
void ngx_ratelimit_sync_save_begin(ngx_ratelimit_sync_t *sync);
ngx_int_t ngx_ratelimit_sync_save_end(ngx_ratelimit_sync_t *sync);
void ngx_ratelimit_sync_save_look(ngx_ratelimit_sync_t *sync);

/* sync_leader.c */
void ngx_ratelimit_sync_leader_begin(ngx_ratelimit_sync_t *sync);
void ngx_ratelimit_sync_leader_end(ngx_ratelimit_sync_t *sync);

/*
 * Becomes the leader if there is none, or leaves as the worker drains; and
 * writes the state file if that is not up to date.
 */
void ngx_ratelimit_sync_leader_look(ngx_ratelimit_sync_t *sync);

/* sync_call.c */

/* NULL: memory is out. */
ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_new(
    ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_sync_handler_pt handler,
    void *data);

/*
 * rc: whether the first job or question was started; else the call is freed,
 * and NULL returned. expired: ends the call if nothing else does.
 */
ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_started(
    ngx_ratelimit_sync_call_t *call, ngx_int_t rc,
    ngx_event_handler_pt expired);

/* Ends in the next turn: no handler is called from inside. */
ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_ends(
    ngx_ratelimit_sync_call_t *call, ngx_ratelimit_sync_status_e status);

/* The answer. A job that still runs frees the call when it is done. */
void ngx_ratelimit_sync_call_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status);
void ngx_ratelimit_sync_call_wrong(ngx_ratelimit_sync_call_t *call,
    const char *reason, ngx_ratelimit_sync_status_e status);

/* The call's timer fires then; it has one. */
void ngx_ratelimit_sync_call_wait(ngx_ratelimit_sync_call_t *call,
    ngx_event_handler_pt handler, ngx_msec_t ms);

/* work runs in a thread and makes call->rc. Returns NGX_OK or NGX_ERROR. */
ngx_int_t ngx_ratelimit_sync_call_job(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_work_pt work, ngx_ratelimit_sync_done_pt done);

/* Forgets all calls. */
void ngx_ratelimit_sync_calls_end(ngx_ratelimit_sync_t *sync);

/* sync_compile.c */

/* Milliseconds since the epoch. */
uint64_t ngx_ratelimit_sync_now(void);

/*
 * Whether enough time has passed since the last failure; a failure: waits
 * longer, and returns whether the log is to say why.
 */
ngx_uint_t ngx_ratelimit_sync_may_retry(
    const ngx_ratelimit_sync_retry_t *retry);
ngx_uint_t ngx_ratelimit_sync_failed(ngx_ratelimit_sync_retry_t *retry);

/*
 * A record to be compiled, with a pool of its own; NULL: memory is out. free:
 * and all that was made of it.
 */
ngx_ratelimit_sync_compile_t *ngx_ratelimit_sync_compile_new(
    ngx_ratelimit_sync_t *sync);
void ngx_ratelimit_sync_compile_free(ngx_ratelimit_sync_compile_t *compile);

/*
 * In a thread: compiles the text of compile->entry, or (a job's work) what the
 * store has.
 */
void ngx_ratelimit_sync_compile_text(ngx_ratelimit_sync_compile_t *compile);
void ngx_ratelimit_sync_compile_work(void *data);

/* Logs why a record is not used, and notes its version for all workers. */
void ngx_ratelimit_sync_refused(ngx_ratelimit_sync_compile_t *compile);

/* Logs which rules are skipped, at a severity, and what has no effect. */
void ngx_ratelimit_sync_warned(const ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_policy_t *policy, ngx_uint_t severity);

/* sync_store.c */

/*
 * Whether another nginx binary takes over from this worker's master. The state
 * file is the new master's then: nothing is written to it here.
 */
ngx_uint_t ngx_ratelimit_sync_upgraded(void);

/*
 * Adds what the state file has and the store has not, the oldest first. Returns
 * NGX_OK, or NGX_ERROR: the file cannot be read now, or memory is out (logged).
 * In a thread, or before a worker serves.
 */
ngx_int_t ngx_ratelimit_sync_load(ngx_ratelimit_limiter_t *limiter,
    ngx_uint_t test, ngx_log_t *log);

/* sync_redis.c */

/*
 * The script's operations; each returns a call of the control client, or NULL:
 * memory is out. put gives Redis a record, if Redis has the expected version
 * with that id.
 */
ngx_ratelimit_redis_call_t *ngx_ratelimit_sync_ask_get(
    ngx_ratelimit_sync_t *sync, uint64_t version, uint64_t id,
    ngx_ratelimit_redis_handler_pt handler, void *data);
ngx_ratelimit_redis_call_t *ngx_ratelimit_sync_ask_put(
    ngx_ratelimit_sync_t *sync, uint64_t expected, uint64_t expected_id,
    const ngx_ratelimit_store_entry_t *entry,
    ngx_ratelimit_redis_handler_pt handler, void *data);
ngx_ratelimit_redis_call_t *ngx_ratelimit_sync_ask_list(
    ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_handler_pt handler, void *data);
ngx_ratelimit_redis_call_t *ngx_ratelimit_sync_ask_version(
    ngx_ratelimit_sync_t *sync, uint64_t version,
    ngx_ratelimit_redis_handler_pt handler, void *data);
ngx_ratelimit_redis_call_t *ngx_ratelimit_sync_ask_reset(
    ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_handler_pt handler, void *data);

/*
 * A number of an answer; a version and, behind it, an id. NGX_OK, or NGX_ERROR:
 * they are not there.
 */
ngx_int_t ngx_ratelimit_sync_number(
    const ngx_ratelimit_redis_result_t *result, ngx_uint_t i,
    uint64_t *number);
ngx_int_t ngx_ratelimit_sync_version(
    const ngx_ratelimit_redis_result_t *result, ngx_uint_t i,
    uint64_t *version, uint64_t *id);

/*
 * Redis counts resets. If the number has changed, a counter was deleted on some
 * gateway, and this one forgets all rejections that it remembers.
 */
void ngx_ratelimit_sync_resets(ngx_ratelimit_sync_t *sync, uint64_t resets);

#endif /* NGX_RATELIMIT_SYNC_INT_H_INCLUDED */

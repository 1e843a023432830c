/*
 * The files of follow share this: a worker's part in following a zone's
 * document.
 *
 *     follow.c            what this worker goes by; compiling
 *     follow_leader.c     what one worker does for its gateway
 *     follow_call.c       what the endpoint asks for
 *     follow_peers.c      versions of gateways without Redis
 *     follow_transport.c  the store, the state file, and Redis, for all of them
 */

#ifndef NGX_RL_FOLLOW_INT_H_INCLUDED
#define NGX_RL_FOLLOW_INT_H_INCLUDED

#include "ngx_rl_document.h"
#include "ngx_rl_follow.h"
#include "ngx_rl_job.h"
#include "ngx_rl_redis.h"
#include "ngx_rl_store.h"

#define NGX_RL_FOLLOW_LATEST     ((uint64_t) 1 << 53)

typedef struct ngx_rl_follow_s  ngx_rl_follow_t;

/*
 * A job of the worker compiles a record, reads the state file, or writes it. It
 * works on a task, in a pool of its own, which may outlive the follow.
 */
typedef struct {
    ngx_rl_follow_t         *follow;     /* not for the thread */
    ngx_rl_limiter_t        *limiter;
    ngx_pool_t              *pool;
    ngx_rl_store_entry_t     entry;      /* of the store, or of Redis */
    ngx_rl_store_entry_t     own;        /* of the store, beside Redis' */
    uint64_t                 had;        /* as below */
    ngx_rl_follow_status_e   status;
    const char              *why;        /* of a failure; NULL: the problems
                                            say it */
    ngx_err_t                err;
    ngx_rl_policy_t         *policy;     /* released with the pool */
    ngx_rl_problems_t        problems;
    ngx_rl_problems_t        warnings;
    ngx_rl_record_t          record;     /* that was compiled */
    const char              *unsealed;   /* entry: of Redis, no seal fits */
    uint64_t                 base_id;    /* proposed: of the version before */
    unsigned                 dropped:1;  /* own: of another lineage, or maybe
                                            unknown to the peer */
    unsigned                 proposed:1; /* to this gateway, which decides */
} ngx_rl_follow_task_t;

/*
 * The version of Redis or a peer may be above this gateway's by so many
 * changes. Else one that somebody makes up leaves no number for the next one.
 */
#define NGX_RL_FOLLOW_LEAP  ((uint64_t) 1 << 32)

/* Something that is tried again, each time after a longer wait. */
typedef struct {
    ngx_msec_t    after;    /* ngx_current_msec from which it may be tried */
    ngx_msec_t    wait;     /* ms; 0: it did not fail */
    ngx_msec_t    logged;   /* when the log last said why; 0: never */
} ngx_rl_follow_retry_t;

/* A record that comes from a peer, in parts. */
typedef struct {
    uint64_t      peer;          /* its name; 0: none comes */
    uint64_t      version;
    uint64_t      id;
    uint64_t      base_id;
    uint64_t      size;
    ngx_str_t     text;          /* so far; size bytes, on the heap */
    ngx_msec_t    asked_ms;
    unsigned      proposed:1;
    unsigned      forked:1;      /* the peer never had the own version */
} ngx_rl_follow_come_t;

/* The leader's work for its gateway, beside the state file. */
typedef enum {
    NGX_RL_FOLLOW_LED = 0,      /* another worker leads, or none */
    NGX_RL_FOLLOW_IDLE,
    NGX_RL_FOLLOW_ASKS,         /* Redis for its record */
    NGX_RL_FOLLOW_COMPARES,     /* a job, with a record of Redis */
    NGX_RL_FOLLOW_RETURNS,      /* a record to Redis */
    NGX_RL_FOLLOW_LEAVES        /* when the state file is written */
} ngx_rl_follow_leader_e;

/* The worker's, on the heap: begin makes it, end frees it. */
struct ngx_rl_follow_s {
    ngx_rl_limiter_t        *limiter;
    ngx_log_t               *log;
    ngx_str_t                history;    /* a key of Redis, behind the follow */

    /* follow.c: what this worker goes by */
    ngx_event_t              look;       /* cancelable */
    ngx_event_t              slice;      /* the same */
    ngx_rl_job_t            *job;        /* compiles, or NULL */
    ngx_rl_follow_task_t    *next;       /* compiled, being finished */
    ngx_rl_follow_retry_t    compiling;
    uint64_t                 generation; /* that was compiled last, with or
                                            without success */
    size_t                   bytes;      /* of that record */
    uint64_t                 version;    /* that requests go by */
    uint64_t                 swapped_ms; /* since the epoch */
    ngx_uint_t               warnings;

    /* follow_leader.c */
    ngx_rl_follow_leader_e   leader;
    ngx_event_t              poll;       /* cancelable; IDLE */
    ngx_rl_redis_listener_t  listener;   /* of the leader; channel and key are
                                            as history */
    ngx_rl_redis_call_t     *asked;      /* ASKS, RETURNS */
    uint64_t                 had;        /* the store's version when it was
                                            asked */
    ngx_rl_job_t            *compares;   /* COMPARES */
    ngx_rl_job_t            *file;       /* the state file: reads or
                                            writes it */
    ngx_rl_follow_retry_t    polling;
    ngx_rl_follow_retry_t    returning;
    ngx_rl_follow_retry_t    saving;
    ngx_rl_follow_retry_t    sealing;
    ngx_msec_t               empty;      /* since when Redis has no record; 0:
                                            it has one */
    uint64_t                 refused_version;  /* of Redis; 0: none */
    uint64_t                 refused_id; /* 0: it may be sealed yet */
    unsigned                 again:1;    /* polls once more */
    unsigned                 sealed:1;   /* Redis' record has a good seal */

    /* follow_call.c */
    ngx_queue_t              calls;

    /* follow_peers.c */
    ngx_rl_follow_come_t     come;
    uint64_t                 told;       /* generations that peers know */
    ngx_msec_t               told_ms;
};


/* The store has changed: looks in the next turn. */
static ngx_inline void
ngx_rl_follow_wake(ngx_rl_follow_t *follow)
{
    if (follow->look.timer_set) {
        ngx_del_timer(&follow->look);
    }

    ngx_add_timer(&follow->look, 0);
}


/* follow_leader.c */

/*
 * Becomes the leader if there is none, or leaves as the worker drains; and
 * writes the state file if that is not up to date.
 */
void ngx_rl_follow_leader_look(ngx_rl_follow_t *follow);
void ngx_rl_follow_leader_end(ngx_rl_follow_t *follow);

/* The lineage of a record; 0: it has none. In a thread. */
uint64_t ngx_rl_follow_lineage(const ngx_str_t *text, ngx_pool_t *pool);

/*
 * follow_peers.c: whether this gateway decides about changes of the document;
 * the worker ends.
 */
ngx_uint_t ngx_rl_follow_decides(const ngx_rl_limiter_t *limiter);
void ngx_rl_follow_tell_end(ngx_rl_follow_t *follow);

/*
 * It is time, there is a new document, or a message may have been lost. One
 * question at a time: the next one is asked behind it.
 */
void ngx_rl_follow_poll(ngx_event_t *ev);

/* follow_call.c: the worker ends, and with it all calls. */
void ngx_rl_follow_calls_end(ngx_rl_follow_t *follow);

/* follow.c */

/* Whether enough time has passed since the last failure. */
ngx_uint_t ngx_rl_follow_may_retry(const ngx_rl_follow_retry_t *retry);

/* A failure: waits longer. Returns whether the log is to say why. */
ngx_uint_t ngx_rl_follow_failed(ngx_rl_follow_retry_t *retry);

/* Destroying the task's pool frees it. NULL: memory is out. */
ngx_rl_follow_task_t *ngx_rl_follow_task_new(ngx_rl_limiter_t *limiter,
    ngx_log_t *log);

/*
 * Starts a job with a task, which may be NULL. Returns the job, or NULL: memory
 * is out, and the task is freed.
 */
ngx_rl_job_t *ngx_rl_follow_task_start(ngx_rl_follow_task_t *task,
    ngx_rl_follow_t *follow, ngx_rl_job_thread_e thread, ngx_rl_job_pt work,
    ngx_rl_job_pt done);

/* In a thread: compiles task->entry. Returns OK, REFUSED or FAILED. */
ngx_rl_follow_status_e ngx_rl_follow_compile(ngx_rl_follow_task_t *task);

/* ngx_rl_follow_log() with fmt, which has a place for record's version. */
void ngx_rl_follow_log_version(const ngx_rl_limiter_t *limiter,
    const ngx_rl_record_t *record, const char *fmt);

/* Logs why a record is not used, and notes its version for all workers. */
void ngx_rl_follow_refused(ngx_rl_follow_task_t *task);

/* follow_transport.c: the store and the state file */

/*
 * Whether another nginx binary takes over from this worker's master. The state
 * file is the new master's then: nothing is written to it here.
 */
ngx_uint_t ngx_rl_follow_upgraded(void);

/*
 * The current record is that of the state file, if that is newer. Returns
 * NGX_OK, or NGX_ERROR: the file cannot be read now, or memory is out (logged).
 * In a thread, or before a worker serves.
 */
ngx_int_t ngx_rl_follow_load(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_uint_t test);

/*
 * The store's record, and behind it in entry->text those before it, the newest
 * first, which the state file has. Returns NGX_OK, NGX_DECLINED: there is none,
 * or NGX_ERROR: memory is out. In a thread.
 */
ngx_int_t ngx_rl_follow_history(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_rl_store_entry_t *entry);

/*
 * Reads the heads of records that stand one behind the other, whole: each with
 * its document, to the first that is none. Makes records, an array of
 * ngx_rl_record_t, in pool. NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_follow_heads(const ngx_str_t *text, ngx_uint_t whole,
    ngx_pool_t *pool, ngx_array_t *records);

/* follow_transport.c: Redis */

/*
 * If the fleet has a secret, a record in Redis, and nowhere else, has a seal:
 * the right to write to Redis is not enough to make a document. seal() makes a
 * sealed copy in pool. Without a secret it leaves text as it is. unseal() cuts
 * the seal off. It returns NULL, ngx_rl_follow_unsealed: the fleet has not made
 * this, or ngx_rl_record_no_memory. A thread may call both.
 */
extern const char  ngx_rl_follow_unsealed[];

ngx_int_t ngx_rl_follow_seal(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_str_t *text);
const char *ngx_rl_follow_unseal(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_str_t *text);

/*
 * Asks the script of documents (lua/rules.lua) for an operation. It is sent
 * with its text: it is rare, and so no replica that was promoted has to be
 * taught it first. format names the arguments: "v" and "i" are the next of
 * numbers, a version and an id; "s" is text. Returns a call of the control
 * client, or NULL: memory is out.
 */
ngx_rl_redis_call_t *ngx_rl_follow_ask(ngx_rl_follow_t *follow,
    ngx_rl_redis_handler_pt handler, void *data, const char *operation,
    const char *format, const uint64_t *numbers, const ngx_str_t *text);

/*
 * Gives Redis a record, sealed, if Redis has the expected version with that id.
 */
ngx_rl_redis_call_t *ngx_rl_follow_ask_put(
    ngx_rl_follow_t *follow, ngx_rl_redis_handler_pt handler,
    void *data, uint64_t expected, uint64_t expected_id,
    const ngx_rl_store_entry_t *entry, const ngx_str_t *sealed);

/*
 * A number of an answer; a version and, behind it, an id. NGX_OK, or NGX_ERROR:
 * they are not there.
 */
ngx_int_t ngx_rl_follow_number(const ngx_rl_redis_result_t *result,
    ngx_uint_t i, uint64_t *number);
ngx_int_t ngx_rl_follow_version(const ngx_rl_redis_result_t *result,
    ngx_uint_t i, uint64_t *version, uint64_t *id);

/*
 * Redis counts resets. If the number has changed, a counter was deleted on some
 * gateway, and this one forgets all rejections that it remembers.
 */
void ngx_rl_follow_resets(ngx_rl_follow_t *follow, uint64_t resets);

#endif /* NGX_RL_FOLLOW_INT_H_INCLUDED */

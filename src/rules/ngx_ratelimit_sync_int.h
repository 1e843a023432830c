/*
 * What the files of sync share: a worker's part in following a zone's document.
 */

#ifndef NGX_RATELIMIT_SYNC_INT_H_INCLUDED
#define NGX_RATELIMIT_SYNC_INT_H_INCLUDED

#include "ngx_ratelimit_document.h"
#include "ngx_ratelimit_job.h"
#include "ngx_ratelimit_redis_control.h"
#include "ngx_ratelimit_sync.h"

#define NGX_RATELIMIT_SYNC_LOOK_MS    100    /* at the store's generation */
#define NGX_RATELIMIT_SYNC_SLICE_MS   5      /* of what only the loop may do */
#define NGX_RATELIMIT_SYNC_REMIND_MS  60000  /* the log repeats itself */

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
    uint64_t                     generation; /* of the store, if it is of it */
    uint64_t                     current;    /* version of the store before */
    uint64_t                     refused_version;  /* known not to be used */
    uint64_t                     refused_id;
    ngx_int_t                    published;  /* that of Redis, to the store */
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

/* The worker's, on the heap: begin makes it, end frees it. */
struct ngx_ratelimit_sync_s {
    ngx_ratelimit_limiter_t        *limiter;
    ngx_log_t                      *log;

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
    ngx_event_t                     poll;       /* cancelable */
    ngx_ratelimit_redis_control_t  *control;    /* NULL: no Redis */
    ngx_ratelimit_redis_call_t     *asked;      /* a poll, a record put back */
    ngx_ratelimit_job_t            *pulled;     /* a record of Redis, compiled
                                                   to see whether it is one,
                                                   or found to be behind */
    ngx_ratelimit_job_t            *written;    /* the state file */
    ngx_ratelimit_sync_retry_t      writing;
    ngx_ratelimit_sync_retry_t      polling;
    ngx_ratelimit_sync_retry_t      returning;  /* a record, to Redis */
    ngx_msec_t                      empty;      /* since when Redis has none */
    uint64_t                        refused_version;  /* of Redis; 0: none */
    uint64_t                        refused_id;
    ngx_msec_t                      looked;     /* at the state file */
    unsigned                        leading:1;
    unsigned                        again:1;    /* poll once more */
    unsigned                        waiting:1;  /* empty is set */

    /* sync_call.c */
    ngx_queue_t                     calls;
};


/* sync.c */

/* Milliseconds since the epoch. */
uint64_t ngx_ratelimit_sync_now(void);

/*
 * A record to be compiled, with a pool of its own; NULL: memory is out. free:
 * and all that was made of it.
 */
ngx_ratelimit_sync_compile_t *ngx_ratelimit_sync_compile_new(
    ngx_ratelimit_sync_t *sync);
void ngx_ratelimit_sync_compile_free(ngx_ratelimit_sync_compile_t *compile);

/* Compiles the text of an entry; in a thread. */
void ngx_ratelimit_sync_compile_text(ngx_ratelimit_sync_compile_t *compile);

/* One that is in the store now: this worker need not compile it again. */
void ngx_ratelimit_sync_take(ngx_ratelimit_sync_compile_t *compile);

/* Logs why a record is not used, and notes its version for all workers. */
void ngx_ratelimit_sync_refused(ngx_ratelimit_sync_compile_t *compile);

/* The store may have changed: looks at once. */
void ngx_ratelimit_sync_wake(ngx_ratelimit_sync_t *sync);

/* A failure: waits longer, and says whether the log is to tell of it. */
ngx_uint_t ngx_ratelimit_sync_failed(ngx_ratelimit_sync_retry_t *retry);

/* sync_leader.c */
void ngx_ratelimit_sync_leader_begin(ngx_ratelimit_sync_t *sync);
void ngx_ratelimit_sync_leader_end(ngx_ratelimit_sync_t *sync);

/* Becomes the leader where there is none; is no longer one that drains. */
void ngx_ratelimit_sync_elect(ngx_ratelimit_sync_t *sync);

/*
 * What Redis says of resets: where it is another one than before, a counter was
 * deleted somewhere, and what this node knows of denials may be wrong.
 */
void ngx_ratelimit_sync_resets(ngx_ratelimit_sync_t *sync, uint64_t resets);

/* Writes the state file where it is the leader, and the file not up to date. */
void ngx_ratelimit_sync_save(ngx_ratelimit_sync_t *sync);

/* Done with a record of Redis, or of the state file: a job's. */
void ngx_ratelimit_sync_pull_done(void *data, ngx_uint_t cancelled);

/* sync_file.c */

/*
 * Without Redis, each second: takes over what another nginx has written to the
 * state file.
 */
void ngx_ratelimit_sync_file_look(ngx_ratelimit_sync_t *sync);

/*
 * In a thread, before a put without Redis. Returns NGX_OK; NGX_BUSY: the state
 * file has a version that this node has not, in *found; NGX_ERROR; or what
 * publish() of the store returns. Where that version is the expected one it is
 * the store's then.
 */
ngx_int_t ngx_ratelimit_sync_file_check(ngx_ratelimit_limiter_t *limiter,
    uint64_t expected, uint64_t *found, ngx_log_t *log);

/*
 * In a thread: the record of a version of a state file that is ahead of this
 * node, on the heap. NGX_OK, NGX_DECLINED: there is none, or NGX_ERROR.
 */
ngx_int_t ngx_ratelimit_sync_file_read(ngx_ratelimit_limiter_t *limiter,
    uint64_t version, ngx_str_t *text, ngx_log_t *log);

/* sync_call.c */

/* Forgets all calls. */
void ngx_ratelimit_sync_calls_end(ngx_ratelimit_sync_t *sync);

/* sync_put.c */

/*
 * Gives Redis a record, if Redis has the expected version with that id: a call
 * of the control client. NULL: memory is out.
 */
ngx_ratelimit_redis_call_t *ngx_ratelimit_sync_put_send(
    ngx_ratelimit_sync_t *sync, uint64_t expected, uint64_t expected_id,
    const ngx_ratelimit_store_entry_t *entry,
    ngx_ratelimit_redis_control_handler_pt handler, void *data);

/*
 * In a thread: compares what Redis has with what this gateway has. Returns
 * NGX_DECLINED: that of Redis counts; NGX_OK: Redis has lost what it had, or
 * its last writes, and this gateway's record, compile->back, is put back; or
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_sync_compare(
    ngx_ratelimit_sync_compile_t *compile);

/* sync_text.c */

/* A version or a count, and an id, of an answer: NGX_OK or NGX_ERROR. */
ngx_int_t ngx_ratelimit_sync_number(const ngx_str_t *text, uint64_t *number);
ngx_int_t ngx_ratelimit_sync_id(const ngx_str_t *text, uint64_t *id);

#endif /* NGX_RATELIMIT_SYNC_INT_H_INCLUDED */

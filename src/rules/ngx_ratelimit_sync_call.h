/*
 * What the files of calls share: a call is what the endpoint asks for.
 */

#ifndef NGX_RATELIMIT_SYNC_CALL_H_INCLUDED
#define NGX_RATELIMIT_SYNC_CALL_H_INCLUDED

#include "ngx_ratelimit_sync_int.h"

#define NGX_RATELIMIT_SYNC_SAVED_MS   20     /* looks whether it is written */
#define NGX_RATELIMIT_SYNC_LATEST     ((uint64_t) 1 << 53)

typedef enum {
    NGX_RATELIMIT_SYNC_PUT = 0,
    NGX_RATELIMIT_SYNC_VERSIONS,
    NGX_RATELIMIT_SYNC_READ,
    NGX_RATELIMIT_SYNC_CHECK,
    NGX_RATELIMIT_SYNC_RESET
} ngx_ratelimit_sync_kind_e;

typedef enum {
    NGX_RATELIMIT_SYNC_WORKS = 0,    /* a job, or Redis */
    NGX_RATELIMIT_SYNC_RETRIES_SOON, /* then the same is asked once more */
    NGX_RATELIMIT_SYNC_SAVES,        /* until the state file has it */
    NGX_RATELIMIT_SYNC_ANSWERS       /* in the next turn */
} ngx_ratelimit_sync_step_e;

/*
 * Lives in a pool of its own, which a job may use while it runs; freed when its
 * handler was called, or nobody waits, and nothing is under way.
 */
struct ngx_ratelimit_sync_call_s {
    ngx_queue_t                     queue;      /* of sync->calls */
    ngx_ratelimit_sync_t           *sync;       /* NULL: it has ended */
    ngx_ratelimit_limiter_t        *limiter;
    ngx_pool_t                     *pool;
    ngx_ratelimit_sync_kind_e       kind;
    ngx_ratelimit_sync_step_e       step;
    ngx_ratelimit_sync_handler_pt   handler;    /* NULL: forgotten */
    void                           *data;

    uint64_t                        version;    /* expected; to be read */
    uint64_t                        id;         /* of what is expected */
    ngx_ratelimit_record_t          record;     /* to be put */
    ngx_ratelimit_store_entry_t     entry;      /* of the store, of Redis; its
                                                   text is on the heap */

    ngx_ratelimit_job_t            *job;
    ngx_ratelimit_redis_call_t     *asked;
    ngx_event_t                     timer;      /* not cancelable: a request
                                                   waits */
    uint64_t                        generation; /* to be saved */
    ngx_msec_t                      since;      /* it waits for that */
    ngx_uint_t                      tries;
    uint64_t                        found;      /* current instead */
    unsigned                        ran:1;      /* a put may have run */
    unsigned                        alone:1;    /* there is no Redis */
    unsigned                        taken:1;    /* Redis has the record */
    ngx_int_t                       rc;         /* of the job */
    ngx_ratelimit_sync_result_t     result;
};


/* sync_call.c */

/* NULL: memory is out. started: rc of what it began with; NULL: that failed. */
ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_new(
    ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_sync_kind_e kind,
    ngx_ratelimit_sync_handler_pt handler, void *data);
ngx_ratelimit_sync_call_t *ngx_ratelimit_sync_call_started(
    ngx_ratelimit_sync_call_t *call, ngx_int_t rc);

/* The answer. A job that still runs frees the call when it is done. */
void ngx_ratelimit_sync_call_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status);

/* The timer fires then, at the given step. */
void ngx_ratelimit_sync_call_wait(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_step_e step, ngx_msec_t ms);

/* A job; Redis, or a job where there is none. Return NGX_OK or NGX_ERROR. */
ngx_int_t ngx_ratelimit_sync_call_job(ngx_ratelimit_sync_call_t *call);
ngx_int_t ngx_ratelimit_sync_call_ask(ngx_ratelimit_sync_call_t *call);


/* sync_put.c */

/* Of a job: in its thread; and when it is done. */
ngx_int_t ngx_ratelimit_sync_put_work(ngx_ratelimit_sync_call_t *call);
void ngx_ratelimit_sync_put_done(ngx_ratelimit_sync_call_t *call);

/* It ends, and has made a version, or may have. */
void ngx_ratelimit_sync_put_log(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status);

/* Of Redis. */
void ngx_ratelimit_sync_put_answer(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result);

/* "<prefix>:rules:<zone>", in pool. Returns NGX_OK, or NGX_ERROR: no memory. */
ngx_int_t ngx_ratelimit_sync_channel(const ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool, ngx_str_t *channel);


/* sync_text.c */

/* Heads: of the script's list; of records. NGX_OK or NGX_ERROR: no memory. */
ngx_int_t ngx_ratelimit_sync_lines(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *texts, ngx_uint_t n);
ngx_int_t ngx_ratelimit_sync_heads(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *records, ngx_uint_t whole);

#endif /* NGX_RATELIMIT_SYNC_CALL_H_INCLUDED */

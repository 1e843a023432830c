/*
 * Operators see here, beside the counts of a zone, its last rejections, the
 * keys with the most requests and the most rejections, and samples of its
 * counts. A zone with an endpoint has shared memory of its own for it.
 */

#ifndef NGX_RL_WATCH_H_INCLUDED
#define NGX_RL_WATCH_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_rl_tally.h"
#include "ngx_rl_lock.h"

/*
 * A ring of records of one size: the last ones that the workers of a gateway
 * have written. A writer waits for nobody. A worker may be killed at any
 * instruction: the record that it was writing is missing, and its slot is
 * written again when its turn comes.
 *
 * Written by init alone, but for next.
 */
typedef struct {
    _Atomic uint64_t  next;       /* number of the next record, from 1 on */
    uint64_t          nslots;
    uint64_t          bytes;      /* of a record */
    uint64_t          slot;       /* bytes of a slot */
} ngx_rl_ring_t;

/* Bytes of a ring of nslots records of that size; init takes them zeroed. */
size_t ngx_rl_ring_size(size_t nslots, size_t bytes);
void ngx_rl_ring_init(ngx_rl_ring_t *ring, size_t nslots, size_t bytes);

/*
 * Writes a record. It is dropped if the workers have gone round since it got
 * its number, or if a living one still writes to its slot.
 */
void ngx_rl_ring_write(ngx_rl_ring_t *ring, const void *record);

/*
 * The same with a number of the caller, as of a step of time: the first writer
 * of a number writes it, and numbers may be left out. A ring is written in one
 * of both ways.
 */
void ngx_rl_ring_put(ngx_rl_ring_t *ring, uint64_t number, const void *record);

/* The number of the newest record, which may not be there yet; 0: none. */
uint64_t ngx_rl_ring_newest(const ngx_rl_ring_t *ring);

/*
 * Copies the record of that number. Returns 1, or 0: it is being written, was
 * dropped or overwritten, and out is garbage.
 */
ngx_uint_t ngx_rl_ring_read(ngx_rl_ring_t *ring, uint64_t number, void *out);

#define NGX_RL_WATCH_LAYOUT      2     /* another one: memory of its own */
#define NGX_RL_WATCH_REJECTIONS  1000

/* Longer texts are cut. "sha256:" and its hexadecimal digits are not. */
#define NGX_RL_WATCH_KEY         78
#define NGX_RL_WATCH_SHA256      32
#define NGX_RL_WATCH_RULE        64
#define NGX_RL_WATCH_ROUTE       112

/* The key of a client: its SHA-256, or its text. A name of a top. */
typedef struct {
    u_char  len;  /* 0: a SHA-256 */
    u_char  cut;
    u_char  data[NGX_RL_WATCH_KEY];
} ngx_rl_watch_key_t;

typedef enum {
    NGX_RL_REJECTED_BY_RULE = 0,
    NGX_RL_REJECTED_BY_DRY_RUN,      /* the request passed */
    NGX_RL_REJECTED_BY_PENALTY       /* whose id rule is; no limit */
} ngx_rl_rejected_e;

typedef struct {
    uint64_t            time_ms;     /* since the epoch */
    uint64_t            retry_us;    /* NEVER: no retry helps */
    uint64_t            window_sec;  /* 0: none */
    uint32_t            limit;
    u_char              by;          /* ngx_rl_rejected_e */
    u_char              rule_len;
    u_char              route_len;
    u_char              route_cut;
    ngx_rl_watch_key_t  key;
    u_char              rule[NGX_RL_WATCH_RULE];
    u_char              route[NGX_RL_WATCH_ROUTE];
} ngx_rl_rejection_t;

/* Five minutes, and one sample to begin with. */
#define NGX_RL_WATCH_STEP_MS  5000
#define NGX_RL_WATCH_STEPS    60
#define NGX_RL_WATCH_SAMPLES  (NGX_RL_WATCH_STEPS + 1)

typedef enum {
    NGX_RL_WATCH_DECISIONS = 0,
    NGX_RL_WATCH_REFUSALS,
    NGX_RL_WATCH_DEGRADED,
    NGX_RL_WATCH_TOTALS
} ngx_rl_watch_total_e;

/* The counts of a zone at the beginning of a step. Its number is the step's. */
typedef struct {
    uint64_t  ms;     /* ngx_current_msec */
    uint64_t  rules;  /* whose counts are in it */
    uint64_t  totals[NGX_RL_WATCH_TOTALS];
} ngx_rl_sample_t;

/* The lists of heaviest keys. */
typedef enum {
    NGX_RL_WATCH_REQUESTS = 0,
    NGX_RL_WATCH_REJECTED,
    NGX_RL_WATCH_TOPS
} ngx_rl_watch_top_e;

typedef struct {
    ngx_rl_lock_t  lock;
    ngx_rl_top_t   top;
} ngx_rl_watch_top_t;

/* A list that was read. */
typedef struct {
    uint64_t           ms;  /* since it began */
    ngx_rl_top_t       top;
    ngx_rl_top_list_t  list;
} ngx_rl_watch_list_t;

typedef struct {
    ngx_str_t  zone;

    /* in shared memory, set before the workers start */
    ngx_rl_ring_t       *rejections;
    ngx_rl_ring_t       *samples;
    ngx_rl_watch_top_t  *tops;

    /* the worker's */
    ngx_rl_sampler_t  samplers[NGX_RL_WATCH_TOPS];
    ngx_event_t       tick;       /* of the samplers: each second */
    ngx_event_t       step;       /* of the samples */
    time_t            penalized;  /* when it kept a penalized request last */

    unsigned  clear:1;  /* keys are texts */
    void     *digest;   /* the worker's: EVP_MD_CTX, made once for all keys */
} ngx_rl_watch_t;


/*
 * Declares the memory of the zone of that name, while the configuration is
 * read; tag is the module. clear: keys are texts, in memory of their own, so
 * none outlives a change to hashes. It lives as long as cf->pool. Returns NULL
 * if memory is out.
 */
ngx_rl_watch_t *ngx_rl_watch_add(ngx_conf_t *cf, const ngx_str_t *zone,
    ngx_uint_t clear, void *tag);

/* A worker begins to serve. */
void ngx_rl_watch_begin(ngx_rl_watch_t *watch, ngx_log_t *log);

/*
 * Whether one more of a list's stream is taken: most requests pay for this
 * alone. watch may be NULL.
 */
#define ngx_rl_watch_due(watch, which)                                        \
    ((watch) && --(watch)->samplers[which].left == 0)

/* Reads a list, as it is now; out->list points into out->top. */
void ngx_rl_watch_read(ngx_rl_watch_t *watch, ngx_rl_watch_top_e which,
    ngx_rl_watch_list_t *out);

/* How many a second; in the first second, as if it were over. */
#define ngx_rl_watch_per_second(list, count)                                  \
    ((double) (count) * 1000 / (double) ngx_max((list)->ms, 1000))

/* Writes the SHA-256 of a text. NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_watch_digest(const ngx_rl_watch_t *watch,
    const ngx_str_t *text, u_char *digest);

#endif /* NGX_RL_WATCH_H_INCLUDED */

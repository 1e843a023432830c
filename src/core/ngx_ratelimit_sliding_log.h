/*
 * The sliding log: exact, a place for each request in the window. The places
 * are a ring of 2^14; the caller keeps them, wherever it likes, and may lose
 * some (a lost place has expired). lua/sliding_log.lua decides the same on a
 * sorted set.
 */

#ifndef NGX_RATELIMIT_SLIDING_LOG_H_INCLUDED
#define NGX_RATELIMIT_SLIDING_LOG_H_INCLUDED

#include "ngx_ratelimit_limit.h"

#define NGX_RATELIMIT_LOG_PLACES  16384   /* a power of two, above MAX_LOG */

/* All zero is a fresh log. */
typedef struct {
    uint64_t  fresh_us;    /* when its newest place expires; < 2^52 */
    uint32_t  head;        /* the next place, < LOG_PLACES */
    uint32_t  count;       /* places in use before it, <= MAX_LOG */
} ngx_ratelimit_log_t;

/* One place: a request at at_us, in a window of window_us. */
typedef struct {
    uint64_t  fresh_us;    /* at_us + window_us: when it expires; < 2^52 */
    uint64_t  window_us;   /* whole milliseconds, < 2^44 of them */
} ngx_ratelimit_log_place_t;

/*
 * Where the places are. get of a lost one leaves fresh_us 0. Both are called
 * while the caller holds the log, and must not call back.
 */
typedef struct {
    void  (*get)(void *data, uint32_t n, ngx_ratelimit_log_place_t *place);
    void  (*set)(void *data, uint32_t n,
                 const ngx_ratelimit_log_place_t *place);
    void   *data;
} ngx_ratelimit_log_places_t;


/*
 * Takes places; cost, want and the answer are those of
 * ngx_ratelimit_token_bucket_take(). A place expires one window after its
 * request, by the window of the limit now. A request behind the newest place's
 * time (a clock set back, another worker's) stands at that time.
 */
void ngx_ratelimit_sliding_log_take(ngx_ratelimit_log_t *log,
    const ngx_ratelimit_log_places_t *places,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer);

/*
 * Gives back tokens that were taken at taken_us: those places, and no later
 * ones. Looks at 64 later places at most, else gives nothing back.
 */
void ngx_ratelimit_sliding_log_give(ngx_ratelimit_log_t *log,
    const ngx_ratelimit_log_places_t *places,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint64_t taken_us,
    uint32_t tokens);

#endif /* NGX_RATELIMIT_SLIDING_LOG_H_INCLUDED */

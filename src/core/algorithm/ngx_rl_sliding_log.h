/*
 * The sliding log: exact, a place for each request in the window. The places
 * are a ring of 2^14; the caller keeps them, wherever it likes, and may lose
 * some (a lost place has expired). lua/sliding_log.lua decides the same on a
 * sorted set.
 */

#ifndef NGX_RL_SLIDING_LOG_H_INCLUDED
#define NGX_RL_SLIDING_LOG_H_INCLUDED

#include "ngx_rl_limit.h"

#define NGX_RL_LOG_PLACES  16384   /* a power of two, above MAX_LOG */

/* All zero is a fresh log. */
typedef struct {
    uint64_t  fresh_us;    /* when its newest place expires; < 2^52 */
    uint32_t  head;        /* the next place, < LOG_PLACES */
    uint32_t  count;       /* places in use before it, < LOG_PLACES */
} ngx_rl_log_t;

/*
 * One place: a request at fresh_us - window_us. Its window is at least as long
 * as those of all later places.
 */
typedef struct {
    uint64_t  fresh_us;    /* when it expires, at the latest; < 2^52 */
    uint64_t  window_us;   /* whole milliseconds, < 2^44 of them */
} ngx_rl_log_place_t;

/*
 * Where the places are. get of a lost one leaves fresh_us 0. Both are called
 * while the caller holds the log, and must not call back.
 */
typedef struct {
    void  (*get)(void *data, uint32_t n, ngx_rl_log_place_t *place);
    void  (*set)(void *data, uint32_t n, const ngx_rl_log_place_t *place);
    void   *data;
} ngx_rl_log_places_t;


/*
 * Takes places; cost, want and the answer are those of
 * ngx_rl_token_bucket_take(). A place expires one window after its
 * request, by the window of the limit now; expired at a take, it has expired
 * for good. retry_us is exact if nobody else takes.
 *
 * A request behind the newest place's time (another worker's clock) stands at
 * that time. Where that is more than a second away the clock was set back: then
 * the places that are later than now stand at now, as many as they are. A log
 * that is charged has no more than LOG_PLACES less one.
 *
 * Costs two gets, and one for each place that expires; one set for each token.
 * A window that grew sets each of the places once. As of the token bucket,
 * the log may change even when nothing was taken.
 */
void ngx_rl_sliding_log_take(ngx_rl_log_t *log,
    const ngx_rl_log_places_t *places, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, uint32_t want, ngx_rl_answer_t *answer);

/*
 * Gives back tokens that were taken at taken_us, unless that was a window ago.
 * The oldest places that are not before taken_us go: they are the request's, or
 * as much older as the workers' clocks differ. If more than 64 other places are
 * later, the oldest places of all go: the tokens are there again at once, and
 * the request's own places come back in their stead. WHENEVER: the newest go.
 */
void ngx_rl_sliding_log_give(ngx_rl_log_t *log,
    const ngx_rl_log_places_t *places, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t taken_us, uint32_t tokens);

#endif /* NGX_RL_SLIDING_LOG_H_INCLUDED */

/*
 * A counter that is split into parts, each with its share of the limit: what a
 * node remembers of the parts, so that a request asks none that is known to
 * deny, and its answer tells of all.
 */

#ifndef NGX_RATELIMIT_SPLIT_H_INCLUDED
#define NGX_RATELIMIT_SPLIT_H_INCLUDED

#include "ngx_ratelimit_limit.h"

#define NGX_RATELIMIT_SPLIT_PARTS  6   /* of one piece of memory */

/*
 * In shared memory, of some parts of one counter, under one limit; all zero:
 * nothing is known, and the parts count as fresh. Instants are of the clock of
 * now_us (monotonic, < 2^51).
 */
typedef struct {
    uint64_t  busy_us;       /* until then it says something; first: the table
                                of leases reads it */
    uint64_t  fresh_us;      /* of windows: until then the parts say something;
                                fixed_window: their end */
    union {
        uint64_t      full_us;     /* token_bucket: when it is full again */
        struct {
            uint32_t  used;        /* of windows */
            uint32_t  until_ms;    /* sliding_window: denies until then, by the
                                      lower 32 bits; 0: does not */
        } window;
    } parts[NGX_RATELIMIT_SPLIT_PARTS];
} ngx_ratelimit_split_t;


/*
 * What is known of part k (below NGX_RATELIMIT_SPLIT_PARTS), whose limit is
 * share: what is left of it, when it equals a fresh one, and retry_us: 0 where
 * it may have the cost (1..its capacity), else when it can be asked again.
 * granted is 0.
 */
void ngx_ratelimit_split_look(const ngx_ratelimit_split_t *split, unsigned k,
    const ngx_ratelimit_limit_t *share, uint64_t now_us, uint32_t cost,
    ngx_ratelimit_answer_t *answer);

/*
 * Keeps what Redis has answered to who asked part k for the cost; now_us is
 * when the answer came. What is left of a fixed window's part only becomes
 * less in a window, whatever is given back to it.
 */
void ngx_ratelimit_split_note(ngx_ratelimit_split_t *split, unsigned k,
    const ngx_ratelimit_limit_t *share, uint64_t now_us,
    const ngx_ratelimit_answer_t *answer);

#endif /* NGX_RATELIMIT_SPLIT_H_INCLUDED */

/*
 * A split counter has parts, each with its share of the limit. A gateway
 * remembers here what Redis said of them: so a request asks no part that is
 * known to reject it, and its answer counts the tokens of all.
 */

#ifndef NGX_RL_SPLIT_H_INCLUDED
#define NGX_RL_SPLIT_H_INCLUDED

#include "ngx_rl_limit.h"

#define NGX_RL_SPLIT_PARTS  6   /* of one piece of memory */

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
            uint32_t  until_ms;    /* sliding_window: rejects until then, by
                                      the lower 32 bits; 0: does not */
        } window;
    } parts[NGX_RL_SPLIT_PARTS];
} ngx_rl_split_t;


/*
 * Fills the answer with what is left of part k (below
 * NGX_RL_SPLIT_PARTS), whose limit is share, and with when it equals a
 * fresh one. retry_us is 0 if it may have the cost (1..its capacity), else the
 * time until it can be asked again. granted is 0.
 */
void ngx_rl_split_look(const ngx_rl_split_t *split, unsigned k,
    const ngx_rl_limit_t *share, uint64_t now_us, uint32_t cost,
    ngx_rl_answer_t *answer);

/*
 * Keeps Redis' answer to a call that asked part k for the cost; now_us is when
 * it came. In a fixed window the tokens left only become fewer, whatever is
 * given back.
 */
void ngx_rl_split_note(ngx_rl_split_t *split, unsigned k,
    const ngx_rl_limit_t *share, uint64_t now_us,
    const ngx_rl_answer_t *answer);

#endif /* NGX_RL_SPLIT_H_INCLUDED */

/*
 * Concurrency: requests in flight. lua/concurrency.lua decides the same on a
 * sorted set of leases, each with a deadline.
 */

#ifndef NGX_RATELIMIT_CONCURRENCY_H_INCLUDED
#define NGX_RATELIMIT_CONCURRENCY_H_INCLUDED

#include "ngx_ratelimit_limit.h"

/* When a slot will be free nobody knows: what a client is told to wait. */
#define NGX_RATELIMIT_SLOT_RETRY_US  1000000

/*
 * Takes a slot where fewer than the capacity are in use; cost 0 looks, and so
 * does want NGX_RATELIMIT_LOOK. *in_use is the slots in use. granted is 0 or
 * 1, reset_us 0, retry_us NGX_RATELIMIT_SLOT_RETRY_US where denied.
 */
void ngx_ratelimit_concurrency_take(uint32_t *in_use,
    const ngx_ratelimit_limit_t *limit, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer);

#endif /* NGX_RATELIMIT_CONCURRENCY_H_INCLUDED */

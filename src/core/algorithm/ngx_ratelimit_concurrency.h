/*
 * Concurrency: requests in flight. lua/concurrency.lua decides the same on a
 * sorted set of permits, each with a deadline.
 */

#ifndef NGX_RATELIMIT_CONCURRENCY_H_INCLUDED
#define NGX_RATELIMIT_CONCURRENCY_H_INCLUDED

#include "ngx_ratelimit_limit.h"

/* Nobody knows when a permit will be free: Retry-After says so much. */
#define NGX_RATELIMIT_PERMIT_RETRY_US  1000000

/*
 * Takes a permit if fewer than the capacity are in use. cost 0 looks, and so
 * does want NGX_RATELIMIT_LOOK. *in_use is the permits in use. granted is 0 or
 * 1, reset_us 0, and retry_us NGX_RATELIMIT_PERMIT_RETRY_US if it rejects.
 */
void ngx_ratelimit_concurrency_take(uint32_t *in_use,
    const ngx_ratelimit_limit_t *limit, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer);

#endif /* NGX_RATELIMIT_CONCURRENCY_H_INCLUDED */

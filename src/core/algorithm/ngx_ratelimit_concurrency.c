/*
 * Requests in flight: a number, and whether it may grow.
 */

#include "ngx_ratelimit_concurrency.h"


void
ngx_ratelimit_concurrency_take(uint32_t *in_use,
    const ngx_ratelimit_limit_t *limit, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer)
{
    answer->granted = 0;
    answer->retry_us = 0;
    answer->reset_us = 0;

    if (cost && *in_use >= limit->capacity) {
        answer->retry_us = NGX_RATELIMIT_PERMIT_RETRY_US;

    } else if (cost && want != NGX_RATELIMIT_LOOK) {
        (*in_use)++;
        answer->granted = 1;
    }

    answer->remaining = (*in_use < limit->capacity)
                        ? limit->capacity - *in_use : 0;
}

/*
 * A histogram of times: words that a caller keeps, a count for each bucket and
 * the sum.
 */

#ifndef NGX_RL_HISTOGRAM_H_INCLUDED
#define NGX_RL_HISTOGRAM_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_HISTOGRAM_BOUNDS  16

/* the buckets, the last one above all bounds; then the sum in microseconds */
#define NGX_RL_HISTOGRAM_SUM    (NGX_RL_HISTOGRAM_BOUNDS + 1)
#define NGX_RL_HISTOGRAM_WORDS  (NGX_RL_HISTOGRAM_BOUNDS + 2)

/* the greatest time of each bucket, in microseconds, increasing */
extern const uint64_t ngx_rl_histogram_bounds_us[NGX_RL_HISTOGRAM_BOUNDS];

/* The number of the bucket of a time. */
unsigned ngx_rl_histogram_bucket(uint64_t us);

#endif /* NGX_RL_HISTOGRAM_H_INCLUDED */

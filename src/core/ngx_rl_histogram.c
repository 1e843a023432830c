/* Histograms: the bounds, from a fast Redis nearby to a long delay. */

#include "ngx_rl_histogram.h"

const uint64_t
ngx_rl_histogram_bounds_us[NGX_RL_HISTOGRAM_BOUNDS] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000,
    500000, 1000000, 2500000, 5000000, 10000000
};


unsigned
ngx_rl_histogram_bucket(uint64_t us)
{
    unsigned  i;

    for (i = 0; i < NGX_RL_HISTOGRAM_BOUNDS; i++) {
        if (us <= ngx_rl_histogram_bounds_us[i]) {
            break;
        }
    }

    return i;
}

/* Pauses between attempts to connect. */

#include "ngx_rl_backoff.h"


static uint32_t
ngx_rl_backoff_double(uint32_t ms, uint32_t times, uint32_t max_ms)
{
    while (times-- && ms < max_ms) {
        ms *= 2;
    }

    return ms < max_ms ? ms : max_ms;
}


uint32_t
ngx_rl_backoff_pause_ms(uint32_t failures, uint32_t busy, uint32_t random)
{
    uint32_t  pause_ms;

    pause_ms = busy ? ngx_rl_backoff_double(
                          NGX_RL_BACKOFF_MAX_MS, busy,
                          NGX_RL_BACKOFF_BUSY_MS)
                    : ngx_rl_backoff_double(
                          NGX_RL_BACKOFF_MIN_MS, failures,
                          NGX_RL_BACKOFF_MAX_MS);

    return pause_ms - random % (pause_ms / 2);
}

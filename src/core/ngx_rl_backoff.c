/* Pauses between attempts to connect. */

#include "ngx_rl_backoff.h"


uint32_t
ngx_rl_backoff_pause_ms(uint32_t failures, uint32_t busy, uint32_t random)
{
    uint32_t  pause_ms, max_ms, times;

    pause_ms = busy ? NGX_RL_BACKOFF_MAX_MS : NGX_RL_BACKOFF_MIN_MS;
    max_ms = busy ? NGX_RL_BACKOFF_BUSY_MS : NGX_RL_BACKOFF_MAX_MS;

    for (times = busy ? busy : failures; times && pause_ms < max_ms; times--) {
        pause_ms *= 2;
    }

    pause_ms = ngx_rl_min(pause_ms, max_ms);

    return pause_ms - random % (pause_ms / 2);
}

/* One log line of a kind in an interval, and how many were suppressed. */

#include "ngx_rl_log_limit.h"
#include "ngx_rl_text.h"

#include <string.h>


int
ngx_rl_log_due(ngx_rl_log_limit_t *limit, uint64_t now_ms, uint64_t interval_ms,
    char note[NGX_RL_LOG_NOTE])
{
    u_char    *p;
    uint64_t   last, apart, suppressed;

    /* 0 means that there was no line */

    now_ms = now_ms ? now_ms : 1;
    last = atomic_load(&limit->written_ms);

    /* processes cache the time, so the last line may seem to be ahead */

    apart = (now_ms > last) ? now_ms - last : last - now_ms;

    if ((last && apart < interval_ms)
        || !atomic_compare_exchange_strong(&limit->written_ms, &last, now_ms))
    {
        (void) atomic_fetch_add(&limit->suppressed, 1);
        return 0;
    }

    suppressed = atomic_exchange(&limit->suppressed, 0);
    *note = '\0';

    if (suppressed) {
        memcpy(note, " (", 2);
        p = ngx_rl_number_write((u_char *) note + 2, suppressed);
        strcpy((char *) p, suppressed == 1 ? " similar line suppressed)"
                                           : " similar lines suppressed)");
    }

    return 1;
}

/*
 * Parts of a split counter: what Redis has said of them, and for how long it
 * holds. Redis spoke before the answer came, so a moment that is counted from
 * the answer on is never too early.
 */

#include "ngx_rl_split.h"

/* nothing is known of a counter that nobody has touched for so long */
#define NGX_RL_SPLIT_BUSY_US  1000000

/*
 * A rejection keeps its place for so long against others. After that, if the
 * place is needed, a client that is rejected for longer costs one more call.
 */
#define NGX_RL_SPLIT_KEEP_US  60000000

/* what until_ms holds; a longer rejection costs one more call in 12 days */
#define NGX_RL_SPLIT_MAX_US   ((uint64_t) 1000 << 30)


void
ngx_rl_split_look(const ngx_rl_split_t *split, unsigned k,
    const ngx_rl_limit_t *share, uint64_t now_us, uint32_t cost,
    ngx_rl_answer_t *answer)
{
    int32_t                left_ms;
    ngx_rl_token_bucket_t  tb;

    if (share->algorithm == NGX_RL_TOKEN_BUCKET) {
        tb.tat_us = split->parts[k].full_us;
        tb.tat_frac = 0;
        tb.span_code = share->rate.span_code;

        ngx_rl_token_bucket_take(&tb, &share->rate, now_us, cost,
                                 NGX_RL_LOOK, answer);
        return;
    }

    memset(answer, 0, sizeof(ngx_rl_answer_t));
    answer->remaining = share->capacity;

    if (now_us >= split->fresh_us || split->parts[k].window.used == 0) {
        return;
    }

    answer->remaining -= split->parts[k].window.used;
    answer->reset_us = split->fresh_us - now_us;

    if (share->algorithm == NGX_RL_FIXED_WINDOW) {
        answer->retry_us = (answer->remaining < cost) ? answer->reset_us : 0;
        return;
    }

    left_ms = (int32_t) (split->parts[k].window.until_ms
                         - (uint32_t) (now_us / 1000));

    if (split->parts[k].window.until_ms && left_ms > 0) {
        answer->retry_us = (uint64_t) left_ms * 1000;
    }
}


void
ngx_rl_split_note(ngx_rl_split_t *split, unsigned k,
    const ngx_rl_limit_t *share, uint64_t now_us, const ngx_rl_answer_t *answer)
{
    int       fixed;
    uint64_t  busy_us, fresh_us, retry_us;
    uint32_t  used, until_ms;

    busy_us = NGX_RL_SPLIT_BUSY_US;

    if (answer->retry_us != NGX_RL_NEVER) {
        busy_us = ngx_rl_max(answer->retry_us, busy_us);
        busy_us = ngx_rl_min(busy_us, NGX_RL_SPLIT_KEEP_US);
    }

    split->busy_us = ngx_rl_max(split->busy_us, now_us + busy_us);

    if (share->algorithm == NGX_RL_TOKEN_BUCKET) {
        split->parts[k].full_us = now_us + answer->reset_us;
        return;
    }

    fixed = (share->algorithm == NGX_RL_FIXED_WINDOW);
    fresh_us = now_us + answer->reset_us;
    used = share->capacity - answer->remaining;

    if (now_us >= split->fresh_us
        || (fixed && fresh_us > split->fresh_us + share->window_us / 2))
    {
        memset(split->parts, 0, sizeof(split->parts));
        split->fresh_us = fresh_us;
    }

    if (!fixed) {
        retry_us = ngx_rl_min(answer->retry_us, NGX_RL_SPLIT_MAX_US);
        until_ms = (uint32_t) ((now_us + retry_us + 999) / 1000);
        until_ms = ngx_rl_max(until_ms, 1);

        split->fresh_us = ngx_rl_max(split->fresh_us, fresh_us);
        split->parts[k].window.used = used;
        split->parts[k].window.until_ms = retry_us ? until_ms : 0;
        return;
    }

    /* a late answer, of the window before */

    if (fresh_us + share->window_us / 2 < split->fresh_us) {
        return;
    }

    /* the windows of all parts end at once, and no answer says it too early */

    split->fresh_us = ngx_rl_min(split->fresh_us, fresh_us);
    split->parts[k].window.used = ngx_rl_max(split->parts[k].window.used, used);
}

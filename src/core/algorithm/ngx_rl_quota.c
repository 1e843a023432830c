/* The parameters of items of RateLimit-Policy and RateLimit. */

#include "ngx_rl_hash.h"
#include "ngx_rl_quota.h"
#include "ngx_rl_text.h"

#define ngx_rl_quota_put(p, text)                                             \
    ((u_char *) memcpy(p, text, sizeof(text) - 1) + sizeof(text) - 1)


uint64_t
ngx_rl_quota_more_us(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    uint64_t              others, others_us;
    const ngx_rl_rate_t  *rate;

    if (limit->algorithm == NGX_RL_CONCURRENCY) {
        return NGX_RL_NEVER;
    }

    if (answer->retry_us && answer->retry_us != NGX_RL_NEVER) {
        return answer->retry_us;
    }

    if (ngx_rl_limit_left(limit, answer)
        || (limit->algorithm != NGX_RL_TOKEN_BUCKET
            && limit->algorithm != NGX_RL_LEAKY_BUCKET))
    {
        return answer->reset_us;
    }

    /* a span is below 2^50 microseconds, a fraction of it below 2^52 */

    rate = &limit->rate;
    others = rate->open - 1;
    others_us = others * rate->step_us + others * rate->step_frac / rate->scale;

    return (answer->reset_us > others_us) ? answer->reset_us - others_us
                                          : answer->reset_us;
}


u_char *
ngx_rl_quota_policy(u_char *out, const ngx_rl_limit_t *limit)
{
    u_char  *p;
    size_t   start, len;

    /* "120;w=60" of "120, 120;w=60" */

    start = (limit->algorithm == NGX_RL_CONCURRENCY)
            ? 0 : limit->digits + sizeof(", ") - 1;
    len = limit->text_len - start;

    p = ngx_rl_quota_put(out, ";q=");
    memcpy(p, limit->text + start, len);
    p += len;

    return start ? p : ngx_rl_quota_put(p, ";qu=\"concurrent-requests\"");
}


u_char *
ngx_rl_quota_left(u_char *out, uint32_t remaining, uint64_t more_us)
{
    u_char  *p;

    p = ngx_rl_quota_put(out, ";r=");
    p = ngx_rl_number_write(p, remaining);

    if (more_us != NGX_RL_NEVER) {
        p = ngx_rl_quota_put(p, ";t=");
        p = ngx_rl_number_write(p, ngx_rl_seconds_up(more_us));
    }

    return p;
}


/*
 * The id is the key of the hash: the output of a keyed hash and all of its
 * input do not reveal the key. A client that had the id could choose which
 * place of the table, or which hash of Redis, it loads.
 */
ngx_rl_id_t
ngx_rl_quota_shown(const u_char *id)
{
    return ngx_rl_siphash(id, (const u_char *) "pk", 2, 2, 4);
}


void
ngx_rl_quota_pk(u_char out[NGX_RL_PK_TEXT], const u_char *id)
{
    size_t       i;
    u_char      *p, pk[NGX_RL_PK_BYTES];
    uint32_t     three;
    ngx_rl_id_t  hash;

    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    hash = ngx_rl_quota_shown(id);
    memcpy(pk, &hash, sizeof(pk));

    p = ngx_rl_quota_put(out, ";pk=:");

    for (i = 0; i < NGX_RL_PK_BYTES; i += 3) {
        three = (uint32_t) pk[i] << 16 | (uint32_t) pk[i + 1] << 8 | pk[i + 2];

        *p++ = (u_char) digits[three >> 18];
        *p++ = (u_char) digits[three >> 12 & 63];
        *p++ = (u_char) digits[three >> 6 & 63];
        *p++ = (u_char) digits[three & 63];
    }

    *p = ':';
}

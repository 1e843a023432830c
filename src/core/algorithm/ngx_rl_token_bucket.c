/*
 * The token bucket. Every decision is made on "used": how long the bucket,
 * left alone, takes from now until it is full. A bucket that is used for its
 * whole span is empty. lua/token_bucket.lua makes the same decisions.
 *
 * The span code keeps a span in 12 bits as a small floating-point number: 6
 * bits of exponent e, 6 bits of mantissa m. With e = 0 it is the span m. With
 * e > 0 it is the spans from (64 + m) * 2^(e-1) up to the next mantissa's. No
 * bucket in use has code 0: a span below a microsecond takes the code of one.
 */

#include "ngx_rl_token_bucket.h"

typedef unsigned __int128  ngx_rl_wide_t;

static const ngx_rl_interval_t  ngx_rl_no_time = { 0, 0 };


static uint64_t
ngx_rl_gcd(uint64_t a, uint64_t b)
{
    uint64_t  rest;

    while (b) {
        rest = a % b;
        a = b;
        b = rest;
    }

    return a;
}


uint32_t
ngx_rl_span_encode(uint64_t span_us)
{
    uint32_t  exponent;

    if (span_us == 0) {
        return 1;
    }

    for (exponent = 0; span_us >= 128; exponent++) {
        span_us >>= 1;
    }

    /* 64..127 with the exponent added is exponent + 1 and span_us - 64 */

    return (exponent << 6) + (uint32_t) span_us;
}


int
ngx_rl_rate_init(ngx_rl_rate_t *rate, uint64_t tokens, uint64_t period_us,
    uint64_t capacity)
{
    uint64_t           divisor;
    ngx_rl_wide_t      wide;
    ngx_rl_interval_t  span;

    if (tokens == 0 || tokens > NGX_RL_MAX_TOKENS
        || period_us == 0 || period_us > NGX_RL_MAX_PERIOD_US
        || capacity == 0 || capacity > NGX_RL_MAX_TOKENS)
    {
        return -1;
    }

    divisor = ngx_rl_gcd(period_us, tokens);
    period_us /= divisor;
    tokens /= divisor;

    if (tokens > NGX_RL_MAX_SCALE) {

        /* rounded up: the rate becomes lower, never higher */

        wide = (ngx_rl_wide_t) period_us * NGX_RL_MAX_SCALE;
        period_us = (uint64_t) ((wide + tokens - 1) / tokens);
        tokens = NGX_RL_MAX_SCALE;

        divisor = ngx_rl_gcd(period_us, tokens);
        period_us /= divisor;
        tokens /= divisor;
    }

    wide = (ngx_rl_wide_t) capacity * period_us;

    if (wide > (ngx_rl_wide_t) NGX_RL_MAX_SPAN_US * tokens) {
        return -1;
    }

    rate->period_us = period_us;
    rate->scale = (uint32_t) tokens;
    rate->capacity = (uint32_t) capacity;

    rate->step_us = period_us / tokens;
    rate->step_frac = (uint32_t) (period_us % tokens);

    span = ngx_rl_interval_add(rate, ngx_rl_no_time, capacity);

    rate->span_us = span.us;
    rate->span_frac = (uint32_t) span.frac;
    rate->span_code = ngx_rl_span_encode(span.us);

    rate->open = rate->capacity;
    rate->open_us = rate->span_us;
    rate->open_frac = rate->span_frac;
    rate->most_us = ngx_rl_token_bucket_most(rate) + NGX_RL_CLOCK_SLACK_US;

    rate->share = UINT64_MAX;

    if (span.us > 255) {
        wide = ((ngx_rl_wide_t) 255 << 64) / span.us;
        rate->share = (uint64_t) wide;
    }

    return 0;
}


uint64_t
ngx_rl_span_decode(uint32_t code)
{
    uint32_t  exponent, mantissa;

    exponent = code >> 6;
    mantissa = code & 63;

    if (exponent == 0) {
        return mantissa;
    }

    return (uint64_t) (64 + mantissa) << (exponent - 1);
}


void
ngx_rl_token_bucket_take(ngx_rl_token_bucket_t *tb, const ngx_rl_rate_t *rate,
    uint64_t now_us, uint32_t cost, uint32_t want, ngx_rl_answer_t *answer)
{
    ngx_rl_token_bucket_pay(tb, rate, now_us, cost, want, answer);

    answer->remaining = ngx_rl_token_bucket_remaining(rate, answer);
}


ngx_rl_token_bucket_t
ngx_rl_token_bucket_other(ngx_rl_token_bucket_t tb, const ngx_rl_rate_t *rate,
    uint64_t now_us, uint32_t cost, uint32_t want, ngx_rl_answer_t *answer)
{
    ngx_rl_token_bucket_run(&tb, rate, now_us, cost, want, 0, answer);

    return tb;
}


/* The greatest number of tokens that fits in a time. */
static inline uint32_t
ngx_rl_interval_tokens(const ngx_rl_rate_t *rate, uint64_t us, uint64_t frac)
{
    ngx_rl_wide_t  wide;

    wide = (ngx_rl_wide_t) us * rate->scale + frac;

    if ((uint64_t) (wide >> 64) == 0) {
        return (uint32_t) ((uint64_t) wide / rate->period_us);
    }

    return (uint32_t) (wide / rate->period_us);
}


void
ngx_rl_token_bucket_look(const ngx_rl_rate_t *rate, uint64_t now_us,
    uint64_t full_us, ngx_rl_answer_t *answer)
{
    uint64_t  used_us;

    used_us = full_us > now_us ? full_us - now_us : 0;

    if (used_us > rate->most_us) {
        used_us = rate->span_us + (rate->span_frac != 0);
    }

    answer->granted = 0;
    answer->remaining = 0;
    answer->reset_us = used_us;
    answer->retry_us = 0;

    if (used_us == 0) {
        answer->remaining = rate->open;

    } else if (used_us <= rate->open_us) {
        answer->remaining = ngx_rl_interval_tokens(rate,
                                                   rate->open_us - used_us,
                                                   rate->open_frac);
    }
}


ngx_rl_interval_t
ngx_rl_token_bucket_charge(const ngx_rl_rate_t *rate, uint32_t tokens,
    ngx_rl_interval_t used)
{
    uint64_t  most;

    used = ngx_rl_interval_add(rate, used, tokens);
    most = ngx_rl_token_bucket_most(rate);

    if (used.us > most) {
        used.us = most;
        used.frac = 0;
    }

    return used;
}


void
ngx_rl_token_bucket_give(ngx_rl_token_bucket_t *tb, const ngx_rl_rate_t *rate,
    uint64_t now_us, uint64_t taken_us, uint32_t tokens)
{
    ngx_rl_interval_t  used, price;

    if (now_us > taken_us && now_us - taken_us > rate->span_us) {
        return;
    }

    (void) ngx_rl_token_bucket_settle(tb, rate, now_us, 0, &used);

    if (used.us == 0 && used.frac == 0) {
        return;
    }

    tokens = ngx_rl_min(tokens, rate->capacity);
    price = ngx_rl_interval_add(rate, ngx_rl_no_time, tokens);

    used = ngx_rl_interval_less(used, price)
           ? ngx_rl_no_time
           : ngx_rl_interval_sub(rate, used, price);

    ngx_rl_token_bucket_save(tb, rate, now_us, used);
}


/*
 * A rule's new limit keeps the share that is used, and the share that is owed.
 *
 * Doubles, against the rule of the house: the product has up to 102 bits, and
 * Lua inside Redis has only doubles. One multiplication, one division and a
 * rounding up of IEEE doubles give the same bits on both sides. An error of a
 * few 2^-53 is far below the code's 1/64. An empty bucket stays empty and owes
 * nothing: its quotient is at most a fraction of a microsecond below the new
 * span, which the rounding up makes good, or 1/64 above it.
 */
ngx_rl_interval_t
ngx_rl_token_bucket_rescale(uint32_t old_code, const ngx_rl_rate_t *rate,
    ngx_rl_interval_t used)
{
    double    share_us;
    uint64_t  most;

    share_us = (double) (used.us + (used.frac != 0));
    share_us = share_us * (double) rate->span_us;
    share_us = share_us / (double) ngx_rl_span_decode(old_code);

    most = ngx_rl_token_bucket_most(rate);
    used.frac = 0;

    if (share_us >= (double) most) {
        used.us = most;
        return used;
    }

    used.us = (uint64_t) share_us;
    used.us += (double) used.us < share_us;

    if (used.us >= rate->span_us
        && share_us <= (double) rate->span_us * (65.0 / 64))
    {
        return ngx_rl_interval_span(rate);
    }

    return used;
}


/* The greatest number of tokens that fits in what is open and not used. */
uint32_t
ngx_rl_token_bucket_left(const ngx_rl_rate_t *rate, ngx_rl_interval_t used)
{
    ngx_rl_interval_t  open;

    if (used.us == 0 && used.frac == 0) {
        return rate->open;
    }

    open = ngx_rl_interval_open(rate);

    if (ngx_rl_interval_less(open, used)) {
        return 0;
    }

    used = ngx_rl_interval_sub(rate, open, used);

    return ngx_rl_interval_tokens(rate, used.us, used.frac);
}

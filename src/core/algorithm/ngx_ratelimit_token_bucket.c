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

#include "ngx_ratelimit_token_bucket.h"


/*
 * Workers cache the time, so one may be behind another, and a bucket then looks
 * a little more used than the most that can be used. Up to here that is left as
 * it is, for cutting it down would give the same time's tokens twice. Beyond,
 * the clock itself was set back, and the bucket starts again as empty.
 */
#define NGX_RATELIMIT_CLOCK_SLACK_US  1000000

typedef unsigned __int128  ngx_ratelimit_wide_t;

/* for what few takes need: inlined, it would cost all others registers */
#define ngx_ratelimit_rare    __attribute__((noinline))
#define ngx_ratelimit_inline  inline __attribute__((always_inline))

/* us + frac / rate->scale microseconds */
typedef struct {
    uint64_t  us;
    uint64_t  frac;
} ngx_ratelimit_interval_t;


static uint64_t ngx_ratelimit_gcd(uint64_t a, uint64_t b);
static ngx_ratelimit_rare void ngx_ratelimit_token_bucket_other(
    ngx_ratelimit_token_bucket_t *tb, const ngx_ratelimit_rate_t *rate,
    uint64_t now_us, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer);
static ngx_ratelimit_inline void ngx_ratelimit_token_bucket_run(
    ngx_ratelimit_token_bucket_t *tb, const ngx_ratelimit_rate_t *rate,
    uint64_t now_us, uint32_t cost, uint32_t want,
    ngx_ratelimit_answer_t *answer);
static ngx_ratelimit_rare
    ngx_ratelimit_interval_t ngx_ratelimit_token_bucket_charge(
    const ngx_ratelimit_rate_t *rate, uint32_t tokens,
    ngx_ratelimit_interval_t used);
static inline int ngx_ratelimit_token_bucket_settle(
    const ngx_ratelimit_token_bucket_t *tb, const ngx_ratelimit_rate_t *rate,
    uint64_t now_us, ngx_ratelimit_interval_t *used);
static ngx_ratelimit_rare
    ngx_ratelimit_interval_t ngx_ratelimit_token_bucket_rescale(
    uint32_t old_code, const ngx_ratelimit_rate_t *rate,
    ngx_ratelimit_interval_t used);
static inline uint64_t ngx_ratelimit_token_bucket_most(
    const ngx_ratelimit_rate_t *rate);
static inline void ngx_ratelimit_token_bucket_save(
    ngx_ratelimit_token_bucket_t *tb, const ngx_ratelimit_rate_t *rate,
    uint64_t now_us, ngx_ratelimit_interval_t used);
static inline uint32_t ngx_ratelimit_interval_tokens(
    const ngx_ratelimit_rate_t *rate, uint64_t us, uint64_t frac);
static ngx_ratelimit_rare uint32_t ngx_ratelimit_token_bucket_left(
    const ngx_ratelimit_rate_t *rate, ngx_ratelimit_interval_t used);
static inline ngx_ratelimit_interval_t ngx_ratelimit_interval_span(
    const ngx_ratelimit_rate_t *rate);
static inline ngx_ratelimit_interval_t ngx_ratelimit_interval_add(
    const ngx_ratelimit_rate_t *rate, ngx_ratelimit_interval_t a,
    uint64_t tokens);
static inline int ngx_ratelimit_interval_less(ngx_ratelimit_interval_t a,
    ngx_ratelimit_interval_t b);
static inline ngx_ratelimit_interval_t ngx_ratelimit_interval_sub(
    const ngx_ratelimit_rate_t *rate, ngx_ratelimit_interval_t a,
    ngx_ratelimit_interval_t b);

static const ngx_ratelimit_interval_t  ngx_ratelimit_no_time = { 0, 0 };


int
ngx_ratelimit_rate_init(ngx_ratelimit_rate_t *rate, uint64_t tokens,
    uint64_t period_us, uint64_t capacity)
{
    uint64_t                  divisor;
    ngx_ratelimit_wide_t      wide;
    ngx_ratelimit_interval_t  span;

    if (tokens == 0 || tokens > NGX_RATELIMIT_MAX_TOKENS
        || period_us == 0 || period_us > NGX_RATELIMIT_MAX_PERIOD_US
        || capacity == 0 || capacity > NGX_RATELIMIT_MAX_TOKENS)
    {
        return -1;
    }

    divisor = ngx_ratelimit_gcd(period_us, tokens);
    period_us /= divisor;
    tokens /= divisor;

    if (tokens > NGX_RATELIMIT_MAX_SCALE) {

        /* rounded up: the rate becomes lower, never higher */

        wide = (ngx_ratelimit_wide_t) period_us * NGX_RATELIMIT_MAX_SCALE;
        period_us = (uint64_t) ((wide + tokens - 1) / tokens);
        tokens = NGX_RATELIMIT_MAX_SCALE;

        divisor = ngx_ratelimit_gcd(period_us, tokens);
        period_us /= divisor;
        tokens /= divisor;
    }

    wide = (ngx_ratelimit_wide_t) capacity * period_us;

    if (wide > (ngx_ratelimit_wide_t) NGX_RATELIMIT_MAX_SPAN_US * tokens) {
        return -1;
    }

    rate->period_us = period_us;
    rate->scale = (uint32_t) tokens;
    rate->capacity = (uint32_t) capacity;

    rate->step_us = period_us / tokens;
    rate->step_frac = (uint32_t) (period_us % tokens);

    span = ngx_ratelimit_interval_add(rate, ngx_ratelimit_no_time, capacity);

    rate->span_us = span.us;
    rate->span_frac = (uint32_t) span.frac;
    rate->span_code = ngx_ratelimit_span_encode(span.us);

    rate->share = UINT64_MAX;

    if (span.us > 255) {
        wide = ((ngx_ratelimit_wide_t) 255 << 64) / span.us;
        rate->share = (uint64_t) wide;
    }

    return 0;
}


static uint64_t
ngx_ratelimit_gcd(uint64_t a, uint64_t b)
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
ngx_ratelimit_span_encode(uint64_t span_us)
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


uint64_t
ngx_ratelimit_span_decode(uint32_t code)
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
ngx_ratelimit_token_bucket_take(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_token_bucket_pay(tb, rate, now_us, cost, want, answer);

    answer->remaining = ngx_ratelimit_token_bucket_remaining(rate, answer);
}


/*
 * Has the code of run() twice. In the first place the compiler sees that only a
 * cost is taken from a bucket of this span, and leaves no call.
 */
void
ngx_ratelimit_token_bucket_pay(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer)
{
    if (want <= cost && want < NGX_RATELIMIT_CHARGE
        && tb->span_code == rate->span_code)
    {
        ngx_ratelimit_token_bucket_run(tb, rate, now_us, cost, 0, answer);

    } else {
        ngx_ratelimit_token_bucket_other(tb, rate, now_us, cost, want, answer);
    }
}


static void
ngx_ratelimit_token_bucket_other(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_token_bucket_run(tb, rate, now_us, cost, want, answer);
}


static inline void
ngx_ratelimit_token_bucket_run(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer)
{
    int                       changed;
    uint32_t                  left, tokens;
    uint64_t                  retry_us;
    ngx_ratelimit_interval_t  used, after, span;

    changed = ngx_ratelimit_token_bucket_settle(tb, rate, now_us, &used);

    tokens = cost;
    retry_us = 0;

    if (want > cost && want < NGX_RATELIMIT_CHARGE) {
        left = ngx_ratelimit_token_bucket_left(rate, used);
        left = (want < left) ? want : left;
        tokens = (cost < left) ? left : cost;
    }

    after = ngx_ratelimit_interval_add(rate, used, tokens);
    span = ngx_ratelimit_interval_span(rate);

    if (want == NGX_RATELIMIT_CHARGE) {
        tokens = (tokens / 2 < rate->capacity) ? tokens : rate->capacity * 2;
        after = ngx_ratelimit_token_bucket_charge(rate, tokens, used);

    } else if (cost > rate->capacity) {
        retry_us = NGX_RATELIMIT_NEVER;
        tokens = 0;

    } else if (cost && ngx_ratelimit_interval_less(span, after)) {

        /* the time beyond the span is what the cost lacks */

        after = ngx_ratelimit_interval_sub(rate, after, span);
        retry_us = after.us + (after.frac != 0);
        tokens = 0;
    }

    if (want == NGX_RATELIMIT_LOOK) {
        tokens = 0;
    }

    if (tokens || want == NGX_RATELIMIT_CHARGE) {
        used = after;
        changed = 1;
    }

    answer->granted = tokens;
    answer->retry_us = retry_us;
    answer->remaining = NGX_RATELIMIT_LATER;
    answer->reset_us = used.us + (used.frac != 0);
    answer->frac = (uint32_t) used.frac;

    if (changed) {
        ngx_ratelimit_token_bucket_save(tb, rate, now_us, used);
    }
}


uint32_t
ngx_ratelimit_token_bucket_remaining(const ngx_ratelimit_rate_t *rate,
    const ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_interval_t  used;

    used.us = answer->reset_us - (answer->frac != 0);
    used.frac = answer->frac;

    return ngx_ratelimit_token_bucket_left(rate, used);
}


void
ngx_ratelimit_token_bucket_look(const ngx_ratelimit_rate_t *rate,
    uint64_t now_us, uint64_t full_us, ngx_ratelimit_answer_t *answer)
{
    uint64_t  used_us;

    used_us = full_us > now_us ? full_us - now_us : 0;

    if (used_us > ngx_ratelimit_token_bucket_most(rate)
                  + NGX_RATELIMIT_CLOCK_SLACK_US)
    {
        used_us = rate->span_us + (rate->span_frac != 0);
    }

    answer->granted = 0;
    answer->remaining = 0;
    answer->reset_us = used_us;
    answer->retry_us = 0;

    if (used_us == 0) {
        answer->remaining = rate->capacity;

    } else if (used_us <= rate->span_us) {
        answer->remaining = ngx_ratelimit_interval_tokens(rate,
                                                      rate->span_us - used_us,
                                                      rate->span_frac);
    }
}


static ngx_ratelimit_interval_t
ngx_ratelimit_token_bucket_charge(const ngx_ratelimit_rate_t *rate,
    uint32_t tokens, ngx_ratelimit_interval_t used)
{
    uint64_t  most;

    used = ngx_ratelimit_interval_add(rate, used, tokens);
    most = ngx_ratelimit_token_bucket_most(rate);

    if (used.us > most) {
        used.us = most;
        used.frac = 0;
    }

    return used;
}


void
ngx_ratelimit_token_bucket_give(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint64_t taken_us,
    uint32_t tokens)
{
    ngx_ratelimit_interval_t  used, price;

    if (now_us > taken_us && now_us - taken_us > rate->span_us) {
        return;
    }

    (void) ngx_ratelimit_token_bucket_settle(tb, rate, now_us, &used);

    if (used.us == 0 && used.frac == 0) {
        return;
    }

    if (tokens > rate->capacity) {
        tokens = rate->capacity;
    }

    price = ngx_ratelimit_interval_add(rate, ngx_ratelimit_no_time, tokens);

    used = ngx_ratelimit_interval_less(used, price)
           ? ngx_ratelimit_no_time
           : ngx_ratelimit_interval_sub(rate, used, price);

    ngx_ratelimit_token_bucket_save(tb, rate, now_us, used);
}


/*
 * Works out what is used. Returns 1 if the state says otherwise and has to be
 * saved, even if nothing is taken: seen again later, the old state would mean
 * something else.
 */
static inline int
ngx_ratelimit_token_bucket_settle(const ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us,
    ngx_ratelimit_interval_t *used)
{
    if (tb->span_code == 0 || tb->tat_us < now_us) {
        used->us = 0;
        used->frac = 0;
        return 0;
    }

    used->us = tb->tat_us - now_us;
    used->frac = tb->tat_frac;

    if (tb->span_code != rate->span_code) {
        *used = ngx_ratelimit_token_bucket_rescale(tb->span_code, rate, *used);
        return 1;
    }

    /* the same span to 1/64, made of other steps */

    if (used->frac >= rate->scale) {
        used->us++;
        used->frac = 0;
    }

    if (used->us > ngx_ratelimit_token_bucket_most(rate)
                   + NGX_RATELIMIT_CLOCK_SLACK_US)
    {
        *used = ngx_ratelimit_interval_span(rate);
        return 1;
    }

    return 0;
}


/*
 * The most that can be used: all, and a debt of as much. No less than that, and
 * up to two microseconds more, so that the sum has no fraction.
 */
static inline uint64_t
ngx_ratelimit_token_bucket_most(const ngx_ratelimit_rate_t *rate)
{
    return 2 * rate->span_us + 2;
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
static ngx_ratelimit_interval_t
ngx_ratelimit_token_bucket_rescale(uint32_t old_code,
    const ngx_ratelimit_rate_t *rate, ngx_ratelimit_interval_t used)
{
    double    share_us;
    uint64_t  most;

    share_us = (double) (used.us + (used.frac != 0));
    share_us = share_us * (double) rate->span_us;
    share_us = share_us / (double) ngx_ratelimit_span_decode(old_code);

    most = ngx_ratelimit_token_bucket_most(rate);
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
        return ngx_ratelimit_interval_span(rate);
    }

    return used;
}


static inline void
ngx_ratelimit_token_bucket_save(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us,
    ngx_ratelimit_interval_t used)
{
    tb->tat_us = now_us + used.us;
    tb->tat_frac = (uint32_t) used.frac;
    tb->span_code = rate->span_code;
}


/* The greatest number of tokens that fits in a time. */
static inline uint32_t
ngx_ratelimit_interval_tokens(const ngx_ratelimit_rate_t *rate, uint64_t us,
    uint64_t frac)
{
    ngx_ratelimit_wide_t  wide;

    wide = (ngx_ratelimit_wide_t) us * rate->scale + frac;

    if ((uint64_t) (wide >> 64) == 0) {
        return (uint32_t) ((uint64_t) wide / rate->period_us);
    }

    return (uint32_t) (wide / rate->period_us);
}


/* The greatest number of tokens that fits in what is not used. */
static uint32_t
ngx_ratelimit_token_bucket_left(const ngx_ratelimit_rate_t *rate,
    ngx_ratelimit_interval_t used)
{
    ngx_ratelimit_interval_t  span;

    if (used.us == 0 && used.frac == 0) {
        return rate->capacity;
    }

    span = ngx_ratelimit_interval_span(rate);

    if (ngx_ratelimit_interval_less(span, used)) {
        return 0;
    }

    used = ngx_ratelimit_interval_sub(rate, span, used);

    return ngx_ratelimit_interval_tokens(rate, used.us, used.frac);
}


static inline ngx_ratelimit_interval_t
ngx_ratelimit_interval_span(const ngx_ratelimit_rate_t *rate)
{
    ngx_ratelimit_interval_t  span;

    span.us = rate->span_us;
    span.frac = rate->span_frac;

    return span;
}


/* The time that tokens take, up to 2^32 of them, behind another time. */
static inline ngx_ratelimit_interval_t
ngx_ratelimit_interval_add(const ngx_ratelimit_rate_t *rate,
    ngx_ratelimit_interval_t a, uint64_t tokens)
{
    a.us += tokens * rate->step_us;
    a.frac += tokens * rate->step_frac;

    if (a.frac >= rate->scale) {
        a.frac -= rate->scale;
        a.us++;

        if (a.frac >= rate->scale) {
            a.us += a.frac / rate->scale;
            a.frac %= rate->scale;
        }
    }

    return a;
}


static inline int
ngx_ratelimit_interval_less(ngx_ratelimit_interval_t a,
    ngx_ratelimit_interval_t b)
{
    return a.us < b.us || (a.us == b.us && a.frac < b.frac);
}


/* b is not longer than a. */
static inline ngx_ratelimit_interval_t
ngx_ratelimit_interval_sub(const ngx_ratelimit_rate_t *rate,
    ngx_ratelimit_interval_t a, ngx_ratelimit_interval_t b)
{
    a.us -= b.us;

    if (a.frac < b.frac) {
        a.us--;
        a.frac += rate->scale;
    }

    a.frac -= b.frac;

    return a;
}

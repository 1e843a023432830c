/*
 * Amounts: what a tier or an override says of a limit, on top of what the rule
 * says; and limits that are multiplied.
 */

#include "ngx_rl_amount.h"


#define NGX_RL_MILLION    1000000

/* by which a bucket's rate rounds a time: 2^-22 us for each of 2^30 tokens */
#define NGX_RL_MARGIN_US  512

typedef unsigned __int128  ngx_rl_wide_t;


/* In lowest terms; both are above 0. */
static void
ngx_rl_amount_reduce(ngx_rl_wide_t *a, ngx_rl_wide_t *b)
{
    ngx_rl_wide_t  x, y, rest;

    x = *a;
    y = *b;

    while (y) {
        rest = x % y;
        x = y;
        y = rest;
    }

    *a /= x;
    *b /= x;
}


int
ngx_rl_amount_rate(double rate, uint64_t *tokens, uint64_t *period_us)
{
    double         micro, off;
    ngx_rl_wide_t  n, us;

    if (!(rate > 0 && rate <= NGX_RL_MAX_TOKENS)) {
        return -1;
    }

    /* below 2^51: the nearest whole number is exact */

    micro = rate * NGX_RL_MILLION;
    n = (uint64_t) (micro + 0.5);
    us = (uint64_t) NGX_RL_MILLION * NGX_RL_MILLION;
    off = micro - (double) (uint64_t) n;

    if (n != 0 && off < micro * 1e-12 && off > -micro * 1e-12) {
        ngx_rl_amount_reduce(&n, &us);

        if (n <= NGX_RL_MAX_TOKENS) {
            *tokens = (uint64_t) n;
            *period_us = (uint64_t) us;
            return 0;
        }
    }

    /*
     * As many requests as a period can have, and the period rounded up: the
     * rate becomes lower, by a millionth at most.
     */

    micro = rate * (double) (NGX_RL_MAX_PERIOD_US / NGX_RL_MILLION);
    micro += micro * 1e-12;

    if (micro < 1) {
        return -1;
    }

    n = (micro < NGX_RL_MAX_TOKENS) ? (uint64_t) micro : NGX_RL_MAX_TOKENS;
    micro = (double) (uint64_t) n * NGX_RL_MILLION / rate;
    us = (uint64_t) micro;
    us += (micro > (double) (uint64_t) us);
    us = ngx_rl_min(us, NGX_RL_MAX_PERIOD_US);

    ngx_rl_amount_reduce(&n, &us);

    *tokens = (uint64_t) n;
    *period_us = (uint64_t) us;

    return 0;
}


/* spec: what is inherited. */
static const char *
ngx_rl_amount_bucket(const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec)
{
    uint64_t  capacity;

    capacity = spec->capacity ? spec->capacity : spec->tokens;

    if (amount->rated) {
        spec->window_us = spec->window_us ? spec->window_us : spec->period_us;
        spec->tokens = amount->tokens;
        spec->period_us = amount->period_us;

    } else if (amount->tokens) {

        if (amount->calendar) {
            return "a window of some length for a bucket";
        }

        spec->period_us = amount->period_us ? amount->period_us
                          : spec->window_us ? spec->window_us
                          : spec->period_us;

        if (spec->period_us == 0) {
            return "a window with the limit";
        }

        spec->tokens = amount->tokens;
        spec->window_us = 0;
        capacity = amount->tokens;

    } else if (spec->tokens == 0) {
        return "a limit or a refill rate with the capacity";
    }

    if (amount->capacity) {
        capacity = amount->capacity;
    }

    if (spec->algorithm == NGX_RL_TOKEN_BUCKET) {

        if (capacity == 0) {
            return "a capacity with the refill rate";
        }

        spec->capacity = capacity;

    } else if (amount->capacity) {

        /* a leaky bucket holds one request that is on time, and the burst */

        spec->burst = amount->capacity - 1;
    }

    return NULL;
}


/* Where the capacity is the limit. */
static const char *
ngx_rl_amount_limit(const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec)
{
    if (amount->tokens && amount->capacity
        && amount->tokens != amount->capacity)
    {
        return "the same number as limit and capacity, since the algorithm is "
               "no bucket";
    }

    spec->tokens = amount->tokens ? amount->tokens : amount->capacity;

    return NULL;
}


/* The same. */
static const char *
ngx_rl_amount_window(const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec)
{
    uint64_t       period_us;
    ngx_rl_wide_t  us;

    if (!amount->rated) {
        period_us = amount->period_us ? amount->period_us
                    : spec->window_us ? spec->window_us : spec->period_us;

        if (amount->calendar) {
            spec->calendar = amount->calendar;
            spec->period_us = 0;

        } else if (amount->period_us || spec->calendar == 0) {
            spec->calendar = NGX_RL_CALENDAR_NONE;
            spec->period_us = period_us;
        }

        spec->window_us = 0;

        if (spec->calendar == 0 && spec->period_us == 0) {
            return "a window with the limit";
        }

        return ngx_rl_amount_limit(amount, spec);
    }

    /* the limit that takes as long as its window */

    if (amount->capacity) {
        spec->tokens = amount->capacity;
    }

    if (spec->tokens == 0) {
        return "a capacity with the refill rate";
    }

    us = (ngx_rl_wide_t) spec->tokens * amount->period_us;
    us = (us + amount->tokens - 1) / amount->tokens;
    us = (us + 999) / 1000 * 1000;

    if (us > NGX_RL_MAX_PERIOD_US) {
        return "a capacity that the refill rate fills within 366 days";
    }

    spec->calendar = NGX_RL_CALENDAR_NONE;
    spec->period_us = (uint64_t) us;
    spec->window_us = 0;

    return NULL;
}


const char *
ngx_rl_amount_inherit(const ngx_rl_spec_t *base, const ngx_rl_amount_t *amount,
    ngx_rl_spec_t *spec)
{
    *spec = *base;

    /* for amounts on top of it, the window stays known */

    if (amount->tokens >= NGX_RL_TOKENS_NONE) {
        spec->tokens = amount->tokens;

        if (amount->period_us || amount->calendar) {
            spec->period_us = amount->period_us;
            spec->calendar = amount->calendar;
            spec->window_us = 0;
        }

        return NULL;
    }

    if (base->tokens >= NGX_RL_TOKENS_NONE) {
        spec->tokens = 0;
    }

    if (amount->tokens == 0 && (amount->period_us || amount->calendar)) {
        return "a limit with the window";
    }

    if (amount->tokens == 0 && (amount->capacity == 0 || amount->rated)) {
        return "a limit, a capacity or a refill rate";
    }

    switch (base->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
    case NGX_RL_LEAKY_BUCKET:
        return ngx_rl_amount_bucket(amount, spec);

    case NGX_RL_CONCURRENCY:

        /* The same. */

        if (amount->rated || amount->period_us || amount->calendar) {
            return "a limit alone for concurrency";
        }

        return ngx_rl_amount_limit(amount, spec);

    default:
        return ngx_rl_amount_window(amount, spec);
    }
}


static uint64_t
ngx_rl_amount_times(uint64_t n, uint64_t millionths, uint64_t max)
{
    ngx_rl_wide_t  wide;

    if (n == 0) {
        return 0;
    }

    wide = (ngx_rl_wide_t) n * millionths / NGX_RL_MILLION;

    return (wide == 0) ? 1 : (wide > max) ? max : (uint64_t) wide;
}


/* Periods are rounded up, so that the rate is not above what it should be. */
static void
ngx_rl_amount_times_rate(const ngx_rl_spec_t *base, uint64_t millionths,
    ngx_rl_spec_t *spec)
{
    ngx_rl_wide_t  n, us, tokens;

    n = (ngx_rl_wide_t) base->tokens * millionths;
    us = (ngx_rl_wide_t) base->period_us * NGX_RL_MILLION;

    ngx_rl_amount_reduce(&n, &us);

    if (us > NGX_RL_MAX_PERIOD_US) {
        tokens = n * NGX_RL_MAX_PERIOD_US / us;
        tokens = tokens ? tokens : 1;
        us = (tokens * us + n - 1) / n;
        n = tokens;
    }

    if (n > NGX_RL_MAX_TOKENS) {
        us = (us * NGX_RL_MAX_TOKENS + n - 1) / n;
        n = NGX_RL_MAX_TOKENS;
    }

    /* rounded up, it never is 0 */

    us = ngx_rl_min(us, NGX_RL_MAX_PERIOD_US);
    spec->tokens = (uint64_t) n;
    spec->period_us = us ? (uint64_t) us : 1;
}


/*
 * Rounding up, and the one token that stays at least, may take a bucket out of
 * the algorithm's bounds: it then gets the most that its rate bears.
 */
static void
ngx_rl_amount_fit(ngx_rl_spec_t *spec)
{
    uint64_t       *held;
    ngx_rl_wide_t   most;

    most = NGX_RL_MAX_SPAN_US - NGX_RL_MARGIN_US;
    most = most * spec->tokens / spec->period_us;

    if (spec->algorithm == NGX_RL_TOKEN_BUCKET) {
        held = &spec->capacity;

    } else {
        held = &spec->burst;
        most -= (most != 0);
    }

    *held = (uint64_t) ngx_rl_min(*held, most);

    if (spec->algorithm == NGX_RL_LEAKY_BUCKET && !spec->nodelay
        && spec->delay < spec->burst)
    {
        most = NGX_RL_MAX_DELAY_US - NGX_RL_MARGIN_US;
        most = most * spec->tokens / spec->period_us + spec->delay;
        spec->burst = (uint64_t) ngx_rl_min(spec->burst, most);
    }
}


void
ngx_rl_amount_scale(const ngx_rl_spec_t *base, uint64_t millionths,
    ngx_rl_spec_t *spec)
{
    uint64_t        most;
    ngx_rl_limit_t  unused;

    *spec = *base;

    /* a limit that is not known stays so, as one does that has no period */

    if (base->tokens == 0 || base->tokens >= NGX_RL_TOKENS_NONE
        || millionths == 0
        || (base->period_us == 0
            && base->algorithm != NGX_RL_FIXED_WINDOW
            && base->algorithm != NGX_RL_CONCURRENCY))
    {
        return;
    }

    switch (base->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
        spec->capacity = ngx_rl_amount_times(
                             base->capacity ? base->capacity : base->tokens,
                             millionths, NGX_RL_MAX_TOKENS);
        ngx_rl_amount_times_rate(base, millionths, spec);
        break;

    case NGX_RL_LEAKY_BUCKET:
        spec->burst = ngx_rl_amount_times(base->burst, millionths,
                                          NGX_RL_MAX_TOKENS - 1);
        ngx_rl_amount_times_rate(base, millionths, spec);
        break;

    default:
        most = NGX_RL_MAX_TOKENS;

        if (base->algorithm == NGX_RL_SLIDING_LOG) {
            most = NGX_RL_MAX_LOG;
        }

        if (base->algorithm == NGX_RL_SLIDING_WINDOW) {
            most = NGX_RL_MAX_WEIGHT / ((base->period_us + 999) / 1000);
        }

        most = ngx_rl_min(most, NGX_RL_MAX_TOKENS);
        spec->tokens = ngx_rl_amount_times(base->tokens, millionths, most);
        return;
    }

    if (ngx_rl_limit_init(&unused, spec) != NULL) {
        ngx_rl_amount_fit(spec);
    }
}

/*
 * The token bucket as GCRA (ITU-T I.371). Its whole state is one instant, the
 * theoretical arrival time (TAT) at which the bucket is full again.
 * lua/token_bucket.lua is the same arithmetic inside Redis. The two must give
 * the same decisions.
 */

#ifndef NGX_RL_TOKEN_BUCKET_H_INCLUDED
#define NGX_RL_TOKEN_BUCKET_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_MAX_TOKENS     (1u << 30)
#define NGX_RL_MAX_SCALE      (1u << 22)
#define NGX_RL_MAX_PERIOD_US  ((uint64_t) 366 * 86400 * 1000000)
#define NGX_RL_MAX_SPAN_US    ((uint64_t) 1 << 50)

/*
 * A rate of limit tokens per period and a capacity, prepared for exact integer
 * arithmetic. One token takes period_us / scale microseconds, a ratio in lowest
 * terms. scale is at most NGX_RL_MAX_SCALE, so that every product also
 * fits the 53 bits of a Lua number. A ratio that does not fit is rounded: a
 * token takes up to 2^-22 microseconds longer, never less.
 *
 * An interval is a pair (us, frac): us + frac / scale microseconds,
 * 0 <= frac < scale.
 */
typedef struct {
    uint64_t  step_us;     /* period_us / scale */
    uint32_t  step_frac;   /* period_us % scale */
    uint32_t  scale;       /* denominator of the time one token takes */

    uint32_t  span_code;   /* span_us in 12 bits, see the .c file */
    uint32_t  open;        /* how much of the capacity this rate may use, and
                              the span of that; less than all only if others
                              have a larger limit of the same bucket */
    uint64_t  open_us;
    uint64_t  most_us;     /* that a bucket may look used, see most() */

    uint64_t  share;       /* 255 / span_us, times 2^64 */
    uint64_t  span_us;     /* capacity tokens take (span_us, span_frac) */
    uint32_t  span_frac;
    uint32_t  open_frac;
    uint32_t  capacity;    /* tokens of a full bucket */
    uint64_t  period_us;   /* numerator of the time one token takes */
} ngx_rl_rate_t;

/*
 * The state. All zero is a fresh (full) bucket.
 * span_code tells which span the TAT was made under. If the rule's span has
 * changed since, the used part keeps its share of the bucket (rounded up by at
 * most 1/64): a spent bucket stays spent.
 */
typedef struct {
    uint64_t  tat_us;      /* < 2^52 */
    uint32_t  tat_frac;    /* < 2^22 */
    uint32_t  span_code;   /* < 2^12 */
} ngx_rl_token_bucket_t;


/*
 * Prepares a rate of tokens (1..2^30) per period_us (1..MAX_PERIOD_US) with
 * a capacity (1..2^30). Returns 0, or -1 when an argument is out of range or
 * filling the bucket would take more than NGX_RL_MAX_SPAN_US.
 */
int ngx_rl_rate_init(ngx_rl_rate_t *rate, uint64_t tokens, uint64_t period_us,
    uint64_t capacity);

/*
 * Takes tokens at now_us (< 2^51; any clock, always the same one): at least
 * cost, and up to want if more are there. A want up to cost takes exactly cost.
 * cost 0 and want 0 look without taking. If the cost cannot be paid, nothing is
 * taken, granted is 0 and retry_us > 0: NGX_RL_NEVER when the cost
 * exceeds the capacity.
 *
 * want NGX_RL_LOOK looks whether the cost could be paid. With want
 * NGX_RL_CHARGE the cost (up to 2^30) was spent already. A bucket that
 * has too few tokens owes the rest, up to one capacity, and grants nothing
 * until that has come back. granted is the tokens taken, or more if the debt
 * reaches its end; retry_us is 0.
 *
 * now_us may step back. Up to a second, time never refills twice. Beyond that,
 * a bucket that would take longer than two full refills is empty from now on.
 * Both this and a changed span may change the state even if nothing was
 * taken: a caller that keeps the state elsewhere stores it whenever it differs.
 */
void ngx_rl_token_bucket_take(ngx_rl_token_bucket_t *tb,
    const ngx_rl_rate_t *rate, uint64_t now_us, uint32_t cost, uint32_t want,
    ngx_rl_answer_t *answer);

/*
 * Takes in the same way, and divides only if want exceeds the cost. The
 * answer's remaining is LATER: remaining() works it out when something reads
 * it, under the same rate.
 */
static ngx_rl_inline void ngx_rl_token_bucket_pay(ngx_rl_token_bucket_t *tb,
    const ngx_rl_rate_t *rate, uint64_t now_us, uint32_t cost, uint32_t want,
    ngx_rl_answer_t *answer);
static inline uint32_t ngx_rl_token_bucket_remaining(
    const ngx_rl_rate_t *rate, const ngx_rl_answer_t *answer);

/* The answer of a bucket under this rate that, left alone, is full then. */
void ngx_rl_token_bucket_look(const ngx_rl_rate_t *rate, uint64_t now_us,
    uint64_t full_us, ngx_rl_answer_t *answer);

/*
 * The share of a bucket that is used, if it takes used_us until it is full: 0
 * for none, 255 if, to a microsecond, not one token is left.
 */
static inline uint32_t
ngx_rl_token_bucket_used(const ngx_rl_rate_t *rate, uint64_t used_us)
{
    unsigned __int128  wide;

    if (used_us + rate->step_us > rate->span_us) {
        return 255;
    }

    wide = used_us;
    wide *= rate->share;

    return (uint32_t) (wide >> 64);
}

/*
 * Gives back tokens that were taken at taken_us, unless an empty bucket has
 * filled since: they have come back by themselves, and whoever takes now has
 * what others took. A bucket never gets more than full.
 */
void ngx_rl_token_bucket_give(ngx_rl_token_bucket_t *tb,
    const ngx_rl_rate_t *rate, uint64_t now_us, uint64_t taken_us,
    uint32_t tokens);

/*
 * A span in 12 bits, below 3000, see the .c file; and the least span with this
 * code, which is at most 1/64 shorter.
 */
uint32_t ngx_rl_span_encode(uint64_t span_us);
uint64_t ngx_rl_span_decode(uint32_t code);


/*
 * Inlined, because every check takes from a bucket. Rare work is in functions
 * of its own: inlined, it would cost all other takes registers.
 */

/*
 * Workers cache the time, so one may be behind another, and a bucket then looks
 * a little more used than the most that can be used. Up to here that is left as
 * it is, for cutting it down would give the same time's tokens twice. Beyond,
 * the clock itself was set back, and the bucket starts again as empty.
 */
#define NGX_RL_CLOCK_SLACK_US  1000000

/* us + frac / rate->scale microseconds */
typedef struct {
    uint64_t  us;
    uint64_t  frac;
} ngx_rl_interval_t;

ngx_rl_token_bucket_t ngx_rl_token_bucket_other(ngx_rl_token_bucket_t tb,
    const ngx_rl_rate_t *rate, uint64_t now_us, uint32_t cost, uint32_t want,
    ngx_rl_answer_t *answer);
ngx_rl_interval_t ngx_rl_token_bucket_charge(const ngx_rl_rate_t *rate,
    uint32_t tokens, ngx_rl_interval_t used);
ngx_rl_interval_t ngx_rl_token_bucket_rescale(uint32_t old_code,
    const ngx_rl_rate_t *rate, ngx_rl_interval_t used);
uint32_t ngx_rl_token_bucket_left(const ngx_rl_rate_t *rate,
    ngx_rl_interval_t used);


static inline ngx_rl_interval_t
ngx_rl_interval_span(const ngx_rl_rate_t *rate)
{
    ngx_rl_interval_t  span;

    span.us = rate->span_us;
    span.frac = rate->span_frac;

    return span;
}


static inline ngx_rl_interval_t
ngx_rl_interval_open(const ngx_rl_rate_t *rate)
{
    ngx_rl_interval_t  open;

    open.us = rate->open_us;
    open.frac = rate->open_frac;

    return open;
}


/* The time that tokens take, up to 2^32 of them, behind another time. */
static inline ngx_rl_interval_t
ngx_rl_interval_add(const ngx_rl_rate_t *rate, ngx_rl_interval_t a,
    uint64_t tokens)
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
ngx_rl_interval_less(ngx_rl_interval_t a, ngx_rl_interval_t b)
{
    return a.us < b.us || (a.us == b.us && a.frac < b.frac);
}


/* b is not longer than a. */
static inline ngx_rl_interval_t
ngx_rl_interval_sub(const ngx_rl_rate_t *rate, ngx_rl_interval_t a,
    ngx_rl_interval_t b)
{
    a.us -= b.us;

    if (a.frac < b.frac) {
        a.us--;
        a.frac += rate->scale;
    }

    a.frac -= b.frac;

    return a;
}


/*
 * The most that can be used: all, and a debt of as much. No less than that, and
 * up to two microseconds more, so that the sum has no fraction.
 */
static inline uint64_t
ngx_rl_token_bucket_most(const ngx_rl_rate_t *rate)
{
    return 2 * rate->span_us + 2;
}


/*
 * Works out what is used. Returns 1 if the state says otherwise and has to be
 * saved, even if nothing is taken: seen again later, the old state would mean
 * something else. plain: the caller knows that it does not.
 */
static inline int
ngx_rl_token_bucket_settle(const ngx_rl_token_bucket_t *tb,
    const ngx_rl_rate_t *rate, uint64_t now_us, int plain,
    ngx_rl_interval_t *used)
{
    if ((!plain && tb->span_code == 0) || tb->tat_us < now_us) {
        used->us = 0;
        used->frac = 0;
        return 0;
    }

    used->us = tb->tat_us - now_us;
    used->frac = tb->tat_frac;

    if (!plain && tb->span_code != rate->span_code) {
        *used = ngx_rl_token_bucket_rescale(tb->span_code, rate, *used);
        return 1;
    }

    /* the same span to 1/64, made of other steps */

    if (used->frac >= rate->scale) {
        used->us++;
        used->frac = 0;
    }

    if (!plain && used->us > rate->most_us) {
        *used = ngx_rl_interval_span(rate);
        return 1;
    }

    return 0;
}


static inline void
ngx_rl_token_bucket_save(ngx_rl_token_bucket_t *tb, const ngx_rl_rate_t *rate,
    uint64_t now_us, ngx_rl_interval_t used)
{
    tb->tat_us = now_us + used.us;
    tb->tat_frac = (uint32_t) used.frac;
    tb->span_code = rate->span_code;
}


static ngx_rl_inline void
ngx_rl_token_bucket_run(ngx_rl_token_bucket_t *tb, const ngx_rl_rate_t *rate,
    uint64_t now_us, uint32_t cost, uint32_t want, int plain,
    ngx_rl_answer_t *answer)
{
    int                changed;
    uint32_t           left, tokens;
    uint64_t           retry_us;
    ngx_rl_interval_t  used, after, open;

    changed = ngx_rl_token_bucket_settle(tb, rate, now_us, plain, &used);

    tokens = cost;
    retry_us = 0;

    if (want > cost && want < NGX_RL_CHARGE) {
        left = ngx_rl_token_bucket_left(rate, used);
        left = (want < left) ? want : left;
        tokens = (cost < left) ? left : cost;
    }

    after = ngx_rl_interval_add(rate, used, tokens);
    open = ngx_rl_interval_open(rate);

    if (want == NGX_RL_CHARGE) {
        tokens = (tokens / 2 < rate->capacity) ? tokens : rate->capacity * 2;
        after = ngx_rl_token_bucket_charge(rate, tokens, used);

    } else if (cost > rate->open) {
        retry_us = NGX_RL_NEVER;
        tokens = 0;

    } else if (cost && ngx_rl_interval_less(open, after)) {

        /* the time beyond the span is what the cost lacks */

        after = ngx_rl_interval_sub(rate, after, open);
        retry_us = after.us + (after.frac != 0);
        tokens = 0;
    }

    if (want == NGX_RL_LOOK) {
        tokens = 0;
    }

    if (tokens || want == NGX_RL_CHARGE) {
        used = after;
        changed = 1;
    }

    answer->granted = tokens;
    answer->retry_us = retry_us;
    answer->remaining = NGX_RL_LATER;
    answer->reset_us = used.us + (used.frac != 0);
    answer->frac = (uint32_t) used.frac;

    if (changed) {
        ngx_rl_token_bucket_save(tb, rate, now_us, used);
    }
}


/*
 * Has the code of run() twice. In the first place the compiler sees that only a
 * cost is taken from a bucket of this span, whose time can be, and leaves no
 * call.
 */
static ngx_rl_inline void
ngx_rl_token_bucket_pay(ngx_rl_token_bucket_t *tb, const ngx_rl_rate_t *rate,
    uint64_t now_us, uint32_t cost, uint32_t want, ngx_rl_answer_t *answer)
{
    if (want == 0 && tb->span_code == rate->span_code
        && tb->tat_us < now_us + rate->most_us)
    {
        ngx_rl_token_bucket_run(tb, rate, now_us, cost, 0, 1, answer);

    } else {
        *tb = ngx_rl_token_bucket_other(*tb, rate, now_us, cost, want, answer);
    }
}


static inline uint32_t
ngx_rl_token_bucket_remaining(const ngx_rl_rate_t *rate,
    const ngx_rl_answer_t *answer)
{
    ngx_rl_interval_t  used;

    used.us = answer->reset_us - (answer->frac != 0);
    used.frac = answer->frac;

    return ngx_rl_token_bucket_left(rate, used);
}

#endif /* NGX_RL_TOKEN_BUCKET_H_INCLUDED */

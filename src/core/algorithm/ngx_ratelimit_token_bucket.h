/*
 * The token bucket as GCRA (ITU-T I.371). Its whole state is one instant, the
 * theoretical arrival time (TAT) at which the bucket is full again.
 * lua/token_bucket.lua is the same arithmetic inside Redis. The two must give
 * the same decisions.
 */

#ifndef NGX_RATELIMIT_TOKEN_BUCKET_H_INCLUDED
#define NGX_RATELIMIT_TOKEN_BUCKET_H_INCLUDED

#include "ngx_ratelimit_types.h"

#define NGX_RATELIMIT_MAX_TOKENS     (1u << 30)
#define NGX_RATELIMIT_MAX_SCALE      (1u << 22)
#define NGX_RATELIMIT_MAX_PERIOD_US  ((uint64_t) 366 * 86400 * 1000000)
#define NGX_RATELIMIT_MAX_SPAN_US    ((uint64_t) 1 << 50)

/*
 * A rate of limit tokens per period and a capacity, prepared for exact integer
 * arithmetic. One token takes period_us / scale microseconds, a ratio in lowest
 * terms. scale is at most NGX_RATELIMIT_MAX_SCALE, so that every product also
 * fits the 53 bits of a Lua number. A ratio that does not fit is rounded: a
 * token takes up to 2^-22 microseconds longer, never less.
 *
 * An interval is a pair (us, frac): us + frac / scale microseconds,
 * 0 <= frac < scale.
 */
typedef struct {
    uint64_t  period_us;   /* numerator of the time one token takes */
    uint32_t  scale;       /* its denominator */
    uint32_t  capacity;    /* tokens of a full bucket */

    uint64_t  step_us;     /* period_us / scale */
    uint32_t  step_frac;   /* period_us % scale */
    uint32_t  span_frac;   /* capacity tokens take (span_us, span_frac) */
    uint64_t  span_us;
    uint64_t  share;       /* 255 / span_us, times 2^64 */
    uint32_t  span_code;   /* span_us in 12 bits, see the .c file */
} ngx_ratelimit_rate_t;

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
} ngx_ratelimit_token_bucket_t;


/*
 * Prepares a rate of tokens (1..2^30) per period_us (1..MAX_PERIOD_US) with
 * a capacity (1..2^30). Returns 0, or -1 when an argument is out of range or
 * filling the bucket would take more than NGX_RATELIMIT_MAX_SPAN_US.
 */
int ngx_ratelimit_rate_init(ngx_ratelimit_rate_t *rate, uint64_t tokens,
    uint64_t period_us, uint64_t capacity);

/*
 * Takes tokens at now_us (< 2^51; any clock, always the same one): at least
 * cost, and up to want if more are there. A want up to cost takes exactly cost.
 * cost 0 and want 0 look without taking. If the cost cannot be paid, nothing is
 * taken, granted is 0 and retry_us > 0: NGX_RATELIMIT_NEVER when the cost
 * exceeds the capacity.
 *
 * want NGX_RATELIMIT_LOOK looks whether the cost could be paid. With want
 * NGX_RATELIMIT_CHARGE the cost (up to 2^30) was spent already. A bucket that
 * has too few tokens owes the rest, up to one capacity, and grants nothing
 * until that has come back. granted is the tokens taken, or more if the debt
 * reaches its end; retry_us is 0.
 *
 * now_us may step back. Up to a second, time never refills twice. Beyond that,
 * a bucket that would take longer than two full refills is empty from now on.
 * Both this and a changed span may change the state even if nothing was
 * taken: a caller that keeps the state elsewhere stores it whenever it differs.
 */
void ngx_ratelimit_token_bucket_take(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer);

/*
 * Takes in the same way, and divides only if want exceeds the cost. The
 * answer's remaining is LATER: remaining() works it out when something reads
 * it, under the same rate.
 */
void ngx_ratelimit_token_bucket_pay(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint32_t cost,
    uint32_t want, ngx_ratelimit_answer_t *answer);
uint32_t ngx_ratelimit_token_bucket_remaining(const ngx_ratelimit_rate_t *rate,
    const ngx_ratelimit_answer_t *answer);

/* The answer of a bucket under this rate that, left alone, is full then. */
void ngx_ratelimit_token_bucket_look(const ngx_ratelimit_rate_t *rate,
    uint64_t now_us, uint64_t full_us, ngx_ratelimit_answer_t *answer);

/*
 * The share of a bucket that is used, if it takes used_us until it is full: 0
 * for none, 255 if, to a microsecond, not one token is left.
 */
static inline uint32_t
ngx_ratelimit_token_bucket_used(const ngx_ratelimit_rate_t *rate,
    uint64_t used_us)
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
void ngx_ratelimit_token_bucket_give(ngx_ratelimit_token_bucket_t *tb,
    const ngx_ratelimit_rate_t *rate, uint64_t now_us, uint64_t taken_us,
    uint32_t tokens);

/*
 * A span in 12 bits, below 3000, see the .c file; and the least span with this
 * code, which is at most 1/64 shorter.
 */
uint32_t ngx_ratelimit_span_encode(uint64_t span_us);
uint64_t ngx_ratelimit_span_decode(uint32_t code);

#endif /* NGX_RATELIMIT_TOKEN_BUCKET_H_INCLUDED */

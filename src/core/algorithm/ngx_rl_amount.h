/*
 * Amounts: a tier or an override names some parts of a limit, and inherits the
 * others. Also multiplies limits.
 */

#ifndef NGX_RL_AMOUNT_H_INCLUDED
#define NGX_RL_AMOUNT_H_INCLUDED

#include "ngx_rl_limit.h"

/* 0: not said */
typedef struct {
    uint64_t            tokens;      /* "limit", or of the rate; NONE or ANY of
                                        a limit */
    uint64_t            period_us;   /* "window", or of the rate */
    uint64_t            capacity;
    ngx_rl_calendar_e   calendar;
    unsigned            rated:1;     /* tokens and period_us are a rate
                                        ("refill_rate"): the capacity is
                                        inherited; else tokens alone are a
                                        limit, whose window is, and which is
                                        the capacity, too */
} ngx_rl_amount_t;

/*
 * A rate of so many requests a second, 0 < rate <= 2^30, as whole tokens in a
 * whole number of microseconds: exact to the sixth decimal place where that
 * fits, within a millionth of itself otherwise. Returns 0, or -1: it is out of
 * range, or less than one request in 366 days.
 */
int ngx_rl_amount_rate(double rate, uint64_t *tokens, uint64_t *period_us);

/*
 * The spec of base, with the parts that amount names. The capacity of a
 * window, a log or concurrency is its limit. A rate and a capacity make a
 * limit and its window, in whole milliseconds. The burst of a leaky bucket is
 * its capacity less one; a limit does not change the burst. base may have no
 * limit yet (tokens 0): then amount must have it. Returns NULL, or what was
 * expected, as a constant string. The spec may still be one that
 * ngx_rl_limit_init() refuses.
 */
const char *ngx_rl_amount_inherit(const ngx_rl_spec_t *base,
    const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec);

/*
 * base, whose limit is known, times millionths / 1000000, up to 1000000 times:
 * its rate and its capacity, its limit, its burst. Rounded down, at least 1
 * where it was, at most the largest that the algorithm bears: the result is one
 * that ngx_rl_limit_init() takes, if base is.
 */
void ngx_rl_amount_scale(const ngx_rl_spec_t *base, uint64_t millionths,
    ngx_rl_spec_t *spec);

#endif /* NGX_RL_AMOUNT_H_INCLUDED */

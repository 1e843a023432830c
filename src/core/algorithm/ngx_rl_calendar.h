/*
 * Where fixed windows begin and end: at multiples of their length, or by the
 * calendar of a time zone. Redis has no calendar: the gateway tells it.
 */

#ifndef NGX_RL_CALENDAR_H_INCLUDED
#define NGX_RL_CALENDAR_H_INCLUDED

#include "ngx_rl_limit.h"

/* microseconds since the epoch */
typedef struct {
    uint64_t  start_us;
    uint64_t  end_us;
} ngx_rl_bounds_t;

/*
 * The fixed window that wall_us (< 2^53) lies in: start_us <= wall_us < end_us.
 *
 * A day, a week (from Monday on) or a month begins with the first instant that
 * the zone's clock shows its first day. Where the clock is set back over
 * midnight, the hour that comes twice counts to the later day.
 */
ngx_rl_bounds_t ngx_rl_calendar_bounds(
    const ngx_rl_limit_t *limit, uint64_t wall_us);

#endif /* NGX_RL_CALENDAR_H_INCLUDED */

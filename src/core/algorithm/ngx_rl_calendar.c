/*
 * Days are numbered from 1 January 1970, a Thursday, by the zone's clock.
 */

#include "ngx_rl_calendar.h"

#include "ngx_rl_date.h"

#define NGX_RL_DAY_SECONDS  86400


/* The first day of the window that begins in a month. */
static int64_t
ngx_rl_calendar_begin(const ngx_rl_limit_t *limit, uint32_t year,
    uint32_t month)
{
    uint32_t  day, last;

    day = limit->month_day;
    last = ngx_rl_date_month_days(year, month);

    return ngx_rl_date_days(year, month, day < last ? day : last);
}


/* The first day of the window that has this one, and of the next window. */
static int64_t
ngx_rl_calendar_first(const ngx_rl_limit_t *limit, int64_t day, int64_t *next)
{
    int64_t   first;
    uint32_t  year, month, unused;

    if (limit->calendar == NGX_RL_CALENDAR_DAY) {
        *next = day + 1;
        return day;
    }

    if (limit->calendar == NGX_RL_CALENDAR_WEEK) {
        first = day - (day + 3) % 7;
        *next = first + 7;
        return first;
    }

    ngx_rl_date_split(day, &year, &month, &unused);
    first = ngx_rl_calendar_begin(limit, year, month);

    if (day < first) {
        *next = first;
        return ngx_rl_calendar_begin(limit, year - (month == 1),
                                     month == 1 ? 12 : month - 1);
    }

    *next = ngx_rl_calendar_begin(limit, year + month / 12, month % 12 + 1);
    return first;
}


/* When a day begins; 0 for those before 1970. */
static uint64_t
ngx_rl_calendar_instant(const ngx_rl_limit_t *limit, int64_t day)
{
    int64_t  seconds;

    seconds = day * NGX_RL_DAY_SECONDS;

    if (limit->tz) {
        seconds = ngx_rl_tz_instant(limit->tz, seconds);
    }

    return (seconds > 0) ? (uint64_t) seconds * 1000000 : 0;
}


ngx_rl_bounds_t
ngx_rl_calendar_bounds(const ngx_rl_limit_t *limit, uint64_t wall_us)
{
    int64_t          local, first, next, unused;
    ngx_rl_bounds_t  bounds;

    if (limit->calendar == NGX_RL_CALENDAR_NONE) {
        bounds.start_us = wall_us - wall_us % limit->window_us;
        bounds.end_us = bounds.start_us + limit->window_us;
        return bounds;
    }

    local = (int64_t) (wall_us / 1000000);

    if (limit->tz) {
        local += ngx_rl_tz_offset(limit->tz, local, &unused);
        local = (local < 0) ? 0 : local;
    }

    first = ngx_rl_calendar_first(limit, local / NGX_RL_DAY_SECONDS, &next);
    bounds.start_us = ngx_rl_calendar_instant(limit, first);
    bounds.end_us = ngx_rl_calendar_instant(limit, next);

    while (bounds.end_us <= wall_us) {

        /* the clock was set back from the next day into this one */

        (void) ngx_rl_calendar_first(limit, next, &next);
        bounds.start_us = bounds.end_us;
        bounds.end_us = ngx_rl_calendar_instant(limit, next);
    }

    return bounds;
}

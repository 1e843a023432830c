/*
 * Fixed and sliding windows. lua/fixed_window.lua and lua/sliding_window.lua
 * follow this file step by step.
 *
 * A counter that has used nothing is a fresh one, and is kept as one. So a
 * state's end is always the moment at which it counts no more.
 */

#include "ngx_rl_window.h"

#include "ngx_rl_date.h"

/* Days are numbered from 1 January 1970, a Thursday, by the zone's clock. */
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


/*
 * Workers cache the time, so one may be behind another, and a window then
 * seems to begin later than now. Up to here that is left as it is, for moving
 * it would grant the same window's tokens twice. Beyond, the clock itself was
 * set back, and what is used moves to the window of now.
 */
#define NGX_RL_CLOCK_SLACK_US  1000000

#define NGX_RL_DAY_US          ((uint64_t) 86400 * 1000000)

/* the shortest month is shorter than the longest, which is a month's window */
#define NGX_RL_MONTH_LESS_US   (3 * NGX_RL_DAY_US)

/* another machine's window may end later than known, as long as a call takes */
#define NGX_RL_AGE_SLACK_SHARE 8      /* of the window */

/* A window's state as it is now, in the window of now. */
typedef struct {
    uint64_t  end_us;      /* of the current window */
    uint32_t  count;       /* more than the capacity where that was lowered, or
                              some of it is owed */
    uint32_t  before;      /* sliding_window */
    unsigned  owes:1;      /* fixed_window: what is above the capacity counts
                              in the next window, too */
} ngx_rl_usage_t;


/*
 * Works out what is used; a window that begins now ends after left_us. Returns
 * 1 when that is not what the state says, so that it has to be saved even if
 * nothing is taken.
 *
 * A state that owes ends the longest window behind the one that owes. So which
 * window that is shows by where the window of now ends.
 */
static int
ngx_rl_fixed_window_settle(const ngx_rl_window_t *w,
    const ngx_rl_limit_t *limit, uint64_t now_us, uint64_t left_us,
    ngx_rl_usage_t *use)
{
    uint64_t  end_us, owes_us, half_us;

    use->end_us = now_us + left_us;
    use->count = 0;
    use->owes = 0;

    if (w->code == 0 || w->fresh_us <= now_us) {
        return 0;
    }

    end_us = w->fresh_us;
    use->count = w->count;

    if (w->code == NGX_RL_CODE_OWES) {

        owes_us = w->fresh_us - now_us;
        half_us = limit->window_us / 2;

        if (owes_us <= limit->window_us || owes_us <= left_us + half_us) {

            /* it is over: this window pays, or the one before has */

            use->count -= (use->count < limit->capacity
                           || owes_us + half_us < left_us)
                          ? use->count : limit->capacity;
            return 1;
        }

        use->owes = 1;
        end_us -= limit->window_us;

    } else if (w->code != limit->code) {
        return 1;
    }

    if (end_us - now_us > limit->window_us + NGX_RL_CLOCK_SLACK_US) {
        return 1;
    }

    use->end_us = end_us;

    return 0;
}


static uint32_t
ngx_rl_window_left(const ngx_rl_limit_t *limit, uint64_t used)
{
    return (used < limit->capacity) ? limit->capacity - (uint32_t) used : 0;
}


/*
 * The tokens that are taken: 0 if the cost cannot be paid. A charge is taken as
 * long as the counter owes no more than its capacity.
 */
static uint32_t
ngx_rl_window_grant(const ngx_rl_limit_t *limit, uint64_t used, uint32_t cost,
    uint32_t want)
{
    uint32_t  left;
    uint64_t  most;

    if (want == NGX_RL_CHARGE) {
        most = ngx_rl_min((uint64_t) limit->capacity * 2, UINT32_MAX);
        most = (used < most) ? most - used : 0;

        return (uint32_t) ngx_rl_min(cost, most);
    }

    left = ngx_rl_window_left(limit, used);

    if (cost > left || want == NGX_RL_LOOK) {
        return 0;
    }

    return (want <= cost) ? cost : (want < left) ? want : left;
}


static void
ngx_rl_fixed_window_save(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    const ngx_rl_usage_t *use)
{
    memset(w, 0, sizeof(ngx_rl_window_t));

    if (use->count == 0) {
        return;
    }

    w->fresh_us = use->end_us;
    w->count = use->count;
    w->code = limit->code;

    if (use->owes && use->count > limit->capacity) {
        w->fresh_us += limit->window_us;
        w->code = NGX_RL_CODE_OWES;
    }
}


void
ngx_rl_fixed_window_take(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t left_us, uint64_t next_us, uint32_t cost,
    uint32_t want, ngx_rl_answer_t *answer)
{
    int             changed;
    uint32_t        left;
    ngx_rl_usage_t  use;

    changed = ngx_rl_fixed_window_settle(w, limit, now_us, left_us, &use);

    left = ngx_rl_window_left(limit, use.count);

    answer->granted = ngx_rl_window_grant(limit, use.count, cost, want);
    answer->retry_us = 0;

    if (want == NGX_RL_CHARGE) {
        use.owes |= (answer->granted
                     && use.count + answer->granted > limit->capacity);

    } else if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;

    } else if (cost > left) {
        answer->retry_us = use.end_us - now_us;

        if (use.owes && (uint64_t) use.count + cost
                        > (uint64_t) limit->capacity * 2)
        {
            answer->retry_us += next_us;
        }
    }

    use.count += answer->granted;

    answer->remaining = ngx_rl_window_left(limit, use.count);
    answer->reset_us = use.count ? use.end_us - now_us : 0;

    if (changed || answer->granted) {
        ngx_rl_fixed_window_save(w, limit, &use);
    }
}


void
ngx_rl_fixed_window_give(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t passed_us, uint64_t left_us, uint64_t taken_us,
    uint32_t tokens)
{
    uint64_t        start_us;
    ngx_rl_usage_t  use;

    if (ngx_rl_fixed_window_settle(w, limit, now_us, left_us, &use)
        || use.count == 0)
    {
        return;
    }

    /* it may have begun later than that: a month of the calendar */

    start_us = (use.end_us > limit->window_us)
               ? use.end_us - limit->window_us : 0;

    if (start_us + passed_us < now_us) {
        start_us = now_us - passed_us;
    }

    /* tokens taken now are of this window, even a little before its start */

    if (taken_us < start_us && taken_us < now_us) {
        return;
    }

    use.count -= ngx_rl_min(tokens, use.count);

    ngx_rl_fixed_window_save(w, limit, &use);
}


/*
 * A window's count whose weight is exact: the capacity and, but for the longest
 * windows with the highest limits, as much again.
 */
static uint64_t
ngx_rl_sliding_window_most(const ngx_rl_limit_t *limit)
{
    uint64_t  most;

    most = NGX_RL_MAX_WEIGHT / ((limit->window_us + 999) / 1000);
    most = ngx_rl_min(most, NGX_RL_MAX_COUNT);

    /* of a limit in half tokens, which only C has */

    return (most < limit->capacity) ? limit->capacity : most;
}


/* The share of a window's count that still counts left_us before the end. */
static uint64_t
ngx_rl_window_decay(uint32_t count, uint64_t left_us, uint64_t window_us)
{
    uint64_t  left_ms, window_ms;

    left_ms = (left_us + 999) / 1000;
    window_ms = (window_us + 999) / 1000;

    if (left_ms >= window_ms) {
        return count;
    }

    return (count * left_ms + window_ms - 1) / window_ms;
}


/*
 * The use, now, of a window that is not the limit's, by its own length. The
 * code tells that up to 1/64 too short, so the result is the use, or up to 1/32
 * of the old limit more.
 */
static uint64_t
ngx_rl_sliding_window_rescale(const ngx_rl_window_t *w, uint64_t now_us)
{
    uint64_t  left_us, window_us;

    left_us = w->fresh_us - now_us;
    window_us = ngx_rl_span_decode(w->code);

    if (window_us > NGX_RL_MAX_PERIOD_US) {

        /* no sliding window's */

        return (uint64_t) w->count + w->before;
    }

    if (left_us <= window_us) {
        return ngx_rl_window_decay(w->count, left_us, window_us);
    }

    return w->count + ngx_rl_window_decay(w->before, left_us - window_us,
                                          window_us);
}


/*
 * Works out what is used. Returns 1 when that is not what the state says, so
 * that it has to be saved even if nothing is taken.
 */
static int
ngx_rl_sliding_window_settle(const ngx_rl_window_t *w,
    const ngx_rl_limit_t *limit, uint64_t now_us, ngx_rl_usage_t *use)
{
    int       changed;
    uint64_t  left_us, used, most;

    use->end_us = now_us - now_us % limit->window_us + limit->window_us;
    use->count = 0;
    use->before = 0;

    if (w->code == 0 || w->fresh_us <= now_us) {
        return 0;
    }

    changed = 0;
    left_us = w->fresh_us - now_us;
    most = ngx_rl_sliding_window_most(limit);

    if (w->code != limit->code || w->fresh_us % limit->window_us) {
        used = ngx_rl_sliding_window_rescale(w, now_us);
        use->count = (uint32_t) (used < most ? used : most);
        return 1;
    }

    if (left_us <= limit->window_us) {
        use->end_us = w->fresh_us;
        use->before = w->count;

    } else {
        use->count = w->count;
        use->before = w->before;

        if (left_us - limit->window_us <= limit->window_us
                                          + NGX_RL_CLOCK_SLACK_US)
        {
            use->end_us = w->fresh_us - limit->window_us;

        } else {
            changed = 1;
        }
    }

    /* of a window that is longer by less than its code tells */

    use->count = (use->count < most) ? use->count : (uint32_t) most;
    use->before = (use->before < most) ? use->before : (uint32_t) most;

    return changed;
}


static uint64_t
ngx_rl_sliding_window_used(const ngx_rl_limit_t *limit, uint64_t now_us,
    const ngx_rl_usage_t *use)
{
    return use->count + ngx_rl_window_decay(use->before, use->end_us - now_us,
                                            limit->window_us);
}


/*
 * The cost fits when so few milliseconds of a window are left that its
 * predecessor's count weighs no more than there is room. It fits in this window
 * or, if the current count alone is too much, in the next one.
 */
static uint64_t
ngx_rl_sliding_window_retry(const ngx_rl_limit_t *limit, uint64_t now_us,
    const ngx_rl_usage_t *use, uint32_t cost)
{
    uint32_t  count;
    uint64_t  end_us, room, window_ms;

    end_us = use->end_us;
    count = use->before;
    room = limit->capacity - cost;

    if (use->count > room) {
        end_us += limit->window_us;
        count = use->count;

    } else {
        room -= use->count;
    }

    /* never: without requests before, the current ones alone leave no room */

    if (count == 0) {
        return limit->window_us;
    }

    window_ms = (limit->window_us + 999) / 1000;

    return end_us - room * window_ms / count * 1000 - now_us;
}


static uint64_t
ngx_rl_sliding_window_reset(const ngx_rl_limit_t *limit, uint64_t now_us,
    const ngx_rl_usage_t *use)
{
    if (use->count) {
        return use->end_us + limit->window_us - now_us;
    }

    return use->before ? use->end_us - now_us : 0;
}


/*
 * Where the current window has used nothing, the state is that of the window
 * before, which so ends when it counts no more.
 */
static void
ngx_rl_sliding_window_save(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    const ngx_rl_usage_t *use)
{
    memset(w, 0, sizeof(ngx_rl_window_t));

    if (use->count) {
        w->fresh_us = use->end_us + limit->window_us;
        w->count = use->count;
        w->before = use->before;
        w->code = limit->code;

    } else if (use->before) {
        w->fresh_us = use->end_us;
        w->count = use->before;
        w->code = limit->code;
    }
}


void
ngx_rl_sliding_window_take(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, uint32_t want, ngx_rl_answer_t *answer)
{
    int             changed;
    uint64_t        used, most;
    ngx_rl_usage_t  use;

    changed = ngx_rl_sliding_window_settle(w, limit, now_us, &use);

    used = ngx_rl_sliding_window_used(limit, now_us, &use);

    answer->granted = ngx_rl_window_grant(limit, used, cost, want);
    answer->retry_us = 0;

    if (want == NGX_RL_CHARGE) {
        most = ngx_rl_sliding_window_most(limit) - use.count;
        answer->granted = (uint32_t) ngx_rl_min(answer->granted, most);

    } else if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;

    } else if (cost > ngx_rl_window_left(limit, used)) {
        answer->retry_us = ngx_rl_sliding_window_retry(limit, now_us,
                                                       &use, cost);
    }

    use.count += answer->granted;

    answer->remaining = ngx_rl_window_left(limit, used + answer->granted);
    answer->reset_us = ngx_rl_sliding_window_reset(limit, now_us, &use);

    if (changed || answer->granted) {
        ngx_rl_sliding_window_save(w, limit, &use);
    }
}


/* The window before weighs so many tokens less, now. */
static void
ngx_rl_sliding_window_lighten(const ngx_rl_limit_t *limit, uint64_t now_us,
    ngx_rl_usage_t *use, uint32_t tokens)
{
    uint64_t  left_ms, window_ms, weight;

    left_ms = (use->end_us - now_us + 999) / 1000;
    window_ms = (limit->window_us + 999) / 1000;
    weight = ngx_rl_window_decay(use->before, use->end_us - now_us,
                                 limit->window_us);

    weight -= (tokens < weight) ? tokens : weight;

    use->before = (left_ms < window_ms) ? weight * window_ms / left_ms : weight;
}


void
ngx_rl_sliding_window_give(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t taken_us, uint32_t tokens)
{
    uint32_t        *count;
    ngx_rl_usage_t   use;

    (void) ngx_rl_sliding_window_settle(w, limit, now_us, &use);

    if (taken_us == NGX_RL_WHENEVER && tokens > use.count && use.before) {
        ngx_rl_sliding_window_lighten(limit, now_us, &use, tokens - use.count);
        use.count = 0;
        ngx_rl_sliding_window_save(w, limit, &use);
        return;
    }

    if (taken_us >= now_us || taken_us + limit->window_us >= use.end_us) {
        count = &use.count;

    } else if (taken_us + 2 * limit->window_us >= use.end_us) {
        count = &use.before;

    } else {
        return;
    }

    if (*count == 0) {
        return;
    }

    *count -= (tokens < *count) ? tokens : *count;

    ngx_rl_sliding_window_save(w, limit, &use);
}


uint64_t
ngx_rl_window_age_us(const ngx_rl_limit_t *limit, uint64_t now_us,
    uint64_t end_us)
{
    uint64_t  window_us;

    window_us = limit->window_us;

    if (limit->calendar == NGX_RL_CALENDAR_MONTH) {
        window_us -= NGX_RL_MONTH_LESS_US;
    }

    if (limit->tz) {
        window_us -= 2 * NGX_RL_TZ_STEP_US;
    }

    end_us += window_us / NGX_RL_AGE_SLACK_SHARE;

    return now_us + window_us > end_us ? now_us + window_us - end_us : 0;
}


uint64_t
ngx_rl_window_answer_age_us(const ngx_rl_limit_t *limit, uint64_t now_us,
    uint64_t asked_us, const ngx_rl_answer_t *answer)
{
    uint64_t  age_us, passed_us, end_us;

    passed_us = now_us > asked_us ? now_us - asked_us : 0;

    if (answer->reset_us == 0
        || (limit->algorithm != NGX_RL_FIXED_WINDOW
            && limit->algorithm != NGX_RL_SLIDING_WINDOW))
    {
        return passed_us;
    }

    /* what is used, or owed, may weigh on the windows behind this one, too */

    end_us = asked_us + (answer->reset_us - 1) % limit->window_us + 1;

    age_us = ngx_rl_window_age_us(limit, now_us, end_us);

    return age_us > passed_us ? age_us : passed_us;
}

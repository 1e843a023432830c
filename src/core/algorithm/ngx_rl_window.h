/*
 * Fixed and sliding windows. lua/fixed_window.lua and lua/sliding_window.lua
 * are the same arithmetic inside Redis; they must give the same decisions.
 */

#ifndef NGX_RL_WINDOW_H_INCLUDED
#define NGX_RL_WINDOW_H_INCLUDED

#include "ngx_rl_limit.h"

/*
 * Where fixed windows begin and end: at multiples of their length, or by the
 * calendar of a time zone. Redis has no calendar: the gateway tells it.
 */

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


/*
 * Codes above those of any span: UTC's days and months, a window that owes, and
 * all other calendars.
 */
#define NGX_RL_CODE_CALENDAR  4000
#define NGX_RL_CODE_OWES      4003
#define NGX_RL_CODE_OTHERS    92     /* in number, up to 2^12 - 1 */

/* what a window may count */
#define NGX_RL_MAX_COUNT      ((uint64_t) 1 << 31)

/*
 * The state of a window's counter. A counter that has used nothing is all zero.
 *
 * fixed_window: fresh_us is where the window ends, count its use. With
 * CODE_OWES it was charged with more than the capacity, and the rest counts in
 * the next window, too: fresh_us is the latest end of that. sliding_window:
 * windows stand at multiples of their length. count is the use of the last
 * window that used anything, before that of its predecessor. fresh_us is the
 * end of its successor, where nothing counts any more. code is the limit's when
 * the state was written, and shows a changed window.
 */
typedef struct {
    uint64_t  fresh_us;    /* < 2^52 */
    uint32_t  count;       /* <= MAX_COUNT */
    uint32_t  before;      /* <= MAX_COUNT */
    uint32_t  code;        /* < 2^12 */
} ngx_rl_window_t;


/*
 * Takes from a fixed window; cost, want and the answer are those of
 * ngx_rl_token_bucket_take(). now_us (< 2^51) is the state's clock, any
 * clock. A window that begins now ends after left_us (bounds), and the one
 * behind it is next_us long.
 *
 * A counter that is not fresh keeps its end, so no step of the wall clock opens
 * another window before that. There are two exceptions: an end more than a
 * window and a second away (the state's own clock was set back), and an end of
 * another window (the limit has changed). It then moves to now_us + left_us,
 * with all that was used. If that is more than a lowered limit, nothing is
 * left.
 */
void ngx_rl_fixed_window_take(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t left_us, uint64_t next_us, uint32_t cost,
    uint32_t want, ngx_rl_answer_t *answer);

/*
 * Gives back tokens that were taken at taken_us, unless that was in another
 * window. By the wall clock the window of now began passed_us ago, and ends in
 * left_us. Where that is in doubt (another window's limit, clocks that differ)
 * nothing is given back.
 */
void ngx_rl_fixed_window_give(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t passed_us, uint64_t left_us, uint64_t taken_us,
    uint32_t tokens);

/*
 * Takes from a sliding window. The use is the count of the current window, plus
 * the share of the window before that overlaps the window ending now, as if its
 * requests had come evenly (both rounded up). So no aligned window admits more
 * than the capacity, and no window at all more than twice that. retry_us is
 * exact if no other request takes.
 *
 * A changed window keeps the use of now, as the current window's count. A clock
 * that was set back keeps the counts, too.
 */
void ngx_rl_sliding_window_take(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, uint32_t want, ngx_rl_answer_t *answer);

/*
 * Gives back tokens taken at taken_us, to the window they were taken from: the
 * current one or the one before. WHENEVER: to the current one, and what it has
 * not used to the one before.
 */
void ngx_rl_sliding_window_give(ngx_rl_window_t *w, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t taken_us, uint32_t tokens);

/*
 * The age to name when tokens go back to another machine's window, which ends
 * at end_us by this clock: as old as the window. A call that runs when the
 * window is over is then known to be late, unless it was held up for about a
 * whole window. 0: the window began just now.
 */
uint64_t ngx_rl_window_age_us(const ngx_rl_limit_t *limit, uint64_t now_us,
    uint64_t end_us);

/*
 * The same for tokens that the answer to a call of asked_us granted. A bucket
 * has no end: their age is the time since the call.
 */
uint64_t ngx_rl_window_answer_age_us(const ngx_rl_limit_t *limit,
    uint64_t now_us, uint64_t asked_us, const ngx_rl_answer_t *answer);

#endif /* NGX_RL_WINDOW_H_INCLUDED */

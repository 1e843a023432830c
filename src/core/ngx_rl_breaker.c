/*
 * The breaker's words. state is, from its low end: the state (2 bits), then
 *
 *     CLOSED           the calls that failed (15) and all calls (15) of a
 *                      second, and when that began (32, in milliseconds)
 *     SILENT, FAILING  how often the wait was doubled (6), and until when it
 *                      lasts (56)
 *     READMITS         the calls that failed (10) and all calls (10) of a
 *                      window, the share (10), the share that was too much
 *                      (10), and when the window began (22, in milliseconds)
 *
 * heard is how many calls in a row had no answer in time (8) and when the node
 * was heard last (56).
 *
 * Each process has looked at the clock some time ago, so one may come with a
 * moment before the one that another has left here.
 */

#include "ngx_rl_breaker.h"

#define NGX_RL_BREAKER_SECOND_MS  1000
#define NGX_RL_BREAKER_KEEP_MS    10     /* good calls, by a caller */
#define NGX_RL_BREAKER_MAX_COUNT  0x7fff
#define NGX_RL_BREAKER_DOUBLINGS  3      /* MIN_MS << 3 = MAX_MS */

/* of READMITS; the window is a timeout longer than this, but not too long */
#define NGX_RL_BREAKER_WINDOW_MS      50
#define NGX_RL_BREAKER_MAX_WINDOW_MS  500
#define NGX_RL_BREAKER_MAX_CALLS   0x3ff
#define NGX_RL_BREAKER_FIRST      (NGX_RL_BREAKER_ALL / 8)
#define NGX_RL_BREAKER_LEAST      (NGX_RL_BREAKER_ALL / 64)
#define NGX_RL_BREAKER_STEP       (NGX_RL_BREAKER_ALL / 32)

/* above ALL it is the good windows with all calls: ten close it */
#define NGX_RL_BREAKER_ENOUGH                                                 \
    (NGX_RL_BREAKER_ALL + 10 * NGX_RL_BREAKER_STEP)

typedef enum {
    CLOSED = 0,
    SILENT,
    FAILING,
    READMITS
} ngx_rl_breaker_word_e;

/* READMITS, taken apart */
typedef struct {
    uint32_t  failed;
    uint32_t  calls;
    uint32_t  share;
    uint32_t  much;
    uint32_t  begin_ms;
} ngx_rl_breaker_window_t;

#define ngx_rl_breaker_is(word)                                               \
    ((ngx_rl_breaker_word_e) ((word) & 3))
#define ngx_rl_breaker_is_open(word)                                          \
    (ngx_rl_breaker_is(word) == SILENT                                        \
     || ngx_rl_breaker_is(word) == FAILING)
#define ngx_rl_breaker_state_of(word)                                         \
    (ngx_rl_breaker_is(word) == CLOSED                                        \
     ? NGX_RL_BREAKER_CLOSED                                                  \
     : ngx_rl_breaker_is(word) == READMITS                                    \
     ? NGX_RL_BREAKER_READMITS : NGX_RL_BREAKER_OPEN)
#define ngx_rl_breaker_doublings(word)  ((word) >> 2 & 0x3f)
#define ngx_rl_breaker_until(word)      ((word) >> 8)
#define ngx_rl_breaker_word(state, doublings, until_ms)                       \
    ((uint64_t) (state) | (uint64_t) (doublings) << 2                         \
     | (uint64_t) (until_ms) << 8)


static ngx_rl_breaker_window_t
ngx_rl_breaker_window(uint64_t word)
{
    ngx_rl_breaker_window_t  window;

    window.failed = word >> 2 & NGX_RL_BREAKER_MAX_CALLS;
    window.calls = word >> 12 & NGX_RL_BREAKER_MAX_CALLS;
    window.share = word >> 22 & NGX_RL_BREAKER_MAX_CALLS;
    window.much = word >> 32 & NGX_RL_BREAKER_MAX_CALLS;
    window.begin_ms = (uint32_t) (word >> 42);

    return window;
}


/* Three quarters to five quarters of the wait, but never above the most. */
static uint64_t
ngx_rl_breaker_open(ngx_rl_breaker_word_e state, uint64_t doublings,
    const ngx_rl_breaker_now_t *now)
{
    uint64_t  wait_ms;

    doublings = ngx_rl_min(doublings, NGX_RL_BREAKER_DOUBLINGS);
    wait_ms = (uint64_t) NGX_RL_BREAKER_MIN_MS << doublings;
    wait_ms = wait_ms * 3 / 4 + now->random % (wait_ms / 2);
    wait_ms = ngx_rl_min(wait_ms, NGX_RL_BREAKER_MAX_MS);

    return ngx_rl_breaker_word(state, doublings, now->ms + wait_ms);
}


/* Works out the next window from this one; returns whether there is none. */
static int
ngx_rl_breaker_next(ngx_rl_breaker_window_t *window)
{
    uint32_t  step;

    if (window->failed * 10 > window->calls) {

        window->share = ngx_rl_min(window->share, NGX_RL_BREAKER_ALL);

        /* bad windows in a row are of one cause: its share is kept in mind */

        if (window->much > NGX_RL_BREAKER_ALL
            || window->share * 4 > window->much * 3)
        {
            window->much = window->share;

        } else {
            window->much -= window->much / 8;
        }

        window->share = ngx_rl_max(window->share * 3 / 4, NGX_RL_BREAKER_LEAST);

    } else if (window->share * 2 <= window->much / 2) {
        window->share *= 2;

    } else if (window->share >= NGX_RL_BREAKER_ALL) {
        window->share += NGX_RL_BREAKER_STEP;

    } else {

        /* above what was too much: the farther, the larger the next step */

        step = NGX_RL_BREAKER_STEP;

        if (window->share > window->much + step) {
            step = window->share - window->much;
        }

        window->share = ngx_rl_min(window->share + step, NGX_RL_BREAKER_ALL);
    }

    window->failed = 0;
    window->calls = 0;

    return window->share >= NGX_RL_BREAKER_ENOUGH;
}


static uint64_t
ngx_rl_breaker_window_word(const ngx_rl_breaker_window_t *window)
{
    return READMITS | (uint64_t) window->failed << 2
           | (uint64_t) window->calls << 12 | (uint64_t) window->share << 22
           | (uint64_t) window->much << 32
           | (uint64_t) window->begin_ms << 42;
}


/*
 * READMITS with the windows that have ended. A window without calls counts as a
 * good one, so a breaker that was not used for long is closed.
 */
static uint64_t
ngx_rl_breaker_roll(uint64_t word, const ngx_rl_breaker_now_t *now)
{
    uint32_t                 passed_ms, window_ms;
    ngx_rl_breaker_window_t  window;

    window = ngx_rl_breaker_window(word);
    window_ms = ngx_rl_min(now->timeout_ms + NGX_RL_BREAKER_WINDOW_MS,
                           NGX_RL_BREAKER_MAX_WINDOW_MS);

    /* the clock of another process: a moment before it is none */

    passed_ms = ((uint32_t) now->ms - window.begin_ms) & 0x3fffff;

    if (passed_ms < window_ms || passed_ms >= 0x300000) {
        return word;
    }

    for ( /* void */ ; passed_ms >= window_ms; passed_ms -= window_ms) {

        if (window.failed
            && window.failed * 2 >= window.calls
            && window.share <= NGX_RL_BREAKER_LEAST)
        {
            return ngx_rl_breaker_open(FAILING, NGX_RL_BREAKER_DOUBLINGS, now);
        }

        if (ngx_rl_breaker_next(&window)) {
            return CLOSED;
        }
    }

    window.begin_ms = (uint32_t) now->ms - passed_ms;

    return ngx_rl_breaker_window_word(&window);
}


uint64_t
ngx_rl_breaker_ask(ngx_rl_breaker_t *breaker, const ngx_rl_breaker_now_t *now,
    uint32_t *credit)
{
    uint64_t  word, rolled, until_ms;

    word = atomic_load(&breaker->state);

    if (ngx_rl_breaker_is(word) == CLOSED) {
        return 0;
    }

    if (ngx_rl_breaker_is_open(word)) {
        until_ms = ngx_rl_breaker_until(word);
        return now->ms < until_ms ? until_ms - now->ms : 1;
    }

    /* a report or settle() changes it: here its share of now is enough */

    rolled = ngx_rl_breaker_roll(word, now);

    if (ngx_rl_breaker_is_open(rolled)) {
        return NGX_RL_BREAKER_MIN_MS;
    }

    *credit += ngx_rl_breaker_is(rolled) == CLOSED
               ? NGX_RL_BREAKER_ALL
               : ngx_rl_breaker_window(rolled).share;

    if (*credit < NGX_RL_BREAKER_ALL) {
        return NGX_RL_BREAKER_WINDOW_MS;
    }

    *credit %= NGX_RL_BREAKER_ALL;

    return 0;
}


uint64_t
ngx_rl_breaker_probe(ngx_rl_breaker_t *breaker, uint64_t now_ms,
    uint64_t lost_ms)
{
    uint64_t  word, next, until_ms;

    word = atomic_load(&breaker->state);

    do {
        if (!ngx_rl_breaker_is_open(word)) {
            return NGX_RL_BREAKER_MAX_MS;
        }

        until_ms = ngx_rl_breaker_until(word);

        if (now_ms < until_ms) {
            return until_ms - now_ms;
        }

        next = ngx_rl_breaker_word(ngx_rl_breaker_is(word),
                                   ngx_rl_breaker_doublings(word),
                                   now_ms + lost_ms);

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return 0;
}


/* Notes a timeout; whether there were enough in a row. */
static int
ngx_rl_breaker_timeout(ngx_rl_breaker_t *breaker)
{
    uint64_t  word, n;

    word = atomic_load(&breaker->heard);

    do {
        n = (word & 0xff) + 1;

        if (n > NGX_RL_BREAKER_TIMEOUTS) {
            return 1;
        }

    } while (!atomic_compare_exchange_weak(&breaker->heard, &word,
                                           (word & ~(uint64_t) 0xff) | n));

    return n == NGX_RL_BREAKER_TIMEOUTS;
}


/* A closed breaker's word with some good calls and this one more. */
static uint64_t
ngx_rl_breaker_count(uint64_t word, uint32_t good,
    ngx_rl_breaker_outcome_e outcome, int opens,
    const ngx_rl_breaker_now_t *now)
{
    int32_t   passed_ms;
    uint32_t  begin_ms, calls, failed;

    failed = word >> 2 & NGX_RL_BREAKER_MAX_COUNT;
    calls = word >> 17 & NGX_RL_BREAKER_MAX_COUNT;
    begin_ms = (uint32_t) (word >> 32);

    passed_ms = (int32_t) ((uint32_t) now->ms - begin_ms);

    if (passed_ms >= NGX_RL_BREAKER_SECOND_MS
        || passed_ms <= -NGX_RL_BREAKER_SECOND_MS)
    {
        begin_ms = (uint32_t) now->ms;
        calls = 0;
        failed = 0;
    }

    /* a count that is full stays so: the share is as good then */

    if (good < NGX_RL_BREAKER_MAX_COUNT - calls) {
        calls += good + 1;
        failed += (outcome != NGX_RL_BREAKER_GOOD);
    }

    if (opens
        || (outcome != NGX_RL_BREAKER_GOOD
            && calls >= NGX_RL_BREAKER_CALLS
            && failed * 2 >= calls))
    {
        return ngx_rl_breaker_open(
                   outcome == NGX_RL_BREAKER_TIMED_OUT
                   || outcome == NGX_RL_BREAKER_UNREACHABLE
                   ? SILENT : FAILING, 0, now);
    }

    return (uint64_t) begin_ms << 32 | (uint64_t) calls << 17
           | (uint64_t) failed << 2 | CLOSED;
}


/* The same while it readmits. */
static uint64_t
ngx_rl_breaker_count_window(uint64_t word, ngx_rl_breaker_outcome_e outcome,
    int opens, const ngx_rl_breaker_now_t *now)
{
    ngx_rl_breaker_window_t  window;

    if (opens) {
        return ngx_rl_breaker_open(FAILING, 0, now);
    }

    word = ngx_rl_breaker_roll(word, now);

    if (ngx_rl_breaker_is(word) != READMITS) {
        return word;
    }

    window = ngx_rl_breaker_window(word);

    if (window.calls < NGX_RL_BREAKER_MAX_CALLS) {
        window.calls++;
        window.failed += (outcome != NGX_RL_BREAKER_GOOD);
    }

    return ngx_rl_breaker_window_word(&window);
}


static ngx_rl_breaker_change_e
ngx_rl_breaker_change(uint64_t before, uint64_t after)
{
    ngx_rl_breaker_state_e  state;

    state = ngx_rl_breaker_state_of(after);

    return state == ngx_rl_breaker_state_of(before)
           ? NGX_RL_BREAKER_SAME
           : (ngx_rl_breaker_change_e)
             (state + NGX_RL_BREAKER_CLOSED_NOW);
}


ngx_rl_breaker_change_e
ngx_rl_breaker_report(ngx_rl_breaker_t *breaker, ngx_rl_breaker_good_t *good,
    ngx_rl_breaker_outcome_e outcome, const ngx_rl_breaker_now_t *now)
{
    int       opens;
    uint32_t  passed_ms, kept;
    uint64_t  word, next;

    passed_ms = (uint32_t) now->ms - good->since_ms;

    if (outcome == NGX_RL_BREAKER_GOOD
        && passed_ms < NGX_RL_BREAKER_KEEP_MS
        && ngx_rl_breaker_is(atomic_load(&breaker->state)) == CLOSED)
    {
        good->calls++;
        return NGX_RL_BREAKER_SAME;
    }

    kept = (passed_ms < NGX_RL_BREAKER_SECOND_MS) ? good->calls : 0;
    good->since_ms = (uint32_t) now->ms;
    good->calls = 0;

    word = atomic_load(&breaker->state);

    /* late calls while it readmits only lessen the share */

    opens = (outcome == NGX_RL_BREAKER_TIMED_OUT
             || (outcome == NGX_RL_BREAKER_LATE
                 && ngx_rl_breaker_is(word) == CLOSED))
            && ngx_rl_breaker_timeout(breaker);

    do {
        if (ngx_rl_breaker_is_open(word)) {
            return NGX_RL_BREAKER_SAME;
        }

        next = (ngx_rl_breaker_is(word) == CLOSED)
               ? ngx_rl_breaker_count(word, kept, outcome, opens, now)
               : ngx_rl_breaker_count_window(word, outcome, opens, now);

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return ngx_rl_breaker_change(word, next);
}


ngx_rl_breaker_change_e
ngx_rl_breaker_heard(ngx_rl_breaker_t *breaker, ngx_rl_breaker_reply_e reply,
    uint64_t now_ms)
{
    uint64_t  word, next, timeouts;

    /*
     * Before it is closed: a process that dies in between leaves no old
     * timeouts behind.
     */

    word = atomic_load(&breaker->heard);

    do {
        timeouts = (reply == NGX_RL_BREAKER_REPLY_LATE) ? word & 0xff : 0;
        next = (word >> 8 < now_ms ? now_ms : word >> 8) << 8 | timeouts;

    } while (word != next
             && !atomic_compare_exchange_weak(&breaker->heard, &word, next));

    if (reply != NGX_RL_BREAKER_REPLY_GOOD) {
        return NGX_RL_BREAKER_SAME;
    }

    word = atomic_load(&breaker->state);

    do {
        if (ngx_rl_breaker_is(word) != SILENT) {
            return NGX_RL_BREAKER_SAME;
        }

        next = CLOSED;

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return NGX_RL_BREAKER_CLOSED_NOW;
}


ngx_rl_breaker_change_e
ngx_rl_breaker_probed(ngx_rl_breaker_t *breaker, int good,
    const ngx_rl_breaker_now_t *now)
{
    uint64_t                 word, next;
    ngx_rl_breaker_window_t  window;

    if (good) {
        (void) ngx_rl_breaker_heard(breaker, NGX_RL_BREAKER_REPLY_ERROR,
                                    now->ms);
    }

    word = atomic_load(&breaker->state);

    do {
        if (!ngx_rl_breaker_is_open(word)) {
            return NGX_RL_BREAKER_SAME;
        }

        if (!good) {
            next = ngx_rl_breaker_open(ngx_rl_breaker_is(word),
                                       ngx_rl_breaker_doublings(word) + 1, now);

        } else if (ngx_rl_breaker_is(word) == SILENT) {
            next = CLOSED;

        } else {
            window.failed = 0;
            window.calls = 0;
            window.share = NGX_RL_BREAKER_FIRST;
            window.much = 2 * NGX_RL_BREAKER_ALL;
            window.begin_ms = (uint32_t) now->ms;
            next = ngx_rl_breaker_window_word(&window);
        }

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return ngx_rl_breaker_change(word, next);
}


ngx_rl_breaker_change_e
ngx_rl_breaker_settle(ngx_rl_breaker_t *breaker,
    const ngx_rl_breaker_now_t *now)
{
    uint64_t  word, next;

    word = atomic_load(&breaker->state);

    do {
        if (ngx_rl_breaker_is(word) != READMITS) {
            return NGX_RL_BREAKER_SAME;
        }

        next = ngx_rl_breaker_roll(word, now);

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return ngx_rl_breaker_change(word, next);
}


int
ngx_rl_breaker_hasten(ngx_rl_breaker_t *breaker, uint64_t now_ms)
{
    uint64_t  word, until_ms;

    word = atomic_load(&breaker->state);
    until_ms = ngx_rl_breaker_until(word);

    /* the first wait is short; a probe on its way, or lost, has a longer one */

    return ngx_rl_breaker_is(word) == SILENT
           && ngx_rl_breaker_doublings(word) == 0
           && until_ms > now_ms
           && until_ms - now_ms <= NGX_RL_BREAKER_MIN_MS * 5 / 4
           && atomic_compare_exchange_strong(&breaker->state, &word,
                              ngx_rl_breaker_word(SILENT, 0, now_ms));
}


ngx_rl_breaker_change_e
ngx_rl_breaker_gone(ngx_rl_breaker_t *breaker, const ngx_rl_breaker_now_t *now)
{
    uint64_t  word, next;

    word = atomic_load(&breaker->state);

    do {
        if (ngx_rl_breaker_is_open(word)) {
            return NGX_RL_BREAKER_SAME;
        }

        next = ngx_rl_breaker_open(SILENT, 0, now);

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return NGX_RL_BREAKER_OPENED;
}


int
ngx_rl_breaker_lives(ngx_rl_breaker_t *breaker, uint64_t since_ms)
{
    return atomic_load(&breaker->heard) >> 8 > since_ms;
}


ngx_rl_breaker_state_e
ngx_rl_breaker_state(ngx_rl_breaker_t *breaker)
{
    return ngx_rl_breaker_state_of(atomic_load(&breaker->state));
}


uint32_t
ngx_rl_backoff_pause_ms(uint32_t failures, uint32_t busy, uint32_t random)
{
    uint32_t  pause_ms, max_ms, times;

    pause_ms = busy ? NGX_RL_BACKOFF_MAX_MS : NGX_RL_BACKOFF_MIN_MS;
    max_ms = busy ? NGX_RL_BACKOFF_BUSY_MS : NGX_RL_BACKOFF_MAX_MS;

    for (times = busy ? busy : failures; times && pause_ms < max_ms; times--) {
        pause_ms *= 2;
    }

    pause_ms = ngx_rl_min(pause_ms, max_ms);

    return pause_ms - random % (pause_ms / 2);
}

/*
 * The breaker's words. state is, from its low end: the state (2 bits); then
 * where CLOSED the calls that failed (15) and all calls (15) of a second, and
 * when that began (32, in milliseconds, cut off); else how often the wait was
 * doubled (6) and until when it lasts (56).
 */

#include "ngx_ratelimit_breaker.h"

#define NGX_RATELIMIT_BREAKER_SECOND_MS  1000
#define NGX_RATELIMIT_BREAKER_MAX_COUNT  0x7fff
#define NGX_RATELIMIT_BREAKER_DOUBLINGS  4      /* MIN_MS << 4 > MAX_MS */

static ngx_ratelimit_breaker_change_e ngx_ratelimit_breaker_count(
    ngx_ratelimit_breaker_t *breaker, uint64_t state,
    ngx_ratelimit_breaker_outcome_e outcome, uint64_t now_ms,
    uint32_t random);
static int ngx_ratelimit_breaker_third_timeout(
    ngx_ratelimit_breaker_t *breaker, uint64_t now_ms);
static uint64_t ngx_ratelimit_breaker_open(unsigned doublings,
    uint64_t now_ms, uint32_t random);

#define ngx_ratelimit_breaker_word_state(word)                                \
    ((ngx_ratelimit_breaker_state_e) ((word) & 3))
#define ngx_ratelimit_breaker_word_doublings(word)                            \
    ((unsigned) ((word) >> 2) & 0x3f)
#define ngx_ratelimit_breaker_word_until(word)      ((word) >> 8)
#define ngx_ratelimit_breaker_word(state, doublings, until_ms)                \
    ((uint64_t) (state) | (uint64_t) (doublings) << 2                         \
     | (uint64_t) (until_ms) << 8)


ngx_ratelimit_breaker_advice_e
ngx_ratelimit_breaker_ask(ngx_ratelimit_breaker_t *breaker, uint64_t now_ms,
    uint64_t lost_ms, uint64_t *wait_ms)
{
    uint64_t  word, probing, until_ms;

    *wait_ms = 0;
    word = atomic_load(&breaker->state);

    for ( ;; ) {

        if (ngx_ratelimit_breaker_word_state(word)
            == NGX_RATELIMIT_BREAKER_CLOSED)
        {
            return NGX_RATELIMIT_BREAKER_PASS;
        }

        until_ms = ngx_ratelimit_breaker_word_until(word);

        if (now_ms < until_ms) {
            *wait_ms = until_ms - now_ms;
            return NGX_RATELIMIT_BREAKER_REFUSE;
        }

        probing = ngx_ratelimit_breaker_word(NGX_RATELIMIT_BREAKER_PROBING,
                              ngx_ratelimit_breaker_word_doublings(word),
                              now_ms + lost_ms);

        if (atomic_compare_exchange_weak(&breaker->state, &word, probing)) {
            return NGX_RATELIMIT_BREAKER_PROBE;
        }
    }
}


ngx_ratelimit_breaker_change_e
ngx_ratelimit_breaker_report(ngx_ratelimit_breaker_t *breaker,
    ngx_ratelimit_breaker_outcome_e outcome, int probe, uint64_t now_ms,
    uint32_t random)
{
    uint64_t  word, next;

    word = atomic_load(&breaker->state);

    if (ngx_ratelimit_breaker_word_state(word)
        == NGX_RATELIMIT_BREAKER_CLOSED)
    {
        return ngx_ratelimit_breaker_count(breaker, word, outcome, now_ms,
                                           random);
    }

    if (!probe) {
        return NGX_RATELIMIT_BREAKER_SAME;
    }

    do {
        if (ngx_ratelimit_breaker_word_state(word)
            == NGX_RATELIMIT_BREAKER_CLOSED)
        {
            return NGX_RATELIMIT_BREAKER_SAME;
        }

        next = 0;

        if (outcome != NGX_RATELIMIT_BREAKER_GOOD) {
            next = ngx_ratelimit_breaker_open(
                       ngx_ratelimit_breaker_word_doublings(word) + 1, now_ms,
                       random);
        }

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    if (next) {
        return NGX_RATELIMIT_BREAKER_SAME;
    }

    atomic_store(&breaker->timeouts, 0);

    return NGX_RATELIMIT_BREAKER_CLOSED_NOW;
}


/* Of a closed breaker, whose state was word. */
static ngx_ratelimit_breaker_change_e
ngx_ratelimit_breaker_count(ngx_ratelimit_breaker_t *breaker, uint64_t word,
    ngx_ratelimit_breaker_outcome_e outcome, uint64_t now_ms, uint32_t random)
{
    int       trips;
    uint32_t  begin_ms, calls, failed;
    uint64_t  next;

    trips = (outcome == NGX_RATELIMIT_BREAKER_TIMED_OUT)
            && ngx_ratelimit_breaker_third_timeout(breaker, now_ms);

    do {
        if (ngx_ratelimit_breaker_word_state(word)
            != NGX_RATELIMIT_BREAKER_CLOSED)
        {
            return NGX_RATELIMIT_BREAKER_SAME;
        }

        failed = (word >> 2) & NGX_RATELIMIT_BREAKER_MAX_COUNT;
        calls = (word >> 17) & NGX_RATELIMIT_BREAKER_MAX_COUNT;
        begin_ms = (uint32_t) (word >> 32);

        if ((uint32_t) now_ms - begin_ms >= NGX_RATELIMIT_BREAKER_SECOND_MS) {
            begin_ms = (uint32_t) now_ms;
            calls = 0;
            failed = 0;
        }

        /* a count that is full stays so: the share is as good then */

        if (calls < NGX_RATELIMIT_BREAKER_MAX_COUNT) {
            calls++;
            failed += (outcome != NGX_RATELIMIT_BREAKER_GOOD);
        }

        if (trips
            || (calls >= NGX_RATELIMIT_BREAKER_CALLS && failed * 2 >= calls))
        {
            next = ngx_ratelimit_breaker_open(0, now_ms, random);

        } else {
            next = (uint64_t) begin_ms << 32 | (uint64_t) calls << 17
                   | (uint64_t) failed << 2 | NGX_RATELIMIT_BREAKER_CLOSED;
        }

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return ngx_ratelimit_breaker_word_state(next)
           == NGX_RATELIMIT_BREAKER_OPEN
           ? NGX_RATELIMIT_BREAKER_OPENED : NGX_RATELIMIT_BREAKER_SAME;
}


/*
 * timeouts has the last two, the later one in its low half, each a millisecond
 * later than it was, so that 0 is none.
 */
static int
ngx_ratelimit_breaker_third_timeout(ngx_ratelimit_breaker_t *breaker,
    uint64_t now_ms)
{
    uint32_t  now, before, last;
    uint64_t  word;

    now = (uint32_t) now_ms + 1;
    word = atomic_load(&breaker->timeouts);

    do {
        last = (uint32_t) word;
        before = (uint32_t) (word >> 32);

    } while (!atomic_compare_exchange_weak(&breaker->timeouts, &word,
                                           (uint64_t) last << 32 | now));

    return before && now - before < NGX_RATELIMIT_BREAKER_SECOND_MS;
}


/* Three quarters to five quarters of the wait, but never above the most. */
static uint64_t
ngx_ratelimit_breaker_open(unsigned doublings, uint64_t now_ms,
    uint32_t random)
{
    uint64_t  wait_ms;

    if (doublings > NGX_RATELIMIT_BREAKER_DOUBLINGS) {
        doublings = NGX_RATELIMIT_BREAKER_DOUBLINGS;
    }

    wait_ms = (uint64_t) NGX_RATELIMIT_BREAKER_MIN_MS << doublings;

    if (wait_ms > NGX_RATELIMIT_BREAKER_MAX_MS) {
        wait_ms = NGX_RATELIMIT_BREAKER_MAX_MS;
    }

    wait_ms = wait_ms * 3 / 4 + random % (wait_ms / 2);

    if (wait_ms > NGX_RATELIMIT_BREAKER_MAX_MS) {
        wait_ms = NGX_RATELIMIT_BREAKER_MAX_MS;
    }

    return ngx_ratelimit_breaker_word(NGX_RATELIMIT_BREAKER_OPEN, doublings,
                                      now_ms + wait_ms);
}


void
ngx_ratelimit_breaker_hint(ngx_ratelimit_breaker_t *breaker, uint64_t now_ms)
{
    uint64_t  word, next;

    word = atomic_load(&breaker->state);

    do {
        if (ngx_ratelimit_breaker_word_state(word)
            != NGX_RATELIMIT_BREAKER_OPEN
            || ngx_ratelimit_breaker_word_until(word) <= now_ms)
        {
            return;
        }

        next = ngx_ratelimit_breaker_word(NGX_RATELIMIT_BREAKER_OPEN,
                              ngx_ratelimit_breaker_word_doublings(word),
                              now_ms);

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));
}


ngx_ratelimit_breaker_state_e
ngx_ratelimit_breaker_state(ngx_ratelimit_breaker_t *breaker)
{
    return ngx_ratelimit_breaker_word_state(atomic_load(&breaker->state));
}

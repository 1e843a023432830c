/*
 * The breaker's words. state is, from its low end: the state (2 bits); then
 * where CLOSED the calls that failed (15) and all calls (15) of a second, and
 * when that began (32, in milliseconds, cut off); else how often the wait was
 * doubled (6) and until when it lasts (56). timeouts is how long before the
 * last one the one before it was (20), and when the last one was (44).
 *
 * Each process has looked at the clock some time ago, so one may come with a
 * moment before the one that another has left here.
 */

#include "ngx_ratelimit_breaker.h"

#define NGX_RATELIMIT_BREAKER_SECOND_MS  1000
#define NGX_RATELIMIT_BREAKER_MAX_COUNT  0x7fff
#define NGX_RATELIMIT_BREAKER_DOUBLINGS  1      /* MIN_MS << 1 = MAX_MS */
#define NGX_RATELIMIT_BREAKER_LONG_AGO   0xfffff

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

        if (lost_ms == 0) {
            *wait_ms = 1;
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

    /*
     * Before it is closed, while nobody counts: who dies in between leaves no
     * old ones behind.
     */

    if (outcome == NGX_RATELIMIT_BREAKER_GOOD) {
        atomic_store(&breaker->timeouts, 0);
    }

    do {
        if (ngx_ratelimit_breaker_word_state(word)
            == NGX_RATELIMIT_BREAKER_CLOSED)
        {
            return NGX_RATELIMIT_BREAKER_SAME;
        }

        if (outcome == NGX_RATELIMIT_BREAKER_GOOD) {
            next = 0;

        } else if (ngx_ratelimit_breaker_word_state(word)
                   == NGX_RATELIMIT_BREAKER_OPEN)
        {
            /* a lost one, whose successor has failed already */

            return NGX_RATELIMIT_BREAKER_SAME;

        } else {
            next = ngx_ratelimit_breaker_open(
                       ngx_ratelimit_breaker_word_doublings(word) + 1, now_ms,
                       random);
        }

    } while (!atomic_compare_exchange_weak(&breaker->state, &word, next));

    return next ? NGX_RATELIMIT_BREAKER_SAME
                : NGX_RATELIMIT_BREAKER_CLOSED_NOW;
}


/* Of a closed breaker, whose state was word. */
static ngx_ratelimit_breaker_change_e
ngx_ratelimit_breaker_count(ngx_ratelimit_breaker_t *breaker, uint64_t word,
    ngx_ratelimit_breaker_outcome_e outcome, uint64_t now_ms, uint32_t random)
{
    int       trips;
    int32_t   passed_ms;
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

        passed_ms = (int32_t) ((uint32_t) now_ms - begin_ms);

        if (passed_ms >= NGX_RATELIMIT_BREAKER_SECOND_MS
            || passed_ms <= -NGX_RATELIMIT_BREAKER_SECOND_MS)
        {
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


/* Notes a timeout; whether it is the third within a second. */
static int
ngx_ratelimit_breaker_third_timeout(ngx_ratelimit_breaker_t *breaker,
    uint64_t now_ms)
{
    uint64_t  word, last_ms, before_ms, passed_ms;

    word = atomic_load(&breaker->timeouts);

    do {
        last_ms = word >> 20;
        before_ms = word & NGX_RATELIMIT_BREAKER_LONG_AGO;
        passed_ms = 0;

        if (now_ms > last_ms) {
            passed_ms = now_ms - last_ms;
            last_ms = now_ms;
        }

        if (word == 0 || passed_ms > NGX_RATELIMIT_BREAKER_LONG_AGO) {
            before_ms = NGX_RATELIMIT_BREAKER_LONG_AGO;
            passed_ms = NGX_RATELIMIT_BREAKER_LONG_AGO;
        }

    } while (!atomic_compare_exchange_weak(&breaker->timeouts, &word,
                                           last_ms << 20 | passed_ms));

    return before_ms + passed_ms < NGX_RATELIMIT_BREAKER_SECOND_MS;
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

/* The circuit breaker: when it opens, who probes, how it closes. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ngx_rl_breaker.h"

#define LOST     700
#define TIMEOUT  50
#define WINDOW   100       /* the timeout and 50 */
#define ALL      NGX_RL_BREAKER_ALL
#define NOW      ((uint64_t) 1000000)

#define GOOD         NGX_RL_BREAKER_GOOD
#define FAILED       NGX_RL_BREAKER_FAILED
#define LATE         NGX_RL_BREAKER_LATE
#define UNREACHABLE  NGX_RL_BREAKER_UNREACHABLE
#define TIMED_OUT    NGX_RL_BREAKER_TIMED_OUT
#define SAME         NGX_RL_BREAKER_SAME
#define OPENED       NGX_RL_BREAKER_OPENED
#define READMITS     NGX_RL_BREAKER_READMITS_NOW
#define CLOSED       NGX_RL_BREAKER_CLOSED_NOW

#define assert_state(b, name)                                                 \
    assert_int_equal(ngx_rl_breaker_state(&(b)),                              \
                     NGX_RL_BREAKER_##name)

/* the jitter that leaves a wait of ms as it is */
#define EVEN(ms)  (((uint32_t) (ms) + 3) / 4)


static ngx_rl_breaker_good_t  good;   /* calls kept back */


static ngx_rl_breaker_now_t
at(uint64_t ms, uint32_t random)
{
    ngx_rl_breaker_now_t  now;

    now.ms = ms;
    now.timeout_ms = TIMEOUT;
    now.random = random;

    return now;
}


static ngx_rl_breaker_t
breaker(void)
{
    ngx_rl_breaker_t b = { 0 };
    memset(&good, 0, sizeof(good));

    return b;
}


static ngx_rl_breaker_change_e
report(ngx_rl_breaker_t *b, ngx_rl_breaker_outcome_e outcome, uint64_t now_ms)
{
    ngx_rl_breaker_now_t  now = at(now_ms, EVEN(125));

    return ngx_rl_breaker_report(b, &good, outcome, &now);
}


/* So many that change nothing. */
static void
reports(ngx_rl_breaker_t *b, ngx_rl_breaker_outcome_e outcome, int n,
    uint64_t now_ms)
{
    while (n--) {
        assert_int_equal(report(b, outcome, now_ms), SAME);
    }
}


static ngx_rl_breaker_change_e
probed(ngx_rl_breaker_t *b, int good, uint64_t now_ms, uint32_t random)
{
    ngx_rl_breaker_now_t  now = at(now_ms, random);

    return ngx_rl_breaker_probed(b, good, &now);
}


static ngx_rl_breaker_change_e
heard(ngx_rl_breaker_t *b, int good, uint64_t now_ms)
{
    return ngx_rl_breaker_heard(b, good
                                          ? NGX_RL_BREAKER_REPLY_GOOD
                                          : NGX_RL_BREAKER_REPLY_ERROR,
                                now_ms);
}


/* A late reply; whether it has a probe due. */
static int
heard_late(ngx_rl_breaker_t *b, uint64_t now_ms)
{
    assert_int_equal(ngx_rl_breaker_heard(b, NGX_RL_BREAKER_REPLY_LATE, now_ms),
                     SAME);

    return ngx_rl_breaker_hasten(b, now_ms);
}


static uint64_t
ask(ngx_rl_breaker_t *b, uint64_t now_ms)
{
    uint32_t              credit = 0;
    ngx_rl_breaker_now_t  now = at(now_ms, 0);

    return ngx_rl_breaker_ask(b, &now, &credit);
}


static uint64_t
probe(ngx_rl_breaker_t *b, uint64_t now_ms)
{
    return ngx_rl_breaker_probe(b, now_ms, LOST);
}


/* How many of so many calls it lets through. */
static uint32_t
passed(ngx_rl_breaker_t *b, uint64_t now_ms, uint32_t calls)
{
    uint32_t              n;
    ngx_rl_breaker_now_t  now = at(now_ms, 0);

    uint32_t credit = 0;

    for (n = 0; calls; calls--) {
        n += (ngx_rl_breaker_ask(b, &now, &credit) == 0);
        assert_true(credit < ALL);
    }

    return n;
}


/* One that opened just now, and is to be probed in 125 ms. */
static ngx_rl_breaker_t
opened(ngx_rl_breaker_outcome_e outcome, uint64_t now_ms)
{
    ngx_rl_breaker_t b = breaker();

    while (report(&b, outcome, now_ms) != OPENED) { /* void */ }

    assert_state(b, OPEN);

    return b;
}


/* One that has begun to readmit just now. */
static ngx_rl_breaker_t
readmitting(uint64_t now_ms)
{
    ngx_rl_breaker_t b = opened(FAILED, now_ms - 125);
    assert_int_equal(probe(&b, now_ms), 0);
    assert_int_equal(probed(&b, 1, now_ms, 0), READMITS);
    assert_state(b, READMITS);

    return b;
}


static void
test_three_timeouts(void **state)
{
    uint64_t  apart_ms;

    /* however far apart, where nothing was heard in between */

    for (apart_ms = 0; apart_ms < 100000; apart_ms = 3 * apart_ms + 1) {
        ngx_rl_breaker_t b = breaker();

        assert_int_equal(report(&b, TIMED_OUT, NOW), SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW + apart_ms), SAME);
        assert_int_equal(ask(&b, NOW + apart_ms), 0);
        assert_int_equal(report(&b, TIMED_OUT, NOW + 2 * apart_ms), OPENED);
        assert_int_equal(ask(&b, NOW + 2 * apart_ms), 125);
    }
}


/* Any reply in time in between, an error too, begins the count anew. */
static void
test_timeouts_among_replies(void **state)
{
    ngx_rl_breaker_t b = breaker();

    for (int i = 0; i < 200; i++) {
        reports(&b, TIMED_OUT, 2, NOW + 300 * i);
        assert_int_equal(heard(&b, i % 2, NOW + 300 * i), SAME);
        assert_int_equal(report(&b, GOOD, NOW + 300 * i), SAME);
    }

    assert_state(b, CLOSED);

    /* also where another process's clock is behind */

    reports(&b, TIMED_OUT, 2, NOW + 60000);
    assert_int_equal(heard(&b, 1, NOW), SAME);
    assert_true(ngx_rl_breaker_lives(&b, NOW + 59000));
    assert_int_equal(report(&b, TIMED_OUT, NOW + 60000), SAME);
}


/*
 * A late reply does not. Where the node was heard while the last call waited,
 * it is slow, not silent, and a probe in time only has it readmit.
 */
static void
test_timeouts_among_late_replies(void **state)
{
    for (int i = 0; i < 2; i++) {
        ngx_rl_breaker_t b = breaker();

        reports(&b, LATE, 1, NOW);
        assert_false(heard_late(&b, NOW + 1));
        reports(&b, TIMED_OUT, 1, NOW + 2);
        assert_false(heard_late(&b, NOW + 3));
        assert_int_equal(report(&b, i ? LATE : TIMED_OUT, NOW + 4), OPENED);
        assert_true(ngx_rl_breaker_lives(&b, NOW + 2));

        assert_int_equal(probe(&b, NOW + 129), 0);
        assert_int_equal(probed(&b, 1, NOW + 130, 0), i ? READMITS : CLOSED);
    }
}


/* While it readmits, late calls lessen the share and do not open it. */
static void
test_readmits_late(void **state)
{
    ngx_rl_breaker_t b = readmitting(NOW);
    reports(&b, LATE, 10, NOW + 1);
    assert_state(b, READMITS);
    assert_int_equal(passed(&b, NOW + WINDOW, 256), 24);
}


/*
 * A silent node that answers late lives: it is probed at once, but once. Where
 * the probe is late, too, the waits grow.
 */
static void
test_hasten(void **state)
{
    ngx_rl_breaker_t b = opened(TIMED_OUT, NOW);
    assert_int_equal(probe(&b, NOW + 5), 120);
    assert_true(heard_late(&b, NOW + 5));
    assert_false(heard_late(&b, NOW + 5));
    assert_int_equal(probe(&b, NOW + 5), 0);
    assert_false(heard_late(&b, NOW + 6));
    assert_int_equal(probed(&b, 0, NOW + 55, EVEN(250)), SAME);
    assert_false(heard_late(&b, NOW + 60));
    assert_int_equal(probe(&b, NOW + 60), 245);

    b = opened(FAILED, NOW);
    assert_false(heard_late(&b, NOW + 5));
}


/*
 * A node whose replies take longer than the timeout, for ten seconds, then not.
 * Where they are late only three calls wait, and those on their way meanwhile.
 */
static void
slow(uint32_t rate, uint32_t delay_ms)
{
    uint32_t          waited, most, sent_ms[4096], first, next, end, i;
    uint64_t          now_ms, heard_ms, probe_ms;

    ngx_rl_breaker_t b = breaker();
    waited = first = next = end = 0;
    int opens = 0;
    heard_ms = probe_ms = 0;

    for (now_ms = NOW; now_ms < NOW + 10000; now_ms++) {

        /* deadlines, replies, the probe's, then calls */

        while (next < end && now_ms - NOW >= sent_ms[next] + TIMEOUT) {
            opens += (report(&b, heard_ms > NOW + sent_ms[next] ? LATE
                                                                : TIMED_OUT,
                             now_ms)
                      == OPENED);
            next++;
        }

        while (first < end && now_ms - NOW >= sent_ms[first] + delay_ms) {
            (void) heard_late(&b, now_ms);
            heard_ms = now_ms;
            first++;
        }

        if (probe_ms && now_ms == probe_ms + TIMEOUT) {
            assert_int_equal(probed(&b, 0, now_ms, 7), SAME);
        }

        if (probe_ms && now_ms == probe_ms + delay_ms) {
            (void) heard_late(&b, now_ms);
            probe_ms = 0;
        }

        if (probe_ms == 0 && probe(&b, now_ms) == 0) {
            probe_ms = now_ms;
        }

        for (i = (now_ms - NOW) * rate / 1000;
             i < (now_ms - NOW + 1) * rate / 1000;
             i++)
        {
            if (ask(&b, now_ms) == 0) {
                sent_ms[end++] = (uint32_t) (now_ms - NOW);
                waited++;
            }
        }
    }

    most = 3 + (rate * TIMEOUT + 999) / 1000;
    assert_in_range(waited, 3, most);
    assert_int_equal(opens, 1);
    assert_state(b, OPEN);

    /* it is fast again */

    while (probe(&b, now_ms)) {
        now_ms++;
    }

    assert_in_range(now_ms, NOW + 10000, NOW + 12000);
    assert_int_not_equal(probed(&b, 1, now_ms + 1, 0), SAME);
    assert_int_equal(passed(&b, now_ms + 2000, 256), 256);
}


static void
test_slow(void **state)
{
    uint32_t  j;

    static const uint32_t  rates[] = { 1, 10, 30, 100, 300, 1000 };
    static const uint32_t  delays_ms[] = { 51, 55, 60, 80, 120, 400, 2000 };

    for (uint32_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        for (j = 0; j < sizeof(delays_ms) / sizeof(delays_ms[0]); j++) {
            slow(rates[i], delays_ms[j]);
        }
    }
}


/* Nobody is connected, and nobody can be: whatever there was before. */
static void
test_gone(void **state)
{
    ngx_rl_breaker_now_t  now = at(NOW, EVEN(125));

    for (int i = 0; i < 2; i++) {
        ngx_rl_breaker_t b = i ? readmitting(NOW) : breaker();
        assert_int_equal(ngx_rl_breaker_gone(&b, &now), OPENED);
        assert_int_equal(ngx_rl_breaker_gone(&b, &now), SAME);
        assert_state(b, OPEN);
        assert_int_equal(ask(&b, NOW), 125);
        assert_int_equal(heard(&b, 0, NOW + 20), SAME);
        assert_int_equal(heard(&b, 1, NOW + 20), CLOSED);
        assert_int_equal(ask(&b, NOW + 20), 0);
    }
}


static void
test_lives(void **state)
{
    ngx_rl_breaker_t b = breaker();
    assert_false(ngx_rl_breaker_lives(&b, 0));

    (void) heard(&b, 0, NOW);
    assert_true(ngx_rl_breaker_lives(&b, NOW - 1));
    assert_false(ngx_rl_breaker_lives(&b, NOW));

    /* no timeout hides it */

    (void) report(&b, TIMED_OUT, NOW + 5);
    assert_true(ngx_rl_breaker_lives(&b, NOW - 1));
    assert_false(ngx_rl_breaker_lives(&b, NOW));
}


static void
test_half_of_twenty(void **state)
{
    /* ten failed of twenty, in any order; nine are not half */

    for (int failing = 9; failing <= 10; failing++) {
        ngx_rl_breaker_t b = breaker();

        for (int i = 0; i < 19; i++) {
            assert_int_equal(report(&b, i < failing - 1 ? FAILED : GOOD,
                                    NOW + i), SAME);
        }

        assert_int_equal(report(&b, FAILED, NOW + 19),
                         failing == 10 ? OPENED : SAME);
    }

    /* nineteen that all failed are too few */

    ngx_rl_breaker_t b = breaker();

    for (int i = 0; i < 19; i++) {
        assert_int_equal(report(&b, i % 2 ? FAILED : UNREACHABLE, NOW), SAME);
    }

    /* nor does a good call open it */

    assert_int_equal(report(&b, GOOD, NOW), SAME);
    assert_state(b, CLOSED);
    assert_int_equal(report(&b, FAILED, NOW), OPENED);

    /* another process's clock may be a little behind */

    b = breaker();

    for (int i = 0; i < 19; i++) {
        assert_int_equal(report(&b, FAILED, NOW + (i == 0 ? 5 : i % 5)), SAME);
    }

    assert_int_equal(report(&b, FAILED, NOW), OPENED);
}


static void
test_a_second_is_over(void **state)
{
    ngx_rl_breaker_t b = breaker();
    reports(&b, FAILED, 19, NOW);

    /* the first of a new one */

    reports(&b, FAILED, 19, NOW + 1000);
    assert_int_equal(report(&b, FAILED, NOW + 1999), OPENED);
}


static void
test_full_counts(void **state)
{
    ngx_rl_breaker_t b = breaker();

    for (int i = 0; i < 100000; i++) {
        assert_int_equal(report(&b, i % 3 == 0 ? FAILED : GOOD, NOW + i % 990),
                         SAME);
    }

    assert_state(b, CLOSED);

    /* and the next second counts from none */

    reports(&b, FAILED, 19, NOW + 1000);

    assert_int_equal(report(&b, FAILED, NOW + 1000), OPENED);
}


static void
test_open(void **state)
{
    ngx_rl_breaker_t b = opened(FAILED, NOW);

    /* what had been sent before counts no more, good or bad */

    for (int i = 0; i < 100; i++) {
        assert_int_equal(report(&b, GOOD, NOW + i), SAME);
        assert_int_equal(heard(&b, 1, NOW + i), SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW + i), SAME);
        assert_int_equal(ask(&b, NOW + i), 125 - i);
    }

    /* calls do not go on when its time is over: one process probes */

    assert_int_equal(probe(&b, NOW + 124), 1);
    assert_int_equal(ask(&b, NOW + 130), 1);
    assert_int_equal(probe(&b, NOW + 130), 0);
    assert_int_equal(probe(&b, NOW + 130), LOST);
    assert_int_equal(ask(&b, NOW + 131), LOST - 1);

    /* who probed may have died */

    assert_int_equal(probe(&b, NOW + 130 + LOST), 0);
}


/* A silent node is well as soon as it answers in time; an error is no work. */
static void
test_silence_ends(void **state)
{
    ngx_rl_breaker_t          b;
    ngx_rl_breaker_outcome_e  outcome;

    for (outcome = UNREACHABLE; outcome <= TIMED_OUT; outcome++) {
        b = opened(outcome, NOW);
        (void) heard_late(&b, NOW + 20);
        assert_state(b, OPEN);
        assert_int_equal(heard(&b, 0, NOW + 20), SAME);
        assert_state(b, OPEN);
        assert_int_equal(heard(&b, 1, NOW + 20), CLOSED);
        assert_int_equal(heard(&b, 1, NOW + 20), SAME);
        assert_int_equal(ask(&b, NOW + 20), 0);

        /* and the count of timeouts begins anew */

        reports(&b, TIMED_OUT, 2, NOW + 21);
        assert_state(b, CLOSED);

        b = opened(outcome, NOW);
        assert_int_equal(probe(&b, NOW + 125), 0);
        assert_int_equal(probed(&b, 1, NOW + 130, 0), CLOSED);
        assert_state(b, CLOSED);
    }

    /* nothing is left to tell one that is closed */

    assert_int_equal(probe(&b, NOW), NGX_RL_BREAKER_MAX_MS);
    assert_int_equal(probed(&b, 0, NOW, 0), SAME);
    assert_int_equal(probed(&b, 1, NOW, 0), SAME);
    assert_state(b, CLOSED);
}


static void
test_doubling(void **state)
{
    ngx_rl_breaker_t  failed;

    static const uint64_t  waits_ms[] = { 125, 250, 500, 1000, 1000, 1000 };

    uint64_t now_ms = NOW;
    ngx_rl_breaker_t b = opened(TIMED_OUT, now_ms);

    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(&b, now_ms), waits_ms[i]);
        now_ms += waits_ms[i];
        assert_int_equal(probe(&b, now_ms), 0);

        /* the jitter: three to five quarters, and never above the most */

        uint64_t least_ms = UINT64_MAX;
        uint64_t most_ms = 0;

        for (uint32_t random = 0; random < 1000; random++) {
            memcpy(&failed, &b, sizeof(b));
            (void) probed(&failed, 0, now_ms, random);
            uint64_t wait_ms = ask(&failed, now_ms);
            least_ms = wait_ms < least_ms ? wait_ms : least_ms;
            most_ms = wait_ms > most_ms ? wait_ms : most_ms;
        }

        assert_int_equal(least_ms, waits_ms[i + 1] * 3 / 4);
        assert_in_range(most_ms, waits_ms[i + 1],
                        waits_ms[i + 1] * 5 / 4 > 1000
                        ? 1000 : waits_ms[i + 1] * 5 / 4);

        assert_int_equal(probed(&b, 0, now_ms, EVEN(waits_ms[i + 1])), SAME);
        assert_state(b, OPEN);
    }
}


/* The share of the calls that is let through, window by window. */
static void
test_readmits(void **state)
{
    static const uint32_t  shares[] = { 32, 64, 128, 256 };

    ngx_rl_breaker_t b = readmitting(NOW);
    uint64_t now_ms = NOW;
    uint32_t share = 32;

    for (int i = 0; share < ALL; i++) {
        assert_int_equal(passed(&b, now_ms, 256), share);

        for (int j = 0; j < 19; j++) {
            assert_int_equal(report(&b, j == 5 ? FAILED : GOOD, now_ms), SAME);
        }

        assert_int_equal(passed(&b, now_ms + WINDOW - 1, 256), share);

        now_ms += WINDOW;
        share = shares[i + 1];
    }

    /* all are let through for ten windows before it is closed */

    for (int i = 0; i < 9; i++) {
        assert_int_equal(passed(&b, now_ms, 256), 256);
        assert_int_equal(report(&b, GOOD, now_ms), SAME);
        assert_state(b, READMITS);
        now_ms += WINDOW;
    }

    assert_int_equal(report(&b, GOOD, now_ms), SAME);
    assert_int_equal(report(&b, GOOD, now_ms + WINDOW), CLOSED);
    assert_state(b, CLOSED);
}


static void
test_too_much(void **state)
{
    /* a bad window takes a quarter, then the share grows slowly */

    ngx_rl_breaker_t b = readmitting(NOW);
    (void) report(&b, GOOD, NOW + WINDOW);
    (void) report(&b, GOOD, NOW + 2 * WINDOW);
    assert_int_equal(passed(&b, NOW + 2 * WINDOW, 256), 128);

    for (int i = 0; i < 8; i++) {
        assert_int_equal(report(&b, i ? GOOD : FAILED, NOW + 2 * WINDOW), SAME);
    }

    assert_int_equal(passed(&b, NOW + 3 * WINDOW, 256), 96);
    (void) report(&b, GOOD, NOW + 3 * WINDOW);
    assert_int_equal(passed(&b, NOW + 4 * WINDOW, 256), 104);

    /* the least share that fails again: it opens, and waits for long */

    b = readmitting(NOW);
    uint64_t now_ms = NOW;

    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 4; j++) {
            if (report(&b, FAILED, now_ms) == OPENED) {
                assert_int_equal(i, 7);
                assert_in_range(ask(&b, now_ms), 750, 1000);
                return;
            }
        }

        now_ms += WINDOW;
    }

    fail();
}


/* Two bad windows, then good ones: above what was too much the steps grow. */
static void
test_no_longer_too_much(void **state)
{
    static const uint32_t  shares[] = { 18, 26, 34, 42, 56, 84, 140, 252, 256 };

    ngx_rl_breaker_t b = readmitting(NOW);
    uint64_t now_ms = NOW;

    for (int i = 0; i < 2; i++) {
        reports(&b, FAILED, 4, now_ms);
        now_ms += WINDOW;
    }

    for (int i = 0; i < 9; i++) {
        assert_int_equal(passed(&b, now_ms, 256), shares[i]);
        assert_int_equal(report(&b, GOOD, now_ms), SAME);
        now_ms += WINDOW;
    }
}


static void
test_readmits_in_silence(void **state)
{
    /* no good reply alone closes it: it was overloaded before */

    ngx_rl_breaker_t b = readmitting(NOW);
    reports(&b, TIMED_OUT, 2, NOW + 1);
    assert_int_equal(report(&b, TIMED_OUT, NOW + 1), OPENED);
    assert_int_equal(heard(&b, 1, NOW + 2), SAME);
    assert_state(b, OPEN);
    assert_int_equal(probe(&b, NOW + 126), 0);
    assert_int_equal(probed(&b, 1, NOW + 130, 0), READMITS);
}


/* Good calls are not written one by one, and yet counted beside the others. */
static void
test_kept(void **state)
{
    ngx_rl_breaker_t b = breaker();
    reports(&b, GOOD, 1, NOW);
    ngx_rl_breaker_t before = b;
    reports(&b, GOOD, 29, NOW + 9);
    assert_memory_equal(&b, &before, sizeof(b));

    reports(&b, FAILED, 29, NOW + 9);
    assert_int_equal(report(&b, FAILED, NOW + 9), OPENED);

    /* with the first that comes 10 ms later, too */

    b = breaker();
    reports(&b, GOOD, 29, NOW);
    reports(&b, GOOD, 1, NOW + 10);
    memset(&good, 0, sizeof(good));
    reports(&b, FAILED, 29, NOW + 20);
    assert_int_equal(report(&b, FAILED, NOW + 20), OPENED);

    /* but not with those of another second */

    b = breaker();
    reports(&b, GOOD, 100, NOW);
    reports(&b, FAILED, 19, NOW + 1000);
    assert_int_equal(report(&b, FAILED, NOW + 1000), OPENED);
}


/* What nobody uses closes all the same, and the first calls go through. */
static void
test_unused(void **state)
{
    ngx_rl_breaker_t b = readmitting(NOW);
    assert_int_equal(ask(&b, NOW + 10000), 0);
    assert_state(b, READMITS);

    for (uint64_t now_ms = NOW; now_ms < NOW + 60000; now_ms += 1000) {
        ngx_rl_breaker_now_t now = at(now_ms, 0);

        if (ngx_rl_breaker_settle(&b, &now) == CLOSED) {
            assert_state(b, CLOSED);
            assert_in_range(now_ms, NOW + 1000, NOW + 10000);
            now = at(now_ms + 1, 0);
            assert_int_equal(ngx_rl_breaker_settle(&b, &now), SAME);
            return;
        }
    }

    fail();
}


/* The same at the moments where a cut off clock begins anew. */
static void
test_wraps(void **state)
{
    static const uint64_t  edges[] = { (uint64_t) 1 << 22, (uint64_t) 1 << 23,
        (uint64_t) 1 << 31, (uint64_t) 1 << 32, (uint64_t) 1 << 33,
        ((uint64_t) 1 << 44) - 8000 };

    for (int i = 0; i < 6; i++) {
        for (int early_ms = -3; early_ms <= 400; early_ms += 7) {
            uint64_t now_ms = edges[i] - early_ms;

            ngx_rl_breaker_t b = breaker();

            while (report(&b, FAILED, now_ms++) == SAME) { /* void */ }

            assert_int_equal(now_ms, edges[i] - early_ms + 20);

            b = readmitting(edges[i] - early_ms);
            now_ms = edges[i] - early_ms;

            assert_int_equal(passed(&b, now_ms - 3, 256), 32);
            assert_int_equal(passed(&b, now_ms + WINDOW - 1, 256), 32);
            assert_int_equal(passed(&b, now_ms + WINDOW, 256), 64);
            assert_int_equal(passed(&b, now_ms + 2 * WINDOW, 256), 128);
        }
    }
}

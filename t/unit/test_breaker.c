/* The circuit breaker: when it opens, who probes, when it closes. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ngx_ratelimit_breaker.h"

#define LOST  700
#define NOW   ((uint64_t) 1000000)

#define GOOD       NGX_RATELIMIT_BREAKER_GOOD
#define FAILED     NGX_RATELIMIT_BREAKER_FAILED
#define TIMED_OUT  NGX_RATELIMIT_BREAKER_TIMED_OUT
#define SAME       NGX_RATELIMIT_BREAKER_SAME
#define OPENED     NGX_RATELIMIT_BREAKER_OPENED
#define CLOSED     NGX_RATELIMIT_BREAKER_CLOSED_NOW
#define PASS       NGX_RATELIMIT_BREAKER_PASS
#define REFUSE     NGX_RATELIMIT_BREAKER_REFUSE
#define PROBE      NGX_RATELIMIT_BREAKER_PROBE

#define assert_state(b, name)                                                 \
    assert_int_equal(ngx_ratelimit_breaker_state(&(b)),                       \
                     NGX_RATELIMIT_BREAKER_##name)

/* the jitter that leaves a wait of ms as it is */
#define EVEN(ms)  ((uint32_t) (ms) / 4)


static ngx_ratelimit_breaker_t
breaker(void)
{
    ngx_ratelimit_breaker_t  b;

    memset(&b, 0, sizeof(b));

    return b;
}


static ngx_ratelimit_breaker_change_e
report(ngx_ratelimit_breaker_t *b, ngx_ratelimit_breaker_outcome_e outcome,
    uint64_t now_ms)
{
    return ngx_ratelimit_breaker_report(b, outcome, 0, now_ms, EVEN(500));
}


static ngx_ratelimit_breaker_change_e
probed(ngx_ratelimit_breaker_t *b, ngx_ratelimit_breaker_outcome_e outcome,
    uint64_t now_ms, uint32_t random)
{
    return ngx_ratelimit_breaker_report(b, outcome, 1, now_ms, random);
}


static ngx_ratelimit_breaker_advice_e
ask(ngx_ratelimit_breaker_t *b, uint64_t now_ms)
{
    uint64_t                        wait_ms;
    ngx_ratelimit_breaker_advice_e  advice;

    advice = ngx_ratelimit_breaker_ask(b, now_ms, LOST, &wait_ms);

    if (advice == REFUSE) {
        assert_true(wait_ms >= 1);

    } else {
        assert_int_equal(wait_ms, 0);
    }

    return advice;
}


/* How long it refuses from now on; nothing is changed. */
static uint64_t
wait_of(ngx_ratelimit_breaker_t *b, uint64_t now_ms)
{
    uint64_t  wait_ms;

    assert_int_equal(ngx_ratelimit_breaker_ask(b, now_ms, 0, &wait_ms),
                     REFUSE);

    return wait_ms;
}


/* One that opened just now, and is to be probed in 500 ms. */
static ngx_ratelimit_breaker_t
opened(uint64_t now_ms)
{
    ngx_ratelimit_breaker_t  b;

    b = breaker();

    assert_int_equal(report(&b, TIMED_OUT, now_ms), SAME);
    assert_int_equal(report(&b, TIMED_OUT, now_ms), SAME);
    assert_int_equal(report(&b, TIMED_OUT, now_ms), OPENED);
    assert_state(b, OPEN);

    return b;
}


static void
test_three_timeouts(void **state)
{
    int                      i, opens;
    uint64_t                 passed_ms;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    /* wherever the second one is, within a second and not in 1.0 */

    for (i = 0; i <= 999; i += 37) {
        for (passed_ms = 999; passed_ms <= 1001; passed_ms++) {
            opens = (passed_ms < 1000);
            b = breaker();

            assert_int_equal(report(&b, TIMED_OUT, NOW), SAME);
            assert_int_equal(report(&b, TIMED_OUT, NOW + i), SAME);
            assert_int_equal(report(&b, TIMED_OUT, NOW + passed_ms),
                             opens ? OPENED : SAME);

            assert_int_equal(ask(&b, NOW + passed_ms), opens ? REFUSE : PASS);
        }
    }
}


static void
test_slow_timeouts(void **state)
{
    int                      i;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    /* two in each second, for ever */

    b = breaker();

    for (i = 0; i < 1000; i++) {
        assert_int_equal(report(&b, TIMED_OUT, NOW + (uint64_t) i * 500),
                         SAME);
    }

    /* long ago is not now, whatever is cut off from the difference */

    for (i = 20; i < 43; i++) {
        b = breaker();
        assert_int_equal(report(&b, TIMED_OUT, NOW), SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW), SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW + ((uint64_t) 1 << i)),
                         SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW + ((uint64_t) 1 << i)),
                         SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW + ((uint64_t) 1 << i)),
                         OPENED);
    }
}


/* Good replies in between do not make a timeout undone. */
static void
test_timeouts_among_good(void **state)
{
    int                      i;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = breaker();

    for (i = 0; i < 200; i++) {
        assert_int_equal(report(&b, GOOD, NOW + i), SAME);

        if (i % 60 == 59) {
            assert_int_equal(report(&b, TIMED_OUT, NOW + i),
                             i == 179 ? OPENED : SAME);
        }
    }

    assert_state(b, OPEN);
}


/* The clock that another process looked at last is a little behind. */
static void
test_clocks_apart(void **state)
{
    int                      i;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = breaker();
    assert_int_equal(report(&b, TIMED_OUT, NOW + 3), SAME);
    assert_int_equal(report(&b, TIMED_OUT, NOW + 1), SAME);
    assert_int_equal(report(&b, TIMED_OUT, NOW), OPENED);

    b = breaker();
    assert_int_equal(report(&b, TIMED_OUT, NOW + 10), SAME);
    assert_int_equal(report(&b, TIMED_OUT, NOW), SAME);
    assert_int_equal(report(&b, TIMED_OUT, NOW + 1010), SAME);

    b = breaker();

    for (i = 0; i < 19; i++) {
        assert_int_equal(report(&b, FAILED, NOW + (i == 0 ? 5 : i % 5)), SAME);
    }

    assert_int_equal(report(&b, FAILED, NOW), OPENED);
}


static void
test_half_of_twenty(void **state)
{
    int                      i, failing;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    /* ten failed of twenty, in any order; nine are not half */

    for (failing = 9; failing <= 10; failing++) {
        b = breaker();

        for (i = 0; i < 19; i++) {
            assert_int_equal(report(&b, i < failing - 1 ? FAILED : GOOD,
                                    NOW + i), SAME);
        }

        assert_int_equal(report(&b, FAILED, NOW + 19),
                         failing == 10 ? OPENED : SAME);
    }

    /* nineteen that all failed are too few */

    b = breaker();

    for (i = 0; i < 19; i++) {
        assert_int_equal(report(&b, FAILED, NOW), SAME);
    }

    assert_state(b, CLOSED);
    assert_int_equal(report(&b, GOOD, NOW), OPENED);
}


static void
test_a_second_is_over(void **state)
{
    int                      i;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = breaker();

    for (i = 0; i < 19; i++) {
        assert_int_equal(report(&b, FAILED, NOW + i), SAME);
    }

    /* the first of a new one */

    for (i = 0; i < 19; i++) {
        assert_int_equal(report(&b, FAILED, NOW + 1000), SAME);
    }

    assert_int_equal(report(&b, FAILED, NOW + 1999), OPENED);
}


static void
test_full_counts(void **state)
{
    int                      i;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = breaker();

    for (i = 0; i < 100000; i++) {
        assert_int_equal(report(&b, i % 3 == 0 ? FAILED : GOOD, NOW + i % 990),
                         SAME);
    }

    assert_state(b, CLOSED);

    /* and the next second counts from none */

    for (i = 0; i < 19; i++) {
        assert_int_equal(report(&b, FAILED, NOW + 1000), SAME);
    }

    assert_int_equal(report(&b, FAILED, NOW + 1000), OPENED);
}


static void
test_open(void **state)
{
    int                      i;
    uint64_t                 wait_ms;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = opened(NOW);

    /* what had been sent before counts no more, good or bad */

    for (i = 0; i < 100; i++) {
        assert_int_equal(report(&b, GOOD, NOW + i), SAME);
        assert_int_equal(report(&b, TIMED_OUT, NOW + i), SAME);
        assert_int_equal(ask(&b, NOW + i), REFUSE);
    }

    assert_int_equal(wait_of(&b, NOW), 500);
    assert_int_equal(wait_of(&b, NOW + 499), 1);

    /* due: who cannot probe leaves it to the next */

    assert_int_equal(ask(&b, NOW + 499), REFUSE);
    assert_int_equal(wait_of(&b, NOW + 500), 1);
    assert_state(b, OPEN);
    assert_int_equal(ask(&b, NOW + 500), PROBE);
    assert_state(b, PROBING);

    /* one probes */

    assert_int_equal(ngx_ratelimit_breaker_ask(&b, NOW + 500, LOST, &wait_ms),
                     REFUSE);
    assert_int_equal(wait_ms, LOST);

    /* and no other's report counts */

    assert_int_equal(report(&b, GOOD, NOW + 600), SAME);
    assert_int_equal(report(&b, FAILED, NOW + 600), SAME);
    assert_state(b, PROBING);
}


static void
test_closes(void **state)
{
    int                      i;
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = opened(NOW);
    assert_int_equal(ask(&b, NOW + 500), PROBE);
    assert_int_equal(probed(&b, GOOD, NOW + 510, 0), CLOSED);
    assert_state(b, CLOSED);
    assert_int_equal(ask(&b, NOW + 510), PASS);

    /* what there was before is forgotten, timeouts and counts */

    assert_int_equal(report(&b, TIMED_OUT, NOW + 510), SAME);
    assert_int_equal(report(&b, TIMED_OUT, NOW + 510), SAME);

    for (i = 0; i < 17; i++) {
        assert_int_equal(report(&b, FAILED, NOW + 510), SAME);
    }

    assert_int_equal(report(&b, FAILED, NOW + 510), OPENED);

    /* the wait starts small again */

    assert_int_equal(wait_of(&b, NOW + 510), 500);

    /* a report of a probe to one that was closed since is one of a call */

    b = breaker();
    assert_int_equal(probed(&b, GOOD, NOW, 0), SAME);
    assert_int_equal(probed(&b, FAILED, NOW, 0), SAME);
    assert_state(b, CLOSED);
}


static void
test_doubling(void **state)
{
    int                           i;
    uint64_t                      now_ms;
    ngx_ratelimit_breaker_t       b;

    static const uint64_t  waits_ms[] = { 500, 1000, 1000 };

    (void) state;

    now_ms = NOW;
    b = opened(now_ms);

    for (i = 0; i < 200; i++) {
        assert_int_equal(wait_of(&b, now_ms), waits_ms[i < 2 ? i : 2]);

        now_ms += waits_ms[i < 2 ? i : 2];
        assert_int_equal(ask(&b, now_ms), PROBE);

        /* a timeout is as bad as any other failure */

        assert_int_equal(probed(&b, i % 2 ? FAILED : TIMED_OUT, now_ms,
                                EVEN(waits_ms[i < 1 ? i + 1 : 2])),
                         SAME);
        assert_state(b, OPEN);
    }
}


static void
test_jitter(void **state)
{
    int                      i, doublings;
    uint64_t                 wait_ms, even_ms, least_ms, most_ms;
    uint32_t                 random;
    ngx_ratelimit_breaker_t  b, failed;

    static const uint64_t  waits_ms[] = { 1000, 1000 };

    (void) state;

    for (doublings = 0; doublings < 2; doublings++) {
        even_ms = waits_ms[doublings];
        least_ms = UINT64_MAX;
        most_ms = 0;

        b = opened(NOW);
        assert_int_equal(ask(&b, NOW + 500), PROBE);

        for (i = 0; i < doublings; i++) {
            assert_int_equal(probed(&b, FAILED, NOW, EVEN(waits_ms[i])), SAME);
            assert_int_equal(ask(&b, NOW + waits_ms[i]), PROBE);
        }

        random = 1;

        for (i = 0; i < 20000; i++) {
            random = random * 1664525 + 1013904223;
            memcpy(&failed, &b, sizeof(b));
            probed(&failed, FAILED, NOW, random >> 3);
            wait_ms = wait_of(&failed, NOW);

            least_ms = wait_ms < least_ms ? wait_ms : least_ms;
            most_ms = wait_ms > most_ms ? wait_ms : most_ms;
        }

        assert_int_equal(least_ms, even_ms * 3 / 4);
        assert_int_equal(most_ms, 1000);
    }
}


/* Who probed died, or never told. */
static void
test_lost_probe(void **state)
{
    ngx_ratelimit_breaker_t  b;

    (void) state;

    b = opened(NOW);
    assert_int_equal(ask(&b, NOW + 500), PROBE);
    assert_int_equal(ask(&b, NOW + 500 + LOST - 1), REFUSE);
    assert_int_equal(ask(&b, NOW + 500 + LOST), PROBE);
    assert_int_equal(ask(&b, NOW + 500 + LOST), REFUSE);

    /* of two that fail late the wait is doubled once */

    assert_int_equal(probed(&b, FAILED, NOW + 2000, EVEN(1000)), SAME);
    assert_int_equal(wait_of(&b, NOW + 2000), 1000);
    assert_int_equal(probed(&b, FAILED, NOW + 2500, EVEN(2000)), SAME);
    assert_int_equal(wait_of(&b, NOW + 2500), 500);

    /* a good reply is one, however late */

    assert_int_equal(probed(&b, GOOD, NOW + 2600, 0), CLOSED);
    assert_int_equal(probed(&b, GOOD, NOW + 2600, 0), SAME);
    assert_state(b, CLOSED);
}


static void
test_hint(void **state)
{
    ngx_ratelimit_breaker_t  b;

    (void) state;

    /* nothing to tell one that is closed */

    b = breaker();
    ngx_ratelimit_breaker_hint(&b, NOW);
    assert_int_equal(ask(&b, NOW), PASS);

    b = opened(NOW);
    ngx_ratelimit_breaker_hint(&b, NOW + 100);
    assert_int_equal(ask(&b, NOW + 100), PROBE);

    /* nor one that is being probed */

    ngx_ratelimit_breaker_hint(&b, NOW + 101);
    assert_int_equal(ask(&b, NOW + 101), REFUSE);

    /* a wait is doubled all the same */

    assert_int_equal(probed(&b, FAILED, NOW + 200, EVEN(1000)), SAME);
    assert_int_equal(wait_of(&b, NOW + 200), 1000);
    ngx_ratelimit_breaker_hint(&b, NOW + 300);
    assert_int_equal(ask(&b, NOW + 300), PROBE);
    assert_int_equal(probed(&b, FAILED, NOW + 300, EVEN(1000)), SAME);
    assert_int_equal(wait_of(&b, NOW + 300), 1000);

    /* one that is due stays so */

    ngx_ratelimit_breaker_hint(&b, NOW + 9000);
    assert_int_equal(ask(&b, NOW + 2300), PROBE);
}


/* The same at the moments where a cut off clock begins anew. */
static void
test_wraps(void **state)
{
    int                      i, early_ms;
    uint64_t                 now_ms;
    ngx_ratelimit_breaker_t  b;

    static const uint64_t  edges[] = { 1, (uint64_t) 1 << 20,
                                       (uint64_t) 1 << 31, (uint64_t) 1 << 32,
                                       (uint64_t) 1 << 33,
                                       ((uint64_t) 1 << 44) - 8000 };

    (void) state;

    for (i = 0; i < 6; i++) {
        for (early_ms = -3; early_ms <= 1000; early_ms++) {
            now_ms = edges[i] - (edges[i] > 1 ? early_ms : 0);

            b = breaker();
            assert_int_equal(report(&b, TIMED_OUT, now_ms), SAME);
            assert_int_equal(report(&b, TIMED_OUT, now_ms + 500), SAME);
            assert_int_equal(report(&b, TIMED_OUT, now_ms + 1000), SAME);
            assert_int_equal(report(&b, TIMED_OUT, now_ms + 1499), OPENED);

            assert_int_equal(ask(&b, now_ms + 1998), REFUSE);
            assert_int_equal(ask(&b, now_ms + 1999), PROBE);
            assert_int_equal(probed(&b, FAILED, now_ms + 2000, EVEN(1000)),
                             SAME);
            assert_int_equal(ask(&b, now_ms + 2999), REFUSE);
            assert_int_equal(ask(&b, now_ms + 3000), PROBE);
            assert_int_equal(probed(&b, GOOD, now_ms + 3000, 0), CLOSED);
        }

        for (early_ms = -3; early_ms <= 1000; early_ms += 59) {
            now_ms = edges[i] - (edges[i] > 1 ? early_ms : 0);
            b = breaker();

            while (report(&b, FAILED, now_ms++) == SAME) { /* void */ }

            assert_int_equal(now_ms,
                             edges[i] - (edges[i] > 1 ? early_ms : 0) + 20);
        }
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_three_timeouts),
        cmocka_unit_test(test_slow_timeouts),
        cmocka_unit_test(test_timeouts_among_good),
        cmocka_unit_test(test_clocks_apart),
        cmocka_unit_test(test_half_of_twenty),
        cmocka_unit_test(test_a_second_is_over),
        cmocka_unit_test(test_full_counts),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_closes),
        cmocka_unit_test(test_doubling),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_lost_probe),
        cmocka_unit_test(test_hint),
        cmocka_unit_test(test_wraps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

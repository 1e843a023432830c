/*
 * Windows where more than the time changes: limits, clocks, and what is given
 * back.
 */

#include "window.h"


/* Whatever the limit becomes, what was used stays used. */
static void
test_limit_change(void **state)
{
    for (unsigned a = 0; a < 2; a++) {
        for (unsigned i = 0; i < 20 * ROUNDS; i++) {
            limit_t old = random_limit(algorithms[a]);
            limit_t limit = random_limit(algorithms[a]);

            if (rnd(4) == 0) {
                limit = old;
                limit.capacity = 1 + rnd(2 * old.capacity);
            }

            uint64_t now = NOW + rnd(400 * DAY);
            window_t w = random_counter(&old, &now);

            if (rnd(2)) {
                (void) take(&w, &old, now, 0, old.capacity);
            }

            answer_t answer = take(&w, &old, now, 0, 0);
            uint32_t used = old.capacity - answer.remaining;
            uint32_t left = (used < limit.capacity) ? limit.capacity - used : 0;

            answer = take(&w, &limit, now, 1, 0);

            if (a == 0 || limit.code == old.code) {
                assert_int_equal(answer.remaining + answer.granted, left);

            } else {
                assert_true(answer.remaining + answer.granted <= left);

                /* the code's 1/64, for each of two windows, and rounding */

                assert_true(old.window_us < SECOND
                            || answer.remaining + answer.granted
                               + old.capacity / 32 + 2 >= left);
            }

            /* and not for longer than the new windows would count it */

            assert_true(answer.reset_us <= 2 * limit.window_us);
            assert_int_equal(take(&w, &limit, now + 2 * limit.window_us, 0,
                                  0).remaining, limit.capacity);
        }
    }
}


static void
test_limit_change_examples(void **state)
{
    limit_t minute = limit_of(NGX_RL_FIXED_WINDOW, 10, 60 * SECOND);
    limit_t hour = limit_of(NGX_RL_FIXED_WINDOW, 100, 3600 * SECOND);
    uint64_t now = NOW + 20 * SECOND;

    assert_int_equal(NOW % DAY, 8 * 3600 * SECOND);
    window_t w = { 0 };
    assert_int_equal(take(&w, &minute, now, 10, 0).remaining, 0);

    answer_t answer = take(&w, &hour, now + SECOND, 1, 0);
    assert_int_equal(answer.remaining, 89);
    assert_true(answer.reset_us == 3600 * SECOND - 21 * SECOND);

    answer = take(&w, &minute, now + 2 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_true(answer.retry_us == 38 * SECOND);

    /* 60 s to 60.2 s is the same code: the end stays where it is */

    limit_t odd = limit_of(NGX_RL_FIXED_WINDOW, 12, 60200000);
    assert_int_equal(odd.code, minute.code);
    answer = take(&w, &odd, now + 3 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 1);
    assert_true(answer.reset_us == 37 * SECOND);

    /* sliding: half of 40, and one for the code, which says 59.8 s */

    minute = limit_of(NGX_RL_SLIDING_WINDOW, 40, 60 * SECOND);
    hour = limit_of(NGX_RL_SLIDING_WINDOW, 40, 3600 * SECOND);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &minute, NOW, 40, 0);
    assert_int_equal(take(&w, &minute, NOW + 90 * SECOND, 0, 0).remaining, 20);
    assert_int_equal(take(&w, &hour, NOW + 90 * SECOND, 0, 0).remaining, 19);
    assert_int_equal(w.count, 21);
    assert_int_equal(w.before, 0);
    assert_true(w.fresh_us == NOW + 7200 * SECOND);

    /* the same code, other multiples */

    odd = limit_of(NGX_RL_SLIDING_WINDOW, 40, 60200000);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &minute, NOW, 40, 0);
    assert_int_equal(take(&w, &odd, NOW + 1, 1, 0).granted, 0);
    assert_int_equal(w.fresh_us % odd.window_us, 0);
}


static void
test_clock_steps(void **state)
{
    answer_t  answer;

    /* a wall clock that jumps opens no other window */

    limit_t limit = limit_of(NGX_RL_FIXED_WINDOW, 10, 60 * SECOND);
    window_t w = { 0 };

    for (uint64_t left_us = 1; left_us < 60 * SECOND; left_us += 1234567) {
        ngx_rl_fixed_window_take(&w, &limit, NOW, 60 * SECOND - left_us,
                                 60 * SECOND, 0, 3, &answer);
    }

    assert_int_equal(answer.granted, 0);
    assert_true(w.fresh_us == NOW + 60 * SECOND - 1);

    /* a worker that is a little behind opens none either */

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 10, 60 * SECOND);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &limit, NOW, 10, 0);
    window_t spent = w;

    answer = take(&w, &limit, NOW - 5000, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.remaining, 0);
    assert_true(answer.reset_us == 120 * SECOND + 5000);
    assert_same(&w, &spent);
    assert_int_equal(take(&w, &limit, NOW - 5000 + answer.retry_us - 1, 1,
                          0).granted, 0);
    assert_int_equal(take(&w, &limit, NOW - 5000 + answer.retry_us, 1,
                          0).granted, 1);

    /* an hour back: as used as before, and for no longer than two windows */

    w = spent;
    answer = take(&w, &limit, NOW - 3600 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_true(answer.reset_us == 120 * SECOND);
    assert_true(w.fresh_us == NOW - 3480 * SECOND);

    limit = limit_of(NGX_RL_FIXED_WINDOW, 10, 60 * SECOND);
    memset(&w, 0, sizeof(w));
    (void) take(&w, &limit, NOW, 10, 0);
    answer = take(&w, &limit, NOW - SECOND, 1, 0);
    assert_true(answer.retry_us == 61 * SECOND);
    answer = take(&w, &limit, NOW - 3590 * SECOND, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_true(answer.retry_us == 50 * SECOND);
    assert_true(w.fresh_us == NOW - 3540 * SECOND);

    /* far ahead: fresh, and no more than fresh */

    assert_int_equal(take(&w, &limit, NOW + 1000 * DAY, 0, 1000).granted, 10);
}


static void
test_give_windows(void **state)
{
    answer_t  answer;
    uint64_t  now = NOW - NOW % (60 * SECOND);
    uint64_t  march = (uint64_t) 1772323200 * SECOND;

    window_t zero = { 0 };

    /* one that has ended gets nothing of its successor's */

    limit_t limit = limit_of(NGX_RL_FIXED_WINDOW, 10, 60 * SECOND);
    window_t w = zero;
    (void) take(&w, &limit, NOW - 1, 10, 0);
    (void) take(&w, &limit, NOW, 10, 0);
    window_t spent = w;
    state_give(&w, &limit, NOW + SECOND, NOW - 1, 1);
    assert_same(&w, &spent);
    state_give(&w, &limit, NOW + SECOND, NOW, 1);
    assert_int_equal(take(&w, &limit, NOW + SECOND, 0, 0).remaining, 1);
    state_give(&w, &limit, NOW + SECOND, NOW, 9);
    assert_same(&w, &zero);
    state_give(&w, &limit, NOW + SECOND, NOW, 9);
    assert_same(&w, &zero);

    /* the limit has changed since: nobody knows */

    w = spent;
    limit = limit_of(NGX_RL_FIXED_WINDOW, 10, 3600 * SECOND);
    state_give(&w, &limit, NOW + SECOND, NOW, 1);
    assert_same(&w, &spent);

    /* what a window owes is paid where another limit's window is longer */

    limit = limit_of(NGX_RL_FIXED_WINDOW, 10, 60 * SECOND);
    w = zero;
    w.fresh_us = now + 80 * SECOND;
    w.count = 15;
    w.code = NGX_RL_CODE_OWES;
    spent = w;
    state_give(&w, &limit, now, now, 1);
    assert_same(&w, &spent);
    assert_int_equal(take(&w, &limit, now, 0, 0).remaining, 5);

    /* 28 days of February before March: no 31 */

    limit = limit_of_calendar(NGX_RL_CALENDAR_MONTH, 10);
    w = zero;
    (void) take(&w, &limit, march - 28 * DAY, 10, 0);
    spent = w;
    assert_true(w.fresh_us == march);
    state_give(&w, &limit, march - 28 * DAY + 5, march - 28 * DAY - 1, 1);
    assert_same(&w, &spent);
    state_give(&w, &limit, march - 28 * DAY + 5, march - 28 * DAY, 1);
    assert_int_equal(take(&w, &limit, march - 1, 0, 0).remaining, 1);

    /* a clock that began less than a month ago */

    w = zero;
    w.fresh_us = 20 * DAY;
    w.count = 10;
    w.code = limit.code;
    ngx_rl_fixed_window_give(&w, &limit, DAY, 12 * DAY, 19 * DAY, DAY - 1, 4);
    assert_int_equal(w.count, 6);

    /* at once, from a window that begins in a moment: a clock is behind */

    limit = limit_of(NGX_RL_FIXED_WINDOW, 10, 60 * SECOND);
    w = zero;
    ngx_rl_fixed_window_take(&w, &limit, NOW - 5000, 60 * SECOND + 5000,
                             60 * SECOND, 2, 0, &answer);
    state_give(&w, &limit, NOW - 5000, NOW - 5000, 1);
    assert_int_equal(w.count, 1);
    state_give(&w, &limit, NOW - 4000, NOW - 5000, 1);
    assert_int_equal(w.count, 1);

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 10, 60 * SECOND);
    w = zero;
    (void) take(&w, &limit, NOW, 1, 0);
    (void) take(&w, &limit, NOW - 5000, 2, 0);
    state_give(&w, &limit, NOW - 5000, NOW - 5000, 2);
    assert_int_equal(w.count, 1);

    /* sliding: to the window before as well, and to none before that */

    limit = limit_of(NGX_RL_SLIDING_WINDOW, 10, 60 * SECOND);
    w = zero;
    (void) take(&w, &limit, NOW, 8, 0);
    (void) take(&w, &limit, NOW + 90 * SECOND, 2, 0);
    state_give(&w, &limit, NOW + 90 * SECOND, NOW - 1, 1);
    assert_int_equal(w.count, 2);
    assert_int_equal(w.before, 8);
    state_give(&w, &limit, NOW + 90 * SECOND, NOW + 60 * SECOND - 1, 3);
    assert_int_equal(w.count, 2);
    assert_int_equal(w.before, 5);
    state_give(&w, &limit, NOW + 90 * SECOND, NOW + 60 * SECOND, 1);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.before, 5);

    /* a window with nothing used is its predecessor's state */

    state_give(&w, &limit, NOW + 90 * SECOND, NOW + 60 * SECOND, 5);
    assert_int_equal(w.count, 5);
    assert_int_equal(w.before, 0);
    assert_true(w.fresh_us == NOW + 120 * SECOND);
    assert_int_equal(take(&w, &limit, NOW + 90 * SECOND, 0, 0).remaining, 7);
    state_give(&w, &limit, NOW + 90 * SECOND, NOW, 5);
    assert_same(&w, &zero);
}

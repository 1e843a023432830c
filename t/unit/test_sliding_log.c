/*
 * The sliding log: exact in every window, whatever happens to its places.
 */

#include "unit.h"

#include "ngx_rl_sliding_log.h"

#define START  ((uint64_t) 1000 * 1000000)
#define SECOND 1000000

typedef struct {
    ngx_rl_log_t        log;
    ngx_rl_limit_t      limit;
    ngx_rl_log_place_t  places[NGX_RL_LOG_PLACES];
    unsigned            gets;
    unsigned            sets;
} keeper_t;

static keeper_t  keeper;


static void
place_get(void *data, uint32_t n, ngx_rl_log_place_t *place)
{
    keeper_t *k = data;

    assert_true(n < NGX_RL_LOG_PLACES);
    *place = k->places[n];
    k->gets++;
}


static void
place_set(void *data, uint32_t n, const ngx_rl_log_place_t *place)
{
    keeper_t *k = data;

    assert_true(n < NGX_RL_LOG_PLACES);
    k->places[n] = *place;
    k->sets++;
}


static void
set_limit(uint64_t tokens, uint64_t seconds)
{
    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = NGX_RL_SLIDING_LOG;
    spec.tokens = tokens;
    spec.period_us = seconds * SECOND;

    assert_null(ngx_rl_limit_init(&keeper.limit, &spec));
}


static void
start(uint64_t tokens, uint64_t seconds)
{
    memset(&keeper, 0, sizeof(keeper));
    set_limit(tokens, seconds);
}


/* What every answer keeps, whatever the log is. */
static ngx_rl_answer_t
take(uint64_t now, uint32_t cost, uint32_t want)
{
    ngx_rl_answer_t      answer;
    ngx_rl_log_places_t  places = { place_get, place_set, &keeper };

    memset(&answer, 0xff, sizeof(answer));
    ngx_rl_sliding_log_take(&keeper.log, &places, &keeper.limit, now,
                            cost, want, &answer);

    assert_true(keeper.log.head < NGX_RL_LOG_PLACES);
    assert_true(keeper.log.count <= NGX_RL_MAX_LOG);
    assert_true(answer.remaining <= keeper.limit.capacity);
    assert_true(answer.granted <= keeper.limit.capacity);
    assert_true(answer.retry_us == 0 || answer.granted == 0);
    assert_true((answer.reset_us == 0) == (keeper.log.count == 0));
    assert_true(answer.reset_us <= keeper.limit.window_us + SECOND);
    assert_true(answer.retry_us == NGX_RL_NEVER
                || answer.retry_us <= answer.reset_us);

    return answer;
}


static void
give(uint64_t now, uint64_t taken, uint32_t tokens)
{
    ngx_rl_log_places_t  places = { place_get, place_set, &keeper };

    ngx_rl_sliding_log_give(&keeper.log, &places, &keeper.limit, now,
                            taken, tokens);
}


static uint32_t
left(uint64_t now)
{
    return take(now, 0, 0).remaining;
}


/*
 * Against a list of what was granted: granted exactly where the window, which
 * ends at the request, has room, and so never more than the limit in any.
 */
static void
test_exact(void **state)
{
    enum { STEPS = 200000 };

    size_t                   i, first, n;
    uint32_t                 cost, capacity, used;
    uint64_t                 now, window;
    ngx_rl_answer_t   answer, again;

    static uint64_t          granted[4 * STEPS];

    unit_seed = 1;

    for (capacity = 1; capacity <= 1000; capacity = capacity * 3 + 1) {
        start(capacity, 10);
        window = 10 * SECOND;
        now = START;
        first = n = 0;

        for (i = 0; i < STEPS / 6; i++) {
            now += rnd(4) ? rnd(2 * window / capacity / 3 + 1)
                          : rnd(100) ? 0 : rnd(window);
            cost = rnd(3) ? 1 : (uint32_t) rnd(capacity < 4 ? capacity + 1 : 4);

            while (first < n && granted[first] + window <= now) {
                first++;
            }

            used = (uint32_t) (n - first);
            answer = take(now, cost, 0);

            assert_int_equal(answer.remaining,
                             capacity - used - answer.granted);

            if (used + cost <= capacity) {
                assert_int_equal(answer.granted, cost);
                assert_int_equal(answer.retry_us, 0);

                while (cost--) {
                    assert_true(n < 4 * STEPS);
                    granted[n++] = now;
                }

                continue;
            }

            assert_int_equal(answer.granted, 0);
            assert_int_equal(now + answer.retry_us,
                       granted[first + used + cost - capacity - 1] + window);
            assert_int_equal(now + answer.reset_us, granted[n - 1] + window);

            /* a retry at that moment succeeds, and not a microsecond before */

            again = take(now + answer.retry_us - 1, cost, NGX_RL_LOOK);
            assert_int_equal(again.retry_us, 1);

            if (rnd(2)) {
                now += answer.retry_us;
                again = take(now, cost, 0);
                assert_int_equal(again.granted, cost);

                while (cost--) {
                    granted[n++] = now;
                }

            } else {
                /* that look has let places expire, which no clock undoes */
                now += answer.retry_us - 1;
            }
        }

        assert_true(n > STEPS / 20);
    }
}


static void
test_want(void **state)
{
    start(10, 10);

    ngx_rl_answer_t answer = take(START, 11, 0);
    assert_true(answer.retry_us == NGX_RL_NEVER);
    assert_int_equal(answer.remaining, 10);

    answer = take(START, 10, NGX_RL_LOOK);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 0);

    assert_int_equal(take(START, 2, 1).granted, 2);
    assert_int_equal(take(START, 2, 5).granted, 5);
    assert_int_equal(take(START, 1, 9).granted, 3);

    answer = take(START, 0, 9);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 0);

    assert_int_equal(take(START + 10 * SECOND - 1, 0, 4).granted, 0);
    assert_int_equal(take(START + 10 * SECOND, 0, 4).granted, 4);
    assert_int_equal(left(START + 10 * SECOND), 6);
}


/* The largest log, all the way around its ring, many times. */
static void
test_ring(void **state)
{
    start(NGX_RL_MAX_LOG, 10);
    uint64_t now = START;

    for (unsigned i = 0; i < 100000; i++) {
        now += 10 * SECOND / NGX_RL_MAX_LOG;
        assert_int_equal(take(now, 1, 0).granted, 1);
    }

    assert_int_equal(left(now), 0);
    assert_int_equal(take(now, 1, 0).retry_us, 10 * SECOND / NGX_RL_MAX_LOG);

    /* two gets and a set a take, and one get for what has expired */
    assert_true(keeper.gets < 310000);
    assert_int_equal(keeper.sets, 100000);

    /* all that has expired is forgotten at once */
    keeper.gets = 0;
    assert_int_equal(left(now + 10 * SECOND), NGX_RL_MAX_LOG);
    assert_int_equal(keeper.gets, 1);
    assert_int_equal(keeper.log.fresh_us, 0);

    assert_int_equal(take(now + 10 * SECOND, NGX_RL_MAX_LOG, 0).granted,
                     NGX_RL_MAX_LOG);
    assert_int_equal(left(now + 20 * SECOND - 1), 0);
}


static void
test_limit_changes(void **state)
{
    start(10, 10);

    assert_int_equal(take(START, 4, 0).granted, 4);
    assert_int_equal(take(START + SECOND, 4, 0).granted, 4);

    /* more is in use than the new limit allows */
    set_limit(3, 10);
    assert_int_equal(left(START + SECOND), 0);
    ngx_rl_answer_t answer = take(START + SECOND, 1, 0);
    assert_int_equal(answer.retry_us, 10 * SECOND);
    assert_int_equal(left(START + 10 * SECOND), 0);
    assert_int_equal(left(START + 11 * SECOND - 1), 0);
    assert_int_equal(left(START + 11 * SECOND), 3);
}


/* The places keep until the new window ends, whoever keeps them. */
static void
test_window_changes(void **state)
{
    start(10, 10);

    assert_int_equal(take(START, 4, 0).granted, 4);
    assert_int_equal(take(START + 5 * SECOND, 4, 0).granted, 4);

    set_limit(10, 60);
    keeper.sets = 0;
    assert_int_equal(left(START + 9 * SECOND), 2);
    assert_int_equal(keeper.sets, 8);
    assert_int_equal(keeper.log.fresh_us, START + 65 * SECOND);
    assert_int_equal(keeper.places[0].fresh_us, START + 60 * SECOND);
    assert_int_equal(keeper.places[7].fresh_us, START + 65 * SECOND);
    assert_int_equal(left(START + 60 * SECOND - 1), 2);
    assert_int_equal(left(START + 60 * SECOND), 6);

    /* to and fro: each is set once, the new ones of the shorter window */
    set_limit(10, 30);
    assert_int_equal(left(START + 34 * SECOND), 6);
    assert_int_equal(take(START + 34 * SECOND, 1, 0).granted, 1);
    set_limit(10, 60);
    keeper.sets = 0;
    assert_int_equal(left(START + 34 * SECOND), 5);
    assert_int_equal(left(START + 34 * SECOND), 5);
    assert_int_equal(keeper.sets, 1);

    set_limit(10, 1);
    assert_int_equal(left(START + 34 * SECOND + 1), 9);
    assert_int_equal(left(START + 35 * SECOND), 10);
}


/* No place is dropped, by its own window, before the limit's window ends. */
static void
test_windows_fall(void **state)
{
    ngx_rl_log_place_t  *p;

    start(100, 10);
    unit_seed = 2;
    uint64_t now = START;

    for (uint32_t i = 0; i < 100000; i++) {
        if (rnd(10) == 0) {
            set_limit(100, 1 + rnd(20));
        }

        now += rnd(200000);

        if (rnd(1000) == 0) {
            now -= rnd(100 * SECOND);
        }

        (void) take(now, rnd(3), 0);
        uint64_t last_at = 0;
        uint64_t last_window = UINT64_MAX;

        for (uint32_t n = keeper.log.count; n; n--) {
            p = &keeper.places[(keeper.log.head - n) & (NGX_RL_LOG_PLACES - 1)];
            uint64_t at = p->fresh_us - p->window_us;

            assert_true(at >= last_at && at <= now + SECOND);
            assert_true(p->window_us <= last_window);
            assert_true(p->window_us >= keeper.limit.window_us);
            assert_true(at + keeper.limit.window_us > now);
            last_at = at;
            last_window = p->window_us;
        }

        assert_int_equal(keeper.log.fresh_us,
                         last_at ? last_at + keeper.limit.window_us : 0);
    }
}


/* A worker's clock behind another's; and a clock that was set back. */
static void
test_clock(void **state)
{
    start(3, 10);

    assert_int_equal(take(START, 1, 0).granted, 1);
    ngx_rl_answer_t answer = take(START - 900000, 1, 0);
    assert_int_equal(answer.granted, 1);
    assert_int_equal(answer.reset_us, 10 * SECOND + 900000);
    assert_int_equal(take(START - 900000, 1, 0).granted, 1);
    answer = take(START - 900000, 1, 0);
    assert_int_equal(answer.retry_us, 10 * SECOND + 900000);
    assert_int_equal(left(START + 10 * SECOND - 1), 0);

    /* an hour: they stand at the new now, and it does not last an hour */
    answer = take(START - 3600 * (uint64_t) SECOND / 4, 1, 0);
    assert_int_equal(answer.granted, 0);
    assert_int_equal(answer.retry_us, 10 * SECOND);
    assert_int_equal(left(START - 900 * (uint64_t) SECOND + 10 * SECOND), 3);
}


/* Lost places have expired; the others go on to count. */
static void
test_lost(void **state)
{
    uint32_t  n;
    uint64_t  now;

    start(10, 10);

    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(take(START + i, 1, 0).granted, 1);
    }

    /* the two oldest, the newest: seen at once */
    keeper.places[0].fresh_us = 0;
    keeper.places[1].fresh_us = 0;
    keeper.places[9].fresh_us = 0;
    ngx_rl_answer_t answer = take(START + 10, 0, 0);
    assert_int_equal(answer.remaining, 3);
    assert_int_equal(answer.reset_us, START + 8 + 10 * SECOND - (START + 10));

    /* in the middle: when it is the oldest; a retry waits for a living one */
    keeper.places[3].fresh_us = 0;
    assert_int_equal(left(START + 10), 3);
    answer = take(START + 10, 5, 0);
    assert_int_equal(answer.retry_us, 10 * SECOND + 4 - 10);
    assert_int_equal(take(START + 10 + answer.retry_us, 5, 0).granted, 5);

    /* all */
    memset(keeper.places, 0, sizeof(keeper.places));
    assert_int_equal(left(START + 10 * SECOND + 4), 10);
    assert_int_equal(keeper.log.count, 0);

    /* any, at random: as many as are left count, and a retry does succeed */
    start(50, 10);
    unit_seed = 3;

    for (now = START, n = 0; n < 50000; n++) {
        now += rnd(300000);
        uint32_t lost = (uint32_t) rnd(NGX_RL_LOG_PLACES);

        if (keeper.log.count && rnd(3) == 0) {
            lost = (keeper.log.head - 1 - rnd(keeper.log.count))
                   & (NGX_RL_LOG_PLACES - 1);
        }

        keeper.places[lost].fresh_us = 0;
        answer = take(now, 1 + (uint32_t) rnd(5), 0);

        if (answer.retry_us) {
            now += answer.retry_us;
            assert_int_not_equal(take(now, 1, 0).granted, 0);
        }

        if (rnd(5) == 0) {
            give(now, now - rnd(SECOND), 1 + (uint32_t) rnd(3));
        }
    }
}


static void
test_give(void **state)
{
    /* its own, and no others */
    start(100, 10);
    (void) take(START, 3, 0);
    (void) take(START + 5, 4, 0);
    (void) take(START + 9, 2, 0);
    give(START + 9, START + 5, 4);
    assert_int_equal(left(START + 9), 95);
    assert_int_equal(left(START + 10 * SECOND), 98);
    assert_int_equal(left(START + 10 * SECOND + 5), 98);
    assert_int_equal(left(START + 10 * SECOND + 9), 100);

    /* a part; the newest; more than there are; what is nobody's */
    start(100, 10);
    (void) take(START, 3, 0);
    (void) take(START + 5, 4, 0);
    give(START + 5, START + 5, 1);
    assert_int_equal(left(START + 5), 94);
    give(START + 5, START + 5, 100);
    assert_int_equal(left(START + 5), 97);
    assert_int_equal(keeper.log.fresh_us, START + 10 * SECOND);
    give(START + 5, START + 5, 1);
    assert_int_equal(left(START + 5), 97);

    /* an operator's: the newest, whosever they are, up to all */
    start(100, 10);
    (void) take(START, 3, 0);
    (void) take(START + 5, 4, 0);
    give(START + 9, NGX_RL_WHENEVER, 5);
    assert_int_equal(left(START + 9), 98);
    assert_int_equal(keeper.log.fresh_us, START + 10 * SECOND);
    give(START + 9, NGX_RL_WHENEVER, 100);
    assert_int_equal(left(START + 9), 100);

    /* a window ago */
    start(100, 10);
    (void) take(START, 3, 0);
    (void) take(START + 10 * SECOND, 3, 0);
    give(START + 10 * SECOND, START, 3);
    assert_int_equal(left(START + 10 * SECOND), 97);

    /* lost: what came more than a second later is another's */
    start(100, 10);
    (void) take(START, 3, 0);
    (void) take(START + 2 * SECOND, 3, 0);
    memset(keeper.places, 0, 3 * sizeof(keeper.places[0]));
    give(START + 2 * SECOND, START, 3);
    assert_int_equal(left(START + 2 * SECOND), 97);

    /* taken behind the newest: stood there, and is found there */
    start(100, 10);
    (void) take(START, 1, 0);
    (void) take(START - 4000, 1, 0);
    give(START - 4000, START - 4000, 1);
    assert_int_equal(left(START), 99);

    /* those of others that are later move down, up to 64 of them */
    for (uint32_t i = 0; i < 80; i++) {
        uint32_t  n;

        start(100, 10);
        (void) take(START, 2, 0);
        (void) take(START + 1, 2, 0);

        for (n = 0; n < i; n++) {
            (void) take(START + 2 + n, 1, 0);
        }

        keeper.gets = keeper.sets = 0;
        give(START + 100, START + 1, 2);
        assert_int_equal(left(START + 100), 98 - i);
        assert_true(keeper.gets < 3 * 64 && keeper.sets <= 64);

        /* beyond, the oldest two have gone in their stead */
        assert_int_equal(left(START + 10 * SECOND), i > 64 ? 98 - i : 100 - i);
        assert_int_equal(left(START + 10 * SECOND + 1), 100 - i);
    }

    /* all ten thousand, without a move */
    start(10000, 10);
    (void) take(START, 10000, 0);
    keeper.gets = keeper.sets = 0;
    give(START, START, 10000);
    assert_int_equal(left(START), 10000);
    assert_int_equal(keeper.sets, 0);
    assert_true(keeper.gets < 10);
}


/*
 * With gives, too, no window has more than the limit of what was not given
 * back.
 */
static void
test_give_exact(void **state)
{
    enum { STEPS = 100000 };

    size_t                   i, k, n;
    uint64_t                 now;
    ngx_rl_answer_t   answer;

    static struct {
        uint64_t  at;
        int       given;
    } granted[STEPS];

    start(100, 10);
    unit_seed = 4;
    now = START;

    for (i = 0, n = 0; i < STEPS; i++) {
        now += rnd(4) ? rnd(50000) : 0;
        answer = take(now, 1, 0);

        if (answer.granted) {
            granted[n].at = now;
            granted[n++].given = 0;
        }

        k = n - 1 - rnd(n < 90 ? n : 90);

        if (rnd(3) == 0 && !granted[k].given
            && granted[k].at + 10 * SECOND > now)
        {
            granted[k].given = 1;
            give(now, granted[k].at, 1);
        }
    }

    for (i = 0; i < n; i++) {
        uint32_t  used;

        for (k = i, used = 0;
             k < n && granted[k].at < granted[i].at + 10 * SECOND; k++)
        {
            used += !granted[k].given;
        }

        assert_true(used <= 100);
    }

    assert_true(n > STEPS / 4);
}

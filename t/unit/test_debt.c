/*
 * What a request has spent beyond what was left is owed, up to one capacity, by
 * every algorithm that has a cost.
 */

#include "window.h"

#include "ngx_rl_sliding_log.h"

/* a counter of any kind */
static limit_t                    limit;
static state_t                    counter;
static ngx_rl_log_t        entries;
static ngx_rl_log_place_t  places[NGX_RL_LOG_PLACES];

static const ngx_rl_algorithm_e  kinds[] = {
    NGX_RL_TOKEN_BUCKET, NGX_RL_FIXED_WINDOW,
    NGX_RL_SLIDING_WINDOW, NGX_RL_SLIDING_LOG
};


static void
place_get(void *data, uint32_t n, ngx_rl_log_place_t *place)
{
    (void) data;
    *place = places[n];
}


static void
place_set(void *data, uint32_t n, const ngx_rl_log_place_t *place)
{
    (void) data;
    places[n] = *place;
}


static const ngx_rl_log_places_t  in_memory = {
    place_get, place_set, NULL
};


static void
fresh(ngx_rl_algorithm_e kind, uint64_t tokens, uint64_t seconds)
{
    limit = limit_of(kind, tokens, seconds * SECOND);
    memset(&counter, 0, sizeof(counter));
    memset(&entries, 0, sizeof(entries));
}


static answer_t
try(uint64_t now, uint32_t cost, uint32_t want)
{
    answer_t  answer;

    if (limit.algorithm != NGX_RL_SLIDING_LOG) {
        return state_take(&counter, &limit, now, cost, want);
    }

    ngx_rl_sliding_log_take(&entries, &in_memory, &limit, now, cost,
                            want, &answer);

    return answer;
}


static answer_t
charge(uint64_t now, uint32_t tokens)
{
    return try(now, tokens, CHARGE);
}


/*
 * Each request takes 1 and turns out to cost 40, as soon as it may. All of it
 * counts, so in the long run no more passes than the limit; a sliding window's
 * last response, and a log's, may bring a window above it.
 */
static void
test_for_ever(void **state)
{
    uint64_t  now;

    for (unsigned i = 0; i < 4; i++) {
        fresh(kinds[i], 100, 100);
        uint64_t spent = 0;

        for (now = NOW; now < NOW + 10000 * SECOND; now += SECOND / 10) {
            if (try(now, 1, 0).granted) {
                assert_int_equal(charge(now, 39).granted, 39);
                spent += 40;
            }
        }

        print_message("%s: %llu of 10000\n", ngx_rl_algorithm_names[kinds[i]],
                      (unsigned long long) spent);

        assert_true(spent > 9800);
        assert_true(spent <= (i < 2 ? 10000 + 100 + 40 : 14000 + 140));
    }
}


/* However much it was: as much again as the capacity, and no more. */
static void
test_most(void **state)
{
    static const uint32_t  much[] = { 200, 201, 1000, 1 << 30 };

    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 4; j++) {
            fresh(kinds[i], 100, 100);

            answer_t answer = charge(NOW, much[j]);

            assert_int_equal(answer.remaining, 0);
            assert_int_equal(answer.retry_us, 0);
            assert_true(i == 0 || answer.granted == 200);

            answer = try(NOW, 1, 0);

            switch (kinds[i]) {

            case NGX_RL_TOKEN_BUCKET:
                assert_true(answer.retry_us >= 101 * SECOND
                            && answer.retry_us <= 101 * SECOND + 2);
                break;

            case NGX_RL_FIXED_WINDOW:
                assert_int_equal(answer.retry_us, 2 * limit.window_us);
                break;

            case NGX_RL_SLIDING_WINDOW:

                /* 200 weigh 99 when 49.5 of the next 100 s are left */

                assert_int_equal(answer.retry_us, (uint64_t) 150500000);
                break;

            default:
                assert_int_equal(answer.retry_us, limit.window_us);
            }
        }
    }

    fresh(NGX_RL_SLIDING_LOG, NGX_RL_MAX_LOG, 100);
    assert_int_equal(charge(NOW, 1 << 30).granted, NGX_RL_LOG_PLACES - 1);
    assert_int_equal(charge(NOW, 1).granted, 0);
    assert_int_equal(try(NOW, 0, 0).remaining, 0);
}


/* A request that comes when it was told to is granted, and none before. */
static void
test_retry(void **state)
{
    seed_init();

    for (unsigned j = 0; j < ROUNDS; j++) {
        for (unsigned i = 0; i < 4; i++) {
            fresh(kinds[i], 1 + rnd(50), 1 + rnd(100));
            uint64_t now = NOW + rnd(limit.window_us);

            (void) try(now, 0, rnd(limit.capacity) + 1);
            (void) charge(now, rnd(3 * limit.capacity) + 1);

            uint32_t cost = 1 + rnd(limit.capacity);
            answer_t answer = try(now, cost, NGX_RL_LOOK);

            if (answer.retry_us == 0) {
                continue;
            }

            assert_int_equal(try(now + answer.retry_us - 1, cost,
                                 NGX_RL_LOOK).retry_us != 0,
                             kinds[i] != NGX_RL_SLIDING_LOG
                             || answer.retry_us > 0);
            assert_int_equal(try(now + answer.retry_us, cost, 0).granted, cost);
        }
    }
}


/* What comes back pays the debt first: then no later window is in debt. */
static void
test_give(void **state)
{
    static const struct {
        uint32_t  tokens;
        uint32_t  left;
        uint32_t  next;    /* in the next fixed window */
    } cases[] = { { 29, 0, 99 }, { 40, 10, 100 } };

    for (unsigned i = 0; i < 2; i++) {
        for (unsigned j = 0; j < 2; j++) {
            fresh(kinds[i], 100, 100);
            (void) charge(NOW, 130);
            state_give(&counter, &limit, NOW, NOW, cases[j].tokens);

            assert_int_equal(try(NOW, 0, 0).remaining, cases[j].left);
            assert_true(i == 0 || try(NOW + 100 * SECOND, 0, 0).remaining
                                  == cases[j].next);
        }
    }
}


/* A window that owes is paid by the next one, and by no other. */
static void
test_window(void **state)
{
    fresh(NGX_RL_FIXED_WINDOW, 100, 100);
    (void) charge(NOW, 130);

    assert_int_equal(try(NOW + 100 * SECOND - 1, 0, 0).remaining, 0);
    assert_int_equal(try(NOW + 100 * SECOND, 60, 0).remaining, 10);
    assert_int_equal(try(NOW + 200 * SECOND - 1, 0, 0).remaining, 10);
    assert_int_equal(try(NOW + 200 * SECOND, 0, 0).remaining, 100);

    /* and not where nobody came in the next one */

    fresh(NGX_RL_FIXED_WINDOW, 100, 100);
    (void) charge(NOW, 130);
    assert_int_equal(try(NOW + 200 * SECOND, 0, 0).remaining, 100);

    /* a window owes what it was charged, not what a lower limit leaves */

    fresh(NGX_RL_FIXED_WINDOW, 100, 100);
    (void) try(NOW, 80, 0);
    limit = limit_of(NGX_RL_FIXED_WINDOW, 50, 100 * SECOND);
    assert_int_equal(try(NOW, 0, 0).remaining, 0);
    state_give(&counter, &limit, NOW, NOW, 1);
    assert_int_equal(try(NOW + 100 * SECOND, 0, 0).remaining, 50);

    /* a month */

    memset(&counter, 0, sizeof(counter));
    limit = limit_of_calendar(NGX_RL_CALENDAR_MONTH, 100);
    uint64_t end = NOW + window_left(&limit, NOW);
    (void) charge(NOW, 130);
    assert_int_equal(try(end - 1, 0, 0).remaining, 0);
    assert_int_equal(try(end, 0, 0).remaining, 70);
    end += window_left(&limit, end);
    assert_int_equal(try(end - 1, 0, 0).remaining, 70);
    assert_int_equal(try(end, 0, 0).remaining, 100);
}


/* Windows of a calendar may be shorter than the limit's, its longest one. */
static void
test_calendar(void **state)
{
    limit = limit_of_calendar(NGX_RL_CALENDAR_MONTH, 100);
    uint64_t now = NOW;

    for (unsigned i = 0; i < 30; i++) {
        uint64_t end = now + window_left(&limit, now);
        uint64_t next = end + window_left(&limit, end);

        /* nobody comes in the window that pays */

        memset(&counter, 0, sizeof(counter));
        (void) charge(now, 130);
        assert_int_equal(try(end - 1, 0, 0).remaining, 0);
        assert_int_equal(try(next, 0, 0).remaining, 100);
        assert_int_equal(try(next, 60, 0).remaining, 40);
        assert_int_equal(try(next + 5 * 86400 * SECOND, 0, 0).remaining, 40);

        /* all is owed: none passes until then, one does then */

        memset(&counter, 0, sizeof(counter));
        (void) charge(now, 200);
        assert_true(try(now, 1, 0).retry_us == next - now);
        assert_int_equal(try(end, 1, 0).granted, 0);
        assert_int_equal(try(next - 1, 1, 0).granted, 0);
        assert_int_equal(try(next, 1, 0).granted, 1);

        now = end + (i % 3) * 86400 * SECOND;
    }
}


/* Another limit leaves what is owed in proportion, and an empty one empty. */
static void
test_change(void **state)
{
    fresh(NGX_RL_TOKEN_BUCKET, 100, 100);
    (void) charge(NOW, 150);
    limit = limit_of(NGX_RL_TOKEN_BUCKET, 100, 300 * SECOND);
    answer_t answer = try(NOW, 1, 0);
    assert_true(answer.retry_us >= 153 * SECOND
                && answer.retry_us <= 156 * SECOND + 5 * SECOND);

    fresh(NGX_RL_TOKEN_BUCKET, 100, 127);
    (void) charge(NOW, 100);
    limit = limit_of(NGX_RL_TOKEN_BUCKET, 100, 300 * SECOND);
    assert_int_equal(try(NOW, 1, 0).retry_us, 3 * SECOND);
}

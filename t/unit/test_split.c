/* Shares of a limit, and what a node remembers of a counter's parts. */

#include "lease.h"

#include "ngx_rl_split.h"

#define ROUNDS  200000

typedef ngx_rl_split_t  split_t;

static void
random_limit(limit_t *limit)
{
    ngx_rl_spec_t  spec;

    static const ngx_rl_algorithm_e  algorithms[] = {
        NGX_RL_TOKEN_BUCKET, NGX_RL_FIXED_WINDOW, NGX_RL_SLIDING_WINDOW };

    do {
        memset(&spec, 0, sizeof(spec));
        spec.algorithm = algorithms[rnd(3)];
        spec.tokens = 1 + rnd((uint64_t) 1 << (1 + rnd(30)));
        spec.period_us = 1 + rnd((uint64_t) 1 << (1 + rnd(40)));

        if (spec.algorithm == NGX_RL_TOKEN_BUCKET && rnd(2)) {
            spec.capacity = 1 + rnd((uint64_t) 1 << (1 + rnd(30)));
        }
    } while (ngx_rl_limit_init(limit, &spec) != NULL);
}


/* The parts are the limit: the capacity and the rate, to the last token. */
static void
test_shares(void **state)
{
    int       rc;
    limit_t   limit, share;
    uint32_t  round, i, n, least, most;
    uint64_t  sum;

    for (round = 0; round < ROUNDS; round++) {
        random_limit(&limit);

        n = 1 + rnd(64);
        sum = 0;
        least = UINT32_MAX;
        most = 0;
        rc = 0;

        for (i = 0; i < n && rc == 0; i++) {
            rc = ngx_rl_limit_share(&limit, n, i, &share);

            if (rc != 0) {
                assert_true(limit.capacity < n
                            || limit.rate.period_us * n
                               > NGX_RL_MAX_PERIOD_US
                            || (double) share.capacity * limit.rate.period_us
                               * n / limit.rate.scale
                               > (double) NGX_RL_MAX_SPAN_US * 0.99);
                break;
            }

            sum += share.capacity;
            least = share.capacity < least ? share.capacity : least;
            most = share.capacity > most ? share.capacity : most;

            assert_int_equal(share.algorithm, limit.algorithm);
            assert_true(share.mark != 0);

            if (limit.algorithm == NGX_RL_TOKEN_BUCKET) {
                /* n times scale / period of the part is that of all */

                assert_true((unsigned __int128) share.rate.scale * n
                            * limit.rate.period_us
                            == (unsigned __int128) limit.rate.scale
                               * share.rate.period_us);
                assert_int_equal(share.rate.capacity, share.capacity);
                assert_true(share.window_us >= share.rate.span_us);

            } else {
                assert_true(share.window_us == limit.window_us);
                assert_int_equal(share.code, limit.code);
            }
        }

        if (rc == 0) {
            assert_true(sum == limit.capacity);
            assert_true(most - least <= 1);
        }
    }
}


static void
test_not_split(void **state)
{
    limit_t  limit, share;

    limit = fixed(3, 60);
    assert_int_equal(ngx_rl_limit_share(&limit, 3, 2, &share), 0);
    assert_int_equal(share.capacity, 1);
    assert_int_equal(ngx_rl_limit_share(&limit, 4, 3, &share), -1);

    limit = limit_of(NGX_RL_LEAKY_BUCKET, 100, SECOND);
    assert_int_equal(ngx_rl_limit_share(&limit, 2, 0, &share), -1);

    limit = limit_of(NGX_RL_SLIDING_LOG, 100, SECOND);
    assert_int_equal(ngx_rl_limit_share(&limit, 2, 0, &share), -1);
}


static answer_t
look(const split_t *split, unsigned k, const limit_t *share, int64_t ms,
    uint32_t cost)
{
    answer_t  answer;

    memset(&answer, 0xa5, sizeof(answer));
    ngx_rl_split_look(split, k, share, AT_US(ms), cost, &answer);

    assert_int_equal(answer.granted, 0);
    assert_true(answer.remaining <= share->capacity);

    return answer;
}


static void
note(split_t *split, unsigned k, const limit_t *share, int64_t ms,
    answer_t answer)
{
    ngx_rl_split_note(split, k, share, AT_US(ms), &answer);
}


static void
test_place(void **state)
{
    assert_true(sizeof(split_t) <= 64);
    assert_int_equal(offsetof(split_t, busy_us), 0);
}


static void
test_bucket(void **state)
{
    split_t   split;
    limit_t   share;
    answer_t  answer;

    memset(&split, 0, sizeof(split));
    share = bucket(10, 10);

    answer = look(&split, 0, &share, 0, 10);
    assert_int_equal(answer.remaining, 10);
    assert_true(answer.retry_us == 0 && answer.reset_us == 0);

    note(&split, 2, &share, 0, said(1, 2, 7500, 0));

    answer = look(&split, 2, &share, 0, 2);
    assert_int_equal(answer.remaining, 2);
    assert_true(answer.retry_us == 0);
    answer = look(&split, 2, &share, 0, 3);
    assert_in_range(answer.retry_us, 499000, 501000);

    /* it fills, and no other part is meant */

    assert_int_equal(look(&split, 2, &share, 1500, 3).remaining, 4);
    assert_true(look(&split, 2, &share, 501, 3).retry_us == 0);
    assert_int_equal(look(&split, 1, &share, 0, 1).remaining, 10);

    /* denied: the place stays as long */

    note(&split, 3, &share, 0, said(0, 0, 30000, 21000));
    assert_true(look(&split, 3, &share, 20998, 1).retry_us > 0);
    assert_true(look(&split, 3, &share, 21001, 1).retry_us == 0);
    assert_true(split.busy_us >= AT_US(21000));

    /* a day: as long as nobody else needs the place, and a minute at least */

    note(&split, 3, &share, 0, said(0, 0, 30000, 86400000));
    assert_true(split.busy_us >= AT_US(60000));
    assert_true(split.busy_us <= AT_US(61000));
}


static void
test_fixed(void **state)
{
    split_t   split;
    limit_t   share;
    answer_t  answer;

    memset(&split, 0, sizeof(split));
    share = fixed(10, 60);

    note(&split, 0, &share, 0, said(1, 6, 5000, 0));
    note(&split, 1, &share, 1, said(0, 0, 4999, 4999));

    answer = look(&split, 0, &share, 2, 6);
    assert_int_equal(answer.remaining, 6);
    assert_true(answer.retry_us == 0);
    assert_in_range(answer.reset_us, 4990000, 5000000);

    /* less than the cost is left: until the end */

    answer = look(&split, 0, &share, 2, 7);
    assert_in_range(answer.retry_us, 4990000, 5000000);
    answer = look(&split, 1, &share, 4990, 1);
    assert_int_equal(answer.remaining, 0);
    assert_in_range(answer.retry_us, 1, 11000);

    /* what is given back does not show; what is taken does */

    note(&split, 0, &share, 3, said(1, 8, 4997, 0));
    assert_int_equal(look(&split, 0, &share, 3, 1).remaining, 6);
    note(&split, 0, &share, 3, said(1, 4, 4997, 0));
    assert_int_equal(look(&split, 0, &share, 3, 1).remaining, 4);

    /* a reply that was slow does not make the window longer */

    note(&split, 2, &share, 900, said(1, 3, 4990, 0));
    assert_true(look(&split, 1, &share, 5001, 1).retry_us == 0);
    assert_int_equal(look(&split, 1, &share, 5001, 1).remaining, 10);

    /* the next window is a new one for all parts, also a little early */

    note(&split, 0, &share, 4999, said(1, 7, 60000, 0));
    assert_int_equal(look(&split, 0, &share, 4999, 1).remaining, 7);
    assert_int_equal(look(&split, 1, &share, 4999, 1).remaining, 10);

    /* and what comes from the old one is late */

    note(&split, 1, &share, 5000, said(0, 0, 1, 1));
    assert_int_equal(look(&split, 1, &share, 5000, 1).remaining, 10);
    assert_int_equal(look(&split, 0, &share, 5000, 1).remaining, 7);
}


static void
test_sliding(void **state)
{
    split_t   split;
    limit_t   share;
    answer_t  answer;

    memset(&split, 0, sizeof(split));
    share = sliding(10, 60);

    /* denied up to where the milliseconds no longer fit 32 bits, and behind */

    note(&split, 0, &share, 0, said(1, 6, 61000, 0));
    note(&split, 1, &share, 0, said(0, 1, 61000, 700));

    assert_true(look(&split, 0, &share, 1, 6).retry_us == 0);
    answer = look(&split, 1, &share, 100, 2);
    assert_int_equal(answer.remaining, 1);
    assert_in_range(answer.retry_us, 599000, 601000);
    assert_true(look(&split, 1, &share, 699, 2).retry_us > 0);
    assert_true(look(&split, 1, &share, 701, 2).retry_us == 0);

    note(&split, 1, &share, 699, said(0, 1, 60301, 100));
    assert_true(look(&split, 1, &share, 750, 2).retry_us > 0);
    assert_true(look(&split, 1, &share, 800, 2).retry_us == 0);

    /* more is left as time passes, which Redis says */

    note(&split, 0, &share, 900, said(1, 8, 60100, 0));
    assert_int_equal(look(&split, 0, &share, 900, 1).remaining, 8);
    assert_int_equal(look(&split, 0, &share, 61001, 1).remaining, 10);

    /* for long */

    share = sliding(10, 366 * 86400);
    memset(&split, 0, sizeof(split));
    note(&split, 0, &share, 0, said(0, 0, 366ULL * 86400000 + 1,
                                    366ULL * 86400000));
    assert_true(look(&split, 0, &share, 86400000, 1).retry_us > 0);

    memset(&split, 0, sizeof(split));
    note(&split, 0, &share, 0, said(0, 0, 366ULL * 86400000 + 1,
                                    30ULL * 86400000));
    assert_true(look(&split, 0, &share, 86400000, 1).retry_us > 0);
}


/* Whoever asks when he may, of a part that only he asks, is granted. */
static void
test_against_redis(void **state)
{
    unsigned                round, i;
    uint64_t                now;
    split_t                 split;
    limit_t                 limit, share;
    answer_t                known, answer;
    state_t                 counter;

    for (round = 0; round < 3000; round++) {
        do {
            random_limit(&limit);
        } while (ngx_rl_limit_share(&limit, 1 + rnd(8), 0, &share) != 0
                 || share.window_us < 5000);

        memset(&split, 0, sizeof(split));
        memset(&counter, 0, sizeof(counter));
        now = AT_US(0);

        for (i = 0; i < 60; i++) {
            uint32_t  cost = 1 + share.capacity / 7;

            ngx_rl_split_look(&split, 4, &share, now, cost, &known);

            answer = state_take(&counter, &share, now, cost,
                                known.retry_us ? LOOK : 0);

            if (known.retry_us) {
                /* remembered: true, and not for longer than it is */

                assert_true(answer.retry_us > 0 || known.retry_us < 3000);
                assert_true(known.retry_us <= answer.retry_us + 3000);
                now += rnd(4) ? known.retry_us : rnd(known.retry_us);
                continue;
            }

            if (share.algorithm == NGX_RL_FIXED_WINDOW) {
                assert_true(answer.retry_us == 0);
            }

            answer.reset_us += 999 - (answer.reset_us + 999) % 1000;
            answer.retry_us += 999 - (answer.retry_us + 999) % 1000;
            ngx_rl_split_note(&split, 4, &share, now, &answer);
            now += rnd(share.window_us / 16 + 1);
        }
    }
}

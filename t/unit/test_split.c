/* Shares of a limit, and what a gateway remembers of a counter's parts. */

#include "lease.h"

#define ROUNDS  200000

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
    limit_t  limit, share;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        random_limit(&limit);

        uint32_t n = 1 + rnd(64);
        uint64_t sum = 0;
        uint32_t least = UINT32_MAX;
        uint32_t most = 0;
        int rc = 0;

        for (uint32_t i = 0; i < n && rc == 0; i++) {
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
    limit_t  share;

    limit_t limit = fixed(3, 60);
    assert_int_equal(ngx_rl_limit_share(&limit, 3, 2, &share), 0);
    assert_int_equal(share.capacity, 1);
    assert_int_equal(ngx_rl_limit_share(&limit, 4, 3, &share), -1);

    limit = limit_of(NGX_RL_LEAKY_BUCKET, 100, SECOND);
    assert_int_equal(ngx_rl_limit_share(&limit, 2, 0, &share), -1);

    limit = limit_of(NGX_RL_SLIDING_LOG, 100, SECOND);
    assert_int_equal(ngx_rl_limit_share(&limit, 2, 0, &share), -1);
}


/* What is known of a part. */
static answer_t
look(lease_t *lease, const limit_t *share, const env_t *env, uint32_t cost)
{
    answer_t answer = { 0 };
    answer.remaining = share->capacity;

    if (!ngx_rl_ledger_rejects(lease, share, env, cost, &answer)) {
        ngx_rl_ledger_look(lease, share, env, &answer);
    }

    assert_int_equal(answer.granted, 0);
    assert_true(answer.remaining <= share->capacity);

    return answer;
}


/* Redis has said so; as the engine does it. */
static void
note(lease_t *lease, const limit_t *share, const env_t *env, uint32_t cost,
    answer_t answer)
{
    ngx_rl_ledger_call_t call = { 0 };
    call.cost = cost;

    if (answer.granted) {
        (void) ngx_rl_ledger_charge(lease, share, env, answer.granted);
        answer.granted = 0;
    }

    (void) ngx_rl_ledger_fill(lease, share, env, env->now_us, &call, &answer);

    if (lease->unnamed && answer.retry_us == 0) {
        lease->retry_ms = 0;
    }
}


/* What comes back ends a rejection, and is seen. */
static void
test_gave(void **state)
{
    limit_t (*const  limits[])(uint64_t, uint64_t) = { bucket, fixed, sliding };

    for (unsigned i = 0; i < COUNT(limits); i++) {
        limit_t share = limits[i](2, 86400);
        limit_t other = limits[i](3, 86400);
        lease_t lease = { 0 };
        env_t env = at(0);

        note(&lease, &share, &env, 1, said(1, 1, 43200000, 0));
        assert_int_equal(look(&lease, &share, &env, 1).remaining, 1);
        assert_true(look(&lease, &share, &env, 1).retry_us == 0);

        note(&lease, &share, &env, 1, said(0, 0, 86400000, 43200000));
        env = at(50);
        assert_int_equal(look(&lease, &share, &env, 1).remaining, 0);
        assert_true(look(&lease, &share, &env, 1).retry_us > 43000000);

        ngx_rl_ledger_gave(&lease, &share, &env, 1);
        assert_int_equal(look(&lease, &share, &env, 1).remaining, 1);
        assert_true(look(&lease, &share, &env, 1).retry_us == 0);

        /* an answer that has overtaken it stands for a moment only */

        note(&lease, &share, &env, 1, said(0, 0, 86400000, 43200000));
        env = at(149);
        assert_true(look(&lease, &share, &env, 1).retry_us > 0);
        env = at(150);
        assert_true(look(&lease, &share, &env, 1).retry_us == 0);

        /* nothing is known behind another limit */

        assert_int_equal(look(&lease, &other, &env, 1).remaining, 3);
        assert_true(look(&lease, &share, &env, 1).retry_us == 0);
        assert_int_equal(look(&lease, &share, &env, 1).remaining, 2);
    }
}


/* Whoever asks when he may, of a part that only he asks, is granted. */
static void
test_against_redis(void **state)
{
    limit_t  limit, share;

    for (unsigned round = 0; round < 3000; round++) {
        do {
            random_limit(&limit);
        } while (ngx_rl_limit_share(&limit, 1 + rnd(8), 0, &share) != 0
                 || share.window_us < 5000);

        lease_t lease = { 0 };
        state_t counter = { 0 };
        env_t env = at(0);

        for (unsigned i = 0; i < 60; i++) {
            uint32_t  cost = 1 + share.capacity / 7;

            answer_t known = look(&lease, &share, &env, cost);
            answer_t answer = state_take(&counter, &share, env.now_us, cost,
                                         known.retry_us ? LOOK : 0);

            if (known.retry_us) {
                /* remembered: true, and not for longer than it is, but for
                   what is rounded up for each token */

                assert_true(answer.retry_us > 0 || known.retry_us < 3000);
                assert_true(known.retry_us <= answer.retry_us + 3000 + cost);
                env.now_us += rnd(4) ? known.retry_us : rnd(known.retry_us);
                continue;
            }

            answer.reset_us += 999 - (answer.reset_us + 999) % 1000;
            answer.retry_us += 999 - (answer.retry_us + 999) % 1000;
            note(&lease, &share, &env, cost, answer);
            env.now_us += rnd(share.window_us / 16 + 1);
        }
    }
}

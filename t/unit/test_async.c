/* sync=async: what nodes spend together that each decides by what it knows. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "ngx_ratelimit_lease.h"

#define S      ((uint64_t) 1000000)
#define MS     ((uint64_t) 1000)
#define START  (1000 * S)
#define NODES  5

typedef struct {
    ngx_ratelimit_lease_t   lease;
    ngx_ratelimit_answer_t  answer;
    uint64_t                asked_us;   /* 0: no call under way */
    uint32_t                debt;
} node_t;


static ngx_ratelimit_limit_t
limit_of(ngx_ratelimit_algorithm_e algorithm, uint64_t tokens,
    uint64_t seconds)
{
    ngx_ratelimit_spec_t   spec;
    ngx_ratelimit_limit_t  limit;

    memset(&spec, 0, sizeof(spec));

    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = seconds * S;

    assert_null(ngx_ratelimit_limit_init(&limit, &spec));

    return limit;
}


static ngx_ratelimit_lease_env_t
env_at(uint64_t now_us)
{
    ngx_ratelimit_lease_env_t  env = { now_us, NODES, 1, 0 };

    return env;
}


/* A request on a node; what it is to tell Redis is noted there. */
static uint32_t
request(node_t *node, const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    unsigned                   ask;
    ngx_ratelimit_answer_t     answer;
    ngx_ratelimit_lease_env_t  env;

    env = env_at(now_us);

    (void) ngx_ratelimit_async_take(&node->lease, limit, &env, 1, &answer,
                                    &ask);

    assert_true(answer.remaining <= limit->capacity);

    if (ask) {
        node->asked_us = now_us;
        node->debt = ngx_ratelimit_async_debt(&node->lease);
    }

    return answer.granted;
}


static void
answered(node_t *node, const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    ngx_ratelimit_lease_env_t  env;

    env = env_at(now_us);

    ngx_ratelimit_async_fill(&node->lease, limit, &env, node->asked_us,
                             node->debt, &node->answer);
    node->asked_us = 0;
}


/*
 * All nodes are asked for more than there is, in the same milliseconds: each
 * token that refills is admitted by several of them, and debited in the end.
 */
static void
test_refill_is_spent_once(void **state)
{
    node_t                        nodes[NODES];
    uint64_t                      now_us, end_us;
    uint32_t                      i, admitted, debited;
    ngx_ratelimit_limit_t         limit;
    ngx_ratelimit_token_bucket_t  tb;

    (void) state;

    limit = limit_of(NGX_RATELIMIT_TOKEN_BUCKET, 100, 1);

    memset(nodes, 0, sizeof(nodes));
    memset(&tb, 0, sizeof(tb));

    admitted = 0;
    debited = 0;
    end_us = START + 20 * S;

    for (now_us = START; now_us < end_us; now_us += 2 * MS) {

        for (i = 0; i < NODES; i++) {
            admitted += request(&nodes[i], &limit, now_us);
        }

        for (i = 0; i < NODES; i++) {

            if (nodes[i].asked_us == 0) {
                continue;
            }

            ngx_ratelimit_token_bucket_take(&tb, &limit.rate, now_us + MS, 0,
                                            nodes[i].debt, &nodes[i].answer);
            debited += nodes[i].answer.granted;
            answered(&nodes[i], &limit, now_us + 2 * MS);
        }
    }

    /* a full bucket and what refills, and what is still to be debited */

    assert_in_range(debited, 2000, 2100);
    assert_in_range(admitted, debited, debited + 20 * NODES);
}


/* Redis had 1 of 3: this node denies until the two are there. */
static void
test_missing_is_kept(void **state)
{
    node_t                 node;
    uint32_t               i;
    ngx_ratelimit_limit_t  limit;

    (void) state;

    limit = limit_of(NGX_RATELIMIT_TOKEN_BUCKET, 10, 10);
    memset(&node, 0, sizeof(node));

    for (i = 0; i < 3; i++) {
        assert_int_equal(request(&node, &limit, START), 1);
    }

    node.debt = ngx_ratelimit_async_debt(&node.lease);
    assert_int_equal(node.debt, 3);

    node.answer.granted = 1;
    node.answer.remaining = 0;
    node.answer.reset_us = 10 * S;
    answered(&node, &limit, START);

    assert_int_equal(ngx_ratelimit_async_debt(&node.lease), 2);
    assert_int_equal(node.lease.tokens, 0);

    /* two tokens are back after 2 s, and the third is its own */

    assert_int_equal(request(&node, &limit, START + S + S / 2), 0);
    assert_int_equal(request(&node, &limit, START + 2 * S + S / 2), 0);
    assert_int_equal(request(&node, &limit, START + 3 * S + S / 2), 1);

    /* Redis debits all: nothing is missing any more */

    node.asked_us = START + 4 * S;
    node.debt = ngx_ratelimit_async_debt(&node.lease);
    assert_int_equal(node.debt, 3);

    node.answer.granted = 3;
    node.answer.remaining = 1;
    node.answer.reset_us = 9 * S;
    answered(&node, &limit, START + 4 * S);

    assert_int_equal(ngx_ratelimit_async_debt(&node.lease), 0);
    assert_int_equal(request(&node, &limit, START + 4 * S), 1);
}


/* What was spent while the call was under way is told with the next one. */
static void
test_spent_meanwhile(void **state)
{
    node_t                 node;
    ngx_ratelimit_limit_t  limit;

    (void) state;

    limit = limit_of(NGX_RATELIMIT_SLIDING_WINDOW, 10, 10);
    memset(&node, 0, sizeof(node));

    assert_int_equal(request(&node, &limit, START), 1);
    assert_int_equal(node.debt, 1);
    assert_int_equal(request(&node, &limit, START), 1);
    assert_int_equal(node.debt, 1);

    node.answer.granted = 0;
    node.answer.remaining = 0;
    node.answer.reset_us = 20 * S;
    answered(&node, &limit, START + MS);

    assert_int_equal(node.lease.tokens, 1);
    assert_int_equal(ngx_ratelimit_async_debt(&node.lease), 2);
}


/* Nothing comes back to a fixed window: what was missing is forgotten. */
static void
test_fixed_window_forgets(void **state)
{
    node_t                 node;
    ngx_ratelimit_limit_t  limit;

    (void) state;

    limit = limit_of(NGX_RATELIMIT_FIXED_WINDOW, 10, 10);
    memset(&node, 0, sizeof(node));

    assert_int_equal(request(&node, &limit, START), 1);

    node.answer.granted = 0;
    node.answer.remaining = 0;
    node.answer.reset_us = 10 * S;
    answered(&node, &limit, START + MS);

    assert_int_equal(ngx_ratelimit_async_debt(&node.lease), 0);
    assert_int_equal(request(&node, &limit, START + S), 0);
    assert_int_equal(request(&node, &limit, START + 10 * S + MS), 1);
}


/* Nothing is answered for minutes: the node holds the limit by itself. */
static void
outage(ngx_ratelimit_algorithm_e algorithm)
{
    node_t                  node;
    uint64_t                now_us;
    uint32_t                admitted, debt;
    ngx_ratelimit_limit_t   limit;

    limit = limit_of(algorithm, 100, 1);
    memset(&node, 0, sizeof(node));
    admitted = 0;

    /* 500 a second for 60 seconds */

    for (now_us = START; now_us < START + 60 * S; now_us += 2 * MS) {
        admitted += request(&node, &limit, now_us);
    }

    assert_in_range(admitted, 5800, 6200);

    /* what is to be debited then is no more than a counter can have lost */

    debt = ngx_ratelimit_async_debt(&node.lease);
    assert_in_range(debt, 1, 100);
}


static void
test_outage(void **state)
{
    (void) state;

    outage(NGX_RATELIMIT_TOKEN_BUCKET);
    outage(NGX_RATELIMIT_FIXED_WINDOW);
    outage(NGX_RATELIMIT_SLIDING_WINDOW);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_refill_is_spent_once),
        cmocka_unit_test(test_missing_is_kept),
        cmocka_unit_test(test_spent_meanwhile),
        cmocka_unit_test(test_fixed_window_forgets),
        cmocka_unit_test(test_outage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

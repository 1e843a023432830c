/*
 * Requests in flight: how many are let in.
 */

#include "unit.h"

#include "ngx_rl_limit.h"


static void
check_take(uint32_t in_use, uint32_t capacity, uint32_t cost, uint32_t want,
    uint32_t granted, uint32_t remaining)
{
    ngx_rl_answer_t  answer;

    ngx_rl_limit_t limit = { 0 };
    memset(&answer, 0xff, sizeof(answer));

    limit.algorithm = NGX_RL_CONCURRENCY;
    limit.capacity = capacity;
    uint32_t n = in_use;

    ngx_rl_concurrency_take(&n, &limit, cost, want, &answer);

    assert_int_equal(answer.granted, granted);
    assert_int_equal(answer.remaining, remaining);
    assert_int_equal(answer.reset_us, 0);
    assert_int_equal(answer.retry_us, (cost && in_use >= capacity)
                                      ? NGX_RL_PERMIT_RETRY_US : 0);
    assert_int_equal(n, in_use + granted);
}


static void
test_take(void **state)
{
    check_take(0, 1, 1, 0, 1, 0);
    check_take(1, 1, 1, 0, 0, 0);
    check_take(0, 5, 1, 0, 1, 4);
    check_take(4, 5, 1, 0, 1, 0);
    check_take(5, 5, 1, 0, 0, 0);

    /* one request, one slot */
    check_take(0, 5, 3, 0, 1, 4);
    check_take(4, 5, 1000, 1000, 1, 0);

    /* a limit that was lowered */
    check_take(9, 5, 1, 0, 0, 0);
    check_take(UINT32_MAX, NGX_RL_MAX_TOKENS, 1, 0, 0, 0);
}


static void
test_look(void **state)
{
    check_take(0, 5, 0, 0, 0, 5);
    check_take(5, 5, 0, 0, 0, 0);
    check_take(0, 5, 1, NGX_RL_LOOK, 0, 5);
    check_take(4, 5, 1, NGX_RL_LOOK, 0, 1);
    check_take(5, 5, 1, NGX_RL_LOOK, 0, 0);
    check_take(9, 5, 0, NGX_RL_LOOK, 0, 0);
}

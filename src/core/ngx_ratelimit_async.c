/*
 * sync=async: the memory of a lease used the other way round. Tokens are spent
 * at once, by what is known, and debited behind.
 */

#include "ngx_ratelimit_lease_int.h"

/* async: for so long it is known that Redis had too few tokens */
#define NGX_RATELIMIT_ASYNC_OWE_US     60000000

static void ngx_ratelimit_async_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static void ngx_ratelimit_async_spend(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t tokens);
static void ngx_ratelimit_async_move(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t tokens);
static uint32_t ngx_ratelimit_async_left(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_async_deny(const ngx_ratelimit_limit_t *limit,
    uint32_t cost, ngx_ratelimit_answer_t *answer);


ngx_ratelimit_lease_e
ngx_ratelimit_async_take(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer, unsigned *ask)
{
    uint32_t               left, since_ms;
    ngx_ratelimit_lease_e  rc;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    left = ngx_ratelimit_async_left(lease, limit, env->now_us, answer);
    since_ms = ngx_ratelimit_lease_passed_ms(env->now_us, lease->answered_ms);

    if (cost <= left) {
        ngx_ratelimit_async_spend(lease, limit, env->now_us, cost);

        left = ngx_ratelimit_async_left(lease, limit, env->now_us, answer);
        answer->granted = cost;
        rc = NGX_RATELIMIT_LEASE_PAID;

        /* at the latest when a share of what was left is spent */

        *ask = !lease->answered || since_ms >= NGX_RATELIMIT_LEASE_HOLD_MS
               || (uint64_t) lease->tokens * 2 * env->nodes >= left;

    } else {
        ngx_ratelimit_async_deny(limit, cost, answer);
        rc = NGX_RATELIMIT_LEASE_DENIED;

        /* what was missing may be there by now */

        *ask = !lease->answered
               || since_ms >= (lease->denied_cost
                               ? NGX_RATELIMIT_LEASE_SPACE_MS
                               : NGX_RATELIMIT_LEASE_HOLD_MS);
    }

    since_ms = ngx_ratelimit_lease_passed_ms(env->now_us, lease->asked_ms);

    if (*ask && lease->asking && since_ms < NGX_RATELIMIT_LEASE_LOST_MS) {
        *ask = 0;
    }

    if (*ask) {
        lease->asking = 1;
        lease->asked_ms = ngx_ratelimit_lease_ms(env->now_us);
    }

    return rc;
}


/*
 * What was spent stays so under another limit, and so does what Redis has said,
 * until it says something else. A window's end makes the counter a fresh one; a
 * sliding one's count weighs on the next window, too.
 */
static void
ngx_ratelimit_async_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (now_us >= lease->busy_us) {
        lease->denied_cost = 0;
    }

    ngx_ratelimit_lease_wake(lease, now_us);

    if (!lease->async) {
        lease->async = 1;
        lease->answered = 0;
        lease->tokens = 0;
        lease->denied_cost = 0;
    }

    if (lease->mark != limit->mark) {
        lease->mark = limit->mark;
        lease->remaining += (int32_t) limit->capacity
                            - (int32_t) lease->capacity;
    }

    lease->capacity = limit->capacity;

    if (ngx_ratelimit_lease_of_bucket(limit) || now_us < lease->fresh_us) {
        return;
    }

    /* without Redis, windows begin when the one before has ended */

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW || !lease->answered) {
        lease->tokens = 0;
        lease->denied_cost = 0;
    }

    lease->answered = 0;
    lease->remaining = (int32_t) limit->capacity;
    lease->fresh_us = now_us + limit->window_us;
}


/*
 * Tokens are spent here. A bucket's instant moves at once: so it refills while
 * Redis is away, and what was spent before that is no debt for good.
 */
static void
ngx_ratelimit_async_spend(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t tokens)
{
    lease->tokens = ngx_ratelimit_lease_min((uint64_t) lease->tokens + tokens,
                                            limit->capacity);
    ngx_ratelimit_async_move(lease, limit, now_us, tokens);
}


static void
ngx_ratelimit_async_move(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t tokens)
{
    if (!ngx_ratelimit_lease_of_bucket(limit)) {
        return;
    }

    if (lease->fresh_us < now_us) {
        lease->fresh_us = now_us;
    }

    lease->fresh_us += tokens * limit->rate.step_us
                       + (uint64_t) tokens * limit->rate.step_frac
                         / limit->rate.scale;
}


/* What this node believes to be left; the answer tells of that. */
static uint32_t
ngx_ratelimit_async_left(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer)
{
    uint32_t  spent, debt;

    spent = lease->tokens;
    debt = ngx_ratelimit_async_debt(lease);
    lease->tokens = 0;

    if (lease->answered || ngx_ratelimit_lease_of_bucket(limit)) {
        ngx_ratelimit_lease_answer(lease, limit, now_us, answer);

    } else {
        memset(answer, 0, sizeof(ngx_ratelimit_answer_t));
        answer->remaining = limit->capacity;
    }

    lease->tokens = spent;

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        return answer->remaining;
    }

    debt = ngx_ratelimit_lease_min(debt, limit->capacity);
    answer->remaining -= ngx_ratelimit_lease_min(answer->remaining, debt);

    if (debt && answer->reset_us == 0) {
        answer->reset_us = lease->fresh_us > now_us ? lease->fresh_us - now_us
                                                    : limit->window_us;
    }

    return answer->remaining;
}


/* Redis has not said when it can be paid: at the latest then. */
static void
ngx_ratelimit_async_deny(const ngx_ratelimit_limit_t *limit, uint32_t cost,
    ngx_ratelimit_answer_t *answer)
{
    answer->granted = 0;

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RATELIMIT_NEVER;

    } else if (ngx_ratelimit_lease_of_bucket(limit)) {
        answer->retry_us = (uint64_t) (cost - answer->remaining)
                           * (limit->rate.step_us + 1);

    } else {
        answer->retry_us = answer->reset_us ? answer->reset_us : 1000;
    }
}


uint32_t
ngx_ratelimit_async_debt(const ngx_ratelimit_lease_t *lease)
{
    if (!lease->async) {
        return 0;
    }

    return ngx_ratelimit_lease_min((uint64_t) lease->tokens
                                   + lease->denied_cost, lease->capacity);
}


void
ngx_ratelimit_async_fill(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint64_t asked_us, uint32_t debt, const ngx_ratelimit_answer_t *answer)
{
    uint32_t                due, spent, missing;
    uint64_t                busy_us;
    ngx_ratelimit_answer_t  left;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    lease->asking = 0;

    /* a fixed window's that is over: it has taken the debt along */

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW
        && ngx_ratelimit_lease_late(limit, asked_us, env->now_us, answer))
    {
        return;
    }

    due = ngx_ratelimit_async_debt(lease);
    missing = debt - ngx_ratelimit_lease_min(debt, answer->granted);
    debt = ngx_ratelimit_lease_min(due, debt);

    /* what is spent is debited already, and does not come to hand */

    spent = due - debt;
    lease->remaining -= debt;
    lease->tokens = 0;

    left = *answer;
    left.granted = 0;

    ngx_ratelimit_lease_learn(lease, limit, asked_us, env->now_us, &left);

    lease->tokens = spent;
    lease->denied_cost = 0;

    if (missing && limit->algorithm != NGX_RATELIMIT_FIXED_WINDOW) {
        lease->denied_cost = ngx_ratelimit_lease_min(debt, missing);

        busy_us = env->now_us + NGX_RATELIMIT_ASYNC_OWE_US;
        busy_us = busy_us < lease->fresh_us ? busy_us : lease->fresh_us;
        lease->busy_us = busy_us > lease->busy_us ? busy_us : lease->busy_us;
    }

    ngx_ratelimit_async_move(lease, limit, env->now_us,
                             ngx_ratelimit_async_debt(lease));
}


uint32_t
ngx_ratelimit_async_return(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens)
{
    uint64_t  back_us;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    tokens = ngx_ratelimit_lease_min(tokens, lease->tokens);
    lease->tokens -= tokens;

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        back_us = tokens * limit->rate.step_us;
        lease->fresh_us -= back_us < lease->fresh_us ? back_us
                                                     : lease->fresh_us;
    }

    return tokens;
}


uint32_t
ngx_ratelimit_async_charge(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens)
{
    ngx_ratelimit_answer_t  left;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    tokens = ngx_ratelimit_lease_min(tokens,
                ngx_ratelimit_async_left(lease, limit, env->now_us, &left));
    ngx_ratelimit_async_spend(lease, limit, env->now_us, tokens);

    return tokens;
}

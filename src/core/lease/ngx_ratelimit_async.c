/*
 * sync=async: the memory of a lease, used in another way. Tokens are spent at
 * once, by what is known, and debited later.
 */

#include "ngx_ratelimit_lease_int.h"

/* async: for so long it is known that Redis had too few tokens */
#define NGX_RATELIMIT_ASYNC_OWE_US     60000000

typedef unsigned __int128  ngx_ratelimit_async_wide_t;

static void ngx_ratelimit_async_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static void ngx_ratelimit_async_pass(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static void ngx_ratelimit_async_refill(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static uint32_t ngx_ratelimit_async_left(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_async_forgive(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_lease_env_t *env);
static void ngx_ratelimit_async_forget(ngx_ratelimit_lease_t *lease);
static void ngx_ratelimit_async_debited(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t tokens);
static void ngx_ratelimit_async_deny(const ngx_ratelimit_limit_t *limit,
    uint32_t cost, ngx_ratelimit_answer_t *answer);


ngx_ratelimit_lease_e
ngx_ratelimit_async_take(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer, unsigned *ask)
{
    uint32_t               left, since_ms;
    unsigned               swept;
    ngx_ratelimit_lease_e  rc;

    swept = (lease->mark == limit->mark);

    ngx_ratelimit_async_begin(lease, limit, env->now_us);
    ngx_ratelimit_async_forgive(lease, env);

    left = ngx_ratelimit_async_left(lease, limit, env->now_us, answer);
    since_ms = ngx_ratelimit_lease_passed_ms(env->now_us, lease->answered_ms);

    if (cost > left && lease->answered
        && ngx_ratelimit_lease_forgot(env, lease->answered_ms))
    {
        ngx_ratelimit_async_forget(lease);
        left = ngx_ratelimit_async_left(lease, limit, env->now_us, answer);
    }

    if (cost <= left) {

        /*
         * A worker sweeps, for the limit of the lease, until nothing is spent.
         * If its debit is late, it may have been killed.
         */

        swept = swept && lease->tokens
                && since_ms < NGX_RATELIMIT_LEASE_HOLD_MS;

        lease->tokens += cost;

        left = ngx_ratelimit_async_left(lease, limit, env->now_us, answer);
        answer->granted = cost;
        rc = NGX_RATELIMIT_LEASE_PAID;

        /*
         * A sweep debits only while the lease is of its own limit. If limits
         * alternate, a request debits after a second.
         */

        *ask = !lease->answered
               || (uint64_t) lease->tokens * 2 * env->nodes >= left
               || (since_ms >= NGX_RATELIMIT_LEASE_LOST_MS
                   && lease->tokens > cost);

        if (!*ask && !swept) {
            *ask = NGX_RATELIMIT_ASYNC_SOON;
            return rc;
        }

    } else {
        ngx_ratelimit_async_deny(limit, cost, answer);
        rc = NGX_RATELIMIT_LEASE_DENIED;

        /* what was missing may be there by now */

        *ask = !lease->answered
               || since_ms >= (lease->denied_cost
                               ? NGX_RATELIMIT_LEASE_SPACE_MS
                               : NGX_RATELIMIT_LEASE_HOLD_MS);
    }

    if (*ask && ngx_ratelimit_lease_asking(lease, env->now_us)) {
        *ask = 0;
    }

    if (*ask) {
        ngx_ratelimit_lease_ask(lease, env->now_us);
    }

    return rc;
}


void
ngx_ratelimit_async_look(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_lease_t  now;

    now = *lease;
    ngx_ratelimit_async_begin(&now, limit, env->now_us);

    if (now.answered && ngx_ratelimit_lease_forgot(env, now.answered_ms)) {
        ngx_ratelimit_async_forget(&now);
    }

    (void) ngx_ratelimit_async_left(&now, limit, env->now_us, answer);
    answer->granted = 0;
    answer->retry_us = 0;
}


/*
 * A counter was reset: the fresh one does not owe what was missing before. This
 * runs also when no request comes and a debit is due.
 */
static void
ngx_ratelimit_async_forgive(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_lease_env_t *env)
{
    if (lease->async && lease->denied_cost
        && ngx_ratelimit_lease_forgot(env, lease->answered_ms))
    {
        lease->denied_cost = 0;
    }
}


/*
 * The counter was reset: it counts as fresh, less what was spent since the last
 * debit, which may have come after the reset.
 */
static void
ngx_ratelimit_async_forget(ngx_ratelimit_lease_t *lease)
{
    lease->answered = 0;
    lease->fresh_us = 0;
    lease->denied_cost = 0;
}


unsigned
ngx_ratelimit_async_due(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    if (!lease->async) {
        return 0;
    }

    ngx_ratelimit_async_forgive(lease, env);
    ngx_ratelimit_async_pass(lease, limit, env->now_us);

    /* several workers sweep: one of them debits in HOLD_MS */

    if (ngx_ratelimit_async_debt(lease) == 0
        || ngx_ratelimit_lease_asking(lease, env->now_us)
        || ngx_ratelimit_lease_passed_ms(env->now_us, lease->asked_ms)
           < NGX_RATELIMIT_LEASE_HOLD_MS)
    {
        return 0;
    }

    ngx_ratelimit_lease_ask(lease, env->now_us);

    return 1;
}


void
ngx_ratelimit_async_failed(ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    lease->asked_ms = ngx_ratelimit_lease_ms(now_us)
                      - (NGX_RATELIMIT_LEASE_LOST_MS
                         - NGX_RATELIMIT_LEASE_HOLD_MS);
}


/* If Redis has said nothing yet, there is nowhere to note the debit. */
uint32_t
ngx_ratelimit_async_leave(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    uint32_t  debt;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);
    ngx_ratelimit_async_forgive(lease, env);

    if (!lease->answered || ngx_ratelimit_lease_asking(lease, env->now_us)) {
        return 0;
    }

    debt = ngx_ratelimit_async_debt(lease);

    ngx_ratelimit_async_debited(lease, limit, env->now_us, debt);

    lease->tokens = 0;
    lease->denied_cost = 0;

    return debt;
}


/*
 * The tokens are debited. An answer to an earlier call does not count them yet,
 * and leaves no more than this.
 */
static void
ngx_ratelimit_async_debited(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t tokens)
{
    int64_t   left;
    uint64_t  most_us;

    tokens = ngx_ratelimit_lease_min(tokens, (uint64_t) limit->capacity * 2);
    lease->answered_ms = ngx_ratelimit_lease_ms(now_us);

    if (!ngx_ratelimit_lease_of_bucket(limit)) {

        /* a window owes one capacity at most */

        left = (int64_t) lease->remaining - tokens;
        lease->remaining = (int32_t) (left > -(int64_t) limit->capacity
                                      ? left : -(int64_t) limit->capacity);
        return;
    }

    if (lease->fresh_us < now_us) {
        lease->fresh_us = now_us;
    }

    most_us = now_us + 2 * limit->window_us;

    lease->fresh_us += tokens * limit->rate.step_us;
    lease->fresh_us = lease->fresh_us < most_us ? lease->fresh_us : most_us;
}


/*
 * Spent tokens stay spent under another limit, and Redis' last answer counts
 * until the next one.
 */
static void
ngx_ratelimit_async_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (now_us >= lease->busy_us) {
        lease->denied_cost = 0;
    }

    ngx_ratelimit_lease_wake(lease, now_us);
    ngx_ratelimit_lease_touch(lease, now_us);

    if (!lease->async) {
        lease->async = 1;
        lease->answered = 0;
        lease->fresh_us = 0;
        lease->tokens = 0;
        lease->denied_cost = 0;
    }

    if (lease->mark != limit->mark) {
        lease->mark = limit->mark;
        lease->remaining += (int32_t) limit->capacity
                            - (int32_t) lease->capacity;
    }

    lease->capacity = limit->capacity;

    ngx_ratelimit_async_pass(lease, limit, now_us);
}


/*
 * A fixed window's end makes the counter a fresh one; the count of a sliding
 * one weighs on the next window, too. If Redis says nothing for longer, this
 * gateway goes on alone, by windows that begin when it comes to them.
 */
static void
ngx_ratelimit_async_pass(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (ngx_ratelimit_lease_of_bucket(limit)) {
        ngx_ratelimit_async_refill(lease, limit, now_us);
        return;
    }

    if (now_us < lease->fresh_us) {
        return;
    }

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW || !lease->answered) {
        lease->tokens = 0;
        lease->denied_cost = 0;
    }

    lease->answered = 0;
    lease->fresh_us = now_us + limit->window_us;
}


/*
 * Tokens of a bucket that were spent and not debited come back, as in Redis: a
 * second later, so that those of a debit under way stay spent.
 */
static void
ngx_ratelimit_async_refill(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    uint32_t                    debt, passed_ms, back;
    uint64_t                    us, since_us;
    ngx_ratelimit_async_wide_t  wide;

    debt = ngx_ratelimit_async_debt(lease);
    passed_ms = ngx_ratelimit_lease_passed_ms(now_us, lease->since_ms);
    since_us = now_us - (uint64_t) passed_ms * 1000;

    /* the use that Redis has counted comes back first */

    if (lease->answered && since_us < lease->fresh_us) {
        since_us = lease->fresh_us < now_us ? lease->fresh_us : now_us;
        lease->since_ms = ngx_ratelimit_lease_ms(since_us);
        passed_ms = ngx_ratelimit_lease_passed_ms(now_us, lease->since_ms);
    }

    if (debt == 0) {
        lease->since_ms = ngx_ratelimit_lease_ms(now_us);
        return;
    }

    if (passed_ms <= NGX_RATELIMIT_LEASE_LOST_MS) {
        return;
    }

    us = (uint64_t) (passed_ms - NGX_RATELIMIT_LEASE_LOST_MS) * 1000;
    wide = (ngx_ratelimit_async_wide_t) us * limit->rate.scale
           / limit->rate.period_us;

    back = wide < debt ? (uint32_t) wide : debt;

    wide = (ngx_ratelimit_async_wide_t) back * limit->rate.period_us
           / limit->rate.scale;
    lease->since_ms += (uint32_t) ((uint64_t) wide + 999) / 1000;

    debt -= back;
    lease->denied_cost = ngx_ratelimit_lease_min(lease->denied_cost, debt);
    lease->tokens = debt - lease->denied_cost;
}


/* Returns what this gateway believes to be left, and fills the answer. */
static uint32_t
ngx_ratelimit_async_left(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer)
{
    uint32_t  spent, debt;

    spent = lease->tokens;
    debt = ngx_ratelimit_async_debt(lease);
    lease->tokens = 0;

    if (lease->answered) {
        ngx_ratelimit_lease_answer(lease, limit, now_us, answer);

    } else {
        memset(answer, 0, sizeof(ngx_ratelimit_answer_t));
        answer->remaining = limit->capacity;
    }

    lease->tokens = spent;

    debt = ngx_ratelimit_lease_min(debt, limit->capacity);
    answer->remaining -= ngx_ratelimit_lease_min(answer->remaining, debt);

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        answer->reset_us += debt * limit->rate.step_us;

    } else if (debt && answer->reset_us == 0) {
        answer->reset_us = lease->fresh_us - now_us;
    }

    return answer->remaining;
}


/*
 * Redis has not said when the cost can be paid: this is the latest moment. The
 * debt comes back first.
 */
static void
ngx_ratelimit_async_deny(const ngx_ratelimit_limit_t *limit, uint32_t cost,
    ngx_ratelimit_answer_t *answer)
{
    uint64_t  owed_us;

    answer->granted = 0;

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RATELIMIT_NEVER;

    } else if (ngx_ratelimit_lease_of_bucket(limit)) {
        owed_us = answer->reset_us > limit->window_us
                  ? answer->reset_us - limit->window_us : 0;
        answer->retry_us = (uint64_t) (cost - answer->remaining)
                           * (limit->rate.step_us + 1) + owed_us;

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
                                   + lease->denied_cost,
                                   NGX_RATELIMIT_MAX_TOKENS);
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

    /* answer->granted was spent before, and does not come to hand */

    spent = due - debt;
    lease->remaining -= debt;
    lease->tokens = 0;
    lease->since_ms = ngx_ratelimit_lease_ms(env->now_us);

    /*
     * The window that began without Redis is another one. After a reset there
     * may be more left than before.
     */

    if (!lease->answered
        || (!ngx_ratelimit_lease_flows(limit)
            && ngx_ratelimit_lease_forgot(env, lease->answered_ms)))
    {
        lease->fresh_us = 0;
    }

    left = *answer;
    left.granted = 0;

    ngx_ratelimit_lease_learn(lease, limit, asked_us, env->now_us, &left);

    lease->tokens = spent;
    lease->denied_cost = 0;

    /* the counter was reset since: the rest is not owed */

    if (env->forgot_us && env->forgot_us >= asked_us) {
        ngx_ratelimit_async_forget(lease);
        return;
    }

    if (missing && limit->algorithm != NGX_RATELIMIT_FIXED_WINDOW) {
        lease->denied_cost = ngx_ratelimit_lease_min(debt, missing);

        busy_us = env->now_us + NGX_RATELIMIT_ASYNC_OWE_US;
        busy_us = busy_us < lease->fresh_us ? busy_us : lease->fresh_us;
        lease->busy_us = busy_us > lease->busy_us ? busy_us : lease->busy_us;
    }
}


uint32_t
ngx_ratelimit_async_return(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens)
{
    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    tokens = ngx_ratelimit_lease_min(tokens, lease->tokens);
    lease->tokens -= tokens;

    return tokens;
}


uint32_t
ngx_ratelimit_async_charge(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens)
{
    uint32_t                left;
    ngx_ratelimit_answer_t  answer;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    left = ngx_ratelimit_async_left(lease, limit, env->now_us, &answer);

    if (tokens > left && lease->answered) {
        ngx_ratelimit_async_debited(lease, limit, env->now_us, tokens);
        return 0;
    }

    tokens = ngx_ratelimit_lease_min(tokens, left);
    lease->tokens += tokens;

    return tokens;
}

/*
 * sync=async: tokens are spent at once, by what is known, and debited later.
 */

#include "ngx_rl_async.h"
#include "ngx_rl_lease_int.h"
#include "ngx_rl_window.h"

/*
 * Calls are HOLD_MS apart. Only a gateway that has spent its share of what is
 * left calls sooner, if that share is so many tokens.
 */
#define NGX_RL_ASYNC_SHARE  4


/* The counter equals a fresh one then; left: of a window. */
static void
ngx_rl_async_set(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t fresh_us, uint32_t left)
{
    if (ngx_rl_lease_of_bucket(limit)) {
        async->tb.tat_us = fresh_us;
        async->tb.tat_frac = 0;
        async->tb.span_code = limit->rate.span_code;

    } else {
        async->window.end_us = fresh_us;
        async->window.left = (int32_t) left;
        async->window.capacity = limit->capacity;
    }
}


/* So many are spent or, below 0, come back. */
static void
ngx_rl_async_count(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us, int64_t tokens)
{
    int64_t          left;
    ngx_rl_answer_t  unused;

    if (!ngx_rl_lease_of_bucket(limit)) {
        left = async->window.left - tokens;

        if (left < -(int64_t) limit->capacity) {
            left = -(int64_t) limit->capacity;

        } else if (left > limit->capacity) {
            left = limit->capacity;
        }

        async->window.left = (int32_t) left;

        /* what was denied comes later now, or earlier */

        if (tokens) {
            async->denied_cost = 0;
            async->named = 0;
        }

    } else if (tokens > 0) {
        ngx_rl_token_bucket_take(&async->tb, &limit->rate, now_us,
                                 (uint32_t) tokens, NGX_RL_CHARGE, &unused);
    } else if (tokens < 0) {
        ngx_rl_token_bucket_give(&async->tb, &limit->rate, now_us,
                                 now_us, (uint32_t) -tokens);
    }
}


/*
 * At a window's end the counter is a fresh one, of which Redis has said
 * nothing. What was spent of a fixed one is none of the next one's.
 */
static void
ngx_rl_async_pass(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    if (ngx_rl_lease_of_bucket(limit)) {
        return;
    }

    if (now_us >= async->window.end_us) {

        if (async->owed < 0 || !async->answered || !ngx_rl_lease_flows(limit)) {
            async->owed = 0;
        }

        async->answered = 0;
        async->denied_cost = 0;
        async->named = 0;
        async->began_ms = ngx_rl_lease_ms(now_us);
        ngx_rl_async_set(async, limit, now_us + limit->window_us,
                         limit->capacity);

        ngx_rl_async_count(async, limit, now_us, async->owed);
    }

    /* the moment has come that Redis named */

    if (async->named
        && (int32_t) (ngx_rl_lease_ms(now_us) - async->retry_ms) >= 0)
    {
        if (async->window.left < (int32_t) async->denied_cost) {
            async->window.left = (int32_t) async->denied_cost;
        }

        async->denied_cost = 0;
        async->named = 0;
    }
}


/* Spent tokens stay spent under another limit. */
static void
ngx_rl_async_begin(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    unsigned  bucket;

    if (async->busy_us < now_us + NGX_RL_LEASE_BUSY_US) {
        async->busy_us = now_us + NGX_RL_LEASE_BUSY_US;
    }

    bucket = ngx_rl_lease_of_bucket(limit);

    if (async->mark == 0 || async->bucket != bucket) {
        async->bucket = bucket;
        async->answered = 0;
        async->asked_ms = ngx_rl_lease_ms(now_us) - NGX_RL_LEASE_LOST_MS;
        ngx_rl_async_set(async, limit, 0, limit->capacity);
    }

    if (async->mark != limit->mark) {
        async->mark = limit->mark;
        async->denied_cost = 0;
        async->named = 0;

        if (!bucket) {
            async->window.left += (int32_t) limit->capacity
                                  - (int32_t) async->window.capacity;
            async->window.capacity = limit->capacity;
        }
    }

    ngx_rl_async_pass(async, limit, now_us);
}


/* Whether a call is under way. If it takes a second, it may be lost. */
static unsigned
ngx_rl_async_asking(const ngx_rl_async_t *async, uint64_t now_us)
{
    return async->asking
           && ngx_rl_lease_passed_ms(now_us, async->asked_ms)
              < NGX_RL_LEASE_LOST_MS;
}


/* Takes the cost of what is known to be left, 0: looks. */
static void
ngx_rl_async_run(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, ngx_rl_answer_t *answer)
{
    int32_t  left;

    if (ngx_rl_lease_of_bucket(limit)) {
        ngx_rl_token_bucket_take(&async->tb, &limit->rate, now_us, cost,
                                 0, answer);
        return;
    }

    memset(answer, 0, sizeof(ngx_rl_answer_t));

    if (cost && (int64_t) async->window.left >= cost) {
        ngx_rl_async_count(async, limit, now_us, cost);
        answer->granted = cost;
    }

    left = async->window.left;
    answer->remaining = left > 0 ? (uint32_t) left : 0;

    if (left < (int32_t) limit->capacity && async->window.end_us > now_us) {
        answer->reset_us = async->window.end_us - now_us;
    }
}


static void
ngx_rl_async_owe(ngx_rl_async_t *async, uint64_t now_us, int64_t tokens)
{
    tokens += async->owed;

    if (async->owed == 0 || (tokens > 0) != (async->owed > 0)) {
        async->since_ms = ngx_rl_lease_ms(now_us);
    }

    async->owed = (int32_t) (tokens < NGX_RL_MAX_TOKENS
                             ? tokens : NGX_RL_MAX_TOKENS);
}


/* Whether to call, or sweep, now that cost is owed, too. */
static unsigned
ngx_rl_async_ask(const ngx_rl_async_t *async, const ngx_rl_lease_env_t *env,
    unsigned swept, uint32_t cost, uint32_t left)
{
    uint32_t  since_ms;

    since_ms = ngx_rl_lease_passed_ms(env->now_us, async->asked_ms);

    /*
     * A sweep tells Redis only while the ledger is of its own limit. If limits
     * alternate, a request does after a second.
     */

    if (async->owed > 0
        && !ngx_rl_async_asking(async, env->now_us)
        && ((uint64_t) async->owed * 2 * env->nodes >= left
            || (since_ms >= NGX_RL_LEASE_LOST_MS
                && (uint32_t) async->owed > cost))
        && (since_ms >= NGX_RL_LEASE_HOLD_MS
            || (async->answered && async->owed >= NGX_RL_ASYNC_SHARE)))
    {
        return 1;
    }

    /*
     * A worker sweeps, for the limit of the ledger, until nothing is owed. If
     * its call is late, it may have been killed.
     */

    return swept && since_ms < NGX_RL_LEASE_HOLD_MS ? 0 : NGX_RL_ASYNC_SOON;
}


/* Until Redis has named the moment, the latest one is told. */
static void
ngx_rl_async_deny(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, ngx_rl_answer_t *answer)
{
    uint32_t  wait_ms;

    answer->remaining = ngx_rl_lease_min(answer->remaining, cost - 1);

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;
        return;
    }

    if (!ngx_rl_lease_of_bucket(limit)) {
        answer->retry_us = answer->reset_us ? answer->reset_us : 1000;

        if (async->named && cost <= async->denied_cost) {
            wait_ms = async->retry_ms - ngx_rl_lease_ms(now_us);
            answer->retry_us = (uint64_t) wait_ms * 1000;
        }
    }

    if (!async->named && ngx_rl_lease_flows(limit)) {
        async->denied_cost = cost;
    }
}


ngx_rl_lease_e
ngx_rl_async_take(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t cost, ngx_rl_answer_t *answer,
    unsigned *ask)
{
    unsigned  swept;

    *ask = 0;
    swept = (async->mark == limit->mark && async->owed != 0);

    ngx_rl_async_begin(async, limit, env->now_us);

    if (!async->answered) {

        /* if the gateway's own counter denies, Redis may have more */

        async->denied_cost = ngx_rl_lease_min(cost, limit->capacity);
        *ask = !ngx_rl_async_asking(async, env->now_us)
               && ngx_rl_lease_passed_ms(env->now_us, async->asked_ms)
                  >= NGX_RL_LEASE_LOST_MS;

        return NGX_RL_LEASE_ASK;
    }

    ngx_rl_async_run(async, limit, env->now_us, cost, answer);

    if (answer->granted) {
        ngx_rl_async_owe(async, env->now_us, cost);
        *ask = ngx_rl_async_ask(async, env, swept, cost, answer->remaining);
        return NGX_RL_LEASE_PAID;
    }

    if (ngx_rl_lease_forgot(env, async->answered_ms)) {
        async->answered = 0;
        return NGX_RL_LEASE_ASK;
    }

    ngx_rl_async_deny(async, limit, env->now_us, cost, answer);

    /*
     * A bucket says when it can pay. Of a sliding window only Redis knows. What
     * other gateways give back is heard of after a second.
     */

    *ask = async->denied_cost
           && !ngx_rl_async_asking(async, env->now_us)
           && ngx_rl_lease_passed_ms(env->now_us, async->asked_ms)
              >= (async->named || ngx_rl_lease_of_bucket(limit)
                  ? NGX_RL_LEASE_LOST_MS : NGX_RL_LEASE_HOLD_MS);

    return NGX_RL_LEASE_DENIED;
}


void
ngx_rl_async_spent(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, const ngx_rl_answer_t *answer, unsigned *ask)
{
    uint32_t  left;
    unsigned  swept;

    swept = (async->mark == limit->mark && async->owed != 0);
    left = ngx_rl_limit_left(limit, answer);

    ngx_rl_async_begin(async, limit, env->now_us);

    /* Redis may have answered since the gateway's own counter was asked */

    if (async->answered) {
        ngx_rl_async_count(async, limit, env->now_us, answer->granted);

    } else {
        ngx_rl_async_set(async, limit, env->now_us + answer->reset_us, left);
    }

    ngx_rl_async_owe(async, env->now_us, answer->granted);

    *ask = ngx_rl_async_ask(async, env, swept, answer->granted,
                            async->answered ? left : 0);
}


void
ngx_rl_async_look(const ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, ngx_rl_answer_t *answer)
{
    ngx_rl_async_t  now;

    now = *async;

    ngx_rl_async_begin(&now, limit, env->now_us);

    if (!now.answered || !ngx_rl_lease_forgot(env, now.answered_ms)) {
        ngx_rl_async_run(&now, limit, env->now_us, 0, answer);
    }
}


void
ngx_rl_async_charge(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t tokens)
{
    ngx_rl_async_begin(async, limit, env->now_us);
    ngx_rl_async_count(async, limit, env->now_us, tokens);
    ngx_rl_async_owe(async, env->now_us, tokens);
}


/* The end of the window that counts now. */
static uint64_t
ngx_rl_async_until_us(const ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    return ngx_rl_lease_flows(limit)
           && async->window.end_us > now_us + limit->window_us
           ? async->window.end_us - limit->window_us : async->window.end_us;
}


uint32_t
ngx_rl_async_give(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t taken_us, uint32_t tokens)
{
    uint64_t  age_us;

    ngx_rl_async_begin(async, limit, env->now_us);

    age_us = env->now_us > taken_us ? env->now_us - taken_us : 0;

    if (ngx_rl_lease_of_bucket(limit)) {

        if (age_us > limit->window_us) {
            return tokens;             /* they have come back by themselves */
        }

    } else if (age_us >= (uint64_t) 1000
                         * (1 + ngx_rl_lease_passed_ms(env->now_us,
                                                       async->began_ms))
               || (ngx_rl_lease_flows(limit)
                   && taken_us + limit->window_us
                      < ngx_rl_async_until_us(async, limit,
                                              env->now_us)))
    {
        return 0;                      /* of the window before */
    }

    if ((int64_t) async->owed - tokens < -(int64_t) NGX_RL_MAX_TOKENS) {
        return 0;
    }

    ngx_rl_async_count(async, limit, env->now_us, -(int64_t) tokens);
    ngx_rl_async_owe(async, env->now_us, -(int64_t) tokens);

    return tokens;
}


unsigned
ngx_rl_async_due(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env)
{
    unsigned  asking;
    uint64_t  busy_us;

    ngx_rl_async_pass(async, limit, env->now_us);

    asking = ngx_rl_async_asking(async, env->now_us);

    /* nobody takes the place of one that is still to give back */

    if (async->owed < 0 || asking) {
        busy_us = env->now_us + NGX_RL_LEASE_BUSY_US;
        async->busy_us = busy_us > async->busy_us ? busy_us : async->busy_us;
    }

    /* several workers sweep: one of them calls in HOLD_MS */

    return async->owed != 0 && !asking
           && ngx_rl_lease_passed_ms(env->now_us, async->asked_ms)
              >= NGX_RL_LEASE_HOLD_MS;
}


/* Tokens, rounded up; more than the capacity if there are debts. */
static int64_t
ngx_rl_async_used(const ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    unsigned __int128  wide;
    ngx_rl_async_t     now;
    ngx_rl_answer_t    answer;

    if (!ngx_rl_lease_of_bucket(limit)) {
        return (int64_t) limit->capacity - async->window.left;
    }

    now = *async;
    ngx_rl_async_run(&now, limit, now_us, 0, &answer);

    wide = answer.reset_us;
    wide = wide * limit->rate.scale + limit->rate.period_us - 1;

    return (int64_t) (wide / limit->rate.period_us);
}


void
ngx_rl_async_call(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, unsigned all, ngx_rl_async_call_t *call)
{
    int64_t  most;

    memset(call, 0, sizeof(ngx_rl_async_call_t));

    ngx_rl_async_begin(async, limit, env->now_us);

    if (ngx_rl_async_asking(async, env->now_us) && !all) {
        return;
    }

    /* what was spent while Redis was away has come back, if it is not used */

    if (async->owed > 0
        && ngx_rl_lease_passed_ms(env->now_us, async->since_ms)
           >= NGX_RL_LEASE_LOST_MS)
    {
        most = ngx_rl_async_used(async, limit, env->now_us);
        async->owed = (int32_t) (async->owed < most ? async->owed : most);
    }

    call->since_ms = async->since_ms;
    call->debit = async->owed;
    most = all ? NGX_RL_MAX_TOKENS : limit->capacity;

    if (call->debit > most) {
        call->debit = (int32_t) most;

    } else if (call->debit < -most) {
        call->debit = (int32_t) -most;
    }

    if (call->debit < 0) {
        call->age_us = ngx_rl_lease_of_bucket(limit)
                       ? (uint64_t) 1000
                         * ngx_rl_lease_passed_ms(env->now_us,
                                                  async->since_ms)
                       : ngx_rl_window_age_us(limit, env->now_us,
                             ngx_rl_async_until_us(async, limit,
                                                   env->now_us));
    }

    call->look = call->debit || all ? 0 : async->denied_cost;
    call->asked_ms = ngx_rl_lease_ms(env->now_us);
    async->owed -= call->debit;

    /* nobody hears the answer to a worker that ends */

    if ((call->debit || call->look) && !all) {
        async->asking = 1;
        async->asked_ms = call->asked_ms;
    }
}


/*
 * Keeps what Redis said, less what is owed: the later answer, or the one that
 * leaves less. No client sees that a fixed window has more again.
 */
static void
ngx_rl_async_learn(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_answer_t *answer)
{
    uint64_t        fresh_us;
    unsigned        same, later;
    ngx_rl_async_t  old;

    old = *async;

    /* a call that was made since is not in this answer */

    later = (int32_t) (ngx_rl_lease_ms(asked_us) - async->asked_ms) >= 0;
    same = async->answered && !ngx_rl_lease_forgot(env, async->answered_ms);

    fresh_us = ngx_rl_lease_fresh_us(asked_us, answer);

    /* of a window that nobody has spent of, the longest time */

    if (answer->reset_us == 0 && !ngx_rl_lease_of_bucket(limit)) {
        fresh_us = same && old.window.end_us > env->now_us
                   ? old.window.end_us : env->now_us + limit->window_us;
    }

    if (ngx_rl_lease_of_bucket(limit)) {
        ngx_rl_async_set(async, limit, fresh_us, 0);
        ngx_rl_async_count(async, limit, env->now_us, async->owed);

        if (same && !later && async->tb.tat_us < old.tb.tat_us) {
            async->tb = old.tb;
        }

    } else {
        same = same && old.window.end_us > env->now_us
               && fresh_us < old.window.end_us + limit->window_us / 2;

        ngx_rl_async_set(async, limit, fresh_us, answer->remaining);
        ngx_rl_async_count(async, limit, env->now_us, async->owed);

        if (same && (!later || !ngx_rl_lease_flows(limit))
            && old.window.left < async->window.left)
        {
            async->window.left = old.window.left;
        }
    }

    async->answered_ms = ngx_rl_lease_ms(env->now_us);
    async->answered = 1;
}


void
ngx_rl_async_answered(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_async_call_t *call, const ngx_rl_answer_t *answer)
{
    ngx_rl_async_begin(async, limit, env->now_us);

    async->asking = 0;

    /* a fixed window's that is over says nothing of this one */

    if (limit->algorithm == NGX_RL_FIXED_WINDOW
        && ngx_rl_lease_late(limit, asked_us, env->now_us, answer))
    {
        return;
    }

    async->denied_cost = 0;
    async->named = 0;

    /* the counter was reset since */

    if (env->forgot_us && env->forgot_us >= asked_us) {
        async->answered = 0;
        return;
    }

    ngx_rl_async_learn(async, limit, env, asked_us, answer);

    /* beyond half of what its clock counts Redis is asked again */

    if (call->look && answer->retry_us / 1000 < INT32_MAX
        && answer->retry_us
        && limit->algorithm == NGX_RL_SLIDING_WINDOW)
    {
        async->denied_cost = call->look;
        async->retry_ms = ngx_rl_lease_ms(env->now_us)
                          + (uint32_t) (answer->retry_us / 1000) + 1;
        async->named = 1;
    }
}


void
ngx_rl_async_failed(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, const ngx_rl_async_call_t *call)
{
    ngx_rl_async_begin(async, limit, env->now_us);

    async->asking = 0;
    async->asked_ms = ngx_rl_lease_ms(env->now_us);

    /* what was spent of a fixed window is none of the next one's */

    if (call->debit == 0
        || (limit->algorithm == NGX_RL_FIXED_WINDOW
            && (int32_t) (async->began_ms - call->asked_ms) > 0))
    {
        return;
    }

    ngx_rl_async_owe(async, env->now_us, call->debit);
    async->since_ms = call->since_ms;
}


unsigned
ngx_rl_async_lost(const ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_async_call_t *call, const ngx_rl_answer_t *answer)
{
    int64_t   used;
    uint64_t  until_us;

    if (!async->answered || async->mark != limit->mark) {
        return 0;
    }

    /* what Redis had before the call */

    used = ngx_rl_async_used(async, limit, env->now_us)
           - async->owed - call->debit;
    until_us = ngx_rl_lease_of_bucket(limit)
               ? env->now_us + (used > 0 ? used : 0) * limit->rate.step_us
               : ngx_rl_async_until_us(async, limit, env->now_us);

    return ngx_rl_lease_missing(limit, env, asked_us, async->answered_ms, used,
                                limit->capacity, until_us, answer);
}

/*
 * Leases and Redis: how much a call asks for, what its answer does, and which
 * tokens go back.
 */

#include "ngx_rl_lease_int.h"
#include "ngx_rl_window.h"


unsigned
ngx_rl_lease_alone(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env)
{
    if (lease->mark != limit->mark || lease->tokens
        || ngx_rl_lease_hold(lease, limit, env->now_us)
        || ngx_rl_lease_asking(lease, env->now_us))
    {
        return 0;
    }

    ngx_rl_lease_ask(lease, env->now_us);

    return 1;
}


void
ngx_rl_lease_size(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t head, uint32_t queued,
    ngx_rl_lease_ask_t *ask)
{
    ask->cost = head;
    ask->want = queued;
    ask->ahead = 0;
    ask->share = 1;

    if (lease == NULL) {
        return;
    }

    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark) {
        return;
    }

    if (head && lease->answered) {
        ask->cost = head > lease->tokens ? head - lease->tokens : 1;
        ask->want = queued > lease->tokens ? queued - lease->tokens : 1;
    }

    ask->ahead = ngx_rl_lease_hold(lease, limit, env->now_us);
    ask->ahead += ask->ahead / 4;

    /* the gateway that asks first gets what comes back to a spent counter */

    ask->share = (lease->strikes && ngx_rl_lease_flows(limit))
                 ? 1 : 2 * env->nodes;

    if (ask->ahead) {
        ngx_rl_lease_ask(lease, env->now_us);
    }
}


uint32_t
ngx_rl_lease_stale(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env)
{
    uint32_t  back;

    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || lease->answered) {
        return 0;
    }

    back = lease->tokens;
    lease->tokens = 0;

    return back;
}


uint64_t
ngx_rl_lease_age_us(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    uint64_t  age_us, passed_us;

    passed_us = (uint64_t) 1000
                * ngx_rl_lease_passed_ms(now_us, lease->answered_ms);

    if (ngx_rl_lease_of_bucket(limit)) {
        return passed_us;
    }

    age_us = ngx_rl_window_age_us(limit, now_us, ngx_rl_lease_until(lease,
                                                                    limit));

    return age_us > passed_us ? age_us : passed_us;
}


void
ngx_rl_lease_failed(ngx_rl_lease_t *lease)
{
    lease->asking = 0;
}


/* Whether a sliding window has counted nothing and only its predecessor has. */
static unsigned
ngx_rl_lease_before(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    return limit->algorithm == NGX_RL_SLIDING_WINDOW
           && answer->reset_us <= limit->window_us;
}


/* Whether the window is over that the answer tells of. */
unsigned
ngx_rl_lease_late(const ngx_rl_limit_t *limit, uint64_t asked_us,
    uint64_t now_us, const ngx_rl_answer_t *answer)
{
    uint64_t  until_us;

    until_us = ngx_rl_lease_fresh_us(asked_us, answer);

    if (ngx_rl_lease_of_bucket(limit)) {
        return 0;
    }

    if (limit->algorithm == NGX_RL_SLIDING_WINDOW
        && !ngx_rl_lease_before(limit, answer))
    {
        now_us += limit->window_us;
    }

    return until_us <= now_us;
}


/*
 * Whether the call was made after the last answer. If two calls were under way
 * at a time, nobody knows which of the answers is the later one.
 */
static unsigned
ngx_rl_lease_later(const ngx_rl_lease_t *lease, uint64_t asked_us)
{
    return (int32_t) (ngx_rl_lease_ms(asked_us) - lease->answered_ms) > 0;
}


/*
 * Keeps what Redis said, at asked_us or later: the later answer, or the one
 * that leaves less.
 */
static void
ngx_rl_lease_learn(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t asked_us, uint64_t now_us, const ngx_rl_answer_t *answer)
{
    int32_t   remaining;
    uint32_t  passed_ms;
    uint64_t  fresh_us;
    unsigned  same, less;

    fresh_us = ngx_rl_lease_fresh_us(asked_us, answer);
    remaining = answer->remaining;

    same = lease->fresh_us > now_us
           && fresh_us < lease->fresh_us + limit->window_us / 2;
    less = lease->answered && !ngx_rl_lease_later(lease, asked_us);

    if (ngx_rl_lease_of_bucket(limit)) {

        if (less && fresh_us < lease->fresh_us) {
            fresh_us = lease->fresh_us;
        }

    } else if (same && less && lease->remaining < remaining) {
        remaining = lease->remaining;
    }

    if (!same) {
        lease->told = UINT32_MAX;
    }

    lease->remaining = remaining;
    lease->tokens = ngx_rl_lease_min((uint64_t) lease->tokens
                                     + answer->granted,
                                     limit->capacity);
    lease->fresh_us = fresh_us;
    lease->before = ngx_rl_lease_before(limit, answer);

    /* a denial goes on, counted from this answer */

    if (lease->retry_ms) {
        passed_ms = ngx_rl_lease_passed_ms(now_us, lease->answered_ms);
        lease->retry_ms = lease->retry_ms > passed_ms
                          ? lease->retry_ms - passed_ms : 0;
    }

    lease->answered_ms = ngx_rl_lease_ms(now_us);
    lease->answered = 1;
    lease->gave -= (lease->gave > 0);
}


/*
 * Counts how often in a row a fixed window was found spent; of other counters,
 * how often more than not. A sliding window counts only if this gateway got
 * less than seven eighths of what it needed. With hardly more demand than
 * tokens, a rest would cost tokens that nobody asks for any more.
 */
static void
ngx_rl_lease_strike(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_ask_t *ask, const ngx_rl_answer_t *answer,
    uint32_t passed_ms)
{
    uint64_t  need;

    if (answer->retry_us == 0 && answer->remaining) {

        if (answer->granted >= (uint64_t) ask->want + ask->ahead) {
            lease->strikes -= (lease->strikes > 0);
        }

        return;
    }

    if (answer->granted && !ngx_rl_lease_flows(limit)) {
        lease->strikes = 0;
    }

    if (lease->strikes && limit->algorithm == NGX_RL_SLIDING_WINDOW) {
        passed_ms = ngx_rl_lease_min(passed_ms, NGX_RL_LEASE_LOST_MS);
        need = (uint64_t) lease->rate * passed_ms
               / (NGX_RL_LEASE_HOLD_MS * NGX_RL_LEASE_RATE_ONE);

        if ((uint64_t) answer->granted * 8 >= need * 7) {
            return;
        }
    }

    lease->strikes += (lease->strikes < NGX_RL_LEASE_STRIKES);
}


/*
 * The counter cannot pay so much, until then. The reply may have been late: by
 * as much as it took longer than others, the time has begun before.
 */
static void
ngx_rl_lease_spent(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us, uint32_t cost,
    uint64_t retry_us)
{
    uint64_t  late_us;

    /* behind half of what its clock counts Redis is asked again */

    lease->unnamed = (retry_us == 0 || retry_us / 1000 >= INT32_MAX);

    late_us = asked_us + (uint64_t) env->rtt_ms * 1000;
    late_us = env->now_us > late_us ? env->now_us - late_us : 0;
    retry_us -= late_us < retry_us ? late_us : retry_us;

    lease->retry_ms = ngx_rl_lease_min(retry_us / 1000 + 1, INT32_MAX);
    lease->denied_cost = cost;

    ngx_rl_lease_keep(lease, limit, env->now_us);
}


/* When an empty counter has a token again; a sliding window does not say. */
static uint64_t
ngx_rl_lease_next_us(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    uint64_t  full_us;

    if (limit->algorithm == NGX_RL_SLIDING_WINDOW) {
        return 0;
    }

    full_us = ngx_rl_lease_of_bucket(limit)
              ? limit->window_us - limit->rate.step_us : 0;

    return answer->reset_us > full_us ? answer->reset_us - full_us : 0;
}


int
ngx_rl_lease_fill(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_lease_ask_t *ask, const ngx_rl_answer_t *answer)
{
    uint32_t  passed_ms;
    unsigned  again;

    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark) {
        return 0;
    }

    lease->asking = 0;

    if (ngx_rl_lease_late(limit, asked_us, env->now_us, answer)) {
        return 0;
    }

    if (!lease->answered) {

        /* those of the sliding window that is over: too late to go back */
        lease->tokens = 0;
        lease->since_ms = ngx_rl_lease_ms(env->now_us);
    }

    /* calls of two workers that were under way at a time are one denial */

    again = lease->strikes == 0 || ngx_rl_lease_later(lease, asked_us);

    passed_ms = ngx_rl_lease_passed_ms(env->now_us, lease->answered_ms);

    /* it was reset meanwhile: there may be more than answers have named */

    if (ngx_rl_lease_forgot(env, lease->answered_ms)) {
        lease->told = UINT32_MAX;
    }

    ngx_rl_lease_learn(lease, limit, asked_us, env->now_us, answer);

    if (answer->retry_us == NGX_RL_NEVER) {
        return 1;
    }

    /* of the counter as it was before it was reset: denies nothing */

    if (env->forgot_us && env->forgot_us >= asked_us) {
        lease->retry_ms = 0;
        return 1;
    }

    if (answer->granted || answer->remaining >= lease->denied_cost) {
        lease->retry_ms = 0;
    }

    if (again) {
        ngx_rl_lease_strike(lease, limit, ask, answer, passed_ms);
    }

    if (answer->retry_us) {
        ngx_rl_lease_spent(lease, limit, env, asked_us, ask->cost,
                           answer->retry_us);

    } else if (answer->remaining == 0
               && limit->algorithm != NGX_RL_SLIDING_LOG)
    {
        /* when the oldest entry of a log is over, only a rejection tells */

        ngx_rl_lease_spent(lease, limit, env, asked_us, 1,
                           ngx_rl_lease_next_us(limit, answer));
    }

    return 1;
}


uint32_t
ngx_rl_lease_sweep(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, unsigned all)
{
    uint32_t  passed_ms, keep, back;
    unsigned  idle;

    if (env->now_us >= lease->busy_us) {
        return 0;
    }

    passed_ms = ngx_rl_lease_passed_ms(env->now_us, lease->tick_ms);
    idle = lease->count == 0 && passed_ms >= NGX_RL_LEASE_HOLD_MS;

    /* silence is counted from one instant, however many workers sweep */

    if (lease->count && passed_ms >= NGX_RL_LEASE_TICK_MS) {
        ngx_rl_lease_tick(lease, passed_ms);
    }

    if (lease->mark == limit->mark) {
        ngx_rl_lease_epoch(lease, limit, env->now_us);

    } else if (!all) {
        return 0;
    }

    keep = (all || idle || !lease->answered)
           ? 0 : ngx_rl_lease_hold(lease, limit, env->now_us);

    /* a call brings a quarter more, on top of what was in hand */

    keep += keep / 2;

    if (lease->tokens <= keep) {
        return 0;
    }

    back = lease->tokens - keep;

    lease->tokens = keep;

    ngx_rl_lease_left(lease, limit, back);

    return back;
}


unsigned
ngx_rl_lease_missing(const ngx_rl_limit_t *limit, const ngx_rl_lease_env_t *env,
    uint64_t asked_us, uint32_t answered_ms, int64_t used, int64_t all,
    uint64_t until_us, const ngx_rl_answer_t *answer)
{
    /* another worker's answer may have come between; their clocks differ */

    if ((int32_t) (ngx_rl_lease_ms(asked_us) - answered_ms)
        < NGX_RL_LEASE_SPACE_MS)
    {
        return 0;
    }

    return (uint64_t) answer->granted + answer->remaining >= limit->capacity
           && !ngx_rl_lease_forgot(env, answered_ms)
           && used > 0 && (env->nodes <= 1 || used > all / 2)
           && (int64_t) (until_us - env->now_us)
              > NGX_RL_LEASE_BUSY_US;
}


unsigned
ngx_rl_lease_lost(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_answer_t *answer)
{
    int64_t   used, all;
    uint64_t  until_us;

    if (!lease->answered || lease->mark != limit->mark) {
        return 0;
    }

    if (ngx_rl_lease_of_bucket(limit)) {
        until_us = lease->fresh_us - lease->tokens * limit->rate.step_us;
        used = (int64_t) (until_us - env->now_us);
        all = (int64_t) limit->window_us;

    } else {
        until_us = ngx_rl_lease_until(lease, limit);
        used = (int64_t) limit->capacity - lease->remaining - lease->tokens;
        all = limit->capacity;
    }

    return ngx_rl_lease_missing(limit, env, asked_us, lease->answered_ms, used,
                                all, until_us, answer);
}

/*
 * Leases: which requests are paid out of the tokens in hand, when and for how
 * much Redis is asked, and how many tokens go back.
 */

#include "ngx_ratelimit_lease_int.h"
#include "ngx_ratelimit_window.h"

static unsigned ngx_ratelimit_lease_low(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env);
static unsigned ngx_ratelimit_lease_denied(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost);
static uint64_t ngx_ratelimit_lease_latest_us(
    const ngx_ratelimit_lease_t *lease, const ngx_ratelimit_limit_t *limit,
    uint64_t now_us, uint32_t cost);
static void ngx_ratelimit_lease_tell(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_lease_deny(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_lease_forget(ngx_ratelimit_lease_t *lease);


ngx_ratelimit_lease_e
ngx_ratelimit_lease_take(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer, unsigned *ahead)
{
    *ahead = 0;

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark) {
        return NGX_RATELIMIT_LEASE_ASK;
    }

    lease->count += ngx_ratelimit_lease_min(cost,
                         NGX_RATELIMIT_LEASE_MAX_COUNT - lease->count);

    if (!lease->answered || lease->tokens < cost) {

        if (ngx_ratelimit_lease_forgot(env, lease->answered_ms)) {
            ngx_ratelimit_lease_forget(lease);
        }

        if (!(lease->answered && cost > limit->capacity)
            && !ngx_ratelimit_lease_denied(lease, limit, env->now_us, cost))
        {
            return NGX_RATELIMIT_LEASE_ASK;
        }

        ngx_ratelimit_lease_deny(lease, limit, env->now_us, cost, answer);
        return NGX_RATELIMIT_LEASE_DENIED;
    }

    lease->tokens -= cost;

    if (ngx_ratelimit_lease_low(lease, limit, env)) {
        lease->asking = 1;
        lease->asked_ms = ngx_ratelimit_lease_ms(env->now_us);
        *ahead = 1;
    }

    ngx_ratelimit_lease_tell(lease, limit, env->now_us, answer);
    answer->granted = cost;

    return NGX_RATELIMIT_LEASE_PAID;
}


/*
 * The counter was reset: it rejects nothing, and a window's answers may name
 * more tokens again. Tokens in hand stay: they are debited.
 */
static void
ngx_ratelimit_lease_forget(ngx_ratelimit_lease_t *lease)
{
    lease->retry_ms = 0;
    lease->strikes = 0;

    if (lease->tokens == 0) {
        lease->answered = 0;
        lease->fresh_us = 0;
    }
}


/* Whether to ask for more while there are still tokens in hand. */
static unsigned
ngx_ratelimit_lease_low(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    uint32_t  hold, low, since_ms;
    uint64_t  of_rtt;
    unsigned  old;

    hold = ngx_ratelimit_lease_hold(lease, limit, env->now_us);
    of_rtt = (uint64_t) hold * 3 * env->rtt_ms / NGX_RATELIMIT_LEASE_HOLD_MS;

    low = hold / 8 + 1;
    low = of_rtt > low ? ngx_ratelimit_lease_min(of_rtt, hold / 2 + 1) : low;

    /* of a worker that was killed: the worker that asks gives them back */

    old = lease->tokens && ngx_ratelimit_lease_old(lease, env->now_us);

    if (!old
        && (hold == 0 || lease->tokens >= low
            || ngx_ratelimit_lease_denied(lease, limit, env->now_us,
                                         lease->denied_cost + lease->tokens)))
    {
        return 0;
    }

    since_ms = ngx_ratelimit_lease_passed_ms(env->now_us, lease->asked_ms);

    return since_ms >= (lease->asking ? NGX_RATELIMIT_LEASE_LOST_MS
                                      : NGX_RATELIMIT_LEASE_SPACE_MS);
}


static unsigned
ngx_ratelimit_lease_denied(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost)
{
    return lease->retry_ms && cost >= lease->denied_cost + lease->tokens
           && ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms)
              < ngx_ratelimit_lease_quiet_ms(lease, limit);
}


static void
ngx_ratelimit_lease_deny(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    ngx_ratelimit_answer_t *answer)
{
    uint32_t  passed_ms, ms, more;

    ngx_ratelimit_lease_tell(lease, limit, now_us, answer);

    answer->granted = 0;
    answer->remaining = ngx_ratelimit_lease_min(answer->remaining, cost - 1);

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RATELIMIT_NEVER;
        return;
    }

    passed_ms = ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms);
    ms = lease->retry_ms;

    if (ms <= passed_ms) {
        ms = ngx_ratelimit_lease_quiet_ms(lease, limit);
    }

    answer->retry_us = (uint64_t) (ms - passed_ms) * 1000;

    if (lease->unnamed) {
        answer->retry_us = ngx_ratelimit_lease_latest_us(lease, limit, now_us,
                                                         cost);
        return;
    }

    more = cost - lease->tokens - lease->denied_cost;

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        answer->retry_us += (uint64_t) more * (limit->rate.step_us + 1);

    } else if (more && answer->retry_us < answer->reset_us) {

        /* how much earlier, only Redis could say */

        answer->retry_us = answer->reset_us;
    }
}


/*
 * A spent sliding window has a token again at the latest when the window is
 * over that counts now and one of the capacity's shares of the next has passed.
 * Costs above 1 wait for all of it.
 */
static uint64_t
ngx_ratelimit_lease_latest_us(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost)
{
    uint64_t  us;

    us = ngx_ratelimit_lease_until(lease, limit);

    if (cost > 1) {
        us = lease->fresh_us;

    } else if (!lease->before) {
        us += limit->window_us / limit->capacity + 2000;
    }

    return us > now_us ? us - now_us : 1000;
}


/* The answer of a request; within a fixed window what is left never rises. */
static void
ngx_ratelimit_lease_tell(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_lease_answer(lease, limit, now_us, answer);

    if (!ngx_ratelimit_lease_flows(limit)) {
        lease->told = ngx_ratelimit_lease_min(lease->told, answer->remaining);
        answer->remaining = lease->told;
    }
}


/* The answer, as if the tokens in hand were in Redis. */
void
ngx_ratelimit_lease_answer(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer)
{
    int64_t                       left;
    uint64_t                      back_us;
    ngx_ratelimit_token_bucket_t  tb;

    if (!ngx_ratelimit_lease_of_bucket(limit)) {
        left = (int64_t) lease->remaining + lease->tokens;

        answer->granted = 0;
        answer->remaining = left > 0 ? ngx_ratelimit_lease_min(left,
                                                     limit->capacity) : 0;
        answer->reset_us = lease->fresh_us > now_us ? lease->fresh_us - now_us
                                                    : 0;
        answer->retry_us = 0;
        return;
    }

    tb.tat_us = lease->fresh_us;
    tb.tat_frac = 0;
    tb.span_code = limit->rate.span_code;

    ngx_ratelimit_token_bucket_take(&tb, &limit->rate, now_us, 0, 0, answer);

    back_us = lease->tokens * limit->rate.step_us;

    answer->remaining = ngx_ratelimit_lease_min((uint64_t) answer->remaining
                                                + lease->tokens,
                                                limit->capacity);
    answer->reset_us = answer->reset_us > back_us
                       ? answer->reset_us - back_us : 0;
}


void
ngx_ratelimit_lease_look(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_lease_t  now;

    now = *lease;
    ngx_ratelimit_lease_begin(&now, limit, env->now_us);

    if (now.mark == limit->mark && now.answered
        && !ngx_ratelimit_lease_forgot(env, now.answered_ms))
    {
        ngx_ratelimit_lease_tell(&now, limit, env->now_us, answer);
    }
}


unsigned
ngx_ratelimit_lease_alone(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    if (lease->mark != limit->mark || lease->tokens
        || ngx_ratelimit_lease_hold(lease, limit, env->now_us))
    {
        return 0;
    }

    if (lease->asking
        && ngx_ratelimit_lease_passed_ms(env->now_us, lease->asked_ms)
           < NGX_RATELIMIT_LEASE_LOST_MS)
    {
        return 0;
    }

    lease->asking = 1;
    lease->asked_ms = ngx_ratelimit_lease_ms(env->now_us);

    return 1;
}


void
ngx_ratelimit_lease_size(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t head, uint32_t queued, ngx_ratelimit_lease_ask_t *ask)
{
    ask->cost = head;
    ask->want = queued;
    ask->ahead = 0;
    ask->share = 1;

    if (lease == NULL) {
        return;
    }

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark) {
        return;
    }

    if (head && lease->answered) {
        ask->cost = head > lease->tokens ? head - lease->tokens : 1;
        ask->want = queued > lease->tokens ? queued - lease->tokens : 1;
    }

    ask->ahead = ngx_ratelimit_lease_hold(lease, limit, env->now_us);
    ask->ahead += ask->ahead / 4;

    /* the gateway that asks first gets what comes back to a spent counter */

    ask->share = (lease->strikes && ngx_ratelimit_lease_flows(limit))
                 ? 1 : 2 * env->nodes;

    if (ask->ahead) {
        lease->asking = 1;
        lease->asked_ms = ngx_ratelimit_lease_ms(env->now_us);
    }
}


uint32_t
ngx_ratelimit_lease_stale(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    uint32_t  back;

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || lease->answered) {
        return 0;
    }

    back = lease->tokens;
    lease->tokens = 0;

    return back;
}


uint64_t
ngx_ratelimit_lease_age_us(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    uint64_t  age_us, passed_us;

    passed_us = (uint64_t) 1000
                * ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms);

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        return passed_us;
    }

    age_us = ngx_ratelimit_window_age_us(limit, now_us,
                                     ngx_ratelimit_lease_until(lease, limit));

    return age_us > passed_us ? age_us : passed_us;
}


void
ngx_ratelimit_lease_failed(ngx_ratelimit_lease_t *lease)
{
    lease->asking = 0;
}


int
ngx_ratelimit_lease_pay(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || !lease->answered || lease->tokens < cost)
    {
        return 0;
    }

    lease->tokens -= cost;

    ngx_ratelimit_lease_tell(lease, limit, env->now_us, answer);
    answer->granted = cost;

    return 1;
}


uint32_t
ngx_ratelimit_lease_return(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint64_t taken_us, uint32_t tokens)
{
    uint64_t  age_us;

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || !lease->answered
        || (uint64_t) lease->tokens + tokens > limit->capacity)
    {
        return 0;
    }

    age_us = env->now_us > taken_us ? env->now_us - taken_us : 0;

    if (ngx_ratelimit_lease_of_bucket(limit)) {

        if (age_us > limit->window_us || age_us > NGX_RATELIMIT_LEASE_BUSY_US)
        {
            return 0;
        }

    } else if (age_us >= (uint64_t) 1000
               * ngx_ratelimit_lease_passed_ms(env->now_us, lease->since_ms))
    {
        return 0;
    }

    lease->tokens += tokens;

    return tokens;
}


uint32_t
ngx_ratelimit_lease_charge(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens)
{
    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || !lease->answered) {
        return 0;
    }

    tokens = ngx_ratelimit_lease_min(tokens, lease->tokens);
    lease->tokens -= tokens;

    return tokens;
}


uint32_t
ngx_ratelimit_lease_sweep(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    unsigned all)
{
    uint32_t  keep, back;
    unsigned  idle;

    if (env->now_us >= lease->busy_us) {
        return 0;
    }

    idle = lease->count == 0
           && ngx_ratelimit_lease_passed_ms(env->now_us, lease->tick_ms)
              >= NGX_RATELIMIT_LEASE_HOLD_MS;

    /* silence is counted from one instant, however many workers sweep */

    if (lease->count) {
        ngx_ratelimit_lease_tick(lease, env->now_us);
    }

    if (lease->mark == limit->mark) {
        ngx_ratelimit_lease_epoch(lease, limit, env->now_us);

    } else if (!all) {
        return 0;
    }

    keep = (all || idle || !lease->answered)
           ? 0 : ngx_ratelimit_lease_hold(lease, limit, env->now_us);

    /* a call brings a quarter more, on top of what was in hand */

    keep += keep / 2;

    if (lease->tokens <= keep) {
        return 0;
    }

    back = lease->tokens - keep;

    lease->tokens = keep;

    ngx_ratelimit_lease_left(lease, limit, back);

    return back;
}

/*
 * Leases: which requests are paid out of the tokens in hand or rejected, when
 * Redis is asked, and how many tokens are of use in hand.
 */

#include "ngx_rl_lease_int.h"

#define NGX_RL_LEASE_MAX_COUNT  (1u << 24)

/* with less demand in HOLD_MS a counter asks for its cost alone */
#define NGX_RL_LEASE_MIN_HOLD   2

/* tokens asked for in one tick that are a burst */
#define NGX_RL_LEASE_BURST      8

/*
 * Tokens may have come back, of other gateways to a fixed window or of this
 * one: a spent counter asks once more.
 */
#define NGX_RL_LEASE_RECHECK_MS 100

/*
 * A spent counter to which tokens come back all the time rests between two
 * questions: for 10 ms at first, twice as long with each strike.
 */
#define NGX_RL_LEASE_REST_MS    150
#define NGX_RL_LEASE_REST_SHARE 8      /* of its window at most, and of what is
                                          left of it */

/*
 * For so long without a request a lease that rejects holds its place. It still
 * rejects if nobody has taken the place; in days, its clock has gone round.
 */
#define NGX_RL_LEASE_KEEP_MS    60000
#define NGX_RL_LEASE_ROUND_US   ((uint64_t) INT32_MAX * 1000)

/* so shortly before a window ends no call asks ahead of need */
#define NGX_RL_LEASE_EXACT_MS   20


/*
 * The counter was reset: it rejects nothing, and a window's answers may name
 * more tokens again. Tokens in hand stay: they are debited.
 */
static void
ngx_rl_lease_forget(ngx_rl_lease_t *lease)
{
    lease->retry_ms = 0;
    lease->strikes = 0;

    if (lease->tokens == 0) {
        lease->answered = 0;
        lease->fresh_us = 0;
    }
}


/* Where the window ends that tokens were taken from. */
uint64_t
ngx_rl_lease_until(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit)
{
    if (limit->algorithm != NGX_RL_SLIDING_WINDOW || lease->before) {
        return lease->fresh_us;
    }

    return lease->fresh_us > limit->window_us
           ? lease->fresh_us - limit->window_us : 0;
}


/* How far apart two calls for a spent counter are; 0: it is a slow one. */
static uint32_t
ngx_rl_lease_rest_ms(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint32_t ends_ms)
{
    uint32_t  ms;

    if (lease->rate < NGX_RL_LEASE_MIN_HOLD * NGX_RL_LEASE_RATE_ONE) {
        return 0;
    }

    ms = lease->strikes < NGX_RL_LEASE_STRIKES
         ? 5u << lease->strikes : NGX_RL_LEASE_REST_MS;
    ms = ngx_rl_lease_min(limit->window_us / 1000
                          / NGX_RL_LEASE_REST_SHARE, ms);

    return ngx_rl_lease_min(ends_ms / NGX_RL_LEASE_REST_SHARE, ms);
}


/* For how long since the answer a denial costs no call. */
static uint32_t
ngx_rl_lease_quiet_ms(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit)
{
    uint32_t  rest_ms, ends_ms;

    if (lease->gave || (lease->strikes <= 1 && !ngx_rl_lease_flows(limit))) {
        return ngx_rl_lease_min(lease->retry_ms, NGX_RL_LEASE_RECHECK_MS);
    }

    if (!ngx_rl_lease_flows(limit)) {
        return lease->retry_ms;
    }

    ends_ms = ngx_rl_lease_of_bucket(limit)
              ? UINT32_MAX
              : ngx_rl_lease_ms(ngx_rl_lease_until(lease, limit))
                - lease->answered_ms;

    rest_ms = ngx_rl_lease_rest_ms(lease, limit, ends_ms);

    return lease->retry_ms > rest_ms ? lease->retry_ms : rest_ms;
}


static unsigned
ngx_rl_lease_denied(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost)
{
    uint32_t  passed_ms;

    if (lease->retry_ms == 0 || cost < lease->denied_cost + lease->tokens) {
        return 0;
    }

    passed_ms = ngx_rl_lease_passed_ms(now_us, lease->answered_ms);

    return (passed_ms < lease->retry_ms && ngx_rl_lease_flows(limit)
            && lease->gave == 0)
           || passed_ms < ngx_rl_lease_quiet_ms(lease, limit);
}


/* The answer, as if the tokens in hand were in Redis. */
static void
ngx_rl_lease_answer(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us, ngx_rl_answer_t *answer)
{
    int64_t   left;
    uint64_t  back_us;

    if (ngx_rl_lease_of_bucket(limit)) {
        ngx_rl_token_bucket_look(&limit->rate, now_us, lease->fresh_us, answer);

        left = answer->remaining;
        back_us = lease->tokens * limit->rate.step_us;
        answer->reset_us -= answer->reset_us > back_us ? back_us
                                                       : answer->reset_us;
    } else {
        left = lease->remaining;
        answer->granted = 0;
        answer->reset_us = lease->fresh_us > now_us ? lease->fresh_us - now_us
                                                    : 0;
        answer->retry_us = 0;
    }

    left += lease->tokens;

    answer->remaining = left > 0 ? ngx_rl_lease_min(left, limit->capacity) : 0;
}


/* The answer of a request; within a fixed window what is left never rises. */
static void
ngx_rl_lease_tell(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us, ngx_rl_answer_t *answer)
{
    ngx_rl_lease_answer(lease, limit, now_us, answer);

    if (!ngx_rl_lease_flows(limit)) {
        lease->told = ngx_rl_lease_min(lease->told, answer->remaining);
        answer->remaining = lease->told;
    }
}


void
ngx_rl_lease_keep(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    uint32_t  passed_ms, ms;
    uint64_t  busy_us;

    passed_ms = ngx_rl_lease_passed_ms(now_us, lease->answered_ms);
    ms = ngx_rl_lease_quiet_ms(lease, limit);
    ms = ngx_rl_lease_min(ms > passed_ms ? ms - passed_ms : 0,
                          NGX_RL_LEASE_KEEP_MS);
    busy_us = now_us + (uint64_t) ms * 1000;

    if (lease->busy_us < busy_us) {
        lease->busy_us = busy_us;
    }
}


/*
 * A bucket can pay when it has filled so far, a fixed window at its end. A
 * spent sliding window has a token again at the latest when the window is over
 * that counts now and one of the capacity's shares of the next has passed.
 * Costs above 1 wait for all of it.
 */
static uint64_t
ngx_rl_lease_latest_us(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost)
{
    uint64_t              us, spare, spare_us;
    const ngx_rl_rate_t  *rate;

    us = ngx_rl_lease_until(lease, limit);

    if (ngx_rl_lease_of_bucket(limit)) {
        rate = &limit->rate;
        spare = limit->capacity - (cost - lease->tokens);
        spare_us = spare * rate->step_us
                   + spare * rate->step_frac / rate->scale;
        us = lease->fresh_us + 1000;
        us -= (us > spare_us) ? spare_us : us;

    } else if (cost > 1 || !ngx_rl_lease_flows(limit)) {
        us = lease->fresh_us;

    } else if (!lease->before) {
        us += limit->window_us / limit->capacity + 2000;
    }

    return us > now_us ? us - now_us : 1000;
}


static void
ngx_rl_lease_deny(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, ngx_rl_answer_t *answer)
{
    uint32_t  passed_ms, ms, more;

    ngx_rl_lease_tell(lease, limit, now_us, answer);
    ngx_rl_lease_keep(lease, limit, now_us);

    answer->granted = 0;
    answer->remaining = ngx_rl_lease_min(answer->remaining, cost - 1);

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;
        return;
    }

    passed_ms = ngx_rl_lease_passed_ms(now_us, lease->answered_ms);
    ms = lease->retry_ms;

    if (ms <= passed_ms) {
        ms = ngx_rl_lease_quiet_ms(lease, limit);
    }

    answer->retry_us = (uint64_t) (ms - passed_ms) * 1000;

    if (lease->unnamed) {
        answer->retry_us = ngx_rl_lease_latest_us(lease, limit, now_us, cost);
        return;
    }

    more = cost - lease->tokens - lease->denied_cost;

    if (ngx_rl_lease_of_bucket(limit)) {
        answer->retry_us += (uint64_t) more * (limit->rate.step_us + 1);

    } else if (more && answer->retry_us < answer->reset_us) {

        /* how much earlier, only Redis could say */

        answer->retry_us = answer->reset_us;
    }
}


/* Whether tokens in hand should have been spent or have gone back by now. */
static unsigned
ngx_rl_lease_old(const ngx_rl_lease_t *lease, uint64_t now_us)
{
    return ngx_rl_lease_passed_ms(now_us, lease->answered_ms)
           >= NGX_RL_LEASE_LOST_MS;
}


/*
 * The rate or, if that is more, the demand of this tick alone: so a burst on an
 * unknown counter doubles what each call takes.
 */
static uint32_t
ngx_rl_lease_demand(const ngx_rl_lease_t *lease)
{
    uint32_t  rate;

    rate = lease->count >= NGX_RL_LEASE_BURST
           ? lease->count * NGX_RL_LEASE_RATE_ONE : 0;

    return rate > lease->rate ? rate : lease->rate;
}


/* With fewer tokens than this of what it holds, a lease asks ahead of need. */
static uint32_t
ngx_rl_lease_few(uint32_t hold, uint32_t rtt_ms)
{
    uint32_t  low;
    uint64_t  of_rtt;

    low = hold / 8 + 1;
    of_rtt = (uint64_t) hold * 3 * rtt_ms / NGX_RL_LEASE_HOLD_MS;

    return of_rtt > low ? ngx_rl_lease_min(of_rtt, hold / 2 + 1) : low;
}


/* Until the window ends that tokens are taken from; UINT32_MAX: none does. */
static uint32_t
ngx_rl_lease_ends_ms(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    uint64_t  until_us;

    if (ngx_rl_lease_of_bucket(limit) || !lease->answered) {
        return UINT32_MAX;
    }

    until_us = ngx_rl_lease_until(lease, limit);

    return until_us > now_us
           ? ngx_rl_lease_min((until_us - now_us) / 1000, UINT32_MAX)
           : 0;
}


/*
 * Tokens that are not spent as a window ends are lost to the fleet. A spent
 * sliding window would lose most: it holds what is spent until its next call.
 */
uint32_t
ngx_rl_lease_hold(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    uint32_t  rate, ms, ends_ms, rest_ms;

    rate = ngx_rl_lease_demand(lease);
    ends_ms = ngx_rl_lease_ends_ms(lease, limit, now_us);

    if (ends_ms < NGX_RL_LEASE_EXACT_MS
        || rate < NGX_RL_LEASE_MIN_HOLD
                         * NGX_RL_LEASE_RATE_ONE)
    {
        return 0;
    }

    ms = ngx_rl_lease_min(ends_ms, NGX_RL_LEASE_HOLD_MS);

    if (lease->strikes && limit->algorithm == NGX_RL_SLIDING_WINDOW) {
        rest_ms = ngx_rl_lease_rest_ms(lease, limit, ends_ms);
        ms = ngx_rl_lease_min(ms, rest_ms);
    }

    return (uint32_t) ((uint64_t) rate * ms
                       / (NGX_RL_LEASE_HOLD_MS
                          * NGX_RL_LEASE_RATE_ONE));
}


/*
 * Whether to ask for more while there are still tokens in hand. No counter
 * holds more than its demand in HOLD_MS, so most requests need no more than the
 * first comparison.
 */
static unsigned
ngx_rl_lease_low(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t rtt_ms)
{
    uint32_t  hold, since_ms;

    /* of a worker that was killed: the worker that asks gives them back */

    if (lease->tokens == 0 || !ngx_rl_lease_old(lease, now_us)) {

        hold = ngx_rl_lease_demand(lease) / NGX_RL_LEASE_RATE_ONE;

        if (lease->tokens >= ngx_rl_lease_few(hold, rtt_ms)) {
            return 0;
        }

        hold = ngx_rl_lease_hold(lease, limit, now_us);

        if (hold == 0 || lease->tokens >= ngx_rl_lease_few(hold, rtt_ms)
            || ngx_rl_lease_denied(lease, limit, now_us,
                                   lease->denied_cost + lease->tokens))
        {
            return 0;
        }
    }

    since_ms = ngx_rl_lease_passed_ms(now_us, lease->asked_ms);

    return since_ms >= (lease->asking ? NGX_RL_LEASE_LOST_MS
                                      : NGX_RL_LEASE_SPACE_MS);
}


ngx_rl_lease_e
ngx_rl_lease_take(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t cost, ngx_rl_answer_t *answer,
    unsigned *ahead)
{
    uint64_t  now_us;

    now_us = env->now_us;
    *ahead = 0;

    ngx_rl_lease_begin(lease, limit, now_us);

    if (lease->mark != limit->mark) {
        return NGX_RL_LEASE_ASK;
    }

    lease->count += ngx_rl_lease_min(cost,
                                     NGX_RL_LEASE_MAX_COUNT - lease->count);

    if (!lease->answered || lease->tokens < cost) {

        if (ngx_rl_lease_forgot(env, lease->answered_ms)) {
            ngx_rl_lease_forget(lease);
        }

        if (!(lease->answered && cost > limit->capacity)
            && !ngx_rl_lease_denied(lease, limit, now_us, cost))
        {
            return NGX_RL_LEASE_ASK;
        }

        ngx_rl_lease_deny(lease, limit, now_us, cost, answer);
        return NGX_RL_LEASE_DENIED;
    }

    lease->tokens -= cost;

    if (ngx_rl_lease_low(lease, limit, now_us, env->rtt_ms)) {
        ngx_rl_lease_ask(lease, now_us);
        *ahead = 1;
    }

    ngx_rl_lease_tell(lease, limit, now_us, answer);
    answer->granted = cost;

    return NGX_RL_LEASE_PAID;
}


unsigned
ngx_rl_lease_denies(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t cost, ngx_rl_answer_t *answer)
{
    if (lease->retry_ms == 0) {
        return 0;
    }

    /* another limit ends what this one has rejected */

    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (ngx_rl_lease_forgot(env, lease->answered_ms)) {
        ngx_rl_lease_forget(lease);
    }

    if (lease->mark != limit->mark
        || !ngx_rl_lease_denied(lease, limit, env->now_us, cost))
    {
        return 0;
    }

    ngx_rl_lease_deny(lease, limit, env->now_us, cost, answer);

    return 1;
}


void
ngx_rl_lease_look(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, ngx_rl_answer_t *answer)
{
    ngx_rl_lease_t  now;

    now = *lease;
    ngx_rl_lease_begin(&now, limit, env->now_us);

    if (now.mark == limit->mark && now.answered
        && !ngx_rl_lease_forgot(env, now.answered_ms))
    {
        ngx_rl_lease_tell(&now, limit, env->now_us, answer);
    }
}


int
ngx_rl_lease_pay(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t cost, ngx_rl_answer_t *answer)
{
    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || !lease->answered || lease->tokens < cost)
    {
        return 0;
    }

    lease->tokens -= cost;

    ngx_rl_lease_tell(lease, limit, env->now_us, answer);
    answer->granted = cost;

    return 1;
}


/*
 * The tokens go back, which leaves as many as before. So no rejection stands,
 * and one that Redis sends before it has the tokens stands for a moment only.
 */
void
ngx_rl_lease_left(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint32_t tokens)
{
    uint64_t  us;

    if (tokens) {
        lease->retry_ms = 0;
        lease->gave = NGX_RL_LEASE_OVERTAKEN;
    }

    if (!ngx_rl_lease_of_bucket(limit)) {
        lease->remaining += tokens;
        return;
    }

    us = tokens * limit->rate.step_us;
    lease->fresh_us = lease->fresh_us > us ? lease->fresh_us - us : 0;
}


uint32_t
ngx_rl_lease_return(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t taken_us, uint32_t tokens)
{
    uint64_t  age_us;

    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || !lease->answered
        || (uint64_t) lease->tokens + tokens > limit->capacity)
    {
        return 0;
    }

    age_us = env->now_us > taken_us ? env->now_us - taken_us : 0;

    if (ngx_rl_lease_of_bucket(limit)) {

        if (age_us > limit->window_us || age_us > NGX_RL_LEASE_BUSY_US) {
            ngx_rl_lease_left(lease, limit, tokens);
            return 0;
        }

    } else if (age_us >= (uint64_t) 1000
               * ngx_rl_lease_passed_ms(env->now_us, lease->since_ms))
    {
        return 0;
    }

    lease->tokens += tokens;

    return tokens;
}


void
ngx_rl_lease_gave(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t tokens)
{
    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark == limit->mark) {
        ngx_rl_lease_left(lease, limit, tokens);
    }
}


uint32_t
ngx_rl_lease_charge(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t tokens)
{
    ngx_rl_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark || !lease->answered) {
        return 0;
    }

    tokens = ngx_rl_lease_min(tokens, lease->tokens);
    lease->tokens -= tokens;

    return tokens;
}


/* Forgets the demand if nobody has touched the lease for long. */
static void
ngx_rl_lease_wake(ngx_rl_lease_t *lease, uint64_t now_us)
{
    if (now_us < lease->busy_us) {
        return;
    }

    if (now_us - lease->busy_us >= NGX_RL_LEASE_ROUND_US
        || ngx_rl_lease_passed_ms(now_us, lease->answered_ms)
           >= lease->retry_ms)
    {
        lease->retry_ms = 0;
        lease->strikes = 0;
    }

    lease->rate = 0;
    lease->count = 0;
    lease->tick_ms = ngx_rl_lease_ms(now_us);
    lease->asked_ms = lease->tick_ms - NGX_RL_LEASE_SPACE_MS;
    lease->asking = 0;
}


/*
 * A lease that nobody has touched for a second is forgotten, but for the fewest
 * tokens that a window's answers have named. So are tokens of another limit
 * that should have gone back: the worker that would do it is dead.
 */
void
ngx_rl_lease_renew(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    if (now_us >= lease->busy_us
        || (lease->mark != limit->mark
            && ngx_rl_lease_old(lease, now_us)))
    {
        ngx_rl_lease_left(lease, limit, lease->tokens);
        lease->tokens = 0;
    }

    ngx_rl_lease_wake(lease, now_us);

    if (lease->mark != limit->mark && lease->tokens == 0) {
        lease->mark = limit->mark;
        lease->answered = 0;
        lease->retry_ms = 0;
        lease->strikes = 0;
        lease->fresh_us = 0;
    }
}


/*
 * At a window's end Redis' answer counts no more, and tokens of a fixed window
 * are worth nothing. Tokens of a sliding window go back to it.
 */
void
ngx_rl_lease_epoch(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    if (!lease->answered || ngx_rl_lease_of_bucket(limit)
        || now_us < ngx_rl_lease_until(lease, limit))
    {
        return;
    }

    lease->answered = 0;
    lease->retry_ms = 0;
    lease->strikes = 0;

    if (limit->algorithm == NGX_RL_FIXED_WINDOW) {
        lease->tokens = 0;
    }
}


/* Ends the ticks that are over, those without demand too. */
void
ngx_rl_lease_tick(ngx_rl_lease_t *lease, uint32_t passed_ms)
{
    uint32_t  inst;

    inst = lease->count * (NGX_RL_LEASE_HOLD_MS
                           / NGX_RL_LEASE_TICK_MS)
           * NGX_RL_LEASE_RATE_ONE;
    lease->count = 0;
    lease->tick_ms += passed_ms - passed_ms % NGX_RL_LEASE_TICK_MS;

    if (passed_ms >= NGX_RL_LEASE_BUSY_US / 1000) {
        lease->rate = 0;
        return;
    }

    lease->rate = lease->rate - lease->rate / 4 + inst / 4;

    while (passed_ms >= 2 * NGX_RL_LEASE_TICK_MS) {
        lease->rate -= lease->rate / 4;
        passed_ms -= NGX_RL_LEASE_TICK_MS;
    }
}

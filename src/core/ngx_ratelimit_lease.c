/*
 * Leases: who is paid out of the tokens in hand, when Redis is asked, for how
 * much, and what goes back to it.
 */

#include "ngx_ratelimit_lease.h"

#include "ngx_ratelimit_window.h"

/* demand is counted in ticks; of each a quarter's share goes into the rate */
#define NGX_RATELIMIT_LEASE_TICK_MS    50
#define NGX_RATELIMIT_LEASE_MAX_COUNT  (1u << 24)
#define NGX_RATELIMIT_LEASE_RATE_ONE   16    /* of rate: a token in HOLD_MS */

/* nothing is known of a lease that nobody has touched for so long */
#define NGX_RATELIMIT_LEASE_BUSY_US    1000000
#define NGX_RATELIMIT_LEASE_LOST_MS    1000

/* async: for so long it is known that Redis had too few tokens */
#define NGX_RATELIMIT_ASYNC_OWE_US     60000000

/* a counter that is asked for less in HOLD_MS gets its cost alone */
#define NGX_RATELIMIT_LEASE_MIN_HOLD   2

/* asks ahead of need are at least so far apart */
#define NGX_RATELIMIT_LEASE_SPACE_MS   10

/* by so much the cached clocks of two workers may differ */
#define NGX_RATELIMIT_LEASE_SKEW_MS    1000

/* a spent fixed window is asked once more: others may have given back */
#define NGX_RATELIMIT_LEASE_RECHECK_MS 100

/*
 * A spent counter to which tokens come back all the time rests between two
 * questions: for 10 ms at first, twice as long with each strike.
 */
#define NGX_RATELIMIT_LEASE_STRIKES    5
#define NGX_RATELIMIT_LEASE_REST_MS    150
#define NGX_RATELIMIT_LEASE_REST_SHARE 8      /* of its window at most, and of
                                                 what is left of it */

/* so shortly before a window ends every question is for who waits alone */
#define NGX_RATELIMIT_LEASE_EXACT_MS   20

static void ngx_ratelimit_lease_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static void ngx_ratelimit_lease_wake(ngx_ratelimit_lease_t *lease,
    uint64_t now_us);
static void ngx_ratelimit_lease_epoch(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static uint64_t ngx_ratelimit_lease_until(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit);
static void ngx_ratelimit_lease_tick(ngx_ratelimit_lease_t *lease,
    uint64_t now_us);
static uint32_t ngx_ratelimit_lease_hold(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static uint32_t ngx_ratelimit_lease_rest_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint32_t ends_ms);
static uint32_t ngx_ratelimit_lease_ends_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static unsigned ngx_ratelimit_lease_low(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env);
static uint32_t ngx_ratelimit_lease_quiet_ms(
    const ngx_ratelimit_lease_t *lease, const ngx_ratelimit_limit_t *limit);
static unsigned ngx_ratelimit_lease_denied(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost);
static void ngx_ratelimit_lease_deny(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_lease_answer(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_async_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);
static uint32_t ngx_ratelimit_async_left(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us,
    ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_async_deny(const ngx_ratelimit_limit_t *limit,
    uint32_t cost, ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_lease_strike(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_ask_t *ask,
    const ngx_ratelimit_answer_t *answer, uint32_t passed_ms);
static void ngx_ratelimit_lease_spent(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    uint64_t retry_us);
static uint64_t ngx_ratelimit_lease_next_us(const ngx_ratelimit_limit_t *limit,
    const ngx_ratelimit_answer_t *answer);
static uint64_t ngx_ratelimit_lease_fresh_us(uint64_t asked_us,
    const ngx_ratelimit_answer_t *answer);
static unsigned ngx_ratelimit_lease_before(const ngx_ratelimit_limit_t *limit,
    const ngx_ratelimit_answer_t *answer);
static unsigned ngx_ratelimit_lease_late(const ngx_ratelimit_limit_t *limit,
    uint64_t asked_us, uint64_t now_us, const ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_lease_learn(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t asked_us, uint64_t now_us,
    const ngx_ratelimit_answer_t *answer);


static inline unsigned
ngx_ratelimit_lease_of_bucket(const ngx_ratelimit_limit_t *limit)
{
    return limit->algorithm == NGX_RATELIMIT_TOKEN_BUCKET
           || limit->algorithm == NGX_RATELIMIT_LEAKY_BUCKET;
}


/* Whether tokens come back to it all the time. */
static inline unsigned
ngx_ratelimit_lease_flows(const ngx_ratelimit_limit_t *limit)
{
    return limit->algorithm != NGX_RATELIMIT_FIXED_WINDOW;
}


static inline uint32_t
ngx_ratelimit_lease_ms(uint64_t us)
{
    return (uint32_t) (us / 1000);
}


/* Since since_ms; 0 where that is of a worker whose clock is ahead. */
static inline uint32_t
ngx_ratelimit_lease_passed_ms(uint64_t now_us, uint32_t since_ms)
{
    uint32_t  passed_ms;

    passed_ms = ngx_ratelimit_lease_ms(now_us) - since_ms;

    return passed_ms > UINT32_MAX - NGX_RATELIMIT_LEASE_SKEW_MS ? 0
                                                                : passed_ms;
}


static inline uint32_t
ngx_ratelimit_lease_min(uint64_t a, uint64_t b)
{
    return (uint32_t) (a < b ? a : b);
}


ngx_ratelimit_lease_e
ngx_ratelimit_lease_take(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer, unsigned *ahead)
{
    *ahead = 0;

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);
    lease->count += ngx_ratelimit_lease_min(cost,
                         NGX_RATELIMIT_LEASE_MAX_COUNT - lease->count);

    if (lease->mark != limit->mark) {
        return NGX_RATELIMIT_LEASE_ASK;
    }

    if (!lease->answered || lease->tokens < cost) {

        if (!ngx_ratelimit_lease_denied(lease, limit, env->now_us, cost)) {
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

    ngx_ratelimit_lease_answer(lease, limit, env->now_us, answer);
    answer->granted = cost;

    return NGX_RATELIMIT_LEASE_PAID;
}


/*
 * What nobody has touched for a second is forgotten, but for what a window's
 * clients were told, should the place still be there.
 */
static void
ngx_ratelimit_lease_begin(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (lease->async) {

        /* the rule was another one, and this is spent, not in hand */

        lease->async = 0;
        lease->tokens = 0;
        lease->mark = 0;
    }

    if (now_us >= lease->busy_us) {

        if (!ngx_ratelimit_lease_of_bucket(limit)) {
            lease->remaining += lease->tokens;
        }

        lease->tokens = 0;
    }

    ngx_ratelimit_lease_wake(lease, now_us);

    if (lease->mark == limit->mark) {
        ngx_ratelimit_lease_epoch(lease, limit, now_us);
        return;
    }

    if (lease->tokens == 0) {
        lease->mark = limit->mark;
        lease->answered = 0;
        lease->retry_ms = 0;
        lease->strikes = 0;
        lease->fresh_us = 0;
    }
}


static void
ngx_ratelimit_lease_wake(ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    if (now_us >= lease->busy_us) {
        lease->retry_ms = 0;
        lease->strikes = 0;
        lease->rate = 0;
        lease->count = 0;
        lease->tick_ms = ngx_ratelimit_lease_ms(now_us);
        lease->asked_ms = lease->tick_ms - NGX_RATELIMIT_LEASE_SPACE_MS;
        lease->asking = 0;
    }

    if (lease->busy_us < now_us + NGX_RATELIMIT_LEASE_BUSY_US) {
        lease->busy_us = now_us + NGX_RATELIMIT_LEASE_BUSY_US;
    }

    ngx_ratelimit_lease_tick(lease, now_us);
}


/*
 * A window's end: what Redis has said counts no more, and tokens of a fixed
 * window are worth nothing. Those of a sliding one go back to it.
 */
static void
ngx_ratelimit_lease_epoch(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    if (!lease->answered || ngx_ratelimit_lease_of_bucket(limit)
        || now_us < ngx_ratelimit_lease_until(lease, limit))
    {
        return;
    }

    lease->answered = 0;
    lease->retry_ms = 0;
    lease->strikes = 0;

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        lease->tokens = 0;
    }
}


/* Where the window ends that tokens were taken from. */
static uint64_t
ngx_ratelimit_lease_until(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit)
{
    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW || lease->before) {
        return lease->fresh_us;
    }

    return lease->fresh_us > limit->window_us
           ? lease->fresh_us - limit->window_us : 0;
}


/* Ends the ticks that are over, those without demand too. */
static void
ngx_ratelimit_lease_tick(ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    uint32_t  passed_ms, inst;

    passed_ms = ngx_ratelimit_lease_passed_ms(now_us, lease->tick_ms);

    if (passed_ms < NGX_RATELIMIT_LEASE_TICK_MS) {
        return;
    }

    inst = lease->count * (NGX_RATELIMIT_LEASE_HOLD_MS
                           / NGX_RATELIMIT_LEASE_TICK_MS)
           * NGX_RATELIMIT_LEASE_RATE_ONE;
    lease->count = 0;
    lease->tick_ms += passed_ms - passed_ms % NGX_RATELIMIT_LEASE_TICK_MS;

    if (passed_ms >= NGX_RATELIMIT_LEASE_BUSY_US / 1000) {
        lease->rate = 0;
        return;
    }

    lease->rate = lease->rate - lease->rate / 4 + inst / 4;

    while (passed_ms >= 2 * NGX_RATELIMIT_LEASE_TICK_MS) {
        lease->rate -= lease->rate / 4;
        passed_ms -= NGX_RATELIMIT_LEASE_TICK_MS;
    }
}


/*
 * The tokens that are of use in hand: 0 for a counter too slow for a lease.
 * What is not spent as a window ends is lost to the fleet, and a spent sliding
 * window has most to lose: of it, what is spent until the next question.
 */
static uint32_t
ngx_ratelimit_lease_hold(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    uint32_t  ms, ends_ms, rest_ms;

    ends_ms = ngx_ratelimit_lease_ends_ms(lease, limit, now_us);

    if (ends_ms < NGX_RATELIMIT_LEASE_EXACT_MS
        || lease->rate < NGX_RATELIMIT_LEASE_MIN_HOLD
                         * NGX_RATELIMIT_LEASE_RATE_ONE)
    {
        return 0;
    }

    ms = ngx_ratelimit_lease_min(ends_ms, NGX_RATELIMIT_LEASE_HOLD_MS);

    if (lease->strikes && limit->algorithm == NGX_RATELIMIT_SLIDING_WINDOW) {
        rest_ms = ngx_ratelimit_lease_rest_ms(lease, limit, ends_ms);
        ms = ngx_ratelimit_lease_min(ms, rest_ms);
    }

    return (uint32_t) ((uint64_t) lease->rate * ms
                       / (NGX_RATELIMIT_LEASE_HOLD_MS
                          * NGX_RATELIMIT_LEASE_RATE_ONE));
}


/* How far apart two questions for a spent counter are; 0: it is a slow one. */
static uint32_t
ngx_ratelimit_lease_rest_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint32_t ends_ms)
{
    uint32_t  ms;

    if (lease->rate < NGX_RATELIMIT_LEASE_MIN_HOLD
                      * NGX_RATELIMIT_LEASE_RATE_ONE)
    {
        return 0;
    }

    ms = lease->strikes < NGX_RATELIMIT_LEASE_STRIKES
         ? 5u << lease->strikes : NGX_RATELIMIT_LEASE_REST_MS;
    ms = ngx_ratelimit_lease_min(limit->window_us / 1000
                                 / NGX_RATELIMIT_LEASE_REST_SHARE, ms);

    return ngx_ratelimit_lease_min(ends_ms / NGX_RATELIMIT_LEASE_REST_SHARE,
                                   ms);
}


/* Until the window ends that tokens are taken from; UINT32_MAX: none does. */
static uint32_t
ngx_ratelimit_lease_ends_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us)
{
    uint64_t  until_us;

    if (ngx_ratelimit_lease_of_bucket(limit) || !lease->answered) {
        return UINT32_MAX;
    }

    until_us = ngx_ratelimit_lease_until(lease, limit);

    return until_us > now_us
           ? ngx_ratelimit_lease_min((until_us - now_us) / 1000, UINT32_MAX)
           : 0;
}


/* Whether more is to be asked for while there is still something in hand. */
static unsigned
ngx_ratelimit_lease_low(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    uint32_t  hold, low, since_ms;
    uint64_t  of_rtt;

    hold = ngx_ratelimit_lease_hold(lease, limit, env->now_us);
    of_rtt = (uint64_t) hold * 3 * env->rtt_ms / NGX_RATELIMIT_LEASE_HOLD_MS;

    low = hold / 8 + 1;
    low = of_rtt > low ? ngx_ratelimit_lease_min(of_rtt, hold / 2 + 1) : low;

    if (hold == 0 || lease->tokens >= low
        || ngx_ratelimit_lease_denied(lease, limit, env->now_us,
                                      lease->denied_cost + lease->tokens))
    {
        return 0;
    }

    since_ms = ngx_ratelimit_lease_passed_ms(env->now_us, lease->asked_ms);

    return since_ms >= (lease->asking ? NGX_RATELIMIT_LEASE_LOST_MS
                                      : NGX_RATELIMIT_LEASE_SPACE_MS);
}


/* For how long since the answer a denial costs no call. */
static uint32_t
ngx_ratelimit_lease_quiet_ms(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit)
{
    uint32_t  rest_ms, ends_ms;

    if (!ngx_ratelimit_lease_flows(limit)) {
        return lease->strikes > 1
               ? lease->retry_ms
               : ngx_ratelimit_lease_min(lease->retry_ms,
                                         NGX_RATELIMIT_LEASE_RECHECK_MS);
    }

    ends_ms = ngx_ratelimit_lease_of_bucket(limit)
              ? UINT32_MAX
              : ngx_ratelimit_lease_ms(ngx_ratelimit_lease_until(lease, limit))
                - lease->answered_ms;

    rest_ms = ngx_ratelimit_lease_rest_ms(lease, limit, ends_ms);

    return lease->retry_ms > rest_ms ? lease->retry_ms : rest_ms;
}


static unsigned
ngx_ratelimit_lease_denied(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost)
{
    if (cost > limit->capacity) {
        return lease->answered;
    }

    return lease->retry_ms && cost >= lease->denied_cost + lease->tokens
           && ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms)
              < ngx_ratelimit_lease_quiet_ms(lease, limit);
}


static void
ngx_ratelimit_lease_deny(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    ngx_ratelimit_answer_t *answer)
{
    uint32_t  passed_ms, ms, more;

    ngx_ratelimit_lease_answer(lease, limit, now_us, answer);

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
    more = cost - lease->tokens - lease->denied_cost;

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        answer->retry_us += (uint64_t) more * (limit->rate.step_us + 1);

    } else if (more && answer->retry_us < answer->reset_us) {

        /* how much earlier, only Redis could say */

        answer->retry_us = answer->reset_us;
    }
}


/* What is left, and until when, as if the tokens in hand were in Redis. */
static void
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

    /* what comes back to a spent counter is for whoever asks first */

    ask->share = (lease->strikes && ngx_ratelimit_lease_flows(limit))
                 ? 1 : 2 * env->nodes;

    if (ask->ahead) {
        lease->asking = 1;
        lease->asked_ms = ngx_ratelimit_lease_ms(env->now_us);
    }
}


int
ngx_ratelimit_lease_fill(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint64_t asked_us, const ngx_ratelimit_lease_ask_t *ask,
    const ngx_ratelimit_answer_t *answer)
{
    uint32_t  passed_ms;
    unsigned  again;

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark != limit->mark) {
        return 0;
    }

    lease->asking = 0;

    if (ngx_ratelimit_lease_late(limit, asked_us, env->now_us, answer)) {
        return 0;
    }

    if (!lease->answered) {

        /* those of the sliding window that is over: too late to go back */
        lease->tokens = 0;
        lease->since_ms = ngx_ratelimit_lease_ms(env->now_us);
    }

    /* calls of two workers that were under way at a time are one denial */

    again = lease->strikes == 0
            || (int32_t) (ngx_ratelimit_lease_ms(asked_us)
                          - lease->answered_ms) > 0;

    passed_ms = ngx_ratelimit_lease_passed_ms(env->now_us, lease->answered_ms);

    ngx_ratelimit_lease_learn(lease, limit, asked_us, env->now_us, answer);

    if (answer->retry_us == NGX_RATELIMIT_NEVER) {
        return 1;
    }

    if (answer->granted || answer->remaining >= lease->denied_cost) {
        lease->retry_ms = 0;
    }

    if (again) {
        ngx_ratelimit_lease_strike(lease, limit, ask, answer, passed_ms);
    }

    if (answer->retry_us) {
        ngx_ratelimit_lease_spent(lease, limit, env->now_us, ask->cost,
                                  answer->retry_us);

    } else if (answer->remaining == 0) {
        ngx_ratelimit_lease_spent(lease, limit, env->now_us, 1,
                                  ngx_ratelimit_lease_next_us(limit, answer));
    }

    return 1;
}


/*
 * How often in a row a fixed window was found spent; how often more than not
 * another counter was. For a sliding window that counts only where this node
 * got less than seven eighths of what it needed: with hardly more demand than
 * tokens, a rest costs tokens that nobody asks for any more.
 */
static void
ngx_ratelimit_lease_strike(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_ask_t *ask,
    const ngx_ratelimit_answer_t *answer, uint32_t passed_ms)
{
    uint64_t  need;

    if (answer->retry_us == 0 && answer->remaining) {

        if (answer->granted >= (uint64_t) ask->want + ask->ahead) {
            lease->strikes -= (lease->strikes > 0);
        }

        return;
    }

    if (answer->granted && !ngx_ratelimit_lease_flows(limit)) {
        lease->strikes = 0;
    }

    if (lease->strikes && limit->algorithm == NGX_RATELIMIT_SLIDING_WINDOW) {
        passed_ms = ngx_ratelimit_lease_min(passed_ms,
                                            NGX_RATELIMIT_LEASE_LOST_MS);
        need = (uint64_t) lease->rate * passed_ms
               / (NGX_RATELIMIT_LEASE_HOLD_MS * NGX_RATELIMIT_LEASE_RATE_ONE);

        if ((uint64_t) answer->granted * 8 >= need * 7) {
            return;
        }
    }

    lease->strikes += (lease->strikes < NGX_RATELIMIT_LEASE_STRIKES);
}


/* The counter cannot pay so much, until then. */
static void
ngx_ratelimit_lease_spent(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost,
    uint64_t retry_us)
{
    uint64_t  busy_us;

    lease->retry_ms = ngx_ratelimit_lease_min(retry_us / 1000 + 1, UINT32_MAX);
    lease->denied_cost = cost;

    busy_us = now_us
              + (uint64_t) ngx_ratelimit_lease_quiet_ms(lease, limit) * 1000;

    if (lease->busy_us < busy_us) {
        lease->busy_us = busy_us;
    }
}


/* When an empty counter has a token again; a sliding window does not say. */
static uint64_t
ngx_ratelimit_lease_next_us(const ngx_ratelimit_limit_t *limit,
    const ngx_ratelimit_answer_t *answer)
{
    uint64_t  full_us;

    if (limit->algorithm == NGX_RATELIMIT_SLIDING_WINDOW) {
        return 0;
    }

    full_us = ngx_ratelimit_lease_of_bucket(limit)
              ? limit->window_us - limit->rate.step_us : 0;

    return answer->reset_us > full_us ? answer->reset_us - full_us : 0;
}


/* Redis rounds up, and its clock stood at asked_us or later. */
static uint64_t
ngx_ratelimit_lease_fresh_us(uint64_t asked_us,
    const ngx_ratelimit_answer_t *answer)
{
    return asked_us + answer->reset_us
           - (answer->reset_us >= 1000 ? 1000 : answer->reset_us);
}


/* Of a sliding window that has counted nothing, only its predecessor has. */
static unsigned
ngx_ratelimit_lease_before(const ngx_ratelimit_limit_t *limit,
    const ngx_ratelimit_answer_t *answer)
{
    return limit->algorithm == NGX_RATELIMIT_SLIDING_WINDOW
           && answer->reset_us <= limit->window_us;
}


/* Whether the window is over that the answer tells of. */
static unsigned
ngx_ratelimit_lease_late(const ngx_ratelimit_limit_t *limit,
    uint64_t asked_us, uint64_t now_us, const ngx_ratelimit_answer_t *answer)
{
    uint64_t  until_us;

    until_us = ngx_ratelimit_lease_fresh_us(asked_us, answer);

    if (ngx_ratelimit_lease_of_bucket(limit)) {
        return 0;
    }

    if (limit->algorithm == NGX_RATELIMIT_SLIDING_WINDOW
        && !ngx_ratelimit_lease_before(limit, answer))
    {
        now_us += limit->window_us;
    }

    return until_us <= now_us;
}


/* Keeps what Redis said, and of a fixed window what clients were told. */
static void
ngx_ratelimit_lease_learn(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t asked_us, uint64_t now_us,
    const ngx_ratelimit_answer_t *answer)
{
    int64_t   told;
    uint32_t  passed_ms;
    uint64_t  fresh_us;

    fresh_us = ngx_ratelimit_lease_fresh_us(asked_us, answer);
    told = limit->capacity;

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW
        && lease->fresh_us > now_us
        && fresh_us < lease->fresh_us + limit->window_us / 2)
    {
        told = (int64_t) lease->remaining + lease->tokens;
    }

    lease->tokens = ngx_ratelimit_lease_min((uint64_t) lease->tokens
                                            + answer->granted,
                                            limit->capacity);
    told -= lease->tokens;

    lease->remaining = (int32_t) (told < answer->remaining
                                  ? told : answer->remaining);
    lease->fresh_us = fresh_us;
    lease->before = ngx_ratelimit_lease_before(limit, answer);

    /* a denial goes on, counted from this answer */

    if (lease->retry_ms) {
        passed_ms = ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms);
        lease->retry_ms = lease->retry_ms > passed_ms
                          ? lease->retry_ms - passed_ms : 0;
    }

    lease->answered_ms = ngx_ratelimit_lease_ms(now_us);
    lease->answered = 1;
}


uint32_t
ngx_ratelimit_lease_stale(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env)
{
    uint32_t  back;

    ngx_ratelimit_lease_begin(lease, limit, env->now_us);

    if (lease->mark == limit->mark && lease->answered) {
        return 0;
    }

    back = lease->tokens;
    lease->tokens = 0;

    return back;
}


uint64_t
ngx_ratelimit_lease_age_us(const ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    return (uint64_t) ngx_ratelimit_lease_passed_ms(now_us, lease->answered_ms)
           * 1000;
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

    ngx_ratelimit_lease_answer(lease, limit, env->now_us, answer);
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

    /* as much as was asked for may be there, and what it found in hand */

    keep += keep / 2;

    if (lease->tokens <= keep) {
        return 0;
    }

    back = lease->tokens - keep;

    lease->tokens = keep;

    if (!ngx_ratelimit_lease_of_bucket(limit)) {
        lease->remaining += back;
    }

    return back;
}


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
        lease->tokens += cost;

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

    if (!lease->answered || ngx_ratelimit_lease_of_bucket(limit)
        || now_us < lease->fresh_us)
    {
        return;
    }

    lease->answered = 0;

    if (limit->algorithm == NGX_RATELIMIT_FIXED_WINDOW) {
        lease->tokens = 0;
    }
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
        answer->reset_us = limit->window_us;
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
    ngx_ratelimit_answer_t  left;

    ngx_ratelimit_async_begin(lease, limit, env->now_us);

    tokens = ngx_ratelimit_lease_min(tokens,
                ngx_ratelimit_async_left(lease, limit, env->now_us, &left));
    lease->tokens += tokens;

    return tokens;
}

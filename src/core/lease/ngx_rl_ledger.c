/*
 * The states of a ledger, and what moves it between them.
 *
 *               take: ASK            fill
 *    unknown ---------------> call ------> in hand ---- take: PAID --+
 *       ^                      ^ |            |  ^------------------+
 *       |                      | |            | tokens < cost
 *       |     ahead, or a rest | | rejected   v
 *       |     has passed       | |          spent --- take: ASK ---> call
 *       |                      | v            |
 *       +---- window's end -- rejected until <+ fill: nothing left
 *
 *  - unknown: answered is 0. Redis has said nothing, or nothing that counts:
 *    the window is over, the counter was reset, the limit is another.
 *  - in hand: tokens that Redis has debited. take() pays out of them and asks
 *    ahead of need (low()); sweep() gives back what was not spent in time.
 *  - spent: no tokens, and Redis has not rejected. The next request asks.
 *  - rejected until: rejected_cost cannot be paid for retry_ms. Requests of
 *    that cost and more are answered without a call. A spent counter to which
 *    tokens come back all the time rests between two calls, longer with each
 *    strike. A reset, tokens on their way back and the window's end end it.
 *
 * Debiting behind there are no tokens in hand; the states are unknown (the
 * gateway's own counter decides), known (what Redis has, less what is owed) and
 * owing (something is owed: a sweep, or a request at once, makes the call).
 * What the call says is owed no more; if it surely did not run, it is again.
 */

#include "ngx_rl_ledger.h"
#include "ngx_rl_window.h"

/* Demand: counted in ticks; of each a quarter's share goes into the rate. */
#define NGX_RL_LEDGER_TICK_MS    50
#define NGX_RL_LEDGER_RATE_ONE   16      /* a token in HOLD_MS */
#define NGX_RL_LEDGER_MAX_COUNT  (1u << 24)
#define NGX_RL_LEDGER_MIN_HOLD   2       /* with less in HOLD_MS a counter asks
                                            for its cost alone */
#define NGX_RL_LEDGER_BURST      8       /* tokens of one tick that are one */

/* Calls: how far apart they are. */
#define NGX_RL_LEDGER_SPACE_MS   10      /* ahead of need */
#define NGX_RL_LEDGER_EXACT_MS   20      /* so shortly before a window ends none
                                            asks ahead of need */
#define NGX_RL_LEDGER_LOST_MS    1000    /* one without an answer may be lost */
#define NGX_RL_LEDGER_SHARE      4       /* behind, a gateway that has spent its
                                            share of what is left calls sooner,
                                            if that share is so many tokens */

/*
 * Rejections. Tokens may have come back, of other gateways to a fixed window or
 * of this one: a spent counter asks once more. One to which tokens come back
 * all the time rests for 10 ms at first, twice as long with each strike.
 */
#define NGX_RL_LEDGER_RECHECK_MS 100
#define NGX_RL_LEDGER_REST_MS    150
#define NGX_RL_LEDGER_REST_SHARE 8       /* of its window at most, and of what
                                            is left of it */
#define NGX_RL_LEDGER_STRIKES    5       /* are counted */
#define NGX_RL_LEDGER_OVERTAKEN  2       /* answers: of a call that was under
                                            way when tokens went back, and of
                                            the next one */

/*
 * Life: nothing is known of a ledger that nobody has touched for BUSY_US. For
 * KEEP_MS without a request one that rejects holds its place. It still rejects
 * if nobody has taken the place; in days, its clock has gone round.
 */
#define NGX_RL_LEDGER_BUSY_US    1000000
#define NGX_RL_LEDGER_KEEP_MS    60000
#define NGX_RL_LEDGER_ROUND_US   ((uint64_t) INT32_MAX * 1000)
#define NGX_RL_LEDGER_SKEW_MS    1000    /* the cached clocks of two workers may
                                            differ by so much */
#define NGX_RL_LEDGER_ROUND_MS   1       /* a window ends so much later than the
                                            ledger takes it for over */


/* Whether tokens come back to it all the time. */
static inline unsigned
ngx_rl_ledger_flows(const ngx_rl_limit_t *limit)
{
    return limit->algorithm != NGX_RL_FIXED_WINDOW;
}


static inline uint32_t
ngx_rl_ledger_min(uint64_t a, uint64_t b)
{
    return (uint32_t) ngx_rl_min(a, b);
}


static inline uint32_t
ngx_rl_ledger_ms(uint64_t us)
{
    return (uint32_t) (us / 1000);
}


/* Since since_ms; 0 where that is of a worker whose clock is ahead. */
static inline uint32_t
ngx_rl_ledger_passed_ms(uint64_t now_us, uint32_t since_ms)
{
    uint32_t  passed_ms;

    passed_ms = ngx_rl_ledger_ms(now_us) - since_ms;

    return passed_ms > UINT32_MAX - NGX_RL_LEDGER_SKEW_MS ? 0 : passed_ms;
}


/*
 * Whether no worker asks Redis, or did so less than space_ms ago. A call of
 * LOST_MS ago may be lost.
 */
static inline unsigned
ngx_rl_ledger_may_ask(const ngx_rl_ledger_t *ledger, uint64_t now_us,
    uint32_t space_ms)
{
    if (ledger->asking) {
        space_ms = ngx_rl_max(space_ms, NGX_RL_LEDGER_LOST_MS);
    }

    return ngx_rl_ledger_passed_ms(now_us, ledger->asked_ms) >= space_ms;
}


static inline void
ngx_rl_ledger_asks(ngx_rl_ledger_t *ledger, uint64_t now_us)
{
    ledger->asking = 1;
    ledger->asked_ms = ngx_rl_ledger_ms(now_us);
}


/* Whether what Redis said last is forgotten; a part of a ms errs so. */
static inline unsigned
ngx_rl_ledger_forgot(const ngx_rl_ledger_t *ledger,
    const ngx_rl_ledger_env_t *env)
{
    return env->forgot_us
           && env->forgot_us + (uint64_t) 1000
              * ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms)
              >= env->now_us;
}


static inline void
ngx_rl_ledger_busy(ngx_rl_ledger_t *ledger, uint64_t until_us)
{
    ledger->busy_us = ngx_rl_max(ledger->busy_us, until_us);
}


/*
 * Where the window ends that tokens are taken from. Behind, they are taken
 * while a sliding window turns into the one before.
 */
static inline uint64_t
ngx_rl_ledger_until(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    if (limit->algorithm != NGX_RL_SLIDING_WINDOW
        || (env->behind ? ledger->fresh_us <= env->now_us + limit->window_us
                        : ledger->before))
    {
        return ledger->fresh_us;
    }

    return ledger->fresh_us > limit->window_us
           ? ledger->fresh_us - limit->window_us : 0;
}


/* Demand: ends the ticks that are over, those without any too. */
static void
ngx_rl_ledger_tick(ngx_rl_ledger_t *ledger, uint32_t passed_ms)
{
    uint32_t  inst;

    inst = ledger->count * (NGX_RL_LEDGER_HOLD_MS / NGX_RL_LEDGER_TICK_MS)
           * NGX_RL_LEDGER_RATE_ONE;
    ledger->count = 0;
    ledger->tick_ms += passed_ms - passed_ms % NGX_RL_LEDGER_TICK_MS;

    if (passed_ms >= NGX_RL_LEDGER_BUSY_US / 1000) {
        ledger->rate = 0;
        return;
    }

    ledger->rate = ledger->rate - ledger->rate / 4 + inst / 4;

    while (passed_ms >= 2 * NGX_RL_LEDGER_TICK_MS) {
        ledger->rate -= ledger->rate / 4;
        passed_ms -= NGX_RL_LEDGER_TICK_MS;
    }
}


/*
 * The tokens go back, which leaves as many as before. So no rejection stands,
 * and one that Redis sends before it has the tokens stands for a moment only.
 */
static void
ngx_rl_ledger_back(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint32_t tokens)
{
    uint64_t  us;

    if (tokens) {
        ledger->retry_ms = 0;
        ledger->overtaken = NGX_RL_LEDGER_OVERTAKEN;
    }

    if (!ngx_rl_limit_is_bucket(limit)) {
        ledger->left = (ledger->left > 0 ? ledger->left : 0) + tokens;
        return;
    }

    us = tokens * limit->rate.step_us;
    ledger->fresh_us = ledger->fresh_us > us ? ledger->fresh_us - us : 0;
}


/*
 * The ledger is of another limit, or nobody has touched it for long. Then it is
 * forgotten, but for the fewest tokens that a window's answers have named. So
 * are tokens of another limit that should have gone back: the worker that would
 * do it is dead.
 */
static void
ngx_rl_ledger_renew(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    if (now_us >= ledger->busy_us
        || (ledger->mark != limit->mark
            && ngx_rl_ledger_passed_ms(now_us, ledger->answered_ms)
               >= NGX_RL_LEDGER_LOST_MS))
    {
        ngx_rl_ledger_back(ledger, limit, ledger->tokens);
        ledger->tokens = 0;
    }

    if (now_us >= ledger->busy_us) {

        if (now_us - ledger->busy_us >= NGX_RL_LEDGER_ROUND_US
            || ngx_rl_ledger_passed_ms(now_us, ledger->answered_ms)
               >= ledger->retry_ms)
        {
            ledger->retry_ms = 0;
            ledger->strikes = 0;
        }

        ledger->rate = 0;
        ledger->count = 0;
        ledger->tick_ms = ngx_rl_ledger_ms(now_us);
        ledger->asked_ms = ledger->tick_ms - NGX_RL_LEDGER_SPACE_MS;
        ledger->asking = 0;
    }

    if (ledger->mark != limit->mark && ledger->tokens == 0) {
        ledger->mark = limit->mark;
        ledger->answered = 0;
        ledger->retry_ms = 0;
        ledger->strikes = 0;
        ledger->fresh_us = 0;
    }
}


/*
 * At a window's end Redis' answer counts no more, and tokens of a fixed window
 * are worth nothing. Tokens of a sliding window go back to it.
 */
static inline void
ngx_rl_ledger_epoch(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    if (!ledger->answered || ngx_rl_limit_is_bucket(limit)
        || env->now_us < ngx_rl_ledger_until(ledger, limit, env))
    {
        return;
    }

    ledger->answered = 0;
    ledger->retry_ms = 0;
    ledger->strikes = 0;

    if (limit->algorithm == NGX_RL_FIXED_WINDOW) {
        ledger->tokens = 0;
    }
}


/* Behind: for how much longer than of HOLD_MS tokens may wait to be told. */
static inline uint32_t
ngx_rl_ledger_slower_ms(const ngx_rl_ledger_env_t *env)
{
    return env->interval_ms > NGX_RL_LEDGER_HOLD_MS
           ? env->interval_ms - NGX_RL_LEDGER_HOLD_MS : 0;
}


/*
 * Behind: calls that debit are so far apart. Sweeps come each HOLD_MS: the last
 * one before the interval is over calls. What is told after its window says
 * nothing to others, so of a short one it is told more often. Nobody decides by
 * what Redis has not said: until it has, it is asked each HOLD_MS.
 */
static uint32_t
ngx_rl_ledger_apart_ms(const ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env)
{
    uint32_t  ms;

    if (!ledger->answered || ledger->away) {
        return NGX_RL_LEDGER_HOLD_MS;
    }

    ms = ngx_rl_ledger_min(limit->window_us / 1000 / NGX_RL_LEDGER_REST_SHARE,
                           env->interval_ms);

    return ngx_rl_max(ms, 2 * NGX_RL_LEDGER_HOLD_MS) - NGX_RL_LEDGER_HOLD_MS;
}


/* Behind: what a token weighs that is spent now. */
static inline int64_t
ngx_rl_ledger_weight(const ngx_rl_ledger_t *ledger,
    const ngx_rl_ledger_env_t *env)
{
    return ledger->away ? ngx_rl_max(env->share, 1) : 1;
}


/* Behind: the counter equals a fresh one then; left: of a window. */
static void
ngx_rl_ledger_set(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint64_t fresh_us, uint32_t left)
{
    ledger->fresh_us = fresh_us;

    if (ngx_rl_limit_is_bucket(limit)) {
        ledger->tb.tat_frac = 0;
        ledger->tb.span_code = limit->rate.span_code;

    } else {
        ledger->left = (int32_t) left;
        ledger->capacity = limit->capacity;
    }
}


/* Behind: so many are spent or, below 0, come back. */
static void
ngx_rl_ledger_count(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint64_t now_us, int64_t tokens)
{
    int64_t          left;
    ngx_rl_answer_t  unused;

    if (!ngx_rl_limit_is_bucket(limit)) {
        left = ngx_rl_max(ledger->left - tokens, -(int64_t) limit->capacity);
        ledger->left = (int32_t) ngx_rl_min(left, (int64_t) limit->capacity);

        /* what was rejected comes later now, or earlier */

        if (tokens) {
            ledger->rejected_cost = 0;
            ledger->retry_ms = 0;
        }

    } else if (tokens > 0) {
        ngx_rl_token_bucket_take(&ledger->tb, &limit->rate, now_us,
                                 (uint32_t) tokens, NGX_RL_CHARGE, &unused);
    } else if (tokens < 0) {
        ngx_rl_token_bucket_give(&ledger->tb, &limit->rate, now_us, now_us,
                                 (uint32_t) -tokens);
    }
}


/*
 * Behind: at a window's end the counter is a fresh one, of which Redis has said
 * nothing. What was spent of a fixed one is none of the next one's.
 */
static void
ngx_rl_ledger_pass(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint64_t now_us)
{
    if (ngx_rl_limit_is_bucket(limit)) {
        return;
    }

    if (now_us >= ledger->fresh_us) {

        if (ledger->owed < 0 || !ledger->answered
            || !ngx_rl_ledger_flows(limit))
        {
            ledger->owed = 0;
        }

        ledger->answered = 0;
        ledger->rejected_cost = 0;
        ledger->retry_ms = 0;
        ledger->began_ms = ngx_rl_ledger_ms(now_us);
        ngx_rl_ledger_set(ledger, limit, now_us + limit->window_us,
                          limit->capacity);

        ngx_rl_ledger_count(ledger, limit, now_us, ledger->owed);
    }

    /* the moment has come that Redis named */

    if (ledger->retry_ms
        && ngx_rl_ledger_passed_ms(now_us, ledger->answered_ms)
           >= ledger->retry_ms)
    {
        ledger->left = ngx_rl_max(ledger->left,
                                  (int32_t) ledger->rejected_cost);
        ledger->rejected_cost = 0;
        ledger->retry_ms = 0;
    }
}


/* Behind: what is spent stays spent under another limit. */
static void
ngx_rl_ledger_begin_behind(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    uint64_t  now_us;
    unsigned  bucket;

    now_us = env->now_us;
    ledger->away &= (now_us < ledger->busy_us);

    ngx_rl_ledger_busy(ledger, now_us + NGX_RL_LEDGER_BUSY_US
                               + ngx_rl_ledger_slower_ms(env) * 1000);

    bucket = ngx_rl_limit_is_bucket(limit);

    if (ledger->mark == 0 || ledger->bucket != bucket) {
        ledger->bucket = bucket;
        ledger->answered = 0;
        ledger->asked_ms = ngx_rl_ledger_ms(now_us) - NGX_RL_LEDGER_LOST_MS;
        ngx_rl_ledger_set(ledger, limit, 0, limit->capacity);
    }

    if (ledger->mark != limit->mark) {
        ledger->mark = limit->mark;
        ledger->rejected_cost = 0;
        ledger->retry_ms = 0;

        if (!bucket) {
            ledger->left += (int32_t) limit->capacity
                            - (int32_t) ledger->capacity;
            ledger->capacity = limit->capacity;
        }
    }

    ngx_rl_ledger_pass(ledger, limit, now_us);
}


/* In hand: most requests need no more than these comparisons. */
static ngx_rl_inline void
ngx_rl_ledger_begin_in_hand(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env)
{
    uint32_t  passed_ms;

    if (ledger->mark != limit->mark || env->now_us >= ledger->busy_us) {
        ngx_rl_ledger_renew(ledger, limit, env->now_us);
    }

    ngx_rl_ledger_busy(ledger, env->now_us + NGX_RL_LEDGER_BUSY_US);

    passed_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->tick_ms);

    if (passed_ms >= NGX_RL_LEDGER_TICK_MS) {
        ngx_rl_ledger_tick(ledger, passed_ms);
    }

    if (ledger->mark == limit->mark) {
        ngx_rl_ledger_epoch(ledger, limit, env);
    }
}


/* Called first: the ledger is used and lives on, what is over ends. */
static void
ngx_rl_ledger_begin(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    if (env->behind) {
        ngx_rl_ledger_begin_behind(ledger, limit, env);
    } else {
        ngx_rl_ledger_begin_in_hand(ledger, limit, env);
    }
}


/*
 * Behind: takes the cost of what is known to be left; 0: looks. If a token
 * weighs more, a request within the limit is admitted by what is fresh, however
 * small the share is.
 */
static void
ngx_rl_ledger_spend(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer)
{
    int64_t   weight;
    uint32_t  weighed;

    weight = ngx_rl_ledger_weight(ledger, env);
    weighed = ngx_rl_ledger_min(cost * weight,
                                ngx_rl_max(limit->capacity, cost));

    if (ngx_rl_limit_is_bucket(limit)) {
        ngx_rl_token_bucket_take(&ledger->tb, &limit->rate, env->now_us,
                                 weighed, 0, answer);
        answer->granted = answer->granted ? cost : 0;

    } else {
        memset(answer, 0, sizeof(ngx_rl_answer_t));

        if (cost && (int64_t) ledger->left >= weighed) {
            ngx_rl_ledger_count(ledger, limit, env->now_us, weighed);
            answer->granted = cost;
        }

        answer->remaining = ledger->left > 0 ? (uint32_t) ledger->left : 0;

        if (ledger->left < (int32_t) limit->capacity
            && ledger->fresh_us > env->now_us)
        {
            answer->reset_us = ledger->fresh_us - env->now_us;
        }
    }

    answer->remaining /= (uint32_t) weight;
}


/*
 * The answer of a request, as if the tokens in hand were in Redis; within a
 * fixed window what is left never rises.
 */
static void
ngx_rl_ledger_answer(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint64_t now_us, ngx_rl_answer_t *answer)
{
    int64_t   left;
    uint64_t  back_us;

    if (ngx_rl_limit_is_bucket(limit)) {
        ngx_rl_token_bucket_look(&limit->rate, now_us, ledger->fresh_us,
                                 answer);

        left = answer->remaining;
        back_us = ledger->tokens * limit->rate.step_us;
        answer->reset_us -= answer->reset_us > back_us ? back_us
                                                       : answer->reset_us;
    } else {
        left = ledger->left > 0 ? ledger->left : 0;
        answer->granted = 0;
        answer->reset_us = ledger->fresh_us > now_us ? ledger->fresh_us - now_us
                                                     : 0;
        answer->retry_us = 0;
    }

    left += ledger->tokens;
    answer->remaining = left > 0 ? ngx_rl_ledger_min(left, limit->capacity) : 0;

    if (!ngx_rl_ledger_flows(limit)) {
        ledger->shown = ngx_rl_ledger_min(ledger->shown, answer->remaining);
        answer->remaining = ledger->shown;
    }
}


/* Out of the tokens in hand. */
static ngx_rl_inline unsigned
ngx_rl_ledger_pays(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    uint64_t now_us, uint32_t cost, ngx_rl_answer_t *answer)
{
    if (ledger->mark != limit->mark || !ledger->answered
        || ledger->tokens < cost)
    {
        return 0;
    }

    ledger->tokens -= cost;

    ngx_rl_ledger_answer(ledger, limit, now_us, answer);
    answer->granted = cost;

    return 1;
}


/* How far apart two calls for a spent counter are; 0: it is a slow one. */
static uint32_t
ngx_rl_ledger_rest_ms(const ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, uint32_t ends_ms)
{
    uint32_t  ms;

    if (ledger->rate < NGX_RL_LEDGER_MIN_HOLD * NGX_RL_LEDGER_RATE_ONE) {
        return 0;
    }

    ms = ledger->strikes < NGX_RL_LEDGER_STRIKES ? 5u << ledger->strikes
                                                 : NGX_RL_LEDGER_REST_MS;
    ms = ngx_rl_ledger_min(limit->window_us / 1000 / NGX_RL_LEDGER_REST_SHARE,
                           ms);

    return ngx_rl_ledger_min(ends_ms / NGX_RL_LEDGER_REST_SHARE, ms);
}


/* For how long since the answer a rejection costs no call. */
static uint32_t
ngx_rl_ledger_quiet_ms(const ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env)
{
    uint32_t  rest_ms, ends_ms;

    if (ledger->overtaken
        || (ledger->strikes <= 1 && !ngx_rl_ledger_flows(limit)))
    {
        return ngx_rl_ledger_min(ledger->retry_ms, NGX_RL_LEDGER_RECHECK_MS);
    }

    if (!ngx_rl_ledger_flows(limit)) {
        return ledger->retry_ms;
    }

    ends_ms = ngx_rl_limit_is_bucket(limit)
              ? UINT32_MAX
              : ngx_rl_ledger_ms(ngx_rl_ledger_until(ledger, limit, env))
                - ledger->answered_ms;

    rest_ms = ngx_rl_ledger_rest_ms(ledger, limit, ends_ms);

    return ledger->retry_ms > rest_ms ? ledger->retry_ms : rest_ms;
}


/* With tokens in hand: whether Redis rejects the cost, by what it has said. */
static unsigned
ngx_rl_ledger_rejected(const ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env, uint32_t cost)
{
    uint32_t  passed_ms;

    if (ledger->retry_ms == 0 || cost < ledger->rejected_cost + ledger->tokens)
    {
        return 0;
    }

    /* what a fixed window owes may be too much for so high a cost */

    if (!ngx_rl_ledger_flows(limit) && cost <= limit->capacity
        && (int64_t) cost - ledger->tokens
           > (int64_t) limit->capacity + ledger->left)
    {
        return 0;
    }

    passed_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms);

    return (passed_ms < ledger->retry_ms && ngx_rl_ledger_flows(limit)
            && ledger->overtaken == 0)
           || passed_ms < ngx_rl_ledger_quiet_ms(ledger, limit, env);
}


/* The ledger holds its place while it rejects, for a minute at most. */
static void
ngx_rl_ledger_keep(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    uint32_t  passed_ms, ms;

    passed_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms);
    ms = ngx_rl_ledger_quiet_ms(ledger, limit, env);
    ms = ngx_rl_ledger_min(ms > passed_ms ? ms - passed_ms : 0,
                           NGX_RL_LEDGER_KEEP_MS);

    ngx_rl_ledger_busy(ledger, env->now_us + (uint64_t) ms * 1000);
}


uint64_t
ngx_rl_ledger_later_us(const ngx_rl_limit_t *limit,
    const ngx_rl_answer_t *answer, uint32_t cost, uint32_t more)
{
    uint64_t  reset_us, room;

    if (ngx_rl_limit_is_bucket(limit)) {
        return answer->retry_us + (uint64_t) more * (limit->rate.step_us + 1);
    }

    reset_us = answer->reset_us + NGX_RL_LEDGER_ROUND_MS * 1000;

    if (more == 0 || !ngx_rl_ledger_flows(limit)
        || answer->retry_us >= reset_us)
    {
        return answer->retry_us;
    }

    /*
     * While one window alone still weighs, its weight sinks evenly to nothing:
     * each token more waits as long. Before that only Redis could say.
     */

    if (limit->algorithm == NGX_RL_SLIDING_WINDOW
        && answer->retry_us + limit->window_us >= reset_us)
    {
        room = limit->capacity - cost;
        reset_us -= (reset_us - answer->retry_us) * (room - more) / room;
    }

    return reset_us;
}


/* With tokens in hand. */
static void
ngx_rl_ledger_reject(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer)
{
    uint32_t              passed_ms, ms, more;
    uint64_t              us, spare, spare_us;
    const ngx_rl_rate_t  *rate;

    ngx_rl_ledger_answer(ledger, limit, env->now_us, answer);
    ngx_rl_ledger_keep(ledger, limit, env);

    answer->granted = 0;
    answer->remaining = ngx_rl_ledger_min(answer->remaining, cost - 1);

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;
        return;
    }

    if (ledger->unnamed) {

        /*
         * When a rejected cost can be paid at the latest: by a bucket when it
         * has filled so far, by a fixed window at its end. A spent sliding
         * window has a token again at the latest when the window is over that
         * counts now and one of the capacity's shares of the next has passed.
         * Costs above 1 wait for all.
         */

        us = ngx_rl_ledger_until(ledger, limit, env);

        if (ngx_rl_limit_is_bucket(limit)) {
            rate = &limit->rate;
            spare = limit->capacity - (cost - ledger->tokens);
            spare_us = spare * rate->step_us
                       + spare * rate->step_frac / rate->scale;
            us = ledger->fresh_us + 1000;
            us -= (us > spare_us) ? spare_us : us;

        } else if (cost > 1 || !ngx_rl_ledger_flows(limit)) {
            us = ledger->fresh_us;

        } else if (!ledger->before) {
            us += limit->window_us / limit->capacity + 2000;
        }

        answer->retry_us = us > env->now_us ? us - env->now_us : 1000;

        return;
    }

    passed_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms);
    ms = ledger->retry_ms;

    if (ms <= passed_ms) {
        ms = ngx_rl_ledger_quiet_ms(ledger, limit, env);
    }

    answer->retry_us = (uint64_t) (ms - passed_ms) * 1000;
    more = cost - ledger->tokens - ledger->rejected_cost;
    answer->retry_us = ngx_rl_ledger_later_us(limit, answer,
                                              ledger->rejected_cost, more);
}


/*
 * Behind: until Redis has named the moment, the answer has the latest one. What
 * is owed counts in the next fixed window: if that leaves too little, too, the
 * window behind it pays.
 */
static void
ngx_rl_ledger_reject_behind(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, uint64_t now_us, uint32_t cost,
    ngx_rl_answer_t *answer)
{
    uint32_t  wait_ms;

    answer->remaining = ngx_rl_ledger_min(answer->remaining, cost - 1);

    if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;
        return;
    }

    if (!ngx_rl_limit_is_bucket(limit)) {
        answer->retry_us = answer->reset_us + NGX_RL_LEDGER_ROUND_MS * 1000;

        if (ledger->retry_ms && cost <= ledger->rejected_cost) {
            wait_ms = ledger->answered_ms + ledger->retry_ms
                      - ngx_rl_ledger_ms(now_us);
            answer->retry_us = (uint64_t) wait_ms * 1000;

        } else if (!ngx_rl_ledger_flows(limit)
                   && (int64_t) ledger->left + limit->capacity < cost)
        {
            answer->retry_us += limit->window_us;
        }
    }

    if (ledger->retry_ms == 0 && ngx_rl_ledger_flows(limit)) {
        ledger->rejected_cost = cost;
    }
}


/*
 * The rate or, if that is more, the demand of this tick alone: so a burst on an
 * unknown counter doubles what each call takes.
 */
static uint32_t
ngx_rl_ledger_demand(const ngx_rl_ledger_t *ledger)
{
    uint32_t  rate;

    rate = ledger->count >= NGX_RL_LEDGER_BURST
           ? ledger->count * NGX_RL_LEDGER_RATE_ONE : 0;

    return rate > ledger->rate ? rate : ledger->rate;
}


/* With fewer tokens than this of what it holds, it asks ahead of need. */
static uint32_t
ngx_rl_ledger_few(uint32_t hold, uint32_t rtt_ms)
{
    uint32_t  low;
    uint64_t  of_rtt;

    low = hold / 8 + 1;
    of_rtt = (uint64_t) hold * 3 * rtt_ms / NGX_RL_LEDGER_HOLD_MS;

    return of_rtt > low ? ngx_rl_ledger_min(of_rtt, hold / 2 + 1) : low;
}


/*
 * The tokens that are of use in hand: 0 for a counter too slow for any. Those
 * that are not spent as a window ends are lost to the fleet. A spent sliding
 * window would lose most: it holds what is spent until its next call.
 */
static uint32_t
ngx_rl_ledger_hold(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    uint32_t  rate, ms, ends_ms;
    uint64_t  until_us;

    rate = ngx_rl_ledger_demand(ledger);
    ends_ms = UINT32_MAX;

    if (!ngx_rl_limit_is_bucket(limit) && ledger->answered) {
        until_us = ngx_rl_ledger_until(ledger, limit, env);
        ends_ms = until_us > env->now_us
                  ? ngx_rl_ledger_min((until_us - env->now_us) / 1000,
                                      UINT32_MAX)
                  : 0;
    }

    if (ends_ms < NGX_RL_LEDGER_EXACT_MS
        || rate < NGX_RL_LEDGER_MIN_HOLD * NGX_RL_LEDGER_RATE_ONE)
    {
        return 0;
    }

    ms = ngx_rl_ledger_min(ends_ms, NGX_RL_LEDGER_HOLD_MS);

    if (ledger->strikes && limit->algorithm == NGX_RL_SLIDING_WINDOW) {
        ms = ngx_rl_ledger_min(ms, ngx_rl_ledger_rest_ms(ledger, limit,
                                                         ends_ms));
    }

    return (uint32_t) ((uint64_t) rate * ms
                       / (NGX_RL_LEDGER_HOLD_MS * NGX_RL_LEDGER_RATE_ONE));
}


/*
 * Whether to ask for more while there are still tokens in hand. No counter
 * holds more than its demand in HOLD_MS, so most requests need no more than the
 * first comparison. Tokens that should have been spent or have gone back by now
 * are those of a worker that was killed: the worker that asks gives them back.
 */
static unsigned
ngx_rl_ledger_low(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    uint32_t  hold;

    if (ledger->tokens == 0
        || ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms)
           < NGX_RL_LEDGER_LOST_MS)
    {
        hold = ngx_rl_ledger_demand(ledger) / NGX_RL_LEDGER_RATE_ONE;

        if (ledger->tokens >= ngx_rl_ledger_few(hold, env->rtt_ms)) {
            return 0;
        }

        hold = ngx_rl_ledger_hold(ledger, limit, env);

        if (hold == 0 || ledger->tokens >= ngx_rl_ledger_few(hold, env->rtt_ms)
            || ngx_rl_ledger_rejected(ledger, limit, env,
                                      ledger->rejected_cost + ledger->tokens))
        {
            return 0;
        }
    }

    return ngx_rl_ledger_may_ask(ledger, env->now_us, NGX_RL_LEDGER_SPACE_MS);
}


static void
ngx_rl_ledger_owe(ngx_rl_ledger_t *ledger, uint64_t now_us, int64_t tokens)
{
    tokens += ledger->owed;

    if (ledger->owed == 0 || (tokens > 0) != (ledger->owed > 0)) {
        ledger->owed_ms = ngx_rl_ledger_ms(now_us);
    }

    ledger->owed = (int32_t) (tokens < NGX_RL_MAX_TOKENS ? tokens
                                                         : NGX_RL_MAX_TOKENS);
}


/* Behind: whether to call, or sweep, now that cost is owed, too. */
static unsigned
ngx_rl_ledger_owing(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, unsigned swept, uint32_t cost,
    uint32_t left)
{
    uint32_t  since_ms, apart_ms;

    since_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->asked_ms);
    apart_ms = ngx_rl_ledger_apart_ms(ledger, limit, env);

    /*
     * A sweep tells Redis only while the ledger is of its own limit. If limits
     * alternate, a request does after a second.
     */

    if (ledger->owed > 0
        && ngx_rl_ledger_may_ask(ledger, env->now_us, 0)
        && ((uint64_t) ledger->owed * 2 * env->gateways >= left
            || (since_ms >= NGX_RL_LEDGER_LOST_MS + apart_ms
                            - NGX_RL_LEDGER_HOLD_MS
                && (uint32_t) ledger->owed > cost))
        && (since_ms >= apart_ms
            || (ledger->answered && ledger->owed >= NGX_RL_LEDGER_SHARE)))
    {
        return NGX_RL_LEDGER_CALL;
    }

    /*
     * A worker sweeps, for the limit of the ledger, until nothing is owed. If
     * its call is late, it may have been killed.
     */

    return swept && since_ms < apart_ms ? 0 : NGX_RL_LEDGER_SWEEP;
}


/*
 * The counter was reset: it rejects nothing, and a window's answers may name
 * more tokens again. Tokens in hand stay: they are debited.
 */
static void
ngx_rl_ledger_forget(ngx_rl_ledger_t *ledger)
{
    ledger->retry_ms = 0;
    ledger->strikes = 0;

    if (ledger->tokens == 0) {
        ledger->answered = 0;
        ledger->fresh_us = 0;
    }
}


static ngx_rl_ledger_e
ngx_rl_ledger_take_behind(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer,
    unsigned *next)
{
    unsigned         swept, answered;
    ngx_rl_ledger_e  rc;

    swept = (ledger->mark == limit->mark && ledger->owed != 0);
    answered = (ledger->mark == limit->mark && ledger->answered);

    ngx_rl_ledger_begin_behind(ledger, limit, env);

    if (!ledger->answered) {
        rc = NGX_RL_LEDGER_ASK;

        /* its window is over; the gateway's own one stands elsewhere */

        if (answered && limit->algorithm == NGX_RL_SLIDING_WINDOW) {
            memset(answer, 0, sizeof(ngx_rl_answer_t));
            answer->remaining = ledger->left > 0 ? (uint32_t) ledger->left : 0;
            rc = NGX_RL_LEDGER_FRESH;
        }

        /* if the gateway's own counter rejects, Redis may have more */

        ledger->rejected_cost = ngx_rl_ledger_min(cost, limit->capacity);
        *next = ngx_rl_ledger_may_ask(ledger, env->now_us,
                                      NGX_RL_LEDGER_LOST_MS);
        return rc;
    }

    ngx_rl_ledger_spend(ledger, limit, env, cost, answer);

    if (answer->granted) {
        ngx_rl_ledger_owe(ledger, env->now_us, cost);
        *next = ngx_rl_ledger_owing(ledger, limit, env, swept, cost,
                                    answer->remaining);
        return NGX_RL_LEDGER_PAID;
    }

    if (ngx_rl_ledger_forgot(ledger, env)) {
        ledger->answered = 0;
        return NGX_RL_LEDGER_ASK;
    }

    ngx_rl_ledger_reject_behind(ledger, limit, env->now_us, cost, answer);

    /*
     * A bucket says when it can pay. Of a sliding window only Redis knows. What
     * other gateways give back is known after a second.
     */

    *next = ledger->rejected_cost
            && ngx_rl_ledger_may_ask(ledger, env->now_us,
                   ledger->retry_ms || ngx_rl_limit_is_bucket(limit)
                   ? NGX_RL_LEDGER_LOST_MS : NGX_RL_LEDGER_HOLD_MS);

    return NGX_RL_LEDGER_REJECTED;
}


ngx_rl_ledger_e
ngx_rl_ledger_take(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer,
    unsigned *next)
{
    *next = 0;

    if (env->behind) {
        return ngx_rl_ledger_take_behind(ledger, limit, env, cost, answer,
                                         next);
    }

    ngx_rl_ledger_begin_in_hand(ledger, limit, env);

    if (ledger->mark != limit->mark) {
        return NGX_RL_LEDGER_ASK;
    }

    ledger->count += ngx_rl_ledger_min(cost, NGX_RL_LEDGER_MAX_COUNT
                                             - ledger->count);

    if (ngx_rl_ledger_pays(ledger, limit, env->now_us, cost, answer)) {

        if (ngx_rl_ledger_low(ledger, limit, env)) {
            ngx_rl_ledger_asks(ledger, env->now_us);
            *next = NGX_RL_LEDGER_CALL;
        }

        return NGX_RL_LEDGER_PAID;
    }

    if (ngx_rl_ledger_forgot(ledger, env)) {
        ngx_rl_ledger_forget(ledger);
    }

    if (!(ledger->answered && cost > limit->capacity)
        && !ngx_rl_ledger_rejected(ledger, limit, env, cost))
    {
        return NGX_RL_LEDGER_ASK;
    }

    ngx_rl_ledger_reject(ledger, limit, env, cost, answer);

    return NGX_RL_LEDGER_REJECTED;
}


void
ngx_rl_ledger_spent(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, const ngx_rl_answer_t *answer,
    unsigned *next)
{
    uint32_t  left;
    unsigned  swept;

    swept = (ledger->mark == limit->mark && ledger->owed != 0);
    left = ngx_rl_limit_left(limit, answer);

    ngx_rl_ledger_begin(ledger, limit, env);

    /* Redis may have answered since the gateway's own counter was asked */

    if (ledger->answered) {
        ngx_rl_ledger_count(ledger, limit, env->now_us,
                            answer->granted
                            * ngx_rl_ledger_weight(ledger, env));

    } else {
        ngx_rl_ledger_set(ledger, limit, env->now_us + answer->reset_us, left);
    }

    ngx_rl_ledger_owe(ledger, env->now_us, answer->granted);

    *next = ngx_rl_ledger_owing(ledger, limit, env, swept, answer->granted,
                                ledger->answered ? left : 0);
}


unsigned
ngx_rl_ledger_rejects(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer)
{
    if (ledger->retry_ms == 0) {
        return 0;
    }

    /* another limit ends what this one has rejected */

    ngx_rl_ledger_begin(ledger, limit, env);

    if (ngx_rl_ledger_forgot(ledger, env)) {
        ngx_rl_ledger_forget(ledger);
    }

    /* no answer that grants tells the ledger: its clock must not go round */

    if (ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms)
        >= ledger->retry_ms)
    {
        ledger->retry_ms = 0;
    }

    if (ledger->mark != limit->mark
        || !ngx_rl_ledger_rejected(ledger, limit, env, cost))
    {
        return 0;
    }

    ngx_rl_ledger_reject(ledger, limit, env, cost, answer);

    return 1;
}


void
ngx_rl_ledger_look(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, ngx_rl_answer_t *answer)
{
    unsigned         forgot;
    ngx_rl_ledger_t  now;

    now = *ledger;
    ngx_rl_ledger_begin(&now, limit, env);
    forgot = ngx_rl_ledger_forgot(&now, env);

    if (env->behind) {
        if (!now.answered || !forgot) {
            ngx_rl_ledger_spend(&now, limit, env, 0, answer);
        }

    } else if (now.mark == limit->mark && now.answered && !forgot) {
        ngx_rl_ledger_answer(&now, limit, env->now_us, answer);
    }
}


unsigned
ngx_rl_ledger_pay(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer)
{
    ngx_rl_ledger_begin(ledger, limit, env);

    return ngx_rl_ledger_pays(ledger, limit, env->now_us, cost, answer);
}


uint32_t
ngx_rl_ledger_give(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint64_t taken_us, uint32_t tokens)
{
    uint64_t  age_us, counts_us;

    ngx_rl_ledger_begin(ledger, limit, env);

    age_us = env->now_us > taken_us ? env->now_us - taken_us : 0;
    counts_us = (uint64_t) 1000
                * ngx_rl_ledger_passed_ms(env->now_us, ledger->began_ms);

    if (!env->behind) {

        if (ledger->mark != limit->mark || !ledger->answered
            || (uint64_t) ledger->tokens + tokens > limit->capacity)
        {
            return 0;
        }

        if (ngx_rl_limit_is_bucket(limit)) {

            if (age_us > limit->window_us || age_us > NGX_RL_LEDGER_BUSY_US) {
                ngx_rl_ledger_back(ledger, limit, tokens);
                return 0;
            }

        } else if (age_us >= counts_us) {

            /*
             * Of the window before, or of the first request of this one: Redis
             * gets them, and knows. So no rejection stands.
             */

            ledger->retry_ms = 0;
            return 0;
        }

        ledger->tokens += tokens;

        return tokens;
    }

    if (ngx_rl_limit_is_bucket(limit)) {

        if (age_us > limit->window_us) {
            return tokens;             /* they have come back by themselves */
        }

    } else if (age_us >= counts_us + 1000
               || (ngx_rl_ledger_flows(limit)
                   && taken_us + limit->window_us
                      < ngx_rl_ledger_until(ledger, limit, env)))
    {
        return 0;
    }

    if ((int64_t) ledger->owed - tokens < -(int64_t) NGX_RL_MAX_TOKENS) {
        return 0;
    }

    ngx_rl_ledger_count(ledger, limit, env->now_us,
                        -(int64_t) tokens * ngx_rl_ledger_weight(ledger, env));
    ngx_rl_ledger_owe(ledger, env->now_us, -(int64_t) tokens);

    return tokens;
}


void
ngx_rl_ledger_gave(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t tokens)
{
    ngx_rl_ledger_begin(ledger, limit, env);

    if (ledger->mark == limit->mark) {
        ngx_rl_ledger_back(ledger, limit, tokens);
        ledger->shown = UINT32_MAX;
    }
}


uint32_t
ngx_rl_ledger_charge(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t tokens)
{
    uint32_t  charged;

    ngx_rl_ledger_begin(ledger, limit, env);

    if (env->behind) {
        ngx_rl_ledger_count(ledger, limit, env->now_us,
                            tokens * ngx_rl_ledger_weight(ledger, env));
        ngx_rl_ledger_owe(ledger, env->now_us, tokens);
        return tokens;
    }

    charged = 0;

    if (ledger->mark == limit->mark && ledger->answered) {
        charged = ngx_rl_ledger_min(tokens, ledger->tokens);
        ledger->tokens -= charged;
    }

    /* the rest is owed, and only Redis knows how long that is waited for */

    if (charged < tokens) {
        ledger->retry_ms = 0;
    }

    return charged;
}


unsigned
ngx_rl_ledger_alone(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    if (ledger->mark != limit->mark || ledger->tokens
        || ngx_rl_ledger_hold(ledger, limit, env)
        || !ngx_rl_ledger_may_ask(ledger, env->now_us, 0))
    {
        return 0;
    }

    ngx_rl_ledger_asks(ledger, env->now_us);

    return 1;
}


/* How old the tokens in hand are, or those that are owed back. */
static uint64_t
ngx_rl_ledger_age_us(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    uint64_t  age_us, passed_us;

    passed_us = (uint64_t) 1000
                * ngx_rl_ledger_passed_ms(env->now_us,
                                          env->behind ? ledger->owed_ms
                                                      : ledger->answered_ms);

    if (ngx_rl_limit_is_bucket(limit)) {
        return passed_us;
    }

    age_us = ngx_rl_window_age_us(limit, env->now_us,
                                  ngx_rl_ledger_until(ledger, limit, env));

    return !env->behind && passed_us > age_us ? passed_us : age_us;
}


/* Behind, tokens, rounded up; more than the capacity if there are debts. */
static int64_t
ngx_rl_ledger_used(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env)
{
    unsigned __int128  wide;
    ngx_rl_answer_t    answer;
    ngx_rl_ledger_t    now;

    if (!ngx_rl_limit_is_bucket(limit)) {
        return (int64_t) limit->capacity - ledger->left;
    }

    now = *ledger;
    ngx_rl_ledger_spend(&now, limit, env, 0, &answer);

    wide = answer.reset_us;
    wide = wide * limit->rate.scale + limit->rate.period_us - 1;

    return (int64_t) (wide / limit->rate.period_us);
}


/* Behind: what a call debits, or gives back, at most. */
static void
ngx_rl_ledger_debit(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, int64_t most, ngx_rl_ledger_call_t *call)
{
    int64_t  used, weight;

    /* what was spent while Redis was away has come back, if it is not used */

    if (ledger->owed > 0
        && ngx_rl_ledger_passed_ms(env->now_us, ledger->owed_ms)
           >= NGX_RL_LEDGER_LOST_MS + ngx_rl_ledger_slower_ms(env))
    {
        weight = ngx_rl_ledger_weight(ledger, env);
        used = (ngx_rl_ledger_used(ledger, limit, env) + weight - 1) / weight;
        ledger->owed = (int32_t) (ledger->owed < used ? ledger->owed : used);
    }

    call->owed_ms = ledger->owed_ms;
    call->asked_ms = ngx_rl_ledger_ms(env->now_us);
    call->debit = (int32_t) ngx_rl_min(ngx_rl_max(ledger->owed, -most), most);

    if (call->debit < 0) {
        call->age_us = ngx_rl_ledger_age_us(ledger, limit, env);
    }

    ledger->owed -= call->debit;
}


unsigned
ngx_rl_ledger_ask(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t head, uint32_t queued,
    ngx_rl_ledger_call_t *call)
{
    memset(call, 0, sizeof(ngx_rl_ledger_call_t));

    call->cost = head;
    call->want = queued;
    call->share = 1;

    if (ledger == NULL) {
        return head != 0;
    }

    ngx_rl_ledger_begin(ledger, limit, env);

    if (env->behind) {

        if (!ngx_rl_ledger_may_ask(ledger, env->now_us, 0)) {
            return 0;
        }

        ngx_rl_ledger_debit(ledger, limit, env, limit->capacity, call);
        call->look = call->debit ? 0 : ledger->rejected_cost;

        if (call->debit == 0 && call->look == 0) {
            return 0;
        }

        ngx_rl_ledger_asks(ledger, env->now_us);

        return 1;
    }

    if (ledger->mark != limit->mark) {
        return head != 0;
    }

    /* of a sliding window that is over */

    if (!ledger->answered && ledger->tokens) {
        call->debit = -(int32_t) ledger->tokens;
        call->age_us = ngx_rl_ledger_age_us(ledger, limit, env);
        ledger->tokens = 0;
    }

    if (head && ledger->answered) {
        call->cost = head > ledger->tokens ? head - ledger->tokens : 1;
        call->want = queued > ledger->tokens ? queued - ledger->tokens : 1;
    }

    call->ahead = ngx_rl_ledger_hold(ledger, limit, env);
    call->ahead += call->ahead / 4;

    /* the gateway that asks first gets what comes back to a spent counter */

    call->share = (ledger->strikes && ngx_rl_ledger_flows(limit))
                  ? 1 : 2 * env->gateways;

    if (call->ahead) {
        ngx_rl_ledger_asks(ledger, env->now_us);
    }

    return head || call->ahead;
}


/* Redis rounds up, and its clock stood at asked_us or later. */
static uint64_t
ngx_rl_ledger_fresh_us(uint64_t asked_us, const ngx_rl_answer_t *answer)
{
    return asked_us + answer->reset_us - ngx_rl_min(answer->reset_us, 1000);
}


/* Whether a sliding window has counted nothing and only its predecessor has. */
static unsigned
ngx_rl_ledger_before(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    return limit->algorithm == NGX_RL_SLIDING_WINDOW
           && answer->reset_us <= limit->window_us;
}


/* Whether the window is over that the answer tells of. */
static unsigned
ngx_rl_ledger_late(const ngx_rl_limit_t *limit, uint64_t asked_us,
    uint64_t now_us, const ngx_rl_answer_t *answer)
{
    if (ngx_rl_limit_is_bucket(limit)) {
        return 0;
    }

    if (limit->algorithm == NGX_RL_SLIDING_WINDOW
        && !ngx_rl_ledger_before(limit, answer))
    {
        now_us += limit->window_us;
    }

    return ngx_rl_ledger_fresh_us(asked_us, answer) <= now_us;
}


/*
 * Keeps what Redis said, at asked_us or later: the later answer, or the one
 * that leaves less. If two calls were under way at a time, nobody knows which
 * of the answers is the later one. Behind, there is one call at a time, and
 * what is owed is not in its answer; no client sees that a fixed window has
 * more again.
 */
static void
ngx_rl_ledger_learn(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint64_t asked_us,
    const ngx_rl_answer_t *answer)
{
    uint64_t         fresh_us;
    unsigned         known, later, same;
    ngx_rl_ledger_t  old;

    old = *ledger;
    fresh_us = ngx_rl_ledger_fresh_us(asked_us, answer);

    if (env->behind) {
        known = ledger->answered && !ngx_rl_ledger_forgot(ledger, env);
        later = (int32_t) (ngx_rl_ledger_ms(asked_us) - old.asked_ms) >= 0;

        /* of a window that nobody has spent of, the longest time */

        if (answer->reset_us == 0 && !ngx_rl_limit_is_bucket(limit)) {
            fresh_us = known && old.fresh_us > env->now_us
                       ? old.fresh_us : env->now_us + limit->window_us;
        }

        ngx_rl_ledger_set(ledger, limit, fresh_us, answer->remaining);
        ngx_rl_ledger_count(ledger, limit, env->now_us, ledger->owed);

    } else {
        known = ledger->answered;
        later = (int32_t) (ngx_rl_ledger_ms(asked_us) - old.answered_ms) > 0;

        ledger->fresh_us = fresh_us;
        ledger->left = answer->remaining;
    }

    same = old.fresh_us > env->now_us
           && fresh_us < old.fresh_us + limit->window_us / 2;

    if (ngx_rl_limit_is_bucket(limit)) {

        /* as a whole: behind, the rest of the bucket is of that instant */

        if (known && !later && ledger->fresh_us < old.fresh_us) {
            ledger->tb = old.tb;
        }

    } else if (same && known && old.left < ledger->left
               && (!later || (env->behind && !ngx_rl_ledger_flows(limit))))
    {
        ledger->left = old.left;
    }

    if (!env->behind) {

        if (!same) {
            ledger->shown = UINT32_MAX;
        }

        ledger->tokens = ngx_rl_ledger_min((uint64_t) ledger->tokens
                                           + answer->granted,
                                           limit->capacity);
        ledger->before = ngx_rl_ledger_before(limit, answer);
        ledger->overtaken -= (ledger->overtaken > 0);

        /* a rejection goes on, counted from this answer */

        if (ledger->retry_ms) {
            ledger->retry_ms
                -= ngx_rl_ledger_min(ngx_rl_ledger_passed_ms(env->now_us,
                                                        old.answered_ms),
                                     ledger->retry_ms);
        }
    }

    ledger->answered_ms = ngx_rl_ledger_ms(env->now_us);
    ledger->answered = 1;
}


/*
 * Counts how often in a row a fixed window was found spent; of other counters,
 * how often more than not. A sliding window counts only if this gateway got
 * less than seven eighths of what it needed. With hardly more demand than
 * tokens, a rest would cost tokens that nobody asks for any more.
 */
static void
ngx_rl_ledger_strike(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_call_t *call, const ngx_rl_answer_t *answer,
    uint32_t passed_ms)
{
    uint64_t  need;

    if (answer->retry_us == 0 && answer->remaining) {

        if (answer->granted >= (uint64_t) call->want + call->ahead) {
            ledger->strikes -= (ledger->strikes > 0);
        }

        return;
    }

    if (answer->granted && !ngx_rl_ledger_flows(limit)) {
        ledger->strikes = 0;
    }

    if (ledger->strikes && limit->algorithm == NGX_RL_SLIDING_WINDOW) {
        passed_ms = ngx_rl_ledger_min(passed_ms, NGX_RL_LEDGER_LOST_MS);
        need = (uint64_t) ledger->rate * passed_ms
               / (NGX_RL_LEDGER_HOLD_MS * NGX_RL_LEDGER_RATE_ONE);

        if ((uint64_t) answer->granted * 8 >= need * 7) {
            return;
        }
    }

    ledger->strikes += (ledger->strikes < NGX_RL_LEDGER_STRIKES);
}


/*
 * The counter cannot pay so much, until then. The reply may have been late: by
 * as much as it took longer than others, the time has begun before.
 */
static void
ngx_rl_ledger_reject_until(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint64_t asked_us, uint32_t cost,
    uint64_t retry_us)
{
    uint64_t  late_us;

    /* behind half of what its clock counts Redis is asked again */

    ledger->unnamed = (retry_us == 0 || retry_us / 1000 >= INT32_MAX);

    late_us = asked_us + (uint64_t) env->rtt_ms * 1000;
    late_us = env->now_us > late_us ? env->now_us - late_us : 0;
    retry_us -= late_us < retry_us ? late_us : retry_us;

    ledger->retry_ms = ngx_rl_ledger_min((retry_us + 999) / 1000, INT32_MAX);
    ledger->retry_ms += (ledger->retry_ms == 0);
    ledger->rejected_cost = cost;

    ngx_rl_ledger_keep(ledger, limit, env);
}


/*
 * A fixed window may owe: then a moment that Redis has named for a cost holds
 * for no higher one. left is kept below 0 by so much as it may owe. Returns 1
 * if there is nothing more to remember: a lower cost is rejected already, or
 * the next window is owed, too, and that is longer than the ledger counts.
 */
static unsigned
ngx_rl_ledger_owes(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    int32_t left, uint32_t cost, const ngx_rl_answer_t *answer)
{
    unsigned  lower, next;
    int32_t   owes;

    if (ngx_rl_ledger_flows(limit) || answer->retry_us == 0
        || answer->remaining)
    {
        return 0;
    }

    lower = (ledger->retry_ms && ledger->rejected_cost < cost);
    next = (answer->retry_us > answer->reset_us + 1000);

    owes = (int32_t) cost - (int32_t) limit->capacity;
    ledger->left = next ? 0 : owes;

    if (lower && left < 0 && (next || left > owes)) {
        ledger->left = left;
    }

    if (next && answer->retry_us / 1000 >= INT32_MAX) {
        ledger->retry_ms = lower ? ledger->retry_ms : 0;
        return 1;
    }

    return lower;
}


static unsigned
ngx_rl_ledger_fill_behind(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint64_t asked_us,
    const ngx_rl_ledger_call_t *call, const ngx_rl_answer_t *answer)
{
    ledger->asking = 0;

    /* what is left by tokens that weighed more is no bound of the answer */

    if (ngx_rl_ledger_weight(ledger, env) > 1) {
        ledger->answered = 0;
    }

    ledger->away = 0;

    /* a fixed window's that is over says nothing of this one */

    if (limit->algorithm == NGX_RL_FIXED_WINDOW
        && ngx_rl_ledger_late(limit, asked_us, env->now_us, answer))
    {
        return 0;
    }

    ledger->rejected_cost = 0;
    ledger->retry_ms = 0;

    /* the counter was reset since */

    if (env->forgot_us && env->forgot_us >= asked_us) {
        ledger->answered = 0;
        return 0;
    }

    ngx_rl_ledger_learn(ledger, limit, env, asked_us, answer);

    /* beyond half of what its clock counts Redis is asked again */

    if (call->look && answer->retry_us && answer->retry_us / 1000 < INT32_MAX
        && limit->algorithm == NGX_RL_SLIDING_WINDOW)
    {
        ledger->rejected_cost = call->look;
        ledger->retry_ms = (uint32_t) (answer->retry_us / 1000) + 1;
    }

    return 1;
}


unsigned
ngx_rl_ledger_fill(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint64_t asked_us,
    const ngx_rl_ledger_call_t *call, const ngx_rl_answer_t *answer)
{
    int32_t   left;
    uint32_t  passed_ms;
    uint64_t  full_us, next_us;
    unsigned  another;

    ngx_rl_ledger_begin(ledger, limit, env);

    if (env->behind) {
        return ngx_rl_ledger_fill_behind(ledger, limit, env, asked_us, call,
                                         answer);
    }

    if (ledger->mark != limit->mark) {
        return 0;
    }

    ledger->asking = 0;

    if (ngx_rl_ledger_late(limit, asked_us, env->now_us, answer)) {
        return 0;
    }

    if (!ledger->answered) {

        /* those of the sliding window that is over: too late to go back */
        ledger->tokens = 0;
        ledger->began_ms = ngx_rl_ledger_ms(env->now_us);
    }

    /* calls of two workers that were under way at a time are one rejection */

    another = ledger->strikes == 0
              || (int32_t) (ngx_rl_ledger_ms(asked_us) - ledger->answered_ms)
                 > 0;

    passed_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->answered_ms);

    /* it was reset meanwhile: there may be more than answers have named */

    if (ngx_rl_ledger_forgot(ledger, env)) {
        ledger->shown = UINT32_MAX;
    }

    left = ledger->left;

    ngx_rl_ledger_learn(ledger, limit, env, asked_us, answer);

    if (answer->retry_us == NGX_RL_NEVER) {
        return 1;
    }

    /* of the counter as it was before it was reset: rejects nothing */

    if (env->forgot_us && env->forgot_us >= asked_us) {
        ledger->retry_ms = 0;
        return 1;
    }

    if (answer->granted || answer->remaining >= ledger->rejected_cost) {
        ledger->retry_ms = 0;
    }

    if (another) {
        ngx_rl_ledger_strike(ledger, limit, call, answer, passed_ms);
    }

    if (ngx_rl_ledger_owes(ledger, limit, left, call->cost, answer)) {
        return 1;
    }

    if (answer->retry_us) {
        ngx_rl_ledger_reject_until(ledger, limit, env, asked_us, call->cost,
                                   answer->retry_us);

    } else if (answer->remaining == 0
               && limit->algorithm != NGX_RL_SLIDING_LOG)
    {
        /*
         * An empty counter has a token again; a sliding window does not say. Of
         * a log only a rejection tells when the oldest entry is over.
         */

        full_us = ngx_rl_limit_is_bucket(limit)
                  ? limit->window_us - limit->rate.step_us : 0;
        next_us = limit->algorithm != NGX_RL_SLIDING_WINDOW
                  && answer->reset_us > full_us
                  ? answer->reset_us - full_us : 0;

        ngx_rl_ledger_reject_until(ledger, limit, env, asked_us, 1, next_us);
    }

    return 1;
}


unsigned
ngx_rl_ledger_lost(const ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint64_t asked_us,
    const ngx_rl_ledger_call_t *call, const ngx_rl_answer_t *answer)
{
    int64_t   used, all;
    uint64_t  until_us;

    /* another worker's answer may have come between; their clocks differ */

    if (!ledger->answered || ledger->mark != limit->mark
        || ngx_rl_ledger_weight(ledger, env) > 1
        || (int32_t) (ngx_rl_ledger_ms(asked_us) - ledger->answered_ms)
           < NGX_RL_LEDGER_SPACE_MS)
    {
        return 0;
    }

    all = limit->capacity;
    until_us = ngx_rl_ledger_until(ledger, limit, env);

    if (env->behind) {

        /* what Redis had before the call */

        used = ngx_rl_ledger_used(ledger, limit, env) - ledger->owed
               - call->debit;

        if (ngx_rl_limit_is_bucket(limit)) {
            until_us = env->now_us
                       + (used > 0 ? used : 0) * limit->rate.step_us;
        }

    } else if (ngx_rl_limit_is_bucket(limit)) {
        until_us = ledger->fresh_us - ledger->tokens * limit->rate.step_us;
        used = (int64_t) (until_us - env->now_us);
        all = (int64_t) limit->window_us;

    } else {
        used = all - (ledger->left > 0 ? ledger->left : 0) - ledger->tokens;
    }

    return (uint64_t) answer->granted + answer->remaining >= limit->capacity
           && !ngx_rl_ledger_forgot(ledger, env)
           && used > 0 && (env->gateways <= 1 || used > all / 2)
           && (int64_t) (until_us - env->now_us) > NGX_RL_LEDGER_BUSY_US;
}


void
ngx_rl_ledger_failed(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, const ngx_rl_ledger_call_t *call)
{
    ledger->asking = 0;

    if (!env->behind) {
        return;
    }

    ngx_rl_ledger_begin(ledger, limit, env);
    ledger->asked_ms = ngx_rl_ledger_ms(env->now_us);
    ledger->away = 1;

    /* what was spent of a fixed window is none of the next one's */

    if (call->debit == 0
        || (limit->algorithm == NGX_RL_FIXED_WINDOW
            && (int32_t) (ledger->began_ms - call->asked_ms) > 0))
    {
        return;
    }

    ngx_rl_ledger_owe(ledger, env->now_us, call->debit);
    ledger->owed_ms = call->owed_ms;
}


static unsigned
ngx_rl_ledger_sweep_behind(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, unsigned all, ngx_rl_ledger_call_t *call)
{
    /* nobody hears the answer to a worker that ends */

    if (all) {
        ngx_rl_ledger_begin(ledger, limit, env);
        ngx_rl_ledger_debit(ledger, limit, env, NGX_RL_MAX_TOKENS, call);
        return 0;
    }

    ngx_rl_ledger_pass(ledger, limit, env->now_us);

    /* nobody takes the place of one that is still to give back */

    if (ledger->owed < 0 || !ngx_rl_ledger_may_ask(ledger, env->now_us, 0)) {
        ngx_rl_ledger_busy(ledger, env->now_us + NGX_RL_LEDGER_BUSY_US);
    }

    /* several workers sweep: one of them calls in an interval */

    return ledger->owed != 0
           && ngx_rl_ledger_may_ask(ledger, env->now_us,
                                    ngx_rl_ledger_apart_ms(ledger, limit, env));
}


unsigned
ngx_rl_ledger_sweep(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, unsigned all, ngx_rl_ledger_call_t *call)
{
    uint32_t  passed_ms, keep, back;
    unsigned  idle;

    memset(call, 0, sizeof(ngx_rl_ledger_call_t));

    if (env->behind) {
        return ngx_rl_ledger_sweep_behind(ledger, limit, env, all, call);
    }

    if (env->now_us >= ledger->busy_us) {
        return 0;
    }

    call->age_us = ngx_rl_ledger_age_us(ledger, limit, env);

    passed_ms = ngx_rl_ledger_passed_ms(env->now_us, ledger->tick_ms);
    idle = ledger->count == 0 && passed_ms >= NGX_RL_LEDGER_HOLD_MS;

    /* silence is counted from one instant, however many workers sweep */

    if (ledger->count && passed_ms >= NGX_RL_LEDGER_TICK_MS) {
        ngx_rl_ledger_tick(ledger, passed_ms);
    }

    if (ledger->mark == limit->mark) {
        ngx_rl_ledger_epoch(ledger, limit, env);

    } else if (!all) {
        return 0;
    }

    keep = (all || idle || !ledger->answered)
           ? 0 : ngx_rl_ledger_hold(ledger, limit, env);

    /* a call brings a quarter more, on top of what was in hand */

    keep += keep / 2;

    if (ledger->tokens > keep) {
        back = ledger->tokens - keep;
        ledger->tokens = keep;
        ngx_rl_ledger_back(ledger, limit, back);
        call->debit = -(int32_t) back;
    }

    return 0;
}

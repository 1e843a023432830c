/*
 * The calls of refills, and what becomes of an answer: it fills the lease, out
 * of which the requests that wait are paid in their order.
 */

#include "ngx_rl_refill.h"
#include "ngx_rl_script.h"

/* paid under one lock */
#define NGX_RL_REFILL_BATCH  64


void
ngx_rl_refill_leave(ngx_rl_counter_t *counter)
{
    ngx_rl_refill_t   *refill;
    ngx_rl_remote_t   *remote;
    ngx_rl_refills_t  *refills;

    remote = counter->remote;
    refill = remote->refill;

    if (refill == NULL) {
        return;
    }

    refills = refill->refills;

    refill->queued -= counter->cost;
    remote->refill = NULL;
    ngx_queue_remove(&remote->queue);
    ngx_queue_remove(&remote->wait);

    if (ngx_queue_empty(&refills->waits) && refills->wait.timer_set) {
        ngx_del_timer(&refills->wait);
    }
}


/* The counter has its answer: Redis', or what it gets instead. */
static void
ngx_rl_refill_complete(ngx_rl_counter_t *counter)
{
    ngx_rl_refill_leave(counter);

    if (counter->source == NGX_RL_SOURCE_NONE) {
        counter->source = NGX_RL_SOURCE_REDIS;
    }

    ngx_rl_check_answered(counter->client->check);
}


void
ngx_rl_refill_fail(ngx_rl_counter_t *counter, ngx_rl_redis_status_e status,
    ngx_msec_t wait_ms)
{
    ngx_rl_fallback(counter, status, wait_ms);
    ngx_rl_refill_complete(counter);
}


/* Redis has no answer for all that wait. */
static void
ngx_rl_refill_fail_all(ngx_rl_refill_t *refill, ngx_rl_redis_status_e status,
    ngx_msec_t wait_ms)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&refill->waiting)) {
        q = ngx_queue_head(&refill->waiting);
        ngx_rl_refill_fail(ngx_rl_refill_counter(q, queue), status, wait_ms);
    }
}


/* The same under async: what is owed, of this worker and in the ledger. */
static ngx_int_t
ngx_rl_refill_tell(ngx_rl_refill_t *refill, ngx_rl_refill_call_t *call)
{
    uint32_t          owed;
    ngx_rl_async_t   *async;
    ngx_rl_locked_t   locked;

    ngx_memzero(&call->told, sizeof(ngx_rl_async_call_t));

    async = ngx_rl_leased_lock(&refill->counter, 1, &locked);
    call->asked_us = locked.env.now_us;

    if (async) {
        ngx_rl_async_call(async, &refill->limit, &locked.env, 0, &call->told);
        ngx_rl_leased_unlock(&locked);
    }

    if (call->told.debit >= 0) {
        owed = refill->limit.capacity - (uint32_t) call->told.debit;
        owed = ngx_min(owed, refill->owed);

        refill->owed -= owed;
        refill->gave = 0;
        call->told.debit += (int32_t) owed;
    }

    return (call->told.debit || call->told.look) ? NGX_OK : NGX_DECLINED;
}


void
ngx_rl_refill_give(ngx_rl_refill_t *refill, uint32_t tokens, uint64_t age_us)
{
    ngx_rl_script_give(&refill->counter, tokens, age_us);

    if (refill->note) {
        ngx_rl_local_give(&refill->counter, tokens);
    }
}


/* NGX_DECLINED: there is nothing to ask for. */
static ngx_int_t
ngx_rl_refill_size(ngx_rl_refill_t *refill, ngx_rl_refill_call_t *call)
{
    uint32_t           back, queued;
    uint64_t           age_us;
    ngx_queue_t       *q;
    ngx_rl_lease_t    *lease;
    ngx_rl_locked_t    locked;
    ngx_rl_counter_t  *counter;

    call->head = 0;

    if (ngx_rl_refill_async(refill)) {
        return ngx_rl_refill_tell(refill, call);
    }

    if (!ngx_queue_empty(&refill->waiting)) {
        q = ngx_queue_head(&refill->waiting);
        counter = ngx_rl_refill_counter(q, queue);
        call->head = counter->cost;
    }

    queued = ngx_min(refill->queued, NGX_RL_MAX_TOKENS);
    back = 0;
    age_us = 0;

    lease = ngx_rl_leased_lock(&refill->counter, 1, &locked);
    call->asked_us = locked.env.now_us;

    if (lease) {
        back = ngx_rl_lease_stale(lease, &refill->limit, &locked.env);
        age_us = ngx_rl_lease_age_us(lease, &refill->limit, locked.env.now_us);
    }

    ngx_rl_lease_size(lease, &refill->limit, &locked.env, call->head,
                      queued, &call->ask);
    ngx_rl_leased_unlock(&locked);

    if (back) {
        ngx_rl_refill_give(refill, back, age_us);
    }

    return (call->head || call->ask.ahead) ? NGX_OK : NGX_DECLINED;
}


/* Returns how many of the tokens are not in the lease. */
static uint32_t
ngx_rl_refill_fill(ngx_rl_refill_t *refill, const ngx_rl_refill_call_t *call,
    const ngx_rl_answer_t *answer)
{
    void             *lease;
    uint32_t          tokens;
    unsigned          lost;
    ngx_rl_locked_t   locked;

    tokens = answer->granted;

    lease = ngx_rl_leased_lock(&refill->counter, 1, &locked);
    if (lease == NULL) {
        return tokens;
    }

    if (ngx_rl_refill_async(refill)) {
        lost = ngx_rl_async_lost(lease, &refill->limit, &locked.env,
                                 call->asked_us, &call->told, answer);
        ngx_rl_async_answered(lease, &refill->limit, &locked.env,
                              call->asked_us, &call->told, answer);

    } else {
        lost = ngx_rl_lease_lost(lease, &refill->limit, &locked.env,
                                 call->asked_us, answer);

        if (ngx_rl_lease_fill(lease, &refill->limit, &locked.env,
                              call->asked_us, &call->ask, answer))
        {
            tokens = 0;
        }
    }

    ngx_rl_leased_unlock(&locked);

    if (lost) {
        ngx_rl_leased_lost(&refill->counter);
    }

    return tokens;
}


/* As many as are good for one lock; they go on waiting. */
static ngx_uint_t
ngx_rl_refill_pay_some(ngx_rl_refill_t *refill, ngx_rl_counter_t **paid)
{
    ngx_uint_t         n;
    ngx_queue_t       *q;
    ngx_rl_lease_t    *lease;
    ngx_rl_locked_t    locked;
    ngx_rl_counter_t  *counter;

    lease = ngx_rl_leased_lock(&refill->counter, 0, &locked);
    if (lease == NULL) {
        return 0;
    }

    n = 0;

    for (q = ngx_queue_head(&refill->waiting);
         q != ngx_queue_sentinel(&refill->waiting)
         && n < NGX_RL_REFILL_BATCH;
         q = ngx_queue_next(q))
    {
        counter = ngx_rl_refill_counter(q, queue);

        if (!ngx_rl_lease_pay(lease, &refill->limit, &locked.env,
                              counter->cost, &counter->answer))
        {
            break;
        }

        paid[n++] = counter;
    }

    ngx_rl_leased_unlock(&locked);

    return n;
}


/* Pays the requests that wait out of the lease, in their order. */
static void
ngx_rl_refill_pay(ngx_rl_refill_t *refill)
{
    ngx_uint_t         i, n;
    ngx_rl_counter_t  *paid[NGX_RL_REFILL_BATCH];

    do {
        n = ngx_rl_refill_pay_some(refill, paid);

        /* what follows are posted events: all of these stay meanwhile */

        for (i = 0; i < n; i++) {
            ngx_rl_refill_complete(paid[i]);
        }

    } while (n == NGX_RL_REFILL_BATCH);
}


/*
 * The same without a lease: those that wait get what Redis has granted. Returns
 * how many tokens are left of that.
 */
static uint32_t
ngx_rl_refill_spend(ngx_rl_refill_t *refill, const ngx_rl_answer_t *answer,
    uint32_t tokens)
{
    ngx_queue_t       *q;
    ngx_rl_counter_t  *counter;

    while (!ngx_queue_empty(&refill->waiting)) {
        q = ngx_queue_head(&refill->waiting);
        counter = ngx_rl_refill_counter(q, queue);

        if (counter->cost > tokens) {
            break;
        }

        tokens -= counter->cost;

        counter->answer = *answer;
        counter->answer.granted = counter->cost;
        counter->answer.remaining = ngx_min(answer->remaining + tokens,
                                            refill->limit.capacity);
        ngx_rl_refill_complete(counter);
    }

    return tokens;
}


/* Redis cannot pay the first: nor those that cost no less. */
static void
ngx_rl_refill_deny(ngx_rl_refill_t *refill, uint32_t head,
    const ngx_rl_answer_t *answer)
{
    ngx_queue_t       *q, *next;
    ngx_rl_counter_t  *counter;

    for (q = ngx_queue_head(&refill->waiting);
         q != ngx_queue_sentinel(&refill->waiting);
         q = next)
    {
        /* one that was removed is not met: the analyzer cannot know */
        next = ngx_queue_next(q);   /* NOLINT(clang-analyzer-*) */
        counter = ngx_rl_refill_counter(q, queue);

        if (counter->cost < head) {
            continue;
        }

        counter->answer = *answer;
        counter->answer.granted = 0;
        counter->answer.remaining = ngx_min(answer->remaining,
                                            counter->cost - 1);

        if (counter->cost > refill->limit.capacity) {
            counter->answer.retry_us = NGX_RL_NEVER;

        } else if (counter->cost > head && answer->retry_us != NGX_RL_NEVER) {
            counter->answer.retry_us += (uint64_t) (counter->cost - head)
                                        * (refill->limit.rate.step_us + 1);
        }

        ngx_rl_refill_complete(counter);
    }
}


static void
ngx_rl_refill_answered(ngx_rl_refill_t *refill,
    const ngx_rl_refill_call_t *call, const ngx_rl_answer_t *answer)
{
    uint32_t           tokens;
    ngx_msec_t         passed;
    ngx_rl_refills_t  *refills;

    refills = refill->refills;

    passed = ngx_current_msec - (ngx_msec_t) (call->asked_us / 1000);
    passed = ngx_min(passed, refills->limiter->redis->timeout);
    refills->rtt = refills->rtt - refills->rtt / 8 + passed * 2;

    tokens = ngx_rl_refill_fill(refill, call, answer);

    if (ngx_rl_refill_async(refill)) {

        /*
         * This gateway's own counter, which decides where there is no lease,
         * has no more left than Redis. An answer of a window that is over by
         * now says nothing of this one.
         */

        if (answer->reset_us > ngx_rl_local_now_us() - call->asked_us
            && !ngx_rl_forgotten(refills->limiter, call->asked_us))
        {
            ngx_rl_local_lower(&refill->counter,
                               answer->remaining + refill->gave);
        }

        return;
    }

    refill->counter.answer = *answer;

    if (refill->note) {
        ngx_rl_fallback_note(&refill->counter, call->asked_us);
    }

    if (tokens == 0) {
        ngx_rl_refill_pay(refill);

    } else {
        tokens = ngx_rl_refill_spend(refill, answer, tokens);

        if (tokens) {
            ngx_rl_refill_give(refill, tokens,
                               ngx_rl_counter_age_us(&refill->counter,
                                                     call->asked_us));
        }
    }

    if (call->head && answer->retry_us) {
        ngx_rl_refill_deny(refill, call->head, answer);
    }
}


/* Redis was not told, or may have been. */
static void
ngx_rl_refill_failed(ngx_rl_refill_t *refill, ngx_rl_refill_call_t *call,
    unsigned ran)
{
    void             *lease;
    ngx_rl_locked_t   locked;

    lease = ngx_rl_leased_lock(&refill->counter, 0, &locked);
    if (lease == NULL) {
        return;
    }

    if (!ngx_rl_refill_async(refill)) {
        ngx_rl_lease_failed(lease);

    } else {
        call->told.debit = ran ? 0 : call->told.debit;
        ngx_rl_async_failed(lease, &refill->limit, &locked.env, &call->told);
    }

    ngx_rl_leased_unlock(&locked);
}


static void
ngx_rl_refill_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_refill_call_t *call = data;

    ngx_uint_t                     last;
    ngx_rl_answer_t         answer;
    ngx_rl_refill_t        *refill;
    ngx_rl_redis_status_e   status;

    refill = call->refill;
    last = (refill->call == call);

    if (last) {
        refill->call = NULL;
    }

    if (result->again) {
        ngx_rl_refill_fail_all(refill, result->status, result->wait_ms);
        return;
    }

    ngx_queue_remove(&call->queue);

    status = ngx_rl_script_read(result, 0, &refill->limit, &answer);

    if (status == NGX_RL_REDIS_OK) {
        ngx_rl_refill_answered(refill, call, &answer);

        if (!ngx_queue_empty(&refill->waiting) && refill->call == NULL) {
            ngx_rl_refill_call(refill);
        }

    } else if (last || ngx_rl_refill_async(refill)) {
        ngx_rl_refill_failed(refill, call, result->ran);
        ngx_rl_refill_fail_all(refill, status, result->wait_ms);
    }

    ngx_free(call);
}


/* For those that wait and ahead of others; or to tell, async. */
void
ngx_rl_refill_call(ngx_rl_refill_t *refill)
{
    ngx_rl_refill_call_t  *call;

    call = ngx_alloc(sizeof(ngx_rl_refill_call_t), refill->refills->log);

    if (call == NULL) {
        ngx_rl_refill_fail_all(refill, NGX_RL_REDIS_UNREACHABLE, 0);
        return;
    }

    call->refill = refill;

    if (ngx_rl_refill_size(refill, call) != NGX_OK) {
        ngx_free(call);
        return;
    }

    if ((ngx_rl_refill_async(refill)
         ? ngx_rl_script_tell(&refill->counter, &call->told,
                              ngx_rl_refill_handler, call)
         : ngx_rl_script_ask(&refill->counter, &call->ask,
                             ngx_rl_refill_handler, call))
        == NULL)
    {
        ngx_rl_refill_failed(refill, call, 0);
        ngx_free(call);
        ngx_rl_refill_fail_all(refill, NGX_RL_REDIS_UNREACHABLE, 0);
        return;
    }

    refill->call = call;
    ngx_queue_insert_tail(&refill->calls, &call->queue);
}

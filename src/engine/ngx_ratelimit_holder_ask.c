/*
 * What a holder asks of Redis, and what becomes of the answer: it fills the
 * lease, out of which those that wait are paid in their order.
 */

#include "ngx_ratelimit_holder.h"

/* paid under one lock */
#define NGX_RATELIMIT_HOLDER_BATCH  64

static ngx_int_t ngx_ratelimit_holder_size(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_holder_ask_t *ask);
static void ngx_ratelimit_holder_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_holder_answered(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_holder_ask_t *ask,
    const ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_holder_lower(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_holder_ask_t *ask,
    const ngx_ratelimit_answer_t *answer);
static uint32_t ngx_ratelimit_holder_fill(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_holder_ask_t *ask,
    const ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_holder_pay(ngx_ratelimit_holder_t *holder);
static ngx_uint_t ngx_ratelimit_holder_pay_some(
    ngx_ratelimit_holder_t *holder, ngx_ratelimit_counter_t **paid);
static uint32_t ngx_ratelimit_holder_spend(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_answer_t *answer, uint32_t tokens);
static void ngx_ratelimit_holder_deny(ngx_ratelimit_holder_t *holder,
    uint32_t head, const ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_holder_failed(ngx_ratelimit_holder_t *holder);
static void ngx_ratelimit_holder_fail(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_redis_status_e status, ngx_msec_t wait_ms);


/* For those that wait and ahead of others; or to debit, async. */
void
ngx_ratelimit_holder_ask(ngx_ratelimit_holder_t *holder)
{
    ngx_ratelimit_holder_ask_t  *ask;

    ask = ngx_alloc(sizeof(ngx_ratelimit_holder_ask_t), holder->holders->log);

    if (ask == NULL) {
        ngx_ratelimit_holder_fail(holder, NGX_RATELIMIT_REDIS_UNREACHABLE, 0);
        return;
    }

    ask->holder = holder;

    if (ngx_ratelimit_holder_size(holder, ask) != NGX_OK) {
        ngx_free(ask);
        return;
    }

    if (ngx_ratelimit_remote_ask(&holder->counter, &ask->ask,
                                 ngx_ratelimit_holder_handler, ask)
        == NULL)
    {
        ngx_free(ask);
        ngx_ratelimit_holder_fail(holder, NGX_RATELIMIT_REDIS_UNREACHABLE, 0);
        return;
    }

    holder->ask = ask;
    ngx_queue_insert_tail(&holder->asks, &ask->queue);
}


/* NGX_DECLINED: there is nothing to ask for. */
static ngx_int_t
ngx_ratelimit_holder_size(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_holder_ask_t *ask)
{
    uint32_t                      back, queued;
    uint64_t                      age_us;
    ngx_queue_t                  *q;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_counter_t      *counter;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;
    ngx_ratelimit_leased_env(limiter, &env);

    ask->asked_us = env.now_us;
    ask->head = 0;

    if (!ngx_queue_empty(&holder->waiting)) {
        q = ngx_queue_head(&holder->waiting);
        counter = ngx_queue_data(q, ngx_ratelimit_counter_t, queue);
        ask->head = counter->cost;
    }

    queued = ngx_min(holder->queued, NGX_RATELIMIT_MAX_TOKENS);
    back = 0;
    age_us = 0;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 1,
                                      env.now_us, &entry);

    if (ngx_ratelimit_holder_async(holder)) {
        ngx_memzero(&ask->ask, sizeof(ngx_ratelimit_lease_ask_t));
        ask->ask.want = lease ? ngx_ratelimit_async_debt(lease) : 0;
        ngx_ratelimit_leases_unlock(&entry);

        ask->debt = ask->ask.want;
        ask->ask.want = ngx_min(ask->debt + holder->owed,
                                NGX_RATELIMIT_MAX_TOKENS);
        holder->owed = 0;
        holder->gave = 0;
        return NGX_OK;
    }

    if (lease) {
        back = ngx_ratelimit_lease_stale(lease, &holder->limit, &env);
        age_us = ngx_ratelimit_lease_age_us(lease, &holder->limit, env.now_us);
    }

    ngx_ratelimit_lease_size(lease, &holder->limit, &env, ask->head, queued,
                             &ask->ask);
    ngx_ratelimit_leases_unlock(&entry);

    if (back) {
        ngx_ratelimit_holder_give(holder, back, age_us);
    }

    return (ask->head || ask->ask.ahead) ? NGX_OK : NGX_DECLINED;
}


static void
ngx_ratelimit_holder_handler(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_holder_ask_t *ask = data;

    ngx_uint_t                     last;
    ngx_ratelimit_answer_t         answer;
    ngx_ratelimit_holder_t        *holder;
    ngx_ratelimit_redis_status_e   status;

    holder = ask->holder;
    last = (holder->ask == ask);
    status = result->status;

    if (last) {
        holder->ask = NULL;
    }

    if (result->again) {
        ngx_ratelimit_holder_fail(holder, status, result->wait_ms);
        return;
    }

    ngx_queue_remove(&ask->queue);

    if (status == NGX_RATELIMIT_REDIS_OK
        && (result->n < NGX_RATELIMIT_REMOTE_VALUES
            || ngx_ratelimit_remote_read(result->values, &holder->limit,
                                         &answer)
               != NGX_OK))
    {
        status = NGX_RATELIMIT_REDIS_PROTOCOL;
    }

    if (status == NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_holder_answered(holder, ask, &answer);

        if (!ngx_queue_empty(&holder->waiting) && holder->ask == NULL) {
            ngx_ratelimit_holder_ask(holder);
        }

    } else if (last) {
        ngx_ratelimit_holder_failed(holder);
        ngx_ratelimit_holder_fail(holder, status, result->wait_ms);
    }

    ngx_free(ask);
}


static void
ngx_ratelimit_holder_answered(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_holder_ask_t *ask,
    const ngx_ratelimit_answer_t *answer)
{
    uint32_t                  tokens;
    ngx_msec_t                passed;
    ngx_ratelimit_holders_t  *holders;

    holders = holder->holders;

    passed = ngx_current_msec - (ngx_msec_t) (ask->asked_us / 1000);
    passed = ngx_min(passed, holders->limiter->redis->timeout);
    holders->rtt = holders->rtt - holders->rtt / 8 + passed * 2;

    tokens = ngx_ratelimit_holder_fill(holder, ask, answer);

    if (ngx_ratelimit_holder_async(holder)) {
        ngx_ratelimit_holder_lower(holder, ask, answer);
        return;
    }

    holder->counter.answer = *answer;

    if (holder->note) {
        ngx_ratelimit_fallback_note(&holder->counter, ask->asked_us);
    }

    if (tokens == 0) {
        ngx_ratelimit_holder_pay(holder);

    } else {
        tokens = ngx_ratelimit_holder_spend(holder, answer, tokens);

        if (tokens) {
            ngx_ratelimit_holder_give(holder, tokens,
                     ngx_ratelimit_remote_age_us(&holder->counter,
                                                 ask->asked_us));
        }
    }

    if (ask->head && answer->retry_us) {
        ngx_ratelimit_holder_deny(holder, ask->head, answer);
    }
}


/*
 * Async: this gateway's own counter, which decides where there is no lease, has
 * no more left than Redis. An answer of a window that is over by now says
 * nothing of this one.
 */
static void
ngx_ratelimit_holder_lower(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_holder_ask_t *ask,
    const ngx_ratelimit_answer_t *answer)
{
    uint64_t  passed_us;

    passed_us = ngx_ratelimit_local_now_us() - ask->asked_us;

    if (answer->reset_us > passed_us
        && !ngx_ratelimit_forgotten(holder->client.limiter, ask->asked_us))
    {
        ngx_ratelimit_local_lower(&holder->counter,
                                  answer->remaining + holder->gave);
    }
}


/* Returns how many of the tokens are not in the lease. */
static uint32_t
ngx_ratelimit_holder_fill(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_holder_ask_t *ask,
    const ngx_ratelimit_answer_t *answer)
{
    uint32_t                      tokens;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;
    ngx_ratelimit_leased_env(limiter, &env);
    tokens = answer->granted;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 1,
                                      env.now_us, &entry);
    if (lease == NULL) {
        return tokens;
    }

    if (ngx_ratelimit_holder_async(holder)) {
        ngx_ratelimit_async_fill(lease, &holder->limit, &env, ask->asked_us,
                                 ask->debt, answer);
        tokens = 0;

    } else if (ngx_ratelimit_lease_fill(lease, &holder->limit, &env,
                                        ask->asked_us, &ask->ask, answer))
    {
        tokens = 0;
    }

    ngx_ratelimit_leases_unlock(&entry);

    return tokens;
}


/* Those that wait are paid out of the lease, in their order. */
static void
ngx_ratelimit_holder_pay(ngx_ratelimit_holder_t *holder)
{
    ngx_uint_t                i, n;
    ngx_ratelimit_counter_t  *paid[NGX_RATELIMIT_HOLDER_BATCH];

    do {
        n = ngx_ratelimit_holder_pay_some(holder, paid);

        /* what follows are posted events: all of these stay meanwhile */

        for (i = 0; i < n; i++) {
            ngx_ratelimit_holder_complete(paid[i]);
        }

    } while (n == NGX_RATELIMIT_HOLDER_BATCH);
}


/* As many as are good for one lock; they go on waiting. */
static ngx_uint_t
ngx_ratelimit_holder_pay_some(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_counter_t **paid)
{
    ngx_uint_t                    n;
    ngx_queue_t                  *q;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_counter_t      *counter;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;
    ngx_ratelimit_leased_env(limiter, &env);

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 0,
                                      env.now_us, &entry);
    if (lease == NULL) {
        return 0;
    }

    n = 0;

    for (q = ngx_queue_head(&holder->waiting);
         q != ngx_queue_sentinel(&holder->waiting)
         && n < NGX_RATELIMIT_HOLDER_BATCH;
         q = ngx_queue_next(q))
    {
        counter = ngx_queue_data(q, ngx_ratelimit_counter_t, queue);

        if (!ngx_ratelimit_lease_pay(lease, &holder->limit, &env,
                                     counter->cost, &counter->answer))
        {
            break;
        }

        paid[n++] = counter;
    }

    ngx_ratelimit_leases_unlock(&entry);

    return n;
}


/*
 * The same without a lease: those that wait get what Redis has granted. Returns
 * how many tokens are left of that.
 */
static uint32_t
ngx_ratelimit_holder_spend(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_answer_t *answer, uint32_t tokens)
{
    ngx_queue_t              *q;
    ngx_ratelimit_counter_t  *counter;

    while (!ngx_queue_empty(&holder->waiting)) {
        q = ngx_queue_head(&holder->waiting);
        counter = ngx_queue_data(q, ngx_ratelimit_counter_t, queue);

        if (counter->cost > tokens) {
            break;
        }

        tokens -= counter->cost;

        counter->answer = *answer;
        counter->answer.granted = counter->cost;
        counter->answer.remaining = ngx_min(answer->remaining + tokens,
                                            holder->limit.capacity);
        ngx_ratelimit_holder_complete(counter);
    }

    return tokens;
}


/* Redis cannot pay the first: nor those that cost no less. */
static void
ngx_ratelimit_holder_deny(ngx_ratelimit_holder_t *holder, uint32_t head,
    const ngx_ratelimit_answer_t *answer)
{
    ngx_queue_t              *q, *next;
    ngx_ratelimit_counter_t  *counter;

    for (q = ngx_queue_head(&holder->waiting);
         q != ngx_queue_sentinel(&holder->waiting);
         q = next)
    {
        next = ngx_queue_next(q);
        counter = ngx_queue_data(q, ngx_ratelimit_counter_t, queue);

        if (counter->cost < head) {
            continue;
        }

        counter->answer = *answer;
        counter->answer.granted = 0;
        counter->answer.remaining = ngx_min(answer->remaining,
                                            counter->cost - 1);

        if (counter->cost > holder->limit.capacity) {
            counter->answer.retry_us = NGX_RATELIMIT_NEVER;

        } else if (counter->cost > head
                   && answer->retry_us != NGX_RATELIMIT_NEVER)
        {
            counter->answer.retry_us += (uint64_t) (counter->cost - head)
                                        * (holder->limit.rate.step_us + 1);
        }

        ngx_ratelimit_holder_complete(counter);
    }
}


void
ngx_ratelimit_holder_give(ngx_ratelimit_holder_t *holder, uint32_t tokens,
    uint64_t age_us)
{
    ngx_ratelimit_remote_give(&holder->counter, tokens, age_us);

    if (holder->note) {
        ngx_ratelimit_local_give(&holder->counter, tokens);
    }
}


/*
 * What was asked for ahead of need may be asked for again, and what is to be
 * debited will be by the next sweep.
 */
static void
ngx_ratelimit_holder_failed(ngx_ratelimit_holder_t *holder)
{
    uint64_t                      now_us;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;

    now_us = ngx_ratelimit_local_now_us();

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 0,
                                      now_us, &entry);
    if (lease == NULL) {
        return;
    }

    if (ngx_ratelimit_holder_async(holder)) {
        ngx_ratelimit_async_failed(lease, now_us);

    } else {
        ngx_ratelimit_lease_failed(lease);
    }

    ngx_ratelimit_leases_unlock(&entry);
}


/* Redis has no answer for all that wait. */
static void
ngx_ratelimit_holder_fail(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_redis_status_e status, ngx_msec_t wait_ms)
{
    ngx_queue_t              *q;
    ngx_ratelimit_counter_t  *counter;

    while (!ngx_queue_empty(&holder->waiting)) {
        q = ngx_queue_head(&holder->waiting);
        counter = ngx_queue_data(q, ngx_ratelimit_counter_t, queue);

        counter->reason = status;
        ngx_ratelimit_fallback(counter, wait_ms);
        ngx_ratelimit_holder_complete(counter);
    }
}


void
ngx_ratelimit_holder_complete(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_holder_leave(counter);

    if (counter->source == NGX_RATELIMIT_SOURCE_NONE) {
        counter->source = NGX_RATELIMIT_SOURCE_REDIS;
    }

    ngx_ratelimit_check_answered(counter->client->check);
}

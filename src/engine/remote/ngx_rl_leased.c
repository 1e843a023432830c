/*
 * Counters in Redis that this gateway answers for: out of a lease (sync=lease),
 * or by what it last knew (sync=async). refill.c asks Redis.
 */

#include "ngx_rl_refill.h"
#include "ngx_rl_script.h"


/*
 * A request that costs nothing passes in any case, so it asks nobody: the
 * answer is what this gateway knows, or that of a counter nobody has used.
 */
static void
ngx_rl_leased_look(ngx_rl_counter_t *counter)
{
    void             *lease;
    ngx_rl_locked_t   locked;

    counter->source = NGX_RL_SOURCE_LEASE;

    if (counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        ngx_rl_local_take(counter);
        return;
    }

    counter->answer.remaining = counter->limit->capacity;

    lease = ngx_rl_leased_lock(counter, 0, &locked);
    if (lease == NULL) {
        return;
    }

    if (counter->rule->sync == NGX_RL_SYNC_ASYNC) {
        ngx_rl_async_look(lease, counter->limit, &locked.env, &counter->answer);
    } else {
        ngx_rl_lease_look(lease, counter->limit, &locked.env, &counter->answer);
    }

    ngx_rl_leased_unlock(&locked);
}


/*
 * Never waits. This gateway's own counter decides until Redis has said what is
 * left, and as long as there is no place to keep that.
 */
static void
ngx_rl_leased_async(ngx_rl_counter_t *counter)
{
    unsigned          ask;
    uint32_t          owed;
    ngx_rl_async_t   *async;
    ngx_rl_lease_e    rc;
    ngx_rl_answer_t  *answer;
    ngx_rl_locked_t   locked;

    ask = 0;
    owed = 0;
    rc = NGX_RL_LEASE_ASK;
    answer = &counter->answer;

    async = ngx_rl_leased_lock(counter, 1, &locked);

    if (async) {
        rc = ngx_rl_async_take(async, counter->limit, &locked.env,
                               counter->cost, answer, &ask);
        ngx_rl_leased_unlock(&locked);
    }

    counter->source = async ? NGX_RL_SOURCE_LEASE : NGX_RL_SOURCE_LOCAL;

    if (rc == NGX_RL_LEASE_ASK) {
        ngx_memzero(answer, sizeof(ngx_rl_answer_t));
        ngx_rl_local_take(counter);

        if (answer->granted) {
            counter->here = 1;
            owed = answer->granted;
            async = ngx_rl_leased_lock(counter, 1, &locked);
        }

        if (owed && async) {
            ngx_rl_async_spent(async, counter->limit, &locked.env,
                               answer, &ask);
            ngx_rl_leased_unlock(&locked);
            owed = 0;
        }
    }

    if (ask == NGX_RL_ASYNC_SOON) {
        ngx_rl_refill_watch(counter);

    } else if (ask || owed) {
        ngx_rl_refill_ahead(counter, owed);
    }
}


static void
ngx_rl_leased_take(ngx_rl_counter_t *counter)
{
    unsigned          ahead;
    ngx_rl_lease_t   *lease;
    ngx_rl_lease_e    rc;
    ngx_rl_locked_t   locked;

    if (counter->cost == 0) {
        ngx_rl_leased_look(counter);
        return;
    }

    if (counter->rule->sync == NGX_RL_SYNC_ASYNC) {
        ngx_rl_leased_async(counter);
        return;
    }

    lease = ngx_rl_leased_lock(counter, 1, &locked);
    if (lease == NULL) {
        counter->asks = 1;
        return;
    }

    rc = ngx_rl_lease_take(lease, counter->limit, &locked.env,
                           counter->cost, &counter->answer, &ahead);

    if (rc == NGX_RL_LEASE_ASK) {
        counter->asks = 1;
        counter->alone = ngx_rl_lease_alone(lease, counter->limit, &locked.env);
        if (counter->alone) {
            counter->backend = &ngx_rl_strict;
        }

    } else {
        counter->source = NGX_RL_SOURCE_LEASE;
    }

    ngx_rl_leased_unlock(&locked);

    if (ahead) {
        ngx_rl_refill_ahead(counter, 0);
    }
}


/* The tokens go to the lease or, if it does not take them, to Redis. */
static void
ngx_rl_leased_back(ngx_rl_counter_t *counter, uint32_t tokens)
{
    uint32_t          kept;
    uint64_t          taken_us;
    ngx_uint_t        async;
    void             *lease;
    ngx_rl_locked_t   locked;

    async = (counter->rule->sync == NGX_RL_SYNC_ASYNC);
    taken_us = counter->client->check->taken_us;
    kept = 0;

    if (counter->here) {
        ngx_rl_local_give(counter, tokens);
    }

    lease = ngx_rl_leased_lock(counter, 0, &locked);
    if (lease) {
        kept = async ? ngx_rl_async_give(lease, counter->limit,
                                         &locked.env, taken_us, tokens)
                     : ngx_rl_lease_return(lease, counter->limit,
                                           &locked.env, taken_us,
                                           tokens);
        ngx_rl_leased_unlock(&locked);
    }

    /* the worker that gives to the lease sees to it that unspent ones go on */

    if (kept) {
        ngx_rl_refill_watch(counter);
    }

    if (counter->here) {
        kept += ngx_rl_refill_unowe(counter, tokens - kept);
    }

    if (kept < tokens) {
        (void) ngx_rl_client_hash(counter->client);
        ngx_rl_script_give(counter, tokens - kept,
                           ngx_rl_counter_age_us(counter, taken_us));
    }
}


static void
ngx_rl_leased_charge(ngx_rl_counter_t *counter)
{
    uint32_t          charged;
    ngx_uint_t        async;
    void             *lease;
    ngx_rl_locked_t   locked;

    async = (counter->rule->sync == NGX_RL_SYNC_ASYNC);
    charged = 0;

    if (counter->here) {
        ngx_rl_local_charge(counter, counter->charge);
    }

    lease = ngx_rl_leased_lock(counter, 0, &locked);

    if (lease && async) {
        charged = counter->charge;
        ngx_rl_async_charge(lease, counter->limit, &locked.env, charged);

    } else if (lease) {
        charged = ngx_rl_lease_charge(lease, counter->limit,
                                      &locked.env, counter->charge);
    }

    ngx_rl_leased_unlock(&locked);

    if (charged && async) {
        ngx_rl_refill_watch(counter);
    }

    counter->charge -= charged;

    if (counter->charge && counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        ngx_rl_local_charge(counter, counter->charge);
    }
}


const ngx_rl_backend_t  ngx_rl_leased = {
    ngx_rl_leased_take,
    ngx_rl_refill_join,
    ngx_rl_refill_leave,
    ngx_rl_leased_back,
    ngx_rl_leased_charge
};


void
ngx_rl_leased_lost(const ngx_rl_counter_t *counter)
{
    const ngx_rl_limiter_t  *limiter;

    limiter = counter->client->limiter;
    ngx_rl_count(limiter->rows[NGX_RL_COUNTS_ZONE], NGX_RL_COUNTS_LOST, 1);
}


void
ngx_rl_leased_tell(ngx_rl_counter_t *counter, ngx_uint_t answered)
{
    unsigned             gave;
    ngx_rl_lease_t      *lease;
    ngx_rl_answer_t      answer;
    ngx_rl_locked_t      locked;
    ngx_rl_lease_ask_t   ask;

    /* a worker that ends asks for an async counter as for a strict one */

    if (counter->rule->sync == NGX_RL_SYNC_ASYNC) {
        return;
    }

    ngx_memzero(&ask, sizeof(ngx_rl_lease_ask_t));
    ask.cost = counter->cost;
    answer = counter->answer;

    if (counter->alone) {
        ask.want = counter->cost;
        ask.share = 1;

    } else {
        answer.granted = 0;
    }

    lease = ngx_rl_leased_lock(counter, !counter->alone, &locked);
    if (lease == NULL) {
        return;
    }

    gave = lease->gave;

    /* tokens of a strict counter come back without the lease's knowledge */

    if (answered
        && (counter->alone
            || !(counter->rule->needs & NGX_RL_NEEDS_SETTLE))
        && ngx_rl_lease_lost(lease, counter->limit, &locked.env,
                             counter->client->check->taken_us,
                             &counter->answer))
    {
        ngx_rl_leased_lost(counter);
    }

    if (!answered) {
        ngx_rl_lease_failed(lease);

    } else if (ngx_rl_lease_fill(lease, counter->limit, &locked.env,
                                 counter->client->check->taken_us, &ask,
                                 &answer)
               && answer.granted
               && ngx_rl_lease_pay(lease, counter->limit, &locked.env,
                                   answer.granted, &counter->answer))
    {
        /* so what comes back comes to the lease, which knows it as spent */

        counter->backend = &ngx_rl_leased;
    }

    if (counter->rule->sync == NGX_RL_SYNC_STRICT && lease->retry_ms) {

        /* another gateway may give back at once what it took: ask once more */

        if (gave == 0 && counter->answer.retry_us) {
            lease->gave = 1;
        }

        ngx_rl_leases_deny(counter->client->limiter->zone.leases,
                           locked.env.now_us
                           + (uint64_t) lease->retry_ms * 1000);
    }

    ngx_rl_leased_unlock(&locked);
}


ngx_uint_t
ngx_rl_leased_denies(ngx_rl_counter_t *counter)
{
    ngx_uint_t        denies;
    ngx_rl_lease_t   *lease;
    ngx_rl_locked_t   locked;

    if (ngx_rl_leases_denied_us(counter->client->limiter->zone.leases)
        <= ngx_rl_local_now_us())
    {
        return 0;
    }

    lease = ngx_rl_leased_lock(counter, 0, &locked);
    if (lease == NULL) {
        return 0;
    }

    denies = ngx_rl_lease_denies(lease, counter->limit, &locked.env,
                                 counter->cost, &counter->answer);
    ngx_rl_leased_unlock(&locked);

    return denies;
}


void
ngx_rl_leased_gave(const ngx_rl_counter_t *counter, uint32_t tokens)
{
    ngx_rl_lease_t   *lease;
    ngx_rl_locked_t   locked;

    lease = ngx_rl_leased_lock(counter, 0, &locked);

    if (lease) {
        ngx_rl_lease_gave(lease, counter->limit, &locked.env, tokens);
        ngx_rl_leased_unlock(&locked);
    }
}

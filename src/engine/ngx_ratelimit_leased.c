/*
 * Counters in Redis that this node answers for: out of a lease (sync=lease), or
 * by what it last knew (sync=async). What Redis is asked, holder.c does.
 */

#include "ngx_ratelimit_backend.h"

_Static_assert(sizeof(ngx_ratelimit_lease_t) <= NGX_RATELIMIT_LEASE_BYTES,
               "a lease fits its place");

static void ngx_ratelimit_leased_async(ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_leased_here(ngx_ratelimit_counter_t *counter);
static uint32_t ngx_ratelimit_leased_charge(
    const ngx_ratelimit_counter_t *counter);


void
ngx_ratelimit_leased_take(ngx_ratelimit_counter_t *counter)
{
    unsigned                      ahead;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_lease_e         rc;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = counter->client->limiter;

    if (counter->rule->shares) {
        ngx_ratelimit_shards_take(counter);
        return;
    }

    if (counter->rule->sync == NGX_RATELIMIT_SYNC_STRICT
        || limiter->holders == NULL)
    {
        return;
    }

    if (counter->rule->sync == NGX_RATELIMIT_SYNC_ASYNC) {
        counter->leased = 1;
        ngx_ratelimit_leased_async(counter);
        return;
    }

    counter->leased = 1;

    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    rc = NGX_RATELIMIT_LEASE_ASK;
    ahead = 0;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 1, env.now_us,
                                      &entry);
    if (lease) {
        rc = ngx_ratelimit_lease_take(lease, counter->limit, &env,
                                      counter->cost, &counter->answer, &ahead);

        if (rc == NGX_RATELIMIT_LEASE_ASK) {
            counter->alone = ngx_ratelimit_lease_alone(lease, counter->limit,
                                                       &env);
        }

        ngx_ratelimit_leases_unlock(&entry);
    }

    if (rc == NGX_RATELIMIT_LEASE_ASK) {
        counter->leased = !counter->alone;
        counter->asks = !counter->alone;
        return;
    }

    counter->source = NGX_RATELIMIT_SOURCE_LEASE;

    if (ahead) {
        ngx_ratelimit_holder_ahead(counter);
    }
}


/*
 * Never waits. Until Redis has said what is left, and where there is no place
 * to keep that, this gateway's own counter has to grant the cost, too.
 */
static void
ngx_ratelimit_leased_async(ngx_ratelimit_counter_t *counter)
{
    unsigned                      ask, known;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = counter->client->limiter;
    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    ask = 0;
    known = 0;
    counter->source = NGX_RATELIMIT_SOURCE_LOCAL;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 1, env.now_us,
                                      &entry);
    if (lease) {
        counter->source = NGX_RATELIMIT_SOURCE_LEASE;

        known = ngx_ratelimit_async_take(lease, counter->limit, &env,
                                         counter->cost, &counter->answer,
                                         &ask)
                == NGX_RATELIMIT_LEASE_DENIED
                || lease->answered;

        ngx_ratelimit_leases_unlock(&entry);
    }

    if (!known) {
        ngx_ratelimit_leased_here(counter);
    }

    if (ask) {
        ngx_ratelimit_holder_ahead(counter);
    }
}


/*
 * Takes the cost in this gateway's table. Where that denies, a lease that has
 * paid gets it back.
 */
static void
ngx_ratelimit_leased_here(ngx_ratelimit_counter_t *counter)
{
    ngx_memzero(&counter->answer, sizeof(ngx_ratelimit_answer_t));
    ngx_ratelimit_local_take(counter);

    if (counter->answer.granted) {
        counter->here = 1;
    }

    if (counter->source == NGX_RATELIMIT_SOURCE_LOCAL) {

        if (counter->answer.granted) {
            ngx_ratelimit_holder_owe(counter, counter->answer.granted);
        }

    } else if (counter->answer.retry_us) {
        ngx_ratelimit_leased_give(counter, counter->cost);
    }
}


void
ngx_ratelimit_leased_look(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = counter->client->limiter;

    counter->leased = 1;
    counter->source = NGX_RATELIMIT_SOURCE_LEASE;

    if (counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL) {
        ngx_ratelimit_local_take(counter);
        return;
    }

    counter->answer.remaining = counter->limit->capacity;

    if (limiter->zone.leases == NULL) {
        return;
    }

    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 0, env.now_us,
                                      &entry);
    if (lease == NULL) {
        return;
    }

    if (counter->rule->sync == NGX_RATELIMIT_SYNC_ASYNC) {
        (void) ngx_ratelimit_async_look(lease, counter->limit, &env,
                                        &counter->answer);
    } else {
        (void) ngx_ratelimit_lease_look(lease, counter->limit, &env,
                                        &counter->answer);
    }

    ngx_ratelimit_leases_unlock(&entry);
}


void
ngx_ratelimit_leased_note(const ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_answer_t        answer;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_ask_t     ask;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = counter->client->limiter;

    if (limiter->zone.leases == NULL) {
        return;
    }

    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    ngx_memzero(&ask, sizeof(ngx_ratelimit_lease_ask_t));
    answer = counter->answer;
    answer.granted = 0;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 1, env.now_us,
                                      &entry);
    if (lease) {
        (void) ngx_ratelimit_lease_fill(lease, counter->limit, &env,
                                        counter->client->check->taken_us, &ask,
                                        &answer);
        ngx_ratelimit_leases_unlock(&entry);
    }
}


void
ngx_ratelimit_leased_tell(ngx_ratelimit_counter_t *counter, ngx_uint_t answered)
{
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_answer_t       *answer;
    ngx_ratelimit_lease_ask_t     ask;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = counter->client->limiter;
    answer = &counter->answer;
    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    ask.cost = counter->cost;
    ask.want = counter->cost;
    ask.ahead = 0;
    ask.share = 1;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 0, env.now_us,
                                      &entry);
    if (lease == NULL) {
        return;
    }

    if (!answered) {
        ngx_ratelimit_lease_failed(lease);

    } else if (ngx_ratelimit_lease_fill(lease, counter->limit, &env,
                                        counter->client->check->taken_us, &ask,
                                        answer)
               && answer->granted)
    {
        /* so what comes back comes to the lease, which knows it as spent */

        counter->leased = ngx_ratelimit_lease_pay(lease, counter->limit, &env,
                                                  answer->granted, answer);
    }

    ngx_ratelimit_leases_unlock(&entry);
}


void
ngx_ratelimit_leased_give(ngx_ratelimit_counter_t *counter, uint32_t tokens)
{
    uint64_t                      taken_us;
    uint32_t                      kept;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    if (counter->rule->shares) {
        ngx_ratelimit_shards_give(counter, tokens);
        return;
    }

    if (counter->here) {
        ngx_ratelimit_local_give(counter, tokens);
    }

    limiter = counter->client->limiter;
    taken_us = counter->client->check->taken_us;
    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    kept = 0;

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 0, env.now_us,
                                      &entry);
    if (lease) {
        kept = (counter->rule->sync == NGX_RATELIMIT_SYNC_ASYNC)
               ? ngx_ratelimit_async_return(lease, counter->limit, &env,
                                            tokens)
               : ngx_ratelimit_lease_return(lease, counter->limit, &env,
                                            taken_us, tokens);
        ngx_ratelimit_leases_unlock(&entry);
    }

    /* who gives to the lease sees to it that it goes back if nobody takes it */

    if (kept && counter->rule->sync == NGX_RATELIMIT_SYNC_LEASE) {
        ngx_ratelimit_holder_watch(counter);
    }

    if (counter->here) {
        kept += ngx_ratelimit_holder_unowe(counter, tokens - kept);
    }

    if (kept < tokens) {
        (void) ngx_ratelimit_client_hash(counter->client);
        ngx_ratelimit_remote_give(counter, tokens - kept,
                                  ngx_ratelimit_remote_age_us(counter,
                                                              taken_us));
    }
}


void
ngx_ratelimit_leased_settle(ngx_ratelimit_counter_t *counter)
{
    uint32_t                 charged;
    ngx_ratelimit_answer_t  *answer;

    answer = &counter->answer;

    if (counter->refund) {
        ngx_ratelimit_leased_give(counter, counter->refund);

        if (counter->source != NGX_RATELIMIT_SOURCE_LOCAL) {
            answer->remaining = ngx_min(answer->remaining + counter->refund,
                                        counter->limit->capacity);
        }

        return;
    }

    /* what the cost of a split counter is, no response says */

    if (counter->rule->shares) {
        return;
    }

    if (counter->here) {
        ngx_ratelimit_local_charge(counter, counter->charge);
    }

    charged = ngx_ratelimit_leased_charge(counter);
    counter->charge -= charged;

    if (counter->charge && counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL) {
        ngx_ratelimit_local_charge(counter, counter->charge);
    }

    answer->remaining -= ngx_min(answer->remaining, charged);
}


/* Takes what it can of a counter's charge, and returns how much. */
static uint32_t
ngx_ratelimit_leased_charge(const ngx_ratelimit_counter_t *counter)
{
    uint32_t                      charged;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = counter->client->limiter;
    id = ngx_ratelimit_leased_id(counter);
    ngx_ratelimit_leased_env(limiter, &env);

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &id, 0, env.now_us,
                                      &entry);
    if (lease == NULL) {
        return 0;
    }

    charged = (counter->rule->sync == NGX_RATELIMIT_SYNC_ASYNC)
              ? ngx_ratelimit_async_charge(lease, counter->limit, &env,
                                           counter->charge)
              : ngx_ratelimit_lease_charge(lease, counter->limit, &env,
                                           counter->charge);
    ngx_ratelimit_leases_unlock(&entry);

    return charged;
}


void
ngx_ratelimit_leased_env(const ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_lease_env_t *env)
{
    env->now_us = ngx_ratelimit_local_now_us();
    env->nodes = ngx_ratelimit_redis_nodes(limiter->redis);
    env->rtt_ms = ngx_ratelimit_holder_rtt_ms(limiter);
    env->forgot_us = ngx_ratelimit_leases_forgot_us(limiter->zone.leases);
}

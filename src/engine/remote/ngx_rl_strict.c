/*
 * Strict counters: each request asks Redis. All counters of a client are in one
 * call, and Redis takes all of them or none.
 */

#include "ngx_rl_backend.h"


/* An async counter, of a worker that ends, has no lease. */
static ngx_uint_t
ngx_rl_strict_remembers(const ngx_rl_counter_t *counter)
{
    return counter->cost
           && counter->rule->sync == NGX_RL_SYNC_STRICT
           && ngx_rl_rule_remembers(counter->rule);
}


/*
 * A counter that Redis has rejected does not ask again until the moment that
 * Redis has named. If another counter of the client asks, this one is not in
 * that call.
 */
static void
ngx_rl_strict_take(ngx_rl_counter_t *counter)
{
    if (ngx_rl_strict_remembers(counter) && ngx_rl_leased_rejects(counter)) {
        counter->source = NGX_RL_SOURCE_LEASE;
        counter->backend = &ngx_rl_leased;
        return;
    }

    counter->asks = 1;
}


/* NGX_DECLINED: this counter is not asked for anything. */
static ngx_int_t
ngx_rl_strict_price(const ngx_rl_counter_t *counter, ngx_rl_strict_e what,
    ngx_rl_price_t *price)
{
    ngx_uint_t  strict;

    strict = (counter->backend == &ngx_rl_strict);

    ngx_memzero(price, sizeof(ngx_rl_price_t));

    switch (what) {

    case NGX_RL_STRICT_TAKE:
        price->cost = counter->cost;
        price->want = counter->look ? -1 : 0;
        return strict ? NGX_OK : NGX_DECLINED;

    case NGX_RL_STRICT_SETTLE:

        if (counter->charge) {
            price->want = -1 - (int64_t) counter->charge;
            return NGX_OK;
        }

        /* what was granted without Redis was not taken there */

        if (!strict || counter->refund == 0) {
            return NGX_DECLINED;
        }

        price->cost = -(int64_t) counter->refund;
        price->want = ngx_rl_counter_age_us(counter,
                                        counter->client->check->taken_us)
                      / 1000;
        return NGX_OK;

    case NGX_RL_STRICT_FREE:
        price->cost = -1;
        return counter->held ? NGX_OK : NGX_DECLINED;

    default: /* NGX_RL_STRICT_RENEW: the request runs in any case */
        price->cost = 1;
        price->want = 1;
        return counter->held ? NGX_OK : NGX_DECLINED;
    }
}


/* NULL: memory is out, or there is nothing to say. */
static ngx_rl_redis_call_t *
ngx_rl_strict_call(ngx_rl_client_t *client, ngx_rl_strict_e what,
    ngx_rl_redis_handler_pt handler)
{
    ngx_uint_t            i, prepared;
    ngx_rl_check_t       *check;
    ngx_rl_price_t        price;
    ngx_rl_script_t       script;
    ngx_rl_counter_t     *counter;
    const ngx_rl_rule_t  *rule;

    check = client->check;
    ngx_rl_script_begin(&script);
    script.eval.undo = (what == NGX_RL_STRICT_FREE);

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client != client
            || ngx_rl_strict_price(counter, what, &price) != NGX_OK)
        {
            continue;
        }

        rule = counter->rule;
        prepared = (what == NGX_RL_STRICT_TAKE && rule->numbers.len
                    && counter->limit == &rule->limit
                    && counter->cost == rule->cost);

        ngx_rl_script_add(&script, counter, prepared ? NULL : &price);

        if (what == NGX_RL_STRICT_TAKE && counter->cost) {
            counter->held = (counter->limit->algorithm == NGX_RL_CONCURRENCY);
        }
    }

    if (script.eval.nargs == 0) {
        return NULL;
    }

    return ngx_rl_script_call(&script, client, handler, client);
}


static void
ngx_rl_strict_answered(ngx_rl_counter_t *counter,
    const ngx_rl_redis_result_t *result, ngx_uint_t n)
{
    uint64_t               taken_us;
    ngx_rl_redis_status_e  status;

    taken_us = counter->client->check->taken_us;

    if (!result->ran) {
        counter->held = 0;
    }

    status = ngx_rl_script_read(result, n, counter->limit, &counter->answer);

    if (status != NGX_RL_REDIS_OK) {

        if (counter->alone) {
            ngx_rl_leased_learn(counter, taken_us, 0);
        }

        ngx_rl_fallback(counter, status, result->wait_ms);
        return;
    }

    counter->source = NGX_RL_SOURCE_REDIS;
    counter->held &= (counter->answer.granted != 0);

    if (counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        ngx_rl_fallback_note(counter, taken_us);
    }

    /* a moment that a lease cannot name is not remembered */

    if (counter->alone || counter->rule->dynamic_cost
        || (counter->answer.retry_us
            && counter->answer.retry_us / 1000 < INT32_MAX
            && ngx_rl_strict_remembers(counter)))
    {
        ngx_rl_leased_learn(counter, taken_us, 1);
    }
}


static void
ngx_rl_strict_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_client_t *client = data;

    ngx_uint_t                i, n;
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    client->remote->call = NULL;

    check = client->check;
    n = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client == client && counter->backend == &ngx_rl_strict) {
            ngx_rl_strict_answered(counter, result, n++);
            ngx_rl_check_answered(check);
        }
    }
}


/* The first counter of a client asks for all. */
static void
ngx_rl_strict_ask(ngx_rl_counter_t *counter)
{
    ngx_rl_client_t        *client;
    ngx_rl_redis_result_t   result;

    client = counter->client;

    if (client->remote->asked) {
        return;
    }

    client->remote->asked = 1;
    client->remote->call = ngx_rl_strict_call(client, NGX_RL_STRICT_TAKE,
                                              ngx_rl_strict_handler);
    if (client->remote->call) {
        return;
    }

    ngx_memzero(&result, sizeof(ngx_rl_redis_result_t));
    result.status = NGX_RL_REDIS_UNREACHABLE;

    ngx_rl_strict_handler(client, &result);
}


static void
ngx_rl_strict_leave(ngx_rl_counter_t *counter)
{
    ngx_rl_remote_client_t  *remote;

    remote = counter->client->remote;

    if (remote->call) {
        ngx_rl_redis_forget(remote->call);
        remote->call = NULL;
    }
}


/* ngx_rl_strict_send() gives back those of all counters at once. */
static void
ngx_rl_strict_give(ngx_rl_counter_t *counter, uint32_t tokens)
{
    if (counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        ngx_rl_local_give(counter, tokens);
    }

    if (ngx_rl_strict_remembers(counter)) {
        ngx_rl_leased_gave(counter, tokens);
    }
}


static void
ngx_rl_strict_charge(ngx_rl_counter_t *counter)
{
    if (counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        ngx_rl_local_charge(counter, counter->charge);
    }

    if (ngx_rl_strict_remembers(counter)) {
        ngx_rl_leased_owes(counter);
    }
}


const ngx_rl_backend_t  ngx_rl_strict = {
    ngx_rl_strict_take,
    ngx_rl_strict_ask,
    ngx_rl_strict_leave,
    ngx_rl_strict_give,
    ngx_rl_strict_charge
};


void
ngx_rl_strict_send(ngx_rl_check_t *check, ngx_rl_strict_e what)
{
    ngx_uint_t  i;

    /* without a name it has taken no permits, which are freed and renewed */

    if (check->remote == NULL
        || (what != NGX_RL_STRICT_SETTLE && check->remote->name == 0))
    {
        return;
    }

    for (i = 0; i < check->nclients; i++) {

        if (check->clients[i].remote) {
            (void) ngx_rl_strict_call(&check->clients[i], what, NULL);
        }
    }
}

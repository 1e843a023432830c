/*
 * The refills of a worker: requests join and leave them, and a sweep gives back
 * unspent tokens. refill_call.c asks Redis.
 */

#include "ngx_rl_refill.h"
#include "ngx_rl_script.h"


/* The same under async: one worker tells Redis what all have spent. */
static ngx_int_t
ngx_rl_refill_debit(ngx_rl_refill_t *refill, unsigned all)
{
    unsigned              due, left;
    ngx_rl_async_t       *async;
    ngx_rl_locked_t       locked;
    ngx_rl_async_call_t   told;

    due = (refill->owed != 0);
    left = due;
    ngx_memzero(&told, sizeof(ngx_rl_async_call_t));

    async = ngx_rl_leased_lock(&refill->counter, 0, &locked);

    if (async && async->mark == refill->limit.mark
        && locked.env.now_us < async->busy_us)
    {
        if (all) {
            ngx_rl_async_call(async, &refill->limit, &locked.env, 1, &told);
        } else {
            due |= ngx_rl_async_due(async, &refill->limit, &locked.env);
        }

        left |= (async->owed != 0);
    }

    ngx_rl_leased_unlock(&locked);

    if (all) {
        told.debit += (int32_t) ngx_min(refill->owed,
                                        (uint32_t) (NGX_RL_MAX_TOKENS
                                                    - ngx_max(told.debit, 0)));

    } else if (due && refill->call == NULL) {
        ngx_rl_refill_call(refill);
    }

    if (told.debit) {
        (void) ngx_rl_script_tell(&refill->counter, &told, NULL, NULL);
    }

    return left ? NGX_OK : NGX_DONE;
}


/*
 * Gives back tokens that were not spent in time; async: debits those that were
 * spent. all: the worker ends. Returns NGX_DONE if there is nothing in hand any
 * more, or nobody has touched the counter for so long that it is worth nothing.
 */
static ngx_int_t
ngx_rl_refill_sweep(ngx_rl_refill_t *refill, unsigned all)
{
    uint32_t          back, left;
    uint64_t          age_us;
    ngx_rl_lease_t   *lease;
    ngx_rl_locked_t   locked;

    if (ngx_rl_refill_async(refill)) {
        return ngx_rl_refill_debit(refill, all);
    }

    lease = ngx_rl_leased_lock(&refill->counter, 0, &locked);
    if (lease == NULL) {
        return NGX_DONE;
    }

    back = 0;
    left = 0;
    age_us = ngx_rl_lease_age_us(lease, &refill->limit, locked.env.now_us);

    if (lease->mark == refill->limit.mark
        && locked.env.now_us < lease->busy_us)
    {
        /*
         * A call may take as long as the timeout. Tokens of a fixed window that
         * is over by then would be too many in the next one.
         */

        if (refill->limit.algorithm != NGX_RL_FIXED_WINDOW
            || lease->fresh_us >= locked.env.now_us + (uint64_t) 1000
                                  * refill->client.limiter->redis->timeout)
        {
            back = ngx_rl_lease_sweep(lease, &refill->limit, &locked.env, all);
        }

        left = lease->tokens;
    }

    ngx_rl_leased_unlock(&locked);

    if (back) {
        ngx_rl_refill_give(refill, back, age_us);
    }

    return left ? NGX_OK : NGX_DONE;
}


/* No request waits, and no result is due or will come. */
static void
ngx_rl_refill_free(ngx_rl_refill_t *refill)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&refill->calls)) {
        q = ngx_queue_head(&refill->calls);
        ngx_queue_remove(q);
        ngx_free(ngx_queue_data(q, ngx_rl_refill_call_t, queue));
    }

    ngx_queue_remove(&refill->queue);
    ngx_rbtree_delete(&refill->refills->tree, &refill->node.node);
    ngx_rl_policy_release(refill->counter.rule->policy);
    ngx_free(refill);
}


static void
ngx_rl_refill_sweep_handler(ngx_event_t *ev)
{
    ngx_queue_t       *q;
    ngx_msec_int_t     left;
    ngx_rl_refill_t   *refill;
    ngx_rl_refills_t  *refills;

    refills = ev->data;

    while (!ngx_queue_empty(&refills->sweeps)) {
        q = ngx_queue_head(&refills->sweeps);
        refill = ngx_queue_data(q, ngx_rl_refill_t, queue);
        left = (ngx_msec_int_t) (refill->sweep_ms - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&refills->sweeps, q);
        refill->sweep_ms = ngx_current_msec + NGX_RL_LEASE_HOLD_MS;

        if (ngx_rl_refill_sweep(refill, 0) == NGX_DONE
            && ngx_queue_empty(&refill->waiting)
            && ngx_queue_empty(&refill->calls))
        {
            ngx_rl_refill_free(refill);
        }
    }
}


/*
 * Requests that wait share the deadline of the first call. A second call, made
 * because the first brought too little, does not extend it.
 */
static void
ngx_rl_refill_wait_handler(ngx_event_t *ev)
{
    ngx_queue_t       *q;
    ngx_msec_int_t     left;
    ngx_rl_counter_t  *counter;
    ngx_rl_refills_t  *refills;

    refills = ev->data;

    while (!ngx_queue_empty(&refills->waits)) {
        q = ngx_queue_head(&refills->waits);
        counter = ngx_rl_refill_counter(q, wait);

        left = (ngx_msec_int_t) (counter->remote->since_ms
                                 + refills->limiter->redis->timeout
                                 - ngx_current_msec);

        if (left > 0) {

            /* a request that came meanwhile may have set it, for later */

            if (ev->timer_set) {
                ngx_del_timer(ev);
            }

            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        ngx_rl_refill_fail(counter, NGX_RL_REDIS_TIMEOUT, 0);
    }
}


ngx_int_t
ngx_rl_refill_begin(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_rl_refills_t  *refills;

    if (limiter->redis == NULL) {
        return NGX_OK;
    }

    refills = ngx_calloc(sizeof(ngx_rl_refills_t), log);
    if (refills == NULL) {
        return NGX_ERROR;
    }

    refills->limiter = limiter;
    refills->log = log;

    ngx_rbtree_init(&refills->tree, &refills->sentinel,
                    ngx_str_rbtree_insert_value);
    ngx_queue_init(&refills->sweeps);
    ngx_queue_init(&refills->waits);

    refills->sweep.data = refills;
    refills->sweep.log = log;
    refills->sweep.handler = ngx_rl_refill_sweep_handler;
    refills->sweep.cancelable = 1;

    /* not cancelable: requests wait for it */

    refills->wait.data = refills;
    refills->wait.log = log;
    refills->wait.handler = ngx_rl_refill_wait_handler;

    limiter->refills = refills;

    return NGX_OK;
}


void
ngx_rl_refill_end(ngx_rl_limiter_t *limiter)
{
    ngx_queue_t       *q, *next;
    ngx_rl_refill_t   *refill;
    ngx_rl_refills_t  *refills;

    refills = limiter->refills;

    if (refills == NULL) {
        return;
    }

    /* requests that still wait end after this, and have no answer */

    for (q = ngx_queue_head(&refills->waits);
         q != ngx_queue_sentinel(&refills->waits);
         q = next)
    {
        next = ngx_queue_next(q);
        ngx_rl_refill_leave(ngx_rl_refill_counter(q, wait));
    }

    while (!ngx_queue_empty(&refills->sweeps)) {
        q = ngx_queue_head(&refills->sweeps);
        refill = ngx_queue_data(q, ngx_rl_refill_t, queue);

        (void) ngx_rl_refill_sweep(refill, 1);
        ngx_rl_refill_free(refill);
    }

    if (refills->sweep.timer_set) {
        ngx_del_timer(&refills->sweep);
    }

    limiter->refills = NULL;
    ngx_free(refills);
}


/* Also sets what the counter's refill is called. */
static ngx_rl_refill_t *
ngx_rl_refill_find(const ngx_rl_counter_t *counter, ngx_rl_refill_name_t *name)
{
    ngx_str_t          text;
    ngx_rl_refills_t  *refills;

    name->id = ngx_rl_leased_id(counter);
    name->mark = counter->limit->mark;

    refills = counter->client->limiter->refills;
    if (refills == NULL) {
        return NULL;
    }

    text.data = (u_char *) name;
    text.len = sizeof(ngx_rl_refill_name_t);

    return (ngx_rl_refill_t *)
           ngx_str_rbtree_lookup(&refills->tree, &text,
                                 (uint32_t) name->id.lo);
}


/*
 * The counter's refill, made if there is none; NULL: memory is out, or the
 * worker exits.
 */
static ngx_rl_refill_t *
ngx_rl_refill_get(ngx_rl_counter_t *counter)
{
    ngx_rl_policy_t       *before;
    ngx_rl_client_t       *client;
    ngx_rl_refill_t       *refill;
    ngx_rl_refills_t      *refills;
    ngx_rl_refill_name_t   name;

    client = counter->client;
    refills = client->limiter->refills;

    refill = ngx_rl_refill_find(counter, &name);

    if (refill) {
        before = refill->counter.rule->policy;

        /* a refill that never rests does not keep an old policy */

        if (counter->rule->policy != before
            && counter->rule->policy == client->limiter->policy)
        {
            ngx_rl_policy_use(counter->rule->policy);
            refill->counter.rule = counter->rule;
            refill->limit = *counter->limit;    /* the policy has its zone */
            ngx_rl_policy_release(before);
        }

        refill->note |= (counter->fail_mode == NGX_RL_FAIL_LOCAL);
        return refill;
    }

    if (refills == NULL) {
        return NULL;
    }

    refill = ngx_calloc(sizeof(ngx_rl_refill_t), refills->log);
    if (refill == NULL) {
        return NULL;
    }

    (void) ngx_rl_client_hash(client);

    refill->refills = refills;
    refill->note = (counter->fail_mode == NGX_RL_FAIL_LOCAL);
    refill->limit = *counter->limit;

    refill->remote.hash = client->remote->hash;
    refill->remote.bucket = client->remote->bucket;
    refill->remote.hashed = 1;

    refill->client.limiter = client->limiter;
    refill->client.local = *ngx_rl_client_local(client);
    refill->client.named = 1;
    refill->client.remote = &refill->remote;

    ngx_rl_policy_use(counter->rule->policy);

    refill->counter.rule = counter->rule;
    refill->counter.limit = &refill->limit;
    refill->counter.client = &refill->client;
    refill->counter.source = NGX_RL_SOURCE_REDIS;

    ngx_queue_init(&refill->waiting);
    ngx_queue_init(&refill->calls);

    refill->name = name;
    refill->node.node.key = (uint32_t) name.id.lo;
    refill->node.str.data = (u_char *) &refill->name;
    refill->node.str.len = sizeof(ngx_rl_refill_name_t);
    ngx_rbtree_insert(&refills->tree, &refill->node.node);

    refill->sweep_ms = ngx_current_msec + NGX_RL_LEASE_HOLD_MS;
    ngx_queue_insert_tail(&refills->sweeps, &refill->queue);

    if (!refills->sweep.timer_set) {
        ngx_add_timer(&refills->sweep, NGX_RL_LEASE_HOLD_MS);
    }

    return refill;
}


void
ngx_rl_refill_join(ngx_rl_counter_t *counter)
{
    ngx_rl_refill_t   *refill;
    ngx_rl_refills_t  *refills;

    refill = ngx_rl_refill_get(counter);

    if (refill == NULL) {
        ngx_rl_refill_fail(counter, NGX_RL_REDIS_UNREACHABLE, 0);
        return;
    }

    refills = refill->refills;

    counter->remote->refill = refill;
    ngx_queue_insert_tail(&refill->waiting, &counter->remote->queue);
    ngx_queue_insert_tail(&refills->waits, &counter->remote->wait);
    refill->queued += counter->cost;

    if (!refills->wait.timer_set) {
        ngx_add_timer(&refills->wait, refills->limiter->redis->timeout);
    }

    if (refill->call == NULL) {
        ngx_rl_refill_call(refill);
    }
}


void
ngx_rl_refill_ahead(ngx_rl_counter_t *counter, uint32_t owed)
{
    ngx_rl_refill_t  *refill;

    refill = ngx_rl_refill_get(counter);
    if (refill == NULL) {
        return;
    }

    refill->owed = ngx_min(refill->owed + owed, NGX_RL_MAX_TOKENS);

    if (refill->call == NULL) {
        ngx_rl_refill_call(refill);
    }
}


void
ngx_rl_refill_watch(ngx_rl_counter_t *counter)
{
    (void) ngx_rl_refill_get(counter);
}


uint32_t
ngx_rl_refill_unowe(ngx_rl_counter_t *counter, uint32_t tokens)
{
    uint32_t               unowed;
    ngx_rl_refill_t       *refill;
    ngx_rl_refill_name_t   name;

    refill = ngx_rl_refill_find(counter, &name);
    if (refill == NULL) {
        return 0;
    }

    unowed = ngx_min(tokens, refill->owed);
    refill->owed -= unowed;
    refill->gave = ngx_min(refill->gave + tokens - unowed, NGX_RL_MAX_TOKENS);

    return unowed;
}

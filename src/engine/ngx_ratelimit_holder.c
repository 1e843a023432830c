/*
 * Which holders there are, who waits for them, and when what they hold goes
 * back. What Redis is asked, holder_ask.c does.
 */

#include "ngx_ratelimit_holder.h"

static ngx_ratelimit_holder_t *ngx_ratelimit_holder_get(
    ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_holder_follow(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_rule_t *rule);
static ngx_ratelimit_holder_t *ngx_ratelimit_holder_find(
    ngx_ratelimit_holders_t *holders, const ngx_ratelimit_id_t *id,
    uint16_t mark);
static ngx_int_t ngx_ratelimit_holder_compare(
    const ngx_ratelimit_holder_t *holder, const ngx_ratelimit_id_t *id,
    uint16_t mark);
static void ngx_ratelimit_holder_insert(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel);
static void ngx_ratelimit_holder_free(ngx_ratelimit_holder_t *holder);
static void ngx_ratelimit_holder_wait_handler(ngx_event_t *ev);
static void ngx_ratelimit_holder_sweep_handler(ngx_event_t *ev);
static ngx_int_t ngx_ratelimit_holder_sweep(ngx_ratelimit_holder_t *holder,
    unsigned all);
static ngx_int_t ngx_ratelimit_holder_debit(ngx_ratelimit_holder_t *holder,
    unsigned all);
static ngx_uint_t ngx_ratelimit_holder_ends(
    const ngx_ratelimit_holder_t *holder, const ngx_ratelimit_lease_t *lease,
    uint64_t now_us);


ngx_int_t
ngx_ratelimit_leased_begin(ngx_ratelimit_limiter_t *limiter, ngx_log_t *log)
{
    ngx_ratelimit_holders_t  *holders;

    if (limiter->zone.leases == NULL || limiter->redis == NULL) {
        return NGX_OK;
    }

    holders = ngx_calloc(sizeof(ngx_ratelimit_holders_t), log);
    if (holders == NULL) {
        return NGX_ERROR;
    }

    holders->limiter = limiter;
    holders->log = log;

    ngx_rbtree_init(&holders->tree, &holders->sentinel,
                    ngx_ratelimit_holder_insert);
    ngx_queue_init(&holders->sweeps);
    ngx_queue_init(&holders->waits);

    holders->sweep.data = holders;
    holders->sweep.log = log;
    holders->sweep.handler = ngx_ratelimit_holder_sweep_handler;
    holders->sweep.cancelable = 1;

    /* not cancelable: requests wait for it */

    holders->wait.data = holders;
    holders->wait.log = log;
    holders->wait.handler = ngx_ratelimit_holder_wait_handler;

    limiter->holders = holders;

    return NGX_OK;
}


void
ngx_ratelimit_leased_end(ngx_ratelimit_limiter_t *limiter)
{
    ngx_queue_t              *q, *next;
    ngx_ratelimit_holder_t   *holder;
    ngx_ratelimit_holders_t  *holders;

    holders = limiter->holders;

    if (holders == NULL) {
        return;
    }

    /* requests that still wait end after this, and have no answer */

    for (q = ngx_queue_head(&holders->waits);
         q != ngx_queue_sentinel(&holders->waits);
         q = next)
    {
        next = ngx_queue_next(q);
        ngx_ratelimit_holder_leave(ngx_queue_data(q, ngx_ratelimit_counter_t,
                                                  wait));
    }

    while (!ngx_queue_empty(&holders->sweeps)) {
        q = ngx_queue_head(&holders->sweeps);
        holder = ngx_queue_data(q, ngx_ratelimit_holder_t, queue);

        (void) ngx_ratelimit_holder_sweep(holder, 1);
        ngx_ratelimit_holder_free(holder);
    }

    if (holders->sweep.timer_set) {
        ngx_del_timer(&holders->sweep);
    }

    limiter->holders = NULL;
    ngx_free(holders);
}


ngx_uint_t
ngx_ratelimit_holder_rtt_ms(const ngx_ratelimit_limiter_t *limiter)
{
    const ngx_ratelimit_holders_t  *holders;

    holders = limiter->holders;

    return holders ? holders->rtt / 16 + 1 : 1;
}


void
ngx_ratelimit_holder_join(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_holder_t   *holder;
    ngx_ratelimit_holders_t  *holders;

    holder = ngx_ratelimit_holder_get(counter);

    if (holder == NULL) {
        counter->reason = NGX_RATELIMIT_REDIS_UNREACHABLE;
        ngx_ratelimit_fallback(counter, 0);
        ngx_ratelimit_check_answered(counter->client->check);
        return;
    }

    holders = holder->holders;

    counter->holder = holder;
    counter->since_ms = ngx_current_msec;
    ngx_queue_insert_tail(&holder->waiting, &counter->queue);
    ngx_queue_insert_tail(&holders->waits, &counter->wait);
    holder->queued += counter->cost;

    if (!holders->wait.timer_set) {
        ngx_add_timer(&holders->wait, holders->limiter->redis->timeout);
    }

    if (holder->ask == NULL) {
        ngx_ratelimit_holder_ask(holder);
    }
}


void
ngx_ratelimit_holder_leave(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_holders_t  *holders;

    holders = counter->holder->holders;

    counter->holder->queued -= counter->cost;
    counter->holder = NULL;
    ngx_queue_remove(&counter->queue);
    ngx_queue_remove(&counter->wait);

    if (ngx_queue_empty(&holders->waits) && holders->wait.timer_set) {
        ngx_del_timer(&holders->wait);
    }
}


void
ngx_ratelimit_holder_ahead(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_holder_t  *holder;

    holder = ngx_ratelimit_holder_get(counter);

    if (holder && holder->ask == NULL) {
        ngx_ratelimit_holder_ask(holder);
    }
}


void
ngx_ratelimit_holder_watch(ngx_ratelimit_counter_t *counter)
{
    if (counter->client->limiter->holders) {
        (void) ngx_ratelimit_holder_get(counter);
    }
}


void
ngx_ratelimit_holder_owe(ngx_ratelimit_counter_t *counter, uint32_t tokens)
{
    ngx_ratelimit_holder_t  *holder;

    holder = ngx_ratelimit_holder_get(counter);
    if (holder == NULL) {
        return;
    }

    holder->owed = ngx_min(holder->owed + tokens, NGX_RATELIMIT_MAX_TOKENS);

    if (holder->ask == NULL) {
        ngx_ratelimit_holder_ask(holder);
    }
}


uint32_t
ngx_ratelimit_holder_unowe(ngx_ratelimit_counter_t *counter, uint32_t tokens)
{
    uint32_t                 unowed;
    ngx_ratelimit_id_t       id;
    ngx_ratelimit_holder_t  *holder;

    id = ngx_ratelimit_leased_id(counter);
    holder = ngx_ratelimit_holder_find(counter->client->limiter->holders, &id,
                                       counter->limit->mark);
    if (holder == NULL) {
        return 0;
    }

    unowed = ngx_min(tokens, holder->owed);
    holder->owed -= unowed;
    holder->gave = ngx_min(holder->gave + tokens - unowed,
                           NGX_RATELIMIT_MAX_TOKENS);

    return unowed;
}


/* The counter's holder, made where there is none; NULL: memory is out. */
static ngx_ratelimit_holder_t *
ngx_ratelimit_holder_get(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_id_t        id;
    ngx_ratelimit_client_t   *client;
    ngx_ratelimit_holder_t   *holder;
    ngx_ratelimit_holders_t  *holders;

    client = counter->client;
    holders = client->limiter->holders;
    id = ngx_ratelimit_leased_id(counter);

    holder = ngx_ratelimit_holder_find(holders, &id, counter->limit->mark);

    if (holder) {
        ngx_ratelimit_holder_follow(holder, counter->rule);
        holder->note |= (counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL);
        return holder;
    }

    holder = ngx_calloc(sizeof(ngx_ratelimit_holder_t), holders->log);
    if (holder == NULL) {
        return NULL;
    }

    holder->note = (counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL);

    (void) ngx_ratelimit_client_hash(client);

    holder->holders = holders;
    holder->id = id;
    holder->limit = *counter->limit;

    holder->client.limiter = client->limiter;
    holder->client.local = client->local;
    holder->client.hash = client->hash;
    holder->client.bucket = client->bucket;
    holder->client.hashed = 1;

    ngx_ratelimit_policy_use(counter->rule->policy);

    holder->counter.rule = counter->rule;
    holder->counter.limit = &holder->limit;
    holder->counter.client = &holder->client;
    holder->counter.source = NGX_RATELIMIT_SOURCE_REDIS;
    holder->counter.leased = 1;

    ngx_queue_init(&holder->waiting);
    ngx_queue_init(&holder->asks);

    holder->node.key = (ngx_rbtree_key_t) id.lo;
    ngx_rbtree_insert(&holders->tree, &holder->node);

    holder->sweep_ms = ngx_current_msec + NGX_RATELIMIT_LEASE_HOLD_MS;
    ngx_queue_insert_tail(&holders->sweeps, &holder->queue);

    if (!holders->sweep.timer_set) {
        ngx_add_timer(&holders->sweep, NGX_RATELIMIT_LEASE_HOLD_MS);
    }

    return holder;
}


/*
 * The same rule of the policy that is in use now: a holder that has no rest
 * shall not keep an old one.
 */
static void
ngx_ratelimit_holder_follow(ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_ratelimit_policy_t  *before;

    before = holder->counter.rule->policy;

    if (rule->policy == before
        || rule->policy != holder->holders->limiter->policy)
    {
        return;
    }

    ngx_ratelimit_policy_use(rule->policy);
    holder->counter.rule = rule;
    ngx_ratelimit_policy_release(before);
}


static ngx_ratelimit_holder_t *
ngx_ratelimit_holder_find(ngx_ratelimit_holders_t *holders,
    const ngx_ratelimit_id_t *id, uint16_t mark)
{
    ngx_int_t                rc;
    ngx_rbtree_node_t       *node;
    ngx_ratelimit_holder_t  *holder;

    node = holders->tree.root;

    while (node != &holders->sentinel) {
        holder = ngx_rbtree_data(node, ngx_ratelimit_holder_t, node);
        rc = ngx_ratelimit_holder_compare(holder, id, mark);

        if (rc == 0) {
            return holder;
        }

        node = (rc < 0) ? node->left : node->right;
    }

    return NULL;
}


/* Whether what is asked for comes before the holder (below 0) or behind. */
static ngx_int_t
ngx_ratelimit_holder_compare(const ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_id_t *id, uint16_t mark)
{
    if (id->lo != holder->id.lo) {
        return id->lo < holder->id.lo ? -1 : 1;
    }

    if (id->hi != holder->id.hi) {
        return id->hi < holder->id.hi ? -1 : 1;
    }

    return (ngx_int_t) mark - (ngx_int_t) holder->limit.mark;
}


static void
ngx_ratelimit_holder_insert(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    ngx_rbtree_node_t       **p;
    ngx_ratelimit_holder_t   *holder, *other;

    holder = ngx_rbtree_data(node, ngx_ratelimit_holder_t, node);

    for ( ;; ) {
        other = ngx_rbtree_data(temp, ngx_ratelimit_holder_t, node);

        p = (ngx_ratelimit_holder_compare(other, &holder->id,
                                          holder->limit.mark)
             < 0) ? &temp->left : &temp->right;

        if (*p == sentinel) {
            break;
        }

        temp = *p;
    }

    *p = node;
    node->parent = temp;
    node->left = sentinel;
    node->right = sentinel;
    ngx_rbt_red(node);
}


/* Nobody waits, and no result is due, or none comes any more. */
static void
ngx_ratelimit_holder_free(ngx_ratelimit_holder_t *holder)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&holder->asks)) {
        q = ngx_queue_head(&holder->asks);
        ngx_queue_remove(q);
        ngx_free(ngx_queue_data(q, ngx_ratelimit_holder_ask_t, queue));
    }

    ngx_queue_remove(&holder->queue);
    ngx_rbtree_delete(&holder->holders->tree, &holder->node);
    ngx_ratelimit_policy_release(holder->counter.rule->policy);
    ngx_free(holder);
}


/*
 * The first call of those that wait has the same deadline. But who waits for a
 * second one, since the first brought too little, waits no longer.
 */
static void
ngx_ratelimit_holder_wait_handler(ngx_event_t *ev)
{
    ngx_queue_t              *q;
    ngx_msec_int_t            left;
    ngx_ratelimit_counter_t  *counter;
    ngx_ratelimit_holders_t  *holders;

    holders = ev->data;

    while (!ngx_queue_empty(&holders->waits)) {
        q = ngx_queue_head(&holders->waits);
        counter = ngx_queue_data(q, ngx_ratelimit_counter_t, wait);

        left = (ngx_msec_int_t) (counter->since_ms
                                 + holders->limiter->redis->timeout
                                 - ngx_current_msec);

        if (left > 0) {

            /* a request that came meanwhile may have set it, for later */

            if (ev->timer_set) {
                ngx_del_timer(ev);
            }

            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        counter->reason = NGX_RATELIMIT_REDIS_TIMEOUT;
        ngx_ratelimit_fallback(counter, 0);
        ngx_ratelimit_holder_complete(counter);
    }
}


static void
ngx_ratelimit_holder_sweep_handler(ngx_event_t *ev)
{
    ngx_queue_t              *q;
    ngx_msec_int_t            left;
    ngx_ratelimit_holder_t   *holder;
    ngx_ratelimit_holders_t  *holders;

    holders = ev->data;

    while (!ngx_queue_empty(&holders->sweeps)) {
        q = ngx_queue_head(&holders->sweeps);
        holder = ngx_queue_data(q, ngx_ratelimit_holder_t, queue);
        left = (ngx_msec_int_t) (holder->sweep_ms - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&holders->sweeps, q);
        holder->sweep_ms = ngx_current_msec + NGX_RATELIMIT_LEASE_HOLD_MS;

        if (ngx_ratelimit_holder_sweep(holder, 0) == NGX_DONE
            && ngx_queue_empty(&holder->waiting)
            && ngx_queue_empty(&holder->asks))
        {
            ngx_ratelimit_holder_free(holder);
        }
    }
}


/*
 * What was not spent in time goes back; async, what was spent is debited. all:
 * the worker ends. Returns NGX_DONE where there is nothing in hand any more, or
 * nobody has touched the counter for so long that it is worth nothing.
 */
static ngx_int_t
ngx_ratelimit_holder_sweep(ngx_ratelimit_holder_t *holder, unsigned all)
{
    uint32_t                      back, left;
    uint64_t                      age_us;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    if (ngx_ratelimit_holder_async(holder)) {
        return ngx_ratelimit_holder_debit(holder, all);
    }

    limiter = holder->client.limiter;
    ngx_ratelimit_leased_env(limiter, &env);

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 0,
                                      env.now_us, &entry);
    if (lease == NULL) {
        return NGX_DONE;
    }

    back = 0;
    left = 0;
    age_us = ngx_ratelimit_lease_age_us(lease, &holder->limit, env.now_us);

    if (lease->mark == holder->limit.mark && env.now_us < lease->busy_us) {

        if (!ngx_ratelimit_holder_ends(holder, lease, env.now_us)) {
            back = ngx_ratelimit_lease_sweep(lease, &holder->limit, &env, all);
        }

        left = lease->tokens;
    }

    ngx_ratelimit_leases_unlock(&entry);

    if (back) {
        ngx_ratelimit_holder_give(holder, back, age_us);
    }

    return left ? NGX_OK : NGX_DONE;
}


/* The same of async: one worker tells Redis what all have spent. */
static ngx_int_t
ngx_ratelimit_holder_debit(ngx_ratelimit_holder_t *holder, unsigned all)
{
    unsigned                      due;
    uint32_t                      left;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_ask_t     debit;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;
    ngx_ratelimit_leased_env(limiter, &env);

    due = (holder->owed != 0);
    left = holder->owed;
    ngx_memzero(&debit, sizeof(ngx_ratelimit_lease_ask_t));

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 0,
                                      env.now_us, &entry);

    if (lease && lease->mark == holder->limit.mark
        && env.now_us < lease->busy_us)
    {

        if (all) {
            debit.want = ngx_ratelimit_async_leave(lease, &holder->limit,
                                                   &env);
        } else {
            due |= ngx_ratelimit_async_due(lease, &env);
        }

        left += lease->tokens;
    }

    ngx_ratelimit_leases_unlock(&entry);

    if (all) {
        debit.want += holder->owed;

    } else if (due && holder->ask == NULL) {
        ngx_ratelimit_holder_ask(holder);
    }

    if (debit.want) {
        (void) ngx_ratelimit_remote_ask(&holder->counter, &debit, NULL, NULL);
    }

    return left ? NGX_OK : NGX_DONE;
}


/*
 * A call may take the timeout. What it gave back to the next window would be
 * too many there; and this one has no use for it any more.
 */
static ngx_uint_t
ngx_ratelimit_holder_ends(const ngx_ratelimit_holder_t *holder,
    const ngx_ratelimit_lease_t *lease, uint64_t now_us)
{
    return holder->limit.algorithm == NGX_RATELIMIT_FIXED_WINDOW
           && lease->fresh_us < now_us + (uint64_t) 1000
                                * holder->client.limiter->redis->timeout;
}

/*
 * Holders: in each worker, its part in a counter's lease. The call under way,
 * the requests that wait for what it brings, and when unspent tokens go back.
 *
 * A holder is heap memory, made when a worker first has to ask for a counter,
 * and freed by its sweep, every 100 ms, when there is nothing more to do. What
 * Redis is asked is heap memory too, and outlives its requests: a reply that
 * comes when nobody waits any more still fills the lease.
 */

#include "ngx_ratelimit_backend.h"

/* paid under one lock */
#define NGX_RATELIMIT_HOLDER_BATCH  64

/* of all holders of a limiter in this worker */
typedef struct {
    ngx_ratelimit_limiter_t     *limiter;
    ngx_log_t                   *log;
    ngx_rbtree_t                 tree;
    ngx_rbtree_node_t            sentinel;
    ngx_queue_t                  sweeps;     /* holders, the next first */
    ngx_queue_t                  waits;      /* counters, the oldest first */
    ngx_event_t                  sweep;
    ngx_event_t                  wait;
    ngx_uint_t                   rtt;        /* sixteenths of a ms */
} ngx_ratelimit_holders_t;

struct ngx_ratelimit_holder_s {
    ngx_rbtree_node_t            node;       /* its key: id.lo */
    ngx_queue_t                  queue;      /* in sweeps */
    ngx_msec_t                   sweep_ms;
    ngx_ratelimit_holders_t     *holders;
    ngx_ratelimit_id_t           id;         /* of the lease */

    ngx_queue_t                  waiting;    /* counters */
    uint64_t                     queued;     /* their cost */
    void                        *ask;        /* they wait for this one */
    ngx_queue_t                  asks;       /* those without a last result */
    unsigned                     note:1;     /* some are of fail_mode=local */

    /* what Redis is asked for, in memory of its own */
    ngx_ratelimit_counter_t      counter;
    ngx_ratelimit_client_t       client;
    ngx_ratelimit_limit_t        limit;
};

typedef struct {
    ngx_queue_t                  queue;
    ngx_ratelimit_holder_t      *holder;
    ngx_ratelimit_lease_ask_t    ask;
    uint32_t                     head;       /* cost of the first that waits */
    uint64_t                     asked_us;
} ngx_ratelimit_holder_ask_t;


static ngx_ratelimit_holder_t *ngx_ratelimit_holder_get(
    ngx_ratelimit_counter_t *counter);
static ngx_ratelimit_holder_t *ngx_ratelimit_holder_find(
    ngx_ratelimit_holders_t *holders, const ngx_ratelimit_id_t *id,
    uint16_t mark);
static ngx_int_t ngx_ratelimit_holder_compare(
    const ngx_ratelimit_holder_t *holder, const ngx_ratelimit_id_t *id,
    uint16_t mark);
static void ngx_ratelimit_holder_insert(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel);
static void ngx_ratelimit_holder_free(ngx_ratelimit_holder_t *holder);
static void ngx_ratelimit_holder_ask(ngx_ratelimit_holder_t *holder);
static ngx_int_t ngx_ratelimit_holder_size(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_holder_ask_t *ask);
static void ngx_ratelimit_holder_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_holder_answered(ngx_ratelimit_holder_t *holder,
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
static void ngx_ratelimit_holder_give(ngx_ratelimit_holder_t *holder,
    uint32_t tokens, uint64_t age_us);
static void ngx_ratelimit_holder_failed(ngx_ratelimit_holder_t *holder);
static void ngx_ratelimit_holder_fail(ngx_ratelimit_holder_t *holder,
    ngx_ratelimit_redis_status_e status, ngx_msec_t wait_ms);
static void ngx_ratelimit_holder_complete(ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_holder_wait_handler(ngx_event_t *ev);
static void ngx_ratelimit_holder_sweep_handler(ngx_event_t *ev);
static ngx_int_t ngx_ratelimit_holder_sweep(ngx_ratelimit_holder_t *holder,
    unsigned all);
static ngx_uint_t ngx_ratelimit_holder_ends(
    const ngx_ratelimit_holder_t *holder, const ngx_ratelimit_lease_t *lease,
    uint64_t now_us);


#define ngx_ratelimit_holder_async(holder)                                    \
    ((holder)->counter.rule->sync == NGX_RATELIMIT_SYNC_ASYNC)


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
    ngx_queue_t              *q;
    ngx_ratelimit_holder_t   *holder;
    ngx_ratelimit_holders_t  *holders;

    holders = limiter->holders;

    if (holders == NULL) {
        return;
    }

    /* requests that still wait end after this, and have no answer */

    while (!ngx_queue_empty(&holders->waits)) {
        q = ngx_queue_head(&holders->waits);
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
    id = ngx_ratelimit_local_id(counter);

    holder = ngx_ratelimit_holder_find(holders, &id, counter->limit->mark);

    if (holder) {
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
    ngx_free(holder);
}


/* For those that wait and ahead of others; or to debit, async. */
static void
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
        return NGX_OK;
    }

    if (lease) {
        back = ngx_ratelimit_lease_stale(lease, &holder->limit, &env);
        age_us = ngx_ratelimit_lease_age_us(lease, env.now_us);
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

    if (holder->note) {
        holder->counter.answer = *answer;
        ngx_ratelimit_fallback_note(&holder->counter);
    }

    if (ngx_ratelimit_holder_async(holder)) {
        return;
    }

    if (tokens == 0) {
        ngx_ratelimit_holder_pay(holder);

    } else {
        tokens = ngx_ratelimit_holder_spend(holder, answer, tokens);

        if (tokens) {
            ngx_ratelimit_holder_give(holder, tokens,
                          ngx_ratelimit_local_now_us() - ask->asked_us);
        }
    }

    if (ask->head && answer->retry_us) {
        ngx_ratelimit_holder_deny(holder, ask->head, answer);
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
                                 ask->ask.want, answer);
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


/* Tokens go back to Redis, and to what stands in for it. */
static void
ngx_ratelimit_holder_give(ngx_ratelimit_holder_t *holder, uint32_t tokens,
    uint64_t age_us)
{
    ngx_ratelimit_remote_give(&holder->counter, tokens, age_us);

    if (holder->note) {
        ngx_ratelimit_local_give(&holder->counter, tokens);
    }
}


/* What was asked for ahead of need may be asked for again. */
static void
ngx_ratelimit_holder_failed(ngx_ratelimit_holder_t *holder)
{
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;

    /* what is to be debited will be by the next sweep */

    if (ngx_ratelimit_holder_async(holder)) {
        return;
    }

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 0,
                                      ngx_ratelimit_local_now_us(), &entry);
    if (lease) {
        ngx_ratelimit_lease_failed(lease);
        ngx_ratelimit_leases_unlock(&entry);
    }
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


/* It has its answer: Redis', or what it gets instead. */
static void
ngx_ratelimit_holder_complete(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_holder_leave(counter);

    if (counter->source == NGX_RATELIMIT_SOURCE_NONE) {
        counter->source = NGX_RATELIMIT_SOURCE_REDIS;
    }

    ngx_ratelimit_check_answered(counter->client->check);
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
 * the worker ends. Returns NGX_DONE where there is nothing in hand any more.
 */
static ngx_int_t
ngx_ratelimit_holder_sweep(ngx_ratelimit_holder_t *holder, unsigned all)
{
    uint32_t                      back, left;
    uint64_t                      age_us;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_lease_ask_t     debit;
    ngx_ratelimit_lease_env_t     env;
    ngx_ratelimit_lease_entry_t   entry;

    limiter = holder->client.limiter;
    ngx_ratelimit_leased_env(limiter, &env);

    lease = ngx_ratelimit_leases_lock(limiter->zone.leases, &holder->id, 0,
                                      env.now_us, &entry);
    if (lease == NULL) {
        return NGX_DONE;
    }

    back = 0;
    age_us = ngx_ratelimit_lease_age_us(lease, env.now_us);

    if (lease->mark == holder->limit.mark
        && !ngx_ratelimit_holder_async(holder)
        && (all || !ngx_ratelimit_holder_ends(holder, lease, env.now_us)))
    {
        back = ngx_ratelimit_lease_sweep(lease, &holder->limit, &env, all);
    }

    left = (lease->mark == holder->limit.mark) ? lease->tokens : 0;

    ngx_ratelimit_leases_unlock(&entry);

    if (back) {
        ngx_ratelimit_holder_give(holder, back, age_us);
    }

    if (left && ngx_ratelimit_holder_async(holder)) {

        if (!all && holder->ask == NULL) {
            ngx_ratelimit_holder_ask(holder);

        } else if (all) {
            ngx_memzero(&debit, sizeof(ngx_ratelimit_lease_ask_t));
            debit.want = left;
            (void) ngx_ratelimit_remote_ask(&holder->counter, &debit, NULL,
                                            NULL);
        }
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

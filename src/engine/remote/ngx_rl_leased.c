/*
 * Counters in Redis that this gateway answers for, by a ledger that all workers
 * share: out of tokens in hand (sync=lease), or by what it last knew
 * (sync=async).
 *
 * A refill is a worker's part in one ledger: its calls to Redis, and the
 * requests that wait for them. It is heap memory, made when a worker first has
 * to ask for a counter, and freed by its sweep, every 100 ms, when there is
 * nothing more to do. Its calls are heap memory too and outlive their requests:
 * a reply that comes when nobody waits any more still fills the ledger.
 */

#include "ngx_rl_policy.h"
#include "ngx_rl_backend.h"
#include "ngx_rl_window.h"

/* paid under one lock */
#define NGX_RL_REFILL_BATCH  64

_Static_assert(sizeof(ngx_rl_ledger_t) <= NGX_RL_LEASE_BYTES,
               "a ledger fits its place");
_Static_assert(offsetof(ngx_rl_ledger_t, tokens)
               == NGX_RL_LEASE_TOKENS * sizeof(uint64_t),
               "its tokens are where the table of leases finds them");

/* all refills of a limiter in this worker */
typedef struct {
    ngx_rl_limiter_t       *limiter;
    ngx_log_t              *log;
    ngx_rbtree_t            tree;
    ngx_rbtree_node_t       sentinel;
    ngx_queue_t             sweeps;     /* refills, the next first */
    ngx_queue_t             waits;      /* counters, the oldest first */
    ngx_event_t             sweep;
    ngx_event_t             wait;
    ngx_uint_t              rtt;        /* sixteenths of a ms */
} ngx_rl_refills_t;

/* a ledger's id, and the mark of its limit */
typedef struct {
    ngx_rl_id_t             id;
    uint64_t                mark;
} ngx_rl_refill_name_t;

struct ngx_rl_refill_s {
    ngx_str_node_t          node;       /* its string: name */
    ngx_rl_refill_name_t    name;
    ngx_queue_t             queue;      /* in sweeps */
    ngx_msec_t              sweep_ms;
    ngx_rl_refills_t       *refills;

    ngx_queue_t             waiting;    /* counters */
    uint64_t                queued;     /* their cost */
    uint32_t                owed;       /* async: spent without a ledger, not
                                           debited yet */
    uint32_t                gave;       /* async: given back since the last call
                                           was made */
    void                   *call;       /* that they wait for */
    ngx_queue_t             calls;      /* those without a last result */
    unsigned                local:1;    /* some are of fail_mode=local */

    /* the counter in memory of its own; it uses the rule's policy as long as it
       lives */
    ngx_rl_counter_t        counter;
    ngx_rl_client_t         client;
    ngx_rl_remote_client_t  remote;     /* of the client */
    ngx_rl_limit_t          limit;
};

typedef struct {
    ngx_queue_t             queue;
    ngx_rl_refill_t        *refill;
    ngx_rl_ledger_call_t    says;
    uint32_t                head;       /* cost of the first that waits */
    uint64_t                asked_us;
} ngx_rl_refill_call_t;

/* A ledger that is locked, and what is known to it now. */
typedef struct {
    ngx_rl_ledger_env_t     env;
    ngx_rl_lease_entry_t    entry;
} ngx_rl_locked_t;

/* the counter whose remote part is in a queue, by the queue's member */
#define ngx_rl_refill_counter(q, member)                                      \
    ((ngx_queue_data(q, ngx_rl_remote_t, member))->counter)

#define ngx_rl_leased_async(counter)                                          \
    ((counter)->rule->sync == NGX_RL_SYNC_ASYNC)

#define ngx_rl_leased_unlock(locked)                                          \
    ngx_rl_leases_unlock(&(locked)->entry)

static void ngx_rl_refill_ask(ngx_rl_refill_t *refill);


/* Names the counter's ledger. One that debits behind is another. */
static ngx_inline ngx_rl_id_t
ngx_rl_leased_id(const ngx_rl_counter_t *counter)
{
    ngx_rl_id_t  id;

    id = ngx_rl_counter_id(counter);
    id.lo ^= ngx_rl_leased_async(counter);

    return id;
}


/*
 * Locks the counter's ledger until ngx_rl_leased_unlock(), made if there is
 * none and make is set. NULL, and nothing is locked: there is none, or no place
 * is free. A zone with Redis always has a table of leases.
 */
static ngx_rl_ledger_t *
ngx_rl_leased_lock(const ngx_rl_counter_t *counter, ngx_uint_t make,
    ngx_rl_locked_t *locked)
{
    ngx_rl_leases_t         *leases;
    ngx_rl_ledger_env_t     *env;
    const ngx_rl_limiter_t  *limiter;
    const ngx_rl_refills_t  *refills;

    limiter = counter->client->limiter;
    leases = limiter->zone.leases;
    refills = limiter->refills;
    env = &locked->env;

    env->now_us = ngx_rl_local_now_us();
    env->gateways = ngx_rl_redis_gateways(limiter->redis);

    if (limiter->fleet) {
        env->gateways = ngx_max(env->gateways, ngx_rl_fleet_gateways(limiter));
    }

    env->rtt_ms = refills ? refills->rtt / 16 + 1 : 1;
    env->forgot_us = ngx_rl_leases_forgot_us(leases);
    env->behind = ngx_rl_leased_async(counter);

    /* one that debits behind has no tokens in hand, nor has a strict one */

    if (counter->rule->sync == NGX_RL_SYNC_LEASE) {
        make = make ? NGX_RL_LEASE_HOLDS : 0;

    } else if (env->behind) {
        env->interval_ms = limiter->redis->interval;
        env->share = counter->rule->regions ? ngx_rl_counter_share(counter)
                                            : 1;
    }

    return ngx_rl_leases_lock(leases, ngx_rl_leased_id(counter), make,
                              env->now_us, &locked->entry);
}


/* Counts a counter that Redis has lost. */
static void
ngx_rl_leased_lost(const ngx_rl_counter_t *counter)
{
    const ngx_rl_limiter_t  *limiter;

    limiter = counter->client->limiter;
    ngx_rl_count(limiter->rows[NGX_RL_COUNTS_ZONE], NGX_RL_COUNTS_LOST, 1);
}


/* A counter waits no more. */
static void
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


/* A counter that waits gets no answer from Redis. */
static void
ngx_rl_refill_fail(ngx_rl_counter_t *counter, ngx_rl_redis_status_e status,
    ngx_msec_t wait_ms)
{
    ngx_rl_fallback(counter, status, wait_ms);
    ngx_rl_refill_complete(counter);
}


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


/* Tokens go back to Redis, and to what stands in for it. */
static void
ngx_rl_refill_give(ngx_rl_refill_t *refill, uint32_t tokens, uint64_t age_us)
{
    ngx_rl_script_give(&refill->counter, tokens, age_us);

    if (refill->local) {
        ngx_rl_local_give(&refill->counter, tokens);
    }
}


/* Fills the ledger. Returns how many of the tokens are not in it. */
static uint32_t
ngx_rl_refill_fill(ngx_rl_refill_t *refill, const ngx_rl_refill_call_t *call,
    const ngx_rl_answer_t *answer)
{
    uint32_t          tokens;
    ngx_uint_t        lost;
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    tokens = answer->granted;

    ledger = ngx_rl_leased_lock(&refill->counter, 1, &locked);
    if (ledger == NULL) {
        return tokens;
    }

    lost = ngx_rl_ledger_lost(ledger, &refill->limit, &locked.env,
                              call->asked_us, &call->says, answer);

    if (ngx_rl_ledger_fill(ledger, &refill->limit, &locked.env, call->asked_us,
                           &call->says, answer))
    {
        tokens = 0;
    }

    ngx_rl_leased_unlock(&locked);

    if (lost) {
        ngx_rl_leased_lost(&refill->counter);
    }

    return tokens;
}


/*
 * Pays the requests that wait out of the ledger, in their order: as many as are
 * good for one lock, then their checks go on. What follows are posted events:
 * all of those that are paid stay meanwhile.
 */
static void
ngx_rl_refill_pay(ngx_rl_refill_t *refill)
{
    ngx_uint_t         i, n;
    ngx_queue_t       *q;
    ngx_rl_ledger_t   *ledger;
    ngx_rl_locked_t    locked;
    ngx_rl_counter_t  *counter, *paid[NGX_RL_REFILL_BATCH];

    do {
        n = 0;

        ledger = ngx_rl_leased_lock(&refill->counter, 0, &locked);
        if (ledger == NULL) {
            return;
        }

        for (q = ngx_queue_head(&refill->waiting);
             q != ngx_queue_sentinel(&refill->waiting)
             && n < NGX_RL_REFILL_BATCH;
             q = ngx_queue_next(q))
        {
            counter = ngx_rl_refill_counter(q, queue);

            if (!ngx_rl_ledger_pay(ledger, &refill->limit, &locked.env,
                                   counter->cost, &counter->answer))
            {
                break;
            }

            paid[n++] = counter;
        }

        ngx_rl_leased_unlock(&locked);

        for (i = 0; i < n; i++) {
            ngx_rl_refill_complete(paid[i]);
        }

    } while (n == NGX_RL_REFILL_BATCH);
}


/*
 * The same without a ledger: those that wait get what Redis has granted.
 * Returns how many tokens are left of that.
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
ngx_rl_refill_reject(ngx_rl_refill_t *refill, uint32_t head,
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

        } else if (answer->retry_us != NGX_RL_NEVER) {
            counter->answer.retry_us
                = ngx_rl_ledger_later_us(&refill->limit, answer, head,
                                         counter->cost - head);
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

    if (ngx_rl_leased_async(&refill->counter)) {

        /*
         * This gateway's own counter, which decides where there is no ledger,
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

    if (refill->local) {
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
        ngx_rl_refill_reject(refill, call->head, answer);
    }
}


/* Redis has not run the call, or may have. */
static void
ngx_rl_refill_failed(ngx_rl_refill_t *refill, ngx_rl_refill_call_t *call,
    ngx_uint_t ran)
{
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    ledger = ngx_rl_leased_lock(&refill->counter, 0, &locked);

    if (ledger) {
        call->says.debit = ran ? 0 : call->says.debit;
        ngx_rl_ledger_failed(ledger, &refill->limit, &locked.env, &call->says);
        ngx_rl_leased_unlock(&locked);
    }
}


static void
ngx_rl_refill_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_refill_call_t *call = data;

    ngx_uint_t              last;
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
            ngx_rl_refill_ask(refill);
        }

    } else if (last || ngx_rl_leased_async(&refill->counter)) {
        ngx_rl_refill_failed(refill, call, result->ran);
        ngx_rl_refill_fail_all(refill, status, result->wait_ms);
    }

    ngx_free(call);
}


/*
 * Asks Redis for the counters that wait, and ahead of others; async: debits. If
 * memory is out, those that wait get their answers now.
 */
static void
ngx_rl_refill_ask(ngx_rl_refill_t *refill)
{
    uint32_t               owed;
    ngx_uint_t             asks;
    ngx_queue_t           *q;
    ngx_rl_ledger_t       *ledger;
    ngx_rl_locked_t        locked;
    ngx_rl_refill_call_t  *call;

    call = ngx_alloc(sizeof(ngx_rl_refill_call_t), refill->refills->log);

    if (call == NULL) {
        ngx_rl_refill_fail_all(refill, NGX_RL_REDIS_UNREACHABLE, 0);
        return;
    }

    call->refill = refill;
    call->head = 0;

    if (!ngx_queue_empty(&refill->waiting)) {
        q = ngx_queue_head(&refill->waiting);
        call->head = ngx_rl_refill_counter(q, queue)->cost;
    }

    /* what it says is of the ledger, and of what was spent without one */

    ledger = ngx_rl_leased_lock(&refill->counter, 1, &locked);
    call->asked_us = locked.env.now_us;

    asks = ngx_rl_ledger_ask(ledger, &refill->limit, &locked.env, call->head,
                             ngx_min(refill->queued, NGX_RL_MAX_TOKENS),
                             &call->says);
    ngx_rl_leased_unlock(&locked);

    if (!locked.env.behind && call->says.debit) {
        ngx_rl_refill_give(refill, (uint32_t) -call->says.debit,
                           call->says.age_us);
        call->says.debit = 0;

    } else if (locked.env.behind && call->says.debit >= 0) {
        owed = refill->limit.capacity - (uint32_t) call->says.debit;
        owed = ngx_min(owed, refill->owed);

        refill->owed -= owed;
        refill->gave = 0;
        call->says.debit += (int32_t) owed;
    }

    if (!asks && call->says.debit == 0) {
        ngx_free(call);
        return;
    }

    if (ngx_rl_script_ask(&refill->counter, &call->says, ngx_rl_refill_handler,
                          call)
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


/*
 * Gives back tokens that were not spent in time; async: one worker debits what
 * all have spent. all: the worker ends. Returns NGX_DONE if there is nothing
 * more to do, or nobody has touched the counter for so long that it is worth
 * nothing.
 */
static ngx_int_t
ngx_rl_refill_sweep(ngx_rl_refill_t *refill, ngx_uint_t all)
{
    ngx_uint_t             due, left;
    ngx_rl_ledger_t       *ledger;
    ngx_rl_locked_t        locked;
    ngx_rl_ledger_call_t   says;

    due = (refill->owed != 0);
    left = due;
    says.debit = 0;

    ledger = ngx_rl_leased_lock(&refill->counter, 0, &locked);

    if (ledger && ledger->mark == refill->limit.mark
        && locked.env.now_us < ledger->busy_us)
    {
        /*
         * A call may take as long as the timeout. Tokens of a fixed window that
         * is over by then would be too many in the next one.
         */

        if (locked.env.behind
            || refill->limit.algorithm != NGX_RL_FIXED_WINDOW
            || ledger->fresh_us >= locked.env.now_us + (uint64_t) 1000
                                   * refill->client.limiter->redis->timeout)
        {
            due |= ngx_rl_ledger_sweep(ledger, &refill->limit, &locked.env, all,
                                       &says);
        }

        left |= locked.env.behind ? ledger->owed != 0 : ledger->tokens != 0;
    }

    ngx_rl_leased_unlock(&locked);

    if (!locked.env.behind) {
        if (says.debit) {
            ngx_rl_refill_give(refill, (uint32_t) -says.debit, says.age_us);
        }

    } else if (!all) {
        if (due && refill->call == NULL) {
            ngx_rl_refill_ask(refill);
        }

    } else {
        says.debit += (int32_t) ngx_min(refill->owed,
                                        (uint32_t) (NGX_RL_MAX_TOKENS
                                                    - ngx_max(says.debit, 0)));
        if (says.debit) {
            (void) ngx_rl_script_ask(&refill->counter, &says, NULL, NULL);
        }
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
        refill->sweep_ms = ngx_current_msec + NGX_RL_LEDGER_HOLD_MS;

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

    text = ngx_rl_str((u_char *) name, sizeof(ngx_rl_refill_name_t));

    return (ngx_rl_refill_t *) ngx_str_rbtree_lookup(&refills->tree, &text,
                                                     (uint32_t) name->id.lo);
}


/*
 * The counter's refill, made if there is none: from here on it sweeps. NULL:
 * memory is out, or the worker exits.
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

        refill->local |= (counter->fail_mode == NGX_RL_FAIL_LOCAL);
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
    refill->local = (counter->fail_mode == NGX_RL_FAIL_LOCAL);
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

    refill->sweep_ms = ngx_current_msec + NGX_RL_LEDGER_HOLD_MS;
    ngx_queue_insert_tail(&refills->sweeps, &refill->queue);

    if (!refills->sweep.timer_set) {
        ngx_add_timer(&refills->sweep, NGX_RL_LEDGER_HOLD_MS);
    }

    return refill;
}


/* The counter waits until its ledger was refilled. */
static void
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
        ngx_rl_refill_ask(refill);
    }
}


/*
 * What the ledger wants of the caller. A call asks for more tokens, or debits,
 * and nobody waits. owed: spent without a place for a ledger, of this and later
 * calls: if their call fails, or memory is out, they are never debited.
 */
static void
ngx_rl_leased_next(ngx_rl_counter_t *counter, unsigned next, uint32_t owed)
{
    ngx_rl_refill_t  *refill;

    if (next == 0 && owed == 0) {
        return;
    }

    refill = ngx_rl_refill_get(counter);

    if (refill == NULL || next == NGX_RL_LEDGER_SWEEP) {
        return;
    }

    refill->owed = ngx_min(refill->owed + owed, NGX_RL_MAX_TOKENS);

    if (refill->call == NULL) {
        ngx_rl_refill_ask(refill);
    }
}


/*
 * async, which never waits: this gateway's own counter decides until Redis has
 * said what is left, and as long as there is no place to keep that.
 */
static void
ngx_rl_leased_local(ngx_rl_counter_t *counter, unsigned next)
{
    uint32_t          owed;
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    if (counter->rule->regions) {
        ledger = ngx_rl_leased_lock(counter, 0, &locked);
        counter->cut = ledger && ledger->away;
        ngx_rl_leased_unlock(&locked);
    }

    ngx_memzero(&counter->answer, sizeof(ngx_rl_answer_t));
    ngx_rl_local_take(counter);

    owed = counter->answer.granted;

    if (owed) {
        counter->in_local = 1;
        ledger = ngx_rl_leased_lock(counter, 1, &locked);

        if (ledger) {
            ngx_rl_ledger_spent(ledger, counter->limit, &locked.env,
                                &counter->answer, &next);
            ngx_rl_leased_unlock(&locked);
            owed = 0;
        }
    }

    ngx_rl_leased_next(counter, next, owed);
}


/*
 * async: the ledger takes the next window for the longest that the calendar
 * has, if that owes all, too.
 */
static void
ngx_rl_leased_owes_next(ngx_rl_counter_t *counter)
{
    uint64_t               reset_us, wall_us;
    ngx_rl_bounds_t        next;
    const ngx_rl_limit_t  *limit;

    limit = counter->limit;
    reset_us = counter->answer.reset_us;

    if (limit->calendar == NGX_RL_CALENDAR_NONE
        || counter->answer.retry_us == NGX_RL_NEVER
        || counter->answer.retry_us < reset_us + limit->window_us)
    {
        return;
    }

    /* the clocks may differ: in the midst of it */

    wall_us = (uint64_t) ngx_time() * 1000000 + reset_us
              + limit->window_us / 2;
    next = ngx_rl_calendar_bounds(limit, wall_us);

    counter->answer.retry_us -= limit->window_us
                                - (next.end_us - next.start_us);
}


void
ngx_rl_leased_look(const ngx_rl_counter_t *counter, ngx_rl_answer_t *answer)
{
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    ngx_memzero(answer, sizeof(ngx_rl_answer_t));
    answer->remaining = counter->limit->capacity;

    ledger = ngx_rl_leased_lock(counter, 0, &locked);
    if (ledger == NULL) {
        return;
    }

    if (counter->cost == 0
        || !ngx_rl_ledger_rejects(ledger, counter->limit, &locked.env,
                                  counter->cost, answer))
    {
        ngx_rl_ledger_look(ledger, counter->limit, &locked.env, answer);
    }

    ngx_rl_leased_unlock(&locked);
}


static void
ngx_rl_leased_take(ngx_rl_counter_t *counter)
{
    unsigned          next;
    ngx_rl_ledger_e   rc;
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    if (counter->cost == 0) {

        /*
         * It passes in any case, so it asks nobody: the answer is what this
         * gateway knows, or that of a counter nobody has used.
         */

        counter->source = NGX_RL_SOURCE_LEASE;

        if (counter->fail_mode == NGX_RL_FAIL_LOCAL) {
            ngx_rl_local_take(counter);
            return;
        }

        ngx_rl_leased_look(counter, &counter->answer);
        return;
    }

    ledger = ngx_rl_leased_lock(counter, 1, &locked);

    if (ledger == NULL) {

        if (locked.env.behind) {
            counter->source = NGX_RL_SOURCE_LOCAL;
            ngx_rl_leased_local(counter, 0);
            return;
        }

        counter->asks = 1;
        return;
    }

    rc = ngx_rl_ledger_take(ledger, counter->limit, &locked.env, counter->cost,
                            &counter->answer, &next);

    if (rc != NGX_RL_LEDGER_ASK || locked.env.behind) {
        counter->source = NGX_RL_SOURCE_LEASE;

    } else {
        counter->asks = 1;
        counter->alone = ngx_rl_ledger_alone(ledger, counter->limit,
                                             &locked.env);
        if (counter->alone) {
            counter->backend = &ngx_rl_strict;
        }
    }

    ngx_rl_leased_unlock(&locked);

    if (locked.env.behind && rc >= NGX_RL_LEDGER_ASK) {

        if (rc == NGX_RL_LEDGER_FRESH) {
            ngx_rl_local_note(counter);
        }

        ngx_rl_leased_local(counter, next);
        return;
    }

    if (rc == NGX_RL_LEDGER_REJECTED && locked.env.behind) {
        ngx_rl_leased_owes_next(counter);
    }

    ngx_rl_leased_next(counter, next, 0);
}


/* The tokens go to the ledger or, if it does not take them, to Redis. */
static void
ngx_rl_leased_give(ngx_rl_counter_t *counter, uint32_t tokens)
{
    uint32_t               kept, unowed;
    uint64_t               taken_us;
    ngx_rl_ledger_t       *ledger;
    ngx_rl_locked_t        locked;
    ngx_rl_refill_t       *refill;
    ngx_rl_refill_name_t   name;

    taken_us = counter->client->check->taken_us;
    kept = 0;

    if (counter->in_local) {
        ngx_rl_local_give(counter, tokens);
    }

    ledger = ngx_rl_leased_lock(counter, 0, &locked);

    if (ledger) {
        kept = ngx_rl_ledger_give(ledger, counter->limit, &locked.env, taken_us,
                                  tokens);
        ngx_rl_leased_unlock(&locked);
    }

    /* the worker that gives to the ledger sees to it that unspent ones go on */

    if (kept) {
        (void) ngx_rl_refill_get(counter);
    }

    refill = counter->in_local ? ngx_rl_refill_find(counter, &name) : NULL;

    if (refill) {

        /* no call has debited them yet */

        unowed = ngx_min(tokens - kept, refill->owed);
        refill->owed -= unowed;
        refill->gave = ngx_min(refill->gave + tokens - kept - unowed,
                               NGX_RL_MAX_TOKENS);
        kept += unowed;
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
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    charged = 0;

    if (counter->in_local) {
        ngx_rl_local_charge(counter, counter->charge);
    }

    ledger = ngx_rl_leased_lock(counter, 0, &locked);

    if (ledger) {
        charged = ngx_rl_ledger_charge(ledger, counter->limit, &locked.env,
                                       counter->charge);
        ngx_rl_leased_unlock(&locked);
    }

    if (charged && locked.env.behind) {
        (void) ngx_rl_refill_get(counter);
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
    ngx_rl_leased_give,
    ngx_rl_leased_charge
};


void
ngx_rl_leased_learn(ngx_rl_counter_t *counter, uint64_t asked_us,
    ngx_uint_t answered)
{
    ngx_uint_t             first;
    ngx_rl_answer_t        answer;
    ngx_rl_ledger_t       *ledger;
    ngx_rl_locked_t        locked;
    ngx_rl_ledger_call_t   call;

    /* a worker that ends asks for an async counter as for a strict one */

    if (ngx_rl_leased_async(counter)) {
        return;
    }

    ngx_memzero(&call, sizeof(ngx_rl_ledger_call_t));
    call.cost = counter->cost;
    answer = counter->answer;

    if (counter->alone) {
        call.want = counter->cost;
        call.share = 1;

    } else {
        answer.granted = 0;
    }

    ledger = ngx_rl_leased_lock(counter, !counter->alone, &locked);
    if (ledger == NULL) {
        return;
    }

    /* tokens of a strict counter come back without the ledger's knowledge */

    if (answered
        && (counter->alone || (counter->rule->part_limits == NULL
                               && !(counter->rule->needs
                                    & NGX_RL_NEEDS_SETTLE)))
        && ngx_rl_ledger_lost(ledger, counter->limit, &locked.env, asked_us,
                              &call, &counter->answer))
    {
        ngx_rl_leased_lost(counter);
    }

    /* a strict one's are in no ledger's hand, but spent: no rejection stands */

    if (!counter->alone && counter->answer.granted) {
        (void) ngx_rl_ledger_charge(ledger, counter->limit, &locked.env,
                                    counter->answer.granted);
    }

    first = (ledger->mark != counter->limit->mark
             || (ledger->retry_ms == 0 && ledger->overtaken == 0));

    if (!answered) {
        ngx_rl_ledger_failed(ledger, counter->limit, &locked.env, &call);

    } else if (ngx_rl_ledger_fill(ledger, counter->limit, &locked.env, asked_us,
                                  &call, &answer)
               && answer.granted
               && ngx_rl_ledger_pay(ledger, counter->limit, &locked.env,
                                    answer.granted, &counter->answer))
    {
        /* so what comes back comes to the ledger, which knows it as spent */

        counter->backend = &ngx_rl_leased;
    }

    /* a spent sliding window does not say when it has a token: Redis does */

    if (!counter->alone && ledger->unnamed && counter->answer.retry_us == 0) {
        ledger->retry_ms = 0;
    }

    if (counter->rule->sync == NGX_RL_SYNC_STRICT && ledger->retry_ms) {

        /* another gateway may give back at once what it took: ask once more */

        if (first) {
            ledger->overtaken = 1;
        }

        ngx_rl_leases_reject(counter->client->limiter->zone.leases,
                             locked.env.now_us
                             + (uint64_t) ledger->retry_ms * 1000);
    }

    ngx_rl_leased_unlock(&locked);
}


ngx_uint_t
ngx_rl_leased_rejects(ngx_rl_counter_t *counter)
{
    ngx_uint_t        rejects;
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    if (ngx_rl_leases_rejected_us(counter->client->limiter->zone.leases)
        <= ngx_rl_local_now_us())
    {
        return 0;
    }

    ledger = ngx_rl_leased_lock(counter, 0, &locked);
    if (ledger == NULL) {
        return 0;
    }

    rejects = ngx_rl_ledger_rejects(ledger, counter->limit, &locked.env,
                                    counter->cost, &counter->answer);
    ngx_rl_leased_unlock(&locked);

    return rejects;
}


void
ngx_rl_leased_owes(const ngx_rl_counter_t *counter)
{
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    if (ngx_rl_leases_rejected_us(counter->client->limiter->zone.leases)
        <= ngx_rl_local_now_us())
    {
        return;
    }

    ledger = ngx_rl_leased_lock(counter, 0, &locked);

    if (ledger) {
        (void) ngx_rl_ledger_charge(ledger, counter->limit, &locked.env,
                                    counter->charge);
        ngx_rl_leased_unlock(&locked);
    }
}


void
ngx_rl_leased_gave(const ngx_rl_counter_t *counter, uint32_t tokens)
{
    ngx_rl_ledger_t  *ledger;
    ngx_rl_locked_t   locked;

    ledger = ngx_rl_leased_lock(counter, 0, &locked);

    if (ledger) {
        ngx_rl_ledger_gave(ledger, counter->limit, &locked.env, tokens);
        ngx_rl_leased_unlock(&locked);
    }
}

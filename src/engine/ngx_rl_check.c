/*
 * One check: local counters first, since they cost no round trip; then
 * Redis; then the outcome.
 */

#include "ngx_rl_backend.h"


ngx_int_t
ngx_rl_check_prepare(ngx_rl_rule_t *rule, ngx_pool_t *pool)
{
    return rule->shards ? ngx_rl_parts_prepare(rule, pool)
                        : ngx_rl_script_prepare(rule, pool);
}


/* Prepares the part for Redis, if a zone has one. */
static void
ngx_rl_check_remote(ngx_rl_check_t *check)
{
    ngx_uint_t        i;
    ngx_rl_client_t  *client;

    check->remote->renewing = 0;
    check->remote->name = 0;

    for (i = 0; i < check->nclients; i++) {
        client = &check->clients[i];

        if (client->limiter->redis) {
            client->remote = &check->remote->clients[i];
            client->remote->call = NULL;
            client->remote->hashed = 0;
            client->remote->asked = 0;
        }
    }
}


/* The zone has Redis. A request that costs nothing asks it only to look. */
static const ngx_rl_backend_t *
ngx_rl_check_backend(const ngx_rl_counter_t *counter)
{
    if (counter->rule->part_limits) {
        return &ngx_rl_parts;
    }

    if (counter->peek
        || (counter->cost && (counter->rule->sync == NGX_RL_SYNC_STRICT
                              || counter->client->limiter->refills == NULL)))
    {
        return &ngx_rl_strict;
    }

    return &ngx_rl_leased;
}


/* With a Redis or peers in the location: 0 if the zone has neither. */
static ngx_uint_t
ngx_rl_check_take_shared(ngx_rl_check_t *check, ngx_rl_counter_t *counter)
{
    counter->remote = NULL;

    if (counter->client->remote == NULL) {

        if (counter->client->limiter->fleet == NULL) {
            return 0;
        }

        counter->source = NGX_RL_SOURCE_LOCAL;
        counter->backend = &ngx_rl_peered;
        counter->backend->take(counter);
        return 1;
    }

    counter->remote = &check->remote->counters[counter - check->counters];
    counter->remote->counter = counter;
    counter->remote->refill = NULL;

    ngx_memzero(&counter->answer, sizeof(ngx_rl_answer_t));
    counter->backend = ngx_rl_check_backend(counter);
    counter->backend->take(counter);

    check->pending += counter->asks;

    return 1;
}


static ngx_rl_inline void
ngx_rl_check_take_one(ngx_rl_check_t *check, ngx_rl_counter_t *counter)
{
    if (counter->limit->capacity == 0) {

        /* there is nothing to wait for; a look is not rejected */

        ngx_memzero(&counter->answer, sizeof(ngx_rl_answer_t));

        counter->remote = NULL;
        counter->source = NGX_RL_SOURCE_LOCAL;
        counter->backend = &ngx_rl_nowhere;
        counter->answer.retry_us = counter->peek ? 0 : NGX_RL_NEVER;

    } else if (check->remote == NULL
               || !ngx_rl_check_take_shared(check, counter))
    {
        counter->remote = NULL;
        counter->source = NGX_RL_SOURCE_LOCAL;
        counter->backend = &ngx_rl_local;
        ngx_rl_local_take(counter);
    }
}


/* As far as the request is not delayed. */
static ngx_inline ngx_rl_status_e
ngx_rl_check_status(const ngx_rl_counter_t *counter)
{
    if (ngx_rl_counter_unavailable(counter)) {
        return NGX_RL_UNAVAILABLE;
    }

    if (counter->answer.retry_us) {
        return counter->dry_run ? NGX_RL_REJECTED_DRY_RUN : NGX_RL_REJECTED;
    }

    return (counter->source == NGX_RL_SOURCE_FALLBACK)
           ? NGX_RL_DEGRADED : NGX_RL_PASSED;
}


/* A gateway that goes on alone has a share of the rate, and a slower turn. */
static uint64_t
ngx_rl_check_delay(const ngx_rl_counter_t *counter)
{
    uint32_t         weight;
    ngx_rl_answer_t  answer;

    weight = ngx_rl_counter_weight(counter);

    answer = counter->answer;
    answer.reset_us = answer.reset_us * 2 / weight;

    return ngx_rl_limit_delay(ngx_rl_counter_limit(counter), &answer)
           * weight / 2;
}


/* The status where a leaky bucket lets the request pass, maybe later. */
static ngx_rl_status_e
ngx_rl_check_delayed(ngx_rl_check_t *check, const ngx_rl_counter_t *counter,
    ngx_rl_status_e status)
{
    uint64_t  delay_us;

    delay_us = ngx_rl_check_delay(counter);

    if (!counter->dry_run && delay_us > check->delay_us) {
        check->delay_us = delay_us;
    }

    if (delay_us == 0 || status != NGX_RL_PASSED) {
        return status;
    }

    return counter->dry_run ? NGX_RL_DELAYED_DRY_RUN : NGX_RL_DELAYED;
}


/* Worked out once: the strictest is compared with each that follows. */
static ngx_inline uint32_t
ngx_rl_check_left(ngx_rl_counter_t *counter)
{
    ngx_rl_answer_t  *answer;

    answer = &counter->answer;

    if (answer->remaining == NGX_RL_LATER) {
        answer->remaining = ngx_rl_counter_remaining(counter);
    }

    return answer->remaining;
}


/*
 * Whether one is stricter than two. If both have one status, the longer wait
 * is, then the fewer tokens left; a longer delay shows there.
 */
static ngx_inline ngx_uint_t
ngx_rl_check_stricter(ngx_rl_counter_t *one, ngx_rl_status_e status,
    ngx_rl_counter_t *two, ngx_rl_status_e than)
{
    if (status != than) {
        return status > than;
    }

    if (one->answer.retry_us != two->answer.retry_us) {
        return one->answer.retry_us > two->answer.retry_us;
    }

    return ngx_rl_check_left(one) < ngx_rl_check_left(two);
}


/*
 * A rejection outweighs a missing answer, which outweighs a permission. A dry
 * run weighs less than a limit that is enforced, and no client sees it.
 */
static ngx_inline void
ngx_rl_check_weigh(ngx_rl_check_t *check, ngx_rl_counter_t *counter)
{
    ngx_rl_status_e  status;

    if (counter->source == NGX_RL_SOURCE_NONE) {
        return;
    }

    status = ngx_rl_check_status(counter);

    if (ngx_rl_counter_limit(counter)->algorithm == NGX_RL_LEAKY_BUCKET
        && counter->answer.retry_us == 0)
    {
        status = ngx_rl_check_delayed(check, counter, status);
    }

    if (counter->dry_run) {

        /*
         * Until the check finishes, decisive is the strictest of the dry runs.
         */

        if (check->decisive == NULL
            || ngx_rl_check_stricter(counter, status, check->decisive,
                                     check->status))
        {
            check->status = status;
            check->decisive = counter;
        }

    } else if (check->strictest == NULL
               || ngx_rl_check_stricter(counter, status,
                                        check->strictest,
                                        check->severity))
    {
        check->severity = status;
        check->strictest = counter;
    }
}


/* Whether no dry run decides; of two that are as strict the first does. */
static ngx_uint_t
ngx_rl_check_enforces(ngx_rl_check_t *check)
{
    if (check->strictest == NULL) {
        return 0;
    }

    return (check->strictest < check->decisive)
           ? !ngx_rl_check_stricter(check->decisive, check->status,
                                    check->strictest, check->severity)
           : ngx_rl_check_stricter(check->strictest, check->severity,
                                   check->decisive, check->status);
}


/* The client sees the charge or refund before Redis knows of it. */
static void
ngx_rl_check_foresee(ngx_rl_counter_t *counter)
{
    uint32_t              charge, most;
    ngx_rl_answer_t      *answer;
    ngx_rl_interval_t     used, none;
    const ngx_rl_rate_t  *rate;

    answer = &counter->answer;
    rate = &counter->limit->rate;
    most = counter->limit->capacity;

    answer->remaining = ngx_min(answer->remaining + counter->refund, most);
    answer->remaining -= ngx_min(answer->remaining, counter->charge);

    if (!ngx_rl_limit_is_bucket(counter->limit)) {
        return;
    }

    /* what is owed is one capacity at most */

    charge = ngx_min(counter->charge, 2 * most);
    none.us = 0;
    none.frac = 0;

    used = ngx_rl_interval_add(rate, none, counter->refund);
    answer->reset_us -= ngx_min(answer->reset_us, used.us);

    used = ngx_rl_interval_add(rate, none, charge);
    answer->reset_us = ngx_min(answer->reset_us + used.us, 2 * rate->span_us);
}


void
ngx_rl_check_settle(ngx_rl_check_t *check)
{
    ngx_uint_t         i;
    ngx_rl_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->source == NGX_RL_SOURCE_LEASE
            || counter->source == NGX_RL_SOURCE_REDIS)
        {
            ngx_rl_check_foresee(counter);
        }

        if (counter->charge && counter->backend->charge) {
            counter->backend->charge(counter);

        } else if (counter->refund && counter->backend->give) {
            counter->backend->give(counter, counter->refund);
        }
    }

    ngx_rl_strict_send(check, NGX_RL_STRICT_SETTLE);
}


/* A rejected request costs none of the counters that would let it pass. */
static void
ngx_rl_check_give_back(ngx_rl_check_t *check)
{
    ngx_uint_t         i;
    ngx_rl_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        counter->refund = counter->answer.granted;
    }

    ngx_rl_check_settle(check);

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->refund && counter->backend == &ngx_rl_strict) {
            counter->held = 0;
        }

        counter->answer.granted = 0;
        counter->refund = 0;
    }
}


static void
ngx_rl_check_renewal_handler(ngx_event_t *ev)
{
    ngx_rl_strict_send(ev->data, NGX_RL_STRICT_RENEW);

    ngx_add_timer(ev, NGX_RL_PERMIT_US / 3000);
}


/* Permits in Redis have a deadline, which moves on while the request lives. */
static void
ngx_rl_check_renew(ngx_rl_check_t *check)
{
    ngx_uint_t    i;
    ngx_event_t  *ev;

    for (i = 0; !check->counters[i].held; i++) {

        if (i == check->ncounters - 1) {
            return;
        }
    }

    ev = &check->remote->renewal;

    ngx_memzero(ev, sizeof(ngx_event_t));
    ev->data = check;
    ev->log = ngx_cycle->log;
    ev->handler = ngx_rl_check_renewal_handler;
    ev->cancelable = 1;

    check->remote->renewing = 1;
    ngx_add_timer(ev, NGX_RL_PERMIT_US / 3000);
}


/* The cost is counted later if the response may change it. */
static ngx_inline void
ngx_rl_check_count_one(const ngx_rl_counter_t *counter, ngx_rl_status_e status)
{
    uint32_t              cost;
    uint64_t             *row;
    ngx_uint_t            word;
    const ngx_rl_rule_t  *rule;

    rule = counter->rule;
    word = ngx_rl_counts_word(status, counter->source);
    cost = (rule->needs & NGX_RL_NEEDS_SETTLE) ? 0 : counter->answer.granted;

    if (ngx_rl_counts_shared) {
        ngx_rl_count(rule->row, word, 1);
        ngx_rl_count(rule->row, NGX_RL_COUNTS_COST, cost);
        return;
    }

    /* as that does, with fewer instructions */

    row = ngx_rl_counts_block + rule->row;
    row[word]++;
    row[NGX_RL_COUNTS_COST] += cost;
}


/*
 * A request that does not pass counts once, for the counter that decided; one
 * that passes counts for each rule that it met.
 */
static ngx_inline void
ngx_rl_check_count(const ngx_rl_check_t *check)
{
    ngx_rl_status_e          status;
    const ngx_rl_counter_t  *counter, *end;

    if (check->ncounters > 1 && !ngx_rl_check_refused(check)) {
        end = check->counters + check->ncounters;

        for (counter = check->counters; counter < end; counter++) {
            status = NGX_RL_PASSED;

            if (counter->source == NGX_RL_SOURCE_FALLBACK
                || counter->answer.retry_us
                || counter->limit->algorithm == NGX_RL_LEAKY_BUCKET)
            {
                status = ngx_rl_check_status(counter);

                if (status == NGX_RL_PASSED && ngx_rl_check_delay(counter)) {
                    status = counter->dry_run ? NGX_RL_DELAYED_DRY_RUN
                                              : NGX_RL_DELAYED;
                }
            }

            ngx_rl_check_count_one(counter, status);
        }

    } else if (check->decisive) {
        ngx_rl_check_count_one(check->decisive, check->status);
    }
}


static ngx_inline void
ngx_rl_check_finish(ngx_rl_check_t *check)
{
    if (check->decisive == NULL || ngx_rl_check_enforces(check)) {
        check->status = check->severity;
        check->decisive = check->strictest;
    }

    if (ngx_rl_check_refused(check)) {
        check->delay_us = 0;

        if (check->ncounters > 1) {
            ngx_rl_check_give_back(check);
        }

    } else if (check->remote && check->remote->name) {
        ngx_rl_check_renew(check);
    }

    ngx_rl_check_count(check);
}


void
ngx_rl_check_complete(ngx_rl_check_t *check)
{
    ngx_uint_t  i;

    check->status = NGX_RL_BYPASSED;
    check->severity = NGX_RL_BYPASSED;
    check->decisive = NULL;
    check->strictest = NULL;
    check->delay_us = 0;

    for (i = 0; i < check->ncounters; i++) {
        ngx_rl_check_weigh(check, &check->counters[i]);
    }

    ngx_rl_counts_time(check->remote->waits,
                       ngx_rl_clock_us() - check->remote->asked_us);

    ngx_rl_check_finish(check);
}


static ngx_int_t
ngx_rl_check_ask(ngx_rl_check_t *check)
{
    ngx_uint_t         i;
    ngx_rl_counter_t  *counter;

    /* one more: no answer completes the check before the last call */

    check->pending++;
    check->remote->waits = ngx_rl_counts_others(NGX_RL_COUNTS_WAIT);
    check->remote->asked_us = ngx_rl_clock_us();

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->asks) {
            check->remote->waits
                = counter->client->limiter->rows[NGX_RL_COUNTS_WAIT];
            counter->remote->since_ms = ngx_current_msec;
            counter->backend->ask(counter);
        }
    }

    if (--check->pending) {
        return NGX_AGAIN;
    }

    ngx_rl_check_complete(check);

    return NGX_OK;
}


ngx_int_t
ngx_rl_check_start(ngx_rl_check_t *check)
{
    ngx_rl_counter_t  *counter, *end;

    check->taken_us = ngx_rl_local_now_us();
    check->pending = 0;
    check->permits = 0;

    if (check->remote) {
        ngx_rl_check_remote(check);
    }

    /*
     * Takes every counter as far as this gateway can answer for it. pending is
     * then the number of those for which Redis has to be asked; 0 if any
     * rejects.
     */

    check->severity = NGX_RL_BYPASSED;
    counter = check->counters;

    for (end = counter + check->ncounters; counter < end; counter++) {
        ngx_rl_check_take_one(check, counter);
        ngx_rl_check_weigh(check, counter);
    }

    if (check->severity >= NGX_RL_UNAVAILABLE) {
        check->pending = 0;
    }

    if (check->pending) {
        return ngx_rl_check_ask(check);
    }

    ngx_rl_check_finish(check);

    return NGX_OK;
}


/*
 * The counters of rules that the client did not wait for are looked at, which
 * needs no call. About the others nothing is known.
 */
ngx_int_t
ngx_rl_check_early(ngx_rl_check_t *check, ngx_uint_t early)
{
    uint64_t           retry_us;
    ngx_uint_t         i;
    ngx_rl_answer_t   *answer;
    ngx_rl_counter_t  *counter;

    check->taken_us = ngx_rl_local_now_us();
    check->pending = 0;
    check->permits = 0;
    check->severity = NGX_RL_BYPASSED;

    if (check->remote) {
        ngx_rl_check_remote(check);
    }

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        answer = &counter->answer;

        if (!(early & (1u << i))) {
            counter->backend = &ngx_rl_nowhere;
            ngx_memzero(answer, sizeof(ngx_rl_answer_t));
            continue;
        }

        retry_us = answer->retry_us;
        counter->cost = 0;

        ngx_rl_check_take_one(check, counter);

        answer->retry_us = retry_us;
        answer->reset_us = ngx_max(answer->reset_us, retry_us);
        answer->remaining = 0;

        ngx_rl_check_weigh(check, counter);
    }

    ngx_rl_check_finish(check);

    return NGX_OK;
}


void
ngx_rl_check_cost(const ngx_rl_check_t *check)
{
    ngx_uint_t               i;
    const ngx_rl_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if ((counter->rule->needs & (NGX_RL_NEEDS_SETTLE|NGX_RL_NEEDS_END))
            == NGX_RL_NEEDS_SETTLE)
        {
            ngx_rl_count(counter->rule->row, NGX_RL_COUNTS_COST,
                         counter->answer.granted + counter->charge
                         - counter->refund);
        }
    }
}


/* From here on the check waits for no reply and holds no permit. */
void
ngx_rl_check_leave(ngx_rl_check_t *check)
{
    ngx_uint_t         i;
    ngx_rl_counter_t  *counter;

    if (check->remote && check->remote->renewing) {
        check->remote->renewing = 0;
        ngx_del_timer(&check->remote->renewal);
    }

    if (check->permits) {
        check->permits = 0;
        ngx_queue_remove(&check->holds);
    }

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (check->pending && counter->backend->leave) {
            counter->backend->leave(counter);
        }

        if (counter->permit) {
            ngx_rl_permit_free(counter);
        }
    }

    /* also of calls whose answer is still due: they were made before */

    ngx_rl_strict_send(check, NGX_RL_STRICT_FREE);
}

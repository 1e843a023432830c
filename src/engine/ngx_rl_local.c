/*
 * Counters in this gateway's shared memory: those of the gateway alone, exact,
 * and those that stand in for Redis. How each algorithm's state lies in the
 * table. And what all backends share: the check that waits for a counter, and
 * its answer when Redis has none.
 *
 * Counters that stand in for one in Redis are in the zone's own table, under
 * the zone's own key. A client may know its digest, since there need not be a
 * secret, but cannot choose their place.
 */

#include "ngx_rl_backend.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_sliding_log.h"
#include "ngx_rl_told.h"
#include "ngx_rl_window.h"

/*
 * The wall clock, by which windows end, and the clock of the states are both
 * nginx's, cached, and may differ by some milliseconds from one request to the
 * next. A window that begins so shortly before an end goes on to the next one.
 */
#define NGX_RL_WINDOW_SLACK_US  20000

/* what would be lost with one place of a log: less than what rejects */
#define NGX_RL_PLACE_LOSS       200

/* what Redis rounds up by, at the most */
#define NGX_RL_ROUND_US         1000

#define NGX_RL_LOG_BITS         14   /* of a place's number */

/* want: the tokens come back; the counter becomes what the answer says */
#define NGX_RL_LOCAL_GIVE       (UINT32_MAX - 2)
#define NGX_RL_LOCAL_NOTE       (UINT32_MAX - 3)

/* whether Redis has not answered for the counter: the answer is of this one */
#define ngx_rl_local_only(counter)                                            \
    ((counter)->source != NGX_RL_SOURCE_REDIS                                 \
     && (counter)->source != NGX_RL_SOURCE_LEASE)

/*
 * An operation on a counter. Operations of every request pass it by value: then
 * it stays in registers.
 */
typedef struct {
    ngx_rl_table_t        *table;
    ngx_rl_id_t            id;
    const ngx_rl_limit_t  *limit;
    uint32_t               cost;
    uint32_t               want;
    uint32_t               give;     /* tokens; 0: takes */
    uint64_t               taken_us; /* give: when they were taken */
    uint64_t               now_us;
    uint64_t               left_us;  /* of a window that peers told; else 0 */
    ngx_rl_answer_t       *answer;   /* what is left, at least */
    unsigned               note:1;   /* makes it what the answer says */
    unsigned               later:1;  /* nothing reads remaining here */
} ngx_rl_local_op_t;


const ngx_rl_backend_t  ngx_rl_nowhere = {
    NULL, NULL, NULL, NULL, NULL
};


void
ngx_rl_check_answered(ngx_rl_check_t *check)
{
    if (--check->pending == 0) {
        check->handler(check->data);
    }
}


uint32_t
ngx_rl_counter_share(const ngx_rl_counter_t *counter)
{
    ngx_uint_t             gateways;
    const ngx_rl_redis_t  *redis;

    redis = counter->client->limiter->redis;
    gateways = ngx_rl_redis_fleet(redis);

    return (uint32_t) ngx_max(gateways, counter->rule->regions);
}


uint32_t
ngx_rl_counter_weight(const ngx_rl_counter_t *counter)
{
    if (counter->cut) {
        return 2 * ngx_rl_counter_share(counter);
    }

    if (counter->source != NGX_RL_SOURCE_FALLBACK || counter->emergency) {
        return 2;
    }

    return ngx_rl_fleet_weight(counter->client->limiter);
}


uint64_t
ngx_rl_counter_age_us(const ngx_rl_counter_t *counter, uint64_t asked_us)
{
    return ngx_rl_window_answer_age_us(counter->limit, ngx_rl_local_now_us(),
                                       asked_us, &counter->answer);
}


ngx_uint_t
ngx_rl_forgotten(const ngx_rl_limiter_t *limiter, uint64_t asked_us)
{
    uint64_t  forgot_us;

    forgot_us = ngx_rl_leases_forgot_us(limiter->zone.leases);

    return forgot_us && forgot_us >= asked_us;
}


/* It takes, and nothing reads what is left here. */
static ngx_rl_inline ngx_rl_local_op_t
ngx_rl_local_op(ngx_rl_table_t *table, ngx_rl_id_t id,
    const ngx_rl_limit_t *limit, uint32_t tokens, uint32_t want,
    ngx_rl_answer_t *answer)
{
    ngx_rl_local_op_t  op;

    op.table = table;
    op.id = id;
    op.limit = limit;
    op.cost = tokens;
    op.want = want;
    op.give = 0;
    op.taken_us = 0;
    op.now_us = ngx_rl_local_now_us();
    op.left_us = 0;
    op.answer = answer;
    op.note = 0;
    op.later = 1;

    return op;
}


/*
 * Redis rounds milliseconds up: by so much that a token less were there, they
 * are not used. An empty bucket may owe: then it is what its time says.
 */
static ngx_rl_token_bucket_t
ngx_rl_local_noted_bucket(ngx_rl_local_op_t op)
{
    uint64_t                used, most_us;
    const ngx_rl_rate_t    *rate;
    ngx_rl_token_bucket_t   tb;

    rate = &op.limit->rate;
    used = op.limit->capacity - op.answer->remaining;
    most_us = used * rate->step_us + used * rate->step_frac / rate->scale;

    if (op.answer->remaining == 0
        && op.answer->reset_us > most_us + NGX_RL_ROUND_US)
    {
        most_us = ngx_min(op.answer->reset_us - NGX_RL_ROUND_US,
                          2 * rate->span_us);
    }

    tb.tat_us = op.now_us + ngx_min(op.answer->reset_us, most_us);
    tb.tat_frac = 0;
    tb.span_code = rate->span_code;

    return tb;
}


/*
 * Inlined: where the compiler sees that a request takes, nothing of the other
 * operations is left.
 */
static ngx_rl_inline void
ngx_rl_local_bucket(ngx_rl_local_op_t op)
{
    ngx_rl_id_t             id;
    ngx_rl_entry_t          entry;
    const ngx_rl_rate_t    *rate;
    ngx_rl_token_bucket_t   tb;

    id = op.id;
    rate = &op.limit->rate;

    ngx_rl_table_lock(op.table, &id, op.now_us, &entry);

    tb.tat_us = entry.state.fresh_us;
    tb.tat_frac = entry.state.extra;
    tb.span_code = entry.state.aux;

    if (op.give) {
        ngx_rl_token_bucket_give(&tb, rate, op.now_us, op.taken_us, op.give);
    }

    if (op.note) {
        tb = ngx_rl_local_noted_bucket(op);

    } else {
        ngx_rl_token_bucket_pay(&tb, rate, op.now_us, op.cost, op.want,
                                op.answer);
        if (!op.later) {
            op.answer->remaining
                        = ngx_rl_token_bucket_remaining(rate, op.answer);
        }
    }

    entry.state.fresh_us = tb.tat_us;
    entry.state.extra = tb.tat_frac;
    entry.state.aux = tb.span_code;

    ngx_rl_table_store(&entry,
                ngx_rl_token_bucket_used(rate, tb.tat_us > op.now_us
                                                      ? tb.tat_us - op.now_us
                                                      : 0));
}


static void
ngx_rl_local_fixed_window(const ngx_rl_local_op_t *op, ngx_rl_state_t *state)
{
    uint64_t               wall_us, left_us, passed_us, next_us;
    ngx_rl_bounds_t        bounds, next;
    ngx_rl_window_t        w;
    const ngx_rl_limit_t  *limit;

    limit = op->limit;
    wall_us = ngx_rl_wall_ms() * 1000;
    bounds = ngx_rl_calendar_bounds(limit, wall_us);
    passed_us = wall_us - bounds.start_us;
    left_us = bounds.end_us - wall_us;

    if (left_us < NGX_RL_WINDOW_SLACK_US) {
        bounds = ngx_rl_calendar_bounds(limit, bounds.end_us);
        left_us = bounds.end_us - wall_us;
    }

    w.fresh_us = state->fresh_us;
    w.count = state->extra;
    w.before = 0;
    w.code = state->aux;

    if (op->left_us) {
        left_us = op->left_us;
        passed_us = limit->window_us - ngx_min(left_us, limit->window_us);

        if (w.code == limit->code
            && w.fresh_us > op->now_us
            && !ngx_rl_told_window(limit->window_us, op->now_us + left_us,
                                   w.fresh_us))
        {
            ngx_memzero(op->answer, sizeof(ngx_rl_answer_t));
            op->answer->remaining = limit->capacity
                                    - ngx_min(w.count, limit->capacity);
            return;
        }
    }

    /*
     * A window that ended inside the window of now has ended too early, since
     * the wall clock was set back: it goes on. Where more than half of that is
     * left, the clock was set ahead, and it ended too late. Another gateway's
     * clock says nothing of this one.
     */

    if (w.code == limit->code
        && op->left_us == 0
        && w.fresh_us <= op->now_us
        && w.fresh_us + passed_us > op->now_us + NGX_RL_WINDOW_SLACK_US
        && left_us < limit->window_us / 2)
    {
        w.fresh_us = op->now_us + left_us;
    }

    if (op->give) {
        ngx_rl_fixed_window_give(&w, limit, op->now_us, passed_us,
                                 left_us, op->taken_us, op->give);
    }

    if (op->note) {
        ngx_memzero(&w, sizeof(ngx_rl_window_t));
        w.count = limit->capacity - op->answer->remaining;

        if (w.count) {
            w.fresh_us = op->now_us + ngx_min(op->answer->reset_us,
                                              limit->window_us);
            w.code = limit->code;
        }

    } else {
        next_us = limit->window_us;

        if (w.code == NGX_RL_CODE_OWES) {
            next = ngx_rl_calendar_bounds(limit, bounds.end_us);
            next_us = next.end_us - next.start_us;
        }

        ngx_rl_fixed_window_take(&w, limit, op->now_us, left_us, next_us,
                                 op->cost, op->want, op->answer);
    }

    state->fresh_us = w.fresh_us;
    state->extra = w.count;
    state->aux = w.code;
}


static void
ngx_rl_local_inner(const ngx_rl_local_op_t *op, uint64_t n,
    ngx_rl_entry_t *entry)
{
    ngx_rl_id_t  id;

    id = ngx_rl_table_inner_id(&op->id, n);

    ngx_rl_table_lock_inner(op->table, &id, op->now_us, entry);
}


/*
 * The count of the window before stands in an inner counter, which changes
 * once a window. Where it was lost, or belongs to another window, it is 0.
 */
static void
ngx_rl_local_sliding_window(const ngx_rl_local_op_t *op, ngx_rl_state_t *state)
{
    uint32_t               remaining;
    ngx_rl_entry_t         before;
    ngx_rl_window_t        w;
    ngx_rl_answer_t        left;
    const ngx_rl_limit_t  *limit;

    ngx_rl_local_inner(op, 1, &before);

    w.fresh_us = state->fresh_us;
    w.count = state->extra;
    w.code = state->aux;
    w.before = (before.state.fresh_us == w.fresh_us) ? before.state.extra : 0;

    if (op->give) {
        ngx_rl_sliding_window_give(&w, op->limit, op->now_us,
                                   op->taken_us, op->give);
    }

    if (op->note) {

        /*
         * Windows stand elsewhere in Redis, and its answer is one number for
         * both. So the difference is taken from the current window, or given
         * back to it first and then to the one before.
         */

        limit = op->limit;
        remaining = op->answer->remaining;

        ngx_rl_sliding_window_take(&w, limit, op->now_us, 0, 0, &left);

        if (left.remaining < remaining) {
            ngx_rl_sliding_window_give(&w, limit, op->now_us, NGX_RL_WHENEVER,
                                       remaining - left.remaining);

        } else if (left.remaining > remaining) {
            ngx_rl_sliding_window_take(&w, limit, op->now_us, 0,
                                       left.remaining - remaining, &left);
        }

    } else {
        ngx_rl_sliding_window_take(&w, op->limit, op->now_us, op->cost,
                                   op->want, op->answer);
    }

    if (before.state.extra != w.before
        || (w.before && before.state.fresh_us != w.fresh_us))
    {
        before.state.fresh_us = w.fresh_us;
        before.state.extra = w.before;
        before.state.aux = 0;
        ngx_rl_table_store(&before, ngx_rl_limit_used(op->limit,
                                                      op->answer->remaining));

    } else {
        ngx_rl_table_unlock(&before);
    }

    state->fresh_us = w.fresh_us;
    state->extra = w.count;
    state->aux = w.code;
}


static void
ngx_rl_local_place_get(void *data, uint32_t n, ngx_rl_log_place_t *place)
{
    ngx_rl_entry_t  entry;

    ngx_rl_local_inner(data, n + 1, &entry);

    place->fresh_us = entry.state.fresh_us;
    place->window_us = ((uint64_t) entry.state.aux << 32 | entry.state.extra)
                       * 1000;

    ngx_rl_table_unlock(&entry);
}


static void
ngx_rl_local_place_set(void *data, uint32_t n, const ngx_rl_log_place_t *place)
{
    uint64_t        window_ms;
    ngx_rl_entry_t  entry;

    ngx_rl_local_inner(data, n + 1, &entry);

    window_ms = place->window_us / 1000;
    entry.state.fresh_us = place->fresh_us;
    entry.state.extra = (uint32_t) window_ms;
    entry.state.aux = window_ms >> 32;

    ngx_rl_table_store(&entry, NGX_RL_PLACE_LOSS);
}


/* The log's places are inner counters, numbered from 1. */
static void
ngx_rl_local_sliding_log(const ngx_rl_local_op_t *op, ngx_rl_state_t *state)
{
    ngx_rl_log_t         log;
    ngx_rl_log_places_t  places;

    places.get = ngx_rl_local_place_get;
    places.set = ngx_rl_local_place_set;
    places.data = (void *) op;

    log.fresh_us = state->fresh_us;
    log.head = state->extra & (NGX_RL_LOG_PLACES - 1);
    log.count = state->extra >> NGX_RL_LOG_BITS;

    /* places that have expired may be others by now */

    if (log.fresh_us <= op->now_us) {
        log.count = 0;
    }

    if (op->give) {
        ngx_rl_sliding_log_give(&log, &places, op->limit, op->now_us,
                                op->taken_us, op->give);
    }

    ngx_rl_sliding_log_take(&log, &places, op->limit, op->now_us,
                            op->cost, op->want, op->answer);

    state->fresh_us = log.fresh_us;
    state->extra = log.count << NGX_RL_LOG_BITS | log.head;
    state->aux = 0;
}


/* The loss of a counter is the share of it that is used. */
static void
ngx_rl_local_window(const ngx_rl_local_op_t *op)
{
    ngx_rl_entry_t  entry;

    switch (op->limit->algorithm) {

    case NGX_RL_FIXED_WINDOW:
        ngx_rl_table_lock(op->table, &op->id, op->now_us, &entry);
        ngx_rl_local_fixed_window(op, &entry.state);
        break;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_table_lock_outer(op->table, &op->id, op->now_us, &entry);
        ngx_rl_local_sliding_window(op, &entry.state);
        break;

    default: /* NGX_RL_SLIDING_LOG */
        ngx_rl_table_lock_outer(op->table, &op->id, op->now_us, &entry);
        ngx_rl_local_sliding_log(op, &entry.state);
    }

    ngx_rl_table_store(&entry, ngx_rl_limit_used(op->limit,
                                                 op->answer->remaining));
}


static void
ngx_rl_local_apply(const ngx_rl_local_op_t *op)
{
    if (ngx_rl_limit_is_bucket(op->limit)) {
        ngx_rl_local_bucket(*op);

    } else {
        ngx_rl_local_window(op);
    }
}


static uint32_t
ngx_rl_local_weigh(uint32_t tokens, uint32_t weight, uint64_t most)
{
    uint64_t  weighed;

    weighed = (uint64_t) tokens * weight;
    weighed = ngx_min(weighed, most);

    return (uint32_t) ngx_min(weighed, UINT32_MAX - 1);
}


/*
 * A counter that stands in for one in Redis. With n gateways alive, each may
 * admit 2/n of the tokens that it knows to be left. So a token that it admits
 * alone weighs n half tokens, and one that Redis has counted weighs two. The
 * state does not depend on n, which may change at any time.
 */
static void
ngx_rl_local_stand_in(const ngx_rl_limiter_t *limiter, uint32_t weight,
    ngx_rl_local_op_t *op)
{
    uint64_t           most, forgot_us;
    ngx_rl_leases_t   *leases;
    ngx_rl_limit_t     halves;
    ngx_rl_answer_t    answer;
    ngx_rl_local_op_t  half;

    /*
     * After a reset all counters that stand in for one in Redis are other ones:
     * no gateway knows which one was reset. Redis' next answer is noted anew.
     */

    leases = limiter->zone.leases;

    if (leases) {
        forgot_us = ngx_rl_leases_forgot_us(leases);
        op->id = ngx_rl_id_vary(&op->id, forgot_us);
    }

    ngx_rl_limit_halve(op->limit, &halves);

    /*
     * A log here is a window: an answer may make a difference of 10,000 places
     * to it, each an entry of its own.
     */

    if (halves.algorithm == NGX_RL_SLIDING_LOG) {
        halves.algorithm = NGX_RL_SLIDING_WINDOW;
    }

    answer = *op->answer;
    answer.remaining *= 2;

    half = *op;
    half.limit = &halves;
    half.answer = &answer;
    half.later = 0;

    /* a request within the limit is admitted, however small the share is */

    most = halves.capacity;

    if (op->want == NGX_RL_CHARGE) {
        most *= 2;

    } else if (op->cost > op->limit->capacity) {
        most++;
    }

    half.cost = ngx_rl_local_weigh(op->cost, weight, most);

    if (op->want < NGX_RL_CHARGE) {
        half.want = ngx_rl_local_weigh(op->want, weight, halves.capacity);
    }

    half.give = ngx_rl_local_weigh(op->give, weight, halves.capacity);

    ngx_rl_local_apply(&half);

    if (op->note) {
        return;
    }

    *op->answer = answer;

    if (answer.granted) {
        op->answer->granted = (answer.granted == half.cost)
                              ? op->cost : answer.granted / weight;
    }

    op->answer->remaining = (answer.remaining == halves.capacity)
                            ? ngx_max(answer.remaining / weight, 1)
                            : answer.remaining / weight;
}


static void
ngx_rl_local_run(ngx_rl_counter_t *counter, uint32_t tokens, uint32_t want,
    ngx_rl_answer_t *answer)
{
    ngx_rl_local_op_t  op;

    op = ngx_rl_local_op(counter->client->limiter->zone.table,
                         ngx_rl_counter_id(counter),
                         ngx_rl_counter_limit(counter), tokens, want, answer);

    op.note = (want == NGX_RL_LOCAL_NOTE);
    op.later = (want == 0 || want == NGX_RL_LOOK);

    if (want == NGX_RL_LOCAL_GIVE) {
        op.cost = 0;
        op.want = 0;
        op.give = tokens;
        op.taken_us = (counter->source == NGX_RL_SOURCE_LOCAL
                       || counter->in_local)
                      ? counter->client->check->taken_us
                      : counter->client->remote->noted_us;
    }

    if (counter->client->limiter->redis == NULL || counter->emergency) {
        ngx_rl_local_apply(&op);

    } else {
        ngx_rl_local_stand_in(counter->client->limiter,
                              ngx_rl_counter_weight(counter), &op);
    }
}


void
ngx_rl_local_take(ngx_rl_counter_t *counter)
{
    uint32_t           cost, want;
    ngx_rl_local_op_t  op;

    cost = counter->cost;
    want = counter->look ? NGX_RL_LOOK : 0;

    /* an emergency's limit is one of requests, whatever they cost */

    if (counter->emergency) {
        cost = ngx_min(cost, 1);
    }

    op = ngx_rl_local_op(counter->client->limiter->zone.table,
                         ngx_rl_counter_id(counter),
                         ngx_rl_counter_limit(counter), cost, want,
                         &counter->answer);

    if (ngx_rl_limit_is_bucket(op.limit)
        && counter->client->limiter->redis == NULL)
    {
        ngx_rl_local_bucket(op);

    } else if (op.limit->algorithm == NGX_RL_CONCURRENCY) {
        ngx_rl_permit_take(counter);

    } else {
        ngx_rl_local_run(counter, cost, want, &counter->answer);
    }
}


/* The counter's answer stays that of the take, but for the tokens left. */
void
ngx_rl_local_give(ngx_rl_counter_t *counter, uint32_t tokens)
{
    ngx_rl_answer_t  left;

    if (ngx_rl_counter_limit(counter)->algorithm == NGX_RL_CONCURRENCY) {
        if (counter->permit) {
            ngx_rl_permit_free(counter);
        }

        return;
    }

    ngx_rl_local_run(counter, tokens, NGX_RL_LOCAL_GIVE, &left);

    if (ngx_rl_local_only(counter)) {
        counter->answer.remaining = left.remaining;
        counter->answer.reset_us = left.reset_us;
    }
}


void
ngx_rl_local_charge(ngx_rl_counter_t *counter, uint32_t tokens)
{
    ngx_rl_answer_t  unused;

    ngx_rl_local_run(counter, tokens, NGX_RL_CHARGE,
                     ngx_rl_local_only(counter) ? &counter->answer : &unused);
}


static void
ngx_rl_local_settle(ngx_rl_counter_t *counter)
{
    /* an emergency's limit has counted the request, or does it now */

    if (!counter->emergency) {
        ngx_rl_local_charge(counter, counter->charge);

    } else if (counter->look) {
        ngx_rl_local_charge(counter, 1);
    }
}


const ngx_rl_backend_t  ngx_rl_local = {
    ngx_rl_local_take,
    NULL,
    NULL,
    ngx_rl_local_give,
    ngx_rl_local_settle
};


void
ngx_rl_local_note(ngx_rl_counter_t *counter)
{
    ngx_rl_local_run(counter, 0, NGX_RL_LOCAL_NOTE, &counter->answer);
}


void
ngx_rl_local_lower(ngx_rl_counter_t *counter, uint32_t remaining)
{
    ngx_rl_answer_t  left;

    ngx_rl_local_run(counter, 0, 0, &left);

    left.remaining = ngx_rl_limit_left(ngx_rl_counter_limit(counter), &left);

    if (left.remaining > remaining) {
        ngx_rl_local_run(counter, 0, left.remaining - remaining, &left);
    }
}


void
ngx_rl_local_told(const ngx_rl_limiter_t *limiter, const ngx_rl_id_t *id,
    const ngx_rl_limit_t *limit, int64_t tokens, uint64_t left_us,
    uint32_t weight, ngx_rl_answer_t *answer)
{
    ngx_rl_local_op_t  op;

    op = ngx_rl_local_op(limiter->zone.table, *id, limit,
                         (uint32_t) ngx_max(ngx_min(tokens, INT32_MAX), 0),
                         tokens > 0 ? NGX_RL_CHARGE : 0, answer);

    op.give = (uint32_t) ngx_max(ngx_min(-tokens, INT32_MAX), 0);
    op.taken_us = NGX_RL_WHENEVER;
    op.left_us = left_us;
    op.later = 0;

    if (limiter->redis == NULL) {
        ngx_rl_local_apply(&op);

    } else {
        ngx_rl_local_stand_in(limiter, weight, &op);
    }
}


void
ngx_rl_local_drop(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    ngx_rl_algorithm_e algorithm)
{
    ngx_rl_entry_t  entry;

    if (algorithm == NGX_RL_SLIDING_WINDOW
        || algorithm == NGX_RL_SLIDING_LOG
        || algorithm == NGX_RL_CONCURRENCY)
    {
        ngx_rl_table_lock_outer(table, id, ngx_rl_local_now_us(), &entry);

    } else {
        ngx_rl_table_lock(table, id, ngx_rl_local_now_us(), &entry);
    }

    ngx_rl_table_drop(&entry);
}


ngx_uint_t
ngx_rl_local_event(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    const ngx_rl_limit_t *limit)
{
    ngx_rl_answer_t    answer;
    ngx_rl_local_op_t  op;

    op = ngx_rl_local_op(table, *id, limit, 1, 0, &answer);
    ngx_rl_local_apply(&op);

    if (answer.retry_us == 0) {
        return 0;
    }

    ngx_rl_local_drop(table, id, limit->algorithm);

    return 1;
}


void
ngx_rl_fallback(ngx_rl_counter_t *counter, ngx_rl_redis_status_e reason,
    ngx_msec_t wait_ms)
{
    counter->remote->reason = reason;
    counter->source = NGX_RL_SOURCE_FALLBACK;
    counter->backend = &ngx_rl_nowhere;

    /* if a call cannot be made, all counters of its client have asked */
    counter->asks = 0;

    if (ngx_rl_counter_unavailable(counter)) {
        counter->answer.retry_us = (uint64_t) ngx_max(wait_ms, 1) * 1000;
        return;
    }

    counter->emergency = (counter->fail_mode == NGX_RL_FAIL_OPEN
                          && counter->rule->emergency != NULL);

    if (counter->emergency || counter->fail_mode == NGX_RL_FAIL_LOCAL) {
        counter->backend = (counter->client->limiter->fleet
                            && !counter->emergency)
                           ? &ngx_rl_peered : &ngx_rl_local;
        counter->client->remote->noted_us = ngx_rl_local_now_us();
        counter->backend->take(counter);
    }
}


void
ngx_rl_fallback_note(ngx_rl_counter_t *counter, uint64_t asked_us)
{
    counter->client->remote->noted_us = ngx_rl_local_now_us();

    if (counter->limit->algorithm != NGX_RL_CONCURRENCY) {

        if (!ngx_rl_forgotten(counter->client->limiter, asked_us)) {
            ngx_rl_local_note(counter);
        }

    } else if (counter->answer.granted) {
        ngx_rl_permit_hold(counter);
    }
}

/*
 * Split counters have n parts, each a counter of its own in another hash slot
 * of Redis. Each part has its share of the limit, and all shares together are
 * the limit. A request asks one part and, if that rejects it, the next one,
 * until a part grants or all have rejected.
 *
 * Each part has a ledger in the zone's table of leases, as a strict counter has
 * one that Redis has rejected, but it learns every answer. A part that is known
 * to reject is not asked before the moment that Redis named, so a spent counter
 * costs no calls. The client sees what is left of all parts, as Redis said
 * last; a part that was not asked yet counts as full. If that table is full,
 * the table of counters remembers for a second that all parts have rejected a
 * counter.
 */

#include "ngx_rl_backend.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_text.h"

/*
 * If there are few parts, each is in a quarter of its share of the hash slots,
 * so that each of as many Redis nodes has one. A bucket there is found in 4 n
 * tries, mostly.
 */
#define NGX_RL_PARTS_FEW    16
#define NGX_RL_PARTS_TRIES  8

/* in the table of counters: no window is longer, and one that rejects */
#define NGX_RL_PARTS_MAX_US  ((uint64_t) 366 * 86400 * 1000000)
#define NGX_RL_PARTS_LOSS    255

/* it is remembered for so many ticks: tokens may come back to a part */
#define NGX_RL_PARTS_TICKS   8

/* names what is known of all parts, where others name one from 1 on */
#define NGX_RL_PARTS_ALL     255

static void ngx_rl_parts_ask(ngx_rl_counter_t *counter);


/* Names what is kept of a part, from 1 on, of so many. */
static ngx_inline uint64_t
ngx_rl_parts_number(const ngx_rl_counter_t *counter, uint32_t part)
{
    return counter->rule->shards << 8 | part;
}


static const ngx_rl_limit_t *
ngx_rl_parts_limit(const ngx_rl_rule_t *rule, uint32_t part)
{
    return &rule->part_limits[part >= rule->limit.capacity % rule->shards];
}


/* What this gateway knows a part by. */
static ngx_inline void
ngx_rl_parts_name(const ngx_rl_counter_t *counter, uint32_t i,
    ngx_rl_part_t *part)
{
    part->counter.limit = ngx_rl_parts_limit(counter->rule, i);
    part->client.local = ngx_rl_id_vary(ngx_rl_client_local(counter->client),
                                        ngx_rl_parts_number(counter, i + 1));
}


/* The counter, and its client, as those of a part. */
static void
ngx_rl_parts_copy(const ngx_rl_counter_t *counter, ngx_rl_part_t *part)
{
    part->counter = *counter;
    part->client = *counter->client;
    part->client.named = 1;
    part->counter.client = &part->client;
}


/*
 * The next part from remote->part on that was not tried and may have the cost,
 * or n: there is none. Fills *known with what is left of all, and with the
 * least retry of those that reject (0: none does).
 */
static uint32_t
ngx_rl_parts_next(const ngx_rl_counter_t *counter, ngx_rl_answer_t *known)
{
    uint32_t          i, n, next;
    ngx_rl_part_t     part;
    ngx_rl_answer_t   answer;
    ngx_rl_remote_t  *remote;

    n = counter->rule->shards;
    next = n;
    remote = counter->remote;

    ngx_rl_parts_copy(counter, &part);

    ngx_memzero(known, sizeof(ngx_rl_answer_t));
    known->retry_us = remote->retry_us;

    for (i = 0; i < n; i++) {
        ngx_rl_parts_name(counter, i, &part);
        ngx_rl_leased_look(&part.counter, &answer);

        known->remaining += answer.remaining;
        known->reset_us = ngx_max(known->reset_us, answer.reset_us);

        if (remote->tried & (uint64_t) 1 << i) {
            continue;
        }

        if (answer.retry_us == 0) {

            if (next == n || (next < remote->part && i >= remote->part)) {
                next = i;
            }

        } else if (known->retry_us == 0 || known->retry_us > answer.retry_us) {
            known->retry_us = answer.retry_us;
        }
    }

    return next;
}


/* Locks the entry in which the table of counters remembers all parts. */
static void
ngx_rl_parts_lock_all(const ngx_rl_counter_t *counter, ngx_rl_entry_t *entry)
{
    ngx_rl_id_t  id;

    /* behind a reset it is another one */

    id = ngx_rl_counter_id(counter);
    id = ngx_rl_id_vary(&id, ngx_rl_parts_number(counter, NGX_RL_PARTS_ALL)
            ^ ngx_rl_leases_forgot_us(counter->client->limiter->zone.leases)
              << 16);

    ngx_rl_table_lock(counter->client->limiter->zone.table, &id,
                      ngx_rl_local_now_us(), entry);
}


/* A rejection is of that cost, and of that limit. */
static ngx_inline uint32_t
ngx_rl_parts_rejected(const ngx_rl_counter_t *counter)
{
    return counter->cost ^ (uint32_t) counter->limit->mark << 16;
}


/*
 * For how long all parts reject the cost, by the table of counters; 0: nothing
 * is known. What is over, or of another limit, must not be found again: ticks
 * come round, and limits come back.
 */
static uint64_t
ngx_rl_parts_wait_us(const ngx_rl_counter_t *counter)
{
    uint64_t        wait_us;
    ngx_rl_entry_t  entry;

    ngx_rl_parts_lock_all(counter, &entry);

    if (entry.found
        && (entry.state.extra != ngx_rl_parts_rejected(counter)
            || ((ngx_rl_tick(entry.now_us) - entry.state.aux)
                & NGX_RL_TICK_MASK)
               >= NGX_RL_PARTS_TICKS))
    {
        ngx_rl_table_drop(&entry);
        return 0;
    }

    wait_us = (entry.state.fresh_us > entry.now_us)
              ? entry.state.fresh_us - entry.now_us : 0;

    ngx_rl_table_unlock(&entry);

    return wait_us;
}


/* Each has less than the cost left, all together may have more. */
static void
ngx_rl_parts_reject(ngx_rl_counter_t *counter, const ngx_rl_answer_t *known)
{
    counter->answer = *known;
    counter->answer.remaining = ngx_min(known->remaining, counter->cost - 1);
}


static void
ngx_rl_parts_take(ngx_rl_counter_t *counter)
{
    uint32_t          n, part;
    ngx_rl_answer_t   known;
    ngx_rl_remote_t  *remote;

    n = counter->rule->shards;
    remote = counter->remote;

    remote->call = NULL;
    remote->tried = 0;
    remote->unanswered = 0;
    remote->retry_us = 0;
    remote->part = (uint32_t) ngx_random() % n;

    part = ngx_rl_parts_next(counter, &known);

    if (counter->cost == 0) {
        counter->source = NGX_RL_SOURCE_LEASE;
        counter->answer = known;
        counter->answer.retry_us = 0;
        return;
    }

    if (part < n) {
        known.retry_us = ngx_rl_parts_wait_us(counter);
        known.reset_us = ngx_max(known.reset_us, known.retry_us);
    }

    if (known.retry_us) {
        counter->source = NGX_RL_SOURCE_LEASE;
        ngx_rl_parts_reject(counter, &known);
        return;
    }

    remote->part = part;
    counter->asks = 1;
}


/*
 * A part's bucket: its hash slot is in the part's n-th of all slots, counted
 * from that of the first part. So Redis nodes that have as many slots, in a
 * row, have as many parts.
 */
static uint32_t
ngx_rl_parts_bucket(const ngx_rl_counter_t *counter)
{
    u_char         text[NGX_INT_T_LEN];
    uint32_t       i, n, bucket, mask, slot, from, width, tries;
    const u_char  *salt;

    n = counter->rule->shards;
    i = counter->remote->part;
    salt = counter->rule->field_salt;
    mask = (uint32_t) counter->client->limiter->redis->buckets - 1;

    bucket = (counter->client->remote->bucket
              ^ ((uint32_t) salt[0] << 24 | salt[1] << 16 | salt[2] << 8
                 | salt[3]))
             & mask;

    slot = ngx_rl_cluster_slot(text, ngx_rl_number_write(text, bucket) - text);
    from = slot + i * NGX_RL_CLUSTER_SLOTS / n;
    width = NGX_RL_CLUSTER_SLOTS / n;
    width = (n <= NGX_RL_PARTS_FEW) ? width / 4 : width;

    tries = NGX_RL_PARTS_TRIES * NGX_RL_CLUSTER_SLOTS / width;
    bucket = (bucket + i * (mask / n)) & mask;

    for ( /* void */ ; tries; tries--) {
        slot = ngx_rl_cluster_slot(text, ngx_rl_number_write(text, bucket)
                                         - text);

        if ((slot - from) % NGX_RL_CLUSTER_SLOTS < width) {
            break;
        }

        bucket = (bucket + 1) & mask;
    }

    return bucket;
}


void
ngx_rl_parts_get(ngx_rl_counter_t *counter, ngx_rl_part_t *part)
{
    u_char      *hash;
    uint64_t     what;
    ngx_uint_t   i;

    (void) ngx_rl_client_hash(counter->client);

    ngx_rl_parts_copy(counter, part);
    ngx_rl_parts_name(counter, counter->remote->part, part);

    part->remote = *counter->client->remote;
    part->client.remote = &part->remote;
    part->remote.bucket = ngx_rl_parts_bucket(counter);

    /* the same on machines of either byte order */

    what = ngx_rl_parts_number(counter, counter->remote->part + 1)
           * 0x9e3779b97f4a7c15ULL;
    hash = (u_char *) &part->remote.hash;

    for (i = 0; i < NGX_RL_RULE_FIELD; i++) {
        hash[i] ^= (u_char) (what >> 8 * i);
    }
}


/*
 * All parts have rejected the cost, or have no answer: notes it, unless each is
 * remembered.
 */
static void
ngx_rl_parts_spent(ngx_rl_counter_t *counter, uint64_t wait_us)
{
    ngx_rl_entry_t    entry;
    ngx_rl_answer_t   known;
    ngx_rl_remote_t  *remote;

    remote = counter->remote;
    remote->tried = remote->unanswered;

    if (ngx_rl_parts_next(counter, &known) == counter->rule->shards
        || ngx_rl_forgotten(counter->client->limiter,
                            counter->client->check->taken_us))
    {
        return;
    }

    ngx_rl_parts_lock_all(counter, &entry);

    entry.state.fresh_us = entry.now_us + ngx_min(wait_us, NGX_RL_PARTS_MAX_US);
    entry.state.aux = ngx_rl_tick(entry.now_us);
    entry.state.extra = ngx_rl_parts_rejected(counter);

    ngx_rl_table_store(&entry, NGX_RL_PARTS_LOSS);
}


/*
 * A part was asked in vain: on to the next one. If none is left, a part without
 * an answer counts as one that rejects: its share of the limit is out of reach.
 * If no part has an answer, the fail mode decides.
 */
static void
ngx_rl_parts_on(ngx_rl_counter_t *counter, ngx_msec_t wait_ms)
{
    uint32_t          part;
    ngx_uint_t        late;
    ngx_rl_redis_t   *redis;
    ngx_rl_answer_t   known;
    ngx_rl_remote_t  *remote;

    redis = counter->client->limiter->redis;
    remote = counter->remote;

    part = ngx_rl_parts_next(counter, &known);
    late = (ngx_current_msec - remote->since_ms >= redis->timeout);

    if (part < counter->rule->shards && !late) {
        remote->part = part;
        ngx_rl_parts_ask(counter);
        return;
    }

    if (part == counter->rule->shards && known.retry_us) {
        counter->source = NGX_RL_SOURCE_REDIS;
        ngx_rl_parts_spent(counter, known.retry_us);
        ngx_rl_parts_reject(counter, &known);

    } else {

        ngx_rl_fallback(counter,
                        (remote->reason == NGX_RL_REDIS_OK)
                        ? NGX_RL_REDIS_TIMEOUT : remote->reason,
                        wait_ms);
    }

    ngx_rl_check_answered(counter->client->check);
}


static void
ngx_rl_parts_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_counter_t *counter = data;

    ngx_rl_part_t          part;
    ngx_rl_answer_t        answer, known;
    ngx_rl_remote_t       *remote;
    const ngx_rl_limit_t  *limit;

    remote = counter->remote;

    if (result->again) {
        ngx_rl_redis_forget(remote->call);
    }

    remote->call = NULL;
    remote->tried |= (uint64_t) 1 << remote->part;

    limit = ngx_rl_parts_limit(counter->rule, remote->part);
    remote->reason = ngx_rl_script_read(result, 0, limit, &answer);

    if (remote->reason == NGX_RL_REDIS_OK
        && answer.granted != (answer.retry_us ? 0 : counter->cost))
    {
        remote->reason = NGX_RL_REDIS_PROTOCOL;
    }

    if (remote->reason != NGX_RL_REDIS_OK) {
        remote->unanswered |= (uint64_t) 1 << remote->part;
        ngx_rl_parts_on(counter, result->wait_ms);
        return;
    }

    ngx_rl_parts_copy(counter, &part);
    ngx_rl_parts_name(counter, remote->part, &part);
    part.counter.answer = answer;
    ngx_rl_leased_learn(&part.counter, remote->asked_us, 1);

    if (answer.retry_us) {

        if (remote->retry_us == 0 || remote->retry_us > answer.retry_us) {
            remote->retry_us = answer.retry_us;
        }

        ngx_rl_parts_on(counter, 0);
        return;
    }

    (void) ngx_rl_parts_next(counter, &known);

    counter->source = NGX_RL_SOURCE_REDIS;
    counter->answer.granted = counter->cost;
    counter->answer.remaining = ngx_min(known.remaining,
                                        counter->limit->capacity
                                        - limit->capacity + answer.remaining);
    counter->answer.reset_us = ngx_max(known.reset_us, answer.reset_us);

    ngx_rl_check_answered(counter->client->check);
}


static void
ngx_rl_parts_ask(ngx_rl_counter_t *counter)
{
    ngx_rl_part_t         part;
    ngx_rl_ledger_call_t  ask;

    ngx_rl_parts_get(counter, &part);

    ngx_memzero(&ask, sizeof(ngx_rl_ledger_call_t));
    ask.cost = counter->cost;

    counter->remote->asked_us = ngx_rl_local_now_us();
    counter->remote->call = ngx_rl_script_ask(&part.counter, &ask,
                                              ngx_rl_parts_handler, counter);
    if (counter->remote->call) {
        return;
    }

    ngx_rl_fallback(counter, NGX_RL_REDIS_UNREACHABLE, 0);
    ngx_rl_check_answered(counter->client->check);
}


static void
ngx_rl_parts_leave(ngx_rl_counter_t *counter)
{
    if (counter->remote->call) {
        ngx_rl_redis_forget(counter->remote->call);
        counter->remote->call = NULL;
    }
}


/*
 * The tokens go back to the part that has granted them. No rejection stands
 * that was remembered of it.
 */
static void
ngx_rl_parts_give(ngx_rl_counter_t *counter, uint32_t tokens)
{
    ngx_rl_part_t   part;
    ngx_rl_entry_t  entry;

    ngx_rl_parts_get(counter, &part);
    ngx_rl_script_give(&part.counter, tokens,
                       ngx_rl_counter_age_us(counter,
                                             counter->remote->asked_us));

    ngx_rl_leased_gave(&part.counter, tokens);

    ngx_rl_parts_lock_all(counter, &entry);
    ngx_rl_table_drop(&entry);
}


/* no response tells another cost: there is no charge */
const ngx_rl_backend_t  ngx_rl_parts = {
    ngx_rl_parts_take,
    ngx_rl_parts_ask,
    ngx_rl_parts_leave,
    ngx_rl_parts_give,
    NULL
};


/* Shares are of two sizes: that of the first part, and that of the last. */
ngx_int_t
ngx_rl_parts_prepare(ngx_rl_rule_t *rule, ngx_pool_t *pool)
{
    ngx_rl_limit_t  *limits;

    limits = ngx_palloc(pool, 2 * sizeof(ngx_rl_limit_t));
    if (limits == NULL) {
        return NGX_ERROR;
    }

    rule->part_limits = limits;

    return (ngx_rl_limit_share(&rule->limit, rule->shards, 0, &limits[0]) == 0
            && ngx_rl_limit_share(&rule->limit, rule->shards, rule->shards - 1,
                                  &limits[1])
               == 0)
           ? NGX_OK : NGX_ERROR;
}

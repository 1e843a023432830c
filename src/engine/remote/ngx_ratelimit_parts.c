/*
 * Split counters have n parts, each a counter of its own in another hash slot
 * of Redis. Each part has its share of the limit, and all shares together are
 * the limit. A request asks one part and, if that rejects it, the next one,
 * until a part grants or all have rejected.
 *
 * The workers of this gateway remember in the zone's table of leases what each
 * part has answered. A part that is known to reject is not asked before the
 * moment that Redis named, so a spent counter costs no calls. The client sees
 * what is left of all parts, as Redis said last; a part that was not asked yet
 * counts as full. If that table is full, the table of counters remembers a
 * counter that all parts have rejected, until the first of them may grant.
 */

#include "ngx_ratelimit_script.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_split.h"
#include "ngx_ratelimit_text.h"

/*
 * If there are few parts, each is in a quarter of its share of the hash slots,
 * so that each of as many Redis nodes has one. A bucket there is found in 4 n
 * tries, mostly.
 */
#define NGX_RATELIMIT_PARTS_FEW    16
#define NGX_RATELIMIT_PARTS_TRIES  8

/* in the table of counters: no window is longer, and one that rejects */
#define NGX_RATELIMIT_PARTS_MAX_US  ((uint64_t) 366 * 86400 * 1000000)
#define NGX_RATELIMIT_PARTS_LOSS    255

/* ticks of 2^17 us, in 12 bits: a rejection is remembered for so many if a part
   had no answer */
#define NGX_RATELIMIT_PARTS_TICK_SHIFT  17
#define NGX_RATELIMIT_PARTS_TICK_MASK   0xfff
#define NGX_RATELIMIT_PARTS_TICKS       8

/* names what is known of all parts, where others name one */
#define NGX_RATELIMIT_PARTS_ALL     (64 * NGX_RATELIMIT_SPLIT_PARTS)

_Static_assert(sizeof(ngx_ratelimit_split_t) <= NGX_RATELIMIT_LEASE_BYTES,
               "parts fit a lease's place");

static void ngx_ratelimit_parts_take(ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_parts_ask(ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_parts_leave(ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_parts_give(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);
static const ngx_ratelimit_limit_t *ngx_ratelimit_parts_limit(
    const ngx_ratelimit_rule_t *rule, uint32_t part);
static uint32_t ngx_ratelimit_parts_next(
    const ngx_ratelimit_counter_t *counter, ngx_ratelimit_answer_t *known);
static ngx_ratelimit_split_t *ngx_ratelimit_parts_lock(
    const ngx_ratelimit_counter_t *counter, uint32_t part, ngx_uint_t make,
    ngx_ratelimit_lease_entry_t *entry);
static ngx_ratelimit_id_t ngx_ratelimit_parts_id(
    const ngx_ratelimit_counter_t *counter, uint32_t part);
static uint64_t ngx_ratelimit_parts_wait_us(
    const ngx_ratelimit_counter_t *counter);
static uint64_t ngx_ratelimit_parts_lock_all(
    const ngx_ratelimit_counter_t *counter, ngx_ratelimit_entry_t *entry);
static uint32_t ngx_ratelimit_parts_tick(uint64_t now_us);
static void ngx_ratelimit_parts_spent(ngx_ratelimit_counter_t *counter,
    uint64_t wait_us);
static uint32_t ngx_ratelimit_parts_bucket(
    const ngx_ratelimit_counter_t *counter);
static uint32_t ngx_ratelimit_parts_slot(uint32_t bucket);
static void ngx_ratelimit_parts_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_parts_note(const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_answer_t *answer);
static void ngx_ratelimit_parts_on(ngx_ratelimit_counter_t *counter,
    ngx_msec_t wait_ms);
static void ngx_ratelimit_parts_deny(ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_answer_t *known);


/* no response tells another cost: there is no charge */
const ngx_ratelimit_backend_t  ngx_ratelimit_parts = {
    ngx_ratelimit_parts_take,
    ngx_ratelimit_parts_ask,
    ngx_ratelimit_parts_leave,
    ngx_ratelimit_parts_give,
    NULL
};


/* Shares are of two sizes: that of the first part, and that of the last. */
ngx_int_t
ngx_ratelimit_parts_prepare(ngx_ratelimit_rule_t *rule, ngx_pool_t *pool)
{
    ngx_ratelimit_limit_t  *shares;

    shares = ngx_palloc(pool, 2 * sizeof(ngx_ratelimit_limit_t));
    if (shares == NULL) {
        return NGX_ERROR;
    }

    if (ngx_ratelimit_limit_share(&rule->limit, rule->shards, 0, &shares[0])
        != 0
        || ngx_ratelimit_limit_share(&rule->limit, rule->shards,
                                     rule->shards - 1, &shares[1])
           != 0)
    {
        return NGX_ERROR;
    }

    rule->shares = shares;

    return NGX_OK;
}


static const ngx_ratelimit_limit_t *
ngx_ratelimit_parts_limit(const ngx_ratelimit_rule_t *rule, uint32_t part)
{
    return &rule->shares[part >= rule->limit.capacity % rule->shards];
}


static void
ngx_ratelimit_parts_take(ngx_ratelimit_counter_t *counter)
{
    uint32_t                 n, part;
    ngx_ratelimit_answer_t   known;
    ngx_ratelimit_remote_t  *remote;

    n = counter->rule->shards;
    remote = counter->remote;

    remote->call = NULL;
    remote->tried = 0;
    remote->unheard = 0;
    remote->retry_us = 0;
    remote->part = (uint32_t) ngx_random() % n;

    part = ngx_ratelimit_parts_next(counter, &known);

    if (counter->cost == 0) {
        counter->source = NGX_RATELIMIT_SOURCE_LEASE;
        counter->answer = known;
        counter->answer.retry_us = 0;
        return;
    }

    if (part < n) {
        known.retry_us = ngx_ratelimit_parts_wait_us(counter);
        known.reset_us = ngx_max(known.reset_us, known.retry_us);
    }

    if (known.retry_us) {
        counter->source = NGX_RATELIMIT_SOURCE_LEASE;
        ngx_ratelimit_parts_deny(counter, &known);
        return;
    }

    remote->part = part;
    counter->asks = 1;
}


/*
 * The next part from remote->part on that was not tried and may have the cost,
 * or n: there is none. Fills *known with what is left of all, and with the
 * least retry of those that reject (0: none does).
 */
static uint32_t
ngx_ratelimit_parts_next(const ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_answer_t *known)
{
    uint32_t                      i, n, next;
    uint64_t                      now_us;
    ngx_ratelimit_split_t         split, *noted;
    ngx_ratelimit_answer_t        answer;
    ngx_ratelimit_remote_t       *remote;
    ngx_ratelimit_lease_entry_t   entry;

    n = counter->rule->shards;
    next = n;
    remote = counter->remote;
    now_us = ngx_ratelimit_local_now_us();

    ngx_memzero(known, sizeof(ngx_ratelimit_answer_t));
    known->retry_us = remote->retry_us;

    for (i = 0; i < n; i++) {

        if (i % NGX_RATELIMIT_SPLIT_PARTS == 0) {
            noted = ngx_ratelimit_parts_lock(counter, i, 0, &entry);
            ngx_memzero(&split, sizeof(ngx_ratelimit_split_t));

            if (noted) {
                split = *noted;
                ngx_ratelimit_leases_unlock(&entry);
            }
        }

        ngx_ratelimit_split_look(&split, i % NGX_RATELIMIT_SPLIT_PARTS,
                                 ngx_ratelimit_parts_limit(counter->rule, i),
                                 now_us, counter->cost, &answer);

        known->remaining += answer.remaining;
        known->reset_us = ngx_max(known->reset_us, answer.reset_us);

        if (remote->tried & (uint64_t) 1 << i) {
            continue;
        }

        if (answer.retry_us == 0) {

            if (next == n || (next < remote->part && i >= remote->part)) {
                next = i;
            }

        } else if (known->retry_us == 0
                   || known->retry_us > answer.retry_us)
        {
            known->retry_us = answer.retry_us;
        }
    }

    return next;
}


/* Locks what was noted of a part and its neighbours; NULL: nothing was. */
static ngx_ratelimit_split_t *
ngx_ratelimit_parts_lock(const ngx_ratelimit_counter_t *counter,
    uint32_t part, ngx_uint_t make, ngx_ratelimit_lease_entry_t *entry)
{
    return ngx_ratelimit_leases_lock(counter->client->limiter->zone.leases,
                                     ngx_ratelimit_parts_id(counter, part),
                                     make, ngx_ratelimit_local_now_us(),
                                     entry);
}


/*
 * For how long all parts reject the cost, by the table of counters; 0: nothing
 * is known.
 */
static uint64_t
ngx_ratelimit_parts_wait_us(const ngx_ratelimit_counter_t *counter)
{
    uint64_t               now_us, wait_us;
    ngx_ratelimit_entry_t  entry;

    wait_us = 0;
    now_us = ngx_ratelimit_parts_lock_all(counter, &entry);

    if (entry.state.aux
        && ((ngx_ratelimit_parts_tick(now_us) - entry.state.aux)
            & NGX_RATELIMIT_PARTS_TICK_MASK)
           >= NGX_RATELIMIT_PARTS_TICKS)
    {
        /* ticks come round again, and must not find it */
        ngx_memzero(&entry.state, sizeof(ngx_ratelimit_state_t));
        ngx_ratelimit_table_store(&entry, 0);
        return 0;
    }

    if (entry.state.fresh_us > now_us && counter->cost >= entry.state.extra) {
        wait_us = entry.state.fresh_us - now_us;
    }

    ngx_ratelimit_table_unlock(&entry);

    return wait_us;
}


/*
 * Locks the entry in which the table of counters remembers all parts; returns
 * the time.
 */
static uint64_t
ngx_ratelimit_parts_lock_all(const ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_entry_t *entry)
{
    uint64_t            now_us;
    ngx_ratelimit_id_t  id;

    id = ngx_ratelimit_parts_id(counter, NGX_RATELIMIT_PARTS_ALL);
    now_us = ngx_ratelimit_local_now_us();

    ngx_ratelimit_table_lock(counter->client->limiter->zone.table, &id, now_us,
                             entry);

    return now_us;
}


/* 1 and more */
static uint32_t
ngx_ratelimit_parts_tick(uint64_t now_us)
{
    return ((now_us >> NGX_RATELIMIT_PARTS_TICK_SHIFT)
            & NGX_RATELIMIT_PARTS_TICK_MASK)
           | 1;
}


/*
 * All parts have rejected the cost, or have no answer: notes it, unless each is
 * remembered. A part without an answer may have one soon.
 */
static void
ngx_ratelimit_parts_spent(ngx_ratelimit_counter_t *counter, uint64_t wait_us)
{
    uint64_t                 now_us;
    ngx_ratelimit_entry_t    entry;
    ngx_ratelimit_answer_t   known;
    ngx_ratelimit_remote_t  *remote;

    remote = counter->remote;
    remote->tried = remote->unheard;

    if (ngx_ratelimit_parts_next(counter, &known) == counter->rule->shards
        || ngx_ratelimit_forgotten(counter->client->limiter,
                                   counter->client->check->taken_us))
    {
        return;
    }

    now_us = ngx_ratelimit_parts_lock_all(counter, &entry);

    entry.state.fresh_us = now_us + ngx_min(wait_us,
                                            NGX_RATELIMIT_PARTS_MAX_US);
    entry.state.aux = remote->unheard ? ngx_ratelimit_parts_tick(now_us) : 0;
    entry.state.extra = counter->cost;

    ngx_ratelimit_table_store(&entry, NGX_RATELIMIT_PARTS_LOSS);
}


/* Another limit or number of parts is another memory, and so is a reset. */
static ngx_ratelimit_id_t
ngx_ratelimit_parts_id(const ngx_ratelimit_counter_t *counter,
    uint32_t part)
{
    uint64_t            what;
    ngx_ratelimit_id_t  id;

    id = ngx_ratelimit_counter_id(counter);

    what = (uint64_t) counter->rule->limit.mark << 16
           | counter->rule->shards << 8
           | (part / NGX_RATELIMIT_SPLIT_PARTS + 1);

    what ^= ngx_ratelimit_leases_forgot_us(
                                     counter->client->limiter->zone.leases)
            << 16;

    return ngx_ratelimit_id_vary(&id, what);
}


static void
ngx_ratelimit_parts_ask(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_part_t       part;
    ngx_ratelimit_lease_ask_t  ask;

    ngx_ratelimit_parts_get(counter, &part);

    ngx_memzero(&ask, sizeof(ngx_ratelimit_lease_ask_t));
    ask.cost = counter->cost;

    counter->remote->call = ngx_ratelimit_script_ask(&part.counter, &ask,
                                                   ngx_ratelimit_parts_handler,
                                                     counter);
    if (counter->remote->call) {
        return;
    }

    ngx_ratelimit_fallback(counter, NGX_RATELIMIT_REDIS_UNREACHABLE, 0);
    ngx_ratelimit_check_answered(counter->client->check);
}


void
ngx_ratelimit_parts_get(ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_part_t *part)
{
    u_char      *hash;
    uint64_t     what;
    ngx_uint_t   i;

    (void) ngx_ratelimit_client_hash(counter->client);

    part->counter = *counter;
    part->client = *counter->client;
    part->remote = *counter->client->remote;
    part->counter.client = &part->client;
    part->client.remote = &part->remote;
    part->counter.limit = ngx_ratelimit_parts_limit(counter->rule,
                                                    counter->remote->part);
    part->remote.bucket = ngx_ratelimit_parts_bucket(counter);

    /* the same on nodes of either byte order */

    what = ((uint64_t) counter->rule->shards << 8
            | (counter->remote->part + 1))
           * 0x9e3779b97f4a7c15ULL;
    hash = (u_char *) &part->remote.hash;

    for (i = 0; i < NGX_RATELIMIT_RULE_FIELD; i++) {
        hash[i] ^= (u_char) (what >> 8 * i);
    }
}


/*
 * A part's bucket: its hash slot is in the part's n-th of all slots, counted
 * from that of the first part. So Redis nodes that have as many slots, in a
 * row, have as many parts.
 */
static uint32_t
ngx_ratelimit_parts_bucket(const ngx_ratelimit_counter_t *counter)
{
    uint32_t       i, n, bucket, mask, first, from, width, tries;
    const u_char  *salt;

    n = counter->rule->shards;
    i = counter->remote->part;
    salt = counter->rule->field_salt;
    mask = (uint32_t) counter->client->limiter->redis->buckets - 1;

    bucket = (counter->client->remote->bucket
              ^ ((uint32_t) salt[0] << 24 | salt[1] << 16 | salt[2] << 8
                 | salt[3]))
             & mask;

    first = ngx_ratelimit_parts_slot(bucket);
    from = first + i * NGX_RATELIMIT_CLUSTER_SLOTS / n;
    width = NGX_RATELIMIT_CLUSTER_SLOTS / n;
    width = (n <= NGX_RATELIMIT_PARTS_FEW) ? width / 4 : width;

    tries = NGX_RATELIMIT_PARTS_TRIES * NGX_RATELIMIT_CLUSTER_SLOTS / width;
    bucket = (bucket + i * (mask / n)) & mask;

    while (tries--) {

        if ((ngx_ratelimit_parts_slot(bucket) - from)
            % NGX_RATELIMIT_CLUSTER_SLOTS
            < width)
        {
            break;
        }

        bucket = (bucket + 1) & mask;
    }

    return bucket;
}


/* The hash slot of the hash tag. */
static uint32_t
ngx_ratelimit_parts_slot(uint32_t bucket)
{
    u_char  text[NGX_INT_T_LEN], *last;

    last = ngx_ratelimit_number_write(text, bucket);

    return ngx_ratelimit_cluster_slot(text, last - text);
}


static void
ngx_ratelimit_parts_handler(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_counter_t *counter = data;

    const ngx_ratelimit_limit_t  *limit;
    ngx_ratelimit_answer_t        answer, known;
    ngx_ratelimit_remote_t       *remote;

    remote = counter->remote;

    if (result->again) {
        ngx_ratelimit_redis_forget(remote->call);
    }

    remote->call = NULL;
    remote->tried |= (uint64_t) 1 << remote->part;

    limit = ngx_ratelimit_parts_limit(counter->rule, remote->part);
    remote->reason = ngx_ratelimit_script_read(result, 0, limit, &answer);

    if (remote->reason == NGX_RATELIMIT_REDIS_OK
        && answer.granted != (answer.retry_us ? 0 : counter->cost))
    {
        remote->reason = NGX_RATELIMIT_REDIS_PROTOCOL;
    }

    if (remote->reason != NGX_RATELIMIT_REDIS_OK) {
        remote->unheard |= (uint64_t) 1 << remote->part;
        ngx_ratelimit_parts_on(counter, result->wait_ms);
        return;
    }

    ngx_ratelimit_parts_note(counter, &answer);

    if (answer.retry_us) {

        if (remote->retry_us == 0 || remote->retry_us > answer.retry_us) {
            remote->retry_us = answer.retry_us;
        }

        ngx_ratelimit_parts_on(counter, 0);
        return;
    }

    (void) ngx_ratelimit_parts_next(counter, &known);

    counter->source = NGX_RATELIMIT_SOURCE_REDIS;
    counter->answer.granted = counter->cost;
    counter->answer.remaining = ngx_min(known.remaining,
                                        counter->limit->capacity
                                        - limit->capacity + answer.remaining);
    counter->answer.reset_us = ngx_max(known.reset_us, answer.reset_us);

    ngx_ratelimit_check_answered(counter->client->check);
}


static void
ngx_ratelimit_parts_note(const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_answer_t *answer)
{
    uint32_t                      part;
    ngx_ratelimit_split_t        *split;
    ngx_ratelimit_lease_entry_t   entry;

    if (ngx_ratelimit_forgotten(counter->client->limiter,
                                counter->client->check->taken_us))
    {
        return;
    }

    part = counter->remote->part;
    split = ngx_ratelimit_parts_lock(counter, part, 1, &entry);

    if (split) {
        ngx_ratelimit_split_note(split, part % NGX_RATELIMIT_SPLIT_PARTS,
                                 ngx_ratelimit_parts_limit(counter->rule,
                                                           part),
                                 ngx_ratelimit_local_now_us(), answer);
        ngx_ratelimit_leases_unlock(&entry);
    }
}


/*
 * A part was asked in vain: on to the next one. If none is left, a part without
 * an answer counts as one that rejects: its share of the limit is out of reach.
 * If no part has an answer, the fail mode decides.
 */
static void
ngx_ratelimit_parts_on(ngx_ratelimit_counter_t *counter, ngx_msec_t wait_ms)
{
    uint32_t                 part;
    ngx_uint_t               late;
    ngx_ratelimit_redis_t   *redis;
    ngx_ratelimit_answer_t   known;
    ngx_ratelimit_remote_t  *remote;

    redis = counter->client->limiter->redis;
    remote = counter->remote;

    part = ngx_ratelimit_parts_next(counter, &known);
    late = (ngx_current_msec - remote->since_ms >= redis->timeout);

    if (part < counter->rule->shards && !late) {
        remote->part = part;
        ngx_ratelimit_parts_ask(counter);
        return;
    }

    if (part == counter->rule->shards && known.retry_us) {
        counter->source = NGX_RATELIMIT_SOURCE_REDIS;
        ngx_ratelimit_parts_spent(counter, known.retry_us);
        ngx_ratelimit_parts_deny(counter, &known);

    } else {

        ngx_ratelimit_fallback(counter,
                               (remote->reason == NGX_RATELIMIT_REDIS_OK)
                               ? NGX_RATELIMIT_REDIS_TIMEOUT : remote->reason,
                               wait_ms);
    }

    ngx_ratelimit_check_answered(counter->client->check);
}


/* Each has less than the cost left, all together may have more. */
static void
ngx_ratelimit_parts_deny(ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_answer_t *known)
{
    counter->answer = *known;
    counter->answer.remaining = ngx_min(known->remaining, counter->cost - 1);
}


static void
ngx_ratelimit_parts_leave(ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_remote_t  *remote;

    remote = counter->remote;

    if (remote->call) {
        ngx_ratelimit_redis_forget(remote->call);
        remote->call = NULL;
    }
}


/* The tokens go back to the part that has granted them. */
static void
ngx_ratelimit_parts_give(ngx_ratelimit_counter_t *counter, uint32_t tokens)
{
    ngx_ratelimit_part_t  part;

    ngx_ratelimit_parts_get(counter, &part);
    ngx_ratelimit_script_give(&part.counter, tokens,
                     ngx_ratelimit_counter_age_us(counter,
                                            counter->client->check->taken_us));
}

/*
 * Where a counter can be taken: in shared memory, or in Redis. Inside the
 * engine only.
 */

#ifndef NGX_RATELIMIT_BACKEND_H_INCLUDED
#define NGX_RATELIMIT_BACKEND_H_INCLUDED

#include "ngx_ratelimit_check.h"
#include "ngx_ratelimit_lease.h"

/*
 * Counters in this node's table: those of zones without Redis; those that
 * stand in for one in Redis (fail_mode=local), or for its emergency.
 *
 * Takes the cost; the counter's answer tells whether it was granted.
 */
void ngx_ratelimit_local_take(ngx_ratelimit_counter_t *counter);

/*
 * Takes tokens that the request has spent beyond its cost: what is not there is
 * owed, up to the capacity. The answer then says what is left, unless it is
 * Redis' own.
 */
void ngx_ratelimit_local_charge(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);

/* Gives back so many of the tokens that were taken. */
void ngx_ratelimit_local_give(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);

/*
 * Makes the counter here what Redis has answered: what it goes on from when
 * Redis has no answer. Of workers that have answers at a time the last to come
 * here wins.
 */
void ngx_ratelimit_local_note(ngx_ratelimit_counter_t *counter);

/*
 * Makes the counter here have so many left at most: Redis has said that there
 * are no more.
 */
void ngx_ratelimit_local_lower(ngx_ratelimit_counter_t *counter,
    uint32_t remaining);

/*
 * What a token of the counter weighs here, in half tokens: two, or where this
 * gateway goes on alone as many as there are gateways.
 */
uint32_t ngx_ratelimit_local_weight(const ngx_ratelimit_counter_t *counter);

/*
 * slots.c: concurrency on this node; hold takes a slot that Redis has granted,
 * whatever is left here; free ends what the others were granted
 */
void ngx_ratelimit_slot_take(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_slot_hold(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_slot_free(ngx_ratelimit_counter_t *counter);

/*
 * fallback.c: Redis has no answer for the counter, which its reason tells;
 * wait_ms: for so long it will not be asked. The counter's answer is zero, and
 * becomes what its fail mode says.
 */
void ngx_ratelimit_fallback(ngx_ratelimit_counter_t *counter,
    ngx_msec_t wait_ms);

/* Redis, asked at asked_us, has an answer for a counter of fail_mode=local. */
void ngx_ratelimit_fallback_note(ngx_ratelimit_counter_t *counter,
    uint64_t asked_us);

/* Whether what a counter was granted was taken in this node's table, too. */
ngx_uint_t ngx_ratelimit_fallback_here(const ngx_ratelimit_counter_t *counter);

/* what local counters' names are made of: the client's key and the rule */
ngx_ratelimit_id_t ngx_ratelimit_local_id(
    const ngx_ratelimit_counter_t *counter);

/* nginx's cached monotonic clock, which no step of the system's clock moves */
#define ngx_ratelimit_local_now_us()  ((uint64_t) ngx_current_msec * 1000)

/*
 * A slot in Redis is held for so long, unless its worker says so again, which
 * it does three times in that time.
 */
#define NGX_RATELIMIT_LEASE_US  30000000

typedef enum {
    NGX_RATELIMIT_REMOTE_TAKE = 0,
    NGX_RATELIMIT_REMOTE_GIVE,      /* back what was granted */
    NGX_RATELIMIT_REMOTE_SETTLE,    /* charge, refund */
    NGX_RATELIMIT_REMOTE_FREE,      /* slots */
    NGX_RATELIMIT_REMOTE_RENEW      /* slots */
} ngx_ratelimit_remote_e;

/*
 * Asks Redis for all counters of the client in one call, all or nothing.
 * ngx_ratelimit_check_answered() follows, before this returns only where
 * memory is out.
 */
void ngx_ratelimit_remote_take(ngx_ratelimit_client_t *client);

/* Tells Redis; nobody waits for that. */
void ngx_ratelimit_remote_tell(ngx_ratelimit_client_t *client,
    ngx_ratelimit_remote_e what);

/*
 * One call for one counter, of a bucket or a window: what a lease asks for, and
 * what goes back to it, age_us after it was taken; nobody waits for that. The
 * handler is told of a late reply, too. Returns NULL when memory is out.
 */
ngx_ratelimit_redis_call_t *ngx_ratelimit_remote_ask(
    ngx_ratelimit_counter_t *counter, const ngx_ratelimit_lease_ask_t *ask,
    ngx_ratelimit_redis_handler_pt handler, void *data);
void ngx_ratelimit_remote_give(ngx_ratelimit_counter_t *counter,
    uint32_t tokens, uint64_t age_us);

/*
 * How old tokens are that the counter's answer granted, to a call of asked_us,
 * for who gives them back: of a window as old as that, so that they do not come
 * to the next one, however late the call runs.
 */
uint64_t ngx_ratelimit_remote_age_us(const ngx_ratelimit_counter_t *counter,
    uint64_t asked_us);

/*
 * The four values of a counter in an answer of Redis. Whatever stands there,
 * the answer stays in its ranges: NGX_DECLINED, where it would not.
 */
ngx_int_t ngx_ratelimit_remote_read(const int64_t *values,
    const ngx_ratelimit_limit_t *limit, ngx_ratelimit_answer_t *answer);

#define NGX_RATELIMIT_REMOTE_VALUES  4   /* of a counter */

/* A counter's 8 bytes in Redis, of its client's hash and its rule. */
void ngx_ratelimit_remote_field(u_char *field,
    const ngx_ratelimit_counter_t *counter);

/* One of those that a check waits for has its answer. */
void ngx_ratelimit_check_answered(ngx_ratelimit_check_t *check);


/*
 * leased.c: counters in Redis that this node answers for, by sync=lease and
 * async. take: fills the answer, or sets asks: then Redis has to be asked, by
 * ngx_ratelimit_holder_join().
 */
void ngx_ratelimit_leased_take(ngx_ratelimit_counter_t *counter);

/*
 * A request that costs nothing passes in any case, so it asks nobody: the
 * answer is what this gateway knows, or that of a counter that nobody has used.
 */
void ngx_ratelimit_leased_look(ngx_ratelimit_counter_t *counter);

/*
 * What Redis has said of a strict counter whose requests may cost nothing is
 * kept for those.
 */
void ngx_ratelimit_leased_note(const ngx_ratelimit_counter_t *counter);

/* Of a counter that asks alone: Redis has answered; or it has not. */
void ngx_ratelimit_leased_tell(ngx_ratelimit_counter_t *counter,
    ngx_uint_t answered);

/*
 * give: tokens that were granted come back. settle: the counter's charge or
 * refund; what of a charge is not in the lease remains to be asked of Redis.
 */
void ngx_ratelimit_leased_give(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);
void ngx_ratelimit_leased_settle(ngx_ratelimit_counter_t *counter);

/*
 * Names the counter's lease. Those of async are others: tokens in hand are none
 * that have been spent, where a rule's sync changes.
 */
static ngx_inline ngx_ratelimit_id_t
ngx_ratelimit_leased_id(const ngx_ratelimit_counter_t *counter)
{
    ngx_ratelimit_id_t  id;

    id = ngx_ratelimit_local_id(counter);
    id.lo ^= (counter->rule->sync == NGX_RATELIMIT_SYNC_ASYNC);

    return id;
}

/*
 * Whether what Redis was asked at asked_us is not to be remembered: a counter
 * was reset since, and maybe this one.
 */
static ngx_inline ngx_uint_t
ngx_ratelimit_forgotten(const ngx_ratelimit_limiter_t *limiter,
    uint64_t asked_us)
{
    uint64_t  forgot_us;

    if (limiter->zone.leases == NULL) {
        return 0;
    }

    forgot_us = ngx_ratelimit_leases_forgot_us(limiter->zone.leases);

    return forgot_us && forgot_us >= asked_us;
}

/* What is known to a lease now. */
void ngx_ratelimit_leased_env(const ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_lease_env_t *env);

/*
 * holder.c: this worker's part in a counter's lease. join: the counter waits
 * until its holder has asked Redis; ngx_ratelimit_check_answered() follows,
 * before this returns only where memory is out. leave: it waits no more. ahead:
 * more is asked for, and nobody waits; of async, what was spent is debited.
 * watch: what is in hand goes back in time.
 *
 * owe: of async, where there is no place for a lease: the next call debits so
 * many more; if that call fails, or memory is out, Redis is not told of them.
 * unowe: tokens come back; returns how many of them no call has debited yet.
 * The caller gives back the others.
 */
void ngx_ratelimit_holder_join(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_holder_leave(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_holder_ahead(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_holder_watch(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_holder_owe(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);
uint32_t ngx_ratelimit_holder_unowe(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);

/*
 * shards.c: counters that are split, each part in another slot of Redis, with
 * its share of the limit. take: answers where all parts are known to deny, else
 * sets asks: then Redis is asked by join, one part after the other, until one
 * grants; ngx_ratelimit_check_answered() follows, before join returns only if
 * memory is out. leave: it waits no more. give: what a part has granted comes
 * back to it. prepare: a rule's shares; NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_shards_prepare(ngx_ratelimit_rule_t *rule,
    ngx_pool_t *pool);
void ngx_ratelimit_shards_take(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_shards_join(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_shards_leave(ngx_ratelimit_counter_t *counter);
void ngx_ratelimit_shards_give(ngx_ratelimit_counter_t *counter,
    uint32_t tokens);

/* A part as Redis is asked for it: what counter->shard is called, its limit. */
typedef struct {
    ngx_ratelimit_counter_t  counter;
    ngx_ratelimit_client_t   client;
} ngx_ratelimit_shard_t;

void ngx_ratelimit_shards_part(ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_shard_t *shard);

/* A round trip to Redis, as this worker's holders see it. */
ngx_uint_t ngx_ratelimit_holder_rtt_ms(const ngx_ratelimit_limiter_t *limiter);

#endif /* NGX_RATELIMIT_BACKEND_H_INCLUDED */

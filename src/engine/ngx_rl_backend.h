/*
 * Backends: how a counter is kept. A check takes each counter by the functions
 * of its backend and knows nothing else of it. Inside the engine only.
 */

#ifndef NGX_RL_BACKEND_H_INCLUDED
#define NGX_RL_BACKEND_H_INCLUDED

#include "ngx_rl_check.h"
#include "ngx_rl_ledger.h"

/* If a function is NULL, the backend has nothing to do for it. */
struct ngx_rl_backend_s {

    /* Takes the cost: fills the answer and its source, or sets asks. */
    void  (*take)(ngx_rl_counter_t *counter);

    /*
     * Asks Redis for a counter that has set asks. The check waits for
     * ngx_rl_check_answered(), once for each counter. It is called
     * before this returns only if memory is out.
     */
    void  (*ask)(ngx_rl_counter_t *counter);

    /* The check ends: Redis' answer is not for it any more. */
    void  (*leave)(ngx_rl_counter_t *counter);

    /* Gives back tokens that were granted. */
    void  (*give)(ngx_rl_counter_t *counter, uint32_t tokens);

    /*
     * Takes the counter's charge, which the request has spent already. The
     * part that this gateway cannot take stays in charge, for Redis.
     */
    void  (*charge)(ngx_rl_counter_t *counter);
};

/* in this gateway's table: there is no Redis, or it has no answer */
extern const ngx_rl_backend_t  ngx_rl_local;

/* the same, and the peers are told: peered.c; also while Redis is away */
extern const ngx_rl_backend_t  ngx_rl_peered;

/* nothing was taken anywhere: Redis has no answer, and the request passes */
extern const ngx_rl_backend_t  ngx_rl_nowhere;

/* sync=strict: each request asks Redis */
extern const ngx_rl_backend_t  ngx_rl_strict;

/* this gateway answers out of a lease, or by what it last knew: sync=async */
extern const ngx_rl_backend_t  ngx_rl_leased;

/* parts in several hash slots of Redis, each with its share of the limit */
extern const ngx_rl_backend_t  ngx_rl_parts;


/* local.c: what the backends share */

/* nginx's cached monotonic clock, which no step of the system's clock moves */
#define ngx_rl_local_now_us()  ((uint64_t) ngx_current_msec * 1000)

/* ticks of 2^17 us, in the 12 bits of an entry of the table */
#define NGX_RL_TICK_MASK     0xfff
#define ngx_rl_tick(now_us)  ((uint32_t) ((now_us) >> 17) & NGX_RL_TICK_MASK)

/* A counter has its answer, which the check waits for. */
void ngx_rl_check_answered(ngx_rl_check_t *check);

/* The client's hash on this gateway; a strict check does not need it. */
static ngx_inline const ngx_rl_id_t *
ngx_rl_client_local(ngx_rl_client_t *client)
{
    if (!client->named) {
        client->named = 1;
        client->local = ngx_rl_hash(
                     ngx_rl_table_hash_key(client->limiter->zone.table),
                     client->key.data, client->key.len);
    }

    return &client->local;
}

/* Names the counter on this gateway: the client's hash and the rule. */
static ngx_inline ngx_rl_id_t
ngx_rl_counter_id(const ngx_rl_counter_t *counter)
{
    ngx_rl_id_t         id;
    const ngx_rl_id_t  *local, *salt;

    local = ngx_rl_client_local(counter->client);
    salt = counter->emergency ? &counter->rule->emergency_salt
                              : &counter->rule->salt;

    id.hi = local->hi ^ salt->hi;
    id.lo = local->lo ^ salt->lo;

    return id;
}

/* The id of what is kept beside a counter, by a number; 0: the counter. */
static ngx_inline ngx_rl_id_t
ngx_rl_id_vary(const ngx_rl_id_t *id, uint64_t n)
{
    ngx_rl_id_t  varied;

    varied.hi = id->hi ^ n * 0x9e3779b97f4a7c15ULL;
    varied.lo = id->lo ^ n * 0xbf58476d1ce4e5b9ULL;

    return varied;
}

/*
 * While Redis does not answer for a counter of a rule with regions=n, this
 * gateway spends a share-th of its limit: an n-th is for the gateways of a
 * region together, so it is the number of gateways in all regions, n at least.
 */
uint32_t ngx_rl_counter_share(const ngx_rl_counter_t *counter);

/*
 * The weight of one of the counter's tokens here, in half tokens: two or, if
 * this gateway counts alone, as many as there are gateways.
 */
uint32_t ngx_rl_counter_weight(const ngx_rl_counter_t *counter);

/*
 * peered.c: that weight while Redis is away. Gateways without Redis that tell
 * each other are one: it is divided by their number. gateways: how many live
 * as peers, this one among them; 0: not known yet.
 */
uint32_t ngx_rl_fleet_weight(const ngx_rl_limiter_t *limiter);
ngx_uint_t ngx_rl_fleet_gateways(const ngx_rl_limiter_t *limiter);

/*
 * How old the tokens are that the counter's answer granted to a call of
 * asked_us. A give-back says so: tokens of a window as old as that do not come
 * to the next one, however late the call runs.
 */
uint64_t ngx_rl_counter_age_us(const ngx_rl_counter_t *counter,
    uint64_t asked_us);

/*
 * Whether Redis was asked at asked_us, but a counter was reset since, maybe
 * this one: then the answer must not be remembered.
 */
ngx_uint_t ngx_rl_forgotten(const ngx_rl_limiter_t *limiter, uint64_t asked_us);


/*
 * local.c: counters in this gateway's table. take: the answer tells whether the
 * cost was granted. charge: takes tokens that were spent already, and owes what
 * is not there, up to the capacity; the answer, unless Redis gave it, then says
 * what is left. give: tokens that were taken come back.
 */
void ngx_rl_local_take(ngx_rl_counter_t *counter);
void ngx_rl_local_charge(ngx_rl_counter_t *counter, uint32_t tokens);
void ngx_rl_local_give(ngx_rl_counter_t *counter, uint32_t tokens);

/*
 * Makes the counter of that id and algorithm a fresh one. Windows and logs find
 * their other entries by it. If it is missing, permits that requests hold are
 * counted again.
 */
void ngx_rl_local_drop(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    ngx_rl_algorithm_e algorithm);

/*
 * Counts an event of that id by a limit of events (no concurrency). Returns
 * whether it is one too many: then the count begins anew.
 */
ngx_uint_t ngx_rl_local_event(ngx_rl_table_t *table, const ngx_rl_id_t *id,
    const ngx_rl_limit_t *limit);

/*
 * Sets the counter here to what Redis has answered. It goes on from there when
 * Redis has no answer. If several workers have answers, the last one wins.
 */
void ngx_rl_local_note(ngx_rl_counter_t *counter);

/*
 * Peers have spent tokens of a counter: it is charged, and owes what is not
 * there. Below 0 they came back; 0 looks. left_us: of a fixed window, when the
 * window ends in which that was; 0: it is the window of now. weight: of a token
 * in half tokens, if the zone has Redis. The answer has what is left.
 */
void ngx_rl_local_told(const ngx_rl_limiter_t *limiter, const ngx_rl_id_t *id,
    const ngx_rl_limit_t *limit, int64_t tokens, uint64_t left_us,
    uint32_t weight, ngx_rl_answer_t *answer);

/* Redis has said that there are no more than so many left. */
void ngx_rl_local_lower(ngx_rl_counter_t *counter, uint32_t remaining);


/*
 * permits.c: concurrency on this gateway. hold takes a permit that Redis has
 * granted, whatever is left here; free ends what the others granted.
 */
void ngx_rl_permit_take(ngx_rl_counter_t *counter);
void ngx_rl_permit_hold(ngx_rl_counter_t *counter);
void ngx_rl_permit_free(ngx_rl_counter_t *counter);

/*
 * Permits of a fleet. told: a peer has so many of a counter. own: how many this
 * gateway has. Those of a peer that is gone are not counted any more when one
 * is needed.
 */
void ngx_rl_permit_told(const ngx_rl_limiter_t *limiter, const ngx_rl_id_t *id,
    uint64_t peer, uint32_t permits);
uint32_t ngx_rl_permit_own(const ngx_rl_limiter_t *limiter,
    const ngx_rl_id_t *id);

/*
 * peered.c: what of a counter peers are to be told. tell: tokens that were
 * spent, or, below 0, came back; of permits, that they changed. reset: it is
 * reset, and what was spent before counts nowhere; before the counter is.
 */
void ngx_rl_fleet_tell(const ngx_rl_counter_t *counter, int64_t tokens);
void ngx_rl_fleet_reset(const ngx_rl_counter_t *counter);

/*
 * A permit in Redis expires after so long unless its worker renews it, which it
 * does three times in that time.
 */
#define NGX_RL_PERMIT_US  30000000


/* notes.c: an operator has changed the counter: its client need not wait. */
void ngx_rl_retry_forget(const ngx_rl_counter_t *counter);

/* How long the counter's client still has to wait here; 0: it need not. */
uint64_t ngx_rl_retry_left(const ngx_rl_counter_t *counter);


/*
 * local.c: Redis has no answer for the counter, for that reason, and takes no
 * calls for wait_ms. Answer (zero until now) and backend become those of the
 * fail mode.
 */
void ngx_rl_fallback(ngx_rl_counter_t *counter, ngx_rl_redis_status_e reason,
    ngx_msec_t wait_ms);

/* Redis, asked at asked_us, has an answer for a counter of fail_mode=local. */
void ngx_rl_fallback_note(ngx_rl_counter_t *counter, uint64_t asked_us);


/* strict.c */

typedef enum {
    NGX_RL_STRICT_TAKE = 0,
    NGX_RL_STRICT_SETTLE,    /* charge, refund */
    NGX_RL_STRICT_FREE,      /* permits */
    NGX_RL_STRICT_RENEW      /* permits */
} ngx_rl_strict_e;

/* Tells Redis, with one call for each client; nobody waits for that. */
void ngx_rl_strict_send(ngx_rl_check_t *check, ngx_rl_strict_e what);


/*
 * leased.c: the ledger learns what Redis has said of a strict counter, asked at
 * asked_us, or that it said nothing. The counter asks alone, in place of its
 * ledger; or it is rejected until a moment; or it is a part of a split one; or
 * its requests may cost nothing. Those are answered by what is kept here.
 */
void ngx_rl_leased_learn(ngx_rl_counter_t *counter, uint64_t asked_us,
    ngx_uint_t answered);

/*
 * What the ledger knows of a counter or of a part, and whether that rejects the
 * cost: retry_us. If nothing is known, the counter is a fresh one.
 */
void ngx_rl_leased_look(const ngx_rl_counter_t *counter,
    ngx_rl_answer_t *answer);

/*
 * A strict counter that Redis has rejected before: whether that still counts,
 * and the answer; no request asks meanwhile. gave: tokens of it go back. owes:
 * a response charges it, so the rejection lasts longer.
 */
ngx_uint_t ngx_rl_leased_rejects(ngx_rl_counter_t *counter);
void ngx_rl_leased_gave(const ngx_rl_counter_t *counter, uint32_t tokens);
void ngx_rl_leased_owes(const ngx_rl_counter_t *counter);


/* parts.c: makes a rule's shares; NGX_ERROR: memory is out */
ngx_int_t ngx_rl_parts_prepare(ngx_rl_rule_t *rule, ngx_pool_t *pool);

/* A part as a counter: the name of remote->part, and its share. */
typedef struct {
    ngx_rl_counter_t        counter;
    ngx_rl_client_t         client;
    ngx_rl_remote_client_t  remote;    /* of the client */
} ngx_rl_part_t;

void ngx_rl_parts_get(ngx_rl_counter_t *counter, ngx_rl_part_t *part);


/* script.c: calls of the check script inside Redis. */

/* a counter's arguments: its kind, its field, then five numbers; the kind of a
   calendar's window has three more */
#define NGX_RL_SCRIPT_NUMBER_BYTES                                            \
    NGX_RL_REDIS_BULK(sizeof("-18446744073709551615"))
#define NGX_RL_SCRIPT_NUMBERS_BYTES                                           \
    (5 * NGX_RL_SCRIPT_NUMBER_BYTES)
#define NGX_RL_SCRIPT_KIND_BYTES                                              \
    (sizeof("f") - 1 + 3 * (NGX_INT64_LEN + 1))
#define NGX_RL_SCRIPT_COUNTER_BYTES                                           \
    (NGX_RL_REDIS_BULK(NGX_RL_SCRIPT_KIND_BYTES)                              \
     + NGX_RL_REDIS_BULK(NGX_RL_RULE_FIELD)                                   \
     + NGX_RL_SCRIPT_NUMBERS_BYTES)

/* "want+ahead/share" */
#define NGX_RL_SCRIPT_LEASE_BYTES  (3 * NGX_INT_T_LEN + 2)

/* The numbers of one counter, see lua/check.lua. */
typedef struct {
    int64_t                     cost;
    int64_t                     want;
    uint32_t                    ahead;
    uint32_t                    share;   /* of ahead; else 0 */
} ngx_rl_price_t;

/* A call while it is written. */
typedef struct {
    ngx_rl_redis_eval_t  eval;
    u_char              *last;
    u_char               sets[NGX_RL_MAX_COUNTERS * NGX_RL_REDIS_SET_NAME];
    u_char               text[NGX_RL_MAX_COUNTERS
                                     * NGX_RL_SCRIPT_COUNTER_BYTES
                              + NGX_RL_SCRIPT_LEASE_BYTES
                              + NGX_RL_REDIS_BULK(8)];
} ngx_rl_script_t;


/*
 * Writes the numbers of a rule whose limit is constant, and of its takes if
 * their cost is; NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_script_prepare(ngx_rl_rule_t *rule, ngx_pool_t *pool);

/*
 * Writes a call: begin, then add for up to MAX_COUNTERS counters of one client,
 * whose hash is known; call sends it. price NULL: what prepare has written. If
 * memory is out, call returns NULL, and the handler is not called. The handler
 * may be NULL.
 */
void ngx_rl_script_begin(ngx_rl_script_t *script);
void ngx_rl_script_add(ngx_rl_script_t *script, const ngx_rl_counter_t *counter,
    const ngx_rl_price_t *price);
ngx_rl_redis_call_t *ngx_rl_script_call(ngx_rl_script_t *script,
    ngx_rl_client_t *client, ngx_rl_redis_handler_pt handler, void *data);

/*
 * A call for one counter. The handler, which may be NULL, also gets a late
 * reply. NULL: memory is out.
 */
ngx_rl_redis_call_t *ngx_rl_script_one(ngx_rl_counter_t *counter,
    const ngx_rl_price_t *price, ngx_rl_redis_handler_pt handler, void *data);

/*
 * The same for a token bucket or a window: what a ledger says, or a part's
 * cost; or what goes back, age_us after it was taken, and nobody waits for
 * that.
 */
ngx_rl_redis_call_t *ngx_rl_script_ask(
    ngx_rl_counter_t *counter, const ngx_rl_ledger_call_t *call,
    ngx_rl_redis_handler_pt handler, void *data);
void ngx_rl_script_give(ngx_rl_counter_t *counter, uint32_t tokens,
    uint64_t age_us);

/*
 * Reads the answer for the i-th counter of a call. It stays in its ranges,
 * whatever Redis says: if it would not, returns PROTOCOL and leaves the answer
 * as it was.
 */
ngx_rl_redis_status_e ngx_rl_script_read(const ngx_rl_redis_result_t *result,
    ngx_uint_t i, const ngx_rl_limit_t *limit, ngx_rl_answer_t *answer);

/* A counter's 8 bytes in Redis: the client's hash and the rule. */
void ngx_rl_script_field(u_char *field, const ngx_rl_counter_t *counter);

/* Whether Redis keeps the counter in a sorted set of its own. */
#define ngx_rl_script_in_set(algorithm)                                       \
    ((algorithm) == NGX_RL_SLIDING_LOG                                        \
     || (algorithm) == NGX_RL_CONCURRENCY)

#endif /* NGX_RL_BACKEND_H_INCLUDED */

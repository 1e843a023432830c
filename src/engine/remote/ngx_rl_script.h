/*
 * Calls of the check script inside Redis. Inside the engine only.
 */

#ifndef NGX_RL_SCRIPT_H_INCLUDED
#define NGX_RL_SCRIPT_H_INCLUDED

#include "ngx_rl_backend.h"

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

#endif /* NGX_RL_SCRIPT_H_INCLUDED */

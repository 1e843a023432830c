/*
 * Counters, for the operator: what is left of each, without taking; and its
 * change, on this gateway and in Redis.
 */

#ifndef NGX_RL_LOOK_H_INCLUDED
#define NGX_RL_LOOK_H_INCLUDED

#include "ngx_rl_check.h"
#include "ngx_rl_redis.h"

typedef struct ngx_rl_look_s  ngx_rl_look_t;

/* Looks made at once. The caller zeroes it and fills the first part. */
typedef struct {
    ngx_pool_t     *pool;
    void          (*handler)(void *data);
    void           *data;

    ngx_rl_look_t  *first;     /* NULL: none */
    ngx_rl_look_t  *last;
    ngx_uint_t      pending;   /* answers of Redis */
    unsigned        failed:1;  /* memory is out: some are UNREACHABLE */
} ngx_rl_looks_t;

/*
 * The caller zeroes it, fills the first part, and keeps the memory, and what
 * the rule is of, until it has ended.
 */
struct ngx_rl_look_s {
    ngx_rl_limiter_t      *limiter;
    const ngx_rl_rule_t   *rule;
    const ngx_rl_limit_t  *limit;  /* NULL: not known, and the outcome has no
                                      answer */
    uint32_t               used;   /* of a reset: tokens that the fresh counter
                                      has used */
    uint32_t               add;    /* tokens that come back, as far as they are
                                      used */
    unsigned               reset:1;
    ngx_str_t              key;

    /* the outcome */
    ngx_rl_redis_status_e  status;   /* why Redis has no answer */
    ngx_rl_answer_t        answer;   /* remaining, reset_us */
    uint64_t               wait_us;  /* on this gateway: until then no request
                                        passes; 0: none */
    unsigned               done:1;   /* a change: Redis has done it, or may
                                        have, or in part */

    /* the engine's */
    ngx_rl_looks_t          *all;
    ngx_rl_look_t           *next;
    ngx_rl_check_t           check;
    ngx_rl_remote_check_t    remote_check;
    ngx_rl_client_t          client;
    ngx_rl_remote_client_t   remote_client;
    ngx_rl_counter_t         counter;
    ngx_rl_remote_t          remote;
    unsigned                 giving:1;  /* its call gives back */
    ngx_rl_redis_call_t     *call;
};

/* One more, before looks_start(). */
void ngx_rl_look_add(ngx_rl_looks_t *all, ngx_rl_look_t *look);

/*
 * Looks at what is left of the counters, after the change if there is one. For
 * a counter in Redis that is what Redis says, without the tokens that gateways
 * hold in leases; for a split counter it is the sum of its parts. Returns
 * NGX_OK: the outcomes are there; NGX_AGAIN: the handler will be called once,
 * later, unless looks_end() comes before.
 *
 * reset makes a counter a fresh one, on this gateway and in Redis, or sets what
 * it has used. Requests that run keep their permits. add gives tokens back,
 * those that would be used for longest first. Other gateways go on with their
 * leases, and remember the counter's rejections until they hear of the change
 * (a RESET of ngx_rl_follow_call()).
 */
ngx_int_t ngx_rl_looks_start(ngx_rl_looks_t *all);

/* Once, not by the handler: forgets what is due. */
void ngx_rl_looks_end(ngx_rl_looks_t *all);

#endif /* NGX_RL_LOOK_H_INCLUDED */

/*
 * One check of one request: every counter that its rules name, taken all or
 * nothing. Counters of this node are taken at once in shared memory; those of
 * the fleet are asked of Redis, one call for each client, in parallel, and
 * the check completes when the last has answered or its deadline has passed.
 */

#ifndef NGX_RATELIMIT_CHECK_H_INCLUDED
#define NGX_RATELIMIT_CHECK_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_redis.h"
#include "ngx_ratelimit_rule.h"

#define NGX_RATELIMIT_MAX_COUNTERS  16   /* of one request */

/* in the order of their weight: the heaviest of its counters' is a check's */
typedef enum {
    NGX_RATELIMIT_BYPASSED = 0,   /* nothing to count */
    NGX_RATELIMIT_PASSED,
    NGX_RATELIMIT_DEGRADED,       /* passed, since Redis did not answer */
    NGX_RATELIMIT_REJECTED
} ngx_ratelimit_status_e;

typedef enum {
    NGX_RATELIMIT_SOURCE_NONE = 0,    /* not asked */
    NGX_RATELIMIT_SOURCE_LOCAL,
    NGX_RATELIMIT_SOURCE_REDIS,
    NGX_RATELIMIT_SOURCE_FALLBACK     /* asked in vain */
} ngx_ratelimit_source_e;

typedef struct ngx_ratelimit_check_s  ngx_ratelimit_check_t;


/* The counters of one check that share a limiter and a key value. */
typedef struct {
    ngx_ratelimit_limiter_t     *limiter;
    ngx_uint_t                   key_index;
    ngx_str_t                    key;

    ngx_ratelimit_id_t           hash;       /* of key, where local */
    ngx_ratelimit_check_t       *check;
    ngx_ratelimit_redis_call_t  *call;       /* while its answer is due */
    unsigned                     given:1;    /* back to Redis */
} ngx_ratelimit_client_t;


typedef struct {
    const ngx_ratelimit_rule_t  *rule;
    const ngx_ratelimit_rate_t  *rate;
    ngx_ratelimit_client_t      *client;

    ngx_ratelimit_answer_t       answer;
    ngx_ratelimit_source_e       source;
} ngx_ratelimit_counter_t;


/*
 * The caller fills the first part and keeps the memory until the check is
 * complete or cancelled.
 */
struct ngx_ratelimit_check_s {
    ngx_ratelimit_counter_t     *counters;
    ngx_ratelimit_client_t      *clients;
    ngx_uint_t                   ncounters;
    ngx_uint_t                   nclients;
    void                       (*handler)(void *data);
    void                        *data;

    unsigned                     remote:1;   /* some clients are in Redis */
    ngx_uint_t                   pending;    /* calls whose answer is due */
    ngx_ratelimit_status_e       status;
    ngx_ratelimit_counter_t     *strictest;  /* NULL where bypassed */
};


/*
 * Completes a rule that ngx_ratelimit_limiter_prepare() has completed. Returns
 * NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_ratelimit_check_prepare(ngx_ratelimit_rule_t *rule,
    ngx_pool_t *pool);

/*
 * Runs a check. Returns NGX_OK when it is complete: status and strictest
 * tell the outcome. Or NGX_AGAIN: the handler will be called once, later, when
 * it is, unless the check is cancelled before.
 */
ngx_int_t ngx_ratelimit_check_start(ngx_ratelimit_check_t *check);

/*
 * The request is gone: forgets the calls under way. A check may be cancelled
 * at any time, and more than once.
 */
void ngx_ratelimit_check_cancel(ngx_ratelimit_check_t *check);

#endif /* NGX_RATELIMIT_CHECK_H_INCLUDED */

/*
 * Rules: which requests are limited, counted by what, to how much. And the
 * limiter: a zone with its rules, the unit that a location refers to.
 *
 * What a rule's key and rate are at a request is evaluated above this layer,
 * which knows no variables; here they are numbers and bytes.
 */

#ifndef NGX_RATELIMIT_RULE_H_INCLUDED
#define NGX_RATELIMIT_RULE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_redis.h"
#include "ngx_ratelimit_token_bucket.h"
#include "ngx_ratelimit_zone.h"

#define NGX_RATELIMIT_RULE_FIELD  8   /* bytes of a counter's name in Redis */

typedef struct {
    ngx_str_t              id;
    ngx_str_t              key;         /* as written */
    ngx_uint_t             key_index;   /* in the limiter's keys */

    /* match: nothing set matches every request */
    ngx_uint_t             methods;     /* bits; 0 for any */
    ngx_str_t              route;       /* a checked path template */
#if (NGX_PCRE)
    ngx_regex_t           *regex;
#endif

    /* limit: rate is prepared where dynamic is 0 */
    ngx_ratelimit_rate_t   rate;
    uint64_t               capacity;    /* 0: the tokens of the rate */
    unsigned               dynamic:1;
    unsigned               strict:1;

    /* made by ngx_ratelimit_limiter_prepare(); numbers by the engine */
    ngx_ratelimit_id_t     salt;
    u_char                 field_salt[NGX_RATELIMIT_RULE_FIELD];
    ngx_str_t              numbers;     /* of a take, as Redis reads them */

    void                  *data;        /* the layer above: its values */
} ngx_ratelimit_rule_t;


typedef struct {
    ngx_ratelimit_zone_t    zone;
    ngx_ratelimit_redis_t  *redis;      /* NULL: this node alone */
    ngx_array_t             rules;      /* ngx_ratelimit_rule_t * */
    ngx_uint_t              nkeys;      /* distinct keys of the rules */
} ngx_ratelimit_limiter_t;


/*
 * Reads a rate and completes it with the capacity (0: the rate's tokens).
 * Returns NULL, or what was expected as a constant string.
 */
const char *ngx_ratelimit_rule_rate(const ngx_str_t *text, uint64_t capacity,
    ngx_ratelimit_rate_t *rate);

/* The rule of that id, or NULL. */
ngx_ratelimit_rule_t *ngx_ratelimit_limiter_rule(
    ngx_ratelimit_limiter_t *limiter, const ngx_str_t *id);

/*
 * Completes a limiter when all of its rules and its Redis are known: numbers
 * the distinct keys, names each rule's counters. A counter's name depends on
 * the zone, the rule's id and its key as written, so none of them, changed,
 * reads another's counters. Returns NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_ratelimit_limiter_prepare(ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool);

/*
 * Whether a rule is for this request: a method bit, the decoded path. Returns
 * 1 or 0; 1 also where the regex failed (logged): no path evades its limit.
 */
ngx_uint_t ngx_ratelimit_rule_match(const ngx_ratelimit_rule_t *rule,
    ngx_uint_t method, ngx_str_t *path, ngx_log_t *log);

#endif /* NGX_RATELIMIT_RULE_H_INCLUDED */

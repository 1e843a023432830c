/*
 * The selection of one request's rules, and its two parts: who the client is,
 * and what a rule allows.
 */

#ifndef NGX_HTTP_RATELIMIT_SELECT_H_INCLUDED
#define NGX_HTTP_RATELIMIT_SELECT_H_INCLUDED

#include "ngx_http_ratelimit_key.h"
#include "ngx_http_ratelimit_request.h"

/* matching rules of a path that need no allocation */
#define NGX_HTTP_RATELIMIT_FOUND  64

/* State of the selection of one request's rules. */
typedef struct {
    ngx_http_request_t            *request;
    ngx_http_ratelimit_ctx_t      *ctx;
    ngx_ratelimit_limiter_t       *limiter;
    ngx_ratelimit_policy_t        *policy;
    ngx_http_ratelimit_report_t   *report;     /* NULL: nobody asks */
    ngx_ratelimit_match_e          match;      /* of the last rule */
    ngx_uint_t                     grouped;    /* rules replace each other */
    ngx_uint_t                     found;      /* the rule, by its path */
    ngx_http_ratelimit_limit_t    *of;         /* what the location says */

    /* where a policy needs them */
    ngx_str_t                      tier;       /* by the location */
    ngx_ratelimit_subject_t        subject;
    ngx_ratelimit_rule_t          *rules[NGX_HTTP_RATELIMIT_FOUND];
} ngx_http_ratelimit_selection_t;


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/* select_client.c: who the client is, and which lists have it. */

/*
 * Before any zone counts the request. NGX_ABORT: its token is not valid. A dry
 * run lets it go on.
 */
ngx_int_t ngx_http_ratelimit_select_token(
    ngx_http_ratelimit_selection_t *s, ngx_http_ratelimit_loc_conf_t *conf);

/*
 * The API key and the address are only looked for where a policy asks for them.
 * NGX_ABORT: the request is denied.
 */
ngx_int_t ngx_http_ratelimit_select_subject(
    ngx_http_ratelimit_selection_t *s, ngx_http_ratelimit_loc_conf_t *conf);

/*
 * Whether the zone's list lets the request pass. NGX_DECLINED: it does not, and
 * the request's tier is known.
 */
ngx_int_t ngx_http_ratelimit_select_allowed(ngx_http_ratelimit_selection_t *s);

/*
 * Where a token has no claims, as it is not valid, the client's address is the
 * key: else a client that sends any such token had no limit.
 */
ngx_int_t ngx_http_ratelimit_select_anonymous(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule,
    ngx_str_t *key);


/* select_limit.c: what a rule allows the client, and what a request costs. */

/*
 * The limit of the rule, the tier or the API key, and what overrides it for a
 * time. NGX_DECLINED: there is none, so that the rule does not apply.
 */
ngx_int_t ngx_http_ratelimit_select_limit(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    const ngx_str_t *key, const ngx_ratelimit_limit_t **limit);

/*
 * The location's part of a leaky bucket. If a tier or an override is too slow
 * for the burst, the location has all of it.
 */
ngx_int_t ngx_http_ratelimit_select_part(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule,
    const ngx_ratelimit_limit_t **limit);

/*
 * Reads the cost from a variable. If that is empty or no number, the cost stays
 * as it is. One that is too large becomes the largest: nobody shall pay less by
 * asking for more.
 */
ngx_int_t ngx_http_ratelimit_select_cost(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    uint32_t *cost);

#pragma GCC visibility pop

#endif /* NGX_HTTP_RATELIMIT_SELECT_H_INCLUDED */

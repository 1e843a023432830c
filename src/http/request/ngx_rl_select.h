/*
 * The selection of one request's rules, and its two parts: who the client is,
 * and what a rule allows.
 */

#ifndef NGX_RL_SELECT_H_INCLUDED
#define NGX_RL_SELECT_H_INCLUDED

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"

/* matching rules of a path that need no allocation */
#define NGX_RL_FOUND  64

/* State of the selection of one request's rules. */
typedef struct {
    ngx_http_request_t       *request;
    ngx_rl_ctx_t             *ctx;
    ngx_rl_limiter_t         *limiter;
    ngx_rl_policy_t          *policy;
    ngx_rl_report_t          *report;  /* NULL: nobody asks */
    ngx_rl_match_e            match;   /* of the last rule, which does not
                                          apply */
    ngx_rl_location_limit_t  *of;      /* what the location says */
    ngx_uint_t                nfree;   /* rules of the zone that have no limit,
                                          and a group */
    ngx_rl_rule_t            *free[NGX_RL_MAX_COUNTERS];

    /* where a policy needs them */
    u_char           *listed;  /* ngx_rl_listed_e, by the location's limits;
                                  NULL: no list has the client */
    ngx_str_t         tier;    /* by the location */
    ngx_rl_subject_t  subject;
    ngx_rl_rule_t    *rules[NGX_RL_FOUND];
} ngx_rl_selection_t;


/* with one of these, who the client is matters beside the keys of rules */
#define NGX_RL_NEEDS_CLIENT                                                   \
    (NGX_RL_NEEDS_SUBJECT|NGX_RL_NEEDS_PENALTY                                \
     |NGX_RL_NEEDS_TOKEN|NGX_RL_NEEDS_REPORT)


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/* select_client.c: who the client is, and which lists have it. */

/*
 * Before any zone counts the request, where one of NEEDS_CLIENT is needed.
 * NGX_ABORT: its token is not valid, or a list denies it. NGX_BUSY: its token
 * is not valid, and it is penalized. A dry run lets it go on.
 */
ngx_int_t ngx_rl_select_begin(ngx_rl_selection_t *s);

/*
 * Before the zone of the location's limit of that number counts the request.
 * NGX_DECLINED: its list lets the request pass uncounted. NGX_BUSY: the request
 * is penalized.
 */
ngx_int_t ngx_rl_select_zone(ngx_rl_selection_t *s, ngx_uint_t number);

/*
 * Replaces the key by which the rule counts a client: by its address if its
 * token is not valid, by its network if that has brought too many keys.
 */
ngx_int_t ngx_rl_select_counted(ngx_rl_selection_t *s,
    const ngx_rl_rule_t *rule, ngx_rl_client_t *client);


/* select_limit.c: what a rule allows the client, and what a request costs. */

/*
 * The limit of the rule, the tier, the API key or the rule's key, and what
 * overrides it for a time; or the location's part of it. NGX_DECLINED: there is
 * none, or the key is not in the rule's share, so that the rule does not apply.
 */
ngx_int_t ngx_rl_select_limit(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    const ngx_str_t *key, const ngx_rl_limit_t **limit);

/*
 * Reads the cost from a variable. If that is empty or no number, the cost stays
 * as it is. One that is too large becomes the largest: nobody shall pay less by
 * asking for more.
 */
ngx_int_t ngx_rl_select_cost(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    uint32_t *cost);

#pragma GCC visibility pop

#endif /* NGX_RL_SELECT_H_INCLUDED */

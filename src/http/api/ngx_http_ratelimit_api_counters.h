/*
 * The counters that one request to "/counters" is about.
 */

#ifndef NGX_HTTP_RATELIMIT_API_COUNTERS_H_INCLUDED
#define NGX_HTTP_RATELIMIT_API_COUNTERS_H_INCLUDED

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_inspect.h"
#include "ngx_ratelimit_problem.h"
#include "ngx_ratelimit_subject.h"

/* A counter of the answer. */
typedef struct {
    ngx_ratelimit_rule_t               *rule;
    ngx_str_t                           tier;      /* of a location, or as the
                                                      query names it */
    ngx_ratelimit_subject_t             subject;
    const ngx_ratelimit_temporary_t    *temporary;
    ngx_ratelimit_limit_t               limit;
    ngx_ratelimit_listed_e              listed;    /* the key */
    const char                         *unknown;   /* that says its limit;
                                                      NULL: it is known */
    ngx_ratelimit_inspect_t             inspect;
} ngx_http_ratelimit_api_counter_t;

/* In the request's pool. */
typedef struct {
    ngx_http_ratelimit_api_t           *api;
    ngx_ratelimit_policy_t             *policy;    /* in use by this */
    ngx_uint_t                          one;       /* the query names a rule */
    ngx_str_t                           key;       /* its parts, joined */
    ngx_str_t                           address;   /* if it is one: in binary */
    ngx_uint_t                          ncounters;
    ngx_http_ratelimit_api_counter_t   *counters;
    ngx_uint_t                          more;      /* that are not there */
    ngx_uint_t                          pending;   /* answers of Redis */
    ngx_ratelimit_problems_t            problems;  /* of the change */
    ngx_str_t                           change;    /* to be logged; empty: it
                                                      is, or did not happen */
    ngx_ratelimit_record_t              record;    /* of the change */
} ngx_http_ratelimit_api_counters_t;


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * counter_change.c: what PATCH and DELETE ask of the one counter. NGX_DECLINED,
 * or the request is answered.
 */
ngx_int_t ngx_http_ratelimit_api_counter_change(
    ngx_http_ratelimit_api_counters_t *all);

/*
 * Logs the change, once: it is done, or, where made is 0, it may be. Its
 * request may be going.
 */
void ngx_http_ratelimit_api_counter_log(ngx_http_ratelimit_api_counters_t *all,
    ngx_uint_t made);

#pragma GCC visibility pop

#endif /* NGX_HTTP_RATELIMIT_API_COUNTERS_H_INCLUDED */

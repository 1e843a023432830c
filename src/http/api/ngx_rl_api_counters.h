/*
 * The counters that one request to "/counters" is about.
 */

#ifndef NGX_RL_API_COUNTERS_H_INCLUDED
#define NGX_RL_API_COUNTERS_H_INCLUDED

#include "ngx_rl_api.h"

#include "ngx_rl_inspect.h"
#include "ngx_rl_problem.h"
#include "ngx_rl_subject.h"

/* A counter of the answer. */
typedef struct {
    ngx_rl_rule_t             *rule;
    ngx_str_t                  tier;     /* of a location, or as the query names
                                            it */
    ngx_rl_subject_t           subject;
    const ngx_rl_temporary_t  *temporary;
    ngx_rl_limit_t             limit;
    ngx_rl_listed_e            listed;   /* the key */
    const char                *unknown;  /* that says its limit; NULL: it is
                                            known */
    ngx_rl_inspect_t           inspect;
} ngx_rl_api_counter_t;

/* In the request's pool. */
typedef struct {
    ngx_rl_api_t          *api;
    ngx_rl_policy_t       *policy;    /* in use by this */
    ngx_uint_t             one;       /* the query names a rule */
    ngx_str_t              key;       /* its parts, joined */
    ngx_str_t              address;   /* if it is one: in binary */
    ngx_uint_t             ncounters;
    ngx_rl_api_counter_t  *counters;
    ngx_uint_t             more;      /* that are not there */
    ngx_uint_t             pending;   /* answers of Redis */
    ngx_rl_problems_t      problems;  /* of the change */
    ngx_str_t              change;    /* to be logged; empty: it is, or did not
                                         happen */
    ngx_rl_record_t        record;    /* of the change */
} ngx_rl_api_counters_t;


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * counter_change.c: what PATCH and DELETE ask of the one counter. NGX_DECLINED,
 * or the request is answered.
 */
ngx_int_t ngx_rl_api_counter_change(ngx_rl_api_counters_t *all);

/*
 * Logs the change, once: it is done, or, where made is 0, it may be. Its
 * request may be going.
 */
void ngx_rl_api_counter_log(ngx_rl_api_counters_t *all, ngx_uint_t made);

#pragma GCC visibility pop

#endif /* NGX_RL_API_COUNTERS_H_INCLUDED */

/* The configurations, which the whole HTTP side shares. */

#ifndef NGX_RL_H_INCLUDED
#define NGX_RL_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_rl_guard.h"
#include "ngx_rl_value.h"

#include "ngx_rl_check.h"
#include "ngx_rl_tally.h"
#include "ngx_rl_param.h"
#include "ngx_rl_penalty.h"
#include "ngx_rl_subject.h"

/* sets of headers: bits */
#define NGX_RL_HEADERS_OFF     0
#define NGX_RL_HEADERS_X       0x01
#define NGX_RL_HEADERS_DRAFT3  0x02
#define NGX_RL_HEADERS_IETF    0x04
#define NGX_RL_HEADERS_KEEP    0x10   /* an upstream's others */

/* the body of a rejection */
#define NGX_RL_RESPONSE_OFF      0
#define NGX_RL_RESPONSE_JSON     1
#define NGX_RL_RESPONSE_PROBLEM  2

/* what becomes of a request with a bearer token that is not valid */
#define NGX_RL_JWT_ANONYMOUS  0
#define NGX_RL_JWT_REJECT     1

/* what a request needs beside its policies: by its location; to be explained;
   the status of its response, for a penalty */
#define NGX_RL_NEEDS_TOKEN   NGX_RL_NEEDS_ABOVE
#define NGX_RL_NEEDS_CLAIMS  (NGX_RL_NEEDS_ABOVE << 1)
#define NGX_RL_NEEDS_REPORT  (NGX_RL_NEEDS_ABOVE << 2)
#define NGX_RL_NEEDS_ONCE    (NGX_RL_NEEDS_ABOVE << 3)
#define NGX_RL_NEEDS_STATUS  (NGX_RL_NEEDS_ABOVE << 4)

/* where a location's requests are checked: bits */
#define NGX_RL_BEFORE_AUTH  0x01
#define NGX_RL_AFTER_AUTH   0x02


/* Where a directive stands, for errors found when all is read. */
typedef struct {
    ngx_str_t    file;
    ngx_uint_t   line;
} ngx_rl_conf_place_t;


/* One "ratelimit_zone". */
typedef struct {
    ngx_rl_limiter_t            limiter;
    ngx_rl_value_t              key;
    ngx_str_t                   redis;     /* its name; empty: none */
    ngx_http_core_main_conf_t  *core;      /* where variables are known */
    ngx_rl_conf_place_t         place;
    size_t                      size;      /* of its memory */
    unsigned                    used:1;    /* by a location */
    unsigned                    tiers:1;   /* of locations differ */
    ngx_rl_value_t             *tier;      /* of a location; NULL: none */
    ngx_str_t                   peers;     /* name of a block; empty: none */
} ngx_rl_zone_conf_t;


/* One "ratelimit_rule", or the rule of a "ratelimit_zone" itself. */
typedef struct {
    ngx_rl_draft_t       draft;     /* the rule, and what it says */
    ngx_rl_values_t      values;
    ngx_str_t            shared;    /* as written, what is of use with Redis
                                       alone; empty: nothing */
    ngx_rl_conf_place_t  place;
} ngx_rl_rule_conf_t;


/* One "ratelimit zone=". */
typedef struct {
    ngx_str_t             zone;
    ngx_str_t             rule_id;   /* empty: all rules of the zone */
    ngx_rl_conf_place_t   place;
    ngx_rl_spec_t         spec;      /* its own burst, delay, nodelay */
    unsigned              own:1;     /* it has one of them */
    unsigned              own_burst:1;
    unsigned              look:1;    /* its requests take nothing */

    ngx_rl_limiter_t  *limiter;   /* these when all is read */
    ngx_uint_t         number;    /* of the rule, in policy->fixed, or ALL */
    ngx_uint_t         narrows;   /* the rule that spec is for, in
                                     policy->fixed, or ALL */
    ngx_rl_limit_t     limit;     /* of that, unless it is dynamic */
    ngx_rl_value_t    *tier;      /* of a location; NULL: none */
    ngx_uint_t         tiers;     /* of its locations differ */
    ngx_uint_t         folds;     /* one of them has no template for
                                     each path */
    ngx_uint_t         fail_modes;  /* that they have: bits */
} ngx_rl_location_limit_t;

#define NGX_RL_ALL  ((ngx_uint_t) -1)


/* One "ratelimit_penalty". */
typedef struct {
    ngx_rl_penalty_t      penalty;
    ngx_str_t             zone;
    ngx_rl_value_t        key;       /* penalty.data */
    ngx_rl_conf_place_t   place;
} ngx_rl_penalty_conf_t;


/* "ratelimit_once" */
typedef struct {
    ngx_rl_value_t  *key;       /* NULL: off */
    ngx_int_t        time;      /* seconds */
} ngx_rl_once_conf_t;


/* A host name of a "ratelimit_redis" block. */
typedef struct {
    ngx_rl_redis_t       *redis;
    ngx_uint_t            host;      /* its place in redis->hosts */
    ngx_str_t             text;      /* "host[:port]" */
    ngx_rl_conf_place_t   place;
} ngx_rl_redis_name_t;


/* All "ratelimit_deny" or "ratelimit_allow" of a zone. */
typedef struct {
    ngx_str_t             zone;
    ngx_array_t           entries;   /* ngx_rl_known_t */
    ngx_rl_conf_place_t   place;     /* of the first */
    unsigned              deny:1;
} ngx_rl_access_conf_t;


typedef struct {
    ngx_array_t   lists;      /* ngx_rl_access_conf_t * */
    ngx_array_t   zones;      /* ngx_rl_zone_conf_t * */
    ngx_array_t   rules;      /* ngx_rl_rule_conf_t * */
    ngx_array_t   limits;     /* ngx_rl_location_limit_t *, of all places */
    ngx_array_t   redis;      /* ngx_rl_redis_t * */
    ngx_array_t   redis_names;  /* ngx_rl_redis_name_t */
    ngx_array_t   apis;       /* ngx_rl_api_conf_t * */
    ngx_array_t   penalties;  /* ngx_rl_penalty_conf_t * */
    ngx_array_t   sources;    /* ngx_rl_source_t *, of variables */
    ngx_uint_t   *held;       /* each worker's own: answers that penalties hold
                                 back */
    ngx_rl_log_limit_t  *logs;  /* each worker's own: of
                                    ngx_rl_log_e */
    ngx_array_t   jwt_keys;   /* ngx_rl_jwt_key_t *, whose files workers read
                                 again */
    ngx_event_t   jwt_tick;   /* each worker's own; cancelable */
    ngx_uint_t    phases;     /* in which locations check requests: bits */
    ngx_array_t   fleets;     /* ngx_rl_fleet_t * */
} ngx_rl_main_conf_t;


/* key.c, jwt_key.c, route.c: what their directives of a location have read */
typedef struct ngx_rl_jwt_key_s  ngx_rl_jwt_key_t;
typedef struct ngx_rl_routes_s   ngx_rl_routes_t;

typedef struct {
    ngx_array_t          *limits;     /* ngx_rl_location_limit_t *;
                                         empty: off */
    ngx_uint_t            exempt;     /* from those inherited */
    ngx_uint_t            limited;    /* there are, and not exempt */
    ngx_uint_t            checks;     /* phase, or 0: requests are neither
                                         limited nor explained */
    ngx_uint_t            needs;      /* bits */
    void                 *api;        /* ngx_rl_api_conf_t;
                                         NULL: no endpoint */
    ngx_rl_guard_t       *guard;      /* of the endpoint, or of the metrics;
                                         NULL: neither */
    ngx_rl_conf_place_t  *page;       /* where its status page is configured;
                                         NULL: none */
    ngx_uint_t            headers;    /* bits */
    ngx_uint_t            response;
    ngx_uint_t            status;
    ngx_uint_t            penalty_status;  /* UNSET: status */
    ngx_uint_t            retry_jitter;  /* percent of the wait */
    ngx_uint_t            close_after;   /* rejections; 0: never */
    ngx_uint_t            phase;
    ngx_uint_t            log_level;  /* of rejections */
    ngx_uint_t            fail_mode;  /* ngx_rl_fail_mode_e */
    ngx_flag_t            dry_run;
    ngx_rl_once_conf_t   *once;       /* NULL: as off */
    ngx_rl_value_t       *tier;       /* NULL: none */
    ngx_array_t          *explain;    /* ngx_rl_token_t; empty: off */
    ngx_array_t          *sources;    /* ngx_rl_source_t */
    ngx_rl_jwt_key_t     *jwt_key;
    ngx_uint_t            jwt_invalid;
    ngx_rl_routes_t      *routes;
    ngx_uint_t            prefix_v4;  /* bits of $ratelimit_client */
    ngx_uint_t            prefix_v6;
} ngx_rl_loc_conf_t;


/* its place among the modules is read without a table of addresses */
#pragma GCC visibility push(hidden)
extern ngx_module_t  ngx_http_ratelimit_module;
#pragma GCC visibility pop

#endif /* NGX_RL_H_INCLUDED */

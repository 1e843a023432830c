/*
 * What the HTTP side shares: the configurations, and the functions that read
 * and evaluate them.
 */

#ifndef NGX_HTTP_RATELIMIT_H_INCLUDED
#define NGX_HTTP_RATELIMIT_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_ratelimit_check.h"
#include "ngx_ratelimit_log_limit.h"
#include "ngx_ratelimit_param.h"
#include "ngx_ratelimit_subject.h"

/* sets of headers: bits */
#define NGX_HTTP_RATELIMIT_HEADERS_OFF     0
#define NGX_HTTP_RATELIMIT_HEADERS_X       0x01
#define NGX_HTTP_RATELIMIT_HEADERS_DRAFT3  0x02
#define NGX_HTTP_RATELIMIT_HEADERS_IETF    0x04

/* the body of a rejection */
#define NGX_HTTP_RATELIMIT_RESPONSE_OFF      0
#define NGX_HTTP_RATELIMIT_RESPONSE_JSON     1
#define NGX_HTTP_RATELIMIT_RESPONSE_PROBLEM  2

/* of a value in the error log: its bytes; and what they take at most */
#define NGX_HTTP_RATELIMIT_QUOTE        64
#define NGX_HTTP_RATELIMIT_QUOTE_BYTES                                        \
    (6 * NGX_HTTP_RATELIMIT_QUOTE + sizeof("..."))

/* where a location's requests are checked */
#define NGX_HTTP_RATELIMIT_BEFORE_AUTH  0
#define NGX_HTTP_RATELIMIT_AFTER_AUTH   1


/* A piece of a value that was made while nginx serves. */
typedef struct {
    ngx_str_t                  text;     /* literal; a variable's name */
    ngx_int_t                  index;    /* of the variable, or -1 */
    ngx_uint_t                 hash;     /* of its name */
    unsigned                   variable:1;
} ngx_http_ratelimit_piece_t;


/* A value with variables; one lone variable is read without a copy. */
typedef struct {
    ngx_int_t                    index;    /* of the lone variable, or -1 */
    ngx_uint_t                   npieces;  /* 0: it is the next one */
    ngx_http_ratelimit_piece_t  *pieces;
    ngx_http_complex_value_t     complex;
} ngx_http_ratelimit_value_t;


/* What a rule's parameters say with variables; a rule's data. */
typedef struct {
    ngx_http_ratelimit_value_t   key;      /* where it has no parts */
    ngx_uint_t                   nparts;   /* 0, or more than one */
    ngx_http_ratelimit_value_t  *parts;
    ngx_http_ratelimit_value_t  *limit;  /* "rate=" or "limit=", or NULL */
    ngx_http_ratelimit_value_t  *cost;   /* NULL where constant */
} ngx_http_ratelimit_values_t;


/* Where a directive stands, for errors found when all is read. */
typedef struct {
    ngx_str_t    file;
    ngx_uint_t   line;
} ngx_http_ratelimit_place_t;


/* One "ratelimit_zone". */
typedef struct {
    ngx_ratelimit_limiter_t      limiter;
    ngx_http_ratelimit_value_t   key;
    ngx_str_t                    redis;     /* its name; empty: none */
    ngx_http_core_main_conf_t   *core;      /* where variables are known */
    ngx_http_ratelimit_place_t   place;
    size_t                       size;      /* of its memory */
    unsigned                     used:1;    /* by a location */
    unsigned                     tiers:1;   /* of locations differ */
    ngx_http_ratelimit_value_t  *tier;      /* of a location; NULL: none */
} ngx_http_ratelimit_zone_t;


/* One "ratelimit_rule", or the rule of a "ratelimit_zone" itself. */
typedef struct {
    ngx_ratelimit_draft_t        draft;     /* the rule, and what it says */
    ngx_http_ratelimit_values_t  values;
    ngx_str_t                    shared;    /* as written, what is of use with
                                               Redis alone; empty: nothing */
    ngx_http_ratelimit_place_t   place;
} ngx_http_ratelimit_rule_t;


/* One "ratelimit zone=". */
typedef struct {
    ngx_str_t                    zone;
    ngx_str_t                    rule_id;   /* empty: all rules of the zone */
    ngx_http_ratelimit_place_t   place;

    ngx_ratelimit_limiter_t     *limiter;   /* these when all is read */
    ngx_uint_t                   number;    /* of the rule, in policy->fixed,
                                               or ALL */
    ngx_http_ratelimit_value_t  *tier;      /* of a location; NULL: none */
    ngx_uint_t                   tiers;     /* of its locations differ */
} ngx_http_ratelimit_limit_t;

#define NGX_HTTP_RATELIMIT_ALL  ((ngx_uint_t) -1)


/* A host name of a "ratelimit_redis" block. */
typedef struct {
    ngx_ratelimit_redis_t       *redis;
    ngx_uint_t                   host;      /* its place in redis->hosts */
    ngx_str_t                    text;      /* "host[:port]" */
    ngx_http_ratelimit_place_t   place;
} ngx_http_ratelimit_redis_name_t;


typedef struct {
    ngx_array_t   zones;      /* ngx_http_ratelimit_zone_t * */
    ngx_array_t   rules;      /* ngx_http_ratelimit_rule_t * */
    ngx_array_t   limits;     /* ngx_http_ratelimit_limit_t *, of all places */
    ngx_array_t   redis;      /* ngx_ratelimit_redis_t * */
    ngx_array_t   redis_names;  /* ngx_http_ratelimit_redis_name_t */
    ngx_array_t   apis;       /* ngx_http_ratelimit_api_conf_t * */
    ngx_ratelimit_log_limit_t  *logs;  /* each worker's own: of
                                           ngx_http_ratelimit_log_e */
    ngx_uint_t    access;     /* where ngx_http_access_module has its part of a
                                 location, or UNSET: it is not there */
} ngx_http_ratelimit_main_conf_t;


/* key.c, jwt_key.c, route.c: what their directives of a location have read */
typedef struct ngx_http_ratelimit_jwt_key_s  ngx_http_ratelimit_jwt_key_t;
typedef struct ngx_http_ratelimit_routes_s   ngx_http_ratelimit_routes_t;

typedef struct {
    ngx_array_t                   *limits;     /* ngx_http_ratelimit_limit_t *;
                                                  empty: off */
    ngx_uint_t                     exempt;     /* from those inherited */
    void                          *api;        /* ngx_http_ratelimit_api_conf_t;
                                                  NULL: no endpoint */
    ngx_uint_t                     headers;    /* bits */
    ngx_uint_t                     response;
    ngx_uint_t                     status;
    ngx_uint_t                     phase;
    ngx_uint_t                     log_level;  /* of rejections */
    ngx_uint_t                     fail_mode;  /* ngx_ratelimit_fail_mode_e */
    ngx_flag_t                     dry_run;
    ngx_http_ratelimit_value_t    *tier;       /* NULL: none */
    ngx_array_t                   *explain;    /* ngx_http_ratelimit_token_t;
                                                  empty: off */
    ngx_array_t                   *sources;    /* ngx_http_ratelimit_source_t */
    ngx_http_ratelimit_jwt_key_t  *jwt_key;
    ngx_http_ratelimit_routes_t   *routes;
    ngx_uint_t                     prefix_v4;  /* bits of $ratelimit_client */
    ngx_uint_t                     prefix_v6;
} ngx_http_ratelimit_loc_conf_t;


extern ngx_module_t  ngx_http_ratelimit_module;


/* value.c: compiles text; reads it at a request */
ngx_int_t ngx_http_ratelimit_value_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_value_t *value);
ngx_int_t ngx_http_ratelimit_value_get(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text);

/*
 * A rule's key at a request, where it has parts: they are joined. Empty: a part
 * is. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_http_ratelimit_values_key(ngx_http_request_t *r,
    ngx_http_ratelimit_values_t *values, ngx_str_t *key);

/*
 * values.c: what limiter->above has of a zone's rules, of which data is the
 * zone. See ngx_ratelimit_above_t.
 */
const char *ngx_http_ratelimit_values(void *data, ngx_ratelimit_rule_t *rule,
    const ngx_str_t *limit, const ngx_str_t *cost, ngx_pool_t *pool,
    ngx_uint_t *which);
void ngx_http_ratelimit_above(ngx_conf_t *cf, ngx_http_ratelimit_zone_t *zone);

/* rule_conf.c: the bit of a method; 0: none has that name */
ngx_uint_t ngx_http_ratelimit_method(const u_char *name, size_t len);

/*
 * A value for the error log, written to out, of NGX_HTTP_RATELIMIT_QUOTE_BYTES:
 * its beginning, with control characters and quotes as JSON writes them, so
 * that no client makes lines of its own there.
 */
ngx_str_t ngx_http_ratelimit_value_quote(const ngx_str_t *text, u_char *out);

/* zone_conf.c, rule_conf.c, redis_conf.c: the directives of these names */
char *ngx_http_ratelimit_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_ratelimit_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_ratelimit_redis(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * zone_conf.c: when all is read, of a zone that follows a document. Returns
 * NGX_OK or NGX_ERROR (logged).
 */
ngx_int_t ngx_http_ratelimit_zone_follow(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf, ngx_http_ratelimit_zone_t *zone);

/*
 * The parameters of a directive, "zone=" and so on, from the first-th argument
 * on; it is "ratelimit_zone", "ratelimit_rule", or "ratelimit", of which the
 * rule gets its zone and name alone. Returns NGX_OK or NGX_ERROR (logged).
 */
ngx_int_t ngx_http_ratelimit_rule_parameters(ngx_conf_t *cf,
    const char *directive, ngx_uint_t first, ngx_http_ratelimit_rule_t *rule);

/*
 * Whether the directive's first argument is a parameter already, where a key or
 * a name has to be: that is logged, too.
 */
ngx_uint_t ngx_http_ratelimit_rule_no_name(ngx_conf_t *cf,
    const char *directive, const char *what);

/*
 * Checks a rule when its parameters are all read, and enters it. cf->args
 * still are the directive's. Returns NGX_OK or NGX_ERROR (logged).
 */
ngx_int_t ngx_http_ratelimit_rule_enter(ngx_conf_t *cf,
    const char *directive, ngx_http_ratelimit_main_conf_t *conf,
    ngx_http_ratelimit_rule_t *rule);

/*
 * Warns of a key without a variable, unless it is "all". Without
 * one all clients have one counter.
 */
void ngx_http_ratelimit_key_warn(ngx_conf_t *cf, const char *directive,
    const ngx_str_t *key);

/*
 * hint_conf.c: collects the names that are known where a wrong one was found,
 * for the end of a message: 'did you mean "burst="?', or 'expected ' and all of
 * them. The text lives as long as the hint.
 */
typedef struct {
    ngx_str_t    wrong;
    ngx_str_t    near;                        /* is like it; empty: none is */
    u_char      *p;                           /* the end of the list */
    u_char       list[NGX_MAX_CONF_ERRSTR];
    ngx_str_t    text;
    u_char       buf[NGX_MAX_CONF_ERRSTR];
} ngx_http_ratelimit_hint_t;

void ngx_http_ratelimit_hint_init(ngx_http_ratelimit_hint_t *hint,
    ngx_str_t *text);
void ngx_http_ratelimit_hint_add(ngx_http_ratelimit_hint_t *hint,
    const ngx_str_t *name);
ngx_str_t *ngx_http_ratelimit_hint_text(ngx_http_ratelimit_hint_t *hint,
    const char *expected);

/* The same with the names of all zones. */
ngx_str_t *ngx_http_ratelimit_hint_zones(ngx_http_ratelimit_hint_t *hint,
    ngx_http_ratelimit_main_conf_t *conf, ngx_str_t *name);

/* answer_conf.c: the directives that shape an answer */
char *ngx_http_ratelimit_set_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_ratelimit_set_enum(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_ratelimit_set_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* metrics.c: the directive of this name, which makes its location exempt */
char *ngx_http_ratelimit_metrics(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* limit_conf.c: the directives of a location that say what is limited, and
   what only the whole configuration tells */
char *ngx_http_ratelimit_limit(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Of a merged location: its limits know whether there is a tier. */
void ngx_http_ratelimit_limit_tiers(ngx_http_ratelimit_loc_conf_t *conf);

char *ngx_http_ratelimit_tier(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_ratelimit_resolve(ngx_conf_t *cf);
ngx_http_ratelimit_zone_t *ngx_http_ratelimit_zone_by_name(
    ngx_http_ratelimit_main_conf_t *conf, ngx_str_t *name);

ngx_uint_t ngx_http_ratelimit_equal(const ngx_str_t *one,
    const ngx_str_t *two);

/* The value of "name=value", or NULL where text is another parameter. */
ngx_str_t *ngx_http_ratelimit_parameter(ngx_str_t *text, const char *name,
    ngx_str_t *value);
void ngx_http_ratelimit_place(ngx_conf_t *cf,
    ngx_http_ratelimit_place_t *place);

#endif /* NGX_HTTP_RATELIMIT_H_INCLUDED */

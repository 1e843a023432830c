/*
 * What the HTTP side shares: configurations, the context of a request, and
 * the functions that the front door binds to nginx's hooks.
 */

#ifndef NGX_HTTP_RATELIMIT_H_INCLUDED
#define NGX_HTTP_RATELIMIT_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_ratelimit_check.h"

#define NGX_HTTP_RATELIMIT_HEADERS_OFF  0
#define NGX_HTTP_RATELIMIT_HEADERS_X    1


/* A value with variables; one lone variable is read without a copy. */
typedef struct {
    ngx_int_t                  index;    /* of the lone variable, or -1 */
    ngx_http_complex_value_t   complex;
} ngx_http_ratelimit_value_t;


/* What a rule's parameters say with variables; a rule's data. */
typedef struct {
    ngx_http_ratelimit_value_t   key;
    ngx_http_ratelimit_value_t  *rate;   /* NULL where constant: */
    ngx_str_t                    rate_text;
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
    ngx_http_ratelimit_place_t   place;
} ngx_http_ratelimit_zone_t;


/* One "ratelimit_rule", or the rule of a "ratelimit_zone" itself. */
typedef struct {
    ngx_ratelimit_rule_t         rule;
    ngx_http_ratelimit_values_t  values;
    ngx_str_t                    zone;
    ngx_uint_t                   seen;      /* bits of parameters read */
    ngx_http_ratelimit_place_t   place;
} ngx_http_ratelimit_rule_t;


/* One "ratelimit zone=". */
typedef struct {
    ngx_str_t                    zone;
    ngx_str_t                    rule_id;   /* empty: all rules of the zone */
    ngx_http_ratelimit_place_t   place;

    ngx_ratelimit_limiter_t     *limiter;   /* these two when all is read */
    ngx_ratelimit_rule_t        *rule;
} ngx_http_ratelimit_limit_t;


typedef struct {
    ngx_array_t   zones;      /* ngx_http_ratelimit_zone_t * */
    ngx_array_t   rules;      /* ngx_http_ratelimit_rule_t * */
    ngx_array_t   limits;     /* ngx_http_ratelimit_limit_t *, of all places */
    ngx_array_t   redis;      /* ngx_ratelimit_redis_t * */
} ngx_http_ratelimit_main_conf_t;


typedef struct {
    ngx_array_t  *limits;     /* ngx_http_ratelimit_limit_t *; empty: off */
    ngx_uint_t    headers;
    ngx_uint_t    status;
    ngx_array_t  *sources;    /* ngx_http_ratelimit_source_t */
} ngx_http_ratelimit_loc_conf_t;


/*
 * One of a request, made by its first limited location. It lives in a pool
 * cleanup, where it is found again after an internal redirect.
 */
typedef struct {
    ngx_http_request_t             *request;
    ngx_http_ratelimit_loc_conf_t  *conf;      /* of the deciding location */
    ngx_str_t                       path;      /* that was checked */
    ngx_ratelimit_check_t           check;
    uint64_t                        decided_ms; /* since the epoch */
    unsigned                        waiting:1; /* for Redis */
    unsigned                        answered:1;
} ngx_http_ratelimit_ctx_t;


extern ngx_module_t  ngx_http_ratelimit_module;


/* access.c: the request's way */
ngx_int_t ngx_http_ratelimit_access_handler(ngx_http_request_t *r);
ngx_http_ratelimit_ctx_t *ngx_http_ratelimit_ctx(ngx_http_request_t *r);

/*
 * Of an answered context whose status is not BYPASSED. Seconds to wait after
 * a rejection, rounded up (-1: no retry heals it); the Unix time, in seconds,
 * rounded up, at which the strictest counter equals a fresh one.
 */
ngx_int_t ngx_http_ratelimit_retry_after(ngx_http_ratelimit_ctx_t *ctx);
time_t ngx_http_ratelimit_reset(ngx_http_ratelimit_ctx_t *ctx);

/*
 * select.c: fills the check with the counters of the rules that match.
 * Returns NGX_OK or NGX_ERROR (out of memory).
 */
ngx_int_t ngx_http_ratelimit_select(ngx_http_request_t *r,
    ngx_http_ratelimit_loc_conf_t *conf, ngx_ratelimit_check_t *check);

/* answer.c: ends a rejected request; always NGX_DONE */
ngx_int_t ngx_http_ratelimit_reject(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);

/* headers.c */
ngx_int_t ngx_http_ratelimit_headers_init(ngx_conf_t *cf);

/* variables.c */
ngx_int_t ngx_http_ratelimit_add_variables(ngx_conf_t *cf);

/* value.c: compiles text; reads it at a request */
ngx_int_t ngx_http_ratelimit_value_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_value_t *value);
ngx_int_t ngx_http_ratelimit_value_get(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text);

/* key.c: $ratelimit_api_key and where it comes from */
char *ngx_http_ratelimit_api_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_ratelimit_api_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/* zone_conf.c, rule_conf.c, redis_conf.c: the directives of these names */
char *ngx_http_ratelimit_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_ratelimit_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_ratelimit_redis(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * One parameter of a rule, "rate=" and so on; directive is "ratelimit_zone"
 * or "ratelimit_rule". Returns NGX_OK, NGX_DECLINED when the directive has no
 * such parameter, or NGX_ERROR (logged).
 */
ngx_int_t ngx_http_ratelimit_rule_parameter(ngx_conf_t *cf,
    const char *directive, ngx_str_t *text, ngx_http_ratelimit_rule_t *rule);

/*
 * Checks a rule when its parameters are all read, and enters it. Returns
 * NGX_OK or NGX_ERROR (logged).
 */
ngx_int_t ngx_http_ratelimit_rule_enter(ngx_conf_t *cf,
    const char *directive, ngx_http_ratelimit_main_conf_t *conf,
    ngx_http_ratelimit_rule_t *rule);

/* limit_conf.c: the directives of a location, and what only the whole
   configuration tells */
char *ngx_http_ratelimit_limit(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_ratelimit_set_headers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_ratelimit_set_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_ratelimit_resolve(ngx_conf_t *cf);

/* The value of "name=value", or NULL where text is another parameter. */
ngx_str_t *ngx_http_ratelimit_parameter(ngx_str_t *text, const char *name,
    ngx_str_t *value);
void ngx_http_ratelimit_place(ngx_conf_t *cf,
    ngx_http_ratelimit_place_t *place);

#endif /* NGX_HTTP_RATELIMIT_H_INCLUDED */

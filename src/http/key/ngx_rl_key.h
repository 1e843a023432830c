/*
 * The keys of a request: its API key and the sources of that, the claims of
 * its token, its address, its route.
 */

#ifndef NGX_RL_KEY_H_INCLUDED
#define NGX_RL_KEY_H_INCLUDED

#include "ngx_rl_http.h"

/* NGX_OK and a key of 1 byte or more, NGX_DECLINED, or NGX_ERROR (memory) */
typedef ngx_int_t (*ngx_rl_source_pt)(ngx_http_request_t *r,
    const ngx_rl_source_t *source, ngx_str_t *key);

struct ngx_rl_source_s {
    ngx_rl_source_pt     get;
    ngx_str_t            name;    /* a header's in lower case; ends with a zero
                                     byte */
    const char          *mark;    /* before each key; NULL: none */
    unsigned             jwt:1;
    unsigned             loose:1; /* see source_make() */
    unsigned             made:1;  /* another module makes the variable, with
                                     its name: */
    ngx_str_t            variable;
    ngx_rl_conf_place_t  place;
};


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * A source of a variable, "$http_name", "$arg_name" or "$cookie_name": it is
 * read like the others. In the name of a header, "_" is "-", too. An argument
 * or a cookie of exactly this name comes before one in another case. NULL:
 * memory is out.
 */
typedef enum {
    NGX_RL_SOURCE_HEADER = 0,
    NGX_RL_SOURCE_ARG,
    NGX_RL_SOURCE_COOKIE
} ngx_rl_key_source_e;

ngx_rl_source_t *ngx_rl_source_make(ngx_pool_t *pool, ngx_rl_key_source_e kind,
    const ngx_str_t *name);

/* Drops the blanks around a value. Returns whether anything is left. */
ngx_uint_t ngx_rl_source_trim(ngx_str_t *text);

/* The bearer token: NGX_OK, or NGX_DECLINED. */
ngx_int_t ngx_rl_source_token(ngx_http_request_t *r, ngx_str_t *token);

/* The sources that a location has unless told otherwise. */
extern ngx_array_t  ngx_rl_default_sources;


/* key.c: $ratelimit_api_key and where it comes from */
char *ngx_rl_api_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_rl_api_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/*
 * The same without a variable. Returns NGX_OK, NGX_DECLINED: the request has
 * none, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_api_key_text(ngx_http_request_t *r, ngx_str_t *key);

/*
 * Makes of any rule's key its name in documents, logs and answers: "sha256:"
 * and its SHA-256, unless the key is such a name, see value_hashed() of the
 * policy. So it can be put on a list. written: the key as the rule has it;
 * NULL: it is $ratelimit_api_key. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_key_name(ngx_http_request_t *r, const ngx_str_t *written,
    ngx_str_t *key);

/*
 * Called for a merged location: a "jwt:" source needs a key. Returns
 * NGX_CONF_OK or NGX_CONF_ERROR (logged).
 */
char *ngx_rl_api_key_check(ngx_conf_t *cf, ngx_rl_loc_conf_t *prev,
    ngx_rl_loc_conf_t *conf);


/* jwt_key.c */
char *ngx_rl_jwt_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/*
 * In a worker: from now on it reads files that have changed, once a second.
 * The timer ends with the configuration.
 */
void ngx_rl_jwt_key_begin(ngx_rl_main_conf_t *conf, ngx_log_t *log);

/*
 * jwt.c: the claim of the request's bearer token that a source names, as text.
 * Returns NGX_OK and the claim, of 1 byte or more, NGX_DECLINED where it is no
 * string and no integer or the token is not valid, or NGX_ERROR (out of
 * memory).
 */
ngx_int_t ngx_rl_jwt_claim(ngx_http_request_t *r,
    const ngx_rl_source_t *source, ngx_str_t *claim);

/*
 * jwt.c: NGX_ABORT: the request has a bearer token that the location's key does
 * not verify; reason says why. NGX_OK: it has none, or a valid one. NGX_ERROR:
 * memory is out.
 */
ngx_int_t ngx_rl_jwt_invalid(ngx_http_request_t *r, const char **reason);

/* jwt.c: the variables of all claims; data is the whole name */
#define NGX_RL_JWT_PREFIX  "ratelimit_jwt_"

ngx_int_t ngx_rl_jwt_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/* client.c, route.c: the directives and variables of these names */
char *ngx_rl_client_prefix(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_rl_client_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
char *ngx_rl_route_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/*
 * How servers may read the request's path. NGX_ERROR: memory is out. They last
 * as long as the request.
 */
ngx_int_t ngx_rl_route_readings(ngx_http_request_t *r,
    ngx_rl_readings_t *readings);

/* Whether a path may match none of the templates; NULL: there are none. */
ngx_uint_t ngx_rl_route_folds(const ngx_rl_routes_t *routes);
ngx_int_t ngx_rl_route_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

/* The client's address; 0: it has none, as the socket is one of a path. */
ngx_uint_t ngx_rl_client_address(ngx_http_request_t *r,
    u_char address[NGX_RL_ADDRESS]);

/*
 * The client's network of so many bits as a key: see NGX_RL_NETWORK_KEY.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_client_key(ngx_http_request_t *r, ngx_uint_t v4, ngx_uint_t v6,
    ngx_str_t *key);

/* Sets a variable. */
static ngx_inline ngx_int_t
ngx_rl_variable_set(ngx_http_variable_value_t *v, u_char *data, size_t len)
{
    v->len = len;
    v->data = data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}

#pragma GCC visibility pop

#endif /* NGX_RL_KEY_H_INCLUDED */

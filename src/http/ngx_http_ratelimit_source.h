/*
 * The sources of $ratelimit_api_key: what key.c and jwt.c know of each other's.
 */

#ifndef NGX_HTTP_RATELIMIT_SOURCE_H_INCLUDED
#define NGX_HTTP_RATELIMIT_SOURCE_H_INCLUDED

#include "ngx_http_ratelimit.h"

typedef struct ngx_http_ratelimit_source_s  ngx_http_ratelimit_source_t;

/* NGX_OK and a key of 1 byte or more, NGX_DECLINED, or NGX_ERROR (memory) */
typedef ngx_int_t (*ngx_http_ratelimit_source_pt)(ngx_http_request_t *r,
    const ngx_http_ratelimit_source_t *source, ngx_str_t *key);

struct ngx_http_ratelimit_source_s {
    ngx_http_ratelimit_source_pt  get;
    ngx_str_t                     name;    /* a header's in lower case; ends
                                              with a zero byte */
    unsigned                      jwt:1;
    ngx_http_ratelimit_place_t    place;
};


/*
 * source.c: reads "header:X-API-Key" and the like. Returns NGX_OK, or
 * NGX_DECLINED when there is no such source.
 */
ngx_int_t ngx_http_ratelimit_source_parse(ngx_str_t *text,
    ngx_http_ratelimit_source_t *source);

/* The first source, of those that a request has unless told otherwise. */
const ngx_http_ratelimit_source_t *ngx_http_ratelimit_source_default(
    ngx_uint_t *n);

/*
 * The token of the first "Authorization: Bearer" that has one: NGX_OK or
 * NGX_DECLINED.
 */
ngx_int_t ngx_http_ratelimit_source_token(ngx_http_request_t *r,
    ngx_str_t *token);

#endif /* NGX_HTTP_RATELIMIT_SOURCE_H_INCLUDED */

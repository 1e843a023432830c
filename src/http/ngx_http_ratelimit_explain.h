/*
 * "ratelimit_explain": a request that is explained in place of its check.
 */

#ifndef NGX_HTTP_RATELIMIT_EXPLAIN_H_INCLUDED
#define NGX_HTTP_RATELIMIT_EXPLAIN_H_INCLUDED

#include "ngx_http_ratelimit.h"

/* Whether the request has the header with one of the tokens. */
ngx_uint_t ngx_http_ratelimit_explain_wanted(ngx_http_request_t *r,
    const ngx_array_t *tokens);

/*
 * Explains the request by the limits of its context. NGX_OK: send() may follow.
 * NGX_AGAIN: Redis is asked, and the handler of ctx->check will be called once.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_http_ratelimit_explain_start(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);

/* Answers the request with the explanation and ends it: always NGX_DONE. */
ngx_int_t ngx_http_ratelimit_explain_answer(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);

/* Of a request in a location without limits: that is its explanation. */
void ngx_http_ratelimit_explain_later(ngx_http_request_t *r);

#endif /* NGX_HTTP_RATELIMIT_EXPLAIN_H_INCLUDED */

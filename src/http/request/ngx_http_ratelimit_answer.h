/*
 * The answer to a rejected request: answer.c, body.c and headers.c share this.
 */

#ifndef NGX_HTTP_RATELIMIT_ANSWER_H_INCLUDED
#define NGX_HTTP_RATELIMIT_ANSWER_H_INCLUDED

#include "ngx_http_ratelimit_request.h"

#include "ngx_ratelimit_text.h"

/* the headers that we write */
typedef enum {
    NGX_HTTP_RATELIMIT_X_LIMIT = 0,
    NGX_HTTP_RATELIMIT_X_REMAINING,
    NGX_HTTP_RATELIMIT_X_RESET,
    NGX_HTTP_RATELIMIT_X_POLICY,
    NGX_HTTP_RATELIMIT_LIMIT,
    NGX_HTTP_RATELIMIT_REMAINING,
    NGX_HTTP_RATELIMIT_RESET,
    NGX_HTTP_RATELIMIT_POLICY,
    NGX_HTTP_RATELIMIT_LEFT,
    NGX_HTTP_RATELIMIT_RETRY_AFTER,
    NGX_HTTP_RATELIMIT_GRPC_STATUS,
    NGX_HTTP_RATELIMIT_GRPC_MESSAGE,
    NGX_HTTP_RATELIMIT_NAMES
} ngx_http_ratelimit_name_e;

/* the most that a message takes */
#define NGX_HTTP_RATELIMIT_MESSAGE_BYTES                                      \
    (sizeof("Rate limit of  concurrent-requests in  exceeded")                \
     + NGX_INT64_LEN + NGX_RATELIMIT_SPAN_BYTES)

/*
 * Whether a counter has been asked, and it is known what is left. A counter
 * that stands in for Redis knows only when nothing is left.
 */
#define ngx_http_ratelimit_has_answer(counter)                                \
    ((counter)->source == NGX_RATELIMIT_SOURCE_LOCAL                          \
     || (counter)->source == NGX_RATELIMIT_SOURCE_LEASE                       \
     || (counter)->source == NGX_RATELIMIT_SOURCE_REDIS                       \
     || ((counter)->answer.retry_us                                           \
         && !ngx_ratelimit_counter_unavailable(counter)))

/* whether a counter is why a request was rejected, or one of the reasons */
#define ngx_http_ratelimit_denies(counter)                                    \
    (!(counter)->dry_run && ngx_http_ratelimit_has_answer(counter)            \
     && (counter)->answer.retry_us)


/*
 * Writes "Rate limit of 5 requests in 1 minute exceeded" to p, which holds
 * NGX_HTTP_RATELIMIT_MESSAGE_BYTES, and returns its end. No counter: of a
 * request that is denied. It is letters, digits and blanks: no format needs an
 * escape.
 */
u_char *ngx_http_ratelimit_message(u_char *p,
    const ngx_ratelimit_counter_t *counter);

/*
 * headers.c: writes the name of a counter's rule, quoted, to p, which holds
 * ngx_http_ratelimit_name_bytes() and 2 more, and returns its end. The zone
 * stands before the name of two zones' rules: "zone/rule".
 */
u_char *ngx_http_ratelimit_put_name(u_char *p,
    const ngx_ratelimit_check_t *check, const ngx_ratelimit_counter_t *counter);

#define ngx_http_ratelimit_name_bytes(counter)                                \
    ((counter)->client->limiter->zone.name.len + sizeof("/") - 1              \
     + (counter)->rule->id.len)

/* body.c: the status of the answer to a request that does not pass */
ngx_uint_t ngx_http_ratelimit_refused_status(
    const ngx_http_ratelimit_ctx_t *ctx);

/*
 * The two bodies, of a check that was refused. Return NGX_OK, or NGX_ERROR
 * when memory is out.
 */
ngx_int_t ngx_http_ratelimit_json(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_str_t *body);
ngx_int_t ngx_http_ratelimit_problem(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_str_t *body);

/*
 * headers.c: adds one to the response; the value stays as long as the request.
 * Returns NGX_OK, or NGX_ERROR when memory is out, which callers may combine
 * by "|".
 */
ngx_int_t ngx_http_ratelimit_add_header(ngx_http_request_t *r,
    ngx_http_ratelimit_name_e name, u_char *value, size_t len);

#endif /* NGX_HTTP_RATELIMIT_ANSWER_H_INCLUDED */

/*
 * JSON that is sent to a client. jansson's own header is not needed here.
 */

#ifndef NGX_HTTP_RATELIMIT_JSON_H_INCLUDED
#define NGX_HTTP_RATELIMIT_JSON_H_INCLUDED

#include "ngx_ratelimit_inspect.h"

struct json_t;

/*
 * The text as a JSON string, with "?" for bytes that are no UTF-8. NULL:
 * memory is out.
 */
struct json_t *ngx_http_ratelimit_json_text(const ngx_str_t *text);

#define NGX_HTTP_RATELIMIT_JSON_TIME  (sizeof("2026-11-20T22:22:04.000Z") + 8)

/* RFC 3339 in UTC, with milliseconds; returns the end. */
u_char *ngx_http_ratelimit_json_time(u_char *p, uint64_t time_ms);

/*
 * Sets the limit, the window and the tokens left of a counter that was
 * inspected. If Redis has no answer, "unknown" says why. NGX_ERROR: memory is
 * out.
 */
ngx_int_t ngx_http_ratelimit_json_counter(struct json_t *json,
    const ngx_ratelimit_inspect_t *inspect);

/*
 * Writes json to text, in the pool, with a line end, and frees json. NGX_ERROR:
 * memory is out, or json is NULL.
 */
ngx_int_t ngx_http_ratelimit_json_dump(ngx_pool_t *pool, struct json_t *json,
    ngx_str_t *text);

#endif /* NGX_HTTP_RATELIMIT_JSON_H_INCLUDED */

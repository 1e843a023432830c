/*
 * What a response says of the request's cost: "cost_header=" names a header
 * of the upstream that bears it, "count_status=" the statuses that count.
 */

#include "ngx_http_ratelimit.h"


void
ngx_http_ratelimit_settle(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ctx->settled = 1;
}

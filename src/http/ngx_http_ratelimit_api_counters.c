/*
 * "/counters": what is left of one counter, and its reset on all nodes.
 */

#include "ngx_http_ratelimit_api.h"


ngx_int_t
ngx_http_ratelimit_api_counters(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_IMPLEMENTED,
                                          "not-implemented",
                                          "not there yet");
}

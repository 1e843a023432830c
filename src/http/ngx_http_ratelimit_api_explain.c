/*
 * "/explain": which rules would meet a request, and what is left; nothing is
 * taken.
 */

#include "ngx_http_ratelimit_api.h"


ngx_int_t
ngx_http_ratelimit_api_explain(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_IMPLEMENTED,
                                          "not-implemented",
                                          "not there yet");
}

/*
 * $ratelimit_client: the client's address, by its network.
 */

#include "ngx_http_ratelimit.h"


char *
ngx_http_ratelimit_client_prefix(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    return "is not there";
}


ngx_int_t
ngx_http_ratelimit_client_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    v->not_found = 1;

    return NGX_OK;
}

/*
 * Claims of a bearer token (JWT, RFC 7519).
 */

#include "ngx_http_ratelimit.h"


char *
ngx_http_ratelimit_jwt_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    return "is not there";
}

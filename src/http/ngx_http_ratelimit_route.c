/*
 * $ratelimit_route, and the templates that name a location's routes.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_route.h"


char *
ngx_http_ratelimit_route(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    return "is not there";
}


ngx_int_t
ngx_http_ratelimit_route_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                    *p;
    ngx_str_t                 *path;
    ngx_http_ratelimit_ctx_t  *ctx;

    /* after an internal redirect it is still the route that was checked */

    ctx = ngx_http_ratelimit_ctx(r->main);
    path = ctx ? &ctx->path : &r->uri;

    p = ngx_pnalloc(r->pool, NGX_RATELIMIT_ROUTE_BYTES(path->len));
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_ratelimit_route_fold(path->data, path->len, p);
    v->data = p;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}

/*
 * Access to the endpoint: the guard of its location, and who may change.
 */

#include "ngx_rl_api.h"


void
ngx_rl_api_guard(ngx_rl_api_t *api)
{
    ngx_int_t  rc;

    rc = ngx_rl_guard(api->request, &api->conf->guard,
                      &api->token, &api->refused);

    api->trusted = (rc == NGX_OK);
    api->forbidden = (rc == NGX_HTTP_FORBIDDEN);
}


ngx_uint_t
ngx_rl_api_challenge(ngx_rl_api_t *api)
{
    if (api->forbidden) {
        return NGX_HTTP_FORBIDDEN;
    }

    ngx_rl_api_header(api, "WWW-Authenticate", NGX_RL_GUARD_CHALLENGE);

    return NGX_HTTP_UNAUTHORIZED;
}


static ngx_int_t
ngx_rl_api_refuse(ngx_rl_api_t *api, ngx_uint_t status, const char *type,
    const char *why)
{
    ngx_rl_guard_log(api->request, why);

    return ngx_rl_api_problem(api, status, type, "%s", why);
}


ngx_int_t
ngx_rl_api_authorized(ngx_rl_api_t *api)
{
    ngx_uint_t  status;

    if (api->refused == NULL
        || (api->refused == ngx_rl_guard_checks
            && (api->route->flags & NGX_RL_API_CHECKS)))
    {
        return NGX_DECLINED;
    }

    status = ngx_rl_api_challenge(api);

    return ngx_rl_api_refuse(api, status,
                             api->forbidden ? "forbidden" : "unauthorized",
                             api->refused);
}


/* For methods that may change something, and for each POST. */
ngx_int_t
ngx_rl_api_guard_write(ngx_rl_api_t *api)
{
    if ((api->route->flags & NGX_RL_API_READS)
        || api->refused == ngx_rl_guard_checks)
    {
        return NGX_DECLINED;
    }

    if (!api->conf->write) {
        return ngx_rl_api_refuse(api, NGX_HTTP_FORBIDDEN,
                   "read-only", "this location only reads: its "
                   "\"ratelimit_api\" has no \"write\"");
    }

    if (!api->trusted) {
        return ngx_rl_api_refuse(api, NGX_HTTP_FORBIDDEN,
                   "forbidden", "a change needs a client certificate that the "
                   "server has verified");
    }

    return NGX_DECLINED;
}

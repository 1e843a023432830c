/*
 * The directives that shape an answer: its headers, its body, its status.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_text.h"


/* ratelimit_headers x | off */
char *
ngx_http_ratelimit_set_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_loc_conf_t *rlcf = conf;

    ngx_str_t         *value;

    static ngx_str_t   x = ngx_string("x"), off = ngx_string("off");

    if (rlcf->headers != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_ratelimit_equal(&value[1], &x)) {
        rlcf->headers = NGX_HTTP_RATELIMIT_HEADERS_X;
        return NGX_CONF_OK;
    }

    if (ngx_http_ratelimit_equal(&value[1], &off)) {
        rlcf->headers = NGX_HTTP_RATELIMIT_HEADERS_OFF;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ratelimit_headers\" has an invalid \"%V\", "
                       "expected \"x\" or \"off\"", &value[1]);

    return NGX_CONF_ERROR;
}


/* ratelimit_status <status> */
char *
ngx_http_ratelimit_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_loc_conf_t *rlcf = conf;

    uint64_t    status;
    ngx_str_t  *value;

    if (rlcf->status != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_ratelimit_number_parse(value[1].data, value[1].len, 400, 599,
                                   &status)
        != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_status\" has an invalid \"%V\", "
                           "expected a status from 400 to 599", &value[1]);
        return NGX_CONF_ERROR;
    }

    rlcf->status = status;

    return NGX_CONF_OK;
}


char *
ngx_http_ratelimit_set_response(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    return "is not there";
}

/*
 * The "tls" lines of a "ratelimit_redis" block.
 */

#include "ngx_http_ratelimit_redis_conf.h"


static char *ngx_http_ratelimit_redis_tls_text(ngx_conf_t *cf,
    ngx_str_t *text);
static char *ngx_http_ratelimit_redis_tls_stray(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const char *has, const char *expected);
static char *ngx_http_ratelimit_redis_tls_names(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);


char *
ngx_http_ratelimit_redis_tls(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis)
{
    ngx_str_t  *value;

    if (redis->tls.on != NGX_CONF_UNSET) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "on") == 0) {
        redis->tls.on = 1;

    } else if (ngx_strcmp(value[1].data, "off") == 0) {
        redis->tls.on = 0;

    } else {
        return ngx_http_ratelimit_redis_invalid(cf, "\"on\" or \"off\"");
    }

    return NGX_CONF_OK;
}


char *
ngx_http_ratelimit_redis_tls_ca(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis)
{
    return ngx_http_ratelimit_redis_tls_text(cf, &redis->tls.ca);
}


char *
ngx_http_ratelimit_redis_tls_name(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    if (value[1].len > NGX_RATELIMIT_REDIS_MAX_HOST) {
        return ngx_http_ratelimit_redis_invalid(cf,
                                                "at most 255 characters");
    }

    return ngx_http_ratelimit_redis_tls_text(cf, &redis->tls.name);
}


char *
ngx_http_ratelimit_redis_tls_certificate(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return ngx_http_ratelimit_redis_tls_text(cf, &redis->tls.certificate);
}


char *
ngx_http_ratelimit_redis_tls_certificate_key(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return ngx_http_ratelimit_redis_tls_text(cf, &redis->tls.key);
}


static char *
ngx_http_ratelimit_redis_tls_text(ngx_conf_t *cf, ngx_str_t *text)
{
    ngx_str_t  *value;

    if (text->len) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return ngx_http_ratelimit_redis_invalid(cf, "a text");
    }

    *text = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_ratelimit_redis_tls_check(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    ngx_uint_t                  i;
    ngx_ratelimit_redis_tls_t  *tls;

    tls = &redis->tls;

    struct {
        const char             *name;
        ngx_str_t              *text;
    } lines[] = {
        { "tls_ca", &tls->ca },
        { "tls_name", &tls->name },
        { "tls_certificate", &tls->certificate },
        { "tls_certificate_key", &tls->key }
    };

    if (tls->on == NGX_CONF_UNSET) {
        tls->on = 0;
    }

    for (i = 0; i < 4 && !tls->on; i++) {
        if (lines[i].text->len) {
            return ngx_http_ratelimit_redis_tls_stray(cf, redis,
                                                lines[i].name, "tls on");
        }
    }

    if (tls->certificate.len && tls->key.len == 0) {
        return ngx_http_ratelimit_redis_tls_stray(cf, redis,
                                  "tls_certificate", "tls_certificate_key");
    }

    if (tls->key.len && tls->certificate.len == 0) {
        return ngx_http_ratelimit_redis_tls_stray(cf, redis,
                                  "tls_certificate_key", "tls_certificate");
    }

    if (tls->on && tls->name.len == 0
        && ngx_http_ratelimit_redis_tls_names(cf, redis) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return (ngx_ratelimit_redis_tls_prepare(cf, redis) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_ratelimit_redis_tls_stray(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const char *has, const char *expected)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ratelimit_redis\" \"%V\" has \"%s\", expected "
                       "\"%s\" with it", &redis->name, has, expected);

    return NGX_CONF_ERROR;
}


/* A path is no name that a certificate could be for. */
static char *
ngx_http_ratelimit_redis_tls_names(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    ngx_uint_t                   i;
    ngx_ratelimit_redis_host_t  *hosts;

    hosts = redis->hosts.elts;

    for (i = 0; i < redis->hosts.nelts; i++) {
        if (hosts[i].port == 0) {
            return ngx_http_ratelimit_redis_tls_stray(cf, redis,
                                                      "tls on\" and \"unix:",
                                                      "tls_name");
        }
    }

    return NGX_CONF_OK;
}

/*
 * The addresses of a "ratelimit_redis" block. Names are nginx's resolver's
 * while serving, where http {} has a "resolver"; else they are resolved once,
 * when all of the configuration is read.
 */

#include "ngx_http_ratelimit_redis_names.h"
#include "ngx_http_ratelimit_conf.h"

#define NGX_HTTP_RATELIMIT_REDIS_PORT              6379
#define NGX_HTTP_RATELIMIT_REDIS_SENTINEL_PORT     26379
#define NGX_HTTP_RATELIMIT_REDIS_RESOLVER_TIMEOUT  30000   /* as in nginx */


static char *ngx_http_ratelimit_redis_invalid_addr(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, ngx_str_t *text, const char *why);
static ngx_uint_t ngx_http_ratelimit_redis_is_name(const ngx_str_t *host);
static ngx_int_t ngx_http_ratelimit_redis_host(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, ngx_str_t *text, ngx_url_t *u);
static ngx_int_t ngx_http_ratelimit_redis_name(ngx_conf_t *cf,
    ngx_http_ratelimit_redis_name_t *name, ngx_uint_t resolver);

#define ngx_http_ratelimit_redis_port(redis)                                  \
    ((redis)->mode == NGX_RATELIMIT_REDIS_SENTINEL                            \
     ? NGX_HTTP_RATELIMIT_REDIS_SENTINEL_PORT : NGX_HTTP_RATELIMIT_REDIS_PORT)


char *
ngx_http_ratelimit_redis_addr(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    ngx_str_t *text)
{
    ngx_url_t                         u;
    ngx_http_ratelimit_redis_name_t  *name;
    ngx_http_ratelimit_main_conf_t   *conf;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *text;
    u.default_port = ngx_http_ratelimit_redis_port(redis);
    u.no_resolve = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        return ngx_http_ratelimit_redis_invalid_addr(cf, redis, text,
                                           u.err ? u.err : "invalid host");
    }

    if (u.host.len > NGX_RATELIMIT_REDIS_MAX_HOST) {
        return ngx_http_ratelimit_redis_invalid_addr(cf, redis, text,
                                                     "too long");
    }

    if (u.naddrs == 0 && !ngx_http_ratelimit_redis_is_name(&u.host)) {
        return ngx_http_ratelimit_redis_invalid_addr(cf, redis, text,
                                                     "invalid host");
    }

    if (ngx_http_ratelimit_redis_host(cf, redis, text, &u) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (u.naddrs) {
        return NGX_CONF_OK;
    }

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    name = ngx_array_push(&conf->redis_names);
    if (name == NULL) {
        return NGX_CONF_ERROR;
    }

    name->redis = redis;
    name->host = redis->hosts.nelts - 1;
    name->text = *text;
    ngx_http_ratelimit_place(cf, &name->place);

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_invalid_addr(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, ngx_str_t *text, const char *why)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ratelimit_redis\" \"%V\" has an invalid "
                       "address \"%V\" (%s), expected \"host:port\"",
                       &redis->name, text, why);

    return NGX_CONF_ERROR;
}


/*
 * Whether a name server may know it. With a "resolver" none is asked before
 * the gateway serves: too late to find two addresses with a comma between.
 */
static ngx_uint_t
ngx_http_ratelimit_redis_is_name(const ngx_str_t *host)
{
    u_char      c;
    size_t      i, len;
    ngx_uint_t  digits, empty;

    len = host->len;

    if (len && host->data[len - 1] == '.') {
        len--;
    }

    /* of the label so far; the last one, all digits, is an address's */
    digits = 1;
    empty = 1;

    for (i = 0; i < len; i++) {
        c = host->data[i];

        if (c == '.') {
            if (empty) {
                return 0;
            }

            digits = 1;
            empty = 1;
            continue;
        }

        empty = 0;

        if (c >= '0' && c <= '9') {
            continue;
        }

        digits = 0;
        c |= 0x20;

        if ((c < 'a' || c > 'z') && host->data[i] != '-'
            && host->data[i] != '_')
        {
            return 0;
        }
    }

    return !empty && !digits;
}


static ngx_int_t
ngx_http_ratelimit_redis_host(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    ngx_str_t *text, ngx_url_t *u)
{
    ngx_ratelimit_redis_host_t  *host;

    host = ngx_array_push(&redis->hosts);
    if (host == NULL) {
        return NGX_ERROR;
    }

    host->host = (u->family == AF_UNIX) ? u->url : u->host;
    host->port = (u->family == AF_UNIX) ? 0 : u->port;

    /* a certificate is for the address without its brackets, a Cluster says it
       so, too */

    if (host->host.len > 2 && host->host.data[0] == '[') {
        host->host.data++;
        host->host.len -= 2;
    }

    host->naddrs = u->naddrs;
    host->addrs = u->addrs;

    return NGX_OK;
}


ngx_int_t
ngx_http_ratelimit_redis_names(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf)
{
    ngx_uint_t                        i, resolver;
    ngx_ratelimit_redis_t           **redis;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_ratelimit_redis_name_t  *names;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* nginx makes one without addresses where there is none */

    resolver = (clcf->resolver && clcf->resolver->connections.nelts);
    redis = conf->redis.elts;

    for (i = 0; i < conf->redis.nelts && resolver; i++) {
        redis[i]->resolver = clcf->resolver;
        redis[i]->resolver_timeout = clcf->resolver_timeout;
        ngx_conf_init_msec_value(redis[i]->resolver_timeout,
                                 NGX_HTTP_RATELIMIT_REDIS_RESOLVER_TIMEOUT);
    }

    names = conf->redis_names.elts;

    for (i = 0; i < conf->redis_names.nelts; i++) {
        if (ngx_http_ratelimit_redis_name(cf, &names[i], resolver)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* "localhost" is this machine's to know, not the name server's. */
static ngx_int_t
ngx_http_ratelimit_redis_name(ngx_conf_t *cf,
    ngx_http_ratelimit_redis_name_t *name, ngx_uint_t resolver)
{
    ngx_url_t                    u;
    ngx_ratelimit_redis_host_t  *host;

    host = name->redis->hosts.elts;
    host += name->host;

    if (resolver
        && (host->host.len != sizeof("localhost") - 1
            || ngx_strncasecmp(host->host.data, (u_char *) "localhost",
                               host->host.len)
               != 0))
    {
        return NGX_OK;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = name->text;
    u.default_port = ngx_http_ratelimit_redis_port(name->redis);

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"ratelimit_redis\" \"%V\" has an invalid address "
                      "\"%V\" (%s), expected \"host:port\" in %V:%ui",
                      &name->redis->name, &name->text,
                      u.err ? u.err : "no address found", &name->place.file,
                      name->place.line);
        return NGX_ERROR;
    }

    host->naddrs = u.naddrs;
    host->addrs = u.addrs;

    return NGX_OK;
}

/*
 * The host names of "ratelimit_redis" blocks.
 */

#ifndef NGX_HTTP_RATELIMIT_REDIS_NAMES_H_INCLUDED
#define NGX_HTTP_RATELIMIT_REDIS_NAMES_H_INCLUDED

#include "ngx_http_ratelimit.h"

/*
 * Adds an address, "host[:port]" or "unix:/path", to redis->hosts. A name has
 * no addresses before all of the configuration is read: only then it is known
 * whether there is a resolver.
 */
char *ngx_http_ratelimit_redis_addr(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, ngx_str_t *text);

/*
 * Gives each block the resolver of http {}. If there is none, the names are
 * resolved now. Returns NGX_OK, or NGX_ERROR, which is logged.
 */
ngx_int_t ngx_http_ratelimit_redis_names(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf);

#endif /* NGX_HTTP_RATELIMIT_REDIS_NAMES_H_INCLUDED */

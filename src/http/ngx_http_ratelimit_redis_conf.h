/*
 * What the files that read a "ratelimit_redis" block share: redis_conf.c the
 * block, redis_names.c its host names, redis_tls_conf.c its "tls" lines.
 */

#ifndef NGX_HTTP_RATELIMIT_REDIS_CONF_H_INCLUDED
#define NGX_HTTP_RATELIMIT_REDIS_CONF_H_INCLUDED

#include "ngx_http_ratelimit.h"


/* redis_conf.c: both log and return NGX_CONF_ERROR */

/* The directive at hand stands in the block already. */
char *ngx_http_ratelimit_redis_duplicate(ngx_conf_t *cf);

/* Names the directive at hand, its first argument and what was expected. */
char *ngx_http_ratelimit_redis_invalid(ngx_conf_t *cf, const char *expected);


/* redis_names.c */

/*
 * Adds an address, "host[:port]" or "unix:/path", to redis->hosts. A name has
 * no addresses before all of the configuration is read: only then it is known
 * whether there is a resolver.
 */
char *ngx_http_ratelimit_redis_addr(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, ngx_str_t *text);

/*
 * Gives each block the resolver of http {}. Where there is none the names are
 * resolved here. Returns NGX_OK, or NGX_ERROR, which is logged.
 */
ngx_int_t ngx_http_ratelimit_redis_names(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf);


/* redis_tls_conf.c */

char *ngx_http_ratelimit_redis_tls(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
char *ngx_http_ratelimit_redis_tls_ca(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
char *ngx_http_ratelimit_redis_tls_name(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
char *ngx_http_ratelimit_redis_tls_certificate(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
char *ngx_http_ratelimit_redis_tls_certificate_key(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);

/* What these lines must say together; loads the files that they name. */
char *ngx_http_ratelimit_redis_tls_check(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);

#endif /* NGX_HTTP_RATELIMIT_REDIS_CONF_H_INCLUDED */

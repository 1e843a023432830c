/*
 * TLS of a connection to Redis.
 */

#ifndef NGX_RATELIMIT_REDIS_TLS_H_INCLUDED
#define NGX_RATELIMIT_REDIS_TLS_H_INCLUDED

#include "ngx_ratelimit_redis_conn.h"

/*
 * Begins the handshake of a connected socket: conn_shook() tells how it ends,
 * now or later.
 */
void ngx_ratelimit_redis_tls_begin(ngx_ratelimit_redis_conn_t *conn);

/* Drops the session: conn is freed, or leads elsewhere from now on. */
void ngx_ratelimit_redis_tls_forget(ngx_ratelimit_redis_conn_t *conn);

/* Why recv() or send() failed: what TLS says of it, else otherwise. */
const char *ngx_ratelimit_redis_tls_reason(ngx_ratelimit_redis_conn_t *conn,
    const char *otherwise);

/* Before the socket is closed: says goodbye, without waiting, and frees. */
void ngx_ratelimit_redis_tls_end(ngx_ratelimit_redis_conn_t *conn);

#endif /* NGX_RATELIMIT_REDIS_TLS_H_INCLUDED */

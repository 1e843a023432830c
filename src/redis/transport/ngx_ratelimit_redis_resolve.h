/*
 * Where the host of a connection is.
 */

#ifndef NGX_RATELIMIT_REDIS_RESOLVE_H_INCLUDED
#define NGX_RATELIMIT_REDIS_RESOLVE_H_INCLUDED

#include "ngx_ratelimit_redis_conn.h"

/*
 * The address of a host that is one, as text: it is known without asking.
 * Returns its length, 0 for any other host.
 */
socklen_t ngx_ratelimit_redis_resolve_numeric(
    const ngx_ratelimit_redis_host_t *host, ngx_sockaddr_t *sa);

/*
 * Asks nginx's resolver where conn's host is. conn_resolved() tells, now or
 * later: when the deadline comes first, call resolve_timeout().
 */
void ngx_ratelimit_redis_resolve(ngx_ratelimit_redis_conn_t *conn);
void ngx_ratelimit_redis_resolve_timeout(ngx_ratelimit_redis_conn_t *conn);

/* Forgets the question, if there is one. */
void ngx_ratelimit_redis_resolve_cancel(ngx_ratelimit_redis_conn_t *conn);

/*
 * The next address of the host's own: each in turn. The host has some. Sets
 * where conn leads to.
 */
void ngx_ratelimit_redis_resolve_next(ngx_ratelimit_redis_conn_t *conn);

#endif /* NGX_RATELIMIT_REDIS_RESOLVE_H_INCLUDED */

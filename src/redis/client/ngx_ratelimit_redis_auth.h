/*
 * The passwords of a worker: for Redis, and for Sentinels.
 */

#ifndef NGX_RATELIMIT_REDIS_AUTH_H_INCLUDED
#define NGX_RATELIMIT_REDIS_AUTH_H_INCLUDED

#include "ngx_ratelimit_redis_call.h"

/* A user of a worker, for Redis or for Sentinels. */
typedef struct {
    ngx_str_t                      password;  /* heap; empty: no AUTH */
    ngx_uint_t                     version;   /* of password */
    const ngx_str_t               *username;  /* of the configuration, */
    const ngx_str_t               *file;      /* as this */

    /* the file as it was read last */
    ngx_file_uniq_t                uniq;
    off_t                          size;
    struct timespec                mtime;
} ngx_ratelimit_redis_login_t;


/*
 * The passwords of the client of checks: read again where their files have
 * changed. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_redis_auth_start(ngx_ratelimit_redis_client_t *client);
void ngx_ratelimit_redis_auth_stop(ngx_ratelimit_redis_client_t *client);

/* Looks at the files, once a second. Open connections log in again. */
void ngx_ratelimit_redis_auth_look(ngx_ratelimit_redis_client_t *client);

/* Queues AUTH where there is a password; NGX_ERROR: memory is out. */
ngx_int_t ngx_ratelimit_redis_auth_send(ngx_ratelimit_redis_node_t *node,
    ngx_ratelimit_redis_kind_e kind);

/* Has a connection log in again, where there is a new password since. */
void ngx_ratelimit_redis_auth_renew(ngx_ratelimit_redis_node_t *node);

/* The user that a connection is of. */
#define ngx_ratelimit_redis_login(node)                                       \
    (&(node)->client->redis->client->logins[(node)->sentinel])

#endif /* NGX_RATELIMIT_REDIS_AUTH_H_INCLUDED */

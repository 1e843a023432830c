/*
 * Sentinels: they say which server is the master now. A connection to one takes
 * no calls and has no breaker; whoever asks keeps one open, and goes on to the
 * next sentinel when it does not answer or does not know.
 */

#include "ngx_ratelimit_redis_int.h"


ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_sentinel_from(ngx_ratelimit_redis_client_t *client,
    ngx_uint_t next)
{
    ngx_uint_t                   i, n;
    ngx_ratelimit_redis_conn_t  *conn;
    ngx_ratelimit_redis_host_t  *hosts;

    hosts = client->redis->hosts.elts;
    n = client->redis->hosts.nelts;

    client->sentinel += next;

    for (i = 0; i < n; i++) {
        client->sentinel %= n;

        conn = ngx_ratelimit_redis_conn_sentinel(client,
                                                 &hosts[client->sentinel]);

        if (conn && conn->state != NGX_RATELIMIT_REDIS_DOWN) {
            return conn;
        }

        client->sentinel++;
    }

    return NULL;
}


void
ngx_ratelimit_redis_sentinel_refused(ngx_ratelimit_redis_conn_t *conn)
{
    char                           note[NGX_RATELIMIT_LOG_NOTE];
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    if (!ngx_ratelimit_log_due(&client->refusals, ngx_current_msec,
                               NGX_RATELIMIT_LOG_MS, note))
    {
        return;
    }

    if (conn->reply.flat && conn->reply.ntexts != 2) {
        ngx_log_error(NGX_LOG_ERR, client->log, 0,
                      "ratelimit redis \"%V\": sentinel %V knows no master "
                      "\"%V\"%s", &client->redis->name, &conn->name,
                      &client->redis->master, note);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, client->log, 0,
                  "ratelimit redis \"%V\": sentinel %V names no address for "
                  "master \"%V\"%s", &client->redis->name, &conn->name,
                  &client->redis->master, note);
}

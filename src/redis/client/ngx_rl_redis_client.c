/*
 * The worker's client: start and stop.
 */

#include <ngx_sha1.h>

#include "ngx_rl_redis_client.h"

#include <openssl/rand.h>

#include "ngx_rl_lua.h"

#define NGX_RL_REDIS_DEAD_MIN_MS  1000

#define NGX_RL_REDIS_EVENTS                                                   \
    (sizeof(ngx_rl_redis_events)                                              \
     / sizeof(ngx_rl_redis_events[0]))

#define ngx_rl_redis_event(client, i)                                         \
    ((ngx_event_t *)                                                          \
     ((u_char *) (client) + ngx_rl_redis_events[i].offset))


/* timers and posted events of a client */
static const struct {
    size_t                offset;
    ngx_event_handler_pt  handler;
} ngx_rl_redis_events[] = {
    { offsetof(ngx_rl_redis_client_t, deadline),
      ngx_rl_redis_deadline_handler },
    { offsetof(ngx_rl_redis_client_t, expire_event),
      ngx_rl_redis_expire_handler },
    { offsetof(ngx_rl_redis_client_t, done_event),
      ngx_rl_redis_done_handler },
    { offsetof(ngx_rl_redis_client_t, again_timer),
      ngx_rl_redis_again_handler },
    { offsetof(ngx_rl_redis_client_t, release_event),
      ngx_rl_redis_release_handler },
    { offsetof(ngx_rl_redis_client_t, upkeep),
      ngx_rl_redis_upkeep_handler },
    { offsetof(ngx_rl_redis_client_t, listens),
      ngx_rl_redis_subscriber_handler },
    { offsetof(ngx_rl_redis_client_t, topology.timer),
      ngx_rl_redis_topology_handler }
};


static void
ngx_rl_redis_queue_free(ngx_queue_t *queue)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(queue)) {
        q = ngx_queue_head(queue);
        ngx_queue_remove(q);
        ngx_rl_redis_call_free(ngx_rl_redis_call_of(q));
    }
}


/* With its connections; no handler is called. */
static void
ngx_rl_redis_client_free(ngx_rl_redis_client_t *client)
{
    ngx_uint_t            i;
    ngx_event_t          *ev, *flush;
    ngx_queue_t          *q;
    ngx_rl_redis_node_t  *node;

    while (!ngx_queue_empty(&client->nodes)) {
        node = ngx_rl_redis_node_of(ngx_queue_head(&client->nodes));
        flush = &node->conn.flush;

        if (flush->posted && node->conn.state == NGX_RL_REDIS_UP) {

            /* what the last requests gave back as they ended */

            ngx_delete_posted_event(flush);
            ngx_rl_redis_conn_flush_handler(flush);
            continue;
        }

        ngx_rl_redis_session_free(node);
    }

    ngx_rl_redis_queue_free(&client->unmapped);
    ngx_rl_redis_queue_free(&client->again);
    ngx_rl_redis_queue_free(&client->done);

    while (!ngx_queue_empty(&client->free)) {
        q = ngx_queue_head(&client->free);
        ngx_queue_remove(q);
        ngx_free(ngx_rl_redis_call_of(q));
    }

    for (i = 0; i < NGX_RL_REDIS_EVENTS; i++) {
        ev = ngx_rl_redis_event(client, i);

        if (ev->timer_set) {
            ngx_del_timer(ev);
        }

        if (ev->posted) {
            ngx_delete_posted_event(ev);
        }
    }

    ngx_rl_redis_auth_stop(client);

    if (client->topology.slots) {
        ngx_free(client->topology.slots);
    }

    if (client->net.io) {
        ngx_free(client->net.io);
    }

    ngx_free(client);
}


/* Without any connection. NULL: memory is out. */
static ngx_rl_redis_client_t *
ngx_rl_redis_client_new(ngx_rl_redis_t *redis, ngx_cycle_t *cycle,
    ngx_uint_t control)
{
    ngx_uint_t              i;
    ngx_event_t            *ev;
    ngx_rl_redis_client_t  *client;

    client = ngx_calloc(sizeof(ngx_rl_redis_client_t), cycle->log);
    if (client == NULL) {
        return NULL;
    }

    client->redis = redis;
    client->log = cycle->log;
    client->control = control;
    client->fd = (ngx_socket_t) -1;
    client->owner = &ngx_rl_redis_session;

    if (control) {
        client->timeout = NGX_RL_REDIS_CONTROL_MS;
        client->net.dead_ms = 2 * NGX_RL_REDIS_CONTROL_MS;

    } else {
        client->timeout = redis->timeout;
        client->net.dead_ms = ngx_max(NGX_RL_REDIS_DEAD_MIN_MS,
                                      4 * redis->timeout);
    }

    client->jitter = (uint32_t) ngx_random();

    client->net.redis = redis;
    client->net.log = cycle->log;
    client->net.muted = *cycle->log;

    if (!(client->net.muted.log_level & NGX_LOG_DEBUG_ALL)) {
        client->net.muted.log_level = ngx_min(client->net.muted.log_level,
                                              NGX_LOG_ALERT);
    }

    ngx_queue_init(&client->nodes);
    ngx_queue_init(&client->deadlines);
    ngx_queue_init(&client->done);
    ngx_queue_init(&client->again);
    ngx_queue_init(&client->unmapped);
    ngx_queue_init(&client->free);
    ngx_queue_init(&client->listeners);

    for (i = 0; i < NGX_RL_REDIS_EVENTS; i++) {
        ev = ngx_rl_redis_event(client, i);
        ev->data = client;
        ev->log = client->log;
        ev->handler = ngx_rl_redis_events[i].handler;
        ev->cancelable = 1;
    }

    client->net.io = ngx_alloc(NGX_RL_REDIS_IO_BYTES, client->log);

    if (client->net.io == NULL) {
        ngx_rl_redis_client_free(client);
        return NULL;
    }

    return client;
}


ngx_int_t
ngx_rl_redis_client_connect(ngx_rl_redis_client_t *client)
{
    static const ngx_str_t  map = ngx_string(NGX_RL_REDIS_MAP_PLACE);

    if (client->redis->mode == NGX_RL_REDIS_SERVER) {
        return ngx_rl_redis_node_get(client,
                                     client->redis->hosts.elts,
                                     NGX_RL_REDIS_DATA)
               ? NGX_OK : NGX_ERROR;
    }

    if (!client->control) {
        client->map_place = ngx_rl_redis_place(client->redis->shared, &map);
    }

    return ngx_rl_redis_topology_start(client);
}


void
ngx_rl_redis_stop(ngx_rl_redis_t *redis)
{
    if (redis->control) {
        ngx_rl_redis_client_free(redis->control);
        redis->control = NULL;
    }

    if (redis->client) {
        ngx_rl_redis_client_free(redis->client);
        redis->client = NULL;
    }
}


ngx_int_t
ngx_rl_redis_start(ngx_rl_redis_t *redis, ngx_cycle_t *cycle)
{
    u_char                  sha[20], hex[40], *p;
    ngx_sha1_t              sha1;
    ngx_rl_redis_client_t  *client;

    client = ngx_rl_redis_client_new(redis, cycle, 0);
    if (client == NULL) {
        return NGX_ERROR;
    }

    redis->client = client;
    redis->control = ngx_rl_redis_client_new(redis, cycle, 1);

    if (redis->control == NULL
        || RAND_bytes((u_char *) &client->name, sizeof(client->name)) != 1
        || ngx_rl_redis_auth_start(client) != NGX_OK
        || ngx_rl_redis_client_connect(client) != NGX_OK)
    {
        ngx_rl_redis_stop(redis);
        return NGX_ERROR;
    }

    /* all checks begin with the same bytes, written once */

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, ngx_rl_lua_check, ngx_rl_lua_check_len);
    ngx_sha1_final(sha, &sha1);
    ngx_hex_dump(hex, sha, 20);

    p = ngx_rl_redis_write_bulk(client->evalsha, (u_char *) "EVALSHA", 7);
    p = ngx_rl_redis_write_bulk(p, hex, 40);
    client->evalsha_len = p - client->evalsha;

    /* its time to wait for an answer begins when the worker is at work */

    ngx_add_timer(&client->upkeep, 1);

    return NGX_OK;
}


ngx_int_t
ngx_rl_redis_node_stat(const ngx_rl_redis_t *redis, ngx_queue_t **at,
    ngx_rl_redis_node_stat_t *stat)
{
    ngx_queue_t            *q;
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;
    ngx_rl_redis_place_t   *place;

    client = redis->client;
    place = NULL;
    q = *at;

    if (q == NULL) {
        q = ngx_queue_head(&client->nodes);

        if (client->topology.slots) {
            ngx_rl_redis_topology_look(client);

            if (!client->topology.mapped) {
                q = ngx_queue_sentinel(&client->nodes);
                place = client->map_place;
            }
        }
    }

    for ( /* void */ ;
         place == NULL && q != ngx_queue_sentinel(&client->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_rl_redis_node_of(q);

        if (client->topology.slots == NULL || node->owned) {
            place = node->place;
        }
    }

    *at = q;

    if (place == NULL) {
        return NGX_DONE;
    }

    stat->name.data = place->name;
    stat->name.len = place->name_len;
    stat->state = ngx_rl_breaker_state(&place->breaker);
    stat->connected = ngx_rl_redis_connected(place);
    ngx_rl_redis_times(redis->shared, place, stat->times);

    return NGX_OK;
}

/*
 * The worker's client: start and stop, and what a call says.
 */

#include <ngx_sha1.h>

#include "ngx_ratelimit_redis_int.h"

#include <openssl/rand.h>

#include "ngx_ratelimit_lua.h"
#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_REDIS_DEAD_MIN_MS  1000

/* to find a bucket of a node: for one in 40 all but one in 10^11 times */
#define NGX_RATELIMIT_REDIS_PROBE_TRIES  1000


static void ngx_ratelimit_redis_client_script(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_event_init(
    ngx_ratelimit_redis_client_t *client, ngx_event_t *ev,
    ngx_event_handler_pt handler);
static void ngx_ratelimit_redis_queue_free(ngx_queue_t *queue);

static void ngx_ratelimit_redis_eval_write(ngx_ratelimit_redis_call_t *call,
    const ngx_ratelimit_redis_eval_t *eval);
static u_char *ngx_ratelimit_redis_key_write(u_char *p,
    const ngx_ratelimit_redis_t *redis, const ngx_str_t *bucket,
    const u_char *set);
static u_char *ngx_ratelimit_redis_key_text(u_char *p,
    const ngx_ratelimit_redis_t *redis, const ngx_str_t *bucket,
    const u_char *set);


ngx_int_t
ngx_ratelimit_redis_start(ngx_ratelimit_redis_t *redis, ngx_cycle_t *cycle)
{
    ngx_ratelimit_redis_client_t  *client;

    client = ngx_ratelimit_redis_client_new(redis, cycle, NULL);
    if (client == NULL) {
        return NGX_ERROR;
    }

    redis->client = client;
    ngx_ratelimit_redis_client_script(client);

    if (RAND_bytes((u_char *) &client->name, sizeof(client->name)) != 1
        || ngx_ratelimit_redis_auth_start(client) != NGX_OK
        || ngx_ratelimit_redis_client_connect(client) != NGX_OK)
    {
        ngx_ratelimit_redis_stop(redis);
        return NGX_ERROR;
    }

    ngx_ratelimit_redis_nodes_start(client);
    ngx_ratelimit_redis_probes_start(client);

    return NGX_OK;
}


void
ngx_ratelimit_redis_stop(ngx_ratelimit_redis_t *redis)
{
    if (redis->client) {
        ngx_ratelimit_redis_client_free(redis->client);
        redis->client = NULL;
    }
}


ngx_ratelimit_redis_client_t *
ngx_ratelimit_redis_client_new(ngx_ratelimit_redis_t *redis,
    ngx_cycle_t *cycle, ngx_ratelimit_redis_control_t *control)
{
    ngx_ratelimit_redis_client_t  *client;

    client = ngx_calloc(sizeof(ngx_ratelimit_redis_client_t), cycle->log);
    if (client == NULL) {
        return NULL;
    }

    client->redis = redis;
    client->log = cycle->log;
    client->control = control;
    client->fd = (ngx_socket_t) -1;

    if (control) {
        client->timeout = NGX_RATELIMIT_REDIS_CONTROL_MS;
        client->dead_ms = 2 * NGX_RATELIMIT_REDIS_CONTROL_MS;

    } else {
        client->timeout = redis->timeout;
        client->dead_ms = ngx_max(NGX_RATELIMIT_REDIS_DEAD_MIN_MS,
                                  4 * redis->timeout);
    }

    client->jitter = (uint32_t) ngx_random();

    client->quiet = *cycle->log;

    if (!(client->quiet.log_level & NGX_LOG_DEBUG_ALL)) {
        client->quiet.log_level = ngx_min(client->quiet.log_level,
                                          NGX_LOG_ALERT);
    }

    ngx_queue_init(&client->conns);
    ngx_queue_init(&client->deadlines);
    ngx_queue_init(&client->done);
    ngx_queue_init(&client->again);
    ngx_queue_init(&client->unmapped);
    ngx_queue_init(&client->free);

    ngx_ratelimit_redis_event_init(client, &client->deadline,
                                   ngx_ratelimit_redis_deadline_handler);
    ngx_ratelimit_redis_event_init(client, &client->expire_event,
                                   ngx_ratelimit_redis_expire_handler);
    ngx_ratelimit_redis_event_init(client, &client->done_event,
                                   ngx_ratelimit_redis_done_handler);
    ngx_ratelimit_redis_event_init(client, &client->again_timer,
                                   ngx_ratelimit_redis_again_handler);
    ngx_ratelimit_redis_event_init(client, &client->release_event,
                                   ngx_ratelimit_redis_release_handler);

    client->io = ngx_alloc(NGX_RATELIMIT_REDIS_IO_BYTES, client->log);

    if (client->io == NULL) {
        ngx_ratelimit_redis_client_free(client);
        return NULL;
    }

    return client;
}


void
ngx_ratelimit_redis_client_free(ngx_ratelimit_redis_client_t *client)
{
    ngx_uint_t                   i;
    ngx_queue_t                 *q;
    ngx_event_t                 *timers[3];
    ngx_ratelimit_redis_conn_t  *conn;

    while (!ngx_queue_empty(&client->conns)) {
        q = ngx_queue_head(&client->conns);
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->flush.posted && conn->state == NGX_RATELIMIT_REDIS_UP) {

            /* what the last requests gave back as they ended */

            ngx_delete_posted_event(&conn->flush);
            ngx_ratelimit_redis_conn_flush_handler(&conn->flush);
            continue;
        }

        ngx_ratelimit_redis_conn_free(conn);
    }

    ngx_ratelimit_redis_queue_free(&client->unmapped);
    ngx_ratelimit_redis_queue_free(&client->again);
    ngx_ratelimit_redis_queue_free(&client->done);

    while (!ngx_queue_empty(&client->free)) {
        q = ngx_queue_head(&client->free);
        ngx_queue_remove(q);
        ngx_free(ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue));
    }

    timers[0] = &client->deadline;
    timers[1] = &client->again_timer;
    timers[2] = &client->probe_timer;

    for (i = 0; i < 3; i++) {
        if (timers[i]->timer_set) {
            ngx_del_timer(timers[i]);
        }
    }

    if (client->done_event.posted) {
        ngx_delete_posted_event(&client->done_event);
    }

    if (client->release_event.posted) {
        ngx_delete_posted_event(&client->release_event);
    }

    if (client->expire_event.posted) {
        ngx_delete_posted_event(&client->expire_event);
    }

    ngx_ratelimit_redis_auth_stop(client);
    ngx_ratelimit_redis_topology_stop(client);
    ngx_ratelimit_redis_nodes_stop(client);

    if (client->io) {
        ngx_free(client->io);
    }

    ngx_free(client);
}


/* What all checks begin with is written once. */

static void
ngx_ratelimit_redis_client_script(ngx_ratelimit_redis_client_t *client)
{
    u_char       sha[20], hex[40], *p;
    ngx_sha1_t   sha1;

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, ngx_ratelimit_lua_check,
                    ngx_ratelimit_lua_check_len);
    ngx_sha1_final(sha, &sha1);
    ngx_hex_dump(hex, sha, 20);

    p = client->evalsha;
    p = ngx_ratelimit_redis_write_bulk(p, (u_char *) "EVALSHA", 7);
    p = ngx_ratelimit_redis_write_bulk(p, hex, 40);

    client->evalsha_len = p - client->evalsha;
}


ngx_int_t
ngx_ratelimit_redis_client_connect(ngx_ratelimit_redis_client_t *client)
{
    static const ngx_str_t  map = ngx_string(NGX_RATELIMIT_REDIS_MAP_SHARD);

    if (client->redis->mode == NGX_RATELIMIT_REDIS_SERVER) {
        return ngx_ratelimit_redis_conn_get(client,
                                            client->redis->hosts.elts)
               ? NGX_OK : NGX_ERROR;
    }

    if (client->control == NULL) {
        client->map_shard = ngx_ratelimit_redis_shard(client->redis->shared,
                                                      &map);
    }

    return ngx_ratelimit_redis_topology_start(client);
}


static void
ngx_ratelimit_redis_event_init(ngx_ratelimit_redis_client_t *client,
    ngx_event_t *ev, ngx_event_handler_pt handler)
{
    ev->data = client;
    ev->log = client->log;
    ev->handler = handler;
    ev->cancelable = 1;
}


static void
ngx_ratelimit_redis_queue_free(ngx_queue_t *queue)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(queue)) {
        q = ngx_queue_head(queue);
        ngx_queue_remove(q);
        ngx_ratelimit_redis_call_free(
            ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue));
    }
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_eval(ngx_ratelimit_redis_t *redis,
    const ngx_ratelimit_redis_eval_t *eval,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_redis_call_t  *call;

    call = ngx_ratelimit_redis_eval_new(redis->client, eval);

    if (call) {
        ngx_ratelimit_redis_call_start(call, handler, data);
    }

    return call;
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_eval_new(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_eval_t *eval)
{
    size_t                       len;
    ngx_ratelimit_redis_call_t  *call;

    len = NGX_RATELIMIT_REDIS_ARRAY + client->evalsha_len
          + NGX_RATELIMIT_REDIS_BULK(NGX_INT32_LEN)
          + (1 + eval->nsets)
            * NGX_RATELIMIT_REDIS_BULK(client->redis->prefix.len
                                       + NGX_RATELIMIT_REDIS_KEY_BYTES)
          + eval->args.len;

    call = ngx_ratelimit_redis_call_new(client, NGX_RATELIMIT_REDIS_EVAL,
                                        len);
    if (call == NULL) {
        return NULL;
    }

    ngx_ratelimit_redis_eval_write(call, eval);
    call->undo = eval->undo;
    call->late = eval->late;

    return call;
}


static void
ngx_ratelimit_redis_eval_write(ngx_ratelimit_redis_call_t *call,
    const ngx_ratelimit_redis_eval_t *eval)
{
    size_t                         len;
    u_char                        *p, *key, digits[NGX_INT64_LEN];
    ngx_str_t                      bucket;
    ngx_uint_t                     i;
    ngx_ratelimit_redis_t         *redis;
    ngx_ratelimit_redis_client_t  *client;

    client = call->client;
    redis = client->redis;

    p = ngx_ratelimit_redis_write_array(call->text,
                                        3 + 1 + eval->nsets + eval->nargs);
    p = ngx_cpymem(p, client->evalsha, client->evalsha_len);

    len = ngx_ratelimit_number_write(digits, 1 + eval->nsets) - digits;
    p = ngx_ratelimit_redis_write_bulk(p, digits, len);

    bucket.data = digits;
    bucket.len = ngx_ratelimit_number_write(digits,
                                            eval->bucket % redis->buckets)
                 - digits;

    key = p;
    p = ngx_ratelimit_redis_key_write(p, redis, &bucket, NULL);

    if (redis->mode == NGX_RATELIMIT_REDIS_CLUSTER) {

        /* the text between the length's line and the line's end */

        key = (u_char *) ngx_strchr(key, LF) + 1;
        call->slot = ngx_ratelimit_cluster_slot(key, p - 2 - key);
    }

    for (i = 0; i < eval->nsets; i++) {
        p = ngx_ratelimit_redis_key_write(p, redis, &bucket,
                       eval->sets + i * NGX_RATELIMIT_REDIS_SET_NAME);
    }

    p = ngx_cpymem(p, eval->args.data, eval->args.len);

    call->len = p - call->text;
}


/* "<prefix>:{<bucket>}", and where a set is named ":<its name in hex>". */

static u_char *
ngx_ratelimit_redis_key_write(u_char *p, const ngx_ratelimit_redis_t *redis,
    const ngx_str_t *bucket, const u_char *set)
{
    size_t  len;

    len = redis->prefix.len + bucket->len + sizeof(":{}") - 1;

    if (set) {
        len += 1 + 2 * NGX_RATELIMIT_REDIS_SET_NAME;
    }

    *p++ = '$';
    p = ngx_ratelimit_number_write(p, len);
    *p++ = CR;
    *p++ = LF;

    p = ngx_ratelimit_redis_key_text(p, redis, bucket, set);
    *p++ = CR;
    *p++ = LF;

    return p;
}


static u_char *
ngx_ratelimit_redis_key_text(u_char *p, const ngx_ratelimit_redis_t *redis,
    const ngx_str_t *bucket, const u_char *set)
{
    p = ngx_cpymem(p, redis->prefix.data, redis->prefix.len);
    *p++ = ':';
    *p++ = '{';
    p = ngx_cpymem(p, bucket->data, bucket->len);
    *p++ = '}';

    if (set) {
        *p++ = ':';
        p = ngx_hex_dump(p, (u_char *) set, NGX_RATELIMIT_REDIS_SET_NAME);
    }

    return p;
}


ngx_int_t
ngx_ratelimit_redis_key(const ngx_ratelimit_redis_t *redis, uint32_t bucket,
    const u_char *set, ngx_pool_t *pool, ngx_str_t *key)
{
    ngx_str_t  text;

    u_char  digits[NGX_INT32_LEN];

    text.data = digits;
    text.len = ngx_ratelimit_number_write(digits, bucket % redis->buckets)
               - digits;

    key->data = ngx_pnalloc(pool, redis->prefix.len + text.len
                                  + sizeof(":{}:")
                                  + 2 * NGX_RATELIMIT_REDIS_SET_NAME);
    if (key->data == NULL) {
        return NGX_ERROR;
    }

    key->len = ngx_ratelimit_redis_key_text(key->data, redis, &text, set)
               - key->data;

    return NGX_OK;
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_probe_new(ngx_ratelimit_redis_conn_t *conn)
{
    u_char                        *p;
    ngx_uint_t                     i;
    ngx_ratelimit_redis_call_t    *call;
    ngx_ratelimit_redis_eval_t     eval;
    ngx_ratelimit_redis_client_t  *client;

    /* kind, field, cost, want, capacity, period, scale: full again at once */

    static const ngx_str_t  args[] = {
        ngx_string("t"),
        ngx_string("rl-probe"),
        ngx_string("1"),
        ngx_string("0"),
        ngx_string("1000"),
        ngx_string("1"),
        ngx_string("1")
    };

    u_char  text[7 * NGX_RATELIMIT_REDIS_BULK(8)];

    client = conn->client;
    p = text;

    for (i = 0; i < 7; i++) {
        p = ngx_ratelimit_redis_write_bulk(p, args[i].data, args[i].len);
    }

    ngx_memzero(&eval, sizeof(ngx_ratelimit_redis_eval_t));

    eval.nargs = 7;
    eval.args.data = text;
    eval.args.len = p - text;

    for (i = 0; i < NGX_RATELIMIT_REDIS_PROBE_TRIES; i++) {
        eval.bucket = (uint32_t) ngx_random();
        call = ngx_ratelimit_redis_eval_new(client, &eval);

        if (call == NULL) {
            return NULL;
        }

        if (client->slots == NULL || client->slots[call->slot] == conn) {
            call->asked = 1;
            call->ended = 1;
            return call;
        }

        ngx_ratelimit_redis_call_free(call);
    }

    return NULL;
}


/* Each worker starts anywhere, and repeats none before it has had them all. */
uint64_t
ngx_ratelimit_redis_name(ngx_ratelimit_redis_t *redis)
{
    do {
        redis->client->name += 0x9e3779b97f4a7c15;

    } while (redis->client->name == 0);

    return redis->client->name;
}

/*
 * A worker's control client of a block: calls that are no checks, on
 * connections of their own, and one more connection that listens to channels.
 *
 * It is as the client of the checks (addresses, slot map, TLS, what is
 * redirected), but lazy: it connects where a call needs it. The subscriber is
 * one more node of it: in a Cluster the owner of the first listener's document,
 * else the server or the master. A Cluster sends messages to all its nodes.
 */

#include "ngx_rl_redis_client.h"
#include "ngx_rl_text.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#define NGX_RL_REDIS_TICK_MS     1000
#define NGX_RL_REDIS_SOON_MS     100    /* there is no slot map yet */
#define NGX_RL_REDIS_PING_MS     5000
#define NGX_RL_REDIS_REFUSED_MS  60000


void
ngx_rl_redis_subscriber_handler(ngx_event_t *ev)
{
    ngx_rl_redis_node_t    *node, *target;
    ngx_rl_redis_client_t  *client;

    static ngx_str_t  ping = ngx_string("PING");

    client = ev->data;

    /* the calls' connection to whom to listen; NULL: that is not known yet */

    if (client->topology.slots) {
        ngx_rl_redis_topology_look(client);
        target = client->topology.mapped
                 ? client->topology.slots[client->slot] : NULL;

    } else {
        target = ngx_rl_redis_node_of(ngx_queue_head(&client->nodes));
    }

    node = client->subscriber;

    if (node
        && (client->stale
            || (target
                && (target->conn.name.len != node->conn.name.len
                    || ngx_memcmp(target->conn.name.data, node->conn.name.data,
                                  node->conn.name.len)
                       != 0))))
    {
        ngx_rl_redis_session_free(node);
        client->subscriber = NULL;
        node = NULL;
    }

    client->stale = 0;

    if (ngx_exiting || ngx_queue_empty(&client->listeners)) {
        return;
    }

    if (node == NULL && target
        && (ngx_msec_int_t) (ngx_current_msec - client->listens_ms) >= 0)
    {
        client->pinged_ms = ngx_current_msec;
        client->subscriber = ngx_rl_redis_node_get(client, &target->conn.host,
                                                   NGX_RL_REDIS_LISTENS);

    } else if (node && node->conn.state == NGX_RL_REDIS_UP
               && ngx_current_msec - client->pinged_ms >= NGX_RL_REDIS_PING_MS)
    {
        /* without memory the connection will be found dead */

        (void) ngx_rl_redis_command(node, NGX_RL_REDIS_PING, &ping, 1);
        client->pinged_ms = ngx_current_msec;
    }

    ngx_add_timer(ev, target ? NGX_RL_REDIS_TICK_MS : NGX_RL_REDIS_SOON_MS);
}


/* With the first call, and not before. */
static ngx_int_t
ngx_rl_redis_control_connect(ngx_rl_redis_client_t *client)
{
    if (!client->connected && ngx_rl_redis_client_connect(client) != NGX_OK) {
        return NGX_ERROR;
    }

    client->connected = 1;

    return NGX_OK;
}


/* Without a key the first slot that a node has. */
static ngx_uint_t
ngx_rl_redis_control_slot(ngx_rl_redis_client_t *client, const ngx_str_t *key)
{
    ngx_uint_t             slot;
    ngx_rl_redis_node_t  **slots;

    if (client->redis->mode != NGX_RL_REDIS_CLUSTER) {
        return 0;
    }

    if (key) {
        return ngx_rl_cluster_slot(key->data, key->len);
    }

    slots = client->topology.slots;

    for (slot = 0; slot < NGX_RL_CLUSTER_SLOTS; slot++) {
        if (slots[slot]) {
            return slot;
        }
    }

    return 0;
}


ngx_rl_redis_call_t *
ngx_rl_redis_control_call(ngx_rl_redis_t *redis, const ngx_str_t *args,
    ngx_uint_t nargs, ngx_uint_t key, ngx_rl_redis_handler_pt handler,
    void *data)
{
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_client_t  *client;

    client = redis->control;

    /* the slots are those of the client */

    if (ngx_rl_redis_control_connect(client) != NGX_OK) {
        return NULL;
    }

    call = ngx_rl_redis_command_new(client, NGX_RL_REDIS_CONTROL, args, nargs);
    if (call == NULL) {
        return NULL;
    }

    call->slot = ngx_rl_redis_control_slot(client, key ? &args[key] : NULL);

    ngx_rl_redis_call_start(call, handler, data);

    return call;
}


ngx_int_t
ngx_rl_redis_control_number(const ngx_str_t *text, uint64_t most,
    uint64_t *number)
{
    return ngx_rl_number_parse(text->data, text->len, 0, most, number) == 0
           ? NGX_OK : NGX_ERROR;
}


/* The connection has the channels that there were when it began. */
static void
ngx_rl_redis_subscriber_anew(ngx_rl_redis_client_t *client)
{
    client->stale = 1;
    client->listens_ms = ngx_current_msec;
    ngx_add_timer(&client->listens, 1);
}


ngx_int_t
ngx_rl_redis_listen(ngx_rl_redis_t *redis, ngx_rl_redis_listener_t *listener,
    ngx_event_t *event)
{
    ngx_rl_redis_client_t  *client;

    client = redis->control;

    if (ngx_rl_redis_control_connect(client) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_queue_empty(&client->listeners)) {
        client->slot = ngx_rl_redis_control_slot(client, &listener->key);
    }

    listener->event = event;
    ngx_queue_insert_tail(&client->listeners, &listener->queue);
    ngx_rl_redis_subscriber_anew(client);

    return NGX_OK;
}


void
ngx_rl_redis_unlisten(ngx_rl_redis_t *redis, ngx_rl_redis_listener_t *listener)
{
    if (listener->event == NULL) {
        return;
    }

    if (listener->event->posted) {
        ngx_delete_posted_event(listener->event);
    }

    listener->event = NULL;
    ngx_queue_remove(&listener->queue);

    if (ngx_queue_empty(&redis->control->listeners)) {
        ngx_rl_redis_subscriber_anew(redis->control);
    }
}


/* Moves *listener on to the next one, from NULL. Returns 0 behind the last. */
static ngx_uint_t
ngx_rl_redis_listener_next(ngx_rl_redis_client_t *client,
    ngx_rl_redis_listener_t **listener)
{
    ngx_queue_t  *q;

    q = ngx_queue_next(*listener ? &(*listener)->queue : &client->listeners);

    if (q == ngx_queue_sentinel(&client->listeners)) {
        return 0;
    }

    *listener = ngx_queue_data(q, ngx_rl_redis_listener_t, queue);

    return 1;
}


ngx_int_t
ngx_rl_redis_control_subscribe(ngx_rl_redis_node_t *node)
{
    ngx_str_t                *args;
    ngx_int_t                 rc;
    ngx_uint_t                n;
    ngx_rl_redis_listener_t  *listener;

    n = 1;
    listener = NULL;

    while (ngx_rl_redis_listener_next(node->client, &listener)) {
        n++;
    }

    args = ngx_alloc(n * sizeof(ngx_str_t), node->client->log);
    if (args == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&args[0], "SUBSCRIBE");
    n = 1;
    listener = NULL;

    while (ngx_rl_redis_listener_next(node->client, &listener)) {
        args[n++] = listener->channel;
    }

    rc = ngx_rl_redis_command(node, NGX_RL_REDIS_LISTEN, args, n)
         ? NGX_OK : NGX_ERROR;

    ngx_free(args);

    return rc;
}


/*
 * Without the right to subscribe, the gateway tries again after a minute: the
 * documents are polled as well. Any other error may be over soon.
 */
static void
ngx_rl_redis_subscriber_refused(ngx_rl_redis_node_t *node)
{
    ngx_str_t  word;

    word = ngx_rl_redis_error_word(&node->reply);

    if (word.len != 6 || ngx_memcmp(word.data, "NOPERM", 6) != 0) {
        ngx_rl_redis_reply_setup(node, "SUBSCRIBE");
        return;
    }

    ngx_rl_redis_node_log(node, NGX_RL_REDIS_LINE_LISTEN, 0, "",
                          " refuses messages of changed rules: ", &word);

    node->client->stale = 1;
    node->client->listens_ms = ngx_current_msec + NGX_RL_REDIS_REFUSED_MS;
}


void
ngx_rl_redis_control_heard(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_str_t                *text;
    ngx_queue_t              *q;
    ngx_rl_redis_call_t      *next;
    ngx_rl_redis_reply_t     *reply;
    ngx_rl_redis_listener_t  *listener;

    reply = &node->reply;

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_rl_redis_call_free(call);
        ngx_rl_redis_subscriber_refused(node);
        return;
    }

    /* the first again; it says since when nothing was heard */

    call->node = node;
    call->request.since_ms = ngx_current_msec;
    ngx_queue_insert_head(&node->conn.requests, &call->request.queue);
    node->conn.pending++;

    if (!reply->flat || reply->ntexts == 0) {
        ngx_rl_redis_conn_break(&node->conn, 0, "a reply of another call");
        return;
    }

    text = reply->texts;

    if (text->len == 4 && ngx_memcmp(text->data, "pong", 4) == 0) {
        q = ngx_queue_next(&call->request.queue);

        if (q != ngx_queue_sentinel(&node->conn.requests)
            && q != node->conn.next)
        {
            next = ngx_rl_redis_call_of(q);
            ngx_rl_redis_call_remove(next);
            ngx_rl_redis_call_free(next);
        }

    } else if (reply->ntexts > 1) {
        ngx_rl_redis_conn_recovered(&node->conn);

        listener = NULL;

        while (ngx_rl_redis_listener_next(node->client, &listener)) {

            if (listener->channel.len == text[1].len
                && ngx_memcmp(listener->channel.data, text[1].data, text[1].len)
                   == 0)
            {
                ngx_post_event(listener->event, &ngx_posted_events);
            }
        }
    }

    ngx_rl_redis_texts_free(reply);
}

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
#include "ngx_rl_redis_error.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#include "ngx_rl_lua.h"

#define NGX_RL_REDIS_TICK_MS     1000
#define NGX_RL_REDIS_SOON_MS     100    /* there is no slot map yet */
#define NGX_RL_REDIS_PING_MS     5000
#define NGX_RL_REDIS_REFUSED_MS  60000

#define NGX_RL_REDIS_RULES_ARGS  16     /* of EVAL, at most */
#define NGX_RL_REDIS_RULES_HEAD  3      /* of them before the keys */
#define NGX_RL_REDIS_RULES_KEYS  2


struct ngx_rl_redis_control_s {
    ngx_rl_redis_client_t    *client;
    unsigned                  connected:1;  /* client has a way */

    /* without a listener nothing below is of use */

    ngx_queue_t               listeners;
    ngx_rl_redis_node_t      *subscriber;   /* NULL: none yet */
    ngx_uint_t                slot;         /* of the first listener's zone */
    ngx_msec_t                pinged_ms;
    ngx_msec_t                refused_ms;   /* if refused */
    unsigned                  refused:1;
    ngx_event_t               tick;
    ngx_event_t               notification; /* posted */
};


/* The calls' connection to whom to listen; NULL: that is not known yet. */
static ngx_rl_redis_node_t *
ngx_rl_redis_subscriber_target(ngx_rl_redis_control_t *control)
{
    ngx_queue_t            *q;
    ngx_rl_redis_client_t  *client;

    client = control->client;

    if (client->topology.slots == NULL) {
        q = ngx_queue_head(&client->nodes);
        return ngx_rl_redis_node_of(q);
    }

    ngx_rl_redis_topology_look(client);

    return client->topology.mapped ? client->topology.slots[control->slot]
                                   : NULL;
}


/* Whether the connection is of no use: it was refused, or the target moved. */
static ngx_uint_t
ngx_rl_redis_subscriber_moved(ngx_rl_redis_control_t *control,
    ngx_rl_redis_node_t *node, ngx_rl_redis_node_t *target)
{
    if (control->refused) {
        return 1;
    }

    return target
           && (target->conn.name.len != node->conn.name.len
               || ngx_memcmp(target->conn.name.data, node->conn.name.data,
                             node->conn.name.len)
                  != 0);
}


static void
ngx_rl_redis_subscriber_close(ngx_rl_redis_control_t *control)
{
    if (control->subscriber) {
        ngx_rl_redis_session_free(control->subscriber);
        control->subscriber = NULL;
    }
}


static void
ngx_rl_redis_subscriber_connect(ngx_rl_redis_control_t *control,
    ngx_rl_redis_node_t *target)
{
    if (control->refused
        && ngx_current_msec - control->refused_ms
           < NGX_RL_REDIS_REFUSED_MS)
    {
        return;
    }

    control->refused = 0;
    control->pinged_ms = ngx_current_msec;

    control->subscriber = ngx_rl_redis_node_get(control->client,
                                                &target->conn.host,
                                                NGX_RL_REDIS_LISTENS);
}


static void
ngx_rl_redis_subscriber_tick(ngx_event_t *ev)
{
    ngx_rl_redis_node_t     *node, *target;
    ngx_rl_redis_control_t  *control;

    static ngx_str_t  ping = ngx_string("PING");

    control = ev->data;

    if (ngx_exiting) {
        return;
    }

    target = ngx_rl_redis_subscriber_target(control);

    if (control->subscriber
        && ngx_rl_redis_subscriber_moved(control, control->subscriber,
                                         target))
    {
        ngx_rl_redis_subscriber_close(control);
    }

    node = control->subscriber;

    if (node == NULL && target) {
        ngx_rl_redis_subscriber_connect(control, target);

    } else if (node && node->conn.state == NGX_RL_REDIS_UP
               && ngx_current_msec - control->pinged_ms
                  >= NGX_RL_REDIS_PING_MS)
    {
        /* without memory the connection will be found dead */

        (void) ngx_rl_redis_command(node, NGX_RL_REDIS_PING, &ping, 1);
        control->pinged_ms = ngx_current_msec;
    }

    ngx_add_timer(ev, target ? NGX_RL_REDIS_TICK_MS : NGX_RL_REDIS_SOON_MS);
}


/* A handler may change the list. */
static void
ngx_rl_redis_subscriber_notify(ngx_event_t *ev)
{
    ngx_queue_t              *q;
    ngx_rl_redis_control_t   *control;
    ngx_rl_redis_listener_t  *listener;

    control = ev->data;
    q = ngx_queue_head(&control->listeners);

    while (q != ngx_queue_sentinel(&control->listeners)) {
        listener = ngx_queue_data(q, ngx_rl_redis_listener_t, queue);
        q = ngx_queue_next(q);

        if (listener->heard) {
            listener->heard = 0;
            listener->handler(listener->data);
            q = ngx_queue_head(&control->listeners);
        }
    }
}


ngx_rl_redis_control_t *
ngx_rl_redis_control_new(ngx_rl_redis_t *redis, ngx_cycle_t *cycle)
{
    ngx_rl_redis_control_t  *control;

    control = ngx_calloc(sizeof(ngx_rl_redis_control_t), cycle->log);
    if (control == NULL) {
        return NULL;
    }

    ngx_queue_init(&control->listeners);

    control->tick.handler = ngx_rl_redis_subscriber_tick;
    control->notification.handler = ngx_rl_redis_subscriber_notify;

    control->tick.data = control->notification.data = control;
    control->tick.log = control->notification.log = cycle->log;
    control->tick.cancelable = 1;

    control->client = ngx_rl_redis_client_new(redis, cycle, control);

    if (control->client == NULL) {
        ngx_free(control);
        return NULL;
    }

    return control;
}


void
ngx_rl_redis_control_free(ngx_rl_redis_control_t *control)
{
    if (control->tick.timer_set) {
        ngx_del_timer(&control->tick);
    }

    if (control->notification.posted) {
        ngx_delete_posted_event(&control->notification);
    }

    ngx_rl_redis_client_free(control->client);

    ngx_free(control);
}


/* With the first call, and not before. */
static ngx_int_t
ngx_rl_redis_control_connect(ngx_rl_redis_control_t *control)
{
    if (control->connected) {
        return NGX_OK;
    }

    if (ngx_rl_redis_client_connect(control->client) != NGX_OK) {
        return NGX_ERROR;
    }

    control->connected = 1;

    return NGX_OK;
}


/* Without a key the first slot that a node has. */
static ngx_uint_t
ngx_rl_redis_control_slot(ngx_rl_redis_control_t *control, const ngx_str_t *key)
{
    ngx_uint_t             slot;
    ngx_rl_redis_node_t  **slots;

    if (control->client->redis->mode != NGX_RL_REDIS_CLUSTER) {
        return 0;
    }

    if (key) {
        return ngx_rl_cluster_slot(key->data, key->len);
    }

    slots = control->client->topology.slots;

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
    ngx_rl_redis_call_t     *call;
    ngx_rl_redis_control_t  *control;

    control = redis->control;

    /* the slots are those of the client */

    if (ngx_rl_redis_control_connect(control) != NGX_OK) {
        return NULL;
    }

    call = ngx_rl_redis_command_new(control->client, NGX_RL_REDIS_CONTROL, args,
                                    nargs);
    if (call == NULL) {
        return NULL;
    }

    call->slot = ngx_rl_redis_control_slot(control, key ? &args[key] : NULL);

    ngx_rl_redis_call_start(call, handler, data);

    return call;
}


/* "<prefix>:{rules:<zone>}" */
static u_char *
ngx_rl_redis_control_key(u_char *p, const ngx_rl_redis_t *redis,
    const ngx_str_t *zone)
{
    p = ngx_cpymem(p, redis->prefix.data, redis->prefix.len);
    p = ngx_cpymem(p, ":{rules:", sizeof(":{rules:") - 1);
    p = ngx_cpymem(p, zone->data, zone->len);
    *p++ = '}';

    return p;
}


static ngx_uint_t
ngx_rl_redis_text_is(const ngx_str_t *text, const char *word)
{
    return text->len == ngx_strlen(word)
           && ngx_memcmp(text->data, word, text->len) == 0;
}


ngx_rl_redis_call_t *
ngx_rl_redis_control_rules(ngx_rl_redis_t *redis, const ngx_str_t *zone,
    const ngx_str_t *args, ngx_uint_t nargs, ngx_rl_redis_handler_pt handler,
    void *data)
{
    size_t                len;
    u_char               *key, *p;
    ngx_str_t             all[NGX_RL_REDIS_RULES_ARGS];
    ngx_uint_t            n, nkeys;
    ngx_rl_redis_call_t  *call;

    if (nargs > NGX_RL_REDIS_RULES_ARGS
                - NGX_RL_REDIS_RULES_HEAD
                - NGX_RL_REDIS_RULES_KEYS)
    {
        return NULL;
    }

    len = redis->prefix.len + zone->len + sizeof(":{rules:}:history") - 1;

    key = ngx_alloc(len, redis->client->log);
    if (key == NULL) {
        return NULL;
    }

    p = ngx_rl_redis_control_key(key, redis, zone);

    /*
     * While a hash slot moves, Redis refuses a command of two keys if one does
     * not exist, and a history may not. So "get", sent every few seconds, has
     * one key.
     */
    nkeys = ngx_rl_redis_text_is(&args[0], "get") ? 1 : 2;

    ngx_str_set(&all[0], "EVAL");
    all[1].data = (u_char *) ngx_rl_lua_rules;
    all[1].len = ngx_rl_lua_rules_len;
    all[2].data = (u_char *) ((nkeys == 1) ? "1" : "2");
    all[2].len = 1;

    all[3].data = key;
    all[3].len = p - key;

    p = ngx_cpymem(p, ":history", sizeof(":history") - 1);

    all[4].data = key;
    all[4].len = p - key;

    n = NGX_RL_REDIS_RULES_HEAD + nkeys;

    ngx_memcpy(&all[n], args, nargs * sizeof(ngx_str_t));

    call = ngx_rl_redis_control_call(redis, all, n + nargs,
                                     NGX_RL_REDIS_RULES_HEAD, handler, data);
    ngx_free(key);

    return call;
}


/* A connection has the channels that there were when it began. */
static void
ngx_rl_redis_subscriber_again(ngx_rl_redis_control_t *control)
{
    ngx_rl_redis_subscriber_close(control);
    control->refused = 0;

    if (ngx_queue_empty(&control->listeners)) {
        if (control->tick.timer_set) {
            ngx_del_timer(&control->tick);
        }

        return;
    }

    ngx_add_timer(&control->tick, 1);
}


/* The text holds "<prefix>:rules:<zone>", which is in no slot. */
ngx_int_t
ngx_rl_redis_listen(ngx_rl_redis_t *redis, const ngx_str_t *zone,
    ngx_rl_redis_listener_t *listener)
{
    u_char                  *text, *p;
    ngx_str_t                key;
    ngx_rl_redis_control_t  *control;

    control = redis->control;

    if (ngx_rl_redis_control_connect(control) != NGX_OK) {
        return NGX_ERROR;
    }

    text = ngx_alloc(redis->prefix.len + zone->len + sizeof(":{rules:}") - 1,
                     control->client->log);
    if (text == NULL) {
        return NGX_ERROR;
    }

    if (ngx_queue_empty(&control->listeners)) {
        key.data = text;
        key.len = ngx_rl_redis_control_key(text, redis, zone) - text;
        control->slot = ngx_rl_redis_control_slot(control, &key);
    }

    p = ngx_cpymem(text, redis->prefix.data, redis->prefix.len);
    p = ngx_cpymem(p, ":rules:", sizeof(":rules:") - 1);
    p = ngx_cpymem(p, zone->data, zone->len);

    listener->channel.data = text;
    listener->channel.len = p - text;
    listener->heard = 0;

    ngx_queue_insert_tail(&control->listeners, &listener->queue);
    ngx_rl_redis_subscriber_again(control);

    return NGX_OK;
}


void
ngx_rl_redis_unlisten(ngx_rl_redis_t *redis, ngx_rl_redis_listener_t *listener)
{
    if (listener->channel.data == NULL) {
        return;
    }

    ngx_queue_remove(&listener->queue);
    ngx_free(listener->channel.data);
    ngx_str_null(&listener->channel);

    if (ngx_queue_empty(&redis->control->listeners)) {
        ngx_rl_redis_subscriber_again(redis->control);
    }
}


ngx_int_t
ngx_rl_redis_control_subscribe(ngx_rl_redis_node_t *node)
{
    ngx_str_t                *args;
    ngx_int_t                 rc;
    ngx_uint_t                n;
    ngx_queue_t              *q, *listeners;
    ngx_rl_redis_listener_t  *listener;

    listeners = &node->client->control->listeners;
    n = 1;

    for (q = ngx_queue_head(listeners);
         q != ngx_queue_sentinel(listeners);
         q = ngx_queue_next(q))
    {
        n++;
    }

    args = ngx_alloc(n * sizeof(ngx_str_t), node->client->log);
    if (args == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&args[0], "SUBSCRIBE");
    n = 1;

    for (q = ngx_queue_head(listeners);
         q != ngx_queue_sentinel(listeners);
         q = ngx_queue_next(q))
    {
        listener = ngx_queue_data(q, ngx_rl_redis_listener_t, queue);
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
    ngx_str_t                word;
    ngx_rl_redis_control_t  *control;

    control = node->client->control;
    word = ngx_rl_redis_error_word(&node->reply);

    if (!ngx_rl_redis_text_is(&word, "NOPERM")) {
        ngx_rl_redis_reply_setup(node, "SUBSCRIBE");
        return;
    }

    ngx_rl_redis_node_log(node, NGX_RL_REDIS_LINE_LISTEN, 0, "",
                          " refuses messages of changed rules: ",
                          &word);

    control->refused = 1;
    control->refused_ms = ngx_current_msec;
}


void
ngx_rl_redis_control_heard(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_queue_t              *q;
    ngx_rl_redis_call_t      *next;
    ngx_rl_redis_reply_t     *reply;
    ngx_rl_redis_control_t   *control;
    ngx_rl_redis_listener_t  *listener;

    reply = &node->reply;
    control = node->client->control;

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

    if (ngx_rl_redis_text_is(&reply->texts[0], "pong")) {
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

        for (q = ngx_queue_head(&control->listeners);
             q != ngx_queue_sentinel(&control->listeners);
             q = ngx_queue_next(q))
        {
            listener = ngx_queue_data(q, ngx_rl_redis_listener_t, queue);

            if (listener->channel.len == reply->texts[1].len
                && ngx_memcmp(listener->channel.data, reply->texts[1].data,
                              listener->channel.len)
                   == 0)
            {
                listener->heard = 1;
            }
        }

        /* later: what the listener does may close this */

        ngx_post_event(&control->notification, &ngx_posted_events);
    }

    ngx_rl_redis_texts_free(reply);
}

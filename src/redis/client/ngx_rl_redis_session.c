/*
 * The owner of a node's connection: the first commands, and the end of calls
 * when it breaks.
 */

#include "ngx_rl_redis_client.h"

#include "ngx_rl_lua.h"

#define NGX_RL_REDIS_CLIENT_NAME  512   /* bytes of it, at most */
#define NGX_RL_REDIS_SENTINEL_MS  5000  /* not asked for so long */


/*
 * "ratelimit:<block>:<host>:<pid>", as CLIENT LIST shows it. Redis takes
 * printable characters alone.
 */
static ngx_int_t
ngx_rl_redis_session_name(ngx_rl_redis_node_t *node)
{
    u_char     name[NGX_RL_REDIS_CLIENT_NAME], *p, *last;
    ngx_str_t  args[3];

    last = ngx_slprintf(name, name + sizeof(name), "ratelimit:%V:%V:%P",
                        &node->client->redis->name,
                        (ngx_str_t *) &ngx_cycle->hostname, ngx_pid);

    for (p = name; p < last; p++) {
        if (*p <= ' ' || *p > '~') {
            *p = '_';
        }
    }

    ngx_str_set(&args[0], "CLIENT");
    ngx_str_set(&args[1], "SETNAME");
    args[2].data = name;
    args[2].len = last - name;

    return ngx_rl_redis_command(node, NGX_RL_REDIS_SETNAME,
                                args, 3)
           ? NGX_OK : NGX_ERROR;
}


void
ngx_rl_redis_session_load(ngx_rl_redis_node_t *node)
{
    ngx_str_t  args[3];

    ngx_str_set(&args[0], "SCRIPT");
    ngx_str_set(&args[1], "LOAD");
    args[2].data = (u_char *) ngx_rl_lua_check;
    args[2].len = ngx_rl_lua_check_len;

    node->loading = (ngx_rl_redis_command(node,
                         NGX_RL_REDIS_LOAD, args, 3)
                     != NULL);
}


/*
 * The first commands. No caller waits for the replies. A sentinel has a user of
 * its own, no databases and no scripts. A connection that listens needs
 * neither.
 */
static ngx_int_t
ngx_rl_redis_session_open(ngx_rl_redis_conn_t *conn)
{
    u_char                  digits[NGX_INT64_LEN];
    ngx_str_t               args[2];
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_kind_e     kind;
    ngx_rl_redis_client_t  *client;

    node = conn->data;
    client = node->client;

    node->reader = ngx_rl_redis_reader_new(&node->reply);

    if (node->reader == NULL
        || ngx_rl_redis_auth_send(node, NGX_RL_REDIS_AUTH)
           != NGX_OK
        || ngx_rl_redis_session_name(node) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (node->role == NGX_RL_REDIS_ASKS_MASTER) {
        return NGX_OK;
    }

    if (node->role == NGX_RL_REDIS_LISTENS) {
        return ngx_rl_redis_control_subscribe(node);
    }

    if (client->redis->mode == NGX_RL_REDIS_CLUSTER) {
        ngx_str_set(&args[0], "CLUSTER");
        ngx_str_set(&args[1], "MYID");

        if (ngx_rl_redis_command(node, NGX_RL_REDIS_MYID, args, 2) == NULL) {
            return NGX_ERROR;
        }
    }

    if (client->redis->database) {
        kind = NGX_RL_REDIS_SELECT;
        ngx_str_set(&args[0], "SELECT");
        args[1].data = digits;
        args[1].len = ngx_sprintf(digits, "%ui", client->redis->database)
                      - digits;

        if (ngx_rl_redis_command(node, kind, args, 2) == NULL) {
            return NGX_ERROR;
        }
    }

    /* without memory NOSCRIPT will ask for it again */

    if (!client->control) {
        ngx_rl_redis_session_load(node);
    }

    return NGX_OK;
}


static void
ngx_rl_redis_session_up(ngx_rl_redis_conn_t *conn)
{
    ngx_rl_redis_node_t  *node;

    node = conn->data;
    node->vain = 0;

    ngx_rl_redis_node_up(node);
    ngx_rl_redis_topology_up(node);
}


static void
ngx_rl_redis_session_recovered(ngx_rl_redis_conn_t *conn)
{
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;

    node = conn->data;
    client = node->client;

    if (client->control) {
        return;
    }

    ngx_rl_redis_count(client->redis->shared->reconnects);
    ngx_rl_redis_log(client, node->place ? &node->place->notices : &node->lines,
                     NGX_RL_LOG_MS, NGX_LOG_NOTICE, 0, "connected to %V again",
                     &conn->name);
}


static void
ngx_rl_redis_session_failed(ngx_rl_redis_conn_t *conn, ngx_err_t err,
    const char *reason)
{
    ngx_str_t  why;

    why.data = (u_char *) reason;
    why.len = ngx_strlen(reason);

    ngx_rl_redis_node_log(conn->data, NGX_RL_REDIS_LINE_BROKEN,
                          err, "no connection to ", ": ", &why);
}


/*
 * Ends the calls of a connection that broke. A call that was written may have
 * run: it is never sent again. keeps: calls that were not written are sent over
 * the next connection.
 */
static void
ngx_rl_redis_session_drop(ngx_rl_redis_node_t *node, ngx_uint_t keeps)
{
    ngx_queue_t          *q, *next;
    ngx_rl_redis_call_t  *call;

    for (q = ngx_queue_head(&node->conn.requests);
         q != ngx_queue_sentinel(&node->conn.requests);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_rl_redis_call_of(q);

        if (call->kind > NGX_RL_REDIS_CONTROL) {
            ngx_rl_redis_call_remove(call);
            ngx_rl_redis_call_free(call);

        } else if (call->request.written) {
            ngx_rl_redis_call_remove(call);
            ngx_rl_redis_breaker_cut(call);
            ngx_rl_redis_call_fail(call, NGX_RL_REDIS_LOST);

        } else if (!keeps) {
            ngx_rl_redis_call_remove(call);
            ngx_rl_redis_breaker_unsent(call, node);
            ngx_rl_redis_call_fail(call, NGX_RL_REDIS_UNREACHABLE);

        } else if (call->asking) {

            /* its ASKING is gone: the slot's owner says it again */

            ngx_rl_redis_call_remove(call);
            ngx_rl_redis_breaker_neutral(call);
            call->asking = 0;
            ngx_rl_redis_again(call);
        }
    }
}


static void
ngx_rl_redis_session_closed(ngx_rl_redis_conn_t *conn, ngx_rl_redis_state_e was,
    ngx_uint_t keeps)
{
    ngx_rl_redis_node_t  *node;

    node = conn->data;
    node->loading = 0;
    ngx_memzero(node->own_id, sizeof(node->own_id));

    if (node->reader) {
        ngx_rl_redis_reader_free(node->reader, &node->reply);
        node->reader = NULL;
    }

    if (was == NGX_RL_REDIS_UP) {
        node->lost_ms = ngx_current_msec;
    }

    ngx_rl_redis_session_drop(node, keeps);

    ngx_rl_redis_breaker_lost(node, was == NGX_RL_REDIS_UP && !node->stranger);

    ngx_rl_redis_refresh(node->client);
}


void
ngx_rl_redis_session_free(ngx_rl_redis_node_t *node)
{
    ngx_queue_t          *q;
    ngx_rl_redis_call_t  *call;

    while (!ngx_queue_empty(&node->conn.requests)) {
        q = ngx_queue_head(&node->conn.requests);
        call = ngx_rl_redis_call_of(q);
        ngx_rl_redis_call_remove(call);
        ngx_rl_redis_call_free(call);
    }

    ngx_rl_redis_node_free(node);
}


static ngx_uint_t
ngx_rl_redis_session_used(ngx_rl_redis_conn_t *conn)
{
    ngx_uint_t                used;
    ngx_rl_redis_node_t      *node;
    ngx_rl_redis_topology_t  *topology;

    node = conn->data;
    topology = &node->client->topology;

    if (node->role == NGX_RL_REDIS_ASKS_MASTER) {
        used = ngx_current_msec - node->used_ms <= NGX_RL_REDIS_SENTINEL_MS;

        /* nobody releases a sentinel: it is looked at again */

        if (used) {
            ngx_rl_redis_conn_release(conn);
        }

    } else {
        used = node->role == NGX_RL_REDIS_LISTENS
               || topology->slots == NULL || !topology->mapped || node->owned;
    }

    if (used && node->stranger && conn->state == NGX_RL_REDIS_UP) {

        /* its name may lead elsewhere by now */

        ngx_rl_redis_conn_break(conn, 0, NGX_RL_REDIS_STRANGER);
        return 0;
    }

    if (used) {
        return 1;
    }

    ngx_rl_redis_session_free(node);

    return 0;
}


const ngx_rl_redis_owner_t  ngx_rl_redis_session = {
    ngx_rl_redis_session_open,
    ngx_rl_redis_session_up,
    ngx_rl_redis_reply_feed,
    ngx_rl_redis_session_recovered,
    ngx_rl_redis_session_failed,
    ngx_rl_redis_session_closed,
    ngx_rl_redis_session_used
};

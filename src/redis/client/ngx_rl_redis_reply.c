/*
 * Replies and the calls that they answer. Replies come in the order of the
 * calls, so each answers the head of its connection's queue.
 */

#include "ngx_rl_redis_client.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#define NGX_RL_REDIS_MAX_REDIRECTS  5     /* of one call */
#define NGX_RL_REDIS_STAY_MS        1000  /* connected to a replica */


/*
 * The form of a kind's reply. An error has the command's name: it breaks the
 * connection, or is logged alone. What is not here takes any reply, as values.
 */
static const struct {
    ngx_rl_redis_form_e  form;
    const char          *command;
    unsigned             breaks:1;
} ngx_rl_redis_kinds[] = {
    [NGX_RL_REDIS_CONTROL] = { NGX_RL_REDIS_FORM_TEXTS, NULL, 0 },
    [NGX_RL_REDIS_LISTEN] = { NGX_RL_REDIS_FORM_TEXTS, NULL, 0 },
    [NGX_RL_REDIS_AUTH] = { NGX_RL_REDIS_FORM_VALUES, "AUTH", 1 },
    [NGX_RL_REDIS_REAUTH] = { NGX_RL_REDIS_FORM_VALUES, "AUTH", 0 },
    [NGX_RL_REDIS_SELECT] = { NGX_RL_REDIS_FORM_VALUES, "SELECT", 1 },
    [NGX_RL_REDIS_LOAD] = { NGX_RL_REDIS_FORM_VALUES, "SCRIPT LOAD", 0 },
    [NGX_RL_REDIS_SLOTS] = { NGX_RL_REDIS_FORM_SLOTS, NULL, 0 },
    [NGX_RL_REDIS_MASTER] = { NGX_RL_REDIS_FORM_TEXTS, NULL, 0 }
};


/*
 * Alone for what would be healed, but that the deadline passed: nobody waits
 * for it, or its maker makes another.
 */
static void
ngx_rl_redis_error_end(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_result_t  result;

    ngx_memzero(&result, sizeof(ngx_rl_redis_result_t));
    result.status = node->reply.error;
    result.ran = call->request.written;

    ngx_rl_redis_call_finish(call, &result);
}


/* Fails the call and leaves the connection. */
static void
ngx_rl_redis_error_refused(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    if (!ngx_rl_redis_call_quiet(call)) {
        ngx_rl_redis_node_log_reply(node, "a check");
    }

    ngx_rl_redis_breaker_report(call, NGX_RL_BREAKER_FAILED, node->reply.error);
    ngx_rl_redis_error_end(node, call);
}


/* MOVED and ASK: another node has the slot, or has it soon. */
static void
ngx_rl_redis_error_redirect(ngx_rl_redis_node_t *node,
    ngx_rl_redis_call_t *call)
{
    ngx_uint_t              slot, moved;
    ngx_rl_redis_node_t    *to;
    ngx_rl_redis_client_t  *client;

    ngx_rl_redis_breaker_neutral(call);

    client = node->client;
    moved = (node->reply.error == NGX_RL_REDIS_MOVED);
    to = NULL;
    slot = 0;

    if (client->redis->mode == NGX_RL_REDIS_CLUSTER) {

        if (moved) {
            ngx_rl_redis_refresh(client);
        }

        to = ngx_rl_redis_redirect(node, &slot);
    }

    if (to && moved) {
        ngx_rl_redis_slot_set(client, slot, to);
        client->topology.moved = 1;
    }

    if (to == NULL || call->redirects == NGX_RL_REDIS_MAX_REDIRECTS) {
        ngx_rl_redis_error_refused(node, call);
        return;
    }

    if (call->life != NGX_RL_REDIS_WAITED) {
        ngx_rl_redis_error_end(node, call);
        return;
    }

    call->redirects++;
    call->asking = !moved;
    call->reloaded = 0;

    ngx_rl_redis_call_send(call, to);
}


/*
 * A slot is half moved: asking again at once would only spin. From now on the
 * call waits for the slot, so no breaker counts it, and its deadline stays. Its
 * redirects begin anew: the owner may say ASK each time, until the slot has
 * moved.
 */
static void
ngx_rl_redis_error_tryagain(ngx_rl_redis_node_t *node,
    ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_breaker_neutral(call);

    if (call->life != NGX_RL_REDIS_WAITED) {
        ngx_rl_redis_error_end(node, call);
        return;
    }

    if (call->kind == NGX_RL_REDIS_CHECK) {
        call->kind = NGX_RL_REDIS_UNASKED;
    }

    call->asking = 0;
    call->delayed = 1;
    call->redirects = 0;
    ngx_rl_redis_again(call);
}


/*
 * The script goes to the queue's end and the call behind it, as do all calls
 * that were sent before the first NOSCRIPT came.
 */
static void
ngx_rl_redis_error_noscript(ngx_rl_redis_node_t *node,
    ngx_rl_redis_call_t *call)
{
    if (!call->reloaded && !node->loading) {
        ngx_rl_redis_session_load(node);
    }

    if (call->reloaded || !node->loading) {
        ngx_rl_redis_error_refused(node, call);
        return;
    }

    if (call->life != NGX_RL_REDIS_WAITED) {
        ngx_rl_redis_error_end(node, call);
        return;
    }

    call->reloaded = 1;
    ngx_rl_redis_call_queue(call, node);
}


/* An error fails the call, or has it sent once more. */
static void
ngx_rl_redis_error(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_uint_t              ran;
    ngx_rl_redis_status_e   status;
    ngx_rl_redis_client_t  *client;

    client = node->client;

    status = ngx_rl_redis_error_status(&node->reply, &ran);

    node->reply.error = status;
    call->request.written = ran;

    if (!ngx_rl_redis_call_quiet(call)) {
        ngx_rl_redis_count(ngx_rl_redis_counts(
                                    client->redis->shared)->replies[status]);
    }

    switch (status) {

    case NGX_RL_REDIS_MOVED:
    case NGX_RL_REDIS_ASK:
        ngx_rl_redis_error_redirect(node, call);
        return;

    case NGX_RL_REDIS_TRYAGAIN:
        ngx_rl_redis_error_tryagain(node, call);
        return;

    case NGX_RL_REDIS_NOSCRIPT:
        ngx_rl_redis_error_noscript(node, call);
        return;

    case NGX_RL_REDIS_CLUSTERDOWN:
    case NGX_RL_REDIS_MASTERDOWN:
    case NGX_RL_REDIS_READONLY:

        /* the slot may have another owner, or soon get one */

        ngx_rl_redis_refresh(client);
        break;

    case NGX_RL_REDIS_WRONGTYPE:

        /* something else stands under that key: the node is well */

        ngx_rl_redis_breaker_neutral(call);
        break;

    default:
        break;
    }

    ngx_rl_redis_error_refused(node, call);

    if (status == NGX_RL_REDIS_NOAUTH) {

        /* a new connection authenticates anew */

        ngx_rl_redis_conn_break(&node->conn, 0, "a check answered NOAUTH");
    }

    /*
     * Without a map it is the host's name that has to lead elsewhere, or
     * another of its addresses: a new connection finds out, but not each call
     * makes one.
     */

    if ((status == NGX_RL_REDIS_MASTERDOWN || status == NGX_RL_REDIS_READONLY)
        && client->topology.slots == NULL
        && node->conn.host.naddrs != 1
        && ngx_current_msec - node->conn.up_ms >= NGX_RL_REDIS_STAY_MS)
    {
        ngx_rl_redis_conn_break(&node->conn, 0, "it is not the primary");
    }
}


/* How long a call of the check script took; late ones, too. */
static void
ngx_rl_redis_reply_time(ngx_rl_redis_node_t *node,
    const ngx_rl_redis_call_t *call)
{
    /* without a time it counts as written since its ASKING was */

    if (call->kind > NGX_RL_REDIS_UNDO || node->place == NULL
        || call->request.written_us == 0)
    {
        return;
    }

    /* once for all replies that came together */

    if (node->read_us == 0) {
        node->read_us = ngx_rl_clock_us();
    }

    ngx_rl_redis_time(node->client->redis->shared, node->place,
                      node->read_us - call->request.written_us);
}


/*
 * A check is answered with integers, a command of the control client with texts
 * or one value.
 */
static void
ngx_rl_redis_reply_call(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_uint_t              texts;
    ngx_rl_redis_reply_t   *reply;
    ngx_rl_redis_result_t   result;

    reply = &node->reply;
    texts = (call->kind == NGX_RL_REDIS_CONTROL);

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_rl_redis_error(node, call);

    } else if (reply->type == REDIS_REPLY_ARRAY ? !reply->flat : !texts) {

        /*
         * Calls and replies are out of step, and no later reply of this
         * connection can be trusted either.
         */

        ngx_rl_redis_call_fail(call, NGX_RL_REDIS_PROTOCOL);
        ngx_rl_redis_conn_break(&node->conn, 0, "a reply of another call");

    } else {
        ngx_rl_redis_conn_recovered(&node->conn);
        ngx_rl_redis_breaker_report(call, NGX_RL_BREAKER_GOOD, NGX_RL_REDIS_OK);
        ngx_rl_redis_reply_time(node, call);

        ngx_memzero(&result, sizeof(ngx_rl_redis_result_t));
        result.status = NGX_RL_REDIS_OK;
        result.ran = 1;
        result.n = texts ? reply->ntexts : reply->n;
        result.values = reply->values;
        result.texts = reply->texts;

        ngx_rl_redis_call_finish(call, &result);
    }

    if (texts) {
        ngx_rl_redis_texts_free(reply);
    }
}


void
ngx_rl_redis_reply_setup(ngx_rl_redis_node_t *node, const char *command)
{
    ngx_str_t  text;
    u_char     buf[NGX_RL_REDIS_ERROR_TEXT];
    u_char     reason[sizeof("SUBSCRIBE answered ") + NGX_RL_REDIS_ERROR_TEXT];

    text = ngx_rl_redis_node_error(node, buf);
    *ngx_snprintf(reason, sizeof(reason) - 1, "%s answered %V", command,
                  &text) = 0;

    ngx_rl_redis_conn_break(&node->conn, 0, (char *) reason);
}


/*
 * A server that is no node of any Cluster says so by an error. One that tells
 * no id for another reason, as a missing right, is not checked.
 */
static void
ngx_rl_redis_reply_myid(ngx_rl_redis_node_t *node)
{
    ngx_rl_redis_reply_t  *reply;

    static const char  disabled[] = "cluster support disabled";

    reply = &node->reply;

    if (reply->type != REDIS_REPLY_ERROR) {
        if (reply->text_len == NGX_RL_SLOT_MAP_ID) {
            ngx_memcpy(node->own_id, reply->text, NGX_RL_SLOT_MAP_ID);
        }

    } else if (memmem(reply->text, reply->text_len, disabled,
                      sizeof(disabled) - 1))
    {
        ngx_memset(node->own_id, '-', NGX_RL_SLOT_MAP_ID);

    } else {
        ngx_rl_redis_node_log_reply(node, "CLUSTER MYID");
    }

    ngx_rl_redis_node_known(node);
}


static void
ngx_rl_redis_reply_command(ngx_rl_redis_node_t *node, ngx_rl_redis_kind_e kind,
    ngx_uint_t current)
{
    ngx_uint_t   error;
    const char  *command;

    error = (node->reply.type == REDIS_REPLY_ERROR);
    command = ngx_rl_redis_kinds[kind].command;

    if (error && ngx_rl_redis_kinds[kind].breaks) {
        ngx_rl_redis_reply_setup(node, command);

    } else if (error && command) {
        ngx_rl_redis_node_log_reply(node, command);
    }

    switch (kind) {

    case NGX_RL_REDIS_MYID:
        ngx_rl_redis_reply_myid(node);
        return;

    case NGX_RL_REDIS_LOAD:
        node->loading = 0;
        node->conn.unfit |= error;
        node->conn.good |= !error;
        return;

    case NGX_RL_REDIS_SLOTS:
    case NGX_RL_REDIS_MASTER:
        ngx_rl_redis_topology_reply(node, current);
        ngx_rl_redis_ranges_free(&node->reply);
        ngx_rl_redis_texts_free(&node->reply);
        ngx_rl_redis_unmapped_route(node->client);
        return;

    default:
        return;
    }
}


static void
ngx_rl_redis_reply(ngx_rl_redis_node_t *node, ngx_rl_redis_call_t *call)
{
    ngx_uint_t              current;
    ngx_rl_redis_kind_e     kind;
    ngx_rl_breaker_reply_e  how;

    ngx_rl_redis_call_remove(call);

    kind = call->kind;
    how = NGX_RL_BREAKER_REPLY_ERROR;

    /*
     * Whether it came in time, and whether it shows that the node does its
     * work. A call whose request still waits is in time: the worker was slow.
     */

    if ((call->life != NGX_RL_REDIS_WAITED || node->client->control)
        && ngx_current_msec - call->request.since_ms
           >= node->client->redis->timeout)
    {
        how = NGX_RL_BREAKER_REPLY_LATE;

    } else if ((kind <= NGX_RL_REDIS_PROBE
                && node->reply.type == REDIS_REPLY_ARRAY)
               || (kind == NGX_RL_REDIS_LOAD
                   && node->reply.type != REDIS_REPLY_ERROR))
    {
        how = NGX_RL_BREAKER_REPLY_GOOD;
    }

    ngx_rl_redis_breaker_heard(node, how);

    if (kind <= NGX_RL_REDIS_CONTROL) {
        ngx_rl_redis_reply_call(node, call);

    } else if (kind == NGX_RL_REDIS_LISTEN) {
        ngx_rl_redis_control_heard(node, call);

    } else {
        current = (call == node->client->topology.question);
        ngx_rl_redis_call_free(call);
        ngx_rl_redis_reply_command(node, kind, current);
    }
}


const char *
ngx_rl_redis_reply_feed(ngx_rl_redis_conn_t *conn, u_char *data, size_t len)
{
    ngx_int_t                rc;
    ngx_rl_redis_call_t     *call;
    ngx_rl_redis_node_t     *node;
    ngx_rl_redis_request_t  *head;

    node = conn->data;
    node->read_us = 0;

    ngx_rl_redis_reader_feed(node->reader, data, len);

    do {
        head = ngx_rl_redis_conn_head(conn);

        /* the call that the next reply is for must be written whole */

        if (head == NULL || &head->queue == conn->next) {
            return ngx_rl_redis_reader_left(node->reader)
                   ? "a reply to no call" : NULL;
        }

        call = (ngx_rl_redis_call_t *) head;

        rc = ngx_rl_redis_reader_next(node->reader, &node->reply,
                                      ngx_rl_redis_kinds[call->kind].form);

        if (rc == NGX_AGAIN) {

            /* a map that takes long to come is no silence */

            if (call->kind == NGX_RL_REDIS_SLOTS && node->reply.bytes) {
                head->since_ms = ngx_current_msec;
            }

            return NULL;
        }

        if (rc == NGX_ERROR) {
            return "a broken or too large reply";
        }

        ngx_rl_redis_reply(node, call);

    } while (conn->connection);

    return NULL;
}

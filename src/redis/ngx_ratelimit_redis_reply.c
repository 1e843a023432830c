/*
 * What each reply means. Replies come in the order of the calls, so each
 * answers the head of its connection's queue.
 */

#include "ngx_ratelimit_redis_int.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>


static ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_conn_head(
    ngx_ratelimit_redis_conn_t *conn);
static ngx_ratelimit_redis_form_e ngx_ratelimit_redis_form(
    ngx_ratelimit_redis_kind_e kind);
static void ngx_ratelimit_redis_reply(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static ngx_uint_t ngx_ratelimit_redis_reply_good(
    const ngx_ratelimit_redis_conn_t *conn,
    const ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_reply_load(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_reply_eval(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_reply_control(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_reply_failed(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);


const char *
ngx_ratelimit_redis_conn_feed(ngx_ratelimit_redis_conn_t *conn, u_char *data,
    size_t len)
{
    ngx_int_t                    rc;
    ngx_ratelimit_redis_call_t  *call;

    if (ngx_ratelimit_redis_reader_feed(conn->reader, data, len) != NGX_OK) {
        return "no memory";
    }

    do {
        call = ngx_ratelimit_redis_conn_head(conn);

        if (call == NULL) {
            return ngx_ratelimit_redis_reader_left(conn->reader)
                   ? "a reply to no call" : NULL;
        }

        rc = ngx_ratelimit_redis_reader_next(conn->reader, &conn->reply,
                                         ngx_ratelimit_redis_form(call->kind));

        if (rc == NGX_AGAIN) {

            /* a map that takes long to come is no silence */

            if (call->kind == NGX_RATELIMIT_REDIS_SLOTS && conn->reply.bytes) {
                call->since_ms = ngx_current_msec;
                call->partly = 1;
            }

            return NULL;
        }

        if (rc == NGX_ERROR) {
            return "a broken or too large reply";
        }

        ngx_ratelimit_redis_reply(conn, call);

    } while (conn->connection);

    return NULL;
}


/* The call that the next reply is for: it must be written whole. */

static ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_conn_head(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_queue_t  *q;

    q = ngx_queue_head(&conn->calls);

    if (q == ngx_queue_sentinel(&conn->calls) || q == conn->next) {
        return NULL;
    }

    return ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);
}


static ngx_ratelimit_redis_form_e
ngx_ratelimit_redis_form(ngx_ratelimit_redis_kind_e kind)
{
    switch (kind) {

    case NGX_RATELIMIT_REDIS_SLOTS:
        return NGX_RATELIMIT_REDIS_FORM_SLOTS;

    case NGX_RATELIMIT_REDIS_MASTER:
    case NGX_RATELIMIT_REDIS_CONTROL:
    case NGX_RATELIMIT_REDIS_LISTEN:
        return NGX_RATELIMIT_REDIS_FORM_TEXTS;

    default:
        return NGX_RATELIMIT_REDIS_FORM_VALUES;
    }
}


static void
ngx_ratelimit_redis_reply(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_uint_t  current;

    ngx_ratelimit_redis_conn_remove(call);
    ngx_ratelimit_redis_breaker_heard(conn,
                                   ngx_ratelimit_redis_reply_good(conn, call));

    if (call->kind == NGX_RATELIMIT_REDIS_EVAL) {
        ngx_ratelimit_redis_reply_eval(conn, call);
        return;
    }

    current = (call == conn->client->refresh);

    switch (call->kind) {

    case NGX_RATELIMIT_REDIS_CONTROL:
        ngx_ratelimit_redis_reply_control(conn, call);
        return;

    case NGX_RATELIMIT_REDIS_LISTEN:
        ngx_ratelimit_redis_control_heard(conn, call);
        return;

    case NGX_RATELIMIT_REDIS_AUTH:
        ngx_ratelimit_redis_call_free(call);
        ngx_ratelimit_redis_reply_setup(conn, "AUTH");
        return;

    case NGX_RATELIMIT_REDIS_REAUTH:
        ngx_ratelimit_redis_call_free(call);

        /* where it is refused the connection stays who it was */

        if (conn->reply.type == REDIS_REPLY_ERROR) {
            ngx_ratelimit_redis_log_reply(conn, "AUTH");
        }

        return;

    case NGX_RATELIMIT_REDIS_ASKING:
    case NGX_RATELIMIT_REDIS_SETNAME:
        ngx_ratelimit_redis_call_free(call);
        return;

    case NGX_RATELIMIT_REDIS_SELECT:
        ngx_ratelimit_redis_call_free(call);
        ngx_ratelimit_redis_reply_setup(conn, "SELECT");
        return;

    case NGX_RATELIMIT_REDIS_LOAD:
        ngx_ratelimit_redis_call_free(call);
        ngx_ratelimit_redis_reply_load(conn);
        return;

    default: /* NGX_RATELIMIT_REDIS_SLOTS, NGX_RATELIMIT_REDIS_MASTER */
        ngx_ratelimit_redis_call_free(call);
        ngx_ratelimit_redis_topology_reply(conn, current);
        ngx_ratelimit_redis_ranges_free(&conn->reply);
        ngx_ratelimit_redis_texts_free(&conn->reply);
        return;
    }
}


/* Whether the node does what it is told: not all that it answers shows it. */

static ngx_uint_t
ngx_ratelimit_redis_reply_good(const ngx_ratelimit_redis_conn_t *conn,
    const ngx_ratelimit_redis_call_t *call)
{
    return (call->kind == NGX_RATELIMIT_REDIS_EVAL
            && conn->reply.type == REDIS_REPLY_ARRAY)
           || (call->kind == NGX_RATELIMIT_REDIS_LOAD
               && conn->reply.type != REDIS_REPLY_ERROR);
}


static void
ngx_ratelimit_redis_reply_load(ngx_ratelimit_redis_conn_t *conn)
{
    conn->loading = 0;

    if (conn->reply.type == REDIS_REPLY_ERROR) {
        ngx_ratelimit_redis_log_reply(conn, "SCRIPT LOAD");
        return;
    }

    conn->good = 1;
}


static void
ngx_ratelimit_redis_reply_eval(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_reply_t   *reply;
    ngx_ratelimit_redis_result_t   result;

    reply = &conn->reply;

    if (reply->type == REDIS_REPLY_ARRAY && reply->flat) {
        ngx_ratelimit_redis_conn_recovered(conn);
        ngx_ratelimit_redis_breaker_report(call, NGX_RATELIMIT_BREAKER_GOOD,
                                           NGX_RATELIMIT_REDIS_OK);

        ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));
        result.status = NGX_RATELIMIT_REDIS_OK;
        result.ran = 1;
        result.n = reply->n;
        result.values = reply->values;

        ngx_ratelimit_redis_call_finish(call, &result);
        return;
    }

    ngx_ratelimit_redis_reply_failed(conn, call);
}


static void
ngx_ratelimit_redis_reply_control(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_reply_t   *reply;
    ngx_ratelimit_redis_result_t   result;

    reply = &conn->reply;

    if (reply->type == REDIS_REPLY_ERROR
        || (reply->type == REDIS_REPLY_ARRAY && !reply->flat))
    {
        ngx_ratelimit_redis_reply_failed(conn, call);
        ngx_ratelimit_redis_texts_free(reply);
        return;
    }

    ngx_ratelimit_redis_conn_recovered(conn);

    ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));
    result.status = NGX_RATELIMIT_REDIS_OK;
    result.ran = 1;
    result.n = reply->ntexts;
    result.texts = reply->texts;

    ngx_ratelimit_redis_call_finish(call, &result);

    ngx_ratelimit_redis_texts_free(reply);
}


/* An error, or what is no answer to that call. */

static void
ngx_ratelimit_redis_reply_failed(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    if (conn->reply.type != REDIS_REPLY_ERROR) {

        /*
         * Not the script's: calls and replies are out of step, and no later
         * reply of this connection can be trusted either.
         */

        ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_PROTOCOL);
        ngx_ratelimit_redis_conn_break(conn, 0, "a reply of another call");
        return;
    }

    ngx_ratelimit_redis_error(conn, call);
}

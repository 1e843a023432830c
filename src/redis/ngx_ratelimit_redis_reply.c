/*
 * What each reply means. Replies come in the order of the calls, so each
 * answers the head of its connection's queue.
 */

#include "ngx_ratelimit_redis_int.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>


#define NGX_RATELIMIT_REDIS_MAX_WORD  32   /* of an error, in the log */


typedef void (*ngx_ratelimit_redis_error_pt)(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);

typedef struct {
    ngx_str_t                     word;
    ngx_ratelimit_redis_error_pt  handler;
} ngx_ratelimit_redis_error_t;


static ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_conn_head(
    ngx_ratelimit_redis_conn_t *conn);
static ngx_ratelimit_redis_form_e ngx_ratelimit_redis_form(
    ngx_ratelimit_redis_kind_e kind);
static void ngx_ratelimit_redis_reply(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_reply_auth(ngx_ratelimit_redis_conn_t *conn);
static void ngx_ratelimit_redis_reply_eval(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static ngx_str_t ngx_ratelimit_redis_word(
    ngx_ratelimit_redis_reply_t *reply);

static void ngx_ratelimit_redis_error_refused(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_stale(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_noscript(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_moved(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_ask(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_tryagain(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_follow(ngx_ratelimit_redis_conn_t *from,
    ngx_ratelimit_redis_conn_t *to, ngx_ratelimit_redis_call_t *call,
    ngx_uint_t asking);


/*
 * In the order of ngx_ratelimit_redis_status_e, from MOVED on. What is refused
 * fails the call and leaves the connection.
 */
static const ngx_ratelimit_redis_error_t  ngx_ratelimit_redis_errors[] = {
    { ngx_string("MOVED"), ngx_ratelimit_redis_error_moved },
    { ngx_string("ASK"), ngx_ratelimit_redis_error_ask },
    { ngx_string("TRYAGAIN"), ngx_ratelimit_redis_error_tryagain },
    { ngx_string("CLUSTERDOWN"), ngx_ratelimit_redis_error_stale },
    { ngx_string("MASTERDOWN"), ngx_ratelimit_redis_error_stale },
    { ngx_string("LOADING"), ngx_ratelimit_redis_error_refused },
    { ngx_string("READONLY"), ngx_ratelimit_redis_error_stale },
    { ngx_string("NOSCRIPT"), ngx_ratelimit_redis_error_noscript },
    { ngx_string("BUSY"), ngx_ratelimit_redis_error_refused },
    { ngx_string("OOM"), ngx_ratelimit_redis_error_refused },
    { ngx_string("MISCONF"), ngx_ratelimit_redis_error_refused },
    { ngx_string("NOREPLICAS"), ngx_ratelimit_redis_error_refused },
    { ngx_string("NOAUTH"), ngx_ratelimit_redis_error_refused },
    { ngx_string("NOPERM"), ngx_ratelimit_redis_error_refused },
    { ngx_string("WRONGTYPE"), ngx_ratelimit_redis_error_refused },
    { ngx_null_string, ngx_ratelimit_redis_error_refused }
};

/* in the order of ngx_ratelimit_redis_status_e */
static const ngx_str_t  ngx_ratelimit_redis_status_names[] = {
    ngx_string("ok"),
    ngx_string("open"),
    ngx_string("unreachable"),
    ngx_string("timeout"),
    ngx_string("lost"),
    ngx_string("protocol"),
    ngx_string("moved"),
    ngx_string("ask"),
    ngx_string("tryagain"),
    ngx_string("clusterdown"),
    ngx_string("masterdown"),
    ngx_string("loading"),
    ngx_string("readonly"),
    ngx_string("noscript"),
    ngx_string("busy"),
    ngx_string("oom"),
    ngx_string("misconf"),
    ngx_string("noreplicas"),
    ngx_string("noauth"),
    ngx_string("noperm"),
    ngx_string("wrongtype"),
    ngx_string("error")
};


const ngx_str_t *
ngx_ratelimit_redis_status_name(ngx_ratelimit_redis_status_e status)
{
    return &ngx_ratelimit_redis_status_names[status];
}


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
            return NULL;
        }

        if (rc == NGX_ERROR) {
            return "a broken or too large reply";
        }

        ngx_ratelimit_redis_reply(conn, call);

    } while (conn->connection);

    return NULL;
}


/*
 * The call that the next reply is for. It must be written whole; of one that
 * is not, ASKING may be, which has a reply of its own.
 */

static ngx_ratelimit_redis_call_t *
ngx_ratelimit_redis_conn_head(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_call_t  *call;

    q = ngx_queue_head(&conn->calls);

    if (q == ngx_queue_sentinel(&conn->calls)) {
        return NULL;
    }

    call = ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue);

    if (q != conn->next
        || (call->skip
            && conn->offset >= sizeof(NGX_RATELIMIT_REDIS_ASKING) - 1))
    {
        return call;
    }

    return NULL;
}


static ngx_ratelimit_redis_form_e
ngx_ratelimit_redis_form(ngx_ratelimit_redis_kind_e kind)
{
    switch (kind) {

    case NGX_RATELIMIT_REDIS_SLOTS:
        return NGX_RATELIMIT_REDIS_FORM_SLOTS;

    case NGX_RATELIMIT_REDIS_MASTER:
        return NGX_RATELIMIT_REDIS_FORM_MASTER;

    default:
        return NGX_RATELIMIT_REDIS_FORM_VALUES;
    }
}


static void
ngx_ratelimit_redis_reply(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_uint_t  current;

    if (call->skip) {
        call->skip = 0;
        return;
    }

    ngx_ratelimit_redis_conn_remove(call);

    if (call->kind == NGX_RATELIMIT_REDIS_EVAL) {
        ngx_ratelimit_redis_reply_eval(conn, call);
        return;
    }

    current = (call == conn->client->refresh);

    switch (call->kind) {

    case NGX_RATELIMIT_REDIS_AUTH:
        ngx_ratelimit_redis_call_free(call);
        ngx_ratelimit_redis_reply_auth(conn);
        return;

    case NGX_RATELIMIT_REDIS_LOAD:
        ngx_ratelimit_redis_call_free(call);
        conn->loading = 0;

        if (conn->reply.type == REDIS_REPLY_ERROR) {
            ngx_ratelimit_redis_log_reply(conn, "SCRIPT LOAD");
        }

        return;

    default: /* NGX_RATELIMIT_REDIS_SLOTS, NGX_RATELIMIT_REDIS_MASTER */
        ngx_ratelimit_redis_call_free(call);
        ngx_ratelimit_redis_topology_reply(conn, current);
        ngx_ratelimit_redis_ranges_free(&conn->reply);
        return;
    }
}


static void
ngx_ratelimit_redis_reply_auth(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_str_t  word;
    u_char     reason[sizeof("AUTH answered ")
                      + NGX_RATELIMIT_REDIS_MAX_WORD];

    if (conn->reply.type != REDIS_REPLY_ERROR) {
        return;
    }

    word = ngx_ratelimit_redis_word(&conn->reply);
    *ngx_snprintf(reason, sizeof(reason) - 1, "AUTH answered %V", &word) = 0;

    ngx_ratelimit_redis_conn_break(conn, 0, (char *) reason);
}


static void
ngx_ratelimit_redis_reply_eval(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_str_t                           word;
    ngx_ratelimit_redis_reply_t        *reply;
    ngx_ratelimit_redis_result_t        result;
    const ngx_ratelimit_redis_error_t  *error;

    reply = &conn->reply;

    if (reply->type == REDIS_REPLY_ARRAY && reply->flat) {
        ngx_ratelimit_redis_conn_recovered(conn);

        ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));
        result.status = NGX_RATELIMIT_REDIS_OK;
        result.ran = 1;
        result.n = reply->n;
        result.values = reply->values;

        ngx_ratelimit_redis_call_finish(call, &result);
        return;
    }

    if (reply->type != REDIS_REPLY_ERROR) {

        /*
         * Not the script's: calls and replies are out of step, and no later
         * reply of this connection can be trusted either.
         */

        ngx_ratelimit_redis_call_fail(call, NGX_RATELIMIT_REDIS_PROTOCOL);
        ngx_ratelimit_redis_conn_break(conn, 0, "a reply of another call");
        return;
    }

    word = ngx_ratelimit_redis_word(reply);
    error = ngx_ratelimit_redis_errors;

    while (error->word.len
           && (error->word.len != word.len
               || ngx_memcmp(error->word.data, word.data, word.len) != 0))
    {
        error++;
    }

    reply->error = NGX_RATELIMIT_REDIS_MOVED
                   + (error - ngx_ratelimit_redis_errors);

    ngx_ratelimit_redis_count(
                     conn->client->redis->shared->replies[reply->error]);

    error->handler(conn, call);
}


/*
 * An error's first word, which never holds a key or a secret. Empty for any
 * other reply. From a client that has not logged in Redis takes no argument
 * above 16 KB, as the script is: it calls that another error than NOAUTH.
 */

static ngx_str_t
ngx_ratelimit_redis_word(ngx_ratelimit_redis_reply_t *reply)
{
    u_char      ch;
    size_t      max;
    ngx_str_t   word;

    static const char  login[] = "ERR Protocol error: unauthenticated";

    word.data = reply->text;
    word.len = 0;

    if (reply->type != REDIS_REPLY_ERROR) {
        return word;
    }

    if (reply->text_len >= sizeof(login) - 1
        && ngx_memcmp(reply->text, login, sizeof(login) - 1) == 0)
    {
        ngx_str_set(&word, "NOAUTH");
        return word;
    }

    max = ngx_min(reply->text_len, NGX_RATELIMIT_REDIS_MAX_WORD);

    while (word.len < max) {
        ch = word.data[word.len];

        if ((ch < 'A' || ch > 'Z') && ch != '_' && ch != '-') {
            break;
        }

        word.len++;
    }

    return word;
}


void
ngx_ratelimit_redis_log_reply(ngx_ratelimit_redis_conn_t *conn,
    const char *command)
{
    ngx_str_t                      word;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    if (!ngx_ratelimit_redis_log_due(&client->logged)) {
        return;
    }

    word = ngx_ratelimit_redis_word(&conn->reply);

    if (word.len == 0) {
        ngx_str_set(&word, "something unexpected");
    }

    ngx_log_error(NGX_LOG_ERR, client->log, 0,
                  "ratelimit redis \"%V\": %V answered %s with %V",
                  &client->redis->name, &conn->name, command, &word);
}


static void
ngx_ratelimit_redis_error_refused(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_result_t  result;

    ngx_ratelimit_redis_log_reply(conn, "a check");

    ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));
    result.status = conn->reply.error;
    result.ran = 1;

    ngx_ratelimit_redis_call_finish(call, &result);
}


/* The slot may have another owner, or soon get one. */

static void
ngx_ratelimit_redis_error_stale(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_refresh(conn->client);
    ngx_ratelimit_redis_error_refused(conn, call);
}


/*
 * The script goes to the queue's end and the call behind it, as do all calls
 * that were sent before the first NOSCRIPT came.
 */

static void
ngx_ratelimit_redis_error_noscript(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    if (call->reloaded) {
        ngx_ratelimit_redis_error_refused(conn, call);
        return;
    }

    if (!conn->loading) {
        if (ngx_ratelimit_redis_conn_command(conn, NGX_RATELIMIT_REDIS_LOAD,
                                             &conn->client->load)
            == NULL)
        {
            ngx_ratelimit_redis_error_refused(conn, call);
            return;
        }

        conn->loading = 1;
    }

    if (!call->timed) {
        ngx_ratelimit_redis_call_free(call);
        return;
    }

    call->reloaded = 1;
    ngx_ratelimit_redis_conn_send(conn, call);
}


static void
ngx_ratelimit_redis_error_moved(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_uint_t                     slot;
    ngx_ratelimit_redis_conn_t    *to;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;
    slot = 0;
    to = NULL;

    if (client->redis->mode == NGX_RATELIMIT_REDIS_CLUSTER) {
        ngx_ratelimit_redis_refresh(client);
        to = ngx_ratelimit_redis_redirect(conn, &slot);
    }

    if (to) {
        ngx_ratelimit_redis_slot_set(client, slot, to);
        client->strayed = 1;
    }

    ngx_ratelimit_redis_follow(conn, to, call, 0);
}


static void
ngx_ratelimit_redis_error_ask(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_uint_t                   slot;
    ngx_ratelimit_redis_conn_t  *to;

    to = (conn->client->redis->mode == NGX_RATELIMIT_REDIS_CLUSTER)
         ? ngx_ratelimit_redis_redirect(conn, &slot) : NULL;

    ngx_ratelimit_redis_follow(conn, to, call, 1);
}


/* A slot is half moved: asking again at once would only spin. */

static void
ngx_ratelimit_redis_error_tryagain(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    if (!call->timed) {
        ngx_ratelimit_redis_call_free(call);
        return;
    }

    call->asking = 0;
    ngx_ratelimit_redis_again(call);
}


static void
ngx_ratelimit_redis_follow(ngx_ratelimit_redis_conn_t *from,
    ngx_ratelimit_redis_conn_t *to, ngx_ratelimit_redis_call_t *call,
    ngx_uint_t asking)
{
    if (to == NULL || call->redirects == NGX_RATELIMIT_REDIS_MAX_REDIRECTS) {
        ngx_ratelimit_redis_error_refused(from, call);
        return;
    }

    /* its deadline passed: nobody waits for it */

    if (!call->timed) {
        ngx_ratelimit_redis_call_free(call);
        return;
    }

    call->redirects++;
    call->asking = asking;
    call->reloaded = 0;

    ngx_ratelimit_redis_conn_send(to, call);
}

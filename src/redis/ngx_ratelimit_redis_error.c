/*
 * What each error of Redis means: by its first word, for the call and for the
 * connection.
 */

#include "ngx_ratelimit_redis_int.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>


#define NGX_RATELIMIT_REDIS_MAX_WORD  32    /* of an error, in the log */
#define NGX_RATELIMIT_REDIS_STAY_MS   1000  /* a connection to a replica */


typedef void (*ngx_ratelimit_redis_error_pt)(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);

typedef struct {
    ngx_str_t                     word;
    unsigned                      ran:1;     /* maybe, in part */
    ngx_ratelimit_redis_error_pt  handler;
} ngx_ratelimit_redis_error_t;


static const ngx_ratelimit_redis_error_t *ngx_ratelimit_redis_error_find(
    const ngx_str_t *word);
static ngx_str_t ngx_ratelimit_redis_word(
    ngx_ratelimit_redis_reply_t *reply);
static ngx_str_t ngx_ratelimit_redis_word_at(u_char *p, u_char *last);
static ngx_uint_t ngx_ratelimit_redis_starts(const u_char *p,
    const u_char *last, const char *text);
static u_char *ngx_ratelimit_redis_unwrap(u_char *p, u_char *last);

static void ngx_ratelimit_redis_error_refused(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_end(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_stale(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_replica(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_key(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);
static void ngx_ratelimit_redis_error_noauth(ngx_ratelimit_redis_conn_t *conn,
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
 * fails the call and leaves the connection. What Redis says before it begins
 * a command has not run.
 */
static const ngx_ratelimit_redis_error_t  ngx_ratelimit_redis_errors[] = {
    { ngx_string("MOVED"), 0, ngx_ratelimit_redis_error_moved },
    { ngx_string("ASK"), 0, ngx_ratelimit_redis_error_ask },
    { ngx_string("TRYAGAIN"), 0, ngx_ratelimit_redis_error_tryagain },
    { ngx_string("CLUSTERDOWN"), 0, ngx_ratelimit_redis_error_stale },
    { ngx_string("MASTERDOWN"), 0, ngx_ratelimit_redis_error_replica },
    { ngx_string("LOADING"), 0, ngx_ratelimit_redis_error_refused },
    { ngx_string("READONLY"), 1, ngx_ratelimit_redis_error_replica },
    { ngx_string("NOSCRIPT"), 0, ngx_ratelimit_redis_error_noscript },
    { ngx_string("BUSY"), 0, ngx_ratelimit_redis_error_refused },
    { ngx_string("OOM"), 1, ngx_ratelimit_redis_error_refused },
    { ngx_string("MISCONF"), 1, ngx_ratelimit_redis_error_refused },
    { ngx_string("NOREPLICAS"), 1, ngx_ratelimit_redis_error_refused },
    { ngx_string("NOAUTH"), 0, ngx_ratelimit_redis_error_noauth },
    { ngx_string("NOPERM"), 1, ngx_ratelimit_redis_error_refused },
    { ngx_string("WRONGTYPE"), 1, ngx_ratelimit_redis_error_key },
    { ngx_null_string, 1, ngx_ratelimit_redis_error_refused }
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


void
ngx_ratelimit_redis_error(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_str_t                           word;
    ngx_ratelimit_redis_reply_t        *reply;
    const ngx_ratelimit_redis_error_t  *error;

    reply = &conn->reply;

    word = ngx_ratelimit_redis_word(reply);
    error = ngx_ratelimit_redis_error_find(&word);

    reply->error = NGX_RATELIMIT_REDIS_MOVED
                   + (error - ngx_ratelimit_redis_errors);
    call->written = error->ran;

    if (!call->quiet) {
        ngx_ratelimit_redis_count(
                     conn->client->redis->shared->replies[reply->error]);
    }

    error->handler(conn, call);
}


/* Without these a connection is of no use. */

void
ngx_ratelimit_redis_reply_setup(ngx_ratelimit_redis_conn_t *conn,
    const char *command)
{
    ngx_str_t  word;
    u_char     reason[sizeof("SELECT answered ")
                      + NGX_RATELIMIT_REDIS_MAX_WORD];

    if (conn->reply.type != REDIS_REPLY_ERROR) {
        return;
    }

    word = ngx_ratelimit_redis_word(&conn->reply);
    *ngx_snprintf(reason, sizeof(reason) - 1, "%s answered %V", command,
                  &word) = 0;

    ngx_ratelimit_redis_conn_break(conn, 0, (char *) reason);
}


/* The row of a word; of any other the last one. */

static const ngx_ratelimit_redis_error_t *
ngx_ratelimit_redis_error_find(const ngx_str_t *word)
{
    const ngx_ratelimit_redis_error_t  *error;

    error = ngx_ratelimit_redis_errors;

    while (error->word.len
           && (error->word.len != word->len
               || ngx_memcmp(error->word.data, word->data, word->len) != 0))
    {
        error++;
    }

    return error;
}


/*
 * An error's first word, which never holds a key or a secret. Empty for any
 * other reply. Some that have a word of their own come without it: from a
 * client that has not logged in Redis takes no argument above 16 KB, as the
 * script is; what a command of the script was told may stand behind ERR.
 */

static ngx_str_t
ngx_ratelimit_redis_word(ngx_ratelimit_redis_reply_t *reply)
{
    u_char     *p, *last;
    ngx_str_t   word, inner;

    word.data = reply->text;
    word.len = 0;

    if (reply->type != REDIS_REPLY_ERROR) {
        return word;
    }

    p = reply->text;
    last = p + reply->text_len;

    word = ngx_ratelimit_redis_word_at(p, last);

    if (ngx_ratelimit_redis_starts(p, last,
                                   "ERR Protocol error: unauthenticated"))
    {
        ngx_str_set(&word, "NOAUTH");
        return word;
    }

    p = ngx_ratelimit_redis_unwrap(p, last);

    if (p == NULL) {
        return word;
    }

    if (ngx_ratelimit_redis_starts(p, last, "The user executing the script")
        || ngx_ratelimit_redis_starts(p, last, "ACL failure in script"))
    {
        ngx_str_set(&word, "NOPERM");
        return word;
    }

    /* any other may be of the script's own */

    inner = ngx_ratelimit_redis_word_at(p, last);

    return ngx_ratelimit_redis_error_find(&inner)->word.len ? inner : word;
}


static ngx_str_t
ngx_ratelimit_redis_word_at(u_char *p, u_char *last)
{
    ngx_str_t  word;

    word.data = p;

    if (last - p > NGX_RATELIMIT_REDIS_MAX_WORD) {
        last = p + NGX_RATELIMIT_REDIS_MAX_WORD;
    }

    while (p < last && ((*p >= 'A' && *p <= 'Z') || *p == '_' || *p == '-')) {
        p++;
    }

    word.len = p - word.data;

    return word;
}


static ngx_uint_t
ngx_ratelimit_redis_starts(const u_char *p, const u_char *last,
    const char *text)
{
    size_t  len;

    len = ngx_strlen(text);

    return (size_t) (last - p) >= len && ngx_memcmp(p, text, len) == 0;
}


/*
 * What a command inside the script was told. From Redis 7 on the reply is
 * that, or "ERR " and that; up to 6.2 it is "ERR Error running script (call to
 * f_<sha1>): @user_script:<line>: ", maybe that place once more, maybe "-",
 * and that. Returns NULL for anything else.
 */

static u_char *
ngx_ratelimit_redis_unwrap(u_char *p, u_char *last)
{
    if (!ngx_ratelimit_redis_starts(p, last, "ERR ")) {
        return NULL;
    }

    p += sizeof("ERR ") - 1;

    if (!ngx_ratelimit_redis_starts(p, last, "Error running script (call ")) {
        return p;
    }

    p = ngx_strlchr(p, last, ')');

    if (p == NULL || !ngx_ratelimit_redis_starts(p, last, "): ")) {
        return NULL;
    }

    p += sizeof("): ") - 1;

    while (ngx_ratelimit_redis_starts(p, last, "@user_script:")) {
        p += sizeof("@user_script:") - 1;

        while (p < last && (*p == ' ' || *p == ':'
                            || (*p >= '0' && *p <= '9')))
        {
            p++;
        }
    }

    return (p < last && *p == '-') ? p + 1 : p;
}


ngx_str_t
ngx_ratelimit_redis_reply_word(ngx_ratelimit_redis_conn_t *conn)
{
    return ngx_ratelimit_redis_word(&conn->reply);
}


void
ngx_ratelimit_redis_log_reply(ngx_ratelimit_redis_conn_t *conn,
    const char *command)
{
    char                           note[NGX_RATELIMIT_LOG_NOTE];
    ngx_str_t                      word;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    word = ngx_ratelimit_redis_word(&conn->reply);

    if (word.len == 0) {
        ngx_str_set(&word, "something unexpected");
    }

    if (!ngx_ratelimit_redis_error_due(conn,
                                       NGX_RATELIMIT_REDIS_LINE_REPLY, note))
    {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, client->log, 0,
                  "ratelimit redis \"%V\": %V answered %s with %V%s",
                  &client->redis->name, &conn->name, command, &word, note);
}


static void
ngx_ratelimit_redis_error_refused(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    if (!call->quiet) {
        ngx_ratelimit_redis_log_reply(conn, "a check");
    }

    ngx_ratelimit_redis_breaker_report(call, NGX_RATELIMIT_BREAKER_FAILED,
                                       conn->reply.error);
    ngx_ratelimit_redis_error_end(conn, call);
}


/*
 * Alone for what would be healed, but that the deadline passed: nobody waits
 * for it, or its maker makes another.
 */

static void
ngx_ratelimit_redis_error_end(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_result_t  result;

    ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));
    result.status = conn->reply.error;
    result.ran = call->written;

    ngx_ratelimit_redis_call_finish(call, &result);
}


/* Something else stands under that key: the node is well. */

static void
ngx_ratelimit_redis_error_key(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_breaker_neutral(call);
    ngx_ratelimit_redis_error_refused(conn, call);
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
 * Without a map it is the host's name that has to lead elsewhere, or another of
 * its addresses: a new connection finds out, but not each call makes one.
 */

static void
ngx_ratelimit_redis_error_replica(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_error_stale(conn, call);

    if (conn->client->slots == NULL
        && conn->host.naddrs != 1
        && ngx_current_msec - conn->up_ms >= NGX_RATELIMIT_REDIS_STAY_MS)
    {
        ngx_ratelimit_redis_conn_break(conn, 0, "it is not the primary");
    }
}


/* A new connection authenticates anew. */

static void
ngx_ratelimit_redis_error_noauth(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_error_refused(conn, call);
    ngx_ratelimit_redis_conn_break(conn, 0, "a check answered NOAUTH");
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
        ngx_ratelimit_redis_conn_load(conn);

        if (!conn->loading) {
            ngx_ratelimit_redis_error_refused(conn, call);
            return;
        }
    }

    if (!call->timed) {
        ngx_ratelimit_redis_error_end(conn, call);
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

    ngx_ratelimit_redis_breaker_neutral(call);

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

    ngx_ratelimit_redis_breaker_neutral(call);

    to = (conn->client->redis->mode == NGX_RATELIMIT_REDIS_CLUSTER)
         ? ngx_ratelimit_redis_redirect(conn, &slot) : NULL;

    ngx_ratelimit_redis_follow(conn, to, call, 1);
}


/*
 * A slot is half moved: asking again at once would only spin. From now on it
 * is the slot that the call waits for, so no breaker is told of it. It begins
 * anew: the owner may say ASK each time, until the slot has moved.
 */

static void
ngx_ratelimit_redis_error_tryagain(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call)
{
    ngx_ratelimit_redis_breaker_neutral(call);

    if (!call->timed) {
        ngx_ratelimit_redis_error_end(conn, call);
        return;
    }

    call->asked = 0;
    call->asking = 0;
    call->redirects = 0;
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

    if (!call->timed) {
        ngx_ratelimit_redis_error_end(from, call);
        return;
    }

    call->redirects++;
    call->asking = asking;
    call->reloaded = 0;

    ngx_ratelimit_redis_call_send(to, call);
}

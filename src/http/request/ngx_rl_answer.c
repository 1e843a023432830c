/*
 * The headers of every response to a limited request, error pages and an
 * upstream's errors included; ours replace an upstream's of the same name. And
 * how a refused request ends: with the operator's error_page where there is
 * one, else with a body of ours, nginx's own page, or what gRPC understands.
 * Then its connection may be closed.
 *
 * The bodies are JSON, or the problem of RFC 9457. They are written in pieces,
 * a value after each: a flood of rejections must be cheap. With one format for
 * all of it, a rejection took 3,500 instructions more. Numbers, the names of
 * rules and keyed hashes are all that stands in bodies and headers. No byte
 * that a client has sent gets here.
 */

#include "ngx_rl_request.h"

#include "ngx_rl_limit.h"

#define NGX_RL_MESSAGE_KEY     "This API key is denied"
#define NGX_RL_MESSAGE_CLIENT  "This client is denied"

#define NGX_RL_MESSAGE_PENALIZED  "Too many rejected or failed requests"
#define NGX_RL_MESSAGE_TOKEN   "This bearer token is not valid"

/* in a dry run the token is not, and another rule may be the reason */
#define ngx_rl_token_refused(ctx)                                             \
    ((ctx)->check.status == NGX_RL_DENIED && (ctx)->token)

/* the most that a message takes */
#define NGX_RL_MESSAGE_BYTES                                                  \
    (sizeof("Rate limit of  concurrent-requests in  exceeded")                \
     + NGX_INT64_LEN + NGX_RL_SPAN_BYTES)

#define NGX_RL_BODY_JSON  "{\"error\":{\"code\":\""
#define NGX_RL_PROBLEM                                                        \
    "{\"type\":\"https://iana.org/assignments/http-problem-types"

/* of either body, without names of rules; with the longest numbers it is 370 */
#define NGX_RL_BODY_BYTES  512

#define ngx_rl_put(p, text)  ngx_cpymem(p, text, sizeof(text) - 1)

#define ngx_rl_name_bytes(counter)                                            \
    ((counter)->client->limiter->zone.name.len + sizeof("/") - 1              \
     + (counter)->rule->id.len)

/* problem or not; of a client, of an API key, of a token */
#define ngx_rl_denied_json(code, message)                                     \
    ngx_string(NGX_RL_BODY_JSON code "\",\"message\":\"" message "\"}}\n")
#define ngx_rl_denied_problem(title, message)                                 \
    ngx_string("{\"type\":\"about:blank\",\"title\":\"" title                \
               ",\"detail\":\"" message "\"}\n")

static const ngx_str_t  ngx_rl_body_denied[2][3] = {
    { ngx_rl_denied_json("CLIENT_DENIED", NGX_RL_MESSAGE_CLIENT),
      ngx_rl_denied_json("API_KEY_DENIED", NGX_RL_MESSAGE_KEY),
      ngx_rl_denied_json("INVALID_TOKEN", NGX_RL_MESSAGE_TOKEN) },
    { ngx_rl_denied_problem("Forbidden\",\"status\":403",
                            NGX_RL_MESSAGE_CLIENT),
      ngx_rl_denied_problem("Forbidden\",\"status\":403", NGX_RL_MESSAGE_KEY),
      ngx_rl_denied_problem("Unauthorized\",\"status\":401",
                            NGX_RL_MESSAGE_TOKEN) }
};

/* The rejections of a connection: in its pool, from the first one on. */
typedef struct {
    ngx_uint_t         rejections;
    ngx_connection_t  *connection;
    ngx_event_t        close;  /* HTTP/2 */
    unsigned           closing:1;
} ngx_rl_connection_t;

/* beside the sets: Retry-After, of a rejected request */
#define NGX_RL_HEADERS_RETRY  0x08

/* of each counter in a list, besides its name */
#define NGX_RL_ITEM_BYTES                                                     \
    (sizeof(", \"\"") - 1 + NGX_RL_QUOTA_BYTES + NGX_RL_PK_TEXT)

/* in the order of a response */
typedef enum {
    NGX_RL_X_LIMIT = 0,
    NGX_RL_X_REMAINING,
    NGX_RL_X_RESET,
    NGX_RL_X_POLICY,
    NGX_RL_X_STATUS,
    NGX_RL_DRAFT3_LIMIT,
    NGX_RL_DRAFT3_REMAINING,
    NGX_RL_DRAFT3_RESET,
    NGX_RL_IETF_POLICY,
    NGX_RL_IETF_LEFT,
    NGX_RL_RETRY_AFTER,
    NGX_RL_HEADERS
} ngx_rl_header_e;

typedef struct {
    ngx_str_t   name;
    u_char     *lowcase;
    ngx_uint_t  set;  /* a bit */
} ngx_rl_header_t;

/* Where the next header and the next value go. */
typedef struct {
    ngx_table_elt_t  *header;
    u_char           *value;
} ngx_rl_writer_t;

/* the shortest of these names, which begin with X or R */
#define NGX_RL_HEADER_MIN  (sizeof("RateLimit") - 1)

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;

static const ngx_rl_header_t  ngx_rl_headers[] = {
    { ngx_string("X-RateLimit-Limit"), (u_char *) "x-ratelimit-limit",
      NGX_RL_HEADERS_X },
    { ngx_string("X-RateLimit-Remaining"), (u_char *) "x-ratelimit-remaining",
      NGX_RL_HEADERS_X },
    { ngx_string("X-RateLimit-Reset"), (u_char *) "x-ratelimit-reset",
      NGX_RL_HEADERS_X },
    { ngx_string("X-RateLimit-Policy"), (u_char *) "x-ratelimit-policy",
      NGX_RL_HEADERS_X },
    { ngx_string("X-RateLimit-Status"), (u_char *) "x-ratelimit-status",
      NGX_RL_HEADERS_X },
    { ngx_string("RateLimit-Limit"), (u_char *) "ratelimit-limit",
      NGX_RL_HEADERS_DRAFT3 },
    { ngx_string("RateLimit-Remaining"), (u_char *) "ratelimit-remaining",
      NGX_RL_HEADERS_DRAFT3 },
    { ngx_string("RateLimit-Reset"), (u_char *) "ratelimit-reset",
      NGX_RL_HEADERS_DRAFT3 },
    { ngx_string("RateLimit-Policy"), (u_char *) "ratelimit-policy",
      NGX_RL_HEADERS_IETF },
    { ngx_string("RateLimit"), (u_char *) "ratelimit", NGX_RL_HEADERS_IETF },
    { ngx_string("Retry-After"), (u_char *) "retry-after",
      NGX_RL_HEADERS_RETRY }
};


/*
 * Writes the name of a counter's rule, quoted, to p, which holds
 * ngx_rl_name_bytes() and 2 more, and returns its end. The zone stands before
 * the name of two zones' rules: "zone/rule".
 */
static u_char *
ngx_rl_put_name(u_char *p, const ngx_rl_check_t *check,
    const ngx_rl_counter_t *counter)
{
    ngx_uint_t               i;
    const ngx_str_t         *id, *zone;
    const ngx_rl_counter_t  *other;

    id = &counter->rule->id;
    zone = &counter->client->limiter->zone.name;

    *p++ = '"';

    for (i = 0; i < check->ncounters; i++) {
        other = &check->counters[i];

        if (other != counter && !other->dry_run
            && ngx_rl_equal(&other->rule->id, id))
        {
            p = ngx_cpymem(p, zone->data, zone->len);
            *p++ = '/';
            break;
        }
    }

    p = ngx_cpymem(p, id->data, id->len);
    *p++ = '"';

    return p;
}


/*
 * The clients of a window shall not come back in the same second. So each waits
 * up to retry_jitter percent longer, never less: all that names the wait has
 * it, and what tells when all tokens are back does not.
 */
void
ngx_rl_retry(ngx_rl_ctx_t *ctx)
{
    uint64_t           most_us;
    ngx_rl_counter_t  *counter;

    counter = ctx->check.strictest;

    if ((ctx->needs & NGX_RL_NEEDS_RETRY) && !ctx->early) {
        ngx_rl_retry_note(&ctx->check);
    }

    if (ctx->conf->retry_jitter == 0 || counter == NULL
        || counter->answer.retry_us == NGX_RL_NEVER)
    {
        return;
    }

    /* a wait is below 2^50 microseconds */

    most_us = counter->answer.retry_us * ctx->conf->retry_jitter / 100;
    counter->answer.retry_us += most_us * (ngx_random() & 0xfff) / 0xfff;
}


/* "ratelimit_status" is for rejections only. */
static ngx_uint_t
ngx_rl_refused_status(const ngx_rl_ctx_t *ctx)
{
    switch (ctx->check.status) {

    case NGX_RL_DENIED:
        return ctx->token ? NGX_HTTP_UNAUTHORIZED : NGX_HTTP_FORBIDDEN;

    case NGX_RL_UNAVAILABLE:
        return NGX_HTTP_SERVICE_UNAVAILABLE;

    case NGX_RL_PENALIZED:
        return (ctx->conf->penalty_status != NGX_CONF_UNSET_UINT)
               ? ctx->conf->penalty_status : ctx->conf->status;

    default:
        return ctx->conf->status;
    }
}


/* The unit of a limit: tokens, if a request may cost more or less than one. */
static u_char *
ngx_rl_put_unit(u_char *p, const ngx_rl_counter_t *counter)
{
    const ngx_rl_rule_t  *rule;

    rule = counter->rule;

    if (ngx_rl_counter_limit(counter)->algorithm == NGX_RL_CONCURRENCY) {
        return ngx_rl_put(p, "concurrent-requests");
    }

    /* the limit of an emergency counts requests, whatever they cost */

    if ((rule->cost != 1 || rule->dynamic_cost || rule->cost_header.len
         || rule->cost_end.len)
        && !counter->emergency)
    {
        return ngx_rl_put(p, "tokens");
    }

    return ngx_rl_put(p, "requests");
}


/* Letters, digits and blanks: no format needs an escape. */
static u_char *
ngx_rl_message(u_char *p, const ngx_rl_ctx_t *ctx)
{
    uint64_t                 tokens, seconds;
    const ngx_rl_limit_t    *limit;
    const ngx_rl_counter_t  *counter;

    counter = ctx->check.strictest;

    if (counter == NULL) {
        return ctx->key_denied ? ngx_rl_put(p, NGX_RL_MESSAGE_KEY)
                               : ngx_rl_put(p, NGX_RL_MESSAGE_CLIENT);
    }

    limit = ngx_rl_counter_limit(counter);

    if (ngx_rl_counter_unavailable(counter)) {
        return ngx_rl_put(p, "Rate limit temporarily unavailable");
    }

    if (limit->algorithm == NGX_RL_CONCURRENCY) {
        p = ngx_rl_put(p, "Limit of ");
        p = ngx_rl_number_write(p, limit->capacity);
        p = ngx_rl_put(p, " concurrent request");

        if (limit->capacity != 1) {
            *p++ = 's';
        }

        return ngx_rl_put(p, " exceeded");
    }

    ngx_rl_limit_words(limit, &tokens, &seconds);

    if (tokens == 0) {
        return ngx_rl_put(p, "This limit is 0");
    }

    p = ngx_rl_put(p, "Rate limit of ");
    p = ngx_rl_number_write(p, tokens);
    *p++ = ' ';
    p = ngx_rl_put_unit(p, counter);

    if (tokens == 1) {
        p--;    /* the plural's end */
    }

    p = ngx_rl_put(p, " in ");

    if (limit->calendar == NGX_RL_CALENDAR_MONTH) {
        p = ngx_rl_put(p, "1 month");

    } else {
        p = ngx_rl_span_write(p, seconds);
    }

    return ngx_rl_put(p, " exceeded");
}


static u_char *
ngx_rl_put_penalty(u_char *p, const ngx_rl_ctx_t *ctx, ngx_uint_t problem)
{
    if (problem) {
        p = ngx_rl_put(p,
            NGX_RL_PROBLEM "#abnormal-usage-detected\",\"title\":\"Abnormal "
            "Usage Detected\",\"status\":");
        p = ngx_rl_number_write(p, ngx_rl_refused_status(ctx));

        return ngx_rl_put(p, ",\"detail\":\"" NGX_RL_MESSAGE_PENALIZED "\"}\n");
    }

    p = ngx_rl_put(p,
        NGX_RL_BODY_JSON "PENALIZED\",\"message\":\"" NGX_RL_MESSAGE_PENALIZED
        "\",\"details\":{\"retry_after_seconds\":");
    p = ngx_rl_number_write(p, ngx_rl_penalty_seconds(ctx));

    return ngx_rl_put(p, "}}}\n");
}


/* The type and its title are those of draft-ietf-httpapi-ratelimit-headers. */
static u_char *
ngx_rl_put_problem(u_char *p, const ngx_rl_ctx_t *ctx)
{
    ngx_uint_t             i, unavailable;
    const ngx_rl_check_t  *check;

    check = &ctx->check;
    unavailable = (check->status == NGX_RL_UNAVAILABLE);

    p = ngx_rl_put(p, NGX_RL_PROBLEM);
    p = unavailable
        ? ngx_rl_put(p, "#temporary-reduced-capacity\",\"title\":"
                        "\"Temporary Reduced Capacity")
        : ngx_rl_put(p, "#quota-exceeded\",\"title\":\"Quota Exceeded");
    p = ngx_rl_put(p, "\",\"status\":");
    p = ngx_rl_number_write(p, ngx_rl_refused_status(ctx));
    p = ngx_rl_put(p, ",\"detail\":\"");
    p = ngx_rl_message(p, ctx);

    if (unavailable) {

        /* no policy is known to be violated */
        return ngx_rl_put(p, "\"}\n");
    }

    p = ngx_rl_put(p, "\",\"violated-policies\":[");

    for (i = 0; i < check->ncounters; i++) {

        if (ngx_rl_rejects(&check->counters[i])) {
            p = ngx_rl_put_name(p, check, &check->counters[i]);
            *p++ = ',';
        }
    }

    /* the strictest is one of them: the last comma goes */

    return ngx_rl_put(p - 1, "]}\n");
}


static u_char *
ngx_rl_put_two(u_char *p, u_char before, ngx_uint_t value)
{
    *p++ = before;
    *p++ = (u_char) ('0' + value / 10);
    *p++ = (u_char) ('0' + value % 10);

    return p;
}


/* RFC 3339 in UTC, "2026-11-20T22:22:04Z". */
static u_char *
ngx_rl_put_time(u_char *p, time_t sec)
{
    ngx_tm_t  tm;

    ngx_gmtime(sec, &tm);

    p = ngx_rl_number_write(p, tm.ngx_tm_year);
    p = ngx_rl_put_two(p, '-', tm.ngx_tm_mon);
    p = ngx_rl_put_two(p, '-', tm.ngx_tm_mday);
    p = ngx_rl_put_two(p, 'T', tm.ngx_tm_hour);
    p = ngx_rl_put_two(p, ':', tm.ngx_tm_min);
    p = ngx_rl_put_two(p, ':', tm.ngx_tm_sec);
    *p++ = 'Z';

    return p;
}


static u_char *
ngx_rl_put_json(u_char *p, ngx_rl_ctx_t *ctx)
{
    ngx_int_t                retry_after;
    ngx_uint_t               unavailable;
    const ngx_rl_limit_t    *limit;
    const ngx_rl_counter_t  *counter;

    counter = ctx->check.strictest;
    limit = ngx_rl_counter_limit(counter);
    unavailable = ngx_rl_counter_unavailable(counter);
    retry_after = ngx_rl_retry_after(counter);

    p = unavailable ? ngx_rl_put(p, NGX_RL_BODY_JSON "RATE_LIMIT_UNAVAILABLE")
                    : ngx_rl_put(p, NGX_RL_BODY_JSON "RATE_LIMIT_EXCEEDED");
    p = ngx_rl_put(p, "\",\"message\":\"");
    p = ngx_rl_message(p, ctx);
    p = ngx_rl_put(p, "\",\"details\":{\"rule\":");
    p = ngx_rl_put_name(p, &ctx->check, counter);
    p = ngx_rl_put(p, ",\"limit\":");
    p = ngx_rl_number_write(p, limit->capacity);
    p = ngx_rl_put(p, ",\"unit\":\"");
    p = ngx_rl_put_unit(p, counter);
    *p++ = '"';

    if (limit->algorithm != NGX_RL_CONCURRENCY) {
        p = ngx_rl_put(p, ",\"window_seconds\":");
        p = ngx_rl_number_write(p, ngx_rl_limit_seconds(limit));
    }

    p = ngx_rl_put(p, ",\"retry_after_seconds\":");

    p = (retry_after == -1) ? ngx_rl_put(p, "null")
                            : ngx_rl_number_write(p, retry_after);

    if (limit->algorithm != NGX_RL_CONCURRENCY && !unavailable) {
        p = ngx_rl_put(p, ",\"reset_at\":\"");
        p = ngx_rl_put_time(p, ngx_rl_reset(ctx, counter));
        *p++ = '"';
    }

    return ngx_rl_put(p, "}}}\n");
}


static ngx_int_t
ngx_rl_body(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_str_t *body)
{
    size_t           size;
    u_char          *last;
    ngx_uint_t       i, problem;
    ngx_rl_check_t  *check;

    check = &ctx->check;
    problem = (ctx->conf->response == NGX_RL_RESPONSE_PROBLEM);

    if (check->status == NGX_RL_DENIED) {
        *body = ngx_rl_body_denied[problem][ctx->token ? 2 : ctx->key_denied];
        return NGX_OK;
    }

    size = NGX_RL_BODY_BYTES;

    for (i = 0; i < check->ncounters; i++) {
        size += ngx_rl_name_bytes(&check->counters[i]) + sizeof("\"\",") - 1;
    }

    body->data = ngx_pnalloc(r->pool, size);
    if (body->data == NULL) {
        return NGX_ERROR;
    }

    last = ctx->penalized
           ? ngx_rl_put_penalty(body->data, ctx, problem)
           : problem ? ngx_rl_put_problem(body->data, ctx)
                     : ngx_rl_put_json(body->data, ctx);
    body->len = last - body->data;

    return NGX_OK;
}


static void
ngx_rl_connection_cleanup(void *data)
{
    ngx_rl_connection_t *counted = data;

    if (counted->close.posted) {
        ngx_delete_posted_event(&counted->close);
    }
}


/*
 * As nginx closes an idle connection: the handler sends GOAWAY, and the streams
 * that were begun go on. An event of the socket itself would be lost if it came
 * with this one, so this is another one.
 */
static void
ngx_rl_connection_close(ngx_event_t *ev)
{
    ngx_connection_t     *c;
    ngx_rl_connection_t  *counted;

    counted = ev->data;
    c = counted->connection;

    c->close = 1;
    c->read->handler(c->read);
}


/*
 * Counts a rejection on the request's connection, and closes that behind the
 * answer if it is the after-th one: HTTP/1.1 says "Connection: close", HTTP/2
 * sends GOAWAY. A stream of HTTP/3 has a connection of its own for nginx, so
 * that nothing is counted there. If memory is out, the connection stays.
 */
static void
ngx_rl_close_after(ngx_http_request_t *r, ngx_uint_t after)
{
    ngx_connection_t     *c;
    ngx_pool_cleanup_t   *cln;
    ngx_rl_connection_t  *counted;

    c = r->connection;

#if (NGX_HTTP_V2)

    /* a stream has one that only looks like it */

    if (r->stream) {
        c = r->stream->connection->connection;
    }

#endif

    for (cln = c->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_rl_connection_cleanup) {
            break;
        }
    }

    if (cln == NULL) {
        cln = ngx_pool_cleanup_add(c->pool, sizeof(ngx_rl_connection_t));
        if (cln == NULL) {
            return;
        }

        counted = cln->data;
        ngx_memzero(counted, sizeof(ngx_rl_connection_t));

        counted->connection = c;
        counted->close.data = counted;
        counted->close.log = c->log;
        counted->close.handler = ngx_rl_connection_close;

        cln->handler = ngx_rl_connection_cleanup;
    }

    counted = cln->data;

    if (++counted->rejections < after) {
        return;
    }

    r->keepalive = 0;

    /* behind this stream's work, in the same turn of the event loop */

    if (c != r->connection && !counted->closing) {
        counted->closing = 1;
        ngx_post_event(&counted->close, &ngx_posted_events);
    }
}


/* The name is in lower case. NULL: memory is out. */
static ngx_table_elt_t *
ngx_rl_add_header(ngx_http_request_t *r, const ngx_str_t *name, u_char *value,
    size_t len)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = *name;
    h->lowcase_key = name->data;
    h->value = ngx_rl_str(value, len);

    return h;
}


/* Whether nginx would take one: not twice, unless these are recursive. */
static ngx_uint_t
ngx_rl_has_error_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *pages;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages == NULL || r->error_page || r->uri_changes == 0) {
        return 0;
    }

    pages = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (pages[i].status == (ngx_int_t) status) {
            return 1;
        }
    }

    return 0;
}


/* "application/grpc", "application/grpc+proto"; not "application/grpc-web" */
static ngx_uint_t
ngx_rl_is_grpc(ngx_http_request_t *r)
{
    ngx_str_t  *type;

    static ngx_str_t  grpc = ngx_string("application/grpc");

    if (r->headers_in.content_type == NULL) {
        return 0;
    }

    type = &r->headers_in.content_type->value;

    if (type->len < grpc.len
        || ngx_strncasecmp(type->data, grpc.data, grpc.len) != 0)
    {
        return 0;
    }

    return type->len == grpc.len
           || type->data[grpc.len] == '+' || type->data[grpc.len] == ';';
}


/*
 * A gRPC client looks for its status among the trailers; those of an answer
 * without messages are its headers ("Trailers-Only").
 */
static ngx_int_t
ngx_rl_send_grpc(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    u_char     *p, *last;
    ngx_int_t   rc;
    ngx_str_t  *status;

    static ngx_str_t  status_name = ngx_string("grpc-status");
    static ngx_str_t  message_name = ngx_string("grpc-message");
    static ngx_str_t  denied = ngx_string("7");      /* PERMISSION_DENIED */
    static ngx_str_t  exhausted = ngx_string("8");   /* RESOURCE_EXHAUSTED */
    static ngx_str_t  unavailable = ngx_string("14");
    static ngx_str_t  unauthenticated = ngx_string("16");

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    p = ngx_pnalloc(r->pool, NGX_RL_MESSAGE_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_rl_token_refused(ctx) ? ngx_rl_put(p, NGX_RL_MESSAGE_TOKEN)
           : ctx->penalized ? ngx_rl_put(p, NGX_RL_MESSAGE_PENALIZED)
           : ngx_rl_message(p, ctx);

    status = ngx_rl_token_refused(ctx) ? &unauthenticated
             : (ctx->check.status == NGX_RL_DENIED) ? &denied
             : (ctx->check.status == NGX_RL_UNAVAILABLE) ? &unavailable
             : &exhausted;

    if (ngx_rl_add_header(r, &status_name, status->data, status->len) == NULL
        || ngx_rl_add_header(r, &message_name, p, last - p) == NULL)
    {
        return NGX_ERROR;
    }

    ngx_http_clear_content_length(r);

    /* HTTP/1 has no other way to say that the answer ends here */

    if (r->http_version < NGX_HTTP_VERSION_20) {
        r->headers_out.content_length_n = 0;
    }

    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "application/grpc");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    /* what ends the stream with its headers */
    r->header_only = 1;

    return ngx_http_send_header(r);
}


/*
 * Finalizes by itself and so answers whatever the status: returned to the
 * phase, a 401 or 403 would be no more than a vote under "satisfy any".
 */
ngx_int_t
ngx_rl_reject(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_int_t                 rc;
    ngx_uint_t                status;
    ngx_table_elt_t          *h;
    ngx_http_complex_value_t  cv;

    static ngx_str_t  name = ngx_string("www-authenticate");
    static ngx_str_t  value = ngx_string("Bearer error=\"invalid_token\"");
    static ngx_str_t  json = ngx_string("application/json");
    static ngx_str_t  problem = ngx_string("application/problem+json");

    status = ngx_rl_refused_status(ctx);
    r->err_status = 0;

    /* a client that waits for "100 Continue" need not send its body */
    r->expect_tested = 1;

    if (ctx->conf->close_after && ctx->check.status == NGX_RL_REJECTED) {
        ngx_rl_close_after(r, ctx->conf->close_after);
    }

    if (ctx->penalized
        && ctx->penalized->penalty->action == NGX_RL_PENALTY_CLOSE)
    {
        ngx_rl_close_after(r, 1);
    }

    h = NULL;

    /* RFC 6750, section 3 */

    if (ngx_rl_token_refused(ctx)) {
        h = ngx_rl_add_header(r, &name, value.data, value.len);

        if (h) {
            ngx_str_set(&h->key, "WWW-Authenticate");
            r->headers_out.www_authenticate = h;
        }
    }

    if (ngx_rl_token_refused(ctx) && h == NULL) {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else if (status == NGX_HTTP_CLOSE
               || ctx->conf->response == NGX_RL_RESPONSE_OFF
               || ngx_rl_has_error_page(r, status))
    {
        rc = status;

    } else if (ngx_rl_is_grpc(r)) {
        rc = ngx_rl_send_grpc(r, ctx);

    } else {
        ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));

        rc = (ngx_rl_body(r, ctx, &cv.value) == NGX_OK)
             ? ngx_http_send_response(r, status,
                   (ctx->conf->response == NGX_RL_RESPONSE_PROBLEM) ? &problem
                                                                    : &json,
                   &cv)
             : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}


/* Whether a response with headers of these sets has none of that name. */
static ngx_uint_t
ngx_rl_replaced(const ngx_str_t *name, ngx_uint_t sets)
{
    size_t                  x, len;
    ngx_uint_t              i;
    const ngx_rl_header_t  *header;

    for (i = 0; i < NGX_RL_HEADERS; i++) {
        header = &ngx_rl_headers[i];

        if (header->name.len == name->len && (header->set & sets)
            && ngx_strncasecmp(name->data, header->lowcase, name->len) == 0)
        {
            return 1;
        }
    }

    if ((sets & ~NGX_RL_HEADERS_RETRY) == 0 || (sets & NGX_RL_HEADERS_KEEP)) {
        return 0;
    }

    /* "RateLimit", "RateLimit-*", "X-RateLimit-*" */

    x = (ngx_strncasecmp(name->data, (u_char *) "x-", 2) == 0) ? 2 : 0;
    len = sizeof("ratelimit") - 1;

    return name->len >= x + len
           && ngx_strncasecmp(name->data + x, (u_char *) "ratelimit", len) == 0
           && (name->len == x + len || name->data[x + len] == '-');
}


/*
 * Drops an upstream's headers of limits: all of them or, with "keep", those of
 * the names that we write. Its Retry-After stays unless we write one.
 */
static void
ngx_rl_hide_headers(ngx_http_request_t *r, ngx_uint_t sets)
{
    u_char            c;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h, *last;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;
        last = h + part->nelts;

        for ( /* void */ ; h < last; h++) {

            if (h->key.len < NGX_RL_HEADER_MIN) {
                continue;
            }

            c = ngx_tolower(h->key.data[0]);

            if ((c == 'x' || c == 'r') && ngx_rl_replaced(&h->key, sets)) {
                h->hash = 0;
            }
        }
    }
}


/* The value stays as long as the request, or its policies. */
static ngx_inline void
ngx_rl_write(ngx_rl_writer_t *w, ngx_rl_header_e which, const void *value,
    size_t len)
{
    ngx_table_elt_t        *h;
    const ngx_rl_header_t  *header;

    header = &ngx_rl_headers[which];
    h = w->header++;

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = header->name;
    h->lowcase_key = header->lowcase;
    h->value = ngx_rl_str((u_char *) value, len);
}


static ngx_inline void
ngx_rl_write_number(ngx_rl_writer_t *w, ngx_rl_header_e which, uint64_t number)
{
    u_char  *value;

    value = w->value;
    w->value = ngx_rl_number_write(value, number);

    ngx_rl_write(w, which, value, w->value - value);
}


static void
ngx_rl_write_x(ngx_rl_writer_t *w, ngx_rl_ctx_t *ctx,
    const ngx_rl_counter_t *counter)
{
    const ngx_rl_limit_t  *limit;

    limit = ngx_rl_counter_limit(counter);

    ngx_rl_write(w, NGX_RL_X_LIMIT, limit->text, limit->digits);

    if (!ngx_rl_has_answer(counter)) {
        ngx_rl_write(w, NGX_RL_X_REMAINING, "-1", 2);

    } else {
        ngx_rl_write_number(w, NGX_RL_X_REMAINING,
                            ngx_rl_counter_remaining(counter));

        if (limit->algorithm != NGX_RL_CONCURRENCY) {
            ngx_rl_write_number(w, NGX_RL_X_RESET, ngx_rl_reset(ctx, counter));
        }
    }

    if (counter->source == NGX_RL_SOURCE_FALLBACK) {
        ngx_rl_write(w, NGX_RL_X_POLICY, "degraded", sizeof("degraded") - 1);
        ngx_rl_write(w, NGX_RL_X_STATUS, "degraded", sizeof("degraded") - 1);
    }
}


/*
 * As ngx_rl_quota_more_us(), from now on: the answer is of the decision.
 * The request may have been delayed, or its response been long in coming.
 */
static uint64_t
ngx_rl_more_us(const ngx_rl_ctx_t *ctx, const ngx_rl_counter_t *counter)
{
    uint64_t  more_us, passed_us;

    more_us = ngx_rl_quota_more_us(ngx_rl_counter_limit(counter),
                                   &counter->answer);

    if (more_us == NGX_RL_NEVER) {
        return more_us;
    }

    passed_us = ngx_rl_passed_us(ctx);

    return (more_us > passed_us) ? more_us - passed_us : 0;
}


static void
ngx_rl_write_draft3(ngx_rl_writer_t *w, const ngx_rl_ctx_t *ctx,
    const ngx_rl_counter_t *counter)
{
    uint64_t               more_us;
    const ngx_rl_limit_t  *limit;

    limit = ngx_rl_counter_limit(counter);

    ngx_rl_write(w, NGX_RL_DRAFT3_LIMIT, limit->text, limit->text_len);

    if (!ngx_rl_has_answer(counter)) {
        return;
    }

    ngx_rl_write_number(w, NGX_RL_DRAFT3_REMAINING,
                        ngx_rl_counter_remaining(counter));

    more_us = ngx_rl_more_us(ctx, counter);

    if (more_us != NGX_RL_NEVER) {
        ngx_rl_write_number(w, NGX_RL_DRAFT3_RESET, ngx_rl_seconds_up(more_us));
    }
}


/*
 * Two lists: every rule that is enforced, the same ones whatever happens to a
 * request; and the tokens left of those rules, as far as they are known. Takes
 * the next header and returns the one behind the lists; NULL: memory is out.
 */
static ngx_table_elt_t *
ngx_rl_write_lists(ngx_table_elt_t *header, ngx_http_request_t *r,
    const ngx_rl_ctx_t *ctx)
{
    size_t                   size, name_len, pk_len;
    u_char                  *p, *left, *lists[2], *name;
    u_char                   pk[NGX_RL_PK_TEXT];
    ngx_uint_t               i;
    ngx_rl_writer_t          w;
    const ngx_rl_check_t    *check;
    const ngx_rl_client_t   *client;
    const ngx_rl_counter_t  *counter;

    check = &ctx->check;
    client = NULL;

    size = 0;

    for (i = 0; i < check->ncounters; i++) {
        size += NGX_RL_ITEM_BYTES + ngx_rl_name_bytes(&check->counters[i]);
    }

    lists[0] = ngx_pnalloc(r->pool, 2 * size);
    if (lists[0] == NULL) {
        return NULL;
    }

    lists[1] = lists[0] + size;
    p = lists[0];
    left = lists[1];

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->dry_run) {
            continue;
        }

        if (p != lists[0]) {
            p = ngx_cpymem(p, ", ", 2);
        }

        name = p;
        p = ngx_rl_put_name(p, check, counter);
        name_len = p - name;

        p = ngx_rl_quota_policy(p, ngx_rl_counter_limit(counter));

        /* one for which Redis was not asked has no hash */

        pk_len = 0;

        if (counter->source != NGX_RL_SOURCE_NONE) {
            pk_len = sizeof(pk);

            if (client != counter->client) {
                client = counter->client;
                ngx_rl_quota_pk(pk, ngx_rl_client_hash(counter->client));
            }
        }

        p = ngx_cpymem(p, pk, pk_len);

        if (!ngx_rl_has_answer(counter)) {
            continue;
        }

        if (left != lists[1]) {
            left = ngx_cpymem(left, ", ", 2);
        }

        left = ngx_cpymem(left, name, name_len);
        left = ngx_rl_quota_left(left, ngx_rl_counter_remaining(counter),
                                 ngx_rl_more_us(ctx, counter));
        left = ngx_cpymem(left, pk, pk_len);
    }

    w.header = header;

    ngx_rl_write(&w, NGX_RL_IETF_POLICY, lists[0], p - lists[0]);

    if (left != lists[1]) {
        ngx_rl_write(&w, NGX_RL_IETF_LEFT, lists[1], left - lists[1]);
    }

    return w.header;
}


/*
 * The values are the limit's text and numbers, for which the context has room.
 * A penalty has no limit: its answers have Retry-After alone.
 */
static ngx_int_t
ngx_rl_add_headers(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_int_t                retry_after;
    ngx_list_t              *headers;
    ngx_uint_t               sets;
    ngx_list_part_t         *part;
    ngx_table_elt_t         *first;
    ngx_rl_writer_t          w;
    const ngx_rl_counter_t  *counter;

    counter = ctx->check.strictest;
    sets = counter ? ctx->conf->headers : 0;

    /* an error_page may have made a redirect or a success of it */

    if (ngx_rl_check_refused(&ctx->check)
        && !(r->error_page && r->headers_out.status < NGX_HTTP_BAD_REQUEST))
    {
        sets |= NGX_RL_HEADERS_RETRY;
    }

    if (r->headers_out.headers.part.nelts) {
        ngx_rl_hide_headers(r, sets);
    }

    /* a part without room for all is filled up with some that are not sent */

    headers = &r->headers_out.headers;

    while (headers->nalloc - headers->last->nelts < NGX_RL_HEADERS) {
        first = ngx_list_push(headers);
        if (first == NULL) {
            return NGX_ERROR;
        }

        ngx_memzero(first, sizeof(ngx_table_elt_t));
    }

    part = headers->last;
    first = (ngx_table_elt_t *) part->elts + part->nelts;
    w.header = first;
    w.value = ctx->numbers;

    if (sets & NGX_RL_HEADERS_X) {
        ngx_rl_write_x(&w, ctx, counter);
    }

    if (sets & NGX_RL_HEADERS_DRAFT3) {
        ngx_rl_write_draft3(&w, ctx, counter);
    }

    if (sets & NGX_RL_HEADERS_IETF) {
        w.header = ngx_rl_write_lists(w.header, r, ctx);
        if (w.header == NULL) {
            return NGX_ERROR;
        }
    }

    if (sets & NGX_RL_HEADERS_RETRY) {

        /* the strictest of those that deny has the longest wait */

        retry_after = ctx->penalized ? (ngx_int_t) ngx_rl_penalty_seconds(ctx)
                                     : ngx_rl_retry_after(counter);

        if (retry_after != -1) {
            ngx_rl_write_number(&w, NGX_RL_RETRY_AFTER, retry_after);
        }
    }

    part->nelts += w.header - first;

    return NGX_OK;
}


static ngx_int_t
ngx_rl_filter(ngx_http_request_t *r)
{
    ngx_rl_ctx_t  *ctx;

    ctx = (r == r->main) ? ngx_rl_ctx(r) : NULL;

    if (ctx == NULL || !ctx->answered) {
        return ngx_http_next_header_filter(r);
    }

    /* the response counts, by its status or its header */

    if (ctx->needs & NGX_RL_NEEDS_SETTLE) {
        ngx_rl_charge_header(r, ctx);

        if (ctx->ends) {
            ngx_rl_charge_every(r, ctx);
        }
    }

    if (ctx->needs & NGX_RL_NEEDS_STATUS) {
        ngx_rl_penalty_events(r, ctx, r->headers_out.status);
    }

    if ((ctx->check.strictest || ctx->penalized)
        && ctx->conf->headers != NGX_RL_HEADERS_OFF
        && ngx_rl_add_headers(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


/*
 * Runs for requests without a limit, or without headers, too: it needs no
 * stack, no registers.
 */
static ngx_int_t
ngx_rl_header_filter(ngx_http_request_t *r)
{
    ngx_rl_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_ratelimit_module);

    if (ctx ? (ctx->conf->headers == NGX_RL_HEADERS_OFF
               && !(ctx->needs & (NGX_RL_NEEDS_SETTLE |NGX_RL_NEEDS_STATUS)))
            : !(r->internal || r->filter_finalize))
    {
        return ngx_http_next_header_filter(r);
    }

    return ngx_rl_filter(r);
}


ngx_int_t
ngx_rl_headers_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_rl_header_filter;

    return NGX_OK;
}

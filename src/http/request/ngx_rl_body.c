/*
 * The bodies of a refusal: JSON, and the problem of RFC 9457. They are written
 * in pieces, a value after each: a flood of rejections must be cheap. With one
 * format for all of it, a rejection took 3,500 instructions more.
 *
 * Numbers and the names of rules are all that stands in them. No byte that a
 * client has sent gets here.
 */

#include "ngx_rl_request.h"

#define NGX_RL_MESSAGE_KEY     "This API key is denied"
#define NGX_RL_MESSAGE_CLIENT  "This client is denied"

#define NGX_RL_BODY_JSON  "{\"error\":{\"code\":\""
#define NGX_RL_PROBLEM                                                        \
    "{\"type\":\"https://iana.org/assignments/http-problem-types"

/* of either body, without names of rules; with the longest numbers it is 370 */
#define NGX_RL_BODY_BYTES  512

#define ngx_rl_put(p, text)                                                   \
    ngx_cpymem(p, text, sizeof(text) - 1)

/* problem or not; of a client, of an API key, of a token */
#define ngx_rl_denied_json(code, message)                                     \
    ngx_string(NGX_RL_BODY_JSON code "\",\"message\":\"" message               \
               "\"}}\n")
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


/* "ratelimit_status" is for rejections only. */
ngx_uint_t
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


u_char *
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
        ? ngx_rl_put(p, "#temporary-reduced-capacity\","
                                    "\"title\":\"Temporary Reduced Capacity")
        : ngx_rl_put(p, "#quota-exceeded\","
                                    "\"title\":\"Quota Exceeded");
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

    p = unavailable
        ? ngx_rl_put(p, NGX_RL_BODY_JSON
                                    "RATE_LIMIT_UNAVAILABLE\",\"message\":\"")
        : ngx_rl_put(p, NGX_RL_BODY_JSON
                                    "RATE_LIMIT_EXCEEDED\",\"message\":\"");
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


ngx_int_t
ngx_rl_body(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_str_t *body)
{
    size_t           size;
    u_char          *last;
    ngx_uint_t       i, problem;
    ngx_rl_check_t  *check;

    check = &ctx->check;
    problem = (ctx->conf->response == NGX_RL_RESPONSE_PROBLEM);

    if (check->status == NGX_RL_DENIED) {

        *body = ngx_rl_body_denied[problem] [ctx->token ? 2 : ctx->key_denied];

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

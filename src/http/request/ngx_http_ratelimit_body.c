/*
 * The bodies of a refusal: JSON, and the problem of RFC 9457. They are written
 * in pieces, a value after each: a flood of rejections must be cheap. With one
 * format for all of it, a rejection took 3,500 instructions more.
 *
 * Numbers and the names of rules are all that stands in them. No byte that a
 * client has sent gets here.
 */

#include "ngx_http_ratelimit_answer.h"

#define NGX_HTTP_RATELIMIT_MESSAGE_UNAVAILABLE                                \
    "Rate limit temporarily unavailable"
#define NGX_HTTP_RATELIMIT_MESSAGE_DENIED  "This API key is denied"

#define NGX_HTTP_RATELIMIT_JSON                                               \
    "{\"error\":{\"code\":\"RATE_LIMIT_EXCEEDED\",\"message\":\""
#define NGX_HTTP_RATELIMIT_JSON_UNAVAILABLE                                   \
    "{\"error\":{\"code\":\"RATE_LIMIT_UNAVAILABLE\",\"message\":\""
#define NGX_HTTP_RATELIMIT_JSON_DENIED                                        \
    "{\"error\":{\"code\":\"API_KEY_DENIED\",\"message\":\""               \
    NGX_HTTP_RATELIMIT_MESSAGE_DENIED "\"}}\n"
#define NGX_HTTP_RATELIMIT_JSON_LIMIT   "\",\"details\":{\"limit\":"
#define NGX_HTTP_RATELIMIT_JSON_UNIT    ",\"unit\":\""
#define NGX_HTTP_RATELIMIT_JSON_WINDOW  ",\"window_seconds\":"
#define NGX_HTTP_RATELIMIT_JSON_RETRY   ",\"retry_after_seconds\":"
#define NGX_HTTP_RATELIMIT_JSON_RESET   ",\"reset_at\":\""
#define NGX_HTTP_RATELIMIT_JSON_END     "}}}\n"

#define NGX_HTTP_RATELIMIT_JSON_BYTES                                         \
    (sizeof(NGX_HTTP_RATELIMIT_JSON_UNAVAILABLE NGX_HTTP_RATELIMIT_JSON_LIMIT \
            NGX_HTTP_RATELIMIT_JSON_UNIT "concurrent-requests\""              \
            NGX_HTTP_RATELIMIT_JSON_WINDOW NGX_HTTP_RATELIMIT_JSON_RETRY      \
            NGX_HTTP_RATELIMIT_JSON_RESET                                     \
            "292277026596-12-31T23:59:59Z\"" NGX_HTTP_RATELIMIT_JSON_END)     \
     + NGX_HTTP_RATELIMIT_MESSAGE_BYTES + 3 * NGX_INT64_LEN)

#define NGX_HTTP_RATELIMIT_PROBLEM                                            \
    "{\"type\":\"https://iana.org/assignments/http-problem-types"             \
    "#quota-exceeded\",\"title\":\"Quota Exceeded\",\"status\":"
#define NGX_HTTP_RATELIMIT_PROBLEM_UNAVAILABLE                                \
    "{\"type\":\"https://iana.org/assignments/http-problem-types"             \
    "#temporary-reduced-capacity\",\"title\":\"Temporary Reduced Capacity\"" \
    ",\"status\":"
#define NGX_HTTP_RATELIMIT_PROBLEM_DENIED                                     \
    "{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403,"      \
    "\"detail\":\"" NGX_HTTP_RATELIMIT_MESSAGE_DENIED "\"}\n"
#define NGX_HTTP_RATELIMIT_PROBLEM_DETAIL    ",\"detail\":\""
#define NGX_HTTP_RATELIMIT_PROBLEM_VIOLATED  "\",\"violated-policies\":["
#define NGX_HTTP_RATELIMIT_PROBLEM_END       "]}\n"
#define NGX_HTTP_RATELIMIT_PROBLEM_NOTHING   "\"}\n"

/* and, for each rule that denies, its id and this */
#define NGX_HTTP_RATELIMIT_PROBLEM_BYTES                                      \
    (sizeof(NGX_HTTP_RATELIMIT_PROBLEM_UNAVAILABLE                            \
            NGX_HTTP_RATELIMIT_PROBLEM_DETAIL                                 \
            NGX_HTTP_RATELIMIT_PROBLEM_VIOLATED                               \
            NGX_HTTP_RATELIMIT_PROBLEM_END)                                   \
     + NGX_HTTP_RATELIMIT_MESSAGE_BYTES + NGX_INT64_LEN)
#define NGX_HTTP_RATELIMIT_VIOLATED_BYTES    (sizeof("\"\",") - 1)

#define ngx_http_ratelimit_put(p, text)                                       \
    ngx_cpymem(p, text, sizeof(text) - 1)

static u_char *ngx_http_ratelimit_put_unit(u_char *p,
    const ngx_ratelimit_counter_t *counter);
static u_char *ngx_http_ratelimit_put_violated(u_char *p,
    const ngx_ratelimit_check_t *check);
static u_char *ngx_http_ratelimit_put_time(u_char *p, time_t sec);
static u_char *ngx_http_ratelimit_put_two(u_char *p, u_char before,
    ngx_uint_t value);


/* "ratelimit_status" is for rejections only. */
ngx_uint_t
ngx_http_ratelimit_refused_status(const ngx_http_ratelimit_ctx_t *ctx)
{
    switch (ctx->check.status) {

    case NGX_RATELIMIT_DENIED:
        return NGX_HTTP_FORBIDDEN;

    case NGX_RATELIMIT_UNAVAILABLE:
        return NGX_HTTP_SERVICE_UNAVAILABLE;

    default:
        return ctx->conf->status;
    }
}


u_char *
ngx_http_ratelimit_message(u_char *p, const ngx_ratelimit_counter_t *counter)
{
    const ngx_ratelimit_limit_t  *limit;

    if (counter == NULL) {
        return ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_MESSAGE_DENIED);
    }

    limit = ngx_ratelimit_counter_limit(counter);

    if (ngx_ratelimit_counter_unavailable(counter)) {
        return ngx_http_ratelimit_put(p,
                                      NGX_HTTP_RATELIMIT_MESSAGE_UNAVAILABLE);
    }

    if (limit->algorithm == NGX_RATELIMIT_CONCURRENCY) {
        p = ngx_http_ratelimit_put(p, "Limit of ");
        p = ngx_ratelimit_number_write(p, limit->capacity);
        p = ngx_http_ratelimit_put(p, " concurrent request");

        if (limit->capacity != 1) {
            *p++ = 's';
        }

        return ngx_http_ratelimit_put(p, " exceeded");
    }

    p = ngx_http_ratelimit_put(p, "Rate limit of ");
    p = ngx_ratelimit_number_write(p, limit->capacity);
    *p++ = ' ';
    p = ngx_http_ratelimit_put_unit(p, counter);

    if (limit->capacity == 1) {
        p--;    /* the plural's end */
    }

    p = ngx_http_ratelimit_put(p, " in ");

    if (limit->calendar == NGX_RATELIMIT_CALENDAR_MONTH) {
        p = ngx_http_ratelimit_put(p, "1 month");

    } else {
        p = ngx_ratelimit_span_write(p,
                                   ngx_ratelimit_seconds_up(limit->window_us));
    }

    return ngx_http_ratelimit_put(p, " exceeded");
}


/* The unit of a limit: tokens, if a request may cost more or less than one. */
static u_char *
ngx_http_ratelimit_put_unit(u_char *p, const ngx_ratelimit_counter_t *counter)
{
    const ngx_ratelimit_rule_t  *rule;

    rule = counter->rule;

    if (ngx_ratelimit_counter_limit(counter)->algorithm
        == NGX_RATELIMIT_CONCURRENCY)
    {
        return ngx_http_ratelimit_put(p, "concurrent-requests");
    }

    /* the limit of an emergency counts requests, whatever they cost */

    if ((rule->cost != 1 || rule->dynamic_cost || rule->cost_header.len)
        && !counter->emergency)
    {
        return ngx_http_ratelimit_put(p, "tokens");
    }

    return ngx_http_ratelimit_put(p, "requests");
}


ngx_int_t
ngx_http_ratelimit_json(ngx_http_request_t *r, ngx_http_ratelimit_ctx_t *ctx,
    ngx_str_t *body)
{
    u_char                         *p;
    ngx_int_t                       retry_after;
    ngx_uint_t                      unavailable;
    const ngx_ratelimit_limit_t    *limit;
    const ngx_ratelimit_counter_t  *counter;

    if (ctx->check.status == NGX_RATELIMIT_DENIED) {
        ngx_str_set(body, NGX_HTTP_RATELIMIT_JSON_DENIED);
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_HTTP_RATELIMIT_JSON_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    body->data = p;

    counter = ctx->check.strictest;
    limit = ngx_ratelimit_counter_limit(counter);
    unavailable = ngx_ratelimit_counter_unavailable(counter);
    retry_after = ngx_http_ratelimit_retry_after(counter);

    p = unavailable
        ? ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_UNAVAILABLE)
        : ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON);
    p = ngx_http_ratelimit_message(p, counter);
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_LIMIT);
    p = ngx_ratelimit_number_write(p, limit->capacity);
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_UNIT);
    p = ngx_http_ratelimit_put_unit(p, counter);
    *p++ = '"';

    if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_WINDOW);
        p = ngx_ratelimit_number_write(p,
                                   ngx_ratelimit_seconds_up(limit->window_us));
    }

    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_RETRY);

    p = (retry_after == -1) ? ngx_http_ratelimit_put(p, "null")
                            : ngx_ratelimit_number_write(p, retry_after);

    if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY && !unavailable) {
        p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_RESET);
        p = ngx_http_ratelimit_put_time(p,
                                        ngx_http_ratelimit_reset(ctx, counter));
        *p++ = '"';
    }

    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_JSON_END);

    body->len = p - body->data;

    return NGX_OK;
}


/* The type and its title are those of draft-ietf-httpapi-ratelimit-headers. */
ngx_int_t
ngx_http_ratelimit_problem(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_str_t *body)
{
    size_t                        size;
    u_char                       *p;
    ngx_uint_t                    i, unavailable;
    const ngx_ratelimit_check_t  *check;

    check = &ctx->check;

    if (check->status == NGX_RATELIMIT_DENIED) {
        ngx_str_set(body, NGX_HTTP_RATELIMIT_PROBLEM_DENIED);
        return NGX_OK;
    }

    size = NGX_HTTP_RATELIMIT_PROBLEM_BYTES;

    for (i = 0; i < check->ncounters; i++) {
        if (ngx_http_ratelimit_denies(&check->counters[i])) {
            size += ngx_http_ratelimit_name_bytes(&check->counters[i])
                    + NGX_HTTP_RATELIMIT_VIOLATED_BYTES;
        }
    }

    p = ngx_pnalloc(r->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    body->data = p;

    unavailable = (check->status == NGX_RATELIMIT_UNAVAILABLE);

    p = unavailable
        ? ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_PROBLEM_UNAVAILABLE)
        : ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_PROBLEM);
    p = ngx_ratelimit_number_write(p, ngx_http_ratelimit_refused_status(ctx));
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_PROBLEM_DETAIL);
    p = ngx_http_ratelimit_message(p, check->strictest);

    if (unavailable) {

        /* no policy is known to be violated */
        p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_PROBLEM_NOTHING);

    } else {
        p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_PROBLEM_VIOLATED);
        p = ngx_http_ratelimit_put_violated(p, check);
        p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_PROBLEM_END);
    }

    body->len = p - body->data;

    return NGX_OK;
}


/* The strictest is one of them: there is a last comma to take back. */
static u_char *
ngx_http_ratelimit_put_violated(u_char *p, const ngx_ratelimit_check_t *check)
{
    ngx_uint_t  i;

    for (i = 0; i < check->ncounters; i++) {

        if (!ngx_http_ratelimit_denies(&check->counters[i])) {
            continue;
        }

        p = ngx_http_ratelimit_put_name(p, check, &check->counters[i]);
        *p++ = ',';
    }

    return p - 1;
}


/* RFC 3339 in UTC, "2026-11-20T22:22:04Z". */
static u_char *
ngx_http_ratelimit_put_time(u_char *p, time_t sec)
{
    ngx_tm_t  tm;

    ngx_gmtime(sec, &tm);

    p = ngx_ratelimit_number_write(p, tm.ngx_tm_year);
    p = ngx_http_ratelimit_put_two(p, '-', tm.ngx_tm_mon);
    p = ngx_http_ratelimit_put_two(p, '-', tm.ngx_tm_mday);
    p = ngx_http_ratelimit_put_two(p, 'T', tm.ngx_tm_hour);
    p = ngx_http_ratelimit_put_two(p, ':', tm.ngx_tm_min);
    p = ngx_http_ratelimit_put_two(p, ':', tm.ngx_tm_sec);
    *p++ = 'Z';

    return p;
}


static u_char *
ngx_http_ratelimit_put_two(u_char *p, u_char before, ngx_uint_t value)
{
    *p++ = before;
    *p++ = (u_char) ('0' + value / 10);
    *p++ = (u_char) ('0' + value % 10);

    return p;
}

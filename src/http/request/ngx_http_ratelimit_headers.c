/*
 * The headers of every response to a limited request, error pages and an
 * upstream's errors included. Ours replace an upstream's of the same name.
 *
 * Numbers, the names of rules and keyed hashes are all that stands in them. No
 * byte that a client has sent gets here.
 */

#include "ngx_http_ratelimit_answer.h"

#include "ngx_ratelimit_quota.h"
#include "ngx_ratelimit_text.h"

/* of a rejected request, in every set: a bit beside the sets' */
#define NGX_HTTP_RATELIMIT_HEADERS_REJECTED  0x80

/* three of x, three of draft3 with a limit and its window, Retry-After */
#define NGX_HTTP_RATELIMIT_NUMBERS_BYTES                                      \
    (9 * NGX_INT64_LEN + sizeof(", ;w="))

/* of each counter in a list, besides its id */
#define NGX_HTTP_RATELIMIT_ITEM_BYTES                                         \
    (sizeof(", \"\"") - 1 + NGX_RATELIMIT_QUOTA_BYTES)

typedef struct {
    ngx_str_t                      name;
    u_char                        *lowcase;
    ngx_uint_t                     sets;    /* bits */
} ngx_http_ratelimit_header_t;

/* The headers of one response while they are made. */
typedef struct {
    ngx_http_request_t            *request;
    ngx_http_ratelimit_ctx_t      *ctx;
    const ngx_ratelimit_counter_t *counter;   /* the strictest */
    ngx_uint_t                     sets;      /* bits */
    uint64_t                       passed_us; /* since the decision */
    u_char                        *p;         /* where the next value goes */
} ngx_http_ratelimit_headers_t;

static ngx_int_t ngx_http_ratelimit_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_add_headers(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static size_t ngx_http_ratelimit_headers_bytes(
    const ngx_http_ratelimit_headers_t *h);
static uint64_t ngx_http_ratelimit_passed_us(
    const ngx_http_ratelimit_ctx_t *ctx);
static ngx_int_t ngx_http_ratelimit_add_x(ngx_http_ratelimit_headers_t *h);
static ngx_int_t ngx_http_ratelimit_add_draft3(
    ngx_http_ratelimit_headers_t *h);
static ngx_int_t ngx_http_ratelimit_add_limit(ngx_http_ratelimit_headers_t *h);
static ngx_int_t ngx_http_ratelimit_add_policy(
    ngx_http_ratelimit_headers_t *h);
static ngx_int_t ngx_http_ratelimit_add_left(ngx_http_ratelimit_headers_t *h);
static ngx_int_t ngx_http_ratelimit_add_retry_after(
    ngx_http_ratelimit_headers_t *h);
static uint64_t ngx_http_ratelimit_more_us(
    const ngx_http_ratelimit_headers_t *h,
    const ngx_ratelimit_counter_t *counter);
static const u_char *ngx_http_ratelimit_pk(
    const ngx_ratelimit_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_add_number(
    ngx_http_ratelimit_headers_t *h, ngx_http_ratelimit_name_e name,
    uint64_t value);
static ngx_inline ngx_int_t ngx_http_ratelimit_push_header(
    ngx_http_request_t *r, ngx_http_ratelimit_name_e name, u_char *value,
    size_t len);
static void ngx_http_ratelimit_hide_headers(ngx_http_request_t *r,
    ngx_uint_t sets);

/* in the order of ngx_http_ratelimit_name_e */
static ngx_http_ratelimit_header_t
    ngx_http_ratelimit_headers[NGX_HTTP_RATELIMIT_NAMES] =
{
    { ngx_string("X-RateLimit-Limit"), (u_char *) "x-ratelimit-limit",
      NGX_HTTP_RATELIMIT_HEADERS_X },
    { ngx_string("X-RateLimit-Remaining"),
      (u_char *) "x-ratelimit-remaining", NGX_HTTP_RATELIMIT_HEADERS_X },
    { ngx_string("X-RateLimit-Reset"), (u_char *) "x-ratelimit-reset",
      NGX_HTTP_RATELIMIT_HEADERS_X },
    { ngx_string("X-RateLimit-Policy"), (u_char *) "x-ratelimit-policy",
      NGX_HTTP_RATELIMIT_HEADERS_X },
    { ngx_string("RateLimit-Limit"), (u_char *) "ratelimit-limit",
      NGX_HTTP_RATELIMIT_HEADERS_DRAFT3 },
    { ngx_string("RateLimit-Remaining"), (u_char *) "ratelimit-remaining",
      NGX_HTTP_RATELIMIT_HEADERS_DRAFT3 },
    { ngx_string("RateLimit-Reset"), (u_char *) "ratelimit-reset",
      NGX_HTTP_RATELIMIT_HEADERS_DRAFT3 },
    { ngx_string("RateLimit-Policy"), (u_char *) "ratelimit-policy",
      NGX_HTTP_RATELIMIT_HEADERS_IETF },
    { ngx_string("RateLimit"), (u_char *) "ratelimit",
      NGX_HTTP_RATELIMIT_HEADERS_IETF },
    { ngx_string("Retry-After"), (u_char *) "retry-after",
      NGX_HTTP_RATELIMIT_HEADERS_REJECTED },
    { ngx_string("grpc-status"), (u_char *) "grpc-status",
      NGX_HTTP_RATELIMIT_HEADERS_OFF },
    { ngx_string("grpc-message"), (u_char *) "grpc-message",
      NGX_HTTP_RATELIMIT_HEADERS_OFF },
};

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


ngx_int_t
ngx_http_ratelimit_headers_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_ratelimit_header_filter;

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_header_filter(ngx_http_request_t *r)
{
    ngx_http_ratelimit_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_ratelimit_ctx(r);

    if (ctx && ctx->answered && !ctx->settled) {
        ngx_http_ratelimit_settle(r, ctx);
    }

    if (ctx && ctx->answered
        && ctx->check.strictest
        && ctx->conf->headers != NGX_HTTP_RATELIMIT_HEADERS_OFF)
    {
        if (ngx_http_ratelimit_add_headers(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_http_next_header_filter(r);
}


/* One allocation for all values of a response. */
static ngx_int_t
ngx_http_ratelimit_add_headers(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_int_t                       rc;
    const ngx_ratelimit_counter_t  *counter;
    ngx_http_ratelimit_headers_t    h;

    counter = ctx->check.strictest;

    h.request = r;
    h.ctx = ctx;
    h.counter = counter;
    h.sets = ctx->conf->headers;
    h.passed_us = 0;

    /* a Retry-After is an upstream's own business unless we write one */

    if (ngx_ratelimit_check_refused(&ctx->check)) {
        h.sets |= NGX_HTTP_RATELIMIT_HEADERS_REJECTED;
    }

    ngx_http_ratelimit_hide_headers(r, h.sets);

    h.p = ngx_pnalloc(r->pool, ngx_http_ratelimit_headers_bytes(&h));
    if (h.p == NULL) {
        return NGX_ERROR;
    }

    rc = NGX_OK;

    if (h.sets & NGX_HTTP_RATELIMIT_HEADERS_X) {
        rc |= ngx_http_ratelimit_add_x(&h);
    }

    if (h.sets & (NGX_HTTP_RATELIMIT_HEADERS_DRAFT3
                  |NGX_HTTP_RATELIMIT_HEADERS_IETF))
    {
        h.passed_us = ngx_http_ratelimit_passed_us(ctx);
    }

    if (h.sets & NGX_HTTP_RATELIMIT_HEADERS_DRAFT3) {
        rc |= ngx_http_ratelimit_add_draft3(&h);
    }

    if (h.sets & NGX_HTTP_RATELIMIT_HEADERS_IETF) {
        rc |= ngx_http_ratelimit_add_policy(&h);
        rc |= ngx_http_ratelimit_add_left(&h);
    }

    if (h.sets & NGX_HTTP_RATELIMIT_HEADERS_REJECTED) {
        rc |= ngx_http_ratelimit_add_retry_after(&h);
    }

    return rc;
}


static size_t
ngx_http_ratelimit_headers_bytes(const ngx_http_ratelimit_headers_t *h)
{
    size_t                        size;
    ngx_uint_t                    i;
    const ngx_ratelimit_check_t  *check;

    size = NGX_HTTP_RATELIMIT_NUMBERS_BYTES;

    if (!(h->sets & NGX_HTTP_RATELIMIT_HEADERS_IETF)) {
        return size;
    }

    check = &h->ctx->check;

    for (i = 0; i < check->ncounters; i++) {
        size += 2 * (NGX_HTTP_RATELIMIT_ITEM_BYTES
                     + ngx_http_ratelimit_name_bytes(&check->counters[i]));
    }

    return size;
}


/* A request may have been delayed, or its answer been long in coming. */
static uint64_t
ngx_http_ratelimit_passed_us(const ngx_http_ratelimit_ctx_t *ctx)
{
    uint64_t     now_ms;
    ngx_time_t  *now;

    now = ngx_timeofday();
    now_ms = (uint64_t) now->sec * 1000 + now->msec;

    /* the system's clock may have been set back */

    return (now_ms > ctx->decided_ms) ? (now_ms - ctx->decided_ms) * 1000 : 0;
}


static ngx_int_t
ngx_http_ratelimit_add_x(ngx_http_ratelimit_headers_t *h)
{
    ngx_int_t                       rc;
    const ngx_ratelimit_limit_t    *limit;
    const ngx_ratelimit_counter_t  *counter;

    static u_char  unknown[] = "-1";
    static u_char  degraded[] = "degraded";

    counter = h->counter;
    limit = ngx_ratelimit_counter_limit(counter);

    rc = ngx_http_ratelimit_add_number(h, NGX_HTTP_RATELIMIT_X_LIMIT,
                                       limit->capacity);

    if (ngx_http_ratelimit_has_answer(counter)) {
        rc |= ngx_http_ratelimit_add_number(h, NGX_HTTP_RATELIMIT_X_REMAINING,
                                            counter->answer.remaining);

        if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
            rc |= ngx_http_ratelimit_add_number(h, NGX_HTTP_RATELIMIT_X_RESET,
                                   ngx_http_ratelimit_reset(h->ctx, counter));
        }

    } else {
        rc |= ngx_http_ratelimit_add_header(h->request,
                                            NGX_HTTP_RATELIMIT_X_REMAINING,
                                            unknown, sizeof(unknown) - 1);
    }

    if (counter->source == NGX_RATELIMIT_SOURCE_FALLBACK) {
        rc |= ngx_http_ratelimit_add_header(h->request,
                                            NGX_HTTP_RATELIMIT_X_POLICY,
                                            degraded, sizeof(degraded) - 1);
    }

    return rc;
}


static ngx_int_t
ngx_http_ratelimit_add_draft3(ngx_http_ratelimit_headers_t *h)
{
    uint64_t                        more_us;
    ngx_int_t                       rc;
    const ngx_ratelimit_counter_t  *counter;

    counter = h->counter;

    rc = ngx_http_ratelimit_add_limit(h);

    if (!ngx_http_ratelimit_has_answer(counter)) {
        return rc;
    }

    rc |= ngx_http_ratelimit_add_number(h, NGX_HTTP_RATELIMIT_REMAINING,
                                        counter->answer.remaining);

    more_us = ngx_http_ratelimit_more_us(h, counter);

    if (more_us != NGX_RATELIMIT_NEVER) {
        rc |= ngx_http_ratelimit_add_number(h, NGX_HTTP_RATELIMIT_RESET,
                                            ngx_ratelimit_seconds_up(more_us));
    }

    return rc;
}


/* Every rule that is enforced: the same ones whatever happens to a request. */
static ngx_int_t
ngx_http_ratelimit_add_policy(ngx_http_ratelimit_headers_t *h)
{
    u_char                         *p;
    ngx_uint_t                      i;
    const ngx_ratelimit_counter_t  *counter;

    p = h->p;

    for (i = 0; i < h->ctx->check.ncounters; i++) {
        counter = &h->ctx->check.counters[i];

        if (counter->dry_run) {
            continue;
        }

        if (h->p != p) {
            *h->p++ = ',';
            *h->p++ = ' ';
        }

        h->p = ngx_http_ratelimit_put_name(h->p, &h->ctx->check, counter);
        h->p = ngx_ratelimit_quota_policy(h->p,
                                          ngx_ratelimit_counter_limit(counter),
                                          ngx_http_ratelimit_pk(counter));
    }

    return ngx_http_ratelimit_add_header(h->request, NGX_HTTP_RATELIMIT_POLICY,
                                         p, h->p - p);
}


/* "120, 120;w=60": the limit, and the same with its window, where it has one */
static ngx_int_t
ngx_http_ratelimit_add_limit(ngx_http_ratelimit_headers_t *h)
{
    u_char                       *p;
    const ngx_ratelimit_limit_t  *limit;

    limit = ngx_ratelimit_counter_limit(h->counter);

    p = h->p;
    h->p = ngx_ratelimit_number_write(p, limit->capacity);

    if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        h->p = ngx_cpymem(h->p, ", ", 2);
        h->p = ngx_ratelimit_number_write(h->p, limit->capacity);
        h->p = ngx_cpymem(h->p, ";w=", 3);
        h->p = ngx_ratelimit_number_write(h->p,
                                   ngx_ratelimit_seconds_up(limit->window_us));
    }

    return ngx_http_ratelimit_add_header(h->request, NGX_HTTP_RATELIMIT_LIMIT,
                                         p, h->p - p);
}


/* The tokens left of those rules, as far as they are known. */
static ngx_int_t
ngx_http_ratelimit_add_left(ngx_http_ratelimit_headers_t *h)
{
    u_char                         *p;
    ngx_uint_t                      i;
    const ngx_ratelimit_counter_t  *counter;

    p = h->p;

    for (i = 0; i < h->ctx->check.ncounters; i++) {
        counter = &h->ctx->check.counters[i];

        if (counter->dry_run || !ngx_http_ratelimit_has_answer(counter)) {
            continue;
        }

        if (h->p != p) {
            *h->p++ = ',';
            *h->p++ = ' ';
        }

        h->p = ngx_http_ratelimit_put_name(h->p, &h->ctx->check, counter);
        h->p = ngx_ratelimit_quota_left(h->p, counter->answer.remaining,
                                        ngx_http_ratelimit_more_us(h, counter),
                                        ngx_http_ratelimit_pk(counter));
    }

    if (h->p == p) {
        return NGX_OK;
    }

    return ngx_http_ratelimit_add_header(h->request, NGX_HTTP_RATELIMIT_LEFT,
                                         p, h->p - p);
}


/* The strictest of those that deny has the longest wait. */
static ngx_int_t
ngx_http_ratelimit_add_retry_after(ngx_http_ratelimit_headers_t *h)
{
    ngx_int_t  retry_after;

    retry_after = ngx_http_ratelimit_retry_after(h->counter);

    if (retry_after == -1) {
        return NGX_OK;
    }

    return ngx_http_ratelimit_add_number(h, NGX_HTTP_RATELIMIT_RETRY_AFTER,
                                         retry_after);
}


/*
 * As ngx_ratelimit_quota_more_us(), from now on: the answer is of the decision,
 * unless the counter has been charged or refunded since.
 */
static uint64_t
ngx_http_ratelimit_more_us(const ngx_http_ratelimit_headers_t *h,
    const ngx_ratelimit_counter_t *counter)
{
    uint64_t  more_us;

    more_us = ngx_ratelimit_quota_more_us(ngx_ratelimit_counter_limit(counter),
                                          &counter->answer);

    if (more_us == NGX_RATELIMIT_NEVER
        || ((counter->charge || counter->refund)
            && counter->source == NGX_RATELIMIT_SOURCE_LOCAL))
    {
        return more_us;
    }

    return (more_us > h->passed_us) ? more_us - h->passed_us : 0;
}


u_char *
ngx_http_ratelimit_put_name(u_char *p, const ngx_ratelimit_check_t *check,
    const ngx_ratelimit_counter_t *counter)
{
    ngx_uint_t                      i;
    const ngx_str_t                *id, *zone;
    const ngx_ratelimit_counter_t  *other;

    id = &counter->rule->id;
    zone = &counter->client->limiter->zone.name;

    *p++ = '"';

    for (i = 0; i < check->ncounters; i++) {
        other = &check->counters[i];

        if (other != counter && !other->dry_run
            && ngx_ratelimit_equal(&other->rule->id, id))
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
 * A counter for which Redis was not asked has no hash. Shared memory is always
 * asked.
 */
static const u_char *
ngx_http_ratelimit_pk(const ngx_ratelimit_counter_t *counter)
{
    if (counter->source == NGX_RATELIMIT_SOURCE_NONE) {
        return NULL;
    }

    return ngx_ratelimit_client_hash(counter->client);
}


static ngx_int_t
ngx_http_ratelimit_add_number(ngx_http_ratelimit_headers_t *h,
    ngx_http_ratelimit_name_e name, uint64_t value)
{
    u_char  *p;

    p = h->p;
    h->p = ngx_ratelimit_number_write(p, value);

    return ngx_http_ratelimit_push_header(h->request, name, p, h->p - p);
}


ngx_int_t
ngx_http_ratelimit_add_header(ngx_http_request_t *r,
    ngx_http_ratelimit_name_e name, u_char *value, size_t len)
{
    return ngx_http_ratelimit_push_header(r, name, value, len);
}


/* In a module a call of a global function goes through a table: not these. */
static ngx_inline ngx_int_t
ngx_http_ratelimit_push_header(ngx_http_request_t *r,
    ngx_http_ratelimit_name_e name, u_char *value, size_t len)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = ngx_http_ratelimit_headers[name].name;
    h->lowcase_key = ngx_http_ratelimit_headers[name].lowcase;
    h->value.data = value;
    h->value.len = len;

    return NGX_OK;
}


/* Drops, of what an upstream has sent, the names of these sets. */
static void
ngx_http_ratelimit_hide_headers(ngx_http_request_t *r, ngx_uint_t sets)
{
    ngx_uint_t                    i, n;
    ngx_list_part_t              *part;
    ngx_table_elt_t              *h;
    ngx_http_ratelimit_header_t  *header;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            for (n = 0; n < NGX_HTTP_RATELIMIT_NAMES; n++) {
                header = &ngx_http_ratelimit_headers[n];

                if (h[i].key.len == header->name.len
                    && (header->sets & sets)
                    && ngx_strncasecmp(h[i].key.data, header->name.data,
                                       header->name.len)
                       == 0)
                {
                    h[i].hash = 0;
                }
            }
        }
    }
}

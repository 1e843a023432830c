/*
 * The headers of every response to a limited request, error pages and an
 * upstream's errors included. Ours replace an upstream's of the same name.
 *
 * Numbers, the names of rules and keyed hashes are all that stands in them. No
 * byte that a client has sent gets here.
 */

#include "ngx_http_ratelimit_request.h"

#include "ngx_ratelimit_quota.h"

/* three of x, three of draft3 with a limit and its window, Retry-After */
#define NGX_HTTP_RATELIMIT_NUMBERS_BYTES                                      \
    (9 * NGX_INT64_LEN + sizeof("degraded, ;w="))

/* of each counter in a list, besides its id */
#define NGX_HTTP_RATELIMIT_ITEM_BYTES                                         \
    (sizeof(", \"\"") - 1 + NGX_RATELIMIT_QUOTA_BYTES)

/* The headers of one response while they are made. */
typedef struct {
    ngx_http_ratelimit_ctx_t       *ctx;
    const ngx_ratelimit_counter_t  *counter;   /* the strictest */
    ngx_uint_t                      sets;      /* bits */
} ngx_http_ratelimit_headers_t;

/* Writes a header's value to p and returns its end; p: there is no header. */
typedef u_char *(*ngx_http_ratelimit_header_pt)(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data);

typedef struct {
    ngx_str_t                       name;
    u_char                         *lowcase;
    ngx_uint_t                      sets;      /* a bit */
    ngx_http_ratelimit_header_pt    write;
    ngx_uint_t                      data;
} ngx_http_ratelimit_header_t;

static ngx_int_t ngx_http_ratelimit_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_add_headers(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static ngx_inline u_char *ngx_http_ratelimit_add_row(ngx_http_request_t *r,
    const ngx_http_ratelimit_headers_t *h,
    const ngx_http_ratelimit_header_t *header, u_char *p);
static size_t ngx_http_ratelimit_headers_bytes(
    const ngx_http_ratelimit_headers_t *h);
static u_char *ngx_http_ratelimit_write_limit(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t window);
static u_char *ngx_http_ratelimit_write_remaining(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t unknown);
static u_char *ngx_http_ratelimit_write_reset(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data);
static u_char *ngx_http_ratelimit_write_degraded(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data);
static u_char *ngx_http_ratelimit_write_reset_in(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data);
static u_char *ngx_http_ratelimit_write_list(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t left);
static u_char *ngx_http_ratelimit_write_retry_after(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data);
static uint64_t ngx_http_ratelimit_more_us(
    const ngx_http_ratelimit_ctx_t *ctx,
    const ngx_ratelimit_counter_t *counter);
static ngx_inline ngx_int_t ngx_http_ratelimit_push_header(
    ngx_http_request_t *r, const ngx_str_t *name, u_char *lowcase,
    u_char *value, size_t len);
static void ngx_http_ratelimit_hide_headers(ngx_http_request_t *r,
    ngx_uint_t sets, ngx_uint_t rejected);

/* in the order of their sets' bits, which is that of a response */
static const ngx_http_ratelimit_header_t  ngx_http_ratelimit_headers[] = {

    { ngx_string("X-RateLimit-Limit"), (u_char *) "x-ratelimit-limit",
      NGX_HTTP_RATELIMIT_HEADERS_X,
      ngx_http_ratelimit_write_limit, 0 },

    { ngx_string("X-RateLimit-Remaining"), (u_char *) "x-ratelimit-remaining",
      NGX_HTTP_RATELIMIT_HEADERS_X,
      ngx_http_ratelimit_write_remaining, 1 },

    { ngx_string("X-RateLimit-Reset"), (u_char *) "x-ratelimit-reset",
      NGX_HTTP_RATELIMIT_HEADERS_X,
      ngx_http_ratelimit_write_reset, 0 },

    { ngx_string("X-RateLimit-Policy"), (u_char *) "x-ratelimit-policy",
      NGX_HTTP_RATELIMIT_HEADERS_X,
      ngx_http_ratelimit_write_degraded, 0 },

    { ngx_string("RateLimit-Limit"), (u_char *) "ratelimit-limit",
      NGX_HTTP_RATELIMIT_HEADERS_DRAFT3,
      ngx_http_ratelimit_write_limit, 1 },

    { ngx_string("RateLimit-Remaining"), (u_char *) "ratelimit-remaining",
      NGX_HTTP_RATELIMIT_HEADERS_DRAFT3,
      ngx_http_ratelimit_write_remaining, 0 },

    { ngx_string("RateLimit-Reset"), (u_char *) "ratelimit-reset",
      NGX_HTTP_RATELIMIT_HEADERS_DRAFT3,
      ngx_http_ratelimit_write_reset_in, 0 },

    { ngx_string("RateLimit-Policy"), (u_char *) "ratelimit-policy",
      NGX_HTTP_RATELIMIT_HEADERS_IETF,
      ngx_http_ratelimit_write_list, 0 },

    { ngx_string("RateLimit"), (u_char *) "ratelimit",
      NGX_HTTP_RATELIMIT_HEADERS_IETF,
      ngx_http_ratelimit_write_list, 1 },

    { ngx_null_string, NULL, NGX_MAX_UINT32_VALUE, NULL, 0 }
};

/* of a rejected request, behind every set */
static const ngx_http_ratelimit_header_t  ngx_http_ratelimit_retry_header = {
    ngx_string("Retry-After"), (u_char *) "retry-after",
    0, ngx_http_ratelimit_write_retry_after, 0
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

    ctx = (r == r->main) ? ngx_http_ratelimit_ctx(r) : NULL;

    if (ctx == NULL || !ctx->answered) {
        return ngx_http_next_header_filter(r);
    }

    if (!ctx->settled) {
        ngx_http_ratelimit_settle(r, ctx);
    }

    if (ctx->check.strictest
        && ctx->conf->headers != NGX_HTTP_RATELIMIT_HEADERS_OFF
        && ngx_http_ratelimit_add_headers(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


/* One allocation for all values of a response. */
static ngx_int_t
ngx_http_ratelimit_add_headers(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    u_char                             *p;
    ngx_uint_t                          rejected;
    ngx_http_ratelimit_headers_t        h;
    const ngx_http_ratelimit_header_t  *header;

    h.ctx = ctx;
    h.counter = ctx->check.strictest;
    h.sets = ctx->conf->headers;

    rejected = ngx_ratelimit_check_refused(&ctx->check);

    ngx_http_ratelimit_hide_headers(r, h.sets, rejected);

    p = ngx_pnalloc(r->pool, ngx_http_ratelimit_headers_bytes(&h));
    if (p == NULL) {
        return NGX_ERROR;
    }

    for (header = ngx_http_ratelimit_headers; header->sets <= h.sets; header++)
    {
        if (header->sets & h.sets) {
            p = ngx_http_ratelimit_add_row(r, &h, header, p);
            if (p == NULL) {
                return NGX_ERROR;
            }
        }
    }

    if (rejected
        && ngx_http_ratelimit_add_row(r, &h, &ngx_http_ratelimit_retry_header,
                                      p)
           == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Returns the value's end, NULL if memory is out. */
static ngx_inline u_char *
ngx_http_ratelimit_add_row(ngx_http_request_t *r,
    const ngx_http_ratelimit_headers_t *h,
    const ngx_http_ratelimit_header_t *header, u_char *p)
{
    u_char  *last;

    last = header->write(p, h, header->data);

    if (last != p
        && ngx_http_ratelimit_push_header(r, &header->name, header->lowcase,
                                          p, last - p)
           != NGX_OK)
    {
        return NULL;
    }

    return last;
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


/* "120" or, with the limit's window where it has one, "120, 120;w=60" */
static u_char *
ngx_http_ratelimit_write_limit(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t window)
{
    const ngx_ratelimit_limit_t  *limit;

    limit = ngx_ratelimit_counter_limit(h->counter);

    p = ngx_ratelimit_number_write(p, limit->capacity);

    if (!window || limit->algorithm == NGX_RATELIMIT_CONCURRENCY) {
        return p;
    }

    p = ngx_cpymem(p, ", ", 2);
    p = ngx_ratelimit_number_write(p, limit->capacity);
    p = ngx_cpymem(p, ";w=", 3);

    return ngx_ratelimit_number_write(p,
                                   ngx_ratelimit_seconds_up(limit->window_us));
}


/* unknown: "-1" if nobody knows */
static u_char *
ngx_http_ratelimit_write_remaining(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t unknown)
{
    if (ngx_http_ratelimit_has_answer(h->counter)) {
        return ngx_ratelimit_number_write(p, h->counter->answer.remaining);
    }

    return unknown ? ngx_cpymem(p, "-1", 2) : p;
}


static u_char *
ngx_http_ratelimit_write_reset(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data)
{
    if (!ngx_http_ratelimit_has_answer(h->counter)
        || ngx_ratelimit_counter_limit(h->counter)->algorithm
           == NGX_RATELIMIT_CONCURRENCY)
    {
        return p;
    }

    return ngx_ratelimit_number_write(p,
                             ngx_http_ratelimit_reset(h->ctx, h->counter));
}


static u_char *
ngx_http_ratelimit_write_degraded(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data)
{
    return (h->counter->source == NGX_RATELIMIT_SOURCE_FALLBACK)
           ? ngx_cpymem(p, "degraded", sizeof("degraded") - 1) : p;
}


static u_char *
ngx_http_ratelimit_write_reset_in(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data)
{
    uint64_t  more_us;

    if (!ngx_http_ratelimit_has_answer(h->counter)) {
        return p;
    }

    more_us = ngx_http_ratelimit_more_us(h->ctx, h->counter);

    return (more_us == NGX_RATELIMIT_NEVER)
           ? p : ngx_ratelimit_number_write(p,
                                            ngx_ratelimit_seconds_up(more_us));
}


/*
 * Every rule that is enforced, the same ones whatever happens to a request; or
 * the tokens left of those rules, as far as they are known.
 */
static u_char *
ngx_http_ratelimit_write_list(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t left)
{
    u_char                         *start;
    ngx_uint_t                      i;
    const u_char                   *pk;
    const ngx_ratelimit_counter_t  *counter;

    start = p;

    for (i = 0; i < h->ctx->check.ncounters; i++) {
        counter = &h->ctx->check.counters[i];

        if (counter->dry_run
            || (left && !ngx_http_ratelimit_has_answer(counter)))
        {
            continue;
        }

        if (p != start) {
            p = ngx_cpymem(p, ", ", 2);
        }

        p = ngx_http_ratelimit_put_name(p, &h->ctx->check, counter);

        /* one for which Redis was not asked has no hash */

        pk = (counter->source == NGX_RATELIMIT_SOURCE_NONE)
             ? NULL : ngx_ratelimit_client_hash(counter->client);

        p = left
            ? ngx_ratelimit_quota_left(p, counter->answer.remaining,
                                 ngx_http_ratelimit_more_us(h->ctx, counter),
                                 pk)
            : ngx_ratelimit_quota_policy(p,
                                         ngx_ratelimit_counter_limit(counter),
                                         pk);
    }

    return p;
}


/* The strictest of those that deny has the longest wait. */
static u_char *
ngx_http_ratelimit_write_retry_after(u_char *p,
    const ngx_http_ratelimit_headers_t *h, ngx_uint_t data)
{
    ngx_int_t  retry_after;

    retry_after = ngx_http_ratelimit_retry_after(h->counter);

    return (retry_after == -1) ? p : ngx_ratelimit_number_write(p, retry_after);
}


/*
 * As ngx_ratelimit_quota_more_us(), from now on: the answer is of the decision,
 * unless the counter has been charged or refunded since. The request may have
 * been delayed, or its response been long in coming.
 */
static uint64_t
ngx_http_ratelimit_more_us(const ngx_http_ratelimit_ctx_t *ctx,
    const ngx_ratelimit_counter_t *counter)
{
    uint64_t  more_us, passed_us;

    more_us = ngx_ratelimit_quota_more_us(ngx_ratelimit_counter_limit(counter),
                                          &counter->answer);

    if (more_us == NGX_RATELIMIT_NEVER
        || ((counter->charge || counter->refund)
            && counter->source == NGX_RATELIMIT_SOURCE_LOCAL))
    {
        return more_us;
    }

    passed_us = ngx_http_ratelimit_passed_us(ctx);

    return (more_us > passed_us) ? more_us - passed_us : 0;
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


ngx_int_t
ngx_http_ratelimit_add_header(ngx_http_request_t *r, const ngx_str_t *name,
    u_char *lowcase, u_char *value, size_t len)
{
    return ngx_http_ratelimit_push_header(r, name, lowcase, value, len);
}


/* Inline for those of every response: a call costs as much as its work. */
static ngx_inline ngx_int_t
ngx_http_ratelimit_push_header(ngx_http_request_t *r, const ngx_str_t *name,
    u_char *lowcase, u_char *value, size_t len)
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
    h->key = *name;
    h->lowcase_key = lowcase;
    h->value.data = value;
    h->value.len = len;

    return NGX_OK;
}


/*
 * Drops, of what an upstream has sent, the names of these sets. Its Retry-After
 * is its own business unless we write one.
 */
static void
ngx_http_ratelimit_hide_headers(ngx_http_request_t *r, ngx_uint_t sets,
    ngx_uint_t rejected)
{
    const ngx_http_ratelimit_header_t  *header;

    if (r->headers_out.headers.part.nelts == 0) {
        return;
    }

    for (header = ngx_http_ratelimit_headers; header->sets <= sets; header++) {

        if (header->sets & sets) {
            (void) ngx_http_ratelimit_find_header(&r->headers_out.headers,
                                                  &header->name, 1);
        }
    }

    if (rejected) {
        header = &ngx_http_ratelimit_retry_header;

        (void) ngx_http_ratelimit_find_header(&r->headers_out.headers,
                                              &header->name, 1);
    }
}

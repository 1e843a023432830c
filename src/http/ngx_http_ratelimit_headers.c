/*
 * The headers of every response to a limited request, error pages and an
 * upstream's errors included. Ours replace an upstream's of the same name.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_VALUE_BYTES  (NGX_INT64_LEN + 1)

typedef enum {
    NGX_HTTP_RATELIMIT_LIMIT = 0,
    NGX_HTTP_RATELIMIT_REMAINING,
    NGX_HTTP_RATELIMIT_RESET,
    NGX_HTTP_RATELIMIT_POLICY,
    NGX_HTTP_RATELIMIT_RETRY_AFTER,
    NGX_HTTP_RATELIMIT_NAMES
} ngx_http_ratelimit_name_e;

typedef struct {
    ngx_str_t  name;
    u_char    *lowcase;
} ngx_http_ratelimit_header_t;

static ngx_int_t ngx_http_ratelimit_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_add_headers(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static ngx_int_t ngx_http_ratelimit_add_header(ngx_http_request_t *r,
    ngx_http_ratelimit_name_e name, u_char *value, size_t len);
static void ngx_http_ratelimit_hide_headers(ngx_http_request_t *r,
    ngx_uint_t names);

static ngx_http_ratelimit_header_t
    ngx_http_ratelimit_headers[NGX_HTTP_RATELIMIT_NAMES] =
{
    { ngx_string("X-RateLimit-Limit"), (u_char *) "x-ratelimit-limit" },
    { ngx_string("X-RateLimit-Remaining"),
      (u_char *) "x-ratelimit-remaining" },
    { ngx_string("X-RateLimit-Reset"), (u_char *) "x-ratelimit-reset" },
    { ngx_string("X-RateLimit-Policy"), (u_char *) "x-ratelimit-policy" },
    { ngx_string("Retry-After"), (u_char *) "retry-after" },
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


static ngx_int_t
ngx_http_ratelimit_add_headers(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    u_char                   *p, *last;
    ngx_int_t                 rc, retry_after;
    ngx_ratelimit_counter_t  *counter;

    static u_char             unknown[] = "-1";
    static u_char             degraded[] = "degraded";

    /* a Retry-After is an upstream's own business unless we write one */
    ngx_http_ratelimit_hide_headers(r,
                          ctx->check.status == NGX_RATELIMIT_REJECTED
                          ? NGX_HTTP_RATELIMIT_NAMES
                          : NGX_HTTP_RATELIMIT_RETRY_AFTER);

    counter = ctx->check.strictest;

    p = ngx_pnalloc(r->pool, 4 * NGX_HTTP_RATELIMIT_VALUE_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_ratelimit_number_write(p, counter->limit->capacity);
    rc = ngx_http_ratelimit_add_header(r, NGX_HTTP_RATELIMIT_LIMIT, p,
                                       last - p);

    if (ctx->check.status == NGX_RATELIMIT_DEGRADED) {
        rc |= ngx_http_ratelimit_add_header(r, NGX_HTTP_RATELIMIT_REMAINING,
                                            unknown, sizeof(unknown) - 1);
        rc |= ngx_http_ratelimit_add_header(r, NGX_HTTP_RATELIMIT_POLICY,
                                            degraded, sizeof(degraded) - 1);
        return rc;
    }

    p = last;
    last = ngx_ratelimit_number_write(p, counter->answer.remaining);
    rc |= ngx_http_ratelimit_add_header(r, NGX_HTTP_RATELIMIT_REMAINING, p,
                                        last - p);

    p = last;
    last = ngx_ratelimit_number_write(p, ngx_http_ratelimit_reset(ctx, counter));
    rc |= ngx_http_ratelimit_add_header(r, NGX_HTTP_RATELIMIT_RESET, p,
                                        last - p);

    if (ctx->check.status != NGX_RATELIMIT_REJECTED) {
        return rc;
    }

    retry_after = ngx_http_ratelimit_retry_after(counter);

    if (retry_after != -1) {
        p = last;
        last = ngx_ratelimit_number_write(p, retry_after);
        rc |= ngx_http_ratelimit_add_header(r, NGX_HTTP_RATELIMIT_RETRY_AFTER,
                                            p, last - p);
    }

    return rc;
}


/* NGX_OK or NGX_ERROR, which the caller may combine by "|". */
static ngx_int_t
ngx_http_ratelimit_add_header(ngx_http_request_t *r,
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


/* Drops the first names from the table that an upstream has sent. */
static void
ngx_http_ratelimit_hide_headers(ngx_http_request_t *r, ngx_uint_t names)
{
    ngx_str_t        *name;
    ngx_uint_t        i, n;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            for (n = 0; n < names; n++) {
                name = &ngx_http_ratelimit_headers[n].name;

                if (h[i].key.len == name->len
                    && ngx_strncasecmp(h[i].key.data, name->data, name->len)
                       == 0)
                {
                    h[i].hash = 0;
                }
            }
        }
    }
}

/*
 * What a rejected client reads: the JSON error, or the operator's error_page.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_text.h"

/*
 * The body in pieces, a value after each: a flood of rejections must be cheap.
 * With one format for all of it, a rejection took 3,500 instructions more.
 */
#define NGX_HTTP_RATELIMIT_MESSAGE                                            \
    "{\"error\":{\"code\":\"RATE_LIMIT_EXCEEDED\","                           \
    "\"message\":\"Rate limit of "
#define NGX_HTTP_RATELIMIT_MESSAGE_WINDOW  " requests in "
#define NGX_HTTP_RATELIMIT_DETAILS_LIMIT                                      \
    " seconds exceeded\",\"details\":{\"limit\":"
#define NGX_HTTP_RATELIMIT_DETAILS_WINDOW  ",\"window_seconds\":"
#define NGX_HTTP_RATELIMIT_DETAILS_RETRY   ",\"retry_after_seconds\":"
#define NGX_HTTP_RATELIMIT_DETAILS_RESET   ",\"reset_at\":\""
#define NGX_HTTP_RATELIMIT_BODY_END        "\"}}}\n"

#define NGX_HTTP_RATELIMIT_BODY_BYTES                                         \
    (sizeof(NGX_HTTP_RATELIMIT_MESSAGE NGX_HTTP_RATELIMIT_MESSAGE_WINDOW      \
            NGX_HTTP_RATELIMIT_DETAILS_LIMIT                                  \
            NGX_HTTP_RATELIMIT_DETAILS_WINDOW                                 \
            NGX_HTTP_RATELIMIT_DETAILS_RETRY                                  \
            NGX_HTTP_RATELIMIT_DETAILS_RESET NGX_HTTP_RATELIMIT_BODY_END)     \
     + 5 * NGX_INT64_LEN + sizeof("292277026596-12-31T23:59:59Z"))

#define ngx_http_ratelimit_put(p, text)                                       \
    ngx_cpymem(p, text, sizeof(text) - 1)

static ngx_uint_t ngx_http_ratelimit_has_error_page(ngx_http_request_t *r,
    ngx_uint_t status);
static ngx_int_t ngx_http_ratelimit_body(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_str_t *body);
static u_char *ngx_http_ratelimit_put_time(u_char *p, time_t sec);
static u_char *ngx_http_ratelimit_put_two(u_char *p, u_char before,
    ngx_uint_t value);


/*
 * Finalizes by itself and so answers whatever the status: returned to the
 * phase, a 401 or 403 would be no more than a vote under "satisfy any".
 */
ngx_int_t
ngx_http_ratelimit_reject(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_int_t                 rc;
    ngx_str_t                 type;
    ngx_uint_t                status;
    ngx_http_complex_value_t  cv;

    status = ctx->conf->status;
    r->err_status = 0;

    /* a client that waits for "100 Continue" need not send its body */
    r->expect_tested = 1;

    if (status == NGX_HTTP_CLOSE
        || ngx_http_ratelimit_has_error_page(r, status))
    {
        ngx_http_finalize_request(r, status);
        return NGX_DONE;
    }

    ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));

    if (ngx_http_ratelimit_body(r, ctx, &cv.value) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return NGX_DONE;
    }

    ngx_str_set(&type, "application/json");

    rc = ngx_http_send_response(r, status, &type, &cv);

    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}


/* Whether nginx would take one: not twice, unless these are recursive. */
static ngx_uint_t
ngx_http_ratelimit_has_error_page(ngx_http_request_t *r, ngx_uint_t status)
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


static ngx_int_t
ngx_http_ratelimit_body(ngx_http_request_t *r, ngx_http_ratelimit_ctx_t *ctx,
    ngx_str_t *body)
{
    u_char                   *p;
    uint64_t                  limit, window;
    ngx_int_t                 retry_after;
    ngx_ratelimit_counter_t  *counter;

    counter = ctx->check.strictest;

    p = ngx_pnalloc(r->pool, NGX_HTTP_RATELIMIT_BODY_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    body->data = p;

    limit = counter->limit->capacity;
    window = ngx_ratelimit_seconds_up(counter->limit->window_us);
    retry_after = ngx_http_ratelimit_retry_after(counter);

    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_MESSAGE);
    p = ngx_ratelimit_number_write(p, limit);
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_MESSAGE_WINDOW);
    p = ngx_ratelimit_number_write(p, window);
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_DETAILS_LIMIT);
    p = ngx_ratelimit_number_write(p, limit);
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_DETAILS_WINDOW);
    p = ngx_ratelimit_number_write(p, window);
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_DETAILS_RETRY);

    p = (retry_after == -1) ? ngx_http_ratelimit_put(p, "null")
                            : ngx_ratelimit_number_write(p, retry_after);

    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_DETAILS_RESET);
    p = ngx_http_ratelimit_put_time(p, ngx_http_ratelimit_reset(ctx, counter));
    p = ngx_http_ratelimit_put(p, NGX_HTTP_RATELIMIT_BODY_END);

    body->len = p - body->data;

    return NGX_OK;
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

/*
 * What a rejected client reads: the JSON error, or the operator's error_page.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_BODY                                               \
    "{\"error\":{\"code\":\"RATE_LIMIT_EXCEEDED\","                           \
    "\"message\":\"Rate limit of %uD requests in %uL seconds exceeded\","     \
    "\"details\":{\"limit\":%uD,\"window_seconds\":%uL,"                      \
    "\"retry_after_seconds\":%i,"                                             \
    "\"reset_at\":\"%4d-%02d-%02dT%02d:%02d:%02dZ\"}}}\n"

/* the longest numbers in place of each conversion */
#define NGX_HTTP_RATELIMIT_BODY_BYTES                                         \
    (sizeof(NGX_HTTP_RATELIMIT_BODY) + 11 * NGX_INT64_LEN)

static ngx_uint_t ngx_http_ratelimit_has_error_page(ngx_http_request_t *r,
    ngx_uint_t status);
static ngx_int_t ngx_http_ratelimit_body(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx, ngx_str_t *body);


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
    u_char                   *last;
    uint64_t                  window;
    ngx_tm_t                  tm;
    ngx_ratelimit_counter_t  *counter;

    counter = ctx->check.strictest;

    body->data = ngx_pnalloc(r->pool, NGX_HTTP_RATELIMIT_BODY_BYTES);
    if (body->data == NULL) {
        return NGX_ERROR;
    }

    window = ngx_ratelimit_seconds_up(counter->rate->span_us
                                      + (counter->rate->span_frac != 0));

    ngx_gmtime(ngx_http_ratelimit_reset(ctx), &tm);

    last = ngx_slprintf(body->data,
                        body->data + NGX_HTTP_RATELIMIT_BODY_BYTES,
                        NGX_HTTP_RATELIMIT_BODY,
                        counter->rate->capacity, window,
                        counter->rate->capacity, window,
                        ngx_http_ratelimit_retry_after(ctx),
                        tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                        tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);

    body->len = last - body->data;

    return NGX_OK;
}

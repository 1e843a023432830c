/*
 * A request's way through the access phase: checked once, at its first
 * limited location; suspended while Redis is asked; allowed with
 * NGX_DECLINED, since NGX_OK would grant access under "satisfy any".
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_text.h"

static ngx_http_ratelimit_ctx_t *ngx_http_ratelimit_ctx_create(
    ngx_http_request_t *r, ngx_http_ratelimit_loc_conf_t *conf);
static ngx_uint_t ngx_http_ratelimit_max_counters(
    ngx_http_ratelimit_loc_conf_t *conf);
static void ngx_http_ratelimit_ctx_cleanup(void *data);
static ngx_int_t ngx_http_ratelimit_suspend(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_complete(void *data);
static void ngx_http_ratelimit_resume(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_outcome(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);


ngx_int_t
ngx_http_ratelimit_access_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_http_ratelimit_ctx_t       *ctx;
    ngx_http_ratelimit_loc_conf_t  *conf;

    ctx = ngx_http_ratelimit_ctx(r);

    if (ctx) {
        if (ctx->waiting) {
            return NGX_AGAIN;
        }

        return ctx->answered ? NGX_DECLINED
                             : ngx_http_ratelimit_outcome(r, ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    if (conf->limits == NULL || conf->limits->nelts == 0) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_ratelimit_ctx_create(r, conf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_ratelimit_select(r, conf, &ctx->check) != NGX_OK) {
        ctx->answered = 1;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_ratelimit_check_start(&ctx->check);

    if (rc == NGX_AGAIN) {
        return ngx_http_ratelimit_suspend(r, ctx);
    }

    return ngx_http_ratelimit_outcome(r, ctx);
}


/*
 * The request's context, or NULL. An internal redirect clears r->ctx, so that
 * afterwards the pool's cleanup tells.
 */
ngx_http_ratelimit_ctx_t *
ngx_http_ratelimit_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_ratelimit_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_ratelimit_module);

    if (ctx || !(r->internal || r->filter_finalize)) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_ratelimit_ctx_cleanup) {
            ctx = cln->data;

            if (ctx->request == r) {
                ngx_http_set_ctx(r, ctx, ngx_http_ratelimit_module);
                return ctx;
            }
        }
    }

    return NULL;
}


static ngx_http_ratelimit_ctx_t *
ngx_http_ratelimit_ctx_create(ngx_http_request_t *r,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    size_t                     size;
    ngx_uint_t                 n;
    ngx_pool_cleanup_t        *cln;
    ngx_http_ratelimit_ctx_t  *ctx;

    n = ngx_http_ratelimit_max_counters(conf);

    size = sizeof(ngx_http_ratelimit_ctx_t)
           + n * (sizeof(ngx_ratelimit_counter_t)
                  + sizeof(ngx_ratelimit_client_t));

    cln = ngx_pool_cleanup_add(r->pool, size);
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_ratelimit_ctx_t));

    ctx->request = r;
    ctx->conf = conf;
    ctx->path = r->uri;

    ctx->check.counters = (ngx_ratelimit_counter_t *) &ctx[1];
    ctx->check.clients = (ngx_ratelimit_client_t *) &ctx->check.counters[n];
    ctx->check.handler = ngx_http_ratelimit_complete;
    ctx->check.data = ctx;

    cln->handler = ngx_http_ratelimit_ctx_cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_ratelimit_module);

    return ctx;
}


static ngx_uint_t
ngx_http_ratelimit_max_counters(ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_uint_t                    i, n;
    ngx_http_ratelimit_limit_t  **limits;

    limits = conf->limits->elts;
    n = 0;

    for (i = 0; i < conf->limits->nelts; i++) {
        n += limits[i]->rule ? 1 : limits[i]->limiter->rules.nelts;
    }

    return ngx_min(n, NGX_RATELIMIT_MAX_COUNTERS);
}


/* The request ends, answered or aborted: no answer may find it any more. */
static void
ngx_http_ratelimit_ctx_cleanup(void *data)
{
    ngx_http_ratelimit_ctx_t *ctx = data;

    ngx_ratelimit_check_cancel(&ctx->check);
}


static ngx_int_t
ngx_http_ratelimit_suspend(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ctx->waiting = 1;

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_ratelimit_resume;

    return NGX_AGAIN;
}


/*
 * The check is complete. Called from the Redis connection's event, where the
 * request must not run, nor end: it goes on from an event of its own.
 */
static void
ngx_http_ratelimit_complete(void *data)
{
    ngx_http_ratelimit_ctx_t *ctx = data;

    ngx_event_t  *wev;

    ctx->waiting = 0;

    wev = ctx->request->connection->write;
    ngx_post_event(wev, &ngx_posted_events);
}


/* The write event's handler: also runs when the socket gets writable. */
static void
ngx_http_ratelimit_resume(ngx_http_request_t *r)
{
    ngx_http_ratelimit_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_ratelimit_module);

    if (ctx->waiting) {
        if (ngx_handle_write_event(r->connection->write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        return;
    }

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_http_ratelimit_outcome(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_time_t  *now;

    now = ngx_timeofday();

    ctx->answered = 1;
    ctx->decided_ms = (uint64_t) now->sec * 1000 + now->msec;

    if (ctx->check.status != NGX_RATELIMIT_REJECTED) {
        return NGX_DECLINED;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "request rejected by ratelimit rule \"%V\" of zone \"%V\"",
                  &ctx->check.strictest->rule->id,
                  &ctx->check.strictest->client->limiter->zone.name);

    return ngx_http_ratelimit_reject(r, ctx);
}


ngx_int_t
ngx_http_ratelimit_retry_after(ngx_http_ratelimit_ctx_t *ctx)
{
    uint64_t  retry_us;

    retry_us = ctx->check.strictest->answer.retry_us;

    if (retry_us == NGX_RATELIMIT_NEVER) {
        return -1;
    }

    return ngx_ratelimit_seconds_up(retry_us);
}


time_t
ngx_http_ratelimit_reset(ngx_http_ratelimit_ctx_t *ctx)
{
    return ngx_ratelimit_seconds_up(ctx->decided_ms * 1000
                                    + ctx->check.strictest->answer.reset_us);
}

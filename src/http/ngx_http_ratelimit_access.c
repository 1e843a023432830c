/*
 * A request's way through the access phase, or the one behind it: checked
 * once, at its first limited location; suspended while Redis is asked, and
 * while a leaky bucket delays it; allowed with NGX_DECLINED, since NGX_OK
 * would grant access under "satisfy any".
 */

#include "ngx_http_ratelimit_explain.h"

#include "ngx_ratelimit_text.h"

static ngx_int_t ngx_http_ratelimit_handler(ngx_http_request_t *r,
    ngx_uint_t phase);
static ngx_int_t ngx_http_ratelimit_explain(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static ngx_int_t ngx_http_ratelimit_explained(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static ngx_http_ratelimit_ctx_t *ngx_http_ratelimit_ctx_create(
    ngx_http_request_t *r, ngx_http_ratelimit_loc_conf_t *conf);
static ngx_uint_t ngx_http_ratelimit_max_counters(
    ngx_http_ratelimit_loc_conf_t *conf);
static void ngx_http_ratelimit_use(ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_ctx_cleanup(void *data);
static ngx_int_t ngx_http_ratelimit_suspend(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_answered(void *data);
static void ngx_http_ratelimit_complete(ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_resume(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_outcome(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static ngx_int_t ngx_http_ratelimit_remarkable(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static ngx_int_t ngx_http_ratelimit_delay(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_delay_handler(ngx_event_t *ev);


ngx_int_t
ngx_http_ratelimit_access_handler(ngx_http_request_t *r)
{
    return ngx_http_ratelimit_handler(r, NGX_HTTP_RATELIMIT_BEFORE_AUTH);
}


ngx_int_t
ngx_http_ratelimit_precontent_handler(ngx_http_request_t *r)
{
    return ngx_http_ratelimit_handler(r, NGX_HTTP_RATELIMIT_AFTER_AUTH);
}


static ngx_int_t
ngx_http_ratelimit_handler(ngx_http_request_t *r, ngx_uint_t phase)
{
    ngx_int_t                       rc;
    ngx_uint_t                      limited, explain;
    ngx_http_ratelimit_ctx_t       *ctx;
    ngx_http_ratelimit_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_ratelimit_ctx(r);

    if (ctx) {
        if (ctx->waiting) {
            return NGX_AGAIN;
        }

        if (ctx->answered) {
            return NGX_DECLINED;
        }

        return ctx->explain ? ngx_http_ratelimit_explained(r, ctx)
                            : ngx_http_ratelimit_outcome(r, ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    limited = (conf->limits && conf->limits->nelts && !conf->exempt);

    if (conf->phase != phase || !(limited || conf->explain)) {
        return NGX_DECLINED;
    }

    /* the error page of a request that was refused access */

    if (phase == NGX_HTTP_RATELIMIT_AFTER_AUTH
        && (r->err_status == NGX_HTTP_UNAUTHORIZED
            || r->err_status == NGX_HTTP_FORBIDDEN))
    {
        return NGX_DECLINED;
    }

    explain = conf->explain
              && ngx_http_ratelimit_explain_wanted(r, conf->explain);

    if (!limited) {
        if (explain) {
            ngx_http_ratelimit_explain_later(r);
        }

        return NGX_DECLINED;
    }

    ctx = ngx_http_ratelimit_ctx_create(r, conf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (explain) {
        return ngx_http_ratelimit_explain(r, ctx);
    }

    rc = ngx_http_ratelimit_select(r, conf, ctx, NULL);

    if (rc == NGX_ERROR) {
        ctx->answered = 1;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_ABORT) {
        ctx->check.status = NGX_RATELIMIT_DENIED;
        return ngx_http_ratelimit_outcome(r, ctx);
    }

    ctx->started = 1;

    rc = ngx_ratelimit_check_start(&ctx->check);

    if (rc == NGX_AGAIN) {
        return ngx_http_ratelimit_suspend(r, ctx);
    }

    return ngx_http_ratelimit_outcome(r, ctx);
}


/* The request is explained in place of its check. */
static ngx_int_t
ngx_http_ratelimit_explain(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    switch (ngx_http_ratelimit_explain_start(r, ctx)) {

    case NGX_OK:
        return ngx_http_ratelimit_explained(r, ctx);

    case NGX_AGAIN:
        return ngx_http_ratelimit_suspend(r, ctx);

    default:
        ctx->answered = 1;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


/* The error page of an answer that fails is neither checked nor explained. */
static ngx_int_t
ngx_http_ratelimit_explained(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ctx->answered = 1;

    return ngx_http_ratelimit_explain_answer(r, ctx);
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
                  + sizeof(ngx_ratelimit_client_t))
           + conf->limits->nelts * sizeof(ngx_ratelimit_policy_t *);

    cln = ngx_pool_cleanup_add(r->pool, size);
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;

    /* two that are short: of a longer one the compiler makes a loop */

    ngx_memzero(&ctx->explain, offsetof(ngx_http_ratelimit_ctx_t, check)
                               - offsetof(ngx_http_ratelimit_ctx_t, explain));
    ngx_memzero(&ctx->check, offsetof(ngx_ratelimit_check_t, taken_us));

    ctx->request = r;
    ctx->conf = conf;
    ctx->path = r->uri;

    ctx->check.counters = (ngx_ratelimit_counter_t *) &ctx[1];
    ctx->check.clients = (ngx_ratelimit_client_t *) &ctx->check.counters[n];
    ctx->policies = (ngx_ratelimit_policy_t **) &ctx->check.clients[n];
    ctx->check.handler = ngx_http_ratelimit_answered;
    ctx->check.data = ctx;
    ctx->settled = 1;

    ngx_http_ratelimit_use(ctx);

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
        n += (limits[i]->number == NGX_HTTP_RATELIMIT_ALL)
             ? limits[i]->limiter->policy->rules.nelts : 1;
    }

    return ngx_min(n, NGX_RATELIMIT_MAX_COUNTERS);
}


/* A request goes by the policies of its beginning, whatever comes meanwhile. */
static void
ngx_http_ratelimit_use(ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_uint_t                    i;
    ngx_http_ratelimit_limit_t  **limits;

    limits = ctx->conf->limits->elts;

    for (i = 0; i < ctx->conf->limits->nelts; i++) {
        ctx->policies[i] = limits[i]->limiter->policy;
        ngx_ratelimit_policy_use(ctx->policies[i]);

        if (ctx->policies[i]->settles) {
            ctx->settled = 0;
        }
    }
}


/* The request ends, answered or aborted: no event may find it any more. */
static void
ngx_http_ratelimit_ctx_cleanup(void *data)
{
    ngx_http_ratelimit_ctx_t *ctx = data;

    ngx_uint_t  i;

    if (ctx->delaying) {
        ngx_del_timer(&ctx->delay);
    }

    if (ctx->started) {
        ngx_ratelimit_check_end(&ctx->check);
    }

    /* last: the check names their rules */

    for (i = 0; i < ctx->conf->limits->nelts; i++) {
        ngx_ratelimit_policy_release(ctx->policies[i]);
    }
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


/* All counters have answered, or have been looked at to be explained. */
static void
ngx_http_ratelimit_answered(void *data)
{
    ngx_http_ratelimit_ctx_t *ctx = data;

    if (ctx->started) {
        ngx_ratelimit_check_complete(&ctx->check);
    }

    ngx_http_ratelimit_complete(ctx);
}


/*
 * The check is complete, or the delay over. Called from the Redis connection's
 * event, where the request must not run, nor end: it goes on from an event of
 * its own.
 */
static void
ngx_http_ratelimit_complete(ngx_http_ratelimit_ctx_t *ctx)
{
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

    if (ctx->check.status <= NGX_RATELIMIT_PASSED && ctx->denies == NULL) {
        return NGX_DECLINED;
    }

    return ngx_http_ratelimit_remarkable(r, ctx);
}


/* What is more than a request that passes: it is logged, or does not pass. */
static ngx_int_t
ngx_http_ratelimit_remarkable(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_ratelimit_check_t  *check;

    check = &ctx->check;

    if (ctx->denies && check->status != NGX_RATELIMIT_DENIED) {
        check->status = NGX_RATELIMIT_DENIED_DRY_RUN;
    }

    ngx_http_ratelimit_log_outcome(r, ctx);

    if (ngx_ratelimit_check_refused(check)) {
        return ngx_http_ratelimit_reject(r, ctx);
    }

    /* also where another rule had no answer: DEGRADED */

    return check->delay_us ? ngx_http_ratelimit_delay(r, ctx) : NGX_DECLINED;
}


/*
 * Of a leaky bucket: the request goes on when its turn has come. The timer is
 * not cancelable: a worker that is to end waits for it, as for the response.
 */
static ngx_int_t
ngx_http_ratelimit_delay(ngx_http_request_t *r, ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_event_t  *ev, *rev;

    ev = &ctx->delay;

    ngx_memzero(ev, sizeof(ngx_event_t));
    ev->data = ctx;
    ev->log = r->connection->log;
    ev->handler = ngx_http_ratelimit_delay_handler;

    ctx->delaying = 1;
    ngx_add_timer(ev, (ngx_msec_t) (ctx->check.delay_us / 1000));

    /* a client that has left already causes no other event */

    rev = r->connection->read;

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);
    }

    return ngx_http_ratelimit_suspend(r, ctx);
}


static void
ngx_http_ratelimit_delay_handler(ngx_event_t *ev)
{
    ngx_http_ratelimit_ctx_t  *ctx;

    ctx = ev->data;
    ctx->delaying = 0;

    ngx_http_ratelimit_complete(ctx);
}


ngx_int_t
ngx_http_ratelimit_retry_after(const ngx_ratelimit_counter_t *counter)
{
    uint64_t  retry_us;

    retry_us = counter->answer.retry_us;

    if (retry_us == NGX_RATELIMIT_NEVER) {
        return -1;
    }

    return ngx_ratelimit_seconds_up(retry_us);
}


time_t
ngx_http_ratelimit_reset(ngx_http_ratelimit_ctx_t *ctx,
    const ngx_ratelimit_counter_t *counter)
{
    return ngx_ratelimit_seconds_up(ctx->decided_ms * 1000
                                    + counter->answer.reset_us);
}

/*
 * The context of a request: from its first limited location to its end.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"


void
ngx_rl_ctx_release(ngx_rl_ctx_t *ctx)
{
    (*ngx_rl_ctx_held(ctx))--;
    ctx->held = 0;
}


/* The request ends, answered or aborted: no event may find it any more. */
static void
ngx_rl_ctx_cleanup(void *data)
{
    ngx_rl_ctx_t *ctx = data;

    ngx_uint_t       i;
    ngx_rl_check_t  *check;

    check = &ctx->check;

    if (ctx->timer) {
        if (ctx->timer->timer_set) {
            ngx_del_timer(ctx->timer);
        }

        if (ctx->held) {
            ngx_rl_ctx_release(ctx);
        }
    }

    if (ctx->started) {

        /* without a response no status counts; tokens taken ahead are spent */

        if ((ctx->needs & NGX_RL_NEEDS_SETTLE) && ctx->answered) {
            ngx_rl_check_cost(check);

            for (i = 0; i < check->ncounters; i++) {
                if (check->counters[i].look) {
                    check->counters[i].cost = 0;
                }
            }

            ngx_rl_request_once_end(ctx, NGX_RL_NEEDS_SETTLE);
        }

        ngx_rl_check_end(check);
    }

    /* last: the check names their rules */

    for (i = 0; i < ctx->conf->limits->nelts; i++) {
        ngx_rl_policy_release(ctx->policies[i]);
    }
}


/* The request's context by the pool's cleanup, or NULL. */
ngx_rl_ctx_t *
ngx_rl_ctx_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;
    ngx_rl_ctx_t        *ctx;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_rl_ctx_cleanup) {
            ctx = cln->data;

            if (ctx->request == r) {
                ngx_http_set_ctx(r, ctx, ngx_http_ratelimit_module);
                return ctx;
            }
        }
    }

    return NULL;
}


/*
 * One allocation: the context, its counters, their clients, the policies, and
 * what Redis needs.
 */
ngx_rl_ctx_t *
ngx_rl_ctx_create(ngx_http_request_t *r, ngx_rl_loc_conf_t *conf,
    void (*handler)(void *data))
{
    size_t                     size;
    uint32_t                   needs;
    ngx_uint_t                 i, n, nlimits;
    ngx_rl_check_t            *check;
    ngx_rl_policy_t           *policy;
    ngx_rl_ctx_t              *ctx;
    ngx_rl_remote_check_t     *remote;
    ngx_rl_location_limit_t  **limits;

    limits = conf->limits->elts;
    nlimits = conf->limits->nelts;

    n = 0;
    needs = (uint32_t) conf->needs;

    for (i = 0; i < nlimits; i++) {
        policy = limits[i]->limiter->policy;

        n += (limits[i]->number == NGX_RL_ALL) ? policy->most : 1;
        needs |= (uint32_t) policy->needs;
    }

    /* one more: the client of a rule that finds no room */

    n = ngx_min(n, NGX_RL_MAX_COUNTERS + 1);

    size = sizeof(ngx_rl_ctx_t)
           + n * (sizeof(ngx_rl_counter_t) + sizeof(ngx_rl_client_t))
           + nlimits * sizeof(ngx_rl_policy_t *);

    if (needs & NGX_RL_NEEDS_REDIS) {
        size += sizeof(ngx_rl_remote_check_t)
                + n * (sizeof(ngx_rl_remote_t)
                       + sizeof(ngx_rl_remote_client_t));
    }

    ctx = ngx_palloc(r->pool, size);
    if (ctx == NULL) {
        return NULL;
    }

    /* two that are short: of a longer one the compiler makes a loop */

    ngx_memzero(&ctx->explain, offsetof(ngx_rl_ctx_t, check)
                               - offsetof(ngx_rl_ctx_t, explain));
    ngx_memzero(&ctx->check.remote, offsetof(ngx_rl_check_t, taken_us)
                                    - offsetof(ngx_rl_check_t, remote));

    ctx->request = r;
    ctx->conf = conf;
    ctx->path = r->uri;
    ctx->readings.n = 0;

    if (((needs & NGX_RL_NEEDS_ROUTE) || conf->routes)
        && ngx_rl_route_readings(r, &ctx->readings) != NGX_OK)
    {
        return NULL;
    }

    ctx->needs = needs;

    check = &ctx->check;
    check->counters = (ngx_rl_counter_t *) &ctx[1];
    check->clients = (ngx_rl_client_t *) &check->counters[n];
    check->handler = handler;
    check->data = ctx;
    ctx->policies = (ngx_rl_policy_t **) &check->clients[n];

    if (needs & NGX_RL_NEEDS_REDIS) {
        remote = (ngx_rl_remote_check_t *) &ctx->policies[nlimits];
        remote->counters = (ngx_rl_remote_t *) &remote[1];
        remote->clients = (ngx_rl_remote_client_t *) &remote->counters[n];

        check->remote = remote;
    }

    /* a request goes by the policies of its beginning, whatever comes */

    for (i = 0; i < nlimits; i++) {
        ctx->policies[i] = limits[i]->limiter->policy;
        ngx_rl_policy_use(ctx->policies[i]);
    }

    /* as ngx_pool_cleanup_add() does it, which allocates twice */

    ctx->cleanup.handler = ngx_rl_ctx_cleanup;
    ctx->cleanup.data = ctx;
    ctx->cleanup.next = r->pool->cleanup;
    r->pool->cleanup = &ctx->cleanup;

    ngx_http_set_ctx(r, ctx, ngx_http_ratelimit_module);

    return ctx;
}


ngx_int_t
ngx_rl_retry_after(const ngx_rl_counter_t *counter)
{
    uint64_t  retry_us;

    retry_us = counter->answer.retry_us;

    if (retry_us == NGX_RL_NEVER) {
        return -1;
    }

    return ngx_rl_seconds_up(retry_us);
}


uint64_t
ngx_rl_penalty_seconds(const ngx_rl_ctx_t *ctx)
{
    uint64_t  now_ms, until_ms;

    now_ms = ngx_current_msec;
    until_ms = ctx->penalized->until_ms;

    /* an answer that was held back may be later than the end */

    return (until_ms > now_ms) ? (until_ms - now_ms + 999) / 1000 : 1;
}


time_t
ngx_rl_reset(ngx_rl_ctx_t *ctx, const ngx_rl_counter_t *counter)
{
    return (time_t) ngx_rl_limit_reset(
                        ngx_rl_counter_limit(counter), ctx->decided_ms,
                        counter->answer.reset_us);
}


uint64_t
ngx_rl_passed_us(const ngx_rl_ctx_t *ctx)
{
    uint64_t  now_ms;

    now_ms = ngx_rl_wall_ms();

    return (now_ms > ctx->decided_ms) ? (now_ms - ctx->decided_ms) * 1000 : 0;
}


ngx_uint_t
ngx_rl_request_log_due(ngx_http_request_t *r, ngx_rl_log_e kind,
    char note[NGX_RL_LOG_NOTE])
{
    /* an operator who debugs gets them all */

    if (r->connection->log->log_level & NGX_LOG_DEBUG_HTTP) {
        note[0] = '\0';
        return 1;
    }

    return ngx_rl_log_due(ngx_rl_log_limit_of(r, kind),
                          ngx_current_msec, NGX_RL_LOG_MS, note);
}


void
ngx_rl_request_log(ngx_http_request_t *r, ngx_rl_log_e kind, ngx_uint_t level,
    const char *fmt, ...)
{
    char      note[NGX_RL_LOG_NOTE];
    u_char   *last, line[NGX_MAX_ERROR_STR];
    va_list   args;

    if (r->connection->log->log_level < level
        || !ngx_rl_request_log_due(r, kind, note))
    {
        return;
    }

    va_start(args, fmt);
    last = ngx_vslprintf(line, line + sizeof(line), fmt, args);
    va_end(args);

    ngx_log_error(level, r->connection->log, 0, "%*s%s",
                  (size_t) (last - line), line, note);
}

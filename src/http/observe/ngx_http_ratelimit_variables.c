/*
 * Variables: what a check decided, for logs and headers; the key and the
 * route that it decides by.
 */

#include "ngx_http_ratelimit_answer.h"
#include "ngx_http_ratelimit_key.h"

typedef u_char *(*ngx_http_ratelimit_print_pt)(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);

static ngx_int_t ngx_http_ratelimit_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_ratelimit_check_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static u_char *ngx_http_ratelimit_print_rule(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_limit(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_remaining(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_reset(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_retry_after(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_source(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_reason(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);
static u_char *ngx_http_ratelimit_print_delay(u_char *p,
    ngx_http_ratelimit_ctx_t *ctx);

/* the longest that a print function writes: a rule's id */
#define NGX_HTTP_RATELIMIT_PRINT_BYTES  64

static ngx_http_variable_t  ngx_http_ratelimit_variables[] = {

    /* each location may have sources of its own */
    { ngx_string("ratelimit_api_key"), NULL,
      ngx_http_ratelimit_api_key_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_route"), NULL,
      ngx_http_ratelimit_route_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_client"), NULL,
      ngx_http_ratelimit_client_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_status"), NULL,
      ngx_http_ratelimit_status_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_rule"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_rule,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_limit"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_limit,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_remaining"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_remaining,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_reset"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_reset,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_retry_after"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_retry_after,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_source"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_source,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_reason"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_reason,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("ratelimit_delay"), NULL,
      ngx_http_ratelimit_check_variable,
      (uintptr_t) ngx_http_ratelimit_print_delay,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};

/* in the order of ngx_ratelimit_status_e */
static ngx_str_t  ngx_http_ratelimit_status_names[] = {
    ngx_string("BYPASSED"),
    ngx_string("PASSED"),
    ngx_string("DELAYED_DRY_RUN"),
    ngx_string("REJECTED_DRY_RUN"),
    ngx_string("DELAYED"),
    ngx_string("DEGRADED"),
    ngx_string("DENIED_DRY_RUN"),
    ngx_string("UNAVAILABLE"),
    ngx_string("REJECTED"),
    ngx_string("DENIED"),
};

/* in the order of ngx_ratelimit_source_e */
static ngx_str_t  ngx_http_ratelimit_source_names[] = {
    ngx_string("none"),
    ngx_string("local"),
    ngx_string("lease"),
    ngx_string("redis"),
    ngx_string("fallback"),
};


ngx_int_t
ngx_http_ratelimit_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_ratelimit_variables; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                 *name;
    ngx_http_ratelimit_ctx_t  *ctx;

    ctx = ngx_http_ratelimit_ctx(r->main);

    if (ctx == NULL || !ctx->answered) {
        v->not_found = 1;
        return NGX_OK;
    }

    name = &ngx_http_ratelimit_status_names[ctx->check.status];

    v->len = name->len;
    v->data = name->data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/* A value of the decisive counter. The function in data prints it. */
static ngx_int_t
ngx_http_ratelimit_check_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                       *p, *last;
    ngx_http_ratelimit_ctx_t     *ctx;
    ngx_http_ratelimit_print_pt   print;

    ctx = ngx_http_ratelimit_ctx(r->main);
    print = (ngx_http_ratelimit_print_pt) data;

    if (ctx == NULL || !ctx->answered || ctx->check.decisive == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_HTTP_RATELIMIT_PRINT_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = print(p, ctx);

    if (last == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->len = last - p;
    v->data = p;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static u_char *
ngx_http_ratelimit_print_rule(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    const ngx_str_t  *id = &ctx->check.decisive->rule->id;

    return ngx_cpymem(p, id->data, id->len);
}


static u_char *
ngx_http_ratelimit_print_limit(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    return ngx_sprintf(p, "%uD",
               ngx_ratelimit_counter_limit(ctx->check.decisive)->capacity);
}


static u_char *
ngx_http_ratelimit_print_remaining(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    const ngx_ratelimit_counter_t *counter = ctx->check.decisive;

    if (!ngx_http_ratelimit_has_answer(counter)) {
        return ngx_sprintf(p, "-1");
    }

    return ngx_sprintf(p, "%uD", counter->answer.remaining);
}


static u_char *
ngx_http_ratelimit_print_reset(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    const ngx_ratelimit_counter_t *counter = ctx->check.decisive;

    if (!ngx_http_ratelimit_has_answer(counter)
        || ngx_ratelimit_counter_limit(counter)->algorithm
           == NGX_RATELIMIT_CONCURRENCY)
    {
        return NULL;
    }

    return ngx_sprintf(p, "%T", ngx_http_ratelimit_reset(ctx, counter));
}


static u_char *
ngx_http_ratelimit_print_retry_after(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    if (ctx->check.decisive->answer.retry_us == 0) {
        return NULL;
    }

    return ngx_sprintf(p, "%i",
                       ngx_http_ratelimit_retry_after(ctx->check.decisive));
}


static u_char *
ngx_http_ratelimit_print_source(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_str_t  *name;

    name = &ngx_http_ratelimit_source_names[ctx->check.decisive->source];

    return ngx_cpymem(p, name->data, name->len);
}


/* Why Redis has no answer. */
static u_char *
ngx_http_ratelimit_print_reason(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    const ngx_str_t                *name;
    const ngx_ratelimit_counter_t  *counter;

    counter = ctx->check.decisive;

    if (counter->source != NGX_RATELIMIT_SOURCE_FALLBACK) {
        return NULL;
    }

    name = ngx_ratelimit_redis_status_name(counter->reason);

    return ngx_cpymem(p, name->data, name->len);
}


/* Seconds, as nginx's own variables of time. */
static u_char *
ngx_http_ratelimit_print_delay(u_char *p, ngx_http_ratelimit_ctx_t *ctx)
{
    uint64_t  ms;

    ms = ctx->check.delay_us / 1000;

    if (ms == 0) {
        return NULL;
    }

    return ngx_sprintf(p, "%uL.%03uL", ms / 1000, ms % 1000);
}

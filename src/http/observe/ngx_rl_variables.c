/*
 * Variables: what a check decided, for logs and headers; the key and the
 * route that it decides by.
 */

#include "ngx_rl_request.h"
#include "ngx_rl_key.h"

/* the longest value that is made here: a zone's name, a rule's id */
#define NGX_RL_VARIABLE_BYTES  64

/* as nginx's own variables of time */
#define NGX_RL_SECONDS         "%uL.%03uL"

/* what a check has decided; from KEY on of the decisive counter */
typedef enum {
    NGX_RL_VARIABLE_STATUS = 0,
    NGX_RL_VARIABLE_PENALTY,
    NGX_RL_VARIABLE_KEY,
    NGX_RL_VARIABLE_ZONE,
    NGX_RL_VARIABLE_RULE,
    NGX_RL_VARIABLE_LIMIT,
    NGX_RL_VARIABLE_REMAINING,
    NGX_RL_VARIABLE_RESET,
    NGX_RL_VARIABLE_RETRY_AFTER,
    NGX_RL_VARIABLE_SOURCE,
    NGX_RL_VARIABLE_REASON,
    NGX_RL_VARIABLE_DELAY,
    NGX_RL_VARIABLE_ALGORITHM,
    NGX_RL_VARIABLE_COST,
    NGX_RL_VARIABLE_CHECK_TIME
} ngx_rl_variable_e;

/* in the order of ngx_rl_status_e */
const ngx_str_t  ngx_rl_status_names[] = {
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
    ngx_string("PENALIZED"),
};


/* in the order of ngx_rl_source_e */
static const char  *ngx_rl_source_names[] = {
    "none", "local", "lease", "redis", "fallback"
};


/* Writes the value to p. Returns its end, or NULL: the counter has none. */
static u_char *
ngx_rl_check_print(u_char *p, ngx_rl_ctx_t *ctx, ngx_rl_variable_e variable)
{
    uint64_t                 ms;
    ngx_uint_t               answer;
    const ngx_rl_limit_t    *limit;
    const ngx_rl_counter_t  *counter;

    counter = ctx->check.decisive;
    limit = ngx_rl_counter_limit(counter);
    answer = ngx_rl_has_answer(counter);

    switch (variable) {

    case NGX_RL_VARIABLE_ZONE:
        return ngx_sprintf(p, "%V", &counter->client->limiter->zone.name);

    case NGX_RL_VARIABLE_RULE:
        return ngx_sprintf(p, "%V", &counter->rule->id);

    case NGX_RL_VARIABLE_LIMIT:
        return ngx_sprintf(p, "%uD", limit->capacity);

    case NGX_RL_VARIABLE_REMAINING:
        return answer ? ngx_sprintf(p, "%uD", ngx_rl_counter_remaining(counter))
                      : ngx_sprintf(p, "-1");

    case NGX_RL_VARIABLE_RESET:
        return (answer && limit->algorithm != NGX_RL_CONCURRENCY)
               ? ngx_sprintf(p, "%T", ngx_rl_reset(ctx, counter)) : NULL;

    case NGX_RL_VARIABLE_RETRY_AFTER:
        return counter->answer.retry_us
               ? ngx_sprintf(p, "%i", ngx_rl_retry_after(counter)) : NULL;

    case NGX_RL_VARIABLE_SOURCE:

        /* as in the metrics: a rejection needs no lease */

        return ngx_sprintf(p, "%s",
            (counter->source == NGX_RL_SOURCE_LEASE && counter->answer.retry_us)
            ? "memory" : ngx_rl_source_names[counter->source]);

    case NGX_RL_VARIABLE_REASON:   /* why Redis has no answer */
        return (counter->source == NGX_RL_SOURCE_FALLBACK)
               ? ngx_sprintf(p, "%V", ngx_rl_redis_status_name(
                                                     counter->remote->reason))
               : NULL;

    case NGX_RL_VARIABLE_ALGORITHM:
        return ngx_sprintf(p, "%s", ngx_rl_algorithm_names[limit->algorithm]);

    case NGX_RL_VARIABLE_COST:
        return ngx_sprintf(p, "%uD", counter->cost);

    case NGX_RL_VARIABLE_DELAY:
        ms = ctx->check.delay_us / 1000;

        return ms ? ngx_sprintf(p, NGX_RL_SECONDS, ms / 1000, ms % 1000) : NULL;

    default: /* CHECK_TIME */
        ms = ctx->waited_ms;

        return ngx_sprintf(p, NGX_RL_SECONDS, ms / 1000, ms % 1000);
    }
}


static ngx_int_t
ngx_rl_check_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char                  *p, *last;
    ngx_str_t                key;
    ngx_rl_ctx_t            *ctx;
    const ngx_str_t         *name;
    const ngx_rl_counter_t  *counter;

    ctx = ngx_rl_ctx(r->main);

    if (data == NGX_RL_VARIABLE_PENALTY && ctx && ctx->penalized) {
        name = &ctx->penalized->penalty->id;
        return ngx_rl_variable_set(v, name->data, name->len);
    }

    if (data == NGX_RL_VARIABLE_STATUS && ctx && ctx->answered) {
        name = &ngx_rl_status_names[ctx->check.status];
        return ngx_rl_variable_set(v, name->data, name->len);
    }

    if (data == NGX_RL_VARIABLE_PENALTY || ctx == NULL || !ctx->answered
        || ctx->check.decisive == NULL)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    /* as a document has it */

    if (data == NGX_RL_VARIABLE_KEY) {
        counter = ctx->check.decisive;
        key = counter->client->key;

        return (ngx_rl_key_name(r, &counter->rule->key, &key) == NGX_OK)
               ? ngx_rl_variable_set(v, key.data, key.len) : NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, NGX_RL_VARIABLE_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_rl_check_print(p, ctx, data);

    if (last == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_rl_variable_set(v, p, last - p);
}


/*
 * No value is cached: each location may have sources of its own. A name that
 * ends with "_" is the beginning of all variables that the handler makes. No
 * handler: what a check has decided.
 */
static const struct {
    ngx_str_t                 name;
    ngx_http_get_variable_pt  handler;
    uintptr_t                 data;
} ngx_rl_variables[] = {
    { ngx_string("ratelimit_api_key"), ngx_rl_api_key_variable, 0 },
    { ngx_string(NGX_RL_JWT_PREFIX), ngx_rl_jwt_variable, 0 },
    { ngx_string("ratelimit_route"), ngx_rl_route_variable, 0 },
    { ngx_string("ratelimit_client"), ngx_rl_client_variable, 0 },
    { ngx_string("ratelimit_status"), NULL, NGX_RL_VARIABLE_STATUS },
    { ngx_string("ratelimit_zone"), NULL, NGX_RL_VARIABLE_ZONE },
    { ngx_string("ratelimit_rule"), NULL, NGX_RL_VARIABLE_RULE },
    { ngx_string("ratelimit_limit"), NULL, NGX_RL_VARIABLE_LIMIT },
    { ngx_string("ratelimit_remaining"), NULL, NGX_RL_VARIABLE_REMAINING },
    { ngx_string("ratelimit_reset"), NULL, NGX_RL_VARIABLE_RESET },
    { ngx_string("ratelimit_retry_after"), NULL, NGX_RL_VARIABLE_RETRY_AFTER },
    { ngx_string("ratelimit_source"), NULL, NGX_RL_VARIABLE_SOURCE },
    { ngx_string("ratelimit_reason"), NULL, NGX_RL_VARIABLE_REASON },
    { ngx_string("ratelimit_delay"), NULL, NGX_RL_VARIABLE_DELAY },
    { ngx_string("ratelimit_key"), NULL, NGX_RL_VARIABLE_KEY },
    { ngx_string("ratelimit_penalty"), NULL, NGX_RL_VARIABLE_PENALTY },
    { ngx_string("ratelimit_algorithm"), NULL, NGX_RL_VARIABLE_ALGORITHM },
    { ngx_string("ratelimit_cost"), NULL, NGX_RL_VARIABLE_COST },
    { ngx_string("ratelimit_check_time"), NULL, NGX_RL_VARIABLE_CHECK_TIME },
    { ngx_null_string, NULL, 0 }
};


ngx_int_t
ngx_rl_add_variables(ngx_conf_t *cf)
{
    ngx_str_t             name;
    ngx_uint_t            i, flags;
    ngx_http_variable_t  *var;

    for (i = 0; ngx_rl_variables[i].name.len; i++) {

        name = ngx_rl_variables[i].name;

        flags = NGX_HTTP_VAR_NOCACHEABLE;

        if (name.data[name.len - 1] == '_') {
            flags |= NGX_HTTP_VAR_PREFIX;
        }

        var = ngx_http_add_variable(cf, &name, flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = ngx_rl_variables[i].handler
                           ? ngx_rl_variables[i].handler
                           : ngx_rl_check_variable;
        var->data = ngx_rl_variables[i].data;
    }

    return NGX_OK;
}

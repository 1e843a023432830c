/*
 * "cost_end=" is charged when the request ends, also if it was aborted.
 * With "cost_every=" a timer looks once a second how much was sent, and charges
 * the value of that moment. Neither holds the request: nobody waits for Redis.
 */

#include "ngx_rl_request.h"

#define NGX_RL_EVERY_MS  1000

typedef struct {
    uint64_t  cost;     /* that the counter has paid */
    off_t     sent;     /* bytes, when it paid */
    uint32_t  granted;  /* to the request, which a charge forgets */
} ngx_rl_paid_t;

/* A response with "cost_every=", which is looked at before its end. */
typedef struct {
    ngx_event_t    timer;  /* first: the context has it */
    ngx_rl_paid_t  paid[NGX_RL_MAX_COUNTERS];
} ngx_rl_every_t;


/* nginx keeps the values of two variables that grow: they are read anew. */
static void
ngx_rl_end_forget(ngx_http_request_t *r)
{
    ngx_uint_t                  i;
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    static const ngx_str_t  bytes = ngx_string("bytes_sent");
    static const ngx_str_t  body = ngx_string("body_bytes_sent");

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    v = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {
        if (ngx_rl_equal(&v[i].name, &bytes) || ngx_rl_equal(&v[i].name, &body))
        {
            r->variables[i].valid = 0;
            r->variables[i].not_found = 0;
        }
    }
}


/* NGX_DECLINED: the value does not say it. */
static ngx_int_t
ngx_rl_end_cost(ngx_http_request_t *r, const ngx_rl_rule_t *rule,
    uint64_t *cost)
{
    char              note[NGX_RL_LOG_NOTE];
    u_char            buf[NGX_RL_QUOTE_BYTES];
    ngx_str_t         text;
    ngx_rl_values_t  *values;

    values = rule->data;

    if (ngx_rl_value_get(r, values->end, &text) != NGX_OK || text.len == 0) {
        return NGX_DECLINED;
    }

    if (ngx_rl_number_clip(text.data, text.len, INT64_MAX, cost) == 0) {
        return NGX_OK;
    }

    if (ngx_rl_request_log_due(r, NGX_RL_LOG_END_COST, note)) {
        text = ngx_rl_value_shown(rule, &text, buf);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
            "ratelimit rule \"%V\" has a cost of \"%V\" by its "
            "\"cost_end=%V\", expected a number of 0 or more; it is not "
            "counted%s", &rule->id, &text, &rule->cost_end, note);
    }

    return NGX_DECLINED;
}


/*
 * Sets the counter's charge or refund. A charge on the way does not come back,
 * because the value only grows. Without a response the request has cost
 * what it took, so nobody asks for free by leaving early.
 */
static void
ngx_rl_end_counter(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_uint_t n,
    ngx_uint_t ended)
{
    off_t              sent;
    uint32_t           granted, replayed;
    uint64_t           paid, cost;
    ngx_rl_counter_t  *counter;
    ngx_rl_paid_t     *before;

    counter = &ctx->check.counters[n];
    before = ctx->every ? &((ngx_rl_every_t *) ctx->timer)->paid[n] : NULL;
    sent = r->connection->sent;
    paid = before ? before->cost : counter->cost;
    granted = before ? before->granted : counter->answer.granted;
    cost = paid;

    if (!ended) {
        if (counter->rule->cost_every == 0 || before == NULL
            || (uint64_t) (sent - before->sent) < counter->rule->cost_every)
        {
            return;
        }

        before->sent = sent;
    }

    if (ngx_rl_end_cost(r, counter->rule, &cost) == NGX_OK) {

        replayed = ngx_rl_request_once_paid(ctx, counter);
        cost -= ngx_min(cost, replayed);

        if (cost > paid) {
            counter->charge = (uint32_t) ngx_min(cost - paid,
                                                 NGX_RL_MAX_TOKENS);

        } else if (ended && paid == counter->cost && r->header_sent
                   && !counter->emergency)
        {
            counter->refund = (uint32_t) ngx_min(paid - cost, granted);
        } else {
            cost = paid;
        }
    }

    ngx_rl_count(counter->rule->row, NGX_RL_COUNTS_COST,
                 (ended ? granted : 0) + counter->charge - counter->refund);

    if (before) {
        before->cost = cost;
    }

    if (ended) {
        counter->cost = (uint32_t) ngx_min(cost, UINT32_MAX);
    }
}


static void
ngx_rl_end_charge(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_uint_t ended)
{
    ngx_uint_t         i;
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    check = &ctx->check;

    ngx_rl_end_forget(r);

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        counter->charge = 0;
        counter->refund = 0;

        /* as in a response's header, a dry run that denied is not charged */

        if ((counter->rule->needs & NGX_RL_NEEDS_END)
            && counter->answer.retry_us == 0 && !counter->peek)
        {
            ngx_rl_end_counter(r, ctx, i, ended);
        }
    }

    ngx_rl_settle_charges(ctx);
}


static void
ngx_rl_end_handler(void *data)
{
    ngx_rl_ctx_t *ctx = data;

    if (!ctx->started || !ctx->answered || ngx_rl_check_refused(&ctx->check)) {
        return;
    }

    if (ctx->every && ctx->timer->timer_set) {
        ngx_del_timer(ctx->timer);
    }

    ngx_rl_end_charge(ctx->request, ctx, 1);
    ngx_rl_request_once_end(ctx, NGX_RL_NEEDS_END);
}


/*
 * nginx calls a request's cleanups before its log phase, so access logs have
 * the cost. They are called last to first: what an upstream did is known. A
 * handler of the log phase would cost each request of all locations 13
 * instructions.
 */
ngx_int_t
ngx_rl_end(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_http_cleanup_t  *cln;

    if (ctx->ends) {
        return NGX_OK;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_rl_end_handler;
    cln->data = ctx;
    ctx->ends = 1;

    return NGX_OK;
}


static void
ngx_rl_every_handler(ngx_event_t *ev)
{
    ngx_rl_ctx_t *ctx = ev->data;

    ngx_http_request_t  *r;

    r = ctx->request;

    ngx_http_set_log_request(r->connection->log, r);
    ngx_rl_end_charge(r, ctx, 0);

    ngx_add_timer(ev, NGX_RL_EVERY_MS);
}


/* Without memory for it, all is charged at the end. */
void
ngx_rl_every(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_uint_t       i, wanted;
    ngx_event_t     *ev;
    ngx_rl_check_t  *check;
    ngx_rl_every_t  *every;

    check = &ctx->check;

    if (!ctx->started || ngx_rl_check_refused(check)) {
        return;
    }

    wanted = 0;

    for (i = 0; i < check->ncounters; i++) {
        wanted |= (check->counters[i].rule->cost_every != 0);
    }

    /* it takes the place of a delay, which an error may have ended early */

    if (!wanted || ctx->waiting) {
        return;
    }

    every = ngx_pcalloc(r->pool, sizeof(ngx_rl_every_t));
    if (every == NULL) {
        return;
    }

    for (i = 0; i < check->ncounters; i++) {
        every->paid[i].cost = check->counters[i].cost;
        every->paid[i].granted = check->counters[i].answer.granted;
    }

    ev = &every->timer;
    ev->data = ctx;
    ev->log = r->connection->log;
    ev->handler = ngx_rl_every_handler;
    ev->cancelable = 1;

    ctx->every = 1;
    ctx->timer = ev;
    ngx_add_timer(ev, NGX_RL_EVERY_MS);
}

/*
 * What a request costs now, and what it has paid: at its start, when its
 * response begins ("cost_header=" names a header of the upstream with the cost,
 * "count_status=" the statuses that count), on its way ("cost_every=", once a
 * second), and at its end ("cost_end="), also if it was aborted. Nobody waits
 * for Redis but the start.
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


ngx_int_t
ngx_rl_charge_start(ngx_http_request_t *r, ngx_rl_counter_t *counter)
{
    u_char                buf[NGX_RL_QUOTE_BYTES];
    uint64_t              value;
    ngx_str_t             text;
    ngx_rl_values_t      *values;
    const ngx_rl_rule_t  *rule;

    rule = counter->rule;
    values = rule->data;

    if (ngx_rl_value_get(r, values->cost, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    if (ngx_rl_number_clip(text.data, text.len, NGX_RL_MAX_TOKENS, &value) == 0)
    {
        counter->cost = (uint32_t) value;
        return NGX_OK;
    }

    text = ngx_rl_value_shown(rule, &text, buf);

    ngx_rl_request_log(r, NGX_RL_LOG_COST, NGX_LOG_ERR,
        "ratelimit rule \"%V\" of zone \"%V\" has a cost of \"%V\", expected a "
        "number of 0 or more; it costs %uD", &rule->id,
        &counter->client->limiter->zone.name, &text, counter->cost);

    return NGX_OK;
}


/*
 * Its method, host and line, as the client has sent it, and its idempotency
 * key: so one that was paid frees no other. No part but the last has a zero
 * byte. Without memory it is no replay, and has none.
 */
void
ngx_rl_request_once_begin(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_uint_t use)
{
    u_char                    *p;
    size_t                     len;
    ngx_str_t                  key;
    ngx_rl_once_t             *once;
    const ngx_rl_once_conf_t  *conf;

    conf = ctx->conf->once;
    once = NULL;

    if (ngx_rl_value_get(r, conf->key, &key) == NGX_OK && key.len) {
        len = sizeof(ngx_rl_id_t) + r->method_name.len
              + r->headers_in.server.len + r->unparsed_uri.len + key.len
              + 3 * sizeof("");
        once = ngx_palloc(r->pool, sizeof(ngx_rl_once_t) + len);
    }

    if (once == NULL) {
        ctx->needs &= ~NGX_RL_NEEDS_ONCE;
        return;
    }

    once->time_us = (uint64_t) conf->time * 1000000;
    once->text = (u_char *) &once[1];

    p = ngx_sprintf(once->text + sizeof(ngx_rl_id_t), "%V%Z%V%Z%V%Z%V",
                    &r->method_name, &r->headers_in.server, &r->unparsed_uri,
                    &key);
    once->len = p - once->text;

    ctx->once = once;

    ngx_rl_once_begin(&ctx->check, once, use);
}


/*
 * A counter that has paid costs now so much, less what the request that this
 * replays has paid: sets its charge or its refund, of what was granted. Returns
 * 0: neither, since it gets nothing back.
 */
static ngx_uint_t
ngx_rl_charge(const ngx_rl_ctx_t *ctx, ngx_rl_counter_t *counter, uint64_t paid,
    uint64_t *cost, uint32_t granted, ngx_uint_t refunds)
{
    *cost -= ngx_min(*cost, ngx_rl_request_once_paid(ctx, counter));

    if (*cost > paid) {
        counter->charge = (uint32_t) ngx_min(*cost - paid, NGX_RL_MAX_TOKENS);
        return 1;
    }

    /* an emergency's limit is one of requests, whatever they cost */

    if (!refunds || counter->emergency) {
        return 0;
    }

    counter->refund = (uint32_t) ngx_min(paid - *cost, granted);

    return 1;
}


/* Takes the counters' charges and gives back their refunds, if any. */
static void
ngx_rl_charge_take(ngx_rl_ctx_t *ctx)
{
    uint64_t           passed_us;
    ngx_uint_t         i, changes;
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    check = &ctx->check;
    changes = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        changes |= counter->charge | counter->refund;
    }

    if (changes == 0) {
        return;
    }

    ngx_rl_check_settle(check);

    /* an answer is of the time of the decision, also where it was made now */

    passed_us = ngx_rl_passed_us(ctx);

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->source == NGX_RL_SOURCE_LOCAL
            && (counter->charge || counter->refund))
        {
            counter->answer.reset_us += passed_us;
        }
    }
}


ngx_uint_t
ngx_rl_has_status(const ngx_array_t *statuses, ngx_uint_t status)
{
    ngx_uint_t  i, *code;

    code = statuses->elts;

    for (i = 0; i < statuses->nelts; i++) {
        if (code[i] == status) {
            return 1;
        }
    }

    return 0;
}


/* The next header of that name, in any case, or NULL. */
static ngx_table_elt_t *
ngx_rl_walk_header(ngx_rl_walk_t *walk, const ngx_str_t *name)
{
    ngx_table_elt_t  *h;

    do {
        h = ngx_rl_walk_next(walk, name->len);
    } while (h && ngx_strncasecmp(h->key.data, name->data, name->len) != 0);

    return h;
}


ngx_table_elt_t *
ngx_rl_find_header(ngx_list_t *headers, const ngx_str_t *name)
{
    ngx_rl_walk_t  walk;

    ngx_rl_walk_part(&walk, &headers->part);

    return ngx_rl_walk_header(&walk, name);
}


/*
 * The sum of all headers of the rule's name. NGX_DECLINED: there is none.
 * NGX_ABORT: one of them is no number, and the sum says nothing.
 */
static ngx_int_t
ngx_rl_header_sum(ngx_http_request_t *r, ngx_list_t *headers,
    const ngx_rl_rule_t *rule, uint64_t *cost)
{
    u_char            buf[NGX_RL_QUOTE_BYTES];
    uint64_t          sum, value;
    ngx_str_t         text;
    ngx_uint_t        found;
    ngx_table_elt_t  *h;
    ngx_rl_walk_t     walk;

    found = 0;
    sum = 0;
    ngx_rl_walk_part(&walk, &headers->part);

    while ((h = ngx_rl_walk_header(&walk, &rule->cost_header)) != NULL) {
        if (ngx_rl_number_clip(h->value.data, h->value.len, NGX_RL_MAX_TOKENS,
                               &value)
            != 0)
        {
            text = ngx_rl_value_quote(&h->value, buf);

            ngx_rl_request_log(r, NGX_RL_LOG_HEADER_COST, NGX_LOG_ERR,
                "ratelimit rule \"%V\" has a cost of \"%V\" in the response's "
                "\"%V\", expected a number of 0 or more; it is not counted",
                &rule->id, &text, &rule->cost_header);

            return NGX_ABORT;
        }

        found = 1;
        sum = ngx_min(sum + value, NGX_RL_MAX_TOKENS);
    }

    if (found) {
        *cost = sum;
    }

    return found ? NGX_OK : NGX_DECLINED;
}


/*
 * Sets a counter's cost, and its charge or refund, when the response begins. A
 * counter that rejected, of a dry run, was not charged and is not now.
 */
static void
ngx_rl_charge_response(ngx_http_request_t *r, const ngx_rl_ctx_t *ctx,
    ngx_rl_counter_t *counter)
{
    uint64_t              cost;
    ngx_int_t             rc;
    ngx_rl_past_t        *past;
    const ngx_rl_rule_t  *rule;

    rule = counter->rule;
    cost = counter->cost;

    if ((rule->statuses == NULL && rule->cost_header.len == 0)
        || counter->answer.retry_us || counter->peek)
    {
        return;
    }

    if (rule->statuses) {

        if (ngx_rl_has_status(rule->statuses, r->headers_out.status)) {
            counter->charge = counter->cost;

        } else {
            counter->cost = 0;
        }

        return;
    }

    rc = ngx_rl_header_sum(r, &r->headers_out.headers, rule, &cost);

    /* the client does not get it behind X-Accel-Redirect, error pages */

    if (rc == NGX_DECLINED && r->upstream) {
        rc = ngx_rl_header_sum(r, &r->upstream->headers_in.headers, rule,
                               &cost);
    }

    for (past = ctx->past; past && rc == NGX_DECLINED; past = past->next) {
        rc = ngx_rl_header_sum(r, past->headers, rule, &cost);
    }

    if (rc == NGX_OK) {
        (void) ngx_rl_charge(ctx, counter, counter->cost, &cost,
                             counter->answer.granted, 1);
    }

    counter->cost = (uint32_t) cost;
}


/* Cost headers do not reach the client, also where their rule did not apply. */
void
ngx_rl_charge_header(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_uint_t                 i, j, n;
    ngx_table_elt_t           *h;
    const ngx_str_t           *name;
    ngx_rl_walk_t              walk;
    ngx_rl_check_t            *check;
    ngx_rl_policy_t           *policy;
    ngx_rl_location_limit_t  **limits;

    ctx->needs &= ~NGX_RL_NEEDS_SETTLE;
    check = &ctx->check;

    if (!ctx->started || ngx_rl_check_refused(check)) {
        return;
    }

    for (i = 0; i < check->ncounters; i++) {
        ngx_rl_charge_response(r, ctx, &check->counters[i]);
    }

    ngx_rl_check_cost(check);
    ngx_rl_charge_take(ctx);
    ngx_rl_request_once_end(ctx, NGX_RL_NEEDS_SETTLE);

    limits = ctx->conf->limits->elts;

    for (i = 0; i < ctx->conf->limits->nelts; i++) {
        policy = ctx->policies[i];

        if (limits[i]->number == NGX_RL_ALL) {
            name = policy->cost_headers;
            n = policy->ncost_headers;

        } else {
            name = &policy->fixed[limits[i]->number]->cost_header;
            n = (name->len != 0);
        }

        for (j = 0; j < n; j++) {
            ngx_rl_walk_part(&walk, &r->headers_out.headers.part);

            while ((h = ngx_rl_walk_header(&walk, &name[j])) != NULL) {
                h->hash = 0;
            }
        }
    }
}


/* Without memory for it, this upstream's costs are not counted. */
void
ngx_rl_charge_redirected(ngx_http_request_t *r)
{
    ngx_rl_ctx_t   *ctx;
    ngx_rl_past_t  *past;

    ctx = ngx_rl_ctx(r);

    if (r != r->main || r->upstream == NULL || ctx == NULL
        || !(ctx->needs & NGX_RL_NEEDS_SETTLE))
    {
        return;
    }

    past = ngx_palloc(r->pool, sizeof(ngx_rl_past_t));

    if (past) {
        past->headers = &r->upstream->headers_in.headers;
        past->next = ctx->past;
        ctx->past = past;
    }
}


/*
 * Sets the counter's charge or refund, on the way and at the end, if the value
 * of "cost_end=" says it. A charge on the way does not come back, because the
 * value only grows. Without a response the request has cost what it took, so
 * nobody asks for free by leaving early.
 */
static void
ngx_rl_end_counter(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_uint_t n,
    ngx_uint_t ended)
{
    off_t                 sent;
    u_char                buf[NGX_RL_QUOTE_BYTES];
    uint32_t              granted;
    uint64_t              paid, cost;
    ngx_str_t             text;
    ngx_rl_paid_t        *before;
    ngx_rl_values_t      *values;
    ngx_rl_counter_t     *counter;
    const ngx_rl_rule_t  *rule;

    counter = &ctx->check.counters[n];
    rule = counter->rule;
    values = rule->data;
    before = ctx->every ? &((ngx_rl_every_t *) ctx->timer)->paid[n] : NULL;
    sent = r->connection->sent;
    paid = before ? before->cost : counter->cost;
    granted = before ? before->granted : counter->answer.granted;
    cost = paid;

    if (!ended) {
        if (rule->cost_every == 0 || before == NULL
            || (uint64_t) (sent - before->sent) < rule->cost_every)
        {
            return;
        }

        before->sent = sent;
    }

    if (ngx_rl_value_get(r, values->end, &text) == NGX_OK && text.len) {

        if (ngx_rl_number_clip(text.data, text.len, INT64_MAX, &cost) == 0) {

            if (!ngx_rl_charge(ctx, counter, paid, &cost, granted,
                               ended && paid == counter->cost
                               && r->header_sent))
            {
                cost = paid;
            }

        } else {
            text = ngx_rl_value_shown(rule, &text, buf);

            ngx_rl_request_log(r, NGX_RL_LOG_END_COST, NGX_LOG_ERR,
                "ratelimit rule \"%V\" has a cost of \"%V\" by its "
                "\"cost_end=%V\", expected a number of 0 or more; it is not "
                "counted", &rule->id, &text, &rule->cost_end);
        }
    }

    ngx_rl_count(rule->row, NGX_RL_COUNTS_COST,
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
    ngx_uint_t                  i;
    ngx_rl_check_t             *check;
    ngx_rl_counter_t           *counter;
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    static const ngx_str_t  bytes = ngx_string("bytes_sent");
    static const ngx_str_t  body = ngx_string("body_bytes_sent");

    check = &ctx->check;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    v = cmcf->variables.elts;

    /* nginx keeps the values of two variables that grow: they are read anew */

    for (i = 0; i < cmcf->variables.nelts; i++) {
        if (ngx_rl_equal(&v[i].name, &bytes) || ngx_rl_equal(&v[i].name, &body))
        {
            r->variables[i].valid = 0;
            r->variables[i].not_found = 0;
        }
    }

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        counter->charge = 0;
        counter->refund = 0;

        /* as in a response's header, a dry run that rejected is not charged */

        if ((counter->rule->needs & NGX_RL_NEEDS_END)
            && counter->answer.retry_us == 0 && !counter->peek)
        {
            ngx_rl_end_counter(r, ctx, i, ended);
        }
    }

    ngx_rl_charge_take(ctx);
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
ngx_rl_charge_later(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
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
ngx_rl_charge_every(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
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

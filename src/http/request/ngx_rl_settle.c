/*
 * Charges the cost that a response's header tells: "cost_header=" names a
 * header of the upstream with the cost, "count_status=" the statuses that
 * count.
 */

#include "ngx_rl_request.h"


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


/*
 * The sum of all headers of the rule's name. NGX_DECLINED: there is none.
 * NGX_ABORT: one of them is no number, and the sum says nothing.
 */
static ngx_int_t
ngx_rl_header_sum(ngx_http_request_t *r, ngx_list_t *headers,
    const ngx_rl_rule_t *rule, uint64_t *cost)
{
    char              note[NGX_RL_LOG_NOTE];
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
        if (ngx_rl_number_clip(h->value.data, h->value.len,
                               NGX_RL_MAX_TOKENS, &value)
            != 0)
        {
            break;
        }

        found = 1;
        sum = ngx_min(sum + value, NGX_RL_MAX_TOKENS);
    }

    if (h == NULL) {

        if (found) {
            *cost = sum;
        }

        return found ? NGX_OK : NGX_DECLINED;
    }

    if (ngx_rl_request_log_due(r, NGX_RL_LOG_HEADER_COST, note)) {
        text = ngx_rl_value_quote(&h->value, buf);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
            "ratelimit rule \"%V\" has a cost of \"%V\" in the response's "
            "\"%V\", expected a number of 0 or more; it is not counted%s",
            &rule->id, &text, &rule->cost_header, note);
    }

    return NGX_ABORT;
}


/* NGX_OK, or the response does not say it. */
static ngx_int_t
ngx_rl_header_cost(ngx_http_request_t *r, const ngx_rl_ctx_t *ctx,
    const ngx_rl_rule_t *rule, uint64_t *cost)
{
    ngx_int_t       rc;
    ngx_rl_past_t  *past;

    rc = ngx_rl_header_sum(r, &r->headers_out.headers, rule, cost);

    /* the client does not get it behind X-Accel-Redirect, error pages */

    if (rc == NGX_DECLINED && r->upstream) {
        rc = ngx_rl_header_sum(r, &r->upstream->headers_in.headers, rule, cost);
    }

    for (past = ctx->past; past && rc == NGX_DECLINED; past = past->next) {
        rc = ngx_rl_header_sum(r, past->headers, rule, cost);
    }

    return rc;
}


/*
 * Sets a counter's cost, and its charge or refund. A counter that denied, of a
 * dry run, was not charged and is not now.
 */
static void
ngx_rl_settle_counter(ngx_http_request_t *r, const ngx_rl_ctx_t *ctx,
    ngx_rl_counter_t *counter)
{
    uint32_t              before;
    uint64_t              cost;
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
            cost = 0;
        }

    } else if (ngx_rl_header_cost(r, ctx, rule, &cost) == NGX_OK) {

        before = ngx_rl_request_once_paid(ctx, counter);
        cost -= ngx_min(cost, before);

        if (cost > counter->cost) {
            counter->charge = cost - counter->cost;

        } else if (!counter->emergency) {

            /* an emergency's limit is one of requests, whatever they cost */
            counter->refund = ngx_min(counter->cost - cost,
                                      counter->answer.granted);
        }
    }

    counter->cost = (uint32_t) cost;
}


void
ngx_rl_settle_charges(ngx_rl_ctx_t *ctx)
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


/* Cost headers do not reach the client, also where their rule did not apply. */
static void
ngx_rl_settle_hide(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_uint_t                 i, j, n;
    ngx_table_elt_t           *h;
    const ngx_str_t           *name;
    ngx_rl_walk_t              walk;
    ngx_rl_policy_t           *policy;
    ngx_rl_location_limit_t  **limits;

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


void
ngx_rl_settle(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_uint_t       i;
    ngx_rl_check_t  *check;

    ctx->needs &= ~NGX_RL_NEEDS_SETTLE;
    check = &ctx->check;

    if (!ctx->started || ngx_rl_check_refused(check)) {
        return;
    }

    for (i = 0; i < check->ncounters; i++) {
        ngx_rl_settle_counter(r, ctx, &check->counters[i]);
    }

    ngx_rl_check_cost(check);
    ngx_rl_settle_charges(ctx);
    ngx_rl_request_once_end(ctx, NGX_RL_NEEDS_SETTLE);
    ngx_rl_settle_hide(r, ctx);
}


ngx_table_elt_t *
ngx_rl_find_header(ngx_list_t *headers, const ngx_str_t *name)
{
    ngx_rl_walk_t  walk;

    ngx_rl_walk_part(&walk, &headers->part);

    return ngx_rl_walk_header(&walk, name);
}


/* Without memory for it, this upstream's costs are not counted. */
void
ngx_rl_settle_redirected(ngx_http_request_t *r)
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

/*
 * Charges the cost that a response's header tells: "cost_header=" names a
 * header of the upstream with the cost, "count_status=" the statuses that
 * count.
 */

#include "ngx_http_ratelimit_request.h"

static void ngx_http_ratelimit_settle_hide(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_settle_counter(ngx_http_request_t *r,
    const ngx_http_ratelimit_ctx_t *ctx, ngx_ratelimit_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_header_cost(ngx_http_request_t *r,
    const ngx_ratelimit_rule_t *rule, uint64_t *cost);


void
ngx_http_ratelimit_settle(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_uint_t              i;
    ngx_ratelimit_check_t  *check;

    ctx->needs &= ~NGX_RATELIMIT_NEEDS_SETTLE;
    check = &ctx->check;

    if (!ctx->started || ngx_ratelimit_check_refused(check)) {
        return;
    }

    for (i = 0; i < check->ncounters; i++) {
        ngx_http_ratelimit_settle_counter(r, ctx, &check->counters[i]);
    }

    ngx_ratelimit_check_cost(check);
    ngx_http_ratelimit_settle_charges(ctx);
    ngx_http_ratelimit_once_end(ctx, NGX_RATELIMIT_NEEDS_SETTLE);
    ngx_http_ratelimit_settle_hide(r, ctx);
}


void
ngx_http_ratelimit_settle_charges(ngx_http_ratelimit_ctx_t *ctx)
{
    uint64_t                  passed_us;
    ngx_uint_t                i, changes;
    ngx_ratelimit_check_t    *check;
    ngx_ratelimit_counter_t  *counter;

    check = &ctx->check;
    changes = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        changes |= counter->charge | counter->refund;
    }

    if (changes == 0) {
        return;
    }

    ngx_ratelimit_check_settle(check);

    /* an answer is of the time of the decision, also where it was made now */

    passed_us = ngx_http_ratelimit_passed_us(ctx);

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->source == NGX_RATELIMIT_SOURCE_LOCAL
            && (counter->charge || counter->refund))
        {
            counter->answer.reset_us += passed_us;
        }
    }
}


/* Cost headers do not reach the client, also where their rule did not apply. */
static void
ngx_http_ratelimit_settle_hide(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_uint_t                    i, j, n;
    const ngx_str_t              *name;
    ngx_ratelimit_policy_t       *policy;
    ngx_http_ratelimit_limit_t  **limits;

    limits = ctx->conf->limits->elts;

    for (i = 0; i < ctx->conf->limits->nelts; i++) {
        policy = ctx->policies[i];

        if (limits[i]->number == NGX_HTTP_RATELIMIT_ALL) {
            name = policy->cost_headers;
            n = policy->ncost_headers;

        } else {
            name = &policy->fixed[limits[i]->number]->cost_header;
            n = (name->len != 0);
        }

        for (j = 0; j < n; j++) {
            (void) ngx_http_ratelimit_find_header(&r->headers_out.headers,
                                                  &name[j], 1);
        }
    }
}


/*
 * Sets a counter's cost, and its charge or refund. A counter that denied, of a
 * dry run, was not charged and is not now.
 */
static void
ngx_http_ratelimit_settle_counter(ngx_http_request_t *r,
    const ngx_http_ratelimit_ctx_t *ctx, ngx_ratelimit_counter_t *counter)
{
    uint32_t                     before;
    uint64_t                     cost;
    const ngx_ratelimit_rule_t  *rule;

    rule = counter->rule;
    cost = counter->cost;

    if ((rule->statuses == NULL && rule->cost_header.len == 0)
        || counter->answer.retry_us)
    {
        return;
    }

    if (rule->statuses) {

        if (ngx_http_ratelimit_has_status(rule->statuses,
                                          r->headers_out.status))
        {
            counter->charge = counter->cost;

        } else {
            cost = 0;
        }

    } else if (ngx_http_ratelimit_header_cost(r, rule, &cost) == NGX_OK) {

        before = ngx_http_ratelimit_once_paid(ctx, counter);
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


/* NGX_DECLINED: the response does not say it. */
static ngx_int_t
ngx_http_ratelimit_header_cost(ngx_http_request_t *r,
    const ngx_ratelimit_rule_t *rule, uint64_t *cost)
{
    char              note[NGX_RATELIMIT_LOG_NOTE];
    u_char            buf[NGX_HTTP_RATELIMIT_QUOTE_BYTES];
    ngx_str_t         text;
    ngx_table_elt_t  *h;

    h = ngx_http_ratelimit_find_header(&r->headers_out.headers,
                                       &rule->cost_header, 0);

    /* the client does not get it behind X-Accel-Redirect, error pages */

    if (h == NULL && r->upstream) {
        h = ngx_http_ratelimit_find_header(&r->upstream->headers_in.headers,
                                           &rule->cost_header, 0);
    }

    if (h == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_ratelimit_number_parse(h->value.data, h->value.len, 0,
                                   NGX_RATELIMIT_MAX_TOKENS, cost)
        == 0)
    {
        return NGX_OK;
    }

    if (ngx_http_ratelimit_log_due(r, NGX_HTTP_RATELIMIT_LOG_HEADER_COST, note))
    {
        text = ngx_http_ratelimit_value_quote(&h->value, buf);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "ratelimit rule \"%V\" has a cost of \"%V\" in the "
                      "response's \"%V\", expected a number from 0 to "
                      "1073741824; it is not counted%s",
                      &rule->id, &text, &rule->cost_header, note);
    }

    return NGX_DECLINED;
}


ngx_table_elt_t *
ngx_http_ratelimit_find_header(ngx_list_t *headers, const ngx_str_t *name,
    ngx_uint_t hide)
{
    ngx_table_elt_t            *h;
    ngx_http_ratelimit_walk_t   walk;

    ngx_http_ratelimit_walk_part(&walk, &headers->part);

    while ((h = ngx_http_ratelimit_walk_next(&walk, name->len)) != NULL) {

        if (ngx_strncasecmp(h->key.data, name->data, name->len) != 0) {
            continue;
        }

        if (!hide) {
            return h;
        }

        h->hash = 0;
    }

    return NULL;
}


ngx_uint_t
ngx_http_ratelimit_has_status(const ngx_array_t *statuses, ngx_uint_t status)
{
    ngx_uint_t   i, *code;

    code = statuses->elts;

    for (i = 0; i < statuses->nelts; i++) {
        if (code[i] == status) {
            return 1;
        }
    }

    return 0;
}

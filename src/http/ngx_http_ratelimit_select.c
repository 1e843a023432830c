/*
 * Which counters a request meets: the rules of its location that apply, each
 * with the key it counts by, its limit, and what the request costs.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_text.h"

/* rules that a path may match, before memory is asked for more of them */
#define NGX_HTTP_RATELIMIT_FOUND  64

/* What selecting one request's rules goes by. */
typedef struct {
    ngx_http_request_t        *request;
    ngx_http_ratelimit_ctx_t  *ctx;
    ngx_ratelimit_limiter_t   *limiter;
    ngx_ratelimit_policy_t    *policy;
    unsigned                   found:1;        /* the rule, by its path */
    unsigned                   cost_wrong:1;   /* and logged */
} ngx_http_ratelimit_selection_t;

static ngx_int_t ngx_http_ratelimit_select_zone(
    ngx_http_ratelimit_selection_t *s);
static ngx_uint_t ngx_http_ratelimit_select_in_group(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_select_rule(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_select_counter(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    ngx_ratelimit_client_t *client, const ngx_ratelimit_limit_t *limit);
static ngx_ratelimit_client_t *ngx_http_ratelimit_select_client(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_select_limit(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    const ngx_ratelimit_limit_t **limit);
static ngx_int_t ngx_http_ratelimit_select_cost(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    uint32_t *cost);
static ngx_int_t ngx_http_ratelimit_cost_parse(const ngx_str_t *text,
    uint32_t *cost);


ngx_int_t
ngx_http_ratelimit_select(ngx_http_request_t *r,
    ngx_http_ratelimit_loc_conf_t *conf, ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_int_t                        rc;
    ngx_uint_t                       i;
    ngx_http_ratelimit_limit_t     **limits;
    ngx_http_ratelimit_selection_t   s;

    s.request = r;
    s.ctx = ctx;
    s.cost_wrong = 0;

    if (conf->tier
        && ngx_http_ratelimit_value_get(r, conf->tier, &ctx->tier) != NGX_OK)
    {
        return NGX_ERROR;
    }

    limits = conf->limits->elts;

    for (i = 0; i < conf->limits->nelts; i++) {

        s.limiter = limits[i]->limiter;
        s.policy = ctx->policies[i];
        s.found = (limits[i]->number == NGX_HTTP_RATELIMIT_ALL);

        rc = s.found
             ? ngx_http_ratelimit_select_zone(&s)
             : ngx_http_ratelimit_select_rule(&s,
                                        s.policy->fixed[limits[i]->number]);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DONE) {
            break;
        }
    }

    return NGX_OK;
}


/* What the rules' own functions return; never NGX_DECLINED. */
static ngx_int_t
ngx_http_ratelimit_select_zone(ngx_http_ratelimit_selection_t *s)
{
    ngx_int_t               rc;
    ngx_uint_t              i, n;
    ngx_ratelimit_rule_t  **rules;
    ngx_ratelimit_rule_t   *found[NGX_HTTP_RATELIMIT_FOUND];

    rules = found;

    n = ngx_ratelimit_policy_find(s->policy, &s->ctx->path, rules,
                                  NGX_HTTP_RATELIMIT_FOUND);

    if (n > NGX_HTTP_RATELIMIT_FOUND) {

        rules = ngx_palloc(s->request->pool,
                           n * sizeof(ngx_ratelimit_rule_t *));
        if (rules == NULL) {
            return NGX_ERROR;
        }

        n = ngx_ratelimit_policy_find(s->policy, &s->ctx->path, rules, n);
    }

    for (i = 0; i < n; i++) {

        if (ngx_http_ratelimit_select_in_group(s, rules[i])) {
            continue;
        }

        rc = ngx_http_ratelimit_select_rule(s, rules[i]);

        if (rc == NGX_ERROR || rc == NGX_DONE) {
            return rc;
        }
    }

    return NGX_OK;
}


/* Whether another rule of the same group applies already. */
static ngx_uint_t
ngx_http_ratelimit_select_in_group(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_uint_t                i;
    ngx_ratelimit_check_t    *check;
    ngx_ratelimit_counter_t  *counter;

    if (rule->group_index == 0) {
        return 0;
    }

    check = &s->ctx->check;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client->limiter == s->limiter
            && counter->rule->group_index == rule->group_index)
        {
            return 1;
        }
    }

    return 0;
}


/*
 * NGX_DECLINED: the rule does not apply. NGX_DONE: there is no room for it,
 * nor for any other.
 */
static ngx_int_t
ngx_http_ratelimit_select_rule(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule)
{
    ngx_int_t                     rc;
    ngx_str_t                     key;
    ngx_http_request_t           *r;
    ngx_ratelimit_check_t        *check;
    ngx_ratelimit_client_t       *client;
    const ngx_ratelimit_limit_t  *limit;
    ngx_http_ratelimit_values_t  *values;

    r = s->request;
    check = &s->ctx->check;
    values = rule->data;

    if (!ngx_ratelimit_rule_match(rule, s->found, r->method, &s->ctx->path,
                                  &s->ctx->tier, r->connection->log))
    {
        return NGX_DECLINED;
    }

    client = ngx_http_ratelimit_select_client(s, rule);

    if (client) {
        key = client->key;

    } else if (ngx_http_ratelimit_value_get(r, &values->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key.len == 0 || !ngx_ratelimit_rule_shares(rule, &key)) {
        return NGX_DECLINED;
    }

    rc = ngx_http_ratelimit_select_limit(s, rule, &limit);
    if (rc != NGX_OK) {
        return rc;
    }

    if (check->ncounters == NGX_RATELIMIT_MAX_COUNTERS) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "more than %d ratelimit rules match one request, "
                      "rule \"%V\" of zone \"%V\" is not counted, nor is any "
                      "after it", NGX_RATELIMIT_MAX_COUNTERS, &rule->id,
                      &s->limiter->zone.name);
        return NGX_DONE;
    }

    if (client == NULL) {
        client = &check->clients[check->nclients];
        client->limiter = s->limiter;
        client->key_index = rule->key_index;
        client->key = key;
    }

    return ngx_http_ratelimit_select_counter(s, rule, client, limit);
}


/*
 * A client that is new joins the check with its first counter, not before: one
 * without counters would be asked about for nothing.
 */
static ngx_int_t
ngx_http_ratelimit_select_counter(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, ngx_ratelimit_client_t *client,
    const ngx_ratelimit_limit_t *limit)
{
    ngx_ratelimit_check_t    *check;
    ngx_ratelimit_counter_t  *counter;

    check = &s->ctx->check;
    counter = &check->counters[check->ncounters];

    if (ngx_http_ratelimit_select_cost(s, rule, &counter->cost) != NGX_OK) {
        return NGX_ERROR;
    }

    counter->rule = rule;
    counter->limit = limit;
    counter->client = client;
    counter->dry_run = rule->dry_run || s->ctx->conf->dry_run;
    counter->look = (rule->statuses != NULL);
    counter->fail_mode = (rule->fail_mode != NGX_RATELIMIT_FAIL_DEFAULT)
                         ? rule->fail_mode : s->ctx->conf->fail_mode;

    if ((rule->shards && counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL)
        || rule->sync == NGX_RATELIMIT_SYNC_ASYNC)
    {
        /*
         * No answer of Redis says what all shards have left; async goes on by
         * what it knows.
         */
        counter->fail_mode = NGX_RATELIMIT_FAIL_OPEN;
    }

    check->ncounters++;

    if (client == &check->clients[check->nclients]) {
        check->nclients++;
    }

    return NGX_OK;
}


/* The check's client that a rule counts, or NULL. */
static ngx_ratelimit_client_t *
ngx_http_ratelimit_select_client(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_uint_t               i;
    ngx_ratelimit_check_t   *check;
    ngx_ratelimit_client_t  *client;

    check = &s->ctx->check;

    for (i = 0; i < check->nclients; i++) {
        client = &check->clients[i];

        if (client->limiter == s->limiter
            && client->key_index == rule->key_index)
        {
            return client;
        }
    }

    return NULL;
}


/* NGX_DECLINED: there is none, so that the rule does not apply. */
static ngx_int_t
ngx_http_ratelimit_select_limit(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, const ngx_ratelimit_limit_t **limit)
{
    u_char                        buf[NGX_HTTP_RATELIMIT_QUOTE_BYTES];
    ngx_str_t                     text;
    const char                   *expected;
    ngx_http_request_t           *r;
    ngx_ratelimit_limit_t        *made;
    ngx_http_ratelimit_values_t  *values;

    if (!rule->dynamic) {
        *limit = &rule->limit;
        return NGX_OK;
    }

    r = s->request;
    values = rule->data;

    if (ngx_http_ratelimit_value_get(r, values->limit, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_DECLINED;
    }

    made = ngx_palloc(r->pool, sizeof(ngx_ratelimit_limit_t));
    if (made == NULL) {
        return NGX_ERROR;
    }

    expected = ngx_ratelimit_rule_limit(&rule->spec, &text, made);

    if (expected) {
        text = ngx_http_ratelimit_value_quote(&text, buf);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "ratelimit rule \"%V\" of zone \"%V\" has a limit of "
                      "\"%V\", expected %s; it is not applied",
                      &rule->id, &s->limiter->zone.name, &text, expected);
        return NGX_DECLINED;
    }

    *limit = made;

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_select_cost(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, uint32_t *cost)
{
    u_char                        buf[NGX_HTTP_RATELIMIT_QUOTE_BYTES];
    ngx_str_t                     text;
    ngx_http_request_t           *r;
    ngx_http_ratelimit_values_t  *values;

    *cost = rule->cost;

    if (!rule->dynamic_cost) {
        return NGX_OK;
    }

    r = s->request;
    values = rule->data;

    if (ngx_http_ratelimit_value_get(r, values->cost, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0
        || ngx_http_ratelimit_cost_parse(&text, cost) == NGX_OK
        || s->cost_wrong)
    {
        return NGX_OK;
    }

    s->cost_wrong = 1;
    text = ngx_http_ratelimit_value_quote(&text, buf);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "ratelimit rule \"%V\" of zone \"%V\" has a cost of \"%V\", "
                  "expected a number of 0 or more; it costs %uD",
                  &rule->id, &s->limiter->zone.name, &text, *cost);

    return NGX_OK;
}


/*
 * Leaves the cost as it was where text is no number. One that is too large
 * becomes the largest: nobody shall pay less by asking for more.
 */
static ngx_int_t
ngx_http_ratelimit_cost_parse(const ngx_str_t *text, uint32_t *cost)
{
    uint64_t    value;
    ngx_uint_t  i;

    if (ngx_ratelimit_number_parse(text->data, text->len, 0,
                                   NGX_RATELIMIT_MAX_TOKENS, &value)
        == 0)
    {
        *cost = (uint32_t) value;
        return NGX_OK;
    }

    for (i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') {
            return NGX_DECLINED;
        }
    }

    *cost = NGX_RATELIMIT_MAX_TOKENS;

    return NGX_OK;
}

/*
 * Which counters a request meets: the rules of its location that apply, each
 * with the key it counts by, its limit, and what the request costs.
 */

#include "ngx_rl_select.h"
#include "ngx_rl_observe.h"

#include "ngx_rl_route.h"

/*
 * Whether the zone's rules are found by the path. A report names the rules that
 * the path excludes, too.
 */
#define ngx_rl_select_by_path(s)                                              \
    (((s)->policy->needs & NGX_RL_NEEDS_ROUTE)                                \
     && (s)->of->number == NGX_RL_ALL && (s)->report == NULL)


/* The rules that the index finds by the path; NULL: memory is out. */
static ngx_rl_rule_t **
ngx_rl_select_found(ngx_rl_selection_t *s, ngx_uint_t *n)
{
    ngx_rl_rule_t  **rules;

    rules = s->rules;

    *n = ngx_rl_policy_find(s->policy, &s->ctx->path, rules, NGX_RL_FOUND);

    if (*n > NGX_RL_FOUND) {

        rules = ngx_palloc(s->request->pool, *n * sizeof(ngx_rl_rule_t *));
        if (rules == NULL) {
            return NULL;
        }

        *n = ngx_rl_policy_find(s->policy, &s->ctx->path, rules, *n);
    }

    return rules;
}


static ngx_int_t
ngx_rl_select_conditions(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_int_t                  rc;
    const ngx_rl_condition_t  *failed;

    rc = ngx_rl_conditions(s->request, rule, &failed);

    if (rc == NGX_DECLINED) {
        s->match = NGX_RL_OTHER_HEADER + failed->kind;
        s->subject.failed = failed->name;
    }

    return rc;
}


/* Whether another rule of the same group applies already. */
static ngx_uint_t
ngx_rl_select_in_group(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_uint_t         i;
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    if (rule->group_index == 0) {
        return 0;
    }

    for (i = 0; i < s->nfree; i++) {
        if (s->free[i]->group_index == rule->group_index
            && ngx_rl_rule_every(s->free[i], &s->subject))
        {
            return 1;
        }
    }

    check = &s->ctx->check;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client->limiter == s->limiter
            && counter->rule->group_index == rule->group_index
            && ngx_rl_rule_every(counter->rule, &s->subject))
        {
            return 1;
        }
    }

    return 0;
}


/* Whether the rule applies, as far as that is known without its key. */
static ngx_int_t
ngx_rl_select_applies(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    s->match = NGX_RL_MATCHED;

    if (rule->needs & NGX_RL_NEEDS_MATCH) {
        s->match = ngx_rl_rule_match(rule, ngx_rl_select_by_path(s),
                                     &s->subject);

        if (s->match == NGX_RL_MATCHED && rule->nconditions
            && ngx_rl_select_conditions(s, rule) == NGX_ERROR)
        {
            return NGX_ERROR;
        }
    }

    if (s->match == NGX_RL_MATCHED && s->of->number == NGX_RL_ALL
        && ngx_rl_select_in_group(s, rule))
    {
        s->match = NGX_RL_GROUP_TAKEN;
    }

    return (s->match == NGX_RL_MATCHED) ? NGX_OK : NGX_DECLINED;
}


/* The client that the rule counts, if the check has it, or NULL. */
static ngx_inline ngx_rl_client_t *
ngx_rl_select_known(const ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_rl_check_t   *check;
    ngx_rl_client_t  *client, *end;

    check = &s->ctx->check;
    end = &check->clients[check->nclients];

    for (client = check->clients; client < end; client++) {

        if (client->limiter == s->limiter
            && client->key_index == rule->key_index)
        {
            return client;
        }
    }

    return NULL;
}


/*
 * A new client behind the others, with its key. It is not one of the check's
 * yet. NULL: memory is out.
 */
static ngx_rl_client_t *
ngx_rl_select_client(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_int_t         rc;
    ngx_rl_check_t   *check;
    ngx_rl_client_t  *client;
    ngx_rl_values_t  *values;

    check = &s->ctx->check;
    client = &check->clients[check->nclients];

    ngx_memzero(client, offsetof(ngx_rl_client_t, local));
    client->limiter = s->limiter;
    client->check = check;
    client->key_index = rule->key_index;

    values = rule->data;

    rc = values->nparts ? ngx_rl_values_key(s->request, values, &client->key)
                        : ngx_rl_value_key(s->request, &values->key,
                                           &client->key);

    if ((s->ctx->needs & (NGX_RL_NEEDS_CLAIMS |NGX_RL_NEEDS_NEW_KEYS))
        && rc == NGX_OK)
    {
        rc = ngx_rl_select_counted(s, rule, client);
    }

    return (rc == NGX_OK) ? client : NULL;
}


static void
ngx_rl_select_too_many(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    char  note[NGX_RL_LOG_NOTE];

    s->match = NGX_RL_TOO_MANY;

    if (s->report == NULL) {
        ngx_rl_count(s->limiter->rows[NGX_RL_COUNTS_ZONE],
                     NGX_RL_COUNTS_TOO_MANY, 1);
    }

    if (ngx_rl_request_log_due(s->request, NGX_RL_LOG_TOO_MANY, note)) {
        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
            "more than %d ratelimit rules match one request, rule \"%V\" of "
            "zone \"%V\" is not counted, nor is any after it%s",
            NGX_RL_MAX_COUNTERS, &rule->id, &s->limiter->zone.name, note);
    }
}


/* A request that is explained is not counted: the next one is taken. */
static void
ngx_rl_select_sample(ngx_rl_selection_t *s, const ngx_rl_client_t *client,
    const ngx_rl_rule_t *rule)
{
    if (s->report) {
        s->limiter->watch->samplers[NGX_RL_WATCH_REQUESTS].left = 1;
        return;
    }

    ngx_rl_watch_sample(client, rule, NGX_RL_WATCH_REQUESTS);
}


/* A request that is explained is not charged. */
static ngx_int_t
ngx_rl_select_more(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    ngx_rl_counter_t *counter)
{
    if ((rule->needs & NGX_RL_NEEDS_COST)
        && ngx_rl_select_cost(s, rule, &counter->cost) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ((rule->needs & NGX_RL_NEEDS_END) && s->report == NULL)
           ? ngx_rl_end(s->request, s->ctx) : NGX_OK;
}


static ngx_int_t
ngx_rl_select_counter(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    ngx_rl_client_t *client, const ngx_rl_limit_t *limit)
{
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    check = &s->ctx->check;
    counter = &check->counters[check->ncounters++];

    ngx_memzero(counter, offsetof(ngx_rl_counter_t, answer));
    counter->rule = rule;
    counter->limit = limit;
    counter->client = client;
    counter->cost = rule->cost;
    counter->dry_run = (u_char) (rule->dry_run | s->ctx->conf->dry_run);
    counter->look = (rule->statuses != NULL);

    if (s->limiter->redis) {
        counter->fail_mode = ngx_rl_rule_fail_mode(rule,
                                                   s->ctx->conf->fail_mode);
    }

    if (s->of->look) {
        counter->cost = 0;
        counter->peek = 1;
        counter->look = 0;
        counter->fail_mode = NGX_RL_FAIL_OPEN;
        return NGX_OK;
    }

    return (rule->needs & (NGX_RL_NEEDS_COST|NGX_RL_NEEDS_END))
           ? ngx_rl_select_more(s, rule, counter) : NGX_OK;
}


/*
 * NGX_DECLINED: the rule does not apply, s->match says why. NGX_DONE: there is
 * no room for it, nor for any other.
 */
static ngx_int_t
ngx_rl_select_rule(ngx_rl_selection_t *s, ngx_rl_rule_t *rule)
{
    ngx_int_t              rc;
    ngx_uint_t             joins;
    ngx_rl_check_t        *check;
    ngx_rl_client_t       *client;
    const ngx_rl_limit_t  *limit;

    if (rule->needs & (NGX_RL_NEEDS_MATCH|NGX_RL_NEEDS_GROUP)) {
        rc = ngx_rl_select_applies(s, rule);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    check = &s->ctx->check;

    client = ngx_rl_select_known(s, rule);
    joins = (client == NULL);

    if (joins) {
        client = ngx_rl_select_client(s, rule);
        if (client == NULL) {
            return NGX_ERROR;
        }

        if (client->key.len == 0) {
            s->match = NGX_RL_KEY_EMPTY;
            return NGX_DECLINED;
        }
    }

    limit = &rule->limit;

    if (rule->needs & (NGX_RL_NEEDS_PERCENT|NGX_RL_NEEDS_LIMIT)) {
        rc = ngx_rl_select_limit(s, rule, &client->key, &limit);

        if (rc != NGX_OK) {

            /* its group has no limit, then */

            if (rc == NGX_DECLINED && s->match == NGX_RL_UNLIMITED
                && rule->group_index && s->nfree < NGX_RL_MAX_COUNTERS)
            {
                s->free[s->nfree++] = rule;
            }

            return rc;
        }
    }

    if (check->ncounters == NGX_RL_MAX_COUNTERS) {
        ngx_rl_select_too_many(s, rule);
        return NGX_DONE;
    }

    /*
     * A client that is new joins the check with its first counter, not before:
     * Redis would be asked about one without counters for nothing.
     */

    if (joins) {
        check->nclients++;

        if (ngx_rl_watch_due(s->limiter->watch, NGX_RL_WATCH_REQUESTS)) {
            ngx_rl_select_sample(s, client, rule);
        }
    }

    return ngx_rl_select_counter(s, rule, client, limit);
}


/* NGX_DONE: there is no room for one more rule. */
static ngx_int_t
ngx_rl_select_rules(ngx_rl_selection_t *s, ngx_rl_rule_t **rules, ngx_uint_t n)
{
    ngx_int_t        rc;
    ngx_uint_t       i;
    ngx_rl_check_t  *check;

    check = &s->ctx->check;

    for (i = 0; i < n; i++) {
        rc = ngx_rl_select_rule(s, rules[i]);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (s->report) {
            s->report->rule(s->report->data, rules[i],
                (rc == NGX_OK) ? NGX_RL_MATCHED : s->match,
                (rc == NGX_OK) ? &check->counters[check->ncounters - 1] : NULL,
                &s->subject);
        }

        if (rc == NGX_DONE) {
            return NGX_DONE;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_rl_select(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_rl_report_t *report)
{
    ngx_int_t                 rc;
    ngx_uint_t                i, n, full;
    ngx_rl_rule_t           **rules;
    ngx_rl_loc_conf_t        *conf;
    ngx_rl_location_limit_t  *limit, **limits;
    ngx_rl_selection_t        s;

    conf = ctx->conf;
    s.request = r;
    s.ctx = ctx;
    s.report = report;

    if (ctx->needs & NGX_RL_NEEDS_CLIENT) {
        rc = ngx_rl_select_begin(&s);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    limits = conf->limits->elts;
    full = 0;

    for (i = 0; i < conf->limits->nelts; i++) {
        limit = limits[i];

        s.of = limit;
        s.nfree = 0;
        s.limiter = limit->limiter;
        s.policy = ctx->policies[i];

        if (ctx->needs & NGX_RL_NEEDS_CLIENT) {
            rc = ngx_rl_select_zone(&s, i);

            if (rc == NGX_DECLINED) {
                continue;
            }

            if (rc != NGX_OK) {
                return rc;
            }
        }

        /* lists and penalties of the zones behind it count all the same */

        if (full) {
            continue;
        }

        if (limit->number != NGX_RL_ALL) {
            rules = &s.policy->fixed[limit->number];
            n = 1;

        } else if (ngx_rl_select_by_path(&s)) {

            rules = ngx_rl_select_found(&s, &n);
            if (rules == NULL) {
                return NGX_ERROR;
            }

        } else {
            rules = s.policy->rules.elts;
            n = s.policy->rules.nelts;
        }

        rc = ngx_rl_select_rules(&s, rules, n);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        full = (rc == NGX_DONE);

        /* a client that writes a path so may want to leave rules out */

        if (full && report == NULL && !conf->dry_run
            && ngx_rl_path_readings(ctx->path.data, ctx->path.len))
        {
            return NGX_HTTP_BAD_REQUEST;
        }
    }

    return NGX_OK;
}

/*
 * Which counters a request meets: the rules of its location that apply, each
 * with the key it counts by, its limit, and what the request costs.
 */

#include "ngx_http_ratelimit_key.h"
#include "ngx_http_ratelimit_watch.h"

/* matching rules of a path that need no allocation */
#define NGX_HTTP_RATELIMIT_FOUND  64

/* State of the selection of one request's rules. */
typedef struct {
    ngx_http_request_t            *request;
    ngx_http_ratelimit_ctx_t      *ctx;
    ngx_ratelimit_limiter_t       *limiter;
    ngx_ratelimit_policy_t        *policy;
    ngx_http_ratelimit_report_t   *report;     /* NULL: nobody asks */
    ngx_ratelimit_match_e          match;      /* of the last rule */
    ngx_uint_t                     grouped;    /* rules replace each other */
    ngx_uint_t                     found;      /* the rule, by its path */
    ngx_http_ratelimit_limit_t    *of;         /* what the location says */

    /* where a policy needs them */
    ngx_str_t                      tier;       /* by the location */
    ngx_ratelimit_subject_t        subject;
    ngx_ratelimit_rule_t          *rules[NGX_HTTP_RATELIMIT_FOUND];
} ngx_http_ratelimit_selection_t;

static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_token(
    ngx_http_ratelimit_selection_t *s, ngx_http_ratelimit_loc_conf_t *conf);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_anonymous(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule,
    ngx_str_t *key);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_subject(
    ngx_http_ratelimit_selection_t *s, ngx_http_ratelimit_loc_conf_t *conf);
static ngx_int_t ngx_http_ratelimit_select_denied(
    ngx_http_ratelimit_selection_t *s, ngx_http_ratelimit_loc_conf_t *conf);
static void ngx_http_ratelimit_select_denied_key(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_policy_t *policy);
static ngx_int_t ngx_http_ratelimit_select_listed(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_policy_t *policy,
    ngx_ratelimit_listed_e *listed);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_allowed(
    ngx_http_ratelimit_selection_t *s);
static NGX_RATELIMIT_APART ngx_ratelimit_rule_t **
    ngx_http_ratelimit_select_found(ngx_http_ratelimit_selection_t *s,
    ngx_uint_t *n);
static ngx_int_t ngx_http_ratelimit_select_rules(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t **rules,
    ngx_uint_t n);
static ngx_int_t ngx_http_ratelimit_select_rule(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_applies(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_conditions(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static ngx_uint_t ngx_http_ratelimit_select_in_group(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static NGX_RATELIMIT_APART void ngx_http_ratelimit_select_sample(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_client_t *client,
    const ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_select_counter(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    ngx_ratelimit_client_t *client, const ngx_ratelimit_limit_t *limit);
static NGX_RATELIMIT_APART ngx_ratelimit_fail_mode_e
    ngx_http_ratelimit_select_fail_mode(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule);
static NGX_RATELIMIT_APART void ngx_http_ratelimit_select_too_many(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static ngx_ratelimit_client_t *ngx_http_ratelimit_select_client(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_limit(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    const ngx_str_t *key, const ngx_ratelimit_limit_t **limit);
static ngx_int_t ngx_http_ratelimit_select_part(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_rule_t *rule,
    const ngx_ratelimit_limit_t **limit);
static ngx_int_t ngx_http_ratelimit_select_dynamic(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    ngx_ratelimit_allowance_t **made);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_more(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    ngx_ratelimit_counter_t *counter);
static NGX_RATELIMIT_APART ngx_int_t ngx_http_ratelimit_select_cost(
    ngx_http_ratelimit_selection_t *s, ngx_ratelimit_rule_t *rule,
    uint32_t *cost);


ngx_int_t
ngx_http_ratelimit_select(ngx_http_request_t *r, ngx_http_ratelimit_ctx_t *ctx,
    ngx_http_ratelimit_report_t *report)
{
    ngx_int_t                        rc;
    ngx_uint_t                       i, n, seen;
    ngx_ratelimit_rule_t           **rules;
    ngx_http_ratelimit_loc_conf_t   *conf;
    ngx_http_ratelimit_limit_t     **limits;
    ngx_http_ratelimit_selection_t   s;

    conf = ctx->conf;
    s.request = r;
    s.ctx = ctx;
    s.report = report;

    if (conf->jwt_invalid == NGX_HTTP_RATELIMIT_JWT_REJECT) {
        rc = ngx_http_ratelimit_select_token(&s, conf);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    seen = (ctx->needs & NGX_RATELIMIT_NEEDS_SUBJECT) || report;

    if (seen) {
        rc = ngx_http_ratelimit_select_subject(&s, conf);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    limits = conf->limits->elts;

    for (i = 0; i < conf->limits->nelts; i++) {
        s.of = limits[i];
        s.limiter = limits[i]->limiter;
        s.policy = ctx->policies[i];

        if (seen) {
            rc = ngx_http_ratelimit_select_allowed(&s);

            if (rc == NGX_OK) {
                continue;
            }

            if (rc == NGX_ERROR) {
                return NGX_ERROR;
            }
        }

        if ((s.policy->needs & NGX_RATELIMIT_NEEDS_PENALTY) && report == NULL
            && !conf->dry_run)
        {
            rc = ngx_http_ratelimit_penalized(r, ctx, s.limiter);

            if (rc != NGX_OK) {
                return rc;
            }
        }

        s.found = 0;
        s.grouped = 1;

        if (limits[i]->number != NGX_HTTP_RATELIMIT_ALL) {
            s.grouped = 0;
            rules = &s.policy->fixed[limits[i]->number];
            n = 1;

        } else if ((s.policy->needs & NGX_RATELIMIT_NEEDS_ROUTE) && !report) {

            rules = ngx_http_ratelimit_select_found(&s, &n);
            if (rules == NULL) {
                return NGX_ERROR;
            }

        } else {

            /* a report names the rules that the path excludes, too */

            rules = s.policy->rules.elts;
            n = s.policy->rules.nelts;
        }

        rc = ngx_http_ratelimit_select_rules(&s, rules, n);

        if (rc != NGX_OK) {
            return (rc == NGX_DONE) ? NGX_OK : NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Before any zone counts the request. NGX_ABORT: its token is not valid. A dry
 * run lets it go on.
 */
static ngx_int_t
ngx_http_ratelimit_select_token(ngx_http_ratelimit_selection_t *s,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_int_t                     rc;
    const char                   *reason;
    ngx_http_ratelimit_limit_t  **limits;

    rc = ngx_http_ratelimit_jwt_invalid(s->request, &reason);

    if (rc != NGX_ABORT) {
        return rc;
    }

    limits = conf->limits->elts;

    s->ctx->token = reason;
    s->ctx->denies = limits[0]->limiter;

    return conf->dry_run ? NGX_OK : NGX_ABORT;
}


/*
 * The API key and the address are only looked for where a policy asks for them.
 * NGX_ABORT: the request is denied.
 */
static ngx_int_t
ngx_http_ratelimit_select_subject(ngx_http_ratelimit_selection_t *s,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_int_t                 rc;
    ngx_http_request_t       *r;
    ngx_ratelimit_subject_t  *subject;

    r = s->request;
    subject = &s->subject;
    subject->log_limit = ngx_http_ratelimit_log_limit_of(r,
                                             NGX_HTTP_RATELIMIT_LOG_REGEX);

    subject->method = r->method;
    subject->path = s->ctx->path;
    subject->host = r->headers_in.server;
    subject->log = r->connection->log;
    subject->api_key.len = 0;
    subject->digested = 0;
    subject->addressed = (s->ctx->needs & NGX_RATELIMIT_NEEDS_ADDRESS)
                         && ngx_http_ratelimit_client_address(r,
                                                          subject->address);

    ngx_str_null(&s->tier);

    if (conf->tier
        && ngx_http_ratelimit_value_get(r, conf->tier, &s->tier) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (s->ctx->needs & NGX_RATELIMIT_NEEDS_KEY) {
        rc = ngx_http_ratelimit_api_key_text(r, &subject->api_key);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            subject->api_key.len = 0;
        }

        if (s->ctx->needs & NGX_RATELIMIT_NEEDS_DIGEST) {
            ngx_ratelimit_subject_digest(subject);
        }
    }

    return (s->ctx->needs & NGX_RATELIMIT_NEEDS_LISTS)
           ? ngx_http_ratelimit_select_denied(s, conf) : NGX_OK;
}


/*
 * Before any zone counts the request. A dry run lets it go on. NGX_ABORT: it is
 * denied.
 */
static ngx_int_t
ngx_http_ratelimit_select_denied(ngx_http_ratelimit_selection_t *s,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_uint_t                    i;
    ngx_ratelimit_listed_e        listed;
    ngx_http_ratelimit_limit_t  **limits;

    limits = conf->limits->elts;

    for (i = 0; i < conf->limits->nelts; i++) {
        if (ngx_http_ratelimit_select_listed(s, s->ctx->policies[i], &listed)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (listed != NGX_RATELIMIT_LISTED_NOT && s->report) {
            s->report->listed(s->report->data, limits[i]->limiter, listed);
        }

        if (listed == NGX_RATELIMIT_LISTED_DENIED && s->ctx->denies == NULL) {
            s->ctx->denies = limits[i]->limiter;
            ngx_http_ratelimit_select_denied_key(s, s->ctx->policies[i]);
        }
    }

    return (s->ctx->denies && !conf->dry_run) ? NGX_ABORT : NGX_OK;
}


/* Whether a list has the API key, and not the address alone. */
static void
ngx_http_ratelimit_select_denied_key(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_policy_t *policy)
{
    ngx_ratelimit_subject_t  key;

    key = s->subject;
    key.addressed = 0;

    s->ctx->key_denied = (ngx_ratelimit_policy_listed(policy, &key, ngx_time())
                          == NGX_RATELIMIT_LISTED_DENIED);
}


/*
 * A list may name values of the keys of rules. Such a key says who the client
 * is, whether or not its rule applies to the request.
 */
static ngx_int_t
ngx_http_ratelimit_select_listed(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_policy_t *policy, ngx_ratelimit_listed_e *listed)
{
    ngx_str_t                key;
    ngx_uint_t               i;
    ngx_ratelimit_rule_t   **rules;
    ngx_ratelimit_listed_e   one;

    *listed = NGX_RATELIMIT_LISTED_NOT;

    if (!(policy->needs & NGX_RATELIMIT_NEEDS_LISTS)) {
        return NGX_OK;
    }

    *listed = ngx_ratelimit_policy_listed(policy, &s->subject, ngx_time());
    rules = policy->listed.elts;

    for (i = 0;
         i < policy->listed.nelts && *listed != NGX_RATELIMIT_LISTED_DENIED;
         i++)
    {
        if (ngx_http_ratelimit_values_key(s->request, rules[i]->data, &key)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        one = ngx_ratelimit_policy_listed_key(policy, i, &key, ngx_time());
        *listed = ngx_max(*listed, one);
    }

    return NGX_OK;
}


/*
 * Whether the zone's list lets the request pass. NGX_DECLINED: it does not, and
 * the request's tier is known.
 */
static ngx_int_t
ngx_http_ratelimit_select_allowed(ngx_http_ratelimit_selection_t *s)
{
    ngx_int_t               rc;
    ngx_ratelimit_listed_e  listed;

    rc = ngx_http_ratelimit_select_listed(s, s->policy, &listed);

    if (rc != NGX_OK || listed == NGX_RATELIMIT_LISTED_ALLOWED) {
        return rc;
    }

    ngx_ratelimit_subject_tier(&s->subject, s->policy, &s->tier);

    return NGX_DECLINED;
}


/* The rules that the index finds by the path; NULL: memory is out. */
static ngx_ratelimit_rule_t **
ngx_http_ratelimit_select_found(ngx_http_ratelimit_selection_t *s,
    ngx_uint_t *n)
{
    ngx_ratelimit_rule_t  **rules;

    rules = s->rules;
    s->found = 1;

    *n = ngx_ratelimit_policy_find(s->policy, &s->ctx->path, rules,
                                   NGX_HTTP_RATELIMIT_FOUND);

    if (*n > NGX_HTTP_RATELIMIT_FOUND) {

        rules = ngx_palloc(s->request->pool,
                           *n * sizeof(ngx_ratelimit_rule_t *));
        if (rules == NULL) {
            return NULL;
        }

        *n = ngx_ratelimit_policy_find(s->policy, &s->ctx->path, rules, *n);
    }

    return rules;
}


/* NGX_DONE: there is no room for one more rule. */
static ngx_int_t
ngx_http_ratelimit_select_rules(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t **rules, ngx_uint_t n)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    ngx_ratelimit_check_t  *check;

    check = &s->ctx->check;

    for (i = 0; i < n; i++) {
        rc = ngx_http_ratelimit_select_rule(s, rules[i]);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (s->report) {
            s->report->rule(s->report->data, rules[i], s->match,
                            (rc == NGX_OK)
                            ? &check->counters[check->ncounters - 1] : NULL,
                            &s->subject);
        }

        if (rc == NGX_DONE) {
            return NGX_DONE;
        }
    }

    return NGX_OK;
}


/*
 * NGX_DECLINED: the rule does not apply, s->match says why. NGX_DONE: there is
 * no room for it, nor for any other.
 */
static ngx_int_t
ngx_http_ratelimit_select_rule(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule)
{
    ngx_int_t                     rc;
    ngx_ratelimit_check_t        *check;
    ngx_ratelimit_client_t       *client;
    const ngx_ratelimit_limit_t  *limit;

    s->match = NGX_RATELIMIT_MATCHED;

    if (rule->needs & (NGX_RATELIMIT_NEEDS_MATCH|NGX_RATELIMIT_NEEDS_GROUP)) {
        rc = ngx_http_ratelimit_select_applies(s, rule);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    check = &s->ctx->check;

    client = ngx_http_ratelimit_select_client(s, rule);
    if (client == NULL) {
        return NGX_ERROR;
    }

    if (client->key.len == 0) {
        s->match = NGX_RATELIMIT_KEY_EMPTY;
        return NGX_DECLINED;
    }

    if ((rule->needs & NGX_RATELIMIT_NEEDS_PERCENT)
        && !ngx_ratelimit_rule_shares(rule, &client->key))
    {
        s->match = NGX_RATELIMIT_NOT_IN_SHARE;
        return NGX_DECLINED;
    }

    limit = &rule->limit;

    if (rule->needs & NGX_RATELIMIT_NEEDS_LIMIT) {
        rc = ngx_http_ratelimit_select_limit(s, rule, &client->key, &limit);

        if (rc == NGX_OK && rule->parted && rule->number == s->of->part) {
            rc = ngx_http_ratelimit_select_part(s, rule, &limit);
        }

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (check->ncounters == NGX_RATELIMIT_MAX_COUNTERS) {
        ngx_http_ratelimit_select_too_many(s, rule);
        return NGX_DONE;
    }

    /*
     * A client that is new joins the check with its first counter, not before:
     * Redis would be asked about one without counters for nothing.
     */

    if (client == &check->clients[check->nclients]) {
        check->nclients++;

        if (ngx_ratelimit_watch_due(s->limiter->watch,
                                    NGX_RATELIMIT_WATCH_REQUESTS))
        {
            ngx_http_ratelimit_select_sample(s, client, rule);
        }
    }

    return ngx_http_ratelimit_select_counter(s, rule, client, limit);
}


/* A request that is explained is not counted: the next one is taken. */
static void
ngx_http_ratelimit_select_sample(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_client_t *client, const ngx_ratelimit_rule_t *rule)
{
    if (s->report) {
        s->limiter->watch->samplers[NGX_RATELIMIT_WATCH_REQUESTS].left = 1;
        return;
    }

    ngx_http_ratelimit_watch_sample(client, rule,
                                    NGX_RATELIMIT_WATCH_REQUESTS);
}


/* Whether the rule applies, as far as that is known without its key. */
static ngx_int_t
ngx_http_ratelimit_select_applies(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    if (rule->needs & NGX_RATELIMIT_NEEDS_MATCH) {
        s->match = ngx_ratelimit_rule_match(rule, s->found, &s->subject);

        if (s->match == NGX_RATELIMIT_MATCHED && rule->nconditions
            && ngx_http_ratelimit_select_conditions(s, rule) == NGX_ERROR)
        {
            return NGX_ERROR;
        }
    }

    if (s->match == NGX_RATELIMIT_MATCHED && s->grouped
        && ngx_http_ratelimit_select_in_group(s, rule))
    {
        s->match = NGX_RATELIMIT_GROUP_TAKEN;
    }

    return (s->match == NGX_RATELIMIT_MATCHED) ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_ratelimit_select_conditions(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_int_t                         rc;
    const ngx_ratelimit_condition_t  *failed;

    rc = ngx_http_ratelimit_conditions(s->request, rule, &failed);

    if (rc == NGX_DECLINED) {
        s->match = NGX_RATELIMIT_OTHER_HEADER + failed->kind;
        s->subject.failed = failed->name;
    }

    return rc;
}


static void
ngx_http_ratelimit_select_too_many(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    char  note[NGX_RATELIMIT_LOG_NOTE];

    s->match = NGX_RATELIMIT_TOO_MANY;

    if (ngx_http_ratelimit_log_due(s->request, NGX_HTTP_RATELIMIT_LOG_TOO_MANY,
                                   note))
    {
        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                      "more than %d ratelimit rules match one request, "
                      "rule \"%V\" of zone \"%V\" is not counted, nor is "
                      "any after it%s", NGX_RATELIMIT_MAX_COUNTERS,
                      &rule->id, &s->limiter->zone.name, note);
    }
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


static ngx_int_t
ngx_http_ratelimit_select_counter(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, ngx_ratelimit_client_t *client,
    const ngx_ratelimit_limit_t *limit)
{
    ngx_ratelimit_check_t    *check;
    ngx_ratelimit_counter_t  *counter;

    check = &s->ctx->check;
    counter = &check->counters[check->ncounters++];

    ngx_memzero(counter, offsetof(ngx_ratelimit_counter_t, answer));
    counter->rule = rule;
    counter->limit = limit;
    counter->client = client;
    counter->cost = rule->cost;
    counter->dry_run = (u_char) (rule->dry_run | s->ctx->conf->dry_run);
    counter->look = (rule->statuses != NULL);

    if (s->limiter->redis) {
        counter->fail_mode = ngx_http_ratelimit_select_fail_mode(s, rule);
    }

    return (rule->needs & (NGX_RATELIMIT_NEEDS_COST|NGX_RATELIMIT_NEEDS_RETRY))
           ? ngx_http_ratelimit_select_more(s, rule, counter) : NGX_OK;
}


/*
 * A dry run makes nobody wait, a request that costs nothing always passes, and
 * one that is explained grows no wait.
 */
static ngx_int_t
ngx_http_ratelimit_select_more(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, ngx_ratelimit_counter_t *counter)
{
    if ((rule->needs & NGX_RATELIMIT_NEEDS_COST)
        && ngx_http_ratelimit_select_cost(s, rule, &counter->cost) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if ((rule->needs & NGX_RATELIMIT_NEEDS_RETRY) && counter->cost
        && !counter->dry_run && s->report == NULL)
    {
        s->ctx->early |= ngx_ratelimit_retry_early(counter);
    }

    return NGX_OK;
}


/*
 * No answer of Redis says what all parts have left; async goes on by what it
 * knows.
 */
static ngx_ratelimit_fail_mode_e
ngx_http_ratelimit_select_fail_mode(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_ratelimit_fail_mode_e  fail_mode;

    fail_mode = (rule->fail_mode != NGX_RATELIMIT_FAIL_DEFAULT)
                ? rule->fail_mode : s->ctx->conf->fail_mode;

    if ((rule->shards && fail_mode == NGX_RATELIMIT_FAIL_LOCAL)
        || rule->sync == NGX_RATELIMIT_SYNC_ASYNC)
    {
        return NGX_RATELIMIT_FAIL_OPEN;
    }

    return fail_mode;
}


/*
 * The check's client that a rule counts, or a new one behind the others, with
 * its key. NULL: memory is out.
 */
static ngx_ratelimit_client_t *
ngx_http_ratelimit_select_client(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_int_t                     rc;
    ngx_ratelimit_check_t        *check;
    ngx_ratelimit_client_t       *client, *end;
    ngx_http_ratelimit_values_t  *values;

    check = &s->ctx->check;
    end = &check->clients[check->nclients];

    for (client = check->clients; client < end; client++) {

        if (client->limiter == s->limiter
            && client->key_index == rule->key_index)
        {
            return client;
        }
    }

    ngx_memzero(client, offsetof(ngx_ratelimit_client_t, local));
    client->limiter = s->limiter;
    client->check = check;
    client->key_index = rule->key_index;

    values = rule->data;

    rc = values->nparts
         ? ngx_http_ratelimit_values_key(s->request, values, &client->key)
         : ngx_http_ratelimit_value_get(s->request, &values->key,
                                        &client->key);

    if (rc == NGX_OK && s->ctx->conf->jwt_key) {
        rc = ngx_http_ratelimit_select_anonymous(s, rule, &client->key);
    }

    return (rc == NGX_OK) ? client : NULL;
}


/*
 * Where a token has no claims, as it is not valid, the client's address is the
 * key: else a client that sends any such token had no limit.
 */
static ngx_int_t
ngx_http_ratelimit_select_anonymous(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule, ngx_str_t *key)
{
    ngx_int_t                  rc;
    const char                *reason;
    ngx_http_variable_value_t  address;

    if (key->len
        && ngx_strlcasestrn(rule->key.data, rule->key.data + rule->key.len,
                            (u_char *) NGX_HTTP_RATELIMIT_JWT_PREFIX,
                            sizeof(NGX_HTTP_RATELIMIT_JWT_PREFIX) - 2)
           == NULL)
    {
        return NGX_OK;
    }

    rc = ngx_http_ratelimit_jwt_invalid(s->request, &reason);

    if (rc != NGX_ABORT) {
        return rc;
    }

    if (ngx_http_ratelimit_client_variable(s->request, &address, 0) != NGX_OK)
    {
        return NGX_ERROR;
    }

    key->len = address.len;
    key->data = address.data;

    return NGX_OK;
}


/*
 * The limit of the rule, the tier or the API key, and what overrides it for a
 * time. NGX_DECLINED: there is none, so that the rule does not apply.
 */
static ngx_int_t
ngx_http_ratelimit_select_limit(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, const ngx_str_t *key,
    const ngx_ratelimit_limit_t **limit)
{
    ngx_int_t                         rc;
    ngx_ratelimit_limit_t            *other;
    ngx_ratelimit_allowance_t        *made;
    const ngx_ratelimit_temporary_t  *temporary;
    const ngx_ratelimit_allowance_t  *allowance;

    allowance = NULL;

    if (rule->ntier_limits || rule->keys.entries) {
        allowance = ngx_ratelimit_rule_allowance(rule, &s->subject, NULL);
    }

    if (allowance == NULL && rule->dynamic) {

        rc = ngx_http_ratelimit_select_dynamic(s, rule, &made);
        if (rc != NGX_OK) {
            return rc;
        }

        allowance = made;
    }

    *limit = allowance ? &allowance->limit : &rule->limit;

    if (s->policy->temporary_limits == NULL) {
        return NGX_OK;
    }

    temporary = ngx_ratelimit_policy_temporary(s->policy, rule, &s->subject,
                                               key, ngx_time());
    if (temporary == NULL) {
        return NGX_OK;
    }

    other = ngx_palloc(s->request->pool, sizeof(ngx_ratelimit_limit_t));
    if (other == NULL) {
        return NGX_ERROR;
    }

    /* one that does not fit the rule leaves it as it is */

    if (ngx_ratelimit_temporary_limit(temporary,
                                allowance ? &allowance->spec : &rule->spec,
                                other)
        == NULL)
    {
        *limit = other;
    }

    return NGX_OK;
}


/*
 * The location's part of a leaky bucket. If a tier or an override is too slow
 * for the burst, the location has all of it.
 */
static ngx_int_t
ngx_http_ratelimit_select_part(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule, const ngx_ratelimit_limit_t **limit)
{
    ngx_ratelimit_limit_t  *part;

    if (*limit == &rule->limit) {
        *limit = &s->of->limit;
        return NGX_OK;
    }

    part = ngx_palloc(s->request->pool, sizeof(ngx_ratelimit_limit_t));
    if (part == NULL) {
        return NGX_ERROR;
    }

    if (ngx_ratelimit_limit_part(*limit, &s->of->spec, part) == NULL) {
        *limit = part;
    }

    return NGX_OK;
}


/* Reads the limit from a variable. */
static ngx_int_t
ngx_http_ratelimit_select_dynamic(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, ngx_ratelimit_allowance_t **made)
{
    char                          note[NGX_RATELIMIT_LOG_NOTE];
    u_char                        buf[NGX_HTTP_RATELIMIT_QUOTE_BYTES];
    ngx_str_t                     text;
    const char                   *expected;
    ngx_ratelimit_allowance_t    *allowance;
    ngx_http_ratelimit_values_t  *values;

    values = rule->data;
    allowance = ngx_palloc(s->request->pool,
                           sizeof(ngx_ratelimit_allowance_t));

    if (allowance == NULL
        || ngx_http_ratelimit_value_get(s->request, values->limit, &text)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        s->match = NGX_RATELIMIT_LIMIT_EMPTY;
        return NGX_DECLINED;
    }

    expected = ngx_ratelimit_rule_spec(&rule->spec, &text, &allowance->spec);

    if (expected == NULL) {
        expected = ngx_ratelimit_limit_init(&allowance->limit,
                                            &allowance->spec);
    }

    if (expected == NULL) {
        *made = allowance;
        return NGX_OK;
    }

    if (ngx_http_ratelimit_log_due(s->request, NGX_HTTP_RATELIMIT_LOG_LIMIT,
                                   note))
    {
        text = ngx_http_ratelimit_value_quote(&text, buf);

        ngx_log_error(NGX_LOG_ERR, s->request->connection->log, 0,
                      "ratelimit rule \"%V\" of zone \"%V\" has a limit of "
                      "\"%V\", expected %s; it is not applied%s",
                      &rule->id, &s->limiter->zone.name, &text, expected,
                      note);
    }

    s->match = NGX_RATELIMIT_LIMIT_WRONG;

    return NGX_DECLINED;
}


/*
 * Reads the cost from a variable. If that is empty or no number, the cost stays
 * as it is. One that is too large becomes the largest: nobody shall pay less by
 * asking for more.
 */
static ngx_int_t
ngx_http_ratelimit_select_cost(ngx_http_ratelimit_selection_t *s,
    ngx_ratelimit_rule_t *rule, uint32_t *cost)
{
    char                          note[NGX_RATELIMIT_LOG_NOTE];
    u_char                        buf[NGX_HTTP_RATELIMIT_QUOTE_BYTES];
    size_t                        digits;
    uint64_t                      value;
    ngx_str_t                     text;
    ngx_http_request_t           *r;
    ngx_http_ratelimit_values_t  *values;

    r = s->request;
    values = rule->data;

    if (ngx_http_ratelimit_value_get(r, values->cost, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    if (ngx_ratelimit_number_parse(text.data, text.len, 0,
                                   NGX_RATELIMIT_MAX_TOKENS, &value)
        == 0)
    {
        *cost = (uint32_t) value;
        return NGX_OK;
    }

    for (digits = 0; digits < text.len; digits++) {
        if (text.data[digits] < '0' || text.data[digits] > '9') {
            break;
        }
    }

    if (digits == text.len) {
        *cost = NGX_RATELIMIT_MAX_TOKENS;
        return NGX_OK;
    }

    if (ngx_http_ratelimit_log_due(r, NGX_HTTP_RATELIMIT_LOG_COST, note)) {
        text = ngx_http_ratelimit_value_quote(&text, buf);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "ratelimit rule \"%V\" of zone \"%V\" has a cost of "
                      "\"%V\", expected a number of 0 or more; it costs %uD%s",
                      &rule->id, &s->limiter->zone.name, &text, *cost, note);
    }

    return NGX_OK;
}

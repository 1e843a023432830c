/*
 * "/counters?rule=<id>&key=<value>": what is left of one counter, without
 * taking anything; and its reset, on all nodes.
 */

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_inspect.h"
#include "ngx_ratelimit_subject.h"

#include <jansson.h>

/* A counter that is named, in the request's pool. */
typedef struct {
    ngx_http_ratelimit_api_t        *api;
    ngx_ratelimit_policy_t          *policy;    /* in use by it */
    ngx_ratelimit_rule_t            *rule;
    ngx_str_t                        rule_id;
    ngx_uint_t                       nparts;
    ngx_str_t                        parts[NGX_RATELIMIT_MAX_PARTS];
    ngx_str_t                        tier;      /* as the query names it */
    unsigned                         tiered:1;  /* it does */
    ngx_ratelimit_subject_t          subject;
    const ngx_ratelimit_override_t  *override;
    ngx_ratelimit_limit_t            limit;
    ngx_ratelimit_inspect_t          inspect;
} ngx_http_ratelimit_api_counter_t;

static ngx_int_t ngx_http_ratelimit_api_counter_named(
    ngx_http_ratelimit_api_t *api, ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_arguments(
    ngx_http_ratelimit_api_t *api, ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_rule(
    ngx_http_ratelimit_api_t *api, ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_key(
    ngx_http_ratelimit_api_t *api, ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_tier(
    ngx_http_ratelimit_api_counter_t *counter);
static void ngx_http_ratelimit_api_counter_variable(ngx_http_request_t *r,
    const ngx_str_t *text, const ngx_str_t *value);
static ngx_int_t ngx_http_ratelimit_api_counter_limit(
    ngx_http_ratelimit_api_counter_t *counter);
static ngx_str_t *ngx_http_ratelimit_api_counter_api_key(
    ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_log(
    ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_counter_forget(void *data);
static void ngx_http_ratelimit_api_counter_handler(void *data);
static ngx_int_t ngx_http_ratelimit_api_counter_looked(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_counter_reset(
    ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_counter_told(void *data,
    const ngx_ratelimit_sync_result_t *result);
static ngx_int_t ngx_http_ratelimit_api_counter_gone(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_counter_failed(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_counter_unknown(
    ngx_http_ratelimit_api_t *api);


ngx_int_t
ngx_http_ratelimit_api_counters(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t                          rc;
    ngx_uint_t                         look;
    ngx_ratelimit_inspect_t           *inspect;
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = ngx_pcalloc(api->request->pool,
                          sizeof(ngx_http_ratelimit_api_counter_t));
    if (counter == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    counter->api = api;

    rc = ngx_http_ratelimit_api_counter_named(api, counter);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    look = (api->request->method != NGX_HTTP_DELETE);
    inspect = &counter->inspect;

    inspect->limiter = api->conf->limiter;
    inspect->rule = counter->rule;
    inspect->pool = api->request->pool;
    inspect->handler = ngx_http_ratelimit_api_counter_handler;
    inspect->data = api;

    if (look) {

        rc = ngx_http_ratelimit_api_counter_tier(counter);

        if (rc == NGX_OK) {
            rc = ngx_http_ratelimit_api_counter_limit(counter);
        }

        switch (rc) {

        case NGX_OK:
            break;

        case NGX_DECLINED:
            return ngx_http_ratelimit_api_problem(api, 422, "invalid",
                       "the limit of rule \"%V\" comes from a variable: ask "
                       "with a request, by \"ratelimit_explain\"",
                       &counter->rule_id);

        case NGX_ABORT:
            return ngx_http_ratelimit_api_problem(api, 422, "invalid",
                       "\"ratelimit_tier\" differs between the locations of "
                       "rule \"%V\": name it with \"tier=<tier>\", or ask "
                       "with a request, by \"ratelimit_explain\"",
                       &counter->rule_id);

        default:
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        inspect->limit = &counter->limit;

    } else if (ngx_http_ratelimit_api_counter_log(api) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_ratelimit_policy_use(counter->policy);
    api->forget = ngx_http_ratelimit_api_counter_forget;
    api->data = counter;

    api->next = look ? ngx_http_ratelimit_api_counter_looked
                     : ngx_http_ratelimit_api_counter_reset;

    rc = look ? ngx_ratelimit_inspect_look(inspect)
              : ngx_ratelimit_inspect_reset(inspect);

    switch (rc) {

    case NGX_OK:
        return api->next(api);

    case NGX_AGAIN:
        return NGX_BUSY;

    default:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


/* Before the reset: its request may be gone when it is done. */
static ngx_int_t
ngx_http_ratelimit_api_counter_log(ngx_http_ratelimit_api_t *api)
{
    ngx_ratelimit_record_t  record;

    static const ngx_str_t  what = ngx_string("a counter is reset");

    ngx_memzero(&record, sizeof(ngx_ratelimit_record_t));

    if (ngx_http_ratelimit_api_record(api, &record) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_ratelimit_sync_log(api->conf->limiter, api->request->pool, &what,
                           &record);

    return NGX_OK;
}


static void
ngx_http_ratelimit_api_counter_forget(void *data)
{
    ngx_http_ratelimit_api_counter_t *counter = data;

    ngx_ratelimit_inspect_end(&counter->inspect);
    ngx_ratelimit_policy_release(counter->policy);
}


/* Which counter the query names. NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_http_ratelimit_api_counter_named(ngx_http_ratelimit_api_t *api,
    ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_int_t  rc;

    rc = ngx_http_ratelimit_api_counter_arguments(api, counter);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_ratelimit_api_counter_rule(api, counter);
    }

    if (rc == NGX_DECLINED) {
        rc = ngx_http_ratelimit_api_counter_key(api, counter);
    }

    return rc;
}


/* "rule=<id>&key=<value>&key=<value>&tier=<tier>" */
static ngx_int_t
ngx_http_ratelimit_api_counter_arguments(ngx_http_ratelimit_api_t *api,
    ngx_http_ratelimit_api_counter_t *counter)
{
    u_char     *p, *next, *last, *dst, *src;
    ngx_str_t  *text;

    p = api->request->args.len ? api->request->args.data : (u_char *) "";
    last = p + api->request->args.len;

    for ( /* void */ ; p < last; p = next + 1) {

        next = ngx_strlchr(p, last, '&');
        next = next ? next : last;

        if (next - p >= 5 && ngx_strncmp(p, "rule=", 5) == 0) {
            text = &counter->rule_id;
            src = p + 5;

        } else if (next - p >= 4 && ngx_strncmp(p, "key=", 4) == 0
                   && counter->nparts < NGX_RATELIMIT_MAX_PARTS)
        {
            text = &counter->parts[counter->nparts++];
            src = p + 4;

        } else if (next - p >= 5 && ngx_strncmp(p, "tier=", 5) == 0) {
            text = &counter->tier;
            src = p + 5;
            counter->tiered = 1;

        } else {
            continue;
        }

        dst = ngx_pnalloc(api->request->pool, next - src + 1);
        if (dst == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        text->data = dst;
        ngx_unescape_uri(&dst, &src, next - src, 0);
        text->len = dst - text->data;
    }

    if (counter->rule_id.len && counter->nparts) {
        return NGX_DECLINED;
    }

    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                          "invalid", "expected \"?rule=<id>\" "
                                          "and \"key=<value>\" of each part "
                                          "of the rule's key");
}


static ngx_int_t
ngx_http_ratelimit_api_counter_rule(ngx_http_ratelimit_api_t *api,
    ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_uint_t              i;
    ngx_ratelimit_rule_t  **rules;

    counter->policy = api->conf->limiter->policy;
    rules = counter->policy->rules.elts;

    for (i = 0; i < counter->policy->rules.nelts; i++) {
        if (ngx_http_ratelimit_equal(&rules[i]->id, &counter->rule_id)) {
            counter->rule = rules[i];
            return NGX_DECLINED;
        }
    }

    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_FOUND,
                                          "not-found", "there is no such rule");
}


/* The parts as a request's key has them. */
static ngx_int_t
ngx_http_ratelimit_api_counter_key(ngx_http_ratelimit_api_t *api,
    ngx_http_ratelimit_api_counter_t *counter)
{
    u_char      *p;
    size_t       len;
    ngx_str_t   *key;
    ngx_uint_t   i, n;

    n = counter->rule->nparts ? counter->rule->nparts : 1;

    if (counter->nparts != n) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected \"key=<value>\" %ui time(s): the key "
                   "of the rule has so many parts", n);
    }

    len = n;

    for (i = 0; i < n; i++) {
        len += counter->parts[i].len;
    }

    key = &counter->inspect.key;

    p = ngx_pnalloc(api->request->pool, len);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    key->data = p;

    for (i = 0; i < n; i++) {

        if (i) {
            *p++ = 0x1f;
        }

        p = ngx_cpymem(p, counter->parts[i].data, counter->parts[i].len);
    }

    key->len = p - key->data;

    if (key->len == 0) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                              "invalid", "an empty key is "
                                              "not counted");
    }

    return NGX_DECLINED;
}


/*
 * What the location of a request with this key would say of its tier, unless
 * the query says it. The variables of the key have its values, all others are
 * those of the request that asks.
 */
static ngx_int_t
ngx_http_ratelimit_api_counter_tier(ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    ngx_http_request_t         *r;
    ngx_http_ratelimit_zone_t  *zone;
    ngx_http_variable_value_t  *variables;
    ngx_http_core_main_conf_t  *cmcf;

    r = counter->api->request;
    zone = ngx_queue_data(counter->api->conf->limiter,
                          ngx_http_ratelimit_zone_t, limiter);

    if (counter->tiered || zone->tier == NULL || zone->tiers) {
        return NGX_OK;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    variables = r->variables;

    r->variables = ngx_pcalloc(r->pool, cmcf->variables.nelts
                                        * sizeof(ngx_http_variable_value_t));
    if (r->variables == NULL) {
        r->variables = variables;
        return NGX_ERROR;
    }

    for (i = 0; i < counter->nparts; i++) {
        ngx_http_ratelimit_api_counter_variable(r,
                          counter->rule->nparts ? &counter->rule->parts[i]
                                                : &counter->rule->key,
                          &counter->parts[i]);
    }

    rc = ngx_http_ratelimit_value_get(r, zone->tier, &counter->tier);

    r->variables = variables;

    return rc;
}


/* "$name" or "${name}" has this value, if anything reads it by its index. */
static void
ngx_http_ratelimit_api_counter_variable(ngx_http_request_t *r,
    const ngx_str_t *text, const ngx_str_t *value)
{
    ngx_str_t                   name;
    ngx_uint_t                  i;
    ngx_http_variable_t        *known;
    ngx_http_core_main_conf_t  *cmcf;

    name = *text;

    if (name.len < 2 || name.data[0] != '$') {
        return;
    }

    name.data++;
    name.len--;

    if (name.data[0] == '{') {
        name.data++;
        name.len -= 2;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    known = cmcf->variables.elts;

    for (i = 0; i < cmcf->variables.nelts; i++) {

        if (known[i].name.len == name.len
            && ngx_strncasecmp(known[i].name.data, name.data, name.len) == 0)
        {
            r->variables[i].data = value->data;
            r->variables[i].len = value->len;
            r->variables[i].valid = 1;
            return;
        }
    }
}


/*
 * What this key is allowed: by the rule, by the tier of the API key, by what is
 * said of the API key, and by what is for a time. NGX_DECLINED: only a request
 * tells; NGX_ABORT: only its location does.
 */
static ngx_int_t
ngx_http_ratelimit_api_counter_limit(ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_str_t                        *api_key;
    ngx_ratelimit_rule_t             *rule;
    ngx_ratelimit_subject_t          *subject;
    ngx_http_ratelimit_zone_t        *zone;
    const ngx_ratelimit_spec_t       *spec;
    const ngx_ratelimit_allowance_t  *allowance;

    rule = counter->rule;
    zone = ngx_queue_data(counter->api->conf->limiter,
                          ngx_http_ratelimit_zone_t, limiter);
    subject = &counter->subject;
    subject->log = counter->api->request->connection->log;

    api_key = ngx_http_ratelimit_api_counter_api_key(counter);

    if (api_key) {
        subject->api_key = *api_key;
    }

    ngx_ratelimit_subject_digest(subject);
    ngx_ratelimit_subject_tier(subject, counter->policy, &counter->tier);

    allowance = ngx_ratelimit_rule_allowance(rule, subject, NULL);

    if (allowance == NULL && rule->ntiers && subject->tier.len == 0
        && zone->tiers && !counter->tiered)
    {
        return NGX_ABORT;
    }

    if (allowance) {
        spec = &allowance->spec;
        counter->limit = allowance->limit;

    } else if (!rule->dynamic) {
        spec = &rule->spec;
        counter->limit = rule->limit;

    } else {
        return NGX_DECLINED;
    }

    if (rule->shares) {
        return NGX_OK;
    }

    counter->override = ngx_ratelimit_policy_override(counter->policy, rule,
                                                      subject,
                                                      &counter->inspect.key,
                                                      ngx_time());
    if (counter->override) {
        ngx_ratelimit_limit_t  limit;

        if (ngx_ratelimit_override_limit(counter->override, spec, &limit)
            == NULL)
        {
            counter->limit = limit;

        } else {
            counter->override = NULL;
        }
    }

    return NGX_OK;
}


/* The value that the key has of the API key, or NULL. */
static ngx_str_t *
ngx_http_ratelimit_api_counter_api_key(
    ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_uint_t             i;
    ngx_ratelimit_rule_t  *rule;

    static const ngx_str_t  name = ngx_string("$ratelimit_api_key");

    rule = counter->rule;

    if (rule->nparts == 0) {
        return ngx_http_ratelimit_equal(&rule->key, &name) ? &counter->parts[0]
                                                           : NULL;
    }

    for (i = 0; i < rule->nparts; i++) {
        if (ngx_http_ratelimit_equal(&rule->parts[i], &name)) {
            return &counter->parts[i];
        }
    }

    return NULL;
}


static void
ngx_http_ratelimit_api_counter_handler(void *data)
{
    ngx_http_ratelimit_api_wake(data);
}


static ngx_int_t
ngx_http_ratelimit_api_counter_looked(ngx_http_ratelimit_api_t *api)
{
    u_char                             buf[NGX_HTTP_RATELIMIT_JSON_TIME];
    json_t                            *json;
    uint64_t                           now_ms;
    ngx_str_t                          text;
    ngx_time_t                        *now;
    const ngx_ratelimit_limit_t       *limit;
    const ngx_ratelimit_answer_t      *answer;
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = api->data;

    if (counter->inspect.status != NGX_RATELIMIT_REDIS_OK) {
        return ngx_http_ratelimit_api_counter_failed(api);
    }

    limit = &counter->limit;
    answer = &counter->inspect.answer;
    now = ngx_timeofday();
    now_ms = (uint64_t) now->sec * 1000 + now->msec;

    json = json_object();

    (void) json_object_set_new(json, "rule",
                               ngx_http_ratelimit_json_text(&counter->rule_id));
    (void) json_object_set_new(json, "algorithm",
                 json_string(ngx_ratelimit_algorithm_name(limit->algorithm)));
    (void) json_object_set_new(json, "limit", json_integer(limit->capacity));
    (void) json_object_set_new(json, "remaining",
                               json_integer(answer->remaining));

    if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        (void) json_object_set_new(json, "window_seconds",
                                   json_real((double) limit->window_us / 1e6));

        text.data = buf;
        text.len = ngx_http_ratelimit_json_time(buf, now_ms
                                               + (answer->reset_us + 999)
                                                 / 1000)
                   - buf;

        (void) json_object_set_new(json, "reset_at",
                                   ngx_http_ratelimit_json_text(&text));
    }

    (void) json_object_set_new(json, "tier",
                               counter->subject.tier.len
                               ? ngx_http_ratelimit_json_text(
                                                        &counter->subject.tier)
                               : json_null());
    (void) json_object_set_new(json, "override",
                               counter->override
                               ? ngx_http_ratelimit_json_text(
                                                       &counter->override->id)
                               : json_null());

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK, json);
}


/* It is fresh; other nodes have to forget what they know of it. */
static ngx_int_t
ngx_http_ratelimit_api_counter_reset(ngx_http_ratelimit_api_t *api)
{
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = api->data;

    if (counter->inspect.status != NGX_RATELIMIT_REDIS_OK) {
        return ngx_http_ratelimit_api_counter_failed(api);
    }

    api->next = ngx_http_ratelimit_api_counter_gone;
    api->call = ngx_ratelimit_sync_reset(api->conf->limiter,
                                         ngx_http_ratelimit_api_counter_told,
                                         api);

    return api->call ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static void
ngx_http_ratelimit_api_counter_told(void *data,
    const ngx_ratelimit_sync_result_t *result)
{
    ngx_http_ratelimit_api_t *api = data;

    ngx_http_ratelimit_api_result(api, result);

    ngx_http_ratelimit_api_wake(api);
}


static ngx_int_t
ngx_http_ratelimit_api_counter_gone(ngx_http_ratelimit_api_t *api)
{
    json_t                            *json;
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = api->data;

    if (api->status != NGX_RATELIMIT_SYNC_OK) {
        return counter->inspect.done
               ? ngx_http_ratelimit_api_counter_unknown(api)
               : ngx_http_ratelimit_api_failed(api);
    }

    json = json_object();

    (void) json_object_set_new(json, "rule",
                               ngx_http_ratelimit_json_text(&counter->rule_id));
    (void) json_object_set_new(json, "reset", json_true());

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK, json);
}


static ngx_int_t
ngx_http_ratelimit_api_counter_failed(ngx_http_ratelimit_api_t *api)
{
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = api->data;

    api->status = NGX_RATELIMIT_SYNC_UNAVAILABLE;
    api->said = *ngx_ratelimit_redis_status_name(counter->inspect.status);

    return counter->inspect.done
           ? ngx_http_ratelimit_api_counter_unknown(api)
           : ngx_http_ratelimit_api_failed(api);
}


/* Once more is always right: it is fresh then, or as fresh as it was. */
static ngx_int_t
ngx_http_ratelimit_api_counter_unknown(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_GATEWAY_TIME_OUT,
               "unknown-outcome", "the counter may be reset, in part or not on "
               "all nodes: reset it once more: %V", &api->said);
}

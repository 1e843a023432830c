/*
 * "/counters?rule=<id>&key=<value>": what is left of one counter, without
 * taking anything; and its reset, on all gateways. "/counters?key=<value>":
 * what is left of the counters that all rules of the zone have for a key.
 */

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_inspect.h"
#include "ngx_ratelimit_subject.h"

#include <jansson.h>

/* counters in one answer */
#define NGX_HTTP_RATELIMIT_API_COUNTERS  100

typedef struct ngx_http_ratelimit_api_counters_s
    ngx_http_ratelimit_api_counters_t;

/* A counter of the answer. */
typedef struct {
    ngx_http_ratelimit_api_counters_t  *all;
    ngx_ratelimit_rule_t               *rule;
    ngx_str_t                           location_tier;
    ngx_ratelimit_subject_t             subject;
    const ngx_ratelimit_override_t     *override;
    ngx_ratelimit_limit_t               limit;
    const char                         *unknown;   /* that says its limit;
                                                      NULL: it is known */
    ngx_ratelimit_inspect_t             inspect;
    unsigned                            started:1; /* inspect */
} ngx_http_ratelimit_api_counter_t;

/* In the request's pool. */
struct ngx_http_ratelimit_api_counters_s {
    ngx_http_ratelimit_api_t           *api;
    ngx_ratelimit_policy_t             *policy;    /* in use by this */
    ngx_str_t                           rule_id;   /* empty: all rules */
    ngx_uint_t                          nparts;
    ngx_str_t                           parts[NGX_RATELIMIT_MAX_PARTS];
    ngx_str_t                           key;       /* the parts, joined */
    ngx_str_t                           tier;      /* as the query names it */
    unsigned                            tiered:1;  /* it does */
    ngx_uint_t                          ncounters;
    ngx_http_ratelimit_api_counter_t   *counters;
    ngx_uint_t                          more;      /* that are not there */
    ngx_uint_t                          pending;   /* answers of Redis */
};

static ngx_int_t ngx_http_ratelimit_api_counters_arguments(
    ngx_http_ratelimit_api_counters_t *all);
static ngx_int_t ngx_http_ratelimit_api_counters_key(
    ngx_http_ratelimit_api_counters_t *all);
static ngx_int_t ngx_http_ratelimit_api_counters_rules(
    ngx_http_ratelimit_api_counters_t *all);
static void ngx_http_ratelimit_api_counters_add(
    ngx_http_ratelimit_api_counters_t *all, ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_http_ratelimit_api_counters_look(
    ngx_http_ratelimit_api_counters_t *all);
static ngx_int_t ngx_http_ratelimit_api_counter_unlimited(
    ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_tier(
    ngx_http_ratelimit_api_counter_t *counter);
static void ngx_http_ratelimit_api_counter_variable(ngx_http_request_t *r,
    const ngx_str_t *text, const ngx_str_t *value);
static void ngx_http_ratelimit_api_counter_limit(
    ngx_http_ratelimit_api_counter_t *counter);
static ngx_str_t *ngx_http_ratelimit_api_counter_api_key(
    ngx_http_ratelimit_api_counter_t *counter);
static void ngx_http_ratelimit_api_counters_forget(void *data);
static void ngx_http_ratelimit_api_counters_handler(void *data);
static ngx_int_t ngx_http_ratelimit_api_counters_looked(
    ngx_http_ratelimit_api_t *api);
static json_t *ngx_http_ratelimit_api_counter_json(
    ngx_http_ratelimit_api_counter_t *counter);
static ngx_int_t ngx_http_ratelimit_api_counter_delete(
    ngx_http_ratelimit_api_counters_t *all);
static ngx_int_t ngx_http_ratelimit_api_counter_log(
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

#define ngx_http_ratelimit_api_counter_first(api)                             \
    (((ngx_http_ratelimit_api_counters_t *) (api)->data)->counters)

static const char  ngx_http_ratelimit_api_by_variable[] = "limit";
static const char  ngx_http_ratelimit_api_by_location[] = "tier";


ngx_int_t
ngx_http_ratelimit_api_counters(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t                           rc;
    ngx_http_ratelimit_api_counters_t  *all;

    all = ngx_pcalloc(api->request->pool,
                      sizeof(ngx_http_ratelimit_api_counters_t));
    if (all == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all->api = api;
    all->policy = api->conf->limiter->policy;

    rc = ngx_http_ratelimit_api_counters_arguments(all);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_ratelimit_api_counters_key(all);
    }

    if (rc == NGX_DECLINED) {
        rc = ngx_http_ratelimit_api_counters_rules(all);
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_ratelimit_policy_use(all->policy);
    api->forget = ngx_http_ratelimit_api_counters_forget;
    api->data = all;

    return (api->request->method == NGX_HTTP_DELETE)
           ? ngx_http_ratelimit_api_counter_delete(all)
           : ngx_http_ratelimit_api_counters_look(all);
}


static void
ngx_http_ratelimit_api_counters_forget(void *data)
{
    ngx_http_ratelimit_api_counters_t *all = data;

    ngx_uint_t  i;

    for (i = 0; i < all->ncounters; i++) {
        if (all->counters[i].started) {
            ngx_ratelimit_inspect_end(&all->counters[i].inspect);
        }
    }

    ngx_ratelimit_policy_release(all->policy);
}


/* Reads the query. NGX_DECLINED, or it is answered, here and below. */
static ngx_int_t
ngx_http_ratelimit_api_counters_arguments(
    ngx_http_ratelimit_api_counters_t *all)
{
    u_char                    *p, *next, *last, *dst, *src;
    ngx_str_t                 *text;
    ngx_http_ratelimit_api_t  *api;

    api = all->api;

    p = api->request->args.len ? api->request->args.data : (u_char *) "";
    last = p + api->request->args.len;

    for ( /* void */ ; p < last; p = next + 1) {

        next = ngx_strlchr(p, last, '&');
        next = next ? next : last;

        if (next - p >= 5 && ngx_strncmp(p, "rule=", 5) == 0) {
            text = &all->rule_id;
            src = p + 5;

        } else if (next - p >= 4 && ngx_strncmp(p, "key=", 4) == 0
                   && all->nparts < NGX_RATELIMIT_MAX_PARTS)
        {
            text = &all->parts[all->nparts++];
            src = p + 4;

        } else if (next - p >= 5 && ngx_strncmp(p, "tier=", 5) == 0) {
            text = &all->tier;
            src = p + 5;
            all->tiered = 1;

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

    if (all->nparts
        && (all->rule_id.len || api->request->method != NGX_HTTP_DELETE))
    {
        return NGX_DECLINED;
    }

    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                          "invalid", "expected \"key=<value>\" "
                                          "of each part of the rule's key, "
                                          "and \"rule=<id>\" for one counter");
}


/* The parts as a request's key has them. */
static ngx_int_t
ngx_http_ratelimit_api_counters_key(ngx_http_ratelimit_api_counters_t *all)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;

    len = all->nparts;

    for (i = 0; i < all->nparts; i++) {
        len += all->parts[i].len;
    }

    p = ngx_pnalloc(all->api->request->pool, len);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all->key.data = p;

    for (i = 0; i < all->nparts; i++) {

        if (i) {
            *p++ = NGX_RATELIMIT_PART_END;
        }

        p = ngx_cpymem(p, all->parts[i].data, all->parts[i].len);
    }

    all->key.len = p - all->key.data;

    if (all->key.len == 0) {
        return ngx_http_ratelimit_api_problem(all->api, NGX_HTTP_BAD_REQUEST,
                                              "invalid", "an empty key is "
                                              "not counted");
    }

    return NGX_DECLINED;
}


/* The rule of that id; or all whose key has so many parts. */
static ngx_int_t
ngx_http_ratelimit_api_counters_rules(ngx_http_ratelimit_api_counters_t *all)
{
    ngx_uint_t                  i, n, max;
    ngx_ratelimit_rule_t      **rules;
    ngx_http_ratelimit_api_t   *api;

    api = all->api;
    rules = all->policy->rules.elts;
    max = all->rule_id.len ? 1 : NGX_HTTP_RATELIMIT_API_COUNTERS;

    all->counters = ngx_pcalloc(api->request->pool,
                                ngx_min(max, all->policy->rules.nelts)
                                * sizeof(ngx_http_ratelimit_api_counter_t));
    if (all->counters == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (i = 0; i < all->policy->rules.nelts; i++) {

        n = rules[i]->nparts ? rules[i]->nparts : 1;

        if (all->rule_id.len) {

            if (!ngx_ratelimit_equal(&rules[i]->id, &all->rule_id)) {
                continue;
            }

            if (n != all->nparts) {
                return ngx_http_ratelimit_api_problem(api,
                           NGX_HTTP_BAD_REQUEST, "invalid",
                           "expected \"key=<value>\" %ui time(s): the key of "
                           "the rule has so many parts", n);
            }

        } else if (n != all->nparts || rules[i]->skipped) {
            continue;
        }

        if (all->ncounters == max) {
            all->more++;
            continue;
        }

        ngx_http_ratelimit_api_counters_add(all, rules[i]);
    }

    if (all->rule_id.len && all->ncounters == 0) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_FOUND,
                                              "not-found",
                                              "there is no such rule");
    }

    return NGX_DECLINED;
}


static void
ngx_http_ratelimit_api_counters_add(ngx_http_ratelimit_api_counters_t *all,
    ngx_ratelimit_rule_t *rule)
{
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = &all->counters[all->ncounters++];

    counter->all = all;
    counter->rule = rule;
    counter->location_tier = all->tier;

    counter->inspect.limiter = all->api->conf->limiter;
    counter->inspect.rule = rule;
    counter->inspect.key = all->key;
    counter->inspect.pool = all->api->request->pool;
    counter->inspect.handler = ngx_http_ratelimit_api_counters_handler;
    counter->inspect.data = all;
}


/* A local counter has answered when this returns. */
static ngx_int_t
ngx_http_ratelimit_api_counters_look(ngx_http_ratelimit_api_counters_t *all)
{
    ngx_int_t                          rc;
    ngx_uint_t                         i;
    ngx_http_ratelimit_api_counter_t  *counter;

    all->api->next = ngx_http_ratelimit_api_counters_looked;

    for (i = 0; i < all->ncounters; i++) {
        counter = &all->counters[i];

        if (ngx_http_ratelimit_api_counter_tier(counter) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        ngx_http_ratelimit_api_counter_limit(counter);

        if (counter->unknown) {

            if (all->rule_id.len) {
                return ngx_http_ratelimit_api_counter_unlimited(counter);
            }

            continue;
        }

        counter->inspect.limit = &counter->limit;
        counter->started = 1;

        rc = ngx_ratelimit_inspect_look(&counter->inspect);

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        all->pending += (rc == NGX_AGAIN);
    }

    return all->pending ? NGX_BUSY
                        : ngx_http_ratelimit_api_counters_looked(all->api);
}


/* Only a request tells the limit, or its location does. */
static ngx_int_t
ngx_http_ratelimit_api_counter_unlimited(
    ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_http_ratelimit_api_t  *api;

    api = counter->all->api;

    if (counter->unknown == ngx_http_ratelimit_api_by_variable) {
        return ngx_http_ratelimit_api_problem(api, 422, "invalid",
                   "the limit of rule \"%V\" comes from a variable: ask "
                   "with a request, by \"ratelimit_explain\"",
                   &counter->rule->id);
    }

    return ngx_http_ratelimit_api_problem(api, 422, "invalid",
               "\"ratelimit_tier\" differs between the locations of rule "
               "\"%V\": name it with \"tier=<tier>\", or ask with a request, "
               "by \"ratelimit_explain\"", &counter->rule->id);
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

    r = counter->all->api->request;
    zone = ngx_queue_data(counter->all->api->conf->limiter,
                          ngx_http_ratelimit_zone_t, limiter);

    if (counter->all->tiered || zone->tier == NULL || zone->tiers) {
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

    for (i = 0; i < counter->all->nparts; i++) {
        ngx_http_ratelimit_api_counter_variable(r,
                          counter->rule->nparts ? &counter->rule->parts[i]
                                                : &counter->rule->key,
                          &counter->all->parts[i]);
    }

    rc = ngx_http_ratelimit_value_get(r, zone->tier, &counter->location_tier);

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
 * said of the API key, and by what is for a time. Or sets counter->unknown.
 */
static void
ngx_http_ratelimit_api_counter_limit(ngx_http_ratelimit_api_counter_t *counter)
{
    ngx_str_t                        *api_key;
    ngx_ratelimit_rule_t             *rule;
    ngx_ratelimit_limit_t             limit;
    ngx_ratelimit_subject_t          *subject;
    ngx_http_ratelimit_zone_t        *zone;
    const ngx_ratelimit_spec_t       *spec;
    const ngx_ratelimit_override_t   *override;
    const ngx_ratelimit_allowance_t  *allowance;

    rule = counter->rule;
    zone = ngx_queue_data(counter->all->api->conf->limiter,
                          ngx_http_ratelimit_zone_t, limiter);
    subject = &counter->subject;
    subject->log = counter->all->api->request->connection->log;

    api_key = ngx_http_ratelimit_api_counter_api_key(counter);

    if (api_key) {
        subject->api_key = *api_key;
    }

    ngx_ratelimit_subject_digest(subject);
    ngx_ratelimit_subject_tier(subject, counter->all->policy,
                               &counter->location_tier);

    allowance = ngx_ratelimit_rule_allowance(rule, subject, NULL);

    if (allowance == NULL && rule->ntiers && subject->tier.len == 0
        && zone->tiers && !counter->all->tiered)
    {
        counter->unknown = ngx_http_ratelimit_api_by_location;
        return;
    }

    if (allowance) {
        spec = &allowance->spec;
        counter->limit = allowance->limit;

    } else if (!rule->dynamic) {
        spec = &rule->spec;
        counter->limit = rule->limit;

    } else {
        counter->unknown = ngx_http_ratelimit_api_by_variable;
        return;
    }

    if (rule->shares) {
        return;
    }

    override = ngx_ratelimit_policy_override(counter->all->policy, rule,
                                             subject, &counter->inspect.key,
                                             ngx_time());

    if (override
        && ngx_ratelimit_override_limit(override, spec, &limit) == NULL)
    {
        counter->limit = limit;
        counter->override = override;
    }
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
        return ngx_ratelimit_equal(&rule->key, &name)
               ? &counter->all->parts[0] : NULL;
    }

    for (i = 0; i < rule->nparts; i++) {
        if (ngx_ratelimit_equal(&rule->parts[i], &name)) {
            return &counter->all->parts[i];
        }
    }

    return NULL;
}


static void
ngx_http_ratelimit_api_counters_handler(void *data)
{
    ngx_http_ratelimit_api_counters_t *all = data;

    if (--all->pending == 0) {
        ngx_http_ratelimit_api_wake(all->api);
    }
}


static ngx_int_t
ngx_http_ratelimit_api_counters_looked(ngx_http_ratelimit_api_t *api)
{
    json_t                             *array;
    ngx_uint_t                          i;
    ngx_http_ratelimit_api_counter_t   *counters;
    ngx_http_ratelimit_api_counters_t  *all;

    all = api->data;
    counters = all->counters;

    if (all->rule_id.len) {

        if (counters[0].inspect.status != NGX_RATELIMIT_REDIS_OK) {
            return ngx_http_ratelimit_api_counter_failed(api);
        }

        return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
                           ngx_http_ratelimit_api_counter_json(&counters[0]));
    }

    array = json_array();

    for (i = 0; i < all->ncounters; i++) {
        (void) json_array_append_new(array,
                           ngx_http_ratelimit_api_counter_json(&counters[i]));
    }

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
                                       json_pack("{s:o, s:i}",
                                                 "counters", array,
                                                 "more", (int) all->more));
}


static json_t *
ngx_http_ratelimit_api_counter_json(ngx_http_ratelimit_api_counter_t *counter)
{
    json_t     *json;
    ngx_str_t  *tier;

    tier = &counter->subject.tier;
    json = json_pack("{s:o}", "rule",
                     ngx_http_ratelimit_json_text(&counter->rule->id));

    if (counter->unknown) {
        (void) json_object_set_new(json, "unknown",
                                   json_string(counter->unknown));
        return json;
    }

    ngx_http_ratelimit_json_counter(json, &counter->inspect);

    (void) json_object_set_new(json, "tier",
                               tier->len ? ngx_http_ratelimit_json_text(tier)
                                         : json_null());
    (void) json_object_set_new(json, "override",
                               counter->override
                               ? ngx_http_ratelimit_json_text(
                                                       &counter->override->id)
                               : json_null());

    return json;
}


static ngx_int_t
ngx_http_ratelimit_api_counter_delete(ngx_http_ratelimit_api_counters_t *all)
{
    ngx_http_ratelimit_api_t  *api;

    api = all->api;

    if (ngx_http_ratelimit_api_counter_log(api) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    api->next = ngx_http_ratelimit_api_counter_reset;

    all->counters[0].started = 1;

    switch (ngx_ratelimit_inspect_reset(&all->counters[0].inspect)) {

    case NGX_OK:
        return ngx_http_ratelimit_api_counter_reset(api);

    case NGX_AGAIN:
        all->pending = 1;
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


/* It is fresh; other nodes have to forget what they know of it. */
static ngx_int_t
ngx_http_ratelimit_api_counter_reset(ngx_http_ratelimit_api_t *api)
{
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = ngx_http_ratelimit_api_counter_first(api);

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
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = ngx_http_ratelimit_api_counter_first(api);

    if (api->status != NGX_RATELIMIT_SYNC_OK) {
        return counter->inspect.done
               ? ngx_http_ratelimit_api_counter_unknown(api)
               : ngx_http_ratelimit_api_failed(api);
    }

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
                             json_pack("{s:o, s:b}", "rule",
                             ngx_http_ratelimit_json_text(&counter->rule->id),
                             "reset", 1));
}


static ngx_int_t
ngx_http_ratelimit_api_counter_failed(ngx_http_ratelimit_api_t *api)
{
    ngx_http_ratelimit_api_counter_t  *counter;

    counter = ngx_http_ratelimit_api_counter_first(api);

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

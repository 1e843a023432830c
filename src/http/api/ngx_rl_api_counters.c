/*
 * "/counters?rule=<id>&key=<value>" is one counter. GET shows its tokens and
 * takes none. PATCH gives tokens back or sets what is used, DELETE resets it,
 * both on all gateways. "/counters?key=<value>" shows the counters that all
 * rules of the zone have for a key.
 */

#include "ngx_rl_api_counters.h"

#include <jansson.h>

/* counters in one answer */
#define NGX_RL_API_COUNTERS  100

#define ngx_rl_api_counter_first(api)                                         \
    (((ngx_rl_api_counters_t *) (api)->data)->counters)

/* of a rule's key: "$ratelimit_api_key" */
#define ngx_rl_api_part(rule, i)                                              \
    ((rule)->nparts ? &(rule)->parts[i] : &(rule)->key)

static const char  ngx_rl_api_by_variable[] = "limit";
static const char  ngx_rl_api_by_location[] = "tier";


/* NGX_DECLINED, or it is answered, here and below. */
static ngx_int_t
ngx_rl_api_counters_key(ngx_rl_api_counters_t *all)
{
    ngx_uint_t          i;
    ngx_rl_api_args_t  *args;

    args = &all->api->args;

    if (args->nkeys == 0 || (!all->one && ngx_rl_api_writes(all->api))) {
        return ngx_rl_api_problem(all->api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected \"key=<value>\" of each part of the "
                   "rule's key, and \"rule=<id>\" for one counter");
    }

    for (i = 0; i < args->nkeys; i++) {
        if (ngx_rl_policy_hashed(&args->keys[i])) {
            return ngx_rl_api_problem(all->api, NGX_HTTP_BAD_REQUEST, "invalid",
                "expected the key as clients send it: a counter is not found "
                "by the hash of its key");
        }
    }

    if (ngx_rl_api_query_key(all->api, &all->key) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (all->key.len == 0) {
        return ngx_rl_api_problem(all->api, NGX_HTTP_BAD_REQUEST, "invalid",
                                  "an empty key is not counted");
    }

    if (args->nkeys == 1
        && ngx_rl_api_query_address(all->api, &all->key, &all->address)
           == NGX_ERROR)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DECLINED;
}


static void
ngx_rl_api_counters_handler(void *data)
{
    ngx_rl_api_counters_t *all = data;

    if (--all->pending == 0) {
        ngx_rl_api_wake(all->api, &ngx_posted_events);
    }
}


/* The rule of that id; or all whose key has so many parts. */
static ngx_int_t
ngx_rl_api_counters_rules(ngx_rl_api_counters_t *all)
{
    ngx_uint_t             i, n, max, network;
    ngx_rl_rule_t        **rules;
    ngx_rl_api_t          *api;
    ngx_rl_api_counter_t  *counter;

    static const ngx_str_t  address = ngx_string("$binary_remote_addr");

    api = all->api;
    rules = all->policy->rules.elts;
    network = api->conf->limiter->new_keys && ngx_rl_key_is_network(&all->key);
    max = all->one ? 1 : NGX_RL_API_COUNTERS;
    max = ngx_min(max, all->policy->rules.nelts);

    all->counters = ngx_pcalloc(api->request->pool,
                                max * sizeof(ngx_rl_api_counter_t));
    if (all->counters == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (i = 0; i < all->policy->rules.nelts; i++) {

        n = network ? 1 : ngx_max(rules[i]->nparts, 1);

        if (all->one) {

            if (!ngx_rl_equal(&rules[i]->id, &api->args.rule)) {
                continue;
            }

            if (n != api->args.nkeys) {
                return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
                    "expected \"key=<value>\" %ui time(s): the key of the rule "
                    "has so many parts", n);
            }

        } else if (n != api->args.nkeys || rules[i]->skipped) {
            continue;
        }

        if (all->ncounters == max) {
            all->more++;
            continue;
        }

        counter = &all->counters[all->ncounters++];

        counter->rule = rules[i];
        counter->tier = api->args.tier;

        counter->inspect.limiter = api->conf->limiter;
        counter->inspect.rule = rules[i];
        counter->inspect.key = (all->address.len
                                && ngx_rl_equal(&rules[i]->key, &address))
                               ? all->address : all->key;
        counter->inspect.pool = api->request->pool;
        counter->inspect.handler = ngx_rl_api_counters_handler;
        counter->inspect.data = all;
    }

    if (all->one && all->ncounters == 0) {
        return ngx_rl_api_problem(api, NGX_HTTP_NOT_FOUND, "not-found",
                                  "there is no such rule");
    }

    return NGX_DECLINED;
}


static void
ngx_rl_api_counters_forget(void *data)
{
    ngx_rl_api_counters_t *all = data;

    ngx_uint_t  i;

    /* it went before the answer came */

    ngx_rl_api_counter_log(all, 0);

    for (i = 0; i < all->ncounters; i++) {
        ngx_rl_inspect_end(&all->counters[i].inspect);
    }

    ngx_rl_policy_release(all->policy);
}


/* "$name" or "${name}" has this value, if anything reads it by its index. */
static void
ngx_rl_api_counter_variable(ngx_http_request_t *r, const ngx_str_t *text,
    const ngx_str_t *value)
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
 * If the query does not name the tier, the counter gets the tier that a
 * location would give a request with this key. The variables of the key have
 * its values, all others are those of the request that asks.
 */
static ngx_int_t
ngx_rl_api_counter_tier(ngx_rl_api_counters_t *all,
    ngx_rl_api_counter_t *counter)
{
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    ngx_http_request_t         *r;
    ngx_rl_zone_conf_t         *zone;
    ngx_http_variable_value_t  *variables, *own;
    ngx_http_core_main_conf_t  *cmcf;

    r = all->api->request;
    zone = ngx_queue_data(all->api->conf->limiter, ngx_rl_zone_conf_t, limiter);

    if (all->api->args.tier.data || zone->tier == NULL || zone->tiers) {
        return NGX_OK;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    own = ngx_pcalloc(r->pool, cmcf->variables.nelts
                               * sizeof(ngx_http_variable_value_t));
    if (own == NULL) {
        return NGX_ERROR;
    }

    variables = r->variables;
    r->variables = own;

    for (i = 0; i < all->api->args.nkeys; i++) {
        ngx_rl_api_counter_variable(r, ngx_rl_api_part(counter->rule, i),
                                    &all->api->args.keys[i]);
    }

    rc = ngx_rl_value_get(r, zone->tier, &counter->tier);

    r->variables = variables;

    return rc;
}


static ngx_uint_t
ngx_rl_api_is_address(const ngx_str_t *variable)
{
    static const ngx_str_t  remote = ngx_string("$remote_addr");
    static const ngx_str_t  client = ngx_string("$ratelimit_client");

    return ngx_rl_equal(variable, &remote) || ngx_rl_equal(variable, &client);
}


/*
 * The key of another rule, if it is that of the counter or a part of it. Else
 * only a request has it.
 */
static ngx_int_t
ngx_rl_api_counter_key(void *data, ngx_rl_rule_t *rule, ngx_str_t *key)
{
    ngx_rl_api_counter_t *counter = data;

    ngx_uint_t                          i;
    const ngx_str_t                    *part;
    ngx_rl_api_counters_t  *all;

    all = counter->inspect.data;

    if (ngx_max(rule->nparts, 1) == all->api->args.nkeys
        && ngx_rl_equal(&rule->key, &counter->rule->key))
    {
        *key = counter->inspect.key;
        return NGX_OK;
    }

    ngx_str_null(key);

    if (rule->nparts > 1) {
        return NGX_OK;
    }

    part = ngx_rl_api_part(rule, 0);

    for (i = 0; i < all->api->args.nkeys; i++) {
        if (ngx_rl_equal(ngx_rl_api_part(counter->rule, i), part)) {
            *key = all->api->args.keys[i];
        }
    }

    return NGX_OK;
}


/*
 * Which list has the API key, the address or the value that the counter's key
 * has. Other values of a request may be on a list, too.
 */
static void
ngx_rl_api_counter_listed(ngx_rl_api_counters_t *all,
    ngx_rl_api_counter_t *counter)
{
    ngx_str_t         *text, key;
    ngx_uint_t         i;
    ngx_rl_rule_t    **rules;
    ngx_rl_listed_e    listed;
    ngx_rl_network_t   network;
    ngx_rl_subject_t  *subject;

    subject = &counter->subject;

    for (i = 0; i < all->api->args.nkeys; i++) {
        text = &all->api->args.keys[i];

        if (ngx_rl_api_is_address(ngx_rl_api_part(counter->rule, i))
            && ngx_rl_network_parse(text->data, text->len, &network) == 0)
        {
            ngx_memcpy(subject->address, network.address, NGX_RL_ADDRESS);
            subject->addressed = 1;
        }
    }

    counter->listed = ngx_rl_policy_listed(all->policy, subject, ngx_time());
    rules = all->policy->listed.elts;

    for (i = 0; i < all->policy->listed.nelts; i++) {
        (void) ngx_rl_api_counter_key(counter, rules[i], &key);

        listed = ngx_rl_policy_listed_key(all->policy, i, rules[i],
                                          &key, ngx_time());
        counter->listed = ngx_max(counter->listed, listed);
    }
}


/*
 * Sets the limit of this key: of the rule, of the tier, of the API key, or the
 * temporary one. Or sets counter->unknown.
 */
static void
ngx_rl_api_counter_limit(ngx_rl_api_counters_t *all,
    ngx_rl_api_counter_t *counter)
{
    ngx_uint_t                 i;
    ngx_rl_rule_t             *rule;
    ngx_rl_limit_t             limit;
    ngx_rl_subject_t          *subject;
    ngx_rl_zone_conf_t        *zone;
    const ngx_rl_spec_t       *spec;
    const ngx_rl_temporary_t  *temporary;
    const ngx_rl_allowance_t  *allowance;

    static const ngx_str_t  name = ngx_string("$ratelimit_api_key");

    rule = counter->rule;
    zone = ngx_queue_data(all->api->conf->limiter, ngx_rl_zone_conf_t, limiter);
    subject = &counter->subject;
    subject->log = all->api->request->connection->log;

    for (i = 0; i < all->api->args.nkeys && subject->api_key.len == 0; i++) {
        if (ngx_rl_equal(ngx_rl_api_part(rule, i), &name)) {
            subject->api_key = all->api->args.keys[i];
        }
    }

    ngx_rl_subject_digest(subject);
    ngx_rl_api_counter_listed(all, counter);
    (void) ngx_rl_subject_tier(subject, all->policy, &counter->tier,
                               ngx_rl_api_counter_key, counter);

    allowance = ngx_rl_rule_allowance(rule, subject,
                                      &counter->inspect.key, NULL);

    if (allowance == NULL && rule->ntier_limits && subject->tier.len == 0
        && zone->tiers && all->api->args.tier.data == NULL)
    {
        counter->unknown = ngx_rl_api_by_location;
        return;
    }

    if (allowance) {
        spec = &allowance->spec;
        counter->limit = allowance->limit;

    } else if (!rule->dynamic) {
        spec = &rule->spec;
        counter->limit = rule->limit;

    } else {
        counter->unknown = ngx_rl_api_by_variable;
        return;
    }

    if (rule->shares) {
        return;
    }

    temporary = ngx_rl_policy_temporary(all->policy, rule, subject,
                                        &counter->inspect.key, ngx_time());

    if (temporary && ngx_rl_temporary_limit(temporary, spec, &limit) == NULL) {
        counter->limit = limit;
        counter->temporary = temporary;
    }
}


/* Only a request tells the limit, or its location does. */
static ngx_int_t
ngx_rl_api_counter_unlimited(ngx_rl_api_t *api, ngx_rl_api_counter_t *counter)
{
    if (counter->unknown == ngx_rl_api_by_variable) {
        return ngx_rl_api_problem(api, 422, "invalid",
            "the limit of rule \"%V\" comes from a variable: ask with a "
            "request, by \"ratelimit_explain\"", &counter->rule->id);
    }

    return ngx_rl_api_problem(api, 422, "invalid",
               "\"ratelimit_tier\" differs between the locations of rule "
               "\"%V\": name it with \"tier=<tier>\", or ask with a request, "
               "by \"ratelimit_explain\"", &counter->rule->id);
}


/* NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_rl_api_counters_limits(ngx_rl_api_counters_t *all)
{
    ngx_uint_t             i;
    ngx_rl_api_counter_t  *counter;

    for (i = 0; i < all->ncounters; i++) {
        counter = &all->counters[i];

        if (ngx_rl_api_counter_tier(all, counter) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        ngx_rl_api_counter_limit(all, counter);

        if (counter->unknown == NULL) {
            counter->inspect.limit = &counter->limit;

        } else if (all->one) {
            return ngx_rl_api_counter_unlimited(all->api, counter);
        }
    }

    return NGX_DECLINED;
}


/* The tokens that are not left; null: Redis has no answer. */
static json_t *
ngx_rl_api_counter_used(const ngx_rl_inspect_t *inspect)
{
    uint32_t  remaining;

    remaining = ngx_min(inspect->answer.remaining, inspect->limit->capacity);

    return (inspect->status == NGX_RL_REDIS_OK)
           ? json_integer(inspect->limit->capacity - remaining) : json_null();
}


/*
 * A penalty of the key is no part of its counter: neither a reset nor more ends
 * it, so the answer names it.
 */
static ngx_int_t
ngx_rl_api_counter_penalty(const ngx_rl_api_counter_t *counter, json_t *json)
{
    uint64_t           until_ms;
    ngx_rl_penalty_t  *penalty;

    penalty = ngx_rl_penalty_find(counter->inspect.limiter, &counter->rule->key,
        &counter->inspect.key,
        counter->subject.addressed ? counter->subject.address : NULL,
        ngx_current_msec, &until_ms);

    return penalty ? json_object_set_new(json, "penalty",
                                  ngx_rl_json_text(&penalty->id))
                   : 0;
}


/* NULL: memory is out. */
static json_t *
ngx_rl_api_counter_json(ngx_rl_api_counter_t *counter)
{
    json_t    *json;
    ngx_int_t  rc;

    json = json_pack("{s:o}", "rule", ngx_rl_json_text(&counter->rule->id));

    if (counter->unknown) {
        rc = json_object_set_new(json, "unknown",
                                 json_string(counter->unknown));

    } else if (counter->inspect.limit == NULL) {
        rc = json_object_set_new(json, "reset", json_true());

    } else {
        if (counter->limit.unlimited) {
            rc = ngx_rl_json_limit(json, &counter->limit, NULL);

        } else {
            rc = ngx_rl_json_counter(json, &counter->inspect);
            rc |= json_object_set_new(json, "used",
                      ngx_rl_api_counter_used(&counter->inspect));
        }

        rc |= json_object_set_new(json, "tier",
                                  ngx_rl_json_name(&counter->subject.tier));
        rc |= json_object_set_new(json, "override",
            ngx_rl_json_name(counter->temporary
                             ? &counter->temporary->id : NULL));
    }

    if (counter->listed != NGX_RL_LISTED_NOT) {
        rc |= json_object_set_new(json, "list",
                 json_string((counter->listed == NGX_RL_LISTED_DENIED)
                             ? "deny" : "allow"));
    }

    rc |= ngx_rl_api_counter_penalty(counter, json);

    if (rc) {
        json_decref(json);
        return NULL;
    }

    return json;
}


/*
 * Once more is right for a reset: the counter is fresh then, or as fresh as it
 * was. It is not for tokens that come back.
 */
static ngx_int_t
ngx_rl_api_counter_answer(ngx_rl_api_t *api)
{
    ngx_uint_t              reset;
    ngx_rl_api_counter_t   *counter;
    ngx_rl_api_counters_t  *all;

    counter = ngx_rl_api_counter_first(api);
    all = counter->inspect.data;
    reset = (api->request->method == NGX_HTTP_DELETE);

    if (api->status != NGX_RL_SYNC_OK && !counter->inspect.done) {
        all->change.len = 0;
    }

    ngx_rl_api_counter_log(all, api->status == NGX_RL_SYNC_OK);

    if (api->status == NGX_RL_SYNC_OK) {
        return ngx_rl_api_json(api, NGX_HTTP_OK,
                               ngx_rl_api_counter_json(counter));
    }

    if (!counter->inspect.done) {
        return ngx_rl_api_failed(api);
    }

    return ngx_rl_api_problem(api, NGX_HTTP_GATEWAY_TIME_OUT, "unknown-outcome",
        "the counter may be %s, in part or not on all nodes: %s: %V",
        reset ? "reset" : "changed",
        reset ? "reset it once more" : "read it, and decide again", &api->said);
}


static ngx_int_t
ngx_rl_api_counter_failed(ngx_rl_api_t *api)
{
    ngx_rl_redis_status_e  status;

    status = ngx_rl_api_counter_first(api)->inspect.status;

    api->status = NGX_RL_SYNC_UNAVAILABLE;
    api->said = *ngx_rl_redis_status_name(status);

    return ngx_rl_api_counter_answer(api);
}


/* The other gateways forget what they know of its rejections. */
static ngx_int_t
ngx_rl_api_counter_changed(ngx_rl_api_t *api)
{
    if (ngx_rl_api_counter_first(api)->inspect.status != NGX_RL_REDIS_OK) {
        return ngx_rl_api_counter_failed(api);
    }

    return ngx_rl_api_call(api, NGX_RL_SYNC_RESET, 0, 0, NULL,
                           ngx_rl_api_called, ngx_rl_api_counter_answer);
}


static ngx_int_t
ngx_rl_api_counters_looked(ngx_rl_api_t *api)
{
    json_t                 *array;
    ngx_uint_t              i;
    ngx_rl_api_counter_t   *counters;
    ngx_rl_api_counters_t  *all;

    all = api->data;
    counters = all->counters;

    if (all->one) {

        if (counters[0].inspect.status != NGX_RL_REDIS_OK) {
            return ngx_rl_api_counter_failed(api);
        }

        return ngx_rl_api_json(api, NGX_HTTP_OK,
                               ngx_rl_api_counter_json(&counters[0]));
    }

    array = json_array();

    for (i = 0; i < all->ncounters; i++) {
        ngx_rl_json_append(&array, ngx_rl_api_counter_json(&counters[i]));
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
                           json_pack("{s:o, s:i}",
                                     "counters", array,
                                     "more", (int) all->more));
}


/* A local counter has answered when this returns. */
static ngx_int_t
ngx_rl_api_counters_inspect(ngx_rl_api_counters_t *all)
{
    ngx_int_t              rc;
    ngx_uint_t             i;
    ngx_rl_api_counter_t  *counter;

    all->api->next = ngx_rl_api_writes(all->api)
                     ? ngx_rl_api_counter_changed : ngx_rl_api_counters_looked;

    for (i = 0; i < all->ncounters; i++) {
        counter = &all->counters[i];

        if (counter->unknown) {
            continue;
        }

        rc = ngx_rl_inspect(&counter->inspect);

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        all->pending += (rc == NGX_AGAIN);
    }

    return all->pending ? NGX_BUSY : all->api->next(all->api);
}


ngx_int_t
ngx_rl_api_counters(ngx_rl_api_t *api)
{
    ngx_int_t               rc;
    ngx_rl_api_counters_t  *all;

    all = ngx_pcalloc(api->request->pool, sizeof(ngx_rl_api_counters_t));
    if (all == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all->api = api;
    all->policy = api->conf->limiter->policy;
    all->one = (api->args.rule.len != 0);

    rc = ngx_rl_api_counters_key(all);

    if (rc == NGX_DECLINED) {
        rc = ngx_rl_api_counters_rules(all);
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_rl_policy_use(all->policy);
    api->forget = ngx_rl_api_counters_forget;
    api->data = all;

    /* a reset needs no limit */

    if (api->request->method != NGX_HTTP_DELETE) {
        rc = ngx_rl_api_counters_limits(all);
    }

    if (rc == NGX_DECLINED && ngx_rl_api_writes(api)) {
        rc = ngx_rl_api_counter_change(all);
    }

    return (rc == NGX_DECLINED) ? ngx_rl_api_counters_inspect(all) : rc;
}

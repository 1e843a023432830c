/*
 * "/counters?rule=<id>&key=<value>" is one counter. GET shows its tokens and
 * takes none. PATCH gives tokens back or sets what is used, DELETE resets it,
 * both on all gateways. "/counters?key=<value>" shows the counters that all
 * rules of the zone have for a key.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_check.h"

#include <jansson.h>

/* counters in one answer */
#define NGX_RL_API_COUNTERS  100

/* bytes of a change: no thread reads it */
#define NGX_RL_API_AMOUNT  1024

typedef struct ngx_rl_api_counters_s  ngx_rl_api_counters_t;

/* A counter of the answer. */
typedef struct {
    ngx_rl_api_counters_t  *all;
    ngx_rl_api_client_t     client;  /* that the query names */
    ngx_rl_look_t           look;
} ngx_rl_api_counter_t;

/* In the request's pool. */
struct ngx_rl_api_counters_s {
    ngx_rl_api_t          *api;
    ngx_rl_policy_t       *policy;    /* in use by this */
    ngx_uint_t             one;       /* the query names a rule */
    ngx_str_t              key;       /* its parts, joined */
    ngx_str_t              address;   /* if it is one: in binary */
    ngx_uint_t             ncounters;
    ngx_rl_api_counter_t  *counters;
    ngx_uint_t             more;      /* that are not there */
    ngx_rl_looks_t         looks;
    ngx_rl_problems_t      problems;  /* of the change */
    ngx_str_t              change;    /* to be logged; empty: it is, or did not
                                         happen */
    ngx_rl_record_t        record;    /* of the change */
};


/* NGX_DECLINED, or it is answered, here and below. */
static ngx_int_t
ngx_rl_api_counters_key(ngx_rl_api_counters_t *all)
{
    ngx_uint_t          i;
    ngx_rl_api_args_t  *args;

    args = &all->api->args;

    if (args->nkeys == 0 || (!all->one && ngx_rl_api_writes(all->api))) {
        return ngx_rl_api_problem(all->api, NGX_HTTP_BAD_REQUEST, "invalid",
            "expected \"key=<value>\" of each part of the rule's key, and "
            "\"rule=<id>\" for one counter");
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

        counter->all = all;

        counter->look.limiter = api->conf->limiter;
        counter->look.rule = rules[i];
        counter->look.key = (all->address.len
                             && ngx_rl_equal(&rules[i]->key, &address))
                            ? all->address : all->key;

        counter->client.api = api;
        counter->client.rule = rules[i];
        counter->client.keys = api->args.keys;
        counter->client.nkeys = api->args.nkeys;
        counter->client.key = counter->look.key;
        counter->client.tier = api->args.tier;
    }

    if (all->one && all->ncounters == 0) {
        return ngx_rl_api_problem(api, NGX_HTTP_NOT_FOUND, "not-found",
                                  "there is no such rule");
    }

    return NGX_DECLINED;
}


/*
 * Logs the change, once: it is done, or, where made is 0, it may be. Its
 * request may be going.
 */
static void
ngx_rl_api_counter_log(ngx_rl_api_counters_t *all, ngx_uint_t made)
{
    u_char     buf[sizeof("perhaps a counter is set to  used") + NGX_INT_T_LEN];
    ngx_str_t  what;

    if (all->change.len == 0) {
        return;
    }

    what.data = buf;
    what.len = ngx_sprintf(buf, "%s%V", made ? "" : "perhaps ", &all->change)
               - buf;

    ngx_rl_follow_log(all->api->conf->limiter, &what, &all->record);

    all->change.len = 0;
}


static void
ngx_rl_api_counters_forget(void *data)
{
    ngx_rl_api_counters_t *all = data;

    /* it went before the answer came */

    ngx_rl_api_counter_log(all, 0);
    ngx_rl_looks_end(&all->looks);
    ngx_rl_policy_release(all->policy);
}


/*
 * Sets the limit of this key, as a request's is set. Only a request may tell
 * it, or its location.
 */
static ngx_int_t
ngx_rl_api_counter_limit(ngx_rl_api_counter_t *counter)
{
    ngx_rl_api_t         *api;
    ngx_rl_api_client_t  *client;

    api = counter->all->api;
    client = &counter->client;

    if (ngx_rl_api_client(client) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    counter->look.limit = client->allowed.limit;

    if (client->unknown == NULL || !counter->all->one) {
        return NGX_DECLINED;
    }

    return (client->unknown == ngx_rl_api_by_variable)
           ? ngx_rl_api_problem(api, 422, "invalid",
                 "the limit of rule \"%V\" comes from a variable: ask with a "
                 "request, by \"ratelimit_explain\"", &client->rule->id)
           : ngx_rl_api_problem(api, 422, "invalid",
                 "\"ratelimit_tier\" differs between the locations of rule "
                 "\"%V\": name it with \"tier=<tier>\", or ask with a request, "
                 "by \"ratelimit_explain\"", &client->rule->id);
}


/*
 * NULL: memory is out. A penalty of the key is no part of its counter: neither
 * a reset nor more ends it, so the answer names it.
 */
static json_t *
ngx_rl_api_counter_json(ngx_rl_api_counter_t *counter)
{
    json_t                    *json;
    uint32_t                   remaining;
    uint64_t                   until_ms;
    ngx_rl_look_t             *look;
    ngx_rl_penalty_t          *penalty;
    ngx_rl_api_client_t       *client;
    const ngx_rl_limit_t      *limit;
    const ngx_rl_override_t   *override;

    look = &counter->look;
    client = &counter->client;
    limit = look->limit;

    json = json_pack("{s:o}", "rule", ngx_rl_json_text(&client->rule->id));

    if (client->unknown) {
        ngx_rl_json_set(&json, "unknown", json_string(client->unknown));

    } else if (limit == NULL) {
        ngx_rl_json_set(&json, "reset", json_true());

    } else {
        if (limit->unlimited) {
            ngx_rl_json_merge(&json, ngx_rl_json_limit(limit, NULL));

        } else {
            remaining = ngx_min(look->answer.remaining, limit->capacity);

            ngx_rl_json_merge(&json, ngx_rl_json_counter(look));
            ngx_rl_json_set(&json, "used",
                (look->status == NGX_RL_REDIS_OK)
                ? json_integer(limit->capacity - remaining) : json_null());
        }

        override = client->allowed.override;

        ngx_rl_json_set(&json, "tier",
                        ngx_rl_json_name(&client->subject.tier));
        ngx_rl_json_set(&json, "override",
                        ngx_rl_json_name(override ? &override->id : NULL));
    }

    if (client->listed != NGX_RL_LISTED_NOT) {
        ngx_rl_json_set(&json, "list",
                        json_string((client->listed == NGX_RL_LISTED_DENIED)
                                    ? "deny" : "allow"));
    }

    penalty = ngx_rl_penalty_find(look->limiter, &client->rule->key,
        &look->key,
        client->subject.addressed ? client->subject.address : NULL,
        ngx_current_msec, &until_ms);

    if (penalty) {
        ngx_rl_json_set(&json, "penalty", ngx_rl_json_text(&penalty->id));
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
    ngx_rl_api_counters_t  *all;

    all = api->data;
    reset = (api->request->method == NGX_HTTP_DELETE);

    if (api->status != NGX_RL_FOLLOW_OK && !all->counters->look.done) {
        all->change.len = 0;
    }

    ngx_rl_api_counter_log(all, api->status == NGX_RL_FOLLOW_OK);

    if (api->status == NGX_RL_FOLLOW_OK) {
        return ngx_rl_api_json(api, NGX_HTTP_OK,
                               ngx_rl_api_counter_json(all->counters));
    }

    if (!all->counters->look.done) {
        return ngx_rl_api_failed(api);
    }

    return ngx_rl_api_problem(api, NGX_HTTP_GATEWAY_TIME_OUT, "unknown-outcome",
        "the counter may be %s, in part or not on all nodes: %s: %V",
        reset ? "reset" : "changed",
        reset ? "reset it once more" : "read it, and decide again", &api->said);
}


/* The others forget what they know of a changed counter's rejections. */
static ngx_int_t
ngx_rl_api_counters_looked(ngx_rl_api_t *api)
{
    json_t                 *array;
    ngx_uint_t              i;
    ngx_rl_redis_status_e   status;
    ngx_rl_api_counters_t  *all;

    all = api->data;
    status = all->one ? all->counters->look.status : NGX_RL_REDIS_OK;

    if (status != NGX_RL_REDIS_OK) {
        api->status = NGX_RL_FOLLOW_UNAVAILABLE;
        api->said = *ngx_rl_redis_status_name(status);

        return ngx_rl_api_counter_answer(api);
    }

    if (ngx_rl_api_writes(api)) {
        return ngx_rl_api_call(api, NGX_RL_FOLLOW_RESET, 0, 0, NULL,
                               ngx_rl_api_called, ngx_rl_api_counter_answer);
    }

    if (all->one) {
        return ngx_rl_api_json(api, NGX_HTTP_OK,
                               ngx_rl_api_counter_json(all->counters));
    }

    array = json_array();

    for (i = 0; i < all->ncounters; i++) {
        ngx_rl_json_append(&array, ngx_rl_api_counter_json(&all->counters[i]));
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
                           json_pack("{s:o, s:i}",
                                     "counters", array,
                                     "more", (int) all->more));
}


/* {"add": 500} or {"used": 0}. NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_rl_api_counter_amount(ngx_rl_api_counters_t *all)
{
    double          tokens;
    json_t         *json, *value;
    ngx_str_t      *text;
    ngx_uint_t      add, known, valid;
    ngx_rl_api_t   *api;
    ngx_rl_look_t  *look;

    static const ngx_str_t  whole = ngx_string("");
    static const ngx_str_t  members[] = {
        ngx_string("/used"), ngx_string("/add") };

    api = all->api;
    text = &api->body.text;
    look = &all->counters->look;

    if (look->limit->capacity == 0) {
        return ngx_rl_api_problem(api, 422, "invalid",
            "rule \"%V\" counts nothing of this key: its limit is %s; nothing "
            "is changed", &look->rule->id,
            look->limit->unlimited ? "\"unlimited\"" : "0");
    }

    if (look->limit->algorithm == NGX_RL_CONCURRENCY) {
        return ngx_rl_api_problem(api, 422, "invalid",
            "rule \"%V\" has algorithm=concurrency: it counts requests in "
            "flight, which come back when they end. Expected a rule of another "
            "algorithm; nothing is changed", &look->rule->id);
    }

    json = (text->len <= NGX_RL_API_AMOUNT)
           ? json_loadb((char *) text->data, text->len, JSON_REJECT_DUPLICATES,
                        NULL)
           : NULL;

    add = (json_object_get(json, "add") != NULL);
    value = json_object_get(json, add ? "add" : "used");
    tokens = json_number_value(value);

    known = (value && json_object_size(json) == 1);
    valid = (json_is_number(value) && tokens >= (double) add
             && tokens <= (double) look->limit->capacity
             && tokens <= (double) (uint32_t) tokens);

    json_decref(json);

    if (known && valid) {
        *(add ? &look->add : &look->used) = (uint32_t) tokens;
        look->reset = !add;
        return NGX_DECLINED;
    }

    if (ngx_rl_problems_init(&all->problems, api->request->pool) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (known) {
        ngx_rl_problem(&all->problems, NULL, &members[add],
            "must be a whole number from %ui to %uD, the limit of the counter; "
            "an override allows more", add, look->limit->capacity);
    } else {
        ngx_rl_problem(&all->problems, NULL, &whole,
                       "must be {\"add\": <tokens>} or {\"used\": <tokens>}");
    }

    api->problems = &all->problems;

    return ngx_rl_api_problem(api, 422, "invalid",
                              "the change is not valid; nothing is changed");
}


/*
 * Reads what PATCH and DELETE ask of the one counter, and what the log will
 * say; both are kept as long as the request.
 */
static ngx_int_t
ngx_rl_api_counter_change(ngx_rl_api_counters_t *all)
{
    u_char         *p;
    ngx_int_t       rc;
    ngx_rl_api_t   *api;
    ngx_rl_look_t  *look;

    api = all->api;
    look = &all->counters->look;
    api->writing = 1;

    rc = ngx_rl_api_reason(api);

    if (rc == NGX_DECLINED && api->request->method == NGX_HTTP_PATCH) {
        rc = ngx_rl_api_counter_amount(all);

    } else {
        look->reset = 1;
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    p = ngx_pnalloc(api->request->pool,
                    sizeof("a counter is set to  used") + NGX_INT_T_LEN);

    if (p == NULL || ngx_rl_api_record(api, &all->record) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all->change.data = p;

    p = look->add ? ngx_sprintf(p, "a counter gets %uD more", look->add)
        : look->used ? ngx_sprintf(p, "a counter is set to %uD used",
                                   look->used)
        : ngx_sprintf(p, "a counter is reset");

    all->change.len = p - all->change.data;

    return NGX_DECLINED;
}


static void
ngx_rl_api_counters_handler(void *data)
{
    ngx_rl_api_wake(data, &ngx_posted_events);
}


/* A local counter has answered when this returns. */
ngx_int_t
ngx_rl_api_counters(ngx_rl_api_t *api)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    ngx_rl_api_counters_t  *all;

    all = ngx_pcalloc(api->request->pool, sizeof(ngx_rl_api_counters_t));
    if (all == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all->api = api;
    all->policy = api->conf->limiter->policy;
    all->one = (api->args.rule.len != 0);
    all->looks.pool = api->request->pool;
    all->looks.handler = ngx_rl_api_counters_handler;
    all->looks.data = api;

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
    api->next = ngx_rl_api_counters_looked;

    for (i = 0; i < all->ncounters && rc == NGX_DECLINED; i++) {

        /* a reset needs no limit */

        if (api->request->method != NGX_HTTP_DELETE) {
            rc = ngx_rl_api_counter_limit(&all->counters[i]);
        }

        if (all->counters[i].client.unknown == NULL) {
            ngx_rl_look_add(&all->looks, &all->counters[i].look);
        }
    }

    if (rc == NGX_DECLINED && ngx_rl_api_writes(api)) {
        rc = ngx_rl_api_counter_change(all);
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_rl_looks_start(&all->looks);

    if (all->looks.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return (rc == NGX_AGAIN) ? NGX_BUSY : ngx_rl_api_counters_looked(api);
}

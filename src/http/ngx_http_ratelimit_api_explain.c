/*
 * "/explain": what would be done with a request that the body describes: every
 * rule that is considered, whether it applies, and why not; its limit, and what
 * is left. Nothing is taken.
 *
 * The request becomes the other one, and nginx runs its phases: so rewrites,
 * maps and locations are what they would be. At its check it becomes itself
 * again, and is answered here.
 */

#include "ngx_http_ratelimit_api_explain.h"

#include "ngx_ratelimit_document_json.h"
#include "ngx_ratelimit_inspect.h"

#include <jansson.h>

#define NGX_HTTP_RATELIMIT_API_QUESTION  (64 * 1024)  /* bytes at most */
#define NGX_HTTP_RATELIMIT_API_OTHERS    100  /* rules that do not apply, shown
                                                 of a zone */

/* A counter that the request would be counted by. */
typedef struct {
    ngx_http_ratelimit_api_t        *api;
    const ngx_ratelimit_counter_t   *counter;
    json_t                          *json;      /* borrowed: of its rule */
    ngx_ratelimit_inspect_t          inspect;
    unsigned                         started:1;
} ngx_http_ratelimit_api_look_t;

/* In the request's pool. */
typedef struct {
    ngx_http_ratelimit_api_t        *api;
    ngx_http_ratelimit_api_self_t    self;
    ngx_http_ratelimit_ctx_t        *ctx;       /* of the other; NULL: nothing
                                                   is limited */
    json_t                          *json;      /* the answer */
    json_t                          *zones;     /* borrowed: of it */
    json_t                          *zone;      /* the last one */
    ngx_ratelimit_limiter_t         *limiter;   /* of that */
    ngx_uint_t                       others;    /* of that, all */
    ngx_http_ratelimit_api_look_t   *looks;
    ngx_uint_t                       nlooks;
    ngx_uint_t                       pending;
    unsigned                         other:1;   /* self is saved */
    unsigned                         denied:1;  /* by a list */
    unsigned                         failed:1;  /* memory is out */
} ngx_http_ratelimit_api_explain_t;

static ngx_http_ratelimit_api_explain_t *ngx_http_ratelimit_api_explain_create(
    ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_explain_end(void *data);
static void ngx_http_ratelimit_api_explain_cleanup(void *data);
static ngx_int_t ngx_http_ratelimit_api_explain_question(
    ngx_http_ratelimit_api_explain_t *explain);
static ngx_int_t ngx_http_ratelimit_api_explain_run(
    ngx_http_ratelimit_api_explain_t *explain);
static ngx_int_t ngx_http_ratelimit_api_explain_asked(ngx_http_request_t *r,
    void *data);
static ngx_int_t ngx_http_ratelimit_api_explain_missed(ngx_http_request_t *r,
    void *data);
static ngx_int_t ngx_http_ratelimit_api_explain_select(
    ngx_http_ratelimit_api_explain_t *explain, ngx_http_request_t *r);
static json_t *ngx_http_ratelimit_api_explain_key(ngx_http_request_t *r);
static void ngx_http_ratelimit_api_explain_zone(
    ngx_http_ratelimit_api_explain_t *explain,
    const ngx_ratelimit_limiter_t *limiter);
static void ngx_http_ratelimit_api_explain_listed(void *data,
    const ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_listed_e listed);
static void ngx_http_ratelimit_api_explain_rule(void *data,
    const ngx_ratelimit_rule_t *rule, ngx_ratelimit_match_e match,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject);
static void ngx_http_ratelimit_api_explain_counter(
    ngx_http_ratelimit_api_explain_t *explain, json_t *json,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject);
static json_t *ngx_http_ratelimit_api_explain_from(
    const ngx_ratelimit_subject_t *subject,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_override_t **override);
static ngx_int_t ngx_http_ratelimit_api_explain_look(
    ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_explain_handler(void *data);
static void ngx_http_ratelimit_api_explain_forget(void *data);
static ngx_int_t ngx_http_ratelimit_api_explain_answer(
    ngx_http_ratelimit_api_t *api);
static json_t *ngx_http_ratelimit_api_explain_left(
    ngx_http_ratelimit_api_look_t *look);
static void ngx_http_ratelimit_api_explain_set(json_t *json, const char *name,
    json_t *value);


ngx_int_t
ngx_http_ratelimit_api_explain(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t                          rc;
    ngx_http_ratelimit_api_explain_t  *explain;

    if (api->body.len > NGX_HTTP_RATELIMIT_API_QUESTION) {
        return ngx_http_ratelimit_api_problem(api,
                   NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "too-large",
                   "a request to explain has at most %d bytes",
                   NGX_HTTP_RATELIMIT_API_QUESTION);
    }

    explain = ngx_http_ratelimit_api_explain_create(api);
    if (explain == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_ratelimit_api_explain_question(explain);

    return (rc == NGX_DECLINED) ? ngx_http_ratelimit_api_explain_run(explain)
                                : rc;
}


static ngx_http_ratelimit_api_explain_t *
ngx_http_ratelimit_api_explain_create(ngx_http_ratelimit_api_t *api)
{
    ngx_pool_cleanup_t                *cln;
    ngx_http_cleanup_t                *end;
    ngx_http_ratelimit_api_explain_t  *explain;

    end = ngx_http_cleanup_add(api->request, 0);
    if (end == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(api->request->pool,
                               sizeof(ngx_http_ratelimit_api_explain_t));
    if (cln == NULL) {
        return NULL;
    }

    explain = cln->data;
    ngx_memzero(explain, sizeof(ngx_http_ratelimit_api_explain_t));

    explain->api = api;
    cln->handler = ngx_http_ratelimit_api_explain_cleanup;

    end->handler = ngx_http_ratelimit_api_explain_end;
    end->data = explain;

    return explain;
}


/*
 * Before the request is logged, also one that got no answer: the other's
 * address is that of a client that was not there.
 */
static void
ngx_http_ratelimit_api_explain_end(void *data)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    if (explain->other) {
        ngx_http_ratelimit_api_self_address(explain->api->request,
                                            &explain->self);
    }
}


static void
ngx_http_ratelimit_api_explain_cleanup(void *data)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    json_decref(explain->json);
    explain->json = NULL;

    /* set_real_ip_from of the other has a cleanup that puts its address back */

    ngx_http_ratelimit_api_explain_end(explain);
}


/* NGX_DECLINED: the request is the other one; or it is answered, as itself. */
static ngx_int_t
ngx_http_ratelimit_api_explain_question(
    ngx_http_ratelimit_api_explain_t *explain)
{
    json_t                    *question;
    ngx_int_t                  rc;
    ngx_http_request_t        *r;
    ngx_http_ratelimit_api_t  *api;
    ngx_ratelimit_problems_t   problems;

    api = explain->api;
    r = api->request;

    if (ngx_ratelimit_problems_init(&problems, r->pool) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    question = ngx_ratelimit_document_parse(&api->body, &problems);

    if (question == NULL && problems.n == 0) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (question) {
        ngx_http_ratelimit_api_self_save(r, &explain->self);
        explain->other = 1;

        rc = ngx_http_ratelimit_api_become(r, question, &problems);
        json_decref(question);

        if (rc == NGX_OK) {
            return NGX_DECLINED;
        }

        if (ngx_http_ratelimit_api_self_restore(r, &explain->self) != NGX_OK
            || rc == NGX_ERROR)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return ngx_http_ratelimit_api_problems(api, 422, "invalid", &problems,
                                           "this describes no request");
}


/*
 * As ngx_http_internal_redirect(), but that the phases run from the first, and
 * that the location may not be an internal one: it comes from a client.
 */
static ngx_int_t
ngx_http_ratelimit_api_explain_run(ngx_http_ratelimit_api_explain_t *explain)
{
    ngx_http_request_t  *r;

    r = explain->api->request;

    ngx_memzero(r->ctx, sizeof(void *) * ngx_http_max_module);

    if (ngx_http_ratelimit_ask(r, ngx_http_ratelimit_api_explain_asked,
                               ngx_http_ratelimit_api_explain_missed, explain)
        != NGX_OK)
    {
        (void) ngx_http_ratelimit_api_self_restore(r, &explain->self);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->internal = 0;
    r->uri_changes = NGX_HTTP_MAX_URI_CHANGES + 1;
    r->main->count++;

    ngx_http_handler(r);

    return NGX_DONE;
}


/* Where the other request would be checked. */
static ngx_int_t
ngx_http_ratelimit_api_explain_asked(ngx_http_request_t *r, void *data)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    if (ngx_http_ratelimit_api_explain_select(explain, r) != NGX_OK) {
        explain->failed = 1;
    }

    if (ngx_http_ratelimit_api_self_restore(r, &explain->self) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    explain->api->data = explain;
    explain->api->next = ngx_http_ratelimit_api_explain_look;
    ngx_http_ratelimit_api_run(explain->api, NGX_DECLINED);

    return NGX_DONE;
}


/*
 * Another module has answered the other request: with its status, and its
 * body. Who reads it shall not take that for an answer of the endpoint.
 */
static ngx_int_t
ngx_http_ratelimit_api_explain_missed(ngx_http_request_t *r, void *data)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    /* no log shall name a client that was not there */

    ngx_http_ratelimit_api_self_address(r, &explain->self);

    return ngx_http_ratelimit_api_header(explain->api,
                                         "X-RateLimit-Explained", "false");
}


static ngx_int_t
ngx_http_ratelimit_api_explain_select(
    ngx_http_ratelimit_api_explain_t *explain, ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_core_srv_conf_t       *cscf;
    ngx_http_ratelimit_explain_t    handlers;
    ngx_http_ratelimit_loc_conf_t  *conf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    explain->json = json_object();
    explain->zones = json_array();

    ngx_http_ratelimit_api_explain_set(explain->json, "server",
                               ngx_http_ratelimit_api_text(&cscf->server_name));
    ngx_http_ratelimit_api_explain_set(explain->json, "location",
                                     ngx_http_ratelimit_api_text(&clcf->name));
    ngx_http_ratelimit_api_explain_set(explain->json, "path",
                                       ngx_http_ratelimit_api_text(&r->uri));
    ngx_http_ratelimit_api_explain_set(explain->json, "api_key",
                                       ngx_http_ratelimit_api_explain_key(r));
    ngx_http_ratelimit_api_explain_set(explain->json, "allowed", json_true());
    ngx_http_ratelimit_api_explain_set(explain->json, "zones", explain->zones);

    if (explain->json == NULL || explain->zones == NULL) {
        return NGX_ERROR;
    }

    if (conf->limits == NULL || conf->limits->nelts == 0 || conf->exempt) {
        return NGX_OK;
    }

    explain->ctx = ngx_http_ratelimit_ctx_create(r, conf);
    explain->looks = ngx_pcalloc(r->pool, NGX_RATELIMIT_MAX_COUNTERS
                                      * sizeof(ngx_http_ratelimit_api_look_t));

    if (explain->ctx == NULL || explain->looks == NULL) {
        return NGX_ERROR;
    }

    handlers.rule = ngx_http_ratelimit_api_explain_rule;
    handlers.listed = ngx_http_ratelimit_api_explain_listed;
    handlers.data = explain;

    rc = ngx_http_ratelimit_explain(r, conf, explain->ctx, &handlers);

    explain->denied = (rc == NGX_ABORT);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* As it may be shown: its digest. */
static json_t *
ngx_http_ratelimit_api_explain_key(ngx_http_request_t *r)
{
    u_char     buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_int_t  rc;
    ngx_str_t  key;

    rc = ngx_http_ratelimit_api_key_text(r, &key);

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED) ? json_null() : NULL;
    }

    key = ngx_ratelimit_document_key(&key, buf);

    return ngx_http_ratelimit_api_text(&key);
}


/* The zone's object, begun where it is another one than the last. */
static void
ngx_http_ratelimit_api_explain_zone(ngx_http_ratelimit_api_explain_t *explain,
    const ngx_ratelimit_limiter_t *limiter)
{
    ngx_uint_t                     i;
    ngx_http_ratelimit_limit_t   **limits;

    if (explain->limiter == limiter) {
        return;
    }

    explain->limiter = (ngx_ratelimit_limiter_t *) limiter;
    explain->others = 0;
    explain->zone = json_object();

    ngx_http_ratelimit_api_explain_set(explain->zone, "zone",
                       ngx_http_ratelimit_api_text(&limiter->zone.name));

    limits = explain->ctx->conf->limits->elts;

    for (i = 0; i < explain->ctx->conf->limits->nelts; i++) {
        if (limits[i]->limiter == limiter) {
            ngx_http_ratelimit_api_explain_set(explain->zone, "version",
                        json_integer(explain->ctx->policies[i]->version));
            break;
        }
    }

    ngx_http_ratelimit_api_explain_set(explain->zone, "list", json_null());
    ngx_http_ratelimit_api_explain_set(explain->zone, "tier", json_null());
    ngx_http_ratelimit_api_explain_set(explain->zone, "rules", json_array());
    ngx_http_ratelimit_api_explain_set(explain->zone, "more",
                                       json_integer(0));

    if (json_array_append_new(explain->zones, explain->zone) != 0) {
        explain->zone = NULL;
        explain->failed = 1;
    }
}


static void
ngx_http_ratelimit_api_explain_listed(void *data,
    const ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_listed_e listed)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    ngx_http_ratelimit_api_explain_zone(explain, limiter);
    ngx_http_ratelimit_api_explain_set(explain->zone, "list",
                      json_string(listed == NGX_RATELIMIT_LISTED_DENIED
                                  ? "blacklist" : "whitelist"));
}


static void
ngx_http_ratelimit_api_explain_rule(void *data,
    const ngx_ratelimit_rule_t *rule, ngx_ratelimit_match_e match,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    json_t  *json;

    ngx_http_ratelimit_api_explain_zone(explain, rule->policy->limiter);


    if (subject->tier.len) {
        ngx_http_ratelimit_api_explain_set(explain->zone, "tier",
                                  ngx_http_ratelimit_api_text(&subject->tier));
    }

    if (counter == NULL
        && ++explain->others > NGX_HTTP_RATELIMIT_API_OTHERS)
    {
        ngx_http_ratelimit_api_explain_set(explain->zone, "more",
                 json_integer(explain->others
                              - NGX_HTTP_RATELIMIT_API_OTHERS));
        return;
    }

    json = json_object();

    ngx_http_ratelimit_api_explain_set(json, "rule",
                                       ngx_http_ratelimit_api_text(&rule->id));
    ngx_http_ratelimit_api_explain_set(json, "fixed",
                         json_boolean(rule->number < rule->policy->nfixed));
    ngx_http_ratelimit_api_explain_set(json, "applies",
                                       json_boolean(counter != NULL));

    if (counter) {
        ngx_http_ratelimit_api_explain_counter(explain, json, counter,
                                               subject);

    } else {
        ngx_http_ratelimit_api_explain_set(json, "because",
                             json_string(ngx_ratelimit_match_name(match)));
    }

    if (json_array_append_new(json_object_get(explain->zone, "rules"), json)
        != 0)
    {
        explain->failed = 1;
    }
}


static void
ngx_http_ratelimit_api_explain_counter(
    ngx_http_ratelimit_api_explain_t *explain, json_t *json,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject)
{
    const ngx_ratelimit_limit_t     *limit;
    ngx_http_ratelimit_api_look_t   *look;
    const ngx_ratelimit_override_t  *override;

    look = &explain->looks[explain->nlooks++];
    look->api = explain->api;
    look->counter = counter;
    look->json = json;

    limit = counter->limit;

    ngx_http_ratelimit_api_explain_set(json, "algorithm",
                 json_string(ngx_ratelimit_algorithm_name(limit->algorithm)));
    ngx_http_ratelimit_api_explain_set(json, "limit",
                                       json_integer(limit->capacity));

    if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        ngx_http_ratelimit_api_explain_set(json, "window_seconds",
                                   json_real((double) limit->window_us / 1e6));
    }

    ngx_http_ratelimit_api_explain_set(json, "limit_from",
                       ngx_http_ratelimit_api_explain_from(subject, counter,
                                                           &override));
    ngx_http_ratelimit_api_explain_set(json, "override",
                         override ? ngx_http_ratelimit_api_text(&override->id)
                                  : json_null());
    ngx_http_ratelimit_api_explain_set(json, "cost",
                                       json_integer(counter->cost));
    ngx_http_ratelimit_api_explain_set(json, "dry_run",
                                       json_boolean(counter->dry_run));
}


/* Whose limit it is; what is on top of that for a time, or NULL. */
static json_t *
ngx_http_ratelimit_api_explain_from(const ngx_ratelimit_subject_t *subject,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_override_t **override)
{
    const ngx_ratelimit_rule_t       *rule;
    ngx_ratelimit_origin_e            origin;
    const ngx_ratelimit_allowance_t  *allowance;

    rule = counter->rule;
    origin = NGX_RATELIMIT_ORIGIN_RULE;

    allowance = ngx_ratelimit_rule_allowance(rule, subject, &origin);

    *override = ngx_ratelimit_policy_override(rule->policy, rule, subject,
                                              &counter->client->key,
                                              ngx_time());

    /* one that does not fit the rule is on top of nothing */

    if (counter->limit == (allowance ? &allowance->limit : &rule->limit)) {
        *override = NULL;
    }

    if (allowance == NULL) {
        return json_string(rule->dynamic ? "variable" : "rule");
    }

    return json_string(origin == NGX_RATELIMIT_ORIGIN_TIER ? "tier" : "key");
}


/* The request is itself again. */
static ngx_int_t
ngx_http_ratelimit_api_explain_look(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t                          rc;
    ngx_uint_t                         i;
    ngx_ratelimit_inspect_t           *inspect;
    ngx_http_ratelimit_api_look_t     *look;
    ngx_http_ratelimit_api_explain_t  *explain;

    explain = api->data;

    if (explain->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    api->forget = ngx_http_ratelimit_api_explain_forget;
    api->next = ngx_http_ratelimit_api_explain_answer;

    for (i = 0; i < explain->nlooks; i++) {
        look = &explain->looks[i];
        inspect = &look->inspect;

        inspect->limiter = look->counter->client->limiter;
        inspect->rule = look->counter->rule;
        inspect->limit = look->counter->limit;
        inspect->key = look->counter->client->key;
        inspect->pool = api->request->pool;
        inspect->handler = ngx_http_ratelimit_api_explain_handler;
        inspect->data = look;

        look->started = 1;
        explain->pending++;

        rc = ngx_ratelimit_inspect_look(inspect);

        if (rc != NGX_AGAIN) {
            explain->pending--;
        }

        if (rc == NGX_ERROR) {
            inspect->status = NGX_RATELIMIT_REDIS_UNREACHABLE;
        }
    }

    return explain->pending ? NGX_BUSY
                            : ngx_http_ratelimit_api_explain_answer(api);
}


static void
ngx_http_ratelimit_api_explain_handler(void *data)
{
    ngx_http_ratelimit_api_look_t *look = data;

    ngx_http_ratelimit_api_explain_t  *explain;

    explain = look->api->data;

    if (--explain->pending == 0) {
        ngx_http_ratelimit_api_wake(look->api);
    }
}


static void
ngx_http_ratelimit_api_explain_forget(void *data)
{
    ngx_http_ratelimit_api_explain_t *explain = data;

    ngx_uint_t  i;

    for (i = 0; i < explain->nlooks; i++) {
        if (explain->looks[i].started) {
            ngx_ratelimit_inspect_end(&explain->looks[i].inspect);
        }
    }
}


static ngx_int_t
ngx_http_ratelimit_api_explain_answer(ngx_http_ratelimit_api_t *api)
{
    json_t                            *json, *passes, *allowed;
    ngx_uint_t                         i;
    ngx_http_ratelimit_api_look_t     *look;
    ngx_http_ratelimit_api_explain_t  *explain;

    explain = api->data;
    allowed = json_true();

    for (i = 0; i < explain->nlooks; i++) {
        look = &explain->looks[i];
        passes = ngx_http_ratelimit_api_explain_left(look);

        if (look->counter->dry_run || json_is_true(passes)) {
            continue;
        }

        /* one that refuses outweighs those that are not known */

        if (!json_is_false(allowed)) {
            allowed = passes;
        }
    }

    if (explain->denied) {
        allowed = json_false();
    }

    ngx_http_ratelimit_api_explain_set(explain->json, "allowed", allowed);

    json = explain->json;
    explain->json = NULL;

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK, json);
}


/* What is left; whether the request would pass: true, false, or null. */
static json_t *
ngx_http_ratelimit_api_explain_left(ngx_http_ratelimit_api_look_t *look)
{
    u_char                     buf[NGX_HTTP_RATELIMIT_API_TIME];
    u_char                     hash[2 * sizeof(ngx_ratelimit_id_t)];
    json_t                    *json, *passes;
    uint64_t                   now_ms;
    ngx_str_t                  text;
    ngx_time_t                *now;
    ngx_ratelimit_inspect_t   *inspect;

    json = look->json;
    inspect = &look->inspect;

    /* what names the client in Redis, or on this node: a keyed hash */

    text.data = hash;
    text.len = ngx_hex_dump(hash,
                         (u_char *) ngx_ratelimit_client_hash(&inspect->client),
                            sizeof(ngx_ratelimit_id_t))
               - hash;

    ngx_http_ratelimit_api_explain_set(json, "key",
                                       ngx_http_ratelimit_api_text(&text));

    if (inspect->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_http_ratelimit_api_explain_set(json, "remaining", json_null());
        ngx_http_ratelimit_api_explain_set(json, "passes", json_null());
        ngx_http_ratelimit_api_explain_set(json, "unknown",
                        ngx_http_ratelimit_api_text(
                            ngx_ratelimit_redis_status_name(inspect->status)));
        return json_null();
    }

    ngx_http_ratelimit_api_explain_set(json, "remaining",
                                     json_integer(inspect->answer.remaining));

    if (inspect->limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        now = ngx_timeofday();
        now_ms = (uint64_t) now->sec * 1000 + now->msec;

        text.data = buf;
        text.len = ngx_http_ratelimit_api_time(buf, now_ms
                                        + (inspect->answer.reset_us + 999)
                                          / 1000)
                   - buf;

        ngx_http_ratelimit_api_explain_set(json, "reset_at",
                                           ngx_http_ratelimit_api_text(&text));
    }

    passes = json_boolean(look->counter->cost <= inspect->answer.remaining);
    ngx_http_ratelimit_api_explain_set(json, "passes", passes);

    return passes;
}


/* What memory is missing for is not there; json may be NULL then. */
static void
ngx_http_ratelimit_api_explain_set(json_t *json, const char *name,
    json_t *value)
{
    (void) json_object_set_new(json, name, value);
}

/*
 * "ratelimit_explain": in place of its check, a request with a token of this
 * location gets a JSON of the rules that match it, their limits and the tokens
 * left. Nothing is counted.
 *
 * Counters in Redis are read without blocking: the request waits as it would
 * for its check.
 */

#include "ngx_http_ratelimit_request.h"

#include "ngx_http_ratelimit_conf.h"
#include "ngx_http_ratelimit_json.h"
#include "ngx_http_ratelimit_key.h"
#include "ngx_http_ratelimit_token.h"

#include "ngx_ratelimit_document_json.h"

#include <jansson.h>

/* rules of a zone that are shown, unless more of them apply */
#define NGX_HTTP_RATELIMIT_EXPLAIN_RULES  100

/* A counter that the request would be counted by. */
typedef struct {
    ngx_http_ratelimit_explain_t    *explain;
    const ngx_ratelimit_counter_t   *counter;
    json_t                          *json;      /* borrowed: of its rule */
    ngx_ratelimit_inspect_t          inspect;
} ngx_http_ratelimit_explain_look_t;

/* In the request's pool, whose cleanup ends what is under way. */
struct ngx_http_ratelimit_explain_s {
    ngx_http_request_t                 *request;
    ngx_http_ratelimit_ctx_t           *ctx;      /* NULL: no limits here */
    json_t                             *json;     /* the answer */
    json_t                             *zones;    /* borrowed: of json */
    ngx_http_ratelimit_explain_look_t   looks[NGX_RATELIMIT_MAX_COUNTERS];
    ngx_uint_t                          nlooks;
    ngx_uint_t                          started;  /* looks */
    ngx_uint_t                          pending;  /* looks */
    unsigned                            denied:1; /* by a list */
    unsigned                            failed:1; /* memory is out */
};

static ngx_int_t ngx_http_ratelimit_explain_unlimited(ngx_http_request_t *r);
static ngx_http_ratelimit_explain_t *ngx_http_ratelimit_explain_create(
    ngx_http_request_t *r, ngx_http_ratelimit_ctx_t *ctx);
static void ngx_http_ratelimit_explain_cleanup(void *data);
static void ngx_http_ratelimit_explain_place(
    ngx_http_ratelimit_explain_t *explain);
static json_t *ngx_http_ratelimit_explain_key(ngx_http_request_t *r);
static json_t *ngx_http_ratelimit_explain_zone(
    ngx_http_ratelimit_explain_t *explain,
    const ngx_ratelimit_limiter_t *limiter);
static void ngx_http_ratelimit_explain_listed(void *data,
    const ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_listed_e listed);
static void ngx_http_ratelimit_explain_rule(void *data,
    const ngx_ratelimit_rule_t *rule, ngx_ratelimit_match_e match,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject);
static void ngx_http_ratelimit_explain_counter(
    ngx_http_ratelimit_explain_t *explain, json_t *json,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject);
static json_t *ngx_http_ratelimit_explain_from(
    const ngx_ratelimit_subject_t *subject,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_override_t **override);
static void ngx_http_ratelimit_explain_look(
    ngx_http_ratelimit_explain_t *explain);
static void ngx_http_ratelimit_explain_handler(void *data);
static json_t *ngx_http_ratelimit_explain_left(
    ngx_http_ratelimit_explain_look_t *look);
static ngx_int_t ngx_http_ratelimit_explain_send(
    ngx_http_ratelimit_explain_t *explain);
static void ngx_http_ratelimit_explain_set(
    ngx_http_ratelimit_explain_t *explain, json_t *json, const char *name,
    json_t *value);


/* ratelimit_explain token_file=<file> | off */
char *
ngx_http_ratelimit_explain_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_loc_conf_t *rlcf = conf;

    ngx_str_t  *value, file;

    if (rlcf->explain) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        rlcf->explain = ngx_array_create(cf->pool, 1,
                                         sizeof(ngx_http_ratelimit_token_t));

    } else if (ngx_http_ratelimit_parameter(&value[1], "token_file=", &file)
               && file.len)
    {
        rlcf->explain = ngx_http_ratelimit_tokens_read(cf, &file);

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_explain\" has an invalid parameter "
                           "\"%V\", expected \"token_file=<file>\" or "
                           "\"off\"", &value[1]);
    }

    return rlcf->explain ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_uint_t
ngx_http_ratelimit_explain_wanted(ngx_http_request_t *r,
    const ngx_array_t *tokens)
{
    ngx_table_elt_t                   *h;
    const ngx_http_ratelimit_token_t  *token;

    static const ngx_str_t  name = ngx_string("X-RateLimit-Explain");

    if (tokens->nelts == 0) {
        return 0;
    }

    h = ngx_http_ratelimit_find_header(&r->headers_in.headers, &name, 0);

    if (h == NULL) {
        return 0;
    }

    token = ngx_http_ratelimit_token_find(tokens, h->value.data, h->value.len);

    if (token == NULL) {
        return 0;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "request explained to \"%V\" and not passed on",
                  &token->name);

    return 1;
}


/*
 * A location without limits answers in the content phase: "try_files" may lead
 * to a location that has some.
 */
void
ngx_http_ratelimit_explain_later(ngx_http_request_t *r)
{
    r->content_handler = ngx_http_ratelimit_explain_unlimited;
}


static ngx_int_t
ngx_http_ratelimit_explain_unlimited(ngx_http_request_t *r)
{
    ngx_http_ratelimit_explain_t  *explain;

    explain = ngx_http_ratelimit_explain_create(r, NULL);

    return explain ? ngx_http_ratelimit_explain_send(explain)
                   : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


ngx_int_t
ngx_http_ratelimit_explain_start(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_http_ratelimit_report_t    report;
    ngx_http_ratelimit_explain_t  *explain;

    explain = ngx_http_ratelimit_explain_create(r, ctx);
    if (explain == NULL) {
        return NGX_ERROR;
    }

    ctx->explain = explain;

    report.rule = ngx_http_ratelimit_explain_rule;
    report.listed = ngx_http_ratelimit_explain_listed;
    report.data = explain;

    rc = ngx_http_ratelimit_select(r, ctx->conf, ctx, &report);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    explain->denied = (rc == NGX_ABORT);

    ngx_http_ratelimit_explain_look(explain);

    return explain->pending ? NGX_AGAIN : NGX_OK;
}


static ngx_http_ratelimit_explain_t *
ngx_http_ratelimit_explain_create(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    ngx_pool_cleanup_t            *cln;
    ngx_http_ratelimit_explain_t  *explain;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_ratelimit_explain_t));
    if (cln == NULL) {
        return NULL;
    }

    explain = cln->data;
    ngx_memzero(explain, sizeof(ngx_http_ratelimit_explain_t));

    explain->request = r;
    explain->ctx = ctx;

    cln->handler = ngx_http_ratelimit_explain_cleanup;

    ngx_http_ratelimit_explain_place(explain);

    return explain->json ? explain : NULL;
}


/* Runs before that of ctx, which releases the rules. */
static void
ngx_http_ratelimit_explain_cleanup(void *data)
{
    ngx_http_ratelimit_explain_t *explain = data;

    ngx_uint_t  i;

    for (i = 0; i < explain->started; i++) {
        ngx_ratelimit_inspect_end(&explain->looks[i].inspect);
    }

    json_decref(explain->json);
}


/*
 * Where the request has come to, and by which API key. If memory is out, there
 * is no json, and json_pack() has freed zones.
 */
static void
ngx_http_ratelimit_explain_place(ngx_http_ratelimit_explain_t *explain)
{
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_core_srv_conf_t  *cscf;

    r = explain->request;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

    explain->zones = json_array();
    explain->json = json_pack("{s:o, s:o, s:o, s:o, s:b, s:o}",
                     "server", ngx_http_ratelimit_json_text(&cscf->server_name),
                     "location", ngx_http_ratelimit_json_text(&clcf->name),
                     "path", ngx_http_ratelimit_json_text(&r->uri),
                     "api_key", ngx_http_ratelimit_explain_key(r),
                     "allowed", 1,
                     "zones", explain->zones);
}


/* As it may be shown: its digest. */
static json_t *
ngx_http_ratelimit_explain_key(ngx_http_request_t *r)
{
    u_char     buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_int_t  rc;
    ngx_str_t  key;

    rc = ngx_http_ratelimit_api_key_text(r, &key);

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED) ? json_null() : NULL;
    }

    key = ngx_ratelimit_document_key(&key, buf);

    return ngx_http_ratelimit_json_text(&key);
}


/* The object of the limiter's zone, which is made where it is missing. */
static json_t *
ngx_http_ratelimit_explain_zone(ngx_http_ratelimit_explain_t *explain,
    const ngx_ratelimit_limiter_t *limiter)
{
    size_t                        i;
    json_t                       *zone, *name;
    ngx_http_ratelimit_limit_t  **limits;

    json_array_foreach(explain->zones, i, zone) {
        name = json_object_get(zone, "zone");

        if (json_string_length(name) == limiter->zone.name.len
            && ngx_memcmp(json_string_value(name), limiter->zone.name.data,
                          limiter->zone.name.len)
               == 0)
        {
            return zone;
        }
    }

    limits = explain->ctx->conf->limits->elts;

    for (i = 0; limits[i]->limiter != limiter; i++) { /* void */ }

    zone = json_pack("{s:o, s:I, s:n, s:n, s:[], s:i}",
                     "zone", ngx_http_ratelimit_json_text(&limiter->zone.name),
                     "version", (json_int_t) explain->ctx->policies[i]->version,
                     "list", "tier", "rules", "more", 0);

    if (json_array_append_new(explain->zones, zone) != 0) {
        explain->failed = 1;
        return NULL;
    }

    return zone;
}


static void
ngx_http_ratelimit_explain_listed(void *data,
    const ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_listed_e listed)
{
    ngx_http_ratelimit_explain_t *explain = data;

    ngx_http_ratelimit_explain_set(explain,
                              ngx_http_ratelimit_explain_zone(explain, limiter),
                              "list",
                              json_string(listed == NGX_RATELIMIT_LISTED_DENIED
                                          ? "blacklist" : "whitelist"));
}


static void
ngx_http_ratelimit_explain_rule(void *data, const ngx_ratelimit_rule_t *rule,
    ngx_ratelimit_match_e match, const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject)
{
    ngx_http_ratelimit_explain_t *explain = data;

    json_t  *json, *zone, *rules, *more;

    zone = ngx_http_ratelimit_explain_zone(explain, rule->policy->limiter);
    rules = json_object_get(zone, "rules");

    if (subject->tier.len) {
        ngx_http_ratelimit_explain_set(explain, zone, "tier",
                                  ngx_http_ratelimit_json_text(&subject->tier));
    }

    if (counter == NULL
        && json_array_size(rules) >= NGX_HTTP_RATELIMIT_EXPLAIN_RULES)
    {
        more = json_object_get(zone, "more");
        (void) json_integer_set(more, json_integer_value(more) + 1);
        return;
    }

    json = json_pack("{s:o, s:b, s:b}",
                     "rule", ngx_http_ratelimit_json_text(&rule->id),
                     "fixed", rule->number < rule->policy->nfixed,
                     "applies", counter != NULL);

    if (counter) {
        ngx_http_ratelimit_explain_counter(explain, json, counter, subject);

    } else {
        ngx_http_ratelimit_explain_set(explain, json, "because",
                               json_string(ngx_ratelimit_match_name(match)));
    }

    if (json_array_append_new(rules, json) != 0) {
        explain->failed = 1;
    }
}


static void
ngx_http_ratelimit_explain_counter(ngx_http_ratelimit_explain_t *explain,
    json_t *json, const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_subject_t *subject)
{
    const ngx_ratelimit_override_t     *override;
    ngx_http_ratelimit_explain_look_t  *look;

    look = &explain->looks[explain->nlooks++];
    look->explain = explain;
    look->counter = counter;
    look->json = json;

    ngx_http_ratelimit_explain_set(explain, json, "limit_from",
                   ngx_http_ratelimit_explain_from(subject, counter,
                                                   &override));
    ngx_http_ratelimit_explain_set(explain, json, "override",
                             override
                             ? ngx_http_ratelimit_json_text(&override->id)
                             : json_null());
    ngx_http_ratelimit_explain_set(explain, json, "cost",
                                   json_integer(counter->cost));
    ngx_http_ratelimit_explain_set(explain, json, "dry_run",
                                   json_boolean(counter->dry_run));
}


/*
 * The origin of the limit. *override: the temporary override in force, or
 * NULL.
 */
static json_t *
ngx_http_ratelimit_explain_from(const ngx_ratelimit_subject_t *subject,
    const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_override_t **override)
{
    const ngx_ratelimit_rule_t       *rule;
    ngx_ratelimit_origin_e            origin;
    const ngx_ratelimit_allowance_t  *allowance;

    rule = counter->rule;

    allowance = ngx_ratelimit_rule_allowance(rule, subject, &origin);

    *override = ngx_ratelimit_policy_override(rule->policy, rule, subject,
                                              &counter->client->key,
                                              ngx_time());

    /* an override that does not fit the rule is not in force */

    if (counter->limit == (allowance ? &allowance->limit : &rule->limit)) {
        *override = NULL;
    }

    if (allowance == NULL) {
        return json_string(rule->dynamic ? "variable" : "rule");
    }

    return json_string(origin == NGX_RATELIMIT_ORIGIN_TIER ? "tier" : "key");
}


/* Reads every counter. A local one has answered when this returns. */
static void
ngx_http_ratelimit_explain_look(ngx_http_ratelimit_explain_t *explain)
{
    ngx_int_t                           rc;
    ngx_ratelimit_inspect_t            *inspect;
    const ngx_ratelimit_counter_t      *counter;
    ngx_http_ratelimit_explain_look_t  *look;

    while (explain->started < explain->nlooks) {
        look = &explain->looks[explain->started++];
        counter = look->counter;
        inspect = &look->inspect;

        inspect->limiter = counter->client->limiter;
        inspect->rule = counter->rule;
        inspect->limit = counter->limit;
        inspect->key = counter->client->key;
        inspect->pool = explain->request->pool;
        inspect->handler = ngx_http_ratelimit_explain_handler;
        inspect->data = explain;

        rc = ngx_ratelimit_inspect_look(inspect);

        if (rc == NGX_AGAIN) {
            explain->pending++;

        } else if (rc == NGX_ERROR) {
            inspect->status = NGX_RATELIMIT_REDIS_UNREACHABLE;
        }
    }
}


/* Redis has answered for one counter, or its time has passed. */
static void
ngx_http_ratelimit_explain_handler(void *data)
{
    ngx_http_ratelimit_explain_t *explain = data;

    ngx_ratelimit_check_t  *check;

    if (--explain->pending == 0) {
        check = &explain->ctx->check;
        check->handler(check->data);
    }
}


ngx_int_t
ngx_http_ratelimit_explain_answer(ngx_http_request_t *r,
    ngx_http_ratelimit_ctx_t *ctx)
{
    json_t                             *passes, *allowed;
    ngx_uint_t                          i;
    ngx_http_ratelimit_explain_t       *explain;
    ngx_http_ratelimit_explain_look_t  *look;

    explain = ctx->explain;
    allowed = explain->denied ? json_false() : json_true();

    for (i = 0; i < explain->nlooks; i++) {
        look = &explain->looks[i];
        passes = ngx_http_ratelimit_explain_left(look);

        /* a counter that rejects outweighs one that is not known */

        if (!look->counter->dry_run && !json_is_true(passes)
            && !json_is_false(allowed))
        {
            allowed = passes;
        }
    }

    ngx_http_ratelimit_explain_set(explain, explain->json, "allowed", allowed);

    ngx_http_finalize_request(r, ngx_http_ratelimit_explain_send(explain));

    return NGX_DONE;
}


/* What is left. Returns whether the request would pass: true, false or null. */
static json_t *
ngx_http_ratelimit_explain_left(ngx_http_ratelimit_explain_look_t *look)
{
    u_char                         hash[2 * sizeof(ngx_ratelimit_id_t)];
    json_t                        *json, *passes;
    ngx_str_t                      text;
    ngx_ratelimit_inspect_t       *inspect;
    ngx_http_ratelimit_explain_t  *explain;

    explain = look->explain;
    json = look->json;
    inspect = &look->inspect;

    /* a keyed hash, which names the client in Redis or on this gateway */

    text.data = hash;
    text.len = ngx_hex_dump(hash,
                         (u_char *) ngx_ratelimit_client_hash(&inspect->client),
                            sizeof(ngx_ratelimit_id_t))
               - hash;

    ngx_http_ratelimit_explain_set(explain, json, "key",
                                   ngx_http_ratelimit_json_text(&text));

    if (ngx_http_ratelimit_json_counter(json, inspect) != NGX_OK) {
        explain->failed = 1;
    }

    passes = (inspect->status != NGX_RATELIMIT_REDIS_OK)
             ? json_null()
             : json_boolean(look->counter->cost <= inspect->answer.remaining);

    ngx_http_ratelimit_explain_set(explain, json, "passes", passes);

    return passes;
}


/* Sends the answer. Returns what the request ends with. */
static ngx_int_t
ngx_http_ratelimit_explain_send(ngx_http_ratelimit_explain_t *explain)
{
    ngx_table_elt_t           *h;
    ngx_http_request_t        *r;
    ngx_http_complex_value_t   cv;

    static ngx_str_t  type = ngx_string("application/json");

    r = explain->request;

    ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));

    if (explain->failed
        || ngx_http_ratelimit_json_dump(r->pool, json_incref(explain->json),
                                       &cv.value)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    ngx_str_set(&h->key, "Cache-Control");
    ngx_str_set(&h->value, "no-store");

    /* a client that waits for "100 Continue" need not send its body */

    r->expect_tested = 1;

    return ngx_http_send_response(r, NGX_HTTP_OK, &type, &cv);
}


/* A member that memory is missing for fails the explanation. */
static void
ngx_http_ratelimit_explain_set(ngx_http_ratelimit_explain_t *explain,
    json_t *json, const char *name, json_t *value)
{
    if (json_object_set_new(json, name, value) != 0) {
        explain->failed = 1;
    }
}

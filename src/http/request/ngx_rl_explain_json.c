/*
 * "ratelimit_explain": in place of its check, a request with a token of this
 * location gets a JSON of the rules that match it, their limits and the tokens
 * left. Nothing is counted.
 *
 * Counters in Redis are read without blocking: the request waits as it would
 * for its check.
 */

#include "ngx_rl_request.h"

#include "ngx_rl_conf.h"
#include "ngx_rl_json.h"
#include "ngx_rl_key.h"

#include "ngx_rl_document.h"
#include "ngx_rl_limit.h"

#include <jansson.h>

/* rules of a zone that are shown, unless more of them apply */
#define NGX_RL_EXPLAIN_RULES  100

/* A counter that the request would be counted by. */
typedef struct {
    const ngx_rl_counter_t  *counter;
    json_t                  *json;  /* borrowed: of its rule */
    ngx_rl_look_t            look;
} ngx_rl_explained_t;

/* In the request's pool, whose cleanup ends what is under way. */
struct ngx_rl_explain_s {
    ngx_http_request_t  *request;
    ngx_rl_ctx_t        *ctx;       /* NULL: no limits here */
    json_t              *json;      /* the answer */
    json_t              *zones;     /* borrowed: of json */
    ngx_rl_looks_t       looks;
    ngx_rl_explained_t   counters[NGX_RL_MAX_COUNTERS];
    ngx_uint_t           ncounters;
    unsigned             denied:1;  /* by a list, a penalty */
    unsigned             failed:1;  /* memory is out */
};


/* No tokens: nothing is explained. */
static const char *
ngx_rl_explain_off(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_loc_conf_t *rlcf = target;

    rlcf->explain = ngx_array_create(cf->pool, 1, sizeof(ngx_rl_token_t));

    return rlcf->explain ? NULL : "";
}


static const ngx_rl_row_t  ngx_rl_explain_rows[] = {
    { ngx_string("token_file="), ngx_rl_row_tokens,
      offsetof(ngx_rl_loc_conf_t, explain), .expected = "a file" },
    { ngx_string("off"), ngx_rl_explain_off, .expected = "it alone" },
    { .name = ngx_null_string }
};


/* ratelimit_explain token_file=<file> | off */
char *
ngx_rl_explain_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    return rlcf->explain
           ? "is duplicate"
           : ngx_rl_rows_read(cf, ngx_rl_explain_rows, rlcf, 1,
                              "\"token_file=<file>\" or \"off\"");
}


ngx_uint_t
ngx_rl_explain_wanted(ngx_http_request_t *r, const ngx_array_t *tokens)
{
    ngx_table_elt_t       *h;
    const ngx_rl_token_t  *token;

    static const ngx_str_t  name = ngx_string("X-RateLimit-Explain");

    h = tokens->nelts
        ? ngx_rl_find_header(&r->headers_in.headers, &name) : NULL;

    token = h ? ngx_rl_token_find(tokens, h->value.data, h->value.len) : NULL;

    if (token && token->checks) {
        return 0;
    }

    if (token) {
        ngx_rl_request_log(r, NGX_RL_LOG_EXPLAINED, NGX_LOG_INFO,
            "request explained to \"%V\" and not passed on", &token->name);
    }

    return token != NULL;
}


/* Runs before that of ctx, which releases the rules. */
static void
ngx_rl_explain_cleanup(void *data)
{
    ngx_rl_explain_t *explain = data;

    ngx_rl_looks_end(&explain->looks);
    json_decref(explain->json);
}


/* All counters have been looked at, or their time has passed. */
static void
ngx_rl_explain_looked(void *data)
{
    ngx_rl_check_t *check = data;

    check->handler(check->data);
}


/*
 * Where the request has come to, and by which API key, as it may be shown: by
 * its digest. ctx: NULL, the location has no limits. If memory is out,
 * json_pack() has freed zones.
 */
static ngx_rl_explain_t *
ngx_rl_explain_create(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    json_t                    *api_key;
    u_char                     buf[NGX_RL_DOCUMENT_KEY];
    ngx_int_t                  rc;
    ngx_str_t                  key;
    ngx_rl_explain_t          *explain;
    ngx_pool_cleanup_t        *cln;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_core_srv_conf_t  *cscf;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_rl_explain_t));
    if (cln == NULL) {
        return NULL;
    }

    explain = cln->data;
    ngx_memzero(explain, sizeof(ngx_rl_explain_t));

    explain->request = r;
    explain->ctx = ctx;
    explain->looks.pool = r->pool;
    explain->looks.handler = ngx_rl_explain_looked;
    explain->looks.data = ctx ? &ctx->check : NULL;

    cln->handler = ngx_rl_explain_cleanup;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

    rc = ngx_rl_api_key_text(r, &key);
    api_key = (rc == NGX_DECLINED) ? json_null() : NULL;

    if (rc == NGX_OK) {
        key = ngx_rl_document_key(&key, buf);
        api_key = ngx_rl_json_text(&key);
    }

    explain->zones = json_array();
    explain->json = json_pack("{s:o, s:o, s:o, s:o, s:b, s:o}",
                     "server", ngx_rl_json_text(&cscf->server_name),
                     "location", ngx_rl_json_text(&clcf->name),
                     "path", ngx_rl_json_text(&r->uri),
                     "api_key", api_key,
                     "allowed", 1,
                     "zones", explain->zones);

    return explain->json ? explain : NULL;
}


/* Sends the answer. Returns what the request ends with. */
static ngx_int_t
ngx_rl_explain_send(ngx_rl_explain_t *explain)
{
    ngx_str_t            body;
    ngx_http_request_t  *r;

    static const ngx_str_t  type = ngx_string("application/json");

    r = explain->request;

    if (explain->failed
        || ngx_rl_json_dump(r->pool, json_incref(explain->json), &body)
           != NGX_OK
        || ngx_rl_header(r, "Cache-Control", "no-store") != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* a client that waits for "100 Continue" need not send its body */

    r->expect_tested = 1;

    return ngx_rl_send(r, NGX_HTTP_OK, &type, &body);
}


ngx_int_t
ngx_rl_explain_unlimited(ngx_http_request_t *r)
{
    ngx_rl_explain_t  *explain;

    explain = ngx_rl_explain_create(r, NULL);

    return explain ? ngx_rl_explain_send(explain)
                   : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/* The object of the limiter's zone, which is made where it is missing. */
static json_t *
ngx_rl_explain_zone(ngx_rl_explain_t *explain, const ngx_rl_limiter_t *limiter)
{
    size_t                     i;
    json_t                    *zone, *name;
    ngx_rl_location_limit_t  **limits;

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

    zone = json_pack("{s:o, s:I, s:n, s:n, s:n, s:[], s:i}",
                     "zone", ngx_rl_json_text(&limiter->zone.name),
                     "version", (json_int_t) explain->ctx->policies[i]->version,
                     "list", "penalty", "tier", "rules", "more", 0);

    if (json_array_append_new(explain->zones, zone) != 0) {
        explain->failed = 1;
        return NULL;
    }

    return zone;
}


/* Memory that is missing fails the explanation. */
static void
ngx_rl_explain_add(ngx_rl_explain_t *explain, json_t *json, json_t *members)
{
    if (json_object_update(json, members) != 0) {
        explain->failed = 1;
    }

    json_decref(members);
}


/* A counter, and the origin of its limit. */
static void
ngx_rl_explain_counter(ngx_rl_explain_t *explain, json_t *json,
    const ngx_rl_counter_t *counter, const ngx_rl_allowed_t *allowed)
{
    ngx_str_t            network;
    ngx_rl_look_t       *look;
    ngx_rl_explained_t  *explained;

    explained = &explain->counters[explain->ncounters++];
    explained->counter = counter;
    explained->json = json;

    look = &explained->look;
    look->limiter = counter->client->limiter;
    look->rule = counter->rule;
    look->limit = counter->limit;
    look->key = counter->client->key;

    ngx_rl_look_add(&explain->looks, look);

    ngx_rl_explain_add(explain, json,
        json_pack("{s:s, s:o, s:I, s:b}",
            "limit_from",
            (allowed && allowed->dynamic)
            ? "variable"
            : ngx_rl_origin_names[allowed ? allowed->origin
                                          : NGX_RL_ORIGIN_RULE],
            "override",
            ngx_rl_json_name((allowed && allowed->override)
                             ? &allowed->override->id : NULL),
            "cost", (json_int_t) counter->cost,
            "dry_run", (int) counter->dry_run));

    if (allowed && allowed->misfit) {
        ngx_rl_explain_add(explain, json, json_pack("{s:o}",
            "override_misfit", ngx_rl_json_name(&allowed->misfit->id)));
    }

    if (look->limiter->new_keys && ngx_rl_key_is_network(&look->key)) {
        network = look->key;
        network.data += sizeof(NGX_RL_NETWORK_KEY) - 1;
        network.len -= sizeof(NGX_RL_NETWORK_KEY) - 1;

        ngx_rl_explain_add(explain, json, json_pack("{s:o}", "by_network",
            ngx_rl_json_text(&network)));
    }
}


static void
ngx_rl_explain_rule(void *data, const ngx_rl_rule_t *rule, ngx_rl_match_e match,
    const ngx_rl_counter_t *counter, const ngx_rl_subject_t *subject,
    const ngx_rl_allowed_t *allowed)
{
    ngx_rl_explain_t *explain = data;

    json_t  *json, *zone, *rules, *more;

    zone = ngx_rl_explain_zone(explain, rule->policy->limiter);
    rules = json_object_get(zone, "rules");

    if (subject->tier.len) {
        ngx_rl_explain_add(explain, zone, json_pack("{s:o}", "tier",
            ngx_rl_json_text(&subject->tier)));
    }

    if (counter == NULL && json_array_size(rules) >= NGX_RL_EXPLAIN_RULES) {
        more = json_object_get(zone, "more");
        (void) json_integer_set(more, json_integer_value(more) + 1);
        return;
    }

    json = json_pack("{s:o, s:b, s:b}",
                     "rule", ngx_rl_json_text(&rule->id),
                     "fixed", rule->number < rule->policy->nfixed,
                     "applies", counter != NULL);

    if (counter) {
        ngx_rl_explain_counter(explain, json, counter, allowed);

    } else {
        ngx_rl_explain_add(explain, json, json_pack("{s:s}", "because",
                                                    ngx_rl_match_names[match]));

        if (match >= NGX_RL_OTHER_HEADER && match <= NGX_RL_OTHER_VALUE) {
            ngx_rl_explain_add(explain, json, json_pack("{s:o}", "condition",
                ngx_rl_json_text(&subject->failed)));
        }
    }

    if (json_array_append_new(rules, json) != 0) {
        explain->failed = 1;
    }
}


static void
ngx_rl_explain_listed(void *data, const ngx_rl_limiter_t *limiter,
    ngx_rl_listed_e listed)
{
    ngx_rl_explain_t *explain = data;

    ngx_rl_explain_add(explain,
        ngx_rl_explain_zone(explain, limiter),
        json_pack("{s:s}", "list", (listed == NGX_RL_LISTED_DENIED)
                       ? "deny" : "allow"));
}


ngx_int_t
ngx_rl_explain_start(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_rl_report_t        report;
    ngx_rl_explain_t      *explain;
    ngx_rl_selected_e      selected;
    ngx_rl_penalty_t      *penalty;
    ngx_rl_penalty_key_t  *entry;

    explain = ngx_rl_explain_create(r, ctx);
    if (explain == NULL) {
        return NGX_ERROR;
    }

    ctx->explain = explain;
    ctx->needs |= NGX_RL_NEEDS_REPORT;

    report.rule = ngx_rl_explain_rule;
    report.listed = ngx_rl_explain_listed;
    report.data = explain;

    selected = ngx_rl_select(r, ctx, &report);

    /*
     * As "/penalties" has it, but for the key, of which a token may not know,
     * if it is not the network of the client.
     */

    if (selected == NGX_RL_SELECT_PENALIZED) {
        entry = ctx->penalized;
        penalty = entry->penalty;

        ngx_rl_explain_add(explain,
            ngx_rl_explain_zone(explain, penalty->limiter),
            json_pack("{s:{s:o, s:o, s:s, s:o, s:o, s:I}}", "penalty",
                "penalty", ngx_rl_json_text(&penalty->id),
                "network",
                ngx_rl_json_name(entry->network ? &entry->key : NULL),
                "action", ngx_rl_penalty_actions[penalty->action],
                "counted_by", ngx_rl_json_text(&penalty->key),
                "ends_at",
                ngx_rl_json_later(entry->until_ms - ngx_current_msec),
                "retry_after_seconds",
                (json_int_t) ngx_rl_penalty_seconds(ctx)));
    }

    /* the answer is no event, and not that of a penalty */

    ctx->penalized = NULL;
    ctx->penalty_keys = NULL;

    if (selected == NGX_RL_SELECT_ERROR) {
        return NGX_ERROR;
    }

    explain->denied = (selected != NGX_RL_SELECT_OK);

    if (ctx->needs & NGX_RL_NEEDS_ONCE) {
        ngx_rl_request_once_begin(r, ctx, 0);
    }

    return ngx_rl_looks_start(&explain->looks);
}


/* What is left. Returns whether the request would pass: true, false or null. */
static json_t *
ngx_rl_explain_left(ngx_rl_explain_t *explain, ngx_rl_explained_t *explained)
{
    u_char                   hash[2 * sizeof(ngx_rl_id_t)];
    json_t                  *json, *passes;
    ngx_rl_id_t              shown;
    ngx_rl_look_t           *look;
    const ngx_rl_counter_t  *counter;

    look = &explained->look;
    json = explained->json;
    counter = explained->counter;

    /* begins as "pk" does */

    shown = ngx_rl_quota_shown(ngx_rl_client_hash(&look->client));
    (void) ngx_hex_dump(hash, (u_char *) &shown, sizeof(ngx_rl_id_t));

    ngx_rl_explain_add(explain, json,
        json_pack("{s:s%}", "key", (char *) hash, sizeof(hash)));

    ngx_rl_explain_add(explain, json, ngx_rl_json_counter(look));

    if (explain->ctx->needs & NGX_RL_NEEDS_ONCE) {
        ngx_rl_explain_add(explain, json,
            json_pack("{s:I, s:b}", "cost", (json_int_t) counter->cost,
                "replay",
                ngx_rl_request_once_paid(explain->ctx, counter) != 0));
    }

    if (counter->cost && look->wait_us && !counter->dry_run) {
        passes = json_false();

    } else {
        passes = (look->status == NGX_RL_REDIS_OK)
                 ? json_boolean(counter->cost <= look->answer.remaining)
                 : json_null();
    }

    ngx_rl_explain_add(explain, json, json_pack("{s:o}", "passes", passes));

    return passes;
}


ngx_int_t
ngx_rl_explain_answer(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    json_t            *passes, *allowed;
    ngx_uint_t         i;
    ngx_rl_explain_t  *explain;

    explain = ctx->explain;
    allowed = json_boolean(!explain->denied);

    for (i = 0; i < explain->ncounters; i++) {
        passes = ngx_rl_explain_left(explain, &explain->counters[i]);

        /* a counter that rejects outweighs one that is not known */

        if (!explain->counters[i].counter->dry_run && !json_is_true(passes)
            && !json_is_false(allowed))
        {
            allowed = passes;
        }
    }

    ngx_rl_explain_add(explain, explain->json,
                       json_pack("{s:o}", "allowed", allowed));

    ngx_http_finalize_request(r, ngx_rl_explain_send(explain));

    return NGX_DONE;
}

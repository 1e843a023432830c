/*
 * "/policy": the rules that this gateway has in use. "/decisions": what it has
 * decided, by rule and outcome, since its memory was made. The status page
 * plots the differences.
 */

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_counts.h"

#include <jansson.h>

static json_t *ngx_http_ratelimit_api_in_use_rule(
    const ngx_ratelimit_rule_t *rule);
static json_t *ngx_http_ratelimit_api_decisions_row(
    const ngx_ratelimit_counts_row_t *row);
static void ngx_http_ratelimit_api_decisions_add(json_t **json,
    const char *name, uint64_t n);


ngx_int_t
ngx_http_ratelimit_api_in_use(ngx_http_ratelimit_api_t *api)
{
    json_t                   *list;
    ngx_uint_t                i;
    ngx_ratelimit_rule_t    **rules;
    ngx_ratelimit_policy_t   *policy;

    policy = api->conf->limiter->policy;
    rules = policy->rules.elts;
    list = json_array();

    for (i = 0; i < policy->rules.nelts; i++) {
        if (!rules[i]->skipped) {
            ngx_http_ratelimit_json_append(&list,
                              ngx_http_ratelimit_api_in_use_rule(rules[i]));
        }
    }

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
                                       json_pack("{s:I, s:o}",
                                           "version",
                                           (json_int_t) policy->version,
                                           "rules", list));
}


/* NULL: memory is out. */
static json_t *
ngx_http_ratelimit_api_in_use_rule(const ngx_ratelimit_rule_t *rule)
{
    json_t     *json;
    ngx_int_t   rc;

    json = json_pack("{s:o, s:b, s:o, s:b}",
        "rule", ngx_http_ratelimit_json_text(&rule->id),
        "fixed", rule->number < rule->policy->nfixed,
        "counted_by", ngx_http_ratelimit_api_parts_json(&rule->key),
        "dry_run", (int) rule->dry_run);

    /* a request tells a limit that is a variable */

    rc = rule->dynamic
         ? json_object_set_new(json, "limit", json_null())
         : ngx_http_ratelimit_json_limit(json, &rule->limit, NULL);

    if (rc) {
        json_decref(json);
        return NULL;
    }

    return json;
}


ngx_int_t
ngx_http_ratelimit_api_decisions(ngx_http_ratelimit_api_t *api)
{
    json_t                      *list, *json;
    uint32_t                     at;
    ngx_ratelimit_counts_row_t   row;

    list = json_array();
    at = 0;

    while (ngx_ratelimit_counts_next(&at, &row) == NGX_OK) {

        if (row.kind > NGX_RATELIMIT_COUNTS_ZONE
            || !ngx_ratelimit_equal(&row.zone, &api->conf->limiter->zone.name))
        {
            continue;
        }

        json = ngx_http_ratelimit_api_decisions_row(&row);

        /* a zone without a list or a penalty has only a name */

        if (row.kind == NGX_RATELIMIT_COUNTS_ZONE
            && json_object_size(json) == 1)
        {
            json_decref(json);
            continue;
        }

        ngx_http_ratelimit_json_append(&list, json);
    }

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
                                       json_pack("{s:o}", "rules", list));
}


/* NULL: memory is out. */
static json_t *
ngx_http_ratelimit_api_decisions_row(const ngx_ratelimit_counts_row_t *row)
{
    json_t      *json;
    uint64_t     n;
    ngx_uint_t   status, source;

    json = json_pack("{s:o}", "rule", ngx_http_ratelimit_json_text(&row->rule));

    if (row->kind == NGX_RATELIMIT_COUNTS_ZONE) {
        ngx_http_ratelimit_api_decisions_add(&json, "denied",
                             row->words[NGX_RATELIMIT_COUNTS_DENIED]);
        ngx_http_ratelimit_api_decisions_add(&json, "denied_dry_run",
                             row->words[NGX_RATELIMIT_COUNTS_DENIED_DRY_RUN]);
        ngx_http_ratelimit_api_decisions_add(&json, "penalized",
                             row->words[NGX_RATELIMIT_COUNTS_PENALIZED]);
        return json;
    }

    for (status = NGX_RATELIMIT_PASSED; status < NGX_RATELIMIT_DENIED;
         status++)
    {
        n = 0;

        for (source = NGX_RATELIMIT_SOURCE_LOCAL;
             source <= NGX_RATELIMIT_SOURCE_FALLBACK; source++)
        {
            n += row->words[ngx_ratelimit_counts_word(status, source)];
        }

        ngx_http_ratelimit_api_decisions_add(&json,
                        (char *) ngx_http_ratelimit_outcomes[status].data, n);
    }

    return json;
}


/* No word of what has not happened; most rules have one outcome. */
static void
ngx_http_ratelimit_api_decisions_add(json_t **json, const char *name,
    uint64_t n)
{
    if (n && name && json_object_set_new(*json, name, json_integer(n)) != 0) {
        json_decref(*json);
        *json = NULL;
    }
}

/*
 * "/decisions": what this gateway has decided, by rule and outcome, since its
 * memory was made. The status page plots the differences.
 */

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_counts.h"

#include <jansson.h>

static json_t *ngx_http_ratelimit_api_decisions_row(
    const ngx_ratelimit_counts_row_t *row);
static void ngx_http_ratelimit_api_decisions_add(json_t **json,
    const char *name, uint64_t n);


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

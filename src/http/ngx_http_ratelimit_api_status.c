/*
 * "/status": what this node knows of the zone's document, and of the fleet.
 */

#include "ngx_http_ratelimit_api.h"

#include <jansson.h>

static json_t *ngx_http_ratelimit_api_status_redis(
    ngx_ratelimit_limiter_t *limiter, const ngx_ratelimit_sync_stat_t *stat);
static json_t *ngx_http_ratelimit_api_status_state(
    ngx_ratelimit_limiter_t *limiter, const ngx_ratelimit_sync_stat_t *stat);
static json_t *ngx_http_ratelimit_api_status_time(uint64_t time_ms);


ngx_int_t
ngx_http_ratelimit_api_status(ngx_http_ratelimit_api_t *api)
{
    json_t                     *json, *node;
    uint64_t                    now_ms;
    ngx_str_t                   hostname;
    ngx_time_t                 *now;
    ngx_ratelimit_limiter_t    *limiter;
    ngx_ratelimit_sync_stat_t   stat;

    limiter = api->conf->limiter;
    now = ngx_timeofday();
    now_ms = (uint64_t) now->sec * 1000 + now->msec;
    hostname = ngx_cycle->hostname;

    ngx_ratelimit_sync_stat(limiter, &stat);

    json = json_object();
    node = json_object();

    (void) json_object_set_new(node, "hostname",
                               ngx_http_ratelimit_json_text(&hostname));
    (void) json_object_set_new(node, "worker", json_integer(ngx_pid));

    (void) json_object_set_new(json, "zone",
                         ngx_http_ratelimit_json_text(&limiter->zone.name));
    (void) json_object_set_new(json, "node", node);
    (void) json_object_set_new(json, "format",
                               json_sprintf("%d.%d",
                                            NGX_RATELIMIT_DOCUMENT_MAJOR,
                                            NGX_RATELIMIT_DOCUMENT_MINOR));
    (void) json_object_set_new(json, "version",
                               json_integer((json_int_t) stat.version));
    (void) json_object_set_new(json, "compiled",
                               json_integer((json_int_t) stat.compiled));
    (void) json_object_set_new(json, "since",
                       ngx_http_ratelimit_api_status_time(stat.swapped_ms));
    (void) json_object_set_new(json, "age_seconds",
                               (stat.swapped_ms && now_ms >= stat.swapped_ms)
                               ? json_integer((json_int_t)
                                     ((now_ms - stat.swapped_ms) / 1000))
                               : json_null());
    (void) json_object_set_new(json, "warnings",
                               json_integer((json_int_t) stat.warnings));
    (void) json_object_set_new(json, "refused",
                               stat.refused
                               ? json_integer((json_int_t) stat.refused)
                               : json_null());
    (void) json_object_set_new(json, "skipped",
               ngx_http_ratelimit_api_problem_list(&limiter->policy->skipped));
    (void) json_object_set_new(json, "redis",
                  ngx_http_ratelimit_api_status_redis(limiter, &stat));
    (void) json_object_set_new(json, "state",
                         ngx_http_ratelimit_api_status_state(limiter, &stat));

    if (ngx_http_ratelimit_api_etag(api, stat.version, stat.id) != NGX_OK) {
        json_decref(json);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK, json);
}


/* null: the zone has none. */
static json_t *
ngx_http_ratelimit_api_status_redis(ngx_ratelimit_limiter_t *limiter,
    const ngx_ratelimit_sync_stat_t *stat)
{
    json_t  *json;

    if (limiter->redis == NULL) {
        return json_null();
    }

    json = json_object();

    (void) json_object_set_new(json, "name",
                           ngx_http_ratelimit_json_text(&limiter->redis->name));
    (void) json_object_set_new(json, "reachable",
                               json_boolean(stat->reachable));
    (void) json_object_set_new(json, "asked",
                         ngx_http_ratelimit_api_status_time(stat->asked_ms));
    (void) json_object_set_new(json, "nodes",
                 json_integer(ngx_ratelimit_redis_nodes(limiter->redis)));

    return json;
}


static json_t *
ngx_http_ratelimit_api_status_state(ngx_ratelimit_limiter_t *limiter,
    const ngx_ratelimit_sync_stat_t *stat)
{
    u_char      buf[NGX_MAX_ERROR_STR];
    json_t     *json;
    ngx_str_t   text;

    if (limiter->state.len == 0) {
        return json_null();
    }

    json = json_object();

    (void) json_object_set_new(json, "file",
                               ngx_http_ratelimit_json_text(&limiter->state));
    (void) json_object_set_new(json, "saved", json_boolean(stat->saved));

    if (stat->error == 0) {
        (void) json_object_set_new(json, "error", json_null());
        return json;
    }

    text.data = buf;
    text.len = ngx_strerror(stat->error, buf, sizeof(buf)) - buf;

    (void) json_object_set_new(json, "error",
                               ngx_http_ratelimit_json_text(&text));

    return json;
}


static json_t *
ngx_http_ratelimit_api_status_time(uint64_t time_ms)
{
    u_char     buf[NGX_HTTP_RATELIMIT_JSON_TIME];
    ngx_str_t  text;

    if (time_ms == 0) {
        return json_null();
    }

    text.data = buf;
    text.len = ngx_http_ratelimit_json_time(buf, time_ms) - buf;

    return ngx_http_ratelimit_json_text(&text);
}

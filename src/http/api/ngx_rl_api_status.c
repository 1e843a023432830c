/*
 * "/status": what this gateway knows of the zone's document, and of the fleet.
 */

#include "ngx_rl_api.h"

#include <jansson.h>


static json_t *
ngx_rl_api_status_time(uint64_t time_ms)
{
    return time_ms ? ngx_rl_json_time(time_ms) : json_null();
}


/* The Redis nodes in use; NULL: memory is out. */
static json_t *
ngx_rl_api_status_nodes(const ngx_rl_redis_t *redis)
{
    json_t                   *list;
    uint64_t                  calls;
    ngx_uint_t                i;
    ngx_queue_t              *at;
    ngx_rl_redis_node_stat_t  node;

    static const char  *breakers[] = { "closed", "open", "readmits" };

    list = json_array();
    at = NULL;

    while (ngx_rl_redis_node_stat(redis, &at, &node) == NGX_OK) {
        for (i = 0, calls = 0; i < NGX_RL_HISTOGRAM_SUM; i++) {
            calls += node.times[i];
        }

        ngx_rl_json_append(&list, json_pack(
                         "{s:o, s:s, s:b, s:I, s:f}",
                         "name", ngx_rl_json_text(&node.name),
                         "breaker", breakers[node.state],
                         "connected", (int) node.connected,
                         "calls", (json_int_t) calls,
                         "call_seconds",
                         (double) node.times[NGX_RL_HISTOGRAM_SUM]
                         / 1000000));
    }

    return list;
}


/* null: the zone has none. */
static json_t *
ngx_rl_api_status_redis(ngx_rl_limiter_t *limiter,
    const ngx_rl_sync_stat_t *stat)
{
    if (limiter->redis == NULL) {
        return json_null();
    }

    return json_pack("{s:o, s:b, s:o, s:I, s:o}",
        "name", ngx_rl_json_text(&limiter->redis->name),
        "reachable", (int) stat->reachable,
        "asked", ngx_rl_api_status_time(stat->asked_ms),
        "gateways",
        (json_int_t) ngx_rl_redis_gateways(limiter->redis),
        "nodes", ngx_rl_api_status_nodes(limiter->redis));
}


static json_t *
ngx_rl_api_status_state(ngx_rl_limiter_t *limiter,
    const ngx_rl_sync_stat_t *stat)
{
    u_char     buf[NGX_MAX_ERROR_STR];
    ngx_str_t  error;

    if (limiter->state.len == 0) {
        return json_null();
    }

    error.data = buf;
    error.len = stat->error ? (size_t) (ngx_strerror(stat->error, buf,
                                                     sizeof(buf)) - buf)
                            : 0;

    return json_pack("{s:o, s:b, s:o}",
        "file", ngx_rl_json_text(&limiter->state),
        "saved", (int) stat->saved,
        "error", stat->error ? ngx_rl_json_text(&error)
                             : json_null());
}


/* The endpoints of this server, of all zones; NULL: memory is out. */
static json_t *
ngx_rl_api_status_endpoints(ngx_rl_api_t *api)
{
    json_t              *list;
    ngx_uint_t           i;
    ngx_rl_api_conf_t  **apis;
    ngx_rl_main_conf_t  *conf;

    conf = ngx_http_get_module_main_conf(api->request,
                                         ngx_http_ratelimit_module);
    apis = conf->apis.elts;
    list = json_array();

    for (i = 0; i < conf->apis.nelts; i++) {
        if (apis[i]->server == api->conf->server) {
            ngx_rl_json_append(&list, json_pack("{s:o, s:o, s:b}",
                         "zone", ngx_rl_json_text(&apis[i]->zone),
                         "path", ngx_rl_json_text(&apis[i]->path),
                         "page", apis[i]->location->page != NULL));
        }
    }

    return list;
}


ngx_int_t
ngx_rl_api_status(ngx_rl_api_t *api)
{
    uint64_t            now_ms;
    ngx_str_t           hostname;
    ngx_time_t         *now;
    ngx_rl_limiter_t   *limiter;
    ngx_rl_sync_stat_t  stat;

    limiter = api->conf->limiter;
    now = ngx_timeofday();
    now_ms = (uint64_t) now->sec * 1000 + now->msec;
    hostname = ngx_cycle->hostname;

    ngx_rl_sync_stat(limiter, &stat);
    ngx_rl_api_etag(api, stat.version, stat.id);

    return ngx_rl_api_json(api, NGX_HTTP_OK,
        json_pack("{s:o, s:{s:o, s:I}, s:b, s:o, s:I, s:I, s:o, s:o, s:I, s:o, "
                  "s:o, s:o, s:o, s:o}",
            "zone", ngx_rl_json_text(&limiter->zone.name),
            "gateway",
                "hostname", ngx_rl_json_text(&hostname),
                "worker", (json_int_t) ngx_pid,
            "write", (int) api->conf->write,
            "format", json_sprintf("%d.%d", NGX_RL_DOCUMENT_MAJOR,
                                   NGX_RL_DOCUMENT_MINOR),
            "newest", (json_int_t) stat.version,
            "in_use", (json_int_t) stat.compiled,
            "since", ngx_rl_api_status_time(stat.swapped_ms),
            "age_seconds", (stat.swapped_ms && now_ms >= stat.swapped_ms)
                           ? json_integer((now_ms - stat.swapped_ms) / 1000)
                           : json_null(),
            "warnings", (json_int_t) stat.warnings,
            "refused", stat.refused ? json_integer(stat.refused) : json_null(),
            "skipped",
            ngx_rl_api_problem_list(&limiter->policy->skipped),
            "redis", ngx_rl_api_status_redis(limiter, &stat),
            "state", ngx_rl_api_status_state(limiter, &stat),
            "endpoints", ngx_rl_api_status_endpoints(api)));
}

/*
 * "/status": what this gateway knows of the zone's document, and of the fleet.
 * "/policy": the rules that it has in use. "/decisions": what it has decided,
 * by rule and outcome, since its memory was made. "/history": what it has
 * decided a second, in each step of the last minutes.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_counts.h"
#include "ngx_rl_fleet.h"

#include <jansson.h>


static json_t *
ngx_rl_api_status_time(uint64_t time_ms)
{
    return time_ms ? ngx_rl_json_time(time_ms) : json_null();
}


/* With its nodes in use; null: the zone has none. */
static json_t *
ngx_rl_api_status_redis(ngx_rl_limiter_t *limiter,
    const ngx_rl_follow_stat_t *stat)
{
    json_t                   *nodes;
    uint64_t                  calls;
    ngx_uint_t                i;
    ngx_queue_t              *at;
    ngx_rl_redis_node_stat_t  node;

    static const char  *breakers[] = { "closed", "open", "readmits" };

    if (limiter->redis == NULL) {
        return json_null();
    }

    nodes = json_array();
    at = NULL;

    while (ngx_rl_redis_node_stat(limiter->redis, &at, &node) == NGX_OK) {
        for (i = 0, calls = 0; i < NGX_RL_HISTOGRAM_SUM; i++) {
            calls += node.times[i];
        }

        ngx_rl_json_append(&nodes, json_pack("{s:o, s:s, s:b, s:I, s:f}",
            "name", ngx_rl_json_text(&node.name),
            "breaker", breakers[node.state],
            "connected", (int) node.connected,
            "calls", (json_int_t) calls,
            "call_seconds",
            (double) node.times[NGX_RL_HISTOGRAM_SUM] / 1000000));
    }

    return json_pack("{s:o, s:b, s:o, s:I, s:o}",
        "name", ngx_rl_json_text(&limiter->redis->name),
        "reachable", (int) stat->reachable,
        "asked", ngx_rl_api_status_time(stat->asked_ms),
        "gateways", (json_int_t) ngx_rl_redis_gateways(limiter->redis),
        "nodes", nodes);
}


/* null: the zone has none. */
static json_t *
ngx_rl_api_status_peers(ngx_rl_limiter_t *limiter)
{
    ngx_rl_peers_t  *peers;

    if (limiter->fleet == NULL) {
        return json_null();
    }

    peers = &limiter->fleet->peers;

    return json_pack("{s:o, s:I, s:I}",
        "name", ngx_rl_json_text(&peers->name),
        "gateways", (json_int_t) ngx_rl_peers_gateways(peers->shared),
        "connected", (json_int_t) atomic_load(&peers->shared->connected));
}


static json_t *
ngx_rl_api_status_state(ngx_rl_limiter_t *limiter,
    const ngx_rl_follow_stat_t *stat)
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


/* The endpoints of this server, of all zones. */
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
    uint64_t              now_ms;
    ngx_str_t             hostname;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_follow_stat_t  stat;

    limiter = api->conf->limiter;
    now_ms = ngx_rl_wall_ms();
    hostname = ngx_cycle->hostname;

    ngx_rl_follow_stat(limiter, &stat);
    ngx_rl_api_etag(api, stat.version, stat.id);

    return ngx_rl_api_json(api, NGX_HTTP_OK,
        json_pack("{s:o, s:{s:o, s:I}, s:b, s:o, s:I, s:I, s:o, s:o, s:I, s:o, "
                  "s:o, s:o, s:o, s:o, s:o}",
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
            "peers", ngx_rl_api_status_peers(limiter),
            "state", ngx_rl_api_status_state(limiter, &stat),
            "endpoints", ngx_rl_api_status_endpoints(api)));
}


static json_t *
ngx_rl_api_in_use_rule(const ngx_rl_limiter_t *limiter,
    const ngx_rl_rule_t *rule)
{
    json_t             *json;
    ngx_rl_fail_mode_e  mode;

    json = json_pack("{s:o, s:b, s:o, s:b}",
        "rule", ngx_rl_json_text(&rule->id),
        "fixed", rule->number < rule->policy->nfixed,
        "counted_by", ngx_rl_api_parts_json(&rule->key),
        "dry_run", (int) rule->dry_run);

    /* a request tells a limit that is a variable */

    if (rule->dynamic) {
        ngx_rl_json_set(&json, "limit", json_null());

    } else {
        ngx_rl_json_merge(&json, ngx_rl_json_limit(&rule->limit, NULL));
    }

    if (limiter->redis && rule->sync != NGX_RL_SYNC_ASYNC) {

        /* null: it comes from locations, which differ */

        for (mode = NGX_RL_FAIL_CLOSED; mode != NGX_RL_FAIL_DEFAULT; mode--) {
            if (limiter->fail_modes == (ngx_uint_t) 1 << mode) {
                break;
            }
        }

        mode = ngx_rl_rule_fail_mode(rule, mode);

        ngx_rl_json_set(&json, "fail_mode",
            (mode == NGX_RL_FAIL_DEFAULT)
            ? json_null()
            : json_string(ngx_rl_fail_mode_names[mode - NGX_RL_FAIL_OPEN]));
        ngx_rl_json_set(&json, "emergency", json_boolean(rule->emergency));
    }

    return json;
}


ngx_int_t
ngx_rl_api_in_use(ngx_rl_api_t *api)
{
    json_t           *list;
    ngx_uint_t        i;
    ngx_rl_rule_t   **rules;
    ngx_rl_policy_t  *policy;

    policy = api->conf->limiter->policy;
    rules = policy->rules.elts;
    list = json_array();

    for (i = 0; i < policy->rules.nelts; i++) {
        if (!rules[i]->skipped) {
            ngx_rl_json_append(&list, ngx_rl_api_in_use_rule(api->conf->limiter,
                                                             rules[i]));
        }
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
                           json_pack("{s:I, s:o}",
                                           "version",
                                           (json_int_t) policy->version,
                                           "rules", list));
}


/* No word of what has not happened; most rules have one outcome. */
static void
ngx_rl_api_decisions_add(json_t **json, const char *name, uint64_t n)
{
    if (n && name) {
        ngx_rl_json_set(json, name, json_integer(n));
    }
}


/* How many of a rule, of all sources. */
static uint64_t
ngx_rl_api_decisions_with(const ngx_rl_counts_row_t *row, ngx_uint_t status)
{
    uint64_t    n;
    ngx_uint_t  source;

    n = 0;

    for (source = NGX_RL_SOURCE_LOCAL;
         source <= NGX_RL_SOURCE_FALLBACK; source++)
    {
        n += row->words[ngx_rl_counts_word(status, source)];
    }

    return n;
}


ngx_int_t
ngx_rl_api_decisions(ngx_rl_api_t *api)
{
    json_t              *list, *json;
    uint32_t             at;
    ngx_uint_t           status;
    ngx_rl_counts_row_t  row;

    list = json_array();
    at = 0;

    while (ngx_rl_counts_next(&at, &api->conf->limiter->zone.name, &row)
           == NGX_OK)
    {
        if (row.kind > NGX_RL_COUNTS_ZONE) {
            continue;
        }

        json = json_pack("{s:o}", "rule", ngx_rl_json_text(&row.rule));

        if (row.kind == NGX_RL_COUNTS_ZONE) {
            ngx_rl_api_decisions_add(&json, "denied",
                                     row.words[NGX_RL_COUNTS_DENIED]);
            ngx_rl_api_decisions_add(&json, "denied_dry_run",
                                     row.words[NGX_RL_COUNTS_DENIED_DRY_RUN]);
            ngx_rl_api_decisions_add(&json, "penalized",
                                     row.words[NGX_RL_COUNTS_PENALIZED]);

            /* a zone without a list or a penalty has only a name */

            if (json_object_size(json) == 1) {
                json_decref(json);
                continue;
            }

        } else {
            for (status = NGX_RL_PASSED; status < NGX_RL_DENIED; status++) {
                ngx_rl_api_decisions_add(&json,
                    (char *) ngx_rl_outcomes[status].data,
                    ngx_rl_api_decisions_with(&row, status));
            }
        }

        ngx_rl_json_append(&list, json);
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK, json_pack("{s:o}", "rules", list));
}


static void
ngx_rl_api_history_sample(const ngx_str_t *zone, ngx_rl_sample_t *sample)
{
    uint32_t             at;
    uint64_t             n, *totals;
    ngx_uint_t           status;
    ngx_rl_counts_row_t  row;

    ngx_memzero(sample, sizeof(ngx_rl_sample_t));
    sample->ms = ngx_current_msec;
    totals = sample->totals;
    at = 0;

    while (ngx_rl_counts_next(&at, zone, &row) == NGX_OK) {

        if (row.kind == NGX_RL_COUNTS_ZONE) {
            n = row.words[NGX_RL_COUNTS_DENIED]
                + row.words[NGX_RL_COUNTS_PENALIZED];
            totals[NGX_RL_WATCH_REFUSALS] += n;
            totals[NGX_RL_WATCH_DECISIONS]
                     += n + row.words[NGX_RL_COUNTS_DENIED_DRY_RUN];
        }

        if (row.kind != NGX_RL_COUNTS_RULE) {
            continue;
        }

        sample->rules++;

        for (status = NGX_RL_PASSED; status < NGX_RL_DENIED; status++) {
            n = ngx_rl_api_decisions_with(&row, status);
            totals[NGX_RL_WATCH_DECISIONS] += n;

            if (status >= NGX_RL_UNAVAILABLE) {
                totals[NGX_RL_WATCH_REFUSALS] += n;

            } else if (status == NGX_RL_DEGRADED) {
                totals[NGX_RL_WATCH_DEGRADED] += n;
            }
        }
    }
}


/*
 * The first worker that comes into a step samples it. If none comes in time,
 * there is no sample, and a gap.
 */
static void
ngx_rl_api_history_step(ngx_event_t *ev)
{
    uint64_t           step;
    ngx_rl_ring_t     *ring;
    ngx_rl_sample_t    sample;
    ngx_rl_limiter_t  *limiter;

    limiter = ev->data;
    ring = limiter->watch->samples;
    step = ngx_current_msec / NGX_RL_WATCH_STEP_MS;

    if (!ngx_rl_ring_read(ring, step, &sample)) {
        ngx_rl_api_history_sample(&limiter->zone.name, &sample);
        ngx_rl_ring_put(ring, step, &sample);
    }

    ngx_add_timer(ev, NGX_RL_WATCH_STEP_MS
                      - ngx_current_msec % NGX_RL_WATCH_STEP_MS);
}


void
ngx_rl_api_history_begin(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_event_t  *ev;

    ev = &limiter->watch->step;

    ev->data = limiter;
    ev->log = log;
    ev->handler = ngx_rl_api_history_step;
    ev->cancelable = 1;

    ngx_rl_api_history_step(ev);
}


/*
 * How many a second. null: there are not both samples, or the counts of a rule
 * have left the gateway's memory between them, an hour after the rule.
 */
static json_t *
ngx_rl_api_history_rate(const ngx_rl_sample_t *from, const ngx_rl_sample_t *to,
    ngx_uint_t total)
{
    uint64_t  n;

    if (from == NULL || to == NULL || to->ms <= from->ms
        || to->rules < from->rules || to->totals[total] < from->totals[total])
    {
        return json_null();
    }

    n = to->totals[total] - from->totals[total];

    return json_real((double) (n * 100000 / (to->ms - from->ms)) / 100);
}


ngx_int_t
ngx_rl_api_history(ngx_rl_api_t *api)
{
    json_t          *json, *lists[NGX_RL_WATCH_TOTALS];
    uint64_t         step;
    ngx_uint_t       i, total;
    ngx_rl_ring_t   *ring;
    ngx_rl_sample_t  samples[2], *from, *to;

    ring = api->conf->limiter->watch->samples;
    step = ngx_current_msec / NGX_RL_WATCH_STEP_MS;

    /* its sample may come in a moment */

    if (!ngx_rl_ring_read(ring, step, &samples[0])) {
        step--;
    }

    for (total = 0; total < NGX_RL_WATCH_TOTALS; total++) {
        lists[total] = json_array();
    }

    from = NULL;

    for (i = 0; i < NGX_RL_WATCH_SAMPLES; i++) {

        to = &samples[i % 2];

        if (!ngx_rl_ring_read(ring, step - NGX_RL_WATCH_STEPS + i, to)) {
            to = NULL;
        }

        for (total = 0; i && total < NGX_RL_WATCH_TOTALS; total++) {
            ngx_rl_json_append(&lists[total], ngx_rl_api_history_rate(from, to,
                                                                      total));
        }

        from = to;
    }

    json = json_pack("{s:i, s:o, s:o, s:o, s:o}",
        "step_seconds", NGX_RL_WATCH_STEP_MS / 1000,
        "ends_at", from ? ngx_rl_json_later(from->ms
                                            - ngx_current_msec)
                        : json_null(),
        "decisions", lists[NGX_RL_WATCH_DECISIONS],
        "refusals", lists[NGX_RL_WATCH_REFUSALS],
        "degraded", lists[NGX_RL_WATCH_DEGRADED]);

    return ngx_rl_api_json(api, NGX_HTTP_OK, json);
}

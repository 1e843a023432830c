/*
 * "ratelimit_metrics": what Prometheus reads, text format 0.0.4. A metric is a
 * row of the table below, with the function that writes its samples. All is
 * read from memory that the workers of the node share, and nothing is changed.
 */

#include "ngx_http_ratelimit_conf.h"
#include "ngx_http_ratelimit_json.h"

#include "ngx_ratelimit_sync.h"

/* a byte of a label's value at most: "\\x7f" */
#define NGX_HTTP_RATELIMIT_METRICS_ESCAPE  5

/* a number of a zone that it does not have */
#define NGX_HTTP_RATELIMIT_METRICS_NONE  ((uint64_t) -1)

typedef struct ngx_http_ratelimit_metric_s  ngx_http_ratelimit_metric_t;

typedef struct {
    ngx_http_ratelimit_main_conf_t     *conf;
    ngx_pool_t                         *pool;
    ngx_http_ratelimit_growing_t        body;
    const ngx_http_ratelimit_metric_t  *metric;    /* that is written */
    unsigned                            failed:1;  /* memory is out */
} ngx_http_ratelimit_metrics_t;

struct ngx_http_ratelimit_metric_s {
    const char  *name;
    const char  *type;
    const char  *help;      /* no "\", no line end */
    void       (*write)(ngx_http_ratelimit_metrics_t *out);
    size_t       offset;    /* redis, zones: where the number is */
};

/* The numbers of a zone that follows a document. */
typedef struct {
    uint64_t  version;
    uint64_t  age;
    uint64_t  reachable;
    uint64_t  refused;
    uint64_t  skipped;
} ngx_http_ratelimit_metrics_zone_t;

static ngx_int_t ngx_http_ratelimit_metrics_handler(ngx_http_request_t *r);
static void ngx_http_ratelimit_metrics_head(ngx_http_ratelimit_metrics_t *out);
static void ngx_http_ratelimit_metrics_sample(
    ngx_http_ratelimit_metrics_t *out, uint64_t value, ...);
static u_char *ngx_http_ratelimit_metrics_escape(u_char *p,
    const ngx_str_t *text);
static void ngx_http_ratelimit_metrics_calls(
    ngx_http_ratelimit_metrics_t *out);
static void ngx_http_ratelimit_metrics_replies(
    ngx_http_ratelimit_metrics_t *out);
static void ngx_http_ratelimit_metrics_statuses(
    ngx_http_ratelimit_metrics_t *out, const char *label, ngx_uint_t first,
    size_t offset);
static void ngx_http_ratelimit_metrics_redis(
    ngx_http_ratelimit_metrics_t *out);
static void ngx_http_ratelimit_metrics_nodes(
    ngx_http_ratelimit_metrics_t *out);
static void ngx_http_ratelimit_metrics_zones(
    ngx_http_ratelimit_metrics_t *out);
static void ngx_http_ratelimit_metrics_zone(ngx_ratelimit_limiter_t *limiter,
    ngx_http_ratelimit_metrics_zone_t *zone);
static void ngx_http_ratelimit_metrics_skipped(
    ngx_http_ratelimit_metrics_t *out);

static const ngx_http_ratelimit_metric_t  ngx_http_ratelimit_metrics_table[] =
{
    { "ratelimit_redis_calls_total", "counter",
      "Calls to Redis, by what became of them.",
      ngx_http_ratelimit_metrics_calls, 0 },

    { "ratelimit_redis_error_replies_total", "counter",
      "Error replies to calls, those that were healed too.",
      ngx_http_ratelimit_metrics_replies, 0 },

    { "ratelimit_redis_refreshes_total", "counter",
      "Questions to Redis which node serves what.",
      ngx_http_ratelimit_metrics_redis,
      offsetof(ngx_ratelimit_redis_stat_t, refreshes) },

    { "ratelimit_redis_reconnects_total", "counter",
      "Connections that came back after they broke.",
      ngx_http_ratelimit_metrics_redis,
      offsetof(ngx_ratelimit_redis_stat_t, reconnects) },

    { "ratelimit_redis_tls_handshakes_total", "counter",
      "TLS handshakes with Redis that succeeded.",
      ngx_http_ratelimit_metrics_redis,
      offsetof(ngx_ratelimit_redis_stat_t, handshakes) },

    { "ratelimit_redis_tls_resumed_total", "counter",
      "TLS handshakes with Redis that resumed a session.",
      ngx_http_ratelimit_metrics_redis,
      offsetof(ngx_ratelimit_redis_stat_t, resumed) },

    { "ratelimit_redis_breaker_opened_total", "counter",
      "Times that a shard's breaker opened.",
      ngx_http_ratelimit_metrics_redis,
      offsetof(ngx_ratelimit_redis_stat_t, opened) },

    { "ratelimit_redis_breaker_state", "gauge",
      "A shard's breaker: 0 closed, 1 open, 2 readmits calls.",
      ngx_http_ratelimit_metrics_nodes, 0 },

    { "ratelimit_redis_nodes", "gauge",
      "Nodes that share the limits, this one among them.",
      ngx_http_ratelimit_metrics_redis,
      offsetof(ngx_ratelimit_redis_stat_t, gateways) },

    { "ratelimit_rules_version", "gauge",
      "Version of a zone's document that requests go by, 0: none.",
      ngx_http_ratelimit_metrics_zones,
      offsetof(ngx_http_ratelimit_metrics_zone_t, version) },

    { "ratelimit_rules_age_seconds", "gauge",
      "For how long requests have gone by that version.",
      ngx_http_ratelimit_metrics_zones,
      offsetof(ngx_http_ratelimit_metrics_zone_t, age) },

    { "ratelimit_rules_reachable", "gauge",
      "1: Redis has said last what the document is.",
      ngx_http_ratelimit_metrics_zones,
      offsetof(ngx_http_ratelimit_metrics_zone_t, reachable) },

    { "ratelimit_rules_refused", "gauge",
      "Version of the document that is not used here, 0: none.",
      ngx_http_ratelimit_metrics_zones,
      offsetof(ngx_http_ratelimit_metrics_zone_t, refused) },

    { "ratelimit_rules_skipped", "gauge",
      "Rules and entries of the document that do not count here.",
      ngx_http_ratelimit_metrics_zones,
      offsetof(ngx_http_ratelimit_metrics_zone_t, skipped) },

    { "ratelimit_rules_skipped_info", "gauge",
      "1 for each of them, with its place and the reason.",
      ngx_http_ratelimit_metrics_skipped, 0 },

    { NULL, NULL, NULL, NULL, 0 }
};


char *
ngx_http_ratelimit_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_loc_conf_t *rlcf = conf;

    ngx_http_core_loc_conf_t  *clcf;

    if (rlcf->exempt) {
        return "is duplicate";
    }

    rlcf->exempt = 1;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_ratelimit_metrics_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_ratelimit_metrics_handler(ngx_http_request_t *r)
{
    ngx_http_ratelimit_metrics_t  out;

    static const ngx_str_t  type =
        ngx_string("text/plain; version=0.0.4; charset=utf-8");

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return (ngx_http_ratelimit_header(r, "Allow", "GET, HEAD")
                == NGX_OK)
               ? NGX_HTTP_NOT_ALLOWED : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&out, sizeof(ngx_http_ratelimit_metrics_t));

    out.conf = ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module);
    out.pool = r->pool;

    for (out.metric = ngx_http_ratelimit_metrics_table; out.metric->name;
         out.metric++)
    {
        ngx_http_ratelimit_metrics_head(&out);
        out.metric->write(&out);
    }

    return out.failed ? NGX_HTTP_INTERNAL_SERVER_ERROR
                      : ngx_http_ratelimit_send(r, NGX_HTTP_OK, &type,
                                                &out.body.text);
}


static void
ngx_http_ratelimit_metrics_head(ngx_http_ratelimit_metrics_t *out)
{
    u_char                             *p;
    size_t                              size;
    const ngx_http_ratelimit_metric_t  *metric;

    metric = out->metric;
    size = sizeof("# HELP  \n# TYPE  \n") + 2 * ngx_strlen(metric->name)
           + ngx_strlen(metric->help) + ngx_strlen(metric->type);

    p = ngx_http_ratelimit_grow(out->pool, &out->body, size);
    if (p == NULL) {
        out->failed = 1;
        return;
    }

    p = ngx_sprintf(p, "# HELP %s %s\n# TYPE %s %s\n", metric->name,
                    metric->help, metric->name, metric->type);

    out->body.text.len = p - out->body.text.data;
}


/*
 * A line. Behind the value its labels, at least one: a name and an ngx_str_t *
 * each; then NULL.
 */
static void
ngx_http_ratelimit_metrics_sample(ngx_http_ratelimit_metrics_t *out,
    uint64_t value, ...)
{
    u_char      *p, ch;
    size_t       size;
    va_list      labels;
    const char  *name;

    size = ngx_strlen(out->metric->name) + sizeof("} \n") + NGX_INT64_LEN;

    va_start(labels, value);

    while ((name = va_arg(labels, const char *)) != NULL) {
        size += sizeof(",=\"\"") + ngx_strlen(name)
                + NGX_HTTP_RATELIMIT_METRICS_ESCAPE
                  * va_arg(labels, const ngx_str_t *)->len;
    }

    va_end(labels);

    p = ngx_http_ratelimit_grow(out->pool, &out->body, size);
    if (p == NULL) {
        out->failed = 1;
        return;
    }

    p = ngx_sprintf(p, "%s", out->metric->name);
    ch = '{';

    va_start(labels, value);

    while ((name = va_arg(labels, const char *)) != NULL) {
        p = ngx_sprintf(p, "%c%s=\"", ch, name);
        p = ngx_http_ratelimit_metrics_escape(p, va_arg(labels,
                                                        const ngx_str_t *));
        *p++ = '"';
        ch = ',';
    }

    va_end(labels);

    out->body.text.len = ngx_sprintf(p, "} %uL\n", value)
                         - out->body.text.data;
}


/*
 * The format's three escapes. Bytes that Prometheus might not take, those of
 * no printable ASCII, stand there as text, "\x7f": one must not cost the rest.
 */
static u_char *
ngx_http_ratelimit_metrics_escape(u_char *p, const ngx_str_t *text)
{
    u_char   ch;
    size_t   i;

    for (i = 0; i < text->len; i++) {
        ch = text->data[i];

        if (ch == '\n') {
            *p++ = '\\';
            *p++ = 'n';

        } else if (ch < ' ' || ch >= 0x7f) {
            p = ngx_sprintf(p, "\\\\x%02xd", ch);

        } else {
            if (ch == '\\' || ch == '"') {
                *p++ = '\\';
            }

            *p++ = ch;
        }
    }

    return p;
}


static void
ngx_http_ratelimit_metrics_calls(ngx_http_ratelimit_metrics_t *out)
{
    ngx_http_ratelimit_metrics_statuses(out, "result", NGX_RATELIMIT_REDIS_OK,
                                   offsetof(ngx_ratelimit_redis_stat_t, calls));
}


static void
ngx_http_ratelimit_metrics_replies(ngx_http_ratelimit_metrics_t *out)
{
    ngx_http_ratelimit_metrics_statuses(out, "error",
                                 NGX_RATELIMIT_REDIS_MOVED,
                                 offsetof(ngx_ratelimit_redis_stat_t, replies));
}


/*
 * One number for each status, from first on, zeros too: a rate is known from
 * the first failure on.
 */
static void
ngx_http_ratelimit_metrics_statuses(ngx_http_ratelimit_metrics_t *out,
    const char *label, ngx_uint_t first, size_t offset)
{
    uint64_t                    *values;
    ngx_uint_t                   i, status;
    ngx_ratelimit_redis_t      **redis;
    ngx_ratelimit_redis_stat_t   stat;

    redis = out->conf->redis.elts;
    values = (uint64_t *) ((u_char *) &stat + offset);

    for (i = 0; i < out->conf->redis.nelts; i++) {
        ngx_ratelimit_redis_stat(redis[i], &stat);

        for (status = first; status < NGX_RATELIMIT_REDIS_STATUSES; status++) {
            ngx_http_ratelimit_metrics_sample(out, values[status],
                               "redis", &redis[i]->name, label,
                               ngx_ratelimit_redis_status_name(status), NULL);
        }
    }
}


static void
ngx_http_ratelimit_metrics_redis(ngx_http_ratelimit_metrics_t *out)
{
    ngx_uint_t                   i;
    ngx_ratelimit_redis_t      **redis;
    ngx_ratelimit_redis_stat_t   stat;

    redis = out->conf->redis.elts;

    for (i = 0; i < out->conf->redis.nelts; i++) {
        ngx_ratelimit_redis_stat(redis[i], &stat);
        ngx_http_ratelimit_metrics_sample(out,
                      *(uint64_t *) ((u_char *) &stat + out->metric->offset),
                      "redis", &redis[i]->name, NULL);
    }
}


static void
ngx_http_ratelimit_metrics_nodes(ngx_http_ratelimit_metrics_t *out)
{
    ngx_uint_t                         i;
    ngx_queue_t                       *at;
    ngx_ratelimit_redis_t            **redis;
    ngx_ratelimit_redis_node_stat_t    node;

    redis = out->conf->redis.elts;

    for (i = 0; i < out->conf->redis.nelts; i++) {
        at = NULL;

        while (ngx_ratelimit_redis_node_stat(redis[i], &at, &node) == NGX_OK) {
            ngx_http_ratelimit_metrics_sample(out, node.state,
                                              "redis", &redis[i]->name,
                                              "shard", &node.name, NULL);
        }
    }
}


static void
ngx_http_ratelimit_metrics_zones(ngx_http_ratelimit_metrics_t *out)
{
    uint64_t                            value;
    ngx_uint_t                          i;
    ngx_http_ratelimit_zone_t         **zones;
    ngx_http_ratelimit_metrics_zone_t   zone;

    zones = out->conf->zones.elts;

    for (i = 0; i < out->conf->zones.nelts; i++) {

        if (!zones[i]->limiter.follows) {
            continue;
        }

        ngx_http_ratelimit_metrics_zone(&zones[i]->limiter, &zone);

        value = *(uint64_t *) ((u_char *) &zone + out->metric->offset);

        if (value != NGX_HTTP_RATELIMIT_METRICS_NONE) {
            ngx_http_ratelimit_metrics_sample(out, value, "zone",
                                              &zones[i]->limiter.zone.name,
                                              NULL);
        }
    }
}


static void
ngx_http_ratelimit_metrics_zone(ngx_ratelimit_limiter_t *limiter,
    ngx_http_ratelimit_metrics_zone_t *zone)
{
    uint64_t                   now, since;
    ngx_ratelimit_sync_stat_t  stat;

    ngx_ratelimit_sync_stat(limiter, &stat);

    now = ngx_time();
    since = stat.swapped_ms / 1000;

    zone->version = stat.compiled;
    zone->refused = stat.refused;
    zone->skipped = limiter->policy->skipped.n;
    zone->reachable = limiter->redis ? stat.reachable
                                     : NGX_HTTP_RATELIMIT_METRICS_NONE;

    /* the clock may have been set back */

    zone->age = (stat.compiled == 0) ? NGX_HTTP_RATELIMIT_METRICS_NONE
                : (now > since) ? now - since : 0;
}


static void
ngx_http_ratelimit_metrics_skipped(ngx_http_ratelimit_metrics_t *out)
{
    ngx_uint_t                       i, n;
    ngx_http_ratelimit_zone_t      **zones;
    const ngx_ratelimit_problem_t   *skipped;
    const ngx_ratelimit_problems_t  *problems;

    zones = out->conf->zones.elts;

    for (i = 0; i < out->conf->zones.nelts; i++) {

        if (!zones[i]->limiter.follows) {
            continue;
        }

        problems = &zones[i]->limiter.policy->skipped;
        skipped = problems->list.elts;

        for (n = 0; n < problems->list.nelts; n++) {
            ngx_http_ratelimit_metrics_sample(out, 1,
                                         "zone", &zones[i]->limiter.zone.name,
                                         "id", &skipped[n].id,
                                         "pointer", &skipped[n].pointer,
                                         "reason", &skipped[n].detail, NULL);
        }
    }
}

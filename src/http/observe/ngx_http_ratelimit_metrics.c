/*
 * "ratelimit_metrics": what Prometheus reads, text format 0.0.4. A metric is a
 * row of the table below: who walks over its sources, the Redis blocks for
 * example, and the function that writes the samples of one of them. All is
 * read from memory that the workers of the node share, and nothing is changed.
 */

#include "ngx_http_ratelimit_conf.h"

#include "ngx_ratelimit_sync.h"

/* of a buffer, unless one line takes more */
#define NGX_HTTP_RATELIMIT_METRICS_BUFFER  4096

/* a byte of a label's value at most: "\\x7f" */
#define NGX_HTTP_RATELIMIT_METRICS_ESCAPE  5

typedef struct ngx_http_ratelimit_metric_s  ngx_http_ratelimit_metric_t;

typedef struct {
    ngx_http_ratelimit_main_conf_t  *conf;
    ngx_pool_t                      *pool;
    ngx_chain_t                     *first;
    ngx_chain_t                     *last;    /* its buffer is written to */
} ngx_http_ratelimit_metrics_t;

/* Lists of labels end with one without a name. */
typedef struct {
    const char       *name;
    const ngx_str_t  *value;
} ngx_http_ratelimit_label_t;

/* Both return NGX_OK, or NGX_ERROR when memory is out. */
typedef ngx_int_t (*ngx_http_ratelimit_metrics_walk_pt)(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric);
typedef ngx_int_t (*ngx_http_ratelimit_metrics_write_pt)(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);

struct ngx_http_ratelimit_metric_s {
    ngx_str_t                            name;
    ngx_str_t                            type;
    ngx_str_t                            help;   /* no "\", no line end */
    ngx_http_ratelimit_metrics_walk_pt   walk;
    ngx_http_ratelimit_metrics_write_pt  write;
    size_t                               offset; /* of total's number */
};

static ngx_int_t ngx_http_ratelimit_metrics_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_metrics_not_allowed(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_metrics_write(
    ngx_http_ratelimit_metrics_t *out);
static ngx_int_t ngx_http_ratelimit_metrics_head(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric);
static ngx_int_t ngx_http_ratelimit_metrics_sample(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric,
    const ngx_http_ratelimit_label_t *labels, uint64_t value);
static u_char *ngx_http_ratelimit_metrics_escape(u_char *p,
    const ngx_str_t *text);
static ngx_buf_t *ngx_http_ratelimit_metrics_room(
    ngx_http_ratelimit_metrics_t *out, size_t size);

static ngx_int_t ngx_http_ratelimit_metrics_each_redis(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric);
static ngx_int_t ngx_http_ratelimit_metrics_calls(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_error_replies(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_state(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_total(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_statuses(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric,
    const ngx_ratelimit_redis_t *redis, const char *label, ngx_uint_t first,
    const uint64_t *values);

static ngx_int_t ngx_http_ratelimit_metrics_each_follower(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric);
static ngx_int_t ngx_http_ratelimit_metrics_rules_version(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_rules_age(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_rules_reachable(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_rules_refused(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_rules_skipped(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_rules_skipped_info(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source);
static ngx_int_t ngx_http_ratelimit_metrics_zone(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric,
    const ngx_ratelimit_limiter_t *limiter, uint64_t value);

static const ngx_http_ratelimit_metric_t  ngx_http_ratelimit_metrics_table[] =
{
    { ngx_string("ratelimit_redis_calls_total"),
      ngx_string("counter"),
      ngx_string("Calls to Redis, by what became of them."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_calls, 0 },

    { ngx_string("ratelimit_redis_error_replies_total"),
      ngx_string("counter"),
      ngx_string("Error replies to calls, those that were healed too."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_error_replies, 0 },

    { ngx_string("ratelimit_redis_refreshes_total"),
      ngx_string("counter"),
      ngx_string("Questions to Redis which node serves what."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_total,
      offsetof(ngx_ratelimit_redis_stat_t, refreshes) },

    { ngx_string("ratelimit_redis_reconnects_total"),
      ngx_string("counter"),
      ngx_string("Connections that came back after they broke."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_total,
      offsetof(ngx_ratelimit_redis_stat_t, reconnects) },

    { ngx_string("ratelimit_redis_tls_handshakes_total"),
      ngx_string("counter"),
      ngx_string("TLS handshakes with Redis that succeeded."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_total,
      offsetof(ngx_ratelimit_redis_stat_t, handshakes) },

    { ngx_string("ratelimit_redis_tls_resumed_total"),
      ngx_string("counter"),
      ngx_string("TLS handshakes with Redis that resumed a session."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_total,
      offsetof(ngx_ratelimit_redis_stat_t, resumed) },

    { ngx_string("ratelimit_redis_breaker_opened_total"),
      ngx_string("counter"),
      ngx_string("Times that a shard's breaker opened."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_total,
      offsetof(ngx_ratelimit_redis_stat_t, opened) },

    { ngx_string("ratelimit_redis_breaker_state"),
      ngx_string("gauge"),
      ngx_string("A shard's breaker: 0 closed, 1 open, 2 readmits calls."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_state, 0 },

    { ngx_string("ratelimit_redis_nodes"),
      ngx_string("gauge"),
      ngx_string("Nodes that share the limits, this one among them."),
      ngx_http_ratelimit_metrics_each_redis,
      ngx_http_ratelimit_metrics_total,
      offsetof(ngx_ratelimit_redis_stat_t, gateways) },

    { ngx_string("ratelimit_rules_version"),
      ngx_string("gauge"),
      ngx_string("Version of a zone's document that requests go by, 0: none."),
      ngx_http_ratelimit_metrics_each_follower,
      ngx_http_ratelimit_metrics_rules_version, 0 },

    { ngx_string("ratelimit_rules_age_seconds"),
      ngx_string("gauge"),
      ngx_string("For how long requests have gone by that version."),
      ngx_http_ratelimit_metrics_each_follower,
      ngx_http_ratelimit_metrics_rules_age, 0 },

    { ngx_string("ratelimit_rules_reachable"),
      ngx_string("gauge"),
      ngx_string("1: Redis has said last what the document is."),
      ngx_http_ratelimit_metrics_each_follower,
      ngx_http_ratelimit_metrics_rules_reachable, 0 },

    { ngx_string("ratelimit_rules_refused"),
      ngx_string("gauge"),
      ngx_string("Version of the document that is not used here, 0: none."),
      ngx_http_ratelimit_metrics_each_follower,
      ngx_http_ratelimit_metrics_rules_refused, 0 },

    { ngx_string("ratelimit_rules_skipped"),
      ngx_string("gauge"),
      ngx_string("Rules and entries of the document that do not count here."),
      ngx_http_ratelimit_metrics_each_follower,
      ngx_http_ratelimit_metrics_rules_skipped, 0 },

    { ngx_string("ratelimit_rules_skipped_info"),
      ngx_string("gauge"),
      ngx_string("1 for each of them, with its place and the reason."),
      ngx_http_ratelimit_metrics_each_follower,
      ngx_http_ratelimit_metrics_rules_skipped_info, 0 },

    { ngx_null_string, ngx_null_string, ngx_null_string, NULL, NULL, 0 }
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
    off_t                          size;
    ngx_int_t                      rc;
    ngx_chain_t                   *cl;
    ngx_http_ratelimit_metrics_t   out;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return ngx_http_ratelimit_metrics_not_allowed(r);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&out, sizeof(ngx_http_ratelimit_metrics_t));

    out.conf = ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module);
    out.pool = r->pool;

    if (ngx_http_ratelimit_metrics_write(&out) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    size = 0;

    for (cl = out.first; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);

        if (cl->next == NULL) {
            cl->buf->last_buf = (r == r->main);
            cl->buf->last_in_chain = 1;
        }
    }

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = size;

    /* the length is the type's alone: nginx adds no charset then */

    ngx_str_set(&r->headers_out.content_type,
                "text/plain; version=0.0.4; charset=utf-8");
    r->headers_out.content_type_len = sizeof("text/plain") - 1;
    r->headers_out.content_type_lowcase = NULL;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, out.first);
}


static ngx_int_t
ngx_http_ratelimit_metrics_not_allowed(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    ngx_str_set(&h->key, "Allow");
    ngx_str_set(&h->value, "GET, HEAD");

    return NGX_HTTP_NOT_ALLOWED;
}


/* All of the table. Returns NGX_OK, or NGX_ERROR when memory is out. */

static ngx_int_t
ngx_http_ratelimit_metrics_write(ngx_http_ratelimit_metrics_t *out)
{
    const ngx_http_ratelimit_metric_t  *metric;

    for (metric = ngx_http_ratelimit_metrics_table; metric->name.len;
         metric++)
    {
        if (ngx_http_ratelimit_metrics_head(out, metric) != NGX_OK
            || metric->walk(out, metric) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_metrics_head(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric)
{
    size_t      size;
    ngx_buf_t  *b;

    size = sizeof("# HELP  \n# TYPE  \n") + 2 * metric->name.len
           + metric->help.len + metric->type.len;

    b = ngx_http_ratelimit_metrics_room(out, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "# HELP %V %V\n# TYPE %V %V\n",
                          &metric->name, &metric->help, &metric->name,
                          &metric->type);

    return NGX_OK;
}


/* One line; there is at least one label. */

static ngx_int_t
ngx_http_ratelimit_metrics_sample(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric,
    const ngx_http_ratelimit_label_t *labels, uint64_t value)
{
    u_char                            *p, ch;
    size_t                             size;
    ngx_buf_t                         *b;
    const ngx_http_ratelimit_label_t  *label;

    size = metric->name.len + sizeof("} \n") + NGX_INT64_LEN;

    for (label = labels; label->name; label++) {
        size += sizeof(",=\"\"") + ngx_strlen(label->name)
                + NGX_HTTP_RATELIMIT_METRICS_ESCAPE * label->value->len;
    }

    b = ngx_http_ratelimit_metrics_room(out, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(b->last, metric->name.data, metric->name.len);
    ch = '{';

    for (label = labels; label->name; label++) {
        p = ngx_sprintf(p, "%c%s=\"", ch, label->name);
        p = ngx_http_ratelimit_metrics_escape(p, label->value);
        *p++ = '"';
        ch = ',';
    }

    b->last = ngx_sprintf(p, "} %uL\n", value);

    return NGX_OK;
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


/* The buffer to write size bytes to, or NULL when memory is out. */

static ngx_buf_t *
ngx_http_ratelimit_metrics_room(ngx_http_ratelimit_metrics_t *out,
    size_t size)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (out->last) {
        b = out->last->buf;

        if ((size_t) (b->end - b->last) >= size) {
            return b;
        }
    }

    cl = ngx_alloc_chain_link(out->pool);
    if (cl == NULL) {
        return NULL;
    }

    size = ngx_max(size, NGX_HTTP_RATELIMIT_METRICS_BUFFER);

    cl->buf = ngx_create_temp_buf(out->pool, size);
    if (cl->buf == NULL) {
        return NULL;
    }

    cl->next = NULL;

    if (out->last) {
        out->last->next = cl;

    } else {
        out->first = cl;
    }

    out->last = cl;

    return cl->buf;
}


static ngx_int_t
ngx_http_ratelimit_metrics_each_redis(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric)
{
    ngx_uint_t               i;
    ngx_ratelimit_redis_t  **redis;

    redis = out->conf->redis.elts;

    for (i = 0; i < out->conf->redis.nelts; i++) {
        if (metric->write(out, metric, redis[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_metrics_calls(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_redis_stat_t  stat;

    ngx_ratelimit_redis_stat(source, &stat);

    return ngx_http_ratelimit_metrics_statuses(out, metric, source, "result",
                                      NGX_RATELIMIT_REDIS_OK, stat.calls);
}


static ngx_int_t
ngx_http_ratelimit_metrics_error_replies(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_redis_stat_t  stat;

    ngx_ratelimit_redis_stat(source, &stat);

    return ngx_http_ratelimit_metrics_statuses(out, metric, source, "error",
                                   NGX_RATELIMIT_REDIS_MOVED, stat.replies);
}


static ngx_int_t
ngx_http_ratelimit_metrics_state(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_redis_t *redis = source;

    ngx_queue_t                      *at;
    ngx_ratelimit_redis_node_stat_t   node;

    ngx_http_ratelimit_label_t  labels[] = {
        { "redis", &redis->name },
        { "shard", &node.name },
        { NULL, NULL }
    };

    at = NULL;

    while (ngx_ratelimit_redis_node_stat(redis, &at, &node) == NGX_OK) {
        if (ngx_http_ratelimit_metrics_sample(out, metric, labels,
                                              node.state)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* One number of a block, at the metric's offset. */

static ngx_int_t
ngx_http_ratelimit_metrics_total(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_redis_t *redis = source;

    ngx_ratelimit_redis_stat_t  stat;

    ngx_http_ratelimit_label_t  labels[] = {
        { "redis", &redis->name },
        { NULL, NULL }
    };

    ngx_ratelimit_redis_stat(redis, &stat);

    return ngx_http_ratelimit_metrics_sample(out, metric, labels,
                   *(uint64_t *) ((u_char *) &stat + metric->offset));
}


/*
 * One number for each status, from first on, zeros too: a rate is known from
 * the first failure on.
 */

static ngx_int_t
ngx_http_ratelimit_metrics_statuses(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric,
    const ngx_ratelimit_redis_t *redis, const char *label, ngx_uint_t first,
    const uint64_t *values)
{
    ngx_uint_t  i;

    ngx_http_ratelimit_label_t  labels[] = {
        { "redis", &redis->name },
        { label, NULL },
        { NULL, NULL }
    };

    for (i = first; i < NGX_RATELIMIT_REDIS_STATUSES; i++) {
        labels[1].value = ngx_ratelimit_redis_status_name(i);

        if (ngx_http_ratelimit_metrics_sample(out, metric, labels, values[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Each zone that follows a document. */

static ngx_int_t
ngx_http_ratelimit_metrics_each_follower(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric)
{
    ngx_uint_t                   i;
    ngx_http_ratelimit_zone_t  **zones;

    zones = out->conf->zones.elts;

    for (i = 0; i < out->conf->zones.nelts; i++) {
        if (zones[i]->limiter.follows
            && metric->write(out, metric, &zones[i]->limiter) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_metrics_rules_version(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_sync_stat_t  stat;

    ngx_ratelimit_sync_stat(source, &stat);

    return ngx_http_ratelimit_metrics_zone(out, metric, source,
                                           stat.compiled);
}


static ngx_int_t
ngx_http_ratelimit_metrics_rules_age(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    time_t                     now, since;
    ngx_ratelimit_sync_stat_t  stat;

    ngx_ratelimit_sync_stat(source, &stat);

    if (stat.compiled == 0) {
        return NGX_OK;
    }

    now = ngx_time();
    since = (time_t) (stat.swapped_ms / 1000);

    /* the clock may have been set back */

    return ngx_http_ratelimit_metrics_zone(out, metric, source,
                                           now > since ? now - since : 0);
}


static ngx_int_t
ngx_http_ratelimit_metrics_rules_reachable(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_limiter_t *limiter = source;

    ngx_ratelimit_sync_stat_t  stat;

    if (limiter->redis == NULL) {
        return NGX_OK;
    }

    ngx_ratelimit_sync_stat(limiter, &stat);

    return ngx_http_ratelimit_metrics_zone(out, metric, limiter,
                                           stat.reachable);
}


static ngx_int_t
ngx_http_ratelimit_metrics_rules_refused(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    ngx_ratelimit_sync_stat_t  stat;

    ngx_ratelimit_sync_stat(source, &stat);

    return ngx_http_ratelimit_metrics_zone(out, metric, source, stat.refused);
}


static ngx_int_t
ngx_http_ratelimit_metrics_rules_skipped(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    const ngx_ratelimit_limiter_t *limiter = source;

    return ngx_http_ratelimit_metrics_zone(out, metric, limiter,
                                           limiter->policy->skipped.n);
}


static ngx_int_t
ngx_http_ratelimit_metrics_rules_skipped_info(
    ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric, void *source)
{
    const ngx_ratelimit_limiter_t *limiter = source;

    ngx_uint_t                       i;
    const ngx_ratelimit_problem_t   *skipped;
    ngx_http_ratelimit_label_t       labels[] = {
        { "zone", &limiter->zone.name },
        { "id", NULL },
        { "pointer", NULL },
        { "reason", NULL },
        { NULL, NULL }
    };

    skipped = limiter->policy->skipped.list.elts;

    for (i = 0; i < limiter->policy->skipped.list.nelts; i++) {
        labels[1].value = &skipped[i].id;
        labels[2].value = &skipped[i].pointer;
        labels[3].value = &skipped[i].detail;

        if (ngx_http_ratelimit_metrics_sample(out, metric, labels, 1)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_metrics_zone(ngx_http_ratelimit_metrics_t *out,
    const ngx_http_ratelimit_metric_t *metric,
    const ngx_ratelimit_limiter_t *limiter, uint64_t value)
{
    ngx_http_ratelimit_label_t  labels[] = {
        { "zone", &limiter->zone.name },
        { NULL, NULL }
    };

    return ngx_http_ratelimit_metrics_sample(out, metric, labels, value);
}

/*
 * Writes metrics as text. The two formats differ in the names of counters above
 * their samples, in the type, and in the last line.
 */

#include "ngx_rl_metrics.h"
#include "ngx_rl_request.h"

/* a byte of a label's value at most: "\\x7f" */
#define NGX_RL_METRICS_ESCAPE  5

/* labels of a sample, the bound of a bucket among them */
#define NGX_RL_METRICS_LABELS  16

/* of a time in seconds, or any number */
#define NGX_RL_METRICS_NUMBER  (NGX_INT64_LEN + sizeof("-.000000"))

typedef struct {
    const char       *name;
    const ngx_str_t  *value;
} ngx_rl_metrics_label_t;

typedef struct {
    ngx_uint_t              n;
    ngx_rl_metrics_label_t  list[NGX_RL_METRICS_LABELS];
} ngx_rl_metrics_labels_t;


ngx_uint_t
ngx_rl_metrics_open(ngx_http_request_t *r)
{
    ngx_table_elt_t  *accept;

    static const ngx_str_t  name = ngx_string("accept");

    accept = ngx_rl_find_header(&r->headers_in.headers, &name);

    return accept
           && ngx_strlcasestrn(accept->value.data,
                               accept->value.data + accept->value.len,
                               (u_char *) "application/openmetrics-text",
                               sizeof("application/openmetrics-text") - 2)
              != NULL;
}


void
ngx_rl_metrics_head(ngx_rl_metrics_t *out)
{
    u_char                 *p;
    size_t                  size, len;
    const ngx_rl_metric_t  *metric;

    metric = out->metric;
    len = ngx_strlen(metric->name);
    size = sizeof("# HELP  \n# TYPE  \n") + 2 * len
           + ngx_strlen(metric->help) + ngx_strlen(metric->type);

    /* there, a counter's name is without what its samples end with */

    if (out->open && ngx_strcmp(metric->type, "counter") == 0) {
        len -= sizeof("_total") - 1;
    }

    p = ngx_rl_grow(out->pool, &out->body, size);
    if (p == NULL) {
        out->failed = 1;
        return;
    }

    p = ngx_sprintf(p, "# HELP %*s %s\n# TYPE %*s %s\n", len, metric->name,
                    metric->help, len, metric->name, metric->type);

    out->body.text.len = p - out->body.text.data;
}


static void
ngx_rl_metrics_collect(ngx_rl_metrics_labels_t *labels, va_list args)
{
    const char  *name;

    labels->n = 0;

    while ((name = va_arg(args, const char *)) != NULL) {
        labels->list[labels->n].name = name;
        labels->list[labels->n++].value = va_arg(args, const ngx_str_t *);
    }
}


static ngx_str_t
ngx_rl_metrics_number(u_char *p, uint64_t value)
{
    ngx_str_t  text;

    text.data = p;
    text.len = ngx_sprintf(p, "%uL", value) - p;

    return text;
}


/*
 * The format's three escapes. Bytes that Prometheus might not take, those of
 * no printable ASCII, stand there as text, "\x7f": one must not cost the rest.
 */
static u_char *
ngx_rl_metrics_escape(u_char *p, const ngx_str_t *text)
{
    u_char  ch;
    size_t  i;

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
ngx_rl_metrics_line(ngx_rl_metrics_t *out, const char *suffix,
    const ngx_rl_metrics_labels_t *labels, const ngx_str_t *value)
{
    u_char                        *p;
    size_t                         size;
    ngx_uint_t                     i;
    const ngx_rl_metrics_label_t  *label;

    size = ngx_strlen(out->metric->name) + ngx_strlen(suffix) + sizeof("} \n")
           + value->len;

    for (i = 0; i < labels->n; i++) {
        label = &labels->list[i];
        size += sizeof(",=\"\"") + ngx_strlen(label->name)
                + NGX_RL_METRICS_ESCAPE * label->value->len;
    }

    p = ngx_rl_grow(out->pool, &out->body, size);
    if (p == NULL) {
        out->failed = 1;
        return;
    }

    p = ngx_cpymem(p, out->metric->name, ngx_strlen(out->metric->name));
    p = ngx_cpymem(p, suffix, ngx_strlen(suffix));

    for (i = 0; i < labels->n; i++) {
        label = &labels->list[i];

        *p++ = i ? ',' : '{';
        p = ngx_cpymem(p, label->name, ngx_strlen(label->name));
        *p++ = '=';
        *p++ = '"';
        p = ngx_rl_metrics_escape(p, label->value);
        *p++ = '"';
    }

    *p++ = '}';
    *p++ = ' ';
    p = ngx_cpymem(p, value->data, value->len);
    *p++ = '\n';

    out->body.text.len = p - out->body.text.data;
}


void
ngx_rl_metrics_sample(ngx_rl_metrics_t *out, uint64_t value, ...)
{
    u_char                   buf[NGX_RL_METRICS_NUMBER];
    va_list                  args;
    ngx_str_t                text;
    ngx_rl_metrics_labels_t  labels;

    va_start(args, value);
    ngx_rl_metrics_collect(&labels, args);
    va_end(args);

    text = ngx_rl_metrics_number(buf, value);
    ngx_rl_metrics_line(out, "", &labels, &text);
}


/* "0.0025", "1.0", "-12.5": as Prometheus writes the bounds of buckets. */
static ngx_str_t
ngx_rl_metrics_time(u_char *p, int64_t us)
{
    uint64_t   abs_us;
    ngx_str_t  text;

    text.data = p;
    abs_us = (us < 0) ? (uint64_t) -us : (uint64_t) us;

    if (us < 0) {
        *p++ = '-';
    }

    p = ngx_sprintf(p, "%uL.%06uL", abs_us / 1000000, abs_us % 1000000);

    while (p[-1] == '0' && p[-2] != '.') {
        p--;
    }

    text.len = p - text.data;

    return text;
}


void
ngx_rl_metrics_seconds(ngx_rl_metrics_t *out, int64_t us, ...)
{
    u_char                   buf[NGX_RL_METRICS_NUMBER];
    va_list                  args;
    ngx_str_t                text;
    ngx_rl_metrics_labels_t  labels;

    va_start(args, us);
    ngx_rl_metrics_collect(&labels, args);
    va_end(args);

    text = ngx_rl_metrics_time(buf, us);
    ngx_rl_metrics_line(out, "", &labels, &text);
}


void
ngx_rl_metrics_histogram(ngx_rl_metrics_t *out,
    const uint64_t words[NGX_RL_HISTOGRAM_WORDS], ...)
{
    u_char                   buf[NGX_RL_METRICS_NUMBER];
    u_char                   of[NGX_RL_METRICS_NUMBER];
    va_list                  args;
    uint64_t                 n;
    ngx_str_t                text, bound;
    ngx_uint_t               i;
    ngx_rl_metrics_labels_t  labels;

    va_start(args, words);
    ngx_rl_metrics_collect(&labels, args);
    va_end(args);

    labels.list[labels.n].name = "le";
    labels.list[labels.n++].value = &bound;
    n = 0;

    for (i = 0; i <= NGX_RL_HISTOGRAM_BOUNDS; i++) {

        if (i < NGX_RL_HISTOGRAM_BOUNDS) {
            bound = ngx_rl_metrics_time(of,
                               (int64_t) ngx_rl_histogram_bounds_us[i]);
        } else {
            ngx_str_set(&bound, "+Inf");
        }

        n += words[i];
        text = ngx_rl_metrics_number(buf, n);
        ngx_rl_metrics_line(out, "_bucket", &labels, &text);
    }

    labels.n--;

    ngx_rl_metrics_line(out, "_count", &labels, &text);
    text = ngx_rl_metrics_time(buf, (int64_t) words[NGX_RL_HISTOGRAM_SUM]);
    ngx_rl_metrics_line(out, "_sum", &labels, &text);
}


ngx_int_t
ngx_rl_metrics_send(ngx_http_request_t *r, ngx_rl_metrics_t *out)
{
    u_char  *p;

    static const ngx_str_t  type =
        ngx_string("text/plain; version=0.0.4; charset=utf-8");
    static const ngx_str_t  open =
        ngx_string("application/openmetrics-text; version=1.0.0; "
                   "charset=utf-8");

    if (out->open) {
        p = ngx_rl_grow(out->pool, &out->body, sizeof("# EOF\n"));
        if (p == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        p = ngx_cpymem(p, "# EOF\n", sizeof("# EOF\n") - 1);
        out->body.text.len = p - out->body.text.data;
    }

    if (out->failed || ngx_rl_header(r, "Vary", "Accept") != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_rl_send(r, NGX_HTTP_OK, out->open ? &open : &type,
                       &out->body.text);
}

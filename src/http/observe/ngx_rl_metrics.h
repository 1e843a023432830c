/*
 * The text that Prometheus reads: format 0.0.4, or OpenMetrics 1.0. metrics.c
 * says what stands in it, metrics_text.c how.
 */

#ifndef NGX_RL_METRICS_H_INCLUDED
#define NGX_RL_METRICS_H_INCLUDED

#include "ngx_rl_http.h"
#include "ngx_rl_json.h"

typedef struct ngx_rl_metric_s  ngx_rl_metric_t;

typedef struct {
    ngx_pool_t             *pool;
    ngx_rl_growing_t        body;
    const ngx_rl_metric_t  *metric;    /* that is written */
    unsigned                open:1;    /* OpenMetrics */
    unsigned                failed:1;  /* memory is out */
} ngx_rl_metrics_t;

struct ngx_rl_metric_s {
    const char  *name;
    const char  *type;
    const char  *help;      /* no "\", no line end */
    void       (*write)(ngx_rl_metrics_t *out, const void *item);
    size_t       offset;    /* for write: where the number is */
};

/* Whether the client accepts OpenMetrics. */
ngx_uint_t ngx_rl_metrics_open(ngx_http_request_t *r);

/* Writes what stands above the samples of out->metric. */
void ngx_rl_metrics_head(ngx_rl_metrics_t *out);

/*
 * Write a sample of out->metric: a number, a time in microseconds as seconds,
 * or all lines of a histogram. Behind it its labels, one to four: a name and an
 * ngx_str_t * each; then NULL.
 */
void ngx_rl_metrics_sample(ngx_rl_metrics_t *out, uint64_t value, ...);
void ngx_rl_metrics_seconds(ngx_rl_metrics_t *out, int64_t us, ...);
void ngx_rl_metrics_histogram(ngx_rl_metrics_t *out,
    const uint64_t words[NGX_RL_HISTOGRAM_WORDS], ...);

/* Answers the request with what was written. */
ngx_int_t ngx_rl_metrics_send(ngx_http_request_t *r, ngx_rl_metrics_t *out);

#endif /* NGX_RL_METRICS_H_INCLUDED */

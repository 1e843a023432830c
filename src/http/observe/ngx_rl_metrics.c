/*
 * "ratelimit_metrics": what Prometheus reads, as format 0.0.4 or OpenMetrics
 * 1.0. A metric is a row of a table below, with the function that writes its
 * samples of one item: of a row of counts, of a zone, or of a Redis. All is
 * read from memory that the workers of the gateway share, and no request waits
 * meanwhile.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_json.h"
#include "ngx_rl_request.h"

#include "ngx_rl_fleet.h"
#include "ngx_rl_follow.h"

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

typedef struct ngx_rl_metric_s  ngx_rl_metric_t;

typedef struct {
    ngx_pool_t             *pool;
    ngx_rl_growing_t        body;
    const ngx_rl_metric_t  *metric;    /* that is written */
    unsigned                open:1;    /* OpenMetrics */
    unsigned                failed:1;  /* memory is out */
} ngx_rl_metrics_t;

typedef void (*ngx_rl_metric_pt)(ngx_rl_metrics_t *out, const void *item);

struct ngx_rl_metric_s {
    const char       *name;    /* of a counter it ends with "_total" */
    ngx_rl_metric_pt  write;   /* NULL: a number of an item */
    size_t            offset;  /* for write: where the number is */
    const char       *help;    /* no "\", no line end */
};

/* a number that an item does not have */
#define NGX_RL_METRICS_NONE  ((uint64_t) -1)

/* A zone, a Redis, or a block of peers: its name and its figures. */
typedef struct {
    const char             *label;      /* of its name */
    const ngx_str_t        *name;
    ngx_rl_limiter_t       *limiter;    /* NULL: no zone */
    ngx_rl_redis_t         *redis;      /* NULL: no Redis */
    uint64_t                version;
    uint64_t                age;
    uint64_t                reachable;
    uint64_t                saved;
    uint64_t                refused;
    uint64_t                skipped;
    uint64_t                uncounted;
    uint64_t                heaviest;   /* key: requests a second */
    uint64_t                penalties;  /* in force */
    ngx_rl_segments_stat_t  table;
    ngx_rl_segments_stat_t  leases;
    ngx_rl_redis_stat_t     stat;
    uint64_t                peers;      /* connected */
    uint64_t                with_redis; /* peers */
    uint64_t                told[2];    /* messages: in, out */
    uint64_t                bytes[2];   /* of them */
    uint64_t                strangers;
    uint64_t                slow;       /* peers, dropped */
    uint64_t                changes;    /* lost */
    uint64_t                replaced;   /* versions */
} ngx_rl_metrics_item_t;

/*
 * The numbers that a rule or a zone can have: bits. Such a one is shown at 0: a
 * rate is known from the first request on. Any other number is shown from its
 * first request on.
 */
#define NGX_RL_METRICS_LIVE       0x001
#define NGX_RL_METRICS_SHARED     0x002   /* a Redis */
#define NGX_RL_METRICS_STRICT     0x004   /* sync=strict */
#define NGX_RL_METRICS_DRY        0x008   /* dry_run */
#define NGX_RL_METRICS_DELAYS     0x010
#define NGX_RL_METRICS_CLOSED     0x020   /* fail_mode=closed */
#define NGX_RL_METRICS_DENIES     0x040   /* a deny list, or a document */
#define NGX_RL_METRICS_PENALIZES  0x080
#define NGX_RL_METRICS_NEW_KEYS   0x100
#define NGX_RL_METRICS_REMEMBERS  0x200   /* rejections */

/* beside the sources: a rejection out of a lease */
#define NGX_RL_METRICS_MEMORY  (NGX_RL_SOURCE_FALLBACK + 1)

/* Bits that are needed for it, and bits that exclude it. */
typedef struct {
    ngx_uint_t  needs;
    ngx_uint_t  lacks;
} ngx_rl_metrics_can_t;

/* A row of counts; what its rule or its zone has, if it is in use. */
typedef struct {
    ngx_rl_counts_row_t      counts;   /* first */
    ngx_uint_t               traits;
    const ngx_rl_limiter_t  *limiter;  /* NULL: none has its name */
} ngx_rl_metrics_row_t;

#define ngx_rl_at(member)  offsetof(ngx_rl_metrics_item_t, member)

const ngx_str_t  ngx_rl_outcomes[] = {
    ngx_null_string,                   /* BYPASSED */
    ngx_string("passed"),
    ngx_string("delayed_dry_run"),
    ngx_string("rejected_dry_run"),
    ngx_string("delayed"),
    ngx_string("degraded"),
    ngx_null_string,                   /* DENIED_DRY_RUN */
    ngx_string("unavailable"),
    ngx_string("rejected"),
    ngx_null_string,                   /* DENIED */
    ngx_null_string                    /* PENALIZED */
};

/* by ngx_rl_source_e */
static const ngx_str_t  ngx_rl_metrics_source[] = {
    ngx_null_string,
    ngx_string("local"),
    ngx_string("lease"),
    ngx_string("redis"),
    ngx_string("fallback"),
    ngx_string("memory")
};

static const ngx_str_t  ngx_rl_metrics_lost[] = {
    ngx_string("new"),
    ngx_string("known"),
    ngx_string("rejecting")
};


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
ngx_rl_metrics_digits(u_char *p, uint64_t value)
{
    ngx_str_t  text;

    text = ngx_rl_str(p, ngx_sprintf(p, "%uL", value) - p);

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


/*
 * A sample of out->metric: a number. Behind it its labels, one to four: a name
 * and an ngx_str_t * each; then NULL. So have the two functions below it.
 */
static void
ngx_rl_metrics_sample(ngx_rl_metrics_t *out, uint64_t value, ...)
{
    u_char                   buf[NGX_RL_METRICS_NUMBER];
    va_list                  args;
    ngx_str_t                text;
    ngx_rl_metrics_labels_t  labels;

    va_start(args, value);
    ngx_rl_metrics_collect(&labels, args);
    va_end(args);

    text = ngx_rl_metrics_digits(buf, value);
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


static void
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


static void
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
        text = ngx_rl_metrics_digits(buf, n);
        ngx_rl_metrics_line(out, "_bucket", &labels, &text);
    }

    labels.n--;

    ngx_rl_metrics_line(out, "_count", &labels, &text);
    text = ngx_rl_metrics_time(buf, (int64_t) words[NGX_RL_HISTOGRAM_SUM]);
    ngx_rl_metrics_line(out, "_sum", &labels, &text);
}


static ngx_uint_t
ngx_rl_metrics_can(ngx_uint_t traits, const ngx_rl_metrics_can_t *can)
{
    return (traits & NGX_RL_METRICS_LIVE) && (traits & can->needs) == can->needs
           && (traits & can->lacks) == 0;
}


static void
ngx_rl_metrics_outcomes(ngx_rl_metrics_t *out, const ngx_rl_counts_row_t *row,
    ngx_rl_status_e status)
{
    uint64_t         n;
    ngx_uint_t       name, traits;
    ngx_rl_source_e  source;

    static const ngx_rl_metrics_can_t  statuses[] = {
        [NGX_RL_PASSED] = { 0, 0 },
        [NGX_RL_DELAYED_DRY_RUN] = {
            NGX_RL_METRICS_DRY|NGX_RL_METRICS_DELAYS, 0 },
        [NGX_RL_REJECTED_DRY_RUN] = { NGX_RL_METRICS_DRY, 0 },
        [NGX_RL_DELAYED] = { NGX_RL_METRICS_DELAYS, NGX_RL_METRICS_DRY },
        [NGX_RL_DEGRADED] = { NGX_RL_METRICS_SHARED, NGX_RL_METRICS_CLOSED },
        [NGX_RL_DENIED_DRY_RUN] = { 0, NGX_RL_METRICS_LIVE },
        [NGX_RL_UNAVAILABLE] = {
            NGX_RL_METRICS_SHARED|NGX_RL_METRICS_CLOSED, 0 },
        [NGX_RL_REJECTED] = { 0, NGX_RL_METRICS_DRY }
    };

    static const ngx_rl_metrics_can_t  sources[] = {
        [NGX_RL_SOURCE_LOCAL] = { 0, NGX_RL_METRICS_SHARED },
        [NGX_RL_SOURCE_LEASE] = {
            NGX_RL_METRICS_SHARED, NGX_RL_METRICS_STRICT },
        [NGX_RL_SOURCE_REDIS] = { NGX_RL_METRICS_SHARED, 0 },
        [NGX_RL_SOURCE_FALLBACK] = { NGX_RL_METRICS_SHARED, 0 },
        [NGX_RL_METRICS_MEMORY] = {
            NGX_RL_METRICS_SHARED|NGX_RL_METRICS_REMEMBERS, 0 }
    };

    traits = ((const ngx_rl_metrics_row_t *) row)->traits;

    for (source = NGX_RL_SOURCE_LOCAL;
         source <= NGX_RL_SOURCE_FALLBACK; source++)
    {
        n = row->words[ngx_rl_counts_word(status, source)];
        name = source;

        if (source == NGX_RL_SOURCE_LEASE
            && (status == NGX_RL_REJECTED || status == NGX_RL_REJECTED_DRY_RUN))
        {
            name = NGX_RL_METRICS_MEMORY;
        }

        if (n == 0
            && ((source == NGX_RL_SOURCE_FALLBACK)
                != (status == NGX_RL_DEGRADED || status == NGX_RL_UNAVAILABLE)
                || !ngx_rl_metrics_can(traits, &statuses[status])
                || !ngx_rl_metrics_can(traits, &sources[name])))
        {
            continue;
        }

        ngx_rl_metrics_sample(out, n, "zone", &row->zone, "rule", &row->rule,
                              "outcome", &ngx_rl_outcomes[status],
                              "source", &ngx_rl_metrics_source[name], NULL);
    }
}


/* A list and a penalty are of a zone, not of a rule. */
static void
ngx_rl_metrics_requests(ngx_rl_metrics_t *out, const void *item)
{
    ngx_uint_t                   i;
    ngx_rl_status_e              status;
    const ngx_rl_counts_row_t   *row;
    const ngx_rl_metrics_row_t  *of;

    static const struct {
        ngx_str_t             name;
        ngx_uint_t            word;
        ngx_rl_metrics_can_t  can;
    } outcomes[] = {
        { ngx_string("denied"), NGX_RL_COUNTS_DENIED,
          { NGX_RL_METRICS_DENIES, 0 } },
        { ngx_string("denied_dry_run"), NGX_RL_COUNTS_DENIED_DRY_RUN,
          { 0, NGX_RL_METRICS_LIVE } },
        { ngx_string("penalized"), NGX_RL_COUNTS_PENALIZED,
          { NGX_RL_METRICS_PENALIZES, 0 } }
    };

    of = item;
    row = item;

    if (row->kind == NGX_RL_COUNTS_RULE) {
        for (status = NGX_RL_PASSED; status < NGX_RL_DENIED; status++) {
            ngx_rl_metrics_outcomes(out, row, status);
        }
    }

    if (row->kind != NGX_RL_COUNTS_ZONE) {
        return;
    }

    for (i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
        if (row->words[outcomes[i].word]
            || ngx_rl_metrics_can(of->traits, &outcomes[i].can))
        {
            ngx_rl_metrics_sample(out, row->words[outcomes[i].word], "zone",
                &row->zone, "rule", &row->rule, "outcome", &outcomes[i].name,
                "source", &ngx_rl_metrics_source[NGX_RL_SOURCE_LOCAL], NULL);
        }
    }
}


static void
ngx_rl_metrics_costs(ngx_rl_metrics_t *out, const void *item)
{
    uint64_t                    n;
    const ngx_rl_counts_row_t  *row;

    row = item;
    n = row->words[NGX_RL_COUNTS_COST];

    if (row->kind == NGX_RL_COUNTS_RULE && (n || row->zone.len)) {
        ngx_rl_metrics_sample(out, n, "zone", &row->zone,
                              "rule", &row->rule, NULL);
    }
}


/* The histograms of zones; the row's kind is the metric's offset. */
static void
ngx_rl_metrics_times(ngx_rl_metrics_t *out, const void *item)
{
    const ngx_rl_counts_row_t  *row;

    row = item;

    if (row->kind == out->metric->offset && row->zone.len) {
        ngx_rl_metrics_histogram(out, row->words, "zone", &row->zone, NULL);
    }
}


/* By action, those that had no place, and those of networks. */
static void
ngx_rl_metrics_penalties(ngx_rl_metrics_t *out, const void *item)
{
    ngx_str_t                    action;
    ngx_uint_t                   i, n, can;
    ngx_rl_penalty_t           **penalties;
    const ngx_rl_counts_row_t   *row;
    const ngx_rl_metrics_row_t  *of;

    of = item;
    row = item;
    can = 0;

    if (row->kind != NGX_RL_COUNTS_ZONE) {
        return;
    }

    if (of->limiter && of->limiter->penalties) {
        penalties = of->limiter->penalties->elts;
        can = 1u << NGX_RL_PENALTY_NONE;

        for (n = 0; n < of->limiter->penalties->nelts; n++) {
            can |= 1u << penalties[n]->action;
            can |= (unsigned) penalties[n]->address << NGX_RL_PENALTY_NETWORK;
        }
    }

    for (i = 0; i < NGX_RL_PENALTY_COUNTS; i++) {

        if (row->words[NGX_RL_COUNTS_PENALTIES + i] == 0 && !(can & (1u << i)))
        {
            continue;
        }

        action.data = (u_char *) ((i < NGX_RL_PENALTY_ACTIONS)
                                  ? ngx_rl_penalty_actions[i]
                                  : (i == NGX_RL_PENALTY_NONE)
                                    ? "none" : "network");
        action.len = ngx_strlen(action.data);

        ngx_rl_metrics_sample(out, row->words[NGX_RL_COUNTS_PENALTIES + i],
                              "zone", &row->zone, "action", &action, NULL);
    }
}


/* A word of the rows of zones. */
static void
ngx_rl_metrics_of_zone(ngx_rl_metrics_t *out, const void *item)
{
    uint64_t                     n;
    const ngx_rl_counts_row_t   *row;
    const ngx_rl_metrics_row_t  *of;

    static const ngx_rl_metrics_can_t  words[NGX_RL_COUNTS_PENALTIES] = {
        [NGX_RL_COUNTS_LOST] = { NGX_RL_METRICS_SHARED, 0 },
        [NGX_RL_COUNTS_LEASE_CALLS] = { NGX_RL_METRICS_SHARED, 0 },
        [NGX_RL_COUNTS_BY_NETWORK] = { NGX_RL_METRICS_NEW_KEYS, 0 },
        [NGX_RL_COUNTS_TOO_MANY] = { 0, 0 }
    };

    of = item;
    row = item;
    n = row->words[out->metric->offset];

    if (row->kind == NGX_RL_COUNTS_ZONE
        && (n || ngx_rl_metrics_can(of->traits, &words[out->metric->offset])))
    {
        ngx_rl_metrics_sample(out, n, "zone", &row->zone, NULL);
    }
}


static void
ngx_rl_metrics_saved(ngx_rl_metrics_t *out, const void *item)
{
    uint64_t                    n;
    ngx_rl_status_e             status;
    const ngx_rl_counts_row_t  *row;

    row = item;

    if (row->kind != NGX_RL_COUNTS_RULE || !row->shared) {
        return;
    }

    n = 0;

    for (status = NGX_RL_PASSED; status < NGX_RL_DENIED; status++) {
        n += row->words[ngx_rl_counts_word(status, NGX_RL_SOURCE_LEASE)];
    }

    ngx_rl_metrics_sample(out, n, "zone", &row->zone, "rule", &row->rule, NULL);
}


static const ngx_rl_metric_t  ngx_rl_row_metrics[] =
{
    { "ratelimit_requests_total", ngx_rl_metrics_requests, 0,
      "Requests by what a rule decided. One that is refused counts once." },

    { "ratelimit_cost_total", ngx_rl_metrics_costs, 0,
      "Tokens that requests have taken from a rule's counters." },

    { "ratelimit_wait_seconds", ngx_rl_metrics_times, NGX_RL_COUNTS_WAIT,
      "How long checks waited for Redis; only those that waited." },

    { "ratelimit_delay_seconds", ngx_rl_metrics_times, NGX_RL_COUNTS_DELAY,
      "How long leaky buckets delayed requests; only the delayed ones." },

    { "ratelimit_penalties_total", ngx_rl_metrics_penalties, 0,
      "Penalties that began on this gateway." },

    { "ratelimit_rules_not_counted_total", ngx_rl_metrics_of_zone,
      NGX_RL_COUNTS_TOO_MANY,
      "Requests with more matching rules than are counted, by zone." },

    { "ratelimit_new_keys_exceeded_total", ngx_rl_metrics_of_zone,
      NGX_RL_COUNTS_BY_NETWORK,
      "Requests counted by their network: it has brought too many new keys." },

    { "ratelimit_lease_calls_total", ngx_rl_metrics_of_zone,
      NGX_RL_COUNTS_LEASE_CALLS,
      "Calls to Redis for leases, for many requests each." },

    { "ratelimit_lease_calls_saved_total", ngx_rl_metrics_saved, 0,
      "Decisions that took no call, since this gateway knew the answer." },

    { "ratelimit_state_lost_total", ngx_rl_metrics_of_zone, NGX_RL_COUNTS_LOST,
      "Counters that Redis has lost, although this gateway knew them in use." },

    { NULL, NULL, 0, NULL }
};


/* A number of a zone or a Redis. */
static void
ngx_rl_metrics_number(ngx_rl_metrics_t *out, const void *item)
{
    uint64_t                      value;
    const ngx_rl_metrics_item_t  *it;

    it = item;
    value = *(const uint64_t *) ((const u_char *) item + out->metric->offset);

    if (value != NGX_RL_METRICS_NONE) {
        ngx_rl_metrics_sample(out, value, it->label, it->name, NULL);
    }
}


static void
ngx_rl_metrics_evicted(ngx_rl_metrics_t *out, const void *item)
{
    ngx_uint_t                    lost;
    const ngx_rl_metrics_item_t  *it;

    it = item;

    for (lost = 0; it->limiter && lost < NGX_RL_LOST; lost++) {
        ngx_rl_metrics_sample(out, it->table.lost_of[lost], "zone", it->name,
                              "lost", &ngx_rl_metrics_lost[lost], NULL);
    }
}


static void
ngx_rl_metrics_skipped(ngx_rl_metrics_t *out, const void *item)
{
    ngx_uint_t                    i;
    const ngx_array_t            *list;
    const ngx_rl_problem_t       *skipped;
    const ngx_rl_metrics_item_t  *it;

    it = item;

    if (it->limiter == NULL || !it->limiter->follows) {
        return;
    }

    list = &it->limiter->policy->skipped.list;
    skipped = list->elts;

    for (i = 0; i < list->nelts; i++) {
        ngx_rl_metrics_sample(out, 1, "zone", it->name, "id", &skipped[i].id,
                              "pointer", &skipped[i].pointer, "reason",
                              &skipped[i].detail, NULL);
    }
}


/* The samples of each Redis node. */
static void
ngx_rl_metrics_nodes(ngx_rl_metrics_t *out, const void *item)
{
    ngx_uint_t                    state;
    ngx_queue_t                  *at;
    ngx_rl_redis_node_stat_t      node;
    const ngx_rl_metrics_item_t  *it;

    it = item;
    at = NULL;
    state = (out->metric->offset == offsetof(ngx_rl_redis_node_stat_t, state));

    while (it->redis && ngx_rl_redis_node_stat(it->redis, &at, &node) == NGX_OK)
    {
        ngx_rl_metrics_sample(out, state ? (uint64_t) node.state
                                         : (uint64_t) node.connected,
                              "redis", it->name, "node", &node.name, NULL);
    }
}


static void
ngx_rl_metrics_calls(ngx_rl_metrics_t *out, const void *item)
{
    ngx_queue_t                  *at;
    ngx_rl_redis_node_stat_t      node;
    const ngx_rl_metrics_item_t  *it;

    it = item;
    at = NULL;

    while (it->redis && ngx_rl_redis_node_stat(it->redis, &at, &node) == NGX_OK)
    {
        ngx_rl_metrics_histogram(out, node.times, "redis", it->name, "node",
                                 &node.name, NULL);
    }
}


/*
 * One number for each result, or for each error; zeros too: a rate is known
 * from the first failure on.
 */
static void
ngx_rl_metrics_statuses(ngx_rl_metrics_t *out, const void *item)
{
    ngx_uint_t                    status, errors;
    const uint64_t               *values;
    const ngx_rl_metrics_item_t  *it;

    it = item;
    errors = (out->metric->offset == ngx_rl_at(stat.replies));
    values = errors ? it->stat.replies : it->stat.calls;

    for (status = errors ? NGX_RL_REDIS_MOVED : NGX_RL_REDIS_OK;
         it->redis && status < NGX_RL_REDIS_STATUSES;
         status++)
    {
        ngx_rl_metrics_sample(out, values[status],
                               "redis", it->name, errors ? "error" : "result",
                               ngx_rl_redis_status_name(status), NULL);
    }
}


/* Seconds of a Redis, if they are known. */
static void
ngx_rl_metrics_ages(ngx_rl_metrics_t *out, const void *item)
{
    ngx_uint_t                    clock;
    const ngx_rl_metrics_item_t  *it;

    it = item;
    clock = (out->metric->offset == ngx_rl_at(stat.clock_ms));

    if (it->redis && (clock ? it->stat.clocked : it->stat.mapped)) {
        ngx_rl_metrics_seconds(out, clock ? it->stat.clock_ms * 1000
                                          : it->stat.map_age_ms * 1000,
                               "redis", it->name, NULL);
    }
}


static const ngx_rl_metric_t  ngx_rl_item_metrics[] =
{
    { "ratelimit_penalties_active", NULL, ngx_rl_at(penalties),
      "Keys that are penalized now." },

    { "ratelimit_table_places", NULL, ngx_rl_at(table.places),
      "Counters that a zone's table has room for." },

    { "ratelimit_table_used", NULL, ngx_rl_at(table.busy),
      "Places of live counters; of a large table an estimate." },

    { "ratelimit_table_evicted_total", ngx_rl_metrics_evicted, 0,
      "Live counters that a full table lost." },

    { "ratelimit_lease_places", NULL, ngx_rl_at(leases.places),
      "Leases that a zone has room for." },

    { "ratelimit_lease_used", NULL, ngx_rl_at(leases.busy),
      "Places of leases in use; of a large table an estimate." },

    { "ratelimit_lease_tokens", NULL, ngx_rl_at(leases.tokens),
      "Tokens in hand, debited in Redis; of a large table an estimate." },

    { "ratelimit_lease_refused_total", NULL, ngx_rl_at(leases.lost),
      "Leases that had no place: their requests ask Redis." },

    { "ratelimit_top_key_requests_per_second", NULL, ngx_rl_at(heaviest),
      "Requests of the heaviest key; of the last minute or two, an estimate." },

    { "ratelimit_rules_version", NULL, ngx_rl_at(version),
      "Version of a zone's document that this gateway uses, 0: none." },

    { "ratelimit_rules_age_seconds", NULL, ngx_rl_at(age),
      "Time since this gateway uses that version." },

    { "ratelimit_rules_reachable", NULL, ngx_rl_at(reachable),
      "1: Redis has answered the last poll for the document." },

    { "ratelimit_rules_saved", NULL, ngx_rl_at(saved),
      "1: the state file has the newest version, or the zone has none." },

    { "ratelimit_rules_refused_version", NULL, ngx_rl_at(refused),
      "Version of the document that is not used here, 0: none." },

    { "ratelimit_rules_skipped", NULL, ngx_rl_at(skipped),
      "Rules and entries of the document that this gateway skips." },

    { "ratelimit_rules_skipped_info", ngx_rl_metrics_skipped, 0,
      "1 for each of them, with its place and the reason." },

    { "ratelimit_rules_uncounted", NULL, ngx_rl_at(uncounted),
      "Rules without series of their own: there is no room for them." },

    { "ratelimit_redis_call_seconds", ngx_rl_metrics_calls, 0,
      "How long calls of checks took, from the write to the reply." },

    { "ratelimit_redis_clock_offset_seconds", ngx_rl_metrics_ages,
      ngx_rl_at(stat.clock_ms), "Redis' clock less this gateway's." },

    { "ratelimit_redis_calls_total", ngx_rl_metrics_statuses,
      ngx_rl_at(stat.calls), "Calls to Redis, by result." },

    { "ratelimit_redis_error_replies_total", ngx_rl_metrics_statuses,
      ngx_rl_at(stat.replies),
      "Error replies to calls, also those that the gateway has healed." },

    { "ratelimit_redis_refreshes_total", NULL, ngx_rl_at(stat.refreshes),
      "Requests for the slot map, or for the master." },

    { "ratelimit_redis_reconnects_total", NULL, ngx_rl_at(stat.reconnects),
      "Connections that came back after they broke." },

    { "ratelimit_redis_tls_handshakes_total", NULL, ngx_rl_at(stat.handshakes),
      "TLS handshakes with Redis that succeeded." },

    { "ratelimit_redis_tls_resumed_total", NULL, ngx_rl_at(stat.resumed),
      "TLS handshakes with Redis that resumed a session." },

    { "ratelimit_redis_breaker_opened_total", NULL, ngx_rl_at(stat.opened),
      "Times that the breaker of a Redis node opened." },

    { "ratelimit_redis_breaker_state", ngx_rl_metrics_nodes,
      offsetof(ngx_rl_redis_node_stat_t, state),
      "The breaker of a Redis node: 0 closed, 1 open, 2 readmits calls." },

    { "ratelimit_redis_topology_age_seconds", ngx_rl_metrics_ages,
      ngx_rl_at(stat.map_age_ms),
      "Time since a Sentinel named the master, or a node the slot map." },

    { "ratelimit_redis_connected", ngx_rl_metrics_nodes,
      offsetof(ngx_rl_redis_node_stat_t, connected),
      "Whether a worker is connected to the Redis node." },

    { "ratelimit_gateways", NULL, ngx_rl_at(stat.gateways),
      "Live gateways that share the limits, this one among them." },

    { "ratelimit_peers_connected", NULL, ngx_rl_at(peers),
      "Other gateways with a connection to this one." },

    { "ratelimit_peers_with_redis", NULL, ngx_rl_at(with_redis),
      "Other gateways to which Redis answers." },

    { "ratelimit_peers_received_messages_total", NULL, ngx_rl_at(told[0]),
      "Messages of other gateways." },

    { "ratelimit_peers_sent_messages_total", NULL, ngx_rl_at(told[1]),
      "Messages to other gateways." },

    { "ratelimit_peers_received_bytes_total", NULL, ngx_rl_at(bytes[0]),
      "Bytes of messages of other gateways." },

    { "ratelimit_peers_sent_bytes_total", NULL, ngx_rl_at(bytes[1]),
      "Bytes of messages to other gateways." },

    { "ratelimit_peers_refused_total", NULL, ngx_rl_at(strangers),
      "Connections of what is no peer." },

    { "ratelimit_peers_dropped_total", NULL, ngx_rl_at(slow),
      "Other gateways that could not keep up, and began anew." },

    { "ratelimit_peers_lost_changes_total", NULL, ngx_rl_at(changes),
      "Spends that other gateways were not told." },

    { "ratelimit_peers_replaced_versions_total", NULL, ngx_rl_at(replaced),
      "Versions of rules replaced by a peer that did not know them." },

    { NULL, NULL, 0, NULL }
};


/* The two lines above the samples of a metric. */
static void
ngx_rl_metrics_head(ngx_rl_metrics_t *out)
{
    u_char                 *p;
    size_t                  size, len;
    ngx_uint_t              total;
    const char             *type;
    const ngx_rl_metric_t  *metric;

    metric = out->metric;
    len = ngx_strlen(metric->name);
    total = (ngx_strcmp(metric->name + len - (sizeof("_total") - 1), "_total")
             == 0);
    type = total ? "counter"
           : (metric->write == ngx_rl_metrics_times
              || metric->write == ngx_rl_metrics_calls) ? "histogram"
           : "gauge";
    size = sizeof("# HELP  \n# TYPE  \n") + 2 * len + ngx_strlen(metric->help)
           + ngx_strlen(type);

    /* there, a counter's name is without what its samples end with */

    if (out->open && total) {
        len -= sizeof("_total") - 1;
    }

    p = ngx_rl_grow(out->pool, &out->body, size);
    if (p == NULL) {
        out->failed = 1;
        return;
    }

    p = ngx_sprintf(p, "# HELP %*s %s\n# TYPE %*s %s\n", len, metric->name,
                    metric->help, len, metric->name, type);

    out->body.text.len = p - out->body.text.data;
}


/* Rows stand in the order of their places; NULL: it has none of its own. */
static ngx_rl_metrics_row_t *
ngx_rl_metrics_row(ngx_array_t *rows, uint32_t place)
{
    ngx_uint_t             low, high, middle;
    ngx_rl_metrics_row_t  *elts;

    elts = rows->elts;
    low = 0;
    high = rows->nelts;

    while (low < high) {
        middle = (low + high) / 2;

        if (elts[middle].counts.place < place) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    return (low < rows->nelts && elts[low].counts.place == place
            && elts[low].counts.zone.len)
           ? &elts[low] : NULL;
}


static void
ngx_rl_metrics_zone_traits(ngx_array_t *rows, const ngx_rl_limiter_t *limiter)
{
    ngx_uint_t              i, traits;
    ngx_rl_rule_t         **rules, *rule;
    const ngx_rl_policy_t  *policy;
    ngx_rl_metrics_row_t   *row;

    policy = limiter->policy;
    rules = policy->rules.elts;

    traits = NGX_RL_METRICS_LIVE | (limiter->redis ? NGX_RL_METRICS_SHARED : 0);

    row = ngx_rl_metrics_row(rows, limiter->rows[NGX_RL_COUNTS_ZONE]);
    if (row) {
        row->limiter = limiter;
        row->traits = traits
            | (limiter->penalties ? NGX_RL_METRICS_PENALIZES : 0)
            | (limiter->new_keys ? NGX_RL_METRICS_NEW_KEYS : 0)
            | ((limiter->follows
                || ngx_rl_clients_needs(&policy->deny)
                || ngx_rl_clients_needs(&limiter->base->deny))
               ? NGX_RL_METRICS_DENIES : 0);
    }

    for (i = 0; i < policy->rules.nelts; i++) {
        rule = rules[i];
        row = ngx_rl_metrics_row(rows, rule->row);

        if (row == NULL) {
            continue;
        }

        row->limiter = limiter;
        row->traits = traits
            | (rule->sync == NGX_RL_SYNC_STRICT ? NGX_RL_METRICS_STRICT : 0)
            | (ngx_rl_rule_remembers(rule) ? NGX_RL_METRICS_REMEMBERS : 0)
            | ((rule->limit.algorithm == NGX_RL_LEAKY_BUCKET
                && rule->limit.free_us != UINT64_MAX)
               ? NGX_RL_METRICS_DELAYS : 0)
            | (rule->dry_run ? NGX_RL_METRICS_DRY
               : (rule->fail_mode == NGX_RL_FAIL_CLOSED)
               ? NGX_RL_METRICS_CLOSED : 0);
    }
}


static ngx_int_t
ngx_rl_metrics_rows(ngx_http_request_t *r, ngx_array_t *rows)
{
    uint32_t               at;
    ngx_uint_t             i;
    ngx_rl_zone_conf_t   **zones;
    ngx_rl_main_conf_t    *rlmcf;
    ngx_rl_metrics_row_t  *row;

    if (ngx_array_init(rows, r->pool, 64, sizeof(ngx_rl_metrics_row_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    at = 0;

    do {
        row = ngx_array_push(rows);
        if (row == NULL) {
            return NGX_ERROR;
        }

        row->traits = 0;
        row->limiter = NULL;

    } while (ngx_rl_counts_next(&at, NULL, &row->counts) == NGX_OK);

    rows->nelts--;

    rlmcf = ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module);
    zones = rlmcf->zones.elts;

    for (i = 0; i < rlmcf->zones.nelts; i++) {
        ngx_rl_metrics_zone_traits(rows, &zones[i]->limiter);
    }

    return NGX_OK;
}


static void
ngx_rl_metrics_zone(ngx_rl_metrics_item_t *zone)
{
    uint64_t              now, since;
    ngx_uint_t            i;
    ngx_rl_rule_t       **rules;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_follow_stat_t  stat;

    limiter = zone->limiter;
    now = (uint64_t) ngx_current_msec * 1000;

    ngx_rl_table_stat(limiter->zone.table, now, NGX_RL_STAT_SETS, &zone->table);

    if (limiter->zone.leases) {
        ngx_rl_leases_stat(limiter->zone.leases, now,
                           NGX_RL_STAT_SETS, &zone->leases);
    }

    if (limiter->penalties) {
        zone->penalties = ngx_rl_penalty_active(limiter, ngx_current_msec);
    }

    zone->uncounted = 0;
    rules = limiter->policy->rules.elts;

    for (i = 0; i < limiter->policy->rules.nelts; i++) {
        zone->uncounted += (rules[i]->row == 0);
    }

    if (!limiter->follows) {
        return;
    }

    ngx_rl_follow_stat(limiter, &stat);

    now = ngx_time();
    since = stat.swapped_ms / 1000;

    zone->version = stat.compiled;
    zone->refused = stat.refused;
    zone->saved = stat.saved;
    zone->skipped = limiter->policy->skipped.n;

    if (limiter->redis) {
        zone->reachable = stat.reachable;
    }

    /* the clock may have been set back */

    if (stat.compiled) {
        zone->age = (now > since) ? now - since : 0;
    }
}


static void
ngx_rl_metrics_fleet(ngx_rl_metrics_item_t *item, ngx_rl_fleet_t *fleet)
{
    ngx_uint_t              i;
    ngx_rl_peers_shared_t  *shared;

    shared = fleet->peers.shared;

    item->label = "peers";
    item->name = &fleet->peers.name;
    item->limiter = NULL;
    item->redis = NULL;
    item->stat.gateways = ngx_rl_peers_gateways(shared);
    item->peers = atomic_load(&shared->connected);
    item->with_redis = ngx_rl_peers_with_redis(shared, 0);
    item->strangers = atomic_load(&shared->refused);
    item->slow = atomic_load(&shared->dropped);
    item->changes = atomic_load(&fleet->shared->changes.lost);
    item->replaced = atomic_load(&shared->replaced);

    for (i = 0; i < 2; i++) {
        item->told[i] = atomic_load(&shared->messages[i]);
        item->bytes[i] = atomic_load(&shared->bytes[i]);
    }
}


static ngx_int_t
ngx_rl_metrics_items(ngx_http_request_t *r, ngx_array_t *items)
{
    ngx_uint_t              i;
    ngx_rl_fleet_t        **fleets;
    ngx_rl_redis_t        **redis;
    ngx_rl_watch_list_t    *top;
    ngx_rl_zone_conf_t    **zones;
    ngx_rl_main_conf_t     *rlmcf;
    ngx_rl_metrics_item_t  *item;

    rlmcf = ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module);
    zones = rlmcf->zones.elts;
    redis = rlmcf->redis.elts;
    fleets = rlmcf->fleets.elts;

    top = ngx_palloc(r->pool, sizeof(ngx_rl_watch_list_t));
    if (top == NULL) {
        return NGX_ERROR;
    }

    /* so that a push has room */

    if (ngx_array_init(items, r->pool,
                       rlmcf->fleets.nelts + rlmcf->zones.nelts
                       + rlmcf->redis.nelts + 1,
                       sizeof(ngx_rl_metrics_item_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < rlmcf->fleets.nelts; i++) {
        item = ngx_array_push(items);

        ngx_memset(item, 0xff, sizeof(ngx_rl_metrics_item_t));
        ngx_rl_metrics_fleet(item, fleets[i]);
    }

    for (i = 0; i < rlmcf->zones.nelts + rlmcf->redis.nelts; i++) {
        item = ngx_array_push(items);

        ngx_memset(item, 0xff, sizeof(ngx_rl_metrics_item_t));

        if (i >= rlmcf->zones.nelts) {
            item->label = "redis";
            item->limiter = NULL;
            item->redis = redis[i - rlmcf->zones.nelts];
            item->name = &item->redis->name;
            ngx_rl_redis_stat(item->redis, &item->stat);
            continue;
        }

        item->label = "zone";
        item->redis = NULL;
        item->limiter = &zones[i]->limiter;
        item->name = &item->limiter->zone.name;
        ngx_rl_metrics_zone(item);

        if (item->limiter->watch) {
            ngx_rl_watch_read(item->limiter->watch, NGX_RL_WATCH_REQUESTS, top);
            item->heaviest = top->list.nkeys
                             ? (uint64_t) ngx_rl_watch_per_second(top,
                                              top->list.keys[0].count)
                             : 0;
        }
    }

    return NGX_OK;
}


static ngx_int_t
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


static ngx_int_t
ngx_rl_metrics_handler(ngx_http_request_t *r)
{
    u_char             *item;
    ngx_int_t           rc;
    ngx_str_t           name;
    ngx_uint_t          i, n;
    const char         *why;
    ngx_array_t         lists[2];
    ngx_table_elt_t    *h;
    ngx_rl_metrics_t    out;
    ngx_rl_loc_conf_t  *conf;

    static const ngx_str_t  accept = ngx_string("accept");
    static const ngx_rl_metric_t  *const tables[] = {
        ngx_rl_row_metrics, ngx_rl_item_metrics };

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    rc = ngx_rl_guard(r, conf->guard, &name, &why);

    if (rc != NGX_OK && rc != NGX_DECLINED) {
        ngx_rl_guard_log(r, why);

        if (rc == NGX_HTTP_UNAUTHORIZED
            && ngx_rl_header(r, "WWW-Authenticate", NGX_RL_GUARD_CHALLENGE)
               != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return rc;
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return (ngx_rl_header(r, "Allow", "GET, HEAD") == NGX_OK)
               ? NGX_HTTP_NOT_ALLOWED : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&out, sizeof(ngx_rl_metrics_t));
    h = ngx_rl_find_header(&r->headers_in.headers, &accept);

    out.pool = r->pool;
    out.open = (h && ngx_strlcasestrn(h->value.data,
                         h->value.data + h->value.len,
                         (u_char *) "application/openmetrics-text",
                         sizeof("application/openmetrics-text") - 2)
                     != NULL);

    if (ngx_rl_metrics_rows(r, &lists[0]) != NGX_OK
        || ngx_rl_metrics_items(r, &lists[1]) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    for (i = 0; i < 2; i++) {
        for (out.metric = tables[i]; out.metric->name; out.metric++) {
            ngx_rl_metrics_head(&out);
            item = lists[i].elts;

            for (n = 0; n < lists[i].nelts; n++, item += lists[i].size) {
                if (out.metric->write) {
                    out.metric->write(&out, item);

                } else {
                    ngx_rl_metrics_number(&out, item);
                }
            }
        }
    }

    return ngx_rl_metrics_send(r, &out);
}


static const ngx_rl_row_t  ngx_rl_metrics_parameters[] = {
    { ngx_string("token_file="), ngx_rl_row_tokens,
      offsetof(ngx_rl_guard_t, tokens), .expected = "a file" },
    { .name = ngx_null_string }
};


/* ratelimit_metrics [token_file=<file>] */
char *
ngx_rl_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_http_core_loc_conf_t  *clcf;

    if (rlcf->exempt) {
        return "is duplicate";
    }

    rlcf->exempt = 1;
    rlcf->guard = ngx_pcalloc(cf->pool, sizeof(ngx_rl_guard_t));

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_rl_metrics_handler;

    return rlcf->guard ? ngx_rl_rows_read(cf, ngx_rl_metrics_parameters,
                                          rlcf->guard, 1,
                                          "\"token_file=<file>\"")
                       : NGX_CONF_ERROR;
}

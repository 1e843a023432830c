/*
 * "ratelimit_metrics": what Prometheus reads. A metric is a row of a table
 * below, with the function that writes its samples of one item: of a row of
 * counts, of a zone, or of a Redis. All is read from memory that the workers of
 * the gateway share, and no request waits meanwhile.
 */

#include "ngx_rl_metrics.h"
#include "ngx_rl_conf.h"

#include "ngx_rl_sync.h"

/* a number that an item does not have */
#define NGX_RL_METRICS_NONE  ((uint64_t) -1)

/* A zone or a Redis: its name and its figures. */
typedef struct {
    const char             *label;      /* of its name */
    const ngx_str_t        *name;
    ngx_rl_limiter_t       *limiter;    /* NULL: a Redis */
    ngx_rl_redis_t         *redis;      /* NULL: a zone */
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
} ngx_rl_metrics_item_t;

/*
 * What a rule or a zone has: bits. A number that it can have is shown at 0: a
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
#define NGX_RL_METRICS_MEMORY                                                 \
    (NGX_RL_SOURCE_FALLBACK + 1)

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

#define ngx_rl_metrics_at(member)                                             \
    offsetof(ngx_rl_metrics_item_t, member)

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


static ngx_uint_t
ngx_rl_metrics_can(ngx_uint_t traits, const ngx_rl_metrics_can_t *can)
{
    return (traits & NGX_RL_METRICS_LIVE) && (traits & can->needs) == can->needs
           && (traits & can->lacks) == 0;
}


/* A list and a penalty are of a zone, not of a rule. */
static void
ngx_rl_metrics_denied(ngx_rl_metrics_t *out, const ngx_rl_counts_row_t *row)
{
    ngx_uint_t  i, traits;

    static const struct {
        ngx_str_t                         name;
        ngx_uint_t                        word;
        ngx_rl_metrics_can_t  can;
    } outcomes[] = {
        { ngx_string("denied"), NGX_RL_COUNTS_DENIED, { NGX_RL_METRICS_DENIES,
            0 } }, { ngx_string("denied_dry_run"), NGX_RL_COUNTS_DENIED_DRY_RUN,
            { 0, NGX_RL_METRICS_LIVE } }, { ngx_string("penalized"),
            NGX_RL_COUNTS_PENALIZED, { NGX_RL_METRICS_PENALIZES, 0 } }
    };

    traits = ((const ngx_rl_metrics_row_t *) row)->traits;

    for (i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
        if (row->words[outcomes[i].word]
            || ngx_rl_metrics_can(traits, &outcomes[i].can))
        {
            ngx_rl_metrics_sample(out, row->words[outcomes[i].word], "zone",
                &row->zone, "rule", &row->rule, "outcome", &outcomes[i].name,
                "source", &ngx_rl_metrics_source[NGX_RL_SOURCE_LOCAL], NULL);
        }
    }
}


static void
ngx_rl_metrics_outcomes(ngx_rl_metrics_t *out, const ngx_rl_counts_row_t *row,
    ngx_rl_status_e status)
{
    uint64_t         n;
    ngx_uint_t       name, traits;
    ngx_rl_source_e  source;

    static const ngx_rl_metrics_can_t  statuses[] = {
        [NGX_RL_PASSED] = { 0, 0 }, [NGX_RL_DELAYED_DRY_RUN] = {
            NGX_RL_METRICS_DRY|NGX_RL_METRICS_DELAYS, 0 },
                [NGX_RL_REJECTED_DRY_RUN] = {
            NGX_RL_METRICS_DRY, 0 }, [NGX_RL_DELAYED] = {
            NGX_RL_METRICS_DELAYS, NGX_RL_METRICS_DRY }, [NGX_RL_DEGRADED] = {
            NGX_RL_METRICS_SHARED, NGX_RL_METRICS_CLOSED },
                [NGX_RL_DENIED_DRY_RUN] = { 0, NGX_RL_METRICS_LIVE },
                [NGX_RL_UNAVAILABLE] = {
            NGX_RL_METRICS_SHARED
            |NGX_RL_METRICS_CLOSED, 0 },
        [NGX_RL_REJECTED] = { 0, NGX_RL_METRICS_DRY }
    };

    static const ngx_rl_metrics_can_t  sources[] = {
        [NGX_RL_SOURCE_LOCAL] = {
            0, NGX_RL_METRICS_SHARED }, [NGX_RL_SOURCE_LEASE] = {
            NGX_RL_METRICS_SHARED, NGX_RL_METRICS_STRICT },
                [NGX_RL_SOURCE_REDIS] = {
            NGX_RL_METRICS_SHARED, 0 }, [NGX_RL_SOURCE_FALLBACK] = {
            NGX_RL_METRICS_SHARED, 0 },

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
                              "outcome", &ngx_rl_outcomes[status], "source",
                              &ngx_rl_metrics_source[name], NULL);
    }
}


static void
ngx_rl_metrics_requests(ngx_rl_metrics_t *out, const void *item)
{
    ngx_rl_status_e             status;
    const ngx_rl_counts_row_t  *row;

    row = item;

    if (row->kind == NGX_RL_COUNTS_ZONE) {
        ngx_rl_metrics_denied(out, row);
    }

    if (row->kind != NGX_RL_COUNTS_RULE) {
        return;
    }

    for (status = NGX_RL_PASSED; status < NGX_RL_DENIED; status++) {
        ngx_rl_metrics_outcomes(out, row, status);
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

    static const ngx_rl_metrics_can_t  words[] = {
        [NGX_RL_COUNTS_LOST] = {
            NGX_RL_METRICS_SHARED, 0 }, [NGX_RL_COUNTS_LEASE_CALLS] = {
            NGX_RL_METRICS_SHARED, 0 }, [NGX_RL_COUNTS_BY_NETWORK] = {
            NGX_RL_METRICS_NEW_KEYS, 0 }, [NGX_RL_COUNTS_TOO_MANY] = { 0, 0 }
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
    { "ratelimit_requests_total", "counter",
      "Requests by what a rule decided. One that is refused counts once.",
      ngx_rl_metrics_requests, 0 },

    { "ratelimit_cost_total", "counter",
      "Tokens that requests have taken from a rule's counters.",
      ngx_rl_metrics_costs, 0 },

    { "ratelimit_wait_seconds", "histogram",
      "How long checks waited for Redis, those that did.",
      ngx_rl_metrics_times, NGX_RL_COUNTS_WAIT },

    { "ratelimit_delay_seconds", "histogram",
      "For how long leaky buckets delayed requests, those that they did.",
      ngx_rl_metrics_times, NGX_RL_COUNTS_DELAY },

    { "ratelimit_penalties_total", "counter",
      "Penalties that began on this gateway.", ngx_rl_metrics_penalties, 0 },

    { "ratelimit_rules_not_counted_total", "counter",
      "Requests with more matching rules than are counted, by zone.",
      ngx_rl_metrics_of_zone, NGX_RL_COUNTS_TOO_MANY },

    { "ratelimit_new_keys_exceeded_total", "counter",
      "Requests that their network stands for: it has brought too many keys.",
      ngx_rl_metrics_of_zone, NGX_RL_COUNTS_BY_NETWORK },

    { "ratelimit_lease_calls_total", "counter",
      "Calls to Redis for leases, for many requests each.",
      ngx_rl_metrics_of_zone, NGX_RL_COUNTS_LEASE_CALLS },

    { "ratelimit_lease_calls_saved_total", "counter",
      "Decisions that took no call, since this gateway knew the answer.",
      ngx_rl_metrics_saved, 0 },

    { "ratelimit_state_lost_total", "counter",
      "Counters that Redis has no more, while this gateway knew them in use.",
      ngx_rl_metrics_of_zone, NGX_RL_COUNTS_LOST },

    { NULL, NULL, NULL, NULL, 0 }
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


static void
ngx_rl_metrics_nodes(ngx_rl_metrics_t *out, const void *item)
{
    uint64_t                      value;
    ngx_queue_t                  *at;
    ngx_rl_redis_node_stat_t      node;
    const ngx_rl_metrics_item_t  *it;

    it = item;
    at = NULL;

    while (it->redis && ngx_rl_redis_node_stat(it->redis, &at, &node) == NGX_OK)
    {
        if (out->metric->offset == offsetof(ngx_rl_redis_node_stat_t, times)) {
            ngx_rl_metrics_histogram(out, node.times, "redis", it->name, "node",
                                     &node.name, NULL);
            continue;
        }

        value = out->metric->offset == offsetof(ngx_rl_redis_node_stat_t, state)
                ? (uint64_t) node.state : (uint64_t) node.connected;

        ngx_rl_metrics_sample(out, value, "redis", it->name,
                              "node", &node.name, NULL);
    }
}


static void
ngx_rl_metrics_clocks(ngx_rl_metrics_t *out, const void *item)
{
    const ngx_rl_metrics_item_t  *it;

    it = item;

    if (it->redis && it->stat.clocked) {
        ngx_rl_metrics_seconds(out, it->stat.clock_ms * 1000,
                               "redis", it->name, NULL);
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
    errors = (out->metric->offset == ngx_rl_metrics_at(stat.replies));
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


static void
ngx_rl_metrics_topology(ngx_rl_metrics_t *out, const void *item)
{
    const ngx_rl_metrics_item_t  *it;

    it = item;

    if (it->redis && it->stat.mapped) {
        ngx_rl_metrics_seconds(out, it->stat.map_age_ms * 1000,
                               "redis", it->name, NULL);
    }
}


static const ngx_rl_metric_t  ngx_rl_item_metrics[] =
{
    { "ratelimit_penalties_active", "gauge", "Keys that are penalized now.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(penalties) },

    { "ratelimit_table_places", "gauge",
      "Counters that a zone's table has room for.", ngx_rl_metrics_number,
      ngx_rl_metrics_at(table.places) },

    { "ratelimit_table_used", "gauge",
      "Places of live counters; of a large table an estimate.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(table.busy) },

    { "ratelimit_table_evicted_total", "counter",
      "Live counters that a full table lost.", ngx_rl_metrics_evicted, 0 },

    { "ratelimit_lease_places", "gauge", "Leases that a zone has room for.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(leases.places) },

    { "ratelimit_lease_used", "gauge",
      "Places of leases in use; of a large table an estimate.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(leases.busy) },

    { "ratelimit_lease_tokens", "gauge",
      "Tokens in hand, debited in Redis; of a large table an estimate.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(leases.tokens) },

    { "ratelimit_lease_refused_total", "counter",
      "Leases that had no place: their requests ask Redis.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(leases.lost) },

    { "ratelimit_top_key_requests_per_second", "gauge",
      "Requests of the heaviest key; of the last minute or two, an estimate.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(heaviest) },

    { "ratelimit_rules_version", "gauge",
      "Version of a zone's document that requests go by, 0: none.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(version) },

    { "ratelimit_rules_age_seconds", "gauge",
      "For how long requests have gone by that version.", ngx_rl_metrics_number,
      ngx_rl_metrics_at(age) },

    { "ratelimit_rules_reachable", "gauge",
      "1: Redis has answered the last poll for the document.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(reachable) },

    { "ratelimit_rules_saved", "gauge",
      "1: the state file has the newest version, or the zone has none.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(saved) },

    { "ratelimit_rules_refused_version", "gauge",
      "Version of the document that is not used here, 0: none.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(refused) },

    { "ratelimit_rules_skipped", "gauge",
      "Rules and entries of the document that do not count here.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(skipped) },

    { "ratelimit_rules_skipped_info", "gauge",
      "1 for each of them, with its place and the reason.",
      ngx_rl_metrics_skipped, 0 },

    { "ratelimit_rules_uncounted", "gauge",
      "Rules without series of their own: there is no room for them.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(uncounted) },

    { "ratelimit_redis_call_seconds", "histogram",
      "How long calls of checks took, from the write to the reply.",
      ngx_rl_metrics_nodes, offsetof(ngx_rl_redis_node_stat_t, times) },

    { "ratelimit_redis_clock_offset_seconds", "gauge",
      "Redis' clock less this gateway's.", ngx_rl_metrics_clocks, 0 },

    { "ratelimit_redis_calls_total", "counter",
      "Calls to Redis, by what became of them.", ngx_rl_metrics_statuses,
      ngx_rl_metrics_at(stat.calls) },

    { "ratelimit_redis_error_replies_total", "counter",
      "Error replies to calls, those that were healed too.",
      ngx_rl_metrics_statuses, ngx_rl_metrics_at(stat.replies) },

    { "ratelimit_redis_refreshes_total", "counter",
      "Questions to Redis which node serves what.", ngx_rl_metrics_number,
      ngx_rl_metrics_at(stat.refreshes) },

    { "ratelimit_redis_reconnects_total", "counter",
      "Connections that came back after they broke.", ngx_rl_metrics_number,
      ngx_rl_metrics_at(stat.reconnects) },

    { "ratelimit_redis_tls_handshakes_total", "counter",
      "TLS handshakes with Redis that succeeded.", ngx_rl_metrics_number,
      ngx_rl_metrics_at(stat.handshakes) },

    { "ratelimit_redis_tls_resumed_total", "counter",
      "TLS handshakes with Redis that resumed a session.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(stat.resumed) },

    { "ratelimit_redis_breaker_opened_total", "counter",
      "Times that the breaker of a Redis node opened.", ngx_rl_metrics_number,
      ngx_rl_metrics_at(stat.opened) },

    { "ratelimit_redis_breaker_state", "gauge",
      "The breaker of a Redis node: 0 closed, 1 open, 2 readmits calls.",
      ngx_rl_metrics_nodes, offsetof(ngx_rl_redis_node_stat_t, state) },

    { "ratelimit_redis_topology_age_seconds", "gauge",
      "Time since a Sentinel named the master.", ngx_rl_metrics_topology, 0 },

    { "ratelimit_redis_connected", "gauge",
      "Whether a worker is connected to the Redis node.", ngx_rl_metrics_nodes,
      offsetof(ngx_rl_redis_node_stat_t, connected) },

    { "ratelimit_gateways", "gauge",
      "Live gateways that share the limits, this one among them.",
      ngx_rl_metrics_number, ngx_rl_metrics_at(stat.gateways) },

    { NULL, NULL, NULL, NULL, 0 }
};


/* NGX_DECLINED, or what the request ends with. */
static ngx_int_t
ngx_rl_metrics_guard(ngx_http_request_t *r)
{
    ngx_int_t           rc;
    ngx_str_t           name;
    const char         *why;
    ngx_rl_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    rc = ngx_rl_guard(r, conf->guard, &name, &why);

    if (rc == NGX_OK || rc == NGX_DECLINED) {
        return NGX_DECLINED;
    }

    ngx_rl_guard_log(r, why);

    if (rc == NGX_HTTP_UNAUTHORIZED
        && ngx_rl_header(r, "WWW-Authenticate", NGX_RL_GUARD_CHALLENGE)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return rc;
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


static ngx_uint_t
ngx_rl_metrics_rule_traits(const ngx_rl_rule_t *rule)
{
    ngx_uint_t  traits;

    traits = 0;

    if (rule->sync == NGX_RL_SYNC_STRICT) {
        traits |= NGX_RL_METRICS_STRICT;
    }

    if (ngx_rl_rule_remembers(rule)) {
        traits |= NGX_RL_METRICS_REMEMBERS;
    }

    if (rule->limit.algorithm == NGX_RL_LEAKY_BUCKET
        && rule->limit.free_us != UINT64_MAX)
    {
        traits |= NGX_RL_METRICS_DELAYS;
    }

    if (rule->dry_run) {
        traits |= NGX_RL_METRICS_DRY;

    } else if (rule->fail_mode == NGX_RL_FAIL_CLOSED) {
        traits |= NGX_RL_METRICS_CLOSED;
    }

    return traits;
}


static void
ngx_rl_metrics_zone_traits(ngx_array_t *rows, const ngx_rl_limiter_t *limiter)
{
    ngx_uint_t              i, traits;
    ngx_rl_rule_t         **rules;
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
        row = ngx_rl_metrics_row(rows, rules[i]->row);

        if (row) {
            row->limiter = limiter;
            row->traits = traits | ngx_rl_metrics_rule_traits(rules[i]);
        }
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


static ngx_rl_metrics_item_t *
ngx_rl_metrics_item(ngx_array_t *items, const char *label,
    const ngx_str_t *name)
{
    ngx_rl_metrics_item_t  *item;

    item = ngx_array_push(items);

    ngx_memset(item, 0xff, sizeof(ngx_rl_metrics_item_t));

    item->label = label;
    item->name = name;
    item->limiter = NULL;
    item->redis = NULL;

    return item;
}


static void
ngx_rl_metrics_zone(ngx_rl_metrics_item_t *zone)
{
    uint64_t            now, since;
    ngx_uint_t          i;
    ngx_rl_rule_t     **rules;
    ngx_rl_limiter_t   *limiter;
    ngx_rl_sync_stat_t  stat;

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

    ngx_rl_sync_stat(limiter, &stat);

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


static ngx_int_t
ngx_rl_metrics_items(ngx_http_request_t *r, ngx_array_t *items)
{
    ngx_uint_t              i;
    ngx_rl_redis_t        **redis;
    ngx_rl_watch_list_t    *top;
    ngx_rl_zone_conf_t    **zones;
    ngx_rl_main_conf_t     *rlmcf;
    ngx_rl_metrics_item_t  *item;

    rlmcf = ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module);
    zones = rlmcf->zones.elts;
    redis = rlmcf->redis.elts;

    top = ngx_palloc(r->pool, sizeof(ngx_rl_watch_list_t));
    if (top == NULL) {
        return NGX_ERROR;
    }

    /* so that a push has room */

    if (ngx_array_init(items, r->pool,
                       rlmcf->zones.nelts + rlmcf->redis.nelts + 1,
                       sizeof(ngx_rl_metrics_item_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < rlmcf->zones.nelts; i++) {
        item = ngx_rl_metrics_item(items, "zone", &zones[i]->limiter.zone.name);
        item->limiter = &zones[i]->limiter;
        ngx_rl_metrics_zone(item);

        if (item->limiter->watch) {
            ngx_rl_watch_read(item->limiter->watch, NGX_RL_WATCH_REQUESTS, top);
            item->heaviest = top->list.nkeys
                             ? (uint64_t) ngx_rl_watch_per_second(top,
                                                      top->list.keys[0].count)
                             : 0;
        }
    }

    for (i = 0; i < rlmcf->redis.nelts; i++) {
        item = ngx_rl_metrics_item(items, "redis", &redis[i]->name);
        item->redis = redis[i];
        ngx_rl_redis_stat(redis[i], &item->stat);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_rl_metrics_handler(ngx_http_request_t *r)
{
    u_char           *item;
    ngx_int_t         rc;
    ngx_uint_t        i, n;
    ngx_array_t       lists[2];
    ngx_rl_metrics_t  out;

    static const ngx_rl_metric_t  *const tables[] = {
        ngx_rl_row_metrics, ngx_rl_item_metrics };

    rc = ngx_rl_metrics_guard(r);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return (ngx_rl_header(r, "Allow", "GET, HEAD") == NGX_OK)
               ? NGX_HTTP_NOT_ALLOWED : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&out, sizeof(ngx_rl_metrics_t));

    out.pool = r->pool;
    out.open = ngx_rl_metrics_open(r);

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
                out.metric->write(&out, item);
            }
        }
    }

    return ngx_rl_metrics_send(r, &out);
}


/* ratelimit_metrics [token_file=<file>] */
char *
ngx_rl_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t                   *value, file;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_rl_guard_t  *guard;

    if (rlcf->exempt) {
        return "is duplicate";
    }

    guard = ngx_pcalloc(cf->pool, sizeof(ngx_rl_guard_t));
    if (guard == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2) {

        if (!ngx_rl_parameter(&value[1], "token_file=", &file) || file.len == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                "\"ratelimit_metrics\" has an invalid parameter \"%V\", "
                "expected \"token_file=<file>\"", &value[1]);
            return NGX_CONF_ERROR;
        }

        guard->tokens = ngx_rl_tokens_read(cf, &file);
        if (guard->tokens == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    rlcf->guard = guard;
    rlcf->exempt = 1;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_rl_metrics_handler;

    return NGX_CONF_OK;
}

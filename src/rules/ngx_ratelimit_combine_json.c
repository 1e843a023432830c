/*
 * What of a document's rule goes together: as rule_conf.c has it for
 * "ratelimit_rule", in the words of JSON. Zones without Redis bear "sync" and
 * "fail_mode" where they say the default, and nothing else of Redis.
 */

#include "ngx_ratelimit_rule_json.h"

/* What two members exclude each other; the problem is at one of them. */
typedef struct {
    ngx_uint_t   one;
    ngx_uint_t   two;
    const char  *at;
    const char  *detail;
} ngx_ratelimit_rule_exclusion_t;

/* The algorithms that bear what a rule says. */
typedef struct {
    ngx_uint_t   says;
    const char  *at;
    ngx_uint_t   algorithms;
    const char  *expected;
} ngx_ratelimit_rule_bears_t;

static void ngx_ratelimit_read_bears(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);
static void ngx_ratelimit_read_redis(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);

static const ngx_ratelimit_rule_exclusion_t  ngx_ratelimit_rule_excluded[] = {
    { NGX_RATELIMIT_RULE_COUNT_STATUS, NGX_RATELIMIT_RULE_COST_HEADER,
      "count_status", "stands beside \"cost_header\", expected one of them" },
    { NGX_RATELIMIT_RULE_EMERGENCY,
      NGX_RATELIMIT_RULE_LOCAL|NGX_RATELIMIT_RULE_CLOSED,
      "fail_mode", "stands beside \"emergency\", expected \"open\"" },
    { NGX_RATELIMIT_RULE_COUNT_STATUS,
      NGX_RATELIMIT_RULE_LEASE|NGX_RATELIMIT_RULE_ASYNC,
      "sync", "stands beside \"count_status\", expected \"strict\"" },
    { NGX_RATELIMIT_RULE_ASYNC,
      NGX_RATELIMIT_RULE_OPEN|NGX_RATELIMIT_RULE_LOCAL
      |NGX_RATELIMIT_RULE_CLOSED,
      "fail_mode", "stands beside \"sync\": \"async\", expected \"sync\": "
      "\"lease\" or \"strict\"" },
    { NGX_RATELIMIT_RULE_ASYNC, NGX_RATELIMIT_RULE_EMERGENCY,
      "emergency", "stands beside \"sync\": \"async\", expected \"sync\": "
      "\"lease\" or \"strict\"" },
    { NGX_RATELIMIT_RULE_SHARDS, NGX_RATELIMIT_RULE_COUNT_STATUS,
      "shards", "stands beside \"count_status\", expected one of them" },
    { NGX_RATELIMIT_RULE_SHARDS, NGX_RATELIMIT_RULE_COST_HEADER,
      "shards", "stands beside \"cost_header\", expected one of them" },
    { NGX_RATELIMIT_RULE_SHARDS, NGX_RATELIMIT_RULE_LOCAL,
      "fail_mode", "stands beside \"shards\", expected \"open\" or "
      "\"closed\"" },
    { NGX_RATELIMIT_RULE_SHARDS, NGX_RATELIMIT_RULE_TIERS,
      "tiers", "stands beside \"shards\", expected one of them" },
    { NGX_RATELIMIT_RULE_SHARDS, NGX_RATELIMIT_RULE_OVERRIDE,
      "override", "stands beside \"shards\", expected one of them" },
    { 0, 0, NULL, NULL }
};

static const ngx_ratelimit_rule_bears_t  ngx_ratelimit_rule_bears[] = {
    { NGX_RATELIMIT_RULE_LEASE|NGX_RATELIMIT_RULE_ASYNC, "sync",
      NGX_RATELIMIT_OF_LEASES, "\"strict\"" },
    { NGX_RATELIMIT_RULE_SHARDS, "shards", NGX_RATELIMIT_OF_SHARDS,
      "another algorithm" },
    { NGX_RATELIMIT_RULE_COST, "cost", NGX_RATELIMIT_OF_RATES,
      "another algorithm" },
    { NGX_RATELIMIT_RULE_COST_HEADER, "cost_header", NGX_RATELIMIT_OF_RATES,
      "another algorithm" },
    { NGX_RATELIMIT_RULE_COUNT_STATUS, "count_status", NGX_RATELIMIT_OF_RATES,
      "another algorithm" },
    { 0, NULL, 0, NULL }
};

/* the same of params: bits of what they say */

static const ngx_ratelimit_rule_bears_t  ngx_ratelimit_params_bears[] = {
    { 1u << NGX_RATELIMIT_SAID_RATE, "rate", NGX_RATELIMIT_OF_RATES,
      "another algorithm" },
    { 1u << NGX_RATELIMIT_SAID_REFILL_RATE, "refill_rate",
      NGX_RATELIMIT_OF_RATES, "another algorithm" },
    { 1u << NGX_RATELIMIT_SAID_WINDOW, "window", NGX_RATELIMIT_OF_RATES,
      "another algorithm" },
    { 1u << NGX_RATELIMIT_SAID_BURST, "burst", NGX_RATELIMIT_OF(LEAKY_BUCKET),
      "algorithm leaky_bucket" },
    { 1u << NGX_RATELIMIT_SAID_DELAY, "delay", NGX_RATELIMIT_OF(LEAKY_BUCKET),
      "algorithm leaky_bucket" },
    { 1u << NGX_RATELIMIT_SAID_NODELAY, "nodelay",
      NGX_RATELIMIT_OF(LEAKY_BUCKET), "algorithm leaky_bucket" },
    { 0, NULL, 0, NULL }
};


void
ngx_ratelimit_read_combine(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft)
{
    ngx_ratelimit_rule_t                  *rule;
    const ngx_ratelimit_rule_exclusion_t  *x;

    rule = draft->rule;

    ngx_ratelimit_read_bears(reader, at, draft);

    for (x = ngx_ratelimit_rule_excluded; x->one; x++) {
        if ((draft->says & x->one) && (draft->says & x->two)) {
            ngx_ratelimit_read_wrong(reader, at, NULL, x->at, "%s", x->detail);
        }
    }

    if (reader->limiter->redis == NULL) {
        ngx_ratelimit_read_redis(reader, at, draft);
    }

    if (rule->emergency) {
        rule->fail_mode = NGX_RATELIMIT_FAIL_OPEN;
    }

    if (rule->statuses
        || !(NGX_RATELIMIT_OF_LEASES & (1u << rule->spec.algorithm)))
    {
        rule->sync = NGX_RATELIMIT_SYNC_STRICT;
    }
}


/* Whether the algorithm bears it. */
static void
ngx_ratelimit_read_bears(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft)
{
    ngx_uint_t                         bit;
    const char                        *name;
    const ngx_ratelimit_rule_bears_t  *b;

    if (draft->wrong) {
        return;
    }

    bit = 1u << draft->rule->spec.algorithm;
    name = ngx_ratelimit_algorithm_name(draft->rule->spec.algorithm);

    for (b = ngx_ratelimit_rule_bears; b->says; b++) {
        if ((draft->says & b->says) && !(b->algorithms & bit)) {
            ngx_ratelimit_read_wrong(reader, at, NULL, b->at, "is not for "
                                     "algorithm %s, expected %s", name,
                                     b->expected);
        }
    }

    for (b = ngx_ratelimit_params_bears; b->says; b++) {
        if ((draft->said.has & b->says) && !(b->algorithms & bit)) {
            ngx_ratelimit_read_wrong(reader, at, "params", b->at, "is not for "
                                     "algorithm %s, expected %s", name,
                                     b->expected);
        }
    }

    if (draft->said.calendar
        && !(bit & (NGX_RATELIMIT_OF(FIXED_WINDOW)
                    | NGX_RATELIMIT_OF(CONCURRENCY))))
    {
        ngx_ratelimit_read_wrong(reader, at, "params", "window", "has a "
                                 "calendar with algorithm %s, expected "
                                 "algorithm fixed_window", name);
    }
}


/* Of a zone that has none. */
static void
ngx_ratelimit_read_redis(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft)
{
    ngx_uint_t  i;

    static const struct {
        ngx_uint_t   says;
        const char  *at;
    } needs[] = {
        { NGX_RATELIMIT_RULE_STRICT|NGX_RATELIMIT_RULE_ASYNC, "sync" },
        { NGX_RATELIMIT_RULE_LOCAL|NGX_RATELIMIT_RULE_CLOSED, "fail_mode" },
        { NGX_RATELIMIT_RULE_EMERGENCY, "emergency" },
        { NGX_RATELIMIT_RULE_SHARDS, "shards" }
    };

    for (i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (draft->says & needs[i].says) {
            ngx_ratelimit_read_wrong(reader, at, NULL, needs[i].at,
                                     "needs a zone with \"redis=\"");
        }
    }
}


void
ngx_ratelimit_read_split(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft)
{
    const char  *expected;

    if (draft->rule->shards == 0) {
        return;
    }

    if (!(draft->says & NGX_RATELIMIT_RULE_STRICT)) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "shards", "expected "
                                 "\"sync\": \"strict\" with it");
        return;
    }

    expected = ngx_ratelimit_rule_split(draft->rule);

    if (expected) {
        ngx_ratelimit_read_expected(reader, at, NULL, "shards", expected);
    }
}


void
ngx_ratelimit_read_values(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_draft_t *draft)
{
    ngx_uint_t               which;
    const char              *expected;
    ngx_ratelimit_place_t    key, part;
    ngx_ratelimit_above_t   *above;

    above = &reader->limiter->above;
    which = 0;

    expected = above->values(above->data, draft->rule, &draft->said.text,
                             &draft->cost, reader->pool, &which);
    if (expected == NULL) {
        return;
    }

    if (*expected == '\0') {
        reader->failed = 1;
        return;
    }

    if (which == NGX_RATELIMIT_VALUES_COST) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "cost", "expected %s",
                                 expected);
        return;
    }

    if (which == NGX_RATELIMIT_VALUES_LIMIT) {
        ngx_ratelimit_read_wrong(reader, at, "params",
                                 ngx_ratelimit_says(&draft->said, RATE)
                                 ? "rate" : "limit", "expected %s", expected);
        return;
    }

    key.up = at;
    key.name = "key";
    part.up = &key;
    part.name = NULL;
    part.number = which;

    ngx_ratelimit_read_problem(reader,
                               json_is_array(json_object_get(value, "key"))
                               ? &part : &key, "expected %s", expected);
}

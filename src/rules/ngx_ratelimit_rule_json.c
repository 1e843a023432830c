/*
 * One rule of a document: its members, and which of them go together. What is
 * accepted, and what is refused, is what "ratelimit_rule" accepts and refuses;
 * a member that says the default is as if it was not there, but for "sync" and
 * "fail_mode", of which zones without Redis bear the defaults.
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_route.h"
#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_MAX_PRIORITY  1000000
#define NGX_RATELIMIT_MAX_TIERS     256    /* of a rule */

#define NGX_RATELIMIT_OF(algorithm)  (1u << NGX_RATELIMIT_##algorithm)
#define NGX_RATELIMIT_OF_ANY         0x3f
#define NGX_RATELIMIT_OF_RATES                                                \
    (NGX_RATELIMIT_OF_ANY ^ NGX_RATELIMIT_OF(CONCURRENCY))
#define NGX_RATELIMIT_OF_LEASES                                               \
    (NGX_RATELIMIT_OF_RATES ^ NGX_RATELIMIT_OF(SLIDING_LOG))
#define NGX_RATELIMIT_OF_SHARDS                                               \
    (NGX_RATELIMIT_OF_LEASES ^ NGX_RATELIMIT_OF(LEAKY_BUCKET))

/* What a rule says, as far as it matters for what else it may say: bits. */
#define NGX_RATELIMIT_RULE_ID              0x0001
#define NGX_RATELIMIT_RULE_PARAMS          0x0002
#define NGX_RATELIMIT_RULE_TIERS           0x0004
#define NGX_RATELIMIT_RULE_OVERRIDE        0x0008
#define NGX_RATELIMIT_RULE_LEASE           0x0010
#define NGX_RATELIMIT_RULE_STRICT          0x0020
#define NGX_RATELIMIT_RULE_ASYNC           0x0040
#define NGX_RATELIMIT_RULE_OPEN            0x0080
#define NGX_RATELIMIT_RULE_LOCAL           0x0100
#define NGX_RATELIMIT_RULE_CLOSED          0x0200
#define NGX_RATELIMIT_RULE_EMERGENCY       0x0400
#define NGX_RATELIMIT_RULE_SHARDS          0x0800
#define NGX_RATELIMIT_RULE_COST            0x1000
#define NGX_RATELIMIT_RULE_COST_HEADER     0x2000
#define NGX_RATELIMIT_RULE_COUNT_STATUS    0x4000

/* A rule while it is read. */
typedef struct {
    ngx_ratelimit_rule_t   *rule;
    ngx_uint_t              says;     /* bits of the above */
    ngx_ratelimit_said_t    said;     /* by "params" */
    ngx_str_t               cost;     /* with variables; or empty */
    json_t                 *tiers;
    json_t                 *override;
    unsigned                wrong:1;  /* the algorithm is none */
} ngx_ratelimit_draft_t;

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

#define member(name)                                                          \
    static void ngx_ratelimit_read_##name(ngx_ratelimit_reader_t *reader,     \
        const ngx_ratelimit_place_t *at, json_t *value, void *data)

member(id);
member(match);
member(api_key_pattern);
member(route);
member(endpoint_regex);
member(methods);
member(host);
member(match_tier);
member(key);
member(algorithm);
member(rule_params);
member(tiers);
member(override);
member(sync);
member(fail_mode);
member(emergency);
member(shards);
member(cost);
member(cost_header);
member(count_status);
member(group);
member(priority);
member(percent);
member(dry_run);

#undef member

static void ngx_ratelimit_read_default_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule);
static void ngx_ratelimit_read_join_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule);
static void ngx_ratelimit_read_combine(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);
static void ngx_ratelimit_read_bears(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);
static void ngx_ratelimit_read_redis(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);
static void ngx_ratelimit_read_split(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);
static void ngx_ratelimit_read_values(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_draft_t *draft);
static void ngx_ratelimit_read_allowances(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited);
static void ngx_ratelimit_read_rule_tiers(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited);
static void ngx_ratelimit_read_rule_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited);

/* "id" first, so that what is wrong with it stands first */

static const ngx_ratelimit_member_t  ngx_ratelimit_rule_members[] = {
    { "id", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_id },
    { "match", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_read_match },
    { "key", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_key },
    { "algorithm", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_algorithm },
    { "params", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_read_rule_params },
    { "tiers", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_read_tiers },
    { "override", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_read_override },
    { "sync", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_sync },
    { "fail_mode", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_fail_mode },
    { "emergency", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_emergency },
    { "shards", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_shards },
    { "cost", NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_TEXT,
      ngx_ratelimit_read_cost },
    { "cost_header", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_cost_header },
    { "count_status", NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_count_status },
    { "group", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_group },
    { "priority", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_priority },
    { "percent", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_percent },
    { "dry_run", NGX_RATELIMIT_IS_BOOLEAN, ngx_ratelimit_read_dry_run },
    { NULL, 0, NULL }
};

static const ngx_ratelimit_member_t  ngx_ratelimit_match_members[] = {
    { "api_key_pattern", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_api_key_pattern },
    { "route", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_route },
    { "endpoint_regex", NGX_RATELIMIT_IS_TEXT,
      ngx_ratelimit_read_endpoint_regex },
    { "methods", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_methods },
    { "host", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_host },
    { "tier", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_match_tier },
    { NULL, 0, NULL }
};

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
ngx_ratelimit_read_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_rule_t *rule)
{
    ngx_uint_t             problems, limited;
    ngx_ratelimit_draft_t  draft;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_OBJECT)) {
        return;
    }

    ngx_memzero(&draft, sizeof(ngx_ratelimit_draft_t));
    draft.rule = rule;

    rule->cost = 1;
    rule->percent = 100;

    problems = reader->problems->n;

    ngx_ratelimit_read_members(reader, at, value, ngx_ratelimit_rule_members,
                               &draft);

    if (!(draft.says & NGX_RATELIMIT_RULE_ID)) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "id", "is missing");
    }

    ngx_ratelimit_read_combine(reader, at, &draft);

    /* a limit is made of what is known to be right */

    limited = problems == reader->problems->n
              && ngx_ratelimit_read_limit(reader, at, &draft.said, rule)
                 == NGX_OK;

    if (limited) {
        ngx_ratelimit_read_split(reader, at, &draft);
    }

    ngx_ratelimit_read_allowances(reader, at, &draft, limited);

    if (rule->nparts == 0) {
        ngx_ratelimit_read_default_key(reader, rule);
    }

    if (problems == reader->problems->n && !reader->failed) {
        ngx_ratelimit_read_join_key(reader, rule);
        ngx_ratelimit_read_values(reader, at, value, &draft);
    }
}


static void
ngx_ratelimit_read_id(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    draft->says |= NGX_RATELIMIT_RULE_ID;

    if (ngx_ratelimit_read_name(reader, at, value)) {
        draft->rule->id = ngx_ratelimit_read_copy(reader, value);
    }
}


static void
ngx_ratelimit_read_match(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_ratelimit_read_members(reader, at, value, ngx_ratelimit_match_members,
                               draft);

    if (draft->rule->route.len && draft->rule->regex_text.len) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "endpoint_regex",
                                 "stands beside \"route\", expected one of "
                                 "them");
    }
}


/* No patterns are any key, and none. */
static void
ngx_ratelimit_read_api_key_pattern(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    if (ngx_ratelimit_read_count(value) == 0) {
        return;
    }

    draft->rule->api_keys = ngx_ratelimit_read_alloc(reader,
                                                 sizeof(ngx_ratelimit_keys_t));

    if (draft->rule->api_keys) {
        ngx_ratelimit_read_keys(reader, at, value, draft->rule->api_keys);
    }
}


static void
ngx_ratelimit_read_route(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_str_t    route;
    const char  *wrong;

    route = ngx_ratelimit_read_text(value);
    wrong = ngx_ratelimit_route_check(route.data, route.len);

    if (wrong) {
        ngx_ratelimit_read_problem(reader, at, "expected a path template: %s",
                                   wrong);
        return;
    }

    draft->rule->route = ngx_ratelimit_read_copy(reader, value);
}


/* Whether it compiles is found when the policy is finished. */
static void
ngx_ratelimit_read_endpoint_regex(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

#if (NGX_PCRE)

    if (json_string_length(value) == 0) {
        ngx_ratelimit_read_problem(reader, at, "expected a regular expression");
        return;
    }

    draft->rule->regex_text = ngx_ratelimit_read_copy(reader, value);

#else

    (void) draft;

    ngx_ratelimit_read_problem(reader, at, "expected \"route\": this nginx is "
                               "built without PCRE");

#endif
}


static void
ngx_ratelimit_read_methods(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                  i;
    json_t                 *method;
    ngx_str_t               name;
    ngx_uint_t              bit;
    ngx_ratelimit_place_t   item;

    for (i = 0; i < ngx_ratelimit_read_count(value); i++) {
        method = ngx_ratelimit_read_item(value, i, at, &item);

        if (!ngx_ratelimit_read_is(reader, &item, method,
                                   NGX_RATELIMIT_IS_TEXT))
        {
            continue;
        }

        name = ngx_ratelimit_read_text(method);
        bit = reader->limiter->above.method(name.data, name.len);

        if (bit == 0) {
            ngx_ratelimit_read_problem(reader, &item, "expected an HTTP method "
                                       "like \"GET\"");
            continue;
        }

        draft->rule->methods |= bit;
    }
}


static void
ngx_ratelimit_read_host(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                      i, n;
    json_t                     *host;
    ngx_str_t                   text;
    const char                 *expected;
    ngx_ratelimit_place_t       item;
    ngx_ratelimit_glob_text_t  *hosts;

    n = ngx_ratelimit_read_count(value);

    if (n == 0) {
        return;
    }

    hosts = ngx_ratelimit_read_alloc(reader,
                                     n * sizeof(ngx_ratelimit_glob_text_t));
    if (hosts == NULL) {
        return;
    }

    draft->rule->hosts = hosts;
    draft->rule->nhosts = n;

    for (i = 0; i < n; i++) {
        host = ngx_ratelimit_read_item(value, i, at, &item);

        if (!ngx_ratelimit_read_is(reader, &item, host, NGX_RATELIMIT_IS_TEXT))
        {
            continue;
        }

        text = ngx_ratelimit_read_copy(reader, host);
        expected = text.len ? ngx_ratelimit_glob_check(text.data, text.len)
                            : "a host name";

        if (expected) {
            ngx_ratelimit_read_problem(reader, &item, "expected %s", expected);
            continue;
        }

        ngx_strlow(text.data, text.data, text.len);

        hosts[i].data = text.data;
        hosts[i].len = text.len;
    }
}


static void
ngx_ratelimit_read_match_tier(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_str_t  tier;

    tier = ngx_ratelimit_read_text(value);

    if (ngx_ratelimit_read_tier(reader, at, &tier)) {
        draft->rule->tier = ngx_ratelimit_read_copy(reader, value);
    }
}


static void
ngx_ratelimit_read_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                  i, n;
    json_t                 *part;
    ngx_str_t               text;
    ngx_ratelimit_rule_t   *rule;
    ngx_ratelimit_place_t   item;

    rule = draft->rule;
    n = ngx_ratelimit_read_count(value);

    if (n == 0 || n > NGX_RATELIMIT_MAX_PARTS) {
        ngx_ratelimit_read_problem(reader, at, "expected 1 to %d parts",
                                   NGX_RATELIMIT_MAX_PARTS);
        return;
    }

    rule->parts = ngx_ratelimit_read_alloc(reader, n * sizeof(ngx_str_t));
    if (rule->parts == NULL) {
        return;
    }

    rule->nparts = n;

    for (i = 0; i < n; i++) {
        part = ngx_ratelimit_read_item(value, i, at, &item);

        if (!ngx_ratelimit_read_is(reader, &item, part, NGX_RATELIMIT_IS_TEXT))
        {
            continue;
        }

        text = ngx_ratelimit_read_text(part);

        if (text.len == 0
            || ngx_strlchr(text.data, text.data + text.len, 0x1f))
        {
            ngx_ratelimit_read_problem(reader, &item,
                                       "expected a value with variables");
            continue;
        }

        rule->parts[i] = ngx_ratelimit_read_copy(reader, part);
    }
}


/* The zone's. */
static void
ngx_ratelimit_read_default_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule)
{
    rule->parts = ngx_ratelimit_read_alloc(reader, sizeof(ngx_str_t));

    if (rule->parts) {
        rule->nparts = 1;
        rule->parts[0] = reader->limiter->zone.key;
    }
}


static void
ngx_ratelimit_read_join_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;

    if (rule->nparts == 1) {
        rule->key = rule->parts[0];
        return;
    }

    len = rule->nparts - 1;

    for (i = 0; i < rule->nparts; i++) {
        len += rule->parts[i].len;
    }

    p = ngx_pnalloc(reader->pool, len);
    if (p == NULL) {
        reader->failed = 1;
        return;
    }

    rule->key.data = p;
    rule->key.len = len;

    for (i = 0; i < rule->nparts; i++) {

        if (i) {
            *p++ = 0x1f;
        }

        p = ngx_cpymem(p, rule->parts[i].data, rule->parts[i].len);
    }
}


static void
ngx_ratelimit_read_algorithm(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_int_t  algorithm;

    /* in the order of ngx_ratelimit_algorithm_e */

    static const char *const  names[] = {
        "token_bucket", "leaky_bucket", "fixed_window", "sliding_window",
        "sliding_log", "concurrency", NULL
    };

    algorithm = ngx_ratelimit_read_one_of(reader, at, value, names);

    if (algorithm < 0) {
        draft->wrong = 1;
        return;
    }

    draft->rule->spec.algorithm = (ngx_ratelimit_algorithm_e) algorithm;
}


static void
ngx_ratelimit_read_rule_params(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    draft->says |= NGX_RATELIMIT_RULE_PARAMS;

    ngx_ratelimit_read_params(reader, at, value, &draft->said);
}


/* These two are read when the rule's limit is known. */
static void
ngx_ratelimit_read_tiers(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    (void) reader;
    (void) at;

    if (json_object_size(value)) {
        draft->says |= NGX_RATELIMIT_RULE_TIERS;
        draft->tiers = value;
    }
}


static void
ngx_ratelimit_read_override(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    (void) reader;
    (void) at;

    if (json_object_size(value)) {
        draft->says |= NGX_RATELIMIT_RULE_OVERRIDE;
        draft->override = value;
    }
}


static void
ngx_ratelimit_read_sync(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_int_t  sync;

    /* in the order of ngx_ratelimit_sync_e */

    static const char *const  names[] = { "lease", "strict", "async", NULL };

    static const ngx_uint_t   says[] = {
        NGX_RATELIMIT_RULE_LEASE,
        NGX_RATELIMIT_RULE_STRICT,
        NGX_RATELIMIT_RULE_ASYNC
    };

    sync = ngx_ratelimit_read_one_of(reader, at, value, names);

    if (sync >= 0) {
        draft->rule->sync = (ngx_ratelimit_sync_e) sync;
        draft->says |= says[sync];
    }
}


static void
ngx_ratelimit_read_fail_mode(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_int_t  mode;

    /* in the order of ngx_ratelimit_fail_mode_e, behind the default */

    static const char *const  names[] = { "open", "local", "closed", NULL };

    static const ngx_uint_t   says[] = {
        NGX_RATELIMIT_RULE_OPEN,
        NGX_RATELIMIT_RULE_LOCAL,
        NGX_RATELIMIT_RULE_CLOSED
    };

    mode = ngx_ratelimit_read_one_of(reader, at, value, names);

    if (mode >= 0) {
        draft->rule->fail_mode = (ngx_ratelimit_fail_mode_e)
                                 (NGX_RATELIMIT_FAIL_OPEN + mode);
        draft->says |= says[mode];
    }
}


static void
ngx_ratelimit_read_emergency(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_str_t              text;
    const char            *expected;
    ngx_ratelimit_spec_t   spec;

    draft->says |= NGX_RATELIMIT_RULE_EMERGENCY;

    draft->rule->emergency = ngx_ratelimit_read_alloc(reader,
                                                sizeof(ngx_ratelimit_limit_t));
    if (draft->rule->emergency == NULL) {
        return;
    }

    ngx_memzero(&spec, sizeof(ngx_ratelimit_spec_t));
    spec.algorithm = NGX_RATELIMIT_TOKEN_BUCKET;

    text = ngx_ratelimit_read_text(value);

    expected = ngx_strlchr(text.data, text.data + text.len, '$')
               ? "a rate without variables"
               : ngx_ratelimit_rule_limit(&spec, &text, draft->rule->emergency);

    if (expected) {
        ngx_ratelimit_read_expected(reader, at, NULL, NULL, expected);
    }
}


static void
ngx_ratelimit_read_shards(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    int64_t  shards;

    draft->says |= NGX_RATELIMIT_RULE_SHARDS;

    if (ngx_ratelimit_read_number(reader, at, value, 2,
                                  NGX_RATELIMIT_MAX_SHARDS, &shards)
        == NGX_OK)
    {
        draft->rule->shards = (uint32_t) shards;
    }
}


static void
ngx_ratelimit_read_cost(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    int64_t    cost;
    ngx_str_t  text;

    if (json_is_string(value)) {
        text = ngx_ratelimit_read_text(value);

        if (ngx_strlchr(text.data, text.data + text.len, '$') == NULL) {
            ngx_ratelimit_read_problem(reader, at, "expected a number, or a "
                                       "string with variables");
            return;
        }

        draft->says |= NGX_RATELIMIT_RULE_COST;
        draft->rule->dynamic_cost = 1;
        draft->cost = ngx_ratelimit_read_copy(reader, value);
        return;
    }

    if (ngx_ratelimit_read_number(reader, at, value, 0,
                                  NGX_RATELIMIT_MAX_TOKENS, &cost)
        != NGX_OK)
    {
        return;
    }

    if (cost != 1) {
        draft->says |= NGX_RATELIMIT_RULE_COST;
        draft->rule->cost = (uint32_t) cost;
    }
}


static void
ngx_ratelimit_read_cost_header(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_str_t  *header;

    draft->says |= NGX_RATELIMIT_RULE_COST_HEADER;

    if (ngx_ratelimit_read_name(reader, at, value)) {
        header = &draft->rule->cost_header;
        *header = ngx_ratelimit_read_copy(reader, value);
        ngx_strlow(header->data, header->data, header->len);
    }
}


static void
ngx_ratelimit_read_count_status(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                  i, n;
    json_t                 *item;
    int64_t                 code;
    ngx_uint_t             *status;
    ngx_ratelimit_place_t   place;

    draft->says |= NGX_RATELIMIT_RULE_COUNT_STATUS;
    n = ngx_ratelimit_read_count(value);

    if (n == 0) {
        ngx_ratelimit_read_problem(reader, at, "expected statuses like "
                                   "[401, 403]");
        return;
    }

    draft->rule->statuses = ngx_array_create(reader->pool, n,
                                             sizeof(ngx_uint_t));
    if (draft->rule->statuses == NULL) {
        reader->failed = 1;
        return;
    }

    for (i = 0; i < n; i++) {
        item = ngx_ratelimit_read_item(value, i, at, &place);

        if (ngx_ratelimit_read_number(reader, &place, item, 100, 599, &code)
            != NGX_OK)
        {
            continue;
        }

        /* there is room for n */

        status = ngx_array_push(draft->rule->statuses);
        *status = (ngx_uint_t) code;
    }
}


static void
ngx_ratelimit_read_group(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    if (ngx_ratelimit_read_name(reader, at, value)) {
        draft->rule->group = ngx_ratelimit_read_copy(reader, value);
    }
}


static void
ngx_ratelimit_read_priority(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    int64_t  priority;

    if (ngx_ratelimit_read_number(reader, at, value,
                                  -NGX_RATELIMIT_MAX_PRIORITY,
                                  NGX_RATELIMIT_MAX_PRIORITY, &priority)
        == NGX_OK)
    {
        draft->rule->priority = (ngx_int_t) priority;
    }
}


static void
ngx_ratelimit_read_percent(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    int64_t  percent;

    if (ngx_ratelimit_read_number(reader, at, value, 1, 100, &percent)
        == NGX_OK)
    {
        draft->rule->percent = (ngx_uint_t) percent;
    }
}


static void
ngx_ratelimit_read_dry_run(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    (void) reader;
    (void) at;

    draft->rule->dry_run = json_is_true(value);
}


/* Whether what the rule says goes together. */
static void
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


/* Of a rule whose limit is known. */
static void
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


/* The layer above knows variables. */
static void
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


/* limited: the rule's own limit is known, and theirs can be made. */
static void
ngx_ratelimit_read_allowances(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited)
{
    ngx_ratelimit_place_t  place;

    place.up = at;

    if (draft->tiers) {
        place.name = "tiers";
        ngx_ratelimit_read_rule_tiers(reader, &place, draft, limited);
    }

    if (draft->override) {
        place.name = "override";
        ngx_ratelimit_read_rule_keys(reader, &place, draft, limited);
    }
}


static void
ngx_ratelimit_read_rule_tiers(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited)
{
    void                    *iter;
    size_t                   n;
    ngx_str_t                name;
    ngx_ratelimit_tier_t    *tier;
    ngx_ratelimit_rule_t    *rule;
    ngx_ratelimit_place_t    place;
    ngx_ratelimit_amount_t   amount;

    rule = draft->rule;
    n = json_object_size(draft->tiers);

    if (n > NGX_RATELIMIT_MAX_TIERS) {
        ngx_ratelimit_read_problem(reader, at, "expected at most %d tiers",
                                   NGX_RATELIMIT_MAX_TIERS);
        return;
    }

    tier = ngx_ratelimit_read_alloc(reader, n * sizeof(ngx_ratelimit_tier_t));
    if (tier == NULL) {
        return;
    }

    rule->tiers = tier;
    rule->ntiers = n;
    place.up = at;

    for (iter = json_object_iter(draft->tiers);
         iter;
         iter = json_object_iter_next(draft->tiers, iter))
    {
        place.name = json_object_iter_key(iter);
        name.data = (u_char *) place.name;
        name.len = json_object_iter_key_len(iter);

        (void) ngx_ratelimit_read_tier(reader, &place, &name);

        tier->tier.len = name.len;
        tier->tier.data = ngx_pstrdup(reader->pool, &name);

        if (tier->tier.data == NULL && name.len) {
            reader->failed = 1;
            return;
        }

        if (ngx_ratelimit_read_amount(reader, &place,
                                      json_object_iter_value(iter),
                                      draft->wrong ? NULL
                                      : &rule->spec.algorithm, &amount)
            == NGX_OK
            && limited)
        {
            (void) ngx_ratelimit_read_allowance(reader, &place, rule, &amount,
                                                &tier->allowance);
        }

        tier++;
    }
}


static void
ngx_ratelimit_read_rule_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited)
{
    void                     *iter;
    u_char                  (*names)[NGX_RATELIMIT_SHA256];
    size_t                    n;
    uint32_t                  i;
    ngx_str_t                 text;
    ngx_uint_t                problems;
    ngx_ratelimit_rule_t     *rule;
    ngx_ratelimit_place_t     place;
    ngx_ratelimit_amount_t    amount;
    ngx_ratelimit_api_key_t   key;

    rule = draft->rule;
    problems = reader->problems->n;
    n = json_object_size(draft->override);

    rule->allowances = ngx_ratelimit_read_alloc(reader, n
                                            * sizeof(ngx_ratelimit_allowance_t));
    if (rule->allowances == NULL
        || ngx_ratelimit_read_map(reader, &rule->keys, n) != NGX_OK)
    {
        return;
    }

    names = ngx_alloc(n * sizeof(names[0]), reader->pool->log);
    if (names == NULL) {
        reader->failed = 1;
        return;
    }

    i = 0;
    place.up = at;

    for (iter = json_object_iter(draft->override);
         iter;
         iter = json_object_iter_next(draft->override, iter), i++)
    {
        place.name = json_object_iter_key(iter);
        text.data = (u_char *) place.name;
        text.len = json_object_iter_key_len(iter);

        if (ngx_ratelimit_read_api_key(reader, &place, &text, 0, &key)
            == NGX_OK)
        {
            ngx_memcpy(names[i], key.sha256, NGX_RATELIMIT_SHA256);

            if (ngx_ratelimit_map_put(&rule->keys, key.sha256, i)
                != NGX_RATELIMIT_MAP_NONE)
            {
                ngx_ratelimit_read_problem(reader, &place, "is the same key as "
                                           "another one here");
            }
        }

        if (ngx_ratelimit_read_amount(reader, &place,
                                      json_object_iter_value(iter),
                                      draft->wrong ? NULL
                                      : &rule->spec.algorithm, &amount)
            == NGX_OK
            && limited)
        {
            (void) ngx_ratelimit_read_allowance(reader, &place, rule, &amount,
                                                &rule->allowances[i]);
        }
    }

    if (problems == reader->problems->n) {
        ngx_ratelimit_read_rename(reader, draft->override, names);
    }

    ngx_free(names);
}

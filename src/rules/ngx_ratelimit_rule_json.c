/*
 * One rule of a document: its members. What is accepted, and what is refused,
 * is what "ratelimit_rule" accepts and refuses. A member that says the default
 * is as if it was not there, but for "sync" and "fail_mode".
 */

#include "ngx_ratelimit_rule_json.h"

#define NGX_RATELIMIT_MAX_PRIORITY  1000000

#define member(name)                                                          \
    static void ngx_ratelimit_read_##name(ngx_ratelimit_reader_t *reader,     \
        const ngx_ratelimit_place_t *at, json_t *value, void *data)

member(id);
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


void
ngx_ratelimit_read_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_rule_t *rule)
{
    uint64_t               has;
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

    has = ngx_ratelimit_read_members(reader, at, value,
                                     ngx_ratelimit_rule_members, &draft);
    ngx_ratelimit_read_missing(reader, at, ngx_ratelimit_rule_members, has, 1);

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

    if (ngx_ratelimit_read_name(reader, at, value)) {
        draft->rule->id = ngx_ratelimit_read_copy(reader, value);
    }
}


static void
ngx_ratelimit_read_algorithm(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_int_t  algorithm;

    algorithm = ngx_ratelimit_read_one_of(reader, at, value,
                                          ngx_ratelimit_algorithm_names);

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

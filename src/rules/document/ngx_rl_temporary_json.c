/*
 * Temporary limits, the "overrides" of a document: each of one API key, or of
 * one value of a part of keys, in one rule or in all of them.
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_text.h"

#define NGX_RL_MILLION     1000000
#define NGX_RL_MAX_FACTOR  1000000

/* A temporary limit while it is read. */
typedef struct {
    ngx_rl_temporary_t   *limit;
    const ngx_rl_rule_t  *rule;      /* NULL: of any, or not known */
    u_char                digest[NGX_RL_MAP_KEY];
    json_t               *part;      /* of the tenant */
    json_t               *tenant;
    ngx_rl_map_t         *ids;

    unsigned                     named:1;   /* it has "rule" */
    unsigned                     key:1;     /* it has "key" */
    unsigned                     tenants:1; /* it has "tenant" */
    unsigned                     found:1;   /* by the digest, which is known */
    unsigned                     typed:1;   /* it has a "type" that is one */
    unsigned                     factor:1;  /* that is "multiplicative" */
    unsigned                     amount:1;  /* it has a value that is one */
} ngx_rl_temporary_read_t;

#define NGX_RL_TENANT                                                         \
    (NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED|NGX_RL_IS_KEPT)


static void
ngx_rl_temporary_id(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    uint32_t   number;
    ngx_str_t  id;

    id = ngx_rl_read_text(value);
    number = (uint32_t) reader->at->up->number;

    if (!ngx_rl_name_valid(id.data, id.len)) {
        ngx_rl_read_problem(reader, "expected 1 to 64 of A-Z, a-z, 0-9, "
                            "\"_\", \".\", \"-\"");

    } else if (ngx_rl_read_enter(draft->ids, &id, number) != NGX_RL_MAP_NONE) {
        ngx_rl_read_problem(reader, "is taken by another override");

    } else {
        draft->limit->id = ngx_rl_read_copy(reader, &id);
    }
}


static void
ngx_rl_temporary_key(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    ngx_rl_api_key_t  key;

    draft->key = 1;

    if (ngx_rl_read_api_key(reader, value, 0, NULL, &key) == NGX_OK) {
        draft->found = 1;
        ngx_memcpy(draft->digest, key.digest, NGX_RL_MAP_KEY);
    }
}


static const ngx_rl_member_t  ngx_rl_tenant_members[] = {
    { "part", NGX_RL_TENANT,
      .offset = offsetof(ngx_rl_temporary_read_t, part),
      .expected = "a part of a rule's key, as it is written there" },
    { "value", NGX_RL_TENANT,
      .offset = offsetof(ngx_rl_temporary_read_t, tenant),
      .expected = "a value of that part" },
    { .name = NULL }
};


static void
ngx_rl_temporary_tenant(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    draft->tenants = 1;

    ngx_rl_read_members(reader, value, ngx_rl_tenant_members, draft);
}


static void
ngx_rl_temporary_rule(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    uint32_t    number;
    ngx_str_t   id;

    draft->named = 1;

    id = ngx_rl_read_text(value);
    number = ngx_rl_read_rule_id(reader, &id);

    if (number == NGX_RL_MAP_NONE) {
        return;
    }

    draft->rule = reader->rules[number];
    draft->limit->rule_id = draft->rule->id;

    if (draft->rule->shards) {
        ngx_rl_read_problem(reader, "has \"shards\": expected a rule "
                            "without them");
    }
}


static void
ngx_rl_temporary_type(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    const char  *type;

    type = json_string_value(value);

    draft->factor = (ngx_strcmp(type, "multiplicative") == 0);
    draft->typed = draft->factor || ngx_strcmp(type, "absolute") == 0;

    if (!draft->typed) {
        ngx_rl_read_problem(reader, "expected \"absolute\" or "
                            "\"multiplicative\"");
    }
}


/* In millionths; 0: it is none, with the problem added. */
static uint64_t
ngx_rl_temporary_factor(ngx_rl_reader_t *reader, const json_t *value)
{
    double    factor, off;
    uint64_t  millionths;

    if (!ngx_rl_read_is(reader, value, NGX_RL_IS_NUMBER)) {
        return 0;
    }

    factor = json_number_value(value);

    if (!(factor > 0)) {
        ngx_rl_read_problem(reader, "must be > 0");
        return 0;
    }

    if (factor > NGX_RL_MAX_FACTOR) {
        ngx_rl_read_problem(reader, "must be at most %d", NGX_RL_MAX_FACTOR);
        return 0;
    }

    /* below 2^40, so that six decimal places are there to be seen */

    factor *= NGX_RL_MILLION;
    millionths = (uint64_t) (factor + 0.5);
    off = factor - (double) millionths;

    if (millionths == 0 || off > 0.001 || off < -0.001) {
        ngx_rl_read_problem(reader, "must have at most six decimal places");
        return 0;
    }

    return millionths;
}


/* It is not read if the type is not known. */
static void
ngx_rl_temporary_value(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    if (!draft->typed) {
        return;
    }

    if (draft->factor) {
        draft->limit->millionths = ngx_rl_temporary_factor(reader, value);

    } else {
        draft->amount = ngx_rl_read_amount(reader, value,
                                           draft->rule
                                                ? &draft->rule->spec.algorithm
                                                : NULL, &draft->limit->amount)
                        == NGX_OK;
    }
}


static void
ngx_rl_temporary_expires_at(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_temporary_read_t *draft = data;

    int64_t  seconds;

    if (ngx_rl_read_time(reader, value, &seconds) == NGX_OK) {
        draft->limit->expires = (time_t) seconds;
    }
}


/* what the value is checked by stands before it */

static const ngx_rl_member_t  ngx_rl_temporary_members[] = {
    { "id", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED,
      .read = ngx_rl_temporary_id },
    { "key", NGX_RL_IS_TEXT, .read = ngx_rl_temporary_key },
    { "tenant", NGX_RL_IS_OBJECT,
      .read = ngx_rl_temporary_tenant },
    { "rule", NGX_RL_IS_TEXT, .read = ngx_rl_temporary_rule },
    { "type", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED,
      .read = ngx_rl_temporary_type },
    { "value", NGX_RL_IS_NUMBER|NGX_RL_IS_TEXT
               |NGX_RL_IS_OBJECT|NGX_RL_IS_NEEDED,
      .read = ngx_rl_temporary_value },
    { "expires_at", NGX_RL_IS_TEXT,
      .read = ngx_rl_temporary_expires_at },
    { "duration", NGX_RL_IS_ANY, .read = ngx_rl_read_duration },
    { "reason", .types = NGX_RL_IS_TEXT },
    { .name = NULL }
};


static ngx_uint_t
ngx_rl_temporary_part(const ngx_rl_rule_t *rule, const ngx_str_t *part)
{
    ngx_uint_t  i;

    for (i = 0; i < rule->nparts; i++) {
        if (ngx_rl_equal(&rule->parts[i], part)) {
            return 1;
        }
    }

    return rule->nparts == 0 && ngx_rl_equal(&rule->key, part);
}


/* The API key or the tenant. A tenant's part must be one of a key. */
static void
ngx_rl_temporary_client(ngx_rl_reader_t *reader, ngx_rl_temporary_read_t *draft)
{
    uint32_t   i;
    ngx_str_t  part, tenant;

    if (draft->key == draft->tenants) {
        ngx_rl_read_problem(reader, "expected one of \"key\" and \"tenant\"");
        draft->found = 0;
        return;
    }

    if (draft->part == NULL || draft->tenant == NULL) {
        return;
    }

    part = ngx_rl_read_text(draft->part);
    tenant = ngx_rl_read_text(draft->tenant);

    ngx_rl_policy_part_digest(&part, &tenant, 0, draft->digest);
    draft->found = 1;
    reader->policy->tenants = 1;

    if (draft->rule) {
        if (!ngx_rl_temporary_part(draft->rule, &part)) {
            ngx_rl_read_wrong(reader, "tenant", "part", "is no part of "
                              "the key of rule \"%V\"",
                              &draft->rule->id);
        }

        return;
    }

    for (i = 0; i < reader->nrules && !draft->named; i++) {
        if (ngx_rl_temporary_part(reader->rules[i], &part)) {
            return;
        }
    }

    if (!draft->named) {
        ngx_rl_read_add(reader, reader->warnings, "tenant", "part",
                        "is no part of a rule's key: the override has "
                        "no effect");
    }
}


/*
 * Tries the value on the limit of the rule that it names, where that is known.
 * A limit that it does not fit stays as it is, and explain says so.
 */
static void
ngx_rl_temporary_fits(ngx_rl_reader_t *reader,
    const ngx_rl_temporary_read_t *draft)
{
    char             words[NGX_RL_READ_WORDS];
    const char      *expected;
    ngx_rl_spec_t    spec;
    ngx_rl_limit_t   limit;

    if (!draft->amount || draft->rule == NULL || draft->rule->limit.mark == 0) {
        return;
    }

    expected = ngx_rl_amount_inherit(&draft->rule->spec, &draft->limit->amount,
                                     &spec);

    if (expected == NULL) {
        expected = ngx_rl_limit_init(&limit, &spec);
    }

    if (expected) {
        ngx_rl_read_wrong(reader, NULL, "value", "expected %s",
                          ngx_rl_read_words(expected, words));
    }
}


static void
ngx_rl_temporary(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    uint32_t                  number;
    ngx_uint_t                problems;
    ngx_rl_policy_t          *policy;
    ngx_rl_temporary_read_t   draft;

    policy = reader->policy;
    number = (uint32_t) reader->at->number;
    problems = reader->problems->n;

    ngx_memzero(&draft, sizeof(ngx_rl_temporary_read_t));
    draft.limit = &policy->temporary_limits[number];
    draft.ids = data;

    reader->inside = 1;
    ngx_rl_read_members(reader, value, ngx_rl_temporary_members, &draft);
    reader->inside = 0;

    ngx_rl_temporary_client(reader, &draft);

    ngx_rl_temporary_fits(reader, &draft);

    if (!ngx_rl_read_skip(reader, problems, &draft.limit->id) && draft.found) {
        draft.limit->next = ngx_rl_map_put(&policy->temporary_keys,
                                           draft.digest, number);
    }
}


void
ngx_rl_read_temporary_limits(ngx_rl_reader_t *reader, json_t *list, void *data)
{
    ngx_rl_policy_t *policy = data;

    size_t               n;
    ngx_rl_map_t  ids;

    n = json_array_size(list);

    if (n == 0
        || !ngx_rl_read_few(reader, NULL, list,
                            NGX_RL_DOCUMENT_ENTRIES))
    {
        return;
    }

    policy->temporary_limits = ngx_rl_read_alloc(reader, reader->pool,
                                       n * sizeof(ngx_rl_temporary_t));

    if (policy->temporary_limits
        && ngx_rl_read_map(reader, reader->pool,
                           &policy->temporary_keys, n)
           == NGX_OK
        && ngx_rl_read_map(reader, reader->temp, &ids, n) == NGX_OK)
    {
        ngx_rl_read_each(reader, list, NGX_RL_IS_OBJECT,
                         ngx_rl_temporary, &ids);
    }
}

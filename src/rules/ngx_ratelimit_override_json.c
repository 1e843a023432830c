/*
 * Temporary overrides of a document: each of one API key, or of one value of a
 * part of keys, in one rule or in all of them.
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_date.h"

#define NGX_RATELIMIT_MILLION     1000000
#define NGX_RATELIMIT_MAX_FACTOR  1000000
#define NGX_RATELIMIT_FITS  2000000   /* tried for one document: some tenths of
                                         a second */

/* members that must be there, bits of the tables: id, type, value; both */
#define NGX_RATELIMIT_OVERRIDE_NEEDED  0x31
#define NGX_RATELIMIT_TENANT_NEEDED    0x03

/* An override while it is read. */
typedef struct {
    ngx_ratelimit_override_t   *override;
    const ngx_ratelimit_rule_t *rule;      /* NULL: of any, or not known */
    json_t                     *value;
    u_char                      digest[NGX_RATELIMIT_MAP_KEY];
    ngx_str_t                   part;      /* of the tenant, in the tree */
    ngx_str_t                   tenant;
    ngx_ratelimit_map_t        *ids;
    uint32_t                    number;

    unsigned                    named:1;   /* it has "rule" */
    unsigned                    key:1;     /* it has "key" */
    unsigned                    tenants:1; /* it has "tenant" */
    unsigned                    known:1;   /* the digest */
    unsigned                    typed:1;   /* it has "type" */
    unsigned                    factor:1;  /* that is "multiplicative" */
    unsigned                    amount:1;  /* it has a value that is one */
    unsigned                    fixed:1;   /* the rule is of nginx.conf */
} ngx_ratelimit_override_read_t;

/* An absolute override that is otherwise known, to be tried on limits. */
typedef struct {
    const ngx_ratelimit_amount_t  *amount;
    const u_char                  *digest;   /* of an API key; or NULL: */
    const ngx_str_t               *part;     /* of a tenant's part of keys */
    const ngx_ratelimit_rule_t    *rule;     /* that it names; NULL: none */
    unsigned                       fixed:1;  /* that is of nginx.conf */
} ngx_ratelimit_fit_t;

#define member(name)                                                          \
    static void ngx_ratelimit_override_##name(ngx_ratelimit_reader_t *reader, \
        const ngx_ratelimit_place_t *at, json_t *value, void *data)

member(id);
member(rule);
member(key);
member(tenant);
member(part);
member(tenant_value);
member(type);
member(value);
member(expires_at);

#undef member

static void ngx_ratelimit_override(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_override_read_t *draft);
static void ngx_ratelimit_override_of(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft);
static void ngx_ratelimit_override_has_part(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft);
static void ngx_ratelimit_override_amount(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft);
static void ngx_ratelimit_override_fit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at,
    const ngx_ratelimit_override_read_t *draft);
static void ngx_ratelimit_override_factor(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft);

static void ngx_ratelimit_fit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit);
static ngx_uint_t ngx_ratelimit_fit_part(const ngx_ratelimit_rule_t *rule,
    const ngx_str_t *part);
static ngx_uint_t ngx_ratelimit_fit_meets(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule);
static void ngx_ratelimit_fit_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule, ngx_uint_t fixed);
static const char *ngx_ratelimit_fit_limit(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule);
static const char *ngx_ratelimit_fit_allowance(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_allowance_t *allowance);
static void ngx_ratelimit_fit_wrong(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_uint_t problem,
    const ngx_ratelimit_rule_t *rule, const ngx_str_t *tier,
    const char *expected);

/* what the value is checked by stands before it */

static const ngx_ratelimit_member_t  ngx_ratelimit_override_members[] = {
    { "id", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_id },
    { "key", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_key },
    { "tenant", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_override_tenant },
    { "rule", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_rule },
    { "type", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_type },
    { "value", NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_OBJECT,
      ngx_ratelimit_override_value },
    { "expires_at", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_expires_at },
    { "reason", NGX_RATELIMIT_IS_TEXT, NULL },
    { NULL, 0, NULL }
};

static const ngx_ratelimit_member_t  ngx_ratelimit_tenant_members[] = {
    { "part", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_part },
    { "value", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_override_tenant_value },
    { NULL, 0, NULL }
};


void
ngx_ratelimit_read_overrides(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *list, void *data)
{
    size_t                      i, n;
    uint32_t                    before;
    ngx_uint_t                  problems;
    ngx_ratelimit_map_t         ids;
    ngx_ratelimit_override_read_t       draft;
    ngx_ratelimit_place_t       item;
    ngx_ratelimit_policy_t     *policy;
    ngx_ratelimit_override_t   *overrides;

    (void) data;

    n = json_array_size(list);

    if (n == 0) {
        return;
    }

    policy = reader->policy;
    overrides = ngx_ratelimit_read_alloc(reader,
                                         n * sizeof(ngx_ratelimit_override_t));

    if (overrides == NULL
        || ngx_ratelimit_read_map(reader, &policy->override_keys, n) != NGX_OK
        || ngx_ratelimit_read_map(reader, &ids, n) != NGX_OK)
    {
        return;
    }

    policy->overrides = overrides;

    for (i = 0; i < n; i++) {
        ngx_memzero(&draft, sizeof(ngx_ratelimit_override_read_t));
        draft.override = &overrides[i];
        draft.number = (uint32_t) i;
        draft.ids = &ids;

        overrides[i].next = NGX_RATELIMIT_MAP_NONE;
        problems = reader->problems->n;

        ngx_ratelimit_override(reader, &item,
                               ngx_ratelimit_read_item(list, i, at, &item),
                               &draft);

        if (ngx_ratelimit_read_skip(reader, problems, &overrides[i].id)
            || !draft.known)
        {
            continue;
        }

        before = ngx_ratelimit_map_put(&policy->override_keys, draft.digest,
                                       (uint32_t) i);

        overrides[i].next = before;
    }
}


static void
ngx_ratelimit_override(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_override_read_t *draft)
{
    uint64_t  has;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_OBJECT)) {
        return;
    }

    has = ngx_ratelimit_read_members(reader, at, value,
                                     ngx_ratelimit_override_members, draft);
    ngx_ratelimit_read_missing(reader, at, ngx_ratelimit_override_members, has,
                               NGX_RATELIMIT_OVERRIDE_NEEDED);
    ngx_ratelimit_override_of(reader, at, draft);

    if (draft->amount && draft->known && !draft->named == !draft->rule) {
        ngx_ratelimit_override_fit(reader, at, draft);
    }
}


static void
ngx_ratelimit_override_id(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    ngx_str_t  id;
    u_char     sha256[NGX_RATELIMIT_SHA256];

    if (!ngx_ratelimit_read_name(reader, at, value)) {
        return;
    }

    id = ngx_ratelimit_read_text(value);
    ngx_ratelimit_read_sha256(&id, sha256);

    if (ngx_ratelimit_map_put(draft->ids, sha256, draft->number)
        != NGX_RATELIMIT_MAP_NONE)
    {
        ngx_ratelimit_read_problem(reader, at, "is taken by another override");
        return;
    }

    draft->override->id = ngx_ratelimit_read_copy(reader, value);
}


static void
ngx_ratelimit_override_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    u_char      sha256[NGX_RATELIMIT_SHA256];
    uint32_t    number;
    ngx_str_t   id;

    draft->named = 1;

    id = ngx_ratelimit_read_text(value);
    ngx_ratelimit_read_sha256(&id, sha256);

    number = ngx_ratelimit_map_get(&reader->ids, sha256);

    if (number == NGX_RATELIMIT_MAP_NONE) {
        ngx_ratelimit_read_problem(reader, at, "is no rule of this document or "
                                   "of nginx.conf");
        return;
    }

    draft->rule = reader->rules[number];
    draft->fixed = (number < reader->nfixed);
    draft->override->rule_id = draft->rule->id;

    if (draft->rule->shards) {
        ngx_ratelimit_read_problem(reader, at, "has \"shards\": expected a "
                                   "rule without them");
    }
}


static void
ngx_ratelimit_override_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    ngx_str_t                 text;
    ngx_ratelimit_api_key_t   key;

    draft->key = 1;

    text = ngx_ratelimit_read_text(value);

    if (ngx_ratelimit_read_api_key(reader, at, &text, 0, &key) != NGX_OK) {
        return;
    }

    draft->known = 1;
    ngx_memcpy(draft->digest, key.sha256, NGX_RATELIMIT_MAP_KEY);
    ngx_ratelimit_read_store(reader, value, &key);
}


static void
ngx_ratelimit_override_tenant(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    uint64_t  has;

    draft->tenants = 1;

    has = ngx_ratelimit_read_members(reader, at, value,
                                     ngx_ratelimit_tenant_members, draft);
    ngx_ratelimit_read_missing(reader, at, ngx_ratelimit_tenant_members, has,
                               NGX_RATELIMIT_TENANT_NEEDED);
}


static void
ngx_ratelimit_override_part(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    draft->part = ngx_ratelimit_read_text(value);

    if (draft->part.len == 0) {
        ngx_ratelimit_read_problem(reader, at, "expected a part of a rule's "
                                   "key, as it is written there");
    }
}


static void
ngx_ratelimit_override_tenant_value(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    draft->tenant = ngx_ratelimit_read_text(value);

    if (draft->tenant.len == 0) {
        ngx_ratelimit_read_problem(reader, at, "expected a value of that part");
    }
}


/* Whose limits the override changes: what it is found by. */
static void
ngx_ratelimit_override_of(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft)
{
    if (draft->key == draft->tenants) {
        ngx_ratelimit_read_problem(reader, at, "expected one of \"key\" and "
                                   "\"tenant\"");
        draft->known = 0;
        return;
    }

    if (draft->part.len == 0 || draft->tenant.len == 0) {
        return;
    }

    ngx_ratelimit_policy_part_digest(&draft->part, &draft->tenant,
                                     draft->digest);
    draft->known = 1;
    reader->policy->tenants = 1;

    ngx_ratelimit_override_has_part(reader, at, draft);
}


/* Whether there is a key with that part. */
static void
ngx_ratelimit_override_has_part(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft)
{
    u_char                       sha256[NGX_RATELIMIT_SHA256];
    ngx_ratelimit_place_t        tenant, part;
    const ngx_ratelimit_rule_t  *rule;

    tenant.up = at;
    tenant.name = "tenant";
    part.up = &tenant;
    part.name = "part";

    rule = draft->rule;

    if (rule == NULL) {

        if (draft->named) {
            return;
        }

        ngx_ratelimit_read_sha256(&draft->part, sha256);

        if (ngx_ratelimit_map_get(&reader->parts, sha256)
            == NGX_RATELIMIT_MAP_NONE)
        {
            ngx_ratelimit_read_warning(reader, &part, "is no part of a rule's "
                                       "key: the override has no effect");
        }

        return;
    }

    if (!ngx_ratelimit_fit_part(rule, &draft->part)) {
        ngx_ratelimit_read_problem(reader, &part, "is no part of the key of "
                                   "rule \"%V\"", &rule->id);
    }
}


static void
ngx_ratelimit_override_type(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    ngx_int_t  type;

    static const char *const  names[] = { "absolute", "multiplicative", NULL };

    draft->typed = 1;

    type = ngx_ratelimit_read_one_of(reader, at, value, names);

    /* otherwise nothing can be said of the value */

    draft->factor = (type == 1);
    draft->value = (type < 0) ? value : NULL;
}


static void
ngx_ratelimit_override_value(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    if (!draft->typed || draft->value) {
        return;
    }

    draft->value = value;

    if (draft->factor) {
        ngx_ratelimit_override_factor(reader, at, draft);

    } else {
        ngx_ratelimit_override_amount(reader, at, draft);
    }
}


static void
ngx_ratelimit_override_amount(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft)
{
    int64_t                      n;
    const ngx_ratelimit_rule_t  *rule;

    rule = draft->rule;

    if (!json_is_number(draft->value)) {
        draft->amount =
            ngx_ratelimit_read_amount(reader, at, draft->value,
                                      rule ? &rule->spec.algorithm : NULL,
                                      &draft->override->amount)
            == NGX_OK;
        return;
    }

    if (ngx_ratelimit_read_number(reader, at, draft->value, 1,
                                  NGX_RATELIMIT_MAX_TOKENS, &n)
        == NGX_OK)
    {
        draft->override->amount.tokens = (uint64_t) n;
        draft->amount = 1;
    }
}


/* What makes no limit of the rules that it may meet is found now. */
static void
ngx_ratelimit_override_fit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_override_read_t *draft)
{
    ngx_ratelimit_fit_t    fit;
    ngx_ratelimit_place_t  value;

    value.up = at;
    value.name = "value";

    ngx_memzero(&fit, sizeof(ngx_ratelimit_fit_t));

    fit.amount = &draft->override->amount;
    fit.rule = draft->rule;
    fit.fixed = draft->fixed;

    if (draft->key) {
        fit.digest = draft->digest;

    } else {
        fit.part = &draft->part;
    }

    ngx_ratelimit_fit(reader, &value, &fit);
}


static void
ngx_ratelimit_override_factor(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_override_read_t *draft)
{
    double    factor, off;
    uint64_t  millionths;

    if (!ngx_ratelimit_read_is(reader, at, draft->value,
                               NGX_RATELIMIT_IS_NUMBER))
    {
        return;
    }

    factor = json_number_value(draft->value);

    if (!(factor > 0)) {
        ngx_ratelimit_read_problem(reader, at, "must be > 0");
        return;
    }

    if (factor > NGX_RATELIMIT_MAX_FACTOR) {
        ngx_ratelimit_read_problem(reader, at, "must be at most %d",
                                   NGX_RATELIMIT_MAX_FACTOR);
        return;
    }

    /* below 2^40, so that six decimal places are there to be seen */

    factor *= NGX_RATELIMIT_MILLION;
    millionths = (uint64_t) (factor + 0.5);
    off = factor - (double) millionths;

    if (millionths == 0 || off > 0.001 || off < -0.001) {
        ngx_ratelimit_read_problem(reader, at, "must have at most six decimal "
                                   "places");
        return;
    }

    draft->override->millionths = millionths;
}


static void
ngx_ratelimit_override_expires_at(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_override_read_t *draft = data;

    int64_t    seconds;
    ngx_str_t  text;

    text = ngx_ratelimit_read_text(value);

    if (ngx_ratelimit_date_parse(text.data, text.len, &seconds) != 0) {
        ngx_ratelimit_read_problem(reader, at, "expected a time like "
                                   "\"2026-12-01T00:00:00Z\"");
        return;
    }

    draft->override->expires = (time_t) seconds;
}


/*
 * Whether it makes a limit of each that it may be on top of: of the rules that
 * it may meet, and of their tiers. What it does not fit stays as it is while
 * requests come. In a document that is written that is a problem at the value,
 * but for rules of nginx.conf that it does not name: they may be others on
 * another node. There, and in one that is stored, it is a warning: no rules are
 * given up for it; but the limit of a rule of the document that it names is one
 * that it always had to fit.
 */
static void
ngx_ratelimit_fit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit)
{
    uint32_t  i;

    if (fit->rule) {
        ngx_ratelimit_fit_rule(reader, at, fit, fit->rule, fit->fixed);
        return;
    }

    for (i = 0; i < reader->nrules && !reader->failed; i++) {

        if (reader->fits >= NGX_RATELIMIT_FITS) {

            if (reader->fits++ == NGX_RATELIMIT_FITS) {
                ngx_ratelimit_read_warning(reader, at, "is not tried on every "
                                           "rule, nor are overrides behind it: "
                                           "there are too many");
            }

            return;
        }

        reader->fits++;

        if (ngx_ratelimit_fit_meets(fit, reader->rules[i])) {
            ngx_ratelimit_fit_rule(reader, at, fit, reader->rules[i],
                                   i < reader->nfixed);
        }
    }
}


static ngx_uint_t
ngx_ratelimit_fit_meets(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule)
{
    const ngx_ratelimit_keys_t  *keys;

    if (rule->shards) {
        return 0;
    }

    if (fit->digest == NULL) {
        return ngx_ratelimit_fit_part(rule, fit->part);
    }

    /* which key a pattern matches its digest does not say */

    keys = rule->api_keys;

    return keys == NULL || keys->globs
           || ngx_ratelimit_map_get(&keys->digests, fit->digest)
              != NGX_RATELIMIT_MAP_NONE;
}


static ngx_uint_t
ngx_ratelimit_fit_part(const ngx_ratelimit_rule_t *rule,
    const ngx_str_t *part)
{
    ngx_uint_t  i;

    for (i = 0; i < rule->nparts; i++) {
        if (ngx_ratelimit_equal(&rule->parts[i], part)) {
            return 1;
        }
    }

    return rule->nparts == 0 && ngx_ratelimit_equal(&rule->key, part);
}


/*
 * On top of what the rule allows the API key, or else a tier, or else all: of
 * tiers the one that the document assigns to the key, or, since another may be
 * a variable's, each.
 */
static void
ngx_ratelimit_fit_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule, ngx_uint_t fixed)
{
    uint32_t          number;
    ngx_uint_t        i, problem;
    const char       *expected;
    const ngx_str_t  *tier;

    problem = reader->written && (fit->rule || !fixed);
    tier = NULL;

    if (fit->digest) {

        number = ngx_ratelimit_map_get(&rule->keys, fit->digest);

        if (number != NGX_RATELIMIT_MAP_NONE) {
            expected = ngx_ratelimit_fit_allowance(fit,
                                                   &rule->allowances[number]);
            ngx_ratelimit_fit_wrong(reader, at, problem, rule, NULL, expected);
            return;
        }

        number = ngx_ratelimit_map_get(&reader->policy->tier_keys,
                                       fit->digest);

        if (number != NGX_RATELIMIT_MAP_NONE) {
            tier = &reader->policy->tiers[number];
        }
    }

    for (i = 0; i < rule->ntiers; i++) {

        if (tier && !ngx_ratelimit_equal(tier, &rule->tiers[i].tier)) {
            continue;
        }

        reader->fits++;

        expected = ngx_ratelimit_fit_allowance(fit, &rule->tiers[i].allowance);
        ngx_ratelimit_fit_wrong(reader, at, problem, rule,
                                &rule->tiers[i].tier, expected);

        if (tier) {
            return;
        }
    }

    expected = ngx_ratelimit_fit_limit(fit, rule);

    if (expected && fit->rule && (problem || !fixed)) {
        ngx_ratelimit_read_expected(reader, at, NULL, NULL, expected);
        return;
    }

    ngx_ratelimit_fit_wrong(reader, at, problem, rule, NULL, expected);
}


/* NULL, or what was expected. */
static const char *
ngx_ratelimit_fit_limit(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_ratelimit_spec_t       spec;
    ngx_ratelimit_allowance_t  allowance;

    if (!rule->dynamic) {
        allowance.spec = rule->spec;
        allowance.limit = rule->limit;

        return ngx_ratelimit_fit_allowance(fit, &allowance);
    }

    /* what a variable will say may be anything: what fits none is found */

    spec = rule->spec;
    spec.tokens = 1;

    if (spec.period_us == 0 && spec.calendar == NGX_RATELIMIT_CALENDAR_NONE
        && spec.algorithm != NGX_RATELIMIT_CONCURRENCY)
    {
        spec.period_us = 1000000;
    }

    return ngx_ratelimit_amount_inherit(&spec, fit->amount, &allowance.spec);
}


/* The same. What is no limit itself is a problem of its own. */
static const char *
ngx_ratelimit_fit_allowance(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_allowance_t *allowance)
{
    const char             *expected;
    ngx_ratelimit_spec_t    spec;
    ngx_ratelimit_limit_t   limit;

    if (allowance->limit.mark == 0) {
        return NULL;
    }

    expected = ngx_ratelimit_amount_inherit(&allowance->spec, fit->amount,
                                            &spec);

    return expected ? expected : ngx_ratelimit_limit_init(&limit, &spec);
}


static void
ngx_ratelimit_fit_wrong(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_uint_t problem,
    const ngx_ratelimit_rule_t *rule, const ngx_str_t *tier,
    const char *expected)
{
    ngx_str_t  words;
    u_char     buf[NGX_RATELIMIT_READ_WORDS];

    static const ngx_str_t  none = ngx_null_string;

    if (expected == NULL) {
        return;
    }

    words = ngx_ratelimit_read_words(expected, buf);

    (problem ? ngx_ratelimit_read_problem : ngx_ratelimit_read_warning)
        (reader, at, "does not fit %s%V%srule \"%V\"%s: expected %V",
         tier ? "tier \"" : "", tier ? tier : &none, tier ? "\" of " : "",
         &rule->id, problem ? "" : ", which stays as it is", &words);
}

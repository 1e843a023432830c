/*
 * "tier_of" of a document: which API keys, and which values of the keys of
 * rules, have which tier.
 */

#include "ngx_rl_read_json.h"

/* Tiers while they are read. */
typedef struct {
    ngx_array_t            tiers;      /* ngx_str_t: distinct ones */
    ngx_rl_map_t           numbers;    /* of them */
    ngx_array_t            patterns;   /* of more than one key */
    ngx_rl_tier_source_t  *source;     /* of what is read now */
} ngx_rl_tiers_t;

/* An entry of "patterns" while it is read. */
typedef struct {
    json_t                       *pattern;
    json_t                       *tier;
    json_t                       *rule;
} ngx_rl_tiers_entry_t;

/* What is kept of it. */
typedef struct {
    ngx_uint_t                    source;     /* its number */
    uint32_t                      place;
    ngx_str_t                     glob;
} ngx_rl_tiers_pattern_t;

#define NGX_RL_TIERS_TEXT                                                     \
    (NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED|NGX_RL_IS_KEPT)


/* The number of a tier's name; NONE: it is none, with the problem added. */
static uint32_t
ngx_rl_tiers_number(ngx_rl_reader_t *reader, json_t *value, ngx_rl_tiers_t *all)
{
    uint32_t    number;
    ngx_str_t   text, *tier;

    text = ngx_rl_read_text(value);

    if (!ngx_rl_read_is(reader, value, NGX_RL_IS_TEXT)
        || !ngx_rl_read_tier(reader, &text))
    {
        return NGX_RL_MAP_NONE;
    }

    number = ngx_rl_read_find(&all->numbers, &text);

    if (number != NGX_RL_MAP_NONE) {
        return number;
    }

    tier = ngx_array_push(&all->tiers);

    if (tier == NULL) {
        reader->failed = 1;
        return NGX_RL_MAP_NONE;
    }

    *tier = ngx_rl_read_copy(reader, &text);

    number = (uint32_t) all->tiers.nelts - 1;
    (void) ngx_rl_read_enter(&all->numbers, &text, number);

    return number;
}


/* The tier that one key has. Returns the one that it had before, or NONE. */
static uint32_t
ngx_rl_tiers_put(ngx_rl_reader_t *reader, ngx_rl_tiers_t *all,
    ngx_rl_api_key_t *key, uint32_t tier)
{
    uint32_t       before;
    ngx_str_t      text;
    ngx_rl_map_t  *keys;

    text.data = key->stored;
    text.len = sizeof(key->stored);
    keys = &reader->policy->tier_keys;

    ngx_rl_access_rule_key(all->source
                           - (ngx_rl_tier_source_t *)
                                    reader->policy->tier_sources.elts,
                           NULL, &text, key->digest);

    before = ngx_rl_map_get(keys, key->digest);

    if (before == NGX_RL_MAP_NONE) {
        (void) ngx_rl_map_put(keys, key->digest, tier);
    }

    all->source->keys++;

    return before;
}


static void
ngx_rl_tiers_key(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_tiers_t *all = data;

    uint32_t                  tier;
    ngx_int_t                 rc;
    ngx_rl_api_key_t   key;

    rc = ngx_rl_read_api_key(reader, NULL, 0, all->source->rule, &key);
    tier = ngx_rl_tiers_number(reader, value, all);

    if (rc == NGX_OK && tier != NGX_RL_MAP_NONE
        && ngx_rl_tiers_put(reader, all, &key, tier)
           != NGX_RL_MAP_NONE)
    {
        ngx_rl_read_problem(reader, "is the same key as another one here");
    }
}


static void
ngx_rl_tiers_keys(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_uint_t  problems;

    problems = reader->problems->n;

    ngx_rl_read_each(reader, value, NGX_RL_IS_ANY, ngx_rl_tiers_key, data);
    ngx_rl_read_rename(reader, value, problems);
}


/* Finds or adds the source of a rule; NULL: of the API key. */
static ngx_int_t
ngx_rl_tiers_source(ngx_rl_reader_t *reader, ngx_rl_tiers_t *all,
    ngx_rl_rule_t *rule)
{
    ngx_uint_t             i;
    ngx_array_t           *sources;
    ngx_rl_tier_source_t  *source;

    sources = &reader->policy->tier_sources;
    source = sources->elts;

    for (i = 0; i < sources->nelts; i++) {
        if (source[i].rule == rule) {
            all->source = &source[i];
            return NGX_OK;
        }
    }

    all->source = ngx_array_push(sources);

    if (all->source == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(all->source, sizeof(ngx_rl_tier_source_t));
    all->source->rule = rule;

    return NGX_OK;
}


/* NGX_DECLINED: there is no such rule, with the problem added. */
static ngx_int_t
ngx_rl_tiers_of_rule(ngx_rl_reader_t *reader, ngx_rl_tiers_t *all,
    const ngx_str_t *id)
{
    uint32_t  number;

    number = ngx_rl_read_rule_id(reader, id);

    if (number == NGX_RL_MAP_NONE) {
        return NGX_DECLINED;
    }

    if (ngx_rl_tiers_source(reader, all, reader->rules[number]) != NGX_OK) {
        reader->failed = 1;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* An empty object does not keep its rule from being deleted. */
static void
ngx_rl_tiers_rule(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_str_t   id;
    ngx_uint_t  problems;

    problems = reader->problems->n;

    if (json_object_size(value) == 0
        || !ngx_rl_read_few(reader, NULL, value,
                            NGX_RL_DOCUMENT_ENTRIES))
    {
        return;
    }

    id.data = (u_char *) reader->at->name;
    id.len = ngx_strlen(id.data);

    if (ngx_rl_tiers_of_rule(reader, data, &id) == NGX_OK) {
        ngx_rl_tiers_keys(reader, value, data);
        return;
    }

    if (ngx_rl_read_skip(reader, problems, NULL)) {
        ngx_rl_read_rename(reader, value, problems);
    }
}


static void
ngx_rl_tiers_rules(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_tiers_t *all = data;

    ngx_rl_read_each(reader, value, NGX_RL_IS_OBJECT, ngx_rl_tiers_rule, all);

    all->source = reader->policy->tier_sources.elts;
}


static const ngx_rl_member_t  ngx_rl_tiers_pattern_members[] = {
    { "pattern", NGX_RL_TIERS_TEXT,
      .offset = offsetof(ngx_rl_tiers_entry_t, pattern) },
    { "tier", NGX_RL_TIERS_TEXT,
      .offset = offsetof(ngx_rl_tiers_entry_t, tier) },
    { "rule", NGX_RL_IS_TEXT|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_tiers_entry_t, rule) },
    { .name = NULL }
};


static void
ngx_rl_tiers_pattern(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_tiers_t *all = data;

    uint32_t                        tier;
    ngx_int_t                       rc;
    ngx_str_t                       id;
    ngx_uint_t                      problems;
    ngx_rl_place_t           place;
    ngx_rl_api_key_t         key;
    ngx_rl_tiers_entry_t     one;
    ngx_rl_tiers_pattern_t  *pattern;

    ngx_memzero(&one, sizeof(ngx_rl_tiers_entry_t));

    ngx_rl_read_members(reader, value, ngx_rl_tiers_pattern_members, &one);

    if (one.tier == NULL || one.pattern == NULL) {
        return;
    }

    problems = reader->problems->n;
    place.up = reader->at;
    reader->at = &place;

    all->source = reader->policy->tier_sources.elts;
    rc = NGX_OK;

    if (one.rule) {
        place.name = "rule";
        id = ngx_rl_read_text(one.rule);
        rc = ngx_rl_tiers_of_rule(reader, all, &id);
    }

    if (rc == NGX_DECLINED) {
        reader->at = place.up;
        (void) ngx_rl_read_skip(reader, problems, NULL);
        return;
    }

    place.name = "tier";
    tier = ngx_rl_tiers_number(reader, one.tier, all);

    place.name = "pattern";
    rc = ngx_rl_read_api_key(reader, one.pattern, 1, all->source->rule, &key);

    reader->at = place.up;

    if (rc != NGX_OK || tier == NGX_RL_MAP_NONE) {
        return;
    }

    if (key.glob.len == 0) {
        (void) ngx_rl_tiers_put(reader, all, &key, tier);
        return;
    }

    pattern = ngx_array_push(&all->patterns);

    if (pattern == NULL) {
        reader->failed = 1;
        return;
    }

    pattern->source = all->source
                      - (ngx_rl_tier_source_t *)
                        reader->policy->tier_sources.elts;
    pattern->place = (uint32_t) reader->at->number;
    pattern->glob = ngx_rl_read_copy(reader, &key.glob);
    all->source->npatterns++;

    reader->policy->pattern_tiers[pattern->place] =
        ((ngx_str_t *) all->tiers.elts)[tier];
}


static void
ngx_rl_tiers_patterns(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_read_each(reader, value, NGX_RL_IS_OBJECT,
                     ngx_rl_tiers_pattern, data);
}


/* keys first: a pattern that is one key leaves it the tier that it has there */

static const ngx_rl_member_t  ngx_rl_tiers_members[] = {
    { "keys", NGX_RL_IS_OBJECT, .read = ngx_rl_tiers_keys },
    { "rules", NGX_RL_IS_OBJECT, .read = ngx_rl_tiers_rules },
    { "patterns", NGX_RL_IS_ARRAY,
      .read = ngx_rl_tiers_patterns },
    { .name = NULL }
};


/* The patterns of each source, which is known for all of them by now. */
static void
ngx_rl_tiers_globs(ngx_rl_reader_t *reader, ngx_rl_tiers_t *all)
{
    void                    *memory;
    ngx_uint_t               i, k, n;
    ngx_rl_glob_text_t      *texts;
    ngx_rl_tier_source_t    *source;
    ngx_rl_tiers_pattern_t  *pattern;

    source = reader->policy->tier_sources.elts;
    pattern = all->patterns.elts;

    for (i = 0; i < reader->policy->tier_sources.nelts; i++) {
        n = source[i].npatterns;

        if (n == 0 || reader->failed) {
            continue;
        }

        texts = ngx_rl_read_alloc(reader, reader->temp,
                                  n * sizeof(ngx_rl_glob_text_t));
        source[i].places = ngx_rl_read_alloc(reader, reader->pool,
                                             n * sizeof(uint32_t));
        memory = ngx_rl_read_alloc(reader, reader->pool, ngx_rl_globs_bytes(n));

        if (reader->failed) {
            return;
        }

        for (k = 0, n = 0; k < all->patterns.nelts; k++) {
            if (pattern[k].source == i) {
                texts[n].data = pattern[k].glob.data;
                texts[n].len = pattern[k].glob.len;
                source[i].places[n++] = pattern[k].place;
            }
        }

        source[i].patterns = ngx_rl_globs_init(memory, texts, n);
    }
}


void
ngx_rl_read_tier_assignments(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_policy_t *policy = data;

    size_t                  n;
    json_t                 *keys, *rules, *rule, *patterns;
    const char             *id;
    ngx_rl_tiers_t   all;

    keys = json_object_get(value, "keys");
    rules = json_object_get(value, "rules");
    patterns = json_object_get(value, "patterns");

    if (!ngx_rl_read_few(reader, "keys", keys,
                         NGX_RL_DOCUMENT_ENTRIES)
        || !ngx_rl_read_few(reader, "patterns", patterns,
                            NGX_RL_DOCUMENT_ENTRIES))
    {
        return;
    }

    n = json_object_size(keys) + json_array_size(patterns) + 1;

    json_object_foreach(rules, id, rule) {
        n += json_object_size(rule);
    }

    policy->pattern_tiers = ngx_rl_read_alloc(reader, reader->pool,
                        (json_array_size(patterns) + 1) * sizeof(ngx_str_t));

    if (policy->pattern_tiers == NULL
        || ngx_rl_read_map(reader, reader->temp, &all.numbers, n)
           != NGX_OK
        || (n > 1 && ngx_rl_read_map(reader, reader->pool,
                                     &policy->tier_keys, n - 1)
                     != NGX_OK)
        || ngx_array_init(&policy->tier_sources, reader->pool, 2,
                          sizeof(ngx_rl_tier_source_t))
           != NGX_OK
        || ngx_array_init(&all.tiers, reader->pool, 8, sizeof(ngx_str_t))
           != NGX_OK
        || ngx_array_init(&all.patterns, reader->temp, 8,
                          sizeof(ngx_rl_tiers_pattern_t))
           != NGX_OK
        || ngx_rl_tiers_source(reader, &all, NULL) != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    ngx_rl_read_members(reader, value, ngx_rl_tiers_members, &all);

    policy->assigned_tiers = all.tiers.elts;
    ngx_rl_tiers_globs(reader, &all);
}

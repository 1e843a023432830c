/*
 * Who has which tier: "tier_of" of a document.
 */

#include "ngx_ratelimit_read_json.h"

/* members of a pattern that must be there, bits of the table: both */
#define NGX_RATELIMIT_PATTERN_NEEDED  0x03

/* While it is read. */
typedef struct {
    ngx_array_t                  tiers;     /* ngx_str_t: distinct ones */
    ngx_ratelimit_map_t          numbers;   /* of them; on the heap */
    ngx_ratelimit_glob_text_t   *globs;     /* on the heap */
    size_t                       nglobs;
    ngx_str_t                   *glob_tiers;
} ngx_ratelimit_tier_of_t;

/* One of "patterns". */
typedef struct {
    json_t  *pattern;
    json_t  *tier;
} ngx_ratelimit_tier_pattern_t;

static void ngx_ratelimit_tier_of_members_read(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, size_t n,
    ngx_ratelimit_tier_of_t *tier_of);
static void ngx_ratelimit_tier_of_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_tier_of_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_tier_of_t *tier_of, u_char sha256[NGX_RATELIMIT_SHA256]);
static void ngx_ratelimit_tier_of_patterns(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_tier_of_pattern(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_tier_of_t *tier_of);
static void ngx_ratelimit_tier_of_text(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_tier_of_tier(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static uint32_t ngx_ratelimit_tier_of_number(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_tier_of_t *tier_of);

/* keys first: a pattern that is one key leaves it the tier that it has there */

static const ngx_ratelimit_member_t  ngx_ratelimit_tier_of_members[] = {
    { "keys", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_tier_of_keys },
    { "patterns", NGX_RATELIMIT_IS_ARRAY, ngx_ratelimit_tier_of_patterns },
    { NULL, 0, NULL }
};

static const ngx_ratelimit_member_t  ngx_ratelimit_pattern_members[] = {
    { "pattern", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_tier_of_text },
    { "tier", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_tier_of_tier },
    { NULL, 0, NULL }
};


void
ngx_ratelimit_read_tier_of(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    void                     *memory;
    size_t                    n, bytes;
    json_t                   *keys, *patterns;
    ngx_ratelimit_tier_of_t   tier_of;

    (void) data;

    keys = json_object_get(value, "keys");
    patterns = json_object_get(value, "patterns");

    if (!ngx_ratelimit_read_few(reader, at, "keys", keys,
                                NGX_RATELIMIT_DOCUMENT_ENTRIES)
        || !ngx_ratelimit_read_few(reader, at, "patterns", patterns,
                                   NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    n = json_object_size(keys) + json_array_size(patterns);

    ngx_memzero(&tier_of, sizeof(ngx_ratelimit_tier_of_t));

    bytes = ngx_ratelimit_map_bytes(n + 1);

    memory = ngx_alloc(bytes, reader->pool->log);
    tier_of.globs = ngx_alloc((n + 1) * sizeof(ngx_ratelimit_glob_text_t),
                              reader->pool->log);

    if (memory && tier_of.globs) {
        ngx_ratelimit_map_init(&tier_of.numbers, memory, n + 1);
        ngx_ratelimit_tier_of_members_read(reader, at, value, n, &tier_of);

    } else {
        reader->failed = 1;
    }

    if (tier_of.globs) {
        ngx_free(tier_of.globs);
    }

    if (memory) {
        ngx_free(memory);
    }
}


static void
ngx_ratelimit_tier_of_members_read(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, size_t n,
    ngx_ratelimit_tier_of_t *tier_of)
{
    ngx_ratelimit_policy_t  *policy;

    policy = reader->policy;

    if (ngx_array_init(&tier_of->tiers, reader->pool, 8, sizeof(ngx_str_t))
        != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    if (n && ngx_ratelimit_read_map(reader, &policy->tier_keys, n) != NGX_OK) {
        return;
    }

    (void) ngx_ratelimit_read_members(reader, at, value,
                                      ngx_ratelimit_tier_of_members, tier_of);

    if (reader->failed) {
        return;
    }

    policy->tiers = tier_of->tiers.elts;
    policy->pattern_tiers = tier_of->glob_tiers;
    policy->tier_patterns = ngx_ratelimit_read_globs(reader, tier_of->globs,
                                                     tier_of->nglobs);
}


static void
ngx_ratelimit_tier_of_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    void                     *iter;
    u_char                  (*names)[NGX_RATELIMIT_SHA256];
    size_t                    i;
    ngx_uint_t                n, problems;
    ngx_ratelimit_place_t     place;

    problems = reader->problems->n;

    names = ngx_alloc((json_object_size(value) + 1) * sizeof(names[0]),
                      reader->pool->log);
    if (names == NULL) {
        reader->failed = 1;
        return;
    }

    i = 0;
    place.up = at;

    for (iter = json_object_iter(value);
         iter;
         iter = json_object_iter_next(value, iter))
    {
        place.name = json_object_iter_key(iter);
        n = reader->problems->n;

        ngx_ratelimit_tier_of_key(reader, &place, json_object_iter_value(iter),
                                  data, names[i++]);
        (void) ngx_ratelimit_read_skip(reader, n, NULL);
    }

    if (problems == reader->problems->n) {
        ngx_ratelimit_read_rename(reader, value, names);
    }

    ngx_free(names);
}


static void
ngx_ratelimit_tier_of_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_tier_of_t *tier_of, u_char sha256[NGX_RATELIMIT_SHA256])
{
    uint32_t                  tier;
    ngx_int_t                 rc;
    ngx_str_t                 text;
    ngx_ratelimit_api_key_t   key;

    text.data = (u_char *) at->name;
    text.len = ngx_strlen(at->name);

    rc = ngx_ratelimit_read_api_key(reader, at, &text, 0, &key);
    tier = ngx_ratelimit_tier_of_number(reader, at, value, tier_of);

    if (rc != NGX_OK || tier == NGX_RATELIMIT_MAP_NONE) {
        return;
    }

    ngx_memcpy(sha256, key.sha256, NGX_RATELIMIT_SHA256);

    if (ngx_ratelimit_map_put(&reader->policy->tier_keys, sha256, tier)
        != NGX_RATELIMIT_MAP_NONE)
    {
        ngx_ratelimit_read_problem(reader, at,
                                   "is the same key as another one here");
    }
}


static void
ngx_ratelimit_tier_of_patterns(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_tier_of_t *tier_of = data;

    size_t                  i, n;
    json_t                 *item;
    ngx_uint_t              problems;
    ngx_ratelimit_place_t   place;

    n = json_array_size(value);

    tier_of->glob_tiers = ngx_ratelimit_read_alloc(reader, (n + 1)
                                                   * sizeof(ngx_str_t));
    if (tier_of->glob_tiers == NULL) {
        return;
    }

    for (i = 0; i < n; i++) {
        item = ngx_ratelimit_read_item(value, i, at, &place);
        problems = reader->problems->n;

        if (ngx_ratelimit_read_is(reader, &place, item,
                                  NGX_RATELIMIT_IS_OBJECT))
        {
            ngx_ratelimit_tier_of_pattern(reader, &place, item, tier_of);
        }

        (void) ngx_ratelimit_read_skip(reader, problems, NULL);
    }
}


static void
ngx_ratelimit_tier_of_pattern(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_tier_of_t *tier_of)
{
    uint32_t                       tier;
    uint64_t                       has;
    ngx_str_t                      text;
    ngx_ratelimit_map_t           *keys;
    ngx_ratelimit_place_t          place;
    ngx_ratelimit_api_key_t        key;
    ngx_ratelimit_tier_pattern_t   one;

    ngx_memzero(&one, sizeof(ngx_ratelimit_tier_pattern_t));

    has = ngx_ratelimit_read_members(reader, at, value,
                                     ngx_ratelimit_pattern_members, &one);
    ngx_ratelimit_read_missing(reader, at, ngx_ratelimit_pattern_members, has,
                               NGX_RATELIMIT_PATTERN_NEEDED);
    place.up = at;

    if (one.tier == NULL || one.pattern == NULL) {
        return;
    }

    place.name = "tier";
    tier = ngx_ratelimit_tier_of_number(reader, &place, one.tier, tier_of);

    place.name = "pattern";
    text = ngx_ratelimit_read_text(one.pattern);

    if (ngx_ratelimit_read_api_key(reader, &place, &text, 1, &key) != NGX_OK
        || tier == NGX_RATELIMIT_MAP_NONE)
    {
        return;
    }

    ngx_ratelimit_read_store(reader, one.pattern, &key);

    if (key.glob.len) {
        text = ngx_ratelimit_read_copy(reader, one.pattern);
        tier_of->globs[tier_of->nglobs].data = text.data;
        tier_of->globs[tier_of->nglobs].len = text.len;
        tier_of->glob_tiers[tier_of->nglobs++] =
            ((ngx_str_t *) tier_of->tiers.elts)[tier];
        return;
    }

    keys = &reader->policy->tier_keys;

    if (ngx_ratelimit_map_get(keys, key.sha256) == NGX_RATELIMIT_MAP_NONE) {
        (void) ngx_ratelimit_map_put(keys, key.sha256, tier);
    }
}


static void
ngx_ratelimit_tier_of_text(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_tier_pattern_t *one = data;

    (void) reader;
    (void) at;

    one->pattern = value;
}


static void
ngx_ratelimit_tier_of_tier(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_tier_pattern_t *one = data;

    (void) reader;
    (void) at;

    one->tier = value;
}


/* The number of a tier's name; NONE: it is none, with the problem added. */
static uint32_t
ngx_ratelimit_tier_of_number(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_tier_of_t *tier_of)
{
    u_char      sha256[NGX_RATELIMIT_SHA256];
    uint32_t    number;
    ngx_str_t   text, *tier;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_TEXT)) {
        return NGX_RATELIMIT_MAP_NONE;
    }

    text = ngx_ratelimit_read_text(value);

    if (!ngx_ratelimit_read_tier(reader, at, &text)) {
        return NGX_RATELIMIT_MAP_NONE;
    }

    ngx_ratelimit_read_sha256(&text, sha256);

    number = ngx_ratelimit_map_get(&tier_of->numbers, sha256);

    if (number != NGX_RATELIMIT_MAP_NONE) {
        return number;
    }

    tier = ngx_array_push(&tier_of->tiers);

    if (tier == NULL) {
        reader->failed = 1;
        return NGX_RATELIMIT_MAP_NONE;
    }

    *tier = ngx_ratelimit_read_copy(reader, value);

    number = (uint32_t) tier_of->tiers.nelts - 1;
    (void) ngx_ratelimit_map_put(&tier_of->numbers, sha256, number);

    return number;
}

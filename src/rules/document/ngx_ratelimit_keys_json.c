/*
 * API keys of a document, and globs of them: how they are found and stored. And
 * lists of them: "api_key_pattern" and "tier_of".
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_networks.h"

#include <openssl/sha.h>

/* A list while it is read. */
typedef struct {
    ngx_ratelimit_keys_t        *keys;
    size_t                       n;          /* of its entries */
    ngx_ratelimit_glob_text_t   *globs;
    size_t                       nglobs;
} ngx_ratelimit_list_t;

/* "tier_of" while it is read. */
typedef struct {
    ngx_array_t                  tiers;      /* ngx_str_t: distinct ones */
    ngx_ratelimit_map_t          numbers;    /* of them */
    ngx_ratelimit_list_t         patterns;
} ngx_ratelimit_assignments_t;

/* One of its patterns. */
typedef struct {
    json_t                      *pattern;
    json_t                      *tier;
} ngx_ratelimit_assignment_t;

static const char *ngx_ratelimit_read_checked(ngx_ratelimit_reader_t *reader,
    const ngx_str_t *text, ngx_uint_t globs, ngx_ratelimit_api_key_t *key);
static void ngx_ratelimit_read_stored(const ngx_str_t *text,
    u_char stored[NGX_RATELIMIT_DOCUMENT_KEY]);
static ngx_uint_t ngx_ratelimit_read_prefixed(const ngx_str_t *text);
static void ngx_ratelimit_read_glob(const ngx_str_t *text,
    ngx_ratelimit_api_key_t *key);

static void ngx_ratelimit_read_listed(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data);
static ngx_int_t ngx_ratelimit_list_init(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_list_t *list, size_t n);
static void ngx_ratelimit_list_glob(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_list_t *list, const ngx_str_t *glob);
static ngx_ratelimit_globs_t *ngx_ratelimit_list_globs(
    ngx_ratelimit_reader_t *reader, const ngx_ratelimit_list_t *list);

static void ngx_ratelimit_assignment_keys(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data);
static void ngx_ratelimit_assignment_key(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data);
static void ngx_ratelimit_assignment_patterns(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data);
static void ngx_ratelimit_assignment_pattern(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data);
static uint32_t ngx_ratelimit_assignment_tier(ngx_ratelimit_reader_t *reader,
    json_t *value, ngx_ratelimit_assignments_t *all);

/* keys first: a pattern that is one key leaves it the tier that it has there */

static const ngx_ratelimit_member_t  ngx_ratelimit_assignments_members[] = {
    { "keys", NGX_RATELIMIT_IS_OBJECT, .read = ngx_ratelimit_assignment_keys },
    { "patterns", NGX_RATELIMIT_IS_ARRAY,
      .read = ngx_ratelimit_assignment_patterns },
    { .name = NULL }
};

#define NGX_RATELIMIT_PATTERN                                                 \
    (NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_NEEDED|NGX_RATELIMIT_IS_KEPT)

static const ngx_ratelimit_member_t  ngx_ratelimit_pattern_members[] = {
    { "pattern", NGX_RATELIMIT_PATTERN,
      .offset = offsetof(ngx_ratelimit_assignment_t, pattern) },
    { "tier", NGX_RATELIMIT_PATTERN,
      .offset = offsetof(ngx_ratelimit_assignment_t, tier) },
    { .name = NULL }
};


ngx_str_t
ngx_ratelimit_document_key(const ngx_str_t *key,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY])
{
    ngx_str_t  stored;

    stored.data = buf;
    stored.len = NGX_RATELIMIT_DOCUMENT_KEY;

    if (ngx_ratelimit_policy_hashed(key)) {
        ngx_strlow(buf, key->data, key->len);

    } else if (ngx_ratelimit_read_prefixed(key)) {
        return *key;

    } else {
        ngx_ratelimit_read_stored(key, buf);
    }

    return stored;
}


/* "sha256:" and the digest of a text. */
static void
ngx_ratelimit_read_stored(const ngx_str_t *text,
    u_char stored[NGX_RATELIMIT_DOCUMENT_KEY])
{
    u_char  sha256[SHA256_DIGEST_LENGTH];

    (void) SHA256(text->data, text->len, sha256);
    (void) ngx_hex_dump(ngx_cpymem(stored, "sha256:", sizeof("sha256:") - 1),
                        sha256, sizeof(sha256));
}


static ngx_uint_t
ngx_ratelimit_read_prefixed(const ngx_str_t *text)
{
    return text->len >= sizeof("sha256:") - 1
           && ngx_memcmp(text->data, "sha256:", sizeof("sha256:") - 1) == 0;
}


ngx_int_t
ngx_ratelimit_read_api_key(ngx_ratelimit_reader_t *reader, json_t *value,
    ngx_uint_t globs, ngx_ratelimit_api_key_t *key)
{
    ngx_str_t    text;
    const char  *wrong;

    if (value) {
        text = ngx_ratelimit_read_text(value);

    } else {
        text.data = (u_char *) reader->at->name;
        text.len = ngx_strlen(text.data);
    }

    wrong = ngx_ratelimit_read_checked(reader, &text, globs, key);

    if (wrong) {
        ngx_ratelimit_read_problem(reader, "%s%s",
                                   (*wrong == 'i') ? "" : "expected ", wrong);
        return NGX_DECLINED;
    }

    if (key->glob.len) {
        return NGX_OK;
    }

    text.data = key->stored;
    text.len = sizeof(key->stored);
    ngx_ratelimit_policy_digest(&text, key->digest);

    if (value && reader->hashed
        && json_string_setn(value, (char *) text.data, text.len) != 0)
    {
        reader->failed = 1;
    }

    return NGX_OK;
}


/* Returns NULL, or the problem: "is ...", or what was expected. */
static const char *
ngx_ratelimit_read_checked(ngx_ratelimit_reader_t *reader,
    const ngx_str_t *text, ngx_uint_t globs, ngx_ratelimit_api_key_t *key)
{
    const char               *expected;
    ngx_ratelimit_network_t   network;

    ngx_str_null(&key->glob);

    if (text->len == 0) {
        return "an API key";
    }

    if (ngx_ratelimit_read_prefixed(text)) {
        (void) ngx_ratelimit_document_key(text, key->stored);

        return ngx_ratelimit_policy_hashed(text)
               ? NULL : "64 hexadecimal digits behind \"sha256:\"";
    }

    /* one that is stored already does no harm, and is in no change's way */

    if (reader->written && reader->known == NULL
        && ngx_ratelimit_network_parse(text->data, text->len, &network) == 0)
    {
        return "is an address or a network, expected an API key; the lists "
               "of clients take \"address\"";
    }

    if (globs) {
        expected = ngx_ratelimit_glob_check(text->data, text->len);

        if (expected == NULL) {
            ngx_ratelimit_read_glob(text, key);
        }

        return expected;
    }

    if (ngx_strlchr(text->data, text->data + text->len, '*')
        || ngx_strlchr(text->data, text->data + text->len, '?'))
    {
        return "one API key: one with \"*\" or \"?\" in it as "
               "\"sha256:...\"";
    }

    ngx_ratelimit_read_stored(text, key->stored);

    return NULL;
}


/* A checked one. A glob that stands for one key is that key. */
static void
ngx_ratelimit_read_glob(const ngx_str_t *text, ngx_ratelimit_api_key_t *key)
{
    u_char      plain[NGX_RATELIMIT_GLOB_MAX];
    size_t      i;
    ngx_str_t   one;

    if (ngx_ratelimit_glob_wild(text->data, text->len)) {
        key->glob = *text;
        return;
    }

    one.data = plain;
    one.len = 0;

    for (i = 0; i < text->len && one.len < sizeof(plain); i++) {
        if (text->data[i] == '\\' && i + 1 < text->len) {
            i++;
        }

        plain[one.len++] = text->data[i];
    }

    ngx_ratelimit_read_stored(&one, key->stored);
}


void
ngx_ratelimit_read_rename(ngx_ratelimit_reader_t *reader, json_t *object,
    ngx_uint_t problems)
{
    int         failed;
    void       *iter;
    u_char      buf[NGX_RATELIMIT_DOCUMENT_KEY];
    json_t     *renamed;
    ngx_str_t   name;

    if (!reader->hashed || reader->failed || reader->problems->n != problems) {
        return;
    }

    renamed = json_object();
    failed = (renamed == NULL);

    for (iter = json_object_iter(object);
         iter;
         iter = json_object_iter_next(object, iter))
    {
        name.data = (u_char *) json_object_iter_key(iter);
        name.len = json_object_iter_key_len(iter);
        name = ngx_ratelimit_document_key(&name, buf);

        failed |= json_object_setn(renamed, (char *) name.data, name.len,
                                   json_object_iter_value(iter));
    }

    failed |= json_object_clear(object);
    failed |= json_object_update(object, renamed);
    json_decref(renamed);

    if (failed) {
        reader->failed = 1;
    }
}


void
ngx_ratelimit_read_keys(ngx_ratelimit_reader_t *reader, json_t *list,
    void *data)
{
    ngx_ratelimit_list_t  all;

    if (!ngx_ratelimit_read_few(reader, NULL, list,
                                NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    all.keys = data;

    if (ngx_ratelimit_list_init(reader, &all, json_is_array(list)
                                              ? json_array_size(list) : 1)
        == NGX_OK)
    {
        ngx_ratelimit_read_each(reader, list, NGX_RATELIMIT_IS_TEXT,
                                ngx_ratelimit_read_listed, &all);

        all.keys->globs = ngx_ratelimit_list_globs(reader, &all);
    }
}


static void
ngx_ratelimit_read_listed(ngx_ratelimit_reader_t *reader, json_t *value,
    void *data)
{
    ngx_ratelimit_list_t *all = data;

    ngx_ratelimit_api_key_t  key;

    if (ngx_ratelimit_read_api_key(reader, value, 1, &key) != NGX_OK) {
        return;
    }

    if (key.glob.len) {
        ngx_ratelimit_list_glob(reader, all, &key.glob);
        return;
    }

    if (all->keys->digests.entries
        || ngx_ratelimit_read_map(reader, reader->pool, &all->keys->digests,
                                  all->n)
           == NGX_OK)
    {
        (void) ngx_ratelimit_map_put(&all->keys->digests, key.digest, 0);
    }
}


static ngx_int_t
ngx_ratelimit_list_init(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_list_t *list, size_t n)
{
    list->n = n;
    list->nglobs = 0;
    list->globs = ngx_ratelimit_read_alloc(reader, reader->temp,
                              (n + 1) * sizeof(ngx_ratelimit_glob_text_t));

    return list->globs ? NGX_OK : NGX_ERROR;
}


static void
ngx_ratelimit_list_glob(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_list_t *list, const ngx_str_t *glob)
{
    ngx_str_t  copy;

    copy = ngx_ratelimit_read_copy(reader, glob);
    list->globs[list->nglobs].data = copy.data;
    list->globs[list->nglobs++].len = copy.len;
}


/* NULL: there are none, or memory is out. */
static ngx_ratelimit_globs_t *
ngx_ratelimit_list_globs(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_list_t *list)
{
    void  *memory;

    if (list->nglobs == 0 || reader->failed) {
        return NULL;
    }

    memory = ngx_ratelimit_read_alloc(reader, reader->pool,
                                      ngx_ratelimit_globs_bytes(list->nglobs));

    return memory ? ngx_ratelimit_globs_init(memory, list->globs, list->nglobs)
                  : NULL;
}


void
ngx_ratelimit_read_tier_assignments(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data)
{
    ngx_ratelimit_policy_t *policy = data;

    size_t                        n;
    json_t                       *keys, *patterns;
    ngx_ratelimit_assignments_t   all;

    keys = json_object_get(value, "keys");
    patterns = json_object_get(value, "patterns");

    if (!ngx_ratelimit_read_few(reader, "keys", keys,
                                NGX_RATELIMIT_DOCUMENT_ENTRIES)
        || !ngx_ratelimit_read_few(reader, "patterns", patterns,
                                   NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    n = json_object_size(keys) + json_array_size(patterns) + 1;

    policy->pattern_tiers = ngx_ratelimit_read_alloc(reader, reader->pool,
                        (json_array_size(patterns) + 1) * sizeof(ngx_str_t));

    if (policy->pattern_tiers == NULL
        || ngx_ratelimit_list_init(reader, &all.patterns, n) != NGX_OK
        || ngx_ratelimit_read_map(reader, reader->temp, &all.numbers, n)
           != NGX_OK
        || (n > 1 && ngx_ratelimit_read_map(reader, reader->pool,
                                            &policy->tier_keys, n - 1)
                     != NGX_OK)
        || ngx_array_init(&all.tiers, reader->pool, 8, sizeof(ngx_str_t))
           != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    ngx_ratelimit_read_members(reader, value,
                               ngx_ratelimit_assignments_members, &all);

    policy->assigned_tiers = all.tiers.elts;
    policy->tier_patterns = ngx_ratelimit_list_globs(reader, &all.patterns);
}


static void
ngx_ratelimit_assignment_keys(ngx_ratelimit_reader_t *reader, json_t *value,
    void *data)
{
    ngx_uint_t  problems;

    problems = reader->problems->n;

    ngx_ratelimit_read_each(reader, value, NGX_RATELIMIT_IS_ANY,
                            ngx_ratelimit_assignment_key, data);
    ngx_ratelimit_read_rename(reader, value, problems);
}


static void
ngx_ratelimit_assignment_key(ngx_ratelimit_reader_t *reader, json_t *value,
    void *data)
{
    uint32_t                  tier;
    ngx_int_t                 rc;
    ngx_ratelimit_api_key_t   key;

    rc = ngx_ratelimit_read_api_key(reader, NULL, 0, &key);
    tier = ngx_ratelimit_assignment_tier(reader, value, data);

    if (rc == NGX_OK && tier != NGX_RATELIMIT_MAP_NONE
        && ngx_ratelimit_map_put(&reader->policy->tier_keys, key.digest, tier)
           != NGX_RATELIMIT_MAP_NONE)
    {
        ngx_ratelimit_read_problem(reader,
                                   "is the same key as another one here");
    }
}


static void
ngx_ratelimit_assignment_patterns(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data)
{
    ngx_ratelimit_read_each(reader, value, NGX_RATELIMIT_IS_OBJECT,
                            ngx_ratelimit_assignment_pattern, data);
}


static void
ngx_ratelimit_assignment_pattern(ngx_ratelimit_reader_t *reader,
    json_t *value, void *data)
{
    ngx_ratelimit_assignments_t *all = data;

    uint32_t                       tier;
    ngx_int_t                      rc;
    ngx_ratelimit_map_t           *keys;
    ngx_ratelimit_place_t          place;
    ngx_ratelimit_api_key_t        key;
    ngx_ratelimit_assignment_t     one;

    ngx_memzero(&one, sizeof(ngx_ratelimit_assignment_t));

    ngx_ratelimit_read_members(reader, value, ngx_ratelimit_pattern_members,
                               &one);

    if (one.tier == NULL || one.pattern == NULL) {
        return;
    }

    place.up = reader->at;
    reader->at = &place;

    place.name = "tier";
    tier = ngx_ratelimit_assignment_tier(reader, one.tier, all);

    place.name = "pattern";
    rc = ngx_ratelimit_read_api_key(reader, one.pattern, 1, &key);

    reader->at = place.up;

    if (rc != NGX_OK || tier == NGX_RATELIMIT_MAP_NONE) {
        return;
    }

    if (key.glob.len) {
        reader->policy->pattern_tiers[all->patterns.nglobs] =
            ((ngx_str_t *) all->tiers.elts)[tier];
        ngx_ratelimit_list_glob(reader, &all->patterns, &key.glob);
        return;
    }

    keys = &reader->policy->tier_keys;

    if (ngx_ratelimit_map_get(keys, key.digest) == NGX_RATELIMIT_MAP_NONE) {
        (void) ngx_ratelimit_map_put(keys, key.digest, tier);
    }
}


/* The number of a tier's name; NONE: it is none, with the problem added. */
static uint32_t
ngx_ratelimit_assignment_tier(ngx_ratelimit_reader_t *reader, json_t *value,
    ngx_ratelimit_assignments_t *all)
{
    uint32_t    number;
    ngx_str_t   text, *tier;

    text = ngx_ratelimit_read_text(value);

    if (!ngx_ratelimit_read_is(reader, value, NGX_RATELIMIT_IS_TEXT)
        || !ngx_ratelimit_read_tier(reader, &text))
    {
        return NGX_RATELIMIT_MAP_NONE;
    }

    number = ngx_ratelimit_read_find(&all->numbers, &text);

    if (number != NGX_RATELIMIT_MAP_NONE) {
        return number;
    }

    tier = ngx_array_push(&all->tiers);

    if (tier == NULL) {
        reader->failed = 1;
        return NGX_RATELIMIT_MAP_NONE;
    }

    *tier = ngx_ratelimit_read_copy(reader, &text);

    number = (uint32_t) all->tiers.nelts - 1;
    (void) ngx_ratelimit_read_enter(&all->numbers, &text, number);

    return number;
}

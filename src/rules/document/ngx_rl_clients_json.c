/*
 * Clients in a document: API keys and values of the keys of rules, and globs of
 * them; how they are found and stored. And where they stand: in "allow" and
 * "deny", in "tier_of", in "overrides", and among the limits of a rule.
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_text.h"

#include <openssl/sha.h>

#define NGX_RL_MILLION     1000000
#define NGX_RL_MAX_FACTOR  1000000

/* A rule that an entry names. */
typedef struct {
    ngx_rl_rule_t         *rule;       /* NULL: it is not known, or */
    ngx_uint_t             named;      /* 0: none is named */
} ngx_rl_rule_ref_t;

/* Values of keys while their object is read. */
typedef struct {
    const ngx_rl_rule_t   *rule;       /* whose key; NULL: API keys */
    ngx_rl_map_t          *map;
    size_t                 first;
    ngx_rl_named_pt        read;
    void                  *data;
} ngx_rl_named_t;

/* An entry of "allow" and "deny" while it is read. */
typedef struct {
    ngx_rl_known_t        client;
    ngx_rl_rule_ref_t      of;
    int64_t                ends;
    json_t                *object;
    json_t                *address;    /* NULL: it has none */
    unsigned               key:1;      /* it has "key" */
} ngx_rl_access_entry_t;

/* Tiers while they are read. */
typedef struct {
    ngx_array_t            tiers;      /* ngx_str_t: see policy->tiers */
    ngx_rl_map_t           numbers;    /* of distinct ones there */
    ngx_rl_rule_t         *rule;       /* whose keys are read; NULL: API keys */
    size_t                 npatterns;
} ngx_rl_tiers_t;

/* An entry of "patterns" while it is read. */
typedef struct {
    json_t                *pattern;
    json_t                *tier;
    ngx_rl_rule_ref_t      of;
} ngx_rl_tiers_entry_t;

/* An override while it is read. */
typedef struct {
    ngx_rl_override_t    *limit;
    ngx_rl_rule_ref_t      of;
    ngx_rl_known_t        client;
    int64_t                ends;
    json_t                *tenant;     /* NULL: it has none */
    json_t                *part;       /* of the tenant, */
    json_t                *value;      /* and its value */
    ngx_rl_map_t          *ids;

    unsigned               key:1;      /* it has "key" */
    unsigned               found:1;    /* by the digest, which is known */
    unsigned               typed:1;    /* it has a "type" that is one */
    unsigned               factor:1;   /* that is "multiplicative" */
    unsigned               amount:1;   /* it has a value that is one */
} ngx_rl_override_read_t;


static ngx_uint_t
ngx_rl_key_prefixed(const ngx_str_t *text)
{
    return text->len >= sizeof("sha256:") - 1
           && ngx_memcmp(text->data, "sha256:", sizeof("sha256:") - 1) == 0;
}


/* "sha256:" and the digest of a text. */
static void
ngx_rl_key_stored(const ngx_str_t *text, u_char stored[NGX_RL_DOCUMENT_KEY])
{
    u_char  sha256[SHA256_DIGEST_LENGTH];

    (void) SHA256(text->data, text->len, sha256);
    (void) ngx_hex_dump(ngx_cpymem(stored, "sha256:", sizeof("sha256:") - 1),
                        sha256, sizeof(sha256));
}


ngx_str_t
ngx_rl_document_key(const ngx_str_t *key, u_char buf[NGX_RL_DOCUMENT_KEY])
{
    ngx_str_t  stored;

    stored = ngx_rl_str(buf, NGX_RL_DOCUMENT_KEY);

    if (ngx_rl_policy_hashed(key)) {
        ngx_strlow(buf, key->data, key->len);

    } else if (ngx_rl_key_prefixed(key)) {
        return *key;

    } else {
        ngx_rl_key_stored(key, buf);
    }

    return stored;
}


/* Whether the rule's key has an address in four or sixteen bytes. */
static ngx_uint_t
ngx_rl_key_in_bytes(const ngx_rl_rule_t *rule)
{
    ngx_uint_t        i;
    const ngx_str_t  *part;

    static const ngx_str_t  variable = ngx_string("$binary_remote_addr");

    for (i = 0; i < ngx_max(rule->nparts, 1); i++) {
        part = rule->nparts ? &rule->parts[i] : &rule->key;

        if (ngx_rl_equal(part, &variable)) {
            return 1;
        }
    }

    return 0;
}


/*
 * Makes the stored form, or a glob of the client. Returns NULL, or the problem:
 * "is ...", or what was expected.
 */
static const char *
ngx_rl_key_check(ngx_rl_reader_t *reader, const ngx_str_t *text,
    ngx_uint_t globs, const ngx_rl_rule_t *rule, ngx_rl_known_t *client,
    u_char stored[NGX_RL_DOCUMENT_KEY])
{
    u_char             plain[NGX_RL_GLOB_MAX];
    size_t             i;
    ngx_str_t          one;
    const char        *expected;
    ngx_rl_network_t   network;

    if (text->len == 0) {
        return rule ? "a value of the key of the rule" : "an API key";
    }

    if (ngx_rl_key_prefixed(text)) {
        (void) ngx_rl_document_key(text, stored);

        return ngx_rl_policy_hashed(text)
               ? NULL : "64 hexadecimal digits behind \"sha256:\"";
    }

    if (rule && rule->nparts > 1) {
        return "the hash of the whole key, because the key of the rule has "
               "several parts";
    }

    if (rule && ngx_rl_key_in_bytes(rule)) {
        return "the hash of the key, or a rule that counts by $remote_addr: "
               "$binary_remote_addr is no text";
    }

    /* one that is stored already does no harm, and is in no change's way */

    if (rule == NULL && reader->written && reader->known == NULL
        && ngx_rl_network_parse(text->data, text->len, &network) == 0)
    {
        return "is an address or a network, expected an API key; the lists "
               "of clients take \"address\"";
    }

    if (globs) {
        expected = ngx_rl_glob_check(text->data, text->len);

        if (expected) {
            return expected;
        }

        if (ngx_rl_glob_wild(text->data, text->len)) {
            client->kind = NGX_RL_CLIENT_GLOB;
            return NULL;
        }

        /* it stands for one key */

        one = ngx_rl_str(plain, 0);

        for (i = 0; i < text->len && one.len < sizeof(plain); i++) {
            i += (text->data[i] == '\\' && i + 1 < text->len);
            plain[one.len++] = text->data[i];
        }

        ngx_rl_key_stored(&one, stored);

        return NULL;
    }

    if (ngx_strlchr(text->data, text->data + text->len, '*')
        || ngx_strlchr(text->data, text->data + text->len, '?'))
    {
        return rule ? "one value: one with \"*\" or \"?\" in it as "
                      "\"sha256:...\""
                    : "one API key: one with \"*\" or \"?\" in it as "
                      "\"sha256:...\"";
    }

    ngx_rl_key_stored(text, stored);

    return NULL;
}


ngx_int_t
ngx_rl_read_key(ngx_rl_reader_t *reader, json_t *value, ngx_uint_t globs,
    const ngx_rl_rule_t *rule, ngx_rl_known_t *client)
{
    u_char       stored[NGX_RL_DOCUMENT_KEY];
    ngx_str_t    text;
    const char  *wrong;

    text = value ? ngx_rl_document_text(value) : ngx_rl_read_name(reader);
    client->kind = NGX_RL_CLIENT_KEY;

    wrong = ngx_rl_key_check(reader, &text, globs, rule, client, stored);

    if (wrong) {
        ngx_rl_read_problem(reader, "%s%s",
                            (*wrong == 'i') ? "" : "expected ", wrong);
        return NGX_DECLINED;
    }

    if (client->kind == NGX_RL_CLIENT_GLOB) {
        client->glob = ngx_rl_read_copy(reader, &text);
        return reader->failed ? NGX_DECLINED : NGX_OK;
    }

    text = ngx_rl_str(stored, sizeof(stored));
    ngx_rl_policy_digest(&text, client->digest);

    if (value && reader->hashed
        && json_string_setn(value, (char *) text.data, text.len) != 0)
    {
        reader->failed = 1;
    }

    return NGX_OK;
}


/* The names of an object become what is stored of them. */
static void
ngx_rl_named_store(ngx_rl_reader_t *reader, json_t *object)
{
    int          failed;
    u_char       buf[NGX_RL_DOCUMENT_KEY];
    json_t      *renamed, *value;
    ngx_str_t    name;
    const char  *key;

    renamed = json_object();
    failed = (renamed == NULL);

    json_object_foreach(object, key, value) {
        name = ngx_rl_str((u_char *) key, ngx_strlen(key));
        name = ngx_rl_document_key(&name, buf);

        failed |= json_object_setn(renamed, (char *) name.data, name.len,
                                   value);
    }

    failed |= json_object_clear(object);
    failed |= json_object_update(object, renamed);
    json_decref(renamed);

    reader->failed |= (failed != 0);
}


static void
ngx_rl_named(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_named_t *named = data;

    size_t          number;
    ngx_int_t       rc;
    ngx_rl_known_t  client;

    number = named->first + reader->at->number;
    rc = ngx_rl_read_key(reader, NULL, 0, named->rule, &client);

    if (rc == NGX_OK
        && ngx_rl_map_put(named->map, client.digest, (uint32_t) number)
           != NGX_RL_MAP_NONE)
    {
        ngx_rl_read_problem(reader, "is the same key as another one here");
    }

    named->read(reader, value, number, (rc == NGX_OK) ? &client : NULL,
                named->data);
}


void
ngx_rl_read_named(ngx_rl_reader_t *reader, json_t *object,
    const ngx_rl_rule_t *rule, ngx_pool_t *pool, ngx_rl_map_t *map,
    size_t first, ngx_rl_named_pt read, void *data)
{
    ngx_uint_t      problems;
    ngx_rl_named_t  named = { rule, map, first, read, data };

    problems = reader->problems->n;

    if (json_object_size(object) == 0
        || ngx_rl_read_map(reader, pool, map, json_object_size(object))
           != NGX_OK)
    {
        return;
    }

    ngx_rl_read_each(reader, object, NGX_RL_IS_ANY, ngx_rl_named, &named);

    if (reader->hashed && !reader->failed && reader->problems->n == problems) {
        ngx_rl_named_store(reader, object);
    }
}


/* To a set of the source of a rule; NULL: of the API key and the address. */
static void
ngx_rl_source_add(ngx_rl_reader_t *reader, ngx_rl_rule_t *rule, ngx_uint_t set,
    const ngx_rl_known_t *client, uint32_t value)
{
    ngx_uint_t             i;
    ngx_array_t           *clients;
    ngx_rl_known_t        *added;
    ngx_rl_read_source_t  *source;

    source = reader->sources.elts;

    for (i = 0; i < reader->sources.nelts && source->rule != rule; i++) {
        source++;
    }

    if (i == reader->sources.nelts) {
        source = ngx_array_push(&reader->sources);
        if (source == NULL) {
            reader->failed = 1;
            return;
        }

        ngx_memzero(source, sizeof(ngx_rl_read_source_t));
        source->rule = rule;
    }

    clients = &source->clients[set];

    added = (clients->elts
             || ngx_array_init(clients, reader->temp, 4, sizeof(ngx_rl_known_t))
                == NGX_OK)
            ? ngx_array_push(clients) : NULL;

    if (added == NULL) {
        reader->failed = 1;
        return;
    }

    *added = *client;
    added->value = value;
}


void
ngx_rl_read_sources(ngx_rl_reader_t *reader)
{
    ngx_uint_t               i, k;
    ngx_array_t             *clients;
    ngx_rl_policy_t         *policy;
    ngx_rl_clients_t        *sets[NGX_RL_READ_SETS];
    ngx_rl_read_source_t    *read;
    ngx_rl_policy_source_t  *source;

    policy = reader->policy;
    read = reader->sources.elts;

    if (ngx_array_init(&policy->sources, reader->pool, reader->sources.nelts,
                       sizeof(ngx_rl_policy_source_t))
        != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    for (i = 0; i < reader->sources.nelts && !reader->failed; i++) {
        source = ngx_array_push(&policy->sources);
        ngx_memzero(source, sizeof(ngx_rl_policy_source_t));

        source->rule = read[i].rule;
        source->listed = i && (read[i].clients[NGX_RL_READ_DENY].nelts
                               || read[i].clients[NGX_RL_READ_ALLOW].nelts);

        /* lists of API keys and addresses are the policy's */

        sets[NGX_RL_READ_DENY] = i ? &source->deny : &policy->deny;
        sets[NGX_RL_READ_ALLOW] = i ? &source->allow : &policy->allow;
        sets[NGX_RL_READ_TIERS] = &source->tiers;

        for (k = 0; k < NGX_RL_READ_SETS; k++) {
            clients = &read[i].clients[k];

            if (clients->nelts
                && ngx_rl_clients_make(sets[k], clients->elts, clients->nelts,
                                       reader->pool)
                   != NGX_OK)
            {
                reader->failed = 1;
            }
        }
    }
}


static void
ngx_rl_read_rule_ref(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_rule_ref_t *ref = data;

    ngx_str_t  id;

    id = ngx_rl_document_text(value);
    ref->rule = ngx_rl_read_rule_of(reader, &id);
    ref->named = 1;
}


/* A text, or texts that are joined; empty: neither. */
static ngx_int_t
ngx_rl_access_parts(const json_t *key, ngx_pool_t *pool, ngx_str_t *text,
    ngx_uint_t *n)
{
    size_t         i;
    ngx_str_t      parts[NGX_RL_MAX_PARTS];
    const json_t  *part;

    *n = 1;
    *text = ngx_rl_document_text(key);

    if (!json_is_array(key) || json_array_size(key) == 0
        || json_array_size(key) > NGX_RL_MAX_PARTS)
    {
        return NGX_OK;
    }

    *n = json_array_size(key);

    for (i = 0; i < *n; i++) {
        part = json_array_get(key, i);

        if (!json_is_string(part)) {
            return NGX_OK;
        }

        parts[i] = ngx_rl_document_text(part);
    }

    return ngx_rl_policy_join(parts, *n, pool, text);
}


/* A value of a rule's key, or its hash; in the tree it becomes the hash. */
static void
ngx_rl_access_of_rule(ngx_rl_reader_t *reader, json_t *key,
    ngx_rl_access_entry_t *entry)
{
    u_char          buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t       text;
    ngx_uint_t      n, nparts;
    ngx_rl_rule_t  *rule;

    rule = entry->of.rule;

    if (ngx_rl_access_parts(key, reader->temp, &text, &n) != NGX_OK) {
        reader->failed = 1;
        return;
    }

    if (text.len == 0) {
        ngx_rl_read_problem(reader, "expected a value of the key of the rule, "
                            "or an array of the values of its parts");
        return;
    }

    /* a hash is of the whole key */

    nparts = ngx_max(rule->nparts, 1);

    if (n != nparts && !ngx_rl_policy_hashed(&text)) {
        ngx_rl_read_problem(reader, "has %ui parts, expected %ui as the key of "
                            "the rule has", n, nparts);
        return;
    }

    if (ngx_rl_key_in_bytes(rule) && !ngx_rl_policy_hashed(&text)) {
        ngx_rl_read_problem(reader, "is a text, but the rule counts by the "
                            "bytes of $binary_remote_addr: expected "
                            "\"address\" in place of \"rule\" and \"key\", or "
                            "the hash of the key");
        return;
    }

    text = ngx_rl_document_key(&text, buf);

    if (!ngx_rl_policy_hashed(&text)) {
        ngx_rl_read_problem(reader, "expected 64 hexadecimal digits behind "
                            "\"sha256:\"");
        return;
    }

    entry->client.kind = NGX_RL_CLIENT_KEY;
    ngx_rl_policy_digest(&text, entry->client.digest);

    if (reader->hashed
        && json_object_set_new(entry->object, "key",
                               json_stringn((char *) text.data, text.len))
           != 0)
    {
        reader->failed = 1;
    }
}


static void
ngx_rl_access_key(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_access_entry_t *entry = data;

    entry->key = 1;

    if (entry->of.rule) {
        ngx_rl_access_of_rule(reader, value, entry);

    } else if (!entry->of.named
               && ngx_rl_read_is(reader, value, NGX_RL_IS_TEXT))
    {
        (void) ngx_rl_read_key(reader, value, 1, NULL, &entry->client);
    }
}


/* the rule says what the key is */

static const ngx_rl_member_t  ngx_rl_access_members[] = {
    { "rule", NGX_RL_IS_TEXT, .read = ngx_rl_read_rule_ref,
      .offset = offsetof(ngx_rl_access_entry_t, of) },
    { "key", NGX_RL_IS_TEXT|NGX_RL_IS_ARRAY, .read = ngx_rl_access_key },
    { "address", NGX_RL_IS_TEXT|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_access_entry_t, address) },
    { "expires_at", NGX_RL_IS_TEXT, .read = ngx_rl_read_time,
      .offset = offsetof(ngx_rl_access_entry_t, ends) },
    { "duration", NGX_RL_IS_ANY, .read = ngx_rl_read_duration },
    { "reason", .types = NGX_RL_IS_TEXT },
    { .name = NULL }
};


/*
 * Whether it is a pattern of every key, or a network of all addresses. No key
 * is empty, so "?" may be in the pattern: stars alone stand before it, behind
 * it, or on both sides.
 */
static ngx_uint_t
ngx_rl_access_all(const ngx_rl_known_t *client)
{
    u_char     *p;
    ngx_str_t   glob, rest;

    if (client->kind == NGX_RL_CLIENT_NETWORK) {
        return client->network.bits == 0
               || (client->network.bits == NGX_RL_MAPPED
                   && client->network.address[NGX_RL_ADDRESS - 5] == 0xff);
    }

    if (client->kind != NGX_RL_CLIENT_GLOB) {
        return 0;
    }

    glob = client->glob;
    rest = glob;
    p = ngx_strlchr(glob.data, glob.data + glob.len, '?');

    if (p) {
        rest.data = p + 1;
        rest.len = glob.data + glob.len - rest.data;
        glob.len = p - glob.data;
    }

    return (glob.len || rest.len)
           && (glob.len == 0 || ngx_rl_glob_any(glob.data, glob.len))
           && (rest.len == 0 || ngx_rl_glob_any(rest.data, rest.len));
}


/* A text is an address, a network, or an API key. */
void
ngx_rl_read_access(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_clients_t *list = data;

    int                    wrong;
    ngx_str_t              text;
    ngx_uint_t             problems;
    ngx_rl_access_entry_t  entry;

    problems = reader->problems->n;

    ngx_memzero(&entry, sizeof(ngx_rl_access_entry_t));
    entry.ends = NGX_RL_CLIENT_ALWAYS;
    entry.object = value;

    if (json_is_object(value)) {
        ngx_rl_read_members(reader, value, ngx_rl_access_members, &entry);

        if (entry.key == (entry.address != NULL)
            || (entry.of.named && !entry.key))
        {
            ngx_rl_read_problem(reader, "expected \"address\", \"key\", or "
                                "\"rule\" and \"key\"");
        }
    }

    text = ngx_rl_document_text(entry.address ? entry.address : value);

    if (!json_is_object(value) || entry.address) {
        entry.client.kind = NGX_RL_CLIENT_NETWORK;
        wrong = ngx_rl_network_parse(text.data, text.len,
                                     &entry.client.network);

        if (wrong && entry.address) {
            ngx_rl_read_wrong(reader, NULL, "address", "expected an address or "
                              "a network like \"192.0.2.1\" or "
                              "\"2001:db8::/32\"");

        } else if (wrong) {
            (void) ngx_rl_read_key(reader, value, 1, NULL, &entry.client);
        }
    }

    if (ngx_rl_read_skip(reader, problems, NULL)
        || reader->problems->n != problems)
    {
        return;
    }

    list->all |= ngx_rl_access_all(&entry.client);

    ngx_rl_source_add(reader, entry.of.rule,
                      (list == &reader->policy->deny) ? NGX_RL_READ_DENY
                                                      : NGX_RL_READ_ALLOW,
                      &entry.client,
                      (uint32_t) ngx_min(entry.ends, NGX_RL_CLIENT_ALWAYS));
}


ngx_int_t
ngx_rl_document_entry(const json_t *entry, ngx_pool_t *pool, ngx_str_t *name)
{
    u_char             buf[NGX_RL_DOCUMENT_KEY], *p;
    ngx_str_t          text, rule;
    ngx_uint_t         n;
    const json_t      *key;
    ngx_rl_network_t   network;

    rule = ngx_rl_document_text(json_object_get(entry, "rule"));
    key = json_object_get(entry, "key");

    if (json_is_string(entry)) {
        key = entry;

    } else if (key == NULL) {
        key = json_object_get(entry, "address");
    }

    if (ngx_rl_access_parts(key, pool, &text, &n) != NGX_OK) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(pool, rule.len + text.len + sizeof(buf)
                          + 2 * sizeof(network));
    if (p == NULL) {
        return NGX_ERROR;
    }

    name->data = p;

    if (rule.len == 0
        && ngx_rl_network_parse(text.data, text.len, &network) == 0)
    {
        p = ngx_hex_dump(p, network.address, NGX_RL_ADDRESS);
        name->len = ngx_sprintf(p, "/%uD", network.bits) - name->data;
        return NGX_OK;
    }

    if (rule.len || !ngx_rl_glob_wild(text.data, text.len)) {
        text = ngx_rl_document_key(&text, buf);
    }

    name->len = ngx_sprintf(p, "%V%s%V", &rule, rule.len ? " " : "", &text) - p;

    return NGX_OK;
}


/* The number of a tier's name; 0: it is none, with the problem added. */
static uint32_t
ngx_rl_tiers_number(ngx_rl_reader_t *reader, json_t *value, ngx_rl_tiers_t *all)
{
    uint32_t   number;
    ngx_str_t  text, *tier;

    text = ngx_rl_document_text(value);

    if (!ngx_rl_read_is(reader, value, NGX_RL_IS_TEXT)
        || !ngx_rl_read_tier(reader, &text))
    {
        return 0;
    }

    number = ngx_rl_read_find(&all->numbers, &text);

    if (number != NGX_RL_MAP_NONE) {
        return number;
    }

    tier = ngx_array_push(&all->tiers);

    if (tier == NULL) {
        reader->failed = 1;
        return 0;
    }

    *tier = ngx_rl_read_copy(reader, &text);

    number = (uint32_t) all->tiers.nelts - 1;
    (void) ngx_rl_read_enter(&all->numbers, &text, number);

    return number;
}


static void
ngx_rl_tiers_key(ngx_rl_reader_t *reader, json_t *value, size_t number,
    const ngx_rl_known_t *client, void *data)
{
    ngx_rl_tiers_t *all = data;

    uint32_t  tier;

    tier = ngx_rl_tiers_number(reader, value, all);

    if (tier && client) {
        ngx_rl_source_add(reader, all->rule, NGX_RL_READ_TIERS, client, tier);
    }
}


static void
ngx_rl_tiers_keys(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_tiers_t *all = data;

    ngx_rl_map_t  seen;

    ngx_rl_read_named(reader, value, all->rule, reader->temp, &seen, 0,
                      ngx_rl_tiers_key, all);
}


/* An empty object does not keep its rule from being deleted. */
static void
ngx_rl_tiers_rule(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_tiers_t *all = data;

    ngx_str_t   id;
    ngx_uint_t  problems;

    problems = reader->problems->n;

    if (json_object_size(value) == 0
        || !ngx_rl_read_few(reader, NULL, value, NGX_RL_DOCUMENT_ENTRIES))
    {
        return;
    }

    id = ngx_rl_read_name(reader);
    all->rule = ngx_rl_read_rule_of(reader, &id);

    if (all->rule) {
        ngx_rl_tiers_keys(reader, value, all);

    } else if (ngx_rl_read_skip(reader, problems, NULL) && reader->hashed) {
        ngx_rl_named_store(reader, value);
    }
}


static const ngx_rl_member_t  ngx_rl_tiers_pattern_members[] = {
    { "pattern", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_tiers_entry_t, pattern) },
    { "tier", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_tiers_entry_t, tier) },
    { "rule", NGX_RL_IS_TEXT, .read = ngx_rl_read_rule_ref,
      .offset = offsetof(ngx_rl_tiers_entry_t, of) },
    { .name = NULL }
};


static void
ngx_rl_tiers_pattern(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_tiers_t *all = data;

    uint32_t               number, tier;
    ngx_int_t              rc;
    ngx_str_t             *tiers;
    ngx_uint_t             problems;
    ngx_rl_place_t         place;
    ngx_rl_known_t         client;
    ngx_rl_tiers_entry_t   entry;

    problems = reader->problems->n;

    ngx_memzero(&entry, sizeof(ngx_rl_tiers_entry_t));
    ngx_rl_read_members(reader, value, ngx_rl_tiers_pattern_members, &entry);

    if (entry.tier == NULL || entry.pattern == NULL) {
        return;
    }

    if (entry.of.named && entry.of.rule == NULL) {
        (void) ngx_rl_read_skip(reader, problems, NULL);
        return;
    }

    place.up = reader->at;
    reader->at = &place;

    place.name = "tier";
    tier = ngx_rl_tiers_number(reader, entry.tier, all);

    place.name = "pattern";
    rc = ngx_rl_read_key(reader, entry.pattern, 1, entry.of.rule, &client);

    reader->at = place.up;

    if (rc != NGX_OK || tier == 0 || reader->failed) {
        return;
    }

    /* that of the first pattern is the greatest of them */

    number = (uint32_t) (all->npatterns - reader->at->number);
    tiers = all->tiers.elts;
    tiers[number] = tiers[tier];

    ngx_rl_source_add(reader, entry.of.rule, NGX_RL_READ_TIERS, &client,
                      number);
}


static const ngx_rl_member_t  ngx_rl_tiers_members[] = {
    { "keys", NGX_RL_IS_OBJECT, .read = ngx_rl_tiers_keys },
    { "rules", NGX_RL_IS_OBJECT, .each = NGX_RL_IS_OBJECT,
      .read = ngx_rl_tiers_rule },
    { "patterns", NGX_RL_IS_ARRAY, .each = NGX_RL_IS_OBJECT,
      .read = ngx_rl_tiers_pattern },
    { .name = NULL }
};


void
ngx_rl_read_tier_assignments(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    size_t           n;
    json_t          *keys, *rules, *rule, *patterns;
    const char      *id;
    ngx_rl_tiers_t   all;


    keys = json_object_get(value, "keys");
    rules = json_object_get(value, "rules");
    patterns = json_object_get(value, "patterns");

    if (!ngx_rl_read_few(reader, "keys", keys, NGX_RL_DOCUMENT_ENTRIES)
        || !ngx_rl_read_few(reader, "patterns", patterns,
                            NGX_RL_DOCUMENT_ENTRIES))
    {
        return;
    }

    all.npatterns = json_array_size(patterns);
    n = json_object_size(keys) + all.npatterns + 1;

    json_object_foreach(rules, id, rule) {
        n += json_object_size(rule);
    }

    if (ngx_rl_read_map(reader, reader->temp, &all.numbers, n) != NGX_OK
        || ngx_array_init(&all.tiers, reader->pool, all.npatterns + 9,
                          sizeof(ngx_str_t))
           != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    (void) ngx_array_push_n(&all.tiers, all.npatterns + 1);
    all.rule = NULL;

    ngx_rl_read_members(reader, value, ngx_rl_tiers_members, &all);
    reader->policy->tiers = all.tiers.elts;
}


static void
ngx_rl_override_id(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_override_read_t *draft = data;

    uint32_t   number;
    ngx_str_t  id;

    id = ngx_rl_document_text(value);
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
ngx_rl_override_key(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_override_read_t *draft = data;

    draft->key = 1;
    draft->found = (ngx_rl_read_key(reader, value, 0, NULL, &draft->client)
                    == NGX_OK);
}


static const ngx_rl_member_t  ngx_rl_tenant_members[] = {
    { "part", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_override_read_t, part),
      .expected = "a part of a rule's key, as it is written there" },
    { "value", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_override_read_t, value),
      .expected = "a value of that part" },
    { .name = NULL }
};


/* It is not read if the type is not known. */
static void
ngx_rl_override_value(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_override_read_t *draft = data;

    double                factor, off;
    uint64_t              millionths;
    const ngx_rl_rule_t  *rule;

    rule = draft->of.rule;

    if (!draft->factor) {
        draft->amount = draft->typed
                        && ngx_rl_read_amount(reader, value,
                                              rule ? &rule->spec.algorithm
                                                   : NULL,
                                              &draft->limit->amount)
                           == NGX_OK;
        return;
    }

    if (!ngx_rl_read_is(reader, value, NGX_RL_IS_NUMBER)) {
        return;
    }

    factor = json_number_value(value);

    if (!(factor > 0)) {
        ngx_rl_read_problem(reader, "must be > 0");
        return;
    }

    if (factor > NGX_RL_MAX_FACTOR) {
        ngx_rl_read_problem(reader, "must be at most %d", NGX_RL_MAX_FACTOR);
        return;
    }

    /* below 2^40, so that six decimal places are there to be seen */

    factor *= NGX_RL_MILLION;
    millionths = (uint64_t) (factor + 0.5);
    off = factor - (double) millionths;

    if (millionths == 0 || off > 0.001 || off < -0.001) {
        ngx_rl_read_problem(reader, "must have at most six decimal places");
        return;
    }

    draft->limit->millionths = millionths;
}


/* what the value is checked by stands before it */

static const ngx_rl_member_t  ngx_rl_override_members[] = {
    { "id", NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED, .read = ngx_rl_override_id },
    { "key", NGX_RL_IS_TEXT, .read = ngx_rl_override_key },
    { "tenant", NGX_RL_IS_OBJECT|NGX_RL_IS_KEPT,
      .members = ngx_rl_tenant_members,
      .offset = offsetof(ngx_rl_override_read_t, tenant) },
    { "rule", NGX_RL_IS_TEXT, .read = ngx_rl_read_rule_ref,
      .offset = offsetof(ngx_rl_override_read_t, of) },
    { "type", .types = NGX_RL_IS_TEXT|NGX_RL_IS_NEEDED },
    { "value", NGX_RL_IS_NUMBER|NGX_RL_IS_TEXT|NGX_RL_IS_OBJECT
               |NGX_RL_IS_NEEDED, .read = ngx_rl_override_value },
    { "expires_at", NGX_RL_IS_TEXT, .read = ngx_rl_read_time,
      .offset = offsetof(ngx_rl_override_read_t, ends) },
    { "duration", NGX_RL_IS_ANY, .read = ngx_rl_read_duration },
    { "reason", .types = NGX_RL_IS_TEXT },
    { .name = NULL }
};


static ngx_uint_t
ngx_rl_override_part(const ngx_rl_rule_t *rule, const ngx_str_t *part)
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
ngx_rl_override_client(ngx_rl_reader_t *reader, ngx_rl_override_read_t *draft)
{
    uint32_t   i;
    ngx_str_t  part, value;

    if (draft->key == (draft->tenant != NULL)) {
        ngx_rl_read_problem(reader, "expected one of \"key\" and \"tenant\"");
        draft->found = 0;
        return;
    }

    if (draft->part == NULL || draft->value == NULL) {
        return;
    }

    part = ngx_rl_document_text(draft->part);
    value = ngx_rl_document_text(draft->value);

    ngx_rl_policy_part_digest(&part, &value, 0, draft->client.digest);
    draft->found = 1;
    reader->policy->tenants = 1;

    if (draft->of.rule) {
        if (!ngx_rl_override_part(draft->of.rule, &part)) {
            ngx_rl_read_wrong(reader, "tenant", "part", "is no part of the key "
                              "of rule \"%V\"", &draft->of.rule->id);
        }

        return;
    }

    for (i = 0; i < reader->nrules && !draft->of.named; i++) {
        if (ngx_rl_override_part(reader->rules[i], &part)) {
            return;
        }
    }

    if (!draft->of.named) {
        ngx_rl_read_add(reader, reader->warnings, "tenant", "part", "is no "
                        "part of a rule's key: the override has no effect");
    }
}


static void
ngx_rl_override(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    char                     words[NGX_RL_READ_WORDS];
    uint32_t                 number;
    ngx_uint_t               problems;
    const char              *expected, *type;
    ngx_rl_spec_t            spec;
    ngx_rl_limit_t           limit;
    ngx_rl_policy_t         *policy;
    const ngx_rl_rule_t     *rule;
    ngx_rl_override_read_t   draft;

    policy = reader->policy;
    number = (uint32_t) reader->at->number;
    problems = reader->problems->n;
    type = json_string_value(json_object_get(value, "type"));

    ngx_memzero(&draft, sizeof(ngx_rl_override_read_t));
    draft.limit = &policy->overrides[number];
    draft.ids = data;
    draft.factor = type && ngx_strcmp(type, "multiplicative") == 0;
    draft.typed = draft.factor || (type && ngx_strcmp(type, "absolute") == 0);

    reader->inside = 1;
    ngx_rl_read_members(reader, value, ngx_rl_override_members, &draft);
    reader->inside = 0;

    draft.limit->expires = (time_t) draft.ends;
    rule = draft.of.rule;

    if (type && !draft.typed) {
        ngx_rl_read_wrong(reader, NULL, "type", "expected \"absolute\" or "
                          "\"multiplicative\"");
    }

    if (rule) {
        draft.limit->rule_id = rule->id;
    }

    if (rule && rule->shards) {
        ngx_rl_read_wrong(reader, NULL, "rule", "has \"shards\": expected a "
                          "rule without them");
    }

    ngx_rl_override_client(reader, &draft);

    /*
     * It is tried on the limit of the rule that it names, where that is known.
     * A limit that it does not fit stays as it is, and explain says so.
     */

    if (draft.amount && rule && rule->limit.mark) {
        expected = ngx_rl_amount_inherit(&rule->spec, &draft.limit->amount,
                                         &spec);

        if (expected == NULL) {
            expected = ngx_rl_limit_init(&limit, &spec);
        }

        if (expected) {
            ngx_rl_read_wrong(reader, NULL, "value", "expected %s",
                              ngx_rl_read_words(expected, words));
        }
    }

    if (!ngx_rl_read_skip(reader, problems, &draft.limit->id) && draft.found) {
        draft.limit->next = ngx_rl_map_put(&policy->override_keys,
                                           draft.client.digest, number);
    }
}


void
ngx_rl_read_overrides(ngx_rl_reader_t *reader, json_t *list, void *data)
{
    ngx_rl_policy_t *policy = data;

    size_t        n;
    ngx_rl_map_t  ids;

    n = json_array_size(list);

    if (n == 0) {
        return;
    }

    policy->overrides = ngx_rl_read_alloc(reader, reader->pool,
                                          n * sizeof(ngx_rl_override_t));

    if (policy->overrides
        && ngx_rl_read_map(reader, reader->pool, &policy->override_keys, n)
           == NGX_OK
        && ngx_rl_read_map(reader, reader->temp, &ids, n) == NGX_OK)
    {
        ngx_rl_read_each(reader, list, NGX_RL_IS_OBJECT, ngx_rl_override,
                         &ids);
    }
}

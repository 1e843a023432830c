/*
 * API keys of a document and values of rules' keys, and globs of them: how they
 * are found and stored. And lists of API keys: "api_key_pattern".
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_networks.h"

#include <openssl/sha.h>

/* A list while it is read. */
typedef struct {
    ngx_rl_keys_t        *keys;
    size_t                n;          /* of its entries */
    ngx_rl_glob_text_t   *globs;
    size_t                nglobs;
} ngx_rl_list_t;


static ngx_uint_t
ngx_rl_read_prefixed(const ngx_str_t *text)
{
    return text->len >= sizeof("sha256:") - 1
           && ngx_memcmp(text->data, "sha256:", sizeof("sha256:") - 1) == 0;
}


/* "sha256:" and the digest of a text. */
static void
ngx_rl_read_stored(const ngx_str_t *text, u_char stored[NGX_RL_DOCUMENT_KEY])
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

    stored.data = buf;
    stored.len = NGX_RL_DOCUMENT_KEY;

    if (ngx_rl_policy_hashed(key)) {
        ngx_strlow(buf, key->data, key->len);

    } else if (ngx_rl_read_prefixed(key)) {
        return *key;

    } else {
        ngx_rl_read_stored(key, buf);
    }

    return stored;
}


ngx_uint_t
ngx_rl_read_in_bytes(const ngx_rl_rule_t *rule)
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


/* Whether a text cannot name a value of the rule's key: what is expected. */
static const char *
ngx_rl_read_hash_alone(const ngx_rl_rule_t *rule)
{
    return (rule->nparts > 1)
           ? "the hash of the whole key, because the key of the rule has "
             "several parts"
           : ngx_rl_read_in_bytes(rule)
           ? "the hash of the key, or a rule that counts by $remote_addr: "
             "$binary_remote_addr is no text"
           : NULL;
}


/* A checked one. A glob that stands for one key is that key. */
static void
ngx_rl_read_glob(const ngx_str_t *text, ngx_rl_api_key_t *key)
{
    u_char      plain[NGX_RL_GLOB_MAX];
    size_t      i;
    ngx_str_t   one;

    if (ngx_rl_glob_wild(text->data, text->len)) {
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

    ngx_rl_read_stored(&one, key->stored);
}


/* Returns NULL, or the problem: "is ...", or what was expected. */
static const char *
ngx_rl_read_checked(ngx_rl_reader_t *reader, const ngx_str_t *text,
    ngx_uint_t globs, const ngx_rl_rule_t *rule, ngx_rl_api_key_t *key)
{
    const char        *expected;
    ngx_rl_network_t   network;

    ngx_str_null(&key->glob);

    if (text->len == 0) {
        return rule ? "a value of the key of the rule" : "an API key";
    }

    if (ngx_rl_read_prefixed(text)) {
        (void) ngx_rl_document_key(text, key->stored);

        return ngx_rl_policy_hashed(text)
               ? NULL : "64 hexadecimal digits behind \"sha256:\"";
    }

    expected = rule ? ngx_rl_read_hash_alone(rule) : NULL;

    if (expected) {
        return expected;
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

        if (expected == NULL) {
            ngx_rl_read_glob(text, key);
        }

        return expected;
    }

    if (ngx_strlchr(text->data, text->data + text->len, '*')
        || ngx_strlchr(text->data, text->data + text->len, '?'))
    {
        return rule ? "one value: one with \"*\" or \"?\" in it as "
                      "\"sha256:...\""
                    : "one API key: one with \"*\" or \"?\" in it as "
                      "\"sha256:...\"";
    }

    ngx_rl_read_stored(text, key->stored);

    return NULL;
}


ngx_int_t
ngx_rl_read_api_key(ngx_rl_reader_t *reader, json_t *value, ngx_uint_t globs,
    const ngx_rl_rule_t *rule, ngx_rl_api_key_t *key)
{
    ngx_str_t    text;
    const char  *wrong;

    if (value) {
        text = ngx_rl_read_text(value);

    } else {
        text.data = (u_char *) reader->at->name;
        text.len = ngx_strlen(text.data);
    }

    wrong = ngx_rl_read_checked(reader, &text, globs, rule, key);

    if (wrong) {
        ngx_rl_read_problem(reader, "%s%s",
                            (*wrong == 'i') ? "" : "expected ", wrong);
        return NGX_DECLINED;
    }

    if (key->glob.len) {
        return NGX_OK;
    }

    text.data = key->stored;
    text.len = sizeof(key->stored);
    ngx_rl_policy_digest(&text, key->digest);

    if (value && reader->hashed
        && json_string_setn(value, (char *) text.data, text.len) != 0)
    {
        reader->failed = 1;
    }

    return NGX_OK;
}


void
ngx_rl_read_rule_key(ngx_rl_reader_t *reader, ngx_rl_rule_t *rule)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;

    if (rule->nparts == 0) {
        rule->parts = ngx_rl_read_alloc(reader, reader->pool,
                                        sizeof(ngx_str_t));
        if (rule->parts == NULL) {
            return;
        }

        rule->nparts = 1;
        rule->parts[0] = reader->limiter->zone.key;
    }

    len = rule->nparts - 1;

    for (i = 0; i < rule->nparts; i++) {
        len += rule->parts[i].len;
    }

    p = ngx_rl_read_alloc(reader, reader->pool, len);
    if (p == NULL) {
        return;
    }

    rule->key.data = p;
    rule->key.len = len;

    for (i = 0; i < rule->nparts; i++) {

        if (i) {
            *p++ = NGX_RL_PART_END;
        }

        p = ngx_cpymem(p, rule->parts[i].data, rule->parts[i].len);
    }
}


void
ngx_rl_read_rename(ngx_rl_reader_t *reader, json_t *object, ngx_uint_t problems)
{
    int         failed;
    void       *iter;
    u_char      buf[NGX_RL_DOCUMENT_KEY];
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
        name = ngx_rl_document_key(&name, buf);

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


static void
ngx_rl_list_glob(ngx_rl_reader_t *reader, ngx_rl_list_t *list,
    const ngx_str_t *glob)
{
    ngx_str_t  copy;

    copy = ngx_rl_read_copy(reader, glob);
    list->globs[list->nglobs].data = copy.data;
    list->globs[list->nglobs++].len = copy.len;
}


static void
ngx_rl_read_listed(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_list_t *all = data;

    ngx_rl_api_key_t  key;

    if (ngx_rl_read_api_key(reader, value, 1, NULL, &key) != NGX_OK) {
        return;
    }

    if (key.glob.len) {
        ngx_rl_list_glob(reader, all, &key.glob);
        return;
    }

    if (all->keys->digests.entries
        || ngx_rl_read_map(reader, reader->pool, &all->keys->digests,
                           all->n)
           == NGX_OK)
    {
        (void) ngx_rl_map_put(&all->keys->digests, key.digest, 0);
    }
}


/* NULL: there are none, or memory is out. */
static ngx_rl_globs_t *
ngx_rl_list_globs(ngx_rl_reader_t *reader, const ngx_rl_list_t *list)
{
    void  *memory;

    if (list->nglobs == 0 || reader->failed) {
        return NULL;
    }

    memory = ngx_rl_read_alloc(reader, reader->pool,
                               ngx_rl_globs_bytes(list->nglobs));

    return memory ? ngx_rl_globs_init(memory, list->globs, list->nglobs) : NULL;
}


ngx_rl_keys_t *
ngx_rl_read_keys(ngx_rl_reader_t *reader, json_t *list)
{
    ngx_rl_list_t  all;

    /* no patterns are any key, and none */

    if ((json_is_array(list) && json_array_size(list) == 0)
        || !ngx_rl_read_few(reader, NULL, list,
                            NGX_RL_DOCUMENT_ENTRIES))
    {
        return NULL;
    }

    all.n = json_is_array(list) ? json_array_size(list) : 1;
    all.nglobs = 0;
    all.keys = ngx_rl_read_alloc(reader, reader->pool, sizeof(ngx_rl_keys_t));
    all.globs = ngx_rl_read_alloc(reader, reader->temp,
                                  (all.n + 1) * sizeof(ngx_rl_glob_text_t));

    if (all.keys && all.globs) {
        ngx_rl_read_each(reader, list, NGX_RL_IS_TEXT,
                         ngx_rl_read_listed, &all);

        all.keys->globs = ngx_rl_list_globs(reader, &all);
    }

    return all.keys;
}

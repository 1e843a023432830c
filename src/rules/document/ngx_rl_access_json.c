/*
 * The lists of clients of a document: "allow" and "deny".
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_date.h"

/* A list while it is read. */
typedef struct {
    ngx_rl_access_t   *entries;
    ngx_uint_t         n;
} ngx_rl_access_read_t;

/* An entry while it is read. */
typedef struct {
    ngx_rl_access_t   *access;
    json_t            *key;
    json_t            *address;
    ngx_rl_rule_t     *rule;
    unsigned           named:1;   /* it has "rule" */
} ngx_rl_access_entry_t;

#define NGX_RL_ENTRY(name)                                                    \
    .offset = offsetof(ngx_rl_access_entry_t, name)


static void
ngx_rl_access_rule(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_access_entry_t *entry = data;

    uint32_t   number;
    ngx_str_t  id;

    entry->named = 1;

    id = ngx_rl_read_text(value);
    number = ngx_rl_read_rule_id(reader, &id);

    if (number != NGX_RL_MAP_NONE) {
        entry->rule = reader->rules[number];
    }
}


static void
ngx_rl_access_expires_at(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_access_entry_t *entry = data;

    int64_t  seconds;

    if (ngx_rl_read_time(reader, value, &seconds) == NGX_OK) {
        entry->access->ends = (uint32_t) ngx_min(seconds, NGX_RL_ACCESS_NEVER);
    }
}


static const ngx_rl_member_t  ngx_rl_access_members[] = {
    { "key", NGX_RL_IS_TEXT|NGX_RL_IS_ARRAY
             |NGX_RL_IS_KEPT, NGX_RL_ENTRY(key) },
    { "address", NGX_RL_IS_TEXT|NGX_RL_IS_KEPT,
      NGX_RL_ENTRY(address) },
    { "rule", NGX_RL_IS_TEXT, .read = ngx_rl_access_rule },
    { "expires_at", NGX_RL_IS_TEXT,
      .read = ngx_rl_access_expires_at },
    { "duration", NGX_RL_IS_ANY, .read = ngx_rl_read_duration },
    { "reason", .types = NGX_RL_IS_TEXT },
    { .name = NULL }
};


static ngx_int_t
ngx_rl_access_address(ngx_rl_reader_t *reader, ngx_rl_access_entry_t *entry)
{
    ngx_str_t  text;

    text = ngx_rl_read_text(entry->address);
    entry->access->kind = NGX_RL_ACCESS_NETWORK;

    if (ngx_rl_network_parse(text.data, text.len,
                             &entry->access->network)
        == 0)
    {
        return NGX_OK;
    }

    ngx_rl_read_problem(reader, "expected an address or a network like "
                        "\"192.0.2.1\" or \"2001:db8::/32\"");

    return NGX_DECLINED;
}


static ngx_int_t
ngx_rl_access_key(ngx_rl_reader_t *reader, json_t *key, ngx_rl_access_t *access)
{
    ngx_rl_api_key_t  read;

    if (ngx_rl_read_api_key(reader, key, 1, NULL, &read) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (read.glob.len) {
        access->kind = NGX_RL_ACCESS_GLOB;
        access->glob = ngx_rl_read_copy(reader, &read.glob);

    } else {
        access->kind = NGX_RL_ACCESS_KEY;
        ngx_memcpy(access->digest, read.digest, NGX_RL_MAP_KEY);
    }

    return NGX_OK;
}


/* A text, or texts that are joined; empty: neither. */
static ngx_int_t
ngx_rl_access_parts(const json_t *key, ngx_pool_t *pool, ngx_str_t *text,
    ngx_uint_t *n)
{
    size_t         i;
    const json_t  *part;
    ngx_str_t      parts[NGX_RL_MAX_PARTS];

    *n = 1;
    *text = json_is_string(key) ? ngx_rl_read_text(key)
                                : (ngx_str_t) ngx_null_string;

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

        parts[i] = ngx_rl_read_text(part);
    }

    return ngx_rl_policy_join(parts, *n, pool, text);
}


/* Among the rules that the policy's lists name. */
static ngx_int_t
ngx_rl_access_number(ngx_rl_reader_t *reader, ngx_rl_rule_t *rule,
    ngx_uint_t *number)
{
    ngx_array_t     *listed;
    ngx_uint_t       i;
    ngx_rl_rule_t  **rules;

    listed = &reader->policy->listed;
    rules = listed->elts;

    for (i = 0; i < listed->nelts; i++) {
        if (rules[i] == rule) {
            *number = i;
            return NGX_OK;
        }
    }

    if (listed->elts == NULL
        && ngx_array_init(listed, reader->pool, 4,
                          sizeof(ngx_rl_rule_t *))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    rules = ngx_array_push(listed);
    if (rules == NULL) {
        return NGX_ERROR;
    }

    *rules = rule;
    *number = listed->nelts - 1;

    return NGX_OK;
}


/* A value of a rule's key, or its hash; in the tree it becomes the hash. */
static ngx_int_t
ngx_rl_access_of_rule(ngx_rl_reader_t *reader, json_t *object,
    ngx_rl_access_entry_t *entry)
{
    u_char      buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t   text;
    ngx_uint_t  n, nparts, number;

    if (entry->rule == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_rl_access_parts(entry->key, reader->temp, &text, &n) != NGX_OK) {
        reader->failed = 1;
        return NGX_DECLINED;
    }

    if (text.len == 0) {
        ngx_rl_read_problem(reader, "expected a value of the key of "
                            "the rule, or an array of the values of its "
                            "parts");
        return NGX_DECLINED;
    }

    /* a hash is of the whole key */

    nparts = ngx_max(entry->rule->nparts, 1);

    if (n != nparts && !ngx_rl_policy_hashed(&text)) {
        ngx_rl_read_problem(reader, "has %ui parts, expected %ui as the "
                            "key of the rule has", n, nparts);
        return NGX_DECLINED;
    }

    if (ngx_rl_read_in_bytes(entry->rule) && !ngx_rl_policy_hashed(&text)) {
        ngx_rl_read_problem(reader, "is a text, but the rule counts by "
                            "the bytes of $binary_remote_addr: expected "
                            "\"address\" in place of \"rule\" and "
                            "\"key\", or the hash of the key");
        return NGX_DECLINED;
    }

    text = ngx_rl_document_key(&text, buf);

    if (!ngx_rl_policy_hashed(&text)) {
        ngx_rl_read_problem(reader, "expected 64 hexadecimal digits "
                            "behind \"sha256:\"");
        return NGX_DECLINED;
    }

    if (ngx_rl_access_number(reader, entry->rule, &number) != NGX_OK) {
        reader->failed = 1;
        return NGX_DECLINED;
    }

    entry->access->kind = NGX_RL_ACCESS_RULE_KEY;
    ngx_rl_access_rule_key(number, NULL, &text, entry->access->digest);

    if (reader->hashed
        && json_object_set_new(object, "key",
                               json_stringn((char *) text.data, text.len))
           != 0)
    {
        reader->failed = 1;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_rl_access_client(ngx_rl_reader_t *reader, json_t *object,
    ngx_rl_access_entry_t *entry)
{
    ngx_int_t       rc;
    ngx_rl_place_t  place;

    if (!entry->key == !entry->address || (entry->named && !entry->key)) {
        ngx_rl_read_problem(reader, "expected \"address\", \"key\", or "
                            "\"rule\" and \"key\"");
        return NGX_DECLINED;
    }

    place.up = reader->at;
    place.name = entry->key ? "key" : "address";
    reader->at = &place;

    if (entry->address) {
        rc = ngx_rl_access_address(reader, entry);

    } else if (entry->named) {
        rc = ngx_rl_access_of_rule(reader, object, entry);

    } else {
        rc = ngx_rl_read_is(reader, entry->key, NGX_RL_IS_TEXT)
             ? ngx_rl_access_key(reader, entry->key, entry->access)
             : NGX_DECLINED;
    }

    reader->at = place.up;

    return rc;
}


/* A text is an address, a network, or an API key. */
static void
ngx_rl_access_read(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_access_read_t *read = data;

    ngx_int_t                      rc;
    ngx_str_t                      text;
    ngx_uint_t                     problems;
    ngx_rl_access_entry_t   entry;

    problems = reader->problems->n;

    ngx_memzero(&entry, sizeof(ngx_rl_access_entry_t));
    entry.access = &read->entries[read->n];
    entry.access->ends = NGX_RL_ACCESS_NEVER;

    if (json_is_string(value)) {
        text = ngx_rl_read_text(value);
        entry.address = value;

        rc = (ngx_rl_network_parse(text.data, text.len,
                                   &entry.access->network)
              == 0)
             ? ngx_rl_access_address(reader, &entry)
             : ngx_rl_access_key(reader, value, entry.access);

    } else {
        ngx_rl_read_members(reader, value, ngx_rl_access_members, &entry);
        rc = ngx_rl_access_client(reader, value, &entry);
    }

    if (!ngx_rl_read_skip(reader, problems, NULL) && rc == NGX_OK
        && reader->problems->n == problems)
    {
        read->n++;
    }
}


void
ngx_rl_read_access_list(ngx_rl_reader_t *reader, json_t *list, void *data)
{
    ngx_rl_access_read_t  read;

    if (json_array_size(list) == 0
        || !ngx_rl_read_few(reader, NULL, list,
                            NGX_RL_DOCUMENT_ENTRIES))
    {
        return;
    }

    read.n = 0;
    read.entries = ngx_rl_read_alloc(reader, reader->temp,
                                     json_array_size(list)
                                     * sizeof(ngx_rl_access_t));
    if (read.entries == NULL) {
        return;
    }

    ngx_rl_read_each(reader, list, NGX_RL_IS_TEXT|NGX_RL_IS_OBJECT,
                     ngx_rl_access_read, &read);

    if (!reader->failed
        && ngx_rl_access_list_make(data, read.entries, read.n,
                                   reader->pool)
           != NGX_OK)
    {
        reader->failed = 1;
    }
}


ngx_int_t
ngx_rl_document_entry(const json_t *entry, ngx_pool_t *pool, ngx_str_t *name)
{
    u_char             buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t          text, rule;
    ngx_uint_t         n;
    const json_t      *key;
    ngx_rl_network_t   network;

    rule = ngx_rl_read_text(json_object_get(entry, "rule"));
    key = json_object_get(entry, "key");

    if (json_is_string(entry)) {
        key = entry;

    } else if (key == NULL) {
        key = json_object_get(entry, "address");
    }

    if (ngx_rl_access_parts(key, pool, &text, &n) != NGX_OK) {
        return NGX_ERROR;
    }

    name->data = ngx_pnalloc(pool, rule.len + text.len + sizeof(buf)
                                   + 2 * sizeof(network));
    if (name->data == NULL) {
        return NGX_ERROR;
    }

    if (rule.len == 0
        && ngx_rl_network_parse(text.data, text.len, &network) == 0)
    {
        name->len = ngx_hex_dump(name->data, network.address,
                                 NGX_RL_ADDRESS)
                    - name->data;
        name->len += ngx_sprintf(name->data + name->len, "/%uD", network.bits)
                     - (name->data + name->len);
        return NGX_OK;
    }

    if (rule.len || !ngx_rl_glob_wild(text.data, text.len)) {
        text = ngx_rl_document_key(&text, buf);
    }

    name->len = ngx_sprintf(name->data, "%V%s%V", &rule, rule.len ? " " : "",
                            &text)
                - name->data;

    return NGX_OK;
}

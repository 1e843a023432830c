/*
 * A zone's document: from its text to a tree, from the tree to a policy.
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_date.h"
#include "ngx_ratelimit_text.h"

#define member(name)                                                          \
    static void ngx_ratelimit_document_##name(ngx_ratelimit_reader_t *reader, \
        const ngx_ratelimit_place_t *at, json_t *value, void *data)

member(rules);
member(whitelist);
member(blacklist);
member(overrides);

#undef member

static const char *ngx_ratelimit_document_scan(const ngx_str_t *text,
    size_t *at);
static void ngx_ratelimit_document_policy(ngx_ratelimit_reader_t *reader,
    json_t *root);
static ngx_int_t ngx_ratelimit_document_format(
    ngx_ratelimit_reader_t *reader, const ngx_ratelimit_place_t *at,
    json_t *root);
static ngx_uint_t ngx_ratelimit_document_deep(json_t *value, ngx_uint_t depth);
static void ngx_ratelimit_document_enter(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_rule_t *rule,
    uint32_t number);
static ngx_int_t ngx_ratelimit_document_complete(
    ngx_ratelimit_reader_t *reader);
static ngx_uint_t ngx_ratelimit_document_denies_all(
    const ngx_ratelimit_reader_t *reader, json_t *root);
static ngx_uint_t ngx_ratelimit_document_any(json_t *list);
static ngx_uint_t ngx_ratelimit_document_never(
    const ngx_ratelimit_rule_t *rule);
static ngx_uint_t ngx_ratelimit_document_digits_of(const json_t *value);

/* rules before what refers to them */

static const ngx_ratelimit_member_t  ngx_ratelimit_document_members[] = {
    { "format", NGX_RATELIMIT_IS_TEXT, NULL },
    { "version", NGX_RATELIMIT_IS_NUMBER, NULL },
    { "rules", NGX_RATELIMIT_IS_ARRAY, ngx_ratelimit_document_rules },
    { "tier_of", NGX_RATELIMIT_IS_OBJECT, ngx_ratelimit_read_tier_of },
    { "whitelist", NGX_RATELIMIT_IS_ARRAY, ngx_ratelimit_document_whitelist },
    { "blacklist", NGX_RATELIMIT_IS_ARRAY, ngx_ratelimit_document_blacklist },
    { "overrides", NGX_RATELIMIT_IS_ARRAY, ngx_ratelimit_document_overrides },
    { NULL, 0, NULL }
};


void
ngx_ratelimit_document_init(void)
{
    json_object_seed(0);
}


json_t *
ngx_ratelimit_document_parse(const ngx_str_t *text,
    ngx_ratelimit_problems_t *problems)
{
    char          *near;
    size_t         at;
    json_t        *root;
    const char    *wrong;
    json_error_t   error;

    static const ngx_str_t  whole = ngx_null_string;

    wrong = ngx_ratelimit_document_scan(text, &at);

    if (wrong) {
        ngx_ratelimit_problem(problems, &whole, "%s at byte %uz", wrong, at);
        return NULL;
    }

    root = json_loadb((const char *) text->data, text->len,
                      JSON_REJECT_DUPLICATES|JSON_DECODE_ANY, &error);
    if (root) {
        return root;
    }

    if (error.text[0] == '\0'
        || json_error_code(&error) == json_error_out_of_memory)
    {
        return NULL;
    }

    /* what it is near to may be an API key, and get into a log */

    near = strstr(error.text, " near ");
    if (near) {
        *near = '\0';
    }

    ngx_ratelimit_problem(problems, &whole, "is no JSON: %s at line %d, column "
                          "%d (byte %d)", error.text, error.line, error.column,
                          error.position);

    return NULL;
}


/*
 * What is found before any tree is made, so that it costs no more than a look
 * at each byte. Returns NULL, or what is wrong, and where.
 */
static const char *
ngx_ratelimit_document_scan(const ngx_str_t *text, size_t *at)
{
    size_t      i;
    ngx_uint_t  depth, quoted, containers;

    depth = 0;
    quoted = 0;
    containers = 0;

    for (i = 0; i < text->len; i++) {

        switch (text->data[i]) {

        case '"':
            quoted = !quoted;
            break;

        case '\\':
            i += quoted;
            break;

        case '[':
        case '{':
            if (quoted) {
                break;
            }

            if (++depth > NGX_RATELIMIT_DOCUMENT_DEPTH) {
                *at = i;
                return "has more than 32 arrays and objects in one another,";
            }

            if (++containers > NGX_RATELIMIT_DOCUMENT_CONTAINERS) {
                *at = i;
                return "has more than 100000 arrays and objects,";
            }

            break;

        case ']':
        case '}':
            depth -= (!quoted && depth);
            break;
        }
    }

    if (text->len == 0) {
        *at = 0;
        return "is no JSON: it is empty,";
    }

    return NULL;
}


ngx_ratelimit_policy_t *
ngx_ratelimit_document_compile(ngx_ratelimit_limiter_t *limiter,
    const ngx_str_t *text, ngx_ratelimit_problems_t *problems,
    ngx_ratelimit_problems_t *warnings, ngx_log_t *log)
{
    json_t                  *root;
    ngx_ratelimit_policy_t  *policy;

    root = ngx_ratelimit_document_parse(text, problems);

    if (root == NULL) {
        return NULL;
    }

    policy = ngx_ratelimit_document_read(limiter, root, 1, problems, warnings,
                                         NULL, log);
    json_decref(root);

    return policy;
}


ngx_ratelimit_policy_t *
ngx_ratelimit_document_read(ngx_ratelimit_limiter_t *limiter, json_t *root,
    ngx_uint_t clear, ngx_ratelimit_problems_t *problems,
    ngx_ratelimit_problems_t *warnings, ngx_uint_t *deny_all, ngx_log_t *log)
{
    return ngx_ratelimit_document_read_next(limiter, root, clear, problems,
                                            warnings, deny_all, NULL, log);
}


ngx_ratelimit_policy_t *
ngx_ratelimit_document_read_next(ngx_ratelimit_limiter_t *limiter,
    json_t *root, ngx_uint_t clear, ngx_ratelimit_problems_t *problems,
    ngx_ratelimit_problems_t *warnings, ngx_uint_t *deny_all,
    const ngx_ratelimit_problems_t *known, ngx_log_t *log)
{
    ngx_ratelimit_policy_t  *policy;
    ngx_ratelimit_reader_t   reader;

    ngx_memzero(&reader, sizeof(ngx_ratelimit_reader_t));

    reader.limiter = limiter;
    reader.problems = problems;
    reader.warnings = warnings;
    reader.hashed = !clear;
    reader.written = (deny_all != NULL);
    reader.known = known;

    policy = ngx_ratelimit_policy_create(limiter, log);
    reader.policy = policy;

    if (policy == NULL) {
        reader.failed = 1;

    } else {
        reader.pool = policy->pool;
        ngx_ratelimit_document_policy(&reader, root);
    }

    if (!reader.failed && problems->n == 0) {

        if (deny_all) {
            *deny_all = ngx_ratelimit_document_denies_all(&reader, root);
        }

        if (ngx_ratelimit_document_complete(&reader) == NGX_OK) {
            return policy;
        }

        reader.failed = 1;
    }

    if (reader.failed) {
        problems->n = 0;
        problems->list.nelts = 0;
    }

    if (policy) {
        ngx_ratelimit_policy_release(policy);
    }

    return NULL;
}


static void
ngx_ratelimit_document_policy(ngx_ratelimit_reader_t *reader, json_t *root)
{
    size_t                  n;
    json_t                 *value;
    uint32_t                i;
    ngx_array_t            *rules;
    ngx_ratelimit_place_t   at;

    ngx_memzero(&at, sizeof(ngx_ratelimit_place_t));

    if (!ngx_ratelimit_read_is(reader, &at, root, NGX_RATELIMIT_IS_OBJECT)
        || ngx_ratelimit_document_format(reader, &at, root) != NGX_OK)
    {
        return;
    }

    if (ngx_ratelimit_document_deep(root, 1)) {
        ngx_ratelimit_read_problem(reader, &at, "has more than 32 arrays and "
                                   "objects in one another");
        return;
    }

    value = json_object_get(root, "rules");

    if (!ngx_ratelimit_read_few(reader, &at, "rules", value,
                                NGX_RATELIMIT_DOCUMENT_RULES))
    {
        return;
    }

    /* those of nginx.conf are known, and all others will be */

    rules = &reader->policy->rules;
    n = rules->nelts + json_array_size(value);

    reader->rules = ngx_ratelimit_read_alloc(reader, (n + 1)
                                             * sizeof(ngx_ratelimit_rule_t *));
    if (reader->rules == NULL
        || ngx_ratelimit_read_map(reader, &reader->ids, n + 1) != NGX_OK)
    {
        return;
    }

    reader->nfixed = (uint32_t) rules->nelts;
    reader->nrules = reader->nfixed;

    for (i = 0; i < reader->nfixed; i++) {
        reader->rules[i] = ((ngx_ratelimit_rule_t **) rules->elts)[i];
        ngx_ratelimit_document_enter(reader, &at, reader->rules[i], i);
    }

    (void) ngx_ratelimit_read_members(reader, &at, root,
                                      ngx_ratelimit_document_members, NULL);
}


/* "1.0", "1.7": of a newer minor number what is not known is kept. */
static ngx_int_t
ngx_ratelimit_document_format(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *root)
{
    u_char     *dot, *last;
    uint64_t    major, minor;
    json_t     *value;
    ngx_str_t   text;

    value = json_object_get(root, "format");

    if (!json_is_string(value)) {
        return NGX_OK;
    }

    text = ngx_ratelimit_read_text(value);
    last = text.data + text.len;
    dot = ngx_strlchr(text.data, last, '.');

    if (dot == NULL
        || ngx_ratelimit_number_parse(text.data, dot - text.data, 0, 999999,
                                      &major)
           != 0
        || ngx_ratelimit_number_parse(dot + 1, last - dot - 1, 0, 999999,
                                      &minor)
           != 0)
    {
        ngx_ratelimit_read_wrong(reader, at, NULL, "format",
                                 "expected a format like \"%d.%d\"",
                                 NGX_RATELIMIT_DOCUMENT_MAJOR,
                                 NGX_RATELIMIT_DOCUMENT_MINOR);
        return NGX_DECLINED;
    }

    if (major != NGX_RATELIMIT_DOCUMENT_MAJOR) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "format",
                                 "is another format than \"%d.%d\", expected "
                                 "one that this version can read",
                                 NGX_RATELIMIT_DOCUMENT_MAJOR,
                                 NGX_RATELIMIT_DOCUMENT_MINOR);
        return NGX_DECLINED;
    }

    reader->newer = (minor > NGX_RATELIMIT_DOCUMENT_MINOR);

    return NGX_OK;
}


/* A tree that was edited may be deeper than its texts were. */
static ngx_uint_t
ngx_ratelimit_document_deep(json_t *value, ngx_uint_t depth)
{
    void    *iter;
    size_t   i;

    if (!json_is_array(value) && !json_is_object(value)) {
        return 0;
    }

    if (depth > NGX_RATELIMIT_DOCUMENT_DEPTH) {
        return 1;
    }

    for (i = 0; i < json_array_size(value); i++) {
        if (ngx_ratelimit_document_deep(json_array_get(value, i), depth + 1)) {
            return 1;
        }
    }

    for (iter = json_object_iter(value);
         iter;
         iter = json_object_iter_next(value, iter))
    {
        if (ngx_ratelimit_document_deep(json_object_iter_value(iter),
                                        depth + 1))
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_ratelimit_document_rules(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    size_t                   i, n;
    json_t                  *text;
    ngx_uint_t               problems;
    ngx_ratelimit_rule_t    *rule, **entry;
    ngx_ratelimit_place_t    item;

    (void) data;

    n = json_array_size(value);

    if (n == 0) {
        return;
    }

    rule = ngx_ratelimit_read_alloc(reader, n * sizeof(ngx_ratelimit_rule_t));
    if (rule == NULL) {
        return;
    }

    for (i = 0; i < n && !reader->failed; i++, rule++) {

        problems = reader->problems->n;
        rule->number = reader->nfixed + i;

        text = ngx_ratelimit_read_item(value, i, at, &item);

        reader->inside = 1;
        ngx_ratelimit_read_rule(reader, &item, text, rule);
        reader->inside = 0;

        if (ngx_ratelimit_read_skip(reader, problems, &rule->id)) {
            continue;
        }

        if (rule->id.len) {
            ngx_ratelimit_document_enter(reader, &item, rule, reader->nrules);
        }

        if (ngx_ratelimit_read_skip(reader, problems, &rule->id)) {
            continue;
        }

        entry = ngx_array_push(&reader->policy->rules);
        if (entry == NULL) {
            reader->failed = 1;
            return;
        }

        *entry = rule;
        reader->rules[reader->nrules++] = rule;
    }
}


/* Under its id. */
static void
ngx_ratelimit_document_enter(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_rule_t *rule,
    uint32_t number)
{
    u_char    sha256[NGX_RATELIMIT_SHA256];
    uint32_t  before;

    ngx_ratelimit_read_sha256(&rule->id, sha256);

    before = ngx_ratelimit_map_get(&reader->ids, sha256);

    if (before == NGX_RATELIMIT_MAP_NONE) {
        (void) ngx_ratelimit_map_put(&reader->ids, sha256, number);
        return;
    }

    ngx_ratelimit_read_wrong(reader, at, NULL, "id",
                             (before < reader->nfixed)
                             ? "is taken by a rule of nginx.conf"
                             : "is taken by another rule");
}


static void
ngx_ratelimit_document_whitelist(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    (void) data;

    ngx_ratelimit_read_keys(reader, at, value, &reader->policy->allow);
}


static void
ngx_ratelimit_document_blacklist(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    (void) data;

    ngx_ratelimit_read_keys(reader, at, value, &reader->policy->deny);
}


/* What a tenant's override may name are parts of keys: those of all rules. */
static void
ngx_ratelimit_document_overrides(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    u_char                        sha256[NGX_RATELIMIT_SHA256];
    size_t                        n;
    uint32_t                      i;
    ngx_uint_t                    part;
    const ngx_ratelimit_rule_t   *rule;

    if (json_array_size(value) == 0
        || !ngx_ratelimit_read_few(reader, at, NULL, value,
                                   NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    for (n = 0, i = 0; i < reader->nrules; i++) {
        n += reader->rules[i]->nparts + 1;
    }

    if (n && ngx_ratelimit_read_map(reader, &reader->parts, n) != NGX_OK) {
        return;
    }

    for (i = 0; i < reader->nrules; i++) {
        rule = reader->rules[i];

        for (part = 0; part < rule->nparts; part++) {
            ngx_ratelimit_read_sha256(&rule->parts[part], sha256);
            (void) ngx_ratelimit_map_put(&reader->parts, sha256, i);
        }

        if (rule->nparts == 0 && rule->key.len) {
            ngx_ratelimit_read_sha256(&rule->key, sha256);
            (void) ngx_ratelimit_map_put(&reader->parts, sha256, i);
        }
    }

    ngx_ratelimit_read_overrides(reader, at, value, data);
}


/* What others do to rules that are read. */
static ngx_int_t
ngx_ratelimit_document_complete(ngx_ratelimit_reader_t *reader)
{
    uint32_t   i;

    if (ngx_ratelimit_policy_complete(reader->policy) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = reader->nfixed; i < reader->nrules; i++) {
        if (reader->limiter->above.prepare(reader->rules[i], reader->pool)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_ratelimit_document_denies_all(const ngx_ratelimit_reader_t *reader,
    json_t *root)
{
    uint32_t  i;

    if (ngx_ratelimit_document_any(json_object_get(root, "blacklist"))) {
        return 1;
    }

    if (ngx_ratelimit_document_any(json_object_get(root, "whitelist"))) {
        return 0;
    }

    for (i = reader->nfixed; i < reader->nrules; i++) {
        if (ngx_ratelimit_document_never(reader->rules[i])) {
            return 1;
        }
    }

    return 0;
}


/* Whether a list has a pattern of every key: none is empty, so "?" may be. */
static ngx_uint_t
ngx_ratelimit_document_any(json_t *list)
{
    u_char    *p;
    size_t     i;
    ngx_str_t  glob, rest;

    for (i = 0; i < json_array_size(list); i++) {
        glob = ngx_ratelimit_read_text(json_array_get(list, i));

        rest = glob;
        p = ngx_strlchr(glob.data, glob.data + glob.len, '?');

        if (p) {
            rest.data = p + 1;
            rest.len = glob.data + glob.len - rest.data;
            glob.len = p - glob.data;
        }

        /* stars alone, before the "?", behind it, or on both sides */

        if ((glob.len || rest.len)
            && (glob.len == 0 || ngx_ratelimit_glob_any(glob.data, glob.len))
            && (rest.len == 0 || ngx_ratelimit_glob_any(rest.data, rest.len)))
        {
            return 1;
        }
    }

    return 0;
}


/* Whether a rule is for every request, and can never grant one. */
static ngx_uint_t
ngx_ratelimit_document_never(const ngx_ratelimit_rule_t *rule)
{
    return !rule->dry_run && rule->percent == 100 && rule->group.len == 0
           && rule->methods == 0 && rule->route.len == 0
           && rule->regex_text.len == 0 && rule->nhosts == 0
           && rule->api_keys == NULL && rule->tier.len == 0
           && rule->statuses == NULL && !rule->dynamic && !rule->dynamic_cost
           && rule->ntiers == 0 && rule->allowances == NULL
           && rule->cost > rule->limit.capacity;
}


/* json_dumps() leaves names out if memory is; this one needs none. */
ngx_int_t
ngx_ratelimit_document_write(const json_t *root, ngx_pool_t *pool,
    ngx_str_t *text)
{
    size_t  flags, len;

    flags = JSON_COMPACT | JSON_ENCODE_ANY
            | JSON_REAL_PRECISION(ngx_ratelimit_document_digits_of(root));

    len = json_dumpb(root, NULL, 0, flags);
    text->len = len + 1;
    text->data = len ? ngx_pnalloc(pool, text->len) : NULL;

    if (text->data == NULL
        || json_dumpb(root, (char *) text->data, len, flags) != len)
    {
        return NGX_ERROR;
    }

    text->data[len] = LF;

    return NGX_OK;
}


/*
 * Fifteen digits show a number as it was written, in all but rare cases; with
 * seventeen there are none. Numbers that are not known here are kept, too.
 */
static ngx_uint_t
ngx_ratelimit_document_digits_of(const json_t *value)
{
    char    text[32];
    void   *iter;
    size_t  i;
    double  real;
    json_t *object;

    if (json_is_real(value)) {
        real = json_real_value(value);
        (void) snprintf(text, sizeof(text), "%.15g", real);

        return (strtod(text, NULL) < real || strtod(text, NULL) > real)
               ? 17 : 15;
    }

    for (i = 0; i < json_array_size(value); i++) {
        if (ngx_ratelimit_document_digits_of(json_array_get(value, i)) == 17) {
            return 17;
        }
    }

    /* jansson's iterators take no const object, and do not change it */

    object = (json_t *) value;

    for (iter = json_object_iter(object);
         iter;
         iter = json_object_iter_next(object, iter))
    {
        if (ngx_ratelimit_document_digits_of(json_object_iter_value(iter))
            == 17)
        {
            return 17;
        }
    }

    return 15;
}


ngx_int_t
ngx_ratelimit_document_time(const ngx_str_t *text, time_t *time)
{
    int64_t  seconds;

    if (ngx_ratelimit_date_parse(text->data, text->len, &seconds) != 0) {
        return NGX_DECLINED;
    }

    *time = (time_t) seconds;

    return NGX_OK;
}

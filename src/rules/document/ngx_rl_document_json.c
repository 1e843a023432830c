/*
 * A zone's document: from its text to a tree, from the tree to a policy.
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_text.h"

/* Of a tree. */
typedef struct {
    ngx_uint_t  depth;
    ngx_uint_t  digits;    /* that its numbers need */
} ngx_rl_measure_t;


/* Under its id. */
static void
ngx_rl_document_enter(ngx_rl_reader_t *reader, const ngx_rl_rule_t *rule,
    uint32_t number)
{
    uint32_t  before;

    before = ngx_rl_read_find(&reader->ids, &rule->id);

    if (before == NGX_RL_MAP_NONE) {
        (void) ngx_rl_read_enter(&reader->ids, &rule->id, number);
        return;
    }

    ngx_rl_read_wrong(reader, NULL, "id",
                      (before < reader->nfixed)
                      ? "is taken by a rule of nginx.conf"
                      : "is taken by another rule");
}


static void
ngx_rl_document_rule(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_policy_t *policy = data;

    ngx_uint_t      problems;
    ngx_rl_rule_t  *rule, **entry;

    problems = reader->problems->n;

    rule = ngx_rl_read_alloc(reader, reader->pool, sizeof(ngx_rl_rule_t));
    if (rule == NULL) {
        return;
    }

    rule->number = reader->nfixed + reader->at->number;

    reader->inside = 1;
    ngx_rl_read_rule(reader, value, rule);
    reader->inside = 0;

    if (ngx_rl_read_skip(reader, problems, &rule->id)) {
        return;
    }

    if (rule->id.len) {
        ngx_rl_document_enter(reader, rule, reader->nrules);
    }

    if (ngx_rl_read_skip(reader, problems, &rule->id)) {
        return;
    }

    entry = ngx_array_push(&policy->rules);
    if (entry == NULL) {
        reader->failed = 1;
        return;
    }

    *entry = rule;
    reader->rules[reader->nrules++] = rule;
}


/* of a policy; rules before what refers to them */

static const ngx_rl_member_t  ngx_rl_document_members[] = {
    { "format", .types = NGX_RL_IS_TEXT },
    { "version", .types = NGX_RL_IS_NUMBER },
    { "rules", NGX_RL_IS_ARRAY, .each = NGX_RL_IS_OBJECT,
      .read = ngx_rl_document_rule },
    { "tier_of", NGX_RL_IS_OBJECT,
      .read = ngx_rl_read_tier_assignments },
    { "allow", NGX_RL_IS_ARRAY, .most = NGX_RL_DOCUMENT_ENTRIES,
      .each = NGX_RL_IS_TEXT|NGX_RL_IS_OBJECT, .read = ngx_rl_read_access,
      .offset = offsetof(ngx_rl_policy_t, allow) },
    { "deny", NGX_RL_IS_ARRAY, .most = NGX_RL_DOCUMENT_ENTRIES,
      .each = NGX_RL_IS_TEXT|NGX_RL_IS_OBJECT, .read = ngx_rl_read_access,
      .offset = offsetof(ngx_rl_policy_t, deny) },
    { "overrides", NGX_RL_IS_ARRAY, .most = NGX_RL_DOCUMENT_ENTRIES,
      .read = ngx_rl_read_overrides },
    { .name = NULL }
};


static const struct {
    const char  *old;
    const char  *name;
    ngx_uint_t   rule;     /* 1: a rule's member, 0: a document's */
} ngx_rl_document_renamed[] = {
    { "whitelist", "allow", 0 },
    { "blacklist", "deny", 0 },
    { "override", "limits_by_api_key", 1 },
    { "keys", "limits_by_key", 1 },
    { NULL, NULL, 0 }
};


void
ngx_rl_document_init(void)
{
    json_object_seed(0);
}


/*
 * Looks once at each byte, before memory is taken for a tree. Returns NULL, or
 * what is wrong, and where.
 */
static const char *
ngx_rl_document_scan(const ngx_str_t *text, size_t *at)
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

            if (++depth > NGX_RL_DOCUMENT_DEPTH) {
                *at = i;
                return "has more than 32 arrays and objects in one another,";
            }

            if (++containers > NGX_RL_DOCUMENT_CONTAINERS) {
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


int
ngx_rl_document_rename(json_t *value, ngx_uint_t rule)
{
    int          failed;
    size_t       n;
    json_t      *member;
    ngx_uint_t   i;
    const char  *old, *name;

    failed = 0;

    json_array_foreach(rule ? value : NULL, n, member) {
        failed |= ngx_rl_document_rename(member, rule);
    }

    for (i = 0; ngx_rl_document_renamed[i].old; i++) {
        old = ngx_rl_document_renamed[i].old;
        name = ngx_rl_document_renamed[i].name;
        member = json_object_get(value, old);

        if (ngx_rl_document_renamed[i].rule == rule && member
            && json_object_get(value, name) == NULL)
        {
            failed |= json_object_set(value, name, member);
            (void) json_object_del(value, old);
        }
    }

    return failed;
}


json_t *
ngx_rl_document_parse(const ngx_str_t *text, ngx_rl_problems_t *problems)
{
    int            failed;
    char          *near;
    size_t         at;
    json_t        *root;
    const char    *wrong;
    json_error_t   error;

    static const ngx_str_t  whole = ngx_string("");

    wrong = ngx_rl_document_scan(text, &at);

    if (wrong) {
        ngx_rl_problem(problems, NULL, &whole, "%s at byte %uz", wrong, at);
        return NULL;
    }

    root = json_loadb((const char *) text->data, text->len,
                      JSON_REJECT_DUPLICATES|JSON_DECODE_ANY, &error);
    if (root) {
        failed = ngx_rl_document_rename(root, 0);
        failed |= ngx_rl_document_rename(json_object_get(root, "rules"), 1);

        if (failed) {
            json_decref(root);
            return NULL;
        }

        return root;
    }

    if (error.text[0] == '\0'
        || json_error_code(&error) == json_error_out_of_memory)
    {
        return NULL;
    }

    /* the text near the error may be an API key, which no log may have */

    near = strstr(error.text, " near ");
    if (near) {
        *near = '\0';
    }

    ngx_rl_problem(problems, NULL, &whole, "is no JSON: %s at line %d, column "
                   "%d (byte %d)", error.text, error.line, error.column,
                   error.position);

    return NULL;
}


/* "1.0", "1.7": a newer minor number may have members that are kept. */
static ngx_int_t
ngx_rl_document_format(ngx_rl_reader_t *reader, json_t *root)
{
    u_char     *dot, *last;
    uint64_t    major, minor;
    json_t     *value;
    ngx_str_t   text;

    value = json_object_get(root, "format");

    if (!json_is_string(value)) {
        return NGX_OK;
    }

    text = ngx_rl_document_text(value);
    last = text.data + text.len;
    dot = ngx_strlchr(text.data, last, '.');

    if (dot == NULL
        || ngx_rl_number_parse(text.data, dot - text.data, 0, 999999, &major)
           != 0
        || ngx_rl_number_parse(dot + 1, last - dot - 1, 0, 999999, &minor) != 0)
    {
        ngx_rl_read_wrong(reader, NULL, "format", "expected a format like "
                          "\"%d.%d\"", NGX_RL_DOCUMENT_MAJOR,
                          NGX_RL_DOCUMENT_MINOR);
        return NGX_DECLINED;
    }

    if (major != NGX_RL_DOCUMENT_MAJOR) {
        ngx_rl_read_wrong(reader, NULL, "format", "is another format than "
                          "\"%d.%d\", expected one that this version can read",
                          NGX_RL_DOCUMENT_MAJOR, NGX_RL_DOCUMENT_MINOR);
        return NGX_DECLINED;
    }

    reader->newer = (minor > NGX_RL_DOCUMENT_MINOR);

    return NGX_OK;
}


/*
 * Fifteen digits show a number as it was written, in all but rare cases; with
 * seventeen there are none. Numbers that are not known here are kept, too. The
 * tree is not changed: jansson's iterators take no const object.
 */
static void
ngx_rl_document_measure(json_t *value, ngx_uint_t depth,
    ngx_rl_measure_t *measure)
{
    char     text[32];
    void    *iter;
    size_t   i;
    double   real;

    if (json_is_real(value)) {
        real = json_real_value(value);
        (void) snprintf(text, sizeof(text), "%.15g", real);

        if (strtod(text, NULL) < real || strtod(text, NULL) > real) {
            measure->digits = 17;
        }
    }

    if (!json_is_array(value) && !json_is_object(value)) {
        return;
    }

    measure->depth = ngx_max(measure->depth, depth);

    for (i = 0; i < json_array_size(value); i++) {
        ngx_rl_document_measure(json_array_get(value, i), depth + 1, measure);
    }

    for (iter = json_object_iter(value);
         iter;
         iter = json_object_iter_next(value, iter))
    {
        ngx_rl_document_measure(json_object_iter_value(iter), depth + 1,
                                measure);
    }
}


static void
ngx_rl_document_policy(ngx_rl_reader_t *reader, json_t *root)
{
    size_t             n;
    uint32_t           i;
    ngx_array_t       *rules;
    ngx_rl_place_t     at;
    ngx_rl_measure_t   measure;

    ngx_memzero(&at, sizeof(ngx_rl_place_t));
    reader->at = &at;

    if (!ngx_rl_read_is(reader, root, NGX_RL_IS_OBJECT)
        || ngx_rl_document_format(reader, root) != NGX_OK)
    {
        return;
    }

    /* a tree that was edited may be deeper than its texts were */

    ngx_memzero(&measure, sizeof(ngx_rl_measure_t));
    ngx_rl_document_measure(root, 1, &measure);

    if (measure.depth > NGX_RL_DOCUMENT_DEPTH) {
        ngx_rl_read_problem(reader, "has more than 32 arrays and "
                            "objects in one another");
        return;
    }

    if (!ngx_rl_read_few(reader, "rules", json_object_get(root, "rules"),
                         NGX_RL_DOCUMENT_RULES))
    {
        return;
    }

    /* those of nginx.conf are known, and all others will be */

    rules = &reader->policy->rules;
    n = rules->nelts + json_array_size(json_object_get(root, "rules")) + 1;

    reader->rules = ngx_rl_read_alloc(reader, reader->temp,
                                      n * sizeof(ngx_rl_rule_t *));
    if (reader->rules == NULL
        || ngx_rl_read_map(reader, reader->temp, &reader->ids, n) != NGX_OK)
    {
        return;
    }

    if (ngx_array_init(&reader->sources, reader->temp, 4,
                       sizeof(ngx_rl_read_source_t))
        != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    ngx_memzero(ngx_array_push(&reader->sources), sizeof(ngx_rl_read_source_t));

    reader->nfixed = (uint32_t) rules->nelts;
    reader->nrules = reader->nfixed;

    for (i = 0; i < reader->nfixed; i++) {
        reader->rules[i] = ((ngx_rl_rule_t **) rules->elts)[i];
        ngx_rl_document_enter(reader, reader->rules[i], i);
    }

    ngx_rl_read_members(reader, root, ngx_rl_document_members, reader->policy);

    if (!reader->failed) {
        ngx_rl_read_sources(reader);
    }
}


static ngx_uint_t
ngx_rl_document_rejects_all(const ngx_rl_reader_t *reader)
{
    uint32_t        i;
    ngx_rl_rule_t  *rule;

    if (reader->policy->deny.all || reader->policy->allow.all) {
        return reader->policy->deny.all;
    }

    /* whether a rule is for every request, and can never grant one */

    for (i = reader->nfixed; i < reader->nrules; i++) {
        rule = reader->rules[i];

        if (!rule->dry_run && rule->statuses == NULL && !rule->dynamic
            && !(rule->needs & (NGX_RL_NEEDS_MATCH|NGX_RL_NEEDS_GROUP
                                |NGX_RL_NEEDS_PERCENT|NGX_RL_NEEDS_COST))
            && rule->ntier_limits == 0 && rule->key_limits == NULL
            && rule->limit.capacity && rule->cost > rule->limit.capacity)
        {
            return 1;
        }
    }

    return 0;
}


ngx_rl_policy_t *
ngx_rl_document_read(ngx_rl_limiter_t *limiter, json_t *root, ngx_uint_t clear,
    ngx_rl_problems_t *problems, ngx_rl_problems_t *warnings,
    ngx_uint_t *rejects_all, const ngx_rl_problems_t *known, ngx_log_t *log)
{
    uint32_t          i;
    ngx_int_t         rc;
    ngx_rl_policy_t  *policy;
    ngx_rl_reader_t   reader;

    ngx_memzero(&reader, sizeof(ngx_rl_reader_t));

    reader.limiter = limiter;
    reader.problems = problems;
    reader.warnings = warnings;
    reader.hashed = !clear;
    reader.written = (rejects_all != NULL);
    reader.known = known;

    policy = ngx_rl_policy_create(limiter, log);
    reader.policy = policy;
    reader.temp = ngx_create_pool(4096, log);

    if (policy == NULL || reader.temp == NULL) {
        reader.failed = 1;

    } else {
        reader.pool = policy->pool;
        ngx_rl_document_policy(&reader, root);
    }

    if (!reader.failed && problems->n == 0) {

        /* the policy and the layer above complete the rules */

        rc = ngx_rl_policy_complete(policy);

        if (rejects_all) {
            *rejects_all = ngx_rl_document_rejects_all(&reader);
        }

        for (i = reader.nfixed; i < reader.nrules && rc == NGX_OK; i++) {
            rc = limiter->above.prepare(reader.rules[i], reader.pool);
        }

        reader.failed |= (rc != NGX_OK);
    }

    if (reader.temp) {
        ngx_destroy_pool(reader.temp);
    }

    if (!reader.failed && problems->n == 0) {
        return policy;
    }

    if (reader.failed) {
        problems->n = 0;
        problems->list.nelts = 0;
    }

    if (policy) {
        ngx_rl_policy_release(policy);
    }

    return NULL;
}


ngx_rl_policy_t *
ngx_rl_document_compile(ngx_rl_limiter_t *limiter, const ngx_str_t *text,
    ngx_rl_problems_t *problems, ngx_rl_problems_t *warnings, ngx_log_t *log)
{
    json_t           *root;
    ngx_rl_policy_t  *policy;

    root = ngx_rl_document_parse(text, problems);

    if (root == NULL) {
        return NULL;
    }

    policy = ngx_rl_document_read(limiter, root, 1, problems, warnings,
                                  NULL, NULL, log);
    json_decref(root);

    return policy;
}


/* json_dumps() leaves names out if memory is; this one needs none. */
ngx_int_t
ngx_rl_document_write(const json_t *root, ngx_pool_t *pool, ngx_str_t *text)
{
    size_t            flags, len;
    ngx_rl_measure_t  measure;

    ngx_memzero(&measure, sizeof(ngx_rl_measure_t));
    ngx_rl_document_measure((json_t *) root, 1, &measure);

    flags = JSON_COMPACT | JSON_ENCODE_ANY
            | JSON_REAL_PRECISION(ngx_max(measure.digits, 15));

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

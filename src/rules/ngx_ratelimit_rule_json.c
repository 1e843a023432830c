/*
 * One rule of a document: its parameters by their rows, the other limits by
 * tier and by API key. What is accepted is what "ratelimit_rule" accepts. A
 * member that says the default is as if it was not there, but for "sync" and
 * "fail_mode".
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_param.h"

#define NGX_RATELIMIT_MAX_TIERS  256    /* of a rule */

/* A rule while it is read; or an amount. */
typedef struct {
    ngx_ratelimit_draft_t         draft;
    ngx_ratelimit_reader_t       *reader;
    const ngx_ratelimit_place_t  *at;
    json_t                       *tiers;
    json_t                       *override;
} ngx_ratelimit_rule_read_t;

static void ngx_ratelimit_read_init(ngx_ratelimit_rule_read_t *read,
    ngx_ratelimit_reader_t *reader, const ngx_ratelimit_place_t *at,
    ngx_uint_t in, const ngx_ratelimit_rule_t *rule);
static void ngx_ratelimit_read_wrong_param(ngx_ratelimit_draft_t *draft,
    const ngx_ratelimit_param_t *param, const char *beside,
    const char *expected);
static void ngx_ratelimit_read_object(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_place_t *at, json_t *object, ngx_uint_t in);
static ngx_uint_t ngx_ratelimit_read_types(const ngx_ratelimit_param_t *param,
    ngx_uint_t in);
static void ngx_ratelimit_read_param(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static ngx_uint_t ngx_ratelimit_read_special(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_param_t *param, const ngx_ratelimit_place_t *at,
    json_t *value);
static void ngx_ratelimit_read_value(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_param_t *param, const ngx_ratelimit_place_t *at,
    json_t *value);
static void ngx_ratelimit_read_refill_rate(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_place_t *at, const json_t *value);
static void ngx_ratelimit_read_redis(ngx_ratelimit_rule_read_t *read);
static void ngx_ratelimit_read_key(ngx_ratelimit_rule_read_t *read);
static void ngx_ratelimit_read_values(ngx_ratelimit_rule_read_t *read,
    json_t *value);
static void ngx_ratelimit_read_tiers(ngx_ratelimit_rule_read_t *read,
    ngx_uint_t limited);
static void ngx_ratelimit_read_override(ngx_ratelimit_rule_read_t *read,
    ngx_uint_t limited);
static void ngx_ratelimit_read_allowance(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_place_t *at, json_t *value, ngx_uint_t limited,
    ngx_ratelimit_allowance_t *allowance);


void
ngx_ratelimit_read_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_rule_t *rule)
{
    json_t                     *id;
    ngx_uint_t                  problems, limited;
    ngx_ratelimit_draft_t      *draft;
    ngx_ratelimit_rule_read_t   read;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_OBJECT)) {
        return;
    }

    problems = reader->problems->n;
    draft = &read.draft;

    ngx_ratelimit_read_init(&read, reader, at, NGX_RATELIMIT_OF_DOCUMENT,
                            rule);
    ngx_ratelimit_read_object(&read, at, value, NGX_RATELIMIT_OF_RULE);

    id = json_object_get(value, "id");

    if (id == NULL || json_is_null(id)) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "id", "is missing");
    }

    if (reader->limiter->redis == NULL) {
        ngx_ratelimit_read_redis(&read);
    }

    ngx_ratelimit_draft_combine(draft);

    /* a limit is made of what is known to be right */

    limited = problems == reader->problems->n
              && ngx_ratelimit_draft_limit(draft) == NGX_OK;

    if (limited) {
        (void) ngx_ratelimit_draft_split(draft);
    }

    if (read.tiers) {
        ngx_ratelimit_read_tiers(&read, limited);
    }

    if (read.override) {
        ngx_ratelimit_read_override(&read, limited);
    }

    if (problems == reader->problems->n && !reader->failed) {
        ngx_ratelimit_read_key(&read);
        ngx_ratelimit_read_values(&read, value);
    }

    *rule = draft->rule;
}


static void
ngx_ratelimit_read_init(ngx_ratelimit_rule_read_t *read,
    ngx_ratelimit_reader_t *reader, const ngx_ratelimit_place_t *at,
    ngx_uint_t in, const ngx_ratelimit_rule_t *rule)
{
    ngx_ratelimit_draft_init(&read->draft, in, rule, reader->pool);

    read->draft.above = &reader->limiter->above;
    read->draft.wrong = ngx_ratelimit_read_wrong_param;
    read->draft.data = read;

    read->reader = reader;
    read->at = at;
    read->tiers = NULL;
    read->override = NULL;
}


/* draft->wrong() */
static void
ngx_ratelimit_read_wrong_param(ngx_ratelimit_draft_t *draft,
    const ngx_ratelimit_param_t *param, const char *beside,
    const char *expected)
{
    ngx_ratelimit_rule_read_t *read = draft->data;

    ngx_str_t    words;
    u_char       buf[NGX_RATELIMIT_READ_WORDS];
    const char  *in;

    words = ngx_ratelimit_read_words(expected, buf);

    in = (param == NULL || draft->in == NGX_RATELIMIT_OF_AMOUNT) ? NULL
         : (param->in & NGX_RATELIMIT_OF_PARAMS) ? "params"
         : (param->in & NGX_RATELIMIT_OF_MATCH) ? "match" : NULL;

    ngx_ratelimit_read_wrong(read->reader, read->at, in,
                             param ? param->json : "params",
                             "%s%s%sexpected %V", *beside ? "stands" : "",
                             beside, *beside ? ", " : "", &words);
}


/* The parameters that an object may have. */
static void
ngx_ratelimit_read_object(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_place_t *at, json_t *object, ngx_uint_t in)
{
    ngx_ratelimit_member_t       *m;
    const ngx_ratelimit_param_t  *p;
    ngx_ratelimit_member_t        members[NGX_RATELIMIT_PARAM_ALL];

    m = members;

    for (p = ngx_ratelimit_params; p->id; p++) {
        if (p->in & in) {
            m->name = p->json;
            m->types = ngx_ratelimit_read_types(p, in);
            m->read = ngx_ratelimit_read_param;
            m++;
        }
    }

    m->name = NULL;

    (void) ngx_ratelimit_read_members(read->reader, at, object, members, read);
}


static ngx_uint_t
ngx_ratelimit_read_types(const ngx_ratelimit_param_t *param, ngx_uint_t in)
{
    ngx_uint_t  types;

    static const ngx_uint_t  kinds[] = {    /* ngx_ratelimit_kind_e */
        NGX_RATELIMIT_IS_NUMBER,
        NGX_RATELIMIT_IS_NUMBER,
        NGX_RATELIMIT_IS_BOOLEAN,
        NGX_RATELIMIT_IS_TEXT,
        NGX_RATELIMIT_IS_TEXT,
        NGX_RATELIMIT_IS_TEXT,
        NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_TEXT,
        NGX_RATELIMIT_IS_OBJECT
    };

    types = kinds[param->kind];

    if (param->flags & NGX_RATELIMIT_LIST) {
        types |= NGX_RATELIMIT_IS_ARRAY;
    }

    if ((param->flags & NGX_RATELIMIT_VARIABLES)
        && in != NGX_RATELIMIT_OF_AMOUNT)
    {
        types |= NGX_RATELIMIT_IS_TEXT;
    }

    return types;
}


/* A member: a value, or a list of them. */
static void
ngx_ratelimit_read_param(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_rule_read_t *read = data;

    size_t                        i, n;
    json_t                       *item;
    ngx_uint_t                    types;
    ngx_ratelimit_place_t         place;
    const ngx_ratelimit_param_t  *p;

    for (p = ngx_ratelimit_params; p->json != at->name; p++) { /* void */ }

    read->draft.says |= (uint64_t) 1 << p->id;

    if (ngx_ratelimit_read_special(read, p, at, value)) {
        return;
    }

    n = ngx_ratelimit_read_count(value);

    if (n == 0 && (p->flags & NGX_RATELIMIT_FILLED)) {
        ngx_ratelimit_read_problem(reader, at, "expected %s", p->expected);
    }

    types = ngx_ratelimit_read_types(p, 0) & ~NGX_RATELIMIT_IS_ARRAY;

    for (i = 0; i < n && !reader->failed; i++) {
        item = ngx_ratelimit_read_item(value, i, at, &place);

        if (ngx_ratelimit_read_is(reader, &place, item, types)) {
            ngx_ratelimit_read_value(read, p, &place, item);
        }
    }
}


/* What is no plain value. Tiers and keys wait until the limit is known. */
static ngx_uint_t
ngx_ratelimit_read_special(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_param_t *param, const ngx_ratelimit_place_t *at,
    json_t *value)
{
    ngx_uint_t             some;
    ngx_ratelimit_keys_t  *keys;

    some = 1;

    switch (param->id) {

    case NGX_RATELIMIT_PARAM_MATCH:
        ngx_ratelimit_read_object(read, at, value, NGX_RATELIMIT_OF_MATCH);
        break;

    case NGX_RATELIMIT_PARAM_PARAMS:
        ngx_ratelimit_read_object(read, at, value, NGX_RATELIMIT_OF_PARAMS);
        break;

    case NGX_RATELIMIT_PARAM_TIERS:
        some = (json_object_size(value) != 0);
        read->tiers = some ? value : NULL;
        break;

    case NGX_RATELIMIT_PARAM_OVERRIDE:
        some = (json_object_size(value) != 0);
        read->override = some ? value : NULL;
        break;

    case NGX_RATELIMIT_PARAM_REFILL_RATE:
        ngx_ratelimit_read_refill_rate(read, at, value);
        break;

    case NGX_RATELIMIT_PARAM_API_KEY:

        /* no patterns are any key, and none */

        keys = ngx_ratelimit_read_count(value)
               ? ngx_ratelimit_read_alloc(read->reader,
                                          sizeof(ngx_ratelimit_keys_t))
               : NULL;

        if (keys) {
            read->draft.rule.api_keys = keys;
            ngx_ratelimit_read_keys(read->reader, at, value, keys);
        }

        break;

    default:
        return 0;
    }

    if (!some) {
        read->draft.says &= ~((uint64_t) 1 << param->id);
    }

    return 1;
}


static void
ngx_ratelimit_read_value(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_param_t *param, const ngx_ratelimit_place_t *at,
    json_t *value)
{
    int64_t                  number;
    ngx_str_t                text;
    const char              *expected;
    ngx_ratelimit_draft_t   *draft;
    ngx_ratelimit_reader_t  *reader;

    draft = &read->draft;
    reader = read->reader;

    if (json_is_string(value)) {
        text = ngx_ratelimit_read_copy(reader, value);

        if (reader->failed) {
            return;
        }

        if (param->kind == NGX_RATELIMIT_A_NUMBER
            && !ngx_ratelimit_variables_in(&text))
        {
            expected = "a number, or a string with variables";

        } else {
            expected = ngx_ratelimit_param_text(draft, param, &text);
        }

        if (expected && param->id == NGX_RATELIMIT_PARAM_ALGORITHM) {
            draft->unknown = 1;
        }

    } else {
        number = json_is_true(value);

        if (json_is_number(value)
            && ngx_ratelimit_read_number(reader, at, value, param->min,
                                         param->max, &number)
               != NGX_OK)
        {
            return;
        }

        expected = ngx_ratelimit_param_number(draft, param, number);

        /* false, and a cost of 1 */

        if (json_is_false(value)
            || ((param->flags & NGX_RATELIMIT_QUIET) && number == 1))
        {
            draft->says &= ~((uint64_t) 1 << param->id);
        }
    }

    if (expected == NULL) {
        return;
    }

    if (*expected == '\0') {
        reader->failed = 1;
        return;
    }

    ngx_ratelimit_read_expected(reader, at, NULL, NULL, expected);
}


static void
ngx_ratelimit_read_refill_rate(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_place_t *at, const json_t *value)
{
    double                  rate;
    ngx_ratelimit_draft_t  *draft;

    rate = json_number_value(value);
    draft = &read->draft;

    if (!(rate > 0)) {
        ngx_ratelimit_read_problem(read->reader, at, "must be > 0");
        return;
    }

    if (ngx_ratelimit_amount_rate(rate, &draft->tokens, &draft->period_us)
        != 0)
    {
        ngx_ratelimit_read_problem(read->reader, at, "must be %s",
                    ngx_ratelimit_param(NGX_RATELIMIT_PARAM_REFILL_RATE,
                                        draft->in)->expected);
    }
}


/* Of a zone without Redis: what has an effect there alone. */
static void
ngx_ratelimit_read_redis(ngx_ratelimit_rule_read_t *read)
{
    ngx_ratelimit_draft_t        *draft;
    const ngx_ratelimit_param_t  *p;

    draft = &read->draft;

    for (p = ngx_ratelimit_params; p->id; p++) {

        if (!(p->flags & NGX_RATELIMIT_SHARED)
            || !(draft->says >> p->id & 1)
            || (p->kind == NGX_RATELIMIT_A_CHOICE
                && ngx_ratelimit_param_stored(draft, p) <= p->min))
        {
            continue;
        }

        ngx_ratelimit_read_wrong_param(draft, p, "",
                                       "a zone that uses Redis");
    }
}


/* The key of its parts, which are the zone's where no key was read. */
static void
ngx_ratelimit_read_key(ngx_ratelimit_rule_read_t *read)
{
    u_char                  *p;
    size_t                   len;
    ngx_uint_t               i;
    ngx_ratelimit_rule_t    *rule;
    ngx_ratelimit_place_t    place;
    ngx_ratelimit_reader_t  *reader;

    reader = read->reader;
    rule = &read->draft.rule;

    if (rule->nparts == 0) {
        rule->parts = ngx_ratelimit_read_alloc(reader, sizeof(ngx_str_t));
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

    p = ngx_ratelimit_read_alloc(reader, len);
    if (p == NULL) {
        return;
    }

    rule->key.data = p;
    rule->key.len = len;

    for (i = 0; i < rule->nparts; i++) {

        if (i) {
            *p++ = NGX_RATELIMIT_PART_END;
        }

        p = ngx_cpymem(p, rule->parts[i].data, rule->parts[i].len);
    }

    if (ngx_ratelimit_says(&read->draft, KEY)
        && ngx_ratelimit_key_constant(&rule->key))
    {
        place.up = read->at;
        place.name = "key";
        ngx_ratelimit_read_warning(reader, &place, "has no variable, which "
                                   "limits all clients together, expected one "
                                   "as in \"$remote_addr\", or \"all\" if that "
                                   "is meant");
    }
}


/* What has variables, by the layer above, which knows them. */
static void
ngx_ratelimit_read_values(ngx_ratelimit_rule_read_t *read, json_t *value)
{
    ngx_uint_t               which;
    const char              *expected;
    ngx_ratelimit_place_t    key, part;
    ngx_ratelimit_draft_t   *draft;
    ngx_ratelimit_above_t   *above;
    ngx_ratelimit_reader_t  *reader;

    draft = &read->draft;
    reader = read->reader;
    above = &reader->limiter->above;
    which = 0;

    if (reader->failed) {
        return;
    }

    expected = above->values(above->data, &draft->rule, &draft->limit_text,
                             &draft->cost_text, reader->pool, &which);
    if (expected == NULL) {
        return;
    }

    if (*expected == '\0') {
        reader->failed = 1;
        return;
    }

    if (which == NGX_RATELIMIT_VALUES_COST) {
        ngx_ratelimit_read_wrong(reader, read->at, NULL, "cost",
                                 "expected %s", expected);
        return;
    }

    if (which == NGX_RATELIMIT_VALUES_LIMIT) {
        ngx_ratelimit_read_wrong(reader, read->at, "params",
                                 ngx_ratelimit_says(draft, RATE)
                                 ? "rate" : "limit", "expected %s", expected);
        return;
    }

    key.up = read->at;
    key.name = "key";
    part.up = &key;
    part.name = NULL;
    part.number = which;

    ngx_ratelimit_read_problem(reader,
                               json_is_array(json_object_get(value, "key"))
                               ? &part : &key, "expected %s", expected);
}


static void
ngx_ratelimit_read_tiers(ngx_ratelimit_rule_read_t *read, ngx_uint_t limited)
{
    void                    *iter;
    size_t                   n;
    ngx_str_t                name;
    ngx_ratelimit_tier_t    *tier;
    ngx_ratelimit_place_t    tiers, place;
    ngx_ratelimit_reader_t  *reader;

    reader = read->reader;
    n = json_object_size(read->tiers);

    tiers.up = read->at;
    tiers.name = "tiers";
    place.up = &tiers;

    if (!ngx_ratelimit_read_few(reader, &tiers, NULL, read->tiers,
                                NGX_RATELIMIT_MAX_TIERS))
    {
        return;
    }

    tier = ngx_ratelimit_read_alloc(reader, n * sizeof(ngx_ratelimit_tier_t));
    if (tier == NULL) {
        return;
    }

    read->draft.rule.tiers = tier;
    read->draft.rule.ntiers = n;

    for (iter = json_object_iter(read->tiers);
         iter;
         iter = json_object_iter_next(read->tiers, iter))
    {
        place.name = json_object_iter_key(iter);
        name.data = (u_char *) place.name;
        name.len = json_object_iter_key_len(iter);

        (void) ngx_ratelimit_read_tier(reader, &place, &name);

        tier->tier.len = name.len;
        tier->tier.data = ngx_pstrdup(reader->pool, &name);

        if (tier->tier.data == NULL && name.len) {
            reader->failed = 1;
            return;
        }

        ngx_ratelimit_read_allowance(read, &place,
                                     json_object_iter_value(iter), limited,
                                     &tier->allowance);
        tier++;
    }
}


static void
ngx_ratelimit_read_override(ngx_ratelimit_rule_read_t *read,
    ngx_uint_t limited)
{
    void                     *iter;
    u_char                  (*names)[NGX_RATELIMIT_SHA256];
    size_t                    n;
    uint32_t                  i;
    ngx_str_t                 text;
    ngx_uint_t                problems;
    ngx_ratelimit_rule_t     *rule;
    ngx_ratelimit_place_t     override, place;
    ngx_ratelimit_reader_t   *reader;
    ngx_ratelimit_api_key_t   key;

    reader = read->reader;
    rule = &read->draft.rule;
    problems = reader->problems->n;
    n = json_object_size(read->override);

    override.up = read->at;
    override.name = "override";
    place.up = &override;

    if (!ngx_ratelimit_read_few(reader, &override, NULL, read->override,
                                NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    rule->allowances = ngx_ratelimit_read_alloc(reader,
                                        n * sizeof(ngx_ratelimit_allowance_t));
    if (rule->allowances == NULL
        || ngx_ratelimit_read_map(reader, &rule->keys, n) != NGX_OK)
    {
        return;
    }

    names = ngx_alloc(n * sizeof(names[0]), reader->pool->log);
    if (names == NULL) {
        reader->failed = 1;
        return;
    }

    i = 0;

    for (iter = json_object_iter(read->override);
         iter;
         iter = json_object_iter_next(read->override, iter), i++)
    {
        place.name = json_object_iter_key(iter);
        text.data = (u_char *) place.name;
        text.len = json_object_iter_key_len(iter);

        if (ngx_ratelimit_read_api_key(reader, &place, &text, 0, &key)
            == NGX_OK)
        {
            ngx_memcpy(names[i], key.sha256, NGX_RATELIMIT_SHA256);

            if (ngx_ratelimit_map_put(&rule->keys, key.sha256, i)
                != NGX_RATELIMIT_MAP_NONE)
            {
                ngx_ratelimit_read_problem(reader, &place, "is the same key as "
                                           "another one here");
            }
        }

        ngx_ratelimit_read_allowance(read, &place,
                                     json_object_iter_value(iter), limited,
                                     &rule->allowances[i]);
    }

    if (problems == reader->problems->n) {
        ngx_ratelimit_read_rename(reader, read->override, names);
    }

    ngx_free(names);
}


/* An amount on top of the rule's limit, where that is known. */
static void
ngx_ratelimit_read_allowance(ngx_ratelimit_rule_read_t *read,
    const ngx_ratelimit_place_t *at, json_t *value, ngx_uint_t limited,
    ngx_ratelimit_allowance_t *allowance)
{
    const char              *expected;
    ngx_ratelimit_spec_t    *spec;
    ngx_ratelimit_amount_t   amount;

    spec = &read->draft.rule.spec;

    if (ngx_ratelimit_read_amount(read->reader, at, value,
                                  read->draft.unknown ? NULL : &spec->algorithm,
                                  &amount)
        != NGX_OK
        || !limited)
    {
        return;
    }

    expected = ngx_ratelimit_amount_inherit(spec, &amount, &allowance->spec);

    if (expected == NULL) {
        expected = ngx_ratelimit_limit_init(&allowance->limit,
                                            &allowance->spec);
    }

    if (expected) {
        ngx_ratelimit_read_expected(read->reader, at, NULL, NULL, expected);
    }
}


ngx_int_t
ngx_ratelimit_read_amount(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    const ngx_ratelimit_algorithm_e *algorithm,
    ngx_ratelimit_amount_t *amount)
{
    ngx_uint_t                  problems, bucket;
    ngx_ratelimit_draft_t      *draft;
    ngx_ratelimit_rule_read_t   read;

    problems = reader->problems->n;
    draft = &read.draft;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_OBJECT)) {
        return NGX_DECLINED;
    }

    ngx_ratelimit_read_init(&read, reader, at, NGX_RATELIMIT_OF_AMOUNT, NULL);
    draft->unknown = 1;     /* to which algorithm it belongs, is seen later */

    ngx_ratelimit_read_object(&read, at, value, NGX_RATELIMIT_OF_AMOUNT);
    ngx_ratelimit_draft_exclude(draft);

    bucket = algorithm == NULL || *algorithm == NGX_RATELIMIT_TOKEN_BUCKET
             || *algorithm == NGX_RATELIMIT_LEAKY_BUCKET;

    if (ngx_ratelimit_says(draft, WINDOW)
        && ngx_ratelimit_says(draft, REFILL_RATE))
    {
        ngx_ratelimit_read_wrong(reader, at, NULL, "window", "stands beside "
                                 "\"refill_rate\", expected \"limit\" with the "
                                 "window");

    } else if (ngx_ratelimit_says(draft, WINDOW)
               && !ngx_ratelimit_says(draft, LIMIT)
               && (bucket || !ngx_ratelimit_says(draft, CAPACITY)))
    {
        ngx_ratelimit_read_wrong(reader, at, NULL, "window",
                                 "stands alone, expected \"limit\" with it");

    } else if (draft->says == 0 && reader->problems->n == problems) {
        ngx_ratelimit_read_problem(reader, at, "expected \"limit\", "
                                   "\"capacity\" or \"refill_rate\"");
    }

    if (reader->problems->n != problems) {
        return NGX_DECLINED;
    }

    ngx_ratelimit_draft_amount(draft, bucket, amount);

    return NGX_OK;
}

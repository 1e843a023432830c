/*
 * One rule of a document: its parameters by their rows, the other limits by
 * tier, by API key and by the rule's key. It accepts the same rules as
 * "ratelimit_rule". A member that says the default is as if it was not there,
 * but for "sync" and "fail_mode".
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_param.h"
#include "ngx_rl_text.h"

#define NGX_RL_MAX_TIERS   256   /* of a rule */
#define NGX_RL_MAX_LABELS  32

/* A rule while it is read; or an amount. */
typedef struct {
    ngx_rl_draft_t         draft;
    ngx_rl_reader_t       *reader;
    const ngx_rl_param_t  *param;         /* that is read now */
    ngx_uint_t             in;            /* the object of it: bits */
    json_t                *limits[3];     /* of tiers, API keys and the rule's
                                             key */
    unsigned               listed:1;      /* the key is an array */
    unsigned               limited:1;     /* the limit is known */
} ngx_rl_rule_read_t;


static void ngx_rl_read_object(ngx_rl_rule_read_t *read, json_t *object,
    ngx_uint_t in);


/* draft->wrong() */
static void
ngx_rl_read_wrong_param(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    const char *beside, const char *expected)
{
    ngx_rl_rule_read_t *read = draft->data;

    char         words[NGX_RL_READ_WORDS];
    const char  *in;

    in = (param == NULL || draft->in == NGX_RL_OF_AMOUNT) ? NULL
         : (param->in & NGX_RL_OF_PARAMS) ? "params"
         : (param->in & NGX_RL_OF_ACTIVE) ? "active"
         : (param->in & NGX_RL_OF_MATCH) ? "match" : NULL;

    ngx_rl_read_wrong(read->reader, in, param ? param->json : "params",
                      "%s%s%sexpected %s", *beside ? "stands" : "", beside,
                      *beside ? ", " : "", ngx_rl_read_words(expected, words));
}


static void
ngx_rl_read_init(ngx_rl_rule_read_t *read, ngx_rl_reader_t *reader,
    ngx_uint_t in, const ngx_rl_rule_t *rule)
{
    ngx_memzero(read, sizeof(ngx_rl_rule_read_t));
    ngx_rl_draft_init(&read->draft, in, rule, reader->pool);

    read->draft.temp = reader->temp;
    read->draft.above = &reader->limiter->above;
    read->draft.wrong = ngx_rl_read_wrong_param;
    read->draft.data = read;
    read->reader = reader;
}


static ngx_uint_t
ngx_rl_read_types(const ngx_rl_param_t *param, ngx_uint_t in)
{
    ngx_uint_t  types;

    static const ngx_uint_t  kinds[] = {    /* ngx_rl_kind_e */
        NGX_RL_IS_NUMBER, NGX_RL_IS_NUMBER, NGX_RL_IS_BOOLEAN, NGX_RL_IS_TEXT,
        NGX_RL_IS_TEXT, NGX_RL_IS_TEXT, NGX_RL_IS_NUMBER|NGX_RL_IS_TEXT,
        NGX_RL_IS_NUMBER|NGX_RL_IS_TEXT, NGX_RL_IS_OBJECT, NGX_RL_IS_TEXT,
        NGX_RL_IS_TEXT, NGX_RL_IS_TEXT
    };

    types = kinds[param->kind];

    if (param->flags & NGX_RL_LIST) {
        types |= NGX_RL_IS_ARRAY;
    }

    if ((param->flags & NGX_RL_WORD)
        || ((param->flags & NGX_RL_VARIABLES) && in != NGX_RL_OF_AMOUNT))
    {
        types |= NGX_RL_IS_TEXT;
    }

    return types;
}


static const char *
ngx_rl_read_string(ngx_rl_rule_read_t *read, const json_t *value)
{
    ngx_str_t    text;
    const char  *expected;

    text = ngx_rl_document_text(value);
    text = ngx_rl_read_copy(read->reader, &text);

    if (read->reader->failed) {
        return "";
    }

    /* "5" is no number, and an amount has no variables */

    expected = (read->param->kind != NGX_RL_A_NUMBER
                || ngx_rl_limit_word(text.data, text.len)
                   == NGX_RL_TOKENS_ANY
                || (read->in != NGX_RL_OF_AMOUNT
                    && ngx_rl_variables_in(&text)))
               ? ngx_rl_param_text(&read->draft, read->param, &text)
               : (read->in == NGX_RL_OF_AMOUNT)
               ? "a number, or \"unlimited\""
               : "a number, or a string with variables";

    if (expected && read->param->id == NGX_RL_PARAM_ALGORITHM) {
        read->draft.unknown = 1;
    }

    return expected;
}


static void
ngx_rl_read_value(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_rule_read_t *read = data;

    char                   words[NGX_RL_READ_WORDS];
    int64_t                number;
    const char            *expected;
    ngx_rl_known_t         client, *added;
    const ngx_rl_param_t  *param;

    param = read->param;

    if (param->id == NGX_RL_PARAM_API_KEY) {

        ngx_memzero(&client, sizeof(ngx_rl_known_t));

        if (ngx_rl_read_key(reader, value, 1, NULL, &client) == NGX_OK) {
            added = ngx_rl_draft_client(&read->draft, client.kind);

            if (added) {
                *added = client;
                added->value = NGX_RL_CLIENT_ALWAYS;
            }

            reader->failed |= (added == NULL);
        }

        return;
    }

    if (json_is_string(value)) {
        expected = ngx_rl_read_string(read, value);

    } else {
        number = json_is_true(value);

        if (json_is_number(value)
            && ngx_rl_read_number(reader, value, param->min, param->max,
                                  &number)
               != NGX_OK)
        {
            return;
        }

        expected = ngx_rl_param_number(&read->draft, param, number);

        /* false, and a cost of 1 */

        if (json_is_false(value)
            || ((param->flags & NGX_RL_QUIET) && number == 1))
        {
            read->draft.says &= ~((uint64_t) 1 << param->id);
        }
    }

    if (expected && *expected == '\0') {
        reader->failed = 1;

    } else if (expected) {
        ngx_rl_read_problem(reader, "expected %s",
                            ngx_rl_read_words(expected, words));
    }
}


/* Its name is one like those of rules. */
static void
ngx_rl_read_label(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    const char  *name;

    name = reader->at->name;

    if (!ngx_rl_name_valid((const u_char *) name, ngx_strlen(name))) {
        ngx_rl_read_problem(reader, "is no name of a label, expected 1 to 64 "
                            "of A-Z, a-z, 0-9, \"_\", \".\", \"-\"");
        return;
    }

    ngx_rl_read_value(reader, value, data);
}


/*
 * Reads all but plain values. An empty object says nothing. Limits wait until
 * the rule's own is known.
 */
static ngx_uint_t
ngx_rl_read_special(ngx_rl_rule_read_t *read, json_t *value)
{
    double            rate;
    ngx_rl_rule_t    *rule;
    ngx_rl_reader_t  *reader;

    rule = &read->draft.rule;
    reader = read->reader;

    switch (read->param->id) {

    case NGX_RL_PARAM_MATCH:
        ngx_rl_read_object(read, value, NGX_RL_OF_MATCH);
        return 1;

    case NGX_RL_PARAM_PARAMS:
        ngx_rl_read_object(read, value, NGX_RL_OF_PARAMS);
        return 1;

    case NGX_RL_PARAM_ACTIVE:
        ngx_rl_read_object(read, value, NGX_RL_OF_ACTIVE);
        return 1;

    case NGX_RL_PARAM_TIER_LIMITS:
    case NGX_RL_PARAM_KEY_LIMITS:
    case NGX_RL_PARAM_OWN_LIMITS:
        read->limits[read->param->id - NGX_RL_PARAM_TIER_LIMITS] = value;
        break;

    case NGX_RL_PARAM_REFILL_RATE:
        rate = json_number_value(value);

        if (!(rate > 0)) {
            ngx_rl_read_problem(reader, "must be > 0");

        } else if (ngx_rl_amount_rate(rate, &read->draft.tokens,
                                      &read->draft.period_us)
                   != 0)
        {
            ngx_rl_read_problem(reader, "must be %s", read->param->expected);
        }

        return 1;

    case NGX_RL_PARAM_ENABLED:
        rule->disabled = json_is_false(value);
        rule->skipped = rule->disabled;
        return 1;

    case NGX_RL_PARAM_LABELS:
        if (ngx_rl_read_few(reader, NULL, value, NGX_RL_MAX_LABELS)) {
            ngx_rl_read_each(reader, value, NGX_RL_IS_TEXT,
                             ngx_rl_read_label, read);
        }

        return 1;

    case NGX_RL_PARAM_API_KEY:
        return !ngx_rl_read_few(reader, NULL, value, NGX_RL_DOCUMENT_ENTRIES);

    case NGX_RL_PARAM_KEY:
        read->listed = json_is_array(value);
        return 0;

    default:
        return 0;
    }

    if (json_object_size(value) == 0) {
        read->draft.says &= ~((uint64_t) 1 << read->param->id);
    }

    return 1;
}


/* A member: a value, or a list of them. */
static void
ngx_rl_read_param(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_rule_read_t *read = data;

    const ngx_rl_param_t  *p;

    for (p = ngx_rl_params;
         p->json != reader->at->name || !(p->in & read->in);
         p++)
    {
        /* void */
    }

    read->param = p;

    if (read->draft.says >> p->id & 1) {
        ngx_rl_read_problem(reader, "stands beside \"match.%s\", "
                            "expected one of them", p->json);
        return;
    }

    read->draft.says |= (uint64_t) 1 << p->id;

    if (ngx_rl_read_special(read, value)) {
        return;
    }

    if ((p->flags & NGX_RL_FILLED) && json_is_array(value)
        && json_array_size(value) == 0)
    {
        ngx_rl_read_problem(reader, "expected %s", p->expected);
    }

    ngx_rl_read_each(reader, value, ngx_rl_read_types(p, 0) & ~NGX_RL_IS_ARRAY,
                     ngx_rl_read_value, read);
}


/* The parameters that an object may have. */
static void
ngx_rl_read_object(ngx_rl_rule_read_t *read, json_t *object, ngx_uint_t in)
{
    ngx_uint_t             outer;
    ngx_rl_member_t       *m;
    const ngx_rl_param_t  *p;
    ngx_rl_member_t        members[NGX_RL_PARAM_ALL];

    ngx_memzero(members, sizeof(members));
    m = members;

    for (p = ngx_rl_params; p->id; p++) {
        if (p->in & in) {
            m->name = p->json;
            m->types = ngx_rl_read_types(p, in);
            m->read = ngx_rl_read_param;
            m++;
        }
    }

    outer = read->in;
    read->in = in;

    ngx_rl_read_members(read->reader, object, members, read);

    read->in = outer;
}


/* A zone without Redis has no parameters that need it. */
static void
ngx_rl_read_redis(ngx_rl_rule_read_t *read)
{
    ngx_rl_draft_t        *draft;
    const ngx_rl_param_t  *p;

    draft = &read->draft;

    for (p = ngx_rl_params; p->id; p++) {

        if (!(p->flags & NGX_RL_SHARED)
            || !(draft->says >> p->id & 1)
            || (p->kind == NGX_RL_A_CHOICE
                && ngx_rl_param_stored(draft, p) <= p->min))
        {
            continue;
        }

        ngx_rl_read_wrong_param(draft, p, "", "a zone that uses Redis");
    }
}


ngx_int_t
ngx_rl_read_amount(ngx_rl_reader_t *reader, json_t *value,
    const ngx_rl_algorithm_e *algorithm, ngx_rl_amount_t *amount)
{
    ngx_uint_t           problems, bucket;
    ngx_rl_draft_t      *draft;
    ngx_rl_rule_read_t   read;

    problems = reader->problems->n;
    draft = &read.draft;

    ngx_rl_read_init(&read, reader, NGX_RL_OF_AMOUNT, NULL);
    draft->unknown = 1;     /* to which algorithm it belongs, is seen later */

    if (json_is_object(value)) {
        ngx_rl_read_object(&read, value, NGX_RL_OF_AMOUNT);

    } else {
        read.in = NGX_RL_OF_AMOUNT;
        read.param = ngx_rl_param(NGX_RL_PARAM_LIMIT, read.in);
        draft->says = (uint64_t) 1 << NGX_RL_PARAM_LIMIT;

        if (ngx_rl_read_is(reader, value,
                           ngx_rl_read_types(read.param, read.in)
                           | NGX_RL_IS_OBJECT))
        {
            ngx_rl_read_value(reader, value, &read);
        }
    }

    ngx_rl_draft_exclude(draft);

    bucket = algorithm == NULL || *algorithm == NGX_RL_TOKEN_BUCKET
             || *algorithm == NGX_RL_LEAKY_BUCKET;

    if (ngx_rl_says(draft, NGX_RL_PARAM_WINDOW)
        && ngx_rl_says(draft, NGX_RL_PARAM_REFILL_RATE))
    {
        ngx_rl_read_wrong(reader, NULL, "window", "stands beside "
                          "\"refill_rate\", expected \"limit\" with the "
                          "window");

    } else if (ngx_rl_says(draft, NGX_RL_PARAM_WINDOW)
               && !ngx_rl_says(draft, NGX_RL_PARAM_LIMIT)
               && (bucket || !ngx_rl_says(draft, NGX_RL_PARAM_CAPACITY)))
    {
        ngx_rl_read_wrong(reader, NULL, "window",
                          "stands alone, expected \"limit\" with it");

    } else if (draft->says == 0 && reader->problems->n == problems) {
        ngx_rl_read_problem(reader, "expected \"limit\", "
                            "\"capacity\" or \"refill_rate\"");
    }

    if (reader->problems->n != problems) {
        return NGX_DECLINED;
    }

    ngx_rl_draft_amount(draft, bucket, amount);

    return NGX_OK;
}


/* An amount on top of the rule's limit, where that is known. */
static void
ngx_rl_read_allowance(ngx_rl_rule_read_t *read, json_t *value,
    ngx_rl_allowance_t *allowance)
{
    char              words[NGX_RL_READ_WORDS];
    const char       *expected;
    ngx_rl_spec_t    *spec;
    ngx_rl_amount_t   amount;

    spec = &read->draft.rule.spec;

    if (ngx_rl_read_amount(read->reader, value,
                           read->draft.unknown ? NULL : &spec->algorithm,
                           &amount)
        != NGX_OK
        || !read->limited)
    {
        return;
    }

    expected = ngx_rl_amount_inherit(spec, &amount, &allowance->spec);

    if (expected == NULL) {
        expected = ngx_rl_limit_init(&allowance->limit, &allowance->spec);
    }

    if (expected) {
        ngx_rl_read_problem(read->reader, "expected %s",
                            ngx_rl_read_words(expected, words));
    }
}


static void
ngx_rl_read_tier_limit(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_rule_read_t *read = data;

    ngx_str_t             name;
    ngx_rl_tier_limit_t  *tier;

    tier = &read->draft.rule.tier_limits[reader->at->number];

    name = ngx_rl_read_name(reader);

    (void) ngx_rl_read_tier(reader, &name);

    tier->tier = ngx_rl_read_copy(reader, &name);

    ngx_rl_read_allowance(read, value, &tier->allowance);
}


static void
ngx_rl_read_key_limit(ngx_rl_reader_t *reader, json_t *value, size_t number,
    const ngx_rl_known_t *client, void *data)
{
    ngx_rl_rule_read_t *read = data;

    ngx_rl_read_allowance(read, value, &read->draft.rule.key_limits[number]);
}


/* Of API keys, or of values of the key of a rule; behind n others. */
static void
ngx_rl_read_key_limits(ngx_rl_rule_read_t *read, json_t *limits,
    const ngx_rl_rule_t *rule, ngx_rl_map_t *map, size_t n)
{
    ngx_rl_reader_t  *reader;

    reader = read->reader;

    if (ngx_rl_read_few(reader, NULL, limits, NGX_RL_DOCUMENT_ENTRIES)
        && read->draft.rule.key_limits)
    {
        ngx_rl_read_named(reader, limits, rule, reader->pool, map, n,
                          ngx_rl_read_key_limit, read);
    }
}


/* The limits of tiers, of API keys and of values of the rule's key. */
static void
ngx_rl_read_limits(ngx_rl_rule_read_t *read)
{
    size_t            n;
    ngx_rl_rule_t    *rule;
    ngx_rl_place_t    place;
    ngx_rl_reader_t  *reader;

    reader = read->reader;
    rule = &read->draft.rule;

    place.up = reader->at;
    reader->at = &place;

    place.name = "tiers";
    n = json_object_size(read->limits[0]);

    if (n && ngx_rl_read_few(reader, NULL, read->limits[0], NGX_RL_MAX_TIERS)) {
        rule->tier_limits = ngx_rl_read_alloc(reader, reader->pool,
                                              n * sizeof(ngx_rl_tier_limit_t));
        if (rule->tier_limits) {
            rule->ntier_limits = n;
            ngx_rl_read_each(reader, read->limits[0], NGX_RL_IS_ANY,
                             ngx_rl_read_tier_limit, read);
        }
    }

    n = json_object_size(read->limits[1]) + json_object_size(read->limits[2]);

    if (n && n <= 2 * NGX_RL_DOCUMENT_ENTRIES) {
        rule->key_limits = ngx_rl_read_alloc(reader, reader->pool,
                                             n * sizeof(ngx_rl_allowance_t));
    }

    place.name = "limits_by_api_key";
    ngx_rl_read_key_limits(read, read->limits[1], NULL, &rule->keys, 0);

    place.name = "limits_by_key";
    ngx_rl_read_key_limits(read, read->limits[2], rule, &rule->own_keys,
                           json_object_size(read->limits[1]));

    reader->at = place.up;
}


/* The layer above knows variables, and reads the texts that have some. */
static void
ngx_rl_read_values(ngx_rl_rule_read_t *read)
{
    u_char           part[NGX_INT_T_LEN + 1];
    const char      *expected;
    ngx_uint_t       which;
    ngx_rl_draft_t  *draft;
    ngx_rl_above_t  *above;

    draft = &read->draft;
    above = &read->reader->limiter->above;

    expected = above->values(above->data, &draft->rule, &draft->limit_text,
                             &draft->cost_text, read->reader->pool, &which);

    if (expected && *expected == '\0') {
        read->reader->failed = 1;

    } else if (expected && which >= NGX_RL_PARAM_ALL && read->listed) {
        *ngx_sprintf(part, "%ui", which - NGX_RL_PARAM_ALL) = '\0';
        ngx_rl_read_wrong(read->reader, "key", (const char *) part,
                          "expected %s", expected);

    } else if (expected) {
        which = (which >= NGX_RL_PARAM_ALL) ? NGX_RL_PARAM_KEY
                : (which == NGX_RL_PARAM_LIMIT
                   && ngx_rl_says(draft, NGX_RL_PARAM_RATE))
                ? NGX_RL_PARAM_RATE : which;

        ngx_rl_read_wrong_param(draft, ngx_rl_param(which, draft->in), "",
                                expected);
    }
}


void
ngx_rl_read_rule(ngx_rl_reader_t *reader, json_t *value, ngx_rl_rule_t *rule)
{
    json_t              *id;
    ngx_uint_t           problems;
    ngx_rl_draft_t      *draft;
    ngx_rl_rule_read_t   read;

    problems = reader->problems->n;
    draft = &read.draft;

    ngx_rl_read_init(&read, reader, NGX_RL_OF_DOCUMENT, rule);
    ngx_rl_read_object(&read, value, NGX_RL_OF_RULE);

    id = json_object_get(value, "id");

    if (id == NULL || json_is_null(id)) {
        ngx_rl_read_wrong(reader, NULL, "id", "is missing");
    }

    if (reader->limiter->redis == NULL) {
        ngx_rl_read_redis(&read);
    }

    ngx_rl_draft_combine(draft);

    if (ngx_rl_draft_clients(draft) != NGX_OK) {
        reader->failed = 1;
    }

    /* a limit is made of what is known to be right */

    if (problems == reader->problems->n
        && ngx_rl_draft_limit(draft) == NGX_OK)
    {
        read.limited = 1;
        (void) ngx_rl_draft_split(draft);
    }

    /* its key is made of its parts: the zone's if it has none */

    if (draft->rule.nparts == 0) {
        draft->rule.nparts = 1;
        draft->rule.parts = &reader->limiter->zone.key;
    }

    if (ngx_rl_policy_join(draft->rule.parts, draft->rule.nparts, reader->pool,
                           &draft->rule.key)
        != NGX_OK)
    {
        reader->failed = 1;
    }

    if (ngx_rl_says(draft, NGX_RL_PARAM_KEY)
        && ngx_rl_key_constant(&draft->rule.key))
    {
        ngx_rl_read_add(reader, reader->warnings, NULL, "key", "has no "
                        "variable, which limits all clients together, expected "
                        "one as in \"$remote_addr\", or \"all\" if that is "
                        "meant");
    }

    if (reader->limiter->folds && ngx_rl_key_folds(&draft->rule.key)) {
        ngx_rl_read_add(reader, reader->warnings, NULL, "key",
                        "has $ratelimit_route, so a client has a "
                        "counter for each path that it invents, "
                        "expected a \"ratelimit_route ... /**\" in "
                        "each location of the zone");
    }

    if (ngx_rl_limit_claimed(&draft->limit_text)) {
        ngx_rl_read_add(reader, reader->warnings, "params",
                        ngx_rl_says(draft, NGX_RL_PARAM_RATE) ? "rate"
                                                               : "limit",
                        "is no limit without a valid token, expected a "
                        "\"map\" of it in nginx.conf, with a number for "
                        "\"\"");
    }

    ngx_rl_read_limits(&read);

    if (problems == reader->problems->n && !reader->failed) {
        ngx_rl_read_values(&read);
    }

    *rule = draft->rule;
}

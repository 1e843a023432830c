/*
 * Limits of a document: a rule's "params", and the amounts of tiers and
 * overrides, which are inherited from it.
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_MAX_SECONDS                                             \
    ((int64_t) (NGX_RATELIMIT_MAX_PERIOD_US / 1000000))

#define NGX_RATELIMIT_HAS(what)  (1u << NGX_RATELIMIT_SAID_##what)

/* Two members that exclude each other; the problem is at the second. */
typedef struct {
    ngx_uint_t   both;
    const char  *at;
    const char  *detail;
} ngx_ratelimit_said_exclusion_t;

static void ngx_ratelimit_read_capacity(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_tokens(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, ngx_uint_t least,
    uint64_t *tokens);
static void ngx_ratelimit_read_refill_rate(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_amount_limit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_rule_limit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_window(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_rate(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_burst(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_delay(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static void ngx_ratelimit_read_nodelay(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
static ngx_uint_t ngx_ratelimit_read_variables(const ngx_str_t *text);
static void ngx_ratelimit_read_exclusions(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_uint_t has,
    const ngx_ratelimit_said_exclusion_t *table);
static void ngx_ratelimit_said_amount(const ngx_ratelimit_said_t *said,
    ngx_uint_t bucket, ngx_ratelimit_amount_t *amount);
static const char *ngx_ratelimit_read_spec(const ngx_ratelimit_said_t *said,
    ngx_ratelimit_rule_t *rule, const char **name);
static uint64_t ngx_ratelimit_read_fill_us(const ngx_ratelimit_spec_t *spec);

/* both in the order of ngx_ratelimit_said_e */

static const ngx_ratelimit_member_t  ngx_ratelimit_params_members[] = {
    { "capacity", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_capacity },
    { "refill_rate", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_refill_rate },
    { "limit", NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_TEXT,
      ngx_ratelimit_read_rule_limit },
    { "window", NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_TEXT,
      ngx_ratelimit_read_window },
    { "rate", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_rate },
    { "burst", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_burst },
    { "delay", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_delay },
    { "nodelay", NGX_RATELIMIT_IS_BOOLEAN, ngx_ratelimit_read_nodelay },
    { NULL, 0, NULL }
};

static const ngx_ratelimit_member_t  ngx_ratelimit_amount_members[] = {
    { "capacity", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_capacity },
    { "refill_rate", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_refill_rate },
    { "limit", NGX_RATELIMIT_IS_NUMBER, ngx_ratelimit_read_amount_limit },
    { "window", NGX_RATELIMIT_IS_NUMBER|NGX_RATELIMIT_IS_TEXT,
      ngx_ratelimit_read_window },
    { NULL, 0, NULL }
};

static const ngx_ratelimit_said_exclusion_t  ngx_ratelimit_params_excluded[] = {
    { NGX_RATELIMIT_HAS(RATE) | NGX_RATELIMIT_HAS(LIMIT), "limit",
      "stands beside \"rate\", expected one of them" },
    { NGX_RATELIMIT_HAS(RATE) | NGX_RATELIMIT_HAS(WINDOW), "window",
      "stands beside \"rate\", expected \"limit\" with the window" },
    { NGX_RATELIMIT_HAS(RATE) | NGX_RATELIMIT_HAS(REFILL_RATE), "refill_rate",
      "stands beside \"rate\", expected one of them" },
    { NGX_RATELIMIT_HAS(LIMIT) | NGX_RATELIMIT_HAS(REFILL_RATE), "refill_rate",
      "stands beside \"limit\", expected one of them" },
    { NGX_RATELIMIT_HAS(CAPACITY) | NGX_RATELIMIT_HAS(BURST), "burst",
      "stands beside \"capacity\", expected one of them" },
    { NGX_RATELIMIT_HAS(DELAY) | NGX_RATELIMIT_HAS(NODELAY), "delay",
      "stands beside \"nodelay\", expected one of them" },
    { 0, NULL, NULL }
};

static const ngx_ratelimit_said_exclusion_t  ngx_ratelimit_amount_excluded[] = {
    { NGX_RATELIMIT_HAS(LIMIT) | NGX_RATELIMIT_HAS(REFILL_RATE), "refill_rate",
      "stands beside \"limit\", expected one of them" },
    { NGX_RATELIMIT_HAS(WINDOW) | NGX_RATELIMIT_HAS(REFILL_RATE), "window",
      "stands beside \"refill_rate\", expected \"limit\" with the window" },
    { 0, NULL, NULL }
};


static void
ngx_ratelimit_read_capacity(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    ngx_ratelimit_read_tokens(reader, at, value, 1, &said->capacity);
}


/* Leaves them 0 where they are none. */
static void
ngx_ratelimit_read_tokens(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, ngx_uint_t least,
    uint64_t *tokens)
{
    int64_t  n;

    /* of a burst one less: who is on time is none of it */

    if (ngx_ratelimit_read_number(reader, at, value, (int64_t) least,
                                  NGX_RATELIMIT_MAX_TOKENS - 1
                                  + (int64_t) least, &n)
        == NGX_OK)
    {
        *tokens = (uint64_t) n;
    }
}


static void
ngx_ratelimit_read_refill_rate(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    double  rate;

    rate = json_number_value(value);

    if (!(rate > 0)) {
        ngx_ratelimit_read_problem(reader, at, "must be > 0");
        return;
    }

    if (ngx_ratelimit_amount_rate(rate, &said->tokens, &said->period_us) != 0) {
        ngx_ratelimit_read_problem(reader, at, "must be from 1 in 366 days to "
                                   "1073741824, in requests a second");
    }
}


static void
ngx_ratelimit_read_amount_limit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    ngx_ratelimit_read_tokens(reader, at, value, 1, &said->limit);
}


static void
ngx_ratelimit_read_rule_limit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    ngx_str_t  text;

    if (!json_is_string(value)) {
        ngx_ratelimit_read_amount_limit(reader, at, value, data);
        return;
    }

    text = ngx_ratelimit_read_text(value);

    if (!ngx_ratelimit_read_variables(&text)) {
        ngx_ratelimit_read_problem(reader, at, "expected a number, or a string "
                                   "with variables");
        return;
    }

    said->text = ngx_ratelimit_read_copy(reader, value);
}


static void
ngx_ratelimit_read_window(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    int64_t    n;
    ngx_str_t  text;

    if (!json_is_string(value)) {

        if (ngx_ratelimit_read_number(reader, at, value, 1,
                                      NGX_RATELIMIT_MAX_SECONDS, &n)
            == NGX_OK)
        {
            said->window_us = (uint64_t) n * 1000000;
        }

        return;
    }

    if (ngx_strcmp(json_string_value(value), "calendar:day") == 0) {
        said->calendar = NGX_RATELIMIT_CALENDAR_DAY;
        return;
    }

    if (ngx_strcmp(json_string_value(value), "calendar:month") == 0) {
        said->calendar = NGX_RATELIMIT_CALENDAR_MONTH;
        return;
    }

    text = ngx_ratelimit_read_text(value);
    n = text.len ? ngx_parse_time(&text, 1) : NGX_ERROR;

    if (n < 1 || n > NGX_RATELIMIT_MAX_SECONDS) {
        ngx_ratelimit_read_problem(reader, at, "expected a time from 1s to "
                                   "366d in whole seconds, \"calendar:day\" "
                                   "or \"calendar:month\"");
        return;
    }

    said->window_us = (uint64_t) n * 1000000;
}


static void
ngx_ratelimit_read_rate(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    ngx_str_t    text;
    const char  *expected;

    text = ngx_ratelimit_read_text(value);

    if (ngx_ratelimit_read_variables(&text)) {
        said->text = ngx_ratelimit_read_copy(reader, value);
        return;
    }

    expected = ngx_ratelimit_rate_parse(text.data, text.len, &said->tokens,
                                        &said->period_us);
    if (expected) {
        ngx_ratelimit_read_problem(reader, at, "expected %s", expected);
    }
}


static void
ngx_ratelimit_read_burst(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    ngx_ratelimit_read_tokens(reader, at, value, 0, &said->burst);
}


static void
ngx_ratelimit_read_delay(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    ngx_ratelimit_read_tokens(reader, at, value, 0, &said->delay);
}


static void
ngx_ratelimit_read_nodelay(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_said_t *said = data;

    (void) reader;
    (void) at;

    said->nodelay = json_is_true(value);
}


static ngx_uint_t
ngx_ratelimit_read_variables(const ngx_str_t *text)
{
    return ngx_strlchr(text->data, text->data + text->len, '$') != NULL;
}


void
ngx_ratelimit_read_params(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *params,
    ngx_ratelimit_said_t *said)
{
    ngx_memzero(said, sizeof(ngx_ratelimit_said_t));

    said->has = ngx_ratelimit_read_members(reader, at, params,
                                           ngx_ratelimit_params_members, said);

    if (!said->nodelay) {
        said->has &= ~(uint64_t) NGX_RATELIMIT_HAS(NODELAY);
    }

    ngx_ratelimit_read_exclusions(reader, at, said->has,
                                  ngx_ratelimit_params_excluded);
}


static void
ngx_ratelimit_read_exclusions(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_uint_t has,
    const ngx_ratelimit_said_exclusion_t *table)
{
    for ( /* void */ ; table->both; table++) {
        if ((has & table->both) == table->both) {
            ngx_ratelimit_read_wrong(reader, at, NULL, table->at, "%s",
                                     table->detail);
        }
    }
}


ngx_int_t
ngx_ratelimit_read_amount(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    const ngx_ratelimit_algorithm_e *algorithm,
    ngx_ratelimit_amount_t *amount)
{
    ngx_uint_t            problems, bucket;
    ngx_ratelimit_said_t  said;

    problems = reader->problems->n;
    ngx_memzero(&said, sizeof(ngx_ratelimit_said_t));

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_OBJECT)) {
        return NGX_DECLINED;
    }

    said.has = ngx_ratelimit_read_members(reader, at, value,
                                          ngx_ratelimit_amount_members, &said);

    ngx_ratelimit_read_exclusions(reader, at, said.has,
                                  ngx_ratelimit_amount_excluded);

    bucket = algorithm == NULL || *algorithm == NGX_RATELIMIT_TOKEN_BUCKET
             || *algorithm == NGX_RATELIMIT_LEAKY_BUCKET;

    if (!ngx_ratelimit_says(&said, LIMIT) && ngx_ratelimit_says(&said, WINDOW)
        && !ngx_ratelimit_says(&said, REFILL_RATE)
        && (bucket || !ngx_ratelimit_says(&said, CAPACITY)))
    {
        ngx_ratelimit_read_wrong(reader, at, NULL, "window",
                                 "stands alone, expected \"limit\" with it");

    } else if (said.has == 0 && reader->problems->n == problems) {
        ngx_ratelimit_read_problem(reader, at, "expected \"limit\", "
                                   "\"capacity\" or \"refill_rate\"");
    }

    if (reader->problems->n != problems) {
        return NGX_DECLINED;
    }

    ngx_ratelimit_said_amount(&said, bucket, amount);

    return NGX_OK;
}


/* Where there is no bucket, a window makes the capacity a limit. */
static void
ngx_ratelimit_said_amount(const ngx_ratelimit_said_t *said,
    ngx_uint_t bucket, ngx_ratelimit_amount_t *amount)
{
    ngx_memzero(amount, sizeof(ngx_ratelimit_amount_t));

    amount->capacity = said->capacity;

    if (ngx_ratelimit_says(said, REFILL_RATE)) {
        amount->rated = 1;
        amount->tokens = said->tokens;
        amount->period_us = said->period_us;
        return;
    }

    if (ngx_ratelimit_says(said, RATE)) {
        amount->tokens = said->tokens;
        amount->period_us = said->period_us;
        return;
    }

    amount->tokens = said->limit;
    amount->period_us = said->window_us;
    amount->calendar = said->calendar;

    if (!bucket && said->limit == 0 && ngx_ratelimit_says(said, WINDOW)) {
        amount->tokens = said->capacity;
    }
}


ngx_int_t
ngx_ratelimit_read_limit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_said_t *said,
    ngx_ratelimit_rule_t *rule)
{
    const char  *expected, *name;

    name = NULL;
    expected = ngx_ratelimit_read_spec(said, rule, &name);

    if (expected == NULL && !rule->dynamic) {
        expected = ngx_ratelimit_limit_init(&rule->limit, &rule->spec);

        if (expected) {
            name = ngx_ratelimit_says(said, BURST) ? "burst"
                   : ngx_ratelimit_says(said, CAPACITY) ? "capacity"
                   : ngx_ratelimit_says(said, LIMIT) ? "limit" : "rate";
        }
    }

    if (expected == NULL) {
        return NGX_OK;
    }

    ngx_ratelimit_read_expected(reader, at, name ? "params" : NULL,
                                name ? name : "params", expected);

    return NGX_DECLINED;
}


/*
 * Sets the rule's spec, whose algorithm is set. Returns NULL, or what was
 * expected, and of which of the params, unless of them all.
 */
static const char *
ngx_ratelimit_read_spec(const ngx_ratelimit_said_t *said,
    ngx_ratelimit_rule_t *rule, const char **name)
{
    ngx_uint_t               bucket, slots;
    const char              *expected;
    ngx_ratelimit_spec_t     base, *spec;
    ngx_ratelimit_amount_t   amount;

    spec = &rule->spec;
    spec->burst = said->burst;
    spec->delay = said->delay;
    spec->nodelay = said->nodelay;

    slots = (spec->algorithm == NGX_RATELIMIT_CONCURRENCY);
    bucket = (spec->algorithm == NGX_RATELIMIT_TOKEN_BUCKET
              || spec->algorithm == NGX_RATELIMIT_LEAKY_BUCKET);

    if (ngx_ratelimit_says(said, LIMIT) && !ngx_ratelimit_says(said, WINDOW)
        && !slots)
    {
        *name = "limit";
        return "\"window\" with it";
    }

    if (!ngx_ratelimit_says(said, LIMIT) && !ngx_ratelimit_says(said, RATE)
        && !ngx_ratelimit_says(said, REFILL_RATE)
        && (bucket || !ngx_ratelimit_says(said, CAPACITY)
            || (!slots && !ngx_ratelimit_says(said, WINDOW))))
    {
        return slots ? "\"limit\""
                     : "\"limit\" and \"window\", \"capacity\" and "
                       "\"refill_rate\", or \"rate\"";
    }

    if (said->text.len) {
        rule->dynamic = 1;
        spec->period_us = said->window_us;
        spec->calendar = said->calendar;

        if (ngx_ratelimit_says(said, CAPACITY)) {

            if (!bucket) {
                *name = "capacity";
                return "no capacity, since the limit has variables and is the "
                       "capacity";
            }

            if (spec->algorithm == NGX_RATELIMIT_LEAKY_BUCKET) {
                spec->burst = said->capacity - 1;

            } else {
                spec->capacity = said->capacity;
            }
        }

        return NULL;
    }

    if (ngx_ratelimit_says(said, REFILL_RATE)
        && ngx_ratelimit_says(said, WINDOW) && !bucket)
    {
        *name = "window";
        return "one of \"window\" and \"refill_rate\"";
    }

    ngx_ratelimit_said_amount(said, bucket, &amount);

    base = *spec;
    expected = ngx_ratelimit_amount_inherit(&base, &amount, spec);

    if (expected == NULL && amount.rated && bucket) {
        spec->window_us = ngx_ratelimit_says(said, WINDOW)
                          ? said->window_us : ngx_ratelimit_read_fill_us(spec);
    }

    return expected;
}


/* What the window of tiers is, where nothing says it; or longer than any. */
static uint64_t
ngx_ratelimit_read_fill_us(const ngx_ratelimit_spec_t *spec)
{
    double    us;
    uint64_t  held;

    held = (spec->algorithm == NGX_RATELIMIT_LEAKY_BUCKET) ? spec->burst + 1
                                                           : spec->capacity;

    us = (double) held * (double) spec->period_us / (double) spec->tokens;

    if (us > (double) NGX_RATELIMIT_MAX_PERIOD_US) {
        return UINT64_MAX;
    }

    /* below 2^45, where a double has microseconds to spare */

    return (us < 1) ? 1 : (uint64_t) (us + 0.5);
}


ngx_int_t
ngx_ratelimit_read_allowance(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_rule_t *rule,
    const ngx_ratelimit_amount_t *amount,
    ngx_ratelimit_allowance_t *allowance)
{
    const char  *expected;

    expected = ngx_ratelimit_amount_inherit(&rule->spec, amount,
                                            &allowance->spec);

    if (expected == NULL) {
        expected = ngx_ratelimit_limit_init(&allowance->limit,
                                            &allowance->spec);
    }

    if (expected == NULL) {
        return NGX_OK;
    }

    ngx_ratelimit_read_expected(reader, at, NULL, NULL, expected);

    return NGX_DECLINED;
}

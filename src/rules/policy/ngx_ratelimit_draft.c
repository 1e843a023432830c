/*
 * A draft becomes a rule: which parameters go together, the defaults that
 * depend on others, and the limit.
 */

#include "ngx_ratelimit_param.h"

#define NGX_RATELIMIT_BUCKETS                                                 \
    (1u << NGX_RATELIMIT_TOKEN_BUCKET | 1u << NGX_RATELIMIT_LEAKY_BUCKET)

static void ngx_ratelimit_draft_algorithm(ngx_ratelimit_draft_t *draft);
static ngx_uint_t ngx_ratelimit_draft_has(const ngx_ratelimit_draft_t *draft,
    ngx_ratelimit_param_e id, ngx_uint_t values);
static const char *ngx_ratelimit_draft_words(u_char buf[64],
    const char *format, const char *word);
static const char *ngx_ratelimit_draft_spec(ngx_ratelimit_draft_t *draft,
    ngx_ratelimit_param_e *id);
static const char *ngx_ratelimit_draft_dynamic(ngx_ratelimit_draft_t *draft,
    ngx_uint_t bucket, ngx_ratelimit_param_e *id);
static uint64_t ngx_ratelimit_draft_fill_us(const ngx_ratelimit_spec_t *spec);


void
ngx_ratelimit_draft_combine(ngx_ratelimit_draft_t *draft)
{
    ngx_ratelimit_rule_t  *rule;

    rule = &draft->rule;

    if (!draft->unknown) {
        ngx_ratelimit_draft_algorithm(draft);
    }

    ngx_ratelimit_draft_exclude(draft);

    if (rule->emergency) {
        rule->fail_mode = NGX_RATELIMIT_FAIL_OPEN;
    }

    /* others than "strict", if they are said, are problems by now */

    if (rule->statuses
        || rule->spec.algorithm == NGX_RATELIMIT_SLIDING_LOG
        || rule->spec.algorithm == NGX_RATELIMIT_CONCURRENCY)
    {
        rule->sync = NGX_RATELIMIT_SYNC_STRICT;
    }
}


/* Whether the algorithm has all of the parameters. */
static void
ngx_ratelimit_draft_algorithm(ngx_ratelimit_draft_t *draft)
{
    int                           only;
    u_char                        beside[64], expected[64];
    const char                   *words;
    ngx_uint_t                    algorithm;
    const ngx_ratelimit_param_t  *p;

    algorithm = draft->rule.spec.algorithm;

    for (p = ngx_ratelimit_params; p->id; p++) {

        if (!(p->in & draft->in) || p->algorithms == 0
            || (p->algorithms & (1u << algorithm))
            || !(draft->says >> p->id & 1))
        {
            continue;
        }

        only = __builtin_ctz((unsigned) p->algorithms);
        words = "another algorithm";

        if (p->algorithms == 1u << only) {
            words = ngx_ratelimit_draft_words(expected, "algorithm %s",
                                          ngx_ratelimit_algorithm_names[only]);
        }

        draft->wrong(draft, p,
                     ngx_ratelimit_draft_words(beside, " with algorithm %s",
                                     ngx_ratelimit_algorithm_names[algorithm]),
                     words);
    }
}


/* In buf, which has room for it. */
static const char *
ngx_ratelimit_draft_words(u_char buf[64], const char *format, const char *word)
{
    *ngx_slprintf(buf, buf + 63, format, word) = '\0';

    return (const char *) buf;
}


void
ngx_ratelimit_draft_exclude(ngx_ratelimit_draft_t *draft)
{
    u_char                            beside[64];
    const char                       *words;
    const ngx_ratelimit_param_t      *with;
    const ngx_ratelimit_exclusion_t  *x;

    for (x = ngx_ratelimit_exclusions; x->at; x++) {

        if (!ngx_ratelimit_draft_has(draft, x->at, x->at_values)
            || !ngx_ratelimit_draft_has(draft, x->with, x->with_values))
        {
            continue;
        }

        if (x->with == NGX_RATELIMIT_PARAM_ALGORITHM) {
            words = ngx_ratelimit_draft_words(beside, " with algorithm %s",
                   ngx_ratelimit_algorithm_name(draft->rule.spec.algorithm));

        } else {
            with = ngx_ratelimit_param(x->with, draft->in);
            words = ngx_ratelimit_draft_words(beside, " beside \"%s\"",
                                      (draft->in & NGX_RATELIMIT_IN_CONF)
                                      ? with->conf : with->json);
        }

        draft->wrong(draft, ngx_ratelimit_param(x->at, draft->in), words,
                     x->expected);
    }
}


/* Whether it says the parameter, with one of these values; 0: with any. */
static ngx_uint_t
ngx_ratelimit_draft_has(const ngx_ratelimit_draft_t *draft,
    ngx_ratelimit_param_e id, ngx_uint_t values)
{
    const ngx_ratelimit_param_t  *p;

    /* an algorithm is always there */

    if (id == NGX_RATELIMIT_PARAM_ALGORITHM) {
        return !draft->unknown
               && (values >> draft->rule.spec.algorithm & 1);
    }

    if (!(draft->says >> id & 1)) {
        return 0;
    }

    p = ngx_ratelimit_param(id, draft->in);

    return p && (values == 0
                 || (values >> ngx_ratelimit_param_stored(draft, p) & 1));
}


ngx_int_t
ngx_ratelimit_draft_limit(ngx_ratelimit_draft_t *draft)
{
    const char             *expected;
    ngx_ratelimit_rule_t   *rule;
    ngx_ratelimit_param_e   id;

    rule = &draft->rule;
    id = NGX_RATELIMIT_PARAM_NONE;

    expected = ngx_ratelimit_draft_spec(draft, &id);

    if (expected == NULL && !rule->dynamic) {
        expected = ngx_ratelimit_limit_init(&rule->limit, &rule->spec);

        id = ngx_ratelimit_says(draft, BURST) ? NGX_RATELIMIT_PARAM_BURST
             : ngx_ratelimit_says(draft, CAPACITY)
               ? NGX_RATELIMIT_PARAM_CAPACITY
             : ngx_ratelimit_says(draft, LIMIT) ? NGX_RATELIMIT_PARAM_LIMIT
             : NGX_RATELIMIT_PARAM_RATE;
    }

    if (expected == NULL) {
        return NGX_OK;
    }

    draft->wrong(draft, id ? ngx_ratelimit_param(id, draft->in) : NULL, "",
                 expected);

    return NGX_DECLINED;
}


/*
 * Sets the rule's spec, whose algorithm is set. Returns NULL, or what was
 * expected, and of which parameter, unless of them all.
 */
static const char *
ngx_ratelimit_draft_spec(ngx_ratelimit_draft_t *draft,
    ngx_ratelimit_param_e *id)
{
    ngx_uint_t               bucket, permits;
    const char              *expected;
    ngx_ratelimit_spec_t     base, *spec;
    ngx_ratelimit_amount_t   amount;

    spec = &draft->rule.spec;
    permits = (spec->algorithm == NGX_RATELIMIT_CONCURRENCY);
    bucket = NGX_RATELIMIT_BUCKETS >> spec->algorithm & 1;

    if (ngx_ratelimit_says(draft, LIMIT) && !ngx_ratelimit_says(draft, WINDOW)
        && !permits)
    {
        *id = NGX_RATELIMIT_PARAM_LIMIT;
        return "\"window\" with it";
    }

    if (!ngx_ratelimit_says(draft, LIMIT) && !ngx_ratelimit_says(draft, RATE)
        && !ngx_ratelimit_says(draft, REFILL_RATE)
        && (bucket || !ngx_ratelimit_says(draft, CAPACITY)
            || (!permits && !ngx_ratelimit_says(draft, WINDOW))))
    {
        return permits ? "\"limit\""
               : (draft->in & NGX_RATELIMIT_IN_CONF)
               ? "\"rate\", or \"limit\" and \"window\""
               : "\"limit\" and \"window\", \"capacity\" and "
                 "\"refill_rate\", or \"rate\"";
    }

    if (draft->rule.dynamic) {
        return ngx_ratelimit_draft_dynamic(draft, bucket, id);
    }

    if (ngx_ratelimit_says(draft, REFILL_RATE)
        && ngx_ratelimit_says(draft, WINDOW) && !bucket)
    {
        *id = NGX_RATELIMIT_PARAM_WINDOW;
        return "one of \"window\" and \"refill_rate\"";
    }

    ngx_ratelimit_draft_amount(draft, bucket, &amount);

    base = *spec;
    expected = ngx_ratelimit_amount_inherit(&base, &amount, spec);

    if (expected == NULL && amount.rated && bucket) {
        spec->window_us = ngx_ratelimit_says(draft, WINDOW)
                          ? draft->window_us
                          : ngx_ratelimit_draft_fill_us(spec);
    }

    return expected;
}


/* The limit is known at each request; a capacity beside it is now. */
static const char *
ngx_ratelimit_draft_dynamic(ngx_ratelimit_draft_t *draft, ngx_uint_t bucket,
    ngx_ratelimit_param_e *id)
{
    ngx_ratelimit_spec_t  *spec;

    spec = &draft->rule.spec;
    spec->period_us = draft->window_us;
    spec->calendar = draft->calendar;

    if (!ngx_ratelimit_says(draft, CAPACITY)) {
        return NULL;
    }

    if (!bucket) {
        *id = NGX_RATELIMIT_PARAM_CAPACITY;
        return "no capacity, since the limit has variables and is the "
               "capacity";
    }

    if (spec->algorithm == NGX_RATELIMIT_LEAKY_BUCKET) {
        spec->burst = draft->capacity - 1;

    } else {
        spec->capacity = draft->capacity;
    }

    return NULL;
}


/* What the window of tiers is, where nothing says it; or longer than any. */
static uint64_t
ngx_ratelimit_draft_fill_us(const ngx_ratelimit_spec_t *spec)
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


void
ngx_ratelimit_draft_amount(const ngx_ratelimit_draft_t *draft,
    ngx_uint_t bucket, ngx_ratelimit_amount_t *amount)
{
    ngx_memzero(amount, sizeof(ngx_ratelimit_amount_t));

    amount->capacity = draft->capacity;

    if (ngx_ratelimit_says(draft, REFILL_RATE)
        || ngx_ratelimit_says(draft, RATE))
    {
        amount->rated = ngx_ratelimit_says(draft, REFILL_RATE);
        amount->tokens = draft->tokens;
        amount->period_us = draft->period_us;
        return;
    }

    amount->tokens = draft->limit;
    amount->period_us = draft->window_us;
    amount->calendar = draft->calendar;

    if (!bucket && draft->limit == 0 && ngx_ratelimit_says(draft, WINDOW)) {
        amount->tokens = draft->capacity;
    }
}


ngx_int_t
ngx_ratelimit_draft_split(ngx_ratelimit_draft_t *draft)
{
    const char  *expected;

    if (draft->rule.shards == 0) {
        return NGX_OK;
    }

    expected = ngx_ratelimit_rule_split(&draft->rule);
    if (expected == NULL) {
        return NGX_OK;
    }

    draft->wrong(draft, ngx_ratelimit_param(NGX_RATELIMIT_PARAM_SHARDS,
                                            draft->in), "", expected);

    return NGX_DECLINED;
}

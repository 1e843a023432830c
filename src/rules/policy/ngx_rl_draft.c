/*
 * A draft becomes a rule: which parameters go together, the defaults that
 * depend on others, and the limit.
 */

#include "ngx_rl_param.h"

#define NGX_RL_BUCKETS                                                        \
    (NGX_RL_BIT(NGX_RL_TOKEN_BUCKET)|NGX_RL_BIT(NGX_RL_LEAKY_BUCKET))

const ngx_rl_exclusion_t  ngx_rl_exclusions[] = {

    /* what an algorithm does not have but for some values */

    { NGX_RL_PARAM_WINDOW,
      NGX_RL_BIT(NGX_RL_CALENDAR_DAY)|NGX_RL_BIT(NGX_RL_CALENDAR_MONTH)
      |NGX_RL_BIT(NGX_RL_CALENDAR_WEEK),
      NGX_RL_PARAM_ALGORITHM,
      NGX_RL_RATES ^ NGX_RL_BIT(NGX_RL_FIXED_WINDOW),
      "a time as in \"60s\", or algorithm fixed_window" },

    { NGX_RL_PARAM_SYNC,
      NGX_RL_BIT(NGX_RL_SYNC_LEASE)|NGX_RL_BIT(NGX_RL_SYNC_ASYNC),
      NGX_RL_PARAM_ALGORITHM,
      NGX_RL_BIT(NGX_RL_SLIDING_LOG)|NGX_RL_BIT(NGX_RL_CONCURRENCY),
      "\"sync=strict\"" },

    /* how much */

    { NGX_RL_PARAM_LIMIT, 0, NGX_RL_PARAM_RATE, 0, "one of them" },
    { NGX_RL_PARAM_WINDOW, 0, NGX_RL_PARAM_RATE, 0,
      "\"limit\" with the window" },
    { NGX_RL_PARAM_REFILL_RATE, 0, NGX_RL_PARAM_RATE, 0, "one of them" },
    { NGX_RL_PARAM_REFILL_RATE, 0, NGX_RL_PARAM_LIMIT, 0, "one of them" },
    { NGX_RL_PARAM_BURST, 0, NGX_RL_PARAM_CAPACITY, 0, "one of them" },
    { NGX_RL_PARAM_DELAY, 0, NGX_RL_PARAM_NODELAY, 0, "one of them" },

    /* which requests */

    { NGX_RL_PARAM_REGEX, 0, NGX_RL_PARAM_ROUTE, 0, "one of them" },

    /* how it counts */

    { NGX_RL_PARAM_COUNT_STATUS, 0, NGX_RL_PARAM_COST_HEADER, 0,
      "one of them" },
    { NGX_RL_PARAM_COUNT_STATUS, 0, NGX_RL_PARAM_COST_END, 0, "one of them" },
    { NGX_RL_PARAM_COST_END, 0, NGX_RL_PARAM_COST_HEADER, 0, "one of them" },

    { NGX_RL_PARAM_FAIL_MODE,
      NGX_RL_BIT(NGX_RL_FAIL_LOCAL)|NGX_RL_BIT(NGX_RL_FAIL_CLOSED),
      NGX_RL_PARAM_EMERGENCY, 0, "\"fail_mode=open\"" },

    { NGX_RL_PARAM_SYNC,
      NGX_RL_BIT(NGX_RL_SYNC_LEASE)|NGX_RL_BIT(NGX_RL_SYNC_ASYNC),
      NGX_RL_PARAM_COUNT_STATUS, 0, "\"sync=strict\"" },

    { NGX_RL_PARAM_FAIL_MODE, 0, NGX_RL_PARAM_SYNC,
      NGX_RL_BIT(NGX_RL_SYNC_ASYNC), "\"sync=lease\" or \"sync=strict\"" },

    { NGX_RL_PARAM_EMERGENCY, 0, NGX_RL_PARAM_SYNC,
      NGX_RL_BIT(NGX_RL_SYNC_ASYNC), "\"sync=lease\" or \"sync=strict\"" },

    { NGX_RL_PARAM_SHARDS, 0, NGX_RL_PARAM_COUNT_STATUS, 0, "one of them" },
    { NGX_RL_PARAM_SHARDS, 0, NGX_RL_PARAM_COST_HEADER, 0, "one of them" },
    { NGX_RL_PARAM_SHARDS, 0, NGX_RL_PARAM_COST_END, 0, "one of them" },
    { NGX_RL_PARAM_SHARDS, 0, NGX_RL_PARAM_TIER_LIMITS, 0, "one of them" },
    { NGX_RL_PARAM_SHARDS, 0, NGX_RL_PARAM_KEY_LIMITS, 0, "one of them" },
    { NGX_RL_PARAM_SHARDS, 0, NGX_RL_PARAM_OWN_LIMITS, 0, "one of them" },

    { NGX_RL_PARAM_FAIL_MODE, NGX_RL_BIT(NGX_RL_FAIL_LOCAL),
      NGX_RL_PARAM_SHARDS, 0,
      "\"fail_mode=open\" or \"fail_mode=closed\"" },

    { NGX_RL_PARAM_NONE, 0, NGX_RL_PARAM_NONE, 0, NULL }
};


/* In buf, which has room for it. */
static const char *
ngx_rl_draft_words(u_char buf[64], const char *format, const char *word)
{
    *ngx_slprintf(buf, buf + 63, format, word) = '\0';

    return (const char *) buf;
}


/* Whether the algorithm has all of the parameters. */
static void
ngx_rl_draft_algorithm(ngx_rl_draft_t *draft)
{
    int                    only;
    u_char                 beside[64], expected[64];
    const char            *words;
    ngx_uint_t             algorithm;
    const ngx_rl_param_t  *p;

    algorithm = draft->rule.spec.algorithm;

    for (p = ngx_rl_params; p->id; p++) {

        if (!(p->in & draft->in) || p->algorithms == 0
            || (p->algorithms & (1u << algorithm))
            || !(draft->says >> p->id & 1))
        {
            continue;
        }

        only = __builtin_ctz((unsigned) p->algorithms);
        words = "another algorithm";

        if (p->algorithms == 1u << only) {
            words = ngx_rl_draft_words(expected, "algorithm %s",
                                       ngx_rl_algorithm_names[only]);
        }

        draft->wrong(draft, p,
                     ngx_rl_draft_words(beside, " with algorithm %s",
                                     ngx_rl_algorithm_names[algorithm]),
                     words);
    }
}


/* Whether it says the parameter, with one of these values; 0: with any. */
static ngx_uint_t
ngx_rl_draft_has(const ngx_rl_draft_t *draft, ngx_rl_param_e id,
    ngx_uint_t values)
{
    const ngx_rl_param_t  *p;

    /* an algorithm is always there */

    if (id == NGX_RL_PARAM_ALGORITHM) {
        return !draft->unknown && (values >> draft->rule.spec.algorithm & 1);
    }

    if (!(draft->says >> id & 1)) {
        return 0;
    }

    p = ngx_rl_param(id, draft->in);

    return p && (values == 0 || (values >> ngx_rl_param_stored(draft, p) & 1));
}


void
ngx_rl_draft_exclude(ngx_rl_draft_t *draft)
{
    u_char                     beside[64];
    const char                *words;
    const ngx_rl_param_t      *with;
    const ngx_rl_exclusion_t  *x;

    for (x = ngx_rl_exclusions; x->at; x++) {

        if (!ngx_rl_draft_has(draft, x->at, x->at_values)
            || !ngx_rl_draft_has(draft, x->with, x->with_values))
        {
            continue;
        }

        if (x->with == NGX_RL_PARAM_ALGORITHM) {
            words = ngx_rl_draft_words(beside, " with algorithm %s",
                   ngx_rl_algorithm_names[draft->rule.spec.algorithm]);

        } else {
            with = ngx_rl_param(x->with, draft->in);
            words = ngx_rl_draft_words(beside, " beside \"%s\"",
                                      (draft->in & NGX_RL_IN_CONF)
                                      ? with->conf : with->json);
        }

        draft->wrong(draft, ngx_rl_param(x->at, draft->in), words, x->expected);
    }
}


/* A parameter that needs another one, which is not there. */
static void
ngx_rl_draft_alone(ngx_rl_draft_t *draft, ngx_rl_param_e id,
    const char *expected)
{
    if (draft->says >> id & 1) {
        draft->wrong(draft, ngx_rl_param(id, draft->in), "", expected);
    }
}


/* A rule whose times have every minute of the week is not timed. */
static void
ngx_rl_draft_active(ngx_rl_draft_t *draft)
{
    ngx_rl_rule_t         *rule;
    ngx_rl_week_t         *week;
    const ngx_rl_param_t  *param;

    rule = &draft->rule;
    week = &rule->active;

    if (week->days == 0) {
        week->days = NGX_RL_WEEK_ALL;
    }

    rule->timed = (week->days != NGX_RL_WEEK_ALL || week->from != 0
                   || week->to != NGX_RL_DAY_MINUTES);

    if (week->from != week->to) {
        return;
    }

    param = ngx_rl_param(NGX_RL_PARAM_ACTIVE_TO, draft->in);

    draft->wrong(draft,
                 param ? param : ngx_rl_param(NGX_RL_PARAM_ACTIVE, draft->in),
                 "", "two different times");
}


void
ngx_rl_draft_combine(ngx_rl_draft_t *draft)
{
    ngx_rl_rule_t  *rule;

    rule = &draft->rule;

    if (!draft->unknown) {
        ngx_rl_draft_algorithm(draft);
    }

    ngx_rl_draft_exclude(draft);

    if (!ngx_rl_says(draft, NGX_RL_PARAM_COST_END)) {
        ngx_rl_draft_alone(draft, NGX_RL_PARAM_COST_EVERY,
                           "\"cost_end\" with it");
    }

    if (rule->spec.algorithm == NGX_RL_FIXED_WINDOW) {

        if (draft->calendar == NGX_RL_CALENDAR_NONE) {
            ngx_rl_draft_alone(draft, NGX_RL_PARAM_TZ,
                               "a \"window\" of the calendar with it");
        }

        if (draft->calendar != NGX_RL_CALENDAR_MONTH) {
            ngx_rl_draft_alone(draft, NGX_RL_PARAM_MONTH_DAY, "the window "
                               "\"calendar:month\" with it");
        }
    }

    if (ngx_rl_says(draft, NGX_RL_PARAM_ACTIVE)) {
        ngx_rl_draft_active(draft);
    }

    if (rule->emergency) {
        rule->fail_mode = NGX_RL_FAIL_OPEN;
    }

    /* any other value has been a problem above */

    if (rule->statuses || rule->spec.algorithm == NGX_RL_SLIDING_LOG
        || rule->spec.algorithm == NGX_RL_CONCURRENCY)
    {
        rule->sync = NGX_RL_SYNC_STRICT;
    }

    if (rule->sync != NGX_RL_SYNC_ASYNC) {
        ngx_rl_draft_alone(draft, NGX_RL_PARAM_REGIONS,
                           "\"sync=async\" with it");
    }
}


ngx_int_t
ngx_rl_draft_clients(ngx_rl_draft_t *draft)
{
    ngx_rl_clients_t  *set;

    if (draft->clients == NULL) {
        return NGX_OK;
    }

    set = ngx_pcalloc(draft->pool, sizeof(ngx_rl_clients_t));

    if (set == NULL
        || ngx_rl_clients_make(set, draft->clients->elts, draft->clients->nelts,
                               draft->pool)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    draft->rule.networks = set->networks;
    set->networks = NULL;

    if (set->digests.entries || set->globs) {
        draft->rule.api_keys = set;
    }

    return NGX_OK;
}


void
ngx_rl_draft_amount(const ngx_rl_draft_t *draft, ngx_uint_t bucket,
    ngx_rl_amount_t *amount)
{
    ngx_memzero(amount, sizeof(ngx_rl_amount_t));

    amount->capacity = draft->capacity;

    if (ngx_rl_says(draft, NGX_RL_PARAM_REFILL_RATE)
        || ngx_rl_says(draft, NGX_RL_PARAM_RATE))
    {
        amount->rated = ngx_rl_says(draft, NGX_RL_PARAM_REFILL_RATE);
        amount->tokens = draft->tokens;
        amount->period_us = draft->period_us;
        return;
    }

    amount->tokens = draft->limit;

    if (ngx_rl_says(draft, NGX_RL_PARAM_LIMIT) && draft->limit == 0) {
        amount->tokens = NGX_RL_TOKENS_NONE;
    }

    amount->period_us = draft->window_us;
    amount->calendar = draft->calendar;

    if (!bucket && amount->tokens == 0
        && ngx_rl_says(draft, NGX_RL_PARAM_WINDOW))
    {
        amount->tokens = draft->capacity;
    }
}


/* The limit is known at each request; a capacity beside it is now. */
static const char *
ngx_rl_draft_dynamic(ngx_rl_draft_t *draft, ngx_uint_t bucket,
    ngx_rl_param_e *id)
{
    ngx_rl_spec_t  *spec;

    spec = &draft->rule.spec;
    spec->period_us = draft->window_us;
    spec->calendar = draft->calendar;

    if (!ngx_rl_says(draft, NGX_RL_PARAM_CAPACITY)) {
        return NULL;
    }

    if (!bucket) {
        *id = NGX_RL_PARAM_CAPACITY;
        return "no capacity, since the limit has variables and is the capacity";
    }

    if (spec->algorithm == NGX_RL_LEAKY_BUCKET) {
        spec->burst = draft->capacity - 1;

    } else {
        spec->capacity = draft->capacity;
    }

    return NULL;
}


/*
 * Sets the rule's spec, whose algorithm is set. Returns NULL, or what was
 * expected, and of which parameter, unless of them all.
 */
static const char *
ngx_rl_draft_spec(ngx_rl_draft_t *draft, ngx_rl_param_e *id)
{
    double            us;
    uint64_t          held;
    ngx_uint_t        bucket, permits;
    const char       *expected;
    ngx_rl_spec_t     base, *spec;
    ngx_rl_amount_t   amount;

    spec = &draft->rule.spec;
    permits = (spec->algorithm == NGX_RL_CONCURRENCY);
    bucket = NGX_RL_BUCKETS >> spec->algorithm & 1;

    ngx_rl_draft_amount(draft, bucket, &amount);

    if (ngx_rl_says(draft, NGX_RL_PARAM_LIMIT)
        && !ngx_rl_says(draft, NGX_RL_PARAM_WINDOW) && !permits
        && (draft->rule.dynamic || amount.tokens < NGX_RL_TOKENS_NONE))
    {
        *id = NGX_RL_PARAM_LIMIT;
        return "\"window\" with it";
    }

    if (!ngx_rl_says(draft, NGX_RL_PARAM_LIMIT)
        && !ngx_rl_says(draft, NGX_RL_PARAM_RATE)
        && !ngx_rl_says(draft, NGX_RL_PARAM_REFILL_RATE)
        && (bucket || !ngx_rl_says(draft, NGX_RL_PARAM_CAPACITY)
            || (!permits && !ngx_rl_says(draft, NGX_RL_PARAM_WINDOW))))
    {
        return permits ? "\"limit\""
               : (draft->in & NGX_RL_IN_CONF)
               ? "\"rate\", or \"limit\" and \"window\""
               : "\"limit\" and \"window\", \"capacity\" and "
                 "\"refill_rate\", or \"rate\"";
    }

    if (draft->rule.dynamic) {
        return ngx_rl_draft_dynamic(draft, bucket, id);
    }

    if (ngx_rl_says(draft, NGX_RL_PARAM_REFILL_RATE)
        && ngx_rl_says(draft, NGX_RL_PARAM_WINDOW) && !bucket)
    {
        *id = NGX_RL_PARAM_WINDOW;
        return "one of \"window\" and \"refill_rate\"";
    }

    base = *spec;
    expected = ngx_rl_amount_inherit(&base, &amount, spec);

    if (expected || !amount.rated || !bucket) {
        return expected;
    }

    if (ngx_rl_says(draft, NGX_RL_PARAM_WINDOW)) {
        spec->window_us = draft->window_us;
        return NULL;
    }

    /*
     * The window of tiers where no parameter sets it; or longer than any. Below
     * 2^45 a double has microseconds to spare.
     */

    held = (spec->algorithm == NGX_RL_LEAKY_BUCKET) ? spec->burst + 1
                                                    : spec->capacity;

    us = (double) held * (double) spec->period_us / (double) spec->tokens;

    spec->window_us = (us > (double) NGX_RL_MAX_PERIOD_US) ? UINT64_MAX
                      : (us < 1) ? 1 : (uint64_t) (us + 0.5);

    return NULL;
}


ngx_int_t
ngx_rl_draft_limit(ngx_rl_draft_t *draft)
{
    const char      *expected;
    ngx_rl_rule_t   *rule;
    ngx_rl_param_e   id;

    rule = &draft->rule;
    id = NGX_RL_PARAM_NONE;

    expected = ngx_rl_draft_spec(draft, &id);

    if (expected == NULL && !rule->dynamic) {
        expected = ngx_rl_limit_init(&rule->limit, &rule->spec);

        id = ngx_rl_says(draft, NGX_RL_PARAM_BURST) ? NGX_RL_PARAM_BURST
             : ngx_rl_says(draft, NGX_RL_PARAM_CAPACITY)
               ? NGX_RL_PARAM_CAPACITY
             : ngx_rl_says(draft, NGX_RL_PARAM_LIMIT) ? NGX_RL_PARAM_LIMIT
             : NGX_RL_PARAM_RATE;
    }

    if (expected == NULL) {
        return NGX_OK;
    }

    draft->wrong(draft, id ? ngx_rl_param(id, draft->in) : NULL, "", expected);

    return NGX_DECLINED;
}


/* Each of the parts must be able to pay any request. */
ngx_int_t
ngx_rl_draft_split(ngx_rl_draft_t *draft)
{
    uint32_t              capacity, n;
    const char           *expected;
    ngx_rl_rate_t         unused;
    const ngx_rl_rule_t  *rule;
    const ngx_rl_spec_t  *spec;

    rule = &draft->rule;
    spec = &rule->spec;
    capacity = rule->limit.capacity;
    n = rule->shards;

    if (n == 0) {
        return NGX_OK;
    }

    if (rule->sync != NGX_RL_SYNC_STRICT) {
        expected = "\"sync=strict\" with it";

    } else if (rule->dynamic) {
        expected = "a limit without variables";

    } else if (rule->dynamic_cost) {
        expected = "a cost without variables";

    } else if (capacity == 0) {
        expected = "a limit from 1 on";

    } else if (capacity < n) {
        expected = "as many shards as requests of the limit, or fewer";

    } else if (rule->cost > capacity / n) {
        expected = "a cost of at most the limit divided by the shards";

    } else if (spec->algorithm == NGX_RL_TOKEN_BUCKET
               && ngx_rl_rate_init(&unused, spec->tokens, spec->period_us * n,
                                   (capacity + n - 1) / n)
                  != 0)
    {
        expected = "a rate whose period is at most 366 days when it is "
                   "multiplied by the shards";

    } else {
        return NGX_OK;
    }

    draft->wrong(draft, ngx_rl_param(NGX_RL_PARAM_SHARDS, draft->in), "",
                 expected);

    return NGX_DECLINED;
}

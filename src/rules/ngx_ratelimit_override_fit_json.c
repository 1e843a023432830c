/*
 * Temporary overrides of a document, and the limits that they are on top of:
 * what does not fit there has no effect while requests come, so it is found
 * when the document is read.
 */

#include "ngx_ratelimit_read_json.h"

#define NGX_RATELIMIT_FITS  2000000   /* tried for one document: some tenths of
                                         a second */

static ngx_uint_t ngx_ratelimit_fit_meets(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule);
static void ngx_ratelimit_fit_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule, ngx_uint_t fixed);
static const char *ngx_ratelimit_fit_limit(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule);
static const char *ngx_ratelimit_fit_allowance(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_allowance_t *allowance);
static void ngx_ratelimit_fit_wrong(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_uint_t problem,
    const ngx_ratelimit_rule_t *rule, const ngx_str_t *tier,
    const char *expected);


void
ngx_ratelimit_read_fit(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit)
{
    uint32_t  i;

    if (fit->rule) {
        ngx_ratelimit_fit_rule(reader, at, fit, fit->rule, fit->fixed);
        return;
    }

    for (i = 0; i < reader->nrules && !reader->failed; i++) {

        if (reader->fits >= NGX_RATELIMIT_FITS) {

            if (reader->fits++ == NGX_RATELIMIT_FITS) {
                ngx_ratelimit_read_warning(reader, at, "is not tried on every "
                                           "rule, nor are overrides behind it: "
                                           "there are too many");
            }

            return;
        }

        reader->fits++;

        if (ngx_ratelimit_fit_meets(fit, reader->rules[i])) {
            ngx_ratelimit_fit_rule(reader, at, fit, reader->rules[i],
                                   i < reader->nfixed);
        }
    }
}


static ngx_uint_t
ngx_ratelimit_fit_meets(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule)
{
    const ngx_ratelimit_keys_t  *keys;

    if (rule->shards) {
        return 0;
    }

    if (fit->digest == NULL) {
        return ngx_ratelimit_read_has_part(rule, fit->part);
    }

    /* which key a pattern matches its digest does not say */

    keys = rule->api_keys;

    return keys == NULL || keys->globs
           || ngx_ratelimit_map_get(&keys->digests, fit->digest)
              != NGX_RATELIMIT_MAP_NONE;
}


ngx_uint_t
ngx_ratelimit_read_has_part(const ngx_ratelimit_rule_t *rule,
    const ngx_str_t *part)
{
    ngx_uint_t  i;

    for (i = 0; i < rule->nparts; i++) {
        if (ngx_ratelimit_equal(&rule->parts[i], part)) {
            return 1;
        }
    }

    return rule->nparts == 0 && ngx_ratelimit_equal(&rule->key, part);
}


/*
 * On top of what the rule allows the API key, or else a tier, or else all: of
 * tiers the one that the document assigns to the key, or, since another may be
 * a variable's, each.
 */
static void
ngx_ratelimit_fit_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule, ngx_uint_t fixed)
{
    uint32_t          number;
    ngx_uint_t        i, problem;
    const char       *expected;
    const ngx_str_t  *tier;

    problem = reader->written && (fit->rule || !fixed);
    tier = NULL;

    if (fit->digest) {

        number = ngx_ratelimit_map_get(&rule->keys, fit->digest);

        if (number != NGX_RATELIMIT_MAP_NONE) {
            expected = ngx_ratelimit_fit_allowance(fit,
                                                   &rule->allowances[number]);
            ngx_ratelimit_fit_wrong(reader, at, problem, rule, NULL, expected);
            return;
        }

        number = ngx_ratelimit_map_get(&reader->policy->tier_keys,
                                       fit->digest);

        if (number != NGX_RATELIMIT_MAP_NONE) {
            tier = &reader->policy->tiers[number];
        }
    }

    for (i = 0; i < rule->ntiers; i++) {

        if (tier && !ngx_ratelimit_equal(tier, &rule->tiers[i].tier)) {
            continue;
        }

        reader->fits++;

        expected = ngx_ratelimit_fit_allowance(fit, &rule->tiers[i].allowance);
        ngx_ratelimit_fit_wrong(reader, at, problem, rule,
                                &rule->tiers[i].tier, expected);

        if (tier) {
            return;
        }
    }

    expected = ngx_ratelimit_fit_limit(fit, rule);

    if (expected && fit->rule && (problem || !fixed)) {
        ngx_ratelimit_read_expected(reader, at, NULL, NULL, expected);
        return;
    }

    ngx_ratelimit_fit_wrong(reader, at, problem, rule, NULL, expected);
}


/* NULL, or what was expected. */
static const char *
ngx_ratelimit_fit_limit(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_rule_t *rule)
{
    ngx_ratelimit_spec_t       spec;
    ngx_ratelimit_allowance_t  allowance;

    if (!rule->dynamic) {
        allowance.spec = rule->spec;
        allowance.limit = rule->limit;

        return ngx_ratelimit_fit_allowance(fit, &allowance);
    }

    /* what a variable will say may be anything: what fits none is found */

    spec = rule->spec;
    spec.tokens = 1;

    if (spec.period_us == 0 && spec.calendar == NGX_RATELIMIT_CALENDAR_NONE
        && spec.algorithm != NGX_RATELIMIT_CONCURRENCY)
    {
        spec.period_us = 1000000;
    }

    return ngx_ratelimit_amount_inherit(&spec, fit->amount, &allowance.spec);
}


/* The same. What is no limit itself is a problem of its own. */
static const char *
ngx_ratelimit_fit_allowance(const ngx_ratelimit_fit_t *fit,
    const ngx_ratelimit_allowance_t *allowance)
{
    const char             *expected;
    ngx_ratelimit_spec_t    spec;
    ngx_ratelimit_limit_t   limit;

    if (allowance->limit.mark == 0) {
        return NULL;
    }

    expected = ngx_ratelimit_amount_inherit(&allowance->spec, fit->amount,
                                            &spec);

    return expected ? expected : ngx_ratelimit_limit_init(&limit, &spec);
}


static void
ngx_ratelimit_fit_wrong(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_uint_t problem,
    const ngx_ratelimit_rule_t *rule, const ngx_str_t *tier,
    const char *expected)
{
    ngx_str_t  words;
    u_char     buf[NGX_RATELIMIT_READ_WORDS];

    static const ngx_str_t  none = ngx_null_string;

    if (expected == NULL) {
        return;
    }

    words = ngx_ratelimit_read_words(expected, buf);

    (problem ? ngx_ratelimit_read_problem : ngx_ratelimit_read_warning)
        (reader, at, "does not fit %s%V%srule \"%V\"%s: expected %V",
         tier ? "tier \"" : "", tier ? tier : &none, tier ? "\" of " : "",
         &rule->id, problem ? "" : ", which stays as it is", &words);
}

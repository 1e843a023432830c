/*
 * "tiers=": other limits of a rule, by the request's tier.
 */

#include "ngx_http_ratelimit_rule_conf.h"

static const char *ngx_http_ratelimit_make_tier(ngx_str_t *text,
    const ngx_ratelimit_spec_t *base, ngx_ratelimit_tier_t *tier);


const char *
ngx_http_ratelimit_set_tiers(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (value->len == 0
        || ngx_strlchr(value->data, value->data + value->len, '$'))
    {
        return "\"<tier>:<limit or rate>\", with commas between, without "
               "variables";
    }

    rule->tiers = *value;

    return NULL;
}


const char *
ngx_http_ratelimit_make_tiers(ngx_conf_t *cf, ngx_uint_t rates,
    ngx_http_ratelimit_rule_t *rule)
{
    u_char                *p, *last;
    ngx_str_t              text;
    ngx_uint_t             i;
    const char            *expected;
    ngx_array_t            tiers;
    ngx_ratelimit_spec_t   base;
    ngx_ratelimit_tier_t  *tier, *others;

    if (ngx_array_init(&tiers, cf->pool, 4, sizeof(ngx_ratelimit_tier_t))
        != NGX_OK)
    {
        return "";
    }

    base = rule->rule.spec;

    if (rates) {
        base.tokens = 0;
        base.period_us = 0;
    }

    p = rule->tiers.data;
    last = p + rule->tiers.len;

    do {
        text = ngx_http_ratelimit_next(&p, last);

        tier = ngx_array_push(&tiers);
        if (tier == NULL) {
            return "";
        }

        expected = ngx_http_ratelimit_make_tier(&text, &base, tier);
        if (expected) {
            return expected;
        }

        others = tiers.elts;

        for (i = 0; i < tiers.nelts - 1; i++) {
            if (ngx_http_ratelimit_equal(&others[i].tier, &tier->tier)) {
                return "one limit of each tier";
            }
        }

    } while (p);

    rule->rule.tiers = tiers.elts;
    rule->rule.ntiers = tiers.nelts;

    return NULL;
}


/* "<tier>:<limit>": a tier may have colons, a limit has none. */
static const char *
ngx_http_ratelimit_make_tier(ngx_str_t *text, const ngx_ratelimit_spec_t *base,
    ngx_ratelimit_tier_t *tier)
{
    u_char      *colon;
    ngx_str_t    amount;
    const char  *expected;

    colon = text->data + text->len;

    do {
        if (colon == text->data) {
            return "\"<tier>:<limit or rate>\", with commas between";
        }

        colon--;

    } while (*colon != ':');

    tier->tier.data = text->data;
    tier->tier.len = colon - text->data;

    if (tier->tier.len == 0) {
        return "a tier before each \":\"";
    }

    amount.data = colon + 1;
    amount.len = text->data + text->len - amount.data;

    expected = ngx_ratelimit_rule_spec(base, &amount, &tier->allowance.spec);

    return expected ? expected
                    : ngx_ratelimit_limit_init(&tier->allowance.limit,
                                               &tier->allowance.spec);
}

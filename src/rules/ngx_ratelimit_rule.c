/*
 * Rules: reading their rates, matching requests.
 */

#include "ngx_ratelimit_rule.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_route.h"
#include "ngx_ratelimit_text.h"

static ngx_uint_t ngx_ratelimit_rule_equal(const ngx_str_t *one,
    const ngx_str_t *two);


const char *
ngx_ratelimit_rule_limit(const ngx_ratelimit_spec_t *spec,
    const ngx_str_t *text, ngx_ratelimit_limit_t *limit)
{
    const char            *expected;
    ngx_ratelimit_spec_t   made;

    if (text == NULL) {
        return ngx_ratelimit_limit_init(limit, spec);
    }

    made = *spec;

    if (spec->period_us || spec->calendar
        || spec->algorithm == NGX_RATELIMIT_CONCURRENCY)
    {
        if (ngx_ratelimit_number_parse(text->data, text->len, 1,
                                       NGX_RATELIMIT_MAX_TOKENS,
                                       &made.tokens)
            != 0)
        {
            return "a number from 1 to 1073741824";
        }

    } else {
        expected = ngx_ratelimit_rate_parse(text->data, text->len,
                                            &made.tokens, &made.period_us);
        if (expected) {
            return expected;
        }
    }

    return ngx_ratelimit_limit_init(limit, &made);
}


/*
 * By the rule's id and the key alone, under keys that everybody knows: another
 * algorithm or zone key leaves a rule its clients, and a larger share contains
 * the smaller one.
 */
ngx_uint_t
ngx_ratelimit_rule_shares(const ngx_ratelimit_rule_t *rule,
    const ngx_str_t *key)
{
    u_char               rule_key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];
    ngx_uint_t           i;
    ngx_ratelimit_id_t   hash;

    static const u_char  id_key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    if (rule->percent == 100) {
        return 1;
    }

    hash = ngx_ratelimit_siphash(id_key, rule->id.data, rule->id.len, 1, 3);

    /* byte by byte: the same on machines of another order */

    for (i = 0; i < 8; i++) {
        rule_key[i] = (u_char) (hash.hi >> i * 8);
        rule_key[i + 8] = (u_char) (hash.lo >> i * 8);
    }

    hash = ngx_ratelimit_siphash(rule_key, key->data, key->len, 1, 3);

    return hash.hi % 100 < rule->percent;
}


ngx_uint_t
ngx_ratelimit_rule_match(const ngx_ratelimit_rule_t *rule, ngx_uint_t found,
    ngx_uint_t method, ngx_str_t *path, const ngx_str_t *tier, ngx_log_t *log)
{
#if (NGX_PCRE)
    ngx_int_t  n;
#endif

    if (rule->methods && !(rule->methods & method)) {
        return 0;
    }

    if (rule->tier.len && !ngx_ratelimit_rule_equal(&rule->tier, tier)) {
        return 0;
    }

    if (rule->route.len) {
        return found
               || ngx_ratelimit_route_match(rule->route.data, rule->route.len,
                                            path->data, path->len);
    }

#if (NGX_PCRE)

    if (rule->regex) {
        n = ngx_regex_exec(rule->regex, path, NULL, 0);

        if (n == NGX_REGEX_NO_MATCHED) {
            return 0;
        }

        if (n < 0) {
            ngx_log_error(NGX_LOG_ERR, log, 0,
                          ngx_regex_exec_n " failed: %i on ratelimit rule "
                          "\"%V\", the rule applies", n, &rule->id);
        }
    }

#endif

    return 1;
}


static ngx_uint_t
ngx_ratelimit_rule_equal(const ngx_str_t *one, const ngx_str_t *two)
{
    return one->len == two->len
           && ngx_memcmp(one->data, two->data, one->len) == 0;
}

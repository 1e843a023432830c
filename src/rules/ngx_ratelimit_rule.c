/*
 * Rules: reading their rates, naming their counters, matching requests.
 */

#include "ngx_ratelimit_rule.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_index.h"
#include "ngx_ratelimit_route.h"
#include "ngx_ratelimit_text.h"

static ngx_int_t ngx_ratelimit_rule_name(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule, ngx_pool_t *pool);


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


ngx_ratelimit_rule_t *
ngx_ratelimit_limiter_rule(ngx_ratelimit_limiter_t *limiter,
    const ngx_str_t *id)
{
    ngx_uint_t              i;
    ngx_ratelimit_rule_t  **rules;

    rules = limiter->rules.elts;

    for (i = 0; i < limiter->rules.nelts; i++) {
        if (rules[i]->id.len == id->len
            && ngx_strncmp(rules[i]->id.data, id->data, id->len) == 0)
        {
            return rules[i];
        }
    }

    return NULL;
}


ngx_int_t
ngx_ratelimit_limiter_prepare(ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool)
{
    ngx_uint_t              i, j;
    ngx_ratelimit_rule_t  **rules;

    rules = limiter->rules.elts;

    for (i = 0; i < limiter->rules.nelts; i++) {

        for (j = 0; j < i; j++) {
            if (rules[j]->key.len == rules[i]->key.len
                && ngx_strncmp(rules[j]->key.data, rules[i]->key.data,
                               rules[i]->key.len) == 0)
            {
                break;
            }
        }

        rules[i]->key_index = (j < i) ? rules[j]->key_index : limiter->nkeys++;

        if (ngx_ratelimit_rule_name(limiter, rules[i], pool) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_ratelimit_index_make(limiter, pool);
}


/*
 * A counter's name is the keyed hash of its key value, combined with these
 * constants of the rule; one hash then serves all rules with the same key.
 */
static ngx_int_t
ngx_ratelimit_rule_name(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule, ngx_pool_t *pool)
{
    u_char               digest[NGX_RATELIMIT_REDIS_DIGEST], *p, *name;

    static const u_char  key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    name = ngx_pnalloc(pool, limiter->zone.name.len + rule->id.len
                             + rule->key.len + 2);
    if (name == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name, "%V%Z%V%Z%V", &limiter->zone.name, &rule->id,
                    &rule->key);

    rule->salt = ngx_ratelimit_siphash(key, name, p - name, 1, 3);

    if (limiter->redis) {
        ngx_ratelimit_redis_digest(limiter->redis, name, p - name, digest);
        ngx_memcpy(rule->field_salt, digest, NGX_RATELIMIT_RULE_FIELD);
    }

    return NGX_OK;
}


ngx_uint_t
ngx_ratelimit_rule_shares(const ngx_ratelimit_rule_t *rule,
    const ngx_str_t *key)
{
    return 1;
}


ngx_uint_t
ngx_ratelimit_rule_match(const ngx_ratelimit_rule_t *rule, ngx_uint_t method,
    ngx_str_t *path, const ngx_str_t *tier, ngx_log_t *log)
{
#if (NGX_PCRE)
    ngx_int_t  n;
#endif

    if (rule->methods && !(rule->methods & method)) {
        return 0;
    }

    if (rule->route.len) {
        return ngx_ratelimit_route_match(rule->route.data, rule->route.len,
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

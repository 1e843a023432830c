/*
 * Rules: reading their rates, and which keys are in their share.
 */

#include "ngx_ratelimit_rule.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_text.h"


const char *
ngx_ratelimit_rule_spec(const ngx_ratelimit_spec_t *spec,
    const ngx_str_t *text, ngx_ratelimit_spec_t *made)
{
    *made = *spec;

    if (spec->period_us || spec->calendar
        || spec->algorithm == NGX_RATELIMIT_CONCURRENCY)
    {
        made->tokens = ngx_ratelimit_limit_word(text->data, text->len);

        if (made->tokens == 0
            && ngx_ratelimit_number_parse(text->data, text->len, 1,
                                          NGX_RATELIMIT_MAX_TOKENS,
                                          &made->tokens)
               != 0)
        {
            return "a number from 0 to 1073741824, or \"unlimited\"";
        }

        return NULL;
    }

    return ngx_ratelimit_rule_rate(text, &made->tokens, &made->period_us);
}


const char *
ngx_ratelimit_rule_rate(const ngx_str_t *text, uint64_t *tokens,
    uint64_t *period_us)
{
    const char  *expected;

    *tokens = ngx_ratelimit_limit_word(text->data, text->len);

    if (*tokens) {
        return NULL;
    }

    expected = ngx_ratelimit_rate_parse(text->data, text->len, tokens,
                                        period_us);

    if (expected == NULL && *tokens == 0) {
        *tokens = NGX_RATELIMIT_TOKENS_NONE;
    }

    return expected;
}


const char *
ngx_ratelimit_rule_split(const ngx_ratelimit_rule_t *rule)
{
    uint32_t                     capacity, n;
    ngx_ratelimit_rate_t         unused;
    const ngx_ratelimit_spec_t  *spec;

    if (rule->sync != NGX_RATELIMIT_SYNC_STRICT) {
        return "\"sync=strict\" with it";
    }

    if (rule->dynamic) {
        return "a limit without variables";
    }

    if (rule->dynamic_cost) {
        return "a cost without variables";
    }

    n = rule->shards;
    spec = &rule->spec;
    capacity = rule->limit.capacity;

    if (capacity == 0) {
        return "a limit from 1 on";
    }

    if (capacity < n) {
        return "as many shards as requests of the limit, or fewer";
    }

    if (rule->cost > capacity / n) {
        return "a cost of at most the limit divided by the shards";
    }

    if (spec->algorithm == NGX_RATELIMIT_TOKEN_BUCKET
        && ngx_ratelimit_rate_init(&unused, spec->tokens,
                                   spec->period_us * n,
                                   (capacity + n - 1) / n)
           != 0)
    {
        return "a rate whose period is at most 366 days when it is multiplied "
               "by the shards";
    }

    return NULL;
}


/*
 * No answer of Redis says what all parts have left; async goes on by what it
 * knows.
 */
ngx_ratelimit_fail_mode_e
ngx_ratelimit_rule_fail_mode(const ngx_ratelimit_rule_t *rule,
    ngx_ratelimit_fail_mode_e location)
{
    ngx_ratelimit_fail_mode_e  fail_mode;

    fail_mode = (rule->fail_mode != NGX_RATELIMIT_FAIL_DEFAULT)
                ? rule->fail_mode : location;

    if ((rule->shards && fail_mode == NGX_RATELIMIT_FAIL_LOCAL)
        || rule->sync == NGX_RATELIMIT_SYNC_ASYNC)
    {
        return NGX_RATELIMIT_FAIL_OPEN;
    }

    return fail_mode;
}


/* No text that names a counter is a key: each of them has a zero byte. */
ngx_ratelimit_id_t
ngx_ratelimit_key_salt(const ngx_str_t *key)
{
    static const u_char  hash_key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    return ngx_ratelimit_siphash(hash_key, key->data, key->len, 1, 3);
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

/*
 * Rules: reading their rates, and which keys are in their share.
 */

#include "ngx_rl_rule.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_text.h"


const char *
ngx_rl_rule_rate(const ngx_str_t *text, uint64_t *tokens, uint64_t *period_us)
{
    const char  *expected;

    *tokens = ngx_rl_limit_word(text->data, text->len);

    if (*tokens) {
        return NULL;
    }

    expected = ngx_rl_rate_parse(text->data, text->len, tokens, period_us);

    if (expected == NULL && *tokens == 0) {
        *tokens = NGX_RL_TOKENS_NONE;
    }

    return expected;
}


const char *
ngx_rl_rule_spec(const ngx_rl_spec_t *spec, const ngx_str_t *text,
    ngx_rl_spec_t *made)
{
    *made = *spec;

    if (spec->period_us || spec->calendar
        || spec->algorithm == NGX_RL_CONCURRENCY)
    {
        made->tokens = ngx_rl_limit_word(text->data, text->len);

        if (made->tokens == 0
            && ngx_rl_number_parse(text->data, text->len, 1, NGX_RL_MAX_TOKENS,
                                   &made->tokens)
               != 0)
        {
            return "a number from 0 to 1073741824, or \"unlimited\"";
        }

        return NULL;
    }

    return ngx_rl_rule_rate(text, &made->tokens, &made->period_us);
}


const char *
ngx_rl_rule_split(const ngx_rl_rule_t *rule)
{
    uint32_t              capacity, n;
    ngx_rl_rate_t         unused;
    const ngx_rl_spec_t  *spec;

    if (rule->sync != NGX_RL_SYNC_STRICT) {
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

    if (spec->algorithm == NGX_RL_TOKEN_BUCKET
        && ngx_rl_rate_init(&unused, spec->tokens, spec->period_us * n,
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
ngx_rl_fail_mode_e
ngx_rl_rule_fail_mode(const ngx_rl_rule_t *rule, ngx_rl_fail_mode_e location)
{
    ngx_rl_fail_mode_e  fail_mode;

    fail_mode = (rule->fail_mode != NGX_RL_FAIL_DEFAULT)
                ? rule->fail_mode : location;

    if ((rule->shards && fail_mode == NGX_RL_FAIL_LOCAL)
        || rule->sync == NGX_RL_SYNC_ASYNC)
    {
        return NGX_RL_FAIL_OPEN;
    }

    return fail_mode;
}


/* No text that names a counter is a key: each of them has a zero byte. */
ngx_rl_id_t
ngx_rl_key_salt(const ngx_str_t *key)
{
    static const u_char  hash_key[NGX_RL_SIPHASH_KEY_BYTES];

    return ngx_rl_siphash(hash_key, key->data, key->len, 1, 3);
}


/*
 * By the rule's id and the key alone, under keys that everybody knows: another
 * algorithm or zone key leaves a rule its clients, and a larger share contains
 * the smaller one.
 */
ngx_uint_t
ngx_rl_rule_shares(const ngx_rl_rule_t *rule, const ngx_str_t *key)
{
    u_char       rule_key[NGX_RL_SIPHASH_KEY_BYTES];
    ngx_uint_t   i;
    ngx_rl_id_t  hash;

    static const u_char  id_key[NGX_RL_SIPHASH_KEY_BYTES];

    if (rule->percent == 100) {
        return 1;
    }

    hash = ngx_rl_siphash(id_key, rule->id.data, rule->id.len, 1, 3);

    /* byte by byte: the same on machines of another order */

    for (i = 0; i < 8; i++) {
        rule_key[i] = (u_char) (hash.hi >> i * 8);
        rule_key[i + 8] = (u_char) (hash.lo >> i * 8);
    }

    hash = ngx_rl_siphash(rule_key, key->data, key->len, 1, 3);

    return hash.hi % 100 < rule->percent;
}

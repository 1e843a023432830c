/*
 * Rules: reading their rates, naming their counters, matching requests.
 */

#include "ngx_ratelimit_rule.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_index.h"
#include "ngx_ratelimit_route.h"
#include "ngx_ratelimit_text.h"

static void ngx_ratelimit_limiter_number_keys(
    ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_rule_t **sorted);
static void ngx_ratelimit_limiter_number_groups(
    ngx_ratelimit_limiter_t *limiter, ngx_ratelimit_rule_t **sorted);
static int ngx_libc_cdecl ngx_ratelimit_rule_cmp_keys(const void *one,
    const void *two);
static int ngx_libc_cdecl ngx_ratelimit_rule_cmp_groups(const void *one,
    const void *two);
static int ngx_libc_cdecl ngx_ratelimit_rule_cmp_ranks(const void *one,
    const void *two);
static ngx_int_t ngx_ratelimit_text_cmp(const ngx_str_t *one,
    const ngx_str_t *two);
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
    ngx_uint_t              i, n;
    ngx_ratelimit_rule_t  **rules, **sorted;

    rules = limiter->rules.elts;
    n = limiter->rules.nelts;

    sorted = ngx_alloc(n * sizeof(ngx_ratelimit_rule_t *), pool->log);
    if (sorted == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(sorted, rules, n * sizeof(ngx_ratelimit_rule_t *));

    ngx_qsort(sorted, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_rule_cmp_keys);
    ngx_ratelimit_limiter_number_keys(limiter, sorted);

    ngx_qsort(sorted, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_rule_cmp_groups);
    ngx_ratelimit_limiter_number_groups(limiter, sorted);

    ngx_free(sorted);

    for (i = 0; i < n; i++) {
        rules[i]->rank = i;
    }

    ngx_qsort(rules, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_rule_cmp_ranks);

    for (i = 0; i < n; i++) {
        rules[i]->rank = i;

        if (ngx_ratelimit_rule_name(limiter, rules[i], pool) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_ratelimit_index_make(limiter, pool);
}


/* Of rules sorted by their keys: equal ones have one number, from 0. */
static void
ngx_ratelimit_limiter_number_keys(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t **sorted)
{
    ngx_uint_t  i;

    limiter->nkeys = 0;

    for (i = 0; i < limiter->rules.nelts; i++) {

        if (i == 0
            || ngx_ratelimit_text_cmp(&sorted[i - 1]->key, &sorted[i]->key))
        {
            limiter->nkeys++;
        }

        sorted[i]->key_index = limiter->nkeys - 1;
    }
}


/* Of rules sorted by their groups: the same, from 1; without a group 0. */
static void
ngx_ratelimit_limiter_number_groups(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t **sorted)
{
    ngx_uint_t  i;

    limiter->ngroups = 0;

    for (i = 0; i < limiter->rules.nelts; i++) {

        if (sorted[i]->group.len == 0) {
            sorted[i]->group_index = 0;
            continue;
        }

        if (i == 0
            || ngx_ratelimit_text_cmp(&sorted[i - 1]->group,
                                      &sorted[i]->group))
        {
            limiter->ngroups++;
        }

        sorted[i]->group_index = limiter->ngroups;
    }
}


static int ngx_libc_cdecl
ngx_ratelimit_rule_cmp_keys(const void *one, const void *two)
{
    const ngx_ratelimit_rule_t *const  *a = one;
    const ngx_ratelimit_rule_t *const  *b = two;

    return (int) ngx_ratelimit_text_cmp(&(*a)->key, &(*b)->key);
}


static int ngx_libc_cdecl
ngx_ratelimit_rule_cmp_groups(const void *one, const void *two)
{
    const ngx_ratelimit_rule_t *const  *a = one;
    const ngx_ratelimit_rule_t *const  *b = two;

    return (int) ngx_ratelimit_text_cmp(&(*a)->group, &(*b)->group);
}


/* Ranks still are the order in which the rules came, no two the same. */
static int ngx_libc_cdecl
ngx_ratelimit_rule_cmp_ranks(const void *one, const void *two)
{
    const ngx_ratelimit_rule_t *const  *a = one;
    const ngx_ratelimit_rule_t *const  *b = two;

    if ((*a)->priority != (*b)->priority) {
        return ((*a)->priority > (*b)->priority) ? -1 : 1;
    }

    return ((*a)->rank < (*b)->rank) ? -1 : 1;
}


/* An order of texts, the shorter first; 0 when they are equal. */
static ngx_int_t
ngx_ratelimit_text_cmp(const ngx_str_t *one, const ngx_str_t *two)
{
    if (one->len != two->len) {
        return (one->len < two->len) ? -1 : 1;
    }

    return one->len ? ngx_memcmp(one->data, two->data, one->len) : 0;
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
    const char          *algorithm;

    static const u_char  key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    algorithm = ngx_ratelimit_algorithm_name(rule->spec.algorithm);

    name = ngx_pnalloc(pool, limiter->zone.name.len + rule->id.len
                             + rule->key.len + ngx_strlen(algorithm) + 3);
    if (name == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name, "%V%Z%V%Z%V%Z%s", &limiter->zone.name, &rule->id,
                    &rule->key, algorithm);

    rule->salt = ngx_ratelimit_siphash(key, name, p - name, 1, 3);

    /* another hash function of the same name: other counters */

    rule->emergency_salt = ngx_ratelimit_siphash(key, name, p - name, 2, 4);

    if (limiter->redis) {
        ngx_ratelimit_redis_digest(limiter->redis, name, p - name, digest);
        ngx_memcpy(rule->field_salt, digest, NGX_RATELIMIT_RULE_FIELD);
    }

    return NGX_OK;
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

    if (rule->tier.len && ngx_ratelimit_text_cmp(&rule->tier, tier) != 0) {
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

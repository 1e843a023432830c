/*
 * Policies: how one is made of its rules, and who frees it.
 */

/* EVP would allocate for each digest */
#ifndef OPENSSL_SUPPRESS_DEPRECATED
#define OPENSSL_SUPPRESS_DEPRECATED
#endif

#include "ngx_ratelimit_policy.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_index.h"

#include <openssl/sha.h>

#define NGX_RATELIMIT_POLICY_POOL  65536   /* bytes of a block */

#define NGX_RATELIMIT_SHA256       "sha256:"
#define NGX_RATELIMIT_SHA256_LEN   (sizeof(NGX_RATELIMIT_SHA256) - 1)

static ngx_int_t ngx_ratelimit_policy_copy(ngx_ratelimit_policy_t *policy,
    const ngx_ratelimit_policy_t *base);
static ngx_int_t ngx_ratelimit_policy_fix(ngx_ratelimit_policy_t *policy);
static void ngx_ratelimit_policy_mark(ngx_ratelimit_policy_t *policy);
static ngx_uint_t ngx_ratelimit_policy_any(const ngx_ratelimit_rule_t *rule);
static ngx_int_t ngx_ratelimit_policy_number(ngx_ratelimit_policy_t *policy);
static void ngx_ratelimit_policy_number_keys(ngx_ratelimit_policy_t *policy,
    ngx_ratelimit_rule_t **sorted);
static void ngx_ratelimit_policy_number_groups(
    ngx_ratelimit_policy_t *policy, ngx_ratelimit_rule_t **sorted);
static ngx_int_t ngx_ratelimit_policy_cost_headers(
    ngx_ratelimit_policy_t *policy, ngx_ratelimit_rule_t **sorted);
static int ngx_libc_cdecl ngx_ratelimit_policy_cmp_keys(const void *one,
    const void *two);
static int ngx_libc_cdecl ngx_ratelimit_policy_cmp_groups(const void *one,
    const void *two);
static int ngx_libc_cdecl ngx_ratelimit_policy_cmp_costs(const void *one,
    const void *two);
static int ngx_libc_cdecl ngx_ratelimit_policy_cmp_ranks(const void *one,
    const void *two);
static ngx_int_t ngx_ratelimit_policy_cmp(const ngx_str_t *one,
    const ngx_str_t *two);
static ngx_int_t ngx_ratelimit_policy_name(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule, ngx_log_t *log);
static ngx_int_t ngx_ratelimit_policy_digest_read(const ngx_str_t *key,
    u_char digest[NGX_RATELIMIT_MAP_KEY]);


ngx_ratelimit_policy_t *
ngx_ratelimit_policy_base(ngx_ratelimit_limiter_t *limiter, ngx_pool_t *pool)
{
    ngx_ratelimit_policy_t  *policy;

    policy = ngx_pcalloc(pool, sizeof(ngx_ratelimit_policy_t));
    if (policy == NULL) {
        return NULL;
    }

    if (ngx_array_init(&policy->rules, pool, 4, sizeof(ngx_ratelimit_rule_t *))
        != NGX_OK)
    {
        return NULL;
    }

    policy->limiter = limiter;

    limiter->base = policy;
    limiter->policy = policy;

    return policy;
}


ngx_ratelimit_policy_t *
ngx_ratelimit_policy_create(ngx_ratelimit_limiter_t *limiter, ngx_log_t *log)
{
    ngx_pool_t              *pool;
    ngx_ratelimit_policy_t  *policy;

    pool = ngx_create_pool(NGX_RATELIMIT_POLICY_POOL, log);
    if (pool == NULL) {
        return NULL;
    }

    policy = ngx_pcalloc(pool, sizeof(ngx_ratelimit_policy_t));

    if (policy == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    policy->pool = pool;
    policy->refs = 1;
    policy->limiter = limiter;

    if (ngx_array_init(&policy->rules, pool, limiter->base->nfixed + 4,
                       sizeof(ngx_ratelimit_rule_t *))
        != NGX_OK
        || ngx_ratelimit_problems_init(&policy->skipped, pool) != NGX_OK
        || ngx_ratelimit_policy_copy(policy, limiter->base) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    return policy;
}


/* Ranks, indexes, numbers are of one policy; what is pointed to is shared. */
static ngx_int_t
ngx_ratelimit_policy_copy(ngx_ratelimit_policy_t *policy,
    const ngx_ratelimit_policy_t *base)
{
    ngx_uint_t              i, n;
    ngx_ratelimit_rule_t   *copies, **rules;

    n = base->nfixed;

    copies = ngx_palloc(policy->pool, n * sizeof(ngx_ratelimit_rule_t));
    policy->fixed = ngx_palloc(policy->pool,
                               n * sizeof(ngx_ratelimit_rule_t *));
    rules = ngx_array_push_n(&policy->rules, n);

    if (copies == NULL || policy->fixed == NULL || rules == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        copies[i] = *base->fixed[i];
        policy->fixed[i] = &copies[i];
        rules[i] = &copies[i];
    }

    policy->nfixed = n;

    return NGX_OK;
}


ngx_int_t
ngx_ratelimit_policy_complete(ngx_ratelimit_policy_t *policy)
{
    ngx_uint_t              i, n;
    ngx_ratelimit_rule_t  **rules;

    if (policy->pool == NULL && ngx_ratelimit_policy_fix(policy) != NGX_OK) {
        return NGX_ERROR;
    }

    rules = policy->rules.elts;
    n = policy->rules.nelts;

    for (i = 0; i < n; i++) {
        rules[i]->policy = policy;
        rules[i]->rank = i;

        if (i < policy->nfixed) {
            rules[i]->number = i;
        }

        if (ngx_ratelimit_policy_name(policy->limiter, rules[i],
                                      policy->rules.pool->log)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_ratelimit_policy_number(policy) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_qsort(rules, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_policy_cmp_ranks);

    for (i = 0; i < n; i++) {
        rules[i]->rank = i;
    }

    ngx_ratelimit_policy_mark(policy);

    return ngx_ratelimit_index_make(policy, policy->rules.pool);
}


/* What there is to look at of a request, so that nothing else is. */
static void
ngx_ratelimit_policy_mark(ngx_ratelimit_policy_t *policy)
{
    ngx_uint_t                   i;
    ngx_ratelimit_rule_t       **rules;
    const ngx_ratelimit_keys_t  *keys;

    if (policy->allow.digests.entries || policy->deny.digests.entries
        || policy->tier_keys.entries || policy->override_keys.entries)
    {
        policy->digested = 1;
    }

    if (policy->allow.globs || policy->deny.globs || policy->tier_patterns) {
        policy->keyed = 1;
    }

    rules = policy->rules.elts;

    for (i = 0; i < policy->rules.nelts; i++) {
        keys = rules[i]->api_keys;

        policy->keyed |= (keys != NULL);
        policy->digested |= (keys && keys->digests.entries)
                            || rules[i]->keys.entries;
        policy->routed |= (rules[i]->route.len != 0);
        policy->settles |= (rules[i]->statuses != NULL
                            || rules[i]->cost_header.len);
        rules[i]->any = ngx_ratelimit_policy_any(rules[i]);
    }

    policy->keyed |= policy->digested;
}


static ngx_uint_t
ngx_ratelimit_policy_any(const ngx_ratelimit_rule_t *rule)
{
#if (NGX_PCRE)
    if (rule->regex) {
        return 0;
    }
#endif

    return rule->methods == 0 && rule->route.len == 0
           && rule->regex_text.len == 0 && rule->nhosts == 0
           && rule->api_keys == NULL && rule->tier.len == 0;
}


/* Of nginx.conf: its rules, in the order in which they came. */
static ngx_int_t
ngx_ratelimit_policy_fix(ngx_ratelimit_policy_t *policy)
{
    ngx_uint_t  n;

    n = policy->rules.nelts;

    policy->fixed = ngx_palloc(policy->rules.pool,
                               ngx_max(n, 1) * sizeof(ngx_ratelimit_rule_t *));
    if (policy->fixed == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(policy->fixed, policy->rules.elts,
               n * sizeof(ngx_ratelimit_rule_t *));
    policy->nfixed = n;

    return NGX_OK;
}


/* What rules share has a number, found by sorting them. */
static ngx_int_t
ngx_ratelimit_policy_number(ngx_ratelimit_policy_t *policy)
{
    ngx_int_t               rc;
    ngx_uint_t              n;
    ngx_ratelimit_rule_t  **sorted;

    n = policy->rules.nelts;

    if (n == 0) {
        return NGX_OK;
    }

    sorted = ngx_alloc(n * sizeof(ngx_ratelimit_rule_t *),
                       policy->rules.pool->log);
    if (sorted == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(sorted, policy->rules.elts, n * sizeof(ngx_ratelimit_rule_t *));

    ngx_qsort(sorted, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_policy_cmp_keys);
    ngx_ratelimit_policy_number_keys(policy, sorted);

    ngx_qsort(sorted, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_policy_cmp_groups);
    ngx_ratelimit_policy_number_groups(policy, sorted);

    ngx_qsort(sorted, n, sizeof(ngx_ratelimit_rule_t *),
              ngx_ratelimit_policy_cmp_costs);
    rc = ngx_ratelimit_policy_cost_headers(policy, sorted);

    ngx_free(sorted);

    return rc;
}


/* Of rules sorted by their keys: equal ones have one number, from 0. */
static void
ngx_ratelimit_policy_number_keys(ngx_ratelimit_policy_t *policy,
    ngx_ratelimit_rule_t **sorted)
{
    ngx_uint_t  i;

    policy->nkeys = 0;

    for (i = 0; i < policy->rules.nelts; i++) {

        if (i == 0
            || ngx_ratelimit_policy_cmp_keys(&sorted[i - 1], &sorted[i]))
        {
            policy->nkeys++;
        }

        sorted[i]->key_index = policy->nkeys - 1;
    }
}


/* Of rules sorted by their groups: the same, from 1; without a group 0. */
static void
ngx_ratelimit_policy_number_groups(ngx_ratelimit_policy_t *policy,
    ngx_ratelimit_rule_t **sorted)
{
    ngx_uint_t  i;

    policy->ngroups = 0;

    for (i = 0; i < policy->rules.nelts; i++) {

        if (sorted[i]->group.len == 0) {
            sorted[i]->group_index = 0;
            continue;
        }

        if (i == 0
            || ngx_ratelimit_policy_cmp_groups(&sorted[i - 1], &sorted[i]))
        {
            policy->ngroups++;
        }

        sorted[i]->group_index = policy->ngroups;
    }
}


/* Of rules sorted by them, those without one first. */
static ngx_int_t
ngx_ratelimit_policy_cost_headers(ngx_ratelimit_policy_t *policy,
    ngx_ratelimit_rule_t **sorted)
{
    ngx_str_t    *header;
    ngx_uint_t    i;
    ngx_array_t   headers;

    if (ngx_array_init(&headers, policy->rules.pool, 1, sizeof(ngx_str_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < policy->rules.nelts; i++) {

        if (sorted[i]->cost_header.len == 0
            || (i && ngx_ratelimit_policy_cmp_costs(&sorted[i - 1],
                                                    &sorted[i]) == 0))
        {
            continue;
        }

        header = ngx_array_push(&headers);
        if (header == NULL) {
            return NGX_ERROR;
        }

        *header = sorted[i]->cost_header;
    }

    policy->cost_headers = headers.elts;
    policy->ncost_headers = headers.nelts;

    return NGX_OK;
}


/*
 * A key of several parts is another than one of a single part, whatever text
 * that has: it is made in another way.
 */
static int ngx_libc_cdecl
ngx_ratelimit_policy_cmp_keys(const void *one, const void *two)
{
    const ngx_ratelimit_rule_t *const  *a = one;
    const ngx_ratelimit_rule_t *const  *b = two;

    if (((*a)->nparts > 1) != ((*b)->nparts > 1)) {
        return ((*a)->nparts > 1) ? 1 : -1;
    }

    return (int) ngx_ratelimit_policy_cmp(&(*a)->key, &(*b)->key);
}


static int ngx_libc_cdecl
ngx_ratelimit_policy_cmp_groups(const void *one, const void *two)
{
    const ngx_ratelimit_rule_t *const  *a = one;
    const ngx_ratelimit_rule_t *const  *b = two;

    return (int) ngx_ratelimit_policy_cmp(&(*a)->group, &(*b)->group);
}


static int ngx_libc_cdecl
ngx_ratelimit_policy_cmp_costs(const void *one, const void *two)
{
    const ngx_ratelimit_rule_t *const  *a = one;
    const ngx_ratelimit_rule_t *const  *b = two;

    return (int) ngx_ratelimit_policy_cmp(&(*a)->cost_header,
                                          &(*b)->cost_header);
}


/* Ranks still are the order in which the rules came, no two the same. */
static int ngx_libc_cdecl
ngx_ratelimit_policy_cmp_ranks(const void *one, const void *two)
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
ngx_ratelimit_policy_cmp(const ngx_str_t *one, const ngx_str_t *two)
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
ngx_ratelimit_policy_name(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_rule_t *rule, ngx_log_t *log)
{
    u_char               digest[NGX_RATELIMIT_REDIS_DIGEST], *p, *name;
    const char          *algorithm;

    static const u_char  key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    algorithm = ngx_ratelimit_algorithm_name(rule->spec.algorithm);

    name = ngx_alloc(limiter->zone.name.len + rule->id.len + rule->key.len
                     + ngx_strlen(algorithm) + 3, log);
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

    ngx_free(name);

    return NGX_OK;
}


ngx_ratelimit_rule_t *
ngx_ratelimit_limiter_rule(const ngx_ratelimit_limiter_t *limiter,
    const ngx_str_t *id)
{
    ngx_uint_t              i;
    ngx_ratelimit_rule_t  **rules;

    rules = limiter->base->rules.elts;

    for (i = 0; i < limiter->base->rules.nelts; i++) {
        if (ngx_ratelimit_policy_cmp(&rules[i]->id, id) == 0) {
            return rules[i];
        }
    }

    return NULL;
}


void
ngx_ratelimit_policy_digest(const ngx_str_t *key,
    u_char digest[NGX_RATELIMIT_MAP_KEY])
{
    u_char  whole[SHA256_DIGEST_LENGTH];

    if (ngx_ratelimit_policy_digest_read(key, digest) == NGX_OK) {
        return;
    }

    SHA256(key->data, key->len, whole);
    ngx_memcpy(digest, whole, NGX_RATELIMIT_MAP_KEY);
}


ngx_uint_t
ngx_ratelimit_policy_hashed(const ngx_str_t *key)
{
    u_char  digest[NGX_RATELIMIT_MAP_KEY];

    return ngx_ratelimit_policy_digest_read(key, digest) == NGX_OK;
}


/* "sha256:" and 64 hexadecimal digits; NGX_DECLINED: it is something else. */
static ngx_int_t
ngx_ratelimit_policy_digest_read(const ngx_str_t *key,
    u_char digest[NGX_RATELIMIT_MAP_KEY])
{
    u_char     *p;
    ngx_int_t   value;
    ngx_uint_t  i;

    if (key->len != NGX_RATELIMIT_SHA256_LEN + 2 * SHA256_DIGEST_LENGTH
        || ngx_strncmp(key->data, NGX_RATELIMIT_SHA256,
                       NGX_RATELIMIT_SHA256_LEN)
           != 0)
    {
        return NGX_DECLINED;
    }

    p = key->data + NGX_RATELIMIT_SHA256_LEN;

    for (i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        value = ngx_hextoi(p + 2 * i, 2);

        if (value == NGX_ERROR) {
            return NGX_DECLINED;
        }

        if (i < NGX_RATELIMIT_MAP_KEY) {
            digest[i] = (u_char) value;
        }
    }

    return NGX_OK;
}


/* The part's length makes its end known: no other two texts are these. */
void
ngx_ratelimit_policy_part_digest(const ngx_str_t *part,
    const ngx_str_t *value, u_char digest[NGX_RATELIMIT_MAP_KEY])
{
    u_char       whole[SHA256_DIGEST_LENGTH], len[8];
    uint64_t     n;
    SHA256_CTX   ctx;
    ngx_uint_t   i;

    static const u_char  head[] = "part";

    n = part->len;

    for (i = 0; i < sizeof(len); i++) {
        len[i] = (u_char) (n >> 8 * i);
    }

    SHA256_Init(&ctx);
    SHA256_Update(&ctx, head, sizeof(head));
    SHA256_Update(&ctx, len, sizeof(len));
    SHA256_Update(&ctx, part->data, part->len);
    SHA256_Update(&ctx, value->data, value->len);
    SHA256_Final(whole, &ctx);

    ngx_memcpy(digest, whole, NGX_RATELIMIT_MAP_KEY);
}


void
ngx_ratelimit_policy_skip(ngx_ratelimit_policy_t *policy,
    const ngx_str_t *id, const ngx_str_t *pointer, const ngx_str_t *detail)
{
    ngx_uint_t                n;
    ngx_ratelimit_problem_t  *skipped;

    n = policy->skipped.list.nelts;

    ngx_ratelimit_problem(&policy->skipped, pointer, "%V", detail);

    if (policy->skipped.list.nelts == n || id == NULL || id->len == 0) {
        return;
    }

    skipped = policy->skipped.list.elts;
    skipped[n].id.data = ngx_pstrdup(policy->pool, (ngx_str_t *) id);
    skipped[n].id.len = skipped[n].id.data ? id->len : 0;
}


void
ngx_ratelimit_policy_swap(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_policy_t *policy)
{
    ngx_ratelimit_policy_t  *before;

    before = limiter->policy;
    limiter->policy = policy;

    ngx_ratelimit_policy_release(before);
}

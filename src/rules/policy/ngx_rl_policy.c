/*
 * Policies: how one is made of its rules, and freed. And the index of
 * its rules. Each template has a list of its rules, which a set of templates
 * finds. One more list has the rules that any path may match: they have no
 * template, or a regular expression. All lists are in the order of ranks, and
 * one array holds them all.
 */

#include "ngx_rl_policy.h"

#include "ngx_rl_hash.h"

#define NGX_RL_POLICY_POOL    65536   /* bytes of a block */
#define NGX_RL_PROBLEM_BYTES  1024    /* of a detail */

/* of any path; the list of template n is list n + 1 */
#define NGX_RL_INDEX_ANY  0

typedef struct {
    ngx_uint_t        n;
    ngx_rl_rule_t   **rules;
} ngx_rl_index_list_t;

typedef struct {
    ngx_rl_route_set_t    set;
    ngx_rl_index_list_t  *lists;
} ngx_rl_index_t;

ngx_int_t
ngx_rl_problems_init(ngx_rl_problems_t *problems, ngx_pool_t *pool)
{
    problems->pool = pool;
    problems->n = 0;

    return ngx_array_init(&problems->list, pool, 4, sizeof(ngx_rl_problem_t));
}


/* Without memory it is counted, and not kept. */
void
ngx_rl_problem(ngx_rl_problems_t *problems, const ngx_str_t *id,
    const ngx_str_t *pointer, const char *detail, ...)
{
    u_char            *p, *last, text[NGX_RL_PROBLEM_BYTES];
    va_list            args;
    ngx_rl_problem_t  *problem;

    problems->n++;

    if (problems->list.nelts >= NGX_RL_MAX_PROBLEMS) {
        return;
    }

    va_start(args, detail);
    last = ngx_vslprintf(text, text + sizeof(text), detail, args);
    va_end(args);

    p = ngx_pnalloc(problems->pool, (id ? id->len : 0) + pointer->len + 1
                                    + (last - text) + 1);
    problem = p ? ngx_array_push(&problems->list) : NULL;

    if (problem == NULL) {
        return;
    }

    problem->pointer = ngx_rl_str(p, pointer->len);
    p = ngx_cpymem(p, pointer->data, pointer->len);
    *p++ = '\0';

    problem->detail = ngx_rl_str(p, last - text);
    p = ngx_cpymem(p, text, last - text);
    *p = '\0';

    ngx_str_null(&problem->id);

    if (id && id->len) {
        problem->id.data = ++p;
        problem->id.len = id->len;
        ngx_memcpy(p, id->data, id->len);
    }
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
 * algorithm or zone key leaves a rule its clients, and a larger percent has
 * those of the smaller one.
 */
ngx_uint_t
ngx_rl_rule_percent(const ngx_rl_rule_t *rule, const ngx_str_t *key)
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


ngx_rl_policy_t *
ngx_rl_policy_base(ngx_rl_limiter_t *limiter, ngx_pool_t *pool)
{
    ngx_rl_policy_t  *policy;

    policy = ngx_pcalloc(pool, sizeof(ngx_rl_policy_t));
    if (policy == NULL) {
        return NULL;
    }

    if (ngx_array_init(&policy->rules, pool, 4, sizeof(ngx_rl_rule_t *))
        != NGX_OK)
    {
        return NULL;
    }

    policy->limiter = limiter;

    limiter->base = policy;
    limiter->policy = policy;

    return policy;
}


/* Ranks, indexes, numbers are of one policy; texts and limits are shared. */
ngx_rl_policy_t *
ngx_rl_policy_create(ngx_rl_limiter_t *limiter, ngx_log_t *log)
{
    ngx_uint_t        i, n;
    ngx_pool_t       *pool;
    ngx_rl_rule_t    *copies, **fixed, **rules;
    ngx_rl_policy_t  *policy;

    pool = ngx_create_pool(NGX_RL_POLICY_POOL, log);
    if (pool == NULL) {
        return NULL;
    }

    n = limiter->base->nfixed;

    policy = ngx_pcalloc(pool, sizeof(ngx_rl_policy_t));
    copies = ngx_palloc(pool, n * sizeof(ngx_rl_rule_t));
    fixed = ngx_palloc(pool, n * sizeof(ngx_rl_rule_t *));

    if (policy == NULL || copies == NULL || fixed == NULL
        || ngx_array_init(&policy->rules, pool, n + 4, sizeof(ngx_rl_rule_t *))
           != NGX_OK
        || ngx_rl_problems_init(&policy->skipped, pool) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    policy->pool = pool;
    policy->refs = 1;
    policy->limiter = limiter;
    policy->fixed = fixed;
    policy->nfixed = n;

    rules = ngx_array_push_n(&policy->rules, n);   /* there is room */

    for (i = 0; i < n; i++) {
        copies[i] = *limiter->base->fixed[i];
        fixed[i] = &copies[i];
        rules[i] = &copies[i];
    }

    return policy;
}


/*
 * A counter's name is the keyed hash of its key value, combined with these
 * constants of the rule; one hash then serves all rules with the same key.
 */
static ngx_int_t
ngx_rl_policy_salts(ngx_rl_limiter_t *limiter, ngx_rl_rule_t *rule,
    ngx_log_t *log)
{
    u_char       *p, *name;
    const char   *algorithm;
    ngx_rl_id_t   id;

    static const u_char  key[NGX_RL_SIPHASH_KEY_BYTES];

    algorithm = ngx_rl_algorithm_names[rule->spec.algorithm];

    name = ngx_alloc(limiter->zone.name.len + rule->id.len + rule->key.len
                     + ngx_strlen(algorithm) + 3, log);
    if (name == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name, "%V%Z%V%Z%V%Z%s", &limiter->zone.name, &rule->id,
                    &rule->key, algorithm);

    rule->salt = ngx_rl_siphash(key, name, p - name, 1, 3);
    rule->key_salt = ngx_rl_key_salt(&rule->key);

    /* another hash function of the same name: other counters */

    rule->emergency_salt = ngx_rl_siphash(key, name, p - name, 2, 4);

    if (limiter->redis) {

        /* the half that the fields of keys are not made of */

        id = ngx_rl_redis_id(limiter->redis, name, p - name);
        ngx_memcpy(rule->field_salt, &id.lo, NGX_RL_RULE_FIELD);
    }

    ngx_free(name);

    return NGX_OK;
}


/*
 * Numbers the distinct texts of the rules, from 1 on, as they come; 0: the text
 * is empty. Returns how many there are. Each is compared with all before it: a
 * document has 1,000 rules at most.
 */
static ngx_uint_t
ngx_rl_policy_number(const ngx_rl_policy_t *policy, size_t offset,
    ngx_uint_t *numbers)
{
    ngx_str_t       *text, *other;
    ngx_uint_t       i, j, n;
    ngx_rl_rule_t  **rules;

    rules = policy->rules.elts;
    n = 0;

    for (i = 0; i < policy->rules.nelts; i++) {
        text = (ngx_str_t *) ((u_char *) rules[i] + offset);

        for (j = 0; j < i; j++) {
            other = (ngx_str_t *) ((u_char *) rules[j] + offset);

            /* a key of several parts is none of a single one */

            if (ngx_rl_equal(text, other)
                && (offset != offsetof(ngx_rl_rule_t, key)
                    || (rules[i]->nparts > 1) == (rules[j]->nparts > 1)))
            {
                break;
            }
        }

        numbers[i] = (text->len == 0) ? 0 : (j < i) ? numbers[j] : ++n;
    }

    return n;
}


/* Equal keys, groups and headers get the same number. */
static ngx_int_t
ngx_rl_policy_numbers(ngx_rl_policy_t *policy)
{
    ngx_uint_t       i, n, *numbers;
    ngx_rl_rule_t  **rules;

    rules = policy->rules.elts;
    n = policy->rules.nelts;

    if (n == 0) {
        return NGX_OK;
    }

    policy->cost_headers = ngx_palloc(policy->rules.pool,
                                      n * sizeof(ngx_str_t));
    numbers = ngx_alloc(n * sizeof(ngx_uint_t), policy->rules.pool->log);

    if (numbers == NULL || policy->cost_headers == NULL) {
        ngx_free(numbers);
        return NGX_ERROR;
    }

    policy->nkeys = ngx_rl_policy_number(policy, offsetof(ngx_rl_rule_t, key),
                                         numbers);

    for (i = 0; i < n; i++) {
        rules[i]->key_index = numbers[i] - 1;
    }

    policy->ngroups = ngx_rl_policy_number(policy,
                                           offsetof(ngx_rl_rule_t, group),
                                           numbers);

    /* dry runs replace each other, and no rule that is enforced */

    for (i = 0; i < n; i++) {
        rules[i]->group_index = numbers[i];
        rules[i]->group_index += (numbers[i] && rules[i]->dry_run)
                                 ? policy->ngroups : 0;
    }

    policy->ncost_headers = ngx_rl_policy_number(policy,
                                offsetof(ngx_rl_rule_t, cost_header), numbers);

    for (i = 0; i < n; i++) {
        if (numbers[i]) {
            policy->cost_headers[numbers[i] - 1] = rules[i]->cost_header;
        }
    }

    ngx_free(numbers);

    return NGX_OK;
}


/* Ranks still are the order in which the rules came, no two the same. */
static int ngx_libc_cdecl
ngx_rl_policy_cmp_ranks(const void *one, const void *two)
{
    const ngx_rl_rule_t *const  *a = one;
    const ngx_rl_rule_t *const  *b = two;

    if ((*a)->priority != (*b)->priority) {
        return ((*a)->priority > (*b)->priority) ? -1 : 1;
    }

    return ((*a)->rank < (*b)->rank) ? -1 : 1;
}


static ngx_uint_t
ngx_rl_policy_needs(const ngx_rl_policy_t *policy, const ngx_rl_rule_t *rule)
{
    ngx_uint_t  needs;

    /* nothing of a request is read for a rule that never applies */

    if (rule->disabled) {
        return NGX_RL_NEEDS_MATCH;
    }

    needs = (rule->methods || rule->route.len || rule->regex_text.len
             || rule->nhosts || rule->api_keys || rule->tier.len
             || rule->networks || rule->nconditions || rule->skipped
             || rule->timed)
            ? NGX_RL_NEEDS_MATCH : 0;

#if (NGX_PCRE)
    needs |= rule->regex ? NGX_RL_NEEDS_MATCH : 0;
#endif

    needs |= rule->route.len ? NGX_RL_NEEDS_ROUTE : 0;
    needs |= rule->api_keys ? NGX_RL_NEEDS_KEY : 0;
    needs |= rule->networks ? NGX_RL_NEEDS_ADDRESS : 0;
    needs |= (rule->keys.entries
              || (rule->api_keys && rule->api_keys->digests.entries))
             ? NGX_RL_NEEDS_DIGEST : 0;

    needs |= rule->group_index ? NGX_RL_NEEDS_GROUP : 0;
    needs |= (rule->percent != 100) ? NGX_RL_NEEDS_PERCENT : 0;
    needs |= (rule->ntier_limits || rule->key_limits || rule->dynamic
              || rule->narrowed || rule->limit.unlimited
              || policy->overrides)
             ? NGX_RL_NEEDS_LIMIT : 0;

    needs |= rule->dynamic_cost ? NGX_RL_NEEDS_COST : 0;
    needs |= policy->limiter->new_keys ? NGX_RL_NEEDS_NEW_KEYS : 0;
    needs |= rule->retry_growth ? NGX_RL_NEEDS_RETRY : 0;
    needs |= (rule->statuses || rule->cost_header.len) ? NGX_RL_NEEDS_SETTLE
                                                       : 0;
    needs |= rule->cost_end.len ? NGX_RL_NEEDS_SETTLE|NGX_RL_NEEDS_END : 0;

    return needs;
}


/* Marks the parts of a request that the policy needs. */
static void
ngx_rl_policy_mark(ngx_rl_policy_t *policy)
{
    ngx_uint_t               i;
    ngx_rl_rule_t          **rules;
    const ngx_rl_policy_t   *base;
    ngx_rl_policy_source_t  *source;

    base = policy->limiter->base;

    policy->needs = (policy->limiter->redis || policy->limiter->fleet)
                    ? NGX_RL_NEEDS_REDIS : 0;

    if (policy->limiter->penalties) {
        policy->needs |= NGX_RL_NEEDS_PENALTY;
    }

    policy->needs |= ngx_rl_clients_needs(&policy->allow)
                     | ngx_rl_clients_needs(&policy->deny)
                     | ngx_rl_clients_needs(&base->allow)
                     | ngx_rl_clients_needs(&base->deny);

    if (policy->override_keys.entries) {
        policy->needs |= NGX_RL_NEEDS_DIGEST;
    }

    source = policy->sources.elts;

    for (i = 0; i < policy->sources.nelts; i++) {

        if (source[i].rule == NULL) {
            policy->needs |= ngx_rl_clients_needs(&source[i].tiers)
                             & (NGX_RL_NEEDS_DIGEST|NGX_RL_NEEDS_KEY);
        }

        policy->needs |= source[i].listed ? NGX_RL_NEEDS_LISTS : 0;
    }

    rules = policy->rules.elts;
    policy->most = policy->ngroups;

    for (i = 0; i < policy->rules.nelts; i++) {
        rules[i]->needs = ngx_rl_policy_needs(policy, rules[i]);
        policy->needs |= rules[i]->needs;
        policy->most += (rules[i]->group_index == 0
                         || rules[i]->group_index > policy->ngroups);
    }

    if (policy->needs & NGX_RL_NEEDS_DIGEST) {
        policy->needs |= NGX_RL_NEEDS_KEY;
    }
}


/* The number of the list where a rule belongs; its template is known then. */
static ngx_uint_t
ngx_rl_index_list(ngx_rl_index_t *index, const ngx_rl_rule_t *rule)
{
    if (rule->route.len == 0) {
        return NGX_RL_INDEX_ANY;
    }

    return ngx_rl_route_set_add(&index->set, rule->route.data, rule->route.len)
           + 1;
}


/* The rules stand in the order of their ranks, and do not change. */
static ngx_int_t
ngx_rl_index_make(ngx_rl_policy_t *policy, ngx_pool_t *pool)
{
    void                 *memory;
    size_t                bytes, segments;
    ngx_uint_t            i, n, templates;
    ngx_rl_rule_t       **rules, **room;
    ngx_rl_index_t       *index;
    ngx_rl_index_list_t  *list;

    rules = policy->rules.elts;
    n = policy->rules.nelts;
    segments = 0;
    templates = 0;

    for (i = 0; i < n; i++) {
        if (rules[i]->route.len) {
            segments += ngx_rl_route_segments(rules[i]->route.data,
                                              rules[i]->route.len);
            templates++;
        }
    }

    bytes = ngx_rl_route_set_bytes(segments);
    memory = bytes ? ngx_palloc(pool, bytes) : NULL;
    index = ngx_pcalloc(pool, sizeof(ngx_rl_index_t));

    if (memory == NULL || index == NULL) {
        return NGX_ERROR;
    }

    ngx_rl_route_set_init(&index->set, memory, segments);

    index->lists = ngx_pcalloc(pool,
                               (templates + 1) * sizeof(ngx_rl_index_list_t));
    if (index->lists == NULL) {
        return NGX_ERROR;
    }

    /* without rules, too, the lists point to memory */

    room = ngx_palloc(pool, ngx_max(n, 1) * sizeof(ngx_rl_rule_t *));
    if (room == NULL) {
        return NGX_ERROR;
    }

    /* how long the lists are, where they begin, and what is in them */

    for (i = 0; i < n; i++) {
        index->lists[ngx_rl_index_list(index, rules[i])].n++;
    }

    for (i = 0; i <= index->set.n; i++) {
        list = &index->lists[i];
        list->rules = room;
        room += list->n;
        list->n = 0;
    }

    for (i = 0; i < n; i++) {
        list = &index->lists[ngx_rl_index_list(index, rules[i])];
        list->rules[list->n++] = rules[i];
    }

    policy->index = index;

    return NGX_OK;
}


ngx_int_t
ngx_rl_policy_complete(ngx_rl_policy_t *policy)
{
    ngx_uint_t       i, n;
    ngx_rl_rule_t  **rules;

    rules = policy->rules.elts;
    n = policy->rules.nelts;

    /* those of nginx.conf stay in the order in which they came, too */

    if (policy->pool == NULL) {
        policy->fixed = ngx_palloc(policy->rules.pool,
                                   (n + 1) * sizeof(ngx_rl_rule_t *));
        if (policy->fixed == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(policy->fixed, rules, n * sizeof(ngx_rl_rule_t *));
        policy->nfixed = n;
    }

    for (i = 0; i < n; i++) {
        rules[i]->policy = policy;
        rules[i]->rank = i;

        if (i < policy->nfixed) {
            rules[i]->number = i;
        }

        if (ngx_rl_policy_salts(policy->limiter, rules[i],
                               policy->rules.pool->log)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_rl_policy_numbers(policy) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_qsort(rules, n, sizeof(ngx_rl_rule_t *), ngx_rl_policy_cmp_ranks);

    for (i = 0; i < n; i++) {
        rules[i]->rank = i;
    }

    ngx_rl_policy_mark(policy);

    return ngx_rl_index_make(policy, policy->rules.pool);
}


/*
 * Adds a list to the n rules found so far, of which the first max are kept.
 * From the back, so that what is kept moves at most once. Returns how many
 * rules that makes.
 */
static ngx_uint_t
ngx_rl_index_merge(ngx_rl_rule_t **rules, ngx_uint_t n, ngx_uint_t max,
    const ngx_rl_index_list_t *list)
{
    ngx_uint_t      i, j, total;
    ngx_rl_rule_t  *rule;

    total = n + list->n;
    i = ngx_min(n, max);
    j = list->n;

    while (j) {

        if (i && rules[i - 1]->rank > list->rules[j - 1]->rank) {
            rule = rules[--i];

        } else {
            rule = list->rules[--j];
        }

        if (i + j < max) {
            rules[i + j] = rule;
        }
    }

    return total;
}


ngx_uint_t
ngx_rl_policy_find(const ngx_rl_policy_t *policy,
    const ngx_rl_readings_t *path, ngx_rl_rule_t **rules, ngx_uint_t max)
{
    uint32_t              number;
    ngx_uint_t            n;
    ngx_rl_index_t       *index;
    ngx_rl_route_walk_t   walk;

    index = policy->index;

    n = ngx_rl_index_merge(rules, 0, max, &index->lists[NGX_RL_INDEX_ANY]);

    ngx_rl_route_walk_init(&walk, &index->set, path);

    for ( ;; ) {
        number = ngx_rl_route_walk_next(&walk);

        if (number == NGX_RL_ROUTE_NONE) {
            return n;
        }

        n = ngx_rl_index_merge(rules, n, max, &index->lists[number + 1]);
    }
}


static uint32_t
ngx_rl_limiter_row(const ngx_rl_limiter_t *limiter, ngx_rl_counts_kind_e kind,
    const ngx_str_t *rule)
{
    return ngx_rl_counts_use(kind, &limiter->zone.name, rule,
                             limiter->redis != NULL);
}


void
ngx_rl_policy_swap(ngx_rl_limiter_t *limiter, ngx_rl_policy_t *policy)
{
    ngx_uint_t        i;
    ngx_rl_rule_t   **rules;
    ngx_rl_policy_t  *before;

    /* those of a document get their rows as long as requests may use them */

    rules = policy->rules.elts;

    for (i = 0; i < policy->rules.nelts; i++) {
        if (policy != limiter->base && rules[i]->number >= policy->nfixed) {
            rules[i]->row = ngx_rl_limiter_row(limiter, NGX_RL_COUNTS_RULE,
                                               &rules[i]->id);
        }
    }

    before = limiter->policy;
    limiter->policy = policy;

    ngx_rl_policy_release(before);
}


void
ngx_rl_limiter_begin(ngx_rl_limiter_t *limiter)
{
    ngx_uint_t       i;
    ngx_rl_rule_t  **rules;

    static const ngx_str_t  none = ngx_string("");

    for (i = NGX_RL_COUNTS_ZONE; i < NGX_RL_COUNTS_KINDS; i++) {
        limiter->rows[i] = ngx_rl_limiter_row(limiter, i, &none);
    }

    rules = limiter->base->rules.elts;

    for (i = 0; i < limiter->base->rules.nelts; i++) {
        rules[i]->row = ngx_rl_limiter_row(limiter, NGX_RL_COUNTS_RULE,
                                           &rules[i]->id);
    }
}

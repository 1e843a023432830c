/*
 * Policies made by hand: their order and numbers, their expressions, the index
 * of their paths, and who holds on to one.
 */

#include <time.h>

#include "policy.h"

#include "ngx_rl_route.h"

#define MANY   10000

static uint64_t  seed;


static void
order_is(const ngx_rl_policy_t *policy, const char *ids)
{
    char             got[64], *p;
    ngx_rl_rule_t  **rules;

    p = got;
    *p = '\0';
    rules = policy->rules.elts;

    for (ngx_uint_t i = 0; i < policy->rules.nelts; i++) {
        assert_int_equal(rules[i]->rank, i);
        assert_ptr_equal(rules[i]->policy, policy);
        p += sprintf(p, "%.*s", (int) rules[i]->id.len, rules[i]->id.data);
    }

    assert_string_equal(got, ids);
}


/* What a document adds stands behind nginx.conf's of the same priority. */
static void
test_order(void **state)
{
    ngx_str_t         path = ngx_string("/");
    ngx_rl_rule_t    *d, *e, *f, *found[8];

    order_is(limiter.base, "bac");
    assert_int_equal(limiter.base->nkeys, 1);
    assert_int_equal(limiter.base->nfixed, 3);

    ngx_rl_policy_t *policy = policy_make();
    d = rule_push(policy, "d");
    e = rule_push(policy, "e");
    f = rule_push(policy, "f");

    d->priority = 5;
    e->key = str("$arg_k\x1f$arg_l");
    e->nparts = 2;
    e->group = str("g");
    e->cost_header = str("x-cost");
    f->key = e->key;
    f->nparts = 2;
    f->priority = -1;
    f->group = e->group;
    f->cost_header = e->cost_header;

    /* of nginx.conf: one part, the same text */

    d->key = e->key;

    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);

    order_is(policy, "bdacef");
    order_is(limiter.base, "bac");

    assert_int_equal(policy->nkeys, 3);
    assert_int_equal(e->key_index, f->key_index);
    assert_int_not_equal(e->key_index, d->key_index);

    assert_int_equal(policy->ngroups, 1);
    assert_int_equal(e->group_index, 1);
    assert_int_equal(f->group_index, 1);
    assert_int_equal(d->group_index, 0);

    assert_int_equal(policy->ncost_headers, 1);
    assert_int_equal(policy->cost_headers[0].len, 6);

    /* numbers: as they came; copies of the same names */

    assert_int_equal(policy->nfixed, 3);
    assert_int_equal(policy->fixed[1]->id.data[0], 'b');
    assert_int_equal(policy->fixed[1]->number, 1);
    assert_int_equal(d->number, 3);
    assert_int_equal(f->number, 5);
    assert_ptr_not_equal(policy->fixed[1], limiter.base->fixed[1]);
    assert_memory_equal(&policy->fixed[1]->salt, &limiter.base->fixed[1]->salt,
                        sizeof(ngx_rl_id_t));
    assert_memory_not_equal(&policy->fixed[0]->salt, &policy->fixed[1]->salt,
                            sizeof(ngx_rl_id_t));

    assert_int_equal(ngx_rl_policy_find(policy, READINGS(&path), found, 8), 6);
    assert_ptr_equal(found[0], policy->fixed[1]);
    assert_false(policy->needs & NGX_RL_NEEDS_KEY);

    ngx_rl_policy_release(policy);
    assert_int_equal(destroyed, 1);
}


/* What is not there is not looked at; whatever is, is. */
static void
test_marks(void **state)
{
    ngx_array_t       statuses;
    ngx_rl_clients_t  keys;

    static const ngx_uint_t  needs[] = {
        0,
        NGX_RL_NEEDS_MATCH,
        NGX_RL_NEEDS_MATCH,
        NGX_RL_NEEDS_MATCH|NGX_RL_NEEDS_KEY,
        NGX_RL_NEEDS_MATCH,
        NGX_RL_NEEDS_MATCH,
        NGX_RL_NEEDS_MATCH|NGX_RL_NEEDS_ROUTE,
        NGX_RL_NEEDS_SETTLE,
        NGX_RL_NEEDS_SETTLE,
        NGX_RL_NEEDS_GROUP,
        NGX_RL_NEEDS_PERCENT,
        NGX_RL_NEEDS_LIMIT,
        NGX_RL_NEEDS_LIMIT,
        NGX_RL_NEEDS_COST,
        NGX_RL_NEEDS_RETRY,
        NGX_RL_NEEDS_MATCH,
        NGX_RL_NEEDS_MATCH
    };

    ngx_memzero(&keys, sizeof(ngx_rl_clients_t));

    for (ngx_uint_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        ngx_rl_policy_t *policy = policy_make();
        ngx_rl_rule_t *rule = rule_push(policy, "d");
        rule->methods = (i == 1) ? 2 : 0;
        rule->nhosts = (i == 2);
        rule->api_keys = (i == 3 || i == 15) ? &keys : NULL;
        rule->tier = str((i == 4) ? "gold" : "");
        rule->regex_text = str((i == 5) ? "^/a" : "");
        rule->route = str((i == 6 || i == 15) ? "/a" : "");
        rule->statuses = (i == 7 || i == 15) ? &statuses : NULL;
        rule->cost_header = str((i == 8) ? "x-cost" : "");
        rule->group = str((i == 9) ? "g" : "");
        rule->percent = (i == 10) ? 99 : 100;
        rule->dynamic = (i == 11);
        rule->ntier_limits = (i == 12);
        rule->dynamic_cost = (i == 13 || i == 15);
        rule->retry_growth = (i == 14);
        rule->disabled = (i == 15);
        rule->skipped = (i == 15);
        rule->timed = (i == 16);

        assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
        assert_int_equal(rule->needs, needs[i]);
        assert_int_equal(policy->needs, needs[i]);
        assert_int_equal(policy->fixed[0]->needs, 0);

        ngx_rl_policy_release(policy);
    }
}


/* The last who uses a policy frees it. */
static void
test_swap(void **state)
{
    ngx_rl_policy_t *one = policy_make();
    assert_int_equal(ngx_rl_policy_complete(one), NGX_OK);
    ngx_rl_policy_swap(&limiter, one);
    assert_ptr_equal(limiter.policy, one);

    ngx_rl_policy_use(one);   /* a request, and */
    ngx_rl_policy_use(one);   /* a holder */

    ngx_rl_policy_t *two = policy_make();
    rule_push(two, "d");
    assert_int_equal(ngx_rl_policy_complete(two), NGX_OK);
    ngx_rl_policy_swap(&limiter, two);

    assert_int_equal(destroyed, 0);
    order_is(one, "bac");
    order_is(limiter.policy, "bacd");

    ngx_rl_policy_release(one);
    assert_int_equal(destroyed, 0);
    ngx_rl_policy_release(one);
    assert_int_equal(destroyed, 1);

    /* back to nginx.conf, which is nobody's to free */

    ngx_rl_policy_use(limiter.base);
    ngx_rl_policy_swap(&limiter, limiter.base);
    assert_int_equal(destroyed, 2);

    ngx_rl_policy_use(limiter.base);
    ngx_rl_policy_release(limiter.base);
    ngx_rl_policy_release(limiter.base);
    order_is(limiter.base, "bac");
    assert_int_equal(destroyed, 2);
}


static void
test_memory(void **state)
{
    int  n;

    ngx_uint_t made = 0;

    for (n = 0; n < 100; n++) {
        allocations = n;
        ngx_rl_policy_t *policy = ngx_rl_policy_create(&limiter, &log_nowhere);

        if (policy == NULL) {
            assert_int_equal(allocations, -1);
            assert_int_equal(destroyed, n == 0 ? 0 : n);
            continue;
        }

        made = 1;
        ngx_int_t rc = ngx_rl_policy_complete(policy);
        ngx_rl_policy_release(policy);

        if (rc == NGX_OK) {
            break;
        }

        assert_int_equal(rc, NGX_ERROR);
    }

    allocations = -1;
    assert_true(made && n > 8 && n < 100);
}


static void
test_regex(void **state)
{
    ngx_str_t           path = ngx_string("/V2/x");
    ngx_rl_rule_t      *rule, *found[8];
    ngx_rl_problems_t   problems;

    static const char  *texts[] = { "~*^/v1", "~/v2", "/v2", "(", "~" };

    ngx_rl_policy_t *policy = policy_make();
    ngx_rl_problems_init(&problems, policy->pool);
    ngx_uint_t again = 0;

    for (ngx_uint_t i = 0; i < 5; i++) {
        rule = rule_push(policy, "d");
        rule->regex_text = str(texts[i]);
        rule->priority = (ngx_int_t) i;
    }

    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);

    /* no more than one at a time where there is no time */

    while (ngx_rl_policy_finish(policy, 0, &problems) == NGX_AGAIN) {
        assert_int_equal(compiled + problems.n >= ++again, 1);
    }

    assert_int_equal(again, 4);
    assert_int_equal(compiled, 4);
    assert_int_equal(caseless, 1);
    assert_int_equal(problems.n, 2);
    ngx_rl_problem_t *problem = problems.list.elts;
    assert_string_equal(problem[0].pointer.data,
                        "/rules/4/match/endpoint_regex");
    assert_string_equal(problem[1].pointer.data,
                        "/rules/3/match/endpoint_regex");
    assert_memory_equal(problem[1].detail.data, "missing )", 9);
    assert_int_equal(ngx_rl_policy_find(policy, READINGS(&path), found, 8), 8);
    assert_int_equal(ngx_rl_policy_finish(policy, 0, NULL), NGX_OK);

    ngx_rl_policy_release(policy);

    /* nobody to tell: it is skipped, and matches nothing */

    policy = policy_make();
    rule = rule_push(policy, "d");
    rule->regex_text = str("(");
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_int_equal(ngx_rl_policy_finish(policy, 10, NULL), NGX_OK);
    assert_int_equal(policy->skipped.n, 1);
    assert_int_equal(rule->skipped, 1);
    ngx_rl_policy_release(policy);

    /* memory is out: that is no reason to skip a rule */

    for (ngx_uint_t i = 0; i < 2; i++) {
        policy = policy_make();
        rule = rule_push(policy, "d");
        rule->regex_text = str(i ? "!" : "?");
        assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
        assert_int_equal(ngx_rl_policy_finish(policy, 10, NULL), NGX_ERROR);
        assert_int_equal(rule->skipped, 0);
        ngx_rl_policy_release(policy);
    }
}


/* As many rules as a document may have: each path finds its own. */
static void
test_many(void **state)
{
    ngx_str_t         path = ngx_string("/v1/t9777/x");
    ngx_rl_rule_t    *rule, *found[8];

    char *texts = malloc(MANY * 32);
    assert_non_null(texts);

    ngx_rl_policy_t *policy = policy_make();

    for (ngx_uint_t i = 0; i < MANY; i++) {
        sprintf(&texts[i * 32], "/v1/t%lu/{id}", i);
        rule = rule_push(policy, &texts[i * 32 + 4]);
        rule->route = str(&texts[i * 32]);
        rule->key = str(&texts[(i % 100) * 32]);
    }

    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_int_equal(policy->nkeys, 101);
    assert_int_equal(ngx_rl_policy_find(policy, READINGS(&path), found, 8), 4);
    assert_int_equal(found[3]->number, 3 + 9777);
    assert_int_equal(ngx_rl_policy_finish(policy, 1000, NULL), NGX_OK);

    ngx_rl_policy_release(policy);
    free(texts);
}


static uint32_t
random_below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 32) % n;
}


static void
random_path(char *p, uint32_t wild)
{
    uint32_t n = random_below(5);

    for (uint32_t i = 0; i < n; i++) {
        p += sprintf(p, "/%s", random_below(100) < wild
                               ? "{x}" : random_below(2) ? "a" : "bb");
    }

    sprintf(p, "%s", n == 0 ? "/" : random_below(100) < wild ? "/**" : "");
}


/* What find() finds is what a look at each rule finds, in their order. */
static void
same_rules(const ngx_rl_policy_t *policy, char *text, ngx_uint_t max)
{
    ngx_str_t         path = str(text);
    ngx_rl_rule_t   **rules;

    /* exactly this much, for the sanitizers */

    ngx_rl_rule_t **found = malloc(max * sizeof(ngx_rl_rule_t *));
    assert_true(found != NULL || max == 0);

    ngx_uint_t got = ngx_rl_policy_find(policy, READINGS(&path), found, max);
    rules = policy->rules.elts;
    ngx_uint_t n = 0;

    for (ngx_uint_t i = 0; i < policy->rules.nelts; i++) {
        if (rules[i]->route.len
            && !ngx_rl_route_match(rules[i]->route.data,
                                   rules[i]->route.len,
                                   readings_of(path.data, path.len, NULL), 0))
        {
            continue;
        }

        if (n < max && (n >= got || found[n] != rules[i])) {
            fail_msg("\"%s\", max %lu: rule %lu is not number %lu", text, max,
                     i, n);
        }

        n++;
    }

    assert_int_equal(got, n);
    free(found);
}


/* ROUTE_SEED=<n> and ROUTE_PATHS=<n> choose the seed and how many paths. */
static void
test_find(void **state)
{
    char              text[64], *texts;
    size_t            paths;

    seed = getenv("ROUTE_SEED") ? strtoull(getenv("ROUTE_SEED"), NULL, 10)
                                : (uint64_t) time(NULL) * 2 + 1;
    paths = getenv("ROUTE_PATHS") ? strtoull(getenv("ROUTE_PATHS"), NULL, 10)
                                  : 100000;
    print_message("ROUTE_SEED=%llu\n", (unsigned long long) seed);

    texts = malloc(1000 * sizeof(text));
    assert_non_null(texts);

    while (paths >= 100) {
        paths -= 100;
        ngx_rl_policy_t *policy = policy_make();
        ngx_uint_t n = random_below(random_below(8) ? 20 : 1000);

        for (ngx_uint_t i = 0; i < n; i++) {
            texts[i * sizeof(text)] = '\0';

            if (random_below(5)) {
                random_path(&texts[i * sizeof(text)], 30);
            }

            rule_push(policy, "d")->route = str(&texts[i * sizeof(text)]);
        }

        assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);

        for (ngx_uint_t i = 0; i < 100; i++) {
            random_path(text, 0);
            same_rules(policy, text, policy->rules.nelts);
            same_rules(policy, text, random_below(20));
        }

        ngx_rl_policy_release(policy);
    }

    free(texts);
}

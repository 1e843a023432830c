/*
 * The index of rules: what it finds is what looking at each rule finds, in the
 * order of ranks, as many as there is room for.
 *
 * ROUTE_SEED=<n> and ROUTE_PATHS=<n> choose the seed and the number of paths.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#include "ngx_ratelimit_index.h"
#include "ngx_ratelimit_route.h"

#define RULES   1000
#define BLOCKS  8

static uint64_t  seed;
static void     *blocks[BLOCKS];   /* of the pool that stands in for nginx' */
static size_t    nblocks;
static size_t    allocations;
static size_t    broken;           /* this allocation fails; 0: none */


void *
ngx_palloc(ngx_pool_t *pool, size_t size)
{
    (void) pool;

    if (++allocations == broken || nblocks == BLOCKS) {
        return NULL;
    }

    return blocks[nblocks++] = malloc(size);
}


void *
ngx_pcalloc(ngx_pool_t *pool, size_t size)
{
    void  *p;

    p = ngx_palloc(pool, size);

    return p ? memset(p, 0, size) : NULL;
}


static void
pool_free(void)
{
    while (nblocks) {
        free(blocks[--nblocks]);
    }
}


static uint32_t
random_below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 32) % n;
}


static size_t
number(const char *name, size_t otherwise)
{
    const char  *text;

    text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}


/* A policy of rules whose templates are texts; NULL: any path. */
static void
policy_make(ngx_ratelimit_policy_t *policy, ngx_ratelimit_rule_t *rules,
    ngx_ratelimit_rule_t **order, char **texts, size_t n)
{
    size_t  i;

    memset(policy, 0, sizeof(ngx_ratelimit_policy_t));
    memset(rules, 0, n * sizeof(ngx_ratelimit_rule_t));

    for (i = 0; i < n; i++) {
        rules[i].rank = i;
        order[i] = &rules[i];

        if (texts[i]) {
            rules[i].route.data = (u_char *) texts[i];
            rules[i].route.len = strlen(texts[i]);
        }
    }

    policy->rules.elts = order;
    policy->rules.nelts = n;

    assert_int_equal(ngx_ratelimit_index_make(policy, NULL), NGX_OK);
}


/* Memory of exactly max rules, for the sanitizers. */
static void
same_as_reference(const ngx_ratelimit_policy_t *policy, char *text,
    ngx_uint_t max)
{
    int                     match;
    size_t                  i;
    ngx_str_t               path;
    ngx_uint_t              n, got;
    ngx_ratelimit_rule_t  **found, **rules;

    path.data = (u_char *) text;
    path.len = strlen(text);

    found = malloc(max * sizeof(ngx_ratelimit_rule_t *));
    assert_true(found != NULL || max == 0);

    got = ngx_ratelimit_policy_find(policy, &path, found, max);
    rules = policy->rules.elts;
    n = 0;

    for (i = 0; i < policy->rules.nelts; i++) {
        match = rules[i]->route.len == 0
                || ngx_ratelimit_route_match(rules[i]->route.data,
                                             rules[i]->route.len, path.data,
                                             path.len);

        if (match && n < max && (n >= got || found[n] != rules[i])) {
            fail_msg("\"%s\", max %lu: rule %zu is not number %lu", text, max,
                     i, n);
        }

        n += match;
    }

    if (got != n) {
        fail_msg("\"%s\", max %lu: %lu rules, expected %lu", text, max, got,
                 n);
    }

    free(found);
}


static void
random_text(char *p, uint32_t wild)
{
    uint32_t  i, n;

    n = random_below(5);

    for (i = 0; i < n; i++) {
        p += sprintf(p, "/%s", random_below(100) < wild
                               ? "{x}" : random_below(2) ? "a" : "bb");
    }

    sprintf(p, "%s", n == 0 ? "/" : random_below(100) < wild ? "/**" : "");
}


static void
test_random(void **state)
{
    char                     *texts[RULES], path[64];
    size_t                    i, n, paths, asked;
    ngx_ratelimit_rule_t     *rules, *order[RULES];
    ngx_ratelimit_policy_t    policy;

    (void) state;

    seed = number("ROUTE_SEED", (size_t) time(NULL) * 2 + 1);
    paths = number("ROUTE_PATHS", 100000);
    print_message("ROUTE_SEED=%llu\n", (unsigned long long) seed);

    rules = malloc(RULES * sizeof(ngx_ratelimit_rule_t));
    assert_non_null(rules);

    for (asked = 0; asked < paths; /* void */ ) {
        n = 1 + random_below(random_below(8) ? 20 : RULES);

        for (i = 0; i < n; i++) {
            texts[i] = NULL;

            if (random_below(5)) {
                texts[i] = malloc(64);
                assert_non_null(texts[i]);
                random_text(texts[i], 30);
            }
        }

        policy_make(&policy, rules, order, texts, n);

        for (i = 0; i < 100; i++, asked++) {
            random_text(path, 0);
            same_as_reference(&policy, path, n);
            same_as_reference(&policy, path, random_below(20));
        }

        for (i = 0; i < n; i++) {
            free(texts[i]);
        }

        pool_free();
    }

    free(rules);
}


/* A thousand rules of which two match, and rules of one template. */
static void
test_find(void **state)
{
    char                     *texts[RULES], text[RULES][32];
    size_t                    i;
    ngx_str_t                 path = ngx_string("/v1/t500/7;x");
    ngx_ratelimit_rule_t     *rules, *order[RULES], *found[4];
    ngx_ratelimit_policy_t    policy;

    (void) state;

    rules = malloc(RULES * sizeof(ngx_ratelimit_rule_t));
    assert_non_null(rules);

    for (i = 0; i < RULES; i++) {
        sprintf(text[i], "/v1/t%zu/{id}", i);
        texts[i] = text[i];
    }

    texts[7] = NULL;
    policy_make(&policy, rules, order, texts, RULES);

    assert_int_equal(ngx_ratelimit_policy_find(&policy, &path, found, 4), 2);
    assert_ptr_equal(found[0], &rules[7]);
    assert_ptr_equal(found[1], &rules[500]);
    pool_free();

    for (i = 0; i < RULES; i++) {
        texts[i] = (i % 2) ? "/v1/**" : "/v1/{t}/*/";
    }

    policy_make(&policy, rules, order, texts, RULES);

    assert_int_equal(ngx_ratelimit_policy_find(&policy, &path, found, 4),
                     RULES);
    assert_ptr_equal(found[0], &rules[0]);
    assert_ptr_equal(found[3], &rules[3]);
    assert_int_equal(ngx_ratelimit_policy_find(&policy, &path, NULL, 0),
                     RULES);
    pool_free();

    free(rules);
}


static void
test_memory(void **state)
{
    ngx_ratelimit_rule_t      rule, *order;
    ngx_ratelimit_policy_t    policy;

    (void) state;

    memset(&policy, 0, sizeof(policy));
    memset(&rule, 0, sizeof(rule));
    order = &rule;
    policy.rules.elts = &order;
    policy.rules.nelts = 1;

    for (broken = 1; broken < BLOCKS; broken++) {
        allocations = 0;

        if (ngx_ratelimit_index_make(&policy, NULL) == NGX_OK) {
            break;
        }

        assert_null(policy.index);
        pool_free();
    }

    assert_int_equal(broken, 5);   /* four allocations */
    broken = 0;
    pool_free();
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

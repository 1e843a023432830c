/*
 * Documents: what they compile to.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

#define SECOND  ((uint64_t) 1000000)

static const char  example[] =
    "{ \"version\": 42, \"rules\": [ { \"id\": \"orders\","
    " \"match\": {\"api_key_pattern\": [\"sk_prod_*\"],"
    "   \"route\": \"/v1/orders/**\", \"endpoint_regex\": null,"
    "   \"methods\": [\"POST\"], \"host\": []},"
    " \"key\": [\"$ratelimit_api_key\", \"$ratelimit_route\"],"
    " \"algorithm\": \"token_bucket\","
    " \"params\": {\"capacity\": 100, \"refill_rate\": 1.67, \"window\": 60},"
    " \"tiers\": {\"free\": {\"limit\": 100}, \"pro\": {\"limit\": 1000},"
    "   \"enterprise\": {\"limit\": 10000}},"
    " \"override\": {\"sk_prod_vip_001\":"
    "   {\"capacity\": 1000, \"refill_rate\": 16.67}},"
    " \"sync\": \"lease\", \"fail_mode\": \"open\", \"cost\": 1,"
    " \"group\": null, \"priority\": 0, \"percent\": 100, \"dry_run\": false }"
    " ],"
    " \"tier_of\": {\"patterns\": [{\"pattern\": \"sk_free_*\","
    "   \"tier\": \"free\"}], \"keys\": {\"sk_prod_abc123\": \"pro\"}},"
    " \"whitelist\": [\"sk_internal_*\"], \"blacklist\": [\"sk_revoked_*\"],"
    " \"overrides\": [ {\"id\": \"...\", \"key\": \"sk_prod_abc123\","
    "   \"rule\": \"orders\", \"type\": \"multiplicative\", \"value\": 5,"
    "   \"expires_at\": \"2026-12-01T00:00:00Z\","
    "   \"reason\": \"launch week\"} ] }";


static uint32_t
find(const ngx_ratelimit_map_t *map, const char *key)
{
    u_char     digest[NGX_RATELIMIT_MAP_KEY];
    ngx_str_t  text;

    text.data = (u_char *) key;
    text.len = strlen(key);
    ngx_ratelimit_policy_digest(&text, digest);

    return ngx_ratelimit_map_get(map, digest);
}


static uint32_t
first_glob(const ngx_ratelimit_globs_t *globs, const char *text)
{
    return ngx_ratelimit_globs_find(globs, (const u_char *) text, strlen(text));
}


/* The rate of a bucket, in its lowest terms, and its capacity. */
static void
same_bucket(const ngx_ratelimit_limit_t *limit, uint32_t tokens,
    uint64_t period_us, uint32_t capacity)
{
    assert_int_equal(limit->rate.scale, tokens);
    assert_int_equal(limit->rate.period_us, period_us);
    assert_int_equal(limit->capacity, capacity);
}


static void
check_example(ngx_ratelimit_policy_t *policy)
{
    uint32_t                     i;
    ngx_ratelimit_rule_t        *rule;
    ngx_ratelimit_override_t    *override;
    ngx_ratelimit_allowance_t   *vip;

    assert_int_equal(policy->rules.nelts, 3);
    assert_int_equal(policy->nfixed, 2);

    rule = document_rule(policy, "orders");
    assert_ptr_equal(rule->policy, policy);
    assert_int_equal(rule->number, 2);
    assert_int_equal(rule->nparts, 2);
    same_text(rule->parts[0], "$ratelimit_api_key");
    same_text(rule->parts[1], "$ratelimit_route");
    same_text(rule->key, "$ratelimit_api_key\x1f$ratelimit_route");
    same_text(rule->route, "/v1/orders/**");
    assert_int_equal(rule->regex_text.len, 0);
    assert_int_equal(rule->methods, POST);
    assert_int_equal(rule->nhosts, 0);
    assert_non_null(rule->api_keys);
    assert_int_equal(first_glob(rule->api_keys->globs, "sk_prod_1"), 0);
    assert_int_equal(first_glob(rule->api_keys->globs, "sk_test_1"),
                     NGX_RATELIMIT_GLOB_NONE);
    assert_null(rule->api_keys->digests.entries);
    assert_int_equal(rule->percent, 100);
    assert_int_equal(rule->cost, 1);
    assert_int_equal(rule->group.len, 0);
    assert_int_equal(rule->priority, 0);
    assert_int_equal(rule->sync, NGX_RATELIMIT_SYNC_LEASE);
    assert_int_equal(rule->fail_mode, NGX_RATELIMIT_FAIL_OPEN);
    assert_false(rule->dry_run || rule->dynamic || rule->dynamic_cost);

    /* 1.67 a second; and 100, 1,000, 10,000 in 60 seconds */

    same_bucket(&rule->limit, 167, 100 * SECOND, 100);
    assert_int_equal(rule->ntiers, 3);
    same_text(rule->tiers[0].tier, "free");
    same_bucket(&rule->tiers[0].allowance.limit, 1, 600000, 100);
    same_text(rule->tiers[1].tier, "pro");
    same_bucket(&rule->tiers[1].allowance.limit, 1, 60000, 1000);
    same_text(rule->tiers[2].tier, "enterprise");
    same_bucket(&rule->tiers[2].allowance.limit, 1, 6000, 10000);

    i = find(&rule->keys, "sk_prod_vip_001");
    assert_int_not_equal(i, NGX_RATELIMIT_MAP_NONE);
    vip = &rule->allowances[i];
    same_bucket(&vip->limit, 1667, 100 * SECOND, 1000);
    assert_int_equal(find(&rule->keys, "sk_prod_vip_002"),
                     NGX_RATELIMIT_MAP_NONE);

    assert_int_equal(first_glob(policy->allow.globs, "sk_internal_7"), 0);
    assert_int_equal(first_glob(policy->deny.globs, "sk_revoked_7"), 0);
    assert_int_equal(first_glob(policy->tier_patterns, "sk_free_7"), 0);
    same_text(policy->pattern_tiers[0], "free");

    i = find(&policy->tier_keys, "sk_prod_abc123");
    assert_int_not_equal(i, NGX_RATELIMIT_MAP_NONE);
    same_text(policy->tiers[i], "pro");

    i = find(&policy->override_keys, "sk_prod_abc123");
    assert_int_equal(i, 0);
    override = &policy->overrides[0];
    same_text(override->id, "...");
    same_text(override->rule_id, "orders");
    assert_int_equal(override->millionths, 5000000);
    assert_int_equal(override->expires, 1796083200);
    assert_int_equal(override->next, NGX_RATELIMIT_MAP_NONE);

    assert_true(policy->keyed && policy->digested);
    assert_false(policy->tenants);
}


static void
test_example(void **state)
{
    ngx_ratelimit_policy_t  *policy;

    (void) state;

    above_prepared = 0;
    policy = document_good(&alone, example);
    check_example(policy);
    assert_int_equal(above_prepared, 1);
    ngx_ratelimit_policy_release(policy);

    policy = document_good(&fleet, example);
    check_example(policy);
    ngx_ratelimit_policy_release(policy);
}


/* What is stored of it has no key in the clear, and compiles to the same. */
static void
test_canonical(void **state)
{
    json_t                  *root;
    ngx_str_t                text, again;
    ngx_ratelimit_policy_t  *policy;

    static const char  expected[] =
        "{\"version\":42,\"rules\":[{\"id\":\"orders\",\"match\":"
        "{\"api_key_pattern\":[\"sk_prod_*\"],\"route\":\"/v1/orders/**\","
        "\"endpoint_regex\":null,\"methods\":[\"POST\"],\"host\":[]},"
        "\"key\":[\"$ratelimit_api_key\",\"$ratelimit_route\"],"
        "\"algorithm\":\"token_bucket\",\"params\":{\"capacity\":100,"
        "\"refill_rate\":1.67,\"window\":60},\"tiers\":{\"free\":{\"limit\":"
        "100},\"pro\":{\"limit\":1000},\"enterprise\":{\"limit\":10000}},"
        "\"override\":{\"sha256:"
        "766db6212450da264ff86fe5d29f76ffb6c1cb26875227ded9d5e25530b72cbb"
        "\":{\"capacity\":1000,\"refill_rate\":16.67}},\"sync\":\"lease\","
        "\"fail_mode\":\"open\",\"cost\":1,\"group\":null,\"priority\":0,"
        "\"percent\":100,\"dry_run\":false}],\"tier_of\":{\"patterns\":"
        "[{\"pattern\":\"sk_free_*\",\"tier\":\"free\"}],\"keys\":{\"sha256:"
        "931de6a9c45c8d6ede43f9921643ef019d9c363d7e6a6c5c420c34ac1a07fc12"
        "\":\"pro\"}},\"whitelist\":[\"sk_internal_*\"],\"blacklist\":"
        "[\"sk_revoked_*\"],\"overrides\":[{\"id\":\"...\",\"key\":\"sha256:"
        "931de6a9c45c8d6ede43f9921643ef019d9c363d7e6a6c5c420c34ac1a07fc12"
        "\",\"rule\":\"orders\",\"type\":\"multiplicative\",\"value\":5,"
        "\"expires_at\":\"2026-12-01T00:00:00Z\",\"reason\":\"launch week\"}]}"
        "\n";

    (void) state;

    document_clear();
    text.data = (u_char *) example;
    text.len = strlen(example);

    root = ngx_ratelimit_document_parse(&text, &problems);
    assert_non_null(root);

    policy = ngx_ratelimit_document_read(&alone, root, 0, &problems, &warnings,
                                         &deny_all, &nowhere);
    assert_non_null(policy);
    assert_int_equal(deny_all, 0);
    check_example(policy);
    ngx_ratelimit_policy_release(policy);

    assert_int_equal(ngx_ratelimit_document_write(root, pool, &text), NGX_OK);
    same_text(text, expected);

    /* once more, and nothing changes */

    policy = ngx_ratelimit_document_read(&alone, root, 0, &problems, &warnings,
                                         &deny_all, &nowhere);
    assert_non_null(policy);
    check_example(policy);
    ngx_ratelimit_policy_release(policy);
    assert_int_equal(ngx_ratelimit_document_write(root, pool, &again), NGX_OK);
    same_text(again, expected);
    json_decref(root);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_canonical)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

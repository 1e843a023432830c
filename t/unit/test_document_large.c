/*
 * Large documents, and documents for which memory is out: nothing is lost then.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#include "document.h"

#define RULES      10000
#define KEYS       50000    /* assignments, and as many overrides */

static const char  small[] =
    "{\"format\":\"1.1\",\"x\":1,\"rules\":[{\"id\":\"a\",\"key\":[\"$a\","
    "\"$b\"],\"params\":{\"rate\":\"9r/s\"},\"match\":{\"api_key_pattern\":"
    "[\"k\",\"k*\"],\"host\":[\"h\"],\"methods\":[\"GET\"],\"route\":\"/a\","
    "\"tier\":\"t\"},\"tiers\":{\"t\":{\"limit\":1}},\"override\":{\"k\":"
    "{\"limit\":1}},\"count_status\":[401],\"group\":\"g\"},{\"id\":\"b\","
    "\"params\":{\"limit\":\"$l\",\"window\":1},\"cost\":\"$c\","
    "\"cost_header\":\"x\"}],\"tier_of\":{\"keys\":{\"k\":\"t\"},"
    "\"patterns\":[{\"pattern\":\"k*\",\"tier\":\"t\"}]},\"whitelist\":[\"k\","
    "\"k*\"],\"overrides\":"
    "[{\"id\":\"o\",\"key\":\"k\",\"rule\":\"a\",\"type\":\"absolute\","
    "\"value\":1}]}";

static const char  wrong[] =
    "{\"rules\":[{\"id\":\"a b\",\"params\":{}}],\"tier_of\":{\"keys\":"
    "{\"k\":1}},\"y\":2}";


static double
seconds(void)
{
    struct timespec  ts;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &ts), 0);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


static void
test_large(void **state)
{
    char                    *json, *p;
    size_t                   i;
    double                   since;
    json_t                  *root;
    ngx_str_t                text;
    ngx_ratelimit_rule_t    *rule;
    ngx_ratelimit_policy_t  *policy;

    (void) state;

    json = malloc(32 * 1024 * 1024);
    assert_non_null(json);
    p = json + sprintf(json, "{\"rules\":[");

    for (i = 0; i < RULES; i++) {
        p += sprintf(p, "%s{\"id\":\"r%zu\",\"match\":{\"route\":\"/v1/t%zu/**"
                     "\",\"methods\":[\"GET\"]},\"key\":[\"$a\",\"$b\"],"
                     "\"params\":{\"capacity\":100,\"refill_rate\":1.67},"
                     "\"tiers\":{\"free\":{\"limit\":10},\"pro\":{\"limit\":"
                     "1000}}}", i ? "," : "", i, i);
    }

    p += sprintf(p, "],\"tier_of\":{\"keys\":{");

    for (i = 0; i < KEYS; i++) {
        p += sprintf(p, "%s\"sk_%zu\":\"%s\"", i ? "," : "", i,
                     i % 2 ? "pro" : "free");
    }

    p += sprintf(p, "}},\"overrides\":[");

    for (i = 0; i < KEYS; i++) {
        p += sprintf(p, "%s{\"id\":\"o%zu\",\"key\":\"sk_%zu\",\"rule\":"
                     "\"r%zu\",\"type\":\"absolute\",\"value\":500,"
                     "\"expires_at\":\"2026-12-01T00:00:00Z\"}", i ? "," : "",
                     i, i, i % RULES);
    }

    p += sprintf(p, "]}");

    document_clear();
    text.data = (u_char *) json;
    text.len = p - json;

    since = seconds();
    root = ngx_ratelimit_document_parse(&text, &problems);
    assert_non_null(root);
    print_message("%zu bytes: parsed in %.3f s", text.len, seconds() - since);

    since = seconds();
    policy = ngx_ratelimit_document_read(&fleet, root, 0, &problems, &warnings,
                                         &deny_all, &nowhere);
    assert_non_null(policy);
    print_message(", compiled in %.3f s", seconds() - since);

    since = seconds();
    assert_int_equal(ngx_ratelimit_document_write(root, pool, &text), NGX_OK);
    print_message(", written in %.3f s\n", seconds() - since);

    assert_int_equal(policy->rules.nelts, RULES + 2);
    assert_int_equal(deny_all, 0);

    rule = document_rule(policy, "r9999");
    assert_int_equal(rule->limit.capacity, 100);
    assert_int_equal(rule->tiers[1].allowance.limit.capacity, 1000);

    ngx_ratelimit_policy_release(policy);
    json_decref(root);
    free(json);
}


/* As nginx.h's: one of them fails, once. */
static void *
json_alloc(size_t size)
{
    return ngx_alloc(size, NULL);
}


/*
 * Each allocation in turn fails: then there is no policy and no problem, or the
 * document is read nevertheless. A tree whose API keys are half hashed may be
 * left, of which nobody has any use.
 */
static void
without_memory(const char *json, ngx_uint_t good)
{
    int                      n;
    json_t                  *root;
    ngx_str_t                text;
    ngx_uint_t               failed;
    ngx_ratelimit_policy_t  *policy;

    json_set_alloc_funcs(json_alloc, free);
    failed = 0;

    for (n = 0; n < 5000; n++) {
        document_clear();
        text.data = (u_char *) json;
        text.len = strlen(json);
        policy = NULL;

        allocations = n;
        root = ngx_ratelimit_document_parse(&text, &problems);

        if (root == NULL) {

            /* jansson calls some of it a syntax error */

            assert_int_equal(problems.n, problems.list.nelts);
            problems.n = 0;

        } else {
            policy = ngx_ratelimit_document_read(&fleet, root, 0, &problems,
                                                 &warnings, &deny_all,
                                                 &nowhere);
        }

        if (policy) {
            (void) ngx_ratelimit_document_write(root, pool, &text);
            ngx_ratelimit_policy_release(policy);
        }

        json_decref(root);

        if (allocations >= 0) {
            break;      /* this one never came to be */
        }

        failed++;

        if (good && problems.n) {
            fail_msg("allocation %d: %s: %s", n,
                     document_problem(0)->pointer.data,
                     document_problem(0)->detail.data);
        }
    }

    allocations = -1;
    json_set_alloc_funcs(malloc, free);
    print_message("%lu allocations failed\n", failed);
    assert_true(failed > 20 && n < 5000);
}


static void
test_memory(void **state)
{
    (void) state;

    without_memory(small, 1);
    without_memory(wrong, 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_memory)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

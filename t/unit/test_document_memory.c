/*
 * Documents for which memory is out: nothing is lost then.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

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

/* where it is stored */
static const char  skipped[] =
    "{\"rules\":[{\"id\":\"a\",\"key\":\"$unknown\",\"params\":{\"limit\":1,"
    "\"window\":1}},{\"id\":\"b\",\"params\":{\"limit\":1,\"window\":1}}],"
    "\"blacklist\":[\"\",\"k\"],\"overrides\":[{\"id\":\"o\",\"key\":\"k\","
    "\"rule\":\"a\",\"type\":\"multiplicative\",\"value\":1}]}";


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
without_memory(const char *json, ngx_uint_t good, ngx_uint_t *written)
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

        allocations = written ? n : -1;
        root = ngx_ratelimit_document_parse(&text, &problems);

        if (root == NULL) {

            /* jansson calls some of it a syntax error */

            assert_int_equal(problems.n, problems.list.nelts);
            problems.n = 0;

        } else {
            allocations = written ? allocations : n;
            policy = ngx_ratelimit_document_read(&fleet, root, 0, &problems,
                                                 &warnings, written,
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

    without_memory(small, 1, &deny_all);
    without_memory(wrong, 0, &deny_all);
    without_memory(skipped, 1, NULL);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_memory)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

/*
 * How large a document may be: what is above a bound is refused before memory
 * is taken for it, and what is at the bound is read.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

#define BYTES  (4 * 1024 * 1024)

static char  json[BYTES];


/* "<head><item 0>,<item 1>,...<tail>"; an item has its number, or none. */
static void
many(const char *head, const char *item, size_t n, const char *tail)
{
    char    *p;
    size_t   i;

    p = json + sprintf(json, "%s", head);

    for (i = 0; i < n; i++) {
        assert_true(p + 1000 < json + BYTES);
        p += sprintf(p, i ? "," : "");
        p += sprintf(p, item, i, i);
    }

    sprintf(p, "%s", tail);
}


static void
refused(const char *pointer, const char *detail)
{
    assert_null(document_written(&alone, json));
    assert_int_equal(problems.n, 1);
    same_text(document_problem(0)->pointer, pointer);
    same_text(document_problem(0)->detail, detail);
}


static void
accepted(void)
{
    ngx_ratelimit_policy_release(document_good(&alone, json));
}


/* 1 MiB of what would be a deep tree: one look at the first bytes. */
static void
test_deep(void **state)
{
    (void) state;

    memset(json, '[', 1024 * 1024);
    json[1024 * 1024] = '\0';
    refused("", "has more than 32 arrays and objects in one another, at byte "
            "32");

    /* depth within strings is none, 32 are right */

    many("{\"format\":\"1.1\",\"z\":\"[[[{{\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
         "\",\"x\":", "", 1, "");
    memset(json + strlen(json) + 31, 0, 1);
    memset(json + strlen(json), '[', 31);
    memset(json + strlen(json) + 31, 0, 1);
    memset(json + strlen(json), ']', 31);
    strcat(json, "}");
    accepted();
}


/* What was edited may be deeper than what was parsed. */
static void
test_deep_tree(void **state)
{
    size_t   i;
    json_t  *root, *array;

    (void) state;

    document_clear();
    array = json_array();

    for (i = 0; i < 32; i++) {
        root = json_array();
        json_array_append_new(root, array);
        array = root;
    }

    root = json_object();
    json_object_set_new(root, "format", json_string("1.1"));
    json_object_set_new(root, "x", array);

    assert_null(ngx_ratelimit_document_read(&alone, root, 0, &problems,
                                            &warnings, NULL, &nowhere));
    assert_int_equal(problems.n, 1);
    same_text(document_problem(0)->detail, "has more than 32 arrays and "
              "objects in one another");
    json_decref(root);
}


static void
test_containers(void **state)
{
    (void) state;

    many("{\"format\":\"1.1\",\"x\":[", "[]", 99998, "]}");
    accepted();

    many("{\"format\":\"1.1\",\"x\":[", "{}", 99999, "]}");
    refused("", "has more than 100000 arrays and objects, at byte 300015");
}


/* Of what has a bound: as many as there may be, and one more. */
static void
test_entries(void **state)
{
    size_t  i;

    static const struct {
        const char  *head, *item, *tail, *pointer;
        size_t       max;
    } bounds[] = {
        { "{\"rules\":[", "{\"id\":\"r%zu\",\"params\":{\"rate\":\"9r/s\"}}",
          "]}", "/rules", 1000 },
        { "{\"whitelist\":[", "\"k%zu\"", "]}", "/whitelist", 10000 },
        { "{\"blacklist\":[", "\"k%zu*\"", "]}", "/blacklist", 10000 },
        { "{\"tier_of\":{\"keys\":{", "\"k%zu\":\"t\"", "}}}",
          "/tier_of/keys", 10000 },
        { "{\"tier_of\":{\"patterns\":[",
          "{\"pattern\":\"k%zu*\",\"tier\":\"t\"}", "]}}",
          "/tier_of/patterns", 10000 },
        { "{\"overrides\":[", "{\"id\":\"o%zu\",\"key\":\"k%zu\",\"type\":"
          "\"multiplicative\",\"value\":2}", "]}", "/overrides", 10000 },
        { "{\"rules\":[{\"id\":\"a\",\"params\":{\"limit\":1,\"window\":1},"
          "\"override\":{", "\"k%zu\":{\"limit\":2}", "}}]}",
          "/rules/0/override", 10000 },
        { "{\"rules\":[{\"id\":\"a\",\"params\":{\"limit\":1,\"window\":1},"
          "\"match\":{\"api_key_pattern\":[", "\"k%zu\"", "]}}]}",
          "/rules/0/match/api_key_pattern", 10000 }
    };

    char  detail[64];

    (void) state;

    for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        many(bounds[i].head, bounds[i].item, bounds[i].max, bounds[i].tail);
        accepted();

        many(bounds[i].head, bounds[i].item, bounds[i].max + 1,
             bounds[i].tail);
        sprintf(detail, "has %zu entries, expected at most %zu",
                bounds[i].max + 1, bounds[i].max);
        refused(bounds[i].pointer, detail);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_deep_tree),
        cmocka_unit_test(test_containers),
        cmocka_unit_test(test_entries)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

/*
 * Absolute overrides, on the limits that they may be on top of: what fits, what
 * is refused, and what a rule of nginx.conf, or a stored document, is only
 * warned of.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

/* of API key "k"; "s" has other parts, and "w" a tier whose window is long */
#define RULES                                                                 \
    "'rules':["                                                               \
    "{'id':'a','params':{'limit':10,'window':60},'override':{'vip':"          \
    "{'limit':1,'window':31622400}}},"                                        \
    "{'id':'s','key':['$a','$b'],'algorithm':'concurrency',"                  \
    "'params':{'limit':10}},"                                                 \
    "{'id':'log','key':'$c','algorithm':'sliding_log','match':"               \
    "{'api_key_pattern':['l']},'params':{'limit':10,'window':60}},"           \
    "{'id':'w','key':'$d','params':{'limit':10,'window':60},"                 \
    "'tiers':{'slow':{'limit':1,'window':31622400}}},"                        \
    "{'id':'v','key':'$e','params':{'rate':'$r'}}],"                          \
    "'tier_of':{'keys':{'t':'slow','u':'none'}}"

typedef struct {
    const char  *override;   /* "'" stands for the quotation mark */
    const char  *problem;    /* "": none */
    ngx_uint_t   problems;
    const char  *warning;
    ngx_uint_t   warnings;
} fit_t;

#define KEY(key, value)   "'key':'" key "','type':'absolute','value':" value
#define PART(part, value)                                                     \
    "'tenant':{'part':'" part "','value':'v'},'type':'absolute','value':" value

#define SLOTS     "does not fit rule \"s\": expected a limit alone for "      \
                  "concurrency"
#define CAPACITY  "{'capacity':1000}"

static const fit_t  fits[] = {

    /* by API key: all rules */
    { KEY("k", "500"), "", 0, "", 0 },
    { KEY("k", "{'limit':500,'window':60}"), SLOTS, 1, "", 0 },
    { KEY("k", "{'refill_rate':1}"), SLOTS, 1, "", 0 },
    { KEY("k", "{'limit':500,'capacity':50}"),
      "does not fit rule \"s\": expected the same number as limit and "
      "capacity, since the algorithm is no bucket", 1,
      "does not fit rule \"conf\", which stays as it is: expected the same "
      "number as limit and capacity, since the algorithm is no bucket", 1 },

    /* none that the key cannot meet: 10001 is too much for a log */
    { KEY("k", "10001"), "", 0, "", 0 },
    { KEY("l", "10001"), "does not fit rule \"log\": expected a limit of at "
      "most 10000 requests for sliding_log", 1, "", 0 },

    /* tiers: one that may be the key's, none that another has */
    { KEY("k", CAPACITY), "does not fit tier \"slow\" of rule \"w\": expected "
      "a capacity that the rate fills", 1, "", 0 },
    { KEY("t", CAPACITY), "does not fit tier \"slow\" of rule \"w\": expected "
      "a capacity that the rate fills", 1, "", 0 },
    { KEY("u", CAPACITY), "", 0, "", 0 },

    /* the key's own limit of a rule, and no other of that */
    { KEY("vip", CAPACITY), "does not fit rule \"a\": expected a capacity that "
      "the rate fills", 2, "", 0 },

    /* tenants: rules with that part */
    { PART("$c", "10001"), "does not fit rule \"log\": expected a limit of at "
      "most 10000 requests for sliding_log", 1, "", 0 },
    { PART("$a", "10001"), "", 0, "", 0 },
    { PART("$b", "{'refill_rate':1}"), SLOTS, 1, "", 0 },
    { PART("$e", "{'refill_rate':1}"), "", 0, "", 0 },
    { PART("$e", CAPACITY), "", 0, "", 0 },
    { PART("$e", "{'limit':5,'window':'calendar:day'}"), "does not fit rule "
      "\"v\": expected a window of some length for a bucket", 1, "", 0 },

    /* of nginx.conf: a warning, but where it is named */
    { PART("$ratelimit_api_key", "{'limit':5,'capacity':4}"), "", 0,
      "does not fit rule \"conf\", which stays as it is: expected the same "
      "number as limit and capacity, since the algorithm is no bucket", 1 },
    { KEY("k", "{'limit':5,'capacity':4}") ",'rule':'conf'",
      "expected the same number as limit and capacity, since the algorithm is "
      "no bucket", 1, "", 0 },
    { KEY("k", CAPACITY) ",'rule':'w'", "does not fit tier \"slow\" of rule "
      "\"w\": expected a capacity that the rate fills", 1, "", 0 },
    { KEY("k", CAPACITY) ",'rule':'a'", "", 0, "", 0 },

    /* factors fit all */
    { "'key':'k','type':'multiplicative','value':1000000", "", 0, "", 0 }
};


static char *
document(const char *override)
{
    char  *json, *p;

    json = malloc(sizeof(RULES) + strlen(override) + 64);
    assert_non_null(json);
    sprintf(json, "{" RULES ",'overrides':[{'id':'o',%s}]}", override);

    for (p = json; *p; p++) {
        if (*p == '\'') {
            *p = '"';
        }
    }

    return json;
}


/* How many there are, and how the first begins. */
static size_t
check(const char *what, const char *override, ngx_ratelimit_problems_t *list,
    const char *expected, ngx_uint_t n)
{
    const ngx_ratelimit_problem_t  *first;

    first = list->list.elts;

    if (list->n != n
        || (n && (strcmp((char *) first->pointer.data, "/overrides/0/value")
                  || strncmp((char *) first->detail.data, expected,
                             strlen(expected)))))
    {
        print_error("%s\n%lu %s, expected %lu: %s, the first: %s %s\n",
                    override, list->n, what, n, expected,
                    list->n ? (char *) first->pointer.data : "",
                    list->n ? (char *) first->detail.data : "");
        return 1;
    }

    return 0;
}


static void
test_written(void **state)
{
    char                    *json;
    size_t                   i, failed;
    json_t                  *root;
    ngx_str_t                text;
    ngx_ratelimit_policy_t  *policy;

    (void) state;

    failed = 0;

    for (i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        json = document(fits[i].override);
        document_clear();

        text.data = (u_char *) json;
        text.len = strlen(json);
        root = ngx_ratelimit_document_parse(&text, &problems);
        assert_non_null(root);

        policy = ngx_ratelimit_document_read(&alone, root, 0, &problems,
                                             &warnings, &deny_all, &nowhere);

        failed += check("problems", fits[i].override, &problems,
                        fits[i].problem, fits[i].problems);
        failed += check("warnings", fits[i].override, &warnings,
                        fits[i].warning, fits[i].warnings);

        assert_true(!policy == (problems.n != 0));

        if (policy) {
            ngx_ratelimit_policy_release(policy);
        }

        json_decref(root);
        free(json);
    }

    assert_int_equal(failed, 0);
}


/* No rules are given up for it. */
static void
test_stored(void **state)
{
    char                    *json;
    ngx_ratelimit_policy_t  *policy;

    (void) state;

    json = document(KEY("k", "{'limit':5,'capacity':4}"));
    ngx_ratelimit_policy_release(document_good(&alone, json));
    assert_int_equal(warnings.n, 2);
    free(json);

    json = document(KEY("k", "{'limit':5,'capacity':4}") ",'rule':'conf'");
    ngx_ratelimit_policy_release(document_good(&alone, json));
    assert_int_equal(warnings.n, 1);
    free(json);

    json = document(KEY("k", CAPACITY) ",'rule':'w'");
    ngx_ratelimit_policy_release(document_good(&alone, json));
    assert_int_equal(warnings.n, 1);
    free(json);

    json = document(KEY("k", "{'limit':5,'capacity':4}") ",'rule':'s'");
    policy = document_good(&alone, json);
    assert_int_equal(policy->skipped.n, 1);
    same_text(((ngx_ratelimit_problem_t *) policy->skipped.list.elts)->pointer,
              "/overrides/0/value");
    ngx_ratelimit_policy_release(policy);
    free(json);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_stored)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

/*
 * How large a document may be: what is above a bound is refused before memory
 * is taken for it, and what is at the bound is read. Documents for which memory
 * is out: nothing is lost then. And every document that docs/rules.md shows.
 */

#include "document.h"

#define BYTES  (4 * 1024 * 1024)

static char  json[BYTES];


/* "<head><item 0>,<item 1>,...<tail>"; an item has its number, or none. */
static void
many(const char *head, const char *item, size_t n, const char *tail)
{
    char *p = json + sprintf(json, "%s", head);

    for (size_t i = 0; i < n; i++) {
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
    ngx_rl_policy_release(document_good(&alone, json));
}


/* 1 MiB of what would be a deep tree: one look at the first bytes. */
static void
test_deep(void **state)
{
    memset(json, '[', 1024 * 1024);
    json[1024 * 1024] = '\0';
    refused("", "has more than 32 arrays and objects in one another, at byte "
            "32");

    /* depth within strings is none, 32 are right */

    many("{'format':'1.1','z':'[[[{{\\'[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
         "','x':", "", 1, "");
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
    document_clear();
    json_t *array = json_array();

    for (size_t i = 0; i < 32; i++) {
        json_t *root = json_array();
        json_array_append_new(root, array);
        array = root;
    }

    json_t *root = json_object();
    json_object_set_new(root, "format", json_string("1.1"));
    json_object_set_new(root, "x", array);

    assert_null(ngx_rl_document_read(&alone, root, 0, &problems,
                                     &warnings, NULL, NULL, &nowhere));
    assert_int_equal(problems.n, 1);
    same_text(document_problem(0)->detail, "has more than 32 arrays and "
              "objects in one another");
    json_decref(root);
}


static void
test_containers(void **state)
{
    many("{'format':'1.1','x':[", "[]", 99998, "]}");
    accepted();

    many("{'format':'1.1','x':[", "{}", 99999, "]}");
    refused("", "has more than 100000 arrays and objects, at byte 300015");
}


/* Of what has a bound: as many as there may be, and one more. */
static void
test_entries(void **state)
{
    static const struct {
        const char  *head, *item, *tail, *pointer;
        size_t       max;
    } bounds[] = {
        { "{'rules':[", "{'id':'r%zu','params':{'rate':'9r/s'}}",
          "]}", "/rules", 1000 },
        { "{'allow':[", "'k%zu'", "]}", "/allow", 10000 },
        { "{'deny':[", "'k%zu*'", "]}", "/deny", 10000 },
        { "{'tier_of':{'keys':{", "'k%zu':'t'", "}}}",
          "/tier_of/keys", 10000 },
        { "{'tier_of':{'patterns':[",
          "{'pattern':'k%zu*','tier':'t'}", "]}}",
          "/tier_of/patterns", 10000 },
        { "{'rules':[{'id':'a','params':{'limit':1,'window':1}}],"
          "'tier_of':{'rules':{'a':{", "'k%zu':'t'", "}}}}",
          "/tier_of/rules/a", 10000 },
        { "{'rules':[{'id':'a','params':{'limit':1,'window':1},"
          "'limits_by_key':{",
          "'k%zu':{'limit':2}", "}}]}", "/rules/0/limits_by_key", 10000 },
        { "{'overrides':[", "{'id':'o%zu','key':'k%zu','type':"
          "'multiplicative','value':2}", "]}", "/overrides", 10000 },
        { "{'rules':[{'id':'a','params':{'limit':1,'window':1},"
          "'limits_by_api_key':{", "'k%zu':{'limit':2}", "}}]}",
          "/rules/0/limits_by_api_key", 10000 },
        { "{'rules':[{'id':'a','params':{'limit':1,'window':1},"
          "'match':{'api_key_pattern':[", "'k%zu'", "]}}]}",
          "/rules/0/match/api_key_pattern", 10000 },
        { "{'rules':[{'id':'a','params':{'limit':1,'window':1},"
          "'labels':{", "'k%zu':'v'", "}}]}", "/rules/0/labels", 32 }
    };

    char  detail[64];

    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        many(bounds[i].head, bounds[i].item, bounds[i].max, bounds[i].tail);
        accepted();

        many(bounds[i].head, bounds[i].item, bounds[i].max + 1, bounds[i].tail);
        sprintf(detail, "has %zu entries, expected at most %zu",
                bounds[i].max + 1, bounds[i].max);
        refused(bounds[i].pointer, detail);
    }
}


/* More problems than are kept are counted. */
static void
test_problems(void **state)
{
    many("{'deny':[", "0", 10000, "]}");
    assert_null(document_written(&alone, json));
    assert_int_equal(problems.n, 10000);
    assert_int_equal(problems.list.nelts, NGX_RL_MAX_PROBLEMS);
    same_text(document_problem(99)->pointer, "/deny/99");
}


static const char  small[] =
    "{'format':'1.1','x':1,'rules':[{'id':'a','key':['$a','$b'],'params':{"
    "'rate':'9r/s'},'match':{'api_key_pattern':['k','k*'],'host':['h'],"
    "'methods':['GET'],'route':'/a','tier':'t'},'tiers':{'t':{'limit':1}},"
    "'limits_by_api_key':{'k':{'limit':1}},'count_status':[401],'group':'g'},"
    "{'id':'b',"
    "'params':{'limit':'$l','window':1},'cost':'$c','cost_header':'x'},{"
    "'id':'c','params':{'rate':'1r/s'},'limits_by_key':{'k':{'limit':1}}}],"
    "'tier_of':{"
    "'keys':{'k':'t'},'rules':{'b':{'k':'t'}},'patterns':[{'pattern':'k*',"
    "'tier':'t'},{'rule':'b','pattern':'k*','tier':'t'}]},"
    "'allow':['k','k*'],'overrides':[{'id':'o','key':'k','rule':'a',"
    "'type':'absolute','value':1}]}";

static const char  wrong[] =
    "{'rules':[{'id':'a b','params':{}}],'tier_of':{'keys':{'k':1}},'y':2}";

/* where it is stored */
static const char  skipped[] =
    "{'rules':[{'id':'a','key':'$unknown','params':{'limit':1,"
    "'window':1}},{'id':'b','params':{'limit':1,'window':1}}],"
    "'deny':['','k'],'overrides':[{'id':'o','key':'k',"
    "'rule':'a','type':'multiplicative','value':1}]}";


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
without_memory(const char *text_of, ngx_uint_t good, ngx_uint_t *written)
{
    int  n;

    json_set_alloc_funcs(json_alloc, free);
    ngx_uint_t failed = 0;

    for (n = 0; n < 5000; n++) {
        ngx_str_t text = document_text(text_of);
        ngx_rl_policy_t *policy = NULL;

        allocations = written ? n : -1;
        json_t *root = ngx_rl_document_parse(&text, &problems);

        if (root == NULL) {

            /* jansson calls some of it a syntax error */

            assert_int_equal(problems.n, problems.list.nelts);
            problems.n = 0;

        } else {
            allocations = written ? allocations : n;
            policy = ngx_rl_document_read(&fleet, root, 0, &problems, &warnings,
                                          written, NULL, &nowhere);
        }

        if (policy) {
            (void) ngx_rl_document_write(root, pool, &text);
            ngx_rl_policy_release(policy);
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
    without_memory(small, 1, &deny_all);
    without_memory(wrong, 0, &deny_all);
    without_memory(skipped, 1, NULL);
}


static void
test_docs(void **state)
{
    char  *end;

    FILE *file = fopen(DOCS, "r");
    assert_non_null(file);
    size_t len = fread(json, 1, BYTES - 1, file);
    json[len] = '\0';
    fclose(file);

    size_t n = 0;

    for (char *p = json; (p = strstr(p, "\n```json\n")) != NULL; p = end + 4) {
        p += 9;
        end = strstr(p, "\n```");
        assert_non_null(end);
        *end = '\0';

        ngx_rl_policy_release(document_good(&alone, p));
        n++;
    }

    assert_true(n > 5);
    print_message("%zu documents\n", n);
}

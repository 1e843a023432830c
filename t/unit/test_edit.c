/*
 * Editing a document: the whole of it, and one rule.
 */

#include "edit.h"

#define BASE  "{'version':41,'rules':["                                       \
                  "{'id':'orders','params':{'capacity':10}},"                 \
                  "{'id':'users','params':{'capacity':20}}]}"

#define run(resource, method, name, body)                                     \
    edit_run(NGX_RATELIMIT_EDIT_##resource, NGX_RATELIMIT_EDIT_##method,      \
             name, NULL, json(body))


static void
test_document(void **state)
{
    (void) state;

    /* nothing yet */

    edit_begin(NULL);
    run(DOCUMENT, GET, NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'version':0,'rules':[]}");
    assert_int_equal(edit.document.len, 0);

    run(DOCUMENT, PUT, NULL, "{'rules':[{'id':'a'}]}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    is_json(&edit.document, "{'version':1,'rules':[{'id':'a'}]}");
    assert_ptr_equal(edit.reply.data, edit.document.data);

    /* what is there is shown as it is, whatever it is */

    edit_begin(" {\"rules\": [ ] }\n");
    run(DOCUMENT, GET, NULL, NULL);
    assert_memory_equal(edit.reply.data, edit.base.data, edit.base.len);

    edit_begin("no JSON\n");
    run(DOCUMENT, GET, NULL, NULL);
    assert_int_equal(edit.reply.len, 8);

    /* and can be replaced */

    run(DOCUMENT, PUT, NULL, "{'version':7,'rules':[]}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.document, "{'version':42,'rules':[]}");

    run(DOCUMENT, PUT, NULL, "{'version':'7','rules':[]}");
    is_problem("/version", "must be a number");

    run(DOCUMENT, PUT, NULL, "{'rules':[],'rules':[]}");
    is_problem("", "is no JSON");

    run(DOCUMENT, PUT, NULL, "{'rules':[{'id':'a'},"
                             "{'id':'b','params':{'capacity':0}}]}");
    is_problem("/rules/1/params/capacity", "must be > 0");

    run(DOCUMENT, PUT, NULL, "{'rules':[{'id':'a','x':1}]}");
    is_problem("/rules/0/x", "is unknown");

    run(DOCUMENT, PUT, NULL, "{'blacklist':[1,'*'],'rules':[{'x':1}]}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_INVALID);
    assert_int_equal(edit.problems.n, 3);

    /* all or nothing of a base is only of those who edit it */

    run(RULE, GET, "orders", NULL);
    is_problem("", "in the document: is no JSON");

    edit_end();
}


static void
test_force(void **state)
{
    (void) state;

    edit_begin(json(BASE));
    run(DOCUMENT, PUT, NULL, "{'blacklist':['*']}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_DENY_ALL);
    assert_int_equal(edit.document.len, 0);

    run(VALIDATE, POST, NULL, "{'blacklist':['*']}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_DENY_ALL);

    run(BLACKLIST, POST, NULL, "'*'");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_DENY_ALL);

    edit.force = 1;
    run(BLACKLIST, POST, NULL, "'*'");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "['*']");

    run(VALIDATE, POST, NULL, "{'blacklist':['*']}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'valid':true,'warnings':[{'pointer':'',"
                         "'detail':'would reject all requests'}]}");

    edit_end();
}


static void
test_validate(void **state)
{
    (void) state;

    edit_begin(json(BASE));
    run(VALIDATE, POST, NULL, "{'rules':[{'id':'a'}]}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'valid':true,'warnings':[]}");
    assert_int_equal(edit.document.len, 0);
    assert_non_null(edit.policy);

    run(VALIDATE, POST, NULL,
        "{'format':'1.3','rules':[{'id':'a','x':{'y':1}}]}");
    is_json(&edit.reply, "{'valid':true,'warnings':[{'pointer':'/rules/0/x',"
                         "'detail':'is unknown'}]}");
    assert_int_equal(edit.document.len, 0);

    run(VALIDATE, POST, NULL,
        "{'rules':[{'id':'a','params':{'capacity':-1}}]}");
    is_problem("/rules/0/params/capacity", "must be > 0");

    run(VALIDATE, POST, NULL, "");
    is_problem("", "is no JSON");

    edit_end();
}


static void
test_rule(void **state)
{
    (void) state;

    edit_begin(json(BASE));
    run(RULE, GET, "users", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'id':'users','params':{'capacity':20}}");
    assert_int_equal(edit.document.len, 0);

    run(RULE, GET, "user", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    /* in its place */

    run(RULE, PUT, "orders", "{'params':{'capacity':11}}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'params':{'capacity':11},'id':'orders'}");
    is_json(&edit.document, "{'version':42,'rules':["
                            "{'params':{'capacity':11},'id':'orders'},"
                            "{'id':'users','params':{'capacity':20}}]}");

    /* behind the others */

    run(RULE, PUT, "new", "{'id':'new'}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    is_json(&edit.document, "{'version':42,'rules':["
                            "{'id':'orders','params':{'capacity':10}},"
                            "{'id':'users','params':{'capacity':20}},"
                            "{'id':'new'}]}");

    run(RULE, PUT, "users", "{'id':'user'}");
    is_problem("/id", "must be \"users\", as the path has it");

    run(RULE, PUT, "users", "{'params':{'capacity':0}}");
    is_problem("/params/capacity", "must be > 0");

    run(RULE, PUT, "third", "{'params':{'capacity':0}}");
    is_problem("/params/capacity", "must be > 0");

    /* all of it at once */

    run(RULE, PUT, "users", "{'id':1,'params':{'capacity':0},'yy':1,'zz':2}");
    assert_int_equal(edit.problems.n, 4);

    run(RULE, PUT, "users", "[]");
    is_problem("", "must be an object");

    run(RULE, DELETE, "orders", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_GONE);
    assert_int_equal(edit.reply.len, 0);
    is_json(&edit.document, "{'version':42,'rules':["
                            "{'id':'users','params':{'capacity':20}}]}");

    run(RULE, DELETE, "order", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);
    assert_int_equal(edit.document.len, 0);

    /* a method that it has not, and a name that it needs */

    run(RULE, POST, "orders", "{}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);
    run(RULE, PUT, NULL, "{}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    edit_end();
}


static void
test_patch(void **state)
{
    (void) state;

    edit_begin(json(BASE));
    run(RULE, PATCH, "orders", "{'params':{'burst':3},'shards':2}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'id':'orders','params':{'capacity':10,'burst':3},"
                         "'shards':2}");
    is_json(&edit.document, "{'version':42,'rules':[{'id':'orders',"
                            "'params':{'capacity':10,'burst':3},'shards':2},"
                            "{'id':'users','params':{'capacity':20}}]}");

    run(RULE, PATCH, "orders", "{'params':null}");
    is_json(&edit.reply, "{'id':'orders'}");

    run(RULE, PATCH, "users", "{'params':{'capacity':-1}}");
    is_problem("/params/capacity", "must be > 0");

    run(RULE, PATCH, "orders", "{'id':null}");
    is_problem("/id", "must be \"orders\", as the path has it");

    run(RULE, PATCH, "orders", "{'id':'users'}");
    is_problem("/id", "must be \"orders\", as the path has it");

    run(RULE, PATCH, "nobody", "{}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    run(RULE, PATCH, "orders", "7");
    is_problem("", "must be an object");

    edit_end();
}


/* Keys of "override": by what is stored of them, also where they leave. */
static void
test_patch_keys(void **state)
{
    char        base[512];
    u_char      buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_str_t   key, stored;

    (void) state;

    key = str("sk/1");
    stored = ngx_ratelimit_document_key(&key, buf);

    sprintf(base, "{'rules':[{'id':'orders','override':{'%.*s':{'limit':7}}}]}",
            (int) stored.len, (char *) stored.data);

    edit_begin(json(base));
    run(RULE, PATCH, "orders", "{'override':{'sk/1':{'burst':1}}}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    assert_non_null(strstr((char *) edit.reply.data, "7,\"burst\":1"));
    assert_null(strstr((char *) edit.reply.data, "sk/1"));

    run(RULE, PATCH, "orders", "{'override':{'sk/1':null}}");
    is_json(&edit.reply, "{'id':'orders','override':{}}");

    run(RULE, PATCH, "orders", "{'override':{'sk/1':{'limit':0}}}");
    is_problem("/override/sk~11/limit", "must be > 0");

    run(RULE, PATCH, "orders", "{'override':{'sk~2':{'limit':0}}}");
    is_problem("/override/sk~02/limit", "must be > 0");

    sprintf(base, "{'override':{'sk/1':null,'%.*s':{'limit':9}}}",
            (int) stored.len, (char *) stored.data);
    run(RULE, PATCH, "orders", base);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_INVALID);
    assert_int_equal(edit.problems.n, 1);

    /* in the clear, where the zone says so */

    edit_begin(json("{'rules':[{'id':'a','override':{'sk':{'limit':7}}}]}"));
    edit.clear = 1;
    run(RULE, PATCH, "a", "{'override':{'sk':null,'sl':{'limit':1}}}");
    is_json(&edit.reply, "{'id':'a','override':{'sl':{'limit':1}}}");

    edit_end();
}


/* The examples of RFC 7396, of a member that this format does not know. */
static void
test_merge_patch(void **state)
{
    char        base[512], body[512], expected[512];
    ngx_uint_t  i;

    static const char  *examples[][3] = {
        { "{'a':'b'}", "{'a':'c'}", "{'a':'c'}" },
        { "{'a':'b'}", "{'b':'c'}", "{'a':'b','b':'c'}" },
        { "{'a':'b'}", "{'a':null}", "{}" },
        { "{'a':'b','b':'c'}", "{'a':null}", "{'b':'c'}" },
        { "{'a':['b']}", "{'a':'c'}", "{'a':'c'}" },
        { "{'a':'c'}", "{'a':['b']}", "{'a':['b']}" },
        { "{'a':{'b':'c'}}", "{'a':{'b':'d','c':null}}", "{'a':{'b':'d'}}" },
        { "{'a':[{'b':'c'}]}", "{'a':[1]}", "{'a':[1]}" },
        { "['a','b']", "['c','d']", "['c','d']" },
        { "{'a':'b'}", "['c']", "['c']" },
        { "{'a':'foo'}", "'bar'", "'bar'" },
        { "{'e':null}", "{'a':1}", "{'e':null,'a':1}" },
        { "[1,2]", "{'a':'b','c':null}", "{'a':'b'}" },
        { "{}", "{'a':{'bb':{'ccc':null}}}", "{'a':{'bb':{}}}" },
    };

    (void) state;

    for (i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        sprintf(base, "{'format':'1.9','rules':[{'id':'a','x':%s}]}",
                examples[i][0]);
        sprintf(body, "{'x':%s}", examples[i][1]);
        sprintf(expected, "{'id':'a','x':%s}", examples[i][2]);

        edit_begin(json(base));
        run(RULE, PATCH, "a", body);
        assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
        is_json(&edit.reply, expected);
    }

    run(RULE, PATCH, "a", "{'x':null}");
    is_json(&edit.reply, "{'id':'a'}");

    edit_end();
}


/* What a newer format has survives what is changed beside it. */
static void
test_unknown(void **state)
{
    (void) state;

    edit_begin(json("{'version':41,'format':'1.9','new':{'a':[1]},"
                    "'rules':[{'id':'a','x':1},{'id':'b','y':{'z':null}}]}"));

    run(RULE, PUT, "a", "{'id':'a'}");
    is_json(&edit.document, "{'version':42,'format':'1.9','new':{'a':[1]},"
                            "'rules':[{'id':'a'},{'id':'b','y':{'z':null}}]}");
    assert_int_equal(edit.warnings.n, 1);

    run(TIER, PUT, "pro", "{'limit':1}");
    is_json(&edit.document, "{'version':42,'format':'1.9','new':{'a':[1]},"
                            "'rules':[{'id':'a','x':1,"
                            "'tiers':{'pro':{'limit':1}}},"
                            "{'id':'b','y':{'z':null},"
                            "'tiers':{'pro':{'limit':1}}}]}");

    run(WHITELIST, PUT, NULL, "['a*']");
    is_json(&edit.document, "{'version':42,'format':'1.9','new':{'a':[1]},"
                            "'rules':[{'id':'a','x':1},"
                            "{'id':'b','y':{'z':null}}],'whitelist':['a*']}");

    edit_end();
}


/* What is wrong elsewhere does not look as if it were in the body. */
static void
test_outside(void **state)
{
    (void) state;

    edit_begin(json("{'rules':[{'id':'a','params':{'capacity':0}},"
                    "{'id':'b'}]}"));

    run(RULE, PUT, "b", "{}");
    is_problem("/rules/0/params/capacity", "in the document: must be > 0");

    run(RULE, DELETE, "b", NULL);
    is_problem("/rules/0/params/capacity", "in the document: must be > 0");

    run(RULE, DELETE, "a", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_GONE);

    run(RULE, PUT, "a", "{}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);

    edit_end();
}


/* What is found later, when regular expressions are compiled. */
static void
test_places(void **state)
{
    ngx_str_t                  pointer;
    ngx_ratelimit_problem_t   *problem;
    ngx_ratelimit_problems_t   problems;

    (void) state;

    edit_begin(json(BASE));
    run(RULE, PUT, "users", "{}");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);

    ngx_ratelimit_problems_init(&problems, &pool);
    pointer = str("/rules/1/match/endpoint_regex");
    ngx_ratelimit_problem(&problems, &pointer, "is wrong");
    pointer = str("/rules/10/match/endpoint_regex");
    ngx_ratelimit_problem(&problems, &pointer, "is wrong");

    ngx_ratelimit_edit_places(&edit, &problems);

    problem = problems.list.elts;
    assert_int_equal(problems.n, 2);
    assert_string_equal((char *) problem[0].pointer.data,
                        "/match/endpoint_regex");
    assert_string_equal((char *) problem[0].detail.data, "is wrong");
    assert_string_equal((char *) problem[1].pointer.data,
                        "/rules/10/match/endpoint_regex");
    assert_string_equal((char *) problem[1].detail.data,
                        "in the document: is wrong");

    edit_end();
}


int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_force),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_patch),
        cmocka_unit_test(test_patch_keys),
        cmocka_unit_test(test_merge_patch),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_places),
    };

    return cmocka_run_group_tests_name("edit", tests, NULL, NULL);
}

/*
 * Editing a document: tiers and who has them, overrides, the two lists.
 */

#include "edit.h"

#define run(resource, method, name, query, body)                              \
    edit_run(NGX_RATELIMIT_EDIT_##resource, NGX_RATELIMIT_EDIT_##method,      \
             name, query, body)

/* what is stored of a key */
static const char *
stored(const char *key)
{
    static u_char  buffers[4][NGX_RATELIMIT_DOCUMENT_KEY + 1];
    static int     n;
    ngx_str_t      text;
    u_char        *buf;

    buf = buffers[n++ % 4];
    text = str(key);
    (void) ngx_ratelimit_document_key(&text, buf);

    return (char *) buf;
}


/* json() of a format, whose "%s" are keys */
static const char *
with(const char *text, const char *key)
{
    char  buffer[2048];

    sprintf(buffer, text, key);

    return json(buffer);
}


static void
test_tier(void **state)
{
    (void) state;

    edit_begin(json("{'rules':[{'id':'a','tiers':{'pro':{'limit':1}}},"
                    "{'id':'b','tiers':{}},{'id':'c'}]}"));

    run(TIER, GET, "pro", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'rules':{'a':{'limit':1}}}");

    run(TIER, GET, "free", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    run(TIER, GET, "pro", "rule=b", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    /* those that have tiers */

    run(TIER, PUT, "pro", NULL, json("{'limit':500,'capacity':500}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'rules':{'a':{'limit':500,'capacity':500},"
                         "'b':{'limit':500,'capacity':500}}}");
    is_json(&edit.document, "{'version':42,'rules':["
        "{'id':'a','tiers':{'pro':{'limit':500,'capacity':500}}},"
        "{'id':'b','tiers':{'pro':{'limit':500,'capacity':500}}},"
        "{'id':'c'}]}");

    run(TIER, PUT, "free", NULL, json("{'limit':5}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);

    /* one */

    run(TIER, PUT, "pro", "force=1&rule=%63", json("{'limit':5}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    is_json(&edit.reply, "{'rules':{'c':{'limit':5}}}");
    is_json(&edit.document, "{'version':42,'rules':["
        "{'id':'a','tiers':{'pro':{'limit':1}}},{'id':'b','tiers':{}},"
        "{'id':'c','tiers':{'pro':{'limit':5}}}]}");

    run(TIER, PUT, "pro", "rule=d", json("{'limit':5}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    /* wrong in two rules, in one place of the body */

    run(TIER, PUT, "pro", NULL, json("{'limit':0}"));
    is_problem("/limit", "must be > 0");

    run(TIER, PUT, "a/b", NULL, json("{'limit':0}"));
    is_problem("/limit", "must be > 0");

    run(TIER, PUT, "pro", NULL, "7");
    is_problem("", "must be an object");

    /* of a rule that had tiers and has none any more it is still one */

    run(TIER, DELETE, "pro", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_GONE);
    is_json(&edit.document, "{'version':42,'rules':[{'id':'a','tiers':{}},"
                            "{'id':'b','tiers':{}},{'id':'c'}]}");

    run(TIER, DELETE, "pro", "rule=c", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    run(TIER, DELETE, "free", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    edit_end();
}


/* No rule has tiers: all get it, but those that may have none. */
static void
test_tier_of_all(void **state)
{
    (void) state;

    edit_begin(json("{'rules':[{'id':'a'},{'id':'b','shards':4},{'id':'c'}]}"));
    run(TIER, PUT, "pro", NULL, json("{'limit':5}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    is_json(&edit.reply, "{'rules':{'a':{'limit':5},'c':{'limit':5}}}");

    edit_begin(NULL);
    run(TIER, PUT, "pro", NULL, json("{'limit':5}"));
    is_problem("", "there is no rule that can have a tier");

    edit_end();
}


static void
test_tiers_of(void **state)
{
    (void) state;

    edit_begin(NULL);
    run(TIER_OF, GET, NULL, NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'keys':{},'patterns':[]}");

    run(TIER_OF, PATCH, NULL, NULL, json("{'keys':{'sk_1':'pro'},"
        "'patterns':[{'pattern':'sk_f*','tier':'free'}]}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, with("{'keys':{'%s':'pro'},"
        "'patterns':[{'pattern':'sk_f*','tier':'free'}]}", stored("sk_1")));

    edit_begin(with("{'tier_of':{'keys':{'%s':'pro','sha256:x':'a'}}}",
                    stored("sk_1")));
    run(TIER_OF, PATCH, NULL, NULL, json("{'keys':{'sk_1':null}}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    assert_null(strstr((char *) edit.document.data, stored("sk_1")));

    run(TIER_OF, PATCH, NULL, NULL, with("{'keys':{'%s':'free'}}",
                                         stored("sk_1")));
    assert_non_null(strstr((char *) edit.document.data, ":\"free\""));
    assert_null(strstr((char *) edit.document.data, ":\"pro\""));

    run(TIER_OF, PATCH, NULL, NULL, json("{'keys':{'sk_2':'pro','s/3':7}}"));
    is_problem("/keys/s~13", "must be a text");

    run(TIER_OF, PATCH, NULL, NULL, json("{'x':7}"));
    is_problem("/x", "is unknown");

    run(TIER_OF, PATCH, NULL, NULL, json("[]"));
    is_problem("", "must be an object");

    run(TIER_OF, PATCH, NULL, NULL, with("{'keys':{'sk_1':'a','%s':'b'}}",
                                         stored("sk_1")));
    assert_int_equal(edit.problems.n, 1);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_INVALID);

    edit_end();
}


static void
test_tier_of(void **state)
{
    (void) state;

    edit_begin(with("{'tier_of':{'keys':{'%s':'pro'},'patterns':["
                    "{'pattern':'sk_f*','tier':'free'},"
                    "{'pattern':'sk_*','tier':'other'}]}}", stored("sk_1")));

    run(TIER_OF, GET, "sk_1", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'tier':'pro','by':'key'}");

    run(TIER_OF, GET, stored("sk_1"), NULL, NULL);
    is_json(&edit.reply, "{'tier':'pro','by':'key'}");

    run(TIER_OF, GET, "sk_f1", NULL, NULL);
    is_json(&edit.reply, "{'tier':'free','by':'pattern'}");

    run(TIER_OF, GET, "sk_2", NULL, NULL);
    is_json(&edit.reply, "{'tier':'other','by':'pattern'}");

    run(TIER_OF, GET, "nobody", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    /* nobody knows of a digest which pattern its key matches */

    run(TIER_OF, GET, stored("sk_f1"), NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    run(TIER_OF, PUT, "sk_1", NULL, json("{'tier':'max'}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "{'tier':'max','by':'key'}");
    assert_null(strstr((char *) edit.document.data, "pro"));

    run(TIER_OF, PUT, "sk_2", NULL, json("{'tier':'max'}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    assert_non_null(strstr((char *) edit.document.data, stored("sk_2")));
    assert_non_null(strstr((char *) edit.document.data, "pro"));

    run(TIER_OF, PUT, "sk_2", NULL, json("{'tier':7}"));
    is_problem("/tier", "must be a text");
    run(TIER_OF, PUT, "sk_2", NULL, json("{'tier':'a','b~c':1}"));
    is_problem("/b~0c", "is unknown");
    run(TIER_OF, PUT, "sk_2", NULL, json("{}"));
    is_problem("/tier", "is missing");
    run(TIER_OF, PUT, "sk_2", NULL, json("'pro'"));
    is_problem("", "must be an object");

    run(TIER_OF, DELETE, "sk_1", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_GONE);
    assert_non_null(strstr((char *) edit.document.data, "\"keys\":{}"));

    run(TIER_OF, DELETE, "sk_f1", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    /* a key in the clear, asked for by its digest */

    edit_begin(json("{'tier_of':{'keys':{'sk_1':'pro'}}}"));
    edit.clear = 1;
    run(TIER_OF, GET, stored("sk_1"), NULL, NULL);
    is_json(&edit.reply, "{'tier':'pro','by':'key'}");
    run(TIER_OF, PUT, "sk_2", NULL, json("{'tier':'a'}"));
    is_json(&edit.document, "{'version':42,'tier_of':{'keys':{'sk_1':'pro',"
                            "'sk_2':'a'}}}");

    edit_end();
}


static void
test_overrides(void **state)
{
    (void) state;

    edit_begin(with("{'rules':[{'id':'orders'}],'overrides':["
        "{'id':'x','key':'%s','rule':'orders'},"
        "{'id':'old','key':'k*','expires_at':'@1795000000'},"
        "{'id':'y','key':'k*','expires_at':'@1795000001'}]}", stored("sk_1")));

    run(OVERRIDES, GET, NULL, NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, with("[{'id':'x','key':'%s','rule':'orders'},"
        "{'id':'y','key':'k*','expires_at':'@1795000001'}]", stored("sk_1")));

    run(OVERRIDES, GET, NULL, "key=sk%5F1", NULL);
    is_json(&edit.reply, with("[{'id':'x','key':'%s','rule':'orders'}]",
                              stored("sk_1")));

    run(OVERRIDES, GET, NULL, "rule=orders&key=k*", NULL);
    is_json(&edit.reply, "[]");
    run(OVERRIDES, GET, NULL, "key=k*", NULL);
    is_json(&edit.reply, "[{'id':'y','key':'k*','expires_at':'@1795000001'}]");

    run(OVERRIDES, GET, "y", NULL, NULL);
    is_json(&edit.reply, "{'id':'y','key':'k*','expires_at':'@1795000001'}");
    run(OVERRIDES, GET, "old", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);
    run(OVERRIDES, DELETE, "old", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    run(OVERRIDES, DELETE, "x", NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_GONE);
    is_json(&edit.document, "{'version':42,'rules':[{'id':'orders'}],"
        "'overrides':[{'id':'y','key':'k*','expires_at':'@1795000001'}]}");

    /* those that have ended leave with any change */

    run(WHITELIST, PUT, NULL, NULL, "[]");
    assert_null(strstr((char *) edit.document.data, "old"));
    run(DOCUMENT, PUT, NULL, NULL, json("{'overrides':[{'id':'a','key':'k*',"
                                        "'expires_at':'@1'}]}"));
    is_json(&edit.document, "{'version':42,'overrides':[]}");

    edit_end();
}


static void
test_override_post(void **state)
{
    (void) state;

    edit_begin(json("{'overrides':[{'id':'old','key':'k*','expires_at':'@1'},"
                    "{'id':'x','key':'a*'}]}"));

    run(OVERRIDES, POST, NULL, NULL, json("{'key':'sk_1','value':5}"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    is_json(&edit.reply, with("{'id':'abababababababababababababababab',"
                              "'key':'%s','value':5}", stored("sk_1")));
    is_json(&edit.document, with("{'version':42,'overrides':["
        "{'id':'x','key':'a*'},{'id':'abababababababababababababababab',"
        "'key':'%s','value':5}]}", stored("sk_1")));

    run(OVERRIDES, POST, NULL, NULL,
        json("[{'key':'b*'},{'id':'old','key':'c*'},{'key':'d*'}]"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_CREATED);
    is_json(&edit.reply, "[{'id':'abababababababababababababababab',"
        "'key':'b*'},{'id':'old','key':'c*'},"
        "{'id':'abababababababababababababababab-2','key':'d*'}]");

    run(OVERRIDES, POST, NULL, NULL, json("{'id':'x','key':'b*'}"));
    is_problem("/id", "is taken");

    run(OVERRIDES, POST, NULL, NULL,
        json("[{'key':'b*'},{'id':'x','key':'c*'}]"));
    is_problem("/1/id", "is taken");

    run(OVERRIDES, POST, NULL, NULL, json("[{'key':'b*'},{'key':7}]"));
    is_problem("/1/key", "must be a text");
    run(OVERRIDES, POST, NULL, NULL, json("{'key':7}"));
    is_problem("/key", "must be a text");
    run(OVERRIDES, POST, NULL, NULL, json("{'key':'a','rule':'none'}"));
    is_problem("/rule", "is no rule");
    run(OVERRIDES, POST, NULL, NULL, "7");
    is_problem("", "must be an object, or an array of objects");

    /* what would not be there when the answer says that it is */

    run(OVERRIDES, POST, NULL, NULL,
        json("{'key':'b*','expires_at':'@1795000000'}"));
    is_problem("/expires_at", "is in the past");
    run(OVERRIDES, POST, NULL, NULL,
        json("[{'key':'b*','expires_at':'@1795000001'},"
             "{'key':'b*','expires_at':'@1'}]"));
    is_problem("/1/expires_at", "is in the past");

    run(OVERRIDES, POST, NULL, NULL, "[]");
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    assert_int_equal(edit.document.len, 0);

    edit_end();
}


static void
test_lists(void **state)
{
    (void) state;

    edit_begin(NULL);
    run(WHITELIST, GET, NULL, NULL, NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, "[]");

    run(BLACKLIST, PUT, NULL, NULL, json("['sk_1','a*']"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    is_json(&edit.reply, with("['%s','a*']", stored("sk_1")));
    is_json(&edit.document, with("{'version':1,'rules':[],"
                                 "'blacklist':['%s','a*']}", stored("sk_1")));

    run(WHITELIST, PUT, NULL, NULL, json("['a',7]"));
    is_problem("/1", "must be a text");
    run(WHITELIST, PUT, NULL, NULL, json("'a'"));
    is_problem("", "must be an array");

    edit_begin(with("{'whitelist':['%s','a*']}", stored("sk_1")));

    /* what is there is not added again, nor is anything changed by that */

    run(WHITELIST, POST, NULL, NULL, json("'sk_1'"));
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_OK);
    assert_int_equal(edit.document.len, 0);
    is_json(&edit.reply, with("['%s','a*']", stored("sk_1")));

    run(WHITELIST, POST, NULL, NULL, json("['sk_1','a*','b*','b*']"));
    is_json(&edit.reply, with("['%s','a*','b*']", stored("sk_1")));

    run(WHITELIST, POST, NULL, NULL, json("['a*','c*',7]"));
    is_problem("/2", "must be a text");
    run(WHITELIST, POST, NULL, NULL, "{}");
    is_problem("", "must be a text, or an array of texts");

    run(WHITELIST, DELETE, NULL, "key=sk_1", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_GONE);
    is_json(&edit.document, "{'version':42,'whitelist':['a*']}");

    run(WHITELIST, DELETE, NULL, NULL, json("['nobody','a*']"));
    is_json(&edit.document, with("{'version':42,'whitelist':['%s']}",
                                 stored("sk_1")));

    run(WHITELIST, DELETE, NULL, "key=sk_2", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);
    run(BLACKLIST, DELETE, NULL, "key=sk_1", NULL);
    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_NOT_FOUND);

    run(WHITELIST, DELETE, NULL, NULL, NULL);
    is_problem("", "expected \"?key=\", or an array of entries");
    run(WHITELIST, DELETE, NULL, NULL, "{}");
    is_problem("", "expected \"?key=\", or an array of entries");

    edit_end();
}


int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tier),
        cmocka_unit_test(test_tier_of_all),
        cmocka_unit_test(test_tiers_of),
        cmocka_unit_test(test_tier_of),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_override_post),
        cmocka_unit_test(test_lists),
    };

    return cmocka_run_group_tests_name("edit_parts", tests, NULL, NULL);
}

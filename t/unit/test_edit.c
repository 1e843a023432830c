/*
 * Edits of a document: each step is a request and what becomes of it. In their
 * texts "'" is "\"", and "#sk_1#" is what is stored of that API key.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

#include "ngx_ratelimit_edit.h"

#define NOW   1795000000   /* 2026-11-18T11:06:40Z */

#define PAST    "'expires_at':'2026-11-18T11:06:40Z'"
#define FUTURE  "'expires_at':'2026-11-18T11:06:41Z'"

#define TEXT  16384

/* a rule's limit, an override's value */
#define P(limit)  "'params':{'limit':" #limit ",'window':60}"
#define V         "'type':'multiplicative','value':2"

#define PATTERNS                                                              \
    "'patterns':[{'pattern':'sk_f*','tier':'free'},"                          \
    "{'pattern':'sk_*','tier':'other'}]"

/* "*" is any text, NULL none; problems: "<pointer> <id>: <detail>; ..." */
typedef struct {
    ngx_ratelimit_edit_resource_e   resource;
    ngx_ratelimit_edit_method_e     method;
    const char                     *name;
    const char                     *query;     /* "rule=", "key=", "force" */
    const char                     *body;
    ngx_ratelimit_edit_status_e     status;
    const char                     *reply;     /* or the problems */
    const char                     *document;
} step_t;

#define step(resource, method, name, query, body, status, reply, document)    \
    { NGX_RATELIMIT_EDIT_##resource, NGX_RATELIMIT_EDIT_##method, name,       \
      query, body, NGX_RATELIMIT_EDIT_##status, reply, document }

#define steps(base, clear, list)                                              \
    run(base, clear, list, sizeof(list) / sizeof(list[0]))


static ngx_ratelimit_edit_t  edit;


/* nginx */

ngx_int_t
ngx_atoi(u_char *line, size_t n)
{
    ngx_int_t  value;

    for (value = 0; n--; line++) {
        assert_true(*line >= '0' && *line <= '9');
        value = value * 10 + (*line - '0');
    }

    return value;
}


u_char *
ngx_hex_dump(u_char *dst, u_char *src, size_t len)
{
    while (len--) {
        dst += sprintf((char *) dst, "%02x", *src++);
    }

    return dst;
}


/* A text of a step as it is meant; in the pool. */
static ngx_str_t
meant(const char *text)
{
    u_char      buf[NGX_RATELIMIT_DOCUMENT_KEY], *p;
    ngx_str_t   key, all;

    all.data = p = ngx_pnalloc(whole, TEXT);
    assert_non_null(p);

    for ( /* void */ ; text && *text; text++) {

        if (*text == '#') {
            key.data = (u_char *) ++text;
            text = strchr(text, '#');
            key.len = (u_char *) text - key.data;
            key = ngx_ratelimit_document_key(&key, buf);
            p = ngx_cpymem(p, key.data, key.len);
            continue;
        }

        *p++ = (*text == '\'') ? '"' : (u_char) *text;
    }

    *p = '\0';
    all.len = p - all.data;
    assert_true(all.len < TEXT);

    return all;
}


/* An edit, which the caller runs. */
static void
request(const char *base, ngx_uint_t clear, const step_t *step)
{
    document_clear();
    memset(&edit, 0, sizeof(edit));

    edit.pool = pool;
    edit.limiter = &alone;
    edit.base = meant(base);
    edit.version = base ? 41 : 0;
    edit.now = NOW;
    memset(edit.random, 0xab, sizeof(edit.random));

    edit.resource = step->resource;
    edit.method = step->method;
    edit.name = meant(step->name);
    edit.body = meant(step->body);
    edit.clear = clear;

    if (step->query && strncmp(step->query, "rule=", 5) == 0) {
        edit.rule = meant(step->query + 5);

    } else if (step->query && strncmp(step->query, "key=", 4) == 0) {
        edit.key = meant(step->query + 4);

    } else {
        edit.force = (step->query != NULL);
    }
}


static const char *
problem_text(const ngx_ratelimit_problems_t *list)
{
    ngx_uint_t                i;
    ngx_ratelimit_problem_t  *problem;

    static char  text[TEXT], *p;

    problem = list->list.elts;
    p = text;
    *p = '\0';

    for (i = 0; i < list->list.nelts; i++) {
        p += sprintf(p, "%s%s %.*s: %s", i ? "; " : "",
                     (char *) problem[i].pointer.data, (int) problem[i].id.len,
                     (char *) problem[i].id.data,
                     (char *) problem[i].detail.data);
    }

    return text;
}


static void
same_json(ngx_str_t text, const char *expected, const char *what)
{
    ngx_str_t  wanted;

    if (expected == NULL) {
        assert_int_equal(text.len, 0);
        return;
    }

    assert_true(text.len);
    assert_int_equal(text.data[text.len - 1], '\n');

    if (strcmp(expected, "*") == 0) {
        return;
    }

    wanted = meant(expected);

    if (wanted.len != text.len - 1
        || memcmp(wanted.data, text.data, wanted.len) != 0)
    {
        fail_msg("%s: %.*s is not %s", what, (int) text.len, (char *) text.data,
                 (char *) wanted.data);
    }
}


static void
check(const step_t *step, ngx_uint_t i)
{
    char        what[64];
    ngx_str_t   wanted;

    sprintf(what, "step %lu", i);

    if (edit.status != step->status) {
        fail_msg("%s: status %d is not %d: %s", what, (int) edit.status,
                 (int) step->status, problem_text(&edit.problems));
    }

    if (edit.policy) {
        assert_true(edit.status <= NGX_RATELIMIT_EDIT_GONE);
        assert_int_equal(edit.policy->refs, 1);
        ngx_ratelimit_policy_release(edit.policy);
    }

    if (step->status == NGX_RATELIMIT_EDIT_INVALID) {
        wanted = meant(step->reply);

        if (strcmp(problem_text(&edit.problems), (char *) wanted.data) != 0) {
            fail_msg("%s: %s", what, problem_text(&edit.problems));
        }

    } else if (step->status <= NGX_RATELIMIT_EDIT_GONE) {
        same_json(edit.reply, step->reply, what);
    }

    same_json(edit.document, step->document, what);
    assert_true(edit.document.len == 0 || edit.policy);
}


static void
run(const char *base, ngx_uint_t clear, const step_t *step, ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {
        request(base, clear, &step[i]);
        ngx_ratelimit_edit(&edit);
        check(&step[i], i);
    }
}


static void
test_document(void **state)
{
    const step_t  none[] = {
        step(DOCUMENT, GET, 0, 0, 0, OK, "{'version':0,'rules':[]}", NULL),
        step(DOCUMENT, PUT, 0, 0, "{'rules':[{'id':'a'," P(1) "}]}", CREATED,
             "{'version':1,'rules':[{'id':'a'," P(1) "}]}",
             "{'version':1,'rules':[{'id':'a'," P(1) "}]}")
    };

    const step_t  broken[] = {

        /* a document that cannot be read is shown as it is */

        step(DOCUMENT, GET, 0, 0, 0, OK, "no JSON", NULL),
        step(RULE, GET, "orders", 0, 0, INVALID, " : is no JSON: invalid token "
             "at line 1, column 2 (byte 2)", NULL),

        /* and can be replaced, by whatever number */

        step(DOCUMENT, PUT, 0, 0, "{'version':7,'rules':[]}", OK,
             "{'version':42,'rules':[]}", "{'version':42,'rules':[]}"),
        step(DOCUMENT, PUT, 0, 0, "{'version':'7','rules':[]}", INVALID,
             "/version : expected a number", NULL),
        step(DOCUMENT, PUT, 0, 0, "{'rules':[],'rules':[]}", INVALID,
             " : is no JSON: duplicate object key at line 1, column 19 "
             "(byte 19)", NULL),
        step(DOCUMENT, PUT, 0, 0, "[]", INVALID, " : expected an object",
             NULL),
        step(DOCUMENT, DELETE, 0, 0, 0, NOT_FOUND, NULL, NULL),

        /* all problems at once */

        step(DOCUMENT, PUT, 0, 0, "{'blacklist':[1,'*'],'rules':["
             "{'id':'a'," P(1) "},{'id':'b'," P(0) "}]}", INVALID,
             "/rules/1/params/limit b: must be > 0; "
             "/blacklist/0 : expected a string", NULL)
    };

    (void) state;

    steps(NULL, 0, none);
    steps("no JSON\n", 0, broken);
}


static void
test_validate(void **state)
{
    const step_t  list[] = {
        step(VALIDATE, POST, 0, 0, "{'rules':[{'id':'a'," P(1) "}]}", OK,
             NULL, NULL),
        step(VALIDATE, POST, 0, 0, "{'rules':[{'id':'a'," P(0) "}]}", INVALID,
             "/rules/0/params/limit a: must be > 0", NULL),
        step(VALIDATE, POST, 0, 0, NULL, INVALID, " : is no JSON: it is empty, "
             "at byte 0", NULL),
        step(VALIDATE, POST, 0, 0, "{'blacklist':['*']}", DENY_ALL, NULL, NULL),
        step(DOCUMENT, PUT, 0, 0, "{'blacklist':['*']}", DENY_ALL, NULL, NULL),
        step(BLACKLIST, POST, 0, 0, "'*'", DENY_ALL, NULL, NULL),
        step(BLACKLIST, POST, 0, "force", "'*'", OK, "['*']", "*")
    };

    const step_t  warns[] = {
        step(VALIDATE, POST, 0, "force", "{'format':'1.3','blacklist':['*'],"
             "'rules':[{'id':'a','x':1," P(1) "}]}", OK, NULL, NULL)
    };

    (void) state;

    steps("{'rules':[]}", 0, list);
    steps("{'rules':[]}", 0, warns);
    assert_string_equal(problem_text(&edit.warnings),
                        "/rules/0/x a: is not known to this version: it is "
                        "kept, and has no effect;  : would reject all "
                        "requests");
}


static void
test_rule(void **state)
{
    const step_t  list[] = {
        step(RULE, GET, "users", 0, 0, OK, "{'id':'users'," P(20) "}", NULL),
        step(RULE, GET, "user", 0, 0, NOT_FOUND, NULL, NULL),

        /* in its place; behind the others */

        step(RULE, PUT, "orders", 0, "{" P(11) "}", OK,
             "{" P(11) ",'id':'orders'}",
             "{'version':42,'rules':[{" P(11) ",'id':'orders'},"
             "{'id':'users'," P(20) "}]}"),
        step(RULE, PUT, "new", 0, "{'id':'new'," P(5) "}", CREATED,
             "{'id':'new'," P(5) "}",
             "{'version':42,'rules':[{'id':'orders'," P(10) "},"
             "{'id':'users'," P(20) "},{'id':'new'," P(5) "}]}"),

        step(RULE, PUT, "users", 0, "{'id':'user'," P(5) "}", INVALID,
             "/rules/1/id users: is not the one that the path has", NULL),
        step(RULE, PUT, "users", 0, "{" P(0) "}", INVALID,
             "/rules/1/params/limit users: must be > 0", NULL),
        step(RULE, PUT, "third", 0, "{" P(0) "}", INVALID,
             "/rules/2/params/limit third: must be > 0", NULL),
        step(RULE, PUT, "users", 0, "{'id':1," P(0) "}", INVALID,
             "/rules/1/id users: is not the one that the path has; "
             "/rules/1/params/limit users: must be > 0", NULL),
        step(RULE, PUT, "users", 0, "[]", INVALID,
             "/rules/1 : expected an object", NULL),
        step(RULE, PUT, "users", 0, "null", INVALID,
             "/rules/1 : expected an object", NULL),

        step(RULE, DELETE, "orders", 0, 0, GONE, NULL,
             "{'version':42,'rules':[{'id':'users'," P(20) "}]}"),
        step(RULE, DELETE, "order", 0, 0, NOT_FOUND, NULL, NULL),
        step(RULE, POST, "orders", 0, "{}", NOT_FOUND, NULL, NULL),

        /* the same again is no change */

        step(RULE, PUT, "users", 0, "{" P(20) "}", OK,
             "{" P(20) ",'id':'users'}", NULL)
    };

    const step_t  patch[] = {
        step(RULE, PATCH, "orders", 0, "{'params':{'limit':11},'percent':50}",
             OK, "{'id':'orders'," P(11) ",'percent':50}",
             "{'version':42,'rules':[{'id':'orders'," P(11) ",'percent':50},"
             "{'id':'users'," P(20) "}]}"),
        step(RULE, PATCH, "users", 0, "{'params':{'limit':0}}", INVALID,
             "/rules/1/params/limit users: must be > 0", NULL),
        step(RULE, PATCH, "orders", 0, "{'id':null}", INVALID,
             "/rules/0/id orders: is not the one that the path has", NULL),
        step(RULE, PATCH, "orders", 0, "{'id':'users'}", INVALID,
             "/rules/0/id orders: is not the one that the path has", NULL),
        step(RULE, PATCH, "nobody", 0, "{}", NOT_FOUND, NULL, NULL),
        step(RULE, PATCH, "orders", 0, "7", INVALID,
             "/rules/0 orders: expected an object", NULL),
        step(RULE, PATCH, "orders", 0, "{'percent':null}", OK, "*", NULL)
    };

    static const char  base[] = "{'version':41,'rules':["
        "{'id':'orders'," P(10) "},{'id':'users'," P(20) "}]}";

    (void) state;

    steps(base, 0, list);
    steps(base, 0, patch);
}


/* Names that are API keys are compared by their digests. */
static void
test_patch_keys(void **state)
{
    const step_t  stored[] = {
        step(RULE, PATCH, "a", 0, "{'override':{'sk/1':{'capacity':7}}}", OK,
             "{'id':'a'," P(9) ",'override':{'#sk/1#':{'limit':7,"
             "'capacity':7}}}", "*"),
        step(RULE, PATCH, "a", 0, "{'override':{'sk/1':null}}", OK,
             "{'id':'a'," P(9) ",'override':{}}", "*"),
        step(RULE, PATCH, "a", 0, "{'override':{'sk/2':{'limit':0}}}",
             INVALID, "/rules/0/override/sk~12/limit a: must be > 0", NULL),
        step(RULE, PATCH, "a", 0, "{'override':{'sk~2':{'limit':0}}}",
             INVALID, "/rules/0/override/sk~02/limit a: must be > 0", NULL),
        step(RULE, PATCH, "a", 0,
             "{'override':{'sk/1':null,'#sk/1#':{'limit':9}}}", INVALID,
             "/rules/0/override a: has the same API key twice", NULL),
        step(RULE, PATCH, "a", 0,
             "{'override':{'sk/2':{'limit':1},'#sk/2#':{'limit':9}}}", INVALID,
             "/rules/0/override a: has the same API key twice", NULL)
    };

    const step_t  clear[] = {
        step(RULE, PATCH, "a", 0, "{'override':{'sk':null,'sl':{'limit':1}}}",
             OK, "{'id':'a'," P(9) ",'override':{'sl':{'limit':1}}}", "*"),
        step(RULE, PATCH, "a", 0, "{'override':{'#sk#':{'limit':1}}}", OK,
             "{'id':'a'," P(9) ",'override':{'sk':{'limit':1}}}", "*")
    };

    (void) state;

    steps("{'rules':[{'id':'a'," P(9) ",'override':{'#sk/1#':{'limit':7}}}]}",
          0, stored);
    steps("{'rules':[{'id':'a'," P(9) ",'override':{'sk':{'limit':7}}}]}", 1,
          clear);
}


/* The examples of RFC 7396, of a member that this format does not know. */
static void
test_merge_patch(void **state)
{
    char        base[512], body[512], expected[512];
    step_t      one = step(RULE, PATCH, "a", 0, body, OK, expected, "*");
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
        sprintf(base, "{'format':'1.9','rules':[{'id':'a'," P(9) ",'x':%s}]}",
                examples[i][0]);
        sprintf(body, "{'x':%s}", examples[i][1]);
        sprintf(expected, "{'id':'a'," P(9) ",'x':%s}", examples[i][2]);

        /* what changes nothing is no document */

        one.document = (strcmp(examples[i][0], examples[i][2]) ? "*" : NULL);
        run(base, 0, &one, 1);
    }

    sprintf(body, "{'x':null}");
    sprintf(expected, "{'id':'a'," P(9) "}");
    one.document = "*";
    run(base, 0, &one, 1);
}


/* Members of a newer format survive a change beside them. */
static void
test_unknown(void **state)
{
    const step_t  list[] = {
        step(WHITELIST, PUT, 0, 0, "['a*']", OK, "['a*']",
             "{'version':42,'format':'1.9','new':{'a':[1]},'rules':["
             "{'id':'a','x':1," P(9) "},{'id':'b','y':{'z':null}," P(9) "}],"
             "'whitelist':['a*']}"),
        step(TIER, PUT, "pro", 0, "{'limit':1}", CREATED, "*",
             "{'version':42,'format':'1.9','new':{'a':[1]},'rules':["
             "{'id':'a','x':1," P(9) ",'tiers':{'pro':{'limit':1}}},"
             "{'id':'b','y':{'z':null}," P(9) ","
             "'tiers':{'pro':{'limit':1}}}]}"),
        step(RULE, PUT, "a", 0, "{'id':'a'," P(9) "}", OK, "*",
             "{'version':42,'format':'1.9','new':{'a':[1]},'rules':["
             "{'id':'a'," P(9) "},{'id':'b','y':{'z':null}," P(9) "}]}")
    };

    (void) state;

    steps("{'version':41,'format':'1.9','new':{'a':[1]},'rules':["
          "{'id':'a','x':1," P(9) "},{'id':'b','y':{'z':null}," P(9) "}]}", 0,
          list);
    assert_string_equal(problem_text(&edit.warnings),
        "/rules/1/y b: is not known to this version: it is kept, and has no "
        "effect; /new : is not known to this version: it is kept, and has no "
        "effect");
}


/*
 * A rule that this gateway skips is in no change's way, unless the change is of
 * that rule, or breaks something else.
 */
static void
test_known(void **state)
{
#define SKIPPED  "{'id':'odd','key':'$unknown'," P(9) "}"

    const step_t  list[] = {
        step(RULE, PUT, "b", 0, "{" P(8) "}", OK, "*",
             "{'version':42,'rules':[" SKIPPED ",{" P(8) ",'id':'b'}],"
             "'overrides':[{'id':'o','key':'#k#','rule':'odd'," V "}]}"),
        step(OVERRIDE, PUT, "odd", 0, "{'key':'k'," V "}", CREATED, "*", "*"),
        step(WHITELIST, POST, 0, 0, "'a*'", OK, "['a*']", "*"),
        step(TIER, PUT, "pro", "rule=odd", "{'limit':5}", CREATED, "*", "*"),

        step(RULE, PATCH, "odd", 0, "{'percent':50}", INVALID,
             "/rules/0/key odd: expected a known variable", NULL),
        step(TIER, PUT, "pro", "rule=odd", "{'limit':0}", INVALID,
             "/rules/0/tiers/pro/limit odd: must be > 0", NULL),
        step(OVERRIDES, POST, 0, 0, "{'id':'o','key':'l','rule':'odd'," V "}",
             INVALID, "/rules/0/key odd: expected a known variable; "
             "/overrides/1/id o: is taken by another override", NULL),
        step(RULE, DELETE, "b", 0, 0, GONE, NULL, "*"),
        step(DOCUMENT, PUT, 0, 0, "{'rules':[" SKIPPED "]}", INVALID,
             "/rules/0/key odd: expected a known variable", NULL)
    };

    const step_t  breaks[] = {
        step(RULE, DELETE, "b", 0, 0, INVALID, "/overrides/0/rule o: is no "
             "rule of this document or of nginx.conf", NULL)
    };

    (void) state;

    steps("{'version':41,'rules':[" SKIPPED ",{'id':'b'," P(9) "}],"
          "'overrides':[{'id':'o','key':'#k#','rule':'odd'," V "}]}", 0, list);
    steps("{'version':41,'rules':[{'id':'b'," P(9) "}],"
          "'overrides':[{'id':'o','key':'#k#','rule':'b'," V "}]}", 0, breaks);

#undef SKIPPED
}


/* Problems of regular expressions are found later. */
static void
test_invalid(void **state)
{
    ngx_str_t                 pointer;
    const step_t              whole_one = step(DOCUMENT, PUT, 0, 0, "{}", OK,
                                               "*", "*");
    const step_t              rule = step(RULE, PUT, "users", 0, "{" P(9) "}",
                                          CREATED, "*", "*");
    const step_t              list = step(WHITELIST, PUT, 0, 0, "['a*']", OK,
                                          "*", "*");
    ngx_ratelimit_problem_t  *problem;

    (void) state;

    ngx_str_set(&pointer, "/rules/1/match/endpoint_regex");

    run("{'rules':[]}", 0, &whole_one, 1);
    assert_false(ngx_ratelimit_edit_invalid(&edit));
    ngx_ratelimit_problem(&edit.problems, &pointer, "is wrong");
    assert_true(ngx_ratelimit_edit_invalid(&edit));

    run("{'rules':[]}", 0, &list, 1);
    ngx_ratelimit_problem(&edit.problems, &pointer, "is wrong");
    assert_false(ngx_ratelimit_edit_invalid(&edit));

    run("{'rules':[]}", 0, &rule, 1);
    ngx_ratelimit_problem(&edit.problems, &pointer, "is wrong");
    assert_false(ngx_ratelimit_edit_invalid(&edit));

    problem = edit.problems.list.elts;
    ngx_str_set(&problem->id, "users");
    assert_true(ngx_ratelimit_edit_invalid(&edit));
}


static void
test_tier(void **state)
{
    const step_t  list[] = {
        step(TIER, GET, "pro", 0, 0, OK, "{'rules':{'a':{'limit':1}}}", NULL),
        step(TIER, GET, "free", 0, 0, NOT_FOUND, NULL, NULL),
        step(TIER, GET, "pro", "rule=b", 0, NOT_FOUND, NULL, NULL),

        /* in the rules that have tiers */

        step(TIER, PUT, "pro", 0, "{'limit':500,'capacity':500}", OK,
             "{'rules':{'a':{'limit':500,'capacity':500},"
             "'b':{'limit':500,'capacity':500}}}",
             "{'version':42,'rules':[{'id':'a'," P(9) ",'tiers':{'pro':"
             "{'limit':500,'capacity':500}}},{'id':'b'," P(9) ",'tiers':"
             "{'pro':{'limit':500,'capacity':500}}},{'id':'c'," P(9) "}]}"),
        step(TIER, PUT, "free", 0, "{'limit':5}", CREATED, "*", "*"),

        /* in one */

        step(TIER, PUT, "pro", "rule=c", "{'limit':5}", CREATED,
             "{'rules':{'c':{'limit':5}}}",
             "{'version':42,'rules':[{'id':'a'," P(9) ",'tiers':{'pro':"
             "{'limit':1}}},{'id':'b'," P(9) ",'tiers':{}},{'id':'c'," P(9)
             ",'tiers':{'pro':{'limit':5}}}]}"),
        step(TIER, PUT, "pro", "rule=d", "{'limit':5}", NOT_FOUND, NULL, NULL),

        step(TIER, PUT, "pro", 0, "{'limit':0}", INVALID,
             "/rules/0/tiers/pro/limit a: must be > 0; "
             "/rules/1/tiers/pro/limit b: must be > 0", NULL),
        step(TIER, PUT, "pro", 0, "7", INVALID,
             "/rules/0/tiers/pro a: expected an object; "
             "/rules/1/tiers/pro b: expected an object", NULL),

        /* a rule that had tiers and has none any more is still one */

        step(TIER, DELETE, "pro", 0, 0, GONE, NULL,
             "{'version':42,'rules':[{'id':'a'," P(9) ",'tiers':{}},{'id':'b',"
             P(9) ",'tiers':{}},{'id':'c'," P(9) "}]}"),
        step(TIER, DELETE, "pro", "rule=c", 0, NOT_FOUND, NULL, NULL),
        step(TIER, DELETE, "free", 0, 0, NOT_FOUND, NULL, NULL)
    };

    /* no rule has tiers: all get it, but those that may have none */

    const step_t  all[] = {
        step(TIER, PUT, "pro", 0, "{'limit':5}", CREATED,
             "{'rules':{'a':{'limit':5},'c':{'limit':5}}}", "*")
    };

    const step_t  none[] = {
        step(TIER, PUT, "pro", 0, "{'limit':5}", INVALID, "/rules : no rule "
             "here can have a tier; rules of nginx.conf cannot be changed "
             "here; define the rule in the document", NULL)
    };

    (void) state;

    steps("{'rules':[{'id':'a'," P(9) ",'tiers':{'pro':{'limit':1}}},"
          "{'id':'b'," P(9) ",'tiers':{}},{'id':'c'," P(9) "}]}", 0, list);
    steps("{'rules':[{'id':'a'," P(9) "},{'id':'b','shards':4," P(9) "},"
          "{'id':'c'," P(9) "}]}", 0, all);
    steps(NULL, 0, none);
}


static void
test_tiers_of(void **state)
{
    const step_t  none[] = {
        step(TIERS_OF, GET, 0, 0, 0, OK, "{'keys':{},'patterns':[]}", NULL),
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'sk_1':'pro'},"
             "'patterns':[{'pattern':'sk_f*','tier':'free'}]}", OK,
             "{'keys':{'#sk_1#':'pro'},"
             "'patterns':[{'pattern':'sk_f*','tier':'free'}]}", "*")
    };

    const step_t  list[] = {
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'sk_1':null}}", OK,
             "{'keys':{},'patterns':[]}",
             "{'version':42,'tier_of':{'keys':{}}}"),
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'#sk_1#':'free'}}", OK, "*",
             "{'version':42,'tier_of':{'keys':{'#sk_1#':'free'}}}"),
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'sk_2':'pro','s/3':7}}", INVALID,
             "/tier_of/keys/s~13 : expected a string", NULL),
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'127.0.0.1':'pro'}}", INVALID,
             "/tier_of/keys/127.0.0.1 : is an address or a network, expected "
             "an API key; addresses are for 'allow' and 'deny' of nginx.conf",
             NULL),
        step(TIERS_OF, PATCH, 0, 0, "{'x':7}", INVALID, "/tier_of/x : is not "
             "known, expected one of 'keys', 'patterns'", NULL),
        step(TIERS_OF, PATCH, 0, 0, "null", INVALID,
             "/tier_of : expected an object", NULL),
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'sk_1':'a','#sk_1#':'b'}}",
             INVALID, "/tier_of/keys : has the same API key twice", NULL)
    };

    (void) state;

    steps(NULL, 0, none);
    steps("{'tier_of':{'keys':{'#sk_1#':'pro'}}}", 0, list);
}


static void
test_tier_of(void **state)
{
    const step_t  list[] = {
        step(TIER_OF, GET, "sk_1", 0, 0, OK, "{'tier':'pro','by':'key'}", NULL),
        step(TIER_OF, GET, "#sk_1#", 0, 0, OK, "{'tier':'pro','by':'key'}",
             NULL),
        step(TIER_OF, GET, "sk_f1", 0, 0, OK,
             "{'tier':'free','by':'pattern'}", NULL),
        step(TIER_OF, GET, "sk_2", 0, 0, OK,
             "{'tier':'other','by':'pattern'}", NULL),
        step(TIER_OF, GET, "nobody", 0, 0, NOT_FOUND, NULL, NULL),

        /* nobody knows of a digest which pattern its key matches */

        step(TIER_OF, GET, "#sk_f1#", 0, 0, NOT_FOUND, NULL, NULL),

        step(TIER_OF, PUT, "sk_1", 0, "{'tier':'max'}", OK,
             "{'tier':'max','by':'key'}",
             "{'version':42,'tier_of':{'keys':{'#sk_1#':'max'}," PATTERNS "}}"),
        step(TIER_OF, PUT, "sk_2", 0, "{'tier':'max'}", CREATED,
             "{'tier':'max','by':'key'}",
             "{'version':42,'tier_of':{'keys':{'#sk_1#':'pro','#sk_2#':'max'},"
             PATTERNS "}}"),
        step(TIER_OF, PUT, "sk_2", 0, "{'tier':7}", INVALID,
             "/tier_of/keys/sk_2 : expected a string", NULL),
        step(TIER_OF, PUT, "sk_2", 0, "{'tier':'a','b':1}", INVALID,
             "/tier_of/keys : expected {'tier': '<name>'}", NULL),
        step(TIER_OF, PUT, "sk_2", 0, "{}", INVALID,
             "/tier_of/keys : expected {'tier': '<name>'}", NULL),
        step(TIER_OF, PUT, "sk_2", 0, "'pro'", INVALID,
             "/tier_of/keys : expected {'tier': '<name>'}", NULL),

        step(TIER_OF, DELETE, "sk_1", 0, 0, GONE, NULL,
             "{'version':42,'tier_of':{'keys':{}," PATTERNS "}}"),
        step(TIER_OF, DELETE, "sk_f1", 0, 0, NOT_FOUND, NULL, NULL)
    };

    /* a key in the clear, asked for by its digest */

    const step_t  clear[] = {
        step(TIER_OF, GET, "#sk_1#", 0, 0, OK, "{'tier':'pro','by':'key'}",
             NULL),
        step(TIER_OF, PUT, "sk_2", 0, "{'tier':'a'}", CREATED, "*",
             "{'version':42,'tier_of':{'keys':{'sk_1':'pro','sk_2':'a'}}}"),
        step(TIER_OF, DELETE, "#sk_1#", 0, 0, GONE, NULL,
             "{'version':42,'tier_of':{'keys':{}}}")
    };

    (void) state;

    steps("{'tier_of':{'keys':{'#sk_1#':'pro'}," PATTERNS "}}", 0, list);
    steps("{'tier_of':{'keys':{'sk_1':'pro'}}}", 1, clear);
}


static void
test_overrides(void **state)
{
#define X    "{'id':'x','key':'#sk_1#','rule':'conf'," V "}"
#define OLD  "{'id':'old','key':'#k#'," PAST "," V "}"
#define Y    "{'id':'y','key':'#k#'," FUTURE "," V "}"
#define ID   "abababababababababababababababab"

    const step_t  list[] = {
        step(OVERRIDES, GET, 0, 0, 0, OK, "[" X "," Y "]", NULL),
        step(OVERRIDES, GET, 0, "key=sk_1", 0, OK, "[" X "]", NULL),
        step(OVERRIDES, GET, 0, "key=k*", 0, OK, "[]", NULL),
        step(OVERRIDES, GET, 0, "key=#k#", 0, OK, "[" Y "]", NULL),
        step(OVERRIDES, GET, 0, "key=\xff*", 0, OK, "[]", NULL),
        step(OVERRIDES, GET, 0, "rule=conf", 0, OK, "[" X "]", NULL),
        step(OVERRIDE, GET, "y", 0, 0, OK, Y, NULL),
        step(OVERRIDE, GET, "old", 0, 0, NOT_FOUND, NULL, NULL),
        step(OVERRIDE, DELETE, "old", 0, 0, NOT_FOUND, NULL, NULL),
        step(OVERRIDE, DELETE, "x", 0, 0, GONE, NULL,
             "{'version':42,'overrides':[" Y "]}"),
        step(OVERRIDE, PUT, "x", 0, "{'key':'k'," V "}", OK,
             "{'key':'#k#'," V ",'id':'x'}", "{'version':42,'overrides':["
             "{'key':'#k#'," V ",'id':'x'}," Y "]}"),
        step(OVERRIDE, PUT, "x", 0, "{'key':'k'," PAST "," V "}", INVALID,
             "/overrides/0/expires_at x: is in the past", NULL),

        /* those that have ended leave with any change */

        step(WHITELIST, PUT, 0, 0, "[]", OK, "[]",
             "{'version':42,'overrides':[" X "," Y "],'whitelist':[]}"),
        step(DOCUMENT, PUT, 0, 0, "{'overrides':[" OLD "]}", OK, "*",
             "{'version':42,'overrides':[]}")
    };

    const step_t  post[] = {
        step(OVERRIDES, POST, 0, 0, "{'key':'sk_1'," V "}", CREATED,
             "{'key':'#sk_1#'," V ",'id':'" ID "'}",
             "{'version':42,'overrides':[" Y ",{'key':'#sk_1#'," V ",'id':'"
             ID "'}]}"),
        step(OVERRIDES, POST, 0, 0, "[{'key':'b'," V "},{'id':'old','key':'c',"
             V "},{'key':'d'," V "}]", CREATED,
             "[{'key':'#b#'," V ",'id':'" ID "'},{'id':'old','key':'#c#'," V
             "},{'key':'#d#'," V ",'id':'" ID "-3'}]", "*"),
        step(OVERRIDES, POST, 0, 0, "[{'key':'b'," V "},{'id':'y','key':'c',"
             V "}]", INVALID,
             "/overrides/2/id y: is taken by another override", NULL),
        step(OVERRIDES, POST, 0, 0, "[{'key':'b'," V "},{'key':7," V "}]",
             INVALID, "/overrides/2/key " ID "-2: expected a string; "
             "/overrides/2 " ID "-2: expected one of 'key' and 'tenant'", NULL),
        step(OVERRIDES, POST, 0, 0, "{'id':'z','key':'a','rule':'none'," V "}",
             INVALID, "/overrides/1/rule z: is no rule of this document or of "
             "nginx.conf", NULL),
        step(OVERRIDES, POST, 0, 0, "7", INVALID,
             "/overrides/1 : expected an object", NULL),

        /* it would not be there when the answer says that it is */

        step(OVERRIDES, POST, 0, 0, "[{'id':'p','key':'b'," FUTURE "," V "},"
             "{'id':'q','key':'b'," PAST "," V "}]", INVALID,
             "/overrides/2/expires_at q: is in the past", NULL),

        step(OVERRIDES, POST, 0, 0, "[]", OK, "[]", NULL)
    };

    (void) state;

    steps("{'overrides':[" X "," OLD "," Y "]}", 0, list);
    steps("{'overrides':[" Y "]}", 0, post);

    request(NULL, 0, &post[0]);
    ngx_ratelimit_edit(&edit);
    same_text(edit.made, ID);
    ngx_ratelimit_policy_release(edit.policy);
}


static void
test_lists(void **state)
{
    const step_t  none[] = {
        step(WHITELIST, GET, 0, 0, 0, OK, "[]", NULL),
        step(BLACKLIST, PUT, 0, 0, "['sk_1','a*']", OK, "['#sk_1#','a*']",
             "{'version':1,'rules':[],'blacklist':['#sk_1#','a*']}"),
        step(WHITELIST, PUT, 0, 0, "['a',7]", INVALID,
             "/whitelist/1 : expected a string", NULL),
        step(WHITELIST, PUT, 0, 0, "'a'", INVALID,
             "/whitelist : expected an array", NULL),
        step(WHITELIST, PUT, 0, 0, "null", INVALID,
             "/whitelist : expected an array", NULL)
    };

    const step_t  list[] = {

        /* a key is not added twice, and that is no change */

        step(WHITELIST, POST, 0, 0, "'sk_1'", OK, "['#sk_1#','a*']", NULL),
        step(WHITELIST, POST, 0, 0, "['sk_1','a*','b*','b*','c','c']", OK,
             "['#sk_1#','a*','b*','#c#']", "*"),
        step(WHITELIST, POST, 0, 0, "['a*','c*',7]", INVALID,
             "/whitelist/3 : expected a string", NULL),
        step(WHITELIST, POST, 0, 0, "{}", INVALID,
             "/whitelist/2 : expected a string", NULL),
        step(WHITELIST, POST, 0, 0, "['127.0.0.0/8']", INVALID,
             "/whitelist/2 : is an address or a network, expected an API key; "
             "addresses are for 'allow' and 'deny' of nginx.conf", NULL),

        step(WHITELIST, DELETE, 0, "key=sk_1", 0, GONE, NULL,
             "{'version':42,'whitelist':['a*']}"),
        step(WHITELIST, DELETE, 0, 0, "['nobody','a*']", GONE, NULL,
             "{'version':42,'whitelist':['#sk_1#']}"),
        step(WHITELIST, DELETE, 0, "key=sk_2", 0, NOT_FOUND, NULL, NULL),
        step(WHITELIST, DELETE, 0, "key=\xff*", 0, NOT_FOUND, NULL, NULL),
        step(BLACKLIST, DELETE, 0, "key=sk_1", 0, NOT_FOUND, NULL, NULL),
        step(WHITELIST, DELETE, 0, 0, 0, INVALID,
             "/whitelist : expected '?key=', or an array of entries", NULL),
        step(WHITELIST, DELETE, 0, 0, "{}", INVALID,
             "/whitelist : expected '?key=', or an array of entries", NULL)
    };

    /* an address that an older version has stored is in no change's way */

    const step_t  address[] = {
        step(WHITELIST, POST, 0, 0, "'b*'", OK, "*", "*"),
        step(WHITELIST, POST, 0, 0, "'::1'", INVALID, "/whitelist/0 : is an "
             "address or a network, expected an API key; addresses are for "
             "'allow' and 'deny' of nginx.conf; /whitelist/1 : is an address "
             "or a network, expected an API key; addresses are for 'allow' and "
             "'deny' of nginx.conf", NULL)
    };

    (void) state;

    steps(NULL, 0, none);
    steps("{'whitelist':['#sk_1#','a*']}", 0, list);
    steps("{'whitelist':['127.0.0.1']}", 0, address);
}


static size_t
next_bytes(void *buf, size_t len, void *data)
{
    ngx_str_t *text = data;

    len = (len < text->len) ? len : text->len;
    memcpy(buf, text->data, len);
    text->data += len;
    text->len -= len;

    return len;
}


/* In place of jansson's, which without memory reads behind its buffers. */
json_t *
json_loadb(const char *data, size_t len, size_t flags, json_error_t *error)
{
    int         left;
    json_t     *root;
    ngx_str_t   text;

    text.data = (u_char *) data;
    text.len = len;

    left = allocations;
    allocations = -1;
    root = json_load_callback(next_bytes, &text, flags, error);
    allocations = left;

    return root;
}


/* As nginx.h's: one of them fails, once. */
static void *
json_alloc(size_t size)
{
    return ngx_alloc(size, NULL);
}


/* Without memory nothing is stored: an edit is as it should be, or fails. */
static void
test_memory(void **state)
{
    int         n;
    ngx_uint_t  i, failed;

    static const char  base[] =
        "{'rules':[{'id':'a'," P(9) ",'tiers':{},'override':{'#k#':{'limit':1}"
        "}}],'tier_of':{'keys':{'#k#':'t'}},'whitelist':['#k#','l*'],"
        "'overrides':[{'id':'o','key':'#k#'," V "}]}";

    const step_t  list[] = {
        step(DOCUMENT, PUT, 0, 0, "{'rules':[]}", OK, "*", "*"),
        step(RULE, PUT, "b", 0, "{" P(9) "}", CREATED, "*", "*"),
        step(RULE, PATCH, "a", 0, "{'override':{'k':{'capacity':2}}}", OK, "*",
             "{'version':42,'rules':[{'id':'a'," P(9) ",'tiers':{},'override':"
             "{'#k#':{'limit':1,'capacity':2}}}],'tier_of':{'keys':{'#k#':'t'}"
             "},'whitelist':['#k#','l*'],'overrides':[{'id':'o','key':'#k#',"
             V "}]}"),
        step(TIER, PUT, "t", 0, "{'limit':5}", CREATED, "*", "*"),
        step(TIERS_OF, PATCH, 0, 0, "{'keys':{'m':'t'}}", OK, "*", "*"),
        step(TIER_OF, PUT, "k", 0, "{'tier':'u'}", OK,
             "{'tier':'u','by':'key'}", "*"),
        step(OVERRIDES, POST, 0, 0, "[{'key':'m'," V "}]", CREATED, "*", "*"),
        step(OVERRIDES, GET, 0, "key=k", 0, OK, "*", NULL),
        step(WHITELIST, POST, 0, 0, "['k','m']", OK, "*", "*"),
        step(WHITELIST, DELETE, 0, "key=k", 0, GONE, NULL, "*")
    };

    (void) state;

    for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {

        json_set_alloc_funcs(json_alloc, free);
        failed = 0;

        for (n = 0; n < 5000; n++) {
            request(base, 0, &list[i]);
            allocations = n;
            ngx_ratelimit_edit(&edit);

            if (allocations >= 0) {
                break;      /* this one never came to be */
            }

            failed++;

            if (edit.status <= NGX_RATELIMIT_EDIT_GONE) {
                check(&list[i], i);
                continue;
            }

            assert_null(edit.policy);
            assert_int_equal(edit.document.len, 0);
        }

        allocations = -1;
        json_set_alloc_funcs(malloc, free);
        check(&list[i], i);
        assert_true(failed > 20 && n < 5000);
    }
}


int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_patch_keys),
        cmocka_unit_test(test_merge_patch),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_tier),
        cmocka_unit_test(test_tiers_of),
        cmocka_unit_test(test_tier_of),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests_name("edit", tests, document_setup,
                                       document_teardown);
}

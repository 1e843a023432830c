/*
 * Edits of a document: each step is a request and what becomes of it. In their
 * texts "'" is "\"", and "#sk_1#" is what is stored of that API key.
 */

#include "document.h"

#include "ngx_rl_edit.h"

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
    ngx_rl_edit_resource_e   resource;
    ngx_rl_edit_method_e     method;
    const char              *name;
    const char              *query;     /* "rule=", "key=", "owner=",
                                           "dry_run", "force" */
    const char              *body;
    ngx_rl_edit_status_e     status;
    const char              *reply;     /* or the problems */
    const char              *document;

    const char                     *base;      /* of the next steps; or "" */
    ngx_uint_t                      clear;     /* keys are kept in the clear */
    const char                     *warnings;  /* of the step before */
} step_t;

#define base(text, clear)  { .base = text, clear }
#define warned(text)       { .warnings = text }
#define step(resource, method, name, query, body, status, reply, document)    \
    { NGX_RL_EDIT_##resource, NGX_RL_EDIT_##method, name,                     \
      query, body, NGX_RL_EDIT_##status, reply, document }

#define shows(resource, name, query, reply)                                   \
    step(resource, GET, name, query, 0, OK, reply, NULL)
#define missing(resource, method, name)                                       \
    step(resource, method, name, 0, 0, NOT_FOUND, NULL, NULL)
#define gone(resource, name, document)                                        \
    step(resource, DELETE, name, 0, 0, GONE, NULL, document)
#define wrong(resource, method, name, body, problems)                         \
    step(resource, method, name, 0, body, INVALID, problems, NULL)

#define A        "'id':'a'," P(9)
#define DURATION                                                              \
    "expected a number of seconds or a time like '1h30m', at most '366d', "   \
    "and no 'expires_at' beside it"
#define ADDRESS                                                               \
    "is an address or a network, expected an API key; the lists of clients "  \
    "take 'address'"
#define NO_RULE  "is no rule of this document or of nginx.conf"
#define NEXT     "{'version':42,"
#define TWICE    "/rules/0/limits_by_api_key a: has the same key twice"
#define SKIPPED  "{'id':'odd','key':'$unknown'," P(9) "}"
#define X    "{'id':'x','key':'#sk_1#','rule':'conf'," V "}"
#define OLD  "{'id':'old','key':'#k#'," PAST "," V "}"
#define Y    "{'id':'y','key':'#k#'," FUTURE "," V "}"
#define ID   "abababababababababababababababab"

static const step_t  steps[] = {

    base("", 0),
    shows(DOCUMENT, 0, 0, "{'version':0,'rules':[]}"),
    step(DOCUMENT, PUT, 0, 0, "{'rules':[{'id':'a'," P(1) "}]}", CREATED,
        "{'version':1,'rules':[{'id':'a'," P(1) "}]}",
        "{'version':1,'rules':[{'id':'a'," P(1) "}]}"),

    base("no JSON\n", 0),

    /* a document that cannot be read is shown as it is */

    shows(DOCUMENT, 0, 0, "no JSON"),
    wrong(RULE, GET, "orders", 0,
        " : is no JSON: invalid token at line 1, column 2 (byte 2)"),

    /* and can be replaced, by whatever number */

    step(DOCUMENT, PUT, 0, 0, "{'version':7,'rules':[]}", OK, NEXT
        "'rules':[]}", NEXT "'rules':[]}"),
    wrong(DOCUMENT, PUT, 0, "{'version':'7','rules':[]}",
        "/version : expected a number"),
    wrong(DOCUMENT, PUT, 0, "{'rules':[],'rules':[]}",
        " : is no JSON: duplicate object key at line 1, column 19 (byte 19)"),
    wrong(DOCUMENT, PUT, 0, "[]", " : expected an object"),
    missing(DOCUMENT, DELETE, 0),

    /* all problems at once */

    wrong(DOCUMENT, PUT, 0, "{'deny':[1,'*'],'rules':[{'id':'a'," P(1)
        "},{'id':'b'," P(-1) "}]}", "/rules/1/params/limit b: must be at least "
        "0; /deny/0 : expected a string or an object"),

    /* names of former documents */

    base("{'whitelist':['a*'],'blacklist':['b*'],'rules':[{" A
        ",'keys':{'#k#':{'limit':1}}}]}\n", 0),
    shows(ALLOW, 0, 0, "['a*']"),
    step(RULE, PATCH, "a", 0, "{'override':{'sk':{'limit':2}},'keys':null}",
        OK, "{" A ",'limits_by_api_key':{'#sk#':{'limit':2}}}", NEXT
        "'rules':[{" A ",'limits_by_api_key':{'#sk#':{'limit':2}}}],"
        "'allow':['a*'],'deny':['b*']}"),
    step(DOCUMENT, PUT, 0, 0, "{'allow':['a*'],'blacklist':['b*'],'rules':[{" A
        ",'limits_by_key':{'k':{'limit':1}}}]}", OK, "*", NULL),
    wrong(DOCUMENT, PUT, 0, "{'whitelist':[],'allow':[]}",
        "/whitelist : is not known, expected one of 'format', 'version', "
        "'rules', 'tier_of', 'allow', 'deny', 'overrides'"),

    base("{'rules':[]}", 0),
    step(VALIDATE, POST, 0, 0, "{'rules':[{'id':'a'," P(1) "}]}", OK, NULL,
        NULL),
    wrong(VALIDATE, POST, 0, "{'rules':[{'id':'a'," P(-1) "}]}",
        "/rules/0/params/limit a: must be at least 0"),
    wrong(VALIDATE, POST, 0, 0, " : is no JSON: it is empty, at byte 0"),
    step(VALIDATE, POST, 0, 0, "{'deny':['*']}", REJECTS_ALL, NULL, NULL),
    step(DOCUMENT, PUT, 0, 0, "{'deny':['*']}", REJECTS_ALL, NULL, NULL),
    step(DENY, POST, 0, 0, "'*'", REJECTS_ALL, NULL, NULL),
    step(DENY, POST, 0, "force", "'*'", OK, "['*']", "*"),
    step(VALIDATE, POST, 0, "force",
        "{'format':'1.3','deny':['*'],'rules':[{'id':'a','x':1," P(1)
        "}]}", OK, NULL, NULL),
    warned("/rules/0/x a: is not known to this version: it is kept, and has no "
        "effect;  : would reject all requests"),

    base("{'version':41,'rules':[{'id':'orders'," P(10) "},{'id':'users'," P(20)
        "}]}", 0),
    shows(RULE, "users", 0, "{'id':'users'," P(20) "}"),
    missing(RULE, GET, "user"),

    /* in its place; behind the others */

    step(RULE, PUT, "orders", 0, "{" P(11) "}", OK, "{" P(11) ",'id':'orders'}",
        NEXT "'rules':[{" P(11) ",'id':'orders'},{'id':'users'," P(20) "}]}"),
    step(RULE, PUT, "new", 0, "{'id':'new'," P(5) "}", CREATED, "{'id':'new',"
        P(5) "}", NEXT "'rules':[{'id':'orders'," P(10) "},{'id':'users'," P(20)
        "},{'id':'new'," P(5) "}]}"),
    wrong(RULE, PUT, "users", "{'id':'user'," P(5) "}",
        "/rules/1/id users: is not the one that the path has"),
    wrong(RULE, PUT, "users", "{" P(-1) "}",
        "/rules/1/params/limit users: must be at least 0"),
    wrong(RULE, PUT, "third", "{" P(-1) "}",
        "/rules/2/params/limit third: must be at least 0"),
    wrong(RULE, PUT, "users", "{'id':1," P(-1) "}", "/rules/1/id users: is not "
        "the one that the path has; /rules/1/params/limit users: must be at "
        "least 0"),
    wrong(RULE, PUT, "users", "[]", "/rules/1 : expected an object"),
    wrong(RULE, PUT, "users", "null", "/rules/1 : expected an object"),
    gone(RULE, "orders", NEXT "'rules':[{'id':'users'," P(20) "}]}"),
    missing(RULE, DELETE, "order"),
    step(RULE, POST, "orders", 0, "{}", NOT_FOUND, NULL, NULL),

    /* the same again is no change */

    step(RULE, PUT, "users", 0, "{" P(20) "}", OK, "{" P(20) ",'id':'users'}",
        NULL),

    step(RULE, PATCH, "orders", 0, "{'params':{'limit':11},'percent':50}", OK,
        "{'id':'orders'," P(11) ",'percent':50}", NEXT
        "'rules':[{'id':'orders'," P(11) ",'percent':50},{'id':'users'," P(20)
        "}]}"),
    wrong(RULE, PATCH, "users", "{'params':{'limit':-1}}",
        "/rules/1/params/limit users: must be at least 0"),
    wrong(RULE, PATCH, "orders", "{'id':null}",
        "/rules/0/id orders: is not the one that the path has"),
    wrong(RULE, PATCH, "orders", "{'id':'users'}",
        "/rules/0/id orders: is not the one that the path has"),
    step(RULE, PATCH, "nobody", 0, "{}", NOT_FOUND, NULL, NULL),
    wrong(RULE, PATCH, "orders", "7", "/rules/0 orders: expected an object"),
    step(RULE, PATCH, "orders", 0, "{'percent':null}", OK, "*", NULL),

    /* Names that are API keys are compared by their digests. */
    base("{'rules':[{" A ",'limits_by_api_key':{'#sk/1#':{'limit':7}}}]}", 0),
    step(RULE, PATCH, "a", 0, "{'limits_by_api_key':{'sk/1':{"
        "'capacity':7}}}", OK, "{" A
        ",'limits_by_api_key':{'#sk/1#':{'limit':7,'capacity':7}}}", "*"),
    step(RULE, PATCH, "a", 0, "{'limits_by_api_key':{'sk/1':null}}", OK, "{"
        "'id':'a',"
        P(9) ",'limits_by_api_key':{}}", "*"),
    wrong(RULE, PATCH, "a", "{'limits_by_api_key':{'sk/2':{'limit':-1}}}",
        "/rules/0/limits_by_api_key/sk~12/limit a: must be at least 0"),
    wrong(RULE, PATCH, "a", "{'limits_by_api_key':{'sk~2':{'limit':-1}}}",
        "/rules/0/limits_by_api_key/sk~02/limit a: must be at least 0"),
    wrong(RULE, PATCH, "a", "{'limits_by_api_key':{'sk/1':null,'#sk/1#':{"
        "'limit':9}}}",
        TWICE),
    wrong(RULE, PATCH, "a",
        "{'limits_by_api_key':{'sk/2':{'limit':1},'#sk/2#':{"
        "'limit':9}}}", TWICE),

    base("{'rules':[{" A ",'limits_by_api_key':{'sk':{'limit':7}}}]}", 1),
    step(RULE, PATCH, "a", 0, "{'limits_by_api_key':{'sk':null,'sl':{"
        "'limit':1}}}", OK,
        "{" A ",'limits_by_api_key':{'sl':{'limit':1}}}", "*"),
    step(RULE, PATCH, "a", 0, "{'limits_by_api_key':{'#sk#':{"
        "'limit':1}}}", OK, "{" A
        ",'limits_by_api_key':{'sk':{'limit':1}}}", "*"),

    /* Members of a newer format survive a change beside them. */
    base("{'version':41,'format':'1.9','new':{'a':[1]},'rules':[{'id':'a',"
        "'x':1," P(9) "},{'id':'b','y':{'z':null}," P(9) "}]}", 0),
    step(ALLOW, PUT, 0, 0, "['a*']", OK, "['a*']", NEXT
        "'format':'1.9','new':{'a':[1]},'rules':[{'id':'a','x':1," P(9)
        "},{'id':'b','y':{'z':null}," P(9) "}],'allow':['a*']}"),
    step(TIER_LIMITS, PUT, "pro", 0, "{'limit':1}", CREATED, "*", NEXT
        "'format':'1.9','new':{'a':[1]},'rules':[{'id':'a','x':1," P(9)
        ",'tiers':{'pro':{'limit':1}}},{'id':'b','y':{'z':null}," P(9)
        ",'tiers':{'pro':{'limit':1}}}]}"),
    step(RULE, PUT, "a", 0, "{" A "}", OK, "*", NEXT
        "'format':'1.9','new':{'a':[1]},'rules':[{" A
        "},{'id':'b','y':{'z':null}," P(9) "}]}"),
    warned("/rules/1/y b: is not known to this version: it is kept, and has no "
        "effect; /new : is not known to this version: it is kept, and has no "
        "effect"),

    /*
     * A rule that this gateway skips is in no change's way, unless the change
     * is of that rule, or breaks something else.
     */
    base("{'version':41,'rules':[" SKIPPED ",{'id':'b'," P(9)
        "}],'overrides':[{'id':'o','key':'#k#','rule':'odd'," V "}]}", 0),
    step(RULE, PUT, "b", 0, "{" P(8) "}", OK, "*", NEXT "'rules':[" SKIPPED ",{"
        P(8) ",'id':'b'}],'overrides':[{'id':'o','key':'#k#','rule':'odd'," V
        "}]}"),
    step(OVERRIDE, PUT, "odd", 0, "{'key':'k'," V "}", CREATED, "*",
        "*"),
    step(ALLOW, POST, 0, 0, "'a*'", OK, "['a*']", "*"),
    step(TIER_LIMITS, PUT, "pro", "rule=odd", "{'limit':5}", CREATED, "*", "*"),
    wrong(RULE, PATCH, "odd", "{'percent':50}",
        "/rules/0/key odd: expected a known variable"),
    step(TIER_LIMITS, PUT, "pro", "rule=odd", "{'limit':-1}", INVALID,
        "/rules/0/tiers/pro/limit odd: must be at least 0", NULL),
    wrong(OVERRIDES, POST, 0, "{'id':'o','key':'l','rule':'odd'," V "}",
        "/rules/0/key odd: expected a known variable; /overrides/1/id o: is "
        "taken by another override"),
    gone(RULE, "b", "*"),
    wrong(DOCUMENT, PUT, 0, "{'rules':[" SKIPPED "]}",
        "/rules/0/key odd: expected a known variable"),

    base("{'version':41,'rules':[{'id':'b'," P(9)
        "}],'overrides':[{'id':'o','key':'#k#','rule':'b'," V "}]}", 0),
    wrong(RULE, DELETE, "b", 0,
        "/overrides/0/rule o: is no rule of this document or of nginx.conf"),

    base("{'rules':[{" A ",'tiers':{'pro':{'limit':1}}},{'id':'b'," P(9)
        ",'tiers':{}},{'id':'c'," P(9) "}]}", 0),
    shows(TIER_LIMITS, "pro", 0, "{'rules':{'a':{'limit':1}}}"),
    missing(TIER_LIMITS, GET, "free"),
    step(TIER_LIMITS, GET, "pro", "rule=b", 0, NOT_FOUND, NULL, NULL),

    /* in the rules that have tiers */

    step(TIER_LIMITS, PUT, "pro", 0, "{'limit':500,'capacity':500}", OK,
        "{'rules':{'a':{'limit':500,'capacity':500},'b':{'limit':500,"
        "'capacity':500}}}", NEXT "'rules':[{" A
        ",'tiers':{'pro':{'limit':500,'capacity':500}}},{'id':'b'," P(9)
        ",'tiers':{'pro':{'limit':500,'capacity':500}}},{'id':'c'," P(9) "}]}"),
    step(TIER_LIMITS, PUT, "free", 0, "{'limit':5}", CREATED, "*", "*"),

    /* in one */

    step(TIER_LIMITS, PUT, "pro", "rule=c", "{'limit':5}", CREATED,
        "{'rules':{'c':{'limit':5}}}", NEXT "'rules':[{" A
        ",'tiers':{'pro':{'limit':1}}},{'id':'b'," P(9)
        ",'tiers':{}},{'id':'c'," P(9) ",'tiers':{'pro':{'limit':5}}}]}"),
    step(TIER_LIMITS, PUT, "pro", "rule=d", "{'limit':5}", NOT_FOUND, NULL,
        NULL),
    wrong(TIER_LIMITS, PUT, "pro", "{'limit':-1}",
        "/rules/0/tiers/pro/limit a: must be at least 0; "
        "/rules/1/tiers/pro/limit b: must be at least 0"),
    wrong(TIER_LIMITS, PUT, "pro", "true", "/rules/0/tiers/pro a: expected a "
        "number or a string or an object; /rules/1/tiers/pro b: expected a "
        "number or a string or an object"),

    /* a rule that had tiers and has none any more is still one */

    gone(TIER_LIMITS, "pro", NEXT "'rules':[{" A ",'tiers':{}},{'id':'b'," P(9)
        ",'tiers':{}},{'id':'c'," P(9) "}]}"),
    step(TIER_LIMITS, DELETE, "pro", "rule=c", 0, NOT_FOUND, NULL, NULL),
    missing(TIER_LIMITS, DELETE, "free"),

    base("{'rules':[{" A "},{'id':'b','shards':4," P(9) "},{'id':'c'," P(9)
        "}]}", 0),

    /* no rule has tiers: all get it, but those that may have none */

    step(TIER_LIMITS, PUT, "pro", 0, "{'limit':5}", CREATED,
        "{'rules':{'a':{'limit':5},'c':{'limit':5}}}", "*"),

    base("", 0),
    wrong(TIER_LIMITS, PUT, "pro", "{'limit':5}", "/rules : no rule here can "
        "have a tier; rules of nginx.conf cannot be changed here; define the "
        "rule in the document"),

    base("", 0),
    shows(TIER_ASSIGNMENTS, 0, 0, "{'keys':{},'patterns':[]}"),
    step(TIER_ASSIGNMENTS, PATCH, 0, 0, "{'keys':{'sk_1':'pro'},"
        "'patterns':[{'pattern':'sk_f*','tier':'free'}]}", OK,
        "{'keys':{'#sk_1#':'pro'},'patterns':[{'pattern':'sk_f*',"
        "'tier':'free'}]}", "*"),

    base("{'tier_of':{'keys':{'#sk_1#':'pro'}}}", 0),
    step(TIER_ASSIGNMENTS, PATCH, 0, 0, "{'keys':{'sk_1':null}}", OK,
        "{'keys':{},'patterns':[]}", NEXT "'tier_of':{'keys':{}}}"),
    step(TIER_ASSIGNMENTS, PATCH, 0, 0, "{'keys':{'#sk_1#':'free'}}", OK, "*",
        NEXT "'tier_of':{'keys':{'#sk_1#':'free'}}}"),
    wrong(TIER_ASSIGNMENTS, PATCH, 0, "{'keys':{'sk_2':'pro','s/3':7}}",
        "/tier_of/keys/s~13 : expected a string"),
    wrong(TIER_ASSIGNMENTS, PATCH, 0, "{'keys':{'127.0.0.1':'pro'}}",
        "/tier_of/keys/127.0.0.1 : " ADDRESS),
    wrong(TIER_ASSIGNMENTS, PATCH, 0, "{'x':7}",
        "/tier_of/x : is not known, expected one of 'keys', 'rules', "
        "'patterns'"),
    wrong(TIER_ASSIGNMENTS, PATCH, 0, "null", "/tier_of : expected an object"),
    wrong(TIER_ASSIGNMENTS, PATCH, 0, "{'keys':{'sk_1':'a','#sk_1#':'b'}}",
        "/tier_of/keys : has the same key twice"),

    base("{'tier_of':{'keys':{'#sk_1#':'pro'}," PATTERNS "}}", 0),
    shows(TIER_ASSIGNMENT, "sk_1", 0, "{'tier':'pro','by':'key'}"),
    shows(TIER_ASSIGNMENT, "#sk_1#", 0, "{'tier':'pro','by':'key'}"),
    shows(TIER_ASSIGNMENT, "sk_f1", 0, "{'tier':'free','by':'pattern'}"),
    shows(TIER_ASSIGNMENT, "sk_2", 0, "{'tier':'other','by':'pattern'}"),
    missing(TIER_ASSIGNMENT, GET, "nobody"),

    /* nobody knows of a digest which pattern its key matches */

    missing(TIER_ASSIGNMENT, GET, "#sk_f1#"),
    step(TIER_ASSIGNMENT, PUT, "sk_1", 0, "{'tier':'max'}", OK,
        "{'tier':'max','by':'key'}", NEXT "'tier_of':{'keys':{'#sk_1#':'max'},"
        PATTERNS "}}"),
    step(TIER_ASSIGNMENT, PUT, "sk_2", 0, "{'tier':'max'}", CREATED,
        "{'tier':'max','by':'key'}", NEXT
        "'tier_of':{'keys':{'#sk_1#':'pro','#sk_2#':'max'}," PATTERNS "}}"),
    wrong(TIER_ASSIGNMENT, PUT, "sk_2", "{'tier':7}",
        "/tier_of/keys/sk_2 : expected a string"),
    wrong(TIER_ASSIGNMENT, PUT, "sk_2", "{'tier':'a','b':1}",
        "/tier_of/keys : expected {'tier': '<name>'}"),
    wrong(TIER_ASSIGNMENT, PUT, "sk_2", "{}",
        "/tier_of/keys : expected {'tier': '<name>'}"),
    wrong(TIER_ASSIGNMENT, PUT, "sk_2", "'pro'",
        "/tier_of/keys : expected {'tier': '<name>'}"),
    gone(TIER_ASSIGNMENT, "sk_1", NEXT "'tier_of':{'keys':{}," PATTERNS "}}"),
    missing(TIER_ASSIGNMENT, DELETE, "sk_f1"),

    /* by the keys of rules; one that goes takes its tiers with it, or stays */

    base("{'rules':[{" A "}],'tier_of':{'rules':{'a':{'#acme#':'gold'}},"
        "'patterns':[{'rule':'a','pattern':'eu-*','tier':'eu'},"
        "{'pattern':'*','tier':'any'}]}}", 0),
    shows(TIER_ASSIGNMENT, "acme", "rule=a", "{'tier':'gold','by':'key'}"),
    shows(TIER_ASSIGNMENT, "eu-1", "rule=a", "{'tier':'eu','by':'pattern'}"),
    shows(TIER_ASSIGNMENT, "eu-1", 0, "{'tier':'any','by':'pattern'}"),
    step(TIER_ASSIGNMENT, GET, "us-1", "rule=a", 0, NOT_FOUND, NULL, NULL),
    step(TIER_ASSIGNMENT, GET, "acme", "rule=conf", 0, NOT_FOUND, NULL, NULL),
    step(TIER_ASSIGNMENT, DELETE, "acme", 0, 0, NOT_FOUND, NULL, NULL),
    step(TIER_ASSIGNMENT, DELETE, "eu-1", "rule=a", 0, NOT_FOUND, NULL, NULL),
    step(TIER_ASSIGNMENT, DELETE, "acme", "rule=a", 0, GONE, NULL, "*"),
    step(TIER_ASSIGNMENT, PUT, "#acme#", "rule=a", "{'tier':'x'}", OK,
        "{'tier':'x','by':'key'}", "*"),
    step(TIER_ASSIGNMENT, PUT, "acme", "rule=none", "{'tier':'x'}", INVALID,
        "/tier_of/rules/none : " NO_RULE, NULL),
    step(TIER_ASSIGNMENT, PUT, "acme*", "rule=a", "{'tier':'x'}", INVALID,
        "/tier_of/rules/a/acme* : expected one value: one with '*' or '?' in "
        "it as 'sha256:...'", NULL),
    step(TIER_ASSIGNMENT, PUT, "acme", "rule=a", "7", INVALID,
        "/tier_of/rules : expected {'tier': '<name>'}", NULL),
    wrong(TIER_ASSIGNMENTS, PATCH, 0,
        "{'rules':{'a':{'b':'x','#b#':'y'}}}",
        "/tier_of/rules : has the same key twice"),
    wrong(RULE, DELETE, "a", 0, "/tier_of/rules/a : " NO_RULE
        "; /tier_of/patterns/0/rule : " NO_RULE),

    base("{'rules':[{" A "}],'tier_of':{'rules':{'a':{'#acme#':'gold'}}}}", 0),
    step(TIER_ASSIGNMENTS, PATCH, 0, 0, "{'rules':{'a':{'acme':null,"
        "'b':'gold'},'conf':{'c':'iron'}}}", OK, "{'rules':{'a':{'#b#':'gold'}"
        ",'conf':{'#c#':'iron'}},'keys':{},'patterns':[]}", "*"),
    step(TIER_ASSIGNMENT, PUT, "b", "rule=conf", "{'tier':'x'}", CREATED,
        "{'tier':'x','by':'key'}", NEXT "'rules':[{" A "}],'tier_of':{'rules':{"
        "'a':{'#acme#':'gold'},'conf':{'#b#':'x'}}}}"),
    step(TIER_ASSIGNMENT, DELETE, "acme", "rule=a", 0, GONE, NULL, NEXT
        "'rules':[{" A "}],'tier_of':{'rules':{'a':{}}}}"),
    base("{'rules':[{" A "}],'tier_of':{'rules':{'a':{}}}}", 0),
    gone(RULE, "a", NEXT "'rules':[],'tier_of':{'rules':{'a':{}}}}"),

    /* amounts by the rule's key */

    base("{'rules':[{" A ",'limits_by_key':{'#acme#':{'limit':7}}}]}", 0),
    step(RULE, PATCH, "a", 0, "{'limits_by_key':{'acme':{'limit':8},'b':{"
        "'limit':1}}}",
        OK, "{" A ",'limits_by_key':{'#acme#':{'limit':8},'#b#':{"
            "'limit':1}}}", "*"),
    step(RULE, PATCH, "a", 0, "{'limits_by_key':{'acme':null}}", OK, "{" A
        ",'limits_by_key':{}}", "*"),
    wrong(RULE, PATCH, "a", "{'limits_by_key':{'b':{'limit':1},'#b#':{"
        "'limit':2}}}",
        "/rules/0/limits_by_key a: has the same key twice"),

    base("{'tier_of':{'keys':{'sk_1':'pro'}}}", 1),

    /* a key in the clear, asked for by its digest */

    shows(TIER_ASSIGNMENT, "#sk_1#", 0, "{'tier':'pro','by':'key'}"),
    step(TIER_ASSIGNMENT, PUT, "sk_2", 0, "{'tier':'a'}", CREATED, "*", NEXT
        "'tier_of':{'keys':{'sk_1':'pro','sk_2':'a'}}}"),
    gone(TIER_ASSIGNMENT, "#sk_1#", NEXT "'tier_of':{'keys':{}}}"),

    base("{'overrides':[" X "," OLD "," Y "]}", 0),
    shows(OVERRIDES, 0, 0, "[" X "," Y "]"),
    shows(OVERRIDES, 0, "key=sk_1", "[" X "]"),
    shows(OVERRIDES, 0, "key=k*", "[]"),
    shows(OVERRIDES, 0, "key=#k#", "[" Y "]"),
    shows(OVERRIDES, 0, "key=\xff*", "[]"),
    shows(OVERRIDES, 0, "rule=conf", "[" X "]"),

    /* the body of a GET says nothing */

    step(OVERRIDES, GET, 0, 0, "{}", OK, "[" X "," Y "]", NULL),
    step(OVERRIDES, GET, 0, "key=none", "{}", OK, "[]", NULL),

    shows(OVERRIDE, "y", 0, Y),
    missing(OVERRIDE, GET, "old"),
    missing(OVERRIDE, DELETE, "old"),
    gone(OVERRIDE, "x", NEXT "'overrides':[" Y "]}"),
    step(OVERRIDE, PUT, "x", 0, "{'key':'k'," V "}", OK, "{'key':'#k#',"
        V ",'id':'x'}", NEXT "'overrides':[{'key':'#k#'," V ",'id':'x'}," Y
        "]}"),
    wrong(OVERRIDE, PUT, "x", "{'key':'k'," PAST "," V "}",
        "/overrides/0/expires_at x: is in the past"),

    /* those that have ended leave with any change */

    step(ALLOW, PUT, 0, 0, "[]", OK, "[]", NEXT "'overrides':[" X "," Y
        "],'allow':[]}"),
    step(DOCUMENT, PUT, 0, 0, "{'overrides':[" OLD "]}", OK, "*", NEXT
        "'overrides':[]}"),

    base("{'overrides':[" Y "]}", 0),
    step(OVERRIDES, POST, 0, 0, "{'key':'sk_1'," V "}", CREATED,
        "{'key':'#sk_1#'," V ",'id':'" ID "'}", NEXT "'overrides':[" Y
        ",{'key':'#sk_1#'," V ",'id':'" ID "'}]}"),
    step(OVERRIDES, POST, 0, 0, "[{'key':'b'," V
        "},{'id':'old','key':'c'," V "},{'key':'d'," V "}]", CREATED,
        "[{'key':'#b#'," V ",'id':'" ID "'},{'id':'old','key':'#c#'," V
        "},{'key':'#d#'," V ",'id':'" ID "-3'}]", "*"),
    wrong(OVERRIDES, POST, 0, "[{'key':'b'," V "},{'id':'y','key':'c'," V
        "}]", "/overrides/2/id y: is taken by another override"),
    wrong(OVERRIDES, POST, 0, "[{'key':'b'," V "},{'key':7," V "}]",
        "/overrides/2/key " ID "-2: expected a string; /overrides/2 " ID
        "-2: expected one of 'key' and 'tenant'"),
    wrong(OVERRIDES, POST, 0, "{'id':'z','key':'a','rule':'none'," V "}",
        "/overrides/1/rule z: is no rule of this document or of nginx.conf"),
    wrong(OVERRIDES, POST, 0, "7", "/overrides/1 : expected an object"),

    /* it would not be there when the answer says that it is */

    wrong(OVERRIDES, POST, 0, "[{'id':'p','key':'b'," FUTURE "," V
        "},{'id':'q','key':'b'," PAST "," V "}]",
        "/overrides/2/expires_at q: is in the past"),
    step(OVERRIDES, POST, 0, 0, "[]", OK, "[]", NULL),

    base("", 0),
    shows(ALLOW, 0, 0, "[]"),
    step(DENY, PUT, 0, 0, "['sk_1','a*']", OK, "['#sk_1#','a*']",
        "{'version':1,'rules':[],'deny':['#sk_1#','a*']}"),
    wrong(ALLOW, PUT, 0, "['a',7]",
        "/allow/1 : expected a string or an object"),
    wrong(ALLOW, PUT, 0, "'a'", "/allow : expected an array"),
    wrong(ALLOW, PUT, 0, "null", "/allow : expected an array"),

    base("{'allow':['#sk_1#','a*']}", 0),

    /* a key is not added twice, and that is no change */

    step(ALLOW, POST, 0, 0, "'sk_1'", OK, "['#sk_1#','a*']", NULL),
    step(ALLOW, POST, 0, 0, "['sk_1','a*','b*','b*','c','c']", OK,
        "['#sk_1#','a*','b*','#c#']", "*"),
    wrong(ALLOW, POST, 0, "['a*','c*',7]",
        "/allow/3 : expected a string or an object"),
    wrong(ALLOW, POST, 0, "{}", "/allow/2 : expected 'address', 'key', "
        "or 'rule' and 'key'"),
    wrong(ALLOW, POST, 0, "{'key':'127.0.0.0/8'}",
        "/allow/2/key : " ADDRESS),
    step(ALLOW, DELETE, 0, "key=sk_1", 0, GONE, NULL, NEXT
        "'allow':['a*']}"),
    step(ALLOW, DELETE, 0, 0, "['nobody','a*']", GONE, NULL, NEXT
        "'allow':['#sk_1#']}"),
    step(ALLOW, DELETE, 0, "key=sk_2", 0, NOT_FOUND, NULL, NULL),
    step(ALLOW, DELETE, 0, "key=\xff*", 0, NOT_FOUND, NULL, NULL),
    step(DENY, DELETE, 0, "key=sk_1", 0, NOT_FOUND, NULL, NULL),
    wrong(ALLOW, DELETE, 0, 0,
        "/allow : expected '?key=', or an array of entries"),
    wrong(ALLOW, DELETE, 0, "{}",
        "/allow : expected '?key=', or an array of entries"),

    /* addresses; a new entry takes the place of that of the same client */

    base("{'rules':[{" A "}],'deny':['10.0.0.0/8',{'key':'#sk_1#',"
        FUTURE "},{'rule':'a','key':'#k#'}]}", 0),
    step(DENY, POST, 0, 0, "['10.1.2.3/8','::ffff:10.0.0.0/104']", OK,
        "*", NULL),
    step(DENY, POST, 0, 0, "{'address':'::ffff:10.0.0.0/104'," FUTURE "}",
        OK, "[{'address':'::ffff:10.0.0.0/104'," FUTURE "},{'key':'#sk_1#',"
        FUTURE "},{'rule':'a','key':'#k#'}]", "*"),
    step(DENY, POST, 0, 0, "['sk_1',{'rule':'a','key':'k','reason':'r'},"
        "{'rule':'conf','key':'k'}]", OK, "['10.0.0.0/8','#sk_1#',"
        "{'rule':'a','key':'#k#','reason':'r'},{'rule':'conf','key':'#k#'}]",
        "*"),
    step(DENY, DELETE, 0, "key=sk_1", 0, GONE, NULL, NEXT "'rules':[{" A
        "}],'deny':['10.0.0.0/8',{'rule':'a','key':'#k#'}]}"),
    step(DENY, DELETE, 0, "key=10.255.0.0/8", 0, GONE, NULL, NEXT
        "'rules':[{" A "}],'deny':[{'key':'#sk_1#'," FUTURE "},"
        "{'rule':'a','key':'#k#'}]}"),
    step(DENY, DELETE, 0, 0, "[{'rule':'a','key':'k'},'::1']", GONE, NULL,
        NEXT "'rules':[{" A "}],'deny':['10.0.0.0/8',{'key':'#sk_1#',"
        FUTURE "}]}"),
    step(DENY, DELETE, 0, "rule=a", 0, INVALID, "/deny : expected "
        "'?key=', or an array of entries", NULL),
    step(DENY, DELETE, 0, "key=k", 0, NOT_FOUND, NULL, NULL),

    /* a duration is the gateway's to turn into a time; what has ended leaves */

    base("{'deny':[{'key':'#a#'," PAST "},{'key':'#b#'," FUTURE "}]}", 0),
    step(DENY, POST, 0, 0, "{'address':'::1','duration':'1h30m',"
        "'reason':'scans'}", OK, "[{'key':'#b#'," FUTURE "},{'address':'::1',"
        "'reason':'scans','expires_at':'2026-11-18T12:36:40Z'}]", "*"),
    step(DENY, POST, 0, 0, "{'address':'::1','duration':60}", OK,
        "[{'key':'#b#'," FUTURE "},{'address':'::1',"
        "'expires_at':'2026-11-18T11:07:40Z'}]", "*"),
    wrong(DENY, POST, 0, "{'address':'::1'," PAST "}",
        "/deny/1/expires_at : is in the past"),
    wrong(DENY, POST, 0, "{'address':'::1','duration':0}",
        "/deny/1/duration : " DURATION),
    wrong(DENY, POST, 0, "{'address':'::1','duration':'1h'," FUTURE "}",
        "/deny/1/duration : " DURATION),
    step(DOCUMENT, PUT, 0, 0, "{'rules':[],'allow':[{'key':'k',"
        "'duration':1}]}", OK, NEXT "'rules':[],'allow':[{'key':'#k#',"
        FUTURE "}]}", "*"),
    step(OVERRIDE, PUT, "d", 0, "{'key':'k','duration':1," V "}",
        CREATED, "{'key':'#k#'," V ",'id':'d'," FUTURE "}", "*"),

    /* all clients */

    step(DENY, POST, 0, 0, "'0.0.0.0/0'", REJECTS_ALL, NULL, NULL),
    step(DENY, POST, 0, 0, "{'address':'::/0'}", REJECTS_ALL, NULL, NULL),
    step(DENY, POST, 0, 0, "{'key':'*'}", REJECTS_ALL, NULL, NULL),
    step(DENY, POST, 0, 0, "'1234::/96'", OK, "*", "*"),

    /* the rules of one owner */

    base("{'version':41,'rules':[{'id':'a','owner':'x'," P(1) "},{'id':'b',"
         P(2) "},{'id':'c','owner':'x'," P(3) "}],'deny':['#k#']}", 0),
    step(RULES, PUT, 0, "owner=x", "[{'id':'d'," P(4) "},{'id':'c',"
        "'owner':'x'," P(5) "}]", OK,
        "[{'id':'d'," P(4) ",'owner':'x'},{'id':'c','owner':'x'," P(5) "},"
        "{'id':'b'," P(2) "}]",
        NEXT "'rules':[{'id':'d'," P(4) ",'owner':'x'},{'id':'c',"
        "'owner':'x'," P(5) "},{'id':'b'," P(2) "}],'deny':['#k#']}"),
    step(RULES, PUT, 0, "owner=y", "[]", OK, "*", NULL),
    step(RULES, PUT, 0, "owner=y", "[{'id':'d'," P(4) "}]", OK, "*",
        NEXT "'rules':[{'id':'a','owner':'x'," P(1) "},{'id':'b'," P(2) "},"
        "{'id':'c','owner':'x'," P(3) "},{'id':'d'," P(4) ",'owner':'y'}],"
        "'deny':['#k#']}"),
    step(RULES, PUT, 0, "owner=x", "[{'id':'a','owner':'y'," P(1) "}]", INVALID,
        "/rules : a rule of the body has another 'owner' than the query", NULL),
    step(RULES, PUT, 0, "owner=x", "[{'id':'b'," P(1) "}]", INVALID,
        "/rules/1/id b: is taken by another rule", NULL),
    step(RULES, PUT, 0, "owner=x", "{}", INVALID, "/rules : expected an array",
        NULL),

    /* a pipeline that sends the same again makes no version */

    base("{'version':41,'rules':[{'id':'a','owner':'x'," P(1) "},{'id':'b',"
         "'owner':'y'," P(2) "}]}", 0),
    step(RULES, PUT, 0, "owner=x", "[{'id':'a','owner':'x'," P(1) "}]", OK, "*",
        NULL),

    base("{'version':41,'rules':[{'id':'a','owner':'x'," P(1) "},{'id':'b',"
         P(2) "},{'id':'c','owner':'x'," P(3) "}],'deny':['#k#']}", 0),

    /* a dry run: what would differ */

    step(RULES, PUT, 0, "dry_run", "[{'id':'c','owner':'x'," P(4) "},"
        "{'id':'b'," P(2) "},{'id':'d'," P(1) "}]", OK,
        "{'version':41,'changes':[{'path':['rules','a'],'before':{'id':'a',"
        "'owner':'x'," P(1) "}},{'path':['rules','c','params','limit'],"
        "'before':3,'after':4},{'path':['rules','d'],'after':{'id':'d'," P(1)
        "}}]}", NULL),
    step(RULES, PUT, 0, "dry_run", "[{'id':'b'," P(2) "},{'id':'a',"
        "'owner':'x'," P(1) "},{'id':'c','owner':'x'," P(3) "}]", OK,
        "{'version':41,'changes':[{'path':['rules'],'before':['a','b','c'],"
        "'after':['b','a','c']}]}", NULL),
    step(DENY, POST, 0, "dry_run", "['#k#','10.0.0.0/8']", OK, "{'version':41,"
        "'changes':[{'path':['deny'],'after':'10.0.0.0/8'}]}", NULL),
    step(DENY, POST, 0, "dry_run", "['#k#']", OK,
        "{'version':41,'changes':[]}", NULL),
    step(RULE, DELETE, "b", "dry_run", 0, GONE, "{'version':41,'changes':["
        "{'path':['rules','b'],'before':{'id':'b'," P(2) "}}]}", NULL),
    step(RULE, DELETE, "q", "dry_run", 0, NOT_FOUND, NULL, NULL),
    step(TIER_ASSIGNMENT, PUT, "k", "dry_run", "{'tier':'t'}", CREATED,
        "{'version':41,'changes':[{'path':['tier_of'],'after':{'keys':{"
        "'#k#':'t'}}}]}", NULL),
    step(DOCUMENT, PUT, 0, "dry_run", "{'rules':1}", INVALID,
        "/rules : expected an array", NULL),

    base("", 0),
    step(DOCUMENT, PUT, 0, "dry_run", "{'rules':[{'id':'a'," P(1) "}]}",
        CREATED, "{'version':0,'changes':[{'path':['rules','a'],'after':{"
        "'id':'a'," P(1) "}}]}", NULL)
};


static ngx_rl_edit_t  edit;


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


/* A text of a step as it is meant; in the pool. */
static ngx_str_t
meant(const char *text)
{
    u_char      buf[NGX_RL_DOCUMENT_KEY], *p;
    ngx_str_t   key, all;

    all.data = p = ngx_pnalloc(whole, TEXT);
    assert_non_null(p);

    for ( /* void */ ; text && *text; text++) {

        if (*text == '#') {
            key.data = (u_char *) ++text;
            text = strchr(text, '#');
            key.len = (u_char *) text - key.data;
            key = ngx_rl_document_key(&key, buf);
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
request(const char *text, ngx_uint_t clear, const step_t *step)
{
    document_clear();
    memset(&edit, 0, sizeof(edit));

    edit.pool = pool;
    edit.limiter = &alone;
    edit.base = meant(text);
    edit.version = *text ? 41 : 0;
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

    } else if (step->query && strncmp(step->query, "owner=", 6) == 0) {
        edit.owner = meant(step->query + 6);

    } else if (step->query && strcmp(step->query, "dry_run") == 0) {
        edit.dry_run = 1;

    } else {
        edit.force = (step->query != NULL);
    }
}


static const char *
problem_text(const ngx_rl_problems_t *list)
{
    static char  text[TEXT], *p;

    ngx_rl_problem_t *problem = list->list.elts;
    p = text;
    *p = '\0';

    for (ngx_uint_t i = 0; i < list->list.nelts; i++) {
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
    if (expected == NULL) {
        assert_int_equal(text.len, 0);
        return;
    }

    assert_true(text.len);
    assert_int_equal(text.data[text.len - 1], '\n');

    if (strcmp(expected, "*") == 0) {
        return;
    }

    ngx_str_t wanted = meant(expected);

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

    sprintf(what, "step %lu", i);

    if (edit.status != step->status) {
        fail_msg("%s: status %d is not %d: %s", what, (int) edit.status,
                 (int) step->status, problem_text(&edit.problems));
    }

    if (edit.policy) {
        assert_true(edit.status <= NGX_RL_EDIT_GONE);
        assert_int_equal(edit.policy->refs, 1);
        ngx_rl_policy_release(edit.policy);
    }

    if (step->status == NGX_RL_EDIT_INVALID) {
        ngx_str_t wanted = meant(step->reply);

        if (strcmp(problem_text(&edit.problems), (char *) wanted.data) != 0) {
            fail_msg("%s: %s", what, problem_text(&edit.problems));
        }

    } else if (step->status <= NGX_RL_EDIT_GONE) {
        same_json(edit.reply, step->reply, what);
    }

    same_json(edit.document, step->document, what);
    assert_true(edit.document.len == 0 || edit.policy);
}


static void
run(const char *text, ngx_uint_t clear, const step_t *step, ngx_uint_t n)
{
    for (ngx_uint_t i = 0; i < n; i++) {

        if (step[i].base) {
            text = step[i].base;
            clear = step[i].clear;

        } else if (step[i].warnings) {
            assert_string_equal(problem_text(&edit.warnings), step[i].warnings);

        } else {
            request(text, clear, &step[i]);
            ngx_rl_edit(&edit);
            check(&step[i], i);
        }
    }
}


static void
test_steps(void **state)
{
    const step_t  made = step(OVERRIDES, POST, 0, 0,
                              "{'key':'sk_1'," V "}", CREATED, "*", "*");

    run("", 0, steps, sizeof(steps) / sizeof(steps[0]));
    run("", 0, &made, 1);
    same_text(edit.made, ID);
}


/* The examples of RFC 7396, of a member that this format does not know. */
static void
test_merge_patch(void **state)
{
    char        text[512], body[512], expected[512];
    step_t      one = step(RULE, PATCH, "a", 0, body, OK, expected, "*");

    static const char  *examples[][3] = {
        { "{'a':'b'}", "{'a':'c'}", "{'a':'c'}" }, { "{'a':'b'}", "{'b':'c'}",
            "{'a':'b','b':'c'}" }, { "{'a':'b'}", "{'a':null}", "{}" },
            { "{'a':'b','b':'c'}", "{'a':null}", "{'b':'c'}" }, { "{'a':['b']}",
            "{'a':'c'}", "{'a':'c'}" }, { "{'a':'c'}", "{'a':['b']}",
            "{'a':['b']}" }, { "{'a':{'b':'c'}}", "{'a':{'b':'d','c':null}}",
            "{'a':{'b':'d'}}" }, { "{'a':[{'b':'c'}]}", "{'a':[1]}",
            "{'a':[1]}" }, { "['a','b']", "['c','d']", "['c','d']" },
            { "{'a':'b'}", "['c']", "['c']" }, { "{'a':'foo'}", "'bar'",
            "'bar'" }, { "{'e':null}", "{'a':1}", "{'e':null,'a':1}" },
            { "[1,2]", "{'a':'b','c':null}", "{'a':'b'}" }, { "{}",
            "{'a':{'bb':{'ccc':null}}}", "{'a':{'bb':{}}}" }, };

    for (ngx_uint_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        sprintf(text, "{'format':'1.9','rules':[{'id':'a'," P(9) ",'x':%s}]}",
                examples[i][0]);
        sprintf(body, "{'x':%s}", examples[i][1]);
        sprintf(expected, "{'id':'a'," P(9) ",'x':%s}", examples[i][2]);

        /* what changes nothing is no document */

        one.document = (strcmp(examples[i][0], examples[i][2]) ? "*" : NULL);
        run(text, 0, &one, 1);
    }

    sprintf(body, "{'x':null}");
    sprintf(expected, "{'id':'a'," P(9) "}");
    one.document = "*";
    run(text, 0, &one, 1);
}


/* Problems of regular expressions are found later. */
static void
test_invalid(void **state)
{
    ngx_str_t  pointer;

    const struct {
        step_t       step;
        const char  *id;      /* of the rule that has the problem */
        ngx_uint_t   invalid;
    } edits[] = {
        { step(DOCUMENT, PUT, 0, 0, "{}", OK, "*", "*"), "", 1 }, { step(ALLOW,
            PUT, 0, 0, "['a*']", OK, "*", "*"), "", 0 }, { step(RULE, PUT,
            "users", 0, "{" P(9) "}", CREATED, "*", "*"), "", 0 }, { step(RULE,
            PUT, "users", 0, "{" P(9) "}", CREATED, "*", "*"), "users", 1 }
    };

    ngx_str_set(&pointer, "/rules/1/match/endpoint_regex");

    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        run("{'rules':[]}", 0, &edits[i].step, 1);
        assert_false(ngx_rl_edit_invalid(&edit));

        ngx_rl_problem(&edit.problems, NULL, &pointer, "is wrong");
        ngx_rl_problem_t *problem = edit.problems.list.elts;
        problem->id = meant(edits[i].id);
        assert_int_equal(ngx_rl_edit_invalid(&edit), edits[i].invalid);
    }
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
    ngx_str_t  text;

    text.data = (u_char *) data;
    text.len = len;

    int left = allocations;
    allocations = -1;
    json_t *root = json_load_callback(next_bytes, &text, flags, error);
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
    int  n;

    static const char  base[] =
        "{'rules':[{'id':'a'," P(9) ",'tiers':{},'limits_by_api_key':{'#k#':{"
        "'limit':1}"
        "}}],'tier_of':{'keys':{'#k#':'t'}},'allow':['#k#','l*'],"
        "'overrides':[{'id':'o','key':'#k#'," V "}]}";

    const step_t  list[] = {
        step(DOCUMENT, PUT, 0, 0, "{'rules':[]}", OK, "*", "*"),
        step(RULE, PUT, "b", 0, "{" P(9) "}", CREATED, "*", "*"),
        step(RULE, PATCH, "a", 0, "{'limits_by_api_key':{'k':{"
            "'capacity':2}}}", OK, "*",
             NEXT "'rules':[{'id':'a'," P(9)
             ",'tiers':{},'limits_by_api_key':{'#k#':{'limit':1,"
             "'capacity':2}}}],"
             "'tier_of':{'keys':{'#k#':'t'}},'allow':['#k#','l*'],"
             "'overrides':[{'id':'o','key':'#k#'," V "}]}"),
        step(TIER_LIMITS, PUT, "t", 0, "{'limit':5}", CREATED, "*", "*"),
        step(TIER_ASSIGNMENTS, PATCH, 0, 0, "{'keys':{'m':'t'}}", OK, "*", "*"),
        step(TIER_ASSIGNMENT, PUT, "k", 0, "{'tier':'u'}", OK,
             "{'tier':'u','by':'key'}", "*"),
        step(OVERRIDES, POST, 0, 0, "[{'key':'m'," V "}]", CREATED, "*",
             "*"),
        step(OVERRIDES, GET, 0, "key=k", 0, OK, "*", NULL),
        step(ALLOW, POST, 0, 0, "['k','m']", OK, "*", "*"),
        step(RULES, PUT, 0, "owner=x", "[{'id':'b'," P(9) "}]", OK,
             "[{'id':'a'," P(9) ",'tiers':{},'limits_by_api_key':{'#k#':{"
             "'limit':1}}},{'id':'b'," P(9) ",'owner':'x'}]", "*"),
        step(RULES, PUT, 0, "dry_run", "[{'id':'b'," P(8) "}]", OK,
             "{'version':41,'changes':[{'path':['rules','a'],'before':{'id':"
             "'a'," P(9) ",'tiers':{},'limits_by_api_key':{'#k#':{'limit':1}}"
             "}},{'path':['rules','b'],'after':{'id':'b'," P(8) "}}]}", NULL),
        step(ALLOW, DELETE, 0, "key=k", 0, GONE, NULL, "*")
    };

    for (ngx_uint_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {

        json_set_alloc_funcs(json_alloc, free);
        ngx_uint_t failed = 0;

        for (n = 0; n < 5000; n++) {
            request(base, 0, &list[i]);
            allocations = n;
            ngx_rl_edit(&edit);

            if (allocations >= 0) {
                break;      /* this one never came to be */
            }

            failed++;

            if (edit.status <= NGX_RL_EDIT_GONE) {
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

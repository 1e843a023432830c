/*
 * Documents that are refused: each with the place of what is wrong, and what
 * was expected; all that is wrong at once.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

typedef struct {
    const char  *json;       /* "'" stands for the quotation mark */
    const char  *pointer;
    const char  *detail;     /* or its beginning, where it ends with "..." */
} bad_t;

/* a rule, and a rule with params, that are right but for what is said */
#define RULE(more)                                                            \
    "{'rules':[{'id':'a','params':{'limit':10,'window':60}" more "}]}"
#define PARAMS(algorithm, params)                                             \
    "{'rules':[{'id':'a','algorithm':'" algorithm "','params':{" params "}}]}"
#define MATCH(match)  RULE(",'match':{" match "}")
#define OVERRIDE(more)                                                        \
    "{'rules':[{'id':'a','params':{'limit':10,'window':60}},"                 \
    "{'id':'s','key':['$a','$b'],'params':{'limit':10,'window':60}}],"        \
    "'overrides':[{'id':'o'," more "}]}"
#define VALUE(type, value)                                                    \
    OVERRIDE("'key':'k','rule':'a','type':'" type "','value':" value)

#define P  "/rules/0/params"
#define ADDRESS                                                               \
    "is an address or a network, expected an API key; addresses are for "     \
    "'allow' and 'deny' of nginx.conf"

/* in a zone without Redis */
static const bad_t  bads[] = {

    /* no JSON */
    { "", "", "is no JSON: it is empty, at byte 0" },
    { "{'rules':", "", "is no JSON: unexpected token at line 1, column 9 "
      "(byte 9)" },
    { "{'rules':[]} x", "", "is no JSON: end of file expected at line 1, "
      "column 14 (byte 14)" },
    { "{'a':1,'a':2}", "", "is no JSON: duplicate object key at line 1, "
      "column 10 (byte 10)" },
    { "{'version':NaN}", "", "is no JSON: invalid token..." },
    { "{'version':Infinity}", "", "is no JSON: invalid token..." },
    { "{'version':1e999}", "", "is no JSON: real number overflow..." },
    { "{'version':99999999999999999999}", "",
      "is no JSON: too big integer..." },
    { "{'version':01}", "", "is no JSON: invalid token..." },
    { "{'rules':[{'id':'a\\u0000b'}]}", "",
      "is no JSON: \\u0000 is not allowed..." },
    { "{'rules':[{'id':'\xff'}]}", "", "is no JSON: unable to decode byte..." },
    { "{'rules':[{'id':'\\ud800'}]}", "", "is no JSON: invalid Unicode..." },

    /* the document */
    { "[]", "", "expected an object" },
    { "1", "", "expected an object" },
    { "{'rule':[]}", "/rule", "is not known, expected one of 'format', "
      "'version', 'rules', 'tier_of', 'whitelist', 'blacklist', 'overrides'" },
    { "{'a/b~c':1}", "/a~1b~0c", "is not known..." },
    { "{'rules':{}}", "/rules", "expected an array" },
    { "{'rules':[1]}", "/rules/0", "expected an object" },
    { "{'version':'1'}", "/version", "expected a number" },
    { "{'format':1}", "/format", "expected a string" },
    { "{'format':'1'}", "/format", "expected a format like '1.0'" },
    { "{'format':'1.x'}", "/format", "expected a format like '1.0'" },
    { "{'format':'2.0'}", "/format", "is another format than '1.0', expected "
      "one that this version can read" },

    /* a rule */
    { "{'rules':[{'params':{'limit':1,'window':1}}]}", "/rules/0/id",
      "is missing" },
    { "{'rules':[{'id':null,'params':{'limit':1,'window':1}}]}",
      "/rules/0/id", "is missing" },
    { "{'rules':[{'id':'a b','params':{'limit':1,'window':1}}]}",
      "/rules/0/id", "expected 1 to 64 of A-Z, a-z, 0-9, '_', '.', '-'" },
    { "{'rules':[{'id':7,'params':{'limit':1,'window':1}}]}", "/rules/0/id",
      "expected a string" },
    { "{'rules':[{'id':'conf','params':{'limit':1,'window':1}}]}",
      "/rules/0/id", "is taken by a rule of nginx.conf" },
    { "{'rules':[{'id':'a','params':{'limit':1,'window':1}},"
      "{'id':'a','params':{'limit':1,'window':1}}]}", "/rules/1/id",
      "is taken by another rule" },
    { RULE(",'colour':1"), "/rules/0/colour", "is not known, expected one of "
      "'id', 'algorithm', 'params', 'sync', 'shards', 'fail_mode', "
      "'emergency', 'dry_run', 'cost', 'cost_header', 'count_status', 'group', "
      "'priority', 'percent', 'key', 'match', 'tiers', 'override'" },

    /* which requests */
    { RULE(",'match':[]"), "/rules/0/match", "expected an object" },
    { MATCH("'uri':'/'"), "/rules/0/match/uri", "is not known, expected one of "
      "'route', 'endpoint_regex', 'methods', 'tier', 'host', "
      "'api_key_pattern'" },
    { MATCH("'api_key_pattern':1"), "/rules/0/match/api_key_pattern",
      "expected a string or an array" },
    { MATCH("'api_key_pattern':['a',1]"), "/rules/0/match/api_key_pattern/1",
      "expected a string" },
    { MATCH("'api_key_pattern':['']"), "/rules/0/match/api_key_pattern/0",
      "expected an API key" },
    { MATCH("'api_key_pattern':['sha256:1234']"),
      "/rules/0/match/api_key_pattern/0",
      "expected 64 hexadecimal digits behind 'sha256:'" },
    { MATCH("'route':'v1'"), "/rules/0/match/route",
      "expected a path template: must start with '/'" },
    { MATCH("'route':''"), "/rules/0/match/route",
      "expected a path template: must start with '/'" },
    { MATCH("'route':7"), "/rules/0/match/route", "expected a string" },
    { MATCH("'endpoint_regex':''"), "/rules/0/match/endpoint_regex",
      "expected a regular expression" },
    { MATCH("'route':'/a','endpoint_regex':'^/a'"),
      "/rules/0/match/endpoint_regex",
      "stands beside 'route', expected one of them" },
    { MATCH("'methods':['GET','get']"), "/rules/0/match/methods/1",
      "expected HTTP methods like 'GET'" },
    { MATCH("'methods':[1]"), "/rules/0/match/methods/0", "expected a string" },
    { MATCH("'host':['']"), "/rules/0/match/host/0",
      "expected host names like..." },
    { MATCH("'host':[false]"), "/rules/0/match/host/0", "expected a string" },
    { MATCH("'tier':''"), "/rules/0/match/tier", "expected the name of a tier: "
      "1 to 64 bytes without variables and control characters" },
    { MATCH("'tier':'$t'"), "/rules/0/match/tier",
      "expected the name of a tier..." },

    /* counted by what */
    { RULE(",'key':[]"), "/rules/0/key", "expected 1 to 8 parts" },
    { RULE(",'key':['a','b','c','d','e','f','g','h','i']"),
      "/rules/0/key/8",
      "expected at most 8 parts" },
    { RULE(",'key':''"), "/rules/0/key", "expected a value with variables" },
    { RULE(",'key':['$a',1]"), "/rules/0/key/1", "expected a string" },
    { RULE(",'key':['$a','b\\u001fc']"), "/rules/0/key/1",
      "expected a value with variables" },
    { RULE(",'key':['$a','$unknown']"), "/rules/0/key/1",
      "expected a known variable" },
    { RULE(",'key':'$unknown'"), "/rules/0/key", "expected a known variable" },

    /* how much */
    { "{'rules':[{'id':'a'}]}", "/rules/0/params", "expected 'limit' and "
      "'window', 'capacity' and 'refill_rate', or 'rate'" },
    { PARAMS("token_bucket", ""), P, "expected 'limit' and 'window', "
      "'capacity' and 'refill_rate', or 'rate'" },
    { PARAMS("token_bucket", "'capacity':10"), P, "expected 'limit' and..." },
    { PARAMS("token_bucket", "'capacity':10,'window':60"), P,
      "expected 'limit' and..." },
    { PARAMS("fixed_window", "'capacity':10"), P, "expected 'limit' and..." },
    { PARAMS("concurrency", ""), P, "expected 'limit'" },
    { PARAMS("token_bucket", "'limit':10"), P "/limit",
      "expected 'window' with it" },
    { PARAMS("token_bucket", "'limit':'$l'"), P "/limit",
      "expected 'window' with it" },
    { PARAMS("token_bucket", "'refill_rate':1"), P,
      "expected a capacity with the refill rate" },
    { PARAMS("token_bucket", "'capacity':0,'refill_rate':1"), P "/capacity",
      "must be > 0" },
    { PARAMS("token_bucket", "'capcity':9,'limit':1,'window':1"), P "/capcity",
      "is not known, expected one of 'rate', 'limit', 'window', 'capacity', "
      "'refill_rate', 'burst', 'nodelay', 'delay'" },
    { PARAMS("token_bucket", "'capacity':'9','limit':1,'window':1"),
      P "/capacity", "expected a number" },
    { PARAMS("token_bucket", "'capacity':true,'limit':1,'window':1"),
      P "/capacity", "expected a number" },
    { PARAMS("token_bucket", "'capacity':1.5,'limit':1,'window':1"),
      P "/capacity", "must be a whole number" },
    { PARAMS("token_bucket", "'capacity':1073741825,'limit':1,'window':1"),
      P "/capacity", "must be at most 1073741824" },
    { PARAMS("token_bucket",
             "'capacity':9007199254740993,'limit':1,'window':1"),
      P "/capacity", "must be at most 1073741824" },
    { PARAMS("token_bucket", "'capacity':1e300,'limit':1,'window':1"),
      P "/capacity", "must be at most 1073741824" },
    { PARAMS("token_bucket", "'limit':-1,'window':1"), P "/limit",
      "must be > 0" },
    { PARAMS("token_bucket", "'limit':'10','window':1"), P "/limit",
      "expected a number, or a string with variables" },
    { PARAMS("token_bucket", "'limit':[],'window':1"), P "/limit",
      "expected a number or a string" },
    { PARAMS("token_bucket", "'limit':'$unknown','window':1"), P "/limit",
      "expected a known variable" },
    { PARAMS("token_bucket", "'limit':1,'window':0"), P "/window",
      "must be > 0" },
    { PARAMS("token_bucket", "'limit':1,'window':0.5"), P "/window",
      "must be > 0" },
    { PARAMS("token_bucket", "'limit':1,'window':1.5"), P "/window",
      "must be a whole number" },
    { PARAMS("token_bucket", "'limit':1,'window':31622401"), P "/window",
      "must be at most 31622400" },
    { PARAMS("token_bucket", "'limit':1,'window':'0s'"), P "/window",
      "expected a time from 1s to 366d in whole seconds, 'calendar:day' or "
      "'calendar:month'" },
    { PARAMS("token_bucket", "'limit':1,'window':'367d'"), P "/window",
      "expected a time from 1s..." },
    { PARAMS("token_bucket", "'limit':1,'window':''"), P "/window",
      "expected a time from 1s..." },
    { PARAMS("fixed_window", "'limit':1,'window':'calendar:year'"),
      P "/window", "expected a time from 1s..." },
    { PARAMS("sliding_window", "'limit':1,'window':'calendar:day'"),
      P "/window", "stands with algorithm sliding_window, expected a time as "
      "in '60s', or algorithm fixed_window" },
    { PARAMS("token_bucket", "'capacity':1,'refill_rate':0"), P "/refill_rate",
      "must be > 0" },
    { PARAMS("token_bucket", "'capacity':1,'refill_rate':1e-9"),
      P "/refill_rate", "must be from 1 in 366 days to 1073741824, in requests "
      "a second" },
    { PARAMS("token_bucket", "'capacity':1,'refill_rate':1073741825"),
      P "/refill_rate", "must be from 1 in 366 days..." },
    { PARAMS("token_bucket", "'rate':'100'"), P "/rate",
      "expected 'r/' and a period after..." },
    { PARAMS("token_bucket", "'rate':100"), P "/rate", "expected a string" },
    { PARAMS("token_bucket", "'rate':'$unknown'"), P "/rate",
      "expected a known variable" },
    { PARAMS("token_bucket", "'rate':'1r/s','limit':1"), P "/limit",
      "stands beside 'rate', expected one of them" },
    { PARAMS("token_bucket", "'rate':'1r/s','window':1"), P "/window",
      "stands beside 'rate', expected 'limit' with the window" },
    { PARAMS("token_bucket", "'rate':'1r/s','refill_rate':1"),
      P "/refill_rate", "stands beside 'rate', expected one of them" },
    { PARAMS("token_bucket", "'limit':1,'window':1,'refill_rate':1"),
      P "/refill_rate", "stands beside 'limit', expected one of them" },
    { PARAMS("sliding_window", "'capacity':1,'window':1,'refill_rate':1"),
      P "/window", "expected one of 'window' and 'refill_rate'" },
    { PARAMS("sliding_window", "'limit':1,'window':1,'capacity':2"), P,
      "expected the same number as limit and capacity, since the algorithm is "
      "no bucket" },
    { PARAMS("sliding_window", "'limit':'$l','window':1,'capacity':2"),
      P "/capacity", "expected no capacity, since..." },
    { PARAMS("sliding_log", "'limit':10001,'window':1"), P "/limit",
      "expected a limit of at most 10000 requests for sliding_log" },
    { PARAMS("sliding_window", "'limit':1073741824,'window':'366d'"),
      P "/limit", "expected a lower limit or a shorter window for..." },
    { PARAMS("token_bucket", "'rate':'1r/d','capacity':1000000"),
      P "/capacity", "expected a capacity that the rate fills within 35 "
      "years" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':1073741823"), P "/burst",
      "expected a burst that the rate drains within 24 days, or 'delay' or "
      "'nodelay'" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':-1"), P "/burst",
      "must be at least 0" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':1073741824"), P "/burst",
      "must be at most 1073741823" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':1,'capacity':2"),
      P "/burst", "stands beside 'capacity', expected one of them" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','delay':-1"), P "/delay",
      "must be at least 0" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','delay':1,'nodelay':true"),
      P "/delay", "stands beside 'nodelay', expected one of them" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','nodelay':1"), P "/nodelay",
      "expected true or false" },
    { PARAMS("cuckoo", "'rate':'1r/s'"), "/rules/0/algorithm",
      "expected 'token_bucket', 'leaky_bucket', 'fixed_window', "
      "'sliding_window', 'sliding_log' or 'concurrency'" },

    /* what an algorithm does not have */
    { PARAMS("token_bucket", "'rate':'1r/s','burst':1"), P "/burst",
      "stands with algorithm token_bucket, expected algorithm leaky_bucket" },
    { PARAMS("fixed_window", "'rate':'1r/s','delay':1"), P "/delay",
      "stands with algorithm fixed_window, expected algorithm leaky_bucket" },
    { PARAMS("token_bucket", "'rate':'1r/s','nodelay':true"), P "/nodelay",
      "stands with algorithm token_bucket, expected algorithm leaky_bucket" },
    { PARAMS("concurrency", "'rate':'1r/s'"), P "/rate",
      "stands with algorithm concurrency, expected another algorithm" },
    { PARAMS("concurrency", "'limit':1,'window':1"), P "/window",
      "stands with algorithm concurrency, expected another algorithm" },
    { PARAMS("concurrency", "'capacity':1,'refill_rate':1"), P "/refill_rate",
      "stands with algorithm concurrency, expected another algorithm" },
    { "{'rules':[{'id':'a','algorithm':'concurrency','params':{'limit':1},"
      "'cost':2}]}", "/rules/0/cost",
      "stands with algorithm concurrency, expected another algorithm" },
    { "{'rules':[{'id':'a','algorithm':'concurrency','params':{'limit':1},"
      "'cost_header':'x'}]}", "/rules/0/cost_header",
      "stands with algorithm concurrency, expected another algorithm" },
    { "{'rules':[{'id':'a','algorithm':'concurrency','params':{'limit':1},"
      "'count_status':[401]}]}", "/rules/0/count_status",
      "stands with algorithm concurrency, expected another algorithm" },
    { "{'rules':[{'id':'a','algorithm':'sliding_log','params':"
      "{'rate':'1r/s'},'sync':'lease'}]}", "/rules/0/sync",
      "stands with algorithm sliding_log, expected 'sync': 'strict'" },

    /* how it counts */
    { RULE(",'sync':'often'"), "/rules/0/sync",
      "expected 'lease', 'strict' or 'async'" },
    { RULE(",'sync':'strict'"), "/rules/0/sync",
      "expected a zone that uses Redis" },
    { RULE(",'fail_mode':'local'"), "/rules/0/fail_mode",
      "expected a zone that uses Redis" },
    { RULE(",'fail_mode':'ajar'"), "/rules/0/fail_mode",
      "expected 'open', 'local' or 'closed'" },
    { RULE(",'emergency':'1r/s'"), "/rules/0/emergency",
      "expected a zone that uses Redis" },
    { RULE(",'cost':-1"), "/rules/0/cost", "must be at least 0" },
    { RULE(",'cost':'2'"), "/rules/0/cost",
      "expected a number, or a string with variables" },
    { RULE(",'cost':'$unknown'"), "/rules/0/cost",
      "expected a known variable" },
    { RULE(",'cost_header':'a b'"), "/rules/0/cost_header",
      "expected 1 to 64 of..." },
    { RULE(",'count_status':[]"), "/rules/0/count_status",
      "expected statuses from 100 to 599" },
    { RULE(",'count_status':[401,99]"), "/rules/0/count_status/1",
      "must be at least 100" },
    { RULE(",'count_status':600"), "/rules/0/count_status",
      "must be at most 599" },
    { RULE(",'count_status':['401']"), "/rules/0/count_status/0",
      "expected a number" },
    { RULE(",'count_status':[401],'cost_header':'x'"),
      "/rules/0/count_status",
      "stands beside 'cost_header', expected one of them" },
    { RULE(",'count_status':[401],'sync':'lease'"), "/rules/0/sync",
      "stands beside 'count_status', expected 'sync': 'strict'" },
    { RULE(",'group':'a b'"), "/rules/0/group", "expected 1 to 64 of..." },
    { RULE(",'priority':1.5"), "/rules/0/priority", "must be a whole number" },
    { RULE(",'priority':-1000001"), "/rules/0/priority",
      "must be at least -1000000" },
    { RULE(",'percent':0"), "/rules/0/percent", "must be > 0" },
    { RULE(",'percent':101"), "/rules/0/percent", "must be at most 100" },
    { RULE(",'dry_run':'yes'"), "/rules/0/dry_run", "expected true or false" },

    /* tiers and keys of a rule */
    { RULE(",'tiers':[]"), "/rules/0/tiers", "expected an object" },
    { RULE(",'tiers':{'pro':5}"), "/rules/0/tiers/pro", "expected an object" },
    { RULE(",'tiers':{'pro':null}"), "/rules/0/tiers/pro",
      "expected an object" },
    { RULE(",'tiers':{'pro':{}}"), "/rules/0/tiers/pro",
      "expected 'limit', 'capacity' or 'refill_rate'" },
    { RULE(",'tiers':{'':{'limit':1}}"), "/rules/0/tiers/",
      "expected the name of a tier..." },
    { RULE(",'tiers':{'pro':{'limit':0}}"), "/rules/0/tiers/pro/limit",
      "must be > 0" },
    { RULE(",'tiers':{'pro':{'limit':'$l'}}"), "/rules/0/tiers/pro/limit",
      "expected a number" },
    { RULE(",'tiers':{'pro':{'rate':'1r/s'}}"), "/rules/0/tiers/pro/rate",
      "is not known, expected one of 'limit', 'window', 'capacity', "
      "'refill_rate'" },
    { RULE(",'tiers':{'pro':{'window':60}}"), "/rules/0/tiers/pro/window",
      "stands alone, expected 'limit' with it" },
    { RULE(",'tiers':{'pro':{'limit':1,'refill_rate':1}}"),
      "/rules/0/tiers/pro/refill_rate",
      "stands beside 'limit', expected one of them" },
    { RULE(",'tiers':{'pro':{'window':1,'refill_rate':1}}"),
      "/rules/0/tiers/pro/window",
      "stands beside 'refill_rate', expected 'limit' with the window" },
    { RULE(",'tiers':{'pro':{'limit':1,'window':'calendar:day'}}"),
      "/rules/0/tiers/pro", "expected a window of some length for a bucket" },
    { RULE(",'tiers':{'pro':{'capacity':1073741824,'refill_rate':0.00001}}"),
      "/rules/0/tiers/pro", "expected a capacity that the rate fills..." },
    { "{'rules':[{'id':'a','algorithm':'concurrency','params':{'limit':1},"
      "'tiers':{'pro':{'refill_rate':1}}}]}", "/rules/0/tiers/pro",
      "expected a limit alone for concurrency" },
    { "{'rules':[{'id':'a','params':{'rate':'$r'},"
      "'tiers':{'pro':{'limit':1}}}]}", "/rules/0/tiers/pro",
      "expected a window with the limit" },
    { RULE(",'override':{'':{'limit':1}}"), "/rules/0/override/",
      "expected an API key" },
    { RULE(",'override':{'sk_*':{'limit':1}}"), "/rules/0/override/sk_*",
      "expected one API key: one with '*' or '?' in it as 'sha256:...'" },
    { RULE(",'override':{'sk':{'limit':0}}"), "/rules/0/override/sk/limit",
      "must be > 0" },
    { RULE(",'override':{'k':{'limit':1},'sha256:"
      "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
      "':{'limit':1}}"), "/rules/0/override/sha256:"
      "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a",
      "is the same key as another one here" },

    /* who has which tier */
    { "{'tier_of':[]}", "/tier_of", "expected an object" },
    { "{'tier_of':{'key':{}}}", "/tier_of/key",
      "is not known, expected one of 'keys', 'patterns'" },
    { "{'tier_of':{'keys':{'k':1}}}", "/tier_of/keys/k", "expected a string" },
    { "{'tier_of':{'keys':{'k':''}}}", "/tier_of/keys/k",
      "expected the name of a tier..." },
    { "{'tier_of':{'keys':{'k*':'pro'}}}", "/tier_of/keys/k*",
      "expected one API key..." },
    { "{'tier_of':{'patterns':['k*']}}", "/tier_of/patterns/0",
      "expected an object" },
    { "{'tier_of':{'patterns':[{'pattern':'k*'}]}}",
      "/tier_of/patterns/0/tier", "is missing" },
    { "{'tier_of':{'patterns':[{'tier':'pro'}]}}",
      "/tier_of/patterns/0/pattern", "is missing" },
    { "{'tier_of':{'patterns':[{'pattern':1,'tier':'pro'}]}}",
      "/tier_of/patterns/0/pattern", "expected a string" },
    { "{'tier_of':{'patterns':[{'pattern':'k*','tier':'pro','x':1}]}}",
      "/tier_of/patterns/0/x",
      "is not known, expected one of 'pattern', 'tier'" },

    /* lists */
    { "{'whitelist':'a'}", "/whitelist", "expected an array" },
    { "{'whitelist':['a',{}]}", "/whitelist/1", "expected a string" },
    { "{'blacklist':['']}", "/blacklist/0", "expected an API key" },
    { "{'blacklist':['a','127.0.0.1']}", "/blacklist/1", ADDRESS },
    { "{'blacklist':['127.0.0.0/8']}", "/blacklist/0", ADDRESS },
    { "{'whitelist':['::1']}", "/whitelist/0", ADDRESS },
    { "{'whitelist':['2001:db8::/32']}", "/whitelist/0", ADDRESS },
    { "{'tier_of':{'keys':{'10.0.0.1':'t'}}}", "/tier_of/keys/10.0.0.1",
      ADDRESS },

    /* temporary overrides */
    { "{'overrides':{}}", "/overrides", "expected an array" },
    { "{'overrides':[1]}", "/overrides/0", "expected an object" },
    { "{'overrides':[{'key':'k','type':'absolute','value':1}]}",
      "/overrides/0/id", "is missing" },
    { "{'overrides':[{'id':'o','key':'k','type':'absolute','value':1},"
      "{'id':'o','key':'k','type':'absolute','value':1}]}", "/overrides/1/id",
      "is taken by another override" },
    { OVERRIDE("'type':'absolute','value':1"), "/overrides/0",
      "expected one of 'key' and 'tenant'" },
    { OVERRIDE("'key':'k','tenant':{'part':'$a','value':'v'},"
      "'type':'absolute','value':1"), "/overrides/0",
      "expected one of 'key' and 'tenant'" },
    { OVERRIDE("'key':'k*','type':'absolute','value':1"), "/overrides/0/key",
      "expected one API key..." },
    { OVERRIDE("'key':'k','rule':'b','type':'absolute','value':1"),
      "/overrides/0/rule", "is no rule of this document or of nginx.conf" },
    { OVERRIDE("'key':'k','rule':'conf-shards','type':'absolute','value':1"),
      "/overrides/0/rule", "has 'shards': expected a rule without them" },
    { OVERRIDE("'tenant':{'part':'$a'},'type':'absolute','value':1"),
      "/overrides/0/tenant/value", "is missing" },
    { OVERRIDE("'tenant':{'value':'v'},'type':'absolute','value':1"),
      "/overrides/0/tenant/part", "is missing" },
    { OVERRIDE("'tenant':{'part':'$c','value':'v'},'rule':'s',"
      "'type':'absolute','value':1"), "/overrides/0/tenant/part",
      "is no part of the key of rule 's'" },
    { OVERRIDE("'key':'k','value':1"), "/overrides/0/type",
      "is missing" },
    { OVERRIDE("'key':'k','type':'added','value':1"), "/overrides/0/type",
      "expected 'absolute' or 'multiplicative'" },
    { OVERRIDE("'key':'k','type':'absolute'"), "/overrides/0/value",
      "is missing" },
    { VALUE("absolute", "0"), "/overrides/0/value", "must be > 0" },
    { VALUE("absolute", "'5'"), "/overrides/0/value",
      "expected a number or an object" },
    { VALUE("absolute", "{}"), "/overrides/0/value",
      "expected 'limit', 'capacity' or 'refill_rate'" },
    { VALUE("absolute", "{'window':5}"), "/overrides/0/value/window",
      "stands alone, expected 'limit' with it" },
    { VALUE("absolute", "{'capacity':1073741824}"), "/overrides/0/value",
      "expected a capacity that the rate fills..." },
    { VALUE("multiplicative", "0"), "/overrides/0/value", "must be > 0" },
    { VALUE("multiplicative", "-1"), "/overrides/0/value", "must be > 0" },
    { VALUE("multiplicative", "1000001"), "/overrides/0/value",
      "must be at most 1000000" },
    { VALUE("multiplicative", "0.0000001"), "/overrides/0/value",
      "must have at most six decimal places" },
    { VALUE("multiplicative", "1.0000005"), "/overrides/0/value",
      "must have at most six decimal places" },
    { VALUE("multiplicative", "{'limit':5}"), "/overrides/0/value",
      "expected a number" },
    { OVERRIDE("'key':'k','type':'absolute','value':1,"
      "'expires_at':'tomorrow'"), "/overrides/0/expires_at",
      "expected a time like '2026-12-01T00:00:00Z'" },
    { OVERRIDE("'key':'k','type':'absolute','value':1,'expires_at':5"),
      "/overrides/0/expires_at", "expected a string" },
    { OVERRIDE("'key':'k','type':'absolute','value':1,'reason':5"),
      "/overrides/0/reason", "expected a string" }
};

/* in a zone with Redis */
static const bad_t  shared[] = {
    { RULE(",'emergency':'1r/s','fail_mode':'closed'"), "/rules/0/fail_mode",
      "stands beside 'emergency', expected 'fail_mode': 'open'" },
    { RULE(",'emergency':'$r'"), "/rules/0/emergency",
      "expected a rate without variables" },
    { RULE(",'emergency':'5'"), "/rules/0/emergency",
      "expected 'r/' and..." },
    { RULE(",'sync':'async','fail_mode':'open'"), "/rules/0/fail_mode",
      "stands beside 'sync', expected 'sync': 'lease' or 'sync': 'strict'" },
    { RULE(",'sync':'async','emergency':'1r/s'"), "/rules/0/emergency",
      "stands beside 'sync', expected 'sync': 'lease' or 'sync': 'strict'" },
    { RULE(",'sync':'async','count_status':[401]"), "/rules/0/sync",
      "stands beside 'count_status', expected 'sync': 'strict'" },
    { RULE(",'shards':1,'sync':'strict'"), "/rules/0/shards",
      "must be at least 2" },
    { RULE(",'shards':65,'sync':'strict'"), "/rules/0/shards",
      "must be at most 64" },
    { RULE(",'shards':2"), "/rules/0/shards",
      "expected 'sync': 'strict' with it" },
    { RULE(",'shards':11,'sync':'strict'"), "/rules/0/shards",
      "expected as many shards as requests of the limit, or fewer" },
    { RULE(",'shards':2,'sync':'strict','cost':6"), "/rules/0/shards",
      "expected a cost of at most the limit divided by the shards" },
    { RULE(",'shards':2,'sync':'strict','cost':'$c'"), "/rules/0/shards",
      "expected a cost without variables" },
    { "{'rules':[{'id':'a','params':{'rate':'$r'},'sync':'strict',"
      "'shards':2}]}", "/rules/0/shards",
      "expected a limit without variables" },
    { RULE(",'shards':2,'sync':'strict','count_status':[401]"),
      "/rules/0/shards", "stands beside 'count_status', expected one of them" },
    { RULE(",'shards':2,'sync':'strict','cost_header':'x'"),
      "/rules/0/shards", "stands beside 'cost_header', expected one of them" },
    { RULE(",'shards':2,'sync':'strict','fail_mode':'local'"),
      "/rules/0/fail_mode", "stands beside 'shards', expected 'fail_mode': "
      "'open' or 'fail_mode': 'closed'" },
    { RULE(",'shards':2,'sync':'strict','tiers':{'pro':{'limit':1}}"),
      "/rules/0/shards", "stands beside 'tiers', expected one of them" },
    { RULE(",'shards':2,'sync':'strict','override':{'k':{'limit':1}}"),
      "/rules/0/shards", "stands beside 'override', expected one of them" },
    { "{'rules':[{'id':'a','algorithm':'leaky_bucket','params':"
      "{'rate':'9r/s'},'sync':'strict','shards':2}]}", "/rules/0/shards",
      "stands with algorithm leaky_bucket, expected another algorithm" },
    { "{'rules':[{'id':'a','algorithm':'concurrency','params':"
      "{'limit':9},'sync':'async'}]}", "/rules/0/sync",
      "stands with algorithm concurrency, expected 'sync': 'strict'" }
};


/* With quotation marks. */
static char *
quoted(const char *text)
{
    char  *copy, *p;

    copy = malloc(strlen(text) + 1);
    assert_non_null(copy);
    strcpy(copy, text);

    for (p = copy; *p; p++) {
        if (*p == '\'') {
            *p = '"';
        }
    }

    return copy;
}


static int
same(const ngx_str_t *text, const char *expected)
{
    size_t  len;

    len = strlen(expected);

    if (len > 3 && strcmp(expected + len - 3, "...") == 0) {
        return text->len >= len - 3
               && memcmp(text->data, expected, len - 3) == 0;
    }

    return text->len == len && memcmp(text->data, expected, len) == 0;
}


/* One problem, this one. Returns 0, or 1: that failed. */
static size_t
check(ngx_ratelimit_limiter_t *limiter, const bad_t *bad)
{
    char                            *json, *detail;
    size_t                           failed;
    ngx_ratelimit_policy_t          *policy;
    const ngx_ratelimit_problem_t   *problem;

    json = quoted(bad->json);
    detail = quoted(bad->detail);
    policy = document_written(limiter, json);

    failed = 0;

    if (policy) {
        print_error("%s\nis accepted, expected %s: %s\n", json, bad->pointer,
                    detail);
        ngx_ratelimit_policy_release(policy);
        failed = 1;

    } else if ((problem = document_problem(0)) == NULL || problems.n != 1
             || !same(&problem->pointer, bad->pointer)
             || !same(&problem->detail, detail))
    {
        print_error("%s\n%lu problems, expected %s: %s, the first %s: %s\n",
                    json, problems.n, bad->pointer, detail,
                    problem->pointer.data, problem->detail.data);
        failed = 1;
    }

    free(json);
    free(detail);

    return failed;
}


static void
test_bad(void **state)
{
    size_t  i, failed;

    (void) state;

    failed = 0;

    for (i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        failed += check(&alone, &bads[i]);
    }

    for (i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
        failed += check(&fleet, &shared[i]);
    }

    assert_int_equal(failed, 0);
}


static void
test_all_at_once(void **state)
{
    char    *json;
    size_t   i;

    static const struct {
        const char  *pointer;
        const char  *detail;
    } all[] = {
        { "/rules/0/params/capacity", "must be > 0" },
        { "/rules/0/params/capcity", "is not known..." },
        { "/rules/0/percent", "must be at most 100" },
        { "/rules/0/match/route", "expected a path template..." },
        { "/rules/0/colour", "is not known..." },
        { "/rules/0/sync", "expected a zone..." },
        { "/rules/0/tiers/pro/limit", "must be > 0" },
        { "/rules/1/id", "is missing" },
        { "/tier_of/keys/k", "expected a string" },
        { "/whitelist/0", "expected a string" },
        { "/overrides/0/rule", "is no rule of..." },
        { "/overrides/0/type", "is missing..." },
        { "/extra", "is not known..." }
    };

    (void) state;

    json = quoted("{'extra':1,'rules':[{'id':'a','match':{'route':'x'},"
                  "'params':{'capacity':0,'capcity':1,'refill_rate':1},"
                  "'percent':101,'colour':1,'sync':'strict',"
                  "'tiers':{'pro':{'limit':0}}},"
                  "{'params':{'limit':1,'window':1}}],"
                  "'tier_of':{'keys':{'k':1}},'whitelist':[1],"
                  "'overrides':[{'id':'o','key':'k','rule':'z','value':1}]}");

    assert_null(document_written(&alone, json));

    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {

        if (!same(&document_problem(i)->pointer, all[i].pointer)
            || !same(&document_problem(i)->detail, all[i].detail))
        {
            fail_msg("problem %zu: %s: %s, expected %s", i,
                     document_problem(i)->pointer.data,
                     document_problem(i)->detail.data, all[i].pointer);
        }
    }

    assert_int_equal(problems.n, i);
    free(json);
}


/* Keys that only look a little like addresses; addresses that are stored. */
static void
test_addresses(void **state)
{
    (void) state;

    ngx_ratelimit_policy_release(document_written(&alone,
        "{\"whitelist\":[\"1.2.3\",\"1.2.3.4.5\",\"256.0.0.1\",\"10.*\","
        "\"10.0.0.0/129\",\"10.0.0.0/8x\",\"/8\",\":1\",\"::1x\",\"beef\","
        "\"1234:5678\",\"sha256:12ca17b49af2289436f303e0166030a21"
        "e525d266e209267433801a8fd4071a0\"]}"));

    ngx_ratelimit_policy_release(document_good(&alone,
                                     "{\"blacklist\":[\"127.0.0.0/8\"]}"));
}


/* More than are kept are counted. */
static void
test_many(void **state)
{
    char    *json, *p;
    size_t   i;

    (void) state;

    json = malloc(200000);
    assert_non_null(json);
    p = json + sprintf(json, "{\"blacklist\":[0");

    for (i = 1; i < 10000; i++) {
        p += sprintf(p, ",0");
    }

    sprintf(p, "]}");

    assert_null(document_written(&alone, json));
    assert_int_equal(problems.n, 10000);
    assert_int_equal(problems.list.nelts, NGX_RATELIMIT_MAX_PROBLEMS);
    same_text(document_problem(99)->pointer, "/blacklist/99");
    free(json);
}


/* No key in the clear gets into what is said of a text that is no JSON. */
static void
test_secret(void **state)
{
    (void) state;

    assert_null(document_written(&alone,
                                 "{\"whitelist\":[\"sk_1\" \"sk_2\"]}"));
    assert_null(strstr((char *) document_problem(0)->detail.data, "sk_"));
    assert_null(document_written(&alone, "{\"sk_1\":1,\"sk_1\":2}"));
    assert_null(strstr((char *) document_problem(0)->detail.data, "sk_"));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_secret)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

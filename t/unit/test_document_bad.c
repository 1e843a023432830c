/*
 * Documents that are refused: each with the place of what is wrong, and what
 * was expected; all that is wrong at once. And temporary limits that do not fit
 * a rule: of nginx.conf, or in a stored document, that is only a warning.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"

typedef struct {
    const char  *json;       /* "'" stands for the quotation mark */
    const char  *pointer;    /* without "/" before it: of the first rule */
    const char  *detail;     /* or its beginning, where it ends with "..." */
} bad_t;

/* a rule, and a rule with params, that are right but for what is said */
#define RULE(more)                                                            \
    "{'rules':[{'id':'a','params':{'limit':10,'window':60}" more "}]}"
#define PARAMS(algorithm, params)                                             \
    "{'rules':[{'id':'a','algorithm':'" algorithm "','params':{" params "}}]}"
#define TOKEN(params)  PARAMS("token_bucket", params)
#define PERMITS(more)                                                         \
    "{'rules':[{'id':'a','algorithm':'concurrency','params':{'limit':1},"     \
    more "}]}"
#define MATCH(match)  RULE(",'match':{" match "}")
#define ACTIVE(active)  RULE(",'active':{" active "}")
#define OVERRIDE(more)                                                        \
    "{'rules':[{'id':'a','params':{'limit':10,'window':60}},"                 \
    "{'id':'s','key':['$a','$b'],'params':{'limit':10,'window':60}}],"        \
    "'overrides':[{'id':'o'," more "}]}"
#define VALUE(type, value)                                                    \
    OVERRIDE("'key':'k','rule':'a','type':'" type "','value':" value)

/* details that many have */
#define NO_REDIS        "expected a zone that uses Redis"
#define NO_PERMITS                                                            \
    "stands with algorithm concurrency, expected another algorithm"
#define BESIDE(other)   "stands beside '" other "', expected one of them"
#define CLIENT    "expected 'address', 'key', or 'rule' and 'key'"
#define DURATION                                                              \
    "expected a number of seconds or a time like '1h30m', at most '366d', "   \
    "and no 'expires_at' beside it"
#define RULE_AB                                                               \
    "'rules':[{'id':'ab','key':['$a','$b'],'params':{'limit':1,'window':1}}],"
#define RULE_BYTES(key)                                                       \
    "'rules':[{'id':'b','key':" key ",'params':{'limit':1,'window':1}}],"     \
    "'deny':[{'rule':'b'"
#define BYTES                                                                 \
    "is a text, but the rule counts by the bytes of $binary_remote_addr: "    \
    "expected 'address' in place of 'rule' and 'key', or the hash of the key"
#define ADDRESS                                                               \
    "is an address or a network, expected an API key; the lists of clients "  \
    "take 'address'"

/* in a zone without Redis */
static const bad_t  bads[] = {

    /* no JSON */
    { "", "", "is no JSON: it is empty, at byte 0" },
    { "{'rules':", "",
      "is no JSON: unexpected token at line 1, column 9 (byte 9)" },
    { "{'rules':[]} x", "",
      "is no JSON: end of file expected at line 1, column 14 (byte 14)" },
    { "{'a':1,'a':2}", "",
      "is no JSON: duplicate object key at line 1, column 10 (byte 10)" },
    { "{'version':NaN}", "", "is no JSON: invalid token..." },
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
    { "{'rule':[]}", "/rule", "is not known, expected one of 'format', "
      "'version', 'rules', 'tier_of', 'allow', 'deny', 'overrides'" },
    { "{'a/b~c':1}", "/a~1b~0c", "is not known..." },
    { "{'rules':{}}", "/rules", "expected an array" },
    { "{'rules':[1]}", "/rules/0", "expected an object" },
    { "{'version':'1'}", "/version", "expected a number" },
    { "{'format':1}", "/format", "expected a string" },
    { "{'format':'1'}", "/format", "expected a format like '1.0'" },
    { "{'format':'1.x'}", "/format", "expected a format like '1.0'" },
    { "{'format':'2.0'}", "/format",
      "is another format than '1.0', expected one that this version can read" },

    /* a rule */
    { "{'rules':[{'params':{'limit':1,'window':1}}]}", "id", "is missing" },
    { "{'rules':[{'id':null,'params':{'limit':1,'window':1}}]}", "id",
      "is missing" },
    { "{'rules':[{'id':'a b','params':{'limit':1,'window':1}}]}", "id",
      "expected 1 to 64 of A-Z, a-z, 0-9, '_', '.', '-'" },
    { "{'rules':[{'id':7,'params':{'limit':1,'window':1}}]}", "id",
      "expected a string" },
    { "{'rules':[{'id':'conf','params':{'limit':1,'window':1}}]}", "id",
      "is taken by a rule of nginx.conf" },
    { "{'rules':[{'id':'a','params':{'limit':1,'window':1}},{'id':'a',"
      "'params':{'limit':1,'window':1}}]}", "/rules/1/id",
      "is taken by another rule" },
    { RULE(",'colour':1"), "colour", "is not known, expected one of 'id', "
      "'algorithm', 'params', 'sync', 'shards', 'fail_mode', 'emergency', "
      "'dry_run', 'cost', 'cost_header', 'cost_end', 'cost_every', "
      "'count_status', 'retry', 'group', "
      "'priority', 'percent', 'key', 'match', 'tier', 'active', 'tiers', "
      "'limits_by_api_key', 'limits_by_key', 'enabled', 'description', "
      "'labels', 'owner', "
      "'version'" },
    { RULE(",'enabled':0"), "enabled", "expected true or false" },
    { RULE(",'description':''"), "description",
      "expected a text of 1 to 1024 bytes" },
    { RULE(",'owner':7"), "owner", "expected a string" },
    { RULE(",'labels':['a']"), "labels", "expected an object" },
    { RULE(",'labels':{'a':1}"), "labels/a", "expected a string" },
    { RULE(",'labels':{'a':''}"), "labels/a",
      "expected texts of 1 to 256 bytes, by name" },
    { RULE(",'labels':{'a b':'c'}"), "labels/a b",
      "is no name of a label, expected 1 to 64 of..." },
    { RULE(",'version':''"), "version", "expected a text of 1 to 64 bytes..." },
    { RULE(",'version':-1"), "version", "must be at least 0" },
    { RULE(",'version':true"), "version", "expected a number or a string" },
    { RULE(",'tier':'a','match':{'tier':'a'}"), "tier",
      "stands beside 'match.tier', expected one of them" },
    { RULE(",'tier':''"), "tier", "expected the name of a tier..." },
    { RULE(",'algorithm':'sliding_window_counters'"), "algorithm",
      "expected 'token_bucket', 'leaky_bucket'..." },

    /* which requests */
    { RULE(",'match':[]"), "match", "expected an object" },
    { MATCH("'uri':'/'"), "match/uri", "is not known, expected one of 'route', "
      "'endpoint_regex', 'methods', 'tier', 'host', 'api_key_pattern', "
      "'network', 'header', 'arg', 'if'" },
    { MATCH("'api_key_pattern':1"), "match/api_key_pattern",
      "expected a string or an array" },
    { MATCH("'api_key_pattern':['a',1]"), "match/api_key_pattern/1",
      "expected a string" },
    { MATCH("'api_key_pattern':['']"), "match/api_key_pattern/0",
      "expected an API key" },
    { MATCH("'api_key_pattern':['sha256:1234']"), "match/api_key_pattern/0",
      "expected 64 hexadecimal digits behind 'sha256:'" },
    { MATCH("'route':'v1'"), "match/route",
      "expected a path template: must start with '/'" },
    { MATCH("'route':7"), "match/route", "expected a string" },
    { MATCH("'endpoint_regex':''"), "match/endpoint_regex",
      "expected a regular expression" },
    { MATCH("'route':'/a','endpoint_regex':'^/a'"), "match/endpoint_regex",
      BESIDE("route") },
    { MATCH("'methods':['GET','get']"), "match/methods/1",
      "expected HTTP methods like 'GET'" },
    { MATCH("'methods':[1]"), "match/methods/0", "expected a string" },
    { MATCH("'host':['']"), "match/host/0", "expected host names like..." },
    { MATCH("'host':[false]"), "match/host/0", "expected a string" },
    { MATCH("'header':['a:b','c']"), "match/header/1",
      "expected a header and a glob..." },
    { MATCH("'header':'a b:c'"), "match/header",
      "expected a header and a glob..." },
    { MATCH("'header':{'a':'b'}"), "match/header",
      "expected a string or an array" },
    { MATCH("'network':['10.0.0.0/8','a']"), "match/network/1",
      "expected addresses and networks like '192.0.2.1' or..." },
    { MATCH("'arg':['a']"), "match/arg/0",
      "expected a query argument and a glob..." },
    { MATCH("'if':'1'"), "match/if", "expected a value with variables" },
    { MATCH("'if':['$a']"), "match/if", "expected a string" },
    { MATCH("'tier':''"), "match/tier", "expected the name of a tier: 1 to 64 "
      "bytes without variables and control characters" },
    { MATCH("'tier':'$t'"), "match/tier", "expected the name of a tier..." },

    /* when */
    { RULE(",'active':'mon-fri'"), "active", "expected an object" },
    { ACTIVE("'day':'mon'"), "active/day",
      "is not known, expected one of 'days', 'from', 'to', 'tz'" },
    { ACTIVE("'days':''"), "active/days",
      "expected days like 'mon-fri' or 'sat,sun'" },
    { ACTIVE("'days':'mon-fry'"), "active/days", "expected days like..." },
    { ACTIVE("'days':['mon']"), "active/days", "expected a string" },
    { ACTIVE("'from':'24:00'"), "active/from",
      "expected a time from '00:00' to '23:59'" },
    { ACTIVE("'from':9"), "active/from", "expected a string" },
    { ACTIVE("'from':'9'"), "active/from", "expected a time..." },
    { ACTIVE("'to':'24:01'"), "active/to",
      "expected a time from '00:00' to '24:00'" },
    { ACTIVE("'from':'09:00','to':'09:00'"), "active/to",
      "expected two different times" },
    { ACTIVE("'to':'00:00'"), "active/to", "expected two different times" },
    { ACTIVE("'tz':'../passwd'"), "active/tz",
      "expected the name of a time zone..." },
    { ACTIVE("'tz':'Europe/Bonn'"), "active/tz",
      "expected a time zone that is known here..." },

    /* counted by what */
    { RULE(",'key':[]"), "key", "expected 1 to 8 parts" },
    { RULE(",'key':['a','b','c','d','e','f','g','h','i']"), "key/8",
      "expected at most 8 parts" },
    { RULE(",'key':''"), "key", "expected a value with variables" },
    { RULE(",'key':['$a',1]"), "key/1", "expected a string" },
    { RULE(",'key':['$a','b\\u001fc']"), "key/1",
      "expected a value with variables" },
    { RULE(",'key':['$a','$unknown']"), "key/1", "expected a known variable" },
    { RULE(",'key':'$unknown'"), "key", "expected a known variable" },

    /* how much */
    { "{'rules':[{'id':'a'}]}", "params", "expected 'limit' and 'window', "
      "'capacity' and 'refill_rate', or 'rate'" },
    { TOKEN(""), "params", "expected 'limit' and 'window', 'capacity' and "
      "'refill_rate', or 'rate'" },
    { TOKEN("'capacity':10"), "params", "expected 'limit' and..." },
    { TOKEN("'capacity':10,'window':60"), "params", "expected 'limit' and..." },
    { PARAMS("fixed_window", "'capacity':10"), "params",
      "expected 'limit' and..." },
    { PARAMS("concurrency", ""), "params", "expected 'limit'" },
    { TOKEN("'limit':10"), "params/limit", "expected 'window' with it" },
    { TOKEN("'refill_rate':1"), "params",
      "expected a capacity with the refill rate" },
    { PARAMS("fixed_window", "'limit':1,'window':'calendar:day','tz':'X/Y'"),
      "params/tz", "expected a time zone that is known here..." },
    { PARAMS("fixed_window", "'limit':1,'window':60,'tz':'UTC'"),
      "params/tz", "expected a 'window' of the calendar with it" },
    { PARAMS("fixed_window", "'limit':1,'window':'calendar:day','month_day':2"),
      "params/month_day", "expected the window 'calendar:month' with it" },
    { TOKEN("'capacity':0,'refill_rate':1"), "params/capacity", "must be > 0" },
    { TOKEN("'capcity':9,'limit':1,'window':1"), "params/capcity",
      "is not known, expected one of 'rate', 'limit', 'window', 'tz', "
      "'month_day', 'capacity', 'refill_rate', 'burst', 'nodelay', 'delay'" },
    { TOKEN("'capacity':'9','limit':1,'window':1"), "params/capacity",
      "expected a number" },
    { TOKEN("'capacity':1.5,'limit':1,'window':1"), "params/capacity",
      "must be a whole number" },
    { TOKEN("'capacity':1073741825,'limit':1,'window':1"), "params/capacity",
      "must be at most 1073741824" },
    { TOKEN("'capacity':1e300,'limit':1,'window':1"), "params/capacity",
      "must be at most 1073741824" },
    { TOKEN("'limit':-1,'window':1"), "params/limit", "must be at least 0" },
    { TOKEN("'limit':'10','window':1"), "params/limit",
      "expected a number, or a string with variables" },
    { TOKEN("'limit':[],'window':1"), "params/limit",
      "expected a number or a string" },
    { TOKEN("'limit':'$unknown','window':1"), "params/limit",
      "expected a known variable" },
    { TOKEN("'limit':1,'window':0"), "params/window", "must be > 0" },
    { TOKEN("'limit':1,'window':1.5"), "params/window",
      "must be a whole number" },
    { TOKEN("'limit':1,'window':31622401"), "params/window",
      "must be at most 31622400" },
    { TOKEN("'limit':1,'window':'0s'"), "params/window",
      "expected a time from 1s to 366d in whole seconds, 'calendar:day', "
      "'calendar:week' or 'calendar:month'" },
    { TOKEN("'limit':1,'window':'367d'"), "params/window",
      "expected a time from 1s..." },
    { TOKEN("'limit':1,'window':''"), "params/window",
      "expected a time from 1s..." },
    { PARAMS("fixed_window", "'limit':1,'window':'calendar:year'"),
      "params/window", "expected a time from 1s..." },
    { PARAMS("sliding_window", "'limit':1,'window':'calendar:day'"),
      "params/window", "stands with algorithm sliding_window, expected a time "
      "as in '60s', or algorithm fixed_window" },
    { TOKEN("'capacity':1,'refill_rate':0"), "params/refill_rate",
      "must be > 0" },
    { TOKEN("'capacity':1,'refill_rate':1e-9"), "params/refill_rate",
      "must be from 1 in 366 days to 1073741824, in requests a second" },
    { TOKEN("'capacity':1,'refill_rate':1073741825"), "params/refill_rate",
      "must be from 1 in 366 days..." },
    { TOKEN("'rate':'100'"), "params/rate",
      "expected 'r/' and a period after..." },
    { TOKEN("'rate':100"), "params/rate", "expected a string" },
    { TOKEN("'rate':'$unknown'"), "params/rate", "expected a known variable" },
    { TOKEN("'rate':'1r/s','limit':1"), "params/limit", BESIDE("rate") },
    { TOKEN("'rate':'1r/s','window':1"), "params/window",
      "stands beside 'rate', expected 'limit' with the window" },
    { TOKEN("'rate':'1r/s','refill_rate':1"), "params/refill_rate",
      BESIDE("rate") },
    { TOKEN("'limit':1,'window':1,'refill_rate':1"), "params/refill_rate",
      BESIDE("limit") },
    { PARAMS("sliding_window", "'capacity':1,'window':1,'refill_rate':1"),
      "params/window", "expected one of 'window' and 'refill_rate'" },
    { PARAMS("sliding_window", "'limit':1,'window':1,'capacity':2"), "params",
      "expected the same number as limit and capacity, since the algorithm is "
      "no bucket" },
    { PARAMS("sliding_window", "'limit':'$l','window':1,'capacity':2"),
      "params/capacity", "expected no capacity, since..." },
    { PARAMS("sliding_log", "'limit':10001,'window':1"), "params/limit",
      "expected a limit of at most 10000 requests for sliding_log" },
    { PARAMS("sliding_window", "'limit':1073741824,'window':'366d'"),
      "params/limit", "expected a lower limit or a shorter window for..." },
    { TOKEN("'rate':'1r/d','capacity':1000000"), "params/capacity",
      "expected a capacity that the rate fills within 35 years" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':1073741823"),
      "params/burst", "expected a burst that the rate drains within 24 days, "
      "or 'delay' or 'nodelay'" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':-1"), "params/burst",
      "must be at least 0" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':1073741824"),
      "params/burst", "must be at most 1073741823" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','burst':1,'capacity':2"),
      "params/burst", BESIDE("capacity") },
    { PARAMS("leaky_bucket", "'rate':'1r/s','delay':-1"), "params/delay",
      "must be at least 0" },
    { PARAMS("leaky_bucket", "'rate':'1r/s','delay':1,'nodelay':true"),
      "params/delay", BESIDE("nodelay") },
    { PARAMS("leaky_bucket", "'rate':'1r/s','nodelay':1"), "params/nodelay",
      "expected true or false" },
    { PARAMS("cuckoo", "'rate':'1r/s'"), "algorithm",
      "expected 'token_bucket', 'leaky_bucket', 'fixed_window', "
      "'sliding_window', 'sliding_log' or 'concurrency'" },

    /* what an algorithm does not have */
    { TOKEN("'rate':'1r/s','burst':1"), "params/burst",
      "stands with algorithm token_bucket, expected algorithm leaky_bucket" },
    { PARAMS("fixed_window", "'rate':'1r/s','delay':1"), "params/delay",
      "stands with algorithm fixed_window, expected algorithm leaky_bucket" },
    { TOKEN("'rate':'1r/s','nodelay':true"), "params/nodelay",
      "stands with algorithm token_bucket, expected algorithm leaky_bucket" },
    { PARAMS("concurrency", "'rate':'1r/s'"), "params/rate", NO_PERMITS },
    { PARAMS("concurrency", "'limit':1,'window':1"), "params/window",
      NO_PERMITS },
    { PERMITS("'cost':2"), "cost", NO_PERMITS },
    { PERMITS("'cost_header':'x'"), "cost_header", NO_PERMITS },
    { PERMITS("'count_status':[401]"), "count_status", NO_PERMITS },
    { PERMITS("'retry':'growth'"), "retry", NO_PERMITS },
    { "{'rules':[{'id':'a','algorithm':'sliding_log','params':{'rate':'1r/s'},"
      "'sync':'lease'}]}", "sync",
      "stands with algorithm sliding_log, expected 'sync': 'strict'" },

    /* how it counts */
    { RULE(",'sync':'often'"), "sync",
      "expected 'lease', 'strict' or 'async'" },
    { RULE(",'sync':'strict'"), "sync", NO_REDIS },
    { RULE(",'fail_mode':'local'"), "fail_mode", NO_REDIS },
    { RULE(",'fail_mode':'ajar'"), "fail_mode",
      "expected 'open', 'local' or 'closed'" },
    { RULE(",'emergency':'1r/s'"), "emergency", NO_REDIS },
    { RULE(",'cost':-1"), "cost", "must be at least 0" },
    { RULE(",'cost':'2'"), "cost",
      "expected a number, or a string with variables" },
    { RULE(",'cost':'$unknown'"), "cost", "expected a known variable" },
    { RULE(",'cost_header':'a b'"), "cost_header", "expected 1 to 64 of..." },
    { RULE(",'cost_end':'5'"), "cost_end", "expected a text with variables" },
    { RULE(",'cost_end':5"), "cost_end", "expected a string" },
    { RULE(",'cost_end':'$unknown'"), "cost_end", "expected a known variable" },
    { RULE(",'cost_end':'$c','cost_every':'1k'"), "cost_every",
      "expected a size from 64k to 1g" },
    { RULE(",'cost_every':'1m'"), "cost_every", "expected 'cost_end' with it" },
    { RULE(",'cost_end':'$c','cost_header':'x'"), "cost_end",
      BESIDE("cost_header") },
    { RULE(",'count_status':[]"), "count_status",
      "expected statuses from 100 to 599" },
    { RULE(",'count_status':[401,99]"), "count_status/1",
      "must be at least 100" },
    { RULE(",'count_status':600"), "count_status", "must be at most 599" },
    { RULE(",'count_status':['401']"), "count_status/0", "expected a number" },
    { RULE(",'count_status':[401],'cost_header':'x'"), "count_status",
      BESIDE("cost_header") },
    { RULE(",'count_status':[401],'sync':'lease'"), "sync",
      "stands beside 'count_status', expected 'sync': 'strict'" },
    { RULE(",'retry':true"), "retry", "expected a string" },
    { RULE(",'retry':'on'"), "retry", "expected 'growth'" },
    { RULE(",'group':'a b'"), "group", "expected 1 to 64 of..." },
    { RULE(",'priority':1.5"), "priority", "must be a whole number" },
    { RULE(",'priority':-1000001"), "priority", "must be at least -1000000" },
    { RULE(",'percent':0"), "percent", "must be > 0" },
    { RULE(",'percent':101"), "percent", "must be at most 100" },
    { RULE(",'dry_run':'yes'"), "dry_run", "expected true or false" },

    /* tiers and keys of a rule */
    { RULE(",'tiers':[]"), "tiers", "expected an object" },
    { RULE(",'tiers':{'pro':5.5}"), "tiers/pro", "must be a whole number" },
    { RULE(",'tiers':{'pro':null}"), "tiers/pro",
      "expected a number or a string or an object" },
    { RULE(",'tiers':{'pro':{}}"), "tiers/pro",
      "expected 'limit', 'capacity' or 'refill_rate'" },
    { RULE(",'tiers':{'':{'limit':1}}"), "tiers/",
      "expected the name of a tier..." },
    { RULE(",'tiers':{'pro':{'limit':-1}}"), "tiers/pro/limit",
      "must be at least 0" },
    { RULE(",'tiers':{'pro':{'limit':'$l'}}"), "tiers/pro/limit",
      "expected a number, or 'unlimited'" },
    { RULE(",'tiers':{'pro':{'rate':'1r/s'}}"), "tiers/pro/rate",
      "is not known, expected one of 'limit', 'window', 'capacity', "
      "'refill_rate'" },
    { RULE(",'tiers':{'pro':{'window':60}}"), "tiers/pro/window",
      "stands alone, expected 'limit' with it" },
    { RULE(",'tiers':{'pro':{'limit':1,'refill_rate':1}}"),
      "tiers/pro/refill_rate", BESIDE("limit") },
    { RULE(",'tiers':{'pro':{'window':1,'refill_rate':1}}"), "tiers/pro/window",
      "stands beside 'refill_rate', expected 'limit' with the window" },
    { RULE(",'tiers':{'pro':{'limit':1,'window':'calendar:day'}}"), "tiers/pro",
      "expected a window of some length for a bucket" },
    { RULE(",'tiers':{'pro':{'capacity':1073741824,'refill_rate':0.00001}}"),
      "tiers/pro", "expected a capacity that the rate fills..." },
    { PERMITS("'tiers':{'pro':{'refill_rate':1}}"), "tiers/pro",
      "expected a limit alone for concurrency" },
    { "{'rules':[{'id':'a','params':{'rate':'$r'},'tiers':{'pro':{'limit':1}}}]"
      "}", "tiers/pro", "expected a window with the limit" },
    { RULE(",'limits_by_api_key':{'':{'limit':1}}"), "limits_by_api_key/",
      "expected an API key" },
    { RULE(",'limits_by_api_key':{'sk_*':{'limit':1}}"),
      "limits_by_api_key/sk_*",
      "expected one API key: one with '*' or '?' in it as 'sha256:...'" },
    { RULE(",'limits_by_api_key':{'sk':{'limit':-1}}"),
      "limits_by_api_key/sk/limit",
      "must be at least 0" },
    { RULE(",'limits_by_api_key':{'k':{'limit':1},"
      "'sha256:8254c329a92850f6d539dd376f4816"
      "ee2764517da5e0235514af433164480d7a':{'limit':1}}"),
      "limits_by_api_key/sha256:"
      "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af4331"
      "64480d7a", "is the same key as another one here" },

    { RULE(",'limits_by_key':[]"), "limits_by_key", "expected an object" },
    { RULE(",'limits_by_key':{'':{'limit':1}}"), "limits_by_key/",
      "expected a value of the key of the rule" },
    { RULE(",'limits_by_key':{'acme*':{'limit':1}}"), "limits_by_key/acme*",
      "expected one value: one with '*' or '?' in it as 'sha256:...'" },
    { RULE(",'limits_by_key':{'a':{'limit':-1}}"), "limits_by_key/a/limit",
      "must be at least 0" },
    { RULE(",'limits_by_key':{'sha256:1':{'limit':1}}"),
      "limits_by_key/sha256:1",
      "expected 64 hexadecimal digits behind 'sha256:'" },
    { RULE(",'key':['$a','$b'],'limits_by_key':{'a':{'limit':1}}"),
      "limits_by_key/a",
      "expected the hash of the whole key, because the key of the rule has "
      "several parts" },
    { RULE(",'key':'$binary_remote_addr','limits_by_key':{'192.0.2.1':{"
      "'limit':1}}"),
      "limits_by_key/192.0.2.1", "expected the hash of the key, or a rule "
      "that counts "
      "by $remote_addr: $binary_remote_addr is no text" },
    { RULE(",'limits_by_key':{'k':{'limit':1},"
      "'sha256:8254c329a92850f6d539dd376f4816"
      "ee2764517da5e0235514af433164480d7a':{'limit':1}}"),
      "limits_by_key/sha256:"
      "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af4331"
      "64480d7a", "is the same key as another one here" },

    /* who has which tier */
    { "{'tier_of':[]}", "/tier_of", "expected an object" },
    { "{'tier_of':{'key':{}}}", "/tier_of/key",
      "is not known, expected one of 'keys', 'rules', 'patterns'" },
    { "{'tier_of':{'keys':{'k':1}}}", "/tier_of/keys/k", "expected a string" },
    { "{'tier_of':{'keys':{'k':''}}}", "/tier_of/keys/k",
      "expected the name of a tier..." },
    { "{'tier_of':{'keys':{'k*':'pro'}}}", "/tier_of/keys/k*",
      "expected one API key..." },
    { "{'tier_of':{'patterns':['k*']}}", "/tier_of/patterns/0",
      "expected an object" },
    { "{'tier_of':{'patterns':[{'pattern':'k*'}]}}", "/tier_of/patterns/0/tier",
      "is missing" },
    { "{'tier_of':{'patterns':[{'tier':'pro'}]}}",
      "/tier_of/patterns/0/pattern", "is missing" },
    { "{'tier_of':{'patterns':[{'pattern':1,'tier':'pro'}]}}",
      "/tier_of/patterns/0/pattern", "expected a string" },
    { "{'tier_of':{'patterns':[{'pattern':'k*','tier':'pro','x':1}]}}",
      "/tier_of/patterns/0/x",
      "is not known, expected one of 'pattern', 'tier', 'rule'" },
    { "{'tier_of':{'rules':{'nobody':{'k':'t'}}}}", "/tier_of/rules/nobody",
      "is no rule of this document or of nginx.conf" },
    { "{'tier_of':{'rules':{'conf':'t'}}}", "/tier_of/rules/conf",
      "expected an object" },
    { "{'tier_of':{'rules':{'conf':{'':'t'}}}}", "/tier_of/rules/conf/",
      "expected a value of the key of the rule" },
    { "{'tier_of':{'rules':{'conf':{'k':1}}}}", "/tier_of/rules/conf/k",
      "expected a string" },
    { "{" RULE_AB "'tier_of':{'rules':{'ab':{'k':'t'}}}}",
      "/tier_of/rules/ab/k", "expected the hash of the whole key..." },
    { "{'tier_of':{'patterns':[{'rule':'nobody','pattern':'a*','tier':'t'}]}}",
      "/tier_of/patterns/0/rule",
      "is no rule of this document or of nginx.conf" },
    { "{" RULE_AB "'tier_of':{'patterns':[{'rule':'ab','pattern':'a*',"
      "'tier':'t'}]}}", "/tier_of/patterns/0/pattern",
      "expected the hash of the whole key..." },

    /* lists */
    { "{'allow':'a'}", "/allow", "expected an array" },
    { "{'allow':['a',7]}", "/allow/1", "expected a string or an "
      "object" },
    { "{'allow':['a',{}]}", "/allow/1", CLIENT },
    { "{'allow':[{'key':'a','address':'::1'}]}", "/allow/0", CLIENT },
    { "{'allow':[{'rule':'conf','address':'::1'}]}", "/allow/0",
      CLIENT },
    { "{'allow':[{'address':'10.0.0'}]}", "/allow/0/address",
      "expected an address or a network like '192.0.2.1' or "
      "'2001:db8::/32'" },
    { "{'allow':[{'key':'10.0.0.1'}]}", "/allow/0/key", ADDRESS },
    { "{'allow':[{'key':''}]}", "/allow/0/key",
      "expected an API key" },
    { "{'allow':[{'key':['a']}]}", "/allow/0/key",
      "expected a string" },
    { "{'deny':[{'rule':'nobody','key':'a'}]}", "/deny/0/rule",
      "is no rule of this document or of nginx.conf" },
    { "{" RULE_AB "'deny':[{'rule':'ab','key':'a'}]}",
      "/deny/0/key", "has 1 parts, expected 2 as the key of the rule "
      "has" },
    { "{" RULE_AB "'deny':[{'rule':'ab','key':['','']}]}",
      "/deny/0/key", "expected a value of the key of the rule, or an "
      "array of the values of its parts" },
    { "{" RULE_AB "'deny':[{'rule':'ab','key':'sha256:0'}]}",
      "/deny/0/key", "has 1 parts, expected 2 as the key of the rule "
      "has" },
    { "{" RULE_BYTES("'$binary_remote_addr'") ",'key':'192.0.2.1'}]}",
      "/deny/0/key", BYTES },
    { "{" RULE_BYTES("['$a','$binary_remote_addr']") ",'key':['a','::1']}]}",
      "/deny/0/key", BYTES },
    { "{'deny':[{'address':'::1','expires_at':'soon'}]}",
      "/deny/0/expires_at", "expected a time like "
      "'2026-12-01T00:00:00Z'" },
    { "{'deny':[{'address':'::1','duration':'soon'}]}",
      "/deny/0/duration", DURATION },
    { "{'deny':[{'address':'::1','reason':1}]}",
      "/deny/0/reason", "expected a string" },
    { "{'deny':['']}", "/deny/0", "expected an API key" },
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
    { OVERRIDE("'key':'k','tenant':{'part':'$a','value':'v'},'type':'absolute',"
      "'value':1"), "/overrides/0", "expected one of 'key' and 'tenant'" },
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
    { OVERRIDE("'key':'k','value':1"), "/overrides/0/type", "is missing" },
    { OVERRIDE("'key':'k','type':'added','value':1"), "/overrides/0/type",
      "expected 'absolute' or 'multiplicative'" },
    { OVERRIDE("'key':'k','type':'absolute'"), "/overrides/0/value",
      "is missing" },
    { VALUE("absolute", "-1"), "/overrides/0/value", "must be at least 0" },
    { VALUE("absolute", "'5'"), "/overrides/0/value",
      "expected a number, or 'unlimited'" },
    { VALUE("absolute", "{}"), "/overrides/0/value",
      "expected 'limit', 'capacity' or 'refill_rate'" },
    { VALUE("absolute", "{'window':5}"), "/overrides/0/value/window",
      "stands alone, expected 'limit' with it" },
    { VALUE("absolute", "{'capacity':1073741824}"), "/overrides/0/value",
      "expected a capacity that the rate fills..." },
    { VALUE("multiplicative", "0"), "/overrides/0/value", "must be > 0" },
    { VALUE("multiplicative", "1000001"), "/overrides/0/value",
      "must be at most 1000000" },
    { VALUE("multiplicative", "0.0000001"), "/overrides/0/value",
      "must have at most six decimal places" },
    { VALUE("multiplicative", "1.0000005"), "/overrides/0/value",
      "must have at most six decimal places" },
    { VALUE("multiplicative", "{'limit':5}"), "/overrides/0/value",
      "expected a number" },
    { OVERRIDE("'key':'k','type':'absolute','value':1,'expires_at':'tomorrow'"),
      "/overrides/0/expires_at",
      "expected a time like '2026-12-01T00:00:00Z'" },
    { OVERRIDE("'key':'k','type':'absolute','value':1,'expires_at':5"),
      "/overrides/0/expires_at", "expected a string" },
    { OVERRIDE("'key':'k','type':'absolute','value':1,'reason':5"),
      "/overrides/0/reason", "expected a string" }
};

/* in a zone with Redis */
static const bad_t  shared[] = {
    { RULE(",'emergency':'1r/s','fail_mode':'closed'"), "fail_mode",
      "stands beside 'emergency', expected 'fail_mode': 'open'" },
    { RULE(",'emergency':'$r'"), "emergency",
      "expected a rate without variables" },
    { RULE(",'emergency':'5'"), "emergency", "expected 'r/' and..." },
    { RULE(",'sync':'async','fail_mode':'open'"), "fail_mode",
      "stands beside 'sync', expected 'sync': 'lease' or 'sync': 'strict'" },
    { RULE(",'sync':'async','emergency':'1r/s'"), "emergency",
      "stands beside 'sync', expected 'sync': 'lease' or 'sync': 'strict'" },
    { RULE(",'sync':'async','count_status':[401]"), "sync",
      "stands beside 'count_status', expected 'sync': 'strict'" },
    { RULE(",'shards':1,'sync':'strict'"), "shards", "must be at least 2" },
    { RULE(",'shards':65,'sync':'strict'"), "shards", "must be at most 64" },
    { RULE(",'shards':2"), "shards", "expected 'sync': 'strict' with it" },
    { RULE(",'shards':11,'sync':'strict'"), "shards",
      "expected as many shards as requests of the limit, or fewer" },
    { RULE(",'shards':2,'sync':'strict','cost':6"), "shards",
      "expected a cost of at most the limit divided by the shards" },
    { RULE(",'shards':2,'sync':'strict','cost':'$c'"), "shards",
      "expected a cost without variables" },
    { "{'rules':[{'id':'a','params':{'rate':'$r'},'sync':'strict',"
      "'shards':2}]}", "shards", "expected a limit without variables" },
    { RULE(",'shards':2,'sync':'strict','count_status':[401]"), "shards",
      BESIDE("count_status") },
    { RULE(",'shards':2,'sync':'strict','cost_header':'x'"), "shards",
      BESIDE("cost_header") },
    { RULE(",'shards':2,'sync':'strict','fail_mode':'local'"), "fail_mode",
      "stands beside 'shards', expected 'fail_mode': 'open' or 'fail_mode': "
      "'closed'" },
    { RULE(",'shards':2,'sync':'strict','tiers':{'pro':{'limit':1}}"), "shards",
      BESIDE("tiers") },
    { RULE(",'shards':2,'sync':'strict','limits_by_api_key':{'k':{'limit':1}}"),
      "shards", BESIDE("limits_by_api_key") },
    { RULE(",'shards':2,'sync':'strict','limits_by_key':{'k':{'limit':1}}"),
      "shards", BESIDE("limits_by_key") },
    { "{'rules':[{'id':'a','algorithm':'leaky_bucket','params':{'rate':'9r/s'},"
      "'sync':'strict','shards':2}]}", "shards",
      "stands with algorithm leaky_bucket, expected another algorithm" },
    { "{'rules':[{'id':'a','algorithm':'concurrency','params':{'limit':9},"
      "'sync':'async'}]}", "sync",
      "stands with algorithm concurrency, expected 'sync': 'strict'" }
};


/* of API key "k"; "s" has other parts, and "w" a tier whose window is long */
#define RULES                                                                 \
    "'rules':["                                                               \
    "{'id':'a','params':{'limit':10,'window':60},'limits_by_api_key':{'vip':" \
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
    const char  *limit;
    const char  *problem;    /* "": none */
} fit_t;

#define KEY(key, value)   "'key':'" key "','type':'absolute','value':" value
#define PART(part, value)                                                     \
    "'tenant':{'part':'" part "','value':'v'},'type':'absolute','value':" value

#define CAPACITY  "{'capacity':1000}"

static const fit_t  fits[] = {

    /* of all rules: each takes it, or stays as it is */
    { KEY("k", "500"), "" },
    { KEY("k", "{'refill_rate':1}"), "" },
    { KEY("k", "{'limit':500,'capacity':50}"), "" },
    { KEY("l", "10001"), "" },
    { PART("$c", "10001"), "" },

    /* of a rule: its own limit is what counts */
    { KEY("k", "500") ",'rule':'s'", "" },
    { KEY("k", "{'limit':500,'window':60}") ",'rule':'s'",
      "expected a limit alone for concurrency" },
    { KEY("l", "10001") ",'rule':'log'",
      "expected a limit of at most 10000 requests for sliding_log" },
    { PART("$b", "{'refill_rate':1}") ",'rule':'s'",
      "expected a limit alone for concurrency" },
    { KEY("k", "{'limit':5,'capacity':4}") ",'rule':'conf'",
      "expected the same number as limit and capacity, since the algorithm is "
      "no bucket" },
    { KEY("vip", CAPACITY) ",'rule':'a'", "" },
    { KEY("k", CAPACITY) ",'rule':'w'", "" },

    /* of a limit that a variable says */
    { PART("$e", "{'limit':5,'window':'calendar:day'}") ",'rule':'v'", "" },

    /* factors fit all */
    { "'key':'k','type':'multiplicative','value':1000000,'rule':'s'", "" }
};


/* "'" is the quotation mark; "..." at the end: the rest is not compared. */
static int
same(const ngx_str_t *text, const char *expected)
{
    size_t  i;

    for (i = 0; expected[i]; i++) {

        if (strcmp(expected + i, "...") == 0) {
            return 1;
        }

        if (i == text->len
            || text->data[i] != (expected[i] == '\'' ? '"' : expected[i]))
        {
            return 0;
        }
    }

    return i == text->len;
}


/* So many problems or warnings, this one first. Returns 1 if that failed. */
static size_t
check(const char *json, const ngx_rl_problems_t *list, ngx_uint_t n,
    const char *pointer, const char *detail)
{
    char                     full[128];
    const ngx_rl_problem_t  *first;

    first = list->list.elts;
    sprintf(full, "%s%s", (*pointer && *pointer != '/') ? "/rules/0/" : "",
            pointer);

    if (list->n == n && (n == 0 || (same(&first->pointer, full)
                                    && same(&first->detail, detail))))
    {
        return 0;
    }

    print_error("%s\n%lu %s, expected %lu: %s: %s, the first %s: %s\n", json,
                list->n, list == &problems ? "problems" : "warnings", n,
                full, detail, list->n ? (char *) first->pointer.data : "",
                list->n ? (char *) first->detail.data : "");

    return 1;
}


static size_t
check_bad(ngx_rl_limiter_t *limiter, const bad_t *bad)
{
    ngx_rl_policy_t  *policy;

    policy = document_written(limiter, bad->json);

    if (policy) {
        ngx_rl_policy_release(policy);
    }

    return check(bad->json, &problems, 1, bad->pointer, bad->detail);
}


static void
test_bad(void **state)
{
    size_t  i, failed;

    failed = 0;

    for (i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        failed += check_bad(&alone, &bads[i]);
    }

    for (i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
        failed += check_bad(&fleet, &shared[i]);
    }

    assert_int_equal(failed, 0);
}


static void
test_all_at_once(void **state)
{
    size_t  i;

    static const struct {
        const char  *pointer;
        const char  *detail;
    } all[] = {
        { "/rules/0/params/capacity", "must be > 0" },
            { "/rules/0/params/capcity", "is not known..." },
            { "/rules/0/percent", "must be at most 100" },
            { "/rules/0/match/route", "expected a path template..." },
            { "/rules/0/colour", "is not known..." }, { "/rules/0/sync",
            "expected a zone..." }, { "/rules/0/tiers/pro/limit",
            "must be at least 0" }, { "/rules/1/id", "is missing" },
            { "/tier_of/keys/k", "expected a string" }, { "/allow/0",
            "expected a string or an object" }, { "/overrides/0/rule",
            "is no rule of..." }, { "/overrides/0/type", "is missing..." },
            { "/extra", "is not known..." }
    };

    assert_null(document_written(&alone,
        "{'extra':1,'rules':[{'id':'a','match':{'route':'x'},'params':{"
        "'capacity':0,'capcity':1,'refill_rate':1},'percent':101,'colour':1,"
        "'sync':'strict','tiers':{'pro':{'limit':-1}}},{'params':{'limit':1,"
        "'window':1}}],'tier_of':{'keys':{'k':1}},'allow':[1],'overrides':["
        "{'id':'o','key':'k','rule':'z','value':1}]}"));

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
}


/* Keys that only look a little like addresses. */
static void
test_addresses(void **state)
{
    ngx_rl_policy_release(document_written(&alone,
        "{'allow':['1.2.3','1.2.3.4.5','256.0.0.1','10.*',"
        "'10.0.0.0/129','10.0.0.0/8x','/8',':1','::1x','beef',"
        "'1234:5678','sha256:12ca17b49af2289436f303e0166030a21"
        "e525d266e209267433801a8fd4071a0']}"));

    ngx_rl_policy_release(document_good(&alone,
                         "{'tier_of':{'keys':{'127.0.0.0/8':'t'}}}"));
}


/* No key in the clear gets into what is said of a text that is no JSON. */
static void
test_secret(void **state)
{
    assert_null(document_written(&alone, "{'allow':['sk_1' 'sk_2']}"));
    assert_null(strstr((char *) document_problem(0)->detail.data, "sk_"));
    assert_null(document_written(&alone, "{'sk_1':1,'sk_1':2}"));
    assert_null(strstr((char *) document_problem(0)->detail.data, "sk_"));
}


/* A document with one temporary limit. */
static const char *
document_of(const char *limit)
{
    static char  json[2048];

    sprintf(json, "{" RULES ",'overrides':[{'id':'o',%s}]}", limit);

    return json;
}


/* It fits, or is a problem; in a stored document it alone is skipped. */
static void
test_fits(void **state)
{
    size_t            i, failed;
    ngx_uint_t        wrong;
    ngx_rl_policy_t  *policy;

    failed = 0;

    for (i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        wrong = (fits[i].problem[0] != '\0');
        policy = document_written(&alone, document_of(fits[i].limit));

        failed += check(fits[i].limit, &problems, wrong, "/overrides/0/value",
                        fits[i].problem);

        assert_int_equal(warnings.n, 0);
        assert_true(!policy == (problems.n != 0));

        if (policy) {
            ngx_rl_policy_release(policy);
        }

        policy = document_good(&alone, document_of(fits[i].limit));
        assert_int_equal(policy->skipped.n, wrong);

        if (wrong) {
            same_text(((ngx_rl_problem_t *) policy->skipped.list.elts)->pointer,
                      "/overrides/0/value");
        }

        ngx_rl_policy_release(policy);
    }

    assert_int_equal(failed, 0);
}

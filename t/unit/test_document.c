/*
 * Documents: what they compile to, and what is stored of them. In their texts
 * "'" is the quotation mark.
 */

#include "document.h"

#define SECOND  ((uint64_t) 1000000)
#define MINUTE  (60 * SECOND)

/* the SHA-256 of "k" */
#define SHA_K  "sha256:"                                                      \
    "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"

/* params of an algorithm, and the spec they are */
typedef struct {
    const char     *algorithm;
    const char     *params;
    ngx_rl_spec_t   spec;
} spec_t;

#define NONE     NGX_RL_CALENDAR_NONE
#define TOKEN    NGX_RL_TOKEN_BUCKET, NONE
#define LEAKY    NGX_RL_LEAKY_BUCKET, NONE
#define FIXED    NGX_RL_FIXED_WINDOW, NONE
#define SLIDING  NGX_RL_SLIDING_WINDOW, NONE
#define LOG      NGX_RL_SLIDING_LOG, NONE
#define SLOTS    NGX_RL_CONCURRENCY, NONE

static const spec_t  specs[] = {

    /* as nginx.conf has it */
    { "token_bucket", "'rate':'100r/m'",
      { TOKEN, 100, MINUTE, 100 } },
    { "token_bucket", "'rate':'10r/5s','capacity':20",
      { TOKEN, 10, 5 * SECOND, 20 } },
    { "token_bucket", "'limit':100,'window':'1m'",
      { TOKEN, 100, MINUTE, 100 } },
    { "token_bucket", "'limit':100,'window':60,'capacity':7",
      { TOKEN, 100, MINUTE, 7 } },
    { "token_bucket", "'limit':1e2,'window':60.0",
      { TOKEN, 100, MINUTE, 100 } },
    { "leaky_bucket", "'rate':'10r/s'",
      { LEAKY, 10, SECOND } },
    { "leaky_bucket", "'rate':'10r/s','burst':20",
      { LEAKY, 10, SECOND, 0, 20 } },
    { "leaky_bucket", "'limit':10,'window':1,'burst':20,'delay':5",
      { LEAKY, 10, SECOND, 0, 20, 5 } },
    { "leaky_bucket", "'rate':'10r/s','burst':20,'nodelay':true",
      { LEAKY, 10, SECOND, 0, 20, 0, 1 } },
    { "leaky_bucket",
      "'rate':'10r/s','burst':20,'delay':2,'nodelay':false",
      { LEAKY, 10, SECOND, 0, 20, 2, 0 } },
    { "fixed_window", "'rate':'100r/m'", { FIXED, 100, MINUTE } },
    { "fixed_window", "'limit':5,'window':'1h30m'",
      { FIXED, 5, 5400 * SECOND } },
    { "fixed_window", "'limit':5,'window':'calendar:day'",
      { NGX_RL_FIXED_WINDOW, NGX_RL_CALENDAR_DAY, 5 } },
    { "fixed_window", "'limit':5,'window':'calendar:month'",
      { NGX_RL_FIXED_WINDOW, NGX_RL_CALENDAR_MONTH, 5 } },
    { "sliding_window", "'limit':5,'window':'366d'",
      { SLIDING, 5, 31622400 * SECOND } },
    { "sliding_log", "'limit':5,'window':10", { LOG, 5, 10 * SECOND } },
    { "concurrency", "'limit':4", { SLOTS, 4 } },

    /* the other spelling */
    { "token_bucket", "'capacity':100,'refill_rate':2",
      { TOKEN, 1, SECOND / 2, 100, 0, 0, 0, 50 * SECOND } },
    { "token_bucket", "'capacity':100,'refill_rate':1.67,'window':60",
      { TOKEN, 167, 100 * SECOND, 100, 0, 0, 0, MINUTE } },
    { "leaky_bucket", "'capacity':21,'refill_rate':10",
      { LEAKY, 1, SECOND / 10, 0, 20, 0, 0, 2100000 } },
    { "leaky_bucket", "'capacity':21,'limit':10,'window':1",
      { LEAKY, 10, SECOND, 0, 20 } },
    { "fixed_window", "'capacity':100,'refill_rate':1.25",
      { FIXED, 100, 80 * SECOND } },
    { "sliding_window", "'capacity':100,'window':60",
      { SLIDING, 100, MINUTE } },
    { "sliding_window", "'capacity':100,'limit':100,'window':60",
      { SLIDING, 100, MINUTE } },
    { "fixed_window", "'capacity':5,'window':'calendar:day'",
      { NGX_RL_FIXED_WINDOW, NGX_RL_CALENDAR_DAY, 5 } },
    { "concurrency", "'capacity':4", { SLOTS, 4 } },

    /* with variables */
    { "token_bucket", "'rate':'$r','capacity':7",
      { TOKEN, 0, 0, 7 } },
    { "token_bucket", "'limit':'$l','window':60", { TOKEN, 0, MINUTE } },
    { "fixed_window", "'limit':'$l','window':'calendar:day'",
      { NGX_RL_FIXED_WINDOW, NGX_RL_CALENDAR_DAY, 0 } },
    { "leaky_bucket", "'rate':'$r','burst':7", { LEAKY, 0, 0, 0, 7 } },
    { "concurrency", "'limit':'$l'", { SLOTS, 0 } }
};


static int
same_spec(const ngx_rl_spec_t *a, const ngx_rl_spec_t *b)
{
    return a->algorithm == b->algorithm && a->calendar == b->calendar
           && a->tokens == b->tokens && a->period_us == b->period_us
           && a->capacity == b->capacity && a->burst == b->burst
           && a->delay == b->delay && a->nodelay == b->nodelay
           && a->window_us == b->window_us;
}


static void
test_specs(void **state)
{
    char              json[1024];
    ngx_rl_limit_t    limit;

    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        sprintf(json, "{'rules':[{'id':'a','algorithm':'%s',"
                "'params':{%s}}]}", specs[i].algorithm, specs[i].params);

        ngx_rl_policy_t *policy = document_good(&alone, json);
        ngx_rl_rule_t *rule = document_rule(policy, "a");

        if (!same_spec(&rule->spec, &specs[i].spec)) {
            fail_msg("%s: %llu in %llu, capacity %llu, window %llu", json,
                     (unsigned long long) rule->spec.tokens,
                     (unsigned long long) rule->spec.period_us,
                     (unsigned long long) rule->spec.capacity,
                     (unsigned long long) rule->spec.window_us);
        }

        const char *variable = strchr(specs[i].params, '$');
        assert_int_equal(rule->dynamic, variable != NULL);

        if (variable) {
            assert_int_equal(above_limit.len, 2);
            assert_memory_equal(above_limit.data, variable, 2);

        } else {
            assert_int_equal(above_limit.len, 0);
            assert_null(ngx_rl_limit_init(&limit, &rule->spec));
            assert_int_equal(limit.mark, rule->limit.mark);
        }

        ngx_rl_policy_release(policy);
    }
}


/* A rule with all that is not its limit. */
static void
test_rule(void **state)
{
    ngx_uint_t  *statuses;

    ngx_rl_policy_t *policy = document_good(&fleet,
        "{'rules':[{'id':'a','params':{'rate':'10r/s'},"
        "'match':{'endpoint_regex':'~*^/v1/','methods':['GET',"
        "'POST'],'host':['API.example.com','*.example.org'],"
        "'tier':'pro plan','api_key_pattern':['a*','k','\\\\*']},"
        "'key':'$http_x_tenant','sync':'strict','fail_mode':"
        "'closed','cost':'$c','cost_header':'X-Cost','group':"
        "'plan','priority':-7,'percent':10,'dry_run':true},"

        "{'id':'b','enabled':false,'description':'d','owner':'o','version':"
        "'1.0','labels':{'a.b':'c'},'tier':'pro','algorithm':"
        "'sliding_window_counter','params':{'rate':'10r/s'},'count_status':"
        "[401,403],'cost':0,'emergency':'5r/s','match':{'route':"
        "'/v1/{x}','methods':'HEAD','host':'h','header':['X-A:b*','Y:?',"
        "'x-a:c:d'],'arg':'n:1','if':'$x','network':'::1/64'}},"

        "{'id':'c','params':{'rate':'10r/s'},'sync':'async','cost':3,"
        "'cost_end':'$c','cost_every':'2m'},{"
        "'id':'d','params':{'rate':'10r/s'},'sync':'strict','shards':5,"
        "'fail_mode':'open'},{'id':'e','params':{'limit':2},"
        "'algorithm':'concurrency','cost':1,'fail_mode':'local'},{'id':'f',"
        "'params':{'rate':'10r/s'},'count_status':500,'enabled':true,"
        "'retry':'growth',"
        "'version':3,'labels':{},'active':{'days':'fri-sun','from':'22:00',"
        "'to':'06:30','tz':'Europe/Berlin'}},{'id':'g',"
        "'params':{'rate':'10r/s'},'active':{'from':'18:00'}}]}");

    ngx_rl_rule_t *rule = document_rule(policy, "a");
    same_text(rule->regex_text, "~*^/v1/");
    assert_int_equal(rule->methods, M_GET|M_POST);
    assert_int_equal(rule->nhosts, 2);
    assert_memory_equal(rule->hosts[0].data, "api.example.com", 15);
    assert_memory_equal(rule->hosts[1].data, "*.example.org", 13);
    same_text(rule->tier, "pro plan");
    assert_non_null(rule->api_keys->globs);
    assert_non_null(rule->api_keys->digests.entries);
    assert_int_equal(rule->nparts, 1);
    same_text(rule->key, "$http_x_tenant");
    assert_int_equal(rule->sync, NGX_RL_SYNC_STRICT);
    assert_int_equal(rule->fail_mode, NGX_RL_FAIL_CLOSED);
    assert_true(rule->dynamic_cost);
    assert_int_equal(rule->cost, 1);
    same_text(rule->cost_header, "x-cost");
    same_text(rule->group, "plan");
    assert_int_equal(rule->priority, -7);
    assert_int_equal(rule->percent, 10);
    assert_true(rule->dry_run);
    assert_null(rule->emergency);
    assert_non_null(rule->data);

    rule = document_rule(policy, "b");
    same_text(rule->route, "/v1/{x}");

    assert_non_null(rule->networks);
    assert_true(rule->disabled);
    assert_true(rule->skipped);
    same_text(rule->tier, "pro");
    assert_int_equal(rule->spec.algorithm, NGX_RL_SLIDING_WINDOW);

    /* alternatives are beside each other */

    assert_int_equal(rule->nconditions, 5);
    same_text(rule->conditions[0].name, "X-A");
    assert_int_equal(rule->conditions[0].glob.len, 2);
    assert_false(rule->conditions[0].other);
    same_text(rule->conditions[1].name, "x-a");
    assert_int_equal(rule->conditions[1].glob.len, 3);
    assert_true(rule->conditions[1].other);
    same_text(rule->conditions[2].name, "Y");
    assert_false(rule->conditions[2].other);
    assert_int_equal(rule->conditions[3].kind, NGX_RL_IF_ARG);
    same_text(rule->conditions[4].name, "$x");
    assert_false(rule->conditions[4].other);
    assert_int_equal(rule->methods, M_HEAD);
    assert_int_equal(rule->nhosts, 1);
    assert_null(rule->api_keys);
    assert_int_equal(rule->nparts, 1);
    same_text(rule->parts[0], "$ratelimit_api_key");
    same_text(rule->key, "$ratelimit_api_key");
    assert_int_equal(rule->cost, 0);
    assert_int_equal(rule->statuses->nelts, 2);
    statuses = rule->statuses->elts;
    assert_int_equal(statuses[0], 401);
    assert_int_equal(statuses[1], 403);
    assert_int_equal(rule->sync, NGX_RL_SYNC_STRICT);
    assert_int_equal(rule->fail_mode, NGX_RL_FAIL_OPEN);
    assert_int_equal(rule->emergency->capacity, 5);

    rule = document_rule(policy, "c");
    assert_int_equal(rule->sync, NGX_RL_SYNC_ASYNC);
    assert_int_equal(rule->fail_mode, NGX_RL_FAIL_DEFAULT);
    assert_int_equal(rule->cost, 3);
    same_text(rule->cost_end, "$c");
    assert_int_equal(rule->cost_every, 2 * 1024 * 1024);

    rule = document_rule(policy, "d");
    assert_int_equal(rule->shards, 5);

    rule = document_rule(policy, "e");
    assert_int_equal(rule->sync, NGX_RL_SYNC_STRICT);
    assert_int_equal(rule->fail_mode, NGX_RL_FAIL_LOCAL);

    rule = document_rule(policy, "f");
    assert_true(rule->retry_growth);
    assert_true(rule->timed);
    assert_int_equal(rule->active.days, 0x70);
    assert_int_equal(rule->active.from, 22 * 60);
    assert_int_equal(rule->active.to, 6 * 60 + 30);
    assert_non_null(rule->active_tz);

    rule = document_rule(policy, "g");
    assert_true(rule->timed);
    assert_int_equal(rule->active.days, NGX_RL_WEEK_ALL);
    assert_int_equal(rule->active.from, 18 * 60);
    assert_int_equal(rule->active.to, NGX_RL_DAY_MINUTES);
    assert_null(rule->active_tz);

    /* higher priorities first, those of nginx.conf before the others */

    assert_ptr_equal(((ngx_rl_rule_t **) policy->rules.elts)[0],
                     policy->fixed[0]);
    assert_int_equal(document_rule(policy, "a")->rank, 8);

    ngx_rl_policy_release(policy);
}


/* Empty lists and nulls say nothing. */
static void
test_nothing(void **state)
{
    ngx_rl_policy_t *policy = document_good(&alone,
        "{'format':null,'version':null,'rules':[{'id':'a','params':{"
        "'rate':'1r/s','limit':null,'burst':null,'nodelay':false},'match':{"
        "'api_key_pattern':[],'route':null,'endpoint_regex':null,'methods':[],"
        "'host':null,'tier':null},'key':null,'tiers':{},'limits_by_api_key':{},"
        "'sync':null,'fail_mode':null,'emergency':null,'shards':null,"
        "'cost':null,'cost_header':null,'cost_end':null,'cost_every':null,"
        "'count_status':null,'group':null,"
        "'priority':null,'percent':null,'dry_run':null,'algorithm':null,"
        "'active':{'days':'tue-mon','to':'24:00','from':null}}],"
        "'tier_of':{'keys':{},'patterns':[]},'allow':[],'deny':null,"
        "'overrides':[]}");

    ngx_rl_rule_t *rule = document_rule(policy, "a");
    assert_int_equal(rule->ntier_limits, 0);
    assert_null(rule->api_keys);
    assert_null(rule->key_limits);
    assert_null(rule->statuses);
    assert_int_equal(rule->cost, 1);
    assert_int_equal(rule->percent, 100);
    assert_false(rule->timed);
    assert_int_equal(rule->fail_mode, NGX_RL_FAIL_DEFAULT);
    assert_null(policy->allow.globs);
    assert_null(policy->allow.digests.entries);
    assert_null(policy->overrides);
    assert_false(policy->needs & NGX_RL_NEEDS_KEY);
    assert_false(policy->tenants);
    ngx_rl_policy_release(policy);

    policy = document_good(&alone, "{}");
    assert_int_equal(policy->rules.nelts, 2);
    ngx_rl_policy_release(policy);
}


static ngx_str_t
tier_of(const ngx_rl_policy_t *policy, ngx_uint_t number, const char *key)
{
    ngx_rl_policy_source_t *source = policy->sources.elts;
    uint32_t tier = document_find(&source[number].tiers.digests, key);
    assert_int_not_equal(tier, NGX_RL_MAP_NONE);

    return policy->tiers[tier];
}


/* Of the API key, or of the key of a rule. */
static ngx_str_t
tier_by_pattern(const ngx_rl_policy_t *policy, ngx_uint_t number,
    const char *key)
{
    ngx_rl_policy_source_t *source = policy->sources.elts;
    assert_true(number < policy->sources.nelts);

    ngx_uint_t i = ngx_rl_globs_find(source[number].tiers.globs, (u_char *) key,
                                     strlen(key));
    assert_int_not_equal(i, NGX_RL_GLOB_NONE);

    return policy->tiers[source[number].tiers.glob_values[i]];
}


/* A key and its hash, in any case, are one; a glob of one key is that key. */
static void
test_keys(void **state)
{
    ngx_str_t         text;
    u_char            buf[NGX_RL_DOCUMENT_KEY];

    ngx_rl_policy_t *policy = document_good(&alone,
        "{'allow':['" SHA_K "'],'deny':['a\\\\*'],"
        "'tier_of':{'keys':{'SK':'pro','k':'pro','l':'free'},'patterns':[{"
        "'pattern':'k','tier':'gold'},{'pattern':'m','tier':'gold'},{"
        "'pattern':'m*','tier':'free'},{'pattern':'n?','tier':'pro'}]}}");

    assert_int_not_equal(document_find(&policy->allow.digests, "k"),
                         NGX_RL_MAP_NONE);
    assert_int_not_equal(document_find(&policy->deny.digests, "a*"),
                         NGX_RL_MAP_NONE);
    assert_null(policy->deny.globs);

    assert_ptr_equal(tier_of(policy, 0, "SK").data,
                     tier_of(policy, 0, "k").data);
    same_text(tier_of(policy, 0, "k"), "pro");
    same_text(tier_of(policy, 0, "l"), "free");
    same_text(tier_of(policy, 0, "m"), "gold");
    same_text(tier_by_pattern(policy, 0, "mm"), "free");
    same_text(tier_by_pattern(policy, 0, "nn"), "pro");
    ngx_rl_policy_release(policy);

    ngx_str_set(&text, "k");
    ngx_str_t stored = ngx_rl_document_key(&text, buf);
    same_text(stored, SHA_K);
    ngx_str_set(&text, "sha256:"
        "8254C329A92850F6D539DD376F4816EE2764517DA5E0235514AF433164480D7A");
    stored = ngx_rl_document_key(&text, buf);
    same_text(stored, SHA_K);
    ngx_str_set(&text, "sha256:8254");
    stored = ngx_rl_document_key(&text, buf);
    same_text(stored, "sha256:8254");
}


/* Values of rules' keys: amounts in the rule, tiers beside API keys. */
static void
test_rule_keys(void **state)
{
    ngx_rl_policy_t  *policy;

    policy = document_good(&alone, "{'rules':[{'id':'t','key':'$t','params':{"
        "'limit':10,'window':60},'limits_by_api_key':{'acme':{'limit':20}},"
        "'limits_by_key':{'acme':{'limit':30},'192.0.2.1':{'limit':40}}}],"
        "'tier_of':{'keys':{'acme':'key'},'rules':{'t':{'acme':'gold'},"
        "'conf':{'acme':'iron'}},'patterns':[{'rule':'t','pattern':'eu-*',"
        "'tier':'eu'},{'rule':'conf','pattern':'one','tier':'one'},"
        "{'rule':'t','pattern':'us-*','tier':'us'}]}}");

    ngx_rl_rule_t *rule = ((ngx_rl_rule_t **) policy->rules.elts)[2];
    same_text(rule->id, "t");
    uint32_t number = document_find(&rule->keys, "acme");
    assert_int_equal(rule->key_limits[number].spec.tokens, 20);
    number = document_find(&rule->own_keys, "acme");
    assert_int_equal(rule->key_limits[number].spec.tokens, 30);
    number = document_find(&rule->own_keys, "192.0.2.1");
    assert_int_equal(rule->key_limits[number].spec.tokens, 40);

    ngx_rl_policy_source_t *source = policy->sources.elts;
    assert_int_equal(policy->sources.nelts, 3);
    assert_null(source[0].rule);
    assert_ptr_equal(source[1].rule, rule);
    assert_ptr_equal(source[2].rule, policy->fixed[0]);
    assert_null(source[2].tiers.globs);

    same_text(tier_of(policy, 0, "acme"), "key");
    same_text(tier_of(policy, 1, "acme"), "gold");
    same_text(tier_of(policy, 2, "acme"), "iron");
    same_text(tier_of(policy, 2, "one"), "one");
    same_text(tier_by_pattern(policy, 1, "eu-1"), "eu");
    same_text(tier_by_pattern(policy, 1, "us-1"), "us");

    ngx_rl_policy_release(policy);
}


static void
check_written(const char *json, ngx_uint_t clear, const char *expected)
{
    json_t    *root;
    ngx_str_t  text;

    ngx_rl_policy_t *policy = document_read(&alone, json, clear, &root);
    assert_non_null(policy);
    ngx_rl_policy_release(policy);

    assert_int_equal(ngx_rl_document_write(root, pool, &text), NGX_OK);
    json_decref(root);

    /* and a line end */

    assert_int_equal(text.len, strlen(expected) + 1);

    while (text.len--) {
        if (text.data[text.len] == '"') {
            text.data[text.len] = '\'';
        }
    }

    assert_memory_equal(text.data, expected, strlen(expected));
}


static void
test_written(void **state)
{
    check_written("{ 'allow' : ['k', 'k*', '\\\\k'] }", 0,
                  "{'allow':['" SHA_K "','k*','" SHA_K "']}");
    check_written("{'allow':['k','k*']}", 1, "{'allow':['k','k*']}");
    check_written("{'tier_of':{'keys':{'k':'a'},'patterns':"
                  "[{'pattern':'k','tier':'b'}]}}", 0,
                  "{'tier_of':{'keys':{'" SHA_K "':'a'},'patterns':"
                  "[{'pattern':'" SHA_K "','tier':'b'}]}}");
    check_written("{'overrides':[{'id':'o','key':'k','type':"
                  "'multiplicative','value':0.1,'reason':'a\\nb'}]}", 0,
                  "{'overrides':[{'id':'o','key':'" SHA_K "',"
                  "'type':'multiplicative','value':0.1,'reason':'a\\nb'}]}");

    /* what is not known stays as it was, to the last digit */

    check_written("{'format':'1.9','x':[1.67,16.67]}", 0,
                  "{'format':'1.9','x':[1.67,16.67]}");
    check_written("{'format':'1.9','x':[0.12345678901234568]}", 0,
                  "{'format':'1.9','x':[0.12345678901234568]}");
}


static void
test_newer(void **state)
{
    ngx_rl_policy_t *policy = document_good(&alone,
        "{'format':'1.1','colour':'red','rules':[{'id':'a','shape':1,'params':{"
        "'rate':'1r/s','size':2},'match':{'moon':'full'}}]}");

    assert_int_equal(warnings.n, 4);
    ngx_rl_problem_t *warning = warnings.list.elts;
    same_text(warning[0].pointer, "/rules/0/params/size");
    same_text(warning[1].pointer, "/rules/0/match/moon");
    same_text(warning[2].pointer, "/rules/0/shape");
    same_text(warning[3].pointer, "/colour");
    same_text(warning[3].detail, "is not known to this version: it is kept, "
              "and has no effect");
    ngx_rl_policy_release(policy);

    /* what is known is read as strictly */

    assert_null(document_compile(&alone, "{'format':'1.1','rules':1}"));
    assert_null(document_compile(&alone, "{'format':'1.0','x':1}"));

    /* nobody wants to know */

    json_t *root = json_pack("{s:s,s:i}", "format", "1.2", "x", 1);
    document_clear();
    policy = ngx_rl_document_read(&alone, root, 0, &problems, NULL,
                                  NULL, NULL, &nowhere);
    assert_non_null(policy);
    ngx_rl_policy_release(policy);
    json_decref(root);
}


/* A key without a variable counts all clients together. */
static void
test_constant(void **state)
{
    char               json[256];

    static const struct {
        const char  *key;
        ngx_uint_t   warnings;
    } keys[] = {
        { "'ratelimit_api_key'", 1 }, { "['a','b']", 1 }, { "['all','b']", 1 },
            { "'all'", 0 }, { "['all']", 0 }, { "'$a'", 0 }, { "['a','$b']",
            0 }, { "null", 0 }
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        sprintf(json, "{'rules':[{'id':'a','key':%s,'params':"
                "{'rate':'1r/s'}}]}", keys[i].key);

        ngx_rl_policy_t *policy = document_good(&alone, json);
        assert_int_equal(warnings.n, keys[i].warnings);

        if (warnings.n) {
            ngx_rl_problem_t *warning = warnings.list.elts;
            same_text(warning->pointer, "/rules/0/key");
        }

        ngx_rl_policy_release(policy);
    }

    /* without a template for it, each path is a route of its own */

    for (size_t i = 0; i < 4; i++) {
        alone.folds = (i < 2);
        sprintf(json, "{'rules':[{'id':'a','key':['$a','%s'],'params':{"
                "'rate':'1r/s'}}]}", (i & 1) ? "/$ratelimit_route" : "$uri");

        ngx_rl_policy_t *policy = document_good(&alone, json);
        assert_int_equal(warnings.n, i == 1);
        ngx_rl_policy_release(policy);
    }
}


static void
test_overrides(void **state)
{
    ngx_str_t           part = ngx_string("$http_x_tenant");
    ngx_str_t           value = ngx_string("acme");
    u_char                     digest[NGX_RL_MAP_KEY];

    ngx_rl_policy_t *policy = document_good(&alone,
        "{'rules':[{'id':'a','key':['$http_x_tenant','$uri'],'params':{"
        "'rate':'1r/s'}}],'overrides':[{'id':'1','key':'k','type':'absolute',"
        "'value':500},{'id':'2','tenant':{'part':'$http_x_tenant',"
        "'value':'acme'},'type':'multiplicative','value':1000000},{'id':'3',"
        "'key':'" SHA_K "','rule':'a','type':"
        "'absolute','value':{'capacity':5,'refill_rate':0.5}},{'id':'4',"
        "'key':'k','rule':'conf','type':'multiplicative','value':0.000001,"
        "'expires_at':'1970-01-01T00:00:01Z'},{'id':'5','tenant':{"
        "'part':'$none','value':'v'},'type':'absolute','value':1}]}");

    ngx_rl_override_t *o = policy->overrides;
    assert_true(policy->tenants);

    uint32_t i = document_find(&policy->override_keys, "k");
    assert_int_equal(i, 3);
    assert_int_equal(o[3].next, 2);
    assert_int_equal(o[2].next, 0);
    assert_int_equal(o[0].next, NGX_RL_MAP_NONE);

    assert_int_equal(o[0].rule_id.len, 0);
    assert_int_equal(o[0].amount.tokens, 500);
    assert_int_equal(o[0].millionths, 0);
    assert_int_equal(o[0].expires, 0);
    assert_int_equal(o[1].millionths, 1000000000000);
    same_text(o[2].rule_id, "a");
    assert_true(o[2].amount.rated);
    assert_int_equal(o[2].amount.capacity, 5);
    assert_int_equal(o[2].amount.tokens, 1);
    assert_int_equal(o[2].amount.period_us, 2 * SECOND);
    assert_int_equal(o[3].millionths, 1);
    assert_int_equal(o[3].expires, 1);

    ngx_rl_policy_part_digest(&part, &value, 0, digest);
    assert_int_equal(ngx_rl_map_get(&policy->override_keys, digest), 1);

    assert_int_equal(warnings.n, 1);
    same_text(((ngx_rl_problem_t *) warnings.list.elts)->pointer,
              "/overrides/4/tenant/part");

    ngx_rl_policy_release(policy);
}


#define COSTLY(more)                                                          \
    "{'rules':[{'id':'a','params':{'limit':5,'window':1}," more "'cost':6}]}"
#define COSTLY_FOR(match)  COSTLY("'match':{" match "},")

static const struct {
    ngx_uint_t   denies;
    const char  *json;
} denials[] = {
    { 0, "{}" },
    { 1, "{'deny':['k','**']}" },
    { 1, "{'deny':['?*','k']}" },
    { 1, "{'deny':['*?']}" },
    { 1, "{'deny':['*?*']}" },
    { 0, "{'deny':['?*?','*k','?k*']}" },
    { 0, "{'deny':['?','k*']}" },
    { 1, "{'deny':['*'],'allow':['*']}" },

    { 1, COSTLY("") },
    { 1, COSTLY("'key':'$x',") },
    { 0, "{'allow':['*'],'rules':[{'id':'a','cost':6,'params':"
         "{'limit':5,'window':1}}]}" },
    { 1, "{'allow':['k*'],'rules':[{'id':'a','cost':6,'params':"
         "{'limit':5,'window':1}}]}" },
    { 0, "{'rules':[{'id':'a','cost':5,'params':{'limit':5,'window':1}}]}" },
    { 0, COSTLY("'dry_run':true,") },
    { 0, COSTLY("'percent':99,") },
    { 0, COSTLY("'group':'g',") },
    { 0, COSTLY("'count_status':401,") },
    { 0, COSTLY("'tiers':{'t':{'limit':6}},") },
    { 0, COSTLY("'limits_by_api_key':{'k':{'limit':6}},") },
    { 0, COSTLY_FOR("'route':'/**'") },
    { 0, COSTLY_FOR("'endpoint_regex':'.'") },
    { 0, COSTLY_FOR("'host':'*'") },
    { 0, COSTLY_FOR("'methods':'GET'") },
    { 0, COSTLY_FOR("'tier':'t'") },
    { 0, COSTLY_FOR("'api_key_pattern':'*'") }
};


static void
test_deny_all(void **state)
{
    for (size_t i = 0; i < sizeof(denials) / sizeof(denials[0]); i++) {
        ngx_rl_policy_t *policy = document_written(&alone, denials[i].json);

        if (policy == NULL || deny_all != denials[i].denies) {
            fail_msg("%s", denials[i].json);
        }

        ngx_rl_policy_release(policy);
    }
}


static const char  example[] =
    "{ 'version': 42, 'rules': [ { 'id': 'orders', 'match': {"
    "'api_key_pattern': ['sk_prod_*'],   'route': '/v1/orders/**', "
    "'endpoint_regex': null,   'methods': ['POST'], 'host': []}, 'key': ["
    "'$ratelimit_api_key', '$ratelimit_route'], 'algorithm': 'token_bucket', "
    "'params': {'capacity': 100, 'refill_rate': 1.67, 'window': 60}, 'tiers': {"
    "'free': {'limit': 100}, 'pro': {'limit': 1000},   'enterprise': {'limit': "
    "10000}}, 'limits_by_api_key': {'sk_prod_vip_001':   {'capacity': 1000, "
    "'refill_rate': 16.67}}, 'sync': 'lease', 'fail_mode': 'open', 'cost': 1, "
    "'group': null, 'priority': 0, 'percent': 100, 'dry_run': false } ], "
    "'tier_of': {'patterns': [{'pattern': 'sk_free_*',   'tier': 'free'}], "
    "'keys': {'sk_prod_abc123': 'pro'}}, 'allow': ['sk_internal_*'], "
    "'deny': ['sk_revoked_*'], 'overrides': [ {'id': '...', 'key': "
    "'sk_prod_abc123',   'rule': 'orders', 'type': 'multiplicative', 'value': "
    "5,   'expires_at': '2026-12-01T00:00:00Z',   'reason': 'launch week'} ] }";


static uint32_t
first_glob(const ngx_rl_globs_t *globs, const char *text)
{
    return ngx_rl_globs_find(globs, (const u_char *) text, strlen(text));
}


/* The rate of a bucket, in its lowest terms, and its capacity. */
static void
same_bucket(const ngx_rl_limit_t *limit, uint32_t tokens, uint64_t period_us,
    uint32_t capacity)
{
    assert_int_equal(limit->rate.scale, tokens);
    assert_int_equal(limit->rate.period_us, period_us);
    assert_int_equal(limit->capacity, capacity);
}


static void
check_example(ngx_rl_policy_t *policy)
{
    assert_int_equal(policy->rules.nelts, 3);
    assert_int_equal(policy->nfixed, 2);

    ngx_rl_rule_t *rule = document_rule(policy, "orders");
    assert_ptr_equal(rule->policy, policy);
    assert_int_equal(rule->number, 2);
    assert_int_equal(rule->nparts, 2);
    same_text(rule->parts[0], "$ratelimit_api_key");
    same_text(rule->parts[1], "$ratelimit_route");
    same_text(rule->key, "$ratelimit_api_key\x1f$ratelimit_route");
    same_text(rule->route, "/v1/orders/**");
    assert_int_equal(rule->regex_text.len, 0);
    assert_int_equal(rule->methods, M_POST);
    assert_int_equal(rule->nhosts, 0);
    assert_non_null(rule->api_keys);
    assert_int_equal(first_glob(rule->api_keys->globs, "sk_prod_1"), 0);
    assert_int_equal(first_glob(rule->api_keys->globs, "sk_test_1"),
                     NGX_RL_GLOB_NONE);
    assert_null(rule->api_keys->digests.entries);
    assert_int_equal(rule->percent, 100);
    assert_int_equal(rule->cost, 1);
    assert_int_equal(rule->group.len, 0);
    assert_int_equal(rule->priority, 0);
    assert_int_equal(rule->sync, NGX_RL_SYNC_LEASE);
    assert_int_equal(rule->fail_mode, NGX_RL_FAIL_OPEN);
    assert_false(rule->dry_run || rule->dynamic || rule->dynamic_cost);

    /* 1.67 a second; and 100, 1,000, 10,000 in 60 seconds */

    same_bucket(&rule->limit, 167, 100 * SECOND, 100);
    assert_int_equal(rule->ntier_limits, 3);
    same_text(rule->tier_limits[0].tier, "free");
    same_bucket(&rule->tier_limits[0].allowance.limit, 1, 600000, 100);
    same_text(rule->tier_limits[1].tier, "pro");
    same_bucket(&rule->tier_limits[1].allowance.limit, 1, 60000, 1000);
    same_text(rule->tier_limits[2].tier, "enterprise");
    same_bucket(&rule->tier_limits[2].allowance.limit, 1, 6000, 10000);

    uint32_t i = document_find(&rule->keys, "sk_prod_vip_001");
    assert_int_not_equal(i, NGX_RL_MAP_NONE);
    ngx_rl_allowance_t *vip = &rule->key_limits[i];
    same_bucket(&vip->limit, 1667, 100 * SECOND, 1000);
    assert_int_equal(document_find(&rule->keys, "sk_prod_vip_002"),
                     NGX_RL_MAP_NONE);

    assert_int_equal(first_glob(policy->allow.globs, "sk_internal_7"), 0);
    assert_int_equal(first_glob(policy->deny.globs, "sk_revoked_7"), 0);
    same_text(tier_by_pattern(policy, 0, "sk_free_7"), "free");

    same_text(tier_of(policy, 0, "sk_prod_abc123"), "pro");

    i = document_find(&policy->override_keys, "sk_prod_abc123");
    assert_int_equal(i, 0);
    ngx_rl_override_t *override = &policy->overrides[0];
    same_text(override->id, "...");
    same_text(override->rule_id, "orders");
    assert_int_equal(override->millionths, 5000000);
    assert_int_equal(override->expires, 1796083200);
    assert_int_equal(override->next, NGX_RL_MAP_NONE);

    assert_true(policy->needs & NGX_RL_NEEDS_DIGEST);
    assert_true(policy->needs & NGX_RL_NEEDS_KEY);
    assert_false(policy->tenants);
}


static void
test_example(void **state)
{
    above_prepared = 0;
    ngx_rl_policy_t *policy = document_good(&alone, example);
    check_example(policy);
    assert_int_equal(above_prepared, 1);
    ngx_rl_policy_release(policy);

    policy = document_good(&fleet, example);
    check_example(policy);
    ngx_rl_policy_release(policy);
}


/* What is stored of it has no key in the clear, and compiles to the same. */
static void
test_canonical(void **state)
{
    static const char  expected[] =
        "{'version':42,'rules':[{'id':'orders','match':{'api_key_pattern':["
        "'sk_prod_*'],'route':'/v1/orders/**','endpoint_regex':null,'methods':["
        "'POST'],'host':[]},'key':['$ratelimit_api_key','$ratelimit_route'],"
        "'algorithm':'token_bucket','params':{'capacity':100,"
        "'refill_rate':1.67,'window':60},'tiers':{'free':{'limit':100},'pro':{"
        "'limit':1000},'enterprise':{'limit':10000}},'limits_by_api_key':{"
        "'sha256:766db6212450da264ff86fe5d29f76ffb6c1cb26875227ded9d5e25530b72c"
        "bb':{'capacity':1000,'refill_rate':16.67}},'sync':'lease',"
        "'fail_mode':'open','cost':1,'group':null,'priority':0,'percent':100,"
        "'dry_run':false}],'tier_of':{'patterns':[{'pattern':'sk_free_*',"
        "'tier':'free'}],'keys':{'sha256:931de6a9c45c8d6ede43f9921643ef019d9c36"
        "3d7e6a6c5c420c34ac1a07fc12':'pro'}},'allow':['sk_internal_*'],"
        "'deny':['sk_revoked_*'],'overrides':[{'id':'...',"
        "'key':'sha256:931de6a9c45c8d6ede43f9921643ef019d9c363d7e6a6c5c420c34ac"
        "1a07fc12','rule':'orders','type':'multiplicative','value':5,"
        "'expires_at':'2026-12-01T00:00:00Z','reason':'launch week'}]}";

    check_written(example, 0, expected);
    check_written(expected, 0, expected);
    assert_int_equal(deny_all, 0);

    ngx_rl_policy_t *policy = document_good(&alone, expected);
    check_example(policy);
    ngx_rl_policy_release(policy);
}

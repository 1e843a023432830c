/*
 * Documents that are refused: each with the place of what is wrong, and what
 * was expected; all that is wrong at once. And overrides that do not fit
 * a rule: of nginx.conf, or in a stored document, that is only a warning.
 */

#include "document.h"

#define LINE  4096

#define RULE  "{'rules':[{'id':'a','params':{'limit':10,'window':60}"
#define OVERRIDE                                                              \
    RULE "},{'id':'s','key':['$a','$b'],'params':{'limit':10,'window':60}}]," \
    "'overrides':[{'id':'o',"
#define VALUE(type)                                                           \
    OVERRIDE "'key':'k','rule':'a','type':'" type "','value':"

/* what stands around the text of a case; "'" is the quotation mark */
static const struct {
    const char  *kind, *before, *after;
} kinds[] = {
    { "document", "", "" },
    { "rule", RULE ",", "}]}" },
    { "match", RULE ",'match':{", "}}]}" },
    { "active", RULE ",'active':{", "}}]}" },
    { "permits", "{'rules':[{'id':'a','algorithm':'concurrency',"
      "'params':{'limit':1},", "}]}" },
    { "override", OVERRIDE, "}]}" },
    { "absolute", VALUE("absolute"), "}]}" },
    { "multiplicative", VALUE("multiplicative"), "}]}" }
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

    const ngx_rl_problem_t *first = list->list.elts;
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
check_bad(ngx_rl_limiter_t *limiter, const char *json, const char *pointer,
    const char *detail)
{
    ngx_rl_policy_t *policy = document_written(limiter, json);

    if (policy) {
        ngx_rl_policy_release(policy);
    }

    return check(json, &problems, 1, pointer, detail);
}


/* The next line, with what belongs to it; 0 at the end. */
static int
line_next(FILE *file, char line[LINE])
{
    for (size_t len = 0; fgets(line + len, (int) (LINE - len), file); len++) {
        len = strcspn(line, "\n");
        line[len] = '\0';

        int c = getc(file);
        (void) ungetc(c, file);

        if (c != ' ') {
            return 1;
        }

        while ((c = getc(file)) == ' ') { /* void */ }

        (void) ungetc(c, file);
        line[len] = ' ';
    }

    return 0;
}


static void
case_json(char *json, const char *kind, const char *text)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].kind, kind) == 0) {
            sprintf(json, "%s%s%s", kinds[i].before, text, kinds[i].after);
            return;
        }
    }

    sprintf(json, "{'rules':[{'id':'a','algorithm':'%s','params':{%s}}]}", kind,
            text);
}


/* All cases of document-bad.txt. */
static void
test_bad(void **state)
{
    char               line[LINE], json[2 * LINE], *text, *pointer, *detail;
    size_t             n;

    FILE *file = fopen(CASES, "r");
    assert_non_null(file);
    ngx_rl_limiter_t *limiter = &alone;
    size_t failed = check_bad(&alone, "{'rules':[{'id':'\xff'}]}", "",
                              "is no JSON: unable to decode byte...");

    for (n = 0; line_next(file, line); /* void */ ) {

        if (*line == '#' || *line == '\0') {
            continue;
        }

        if (strcmp(line, "redis") == 0) {
            limiter = &fleet;
            continue;
        }

        pointer = strstr(line, " => ");
        assert_non_null(pointer);
        *pointer = '\0';
        pointer += 4;

        detail = strstr(pointer, ": ");
        assert_non_null(detail);
        *detail = '\0';
        detail += 2;

        text = strchr(line, ' ');

        if (text) {
            *text++ = '\0';
        }

        case_json(json, line, text ? text : "");
        failed += check_bad(limiter, json, pointer, detail);
        n++;
    }

    fclose(file);
    print_message("%zu cases\n", n);
    assert_int_equal(failed, 0);
    assert_true(limiter == &fleet && n > 250);
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


/* A document with one override. */
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
    ngx_rl_policy_t  *policy;

    size_t failed = 0;

    for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        ngx_uint_t wrong = (fits[i].problem[0] != '\0');
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

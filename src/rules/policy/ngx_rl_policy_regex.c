/*
 * The last step of a policy: its regular expressions. nginx has one memory
 * pool for those that it compiles, so that is done in the event loop, some at a
 * time.
 */

#include "ngx_rl_policy.h"

/*
 * Bytes of all compiled expressions of a document. One of some characters may
 * take 50 KB.
 */
#define NGX_RL_REGEX_MAX      (4 * 1024 * 1024)

/* before an expression: its newline is nothing that a path has */
#if (NGX_PCRE2)
#define NGX_RL_REGEX_NEWLINE  "(*NUL)"
#else
#define NGX_RL_REGEX_NEWLINE  "(*CRLF)"   /* all that PCRE has */
#endif

#define NGX_RL_REGEX_DOTALL   "(?s)"

#if (NGX_PCRE)

/*
 * A path is one line, whatever bytes a client puts into it: "." matches each of
 * them, and "$" only the end. Both texts end with a zero, to which older
 * libraries read.
 */
static ngx_int_t
ngx_rl_regex_line(const ngx_str_t *text, ngx_pool_t *pool, ngx_str_t *line,
    ngx_str_t *rest)
{
    u_char  *p, *last;
    size_t   verbs, len;

    /* "(*UTF)" and the like stand first */

    for (verbs = 0; verbs + 1 < text->len; verbs = p + 1 - text->data) {

        p = text->data + verbs;

        if (p[0] != '(' || p[1] != '*') {
            break;
        }

        p = ngx_strlchr(p, text->data + text->len, ')');
        if (p == NULL) {
            break;
        }
    }

    len = sizeof(NGX_RL_REGEX_NEWLINE NGX_RL_REGEX_DOTALL);

    p = ngx_pnalloc(pool, 2 * text->len + len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    rest->data = p;
    rest->len = text->len;
    last = ngx_cpymem(p, text->data, text->len);
    *last++ = '\0';

    line->data = last;
    last = ngx_cpymem(last, NGX_RL_REGEX_NEWLINE,
                      sizeof(NGX_RL_REGEX_NEWLINE) - 1);
    last = ngx_cpymem(last, text->data, verbs);
    last = ngx_cpymem(last, NGX_RL_REGEX_DOTALL,
                      sizeof(NGX_RL_REGEX_DOTALL) - 1);
    last = ngx_cpymem(last, text->data + verbs, text->len - verbs);
    line->len = last - line->data;
    *last = '\0';

    return NGX_OK;
}


/*
 * The text is all that nginx has of it. The rule must not be skipped then. Each
 * of these stands where no expression can put it.
 */
static ngx_uint_t
ngx_rl_regex_no_memory(const ngx_str_t *err)
{
    size_t      len;
    ngx_uint_t  i;

    static const char  *begins[] = {
        "pcre2_compile() failed: failed to allocate heap memory",
        "pcre_compile() failed: failed to get memory"
    };

    static const char  ends[] = "\" compilation failed: no memory";

    for (i = 0; i < 2; i++) {
        len = ngx_strlen(begins[i]);

        if (err->len >= len && ngx_strncmp(err->data, begins[i], len) == 0) {
            return 1;
        }
    }

    len = sizeof(ends) - 1;

    return err->len >= len
           && ngx_strncmp(err->data + err->len - len, ends, len) == 0;
}


ngx_int_t
ngx_rl_rule_regex(ngx_rl_rule_t *rule, ngx_pool_t *pool, ngx_str_t *wrong)
{
    ngx_str_t            line, rest;
    ngx_regex_compile_t  rc;

    ngx_memzero(&rc, sizeof(ngx_regex_compile_t));

    rc.pattern = rule->regex_text;
    rc.pool = pool;
    rc.err = *wrong;

    if (rc.pattern.data[0] == '~') {
        rc.pattern.data++;
        rc.pattern.len--;

        if (rc.pattern.len && rc.pattern.data[0] == '*') {
            rc.options = NGX_REGEX_CASELESS;
            rc.pattern.data++;
            rc.pattern.len--;
        }
    }

    if (rc.pattern.len == 0) {
        ngx_str_set(wrong, "must not be empty behind \"~\"");
        return NGX_DECLINED;
    }

    if (ngx_rl_regex_line(&rc.pattern, pool, &line, &rest) != NGX_OK) {
        return NGX_ERROR;
    }

    rc.pattern = line;

    if (ngx_regex_compile(&rc) != NGX_OK && !ngx_rl_regex_no_memory(&rc.err)) {
        /* for a message without what was added; or the library is too old */

        rc.pattern = rest;
        rc.err = *wrong;

        (void) ngx_regex_compile(&rc);
    }

    if (rc.regex == NULL) {
        *wrong = rc.err;
        return ngx_rl_regex_no_memory(&rc.err) ? NGX_ERROR : NGX_DECLINED;
    }

    rule->regex = rc.regex;

    return NGX_OK;
}


/* As ngx_rl_rule_regex(), while the document's expressions fit. */
static ngx_int_t
ngx_rl_policy_regex(ngx_rl_policy_t *policy, ngx_rl_rule_t *rule,
    ngx_str_t *wrong)
{
    size_t     size;
    ngx_int_t  rc;

    if (policy->regex_bytes <= NGX_RL_REGEX_MAX) {

        rc = ngx_rl_rule_regex(rule, policy->rules.pool, wrong);
        if (rc != NGX_OK) {
            return rc;
        }

        size = 0;

#if (NGX_PCRE2)
        (void) pcre2_pattern_info(rule->regex, PCRE2_INFO_SIZE, &size);
#else
        (void) pcre_fullinfo(rule->regex->code, NULL, PCRE_INFO_SIZE, &size);
#endif

        policy->regex_bytes += size;
    }

    if (policy->regex_bytes <= NGX_RL_REGEX_MAX) {
        return NGX_OK;
    }

    rule->regex = NULL;
    ngx_str_set(wrong, "makes the compiled expressions of the document larger "
                       "than 4 MiB");

    return NGX_DECLINED;
}

#else

ngx_int_t
ngx_rl_rule_regex(ngx_rl_rule_t *rule, ngx_pool_t *pool, ngx_str_t *wrong)
{
    ngx_str_set(wrong, "must be null: this nginx is built without PCRE");

    return NGX_DECLINED;
}


static ngx_int_t
ngx_rl_policy_regex(ngx_rl_policy_t *policy, ngx_rl_rule_t *rule,
    ngx_str_t *wrong)
{
    return ngx_rl_rule_regex(rule, policy->rules.pool, wrong);
}

#endif


ngx_int_t
ngx_rl_policy_finish(ngx_rl_policy_t *policy, ngx_msec_t budget_ms,
    ngx_rl_problems_t *problems)
{
    u_char          buf[NGX_MAX_CONF_ERRSTR];
    u_char          text[sizeof("/rules//match/endpoint_regex")
                         + NGX_INT_T_LEN];
    uint64_t        since_us;
    ngx_int_t       rc;
    ngx_str_t       wrong, pointer;
    ngx_rl_rule_t  *rule, **rules;

    rules = policy->rules.elts;
    since_us = ngx_rl_clock_us();   /* nginx's own clock stands still */

    while (policy->finished < policy->rules.nelts) {
        rule = rules[policy->finished++];

        if (rule->regex_text.len == 0) {
            continue;
        }

        wrong = ngx_rl_str(buf, sizeof(buf));

        rc = ngx_rl_policy_regex(policy, rule, &wrong);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            pointer.data = text;
            pointer.len = ngx_sprintf(text, "/rules/%ui/match/endpoint_regex",
                                      rule->number - policy->nfixed)
                          - text;

            rule->skipped |= (problems == NULL);
            ngx_rl_problem(problems ? problems : &policy->skipped, &rule->id,
                           &pointer, "%V", &wrong);
        }

        if (ngx_rl_clock_us() - since_us >= budget_ms * 1000) {
            break;
        }
    }

    return (policy->finished < policy->rules.nelts) ? NGX_AGAIN : NGX_OK;
}

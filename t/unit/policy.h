/*
 * What the tests of policies share: a limiter with three rules of nginx.conf,
 * and, of nginx, what policies need.
 */

#ifndef POLICY_H_INCLUDED
#define POLICY_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "ngx_rl_subject.h"
#include "readings.h"

#define ngx_destroy_pool  test_destroy_pool
#include "nginx_text.h"
#undef ngx_destroy_pool

#define READINGS(path)  readings_of((path)->data, (path)->len, NULL)

static ngx_uint_t               destroyed;      /* pools */
static ngx_uint_t               compiled;       /* expressions */
static ngx_uint_t               caseless;
static ngx_log_t                log_nowhere;
volatile ngx_msec_t             ngx_current_msec;
static ngx_pool_t               cycle_pool;
static ngx_rl_limiter_t  limiter;


/* of nginx, what nginx_text.h has not */

void
ngx_destroy_pool(ngx_pool_t *pool)
{
    destroyed++;
    test_destroy_pool(pool);
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}


/*
 * An expression here is a text that a path contains; "(" does not compile, and
 * for "!" and "?" there is no memory. Before it stands that a path is one line.
 */
ngx_int_t
ngx_regex_compile(ngx_regex_compile_t *rc)
{
    static const char  line[] = "(*NUL)(?s)";

    u_char *text = rc->pattern.data;

    assert_int_equal(strlen((char *) text), rc->pattern.len);

    if (strncmp((char *) text, line, sizeof(line) - 1) == 0) {
        text += sizeof(line) - 1;
        compiled++;
        caseless += (rc->options & NGX_REGEX_CASELESS) != 0;
    }

    if (text[0] == '(') {
        if (text == rc->pattern.data) {
            ngx_str_set(&rc->err, "missing )");
        } else {
            ngx_str_set(&rc->err, "added");
        }

        return NGX_ERROR;
    }

    if (text[0] == '!') {
        ngx_str_set(&rc->err, "pcre2_compile() failed: failed to allocate heap "
                              "memory in \"!\"");
        return NGX_ERROR;
    }

    if (text[0] == '?') {
        ngx_str_set(&rc->err, "regex \"?\" compilation failed: no memory");
        return NGX_ERROR;
    }

    rc->regex = (ngx_regex_t *) text;

    return NGX_OK;
}


/* What an expression takes, in bytes. */
#if (NGX_PCRE2)
int
pcre2_pattern_info(const pcre2_code *code, uint32_t what, void *where)
{
    assert_int_equal(what, PCRE2_INFO_SIZE);
    *(size_t *) where = strlen((char *) code);

    return 0;
}
#else
int
pcre_fullinfo(const pcre *code, const pcre_extra *extra, int what, void *where)
{
    assert_int_equal(what, PCRE_INFO_SIZE);
    *(size_t *) where = 1;

    return 0;
}
#endif


#if (NGX_PCRE2)
ngx_int_t
ngx_regex_exec(ngx_regex_t *re, ngx_str_t *s, int *captures, ngx_uint_t size)
{
    (void) captures;
    (void) size;

    return memmem(s->data, s->len, re, strlen((char *) re))
           ? 1 : NGX_REGEX_NO_MATCHED;
}
#endif


static inline ngx_str_t
str(const char *text)
{
    ngx_str_t  s;

    s.data = (u_char *) text;
    s.len = strlen(text);

    return s;
}


static inline ngx_rl_rule_t *
rule_push(ngx_rl_policy_t *policy, const char *id)
{
    ngx_rl_rule_t  *rule;

    rule = ngx_pcalloc(policy->rules.pool, sizeof(ngx_rl_rule_t));
    assert_non_null(rule);

    rule->id = str(id);
    rule->key = str("$arg_k");
    rule->percent = 100;
    rule->cost = 1;
    rule->spec.tokens = 100;
    rule->spec.period_us = 60000000;
    assert_null(ngx_rl_limit_init(&rule->limit, &rule->spec));

    rule->number = policy->rules.nelts;

    ngx_rl_rule_t **entry = ngx_array_push(&policy->rules);
    assert_non_null(entry);
    *entry = rule;

    return rule;
}


/* A limiter with the rules "a", "b" and "c" in nginx.conf, b of priority 5. */
static inline int
setup(void **state)
{
    memset(&cycle_pool, 0, sizeof(cycle_pool));
    memset(&limiter, 0, sizeof(limiter));
    cycle_pool.log = &log_nowhere;
    destroyed = 0;
    compiled = 0;
    caseless = 0;

    limiter.zone.name = str("z");
    assert_non_null(ngx_rl_policy_base(&limiter, &cycle_pool));

    rule_push(limiter.base, "a");
    rule_push(limiter.base, "b")->priority = 5;
    rule_push(limiter.base, "c");

    assert_int_equal(ngx_rl_policy_complete(limiter.base), NGX_OK);

    return 0;
}


static inline int
teardown(void **state)
{
    while (cycle_pool.large) {
        ngx_pool_large_t *large = cycle_pool.large;
        cycle_pool.large = large->next;
        free(large->alloc);
        free(large);
    }

    return 0;
}


static inline ngx_rl_policy_t *
policy_make(void)
{
    ngx_rl_policy_t *policy = ngx_rl_policy_create(&limiter, &log_nowhere);
    assert_non_null(policy);
    policy->pool->log = &log_nowhere;

    return policy;
}

#define TEST_SETUP     setup
#define TEST_TEARDOWN  teardown

#endif /* POLICY_H_INCLUDED */

/*
 * What the tests of a document share: limiters that bear one, compiling it,
 * and what of the layer above a document meets.
 */

#ifndef DOCUMENT_H_INCLUDED
#define DOCUMENT_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <jansson.h>

#include "nginx_text.h"

#include "ngx_rl_document.h"
#include "ngx_rl_param.h"

#define M_GET   0x02
#define M_HEAD  0x04
#define M_POST  0x08

/* what the layer above was told last */
static ngx_str_t                 above_limit, above_cost;
static ngx_uint_t                above_prepared;

static ngx_log_t                 nowhere;
static ngx_rl_redis_t     redis;
static ngx_rl_rule_t      fixed, gold;   /* of nginx.conf */
static ngx_rl_limiter_t   alone, fleet;  /* without and with Redis */

static ngx_pool_t               *whole;   /* of these, while the test runs */

/* of the last document */
static ngx_pool_t               *pool;
static ngx_rl_problems_t  problems, warnings;
static ngx_uint_t                deny_all;


/* a variable that is not known has "unknown" in it */
static const char *
above_values(void *data, ngx_rl_rule_t *rule, const ngx_str_t *limit,
    const ngx_str_t *cost, ngx_pool_t *p, ngx_uint_t *which)
{
    (void) data;

    above_limit = *limit;
    above_cost = *cost;

    for (ngx_uint_t i = 0; i < rule->nparts; i++) {
        if (strstr((char *) rule->parts[i].data, "unknown")) {
            *which = NGX_RL_PARAM_ALL + i;
            return "a known variable";
        }
    }

    if (limit->len && strstr((char *) limit->data, "unknown")) {
        *which = NGX_RL_PARAM_LIMIT;
        return "a known variable";
    }

    if (cost->len && strstr((char *) cost->data, "unknown")) {
        *which = NGX_RL_PARAM_COST;
        return "a known variable";
    }

    if (rule->cost_end.len && strstr((char *) rule->cost_end.data, "unknown")) {
        *which = NGX_RL_PARAM_COST_END;
        return "a known variable";
    }

    rule->data = ngx_palloc(p, 1);

    return rule->data ? NULL : "";
}


static ngx_int_t
above_prepare(ngx_rl_rule_t *rule, ngx_pool_t *p)
{
    /* complete() was there before */

    assert_non_null(rule->policy);
    above_prepared++;

    return ngx_palloc(p, 1) ? NGX_OK : NGX_ERROR;
}


static ngx_uint_t
above_method(const u_char *name, size_t len)
{
    return (len == 3 && memcmp(name, "GET", 3) == 0) ? M_GET
           : (len == 4 && memcmp(name, "HEAD", 4) == 0) ? M_HEAD
           : (len == 4 && memcmp(name, "POST", 4) == 0) ? M_POST : 0;
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}


#if (NGX_PCRE)

ngx_int_t
ngx_regex_compile(ngx_regex_compile_t *rc)
{
    rc->regex = (ngx_regex_t *) rc;

    return NGX_OK;
}

#endif


/* Frees what the last document has left. */
static void
document_clear(void)
{
    if (pool) {
        ngx_destroy_pool(pool);
    }

    pool = ngx_create_pool(4096, &nowhere);
    assert_non_null(pool);
    assert_int_equal(ngx_rl_problems_init(&problems, pool), NGX_OK);
    assert_int_equal(ngx_rl_problems_init(&warnings, pool), NGX_OK);
    deny_all = 2;
}


static void
document_limiter(ngx_rl_limiter_t *limiter)
{
    ngx_str_set(&limiter->zone.name, "api");
    ngx_str_set(&limiter->zone.key, "$ratelimit_api_key");

    limiter->above.values = above_values;
    limiter->above.prepare = above_prepare;
    limiter->above.method = above_method;

    limiter->base = ngx_rl_policy_base(limiter, whole);
    assert_non_null(limiter->base);
    limiter->policy = limiter->base;

    ngx_str_set(&fixed.id, "conf");
    fixed.key = limiter->zone.key;
    fixed.percent = 100;
    fixed.spec.algorithm = NGX_RL_FIXED_WINDOW;
    fixed.spec.tokens = 10;
    fixed.spec.period_us = 60000000;
    assert_null(ngx_rl_limit_init(&fixed.limit, &fixed.spec));

    gold = fixed;
    ngx_str_set(&gold.id, "conf-shards");
    gold.shards = 2;

    ngx_rl_rule_t **entry = ngx_array_push(&limiter->base->rules);
    *entry = &fixed;
    entry = ngx_array_push(&limiter->base->rules);
    *entry = &gold;

    assert_int_equal(ngx_rl_policy_complete(limiter->base), NGX_OK);
}


static inline int
document_setup(void **state)
{
    ngx_rl_document_init();
    whole = ngx_create_pool(4096, &nowhere);
    assert_non_null(whole);

    ngx_str_set(&redis.secret, "secret");
    assert_int_equal(ngx_rl_redis_prepare(&redis), NGX_OK);
    fleet.redis = &redis;

    document_clear();
    document_limiter(&alone);
    document_limiter(&fleet);

    return 0;
}


static inline int
document_teardown(void **state)
{
    ngx_destroy_pool(pool);
    ngx_destroy_pool(whole);

    return 0;
}


/* A text in which "'" stands for the quotation mark, until the next one. */
static inline ngx_str_t
document_text(const char *text)
{
    ngx_str_t  all;

    document_clear();

    all.len = strlen(text);
    all.data = ngx_pnalloc(pool, all.len + 1);
    assert_non_null(all.data);
    memcpy(all.data, text, all.len + 1);

    for (u_char *p = all.data; *p; p++) {
        *p = (*p == '\'') ? '"' : *p;
    }

    return all;
}


/* Compiles a text: NULL leaves problems. */
static inline ngx_rl_policy_t *
document_compile(ngx_rl_limiter_t *limiter, const char *text)
{
    ngx_str_t all = document_text(text);

    return ngx_rl_document_compile(limiter, &all, &problems, &warnings,
                                   &nowhere);
}


/* Reads one that is to be stored; the tree may be kept. */
static inline ngx_rl_policy_t *
document_read(ngx_rl_limiter_t *limiter, const char *text, ngx_uint_t clear,
    json_t **tree)
{
    ngx_rl_policy_t  *policy;

    ngx_str_t all = document_text(text);
    json_t *root = ngx_rl_document_parse(&all, &problems);
    if (root == NULL) {
        return NULL;
    }

    policy = ngx_rl_document_read(limiter, root, clear, &problems,
                                  &warnings, &deny_all, NULL, &nowhere);
    if (tree) {
        *tree = root;

    } else {
        json_decref(root);
    }

    return policy;
}


static inline ngx_rl_policy_t *
document_written(ngx_rl_limiter_t *limiter, const char *text)
{
    return document_read(limiter, text, 1, NULL);
}


/* The first problem, or a place in the list of them. */
static inline const ngx_rl_problem_t *
document_problem(ngx_uint_t i)
{
    assert_true(i < problems.list.nelts);

    return (ngx_rl_problem_t *) problems.list.elts + i;
}


/* Compiles what must be right. */
static inline ngx_rl_policy_t *
document_good(ngx_rl_limiter_t *limiter, const char *text)
{
    ngx_rl_policy_t *policy = document_compile(limiter, text);

    if (policy == NULL) {
        fail_msg("%s\n%s: %s", text, document_problem(0)->pointer.data,
                 document_problem(0)->detail.data);
    }

    assert_int_equal(problems.n, 0);

    return policy;
}


static inline ngx_rl_rule_t *
document_rule(ngx_rl_policy_t *policy, const char *id)
{
    ngx_rl_rule_t  **rules;

    rules = policy->rules.elts;

    for (ngx_uint_t i = 0; i < policy->rules.nelts; i++) {
        if (rules[i]->id.len == strlen(id)
            && memcmp(rules[i]->id.data, id, strlen(id)) == 0)
        {
            return rules[i];
        }
    }

    fail_msg("there is no rule %s", id);

    return NULL;
}


static inline uint32_t
document_find(const ngx_rl_map_t *map, const char *key)
{
    u_char     digest[NGX_RL_MAP_KEY];
    ngx_str_t  text;

    text.data = (u_char *) key;
    text.len = strlen(key);
    ngx_rl_policy_digest(&text, digest);

    return ngx_rl_map_get(map, digest);
}


static inline void
same_text(ngx_str_t text, const char *expected)
{
    if (text.len != strlen(expected)
        || memcmp(text.data, expected, text.len) != 0)
    {
        fail_msg("\"%.*s\" is not \"%s\"", (int) text.len, (char *) text.data,
                 expected);
    }
}

#define GROUP_SETUP     document_setup
#define GROUP_TEARDOWN  document_teardown

#endif /* DOCUMENT_H_INCLUDED */

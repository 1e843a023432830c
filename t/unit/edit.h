/*
 * What the tests of editing share: an edit to run, and, of nginx and of what
 * reads documents, as much as an edit needs. The reader here is a small one:
 * it knows rules with params and tiers, tier_of, the lists and overrides, and
 * that a key in the clear becomes its digest.
 */

#ifndef EDIT_H_INCLUDED
#define EDIT_H_INCLUDED

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <jansson.h>
#include <openssl/evp.h>

#include "ngx_ratelimit_edit.h"
#include "ngx_ratelimit_document_json.h"

#define VERSION  41
#define NOW      1795000000   /* 2026-11-18T...Z */

static ngx_log_t                log_nowhere;
static ngx_pool_t               pool;
static ngx_ratelimit_limiter_t  limiter;
static ngx_ratelimit_policy_t   policies[64];
static ngx_uint_t               npolicies, nreleased;
static ngx_pool_t               policy_pool;
static void                    *blocks[100000];
static ngx_uint_t               nblocks;


/* nginx */

void *
ngx_palloc(ngx_pool_t *p, size_t size)
{
    (void) p;
    assert_true(nblocks < 100000);

    return blocks[nblocks++] = malloc(size + 1);
}


void *
ngx_pnalloc(ngx_pool_t *p, size_t size)
{
    return ngx_palloc(p, size);
}


void *
ngx_array_push(ngx_array_t *a)
{
    assert_true(a->nelts < NGX_RATELIMIT_MAX_PROBLEMS);

    return (u_char *) a->elts + a->size * a->nelts++;
}


u_char *
ngx_cpystrn(u_char *dst, u_char *src, size_t n)
{
    for ( /* void */ ; n > 1 && *src; n--) {
        *dst++ = *src++;
    }

    *dst = '\0';

    return dst;
}


ngx_int_t
ngx_atoi(u_char *line, size_t n)
{
    ngx_int_t  value;

    for (value = 0; n--; line++) {
        if (*line < '0' || *line > '9') {
            return NGX_ERROR;
        }

        value = value * 10 + (*line - '0');
    }

    return value;
}


ngx_int_t
ngx_hextoi(u_char *line, size_t n)
{
    char  text[3] = { (char) line[0], (char) line[1], 0 }, *end;
    long  value;

    assert_int_equal(n, 2);
    value = strtol(text, &end, 16);

    return (*end == '\0') ? value : NGX_ERROR;
}


u_char *
ngx_hex_dump(u_char *dst, u_char *src, size_t len)
{
    while (len--) {
        dst += sprintf((char *) dst, "%02x", *src++);
    }

    return dst;
}


/* "%uz", "%V", "%s" */
static u_char *
format(u_char *p, const char *text, va_list args)
{
    ngx_str_t  *v;

    for ( /* void */ ; *text; text++) {

        if (*text != '%') {
            *p++ = (u_char) *text;

        } else if (text[1] == 'V') {
            v = va_arg(args, ngx_str_t *);
            p = ngx_cpymem(p, v->data, v->len);
            text++;

        } else if (text[1] == 's') {
            p += sprintf((char *) p, "%s", va_arg(args, char *));
            text++;

        } else {
            assert_memory_equal(text, "%uz", 3);
            p += sprintf((char *) p, "%zu", va_arg(args, size_t));
            text += 2;
        }
    }

    return p;
}


u_char *
ngx_sprintf(u_char *buf, const char *text, ...)
{
    va_list  args;

    va_start(args, text);
    buf = format(buf, text, args);
    va_end(args);

    return buf;
}


/* problems and policies */

ngx_int_t
ngx_ratelimit_problems_init(ngx_ratelimit_problems_t *problems, ngx_pool_t *p)
{
    problems->pool = p;
    problems->n = 0;
    problems->list.nelts = 0;
    problems->list.size = sizeof(ngx_ratelimit_problem_t);
    problems->list.elts = ngx_palloc(p, NGX_RATELIMIT_MAX_PROBLEMS
                                        * sizeof(ngx_ratelimit_problem_t));

    return NGX_OK;
}


void
ngx_ratelimit_problem(ngx_ratelimit_problems_t *problems,
    const ngx_str_t *pointer, const char *detail, ...)
{
    u_char                    text[1024];
    va_list                   args;
    ngx_ratelimit_problem_t  *problem;

    if (problems->n++ >= NGX_RATELIMIT_MAX_PROBLEMS) {
        return;
    }

    va_start(args, detail);
    *format(text, detail, args) = '\0';
    va_end(args);

    problem = ngx_array_push(&problems->list);
    problem->pointer.len = pointer->len;
    problem->pointer.data = ngx_palloc(&pool, pointer->len);
    memcpy(problem->pointer.data, pointer->data, pointer->len);
    problem->pointer.data[pointer->len] = '\0';
    problem->detail.len = strlen((char *) text);
    problem->detail.data = ngx_palloc(&pool, problem->detail.len);
    strcpy((char *) problem->detail.data, (char *) text);
}


/* a policy that its last user has released has such a pool */
void
ngx_destroy_pool(ngx_pool_t *p)
{
    assert_ptr_equal(p, &policy_pool);
    nreleased++;
}


int
ngx_ratelimit_glob_wild(const u_char *glob, size_t len)
{
    return memchr(glob, '*', len) != NULL;
}


/* those that end with their "*" */
int
ngx_ratelimit_glob_match(const u_char *glob, size_t glob_len,
    const u_char *text, size_t len)
{
    return glob[glob_len - 1] == '*' && len >= glob_len - 1
           && memcmp(glob, text, glob_len - 1) == 0;
}


/* the reader */

static void
wrong(ngx_ratelimit_problems_t *problems, const char *detail,
    const char *pointer, ...)
{
    char       text[512];
    va_list    args;
    ngx_str_t  place;

    va_start(args, pointer);
    place.len = vsnprintf(text, sizeof(text), pointer, args);
    va_end(args);

    place.data = (u_char *) text;
    ngx_ratelimit_problem(problems, &place, detail);
}


json_t *
ngx_ratelimit_document_parse(const ngx_str_t *text,
    ngx_ratelimit_problems_t *problems)
{
    json_t        *value;
    json_error_t   error;

    value = json_loadb((char *) text->data, text->len,
                       JSON_REJECT_DUPLICATES|JSON_DECODE_ANY, &error);
    if (value == NULL) {
        wrong(problems, "is no JSON", "");
    }

    return value;
}


ngx_int_t
ngx_ratelimit_document_write(const json_t *root, ngx_pool_t *p,
    ngx_str_t *text)
{
    char  *dump;

    dump = json_dumps(root, JSON_COMPACT|JSON_ENCODE_ANY);
    assert_non_null(dump);

    text->len = strlen(dump) + 1;
    text->data = ngx_palloc(p, text->len);
    (void) sprintf((char *) text->data, "%s\n", dump);
    free(dump);

    return NGX_OK;
}


ngx_str_t
ngx_ratelimit_document_key(const ngx_str_t *key,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY])
{
    u_char        digest[EVP_MAX_MD_SIZE];
    char          text[NGX_RATELIMIT_DOCUMENT_KEY + 1], *p;
    ngx_str_t     stored;
    unsigned int  len, i;

    if (key->len > 7 && memcmp(key->data, "sha256:", 7) == 0) {

        if (key->len != NGX_RATELIMIT_DOCUMENT_KEY) {
            return *key;
        }

        for (i = 0; i < NGX_RATELIMIT_DOCUMENT_KEY; i++) {
            buf[i] = ngx_tolower(key->data[i]);
        }

        stored.data = buf;
        stored.len = NGX_RATELIMIT_DOCUMENT_KEY;

        return stored;
    }

    EVP_Digest(key->data, key->len, digest, &len, EVP_sha256(), NULL);
    p = text + sprintf(text, "sha256:");

    for (i = 0; i < len; i++) {
        p += sprintf(p, "%02x", digest[i]);
    }

    memcpy(buf, text, NGX_RATELIMIT_DOCUMENT_KEY);
    stored.data = buf;
    stored.len = NGX_RATELIMIT_DOCUMENT_KEY;

    return stored;
}


/* "@<seconds since the epoch>" */
ngx_int_t
ngx_ratelimit_document_time(const ngx_str_t *text, time_t *time)
{
    *time = ngx_atoi(text->data + 1, text->len - 1);

    return (*text->data == '@') ? NGX_OK : NGX_DECLINED;
}


static json_t *
hashed(json_t *value)
{
    u_char     buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_str_t  text;

    text.data = (u_char *) json_string_value(value);
    text.len = json_string_length(value);

    if (!memchr(text.data, '*', text.len)) {
        text = ngx_ratelimit_document_key(&text, buf);
    }

    return json_stringn((char *) text.data, text.len);
}


static void
read_keys(json_t *parent, const char *name)
{
    json_t      *keys, *value, *key, *digest, *next;
    const char  *member;

    keys = json_object_get(parent, name);

    if (!json_is_object(keys)) {
        return;
    }

    next = json_object();

    json_object_foreach(keys, member, value) {
        key = json_string(member);
        digest = hashed(key);
        json_object_set(next, json_string_value(digest), value);
        json_decref(digest);
        json_decref(key);
    }

    json_object_set_new(parent, name, next);
}


static void
read_list(json_t *root, const char *name, ngx_uint_t clear,
    ngx_ratelimit_problems_t *problems)
{
    size_t   i;
    json_t  *list, *value;

    list = json_object_get(root, name);

    if (list && !json_is_array(list)) {
        wrong(problems, "must be an array", "/%s", name);
    }

    json_array_foreach(list, i, value) {
        if (!json_is_string(value)) {
            wrong(problems, "must be a text", "/%s/%zu", name, i);

        } else if (!clear) {
            json_array_set_new(list, i, hashed(value));
        }
    }
}


static void
read_rule(json_t *rule, size_t i, int newer, ngx_uint_t clear,
    ngx_ratelimit_problems_t *problems, ngx_ratelimit_problems_t *warnings)
{
    json_t      *value, *params, *members;
    const char  *name;

    if (!json_is_string(json_object_get(rule, "id"))) {
        wrong(problems, "must be a text", "/rules/%zu/id", i);
    }

    json_object_foreach(rule, name, value) {
        if (!strstr("id params tiers override shards", name)) {
            wrong(newer ? warnings : problems, "is unknown", "/rules/%zu/%s",
                  i, name);
        }
    }

    params = json_object_get(rule, "params");
    value = json_object_get(params, "capacity");

    if (value && !(json_number_value(value) > 0)) {
        wrong(problems, "must be > 0", "/rules/%zu/params/capacity", i);
    }

    json_object_foreach(json_object_get(rule, "tiers"), name, members) {
        value = json_object_get(members, "limit");

        if (!(json_number_value(value) > 0)) {
            wrong(problems, "must be > 0", "/rules/%zu/tiers/%s/limit", i,
                  strcmp(name, "a/b") ? name : "a~1b");
        }
    }

    json_object_foreach(json_object_get(rule, "override"), name, members) {
        if (!(json_number_value(json_object_get(members, "limit")) > 0)) {
            wrong(problems, "must be > 0", "/rules/%zu/override/%s/limit", i,
                  name);
        }
    }

    if (!clear) {
        read_keys(rule, "override");
    }
}


static void
read_tier_of(json_t *root, ngx_uint_t clear,
    ngx_ratelimit_problems_t *problems)
{
    json_t      *tier_of, *value;
    const char  *name;

    tier_of = json_object_get(root, "tier_of");

    json_object_foreach(json_object_get(tier_of, "keys"), name, value) {
        if (!json_is_string(value)) {
            wrong(problems, "must be a text", "/tier_of/keys/%s", name);
        }
    }

    json_object_foreach(tier_of, name, value) {
        if (!strstr("keys patterns", name)) {
            wrong(problems, "is unknown", "/tier_of/%s", name);
        }
    }

    if (!clear) {
        read_keys(tier_of, "keys");
    }
}


/* nothing is wrong with a document before it is changed */
ngx_ratelimit_policy_t *
ngx_ratelimit_document_compile(ngx_ratelimit_limiter_t *l,
    const ngx_str_t *text, ngx_ratelimit_problems_t *problems,
    ngx_ratelimit_problems_t *warnings, ngx_log_t *log)
{
    (void) l;
    (void) text;
    (void) problems;
    (void) warnings;
    (void) log;

    return NULL;
}


ngx_ratelimit_policy_t *
ngx_ratelimit_document_read_next(ngx_ratelimit_limiter_t *l, json_t *root,
    ngx_uint_t clear, ngx_ratelimit_problems_t *problems,
    ngx_ratelimit_problems_t *warnings, ngx_uint_t *deny_all,
    const ngx_ratelimit_problems_t *known, ngx_log_t *log)
{
    (void) l;
    (void) root;
    (void) clear;
    (void) problems;
    (void) warnings;
    (void) deny_all;
    (void) known;
    (void) log;

    return NULL;
}


ngx_ratelimit_policy_t *
ngx_ratelimit_document_read(ngx_ratelimit_limiter_t *l, json_t *root,
    ngx_uint_t clear, ngx_ratelimit_problems_t *problems,
    ngx_ratelimit_problems_t *warnings, ngx_uint_t *deny_all, ngx_log_t *log)
{
    int                      newer;
    size_t                   i;
    json_t                  *rules, *rule, *overrides, *value;
    ngx_ratelimit_policy_t  *policy;

    assert_ptr_equal(l, &limiter);
    assert_ptr_equal(log, &log_nowhere);

    value = json_object_get(root, "format");
    newer = json_is_string(value) && strcmp(json_string_value(value), "1.0");

    value = json_object_get(root, "version");

    if (value && !json_is_number(value)) {
        wrong(problems, "must be a number", "/version");
    }

    rules = json_object_get(root, "rules");
    overrides = json_object_get(root, "overrides");

    json_array_foreach(rules, i, rule) {
        read_rule(rule, i, newer, clear, problems, warnings);
    }

    json_array_foreach(overrides, i, rule) {
        value = json_object_get(rule, "key");

        if (!json_is_string(value)) {
            wrong(problems, "must be a text", "/overrides/%zu/key", i);

        } else if (!clear) {
            json_object_set_new(rule, "key", hashed(value));
        }

        value = json_object_get(rule, "rule");

        if (json_is_string(value)
            && !strstr("orders gone", json_string_value(value)))
        {
            wrong(problems, "is no rule", "/overrides/%zu/rule", i);
        }
    }

    *deny_all = 0;

    json_array_foreach(json_object_get(root, "blacklist"), i, value) {
        if (json_is_string(value) && !strcmp(json_string_value(value), "*")) {
            *deny_all = 1;
        }
    }

    read_tier_of(root, clear, problems);
    read_list(root, "whitelist", clear, problems);
    read_list(root, "blacklist", clear, problems);

    if (problems->n) {
        return NULL;
    }

    policy = &policies[npolicies++ % 64];
    policy->refs = 1;
    policy->pool = &policy_pool;

    return policy;
}


/* an edit */

static ngx_ratelimit_edit_t  edit;


static ngx_str_t
str(const char *text)
{
    ngx_str_t  s;

    s.data = (u_char *) (text ? text : "");
    s.len = strlen((char *) s.data);

    return s;
}


static void
edit_begin(const char *base)
{
    static char  kept[4096];

    pool.log = &log_nowhere;

    if (base) {
        assert_true(strlen(base) < sizeof(kept));
        base = strcpy(kept, base);
    }

    memset(&edit, 0, sizeof(edit));
    edit.pool = &pool;
    edit.limiter = &limiter;
    edit.base = str(base);
    edit.version = base ? VERSION : 0;
    edit.now = NOW;
    memset(edit.random, 0xab, sizeof(edit.random));
}


/* the rest of edit is as a test wants it */
static void
edit_run(ngx_ratelimit_edit_resource_e resource,
    ngx_ratelimit_edit_method_e method, const char *name, const char *query,
    const char *body)
{
    ngx_uint_t  made, released;

    edit.resource = resource;
    edit.method = method;
    edit.name = str(name);
    edit.query = str(query);
    edit.body = str(body);

    ngx_str_set(&edit.part, "");
    made = npolicies;
    released = nreleased;

    ngx_ratelimit_edit(&edit);

    /* a policy comes with a document alone, or with what was validated */

    if (edit.policy) {
        assert_true(edit.status <= NGX_RATELIMIT_EDIT_GONE);
        assert_int_equal(edit.policy->refs, 1);
        assert_int_equal(npolicies, made + 1);

    } else {
        assert_int_equal(npolicies - made, nreleased - released);
    }

    if (edit.document.len) {
        assert_non_null(edit.policy);
        assert_int_equal(edit.document.data[edit.document.len - 1], '\n');
    }
}


static void
edit_end(void)
{
    while (nblocks) {
        free(blocks[--nblocks]);
    }
}


/* a text is this JSON, in this order, "'" for "\"", and a line end */
static void
is_json(const ngx_str_t *text, const char *expected)
{
    char    wanted[4096], found[4096], *p;

    assert_true(strlen(expected) < sizeof(wanted) - 2);
    assert_true(text->len < sizeof(found));

    for (p = wanted; *expected; expected++) {
        *p++ = (*expected == '\'') ? '"' : *expected;
    }

    *p++ = '\n';
    *p = '\0';

    memcpy(found, text->data, text->len);
    found[text->len] = '\0';

    assert_string_equal(found, wanted);
}


/* "'" is "\"" in what a test writes */
static const char *
json(const char *text)
{
    static char  buffers[8][4096];
    static int   n;
    char        *p, *buffer;

    if (text == NULL) {
        return NULL;
    }

    buffer = p = buffers[n++ % 8];
    assert_true(strlen(text) < sizeof(buffers[0]));

    for ( /* void */ ; *text; text++) {
        *p++ = (*text == '\'') ? '"' : *text;
    }

    *p = '\0';

    return buffer;
}


/* the only problem */
static void
is_problem(const char *pointer, const char *detail)
{
    ngx_ratelimit_problem_t  *problem;

    assert_int_equal(edit.status, NGX_RATELIMIT_EDIT_INVALID);
    assert_int_equal(edit.problems.n, 1);
    assert_int_equal(edit.document.len, 0);

    problem = edit.problems.list.elts;
    assert_string_equal((char *) problem->pointer.data, pointer);
    assert_string_equal((char *) problem->detail.data, detail);
}

#endif /* EDIT_H_INCLUDED */

/*
 * Any name, rule and API key of a change through the endpoint: they find what
 * is there, or do not, and what they make of the document is one.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "../unit/document.h"

#include "ngx_rl_edit.h"

#define BASE                                                                  \
    "{\"version\":41,\"rules\":["                                             \
        "{\"id\":\"a\",\"params\":{\"limit\":10,\"window\":60},"              \
            "\"tiers\":{\"pro\":{\"limit\":20}}},"                            \
        "{\"id\":\"b\",\"params\":{\"limit\":10,\"window\":60}}],"            \
    "\"tier_of\":{\"keys\":{\"sk_1\":\"pro\"},\"hosts\":{}},"                 \
    "\"overrides\":[{\"id\":\"w\",\"type\":\"multiplicative\",\"value\":2,"   \
        "\"reason\":\"x\"}],"                                                 \
    "\"deny\":[\"sk_2\"],\"allow\":[\"sk_3*\"]}\n"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


/* nginx */

ngx_int_t
ngx_atoi(u_char *line, size_t n)
{
    ngx_int_t  value;

    if (n == 0 || n > 18) {
        return NGX_ERROR;
    }

    for (value = 0; n--; line++) {
        if (*line < '0' || *line > '9') {
            return NGX_ERROR;
        }

        value = value * 10 + (*line - '0');
    }

    return value;
}


/* what a body of this resource may be */
static const char *
fuzz_body(ngx_rl_edit_resource_e resource)
{
    switch (resource) {

    case NGX_RL_EDIT_DOCUMENT:
    case NGX_RL_EDIT_VALIDATE:
        return BASE;

    case NGX_RL_EDIT_TIER_ASSIGNMENTS:
        return "{\"keys\":{\"sk_1\":null,\"sk_4\":\"pro\"}}";

    case NGX_RL_EDIT_TIER_ASSIGNMENT:
        return "{\"tier\":\"pro\"}";

    case NGX_RL_EDIT_ALLOW:
    case NGX_RL_EDIT_DENY:
        return "\"sk_9\"";

    case NGX_RL_EDIT_OVERRIDES:
    case NGX_RL_EDIT_OVERRIDE:
        return "{\"type\":\"multiplicative\",\"value\":3,\"reason\":\"y\"}";

    case NGX_RL_EDIT_TIER_LIMITS:
        return "{\"limit\":5}";

    default:
        return "{\"params\":{\"limit\":5,\"window\":60}}";
    }
}


/* not a byte more than it has: the sanitizer sees what is read behind it */
static ngx_str_t
fuzz_copy(const uint8_t *data, size_t len)
{
    ngx_str_t  text;

    text.len = len;
    text.data = ngx_pnalloc(pool, len);
    assert_non_null(text.data);
    memcpy(text.data, data, len);

    return text;
}


/* what the endpoint lets in as a name or a rule */
static int
fuzz_name_valid(const ngx_str_t *name)
{
    size_t   i;
    json_t  *text;

    for (i = 0; i < name->len; i++) {
        if (name->data[i] < ' ' || name->data[i] == 0x7f) {
            return 0;
        }
    }

    text = json_stringn((char *) name->data, name->len);
    json_decref(text);

    return text != NULL;
}


static int
fuzz_named(ngx_rl_edit_resource_e resource)
{
    return resource == NGX_RL_EDIT_RULE
           || resource == NGX_RL_EDIT_TIER_LIMITS
           || resource == NGX_RL_EDIT_TIER_ASSIGNMENT
           || resource == NGX_RL_EDIT_OVERRIDE;
}


/* What the change has made is a document of the next version. */
static void
fuzz_made(ngx_rl_edit_t *edit)
{
    json_t           *root;
    ngx_rl_policy_t  *policy;

    root = ngx_rl_document_parse(&edit->document, &problems);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "version")), 42);

    policy = ngx_rl_document_read(&fleet, root, 0, &problems, &warnings,
                                  &deny_all, NULL, &nowhere);
    assert_int_equal(problems.n, 0);
    ngx_rl_policy_release(policy);
    json_decref(root);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char     *body;
    const uint8_t  *query;
    ngx_rl_edit_t   edit;

    static int             ready;

    if (!ready) {
        ready = 1;
        document_setup(NULL);
    }

    if (size < 2) {
        return 0;
    }

    document_clear();

    memset(&edit, 0, sizeof(edit));
    edit.pool = pool;
    edit.limiter = &fleet;
    edit.resource = data[0] % (NGX_RL_EDIT_DENY + 1);
    edit.method = data[1] % (NGX_RL_EDIT_DELETE + 1);
    edit.version = 41;
    edit.now = 1795000000;

    data += 2;
    size -= 2;
    query = memchr(data, '?', size);

    edit.name = fuzz_copy(data, query ? (size_t) (query - data) : size);

    if (!fuzz_name_valid(&edit.name)
        || fuzz_named(edit.resource) != (edit.name.len != 0))
    {
        return 0;
    }

    if (query && (query - data) % 2) {
        edit.key = fuzz_copy(query + 1, data + size - query - 1);

    } else if (query) {
        edit.rule = fuzz_copy(query + 1, data + size - query - 1);
    }

    if (!fuzz_name_valid(&edit.rule)) {
        return 0;
    }

    edit.base = fuzz_copy((const uint8_t *) BASE, sizeof(BASE) - 1);

    if (edit.method != NGX_RL_EDIT_GET && edit.method != NGX_RL_EDIT_DELETE) {
        body = fuzz_body(edit.resource);
        edit.body = fuzz_copy((const uint8_t *) body, strlen(body));
    }

    ngx_rl_edit(&edit);

    assert_int_not_equal(edit.status, NGX_RL_EDIT_ERROR);

    if (edit.document.len) {
        assert_int_not_equal(edit.method, NGX_RL_EDIT_GET);
        fuzz_made(&edit);
    }

    if (edit.policy) {
        ngx_rl_policy_release(edit.policy);
    }

    return 0;
}

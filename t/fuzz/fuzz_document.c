/*
 * Any text as a document: it is refused, or compiles, and what is stored of it
 * then compiles, too, and is stored as the same.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "../unit/document.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


/* Reads, and writes: 1, or 0 where it is refused. */
static int
fuzz_read(ngx_rl_limiter_t *limiter, const ngx_str_t *text, ngx_str_t *stored)
{
    json_t           *root;
    ngx_rl_policy_t  *policy;

    root = ngx_rl_document_parse(text, &problems);

    if (root == NULL) {
        assert_true(problems.n > 0);
        return 0;
    }

    policy = ngx_rl_document_read(limiter, root, 0, &problems,
                                  &warnings, &deny_all, NULL, &nowhere);
    assert_true((policy == NULL) == (problems.n > 0));

    if (policy) {
        ngx_rl_policy_release(policy);
        assert_int_equal(ngx_rl_document_write(root, pool, stored), NGX_OK);
    }

    json_decref(root);

    return policy != NULL;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char           *copy;
    ngx_str_t         text, stored, again;
    ngx_rl_policy_t  *policy;

    static int   ready;

    if (!ready) {
        ready = 1;
        document_setup(NULL);
    }

    document_clear();

    /* not a byte more: the sanitizer sees what is read */

    copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy + 1, data, size);
    text.data = copy + 1;
    text.len = size;

    if (fuzz_read(&fleet, &text, &stored)) {
        assert_int_equal(memchr(stored.data, '\n', stored.len)
                         == stored.data + stored.len - 1, 1);
        assert_int_equal(fuzz_read(&fleet, &stored, &again), 1);
        assert_int_equal(stored.len, again.len);
        assert_memory_equal(stored.data, again.data, again.len);
    }

    /* of what is stored a part may be skipped; nothing else is wrong then */

    document_clear();
    policy = ngx_rl_document_compile(&fleet, &text, &problems,
                                     &warnings, &nowhere);
    assert_true((policy == NULL) == (problems.n > 0));

    if (policy) {
        ngx_rl_policy_release(policy);
    }

    free(copy);

    return 0;
}

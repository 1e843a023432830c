/* Every document that docs/rules.md shows compiles. */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "document.h"


static void
test_docs(void **state)
{
    char        *page, *p, *end;
    FILE        *file;
    size_t       len, n;

    (void) state;

    file = fopen(DOCS, "r");
    assert_non_null(file);
    page = malloc(1024 * 1024);
    assert_non_null(page);
    len = fread(page, 1, 1024 * 1024 - 1, file);
    page[len] = '\0';
    fclose(file);

    n = 0;

    for (p = page; (p = strstr(p, "\n```json\n")) != NULL; p = end + 4) {
        p += 9;
        end = strstr(p, "\n```");
        assert_non_null(end);
        *end = '\0';

        ngx_ratelimit_policy_release(document_good(&alone, p));
        n++;
    }

    assert_true(n > 5);
    print_message("%zu documents\n", n);
    free(page);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_docs)
    };

    return cmocka_run_group_tests(tests, document_setup, document_teardown);
}

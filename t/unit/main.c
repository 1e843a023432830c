/*
 * main() of a unit test: runs the functions test_*() of its file, in their
 * order. The Makefile lists them in UNIT_TESTS and includes the file before
 * this one. The file may define what runs around each of them, or around all.
 */

#ifndef TEST_SETUP
#define TEST_SETUP      NULL
#endif

#ifndef TEST_TEARDOWN
#define TEST_TEARDOWN   NULL
#endif

#ifndef GROUP_SETUP
#define GROUP_SETUP     NULL
#endif

#ifndef GROUP_TEARDOWN
#define GROUP_TEARDOWN  NULL
#endif

#define TEST(name)                                                            \
    cmocka_unit_test_setup_teardown(name, TEST_SETUP, TEST_TEARDOWN),


int
main(void)
{
    const struct CMUnitTest  tests[] = {
#include UNIT_TESTS
    };

#ifdef UNIT_H_INCLUDED
    seed_init();
#endif

    return cmocka_run_group_tests(tests, GROUP_SETUP, GROUP_TEARDOWN);
}

/* The store of one process: what is current, what is history, who leads. */

#include "store.h"

#define MAX  1000


static void
test_empty(void **state)
{
    uint64_t                      generation, version, id;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_store_entry_t   entry;

    (void) state;

    store = store_make(MAX);

    assert_int_equal(ngx_ratelimit_store_generation(store), 0);
    version = id = 1;
    ngx_ratelimit_store_version(store, &version, &id);
    assert_int_equal(version, 0);
    assert_int_equal(id, 0);

    generation = 1;
    assert_int_equal(ngx_ratelimit_store_read(store, 0, &entry, &generation,
                                              NULL),
                     NGX_DECLINED);
    assert_int_equal(generation, 0);
    assert_int_equal(ngx_ratelimit_store_read(store, 1, &entry, &generation,
                                              NULL),
                     NGX_DECLINED);
    assert_int_equal(ngx_ratelimit_store_read_all(store, &entry, &generation,
                                                  NULL),
                     NGX_DECLINED);

    assert_int_equal(ngx_ratelimit_store_init(store, mapped - 1, MAX, MAX),
                     NGX_ERROR);
    store_free(store);
}


static void
test_publish(void **state)
{
    uint64_t                      generation, version, id;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_store_entry_t   entry;

    (void) state;

    store = store_make(MAX);

    assert_int_equal(publish(store, 5, 100), NGX_OK);
    assert_int_equal(ngx_ratelimit_store_generation(store), 1);
    assert_int_equal(publish(store, 6, MAX), NGX_OK);
    assert_int_equal(ngx_ratelimit_store_generation(store), 2);

    ngx_ratelimit_store_version(store, &version, &id);
    assert_int_equal(version, 6);
    assert_int_equal(id, 60);

    assert_int_equal(ngx_ratelimit_store_read(store, 0, &entry, &generation,
                                              NULL),
                     NGX_OK);
    assert_int_equal(generation, 2);
    assert_int_equal(entry.version, 6);
    assert_int_equal(entry.id, 60);
    assert_int_equal(entry.text.len, MAX);
    assert_int_equal(record_whole(entry.text.data, MAX, &version), MAX);
    ngx_free(entry.text.data);

    assert_int_equal(ngx_ratelimit_store_read(store, 5, &entry, &generation,
                                              NULL),
                     NGX_OK);
    assert_int_equal(generation, 2);
    assert_int_equal(entry.version, 5);
    assert_int_equal(entry.id, 50);
    assert_int_equal(entry.text.len, 100);
    ngx_free(entry.text.data);

    assert_int_equal(ngx_ratelimit_store_read(store, 4, &entry, &generation,
                                              NULL),
                     NGX_DECLINED);
    assert_int_equal(generation, 2);

    /* too large: nothing has changed */
    assert_int_equal(publish(store, 7, MAX + 1), NGX_DECLINED);
    assert_int_equal(ngx_ratelimit_store_generation(store), 2);
    assert_string_equal(versions(store), "6 5 ");

    allocations = 0;
    assert_int_equal(ngx_ratelimit_store_read(store, 0, &entry, &generation,
                                              NULL),
                     NGX_ERROR);
    store_free(store);
}


static void
test_expected(void **state)
{
    uint64_t                      found;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_store_entry_t   entry;

    (void) state;

    store = store_make(MAX);

    found = 77;
    assert_int_equal(publish_id(store, 1, 1, 50, 3, KEEP, &found), NGX_BUSY);
    assert_int_equal(found, 0);
    assert_int_equal(publish_id(store, 1, 1, 50, 0, KEEP, &found), NGX_OK);
    assert_int_equal(publish_id(store, 1, 2, 50, 0, KEEP, &found), NGX_BUSY);
    assert_int_equal(found, 1);
    assert_int_equal(ngx_ratelimit_store_generation(store), 1);
    assert_int_equal(publish_id(store, 2, 2, 50, 1, KEEP, &found), NGX_OK);
    assert_int_equal(publish_id(store, 9, 2, 50, ANY, KEEP, &found), NGX_OK);
    assert_string_equal(versions(store), "9 2 1 ");

    /* another id of the expected version */
    found = 0;
    entry = (ngx_ratelimit_store_entry_t) { 10, 3, { 0, (u_char *) "" } };
    assert_int_equal(ngx_ratelimit_store_publish(store, &entry, 9, 7, KEEP,
                                                 &found), NGX_BUSY);
    assert_int_equal(found, 9);
    assert_int_equal(ngx_ratelimit_store_publish(store, &entry, 9, 2, KEEP,
                                                 &found), NGX_OK);

    store_free(store);
}


static void
test_history(void **state)
{
    char                   *p, expected[1000];
    uint64_t                i, n, found;
    ngx_ratelimit_store_t  *store;

    (void) state;

    store = store_make(MAX);

    /* 3,000 bytes with the current one */
    publish(store, 1, 300);
    publish(store, 2, 300);
    publish(store, 3, 300);
    assert_string_equal(versions(store), "3 2 1 ");
    publish(store, 4, 500);
    publish(store, 5, 50);
    publish(store, 6, MAX);
    assert_string_equal(versions(store), "6 5 4 3 2 1 ");
    publish(store, 7, MAX);
    assert_string_equal(versions(store), "7 6 5 4 3 ");
    publish(store, 8, MAX);
    assert_string_equal(versions(store), "8 7 6 ");
    publish(store, 9, 100);
    assert_string_equal(versions(store), "9 8 7 ");

    /* around the ring, at all offsets */
    for (i = 10; i < 1000; i++) {
        n = HEAD + i * 13 % 71;
        assert_int_equal(publish(store, i, n), NGX_OK);
        (void) versions(store);
    }

    store_free(store);

    /* and as many records */
    store = store_make(MAX * MAX);

    for (i = 1; i <= 3 * NGX_RATELIMIT_STORE_HISTORY; i++) {
        publish(store, i, HEAD + i);
        p = expected;

        for (n = i; n > 0 && i - n <= NGX_RATELIMIT_STORE_HISTORY; n--) {
            p += sprintf(p, "%u ", (unsigned) n);
        }

        assert_string_equal(versions(store), expected);
    }

    store_free(store);

    /* the one before is dropped, its own history is not */
    store = store_make(MAX);
    publish(store, 1, 50);
    publish(store, 2, 50);
    assert_int_equal(publish_id(store, 3, 33, 50, ANY, DROP, &found), NGX_OK);
    assert_string_equal(versions(store), "3 1 ");
    assert_int_equal(ngx_ratelimit_store_id(store, 3, &found), NGX_OK);
    assert_int_equal(found, 33);
    assert_int_equal(ngx_ratelimit_store_id(store, 1, &found), NGX_OK);
    assert_int_equal(ngx_ratelimit_store_id(store, 2, &found), NGX_DECLINED);
    publish(store, 4, 50);
    assert_string_equal(versions(store), "4 3 1 ");

    /* published once more: it is not its own history */
    publish(store, 4, 50);
    assert_string_equal(versions(store), "4 3 1 ");
    publish(store, 4, 50);
    publish(store, 5, 50);
    assert_string_equal(versions(store), "5 4 3 1 ");

    /* a record of the same version that is another one is */
    assert_int_equal(publish_id(store, 5, 7, 60, ANY, KEEP, &found), NGX_OK);
    assert_int_equal(ngx_ratelimit_store_generation(store), 8);
    publish(store, 6, 50);
    publish(store, 2, 50);
    store_free(store);

    /* of another lineage: nothing is left of the history */
    store = store_make(MAX);
    publish(store, 14, 50);
    publish(store, 15, 50);
    assert_int_equal(publish_id(store, 2, 7, 50, ANY, ANEW, &found), NGX_OK);
    assert_string_equal(versions(store), "2 ");
    publish(store, 3, 50);
    assert_string_equal(versions(store), "3 2 ");
    store_free(store);
}


static void
test_same_version(void **state)
{
    uint64_t                      found, generation;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_store_entry_t   entry;

    (void) state;

    store = store_make(MAX);
    publish_id(store, 1, 1, 50, ANY, KEEP, &found);
    publish_id(store, 1, 2, 60, ANY, KEEP, &found);

    assert_int_equal(ngx_ratelimit_store_read(store, 1, &entry, &generation,
                                              NULL),
                     NGX_OK);
    assert_int_equal(entry.id, 2);
    ngx_free(entry.text.data);

    assert_int_equal(ngx_ratelimit_store_read_all(store, &entry, &generation,
                                                  NULL),
                     NGX_OK);
    assert_int_equal(entry.id, 2);
    assert_int_equal(entry.text.len, 60 + 50);
    ngx_free(entry.text.data);

    /* and of those in the history the newer one */
    publish_id(store, 2, 3, 70, ANY, KEEP, &found);
    assert_int_equal(ngx_ratelimit_store_read(store, 1, &entry, &generation,
                                              NULL),
                     NGX_OK);
    assert_int_equal(entry.id, 2);
    ngx_free(entry.text.data);
    store_free(store);
}


/* Another state file: nothing is written there. */
static void
test_file(void **state)
{
    ngx_str_t               file;
    ngx_ratelimit_store_t  *store;

    (void) state;

    store = store_make(MAX);
    ngx_str_set(&file, "one");
    ngx_ratelimit_store_set_file(store, &file);
    store->written = 7;
    store->error = ENOSPC;

    ngx_ratelimit_store_set_file(store, &file);
    assert_int_equal(store->written, 7);
    assert_int_equal(store->error, ENOSPC);

    ngx_str_set(&file, "two");
    ngx_ratelimit_store_set_file(store, &file);
    assert_int_equal(store->written, 0);
    assert_int_equal(store->error, 0);

    store_free(store);
}


/* A single process leads, and holds no lock that a reload unmaps. */
static void
test_single(void **state)
{
    pid_t                   pid;
    ngx_ratelimit_store_t  *store;

    (void) state;

    ngx_process = NGX_PROCESS_SINGLE;
    store = store_make(MAX);
    assert_true(ngx_ratelimit_store_lead(store));
    assert_true(ngx_ratelimit_store_lead(store));
    ngx_ratelimit_store_leave(store);
    assert_true(ngx_ratelimit_store_lead(store));
    publish(store, 1, 50);

    pid = spawn();

    if (pid == 0) {
        ngx_process = NGX_PROCESS_WORKER;
        ngx_pid = getpid();
        _exit(ngx_ratelimit_store_lead(store) ? 0 : 1);
    }

    reap(pid, 0);
    store_free(store);

    ngx_process = NGX_PROCESS_WORKER;
    store = store_make(MAX);
    assert_true(ngx_ratelimit_store_lead(store));
    publish(store, 1, 50);
    ngx_ratelimit_store_leave(store);
    store_free(store);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_same_version),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_single),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The store of one process: what is current, what is history, who leads. */

#include "store.h"

#define MAX  1000

static ngx_rl_store_t  *store;


static int
setup(void **state)
{
    store = store_make(MAX);

    return 0;
}


static int
teardown(void **state)
{
    store_free(store);

    return 0;
}


static void
assert_current(uint64_t version, uint64_t id)
{
    uint64_t  v, i;

    ngx_rl_store_version(store, &v, &i);
    assert_int_equal(v, version);
    assert_int_equal(i, id);
}


static void
assert_record(uint64_t version, uint64_t got, uint64_t id, uint64_t generation,
    size_t len)
{
    ngx_rl_store_entry_t  entry;

    assert_int_equal(get(store, version, &entry), NGX_OK);
    assert_int_equal(entry.version, got);
    assert_int_equal(entry.id, id);
    assert_int_equal(entry.generation, generation);
    assert_int_equal(entry.text.len, len);
}


static void
test_empty(void **state)
{
    ngx_rl_store_entry_t  entry;

    assert_int_equal(ngx_rl_store_generation(store), 0);
    assert_current(0, 0);
    assert_false(ngx_rl_store_has(store, 0, 0));
    assert_int_equal(get(store, 0, &entry), NGX_DECLINED);
    assert_int_equal(get(store, 1, &entry), NGX_DECLINED);
    assert_int_equal(get(store, NGX_RL_STORE_ALL, &entry), NGX_DECLINED);

    assert_int_equal(ngx_rl_store_init(store, mapped - 1, MAX, MAX), NGX_ERROR);
}


static void
test_publish(void **state)
{
    ngx_pool_t            *pool;
    ngx_rl_store_entry_t   entry;

    assert_int_equal(publish(store, 5, 100), NGX_OK);
    assert_int_equal(ngx_rl_store_generation(store), 1);
    assert_int_equal(publish(store, 6, MAX), NGX_OK);
    assert_int_equal(ngx_rl_store_generation(store), 2);

    assert_current(6, 60);
    assert_record(0, 6, 60, 2, MAX);
    assert_record(5, 5, 50, 1, 100);
    assert_int_equal(get(store, 4, &entry), NGX_DECLINED);

    /* too large: nothing has changed */
    assert_int_equal(publish(store, 7, MAX + 1), NGX_DECLINED);
    assert_int_equal(ngx_rl_store_generation(store), 2);
    assert_string_equal(versions(store), "6 5 ");

    pool = ngx_create_pool(4096, NULL);
    allocations = 0;
    assert_int_equal(ngx_rl_store_read(store, 0, pool, &entry), NGX_ERROR);
    ngx_destroy_pool(pool);
}


static void
test_expected(void **state)
{
    size_t  i;

    static const struct {
        uint64_t   version, expected, expected_id;
        ngx_int_t  rc;
    } steps[] = {
        { 1, 3, 0, NGX_BUSY },
        { 1, 0, 0, NGX_OK },
        { 1, 0, 0, NGX_BUSY },
        { 2, 1, 10, NGX_OK },
        { 9, ANY, 0, NGX_OK },
        { 10, 9, 7, NGX_BUSY },       /* another id of that version */
        { 10, 9, 90, NGX_OK },
    };

    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        assert_int_equal(publish_at(store, steps[i].version,
                                    10 * steps[i].version, 50,
                                    steps[i].expected, steps[i].expected_id,
                                    KEEP), steps[i].rc);
    }

    assert_string_equal(versions(store), "10 9 2 1 ");
}


/* Bounded by bytes, 3,000 with the current one, and by records. */
static void
test_bounds(void **state)
{
    char      *p, expected[1000];
    size_t     i;
    uint64_t   v, n;

    static const struct {
        size_t       len;
        const char  *versions;
    } steps[] = {
        { 300, "1 " }, { 300, "2 1 " }, { 300, "3 2 1 " }, { 500, "4 3 2 1 " },
            { 50, "5 4 3 2 1 " }, { MAX, "6 5 4 3 2 1 " }, { MAX,
            "7 6 5 4 3 " }, { MAX, "8 7 6 " }, { 100, "9 8 7 " }
    };

    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        publish(store, i + 1, steps[i].len);
        assert_string_equal(versions(store), steps[i].versions);
    }

    /* around the ring, at all offsets */
    for (v = 10; v < 1000; v++) {
        assert_int_equal(publish(store, v, HEAD + v * 13 % 71), NGX_OK);
        (void) versions(store);
    }

    store_free(store);
    store = store_make(MAX * MAX);

    for (v = 1; v <= 3 * NGX_RL_STORE_HISTORY; v++) {
        publish(store, v, HEAD + v);
        p = expected;

        for (n = v; n > 0 && v - n <= NGX_RL_STORE_HISTORY; n--) {
            p += sprintf(p, "%u ", (unsigned) n);
        }

        assert_string_equal(versions(store), expected);
    }
}


/* What becomes of the current record when another one is published. */
static void
test_history(void **state)
{
    size_t  i;

    static const struct {
        uint64_t                      version, id;
        ngx_rl_blob_history_e  history;
        const char                   *versions;
    } steps[] = {
        { 1, 10, KEEP, "1 " }, { 2, 20, KEEP, "2 1 " },

        /* the one before is dropped, its own history is not */
        { 3, 33, DROP, "3 1 " },
        { 4, 40, KEEP, "4 3 1 " },

        /* published once more: it is not its own history */
        { 4, 40, KEEP, "4 3 1 " },
        { 4, 40, KEEP, "4 3 1 " },
        { 5, 50, KEEP, "5 4 3 1 " },

        /* of another lineage: nothing is left of the history */
        { 2, 7, ANEW, "2 " },
        { 3, 30, KEEP, "3 2 " }
    };

    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        publish_at(store, steps[i].version, steps[i].id, 50, ANY, 0,
                   steps[i].history);
        assert_string_equal(versions(store), steps[i].versions);

        if (steps[i].history == DROP) {
            assert_true(ngx_rl_store_has(store, 3, 33));
            assert_false(ngx_rl_store_has(store, 3, 30));
            assert_true(ngx_rl_store_has(store, 1, 10));
            assert_false(ngx_rl_store_has(store, 2, 20));
        }
    }
}


/* Another record of the same version: the newer one is found. */
static void
test_same_version(void **state)
{
    publish_at(store, 1, 1, 50, ANY, 0, KEEP);
    publish_at(store, 1, 2, 60, ANY, 0, KEEP);
    assert_record(1, 1, 2, 2, 60);
    assert_record(NGX_RL_STORE_ALL, 1, 2, 2, 60 + 50);

    publish_at(store, 2, 3, 70, ANY, 0, KEEP);
    assert_record(1, 1, 2, 2, 60);
}


/* Another state file: nothing is written there. */
static void
test_file(void **state)
{
    size_t  i;

    static const struct {
        ngx_str_t  name;
        uint64_t   written;
    } files[] = {
        { ngx_string("one"), 0 }, { ngx_string("one"), 7 }, { ngx_string("two"),
            0 }, { ngx_string("one"), 0 }
    };

    for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        ngx_rl_store_set_file(store, &files[i].name);
        assert_int_equal(store->written, files[i].written);
        assert_int_equal(store->error, files[i].written ? ENOSPC : 0);
        store->written = 7;
        store->error = ENOSPC;
    }
}


/* A single process leads, too, and has no life. */
static void
test_single(void **state)
{
    assert_int_equal(ngx_rl_life, NGX_RL_LIFE_NONE);
    assert_true(ngx_rl_store_lead(store));
    assert_true(ngx_rl_store_lead(store));
    ngx_rl_store_leave(store);
    assert_true(ngx_rl_store_lead(store));
    publish(store, 1, 50);
}


#define TEST(name)  cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest  tests[] = {
        TEST(test_empty), TEST(test_publish), TEST(test_expected),
            TEST(test_bounds), TEST(test_history), TEST(test_same_version),
            TEST(test_file), TEST(test_single), };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

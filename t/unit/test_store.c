/* The store of one process: what is current, what was, who leads. */

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

#define TEST_SETUP     setup
#define TEST_TEARDOWN  teardown


static void
assert_current(uint64_t version, uint64_t id)
{
    uint64_t  v, i;

    ngx_rl_store_version(store, &v, &i);
    assert_int_equal(v, version);
    assert_int_equal(i, id);
}


static void
assert_record(uint64_t version, uint64_t id, uint64_t generation, size_t len)
{
    ngx_rl_store_entry_t  entry;

    assert_int_equal(get(store, &entry), NGX_OK);
    assert_int_equal(entry.version, version);
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
    assert_false(ngx_rl_store_had(store, 0, 0));
    assert_int_equal(get(store, &entry), NGX_DECLINED);

    assert_int_equal(ngx_rl_store_init(store, mapped - 1, MAX), NGX_ERROR);
}


static void
test_publish(void **state)
{
    ngx_rl_store_entry_t  entry;

    assert_int_equal(publish(store, 5, 100), NGX_OK);
    assert_int_equal(ngx_rl_store_generation(store), 1);
    assert_record(5, 50, 1, 100);
    assert_int_equal(publish(store, 6, MAX), NGX_OK);
    assert_int_equal(ngx_rl_store_generation(store), 2);

    assert_current(6, 60);
    assert_record(6, 60, 2, MAX);

    /* too large: nothing has changed */
    assert_int_equal(publish(store, 7, MAX + 1), NGX_DECLINED);
    assert_int_equal(ngx_rl_store_generation(store), 2);
    assert_int_equal(current(store), 6);

    ngx_pool_t *pool = ngx_create_pool(4096, NULL);
    allocations = 0;
    assert_int_equal(ngx_rl_store_read(store, pool, &entry), NGX_ERROR);
    ngx_destroy_pool(pool);
}


static void
test_expected(void **state)
{
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

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        assert_int_equal(publish_at(store, steps[i].version,
                                    10 * steps[i].version, 50,
                                    steps[i].expected, steps[i].expected_id),
                         steps[i].rc);
    }

    assert_int_equal(current(store), 10);
}


/* Around the ring, at all offsets, and with records of all sizes. */
static void
test_sizes(void **state)
{
    for (uint64_t v = 1; v < 1000; v++) {
        assert_int_equal(publish(store, v, HEAD + v * 13 % 71), NGX_OK);
        assert_int_equal(current(store), v);
    }

    for (uint64_t v = 1000; v < 2000; v++) {
        assert_int_equal(publish(store, v, v % 3 ? MAX : HEAD + v % 500),
                         NGX_OK);
        assert_int_equal(current(store), v);
    }
}


/* The last of those that were current are known by version and id. */
static void
test_past(void **state)
{
    uint64_t  v;

    for (v = 1; v <= 3 * NGX_RL_STORE_PAST; v++) {
        publish(store, v, HEAD);
    }

    v--;
    assert_true(ngx_rl_store_had(store, v, 10 * v));
    assert_false(ngx_rl_store_had(store, v, 10 * v + 1));
    assert_true(ngx_rl_store_had(store, v - 1, 10 * (v - 1)));
    assert_false(ngx_rl_store_had(store, v - 1, 10 * v));

    v = v + 1 - NGX_RL_STORE_PAST;
    assert_true(ngx_rl_store_had(store, v, 10 * v));
    v--;
    assert_false(ngx_rl_store_had(store, v, 10 * v));
}


/* Another record of the same version: the newer one counts. */
static void
test_same_version(void **state)
{
    publish_at(store, 1, 1, 50, ANY, 0);
    publish_at(store, 1, 2, 60, ANY, 0);
    assert_record(1, 2, 2, 60);
}


/* Another state file: nothing is written there. */
static void
test_file(void **state)
{
    static const struct {
        ngx_str_t  name;
        uint64_t   written;
    } files[] = {
        { ngx_string("one"), 0 }, { ngx_string("one"), 7 }, { ngx_string("two"),
            0 }, { ngx_string("one"), 0 }
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
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
    assert_true(ngx_rl_lock_lead(&store->leader));
    assert_true(ngx_rl_lock_lead(&store->leader));
    ngx_rl_lock_leave(&store->leader);
    assert_true(ngx_rl_lock_lead(&store->leader));
    publish(store, 1, 50);
}

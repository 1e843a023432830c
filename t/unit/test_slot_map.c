/*
 * The slot map: what is taken into it, its one form, what is read from the
 * shared, and the right to ask.
 */

#include "slot_map.h"


static int
add(ngx_ratelimit_slot_map_t *map, int64_t first, int64_t last,
    const char *host, int64_t port)
{
    return ngx_ratelimit_slot_map_add(map, first, last,
                                      (const u_char *) host, strlen(host),
                                      port);
}


static void
test_add(void **state)
{
    char                       host[NGX_RATELIMIT_SLOT_MAP_HOST + 2];
    ngx_ratelimit_slot_map_t  *map;

    (void) state;

    map = map_new();

    assert_int_equal(add(map, 0, 16383, "10.0.0.1", 6379), 1);
    assert_int_equal(add(map, 5, 5, "Redis-2.Example_a", 65535), 1);
    assert_int_equal(add(map, 6, 6, "redis-2.example_a", 65535), 1);
    assert_int_equal(add(map, 7, 7, "::1", 1), 1);
    assert_int_equal(map->nnodes, 3);
    assert_int_equal(map->owner[4], 1);
    assert_int_equal(map->owner[5], 2);
    assert_int_equal(map->owner[6], 2);
    assert_int_equal(map->owner[7], 3);
    assert_int_equal(map->owner[16383], 1);
    assert_memory_equal(map->nodes[1].host, "redis-2.example_a", 17);

    assert_int_equal(add(map, -1, 5, "a", 1), 0);
    assert_int_equal(add(map, 0, 16384, "a", 1), 0);
    assert_int_equal(add(map, 6, 5, "a", 1), 0);
    assert_int_equal(add(map, 0, 0, "a", 0), 0);
    assert_int_equal(add(map, 0, 0, "a", 65536), 0);
    assert_int_equal(add(map, 0, 0, "a", INT64_MIN), 0);
    assert_int_equal(add(map, INT64_MIN, INT64_MAX, "a", 1), 0);
    assert_int_equal(add(map, 0, 0, "", 1), 0);
    assert_int_equal(add(map, 0, 0, "?", 1), 0);
    assert_int_equal(add(map, 0, 0, "a b", 1), 0);
    assert_int_equal(add(map, 0, 0, "a\n", 1), 0);
    assert_int_equal(add(map, 0, 0, "\xc3\xa4", 1), 0);
    assert_int_equal(map->nnodes, 3);
    assert_int_equal(map->owner[0], 1);

    memset(host, 'a', sizeof(host));
    host[NGX_RATELIMIT_SLOT_MAP_HOST + 1] = '\0';
    assert_int_equal(add(map, 0, 0, host, 1), 0);
    host[NGX_RATELIMIT_SLOT_MAP_HOST] = '\0';
    assert_int_equal(add(map, 0, 0, host, 1), 1);

    free(map);
}


/* the same slots over and over */

static void
test_given(void **state)
{
    int                        i;
    ngx_ratelimit_slot_map_t  *map;

    (void) state;

    map = map_new();

    for (i = 0; i < 4; i++) {
        assert_int_equal(add(map, 0, 16383, "a", 1), 1);
    }

    assert_int_equal(add(map, 0, 0, "b", 1), 0);
    assert_int_equal(map->nnodes, 1);
    assert_int_equal(map->owner[0], 1);

    ngx_ratelimit_slot_map_finish(map);
    assert_int_equal(map->nslots, 16384);

    free(map);
}


static void
test_too_many(void **state)
{
    int                        i;
    ngx_ratelimit_slot_map_t  *map;

    (void) state;

    map = map_new();

    for (i = 0; i < NGX_RATELIMIT_SLOT_MAP_NODES; i++) {
        assert_int_equal(add(map, i, i, "a", i + 1), 1);
    }

    /* those that are there may get more, others none */

    assert_int_equal(add(map, i, i, "a", i + 1), 0);
    assert_int_equal(map->owner[i], 0);
    assert_int_equal(add(map, i, i, "a", 1), 1);

    ngx_ratelimit_slot_map_finish(map);
    assert_int_equal(map->nnodes, NGX_RATELIMIT_SLOT_MAP_NODES);
    assert_int_equal(map->nslots, NGX_RATELIMIT_SLOT_MAP_NODES + 1);

    free(map);
}


/* The same owners, whatever the order they were named in. */
static void
test_finish(void **state)
{
    int                        i, n, at, order[16384];
    char                       host[32];
    uint64_t                   random;
    ngx_ratelimit_slot_map_t  *map, *first;

    (void) state;

    map = map_new();
    first = map_new();

    for (n = 0; n < 50; n++) {
        random = n + 1;
        ngx_ratelimit_slot_map_clear(map);

        /* overwritten whole: not to be seen */
        assert_int_equal(add(map, 0, 99, "gone", 1 + n), 1);

        for (i = 0; i < 1000; i++) {
            order[i] = i;
        }

        for (i = 0; i < 1000; i++) {
            random = mix(random);
            at = order[i];
            order[i] = order[random % 1000];
            order[random % 1000] = at;
        }

        for (i = 0; i < 1000; i++) {
            snprintf(host, sizeof(host), "h%d", (int) (mix(order[i]) % 70));
            assert_int_equal(add(map, order[i], order[i], host, 7), 1);
        }

        ngx_ratelimit_slot_map_finish(map);
        assert_int_equal(map->nslots, 1000);

        for (i = 0; i < 1000; i++) {
            snprintf(host, sizeof(host), "h%d", (int) (mix(i) % 70));
            assert_in_range(map->owner[i], 1, map->nnodes);
            assert_string_equal(
                (char *) map->nodes[map->owner[i] - 1].host, host);
        }

        if (n == 0) {
            memcpy(first, map, sizeof(*map));
        }

        assert_memory_equal(first, map, sizeof(*map));
    }

    free(map);
    free(first);
}


static void
test_publish(void **state)
{
    int                          i;
    uint64_t                     head, seen;
    ngx_ratelimit_slot_map_t    *map, *read;
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();
    map = map_new();
    read = map_new();

    assert_int_equal(ngx_ratelimit_slot_shared_head(shared), 0);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 0);
    assert_int_equal(head, 0);

    for (i = 1; i < 20; i++) {
        map_version(map, i);
        seen = head;
        assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &head),
                         1);
        assert_int_not_equal(head, seen);
        assert_int_equal(head >> 32, i);
        assert_int_equal(ngx_ratelimit_slot_shared_head(shared), head);

        memset(read, 0xff, sizeof(*read));
        assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &seen),
                         1);
        assert_int_equal(seen, head);
        assert_memory_equal(read, map, sizeof(*map));

        /* the same once more is no other map */
        assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &seen),
                         1);
        assert_int_equal(seen, head);
        assert_int_equal(ngx_ratelimit_slot_shared_head(shared), head);
    }

    /* who has not seen the last one changes nothing, and learns of it */

    seen = 0;
    map_version(map, 30);
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &seen), 0);
    assert_int_equal(seen, head);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &seen), 1);
    assert_int_equal(map_is(read), 19);

    /* generations begin anew without a 0 */

    atomic_store(&shared->head, (uint64_t) UINT32_MAX << 32 | 5);
    seen = ngx_ratelimit_slot_shared_head(shared);
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &seen), 1);
    assert_int_equal(seen >> 32, 2);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 1);
    assert_int_equal(map_is(read), 30);

    free(map);
    free(read);
    shared_free(shared);
}


/* Whatever stands on the shared, it is refused or it is what was written. */
static void
test_broken(void **state)
{
    size_t                       i;
    uint64_t                     head, was;
    ngx_ratelimit_slot_map_t    *map, *read;
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();
    map = map_new();
    read = map_new();
    head = 0;

    map_version(map, 1);
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &head), 1);

    for (i = 0; i < map_words(map); i++) {
        was = atomic_load(&shared->words[1][i]);

        atomic_store(&shared->words[1][i], was ^ (uint64_t) 1 << i % 64);
        assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head),
                         0);
        assert_int_not_equal(head, 0);

        atomic_store(&shared->words[1][i], i % 2 ? UINT64_MAX : 0);
        assert_true(ngx_ratelimit_slot_shared_read(shared, read, &head) == 0
                    || was == (i % 2 ? UINT64_MAX : 0));

        atomic_store(&shared->words[1][i], was);
    }

    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 1);

    /* a publisher mends it */

    atomic_store(&shared->words[1][9], UINT64_MAX);
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &head), 1);
    assert_int_equal(head >> 32, 2);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 1);
    assert_int_equal(map_is(read), 1);

    /* whole, but no map: numbers out of range, a host that is none */

    map_version(map, 3);
    map->owner[77] = (uint16_t) (map->nnodes + 1);
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &head), 1);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 0);

    map_version(map, 3);
    map->nodes[1].host[0] = ' ';
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &head), 1);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 0);

    map_version(map, 3);
    map->nodes[1].port = 0;
    assert_int_equal(ngx_ratelimit_slot_shared_publish(shared, map, &head), 1);
    assert_int_equal(ngx_ratelimit_slot_shared_read(shared, read, &head), 0);

    free(map);
    free(read);
    shared_free(shared);
}


static void
test_right(void **state)
{
    ngx_ratelimit_slot_shared_t  *shared;

    (void) state;

    shared = shared_new();

    /* nobody has asked yet, even at the clock's begin */
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 10, 1000), 0);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 10, 1000), 1000);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 510, 1000), 500);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 1009, 1000), 1);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 1010, 1000), 0);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 1011, 100), 99);

    /* another process reads the clock a moment later */
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 1000, 1000), 1000);

    /* who holds it may ask later, and counts from then */
    assert_int_equal(ngx_ratelimit_slot_shared_keep(shared, 1010, 1900), 1);
    assert_int_equal(ngx_ratelimit_slot_shared_keep(shared, 1010, 1950), 0);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 2100, 1000), 800);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 2900, 1000), 0);
    assert_int_equal(ngx_ratelimit_slot_shared_keep(shared, 1900, 2900), 0);

    /* a clock that began anew does not wait for the old one */
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 5, 1000), 1000);
    atomic_store(&shared->asked, 4000000000);
    assert_int_equal(ngx_ratelimit_slot_shared_take(shared, 5, 1000), 0);

    shared_free(shared);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The slot map: what is taken into it, and its one form. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ngx_rl_slot_map.h"


static uint64_t
mix(uint64_t n)
{
    n = (n + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    n = (n ^ n >> 29) * 0x94d049bb133111eb;

    return n ^ n >> 32;
}


static ngx_rl_slot_map_t *
map_new(void)
{
    ngx_rl_slot_map_t *map = calloc(1, sizeof(ngx_rl_slot_map_t));
    assert_non_null(map);

    return map;
}


static int
add_id(ngx_rl_slot_map_t *map, int64_t first, int64_t last, const char *host,
    int64_t port, char id)
{
    u_char  ids[NGX_RL_SLOT_MAP_ID];

    memset(ids, id, sizeof(ids));

    return ngx_rl_slot_map_add(map, first, last, (const u_char *) host,
                               strlen(host), port, ids);
}


static int
add(ngx_rl_slot_map_t *map, int64_t first, int64_t last,
    const char *host, int64_t port)
{
    return add_id(map, first, last, host, port, 0);
}


static void
test_add(void **state)
{
    char                host[NGX_RL_SLOT_MAP_HOST + 2];

    static const struct {
        int64_t      first;
        int64_t      last;
        const char  *host;
        int64_t      port;
    } bad[] = {
        { -1, 5, "a", 1 }, { 0, 16384, "a", 1 }, { 6, 5, "a", 1 }, { INT64_MIN,
            INT64_MAX, "a", 1 }, { 0, 0, "a", 0 }, { 0, 0, "a", 65536 }, { 0, 0,
            "a", INT64_MIN }, { 0, 0, "", 1 }, { 0, 0, "?", 1 }, { 0, 0, "a b",
            1 }, { 0, 0, "a\n", 1 }, { 0, 0, "\xc3\xa4", 1 }
    };

    ngx_rl_slot_map_t *map = map_new();

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

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(add(map, bad[i].first, bad[i].last, bad[i].host,
                             bad[i].port), 0);
    }

    assert_int_equal(map->nnodes, 3);
    assert_int_equal(map->owner[0], 1);

    memset(host, 'a', sizeof(host));
    host[NGX_RL_SLOT_MAP_HOST + 1] = '\0';
    assert_int_equal(add(map, 0, 0, host, 1), 0);
    host[NGX_RL_SLOT_MAP_HOST] = '\0';
    assert_int_equal(add(map, 0, 0, host, 1), 1);

    free(map);
}


/* Nodes keep their ids; one host of two nodes has none. */
static void
test_ids(void **state)
{
    ngx_rl_slot_map_t *map = map_new();

    assert_int_equal(add_id(map, 9, 9, "a", 1, 'a'), 1);
    assert_int_equal(add_id(map, 1, 1, "b", 1, 'b'), 1);
    assert_int_equal(add_id(map, 2, 2, "b", 1, 'b'), 1);
    assert_int_equal(add_id(map, 3, 3, "c", 1, 'c'), 1);
    assert_int_equal(add_id(map, 4, 4, "c", 1, 'd'), 1);
    assert_int_equal(add_id(map, 5, 5, "c", 1, 'c'), 1);
    ngx_rl_slot_map_finish(map);

    assert_int_equal(map->nnodes, 3);
    assert_int_equal(map->nodes[0].id[39], 'b');
    assert_int_equal(map->nodes[1].id[0], 0);
    assert_int_equal(map->nodes[2].id[0], 'a');

    free(map);
}


/* the same slots over and over */

static void
test_given(void **state)
{
    ngx_rl_slot_map_t *map = map_new();

    for (int i = 0; i < 4; i++) {
        assert_int_equal(add(map, 0, 16383, "a", 1), 1);
    }

    assert_int_equal(add(map, 0, 0, "b", 1), 0);
    assert_int_equal(map->nnodes, 1);
    assert_int_equal(map->owner[0], 1);

    ngx_rl_slot_map_finish(map);
    assert_int_equal(map->nslots, 16384);

    free(map);
}


static void
test_too_many(void **state)
{
    int  i;

    ngx_rl_slot_map_t *map = map_new();

    for (i = 0; i < NGX_RL_SLOT_MAP_NODES; i++) {
        assert_int_equal(add(map, i, i, "a", i + 1), 1);
    }

    /* those that are there may get more, others none */

    assert_int_equal(add(map, i, i, "a", i + 1), 0);
    assert_int_equal(map->owner[i], 0);
    assert_int_equal(add(map, i, i, "a", 1), 1);

    ngx_rl_slot_map_finish(map);
    assert_int_equal(map->nnodes, NGX_RL_SLOT_MAP_NODES);
    assert_int_equal(map->nslots, NGX_RL_SLOT_MAP_NODES + 1);

    free(map);
}


/* The same owners, whatever the order they were named in. */
static void
test_finish(void **state)
{
    int                 i, n, at, order[16384];
    char                host[32];

    ngx_rl_slot_map_t *map = map_new();
    ngx_rl_slot_map_t *first = map_new();

    for (n = 0; n < 50; n++) {
        uint64_t random = n + 1;
        memset(map, 0, sizeof(*map));

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

        ngx_rl_slot_map_finish(map);
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

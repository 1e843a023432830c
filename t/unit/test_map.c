/* A map of digests against a list. */

#include "unit.h"

#include "ngx_rl_match.h"

#define N  20000


/* what a key is of n; some begin alike */
static const u_char *
key(uint32_t n)
{
    static u_char  out[NGX_RL_MAP_KEY];

    uint32_t x = (n % 16) ? n * 2654435761u : 7;

    for (size_t i = 0; i < sizeof(out); i++) {
        out[i] = (u_char) (x >> (i % 4 * 8));
    }

    memcpy(out + 8, &n, sizeof(n));

    return out;
}


static void
test_empty(void **state)
{
    ngx_rl_map_t  map;

    assert_int_equal(ngx_rl_map_bytes(0), 0);
    assert_int_equal(ngx_rl_map_bytes((size_t) 1 << 40), 0);
    assert_int_equal(ngx_rl_map_bytes(SIZE_MAX), 0);

    ngx_rl_map_init(&map, NULL, 0);
    assert_int_equal(ngx_rl_map_get(&map, key(1)), NGX_RL_MAP_NONE);

    memset(&map, 0, sizeof(map));
    assert_int_equal(ngx_rl_map_get(&map, key(1)), NGX_RL_MAP_NONE);
}


static void
test_full(void **state)
{
    size_t        i;
    ngx_rl_map_t  map;

    for (size_t n = 1; n <= N; n = n * 3 + 1) {
        void *memory = malloc(ngx_rl_map_bytes(n));
        assert_non_null(memory);
        ngx_rl_map_init(&map, memory, n);

        for (i = 0; i < n; i++) {
            assert_int_equal(ngx_rl_map_put(&map, key(i), i), NGX_RL_MAP_NONE);
        }

        for (i = 0; i < n; i++) {
            assert_int_equal(ngx_rl_map_get(&map, key(i)), i);
        }

        for (/* void */ ; i < 3 * n; i++) {
            assert_int_equal(ngx_rl_map_get(&map, key(i)), NGX_RL_MAP_NONE);
        }

        /* in the place of what was there */

        for (i = 0; i < n; i++) {
            assert_int_equal(ngx_rl_map_put(&map, key(i), i + 5), i);
        }

        for (i = 0; i < n; i++) {
            assert_int_equal(ngx_rl_map_get(&map, key(i)), i + 5);
        }

        free(memory);
    }
}

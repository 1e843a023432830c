/*
 * The table of leases: finding and making them, whose place may be taken, and
 * how full it gets. How it is laid out: test_table.c.
 */

#include "table.h"


static void
test_find(void **state)
{
    ngx_rl_lease_entry_t  e;

    map_t map = table_make(1, MIB);
    ngx_rl_id_t id = key(1);

    assert_null(ngx_rl_leases_lock(map.table, id, 0, NOW, &e));
    ngx_rl_leases_unlock(&e);

    lease_t *lease = ngx_rl_leases_lock(map.table, id, 1, NOW, &e);
    assert_non_null(lease);
    assert_int_equal((uintptr_t) lease % 64, 0);
    assert_int_equal(lease->busy_us, 0);

    for (size_t i = 0; i < WORDS; i++) {
        assert_int_equal(lease->word[i], 0);
    }

    lease_fill(lease, id.lo, LATER);
    ngx_rl_leases_unlock(&e);
    assert_int_equal(stat_at(map.table, NOW).busy, 1);

    /* once there it is found either way, also when it is busy no more */
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(ngx_rl_leases_lock(map.table, id, i & 1,
                                          i < 2 ? NOW : LATER + 1, &e), lease);
        assert_int_equal(lease->busy_us, LATER);
        assert_true(lease_whole(lease, id.lo));
        ngx_rl_leases_unlock(&e);
    }

    assert_int_equal(stat_at(map.table, LATER - 1).busy, 1);
    assert_int_equal(stat_at(map.table, LATER).busy, 0);
    assert_int_equal(stat_at(map.table, NOW).lost, 0);
    table_free(map);
}


/* All that is busy stays as it is, whatever comes; then all may be taken. */
static void
test_busy_stays(void **state)
{
    enum { KEYS = 1000 };

    int                            made[KEYS];
    map_t                          map;
    uint64_t                       n, busy, again;
    ngx_rl_segments_stat_t  stat;

    map = table_make(1, NGX_RL_LEASES_MIN_BYTES);

    for (n = 0, busy = 0; n < KEYS; n++) {
        made[n] = put(map.table, n, LATER + n);
        busy += made[n];
        assert_int_equal(get(map.table, n) != 0, made[n]);
    }

    stat = stat_at(map.table, NOW);
    assert_int_equal(stat.busy, busy);
    assert_int_equal(stat.busy, stat.places);
    assert_int_equal(stat.lost, KEYS - busy);

    for (n = 0; n < 100000; n++) {
        assert_int_equal(put_id(map.table, key(KEYS + n), LATER - 1, LATER + 9,
                                1), 0);
    }

    for (n = 0; n < KEYS; n++) {
        assert_int_equal(get(map.table, n), made[n] ? LATER + n : 0);
    }

    assert_int_equal(stat_at(map.table, NOW).lost, KEYS - busy + 100000);

    /* each is busy until LATER + KEYS at most: what is made then is empty */
    for (n = 0, again = 0; n < KEYS; n++) {
        made[n] = put_id(map.table, key(2 * KEYS + n), LATER + KEYS,
                         2 * (uint64_t) LATER, 1);
        assert_int_not_equal(made[n], -1);
        again += made[n];
    }

    /* each place has been another's, none was given away twice */
    assert_int_equal(again, busy);

    for (n = 0; n < KEYS; n++) {
        assert_int_equal(get(map.table, n), 0);
    }

    table_free(map);
}


/*
 * Of the free places of a set that goes first which was free first. Fourteen
 * leases share their two sets, which fill evenly: so each set takes turns.
 */
static void
test_longest_free(void **state)
{
    enum { N = 14 };

    map_t                         map;
    uint64_t                      i, j, set, last[2];
    uint64_t                     *lease[N], *least;
    ngx_rl_id_t            id;
    ngx_rl_lease_entry_t   e;

    map = table_make(1, MIB);
    least = NULL;

    for (i = 0; i < N; i++) {
        id.hi = key(1).hi;
        id.lo = (mix(2) & ~(uint64_t) 0xff) + i;
        lease[i] = ngx_rl_leases_lock(map.table, id, 1, NOW, &e);
        assert_non_null(lease[i]);
        lease_fill((lease_t *) lease[i], id.lo, LATER + i * 5 % N);
        ngx_rl_leases_unlock(&e);
        least = least == NULL || lease[i] < least ? lease[i] : least;
    }

    id.lo++;
    assert_int_equal(put_id(map.table, id, NOW, LATER, 1), 0);
    last[0] = last[1] = 0;

    for (j = N; j < 2 * N; j++) {
        id.lo = (mix(2) & ~(uint64_t) 0xff) + j;
        assert_int_equal(put_id(map.table, id, LATER + N, 2 * (uint64_t) LATER,
                                1), 1);

        /* whose it was: it was free for longer than what goes later */
        for (i = 0; i < N; i++) {
            id.lo = (mix(2) & ~(uint64_t) 0xff) + i;

            if (lease[i] && get_id(map.table, id) == 0) {
                set = lease[i] - least >= 7 * 8;
                assert_true(LATER + i * 5 % N > last[set]);
                last[set] = LATER + i * 5 % N;
                lease[i] = NULL;
                break;
            }
        }

        assert_in_range(i, 0, N - 1);
    }

    id.lo = (mix(2) & ~(uint64_t) 0xff) + j;
    assert_int_equal(put_id(map.table, id, LATER + N, LATER, 1), 0);
    table_free(map);
}


/* How full it gets. At half of its places all of ten thousand find one. */
static void
test_load(void **state)
{
    uint64_t  n, first, refused;

    static const size_t  sizes[] = { NGX_RL_LEASES_MIN_BYTES, 128 * 1024, MIB,
        5 * MIB, 64 * MIB };

    for (size_t i = 0; i < COUNT(sizes); i++) {
        map_t map = table_make(1, sizes[i]);
        uint64_t places = stat_at(map.table, NOW).places;

        for (n = 1, first = 0, refused = 0; n <= places; n++) {
            if (!put(map.table, n, LATER)) {
                first = first ? first : n;
                refused++;
            }

            assert_true(n != places / 2 || refused * 10000 <= n);
        }

        print_message("%8lu places: first refused at %.1f %%, %.3f %% of as "
                      "many\n", places, 100.0 * first / places,
                      100.0 * refused / places);
        table_free(map);
    }
}


/*
 * The same in the long run: leases come and go, half of the places are busy,
 * and no place was ever left without a tag.
 */
static void
test_churn(void **state)
{
    uint64_t  n, refused;

    map_t map = table_make(1, MIB);
    uint64_t places = stat_at(map.table, NOW).places;

    /* one a microsecond, each busy for half as many as there are places */
    for (n = 0, refused = 0; n < 20 * places; n++) {
        refused += !put_id(map.table, key(n), NOW + n, NOW + n + places / 2, 1);
    }

    print_message("%lu of %lu refused\n", refused, n);
    assert_in_range(stat_at(map.table, NOW + n).busy, places * 49 / 100,
                    places / 2);
    assert_true(refused * 10000 <= n);
    assert_int_equal(stat_at(map.table, NOW).lost, refused);
    table_free(map);
}


/* The latest moment, whoever comes last; nothing else changes. */
static void
test_forget(void **state)
{
    static const uint64_t  cases[][2] = {
        { NOW, NOW }, { NOW - 1, NOW }, { NOW + 1, NOW + 1 }
    };

    map_t map = table_make(1, NGX_RL_LEASES_MIN_BYTES);

    assert_int_equal(put(map.table, 1, LATER), 1);
    assert_true(ngx_rl_leases_forgot_us(map.table) == 0);

    for (size_t i = 0; i < COUNT(cases); i++) {
        ngx_rl_leases_forget(map.table, cases[i][0]);
        assert_true(ngx_rl_leases_forgot_us(map.table) == cases[i][1]);
    }

    assert_int_equal(get(map.table, 1), LATER);
    assert_int_equal(table_check(map.table, 1, map.size), NGX_OK);
    table_free(map);
}

/*
 * The table of leases: finding and making them, whose place may be taken, and
 * how full it gets.
 */

#include "leases.h"
#include "process.h"


static void
test_size(void **state)
{
    int       found;
    map_t     map;
    size_t    size;
    uint64_t  n, busy;

    (void) state;

    size = NGX_RATELIMIT_LEASES_MIN_BYTES;
    map = leases_make(size);

    assert_int_equal(ngx_ratelimit_leases_check(map.leases, size), NGX_OK);
    assert_int_equal(ngx_ratelimit_leases_init(map.leases, size - 1),
                     NGX_ERROR);
    assert_int_equal(ngx_ratelimit_leases_check(map.leases, size + 64),
                     NGX_ERROR);

    for (size = 0; size < map.size; size += 64) {
        assert_int_equal(ngx_ratelimit_leases_check(map.leases, size),
                         NGX_ERROR);
    }

    leases_free(map);

    /* any size: the last set stands inside of it (ASan, or the page's end) */
    for (size = NGX_RATELIMIT_LEASES_MIN_BYTES;
         size < (size_t) full_or(40, 8) * MIB;
         size += size / 7 + 4096 - (size / 7) % 4096)
    {
        map = leases_make(size);

        for (n = 0, busy = 0; n < size / 32; n++) {
            busy += put(map, n, NOW, LATER);
        }

        assert_int_equal(stat_at(map, NOW).busy, busy);
        assert_int_equal(stat_at(map, NOW).lost, n - busy);
        assert_int_equal(stat_at(map, LATER).busy, 0);

        /* nearly all of the memory is places, and all of them can be had */
        assert_in_range(stat_at(map, NOW).places * 64, size * 80 / 100,
                        size * 7 / 8);
        assert_true(busy > stat_at(map, NOW).places * 95 / 100);

        for (n = 0, busy = 0; n < size / 32; n++) {
            if (get_id(map, key(n), &found).word[0] == key(n).lo) {
                assert_true(found);
                busy++;
            }
        }

        assert_int_equal(stat_at(map, NOW).busy, busy);
        leases_free(map);
    }
}


/* Each field of the header that init wrote has its say. */
static void
test_layout(void **state)
{
    map_t    map;
    u_char  *p;
    size_t   i;

    (void) state;

    map = leases_make(MIB);
    p = (u_char *) map.leases;

    for (i = 0; i < 40; i++) {
        p[i] ^= 1;
        assert_int_equal(ngx_ratelimit_leases_check(map.leases, MIB),
                         NGX_ERROR);
        p[i] ^= 1;
    }

    assert_int_equal(ngx_ratelimit_leases_check(map.leases, MIB), NGX_OK);
    leases_free(map);
}


/* A zone costs what is used of it; reading its figures costs nothing. */
static void
test_untouched(void **state)
{
    size_t          i, pages, resident;
    map_t           map;
    unsigned char  *vec;

    (void) state;

    map = leases_make(64 * MIB);
    pages = map.size / sysconf(_SC_PAGESIZE);
    vec = malloc(pages);
    assert_non_null(vec);

    assert_int_equal(stat_at(map, NOW).busy, 0);
    assert_int_equal(mincore(map.leases, map.size, vec), 0);

    for (i = 0, resident = 0; i < pages; i++) {
        resident += vec[i] & 1;
    }

    /* the segments, and nothing else */
    assert_in_range(resident, 1, pages / 100);

    free(vec);
    leases_free(map);
}


static void
test_find(void **state)
{
    size_t                        i;
    map_t                         map;
    lease_t                      *lease, *again;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e;

    (void) state;

    map = leases_make(MIB);
    id = key(1);

    assert_null(ngx_ratelimit_leases_lock(map.leases, &id, 0, NOW, &e));
    ngx_ratelimit_leases_unlock(&e);

    lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW, &e);
    assert_non_null(lease);
    assert_int_equal((uintptr_t) lease % 64, 0);
    assert_int_equal(lease->busy_us, 0);

    for (i = 0; i < WORDS; i++) {
        assert_int_equal(lease->word[i], 0);
        lease->word[i] = mix(i);
    }

    lease->busy_us = LATER;
    ngx_ratelimit_leases_unlock(&e);
    assert_int_equal(stat_at(map, NOW).busy, 1);

    /* once there it is found either way, also when it is busy no more */
    for (i = 0; i < 4; i++) {
        again = ngx_ratelimit_leases_lock(map.leases, &id, i & 1,
                                          i < 2 ? NOW : LATER + 1, &e);
        assert_ptr_equal(again, lease);
        assert_int_equal(lease->busy_us, LATER);
        assert_int_equal(lease->word[WORDS - 1], mix(WORDS - 1));
        ngx_ratelimit_leases_unlock(&e);
    }

    assert_int_equal(stat_at(map, LATER - 1).busy, 1);
    assert_int_equal(stat_at(map, LATER).busy, 0);
    assert_int_equal(stat_at(map, NOW).lost, 0);
    leases_free(map);
}


/* Tag 0 means empty: ids with lo 0 are counters like others. */
static void
test_tag_zero(void **state)
{
    int                 i, found;
    map_t               map;
    ngx_ratelimit_id_t  id;

    (void) state;

    map = leases_make(MIB);
    id.lo = 0;

    for (i = 0; i < 50; i++) {
        id.hi = mix(i);
        (void) get_id(map, id, &found);
        assert_false(found);
        assert_true(put_id(map, id, NOW, LATER + i));
    }

    for (i = 0; i < 50; i++) {
        id.hi = mix(i);
        assert_int_equal(get_id(map, id, &found).busy_us, LATER + i);
    }

    leases_free(map);
}


/* All that is busy stays as it is, whatever comes; then all may be taken. */
static void
test_busy_stays(void **state)
{
    enum { KEYS = 1000 };

    int                           found;
    char                          made[KEYS];
    map_t                         map;
    uint64_t                      n, busy, refused;
    lease_t                      *lease;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_segments_stat_t   stat;
    ngx_ratelimit_lease_entry_t   e;

    (void) state;

    map = leases_make(NGX_RATELIMIT_LEASES_MIN_BYTES);

    for (n = 0, busy = 0; n < KEYS; n++) {
        made[n] = put(map, n, NOW, LATER + n);
        busy += made[n];
        assert_int_equal(has(map, n), made[n]);
    }

    stat = stat_at(map, NOW);
    assert_int_equal(stat.busy, busy);
    assert_int_equal(stat.busy, stat.places);
    assert_int_equal(stat.lost, KEYS - busy);

    for (n = 0; n < 100000; n++) {
        assert_false(put(map, KEYS + n, LATER - 1, LATER + 9));
    }

    for (n = 0; n < KEYS; n++) {
        if (made[n]) {
            assert_int_equal(get_id(map, key(n), &found).busy_us, LATER + n);
        }
    }

    assert_int_equal(stat_at(map, NOW).lost, KEYS - busy + 100000);

    /* the last of them is busy until LATER + KEYS at most */
    for (n = 0, refused = 0; n < KEYS; n++) {
        id = key(2 * KEYS + n);
        lease = ngx_ratelimit_leases_lock(map.leases, &id, 1, LATER + KEYS,
                                          &e);

        if (lease == NULL) {
            refused++;
            continue;
        }

        assert_int_equal(lease->busy_us, 0);
        assert_int_equal(lease->word[0], 0);
        lease->busy_us = 2 * (uint64_t) LATER;
        lease->word[0] = 1;
        ngx_ratelimit_leases_unlock(&e);
    }

    /* each place has been another's, none was given away twice */
    assert_int_equal(KEYS - refused, busy);

    for (n = 0; n < KEYS; n++) {
        assert_false(has(map, n));
    }

    leases_free(map);
}


/*
 * Of the free places of a set that goes first which was free first. Fourteen
 * leases share their two sets, which fill evenly: so each set takes turns.
 */
static void
test_longest_free(void **state)
{
    enum { N = 14 };

    int                           found;
    map_t                         map;
    uint64_t                      i, j, busy_us, last[2];
    uint64_t                     *lease[N], *least;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_lease_entry_t   e;

    (void) state;

    map = leases_make(MIB);
    least = NULL;

    for (i = 0; i < N; i++) {
        id.hi = key(1).hi;
        id.lo = (mix(2) & ~(uint64_t) 0xff) + i;
        lease[i] = ngx_ratelimit_leases_lock(map.leases, &id, 1, NOW, &e);
        assert_non_null(lease[i]);
        lease[i][0] = LATER + i * 5 % N;
        ngx_ratelimit_leases_unlock(&e);
        least = least == NULL || lease[i] < least ? lease[i] : least;
    }

    id.lo++;
    assert_false(put_id(map, id, NOW, LATER));
    last[0] = last[1] = 0;

    for (j = N; j < 2 * N; j++) {
        id.lo = (mix(2) & ~(uint64_t) 0xff) + j;
        assert_true(put_id(map, id, LATER + N, 2 * (uint64_t) LATER));

        /* whose it was: it was free for longer than what goes later */
        for (i = 0; i < N; i++) {
            id.lo = (mix(2) & ~(uint64_t) 0xff) + i;
            (void) get_id(map, id, &found);

            if (lease[i] && !found) {
                busy_us = LATER + i * 5 % N;
                found = lease[i] - least >= 7 * 8;
                assert_true(busy_us > last[found]);
                last[found] = busy_us;
                lease[i] = NULL;
                break;
            }
        }

        assert_in_range(i, 0, N - 1);
    }

    id.lo = (mix(2) & ~(uint64_t) 0xff) + j;
    assert_false(put_id(map, id, LATER + N, LATER));
    leases_free(map);
}


/*
 * How full it gets. At half of its places not one of ten thousand may be
 * refused; how far it is until the first is told.
 */
static void
test_load(void **state)
{
    map_t       map;
    size_t      i;
    uint64_t    n, places, first, refused;
    const int  *p;

    static const size_t  sizes[] = { NGX_RATELIMIT_LEASES_MIN_BYTES,
                                     128 * 1024, MIB, 5 * MIB, 64 * MIB };
    static const int     percent[] = { 50, 70, 80, 85, 90, 95, 100, 0 };

    (void) state;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        map = leases_make(sizes[i]);
        places = stat_at(map, NOW).places;
        first = 0;
        refused = 0;
        p = percent;

        print_message("%8lu places, %% refused at", places);

        for (n = 1; n <= places; n++) {

            if (!put(map, n, NOW, LATER)) {
                first = first ? first : n;
                refused++;
            }

            if (n == places * *p / 100) {
                print_message("  %d: %.3f", *p, 100.0 * refused / n);

                if (*p == 50) {
                    assert_true(refused * 10000 <= n);
                }

                p++;
            }
        }

        print_message("  first at %.1f\n", 100.0 * first / places);
        leases_free(map);
    }
}


/*
 * The same in the long run: leases come and go, half of the places are busy,
 * and no place was ever left without a tag.
 */
static void
test_churn(void **state)
{
    map_t     map;
    uint64_t  n, places, refused;

    (void) state;

    map = leases_make(MIB);
    places = stat_at(map, NOW).places;

    /* one a microsecond, each busy for half as many as there are places */
    for (n = 0, refused = 0; n < 20 * places; n++) {
        refused += !put(map, n, NOW + n, NOW + n + places / 2);
    }

    print_message("%lu of %lu refused\n", refused, n);
    assert_in_range(stat_at(map, NOW + n).busy, places * 49 / 100,
                    places / 2);
    assert_true(refused * 10000 <= n);
    assert_int_equal(stat_at(map, NOW).lost, refused);
    leases_free(map);
}


/* The latest moment, whoever comes last; nothing else changes. */

static void
test_forget(void **state)
{
    int    found;
    map_t  map;

    (void) state;

    map = leases_make(NGX_RATELIMIT_LEASES_MIN_BYTES);

    assert_true(put(map, 1, NOW, LATER));
    assert_true(ngx_ratelimit_leases_forgot_us(map.leases) == 0);

    ngx_ratelimit_leases_forget(map.leases, NOW);
    ngx_ratelimit_leases_forget(map.leases, NOW - 1);
    assert_true(ngx_ratelimit_leases_forgot_us(map.leases) == NOW);

    ngx_ratelimit_leases_forget(map.leases, NOW + 1);
    assert_true(ngx_ratelimit_leases_forgot_us(map.leases) == NOW + 1);

    (void) get_id(map, key(1), &found);
    assert_true(found);
    assert_int_equal(ngx_ratelimit_leases_check(map.leases,
                                           NGX_RATELIMIT_LEASES_MIN_BYTES),
                     NGX_OK);
    leases_free(map);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_tag_zero),
        cmocka_unit_test(test_busy_stays),
        cmocka_unit_test(test_longest_free),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_churn),
        cmocka_unit_test(test_forget),
    };

    /* a lock that nobody hands on would stop the tests too */
    alarm(300);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * The table in shared memory: finding and placing counters, who is evicted.
 */

#include "table.h"


static int
has(ngx_ratelimit_table_t *table, uint64_t n)
{
    return get_id(table, key(n)).found;
}


static void
test_size(void **state)
{
    size_t                 size;
    map_t                  map;
    ngx_ratelimit_table_t  *t;

    (void) state;

    map = table_make(NGX_RATELIMIT_TABLE_MIN_BYTES);
    t = map.table;

    assert_int_equal(ngx_ratelimit_table_check(t, map.size), NGX_OK);
    assert_memory_equal(ngx_ratelimit_table_hash_key(t), hash_key, 16);

    /* not less than 64 buckets of three a segment, nearly all of the memory */
    assert_in_range(stat_at(t, NOW).places, 2 * 64 * 3, 256 * 3);
    assert_true(stat_at(t, NOW).places > 240 * 3);

    assert_int_equal(ngx_ratelimit_table_init(t, map.size - 1, hash_key),
                     NGX_ERROR);
    assert_int_equal(ngx_ratelimit_table_check(t, map.size - 1), NGX_ERROR);
    assert_int_equal(ngx_ratelimit_table_check(t, map.size + 64), NGX_ERROR);

    for (size = 0; size < map.size; size += 64) {
        assert_int_equal(ngx_ratelimit_table_check(t, size), NGX_ERROR);
    }

    table_free(map);

    /* any size: the last bucket stands inside of it (ASan, or the page end) */
    for (size = NGX_RATELIMIT_TABLE_MIN_BYTES; size < 9 * MIB;
         size += size / 7 + 4096 - (size / 7) % 4096)
    {
        uint64_t  n;

        map = table_make(size);

        for (n = 0; n < 5000; n++) {
            put(map.table, n, LATER, 1);
        }

        assert_true(stat_at(map.table, NOW).places * 64 / 3 <= size);
        assert_true(stat_at(map.table, NOW).busy > 600);
        table_free(map);
    }
}


/* Each field of the header that init wrote has its say. */
static void
test_layout(void **state)
{
    map_t    map;
    u_char  *p;
    size_t   i, refused;

    (void) state;

    map = table_make(MIB);
    p = (u_char *) map.table;
    refused = 0;

    for (i = 0; i < 40; i++) {
        p[i] ^= 1;
        refused += (ngx_ratelimit_table_check(map.table, MIB) == NGX_ERROR);
        p[i] ^= 1;
    }

    assert_int_equal(refused, 40);
    assert_int_equal(ngx_ratelimit_table_check(map.table, MIB), NGX_OK);

    memset(p, 0, 64);
    assert_int_equal(ngx_ratelimit_table_check(map.table, MIB), NGX_ERROR);
    table_free(map);
}


/* A zone costs what is used of it; reading its figures costs nothing. */
static void
test_untouched(void **state)
{
    size_t          i, pages, resident;
    map_t           map;
    unsigned char  *vec;

    (void) state;

    map = table_make(64 * MIB);
    pages = map.size / sysconf(_SC_PAGESIZE);
    vec = malloc(pages);
    assert_non_null(vec);

    assert_int_equal(stat_at(map.table, NOW).busy, 0);
    assert_int_equal(mincore(map.table, map.size, vec), 0);

    for (i = 0, resident = 0; i < pages; i++) {
        resident += vec[i] & 1;
    }

    /* the segments, and nothing else */
    assert_in_range(resident, 1, pages / 100);

    free(vec);
    table_free(map);
}


static void
test_find(void **state)
{
    map_t                  map;
    ngx_ratelimit_id_t     id;
    ngx_ratelimit_entry_t  e;

    (void) state;

    map = table_make(MIB);
    id = key(1);

    ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
    assert_int_equal(e.found, 0);
    assert_int_equal(e.state.fresh_us, 0);
    assert_int_equal(e.state.aux, 0);
    assert_int_equal(e.state.extra, 0);
    e.state.fresh_us = ((uint64_t) 1 << 52) - 1;
    e.state.aux = 0xfff;
    e.state.extra = UINT32_MAX;
    ngx_ratelimit_table_store(&e, 255);

    e = get_id(map.table, id);
    assert_int_equal(e.found, 1);
    assert_int_equal(e.state.fresh_us, ((uint64_t) 1 << 52) - 1);
    assert_int_equal(e.state.aux, 0xfff);
    assert_int_equal(e.state.extra, UINT32_MAX);
    assert_int_equal(stat_at(map.table, NOW).busy, 1);

    /* unlock leaves it as it was */
    ngx_ratelimit_table_lock(map.table, &id, NOW, &e);
    e.state.fresh_us = 5;
    ngx_ratelimit_table_unlock(&e);
    assert_true(get_id(map.table, id).state.fresh_us > 5);

    /* an update stays in its slot; expired it is still found as stored */
    put_id(map.table, id, NOW - 1, 0);
    e = get_id(map.table, id);
    assert_int_equal(e.found, 1);
    assert_int_equal(e.state.fresh_us, NOW - 1);
    assert_int_equal(e.state.aux, 7);
    assert_int_equal(e.state.extra, NOW - 1);
    assert_int_equal(copies(&e), 1);
    assert_int_equal(stat_at(map.table, NOW).busy, 0);
    assert_int_equal(stat_at(map.table, NOW).lost, 0);

    /* a new one that equals a fresh counter takes no place */
    put(map.table, 2, NOW, 0);
    assert_false(has(map.table, 2));

    table_free(map);
}


static void
test_candidates(void **state)
{
    map_t                   map;
    size_t                  size;
    uint64_t                n;
    ngx_ratelimit_entry_t   e;

    (void) state;

    for (size = NGX_RATELIMIT_TABLE_MIN_BYTES; size < 9 * MIB; size *= 5) {
        map = table_make(size);

        for (n = 0; n < 10000; n++) {
            e = get_id(map.table, key(n));

            assert_ptr_not_equal(e.buckets[0], e.buckets[1]);
            assert_int_equal((uintptr_t) e.buckets[0] % 64, 0);
            assert_int_equal((uintptr_t) e.buckets[1] % 64, 0);
            assert_true((u_char *) e.buckets[0] > (u_char *) e.segment);
            assert_true((u_char *) e.buckets[0] + 64
                        <= (u_char *) map.table + size);
            assert_true((u_char *) e.buckets[1] + 64
                        <= (u_char *) map.table + size);
        }

        table_free(map);
    }
}


/* Tag 0 means empty: ids with lo 0 are counters like others. */
static void
test_tag_zero(void **state)
{
    int                 i;
    map_t               map;
    ngx_ratelimit_id_t  id;

    (void) state;

    map = table_make(MIB);
    id.lo = 0;

    for (i = 0; i < 50; i++) {
        id.hi = mix(i);
        assert_int_equal(get_id(map.table, id).found, 0);
        put_id(map.table, id, LATER + i, 1);
    }

    for (i = 0; i < 50; i++) {
        id.hi = mix(i);
        assert_int_equal(get_id(map.table, id).found, 1);
        assert_int_equal(get_id(map.table, id).state.fresh_us, LATER + i);
    }

    table_free(map);
}


/*
 * Fills the smallest table to the last slot with counters of one state, and
 * returns how many keys that took.
 */
static uint64_t
fill(ngx_ratelimit_table_t *table, uint64_t first, uint64_t fresh_us,
    uint32_t loss, int known)
{
    uint64_t  n, slots;

    slots = stat_at(table, NOW).places;

    for (n = first; stat_at(table, NOW).busy < slots; n++) {
        put(table, n, fresh_us, loss);

        if (known) {
            put(table, n, fresh_us, loss);
        }

        assert_true(n < first + 1000000);
    }

    return n - first;
}


/*
 * A full table of counters b. Of the six that a newcomer could take the place
 * of one is made an a, which is missed less: it is the one that goes.
 */
static void
check_victim(uint64_t fresh_a, uint32_t loss_a, int known_a, uint64_t fresh_b,
    uint32_t loss_b, int known_b, int live)
{
    int                         i, tried;
    map_t                       map;
    uint64_t                    n, m, victim, used;
    bucket_t                   *bucket;
    ngx_ratelimit_entry_t       e;
    ngx_ratelimit_segments_stat_t  before, after;

    map = table_make(NGX_RATELIMIT_TABLE_MIN_BYTES);
    used = fill(map.table, 0, fresh_b, loss_b, known_b);

    for (n = used, tried = 0; tried < 200; n++) {
        e = get_id(map.table, key(n));
        assert_int_equal(e.found, 0);

        /* make one of its six slots the one that is missed least */
        i = mix(n) % 6;
        bucket = e.buckets[i / 3];
        victim = bucket->tag[i % 3];
        bucket->word[i % 3] = fresh_a << 12;
        bucket->loss[i % 3] = loss_a;
        bucket->known = (bucket->known & ~(1 << i % 3)) | known_a << i % 3;

        before = stat_at(map.table, NOW);
        put(map.table, n, fresh_b, loss_b);
        after = stat_at(map.table, NOW);

        e = get_id(map.table, key(n));
        assert_int_equal(e.found, 1);
        assert_int_equal(e.bucket, i / 3);
        assert_int_equal(e.slot, i % 3);
        assert_true(bucket->tag[i % 3] != victim);
        assert_int_equal(after.lost - before.lost, live);
        assert_int_equal(after.busy, after.places);

        if (known_b) {
            put(map.table, n, fresh_b, loss_b);
        }

        /* the others are as they were: the next round finds the table full */
        for (m = 0; m < 6; m++) {
            bucket = e.buckets[m / 3];
            assert_true(bucket->word[m % 3] >> 12 == fresh_b);
        }

        tried++;
    }

    table_free(map);
}


static void
test_evict_expired_first(void **state)
{
    (void) state;

    /* even denying and known: an expired counter costs nothing */
    check_victim(NOW, 255, 1, LATER, 1, 0, 0);
    check_victim(NOW - 5, 255, 1, LATER, 1, 1, 0);
}


static void
test_evict_unknown_before_known(void **state)
{
    (void) state;

    check_victim(LATER, 255, 0, LATER, 1, 1, 1);
    check_victim(LATER, 9, 0, LATER, 9, 1, 1);
}


static void
test_evict_least_loss_first(void **state)
{
    (void) state;

    check_victim(LATER, 10, 0, LATER, 11, 0, 1);
    check_victim(LATER, 10, 1, LATER, 11, 1, 1);
    check_victim(LATER - 1, 10, 0, LATER, 10, 0, 1);
}


static void
test_evict_denying_last(void **state)
{
    (void) state;

    check_victim(LATER + 1000, 254, 0, LATER, 255, 0, 1);
    check_victim(LATER + 1000, 254, 1, LATER, 255, 1, 1);

    /* a loss out of range is that of a denying counter, not a small one */
    check_victim(LATER + 1000, 254, 0, LATER, 256, 0, 1);
}


/* The second store makes it known; a new owner of the slot does not inherit. */
static void
test_known(void **state)
{
    map_t                  map;
    bucket_t              *bucket;
    ngx_ratelimit_entry_t  e;

    (void) state;

    map = table_make(MIB);

    put(map.table, 1, LATER, 1);
    put(map.table, 1, NOW - 1, 1);
    e = get_id(map.table, key(1));
    bucket = e.buckets[e.bucket];
    assert_int_equal(bucket->known, 1 << e.slot);

    /* its slot is free: force the newcomer there by the same id.hi */
    {
        ngx_ratelimit_id_t  id;

        id = key(1);
        id.lo ^= 1;
        put_id(map.table, id, LATER, 1);
        assert_int_equal(get_id(map.table, id).found, 1);
        assert_ptr_equal(get_id(map.table, id).buckets[e.bucket], bucket);
        assert_false(has(map.table, 1));
        assert_int_equal(bucket->known, 0);
    }

    table_free(map);
}


/*
 * Clients that came back keep their counters through a flood of invented keys
 * (a full table makes counters move, so each is looked at whole).
 */
static void
flood(uint64_t clients, size_t size, uint64_t want)
{
    map_t                  map;
    uint64_t               i, kept;
    ngx_ratelimit_entry_t  e;

    map = table_make(size);

    for (i = 0; i < 2 * clients; i++) {
        put(map.table, i % clients, LATER + i % clients, 1);
    }

    for (i = 0; i < 1000000; i++) {
        /* they may even deny */
        put(map.table, clients + i, LATER, 255);
    }

    for (i = 0, kept = 0; i < clients; i++) {
        e = get_id(map.table, key(i));

        if (e.found) {
            kept++;
            assert_int_equal(copies(&e), 1);
            assert_int_equal(e.state.fresh_us, LATER + i);
            assert_int_equal(e.state.aux, 7);
            assert_int_equal(e.state.extra, (uint32_t) (LATER + i));
        }
    }

    print_message("%lu of %lu slots known: %lu kept\n", clients,
                  stat_at(map.table, NOW).places, kept);
    assert_true(kept >= want);

    /* and the flood has not stopped by itself: the table is full of it */
    assert_true(stat_at(map.table, NOW).busy
                > stat_at(map.table, NOW).places * 99 / 100);
    assert_true(stat_at(map.table, NOW).lost > 900000);

    table_free(map);
}


static void
test_flood(void **state)
{
    (void) state;

    flood(20000, 720000, 19900);     /* 59 % of the slots */
    flood(16000, 720000, 16000);     /* 47 %: none is lost */
}


/* How full the table gets before a live counter has to go. */
static void
test_load(void **state)
{
    map_t                       map;
    uint64_t                    n;
    ngx_ratelimit_segments_stat_t  stat;

    (void) state;

    map = table_make(64 * MIB);
    n = 0;

    do {
        put(map.table, n++, LATER, 1);
        assert_true(n < 64 * MIB / 64 * 3);

        if (n % 10000 == 0) {
            stat = stat_at(map.table, NOW);
        }

    } while (n % 10000 || stat.lost == 0);

    print_message("first live eviction at %.1f %% of %lu slots\n",
                  100.0 * n / stat.places, stat.places);
    assert_in_range(100 * n / stat.places, 50, 90);
    table_free(map);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_tag_zero),
        cmocka_unit_test(test_evict_expired_first),
        cmocka_unit_test(test_evict_unknown_before_known),
        cmocka_unit_test(test_evict_least_loss_first),
        cmocka_unit_test(test_evict_denying_last),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_load),
    };

    /* a lock that nobody hands on would stop the tests too */
    alarm(300);

    return cmocka_run_group_tests(tests, NULL, NULL);
}

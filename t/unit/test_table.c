/*
 * The tables in shared memory: how they are laid out; finding and placing
 * counters, which of them is evicted.
 */

#include "table.h"


static void
test_size(void **state)
{
    uint64_t  n, kept, found;

    for (int leases = 0; leases < 2; leases++) {
        map_t map = table_make(leases, NGX_RL_TABLE_MIN_BYTES);

        assert_int_equal(table_init(map.table, leases, map.size - 1),
                         NGX_ERROR);
        assert_int_equal(table_check(map.table, leases, map.size + 64),
                         NGX_ERROR);
        assert_int_equal(table_check(map.table, leases, map.size), NGX_OK);
        assert_int_equal(table_check(map.table, !leases, map.size), NGX_ERROR);

        for (size_t size = 0; size < map.size; size += 64) {
            assert_int_equal(table_check(map.table, leases, size), NGX_ERROR);
        }

        table_free(map);

        /* any size: the last set stands inside of it (ASan, or the page end) */
        for (size_t size = NGX_RL_TABLE_MIN_BYTES;
             size < (size_t) full_or(40, 8) * MIB;
             size += size / 7 + 4096 - (size / 7) % 4096)
        {
            map = table_make(leases, size);
            uint64_t places = stat_at(map.table, NOW).places;

            /* nearly all of the memory is places */
            assert_in_range(leases ? places * 64 : places * 64 / 3,
                            size * 80 / 100, leases ? size * 7 / 8 : size);

            for (n = 0, kept = 0; n < size / 32; n++) {
                kept += put(map.table, n, LATER);
            }

            for (n = 0, found = 0; n < size / 32; n++) {
                found += (get(map.table, n) == LATER);
            }

            /* all of them can be had; a lease is refused, a counter evicted */
            assert_true(found > places * 95 / 100 || found > n * 95 / 100);
            assert_int_equal(stat_at(map.table, NOW).busy, found);
            assert_int_equal(stat_at(map.table, NOW).lost, n - found);
            assert_int_equal(stat_at(map.table, LATER).busy, 0);
            assert_int_equal(kept, leases ? found : n);
            table_free(map);
        }
    }
}


/* Each field of the header that init wrote has its say. */
static void
test_layout(void **state)
{
    for (int leases = 0; leases < 2; leases++) {
        map_t map = table_make(leases, MIB);
        u_char *p = map.table;

        for (size_t i = 0; i < 40; i++) {
            p[i] ^= 1;
            assert_int_equal(table_check(p, leases, MIB), NGX_ERROR);
            p[i] ^= 1;
        }

        assert_int_equal(table_check(p, leases, MIB), NGX_OK);
        memset(p, 0, 64);
        assert_int_equal(table_check(p, leases, MIB), NGX_ERROR);
        table_free(map);
    }

    map_t map = table_make(0, MIB);
    assert_memory_equal(ngx_rl_table_hash_key(map.table), &hash_key,
                        sizeof(hash_key));
    table_free(map);
}


/* A zone costs what is used of it; reading its figures costs nothing. */
static void
test_untouched(void **state)
{
    size_t  i, resident;

    for (int leases = 0; leases < 2; leases++) {
        map_t map = table_make(leases, 64 * MIB);
        size_t pages = map.size / sysconf(_SC_PAGESIZE);
        unsigned char *vec = malloc(pages);
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
}


/* Tag 0 means empty: ids with lo 0 are counters like others. */
static void
test_tag_zero(void **state)
{
    ngx_rl_id_t  id;

    for (int leases = 0; leases < 2; leases++) {
        map_t map = table_make(leases, MIB);
        id.lo = 0;

        for (int i = 0; i < 50; i++) {
            id.hi = mix(i);
            assert_int_equal(get_id(map.table, id), 0);
            assert_int_equal(put_id(map.table, id, NOW, LATER + i, 1), 1);
        }

        for (int i = 0; i < 50; i++) {
            id.hi = mix(i);
            assert_int_equal(get_id(map.table, id), LATER + i);
        }

        table_free(map);
    }
}


static void
test_find(void **state)
{
    ngx_rl_entry_t  e;

    map_t map = table_make(0, MIB);
    ngx_rl_id_t id = key(1);

    ngx_rl_table_lock(map.table, &id, NOW, &e);
    assert_int_equal(e.found, 0);
    assert_int_equal(e.state.fresh_us, 0);
    assert_int_equal(e.state.aux, 0);
    assert_int_equal(e.state.extra, 0);
    e.state.fresh_us = ((uint64_t) 1 << 52) - 1;
    e.state.aux = 0xfff;
    e.state.extra = UINT32_MAX;
    ngx_rl_table_store(&e, 255);

    /* unlock leaves it as it was */
    ngx_rl_table_lock(map.table, &id, NOW, &e);
    e.state.fresh_us = 5;
    ngx_rl_table_unlock(&e);

    e = entry_of(map.table, id);
    assert_int_equal(e.found, 1);
    assert_int_equal(e.state.fresh_us, ((uint64_t) 1 << 52) - 1);
    assert_int_equal(e.state.aux, 0xfff);
    assert_int_equal(e.state.extra, UINT32_MAX);
    assert_int_equal(stat_at(map.table, NOW).busy, 1);

    /* an update stays in its place; expired it is still found as stored */
    (void) put(map.table, 1, NOW - 1);
    assert_int_equal(get(map.table, 1), NOW - 1);
    e = entry_of(map.table, id);
    assert_int_equal(e.found, 1);
    assert_int_equal(copies(&e), 1);
    assert_int_equal(stat_at(map.table, NOW).busy, 0);
    assert_int_equal(stat_at(map.table, NOW).lost, 0);

    /* a new one that equals a fresh counter takes no place */
    (void) put(map.table, 2, NOW);
    assert_int_equal(get(map.table, 2), 0);

    table_free(map);
}


static void
test_candidates(void **state)
{
    for (size_t size = NGX_RL_TABLE_MIN_BYTES; size < 9 * MIB; size *= 5) {
        map_t map = table_make(0, size);

        for (uint64_t n = 0; n < 10000; n++) {
            ngx_rl_entry_t e = entry_of(map.table, key(n));
            assert_ptr_not_equal(e.at.first, e.at.second);

            for (int i = 0; i < 2; i++) {
                u_char *set = (u_char *) set_of(&e, 3 * i);
                assert_int_equal((uintptr_t) set % 64, 0);
                assert_true(set > (u_char *) e.at.segment);
                assert_true(set + 64 <= (u_char *) map.table + size);
            }
        }

        table_free(map);
    }
}


/* Fills the smallest table to the last place, by so many keys. */
static uint64_t
fill(void *table, uint64_t until, uint32_t loss, int known)
{
    uint64_t  n;

    uint64_t places = stat_at(table, NOW).places;

    for (n = 0; stat_at(table, NOW).busy < places; n++) {
        for (int i = 0; i <= known; i++) {
            (void) put_id(table, key(n), NOW, until, loss);
        }

        assert_true(n < 1000000);
    }

    return n;
}


typedef struct {
    uint64_t  fresh_us;
    uint32_t  loss;
    int       known;
} counter_t;

/*
 * A full table of counters b. Of the six that a newcomer could take the place
 * of one is made an a, which is missed less: it is the one that goes.
 */
static void
check_victim(counter_t a, counter_t b, int live)
{
    map_t map = table_make(0, NGX_RL_TABLE_MIN_BYTES);
    uint64_t used = fill(map.table, b.fresh_us, b.loss, b.known);

    for (uint64_t n = used; n < used + 200; n++) {
        ngx_rl_entry_t e = entry_of(map.table, key(n));
        assert_int_equal(e.found, 0);

        int i = mix(n) % 6;
        set_t *set = set_of(&e, i);
        uint64_t victim = set->tag[i % 3];
        set->word[i % 3] = a.fresh_us << 12;
        set->loss[i % 3] = a.loss;
        set->known = (set->known & ~(1 << i % 3)) | a.known << i % 3;

        ngx_rl_segments_stat_t before = stat_at(map.table, NOW);
        (void) put_id(map.table, key(n), NOW, b.fresh_us, b.loss);
        ngx_rl_segments_stat_t after = stat_at(map.table, NOW);

        e = entry_of(map.table, key(n));
        assert_int_equal(e.found, 1);
        assert_ptr_equal(e.at.set, set_of(&e, i));
        assert_int_equal(e.at.place, i % 3);
        assert_true(set->tag[i % 3] != victim);
        assert_int_equal(after.lost - before.lost, live);
        assert_int_equal(after.busy, after.places);

        if (b.known) {
            (void) put_id(map.table, key(n), NOW, b.fresh_us, b.loss);
        }

        /* the others are as they were: the next round finds the table full */
        for (int m = 0; m < 6; m++) {
            assert_true(set_of(&e, m)->word[m % 3] >> 12 == b.fresh_us);
        }
    }

    table_free(map);
}


static void
test_evict(void **state)
{
    static const struct {
        counter_t  a, b;
        int        live;
    } cases[] = {
        /* even rejecting and known: an expired counter costs nothing */
        { { NOW, 255, 1 }, { LATER, 1, 0 }, 0 }, { { NOW - 5, 255, 1 }, { LATER,
            1, 1 }, 0 },

        /* unknown before known */
        { { LATER, 255, 0 }, { LATER, 1, 1 }, 1 },
        { { LATER, 9, 0 }, { LATER, 9, 1 }, 1 },

        /* the least loss, then what is fresh soonest */
        { { LATER, 10, 0 }, { LATER, 11, 0 }, 1 },
        { { LATER, 10, 1 }, { LATER, 11, 1 }, 1 },
        { { LATER - 1, 10, 0 }, { LATER, 10, 0 }, 1 },

        /* rejecting last; a loss out of range is that of such a counter */
        { { LATER + 1000, 254, 0 }, { LATER, 255, 0 }, 1 },
        { { LATER + 1000, 254, 1 }, { LATER, 255, 1 }, 1 },
        { { LATER + 1000, 254, 0 }, { LATER, 256, 0 }, 1 }
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        check_victim(cases[i].a, cases[i].b, cases[i].live);
    }
}


static void
mark(void *table, uint64_t n, uint64_t until)
{
    ngx_rl_entry_t  e;

    ngx_rl_id_t id = key(n);
    ngx_rl_table_lock(table, &id, NOW, &e);
    state_fill(&e.state, id.lo, until);
    ngx_rl_table_store_mark(&e);
}


static uint64_t
count(void *table, uint64_t from, uint64_t n)
{
    uint64_t  i, found;

    for (i = 0, found = 0; i < n; i++) {
        found += (get(table, from + i) > NOW);
    }

    return found;
}


/*
 * Marks take places that no live counter has, and each of them is a counter's
 * place, however long the mark lives and however often it is found.
 */
static void
test_marks(void **state)
{
    enum { MARKS = 1000000 };

    map_t     map;
    uint64_t  n, places, used;

    map = table_make(0, NGX_RL_TABLE_MIN_BYTES);
    places = stat_at(map.table, NOW).places;

    for (n = 0; n < 3 * 10 * places; n++) {
        mark(map.table, MARKS + n / 3, LATER + 1000);
    }

    assert_int_equal(count(map.table, MARKS, 10 * places), places);
    assert_int_equal(stat_at(map.table, NOW).busy, 0);

    /* counters find places as if there were no marks, and keep them */

    used = fill(map.table, LATER, 0, 0);
    assert_int_equal(count(map.table, MARKS, 10 * places), 0);
    assert_int_equal(stat_at(map.table, NOW).lost, used - places);

    for (n = 0; n < 10 * places; n++) {
        mark(map.table, MARKS + n, LATER + 1000);
    }

    assert_int_equal(count(map.table, MARKS, 10 * places), 0);
    assert_int_equal(count(map.table, 0, used), places);
    assert_int_equal(stat_at(map.table, NOW).lost, used - places);

    /* an expired counter's place is free; whoever is stored there is no mark */

    for (n = 0; n < used; n++) {
        if (get(map.table, n)) {
            (void) put(map.table, n, NOW);
        }
    }

    for (n = 0; n < 10 * places; n++) {
        mark(map.table, MARKS + n, LATER);
    }

    assert_int_equal(count(map.table, MARKS, 10 * places), places);
    (void) put(map.table, 2 * MARKS, LATER);
    assert_int_equal(stat_at(map.table, NOW).busy, 1);
    table_free(map);
}


/* The second store makes it known. A new owner of the place does not get it. */
static void
test_known(void **state)
{
    map_t map = table_make(0, MIB);

    (void) put(map.table, 1, LATER);
    (void) put(map.table, 1, NOW - 1);
    ngx_rl_entry_t e = entry_of(map.table, key(1));
    set_t *set = e.at.set;
    assert_int_equal(set->known, 1 << e.at.place);

    /* its place is free: force the newcomer there by the same id.hi */

    ngx_rl_id_t id = key(1);
    id.lo ^= 1;
    (void) put_id(map.table, id, NOW, LATER, 1);
    assert_int_equal(get_id(map.table, id), LATER);
    assert_ptr_equal(entry_of(map.table, id).at.set, set);
    assert_int_equal(get(map.table, 1), 0);
    assert_int_equal(set->known, 0);

    table_free(map);
}


/*
 * Clients that came back keep their counters through a flood of invented keys
 * (a full table makes counters move, so each is looked at whole).
 */
static void
flood(uint64_t clients, size_t size, uint64_t want)
{
    uint64_t  i, kept;

    map_t map = table_make(0, size);

    for (i = 0; i < 2 * clients; i++) {
        (void) put(map.table, i % clients, LATER + i % clients);
    }

    for (i = 0; i < 1000000; i++) {
        /* they may even be rejected */
        (void) put_id(map.table, key(clients + i), NOW, LATER, 255);
    }

    for (i = 0, kept = 0; i < clients; i++) {
        ngx_rl_entry_t e = entry_of(map.table, key(i));

        if (e.found) {
            kept++;
            assert_int_equal(copies(&e), 1);
            assert_int_equal(get(map.table, i), LATER + i);
        }
    }

    print_message("%lu of %lu places known: %lu kept\n", clients,
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
    flood(20000, 720000, 19900);     /* 59 % of the places */
    flood(16000, 720000, 16000);     /* 47 %: none is lost */
}


/* How full the table gets before a live counter has to go. */
static void
test_load(void **state)
{
    ngx_rl_segments_stat_t  stat;

    map_t map = table_make(0, 64 * MIB);
    uint64_t n = 0;

    do {
        (void) put(map.table, n++, LATER);
        assert_true(n < 64 * MIB / 64 * 3);

        if (n % 10000 == 0) {
            stat = stat_at(map.table, NOW);
        }

    } while (n % 10000 || stat.lost == 0);

    print_message("first live eviction at %.1f %% of %lu places\n",
                  100.0 * n / stat.places, stat.places);
    assert_in_range(100 * n / stat.places, 50, 90);
    table_free(map);
}

/*
 * The heaviest keys against an exact count: the bounds hold, whatever the
 * stream and the sample; turns; a process that dies inside.
 */

#include "unit.h"

#include "ngx_rl_tally.h"

#define KEYS    100000
#define MINUTE  NGX_RL_TOP_TURN_MS

static ngx_rl_top_t       top;
static ngx_rl_top_list_t  list;
static ngx_rl_sampler_t   sampler;
static uint64_t                  exact[KEYS];


static void
begin(void)
{
    memset(&top, 0, sizeof(top));
    memset(exact, 0, sizeof(exact));
    ngx_rl_sampler_init(&sampler);
    ngx_rl_top_turn(&top, 1);
}


static void
count(uint64_t key, uint64_t weight)
{
    ngx_rl_id_t    id = { key + 1, ~key };
    unsigned char  name[NGX_RL_TOP_NAME] = { 0 };

    memcpy(name, &key, sizeof(key));

    if (!ngx_rl_top_count(&top, &id, weight)) {
        ngx_rl_top_enter(&top, &id, weight, key % 3, name);
    }
}


static void
count_all(uint64_t key, int n)
{
    while (n--) {
        count(key, 1);
    }
}


static void
see(uint64_t key)
{
    exact[key]++;

    if (--sampler.left == 0) {
        count(key, ngx_rl_sampler_take(&sampler, rnd(UINT64_MAX)));
    }
}


static uint64_t
key_of(const ngx_rl_top_key_t *key)
{
    uint64_t  number;

    memcpy(&number, key->entry->name, sizeof(number));
    assert_int_equal(key->entry->kind, number % 3);

    return number;
}


/* Returns how many of the keys are outside of their bounds. */
static int
outside(void)
{
    char      listed[KEYS] = { 0 };

    ngx_rl_top_list(&top, &list);
    int n = 0;

    for (uint32_t i = 0; i < list.nkeys; i++) {
        uint64_t key = key_of(&list.keys[i]);
        assert_false(listed[key]);
        listed[key] = 1;
        n += exact[key] < list.keys[i].at_least
             || exact[key] > list.keys[i].at_most;
        assert_true(i == 0 || list.keys[i].at_least
                              <= list.keys[i - 1].at_least);
    }

    for (uint64_t key = 0; key < KEYS; key++) {
        n += !listed[key] && exact[key] > list.others;
    }

    return n;
}


static void
test_few_keys(void **state)
{
    begin();

    for (uint64_t key = 0; key < NGX_RL_TOP_ENTRIES; key++) {
        exact[key] = key + 1;
        count_all(key, (int) key + 1);
    }

    assert_int_equal(outside(), 0);
    assert_int_equal(list.nkeys, NGX_RL_TOP_ENTRIES);
    assert_int_equal(list.others, 1);

    for (uint64_t i = 0; i < list.nkeys; i++) {
        uint64_t key = key_of(&list.keys[i]);
        assert_int_equal(key, list.nkeys - 1 - i);
        assert_int_equal(list.keys[i].at_least, key + 1);
        assert_int_equal(list.keys[i].at_most, key + 1);
    }
}


/* One key in 2, 4, 8, ... and many that come once. */
static uint64_t
stream(uint64_t random)
{
    for (int i = 0; i < 10; i++) {
        if (random >> i & 1) {
            return i;
        }
    }

    return 10 + (random >> 10) % (KEYS - 10);
}


/* No sample: the bounds hold for each key. */
static void
test_every_one(void **state)
{
    seed_new();
    begin();
    uint64_t n = full_or(2000000, 300000);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t key = stream(rnd(UINT64_MAX));
        exact[key]++;
        count(key, 1);
    }

    assert_int_equal(outside(), 0);
    assert_int_equal(list.total, n);

    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(key_of(&list.keys[i]), i);
        assert_true(list.keys[i].at_most - list.keys[i].at_least
                    <= n / NGX_RL_TOP_ENTRIES);
    }
}


/*
 * A sample, of a stream that grows and falls; turns, too. One seed: the counts
 * are estimates, and one in twenty is off by a quarter.
 */
static void
test_sample(void **state)
{
    uint64_t  rates[] = { 10, 50, 100, 1000, 20000, 20000, 300, 0, 5000 };

    seed_init();

    for (uint64_t n = 0; n < 5; n++) {
        begin();
        uint64_t total = 0;

        for (uint64_t second = 0; second < COUNT(rates); second++) {
            for (uint64_t i = 0; i < rates[second]; i++) {
                see(stream(rnd(UINT64_MAX)));
            }

            total += rates[second];
            ngx_rl_sampler_tick(&sampler, rnd(UINT64_MAX));

            if (second == 4) {
                ngx_rl_top_turn(&top, 1 + MINUTE);
            }
        }

        assert_in_range(outside(), 0, 3);
        assert_in_range(list.total, total * 8 / 10, total * 12 / 10);

        for (uint64_t i = 0; i < 2; i++) {
            uint64_t key = key_of(&list.keys[i]);
            assert_int_equal(key, i);
            assert_in_range(list.keys[i].count, exact[i] * 3 / 4,
                            exact[i] * 5 / 4);
        }
    }
}


/* How many are taken: all of a few, about as many of any number. */
static void
test_sampler(void **state)
{
    uint64_t  taken, weight, sum;

    seed_init();

    for (uint64_t rate = 50; rate <= 5000000; rate *= 10) {
        ngx_rl_sampler_init(&sampler);

        for (uint64_t second = 0; second < 4; second++) {
            taken = sum = 0;

            for (uint64_t i = 0; i < rate; i++) {
                if (--sampler.left == 0) {
                    weight = ngx_rl_sampler_take(&sampler, rnd(UINT64_MAX));
                    assert_true(rate > 200 || weight == 1);
                    sum += weight;
                    taken++;
                }
            }

            ngx_rl_sampler_tick(&sampler, rnd(UINT64_MAX));

            assert_in_range(taken, 0, 2500);

            if (second) {
                assert_true(taken >= (rate > 200 ? 50 : rate));
                assert_in_range(sum, rate / 2, rate * 2);
            }
        }

        assert_in_range(taken, rate > 200 ? 50 : rate, 250);

        /* nobody comes: the next one is taken */

        ngx_rl_sampler_tick(&sampler, rnd(UINT64_MAX));
        assert_int_equal(sampler.left, 1);
        assert_int_equal(sampler.weight, 1);
    }
}


/* One that could not be counted counts with the next. */
static void
test_carry(void **state)
{
    ngx_rl_sampler_init(&sampler);
    uint64_t weight = ngx_rl_sampler_take(&sampler, 0);
    ngx_rl_sampler_carry(&sampler, weight);
    assert_int_equal(ngx_rl_sampler_take(&sampler, 0), 2);
    assert_int_equal(ngx_rl_sampler_take(&sampler, 0), 1);
    assert_int_equal(sampler.seen, 3);
}


static void
test_turns(void **state)
{
    begin();
    count_all(1, 1);
    ngx_rl_top_turn(&top, MINUTE);
    count_all(1, 2);
    ngx_rl_top_turn(&top, 1 + MINUTE);
    count_all(1, 4);
    count_all(2, 1);

    ngx_rl_top_list(&top, &list);
    assert_int_equal(list.nkeys, 2);
    assert_int_equal(list.keys[0].count, 7);
    assert_int_equal(list.total, 8);
    assert_int_equal(list.began_ms, 1);

    /* a worker whose time is a little behind forgets nothing */

    ngx_rl_top_turn(&top, MINUTE - 1);
    ngx_rl_top_list(&top, &list);
    assert_int_equal(list.total, 8);
    assert_int_equal(list.began_ms, 1);

    /* the first turn is forgotten, then all */

    ngx_rl_top_turn(&top, 1 + 2 * MINUTE);
    ngx_rl_top_list(&top, &list);
    assert_int_equal(list.keys[0].count, 4);
    assert_int_equal(list.began_ms, 1 + MINUTE);

    count(3, 1);
    ngx_rl_top_turn(&top, 1 + 4 * MINUTE);
    ngx_rl_top_list(&top, &list);
    assert_int_equal(list.nkeys, 0);
    assert_int_equal(list.began_ms, 1 + 4 * MINUTE);
}


/* A key that one of the turns does not have any more may have more there. */
static void
test_other_turn(void **state)
{
    begin();
    exact[1] = 1001;
    count_all(1, 1000);
    ngx_rl_top_turn(&top, 1 + MINUTE);
    count_all(1, 1);

    for (uint64_t key = 10; key < 10 + 3 * NGX_RL_TOP_ENTRIES; key++) {
        exact[key] = 1;
        count_all(key, 1);
    }

    assert_int_equal(outside(), 0);
    assert_int_equal(list.keys[0].count, 1000);
    assert_in_range(list.keys[0].at_most, 1001, 1004);
}


/* A death behind the first store: the place is nobody's, and is used again. */
static void
test_death(void **state)
{
    begin();
    count_all(1, 5);
    count_all(2, 1);

    top.halves[top.current].entries[1].id.hi = 0;
    top.halves[top.current].entries[1].id.lo = 0;

    ngx_rl_top_list(&top, &list);
    assert_int_equal(list.nkeys, 1);

    for (uint64_t key = 10; key < 10 + 3 * NGX_RL_TOP_ENTRIES; key++) {
        count(key, 1);
    }

    ngx_rl_top_list(&top, &list);
    assert_int_equal(list.nkeys, NGX_RL_TOP_ENTRIES);
    assert_int_equal(key_of(&list.keys[0]), 1);
}

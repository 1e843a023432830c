/*
 * The 1,024 places of Redis nodes: each name has one, it keeps it while it is
 * in use, and names that are gone leave theirs to others.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ngx_rl_redis_shared.h"

#include "nginx.h"
#include "nginx_text.h"

#define PLACES    NGX_RL_REDIS_PLACES
#define MINUTE    60000
#define ROLLOUTS  200
#define PODS      12

volatile ngx_msec_t  ngx_current_msec;
ngx_uint_t           ngx_pagesize = 4096;
uint32_t            *ngx_crc32_table_short, ngx_crc32_table256[256];

static ngx_rl_redis_shared_t  *shared;
static ngx_rl_redis_times_t    times[NGX_RL_REDIS_WORKERS
                                           * NGX_RL_REDIS_PLACES];


/* not called here */

ngx_shm_zone_t *
ngx_shared_memory_add(ngx_conf_t *cf, ngx_str_t *name, size_t size, void *tag)
{
    (void) cf;
    (void) name;
    (void) size;
    (void) tag;

    return NULL;
}


void *
ngx_slab_alloc(ngx_slab_pool_t *pool, size_t size)
{
    (void) pool;
    (void) size;

    return NULL;
}


static int
setup(void **state)
{
    free(shared);
    shared = aligned_alloc(NGX_RL_LINE, sizeof(ngx_rl_redis_shared_t));
    if (shared == NULL) {
        return 1;
    }

    memset(shared, 0, sizeof(ngx_rl_redis_shared_t));
    ngx_current_msec = 1000000;

    shared->times = times;
    memset(times, 0, sizeof(times));

    return 0;
}

#define TEST_SETUP     setup


static ngx_rl_redis_place_t *
place(const char *what, ngx_uint_t rollout, ngx_uint_t n)
{
    u_char     data[128];
    ngx_str_t  name;

    name.data = data;
    name.len = snprintf((char *) data, sizeof(data), "%s-%lu-%lu:6379", what,
                        (unsigned long) rollout, (unsigned long) n);

    return ngx_rl_redis_place(shared, &name);
}


static void
assert_name(ngx_rl_redis_place_t *shard, const char *name)
{
    assert_non_null(shard);
    assert_int_equal(shard->name_len, strlen(name));
    assert_memory_equal(shard->name, name, strlen(name));
}


static void
test_one_each(void **state)
{
    ngx_rl_redis_place_t  *shards[PLACES];

    for (ngx_uint_t i = 0; i < PLACES; i++) {
        shards[i] = place("redis", 0, i);
        assert_non_null(shards[i]);
    }

    for (ngx_uint_t i = 0; i < PLACES; i++) {
        assert_ptr_equal(place("redis", 0, i), shards[i]);

        for (ngx_uint_t j = 0; j < i; j++) {
            assert_ptr_not_equal(shards[j], shards[i]);
        }
    }

    assert_name(shards[7], "redis-0-7:6379");

    /* all are in use */

    assert_null(place("one-more", 0, 0));
    ngx_current_msec += MINUTE - 1;
    assert_null(place("one-more", 0, 0));
}


/* As each second does, the workers use the places of the pods of today. */
static void
test_rollouts(void **state)
{
    ngx_rl_redis_place_t  *old, *pods[PODS];

    old = place("stays", 0, 0);
    atomic_store(&old->breaker.state, 12345);

    for (ngx_uint_t rollout = 0; rollout < ROLLOUTS; rollout++) {
        for (ngx_uint_t i = 0; i < PODS; i++) {
            pods[i] = place("pod", rollout, i);
            assert_non_null(pods[i]);

            /* nothing is left of those that had the place before */

            assert_int_equal(atomic_load(&pods[i]->breaker.state), 0);
            assert_int_equal(atomic_load(&pods[i]->changes[0].written_ms), 0);
            assert_int_equal(atomic_load(&pods[i]->errors[1].written_ms), 0);

            atomic_store(&pods[i]->breaker.state, 54321);
            atomic_store(&pods[i]->changes[0].written_ms, ngx_current_msec);
            atomic_store(&pods[i]->errors[1].written_ms, 7);
        }

        for (ngx_uint_t i = 0; i < PODS; i++) {
            assert_ptr_equal(place("pod", rollout, i), pods[i]);
        }

        ngx_current_msec += MINUTE / 2;

        /* what is used keeps its place and its state */

        assert_ptr_equal(place("stays", 0, 0), old);
    }

    assert_int_equal(atomic_load(&old->breaker.state), 12345);
    assert_name(old, "stays-0-0:6379");
    assert_name(place("pod", ROLLOUTS - 1, 11), "pod-199-11:6379");
}


/* A worker that was stopped finds its place given away, and takes another. */
static void
test_stopped_worker(void **state)
{
    ngx_rl_redis_place_t *mine = place("mine", 0, 0);
    ngx_current_msec += MINUTE;

    for (ngx_uint_t i = 0; i < PLACES - 1; i++) {
        assert_non_null(place("others", 0, i));
    }

    /* its place may be theirs by now, or the last one */

    ngx_rl_redis_place_t *again = place("mine", 0, 0);
    assert_name(again, "mine-0-0:6379");
    assert_null(place("one-more", 0, 0));

    if (again != mine) {
        assert_memory_not_equal(mine->name, "mine", 4);
    }
}


/* Another worker's clock may be a moment ahead. */
static void
test_clocks(void **state)
{
    ngx_rl_redis_place_t  *shards[PLACES];

    for (ngx_uint_t i = 0; i < PLACES; i++) {
        shards[i] = place("redis", 0, i);
    }

    ngx_current_msec -= 10;
    assert_null(place("one-more", 0, 0));
    assert_ptr_equal(place("redis", 0, 5), shards[5]);
}


/* Whatever worker counted, the sum is what is told. */
static void
test_counts(void **state)
{
    ngx_rl_redis_stat_t  stat;

    ngx_rl_redis_t redis = { 0 };
    memset(&stat, 0xff, sizeof(stat));
    redis.shared = shared;

    for (ngx_uint_t i = 0; i < NGX_RL_REDIS_WORKERS; i++) {
        shared->workers[i].calls[NGX_RL_REDIS_OK] = i + 1;
        shared->workers[i].replies[NGX_RL_REDIS_BUSY] = 1;
    }

    ngx_rl_redis_stat(&redis, &stat);
    assert_int_equal(stat.calls[NGX_RL_REDIS_OK], 64 * 65 / 2);
    assert_int_equal(stat.calls[NGX_RL_REDIS_BUSY], 0);
    assert_int_equal(stat.replies[NGX_RL_REDIS_BUSY], 64);
}

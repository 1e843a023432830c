/*
 * What the workers of one node share of a block, in memory of its own: nginx
 * gives it to each new cycle. Its name is made of all that it depends on, the
 * layout included, so that memory under that name is always usable as it is.
 */

#include "ngx_ratelimit_redis_int.h"

#include <openssl/rand.h>

/* changed with every change of the layout */
#define NGX_RATELIMIT_REDIS_SHARED_LAYOUT  3

/* pages left to the slab allocator */
#define NGX_RATELIMIT_REDIS_SHARED_SPARE   8

/* "~" and an id in hex */
#define NGX_RATELIMIT_REDIS_SHARD_ID       17

static uint32_t ngx_ratelimit_redis_shared_hash(
    const ngx_ratelimit_redis_t *redis);
static ngx_int_t ngx_ratelimit_redis_shared_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_uint_t ngx_ratelimit_redis_shard_claim(
    ngx_ratelimit_redis_shard_t *shard, uint64_t id, const ngx_str_t *name);


ngx_int_t
ngx_ratelimit_redis_share(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    void *tag)
{
    size_t           size;
    ngx_str_t        name;
    ngx_shm_zone_t  *shm_zone;

    size = sizeof("ratelimit_redis:::") + redis->name.len + 2 * NGX_INT32_LEN;

    name.data = ngx_pnalloc(cf->pool, size);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    /* no zone has a name with a colon */

    name.len = ngx_sprintf(name.data, "ratelimit_redis:%V:%d:%08xD",
                           &redis->name, NGX_RATELIMIT_REDIS_SHARED_LAYOUT,
                           ngx_ratelimit_redis_shared_hash(redis))
               - name.data;

    size = ngx_align(sizeof(ngx_ratelimit_redis_shared_t), ngx_pagesize)
           + NGX_RATELIMIT_REDIS_SHARED_SPARE * ngx_pagesize;

    shm_zone = ngx_shared_memory_add(cf, &name, size, tag);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = ngx_ratelimit_redis_shared_init;
    shm_zone->data = redis;

    return NGX_OK;
}


/* Of the mode and the hosts: others have other shards, another map. */

static uint32_t
ngx_ratelimit_redis_shared_hash(const ngx_ratelimit_redis_t *redis)
{
    u_char                       port[2];
    uint32_t                     hash;
    ngx_uint_t                   i;
    ngx_ratelimit_redis_host_t  *hosts;

    hosts = redis->hosts.elts;

    ngx_crc32_init(hash);

    for (i = 0; i < redis->hosts.nelts; i++) {
        port[0] = hosts[i].port >> 8;
        port[1] = hosts[i].port & 0xff;

        ngx_crc32_update(&hash, hosts[i].host.data, hosts[i].host.len);
        ngx_crc32_update(&hash, port, sizeof(port));
    }

    ngx_crc32_update(&hash, redis->master.data, redis->master.len);
    ngx_crc32_final(hash);

    return hash + redis->mode;
}


/* Old workers use the memory: nothing is written to what is there. */

static ngx_int_t
ngx_ratelimit_redis_shared_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_slab_pool_t        *shpool;
    ngx_ratelimit_redis_t  *redis, *old;

    redis = shm_zone->data;
    old = data;

    if (old) {
        redis->shared = old->shared;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    redis->shared = ngx_slab_alloc(shpool,
                                   sizeof(ngx_ratelimit_redis_shared_t));
    if (redis->shared == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(redis->shared,
                offsetof(ngx_ratelimit_redis_shared_t, board.words));

    do {
        if (RAND_bytes((u_char *) &redis->shared->node, sizeof(uint64_t))
            != 1)
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "RAND_bytes() failed for ratelimit redis \"%V\"",
                          &redis->name);
            return NGX_ERROR;
        }

    } while (redis->shared->node == 0);

    return NGX_OK;
}


ngx_ratelimit_redis_shard_t *
ngx_ratelimit_redis_shard(ngx_ratelimit_redis_shared_t *shared,
    const ngx_str_t *name)
{
    uint64_t                      id;
    ngx_uint_t                    i, n;
    ngx_ratelimit_id_t            hash;
    ngx_ratelimit_redis_shard_t  *shard;
    static const u_char           key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    /* the operator names the hosts: nobody has to be kept from guessing */

    hash = ngx_ratelimit_siphash(key, name->data, name->len, 1, 3);
    id = hash.lo ? hash.lo : 1;

    for (i = 0; i < NGX_RATELIMIT_REDIS_MAX_SHARDS; i++) {
        n = (hash.hi + i) % NGX_RATELIMIT_REDIS_MAX_SHARDS;
        shard = &shared->shards[n];

        if (ngx_ratelimit_redis_shard_claim(shard, id, name)) {
            return shard;
        }
    }

    return NULL;
}


/* Whether the place is that shard's, or was free and is now. */

static ngx_uint_t
ngx_ratelimit_redis_shard_claim(ngx_ratelimit_redis_shard_t *shard,
    uint64_t id, const ngx_str_t *name)
{
    size_t    len;
    uint64_t  found;

    found = 0;

    if (!atomic_compare_exchange_strong(&shard->id, &found, id)) {
        if (found != id) {
            return 0;
        }

        if (atomic_load(&shard->named)) {
            return 1;
        }
    }

    /* whoever finds it without a name writes it: all write the same */

    len = ngx_min(name->len, NGX_RATELIMIT_REDIS_SHARD_NAME);
    shard->name_len = len;

    if (name->len > len) {

        /* the id in the place of the rest: no two are shown alike */

        len -= NGX_RATELIMIT_REDIS_SHARD_ID;
        (void) ngx_sprintf(shard->name + len, "~%016xL", id);
    }

    ngx_memcpy(shard->name, name->data, len);
    atomic_store(&shard->named, 1);

    return 1;
}


void
ngx_ratelimit_redis_stat(const ngx_ratelimit_redis_t *redis,
    ngx_ratelimit_redis_stat_t *stat)
{
    ngx_uint_t                     i;
    ngx_ratelimit_redis_shared_t  *shared;

    shared = redis->shared;

    for (i = 0; i < NGX_RATELIMIT_REDIS_STATUSES; i++) {
        stat->calls[i] = atomic_load(&shared->calls[i]);
        stat->replies[i] = atomic_load(&shared->replies[i]);
    }

    stat->refreshes = atomic_load(&shared->refreshes);
    stat->reconnects = atomic_load(&shared->reconnects);
    stat->opened = atomic_load(&shared->opened);
    stat->nodes = ngx_ratelimit_redis_nodes(redis);
}


ngx_int_t
ngx_ratelimit_redis_shard_stat(const ngx_ratelimit_redis_t *redis,
    ngx_uint_t *n, ngx_ratelimit_redis_shard_stat_t *stat)
{
    ngx_ratelimit_redis_shard_t  *shard;

    while (*n < NGX_RATELIMIT_REDIS_MAX_SHARDS) {
        shard = &redis->shared->shards[(*n)++];

        if (!atomic_load(&shard->named)) {
            continue;
        }

        stat->name.data = shard->name;
        stat->name.len = shard->name_len;
        stat->state = ngx_ratelimit_breaker_state(&shard->breaker);

        return NGX_OK;
    }

    return NGX_DONE;
}

/*
 * What the workers of one node share of a block, in memory of its own: nginx
 * gives it to each new cycle. Its name is made of all that it depends on, the
 * layout included, so that memory under that name is always usable as it is.
 */

#include "ngx_ratelimit_redis_int.h"

#include <openssl/rand.h>

/* changed with every change of the layout */
#define NGX_RATELIMIT_REDIS_SHARED_LAYOUT  9

/* pages left to the slab allocator */
#define NGX_RATELIMIT_REDIS_SHARED_SPARE   8

/*
 * Workers that use a place say so each second (see conns_keep), so one that
 * nobody has used for so long is of a Redis node that is gone.
 */
#define NGX_RATELIMIT_REDIS_SHARD_UNUSED_MS  60000

/* other workers may take a place first */
#define NGX_RATELIMIT_REDIS_SHARD_TRIES      8

/* while a breaker is open, the log repeats errors so often */
#define NGX_RATELIMIT_REDIS_REMIND_MS        10000

/* "~" and an id in hex */
#define NGX_RATELIMIT_REDIS_SHARD_ID       17

static uint32_t ngx_ratelimit_redis_shared_hash(
    const ngx_ratelimit_redis_t *redis);
static ngx_int_t ngx_ratelimit_redis_shared_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_ratelimit_redis_shard_t *ngx_ratelimit_redis_shard_find(
    ngx_ratelimit_redis_shared_t *shared, uint64_t id, uint64_t from);
static ngx_uint_t ngx_ratelimit_redis_shard_unused(
    ngx_ratelimit_redis_shard_t *shard);
static ngx_uint_t ngx_ratelimit_redis_shard_claim(
    ngx_ratelimit_redis_shard_t *shard, uint64_t id);
static void ngx_ratelimit_redis_shard_name(ngx_ratelimit_redis_shard_t *shard,
    uint64_t id, const ngx_str_t *name);


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
        redis->reloaded = 1;
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


/*
 * Places are never freed but given to another Redis node, so no chain of places
 * gets a gap: the place of a name is found before the first free one.
 */

ngx_ratelimit_redis_shard_t *
ngx_ratelimit_redis_shard(ngx_ratelimit_redis_shared_t *shared,
    const ngx_str_t *name)
{
    uint64_t                      id;
    ngx_uint_t                    i;
    ngx_ratelimit_id_t            hash;
    ngx_ratelimit_redis_shard_t  *shard;
    static const u_char           key[NGX_RATELIMIT_SIPHASH_KEY_BYTES];

    /* the operator names the hosts: nobody has to be kept from guessing */

    hash = ngx_ratelimit_siphash(key, name->data, name->len, 1, 3);
    id = hash.lo ? hash.lo : 1;

    for (i = 0; i < NGX_RATELIMIT_REDIS_SHARD_TRIES; i++) {
        shard = ngx_ratelimit_redis_shard_find(shared, id, hash.hi);

        if (shard == NULL) {
            return NULL;
        }

        if (ngx_ratelimit_redis_shard_claim(shard, id)) {
            atomic_store(&shard->used_ms, ngx_current_msec);
            ngx_ratelimit_redis_shard_name(shard, id, name);
            return shard;
        }
    }

    return NULL;
}


/* The place of that id, else the first one that can be had; NULL: none. */

static ngx_ratelimit_redis_shard_t *
ngx_ratelimit_redis_shard_find(ngx_ratelimit_redis_shared_t *shared,
    uint64_t id, uint64_t from)
{
    uint64_t                      found;
    ngx_uint_t                    i;
    ngx_ratelimit_redis_shard_t  *shard, *first;

    first = NULL;

    for (i = 0; i < NGX_RATELIMIT_REDIS_MAX_SHARDS; i++) {
        shard = &shared->shards[(from + i) % NGX_RATELIMIT_REDIS_MAX_SHARDS];
        found = atomic_load(&shard->id);

        if (found == id) {
            return shard;
        }

        if (first == NULL
            && (found == 0 || ngx_ratelimit_redis_shard_unused(shard)))
        {
            first = shard;
        }

        if (found == 0) {
            break;
        }
    }

    return first;
}


/* Other workers' time may be a moment ahead. */

static ngx_uint_t
ngx_ratelimit_redis_shard_unused(ngx_ratelimit_redis_shard_t *shard)
{
    return (int64_t) (ngx_current_msec - atomic_load(&shard->used_ms))
           >= NGX_RATELIMIT_REDIS_SHARD_UNUSED_MS;
}


/*
 * Whether the place is that id's, or was free or unused and is now. The worker
 * that gives it to another Redis node cleans up behind the old one. If it dies
 * before that, the breaker has the old state, which a probe corrects.
 */

static ngx_uint_t
ngx_ratelimit_redis_shard_claim(ngx_ratelimit_redis_shard_t *shard,
    uint64_t id)
{
    uint64_t  found;

    found = atomic_load(&shard->id);

    if (found == id) {
        return 1;
    }

    if (found && !ngx_ratelimit_redis_shard_unused(shard)) {
        return 0;
    }

    if (!atomic_compare_exchange_strong(&shard->id, &found, id)) {
        return found == id;
    }

    if (found) {
        ngx_memzero(&shard->breaker, sizeof(ngx_ratelimit_breaker_t));
        ngx_memzero(&shard->opens, offsetof(ngx_ratelimit_redis_shard_t, named)
                                - offsetof(ngx_ratelimit_redis_shard_t, opens));
    }

    return 1;
}


ngx_uint_t
ngx_ratelimit_redis_error_due(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_line_e line, char note[NGX_RATELIMIT_LOG_NOTE])
{
    uint64_t                      interval_ms;
    ngx_ratelimit_redis_shard_t  *shard;

    shard = conn->shard;

    if (shard == NULL) {
        return ngx_ratelimit_log_due(&conn->errors, ngx_current_msec,
                                     NGX_RATELIMIT_LOG_MS, note);
    }

    interval_ms = (ngx_ratelimit_breaker_state(&shard->breaker)
                   == NGX_RATELIMIT_BREAKER_OPEN)
                  ? NGX_RATELIMIT_REDIS_REMIND_MS : NGX_RATELIMIT_LOG_MS;

    return ngx_ratelimit_log_due(&shard->errors[line], ngx_current_msec,
                                 interval_ms, note);
}


ngx_uint_t
ngx_ratelimit_redis_notice_due(ngx_ratelimit_redis_conn_t *conn,
    char note[NGX_RATELIMIT_LOG_NOTE])
{
    return ngx_ratelimit_log_due(conn->shard ? &conn->shard->notices
                                             : &conn->notices,
                                 ngx_current_msec, NGX_RATELIMIT_LOG_MS,
                                 note);
}


/* A worker that finds no name of that id writes it: all write the same. */

static void
ngx_ratelimit_redis_shard_name(ngx_ratelimit_redis_shard_t *shard,
    uint64_t id, const ngx_str_t *name)
{
    size_t  len;

    if (atomic_load(&shard->named) == id) {
        return;
    }

    len = ngx_min(name->len, NGX_RATELIMIT_REDIS_SHARD_NAME);
    shard->name_len = len;

    if (name->len > len) {

        /* the id in the place of the rest: no two are shown alike */

        len -= NGX_RATELIMIT_REDIS_SHARD_ID;
        (void) ngx_sprintf(shard->name + len, "~%016xL", id);
    }

    ngx_memcpy(shard->name, name->data, len);
    atomic_store(&shard->named, id);
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
    stat->handshakes = atomic_load(&shared->handshakes);
    stat->resumed = atomic_load(&shared->resumed);
    stat->opened = atomic_load(&shared->opened);
    stat->nodes = ngx_ratelimit_redis_nodes(redis);
}

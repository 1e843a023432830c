/*
 * Memory that the workers of one gateway share for a block. nginx gives it to
 * each new cycle. Its name is made of all that it depends on, the layout
 * included, so that memory under that name is always usable as it is.
 */

#include "ngx_rl_redis_shared.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_slot_map.h"

#include <openssl/rand.h>

/* changed with every change of the layout */
#define NGX_RL_REDIS_SHARED_LAYOUT  17

/* pages left to the slab allocator */
#define NGX_RL_REDIS_SHARED_SPARE   8

/*
 * Workers that use a place say so each second, so one that was not used for so
 * long belongs to a Redis node that is gone.
 */
#define NGX_RL_REDIS_PLACE_UNUSED_MS  60000

/* other workers may take a place first */
#define NGX_RL_REDIS_PLACE_TRIES      8

/* bytes of all workers' times */
#define NGX_RL_REDIS_SHARED_TIMES                                             \
    (NGX_RL_REDIS_WORKERS * NGX_RL_REDIS_PLACES                               \
     * sizeof(ngx_rl_redis_times_t))

/* "~" and an id in hex */
#define NGX_RL_REDIS_PLACE_ID       17


/* Old workers use the memory: nothing is written to what is there. */
static ngx_int_t
ngx_rl_redis_shared_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_slab_pool_t        *shpool;
    ngx_rl_blob_t          *map;
    ngx_rl_redis_t         *redis, *old;
    ngx_rl_redis_times_t   *times;
    ngx_rl_redis_shared_t  *shared;

    redis = shm_zone->data;
    old = data;

    if (old) {
        redis->shared = old->shared;
        redis->reloaded = 1;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    shared = ngx_slab_alloc(shpool, sizeof(ngx_rl_redis_shared_t));
    map = ngx_slab_alloc(shpool, ngx_rl_blob_size(sizeof(ngx_rl_slot_map_t)));
    times = ngx_slab_alloc(shpool, NGX_RL_REDIS_SHARED_TIMES);

    if (shared == NULL || map == NULL || times == NULL) {
        return NGX_ERROR;
    }

    /* most of the maps and of the times stays untouched: they are zero */

    ngx_memzero(shared, sizeof(ngx_rl_redis_shared_t));
    ngx_memzero(map, ngx_rl_blob_size(0));
    ngx_rl_blob_init(map, sizeof(ngx_rl_slot_map_t));

    redis->shared = shared;
    shared->slab = shpool;
    shared->map = map;
    shared->times = times;

    do {
        if (RAND_bytes((u_char *) &shared->gateway, sizeof(uint64_t)) != 1) {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "RAND_bytes() failed for ratelimit redis \"%V\"",
                          &redis->name);
            return NGX_ERROR;
        }

    } while (shared->gateway == 0);

    return NGX_OK;
}


ngx_int_t
ngx_rl_redis_share(ngx_conf_t *cf, ngx_rl_redis_t *redis, void *tag)
{
    size_t                size;
    u_char                port[2];
    uint32_t              hash;
    ngx_str_t             name;
    ngx_uint_t            i;
    ngx_shm_zone_t       *shm_zone;
    ngx_rl_redis_host_t  *hosts;

    /*
     * A hash of the mode and the hosts: with others there are other places, and
     * another map.
     */

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

    size = sizeof("ratelimit_redis:::") + redis->name.len + 2 * NGX_INT32_LEN;

    name.data = ngx_pnalloc(cf->pool, size);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    /* no zone has a name with a colon */

    name.len = ngx_sprintf(name.data, "ratelimit_redis:%V:%d:%08xD",
                           &redis->name, NGX_RL_REDIS_SHARED_LAYOUT,
                           hash + (uint32_t) redis->mode)
               - name.data;

    size = sizeof(ngx_rl_redis_shared_t)
           + ngx_rl_blob_size(sizeof(ngx_rl_slot_map_t))
           + NGX_RL_REDIS_SHARED_TIMES;
    size = ngx_align(size, ngx_pagesize);

    /* nginx needs some bytes for each page */

    size += size / ngx_pagesize * sizeof(ngx_slab_page_t)
            + NGX_RL_REDIS_SHARED_SPARE * ngx_pagesize;
    size = ngx_align(size, ngx_pagesize);

    shm_zone = ngx_shared_memory_add(cf, &name, size, tag);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = ngx_rl_redis_shared_init;
    shm_zone->data = redis;

    return NGX_OK;
}


/* Other workers' time may be a moment ahead. */
static ngx_uint_t
ngx_rl_redis_place_unused(ngx_rl_redis_place_t *place)
{
    return (int64_t) (ngx_current_msec - atomic_load(&place->used_ms))
           >= NGX_RL_REDIS_PLACE_UNUSED_MS;
}


/* The place of that id, else the first one that can be had; NULL: none. */
static ngx_rl_redis_place_t *
ngx_rl_redis_place_find(ngx_rl_redis_shared_t *shared, uint64_t id,
    uint64_t from)
{
    uint64_t               found;
    ngx_uint_t             i;
    ngx_rl_redis_place_t  *place, *first;

    first = NULL;

    for (i = 0; i < NGX_RL_REDIS_PLACES; i++) {
        place = &shared->places[(from + i) % NGX_RL_REDIS_PLACES];
        found = atomic_load(&place->id);

        if (found == id) {
            return place;
        }

        if (first == NULL && (found == 0 || ngx_rl_redis_place_unused(place))) {
            first = place;
        }

        if (found == 0) {
            break;
        }
    }

    return first;
}


/*
 * Whether the place is that id's, or was free or unused and is now. The worker
 * that gives it to another Redis node cleans up behind the old one. If it dies
 * before that, the breaker has the old state, which a probe corrects.
 */
static ngx_uint_t
ngx_rl_redis_place_claim(ngx_rl_redis_shared_t *shared,
    ngx_rl_redis_place_t *place, uint64_t id)
{
    uint64_t    found;
    ngx_uint_t  n;

    found = atomic_load(&place->id);

    if (found == id) {
        return 1;
    }

    if (found && !ngx_rl_redis_place_unused(place)) {
        return 0;
    }

    if (!atomic_compare_exchange_strong(&place->id, &found, id)) {
        return found == id;
    }

    if (found) {
        ngx_memzero(&place->breaker, sizeof(ngx_rl_breaker_t));
        atomic_store(&place->up_ms, 0);
        ngx_memzero(place->changes,
                    offsetof(ngx_rl_redis_place_t, named)
                    - offsetof(ngx_rl_redis_place_t, changes));

        for (n = 0; n < NGX_RL_REDIS_WORKERS; n++) {
            ngx_memzero(ngx_rl_redis_times_of(shared, n, place),
                        sizeof(ngx_rl_redis_times_t));
        }
    }

    return 1;
}


/* A worker that finds no name of that id writes it: all write the same. */
static void
ngx_rl_redis_place_name(ngx_rl_redis_place_t *place, uint64_t id,
    const ngx_str_t *name)
{
    size_t  len;

    if (atomic_load(&place->named) == id) {
        return;
    }

    len = ngx_min(name->len, NGX_RL_REDIS_PLACE_NAME);
    place->name_len = len;

    if (name->len > len) {

        /* the id in the place of the rest: no two are shown alike */

        len -= NGX_RL_REDIS_PLACE_ID;
        (void) ngx_sprintf(place->name + len, "~%016xL", id);
    }

    ngx_memcpy(place->name, name->data, len);
    atomic_store(&place->named, id);
}


/*
 * Places are never freed but given to another Redis node, so no chain of places
 * gets a gap: the place of a name is found before the first free one.
 */
ngx_rl_redis_place_t *
ngx_rl_redis_place(ngx_rl_redis_shared_t *shared, const ngx_str_t *name)
{
    uint64_t               id;
    ngx_uint_t             i;
    ngx_rl_id_t            hash;
    ngx_rl_redis_place_t  *place;
    static const u_char    key[NGX_RL_SIPHASH_KEY_BYTES];

    /* the operator names the hosts: nobody has to be kept from guessing */

    hash = ngx_rl_siphash(key, name->data, name->len, 1, 3);
    id = hash.lo ? hash.lo : 1;

    for (i = 0; i < NGX_RL_REDIS_PLACE_TRIES; i++) {
        place = ngx_rl_redis_place_find(shared, id, hash.hi);

        if (place == NULL) {
            return NULL;
        }

        if (ngx_rl_redis_place_claim(shared, place, id)) {
            atomic_store(&place->used_ms, ngx_current_msec);
            ngx_rl_redis_place_name(place, id, name);
            return place;
        }
    }

    return NULL;
}


/* Only of workers that there are: the others' memory stays untouched. */
void
ngx_rl_redis_times(ngx_rl_redis_shared_t *shared,
    const ngx_rl_redis_place_t *place, uint64_t words[NGX_RL_HISTOGRAM_WORDS])
{
    ngx_uint_t         i, n;
    _Atomic uint64_t  *times;

    ngx_memzero(words, NGX_RL_HISTOGRAM_WORDS * sizeof(uint64_t));

    for (n = 0; n < NGX_RL_REDIS_WORKERS; n++) {

        if (shared->workers[n].calls[NGX_RL_REDIS_OK] == 0) {
            continue;
        }

        times = ngx_rl_redis_times_of(shared, n, place);

        for (i = 0; i < NGX_RL_HISTOGRAM_WORDS; i++) {
            words[i] += times[i];
        }
    }
}


ngx_uint_t
ngx_rl_redis_gateways(const ngx_rl_redis_t *redis)
{
    uint64_t  gateways;

    gateways = atomic_load_explicit(&redis->shared->gateways,
                                    memory_order_relaxed);

    return gateways ? (ngx_uint_t) gateways : 1;
}


void
ngx_rl_redis_stat(const ngx_rl_redis_t *redis, ngx_rl_redis_stat_t *stat)
{
    ngx_uint_t              i, n;
    ngx_rl_redis_shared_t  *shared;

    shared = redis->shared;

    ngx_memzero(stat, sizeof(ngx_rl_redis_stat_t));

    for (n = 0; n < NGX_RL_REDIS_WORKERS; n++) {
        for (i = 0; i < NGX_RL_REDIS_STATUSES; i++) {
            stat->calls[i] += atomic_load(&shared->workers[n].calls[i]);
            stat->replies[i] += atomic_load(&shared->workers[n].replies[i]);
        }
    }

    stat->refreshes = atomic_load(&shared->refreshes);
    stat->reconnects = atomic_load(&shared->reconnects);
    stat->handshakes = atomic_load(&shared->handshakes);
    stat->resumed = atomic_load(&shared->resumed);
    stat->opened = atomic_load(&shared->opened);
    stat->gateways = ngx_rl_redis_gateways(redis);
    stat->clock_ms = shared->clock_ms;
    stat->clocked = (shared->clocked != 0);
    stat->mapped = (redis->mode != NGX_RL_REDIS_SERVER
                    && atomic_load(&shared->answered_ms));
    stat->map_age_ms = ngx_max(0, (int64_t) (ngx_current_msec
                                     - atomic_load(&shared->answered_ms)));
}


ngx_uint_t
ngx_rl_redis_fleet(const ngx_rl_redis_t *redis)
{
    uint64_t  fleet;

    fleet = atomic_load_explicit(&redis->shared->fleet, memory_order_relaxed);

    return fleet ? (ngx_uint_t) fleet : 1;
}


uint64_t
ngx_rl_redis_heard_ms(const ngx_rl_redis_t *redis)
{
    return atomic_load(&redis->shared->heard_ms);
}

/*
 * The store of a zone in shared memory: declared while the configuration is
 * read, filled from the state file where it is new, before any worker runs.
 */

#include "ngx_ratelimit_sync_int.h"

#include "ngx_ratelimit_state.h"

/* pages left to the slab allocator */
#define NGX_RATELIMIT_SYNC_SPARE_PAGES  8

static ngx_int_t ngx_ratelimit_sync_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_ratelimit_sync_load(ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool, ngx_log_t *log);
static ngx_uint_t ngx_ratelimit_sync_publish_all(
    ngx_ratelimit_limiter_t *limiter, ngx_str_t text, ngx_pool_t *pool);


ngx_int_t
ngx_ratelimit_sync_prepare(ngx_conf_t *cf, ngx_ratelimit_limiter_t *limiter,
    void *tag)
{
    size_t           size;
    ngx_str_t        name;
    ngx_shm_zone_t  *shm_zone;

    size = sizeof("ratelimit_rules::") + limiter->zone.name.len
           + NGX_INT32_LEN;

    name.data = ngx_pnalloc(cf->pool, size);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    /* no zone has a name with a colon */

    name.len = ngx_sprintf(name.data, "ratelimit_rules:%d:%V",
                           NGX_RATELIMIT_STORE_LAYOUT, &limiter->zone.name)
               - name.data;

    size = ngx_align(ngx_ratelimit_store_size(NGX_RATELIMIT_RECORD_MAX,
                                              NGX_RATELIMIT_RECORD_RING),
                     ngx_pagesize);
    size += (size / ngx_pagesize) * sizeof(ngx_slab_page_t)
            + NGX_RATELIMIT_SYNC_SPARE_PAGES * ngx_pagesize;

    shm_zone = ngx_shared_memory_add(cf, &name,
                                     ngx_align(size, ngx_pagesize), tag);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = ngx_ratelimit_sync_init;
    shm_zone->data = limiter;

    return NGX_OK;
}


/* Old workers use the memory: nothing is written to what is there. */
static ngx_int_t
ngx_ratelimit_sync_init(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t                    size;
    ngx_int_t                 rc;
    ngx_pool_t               *pool;
    ngx_slab_pool_t          *shpool;
    ngx_ratelimit_limiter_t  *limiter, *old;

    limiter = shm_zone->data;
    old = data;

    if (old) {
        limiter->store = old->store;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    /* not zeroed here, which would touch all of it: it is zero, being new */

    size = ngx_ratelimit_store_size(NGX_RATELIMIT_RECORD_MAX,
                                    NGX_RATELIMIT_RECORD_RING);
    limiter->store = ngx_slab_alloc(shpool, size);

    if (limiter->store == NULL
        || ngx_ratelimit_store_init(limiter->store, size,
                                    NGX_RATELIMIT_RECORD_MAX,
                                    NGX_RATELIMIT_RECORD_RING)
           != NGX_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "could not make the store of ratelimit zone \"%V\" "
                      "in %uz bytes", &limiter->zone.name,
                      shm_zone->shm.size);
        return NGX_ERROR;
    }

    if (limiter->state.len == 0) {
        return NGX_OK;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, shm_zone->shm.log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_ratelimit_sync_load(limiter, pool, shm_zone->shm.log);

    ngx_destroy_pool(pool);

    return rc;
}


/*
 * A file that cannot be read is a mistake of the configuration, as any other
 * file of it; one that is not whole is none, and set aside.
 */
static ngx_int_t
ngx_ratelimit_sync_load(ngx_ratelimit_limiter_t *limiter, ngx_pool_t *pool,
    ngx_log_t *log)
{
    u_char           *name;
    uint64_t          version, id;
    ngx_str_t         text;
    ngx_uint_t        n;
    ngx_file_info_t   info;

    ngx_str_null(&text);

    if (ngx_ratelimit_state_read(&limiter->state, pool, ngx_test_config,
                                 &text, log)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    n = ngx_ratelimit_sync_publish_all(limiter, text, pool);

    if (n == 0) {
        return NGX_OK;
    }

    ngx_ratelimit_store_version(limiter->store, &version, &id);

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "ratelimit zone \"%V\" begins with version %uL of its "
                  "rules, from \"%V\"",
                  &limiter->zone.name, version, &limiter->state);

    /* where it was set aside the leader writes it again */

    name = ngx_pnalloc(pool, limiter->state.len + 1);
    if (name == NULL) {
        return NGX_ERROR;
    }

    ngx_cpystrn(name, limiter->state.data, limiter->state.len + 1);

    if (ngx_file_info(name, &info) != NGX_FILE_ERROR) {
        ngx_ratelimit_store_set_file(limiter->store, &limiter->state);
        limiter->store->written =
            ngx_ratelimit_store_generation(limiter->store);
    }

    return NGX_OK;
}


/* Of records, the newest first. Returns how many there are now. */
static ngx_uint_t
ngx_ratelimit_sync_publish_all(ngx_ratelimit_limiter_t *limiter,
    ngx_str_t text, ngx_pool_t *pool)
{
    uint64_t                      found;
    ngx_uint_t                    i, n, published;
    ngx_ratelimit_record_t        record;
    ngx_ratelimit_store_entry_t   entries[NGX_RATELIMIT_STORE_HISTORY + 1];

    for (n = 0; n <= NGX_RATELIMIT_STORE_HISTORY && text.len; n++) {

        if (ngx_ratelimit_record_read(&text, pool, &record) != NULL
            || record.text.len == 0)
        {
            break;
        }

        entries[n].version = record.version;
        entries[n].id = record.id;
        entries[n].text = record.text;

        text.data += record.text.len;
        text.len -= record.text.len;
    }

    published = 0;

    for (i = n; i > 0; i--) {
        if (ngx_ratelimit_store_publish(limiter->store, &entries[i - 1],
                                        NGX_RATELIMIT_STORE_ANY, 0,
                                        NGX_RATELIMIT_BLOB_KEEP, &found)
            == NGX_OK)
        {
            published++;
        }
    }

    return published;
}

/*
 * A zone's life: declared while the configuration is read, made or taken over
 * when nginx maps the memory, before any worker of the new cycle runs.
 */

#include "ngx_rl_zone.h"

#include <openssl/rand.h>

/* pages left to the slab allocator beside the tables, and in other memory */
#define NGX_RL_ZONE_SPARE_PAGES  2
#define NGX_RL_SHM_SPARE_PAGES   8

/* What the workers share beside the tables of a zone. */
typedef struct {
    const char   *of;                    /* for the log */
    ngx_uint_t    layout;
    size_t      (*size)(void);
    ngx_int_t   (*init)(void *memory);   /* which is zeroed */
} ngx_rl_zone_kind_t;


/*
 * data is the old cycle's zone when nginx keeps the memory. Old workers count
 * in it now and go on should this reload fail: nothing is written to it here.
 */
static ngx_int_t
ngx_rl_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t              pages, leases;
    ngx_rl_zone_t      *zone, *old;
    ngx_slab_pool_t    *shpool;
    ngx_rl_hash_key_t   hash_key;

    zone = shm_zone->data;
    old = data;

    if (old) {
        zone->table = old->table;
        zone->table_bytes = old->table_bytes;
        zone->leases = old->leases;
        zone->leases_bytes = old->leases_bytes;

        if (ngx_rl_table_check(zone->table, zone->table_bytes) == NGX_OK
            && (!zone->leased
                || ngx_rl_leases_check(zone->leases, zone->leases_bytes)
                   == NGX_OK))
        {
            return NGX_OK;
        }

        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "ratelimit zone \"%V\" was made by an incompatible "
                      "version of the module, expected a restart or another "
                      "zone name", &zone->name);
        return NGX_ERROR;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (RAND_bytes((u_char *) &hash_key, sizeof(hash_key)) != 1) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "RAND_bytes() failed for ratelimit zone \"%V\"",
                      &zone->name);
        return NGX_ERROR;
    }

    pages = shpool->pfree - NGX_RL_ZONE_SPARE_PAGES;
    leases = zone->leased ? pages / 2 : 0;

    zone->table_bytes = (pages - leases) * ngx_pagesize;
    zone->table = ngx_slab_alloc(shpool, zone->table_bytes);
    zone->leases_bytes = leases * ngx_pagesize;
    zone->leases = leases ? ngx_slab_alloc(shpool, zone->leases_bytes) : NULL;

    if (zone->table
        && ngx_rl_table_init(zone->table, zone->table_bytes, &hash_key)
           == NGX_OK
        && (leases == 0
            || (zone->leases
                && ngx_rl_leases_init(zone->leases, zone->leases_bytes)
                   == NGX_OK)))
    {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                  "could not make the table of ratelimit zone \"%V\" in %uz "
                  "bytes", &zone->name, shm_zone->shm.size);
    return NGX_ERROR;
}


ngx_shm_zone_t *
ngx_rl_shm_add(ngx_conf_t *cf, const char *what, ngx_uint_t layout,
    const ngx_str_t *zone, size_t bytes, ngx_shm_zone_init_pt init, void *data,
    void *tag)
{
    ngx_str_t        name;
    ngx_shm_zone_t  *shm_zone;

    name.len = ngx_strlen(what) + NGX_INT_T_LEN + 2 + (zone ? zone->len : 0);

    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NULL;
    }

    /* no zone has a name with a colon */

    name.len = (zone ? ngx_sprintf(name.data, "%s:%ui:%V", what, layout, zone)
                     : ngx_sprintf(name.data, "%s:%ui", what, layout))
               - name.data;

    /* nginx needs some bytes for each page */

    bytes = ngx_align(bytes, ngx_pagesize);
    bytes += bytes / ngx_pagesize * sizeof(ngx_slab_page_t)
             + NGX_RL_SHM_SPARE_PAGES * ngx_pagesize;

    shm_zone = ngx_shared_memory_add(cf, &name, ngx_align(bytes, ngx_pagesize),
                                     tag);
    if (shm_zone) {
        shm_zone->init = init;
        shm_zone->data = data;
    }

    return shm_zone;
}


void *
ngx_rl_shm_make(ngx_shm_zone_t *shm_zone, size_t bytes)
{
    void  *memory;

    memory = ngx_slab_alloc((ngx_slab_pool_t *) shm_zone->shm.addr, bytes);

    if (memory == NULL) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "could not make shared memory \"%V\" in %uz bytes",
                      &shm_zone->shm.name, shm_zone->shm.size);
    }

    return memory;
}


static size_t
ngx_rl_zone_penalties_size(void)
{
    return sizeof(ngx_rl_penalties_t);
}


static ngx_int_t
ngx_rl_zone_penalties_init(void *memory)
{
    ngx_rl_penalties_t *penalties = memory;

    return (RAND_bytes((u_char *) &penalties->hash_key,
                       sizeof(ngx_rl_hash_key_t))
            == 1) ? NGX_OK : NGX_ERROR;
}


static const ngx_rl_zone_kind_t  ngx_rl_zone_lives = {
    "workers", NGX_RL_LIFE_LAYOUT, ngx_rl_lives_size, ngx_rl_lives_init
};

static const ngx_rl_zone_kind_t  ngx_rl_zone_counts = {
    "counts", NGX_RL_COUNTS_LAYOUT, ngx_rl_counts_size, ngx_rl_counts_init
};

static const ngx_rl_zone_kind_t  ngx_rl_zone_penalized = {
    "penalties", NGX_RL_PENALTIES_LAYOUT, ngx_rl_zone_penalties_size,
    ngx_rl_zone_penalties_init
};


/* data is the old cycle's memory, if nginx keeps it. */
static ngx_int_t
ngx_rl_zone_kind_init(ngx_shm_zone_t *shm_zone, void *data)
{
    const ngx_rl_zone_kind_t  *kind;

    kind = shm_zone->data;
    shm_zone->data = data ? data : ngx_rl_shm_make(shm_zone, kind->size());

    if (data || (shm_zone->data && kind->init(shm_zone->data) == NGX_OK)) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                  "could not make the memory of ratelimit %s", kind->of);
    return NGX_ERROR;
}


static ngx_shm_zone_t *
ngx_rl_zone_share(ngx_conf_t *cf, const char *what,
    const ngx_rl_zone_kind_t *kind, const ngx_str_t *zone, void *tag)
{
    return ngx_rl_shm_add(cf, what, kind->layout, zone, kind->size(),
                          ngx_rl_zone_kind_init, (void *) kind, tag);
}


/* The same zone in the cycle that still serves, or NULL. */
static ngx_shm_zone_t *
ngx_rl_zone_old(ngx_conf_t *cf, ngx_rl_zone_t *zone, void *tag)
{
    ngx_uint_t        i;
    ngx_shm_zone_t   *shm_zone;
    ngx_list_part_t  *part;

    if (cf->cycle->old_cycle == NULL) {
        return NULL;
    }

    part = &cf->cycle->old_cycle->shared_memory.part;
    shm_zone = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return NULL;
            }

            part = part->next;
            shm_zone = part->elts;
            i = 0;
        }

        if (shm_zone[i].tag == tag
            && shm_zone[i].shm.name.len == zone->name.len
            && ngx_strncmp(shm_zone[i].shm.name.data, zone->name.data,
                           zone->name.len) == 0)
        {
            return &shm_zone[i];
        }
    }
}


ngx_int_t
ngx_rl_zone_add(ngx_conf_t *cf, ngx_rl_zone_t *zone, size_t size, void *tag)
{
    ngx_shm_zone_t  *shm_zone, *old_shm_zone;
    ngx_rl_zone_t   *old;

    shm_zone = ngx_shared_memory_add(cf, &zone->name, size, tag);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    if (shm_zone->data) {
        return NGX_DECLINED;
    }

    shm_zone->init = ngx_rl_zone_init;
    shm_zone->data = zone;

    zone->lives = ngx_rl_zone_share(cf, "ratelimit_lives", &ngx_rl_zone_lives,
                                    NULL, tag);
    zone->counts = ngx_rl_zone_share(cf, "ratelimit_counts",
                                     &ngx_rl_zone_counts, NULL, tag);

    if (zone->lives == NULL || zone->counts == NULL) {
        return NGX_ERROR;
    }

    old_shm_zone = ngx_rl_zone_old(cf, zone, tag);

    if (old_shm_zone == NULL) {
        return NGX_OK;
    }

    old = old_shm_zone->data;

    if (old_shm_zone->shm.size != size) {
        ngx_log_error(NGX_LOG_NOTICE, cf->log, 0,
                      "ratelimit zone \"%V\" changes size from %uz to %uz, "
                      "its counters start anew", &zone->name,
                      old_shm_zone->shm.size, size);

    } else if (old->key.len != zone->key.len
               || ngx_strncmp(old->key.data, zone->key.data, zone->key.len)
                  != 0)
    {
        ngx_log_error(NGX_LOG_NOTICE, cf->log, 0,
                      "ratelimit zone \"%V\" changes key from \"%V\" "
                      "to \"%V\", its counters start anew",
                      &zone->name, &old->key, &zone->key);
        shm_zone->noreuse = 1;

    } else if (old->leased != zone->leased) {
        ngx_log_error(NGX_LOG_NOTICE, cf->log, 0,
                      "ratelimit zone \"%V\" %s \"redis=\", its counters on "
                      "this gateway start anew", &zone->name,
                      zone->leased ? "gets" : "loses");
        shm_zone->noreuse = 1;
    }

    /*
     * nginx asks the new zone whether to take the memory over, but the old one
     * whether to free it: the two must agree. A reload that fails leaves this
     * behind, and the next one sets it anew.
     */
    old_shm_zone->noreuse = shm_zone->noreuse;

    return NGX_OK;
}


ngx_int_t
ngx_rl_zone_penalize(ngx_conf_t *cf, ngx_rl_zone_t *zone, ngx_uint_t clear,
    void *tag)
{
    static const char *const  names[2][2] = {
        { "ratelimit_penalties", "ratelimit_penalties_clear" },
        { "ratelimit_penalties_redis", "ratelimit_penalties_clear_redis" }
    };

    zone->penalties = ngx_rl_zone_share(cf, names[zone->leased][clear != 0],
                                        &ngx_rl_zone_penalized, &zone->name,
                                        tag);

    return zone->penalties ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_zone_begin(ngx_rl_zone_t *zone, ngx_log_t *log)
{
    if (ngx_process == NGX_PROCESS_SINGLE
        || ngx_rl_life_begin(zone->lives->data) == NGX_OK)
    {
        ngx_rl_counts_begin(zone->counts->data);
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, log, 0,
                  "ratelimit zones have more than %d workers", NGX_RL_LIVES);

    return NGX_ERROR;
}

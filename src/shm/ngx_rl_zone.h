/*
 * A zone: the named shared memory that "ratelimit_zone" asks for, and how it
 * lives through reloads.
 */

#ifndef NGX_RL_ZONE_H_INCLUDED
#define NGX_RL_ZONE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_counts.h"
#include "ngx_rl_lock.h"
#include "ngx_rl_penalties.h"
#include "ngx_rl_table.h"

typedef struct {
    ngx_str_t         name;
    ngx_str_t         key;        /* as written: a change starts anew */

    /* set before the workers start */
    ngx_rl_table_t   *table;
    size_t            table_bytes;
    ngx_shm_zone_t   *lives;      /* of the gateway's workers */
    ngx_shm_zone_t   *counts;     /* of the gateway */
    ngx_rl_leases_t  *leases;     /* NULL where the zone is not leased */
    size_t            leases_bytes;
    ngx_shm_zone_t   *penalties;  /* NULL: the zone has none */

    unsigned          leased:1;   /* has a Redis: starts anew, too */
} ngx_rl_zone_t;


/*
 * Declares shared memory of so many bytes beside that of the zones; zone NULL:
 * of the gateway. A reload keeps it, under its name: what, the layout and the
 * zone. NULL: logged by nginx.
 *
 * init gets the data of the old cycle, and takes its memory over: old workers
 * use it, so nothing is written to what is there. If there is none, make gives
 * it new memory, which is zero and not touched yet; NULL: logged.
 */
ngx_shm_zone_t *ngx_rl_shm_add(ngx_conf_t *cf, const char *what,
    ngx_uint_t layout, const ngx_str_t *zone, size_t bytes,
    ngx_shm_zone_init_pt init, void *data, void *tag);
void *ngx_rl_shm_make(ngx_shm_zone_t *shm_zone, size_t bytes);

/* The least size that "zone=name:size" may ask for. */
#define ngx_rl_zone_min_size()  (16 * ngx_pagesize)

/*
 * Declares the shared memory of a zone whose name, key and leased are set; tag
 * is the module. The table comes to life after the configuration is read: the
 * old cycle's, with its counters, or a new one where there was none, or size,
 * key or leased have changed (which the log then says). Half of the memory of
 * a leased zone is for leases. zone must live in cf->pool.
 *
 * Returns NGX_OK, NGX_DECLINED when this cycle has the zone already, or
 * NGX_ERROR, with the reason logged by nginx.
 */
ngx_int_t ngx_rl_zone_add(ngx_conf_t *cf, ngx_rl_zone_t *zone, size_t size,
    void *tag);

/*
 * Declares the memory of the zone's penalties, whose leased is set. clear: the
 * names of keys are texts, in memory of their own, so none outlives a change to
 * hashes. NGX_ERROR: logged by nginx.
 */
ngx_int_t ngx_rl_zone_penalize(ngx_conf_t *cf, ngx_rl_zone_t *zone,
    ngx_uint_t clear, void *tag);

#define ngx_rl_zone_penalties(zone)                                           \
    ((ngx_rl_penalties_t *) (zone)->penalties->data)

/*
 * A worker begins to serve, before it touches the memory of any zone: takes its
 * life and its block of counts, by one of the zones. NGX_ERROR: there is no
 * life, which nginx's limit of processes rules out; logged.
 */
ngx_int_t ngx_rl_zone_begin(ngx_rl_zone_t *zone, ngx_log_t *log);

#endif /* NGX_RL_ZONE_H_INCLUDED */

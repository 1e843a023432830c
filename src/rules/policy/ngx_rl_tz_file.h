/*
 * The time zones of this machine: files below /usr/share/zoneinfo.
 */

#ifndef NGX_RL_TZ_FILE_H_INCLUDED
#define NGX_RL_TZ_FILE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_tz.h"

/*
 * Reads the zone of that name into the pool's memory; for the configuration
 * and for the thread that compiles a document, since it waits for the disk.
 * Returns NULL, or what was expected as a constant string; "": memory is out.
 */
const char *ngx_rl_tz_load(ngx_pool_t *pool, const ngx_str_t *name,
    const ngx_rl_tz_t **tz);

#endif /* NGX_RL_TZ_FILE_H_INCLUDED */

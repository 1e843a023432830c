/*
 * Which workers of this node are alive, as its shared memory knows it: each
 * holds a lock of its own for as long as it lives, a robust one, and the kernel
 * tells whoever tries it that its owner has died. No process id is compared,
 * none can be another's by then, and no system call is made.
 */

#ifndef NGX_RATELIMIT_LIFE_H_INCLUDED
#define NGX_RATELIMIT_LIFE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_types.h"

#define NGX_RATELIMIT_LIVES  128   /* workers at a time, old cycles' included */

typedef struct ngx_ratelimit_lives_s  ngx_ratelimit_lives_t;

/* bytes of NGX_RATELIMIT_LIVES, aligned to 64, zeroed before init */
size_t ngx_ratelimit_lives_size(void);

/* Returns NGX_OK, or NGX_ERROR when a lock cannot be made. */
ngx_int_t ngx_ratelimit_lives_init(ngx_ratelimit_lives_t *lives);

/*
 * Called by a worker before it serves: takes a life. Returns its number, 1 and
 * more, which no other worker, alive or dead, ever had in this memory; or 0
 * when none is free.
 */
uint64_t ngx_ratelimit_life_begin(ngx_ratelimit_lives_t *lives);

/* Called by the same worker as it exits; without it its death ends the life. */
void ngx_ratelimit_life_end(ngx_ratelimit_lives_t *lives, uint64_t life);

/*
 * Writes the numbers of the lives that go on, the caller's included, to alive
 * (NGX_RATELIMIT_LIVES of them), and returns how many.
 */
ngx_uint_t ngx_ratelimit_lives_list(ngx_ratelimit_lives_t *lives,
    uint64_t *alive);

#endif /* NGX_RATELIMIT_LIFE_H_INCLUDED */

/*
 * Which workers of this gateway are alive, as its shared memory knows it: each
 * holds a lock of its own for as long as it lives, a robust one, and the kernel
 * tells whoever tries it that its owner has died. No process id is compared,
 * none can be another's by then, and no system call is made.
 */

#ifndef NGX_RATELIMIT_LIFE_H_INCLUDED
#define NGX_RATELIMIT_LIFE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_types.h"

#define NGX_RATELIMIT_LIVES  256   /* workers at a time, old cycles' included */

/* of all workers that found no life free; it goes on for ever */
#define NGX_RATELIMIT_LIFE_SHARED  ((uint64_t) -1)

typedef struct ngx_ratelimit_lives_s  ngx_ratelimit_lives_t;

/* bytes of NGX_RATELIMIT_LIVES, aligned to 8, zeroed before init */
size_t ngx_ratelimit_lives_size(void);

/* Returns NGX_OK, or NGX_ERROR when a lock cannot be made. */
ngx_int_t ngx_ratelimit_lives_init(ngx_ratelimit_lives_t *lives);

/*
 * A worker takes a life, by its main thread. Returns its number, 1 and more,
 * which no other worker, alive or dead, ever had in this memory; or SHARED when
 * none is free. nginx's single process needs no lock, and takes none.
 */
uint64_t ngx_ratelimit_life_begin(ngx_ratelimit_lives_t *lives);

/* Called by the same worker as it exits; without it its death ends the life. */
void ngx_ratelimit_life_end(ngx_ratelimit_lives_t *lives, uint64_t life);

/*
 * Writes the numbers of the other lives that go on, without the caller's own,
 * to alive (up to NGX_RATELIMIT_LIVES + 1), and returns how many. One that has
 * just ended may be among them; one that goes on is never missing.
 */
ngx_uint_t ngx_ratelimit_lives_list(ngx_ratelimit_lives_t *lives,
    uint64_t own, uint64_t *alive);

#endif /* NGX_RATELIMIT_LIFE_H_INCLUDED */

/*
 * Lives: robust process-shared locks, each with the number of its owner.
 *
 * The owner of its lock writes a number: when a life begins, 0 when it ends
 * or was found dead. In between it may still be a dead owner's while the next
 * one has the lock: that counts as alive for a moment too long, which is
 * harmless. No living owner that may hold anything is ever taken for dead.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_life.h"
#include "ngx_ratelimit_lock.h"

struct ngx_ratelimit_lives_s {
    _Atomic uint64_t      last;                           /* number given */
    _Atomic uint64_t      nlives;                         /* ever at once: the
                                                             list ends there */
    _Atomic uint64_t      numbers[NGX_RATELIMIT_LIVES];   /* 0: free */
    ngx_ratelimit_lock_t  locks[NGX_RATELIMIT_LIVES];     /* by the living */
};


size_t
ngx_ratelimit_lives_size(void)
{
    return sizeof(ngx_ratelimit_lives_t);
}


ngx_int_t
ngx_ratelimit_lives_init(ngx_ratelimit_lives_t *lives)
{
    return ngx_ratelimit_locks_init(lives->locks,
                                    sizeof(ngx_ratelimit_lock_t),
                                    NGX_RATELIMIT_LIVES)
           ? NGX_OK : NGX_ERROR;
}


uint64_t
ngx_ratelimit_life_begin(ngx_ratelimit_lives_t *lives)
{
    uint64_t    number;
    ngx_uint_t  i;

    /*
     * No other process looks, and nginx unmaps zones of old cycles in this
     * process: a robust lock held there would break the list of those it holds.
     */
    if (ngx_process == NGX_PROCESS_SINGLE) {
        return atomic_fetch_add(&lives->last, 1) + 1;
    }

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {

        if (ngx_ratelimit_lock_try(&lives->locks[i]) == NGX_RATELIMIT_LOCKED) {
            number = atomic_fetch_add(&lives->last, 1) + 1;
            atomic_store(&lives->numbers[i], number);
            ngx_ratelimit_atomic_max(&lives->nlives, i + 1);
            return number;
        }
    }

    return NGX_RATELIMIT_LIFE_SHARED;
}


void
ngx_ratelimit_life_end(ngx_ratelimit_lives_t *lives, uint64_t life)
{
    ngx_uint_t  i;

    if (life == 0) {
        return;
    }

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {

        if (atomic_load(&lives->numbers[i]) == life) {
            atomic_store(&lives->numbers[i], 0);
            ngx_ratelimit_unlock(&lives->locks[i]);
            return;
        }
    }
}


ngx_uint_t
ngx_ratelimit_lives_list(ngx_ratelimit_lives_t *lives, uint64_t own,
    uint64_t *alive)
{
    uint64_t    number;
    ngx_uint_t  i, n, nlives;

    n = 0;
    nlives = atomic_load(&lives->nlives);

    for (i = 0; i < nlives; i++) {
        number = atomic_load(&lives->numbers[i]);

        if (number == 0 || number == own) {
            continue;
        }

        if (ngx_ratelimit_lock_try(&lives->locks[i]) == NGX_RATELIMIT_LOCKED) {

            /* its owner has died */

            atomic_store(&lives->numbers[i], 0);
            ngx_ratelimit_unlock(&lives->locks[i]);
            continue;
        }

        /* it may be the next owner's by now */

        number = atomic_load(&lives->numbers[i]);

        if (number) {
            alive[n++] = number;
        }
    }

    /* nobody has it before all the others stood at once */

    if (nlives == NGX_RATELIMIT_LIVES && own != NGX_RATELIMIT_LIFE_SHARED) {
        alive[n++] = NGX_RATELIMIT_LIFE_SHARED;
    }

    return n;
}

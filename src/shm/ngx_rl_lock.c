/* Locks that cannot be had at once. */

#include "ngx_rl_lock.h"

#define NGX_RL_LOCK_MAX_SPIN  1024     /* pauses of a waiter */


/* A life's number is never given again, so only one waiter takes its lock. */
ngx_uint_t
ngx_rl_lock_try(ngx_rl_lock_t *lock)
{
    uint64_t  owner;

    owner = atomic_load_explicit(&lock->owner, memory_order_acquire);

    if (owner == 0) {
        return ngx_rl_lock_swap(lock, 0);
    }

    if (ngx_rl_life_goes_on(owner) || !ngx_rl_lock_swap(lock, owner)) {
        return 0;
    }

    lock->recovered++;

    return 1;
}


void
ngx_rl_lock_wait(ngx_rl_lock_t *lock)
{
    ngx_uint_t  i, n;

    for ( ;; ) {

        for (n = 1; n <= NGX_RL_LOCK_MAX_SPIN; n <<= 1) {

            for (i = 0; i < n; i++) {
                ngx_cpu_pause();
            }

            if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == 0
                && ngx_rl_lock_swap(lock, 0))
            {
                return;
            }
        }

        /* waited for long: its owner may have died */

        if (ngx_rl_lock_try(lock)) {
            return;
        }

        ngx_sched_yield();
    }
}

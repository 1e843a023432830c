/*
 * A lock in shared memory that outlives its owner: a robust process-shared
 * mutex. The kernel hands on the lock of a process that died inside. Either the
 * data behind the lock are usable at any instruction, or the next owner mends
 * them.
 */

#ifndef NGX_RATELIMIT_LOCK_H_INCLUDED
#define NGX_RATELIMIT_LOCK_H_INCLUDED

#include "ngx_ratelimit_types.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define NGX_RATELIMIT_LINE           64     /* bytes of a cache line */
#define NGX_RATELIMIT_LOCK_MAX_SPIN  64     /* pauses of a waiter */

#if defined(__x86_64__) || defined(__i386__)
#define ngx_ratelimit_lock_pause()  __builtin_ia32_pause()
#else
#define ngx_ratelimit_lock_pause()  atomic_signal_fence(memory_order_seq_cst)
#endif

/*
 * The stores of a killed process take effect in program order, and the process
 * that looks next has its lock from the kernel: only the compiler must be kept
 * from reordering them.
 */
#define ngx_ratelimit_store_order()                                           \
    atomic_signal_fence(memory_order_seq_cst)

/* Raises a number to n, unless another process has raised it further. */
static inline void
ngx_ratelimit_atomic_max(_Atomic uint64_t *most, uint64_t n)
{
    uint64_t  before;

    before = atomic_load(most);

    while (before < n && !atomic_compare_exchange_weak(most, &before, n)) {
        /* void */
    }
}


typedef struct {
    pthread_mutex_t  mutex;
    uint64_t         recovered;   /* times taken over from a dead owner */
} ngx_ratelimit_lock_t;

typedef enum {
    NGX_RATELIMIT_LOCKED = 0,     /* the lock is the caller's */
    NGX_RATELIMIT_LOCK_BUSY,      /* a living process has it */
    NGX_RATELIMIT_LOCK_BROKEN     /* nobody can have it, or the caller has it */
} ngx_ratelimit_lock_e;


/*
 * Makes n locks in zeroed memory, the first at locks, each the given number of
 * bytes behind the one before. Returns 1, or 0 when one cannot be made.
 */
int ngx_ratelimit_locks_init(void *locks, size_t bytes, size_t n);


static inline ngx_ratelimit_lock_e
ngx_ratelimit_lock_try(ngx_ratelimit_lock_t *lock)
{
    int  err;

    err = pthread_mutex_trylock(&lock->mutex);

    if (err == 0) {
        return NGX_RATELIMIT_LOCKED;
    }

    if (err == EOWNERDEAD) {
        lock->recovered++;
        err = pthread_mutex_consistent(&lock->mutex);

        return (err == 0) ? NGX_RATELIMIT_LOCKED : NGX_RATELIMIT_LOCK_BROKEN;
    }

    return (err == EBUSY) ? NGX_RATELIMIT_LOCK_BUSY
                          : NGX_RATELIMIT_LOCK_BROKEN;
}


/*
 * Waits for the lock: LOCKED or BROKEN. A waiter spins and never sleeps. The
 * kernel wakes one sleeper when a lock is released; if that process is killed
 * before it has the lock, the other sleepers are not woken. Keep a lock for a
 * short time only.
 */
static inline ngx_ratelimit_lock_e
ngx_ratelimit_lock(ngx_ratelimit_lock_t *lock)
{
    unsigned              i, n;
    ngx_ratelimit_lock_e  rc;

    n = 1;

    for ( ;; ) {
        rc = ngx_ratelimit_lock_try(lock);

        if (rc != NGX_RATELIMIT_LOCK_BUSY) {
            return rc;
        }

        if (n > NGX_RATELIMIT_LOCK_MAX_SPIN) {
            (void) sched_yield();
            n = 1;
        }

        for (i = 0; i < n; i++) {
            ngx_ratelimit_lock_pause();
        }

        n <<= 1;
    }
}


static inline void
ngx_ratelimit_unlock(ngx_ratelimit_lock_t *lock)
{
    (void) pthread_mutex_unlock(&lock->mutex);
}

#endif /* NGX_RATELIMIT_LOCK_H_INCLUDED */

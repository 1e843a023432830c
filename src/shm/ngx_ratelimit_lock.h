/*
 * A lock in shared memory that outlives its owner: a robust process-shared
 * mutex. The kernel hands on that of a process which died inside; what it left
 * behind the lock must be usable as it is, or be found and mended by whoever
 * has the lock next.
 */

#ifndef NGX_RATELIMIT_LOCK_H_INCLUDED
#define NGX_RATELIMIT_LOCK_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include <pthread.h>
#include <stdatomic.h>

#define NGX_RATELIMIT_LINE           64     /* bytes of a cache line */
#define NGX_RATELIMIT_LOCK_MAX_SPIN  64     /* pauses of a waiter */

/*
 * A killed process' stores take effect in program order, whoever looks next
 * has its lock from the kernel: only the compiler must be kept from mixing.
 */
#define ngx_ratelimit_store_order()                                           \
    atomic_signal_fence(memory_order_seq_cst)

typedef struct {
    pthread_mutex_t  mutex;
    uint64_t         recovered;   /* times taken over from a dead owner */
} ngx_ratelimit_lock_t;


/*
 * Makes n locks in zeroed memory, the first at locks, each the given number of
 * bytes behind the one before. Returns NGX_OK, or NGX_ERROR when one cannot be
 * made.
 */
ngx_int_t ngx_ratelimit_locks_init(void *locks, size_t bytes, ngx_uint_t n);


/*
 * Returns NGX_OK: it is the caller's; NGX_BUSY: somebody alive has it;
 * NGX_ERROR: it is broken, or the caller's already.
 */
static ngx_inline ngx_int_t
ngx_ratelimit_lock_try(ngx_ratelimit_lock_t *lock)
{
    int  err;

    err = pthread_mutex_trylock(&lock->mutex);

    if (err == 0) {
        return NGX_OK;
    }

    if (err == EOWNERDEAD) {
        lock->recovered++;
        err = pthread_mutex_consistent(&lock->mutex);

        return (err == 0) ? NGX_OK : NGX_ERROR;
    }

    return (err == EBUSY) ? NGX_BUSY : NGX_ERROR;
}


/*
 * Waits for it: NGX_OK or NGX_ERROR. Nobody sleeps on a lock. The kernel wakes
 * one of its sleepers when it is let go; one who is killed between that and
 * taking the lock, which somebody else then took, loses the wakeup for the
 * others: they would sleep until one more has to. What is done under a lock is
 * short.
 */
static ngx_inline ngx_int_t
ngx_ratelimit_lock(ngx_ratelimit_lock_t *lock)
{
    ngx_int_t   rc;
    ngx_uint_t  i, n;

    n = 1;

    for ( ;; ) {
        rc = ngx_ratelimit_lock_try(lock);

        if (rc != NGX_BUSY) {
            return rc;
        }

        if (n > NGX_RATELIMIT_LOCK_MAX_SPIN) {
            ngx_sched_yield();
            n = 1;
        }

        for (i = 0; i < n; i++) {
            ngx_cpu_pause();
        }

        n <<= 1;
    }
}


static ngx_inline void
ngx_ratelimit_unlock(ngx_ratelimit_lock_t *lock)
{
    (void) pthread_mutex_unlock(&lock->mutex);
}

#endif /* NGX_RATELIMIT_LOCK_H_INCLUDED */

/*
 * How a lock in shared memory is made. The header has the rest, to be inlined.
 */

#include "ngx_ratelimit_lock.h"


int
ngx_ratelimit_locks_init(void *locks, size_t bytes, size_t n)
{
    int                    err;
    size_t                 i;
    pthread_mutexattr_t    attr;
    ngx_ratelimit_lock_t  *lock;

    if (pthread_mutexattr_init(&attr) != 0) {
        return 0;
    }

    err = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);

    if (err == 0) {
        err = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    }

    /* ERRORCHECK: a lock taken twice fails instead of stopping the worker */

    if (err == 0) {
        err = pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    }

    for (i = 0; i < n && err == 0; i++) {
        lock = (ngx_ratelimit_lock_t *) ((u_char *) locks + i * bytes);
        err = pthread_mutex_init(&lock->mutex, &attr);
    }

    pthread_mutexattr_destroy(&attr);

    return err == 0;
}

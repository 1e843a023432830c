/*
 * Lives: an array of robust process-shared locks, each with the number of its
 * owner.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <pthread.h>

#include "ngx_ratelimit_life.h"

typedef struct {
    _Alignas(64)
    pthread_mutex_t  mutex;   /* held by the worker for as long as it lives */
    uint64_t         number;  /* of the owner; written by it alone */
} ngx_ratelimit_life_t;

struct ngx_ratelimit_lives_s {
    ngx_atomic_t          last;   /* the last number given */
    ngx_ratelimit_life_t  lives[NGX_RATELIMIT_LIVES];
};

static ngx_int_t ngx_ratelimit_life_try(ngx_ratelimit_life_t *life);


size_t
ngx_ratelimit_lives_size(void)
{
    return sizeof(ngx_ratelimit_lives_t);
}


ngx_int_t
ngx_ratelimit_lives_init(ngx_ratelimit_lives_t *lives)
{
    int                  err;
    ngx_uint_t           i;
    pthread_mutexattr_t  attr;

    if (pthread_mutexattr_init(&attr) != 0) {
        return NGX_ERROR;
    }

    err = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);

    if (err == 0) {
        err = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    }

    for (i = 0; i < NGX_RATELIMIT_LIVES && err == 0; i++) {
        err = pthread_mutex_init(&lives->lives[i].mutex, &attr);
    }

    pthread_mutexattr_destroy(&attr);

    return (err == 0) ? NGX_OK : NGX_ERROR;
}


uint64_t
ngx_ratelimit_life_begin(ngx_ratelimit_lives_t *lives)
{
    ngx_uint_t             i;
    ngx_ratelimit_life_t  *life;

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {
        life = &lives->lives[i];

        if (ngx_ratelimit_life_try(life) == NGX_OK) {
            life->number = ngx_atomic_fetch_add(&lives->last, 1) + 1;
            return life->number;
        }
    }

    return 0;
}


void
ngx_ratelimit_life_end(ngx_ratelimit_lives_t *lives, uint64_t number)
{
    ngx_uint_t             i;
    ngx_ratelimit_life_t  *life;

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {
        life = &lives->lives[i];

        if (life->number == number) {
            life->number = 0;
            (void) pthread_mutex_unlock(&life->mutex);
            return;
        }
    }
}


ngx_uint_t
ngx_ratelimit_lives_list(ngx_ratelimit_lives_t *lives, uint64_t *alive)
{
    uint64_t               number;
    ngx_uint_t             i, n;
    ngx_ratelimit_life_t  *life;

    n = 0;

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {
        life = &lives->lives[i];
        number = life->number;

        if (number == 0) {
            continue;
        }

        if (ngx_ratelimit_life_try(life) != NGX_OK) {
            alive[n++] = number;
            continue;
        }

        /* its owner has died */

        life->number = 0;
        (void) pthread_mutex_unlock(&life->mutex);
    }

    return n;
}


/* Takes the lock where no living worker has it. */
static ngx_int_t
ngx_ratelimit_life_try(ngx_ratelimit_life_t *life)
{
    int  err;

    err = pthread_mutex_trylock(&life->mutex);

    if (err == EOWNERDEAD) {
        err = pthread_mutex_consistent(&life->mutex);
    }

    return (err == 0) ? NGX_OK : NGX_ERROR;
}

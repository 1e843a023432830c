/*
 * Lives: robust process-shared mutexes, each with the number of its owner.
 *
 * A life is a number that counts up and, in its last digits, its place. Its
 * owner writes it after it has the mutex. So it may still be a dead owner's
 * while the next one has the mutex: that counts as alive for a moment too long.
 */

#include "ngx_rl_lock.h"

#include <pthread.h>

#define NGX_RL_LOCK_MAX_SPIN  1024     /* pauses of a waiter */

typedef struct {
    pthread_mutex_t   mutex;   /* by the living */
    _Atomic uint64_t  life;    /* 0: its owner was found dead */
} ngx_rl_life_place_t;

struct ngx_rl_lives_s {
    _Atomic uint64_t     last;    /* number given */
    _Atomic uint64_t     nlives;  /* places ever used */
    ngx_rl_life_place_t  places[NGX_RL_LIVES];
};

uint64_t  ngx_rl_life = NGX_RL_LIFE_NONE;

static ngx_rl_lives_t  *ngx_rl_lives;


size_t
ngx_rl_lives_size(void)
{
    return sizeof(ngx_rl_lives_t);
}


ngx_int_t
ngx_rl_lives_init(void *memory)
{
    ngx_rl_lives_t *lives = memory;

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

    for (i = 0; i < NGX_RL_LIVES && err == 0; i++) {
        err = pthread_mutex_init(&lives->places[i].mutex, &attr);
    }

    pthread_mutexattr_destroy(&attr);

    return err ? NGX_ERROR : NGX_OK;
}


/* Whether nobody alive had it: then the caller has it. */
static ngx_uint_t
ngx_rl_life_lock(ngx_rl_life_place_t *place)
{
    int  err;

    err = pthread_mutex_trylock(&place->mutex);

    if (err == EOWNERDEAD) {
        err = pthread_mutex_consistent(&place->mutex);
    }

    return err == 0;
}


ngx_int_t
ngx_rl_life_begin(ngx_rl_lives_t *lives)
{
    uint64_t              number;
    ngx_uint_t            i;
    ngx_rl_life_place_t  *place;

    for (i = 0; i < NGX_RL_LIVES; i++) {
        place = &lives->places[i];

        if (!ngx_rl_life_lock(place)) {
            continue;
        }

        number = atomic_fetch_add(&lives->last, 1) + 1;

        ngx_rl_life = number * NGX_RL_LIVES + i;
        ngx_rl_lives = lives;

        ngx_rl_atomic_max(&lives->nlives, i + 1);
        atomic_store(&place->life, ngx_rl_life);

        return NGX_OK;
    }

    return NGX_ERROR;
}


ngx_uint_t
ngx_rl_life_goes_on(uint64_t life)
{
    ngx_rl_life_place_t  *place;

    if (life == ngx_rl_life || life == NGX_RL_LIFE_NONE) {
        return 1;
    }

    place = &ngx_rl_lives->places[life % NGX_RL_LIVES];

    if (atomic_load(&place->life) != life) {
        return 0;
    }

    if (!ngx_rl_life_lock(place)) {
        return 1;
    }

    atomic_store(&place->life, 0);
    (void) pthread_mutex_unlock(&place->mutex);

    return 0;
}


/* A life that begins meanwhile holds nothing so far, and may be missing. */
uint64_t
ngx_rl_life_next(ngx_uint_t *at)
{
    uint64_t  life;

    if (ngx_rl_lives == NULL) {
        return 0;
    }

    while (*at < atomic_load(&ngx_rl_lives->nlives)) {
        life = atomic_load(&ngx_rl_lives->places[(*at)++].life);

        if (life && life != ngx_rl_life && ngx_rl_life_goes_on(life)) {
            return life;
        }
    }

    return 0;
}


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

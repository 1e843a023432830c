/*
 * Lives: robust process-shared mutexes, each with the number of its owner.
 *
 * A life is a number that counts up and, in its last digits, its place. Its
 * owner writes it after it has the mutex. So it may still be a dead owner's
 * while the next one has the mutex: that counts as alive for a moment too long.
 */

#include "ngx_ratelimit_life.h"

#include <pthread.h>

typedef struct {
    pthread_mutex_t   mutex;   /* by the living */
    _Atomic uint64_t  life;    /* 0: its owner was found dead */
} ngx_ratelimit_life_place_t;

struct ngx_ratelimit_lives_s {
    _Atomic uint64_t            last;     /* number given */
    _Atomic uint64_t            nlives;   /* places ever used */
    ngx_ratelimit_life_place_t  places[NGX_RATELIMIT_LIVES];
};

static ngx_uint_t ngx_ratelimit_life_lock(ngx_ratelimit_life_place_t *place);


uint64_t  ngx_ratelimit_life = NGX_RATELIMIT_LIFE_NONE;

static ngx_ratelimit_lives_t  *ngx_ratelimit_lives;


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
        err = pthread_mutex_init(&lives->places[i].mutex, &attr);
    }

    pthread_mutexattr_destroy(&attr);

    return err ? NGX_ERROR : NGX_OK;
}


/* Whether nobody alive had it: then the caller has it. */
static ngx_uint_t
ngx_ratelimit_life_lock(ngx_ratelimit_life_place_t *place)
{
    int  err;

    err = pthread_mutex_trylock(&place->mutex);

    if (err == EOWNERDEAD) {
        err = pthread_mutex_consistent(&place->mutex);
    }

    return err == 0;
}


ngx_int_t
ngx_ratelimit_life_begin(ngx_ratelimit_lives_t *lives)
{
    uint64_t                     number;
    ngx_uint_t                   i;
    ngx_ratelimit_life_place_t  *place;

    for (i = 0; i < NGX_RATELIMIT_LIVES; i++) {
        place = &lives->places[i];

        if (!ngx_ratelimit_life_lock(place)) {
            continue;
        }

        number = atomic_fetch_add(&lives->last, 1) + 1;

        ngx_ratelimit_life = number * NGX_RATELIMIT_LIVES + i;
        ngx_ratelimit_lives = lives;

        ngx_ratelimit_atomic_max(&lives->nlives, i + 1);
        atomic_store(&place->life, ngx_ratelimit_life);

        return NGX_OK;
    }

    return NGX_ERROR;
}


ngx_uint_t
ngx_ratelimit_life_goes_on(uint64_t life)
{
    ngx_ratelimit_life_place_t  *place;

    if (life == ngx_ratelimit_life || life == NGX_RATELIMIT_LIFE_NONE) {
        return 1;
    }

    place = &ngx_ratelimit_lives->places[life % NGX_RATELIMIT_LIVES];

    if (atomic_load(&place->life) != life) {
        return 0;
    }

    if (!ngx_ratelimit_life_lock(place)) {
        return 1;
    }

    atomic_store(&place->life, 0);
    (void) pthread_mutex_unlock(&place->mutex);

    return 0;
}


/* A life that begins meanwhile holds nothing so far, and may be missing. */
uint64_t
ngx_ratelimit_life_next(ngx_uint_t *at)
{
    uint64_t  life;

    if (ngx_ratelimit_lives == NULL) {
        return 0;
    }

    while (*at < atomic_load(&ngx_ratelimit_lives->nlives)) {
        life = atomic_load(&ngx_ratelimit_lives->places[(*at)++].life);

        if (life && life != ngx_ratelimit_life
            && ngx_ratelimit_life_goes_on(life))
        {
            return life;
        }
    }

    return 0;
}

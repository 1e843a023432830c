/*
 * Which workers of this gateway are alive. Each holds a robust mutex in shared
 * memory for as long as it lives. If it dies, the kernel tells the next process
 * that tries the mutex. No process id is compared: another process may have it
 * by then.
 */

#ifndef NGX_RL_LIFE_H_INCLUDED
#define NGX_RL_LIFE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include <stdatomic.h>

/* nginx has no more processes at a time, those of old cycles included */
#define NGX_RL_LIVES        NGX_MAX_PROCESSES

#define NGX_RL_LIFE_LAYOUT  1   /* another one: memory of its own */

/*
 * The life of a process that has begun none: nginx's single process, and the
 * master, which touches shared memory only before any worker has it. It goes
 * on for as long as the memory.
 */
#define NGX_RL_LIFE_NONE    1

typedef struct ngx_rl_lives_s  ngx_rl_lives_t;

/*
 * The life of this process: a number that no other one, alive or dead, ever had
 * in this memory. Never 0.
 */
extern uint64_t  ngx_rl_life;

/* bytes of NGX_RL_LIVES, aligned to 8, zeroed before init */
size_t ngx_rl_lives_size(void);

/* Returns NGX_OK, or NGX_ERROR when a mutex cannot be made. */
ngx_int_t ngx_rl_lives_init(void *memory);

/*
 * A worker's main thread begins its life, which its death ends. Returns NGX_OK,
 * or NGX_ERROR: none is free. The memory must stay mapped.
 */
ngx_int_t ngx_rl_life_begin(ngx_rl_lives_t *lives);

/*
 * Whether a life of this gateway goes on. One that has just ended may still do
 * so; one that goes on, or is stopped, is never taken for dead.
 */
ngx_uint_t ngx_rl_life_goes_on(uint64_t life);

/*
 * The next life that goes on, but for the caller's own; 0: there is no more.
 * *at is 0 at first.
 */
uint64_t ngx_rl_life_next(ngx_uint_t *at);


/* Raises a number to n, unless another process has raised it further. */
static ngx_inline void
ngx_rl_atomic_max(_Atomic uint64_t *most, uint64_t n)
{
    uint64_t  before;

    before = atomic_load(most);

    while (before < n && !atomic_compare_exchange_weak(most, &before, n)) {
        /* void */
    }
}

#endif /* NGX_RL_LIFE_H_INCLUDED */

/*
 * Which workers of this gateway are alive. Each holds a robust mutex in shared
 * memory for as long as it lives. If it dies, the kernel tells the next process
 * that tries the mutex. No process id is compared: another process may have it
 * by then.
 *
 * A lock in shared memory that outlives its owner: one word, the life of the
 * worker that has it. A waiter takes the lock of a worker that has died. Either
 * the data behind the lock are usable at any instruction, or the next owner
 * mends them.
 */

#ifndef NGX_RL_LOCK_H_INCLUDED
#define NGX_RL_LOCK_H_INCLUDED

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

/*
 * The stores of a killed process take effect in program order, and the process
 * that looks next knows of the death from the kernel: only the compiler must be
 * kept from reordering them.
 */
#define ngx_rl_store_order()                                                  \
    atomic_signal_fence(memory_order_seq_cst)

/* Zeroed memory is a free lock. */
typedef struct {
    _Atomic uint64_t  owner;       /* its life; 0: free */
    uint64_t          recovered;   /* times taken over from a dead owner */
} ngx_rl_lock_t;


/* Takes the lock if it is free or its owner has died: 1, or 0. */
ngx_uint_t ngx_rl_lock_try(ngx_rl_lock_t *lock);

/*
 * Waits for the lock: spins, and never sleeps, so a waiter that is killed takes
 * no wakeup with it. A stopped owner keeps its lock, and the waiters wait.
 */
void ngx_rl_lock_wait(ngx_rl_lock_t *lock);


/* Releases, too: a worker that sees the owner's life sees that it has begun. */
static ngx_inline ngx_uint_t
ngx_rl_lock_swap(ngx_rl_lock_t *lock, uint64_t from)
{
    return atomic_compare_exchange_strong_explicit(&lock->owner, &from,
                                                   ngx_rl_life,
                                                   memory_order_acq_rel,
                                                   memory_order_relaxed);
}


/*
 * Takes the lock, for a short time. A process never takes one twice, but for
 * its threads, which wait for each other.
 */
static ngx_inline void
ngx_rl_lock(ngx_rl_lock_t *lock)
{
    if (!ngx_rl_lock_swap(lock, 0)) {
        ngx_rl_lock_wait(lock);
    }
}


static ngx_inline void
ngx_rl_unlock(ngx_rl_lock_t *lock)
{
    atomic_store_explicit(&lock->owner, 0, memory_order_release);
}


/*
 * One worker of a gateway leads: it has a lock until it leaves or dies. lead:
 * the caller becomes the leader if no living worker is one. Returns whether it
 * leads now.
 */
static ngx_inline ngx_uint_t
ngx_rl_lock_lead(ngx_rl_lock_t *leader)
{
    return leader->owner == ngx_rl_life || ngx_rl_lock_try(leader);
}


static ngx_inline void
ngx_rl_lock_leave(ngx_rl_lock_t *leader)
{
    if (leader->owner == ngx_rl_life) {
        ngx_rl_unlock(leader);
    }
}

#endif /* NGX_RL_LOCK_H_INCLUDED */

/*
 * A lock in shared memory that outlives its owner: one word, the life of the
 * worker that has it. A waiter takes the lock of a worker that has died. Either
 * the data behind the lock are usable at any instruction, or the next owner
 * mends them.
 */

#ifndef NGX_RL_LOCK_H_INCLUDED
#define NGX_RL_LOCK_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_life.h"

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

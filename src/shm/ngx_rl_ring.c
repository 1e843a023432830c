/*
 * The ring: a header, and slots with a lock, the number of the record in it,
 * and the record.
 *
 * A writer draws a number, which names its slot, and takes the slot's lock. The
 * lock keeps out a writer that is a whole round behind; one that has died loses
 * it. The number in the slot is 0 while its record is being written. A reader
 * takes no lock: it copies, and looks before and after whether the number is
 * the one that it wants.
 */

#include "ngx_rl_watch.h"

typedef struct {
    ngx_rl_lock_t     lock;
    _Atomic uint64_t  number;  /* of its record; 0: none, or half of it */
    u_char            record[];
} ngx_rl_ring_slot_t;


static size_t
ngx_rl_ring_slot_bytes(size_t bytes)
{
    return ngx_align(sizeof(ngx_rl_ring_slot_t) + bytes, sizeof(uint64_t));
}


size_t
ngx_rl_ring_size(size_t nslots, size_t bytes)
{
    return sizeof(ngx_rl_ring_t) + nslots * ngx_rl_ring_slot_bytes(bytes);
}


void
ngx_rl_ring_init(ngx_rl_ring_t *ring, size_t nslots, size_t bytes)
{
    ring->next = 1;
    ring->nslots = nslots;
    ring->bytes = bytes;
    ring->slot = ngx_rl_ring_slot_bytes(bytes);
}


static ngx_rl_ring_slot_t *
ngx_rl_ring_slot(ngx_rl_ring_t *ring, uint64_t number)
{
    return (ngx_rl_ring_slot_t *)
           ((u_char *) &ring[1] + number % ring->nslots * ring->slot);
}


void
ngx_rl_ring_put(ngx_rl_ring_t *ring, uint64_t number, const void *record)
{
    ngx_rl_ring_slot_t  *slot;

    slot = ngx_rl_ring_slot(ring, number);

    if (!ngx_rl_lock_try(&slot->lock)) {
        return;
    }

    if (atomic_load_explicit(&slot->number, memory_order_relaxed) < number) {

        atomic_store_explicit(&slot->number, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);

        ngx_memcpy(slot->record, record, ring->bytes);

        atomic_store_explicit(&slot->number, number, memory_order_release);
    }

    ngx_rl_unlock(&slot->lock);
}


void
ngx_rl_ring_write(ngx_rl_ring_t *ring, const void *record)
{
    ngx_rl_ring_put(ring, atomic_fetch_add_explicit(&ring->next, 1,
                                                    memory_order_relaxed),
                    record);
}


uint64_t
ngx_rl_ring_newest(const ngx_rl_ring_t *ring)
{
    return atomic_load_explicit(&ring->next, memory_order_relaxed) - 1;
}


ngx_uint_t
ngx_rl_ring_read(ngx_rl_ring_t *ring, uint64_t number, void *out)
{
    ngx_rl_ring_slot_t  *slot;

    slot = ngx_rl_ring_slot(ring, number);

    if (number == 0
        || atomic_load_explicit(&slot->number, memory_order_acquire) != number)
    {
        return 0;
    }

    ngx_memcpy(out, slot->record, ring->bytes);

    atomic_thread_fence(memory_order_acquire);

    return atomic_load_explicit(&slot->number, memory_order_relaxed) == number;
}

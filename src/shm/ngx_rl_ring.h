/*
 * A ring of records of one size in shared memory: the last ones that the
 * workers of a gateway have written.
 *
 * A writer waits for nobody. A worker may be killed at any instruction: the
 * record that it was writing is missing, and its slot is written again when its
 * turn comes.
 */

#ifndef NGX_RL_RING_H_INCLUDED
#define NGX_RL_RING_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_lock.h"

/* Written by init alone, but for next. */
typedef struct {
    _Atomic uint64_t  next;       /* number of the next record, from 1 on */
    uint64_t          nslots;
    uint64_t          bytes;      /* of a record */
    uint64_t          slot;       /* bytes of a slot */
} ngx_rl_ring_t;

/* Bytes of a ring of nslots records of that size; init takes them zeroed. */
size_t ngx_rl_ring_size(size_t nslots, size_t bytes);
void ngx_rl_ring_init(ngx_rl_ring_t *ring, size_t nslots, size_t bytes);

/*
 * Writes a record. It is dropped if the workers have gone round since it got
 * its number, or if a living one still writes to its slot.
 */
void ngx_rl_ring_write(ngx_rl_ring_t *ring, const void *record);

/*
 * The same with a number of the caller, as of a step of time: the first writer
 * of a number writes it, and numbers may be left out. A ring is written in one
 * of both ways.
 */
void ngx_rl_ring_put(ngx_rl_ring_t *ring, uint64_t number, const void *record);

/* The number of the newest record, which may not be there yet; 0: none. */
uint64_t ngx_rl_ring_newest(const ngx_rl_ring_t *ring);

/*
 * Copies the record of that number. Returns 1, or 0: it is being written, was
 * dropped or overwritten, and out is garbage.
 */
ngx_uint_t ngx_rl_ring_read(ngx_rl_ring_t *ring, uint64_t number, void *out);

#endif /* NGX_RL_RING_H_INCLUDED */

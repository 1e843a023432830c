/*
 * Two blobs: a header, the two entries, the bytes of each.
 *
 * Blobs are numbered from 1, and each stands where the one before the newest
 * stood. A writer moves oldest before it overwrites anything, and newest when
 * all is written. A reader that still finds its number at oldest or behind it,
 * after it has copied, has copied what was published.
 */

#include "ngx_rl_blob.h"

#include <stdatomic.h>

struct ngx_rl_blob_s {
    _Atomic uint64_t     newest;     /* 0: none */
    _Atomic uint64_t     oldest;     /* that may be read */
    uint64_t             max;
    ngx_rl_blob_entry_t  entries[NGX_RL_BLOBS];   /* behind them the bytes */
};


static inline u_char *
ngx_rl_blob_bytes(const ngx_rl_blob_t *blob, uint64_t number)
{
    return (u_char *) (blob + 1) + number % NGX_RL_BLOBS * blob->max;
}


size_t
ngx_rl_blob_size(size_t max)
{
    return sizeof(ngx_rl_blob_t) + NGX_RL_BLOBS * max;
}


void
ngx_rl_blob_init(ngx_rl_blob_t *blob, size_t max)
{
    blob->max = max;
}


uint64_t
ngx_rl_blob_newest(const ngx_rl_blob_t *blob)
{
    return atomic_load(&blob->newest);
}


uint64_t
ngx_rl_blob_publish(ngx_rl_blob_t *blob, const ngx_rl_blob_entry_t *new,
    const u_char *bytes)
{
    uint64_t              number;
    ngx_rl_blob_entry_t  *entry;

    if (new->len > blob->max) {
        return 0;
    }

    number = atomic_load(&blob->newest) + 1;
    atomic_store(&blob->oldest, number - 1);

    /* a reader that sees what is written now sees this, too */

    atomic_thread_fence(memory_order_seq_cst);

    entry = &blob->entries[number % NGX_RL_BLOBS];
    *entry = *new;
    entry->number = number;
    memcpy(ngx_rl_blob_bytes(blob, number), bytes, new->len);

    atomic_store(&blob->newest, number);

    return number;
}


/* Whether what was read before this call belongs to that blob. */
static int
ngx_rl_blob_is_there(const ngx_rl_blob_t *blob, uint64_t number)
{
    atomic_thread_fence(memory_order_acquire);

    return atomic_load(&blob->oldest) <= number;
}


int
ngx_rl_blob_find(const ngx_rl_blob_t *blob, uint64_t number,
    ngx_rl_blob_entry_t *entry)
{
    if (number == 0) {
        return 0;
    }

    *entry = blob->entries[number % NGX_RL_BLOBS];

    return ngx_rl_blob_is_there(blob, number);
}


int
ngx_rl_blob_copy(const ngx_rl_blob_t *blob, const ngx_rl_blob_entry_t *entry,
    u_char *out)
{
    memcpy(out, ngx_rl_blob_bytes(blob, entry->number), entry->len);

    return ngx_rl_blob_is_there(blob, entry->number);
}

/*
 * The ring of blobs: a header, the entries, the bytes.
 *
 * Blobs are numbered from 1. The ring has oldest to newest. A writer
 * moves oldest before it overwrites anything, and newest when all is written.
 * A reader that still finds its number at oldest or behind it, after it has
 * copied, has copied what was published.
 */

#include "ngx_rl_blob.h"

#include <stdatomic.h>

struct ngx_rl_blob_s {
    _Atomic uint64_t     newest;     /* 0: none */
    _Atomic uint64_t     oldest;
    uint64_t             max_entries;
    uint64_t             ring;
    ngx_rl_blob_entry_t  entries[];  /* behind them the bytes */
};


static inline ngx_rl_blob_entry_t *
ngx_rl_blob_entry(const ngx_rl_blob_t *blob, uint64_t number)
{
    return (ngx_rl_blob_entry_t *) &blob->entries[number % blob->max_entries];
}


/* Where a position is in the ring; room: bytes up to the ring's end. */
static inline u_char *
ngx_rl_blob_bytes(const ngx_rl_blob_t *blob, uint64_t pos, size_t *room)
{
    *room = blob->ring - pos % blob->ring;

    return (u_char *) (blob->entries + blob->max_entries) + pos % blob->ring;
}


static inline size_t
ngx_rl_blob_min(size_t a, size_t b)
{
    return a < b ? a : b;
}


size_t
ngx_rl_blob_size(uint32_t max_entries, size_t ring)
{
    return sizeof(ngx_rl_blob_t)
           + max_entries * sizeof(ngx_rl_blob_entry_t) + ring;
}


void
ngx_rl_blob_init(ngx_rl_blob_t *blob, uint32_t max_entries, size_t ring)
{
    blob->max_entries = max_entries;
    blob->ring = ring;
    atomic_store(&blob->oldest, 1);
}


uint64_t
ngx_rl_blob_newest(const ngx_rl_blob_t *blob)
{
    return atomic_load(&blob->newest);
}


/*
 * Takes blobs out of the ring until there is an entry and len bytes behind the
 * newest one, which stays. Returns where these bytes begin.
 */
static uint64_t
ngx_rl_blob_make_room(ngx_rl_blob_t *blob, uint64_t newest, uint64_t len)
{
    uint64_t                    end, oldest;
    const ngx_rl_blob_entry_t  *entry;

    if (newest == 0) {
        return 0;
    }

    entry = ngx_rl_blob_entry(blob, newest);
    end = entry->pos + entry->len;
    oldest = atomic_load(&blob->oldest);

    while (oldest < newest) {
        entry = ngx_rl_blob_entry(blob, oldest);

        if (newest + 1 - oldest < blob->max_entries
            && end + len - entry->pos <= blob->ring)
        {
            break;
        }

        oldest++;
    }

    atomic_store(&blob->oldest, oldest);

    /* a reader that sees what is written now sees this, too */

    atomic_thread_fence(memory_order_seq_cst);

    return end;
}


uint64_t
ngx_rl_blob_publish(ngx_rl_blob_t *blob, const ngx_rl_blob_entry_t *new,
    const u_char *bytes)
{
    size_t                room, first;
    u_char               *p;
    uint64_t              newest, pos;
    ngx_rl_blob_entry_t  *entry;

    if (new->len > blob->ring / 2) {
        return 0;
    }

    newest = atomic_load(&blob->newest);
    pos = ngx_rl_blob_make_room(blob, newest, new->len);

    entry = ngx_rl_blob_entry(blob, newest + 1);
    *entry = *new;
    entry->number = newest + 1;
    entry->pos = pos;

    p = ngx_rl_blob_bytes(blob, pos, &room);
    first = ngx_rl_blob_min(new->len, room);
    memcpy(p, bytes, first);

    p = ngx_rl_blob_bytes(blob, 0, &room);
    memcpy(p, bytes + first, new->len - first);

    atomic_store(&blob->newest, newest + 1);

    return newest + 1;
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

    *entry = *ngx_rl_blob_entry(blob, number);

    return ngx_rl_blob_is_there(blob, number);
}


int
ngx_rl_blob_copy(const ngx_rl_blob_t *blob, const ngx_rl_blob_entry_t *entry,
    u_char *out)
{
    size_t         room, first;
    const u_char  *p;

    p = ngx_rl_blob_bytes(blob, entry->pos, &room);
    first = ngx_rl_blob_min(entry->len, room);
    memcpy(out, p, first);

    p = ngx_rl_blob_bytes(blob, 0, &room);
    memcpy(out + first, p, entry->len - first);

    return ngx_rl_blob_is_there(blob, entry->number);
}

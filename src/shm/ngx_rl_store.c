/*
 * The store: a header, and a ring of blobs, which are the records.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_store.h"


/* The history, the current record, and the one that is being written. */
#define ngx_rl_store_ring(max, ring)  ((ring) + 2 * (max))


static ngx_inline ngx_rl_blob_t *
ngx_rl_store_blobs(const ngx_rl_store_t *store)
{
    return (ngx_rl_blob_t *) (store + 1);
}


size_t
ngx_rl_store_size(size_t max, size_t ring)
{
    return sizeof(ngx_rl_store_t)
           + ngx_rl_blob_size(NGX_RL_STORE_HISTORY + 1,
                              ngx_rl_store_ring(max, ring));
}


ngx_int_t
ngx_rl_store_init(ngx_rl_store_t *store, size_t size, size_t max, size_t ring)
{
    if (max == 0 || size < ngx_rl_store_size(max, ring)) {
        return NGX_ERROR;
    }

    store->max = max;
    ngx_rl_blob_init(ngx_rl_store_blobs(store), NGX_RL_STORE_HISTORY + 1,
                     ngx_rl_store_ring(max, ring));
    return NGX_OK;
}


uint64_t
ngx_rl_store_generation(const ngx_rl_store_t *store)
{
    return ngx_rl_blob_newest(ngx_rl_store_blobs(store));
}


/* version 0: the current one. Returns NGX_OK or NGX_DECLINED. */
static ngx_int_t
ngx_rl_store_find(const ngx_rl_store_t *store, uint64_t version,
    ngx_rl_blob_entry_t *blob)
{
    uint64_t        newest;
    ngx_rl_blob_t  *blobs;

    blobs = ngx_rl_store_blobs(store);

    /* the current one is gone only if others have published meanwhile */

    do {
        newest = ngx_rl_blob_newest(blobs);

        if (newest == 0) {
            return NGX_DECLINED;
        }

    } while (!ngx_rl_blob_find(blobs, newest, blob));

    while (version && blob->version != version) {

        if (!ngx_rl_blob_find(blobs, blob->before, blob)) {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


void
ngx_rl_store_version(const ngx_rl_store_t *store, uint64_t *version,
    uint64_t *id)
{
    ngx_rl_blob_entry_t  blob;

    if (ngx_rl_store_find(store, 0, &blob) != NGX_OK) {
        blob.version = 0;
        blob.id = 0;
    }

    *version = blob.version;
    *id = blob.id;
}


ngx_uint_t
ngx_rl_store_has(const ngx_rl_store_t *store, uint64_t version, uint64_t id)
{
    ngx_rl_blob_entry_t  blob;

    return version && ngx_rl_store_find(store, version, &blob) == NGX_OK
           && blob.id == id;
}


ngx_int_t
ngx_rl_store_publish(ngx_rl_store_t *store, const ngx_rl_store_entry_t *entry,
    uint64_t expected, uint64_t expected_id, ngx_rl_blob_history_e history)
{
    uint64_t             version, id;
    ngx_rl_blob_entry_t  blob;

    if (entry->text.len > store->max) {
        return NGX_DECLINED;
    }

    ngx_rl_lock(&store->write_lock);

    ngx_rl_store_version(store, &version, &id);

    if (expected != NGX_RL_STORE_ANY
        && (expected != version || expected_id != id))
    {
        ngx_rl_unlock(&store->write_lock);
        return NGX_BUSY;
    }

    ngx_memzero(&blob, sizeof(ngx_rl_blob_entry_t));
    blob.version = entry->version;
    blob.id = entry->id;
    blob.len = entry->text.len;

    (void) ngx_rl_blob_publish(ngx_rl_store_blobs(store), &blob,
                               entry->text.data, history);

    ngx_rl_unlock(&store->write_lock);

    return NGX_OK;
}


/* If a record was overwritten meanwhile, its copy stays in pool: rare. */
ngx_int_t
ngx_rl_store_read(const ngx_rl_store_t *store, uint64_t version,
    ngx_pool_t *pool, ngx_rl_store_entry_t *entry)
{
    u_char               *p;
    size_t                len;
    ngx_uint_t            i, n, most;
    ngx_rl_blob_t        *blobs;
    ngx_rl_blob_entry_t   blob[NGX_RL_STORE_HISTORY + 1];

    blobs = ngx_rl_store_blobs(store);
    most = 1;

    if (version == NGX_RL_STORE_ALL) {
        version = 0;
        most = NGX_RL_STORE_HISTORY + 1;
    }

    while (ngx_rl_store_find(store, version, &blob[0]) == NGX_OK) {

        len = blob[0].len;

        for (n = 1; n < most; n++) {

            if (!ngx_rl_blob_find(blobs, blob[n - 1].before, &blob[n])) {
                break;
            }

            len += blob[n].len;
        }

        p = ngx_pnalloc(pool, len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        /* the oldest ones may be gone by now: they are the last */

        for (i = 0, len = 0; i < n; i++) {

            if (!ngx_rl_blob_copy(blobs, &blob[i], p + len)) {
                break;
            }

            len += blob[i].len;
        }

        if (i) {
            entry->version = blob[0].version;
            entry->id = blob[0].id;
            entry->generation = blob[0].number;
            entry->text.data = p;
            entry->text.len = len;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


ngx_uint_t
ngx_rl_store_lead(ngx_rl_store_t *store)
{
    return store->leader.owner == ngx_rl_life
           || ngx_rl_lock_try(&store->leader);
}


void
ngx_rl_store_leave(ngx_rl_store_t *store)
{
    if (store->leader.owner == ngx_rl_life) {
        ngx_rl_unlock(&store->leader);
    }
}


/* FNV-1a: the operator chooses the names, so nobody forges a collision. */
void
ngx_rl_store_set_file(ngx_rl_store_t *store, const ngx_str_t *name)
{
    size_t    i;
    uint64_t  file;

    file = 0xcbf29ce484222325ULL;

    for (i = 0; i < name->len; i++) {
        file = (file ^ name->data[i]) * 0x100000001b3ULL;
    }

    if (store->file != file) {
        store->written = 0;
        store->error = 0;
        store->file = file;
    }
}

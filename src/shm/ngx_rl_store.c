/* The store: a header, and behind it the records. */

#include "ngx_rl_store.h"
#include "ngx_rl_hash.h"


static ngx_inline ngx_rl_blob_t *
ngx_rl_store_blobs(const ngx_rl_store_t *store)
{
    return (ngx_rl_blob_t *) (store + 1);
}


size_t
ngx_rl_store_size(size_t max)
{
    return sizeof(ngx_rl_store_t) + ngx_rl_blob_size(max);
}


ngx_int_t
ngx_rl_store_init(ngx_rl_store_t *store, size_t size, size_t max)
{
    if (max == 0 || size < ngx_rl_store_size(max)) {
        return NGX_ERROR;
    }

    store->max = max;
    ngx_rl_blob_init(ngx_rl_store_blobs(store), max);

    return NGX_OK;
}


uint64_t
ngx_rl_store_generation(const ngx_rl_store_t *store)
{
    return ngx_rl_blob_newest(ngx_rl_store_blobs(store));
}


/*
 * The current record. Returns NGX_OK, or NGX_DECLINED: there is none. It is
 * gone only if others have published meanwhile.
 */
static ngx_int_t
ngx_rl_store_current(const ngx_rl_store_t *store, ngx_rl_blob_entry_t *blob)
{
    uint64_t  newest;

    do {
        newest = ngx_rl_store_generation(store);

        if (newest == 0) {
            ngx_memzero(blob, sizeof(ngx_rl_blob_entry_t));
            return NGX_DECLINED;
        }

    } while (!ngx_rl_blob_find(ngx_rl_store_blobs(store), newest, blob));

    return NGX_OK;
}


void
ngx_rl_store_version(const ngx_rl_store_t *store, uint64_t *version,
    uint64_t *id)
{
    ngx_rl_blob_entry_t  blob;

    (void) ngx_rl_store_current(store, &blob);

    *version = blob.version;
    *id = blob.id;
}


ngx_uint_t
ngx_rl_store_had(ngx_rl_store_t *store, uint64_t version, uint64_t id)
{
    ngx_uint_t  i, found;

    found = 0;

    ngx_rl_lock(&store->write_lock);

    for (i = 0; i < NGX_RL_STORE_PAST; i++) {
        found |= (version && store->past[i].version == version
                  && store->past[i].id == id);
    }

    ngx_rl_unlock(&store->write_lock);

    return found;
}


ngx_int_t
ngx_rl_store_publish(ngx_rl_store_t *store, const ngx_rl_store_entry_t *entry,
    uint64_t expected, uint64_t expected_id)
{
    uint64_t              version, id;
    ngx_rl_blob_entry_t   blob;
    ngx_rl_store_past_t  *past;

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

    past = &store->past[ngx_rl_store_generation(store) % NGX_RL_STORE_PAST];
    past->version = entry->version;
    past->id = entry->id;

    ngx_memzero(&blob, sizeof(ngx_rl_blob_entry_t));
    blob.version = entry->version;
    blob.id = entry->id;
    blob.len = entry->text.len;

    (void) ngx_rl_blob_publish(ngx_rl_store_blobs(store), &blob,
                               entry->text.data);

    ngx_rl_unlock(&store->write_lock);

    return NGX_OK;
}


/* If a record was overwritten meanwhile, its copy stays in pool: rare. */
ngx_int_t
ngx_rl_store_read(const ngx_rl_store_t *store, ngx_pool_t *pool,
    ngx_rl_store_entry_t *entry)
{
    u_char               *p;
    ngx_rl_blob_entry_t   blob;

    do {
        if (ngx_rl_store_current(store, &blob) != NGX_OK) {
            return NGX_DECLINED;
        }

        p = ngx_pnalloc(pool, blob.len);
        if (p == NULL) {
            return NGX_ERROR;
        }

    } while (!ngx_rl_blob_copy(ngx_rl_store_blobs(store), &blob, p));

    entry->version = blob.version;
    entry->id = blob.id;
    entry->generation = blob.number;
    entry->text.data = p;
    entry->text.len = blob.len;

    return NGX_OK;
}


/* No secret key: the operator chooses the names. */
void
ngx_rl_store_set_file(ngx_rl_store_t *store, const ngx_str_t *name)
{
    uint64_t  file;

    static const u_char  key[NGX_RL_SIPHASH_KEY_BYTES];

    file = name->len ? ngx_rl_siphash(key, name->data, name->len, 1, 3).lo : 0;

    if (store->file != file) {
        store->written = 0;
        store->error = 0;
        store->file = file;
    }
}

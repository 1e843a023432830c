/*
 * The state file as the way from one nginx to another: while a binary is
 * upgraded, the old master's workers and the new one's have memory of their
 * own, and without Redis nothing else in common. The highest version that the
 * file has is everybody's.
 */

#include "ngx_ratelimit_sync_int.h"

#include "ngx_ratelimit_state.h"

#define NGX_RATELIMIT_SYNC_FILE_MS  1000

static void ngx_ratelimit_sync_file_work(void *data);
static ngx_uint_t ngx_ratelimit_sync_file_ahead(
    ngx_ratelimit_limiter_t *limiter, uint64_t *version, uint64_t *id,
    ngx_log_t *log);
static ngx_int_t ngx_ratelimit_sync_file_newer(
    ngx_ratelimit_limiter_t *limiter, ngx_pool_t *pool, ngx_str_t *text,
    uint64_t *version);
static ngx_int_t ngx_ratelimit_sync_file_publish(
    ngx_ratelimit_store_t *store, ngx_pool_t *pool, const ngx_str_t *text);


void
ngx_ratelimit_sync_file_look(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_sync_compile_t  *compile;

    if (!sync->leading || sync->control || sync->limiter->state.len == 0
        || sync->pulled || sync->written || ngx_exiting
        || ngx_current_msec - sync->looked < NGX_RATELIMIT_SYNC_FILE_MS
        || (sync->polling.wait
            && (ngx_msec_int_t) (ngx_current_msec - sync->polling.after) < 0))
    {
        return;
    }

    sync->looked = ngx_current_msec;

    compile = ngx_ratelimit_sync_compile_new(sync);
    if (compile == NULL) {
        return;
    }

    compile->refused_version = sync->refused_version;
    compile->refused_id = sync->refused_id;

    sync->pulled = ngx_ratelimit_job_start(ngx_ratelimit_sync_file_work,
                                           ngx_ratelimit_sync_pull_done,
                                           compile, sync->log);
    if (sync->pulled == NULL) {
        ngx_ratelimit_sync_compile_free(compile);
    }
}


/* In a thread. What is newer must be seen to compile, as one of Redis. */
static void
ngx_ratelimit_sync_file_work(void *data)
{
    ngx_ratelimit_sync_compile_t *compile = data;

    uint64_t                 version, id;
    ngx_int_t                rc;
    ngx_str_t                text;
    ngx_ratelimit_record_t   record;

    compile->none = 1;

    if (!ngx_ratelimit_sync_file_ahead(compile->limiter, &version, &id,
                                       compile->log)
        || (version == compile->refused_version && id == compile->refused_id))
    {
        return;
    }

    compile->none = 0;
    compile->entry.version = version;
    compile->entry.id = id;

    /* said once: then it is refused, and the next change writes over it */

    rc = ngx_ratelimit_state_peek(&compile->limiter->state, compile->pool,
                                  &text, compile->log);

    if (rc == NGX_DECLINED) {
        compile->why = "the state file is not whole";
        return;
    }

    if (rc != NGX_OK) {
        compile->failed = 1;
        return;
    }

    compile->why = ngx_ratelimit_record_read(&text, compile->pool, &record);

    if (compile->why) {
        return;
    }

    compile->entry.version = record.version;
    compile->entry.id = record.id;
    compile->entry.text.len = record.text.len;
    compile->entry.text.data = ngx_alloc(record.text.len, compile->log);

    if (compile->entry.text.data == NULL) {
        compile->failed = 1;
        return;
    }

    ngx_memcpy(compile->entry.text.data, record.text.data, record.text.len);
    ngx_ratelimit_sync_compile_text(compile);

    if (compile->why == NULL && compile->policy) {
        compile->published =
            ngx_ratelimit_sync_file_publish(compile->limiter->store,
                                            compile->pool, &text);
        compile->generation =
            ngx_ratelimit_store_generation(compile->limiter->store);
    }
}


/* The file first: the store is never behind what this node has written. */
static ngx_uint_t
ngx_ratelimit_sync_file_ahead(ngx_ratelimit_limiter_t *limiter,
    uint64_t *version, uint64_t *id, ngx_log_t *log)
{
    uint64_t  own, own_id;

    if (ngx_ratelimit_state_newest(&limiter->state, version, id, log)
        != NGX_OK)
    {
        return 0;
    }

    ngx_ratelimit_store_version(limiter->store, &own, &own_id);

    return *version > own || (*version == own && *id != own_id);
}


/*
 * Who expects a version that the file alone has was told of it by the other
 * nginx, or here, and has read it: it comes before the next one, whether this
 * worker can go by it or not.
 */
ngx_int_t
ngx_ratelimit_sync_file_check(ngx_ratelimit_limiter_t *limiter,
    uint64_t expected, uint64_t *found, ngx_log_t *log)
{
    uint64_t     own, id;
    ngx_int_t    rc;
    ngx_str_t    text;
    ngx_pool_t  *pool;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_ratelimit_sync_file_newer(limiter, pool, &text, found);

    if (rc == NGX_OK) {

        /* of the same version this node has another, which was edited */

        ngx_ratelimit_store_version(limiter->store, &own, &id);

        rc = (*found == expected && own < expected)
             ? ngx_ratelimit_sync_file_publish(limiter->store, pool, &text)
             : NGX_BUSY;

    } else if (rc == NGX_DECLINED) {
        rc = NGX_OK;
    }

    ngx_destroy_pool(pool);

    return rc;
}


ngx_int_t
ngx_ratelimit_sync_file_read(ngx_ratelimit_limiter_t *limiter,
    uint64_t version, ngx_str_t *text, ngx_log_t *log)
{
    uint64_t                 newest;
    ngx_int_t                rc;
    ngx_str_t                rest;
    ngx_pool_t              *pool;
    ngx_ratelimit_record_t   record;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_ratelimit_sync_file_newer(limiter, pool, &rest, &newest);

    while (rc == NGX_OK) {

        if (rest.len == 0
            || ngx_ratelimit_record_head(&rest, pool, &record) != NULL)
        {
            rc = NGX_DECLINED;
            break;
        }

        if (record.version == version) {
            text->data = ngx_alloc(record.text.len, log);

            if (text->data == NULL) {
                rc = NGX_ERROR;
                break;
            }

            ngx_memcpy(text->data, record.text.data, record.text.len);
            text->len = record.text.len;
            break;
        }

        rest.data += record.text.len;
        rest.len -= record.text.len;
    }

    ngx_destroy_pool(pool);

    return rc;
}


/* All that is in the file, where this node has not the newest of it. */
static ngx_int_t
ngx_ratelimit_sync_file_newer(ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool, ngx_str_t *text, uint64_t *version)
{
    uint64_t  id;

    if (limiter->state.len == 0
        || !ngx_ratelimit_sync_file_ahead(limiter, version, &id, pool->log))
    {
        return NGX_DECLINED;
    }

    return ngx_ratelimit_state_peek(&limiter->state, pool, text, pool->log);
}


/*
 * All that is newer, the oldest first, so that the history is whole; and the
 * leader writes the file again, the same. What this
 * node alone has of the same version was not in the file, and is no part of it.
 */
static ngx_int_t
ngx_ratelimit_sync_file_publish(ngx_ratelimit_store_t *store,
    ngx_pool_t *pool, const ngx_str_t *text)
{
    uint64_t                      current, id, found;
    ngx_int_t                     rc;
    ngx_str_t                     rest;
    ngx_uint_t                    n;
    ngx_ratelimit_record_t        record;
    ngx_ratelimit_store_entry_t   entries[NGX_RATELIMIT_STORE_HISTORY + 1];

    ngx_ratelimit_blob_history_e  history;

    ngx_ratelimit_store_version(store, &current, &id);

    rest = *text;
    history = NGX_RATELIMIT_BLOB_KEEP;

    for (n = 0; n <= NGX_RATELIMIT_STORE_HISTORY && rest.len; n++) {

        if (ngx_ratelimit_record_head(&rest, pool, &record) != NULL
            || record.document.data == NULL || record.version < current
            || (record.version == current && record.id == id))
        {
            break;
        }

        if (record.version == current) {
            history = NGX_RATELIMIT_BLOB_DROP;
        }

        entries[n].version = record.version;
        entries[n].id = record.id;
        entries[n].text = record.text;

        rest.data += record.text.len;
        rest.len -= record.text.len;
    }

    rc = NGX_OK;

    while (n-- && rc == NGX_OK) {
        rc = ngx_ratelimit_store_publish(store, &entries[n], current, 0,
                                         history, &found);
        current = entries[n].version;
        history = NGX_RATELIMIT_BLOB_KEEP;
    }

    return rc;
}

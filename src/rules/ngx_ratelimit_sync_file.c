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
static void ngx_ratelimit_sync_file_publish(
    ngx_ratelimit_sync_compile_t *compile, const ngx_str_t *text);


void
ngx_ratelimit_sync_file_look(ngx_ratelimit_sync_t *sync)
{
    ngx_ratelimit_sync_compile_t  *compile;

    if (!sync->leading || sync->control || sync->limiter->state.len == 0
        || sync->pulled || sync->written || ngx_exiting
        || ngx_current_msec - sync->looked < NGX_RATELIMIT_SYNC_FILE_MS)
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

    if (ngx_ratelimit_state_peek(&compile->limiter->state, compile->pool,
                                 &text, compile->log)
        != NGX_OK)
    {
        compile->why = "the state file is not whole";
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
        ngx_ratelimit_sync_file_publish(compile, &text);
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


ngx_int_t
ngx_ratelimit_sync_file_check(ngx_ratelimit_limiter_t *limiter,
    uint64_t *found, ngx_log_t *log)
{
    uint64_t  version, id;

    if (limiter->state.len == 0
        || !ngx_ratelimit_sync_file_ahead(limiter, &version, &id, log)
        || !ngx_ratelimit_state_good(&limiter->state, log))
    {
        return NGX_OK;
    }

    *found = version;

    return NGX_BUSY;
}


/*
 * All that is newer, the oldest first, so that the history is whole; and the
 * leader writes the file again, the same. What this
 * node alone has of the same version was not in the file, and is no part of it.
 */
static void
ngx_ratelimit_sync_file_publish(ngx_ratelimit_sync_compile_t *compile,
    const ngx_str_t *text)
{
    uint64_t                      current, id, found;
    ngx_str_t                     rest;
    ngx_uint_t                    n, history;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_record_t        record;
    ngx_ratelimit_store_entry_t   entries[NGX_RATELIMIT_STORE_HISTORY + 1];

    store = compile->limiter->store;
    ngx_ratelimit_store_version(store, &current, &id);

    rest = *text;
    history = 1;

    for (n = 0; n <= NGX_RATELIMIT_STORE_HISTORY && rest.len; n++) {

        if (ngx_ratelimit_record_head(&rest, compile->pool, &record) != NULL
            || record.document.data == NULL || record.version < current
            || (record.version == current && record.id == id))
        {
            break;
        }

        if (record.version == current) {
            history = 0;
        }

        entries[n].version = record.version;
        entries[n].id = record.id;
        entries[n].text = record.text;

        rest.data += record.text.len;
        rest.len -= record.text.len;
    }

    compile->published = NGX_OK;

    while (n-- && compile->published == NGX_OK) {
        compile->published = ngx_ratelimit_store_publish(store, &entries[n],
                                                         current, history,
                                                         &found);
        current = entries[n].version;
        history = 1;
    }

    compile->generation = ngx_ratelimit_store_generation(store);
}

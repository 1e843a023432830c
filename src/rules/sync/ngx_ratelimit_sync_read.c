/*
 * The endpoint's questions beside changes: the list of versions, one of them,
 * whether one is current, a counter's reset. Redis answers if the zone has one,
 * else the gateway's store.
 */

#include "ngx_ratelimit_sync_int.h"

static void ngx_ratelimit_sync_expired(ngx_event_t *ev);
static ngx_uint_t ngx_ratelimit_sync_no_result(
    ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_sync_check_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static ngx_int_t ngx_ratelimit_sync_versions_work(
    ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_versions_done(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_versions_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static ngx_int_t ngx_ratelimit_sync_lines(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *texts, ngx_uint_t n);
static ngx_int_t ngx_ratelimit_sync_heads(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *records, ngx_uint_t whole);
static ngx_int_t ngx_ratelimit_sync_read_work(
    ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_read_done(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_read_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_sync_reset_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_check(ngx_ratelimit_limiter_t *limiter, uint64_t version,
    uint64_t id, ngx_ratelimit_sync_handler_pt handler, void *data)
{
    uint64_t                    own_id;
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = version;
    call->id = id;

    if (call->alone) {
        ngx_ratelimit_store_version(limiter->store, &call->result.version,
                                    &own_id);

        return ngx_ratelimit_sync_call_ends(call,
                   (call->result.version == version && own_id == id)
                   ? NGX_RATELIMIT_SYNC_OK : NGX_RATELIMIT_SYNC_CONFLICT);
    }

    call->asked = ngx_ratelimit_sync_ask_get(call->sync, version, id,
                                             ngx_ratelimit_sync_check_answer,
                                             call);

    return ngx_ratelimit_sync_call_started(call,
                                           call->asked ? NGX_OK : NGX_ERROR,
                                           ngx_ratelimit_sync_expired);
}


static void
ngx_ratelimit_sync_expired(ngx_event_t *ev)
{
    ngx_ratelimit_sync_call_wrong(ev->data, "timeout",
                                  NGX_RATELIMIT_SYNC_UNAVAILABLE);
}


/* Every answer of Redis comes here first. Ends the call that has none. */
static ngx_uint_t
ngx_ratelimit_sync_no_result(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_result_t *result)
{
    call->asked = NULL;

    if (result->status == NGX_RATELIMIT_REDIS_OK) {
        return 0;
    }

    call->result.reason = *ngx_ratelimit_redis_status_name(result->status);
    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);

    return 1;
}


static void
ngx_ratelimit_sync_check_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    uint64_t  version, id;

    if (ngx_ratelimit_sync_no_result(call, result)) {
        return;
    }

    if (ngx_ratelimit_sync_version(result, 0, &version, &id) != NGX_OK) {
        ngx_ratelimit_sync_call_wrong(call, "protocol",
                                      NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    call->result.version = version;

    if (version == call->version && id == call->id) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);

    } else if (version < call->version) {

        /* as for a put: it has lost its last writes */

        ngx_ratelimit_sync_call_wrong(call, "behind",
                                      NGX_RATELIMIT_SYNC_UNAVAILABLE);

    } else {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
    }
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_versions(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_int_t                   rc;
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, handler, data);
    if (call == NULL) {
        return NULL;
    }

    if (call->alone) {
        rc = ngx_ratelimit_sync_call_job(call,
                                         ngx_ratelimit_sync_versions_work,
                                         ngx_ratelimit_sync_versions_done);
    } else {
        call->asked = ngx_ratelimit_sync_ask_list(call->sync,
                                          ngx_ratelimit_sync_versions_answer,
                                                  call);
        rc = call->asked ? NGX_OK : NGX_ERROR;
    }

    return ngx_ratelimit_sync_call_started(call, rc,
                                           ngx_ratelimit_sync_expired);
}


/* In a thread. */
static ngx_int_t
ngx_ratelimit_sync_versions_work(ngx_ratelimit_sync_call_t *call)
{
    ngx_int_t  rc;
    uint64_t   generation;

    rc = ngx_ratelimit_store_read_all(call->limiter->store, &call->entry,
                                      &generation, call->pool->log);

    return (rc == NGX_OK)
           ? ngx_ratelimit_sync_heads(call, &call->entry.text, 1) : rc;
}


static void
ngx_ratelimit_sync_versions_done(ngx_ratelimit_sync_call_t *call)
{
    ngx_ratelimit_store_version(call->limiter->store, &call->result.version,
                                &call->result.id);

    /* NGX_DECLINED: there is none */

    ngx_ratelimit_sync_call_end(call, (call->rc == NGX_ERROR)
                                      ? NGX_RATELIMIT_SYNC_FAILED
                                      : NGX_RATELIMIT_SYNC_OK);
}


static void
ngx_ratelimit_sync_versions_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    if (ngx_ratelimit_sync_no_result(call, result)) {
        return;
    }

    if (ngx_ratelimit_sync_lines(call, result->texts, result->n) != NGX_OK) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
        return;
    }

    if (call->result.n) {
        call->result.version = call->result.records[0].version;
        call->result.id = call->result.records[0].id;
    }

    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
}


/* Reads the script's list: heads without their line ends. */
static ngx_int_t
ngx_ratelimit_sync_lines(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *texts, ngx_uint_t n)
{
    u_char      *p;
    size_t       len;
    ngx_str_t    text;
    ngx_uint_t   i;

    for (i = 0, len = 0; i < n; i++) {
        len += texts[i].len + 1;
    }

    text.len = len;
    text.data = ngx_pnalloc(call->pool, len + 1);

    if (text.data == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, p = text.data; i < n; i++) {
        p = ngx_cpymem(p, texts[i].data, texts[i].len);
        *p++ = LF;
    }

    return ngx_ratelimit_sync_heads(call, &text, 0);
}


/*
 * Reads the heads of records that stand one behind the other; whole: each with
 * its document.
 */
static ngx_int_t
ngx_ratelimit_sync_heads(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *records, ngx_uint_t whole)
{
    size_t                   len;
    ngx_str_t                text;
    ngx_array_t              heads;
    const char              *wrong;
    ngx_ratelimit_record_t  *record;

    if (ngx_array_init(&heads, call->pool, 16,
                       sizeof(ngx_ratelimit_record_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    text = *records;

    while (text.len) {
        record = ngx_array_push(&heads);
        if (record == NULL) {
            return NGX_ERROR;
        }

        wrong = ngx_ratelimit_record_head(&text, call->pool, record);

        if (wrong == ngx_ratelimit_record_no_memory) {
            return NGX_ERROR;
        }

        if (wrong && wrong != ngx_ratelimit_record_too_large) {
            heads.nelts--;
            break;
        }

        len = whole ? record->text.len
                    : (size_t) (ngx_strlchr(text.data, text.data + text.len,
                                            LF)
                                + 1 - text.data);
        text.data += len;
        text.len -= len;

        /* a document of this length, which is not here */

        record->document.data = NULL;
        ngx_str_null(&record->text);
    }

    call->result.n = heads.nelts;
    call->result.records = heads.elts;

    return NGX_OK;
}


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_read(ngx_ratelimit_limiter_t *limiter, uint64_t version,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_int_t                   rc;
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = version;

    if (version == 0) {
        return ngx_ratelimit_sync_call_ends(call,
                                            NGX_RATELIMIT_SYNC_NOT_FOUND);
    }

    if (call->alone) {
        rc = ngx_ratelimit_sync_call_job(call, ngx_ratelimit_sync_read_work,
                                         ngx_ratelimit_sync_read_done);
    } else {
        call->asked = ngx_ratelimit_sync_ask_version(call->sync, version,
                                              ngx_ratelimit_sync_read_answer,
                                                     call);
        rc = call->asked ? NGX_OK : NGX_ERROR;
    }

    return ngx_ratelimit_sync_call_started(call, rc,
                                           ngx_ratelimit_sync_expired);
}


/* In a thread. NGX_DONE: it is too large, NGX_ABORT: it is another one. */
static ngx_int_t
ngx_ratelimit_sync_read_work(ngx_ratelimit_sync_call_t *call)
{
    uint64_t     generation;
    ngx_int_t    rc;
    const char  *wrong;

    if (call->entry.text.data == NULL) {
        rc = ngx_ratelimit_store_read(call->limiter->store, call->version,
                                      &call->entry, &generation,
                                      call->pool->log);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    wrong = ngx_ratelimit_record_read(&call->entry.text, call->pool,
                                      &call->record);

    if (wrong == NULL && call->record.version == call->version) {
        return NGX_OK;
    }

    return (wrong == ngx_ratelimit_record_too_large) ? NGX_DONE : NGX_ABORT;
}


static void
ngx_ratelimit_sync_read_done(ngx_ratelimit_sync_call_t *call)
{
    ngx_ratelimit_store_version(call->limiter->store, &call->result.version,
                                &call->result.id);
    call->result.records = &call->record;

    switch (call->rc) {

    case NGX_OK:
        call->result.n = 1;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
        return;

    case NGX_DECLINED:
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_NOT_FOUND);
        return;

    case NGX_DONE:
        ngx_str_null(&call->record.document);
        call->result.n = 1;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_TOO_LARGE);
        return;

    case NGX_ABORT:
        ngx_ratelimit_sync_call_wrong(call, "protocol",
                                      NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;

    default: /* NGX_ERROR */
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
    }
}


static void
ngx_ratelimit_sync_read_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    if (ngx_ratelimit_sync_no_result(call, result)) {
        return;
    }

    if (result->n == 0 || result->texts[0].len == 0) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_NOT_FOUND);
        return;
    }

    call->entry.text = result->texts[0];
    ngx_str_null(&result->texts[0]);

    if (ngx_ratelimit_sync_call_job(call, ngx_ratelimit_sync_read_work,
                                    ngx_ratelimit_sync_read_done)
        != NGX_OK)
    {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
    }
}


/* Without Redis no rejection is remembered but in the counter itself. */
ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_reset(ngx_ratelimit_limiter_t *limiter,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, handler, data);
    if (call == NULL) {
        return NULL;
    }

    if (call->alone) {
        return ngx_ratelimit_sync_call_ends(call, NGX_RATELIMIT_SYNC_OK);
    }

    call->asked = ngx_ratelimit_sync_ask_reset(call->sync,
                                              ngx_ratelimit_sync_reset_answer,
                                               call);

    return ngx_ratelimit_sync_call_started(call,
                                           call->asked ? NGX_OK : NGX_ERROR,
                                           ngx_ratelimit_sync_expired);
}


static void
ngx_ratelimit_sync_reset_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    uint64_t  resets;

    if (ngx_ratelimit_sync_no_result(call, result)) {
        return;
    }

    if (ngx_ratelimit_sync_number(result, 0, &resets) != NGX_OK) {
        ngx_ratelimit_sync_call_wrong(call, "protocol",
                                      NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    /* at once: the leader will find nothing new */

    ngx_ratelimit_sync_resets(call->sync, resets);
    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
}

/*
 * A record becomes the next version: what the endpoint asks for.
 */

#include "ngx_ratelimit_sync_int.h"

#include <openssl/rand.h>

#define NGX_RATELIMIT_SYNC_SAVED_MS  20     /* looks whether it is written */
#define NGX_RATELIMIT_SYNC_SAVE_MS   2000   /* waits for the state file */

static ngx_int_t ngx_ratelimit_sync_put_copy(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_record_t *record);
static void ngx_ratelimit_sync_put_expired(ngx_event_t *ev);
static ngx_int_t ngx_ratelimit_sync_put_work(ngx_ratelimit_sync_call_t *call);
static ngx_int_t ngx_ratelimit_sync_put_publish(
    ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_done(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_answer(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_sync_put_saved(ngx_event_t *ev);
static void ngx_ratelimit_sync_put_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status);


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_put(ngx_ratelimit_limiter_t *limiter, uint64_t expected,
    uint64_t expected_id, const ngx_ratelimit_record_t *record,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_int_t                   rc;
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = expected;
    call->id = expected_id;

    /* or given up, and what the new master has written is not read yet */

    if (ngx_ratelimit_sync_upgraded()
        || (call->alone && limiter->state.len && limiter->store->upgraded))
    {
        return ngx_ratelimit_sync_call_ends(call, NGX_RATELIMIT_SYNC_UPGRADED);
    }

    if (expected >= NGX_RATELIMIT_SYNC_LATEST
        || record->document.len > NGX_RATELIMIT_DOCUMENT_MAX)
    {
        return ngx_ratelimit_sync_call_ends(call,
                                            NGX_RATELIMIT_SYNC_TOO_LARGE);
    }

    rc = ngx_ratelimit_sync_put_copy(call, record);

    if (rc == NGX_OK) {
        rc = ngx_ratelimit_sync_call_job(call, ngx_ratelimit_sync_put_work,
                                         ngx_ratelimit_sync_put_done);
    }

    return ngx_ratelimit_sync_call_started(call, rc,
                                           ngx_ratelimit_sync_put_expired);
}


/* Everything that a record has of its own is copied to the call's pool. */
static ngx_int_t
ngx_ratelimit_sync_put_copy(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_record_t *record)
{
    size_t      i;
    uint64_t    random[2];
    ngx_str_t  *from, *to;

    static const size_t  texts[] = {
        offsetof(ngx_ratelimit_record_t, author),
        offsetof(ngx_ratelimit_record_t, address),
        offsetof(ngx_ratelimit_record_t, method),
        offsetof(ngx_ratelimit_record_t, path),
        offsetof(ngx_ratelimit_record_t, reason),
        offsetof(ngx_ratelimit_record_t, document)
    };

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        from = (ngx_str_t *) ((u_char *) record + texts[i]);
        to = (ngx_str_t *) ((u_char *) &call->record + texts[i]);

        if (from->len == 0) {
            continue;
        }

        to->len = from->len;
        to->data = ngx_pstrdup(call->pool, from);

        if (to->data == NULL) {
            return NGX_ERROR;
        }
    }

    if (RAND_bytes((u_char *) random, sizeof(random)) != 1) {
        return NGX_ERROR;
    }

    /* 0 is the id of no record, and no lineage */

    call->record.id = random[0] | 1;
    call->record.lineage = record->lineage ? record->lineage : random[1] | 1;
    call->record.version = call->version + 1;
    call->record.time_ms = record->time_ms ? record->time_ms
                                           : ngx_ratelimit_sync_now();
    return NGX_OK;
}


static void
ngx_ratelimit_sync_put_expired(ngx_event_t *ev)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ev->data;

    ngx_str_set(&call->result.reason, "timeout");
    ngx_ratelimit_sync_put_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
}


/* In a thread: the record's digest, or the store's lock. */
static ngx_int_t
ngx_ratelimit_sync_put_work(ngx_ratelimit_sync_call_t *call)
{
    ngx_int_t  rc;

    if (call->record.text.data == NULL) {
        rc = ngx_ratelimit_record_write(&call->record, call->pool);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    return (call->taken || call->alone) ? ngx_ratelimit_sync_put_publish(call)
                                        : NGX_OK;
}


/*
 * Without Redis: it becomes the current one here. With Redis,
 * which has taken it, this gateway has it at once, so that a client finds what
 * it wrote; the leader may have been faster, and does what fails here.
 */
static ngx_int_t
ngx_ratelimit_sync_put_publish(ngx_ratelimit_sync_call_t *call)
{
    uint64_t                      version, id;
    ngx_int_t                     rc;
    ngx_ratelimit_store_t        *store;
    ngx_ratelimit_store_entry_t   entry;

    store = call->limiter->store;

    entry.version = call->record.version;
    entry.id = call->record.id;
    entry.text = call->record.text;

    if (!call->taken) {
        rc = ngx_ratelimit_store_publish(store, &entry, call->version,
                                         call->id, NGX_RATELIMIT_BLOB_KEEP,
                                         &call->found);
        call->generation = ngx_ratelimit_store_generation(store);
        return rc;
    }

    do {
        ngx_ratelimit_store_version(store, &version, &id);

        if (version >= entry.version) {
            break;
        }

        rc = ngx_ratelimit_store_publish(store, &entry, version, id,
                                         NGX_RATELIMIT_BLOB_KEEP, &version);
    } while (rc == NGX_BUSY);

    return NGX_OK;
}


/* The record is made; or it is the current one. */
static void
ngx_ratelimit_sync_put_done(ngx_ratelimit_sync_call_t *call)
{
    ngx_ratelimit_store_entry_t  entry;

    switch (call->rc) {

    case NGX_OK:
        break;

    case NGX_BUSY:
        call->result.version = call->found;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
        return;

    case NGX_DECLINED:
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_TOO_LARGE);
        return;

    default: /* NGX_ERROR */
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
        return;
    }

    if (!call->alone && !call->taken) {
        entry.version = call->record.version;
        entry.id = call->record.id;
        entry.text = call->record.text;

        call->asked = ngx_ratelimit_sync_ask_put(call->sync, call->version,
                                                 call->id, &entry,
                                                ngx_ratelimit_sync_put_answer,
                                                 call);
        if (call->asked == NULL) {
            ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_FAILED);
        }

        return;
    }

    ngx_ratelimit_sync_wake(call->sync);

    call->result.version = call->record.version;
    call->result.id = call->record.id;

    if (call->taken || call->limiter->state.len == 0) {
        call->result.saved = 1;
        ngx_ratelimit_sync_put_end(call, NGX_RATELIMIT_SYNC_OK);
        return;
    }

    call->since = ngx_current_msec;
    ngx_ratelimit_sync_call_wait(call, ngx_ratelimit_sync_put_saved,
                                 NGX_RATELIMIT_SYNC_SAVED_MS);
}


/*
 * {"1" or "0", version, id}. A lost answer is not asked for again: the client
 * reads the document, which says more than any retry could.
 */
static void
ngx_ratelimit_sync_put_answer(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    uint64_t  version, id;

    call->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        call->result.reason = *ngx_ratelimit_redis_status_name(result->status);
    }

    switch (result->status) {

    case NGX_RATELIMIT_REDIS_OK:
        break;

    case NGX_RATELIMIT_REDIS_READONLY:
    case NGX_RATELIMIT_REDIS_OOM:
    case NGX_RATELIMIT_REDIS_MISCONF:
    case NGX_RATELIMIT_REDIS_NOREPLICAS:
    case NGX_RATELIMIT_REDIS_NOPERM:
    case NGX_RATELIMIT_REDIS_WRONGTYPE:

        /* the script's change is its last command: there was none */

        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;

    default:
        ngx_ratelimit_sync_put_end(call, result->ran
                                         ? NGX_RATELIMIT_SYNC_UNKNOWN
                                         : NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    if (ngx_ratelimit_sync_version(result, 1, &version, &id) != NGX_OK) {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_put_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    if (version == call->record.version && id == call->record.id) {
        call->taken = 1;

        if (ngx_ratelimit_sync_call_job(call, ngx_ratelimit_sync_put_work,
                                        ngx_ratelimit_sync_put_done)
            != NGX_OK)
        {
            ngx_ratelimit_sync_put_done(call);
        }

        return;
    }

    call->result.version = version;

    if (version < call->version) {

        /* it has lost its last writes, or is another fleet's */

        ngx_ratelimit_sync_call_wrong(call, "behind",
                                      NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
}


/*
 * A new master reads the state file. The change is in it for certain only if it
 * was saved before that master was started.
 */
static void
ngx_ratelimit_sync_put_saved(ngx_event_t *ev)
{
    ngx_ratelimit_sync_call_t  *call;

    call = ev->data;
    call->result.saved = (call->limiter->store->written >= call->generation);

    if (ngx_ratelimit_sync_upgraded()) {
        ngx_str_set(&call->result.reason, "upgrade");
        ngx_ratelimit_sync_put_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);

    } else if (call->result.saved
               || ngx_current_msec - call->since >= NGX_RATELIMIT_SYNC_SAVE_MS)
    {
        ngx_ratelimit_sync_put_end(call, NGX_RATELIMIT_SYNC_OK);

    } else {
        ngx_add_timer(ev, NGX_RATELIMIT_SYNC_SAVED_MS);
    }
}


/* A change is logged once, whether its request still waits or has gone. */
static void
ngx_ratelimit_sync_put_end(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status)
{
    u_char     buf[sizeof("version  of its rules may have been made")
                   + NGX_INT64_LEN];
    ngx_str_t  what;

    if (status == NGX_RATELIMIT_SYNC_OK || status == NGX_RATELIMIT_SYNC_UNKNOWN)
    {
        what.data = buf;
        what.len = ngx_sprintf(buf, "version %uL of its rules %s",
                               call->record.version,
                               (status == NGX_RATELIMIT_SYNC_OK)
                               ? "was made" : "may have been made")
                   - buf;

        ngx_ratelimit_sync_log(call->limiter, call->pool, &what,
                               &call->record);
    }

    ngx_ratelimit_sync_call_end(call, status);
}


/* Texts of clients are escaped: they stay in their quotes, on one line. */
void
ngx_ratelimit_sync_log(const ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool, const ngx_str_t *what,
    const ngx_ratelimit_record_t *record)
{
    size_t            len;
    u_char           *p;
    ngx_str_t         quoted[4];
    ngx_uint_t        i;
    const ngx_str_t  *text[4];

    text[0] = &record->method;
    text[1] = &record->path;
    text[2] = &record->author;
    text[3] = &record->reason;

    for (i = 0; i < 4; i++) {
        len = text[i]->len;
        p = ngx_pnalloc(pool, 6 * len + 1);

        if (p == NULL) {
            ngx_str_set(&quoted[i], "?");
            continue;
        }

        quoted[i].data = p;
        quoted[i].len = (u_char *) ngx_escape_json(p, text[i]->data, len) - p;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "ratelimit zone \"%V\": %V: \"%V %V\" by \"%V\" from %V, "
                  "reason \"%V\"",
                  &limiter->zone.name, what, &quoted[0], &quoted[1],
                  &quoted[2], &record->address, &quoted[3]);
}

/*
 * A record becomes the next version: what the endpoint asks for, and a leader
 * whose Redis has lost it.
 */

#include "ngx_ratelimit_sync_call.h"

#include <openssl/rand.h>

#define NGX_RATELIMIT_SYNC_RETRY_MS   250    /* asks what became of a put */
#define NGX_RATELIMIT_SYNC_RETRIES    8

/* {"1" or "0", version, id} */
#define NGX_RATELIMIT_SYNC_PUT_TEXTS  3

static ngx_int_t ngx_ratelimit_sync_put_copy(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_record_t *record);
static ngx_int_t ngx_ratelimit_sync_put_publish(
    ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_lost(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result);
static void ngx_ratelimit_sync_put_passed(ngx_ratelimit_sync_call_t *call);
static void ngx_ratelimit_sync_put_passed_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result);
static ngx_uint_t ngx_ratelimit_sync_related(
    ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_store_entry_t *own);
static uint64_t ngx_ratelimit_sync_lineage(
    ngx_ratelimit_sync_compile_t *compile, const ngx_str_t *text);
static ngx_int_t ngx_ratelimit_sync_copy(ngx_pool_t *pool, ngx_str_t *to,
    const ngx_str_t *from);


ngx_ratelimit_sync_call_t *
ngx_ratelimit_sync_put(ngx_ratelimit_limiter_t *limiter, uint64_t expected,
    uint64_t expected_id, const ngx_ratelimit_record_t *record,
    ngx_ratelimit_sync_handler_pt handler, void *data)
{
    ngx_int_t                   rc;
    ngx_ratelimit_sync_call_t  *call;

    call = ngx_ratelimit_sync_call_new(limiter, NGX_RATELIMIT_SYNC_PUT,
                                       handler, data);
    if (call == NULL) {
        return NULL;
    }

    call->version = expected;
    call->id = expected_id;

    if (expected >= NGX_RATELIMIT_SYNC_LATEST
        || record->document.len > NGX_RATELIMIT_DOCUMENT_MAX)
    {
        call->result.status = NGX_RATELIMIT_SYNC_TOO_LARGE;
        ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_ANSWERS, 0);
        return call;
    }

    rc = ngx_ratelimit_sync_put_copy(call, record);

    if (rc == NGX_OK) {
        rc = ngx_ratelimit_sync_call_job(call);
    }

    return ngx_ratelimit_sync_call_started(call, rc);
}


static ngx_int_t
ngx_ratelimit_sync_put_copy(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_record_t *record)
{
    uint64_t  random[2];

    if (ngx_ratelimit_sync_copy(call->pool, &call->record.author,
                                &record->author)
        != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.address,
                                   &record->address)
           != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.method,
                                   &record->method)
           != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.path,
                                   &record->path)
           != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.reason,
                                   &record->reason)
           != NGX_OK
        || ngx_ratelimit_sync_copy(call->pool, &call->record.document,
                                   &record->document)
           != NGX_OK
        || RAND_bytes((u_char *) random, sizeof(random)) != 1)
    {
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


/* In a thread: the record's digest, or the store's lock. */
ngx_int_t
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
 * Without Redis: it becomes the current one here. Else Redis has taken it, and
 * this node has it at once, so that who reads here what he wrote finds it; the
 * leader may have been faster, and does what fails here.
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

        /* another nginx, while the binary is upgraded */

        rc = ngx_ratelimit_sync_file_check(call->limiter, call->version,
                                           &call->found, call->pool->log);
        if (rc != NGX_OK) {
            return rc;
        }

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
void
ngx_ratelimit_sync_put_done(ngx_ratelimit_sync_call_t *call)
{
    if (call->rc == NGX_BUSY) {
        call->result.version = call->found;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
        return;
    }

    if (call->rc != NGX_OK) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_TOO_LARGE);
        return;
    }

    if (call->sync->control && !call->taken) {
        if (ngx_ratelimit_sync_call_ask(call) != NGX_OK) {
            ngx_ratelimit_sync_call_end(call, call->ran
                                              ? NGX_RATELIMIT_SYNC_UNKNOWN
                                              : NGX_RATELIMIT_SYNC_FAILED);
        }

        return;
    }

    ngx_ratelimit_sync_wake(call->sync);

    call->result.version = call->record.version;
    call->result.id = call->record.id;

    if (call->taken || call->limiter->state.len == 0) {
        call->result.saved = 1;
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
        return;
    }

    call->since = ngx_current_msec;
    ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_SAVES,
                                 NGX_RATELIMIT_SYNC_SAVED_MS);
}


void
ngx_ratelimit_sync_put_answer(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result)
{
    uint64_t  version, id;

    if (result->status != NGX_RATELIMIT_REDIS_OK) {
        ngx_ratelimit_sync_put_lost(call, result);
        return;
    }

    if (result->n < NGX_RATELIMIT_SYNC_PUT_TEXTS
        || ngx_ratelimit_sync_number(&result->texts[1], &version) != NGX_OK
        || ngx_ratelimit_sync_id(&result->texts[2], &id) != NGX_OK)
    {
        ngx_str_set(&call->result.reason, "protocol");
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    if (version == call->record.version && id == call->record.id) {
        call->taken = 1;

        if (ngx_ratelimit_sync_call_job(call) != NGX_OK) {
            ngx_ratelimit_sync_put_done(call);
        }

        return;
    }

    call->result.version = version;

    if (call->ran && version > call->record.version) {
        ngx_ratelimit_sync_put_passed(call);
        return;
    }

    if (version < call->version) {

        /* it has lost its last writes, or is another fleet's */

        ngx_str_set(&call->result.reason, "behind");
        ngx_ratelimit_sync_call_end(call,
                                    call->ran
                                    ? NGX_RATELIMIT_SYNC_UNKNOWN
                                    : NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
}


/* Once for each change, whether its request waits or has gone. */
void
ngx_ratelimit_sync_put_log(ngx_ratelimit_sync_call_t *call,
    ngx_ratelimit_sync_status_e status)
{
    u_char     buf[sizeof("version  of its rules may have been made")
                   + NGX_INT64_LEN];
    ngx_str_t  what;

    what.data = buf;
    what.len = ngx_sprintf(buf, "version %uL of its rules %s",
                           call->record.version,
                           (status == NGX_RATELIMIT_SYNC_OK)
                           ? "was made" : "may have been made")
               - buf;

    ngx_ratelimit_sync_log(call->limiter, call->pool, &what, &call->record);
}


/* What clients have sent stays in its quotes, and on one line. */
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


/*
 * Where it may have run the same is said again: what is current already is not
 * written again, by its id, and what comes behind it is not expected any more.
 */
static void
ngx_ratelimit_sync_put_lost(ngx_ratelimit_sync_call_t *call,
    const ngx_ratelimit_redis_control_result_t *result)
{
    switch (result->status) {

    case NGX_RATELIMIT_REDIS_READONLY:
    case NGX_RATELIMIT_REDIS_OOM:
    case NGX_RATELIMIT_REDIS_MISCONF:
    case NGX_RATELIMIT_REDIS_NOREPLICAS:
    case NGX_RATELIMIT_REDIS_NOPERM:
    case NGX_RATELIMIT_REDIS_WRONGTYPE:

        /* the script's change is its last command: there was none */
        break;

    default:
        call->ran |= result->ran;
    }

    if (!call->ran) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNAVAILABLE);
        return;
    }

    if (call->tries++ == NGX_RATELIMIT_SYNC_RETRIES
        || (result->status == NGX_RATELIMIT_REDIS_TIMEOUT
            && call->tries > 1))
    {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    ngx_ratelimit_sync_call_wait(call, NGX_RATELIMIT_SYNC_RETRIES_SOON,
                                 NGX_RATELIMIT_SYNC_RETRY_MS);
}


/* Others have written since: the history tells whether this one was before. */
static void
ngx_ratelimit_sync_put_passed(ngx_ratelimit_sync_call_t *call)
{
    u_char     version[NGX_INT64_LEN];
    ngx_str_t  args[2];

    ngx_str_set(&args[0], "version");
    args[1].data = version;
    args[1].len = ngx_sprintf(version, "%uL", call->record.version) - version;

    call->asked = ngx_ratelimit_redis_control_rules(call->sync->control,
                                        &call->limiter->zone.name, args, 2,
                                        ngx_ratelimit_sync_put_passed_answer,
                                        call);
    if (call->asked == NULL) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
    }
}


static void
ngx_ratelimit_sync_put_passed_answer(void *data,
    const ngx_ratelimit_redis_control_result_t *result)
{
    ngx_ratelimit_sync_call_t *call = data;

    ngx_str_t               text;
    ngx_ratelimit_record_t  record;

    call->asked = NULL;

    if (result->status != NGX_RATELIMIT_REDIS_OK || result->n == 0) {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_UNKNOWN);
        return;
    }

    text = result->texts[0];

    if (ngx_ratelimit_record_head(&text, call->pool, &record) != NULL
        || record.version != call->record.version
        || record.id != call->record.id)
    {
        ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_CONFLICT);
        return;
    }

    call->result.version = call->record.version;
    call->result.id = call->record.id;
    call->result.saved = 1;
    ngx_ratelimit_sync_call_end(call, NGX_RATELIMIT_SYNC_OK);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_put_send(ngx_ratelimit_sync_t *sync, uint64_t expected,
    uint64_t expected_id, const ngx_ratelimit_store_entry_t *entry,
    ngx_ratelimit_redis_control_handler_pt handler, void *data)
{
    u_char                       text[4][NGX_INT64_LEN];
    ngx_str_t                    args[8];
    ngx_pool_t                  *pool;
    ngx_ratelimit_redis_call_t  *call;

    pool = ngx_create_pool(NGX_MIN_POOL_SIZE, sync->log);
    if (pool == NULL) {
        return NULL;
    }

    ngx_str_set(&args[0], "put");

    args[1].data = text[0];
    args[1].len = ngx_sprintf(text[0], "%uL", expected) - text[0];
    args[2].data = text[1];
    args[2].len = ngx_sprintf(text[1], expected ? "%016xL" : "0", expected_id)
                  - text[1];
    args[3].data = text[2];
    args[3].len = ngx_sprintf(text[2], "%uL", entry->version) - text[2];
    args[4].data = text[3];
    args[4].len = ngx_sprintf(text[3], "%016xL", entry->id) - text[3];
    args[5] = entry->text;
    args[7] = args[3];

    call = NULL;

    if (ngx_ratelimit_sync_channel(sync->limiter, pool, &args[6]) == NGX_OK) {
        call = ngx_ratelimit_redis_control_rules(sync->control,
                                                 &sync->limiter->zone.name,
                                                 args, 8, handler, data);
    }

    ngx_destroy_pool(pool);

    return call;
}


ngx_int_t
ngx_ratelimit_sync_compare(ngx_ratelimit_sync_compile_t *compile)
{
    uint64_t                     generation;
    ngx_int_t                    rc;
    ngx_ratelimit_store_entry_t  own;

    rc = ngx_ratelimit_store_read(compile->limiter->store, 0, &own,
                                  &generation, compile->log);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!ngx_ratelimit_sync_related(compile, &own)) {
        compile->dropped = own.version;

    } else if (own.version > compile->entry.version) {
        compile->back = own;
        return NGX_OK;
    }

    ngx_free(own.text.data);

    return NGX_DECLINED;
}


/*
 * Whether Redis' record is of the same fleet: what this gateway's own was made
 * of, or of the same lineage. A record of a gateway before this one has none.
 * That is no reason not to follow what Redis has, but none to undo it either.
 */
static ngx_uint_t
ngx_ratelimit_sync_related(ngx_ratelimit_sync_compile_t *compile,
    const ngx_ratelimit_store_entry_t *own)
{
    uint64_t  id, here, there;

    if (compile->entry.version == 0
        || (ngx_ratelimit_store_id(compile->limiter->store,
                                   compile->entry.version, &id)
            == NGX_OK
            && id == compile->entry.id))
    {
        return 1;
    }

    here = ngx_ratelimit_sync_lineage(compile, &own->text);
    there = ngx_ratelimit_sync_lineage(compile, &compile->entry.text);

    if (here && there) {
        return here == there;
    }

    return compile->entry.version >= own->version;
}


static uint64_t
ngx_ratelimit_sync_lineage(ngx_ratelimit_sync_compile_t *compile,
    const ngx_str_t *text)
{
    const char              *wrong;
    ngx_ratelimit_record_t   record;

    wrong = ngx_ratelimit_record_head(text, compile->pool, &record);

    return (wrong && wrong != ngx_ratelimit_record_too_large) ? 0
                                                              : record.lineage;
}


/* "<prefix>:rules:<zone>" */
ngx_int_t
ngx_ratelimit_sync_channel(const ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool, ngx_str_t *channel)
{
    const ngx_str_t  *prefix, *zone;

    prefix = &limiter->redis->prefix;
    zone = &limiter->zone.name;

    channel->data = ngx_pnalloc(pool, prefix->len + sizeof(":rules:")
                                      + zone->len);
    if (channel->data == NULL) {
        return NGX_ERROR;
    }

    channel->len = ngx_sprintf(channel->data, "%V:rules:%V", prefix, zone)
                   - channel->data;

    return NGX_OK;
}


static ngx_int_t
ngx_ratelimit_sync_copy(ngx_pool_t *pool, ngx_str_t *to,
    const ngx_str_t *from)
{
    to->len = from->len;
    to->data = ngx_pnalloc(pool, ngx_max(from->len, 1));

    if (to->data == NULL) {
        return NGX_ERROR;
    }

    if (from->len) {
        ngx_memcpy(to->data, from->data, from->len);
    }

    return NGX_OK;
}

/*
 * Calls: what the endpoint asks for. The current version is changed or checked,
 * versions are listed or read, a counter's reset is announced. Redis answers if
 * the zone has one, else the gateway's store, in a job.
 */

#include "ngx_rl_follow_int.h"

#include <openssl/rand.h>

#define NGX_RL_FOLLOW_LONGEST_MS  20000  /* ends what nothing else does */
#define NGX_RL_FOLLOW_SAVED_MS    20     /* looks whether it is written */
#define NGX_RL_FOLLOW_SAVE_MS     2000   /* waits for the state file */

#define NGX_RL_FOLLOW_DECIDE_MS   5000   /* waits for a peer to decide */

#define NGX_RL_FOLLOW_ERROR  80          /* bytes of one that is logged */

typedef ngx_rl_follow_status_e (*ngx_rl_follow_work_pt)(
    ngx_rl_follow_call_t *call);
typedef void (*ngx_rl_follow_next_pt)(ngx_rl_follow_call_t *call);
typedef ngx_rl_follow_status_e (*ngx_rl_follow_answer_pt)(
    ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result);

/*
 * An operation. answer() returns a status, or AGAIN. Without Redis a thread
 * does the work.
 */
typedef struct {
    const char              *name;
    const char              *args;   /* of version and id */
    ngx_rl_follow_answer_pt    answer;
    ngx_rl_follow_work_pt      work;
    ngx_rl_follow_status_e     lost;   /* if the answer is lost */
} ngx_rl_follow_op_t;

/*
 * In a pool of its own, which a job may use while it runs. Freed when its
 * handler was called, or nobody waits, and nothing is under way.
 */
struct ngx_rl_follow_call_s {
    ngx_queue_t              queue;      /* of follow->calls */
    ngx_rl_follow_t           *follow;
    ngx_rl_limiter_t        *limiter;
    const ngx_rl_follow_op_t  *op;
    ngx_pool_t              *pool;
    ngx_rl_follow_handler_pt   handler;    /* NULL: forgotten */
    void                    *data;

    uint64_t                 version;    /* expected; to be read */
    uint64_t                 id;         /* of what is expected */
    ngx_rl_record_t          record;     /* to be put; that was read */
    ngx_rl_store_entry_t     entry;      /* the same, as text */
    ngx_str_t                sealed;     /* the text for Redis */
    unsigned                 proposed:1; /* a peer decides */

    ngx_rl_job_t            *job;
    ngx_rl_follow_work_pt      work;       /* in a thread */
    ngx_rl_follow_status_e     status;     /* that it has returned */
    ngx_rl_follow_next_pt      next;       /* if that is OK; NULL: the
                                            call ends */
    ngx_rl_redis_call_t     *asked;
    ngx_event_t              timer;      /* not cancelable: a request waits */
    ngx_msec_t               since;      /* waits for the state file */
    ngx_str_t                reason;
    ngx_rl_follow_result_t     result;     /* but status and reason */
};


/* Returns status, and keeps the reason for the result. */
static ngx_rl_follow_status_e
ngx_rl_follow_call_wrong(ngx_rl_follow_call_t *call, const char *reason,
    ngx_rl_follow_status_e status)
{
    call->reason = ngx_rl_str((u_char *) reason, ngx_strlen(reason));

    return status;
}


/* OK: Redis has this version, which stands in its answer from i on. */
static ngx_rl_follow_status_e
ngx_rl_follow_is_current(ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result, ngx_uint_t i, uint64_t version,
    uint64_t id)
{
    uint64_t  found, found_id;

    if (ngx_rl_follow_version(result, i, &found, &found_id) != NGX_OK) {
        return ngx_rl_follow_call_wrong(call, "protocol", call->op->lost);
    }

    call->result.version = found;

    if (found == version && found_id == id) {
        return NGX_RL_FOLLOW_OK;
    }

    /* it has lost its last writes, or is another fleet's */

    return (found < call->version)
           ? ngx_rl_follow_call_wrong(call, "behind",
                                      NGX_RL_FOLLOW_UNAVAILABLE)
           : NGX_RL_FOLLOW_CONFLICT;
}


static ngx_rl_follow_status_e
ngx_rl_follow_check_answer(ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result)
{
    return ngx_rl_follow_is_current(call, result, 0, call->version, call->id);
}


static ngx_rl_follow_status_e
ngx_rl_follow_check_work(ngx_rl_follow_call_t *call)
{
    uint64_t  id;

    ngx_rl_store_version(call->limiter->store, &call->result.version, &id);

    return (call->result.version == call->version && id == call->id)
           ? NGX_RL_FOLLOW_OK : NGX_RL_FOLLOW_CONFLICT;
}


/* One text of Redis has the heads, each a line; the store has whole records. */
static ngx_rl_follow_status_e
ngx_rl_follow_versions_work(ngx_rl_follow_call_t *call)
{
    ngx_uint_t               whole;
    ngx_array_t              heads;
    ngx_rl_follow_result_t  *result;

    whole = (call->limiter->redis == NULL);

    if ((whole && ngx_rl_follow_history(call->limiter, call->pool, &call->entry)
                  == NGX_ERROR)
        || ngx_rl_follow_heads(&call->entry.text, whole, call->pool, &heads)
           != NGX_OK)
    {
        return NGX_RL_FOLLOW_FAILED;
    }

    result = &call->result;
    result->n = heads.nelts;
    result->records = heads.elts;

    if (heads.nelts) {
        result->version = result->records[0].version;
        result->id = result->records[0].id;
    }

    return NGX_RL_FOLLOW_OK;
}


static void
ngx_rl_follow_call_work(void *data)
{
    ngx_rl_follow_call_t  *call = data;

    call->status = call->work ? call->work(call) : NGX_RL_FOLLOW_OK;
}


/*
 * The answer. A job that still runs has the pool, and writes to the call's
 * result.
 */
static void
ngx_rl_follow_call_end(ngx_rl_follow_call_t *call,
    ngx_rl_follow_status_e status)
{
    ngx_rl_follow_result_t  result;

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->asked) {
        ngx_rl_redis_forget(call->asked);
    }

    /* of a change; whether its request still waits or has gone */

    if (call->op->lost == NGX_RL_FOLLOW_UNKNOWN
        && (status == NGX_RL_FOLLOW_OK || status == call->op->lost))
    {
        ngx_rl_follow_log_version(call->limiter, &call->record,
                                  (status == NGX_RL_FOLLOW_OK)
                                  ? "version %uL of its rules was made"
                                  : "version %uL of its rules may have been "
                                    "made");
    }

    if (call->handler) {
        ngx_memzero(&result, sizeof(ngx_rl_follow_result_t));

        if (call->job == NULL) {
            result = call->result;
        }

        result.status = status;
        result.reason = call->reason;

        call->handler(call->data, &result);
    }

    ngx_queue_remove(&call->queue);

    if (call->job) {
        ngx_rl_job_cancel(call->job);

    } else {
        ngx_destroy_pool(call->pool);
    }
}


static void
ngx_rl_follow_call_done(void *data)
{
    ngx_rl_follow_call_t  *call = data;

    call->job = NULL;

    if (call->next && call->status == NGX_RL_FOLLOW_OK) {
        call->next(call);

    } else {
        ngx_rl_follow_call_end(call, call->status);
    }
}


/* call->job is NULL then if memory is out. */
static void
ngx_rl_follow_call_job(ngx_rl_follow_call_t *call, ngx_rl_follow_work_pt work,
    ngx_rl_follow_next_pt next)
{
    call->work = work;
    call->next = next;
    call->job = ngx_rl_job_start(call->pool, NGX_RL_JOB_COMPUTES,
                                 ngx_rl_follow_call_work,
                                 ngx_rl_follow_call_done, call);
}


/* Reads the record of this gateway, or that Redis has sent. */
static ngx_rl_follow_status_e
ngx_rl_follow_read_work(ngx_rl_follow_call_t *call)
{
    ngx_uint_t               i;
    const char              *wrong;
    ngx_array_t              records;
    ngx_rl_record_t         *record;
    ngx_rl_follow_result_t  *result;

    result = &call->result;
    ngx_rl_store_version(call->limiter->store, &result->version, &result->id);

    if (call->entry.text.data == NULL) {

        if (ngx_rl_follow_history(call->limiter, call->pool, &call->entry)
            == NGX_ERROR
            || ngx_rl_follow_heads(&call->entry.text, 1, call->pool, &records)
               != NGX_OK)
        {
            return NGX_RL_FOLLOW_FAILED;
        }

        record = records.elts;

        for (i = 0; i < records.nelts && record->version != call->version; i++)
        {
            record++;
        }

        if (i == records.nelts) {
            return NGX_RL_FOLLOW_NOT_FOUND;
        }

        call->entry.text = record->text;
    }

    wrong = NULL;

    if (call->limiter->redis) {
        wrong = ngx_rl_follow_unseal(call->limiter, call->pool,
                                     &call->entry.text);
        if (wrong == ngx_rl_follow_unsealed) {
            return ngx_rl_follow_call_wrong(call, "unsealed", call->op->lost);
        }
    }

    if (wrong == NULL) {
        wrong = ngx_rl_record_read(&call->entry.text, call->pool,
                                   &call->record);
    }

    result->records = &call->record;

    if (wrong == ngx_rl_record_no_memory) {
        return NGX_RL_FOLLOW_FAILED;
    }

    if (wrong == ngx_rl_record_too_large) {
        ngx_str_null(&call->record.document);
        result->n = 1;
        return NGX_RL_FOLLOW_TOO_LARGE;
    }

    if (wrong || call->record.version != call->version) {
        return ngx_rl_follow_call_wrong(call, "protocol", call->op->lost);
    }

    result->n = 1;

    return NGX_RL_FOLLOW_OK;
}


/* A thread reads the text. */
static ngx_rl_follow_status_e
ngx_rl_follow_text_answer(ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result)
{
    if (result->n == 0 || result->texts[0].len == 0) {
        return call->version
               ? NGX_RL_FOLLOW_NOT_FOUND
               : ngx_rl_follow_call_wrong(call, "protocol", call->op->lost);
    }

    call->entry.text.len = result->texts[0].len;
    call->entry.text.data = ngx_pstrdup(call->pool, &result->texts[0]);

    if (call->entry.text.data) {
        ngx_rl_follow_call_job(call, call->op->work, NULL);
    }

    return call->job ? NGX_RL_FOLLOW_AGAIN : NGX_RL_FOLLOW_FAILED;
}


/* The answer has, from i on, the reason why the change was not announced. */
static void
ngx_rl_follow_announced(ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result, ngx_uint_t i)
{
    ngx_str_t  text;

    if (i >= result->n) {
        return;
    }

    text = result->texts[i];
    text.len = ngx_min(text.len, NGX_RL_FOLLOW_ERROR);

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "ratelimit zone \"%V\": a change was not announced, other "
                  "gateways poll for it: \"%V\"", &call->limiter->zone.name,
                  &text);
}


static ngx_rl_follow_status_e
ngx_rl_follow_reset_answer(ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result)
{
    uint64_t  resets;

    if (ngx_rl_follow_number(result, 0, &resets) != NGX_OK) {
        return ngx_rl_follow_call_wrong(call, "protocol", call->op->lost);
    }

    /* at once: the leader will find nothing new */

    ngx_rl_follow_resets(call->follow, resets);
    ngx_rl_follow_announced(call, result, 1);

    return NGX_RL_FOLLOW_OK;
}


/*
 * Redis has taken it: this gateway has it at once, so that a client finds what
 * it wrote. The leader may have been faster, and does what fails here.
 */
static ngx_rl_follow_status_e
ngx_rl_follow_put_keep(ngx_rl_follow_call_t *call)
{
    uint64_t         version, id;
    ngx_rl_store_t  *store;

    store = call->limiter->store;

    do {
        ngx_rl_store_version(store, &version, &id);

    } while (version < call->entry.version
             && ngx_rl_store_publish(store, &call->entry, version, id)
                == NGX_BUSY);

    return NGX_RL_FOLLOW_OK;
}


static void
ngx_rl_follow_put_kept(ngx_rl_follow_call_t *call)
{
    ngx_rl_follow_wake(call->follow);

    call->result.version = call->record.version;
    call->result.id = call->record.id;
    call->result.saved = 1;

    ngx_rl_follow_call_end(call, NGX_RL_FOLLOW_OK);
}


/* {"1" or "0", version, id}, and maybe an error */
static ngx_rl_follow_status_e
ngx_rl_follow_put_answer(ngx_rl_follow_call_t *call,
    const ngx_rl_redis_result_t *result)
{
    ngx_rl_follow_status_e  status;

    status = ngx_rl_follow_is_current(call, result, 1, call->record.version,
                                      call->record.id);
    if (status != NGX_RL_FOLLOW_OK) {
        return status;
    }

    ngx_rl_follow_announced(call, result, 3);

    ngx_rl_follow_call_job(call, ngx_rl_follow_put_keep,
                           ngx_rl_follow_put_kept);
    if (call->job == NULL) {
        ngx_rl_follow_put_kept(call);
    }

    return NGX_RL_FOLLOW_AGAIN;
}


/*
 * Makes the record; without Redis it becomes the current one here, or is left
 * for the worker that speaks with the peer that decides.
 */
static ngx_rl_follow_status_e
ngx_rl_follow_put_work(ngx_rl_follow_call_t *call)
{
    uint64_t           version, id;
    ngx_int_t          rc;
    ngx_rl_store_t    *store;
    ngx_rl_limiter_t  *limiter;

    limiter = call->limiter;
    store = limiter->store;

    /* or given up, and what the new master has written is not read yet */

    if (ngx_rl_follow_upgraded()
        || (limiter->redis == NULL && limiter->state.len && store->upgraded))
    {
        return NGX_RL_FOLLOW_UPGRADED;
    }

    rc = ngx_rl_record_write(&call->record, call->pool);

    if (rc == NGX_OK) {
        call->entry.version = call->record.version;
        call->entry.id = call->record.id;
        call->entry.text = call->record.text;

        if (call->proposed) {
            ngx_rl_store_version(store, &version, &id);
            rc = NGX_BUSY;

            if (version == call->version && id == call->id) {
                limiter->proposals->base = id;
                limiter->proposals->until_ms = ngx_current_msec
                                               + NGX_RL_FOLLOW_DECIDE_MS;
                rc = ngx_rl_store_publish(limiter->proposals, &call->entry,
                                          NGX_RL_STORE_ANY, 0);
            }

        } else if (limiter->redis == NULL) {
            rc = ngx_rl_store_publish(store, &call->entry, call->version,
                                      call->id);
            call->entry.generation = ngx_rl_store_generation(store);

        } else {
            call->sealed = call->entry.text;
            rc = ngx_rl_follow_seal(limiter, call->pool, &call->sealed);
        }
    }

    switch (rc) {

    case NGX_OK:
        return NGX_RL_FOLLOW_OK;

    case NGX_BUSY:
        ngx_rl_store_version(store, &call->result.version, &id);
        return NGX_RL_FOLLOW_CONFLICT;

    case NGX_DECLINED:
        return NGX_RL_FOLLOW_TOO_LARGE;

    default: /* NGX_ERROR */
        return NGX_RL_FOLLOW_FAILED;
    }
}


/* in the order of ngx_rl_follow_op_e */
static const ngx_rl_follow_op_t  ngx_rl_follow_ops[] = {

    { "get", "vi", ngx_rl_follow_check_answer,
      ngx_rl_follow_check_work, NGX_RL_FOLLOW_UNAVAILABLE },
    { "list", "", ngx_rl_follow_text_answer,
      ngx_rl_follow_versions_work, NGX_RL_FOLLOW_UNAVAILABLE },
    { "version", "v", ngx_rl_follow_text_answer,
      ngx_rl_follow_read_work, NGX_RL_FOLLOW_UNAVAILABLE },

    /* without Redis no rejection is remembered but in the counter itself */

    { "reset", "", ngx_rl_follow_reset_answer, NULL,
      NGX_RL_FOLLOW_UNAVAILABLE },
    { "put", NULL, ngx_rl_follow_put_answer, NULL, NGX_RL_FOLLOW_UNKNOWN }
};


static void
ngx_rl_follow_call_expired(ngx_event_t *ev)
{
    ngx_rl_follow_call_t  *call;

    call = ev->data;

    ngx_rl_follow_call_end(call, ngx_rl_follow_call_wrong(call, "timeout",
                                                          call->op->lost));
}


static ngx_int_t
ngx_rl_follow_put_copy(ngx_rl_follow_call_t *call,
    const ngx_rl_record_t *record)
{
    uint64_t  random[2];

    if (ngx_rl_record_copy(&call->record, record, call->pool) != NGX_OK
        || RAND_bytes((u_char *) random, sizeof(random)) != 1)
    {
        return NGX_ERROR;
    }

    /* 0 is the id of no record, and no lineage */

    call->record.id = random[0] | 1;
    call->record.version = call->version + 1;

    if (call->record.lineage == 0) {
        call->record.lineage = random[1] | 1;
    }

    if (call->record.time_ms == 0) {
        call->record.time_ms = ngx_rl_wall_ms();
    }

    return NGX_OK;
}


/*
 * Every answer of Redis. One that is lost is not asked for again: the client
 * reads the document, which says more than any retry could.
 */
static void
ngx_rl_follow_call_answer(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_follow_call_t  *call = data;

    ngx_rl_follow_status_e  status;

    call->asked = NULL;

    if (result->status != NGX_RL_REDIS_OK) {
        call->reason = *ngx_rl_redis_status_name(result->status);
    }

    switch (result->status) {

    case NGX_RL_REDIS_OK:
        status = call->op->answer(call, result);

        if (status == NGX_RL_FOLLOW_AGAIN) {
            return;
        }

        break;

    case NGX_RL_REDIS_READONLY:
    case NGX_RL_REDIS_OOM:
    case NGX_RL_REDIS_MISCONF:
    case NGX_RL_REDIS_NOREPLICAS:
    case NGX_RL_REDIS_NOPERM:
    case NGX_RL_REDIS_WRONGTYPE:

        /* the script's change is its last command: there was none */

        status = NGX_RL_FOLLOW_UNAVAILABLE;
        break;

    default:
        status = result->ran ? call->op->lost : NGX_RL_FOLLOW_UNAVAILABLE;
    }

    ngx_rl_follow_call_end(call, status);
}


/* A new master has read the change for certain only if it was saved before. */
static void
ngx_rl_follow_put_saved(ngx_event_t *ev)
{
    ngx_rl_follow_call_t  *call;

    call = ev->data;

    call->result.version = call->record.version;
    call->result.id = call->record.id;
    call->result.saved = (call->limiter->store->written
                          >= call->entry.generation);

    if (ngx_rl_follow_upgraded()) {
        ngx_rl_follow_call_end(call, ngx_rl_follow_call_wrong(call, "upgrade",
                                                              call->op->lost));

    } else if (call->result.saved
               || ngx_current_msec - call->since >= NGX_RL_FOLLOW_SAVE_MS)
    {
        ngx_rl_follow_call_end(call, NGX_RL_FOLLOW_OK);

    } else {
        ngx_add_timer(ev, NGX_RL_FOLLOW_SAVED_MS);
    }
}


static void ngx_rl_follow_put_made(ngx_rl_follow_call_t *call);


/*
 * A peer has made the record current if it comes back. Another one of that
 * version was faster; a later one may be made of this one.
 */
static void
ngx_rl_follow_put_decided(ngx_event_t *ev)
{
    uint64_t               version, id;
    ngx_rl_store_t        *store;
    ngx_rl_follow_call_t  *call;

    call = ev->data;
    store = call->limiter->store;
    ngx_rl_store_version(store, &version, &id);

    if (ngx_rl_store_had(store, call->record.version, call->record.id)) {
        call->proposed = 0;
        call->entry.generation = ngx_rl_store_generation(store);
        ngx_rl_follow_put_made(call);

    } else if (version > call->record.version) {
        ngx_rl_follow_call_end(call, ngx_rl_follow_call_wrong(call, "later",
                                                              call->op->lost));

    } else if (version != call->version || id != call->id) {
        call->result.version = version;
        ngx_rl_follow_call_end(call, NGX_RL_FOLLOW_CONFLICT);

    } else if (ngx_current_msec - call->since >= NGX_RL_FOLLOW_DECIDE_MS) {
        ngx_rl_follow_call_expired(ev);

    } else {
        ngx_add_timer(ev, NGX_RL_FOLLOW_SAVED_MS);
    }
}


static void
ngx_rl_follow_put_made(ngx_rl_follow_call_t *call)
{
    if (call->limiter->redis) {
        call->asked = ngx_rl_follow_ask_put(call->follow,
                                            ngx_rl_follow_call_answer, call,
                                            call->version, call->id,
                                            &call->entry, &call->sealed);
        if (call->asked == NULL) {
            ngx_rl_follow_call_end(call, NGX_RL_FOLLOW_FAILED);
        }

        return;
    }

    if (call->proposed) {
        call->since = ngx_current_msec;
        call->timer.handler = ngx_rl_follow_put_decided;
        ngx_add_timer(&call->timer, NGX_RL_FOLLOW_SAVED_MS);
        return;
    }

    if (call->limiter->state.len == 0) {
        ngx_rl_follow_put_kept(call);
        return;
    }

    ngx_rl_follow_wake(call->follow);

    call->since = ngx_current_msec;
    call->timer.handler = ngx_rl_follow_put_saved;
    ngx_add_timer(&call->timer, NGX_RL_FOLLOW_SAVED_MS);
}


/*
 * Without Redis the state file has the history: a version that is replaced
 * before it is written there would be in none. If the file cannot be written,
 * nothing waits for it.
 */
static void
ngx_rl_follow_put_handler(ngx_event_t *ev)
{
    ngx_rl_store_t        *store;
    ngx_rl_follow_call_t  *call;

    call = ev->data;
    store = call->limiter->store;

    if (call->limiter->redis == NULL && call->limiter->state.len
        && store->written < ngx_rl_store_generation(store)
        && store->error == 0 && !store->upgraded
        && ngx_current_msec - call->since < NGX_RL_FOLLOW_SAVE_MS)
    {
        ngx_rl_follow_wake(call->follow);
        ngx_add_timer(ev, NGX_RL_FOLLOW_SAVED_MS);
        return;
    }

    ev->handler = ngx_rl_follow_call_expired;
    ngx_add_timer(ev, NGX_RL_FOLLOW_LONGEST_MS);

    call->proposed = !ngx_rl_follow_decides(call->limiter);

    ngx_rl_follow_call_job(call, ngx_rl_follow_put_work,
                           ngx_rl_follow_put_made);

    if (call->job == NULL) {
        ngx_rl_follow_call_end(call, NGX_RL_FOLLOW_FAILED);
    }
}


ngx_rl_follow_call_t *
ngx_rl_follow_call(ngx_rl_limiter_t *limiter, ngx_rl_follow_op_e op,
    uint64_t version, uint64_t id, const ngx_rl_record_t *record,
    ngx_rl_follow_handler_pt handler, void *data)
{
    uint64_t               numbers[] = { version, id };
    ngx_msec_t             ms;
    ngx_pool_t            *pool;
    ngx_rl_follow_t       *follow;
    ngx_rl_follow_call_t  *call;

    follow = limiter->follow;
    if (follow == NULL) {
        return NULL;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, follow->log);
    if (pool == NULL) {
        return NULL;
    }

    call = ngx_pcalloc(pool, sizeof(ngx_rl_follow_call_t));
    if (call == NULL) {
        goto failed;
    }

    call->follow = follow;
    call->limiter = limiter;
    call->op = &ngx_rl_follow_ops[op];
    call->pool = pool;
    call->handler = handler;
    call->data = data;
    call->version = version;
    call->id = id;

    call->timer.handler = ngx_rl_follow_call_expired;
    call->timer.data = call;
    call->timer.log = follow->log;
    ms = NGX_RL_FOLLOW_LONGEST_MS;

    if (op == NGX_RL_FOLLOW_PUT) {
        if (ngx_rl_follow_put_copy(call, record) != NGX_OK) {
            goto failed;
        }

        call->since = ngx_current_msec;
        call->timer.handler = ngx_rl_follow_put_handler;
        ms = 0;

    } else if (limiter->redis == NULL) {
        ngx_rl_follow_call_job(call, call->op->work, NULL);

    } else {
        call->asked = ngx_rl_follow_ask(follow, ngx_rl_follow_call_answer, call,
                                        call->op->name, call->op->args, numbers,
                                        NULL);
    }

    if (ms && call->job == NULL && call->asked == NULL) {
        goto failed;
    }

    ngx_queue_insert_tail(&follow->calls, &call->queue);
    ngx_add_timer(&call->timer, ms);

    return call;

failed:

    ngx_destroy_pool(pool);

    return NULL;
}


void
ngx_rl_follow_forget(ngx_rl_follow_call_t *call)
{
    call->handler = NULL;
}


void
ngx_rl_follow_calls_end(ngx_rl_follow_t *follow)
{
    ngx_queue_t           *q, *next;
    ngx_rl_follow_call_t  *call;

    for (q = ngx_queue_head(&follow->calls);
         q != ngx_queue_sentinel(&follow->calls);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_rl_follow_call_t, queue);

        call->handler = NULL;
        ngx_rl_follow_call_end(call, NGX_RL_FOLLOW_FAILED);
    }
}

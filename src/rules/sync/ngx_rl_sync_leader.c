/*
 * One worker of a gateway leads: it asks Redis for the document, every few
 * seconds and whenever Redis announces a new one, and puts it into the store.
 * If Redis has lost it, the leader puts the gateway's own back. It keeps the
 * state file up to date; during an upgrade of the binary the file is the new
 * master's.
 */

#include "ngx_rl_sync_int.h"

#include "ngx_rl_state.h"

/*
 * Redis' version may be above this gateway's by so many changes. Else one that
 * another user of Redis makes up leaves no number for the next change.
 */
#define NGX_RL_SYNC_LEAP  ((uint64_t) 1 << 32)

#define NGX_RL_SYNC_POLL_MS     5000
#define NGX_RL_SYNC_AGAIN_MS    1000   /* after no answer */

/*
 * An empty Redis gets what a state file has after this time, longer than two
 * polls: if a fleet lives that has lost its Redis' data, its rules are there by
 * then.
 */
#define NGX_RL_SYNC_EMPTY_MS    12000

/* of the script's answer to "get", if it has a record: the last text */
#define NGX_RL_SYNC_GET_RECORD  3

static void ngx_rl_sync_poll(void *data);
static void ngx_rl_sync_answer(void *data, const ngx_rl_redis_result_t *result);


/*
 * The question, or the job, has ended. Polls after ms, a tenth earlier at most,
 * so that gateways do not ask at once.
 */
static void
ngx_rl_sync_idle(ngx_rl_sync_t *sync, ngx_msec_t ms)
{
    sync->leader = NGX_RL_SYNC_IDLE;

    if (sync->again) {
        ngx_rl_sync_poll(sync);

    } else {
        ngx_add_timer(&sync->poll, ms - ms * (ngx_random() % 10) / 100);
    }
}


/* Repeats are limited: what lasts is logged once a minute. */
static void
ngx_rl_sync_no_answer(ngx_rl_sync_t *sync, ngx_rl_redis_status_e status)
{
    uint64_t  version, id;

    sync->limiter->store->reachable = 0;
    ngx_rl_store_version(sync->limiter->store, &version, &id);

    if (ngx_rl_sync_failed(&sync->polling)) {
        ngx_log_error(NGX_LOG_ERR, sync->log, 0,
                      "ratelimit zone \"%V\": its rules are not asked for: "
                      "\"%V\"%s", &sync->limiter->zone.name,
                      ngx_rl_redis_status_name(status),
                      version ? "" : ", and it has no document");
    }

    sync->again = 0;
    ngx_rl_sync_idle(sync, NGX_RL_SYNC_AGAIN_MS);
}


/*
 * Redis has less than this gateway: whether it is time to put that right. A
 * Redis that does not take it is given it less and less often. A record
 * that was never seen in this Redis comes from a state file: that waits.
 */
static ngx_uint_t
ngx_rl_sync_may_return(ngx_rl_sync_t *sync, uint64_t found)
{
    if (!ngx_rl_sync_may_retry(&sync->returning)) {
        return 0;
    }

    if (found || sync->limiter->store->joined) {
        return 1;
    }

    if (sync->empty == 0) {
        sync->empty = ngx_max(ngx_current_msec, 1);
    }

    return ngx_current_msec - sync->empty >= NGX_RL_SYNC_EMPTY_MS;
}


static uint64_t
ngx_rl_sync_lineage(const ngx_str_t *text, ngx_pool_t *pool)
{
    const char       *wrong;
    ngx_rl_record_t   record;

    wrong = ngx_rl_record_head(text, pool, &record);

    return (wrong && wrong != ngx_rl_record_too_large) ? 0 : record.lineage;
}


/*
 * Whether Redis' record is of the same fleet: what this gateway's own was made
 * of, or of the same lineage. A record of an older gateway has no lineage:
 * then Redis is followed unless its version is lower.
 */
static ngx_uint_t
ngx_rl_sync_related(const ngx_rl_sync_task_t *task)
{
    uint64_t  own, redis;

    if (task->own.version == 0 || task->entry.version == 0) {
        return 1;
    }

    own = ngx_rl_sync_lineage(&task->own.text, task->pool);
    redis = ngx_rl_sync_lineage(&task->entry.text, task->pool);

    if (own && redis) {
        return own == redis;
    }

    return task->entry.version >= task->own.version
           || ngx_rl_store_had(task->limiter->store, task->entry.version,
                               task->entry.id);
}


/*
 * In a thread: compares Redis' record with this gateway's. rc becomes NGX_OK:
 * Redis' record is published; NGX_BUSY: meanwhile another one was published, or
 * both are the same; NGX_DECLINED: it is refused; NGX_DONE: Redis has lost its
 * last writes, or everything, or the seal of this gateway's, or has a version
 * that no change made; or NGX_ERROR: memory is out.
 */
static ngx_int_t
ngx_rl_sync_compared(ngx_rl_sync_task_t *task)
{
    ngx_int_t  rc;

    if (ngx_rl_store_read(task->limiter->store, task->pool, &task->own)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    if (task->entry.version > task->own.version + NGX_RL_SYNC_LEAP) {
        task->why = "its version is that of no change";
        return task->own.version ? NGX_DONE : NGX_DECLINED;
    }

    if (task->entry.version) {
        task->unsealed = ngx_rl_sync_unseal(task->limiter, task->pool,
                                            &task->entry.text);
        if (task->unsealed == ngx_rl_record_no_memory) {
            return NGX_ERROR;
        }
    }

    if (task->entry.version == task->own.version
        && task->entry.id == task->own.id)
    {
        return task->unsealed ? NGX_DONE : NGX_BUSY;
    }

    if (!ngx_rl_sync_related(task)) {
        task->dropped = 1;

    } else if (task->own.version > task->entry.version) {

        /* or a change came between the question and now */

        return (task->had > task->entry.version) ? NGX_DONE : NGX_BUSY;
    }

    if (task->unsealed) {
        task->why = task->unsealed;
        return NGX_DECLINED;
    }

    rc = ngx_rl_sync_compile(task);

    if (rc != NGX_OK) {
        return rc;
    }

    task->why = "the store has no room for it";

    return ngx_rl_store_publish(task->limiter->store, &task->entry,
                                task->own.version, task->own.id);
}


static void
ngx_rl_sync_compare_work(void *data)
{
    ngx_rl_sync_task_t *task = data;

    task->rc = ngx_rl_sync_compared(task);

    if (task->rc == NGX_DONE
        && ngx_rl_sync_seal(task->limiter, task->pool, &task->own.text)
           != NGX_OK)
    {
        task->rc = NGX_ERROR;
    }
}


/* The highest version that a gateway of the fleet has becomes the fleet's. */
static void
ngx_rl_sync_return(ngx_rl_sync_task_t *task)
{
    ngx_uint_t      first;
    ngx_rl_sync_t  *sync;

    sync = task->sync;

    sync->asked = ngx_rl_sync_ask_put(sync, ngx_rl_sync_answer,
                                      sync, task->entry.version,
                                      task->entry.id, &task->own,
                                      &task->own.text);
    if (sync->asked == NULL) {
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_AGAIN_MS);
        return;
    }

    sync->leader = NGX_RL_SYNC_RETURNS;

    if (task->entry.version == task->own.version) {

        if (ngx_rl_sync_failed(&sync->sealing)) {
            ngx_log_error(NGX_LOG_WARN, sync->log, 0,
                          "ratelimit zone \"%V\": version %uL of its rules is "
                          "not sealed by this \"secret_file\", this gateway "
                          "seals it", &sync->limiter->zone.name,
                          task->own.version);
        }

        return;
    }

    first = (sync->returning.wait == 0);

    if (ngx_rl_sync_failed(&sync->returning) || first) {
        ngx_log_error(NGX_LOG_NOTICE, sync->log, 0,
                      "ratelimit zone \"%V\": Redis has version %uL of its "
                      "rules, this gateway puts back version %uL",
                      &sync->limiter->zone.name, task->entry.version,
                      task->own.version);
    }
}


static void
ngx_rl_sync_accepted(ngx_rl_sync_task_t *task)
{
    u_char          buf[sizeof("follows version  of its rules")
                        + NGX_INT64_LEN];
    ngx_str_t       what;
    ngx_rl_sync_t  *sync;

    sync = task->sync;
    sync->refused_version = 0;
    sync->limiter->store->refused = 0;
    sync->saving.wait = 0;

    /* an operator has joined two fleets, or brought a file of another one */

    if (task->dropped) {
        ngx_log_error(NGX_LOG_WARN, sync->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules is "
                      "dropped: it is of another lineage than version %uL, "
                      "which Redis has", &sync->limiter->zone.name,
                      task->own.version, task->entry.version);
    }

    what.data = buf;
    what.len = ngx_sprintf(buf, "follows version %uL of its rules",
                           task->entry.version)
               - buf;

    ngx_rl_sync_log(sync->limiter, &what, &task->record);
    ngx_rl_sync_wake(sync);
}


static void
ngx_rl_sync_compare_done(void *data)
{
    ngx_rl_sync_task_t *task = data;

    ngx_rl_sync_t  *sync;

    sync = task->sync;
    sync->compares = NULL;
    sync->sealed = (task->rc != NGX_ERROR && task->unsealed == NULL);

    if (sync->sealed) {
        sync->sealing.wait = 0;
    }

    switch (task->rc) {

    case NGX_DONE:
        ngx_rl_sync_return(task);
        break;

    case NGX_ERROR:
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_AGAIN_MS);
        break;

    case NGX_DECLINED:
        sync->refused_version = task->entry.version;
        sync->refused_id = task->unsealed ? 0 : task->entry.id;
        ngx_rl_sync_refused(task);
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_POLL_MS);
        break;

    case NGX_BUSY:
        ngx_rl_sync_idle(sync, 0);
        break;

    default: /* NGX_OK */
        ngx_rl_sync_accepted(task);
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_POLL_MS);
    }

    ngx_destroy_pool(task->pool);
}


/*
 * A record of Redis goes into the store when it was seen to compile: a worker
 * that starts later, maybe without Redis, finds no other there.
 */
static void
ngx_rl_sync_compare(ngx_rl_sync_t *sync, uint64_t version, uint64_t id,
    const ngx_str_t *record)
{
    ngx_rl_sync_task_t  *task;

    task = ngx_rl_sync_task_new(sync->limiter, sync->log);

    if (task) {
        task->entry.version = version;
        task->entry.id = id;
        task->had = sync->had;

        if (record) {
            task->entry.text.len = record->len;
            task->entry.text.data = ngx_pstrdup(task->pool,
                                                (ngx_str_t *) record);
            if (task->entry.text.data == NULL) {
                ngx_destroy_pool(task->pool);
                task = NULL;
            }
        }
    }

    sync->compares = ngx_rl_sync_task_start(task, sync, NGX_RL_JOB_COMPUTES,
                                            ngx_rl_sync_compare_work,
                                            ngx_rl_sync_compare_done);
    if (sync->compares) {
        sync->leader = NGX_RL_SYNC_COMPARES;

    } else {
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_AGAIN_MS);
    }
}


/*
 * {version, id, resets}, and the record if it is another one; or that of a put,
 * which the next poll looks at.
 */
static void
ngx_rl_sync_answer(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_sync_t *sync = data;

    uint64_t                version, id, resets, own, own_id;
    ngx_rl_store_t  *store;

    sync->asked = NULL;

    if (result->status != NGX_RL_REDIS_OK) {
        ngx_rl_sync_no_answer(sync, result->status);
        return;
    }

    if (sync->leader == NGX_RL_SYNC_RETURNS) {
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_AGAIN_MS);
        return;
    }

    if (ngx_rl_sync_version(result, 0, &version, &id) != NGX_OK
        || ngx_rl_sync_number(result, 2, &resets) != NGX_OK)
    {
        ngx_rl_sync_no_answer(sync, NGX_RL_REDIS_PROTOCOL);
        return;
    }

    store = sync->limiter->store;
    store->asked_ms = ngx_rl_sync_now();
    store->reachable = 1;
    sync->polling.wait = 0;

    ngx_rl_sync_resets(sync, resets);
    ngx_rl_store_version(store, &own, &own_id);

    if (version >= own) {
        sync->returning.wait = 0;
    }

    if (version) {
        sync->empty = 0;
    }

    if (version && version == own && id == own_id && !sync->sealed
        && result->n > NGX_RL_SYNC_GET_RECORD)
    {
        ngx_rl_sync_compare(sync, version, id,
                            &result->texts[NGX_RL_SYNC_GET_RECORD]);

    } else if (version == own && id == own_id) {

        /* one that the workers do not use is another matter */

        if (sync->refused_version) {
            sync->refused_version = 0;
            store->refused = 0;
        }

        if (version) {
            store->joined = 1;
        }

        ngx_rl_sync_idle(sync, NGX_RL_SYNC_POLL_MS);

    } else if (version && version == sync->refused_version
               && id == sync->refused_id)
    {
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_POLL_MS);

    } else if ((version < own && !ngx_rl_sync_may_return(sync, version))
               || (version && result->n <= NGX_RL_SYNC_GET_RECORD))
    {
        /* or Redis sent no record, because the store has changed since */

        ngx_rl_sync_idle(sync, NGX_RL_SYNC_AGAIN_MS);

    } else {
        ngx_rl_sync_compare(sync, version, id,
                             version
                             ? &result->texts[NGX_RL_SYNC_GET_RECORD]
                             : NULL);
    }
}


/*
 * It is time, there is a new document, or a message may have been lost. One
 * question at a time: the next one is asked behind it.
 */
static void
ngx_rl_sync_poll(void *data)
{
    ngx_rl_sync_t *sync = data;

    uint64_t  own[2], id;    /* version and id */

    if (sync->leader != NGX_RL_SYNC_IDLE) {
        sync->again = 1;
        return;
    }

    sync->again = 0;

    if (sync->poll.timer_set) {
        ngx_del_timer(&sync->poll);
    }

    ngx_rl_store_version(sync->limiter->store, &sync->had, &id);

    /* Redis need not send a record again that was refused */

    if (sync->refused_version) {
        own[0] = sync->refused_version;
        own[1] = sync->refused_id;

    } else {
        ngx_rl_store_version(sync->limiter->store, &own[0], &own[1]);
    }

    /* a seal may be missing: the secret is new */

    if (sync->limiter->redis->secret.len && !sync->sealed
        && ngx_rl_sync_may_retry(&sync->sealing))
    {
        own[1] = 0;
    }

    sync->asked = ngx_rl_sync_ask(sync, ngx_rl_sync_answer, sync,
                                  "get", "vi", own, NULL);
    if (sync->asked) {
        sync->leader = NGX_RL_SYNC_ASKS;

    } else {
        ngx_rl_sync_idle(sync, NGX_RL_SYNC_POLL_MS);
    }
}


/* The leader of the configuration before may have written another file. */
static void
ngx_rl_sync_lead(ngx_rl_sync_t *sync)
{
    sync->leader = NGX_RL_SYNC_IDLE;
    sync->refused_version = 0;
    sync->sealed = 0;

    ngx_log_error(NGX_LOG_INFO, sync->log, 0,
                  "ratelimit zone \"%V\": this worker follows the rules for "
                  "this gateway", &sync->limiter->zone.name);

    ngx_rl_store_set_file(sync->limiter->store, &sync->limiter->state);

    if (sync->limiter->redis == NULL) {
        return;
    }

    /* memory may be out: then the poll is what is left */

    sync->listener.handler = ngx_rl_sync_poll;
    sync->listener.data = sync;
    (void) ngx_rl_redis_listen(sync->limiter->redis, &sync->limiter->zone.name,
                               &sync->listener);
    ngx_rl_sync_poll(sync);
}


/*
 * While a thread writes the state file nobody else may: the worker stays the
 * leader until that is done, and then leaves.
 */
static void
ngx_rl_sync_leave(ngx_rl_sync_t *sync)
{
    sync->leader = NGX_RL_SYNC_LEAVES;
    sync->empty = 0;
    sync->again = 0;

    if (sync->poll.timer_set) {
        ngx_del_timer(&sync->poll);
    }

    if (sync->asked) {
        ngx_rl_redis_forget(sync->asked);
        sync->asked = NULL;
    }

    if (sync->compares) {
        ngx_rl_job_cancel(sync->compares);
        sync->compares = NULL;
    }

    if (sync->limiter->redis) {
        ngx_rl_redis_unlisten(sync->limiter->redis, &sync->listener);
    }

    /* the next leader looks when an upgrade that is under way may be over */

    if (sync->limiter->state.len && ngx_rl_sync_upgraded()) {
        sync->limiter->store->upgraded = 1;
    }

    if (sync->file == NULL) {
        sync->leader = NGX_RL_SYNC_FOLLOWS;
        ngx_rl_store_leave(sync->limiter->store);
    }
}


/* NGX_ERROR is logged. */
static void
ngx_rl_sync_load_work(void *data)
{
    ngx_rl_sync_task_t *task = data;

    task->rc = ngx_rl_sync_load(task->limiter, task->pool, 0);

    if (task->rc == NGX_OK) {
        task->limiter->store->upgraded = 0;
    }
}


/* NGX_DECLINED: why says which step failed. */
static void
ngx_rl_sync_save_work(void *data)
{
    ngx_rl_sync_task_t *task = data;

    ngx_rl_store_t  *store;

    store = task->limiter->store;
    task->err = NGX_ENOMEM;
    task->why = "reading it";

    if (ngx_rl_sync_history(task->limiter, task->pool, &task->entry)
        == NGX_OK)
    {
        task->why = ngx_rl_state_write(&task->limiter->state,
                                       &task->entry.text, &task->err);
    }

    if (task->why) {
        task->rc = NGX_DECLINED;
        store->error = task->err ? task->err : NGX_EINVAL;
        return;
    }

    store->written = task->entry.generation;
    store->error = 0;
}


static void
ngx_rl_sync_file_done(void *data)
{
    ngx_rl_sync_task_t *task = data;

    ngx_rl_sync_t  *sync;

    sync = task->sync;
    sync->file = NULL;

    if (task->rc == NGX_OK) {
        sync->saving.wait = 0;

    } else if (ngx_rl_sync_failed(&sync->saving) && task->why) {
        ngx_log_error(NGX_LOG_ERR, sync->log, task->err,
                      "ratelimit zone \"%V\": the state file \"%V\" could not "
                      "be written: %s failed", &sync->limiter->zone.name,
                      &sync->limiter->state, task->why);
    }

    ngx_destroy_pool(task->pool);

    /* there may be more to write, or the leader waits to leave */

    ngx_rl_sync_wake(sync);
}


/*
 * If the new master ends, and not this one, this gateway goes on with what the
 * file has by then; with Redis, with what Redis has.
 */
static void
ngx_rl_sync_file_look(ngx_rl_sync_t *sync)
{
    ngx_rl_job_pt    work;
    ngx_rl_store_t  *store;

    store = sync->limiter->store;

    if (sync->limiter->state.len == 0 || sync->file
        || !ngx_rl_sync_may_retry(&sync->saving))
    {
        return;
    }

    if (ngx_rl_sync_upgraded()) {
        store->upgraded = 1;
        return;
    }

    if (sync->limiter->redis) {
        store->upgraded = 0;
    }

    if (store->upgraded) {
        work = ngx_rl_sync_load_work;

    } else if (store->written != ngx_rl_store_generation(store)) {
        work = ngx_rl_sync_save_work;

    } else {
        return;
    }

    sync->file = ngx_rl_sync_task_start(
                     ngx_rl_sync_task_new(sync->limiter, sync->log),
                     sync, NGX_RL_JOB_WRITES, work,
                     ngx_rl_sync_file_done);

    if (sync->file == NULL) {
        (void) ngx_rl_sync_failed(&sync->saving);
    }
}


/* Leads if the leader has died; a worker that drains leaves. */
void
ngx_rl_sync_leader_look(ngx_rl_sync_t *sync)
{
    if (sync->leader == NGX_RL_SYNC_FOLLOWS) {

        if (ngx_exiting || !ngx_rl_store_lead(sync->limiter->store)) {
            return;
        }

        ngx_rl_sync_lead(sync);

    } else if (ngx_exiting) {
        ngx_rl_sync_leave(sync);
        return;
    }

    ngx_rl_sync_file_look(sync);
}


void
ngx_rl_sync_leader_end(ngx_rl_sync_t *sync)
{
    /* the threads have ended: no file is being written any more */

    if (sync->file) {
        ngx_rl_job_cancel(sync->file);
        sync->file = NULL;
    }

    if (sync->leader != NGX_RL_SYNC_FOLLOWS) {
        ngx_rl_sync_leave(sync);
    }
}


void
ngx_rl_sync_poll_handler(ngx_event_t *ev)
{
    ngx_rl_sync_poll(ev->data);
}

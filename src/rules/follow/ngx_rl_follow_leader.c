/*
 * One worker of a gateway leads: it asks Redis for the document, every few
 * seconds and whenever Redis announces a new one, and puts it into the store.
 * If Redis has lost it, the leader puts the gateway's own back. It keeps the
 * state file up to date; during an upgrade of the binary the file is the new
 * master's.
 */

#include "ngx_rl_follow_int.h"

#include "ngx_rl_state.h"

#define NGX_RL_FOLLOW_POLL_MS     5000
#define NGX_RL_FOLLOW_AGAIN_MS    1000   /* after no answer */

/*
 * An empty Redis gets what a state file has after this time, longer than two
 * polls: if a fleet lives that has lost its Redis' data, its rules are there by
 * then.
 */
#define NGX_RL_FOLLOW_EMPTY_MS    12000

/* of the script's answer to "get", if it has a record: the last text */
#define NGX_RL_FOLLOW_GET_RECORD  3

static void ngx_rl_follow_answer(void *data,
    const ngx_rl_redis_result_t *result);


/*
 * The question, or the job, has ended. Polls after ms, a tenth earlier at most,
 * so that gateways do not ask at once.
 */
static void
ngx_rl_follow_idle(ngx_rl_follow_t *follow, ngx_msec_t ms)
{
    follow->leader = NGX_RL_FOLLOW_IDLE;

    if (follow->again) {
        ngx_rl_follow_poll(&follow->poll);

    } else {
        ngx_add_timer(&follow->poll, ms - ms * (ngx_random() % 10) / 100);
    }
}


/* Repeats are limited: what lasts is logged once a minute. */
static void
ngx_rl_follow_no_answer(ngx_rl_follow_t *follow, ngx_rl_redis_status_e status)
{
    uint64_t  version, id;

    follow->limiter->store->reachable = 0;
    ngx_rl_store_version(follow->limiter->store, &version, &id);

    if (ngx_rl_follow_failed(&follow->polling)) {
        ngx_log_error(NGX_LOG_ERR, follow->log, 0,
                      "ratelimit zone \"%V\": its rules are not asked for: "
                      "\"%V\"%s", &follow->limiter->zone.name,
                      ngx_rl_redis_status_name(status),
                      version ? "" : ", and it has no document");
    }

    follow->again = 0;
    ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_AGAIN_MS);
}


/*
 * Redis has less than this gateway: whether it is time to put that right. A
 * Redis that does not take it is given it less and less often. A record
 * that was never seen in this Redis comes from a state file: that waits.
 */
static ngx_uint_t
ngx_rl_follow_may_return(ngx_rl_follow_t *follow, uint64_t found)
{
    if (!ngx_rl_follow_may_retry(&follow->returning)) {
        return 0;
    }

    if (found || follow->limiter->store->joined) {
        return 1;
    }

    if (follow->empty == 0) {
        follow->empty = ngx_max(ngx_current_msec, 1);
    }

    return ngx_current_msec - follow->empty >= NGX_RL_FOLLOW_EMPTY_MS;
}


uint64_t
ngx_rl_follow_lineage(const ngx_str_t *text, ngx_pool_t *pool)
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
ngx_rl_follow_related(const ngx_rl_follow_task_t *task)
{
    uint64_t  own, redis;

    if (task->own.version == 0 || task->entry.version == 0) {
        return 1;
    }

    own = ngx_rl_follow_lineage(&task->own.text, task->pool);
    redis = ngx_rl_follow_lineage(&task->entry.text, task->pool);

    if (own && redis) {
        return own == redis;
    }

    return task->entry.version >= task->own.version
           || ngx_rl_store_had(task->limiter->store, task->entry.version,
                               task->entry.id);
}


/*
 * In a thread: compares Redis' record with this gateway's. Returns OK: Redis'
 * record is published; AGAIN: meanwhile another one was published, or both are
 * the same; REFUSED; BEHIND: Redis has lost its last writes, or everything, or
 * the seal of this gateway's, or has a version that no change made; or FAILED:
 * memory is out.
 */
static ngx_rl_follow_status_e
ngx_rl_follow_compared(ngx_rl_follow_task_t *task)
{
    ngx_rl_follow_status_e  status;

    if (ngx_rl_store_read(task->limiter->store, task->pool, &task->own)
        == NGX_ERROR)
    {
        return NGX_RL_FOLLOW_FAILED;
    }

    if (task->entry.version > task->own.version + NGX_RL_FOLLOW_LEAP) {
        task->why = "its version is that of no change";
        return task->own.version ? NGX_RL_FOLLOW_BEHIND : NGX_RL_FOLLOW_REFUSED;
    }

    if (task->entry.version) {
        task->unsealed = ngx_rl_follow_unseal(task->limiter, task->pool,
                                              &task->entry.text);
        if (task->unsealed == ngx_rl_record_no_memory) {
            return NGX_RL_FOLLOW_FAILED;
        }
    }

    if (task->entry.version == task->own.version
        && task->entry.id == task->own.id)
    {
        return task->unsealed ? NGX_RL_FOLLOW_BEHIND : NGX_RL_FOLLOW_AGAIN;
    }

    if (!ngx_rl_follow_related(task)) {
        task->dropped = 1;

    } else if (task->own.version > task->entry.version) {

        /* or a change came between the question and now */

        return (task->had > task->entry.version) ? NGX_RL_FOLLOW_BEHIND
                                                 : NGX_RL_FOLLOW_AGAIN;
    }

    if (task->unsealed) {
        task->why = task->unsealed;
        return NGX_RL_FOLLOW_REFUSED;
    }

    status = ngx_rl_follow_compile(task);

    if (status != NGX_RL_FOLLOW_OK) {
        return status;
    }

    switch (ngx_rl_store_publish(task->limiter->store, &task->entry,
                                 task->own.version, task->own.id))
    {
    case NGX_OK:
        return NGX_RL_FOLLOW_OK;

    case NGX_BUSY:
        return NGX_RL_FOLLOW_AGAIN;

    default: /* NGX_DECLINED */
        task->why = "the store has no room for it";
        return NGX_RL_FOLLOW_REFUSED;
    }
}


static void
ngx_rl_follow_compare_work(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    task->status = ngx_rl_follow_compared(task);

    if (task->status == NGX_RL_FOLLOW_BEHIND
        && ngx_rl_follow_seal(task->limiter, task->pool, &task->own.text)
           != NGX_OK)
    {
        task->status = NGX_RL_FOLLOW_FAILED;
    }
}


/* The highest version that a gateway of the fleet has becomes the fleet's. */
static void
ngx_rl_follow_return(ngx_rl_follow_task_t *task)
{
    ngx_uint_t        first;
    ngx_rl_follow_t  *follow;

    follow = task->follow;

    follow->asked = ngx_rl_follow_ask_put(follow, ngx_rl_follow_answer, follow,
                                          task->entry.version, task->entry.id,
                                          &task->own, &task->own.text);
    if (follow->asked == NULL) {
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_AGAIN_MS);
        return;
    }

    follow->leader = NGX_RL_FOLLOW_RETURNS;

    if (task->entry.version == task->own.version) {

        if (ngx_rl_follow_failed(&follow->sealing)) {
            ngx_log_error(NGX_LOG_WARN, follow->log, 0,
                          "ratelimit zone \"%V\": version %uL of its rules is "
                          "not sealed by this \"secret_file\", this gateway "
                          "seals it", &follow->limiter->zone.name,
                          task->own.version);
        }

        return;
    }

    first = (follow->returning.wait == 0);

    if (ngx_rl_follow_failed(&follow->returning) || first) {
        ngx_log_error(NGX_LOG_NOTICE, follow->log, 0,
                      "ratelimit zone \"%V\": Redis has version %uL of its "
                      "rules, this gateway puts back version %uL",
                      &follow->limiter->zone.name, task->entry.version,
                      task->own.version);
    }
}


static void
ngx_rl_follow_accepted(ngx_rl_follow_task_t *task)
{
    ngx_rl_follow_t  *follow;

    follow = task->follow;
    follow->refused_version = 0;
    follow->limiter->store->refused = 0;
    follow->saving.wait = 0;

    /* an operator has joined two fleets, or brought a file of another one */

    if (task->dropped) {
        ngx_log_error(NGX_LOG_WARN, follow->log, 0,
                      "ratelimit zone \"%V\": version %uL of its rules is "
                      "dropped: it is of another lineage than version %uL, "
                      "which Redis has", &follow->limiter->zone.name,
                      task->own.version, task->entry.version);
    }

    ngx_rl_follow_log_version(follow->limiter, &task->record,
                              "follows version %uL of its rules");
    ngx_rl_follow_wake(follow);
}


static void
ngx_rl_follow_compare_done(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    ngx_rl_follow_t  *follow;

    follow = task->follow;
    follow->compares = NULL;
    follow->sealed = (task->status != NGX_RL_FOLLOW_FAILED
                      && task->unsealed == NULL);

    if (follow->sealed) {
        follow->sealing.wait = 0;
    }

    switch (task->status) {

    case NGX_RL_FOLLOW_BEHIND:
        ngx_rl_follow_return(task);
        break;

    case NGX_RL_FOLLOW_FAILED:
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_AGAIN_MS);
        break;

    case NGX_RL_FOLLOW_REFUSED:
        follow->refused_version = task->entry.version;
        follow->refused_id = task->unsealed ? 0 : task->entry.id;
        ngx_rl_follow_refused(task);
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_POLL_MS);
        break;

    case NGX_RL_FOLLOW_AGAIN:
        ngx_rl_follow_idle(follow, 0);
        break;

    default: /* NGX_RL_FOLLOW_OK */
        ngx_rl_follow_accepted(task);
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_POLL_MS);
    }

    ngx_destroy_pool(task->pool);
}


/*
 * A record of Redis goes into the store when it was seen to compile: a worker
 * that starts later, maybe without Redis, finds no other there.
 */
static void
ngx_rl_follow_compare(ngx_rl_follow_t *follow, uint64_t version, uint64_t id,
    const ngx_str_t *record)
{
    ngx_rl_follow_task_t  *task;

    task = ngx_rl_follow_task_new(follow->limiter, follow->log);

    if (task) {
        task->entry.version = version;
        task->entry.id = id;
        task->had = follow->had;

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

    follow->compares = ngx_rl_follow_task_start(task, follow,
                                                NGX_RL_JOB_COMPUTES,
                                                ngx_rl_follow_compare_work,
                                                ngx_rl_follow_compare_done);
    if (follow->compares) {
        follow->leader = NGX_RL_FOLLOW_COMPARES;

    } else {
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_AGAIN_MS);
    }
}


/*
 * {version, id, resets}, and the record if it is another one; or that of a put,
 * which the next poll looks at.
 */
static void
ngx_rl_follow_answer(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_follow_t  *follow = data;

    uint64_t                version, id, resets, own, own_id;
    ngx_rl_store_t  *store;

    follow->asked = NULL;

    if (result->status != NGX_RL_REDIS_OK) {
        ngx_rl_follow_no_answer(follow, result->status);
        return;
    }

    if (follow->leader == NGX_RL_FOLLOW_RETURNS) {
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_AGAIN_MS);
        return;
    }

    if (ngx_rl_follow_version(result, 0, &version, &id) != NGX_OK
        || ngx_rl_follow_number(result, 2, &resets) != NGX_OK)
    {
        ngx_rl_follow_no_answer(follow, NGX_RL_REDIS_PROTOCOL);
        return;
    }

    store = follow->limiter->store;
    store->asked_ms = ngx_rl_wall_ms();
    store->reachable = 1;
    follow->polling.wait = 0;

    ngx_rl_follow_resets(follow, resets);
    ngx_rl_store_version(store, &own, &own_id);

    if (version >= own) {
        follow->returning.wait = 0;
    }

    if (version) {
        follow->empty = 0;
    }

    if (version && version == own && id == own_id && !follow->sealed
        && result->n > NGX_RL_FOLLOW_GET_RECORD)
    {
        ngx_rl_follow_compare(follow, version, id,
                              &result->texts[NGX_RL_FOLLOW_GET_RECORD]);

    } else if (version == own && id == own_id) {

        /* one that the workers do not use is another matter */

        if (follow->refused_version) {
            follow->refused_version = 0;
            store->refused = 0;
        }

        if (version) {
            store->joined = 1;
        }

        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_POLL_MS);

    } else if (version && version == follow->refused_version
               && id == follow->refused_id)
    {
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_POLL_MS);

    } else if ((version < own && !ngx_rl_follow_may_return(follow, version))
               || (version && result->n <= NGX_RL_FOLLOW_GET_RECORD))
    {
        /* or Redis sent no record, because the store has changed since */

        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_AGAIN_MS);

    } else {
        ngx_rl_follow_compare(follow, version, id,
                             version
                             ? &result->texts[NGX_RL_FOLLOW_GET_RECORD]
                             : NULL);
    }
}


void
ngx_rl_follow_poll(ngx_event_t *ev)
{
    uint64_t          own[2], id;    /* version and id */
    ngx_rl_follow_t  *follow;

    follow = ev->data;

    if (follow->leader != NGX_RL_FOLLOW_IDLE) {
        follow->again = 1;
        return;
    }

    follow->again = 0;

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    ngx_rl_store_version(follow->limiter->store, &follow->had, &id);

    /* Redis need not send a record again that was refused */

    if (follow->refused_version) {
        own[0] = follow->refused_version;
        own[1] = follow->refused_id;

    } else {
        ngx_rl_store_version(follow->limiter->store, &own[0], &own[1]);
    }

    /* a seal may be missing: the secret is new */

    if (follow->limiter->redis->secret.len && !follow->sealed
        && ngx_rl_follow_may_retry(&follow->sealing))
    {
        own[1] = 0;
    }

    follow->asked = ngx_rl_follow_ask(follow, ngx_rl_follow_answer, follow,
                                      "get", "vi", own, NULL);
    if (follow->asked) {
        follow->leader = NGX_RL_FOLLOW_ASKS;

    } else {
        ngx_rl_follow_idle(follow, NGX_RL_FOLLOW_POLL_MS);
    }
}


/*
 * While a thread writes the state file nobody else may: the worker stays the
 * leader until that is done, and then leaves.
 */
static void
ngx_rl_follow_leave(ngx_rl_follow_t *follow)
{
    follow->leader = NGX_RL_FOLLOW_LEAVES;
    follow->empty = 0;
    follow->again = 0;

    if (follow->poll.timer_set) {
        ngx_del_timer(&follow->poll);
    }

    if (follow->asked) {
        ngx_rl_redis_forget(follow->asked);
        follow->asked = NULL;
    }

    if (follow->compares) {
        ngx_rl_job_cancel(follow->compares);
        follow->compares = NULL;
    }

    if (follow->limiter->redis) {
        ngx_rl_redis_unlisten(follow->limiter->redis, &follow->listener);
    }

    /* the next leader looks when an upgrade that is under way may be over */

    if (follow->limiter->state.len && ngx_rl_follow_upgraded()) {
        follow->limiter->store->upgraded = 1;
    }

    if (follow->file == NULL) {
        follow->leader = NGX_RL_FOLLOW_LED;
        ngx_rl_lock_leave(&follow->limiter->store->leader);
    }
}


/* NGX_ERROR is logged. */
static void
ngx_rl_follow_load_work(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    if (ngx_rl_follow_load(task->limiter, task->pool, 0) != NGX_OK) {
        task->status = NGX_RL_FOLLOW_FAILED;
        return;
    }

    task->limiter->store->upgraded = 0;
}


/* why says which step has failed. */
static void
ngx_rl_follow_save_work(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    ngx_rl_store_t  *store;

    store = task->limiter->store;
    task->err = NGX_ENOMEM;
    task->why = "reading it";

    if (ngx_rl_follow_history(task->limiter, task->pool, &task->entry)
        == NGX_OK)
    {
        task->why = ngx_rl_state_write(&task->limiter->state,
                                       &task->entry.text, &task->err);
    }

    if (task->why) {
        task->status = NGX_RL_FOLLOW_FAILED;
        store->error = task->err ? task->err : NGX_EINVAL;
        return;
    }

    store->written = task->entry.generation;
    store->error = 0;
}


static void
ngx_rl_follow_file_done(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    ngx_rl_follow_t  *follow;

    follow = task->follow;
    follow->file = NULL;

    if (task->status == NGX_RL_FOLLOW_OK) {
        follow->saving.wait = 0;

    } else if (ngx_rl_follow_failed(&follow->saving) && task->why) {
        ngx_log_error(NGX_LOG_ERR, follow->log, task->err,
                      "ratelimit zone \"%V\": the state file \"%V\" could not "
                      "be written: %s failed", &follow->limiter->zone.name,
                      &follow->limiter->state, task->why);
    }

    ngx_destroy_pool(task->pool);

    /* there may be more to write, or the leader waits to leave */

    ngx_rl_follow_wake(follow);
}


/*
 * If the new master ends, and not this one, this gateway goes on with what the
 * file has by then; with Redis, with what Redis has.
 */
static void
ngx_rl_follow_file_look(ngx_rl_follow_t *follow)
{
    ngx_rl_job_pt    work;
    ngx_rl_store_t  *store;

    store = follow->limiter->store;

    if (follow->limiter->state.len == 0 || follow->file
        || !ngx_rl_follow_may_retry(&follow->saving))
    {
        return;
    }

    if (ngx_rl_follow_upgraded()) {
        store->upgraded = 1;
        return;
    }

    if (follow->limiter->redis) {
        store->upgraded = 0;
    }

    if (store->upgraded) {
        work = ngx_rl_follow_load_work;

    } else if (store->written != ngx_rl_store_generation(store)) {
        work = ngx_rl_follow_save_work;

    } else {
        return;
    }

    follow->file = ngx_rl_follow_task_start(
                     ngx_rl_follow_task_new(follow->limiter, follow->log),
                     follow, NGX_RL_JOB_WRITES, work,
                     ngx_rl_follow_file_done);

    if (follow->file == NULL) {
        (void) ngx_rl_follow_failed(&follow->saving);
    }
}


/* Leads if the leader has died; a worker that drains leaves. */
void
ngx_rl_follow_leader_look(ngx_rl_follow_t *follow)
{
    ngx_rl_limiter_t  *limiter;

    limiter = follow->limiter;

    if (follow->leader == NGX_RL_FOLLOW_LED) {

        if (ngx_exiting || !ngx_rl_lock_lead(&limiter->store->leader)) {
            return;
        }

        follow->leader = NGX_RL_FOLLOW_IDLE;
        follow->refused_version = 0;
        follow->sealed = 0;

        ngx_log_error(NGX_LOG_INFO, follow->log, 0,
                      "ratelimit zone \"%V\": this worker follows the rules "
                      "for this gateway", &limiter->zone.name);

        /* the leader before may have written another file */

        ngx_rl_store_set_file(limiter->store, &limiter->state);

        /* memory may be out: then the poll is what is left */

        if (limiter->redis) {
            (void) ngx_rl_redis_listen(limiter->redis, &follow->listener,
                                       &follow->poll);
            ngx_rl_follow_poll(&follow->poll);
        }

    } else if (ngx_exiting) {
        ngx_rl_follow_leave(follow);
        return;
    }

    ngx_rl_follow_file_look(follow);
}


void
ngx_rl_follow_leader_end(ngx_rl_follow_t *follow)
{
    /* the threads have ended: no file is being written any more */

    if (follow->file) {
        ngx_rl_job_cancel(follow->file);
        follow->file = NULL;
    }

    if (follow->leader != NGX_RL_FOLLOW_LED) {
        ngx_rl_follow_leave(follow);
    }
}

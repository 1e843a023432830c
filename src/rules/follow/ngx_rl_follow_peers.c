/*
 * Documents without Redis. Each gateway tells its peers which version it has,
 * each second and when that changes. One that has less asks for the record,
 * part by part, checks that it compiles, and puts it into its store. The higher
 * version of a lineage counts. If two records have one version, the higher id
 * counts.
 *
 * A change is decided by the live gateway with the lowest name. Another one
 * proposes its record to it, and has it when it comes back as any other
 * version; if another version comes, that change was faster.
 *
 * The worker that leads the fleet does this, beside the leader of the follow,
 * which writes the state file.
 */

#include "ngx_rl_follow_int.h"

#define NGX_RL_FOLLOW_TELL_MS   1000   /* again: a message may be lost */
#define NGX_RL_FOLLOW_PART_MS   2000   /* until the next part is there */


/* The gateway that decides: this one, or a peer; by its name. */
static uint64_t
ngx_rl_follow_decider(const ngx_rl_peers_t *peers)
{
    uint64_t    name, lowest;
    ngx_uint_t  at;

    at = 0;
    lowest = peers->shared->gateway;

    while ((name = ngx_rl_peers_next(peers->shared, &at))) {
        lowest = ngx_min(lowest, name);
    }

    return lowest;
}


ngx_uint_t
ngx_rl_follow_decides(const ngx_rl_limiter_t *limiter)
{
    return limiter->proposals == NULL
           || ngx_rl_follow_decider(limiter->peers)
              == limiter->peers->shared->gateway;
}


static ngx_uint_t
ngx_rl_follow_higher(uint64_t version, uint64_t id, uint64_t than,
    uint64_t than_id)
{
    return version > than || (version == than && id > than_id);
}


/* Whether a client still waits for the change that this gateway proposes. */
static ngx_uint_t
ngx_rl_follow_proposes(const ngx_rl_limiter_t *limiter)
{
    return (int64_t) (limiter->proposals->until_ms - ngx_current_msec) > 0;
}


/* To one peer, or, if peer is 0, to all. */
static void
ngx_rl_follow_say(const ngx_rl_limiter_t *limiter, uint64_t peer,
    ngx_rl_told_e kind, ngx_rl_told_record_t *record)
{
    size_t           len;
    u_char          *message;
    ngx_rl_peers_t  *peers;

    peers = limiter->peers;
    message = peers->net->message;
    record->zone = limiter->fleet_zone;

    len = ngx_rl_told_record(message, kind, record);
    ngx_rl_peers_send(peers, peer, message, len);
}


static void
ngx_rl_follow_come_drop(ngx_rl_follow_come_t *come)
{
    if (come->text.data) {
        ngx_free(come->text.data);
    }

    ngx_memzero(come, sizeof(ngx_rl_follow_come_t));
}


/* Asks for the next part. */
static void
ngx_rl_follow_come_ask(ngx_rl_follow_t *follow)
{
    ngx_rl_told_record_t   ask;
    ngx_rl_follow_come_t  *come;

    come = &follow->come;
    come->asked_ms = ngx_current_msec;

    ngx_memzero(&ask, sizeof(ngx_rl_told_record_t));
    ask.version = come->version;
    ask.id = come->id;
    ask.offset = come->text.len;

    ngx_rl_store_version(follow->limiter->store, &ask.base, &ask.base_id);
    ngx_rl_follow_say(follow->limiter, come->peer, NGX_RL_TOLD_ASK, &ask);
}


static void
ngx_rl_follow_come(ngx_rl_follow_t *follow, uint64_t peer,
    const ngx_rl_told_record_t *told, ngx_uint_t proposed)
{
    ngx_rl_follow_come_t  *come;

    come = &follow->come;

    /* one record at a time: the peer tells of this one again */

    if (come->peer || follow->compares
        || (told->version == follow->refused_version
            && told->id == follow->refused_id))
    {
        return;
    }

    come->peer = peer;
    come->version = told->version;
    come->id = told->id;
    come->base_id = told->base_id;
    come->proposed = proposed;

    ngx_rl_follow_come_ask(follow);
}


/* In a thread: the record becomes the current one, if it is to be. */
static void
ngx_rl_follow_come_work(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    uint64_t          lineage;
    ngx_rl_store_t   *store;

    store = task->limiter->store;
    task->status = NGX_RL_FOLLOW_AGAIN;

    if (ngx_rl_store_read(store, task->pool, &task->own) == NGX_ERROR) {
        task->status = NGX_RL_FOLLOW_FAILED;
        return;
    }

    if (!ngx_rl_follow_higher(task->entry.version, task->entry.id,
                              task->own.version, task->own.id)
        || (task->proposed && (task->entry.version != task->own.version + 1
                               || task->base_id != task->own.id)))
    {
        return;
    }

    task->status = ngx_rl_follow_compile(task);

    if (task->status != NGX_RL_FOLLOW_OK) {
        return;
    }

    lineage = task->own.version
              ? ngx_rl_follow_lineage(&task->own.text, task->pool) : 0;

    if (lineage && task->record.lineage != lineage) {
        task->why = "it is of another lineage than this gateway's: of one of "
                    "the two gateways, remove the state file and restart it";
        task->status = NGX_RL_FOLLOW_REFUSED;
        return;
    }

    if (ngx_rl_store_publish(store, &task->entry, task->own.version,
                             task->own.id)
        != NGX_OK)
    {
        task->status = NGX_RL_FOLLOW_AGAIN;
    }
}


static void
ngx_rl_follow_come_done(void *data)
{
    ngx_rl_follow_task_t  *task = data;

    ngx_rl_follow_t  *follow;

    follow = task->follow;
    follow->compares = NULL;

    if (task->status == NGX_RL_FOLLOW_REFUSED) {
        follow->refused_version = task->entry.version;
        follow->refused_id = task->entry.id;
        ngx_rl_follow_refused(task);

    } else if (task->status == NGX_RL_FOLLOW_OK) {

        if (task->dropped) {
            (void) atomic_fetch_add(&task->limiter->peers->shared->replaced, 1);
            ngx_log_error(NGX_LOG_WARN, follow->log, 0,
                          "ratelimit zone \"%V\": version %uL of its rules is "
                          "replaced by version %uL of a peer, which may not "
                          "have its changes", &task->limiter->zone.name,
                          task->own.version, task->entry.version);
        }

        ngx_rl_follow_log_version(follow->limiter, &task->record,
                                  "follows version %uL of its rules");
        ngx_rl_follow_wake(follow);
    }

    ngx_destroy_pool(task->pool);
}


/* The record is whole. */
static void
ngx_rl_follow_come_whole(ngx_rl_follow_t *follow)
{
    ngx_rl_follow_come_t  *come;
    ngx_rl_follow_task_t  *task;

    come = &follow->come;
    task = ngx_rl_follow_task_new(follow->limiter, follow->log);

    if (task) {
        task->entry.version = come->version;
        task->entry.id = come->id;
        task->base_id = come->base_id;
        task->proposed = come->proposed;
        task->dropped = come->forked;
        task->entry.text.len = come->text.len;
        task->entry.text.data = ngx_pstrdup(task->pool, &come->text);

        if (task->entry.text.data == NULL) {
            ngx_destroy_pool(task->pool);
            task = NULL;
        }
    }

    follow->compares = ngx_rl_follow_task_start(task, follow,
                                                NGX_RL_JOB_COMPUTES,
                                                ngx_rl_follow_come_work,
                                                ngx_rl_follow_come_done);
    ngx_rl_follow_come_drop(come);
}


static void
ngx_rl_follow_part(ngx_rl_follow_t *follow, uint64_t peer,
    const ngx_rl_told_record_t *told)
{
    ngx_rl_follow_come_t  *come;

    come = &follow->come;

    if (peer != come->peer || told->version != come->version
        || told->id != come->id || told->offset != come->text.len)
    {
        return;
    }

    if (come->text.data == NULL) {
        come->size = told->size;
        come->text.data = (told->size > 0 && told->size <= NGX_RL_RECORD_MAX)
                          ? ngx_alloc(told->size, follow->log) : NULL;
    }

    if (come->text.data == NULL || told->size != come->size
        || told->len == 0 || told->len > come->size - come->text.len)
    {
        ngx_rl_follow_come_drop(come);
        return;
    }

    ngx_memcpy(come->text.data + come->text.len, told->data, told->len);
    come->text.len += told->len;
    come->forked |= (told->base != 0);

    if (come->text.len == come->size) {
        ngx_rl_follow_come_whole(follow);

    } else {
        ngx_rl_follow_come_ask(follow);
    }
}


/* Sends a part of what the store has, or of what is proposed. */
static void
ngx_rl_follow_asked(ngx_rl_follow_t *follow, uint64_t peer,
    const ngx_rl_told_record_t *told)
{
    uint64_t               version, id;
    ngx_pool_t            *pool;
    ngx_rl_store_t        *store;
    ngx_rl_limiter_t      *limiter;
    ngx_rl_store_entry_t   entry;
    ngx_rl_told_record_t   part;

    limiter = follow->limiter;
    store = limiter->store;
    ngx_rl_store_version(store, &version, &id);

    if (version != told->version || id != told->id) {
        store = limiter->proposals;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, follow->log);
    if (pool == NULL) {
        return;
    }

    if ((store == limiter->store || ngx_rl_follow_proposes(limiter))
        && ngx_rl_store_read(store, pool, &entry) == NGX_OK
        && entry.version == told->version && entry.id == told->id
        && told->offset < entry.text.len)
    {
        ngx_memzero(&part, sizeof(ngx_rl_told_record_t));
        part.version = entry.version;
        part.id = entry.id;
        part.offset = told->offset;
        part.size = entry.text.len;
        part.data = entry.text.data + told->offset;
        part.len = ngx_min(entry.text.len - told->offset,
                           NGX_RL_TOLD_PART_MOST);

        /* its own version may have changes that this one lacks */

        part.base = (store == limiter->store && told->base
                     && !ngx_rl_store_had(store, told->base, told->base_id));

        ngx_rl_follow_say(limiter, peer, NGX_RL_TOLD_PART, &part);
    }

    ngx_destroy_pool(pool);
}


void
ngx_rl_follow_told(ngx_rl_limiter_t *limiter, uint64_t peer,
    ngx_rl_told_e kind, const ngx_rl_told_record_t *told)
{
    uint64_t          version, id;
    ngx_rl_follow_t  *follow;

    follow = limiter->follow;

    if (follow == NULL) {
        return;
    }

    ngx_rl_store_version(limiter->store, &version, &id);

    switch (kind) {

    case NGX_RL_TOLD_VERSION:
        if (ngx_rl_follow_higher(told->version, told->id, version, id)
            && told->version <= version + NGX_RL_FOLLOW_LEAP)
        {
            ngx_rl_follow_come(follow, peer, told, 0);
        }

        break;

    case NGX_RL_TOLD_PROPOSAL:

        if (!ngx_rl_follow_decides(limiter)) {
            break;
        }

        if (told->version == version + 1 && told->base_id == id) {
            ngx_rl_follow_come(follow, peer, told, 1);

        } else {
            /* that gateway does not know this version yet */
            follow->told_ms = ngx_current_msec - NGX_RL_FOLLOW_TELL_MS;
        }

        break;

    case NGX_RL_TOLD_ASK:
        ngx_rl_follow_asked(follow, peer, told);
        break;

    default: /* NGX_RL_TOLD_PART */
        ngx_rl_follow_part(follow, peer, told);
    }
}


void
ngx_rl_follow_tell(ngx_rl_limiter_t *limiter)
{
    uint64_t               generation, decider;
    ngx_rl_follow_t       *follow;
    ngx_rl_told_record_t   told, next;

    follow = limiter->follow;

    if (follow == NULL) {
        return;
    }

    if (follow->come.peer && ngx_current_msec - follow->come.asked_ms
                             >= NGX_RL_FOLLOW_PART_MS)
    {
        ngx_rl_follow_come_drop(&follow->come);
    }

    ngx_memzero(&told, sizeof(ngx_rl_told_record_t));
    next = told;

    generation = ngx_rl_store_generation(limiter->store)
                 + ngx_rl_store_generation(limiter->proposals);

    if (generation == follow->told
        && ngx_current_msec - follow->told_ms < NGX_RL_FOLLOW_TELL_MS)
    {
        return;
    }

    follow->told = generation;
    follow->told_ms = ngx_current_msec;

    ngx_rl_store_version(limiter->store, &told.version, &told.id);

    if (told.version) {
        ngx_rl_follow_say(limiter, 0, NGX_RL_TOLD_VERSION, &told);
    }

    ngx_rl_store_version(limiter->proposals, &next.version, &next.id);
    decider = ngx_rl_follow_decider(limiter->peers);

    if (next.version == told.version + 1 && ngx_rl_follow_proposes(limiter)
        && decider != limiter->peers->shared->gateway)
    {
        next.base_id = limiter->proposals->base;
        ngx_rl_follow_say(limiter, decider, NGX_RL_TOLD_PROPOSAL, &next);
    }
}


void
ngx_rl_follow_tell_end(ngx_rl_follow_t *follow)
{
    ngx_rl_follow_come_drop(&follow->come);

    if (follow->limiter->proposals && follow->compares) {
        ngx_rl_job_cancel(follow->compares);
        follow->compares = NULL;
    }
}

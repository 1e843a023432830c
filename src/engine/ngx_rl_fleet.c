/*
 * The leader of a fleet: ten times a second it takes out the changes that
 * ngx_rl_peered.c has noted, and tells the peers. What peers tell, it charges
 * as a debt.
 */

#include "ngx_rl_fleet.h"

#include "ngx_rl_backend.h"
#include "ngx_rl_follow.h"

#include <openssl/rand.h>

#define NGX_RL_FLEET_LAYOUT  4

/* of a tick: 100 ms, 30 % more or less */
#define NGX_RL_FLEET_MS      70
#define NGX_RL_FLEET_MORE    61

/* sets of changes that a tick looks at for permits in use: all within 4 s */
#define NGX_RL_FLEET_SETS    (NGX_RL_CHANGES_SETS / 32)


/* The zone of that hash; NULL: this gateway has none. */
static ngx_rl_limiter_t *
ngx_rl_fleet_limiter(const ngx_rl_fleet_t *fleet, uint32_t zone)
{
    ngx_uint_t          i;
    ngx_rl_limiter_t  **limiters;

    limiters = fleet->limiters.elts;

    for (i = 0; i < fleet->limiters.nelts; i++) {
        if (limiters[i]->fleet_zone == zone) {
            return limiters[i];
        }
    }

    return NULL;
}


static void
ngx_rl_fleet_told(ngx_rl_peers_t *peers, uint64_t peer, ngx_rl_told_e kind,
    const ngx_rl_told_t *told)
{
    int64_t               tokens;
    uint64_t              left_us, end_ms;
    ngx_int_t             rc;
    ngx_rl_fleet_t       *fleet;
    ngx_rl_limit_t        own;
    ngx_rl_answer_t       answer;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_told_limit_t   limit;

    fleet = peers->data;
    limiter = ngx_rl_fleet_limiter(fleet, told->zone);

    if (limiter == NULL) {
        return;
    }

    tokens = told->tokens;
    left_us = 0;
    end_ms = (told->limit->algorithm == NGX_RL_FIXED_WINDOW)
             ? ngx_current_msec + told->left_ms : 0;

    /* the rule may have another limit here, and the state is of this one */

    ngx_rl_told_limit(&limit, told->limit, told->zone);

    rc = ngx_rl_changes_reset(&fleet->shared->changes, &told->id, &limit,
                              (kind == NGX_RL_TOLD_STATE)
                              ? NGX_RL_CHANGES_STATE : NGX_RL_CHANGES_SPENT,
                              told->reset);

    if (rc == NGX_DECLINED && told->limit->algorithm != NGX_RL_CONCURRENCY) {
        return;
    }

    ngx_rl_changes_add(&fleet->shared->changes, &told->id, &limit, 0, end_ms,
                       1);

    if (ngx_rl_told_limit_read(&own, &limit) != 0
        || (own.algorithm == NGX_RL_CONCURRENCY)
           != (told->limit->algorithm == NGX_RL_CONCURRENCY))
    {
        return;
    }

    if (rc == NGX_DONE) {
        ngx_rl_local_drop(limiter->zone.table, &told->id, own.algorithm);
    }

    if (own.algorithm == NGX_RL_CONCURRENCY) {
        ngx_rl_permit_told(limiter, &told->id, peer,
                           (uint32_t) ngx_max(tokens, 0));

    } else {

        if (end_ms && own.algorithm == NGX_RL_FIXED_WINDOW
            && own.window_us == told->limit->window_us)
        {
            left_us = ngx_max(told->left_ms * 1000, 1);
        }

        /* of a state the larger one counts, and never the sum */

        if (kind == NGX_RL_TOLD_STATE) {
            ngx_rl_local_told(limiter, &told->id, &own, 0, left_us, 2,
                              &answer);
            tokens -= ngx_rl_told_used(&own, &answer, 1);
            tokens = ngx_max(tokens, 0);
        }

        if (tokens) {
            ngx_rl_local_told(limiter, &told->id, &own, tokens, left_us,
                              kind == NGX_RL_TOLD_STATE
                              ? 2 : ngx_rl_fleet_weight(limiter), &answer);
        }
    }
}


/*
 * Sets what peers are told of a change: the tokens, or of a state all that is
 * used and told already; and its reset. NGX_DECLINED: there is nothing to tell.
 */
static ngx_int_t
ngx_rl_fleet_read(const ngx_rl_fleet_t *fleet, const ngx_rl_change_t *change,
    ngx_rl_told_e kind, ngx_rl_told_t *told)
{
    int64_t            used;
    ngx_rl_limit_t     limit;
    ngx_rl_answer_t    answer;
    ngx_rl_limiter_t  *limiter;

    limiter = ngx_rl_fleet_limiter(fleet, change->limit.zone);

    if (limiter == NULL
        || ngx_rl_told_limit_read(&limit, &change->limit) != 0)
    {
        return NGX_DECLINED;
    }

    told->tokens = change->tokens;
    told->left_ms = 0;
    told->reset = (kind == NGX_RL_TOLD_STATE || ngx_rl_changes_fresh(change))
                  ? change->reset : 0;

    if (limit.algorithm == NGX_RL_CONCURRENCY) {
        told->tokens = (int32_t) ngx_min(ngx_rl_permit_own(limiter,
                                                           &change->id),
                                         INT32_MAX);
        return NGX_OK;
    }

    if (limit.algorithm == NGX_RL_FIXED_WINDOW) {
        if (change->end_ms <= ngx_current_msec) {
            told->tokens = 0;
            return told->reset ? NGX_OK : NGX_DECLINED;
        }

        told->left_ms = change->end_ms - ngx_current_msec;
    }

    if (kind == NGX_RL_TOLD_STATE) {
        ngx_rl_local_told(limiter, &change->id, &limit, 0,
                          told->left_ms * 1000, 2, &answer);
        used = (int64_t) ngx_rl_told_used(&limit, &answer, 0) - change->tokens;
        told->tokens = (int32_t) ngx_max(ngx_min(used, INT32_MAX), 0);
    }

    return (told->tokens || told->reset) ? NGX_OK : NGX_DECLINED;
}


/* Adds it to a message. Returns 0, or -1: the message is full. */
static int
ngx_rl_fleet_put(ngx_rl_told_writer_t *writer, const ngx_rl_change_t *change,
    const ngx_rl_told_t *told)
{
    return ngx_rl_told_add(writer, &change->limit, &change->id, told->tokens,
                           told->left_ms, told->reset);
}


static ngx_int_t
ngx_rl_fleet_state(ngx_rl_peers_t *peers, ngx_uint_t *at,
    ngx_rl_told_writer_t *writer)
{
    ngx_rl_told_t     told;
    ngx_rl_fleet_t   *fleet;
    ngx_rl_change_t   change;

    fleet = peers->data;

    while (ngx_rl_changes_next(&fleet->shared->changes, at, NGX_RL_CHANGES_END,
                               &change)
           == NGX_OK)
    {
        if (ngx_rl_fleet_read(fleet, &change, NGX_RL_TOLD_STATE, &told)
            == NGX_OK
            && ngx_rl_fleet_put(writer, &change, &told) != 0)
        {
            (*at)--;
            return NGX_OK;
        }
    }

    return NGX_DONE;
}


static void
ngx_rl_fleet_record(ngx_rl_peers_t *peers, uint64_t peer, ngx_rl_told_e kind,
    const ngx_rl_told_record_t *record)
{
    ngx_rl_limiter_t  *limiter;

    limiter = ngx_rl_fleet_limiter(peers->data, record->zone);

    if (limiter && limiter->proposals) {
        ngx_rl_follow_told(limiter, peer, kind, record);
    }
}


static const ngx_rl_peers_above_t  ngx_rl_fleet_above = {
    ngx_rl_fleet_told,
    ngx_rl_fleet_record,
    ngx_rl_fleet_state
};


/* Tells all peers what was spent since the last time. */
static void
ngx_rl_fleet_drain(ngx_rl_fleet_t *fleet)
{
    size_t                 len;
    u_char                *message;
    ngx_int_t              rc;
    ngx_uint_t             at;
    ngx_rl_told_t          told;
    ngx_rl_change_t        change;
    ngx_rl_told_writer_t   writer;

    at = 0;
    message = fleet->peers.net->message;

    ngx_rl_told_begin(&writer, message, NGX_RL_TOLD_MOST, NGX_RL_TOLD_SPENT);

    do {
        rc = ngx_rl_changes_take(&fleet->shared->changes, &at, &change);

        if (rc == NGX_OK
            && (ngx_rl_fleet_read(fleet, &change, NGX_RL_TOLD_SPENT, &told)
                != NGX_OK
                || ngx_rl_fleet_put(&writer, &change, &told) == 0))
        {
            continue;
        }

        /* the message is full, or these were all */

        len = ngx_rl_told_end(&writer);

        if (len > NGX_RL_TOLD_LEAST) {
            ngx_rl_peers_send(&fleet->peers, 0, message, len);
        }

        ngx_rl_told_begin(&writer, message, NGX_RL_TOLD_MOST,
                          NGX_RL_TOLD_SPENT);

        if (rc == NGX_OK) {
            (void) ngx_rl_fleet_put(&writer, &change, &told);
        }

    } while (rc == NGX_OK);
}


/*
 * Permits in use are told again in turn: a worker that was killed tells of its
 * own no more, and peers forget what they are not told for some seconds.
 */
static void
ngx_rl_fleet_renew(ngx_rl_fleet_t *fleet)
{
    ngx_uint_t         end;
    ngx_rl_change_t    change;
    ngx_rl_limiter_t  *limiter;

    fleet->renew_at %= NGX_RL_CHANGES_END;
    end = fleet->renew_at + NGX_RL_FLEET_SETS * NGX_RL_CHANGES_PLACES;

    while (ngx_rl_changes_next(&fleet->shared->changes, &fleet->renew_at, end,
                               &change)
           == NGX_OK)
    {
        limiter = ngx_rl_fleet_limiter(fleet, change.limit.zone);

        if (change.limit.algorithm == NGX_RL_CONCURRENCY && limiter
            && ngx_rl_permit_own(limiter, &change.id))
        {
            ngx_rl_changes_add(&fleet->shared->changes, &change.id,
                               &change.limit, 0, 0, 0);
        }
    }
}


/* When each Redis of the zones has answered; 0: one never has, or no zone. */
static uint64_t
ngx_rl_fleet_heard_ms(const ngx_rl_fleet_t *fleet)
{
    uint64_t            heard_ms;
    ngx_uint_t          i;
    ngx_rl_limiter_t  **limiters;

    heard_ms = UINT64_MAX;
    limiters = fleet->limiters.elts;

    for (i = 0; i < fleet->limiters.nelts; i++) {
        if (limiters[i]->redis) {
            heard_ms = ngx_min(heard_ms,
                               ngx_rl_redis_heard_ms(limiters[i]->redis));
        }
    }

    return (heard_ms == UINT64_MAX) ? 0 : heard_ms;
}


/* The worker is the leader no more, if it was. */
static void
ngx_rl_fleet_leave(ngx_rl_fleet_t *fleet)
{
    if (fleet->peers.net) {
        ngx_rl_fleet_drain(fleet);
        ngx_rl_peers_leave(&fleet->peers);
        ngx_rl_lock_leave(&fleet->shared->leader);
    }
}


static void
ngx_rl_fleet_tick(ngx_event_t *ev)
{
    ngx_rl_fleet_t *fleet = ev->data;

    ngx_uint_t          i;
    ngx_rl_limiter_t  **limiters;

    if (ngx_exiting) {
        ngx_rl_fleet_leave(fleet);
        return;
    }

    if (fleet->peers.net == NULL
        && ngx_rl_lock_lead(&fleet->shared->leader)
        && ngx_rl_peers_lead(&fleet->peers, ev->log) != NGX_OK)
    {
        ngx_rl_lock_leave(&fleet->shared->leader);
    }

    if (fleet->peers.net) {
        fleet->peers.redis_ms = ngx_rl_fleet_heard_ms(fleet);
        ngx_rl_fleet_renew(fleet);
        ngx_rl_fleet_drain(fleet);

        limiters = fleet->limiters.elts;

        for (i = 0; i < fleet->limiters.nelts; i++) {
            if (limiters[i]->proposals) {
                ngx_rl_follow_tell(limiters[i]);
            }
        }

        ngx_rl_peers_tick(&fleet->peers);
    }

    ngx_add_timer(ev, NGX_RL_FLEET_MS + ngx_random() % NGX_RL_FLEET_MORE);
}


void
ngx_rl_fleet_begin(ngx_rl_fleet_t *fleet, ngx_cycle_t *cycle)
{
    fleet->tick.data = fleet;
    fleet->tick.log = cycle->log;
    fleet->tick.handler = ngx_rl_fleet_tick;
    fleet->tick.cancelable = 1;

    ngx_add_timer(&fleet->tick, 1);
}


void
ngx_rl_fleet_end(ngx_rl_fleet_t *fleet)
{
    ngx_rl_fleet_leave(fleet);

    if (fleet->tick.timer_set) {
        ngx_del_timer(&fleet->tick);
    }
}


/* data is the old cycle's: old workers use the memory. */
static ngx_int_t
ngx_rl_fleet_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_rl_fleet_t         *fleet, *old;
    ngx_rl_fleet_shared_t  *shared;

    fleet = shm_zone->data;
    old = data;

    if (old) {
        fleet->shared = old->shared;
        fleet->peers.shared = &old->shared->peers;
        return NGX_OK;
    }

    shared = ngx_rl_shm_make(shm_zone, sizeof(ngx_rl_fleet_shared_t));
    if (shared == NULL) {
        return NGX_ERROR;
    }

    do {
        if (RAND_bytes((u_char *) &shared->peers.gateway, sizeof(uint64_t))
            != 1)
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "RAND_bytes() failed for ratelimit peers \"%V\"",
                          &fleet->peers.name);
            return NGX_ERROR;
        }

    } while (shared->peers.gateway == 0);

    fleet->shared = shared;
    fleet->peers.shared = &shared->peers;

    return NGX_OK;
}


ngx_int_t
ngx_rl_fleet_add(ngx_conf_t *cf, ngx_rl_fleet_t *fleet, void *tag)
{
    fleet->peers.above = &ngx_rl_fleet_above;
    fleet->peers.data = fleet;

    if (ngx_array_init(&fleet->limiters, cf->pool, 4,
                       sizeof(ngx_rl_limiter_t *))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_rl_shm_add(cf, "ratelimit_peers", NGX_RL_FLEET_LAYOUT,
                          &fleet->peers.name, sizeof(ngx_rl_fleet_shared_t),
                          ngx_rl_fleet_init, fleet, tag)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_fleet_join(ngx_rl_fleet_t *fleet, ngx_rl_limiter_t *limiter)
{
    ngx_rl_limiter_t  **entry;

    limiter->fleet_zone = ngx_crc32_long(limiter->zone.name.data,
                                         limiter->zone.name.len);

    if (ngx_rl_fleet_limiter(fleet, limiter->fleet_zone)) {
        return NGX_DECLINED;
    }

    entry = ngx_array_push(&fleet->limiters);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    *entry = limiter;
    limiter->fleet = fleet;
    limiter->peers = limiter->redis ? NULL : &fleet->peers;

    return NGX_OK;
}


void
ngx_rl_fleet_name(const ngx_rl_fleet_t *fleet)
{
    u_char              name[sizeof(uint64_t)];
    uint64_t           *words;
    ngx_uint_t          i, n;
    ngx_rl_id_t         id;
    ngx_rl_hash_key_t   key;
    ngx_rl_limiter_t  **limiters;

    limiters = fleet->limiters.elts;
    words = (uint64_t *) &key;

    for (i = 0; i < fleet->limiters.nelts; i++) {
        for (n = 0; n < sizeof(key) / sizeof(uint64_t); n++) {
            ngx_memcpy(name, &limiters[i]->fleet_zone, sizeof(uint32_t));
            ngx_memcpy(name + sizeof(uint32_t), &(uint32_t) { (uint32_t) n },
                       sizeof(uint32_t));

            id = ngx_rl_siphash(fleet->peers.ids, name, sizeof(name), 2, 4);
            words[n] = id.lo;
        }

        ngx_rl_table_name(limiters[i]->zone.table, &key);
    }
}

/*
 * Concurrency on this gateway: permits that requests hold while they run.
 *
 * An outer counter has the number of permits in use, an inner one for each
 * worker the number that this worker's requests hold. If a worker is killed,
 * its permits stay in the outer counter. A worker that would reject a request
 * adds up the inner counters of the living workers first, and so takes them
 * back. It does the same if it finds no outer counter, which may have been
 * evicted. The inner counter is written first: a worker that dies before it has
 * written the outer one leaves that right or too high, and adding up mends it.
 * All of it happens under the outer counter's lock, so adding up sees each take
 * and each free whole.
 */

#include "ngx_rl_backend.h"
#include "ngx_rl_fleet.h"

#include "ngx_rl_limit.h"

/*
 * The gateway cannot know when a request will end. A counter that was not
 * written for so long may be dropped. A worker writes its inner counters three
 * times in that time, so it is one of a killed worker, or an outer one, which
 * the inner ones bring back.
 */
#define NGX_RL_PERMIT_FAR_US      ((uint64_t) 86400 * 1000000)
#define NGX_RL_PERMIT_RENEW_MS    (NGX_RL_PERMIT_FAR_US / 3000)

/* a peer tells again about every 4 s what it holds, else it holds nothing */
#define NGX_RL_PERMIT_TOLD_US     12000000

/* without it running requests would not count: the last to be evicted */
#define NGX_RL_PERMIT_LOSS        255

/* A counter's permits here, while their outer counter is locked. */
typedef struct {
    const ngx_rl_limiter_t  *limiter;
    ngx_rl_id_t      id;
    uint64_t         now_us;
    ngx_rl_entry_t   entry;
} ngx_rl_permits_t;


/* of this worker: the checks that hold permits here */
static ngx_queue_t  ngx_rl_permit_checks;
static ngx_event_t  ngx_rl_permit_renewal;


static void
ngx_rl_permit_lock(const ngx_rl_limiter_t *limiter, ngx_rl_id_t id,
    ngx_rl_permits_t *p)
{
    p->limiter = limiter;
    p->id = id;
    p->now_us = ngx_rl_local_now_us();

    ngx_rl_table_lock_outer(limiter->zone.table, &p->id, p->now_us, &p->entry);
}


/* With no permit in use a counter equals a fresh one. */
static void
ngx_rl_permit_store(ngx_rl_entry_t *entry, uint32_t in_use, uint64_t now_us)
{
    entry->state.extra = in_use;
    entry->state.fresh_us = in_use ? now_us + NGX_RL_PERMIT_FAR_US : 0;

    ngx_rl_table_store(entry, in_use ? NGX_RL_PERMIT_LOSS : 0);
}


/* Adds n to what one worker holds, and returns the sum. */
static uint32_t
ngx_rl_permit_inner(ngx_rl_permits_t *p, uint64_t life, ngx_int_t n)
{
    uint32_t        held;
    ngx_rl_id_t     inner;
    ngx_rl_entry_t  entry;

    inner = ngx_rl_table_inner_id(&p->id, life);

    ngx_rl_table_lock_inner(p->limiter->zone.table, &inner, p->now_us, &entry);

    held = entry.state.extra;

    if (n == 0) {
        ngx_rl_table_unlock(&entry);
        return held;
    }

    if (n > 0 || held) {
        held += n;
    }

    ngx_rl_permit_store(&entry, held, p->now_us);

    return held;
}


/* What a peer holds, if it has told so of late. */
static uint32_t
ngx_rl_permit_peer(ngx_rl_permits_t *p, uint64_t peer)
{
    uint32_t        held;
    ngx_rl_id_t     inner;
    ngx_rl_entry_t  entry;

    inner = ngx_rl_table_inner_id(&p->id, peer);

    ngx_rl_table_lock_inner(p->limiter->zone.table, &inner, p->now_us, &entry);

    held = (entry.state.fresh_us > p->now_us) ? entry.state.extra : 0;

    ngx_rl_table_unlock(&entry);

    return held;
}


/* The permits that the requests of living workers hold; and of peers. */
static uint32_t
ngx_rl_permit_count(ngx_rl_permits_t *p, ngx_uint_t peers)
{
    uint32_t                in_use;
    uint64_t                life;
    ngx_uint_t              at;
    ngx_rl_peers_shared_t  *shared;

    at = 0;
    in_use = ngx_rl_permit_inner(p, ngx_rl_life, 0);

    while ((life = ngx_rl_life_next(&at)) != 0) {
        in_use += ngx_rl_permit_inner(p, life, 0);
    }

    if (p->limiter->fleet && peers) {
        at = 0;
        shared = p->limiter->fleet->peers.shared;

        while ((life = ngx_rl_peers_next(shared, &at)) != 0) {
            in_use += ngx_rl_permit_peer(p, life);
        }
    }

    return in_use;
}


/* Locks to take; returns the number of permits in use, here or by peers too. */
static uint32_t
ngx_rl_permit_begin(const ngx_rl_counter_t *counter, ngx_rl_permits_t *p,
    ngx_uint_t peers)
{
    ngx_rl_permit_lock(counter->client->limiter, ngx_rl_counter_id(counter),
                       p);

    return p->entry.found                   /* NOLINT(clang-analyzer-*) */
           ? p->entry.state.extra : ngx_rl_permit_count(p, peers);
}


/* Two requests of one key write its inner counter twice. */
static void
ngx_rl_permit_renewal_handler(ngx_event_t *ev)
{
    uint64_t           now_us;
    ngx_uint_t         i;
    ngx_queue_t       *q;
    ngx_rl_id_t        id;
    ngx_rl_entry_t     entry;
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    now_us = ngx_rl_local_now_us();

    for (q = ngx_queue_head(&ngx_rl_permit_checks);
         q != ngx_queue_sentinel(&ngx_rl_permit_checks);
         q = ngx_queue_next(q))
    {
        check = ngx_queue_data(q, ngx_rl_check_t, holds);

        for (i = 0; i < check->ncounters; i++) {
            counter = &check->counters[i];

            if (counter->permit) {
                id = ngx_rl_counter_id(counter);
                id = ngx_rl_table_inner_id(&id, ngx_rl_life);

                ngx_rl_table_lock_inner(counter->client->limiter->zone.table,
                                        &id, now_us, &entry);
                ngx_rl_permit_store(&entry, entry.state.extra, now_us);
            }
        }
    }

    if (!ngx_queue_empty(&ngx_rl_permit_checks)) {
        ev->log = ngx_cycle->log;
        ngx_add_timer(ev, NGX_RL_PERMIT_RENEW_MS);
    }
}


static void
ngx_rl_permit_keep(ngx_rl_counter_t *counter)
{
    ngx_event_t     *ev;
    ngx_rl_check_t  *check;

    counter->permit = 1;
    check = counter->client->check;

    if (check->permits) {
        return;
    }

    check->permits = 1;
    ev = &ngx_rl_permit_renewal;

    if (ev->handler == NULL) {
        ngx_queue_init(&ngx_rl_permit_checks);
        ev->handler = ngx_rl_permit_renewal_handler;
        ev->data = ev;              /* debug logs read some bytes of it */
        ev->cancelable = 1;
    }

    ngx_queue_insert_tail(&ngx_rl_permit_checks, &check->holds);

    if (!ev->timer_set) {
        ev->log = ngx_cycle->log;
        ngx_add_timer(ev, NGX_RL_PERMIT_RENEW_MS);
    }
}


void
ngx_rl_permit_take(ngx_rl_counter_t *counter)
{
    uint32_t           want, in_use, tick;
    uint64_t           share;
    ngx_rl_limit_t     limit;
    ngx_rl_answer_t   *answer;
    ngx_rl_permits_t   p;

    /*
     * A gateway that counts alone has its share of the permits, at least one.
     * Permits that Redis has granted count, too.
     */

    limit = *counter->limit;
    share = (uint64_t) limit.capacity * 2 / ngx_rl_counter_weight(counter);
    limit.capacity = (uint32_t) ngx_max(share, 1);
    answer = &counter->answer;
    want = counter->look ? NGX_RL_LOOK : 0;

    in_use = ngx_rl_permit_begin(counter, &p, 1);

    ngx_rl_concurrency_take(&in_use, &limit, counter->cost, want, answer);

    /* a flood of rejections adds up once in a tick */

    tick = ngx_rl_tick(p.now_us);

    if (answer->retry_us && p.entry.found && p.entry.state.aux != tick) {

        p.entry.state.aux = tick;
        in_use = ngx_rl_permit_count(&p, 1);

        ngx_rl_concurrency_take(&in_use, &limit, counter->cost, want, answer);
    }

    if (answer->granted) {
        (void) ngx_rl_permit_inner(&p, ngx_rl_life, 1);
        ngx_rl_permit_keep(counter);
    }

    ngx_rl_permit_store(&p.entry, in_use, p.now_us);
}


void
ngx_rl_permit_hold(ngx_rl_counter_t *counter)
{
    uint32_t          in_use;
    ngx_rl_permits_t  p;

    in_use = ngx_rl_permit_begin(counter, &p, 0);

    (void) ngx_rl_permit_inner(&p, ngx_rl_life, 1);
    ngx_rl_permit_keep(counter);

    ngx_rl_permit_store(&p.entry, in_use + 1, p.now_us);
}


void
ngx_rl_permit_free(ngx_rl_counter_t *counter)
{
    uint32_t          in_use;
    ngx_rl_permits_t  p;

    counter->permit = 0;

    ngx_rl_permit_lock(counter->client->limiter, ngx_rl_counter_id(counter),
                       &p);
    in_use = p.entry.state.extra;   /* NOLINT(clang-analyzer-*) */

    (void) ngx_rl_permit_inner(&p, ngx_rl_life, -1);
    ngx_rl_permit_store(&p.entry, in_use ? in_use - 1 : 0, p.now_us);

    if (counter->backend == &ngx_rl_peered) {
        ngx_rl_fleet_tell(counter, 0);
    }
}


void
ngx_rl_permit_told(const ngx_rl_limiter_t *limiter, const ngx_rl_id_t *id,
    uint64_t peer, uint32_t permits)
{
    ngx_rl_id_t       inner;
    ngx_rl_entry_t    entry;
    ngx_rl_permits_t  p;

    ngx_rl_permit_lock(limiter, *id, &p);

    inner = ngx_rl_table_inner_id(&p.id, peer);
    ngx_rl_table_lock_inner(limiter->zone.table, &inner, p.now_us, &entry);

    entry.state.extra = permits;
    entry.state.fresh_us = permits ? p.now_us + NGX_RL_PERMIT_TOLD_US : 0;
    ngx_rl_table_store(&entry, permits ? NGX_RL_PERMIT_LOSS : 0);

    /* the outer counter may have been added up while the peer was away */

    ngx_rl_permit_store(&p.entry, ngx_rl_permit_count(&p, 1), p.now_us);
}


uint32_t
ngx_rl_permit_own(const ngx_rl_limiter_t *limiter, const ngx_rl_id_t *id)
{
    uint32_t          in_use;
    ngx_rl_permits_t  p;

    ngx_rl_permit_lock(limiter, *id, &p);

    in_use = ngx_rl_permit_count(&p, 0);

    ngx_rl_table_unlock(&p.entry);

    return in_use;
}

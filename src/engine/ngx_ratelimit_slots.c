/*
 * Concurrency on this node: slots that requests hold while they run.
 *
 * An outer counter holds the slots in use, an inner one for each worker those
 * that this worker's requests hold. A worker that was killed leaves its slots
 * in the outer counter: whoever is about to be denied adds up the inner
 * counters of the workers alive, and so takes them back. The inner counter is
 * written first: a worker that dies before it has written the outer one leaves
 * that right, or too high, which adding up mends.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_concurrency.h"

/* nobody knows when a request ends: as good as never */
#define NGX_RATELIMIT_SLOT_FAR_US      NGX_RATELIMIT_MAX_PERIOD_US

/* a flood of denials adds up once in this time: 2^17 us, in 12 bits */
#define NGX_RATELIMIT_SLOT_TICK_SHIFT  17
#define NGX_RATELIMIT_SLOT_TICK_MASK   0xfff

static uint32_t ngx_ratelimit_slot_count(ngx_ratelimit_zone_t *zone,
    const ngx_ratelimit_id_t *id, uint64_t now_us);
static void ngx_ratelimit_slot_add(ngx_ratelimit_zone_t *zone,
    const ngx_ratelimit_id_t *id, uint64_t now_us, ngx_int_t n);
static void ngx_ratelimit_slot_store(ngx_ratelimit_entry_t *entry,
    uint32_t in_use, uint64_t now_us, uint32_t loss);


void
ngx_ratelimit_slot_take(ngx_ratelimit_counter_t *counter)
{
    uint32_t                      want, in_use, tick;
    uint64_t                      now_us;
    ngx_ratelimit_id_t            id;
    ngx_ratelimit_zone_t         *zone;
    ngx_ratelimit_entry_t         entry;
    ngx_ratelimit_answer_t       *answer;
    const ngx_ratelimit_limit_t  *limit;

    zone = &counter->client->limiter->zone;
    limit = counter->limit;
    answer = &counter->answer;
    id = ngx_ratelimit_local_id(counter);
    now_us = ngx_ratelimit_local_now_us();

    /* without a life of its own a worker can only look */
    want = (counter->look || zone->life == 0) ? NGX_RATELIMIT_LOOK : 0;

    ngx_ratelimit_table_lock_outer(zone->table, &id, now_us, &entry);

    in_use = entry.state.extra;

    ngx_ratelimit_concurrency_take(&in_use, limit, counter->cost, want,
                                   answer);

    tick = (now_us >> NGX_RATELIMIT_SLOT_TICK_SHIFT)
           & NGX_RATELIMIT_SLOT_TICK_MASK;

    if (answer->retry_us && entry.state.aux != tick) {

        entry.state.aux = tick;
        in_use = ngx_ratelimit_slot_count(zone, &id, now_us);

        ngx_ratelimit_concurrency_take(&in_use, limit, counter->cost, want,
                                       answer);
    }

    if (answer->granted) {
        ngx_ratelimit_slot_add(zone, &id, now_us, 1);
        counter->held = 1;
    }

    ngx_ratelimit_slot_store(&entry, in_use, now_us,
                             ngx_ratelimit_limit_used(limit,
                                                      answer->remaining));
}


void
ngx_ratelimit_slot_free(ngx_ratelimit_counter_t *counter)
{
    uint64_t                now_us;
    ngx_ratelimit_id_t      id;
    ngx_ratelimit_zone_t   *zone;
    ngx_ratelimit_entry_t   entry;

    zone = &counter->client->limiter->zone;
    id = ngx_ratelimit_local_id(counter);
    now_us = ngx_ratelimit_local_now_us();

    counter->held = 0;

    /* the outer lock is held over both: who adds up sees both or neither */

    ngx_ratelimit_table_lock_outer(zone->table, &id, now_us, &entry);

    if (entry.found && entry.state.extra) {
        entry.state.extra--;
    }

    ngx_ratelimit_slot_add(zone, &id, now_us, -1);
    ngx_ratelimit_slot_store(&entry, entry.state.extra, now_us, 128);
}


/* The slots that the requests of living workers hold. */
static uint32_t
ngx_ratelimit_slot_count(ngx_ratelimit_zone_t *zone,
    const ngx_ratelimit_id_t *id, uint64_t now_us)
{
    uint32_t                in_use;
    uint64_t                alive[NGX_RATELIMIT_LIVES];
    ngx_uint_t              i, n;
    ngx_ratelimit_id_t      inner;
    ngx_ratelimit_entry_t   entry;

    n = ngx_ratelimit_lives_list(zone->lives, alive);
    in_use = 0;

    for (i = 0; i < n; i++) {
        inner = ngx_ratelimit_table_inner_id(id, alive[i]);

        ngx_ratelimit_table_lock_inner(zone->table, &inner, now_us, &entry);
        in_use += entry.state.extra;
        ngx_ratelimit_table_unlock(&entry);
    }

    return in_use;
}


static void
ngx_ratelimit_slot_add(ngx_ratelimit_zone_t *zone,
    const ngx_ratelimit_id_t *id, uint64_t now_us, ngx_int_t n)
{
    ngx_ratelimit_id_t     inner;
    ngx_ratelimit_entry_t  entry;

    inner = ngx_ratelimit_table_inner_id(id, zone->life);

    ngx_ratelimit_table_lock_inner(zone->table, &inner, now_us, &entry);

    if (n > 0 || entry.state.extra) {
        entry.state.extra += n;
    }

    /* lost, it would take slots from requests that run: the last to go */
    ngx_ratelimit_slot_store(&entry, entry.state.extra, now_us, 255);
}


/* With no slot in use a counter equals a fresh one. */
static void
ngx_ratelimit_slot_store(ngx_ratelimit_entry_t *entry, uint32_t in_use,
    uint64_t now_us, uint32_t loss)
{
    entry->state.extra = in_use;
    entry->state.fresh_us = in_use ? now_us + NGX_RATELIMIT_SLOT_FAR_US : 0;

    ngx_ratelimit_table_store(entry, loss);
}

/*
 * "retry=growth": a client that comes back before its Retry-After waits longer.
 *
 * A counter that rejects leaves an entry beside it in this gateway's table: the
 * moment at which the client may come back. The entry then equals a fresh one,
 * as that of any counter does, so it needs neither a timer nor a sweep. extra
 * is the first wait in seconds, aux how often it has grown and, so that an
 * entry of another limit says nothing, some bits of the limit's mark. A counter
 * has several entries, by the mark: where two limits take turns, each wait
 * grows.
 */

#include "ngx_rl_backend.h"

#include "ngx_rl_text.h"

/* a wait doubles so often at the most, and up to so much */
#define NGX_RL_RETRY_STEPS      6
#define NGX_RL_RETRY_MAX_S      3600

/*
 * Requests that come so soon behind a rejection may have left before the client
 * read it: they wait as it says.
 */
#define NGX_RL_RETRY_FLIGHT_US  250000

/* what the cached clocks of two workers may differ by */
#define NGX_RL_RETRY_SLACK_US   20000

/* of its entry: less than a counter that rejects */
#define NGX_RL_RETRY_LOSS       254

/* of its id; no time is that long */
#define NGX_RL_RETRY_BESIDE     ((uint64_t) 1 << 62)

#define NGX_RL_RETRY_ENTRIES    16

#define NGX_RL_RETRY_STEP_BITS  3

#define ngx_rl_retry_step(state)                                              \
    ((state)->aux & ((1u << NGX_RL_RETRY_STEP_BITS) - 1))
#define ngx_rl_retry_mark(counter)                                            \
    ((uint32_t) (counter)->limit->whole << NGX_RL_RETRY_STEP_BITS             \
     & NGX_RL_AUX_MASK)

/* a mark is odd */
#define ngx_rl_retry_number(counter)                                          \
    ((counter)->limit->whole / 2 % NGX_RL_RETRY_ENTRIES)


/* With Redis another gateway's reset of any counter forgets all of them. */
static void
ngx_rl_retry_lock(const ngx_rl_counter_t *counter, ngx_uint_t number,
    ngx_rl_entry_t *entry)
{
    uint64_t              beside;
    ngx_rl_id_t           id;
    const ngx_rl_zone_t  *zone;

    zone = &counter->client->limiter->zone;
    beside = NGX_RL_RETRY_BESIDE + ((uint64_t) number << 56);

    if (zone->leases) {
        beside += ngx_rl_leases_forgot_us(zone->leases);
    }

    id = ngx_rl_counter_id(counter);
    id = ngx_rl_id_vary(&id, beside);

    ngx_rl_table_lock(zone->table, &id, ngx_rl_local_now_us(), entry);
}


/* Whether the client has to wait, by a rejection under the same limit. */
static ngx_uint_t
ngx_rl_retry_waits(const ngx_rl_counter_t *counter, const ngx_rl_entry_t *entry)
{
    return entry->state.fresh_us > entry->now_us + NGX_RL_RETRY_SLACK_US
           && entry->state.aux - ngx_rl_retry_step(&entry->state)
              == ngx_rl_retry_mark(counter);
}


static uint64_t
ngx_rl_retry_wait_us(const ngx_rl_state_t *state)
{
    uint64_t  wait_s;

    wait_s = state->extra;

    if (wait_s < NGX_RL_RETRY_MAX_S) {
        wait_s = ngx_min(wait_s << ngx_rl_retry_step(state),
                         NGX_RL_RETRY_MAX_S);
    }

    return wait_s * 1000000;
}


static ngx_uint_t
ngx_rl_retry_early_one(ngx_rl_counter_t *counter)
{
    uint64_t         since_us;
    ngx_rl_entry_t   entry;
    ngx_rl_state_t  *state;

    ngx_rl_retry_lock(counter, ngx_rl_retry_number(counter), &entry);

    if (!ngx_rl_retry_waits(counter, &entry)) {
        ngx_rl_table_unlock(&entry);
        return 0;
    }

    state = &entry.state;
    since_us = state->fresh_us - ngx_rl_retry_wait_us(state);

    if (state->extra < NGX_RL_RETRY_MAX_S
        && entry.now_us >= since_us + NGX_RL_RETRY_FLIGHT_US)
    {
        state->aux += (ngx_rl_retry_step(state) < NGX_RL_RETRY_STEPS);
        state->fresh_us = entry.now_us + ngx_rl_retry_wait_us(state);
    }

    counter->answer.retry_us = state->fresh_us - entry.now_us;

    ngx_rl_table_store(&entry, NGX_RL_RETRY_LOSS);

    return 1;
}


/* A dry run makes nobody wait, and what costs nothing always passes. */
ngx_uint_t
ngx_rl_retry_early(ngx_rl_check_t *check)
{
    ngx_uint_t         i, early;
    ngx_rl_counter_t  *counter;

    early = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if ((counter->rule->needs & NGX_RL_NEEDS_RETRY)
            && counter->cost && !counter->dry_run)
        {
            early |= ngx_rl_retry_early_one(counter) << i;
        }
    }

    return early;
}


/*
 * The wait is that of Retry-After, in whole seconds. One that another request
 * has left in the meantime stays.
 */
void
ngx_rl_retry_note(const ngx_rl_check_t *check)
{
    ngx_uint_t               i;
    ngx_rl_entry_t           entry;
    const ngx_rl_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (!(counter->rule->needs & NGX_RL_NEEDS_RETRY)
            || counter->dry_run || counter->emergency
            || counter->answer.retry_us == 0
            || counter->answer.retry_us == NGX_RL_NEVER
            || ngx_rl_counter_unavailable(counter))
        {
            continue;
        }

        ngx_rl_retry_lock(counter, ngx_rl_retry_number(counter), &entry);

        if (ngx_rl_retry_waits(counter, &entry)) {
            ngx_rl_table_unlock(&entry);
            continue;
        }

        entry.state.extra
            = (uint32_t) ngx_rl_seconds_up(counter->answer.retry_us);
        entry.state.aux = ngx_rl_retry_mark(counter);
        entry.state.fresh_us = entry.now_us
                               + ngx_rl_retry_wait_us(&entry.state);

        ngx_rl_table_store(&entry, NGX_RL_RETRY_LOSS);
    }
}


void
ngx_rl_retry_forget(const ngx_rl_counter_t *counter)
{
    ngx_uint_t      i;
    ngx_rl_entry_t  entry;

    for (i = 0; i < NGX_RL_RETRY_ENTRIES; i++) {
        ngx_rl_retry_lock(counter, i, &entry);

        if (!entry.found) {
            ngx_rl_table_unlock(&entry);
            continue;
        }

        ngx_memzero(&entry.state, sizeof(ngx_rl_state_t));
        ngx_rl_table_store(&entry, 0);
    }
}


uint64_t
ngx_rl_retry_left(const ngx_rl_counter_t *counter)
{
    uint64_t        left_us;
    ngx_rl_entry_t  entry;

    if (!(counter->rule->needs & NGX_RL_NEEDS_RETRY)) {
        return 0;
    }

    ngx_rl_retry_lock(counter, ngx_rl_retry_number(counter), &entry);

    left_us = ngx_rl_retry_waits(counter, &entry)
              ? entry.state.fresh_us - entry.now_us : 0;

    ngx_rl_table_unlock(&entry);

    return left_us;
}

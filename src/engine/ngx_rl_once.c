/*
 * "ratelimit_once": a replay of a request costs nothing.
 *
 * A counter that a request has paid leaves a mark in this gateway's table,
 * named by the counter and by what makes two requests the same one. fresh_us is
 * its end, extra what was paid, aux how many replays are left. A replay that
 * costs more pays the difference.
 *
 * A client can send what it likes as a replay, so free replays have a number.
 */

#include "ngx_rl_backend.h"

#include "ngx_rl_hash.h"

/*
 * Of a mark. A client that retries after 1, 2 and 4 seconds needs three. It may
 * have four times its limit this way, with requests that are the same.
 */
#define NGX_RL_ONCE_REPLAYS  3

/* a replay takes its permit, since it runs */
#define ngx_rl_once_applies(counter)                                          \
    ((counter)->limit->algorithm != NGX_RL_CONCURRENCY)


/* Whether there is a mark; it is locked in any case. */
static ngx_uint_t
ngx_rl_once_lock(const ngx_rl_counter_t *counter, const ngx_rl_id_t *mark,
    ngx_rl_entry_t *entry)
{
    ngx_rl_table_lock(counter->client->limiter->zone.table, mark,
                      ngx_rl_local_now_us(), entry);

    return entry->state.fresh_us > entry->now_us;
}


void
ngx_rl_once_begin(ngx_rl_check_t *check, ngx_rl_once_t *once, ngx_uint_t use)
{
    ngx_uint_t                i;
    ngx_rl_id_t              *mark, id;
    ngx_rl_entry_t            entry;
    ngx_rl_counter_t         *counter;
    const ngx_rl_hash_key_t  *hash_key;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        mark = &once->marks[i];
        once->paid[i] = 0;

        if (!ngx_rl_once_applies(counter)) {
            continue;
        }

        id = ngx_rl_counter_id(counter);
        ngx_memcpy(once->text, &id, sizeof(ngx_rl_id_t));

        hash_key = ngx_rl_table_hash_key(counter->client->limiter->zone.table);
        *mark = ngx_rl_hash(hash_key, once->text, once->len);

        if (!ngx_rl_once_lock(counter, mark, &entry) || entry.state.aux == 0) {
            ngx_rl_table_unlock(&entry);
            continue;
        }

        once->paid[i] = entry.state.extra;
        counter->cost -= ngx_min(counter->cost, once->paid[i]);

        entry.state.aux -= use;
        ngx_rl_table_store_mark(&entry);
    }
}


static void
ngx_rl_once_back(const ngx_rl_counter_t *counter, const ngx_rl_id_t *mark)
{
    ngx_rl_entry_t  entry;

    if (!ngx_rl_once_lock(counter, mark, &entry)
        || entry.state.aux == NGX_RL_ONCE_REPLAYS)
    {
        ngx_rl_table_unlock(&entry);
        return;
    }

    entry.state.aux++;
    ngx_rl_table_store_mark(&entry);
}


/* A counter without an answer has counted nothing, or on this gateway alone. */
static void
ngx_rl_once_paid(ngx_rl_counter_t *counter, const ngx_rl_once_t *once,
    const ngx_rl_id_t *mark)
{
    ngx_rl_entry_t  entry;

    if (counter->cost == 0 || counter->answer.retry_us
        || counter->source == NGX_RL_SOURCE_FALLBACK)
    {
        return;
    }

    (void) ngx_rl_once_lock(counter, mark, &entry);

    entry.state.fresh_us = entry.now_us + once->time_us;
    entry.state.extra = counter->cost;
    entry.state.aux = NGX_RL_ONCE_REPLAYS;

    ngx_rl_table_store_mark(&entry);
}


void
ngx_rl_once_end(ngx_rl_check_t *check, const ngx_rl_once_t *once,
    ngx_uint_t when)
{
    ngx_uint_t         i, needs, last;
    ngx_rl_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (!ngx_rl_once_applies(counter)) {
            continue;
        }

        /*
         * A replay asks nobody: its answer is what was left. A rejected request
         * gives its tokens back, which the lease would take for a loss.
         */

        if (when == 0 && !ngx_rl_check_refused(check)
            && counter->backend == &ngx_rl_strict
            && counter->source == NGX_RL_SOURCE_REDIS
            && !counter->alone && !counter->rule->dynamic_cost)
        {
            ngx_rl_leased_learn(counter, 1);
        }

        if (once->paid[i]) {
            if (when == 0 && ngx_rl_check_refused(check)) {
                ngx_rl_once_back(counter, &once->marks[i]);
            }

            continue;
        }

        /* a rule with both bits is one with the later */

        needs = counter->rule->needs;
        last = (needs & NGX_RL_NEEDS_END)
               ? NGX_RL_NEEDS_END
               : (needs & NGX_RL_NEEDS_SETTLE);

        if (when == last && !ngx_rl_check_refused(check)) {
            ngx_rl_once_paid(counter, once, &once->marks[i]);
        }
    }
}

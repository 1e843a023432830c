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

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_hash.h"

/*
 * Of a mark. A client that retries after 1, 2 and 4 seconds needs three. It may
 * have four times its limit this way, with requests that are the same.
 */
#define NGX_RATELIMIT_ONCE_REPLAYS  3

/* a replay takes its permit, since it runs */
#define ngx_ratelimit_once_applies(counter)                                   \
    ((counter)->limit->algorithm != NGX_RATELIMIT_CONCURRENCY)

static ngx_uint_t ngx_ratelimit_once_lock(
    const ngx_ratelimit_counter_t *counter, const ngx_ratelimit_id_t *mark,
    ngx_ratelimit_entry_t *entry);
static void ngx_ratelimit_once_back(const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_id_t *mark);
static void ngx_ratelimit_once_paid(ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_once_t *once, const ngx_ratelimit_id_t *mark);


void
ngx_ratelimit_once_begin(ngx_ratelimit_check_t *check,
    ngx_ratelimit_once_t *once, ngx_uint_t use)
{
    ngx_uint_t                       i;
    ngx_ratelimit_id_t              *mark, id;
    ngx_ratelimit_entry_t            entry;
    ngx_ratelimit_counter_t         *counter;
    const ngx_ratelimit_hash_key_t  *hash_key;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        mark = &once->marks[i];
        once->paid[i] = 0;

        if (!ngx_ratelimit_once_applies(counter)) {
            continue;
        }

        id = ngx_ratelimit_counter_id(counter);
        ngx_memcpy(once->text, &id, sizeof(ngx_ratelimit_id_t));

        hash_key = ngx_ratelimit_table_hash_key(
                                         counter->client->limiter->zone.table);
        *mark = ngx_ratelimit_hash(hash_key, once->text, once->len);

        if (!ngx_ratelimit_once_lock(counter, mark, &entry)
            || entry.state.aux == 0)
        {
            ngx_ratelimit_table_unlock(&entry);
            continue;
        }

        once->paid[i] = entry.state.extra;
        counter->cost -= ngx_min(counter->cost, once->paid[i]);

        entry.state.aux -= use;
        ngx_ratelimit_table_store_mark(&entry);
    }
}


void
ngx_ratelimit_once_end(ngx_ratelimit_check_t *check,
    const ngx_ratelimit_once_t *once, ngx_uint_t when)
{
    ngx_uint_t                i, needs, last;
    ngx_ratelimit_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (!ngx_ratelimit_once_applies(counter)) {
            continue;
        }

        /*
         * A replay asks nobody: it is told what was left. What a rejected
         * request took comes back, which the lease would take for a loss.
         */

        if (when == 0 && !ngx_ratelimit_check_refused(check)
            && counter->backend == &ngx_ratelimit_strict
            && counter->source == NGX_RATELIMIT_SOURCE_REDIS
            && !counter->alone && !counter->rule->dynamic_cost)
        {
            ngx_ratelimit_leased_tell(counter, 1);
        }

        if (once->paid[i]) {
            if (when == 0 && ngx_ratelimit_check_refused(check)) {
                ngx_ratelimit_once_back(counter, &once->marks[i]);
            }

            continue;
        }

        /* a rule with both bits is one with the later */

        needs = counter->rule->needs;
        last = (needs & NGX_RATELIMIT_NEEDS_END)
               ? NGX_RATELIMIT_NEEDS_END
               : (needs & NGX_RATELIMIT_NEEDS_SETTLE);

        if (when == last && !ngx_ratelimit_check_refused(check)) {
            ngx_ratelimit_once_paid(counter, once, &once->marks[i]);
        }
    }
}


/* Whether there is a mark; it is locked in any case. */
static ngx_uint_t
ngx_ratelimit_once_lock(const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_id_t *mark, ngx_ratelimit_entry_t *entry)
{
    ngx_ratelimit_table_lock(counter->client->limiter->zone.table, mark,
                             ngx_ratelimit_local_now_us(), entry);

    return entry->state.fresh_us > entry->now_us;
}


static void
ngx_ratelimit_once_back(const ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_id_t *mark)
{
    ngx_ratelimit_entry_t  entry;

    if (!ngx_ratelimit_once_lock(counter, mark, &entry)
        || entry.state.aux == NGX_RATELIMIT_ONCE_REPLAYS)
    {
        ngx_ratelimit_table_unlock(&entry);
        return;
    }

    entry.state.aux++;
    ngx_ratelimit_table_store_mark(&entry);
}


/* A counter without an answer has counted nothing, or on this gateway alone. */
static void
ngx_ratelimit_once_paid(ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_once_t *once, const ngx_ratelimit_id_t *mark)
{
    ngx_ratelimit_entry_t  entry;

    if (counter->cost == 0 || counter->answer.retry_us
        || counter->source == NGX_RATELIMIT_SOURCE_FALLBACK)
    {
        return;
    }

    (void) ngx_ratelimit_once_lock(counter, mark, &entry);

    entry.state.fresh_us = entry.now_us + once->time_us;
    entry.state.extra = counter->cost;
    entry.state.aux = NGX_RATELIMIT_ONCE_REPLAYS;

    ngx_ratelimit_table_store_mark(&entry);
}

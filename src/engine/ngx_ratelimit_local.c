/*
 * Counters of this node alone: exact, in shared memory.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_hash.h"

static uint64_t ngx_ratelimit_local_lock(ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_entry_t *entry, ngx_ratelimit_token_bucket_t *tb);
static void ngx_ratelimit_local_store(ngx_ratelimit_entry_t *entry,
    const ngx_ratelimit_token_bucket_t *tb, const ngx_ratelimit_rate_t *rate,
    uint32_t remaining);


void
ngx_ratelimit_local_take(ngx_ratelimit_counter_t *counter)
{
    uint64_t                      now_us;
    ngx_ratelimit_entry_t         entry;
    ngx_ratelimit_token_bucket_t  tb;

    counter->source = NGX_RATELIMIT_SOURCE_LOCAL;

    now_us = ngx_ratelimit_local_lock(counter, &entry, &tb);

    ngx_ratelimit_token_bucket_take(&tb, counter->rate, now_us, 1, 1,
                                    &counter->answer);

    ngx_ratelimit_local_store(&entry, &tb, counter->rate,
                              counter->answer.remaining);
}


void
ngx_ratelimit_local_give(ngx_ratelimit_counter_t *counter)
{
    uint64_t                      now_us;
    ngx_ratelimit_entry_t         entry;
    ngx_ratelimit_answer_t        left;
    ngx_ratelimit_token_bucket_t  tb;

    now_us = ngx_ratelimit_local_lock(counter, &entry, &tb);

    if (!entry.found) {
        ngx_ratelimit_table_unlock(&entry);
        return;
    }

    ngx_ratelimit_token_bucket_give(&tb, counter->rate, now_us,
                                    counter->answer.granted);
    ngx_ratelimit_token_bucket_take(&tb, counter->rate, now_us, 0, 0, &left);

    ngx_ratelimit_local_store(&entry, &tb, counter->rate,
                              left.remaining);
}


/*
 * Finds the counter and leaves it locked. Returns the time to decide by:
 * nginx's cached monotonic clock, which no step of the system's clock moves.
 */
static uint64_t
ngx_ratelimit_local_lock(ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_entry_t *entry, ngx_ratelimit_token_bucket_t *tb)
{
    uint64_t             now_us;
    ngx_ratelimit_id_t   id;

    now_us = (uint64_t) ngx_current_msec * 1000;

    id.hi = counter->client->hash.hi ^ counter->rule->salt.hi;
    id.lo = counter->client->hash.lo ^ counter->rule->salt.lo;

    ngx_ratelimit_table_lock(counter->client->limiter->zone.table, &id,
                             now_us, entry);

    tb->tat_us = entry->state.fresh_us;
    tb->tat_frac = entry->state.extra;
    tb->span_code = entry->state.aux;

    return now_us;
}


/* What would be lost with the counter is the share of it that is used. */
static void
ngx_ratelimit_local_store(ngx_ratelimit_entry_t *entry,
    const ngx_ratelimit_token_bucket_t *tb, const ngx_ratelimit_rate_t *rate,
    uint32_t remaining)
{
    entry->state.fresh_us = tb->tat_us;
    entry->state.extra = tb->tat_frac;
    entry->state.aux = tb->span_code;

    ngx_ratelimit_table_store(entry,
                              ngx_ratelimit_token_bucket_used(rate,
                                                              remaining));
}

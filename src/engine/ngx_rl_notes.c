/*
 * Notes: what stands beside a counter in this gateway's table. A wait: when a
 * client that was rejected may come back ("retry=growth"). A replay: what a
 * request has paid ("ratelimit_once"). A known value of a key ("new_keys=").
 *
 * All have one encoding: until fresh_us a number (extra) and 12 bits (aux) say
 * something. Then a note equals none, as a counter equals a fresh one: so it
 * needs neither a timer nor a sweep, survives a reload, and is evicted like a
 * counter, by the loss of its kind.
 */

#include "ngx_rl_backend.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_text.h"

/* the loss of each kind, see ngx_rl_table_store() */
typedef enum {
    NGX_RL_NOTE_KNOWN = 127,   /* that of a counter of which half is used */
    NGX_RL_NOTE_WAIT = 254,    /* less than a counter that rejects */
    NGX_RL_NOTE_REPLAY = 256   /* it loses against every counter */
} ngx_rl_note_e;

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

/* of its id; no time is that long */
#define NGX_RL_RETRY_BESIDE     ((uint64_t) 1 << 62)

#define NGX_RL_RETRY_ENTRIES    16

#define NGX_RL_RETRY_STEP_BITS  3

/*
 * Free replays of a request. A client that retries after 1, 2 and 4 seconds
 * needs three. It may have four times its limit this way, with requests that
 * are the same: it can send what it likes as a replay.
 */
#define NGX_RL_ONCE_REPLAYS     3

/* how long a value is known behind its last request */
#define NGX_RL_KNOWN_US         ((uint64_t) 86400 * 1000000)

#define ngx_rl_retry_step(state)                                              \
    ((state)->aux & ((1u << NGX_RL_RETRY_STEP_BITS) - 1))
#define ngx_rl_retry_mark(counter)                                            \
    ((uint32_t) (counter)->limit->whole << NGX_RL_RETRY_STEP_BITS             \
     & NGX_RL_AUX_MASK)

/* a mark is odd */
#define ngx_rl_retry_number(counter)                                          \
    ((counter)->limit->whole / 2 % NGX_RL_RETRY_ENTRIES)

/* a replay takes its permit, since it runs */
#define ngx_rl_once_applies(counter)                                          \
    ((counter)->limit->algorithm != NGX_RL_CONCURRENCY)

#define ngx_rl_note_stands(note)  ((note)->state.fresh_us > (note)->now_us)


/* Writes the note, and unlocks. */
static void
ngx_rl_note_keep(ngx_rl_entry_t *note, ngx_rl_note_e kind, uint64_t until_us,
    uint32_t extra, uint32_t aux)
{
    note->state.fresh_us = until_us;
    note->state.extra = extra;
    note->state.aux = aux;

    if (kind == NGX_RL_NOTE_REPLAY) {
        ngx_rl_table_store_mark(note);
    } else {
        ngx_rl_table_store(note, kind);
    }
}


/*
 * Waits: extra is the first wait in seconds, aux how often it has grown and, so
 * that a note of another limit says nothing, some bits of the limit's mark. A
 * counter has several, by the mark: where two limits take turns, each wait
 * grows. With Redis another gateway's reset of any counter forgets all of them.
 */
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


/* A dry run makes nobody wait, and what costs nothing always passes. */
ngx_uint_t
ngx_rl_retry_early(ngx_rl_check_t *check)
{
    uint64_t           since_us;
    ngx_uint_t         i, early;
    ngx_rl_entry_t     entry;
    ngx_rl_state_t    *state;
    ngx_rl_counter_t  *counter;

    early = 0;
    state = &entry.state;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (!(counter->rule->needs & NGX_RL_NEEDS_RETRY)
            || counter->cost == 0 || counter->dry_run)
        {
            continue;
        }

        ngx_rl_retry_lock(counter, ngx_rl_retry_number(counter), &entry);

        if (!ngx_rl_retry_waits(counter, &entry)) {
            ngx_rl_table_unlock(&entry);
            continue;
        }

        early |= (ngx_uint_t) 1 << i;
        since_us = state->fresh_us - ngx_rl_retry_wait_us(state);

        if (state->extra < NGX_RL_RETRY_MAX_S
            && entry.now_us >= since_us + NGX_RL_RETRY_FLIGHT_US)
        {
            state->aux += (ngx_rl_retry_step(state) < NGX_RL_RETRY_STEPS);
            state->fresh_us = entry.now_us + ngx_rl_retry_wait_us(state);
        }

        counter->answer.retry_us = state->fresh_us - entry.now_us;

        ngx_rl_note_keep(&entry, NGX_RL_NOTE_WAIT, state->fresh_us,
                         state->extra, state->aux);
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
        ngx_rl_note_keep(&entry, NGX_RL_NOTE_WAIT,
                         entry.now_us + ngx_rl_retry_wait_us(&entry.state),
                         entry.state.extra, entry.state.aux);
    }
}


void
ngx_rl_retry_forget(const ngx_rl_counter_t *counter)
{
    ngx_uint_t      i;
    ngx_rl_entry_t  entry;

    for (i = 0; i < NGX_RL_RETRY_ENTRIES; i++) {
        ngx_rl_retry_lock(counter, i, &entry);
        ngx_rl_table_drop(&entry);
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


/*
 * Replays: named by the counter and by what makes two requests the same one.
 * extra is what was paid, aux how many replays are left. A replay that costs
 * more pays the difference.
 */
static void
ngx_rl_once_lock(const ngx_rl_counter_t *counter, const ngx_rl_id_t *name,
    ngx_rl_entry_t *entry)
{
    ngx_rl_table_lock(counter->client->limiter->zone.table, name,
                      ngx_rl_local_now_us(), entry);
}


void
ngx_rl_once_begin(ngx_rl_check_t *check, ngx_rl_once_t *once, ngx_uint_t use)
{
    ngx_uint_t                i;
    ngx_rl_id_t              *name, id;
    ngx_rl_entry_t            entry;
    ngx_rl_counter_t         *counter;
    const ngx_rl_hash_key_t  *hash_key;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        name = &once->notes[i];
        once->paid[i] = 0;

        if (!ngx_rl_once_applies(counter)) {
            continue;
        }

        id = ngx_rl_counter_id(counter);
        ngx_memcpy(once->text, &id, sizeof(ngx_rl_id_t));

        hash_key = ngx_rl_table_hash_key(counter->client->limiter->zone.table);
        *name = ngx_rl_hash(hash_key, once->text, once->len);

        ngx_rl_once_lock(counter, name, &entry);

        if (!ngx_rl_note_stands(&entry) || entry.state.aux == 0) {
            ngx_rl_table_unlock(&entry);
            continue;
        }

        once->paid[i] = entry.state.extra;
        counter->cost -= ngx_min(counter->cost, once->paid[i]);

        ngx_rl_note_keep(&entry, NGX_RL_NOTE_REPLAY, entry.state.fresh_us,
                         entry.state.extra, entry.state.aux - use);
    }
}


void
ngx_rl_once_end(ngx_rl_check_t *check, const ngx_rl_once_t *once,
    ngx_uint_t when)
{
    ngx_uint_t         i, needs, last;
    ngx_rl_entry_t     entry;
    ngx_rl_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (!ngx_rl_once_applies(counter)) {
            continue;
        }

        /*
         * A replay asks nobody: its answer is what was left. A rejected request
         * gives its tokens back, which the ledger would take for a loss.
         */

        if (when == 0 && !ngx_rl_check_refused(check)
            && counter->backend == &ngx_rl_strict
            && counter->source == NGX_RL_SOURCE_REDIS
            && !counter->alone && !counter->rule->dynamic_cost)
        {
            ngx_rl_leased_learn(counter, check->taken_us, 1);
        }

        if (once->paid[i]) {
            if (when == 0 && ngx_rl_check_refused(check)) {
                ngx_rl_once_lock(counter, &once->notes[i], &entry);

                if (!ngx_rl_note_stands(&entry)
                    || entry.state.aux == NGX_RL_ONCE_REPLAYS)
                {
                    ngx_rl_table_unlock(&entry);

                } else {
                    ngx_rl_note_keep(&entry, NGX_RL_NOTE_REPLAY,
                                     entry.state.fresh_us, entry.state.extra,
                                     entry.state.aux + 1);
                }
            }

            continue;
        }

        /* a rule with both bits is one with the later */

        needs = counter->rule->needs;
        last = (needs & NGX_RL_NEEDS_END)
               ? NGX_RL_NEEDS_END
               : (needs & NGX_RL_NEEDS_SETTLE);

        /*
         * A counter without an answer has counted nothing, or on this gateway
         * alone.
         */

        if (when == last && !ngx_rl_check_refused(check) && counter->cost
            && counter->answer.retry_us == 0
            && counter->source != NGX_RL_SOURCE_FALLBACK)
        {
            ngx_rl_once_lock(counter, &once->notes[i], &entry);
            ngx_rl_note_keep(&entry, NGX_RL_NOTE_REPLAY,
                             entry.now_us + once->time_us, counter->cost,
                             NGX_RL_ONCE_REPLAYS);
        }
    }
}


/*
 * Known keys. A value that is not known takes a token of its network, whose
 * bucket stands where the note of the network's own name would: no value has
 * such a name. The note is an outer counter and the bucket an inner one. So a
 * value takes one token, whichever workers see it at once.
 */
static ngx_rl_id_t
ngx_rl_key_id(ngx_rl_client_t *client, const ngx_rl_rule_t *rule)
{
    ngx_rl_id_t         id;
    const ngx_rl_id_t  *local;

    local = ngx_rl_client_local(client);

    id.hi = local->hi ^ rule->key_salt.hi;
    id.lo = local->lo ^ rule->key_salt.lo;

    return id;
}


/* Ends the lock: the value is known for as long as the first time. */
static void
ngx_rl_key_keep(ngx_rl_entry_t *entry, ngx_uint_t look)
{
    if (look) {
        ngx_rl_table_unlock(entry);
        return;
    }

    ngx_rl_note_keep(entry, NGX_RL_NOTE_KNOWN, entry->now_us + NGX_RL_KNOWN_US,
                     entry->state.extra, entry->state.aux);
}


ngx_uint_t
ngx_rl_key_known(ngx_rl_client_t *client, const ngx_rl_rule_t *rule,
    ngx_uint_t look)
{
    ngx_rl_id_t     id;
    ngx_rl_entry_t  entry;

    id = ngx_rl_key_id(client, rule);

    ngx_rl_table_lock_outer(client->limiter->zone.table, &id,
                            ngx_rl_local_now_us(), &entry);

    if (!ngx_rl_note_stands(&entry)) {
        ngx_rl_table_unlock(&entry);
        return 0;
    }

    ngx_rl_key_keep(&entry, look);

    return 1;
}


/* Takes a token of the network. The caller has the marker locked. */
static ngx_uint_t
ngx_rl_key_pay(const ngx_rl_limiter_t *limiter, const ngx_rl_id_t *id,
    uint64_t now_us, ngx_uint_t look)
{
    ngx_rl_entry_t          entry;
    ngx_rl_answer_t         answer;
    const ngx_rl_rate_t    *rate;
    ngx_rl_token_bucket_t   tb;

    rate = &limiter->new_keys->rate;

    ngx_rl_table_lock_inner(limiter->zone.table, id, now_us, &entry);

    tb.tat_us = entry.state.fresh_us;
    tb.tat_frac = entry.state.extra;
    tb.span_code = entry.state.aux;

    ngx_rl_token_bucket_take(&tb, rate, now_us, 1,
                             look ? NGX_RL_LOOK : 0, &answer);

    if (look) {
        ngx_rl_table_unlock(&entry);
        return answer.retry_us == 0;
    }

    entry.state.fresh_us = tb.tat_us;
    entry.state.extra = tb.tat_frac;
    entry.state.aux = tb.span_code;

    ngx_rl_table_store(&entry, ngx_rl_token_bucket_used(rate, answer.reset_us));

    return answer.retry_us == 0;
}


ngx_uint_t
ngx_rl_key_admit(ngx_rl_client_t *client, const ngx_rl_rule_t *rule,
    const ngx_str_t *network, ngx_uint_t look)
{
    ngx_rl_id_t       id, bucket;
    ngx_rl_entry_t    entry;
    ngx_rl_client_t   by;

    by = *client;
    by.key = *network;
    by.named = 0;

    id = ngx_rl_key_id(client, rule);
    bucket = ngx_rl_key_id(&by, rule);

    ngx_rl_table_lock_outer(client->limiter->zone.table, &id,
                            ngx_rl_local_now_us(), &entry);

    if (!ngx_rl_note_stands(&entry)
        && !ngx_rl_key_pay(client->limiter, &bucket, entry.now_us,
                           look))
    {
        ngx_rl_table_unlock(&entry);
        *client = by;
        return 0;
    }

    ngx_rl_key_keep(&entry, look);

    return 1;
}

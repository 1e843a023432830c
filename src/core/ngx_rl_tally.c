/*
 * The heaviest keys, by Space-Saving: each key that is kept has a count. A key
 * that is new takes the place of the one with the least count, and goes on from
 * that: so the count is too large by at most what the other had. With n places
 * the error is at most an n-th of all that was counted.
 */

#include "ngx_rl_tally.h"
#include "ngx_rl_text.h"

#include <string.h>

/* how far a sample may be off, in standard deviations, */
#define NGX_RL_TOP_DEVIATIONS  3
/* and how many of the stream may pass a key by */
#define NGX_RL_TOP_MISSED      6

/* from a fast Redis nearby to a long delay */
const uint64_t
ngx_rl_histogram_bounds_us[NGX_RL_HISTOGRAM_BOUNDS] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000,
    500000, 1000000, 2500000, 5000000, 10000000
};


unsigned
ngx_rl_histogram_bucket(uint64_t us)
{
    unsigned  i;

    for (i = 0; i < NGX_RL_HISTOGRAM_BOUNDS; i++) {
        if (us <= ngx_rl_histogram_bounds_us[i]) {
            break;
        }
    }

    return i;
}


int
ngx_rl_log_due(ngx_rl_log_limit_t *limit, uint64_t now_ms, uint64_t interval_ms,
    char note[NGX_RL_LOG_NOTE])
{
    u_char    *p;
    uint64_t   last, apart, suppressed;

    /* 0 means that there was no line */

    now_ms = now_ms ? now_ms : 1;
    last = atomic_load(&limit->written_ms);

    /* processes cache the time, so the last line may seem to be ahead */

    apart = (now_ms > last) ? now_ms - last : last - now_ms;

    if ((last && apart < interval_ms)
        || !atomic_compare_exchange_strong(&limit->written_ms, &last, now_ms))
    {
        (void) atomic_fetch_add(&limit->suppressed, 1);
        return 0;
    }

    suppressed = atomic_exchange(&limit->suppressed, 0);
    *note = '\0';

    if (suppressed) {
        memcpy(note, " (", 2);
        p = ngx_rl_number_write((u_char *) note + 2, suppressed);
        strcpy((char *) p, suppressed == 1 ? " similar line suppressed)"
                                           : " similar lines suppressed)");
    }

    return 1;
}


void
ngx_rl_sampler_init(ngx_rl_sampler_t *sampler)
{
    memset(sampler, 0, sizeof(ngx_rl_sampler_t));
    sampler->left = 1;
    sampler->weight = 1;
}


static void
ngx_rl_sampler_gap(ngx_rl_sampler_t *sampler, uint64_t random)
{
    sampler->left = 1 + random % (2 * sampler->weight - 1);
}


uint64_t
ngx_rl_sampler_take(ngx_rl_sampler_t *sampler, uint64_t random)
{
    uint64_t  weight;

    weight = sampler->weight + sampler->carried;

    sampler->carried = 0;
    sampler->seen += weight;
    sampler->taken++;

    if (sampler->taken == 2 * NGX_RL_TOP_SAMPLES) {
        sampler->taken = NGX_RL_TOP_SAMPLES;
        sampler->weight *= 2;
    }

    ngx_rl_sampler_gap(sampler, random);

    return weight;
}


void
ngx_rl_sampler_carry(ngx_rl_sampler_t *sampler, uint64_t weight)
{
    sampler->seen -= weight;
    sampler->carried += weight;
}


void
ngx_rl_sampler_tick(ngx_rl_sampler_t *sampler, uint64_t random)
{
    uint64_t  weight;

    weight = sampler->seen / NGX_RL_TOP_SAMPLES;
    weight = weight ? weight : 1;

    /* a gap that is given up counts for nothing: not for a little */

    if (weight >= 2 * sampler->weight || 2 * weight <= sampler->weight) {
        sampler->weight = weight;
        ngx_rl_sampler_gap(sampler, random);
    }

    sampler->seen = 0;
    sampler->taken = 0;
}


void
ngx_rl_top_turn(ngx_rl_top_t *top, uint64_t now_ms)
{
    int64_t   age_ms;
    uint64_t  next, began_ms;

    /* below 0: the caller's time is older than that of who began the turn */

    began_ms = top->began_ms[top->current];
    age_ms = (int64_t) (now_ms - began_ms);

    if (began_ms && age_ms < NGX_RL_TOP_TURN_MS) {
        return;
    }

    if (age_ms >= 2 * NGX_RL_TOP_TURN_MS) {
        top->began_ms[top->current] = 0;
        memset(&top->halves[top->current], 0, sizeof(ngx_rl_top_half_t));
    }

    next = !top->current;

    memset(&top->halves[next], 0, sizeof(ngx_rl_top_half_t));
    top->began_ms[next] = now_ms;
    top->current = next;
}


static ngx_rl_top_entry_t *
ngx_rl_top_find(const ngx_rl_top_half_t *half, const ngx_rl_id_t *id)
{
    int                        i;
    const ngx_rl_top_entry_t  *entry;

    entry = half->entries;

    for (i = 0; i < NGX_RL_TOP_ENTRIES; i++, entry++) {
        if (entry->id.lo == id->lo && entry->id.hi == id->hi) {
            return (ngx_rl_top_entry_t *) entry;
        }
    }

    return NULL;
}


static void
ngx_rl_top_weigh(ngx_rl_top_half_t *half, ngx_rl_top_entry_t *entry,
    uint64_t weight)
{
    half->total += weight;
    half->weight = ngx_rl_max(half->weight, weight);
    entry->count += weight;
    entry->variance += weight * (weight - 1);
}


int
ngx_rl_top_count(ngx_rl_top_t *top, const ngx_rl_id_t *id, uint64_t weight)
{
    ngx_rl_top_half_t   *half;
    ngx_rl_top_entry_t  *entry;

    half = &top->halves[top->current];
    entry = ngx_rl_top_find(half, id);

    if (entry) {
        ngx_rl_top_weigh(half, entry, weight);
    }

    return entry != NULL;
}


static const ngx_rl_top_entry_t *
ngx_rl_top_least(const ngx_rl_top_half_t *half)
{
    int                        i;
    const ngx_rl_top_entry_t  *least;

    least = half->entries;

    for (i = 1; i < NGX_RL_TOP_ENTRIES; i++) {
        if (half->entries[i].count < least->count) {
            least = &half->entries[i];
        }
    }

    return least;
}


void
ngx_rl_top_enter(ngx_rl_top_t *top, const ngx_rl_id_t *id, uint64_t weight,
    uint64_t kind, const unsigned char name[NGX_RL_TOP_NAME])
{
    ngx_rl_top_half_t   *half;
    ngx_rl_top_entry_t  *entry;

    if (ngx_rl_top_count(top, id, weight)) {
        return;
    }

    half = &top->halves[top->current];
    entry = (ngx_rl_top_entry_t *) ngx_rl_top_least(half);

    /* without its id it is nobody's: whoever dies inside mixes no two keys */

    entry->id.hi = 0;
    entry->id.lo = 0;

    atomic_signal_fence(memory_order_seq_cst);

    entry->error = entry->count;
    entry->variance = 0;
    entry->kind = kind;
    memcpy(entry->name, name, NGX_RL_TOP_NAME);
    ngx_rl_top_weigh(half, entry, weight);

    atomic_signal_fence(memory_order_seq_cst);

    entry->id = *id;
}


/* The square root, rounded up: Newton's, from above. */
static uint64_t
ngx_rl_top_root(uint64_t n)
{
    uint64_t  root, next;

    root = n;
    next = n / 2 + 1;

    while (next < root) {
        root = next;
        next = (root + n / root) / 2;
    }

    return root + (root * root < n);
}


/* missing: what the key may have in the summary that does not have it. */
static void
ngx_rl_top_key(ngx_rl_top_key_t *key, const ngx_rl_top_entry_t *entry,
    const ngx_rl_top_entry_t *other, uint64_t missing, uint64_t missed)
{
    uint64_t  error, off;

    key->entry = entry;
    key->count = entry->count + (other ? other->count : 0);

    error = entry->error + (other ? other->error : 0);
    off = NGX_RL_TOP_DEVIATIONS
          * ngx_rl_top_root(entry->variance
                            + (other ? other->variance : 0));

    key->at_least = (key->count > error + off) ? key->count - error - off : 0;
    key->at_most = key->count + missing + off + missed;
}


/* Insertion: half of it is sorted mostly, and nobody waits. */
static void
ngx_rl_top_sort(ngx_rl_top_list_t *list)
{
    uint32_t          i, j;
    ngx_rl_top_key_t  key;

    for (i = 1; i < list->nkeys; i++) {
        key = list->keys[i];

        for (j = i; j > 0; j--) {

            if (list->keys[j - 1].at_least > key.at_least
                || (list->keys[j - 1].at_least == key.at_least
                    && list->keys[j - 1].count >= key.count))
            {
                break;
            }

            list->keys[j] = list->keys[j - 1];
        }

        list->keys[j] = key;
    }
}


void
ngx_rl_top_list(const ngx_rl_top_t *top, ngx_rl_top_list_t *list)
{
    int                        i;
    uint64_t                   least[2], weight, missed;
    const ngx_rl_top_half_t   *new, *old;
    const ngx_rl_top_entry_t  *entry, *other;

    new = &top->halves[top->current];
    old = &top->halves[!top->current];

    least[0] = ngx_rl_top_least(new)->count;
    least[1] = ngx_rl_top_least(old)->count;

    weight = ngx_rl_max(new->weight, old->weight);
    missed = weight ? NGX_RL_TOP_MISSED * (weight - 1) : 0;

    list->began_ms = top->began_ms[!top->current]
                     ? top->began_ms[!top->current]
                     : top->began_ms[top->current];
    list->total = new->total + old->total;
    list->others = least[0] + least[1] + missed;
    list->nkeys = 0;

    for (i = 0; i < NGX_RL_TOP_ENTRIES; i++) {
        entry = &new->entries[i];

        if (entry->id.hi || entry->id.lo) {
            other = ngx_rl_top_find(old, &entry->id);
            ngx_rl_top_key(&list->keys[list->nkeys++], entry, other,
                           other ? 0 : least[1], missed);
        }

        entry = &old->entries[i];

        if ((entry->id.hi || entry->id.lo)
            && ngx_rl_top_find(new, &entry->id) == NULL)
        {
            ngx_rl_top_key(&list->keys[list->nkeys++], entry, NULL,
                           least[0], missed);
        }
    }

    ngx_rl_top_sort(list);
}

/*
 * "new_keys=": how many new values of a key one network may bring.
 *
 * A value that is known has a marker in this gateway's table. A value that is
 * not known takes a token of its network, whose bucket stands where the marker
 * of the network's own name would: no value has such a name. The marker is an
 * outer counter and the bucket an inner one. So a value takes one token,
 * whichever workers see it at once.
 */

#include "ngx_rl_backend.h"

/* how long a value is known behind its last request */
#define NGX_RL_KNOWN_US    ((uint64_t) 86400 * 1000000)

/* of a marker: that of a counter of which half is used */
#define NGX_RL_KNOWN_LOSS  127


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
ngx_rl_key_mark(ngx_rl_entry_t *entry, ngx_uint_t look)
{
    if (look) {
        ngx_rl_table_unlock(entry);
        return;
    }

    entry->state.fresh_us = entry->now_us + NGX_RL_KNOWN_US;

    ngx_rl_table_store(entry, NGX_RL_KNOWN_LOSS);
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

    if (entry.state.fresh_us <= entry.now_us) {
        ngx_rl_table_unlock(&entry);
        return 0;
    }

    ngx_rl_key_mark(&entry, look);

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

    if (entry.state.fresh_us <= entry.now_us
        && !ngx_rl_key_pay(client->limiter, &bucket, entry.now_us,
                           look))
    {
        ngx_rl_table_unlock(&entry);
        *client = by;
        return 0;
    }

    ngx_rl_key_mark(&entry, look);

    return 1;
}

/*
 * The names of penalties and of their keys, the count of events, and how the
 * gateways of a fleet learn of each other's penalties.
 *
 * For that one call at a time is made (lua/penalties.lua): it takes up to 32
 * changes of this gateway along and answers with up to 25 of the others. If it
 * fails, the next one takes the same along. Changes that are not sent yet stand
 * in the rows: the next worker that leads goes on with them.
 */

#include "ngx_rl_penalty.h"
#include "ngx_rl_backend.h"
#include "ngx_rl_match.h"
#include "ngx_rl_lua.h"
#include "ngx_rl_redis.h"

/* of an address of IPv6 the bytes of its /64 */
#define NGX_RL_PENALTY_V6  8

/* the networks of which the table has but so many rows */
#define NGX_RL_PENALTY_NET_V4   24
#define NGX_RL_PENALTY_NET_V6   56
#define NGX_RL_PENALTY_WIDE_V6  48

/* looks for changes here; asks for those of others; looks for a leader */
#define NGX_RL_PENALTY_LOOK_MS   50
#define NGX_RL_PENALTY_ASK_MS    200
#define NGX_RL_PENALTY_LEAD_MS   1000
#define NGX_RL_PENALTY_LOG_MS    60000
#define NGX_RL_PENALTY_AGAIN_MS  60000

#define NGX_RL_PENALTY_CHANGES   32     /* of one call */
#define NGX_RL_PENALTY_ARGS      7      /* before them */
#define NGX_RL_PENALTY_ANSWER    2      /* before those of others */
#define NGX_RL_PENALTY_TEXTS     5      /* of a change: its name, */
#define NGX_RL_PENALTY_TIMES     3      /* until when it is in force, and known,
                                           and its age; the rest */

/* for so long others hear that a penalty was ended */
#define NGX_RL_PENALTY_ENDED_MS  600000

/* kind, network, times, and of the name two bytes and the text */
#define NGX_RL_PENALTY_BYTES     (8 + 8 + 4 + 2                               \
                                  + NGX_RL_WATCH_KEY)
#define NGX_RL_PENALTY_NAME      16

/* "/" and these */
typedef u_char  ngx_rl_penalty_covered_t[1 + NGX_RL_PENALTY_V6];

typedef struct {
    ngx_rl_id_t  id;
    uint64_t     change;
    ngx_str_t    args[NGX_RL_PENALTY_TEXTS];   /* the texts below */
    u_char       name[NGX_RL_PENALTY_NAME];
    u_char       times[NGX_RL_PENALTY_TIMES][NGX_INT64_LEN];
    u_char       rest[NGX_RL_PENALTY_BYTES];
} ngx_rl_penalty_change_t;

/* The worker's, on the heap. */
typedef struct {
    ngx_rl_limiter_t         *limiter;
    ngx_rl_penalties_t       *penalties;
    ngx_rl_redis_call_t      *call;       /* under way, or NULL */
    ngx_event_t               tick;       /* cancelable */
    ngx_str_t                 keys[2];
    uint64_t                  since;      /* the last change that is known from
                                             Redis */
    uint64_t                  seen;       /* of this gateway's changes */
    uint64_t                  seeing;     /* by the call */
    ngx_msec_t                asked;
    ngx_msec_t                again;      /* recent changes were sent again */
    ngx_msec_t                logged;     /* 0: the last call was good */
    ngx_uint_t                n;
    ngx_rl_penalty_change_t   changes[NGX_RL_PENALTY_CHANGES];
    unsigned                  leads:1;
    unsigned                  more:1;     /* than one call takes */
} ngx_rl_penalty_sync_t;

const char *const  ngx_rl_penalty_actions[] = {
    "ban", "close", "delay", NULL
};


/* Whether the key, as it is written, has the address of the client. */
static ngx_uint_t
ngx_rl_penalty_by_address(const ngx_str_t *key)
{
    u_char      ch;
    size_t      i, at;
    ngx_uint_t  n;

    static const ngx_str_t  names[] = {
        ngx_string("binary_remote_addr"), ngx_string("remote_addr"),
        ngx_string("ratelimit_client")
    };

    for (at = 0; at < key->len; at++) {

        if (key->data[at] != '$') {
            continue;
        }

        at += (at + 1 < key->len && key->data[at + 1] == '{');

        for (i = at + 1; i < key->len; i++) {
            ch = ngx_tolower(key->data[i]);

            if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9') && ch != '_') {
                break;
            }
        }

        for (n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            if (i - at - 1 == names[n].len
                && ngx_strncasecmp(key->data + at + 1, names[n].data,
                                   names[n].len)
                   == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


ngx_int_t
ngx_rl_penalty_prepare(ngx_rl_penalty_t *penalty, ngx_pool_t *pool)
{
    u_char         *p, *name;
    ngx_str_t      *zone;
    ngx_rl_rule_t  *rule;

    static const u_char     hash_key[NGX_RL_SIPHASH_KEY_BYTES];
    static const ngx_str_t  binary = ngx_string("$binary_remote_addr");
    static const ngx_str_t  text = ngx_string("$remote_addr");

    zone = &penalty->limiter->zone.name;

    name = ngx_palloc(pool, zone->len + penalty->id.len + penalty->key.len
                            + sizeof("::"));
    if (name == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name, "%V%Z%V%Z%V", zone, &penalty->id, &penalty->key);

    /* hash functions that no rule of that name has */

    penalty->salt = ngx_rl_siphash(hash_key, name, p - name, 3, 5);
    penalty->kind = penalty->salt.hi;
    penalty->binary = ngx_rl_equal(&penalty->key, &binary);
    penalty->text = ngx_rl_equal(&penalty->key, &text);
    penalty->address = ngx_rl_penalty_by_address(&penalty->key);

    rule = &penalty->rule;
    rule->id = penalty->id;
    rule->key = penalty->key;
    rule->key_salt = ngx_rl_key_salt(&penalty->key);
    penalty->event_salt = ngx_rl_siphash(hash_key, name, p - name, 3, 6);

    return NGX_OK;
}


ngx_rl_penalty_t *
ngx_rl_penalty_next(const ngx_rl_limiter_t *limiter, uint64_t now_ms,
    ngx_uint_t *at, ngx_rl_penalized_t *row)
{
    ngx_uint_t            i;
    ngx_rl_penalty_t    **penalties;
    ngx_rl_penalties_t   *table;

    if (limiter->penalties == NULL) {
        return NULL;
    }

    penalties = limiter->penalties->elts;
    table = ngx_rl_zone_penalties(&limiter->zone);

    while (ngx_rl_penalties_next(table, at, row) == NGX_OK) {

        for (i = 0; i < limiter->penalties->nelts; i++) {
            if (penalties[i]->kind == row->kind && row->forget_ms > now_ms) {
                return penalties[i];
            }
        }
    }

    return NULL;
}


ngx_uint_t
ngx_rl_penalty_active(const ngx_rl_limiter_t *limiter, uint64_t now_ms)
{
    ngx_uint_t          at, n;
    ngx_rl_penalized_t  row;

    at = 0;
    n = 0;

    while (ngx_rl_penalty_next(limiter, now_ms, &at, &row)) {
        n += (row.until_ms > now_ms);
    }

    return n;
}


/* With Redis it is the same on all gateways. */
static ngx_rl_id_t
ngx_rl_penalty_hash(const ngx_rl_limiter_t *limiter, const ngx_str_t *text)
{
    return limiter->redis
           ? ngx_rl_redis_id(limiter->redis, text->data, text->len)
           : ngx_rl_hash(&ngx_rl_zone_penalties(&limiter->zone)->hash_key,
                         text->data, text->len);
}


/* IPv4 is ::ffff:0:0/96 */
static ngx_uint_t
ngx_rl_penalty_v6(const u_char address[NGX_RL_ADDRESS])
{
    static const u_char  mapped[NGX_RL_MAPPED / 8] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

    return ngx_memcmp(address, mapped, sizeof(mapped)) != 0;
}


/* The key; of an address of IPv6 its /64, in covered. */
static ngx_str_t
ngx_rl_penalty_covered(const ngx_rl_penalty_t *penalty, const ngx_str_t *key,
    ngx_rl_penalty_covered_t covered)
{
    ngx_str_t         text;
    ngx_rl_network_t  network;

    if (penalty->binary && (key->len == 4 || key->len == 16)) {
        ngx_rl_address(key->data, key->len, network.address);

    } else if (!penalty->text
               || ngx_rl_network_parse(key->data, key->len, &network) != 0)
    {
        return *key;
    }

    if (!ngx_rl_penalty_v6(network.address)) {
        return *key;
    }

    covered[0] = '/';
    ngx_memcpy(covered + 1, network.address, NGX_RL_PENALTY_V6);

    text = ngx_rl_str(covered, sizeof(ngx_rl_penalty_covered_t));

    return text;
}


ngx_rl_id_t
ngx_rl_penalty_id(const ngx_rl_penalty_t *penalty, const ngx_str_t *key)
{
    ngx_str_t                 text;
    ngx_rl_id_t               id;
    ngx_rl_penalty_covered_t  covered;

    text = ngx_rl_penalty_covered(penalty, key, covered);
    id = ngx_rl_penalty_hash(penalty->limiter, &text);

    id.hi ^= penalty->salt.hi;
    id.lo ^= penalty->salt.lo;

    return id;
}


/* As keys are named, but no key has such a name. */
static ngx_rl_id_t
ngx_rl_penalty_prefix(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], ngx_uint_t bits)
{
    ngx_str_t    text;
    ngx_rl_id_t  id, hash;

    text = ngx_rl_str((u_char *) address, bits / 8);

    hash = ngx_rl_penalty_hash(penalty->limiter, &text);

    id.hi = hash.lo;
    id.lo = hash.hi;

    return id;
}


uint64_t
ngx_rl_penalty_network(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], ngx_uint_t of_address)
{
    uint64_t     wide;
    ngx_uint_t   v6;
    ngx_rl_id_t  id;

    v6 = ngx_rl_penalty_v6(address);
    wide = 0;

    if (v6) {
        id = ngx_rl_penalty_prefix(penalty, address, NGX_RL_PENALTY_WIDE_V6);
        wide = of_address ? id.hi : id.lo;
        wide = ((wide | 3) - 2) << 32;
    }

    id = ngx_rl_penalty_prefix(penalty, address,
                      v6 ? NGX_RL_PENALTY_NET_V6
                         : NGX_RL_MAPPED + NGX_RL_PENALTY_NET_V4);

    return wide | (uint32_t) (((of_address ? id.hi : id.lo) | 3) - !v6);
}


ngx_uint_t
ngx_rl_penalty_crowd(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], ngx_rl_penalized_t *made)
{
    ngx_uint_t  bits, prefix;

    if (!ngx_rl_penalty_v6(address)) {
        bits = NGX_RL_PENALTY_NET_V4;
        prefix = NGX_RL_MAPPED + bits;

    } else {
        bits = (made->network >> 32) ? NGX_RL_PENALTY_NET_V6
                                     : NGX_RL_PENALTY_WIDE_V6;
        prefix = bits;
    }

    made->id = ngx_rl_penalty_prefix(penalty, address, prefix);
    made->id.hi ^= penalty->salt.hi;
    made->id.lo ^= penalty->salt.lo;

    return bits;
}


uint64_t
ngx_rl_penalty_networks(const ngx_rl_penalty_t *penalty,
    const u_char address[NGX_RL_ADDRESS], uint64_t now_ms, ngx_uint_t *bits)
{
    uint64_t             ms, until_ms;
    ngx_uint_t           of;
    ngx_rl_penalized_t   row;
    ngx_rl_penalties_t  *penalties;

    penalties = ngx_rl_zone_penalties(&penalty->limiter->zone);

    if (!ngx_rl_penalties_any_network(penalties, now_ms)) {
        return 0;
    }

    until_ms = 0;

    /* a high half: the /56 */

    row.network = (uint64_t) ngx_rl_penalty_v6(address) << 32;

    for ( ;; ) {
        of = ngx_rl_penalty_crowd(penalty, address, &row);
        ms = ngx_rl_penalties_until(penalties, &row.id, now_ms);

        if (ms > until_ms) {
            until_ms = ms;
            *bits = of;
        }

        if (row.network == 0) {
            return until_ms;
        }

        row.network = 0;
    }
}


ngx_rl_penalty_t *
ngx_rl_penalty_find(const ngx_rl_limiter_t *limiter, const ngx_str_t *of,
    const ngx_str_t *key, const u_char address[NGX_RL_ADDRESS], uint64_t now_ms,
    uint64_t *until_ms)
{
    uint64_t            ms;
    ngx_uint_t          i, bits;
    ngx_rl_id_t         id;
    ngx_rl_penalty_t   *found, **penalties;

    *until_ms = 0;

    if (limiter->penalties == NULL) {
        return NULL;
    }

    found = NULL;
    penalties = limiter->penalties->elts;

    for (i = 0; i < limiter->penalties->nelts; i++) {

        if (!ngx_rl_equal(&penalties[i]->key, of)) {
            continue;
        }

        id = ngx_rl_penalty_id(penalties[i], key);
        ms = ngx_rl_penalties_until(ngx_rl_zone_penalties(&limiter->zone), &id,
                                    now_ms);

        if (address && penalties[i]->address) {
            ms = ngx_max(ms, ngx_rl_penalty_networks(penalties[i], address,
                                                     now_ms, &bits));
        }

        if (ms > *until_ms) {
            *until_ms = ms;
            found = penalties[i];
        }
    }

    return found;
}


/* On this gateway, whether the zone has Redis or not. */
ngx_uint_t
ngx_rl_penalty_event(ngx_rl_penalty_t *penalty, const ngx_str_t *key)
{
    ngx_str_t                 text;
    ngx_rl_id_t               id;
    ngx_rl_table_t           *table;
    ngx_rl_penalty_covered_t  covered;

    table = penalty->limiter->zone.table;
    text = ngx_rl_penalty_covered(penalty, key, covered);

    id = ngx_rl_hash(ngx_rl_table_hash_key(table), text.data, text.len);
    id.hi ^= penalty->event_salt.hi;
    id.lo ^= penalty->event_salt.lo;

    return ngx_rl_local_event(table, &id, &penalty->after);
}


void
ngx_rl_penalty_sync_end(ngx_rl_limiter_t *limiter)
{
    ngx_rl_penalty_sync_t  *sync;

    sync = limiter->penalty_sync;

    if (sync == NULL) {
        return;
    }

    limiter->penalty_sync = NULL;

    if (sync->tick.timer_set) {
        ngx_del_timer(&sync->tick);
    }

    if (sync->call) {
        ngx_rl_redis_forget(sync->call);
    }

    ngx_rl_lock_leave(&sync->penalties->leader);

    ngx_free(sync);
}


/* n bytes, the highest first, on machines of either order. */
static u_char *
ngx_rl_penalty_put(u_char *p, uint64_t value, size_t n)
{
    while (n--) {
        *p++ = (u_char) (value >> 8 * n);
    }

    return p;
}


static uint64_t
ngx_rl_penalty_sync_left(uint64_t at_ms)
{
    return (at_ms > ngx_current_msec) ? at_ms - ngx_current_msec : 0;
}


/* Collects the changes that Redis does not have. */
static void
ngx_rl_penalty_sync_collect(ngx_rl_penalty_sync_t *sync)
{
    u_char                   *p;
    uint64_t                  ms[NGX_RL_PENALTY_TIMES];
    ngx_uint_t                at, i;
    ngx_rl_penalized_t        row;
    ngx_rl_penalty_change_t  *change;

    sync->n = 0;
    sync->more = 0;
    sync->seeing = sync->penalties->changes;

    if (sync->seeing == sync->seen) {
        return;
    }

    at = 0;

    while (ngx_rl_penalties_next(sync->penalties, &at, &row) == NGX_OK) {
        if (row.change == 0) {
            continue;
        }

        if (sync->n == NGX_RL_PENALTY_CHANGES) {
            sync->more = 1;
            sync->seeing = sync->seen;
            return;
        }

        change = &sync->changes[sync->n++];
        change->id = row.id;
        change->change = row.change;

        p = ngx_rl_penalty_put(change->name, row.id.hi, 8);
        ngx_rl_penalty_put(p, row.id.lo, 8);

        /* the clock of another worker may be a moment ahead */

        ms[0] = ngx_rl_penalty_sync_left(row.until_ms);
        ms[1] = row.times ? ngx_rl_penalty_sync_left(row.forget_ms)
                          : NGX_RL_PENALTY_ENDED_MS;
        ms[2] = ngx_current_msec - ngx_min(row.changed_ms, ngx_current_msec);

        change->args[0].data = change->name;
        change->args[0].len = NGX_RL_PENALTY_NAME;

        for (i = 0; i < NGX_RL_PENALTY_TIMES; i++) {
            p = change->times[i];
            change->args[i + 1].data = p;
            change->args[i + 1].len = ngx_sprintf(p, "%uL", ms[i]) - p;
        }

        change->args[i + 1].data = change->rest;
        change->args[i + 1].len = NGX_RL_PENALTY_BYTES;

        p = ngx_rl_penalty_put(change->rest, row.kind, 8);
        p = ngx_rl_penalty_put(p, row.network, 8);
        p = ngx_rl_penalty_put(p, row.times, 4);
        *p++ = row.name.len;
        *p++ = row.name.cut;
        ngx_memcpy(p, row.name.data, NGX_RL_WATCH_KEY);

        ngx_rl_redis_mask(sync->limiter->redis, &change->args[0], change->rest,
                          NGX_RL_PENALTY_BYTES);
    }
}


static uint64_t
ngx_rl_penalty_get(const u_char *p, size_t n)
{
    uint64_t  value;

    for (value = 0; n; n--) {
        value = value << 8 | *p++;
    }

    return value;
}


/*
 * Leaves a change alone that this version would not write. Under another secret
 * a row is of a penalty that nobody has.
 */
static void
ngx_rl_penalty_sync_take(ngx_rl_penalty_sync_t *sync, const ngx_str_t *texts)
{
    u_char              *p;
    uint64_t             ms[NGX_RL_PENALTY_TIMES];
    ngx_rl_penalized_t   row;

    static const uint64_t  most = (uint64_t) 1 << 53;

    if (texts[0].len != NGX_RL_PENALTY_NAME
        || texts[4].len != NGX_RL_PENALTY_BYTES
        || ngx_rl_redis_control_number(&texts[1], most, &ms[0]) != NGX_OK
        || ngx_rl_redis_control_number(&texts[2], most, &ms[1]) != NGX_OK
        || ngx_rl_redis_control_number(&texts[3], most, &ms[2]) != NGX_OK)
    {
        return;
    }

    row.id.hi = ngx_rl_penalty_get(texts[0].data, 8);
    row.id.lo = ngx_rl_penalty_get(texts[0].data + 8, 8);
    row.until_ms = ngx_current_msec + ms[0];
    row.forget_ms = ngx_current_msec + ms[1];
    row.changed_ms = ngx_current_msec - ngx_min(ms[2], ngx_current_msec);
    row.change = 0;

    p = texts[4].data;
    ngx_rl_redis_mask(sync->limiter->redis, &texts[0], p, NGX_RL_PENALTY_BYTES);
    row.kind = ngx_rl_penalty_get(p, 8);
    row.network = ngx_rl_penalty_get(p + 8, 8);
    row.times = (uint32_t) ngx_rl_penalty_get(p + 16, 4);
    row.name.len = ngx_min(p[20], NGX_RL_WATCH_KEY);
    row.name.cut = p[21];
    ngx_memcpy(row.name.data, p + 22, NGX_RL_WATCH_KEY);

    /* one that was ended is forgotten */

    if (row.times == 0) {
        row.forget_ms = ngx_current_msec;
    }

    (void) ngx_rl_penalties_put(sync->penalties, &row, ngx_current_msec);
}


static void
ngx_rl_penalty_sync_answer(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_penalty_sync_t *sync = data;

    uint64_t    set, had, last;
    ngx_uint_t  i;

    sync->call = NULL;

    if (result->status != NGX_RL_REDIS_OK
        || result->n < NGX_RL_PENALTY_ANSWER
        || ngx_rl_redis_control_number(&result->texts[0], UINT64_MAX, &set)
           != NGX_OK
        || ngx_rl_redis_control_number(&result->texts[1], UINT64_MAX, &last)
           != NGX_OK)
    {
        if (sync->logged == 0
            || ngx_current_msec - sync->logged >= NGX_RL_PENALTY_LOG_MS)
        {
            sync->logged = ngx_max(ngx_current_msec, 1);
            ngx_log_error(NGX_LOG_ERR, sync->tick.log, 0,
                          "ratelimit zone \"%V\": its penalties do not reach "
                          "other gateways: \"%V\"", &sync->limiter->zone.name,
                          ngx_rl_redis_status_name(result->status));
        }

        return;
    }

    sync->logged = 0;
    sync->seen = sync->seeing;

    for (i = 0; i < sync->n; i++) {
        ngx_rl_penalties_sent(sync->penalties, &sync->changes[i].id,
                              sync->changes[i].change);
    }

    for (i = NGX_RL_PENALTY_ANSWER;
         i + NGX_RL_PENALTY_TEXTS <= result->n;
         i += NGX_RL_PENALTY_TEXTS)
    {
        ngx_rl_penalty_sync_take(sync, &result->texts[i]);
    }

    sync->more |= (i > NGX_RL_PENALTY_ANSWER);

    /*
     * Redis has lost what it had, or its last changes. Without a data set
     * before, all rows are changes that it has not.
     */

    had = sync->penalties->set;

    if ((had && set != had) || last < sync->since) {
        ngx_rl_penalties_resend(sync->penalties, ngx_current_msec, 0);
    }

    sync->penalties->set = set;
    sync->since = last;
}


/* If memory is out, the next tick tries once more. */
static void
ngx_rl_penalty_sync_ask(ngx_rl_penalty_sync_t *sync)
{
    u_char      set[NGX_INT64_LEN], since[NGX_INT64_LEN];
    ngx_str_t  *arg;
    ngx_uint_t  i;
    ngx_str_t   args[NGX_RL_PENALTY_ARGS
                     + NGX_RL_PENALTY_TEXTS
                       * NGX_RL_PENALTY_CHANGES];

    ngx_str_set(&args[0], "EVAL");
    args[1].data = (u_char *) ngx_rl_lua_penalties;
    args[1].len = ngx_rl_lua_penalties_len;
    ngx_str_set(&args[2], "2");
    args[3] = sync->keys[0];
    args[4] = sync->keys[1];
    args[5].data = set;
    args[5].len = ngx_sprintf(set, "%uL", sync->penalties->set) - set;
    args[6].data = since;
    args[6].len = ngx_sprintf(since, "%uL", sync->since) - since;

    arg = &args[NGX_RL_PENALTY_ARGS];

    for (i = 0; i < sync->n; i++) {
        ngx_memcpy(arg, sync->changes[i].args, sizeof(sync->changes[i].args));
        arg += NGX_RL_PENALTY_TEXTS;
    }

    sync->asked = ngx_current_msec;
    sync->call = ngx_rl_redis_control_call(sync->limiter->redis, args,
                                           arg - args, 3,
                                           ngx_rl_penalty_sync_answer, sync);
}


static void
ngx_rl_penalty_sync_tick(ngx_event_t *ev)
{
    ngx_rl_penalty_sync_t *sync = ev->data;

    if (ngx_exiting && sync->call == NULL) {
        ngx_rl_lock_leave(&sync->penalties->leader);
        return;
    }

    if (!ngx_rl_lock_lead(&sync->penalties->leader)) {
        sync->leads = 0;
        ngx_add_timer(ev, NGX_RL_PENALTY_LEAD_MS);
        return;
    }

    if (!sync->leads) {
        sync->leads = 1;
        sync->since = 0;
        sync->seen = 0;
        sync->again = ngx_current_msec;
        sync->more = 1;
    }

    /* a replica that was promoted may not have got them */

    if (ngx_current_msec - sync->again >= NGX_RL_PENALTY_AGAIN_MS) {
        sync->again = ngx_current_msec;
        ngx_rl_penalties_resend(sync->penalties, ngx_current_msec, 1);
    }

    if (sync->call == NULL
        && (sync->more
            || sync->seen != sync->penalties->changes
            || ngx_current_msec - sync->asked >= NGX_RL_PENALTY_ASK_MS))
    {
        ngx_rl_penalty_sync_collect(sync);
        ngx_rl_penalty_sync_ask(sync);
    }

    ngx_add_timer(ev, NGX_RL_PENALTY_LOOK_MS);
}


ngx_int_t
ngx_rl_penalty_sync_begin(ngx_rl_limiter_t *limiter, ngx_cycle_t *cycle)
{
    u_char                 *p;
    size_t                  len;
    ngx_rl_penalty_sync_t  *sync;

    if (limiter->redis == NULL || limiter->penalties == NULL) {
        return NGX_OK;
    }

    len = limiter->redis->prefix.len + limiter->zone.name.len
          + sizeof(":{penalties:}:changes") - 1;

    sync = ngx_calloc(sizeof(ngx_rl_penalty_sync_t) + len, cycle->log);
    if (sync == NULL) {
        return NGX_ERROR;
    }

    limiter->penalty_sync = sync;
    sync->limiter = limiter;
    sync->penalties = ngx_rl_zone_penalties(&limiter->zone);

    /* both keys stand behind it */

    p = (u_char *) &sync[1];
    sync->keys[0].data = p;
    sync->keys[1].data = p;

    p = ngx_sprintf(p, "%V:{penalties:%V}", &limiter->redis->prefix,
                    &limiter->zone.name);
    sync->keys[1].len = p - sync->keys[1].data;

    p = ngx_cpymem(p, ":changes", sizeof(":changes") - 1);
    sync->keys[0].len = p - sync->keys[0].data;

    sync->tick.data = sync;
    sync->tick.log = cycle->log;
    sync->tick.handler = ngx_rl_penalty_sync_tick;
    sync->tick.cancelable = 1;

    ngx_add_timer(&sync->tick, 1);

    return NGX_OK;
}

/*
 * The names of penalties and of their keys, and the count of events.
 */

#include "ngx_rl_penalty.h"
#include "ngx_rl_backend.h"
#include "ngx_rl_match.h"

/* of an address of IPv6 the bytes of its /64 */
#define NGX_RL_PENALTY_V6  8

/* the networks of which the table has but so many rows */
#define NGX_RL_PENALTY_NET_V4   24
#define NGX_RL_PENALTY_NET_V6   56
#define NGX_RL_PENALTY_WIDE_V6  48

/* "/" and these */
typedef u_char  ngx_rl_penalty_covered_t[1 + NGX_RL_PENALTY_V6];

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

    text.data = covered;
    text.len = sizeof(ngx_rl_penalty_covered_t);

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

    text.data = (u_char *) address;
    text.len = bits / 8;

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

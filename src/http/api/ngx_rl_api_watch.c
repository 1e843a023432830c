/*
 * "/rejections": the last rejections of the zone on this gateway, the newest
 * first. "/top": the keys with the most requests, or rejections. "/penalties":
 * the keys that are penalized.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_date.h"
#include "ngx_rl_text.h"

#include <jansson.h>

#define NGX_RL_API_TOP      20    /* keys */
#define NGX_RL_API_TOP_MAX  100
#define NGX_RL_API_PENALTIES  1000   /* of an answer */

/* The parameters of the query. */
typedef struct {
    uint64_t            since_ms;
    ngx_rl_watch_key_t  key;      /* its hash, if there is one, */
    ngx_rl_watch_key_t  address;  /* and that of an address' bytes */
} ngx_rl_api_wanted_t;

/* by ngx_rl_watch_top_e */
static const char *const  ngx_rl_api_tops[] = {
    "requests", "rejected", NULL
};


/* NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_rl_api_wanted(ngx_rl_api_t *api, ngx_rl_api_wanted_t *wanted)
{
    int64_t     seconds;
    ngx_int_t   rc;
    ngx_str_t  *since, key, address;

    wanted->since_ms = 0;
    since = &api->args.since;

    if (since->data) {

        if (ngx_rl_date_parse(since->data, since->len, &seconds) != 0) {
            return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST,
                       "invalid", "expected \"since=<time>\", as "
                       "\"2026-12-01T00:00:00Z\"");
        }

        wanted->since_ms = (uint64_t) seconds * 1000;
    }

    if (api->args.nkeys == 0) {
        return NGX_DECLINED;
    }

    if (ngx_rl_api_query_key(api, &key) != NGX_OK
        || ngx_rl_watch_hash(api->conf->limiter->watch, &key, 1, &wanted->key)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    wanted->address = wanted->key;
    rc = ngx_rl_api_query_address(api, &key, &address);

    if (rc == NGX_OK) {
        rc = ngx_rl_watch_hash(api->conf->limiter->watch, &address,
                               0, &wanted->address);
    }

    return (rc == NGX_ERROR) ? NGX_HTTP_INTERNAL_SERVER_ERROR : NGX_DECLINED;
}


/* Sets n to that of the query, if there is one. Returns whether it is valid. */
static ngx_uint_t
ngx_rl_api_most(ngx_rl_api_t *api, uint64_t max, uint64_t *n)
{
    ngx_str_t  *text;

    text = &api->args.n;

    return text->data == NULL
           || ngx_rl_number_parse(text->data, text->len, 1, max, n) == 0;
}


/* Whether it is the query's key; all are if there is none. */
static ngx_uint_t
ngx_rl_api_is_key(ngx_rl_api_t *api, const ngx_rl_api_wanted_t *wanted,
    const ngx_rl_watch_key_t *key)
{
    ngx_str_t           text;
    ngx_rl_watch_key_t  hash;

    if (api->args.nkeys == 0) {
        return 1;
    }

    hash = *key;

    if (hash.len) {
        text = ngx_rl_str((u_char *) key->data, key->len);

        if (ngx_rl_watch_hash(api->conf->limiter->watch, &text, 1, &hash)
            != NGX_OK)
        {
            return 0;
        }
    }

    return !key->cut
           && (ngx_memcmp(hash.data, wanted->key.data, NGX_RL_WATCH_SHA256) == 0
               || ngx_memcmp(hash.data, wanted->address.data,
                             NGX_RL_WATCH_SHA256)
                  == 0);
}


/* Also of the rule, or penalty, that the query names, if it does. */
static ngx_uint_t
ngx_rl_api_is_wanted(ngx_rl_api_t *api, const ngx_rl_api_wanted_t *wanted,
    const ngx_rl_rejection_t *rejection)
{
    ngx_str_t   id;
    ngx_uint_t  penalized;

    penalized = (rejection->by == NGX_RL_REJECTED_BY_PENALTY);
    id = ngx_rl_str((u_char *) rejection->rule, rejection->rule_len);

    return rejection->time_ms >= wanted->since_ms
           && (api->args.rule.data == NULL
               || (!penalized && ngx_rl_equal(&api->args.rule, &id)))
           && (api->args.penalty.data == NULL
               || (penalized && ngx_rl_equal(&api->args.penalty, &id)))
           && ngx_rl_api_is_key(api, wanted, &rejection->key);
}


json_t *
ngx_rl_api_parts_json(const ngx_str_t *text)
{
    size_t     i;
    u_char    *p;
    json_t    *json;
    ngx_str_t  parts;

    if (text == NULL) {
        return json_null();
    }

    parts.data = malloc(2 * text->len + 1);
    if (parts.data == NULL) {
        return NULL;
    }

    p = parts.data;

    for (i = 0; i < text->len; i++) {

        if (text->data[i] == NGX_RL_PART_END) {
            *p++ = ',';
            *p++ = ' ';

        } else {
            *p++ = text->data[i];
        }
    }

    parts.len = p - parts.data;
    json = ngx_rl_json_text(&parts);

    free(parts.data);

    return json;
}


static json_t *
ngx_rl_api_name_json(const ngx_rl_watch_key_t *key)
{
    u_char     buf[NGX_RL_KEY_SHA256_LEN + 2 * NGX_RL_WATCH_SHA256], *p;
    ngx_str_t  text;

    if (key->len) {
        text = ngx_rl_str((u_char *) key->data, key->len);

        return ngx_rl_api_parts_json(&text);
    }

    p = ngx_cpymem(buf, NGX_RL_KEY_SHA256, NGX_RL_KEY_SHA256_LEN);
    p = ngx_hex_dump(p, (u_char *) key->data, NGX_RL_WATCH_SHA256);

    text = ngx_rl_str(buf, p - buf);

    return ngx_rl_json_text(&text);
}


/*
 * How the rule or the penalty of that id, or the rule whose key has that
 * number, counts, as written; null: it is gone.
 */
static json_t *
ngx_rl_api_counted_by(const ngx_rl_limiter_t *limiter, const ngx_str_t *id,
    ngx_uint_t penalty, uint64_t kind)
{
    ngx_uint_t          i;
    ngx_rl_rule_t     **rules;
    ngx_rl_penalty_t  **penalties;

    if (penalty) {
        penalties = limiter->penalties ? limiter->penalties->elts : NULL;

        for (i = 0; penalties && i < limiter->penalties->nelts; i++) {
            if (ngx_rl_equal(&penalties[i]->id, id)) {
                return ngx_rl_api_parts_json(&penalties[i]->key);
            }
        }

        return json_null();
    }

    rules = limiter->policy->rules.elts;

    for (i = 0; i < limiter->policy->rules.nelts; i++) {
        if (id ? ngx_rl_equal(&rules[i]->id, id)
               : ngx_rl_watch_kind(limiter, &rules[i]->key) == kind)
        {
            return ngx_rl_api_parts_json(&rules[i]->key);
        }
    }

    return json_null();
}


static json_t *
ngx_rl_api_rejection_json(ngx_rl_api_t *api, uint64_t number,
    const ngx_rl_rejection_t *rejection)
{
    json_t     *json, *cut;
    ngx_str_t   id, route;
    ngx_uint_t  penalized;

    static const ngx_str_t  none = ngx_null_string;

    id = ngx_rl_str((u_char *) rejection->rule, rejection->rule_len);
    route = ngx_rl_str((u_char *) rejection->route, rejection->route_len);

    penalized = (rejection->by == NGX_RL_REJECTED_BY_PENALTY);

    json = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}",
        "number", (json_int_t) number,
        "time", ngx_rl_json_time(rejection->time_ms),
        "rule", ngx_rl_json_text(penalized ? &none : &id),
        "penalty", penalized ? ngx_rl_json_text(&id) : json_null(),
        "key", ngx_rl_api_name_json(&rejection->key),
        "counted_by",
        ngx_rl_api_counted_by(api->conf->limiter, &id, penalized, 0),
        "route", ngx_rl_json_text(&route),
        "limit", penalized ? json_null() : json_integer(rejection->limit),
        "retry_after_seconds",
        (rejection->retry_us == NGX_RL_NEVER)
        ? json_null()
        : json_integer(ngx_rl_seconds_up(rejection->retry_us)),
        "dry_run", rejection->by == NGX_RL_REJECTED_BY_DRY_RUN);

    if (rejection->window_sec) {
        ngx_rl_json_set(&json, "window_seconds",
                        json_integer(rejection->window_sec));
    }

    if (rejection->key.cut || rejection->route_cut) {
        cut = json_array();

        if (rejection->key.cut) {
            ngx_rl_json_append(&cut, json_string("key"));
        }

        if (rejection->route_cut) {
            ngx_rl_json_append(&cut, json_string("route"));
        }

        ngx_rl_json_set(&json, "cut", cut);
    }

    return json;
}


ngx_int_t
ngx_rl_api_rejections(ngx_rl_api_t *api)
{
    json_t              *array;
    uint64_t             newest, number, most;
    ngx_int_t            rc;
    ngx_uint_t           n;
    ngx_rl_ring_t       *ring;
    ngx_rl_rejection_t   rejection;
    ngx_rl_api_wanted_t  wanted;

    rc = ngx_rl_api_wanted(api, &wanted);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    most = NGX_RL_WATCH_REJECTIONS;

    if (!ngx_rl_api_most(api, most, &most)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected \"n=<number>\" from 1 to %d",
                   NGX_RL_WATCH_REJECTIONS);
    }

    ring = api->conf->limiter->watch->rejections;
    newest = ngx_rl_ring_newest(ring);
    array = json_array();

    for (n = 0, number = newest;
         n < NGX_RL_WATCH_REJECTIONS && number && most;
         n++, number--)
    {
        if (ngx_rl_ring_read(ring, number, &rejection)
            && ngx_rl_api_is_wanted(api, &wanted, &rejection))
        {
            ngx_rl_json_append(&array, ngx_rl_api_rejection_json(api, number,
                                                                 &rejection));
            most--;
        }
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
                           json_pack("{s:o, s:I}",
                                     "rejections", array,
                                     "total",
                                     (json_int_t) newest));
}


/* The next one that the query names; NULL: there are no more. */
static ngx_rl_penalty_t *
ngx_rl_api_penalty_next(ngx_rl_api_t *api, const ngx_rl_api_wanted_t *wanted,
    ngx_uint_t *at, ngx_rl_penalized_t *row)
{
    ngx_rl_penalty_t  *penalty;

    do {
        penalty = ngx_rl_penalty_next(api->conf->limiter,
                                      ngx_current_msec, at, row);
    } while (penalty
             && ((api->args.penalty.data
                  && !ngx_rl_equal(&api->args.penalty, &penalty->id))
                 || !ngx_rl_api_is_key(api, wanted, &row->name)));

    return penalty;
}


/* Ends them, and forgets those that are over: the next one is the first. */
static ngx_int_t
ngx_rl_api_penalties_end(ngx_rl_api_t *api, const ngx_rl_api_wanted_t *wanted)
{
    ngx_uint_t          at, n;
    ngx_rl_record_t     record;
    ngx_rl_limiter_t   *limiter;
    ngx_rl_penalized_t  row;

    static const ngx_str_t  what = ngx_string("penalties are ended");

    if (api->args.penalty.data == NULL && api->args.nkeys == 0) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected \"penalty=<id>\" or \"key=<key>\"");
    }

    limiter = api->conf->limiter;
    at = 0;
    n = 0;

    while (ngx_rl_api_penalty_next(api, wanted, &at, &row)) {
        n += (ngx_rl_penalties_end(ngx_rl_zone_penalties(&limiter->zone),
                                   &row.id, ngx_current_msec)
              == NGX_OK);
    }

    if (n == 0) {
        return ngx_rl_api_problem(api, NGX_HTTP_NOT_FOUND, "not-found",
                                  "there is no such penalty");
    }

    ngx_memzero(&record, sizeof(ngx_rl_record_t));

    if (ngx_rl_api_record(api, &record) == NGX_OK) {
        ngx_rl_follow_log(limiter, &what, &record);
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
                           json_pack("{s:i}", "ended", (int) n));
}


/*
 * The key is a name that "key=" takes: a text that JSON cannot have as it is
 * becomes its hash.
 */
static json_t *
ngx_rl_api_penalty_json(ngx_rl_api_t *api, const ngx_rl_penalty_t *penalty,
    const ngx_rl_penalized_t *row)
{
    json_t             *key;
    uint64_t            left_ms;
    ngx_str_t           text;
    ngx_rl_watch_key_t  name;

    left_ms = row->until_ms - ngx_current_msec;
    name = row->name;
    key = name.len ? json_stringn((char *) name.data, name.len) : NULL;

    if (name.len && key == NULL) {
        text = ngx_rl_str((u_char *) row->name.data, row->name.len);

        if (ngx_rl_watch_hash(api->conf->limiter->watch, &text, 0, &name)
            != NGX_OK)
        {
            return NULL;
        }
    }

    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:I, s:I}",
        "penalty", ngx_rl_json_text(&penalty->id),
        "action", ngx_rl_penalty_actions[penalty->action],
        "key", key ? key : ngx_rl_api_name_json(&name),
        "counted_by", ngx_rl_api_parts_json(&penalty->key),
        "ends_at", ngx_rl_json_later(left_ms),
        "retry_after_seconds", (json_int_t) ((left_ms + 999) / 1000),
        "times", (json_int_t) row->times);
}


ngx_int_t
ngx_rl_api_penalties(ngx_rl_api_t *api)
{
    json_t              *array;
    uint64_t             n, most, now_ms;
    ngx_int_t            rc;
    ngx_uint_t           at;
    ngx_rl_penalty_t    *penalty;
    ngx_rl_penalized_t   row;
    ngx_rl_api_wanted_t  wanted;

    rc = ngx_rl_api_wanted(api, &wanted);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    most = NGX_RL_API_PENALTIES;

    if (!ngx_rl_api_most(api, NGX_RL_API_PENALTIES, &most)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected \"n=<number>\" from 1 to %d",
                   NGX_RL_API_PENALTIES);
    }

    if (api->request->method == NGX_HTTP_DELETE) {
        return ngx_rl_api_penalties_end(api, &wanted);
    }

    array = json_array();
    now_ms = ngx_current_msec;
    n = 0;
    at = 0;

    for ( ;; ) {
        penalty = ngx_rl_api_penalty_next(api, &wanted, &at, &row);
        if (penalty == NULL) {
            break;
        }

        if (row.until_ms > now_ms && n++ < most) {
            ngx_rl_json_append(&array, ngx_rl_api_penalty_json(api, penalty,
                                                               &row));
        }
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
                           json_pack("{s:o, s:I}",
                                     "penalties", array,
                                     "total", (json_int_t) n));
}


/*
 * Which of the first keys have a penalty, whatever it counts by, or are in a
 * network that has one.
 */
static void
ngx_rl_api_top_penalized(const ngx_rl_limiter_t *limiter,
    const ngx_rl_top_list_t *list, u_char penalized[NGX_RL_API_TOP_MAX])
{
    size_t              len, prefix;
    uint32_t            hash, hashes[NGX_RL_API_TOP_MAX];
    ngx_uint_t          at, i, n, own;
    ngx_rl_network_t    network;
    ngx_rl_network_t    addresses[NGX_RL_API_TOP_MAX];
    ngx_rl_watch_key_t  name;
    ngx_rl_penalized_t  row;

    prefix = sizeof(NGX_RL_NETWORK_KEY) - 1;

    ngx_memzero(penalized, NGX_RL_API_TOP_MAX);

    n = ngx_min(list->nkeys, NGX_RL_API_TOP_MAX);
    at = 0;

    /* there may be many penalties: few of them have the hash of a key */

    for (i = 0; i < n; i++) {
        ngx_memcpy(&name, list->keys[i].entry->name, sizeof(name));
        len = name.len ? name.len : NGX_RL_WATCH_SHA256;
        hashes[i] = ngx_murmur_hash2((u_char *) name.data, len);

        if (ngx_rl_network_parse((u_char *) name.data, name.len, &addresses[i])
            != 0)
        {
            addresses[i].bits = 0;
        }
    }

    while (ngx_rl_penalty_next(limiter, ngx_current_msec, &at, &row)) {

        if (row.until_ms <= ngx_current_msec) {
            continue;
        }

        len = row.name.len ? row.name.len : NGX_RL_WATCH_SHA256;
        hash = ngx_murmur_hash2((u_char *) row.name.data, len);
        own = ngx_rl_penalties_own(row.network) && row.name.len > prefix
              && ngx_rl_network_parse((u_char *) row.name.data + prefix,
                                      row.name.len - prefix, &network)
                 == 0;

        for (i = 0; i < n; i++) {

            if (own && addresses[i].bits >= network.bits
                && ngx_memcmp(addresses[i].address, network.address,
                              network.bits / 8)
                   == 0)
            {
                penalized[i] = 1;
            }

            if (hashes[i] != hash) {
                continue;
            }

            ngx_memcpy(&name, list->keys[i].entry->name, sizeof(name));

            penalized[i] |= (name.len == row.name.len
                             && ngx_memcmp(name.data, row.name.data, len) == 0);
        }
    }
}


static json_t *
ngx_rl_api_top_json(const ngx_rl_limiter_t *limiter,
    const ngx_rl_watch_list_t *read, const ngx_rl_top_key_t *key,
    ngx_uint_t penalized)
{
    json_t             *json;
    ngx_rl_watch_key_t  name;

    ngx_memcpy(&name, key->entry->name, sizeof(ngx_rl_watch_key_t));

    json = json_pack("{s:o, s:o, s:I, s:I, s:I, s:f, s:b}",
        "key", ngx_rl_api_name_json(&name),
        "counted_by",
        ngx_rl_api_counted_by(limiter, NULL, 0, key->entry->kind),
        "count", (json_int_t) key->count,
        "at_least", (json_int_t) key->at_least,
        "at_most", (json_int_t) key->at_most,
        "per_second",
        (double) (uint64_t) (10 * ngx_rl_watch_per_second(read,
                                                          key->count)
                             + 0.5)
        / 10,
        "penalized", (int) penalized);

    if (name.cut) {
        ngx_rl_json_set(&json, "cut", json_pack("[s]", "key"));
    }

    return json;
}


ngx_int_t
ngx_rl_api_top(ngx_rl_api_t *api)
{
    int                   by;
    u_char                penalized[NGX_RL_API_TOP_MAX];
    json_t               *array;
    uint64_t              n, i, now_ms, listed, others;
    ngx_str_t            *name;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_top_list_t    *list;
    ngx_rl_watch_list_t  *read;

    limiter = api->conf->limiter;
    name = &api->args.by;
    by = 0;
    n = NGX_RL_API_TOP;

    if (name->data) {
        by = ngx_rl_names_find(ngx_rl_api_tops, name->data, name->len);
    }

    if (by == -1 || !ngx_rl_api_most(api, NGX_RL_API_TOP_MAX, &n)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
            "expected \"by=requests\" or \"by=rejected\", and \"n=<number>\" "
            "from 1 to %d", NGX_RL_API_TOP_MAX);
    }

    read = ngx_palloc(api->request->pool, sizeof(ngx_rl_watch_list_t));
    array = json_array();

    if (read == NULL || array == NULL) {
        json_decref(array);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_rl_watch_read(limiter->watch, by, read);

    list = &read->list;
    now_ms = ngx_rl_wall_ms();
    listed = ngx_min(n, list->nkeys);
    ngx_rl_api_top_penalized(limiter, list, penalized);
    others = list->others;

    for (i = 0; i < list->nkeys; i++) {

        if (i < listed) {
            ngx_rl_json_append(&array, ngx_rl_api_top_json(limiter, read,
                                                           &list->keys[i],
                                                           penalized[i]));

        } else {
            others = ngx_max(others, list->keys[i].at_most);
        }
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
        json_pack("{s:s, s:o, s:f, s:I, s:o, s:I}",
            "by", ngx_rl_api_tops[by],
            "since", ngx_rl_json_time(now_ms - read->ms),
            "seconds", (double) read->ms / 1000,
            "total", (json_int_t) list->total,
            "keys", array,
            "others_at_most", (json_int_t) others));
}

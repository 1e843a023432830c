/*
 * Counters of the fleet: one script call on the shard of the client. What the
 * arguments and the answer are, lua/check.lua says.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_text.h"
#include "ngx_ratelimit_window.h"

#define NGX_RATELIMIT_REMOTE_ARGS  7   /* of the script, a counter */

/* a counter's arguments: its kind, its field, then five numbers */
#define NGX_RATELIMIT_REMOTE_NUMBER_BYTES                                     \
    NGX_RATELIMIT_REDIS_BULK(sizeof("-18446744073709551615"))
#define NGX_RATELIMIT_REMOTE_NUMBERS_BYTES                                    \
    (5 * NGX_RATELIMIT_REMOTE_NUMBER_BYTES)
#define NGX_RATELIMIT_REMOTE_COUNTER_BYTES                                    \
    (NGX_RATELIMIT_REDIS_BULK(1)                                              \
     + NGX_RATELIMIT_REDIS_BULK(NGX_RATELIMIT_RULE_FIELD)                     \
     + NGX_RATELIMIT_REMOTE_NUMBERS_BYTES)

/* "want+ahead/share" */
#define NGX_RATELIMIT_REMOTE_LEASE_BYTES  (3 * NGX_INT_T_LEN + 2)

/* what one counter is asked for, see lua/check.lua */
typedef struct {
    int64_t   cost;
    int64_t   want;
    uint32_t  ahead;
    uint32_t  share;   /* of ahead; else 0 */
} ngx_ratelimit_price_t;

static ngx_ratelimit_redis_call_t *ngx_ratelimit_remote_call(
    ngx_ratelimit_client_t *client, ngx_ratelimit_remote_e what,
    ngx_ratelimit_redis_handler_pt handler);
static ngx_int_t ngx_ratelimit_remote_price(
    const ngx_ratelimit_counter_t *counter, ngx_ratelimit_remote_e what,
    ngx_ratelimit_price_t *price);
static u_char *ngx_ratelimit_remote_kind(u_char *p,
    const ngx_ratelimit_counter_t *counter);
static u_char *ngx_ratelimit_remote_numbers(u_char *p,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_price_t *price);
static u_char *ngx_ratelimit_remote_lease(u_char *p,
    const ngx_ratelimit_price_t *price);
static u_char *ngx_ratelimit_remote_number(u_char *p, int64_t value);
static ngx_ratelimit_redis_call_t *ngx_ratelimit_remote_one(
    ngx_ratelimit_counter_t *counter, const ngx_ratelimit_price_t *price,
    ngx_ratelimit_redis_handler_pt handler, void *data);
static ngx_uint_t ngx_ratelimit_remote_in_set(
    const ngx_ratelimit_counter_t *counter);
static void ngx_ratelimit_remote_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);


/* in the order of ngx_ratelimit_algorithm_e; in upper case: a dry run */
static u_char  ngx_ratelimit_remote_kinds[] = "ttfslc";


/* What each take of a constant rule says is written once. */
ngx_int_t
ngx_ratelimit_check_prepare(ngx_ratelimit_rule_t *rule, ngx_pool_t *pool)
{
    u_char                 *p;
    ngx_ratelimit_price_t   price;

    if (rule->shards) {
        return ngx_ratelimit_shards_prepare(rule, pool);
    }

    if (rule->dynamic || rule->dynamic_cost || rule->statuses) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, NGX_RATELIMIT_REMOTE_NUMBERS_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&price, sizeof(ngx_ratelimit_price_t));
    price.cost = rule->cost;

    rule->numbers.data = p;
    rule->numbers.len = ngx_ratelimit_remote_numbers(p, &rule->limit, &price)
                        - p;

    return NGX_OK;
}


const u_char *
ngx_ratelimit_client_hash(ngx_ratelimit_client_t *client)
{
    u_char  digest[NGX_RATELIMIT_REDIS_DIGEST];

    if (client->limiter->redis == NULL) {
        return (const u_char *) &client->local;
    }

    if (!client->hashed) {
        ngx_ratelimit_redis_digest(client->limiter->redis, client->key.data,
                                   client->key.len, digest);

        /* the bucket and the fields come from different bytes of the digest */

        client->bucket = (uint32_t) digest[0] << 24 | digest[1] << 16
                         | digest[2] << 8 | digest[3];
        ngx_memcpy(&client->hash, digest + 8, sizeof(client->hash));
        client->hashed = 1;
    }

    return (const u_char *) &client->hash;
}


void
ngx_ratelimit_remote_take(ngx_ratelimit_client_t *client)
{
    ngx_ratelimit_redis_result_t  result;

    client->call = ngx_ratelimit_remote_call(client,
                                             NGX_RATELIMIT_REMOTE_TAKE,
                                             ngx_ratelimit_remote_handler);
    if (client->call) {
        return;
    }

    ngx_memzero(&result, sizeof(ngx_ratelimit_redis_result_t));
    result.status = NGX_RATELIMIT_REDIS_UNREACHABLE;

    ngx_ratelimit_remote_handler(client, &result);
}


void
ngx_ratelimit_remote_tell(ngx_ratelimit_client_t *client,
    ngx_ratelimit_remote_e what)
{
    (void) ngx_ratelimit_remote_call(client, what, NULL);
}


/* Returns NULL, too, where there is nothing to say. */
static ngx_ratelimit_redis_call_t *
ngx_ratelimit_remote_call(ngx_ratelimit_client_t *client,
    ngx_ratelimit_remote_e what, ngx_ratelimit_redis_handler_pt handler)
{
    u_char                      *p, *set;
    ngx_uint_t                   i;
    ngx_ratelimit_check_t       *check;
    ngx_ratelimit_price_t        price;
    ngx_ratelimit_counter_t     *counter;
    const ngx_ratelimit_rule_t  *rule;
    ngx_ratelimit_redis_eval_t   eval;

    u_char  field[NGX_RATELIMIT_RULE_FIELD];
    u_char  sets[NGX_RATELIMIT_MAX_COUNTERS * NGX_RATELIMIT_REDIS_SET_NAME];
    u_char  text[NGX_RATELIMIT_MAX_COUNTERS
                 * NGX_RATELIMIT_REMOTE_COUNTER_BYTES
                 + NGX_RATELIMIT_REDIS_BULK(sizeof(uint64_t))];

    check = client->check;
    p = text;
    set = sets;

    ngx_memzero(&eval, sizeof(ngx_ratelimit_redis_eval_t));
    eval.undo = (what == NGX_RATELIMIT_REMOTE_FREE);

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client != client
            || ngx_ratelimit_remote_price(counter, what, &price) != NGX_OK)
        {
            continue;
        }

        rule = counter->rule;

        ngx_ratelimit_remote_field(field, counter);

        p = ngx_ratelimit_remote_kind(p, counter);
        p = ngx_ratelimit_redis_write_bulk(p, field, sizeof(field));

        if (what == NGX_RATELIMIT_REMOTE_TAKE && rule->numbers.len
            && counter->limit == &rule->limit)
        {
            p = ngx_cpymem(p, rule->numbers.data, rule->numbers.len);

        } else {
            p = ngx_ratelimit_remote_numbers(p, counter->limit, &price);
        }

        eval.nargs += NGX_RATELIMIT_REMOTE_ARGS;

        if (ngx_ratelimit_remote_in_set(counter)) {
            set = ngx_cpymem(set, field, sizeof(field));
        }

        if (what == NGX_RATELIMIT_REMOTE_TAKE
            && counter->limit->algorithm == NGX_RATELIMIT_CONCURRENCY)
        {
            counter->held = 1;
        }
    }

    if (eval.nargs == 0) {
        return NULL;
    }

    eval.bucket = client->bucket;
    eval.sets = sets;
    eval.nsets = (set - sets) / NGX_RATELIMIT_REDIS_SET_NAME;

    if (eval.nsets) {

        if (check->name == 0) {
            check->name = ngx_ratelimit_redis_name(client->limiter->redis);
        }

        p = ngx_ratelimit_redis_write_bulk(p, (u_char *) &check->name,
                                           sizeof(check->name));
        eval.nargs++;
    }

    eval.args.data = text;
    eval.args.len = p - text;

    return ngx_ratelimit_redis_eval(client->limiter->redis, &eval, handler,
                                    client);
}


/* NGX_DECLINED: this counter is not asked for anything. */
static ngx_int_t
ngx_ratelimit_remote_price(const ngx_ratelimit_counter_t *counter,
    ngx_ratelimit_remote_e what, ngx_ratelimit_price_t *price)
{
    ngx_memzero(price, sizeof(ngx_ratelimit_price_t));

    switch (what) {

    case NGX_RATELIMIT_REMOTE_TAKE:

        if (counter->leased) {
            return NGX_DECLINED;
        }

        price->cost = counter->cost;
        price->want = counter->look ? -1 : 0;
        return NGX_OK;

    case NGX_RATELIMIT_REMOTE_GIVE:

        if (counter->source != NGX_RATELIMIT_SOURCE_REDIS || counter->leased)
        {
            return NGX_DECLINED;
        }

        price->cost = -(int64_t) counter->answer.granted;
        price->want = ngx_ratelimit_remote_age_us(counter,
                                        counter->client->check->taken_us)
                      / 1000;
        return price->cost ? NGX_OK : NGX_DECLINED;

    case NGX_RATELIMIT_REMOTE_SETTLE:

        if (counter->charge) {
            price->want = -1 - (int64_t) counter->charge;
            return NGX_OK;
        }

        /* what was granted without Redis was not taken there */

        if (counter->source != NGX_RATELIMIT_SOURCE_REDIS || counter->leased)
        {
            return NGX_DECLINED;
        }

        price->cost = -(int64_t) counter->refund;
        price->want = ngx_ratelimit_remote_age_us(counter,
                                        counter->client->check->taken_us)
                      / 1000;
        return price->cost ? NGX_OK : NGX_DECLINED;

    case NGX_RATELIMIT_REMOTE_FREE:
        price->cost = -1;
        return counter->held ? NGX_OK : NGX_DECLINED;

    default: /* NGX_RATELIMIT_REMOTE_RENEW: the request runs in any case */
        price->cost = 1;
        price->want = 1;
        return counter->held ? NGX_OK : NGX_DECLINED;
    }
}


uint64_t
ngx_ratelimit_remote_age_us(const ngx_ratelimit_counter_t *counter,
    uint64_t asked_us)
{
    return ngx_ratelimit_window_answer_age_us(counter->limit,
                                              ngx_ratelimit_local_now_us(),
                                              asked_us, &counter->answer);
}


void
ngx_ratelimit_remote_field(u_char *field,
    const ngx_ratelimit_counter_t *counter)
{
    ngx_uint_t     i;
    const u_char  *digest;

    digest = ngx_ratelimit_client_hash(counter->client);

    for (i = 0; i < NGX_RATELIMIT_RULE_FIELD; i++) {
        field[i] = digest[i] ^ counter->rule->field_salt[i];
    }
}


static u_char *
ngx_ratelimit_remote_kind(u_char *p, const ngx_ratelimit_counter_t *counter)
{
    u_char  kind;

    kind = ngx_ratelimit_remote_kinds[counter->limit->algorithm];

    if (counter->dry_run) {
        kind = ngx_toupper(kind);
    }

    return ngx_ratelimit_redis_write_bulk(p, &kind, 1);
}


/* cost, want, capacity, a, b */
static u_char *
ngx_ratelimit_remote_numbers(u_char *p, const ngx_ratelimit_limit_t *limit,
    const ngx_ratelimit_price_t *price)
{
    p = ngx_ratelimit_remote_number(p, price->cost);

    if (price->share) {
        p = ngx_ratelimit_remote_lease(p, price);

    } else {
        p = ngx_ratelimit_remote_number(p, price->want);
    }

    p = ngx_ratelimit_remote_number(p, limit->capacity);

    switch (limit->algorithm) {

    case NGX_RATELIMIT_TOKEN_BUCKET:
    case NGX_RATELIMIT_LEAKY_BUCKET:
        p = ngx_ratelimit_remote_number(p, limit->rate.period_us);
        return ngx_ratelimit_remote_number(p, limit->rate.scale);

    case NGX_RATELIMIT_CONCURRENCY:
        p = ngx_ratelimit_remote_number(p, NGX_RATELIMIT_LEASE_US);
        return ngx_ratelimit_remote_number(p, 0);

    default:
        p = ngx_ratelimit_remote_number(p, limit->window_us);
        return ngx_ratelimit_remote_number(p, limit->calendar);
    }
}


static u_char *
ngx_ratelimit_remote_lease(u_char *p, const ngx_ratelimit_price_t *price)
{
    u_char  text[NGX_RATELIMIT_REMOTE_LEASE_BYTES], *last;

    last = ngx_ratelimit_number_write(text, price->want);
    *last++ = '+';
    last = ngx_ratelimit_number_write(last, price->ahead);
    *last++ = '/';
    last = ngx_ratelimit_number_write(last, price->share);

    return ngx_ratelimit_redis_write_bulk(p, text, last - text);
}


static u_char *
ngx_ratelimit_remote_number(u_char *p, int64_t value)
{
    u_char  text[NGX_INT64_LEN + 1], *digits, *last;

    digits = text;

    if (value < 0) {
        *digits++ = '-';
        value = -value;
    }

    last = ngx_ratelimit_number_write(digits, value);

    return ngx_ratelimit_redis_write_bulk(p, text, last - text);
}


static ngx_uint_t
ngx_ratelimit_remote_in_set(const ngx_ratelimit_counter_t *counter)
{
    return counter->limit->algorithm == NGX_RATELIMIT_SLIDING_LOG
           || counter->limit->algorithm == NGX_RATELIMIT_CONCURRENCY;
}


static void
ngx_ratelimit_remote_handler(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_client_t *client = data;

    ngx_uint_t                i, n;
    const int64_t            *values;
    ngx_ratelimit_check_t    *check;
    ngx_ratelimit_counter_t  *counter;

    client->call = NULL;

    check = client->check;
    n = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client != client || counter->leased) {
            continue;
        }

        if (!result->ran) {
            counter->held = 0;
        }

        values = (n + NGX_RATELIMIT_REMOTE_VALUES <= result->n)
                 ? &result->values[n] : NULL;
        n += NGX_RATELIMIT_REMOTE_VALUES;

        if (values
            && ngx_ratelimit_remote_read(values, counter->limit,
                                         &counter->answer)
               == NGX_OK)
        {
            counter->source = NGX_RATELIMIT_SOURCE_REDIS;
            counter->held &= (counter->answer.granted != 0);

            if (counter->fail_mode == NGX_RATELIMIT_FAIL_LOCAL) {
                ngx_ratelimit_fallback_note(counter, check->taken_us);
            }

            if (counter->alone) {
                ngx_ratelimit_leased_tell(counter, 1);

            } else if (counter->rule->dynamic_cost) {
                ngx_ratelimit_leased_note(counter);
            }

        } else {
            if (counter->alone) {
                ngx_ratelimit_leased_tell(counter, 0);
            }

            counter->reason = (result->status == NGX_RATELIMIT_REDIS_OK)
                              ? NGX_RATELIMIT_REDIS_PROTOCOL : result->status;
            ngx_ratelimit_fallback(counter, result->wait_ms);
        }
    }

    ngx_ratelimit_check_answered(check);
}


ngx_int_t
ngx_ratelimit_remote_read(const int64_t *values,
    const ngx_ratelimit_limit_t *limit, ngx_ratelimit_answer_t *answer)
{
    int64_t  capacity;

    capacity = limit->capacity;

    if (values[0] < 0 || values[0] > capacity
        || values[1] < 0 || values[1] > capacity
        || values[2] < 0 || values[2] > INT64_MAX / 1000
        || values[3] < -1 || values[3] > INT64_MAX / 1000)
    {
        return NGX_DECLINED;
    }

    answer->granted = values[0];
    answer->remaining = values[1];
    answer->reset_us = (uint64_t) values[2] * 1000;
    answer->retry_us = (values[3] == -1) ? NGX_RATELIMIT_NEVER
                                         : (uint64_t) values[3] * 1000;

    return NGX_OK;
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_remote_ask(ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_lease_ask_t *ask,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_price_t  price;

    price.cost = ask->cost;
    price.want = ask->want;
    price.ahead = ask->ahead;
    price.share = ask->ahead ? ask->share : 0;

    return ngx_ratelimit_remote_one(counter, &price, handler, data);
}


void
ngx_ratelimit_remote_give(ngx_ratelimit_counter_t *counter, uint32_t tokens,
    uint64_t age_us)
{
    ngx_ratelimit_price_t  price;

    ngx_memzero(&price, sizeof(ngx_ratelimit_price_t));
    price.cost = -(int64_t) tokens;
    price.want = (age_us + 999) / 1000;

    (void) ngx_ratelimit_remote_one(counter, &price, NULL, NULL);
}


/* A call for a counter of a hash alone. */
static ngx_ratelimit_redis_call_t *
ngx_ratelimit_remote_one(ngx_ratelimit_counter_t *counter,
    const ngx_ratelimit_price_t *price,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    u_char                      *p;
    ngx_ratelimit_redis_t       *redis;
    ngx_ratelimit_redis_eval_t   eval;

    u_char  field[NGX_RATELIMIT_RULE_FIELD];
    u_char  text[NGX_RATELIMIT_REMOTE_COUNTER_BYTES
                 + NGX_RATELIMIT_REMOTE_LEASE_BYTES];

    redis = counter->client->limiter->redis;

    ngx_ratelimit_remote_field(field, counter);

    p = ngx_ratelimit_remote_kind(text, counter);
    p = ngx_ratelimit_redis_write_bulk(p, field, sizeof(field));
    p = ngx_ratelimit_remote_numbers(p, counter->limit, price);

    ngx_memzero(&eval, sizeof(ngx_ratelimit_redis_eval_t));

    eval.bucket = counter->client->bucket;
    eval.nargs = NGX_RATELIMIT_REMOTE_ARGS;
    eval.args.data = text;
    eval.args.len = p - text;
    eval.late = (handler != NULL);

    return ngx_ratelimit_redis_eval(redis, &eval, handler, data);
}

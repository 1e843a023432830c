/*
 * Counters of the fleet: one script call on the shard of the client.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_REMOTE_ARGS     6   /* of the script, a counter */
#define NGX_RATELIMIT_REMOTE_VALUES   4   /* in its answer, a counter */

/* a counter's arguments: its field, then five numbers */
#define NGX_RATELIMIT_REMOTE_FIELD_BYTES                                      \
    NGX_RATELIMIT_REDIS_BULK(NGX_RATELIMIT_RULE_FIELD)
#define NGX_RATELIMIT_REMOTE_NUMBERS_BYTES                                    \
    (5 * NGX_RATELIMIT_REDIS_BULK(sizeof("-18446744073709551615")))

static ngx_ratelimit_redis_call_t *ngx_ratelimit_remote_call(
    ngx_ratelimit_client_t *client, ngx_int_t cost,
    ngx_ratelimit_redis_handler_pt handler);
static u_char *ngx_ratelimit_remote_field(u_char *p,
    const ngx_ratelimit_rule_t *rule, const u_char *digest);
static u_char *ngx_ratelimit_remote_numbers(u_char *p,
    const ngx_ratelimit_rate_t *rate, ngx_int_t cost);
static u_char *ngx_ratelimit_remote_number(u_char *p, uint64_t value);
static void ngx_ratelimit_remote_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_remote_answer(ngx_ratelimit_counter_t *counter,
    const int64_t *values);


/* What each take of a rule of constant rate says is written once. */
ngx_int_t
ngx_ratelimit_check_prepare(ngx_ratelimit_rule_t *rule, ngx_pool_t *pool)
{
    u_char  *p;

    if (rule->dynamic) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, NGX_RATELIMIT_REMOTE_NUMBERS_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    rule->numbers.data = p;
    rule->numbers.len = ngx_ratelimit_remote_numbers(p, &rule->rate, 1) - p;

    return NGX_OK;
}


void
ngx_ratelimit_remote_take(ngx_ratelimit_client_t *client)
{
    ngx_ratelimit_redis_result_t  result;

    client->call = ngx_ratelimit_remote_call(client, 1,
                                             ngx_ratelimit_remote_handler);
    if (client->call) {
        return;
    }

    result.status = NGX_RATELIMIT_REDIS_UNREACHABLE;
    result.n = 0;
    result.values = NULL;

    ngx_ratelimit_remote_handler(client, &result);
}


void
ngx_ratelimit_remote_give(ngx_ratelimit_client_t *client)
{
    (void) ngx_ratelimit_remote_call(client, -1, NULL);
}


static ngx_ratelimit_redis_call_t *
ngx_ratelimit_remote_call(ngx_ratelimit_client_t *client, ngx_int_t cost,
    ngx_ratelimit_redis_handler_pt handler)
{
    u_char                        digest[NGX_RATELIMIT_REDIS_DIGEST], *p;
    uint32_t                      bucket;
    ngx_str_t                     args;
    ngx_uint_t                    i, n;
    ngx_ratelimit_redis_t        *redis;
    ngx_ratelimit_check_t        *check;
    ngx_ratelimit_counter_t      *counter;
    const ngx_ratelimit_rule_t   *rule;

    u_char  text[NGX_RATELIMIT_MAX_COUNTERS
                 * (NGX_RATELIMIT_REMOTE_FIELD_BYTES
                    + NGX_RATELIMIT_REMOTE_NUMBERS_BYTES)];

    redis = client->limiter->redis;
    check = client->check;

    ngx_ratelimit_redis_digest(redis, client->key.data, client->key.len,
                               digest);

    /* the bucket and the field come from different bytes of the digest */

    bucket = (uint32_t) digest[0] << 24 | digest[1] << 16 | digest[2] << 8
             | digest[3];

    p = text;
    n = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client != client) {
            continue;
        }

        rule = counter->rule;
        p = ngx_ratelimit_remote_field(p, rule, digest + 8);

        if (cost == 1 && rule->numbers.len) {
            p = ngx_cpymem(p, rule->numbers.data, rule->numbers.len);

        } else {
            p = ngx_ratelimit_remote_numbers(p, counter->rate, cost);
        }

        n += NGX_RATELIMIT_REMOTE_ARGS;
    }

    args.data = text;
    args.len = p - text;

    return ngx_ratelimit_redis_eval(redis, bucket, &args, n, handler, client);
}


static u_char *
ngx_ratelimit_remote_field(u_char *p, const ngx_ratelimit_rule_t *rule,
    const u_char *digest)
{
    u_char      field[NGX_RATELIMIT_RULE_FIELD];
    ngx_uint_t  i;

    for (i = 0; i < NGX_RATELIMIT_RULE_FIELD; i++) {
        field[i] = digest[i] ^ rule->field_salt[i];
    }

    return ngx_ratelimit_redis_write_bulk(p, field, sizeof(field));
}


/* cost, want, and the rate; a cost below 0 gives back. */
static u_char *
ngx_ratelimit_remote_numbers(u_char *p, const ngx_ratelimit_rate_t *rate,
    ngx_int_t cost)
{
    u_char  text[NGX_INT_T_LEN], *last;

    last = ngx_sprintf(text, "%i", cost);

    p = ngx_ratelimit_redis_write_bulk(p, text, last - text);
    p = ngx_ratelimit_remote_number(p, 0);
    p = ngx_ratelimit_remote_number(p, rate->capacity);
    p = ngx_ratelimit_remote_number(p, rate->period_us);

    return ngx_ratelimit_remote_number(p, rate->scale);
}


static u_char *
ngx_ratelimit_remote_number(u_char *p, uint64_t value)
{
    u_char  text[NGX_INT64_LEN], *last;

    last = ngx_ratelimit_number_write(text, value);

    return ngx_ratelimit_redis_write_bulk(p, text, last - text);
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

        if (counter->client != client) {
            continue;
        }

        counter->source = NGX_RATELIMIT_SOURCE_FALLBACK;

        if (n + NGX_RATELIMIT_REMOTE_VALUES <= result->n) {
            values = &result->values[n];
            ngx_ratelimit_remote_answer(counter, values);
        }

        n += NGX_RATELIMIT_REMOTE_VALUES;
    }

    ngx_ratelimit_check_answered(client);
}


/* Whatever stands in the reply, the counter's answer stays in its ranges. */
static void
ngx_ratelimit_remote_answer(ngx_ratelimit_counter_t *counter,
    const int64_t *values)
{
    int64_t                  capacity;
    ngx_ratelimit_answer_t  *answer;

    answer = &counter->answer;
    capacity = counter->rate->capacity;

    if (values[0] < 0 || values[0] > capacity
        || values[1] < 0 || values[1] > capacity
        || values[2] < 0 || values[2] > INT64_MAX / 1000
        || values[3] < -1 || values[3] > INT64_MAX / 1000)
    {
        return;
    }

    answer->granted = values[0];
    answer->remaining = values[1];
    answer->reset_us = (uint64_t) values[2] * 1000;
    answer->retry_us = (values[3] == -1) ? NGX_RATELIMIT_NEVER
                                         : (uint64_t) values[3] * 1000;

    counter->source = NGX_RATELIMIT_SOURCE_REDIS;
}

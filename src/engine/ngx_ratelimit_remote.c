/*
 * Counters of the fleet: one script call on the shard of the client.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_REMOTE_ARGS     6   /* of the script, a counter */
#define NGX_RATELIMIT_REMOTE_VALUES   4   /* in its answer, a counter */
#define NGX_RATELIMIT_REMOTE_NUMBER  21   /* "-" and 20 digits */

typedef struct {
    ngx_str_t   args[NGX_RATELIMIT_MAX_COUNTERS * NGX_RATELIMIT_REMOTE_ARGS];
    u_char      text[NGX_RATELIMIT_MAX_COUNTERS
                     * (NGX_RATELIMIT_RULE_FIELD
                        + 5 * NGX_RATELIMIT_REMOTE_NUMBER)];
    u_char     *last;
    ngx_uint_t  nargs;
} ngx_ratelimit_remote_args_t;

static ngx_ratelimit_redis_call_t *ngx_ratelimit_remote_call(
    ngx_ratelimit_client_t *client, ngx_uint_t give,
    ngx_ratelimit_redis_handler_pt handler);
static void ngx_ratelimit_remote_field(ngx_ratelimit_remote_args_t *args,
    const ngx_ratelimit_rule_t *rule, const u_char *digest);
static void ngx_ratelimit_remote_number(ngx_ratelimit_remote_args_t *args,
    ngx_uint_t negative, uint64_t value);
static void ngx_ratelimit_remote_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_remote_answer(ngx_ratelimit_counter_t *counter,
    const int64_t *values);


void
ngx_ratelimit_remote_take(ngx_ratelimit_client_t *client)
{
    ngx_ratelimit_redis_result_t  result;

    client->call = ngx_ratelimit_remote_call(client, 0,
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
    (void) ngx_ratelimit_remote_call(client, 1, NULL);
}


static ngx_ratelimit_redis_call_t *
ngx_ratelimit_remote_call(ngx_ratelimit_client_t *client, ngx_uint_t give,
    ngx_ratelimit_redis_handler_pt handler)
{
    u_char                        digest[NGX_RATELIMIT_REDIS_DIGEST];
    uint32_t                      bucket;
    ngx_uint_t                    i;
    ngx_ratelimit_redis_t        *redis;
    ngx_ratelimit_check_t        *check;
    ngx_ratelimit_counter_t      *counter;
    ngx_ratelimit_remote_args_t   args;

    redis = client->limiter->redis;
    check = client->check;

    ngx_ratelimit_redis_digest(redis, client->key.data, client->key.len,
                               digest);

    /* the bucket and the field come from different bytes of the digest */

    bucket = (uint32_t) digest[0] << 24 | digest[1] << 16 | digest[2] << 8
             | digest[3];

    args.last = args.text;
    args.nargs = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client != client) {
            continue;
        }

        ngx_ratelimit_remote_field(&args, counter->rule, digest + 8);
        ngx_ratelimit_remote_number(&args, give, 1);
        ngx_ratelimit_remote_number(&args, 0, 0);
        ngx_ratelimit_remote_number(&args, 0, counter->rate->capacity);
        ngx_ratelimit_remote_number(&args, 0, counter->rate->period_us);
        ngx_ratelimit_remote_number(&args, 0, counter->rate->scale);
    }

    return ngx_ratelimit_redis_eval(redis, bucket, args.args, args.nargs,
                                    handler, client);
}


static void
ngx_ratelimit_remote_field(ngx_ratelimit_remote_args_t *args,
    const ngx_ratelimit_rule_t *rule, const u_char *digest)
{
    ngx_str_t   *arg;
    ngx_uint_t   i;

    arg = &args->args[args->nargs++];
    arg->data = args->last;
    arg->len = NGX_RATELIMIT_RULE_FIELD;

    for (i = 0; i < NGX_RATELIMIT_RULE_FIELD; i++) {
        *args->last++ = digest[i] ^ rule->field_salt[i];
    }
}


static void
ngx_ratelimit_remote_number(ngx_ratelimit_remote_args_t *args,
    ngx_uint_t negative, uint64_t value)
{
    ngx_str_t  *arg;

    arg = &args->args[args->nargs++];
    arg->data = args->last;

    if (negative) {
        *args->last++ = '-';
    }

    args->last = ngx_ratelimit_number_write(args->last, value);
    arg->len = args->last - arg->data;
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

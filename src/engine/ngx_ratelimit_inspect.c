/*
 * Looks at a counter by the script, with a cost of 0, and resets it by commands
 * that no script has.
 */

#include "ngx_ratelimit_inspect.h"

#include "ngx_ratelimit_script.h"

static void ngx_ratelimit_inspect_counter(ngx_ratelimit_inspect_t *inspect);
static ngx_int_t ngx_ratelimit_inspect_ask(ngx_ratelimit_inspect_t *inspect);
static void ngx_ratelimit_inspect_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static ngx_ratelimit_counter_t *ngx_ratelimit_inspect_part(
    ngx_ratelimit_inspect_t *inspect, ngx_ratelimit_part_t *part);
static void ngx_ratelimit_inspect_next(ngx_ratelimit_inspect_t *inspect,
    ngx_int_t (*ask)(ngx_ratelimit_inspect_t *inspect));
static ngx_int_t ngx_ratelimit_inspect_delete(
    ngx_ratelimit_inspect_t *inspect);
static void ngx_ratelimit_inspect_delete_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);


ngx_int_t
ngx_ratelimit_inspect_look(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_inspect_counter(inspect);

    if (inspect->limiter->redis == NULL) {
        ngx_ratelimit_local_take(&inspect->counter);
        inspect->answer = inspect->counter.answer;
        inspect->answer.remaining
                           = ngx_ratelimit_counter_remaining(&inspect->counter);
        return NGX_OK;
    }

    (void) ngx_ratelimit_client_hash(&inspect->client);

    return ngx_ratelimit_inspect_ask(inspect);
}


/* A counter whose cost is 0. */
static void
ngx_ratelimit_inspect_counter(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_client_t   *client;
    ngx_ratelimit_counter_t  *counter;

    client = &inspect->client;
    counter = &inspect->counter;

    client->limiter = inspect->limiter;
    client->key = inspect->key;
    client->check = &inspect->check;

    counter->rule = inspect->rule;
    counter->limit = inspect->limit ? inspect->limit : &inspect->rule->limit;
    counter->client = client;

    if (inspect->limiter->redis) {
        inspect->check.remote = &inspect->remote_check;
        client->remote = &inspect->remote_client;
        counter->remote = &inspect->remote;
    }
}


static ngx_int_t
ngx_ratelimit_inspect_ask(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_part_t       part;
    ngx_ratelimit_lease_ask_t  ask;

    ngx_memzero(&ask, sizeof(ngx_ratelimit_lease_ask_t));

    inspect->call = ngx_ratelimit_script_ask(
                                    ngx_ratelimit_inspect_part(inspect, &part),
                                    &ask, ngx_ratelimit_inspect_handler,
                                    inspect);

    return inspect->call ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_ratelimit_inspect_handler(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_inspect_t *inspect = data;

    ngx_ratelimit_part_t      part;
    ngx_ratelimit_answer_t    answer;
    ngx_ratelimit_counter_t  *counter;

    if (result->again) {
        ngx_ratelimit_redis_forget(inspect->call);
    }

    inspect->call = NULL;

    counter = ngx_ratelimit_inspect_part(inspect, &part);
    inspect->status = ngx_ratelimit_script_read(result, 0, counter->limit,
                                                &answer);

    if (inspect->status == NGX_RATELIMIT_REDIS_OK) {
        inspect->answer.remaining += answer.remaining;
        inspect->answer.reset_us = ngx_max(inspect->answer.reset_us,
                                           answer.reset_us);
    }

    ngx_ratelimit_inspect_next(inspect, ngx_ratelimit_inspect_ask);
}


/* The counter as Redis knows it: itself, or the part whose turn it is. */
static ngx_ratelimit_counter_t *
ngx_ratelimit_inspect_part(ngx_ratelimit_inspect_t *inspect,
    ngx_ratelimit_part_t *part)
{
    if (inspect->rule->shares == NULL) {
        return &inspect->counter;
    }

    ngx_ratelimit_parts_get(&inspect->counter, part);

    return &part->counter;
}


/* One part after the other: they are in different hash slots. */
static void
ngx_ratelimit_inspect_next(ngx_ratelimit_inspect_t *inspect,
    ngx_int_t (*ask)(ngx_ratelimit_inspect_t *inspect))
{
    if (inspect->status == NGX_RATELIMIT_REDIS_OK && inspect->rule->shares
        && ++inspect->counter.remote->part < inspect->rule->shards)
    {
        if (ask(inspect) == NGX_AGAIN) {
            return;
        }

        inspect->status = NGX_RATELIMIT_REDIS_UNREACHABLE;
    }

    inspect->handler(inspect->data);
}


ngx_int_t
ngx_ratelimit_inspect_reset(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_inspect_counter(inspect);

    /* a RESET forgets what stands in for Redis, but for permits */

    if (inspect->limiter->redis == NULL
        || inspect->rule->spec.algorithm == NGX_RATELIMIT_CONCURRENCY)
    {
        ngx_ratelimit_local_drop(&inspect->counter,
                                 inspect->rule->spec.algorithm);
    }

    ngx_ratelimit_retry_forget(&inspect->counter);

    if (inspect->rule->emergency) {
        inspect->counter.emergency = 1;
        ngx_ratelimit_local_drop(&inspect->counter,
                                 inspect->rule->emergency->algorithm);
        inspect->counter.emergency = 0;
    }

    if (inspect->limiter->redis == NULL) {
        return NGX_OK;
    }

    (void) ngx_ratelimit_client_hash(&inspect->client);

    /* resets are rare: connections for one, made for it */

    inspect->control = ngx_ratelimit_redis_control_new(inspect->limiter->redis,
                                                       (ngx_cycle_t *)
                                                       ngx_cycle);
    if (inspect->control == NULL) {
        return NGX_ERROR;
    }

    return ngx_ratelimit_inspect_delete(inspect);
}


/* The field of the client's bucket, or the set; of each part. */
static ngx_int_t
ngx_ratelimit_inspect_delete(ngx_ratelimit_inspect_t *inspect)
{
    ngx_uint_t                in_set;
    ngx_str_t                 args[3];
    ngx_ratelimit_part_t      part;
    ngx_ratelimit_counter_t  *counter;

    u_char  field[NGX_RATELIMIT_RULE_FIELD];

    counter = ngx_ratelimit_inspect_part(inspect, &part);
    in_set = ngx_ratelimit_script_in_set(inspect->rule->spec.algorithm);

    ngx_ratelimit_script_field(field, counter);

    if (ngx_ratelimit_redis_key(inspect->limiter->redis,
                                counter->client->remote->bucket,
                                in_set ? field : NULL, inspect->pool, &args[1])
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (in_set) {
        ngx_str_set(&args[0], "DEL");

    } else {
        ngx_str_set(&args[0], "HDEL");
        args[2].data = field;
        args[2].len = sizeof(field);
    }

    inspect->call = ngx_ratelimit_redis_control_call(inspect->control, args,
                                                     in_set ? 2 : 3, 1,
                                         ngx_ratelimit_inspect_delete_handler,
                                                     inspect);

    return inspect->call ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_ratelimit_inspect_delete_handler(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_inspect_t *inspect = data;

    inspect->call = NULL;
    inspect->status = result->status;
    inspect->done |= (result->status == NGX_RATELIMIT_REDIS_OK || result->ran);

    ngx_ratelimit_inspect_next(inspect, ngx_ratelimit_inspect_delete);
}


void
ngx_ratelimit_inspect_end(ngx_ratelimit_inspect_t *inspect)
{
    if (inspect->call) {
        ngx_ratelimit_redis_forget(inspect->call);
        inspect->call = NULL;
    }

    if (inspect->control) {
        ngx_ratelimit_redis_control_free(inspect->control);
        inspect->control = NULL;
    }
}

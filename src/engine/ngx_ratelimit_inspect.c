/*
 * Looks at a counter, and resets it: by the calls that checks make, of a rule
 * that takes nothing; and by commands for what no script does.
 */

#include "ngx_ratelimit_inspect.h"

#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_script.h"

static void ngx_ratelimit_inspect_counter(ngx_ratelimit_inspect_t *inspect);
static void ngx_ratelimit_inspect_handler(void *data);
static ngx_int_t ngx_ratelimit_inspect_shard(ngx_ratelimit_inspect_t *inspect);
static void ngx_ratelimit_inspect_shard_handler(void *data,
    const ngx_ratelimit_redis_result_t *result);
static void ngx_ratelimit_inspect_drop(ngx_ratelimit_inspect_t *inspect,
    ngx_ratelimit_algorithm_e algorithm);
static ngx_int_t ngx_ratelimit_inspect_delete(
    ngx_ratelimit_inspect_t *inspect);
static void ngx_ratelimit_inspect_delete_handler(void *data,
    const ngx_ratelimit_redis_control_result_t *result);
static ngx_uint_t ngx_ratelimit_inspect_in_set(
    const ngx_ratelimit_inspect_t *inspect);


ngx_int_t
ngx_ratelimit_inspect_look(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_inspect_counter(inspect);

    if (inspect->limiter->redis == NULL) {
        ngx_ratelimit_local_take(&inspect->counter);
        inspect->answer = inspect->counter.answer;
        return NGX_OK;
    }

    (void) ngx_ratelimit_client_hash(&inspect->client);

    if (inspect->rule->shares) {
        return ngx_ratelimit_inspect_shard(inspect);
    }

    /* it is complete where memory is out: what is returned says so */

    inspect->asking = 1;
    inspect->counter.backend = &ngx_ratelimit_strict;
    inspect->counter.backend->ask(&inspect->counter);
    inspect->asking = 0;

    return inspect->client.call ? NGX_AGAIN : NGX_ERROR;
}


/* A check of one counter that costs nothing, and stands in for nothing. */
static void
ngx_ratelimit_inspect_counter(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_check_t    *check;
    ngx_ratelimit_client_t   *client;
    ngx_ratelimit_counter_t  *counter;

    check = &inspect->check;
    client = &inspect->client;
    counter = &inspect->counter;

    inspect->copy = *inspect->rule;
    inspect->copy.numbers.len = 0;
    inspect->copy.emergency = NULL;

    client->limiter = inspect->limiter;
    client->key = inspect->key;
    client->check = check;
    client->local = ngx_ratelimit_siphash(
                    ngx_ratelimit_table_hash_key(inspect->limiter->zone.table),
                    client->key.data, client->key.len, 1, 3);

    counter->rule = &inspect->copy;
    counter->limit = inspect->limit;
    counter->client = client;
    counter->look = 1;
    counter->fail_mode = NGX_RATELIMIT_FAIL_OPEN;

    check->counters = counter;
    check->clients = client;
    check->ncounters = 1;
    check->nclients = 1;
    check->remote = (inspect->limiter->redis != NULL);
    check->taken_us = ngx_ratelimit_local_now_us();
    check->handler = ngx_ratelimit_inspect_handler;
    check->data = inspect;
}


static void
ngx_ratelimit_inspect_handler(void *data)
{
    ngx_ratelimit_inspect_t *inspect = data;

    if (inspect->asking) {
        return;
    }

    if (inspect->counter.source == NGX_RATELIMIT_SOURCE_REDIS) {
        inspect->answer = inspect->counter.answer;

    } else {
        inspect->status = inspect->counter.reason;
    }

    inspect->handler(inspect->data);
}


/* One part after the other: they are in different slots. */
static ngx_int_t
ngx_ratelimit_inspect_shard(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_part_t      part;
    ngx_ratelimit_lease_ask_t  ask;

    ngx_ratelimit_parts_get(&inspect->counter, &part);

    ngx_memzero(&ask, sizeof(ngx_ratelimit_lease_ask_t));

    inspect->call = ngx_ratelimit_script_ask(&part.counter, &ask,
                                          ngx_ratelimit_inspect_shard_handler,
                                             inspect);

    return inspect->call ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_ratelimit_inspect_shard_handler(void *data,
    const ngx_ratelimit_redis_result_t *result)
{
    ngx_ratelimit_inspect_t *inspect = data;

    ngx_ratelimit_part_t    part;
    ngx_ratelimit_answer_t   answer;

    if (result->again) {
        ngx_ratelimit_redis_forget(inspect->call);
    }

    inspect->call = NULL;

    ngx_ratelimit_parts_get(&inspect->counter, &part);

    inspect->status = ngx_ratelimit_script_read(result, 0, part.counter.limit,
                                                &answer);

    if (inspect->status == NGX_RATELIMIT_REDIS_OK) {
        inspect->answer.remaining += answer.remaining;
        inspect->answer.reset_us = ngx_max(inspect->answer.reset_us,
                                           answer.reset_us);

        if (++inspect->counter.part < inspect->rule->shards) {

            if (ngx_ratelimit_inspect_shard(inspect) == NGX_AGAIN) {
                return;
            }

            inspect->status = NGX_RATELIMIT_REDIS_UNREACHABLE;
        }
    }

    inspect->handler(inspect->data);
}


ngx_int_t
ngx_ratelimit_inspect_reset(ngx_ratelimit_inspect_t *inspect)
{
    ngx_ratelimit_inspect_counter(inspect);

    inspect->counter.limit = &inspect->copy.limit;

    /* but slots, what stands in for Redis is forgotten when that is told */

    if (inspect->limiter->redis == NULL
        || inspect->rule->spec.algorithm == NGX_RATELIMIT_CONCURRENCY)
    {
        ngx_ratelimit_inspect_drop(inspect, inspect->rule->spec.algorithm);
    }

    if (inspect->rule->emergency) {
        inspect->copy.emergency = inspect->rule->emergency;
        inspect->counter.emergency = 1;
        ngx_ratelimit_inspect_drop(inspect,
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


/*
 * The counter in this node's table. What windows and logs have elsewhere is
 * found by it; slots that requests hold are counted again when it is missing.
 */
static void
ngx_ratelimit_inspect_drop(ngx_ratelimit_inspect_t *inspect,
    ngx_ratelimit_algorithm_e algorithm)
{
    ngx_ratelimit_id_t      id;
    ngx_ratelimit_table_t  *table;
    ngx_ratelimit_entry_t   entry;

    id = ngx_ratelimit_counter_id(&inspect->counter);
    table = inspect->limiter->zone.table;

    if (algorithm == NGX_RATELIMIT_SLIDING_WINDOW
        || algorithm == NGX_RATELIMIT_SLIDING_LOG
        || algorithm == NGX_RATELIMIT_CONCURRENCY)
    {
        ngx_ratelimit_table_lock_outer(table, &id,
                                       ngx_ratelimit_local_now_us(), &entry);

    } else {
        ngx_ratelimit_table_lock(table, &id, ngx_ratelimit_local_now_us(),
                                 &entry);
    }

    if (!entry.found) {
        ngx_ratelimit_table_unlock(&entry);
        return;
    }

    ngx_memzero(&entry.state, sizeof(ngx_ratelimit_state_t));
    ngx_ratelimit_table_store(&entry, 0);
}


/* The field of the client's bucket, or the set; of each part. */
static ngx_int_t
ngx_ratelimit_inspect_delete(ngx_ratelimit_inspect_t *inspect)
{
    ngx_uint_t                in_set;
    ngx_str_t                 args[3];
    ngx_ratelimit_part_t     part;
    ngx_ratelimit_counter_t  *counter;

    u_char  field[NGX_RATELIMIT_RULE_FIELD];

    counter = &inspect->counter;
    in_set = ngx_ratelimit_inspect_in_set(inspect);

    if (inspect->rule->shares) {
        ngx_ratelimit_parts_get(counter, &part);
        counter = &part.counter;
    }

    ngx_ratelimit_script_field(field, counter);

    if (ngx_ratelimit_redis_key(inspect->limiter->redis,
                                counter->client->bucket,
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
    inspect->controls = 1;

    return inspect->call ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_ratelimit_inspect_delete_handler(void *data,
    const ngx_ratelimit_redis_control_result_t *result)
{
    ngx_ratelimit_inspect_t *inspect = data;

    inspect->call = NULL;
    inspect->status = result->status;
    inspect->done |= (result->status == NGX_RATELIMIT_REDIS_OK || result->ran);

    if (result->status == NGX_RATELIMIT_REDIS_OK
        && inspect->rule->shares
        && ++inspect->counter.part < inspect->rule->shards)
    {
        if (ngx_ratelimit_inspect_delete(inspect) == NGX_AGAIN) {
            return;
        }

        inspect->status = NGX_RATELIMIT_REDIS_UNREACHABLE;
    }

    inspect->handler(inspect->data);
}


static ngx_uint_t
ngx_ratelimit_inspect_in_set(const ngx_ratelimit_inspect_t *inspect)
{
    return inspect->rule->spec.algorithm == NGX_RATELIMIT_SLIDING_LOG
           || inspect->rule->spec.algorithm == NGX_RATELIMIT_CONCURRENCY;
}


void
ngx_ratelimit_inspect_end(ngx_ratelimit_inspect_t *inspect)
{
    if (inspect->client.call) {
        ngx_ratelimit_redis_forget(inspect->client.call);
        inspect->client.call = NULL;
    }

    if (inspect->call) {

        if (inspect->controls) {
            ngx_ratelimit_redis_control_forget(inspect->call);

        } else {
            ngx_ratelimit_redis_forget(inspect->call);
        }

        inspect->call = NULL;
    }

    if (inspect->control) {
        ngx_ratelimit_redis_control_free(inspect->control);
        inspect->control = NULL;
    }
}

/*
 * Looks at a counter by the script, with a cost of 0, and changes it. A reset
 * is a command that no script has; what is used then and what comes back are
 * calls of the script.
 */

#include "ngx_rl_inspect.h"

#include "ngx_rl_script.h"
static ngx_int_t ngx_rl_inspect_begin(ngx_rl_inspect_t *inspect);
static ngx_int_t ngx_rl_inspect_ask(ngx_rl_inspect_t *inspect, int64_t cost,
    int64_t want);


/* A counter whose cost is 0. */
static void
ngx_rl_inspect_counter(ngx_rl_inspect_t *inspect)
{
    ngx_rl_client_t   *client;
    ngx_rl_counter_t  *counter;

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


/* Looks at what this gateway knows. A RESET forgets what stands in for Redis,
   but for permits. */
static void
ngx_rl_inspect_forget(ngx_rl_inspect_t *inspect)
{
    if (inspect->limiter->redis == NULL
        || inspect->rule->spec.algorithm == NGX_RL_CONCURRENCY)
    {
        ngx_rl_local_drop(&inspect->counter, inspect->rule->spec.algorithm);
    }

    if (inspect->rule->emergency) {
        inspect->counter.emergency = 1;
        ngx_rl_local_drop(&inspect->counter,
                          inspect->rule->emergency->algorithm);
        inspect->counter.emergency = 0;
    }
}


/* A look settles the state: a window of another limit gives nothing back. */
static void
ngx_rl_inspect_local(ngx_rl_inspect_t *inspect)
{
    ngx_rl_counter_t  *counter;

    if (inspect->limit == NULL) {
        return;
    }

    counter = &inspect->counter;
    counter->source = NGX_RL_SOURCE_LOCAL;

    if (inspect->used) {
        ngx_rl_local_charge(counter, inspect->used);
    }

    ngx_rl_local_take(counter);

    if (inspect->add) {
        inspect->check.taken_us = NGX_RL_WHENEVER;
        ngx_rl_local_give(counter, inspect->add);
        ngx_rl_local_take(counter);
    }

    inspect->answer = counter->answer;
    inspect->answer.remaining = ngx_rl_counter_remaining(counter);
}


/* The counter as Redis knows it: itself, or the part whose turn it is. */
static ngx_rl_counter_t *
ngx_rl_inspect_part(ngx_rl_inspect_t *inspect, ngx_rl_part_t *part)
{
    if (inspect->rule->shares == NULL) {
        return &inspect->counter;
    }

    ngx_rl_parts_get(&inspect->counter, part);

    return &part->counter;
}


/* If memory is out, this is the end. */
static void
ngx_rl_inspect_go_on(ngx_rl_inspect_t *inspect, ngx_int_t rc)
{
    if (rc != NGX_AGAIN) {
        inspect->status = NGX_RL_REDIS_UNREACHABLE;
        inspect->handler(inspect->data);
    }
}


/* One part after the other: they are in different hash slots. */
static void
ngx_rl_inspect_next(ngx_rl_inspect_t *inspect)
{
    if (inspect->status == NGX_RL_REDIS_OK && inspect->rule->shares
        && ++inspect->counter.remote->part < inspect->rule->shards)
    {
        ngx_rl_inspect_go_on(inspect, ngx_rl_inspect_begin(inspect));
        return;
    }

    inspect->handler(inspect->data);
}


/*
 * A look has settled the state: a window of another limit gives nothing back.
 * One part gets back all that it has used before the next one gets any.
 * NGX_DECLINED: nothing is used.
 */
static ngx_int_t
ngx_rl_inspect_give(ngx_rl_inspect_t *inspect, const ngx_rl_limit_t *limit,
    uint32_t remaining)
{
    uint32_t  tokens;

    tokens = ngx_min(inspect->add, limit->capacity - remaining);

    if (tokens == 0) {
        return NGX_DECLINED;
    }

    inspect->add -= tokens;

    return ngx_rl_inspect_ask(inspect, -(int64_t) tokens, -1);
}


static void
ngx_rl_inspect_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_inspect_t *inspect = data;

    ngx_int_t                 rc;
    ngx_rl_part_t      part;
    ngx_rl_answer_t    answer;
    ngx_rl_counter_t  *counter;

    if (result->again) {

        /* a change that may have run waits for its reply, however late */

        if (inspect->giving || inspect->reset) {
            return;
        }

        ngx_rl_redis_forget(inspect->call);
    }

    inspect->call = NULL;

    counter = ngx_rl_inspect_part(inspect, &part);
    inspect->status = ngx_rl_script_read(result, 0, counter->limit, &answer);

    if (inspect->giving) {
        inspect->done |= (inspect->status == NGX_RL_REDIS_OK || result->ran);
    }

    if (inspect->status != NGX_RL_REDIS_OK) {
        inspect->handler(inspect->data);
        return;
    }

    if (!inspect->giving && inspect->add) {
        rc = ngx_rl_inspect_give(inspect, counter->limit, answer.remaining);
        if (rc != NGX_DECLINED) {
            ngx_rl_inspect_go_on(inspect, rc);
            return;
        }
    }

    inspect->answer.remaining += answer.remaining;
    inspect->answer.reset_us = ngx_max(inspect->answer.reset_us,
                                       answer.reset_us);

    ngx_rl_inspect_next(inspect);
}


static ngx_int_t
ngx_rl_inspect_ask(ngx_rl_inspect_t *inspect, int64_t cost, int64_t want)
{
    ngx_rl_part_t   part;
    ngx_rl_price_t  price;

    ngx_memzero(&price, sizeof(ngx_rl_price_t));
    price.cost = cost;
    price.want = want;

    inspect->giving = (cost < 0);
    inspect->call = ngx_rl_script_one(ngx_rl_inspect_part(inspect, &part),
                                      &price, ngx_rl_inspect_handler, inspect);

    return inspect->call ? NGX_AGAIN : NGX_ERROR;
}


/* A part has used its share of what the counter has used. */
static uint32_t
ngx_rl_inspect_share(const ngx_rl_inspect_t *inspect)
{
    uint32_t  n;

    if (inspect->rule->shares == NULL) {
        return inspect->used;
    }

    n = inspect->rule->shards;

    return inspect->used / n
           + (inspect->counter.remote->part < inspect->used % n);
}


static void
ngx_rl_inspect_delete_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_inspect_t *inspect = data;

    inspect->call = NULL;
    inspect->status = result->status;
    inspect->done |= (result->status == NGX_RL_REDIS_OK || result->ran);

    if (inspect->status != NGX_RL_REDIS_OK || inspect->limit == NULL) {
        ngx_rl_inspect_next(inspect);
        return;
    }

    ngx_rl_inspect_go_on(inspect, ngx_rl_inspect_ask(inspect, 0,
        -1 - (int64_t) ngx_rl_inspect_share(inspect)));
}


/* The field of the client's bucket, or the set. */
static ngx_int_t
ngx_rl_inspect_delete(ngx_rl_inspect_t *inspect)
{
    ngx_uint_t         in_set;
    ngx_str_t          args[4];
    ngx_rl_part_t      part;
    ngx_rl_counter_t  *counter;

    u_char  field[NGX_RL_RULE_FIELD];

    counter = ngx_rl_inspect_part(inspect, &part);
    in_set = ngx_rl_script_in_set(inspect->rule->spec.algorithm);

    ngx_rl_script_field(field, counter);

    if (ngx_rl_redis_key(inspect->limiter->redis,
                         counter->client->remote->bucket,
                         in_set ? field : NULL, inspect->pool, &args[1])
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* for DEL the user would need one more right */

    if (in_set) {
        ngx_str_set(&args[0], "ZREMRANGEBYSCORE");
        ngx_str_set(&args[2], "-inf");
        ngx_str_set(&args[3], "+inf");

    } else {
        ngx_str_set(&args[0], "HDEL");
        args[2].data = field;
        args[2].len = sizeof(field);
    }

    inspect->call = ngx_rl_redis_control_call(inspect->limiter->redis, args,
        in_set ? 4 : 3, 1, ngx_rl_inspect_delete_handler, inspect);

    return inspect->call ? NGX_AGAIN : NGX_ERROR;
}


/* The counter in Redis, or its part whose turn it is. */
static ngx_int_t
ngx_rl_inspect_begin(ngx_rl_inspect_t *inspect)
{
    return inspect->reset ? ngx_rl_inspect_delete(inspect)
                          : ngx_rl_inspect_ask(inspect, 0, 0);
}


ngx_int_t
ngx_rl_inspect(ngx_rl_inspect_t *inspect)
{
    ngx_rl_inspect_counter(inspect);

    if (inspect->reset || inspect->add) {
        ngx_rl_retry_forget(&inspect->counter);

    } else if (inspect->limit) {
        inspect->wait_us = ngx_rl_retry_left(&inspect->counter);
    }

    if (inspect->reset) {
        ngx_rl_inspect_forget(inspect);
    }

    if (inspect->limit && inspect->limit->capacity == 0 && !inspect->reset) {
        inspect->counter.source = NGX_RL_SOURCE_LOCAL;
        return NGX_OK;
    }

    if (inspect->limiter->redis == NULL) {
        ngx_rl_inspect_local(inspect);
        return NGX_OK;
    }

    (void) ngx_rl_client_hash(&inspect->client);

    return ngx_rl_inspect_begin(inspect);
}


void
ngx_rl_inspect_end(ngx_rl_inspect_t *inspect)
{
    if (inspect->call) {
        ngx_rl_redis_forget(inspect->call);
        inspect->call = NULL;
    }
}

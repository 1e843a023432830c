/*
 * Looks at counters by the script, with a cost of 0, and changes them. A reset
 * is a command that no script has; what is used then and what comes back are
 * calls of the script.
 */

#include "ngx_rl_backend.h"

static ngx_int_t ngx_rl_look_begin(ngx_rl_look_t *look);


void
ngx_rl_look_add(ngx_rl_looks_t *all, ngx_rl_look_t *look)
{
    look->all = all;

    if (all->first) {
        all->last->next = look;

    } else {
        all->first = look;
    }

    all->last = look;
}


/*
 * What this gateway knows. A reset forgets what stands in for Redis, but for
 * permits. A look settles the state: a window of another limit gives nothing
 * back.
 */
static void
ngx_rl_look_local(ngx_rl_look_t *look)
{
    ngx_rl_counter_t  *counter;

    counter = &look->counter;
    counter->source = NGX_RL_SOURCE_LOCAL;

    if (look->used) {
        ngx_rl_local_charge(counter, look->used);

        if (look->limiter->fleet) {
            ngx_rl_fleet_tell(counter, look->used);
        }
    }

    ngx_rl_local_take(counter);

    if (look->add) {
        look->check.taken_us = NGX_RL_WHENEVER;
        ngx_rl_local_give(counter, look->add);

        if (look->limiter->fleet) {
            ngx_rl_fleet_tell(counter, -(int64_t) look->add);
        }

        ngx_rl_local_take(counter);
    }

    look->answer = counter->answer;
    look->answer.remaining = ngx_rl_counter_remaining(counter);
}


/* The counter as Redis knows it: itself, or the part whose turn it is. */
static ngx_rl_counter_t *
ngx_rl_look_part(ngx_rl_look_t *look, ngx_rl_part_t *part)
{
    if (look->rule->part_limits == NULL) {
        return &look->counter;
    }

    ngx_rl_parts_get(&look->counter, part);

    return &part->counter;
}


/* It has its outcome. The last one ends the looks. */
static void
ngx_rl_look_done(ngx_rl_look_t *look)
{
    if (--look->all->pending == 0) {
        look->all->handler(look->all->data);
    }
}


/* If memory is out, this is the end. */
static void
ngx_rl_look_go_on(ngx_rl_look_t *look, ngx_int_t rc)
{
    if (rc != NGX_AGAIN) {
        look->status = NGX_RL_REDIS_UNREACHABLE;
        ngx_rl_look_done(look);
    }
}


/* One part after the other: they are in different hash slots. */
static void
ngx_rl_look_next(ngx_rl_look_t *look)
{
    if (look->status == NGX_RL_REDIS_OK && look->rule->part_limits
        && ++look->counter.remote->part < look->rule->shards)
    {
        ngx_rl_look_go_on(look, ngx_rl_look_begin(look));
        return;
    }

    ngx_rl_look_done(look);
}


static void ngx_rl_look_handler(void *data,
    const ngx_rl_redis_result_t *result);


static ngx_int_t
ngx_rl_look_ask(ngx_rl_look_t *look, int64_t cost, int64_t want)
{
    ngx_rl_part_t   part;
    ngx_rl_price_t  price;

    ngx_memzero(&price, sizeof(ngx_rl_price_t));
    price.cost = cost;
    price.want = want;

    look->giving = (cost < 0);
    look->call = ngx_rl_script_one(ngx_rl_look_part(look, &part), &price,
                                   ngx_rl_look_handler, look);

    return look->call ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_rl_look_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_look_t *look = data;

    uint32_t           tokens;
    ngx_rl_part_t      part;
    ngx_rl_answer_t    answer;
    ngx_rl_counter_t  *counter;

    if (result->again) {

        /* a change that may have run waits for its reply, however late */

        if (look->giving || look->reset) {
            return;
        }

        ngx_rl_redis_forget(look->call);
    }

    look->call = NULL;

    counter = ngx_rl_look_part(look, &part);
    look->status = ngx_rl_script_read(result, 0, counter->limit, &answer);

    if (look->giving) {
        look->done |= (look->status == NGX_RL_REDIS_OK || result->ran);
    }

    if (look->status != NGX_RL_REDIS_OK) {
        ngx_rl_look_done(look);
        return;
    }

    /*
     * A look has settled the state: a window of another limit gives nothing
     * back. One part gets back all that it has used before the next one gets
     * any.
     */

    tokens = ngx_min(look->add, counter->limit->capacity - answer.remaining);

    if (!look->giving && tokens) {
        look->add -= tokens;
        ngx_rl_look_go_on(look, ngx_rl_look_ask(look, -(int64_t) tokens, -1));
        return;
    }

    look->answer.remaining += answer.remaining;
    look->answer.reset_us = ngx_max(look->answer.reset_us, answer.reset_us);

    ngx_rl_look_next(look);
}


/* A part has used its share of what the counter has used. */
static void
ngx_rl_look_delete_handler(void *data, const ngx_rl_redis_result_t *result)
{
    ngx_rl_look_t *look = data;

    uint32_t    used;
    ngx_uint_t  n;

    look->call = NULL;
    look->status = result->status;
    look->done |= (result->status == NGX_RL_REDIS_OK || result->ran);

    if (look->status != NGX_RL_REDIS_OK || look->limit == NULL) {
        ngx_rl_look_next(look);
        return;
    }

    used = look->used;

    if (look->rule->part_limits) {
        n = look->rule->shards;
        used = used / n + (look->counter.remote->part < used % n);
    }

    ngx_rl_look_go_on(look, ngx_rl_look_ask(look, 0, -1 - (int64_t) used));
}


/* The field of the client's bucket, or the set. */
static ngx_int_t
ngx_rl_look_delete(ngx_rl_look_t *look)
{
    u_char             field[NGX_RL_RULE_FIELD];
    ngx_str_t          args[4];
    ngx_uint_t         in_set;
    ngx_rl_part_t      part;
    ngx_rl_counter_t  *counter;

    counter = ngx_rl_look_part(look, &part);
    in_set = ngx_rl_script_in_set(look->rule->spec.algorithm);

    ngx_rl_script_field(field, counter);

    if (ngx_rl_redis_key(look->limiter->redis, counter->client->remote->bucket,
                         in_set ? field : NULL, look->all->pool, &args[1])
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
        args[2] = ngx_rl_str(field, sizeof(field));
    }

    look->call = ngx_rl_redis_control_call(look->limiter->redis, args,
                                           in_set ? 4 : 3, 1,
                                           ngx_rl_look_delete_handler, look);

    return look->call ? NGX_AGAIN : NGX_ERROR;
}


/* The counter in Redis, or its part whose turn it is. */
static ngx_int_t
ngx_rl_look_begin(ngx_rl_look_t *look)
{
    return look->reset ? ngx_rl_look_delete(look) : ngx_rl_look_ask(look, 0, 0);
}


/* NGX_OK, NGX_AGAIN, or NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_look_start(ngx_rl_look_t *look)
{
    ngx_rl_id_t           id;
    ngx_rl_client_t      *client;
    ngx_rl_counter_t     *counter;
    const ngx_rl_rule_t  *rule;

    rule = look->rule;
    client = &look->client;
    counter = &look->counter;

    client->limiter = look->limiter;
    client->key = look->key;
    client->check = &look->check;

    counter->rule = rule;
    counter->limit = look->limit ? look->limit : &rule->limit;
    counter->client = client;

    if (look->limiter->redis) {
        look->check.remote = &look->remote_check;
        client->remote = &look->remote_client;
        counter->remote = &look->remote;
    }

    if (look->reset || look->add) {
        ngx_rl_retry_forget(counter);

    } else if (look->limit) {
        look->wait_us = ngx_rl_retry_left(counter);
    }

    if (look->reset) {
        id = ngx_rl_counter_id(counter);

        if (look->limiter->fleet) {
            ngx_rl_fleet_reset(counter);
        }

        if (look->limiter->redis == NULL
            || rule->spec.algorithm == NGX_RL_CONCURRENCY)
        {
            ngx_rl_local_drop(look->limiter->zone.table, &id,
                              rule->spec.algorithm);
        }

        if (rule->emergency) {
            counter->emergency = 1;
            id = ngx_rl_counter_id(counter);
            counter->emergency = 0;

            ngx_rl_local_drop(look->limiter->zone.table, &id,
                              rule->emergency->algorithm);
        }

    } else if (look->limit && look->limit->capacity == 0) {
        counter->source = NGX_RL_SOURCE_LOCAL;
        return NGX_OK;
    }

    if (look->limiter->redis == NULL) {
        if (look->limit) {
            ngx_rl_look_local(look);
        }

        return NGX_OK;
    }

    (void) ngx_rl_client_hash(client);

    return ngx_rl_look_begin(look);
}


ngx_int_t
ngx_rl_looks_start(ngx_rl_looks_t *all)
{
    ngx_rl_look_t  *look;

    for (look = all->first; look; look = look->next) {
        switch (ngx_rl_look_start(look)) {

        case NGX_AGAIN:
            all->pending++;
            break;

        case NGX_ERROR:
            look->status = NGX_RL_REDIS_UNREACHABLE;
            all->failed = 1;
        }
    }

    return all->pending ? NGX_AGAIN : NGX_OK;
}


void
ngx_rl_looks_end(ngx_rl_looks_t *all)
{
    ngx_rl_look_t  *look;

    for (look = all->first; look; look = look->next) {
        if (look->call) {
            ngx_rl_redis_forget(look->call);
            look->call = NULL;
        }
    }
}

/*
 * Calls of the check script, lua/check.lua, which says what its arguments and
 * its answer are.
 */

#include "ngx_rl_backend.h"

#include "ngx_rl_text.h"
#include "ngx_rl_window.h"

#define NGX_RL_SCRIPT_ARGS    7   /* of a counter */
#define NGX_RL_SCRIPT_VALUES  4   /* of a counter, in a result */

/* a counter's kind, in place of t, and its field's length, in a command */
#define NGX_RL_SCRIPT_KIND    "$1\r\nt\r\n"
#define NGX_RL_SCRIPT_WIDTH   "$8\r\n"
#define NGX_RL_SCRIPT_HEAD                                                    \
    NGX_RL_SCRIPT_KIND NGX_RL_SCRIPT_WIDTH


/* in the order of ngx_rl_algorithm_e; in upper case: a dry run */
static u_char  ngx_rl_script_kinds[] = "ttfslc";


static u_char *
ngx_rl_script_write(u_char *p, int64_t value)
{
    if (value < 0) {
        *p++ = '-';
        value = -value;
    }

    return ngx_rl_number_write(p, value);
}


static u_char *
ngx_rl_script_number(u_char *p, int64_t value)
{
    u_char  text[NGX_INT64_LEN + 1], *last;

    last = ngx_rl_script_write(text, value);

    return ngx_rl_redis_write_bulk(p, text, last - text);
}


/*
 * cost, want; of a lease "want+ahead/share"; keep: of the capacity, what the
 * counter leaves to others
 */
static u_char *
ngx_rl_script_price(u_char *p, const ngx_rl_price_t *price, uint32_t keep)
{
    u_char  text[NGX_RL_SCRIPT_LEASE_BYTES], *last;

    p = ngx_rl_script_number(p, price->cost);
    last = ngx_rl_script_write(text, price->want);

    if (price->share) {
        *last++ = '+';
        last = ngx_rl_number_write(last, price->ahead);
        *last++ = '/';
        last = ngx_rl_number_write(last, price->share);

    } else if (keep && price->cost >= 0 && price->want >= -1) {
        *last++ = '-';
        last = ngx_rl_number_write(last, keep);
    }

    return ngx_rl_redis_write_bulk(p, text, last - text);
}


/* capacity, a, b */
static u_char *
ngx_rl_script_limit(u_char *p, const ngx_rl_limit_t *limit)
{
    switch (limit->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
    case NGX_RL_LEAKY_BUCKET:
        p = ngx_rl_script_number(p, limit->rate.capacity);
        p = ngx_rl_script_number(p, limit->rate.period_us);
        return ngx_rl_script_number(p, limit->rate.scale);

    case NGX_RL_CONCURRENCY:
        p = ngx_rl_script_number(p, limit->capacity);
        p = ngx_rl_script_number(p, NGX_RL_PERMIT_US);
        return ngx_rl_script_number(p, 0);

    default:
        p = ngx_rl_script_number(p, limit->capacity);
        p = ngx_rl_script_number(p, limit->window_us);
        return ngx_rl_script_number(p, limit->calendar == 0 ? 0
                               : limit->code - NGX_RL_CODE_CALENDAR);
    }
}


ngx_int_t
ngx_rl_script_prepare(ngx_rl_rule_t *rule, ngx_pool_t *pool)
{
    u_char          *p, *last;
    ngx_rl_price_t   price;

    if (rule->dynamic) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, NGX_RL_SCRIPT_NUMBERS_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&price, sizeof(ngx_rl_price_t));
    price.cost = rule->cost;

    last = ngx_rl_script_price(p, &price, 0);
    rule->limit_numbers.data = last;

    last = ngx_rl_script_limit(last, &rule->limit);
    rule->limit_numbers.len = last - rule->limit_numbers.data;

    if (!rule->dynamic_cost && rule->statuses == NULL) {
        rule->numbers = ngx_rl_str(p, last - p);
    }

    return NGX_OK;
}


void
ngx_rl_script_begin(ngx_rl_script_t *script)
{
    ngx_memzero(&script->eval, sizeof(ngx_rl_redis_eval_t));

    script->last = script->text;
    script->eval.args.data = script->text;
    script->eval.sets = script->sets;
}


/*
 * The head with the windows of now: "f<start>+<seconds>+<seconds>", this one
 * and the next. Redis' clock says in which of them it is.
 */
static u_char *
ngx_rl_script_calendar(u_char *p, u_char kind, const ngx_rl_limit_t *limit)
{
    u_char            text[NGX_RL_SCRIPT_KIND_BYTES], *last;
    ngx_rl_bounds_t   this, next;

    this = ngx_rl_calendar_bounds(limit, ngx_rl_wall_ms() * 1000);
    next = ngx_rl_calendar_bounds(limit, this.end_us);

    text[0] = kind;
    last = ngx_rl_number_write(text + 1, this.start_us / 1000000);
    *last++ = '+';
    last = ngx_rl_number_write(last, (this.end_us - this.start_us) / 1000000);
    *last++ = '+';
    last = ngx_rl_number_write(last, (next.end_us - next.start_us) / 1000000);

    p = ngx_rl_redis_write_bulk(p, text, last - text);

    return ngx_cpymem(p, NGX_RL_SCRIPT_WIDTH, sizeof(NGX_RL_SCRIPT_WIDTH) - 1);
}


const u_char *
ngx_rl_client_hash(ngx_rl_client_t *client)
{
    u_char                  *hash;
    ngx_rl_remote_client_t  *remote;

    remote = client->remote;

    if (remote == NULL) {
        return (const u_char *) ngx_rl_client_local(client);
    }

    if (!remote->hashed) {
        remote->hash = ngx_rl_redis_id(client->limiter->redis, client->key.data,
                                       client->key.len);

        /* the bucket comes from the half that the fields are not made of */

        hash = (u_char *) &remote->hash.lo;
        remote->bucket = (uint32_t) hash[0] << 24 | hash[1] << 16
                         | hash[2] << 8 | hash[3];
        remote->hashed = 1;
    }

    return (const u_char *) &remote->hash;
}


void
ngx_rl_script_field(u_char *field, const ngx_rl_counter_t *counter)
{
    uint64_t  hash, salt;

    ngx_memcpy(&hash, ngx_rl_client_hash(counter->client), NGX_RL_RULE_FIELD);
    ngx_memcpy(&salt, counter->rule->field_salt, NGX_RL_RULE_FIELD);

    hash ^= salt;
    ngx_memcpy(field, &hash, NGX_RL_RULE_FIELD);
}


/*
 * The numbers of a counter that are not those of its rule. Its limit may be the
 * same to Redis: a refill has a copy of a rule's.
 */
static u_char *
ngx_rl_script_priced(u_char *p, const ngx_rl_counter_t *counter,
    const ngx_rl_price_t *price)
{
    const ngx_str_t       *numbers;
    const ngx_rl_limit_t  *limit, *of_rule;

    numbers = &counter->rule->limit_numbers;
    limit = counter->limit;
    of_rule = &counter->rule->limit;

    p = ngx_rl_script_price(p, price, limit->rate.capacity - limit->rate.open);

    if (numbers->len
        && (limit == of_rule
            || (limit->algorithm == of_rule->algorithm
                && limit->code == of_rule->code
                && limit->capacity == of_rule->capacity
                && limit->window_us == of_rule->window_us
                && limit->rate.period_us == of_rule->rate.period_us
                && limit->rate.scale == of_rule->rate.scale)))
    {
        return ngx_cpymem(p, numbers->data, numbers->len);
    }

    return ngx_rl_script_limit(p, limit);
}


void
ngx_rl_script_add(ngx_rl_script_t *script, const ngx_rl_counter_t *counter,
    const ngx_rl_price_t *price)
{
    u_char                kind, *p, *field;
    const ngx_rl_rule_t  *rule;

    rule = counter->rule;
    kind = ngx_rl_script_kinds[counter->limit->algorithm];
    kind = counter->dry_run ? ngx_toupper(kind) : kind;

    if (counter->limit->calendar) {
        field = ngx_rl_script_calendar(script->last, kind, counter->limit);
    } else {
        field = ngx_cpymem(script->last, NGX_RL_SCRIPT_HEAD,
                           sizeof(NGX_RL_SCRIPT_HEAD) - 1);
        script->last[sizeof("$1\r\n") - 1] = kind;
    }

    ngx_rl_script_field(field, counter);
    p = ngx_cpymem(field + NGX_RL_RULE_FIELD, CRLF, 2);

    script->last = price
                   ? ngx_rl_script_priced(p, counter, price)
                   : ngx_cpymem(p, rule->numbers.data, rule->numbers.len);

    script->eval.nargs += NGX_RL_SCRIPT_ARGS;

    if (ngx_rl_script_in_set(counter->limit->algorithm)) {
        ngx_memcpy(script->sets + script->eval.nsets * NGX_RL_REDIS_SET_NAME,
                   field, NGX_RL_RULE_FIELD);
        script->eval.nsets++;
    }
}


ngx_rl_redis_call_t *
ngx_rl_script_call(ngx_rl_script_t *script, ngx_rl_client_t *client,
    ngx_rl_redis_handler_pt handler, void *data)
{
    ngx_rl_remote_check_t  *remote;

    if (script->eval.nsets) {
        remote = client->check->remote;

        if (remote->name == 0) {
            remote->name = ngx_rl_redis_name(client->limiter->redis);
        }

        script->last = ngx_rl_redis_write_bulk(script->last,
                                               (u_char *) &remote->name,
                                               sizeof(remote->name));
        script->eval.nargs++;
    }

    script->eval.bucket = client->remote->bucket;
    script->eval.args.len = script->last - script->text;

    return ngx_rl_redis_eval(client->limiter->redis, &script->eval,
                             handler, data);
}


ngx_rl_redis_call_t *
ngx_rl_script_one(ngx_rl_counter_t *counter, const ngx_rl_price_t *price,
    ngx_rl_redis_handler_pt handler, void *data)
{
    ngx_rl_script_t  script;

    ngx_rl_script_begin(&script);
    ngx_rl_script_add(&script, counter, price);
    script.eval.late = (handler != NULL);

    return ngx_rl_script_call(&script, counter->client, handler, data);
}


ngx_rl_redis_call_t *
ngx_rl_script_ask(ngx_rl_counter_t *counter, const ngx_rl_ledger_call_t *call,
    ngx_rl_redis_handler_pt handler, void *data)
{
    ngx_rl_price_t           price;
    const ngx_rl_limiter_t  *limiter;

    ngx_memzero(&price, sizeof(ngx_rl_price_t));

    if (call->debit > 0) {
        price.want = -1 - (int64_t) call->debit;

    } else if (call->debit < 0) {
        price.cost = call->debit;
        price.want = (call->age_us + 999) / 1000;

    } else if (call->look) {
        price.cost = call->look;
        price.want = -1;

    } else {
        price.cost = call->cost;
        price.want = call->want;
        price.ahead = call->ahead;
        price.share = call->ahead ? call->share : 0;
    }

    if (counter->rule->part_limits == NULL) {
        limiter = counter->client->limiter;
        ngx_rl_count(limiter->rows[NGX_RL_COUNTS_ZONE],
                     NGX_RL_COUNTS_LEASE_CALLS, 1);
    }

    return ngx_rl_script_one(counter, &price, handler, data);
}


void
ngx_rl_script_give(ngx_rl_counter_t *counter, uint32_t tokens, uint64_t age_us)
{
    ngx_rl_ledger_call_t  call;

    ngx_memzero(&call, sizeof(ngx_rl_ledger_call_t));
    call.debit = -(int32_t) tokens;
    call.age_us = age_us;

    (void) ngx_rl_script_ask(counter, &call, NULL, NULL);
}


ngx_rl_redis_status_e
ngx_rl_script_read(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    const ngx_rl_limit_t *limit, ngx_rl_answer_t *answer)
{
    int64_t         capacity;
    const int64_t  *values;

    if (result->status != NGX_RL_REDIS_OK) {
        return result->status;
    }

    if ((i + 1) * NGX_RL_SCRIPT_VALUES > result->n) {
        return NGX_RL_REDIS_PROTOCOL;
    }

    values = &result->values[i * NGX_RL_SCRIPT_VALUES];
    capacity = limit->capacity;

    if (values[0] < 0 || values[0] > capacity
        || values[1] < 0 || values[1] > capacity
        || values[2] < 0 || values[2] > INT64_MAX / 1000
        || values[3] < -1 || values[3] > INT64_MAX / 1000)
    {
        return NGX_RL_REDIS_PROTOCOL;
    }

    answer->granted = values[0];
    answer->remaining = values[1];
    answer->reset_us = (uint64_t) values[2] * 1000;
    answer->retry_us = (values[3] == -1) ? NGX_RL_NEVER
                                         : (uint64_t) values[3] * 1000;

    return NGX_RL_REDIS_OK;
}

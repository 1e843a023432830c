/*
 * One check: local counters first, since they cost no round trip; then
 * Redis; then the outcome.
 */

#include "ngx_ratelimit_backend.h"

#include "ngx_ratelimit_hash.h"

static void ngx_ratelimit_check_clients(ngx_ratelimit_check_t *check);
static ngx_uint_t ngx_ratelimit_check_local(ngx_ratelimit_check_t *check);
static void ngx_ratelimit_check_remote(ngx_ratelimit_check_t *check);
static void ngx_ratelimit_check_complete(ngx_ratelimit_check_t *check);
static void ngx_ratelimit_check_decide(ngx_ratelimit_check_t *check);
static ngx_uint_t ngx_ratelimit_check_stricter(
    const ngx_ratelimit_answer_t *one, const ngx_ratelimit_answer_t *two);
static void ngx_ratelimit_check_give_back(ngx_ratelimit_check_t *check);


ngx_int_t
ngx_ratelimit_check_start(ngx_ratelimit_check_t *check)
{
    check->pending = 0;

    ngx_ratelimit_check_clients(check);

    if (!ngx_ratelimit_check_local(check) && check->remote) {
        ngx_ratelimit_check_remote(check);
    }

    if (check->pending) {
        return NGX_AGAIN;
    }

    ngx_ratelimit_check_complete(check);

    return NGX_OK;
}


static void
ngx_ratelimit_check_clients(ngx_ratelimit_check_t *check)
{
    ngx_uint_t                i;
    ngx_ratelimit_client_t   *client;
    ngx_ratelimit_limiter_t  *limiter;

    check->remote = 0;

    for (i = 0; i < check->nclients; i++) {
        client = &check->clients[i];
        limiter = client->limiter;

        client->check = check;
        client->call = NULL;
        client->given = 0;

        if (limiter->redis) {
            check->remote = 1;
            continue;
        }

        client->hash = ngx_ratelimit_siphash(
                             ngx_ratelimit_table_hash_key(limiter->zone.table),
                             client->key.data, client->key.len, 1, 3);
    }
}


void
ngx_ratelimit_check_cancel(ngx_ratelimit_check_t *check)
{
    ngx_uint_t               i;
    ngx_ratelimit_client_t  *client;

    for (i = 0; i < check->nclients && check->pending; i++) {
        client = &check->clients[i];

        if (client->call) {
            ngx_ratelimit_redis_forget(client->call);
            client->call = NULL;
            check->pending--;
        }
    }
}


/* Returns whether any counter of this node denies. */
static ngx_uint_t
ngx_ratelimit_check_local(ngx_ratelimit_check_t *check)
{
    ngx_uint_t                i, denied;
    ngx_ratelimit_counter_t  *counter;

    denied = 0;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client->limiter->redis) {
            ngx_memzero(&counter->answer, sizeof(ngx_ratelimit_answer_t));
            counter->source = NGX_RATELIMIT_SOURCE_NONE;
            continue;
        }

        ngx_ratelimit_local_take(counter);

        denied |= (counter->answer.retry_us != 0);
    }

    return denied;
}


static void
ngx_ratelimit_check_remote(ngx_ratelimit_check_t *check)
{
    ngx_uint_t               i;
    ngx_ratelimit_client_t  *client;

    /* one more, so that no answer completes the check before the last call */
    check->pending = 1;

    for (i = 0; i < check->nclients; i++) {
        client = &check->clients[i];

        if (client->limiter->redis) {
            check->pending++;
            ngx_ratelimit_remote_take(client);
        }
    }

    check->pending--;
}


void
ngx_ratelimit_check_answered(ngx_ratelimit_client_t *client)
{
    ngx_ratelimit_check_t  *check;

    check = client->check;

    if (--check->pending == 0) {
        ngx_ratelimit_check_complete(check);
        check->handler(check->data);
    }
}


static void
ngx_ratelimit_check_complete(ngx_ratelimit_check_t *check)
{
    ngx_ratelimit_check_decide(check);

    if (check->status == NGX_RATELIMIT_REJECTED && check->ncounters > 1) {
        ngx_ratelimit_check_give_back(check);
    }
}


/* A denial outweighs a missing answer, and that a permission. */
static void
ngx_ratelimit_check_decide(ngx_ratelimit_check_t *check)
{
    ngx_uint_t                i;
    ngx_ratelimit_status_e    status;
    ngx_ratelimit_counter_t  *counter;

    check->status = NGX_RATELIMIT_BYPASSED;
    check->strictest = NULL;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->source == NGX_RATELIMIT_SOURCE_NONE) {
            continue;
        }

        if (counter->source == NGX_RATELIMIT_SOURCE_FALLBACK) {
            status = NGX_RATELIMIT_DEGRADED;

        } else if (counter->answer.retry_us) {
            status = NGX_RATELIMIT_REJECTED;

        } else {
            status = NGX_RATELIMIT_PASSED;
        }

        if (status > check->status
            || (status == check->status
                && ngx_ratelimit_check_stricter(&counter->answer,
                                                &check->strictest->answer)))
        {
            check->status = status;
            check->strictest = counter;
        }
    }
}


/* Of two of one status: the longer wait, then the fewer tokens left. */
static ngx_uint_t
ngx_ratelimit_check_stricter(const ngx_ratelimit_answer_t *one,
    const ngx_ratelimit_answer_t *two)
{
    if (one->retry_us != two->retry_us) {
        return one->retry_us > two->retry_us;
    }

    return one->remaining < two->remaining;
}


/* A denied request costs none of the counters that would have let it pass. */
static void
ngx_ratelimit_check_give_back(ngx_ratelimit_check_t *check)
{
    ngx_uint_t                i;
    ngx_ratelimit_client_t   *client;
    ngx_ratelimit_counter_t  *counter;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];
        client = counter->client;

        if (counter->answer.granted == 0) {
            continue;
        }

        if (client->limiter->redis == NULL) {
            ngx_ratelimit_local_give(counter);

        } else if (!client->given) {
            client->given = 1;
            ngx_ratelimit_remote_give(client);
        }
    }
}

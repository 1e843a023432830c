/*
 * A worker makes one edit at a time: each may take much memory, and time of the
 * event loop. The turn belongs to a request, from the moment that the request
 * is woken for it, and then to the request's work, which may outlive it.
 *
 * A validation needs no right to write: validations wait apart, and a change
 * goes before them.
 */

#include "ngx_rl_api.h"

/* which queue a request is in */
#define ngx_rl_api_turn_of(api)                                               \
    (((api)->route->flags & NGX_RL_API_READS) != 0)

/* changes, and validations, that wait at most */
static const ngx_uint_t  ngx_rl_api_turns[] = { 32, 8 };


/* A worker's; a process that forks has used none. */
static struct {
    ngx_queue_t  waiting[2];   /* of api->queue, if n is not 0 */
    ngx_uint_t   n[2];
    ngx_uint_t   taken;
} ngx_rl_api_turn;


ngx_int_t
ngx_rl_api_turn_take(ngx_rl_api_t *api)
{
    ngx_uint_t  of;

    if (!ngx_rl_api_turn.taken) {
        ngx_rl_api_turn.taken = 1;
        api->turn = 1;
        return NGX_OK;
    }

    of = ngx_rl_api_turn_of(api);

    if (ngx_rl_api_turn.n[of] == ngx_rl_api_turns[of]) {
        return NGX_DECLINED;
    }

    if (ngx_rl_api_turn.n[of]++ == 0) {
        ngx_queue_init(&ngx_rl_api_turn.waiting[of]);
    }

    ngx_queue_insert_tail(&ngx_rl_api_turn.waiting[of], &api->queue);
    api->queued = 1;

    return NGX_BUSY;
}


void
ngx_rl_api_turn_end(void)
{
    ngx_uint_t     of;
    ngx_queue_t   *q;
    ngx_rl_api_t  *api;

    of = (ngx_rl_api_turn.n[0] == 0);

    if (ngx_rl_api_turn.n[of] == 0) {
        ngx_rl_api_turn.taken = 0;
        return;
    }

    q = ngx_queue_head(&ngx_rl_api_turn.waiting[of]);
    ngx_queue_remove(q);
    ngx_rl_api_turn.n[of]--;

    api = ngx_queue_data(q, ngx_rl_api_t, queue);
    api->queued = 0;
    api->turn = 1;

    ngx_rl_api_wake(api, &ngx_posted_events);
}


void
ngx_rl_api_turn_forget(ngx_rl_api_t *api)
{
    if (api->queued) {
        api->queued = 0;
        ngx_queue_remove(&api->queue);
        ngx_rl_api_turn.n[ngx_rl_api_turn_of(api)]--;
    }

    if (api->turn) {
        api->turn = 0;
        ngx_rl_api_turn_end();
    }
}

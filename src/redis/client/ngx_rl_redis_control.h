/*
 * A worker's second way to Redis, for what is no check: documents of up to a
 * megabyte, and messages. A block has one, with connections of its own, made
 * when they are first needed, so nothing large stands before a check in a
 * queue. No breaker and no count of checks knows of it. Its timers are
 * cancelable: no worker that exits waits for a call.
 */

#ifndef NGX_RL_REDIS_CONTROL_H_INCLUDED
#define NGX_RL_REDIS_CONTROL_H_INCLUDED

#include "ngx_rl_redis.h"

#define NGX_RL_REDIS_CONTROL_MS     5000  /* a call waits no longer */

/* A listener of a channel; in memory that is zeroed before. */
typedef struct {
    ngx_queue_t      queue;
    ngx_event_t     *event;      /* NULL: it does not listen */
    ngx_str_t        channel;    /* its owner's, as key */
    ngx_str_t        key;        /* the Redis node of the first listener's key
                                    is listened to */
} ngx_rl_redis_listener_t;

/*
 * Sends a command of nargs texts, the first its name. key: the argument that
 * names the slot (its number), 0: any node will do. The handler is called once,
 * never from inside, unless the call is forgotten. Everything is copied.
 * Returns the call, valid until its handler is called or it is forgotten, or
 * NULL when memory is out. Where there is a connection, or one can be made, it
 * ends in CONTROL_MS; else with UNREACHABLE, soon. An error of Redis is not
 * logged here.
 *
 * The result has the texts of the array that was answered (numbers as decimal
 * text, nil as an empty one), or one text. The handler may keep a text, which
 * is heap memory of its own, and sets its data to NULL then.
 */
ngx_rl_redis_call_t *ngx_rl_redis_control_call(ngx_rl_redis_t *redis,
    const ngx_str_t *args, ngx_uint_t nargs, ngx_uint_t key,
    ngx_rl_redis_handler_pt handler, void *data);

/* A number of such texts, up to most. NGX_OK, or NGX_ERROR: it is none. */
ngx_int_t ngx_rl_redis_control_number(const ngx_str_t *text, uint64_t most,
    uint64_t *number);

/*
 * Listens to listener->channel from now on, again whenever the connection
 * broke. Posts the event for messages, once for several that come together, and
 * each time the subscription begins, because messages before that are lost.
 * listen returns NGX_OK, or NGX_ERROR: memory is out. A listener that does not
 * listen may unlisten, too.
 */
ngx_int_t ngx_rl_redis_listen(ngx_rl_redis_t *redis,
    ngx_rl_redis_listener_t *listener, ngx_event_t *event);
void ngx_rl_redis_unlisten(ngx_rl_redis_t *redis,
    ngx_rl_redis_listener_t *listener);

#endif /* NGX_RL_REDIS_CONTROL_H_INCLUDED */

/*
 * Where a counter can be taken: in shared memory, or in Redis. Inside the
 * engine only.
 */

#ifndef NGX_RATELIMIT_BACKEND_H_INCLUDED
#define NGX_RATELIMIT_BACKEND_H_INCLUDED

#include "ngx_ratelimit_check.h"

/* Takes one token; the counter's answer tells whether it was granted. */
void ngx_ratelimit_local_take(ngx_ratelimit_counter_t *counter);

/* Gives back what a take was granted. */
void ngx_ratelimit_local_give(ngx_ratelimit_counter_t *counter);

/*
 * Asks Redis for all counters of the client in one call, all or nothing.
 * ngx_ratelimit_check_answered() follows, before this returns only where
 * memory is out.
 */
void ngx_ratelimit_remote_take(ngx_ratelimit_client_t *client);

/* Gives back in Redis; nobody waits for that. */
void ngx_ratelimit_remote_give(ngx_ratelimit_client_t *client);

/* A client's counters have their answers. */
void ngx_ratelimit_check_answered(ngx_ratelimit_client_t *client);

#endif /* NGX_RATELIMIT_BACKEND_H_INCLUDED */

/*
 * Calls of the check script.
 */

#ifndef NGX_RATELIMIT_REDIS_EVAL_H_INCLUDED
#define NGX_RATELIMIT_REDIS_EVAL_H_INCLUDED

#include "ngx_ratelimit_redis_call.h"

/* As ngx_ratelimit_redis_eval(), but that the call is not started yet. */
ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_eval_new(
    ngx_ratelimit_redis_client_t *client, ngx_ratelimit_redis_kind_e kind,
    const ngx_ratelimit_redis_eval_t *eval);

#endif /* NGX_RATELIMIT_REDIS_EVAL_H_INCLUDED */

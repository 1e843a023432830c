/*
 * The index of a policy's rules: which of them a path may match, found by the
 * path. ngx_ratelimit_policy_find() (policy.h) reads it.
 */

#ifndef NGX_RATELIMIT_INDEX_H_INCLUDED
#define NGX_RATELIMIT_INDEX_H_INCLUDED

#include "ngx_ratelimit_policy.h"

/*
 * Makes a policy's index, of rules that stand in the order of their ranks and
 * do not change any more. Returns NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_ratelimit_index_make(ngx_ratelimit_policy_t *policy,
    ngx_pool_t *pool);

#endif /* NGX_RATELIMIT_INDEX_H_INCLUDED */

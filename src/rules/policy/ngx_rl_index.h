/*
 * The index of a policy's rules: which of them a path may match, found by the
 * path. ngx_rl_policy_find() (policy.h) reads it.
 */

#ifndef NGX_RL_INDEX_H_INCLUDED
#define NGX_RL_INDEX_H_INCLUDED

#include "ngx_rl_policy.h"

/*
 * Makes a policy's index, of rules that stand in the order of their ranks and
 * do not change any more. Returns NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_rl_index_make(ngx_rl_policy_t *policy, ngx_pool_t *pool);

#endif /* NGX_RL_INDEX_H_INCLUDED */

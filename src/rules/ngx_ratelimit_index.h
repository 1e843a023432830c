/*
 * The index of a limiter's rules: which of them a path may match, found by the
 * path. ngx_ratelimit_limiter_find() (rule.h) reads it.
 */

#ifndef NGX_RATELIMIT_INDEX_H_INCLUDED
#define NGX_RATELIMIT_INDEX_H_INCLUDED

#include "ngx_ratelimit_rule.h"

/*
 * Makes a limiter's index, of rules that stand in the order of their ranks and
 * do not change any more. Returns NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_ratelimit_index_make(ngx_ratelimit_limiter_t *limiter,
    ngx_pool_t *pool);

#endif /* NGX_RATELIMIT_INDEX_H_INCLUDED */

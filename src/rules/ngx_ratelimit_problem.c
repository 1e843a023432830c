/*
 * Problems of a document. Where memory is out while one is added, it is counted
 * and not kept.
 */

#include "ngx_ratelimit_problem.h"

#define NGX_RATELIMIT_PROBLEM_BYTES  1024   /* of a detail */

static ngx_int_t ngx_ratelimit_problem_copy(ngx_pool_t *pool, ngx_str_t *copy,
    const u_char *data, size_t len);


ngx_int_t
ngx_ratelimit_problems_init(ngx_ratelimit_problems_t *problems,
    ngx_pool_t *pool)
{
    problems->pool = pool;
    problems->n = 0;

    return ngx_array_init(&problems->list, pool, 4,
                          sizeof(ngx_ratelimit_problem_t));
}


void
ngx_ratelimit_problem(ngx_ratelimit_problems_t *problems,
    const ngx_str_t *pointer, const char *detail, ...)
{
    u_char                   *last, text[NGX_RATELIMIT_PROBLEM_BYTES];
    va_list                   args;
    ngx_ratelimit_problem_t   problem, *place;

    problems->n++;

    if (problems->list.nelts >= NGX_RATELIMIT_MAX_PROBLEMS) {
        return;
    }

    ngx_str_null(&problem.id);

    va_start(args, detail);
    last = ngx_vslprintf(text, text + sizeof(text), detail, args);
    va_end(args);

    if (ngx_ratelimit_problem_copy(problems->pool, &problem.pointer,
                                   pointer->data, pointer->len)
        != NGX_OK
        || ngx_ratelimit_problem_copy(problems->pool, &problem.detail, text,
                                      last - text)
           != NGX_OK)
    {
        return;
    }

    place = ngx_array_push(&problems->list);

    if (place) {
        *place = problem;
    }
}


static ngx_int_t
ngx_ratelimit_problem_copy(ngx_pool_t *pool, ngx_str_t *copy,
    const u_char *data, size_t len)
{
    copy->len = len;
    copy->data = ngx_pnalloc(pool, len + 1);

    if (copy->data == NULL) {
        return NGX_ERROR;
    }

    if (len) {
        ngx_memcpy(copy->data, data, len);
    }

    copy->data[len] = '\0';

    return NGX_OK;
}

/*
 * Problems of a document. Where memory is out while one is added, it is counted
 * and not kept.
 */

#include "ngx_rl_problem.h"

#define NGX_RL_PROBLEM_BYTES  1024   /* of a detail */


ngx_int_t
ngx_rl_problems_init(ngx_rl_problems_t *problems, ngx_pool_t *pool)
{
    problems->pool = pool;
    problems->n = 0;

    return ngx_array_init(&problems->list, pool, 4, sizeof(ngx_rl_problem_t));
}


void
ngx_rl_problem(ngx_rl_problems_t *problems, const ngx_str_t *id,
    const ngx_str_t *pointer, const char *detail, ...)
{
    u_char            *p, *last, text[NGX_RL_PROBLEM_BYTES];
    va_list            args;
    ngx_rl_problem_t  *problem;

    problems->n++;

    if (problems->list.nelts >= NGX_RL_MAX_PROBLEMS) {
        return;
    }

    va_start(args, detail);
    last = ngx_vslprintf(text, text + sizeof(text), detail, args);
    va_end(args);

    p = ngx_pnalloc(problems->pool, (id ? id->len : 0) + pointer->len + 1
                                    + (last - text) + 1);
    problem = p ? ngx_array_push(&problems->list) : NULL;

    if (problem == NULL) {
        return;
    }

    problem->pointer.data = p;
    problem->pointer.len = pointer->len;
    p = ngx_cpymem(p, pointer->data, pointer->len);
    *p++ = '\0';

    problem->detail.data = p;
    problem->detail.len = last - text;
    p = ngx_cpymem(p, text, last - text);
    *p = '\0';

    ngx_str_null(&problem->id);

    if (id && id->len) {
        problem->id.data = ++p;
        problem->id.len = id->len;
        ngx_memcpy(p, id->data, id->len);
    }
}

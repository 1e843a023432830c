/*
 * The problems of a document: all of them at once, each with its place.
 */

#ifndef NGX_RL_PROBLEM_H_INCLUDED
#define NGX_RL_PROBLEM_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_RL_MAX_PROBLEMS  100   /* kept; the others are counted */

typedef struct {
    ngx_str_t    pointer;   /* RFC 6901: "/rules/3/params/capacity" */
    ngx_str_t    detail;    /* "must be > 0" */
    ngx_str_t    id;        /* of the rule or override; or empty */
} ngx_rl_problem_t;

typedef struct {
    ngx_pool_t  *pool;
    ngx_array_t  list;      /* ngx_rl_problem_t */
    ngx_uint_t   n;         /* all of them */
} ngx_rl_problems_t;

/* Returns NGX_OK, or NGX_ERROR when memory is out. */
ngx_int_t ngx_rl_problems_init(ngx_rl_problems_t *problems, ngx_pool_t *pool);

/*
 * Adds one: all texts are copied; detail is a format of ngx_sprintf(). id: of
 * the rule or override; or NULL.
 */
void ngx_rl_problem(ngx_rl_problems_t *problems, const ngx_str_t *id,
    const ngx_str_t *pointer, const char *detail, ...);

#endif /* NGX_RL_PROBLEM_H_INCLUDED */

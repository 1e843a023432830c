/*
 * Of nginx what tests need that link none of its objects: the heap, pools and
 * the log. Included once, behind cmocka's and nginx's headers.
 */

#ifndef NGINX_H_INCLUDED
#define NGINX_H_INCLUDED

#include <stdlib.h>

/* how many allocations succeed before one fails, once; -1: all */
static int           allocations = -1;

/* the last message: its level and format, and how many there were */
static ngx_uint_t    logged, log_level;
static const char   *log_format = "";


void *
ngx_alloc(size_t size, ngx_log_t *log)
{
    (void) log;

    if (allocations == 0) {
        allocations = -1;
        return NULL;
    }

    if (allocations > 0) {
        allocations--;
    }

    return malloc(size);
}


void *
ngx_calloc(size_t size, ngx_log_t *log)
{
    void *p = ngx_alloc(size, log);

    if (p) {
        memset(p, 0, size);
    }

    return p;
}


/* each allocation on its own, so that overruns are seen */
void *
ngx_palloc(ngx_pool_t *pool, size_t size)
{
    ngx_pool_large_t *large = ngx_alloc(sizeof(ngx_pool_large_t), NULL);

    if (large == NULL) {
        return NULL;
    }

    large->alloc = malloc(size);
    large->next = pool->large;
    pool->large = large;

    return large->alloc;
}


void *
ngx_pnalloc(ngx_pool_t *pool, size_t size)
{
    return ngx_palloc(pool, size);
}


void *
ngx_pcalloc(ngx_pool_t *pool, size_t size)
{
    void *p = ngx_palloc(pool, size);

    if (p) {
        memset(p, 0, size);
    }

    return p;
}


ngx_pool_t *
ngx_create_pool(size_t size, ngx_log_t *log)
{
    (void) size;

    ngx_pool_t *pool = ngx_calloc(sizeof(ngx_pool_t), log);

    if (pool) {
        pool->log = log;
    }

    return pool;
}


void
ngx_destroy_pool(ngx_pool_t *pool)
{
    ngx_pool_large_t  *large;

    while (pool->large) {
        large = pool->large;
        pool->large = large->next;
        free(large->alloc);
        free(large);
    }

    free(pool);
}


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *text, ...)
{
    (void) log;
    (void) err;

    /* as nginx: a debug level stands for itself */
    if (level <= NGX_LOG_DEBUG) {
        logged++;
        log_level = level;
        log_format = text;
    }
}

#endif /* NGINX_H_INCLUDED */

/*
 * Reads a small file that a directive names.
 */

#include "ngx_http_ratelimit_file.h"


ngx_int_t
ngx_http_ratelimit_file_read(ngx_conf_t *cf, ngx_str_t *name, size_t max,
    ngx_str_t *content)
{
    ssize_t     n;
    ngx_fd_t    fd;
    ngx_str_t  *value;

    value = cf->args->elts;

    if (ngx_conf_full_name(cf->cycle, name, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed in \"%V\"", name,
                           &value[0]);
        return NGX_ERROR;
    }

    content->data = ngx_alloc(max + 1, cf->log);
    n = -1;

    if (content->data) {
        n = ngx_read_fd(fd, content->data, max + 1);

        if (n == -1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               ngx_read_fd_n " \"%V\" failed in \"%V\"", name,
                               &value[0]);
            ngx_free(content->data);
        }
    }

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_ALERT, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", name);
    }

    content->len = n;

    return (n == -1) ? NGX_ERROR : NGX_OK;
}


void
ngx_http_ratelimit_file_free(ngx_str_t *content)
{
    ngx_explicit_memzero(content->data, content->len);
    ngx_free(content->data);
}

/*
 * A small file that a directive names: a key, a password, tokens.
 */

#ifndef NGX_HTTP_RATELIMIT_FILE_H_INCLUDED
#define NGX_HTTP_RATELIMIT_FILE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

/*
 * Reads the file of that name, which becomes a whole path, to the heap: max
 * bytes, or one more if it has more. The caller frees content. NGX_ERROR:
 * the file cannot be read, or memory is out; it is logged, with the directive.
 */
ngx_int_t ngx_http_ratelimit_file_read(ngx_conf_t *cf, ngx_str_t *name,
    size_t max, ngx_str_t *content);

/* Overwrites the content, which is a secret, and frees it. */
void ngx_http_ratelimit_file_free(ngx_str_t *content);

#endif /* NGX_HTTP_RATELIMIT_FILE_H_INCLUDED */

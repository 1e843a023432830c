/*
 * Values with variables. The common ones are a single variable, which is read
 * by its index without running a script or copying a byte.
 */

#include "ngx_http_ratelimit.h"

static ngx_uint_t ngx_http_ratelimit_value_lone(ngx_str_t *text,
    ngx_str_t *name);


ngx_int_t
ngx_http_ratelimit_value_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_value_t *value)
{
    ngx_str_t                         name;
    ngx_http_compile_complex_value_t  ccv;

    value->index = -1;

    if (ngx_http_ratelimit_value_lone(text, &name)) {
        value->index = ngx_http_get_variable_index(cf, &name);
        return (value->index == NGX_ERROR) ? NGX_ERROR : NGX_OK;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = &value->complex;

    return ngx_http_compile_complex_value(&ccv);
}


/* "$name": captures ("$1") and "${name}" go the general way. */
static ngx_uint_t
ngx_http_ratelimit_value_lone(ngx_str_t *text, ngx_str_t *name)
{
    u_char      ch;
    ngx_uint_t  i;

    if (text->len < 2 || text->data[0] != '$'
        || (text->data[1] >= '0' && text->data[1] <= '9'))
    {
        return 0;
    }

    for (i = 1; i < text->len; i++) {
        ch = text->data[i];

        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
              || (ch >= '0' && ch <= '9') || ch == '_'))
        {
            return 0;
        }
    }

    name->len = text->len - 1;
    name->data = text->data + 1;

    return 1;
}


ngx_int_t
ngx_http_ratelimit_value_get(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
{
    ngx_http_variable_value_t  *vv;

    if (value->index == -1) {
        return ngx_http_complex_value(r, &value->complex, text);
    }

    /* not what a rewrite has read before it changed the request */

    vv = ngx_http_get_flushed_variable(r, value->index);

    if (vv == NULL || vv->not_found) {
        text->len = 0;
        text->data = (u_char *) "";
        return NGX_OK;
    }

    text->len = vv->len;
    text->data = vv->data;

    return NGX_OK;
}


ngx_str_t
ngx_http_ratelimit_value_quote(const ngx_str_t *text, u_char *out)
{
    size_t     len;
    u_char    *last;
    ngx_str_t  quoted;

    len = ngx_min(text->len, NGX_HTTP_RATELIMIT_QUOTE);

    last = (u_char *) ngx_escape_json(out, text->data, len);

    if (len < text->len) {
        last = ngx_cpymem(last, "...", sizeof("...") - 1);
    }

    quoted.data = out;
    quoted.len = last - out;

    return quoted;
}

/*
 * Values with variables. The common ones are a single variable, which is read
 * by its index without running a script or copying a byte.
 */

#include "ngx_http_ratelimit.h"

static ngx_uint_t ngx_http_ratelimit_value_lone(ngx_str_t *text,
    ngx_str_t *name);
static ngx_int_t ngx_http_ratelimit_value_join(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text);
static ngx_int_t ngx_http_ratelimit_piece_get(ngx_http_request_t *r,
    ngx_http_ratelimit_piece_t *piece, ngx_str_t *text);


ngx_int_t
ngx_http_ratelimit_value_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_value_t *value)
{
    ngx_str_t                         name;
    ngx_http_compile_complex_value_t  ccv;

    value->index = -1;
    value->npieces = 0;

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
        return value->npieces
               ? ngx_http_ratelimit_value_join(r, value, text)
               : ngx_http_complex_value(r, &value->complex, text);
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


/* Of pieces: two passes, the first of which evaluates. */
static ngx_int_t
ngx_http_ratelimit_value_join(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
{
    u_char                      *p;
    ngx_str_t                   *texts;
    ngx_uint_t                   i;
    ngx_http_ratelimit_piece_t  *piece;

    texts = ngx_palloc(r->pool, value->npieces * sizeof(ngx_str_t));
    if (texts == NULL) {
        return NGX_ERROR;
    }

    text->len = 0;

    for (i = 0; i < value->npieces; i++) {
        piece = &value->pieces[i];

        if (!piece->variable) {
            texts[i] = piece->text;

        } else if (ngx_http_ratelimit_piece_get(r, piece, &texts[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }

        text->len += texts[i].len;
    }

    if (value->npieces == 1) {
        *text = texts[0];
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, text->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;

    for (i = 0; i < value->npieces; i++) {
        p = ngx_cpymem(p, texts[i].data, texts[i].len);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_piece_get(ngx_http_request_t *r,
    ngx_http_ratelimit_piece_t *piece, ngx_str_t *text)
{
    ngx_http_variable_value_t  *vv;

    vv = (piece->index == -1)
         ? ngx_http_get_variable(r, &piece->text, piece->hash)
         : ngx_http_get_flushed_variable(r, piece->index);

    if (vv == NULL || vv->not_found) {
        text->len = 0;
        text->data = (u_char *) "";
        return NGX_OK;
    }

    text->len = vv->len;
    text->data = vv->data;

    return NGX_OK;
}


ngx_int_t
ngx_http_ratelimit_values_key(ngx_http_request_t *r,
    ngx_http_ratelimit_values_t *values, ngx_str_t *key)
{
    u_char      *p, *last, *end;
    ngx_str_t    texts[NGX_RATELIMIT_MAX_PARTS];
    ngx_uint_t   i;

    key->len = values->nparts - 1;

    for (i = 0; i < values->nparts; i++) {
        if (ngx_http_ratelimit_value_get(r, &values->parts[i], &texts[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (texts[i].len == 0) {
            ngx_str_null(key);
            return NGX_OK;
        }

        key->len += texts[i].len;
    }

    key->data = ngx_pnalloc(r->pool, key->len);
    if (key->data == NULL) {
        return NGX_ERROR;
    }

    p = key->data;
    end = p + key->len;

    for (i = 0; i < values->nparts; i++) {
        last = ngx_cpymem(p, texts[i].data, texts[i].len);

        /* what a client sends moves no part's end */

        for ( /* void */ ; p < last; p++) {
            if (*p == NGX_RATELIMIT_PART_END) {
                *p = NGX_RATELIMIT_PART_END - 1;
            }
        }

        if (p < end) {
            *p++ = NGX_RATELIMIT_PART_END;
        }
    }

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

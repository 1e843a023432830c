/*
 * $ratelimit_api_key: the first of the configured sources that is present.
 */

#include "ngx_http_ratelimit.h"

typedef struct ngx_http_ratelimit_source_s  ngx_http_ratelimit_source_t;

typedef ngx_uint_t (*ngx_http_ratelimit_source_pt)(ngx_http_request_t *r,
    ngx_http_ratelimit_source_t *source, ngx_str_t *key);

struct ngx_http_ratelimit_source_s {
    ngx_http_ratelimit_source_pt  get;    /* 1 and a key of 1 byte or more */
    ngx_str_t                     name;   /* of the header, in lower case */
};

static char *ngx_http_ratelimit_source(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_source_t *source);
static ngx_uint_t ngx_http_ratelimit_source_header(ngx_http_request_t *r,
    ngx_http_ratelimit_source_t *source, ngx_str_t *key);
static ngx_uint_t ngx_http_ratelimit_source_bearer(ngx_http_request_t *r,
    ngx_http_ratelimit_source_t *source, ngx_str_t *key);
static ngx_uint_t ngx_http_ratelimit_source_trim(ngx_str_t *text);
static ngx_uint_t ngx_http_ratelimit_source_blank(u_char ch);

static ngx_http_ratelimit_source_t  ngx_http_ratelimit_default_sources[] = {
    { ngx_http_ratelimit_source_header, ngx_string("x-api-key") },
    { ngx_http_ratelimit_source_bearer, ngx_null_string },
};


char *
ngx_http_ratelimit_api_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_loc_conf_t *rlcf = conf;

    char                         *rv;
    ngx_str_t                    *value;
    ngx_uint_t                    i;
    ngx_http_ratelimit_source_t  *source;

    if (rlcf->sources != NULL) {
        return "is duplicate";
    }

    rlcf->sources = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                     sizeof(ngx_http_ratelimit_source_t));
    if (rlcf->sources == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {
        source = ngx_array_push(rlcf->sources);
        if (source == NULL) {
            return NGX_CONF_ERROR;
        }

        rv = ngx_http_ratelimit_source(cf, &value[i], source);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_source(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_source_t *source)
{
    if (text->len == 6 && ngx_strncmp(text->data, "bearer", 6) == 0) {
        source->get = ngx_http_ratelimit_source_bearer;
        ngx_str_null(&source->name);
        return NGX_CONF_OK;
    }

    if (text->len > 7 && ngx_strncmp(text->data, "header:", 7) == 0) {
        source->get = ngx_http_ratelimit_source_header;
        source->name.len = text->len - 7;
        source->name.data = text->data + 7;
        ngx_strlow(source->name.data, source->name.data, source->name.len);
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ratelimit_api_key\" has an invalid source \"%V\", "
                       "expected \"header:<name>\" or \"bearer\"", text);

    return NGX_CONF_ERROR;
}


ngx_int_t
ngx_http_ratelimit_api_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                       key;
    ngx_uint_t                      i, n;
    ngx_http_ratelimit_source_t    *source;
    ngx_http_ratelimit_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    if (conf->sources) {
        source = conf->sources->elts;
        n = conf->sources->nelts;

    } else {
        source = ngx_http_ratelimit_default_sources;
        n = sizeof(ngx_http_ratelimit_default_sources)
            / sizeof(ngx_http_ratelimit_source_t);
    }

    for (i = 0; i < n; i++) {

        if (source[i].get(r, &source[i], &key)) {
            v->len = key.len;
            v->data = key.data;
            v->valid = 1;
            v->no_cacheable = 0;
            v->not_found = 0;
            return NGX_OK;
        }
    }

    v->not_found = 1;

    return NGX_OK;
}


/* Of several headers of one name the first that is not empty counts. */
static ngx_uint_t
ngx_http_ratelimit_source_header(ngx_http_request_t *r,
    ngx_http_ratelimit_source_t *source, ngx_str_t *key)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (h[i].key.len == source->name.len
                && ngx_memcmp(h[i].lowcase_key, source->name.data,
                              source->name.len)
                   == 0)
            {
                *key = h[i].value;

                if (ngx_http_ratelimit_source_trim(key)) {
                    return 1;
                }
            }
        }
    }

    return 0;
}


/* RFC 6750: the scheme in any case, blanks, the token. */
static ngx_uint_t
ngx_http_ratelimit_source_bearer(ngx_http_request_t *r,
    ngx_http_ratelimit_source_t *source, ngx_str_t *key)
{
    size_t  len;

    len = sizeof("Bearer") - 1;

    if (r->headers_in.authorization == NULL) {
        return 0;
    }

    *key = r->headers_in.authorization->value;

    (void) ngx_http_ratelimit_source_trim(key);

    if (key->len <= len
        || ngx_strncasecmp(key->data, (u_char *) "Bearer", len) != 0
        || !ngx_http_ratelimit_source_blank(key->data[len]))
    {
        return 0;
    }

    key->data += len;
    key->len -= len;

    return ngx_http_ratelimit_source_trim(key);
}


/*
 * Drops the blanks around a header's value, which are no part of it (RFC 9110,
 * section 5.5): the API does not see them, so they must not make another key.
 * nginx leaves tabs, and in HTTP/2 spaces. Returns whether anything is left.
 */
static ngx_uint_t
ngx_http_ratelimit_source_trim(ngx_str_t *text)
{
    while (text->len && ngx_http_ratelimit_source_blank(text->data[0])) {
        text->data++;
        text->len--;
    }

    while (text->len
           && ngx_http_ratelimit_source_blank(text->data[text->len - 1]))
    {
        text->len--;
    }

    return text->len != 0;
}


static ngx_uint_t
ngx_http_ratelimit_source_blank(u_char ch)
{
    return ch == ' ' || ch == '\t';
}

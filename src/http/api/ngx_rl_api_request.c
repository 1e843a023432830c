/*
 * A request that nobody has sent to nginx: what the body of "POST /check" says
 * of one. Rules match it and variables read it as any other. It is in the pool
 * of the endpoint's request, has its configuration, and no response.
 */

#include "ngx_rl_api.h"


ngx_http_request_t *
ngx_rl_api_request(ngx_rl_api_t *api)
{
    ngx_connection_t           *c;
    ngx_http_request_t         *r, *of;
    ngx_http_core_main_conf_t  *cmcf;

    of = api->request;
    cmcf = ngx_http_get_module_main_conf(of, ngx_http_core_module);

    r = ngx_pcalloc(of->pool, sizeof(ngx_http_request_t)
                    + sizeof(ngx_connection_t)
                    + ngx_http_max_module * sizeof(void *)
                    + cmcf->variables.nelts * sizeof(ngx_http_variable_value_t)
                    + sizeof(ngx_sockaddr_t));
    if (r == NULL) {
        return NULL;
    }

    c = (ngx_connection_t *) &r[1];
    r->ctx = (void **) &c[1];
    r->variables = (void *) (r->ctx + ngx_http_max_module);

    *c = *of->connection;
    c->data = r;
    c->sockaddr = (void *) (r->variables + cmcf->variables.nelts);
    c->socklen = sizeof(ngx_sockaddr_t);
    c->sockaddr->sa_family = AF_UNIX;
    c->proxy_protocol = NULL;
    c->sent = 0;
#if (NGX_SSL || NGX_COMPAT)
    c->ssl = NULL;
#endif
    ngx_str_set(&c->addr_text, "unix:");

    r->signature = NGX_HTTP_MODULE;
    r->connection = c;
    r->main_conf = of->main_conf;
    r->srv_conf = of->srv_conf;
    r->loc_conf = of->loc_conf;
    r->http_connection = of->http_connection;
    r->pool = of->pool;
    r->main = r;
    r->count = 1;
    r->start_sec = of->start_sec;
    r->start_msec = of->start_msec;
    r->http_version = NGX_HTTP_VERSION_11;
    r->method = NGX_HTTP_GET;
    ngx_str_set(&r->method_name, "GET");
    ngx_str_set(&r->uri, "/");
    r->unparsed_uri = r->uri;
    r->headers_in.content_length_n = -1;
    r->headers_in.keep_alive_n = -1;
    r->headers_out.content_length_n = -1;
    r->headers_out.last_modified_time = -1;

    return (ngx_list_init(&r->headers_in.headers, r->pool, 8,
                          sizeof(ngx_table_elt_t))
            == NGX_OK)
           ? r : NULL;
}


static ngx_int_t
ngx_rl_api_request_path(ngx_http_request_t *r, const ngx_str_t *text)
{
    ngx_http_core_srv_conf_t  *cscf;

    r->uri_start = text->data;
    r->uri_end = text->data + text->len;
    r->args_start = NULL;

    if (text->len == 0 || ngx_http_parse_uri(r) != NGX_OK) {
        return NGX_DECLINED;
    }

    r->uri.data = text->data;
    r->uri.len = (r->args_start ? r->args_start - 1 : r->uri_end) - text->data;

    if (r->complex_uri || r->quoted_uri) {
        cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

        r->uri.data = ngx_pnalloc(r->pool, text->len + 1);
        if (r->uri.data == NULL) {
            return NGX_ERROR;
        }

        if (ngx_http_parse_complex_uri(r, cscf->merge_slashes) != NGX_OK) {
            return NGX_DECLINED;
        }
    }

    r->unparsed_uri = *text;
    r->valid_unparsed_uri = 1;

    if (r->args_start) {
        r->args.data = r->args_start;
        r->args.len = r->uri_end - r->args_start;
    }

    return NGX_OK;
}


/* In lower case, without the port and the last dot, as nginx has it. */
static ngx_int_t
ngx_rl_api_request_host(ngx_http_request_t *r, const ngx_str_t *text)
{
    u_char     *p, *end;
    ngx_str_t  *host;

    host = &r->headers_in.server;
    end = text->data + text->len;
    p = ngx_strlchr(text->data, end, (text->len && text->data[0] == '[') ? ']'
                                                                         : ':');
    if (p) {
        end = p + (*p == ']');
    }

    if (end > text->data && end[-1] == '.') {
        end--;
    }

    host->len = end - text->data;
    host->data = ngx_pnalloc(r->pool, host->len + 1);
    if (host->data == NULL) {
        return NGX_ERROR;
    }

    ngx_strlow(host->data, text->data, host->len);

    return NGX_OK;
}


/* NGX_DECLINED: it has one of this name. */
static ngx_int_t
ngx_rl_api_request_header(ngx_http_request_t *r, const ngx_str_t *name,
    const ngx_str_t *value)
{
    ngx_table_elt_t            *h;
    ngx_http_header_t          *known;
    ngx_http_core_main_conf_t  *cmcf;

    static const ngx_str_t  host = ngx_string("host");

    if (ngx_rl_find_header(&r->headers_in.headers, name)) {
        return NGX_DECLINED;
    }

    h = ngx_list_push(&r->headers_in.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->key = *name;
    h->value = *value;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->lowcase_key = ngx_pnalloc(r->pool, name->len + 1);
    if (h->lowcase_key == NULL) {
        return NGX_ERROR;
    }

    h->hash = ngx_hash_strlow(h->lowcase_key, name->data, name->len);
    h->hash = h->hash ? h->hash : 1;

    /* nginx's own handler of Host ends a request that it does not like */

    if (name->len == host.len
        && ngx_memcmp(h->lowcase_key, host.data, host.len) == 0)
    {
        r->headers_in.host = h;

        return r->headers_in.server.len ? NGX_OK
                                        : ngx_rl_api_request_host(r, value);
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    known = ngx_hash_find(&cmcf->headers_in_hash, h->hash, h->lowcase_key,
                          name->len);

    return (known && known->handler(r, h, known->offset) != NGX_OK) ? NGX_ERROR
                                                                    : NGX_OK;
}


ngx_int_t
ngx_rl_api_request_set(ngx_rl_api_t *api, ngx_http_request_t *r,
    ngx_uint_t header, const ngx_str_t *name, ngx_str_t *text,
    const char **wrong)
{
    ngx_int_t   rc;
    ngx_addr_t  addr;

    if (header) {
        *wrong = "is there twice";
        return ngx_rl_api_request_header(r, name, text);
    }

    switch (name->data[0]) {

    case 'm':
        r->method_name = *text;
        r->method = api->conf->limiter->above.method(text->data, text->len);
        r->method = r->method ? r->method : NGX_HTTP_UNKNOWN;

        return NGX_OK;

    case 'p':
        *wrong = "must be a path as a client sends it: \"/v1/users?page=2\"";
        return ngx_rl_api_request_path(r, text);

    case 'h':
        return ngx_rl_api_request_host(r, text);

    default: /* the address */
        *wrong = "must be an address";
        rc = ngx_parse_addr(r->pool, &addr, text->data, text->len);

        if (rc == NGX_OK) {
            r->connection->sockaddr = addr.sockaddr;
            r->connection->socklen = addr.socklen;
            r->connection->addr_text = *text;
        }

        return rc;
    }
}

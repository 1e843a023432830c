/*
 * A request to the endpoint becomes another one, that a question describes, as
 * if a client had sent that: its address, method, path, server and headers. The
 * body stays its own: it has been read, and is out of sight.
 */

#include "ngx_http_ratelimit_api_explain.h"

#include <jansson.h>

#define NGX_HTTP_RATELIMIT_API_HEADERS  20   /* in one part of their list */

static ngx_int_t ngx_http_ratelimit_api_become_address(ngx_http_request_t *r,
    json_t *address, ngx_ratelimit_problems_t *problems);
static ngx_int_t ngx_http_ratelimit_api_become_method(ngx_http_request_t *r,
    json_t *method, ngx_ratelimit_problems_t *problems);
static ngx_int_t ngx_http_ratelimit_api_become_uri(ngx_http_request_t *r,
    json_t *uri, ngx_ratelimit_problems_t *problems);
static ngx_int_t ngx_http_ratelimit_api_become_line(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_api_become_headers(ngx_http_request_t *r,
    json_t *headers, ngx_ratelimit_problems_t *problems);
static ngx_int_t ngx_http_ratelimit_api_become_header(ngx_http_request_t *r,
    const char *name, json_t *value, ngx_ratelimit_problems_t *problems);
static ngx_int_t ngx_http_ratelimit_api_header_add(ngx_http_request_t *r,
    const ngx_str_t *name, json_t *value);
static ngx_int_t ngx_http_ratelimit_api_header_known(ngx_http_request_t *r,
    ngx_table_elt_t *h);
static ngx_int_t ngx_http_ratelimit_api_become_host(ngx_http_request_t *r,
    json_t *host, json_t *port, ngx_ratelimit_problems_t *problems);
static ngx_uint_t ngx_http_ratelimit_api_printable(const char *text);
static ngx_int_t ngx_http_ratelimit_api_wrong(
    ngx_ratelimit_problems_t *problems, const char *pointer,
    const char *name, const char *detail);


void
ngx_http_ratelimit_api_self_save(ngx_http_request_t *r,
    ngx_http_ratelimit_api_self_t *self)
{
    self->method = r->method;
    self->method_name = r->method_name;
    self->request_line = r->request_line;
    self->uri = r->uri;
    self->args = r->args;
    self->exten = r->exten;
    self->unparsed_uri = r->unparsed_uri;
    self->headers_in = r->headers_in;
    self->srv_conf = r->srv_conf;
    self->loc_conf = r->loc_conf;
    self->variables = r->variables;
    self->request_body = r->request_body;
    self->sockaddr = r->connection->sockaddr;
    self->socklen = r->connection->socklen;
    self->addr_text = r->connection->addr_text;
    self->internal = r->internal;
    self->valid_unparsed_uri = r->valid_unparsed_uri;
}


/* What other modules have noted of the other request is gone with it. */
ngx_int_t
ngx_http_ratelimit_api_self_restore(ngx_http_request_t *r,
    ngx_http_ratelimit_api_self_t *self)
{
    r->method = self->method;
    r->method_name = self->method_name;
    r->request_line = self->request_line;
    r->uri = self->uri;
    r->args = self->args;
    r->exten = self->exten;
    r->unparsed_uri = self->unparsed_uri;
    r->headers_in = self->headers_in;
    r->srv_conf = self->srv_conf;
    r->loc_conf = self->loc_conf;
    r->variables = self->variables;
    r->request_body = self->request_body;
    ngx_http_ratelimit_api_self_address(r, self);
    r->internal = self->internal;
    r->valid_unparsed_uri = self->valid_unparsed_uri;
    r->err_status = 0;

    ngx_memzero(r->ctx, sizeof(void *) * ngx_http_max_module);
    ngx_memzero(&r->headers_out, sizeof(ngx_http_headers_out_t));

    r->headers_out.content_length_n = -1;
    r->headers_out.last_modified_time = -1;

    if (ngx_list_init(&r->headers_out.headers, r->pool,
                      NGX_HTTP_RATELIMIT_API_HEADERS, sizeof(ngx_table_elt_t))
        != NGX_OK
        || ngx_list_init(&r->headers_out.trailers, r->pool, 4,
                         sizeof(ngx_table_elt_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_update_location_config(r);

    return NGX_OK;
}


void
ngx_http_ratelimit_api_self_address(ngx_http_request_t *r,
    ngx_http_ratelimit_api_self_t *self)
{
    r->connection->sockaddr = self->sockaddr;
    r->connection->socklen = self->socklen;
    r->connection->addr_text = self->addr_text;
}


ngx_int_t
ngx_http_ratelimit_api_become(ngx_http_request_t *r, json_t *question,
    ngx_ratelimit_problems_t *problems)
{
    json_t                     *value;
    ngx_uint_t                  i;
    const char                 *name;
    ngx_http_core_main_conf_t  *cmcf;

    static const char  *names[] = { "address", "method", "uri", "host", "port",
                                    "headers", NULL };

    if (!json_is_object(question)) {
        return ngx_http_ratelimit_api_wrong(problems, "", "",
                                            "must be an object");
    }

    json_object_foreach(question, name, value) {

        for (i = 0; names[i]; i++) {
            if (ngx_strcmp(names[i], name) == 0) {
                break;
            }
        }

        if (names[i] == NULL) {
            (void) ngx_http_ratelimit_api_wrong(problems, "/", name,
                                                "is unknown");
        }
    }

    /* what has been read of the request's own is none of the other's */

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    r->variables = ngx_pcalloc(r->pool, cmcf->variables.nelts
                                        * sizeof(ngx_http_variable_value_t));
    r->request_body = NULL;

    if (r->variables == NULL
        || ngx_http_ratelimit_api_become_address(r,
                                 json_object_get(question, "address"),
                                 problems)
           != NGX_OK
        || ngx_http_ratelimit_api_become_method(r,
                                 json_object_get(question, "method"), problems)
           != NGX_OK
        || ngx_http_ratelimit_api_become_uri(r,
                                 json_object_get(question, "uri"), problems)
           != NGX_OK
        || ngx_http_ratelimit_api_become_line(r) != NGX_OK
        || ngx_http_ratelimit_api_become_headers(r,
                                 json_object_get(question, "headers"),
                                 problems)
           != NGX_OK
        || ngx_http_ratelimit_api_become_host(r,
                                 json_object_get(question, "host"),
                                 json_object_get(question, "port"), problems)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return problems->n ? NGX_DECLINED : NGX_OK;
}


/*
 * The client's, which the connection has until the request is itself again.
 * Without it that stays the caller's.
 */
static ngx_int_t
ngx_http_ratelimit_api_become_address(ngx_http_request_t *r, json_t *address,
    ngx_ratelimit_problems_t *problems)
{
    u_char      *p;
    ngx_int_t    rc;
    ngx_addr_t   addr;

    if (address == NULL) {
        return NGX_OK;
    }

    rc = NGX_DECLINED;

    if (json_is_string(address)) {
        rc = ngx_parse_addr(r->pool, &addr,
                            (u_char *) json_string_value(address),
                            json_string_length(address));
    }

    if (rc == NGX_DECLINED) {
        (void) ngx_http_ratelimit_api_wrong(problems, "/address", "",
                                            "must be an IPv4 or IPv6 address, "
                                            "\"192.0.2.1\"");
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_SOCKADDR_STRLEN);

    if (rc != NGX_OK || p == NULL) {
        return NGX_ERROR;
    }

    r->connection->sockaddr = addr.sockaddr;
    r->connection->socklen = addr.socklen;
    r->connection->addr_text.data = p;
    r->connection->addr_text.len = ngx_sock_ntop(addr.sockaddr, addr.socklen,
                                                 p, NGX_SOCKADDR_STRLEN, 0);

    return NGX_OK;
}


/* "GET" unless it is said; one that nginx does not know is one, too. */
static ngx_int_t
ngx_http_ratelimit_api_become_method(ngx_http_request_t *r, json_t *method,
    ngx_ratelimit_problems_t *problems)
{
    const char  *name, *p;

    name = method ? json_string_value(method) : "GET";

    for (p = name; p && *p; p++) {
        if ((*p < 'A' || *p > 'Z') && *p != '_' && *p != '-') {
            name = NULL;
            break;
        }
    }

    if (name == NULL || *name == '\0') {
        (void) ngx_http_ratelimit_api_wrong(problems, "/method", "",
                                            "must be a method, \"POST\"");
        return NGX_OK;
    }

    r->method_name.len = ngx_strlen(name);
    r->method_name.data = ngx_pnalloc(r->pool, r->method_name.len + 1);

    if (r->method_name.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(r->method_name.data, name, r->method_name.len + 1);

    r->method = ngx_http_ratelimit_method(r->method_name.data,
                                          r->method_name.len);
    if (r->method == 0) {
        r->method = NGX_HTTP_UNKNOWN;
    }

    return NGX_OK;
}


/* As ngx_http_process_request_uri(), which would answer what is wrong. */
static ngx_int_t
ngx_http_ratelimit_api_become_uri(ngx_http_request_t *r, json_t *uri,
    ngx_ratelimit_problems_t *problems)
{
    size_t                     len;
    u_char                    *p;
    const char                *text;
    ngx_http_core_srv_conf_t  *cscf;

    text = json_string_value(uri);

    if (text == NULL || *text != '/' || ngx_strchr(text, ' ')
        || !ngx_http_ratelimit_api_printable(text))
    {
        goto invalid;
    }

    len = ngx_strlen(text);

    /* the parser looks at the byte behind it, in a request a blank */

    p = ngx_pnalloc(r->pool, len + 2);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, text, len);
    p[len] = ' ';
    p[len + 1] = '\0';

    r->uri_start = p;
    r->uri_end = p + len;
    r->uri_ext = NULL;
    r->args_start = NULL;
    r->complex_uri = 0;
    r->quoted_uri = 0;
    r->plus_in_uri = 0;

    if (ngx_http_parse_uri(r) != NGX_OK) {
        goto invalid;
    }

    r->uri.len = (r->args_start ? r->args_start - 1 : r->uri_end)
                 - r->uri_start;

    if (r->complex_uri || r->quoted_uri) {

        r->uri.data = ngx_pnalloc(r->pool, r->uri.len + 1);
        if (r->uri.data == NULL) {
            return NGX_ERROR;
        }

        cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

        if (ngx_http_parse_complex_uri(r, cscf->merge_slashes) != NGX_OK) {
            goto invalid;
        }

    } else {
        r->uri.data = r->uri_start;
    }

    r->unparsed_uri.len = len;
    r->unparsed_uri.data = r->uri_start;
    r->valid_unparsed_uri = 1;

    ngx_str_null(&r->exten);
    ngx_str_null(&r->args);

    if (r->uri_ext) {
        r->exten.data = r->uri_ext;
        r->exten.len = (r->args_start ? r->args_start - 1 : r->uri_end)
                       - r->uri_ext;

        if (r->complex_uri || r->quoted_uri) {
            r->exten.len = r->uri.data + r->uri.len - r->uri_ext;
        }
    }

    if (r->args_start && r->uri_end > r->args_start) {
        r->args.data = r->args_start;
        r->args.len = r->uri_end - r->args_start;
    }

    return NGX_OK;

invalid:

    (void) ngx_http_ratelimit_api_wrong(problems, "/uri", "",
                                        "must be a path as a request has it, "
                                        "\"/v1/orders?limit=1\"");
    return NGX_OK;
}


/* $request */
static ngx_int_t
ngx_http_ratelimit_api_become_line(ngx_http_request_t *r)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, r->method_name.len + r->unparsed_uri.len
                             + sizeof("  HTTP/1.1"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    r->request_line.data = p;
    p = ngx_sprintf(p, "%V %V HTTP/1.1", &r->method_name, &r->unparsed_uri);
    r->request_line.len = p - r->request_line.data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_api_become_headers(ngx_http_request_t *r, json_t *headers,
    ngx_ratelimit_problems_t *problems)
{
    json_t                 *value;
    const char             *name;
    ngx_http_headers_in_t   own;

    own = r->headers_in;

    ngx_memzero(&r->headers_in, sizeof(ngx_http_headers_in_t));

    if (ngx_list_init(&r->headers_in.headers, r->pool,
                      NGX_HTTP_RATELIMIT_API_HEADERS, sizeof(ngx_table_elt_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* how the connection goes on is not for the other to say */

    r->headers_in.connection_type = own.connection_type;
    r->headers_in.keep_alive_n = own.keep_alive_n;
    r->headers_in.content_length_n = -1;

    if (headers && !json_is_object(headers)) {
        (void) ngx_http_ratelimit_api_wrong(problems, "/headers", "",
                                            "must be an object");
        return NGX_OK;
    }

    json_object_foreach(headers, name, value) {
        if (ngx_http_ratelimit_api_become_header(r, name, value, problems)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* One value, or a list of them: lines of that name. */
static ngx_int_t
ngx_http_ratelimit_api_become_header(ngx_http_request_t *r, const char *name,
    json_t *value, ngx_ratelimit_problems_t *problems)
{
    size_t       i;
    json_t      *one;
    ngx_str_t    key;
    const char  *p;

    key.data = (u_char *) name;
    key.len = ngx_strlen(name);

    for (p = name; *p; p++) {
        if (*p <= ' ' || *p == ':' || *p == 0x7f) {
            break;
        }
    }

    if (*p || key.len == 0) {
        return ngx_http_ratelimit_api_wrong(problems, "/headers/", name,
                                            "is no name of a header")
               == NGX_DECLINED ? NGX_OK : NGX_ERROR;
    }

    if (json_is_array(value)) {

        json_array_foreach(value, i, one) {
            if (!json_is_string(one)
                || !ngx_http_ratelimit_api_printable(json_string_value(one)))
            {
                break;
            }

            if (ngx_http_ratelimit_api_header_add(r, &key, one) != NGX_OK) {
                return NGX_ERROR;
            }
        }

        if (i == json_array_size(value)) {
            return NGX_OK;
        }

    } else if (json_is_string(value)
               && ngx_http_ratelimit_api_printable(json_string_value(value)))
    {
        return ngx_http_ratelimit_api_header_add(r, &key, value);
    }

    (void) ngx_http_ratelimit_api_wrong(problems, "/headers/", name,
                                        "must be a text in one line, or a "
                                        "list of them");
    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_api_header_add(ngx_http_request_t *r,
    const ngx_str_t *name, json_t *value)
{
    u_char           *p;
    size_t            len;
    ngx_table_elt_t  *h;

    len = json_string_length(value);

    h = ngx_list_push(&r->headers_in.headers);
    p = ngx_pnalloc(r->pool, 2 * (name->len + 1) + len + 1);

    if (h == NULL || p == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->key.data = p;
    h->key.len = name->len;
    p = ngx_cpymem(p, name->data, name->len);
    *p++ = '\0';

    h->lowcase_key = p;
    ngx_strlow(p, name->data, name->len);
    p += name->len;
    *p++ = '\0';

    h->value.data = p;
    h->value.len = len;
    p = ngx_cpymem(p, json_string_value(value), len);
    *p = '\0';

    h->hash = ngx_hash_key(h->lowcase_key, h->key.len);

    return ngx_http_ratelimit_api_header_known(r, h);
}


/*
 * Headers that nginx has a place for. Its own handlers of them are not called:
 * they would answer what is wrong. What is there twice, where it may not be,
 * counts once, as with them.
 */
static ngx_int_t
ngx_http_ratelimit_api_header_known(ngx_http_request_t *r, ngx_table_elt_t *h)
{
    ngx_http_header_t          *known;
    ngx_table_elt_t           **place;
    ngx_http_core_main_conf_t  *cmcf;
#if (nginx_version < 1023000)
    ngx_array_t                *list;
#endif

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    known = ngx_hash_find(&cmcf->headers_in_hash, h->hash, h->lowcase_key,
                          h->key.len);

    if (known == NULL || known->offset == 0) {
        return NGX_OK;
    }

#if (nginx_version < 1023000)

    if (known->offset == offsetof(ngx_http_headers_in_t, cookies)
#if (NGX_HTTP_X_FORWARDED_FOR)
        || known->offset == offsetof(ngx_http_headers_in_t, x_forwarded_for)
#endif
        )
    {
        list = (ngx_array_t *) ((u_char *) &r->headers_in + known->offset);

        if (list->elts == NULL
            && ngx_array_init(list, r->pool, 1, sizeof(ngx_table_elt_t *))
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        place = ngx_array_push(list);
        if (place == NULL) {
            return NGX_ERROR;
        }

        *place = h;

        return NGX_OK;
    }

#endif

    place = (ngx_table_elt_t **) ((u_char *) &r->headers_in + known->offset);

#if (nginx_version >= 1023000)
    while (*place) {
        place = &(*place)->next;
    }
#endif

    if (*place == NULL) {
        *place = h;
    }

    return NGX_OK;
}


/* "host" before a header of that name; without any the server is the same. */
static ngx_int_t
ngx_http_ratelimit_api_become_host(ngx_http_request_t *r, json_t *host,
    json_t *port, ngx_ratelimit_problems_t *problems)
{
    u_char                    *p;
    ngx_str_t                  name, header;
    json_int_t                 number;
    ngx_http_core_srv_conf_t  *cscf;

    number = json_is_integer(port) ? json_integer_value(port) : 0;

    if (port && (number < 1 || number > 65535)) {
        (void) ngx_http_ratelimit_api_wrong(problems, "/port", "",
                                            "must be a port");
        number = 0;
    }

    if (host && (!json_is_string(host) || json_string_length(host) == 0
                 || !ngx_http_ratelimit_api_printable(
                                                     json_string_value(host))))
    {
        (void) ngx_http_ratelimit_api_wrong(problems, "/host", "",
                                            "must be a host");
        return NGX_OK;
    }

    if (host && r->headers_in.host == NULL) {
        ngx_str_set(&header, "Host");

        if (ngx_http_ratelimit_api_header_add(r, &header, host) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_str_null(&name);

    if (host) {
        name.data = (u_char *) json_string_value(host);
        name.len = json_string_length(host);

    } else if (r->headers_in.host) {
        name = r->headers_in.host->value;
    }

    p = ngx_pnalloc(r->pool, name.len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_strlow(p, name.data, name.len);
    name.data = p;

    /* without its port, and the last dot */

    if (name.len && name.data[0] != '[') {
        p = ngx_strlchr(name.data, name.data + name.len, ':');
        name.len = p ? (size_t) (p - name.data) : name.len;
    }

    if (name.len && name.data[name.len - 1] == '.') {
        name.len--;
    }

    r->headers_in.server = name;

    cscf = NULL;

    if (name.len || number) {
        cscf = ngx_http_ratelimit_api_server(r, &name, (in_port_t) number);
    }

    if (cscf == NULL) {
        cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    }

    r->srv_conf = cscf->ctx->srv_conf;
    r->loc_conf = cscf->ctx->loc_conf;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_ratelimit_api_printable(const char *text)
{
    for ( /* void */ ; *text; text++) {
        if (((u_char) *text < ' ' && *text != '\t') || *text == 0x7f) {
            return 0;
        }
    }

    return 1;
}


/* Of a member: "/headers/" and its name. Always NGX_DECLINED. */
static ngx_int_t
ngx_http_ratelimit_api_wrong(ngx_ratelimit_problems_t *problems,
    const char *pointer, const char *name, const char *detail)
{
    u_char     *p, *last, buf[NGX_MAX_CONF_ERRSTR];
    ngx_str_t   text;

    last = buf + sizeof(buf) - 2;
    p = ngx_snprintf(buf, sizeof(buf) / 2, "%s", pointer);

    for ( /* void */ ; *name && p < last; name++) {

        if (*name == '~' || *name == '/') {
            *p++ = '~';
            *p++ = (*name == '~') ? '0' : '1';
            continue;
        }

        *p++ = (u_char) *name;
    }

    text.data = buf;
    text.len = p - buf;

    ngx_ratelimit_problem(problems, &text, "%s", detail);

    return NGX_DECLINED;
}

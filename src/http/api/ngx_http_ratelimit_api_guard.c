/*
 * Access to the endpoint. Clients on this machine may use it, unless the
 * location says otherwise. It may want a token, and may forbid changes. A page
 * of another site in a browser may do nothing.
 */

#include "ngx_http_ratelimit_api.h"

/*
 * The configuration of ngx_http_access_module, which has no header: an array of
 * rules for each kind of address, or NULL, after inheritance. Rules of IPv4
 * have these members. Only "all" has an empty mask. The module is found by its
 * name, so that this one loads into an nginx that is built without it.
 */
typedef struct {
    in_addr_t     mask;
    in_addr_t     addr;
    ngx_uint_t    deny;
} ngx_http_ratelimit_api_access_t;

typedef struct {
    ngx_array_t  *rules;
} ngx_http_ratelimit_api_access_conf_t;

static ngx_uint_t ngx_http_ratelimit_api_opened(ngx_http_request_t *r);
static ngx_uint_t ngx_http_ratelimit_api_loopback(struct sockaddr *sa);
static ngx_uint_t ngx_http_ratelimit_api_host_known(
    ngx_http_ratelimit_api_t *api);
static ngx_uint_t ngx_http_ratelimit_api_name_known(
    const ngx_http_ratelimit_api_t *api, const ngx_str_t *host);
static ngx_uint_t ngx_http_ratelimit_api_name_matches(const ngx_str_t *host,
    const ngx_str_t *name);
static ngx_uint_t ngx_http_ratelimit_api_name_is(const ngx_str_t *host,
    const char *name, size_t len);
static ngx_uint_t ngx_http_ratelimit_api_token_known(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_cross_site(
    ngx_http_ratelimit_api_t *api);
static ngx_uint_t ngx_http_ratelimit_api_fetch_own(ngx_http_request_t *r);
static ngx_uint_t ngx_http_ratelimit_api_origin_own(ngx_http_request_t *r);
static ngx_uint_t ngx_http_ratelimit_api_same_origin(const ngx_str_t *origin,
    const ngx_str_t *host);
static void ngx_http_ratelimit_api_without_port(ngx_str_t *host,
    const char *port);


ngx_int_t
ngx_http_ratelimit_api_guard(ngx_http_ratelimit_api_t *api)
{
    ngx_http_request_t  *r;

    r = api->request;

    if (!ngx_http_ratelimit_api_opened(r)
        && !ngx_http_ratelimit_api_loopback(r->connection->sockaddr))
    {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_FORBIDDEN,
                   "forbidden", "this location is for clients on its "
                   "own machine, unless \"allow\" and \"deny all\" say "
                   "otherwise");
    }

    /*
     * A page whose name was made to resolve to this machine is, for the
     * browser, of the same site as the endpoint, and comes from an address
     * that is allowed. Its name gives it away. It has no token.
     */

    if (api->conf->tokens == NULL && !ngx_http_ratelimit_api_host_known(api)) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_FORBIDDEN,
                   "forbidden", "expected \"localhost\", an address or a "
                   "\"server_name\" of this server as the host, or a "
                   "\"token_file\" in \"ratelimit_api\"");
    }

    if (!ngx_http_ratelimit_api_origin_own(r)) {
        return ngx_http_ratelimit_api_cross_site(api);
    }

    return NGX_DECLINED;
}


ngx_uint_t
ngx_http_ratelimit_api_authorized(ngx_http_ratelimit_api_t *api)
{
    if (api->conf->tokens == NULL || ngx_http_ratelimit_api_token_known(api)) {
        return 1;
    }

    ngx_http_ratelimit_api_header(api, "WWW-Authenticate",
                                  "Bearer realm=\"ratelimit\"");

    return 0;
}


/*
 * Whether the location has rules that decide about every address. A server may
 * deny some addresses for all of its locations: that does not open this one.
 * Nor does "satisfy any", which alone lets everybody in.
 */
static ngx_uint_t
ngx_http_ratelimit_api_opened(ngx_http_request_t *r)
{
    ngx_uint_t                             i;
    ngx_http_ratelimit_main_conf_t        *conf;
    ngx_http_ratelimit_api_access_t       *rules;
    ngx_http_ratelimit_api_access_conf_t  *access;

    conf = ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module);

    if (conf->access == NGX_CONF_UNSET_UINT) {
        return 0;
    }

    access = r->loc_conf[conf->access];

    if (access->rules == NULL
        || access->rules->size != sizeof(ngx_http_ratelimit_api_access_t))
    {
        return 0;
    }

    rules = access->rules->elts;

    for (i = 0; i < access->rules->nelts; i++) {
        if (rules[i].mask == 0) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_ratelimit_api_loopback(struct sockaddr *sa)
{
    in_addr_t             addr;
#if (NGX_HAVE_INET6)
    u_char               *p;
    struct sockaddr_in6  *sin6;
#endif

    switch (sa->sa_family) {

#if (NGX_HAVE_UNIX_DOMAIN)
    case AF_UNIX:
        return 1;
#endif

    case AF_INET:
        addr = ((struct sockaddr_in *) sa)->sin_addr.s_addr;
        return (ntohl(addr) >> 24) == 127;

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sa;
        p = sin6->sin6_addr.s6_addr;

        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr)
               || (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr) && p[12] == 127);
#endif

    default:
        return 0;
    }
}


/* By every name that the request has for its server; a browser names one. */
static ngx_uint_t
ngx_http_ratelimit_api_host_known(ngx_http_ratelimit_api_t *api)
{
    ngx_http_request_t  *r;

    r = api->request;

    if (r->headers_in.host
        && !ngx_http_ratelimit_api_name_known(api, &r->headers_in.host->value))
    {
        return 0;
    }

    return r->headers_in.server.len == 0
           || ngx_http_ratelimit_api_name_known(api, &r->headers_in.server);
}


/*
 * "localhost", an address, or a server_name: no name that somebody else may
 * define. So no regular expression and no "name.*".
 */
static ngx_uint_t
ngx_http_ratelimit_api_name_known(const ngx_http_ratelimit_api_t *api,
    const ngx_str_t *host)
{
    ngx_str_t    name, *names;
    ngx_uint_t   i;

    name = *host;
    ngx_http_ratelimit_api_without_port(&name, NULL);

    if ((name.len && name.data[0] == '[')
        || ngx_inet_addr(name.data, name.len) != INADDR_NONE
        || ngx_http_ratelimit_api_name_is(&name, "localhost",
                                          sizeof("localhost") - 1))
    {
        return 1;
    }

    names = api->conf->names->elts;

    for (i = 0; i < api->conf->names->nelts; i++) {
        if (ngx_http_ratelimit_api_name_matches(&name, &names[i])) {
            return 1;
        }
    }

    return 0;
}


/* "example.com"; "*.example.com": names below it; ".example.com": both. */
static ngx_uint_t
ngx_http_ratelimit_api_name_matches(const ngx_str_t *host,
    const ngx_str_t *name)
{
    size_t     skip;
    ngx_str_t  tail;

    skip = (name->data[0] == '*');

    if (skip == 0 && name->data[0] != '.') {
        return ngx_http_ratelimit_api_name_is(host, (char *) name->data,
                                              name->len);
    }

    tail.data = name->data + skip;
    tail.len = name->len - skip;

    if (host->len > tail.len) {
        return ngx_strncasecmp(host->data + host->len - tail.len, tail.data,
                               tail.len)
               == 0;
    }

    return skip == 0
           && ngx_http_ratelimit_api_name_is(host, (char *) tail.data + 1,
                                             tail.len - 1);
}


static ngx_uint_t
ngx_http_ratelimit_api_name_is(const ngx_str_t *host, const char *name,
    size_t len)
{
    return host->len == len
           && ngx_strncasecmp(host->data, (u_char *) name, len) == 0;
}


static ngx_uint_t
ngx_http_ratelimit_api_token_known(ngx_http_ratelimit_api_t *api)
{
    u_char                            *p, *last;
    ngx_table_elt_t                   *h;
    const ngx_http_ratelimit_token_t  *token;

    h = api->request->headers_in.authorization;

    if (h == NULL || h->value.len < sizeof("Bearer ") - 1
        || ngx_strncasecmp(h->value.data, (u_char *) "Bearer ",
                           sizeof("Bearer ") - 1)
           != 0)
    {
        return 0;
    }

    p = h->value.data + sizeof("Bearer ") - 1;
    last = h->value.data + h->value.len;

    while (p < last && *p == ' ') {
        p++;
    }

    token = ngx_http_ratelimit_token_find(api->conf->tokens, p, last - p);

    if (token) {
        api->token = token->name;
    }

    return token != NULL;
}


/* For methods that may change something, and for each POST. */
ngx_int_t
ngx_http_ratelimit_api_guard_write(ngx_http_ratelimit_api_t *api)
{
    if (!(api->route->flags & NGX_HTTP_RATELIMIT_API_READS)
        && !api->conf->write)
    {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_FORBIDDEN,
                                              "read-only", "this location "
                                              "only reads: its "
                                              "\"ratelimit_api\" has no "
                                              "\"write\"");
    }

    if (!ngx_http_ratelimit_api_fetch_own(api->request)) {
        return ngx_http_ratelimit_api_cross_site(api);
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_ratelimit_api_cross_site(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_FORBIDDEN,
                                          "cross-site", "a browser sends "
                                          "this for a page of another site");
}


/* A browser names the site of the page, also when a link is followed. */
static ngx_uint_t
ngx_http_ratelimit_api_fetch_own(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    static const ngx_str_t  name = ngx_string("Sec-Fetch-Site");

    h = ngx_http_ratelimit_find_header(&r->headers_in.headers, &name);

    return h == NULL
           || ngx_http_ratelimit_api_name_is(&h->value, "same-origin", 11)
           || ngx_http_ratelimit_api_name_is(&h->value, "none", 4);
}


static ngx_uint_t
ngx_http_ratelimit_api_origin_own(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    static const ngx_str_t  name = ngx_string("Origin");

    h = ngx_http_ratelimit_find_header(&r->headers_in.headers, &name);

    return h == NULL
           || (r->headers_in.host
               && ngx_http_ratelimit_api_same_origin(&h->value,
                                              &r->headers_in.host->value));
}


/* "http://host:port" and "host:port"; the scheme's own port may be left out. */
static ngx_uint_t
ngx_http_ratelimit_api_same_origin(const ngx_str_t *origin,
    const ngx_str_t *host)
{
    ngx_str_t    from, to;
    const char  *port;

    from = *origin;
    to = *host;

    if (from.len > 7
        && ngx_strncasecmp(from.data, (u_char *) "http://", 7) == 0)
    {
        from.data += 7;
        from.len -= 7;
        port = ":80";

    } else if (from.len > 8
               && ngx_strncasecmp(from.data, (u_char *) "https://", 8) == 0)
    {
        from.data += 8;
        from.len -= 8;
        port = ":443";

    } else {
        return 0;
    }

    ngx_http_ratelimit_api_without_port(&from, port);
    ngx_http_ratelimit_api_without_port(&to, port);

    return from.len && from.len == to.len
           && ngx_strncasecmp(from.data, to.data, from.len) == 0;
}


/* Cuts off this port, ":80"; or, where it is NULL, any. */
static void
ngx_http_ratelimit_api_without_port(ngx_str_t *host, const char *port)
{
    size_t  i, len;

    if (port) {
        len = ngx_strlen(port);

        if (host->len > len
            && ngx_strncmp(host->data + host->len - len, port, len) == 0)
        {
            host->len -= len;
        }

        return;
    }

    for (i = host->len; i > 0; i--) {

        if (host->data[i - 1] == ':') {
            host->len = i - 1;
            return;
        }

        if (host->data[i - 1] < '0' || host->data[i - 1] > '9') {
            return;
        }
    }
}

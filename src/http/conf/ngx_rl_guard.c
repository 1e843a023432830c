/*
 * Access to the endpoint and the metrics. A browser sends no token by itself.
 * Without tokens and certificates, a location answers its own machine alone,
 * and no proxy there: it would speak for clients of other machines.
 */

#include "ngx_rl_guard.h"
#include "ngx_rl_request.h"
#include "ngx_rl_token.h"


/* nginx's own list of names ends with the reading of the configuration. */
ngx_int_t
ngx_rl_guard_merge(ngx_conf_t *cf, ngx_rl_guard_t *guard)
{
    ngx_str_t                 *name;
    ngx_uint_t                 i;
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t   *sscf;
#endif
    ngx_http_server_name_t    *names;
    ngx_http_core_srv_conf_t  *cscf;

#if (NGX_HTTP_SSL)
    sscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_ssl_module);
    guard->verifies = (sscf->verify != 0);
#endif

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    names = cscf->server_names.elts;

    guard->names = ngx_array_create(cf->pool, cscf->server_names.nelts + 1,
                                    sizeof(ngx_str_t));
    if (guard->names == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < cscf->server_names.nelts; i++) {

        if (names[i].name.len == 0) {
            continue;
        }

#if (NGX_PCRE)
        if (names[i].regex) {
            continue;
        }
#endif

        name = ngx_array_push(guard->names);
        if (name == NULL) {
            return NGX_ERROR;
        }

        *name = names[i].name;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_rl_guard_token(ngx_http_request_t *r, const ngx_array_t *tokens,
    ngx_str_t *name)
{
    u_char                *p, *last;
    ngx_table_elt_t       *h;
    const ngx_rl_token_t  *token;

    h = r->headers_in.authorization;

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

    token = ngx_rl_token_find(tokens, p, last - p);

    if (token) {
        *name = token->name;
    }

    return token != NULL;
}


/*
 * Whether this server has verified the client's certificate. A connection that
 * names no server in TLS has been verified by the default server of the port,
 * whatever host its requests name: by that server's CA.
 */
static ngx_uint_t
ngx_rl_guard_verified(ngx_http_request_t *r)
{
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t    *sscf;
    ngx_http_variable_value_t  *value;

    static ngx_str_t  name = ngx_string("ssl_client_verify");

    sscf = ngx_http_get_module_srv_conf(r, ngx_http_ssl_module);

    if (r->connection->ssl == NULL
        || SSL_get_SSL_CTX(r->connection->ssl->connection) != sscf->ssl.ctx)
    {
        return 0;
    }

    value = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    return value && !value->not_found && value->len == sizeof("SUCCESS") - 1
           && ngx_memcmp(value->data, "SUCCESS", value->len) == 0;
#else
    return 0;
#endif
}


ngx_uint_t
ngx_rl_guard_loopback(struct sockaddr *sa)
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


/* Whether a header says so, of those that proxies add. */
static ngx_uint_t
ngx_rl_guard_proxied(ngx_http_request_t *r)
{
    size_t            len;
    ngx_uint_t        i, n;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    static const char *const  names[] = {
        "Forwarded", "Via", "X-Forwarded", "X-Forwarded-", "X-Real-IP" };

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            for (n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
                len = ngx_strlen(names[n]);

                /* one that ends with "-" is the beginning of others */

                if (header[i].key.len >= len
                    && (header[i].key.len == len || names[n][len - 1] == '-')
                    && ngx_strncasecmp(header[i].key.data,
                                       (u_char *) names[n], len)
                       == 0)
                {
                    return 1;
                }
            }
        }
    }

    return 0;
}


/*
 * Whether the peer itself is on this machine, and speaks for nobody else. The
 * kernel knows it, whatever realip has made of the connection's address; but
 * not over QUIC: then it is not local.
 */
static ngx_uint_t
ngx_rl_guard_local(ngx_http_request_t *r)
{
    socklen_t       len;
    ngx_sockaddr_t  peer;

    len = sizeof(ngx_sockaddr_t);

    if (r->http_connection->addr_conf->proxy_protocol
        || getpeername(r->connection->fd, &peer.sockaddr, &len) == -1
        || !ngx_rl_guard_loopback(&peer.sockaddr)
        || !ngx_rl_guard_loopback(r->connection->sockaddr))
    {
        return 0;
    }

    return !ngx_rl_guard_proxied(r);
}


static ngx_uint_t
ngx_rl_guard_name_is(const ngx_str_t *host, const char *name, size_t len)
{
    return host->len == len
           && ngx_strncasecmp(host->data, (u_char *) name, len) == 0;
}


/* "example.com"; "*.example.com": names below it; ".example.com": both. */
static ngx_uint_t
ngx_rl_guard_name_matches(const ngx_str_t *host, const ngx_str_t *name)
{
    size_t     skip;
    ngx_str_t  tail;

    skip = (name->data[0] == '*');

    if (skip == 0 && name->data[0] != '.') {
        return ngx_rl_guard_name_is(host, (char *) name->data, name->len);
    }

    tail.data = name->data + skip;
    tail.len = name->len - skip;

    if (host->len > tail.len) {
        return ngx_strncasecmp(host->data + host->len - tail.len, tail.data,
                               tail.len)
               == 0;
    }

    return skip == 0
           && ngx_rl_guard_name_is(host, (char *) tail.data + 1, tail.len - 1);
}


/*
 * "localhost", an address, or a server_name: no name that somebody else may
 * define. So no regular expression and no "name.*".
 */
static ngx_uint_t
ngx_rl_guard_name_known(const ngx_array_t *names, const ngx_str_t *host)
{
    ngx_str_t    name, *known;
    ngx_uint_t   i;

    name = *host;

    for (i = name.len; i > 0 && name.data[i - 1] >= '0'
                       && name.data[i - 1] <= '9'; i--)
    {
        /* the port */
    }

    if (i > 0 && name.data[i - 1] == ':') {
        name.len = i - 1;
    }

    if ((name.len && name.data[0] == '[')
        || ngx_inet_addr(name.data, name.len) != INADDR_NONE
        || ngx_rl_guard_name_is(&name, "localhost", sizeof("localhost") - 1))
    {
        return 1;
    }

    known = names->elts;

    for (i = 0; i < names->nelts; i++) {
        if (ngx_rl_guard_name_matches(&name, &known[i])) {
            return 1;
        }
    }

    return 0;
}


/* By every name that the request has for its server; a browser names one. */
static ngx_uint_t
ngx_rl_guard_host(ngx_http_request_t *r, const ngx_array_t *names)
{
    if (r->headers_in.host
        && !ngx_rl_guard_name_known(names, &r->headers_in.host->value))
    {
        return 0;
    }

    return r->headers_in.server.len == 0
           || ngx_rl_guard_name_known(names, &r->headers_in.server);
}


ngx_int_t
ngx_rl_guard(ngx_http_request_t *r, const ngx_rl_guard_t *guard,
    ngx_str_t *name, const char **why)
{
    ngx_str_null(name);

    if (guard->tokens) {

        if (ngx_rl_guard_token(r, guard->tokens, name)) {
            return NGX_OK;
        }

        *why = "expected \"Authorization: Bearer\" with a token of this "
               "location";
        return NGX_HTTP_UNAUTHORIZED;
    }

    if (guard->verifies && ngx_rl_guard_verified(r)) {
        return NGX_OK;
    }

    if (!ngx_rl_guard_local(r)) {
        *why = "without a token this location is for clients on its own "
               "machine, and for no proxy there";
        return NGX_HTTP_FORBIDDEN;
    }

    /*
     * A page whose name was made to resolve to this machine is, for the
     * browser, of the same site as the location, and comes from here. Its name
     * gives it away.
     */

    if (!ngx_rl_guard_host(r, guard->names)) {
        *why = "expected \"localhost\", an address or a \"server_name\" of "
               "this server as the host";
        return NGX_HTTP_FORBIDDEN;
    }

    return NGX_DECLINED;
}


void
ngx_rl_guard_log(ngx_http_request_t *r, const char *why)
{
    ngx_http_core_loc_conf_t  *clcf;

    char  note[NGX_RL_LOG_NOTE];

    if (!ngx_rl_request_log_due(r, NGX_RL_LOG_REFUSED, note)) {
        return;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    /* the log of the connection would add the line of the request */

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "ratelimit location \"%V\": a request from %V was refused: "
                  "%s%s", &clcf->name, &r->connection->addr_text, why, note);
}

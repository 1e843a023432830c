/*
 * Which server a request of some name would come to, at an address that nginx
 * listens at.
 */

#include "ngx_http_ratelimit_api_explain.h"

static ngx_http_core_srv_conf_t *ngx_http_ratelimit_api_server_of(
    ngx_http_request_t *r, ngx_http_addr_conf_t *conf, ngx_str_t *host);
static ngx_http_addr_conf_t *ngx_http_ratelimit_api_address(
    ngx_listening_t *ls, ngx_uint_t i);


ngx_http_core_srv_conf_t *
ngx_http_ratelimit_api_server(ngx_http_request_t *r, ngx_str_t *host,
    in_port_t port)
{
    ngx_uint_t                 i, k;
    ngx_listening_t           *ls;
    ngx_http_addr_conf_t      *conf, *first;
    ngx_http_core_srv_conf_t  *cscf;

    first = port ? NULL : r->http_connection->addr_conf;

    if (first) {
        cscf = ngx_http_ratelimit_api_server_of(r, first, host);
        if (cscf) {
            return cscf;
        }
    }

    ls = ngx_cycle->listening.elts;

    for (i = 0; i < ngx_cycle->listening.nelts; i++) {

        if (ls[i].handler != ngx_http_init_connection
            || (port && ngx_inet_get_port(ls[i].sockaddr) != port))
        {
            continue;
        }

        for (k = 0; /* void */ ; k++) {
            conf = ngx_http_ratelimit_api_address(&ls[i], k);

            if (conf == NULL) {
                break;
            }

            cscf = ngx_http_ratelimit_api_server_of(r, conf, host);
            if (cscf) {
                return cscf;
            }

            first = first ? first : conf;
        }
    }

    return first ? first->default_server : NULL;
}


/* The address' i-th, or NULL. */
static ngx_http_addr_conf_t *
ngx_http_ratelimit_api_address(ngx_listening_t *ls, ngx_uint_t i)
{
    ngx_http_port_t      *port;
    ngx_http_in_addr_t   *addr;
#if (NGX_HAVE_INET6)
    ngx_http_in6_addr_t  *addr6;
#endif

    port = ls->servers;

    if (port == NULL || i >= port->naddrs) {
        return NULL;
    }

#if (NGX_HAVE_INET6)
    if (ls->sockaddr->sa_family == AF_INET6) {
        addr6 = port->addrs;
        return &addr6[i].conf;
    }
#endif

    addr = port->addrs;

    return &addr[i].conf;
}


/* Of an address with one server nginx keeps no names but the server's first. */
static ngx_http_core_srv_conf_t *
ngx_http_ratelimit_api_server_of(ngx_http_request_t *r,
    ngx_http_addr_conf_t *conf, ngx_str_t *host)
{
    ngx_http_virtual_names_t  *names;
    ngx_http_core_srv_conf_t  *cscf;
#if (NGX_PCRE)
    ngx_uint_t                 i;
    ngx_http_server_name_t    *name;
#endif

    if (host->len == 0) {
        return NULL;
    }

    names = conf->virtual_names;

    if (names == NULL) {
        cscf = conf->default_server;
        return ngx_http_ratelimit_equal(&cscf->server_name, host) ? cscf
                                                                  : NULL;
    }

    cscf = ngx_hash_find_combined(&names->names,
                                  ngx_hash_key(host->data, host->len),
                                  host->data, host->len);
    if (cscf) {
        return cscf;
    }

#if (NGX_PCRE)
    name = names->regex;

    for (i = 0; i < names->nregex; i++) {
        if (ngx_http_regex_exec(r, name[i].regex, host) == NGX_OK) {
            return name[i].server;
        }
    }
#endif

    return NULL;
}

/*
 * $ratelimit_client: the client's address, or the network that it is in.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_key.h"

#include "ngx_rl_check.h"
#include "ngx_rl_text.h"

/* an address, "/" and a prefix */
#define NGX_RL_CLIENT_BYTES  (NGX_INET6_ADDRSTRLEN + 4)


/* ratelimit_client_prefix <IPv4> <IPv6> */
char *
ngx_rl_client_prefix(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    uint64_t     n, max;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (rlcf->prefix_v4 != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 1; i <= 2; i++) {
        max = (i == 1) ? 32 : 128;

        if (ngx_rl_number_parse(value[i].data, value[i].len, 0, max, &n) != 0) {
            return ngx_rl_wrong(cf, "has an invalid %s prefix \"%V\", expected "
                                "a number from 0 to %uL",
                                (i == 1) ? "IPv4" : "IPv6", &value[i], max);
        }

        *(i == 1 ? &rlcf->prefix_v4 : &rlcf->prefix_v6) = (ngx_uint_t) n;
    }

    return NGX_CONF_OK;
}


/* Writes the address, or the network of so many bits that it is in. */
static u_char *
ngx_rl_client_write(u_char *p, const ngx_http_request_t *r, ngx_uint_t v4,
    ngx_uint_t v6)
{
    int               family;
    u_char            network[16], *address;
    size_t            len;
    ngx_uint_t        bits, whole;
    struct sockaddr  *sa;

    sa = r->connection->sockaddr;

    switch (sa->sa_family) {

#if (NGX_HAVE_INET6)
    case AF_INET6:
        family = AF_INET6;
        address = ((struct sockaddr_in6 *) sa)->sin6_addr.s6_addr;
        len = 16;

        /* ::ffff:192.0.2.1 is the client that others see as 192.0.2.1 */

        if (IN6_IS_ADDR_V4MAPPED((struct in6_addr *) address)) {
            family = AF_INET;
            address += 12;
            len = 4;
        }

        break;
#endif

    case AF_INET:
        family = AF_INET;
        address = (u_char *) &((struct sockaddr_in *) sa)->sin_addr;
        len = 4;
        break;

    default: /* AF_UNIX */
        return ngx_cpymem(p, "unix:", sizeof("unix:") - 1);
    }

    bits = (family == AF_INET) ? v4 : v6;
    whole = bits / 8;

    ngx_memzero(network, sizeof(network));
    ngx_memcpy(network, address, whole);

    if (bits % 8) {
        network[whole] = (u_char) (address[whole] & (0xff00 >> (bits % 8)));
    }

    p += ngx_inet_ntop(family, network, p, NGX_INET6_ADDRSTRLEN);

    return (bits < len * 8) ? ngx_sprintf(p, "/%ui", bits) : p;
}


ngx_int_t
ngx_rl_client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char             *p;
    ngx_rl_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    p = ngx_pnalloc(r->pool, NGX_RL_CLIENT_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    return ngx_rl_variable_set(v, p,
               ngx_rl_client_write(p, r, conf->prefix_v4, conf->prefix_v6)
               - p);
}


ngx_int_t
ngx_rl_client_key(ngx_http_request_t *r, ngx_uint_t v4, ngx_uint_t v6,
    ngx_str_t *key)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, sizeof(NGX_RL_NETWORK_KEY) - 1
                             + NGX_RL_CLIENT_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    key->data = p;

    p = ngx_cpymem(p, NGX_RL_NETWORK_KEY, sizeof(NGX_RL_NETWORK_KEY) - 1);
    key->len = ngx_rl_client_write(p, r, v4, v6) - key->data;

    return NGX_OK;
}


ngx_uint_t
ngx_rl_client_address(ngx_http_request_t *r, u_char address[NGX_RL_ADDRESS])
{
    struct sockaddr  *sa;

    sa = r->connection->sockaddr;

    switch (sa->sa_family) {

#if (NGX_HAVE_INET6)
    case AF_INET6:
        ngx_rl_address(((struct sockaddr_in6 *) sa)->sin6_addr.s6_addr,
                       16, address);
        return 1;
#endif

    case AF_INET:
        ngx_rl_address((u_char *) &((struct sockaddr_in *) sa)->sin_addr,
                       4, address);
        return 1;

    default: /* AF_UNIX */
        return 0;
    }
}

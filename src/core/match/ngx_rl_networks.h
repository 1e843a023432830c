/*
 * Networks and addresses: which of them an address is in. An IPv4 address is
 * its mapped IPv6 address here, so both forms of it are the same.
 */

#ifndef NGX_RL_NETWORKS_H_INCLUDED
#define NGX_RL_NETWORKS_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_ADDRESS  16   /* bytes */

/* Bits of the prefix before those of an IPv4 network: ::ffff:0:0/96 */
#define NGX_RL_MAPPED   96

typedef struct {
    u_char    address[NGX_RL_ADDRESS];
    uint32_t  bits;     /* of its prefix; 128: it is one address */
    uint32_t  value;    /* the caller's; not NONE of the map */
} ngx_rl_network_t;

typedef struct ngx_rl_networks_s  ngx_rl_networks_t;

/*
 * Reads "192.0.2.1", "10.0.0.0/8", "::1", "2001:db8::/32", and clears the bits
 * behind the prefix. Returns 0, or -1: the text is no address and no network.
 */
int ngx_rl_network_parse(const u_char *text, size_t len,
    ngx_rl_network_t *network);

/* The address of 4 or 16 bytes. */
void ngx_rl_address(const u_char *bytes, size_t len,
    u_char address[NGX_RL_ADDRESS]);

/*
 * Makes a set of n networks, n >= 1, in zeroed memory of the caller, of
 * networks_bytes(): 0 if there are too many. If networks are equal, the
 * greatest value counts.
 */
size_t ngx_rl_networks_bytes(const ngx_rl_network_t *networks, size_t n);
ngx_rl_networks_t *ngx_rl_networks_init(void *memory,
    const ngx_rl_network_t *networks, size_t n);

/*
 * Whether the address is in a network with this value or a greater one. An IPv4
 * address is in no network of IPv6 that is wider than all of IPv4. Looks once
 * for each length of a prefix, however many networks there are. list may be
 * NULL.
 */
int ngx_rl_networks_have(const ngx_rl_networks_t *list,
    const u_char address[NGX_RL_ADDRESS], uint32_t least);

#endif /* NGX_RL_NETWORKS_H_INCLUDED */

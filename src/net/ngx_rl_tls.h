/*
 * TLS to Redis and between gateways, by nginx's ssl. An nginx that was built
 * without ssl loads the module too, as long as no block has "tls on": nginx's
 * functions are weak symbols here.
 */

#ifndef NGX_RL_TLS_H_INCLUDED
#define NGX_RL_TLS_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/x509v3.h>

#pragma weak ngx_ssl_connection_index
#pragma weak ngx_ssl_handshake

#define NGX_RL_TLS_MAX_NAME  255

/* The "tls" lines of a block. */
typedef struct {
    ngx_flag_t  on;
    ngx_str_t   ca;             /* file; empty: the system's */
    ngx_str_t   name;           /* empty: that of each host */
    ngx_str_t   certificate;    /* file; empty: none */
    ngx_str_t   key;            /* its file */
    ngx_ssl_t  *ssl;            /* made by ngx_rl_tls_prepare */
} ngx_rl_tls_t;


/*
 * Makes tls->ssl where tls->on: both sides verify each other's chain, and no
 * session is kept. directive, name: of the block, for messages. Returns NGX_OK,
 * or NGX_ERROR (logged): a file cannot be read, or nginx has no ssl.
 */
ngx_int_t ngx_rl_tls_prepare(ngx_conf_t *cf, ngx_rl_tls_t *tls,
    const char *directive, ngx_str_t *name);

/*
 * Gives a connected c a pool and TLS. host: the certificate of the other side
 * must have tls->name, else this name or address; NULL: this side is the
 * server, and any name will do. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_tls_open(ngx_rl_tls_t *tls, ngx_connection_t *c,
    const ngx_str_t *host);

/* Says goodbye if it fits the socket, waits for nothing, and frees all. */
void ngx_rl_tls_end(ngx_connection_t *c);


#endif /* NGX_RL_TLS_H_INCLUDED */

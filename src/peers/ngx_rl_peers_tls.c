/*
 * TLS between gateways, by nginx's ssl. Both sides show a certificate of the
 * CA, and the one that connects looks for the name of its "peer" line in it.
 * An nginx that was built without ssl loads the module too: its functions are
 * weak symbols here.
 */

#include "ngx_rl_peers.h"

#include <openssl/x509v3.h>

#pragma weak ngx_ssl_cleanup_ctx
#pragma weak ngx_ssl_certificate
#pragma weak ngx_ssl_create
#pragma weak ngx_ssl_create_connection
#pragma weak ngx_ssl_error
#pragma weak ngx_ssl_handshake
#pragma weak ngx_ssl_shutdown

#define NGX_RL_PEERS_TLS_POOL  512
#define NGX_RL_PEERS_MAX_NAME  255


ngx_int_t
ngx_rl_peers_tls_prepare(ngx_conf_t *cf, ngx_rl_peers_t *peers)
{
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_peers_tls_t  *tls;

    tls = &peers->tls;

    if (!tls->on) {
        return NGX_OK;
    }

    if (ngx_ssl_create == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_peers\" \"%V\" has \"tls on\", "
                           "expected an nginx built with "
                           "\"--with-http_ssl_module\"", &peers->name);
        return NGX_ERROR;
    }

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (ssl == NULL || cln == NULL) {
        return NGX_ERROR;
    }

    ssl->log = cf->log;

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL) != NGX_OK) {
        return NGX_ERROR;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;
    tls->ssl = ssl;

    if (ngx_conf_full_name(cf->cycle, &tls->ca, 1) != NGX_OK
        || ngx_ssl_certificate(cf, ssl, &tls->certificate, &tls->key, NULL)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (SSL_CTX_load_verify_locations(ssl->ctx, (char *) tls->ca.data, NULL)
        == 0)
    {
        ngx_ssl_error(NGX_LOG_EMERG, ssl->log, 0,
                      "SSL_CTX_load_verify_locations(\"%V\") failed",
                      &tls->ca);
        return NGX_ERROR;
    }

    ERR_clear_error();

    /* what is to be written moves to the start of its buffer */

    SSL_CTX_set_mode(ssl->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE
                               |SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ssl->ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ssl->ctx,
                       SSL_VERIFY_PEER|SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);

    return NGX_OK;
}


static ngx_int_t
ngx_rl_peers_tls_name(ngx_rl_peer_t *peer, SSL *ssl)
{
    char                name[NGX_RL_PEERS_MAX_NAME + 1];
    const ngx_str_t    *host;
    X509_VERIFY_PARAM  *param;

    host = peer->peers->tls.name.len ? &peer->peers->tls.name
                                     : &peer->dial->host->host;

    (void) ngx_cpystrn((u_char *) name, host->data,
                       ngx_min(host->len + 1, sizeof(name)));

    param = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1) {
        return NGX_OK;
    }

    ERR_clear_error();

    if (X509_VERIFY_PARAM_set1_host(param, name, 0) != 1
        || SSL_set_tlsext_host_name(ssl, name) != 1)
    {
        ERR_clear_error();
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_rl_peers_tls_handler(ngx_connection_t *c)
{
    long            result;
    ngx_rl_peer_t  *peer;

    peer = c->data;

    if (c->ssl->handshaked) {
        ngx_rl_peer_begin(peer);
        return;
    }

    result = SSL_get_verify_result(c->ssl->connection);

    ngx_rl_peer_close(peer, 0, result != X509_V_OK
                               ? X509_verify_cert_error_string(result)
                               : "the TLS handshake failed");
}


void
ngx_rl_peers_tls_begin(ngx_rl_peer_t *peer)
{
    ngx_connection_t  *c;

    c = peer->connection;
    c->pool = ngx_create_pool(NGX_RL_PEERS_TLS_POOL, c->log);

    if (c->pool == NULL
        || ngx_ssl_create_connection(peer->peers->tls.ssl, c,
                                     peer->dial ? NGX_SSL_CLIENT : 0)
           != NGX_OK
        || (peer->dial
            && ngx_rl_peers_tls_name(peer, c->ssl->connection) != NGX_OK))
    {
        ngx_rl_peer_close(peer, 0, "no memory");
        return;
    }

    c->ssl->handler = ngx_rl_peers_tls_handler;

    if (ngx_ssl_handshake(c) != NGX_AGAIN) {
        ngx_rl_peers_tls_handler(c);
    }
}


/* Says goodbye where that fits, and waits for nothing. */
void
ngx_rl_peers_tls_end(ngx_connection_t *c)
{
    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;

        if (ngx_ssl_shutdown(c) == NGX_AGAIN) {
            c->timedout = 1;
            (void) ngx_ssl_shutdown(c);
        }
    }

    if (c->pool) {
        ngx_destroy_pool(c->pool);
        c->pool = NULL;
    }
}

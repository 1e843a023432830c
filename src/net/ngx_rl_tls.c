#include "ngx_rl_tls.h"

#pragma weak ngx_ssl_cleanup_ctx
#pragma weak ngx_ssl_certificate
#pragma weak ngx_ssl_create
#pragma weak ngx_ssl_create_connection
#pragma weak ngx_ssl_error
#pragma weak ngx_ssl_shutdown

#define NGX_RL_TLS_POOL  512


static ngx_int_t
ngx_rl_tls_trust(ngx_conf_t *cf, ngx_rl_tls_t *tls, ngx_ssl_t *ssl)
{
    if (tls->ca.len == 0) {

        if (SSL_CTX_set_default_verify_paths(ssl->ctx) == 0) {
            ngx_ssl_error(NGX_LOG_EMERG, ssl->log, 0,
                          "SSL_CTX_set_default_verify_paths() failed");
            return NGX_ERROR;
        }

    } else {

        if (ngx_conf_full_name(cf->cycle, &tls->ca, 1) != NGX_OK) {
            return NGX_ERROR;
        }

        if (SSL_CTX_load_verify_locations(ssl->ctx, (char *) tls->ca.data,
                                          NULL)
            == 0)
        {
            ngx_ssl_error(NGX_LOG_EMERG, ssl->log, 0,
                          "SSL_CTX_load_verify_locations(\"%V\") failed",
                          &tls->ca);
            return NGX_ERROR;
        }
    }

    /* what a success may leave would be called a stale error later */

    ERR_clear_error();

    return NGX_OK;
}


ngx_int_t
ngx_rl_tls_prepare(ngx_conf_t *cf, ngx_rl_tls_t *tls, const char *directive,
    ngx_str_t *name)
{
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;

    if (!tls->on) {
        return NGX_OK;
    }

    if (ngx_ssl_create == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" \"%V\" has \"tls on\", expected an nginx "
                           "built with \"--with-http_ssl_module\"",
                           directive, name);
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

    if (ngx_rl_tls_trust(cf, tls, ssl) != NGX_OK
        || (tls->certificate.len
            && ngx_ssl_certificate(cf, ssl, &tls->certificate, &tls->key, NULL)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    /*
     * A record that is out may be answered before the next one is: say so. What
     * is to be written may move to the start of its buffer.
     */

    SSL_CTX_set_mode(ssl->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE
                               |SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);

    SSL_CTX_set_session_cache_mode(ssl->ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ssl->ctx,
                       SSL_VERIFY_PEER|SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);

    return NGX_OK;
}


/* An address has no SNI. */
static ngx_int_t
ngx_rl_tls_name(SSL *ssl, const ngx_str_t *host)
{
    char                name[NGX_RL_TLS_MAX_NAME + 1];
    X509_VERIFY_PARAM  *param;

    (void) ngx_cpystrn((u_char *) name, host->data,
                       ngx_min(host->len + 1, sizeof(name)));

    param = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1) {
        return NGX_OK;
    }

    ERR_clear_error();

    if (host->len > 1 && name[host->len - 1] == '.') {
        name[host->len - 1] = '\0';
    }

    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);

    if (X509_VERIFY_PARAM_set1_host(param, name, 0) != 1
        || SSL_set_tlsext_host_name(ssl, name) != 1)
    {
        ERR_clear_error();
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_rl_tls_open(ngx_rl_tls_t *tls, ngx_connection_t *c, const ngx_str_t *host)
{
    c->pool = ngx_create_pool(NGX_RL_TLS_POOL, c->log);

    if (c->pool == NULL
        || ngx_ssl_create_connection(tls->ssl, c, host ? NGX_SSL_CLIENT : 0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return host ? ngx_rl_tls_name(c->ssl->connection,
                                  tls->name.len ? &tls->name : host)
                : NGX_OK;
}


/* Waiting for the goodbye would outlive the connection. */
void
ngx_rl_tls_end(ngx_connection_t *c)
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

/*
 * TLS to Redis, by nginx's ssl. The server is always verified: its chain
 * against the CAs, and its name, both within the handshake, so that nothing,
 * a password least of all, is sent to any other.
 *
 * An nginx that was built without ssl loads the module too, as long as no block
 * wants TLS: nginx's functions are weak symbols here.
 */

#include "ngx_rl_redis_conn.h"
#include "ngx_rl_redis_shared.h"

#include <openssl/x509v3.h>

/* "config" asks for OpenSSL, so nginx' declarations are there */

#pragma weak ngx_ssl_cleanup_ctx
#pragma weak ngx_ssl_certificate
#pragma weak ngx_ssl_connection_index
#pragma weak ngx_ssl_create
#pragma weak ngx_ssl_create_connection
#pragma weak ngx_ssl_error
#pragma weak ngx_ssl_handshake
#pragma weak ngx_ssl_shutdown

#define NGX_RL_REDIS_TLS_POOL  512


static ngx_int_t
ngx_rl_redis_tls_trust(ngx_conf_t *cf, ngx_rl_redis_tls_t *tls, ngx_ssl_t *ssl)
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


/* Keeps the peer's alert: nginx's line about it is not logged here. */
static void
ngx_rl_redis_tls_info(const SSL *ssl, int where, int value)
{
    ngx_connection_t     *c;
    ngx_rl_redis_conn_t  *conn;

    if ((where & SSL_CB_READ_ALERT) != SSL_CB_READ_ALERT
        || (value & 0xff) == SSL3_AD_CLOSE_NOTIFY)
    {
        return;
    }

    c = ngx_ssl_get_connection((ngx_ssl_conn_t *) ssl);
    conn = c->data;

    /* OpenSSL 1.1.1 and 3.0 have no text for it */

    conn->alert = ((value & 0xff) == SSL_AD_CERTIFICATE_REQUIRED)
                  ? "certificate required" : SSL_alert_desc_string_long(value);
}


void
ngx_rl_redis_tls_forget(ngx_rl_redis_conn_t *conn)
{
    if (conn->session) {
        SSL_SESSION_free(conn->session);
        conn->session = NULL;
    }
}


/* A ticket, or the session itself: conn owns it from now on. */
static int
ngx_rl_redis_tls_session(SSL *ssl, SSL_SESSION *session)
{
    ngx_connection_t     *c;
    ngx_rl_redis_conn_t  *conn;

    c = ngx_ssl_get_connection((ngx_ssl_conn_t *) ssl);
    conn = c->data;

    ngx_rl_redis_tls_forget(conn);
    conn->session = session;

    return 1;
}


ngx_int_t
ngx_rl_redis_tls_prepare(ngx_conf_t *cf, ngx_rl_redis_t *redis)
{
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_redis_tls_t  *tls;

    tls = &redis->tls;

    if (!tls->on) {
        return NGX_OK;
    }

    if (ngx_ssl_create == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has \"tls on\", "
                           "expected an nginx built with "
                           "\"--with-http_ssl_module\"", &redis->name);
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

    if (ngx_rl_redis_tls_trust(cf, tls, ssl) != NGX_OK) {
        return NGX_ERROR;
    }

    if (tls->certificate.len
        && ngx_ssl_certificate(cf, ssl, &tls->certificate, &tls->key, NULL)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* a record that is out may be answered before the next one is: say so */

    SSL_CTX_set_mode(ssl->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE);

    SSL_CTX_set_verify(ssl->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_info_callback(ssl->ctx, ngx_rl_redis_tls_info);

    /* each connection keeps its own session, in its worker */

    SSL_CTX_set_session_cache_mode(ssl->ctx, SSL_SESS_CACHE_CLIENT
                                             |SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ssl->ctx, ngx_rl_redis_tls_session);

    return NGX_OK;
}


/*
 * Sets the name that the certificate must have: "tls_name", else the host. An
 * address has no SNI.
 */
static ngx_int_t
ngx_rl_redis_tls_name(ngx_rl_redis_conn_t *conn, SSL *ssl)
{
    char                name[NGX_RL_REDIS_MAX_HOST + 1];
    ngx_str_t          *host;
    X509_VERIFY_PARAM  *param;

    host = conn->net->redis->tls.name.len ? &conn->net->redis->tls.name
                                             : &conn->host.host;

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


static ngx_int_t
ngx_rl_redis_tls_open(ngx_rl_redis_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->connection;

    c->pool = ngx_create_pool(NGX_RL_REDIS_TLS_POOL, c->log);
    if (c->pool == NULL) {
        return NGX_ERROR;
    }

    if (ngx_ssl_create_connection(conn->net->redis->tls.ssl, c,
                                  NGX_SSL_CLIENT)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conn->session
        && SSL_set_session(c->ssl->connection, conn->session) != 1)
    {
        ERR_clear_error();
        ngx_rl_redis_tls_forget(conn);
    }

    return ngx_rl_redis_tls_name(conn, c->ssl->connection);
}


const char *
ngx_rl_redis_tls_reason(ngx_rl_redis_conn_t *conn, const char *otherwise)
{
    long               result;
    ngx_connection_t  *c;

    c = conn->connection;

    if (c->ssl == NULL) {
        return otherwise;
    }

    result = SSL_get_verify_result(c->ssl->connection);

    if (result == X509_V_OK && conn->alert == NULL) {
        return otherwise;
    }

    *ngx_snprintf(conn->tls_text, sizeof(conn->tls_text) - 1, "%s: %s",
                  result != X509_V_OK
                      ? "the server's certificate is not accepted"
                      : "the server ended TLS",
                  result != X509_V_OK
                      ? X509_verify_cert_error_string(result)
                      : conn->alert) = 0;

    return (char *) conn->tls_text;
}


static void
ngx_rl_redis_tls_handler(ngx_connection_t *c)
{
    ngx_rl_redis_conn_t  *conn;

    conn = c->data;

    if (!c->ssl->handshaked) {

        /* a session that the server does not like must not fail for ever */

        ngx_rl_redis_tls_forget(conn);
        ngx_rl_redis_conn_shook(conn,
            ngx_rl_redis_tls_reason(conn, "the TLS handshake failed"));
        return;
    }

    ngx_rl_redis_count(conn->net->redis->shared->handshakes);

    if (SSL_session_reused(c->ssl->connection)) {
        ngx_rl_redis_count(conn->net->redis->shared->resumed);
    }

    ngx_rl_redis_conn_shook(conn, NULL);
}


void
ngx_rl_redis_tls_begin(ngx_rl_redis_conn_t *conn)
{
    ngx_connection_t  *c;

    if (ngx_rl_redis_tls_open(conn) != NGX_OK) {
        ngx_rl_redis_conn_shook(conn, "no memory");
        return;
    }

    c = conn->connection;
    c->ssl->handler = ngx_rl_redis_tls_handler;

    if (ngx_ssl_handshake(c) != NGX_AGAIN) {
        ngx_rl_redis_tls_handler(c);
    }
}


/*
 * If the goodbye does not fit the socket, none is sent: waiting for it would
 * outlive the connection.
 */
void
ngx_rl_redis_tls_end(ngx_rl_redis_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->connection;

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

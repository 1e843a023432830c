/*
 * TLS to Redis. The server is always verified: its chain against the CAs, and
 * its name, both within the handshake, so that nothing, a password least of
 * all, is sent to any other.
 */

#include "ngx_rl_redis_conn.h"
#include "ngx_rl_redis_shared.h"

#include <openssl/x509v3.h>

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
    SSL_CTX  *ctx;

    if (ngx_rl_tls_prepare(cf, &redis->tls, "ratelimit_redis", &redis->name)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (redis->tls.on) {
        ctx = redis->tls.ssl->ctx;

        SSL_CTX_set_info_callback(ctx, ngx_rl_redis_tls_info);

        /* each connection keeps its own session, in its worker */

        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT
                                            |SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, ngx_rl_redis_tls_session);
    }

    return NGX_OK;
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

    c = conn->connection;

    if (ngx_rl_tls_open(&conn->net->redis->tls, c, &conn->host.host)
        != NGX_OK)
    {
        ngx_rl_redis_conn_shook(conn, "no memory");
        return;
    }

    if (conn->session
        && SSL_set_session(c->ssl->connection, conn->session) != 1)
    {
        ERR_clear_error();
        ngx_rl_redis_tls_forget(conn);
    }

    c->ssl->handler = ngx_rl_redis_tls_handler;

    if (ngx_ssl_handshake(c) != NGX_AGAIN) {
        ngx_rl_redis_tls_handler(c);
    }
}

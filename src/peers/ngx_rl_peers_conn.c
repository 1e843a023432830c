/*
 * Sockets between gateways. Anyone may connect: what has not proved to know the
 * secret has no memory but its place, and two seconds. Whoever comes when all
 * of these places are taken gets the oldest one's.
 */

#include "ngx_rl_peers.h"

#include <ngx_event_connect.h>

#include "ngx_rl_breaker.h"

#include <openssl/rand.h>

#define NGX_RL_PEERS_BACKLOG  64

static void ngx_rl_peer_read_handler(ngx_event_t *rev);
static void ngx_rl_peer_write_handler(ngx_event_t *wev);


void
ngx_rl_peer_close(ngx_rl_peer_t *peer, ngx_err_t err, const char *reason)
{
    ngx_rl_peers_t       *peers;
    ngx_rl_peers_dial_t  *dial;

    peers = peer->peers;
    dial = peer->dial;

    if (peer->state == NGX_RL_PEER_UP) {
        (void) atomic_fetch_sub(&peers->shared->connected, 1);

    } else if (dial == NULL && peer->state != NGX_RL_PEER_CONNECTING
               && peer->name != peers->shared->gateway)
    {
        (void) atomic_fetch_add(&peers->shared->refused, 1);
    }

    if (reason) {
        ngx_rl_peers_log(peers, peer->state == NGX_RL_PEER_UP
                                || dial ? NGX_RL_PEERS_LINE_BROKEN
                                        : NGX_RL_PEERS_LINE_REFUSED,
                         NGX_LOG_WARN, err, &peer->address, reason);
    }

    if (dial) {
        dial->failures = (peer->state == NGX_RL_PEER_UP)
                         ? 1 : dial->failures + 1;
        dial->next_ms = ngx_current_msec
                        + ngx_rl_backoff_pause_ms(dial->failures, 0,
                                                  (uint32_t) ngx_random());
    }

    if (peer->connection) {
        ngx_rl_tls_end(peer->connection);
        ngx_close_connection(peer->connection);
    }

    if (peer->in) {
        ngx_free(peer->in);
    }

    if (peer->out) {
        ngx_free(peer->out);
    }

    ngx_memzero(peer, sizeof(ngx_rl_peer_t));
}


/* A connection that takes its turn, with all it needs; NULL: none is free. */
static ngx_rl_peer_t *
ngx_rl_peer_new(ngx_rl_peers_t *peers, ngx_rl_peers_dial_t *dial)
{
    ngx_uint_t      i, strangers;
    ngx_rl_peer_t  *peer, *empty, *oldest;

    empty = NULL;
    oldest = NULL;
    strangers = 0;

    for (i = 0; i < NGX_RL_PEERS_CONNS; i++) {
        peer = &peers->net->conns[i];

        if (peer->state == NGX_RL_PEER_FREE) {
            empty = peer;

        } else if (peer->dial == NULL && peer->state != NGX_RL_PEER_UP) {
            strangers++;

            if (oldest == NULL || (ngx_msec_int_t) (peer->since_ms
                                                    - oldest->since_ms) < 0)
            {
                oldest = peer;
            }
        }
    }

    if (dial == NULL && strangers >= NGX_RL_PEERS_STRANGERS) {
        ngx_rl_peer_close(oldest, 0, NULL);
        empty = oldest;
    }

    if (empty == NULL) {
        return NULL;
    }

    empty->peers = peers;
    empty->dial = dial;
    empty->since_ms = ngx_current_msec;
    empty->heard_ms = ngx_current_msec;
    empty->spoke_ms = ngx_current_msec;
    empty->state = NGX_RL_PEER_CONNECTING;
    empty->address.data = empty->text;

    return empty;
}


static void
ngx_rl_peer_flush(ngx_rl_peer_t *peer)
{
    ssize_t            n;
    size_t             sent;
    ngx_connection_t  *c;

    c = peer->connection;
    sent = 0;

    while (sent < peer->queued) {
        n = c->send(c, peer->out + sent, peer->queued - sent);

        if (n == NGX_ERROR) {
            ngx_rl_peer_close(peer, c->ssl ? 0 : ngx_socket_errno,
                              "send() failed");
            return;
        }

        if (n == NGX_AGAIN) {
            break;
        }

        sent += n;
    }

    if (sent) {
        peer->queued -= sent;
        ngx_memmove(peer->out, peer->out + sent, peer->queued);
    }

    if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
        ngx_rl_peer_close(peer, 0, "no event");
    }
}


void
ngx_rl_peer_tell(ngx_rl_peer_t *peer, const u_char *message, size_t len)
{
    ngx_rl_peers_shared_t  *shared;

    shared = peer->peers->shared;

    if (len > NGX_RL_PEERS_OUT - peer->queued) {
        (void) atomic_fetch_add(&shared->dropped, 1);
        ngx_rl_peer_close(peer, 0, "it cannot keep up");
        return;
    }

    ngx_memcpy(peer->out + peer->queued, message, len);
    ngx_rl_told_age(peer->out + peer->queued,
                    ngx_current_msec - peer->peers->redis_ms);
    ngx_rl_told_seal(peer->out + peer->queued, len, peer->keys[1],
                     peer->numbers[1]++);
    peer->queued += len;
    peer->spoke_ms = ngx_current_msec;

    (void) atomic_fetch_add(&shared->messages[1], 1);
    (void) atomic_fetch_add(&shared->bytes[1], len);

    if (peer->connection->write->ready) {
        ngx_rl_peer_flush(peer);
    }
}


/* So few bytes of a fresh connection: they fit, or it is of no use. */
static ngx_int_t
ngx_rl_peer_say(ngx_rl_peer_t *peer, u_char *data, size_t len)
{
    ngx_connection_t  *c;

    c = peer->connection;

    if (c->send(c, data, len) == (ssize_t) len) {
        return NGX_OK;
    }

    ngx_rl_peer_close(peer, 0, "send() failed");

    return NGX_ERROR;
}


static ngx_int_t
ngx_rl_peer_say_proof(ngx_rl_peer_t *peer, unsigned purpose)
{
    u_char  proof[NGX_RL_TOLD_PROOF];

    ngx_rl_told_prove(proof, peer->peers->key, purpose, peer->hellos[0],
                      peer->hellos[1]);

    return ngx_rl_peer_say(peer, proof, NGX_RL_TOLD_PROOF);
}


/* The place of that name among the live ones, or one that is not in use. */
static ngx_uint_t
ngx_rl_peer_place(ngx_rl_peers_shared_t *shared, uint64_t name)
{
    uint64_t    found, heard_ms;
    ngx_uint_t  i, place;

    place = 0;

    for (i = NGX_RL_PEERS_MOST; i; i--) {
        found = atomic_load(&shared->live[i - 1].name);
        heard_ms = atomic_load(&shared->live[i - 1].heard_ms);

        if (found == name) {
            return i - 1;
        }

        if (found == 0 || ngx_current_msec - heard_ms > NGX_RL_PEERS_LIVE_MS) {
            place = i - 1;
        }
    }

    return place;
}


static void
ngx_rl_peer_heard(ngx_rl_peer_t *peer)
{
    peer->heard_ms = ngx_current_msec;
    atomic_store(&peer->peers->shared->live[peer->live].heard_ms,
                 ngx_current_msec);
}


/* The other connection to the same gateway that is up; or NULL. */
static ngx_rl_peer_t *
ngx_rl_peer_other(const ngx_rl_peer_t *peer)
{
    ngx_uint_t      i;
    ngx_rl_peer_t  *other;

    for (i = 0; i < NGX_RL_PEERS_CONNS; i++) {
        other = &peer->peers->net->conns[i];

        if (other != peer && other->state == NGX_RL_PEER_UP
            && other->name == peer->name)
        {
            return other;
        }
    }

    return NULL;
}


/* Both have proved. */
static void
ngx_rl_peer_up(ngx_rl_peer_t *peer)
{
    uint64_t         own;
    ngx_rl_peer_t   *other;
    ngx_rl_peers_t  *peers;

    peers = peer->peers;
    own = peers->shared->gateway;
    other = ngx_rl_peer_other(peer);
    peer->state = NGX_RL_PEER_CONNECTING;

    /* that of the gateway with the lower name stays, else the new one */

    if (other && (other->dial ? own : other->name)
                 < (peer->dial ? own : peer->name))
    {
        ngx_rl_peer_close(peer, 0, NULL);
        return;
    }

    if (other) {
        ngx_rl_peer_close(other, 0, NULL);
    }

    peer->in = ngx_alloc(NGX_RL_TOLD_MOST, peers->net->log);
    peer->out = ngx_alloc(NGX_RL_PEERS_OUT, peers->net->log);

    if (peer->in == NULL || peer->out == NULL) {
        ngx_rl_peer_close(peer, 0, "no memory");
        return;
    }

    ngx_rl_told_prove(peer->keys[peer->dial != NULL], peers->key,
                      NGX_RL_TOLD_KEY_FIRST, peer->hellos[0], peer->hellos[1]);
    ngx_rl_told_prove(peer->keys[peer->dial == NULL], peers->key,
                      NGX_RL_TOLD_KEY_SECOND, peer->hellos[0],
                      peer->hellos[1]);

    peer->state = NGX_RL_PEER_UP;
    peer->got = 0;
    peer->telling = 1;
    peer->live = ngx_rl_peer_place(peers->shared, peer->name);

    atomic_store(&peers->shared->live[peer->live].name, peer->name);
    (void) atomic_fetch_add(&peers->shared->connected, 1);
    ngx_rl_peer_heard(peer);

    if (peer->dial) {
        peer->dial->failures = 0;
    }

    ngx_rl_peers_log(peers, NGX_RL_PEERS_LINE_UP, NGX_LOG_NOTICE, 0,
                     &peer->address, "it is connected");
}


/*
 * The other side's hello. The side that has connected proves first: a stranger
 * that connects gets no hash of the secret, on which it could try guesses.
 */
static void
ngx_rl_peer_hello(ngx_rl_peer_t *peer)
{
    ngx_memcpy(peer->hellos[peer->dial != NULL], peer->small,
               NGX_RL_TOLD_HELLO);
    peer->name = ngx_rl_told_hello_name(peer->small);

    if (peer->name == 0) {
        ngx_rl_peer_close(peer, 0, "it is no peer of this version");
        return;
    }

    peer->state = NGX_RL_PEER_PROOF;
    peer->got = 0;

    if (peer->dial) {
        (void) ngx_rl_peer_say_proof(peer, NGX_RL_TOLD_PROOF_FIRST);

    } else {
        (void) ngx_rl_peer_say(peer, peer->hellos[1], NGX_RL_TOLD_HELLO);
    }
}


/* A gateway that meets itself answers, and so finds out where it connected. */
static void
ngx_rl_peer_proof(ngx_rl_peer_t *peer)
{
    u_char  proof[NGX_RL_TOLD_PROOF];

    ngx_rl_told_prove(proof, peer->peers->key,
                      peer->dial ? NGX_RL_TOLD_PROOF_SECOND
                                 : NGX_RL_TOLD_PROOF_FIRST,
                      peer->hellos[0], peer->hellos[1]);

    if (!ngx_rl_told_equal(proof, peer->small)) {
        ngx_rl_peer_close(peer, 0, "it has another secret");
        return;
    }

    if (peer->dial) {
        peer->dial->name = peer->name;

    } else if (ngx_rl_peer_say_proof(peer, NGX_RL_TOLD_PROOF_SECOND)
               != NGX_OK)
    {
        return;
    }

    if (peer->name == peer->peers->shared->gateway) {
        ngx_rl_peer_close(peer, 0, NULL);
        return;
    }

    ngx_rl_peer_up(peer);
}


/* All messages that are there. Returns NGX_OK, or NGX_ERROR: it is closed. */
static ngx_int_t
ngx_rl_peer_messages(ngx_rl_peer_t *peer)
{
    int                    rc;
    u_char                *p;
    ssize_t                len;
    ngx_rl_peers_t        *peers;
    ngx_rl_told_t          told;
    ngx_rl_told_record_t   record;
    ngx_rl_told_reader_t   reader;

    peers = peer->peers;

    for (p = peer->in; /* void */ ; p += len) {
        len = ngx_rl_told_length(p, peer->in + peer->got - p);

        if (len == 0 || len > peer->in + peer->got - p) {
            break;
        }

        if (len < 0 || ngx_rl_told_open(&reader, p, len, peer->keys[0],
                                        peer->numbers[0]++)
                       != 0)
        {
            ngx_rl_peer_close(peer, 0, "a message is damaged");
            return NGX_ERROR;
        }

        if (reader.kind > NGX_RL_TOLD_STATE) {
            rc = ngx_rl_told_record_read(&reader, &record);

            if (rc == 0) {
                peers->above->record(peers, peer->name,
                                     (ngx_rl_told_e) reader.kind, &record);
            }

            /* it may have closed the connection with its answer */

            if (peer->state != NGX_RL_PEER_UP) {
                return NGX_ERROR;
            }

        } else {
            while ((rc = ngx_rl_told_next(&reader, &told)) == 1) {
                peers->above->told(peers, peer->name,
                                   (ngx_rl_told_e) reader.kind, &told);
            }
        }

        if (rc != 0) {
            ngx_rl_peer_close(peer, 0, "a message has no sense");
            return NGX_ERROR;
        }

        atomic_store(&peers->shared->live[peer->live].redis_ms,
                     ngx_current_msec - ngx_min(reader.age_ms,
                                                ngx_current_msec));
        (void) atomic_fetch_add(&peers->shared->messages[0], 1);
        (void) atomic_fetch_add(&peers->shared->bytes[0], len);
        ngx_rl_peer_heard(peer);
    }

    peer->got -= p - peer->in;
    ngx_memmove(peer->in, p, peer->got);

    return NGX_OK;
}


/* What is read next: a part of the handshake, or messages. */
static void
ngx_rl_peer_read_handler(ngx_event_t *rev)
{
    u_char               *buf;
    size_t                size;
    ssize_t               n;
    ngx_rl_peer_t        *peer;
    ngx_connection_t     *c;
    ngx_rl_peer_state_e   state;

    c = rev->data;
    peer = c->data;

    do {
        state = peer->state;

        buf = (state == NGX_RL_PEER_UP) ? peer->in : peer->small;
        size = (state == NGX_RL_PEER_UP) ? NGX_RL_TOLD_MOST
               : (state == NGX_RL_PEER_PROOF) ? NGX_RL_TOLD_PROOF
               : NGX_RL_TOLD_HELLO;

        n = c->recv(c, buf + peer->got, size - peer->got);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_rl_peer_close(peer, n == 0 || c->ssl ? 0 : ngx_socket_errno,
                              (state == NGX_RL_PEER_UP || peer->dial)
                              && ngx_rl_peer_other(peer) == NULL
                              ? state == NGX_RL_PEER_PROOF
                                ? "it did not accept the secret"
                                : "the connection has ended" : NULL);
            return;
        }

        peer->got += n;

        if (state == NGX_RL_PEER_UP) {
            if (ngx_rl_peer_messages(peer) != NGX_OK) {
                return;
            }

        } else if (peer->got == size) {
            if (state == NGX_RL_PEER_HELLO) {
                ngx_rl_peer_hello(peer);

            } else {
                ngx_rl_peer_proof(peer);
            }

            if (peer->state == NGX_RL_PEER_FREE) {
                return;
            }
        }

    } while (1);

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_rl_peer_close(peer, 0, "no event");
    }
}


/* Its socket can carry bytes: TLS, if any, is complete. */
static void
ngx_rl_peer_begin(ngx_rl_peer_t *peer)
{
    u_char             nonce[NGX_RL_TOLD_NONCE], *hello;
    ngx_connection_t  *c;

    c = peer->connection;
    c->read->handler = ngx_rl_peer_read_handler;
    c->write->handler = ngx_rl_peer_write_handler;

    if (RAND_bytes(nonce, sizeof(nonce)) != 1) {
        ngx_rl_peer_close(peer, 0, "RAND_bytes() failed");
        return;
    }

    hello = peer->hellos[peer->dial == NULL];
    ngx_rl_told_hello(hello, peer->peers->shared->gateway, nonce);

    peer->state = NGX_RL_PEER_HELLO;

    if (peer->dial
        && ngx_rl_peer_say(peer, hello, NGX_RL_TOLD_HELLO) != NGX_OK)
    {
        return;
    }

    /* some bytes may be there already */

    ngx_post_event(c->read, &ngx_posted_events);
}


static void
ngx_rl_peer_tls_handler(ngx_connection_t *c)
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


static void
ngx_rl_peer_connected(ngx_rl_peer_t *peer)
{
    ngx_connection_t  *c;

    if (!peer->peers->tls.on) {
        ngx_rl_peer_begin(peer);
        return;
    }

    c = peer->connection;
    peer->state = NGX_RL_PEER_TLS;

    if (ngx_rl_tls_open(&peer->peers->tls, c,
                        peer->dial ? &peer->dial->host->host : NULL)
        != NGX_OK)
    {
        ngx_rl_peer_close(peer, 0, "no memory");
        return;
    }

    c->ssl->handler = ngx_rl_peer_tls_handler;

    if (ngx_ssl_handshake(c) != NGX_AGAIN) {
        ngx_rl_peer_tls_handler(c);
    }
}


static void
ngx_rl_peer_write_handler(ngx_event_t *wev)
{
    int                err;
    socklen_t          len;
    ngx_rl_peer_t     *peer;
    ngx_connection_t  *c;

    c = wev->data;
    peer = c->data;

    if (peer->state == NGX_RL_PEER_UP) {
        ngx_rl_peer_flush(peer);
        return;
    }

    if (peer->state != NGX_RL_PEER_CONNECTING) {
        return;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_rl_peer_close(peer, err, "connect() failed");
        return;
    }

    ngx_rl_peer_connected(peer);
}


/* While it connects: an error comes as either event. */
static void
ngx_rl_peer_connecting_handler(ngx_event_t *rev)
{
    ngx_connection_t  *c;

    c = rev->data;

    ngx_rl_peer_write_handler(c->write);
}


void
ngx_rl_peers_connect(ngx_rl_peers_t *peers, ngx_rl_peers_dial_t *dial)
{
    ngx_int_t               rc;
    ngx_rl_peer_t          *peer;
    ngx_connection_t       *c;
    ngx_peer_connection_t   pc;

    peer = ngx_rl_peer_new(peers, dial);
    if (peer == NULL) {
        return;
    }

    peer->address.len = ngx_sock_ntop(&dial->sockaddr.sockaddr, dial->socklen,
                                      peer->text, sizeof(peer->text), 1);

    ngx_memzero(&pc, sizeof(ngx_peer_connection_t));

    pc.sockaddr = &dial->sockaddr.sockaddr;
    pc.socklen = dial->socklen;
    pc.name = &peer->address;
    pc.get = ngx_event_get_peer;
    pc.log = &peers->net->muted;
    pc.log_error = NGX_ERROR_IGNORE_ECONNRESET;
    pc.so_keepalive = 1;

    rc = ngx_event_connect_peer(&pc);

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        peer->connection = pc.connection;
        ngx_rl_peer_close(peer, 0, "connect() failed");
        return;
    }

    c = pc.connection;
    c->data = peer;
    c->pool = NULL;
    c->addr_text = peer->address;
    peer->connection = c;

    c->read->handler = ngx_rl_peer_connecting_handler;
    c->write->handler = ngx_rl_peer_write_handler;

    if (rc == NGX_OK) {
        ngx_rl_peer_write_handler(c->write);
    }
}


static void
ngx_rl_peers_accept_one(ngx_rl_peers_t *peers, ngx_socket_t fd,
    ngx_sockaddr_t *sockaddr, socklen_t socklen)
{
    ngx_rl_peer_t     *peer;
    ngx_connection_t  *c;

    peer = ngx_rl_peer_new(peers, NULL);
    c = peer ? ngx_get_connection(fd, peers->net->log) : NULL;

    if (c == NULL) {
        if (peer) {
            ngx_memzero(peer, sizeof(ngx_rl_peer_t));
        }

        (void) ngx_close_socket(fd);
        return;
    }

    peer->address.len = ngx_sock_ntop(&sockaddr->sockaddr, socklen, peer->text,
                                      sizeof(peer->text), 1);
    peer->connection = c;

    c->data = peer;
    c->recv = ngx_recv;
    c->send = ngx_send;
    c->recv_chain = ngx_recv_chain;
    c->send_chain = ngx_send_chain;
    c->log = &peers->net->muted;
    c->read->log = c->log;
    c->write->log = c->log;
    c->write->ready = 1;
    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);
    c->addr_text = peer->address;

    ngx_rl_peer_connected(peer);
}


static void
ngx_rl_peers_accept_handler(ngx_event_t *ev)
{
    ngx_err_t          err;
    ngx_uint_t         i;
    socklen_t          socklen;
    ngx_socket_t       fd;
    ngx_sockaddr_t     sockaddr;
    ngx_rl_peers_t    *peers;
    ngx_connection_t  *c;

    c = ev->data;
    peers = c->data;

    for (i = 0; i < NGX_RL_PEERS_BACKLOG; i++) {
        socklen = sizeof(ngx_sockaddr_t);

        fd = accept4(c->fd, &sockaddr.sockaddr, &socklen,
                     SOCK_NONBLOCK|SOCK_CLOEXEC);

        if (fd == (ngx_socket_t) -1) {
            err = ngx_socket_errno;

            /* no descriptor is left: it listens again a little later */

            if (err == NGX_EMFILE || err == NGX_ENFILE) {
                peers->net->listening = NULL;
                peers->net->listen_ms = ngx_current_msec
                                        + NGX_RL_PEERS_LISTEN_MS;
                ngx_close_connection(c);
            }

            return;
        }

        ngx_rl_peers_accept_one(peers, fd, &sockaddr, socklen);
    }
}


ngx_int_t
ngx_rl_peers_listen(ngx_rl_peers_t *peers)
{
    int                on;
    ngx_err_t          err;
    ngx_socket_t       fd;
    ngx_connection_t  *c;

    on = 1;

    fd = socket(peers->listen.sockaddr->sa_family,
                SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);

    if (fd == (ngx_socket_t) -1) {
        err = ngx_socket_errno;

    } else if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0
               && bind(fd, peers->listen.sockaddr, peers->listen.socklen) == 0
               && listen(fd, NGX_RL_PEERS_BACKLOG) == 0)
    {
        c = ngx_get_connection(fd, peers->net->log);
        err = 0;

        if (c) {
            c->data = peers;
            c->log = peers->net->log;
            c->read->log = c->log;
            c->read->handler = ngx_rl_peers_accept_handler;

            /* an exit does not take it for a request's */
            c->read->accept = 1;

            if (ngx_add_event(c->read, NGX_READ_EVENT, 0) == NGX_OK) {
                peers->net->listening = c;
                return NGX_OK;
            }

            ngx_close_connection(c);
            fd = (ngx_socket_t) -1;
        }

    } else {
        err = ngx_socket_errno;
    }

    ngx_rl_peers_log(peers, NGX_RL_PEERS_LINE_LISTEN, NGX_LOG_ERR, err,
                     &peers->listen.name, "cannot listen");

    if (fd != (ngx_socket_t) -1) {
        (void) ngx_close_socket(fd);
    }

    return NGX_ERROR;
}

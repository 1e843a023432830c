/*
 * What the leader does each tick, and what all workers read: who lives.
 */

#include "ngx_rl_peers.h"

#include <openssl/hmac.h>

/* names are asked again after so long */
#define NGX_RL_PEERS_RESOLVE_MS  10000

/* a gateway that is gone is tried again each second */
#define NGX_RL_PEERS_LOG_MS      10000

/* with nothing to tell: so that it is heard */
#define NGX_RL_PEERS_BEAT_MS     1000

/* each gateway asks Redis once a second */
#define NGX_RL_PEERS_REDIS_MS    2000


ngx_int_t
ngx_rl_peers_prepare(ngx_rl_peers_t *peers)
{
    u_char        digest[EVP_MAX_MD_SIZE];
    unsigned int  len;

    static u_char  label[] = "ratelimit peers";

    if (HMAC(EVP_sha256(), peers->secret.data, (int) peers->secret.len, label,
             sizeof(label) - 1, digest, &len)
        == NULL)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(peers->key, digest, sizeof(peers->key));
    ngx_memcpy(peers->ids, digest + sizeof(peers->key), sizeof(peers->ids));
    ngx_explicit_memzero(digest, sizeof(digest));

    return NGX_OK;
}


void
ngx_rl_peers_log(ngx_rl_peers_t *peers, ngx_rl_peers_line_e line,
    ngx_uint_t level, ngx_err_t err, const ngx_str_t *address,
    const char *what)
{
    char  note[NGX_RL_LOG_NOTE];

    if (ngx_rl_log_due(&peers->shared->lines[line], ngx_current_msec,
                       NGX_RL_PEERS_LOG_MS, note))
    {
        ngx_log_error(level, peers->net->log, err,
                      "ratelimit peers \"%V\", \"%V\": %s%s", &peers->name,
                      address, what, note);
    }
}


/* An address of a host: a new one, or one that is known. */
static void
ngx_rl_peers_address(ngx_rl_peers_t *peers, const ngx_rl_peers_host_t *host,
    struct sockaddr *sockaddr, socklen_t socklen)
{
    ngx_uint_t            i;
    ngx_rl_peers_net_t   *net;
    ngx_rl_peers_dial_t  *dial, *empty;

    net = peers->net;
    empty = NULL;

    for (i = 0; i < NGX_RL_PEERS_MOST; i++) {
        dial = &net->dials[i];

        if (dial->host == NULL) {
            empty = empty ? empty : dial;

        } else if (ngx_cmp_sockaddr(&dial->sockaddr.sockaddr, dial->socklen,
                                    sockaddr, socklen, 1)
                   == NGX_OK)
        {
            dial->stale = 0;
            return;
        }
    }

    if (empty == NULL || socklen > (socklen_t) sizeof(ngx_sockaddr_t)) {
        ngx_rl_peers_log(peers, NGX_RL_PEERS_LINE_NAME, NGX_LOG_WARN, 0,
                         &host->host, "more than 64 addresses of peers");
        return;
    }

    ngx_memzero(empty, sizeof(ngx_rl_peers_dial_t));
    ngx_memcpy(&empty->sockaddr, sockaddr, socklen);
    empty->socklen = socklen;
    empty->host = host;
    empty->next_ms = ngx_current_msec;
}


static void
ngx_rl_peers_resolved(ngx_resolver_ctx_t *query)
{
    ngx_uint_t                  i, n;
    ngx_rl_peers_t             *peers;
    ngx_rl_peers_dial_t        *dial;
    ngx_rl_peers_host_t        *host;
    struct sockaddr            *sockaddr;

    peers = query->data;
    host = peers->hosts.elts;

    for (n = 0; peers->net->queries[n] != query; n++) {
        /* void */
    }

    peers->net->queries[n] = NULL;
    host += n;

    /* a name server that fails takes no address away, "no such name" does */

    if (query->state == NGX_OK || query->state == NGX_RESOLVE_NXDOMAIN) {

        for (i = 0; i < NGX_RL_PEERS_MOST; i++) {
            dial = &peers->net->dials[i];
            dial->stale = (dial->host == host);
        }

        for (i = 0; query->state == NGX_OK && i < query->naddrs; i++) {
            sockaddr = query->addrs[i].sockaddr;
            ngx_inet_set_port(sockaddr, host->port);
            ngx_rl_peers_address(peers, host, sockaddr,
                                 query->addrs[i].socklen);
        }

        for (i = 0; i < NGX_RL_PEERS_MOST; i++) {
            dial = &peers->net->dials[i];

            if (dial->stale) {
                for (n = 0; n < NGX_RL_PEERS_CONNS; n++) {
                    if (peers->net->conns[n].dial == dial) {
                        ngx_rl_peer_close(&peers->net->conns[n], 0,
                                          "the name has it no more");
                    }
                }

                ngx_memzero(dial, sizeof(ngx_rl_peers_dial_t));
            }
        }

    } else {
        ngx_rl_peers_log(peers, NGX_RL_PEERS_LINE_NAME, NGX_LOG_WARN, 0,
                         &host->host, ngx_resolver_strerror(query->state));
    }

    ngx_resolve_name_done(query);
}


static void
ngx_rl_peers_resolve(ngx_rl_peers_t *peers)
{
    ngx_uint_t            i;
    ngx_resolver_ctx_t   *query;
    ngx_rl_peers_host_t  *host;

    host = peers->hosts.elts;

    for (i = 0; i < peers->hosts.nelts && i < NGX_RL_PEERS_MOST; i++) {

        if (host[i].naddrs || peers->net->queries[i]) {
            continue;
        }

        query = ngx_resolve_start(peers->resolver, NULL);

        if (query == NULL || query == NGX_NO_RESOLVER) {
            continue;
        }

        query->name = host[i].host;
        query->handler = ngx_rl_peers_resolved;
        query->data = peers;
        query->timeout = peers->resolver_timeout;
        peers->net->queries[i] = query;

        if (ngx_resolve_name(query) != NGX_OK) {
            /* it is freed already */
            peers->net->queries[i] = NULL;
        }
    }
}


ngx_int_t
ngx_rl_peers_lead(ngx_rl_peers_t *peers, ngx_log_t *log)
{
    ngx_uint_t            i, n;
    ngx_rl_peers_host_t  *host;

    peers->net = ngx_alloc(sizeof(ngx_rl_peers_net_t), log);
    if (peers->net == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(peers->net, offsetof(ngx_rl_peers_net_t, message));

    peers->net->log = log;
    peers->net->muted = *log;
    peers->net->muted.log_level = NGX_LOG_ALERT;
    peers->net->listen_ms = ngx_current_msec;
    peers->net->resolve_ms = ngx_current_msec;
    atomic_store(&peers->shared->connected, 0);

    host = peers->hosts.elts;

    for (i = 0; i < peers->hosts.nelts; i++) {
        for (n = 0; n < host[i].naddrs; n++) {
            ngx_rl_peers_address(peers, &host[i], host[i].addrs[n].sockaddr,
                                 host[i].addrs[n].socklen);
        }
    }

    return NGX_OK;
}


void
ngx_rl_peers_leave(ngx_rl_peers_t *peers)
{
    ngx_uint_t           i;
    ngx_rl_peers_net_t  *net;

    net = peers->net;

    for (i = 0; i < NGX_RL_PEERS_CONNS; i++) {
        if (net->conns[i].state != NGX_RL_PEER_FREE) {
            ngx_rl_peer_close(&net->conns[i], 0, NULL);
        }
    }

    for (i = 0; i < NGX_RL_PEERS_MOST; i++) {
        if (net->queries[i]) {
            ngx_resolve_name_done(net->queries[i]);
        }
    }

    if (net->listening) {
        ngx_close_connection(net->listening);
    }

    ngx_free(net);
    peers->net = NULL;
}


/* Whether the gateway at an address is known, and needs no connection. */
static ngx_uint_t
ngx_rl_peers_connected(ngx_rl_peers_t *peers, const ngx_rl_peers_dial_t *dial)
{
    ngx_uint_t            i;
    const ngx_rl_peer_t  *peer;

    if (dial->name == peers->shared->gateway) {
        return 1;
    }

    for (i = 0; i < NGX_RL_PEERS_CONNS; i++) {
        peer = &peers->net->conns[i];

        if (peer->dial == dial
            || (peer->state == NGX_RL_PEER_UP && peer->name == dial->name))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * The state, as long as the buffer has room for a message of it and for what is
 * spent meanwhile. All that was spent before is sent, so nothing counts twice.
 */
static void
ngx_rl_peers_state(ngx_rl_peer_t *peer)
{
    size_t                 len;
    ngx_rl_peers_t        *peers;
    ngx_rl_told_writer_t   writer;

    peers = peer->peers;

    while (peer->telling && peer->queued < NGX_RL_PEERS_OUT / 2) {
        ngx_rl_told_begin(&writer, peers->net->message, NGX_RL_TOLD_MOST,
                          NGX_RL_TOLD_STATE);

        peer->telling = (peers->above->state(peers, &peer->state_at, &writer)
                         != NGX_DONE);

        len = ngx_rl_told_end(&writer);
        ngx_rl_peer_tell(peer, peers->net->message, len);
    }
}


static void
ngx_rl_peers_watch(ngx_rl_peer_t *peer)
{
    size_t                 len;
    ngx_rl_peers_t        *peers;
    ngx_rl_told_writer_t   writer;

    peers = peer->peers;

    if (peer->state != NGX_RL_PEER_UP) {

        if (ngx_current_msec - peer->since_ms >= NGX_RL_PEERS_SHAKE_MS) {
            ngx_rl_peer_close(peer, NGX_ETIMEDOUT, "no handshake in time");
        }

        return;
    }

    if (ngx_current_msec - peer->heard_ms >= NGX_RL_PEERS_LIVE_MS) {
        ngx_rl_peer_close(peer, NGX_ETIMEDOUT, "not heard for 3 s");
        return;
    }

    /* counters are many: one peer a tick, the others have a sign of life */

    if (peer->telling && peer->queued < NGX_RL_PEERS_OUT / 2
        && !peers->net->told_state)
    {
        peers->net->told_state = 1;
        ngx_rl_peers_state(peer);

    } else if (ngx_current_msec - peer->spoke_ms >= NGX_RL_PEERS_BEAT_MS) {
        ngx_rl_told_begin(&writer, peers->net->message, NGX_RL_TOLD_MOST,
                          NGX_RL_TOLD_SPENT);
        len = ngx_rl_told_end(&writer);
        ngx_rl_peer_tell(peer, peers->net->message, len);
    }
}


void
ngx_rl_peers_tick(ngx_rl_peers_t *peers)
{
    ngx_uint_t            i, n;
    ngx_rl_peers_net_t   *net;
    ngx_rl_peers_dial_t  *dial;

    net = peers->net;

    if (net->listening == NULL && ngx_rl_peers_due(net->listen_ms)) {
        net->listen_ms = ngx_current_msec + NGX_RL_PEERS_LISTEN_MS;
        (void) ngx_rl_peers_listen(peers);
    }

    if (peers->resolver && ngx_rl_peers_due(net->resolve_ms)) {
        net->resolve_ms = ngx_current_msec + NGX_RL_PEERS_RESOLVE_MS;
        ngx_rl_peers_resolve(peers);
    }

    net->told_state = 0;

    for (i = 0; i < NGX_RL_PEERS_CONNS; i++) {
        if (net->conns[i].state != NGX_RL_PEER_FREE) {
            ngx_rl_peers_watch(&net->conns[i]);
        }
    }

    for (i = 0; i < NGX_RL_PEERS_MOST; i++) {
        dial = &net->dials[i];

        if (dial->host && ngx_rl_peers_due(dial->next_ms)
            && !ngx_rl_peers_connected(peers, dial))
        {
            ngx_rl_peers_connect(peers, dial);
        }
    }

    /* both have asked Redis in these two seconds, and it answered one */

    n = ngx_rl_peers_gateways(peers->shared);
    atomic_store(&peers->shared->gateways, n);
    n -= ngx_rl_peers_with_redis(peers->shared,
                                 peers->redis_ms + NGX_RL_PEERS_REDIS_MS);
    atomic_store(&peers->shared->alone, n);
}


void
ngx_rl_peers_send(ngx_rl_peers_t *peers, uint64_t name, u_char *message,
    size_t len)
{
    ngx_uint_t      i;
    ngx_rl_peer_t  *peer;

    for (i = 0; i < NGX_RL_PEERS_CONNS; i++) {
        peer = &peers->net->conns[i];

        if (peer->state == NGX_RL_PEER_UP
            && (name == 0 || (peer->name == name
                              && peer->queued < NGX_RL_PEERS_OUT / 2)))
        {
            ngx_rl_peer_tell(peer, message, len);
        }
    }
}

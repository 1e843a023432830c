/*
 * The gateways of a "ratelimit_peers" block: one worker of each, the leader,
 * has a connection to every other gateway, and tells them all messages that the
 * layer above makes (ngx_rl_told.h).
 *
 *     ngx_rl_peers.c        the block, who lives, what is sent, names
 *     ngx_rl_peers_conn.c   sockets: the handshake, reads and writes
 *     ngx_rl_peers_tls.c    TLS below that
 *
 * Each gateway connects to each address of its "peer" lines but its own. Of two
 * connections between the same two gateways, the one stays that the gateway
 * with the lower name began. A name is a random number, made with the shared
 * memory.
 */

#ifndef NGX_RL_PEERS_H_INCLUDED
#define NGX_RL_PEERS_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_rl_tally.h"
#include "ngx_rl_tls.h"
#include "ngx_rl_told.h"

#include <stdatomic.h>

#define NGX_RL_PEERS_MOST       64      /* other gateways */
#define NGX_RL_PEERS_LIVE_MS    3000    /* without a word: a peer is gone */

typedef struct ngx_rl_peers_s      ngx_rl_peers_t;
typedef struct ngx_rl_peers_net_s  ngx_rl_peers_net_t;

/* lines of the log, limited apart from each other */
typedef enum {
    NGX_RL_PEERS_LINE_UP = 0,
    NGX_RL_PEERS_LINE_BROKEN,
    NGX_RL_PEERS_LINE_REFUSED,
    NGX_RL_PEERS_LINE_LISTEN,
    NGX_RL_PEERS_LINE_NAME,
    NGX_RL_PEERS_LINES
} ngx_rl_peers_line_e;

/* In memory that the workers of a gateway share. Only the leader writes. */
typedef struct {
    uint64_t            gateway;        /* its name; not 0 */

    struct {
        _Atomic uint64_t  name;         /* of a peer; 0: none */
        _Atomic uint64_t  heard_ms;
        _Atomic uint64_t  redis_ms;     /* Redis has answered it; 0: never */
    } live[NGX_RL_PEERS_MOST];

    _Atomic uint64_t    gateways;       /* by the last tick: that live, and */
    _Atomic uint64_t    alone;          /* those of them without Redis; both
                                           with this one; 0: not known yet */
    _Atomic uint64_t    connected;
    _Atomic uint64_t    messages[2];    /* in, out */
    _Atomic uint64_t    bytes[2];
    _Atomic uint64_t    refused;        /* connections without the secret */
    _Atomic uint64_t    dropped;        /* peers that could not keep up */
    _Atomic uint64_t    replaced;       /* versions of a document, by peers that
                                           did not know them */
    ngx_rl_log_limit_t  lines[NGX_RL_PEERS_LINES];
} ngx_rl_peers_shared_t;

/* A "peer" line. */
typedef struct {
    ngx_str_t           text;           /* as written */
    ngx_str_t           host;           /* without its port and brackets */
    in_port_t           port;
    ngx_uint_t          naddrs;
    ngx_addr_t         *addrs;          /* known when the configuration is
                                           read; none: the resolver is asked */
} ngx_rl_peers_host_t;

/* Functions of the layer above, for the leader. */
typedef struct {

    /* A peer has told of a counter. */
    void  (*told)(ngx_rl_peers_t *peers, uint64_t peer, ngx_rl_told_e kind,
                  const ngx_rl_told_t *told);

    /* Or of a document. It may answer. */
    void  (*record)(ngx_rl_peers_t *peers, uint64_t peer, ngx_rl_told_e kind,
                    const ngx_rl_told_record_t *record);

    /*
     * Writes the counters in use from *at on, which is 0 at first, until the
     * message is full. NGX_DONE: these were the last.
     */
    ngx_int_t  (*state)(ngx_rl_peers_t *peers, ngx_uint_t *at,
                        ngx_rl_told_writer_t *writer);
} ngx_rl_peers_above_t;

struct ngx_rl_peers_s {
    ngx_str_t                     name;
    ngx_addr_t                    listen;
    ngx_array_t                   hosts;     /* ngx_rl_peers_host_t */
    ngx_str_t                     secret;
    ngx_rl_tls_t                  tls;
    ngx_resolver_t               *resolver;  /* NULL: none */
    ngx_msec_t                    resolver_timeout;
    u_char                        key[NGX_RL_TOLD_SECRET];
    u_char                        ids[NGX_RL_SIPHASH_KEY_BYTES];
                                             /* of counters; by prepare */

    ngx_rl_peers_shared_t        *shared;    /* set before workers start */
    const ngx_rl_peers_above_t   *above;
    void                         *data;      /* the layer above's */
    uint64_t                      redis_ms;  /* Redis has answered this
                                                gateway; 0: never */
    ngx_rl_peers_net_t           *net;       /* of the leader; else NULL */
};


/*
 * Derives the keys of a block from its secret. Returns NGX_OK, or NGX_ERROR:
 * OpenSSL has no memory, or no SHA-256.
 */
ngx_int_t ngx_rl_peers_prepare(ngx_rl_peers_t *peers);

/*
 * This worker becomes the leader: it listens and connects from the next tick
 * on. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_peers_lead(ngx_rl_peers_t *peers, ngx_log_t *log);

/* It is the leader no more, and closes all. */
void ngx_rl_peers_leave(ngx_rl_peers_t *peers);

/*
 * About ten times a second, in the leader, when all that was spent is sent:
 * listens and connects where it does not, tells new peers the state, and ends
 * peers that were not heard.
 */
void ngx_rl_peers_tick(ngx_rl_peers_t *peers);

/*
 * Sends a message that is ended to all connected peers. A peer whose buffer is
 * full is dropped, and begins anew with the state. Or, if name is not 0, to the
 * peer of that name alone: if its buffer is half full, the message is left out.
 */
void ngx_rl_peers_send(ngx_rl_peers_t *peers, uint64_t name, u_char *message,
    size_t len);

/* The next peer that lives, from *at on, which is 0 at first; 0: no more. */
static ngx_inline uint64_t
ngx_rl_peers_next(ngx_rl_peers_shared_t *shared, ngx_uint_t *at)
{
    uint64_t  name, heard_ms;

    while (*at < NGX_RL_PEERS_MOST) {
        name = atomic_load(&shared->live[*at].name);
        heard_ms = atomic_load(&shared->live[(*at)++].heard_ms);

        /* another worker's clock may be ahead */

        if (name && (int64_t) (ngx_current_msec - heard_ms)
                    < NGX_RL_PEERS_LIVE_MS)
        {
            return name;
        }
    }

    return 0;
}

/* How many gateways live, this one among them. */
static ngx_inline ngx_uint_t
ngx_rl_peers_gateways(ngx_rl_peers_shared_t *shared)
{
    ngx_uint_t  at, n;

    at = 0;

    for (n = 1; ngx_rl_peers_next(shared, &at); n++) {
        /* void */
    }

    return n;
}

/* To how many other gateways Redis answers, and has after a moment. */
static ngx_inline ngx_uint_t
ngx_rl_peers_with_redis(ngx_rl_peers_shared_t *shared, uint64_t after_ms)
{
    uint64_t    redis_ms;
    ngx_uint_t  at, n;

    for (at = 0, n = 0; ngx_rl_peers_next(shared, &at); /* void */) {
        redis_ms = atomic_load(&shared->live[at - 1].redis_ms);
        n += (redis_ms > after_ms && (int64_t) (ngx_current_msec - redis_ms)
                                     < NGX_RL_PEERS_LIVE_MS);
    }

    return n;
}


/* ngx_rl_peers_conn.c: inside src/peers only */

#define NGX_RL_PEERS_STRANGERS  16      /* accepted, without a proof */
#define NGX_RL_PEERS_CONNS      (NGX_RL_PEERS_MOST + NGX_RL_PEERS_STRANGERS)
#define NGX_RL_PEERS_SHAKE_MS   2000    /* until both have proved */
#define NGX_RL_PEERS_LISTEN_MS  1000    /* until it tries to listen again */
#define NGX_RL_PEERS_OUT        (16 * NGX_RL_TOLD_MOST)

typedef enum {
    NGX_RL_PEER_FREE = 0,
    NGX_RL_PEER_CONNECTING,
    NGX_RL_PEER_TLS,
    NGX_RL_PEER_HELLO,        /* waits for the other's, then */
    NGX_RL_PEER_PROOF,        /* for its proof */
    NGX_RL_PEER_UP
} ngx_rl_peer_state_e;

/* An address to connect to. */
typedef struct {
    ngx_sockaddr_t        sockaddr;
    socklen_t             socklen;
    const ngx_rl_peers_host_t  *host;
    uint64_t              name;         /* of the gateway there; 0: unknown */
    ngx_msec_t            next_ms;      /* attempt */
    uint32_t              failures;
    unsigned              stale:1;      /* the name server has it no more */
} ngx_rl_peers_dial_t;

typedef struct {
    ngx_rl_peers_t       *peers;
    ngx_connection_t     *connection;
    ngx_rl_peer_state_e   state;
    ngx_rl_peers_dial_t  *dial;         /* that began it; NULL: accepted */
    ngx_msec_t            since_ms;     /* it began */
    ngx_msec_t            heard_ms;
    ngx_msec_t            spoke_ms;
    uint64_t              name;
    ngx_uint_t            live;         /* its place in shared memory */
    u_char                hellos[2][NGX_RL_TOLD_HELLO];  /* first, second */
    u_char                keys[2][NGX_RL_TOLD_SECRET];   /* in, out */
    uint64_t              numbers[2];
    u_char                small[NGX_RL_TOLD_HELLO];
    size_t                got;          /* of small, later of in */
    u_char               *in;           /* from UP on */
    u_char               *out;
    size_t                queued;       /* of out */
    ngx_uint_t            state_at;     /* of the state that is told */
    unsigned              telling:1;    /* the state */
    u_char                text[NGX_SOCKADDR_STRLEN];
    ngx_str_t             address;      /* in text, for the log */
} ngx_rl_peer_t;

struct ngx_rl_peers_net_s {
    ngx_log_t            *log;
    ngx_log_t             muted;        /* for nginx's own lines */
    ngx_connection_t     *listening;
    ngx_msec_t            listen_ms;    /* the next attempt */
    ngx_msec_t            resolve_ms;
    ngx_uint_t            told_state;   /* to a peer, in this tick */
    ngx_rl_peers_dial_t   dials[NGX_RL_PEERS_MOST];
    ngx_resolver_ctx_t   *queries[NGX_RL_PEERS_MOST];  /* of hosts */
    ngx_rl_peer_t         conns[NGX_RL_PEERS_CONNS];
    u_char                message[NGX_RL_TOLD_MOST];
};

/* Whether time ms is not later than now: of a clock that may wrap. */
#define ngx_rl_peers_due(ms)  ((ngx_msec_int_t) (ngx_current_msec - (ms)) >= 0)

/* A line about the block, at most one of each kind in ten seconds. */
void ngx_rl_peers_log(ngx_rl_peers_t *peers, ngx_rl_peers_line_e line,
    ngx_uint_t level, ngx_err_t err, const ngx_str_t *address,
    const char *what);

/* Listens. NGX_ERROR: logged. */
ngx_int_t ngx_rl_peers_listen(ngx_rl_peers_t *peers);

/* Begins to connect to an address. */
void ngx_rl_peers_connect(ngx_rl_peers_t *peers, ngx_rl_peers_dial_t *dial);

/* Closes one; reason is for the log, or NULL. */
void ngx_rl_peer_close(ngx_rl_peer_t *peer, ngx_err_t err, const char *reason);

/* Puts a message that is ended into its buffer, and writes. */
void ngx_rl_peer_tell(ngx_rl_peer_t *peer, const u_char *message, size_t len);

#endif /* NGX_RL_PEERS_H_INCLUDED */

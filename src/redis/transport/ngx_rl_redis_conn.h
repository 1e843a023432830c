/*
 * One connection to one server: its states, and the bytes that go over it. It
 * lives until its owner frees it and connects again by itself. Only the owner
 * knows the meaning of the bytes. It is called back.
 */

#ifndef NGX_RL_REDIS_CONN_H_INCLUDED
#define NGX_RL_REDIS_CONN_H_INCLUDED

#include "ngx_rl_redis.h"

#define NGX_RL_REDIS_IO_BYTES    65536   /* of one read or write */
#define NGX_RL_REDIS_MAX_REASON  128     /* of TLS, in the log */

/* the longest host with its port */
#define NGX_RL_REDIS_NAME                                                     \
    (NGX_RL_REDIS_MAX_HOST + sizeof(":65535") - 1)

typedef struct ngx_rl_redis_conn_s  ngx_rl_redis_conn_t;


/* Bytes that are answered in the order sent; in conn->requests. */
typedef struct {
    ngx_queue_t                    queue;
    size_t                         len;
    u_char                        *text;
    ngx_msec_t                     since_ms;  /* queued, later: written */
    uint64_t                       written_us; /* by clock_us() */
    unsigned                       written:1; /* in part or whole */
} ngx_rl_redis_request_t;


/*
 * DOWN waits for its timer to connect again, all others take requests. BROKEN
 * connects at the end of the event loop's turn, or at first with its first
 * request or timer. From RESOLVING to HANDSHAKE is one attempt with one
 * deadline.
 */
typedef enum {
    NGX_RL_REDIS_DOWN = 0,
    NGX_RL_REDIS_BROKEN,
    NGX_RL_REDIS_RESOLVING,
    NGX_RL_REDIS_CONNECTING,
    NGX_RL_REDIS_HANDSHAKE,
    NGX_RL_REDIS_UP
} ngx_rl_redis_state_e;


/* Functions of the owner. Only used() may free the connection. */
typedef struct {
    /* An attempt begins: queue what goes first. NGX_ERROR: memory is out. */
    ngx_int_t                    (*open)(ngx_rl_redis_conn_t *conn);

    void                         (*up)(ngx_rl_redis_conn_t *conn);

    /*
     * Bytes came. Returns NULL, or why the connection must be closed. It may
     * have been closed already (conn->connection is NULL).
     */
    const char                  *(*read)(ngx_rl_redis_conn_t *conn,
                                         u_char *data, size_t len);

    /* It answered well, or stayed up, after failures. */
    void                         (*recovered)(
                                         ngx_rl_redis_conn_t *conn);

    /* It is to be closed, for a reason to be logged. */
    void                         (*failed)(ngx_rl_redis_conn_t *conn,
                                           ngx_err_t err, const char *reason);

    /*
     * It is closed: take the requests out that may have run, and, unless keeps,
     * all others. was: the state until then.
     */
    void                         (*closed)(ngx_rl_redis_conn_t *conn,
                                           ngx_rl_redis_state_e was,
                                           ngx_uint_t keeps);

    /* Its timer: whether it is still of use. Frees or breaks it where not. */
    ngx_uint_t                   (*used)(ngx_rl_redis_conn_t *conn);
} ngx_rl_redis_owner_t;


/* Common to the connections of a client. */
typedef struct {
    ngx_rl_redis_t         *redis;     /* TLS, resolver */
    ngx_log_t              *log;       /* the cycle's */
    ngx_log_t               muted;     /* for nginx's own socket lines: this
                                          layer writes its own */
    u_char                 *io;        /* one read or write */
    ngx_msec_t              dead_ms;   /* no reply for so long: dead */
} ngx_rl_redis_net_t;


struct ngx_rl_redis_conn_s {
    void                          *data;      /* the owner's */
    const ngx_rl_redis_owner_t  *owner;
    ngx_rl_redis_net_t     *net;

    /* event ident: after 3 pointers, as in ngx_connection_t */
    ngx_socket_t                   fd;

    ngx_rl_redis_state_e    state;
    ngx_resolver_ctx_t     *query;       /* NULL unless RESOLVING */
    ngx_connection_t       *connection;  /* from CONNECTING on */

    ngx_queue_t                    requests;  /* sent, then to be sent */
    ngx_queue_t                   *next;      /* first not written whole */
    size_t                         offset;    /* bytes of it written */
    ngx_uint_t                     pending;   /* how many in requests */
    ngx_uint_t                     batch;     /* how many left at the last turn
                                                 that wrote */

    ngx_event_t                    timer;     /* what for depends on state */
    ngx_event_t                    flush;     /* posted: write what is queued,
                                                 or, BROKEN, connect again */

    ngx_uint_t                     failures;  /* since it last was good */
    ngx_uint_t                     busy;      /* handshakes timed out since */
    ngx_msec_t                     begin_ms;  /* of the last attempt */
    ngx_msec_t                     pause_ms;  /* from there to the next one */
    ngx_msec_t                     up_ms;     /* when it came up */
    ngx_msec_t                     retried_ms; /* ahead of its backoff */
    unsigned                       good:1;    /* it has answered well */
    unsigned                       unfit:1;   /* it is of no use: that it stays
                                                 UP is no recovery */
    unsigned                       lazy:1;    /* connects where a request needs
                                                 it, and not by itself */

    void                          *session;   /* SSL_SESSION to resume; NULL,
                                                 or freed by tls_forget */
    const char                    *alert;     /* what the peer's TLS said */
    u_char                         tls_text[NGX_RL_REDIS_MAX_REASON];

    /* where it leads to: what the configuration or a node has named it */
    ngx_rl_redis_host_t     host;      /* its text stands in name */
    ngx_str_t               name;      /* "host:port", in text */
    u_char                  text[NGX_RL_REDIS_NAME];

    /* its address, once that was known; of the last attempt */
    socklen_t                      socklen;
    ngx_sockaddr_t                 sockaddr;
};


/* Prepares zeroed memory. It stays DOWN until it is begun. */
void ngx_rl_redis_conn_init(ngx_rl_redis_conn_t *conn, ngx_rl_redis_net_t *net,
    const ngx_rl_redis_owner_t *owner, void *data);

/* Says where conn leads to, also when it led elsewhere before. */
void ngx_rl_redis_conn_set_host(ngx_rl_redis_conn_t *conn,
    const ngx_rl_redis_host_t *host, const ngx_str_t *name);

/* Closes the socket and all events. The requests are the owner's. */
void ngx_rl_redis_conn_free(ngx_rl_redis_conn_t *conn);

/* Begins an attempt to connect: of a new conn, or of one that is DOWN. */
void ngx_rl_redis_conn_begin(ngx_rl_redis_conn_t *conn);

/* Begins the first attempt soon, or with the first request. */
void ngx_rl_redis_conn_begin_soon(ngx_rl_redis_conn_t *conn);

/*
 * Where conn is DOWN it connects now, at most once a second through this, and
 * at once where a lazy one was healthy.
 */
void ngx_rl_redis_conn_retry(ngx_rl_redis_conn_t *conn);

/*
 * Closes the socket, tells the owner and lets conn connect again after the
 * backoff. A healthy one connects again in this turn and keeps the requests
 * that were not written. reason is for the log, err an errno or 0.
 */
void ngx_rl_redis_conn_break(ngx_rl_redis_conn_t *conn, ngx_err_t err,
    const char *reason);

/*
 * conn is good: it answered a check, or stayed up for the greatest backoff.
 * Ends the backoff. A server that answers the handshake alone may break at the
 * first check, and would be connected to without end.
 */
void ngx_rl_redis_conn_recovered(ngx_rl_redis_conn_t *conn);

/* Has used() asked when conn falls idle. */
void ngx_rl_redis_conn_release(ngx_rl_redis_conn_t *conn);

/*
 * Ends CONNECTING at the socket's first event. Returns NGX_OK: conn is UP, or
 * NGX_AGAIN: it is not, and may have been closed as by break.
 */
ngx_int_t ngx_rl_redis_conn_connected(ngx_rl_redis_conn_t *conn);

/* Ends HANDSHAKE. reason: why it failed; NULL: it did not. */
void ngx_rl_redis_conn_shook(ngx_rl_redis_conn_t *conn, const char *reason);

/* The request that was sent first and is not answered; NULL: there is none. */
ngx_rl_redis_request_t *ngx_rl_redis_conn_head(ngx_rl_redis_conn_t *conn);

/*
 * The address of a host that is one, as text: it is known without asking.
 * Returns its length, 0 for any other host.
 */
socklen_t ngx_rl_redis_resolve_numeric(const ngx_rl_redis_host_t *host,
    ngx_sockaddr_t *sa);



/* io.c */

/*
 * Puts a request at the queue's end. It leaves in this turn where conn is UP,
 * and as soon as it is where it is not.
 */
void ngx_rl_redis_conn_append(ngx_rl_redis_conn_t *conn,
    ngx_rl_redis_request_t *request);

/* Takes a request out of conn's queue. */
void ngx_rl_redis_conn_remove(ngx_rl_redis_conn_t *conn,
    ngx_rl_redis_request_t *request);

/* The posted event of a connection that is UP or BROKEN. */
void ngx_rl_redis_conn_flush_handler(ngx_event_t *ev);

/* The socket's events. Any of them may end in break. */
void ngx_rl_redis_conn_write_handler(ngx_event_t *wev);
void ngx_rl_redis_conn_read_handler(ngx_event_t *rev);


/* tls.c */

/* Begins a connected socket's handshake. It ends by conn_shook(). */
void ngx_rl_redis_tls_begin(ngx_rl_redis_conn_t *conn);

/* Drops the session: conn is freed, or leads elsewhere from now on. */
void ngx_rl_redis_tls_forget(ngx_rl_redis_conn_t *conn);

/* Why recv() or send() failed: what TLS says of it, else otherwise. */
const char *ngx_rl_redis_tls_reason(ngx_rl_redis_conn_t *conn,
    const char *otherwise);

#endif /* NGX_RL_REDIS_CONN_H_INCLUDED */

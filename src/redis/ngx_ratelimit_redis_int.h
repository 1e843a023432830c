/*
 * The inside of src/redis. One client a worker and block; one connection a
 * node; calls that wait in exactly one queue at a time.
 *
 *     client.c   start and stop, what a call says
 *     control.c  documents and messages, on connections of their own
 *     call.c     a call's way, its deadline, its handler
 *     breaker.c  who may send, whose end counts, who is let go
 *     topology.c who asks for a new map, and when; the map of the node
 *     cluster.c  a worker's map: connections of slots, redirections
 *     sentinel.c the question for the master, and whom it is asked
 *     peer.c     who a connection is: found by its name, or made
 *     auth.c     passwords, also when they change
 *     conn.c     one connection: its states, connecting again
 *     resolve.c  where its host is
 *     tls.c      its handshake, where it is encrypted
 *     io.c       its queue, writing, reading
 *     reply.c    what each reply means for the call at the queue's head
 *     nodes.c    the node's heartbeat, how many nodes live
 *     shared.c   what the workers of the node share: breakers, counts, map
 *     codec.c    Redis' protocol to and from bytes (hiredis' reader)
 *     digest.c   HMAC-SHA256
 */

#ifndef NGX_RATELIMIT_REDIS_INT_H_INCLUDED
#define NGX_RATELIMIT_REDIS_INT_H_INCLUDED

#include <stdatomic.h>

#include "ngx_ratelimit_redis.h"
#include "ngx_ratelimit_redis_control.h"
#include "ngx_ratelimit_hash.h"
#include "ngx_ratelimit_log_limit.h"
#include "ngx_ratelimit_slot_map.h"

#define NGX_RATELIMIT_REDIS_MAX_PENDING    65536    /* calls in a queue */
#define NGX_RATELIMIT_REDIS_MAX_CONNS      1024     /* of one client */
#define NGX_RATELIMIT_REDIS_MAX_REDIRECTS  5        /* of one call */
#define NGX_RATELIMIT_REDIS_MAX_REPLY      65536    /* bytes */

/*
 * Bytes of CLUSTER SLOTS: 16 KB for each hash slot, 25 nodes of the longest
 * names. Its elements are read one by one: what is kept is small.
 */
#define NGX_RATELIMIT_REDIS_MAX_SLOTS                                         \
    ((size_t) NGX_RATELIMIT_CLUSTER_SLOTS * 16384)

#define NGX_RATELIMIT_REDIS_MAX_TEXT       512      /* of an error kept */
#define NGX_RATELIMIT_REDIS_MAX_REASON     128      /* of TLS, in the log */
#define NGX_RATELIMIT_REDIS_MAX_DEPTH      7        /* arrays in arrays */

#define NGX_RATELIMIT_REDIS_IO_BYTES       65536    /* of one read or write */
#define NGX_RATELIMIT_REDIS_TLS_BYTES      16384    /* of one write, a record */

/* the longest host with its port */
#define NGX_RATELIMIT_REDIS_NAME                                              \
    (NGX_RATELIMIT_REDIS_MAX_HOST + sizeof(":65535") - 1)

typedef struct ngx_ratelimit_redis_conn_s   ngx_ratelimit_redis_conn_t;
typedef struct ngx_ratelimit_redis_shard_s  ngx_ratelimit_redis_shard_t;


/* One line of CLUSTER SLOTS: a range and its primary. */
typedef struct {
    int64_t                     first;
    int64_t                     last;
    int64_t                     port;
    u_char                      host_len;
    u_char                      host[NGX_RATELIMIT_REDIS_MAX_HOST];
} ngx_ratelimit_redis_range_t;


/* What a reply is read as. */
typedef enum {
    NGX_RATELIMIT_REDIS_FORM_VALUES = 0,
    NGX_RATELIMIT_REDIS_FORM_SLOTS,   /* CLUSTER SLOTS */
    NGX_RATELIMIT_REDIS_FORM_TEXTS    /* an array of them, or one */
} ngx_ratelimit_redis_form_e;


/* One reply as the reader builds it. */
typedef struct {
    int                           type;      /* REDIS_REPLY_* of the whole */
    unsigned                      flat:1;    /* an array of integers alone;
                                                of TEXTS, without arrays */
    ngx_ratelimit_redis_form_e    form;

    ngx_uint_t                    n;         /* integers */
    int64_t                       values[NGX_RATELIMIT_REDIS_MAX_VALUES];

    ngx_ratelimit_redis_status_e  error;     /* its word, of a check */
    size_t                        text_len;  /* of an error, cut off */
    u_char                        text[NGX_RATELIMIT_REDIS_MAX_TEXT];

    ngx_uint_t                    nranges;
    ngx_uint_t                    max_ranges;
    ngx_ratelimit_redis_range_t  *ranges;    /* heap, freed by the reader */

    ngx_uint_t                    ntexts;
    ngx_str_t                    *texts;     /* heap, as all that they name:
                                                freed by the reader */

    size_t                        bytes;     /* read, but no whole reply yet */
    ngx_log_t                    *log;
} ngx_ratelimit_redis_reply_t;


typedef enum {
    NGX_RATELIMIT_REDIS_EVAL = 0,
    NGX_RATELIMIT_REDIS_CONTROL,  /* any command of control.c; up to here
                                     somebody is told how it ends */
    NGX_RATELIMIT_REDIS_LISTEN,   /* SUBSCRIBE: all that comes answers it */
    NGX_RATELIMIT_REDIS_PING,     /* behind that */
    NGX_RATELIMIT_REDIS_ASKING,   /* before a call that was told ASK */
    NGX_RATELIMIT_REDIS_AUTH,
    NGX_RATELIMIT_REDIS_REAUTH,   /* the same on an open connection */
    NGX_RATELIMIT_REDIS_SETNAME,  /* CLIENT SETNAME, whatever it answers */
    NGX_RATELIMIT_REDIS_SELECT,
    NGX_RATELIMIT_REDIS_LOAD,     /* SCRIPT LOAD */
    NGX_RATELIMIT_REDIS_SLOTS,    /* CLUSTER SLOTS */
    NGX_RATELIMIT_REDIS_MASTER    /* SENTINEL GET-MASTER-ADDR-BY-NAME */
} ngx_ratelimit_redis_kind_e;


struct ngx_ratelimit_redis_call_s {
    ngx_queue_t                      queue;     /* of conn, or of client */
    ngx_queue_t                      wait;      /* in client->deadlines */
    ngx_ratelimit_redis_client_t    *client;
    ngx_ratelimit_redis_conn_t      *conn;      /* whose queue it is in */
    ngx_ratelimit_redis_shard_t     *shard;     /* to be told how it ended */

    ngx_ratelimit_redis_handler_pt   handler;
    void                            *data;

    ngx_msec_t                       deadline_ms;
    ngx_msec_t                       since_ms;  /* queued, later: written */
    ngx_msec_t                       wait_ms;   /* in client->done */
    ngx_uint_t                       slot;      /* in a cluster */

    ngx_ratelimit_redis_kind_e       kind;
    ngx_ratelimit_redis_status_e     status;    /* in client->done */

    unsigned                         timed:1;   /* wait is queued */
    unsigned                         written:1; /* in part or whole */
    unsigned                         asking:1;  /* ASKING goes before it */
    unsigned                         partly:1;  /* its reply has begun */
    unsigned                         reloaded:1; /* had its NOSCRIPT here */
    unsigned                         asked:1;   /* by a request, maybe gone:
                                                   its end counts */
    unsigned                         undo:1;    /* the breaker is not asked;
                                                   all of control.c */
    unsigned                         late:1;    /* see ngx_ratelimit_redis.h */
    unsigned                         quiet:1;   /* the node's heartbeat, and
                                                   control.c: no worker stays
                                                   for it, no breaker and no
                                                   count knows of it */
    unsigned                         told:1;    /* its handler had TIMEOUT and
                                                   waits no more */
    unsigned                         probe:1;   /* its breaker is open */
    unsigned                         delayed:1; /* this worker wrote it late,
                                                   so its time began anew */
    unsigned                         ran:1;     /* in client->done */
    unsigned                         ended:1;   /* and counted */
    unsigned                         pooled:1;  /* size fits the free list */
    unsigned                         redirects:4;

    size_t                           len;
    u_char                          *text;      /* behind the call */
};


/*
 * What the workers of the node share of one block. Nothing here has a lock:
 * each word is changed by itself, so a worker may die anywhere.
 */

#define NGX_RATELIMIT_REDIS_MAX_SHARDS  1024
#define NGX_RATELIMIT_REDIS_SHARD_NAME  80    /* bytes of it kept */

/* what waits for the slot map has a breaker too; no host has such a name */
#define NGX_RATELIMIT_REDIS_MAP_SHARD   "slot map"

/* lines of level error, limited apart from each other */
typedef enum {
    NGX_RATELIMIT_REDIS_LINE_BROKEN = 0,
    NGX_RATELIMIT_REDIS_LINE_REPLY,
    NGX_RATELIMIT_REDIS_LINES
} ngx_ratelimit_redis_line_e;

struct ngx_ratelimit_redis_shard_s {
    _Atomic uint64_t               id;        /* of its name; 0: free */
    _Atomic uint64_t               used_ms;   /* by any worker, the last time */
    ngx_ratelimit_breaker_t        breaker;
    _Atomic uint32_t               closed;    /* how often it has closed */

    /* log lines about it */
    ngx_ratelimit_log_limit_t      opens;
    ngx_ratelimit_log_limit_t      readmits;
    ngx_ratelimit_log_limit_t      closes;
    ngx_ratelimit_log_limit_t      notices;
    ngx_ratelimit_log_limit_t      errors[NGX_RATELIMIT_REDIS_LINES];

    _Atomic uint64_t               named;     /* the id that name_len and name
                                                 are of */
    uint32_t                       name_len;
    u_char                         name[NGX_RATELIMIT_REDIS_SHARD_NAME];
};

struct ngx_ratelimit_redis_shared_s {
    _Atomic uint64_t               calls[NGX_RATELIMIT_REDIS_STATUSES];
    _Atomic uint64_t               replies[NGX_RATELIMIT_REDIS_STATUSES];
    _Atomic uint64_t               refreshes;
    _Atomic uint64_t               reconnects;
    _Atomic uint64_t               handshakes;
    _Atomic uint64_t               resumed;
    _Atomic uint64_t               opened;

    uint64_t                       node;      /* its name in Redis, not 0 */
    _Atomic uint64_t               nodes;     /* that live; 0: not known yet */
    _Atomic uint64_t               fleet;     /* the most of late */
    _Atomic uint64_t               fleet_ms;  /* when as many lived last */
    _Atomic uint64_t               beat_ms;   /* the last heartbeat; 0: none */
    ngx_ratelimit_log_limit_t      beat_errors;
    ngx_ratelimit_log_limit_t      auth_notices;

    ngx_ratelimit_redis_shard_t    shards[NGX_RATELIMIT_REDIS_MAX_SHARDS];

    ngx_ratelimit_slot_board_t     board;     /* last: its words are not
                                                 zeroed, most stay untouched */
};


/*
 * DOWN waits for its timer to connect again, all others take calls. BROKEN
 * connects at the end of the event loop's turn, or at first with its first call
 * or timer. From RESOLVING to
 * HANDSHAKE is one attempt with one deadline.
 */
typedef enum {
    NGX_RATELIMIT_REDIS_DOWN = 0,
    NGX_RATELIMIT_REDIS_BROKEN,
    NGX_RATELIMIT_REDIS_RESOLVING,
    NGX_RATELIMIT_REDIS_CONNECTING,
    NGX_RATELIMIT_REDIS_HANDSHAKE,
    NGX_RATELIMIT_REDIS_UP
} ngx_ratelimit_redis_state_e;


struct ngx_ratelimit_redis_conn_s {
    ngx_queue_t                    queue;     /* in client->conns */
    ngx_ratelimit_redis_client_t  *client;

    /* event ident: after 3 pointers, as in ngx_connection_t */
    ngx_socket_t                   fd;

    ngx_ratelimit_redis_state_e    state;
    ngx_resolver_ctx_t            *query;       /* NULL unless RESOLVING */
    ngx_connection_t              *connection;  /* from CONNECTING on */
    void                          *reader;      /* redisReader, as connection */

    ngx_queue_t                    calls;     /* sent, then to be sent */
    ngx_queue_t                   *next;      /* first not written whole */
    size_t                         offset;    /* bytes of it written */
    ngx_uint_t                     pending;   /* calls in calls */

    ngx_event_t                    timer;     /* what for depends on state */
    ngx_event_t                    flush;     /* posted: write what is queued,
                                                 or, BROKEN, connect again */

    ngx_uint_t                     owned;     /* slots in the map */
    ngx_uint_t                     failures;  /* since it last was good */
    ngx_uint_t                     busy;      /* handshakes timed out since */
    ngx_msec_t                     begin_ms;  /* of the last attempt */
    ngx_msec_t                     pause_ms;  /* from there to the next one */
    ngx_msec_t                     up_ms;     /* when it came up */
    ngx_msec_t                     lost_ms;   /* was UP no more, or began */
    ngx_msec_t                     heard_ms;  /* the last reply */
    ngx_msec_t                     used_ms;   /* a sentinel: when asked */
    ngx_msec_t                     retried_ms; /* ahead of its backoff */
    ngx_uint_t                     login;     /* version of its AUTH */
    unsigned                       loading:1; /* SCRIPT LOAD is queued */
    unsigned                       sentinel:1; /* takes no calls */
    unsigned                       good:1;    /* it has answered well */
    unsigned                       vain:1;    /* a call waited for it to be UP
                                                 until its deadline */

    void                          *session;   /* SSL_SESSION to resume; NULL,
                                                 or freed by tls_forget */
    const char                    *alert;     /* what the peer's TLS said */
    u_char                         tls_text[NGX_RATELIMIT_REDIS_MAX_REASON];

    ngx_ratelimit_log_limit_t      errors;    /* log lines, */
    ngx_ratelimit_log_limit_t      notices;   /* where there is no shard */

    ngx_ratelimit_redis_reply_t    reply;

    /* who it is: what the configuration or a node has named it */
    ngx_ratelimit_redis_host_t     host;      /* its text stands in name */
    ngx_str_t                      name;      /* "host:port", behind this,
                                                 with room for any */
    ngx_ratelimit_redis_shard_t   *shard;     /* of a sentinel: NULL */
    uint32_t                       closed;    /* shard's, when conn broke */
    uint32_t                       credit;    /* for its breaker */
    ngx_addr_t                     addr;      /* of a numeric host */
    ngx_sockaddr_t                 addr_data;

    /* where it leads to, once that was known; of the last attempt */
    socklen_t                      socklen;
    ngx_sockaddr_t                 sockaddr;
};


/* A user of a worker, for Redis or for Sentinels. */
typedef struct {
    ngx_str_t                      password;  /* heap; empty: no AUTH */
    ngx_uint_t                     version;   /* of password */
    const ngx_str_t               *username;  /* of the configuration, */
    const ngx_str_t               *file;      /* as this */

    /* the file as it was read last */
    ngx_file_uniq_t                uniq;
    off_t                          size;
    struct timespec                mtime;
} ngx_ratelimit_redis_login_t;


struct ngx_ratelimit_redis_client_s {
    ngx_ratelimit_redis_t         *redis;
    ngx_log_t                     *log;       /* the cycle's */

    /* whose this is, in a part of its own; NULL: it is that of checks */
    ngx_ratelimit_redis_control_t *control;

    /* event ident: after 3 pointers, as in ngx_connection_t */
    ngx_socket_t                   fd;

    ngx_log_t                      quiet;     /* for nginx's own socket lines:
                                                 this layer writes its own */
    ngx_queue_t                    conns;
    ngx_uint_t                     nconns;
    ngx_msec_t                     timeout;   /* a call waits no longer */
    ngx_msec_t                     dead_ms;   /* no reply, no connect: dead */

    /* a lazy one connects where a call needs it, and not by itself */

    unsigned                       lazy:1;

    ngx_queue_t                    deadlines; /* calls, the earliest first */
    ngx_uint_t                     waiting;   /* of them, with a handler */
    ngx_event_t                    deadline;
    ngx_event_t                    expire_event;
    unsigned                       looked:1;  /* since a deadline passed */

    ngx_queue_t                    done;      /* failed, handlers to call */
    ngx_event_t                    done_event;

    ngx_queue_t                    again;     /* TRYAGAIN, oldest first */
    ngx_event_t                    again_timer;

    ngx_event_t                    beat_timer;
    ngx_ratelimit_redis_call_t    *beat;        /* that has no answer yet */
    unsigned                       beat_failed:1; /* the last one */

    ngx_event_t                    probe_timer;
    ngx_event_t                    release_event;
    uint64_t                       released;  /* shared->opened at the last */
    ngx_ratelimit_redis_status_e   failed;    /* of a call, the last one */
    uint32_t                       jitter;    /* drawn when it failed */

    /* Cluster and Sentinel */

    ngx_queue_t                    unmapped;  /* waiting for the first map */
    ngx_ratelimit_redis_shard_t   *map_shard; /* their breaker's */
    ngx_ratelimit_redis_conn_t   **slots;     /* NULL for a single server */
    uint64_t                       head;      /* the node's map last taken */

    ngx_event_t                    refresh_timer;
    ngx_ratelimit_redis_call_t    *refresh;   /* the question waited for */
    uint64_t                       turn_ms;   /* the right to ask, not used */
    uint64_t                       asked_ms;  /* when this worker asked */
    uint64_t                       kept_ms;   /* until when it has the right */
    uint64_t                       wanted_ms; /* what was asked later will do */
    uint64_t                       answered_ms; /* the last that was noticed */
    uint64_t                       seen_ms;   /* the last question noticed */
    uint64_t                       due_ms;    /* asks no sooner */
    ngx_uint_t                     sentinel;  /* which one is asked */

    unsigned                       mapped:1;  /* slots is known */
    unsigned                       wanted:1;  /* something may have changed */
    unsigned                       strayed:1; /* MOVED changed slots */
    unsigned                       broke:1;   /* with the first question */
    unsigned                       unanswered:1; /* as yet */

    ngx_queue_t                    free;      /* calls */
    ngx_uint_t                     nfree;

    uint64_t                       name;      /* the last one given */
    size_t                         evalsha_len;
    u_char                         evalsha[NGX_RATELIMIT_REDIS_BULK(7)
                                           + NGX_RATELIMIT_REDIS_BULK(40)];
    ngx_ratelimit_redis_login_t    logins[2]; /* Redis', Sentinels': of the
                                                 client of checks alone */
    ngx_str_t                      channel;   /* to subscribe to; empty: none,
                                                 it has calls */
    u_char                        *io;        /* one read or write */

    ngx_ratelimit_log_limit_t      refusals;  /* of sentinels, in the log */
};


/* client.c */

/*
 * A client without any connection; of control, or of checks where that is NULL.
 * Returns NULL when memory is out. Freed by client_free, with its connections;
 * no handler is called.
 */
ngx_ratelimit_redis_client_t *ngx_ratelimit_redis_client_new(
    ngx_ratelimit_redis_t *redis, ngx_cycle_t *cycle,
    ngx_ratelimit_redis_control_t *control);
void ngx_ratelimit_redis_client_free(ngx_ratelimit_redis_client_t *client);

/*
 * The server's connection, or the search for the slot map. Returns NGX_OK, or
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_redis_client_connect(
    ngx_ratelimit_redis_client_t *client);

/* As ngx_ratelimit_redis_eval(), but that the call is not started yet. */
ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_eval_new(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_eval_t *eval);

/*
 * A check that a probe is: of a counter that no rule has, in a bucket of conn's
 * node. Not started. NULL: memory is out, or no bucket was found.
 */
ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_probe_new(
    ngx_ratelimit_redis_conn_t *conn);


/* call.c */

/*
 * A call with len bytes of text, not in any queue. Returns NULL when memory
 * is out. Freed by call_free, or through call_finish or call_fail.
 */
ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_call_new(
    ngx_ratelimit_redis_client_t *client, ngx_ratelimit_redis_kind_e kind,
    size_t len);

/* The same with a whole command as its text: the arguments are copied. */
ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_command_new(
    ngx_ratelimit_redis_client_t *client, ngx_ratelimit_redis_kind_e kind,
    const ngx_str_t *args, ngx_uint_t nargs);

/* Lets the call wait for its deadline, and sends it. handler may be NULL. */
void ngx_ratelimit_redis_call_start(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_handler_pt handler, void *data);

/* Lets the call wait for its deadline, from now on. */
void ngx_ratelimit_redis_call_time(ngx_ratelimit_redis_call_t *call);

/* Frees a call that is in no queue but, maybe, client->deadlines. */
void ngx_ratelimit_redis_call_free(ngx_ratelimit_redis_call_t *call);

/* Frees the call and calls its handler, now: never from inside eval. */
void ngx_ratelimit_redis_call_finish(ngx_ratelimit_redis_call_t *call,
    const ngx_ratelimit_redis_result_t *result);

/*
 * The same without values, later in this turn of the event loop; where a
 * breaker is to be told, it has failed.
 */
void ngx_ratelimit_redis_call_fail(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_status_e status);

/*
 * Calls the handler of a call that nobody shall wait for any more. One that
 * was written timed out; it stays in its connection's queue until its reply
 * comes, and so does its handler where that is of use late. Any other did not
 * run and never will: it ends with that status.
 */
void ngx_ratelimit_redis_call_leave(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_status_e status);

/* Sends the call to the node that the slot map names, or lets it wait. */
void ngx_ratelimit_redis_route(ngx_ratelimit_redis_call_t *call);

/* Sends the call on conn, where the breaker of its shard lets it. */
void ngx_ratelimit_redis_call_send(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);

/* Sends the call once more in 5 ms. */
void ngx_ratelimit_redis_again(ngx_ratelimit_redis_call_t *call);

/* The client's events. */
void ngx_ratelimit_redis_deadline_handler(ngx_event_t *ev);
void ngx_ratelimit_redis_expire_handler(ngx_event_t *ev);
void ngx_ratelimit_redis_again_handler(ngx_event_t *ev);
void ngx_ratelimit_redis_done_handler(ngx_event_t *ev);

/* breaker.c */

/*
 * Asks the breaker of shard (or NULL: there is none). Returns whether to send
 * the call; else it was failed. credit is of the connection.
 */
ngx_uint_t ngx_ratelimit_redis_breaker_ask(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_shard_t *shard, uint32_t *credit);

/*
 * What became of a call that a breaker let pass, or of a probe; of any other,
 * and the second time, nothing happens. status is for the log.
 */
void ngx_ratelimit_redis_breaker_report(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_breaker_outcome_e outcome,
    ngx_ratelimit_redis_status_e status);

/*
 * The same of a call whose deadline has passed, of one that conn could not
 * send, and of one whose connection broke: that says nothing of the node.
 */
void ngx_ratelimit_redis_breaker_expired(ngx_ratelimit_redis_call_t *call);
void ngx_ratelimit_redis_breaker_unsent(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_conn_t *conn);

#define ngx_ratelimit_redis_breaker_cut(call)                                 \
    (call)->shard = (call)->probe ? (call)->shard : NULL

/* conn has a reply; good: to what shows that the node does its work. */
void ngx_ratelimit_redis_breaker_heard(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t good);

/* The timer that sends probes, whether there are requests or not. */
void ngx_ratelimit_redis_probes_start(ngx_ratelimit_redis_client_t *client);
void ngx_ratelimit_redis_probe_handler(ngx_event_t *ev);

/* The call was answered by something that is not about the node. */
void ngx_ratelimit_redis_breaker_neutral(ngx_ratelimit_redis_call_t *call);

/*
 * conn broke; and whether since then the breaker of its shard has closed:
 * another worker has found it well.
 */
void ngx_ratelimit_redis_breaker_lost(ngx_ratelimit_redis_conn_t *conn);
ngx_uint_t ngx_ratelimit_redis_breaker_found(ngx_ratelimit_redis_conn_t *conn);

/* There is a slot map: nobody waits for the first one any more. */
void ngx_ratelimit_redis_breaker_mapped(ngx_ratelimit_redis_client_t *client);

/* The posted event: lets go who waits for a shard whose breaker is open. */
void ngx_ratelimit_redis_release_handler(ngx_event_t *ev);


/* peer.c */

/*
 * The connection to a host, made and started where there is none: the host's
 * text is copied, addrs are not. Returns NULL when memory is out or there are
 * too many.
 */
ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_conn_get(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host);

/*
 * The same for a sentinel: it is asked for the master and serves nothing else.
 */
ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_conn_sentinel(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host);

/*
 * Keeps the places of the Redis nodes that the client has connections to, and
 * finds them again where they were given away. Once a second.
 */
void ngx_ratelimit_redis_conns_keep(ngx_ratelimit_redis_client_t *client);


/* auth.c */

/*
 * The passwords of the client of checks: read again where their files have
 * changed. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_redis_auth_start(ngx_ratelimit_redis_client_t *client);
void ngx_ratelimit_redis_auth_stop(ngx_ratelimit_redis_client_t *client);

/* Looks at the files, once a second. Open connections log in again. */
void ngx_ratelimit_redis_auth_look(ngx_ratelimit_redis_client_t *client);

/* Queues AUTH where there is a password; NGX_ERROR: memory is out. */
ngx_int_t ngx_ratelimit_redis_auth_send(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_kind_e kind);

/* Has a connection log in again, where there is a new password since. */
void ngx_ratelimit_redis_auth_renew(ngx_ratelimit_redis_conn_t *conn);

/* The user that a connection is of. */
#define ngx_ratelimit_redis_login(conn)                                       \
    (&(conn)->client->redis->client->logins[(conn)->sentinel])


/* conn.c */

/* Begins an attempt to connect: of a new conn, or of one that is DOWN. */
void ngx_ratelimit_redis_conn_begin(ngx_ratelimit_redis_conn_t *conn);

/* Begins the first attempt of a new conn: now, or soon. */
void ngx_ratelimit_redis_conn_first(ngx_ratelimit_redis_conn_t *conn);

/* Where conn is DOWN it connects now, at most once a second through this. */
void ngx_ratelimit_redis_conn_retry(ngx_ratelimit_redis_conn_t *conn);

/* Queues SCRIPT LOAD and sets loading, unless memory is out. */
void ngx_ratelimit_redis_conn_load(ngx_ratelimit_redis_conn_t *conn);

/* What conn's timer is for depends on its state. It may free conn. */
void ngx_ratelimit_redis_conn_timer_handler(ngx_event_t *ev);

/* Closes and frees; the calls in its queue are freed, no handler is called. */
void ngx_ratelimit_redis_conn_free(ngx_ratelimit_redis_conn_t *conn);

/*
 * Closes the socket, fails the calls and lets conn connect again after the
 * backoff. A healthy one connects again in this turn and keeps the calls that
 * were not written. reason is for the log, err an errno or 0.
 */
void ngx_ratelimit_redis_conn_break(ngx_ratelimit_redis_conn_t *conn,
    ngx_err_t err, const char *reason);

/*
 * conn is good: it answered a check, or stayed up for the greatest backoff.
 * Ends the backoff and says so. What answers the handshake alone may break at
 * the first check, and would be connected to without end.
 */
void ngx_ratelimit_redis_conn_recovered(ngx_ratelimit_redis_conn_t *conn);

/*
 * A call on conn has timed out: breaks conn where that has been silent for long
 * while the node answered other workers.
 */
void ngx_ratelimit_redis_conn_doubt(ngx_ratelimit_redis_conn_t *conn);

/* Has a connection that owns no slots closed when it falls idle. */
void ngx_ratelimit_redis_conn_release(ngx_ratelimit_redis_conn_t *conn);

/*
 * Ends CONNECTING at the socket's first event. Returns NGX_OK: conn is UP, or
 * NGX_AGAIN: it is not, and may have been closed as by break.
 */
ngx_int_t ngx_ratelimit_redis_conn_connected(
    ngx_ratelimit_redis_conn_t *conn);

/* Ends RESOLVING. reason: why there is no address; NULL: conn knows one. */
void ngx_ratelimit_redis_conn_resolved(ngx_ratelimit_redis_conn_t *conn,
    const char *reason);

/* Ends HANDSHAKE. reason: why it failed; NULL: it did not. */
void ngx_ratelimit_redis_conn_shook(ngx_ratelimit_redis_conn_t *conn,
    const char *reason);


/* resolve.c */

/*
 * The address of a host that is one, as text: it is known without asking.
 * Returns its length, 0 for any other host.
 */
socklen_t ngx_ratelimit_redis_resolve_numeric(
    const ngx_ratelimit_redis_host_t *host, ngx_sockaddr_t *sa);

/*
 * Asks nginx's resolver where conn's host is. conn_resolved() tells, now or
 * later: when the deadline comes first, call resolve_timeout().
 */
void ngx_ratelimit_redis_resolve(ngx_ratelimit_redis_conn_t *conn);
void ngx_ratelimit_redis_resolve_timeout(ngx_ratelimit_redis_conn_t *conn);

/* Forgets the question, if there is one. */
void ngx_ratelimit_redis_resolve_cancel(ngx_ratelimit_redis_conn_t *conn);

/*
 * The next address of the host's own: each in turn. The host has some. Sets
 * where conn leads to.
 */
void ngx_ratelimit_redis_resolve_next(ngx_ratelimit_redis_conn_t *conn);


/* tls.c */

/* Begins the handshake of a connected socket: conn_shook() tells how it ends,
   now or later. */
void ngx_ratelimit_redis_tls_begin(ngx_ratelimit_redis_conn_t *conn);

/* Drops the session: conn is freed, or another host from now on. */
void ngx_ratelimit_redis_tls_forget(ngx_ratelimit_redis_conn_t *conn);

/* Why recv() or send() failed: what TLS says of it, else otherwise. */
const char *ngx_ratelimit_redis_tls_reason(ngx_ratelimit_redis_conn_t *conn,
    const char *otherwise);

/* Before the socket is closed: says goodbye, without waiting, and frees. */
void ngx_ratelimit_redis_tls_end(ngx_ratelimit_redis_conn_t *conn);


/* io.c */

/*
 * Puts a call at the queue's end. It leaves in this turn where conn is UP, and
 * as soon as it is where it is not.
 */
void ngx_ratelimit_redis_conn_append(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);

/* Queues a call, which leaves in this turn; it fails where conn is DOWN. */
void ngx_ratelimit_redis_conn_send(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);

/* Queues a command of this layer. Returns the call, NULL: out of memory. */
ngx_ratelimit_redis_call_t *ngx_ratelimit_redis_conn_command(
    ngx_ratelimit_redis_conn_t *conn, ngx_ratelimit_redis_kind_e kind,
    const ngx_str_t *args, ngx_uint_t nargs);

/* Takes a call out of conn's queue. */
void ngx_ratelimit_redis_conn_remove(ngx_ratelimit_redis_call_t *call);

/* The posted event of a connection that is UP or BROKEN. */
void ngx_ratelimit_redis_conn_flush_handler(ngx_event_t *ev);

/* The socket's events. Any of them may end in break. */
void ngx_ratelimit_redis_conn_write_handler(ngx_event_t *wev);
void ngx_ratelimit_redis_conn_read_handler(ngx_event_t *rev);


/* nodes.c */

/* The worker's part in the heartbeat of its node: begins, ends. */
void ngx_ratelimit_redis_nodes_start(ngx_ratelimit_redis_client_t *client);
void ngx_ratelimit_redis_nodes_stop(ngx_ratelimit_redis_client_t *client);


/* shared.c */

/*
 * A shard of that name: the one that all workers of the gateway know by it.
 * Returns NULL when there are too many: then there is no breaker for it. Its
 * place is kept for a minute: see ngx_ratelimit_redis_conns_keep().
 */
ngx_ratelimit_redis_shard_t *ngx_ratelimit_redis_shard(
    ngx_ratelimit_redis_shared_t *shared, const ngx_str_t *name);

/*
 * Whether a line of level error, or notice, about conn's Redis node may be
 * written: one a second and kind for all workers; of errors one in ten seconds
 * while the breaker is open, which has said so. note is the end of the line.
 */
ngx_uint_t ngx_ratelimit_redis_error_due(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_line_e line, char note[NGX_RATELIMIT_LOG_NOTE]);
ngx_uint_t ngx_ratelimit_redis_notice_due(ngx_ratelimit_redis_conn_t *conn,
    char note[NGX_RATELIMIT_LOG_NOTE]);

#define ngx_ratelimit_redis_count(counter)                                    \
    (void) atomic_fetch_add_explicit(&(counter), 1, memory_order_relaxed)


/* reply.c */

/*
 * Takes len bytes read from conn and answers the calls that they answer.
 * Returns NULL, or why the connection must be closed. conn may have been
 * closed when this returns (conn->connection is NULL then).
 */
const char *ngx_ratelimit_redis_conn_feed(ngx_ratelimit_redis_conn_t *conn,
    u_char *data, size_t len);


/* error.c */

/* conn's reply is an error: fails the call, or sends it once more. */
void ngx_ratelimit_redis_error(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);

/* Breaks conn where its reply is an error: it is of no use without this. */
void ngx_ratelimit_redis_reply_setup(ngx_ratelimit_redis_conn_t *conn,
    const char *command);

/* The first word of conn's reply where that is an error, else empty. */
ngx_str_t ngx_ratelimit_redis_reply_word(ngx_ratelimit_redis_conn_t *conn);

/* Logs, once a second, that a command was answered with this error. */
void ngx_ratelimit_redis_log_reply(ngx_ratelimit_redis_conn_t *conn,
    const char *command);


/* control.c */

/* conn's reply to a LISTEN call, which is in no queue and stays the first. */
void ngx_ratelimit_redis_control_heard(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_redis_call_t *call);


/* topology.c */

/*
 * Takes the map that the node has, or asks for the first one. Returns NGX_OK,
 * or NGX_ERROR when memory is out. What it allocates is freed by stop.
 */
ngx_int_t ngx_ratelimit_redis_topology_start(
    ngx_ratelimit_redis_client_t *client);
void ngx_ratelimit_redis_topology_stop(ngx_ratelimit_redis_client_t *client);

/* Takes the node's map where that is another one: before slots is read. */
void ngx_ratelimit_redis_topology_look(ngx_ratelimit_redis_client_t *client);

/* A call waits in unmapped: the first map is looked for more often. */
void ngx_ratelimit_redis_topology_wait(ngx_ratelimit_redis_client_t *client);

/* Something changed: a new map is wanted soon, one a second for the node. */
void ngx_ratelimit_redis_refresh(ngx_ratelimit_redis_client_t *client);

/* conn is UP: maybe it was waited for, to be asked. */
void ngx_ratelimit_redis_topology_up(ngx_ratelimit_redis_conn_t *conn);

/*
 * Takes the reply to the question from conn: a map, which all workers get, or
 * nothing. current: it is the one last asked by this worker.
 */
void ngx_ratelimit_redis_topology_reply(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t current);


/* sentinel.c */

/*
 * The connection to ask, UP or CONNECTING, NULL where no sentinel can be
 * connected to now. next: the one before did not answer, or knew nothing.
 */
ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_sentinel_from(
    ngx_ratelimit_redis_client_t *client, ngx_uint_t next);

/* Logs, once a second, that conn's answer names no master. */
void ngx_ratelimit_redis_sentinel_refused(ngx_ratelimit_redis_conn_t *conn);


/* cluster.c */

/*
 * A connection to ask, UP, another one each time, NULL where none is: then the
 * seeds are connected to.
 */
ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_cluster_from(
    ngx_ratelimit_redis_client_t *client);

/* Writes what conn answered as a map. Returns how many ranges were of use. */
ngx_uint_t ngx_ratelimit_redis_map_write(ngx_ratelimit_redis_conn_t *conn,
    ngx_ratelimit_slot_map_t *map);

/* Makes the worker's slots those of the map; calls that waited are sent. */
void ngx_ratelimit_redis_map_apply(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_slot_map_t *map);

/*
 * Lets go of the connections that own no slots, and has those that are DOWN
 * and do connect again.
 */
void ngx_ratelimit_redis_map_settle(ngx_ratelimit_redis_client_t *client);

/*
 * The connection that "MOVED <slot> <host>:<port>" or "ASK ..." from conn
 * names, NULL where it names none; slot is set.
 */
ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_redirect(
    ngx_ratelimit_redis_conn_t *conn, ngx_uint_t *slot);

/* Makes conn (or NULL) the owner of a slot. */
void ngx_ratelimit_redis_slot_set(ngx_ratelimit_redis_client_t *client,
    ngx_uint_t slot, ngx_ratelimit_redis_conn_t *conn);


/* codec.c */

#define NGX_RATELIMIT_REDIS_ARRAY       23

/* a key without its prefix: ":{", the bucket, "}:", a set's name */
#define NGX_RATELIMIT_REDIS_KEY_BYTES                                         \
    (sizeof(":{}:") - 1 + NGX_INT32_LEN + 2 * NGX_RATELIMIT_REDIS_SET_NAME)

/* "*<n>\r\n"; returns the end. */
u_char *ngx_ratelimit_redis_write_array(u_char *p, ngx_uint_t n);

/* A whole command: at most ARRAY bytes and BULK(len) of each argument. */
u_char *ngx_ratelimit_redis_write_command(u_char *p, const ngx_str_t *args,
    ngx_uint_t nargs);

/* A reader that builds into reply; NULL when memory is out. */
void *ngx_ratelimit_redis_reader_new(ngx_ratelimit_redis_reply_t *reply);
void ngx_ratelimit_redis_reader_free(void *reader,
    ngx_ratelimit_redis_reply_t *reply);

/* Frees what a reply with ranges, or with texts, left. */
void ngx_ratelimit_redis_ranges_free(ngx_ratelimit_redis_reply_t *reply);
void ngx_ratelimit_redis_texts_free(ngx_ratelimit_redis_reply_t *reply);

/* Returns NGX_OK, or NGX_ERROR: memory is out. */
ngx_int_t ngx_ratelimit_redis_reader_feed(void *reader, const u_char *data,
    size_t len);

/* Bytes fed that are part of no reply read yet. */
size_t ngx_ratelimit_redis_reader_left(void *reader);

/*
 * Reads the next reply: NGX_OK, NGX_AGAIN when more bytes must come, NGX_ERROR
 * when this is no protocol or too large.
 */
ngx_int_t ngx_ratelimit_redis_reader_next(void *reader,
    ngx_ratelimit_redis_reply_t *reply, ngx_ratelimit_redis_form_e form);

#endif /* NGX_RATELIMIT_REDIS_INT_H_INCLUDED */

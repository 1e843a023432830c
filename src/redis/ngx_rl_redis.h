/*
 * Redis as the other layers see it: a configuration block, a call, a result.
 *
 * Each worker has its own client (connections, slot map). A call is heap
 * memory of this layer: it outlives the request that made it, is written in
 * the order made, answered exactly once, and may be forgotten by its maker.
 */

#ifndef NGX_RL_REDIS_H_INCLUDED
#define NGX_RL_REDIS_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_rl_breaker.h"
#include "ngx_rl_tally.h"
#include "ngx_rl_hash.h"
#include "ngx_rl_tls.h"
#include "ngx_rl_types.h"

#define NGX_RL_REDIS_MAX_VALUES  64   /* integers in one result */
#define NGX_RL_REDIS_MAX_HOST    255  /* bytes of a host's name */

typedef struct ngx_rl_redis_s         ngx_rl_redis_t;
typedef struct ngx_rl_redis_client_s  ngx_rl_redis_client_t;
typedef struct ngx_rl_redis_call_s    ngx_rl_redis_call_t;
typedef struct ngx_rl_redis_shared_s  ngx_rl_redis_shared_t;

/* How a call ended. From MOVED on it is the error that Redis answered. */
typedef enum {
    NGX_RL_REDIS_OK = 0,
    NGX_RL_REDIS_OPEN,         /* the breaker is open: not asked; or not waited
                                  for, the probe: it ran */
    NGX_RL_REDIS_UNREACHABLE,  /* not sent: no connection, no slot map */
    NGX_RL_REDIS_TIMEOUT,      /* no reply in time, it may have run */
    NGX_RL_REDIS_LOST,         /* sent, and the connection broke */
    NGX_RL_REDIS_PROTOCOL,     /* a reply that is none of the script's */
    NGX_RL_REDIS_MOVED,        /* too often, or to nowhere */
    NGX_RL_REDIS_ASK,          /* the same */
    NGX_RL_REDIS_TRYAGAIN,
    NGX_RL_REDIS_CLUSTERDOWN,
    NGX_RL_REDIS_MASTERDOWN,
    NGX_RL_REDIS_LOADING,
    NGX_RL_REDIS_READONLY,
    NGX_RL_REDIS_NOSCRIPT,     /* also after the script was loaded */
    NGX_RL_REDIS_BUSY,
    NGX_RL_REDIS_OOM,
    NGX_RL_REDIS_MISCONF,
    NGX_RL_REDIS_NOREPLICAS,
    NGX_RL_REDIS_NOAUTH,
    NGX_RL_REDIS_NOPERM,
    NGX_RL_REDIS_WRONGTYPE,
    NGX_RL_REDIS_ERROR,        /* any other */
    NGX_RL_REDIS_STATUSES      /* how many there are */
} ngx_rl_redis_status_e;

typedef struct {
    ngx_rl_redis_status_e  status;
    unsigned               ran:1;    /* it has run, or may have */
    unsigned               again:1;  /* not the last: see "late" */
    ngx_msec_t             wait_ms;  /* OPEN: until it is asked again */
    ngx_uint_t             n;        /* 0 unless status is OK */

    /* valid during the handler only */

    const int64_t                *values;   /* n of a check */
    ngx_str_t                    *texts;    /* n of a call of the control
                                               client: see there */
} ngx_rl_redis_result_t;

/* "ok", "breaker_open", "timeout", "oom" and so on. */
const ngx_str_t *ngx_rl_redis_status_name(ngx_rl_redis_status_e status);

/*
 * Called exactly once for each call that was not forgotten (but see "late"
 * below, and ngx_rl_redis_stop), never from inside
 * ngx_rl_redis_eval. May make calls; must not block.
 */
typedef void (*ngx_rl_redis_handler_pt)(void *data,
    const ngx_rl_redis_result_t *result);

typedef enum {
    NGX_RL_REDIS_SERVER = 0,
    NGX_RL_REDIS_SENTINEL,
    NGX_RL_REDIS_CLUSTER
} ngx_rl_redis_mode_e;

/* An address of the configuration. */
typedef struct {
    ngx_str_t                      host;
    in_port_t                      port;    /* 0: a path */
    ngx_uint_t                     naddrs;  /* 0: the resolver is asked */
    ngx_addr_t                    *addrs;
} ngx_rl_redis_host_t;

/*
 * A "ratelimit_redis" block. Written while the configuration is read, by
 * the front door; read-only while serving, but for client and control, which
 * are set once in each worker before it serves.
 */
struct ngx_rl_redis_s {
    ngx_str_t               name;
    ngx_rl_redis_mode_e     mode;
    ngx_array_t             hosts;      /* ngx_rl_redis_host_t: the server, or
                                           any to ask */
    ngx_str_t               master;     /* what sentinels call it */
    ngx_str_t               sentinel_username; /* as the two below */
    ngx_str_t               sentinel_password;
    ngx_str_t               sentinel_password_file;
    ngx_msec_t              timeout;    /* a call waits no longer */
    ngx_msec_t              interval;   /* async: a counter's debits are so far
                                           apart */
    ngx_uint_t              buckets;    /* hash keys, a power of two */
    ngx_str_t               username;   /* empty: AUTH password */
    ngx_str_t               password;   /* empty: no AUTH; else as it was when
                                           the file was read */
    ngx_str_t               password_file; /* a whole path */
    ngx_uint_t              database;
    ngx_rl_tls_t            tls;
    ngx_str_t               secret;     /* of the fleet */
    ngx_str_t               prefix;

    ngx_resolver_t                *resolver;   /* of names; NULL: none */
    ngx_msec_t                     resolver_timeout;

    u_char                  id_key[NGX_RL_SIPHASH_KEY_BYTES];
    u_char                  mask_key[NGX_RL_SIPHASH_KEY_BYTES];
                                               /* made by prepare */
    ngx_rl_redis_shared_t  *shared;     /* set before workers start */
    ngx_rl_redis_client_t  *client;     /* of checks */
    ngx_rl_redis_client_t  *control;    /* of what is no check */
    unsigned                reloaded:1; /* shared is of an older cycle */
};


/* a secret or a password, and its newline */
#define NGX_RL_REDIS_FILE_BYTES  1024

/*
 * Finds the first line in the n bytes of a file, without its end. Returns
 * NGX_OK, or NGX_DECLINED: the line is empty or longer than FILE_BYTES.
 */
ngx_int_t ngx_rl_redis_first_line(u_char *buf, size_t n, ngx_str_t *line);

/*
 * Completes a block when its directives are read: derives the key of its ids.
 * Returns NGX_OK, or NGX_ERROR: OpenSSL has no memory, or no SHA-256.
 */
ngx_int_t ngx_rl_redis_prepare(ngx_rl_redis_t *redis);

/*
 * Makes what connections with TLS need, where tls.on; in cf->pool. Returns
 * NGX_OK, or NGX_ERROR: an error is logged, nginx may be built without SSL.
 */
ngx_int_t ngx_rl_redis_tls_prepare(ngx_conf_t *cf, ngx_rl_redis_t *redis);

/*
 * Declares the memory that the node's workers share about a complete block:
 * breakers, slot map, counts. It outlives reloads that leave the block's mode,
 * hosts and master as they are. tag is the module. redis must live in
 * cf->pool. Returns NGX_OK or NGX_ERROR (logged by nginx).
 */
ngx_int_t ngx_rl_redis_share(ngx_conf_t *cf, ngx_rl_redis_t *redis, void *tag);

/*
 * Starts the worker's client and its first connections. Returns NGX_OK, or
 * NGX_ERROR when memory is out. Redis that cannot be reached is no error.
 */
ngx_int_t ngx_rl_redis_start(ngx_rl_redis_t *redis, ngx_cycle_t *cycle);

/*
 * Closes every connection, frees the client and the calls not answered: their
 * handlers are not called, and the calls are no more to be forgotten.
 */
void ngx_rl_redis_stop(ngx_rl_redis_t *redis);

/*
 * The name of len bytes in Redis, the same on all gateways of the fleet:
 * SipHash-2-4 with 128 bits, under a key derived from the secret. In memory it
 * is the 16 bytes of the reference, on machines of either byte order.
 */
ngx_rl_id_t ngx_rl_redis_id(const ngx_rl_redis_t *redis, const u_char *data,
    size_t len);

/*
 * Encrypts a value of Redis under the secret, or decrypts it; without a secret
 * it does neither. The mask is SipHash-2-4 of the value's name and of a count.
 * Whoever has two values of one name knows in which bits they differ.
 */
void ngx_rl_redis_mask(const ngx_rl_redis_t *redis, const ngx_str_t *name,
    u_char *data, size_t len);

/*
 * Makes the seal of a zone's record: HMAC-SHA256 under a key that is derived
 * from the secret and the zone's name. The block must have a secret. A thread
 * may call it. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
#define NGX_RL_REDIS_SEAL  32

ngx_int_t ngx_rl_redis_seal(const ngx_rl_redis_t *redis, const ngx_str_t *zone,
    const ngx_str_t *record, u_char seal[NGX_RL_REDIS_SEAL]);

/* the longest of these names */
#define NGX_RL_REDIS_MASKED  16

/*
 * Writes an argument as a command holds it, "$<len>\r\n<data>\r\n", and
 * returns the end; at most NGX_RL_REDIS_BULK(len) bytes. So what
 * many calls have in common is written once.
 */
u_char *ngx_rl_redis_write_bulk(u_char *p, const u_char *data, size_t len);

#define NGX_RL_REDIS_BULK(len)  ((len) + 25)

/*
 * The keys and arguments of the check script (lua/). KEYS[1] is
 * "<prefix>:{<bucket>}", each set adds "<prefix>:{<bucket>}:<name in hex>".
 */
typedef struct {
    uint32_t       bucket;    /* taken modulo redis->buckets */
    ngx_uint_t     nsets;     /* at most NGX_RL_REDIS_MAX_SETS */
    const u_char  *sets;      /* names of SET_NAME bytes each */
    ngx_uint_t     nargs;
    ngx_str_t      args;      /* each by ngx_rl_redis_write_bulk() */
    unsigned       undo:1;    /* frees what a call without an answer may have
                                 taken: sent behind it, whatever the breaker */
    unsigned       late:1;    /* a reply behind the deadline is of use too */
} ngx_rl_redis_eval_t;

#define NGX_RL_REDIS_MAX_SETS  16
#define NGX_RL_REDIS_SET_NAME  8

/*
 * Calls the check script; everything is copied. The result's values are the
 * integers of the script's flat array.
 *
 * handler may be NULL: nobody waits for the result.
 *
 * late: if the deadline passes after the call was written, the handler gets
 * TIMEOUT with again set. It is called a second time, without again, when the
 * reply comes (an error is not retried then) or the connection breaks (LOST). A
 * worker that exits does not wait for the second result, and the second result
 * is not counted. A probe of the breaker has no late result: OPEN is the last
 * one.
 *
 * Returns the call, valid until its handler is called, for the last time, or
 * NULL when memory is out (then the handler is not called).
 */
ngx_rl_redis_call_t *ngx_rl_redis_eval(
    ngx_rl_redis_t *redis, const ngx_rl_redis_eval_t *eval,
    ngx_rl_redis_handler_pt handler, void *data);

/*
 * The key that the script is called with, in pool: of a bucket, or, where set
 * is a name of SET_NAME bytes, of that sorted set. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_redis_key(const ngx_rl_redis_t *redis, uint32_t bucket,
    const u_char *set, ngx_pool_t *pool, ngx_str_t *key);

/* The monotonic clock, read now: for what is shown, and how long work takes. */
static ngx_inline uint64_t
ngx_rl_clock_us(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* A name that no other request of the fleet has; never 0. */
uint64_t ngx_rl_redis_name(ngx_rl_redis_t *redis);

/*
 * How many gateways of the fleet live, this one among them: 1 or more. Redis
 * said so at most a second ago. While Redis is away the last answer stays: the
 * number only sizes leases, and there are none then. 1 before the first answer.
 */
ngx_uint_t ngx_rl_redis_gateways(const ngx_rl_redis_t *redis);

/*
 * How many gateways may be counting alone while Redis is away: the most that
 * lived within the ten seconds before its last answer. A Redis that comes back
 * empty, and goes again, has heard of few. 1 before the first answer.
 */
ngx_uint_t ngx_rl_redis_fleet(const ngx_rl_redis_t *redis);

/* When Redis has answered this gateway's last heartbeat; 0: never. */
uint64_t ngx_rl_redis_heard_ms(const ngx_rl_redis_t *redis);

/* The maker is gone: the handler will not be called, nor called again. */
void ngx_rl_redis_forget(ngx_rl_redis_call_t *call);


/* Counts of all workers of this gateway, since the memory was made. */
typedef struct {
    uint64_t    calls[NGX_RL_REDIS_STATUSES];   /* ended so */
    uint64_t    replies[NGX_RL_REDIS_STATUSES]; /* errors, by word; also those
                                                   healed */
    uint64_t    refreshes;     /* questions for the slot map, the master */
    uint64_t    reconnects;    /* connections that came back */
    uint64_t    handshakes;    /* of TLS that succeeded */
    uint64_t    resumed;       /* of them, those of an earlier session */
    uint64_t    opened;        /* breakers, how often */
    uint64_t    gateways;      /* of the fleet, as redis_gateways() */
    int64_t     clock_ms;      /* Redis' clock less this gateway's, if */
    int64_t     map_age_ms;    /* since the question that the current master or
                                  slot map answers, if */
    unsigned    clocked:1;     /* the clock is known */
    unsigned    mapped:1;      /* there was such an answer */
} ngx_rl_redis_stat_t;

typedef struct {
    ngx_str_t               name;    /* "host:port", shared memory */
    ngx_rl_breaker_state_e  state;
    ngx_uint_t              connected; /* a worker is */
    uint64_t                times[NGX_RL_HISTOGRAM_WORDS];
                                            /* of calls */
} ngx_rl_redis_node_stat_t;

void ngx_rl_redis_stat(const ngx_rl_redis_t *redis, ngx_rl_redis_stat_t *stat);

/*
 * The breaker of each Redis node in use: of the server, or of the nodes in the
 * current slot map. While there is no map, the only one is "slot map". *at is
 * NULL for the first one and is moved on. Use it within one turn of the event
 * loop. Returns NGX_OK, or NGX_DONE: there are no more.
 */
ngx_int_t ngx_rl_redis_node_stat(const ngx_rl_redis_t *redis, ngx_queue_t **at,
    ngx_rl_redis_node_stat_t *stat);


/*
 * A worker's second way to Redis, for what is no check: documents of up to a
 * megabyte, and messages. A block has one, with connections of its own, made
 * when they are first needed, so nothing large stands before a check in a
 * queue. No breaker and no count of checks knows of it. Its timers are
 * cancelable: no worker that exits waits for a call.
 */

#define NGX_RL_REDIS_CONTROL_MS     5000  /* a call waits no longer */

/* A listener of a channel; in memory that is zeroed before. */
typedef struct {
    ngx_queue_t      queue;
    ngx_event_t     *event;      /* NULL: it does not listen */
    ngx_str_t        channel;    /* its owner's, as key */
    ngx_str_t        key;        /* the Redis node of the first listener's key
                                    is listened to */
} ngx_rl_redis_listener_t;

/*
 * Sends a command of nargs texts, the first its name. key: the argument that
 * names the slot (its number), 0: any node will do. The handler is called once,
 * never from inside, unless the call is forgotten. Everything is copied.
 * Returns the call, valid until its handler is called or it is forgotten, or
 * NULL when memory is out. Where there is a connection, or one can be made, it
 * ends in CONTROL_MS; else with UNREACHABLE, soon. An error of Redis is not
 * logged here.
 *
 * The result has the texts of the array that was answered (numbers as decimal
 * text, nil as an empty one), or one text. The handler may keep a text, which
 * is heap memory of its own, and sets its data to NULL then.
 */
ngx_rl_redis_call_t *ngx_rl_redis_control_call(ngx_rl_redis_t *redis,
    const ngx_str_t *args, ngx_uint_t nargs, ngx_uint_t key,
    ngx_rl_redis_handler_pt handler, void *data);

/* A number of such texts, up to most. NGX_OK, or NGX_ERROR: it is none. */
ngx_int_t ngx_rl_redis_control_number(const ngx_str_t *text, uint64_t most,
    uint64_t *number);

/*
 * Listens to listener->channel from now on, again whenever the connection
 * broke. Posts the event for messages, once for several that come together, and
 * each time the subscription begins, because messages before that are lost.
 * listen returns NGX_OK, or NGX_ERROR: memory is out. A listener that does not
 * listen may unlisten, too.
 */
ngx_int_t ngx_rl_redis_listen(ngx_rl_redis_t *redis,
    ngx_rl_redis_listener_t *listener, ngx_event_t *event);
void ngx_rl_redis_unlisten(ngx_rl_redis_t *redis,
    ngx_rl_redis_listener_t *listener);

#endif /* NGX_RL_REDIS_H_INCLUDED */

/*
 * One check of one request: it takes all counters that the rules name, or
 * none. Counters of this gateway are taken at once in shared memory; for those
 * of the fleet the gateway asks Redis, with one call for each client, all calls
 * in parallel. The check is complete when the last has answered or its deadline
 * has passed.
 */

#ifndef NGX_RL_CHECK_H_INCLUDED
#define NGX_RL_CHECK_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_redis.h"
#include "ngx_rl_rule.h"

#define NGX_RL_MAX_COUNTERS  16   /* of one request */

/* in the order of their weight: the heaviest of its counters' is a check's */
typedef enum {
    NGX_RL_BYPASSED = 0,       /* nothing to count */
    NGX_RL_PASSED,
    NGX_RL_DELAYED_DRY_RUN,    /* would have been delayed */
    NGX_RL_REJECTED_DRY_RUN,   /* would have been rejected */
    NGX_RL_DELAYED,            /* passes after delay_us */
    NGX_RL_DEGRADED,           /* passed, since Redis did not answer */
    NGX_RL_DENIED_DRY_RUN,     /* on a deny list; set by the caller */
    NGX_RL_UNAVAILABLE,        /* refused, since Redis did not answer */
    NGX_RL_REJECTED,
    NGX_RL_DENIED,             /* on a deny list; set by the caller */
    NGX_RL_PENALIZED           /* set by the caller */
} ngx_rl_status_e;

typedef enum {
    NGX_RL_SOURCE_NONE = 0,    /* not asked */
    NGX_RL_SOURCE_LOCAL,
    NGX_RL_SOURCE_LEASE,       /* Redis was not asked: it was before */
    NGX_RL_SOURCE_REDIS,
    NGX_RL_SOURCE_FALLBACK     /* asked in vain */
} ngx_rl_source_e;

typedef struct ngx_rl_backend_s       ngx_rl_backend_t;
typedef struct ngx_rl_check_s         ngx_rl_check_t;
typedef struct ngx_rl_counter_s       ngx_rl_counter_t;
typedef struct ngx_rl_refill_s        ngx_rl_refill_t;
typedef struct ngx_rl_remote_s        ngx_rl_remote_t;
typedef struct ngx_rl_remote_check_s  ngx_rl_remote_check_t;

/* What Redis needs of a client. */
typedef struct {
    ngx_rl_id_t           hash;       /* see client_hash() */
    uint32_t              bucket;     /* number of its hash there */
    unsigned              hashed:1;   /* the two are set */
    unsigned              asked:1;    /* for its strict counters */
    ngx_rl_redis_call_t  *call;       /* while its answer is due */
    uint64_t              noted_us;   /* when its counters here were taken */
} ngx_rl_remote_client_t;


/* The counters of one check that share a limiter and a key value. */
typedef struct {
    ngx_rl_limiter_t        *limiter;
    ngx_str_t                key;
    ngx_rl_check_t          *check;
    uint32_t                 key_index;  /* in the policy's keys */

    /* the engine's */
    unsigned                 named:1;    /* local is set */
    ngx_rl_remote_client_t  *remote;     /* NULL: the zone has no Redis */
    ngx_rl_id_t              local;      /* see client_local() */
} ngx_rl_client_t;


struct ngx_rl_counter_s {
    const ngx_rl_rule_t     *rule;
    const ngx_rl_limit_t    *limit;
    ngx_rl_client_t         *client;
    uint32_t                 cost;
    u_char                   dry_run;      /* if over its limit, the request
                                              passes */
    u_char                   source;       /* ngx_rl_source_e, by the engine */
    unsigned                 look:1;       /* charged by the response */
    unsigned                 fail_mode:2;  /* ngx_rl_fail_mode_e, not DEFAULT;
                                              in Redis */

    unsigned                 peek:1;       /* costs nothing, and asks Redis what
                                              is left */

    /* the engine's */
    unsigned                 held:1;       /* a permit in Redis, or maybe */
    unsigned                 permit:1;     /* one on this gateway */
    unsigned                 asks:1;       /* Redis has to be asked */
    unsigned                 alone:1;      /* too slow for a lease now: asks as
                                              a strict one */
    unsigned                 in_local:1;   /* async: also taken from this
                                              gateway's table */
    unsigned                 emergency:1;  /* its limit is in force */
    unsigned                 cut:1;        /* async: Redis does not answer, and
                                              this gateway has a share */
    uint32_t                 charge;       /* of settle: more tokens, */
    uint32_t                 refund;       /* or tokens back */
    ngx_rl_answer_t          answer;
    const ngx_rl_backend_t  *backend;
    ngx_rl_remote_t         *remote;       /* NULL: no Redis */
};


/* What Redis needs of a counter. */
struct ngx_rl_remote_s {
    ngx_rl_counter_t       *counter;
    ngx_rl_redis_status_e   reason;     /* of FALLBACK */

    /* while it waits for the call that refills its lease */
    ngx_rl_refill_t        *refill;
    ngx_queue_t             queue;      /* of the refill */
    ngx_queue_t             wait;       /* of the limiter, in order */
    ngx_msec_t              since_ms;   /* also of a split one */

    /* of a split counter */
    ngx_rl_redis_call_t    *call;       /* while an answer is due */
    uint64_t                asked_us;   /* when the last one was */
    uint32_t                part;       /* asked last; it has granted */
    uint64_t                tried;      /* parts asked in vain: bits */
    uint64_t                unanswered;    /* of them, without an answer */
    uint64_t                retry_us;   /* the least of theirs; 0: none */
};


/* What Redis needs of a check. */
struct ngx_rl_remote_check_s {
    ngx_rl_remote_t         *counters;    /* as many as the check has
                                             room for */
    ngx_rl_remote_client_t  *clients;
    uint64_t                 name;        /* in Redis' sets; 0: not yet */
    uint64_t                 asked_us;    /* by clock_us() */
    uint32_t                 waits;       /* row of its zone's waits */
    unsigned                 renewing:1;  /* the renewal has a timer */
    ngx_event_t              renewal;     /* while Redis counts permits */
};


/*
 * The caller fills the first part, zeroes the rest up to taken_us, does the
 * same with the counters, up to the answer, and the clients, and keeps the
 * memory until the check has ended.
 */
struct ngx_rl_check_s {
    ngx_rl_counter_t       *counters;
    ngx_rl_client_t        *clients;
    void                         (*handler)(void *data);
    void                   *data;
    ngx_rl_remote_check_t  *remote;     /* with its first two members; NULL: no
                                           zone has Redis */
    ngx_uint_t              ncounters;
    ngx_uint_t              nclients;

    /* the outcome */
    ngx_rl_status_e         status;
    ngx_rl_counter_t       *decisive;   /* has it; NULL: bypassed */
    ngx_rl_counter_t       *strictest;  /* of those that are enforced, for the
                                           client; NULL: none is */
    uint64_t                delay_us;   /* 0 where REJECTED */

    /* set by the start */
    uint64_t                taken_us;   /* when, by the local clock */
    ngx_uint_t              pending;    /* answers that are due */
    ngx_rl_status_e         severity;   /* of the strictest */
    unsigned                permits:1;  /* some are held here */
    ngx_queue_t             holds;      /* of the worker's that do */
};


/*
 * Whether this gateway remembers what Redis has rejected, until the moment that
 * it named. Permits come back at any time, and so do tokens of a strict counter
 * if the response tells the cost.
 */
static ngx_inline ngx_uint_t
ngx_rl_rule_remembers(const ngx_rl_rule_t *rule)
{
    return rule->sync != NGX_RL_SYNC_STRICT || rule->part_limits
           || rule->statuses
           || (rule->limit.algorithm != NGX_RL_CONCURRENCY
               && !(rule->needs & (NGX_RL_NEEDS_SETTLE
                                   |NGX_RL_NEEDS_END)));
}


/* the limit that a counter's answer tells of */
#define ngx_rl_counter_limit(counter)                                         \
    ((counter)->emergency ? (counter)->rule->emergency : (counter)->limit)

/*
 * In a zone with "new_keys=" only the key of a network begins so: a client's
 * value that does is counted by the client's network.
 */
#define NGX_RL_NETWORK_KEY  "network:"

#define ngx_rl_key_is_network(key)                                            \
    ((key)->len >= sizeof(NGX_RL_NETWORK_KEY) - 1                             \
     && ngx_memcmp((key)->data, NGX_RL_NETWORK_KEY,                           \
                   sizeof(NGX_RL_NETWORK_KEY) - 1)                            \
        == 0)

/* what is left of that, by the answer */
#define ngx_rl_counter_remaining(counter)                                     \
    ngx_rl_limit_left(ngx_rl_counter_limit(counter),                          \
                      &(counter)->answer)

/* whether it is why a request is refused that was not known to be too many */
#define ngx_rl_counter_unavailable(counter)                                   \
    ((counter)->source == NGX_RL_SOURCE_FALLBACK                              \
     && (counter)->fail_mode == NGX_RL_FAIL_CLOSED                            \
     && !(counter)->dry_run)

/*
 * The words of a rule's row of counts: tokens taken, then requests by status
 * (from PASSED on) and source (from LOCAL on).
 */
#define NGX_RL_COUNTS_COST  0

#define ngx_rl_counts_word(status, source)                                    \
    (((status) - NGX_RL_PASSED) * NGX_RL_SOURCE_FALLBACK                      \
     + (source))

/* whether the request does not pass */
#define ngx_rl_check_refused(check)                                           \
    ((check)->status >= NGX_RL_UNAVAILABLE)


/*
 * Completes a rule, before or behind ngx_rl_policy_complete(). May run
 * in a thread. Returns NGX_OK, or NGX_ERROR when memory is out.
 */
ngx_int_t ngx_rl_check_prepare(ngx_rl_rule_t *rule, ngx_pool_t *pool);

/*
 * Runs a check. Returns NGX_OK when it is complete: status, decisive and
 * strictest tell the outcome. Or NGX_AGAIN: the handler is called once, later,
 * when all counters have answered, unless the check ends before. The handler
 * calls ngx_rl_check_complete() first.
 */
ngx_int_t ngx_rl_check_start(ngx_rl_check_t *check);

/*
 * notes.c, of "ratelimit_once": what makes two requests the same one, and the
 * notes by which their counters know it.
 */
typedef struct {
    uint64_t      time_us;   /* of a note */
    u_char       *text;      /* the request, behind the room for an id */
    size_t        len;       /* of both */
    ngx_rl_id_t   notes[NGX_RL_MAX_COUNTERS];
    uint32_t      paid[NGX_RL_MAX_COUNTERS];
                                    /* before, of a counter; 0: no replay */
} ngx_rl_once_t;

/*
 * The counters of a check are known, and their costs: if this is a replay, it
 * costs what was not paid before. It uses up one of the note's, if use is set.
 */
void ngx_rl_once_begin(ngx_rl_check_t *check, ngx_rl_once_t *once,
    ngx_uint_t use);

/*
 * The check is complete (when is 0), or the response has told the cost of rules
 * with a bit of NGX_RL_NEEDS_SETTLE or END. From here on replays of the
 * request are free, as far as their counters were paid. A rejected replay was
 * none.
 */
void ngx_rl_once_end(ngx_rl_check_t *check, const ngx_rl_once_t *once,
    ngx_uint_t when);

/*
 * notes.c, of rules with "retry=growth". A bit for each counter whose client
 * comes back before it may: then its wait has grown, and check_early() takes
 * the place of check_start().
 */
ngx_uint_t ngx_rl_retry_early(ngx_rl_check_t *check);

/*
 * Rejects the request: takes of no counter and asks nobody. early has a bit for
 * each counter, by its number, whose client had to wait. Always NGX_OK.
 */
ngx_int_t ngx_rl_check_early(ngx_rl_check_t *check, ngx_uint_t early);

/*
 * notes.c, of zones with "new_keys=". Whether the value of the client's key
 * is known on this gateway. If it is, it stays so for a day from now.
 *
 * look: changes nothing.
 */
ngx_uint_t ngx_rl_key_known(ngx_rl_client_t *client, const ngx_rl_rule_t *rule,
    ngx_uint_t look);

/*
 * Whether the value is known by now, or the network may bring one more: then it
 * is known from here on. If not, the network takes the place of the key.
 */
ngx_uint_t ngx_rl_key_admit(ngx_rl_client_t *client, const ngx_rl_rule_t *rule,
    const ngx_str_t *network, ngx_uint_t look);

/*
 * The check was started, is complete and rejects: from here on its client has
 * to wait.
 */
void ngx_rl_retry_note(const ngx_rl_check_t *check);

/* Decides; if the request is rejected, gives back what counters granted. */
void ngx_rl_check_complete(ngx_rl_check_t *check);

/*
 * The response says what the request costs: takes each counter's charge (and
 * owes what is not there, up to the capacity) and gives back its refund. Local
 * counters' answers show it at once; nobody waits for Redis. Called when the
 * check is complete and the request passes, and before its end.
 */
void ngx_rl_check_settle(ngx_rl_check_t *check);

/*
 * Counts what the request costs where the response's header may have changed
 * that: once, before settle, or at its end if it had no response.
 */
void ngx_rl_check_cost(const ngx_rl_check_t *check);

/*
 * The request ends: forgets the calls under way and frees its concurrency
 * permits. Called once for every check that was started.
 */
void ngx_rl_check_leave(ngx_rl_check_t *check);

static ngx_inline void
ngx_rl_check_end(ngx_rl_check_t *check)
{
    if (check->remote || check->permits) {
        ngx_rl_check_leave(check);
    }
}

/*
 * Names the client in Redis, the same on every gateway: 16 bytes of a keyed
 * hash, valid as long as the client.
 */
const u_char *ngx_rl_client_hash(ngx_rl_client_t *client);

/*
 * A worker begins to serve, after Redis has started, and ends, before Redis is
 * stopped: then unspent tokens of leases go back. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_refill_begin(ngx_rl_limiter_t *limiter, ngx_log_t *log);
void ngx_rl_refill_end(ngx_rl_limiter_t *limiter);


/*
 * Counters, for the operator: what is left of each, without taking; and its
 * change, on this gateway and in Redis.
 */
typedef struct ngx_rl_look_s  ngx_rl_look_t;

/* Looks made at once. The caller zeroes it and fills the first part. */
typedef struct {
    ngx_pool_t     *pool;
    void          (*handler)(void *data);
    void           *data;

    ngx_rl_look_t  *first;     /* NULL: none */
    ngx_rl_look_t  *last;
    ngx_uint_t      pending;   /* answers of Redis */
    unsigned        failed:1;  /* memory is out: some are UNREACHABLE */
} ngx_rl_looks_t;

/*
 * The caller zeroes it, fills the first part, and keeps the memory, and what
 * the rule is of, until it has ended.
 */
struct ngx_rl_look_s {
    ngx_rl_limiter_t      *limiter;
    const ngx_rl_rule_t   *rule;
    const ngx_rl_limit_t  *limit;  /* NULL: not known, and the outcome has no
                                      answer */
    uint32_t               used;   /* of a reset: tokens that the fresh counter
                                      has used */
    uint32_t               add;    /* tokens that come back, as far as they are
                                      used */
    unsigned               reset:1;
    ngx_str_t              key;

    /* the outcome */
    ngx_rl_redis_status_e  status;   /* why Redis has no answer */
    ngx_rl_answer_t        answer;   /* remaining, reset_us */
    uint64_t               wait_us;  /* on this gateway: until then no request
                                        passes; 0: none */
    unsigned               done:1;   /* a change: Redis has done it, or may
                                        have, or in part */

    /* the engine's */
    ngx_rl_looks_t          *all;
    ngx_rl_look_t           *next;
    ngx_rl_check_t           check;
    ngx_rl_remote_check_t    remote_check;
    ngx_rl_client_t          client;
    ngx_rl_remote_client_t   remote_client;
    ngx_rl_counter_t         counter;
    ngx_rl_remote_t          remote;
    unsigned                 giving:1;  /* its call gives back */
    ngx_rl_redis_call_t     *call;
};

/* One more, before looks_start(). */
void ngx_rl_look_add(ngx_rl_looks_t *all, ngx_rl_look_t *look);

/*
 * Looks at what is left of the counters, after the change if there is one. For
 * a counter in Redis that is what Redis says, without the tokens that gateways
 * hold in leases; for a split counter it is the sum of its parts. Returns
 * NGX_OK: the outcomes are there; NGX_AGAIN: the handler will be called once,
 * later, unless looks_end() comes before.
 *
 * reset makes a counter a fresh one, on this gateway and in Redis, or sets what
 * it has used. Requests that run keep their permits. add gives tokens back,
 * those that would be used for longest first. Other gateways go on with their
 * leases, and remember the counter's rejections until they hear of the change
 * (a RESET of ngx_rl_follow_call()).
 */
ngx_int_t ngx_rl_looks_start(ngx_rl_looks_t *all);

/* Once, not by the handler: forgets what is due. */
void ngx_rl_looks_end(ngx_rl_looks_t *all);

#endif /* NGX_RL_CHECK_H_INCLUDED */

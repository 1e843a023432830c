/*
 * Rules: which requests are limited, counted by what, to how much.
 *
 *     nginx.conf   document (JSON)     both are read into drafts, parameter by
 *          |          |                parameter; a draft becomes a rule
 *     +----v----------v-----------+
 *     | policy                    |    the compiled whole, of one version
 *     |  allow, deny: clients     |    sets of keys, globs and networks
 *     |  tier sources: clients    |    -> the tier of a request
 *     |  overrides                |    an amount, or a factor, for some time
 *     |  rules                    |
 *     |   match, key, cost        |
 *     |   spec                    |    the limit as it is written
 *     |   limit                   |    its numbers, by which counters go
 *     |   allowances: spec, limit |    the same of a tier or a key
 *     +------------^--------------+
 *                  | limiter           a zone with its policy and its Redis:
 *                  +                   what a location refers to
 *
 * An amount is what a tier, a key or an override says of a limit: with the
 * rule's spec it makes another spec, and that a limit.
 *
 * The layer above evaluates a rule's key and rate at a request. Here they are
 * numbers and bytes: this layer knows no variables.
 */

#ifndef NGX_RL_RULE_H_INCLUDED
#define NGX_RL_RULE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_limit.h"
#include "ngx_rl_match.h"
#include "ngx_rl_limit.h"
#include "ngx_rl_peers.h"
#include "ngx_rl_redis.h"
#include "ngx_rl_store.h"
#include "ngx_rl_date.h"
#include "ngx_rl_watch.h"
#include "ngx_rl_zone.h"

#define NGX_RL_RULE_FIELD  8   /* bytes of a counter's name in Redis */

/* The request's outcome when its counter in Redis has no answer. */
typedef enum {
    NGX_RL_FAIL_DEFAULT = 0,  /* of a rule: what the location says */
    NGX_RL_FAIL_OPEN,         /* passes */
    NGX_RL_FAIL_LOCAL,        /* counts on this gateway */
    NGX_RL_FAIL_CLOSED        /* is refused */
} ngx_rl_fail_mode_e;

/* How exactly a counter in Redis is followed, and how many calls that costs. */
typedef enum {
    NGX_RL_SYNC_LEASE = 0,    /* tokens that Redis has debited before */
    NGX_RL_SYNC_STRICT,       /* a call for every check */
    NGX_RL_SYNC_ASYNC         /* debited behind; nobody waits */
} ngx_rl_sync_e;

#define NGX_RL_MAX_SHARDS  64   /* of one counter */
#define NGX_RL_MAX_REGIONS 64   /* with one limit */

/*
 * Bits of the steps that a rule needs at each request, beside reading its key.
 * A rule without bits applies to every request that has the key, with its own
 * limit and cost. A policy has the bits of its rules and its lists.
 */
#define NGX_RL_NEEDS_MATCH    0x01   /* whether it matches */
#define NGX_RL_NEEDS_ROUTE    0x02   /* by a template: see find() */
#define NGX_RL_NEEDS_KEY      0x04   /* an API key */
#define NGX_RL_NEEDS_DIGEST   0x08   /* that key's digest */
#define NGX_RL_NEEDS_GROUP    0x10   /* whether its group has another */
#define NGX_RL_NEEDS_PERCENT  0x20   /* whether its share has the key */
#define NGX_RL_NEEDS_LIMIT    0x40   /* by tier, key, variable, time */
#define NGX_RL_NEEDS_COST     0x80   /* a variable */
#define NGX_RL_NEEDS_SETTLE   0x100  /* the response */
#define NGX_RL_NEEDS_REDIS    0x200  /* or peers */
#define NGX_RL_NEEDS_ADDRESS  0x400  /* the client's */
#define NGX_RL_NEEDS_RETRY    0x800  /* whether the client has waited */
#define NGX_RL_NEEDS_PENALTY  0x1000 /* whether a key is penalized */
#define NGX_RL_NEEDS_END      0x2000 /* the response's end, beside it */
#define NGX_RL_NEEDS_LISTS    0x4000 /* whether a list has the client */
#define NGX_RL_NEEDS_NEW_KEYS 0x8000 /* whether its key is known */

/* and up, of a location: the layer above has them in the same word */
#define NGX_RL_NEEDS_ABOVE    0x1000000

/* with one of these, more of a request is needed than the keys of rules */
#define NGX_RL_NEEDS_SUBJECT                                                  \
    (NGX_RL_NEEDS_MATCH|NGX_RL_NEEDS_LIMIT                                    \
     |NGX_RL_NEEDS_KEY|NGX_RL_NEEDS_ADDRESS                                    \
     |NGX_RL_NEEDS_LISTS)

#define NGX_RL_MAX_PARTS   8    /* of a key */
#define NGX_RL_PART_END    0x1f /* between them */
#define NGX_RL_PART_QUOTE  0x1e /* in a part of several before one of these
                                   two, which has another bit */
#define NGX_RL_PART_BIT    0x20

typedef struct ngx_rl_policy_s   ngx_rl_policy_t;
typedef struct ngx_rl_clients_s  ngx_rl_clients_t;
typedef struct ngx_rl_limiter_s  ngx_rl_limiter_t;
typedef struct ngx_rl_fleet_s    ngx_rl_fleet_t;    /* the engine's */

/* A limit as it is written, and as it is used. */
typedef struct {
    ngx_rl_spec_t    spec;
    ngx_rl_limit_t   limit;
} ngx_rl_allowance_t;

typedef struct {
    ngx_str_t           tier;
    ngx_rl_allowance_t  allowance;
} ngx_rl_tier_limit_t;

/* Conditions whose values the layer above reads, with rule->data. */
typedef enum {
    NGX_RL_IF_HEADER = 0,
    NGX_RL_IF_ARG,
    NGX_RL_IF_VALUE
} ngx_rl_condition_e;

typedef struct {
    ngx_rl_condition_e  kind;
    ngx_str_t           name;     /* of VALUE the text with variables */
    ngx_rl_glob_text_t  glob;     /* of VALUE none */
    unsigned            other:1;  /* in place of the one before it, which has
                                     the same name */
} ngx_rl_condition_t;

#define NGX_RL_MAX_CONDITIONS  32   /* of a rule */

typedef struct {
    ngx_str_t               id;
    ngx_str_t               key;         /* as written; of more than one part
                                            with 0x1f between them */
    ngx_uint_t              nparts;      /* of a document's rule, else 0 */
    ngx_str_t              *parts;       /* as written */
    uint32_t                key_index;   /* in the policy's keys */

    /* match: nothing set matches every request */
    ngx_uint_t              methods;     /* bits; 0 for any */
    ngx_str_t               route;       /* a checked path template */
#if (NGX_PCRE)
    ngx_regex_t            *regex;
#endif
    ngx_str_t               regex_text;  /* to be compiled by finish(), with or
                                            without "~", "~*" before it */
    ngx_uint_t              nhosts;      /* 0: any */
    ngx_rl_glob_text_t  *hosts;          /* globs, in lower case */
    ngx_rl_clients_t  *api_keys;         /* NULL: any, also none */
    ngx_str_t        tier;               /* empty: any, also none */
    ngx_rl_networks_t  *networks;        /* NULL: any, also none */
    ngx_uint_t              nconditions; /* 0: any request */
    ngx_rl_condition_t  *conditions;
    ngx_uint_t       percent;            /* of the keys; 100: all */
    ngx_rl_week_t    active;             /* when it applies, if it is timed */
    const ngx_rl_tz_t  *active_tz;    /* by whose clock; NULL: UTC */

    /* of the rules of one group the first that applies; empty: no group */
    ngx_str_t               group;
    ngx_int_t               priority;    /* the higher the earlier */

    /* limit: prepared where dynamic is 0, else made of spec at each request */
    ngx_rl_spec_t    spec;
    ngx_rl_limit_t   limit;
    ngx_uint_t       ntier_limits; /* other limits, by tier, and */
    ngx_rl_tier_limit_t  *tier_limits;
    ngx_rl_map_t     keys;        /* by the digest of an API key, */
    ngx_rl_map_t     own_keys;    /* and of a value of the rule's key */
    ngx_rl_allowance_t  *key_limits;  /* by what these have */
    unsigned         dynamic:1;
    unsigned         narrowed:1;  /* by a location's own burst or delay */
    uint32_t         dry_run;     /* 1: it counts, and never rejects */
    ngx_rl_sync_e    sync;        /* STRICT where the algorithm or statuses
                                     bear nothing else */
    uint32_t         shards;      /* of a counter; 0: not split */

    /* what a request costs */
    uint32_t                cost;        /* where it is no variable; 1 */
    unsigned                dynamic_cost:1;
    ngx_str_t               cost_header; /* in lower case; empty: none */
    ngx_str_t               cost_end;    /* as written; empty: none */
    uint64_t                cost_every;  /* bytes of a response, after which
                                            its end is looked at before it has
                                            come; 0: never */
    ngx_array_t            *statuses;    /* ngx_uint_t: a response with one of
                                            these counts; NULL: each request */

    uint32_t                retry_growth;  /* 1: the wait of a client that
                                              comes back too early grows */

    /* while Redis has no answer */
    ngx_rl_fail_mode_e  fail_mode;
    ngx_rl_limit_t     *emergency;  /* of requests; NULL: none */
    uint32_t            regions;    /* async: that share the limit; 0: each
                                       gateway has all of it */

    /* made by ngx_rl_policy_complete(); numbers by the engine */
    ngx_rl_policy_t *policy;      /* whose it is */
    ngx_uint_t       number;      /* of nginx.conf: in policy->fixed; of a
                                     document: its place there, from
                                     policy->nfixed on */
    ngx_uint_t       rank;        /* in the order of application */
    ngx_uint_t       needs;       /* at each request: bits */
    uint32_t         row;         /* of its counts, while it is in use; 0: none
                                     of its own */
    unsigned         skipped:1;   /* by finish(): it matches none */
    unsigned         disabled:1;  /* the same, by its "enabled" */
    unsigned         timed:1;     /* it has active times */
    ngx_uint_t       group_index; /* of the policy; 0: none; dry runs have
                                     another */
    ngx_rl_id_t      salt;
    ngx_rl_id_t      emergency_salt;
    ngx_rl_id_t      key_salt;    /* of the key, as written, alone */
    u_char           field_salt[NGX_RL_RULE_FIELD];
    ngx_str_t        numbers;     /* of a take by the rule's own limit, as
                                     Redis reads them */
    ngx_str_t        limit_numbers;   /* the limit's among them */
    ngx_rl_limit_t  *part_limits; /* of the first and the last part of a split
                                     counter; NULL: not split */

    void                   *data;        /* the layer above: its values */
} ngx_rl_rule_t;


/*
 * Methods of the layers above, for the compiler of documents. They may run in a
 * thread.
 *
 * values: makes rule->data, in pool, of rule->parts, rule->conditions,
 * rule->cost_end and the texts of limit and cost, which are empty if these are
 * constant. Returns NULL, or the expected value as a constant string ("a known
 * variable"); then *which is the parameter's number (ngx_rl_param_e), or, of a
 * part of the key, NGX_RL_PARAM_ALL and the part's. "": memory is out.
 *
 * prepare: is the last step of making a rule. NGX_ERROR: memory is out.
 */
typedef struct {
    const char  *(*values)(void *data, ngx_rl_rule_t *rule,
                           const ngx_str_t *limit, const ngx_str_t *cost,
                           ngx_pool_t *pool, ngx_uint_t *which);
    void          *data;
    ngx_int_t    (*prepare)(ngx_rl_rule_t *rule, ngx_pool_t *pool);
    ngx_uint_t   (*method)(const u_char *name, size_t len);  /* bit; 0: none */
} ngx_rl_above_t;

struct ngx_rl_limiter_s {
    ngx_rl_zone_t    zone;
    ngx_rl_redis_t  *redis;      /* NULL: this gateway alone */
    void            *refills;    /* the worker's, of leases; or NULL */
    uint32_t         rows[NGX_RL_COUNTS_KINDS];  /* its counts */

    ngx_rl_policy_t *policy;     /* that requests go by now */
    ngx_rl_policy_t *base;       /* of nginx.conf alone */
    ngx_rl_watch_t  *watch;      /* NULL: no endpoint shows it */
    ngx_array_t     *penalties;  /* ngx_rl_penalty_t * of the engine; NULL:
                                    none */
    void            *penalty_sync;  /* the worker's, or NULL */
    const ngx_rl_limit_t  *new_keys;  /* of values of each key that a network
                                         may bring; NULL: any */

    /* of a zone that follows a document */
    ngx_rl_above_t   above;
    ngx_rl_store_t  *store;      /* NULL: it follows none */
    ngx_str_t        state;      /* file; empty: none */
    unsigned         follows:1;
    unsigned         clear:1;    /* keeps API keys in the clear */
    unsigned         folds:1;    /* a location has no template for each path:
                                    see key_folds() */
    ngx_uint_t       fail_modes; /* of the locations: bits */
    void            *follow;     /* the worker's */

    ngx_rl_fleet_t  *fleet;      /* NULL: no peers */
    ngx_rl_peers_t  *peers;      /* of that; NULL if the zone has Redis, too */
    uint32_t         fleet_zone; /* hash of its name, the same on all */
    ngx_rl_store_t  *proposals;  /* records for another gateway to decide; NULL:
                                    no document, or no peers decide */
};


/*
 * The spec of a rule with what text says: a rate or a word for a limit; a
 * number of tokens or a word where the spec has a period, a calendar or
 * permits. Returns NULL, or what was expected as a constant string.
 */
const char *ngx_rl_rule_spec(const ngx_rl_spec_t *spec, const ngx_str_t *text,
    ngx_rl_spec_t *made);

/* How it decides without Redis, in a location with that fail_mode. */
ngx_rl_fail_mode_e ngx_rl_rule_fail_mode(
    const ngx_rl_rule_t *rule, ngx_rl_fail_mode_e location);

extern const char *const  ngx_rl_fail_mode_names[];   /* from OPEN on */

/*
 * A worker begins to serve: finds the rows of counts of the zone and of its
 * rules of nginx.conf.
 */
void ngx_rl_limiter_begin(ngx_rl_limiter_t *limiter);

/* Milliseconds since the epoch, as nginx has them in this turn of its loop. */
static ngx_inline uint64_t
ngx_rl_wall_ms(void)
{
    ngx_time_t  *now;

    now = ngx_timeofday();

    return (uint64_t) now->sec * 1000 + now->msec;
}

static ngx_inline ngx_str_t
ngx_rl_str(u_char *data, size_t len)
{
    ngx_str_t  text;

    text.len = len;
    text.data = data;

    return text;
}

static ngx_inline ngx_uint_t
ngx_rl_equal(const ngx_str_t *one, const ngx_str_t *two)
{
    return one->len == two->len
           && (one->len == 0
               || ngx_memcmp(one->data, two->data, one->len) == 0);
}

/* Combined with the hash of a value, names it among those of one key. */
ngx_rl_id_t ngx_rl_key_salt(const ngx_str_t *key);

/* Whether a key is in the rule's percent, the same on every gateway. */
ngx_uint_t ngx_rl_rule_percent(const ngx_rl_rule_t *rule, const ngx_str_t *key);

#endif /* NGX_RL_RULE_H_INCLUDED */

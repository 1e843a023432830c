/*
 * A policy: all that a zone's nginx.conf and its document say, compiled, as it
 * is from one moment to the next. It is made by one worker for itself, is not
 * changed any more when it is in use, and is freed when no request uses it.
 */

#ifndef NGX_RL_POLICY_H_INCLUDED
#define NGX_RL_POLICY_H_INCLUDED

#include "ngx_rl_rule.h"

#include "ngx_rl_route.h"

/* of a document: all of them at once, each with its place */
#define NGX_RL_MAX_PROBLEMS  100   /* kept; the others are counted */

typedef struct {
    ngx_str_t    pointer;   /* RFC 6901: "/rules/3/params/capacity" */
    ngx_str_t    detail;    /* "must be > 0" */
    ngx_str_t    id;        /* of the rule or override; or empty */
} ngx_rl_problem_t;

typedef struct {
    ngx_pool_t  *pool;
    ngx_array_t  list;      /* ngx_rl_problem_t */
    ngx_uint_t   n;         /* all of them */
} ngx_rl_problems_t;

/* of a list: seconds since the epoch, when the entry ends; it counts before */
#define NGX_RL_CLIENT_ALWAYS  (NGX_RL_MAP_NONE - 1)

typedef enum {
    NGX_RL_CLIENT_KEY = 0,     /* of an API key: its digest */
    NGX_RL_CLIENT_GLOB,        /* of API keys; checked */
    NGX_RL_CLIENT_NETWORK
} ngx_rl_known_e;

typedef struct {
    ngx_rl_known_e     kind;
    uint32_t            value;     /* not NONE of the map */
    ngx_str_t           glob;      /* not copied */
    u_char              digest[NGX_RL_MAP_KEY];
    ngx_rl_network_t    network;   /* without its value */
} ngx_rl_known_t;

/*
 * A set of clients, each with a value: of the deny list and the allow list, of
 * "api_key=" and "network=", of a source of tiers.
 */
struct ngx_rl_clients_s {
    ngx_rl_map_t        digests;   /* of API keys */
    ngx_rl_globs_t     *globs;     /* or NULL */
    uint32_t           *glob_values;  /* by their numbers, the greatest first */
    ngx_rl_networks_t  *networks;  /* or NULL */
    unsigned            all:1;     /* of a document's list: it has everybody */
};

/*
 * A limit for some time, of "overrides". The overrides of one key are a list.
 */
typedef struct {
    ngx_str_t         id;
    ngx_str_t         rule_id;    /* empty: of any rule */
    time_t            expires;    /* seconds since the epoch; 0: never */
    uint64_t          millionths; /* 0: absolute */
    ngx_rl_amount_t   amount;     /* absolute */
    uint32_t          next;       /* of the same key; NONE of the map */
} ngx_rl_override_t;

/*
 * Values of a rule's key that lists and tiers name; of the API key, which is
 * the first source, tiers alone.
 */
typedef struct {
    ngx_rl_rule_t    *rule;       /* NULL: the API key */
    ngx_rl_clients_t  deny;
    ngx_rl_clients_t  allow;
    ngx_rl_clients_t  tiers;      /* -> tiers of the policy */
    unsigned          listed:1;   /* a list is not empty */
} ngx_rl_policy_source_t;

struct ngx_rl_policy_s {
    ngx_pool_t         *pool;       /* its own; NULL: of the cycle, whatever
                                       refs is */
    ngx_uint_t          refs;
    ngx_rl_limiter_t   *limiter;
    uint64_t            version;    /* of the document; 0: none */
    uint64_t            id;

    ngx_array_t         rules;      /* ngx_rl_rule_t *, by rank once it is
                                       complete */
    ngx_rl_rule_t     **fixed;      /* of nginx.conf, by their numbers */
    ngx_uint_t          nfixed;
    ngx_uint_t          nkeys;      /* distinct keys of the rules */
    ngx_uint_t          ngroups;    /* distinct groups */
    ngx_uint_t          most;       /* rules that may apply at once */
    void               *index;      /* which rules a path may match */
    ngx_str_t          *cost_headers;  /* distinct, of the rules */
    ngx_uint_t          ncost_headers;

    ngx_rl_clients_t    allow;      /* beside those of limiter->base */
    ngx_rl_clients_t    deny;
    ngx_array_t         sources;    /* ngx_rl_policy_source_t, of a document */
    ngx_str_t          *tiers;      /* from 1 on: that of the first pattern
                                       behind those of later ones */

    ngx_rl_map_t        override_keys; /* -> overrides, a first one */
    ngx_rl_override_t *overrides;

    ngx_uint_t                 needs;      /* at each request: bits */
    unsigned                   tenants:1;  /* a limit for some time depends on
                                              another part of a key; by who
                                              compiles a document */

    ngx_uint_t                 finished;   /* rules, by finish() */
    size_t                     regex_bytes; /* compiled by it */

    ngx_rl_problems_t   skipped;    /* what of a stored document does not count
                                       on this gateway, and why */
};


/* Returns NGX_OK, or NGX_ERROR when memory is out. */
ngx_int_t ngx_rl_problems_init(ngx_rl_problems_t *problems, ngx_pool_t *pool);

/*
 * Adds one: all texts are copied; detail is a format of ngx_sprintf(). id: of
 * the rule or override; or NULL.
 */
void ngx_rl_problem(ngx_rl_problems_t *problems, const ngx_str_t *id,
    const ngx_str_t *pointer, const char *detail, ...);

/*
 * clients.c: the maps know an API key by the first bytes of its SHA-256.
 * A text like "sha256:<64 hexadecimal digits>" is that hash itself.
 * $ratelimit_api_key has this form for no other keys. hashed: whether a text
 * has this form. part_digest: the digest of a part of a key; part is
 * "$http_x_tenant", as the rule has it; joined: the value is from a key that
 * join() has made. value_digest: that of the value which a
 * request has of the rule's key: where the key is not $ratelimit_api_key, the
 * client may have written that form itself, and it is no hash. value_hashed:
 * whether the value of a key written so is a hash.
 */
void ngx_rl_policy_digest(const ngx_str_t *key, u_char digest[NGX_RL_MAP_KEY]);
void ngx_rl_policy_value_digest(const ngx_rl_rule_t *rule,
    const ngx_str_t *value, u_char digest[NGX_RL_MAP_KEY]);
ngx_uint_t ngx_rl_policy_hashed(const ngx_str_t *key);
ngx_uint_t ngx_rl_policy_value_hashed(const ngx_str_t *written,
    const ngx_str_t *value);
void ngx_rl_policy_part_digest(const ngx_str_t *part, const ngx_str_t *value,
    ngx_uint_t joined, u_char digest[NGX_RL_MAP_KEY]);

/*
 * Makes one key of n parts, whose bytes no other parts give. A key of one part
 * is that. Empty: all parts are. Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_policy_join(const ngx_str_t *parts, ngx_uint_t n,
    ngx_pool_t *pool, ngx_str_t *key);

/*
 * Makes a zeroed set of n clients, which it sorts. If clients are equal, the
 * greatest value counts. Returns NGX_OK, or NGX_ERROR when memory is out, as
 * those below do.
 */
ngx_int_t ngx_rl_clients_make(ngx_rl_clients_t *set, ngx_rl_known_t *clients,
    ngx_uint_t n, ngx_pool_t *pool);

/* An empty map with room for n, in the pool. */
ngx_int_t ngx_rl_clients_map(ngx_rl_map_t *map, ngx_pool_t *pool, size_t n);

/* The steps at a request that a list needs: bits. */
ngx_uint_t ngx_rl_clients_needs(const ngx_rl_clients_t *list);

/*
 * While the configuration is read: the limiter's policy of nginx.conf, whose
 * rules are pushed to it, not copied; it stays as long as its cycle. Returns
 * NULL when memory is out.
 */
ngx_rl_policy_t *ngx_rl_policy_base(
    ngx_rl_limiter_t *limiter, ngx_pool_t *pool);

/*
 * A policy with copies of the limiter's rules of nginx.conf, in a pool of its
 * own, with one reference. Rules of a document are pushed to policy->rules.
 * Returns NULL when memory is out. May run in a thread, as complete() may.
 */
ngx_rl_policy_t *ngx_rl_policy_create(
    ngx_rl_limiter_t *limiter, ngx_log_t *log);

/*
 * When all rules are known: orders them (higher priority first, those of
 * nginx.conf before others, then as they came), numbers the distinct keys and
 * groups, names each rule's counters, makes the index. A counter's name depends
 * on the zone, the rule's id, its key as written and its algorithm, so none of
 * them, changed, reads another's counters. Returns NGX_OK, or NGX_ERROR when
 * memory is out.
 */
ngx_int_t ngx_rl_policy_complete(ngx_rl_policy_t *policy);

/*
 * Compiles regular expressions, for about budget_ms at a time; only the event
 * loop may do so. Returns NGX_OK: all is done; NGX_AGAIN: call it once more;
 * NGX_ERROR: memory is out. An expression that does not compile is a problem;
 * if problems is NULL, its rule is skipped.
 */
ngx_int_t ngx_rl_policy_finish(ngx_rl_policy_t *policy, ngx_msec_t budget_ms,
    ngx_rl_problems_t *problems);

/*
 * Compiles rule->regex_text into rule->regex, for the event loop or while the
 * configuration is read. NGX_DECLINED: it does not compile, and the message is
 * in wrong, which has a buffer; NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_rule_regex(ngx_rl_rule_t *rule, ngx_pool_t *pool,
    ngx_str_t *wrong);

/*
 * Finds the rules that a path may match, in their order: all rules without a
 * template, and the rules whose template matches. The time does not depend on
 * the number of other rules. Writes at most max of them to rules and returns
 * how many there are. If there are more, the caller asks again with as much
 * room. A policy that needs no route has all its rules found.
 */
ngx_uint_t ngx_rl_policy_find(const ngx_rl_policy_t *policy,
    const ngx_rl_readings_t *path, ngx_rl_rule_t **rules, ngx_uint_t max);

/* Frees one that nobody uses. Rows of one that never was in use are 0. */
static ngx_inline void
ngx_rl_policy_free(ngx_rl_policy_t *policy)
{
    ngx_uint_t        i;
    ngx_rl_rule_t   **rules;

    rules = policy->rules.elts;

    for (i = 0; i < policy->rules.nelts; i++) {
        if (rules[i]->number >= policy->nfixed) {
            ngx_rl_counts_release(rules[i]->row);
        }
    }

    ngx_destroy_pool(policy->pool);
}


/*
 * One more user; one less: the last one frees it. Here, since each request does
 * both, and a call of a module's global function goes through a table.
 */
static ngx_inline void
ngx_rl_policy_use(ngx_rl_policy_t *policy)
{
    policy->refs++;
}


static ngx_inline void
ngx_rl_policy_release(ngx_rl_policy_t *policy)
{
    policy->refs--;

    if (policy->refs == 0 && policy->pool) {
        ngx_rl_policy_free(policy);
    }
}


/*
 * From now on the limiter's requests go by this one, whose reference it takes
 * over; it gives back that of the one before.
 */
void ngx_rl_policy_swap(ngx_rl_limiter_t *limiter, ngx_rl_policy_t *policy);

#endif /* NGX_RL_POLICY_H_INCLUDED */

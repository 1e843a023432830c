/*
 * The parameters of a rule. Each is a row of one table: nginx.conf, documents,
 * their messages, docs/directives.md and docs/openapi.yaml all come from it.
 *
 * And the draft: a rule while its parameters are read. Both readers fill it,
 * then it becomes a rule in the same way.
 */

#ifndef NGX_RL_PARAM_H_INCLUDED
#define NGX_RL_PARAM_H_INCLUDED

#include "ngx_rl_policy.h"

/* where a parameter may stand: directives, and objects of a document */
#define NGX_RL_IN_LIMIT   0x01   /* "ratelimit" */
#define NGX_RL_IN_ZONE    0x02
#define NGX_RL_IN_RULE    0x04
#define NGX_RL_IN_CONF    0x07
#define NGX_RL_OF_RULE    0x08
#define NGX_RL_OF_MATCH   0x10
#define NGX_RL_OF_PARAMS  0x20
#define NGX_RL_OF_AMOUNT  0x40   /* of a tier, an override */
#define NGX_RL_OF_ACTIVE  0x80   /* of a rule's active times */
#define NGX_RL_OF_DOCUMENT  0xb8

/* bits of a choice; of algorithms, those that have a rate */
#define NGX_RL_BIT(what)  (1u << (what))
#define NGX_RL_RATES      (NGX_RL_BIT(NGX_RL_CONCURRENCY) ^ 0x3f)

/* flags of a parameter */
#define NGX_RL_VARIABLES  0x01   /* it may be text with variables */
#define NGX_RL_CONSTANT   0x02   /* "$" is an error in nginx.conf */
#define NGX_RL_LIST       0x04   /* of such values; an array in JSON */
#define NGX_RL_FILLED     0x08   /* a list that is not empty */
#define NGX_RL_QUIET      0x10   /* 1 in JSON says nothing */
#define NGX_RL_SHARED     0x20   /* beyond its first value it needs Redis */
#define NGX_RL_WORD       0x80   /* "unlimited" is a value of it */
#define NGX_RL_VARYING    0x100  /* a text that must have variables */
#define NGX_RL_NOTE       0x40   /* the document keeps it, for people: of size
                                    bytes at most */

typedef enum {
    NGX_RL_A_NUMBER = 0,  /* a whole one from min to max */
    NGX_RL_A_REAL,
    NGX_RL_A_FLAG,        /* nginx.conf has it without a value */
    NGX_RL_A_CHOICE,      /* of names: the first is stored as min */
    NGX_RL_A_NAME,        /* see ngx_rl_name_valid() */
    NGX_RL_A_TEXT,
    NGX_RL_A_TIME,        /* a text, or seconds in JSON */
    NGX_RL_A_TAG,         /* a text, or a whole number in JSON */
    NGX_RL_AN_OBJECT,
    NGX_RL_A_SIZE,        /* a text: bytes from min to max, "64k" */
    NGX_RL_A_RATE,        /* a text: the rule's own */
    NGX_RL_A_TZ           /* a text: a time zone's name */
} ngx_rl_kind_e;

typedef enum {
    NGX_RL_PARAM_NONE = 0,
    NGX_RL_PARAM_ZONE,
    NGX_RL_PARAM_ID,
    NGX_RL_PARAM_LOOK,
    NGX_RL_PARAM_REDIS,
    NGX_RL_PARAM_PEERS,
    NGX_RL_PARAM_STATE,
    NGX_RL_PARAM_CLEAR,
    NGX_RL_PARAM_NEW_KEYS,
    NGX_RL_PARAM_ALGORITHM,
    NGX_RL_PARAM_PARAMS,
    NGX_RL_PARAM_RATE,
    NGX_RL_PARAM_LIMIT,
    NGX_RL_PARAM_WINDOW,
    NGX_RL_PARAM_TZ,
    NGX_RL_PARAM_MONTH_DAY,
    NGX_RL_PARAM_CAPACITY,
    NGX_RL_PARAM_REFILL_RATE,
    NGX_RL_PARAM_BURST,
    NGX_RL_PARAM_NODELAY,
    NGX_RL_PARAM_DELAY,
    NGX_RL_PARAM_SYNC,
    NGX_RL_PARAM_SHARDS,
    NGX_RL_PARAM_FAIL_MODE,
    NGX_RL_PARAM_EMERGENCY,
    NGX_RL_PARAM_REGIONS,
    NGX_RL_PARAM_DRY_RUN,
    NGX_RL_PARAM_COST,
    NGX_RL_PARAM_COST_HEADER,
    NGX_RL_PARAM_COST_END,
    NGX_RL_PARAM_COST_EVERY,
    NGX_RL_PARAM_COUNT_STATUS,
    NGX_RL_PARAM_RETRY,
    NGX_RL_PARAM_GROUP,
    NGX_RL_PARAM_PRIORITY,
    NGX_RL_PARAM_PERCENT,
    NGX_RL_PARAM_KEY,
    NGX_RL_PARAM_MATCH,
    NGX_RL_PARAM_ROUTE,
    NGX_RL_PARAM_REGEX,
    NGX_RL_PARAM_METHODS,
    NGX_RL_PARAM_TIER,
    NGX_RL_PARAM_HOST,
    NGX_RL_PARAM_API_KEY,
    NGX_RL_PARAM_NETWORK,
    NGX_RL_PARAM_HEADER,        /* in the order of ngx_rl_condition_e */
    NGX_RL_PARAM_ARG,
    NGX_RL_PARAM_IF,
    NGX_RL_PARAM_ACTIVE,
    NGX_RL_PARAM_ACTIVE_DAYS,
    NGX_RL_PARAM_ACTIVE_FROM,
    NGX_RL_PARAM_ACTIVE_TO,
    NGX_RL_PARAM_ACTIVE_TZ,
    NGX_RL_PARAM_TIER_LIMITS,
    NGX_RL_PARAM_KEY_LIMITS,
    NGX_RL_PARAM_OWN_LIMITS,
    NGX_RL_PARAM_ENABLED,
    NGX_RL_PARAM_DESCRIPTION,
    NGX_RL_PARAM_LABELS,
    NGX_RL_PARAM_OWNER,
    NGX_RL_PARAM_VERSION,
    NGX_RL_PARAM_ALL            /* their number */
} ngx_rl_param_e;

typedef struct ngx_rl_draft_s  ngx_rl_draft_t;
typedef struct ngx_rl_param_s  ngx_rl_param_t;

/*
 * Reads a text, or an item of a list, which lives as long as the draft's pool.
 * Returns NULL, or the expected value as a constant string; "": memory is out.
 */
typedef const char *(*ngx_rl_set_pt)(ngx_rl_draft_t *draft,
    const ngx_rl_param_t *param, ngx_str_t *text);

struct ngx_rl_param_s {
    ngx_rl_param_e   id;            /* NONE: the table ends here */
    const char      *conf;          /* in nginx.conf: "rate=", "nodelay"; or
                                       NULL */
    const char      *json;          /* in a document; or NULL */
    ngx_uint_t       in;            /* where it stands: bits */
    ngx_rl_kind_e    kind;
    ngx_uint_t       flags;
    ngx_uint_t       algorithms;    /* that have it: bits; 0: all */
    size_t           offset;        /* in a draft, where it is stored */
    size_t           size;
    int64_t          min;
    int64_t          max;
    const char *const      *names;  /* of a CHOICE; NULL behind them */
    ngx_rl_set_pt    set;           /* NULL: it is stored as it is */
    const char      *expected;      /* for messages; NULL: the rest of the row
                                       says it */
    const char      *standard;      /* without it; for the documentation */
};

/* Parameters that exclude each other; the message is at the first. */
typedef struct {
    ngx_rl_param_e   at;
    ngx_uint_t       at_values;     /* bits of a CHOICE; 0: any */
    ngx_rl_param_e   with;
    ngx_uint_t       with_values;
    const char      *expected;
} ngx_rl_exclusion_t;

struct ngx_rl_draft_s {
    ngx_rl_rule_t    rule;
    ngx_pool_t      *pool;
    ngx_pool_t      *temp;             /* until the rule is made */
    ngx_uint_t       in;               /* where it is read: bits */
    uint64_t         says;             /* bits of ngx_rl_param_e */
    const ngx_rl_above_t  *above;      /* its methods */
    unsigned                unknown:1; /* the algorithm is none */

    /* the limit as it is written; 0: not at all */
    uint64_t                limit;
    uint64_t                capacity;
    uint64_t                window_us;
    uint64_t                tokens;      /* of the rate or the refill rate */
    uint64_t                period_us;
    ngx_rl_calendar_e  calendar;

    ngx_str_t               limit_text;  /* a limit or rate with variables */
    ngx_str_t               cost_text;   /* the same of a cost */
    ngx_array_t            *hosts;
    ngx_array_t            *clients;     /* ngx_rl_known_t */
    ngx_uint_t              nnetworks;   /* among them */

    /* of nginx.conf alone */
    ngx_str_t        zone;        /* "name", "name:size" */
    ngx_str_t        redis;
    ngx_str_t        peers;
    ngx_str_t        state;
    ngx_str_t        tier_limits;
    ngx_uint_t       clear;       /* ngx_uint_t: of "off" and "on" */
    ngx_uint_t       look;        /* of a location: takes nothing */
    ngx_rl_limit_t  *new_keys;    /* NULL: none */

    /*
     * Adds what is wrong with a parameter (NULL: with the limit as a whole).
     * beside: with what else, as in ' beside "rate"'; or "".
     */
    void                  (*wrong)(ngx_rl_draft_t *draft,
                                   const ngx_rl_param_t *param,
                                   const char *beside, const char *expected);
    void                   *data;        /* of wrong() */
    ngx_uint_t              wrongs;      /* the same: problems so far */

    u_char                  text[256];   /* of messages */
};

extern const ngx_rl_param_t      ngx_rl_params[];
extern const ngx_rl_exclusion_t  ngx_rl_exclusions[];

#define ngx_rl_says(draft, param)                                             \
    (((draft)->says >> (param)) & 1)


/* param.c */

/* A draft with the defaults; rule: what of it is known already, or NULL. */
void ngx_rl_draft_init(ngx_rl_draft_t *draft, ngx_uint_t in,
    const ngx_rl_rule_t *rule, ngx_pool_t *pool);

/* The row of a parameter where it may stand, or NULL. */
const ngx_rl_param_t *ngx_rl_param(ngx_rl_param_e id, ngx_uint_t in);

/*
 * Sets a parameter, or adds to a list: what nginx.conf has as text, and JSON
 * as a string; a number that is in its range, or a flag. Returns as set() does.
 */
const char *ngx_rl_param_text(ngx_rl_draft_t *draft,
    const ngx_rl_param_t *param, ngx_str_t *text);
const char *ngx_rl_param_number(ngx_rl_draft_t *draft,
    const ngx_rl_param_t *param, int64_t number);

/* The number that is stored. */
int64_t ngx_rl_param_stored(const ngx_rl_draft_t *draft,
    const ngx_rl_param_t *param);

/*
 * Whether a key, as it is written, counts all clients together and may not be
 * meant to: it has no variable, and is not "all".
 */
ngx_uint_t ngx_rl_key_constant(const ngx_str_t *key);

/* Whether a text has variables whose name begins so, or has it inside. */
ngx_uint_t ngx_rl_names(const ngx_str_t *text, const char *name);

/* Whether a key has $ratelimit_route: each path without a template is one. */
#define ngx_rl_key_folds(key)                                                 \
    ngx_rl_names(key, "ratelimit_route")

/* Whether a limit is a claim: without a token that has it there is none. */
#define ngx_rl_limit_claimed(text)                                            \
    ngx_rl_names(text, "ratelimit_jwt_")

/* Whether a document may have a tier of that name. */
ngx_uint_t ngx_rl_tier_valid(const ngx_str_t *tier);

/* Whether a text has variables. */
ngx_uint_t ngx_rl_variables_in(const ngx_str_t *text);


/* A zeroed one, which the rule is for; NULL: memory is out. */
ngx_rl_known_t *ngx_rl_draft_client(ngx_rl_draft_t *draft, ngx_rl_known_e kind);


/* draft.c: when all parameters are read */

/* Finds parameters that exclude each other. Problems go to draft->wrong(). */
void ngx_rl_draft_exclude(ngx_rl_draft_t *draft);

/*
 * The same, and parameters that the algorithm does not have. Sets the defaults
 * that depend on other parameters.
 */
void ngx_rl_draft_combine(ngx_rl_draft_t *draft);

/*
 * The rule's networks and API keys, when all parameters are read. Returns
 * NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_draft_clients(ngx_rl_draft_t *draft);

/*
 * The rule's spec and limit, of parameters that are right each for itself.
 * Returns NGX_OK, or NGX_DECLINED with the problem added.
 */
ngx_int_t ngx_rl_draft_limit(ngx_rl_draft_t *draft);

/* Whether the counters of a rule with a limit can be split. The same. */
ngx_int_t ngx_rl_draft_split(ngx_rl_draft_t *draft);

/*
 * The amount as it is written. bucket: the algorithm has a capacity of its own;
 * without one the capacity is the limit.
 */
void ngx_rl_draft_amount(const ngx_rl_draft_t *draft, ngx_uint_t bucket,
    ngx_rl_amount_t *amount);

#endif /* NGX_RL_PARAM_H_INCLUDED */

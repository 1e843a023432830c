/*
 * A request as a policy sees it, and the decisions of the policy: the lists
 * that the request is on, the rules that match it, and its limits.
 */

#ifndef NGX_RL_SUBJECT_H_INCLUDED
#define NGX_RL_SUBJECT_H_INCLUDED

/* nginx's headers first: they say what libc offers */
#include "ngx_rl_policy.h"

#include "ngx_rl_tally.h"

typedef struct {
    ngx_uint_t                method;      /* bit */
    ngx_str_t                 path;        /* decoded */
    const ngx_rl_readings_t  *readings;    /* of it */
    ngx_str_t                 host;        /* in lower case, without port */
    ngx_str_t                 api_key;     /* empty: none */
    ngx_str_t                 tier;        /* by this policy */
    u_char                    address[NGX_RL_ADDRESS];
    ngx_str_t                 failed;      /* the name of the condition */
    ngx_log_t                *log;
    ngx_rl_log_limit_t       *log_limit;   /* of expressions that give up */
    unsigned                  addressed:1; /* the address is known */
    unsigned                  digested:1;  /* there is a key, and this is its
                                              digest */
    u_char                    digest[NGX_RL_MAP_KEY];
} ngx_rl_subject_t;

/* why a rule does not apply; from GROUP_TAKEN on the engine's caller knows */
typedef enum {
    NGX_RL_MATCHED = 0,
    NGX_RL_OTHER_METHOD,
    NGX_RL_OTHER_PATH,
    NGX_RL_OTHER_HOST,
    NGX_RL_OTHER_API_KEY,
    NGX_RL_OTHER_TIER,
    NGX_RL_OTHER_NETWORK,
    NGX_RL_OTHER_HEADER,  /* the caller knows: in the order of
                             ngx_rl_condition_e */
    NGX_RL_OTHER_ARG,
    NGX_RL_OTHER_VALUE,
    NGX_RL_SKIPPED,
    NGX_RL_DISABLED,
    NGX_RL_NOT_ACTIVE,    /* now */
    NGX_RL_GROUP_TAKEN,   /* another rule of its group applies */
    NGX_RL_KEY_EMPTY,
    NGX_RL_NOT_IN_SHARE,  /* percent */
    NGX_RL_UNLIMITED,
    NGX_RL_LIMIT_EMPTY,   /* a variable */
    NGX_RL_LIMIT_WRONG,   /* what a variable said */
    NGX_RL_TOO_MANY,      /* rules for one request */
    NGX_RL_MATCHES        /* the number of those above */
} ngx_rl_match_e;

/* of lists: the deny list comes before the allow list */
typedef enum {
    NGX_RL_LISTED_NOT = 0,
    NGX_RL_LISTED_ALLOWED,
    NGX_RL_LISTED_DENIED
} ngx_rl_listed_e;

/* where a limit comes from */
typedef enum {
    NGX_RL_ORIGIN_RULE = 0,
    NGX_RL_ORIGIN_TIER,
    NGX_RL_ORIGIN_KEY,    /* the rule's "limits_by_api_key" */
    NGX_RL_ORIGIN_RULE_KEY    /* the rule's "limits_by_key" */
} ngx_rl_origin_e;


/* "method", "path", ...; of MATCHED "matched" */
extern const char *const  ngx_rl_match_names[NGX_RL_MATCHES];

/* "rule", "tier", "key", "rule_key" */
extern const char *const  ngx_rl_origin_names[];

/* Sets the digest, where there is a key. */
void ngx_rl_subject_digest(ngx_rl_subject_t *subject);

/* Reads the value of a rule's key; empty: there is none. NGX_OK, NGX_ERROR. */
typedef ngx_int_t (*ngx_rl_key_of_pt)(void *data,
    ngx_rl_rule_t *rule, ngx_str_t *key);

/*
 * Sets the tier: the one that the policy assigns to the API key, to the key of
 * the first rule that has one, that of the first pattern that any of these
 * matches, or what the location says. NGX_OK, or NGX_ERROR of key_of().
 */
ngx_int_t ngx_rl_subject_tier(ngx_rl_subject_t *subject,
    const ngx_rl_policy_t *policy, const ngx_str_t *otherwise,
    ngx_rl_key_of_pt key_of, void *data);

/*
 * Which list has the API key or the address now (seconds since the epoch): of
 * the policy and of nginx.conf. listed_key: the list that has a value of the
 * key of the source's rule.
 */
ngx_rl_listed_e ngx_rl_policy_listed(const ngx_rl_policy_t *policy,
    const ngx_rl_subject_t *subject, time_t now);
ngx_rl_listed_e ngx_rl_policy_listed_key(const ngx_rl_policy_source_t *source,
    const ngx_str_t *key, time_t now);

/*
 * Whether a rule applies to this request, before its key is known. found:
 * ngx_rl_policy_find() has found the rule for this path, so its template
 * matches. If a regular expression fails (logged), the rule matches: no path
 * evades its limit.
 */
ngx_rl_match_e ngx_rl_rule_match(const ngx_rl_rule_t *rule, ngx_uint_t found,
    ngx_rl_subject_t *subject);

/*
 * Whether the rule matches the path however a server reads it. If not, another
 * rule of its group applies, too: else a client could choose between them.
 */
ngx_uint_t ngx_rl_rule_every(const ngx_rl_rule_t *rule,
    const ngx_rl_subject_t *subject);

/*
 * Finds the allowance in the rule: of its key, which has this value, else of
 * the API key, else of the tier. Returns NULL if the rule's own limit applies.
 * origin may be NULL.
 */
const ngx_rl_allowance_t *ngx_rl_rule_allowance(
    const ngx_rl_rule_t *rule, const ngx_rl_subject_t *subject,
    const ngx_str_t *key, ngx_rl_origin_e *origin);

/*
 * The override that is on top of that now (seconds since the epoch),
 * for the rule's key of this request; NULL: none. One that names the rule comes
 * before one that names none, among those the last one of the document.
 */
const ngx_rl_override_t *ngx_rl_policy_override(
    const ngx_rl_policy_t *policy, const ngx_rl_rule_t *rule,
    const ngx_rl_subject_t *subject, const ngx_str_t *key, time_t now);

/*
 * Makes the limit that an override makes of a spec. Returns NULL, or the
 * expected value as a constant string: it does not fit, and the rule's limit
 * stays.
 */
const char *ngx_rl_override_limit(const ngx_rl_override_t *override,
    const ngx_rl_spec_t *base, ngx_rl_limit_t *limit);

#endif /* NGX_RL_SUBJECT_H_INCLUDED */

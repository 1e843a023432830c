/*
 * Reading a rule of a document: what the files that do it share. Inside
 * src/rules/ngx_ratelimit_{rule,match,combine,tiers}_json.c only.
 */

#ifndef NGX_RATELIMIT_RULE_JSON_H_INCLUDED
#define NGX_RATELIMIT_RULE_JSON_H_INCLUDED

#include "ngx_ratelimit_read_json.h"

#define NGX_RATELIMIT_OF(algorithm)  (1u << NGX_RATELIMIT_##algorithm)
#define NGX_RATELIMIT_OF_ANY         0x3f
#define NGX_RATELIMIT_OF_RATES                                                \
    (NGX_RATELIMIT_OF_ANY ^ NGX_RATELIMIT_OF(CONCURRENCY))
#define NGX_RATELIMIT_OF_LEASES                                               \
    (NGX_RATELIMIT_OF_RATES ^ NGX_RATELIMIT_OF(SLIDING_LOG))
#define NGX_RATELIMIT_OF_SHARDS                                               \
    (NGX_RATELIMIT_OF_LEASES ^ NGX_RATELIMIT_OF(LEAKY_BUCKET))

/* What a rule says, as far as it matters for what else it may say: bits. */
#define NGX_RATELIMIT_RULE_TIERS           0x0004
#define NGX_RATELIMIT_RULE_OVERRIDE        0x0008
#define NGX_RATELIMIT_RULE_LEASE           0x0010
#define NGX_RATELIMIT_RULE_STRICT          0x0020
#define NGX_RATELIMIT_RULE_ASYNC           0x0040
#define NGX_RATELIMIT_RULE_OPEN            0x0080
#define NGX_RATELIMIT_RULE_LOCAL           0x0100
#define NGX_RATELIMIT_RULE_CLOSED          0x0200
#define NGX_RATELIMIT_RULE_EMERGENCY       0x0400
#define NGX_RATELIMIT_RULE_SHARDS          0x0800
#define NGX_RATELIMIT_RULE_COST            0x1000
#define NGX_RATELIMIT_RULE_COST_HEADER     0x2000
#define NGX_RATELIMIT_RULE_COUNT_STATUS    0x4000

/* A rule while it is read. */
typedef struct {
    ngx_ratelimit_rule_t   *rule;
    ngx_uint_t              says;     /* bits of the above */
    ngx_ratelimit_said_t    said;     /* by "params" */
    ngx_str_t               cost;     /* with variables; or empty */
    json_t                 *tiers;
    json_t                 *override;
    unsigned                wrong:1;  /* the algorithm is none */
} ngx_ratelimit_draft_t;


/* match_json.c: which requests, counted by what */
void ngx_ratelimit_read_match(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);
void ngx_ratelimit_read_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);

/* Where no key was read: the zone's. */
void ngx_ratelimit_read_default_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule);

/* Sets the rule's key, of its parts. */
void ngx_ratelimit_read_join_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule);


/* combine_json.c: whether what the rule says goes together; the defaults */
void ngx_ratelimit_read_combine(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);

/* Of a rule whose limit is known: whether it can be split into its shards. */
void ngx_ratelimit_read_split(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft);

/* What has variables, by the layer above, which knows them. */
void ngx_ratelimit_read_values(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_draft_t *draft);


/*
 * tiers_json.c: "tiers" and "override". limited: the rule's own limit is known,
 * and theirs can be made.
 */
void ngx_ratelimit_read_allowances(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited);

#endif /* NGX_RATELIMIT_RULE_JSON_H_INCLUDED */

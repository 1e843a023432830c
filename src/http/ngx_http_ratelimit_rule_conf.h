/*
 * A rule's parameters: what rule_conf.c, which reads and combines them, knows
 * of the functions that set each one. Inside the files that set one only.
 */

#ifndef NGX_HTTP_RATELIMIT_RULE_CONF_H_INCLUDED
#define NGX_HTTP_RATELIMIT_RULE_CONF_H_INCLUDED

#include "ngx_http_ratelimit.h"

/*
 * Sets what a parameter's value says. Returns NULL, or what was expected;
 * "" when the error is logged already.
 */
typedef const char *(*ngx_http_ratelimit_parameter_pt)(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);

/* zone_conf.c: of rule->own, the zone whose rule it is */
const char *ngx_http_ratelimit_set_zone(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_redis(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_state(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_clear(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);

/* match_conf.c: which requests, counted by what */
const char *ngx_http_ratelimit_set_key(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_match(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_methods(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_rule_tier(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_host(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_rule_api_key(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_percent(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_group(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_priority(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);

/*
 * tiers_conf.c: other limits, by tier. set keeps the text, make reads it when
 * the rule's own limit is known: a rate's, or a number's. Returns NULL, or what
 * was expected.
 */
const char *ngx_http_ratelimit_set_tiers(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_make_tiers(ngx_conf_t *cf, ngx_uint_t rates,
    ngx_http_ratelimit_rule_t *rule);

/* The next of a list of texts with commas between them, from *p to last. */
ngx_str_t ngx_http_ratelimit_next(u_char **p, u_char *last);

/* spec_conf.c: how much, and how it is counted */
const char *ngx_http_ratelimit_set_algorithm(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_rate(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_limit(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_window(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_capacity(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_burst(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_nodelay(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_delay(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_sync(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_shards(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_fail_mode(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_emergency(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_dry_run(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_cost(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_cost_header(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);
const char *ngx_http_ratelimit_set_count_status(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);

#endif /* NGX_HTTP_RATELIMIT_RULE_CONF_H_INCLUDED */

/*
 * Decides for a request: which lists have it, which rules, and what limits.
 */

#include "ngx_rl_subject.h"

#include "ngx_rl_route.h"

/* in the order of ngx_rl_match_e */
const char *const  ngx_rl_match_names[NGX_RL_MATCHES] = {
    "matched", "method", "path", "host", "api_key", "tier", "network", "header",
    "arg", "if", "skipped", "disabled", "not_active", "group", "key_empty",
    "percent", "unlimited", "limit_empty", "limit_wrong", "too_many"
};

/* in the order of ngx_rl_origin_e */
const char *const  ngx_rl_origin_names[] = {
    "rule", "tier", "key", "rule_key"
};


void
ngx_rl_subject_digest(ngx_rl_subject_t *subject)
{
    if (subject->api_key.len == 0) {
        return;
    }

    ngx_rl_policy_digest(&subject->api_key, subject->digest);
    subject->digested = 1;
}


ngx_int_t
ngx_rl_subject_tier(ngx_rl_subject_t *subject, const ngx_rl_policy_t *policy,
    const ngx_str_t *otherwise, ngx_rl_key_of_pt key_of, void *data)
{
    u_char                   digest[NGX_RL_MAP_KEY];
    uint32_t                 number, best;
    ngx_str_t                key;
    ngx_uint_t               i;
    ngx_rl_clients_t        *clients;
    ngx_rl_policy_source_t  *source;

    subject->tier = *otherwise;
    best = 0;
    source = policy->sources.elts;

    for (i = 0; i < policy->sources.nelts; i++) {
        key = subject->api_key;
        clients = &source[i].tiers;

        if (clients->digests.entries == NULL && clients->globs == NULL) {
            continue;
        }

        if (source[i].rule && key_of(data, source[i].rule, &key) != NGX_OK) {
            return NGX_ERROR;
        }

        if (key.len == 0) {
            continue;
        }

        if (clients->digests.entries) {
            if (source[i].rule) {
                ngx_rl_policy_value_digest(source[i].rule, &key, digest);
            }

            number = ngx_rl_map_get(&clients->digests,
                                    source[i].rule ? digest : subject->digest);

            if (number != NGX_RL_MAP_NONE) {
                subject->tier = policy->tiers[number];
                return NGX_OK;
            }
        }

        number = ngx_rl_globs_find(clients->globs, key.data, key.len);

        if (number != NGX_RL_GLOB_NONE) {
            best = ngx_max(best, clients->glob_values[number]);
        }
    }

    if (best) {
        subject->tier = policy->tiers[best];
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_rl_listed_until(uint32_t ends, time_t now)
{
    return ends != NGX_RL_MAP_NONE && ends > (uint32_t) now;
}


static ngx_uint_t
ngx_rl_clients_have(const ngx_rl_clients_t *list,
    const ngx_rl_subject_t *subject, time_t now)
{
    uint32_t  number;

    if (subject->addressed
        && ngx_rl_networks_have(list->networks, subject->address,
                                (uint32_t) now + 1))
    {
        return 1;
    }

    if (subject->digested
        && ngx_rl_listed_until(ngx_rl_map_get(&list->digests, subject->digest),
                               now))
    {
        return 1;
    }

    if (subject->api_key.len == 0 || list->globs == NULL) {
        return 0;
    }

    /* of those that match, it is the last to end */

    number = ngx_rl_globs_find(list->globs, subject->api_key.data,
                               subject->api_key.len);

    return number != NGX_RL_GLOB_NONE
           && ngx_rl_listed_until(list->glob_values[number], now);
}


ngx_rl_listed_e
ngx_rl_policy_listed(const ngx_rl_policy_t *policy,
    const ngx_rl_subject_t *subject, time_t now)
{
    const ngx_rl_policy_t  *base;

    base = policy->limiter->base;

    if (ngx_rl_clients_have(&policy->deny, subject, now)
        || (base != policy && ngx_rl_clients_have(&base->deny, subject, now)))
    {
        return NGX_RL_LISTED_DENIED;
    }

    if (ngx_rl_clients_have(&policy->allow, subject, now)
        || (base != policy && ngx_rl_clients_have(&base->allow, subject, now)))
    {
        return NGX_RL_LISTED_ALLOWED;
    }

    return NGX_RL_LISTED_NOT;
}


ngx_rl_listed_e
ngx_rl_policy_listed_key(const ngx_rl_policy_source_t *source,
    const ngx_str_t *key, time_t now)
{
    u_char  digest[NGX_RL_MAP_KEY];

    if (key->len == 0) {
        return NGX_RL_LISTED_NOT;
    }

    ngx_rl_policy_value_digest(source->rule, key, digest);

    if (ngx_rl_listed_until(ngx_rl_map_get(&source->deny.digests, digest), now))
    {
        return NGX_RL_LISTED_DENIED;
    }

    return ngx_rl_listed_until(ngx_rl_map_get(&source->allow.digests, digest),
                               now)
           ? NGX_RL_LISTED_ALLOWED : NGX_RL_LISTED_NOT;
}


/* Last of all: a regular expression is what takes the longest. */
static ngx_uint_t
ngx_rl_rule_path(const ngx_rl_rule_t *rule, ngx_uint_t found,
    ngx_rl_subject_t *subject)
{
#if (NGX_PCRE)
    char       note[NGX_RL_LOG_NOTE];
    ngx_int_t  n;
#endif

    if (rule->route.len && !found
        && !ngx_rl_route_match(rule->route.data, rule->route.len,
                               subject->readings, 0))
    {
        return 0;
    }

#if (NGX_PCRE)

    if (rule->regex) {
        n = ngx_regex_exec(rule->regex, &subject->path, NULL, 0);

        if (n == NGX_REGEX_NO_MATCHED) {
            return 0;
        }

        if (n < 0
            && ngx_rl_log_due(subject->log_limit, ngx_current_msec,
                              NGX_RL_LOG_MS, note))
        {
            ngx_log_error(NGX_LOG_ERR, subject->log, 0,
                          ngx_regex_exec_n " failed: %i on ratelimit rule "
                          "\"%V\", the rule applies%s", n, &rule->id, note);
        }
    }

#endif

    return 1;
}


ngx_rl_match_e
ngx_rl_rule_match(const ngx_rl_rule_t *rule, ngx_uint_t found,
    ngx_rl_subject_t *subject)
{
    int64_t           local, next;
    ngx_uint_t        i;
    const ngx_str_t  *host;

    if (rule->skipped) {
        return rule->disabled ? NGX_RL_DISABLED : NGX_RL_SKIPPED;
    }

    if (rule->timed) {
        local = ngx_time();

        if (rule->active_tz) {
            local += ngx_rl_tz_offset(rule->active_tz, local, &next);
        }

        if (!ngx_rl_week_has(&rule->active, (uint64_t) local)) {
            return NGX_RL_NOT_ACTIVE;
        }
    }

    if (rule->methods && !(rule->methods & subject->method)) {
        return NGX_RL_OTHER_METHOD;
    }

    if (rule->tier.len && !ngx_rl_equal(&rule->tier, &subject->tier)) {
        return NGX_RL_OTHER_TIER;
    }

    host = &subject->host;

    for (i = 0; i < rule->nhosts; i++) {
        if (ngx_rl_glob_match(rule->hosts[i].data, rule->hosts[i].len,
                              host->data, host->len))
        {
            break;
        }
    }

    if (rule->nhosts && i == rule->nhosts) {
        return NGX_RL_OTHER_HOST;
    }

    if (rule->api_keys && !ngx_rl_clients_have(rule->api_keys, subject, 0)) {
        return NGX_RL_OTHER_API_KEY;
    }

    if (rule->networks
        && !(subject->addressed
             && ngx_rl_networks_have(rule->networks, subject->address,
                                     0)))
    {
        return NGX_RL_OTHER_NETWORK;
    }

    if (!ngx_rl_rule_path(rule, found, subject)) {
        return NGX_RL_OTHER_PATH;
    }

    return NGX_RL_MATCHED;
}


ngx_uint_t
ngx_rl_rule_every(const ngx_rl_rule_t *rule, const ngx_rl_subject_t *subject)
{
    return rule->route.len == 0
           || subject->readings->n == 0
           || ngx_rl_route_match(rule->route.data, rule->route.len,
                                 subject->readings, 1);
}


const ngx_rl_allowance_t *
ngx_rl_rule_allowance(const ngx_rl_rule_t *rule,
    const ngx_rl_subject_t *subject, const ngx_str_t *key,
    ngx_rl_origin_e *origin)
{
    u_char           digest[NGX_RL_MAP_KEY];
    uint32_t         number;
    ngx_uint_t       i;
    ngx_rl_origin_e  unused;

    origin = origin ? origin : &unused;

    if (rule->own_keys.entries) {
        ngx_rl_policy_value_digest(rule, key, digest);
        number = ngx_rl_map_get(&rule->own_keys, digest);

        if (number != NGX_RL_MAP_NONE) {
            *origin = NGX_RL_ORIGIN_RULE_KEY;
            return &rule->key_limits[number];
        }
    }

    if (rule->keys.entries && subject->digested) {
        number = ngx_rl_map_get(&rule->keys, subject->digest);

        if (number != NGX_RL_MAP_NONE) {
            *origin = NGX_RL_ORIGIN_KEY;
            return &rule->key_limits[number];
        }
    }

    for (i = 0; i < rule->ntier_limits; i++) {
        if (ngx_rl_equal(&rule->tier_limits[i].tier, &subject->tier)) {
            *origin = NGX_RL_ORIGIN_TIER;
            return &rule->tier_limits[i].allowance;
        }
    }

    *origin = NGX_RL_ORIGIN_RULE;

    return NULL;
}


/* The best of the list of one key, which begins with number. */
static const ngx_rl_override_t *
ngx_rl_override_better(const ngx_rl_policy_t *policy,
    const ngx_rl_rule_t *rule, uint32_t number, time_t now,
    const ngx_rl_override_t *best)
{
    const ngx_rl_override_t  *o;

    for ( /* void */ ; number != NGX_RL_MAP_NONE; number = o->next) {
        o = &policy->overrides[number];

        if ((o->expires && now >= o->expires)
            || (o->rule_id.len && !ngx_rl_equal(&o->rule_id, &rule->id)))
        {
            continue;
        }

        if (best == NULL || (o->rule_id.len && best->rule_id.len == 0)
            || (!o->rule_id.len == !best->rule_id.len && o > best))
        {
            best = o;
        }
    }

    return best;
}


const ngx_rl_override_t *
ngx_rl_policy_override(const ngx_rl_policy_t *policy,
    const ngx_rl_rule_t *rule, const ngx_rl_subject_t *subject,
    const ngx_str_t *key, time_t now)
{
    u_char                     digest[NGX_RL_MAP_KEY], *p, *end, *last;
    ngx_str_t                  value;
    ngx_uint_t                 i, n;
    const ngx_str_t           *parts;
    const ngx_rl_override_t  *best;

    /* the shares of a split counter are made before */

    if (policy->overrides == NULL || rule->shards) {
        return NULL;
    }

    best = NULL;

    if (subject->digested) {
        best = ngx_rl_override_better(policy, rule,
                                       ngx_rl_map_get(&policy->override_keys,
                                                      subject->digest), now,
                                       best);
    }

    if (!policy->tenants) {
        return best;
    }

    parts = rule->nparts ? rule->parts : &rule->key;
    n = rule->nparts ? rule->nparts : 1;

    p = key->data;
    last = key->data + key->len;

    for (i = 0; i < n && p <= last; i++) {
        end = (n == 1) ? NULL : ngx_strlchr(p, last, NGX_RL_PART_END);
        end = end ? end : last;

        value = ngx_rl_str(p, end - p);

        ngx_rl_policy_part_digest(&parts[i], &value, n > 1, digest);

        best = ngx_rl_override_better(policy, rule,
                                       ngx_rl_map_get(&policy->override_keys,
                                                      digest), now, best);
        p = end + 1;
    }

    return best;
}


const char *
ngx_rl_override_limit(const ngx_rl_override_t *override,
    const ngx_rl_spec_t *base, ngx_rl_limit_t *limit)
{
    const char     *expected;
    ngx_rl_spec_t   spec;

    if (override->millionths) {
        ngx_rl_amount_scale(base, override->millionths, &spec);

    } else {
        expected = ngx_rl_amount_inherit(base, &override->amount, &spec);
        if (expected) {
            return expected;
        }
    }

    return ngx_rl_limit_init(limit, &spec);
}

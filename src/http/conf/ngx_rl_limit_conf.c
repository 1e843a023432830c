/*
 * "ratelimit" in a location, and what only the whole configuration tells:
 * which names meet what they name, in whatever order they were written.
 */

#include "ngx_rl_api.h"
#include "ngx_rl_conf.h"
#include "ngx_rl_key.h"

#include "ngx_rl_param.h"

#define NGX_RL_ONCE_MAX_S  (7 * 86400)


/*
 * ratelimit zone=<name> [rule=<id>] [look] [burst=<n>] [nodelay | delay=<n>]
 *           | off
 */
char *
ngx_rl_location_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t                *value;
    ngx_uint_t                i, off;
    ngx_rl_rule_conf_t        names;
    ngx_rl_location_limit_t  *limit, **entry;
    ngx_rl_main_conf_t       *rmcf;

    value = cf->args->elts;
    off = (value[1].len == 3 && ngx_strncmp(value[1].data, "off", 3) == 0);

    if (rlcf->limits == NULL) {
        rlcf->limits = ngx_array_create(cf->pool, 2,
                                        sizeof(ngx_rl_location_limit_t *));
        if (rlcf->limits == NULL) {
            return NGX_CONF_ERROR;
        }

    } else if (off || rlcf->limits->nelts == 0) {
        return "\"off\" stands beside another \"ratelimit\", expected it alone";
    }

    if (off) {
        return (cf->args->nelts == 2) ? NGX_CONF_OK
                                      : "\"off\" takes no parameter";
    }

    limit = ngx_pcalloc(cf->pool, sizeof(ngx_rl_location_limit_t));

    if (limit == NULL
        || ngx_rl_rule_parameters(cf, NGX_RL_IN_LIMIT, &names) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_rl_says(&names.draft, NGX_RL_PARAM_DELAY)
        && ngx_rl_says(&names.draft, NGX_RL_PARAM_NODELAY))
    {
        return "has \"delay=\" beside \"nodelay\", expected one of them";
    }

    limit->zone = names.draft.zone;
    limit->rule_id = names.draft.rule.id;
    limit->spec = names.draft.rule.spec;
    limit->look = (names.draft.look != 0);
    limit->own_burst = ngx_rl_says(&names.draft, NGX_RL_PARAM_BURST);
    limit->own = limit->own_burst
                 || ngx_rl_says(&names.draft, NGX_RL_PARAM_DELAY)
                 || ngx_rl_says(&names.draft, NGX_RL_PARAM_NODELAY);

    if (!limit->own_burst) {
        limit->spec.burst = NGX_RL_MAX_TOKENS;
    }

    ngx_rl_place(cf, &limit->place);

    if (limit->zone.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit\" has no zone, "
                           "expected \"zone=<name>\"");
        return NGX_CONF_ERROR;
    }

    entry = rlcf->limits->elts;

    for (i = 0; i < rlcf->limits->nelts; i++) {
        if (ngx_rl_equal(&entry[i]->zone, &limit->zone)
            && (entry[i]->rule_id.len == 0 || limit->rule_id.len == 0
                || ngx_rl_equal(&entry[i]->rule_id, &limit->rule_id)))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit\" counts zone \"%V\" twice, "
                               "expected the zone, or each of its rules, once",
                               &limit->zone);
            return NGX_CONF_ERROR;
        }
    }

    rmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    return (ngx_rl_push(rlcf->limits, limit) == NGX_OK
            && ngx_rl_push(&rmcf->limits, limit) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* Whether two locations have different tiers; NULL differs from none. */
static ngx_uint_t
ngx_rl_tiers_differ(const ngx_rl_value_t *one, const ngx_rl_value_t *two)
{
    if (one == NULL || one == two) {
        return 0;
    }

    return one->index != two->index
           || (one->index == -1 && !ngx_rl_equal(&one->text, &two->text));
}


void
ngx_rl_limit_location(ngx_conf_t *cf, ngx_rl_loc_conf_t *conf)
{
    ngx_uint_t                 i, folds;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_rl_location_limit_t  **limits;

    if (conf->limits == NULL) {
        return;
    }

    limits = conf->limits->elts;

    /* a server may leave the templates to its locations */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    folds = clcf->name.len && ngx_rl_route_folds(conf->routes);

    for (i = 0; i < conf->limits->nelts; i++) {
        limits[i]->folds |= folds;

        if (clcf->name.len) {
            limits[i]->fail_modes |= (ngx_uint_t) 1 << conf->fail_mode;
        }

        if (conf->tier) {
            limits[i]->tiers |= ngx_rl_tiers_differ(
                                                  limits[i]->tier, conf->tier);
            limits[i]->tier = conf->tier;
        }
    }
}


/* ratelimit_tier <value> */
char *
ngx_rl_tier(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t  *value;

    if (rlcf->tier != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    rlcf->tier = ngx_rl_value_new(cf, &value[1]);

    return rlcf->tier ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* ratelimit_once <key> <time> | off */
char *
ngx_rl_once(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t           *value;
    ngx_rl_once_conf_t  *once;

    if (rlcf->once) {
        return "is duplicate";
    }

    once = ngx_pcalloc(cf->pool, sizeof(ngx_rl_once_conf_t));
    if (once == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;
    rlcf->once = once;

    if (cf->args->nelts == 2) {
        return (ngx_strcmp(value[1].data, "off") == 0)
               ? NGX_CONF_OK : "has no time, expected \"<key> <time>\" or "
                               "\"off\"";
    }

    if (ngx_rl_key_constant(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_once\" has the key \"%V\" without a "
                           "variable, expected one as in "
                           "\"$http_idempotency_key\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    once->time = value[2].len ? ngx_parse_time(&value[2], 1) : NGX_ERROR;

    if (once->time < 1 || once->time > NGX_RL_ONCE_MAX_S) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_once\" has an invalid \"%V\", "
                           "expected a time from 1s to 7d", &value[2]);
        return NGX_CONF_ERROR;
    }

    once->key = ngx_rl_value_new(cf, &value[1]);

    return once->key ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_rl_resolve_rule(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_rule_conf_t *rule)
{
    ngx_rl_draft_t      *draft;
    ngx_rl_rule_conf_t  *first, **rules;
    ngx_rl_zone_conf_t  *zone;

    draft = &rule->draft;
    zone = ngx_rl_zone_find(cf, conf, &draft->zone, "ratelimit_rule",
                            &draft->rule.id, &rule->place);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    for (rules = conf->rules.elts; *rules != rule; rules++) {
        first = *rules;

        if (!ngx_rl_equal(&first->draft.zone, &draft->zone)
            || !ngx_rl_equal(&first->draft.rule.id, &draft->rule.id))
        {
            continue;
        }

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "zone \"%V\" has two rules \"%V\", first %sin %V:%ui, "
                      "and again in %V:%ui", &draft->zone, &draft->rule.id,
                      (first->draft.in & NGX_RL_IN_ZONE)
                      ? "its own " : "",
                      &first->place.file, first->place.line,
                      &rule->place.file, rule->place.line);
        return NGX_ERROR;
    }

    if (rule->shared.len && zone->redis.len == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "rule \"%V\" has \"%V\", expected a zone with "
                      "\"redis=\" in %V:%ui", &draft->rule.id, &rule->shared,
                      &rule->place.file, rule->place.line);
        return NGX_ERROR;
    }

    if (draft->rule.key.len == 0) {
        draft->rule.key = zone->limiter.zone.key;
        rule->values.key = zone->key;
    }

    return ngx_rl_push(&zone->limiter.base->rules, &draft->rule);
}


static ngx_int_t
ngx_rl_resolve_zone(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_zone_conf_t *zone)
{
    ngx_uint_t        i;
    ngx_rl_rule_t   **rules;
    ngx_rl_redis_t  **redis;
    ngx_rl_hint_t     hint;

    if (zone->limiter.base->rules.nelts == 0 && !zone->limiter.follows) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"ratelimit_zone\" \"%V\" has no rule, expected "
                      "\"rate=\" or a \"ratelimit_rule\" in %V:%ui",
                      &zone->limiter.zone.name, &zone->place.file,
                      zone->place.line);
        return NGX_ERROR;
    }

    redis = conf->redis.elts;
    ngx_rl_hint_init(&hint, &zone->redis);

    for (i = 0; i < conf->redis.nelts; i++) {
        ngx_rl_hint_add(&hint, &redis[i]->name);

        if (ngx_rl_equal(&redis[i]->name, &zone->redis)) {
            zone->limiter.redis = redis[i];
        }
    }

    if (zone->redis.len && zone->limiter.redis == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"ratelimit_zone\" \"%V\" has an unknown "
                      "\"redis=%V\", %V in %V:%ui",
                      &zone->limiter.zone.name, &zone->redis,
                      ngx_rl_hint_text(&hint, ""),
                      &zone->place.file, zone->place.line);
        return NGX_ERROR;
    }

    ngx_rl_above(cf, zone);

    if (ngx_rl_policy_complete(zone->limiter.base) != NGX_OK) {
        return NGX_ERROR;
    }

    rules = zone->limiter.base->rules.elts;

    for (i = 0; i < zone->limiter.base->rules.nelts; i++) {
        if (ngx_rl_check_prepare(rules[i], cf->pool) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* The leaky bucket of which a location uses a part, as limit_req does. */
static ngx_int_t
ngx_rl_resolve_part(ngx_conf_t *cf, ngx_rl_location_limit_t *limit,
    ngx_rl_zone_conf_t *zone)
{
    ngx_uint_t        all;
    const char       *expected;
    ngx_rl_rule_t    *rule;
    ngx_rl_policy_t  *base;

    base = zone->limiter.base;
    all = (limit->number == NGX_RL_ALL);
    limit->part = NGX_RL_ALL;

    if (!limit->own) {
        return NGX_OK;
    }

    rule = (all && base->nfixed != 1) ? NULL
                                      : base->fixed[all ? 0 : limit->number];

    if (rule == NULL) {
        expected = "\"rule=\", since nginx.conf does not have one rule of the "
                   "zone";

    } else if (rule->spec.algorithm != NGX_RL_LEAKY_BUCKET) {
        expected = "a rule with algorithm leaky_bucket";

    } else if (base->limiter->redis && rule->sync != NGX_RL_SYNC_STRICT) {
        expected = "a rule with \"sync=strict\"";

    } else if (limit->own_burst && limit->spec.burst > rule->spec.burst) {
        expected = "a burst of at most that of the rule";

    } else {
        expected = rule->dynamic ? NULL
                   : ngx_rl_limit_part(&rule->limit, &limit->spec,
                                       &limit->limit);
    }

    if (expected) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"ratelimit\" has a \"burst=\", \"delay=\" or "
                      "\"nodelay\" for zone \"%V\", expected %s in %V:%ui",
                      &limit->zone, expected, &limit->place.file,
                      limit->place.line);
        return NGX_ERROR;
    }

    limit->part = rule->number;
    rule->parted = 1;
    rule->needs |= NGX_RL_NEEDS_LIMIT;
    base->needs |= NGX_RL_NEEDS_LIMIT;

    return NGX_OK;
}


static ngx_int_t
ngx_rl_resolve_limit(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_location_limit_t *limit)
{
    ngx_uint_t           i;
    ngx_rl_rule_t       *rule, **rules;
    ngx_rl_hint_t        hint;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_rl_zone_find(cf, conf, &limit->zone, "ratelimit", NULL,
                            &limit->place);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    zone->used = 1;
    zone->limiter.folds |= limit->folds;
    zone->limiter.fail_modes |= limit->fail_modes;

    if (limit->tier) {
        zone->tiers |= limit->tiers
                       || ngx_rl_tiers_differ(zone->tier, limit->tier);
        zone->tier = limit->tier;
    }

    limit->limiter = &zone->limiter;

    limit->number = NGX_RL_ALL;

    if (limit->rule_id.len == 0) {
        return ngx_rl_resolve_part(cf, limit, zone);
    }

    rule = ngx_rl_limiter_rule(&zone->limiter, &limit->rule_id);

    if (rule == NULL) {
        ngx_rl_hint_init(&hint, &limit->rule_id);
        rules = zone->limiter.base->rules.elts;

        for (i = 0; i < zone->limiter.base->rules.nelts; i++) {
            ngx_rl_hint_add(&hint, &rules[i]->id);
        }

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"ratelimit\" has an unknown \"rule=%V\" of zone "
                      "\"%V\", %V in %V:%ui", &limit->rule_id, &limit->zone,
                      ngx_rl_hint_text(&hint, ""),
                      &limit->place.file, limit->place.line);
        return NGX_ERROR;
    }

    limit->number = rule->number;

    return ngx_rl_resolve_part(cf, limit, zone);
}


/*
 * In shared memory time is a number of milliseconds: a bucket is full again in
 * each of them, and gets no more.
 */
static void
ngx_rl_resolve_warn_rate(ngx_conf_t *cf, const ngx_rl_zone_conf_t *zone,
    ngx_rl_rule_conf_t *rule)
{
    ngx_uint_t             leaky;
    const ngx_rl_rate_t   *rate;
    const ngx_rl_draft_t  *draft;

    draft = &rule->draft;
    rate = &draft->rule.limit.rate;
    leaky = (draft->rule.limit.algorithm == NGX_RL_LEAKY_BUCKET);

    if (zone->redis.len || rate->capacity == 0 || rate->span_us >= 1000) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "rule \"%V\" of zone \"%V\" admits at most %ui requests a "
                  "second, which is less than its rate, expected \"%s=%uL\" "
                  "or more in %V:%ui", &draft->rule.id, &draft->zone,
                  (ngx_uint_t) rate->capacity * 1000,
                  leaky ? "burst" : "capacity",
                  ((uint64_t) rate->scale * 1000 + rate->period_us - 1)
                  / rate->period_us - leaky,
                  &rule->place.file, rule->place.line);
}


/* Warns of lines that are valid and hardly meant. */
static void
ngx_rl_resolve_warn(ngx_conf_t *cf, ngx_rl_main_conf_t *conf)
{
    ngx_str_t            *zone;
    ngx_uint_t            i;
    ngx_rl_draft_t       *draft;
    ngx_rl_rule_conf_t  **rules;
    ngx_rl_zone_conf_t  **zones, *of;

    zones = conf->zones.elts;

    for (i = 0; i < conf->zones.nelts; i++) {
        zone = &zones[i]->limiter.zone.name;

        if (!zones[i]->used) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"ratelimit_zone\" \"%V\" limits nothing, expected "
                          "a \"ratelimit zone=%V\" in %V:%ui", zone, zone,
                          &zones[i]->place.file, zones[i]->place.line);
        }
    }

    rules = conf->rules.elts;

    for (i = 0; i < conf->rules.nelts; i++) {
        draft = &rules[i]->draft;
        of = ngx_rl_zone_by_name(conf, &draft->zone);

        if (of->limiter.folds
            && ngx_rl_key_folds(draft->rule.key.len ? &draft->rule.key
                                : &of->limiter.zone.key))
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "rule \"%V\" of zone \"%V\" counts by "
                          "$ratelimit_route, so a client has a counter for "
                          "each path that it invents, expected a "
                          "\"ratelimit_route ... /**\" where \"ratelimit "
                          "zone=%V\" is in %V:%ui",
                          &draft->rule.id, &draft->zone, &draft->zone,
                          &rules[i]->place.file, rules[i]->place.line);
        }

        if (ngx_rl_limit_claimed(&draft->limit_text)) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "rule \"%V\" of zone \"%V\" has the limit \"%V\", "
                          "which is none without a valid token, expected a "
                          "\"map\" of it, with a number for \"\" in %V:%ui",
                          &draft->rule.id, &draft->zone, &draft->limit_text,
                          &rules[i]->place.file, rules[i]->place.line);
        }

        ngx_rl_resolve_warn_rate(cf, of, rules[i]);

        /* a document may give tiers to API keys */

        if (!of->used || of->tier || of->limiter.follows
            || !(ngx_rl_says(draft, NGX_RL_PARAM_TIER)
                 || ngx_rl_says(draft, NGX_RL_PARAM_TIER_LIMITS)))
        {
            continue;
        }

        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "rule \"%V\" of zone \"%V\" has \"%s=%V\" without "
                      "effect, expected a \"ratelimit_tier\" where \"ratelimit "
                      "zone=%V\" is in %V:%ui", &draft->rule.id, &draft->zone,
                      draft->rule.tier.len ? "tier" : "tiers",
                      draft->rule.tier.len ? &draft->rule.tier
                                           : &draft->tier_limits,
                      &draft->zone, &rules[i]->place.file,
                      rules[i]->place.line);
    }
}


ngx_int_t
ngx_rl_resolve(ngx_conf_t *cf)
{
    ngx_uint_t                 i;
    ngx_rl_rule_conf_t       **rules;
    ngx_rl_zone_conf_t       **zones;
    ngx_rl_location_limit_t  **limits;
    ngx_rl_main_conf_t        *conf;

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    if (ngx_rl_redis_names(cf, conf) != NGX_OK
        || ngx_rl_api_resolve(cf, conf) != NGX_OK
        || ngx_rl_access_resolve(cf, conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rules = conf->rules.elts;

    for (i = 0; i < conf->rules.nelts; i++) {
        if (ngx_rl_resolve_rule(cf, conf, rules[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (ngx_rl_penalties_resolve(cf, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    zones = conf->zones.elts;

    for (i = 0; i < conf->zones.nelts; i++) {
        if (ngx_rl_resolve_zone(cf, conf, zones[i]) != NGX_OK
            || ngx_rl_zone_follow(cf, conf, zones[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    limits = conf->limits.elts;

    for (i = 0; i < conf->limits.nelts; i++) {
        if (ngx_rl_resolve_limit(cf, conf, limits[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_rl_resolve_warn(cf, conf);

    return NGX_OK;
}

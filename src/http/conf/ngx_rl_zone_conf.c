/*
 * "ratelimit_zone": the shared memory, its key, its Redis, and the rule of
 * the zone itself.
 */

#include "ngx_rl_conf.h"

#include "ngx_rl_document.h"
#include "ngx_rl_follow.h"
#include "ngx_rl_text.h"


/* "name:size" */
static ngx_int_t
ngx_rl_zone_size(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_zone_conf_t *zone, ngx_str_t *text)
{
    u_char              *colon;
    size_t               min;
    ssize_t              size;
    ngx_str_t           *name, number;
    ngx_rl_zone_conf_t  *first;

    if (text->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has no zone, "
                           "expected \"zone=<name>:<size>\"");
        return NGX_ERROR;
    }

    colon = ngx_strlchr(text->data, text->data + text->len, ':');

    if (colon == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has an invalid \"zone=%V\", "
                           "expected \"zone=<name>:<size>\"", text);
        return NGX_ERROR;
    }

    name = &zone->limiter.zone.name;

    name->data = text->data;
    name->len = colon - text->data;

    if (!ngx_rl_name_valid(name->data, name->len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has an invalid name \"%V\", "
                           "expected " NGX_RL_NAME_EXPECTED, name);
        return NGX_ERROR;
    }

    first = ngx_rl_zone_by_name(conf, name);

    if (first) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" \"%V\" is defined twice, "
                           "first in %V:%ui, and again", name,
                           &first->place.file, first->place.line);
        return NGX_ERROR;
    }

    number.data = colon + 1;
    number.len = text->data + text->len - number.data;

    min = ngx_rl_zone_min_size();
    size = ngx_parse_size(&number);

    if (size != NGX_ERROR && size >= (ssize_t) min) {
        zone->size = size;
        return NGX_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"ratelimit_zone\" \"%V\" has an invalid size "
                       "\"%V\", expected %uzk or more, as in \"10m\"",
                       name, &number, min / 1024);

    return NGX_ERROR;
}


char *
ngx_rl_zone_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    ngx_str_t           *value, *key, *name;
    ngx_rl_draft_t      *draft;
    ngx_rl_limiter_t    *limiter;
    ngx_rl_rule_conf_t  *rule;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_rl_zone_conf_t));
    rule = ngx_pcalloc(cf->pool, sizeof(ngx_rl_rule_conf_t));

    if (zone == NULL || rule == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_rl_place(cf, &zone->place);

    if (ngx_rl_rule_no_name(cf, NGX_RL_IN_ZONE, "key")) {
        return NGX_CONF_ERROR;
    }

    /* "key", or "key=key" as a rule writes it */

    value = cf->args->elts;
    limiter = &zone->limiter;
    key = &limiter->zone.key;
    name = &limiter->zone.name;

    if (ngx_rl_parameter(&value[1], "key=", key) == NULL) {
        *key = value[1];
    }

    if (key->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has an empty key, "
                           "expected a value with variables");
        return NGX_CONF_ERROR;
    }

    ngx_rl_key_warn(cf, key);

    if (ngx_rl_value_compile(cf, key, &zone->key) != NGX_OK
        || ngx_rl_rule_parameters(cf, NGX_RL_IN_ZONE, rule) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    draft = &rule->draft;
    zone->redis = draft->redis;
    limiter->zone.leased = (draft->redis.len != 0);
    limiter->clear = (draft->clear != 0);
    limiter->new_keys = draft->new_keys;
    limiter->state = draft->state;
    limiter->follows = (draft->state.len != 0);

    if (ngx_rl_zone_size(cf, rmcf, zone, &draft->zone) != NGX_OK
        || (limiter->follows
            && ngx_conf_full_name(cf->cycle, &limiter->state, 1) != NGX_OK))
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_rl_zone_add(cf, &limiter->zone, zone->size,
                        &ngx_http_ratelimit_module)
        != NGX_OK
        || ngx_rl_policy_base(limiter, cf->pool) == NULL
        || ngx_rl_push(&rmcf->zones, zone) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    /* a parameter of a rule makes one, of the zone's name and key */

    if (draft->says >> NGX_RL_PARAM_ALGORITHM == 0) {
        return NGX_CONF_OK;
    }

    draft->rule.id = *name;
    draft->zone = *name;

    return (ngx_rl_rule_enter(cf, rmcf, rule) == NGX_OK) ? NGX_CONF_OK
                                                         : NGX_CONF_ERROR;
}


/* Compiling a document needs this from this layer. */
void
ngx_rl_above(ngx_conf_t *cf, ngx_rl_zone_conf_t *zone)
{
    ngx_rl_above_t  *above;

    zone->core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    above = &zone->limiter.above;

    above->values = ngx_rl_values;
    above->data = zone;
    above->prepare = ngx_rl_check_prepare;
    above->method = ngx_rl_method;
}


/* When all is read: what a zone needs that follows a document. */
ngx_int_t
ngx_rl_zone_follow(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_zone_conf_t *zone)
{
    ngx_uint_t            i;
    ngx_rl_zone_conf_t  **zones;

    if (!zone->limiter.follows) {
        return NGX_OK;
    }

    zones = conf->zones.elts;

    for (i = 0; zones[i] != zone; i++) {
        if (zone->limiter.state.len
            && ngx_rl_equal(&zones[i]->limiter.state, &zone->limiter.state))
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"ratelimit_zone\" \"%V\" has \"state=%V\", "
                          "expected another file than that of zone \"%V\" "
                          "in %V:%ui", &zone->limiter.zone.name,
                          &zone->limiter.state, &zones[i]->limiter.zone.name,
                          &zone->place.file, zone->place.line);
            return NGX_ERROR;
        }
    }

    ngx_rl_document_init();

    return ngx_rl_follow_prepare(cf, &zone->limiter,
                                 &ngx_http_ratelimit_module);
}
